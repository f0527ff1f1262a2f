"""Finds detectors and rules: a file in the folder is its registration, entry points add those of others."""

from __future__ import annotations

import functools
import importlib
import logging
import pkgutil
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, NamedTuple, cast

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.run import Run
from neuraldbg.settings import Settings

Rule = Callable[[Run], Iterator[Claim]]

log = logging.getLogger("neuraldbg")


class Detector(NamedTuple):
    """A detector's two or three functions, taken from its module."""

    name: str
    initial: Callable[[Settings], Any]
    step: Callable[[Any, StepRecord, RunFacts], tuple[Any, list[SemanticEvent]]]
    finish: Callable[[Any, RunFacts], list[SemanticEvent]] | None = None


def _in_folder(package: str) -> Iterator[tuple[str, ModuleType]]:
    folder = importlib.import_module(package)
    for name in sorted(m.name for m in pkgutil.iter_modules(folder.__path__) if not m.name.startswith("_")):
        yield name, importlib.import_module(f"{package}.{name}")


def _elsewhere(group: str) -> Iterator[tuple[str, Any]]:
    for point in sorted(entry_points(group=group), key=lambda p: p.name):
        try:
            yield point.name, point.load()
        except Exception as error:  # another's package must not take the training down
            log.warning("neuraldbg: entry point %s = %s does not load: %r", point.name, point.value, error)


@functools.cache
def detectors() -> tuple[Detector, ...]:
    """Every module of `neuraldbg.detectors` that has `initial` and `step`, then entry points, by name."""
    found = [*_in_folder("neuraldbg.detectors"), *_elsewhere("neuraldbg.detectors")]
    return tuple(
        Detector(name, module.initial, module.step, getattr(module, "finish", None))
        for name, module in found
        if hasattr(module, "initial") and hasattr(module, "step")
    )


@functools.cache
def rules() -> tuple[tuple[str, Rule], ...]:
    """(cause, function) of every module of `neuraldbg.rules`, then entry points, by name.

    `unknown` is no rule of the competition: it speaks when no other one does, so it is not listed.
    """
    own = [
        (name, cast(Rule, getattr(module, name)))
        for name, module in _in_folder("neuraldbg.rules")
        if hasattr(module, name) and name != "unknown"
    ]
    return (*own, *((name, cast(Rule, rule)) for name, rule in _elsewhere("neuraldbg.rules") if callable(rule)))
