"""The pytest fixture `neuraldbg`: a test may assert that a training is healthy, or fails of a given cause.

    def test_one_epoch_is_healthy(neuraldbg):
        with neuraldbg(model):
            train(model)
        neuraldbg.assert_healthy()

    def test_the_whole_script_is_healthy(neuraldbg):
        with neuraldbg.trainings():  # the models are made in there: what optimizers train is watched
            main(["--epochs", "1"])
        neuraldbg.assert_healthy()

pytest loads this plugin wherever NeuralDBG is installed, so it imports neither torch nor pydantic before a test uses
the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from neuraldbg.diagnosis import Diagnosis
    from neuraldbg.watch import NeuralDbg


class Trainings:
    """The trainings of one test."""

    def __init__(self) -> None:
        self._sessions: list[NeuralDbg] = []
        self._found: list[Diagnosis] = []

    def __call__(self, *models: Any, **settings: Any) -> NeuralDbg:
        """A session for these models, as `neuraldbg.NeuralDbg(*models, **settings)`; use it in a `with`."""
        from neuraldbg.watch import NeuralDbg

        session = NeuralDbg(*models, **settings)
        self._sessions.append(session)
        return session

    @contextmanager
    def trainings(self) -> Iterator[Trainings]:
        """Inside, every model that an optimizer of torch.optim trains is watched."""
        from neuraldbg import sinks
        from neuraldbg.watch import discover

        def sink() -> _Kept:
            return _Kept(self._found)

        sinks.add_factory(sink)
        discover.enable(_active, _nothing)
        try:
            yield self
        finally:
            discover.run_ending(RUN[0])
            discover.disable(_active, _nothing)
            sinks.remove_factory(sink)

    @property
    def diagnoses(self) -> list[Diagnosis]:
        """Of each training that made a step, in the order of their ends; those that still run are looked at now."""
        seen = [d for session in self._sessions if (d := session.diagnose()).steps]
        return [*seen, *(d for d in self._found if d not in seen)]

    def assert_healthy(self, *, warnings: bool = False) -> None:
        """Fail the test unless there was a training and each is healthy; `warnings=True` lets warnings pass.

        The failure shows each verdict with cause, layer, step and remedy.
        """
        __tracebackhide__ = True
        found = self._some()
        fine = ("healthy", "running", "warning") if warnings else ("healthy", "running")
        bad = [d for d in found if str(d.verdict) not in fine]
        if bad:
            pytest.fail("\n\n".join(map(str, bad)), pytrace=False)

    def assert_fails(self, cause: str, *, layer: str | None = None) -> None:
        """Fail the test unless a training failed and its first hypothesis is this cause (in this layer, if given)."""
        __tracebackhide__ = True
        _known(cause)
        found = self._some()
        tops = [d.top for d in found if str(d.verdict) == "failed" and d.top is not None]
        if not any(h.cause == cause and (layer is None or h.layer_name == layer) for h in tops):
            wanted = cause + (f" in layer {layer!r}" if layer is not None else "")
            pytest.fail(f"no training failed of {wanted}:\n\n" + "\n\n".join(map(str, found)), pytrace=False)

    def _some(self) -> list[Diagnosis]:
        __tracebackhide__ = True
        found = self.diagnoses
        if not found:
            pytest.fail(
                "no training was seen: train inside `with neuraldbg(model):` or `with neuraldbg.trainings():`",
                pytrace=False,
            )
        return found

    def _close(self) -> None:
        for session in self._sessions:
            session.detach()


RUN = ("neuraldbg pytest fixture",)


def _active() -> tuple[str, ...]:
    return RUN


def _nothing() -> None:
    """Called after each optimizer step."""


class _Kept:
    """A sink that keeps the diagnoses of sessions that made a step."""

    def __init__(self, found: list[Diagnosis]) -> None:
        self._found = found

    def open(self, facts: Any) -> None: ...

    def facts(self, update: Any) -> None: ...

    def event(self, event: Any) -> None: ...

    def close(self, diagnosis: Diagnosis) -> None:
        if diagnosis.steps:
            self._found.append(diagnosis)


def _known(cause: str) -> None:
    """A misspelt cause would make the assertion false for ever: refuse it and name close ones."""
    from neuraldbg.commands.explain import pages, unknown

    known = pages()
    if cause not in known:
        raise ValueError(unknown(cause, known))


@pytest.fixture
def neuraldbg() -> Iterator[Trainings]:
    """Watch trainings of this test: `neuraldbg(model)`, `neuraldbg.trainings()`, `neuraldbg.assert_healthy()`."""
    found = Trainings()
    yield found
    found._close()
