"""The base programs, and the frozen split: a program belongs to one part of it for good."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarks.corpus.plan import Program
from benchmarks.corpus.programs import attention, control, dense, recurrent, relations, vision, wider

_ALL = (dense, vision, recurrent, attention, relations, control, wider)
PROGRAMS: Mapping[str, Program] = MappingProxyType({p.name: p for part in _ALL for p in part.PROGRAMS})
