"""Every rule: a page of one form, named like its file, silent where nothing is wrong."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

import neuraldbg.rules
from neuraldbg.events import SYMPTOMS, SemanticEvent, observed, recovered
from neuraldbg.reasoning import rules
from neuraldbg.reasoning.calibration import load
from neuraldbg.run import Run
from neuraldbg.testing import check_silent, facts, module, optimizer, parameter, run

PAGE = ("What it is", "How it looks", "What speaks against it", "What to do", "Reference")
NAMES = sorted(m.name for m in pkgutil.iter_modules(neuraldbg.rules.__path__) if not m.name.startswith("_"))

# Other reasons of not learning: what is known is told, and no labelled runs say how often it is right.
NOTES = {"batch_too_small", "label_noise", "model_too_small", "overfitting", "too_few_steps"}
NOTES |= {"representation_collapse", "stale_statistics"}


def healthy() -> Run:
    """A classifier that learns, with the harmless oddities of healthy runs: some dead units, a large first update,
    a spike of a tiny loss, a gradient that falls as it converges."""
    dead = observed("dead_units", 0, "relu", share=0.42, at_start=0.4, rise=0.02, position="hidden")
    return run(
        dead,
        observed("violent_update", 0, "fc1", update_lg=-0.5, at_start=True),
        recovered(observed("violent_update", 0, "fc1"), 3),
        observed("loss_spike", 60, decades=2.3, over_chance=0.04, before_over_chance=0.0002, recovered=61),
        facts=facts(
            module("fc1", 0),
            module("relu", 1, "relu"),
            module("fc2", 2, position="output"),
            optimizers=(optimizer("Adagrad", 0.01),),
            parameters=(parameter("fc1.weight"), parameter("fc2.weight")),
            loss_kind="nll",
        ),
        series={"loss": [2.3 * 0.95**i for i in range(100)], "skill": [0.95**i for i in range(100)]},
    )


def rule(name: str) -> Any:
    return getattr(importlib.import_module(f"neuraldbg.rules.{name}"), name)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_a_title_and_its_five_parts_in_order(name: str) -> None:
    page = (importlib.import_module(f"neuraldbg.rules.{name}").__doc__ or "").splitlines()
    assert page[0].strip() and page[1] == ""
    assert [line for line in page if line in PAGE] == list(PAGE)
    for part in PAGE:
        assert page[page.index(part) + 1].startswith("    "), f"nothing under {part!r}"


@pytest.mark.parametrize("name", NAMES)
def test_it_is_silent_on_an_empty_run(name: str) -> None:
    assert list(rule(name)(run())) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_silent_on_a_healthy_run(name: str) -> None:
    check_silent(rule(name), healthy())


@pytest.mark.parametrize("name", NAMES)
def test_it_survives_events_without_any_measurement(name: str) -> None:
    bare = [
        SemanticEvent(kind.event_type, "layer", step, "healthy", str(kind.to_state), symptom=symptom)
        for step, (symptom, kind) in enumerate(SYMPTOMS.items())
    ]
    for claim in rule(name)(run(*bare)):
        assert claim.cause == name


@pytest.mark.parametrize("name", NAMES)
def test_it_survives_measurements_that_are_no_numbers(name: str) -> None:
    odd = [observed(s, 3, "layer", share="much", at_start=None, update_lg="?", z=None, offset=[]) for s in SYMPTOMS]
    for claim in rule(name)(run(*odd)):
        assert claim.cause == name


def test_every_file_is_registered_and_calibrated() -> None:
    assert [name for name, _ in rules()] == [name for name in NAMES if name != "unknown"]
    assert set(NAMES) - NOTES <= set(load().causes)


@pytest.mark.parametrize("name", sorted(NOTES))
def test_a_note_has_no_calibration_so_that_it_stays_below_one_half(name: str) -> None:
    assert not load().knows(name)


def test_a_healthy_run_that_turns_bad_would_be_noticed() -> None:
    """The same run with units that died after its large update: so the tests above can fail."""
    sick = healthy()
    dead = observed("dead_units", 3, "relu", share=0.7, at_start=0.05, rise=0.65)
    with pytest.raises(AssertionError, match="claims learning_rate_too_high at step 3"):
        check_silent(rule("learning_rate_too_high"), Run((*sick.events, dead), sick.facts, sick.series, 100))
