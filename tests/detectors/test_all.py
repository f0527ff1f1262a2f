"""Every detector: two functions, quiet where there is nothing to see, and a vocabulary that is used whole."""

from __future__ import annotations

import ast
import importlib
import math
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import neuraldbg.detectors
from neuraldbg.events import SYMPTOMS
from neuraldbg.reasoning import detectors
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import make
from neuraldbg.testing import (
    facts,
    feed,
    input_stats,
    layer_stats,
    loss_stats,
    module,
    optimizer,
    parameter,
    parameter_stats,
    record,
)

FOLDER = Path(neuraldbg.detectors.__path__[0])
NAMES = sorted(m.name for m in pkgutil.iter_modules([str(FOLDER)]) if not m.name.startswith("_"))
COLLECTS = {"loss_trend", "validation_rise"}  # copying two thousand numbers a step would be its whole cost


def each(name: str) -> Any:
    return importlib.import_module(f"neuraldbg.detectors.{name}")


def events(name: str, records: list[StepRecord], known: RunFacts | None = None) -> list[str]:
    return [e.symptom for e in feed(each(name), records, known, pure=name not in COLLECTS)]


def net() -> RunFacts:
    """A classifier with everything that detectors look at: a norm, a rectifier, attention, an LSTM, a gate."""
    return facts(
        module("conv", 0, kind="Conv2d"),
        module("norm", 1, kind="BatchNorm2d", norm_over=512, parameters=16),
        module("relu", 2, "relu"),
        module("lstm", 3, kind="LSTM", recurrent=True),
        module("attention", 4, "softmax", width=16),
        module("gate", 5, "sigmoid"),
        module("drop", 6, kind="Dropout", parameters=0),
        module("fc", 7, position="output"),
        parameters=(
            parameter("conv.weight", rms=0.3),
            parameter("norm.weight", dims=1, rms=1.0, mean=1.0),
            parameter("lstm.weight_ih_l0", rms=0.1),
            parameter("fc.weight", rms=0.1),
            parameter("fc.bias", dims=1, rms=0.05, mean=0.0),
        ),
        optimizers=(optimizer("AdamW", 1e-3, weight_decay=0.01, eps=1e-8),),
        structure=("norm", "recurrent", "attention"),
        loss_kind="nll",
    )


def healthy(known: RunFacts, steps: int = 60) -> list[StepRecord]:
    """It learns, with the harmless oddities of healthy runs: dead units, a loss that swings, a gradient that converges,
    a warm-up, saturated gates now and then, a step that the scaler skipped."""

    def wave(k: int, size: float) -> float:
        return 1 + size * math.sin(2.3 * k)

    def one(k: int) -> StepRecord:
        late = min(k, 60)  # converged
        loss = 2.3 * (0.1 + 0.9 * 0.96**late) * wave(k, 0.15)
        gradient = 0.5 * 0.975**late * wave(k, 0.3)
        layer = {m.name: layer_stats(wave(k, 0.1), spread=0.5) for m in known.modules}
        layer["relu"] = layer_stats(0.8, low=0.0, spread=0.9, dead=None if k < 4 else 0.25, never=0.2)
        layer["gate"] = layer_stats(0.6, low=0.0, high=1.0, saturated=0.9 if k % 20 == 7 else 0.3, derivative=0.5)
        layer["lstm"] = layer_stats(0.3, low=-0.9, high=0.9, saturated=0.2)
        layer["attention"] = layer_stats(0.1, low=0.0, high=1.0, entropy=0.9 - 0.008 * late)
        return record(
            k,
            loss=loss,
            gradient_norm=math.inf if k == 5 else gradient,
            rates=(1e-3 * min(1.0, (k + 1) / 20),),
            inputs=(
                input_stats(
                    (0.1 * math.sin(k), 0.1 * math.cos(k), 0.05),
                    fingerprint=float(k),
                    rows=32 if k % 10 else 20,
                    far=3.5 * wave(k, 0.2),
                ),
            ),
            layers=layer,
            parameters={
                p.name: parameter_stats(
                    gradient * (1 + i),
                    weight=(p.rms or 1.0) * 0.999**late,
                    update=0.01 * 0.98**late,
                    moved=k != 5,
                )
                for i, p in enumerate(known.parameters)
            },
            loss_stats=loss_stats("nll", reduction="mean", value=loss, chance=2.3, target_low=0.0, target_high=9.0),
            skipped=k == 5,
            group_gradients=(None if k == 5 else gradient,),
            cosine=0.3 * math.sin(k),
            window=5,
            loss_scale=1024.0,
        )

    return [one(k) for k in range(steps)]


def test_every_file_of_the_folder_is_found() -> None:
    assert {d.name for d in detectors()} >= set(NAMES)
    assert len(NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_title_a_beginning_and_a_step(name: str) -> None:
    detector = each(name)
    assert (detector.__doc__ or "").strip().endswith(".")
    assert callable(detector.initial) and callable(detector.step)


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_test(name: str) -> None:
    assert (Path(__file__).parent / f"test_{name}.py").exists()


@pytest.mark.parametrize("name", NAMES)
def test_two_beginnings_share_nothing(name: str) -> None:
    """A state that collects in place must not be one default for all sessions."""
    detector, known = each(name), net()
    first = detector.initial(make())
    for one in healthy(known, 12):
        first, _ = detector.step(first, one, known)
    assert events(name, [], known) == []
    assert detector.initial(make()) == detector.initial(make())


@pytest.mark.parametrize("name", NAMES)
def test_it_is_silent_on_empty_records(name: str) -> None:
    assert events(name, [record(k) for k in range(60)]) == []
    assert events(name, [record(k) for k in range(60)], net()) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_silent_where_only_the_sentinels_were_read(name: str) -> None:
    sentinels = [
        StepRecord(r.step, sampled=False, loss=r.loss, gradient_norm=r.gradient_norm, skipped=r.skipped)
        for r in healthy(net())
    ]
    assert events(name, sentinels, net()) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_silent_on_a_healthy_run(name: str) -> None:
    assert events(name, healthy(net()), net()) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_silent_on_a_healthy_run_that_is_sampled_sparsely(name: str) -> None:
    assert events(name, healthy(net(), 600)[::10], net()) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_takes_whatever_numbers_come(name: str) -> None:
    """NaN, infinity, zero and nothing where numbers should be: no error, whatever is said."""
    for odd in (math.nan, math.inf, -math.inf, 0.0):
        strange = [
            record(
                k,
                loss=odd,
                gradient_norm=odd,
                rates=(odd,),
                inputs=(input_stats((odd,) * (1 + k % 2), stds=(abs(odd),) * (1 + k % 2), far=abs(odd)),),
                layers={
                    m.name: layer_stats(odd, spread=odd, dead=odd, saturated=odd, derivative=odd, entropy=odd)
                    for m in net().modules
                },
                parameters={p.name: parameter_stats(odd, weight=odd, update=odd) for p in net().parameters},
                loss_stats=loss_stats(
                    "bce", value=odd, chance=odd, target_low=odd, target_high=odd, target_rms=odd, outlier=odd
                ),
                group_gradients=(odd, odd) if k % 3 else (odd,),
                cosine=odd,
            )
            for k in range(40)
        ]
        told = feed(each(name), strange, net(), pure=name not in COLLECTS)
        assert all(e.symptom in SYMPTOMS for e in told)


# the vocabulary


def emitted(source: str) -> set[str]:
    """The symptoms that a detector's source names."""
    texts = {n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return texts & set(SYMPTOMS)


def first_arguments(source: str) -> set[str]:
    """The constant first arguments of calls of `observed`."""
    return {
        str(call.args[0].value)
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") == "observed"
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }


SOURCES = {name: (FOLDER / f"{name}.py").read_text() for name in NAMES}


def test_every_symptom_that_a_detector_emits_is_in_the_vocabulary() -> None:
    assert {s for source in SOURCES.values() for s in first_arguments(source)} <= set(SYMPTOMS)


def test_every_symptom_of_the_vocabulary_is_emitted() -> None:
    told = {s for source in SOURCES.values() for s in emitted(source)}
    assert set(SYMPTOMS) - told == set()


def test_no_two_detectors_emit_one_symptom() -> None:
    owners: dict[str, list[str]] = {}
    for name, source in SOURCES.items():
        for symptom in emitted(source):
            owners.setdefault(symptom, []).append(name)
    assert {s: names for s, names in owners.items() if len(names) > 1} == {}


def test_the_contract_page_has_a_row_for_every_symptom_and_no_other() -> None:
    page = (FOLDER.parents[1] / "docs" / "design" / "symptoms.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(s for row in rows for s in re.findall(r"`(\w+)`", row)) == sorted(SYMPTOMS)


def keywords(source: str) -> dict[str, set[str]]:
    """symptom -> the metadata that a call of `observed` in this source gives it by name."""
    found: dict[str, set[str]] = {}
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "observed":
            names = {k.arg for k in call.keywords if k.arg} - {"confidence", "step_range", "from_state"}
            for symptom in emitted(ast.unparse(call.args[0])):
                found.setdefault(symptom, set()).update(names)
    return found


def test_the_contract_page_names_all_metadata_of_every_symptom() -> None:
    page = (FOLDER.parents[1] / "docs" / "design" / "symptoms.md").read_text()
    cells = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    named = {s: set(re.findall(r"\w+", row[3])) for row in cells for s in re.findall(r"`(\w+)`", row[1])}
    given = [pair for source in SOURCES.values() for pair in keywords(source).items()]
    assert len(given) > 30
    assert {symptom: missing for symptom, names in given if (missing := names - named.get(symptom, set()))} == {}
