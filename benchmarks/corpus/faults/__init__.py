"""Faults that switches inject; each gives the label of what it did."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarks.corpus.faults import data, model, numerics, optimiser
from benchmarks.corpus.plan import Switch

_ALL = (optimiser, model, numerics, data)
FAULTS: Mapping[str, Switch] = MappingProxyType({s.name: s for part in _ALL for s in part.SWITCHES})
