"""From events to causes: finds detectors and rules, builds the graph, lets claims compete, calibrates."""

from __future__ import annotations

from neuraldbg.reasoning.discovery import detectors, rules
from neuraldbg.reasoning.engine import diagnose

__all__ = ["detectors", "diagnose", "rules"]
