"""Being in the folder is the registration."""

from __future__ import annotations

import importlib
import pkgutil

import neuraldbg.detectors
from neuraldbg.reasoning import detectors, rules
from neuraldbg.run import Run
from neuraldbg.settings import make


def test_every_detector_in_the_folder_is_found_by_name() -> None:
    names = sorted(m.name for m in pkgutil.iter_modules(neuraldbg.detectors.__path__) if not m.name.startswith("_"))
    own = [name for name in names if hasattr(importlib.import_module(f"neuraldbg.detectors.{name}"), "step")]
    assert [d.name for d in detectors()][: len(own)] == own


def test_every_detector_starts_from_the_settings_alone() -> None:
    for detector in detectors():
        detector.initial(make())


def test_every_rule_is_a_function_named_like_its_file() -> None:
    found = rules()
    assert len(found) >= 40
    for name, rule in found:
        assert getattr(rule, "__name__", name) == name
        assert list(rule(Run())) == []


def test_the_last_resort_takes_no_part_in_the_competition() -> None:
    assert "unknown" not in dict(rules())
