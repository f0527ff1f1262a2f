"""The labelled corpus: its programs train, its switches switch, its labels are well-formed, its split is frozen."""

from __future__ import annotations

import contextlib
import math
import warnings

import pytest

from benchmarks import corpus
from benchmarks.corpus.plan import Label
from neuraldbg import NeuralDbg
from neuraldbg.diagnosis import FAILURE_TYPES

SPLIT = {
    "fit": "actor_critic autoencoder bandit cnn encoder gan lstm mlp_classes q_values recommender rnn_relu sizes sorter"
    " stream wide words",
    "check": "contrast densities gcn groups gru mlp_values tabular uncertain",
    "test": "actor_wide decoder gan_wide mixture policy q_wide residual rnn_tanh siamese tower tower_sgd vae",
}
QUICK = (
    "mlp_classes",
    "mlp_values",
    "tower",
    "tower_sgd",
    "siamese",
    "gcn",
    "q_values",
    "uncertain",
    "tabular",
    "stream",
)


class Enough(Exception):
    """Raised out of the loop when it has run far enough."""


def losses_of(program: str, steps: int, fault: str | None = None, strength: int = 0) -> list[float]:
    """The first losses of a bare run; what a fault raises is its own business."""
    plan, _ = corpus.plan_of(program, fault, strength, 0)
    found: list[float] = []

    def record(loss: float) -> None:
        found.append(loss)
        if len(found) == steps:
            raise Enough

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(Enough):
            plan.train(record)
    return found


def fitting(fault: str) -> list[str]:
    """Programs that the fault can be switched into, quick ones first."""
    names = [*QUICK, *sorted(set(corpus.PROGRAMS) - set(QUICK))]
    return [n for n in names if corpus.FAULTS[fault].fits(corpus.PROGRAMS[n])]


@pytest.mark.parametrize("name", sorted(corpus.PROGRAMS))
def test_every_program_trains_watched(name: str) -> None:
    plan, label = corpus.plan_of(name, None, 0, 0)
    plan.steps = 40
    told: list[float] = []
    with NeuralDbg(plan.models if len(plan.models) > 1 else plan.model) as dbg:

        def record(loss: float) -> None:
            told.append(loss)
            dbg.record_loss(loss)

        plan.train(record)
    assert label == corpus.HEALTHY
    assert len(told) == 40 and all(math.isfinite(v) for v in told)
    assert dbg.step >= 39


@pytest.mark.parametrize("name", sorted(corpus.PROGRAMS))
def test_a_program_names_modules_that_it_has(name: str) -> None:
    plan, _ = corpus.plan_of(name, None, 0, 0)
    for module in (*plan.hidden, *plan.acts, plan.head):
        if module:
            plan.module(module)


@pytest.mark.parametrize("fault", sorted(corpus.FAULTS))
def test_a_fault_changes_the_training_no_later_than_its_label_says(fault: str) -> None:
    program = fitting(fault)[0]
    _, label = corpus.plan_of(program, fault, 0, 0)
    assert label.onset is not None
    steps = min(label.onset[1], label.onset[0] + 10) + 4
    bad, good = losses_of(program, steps, fault), losses_of(program, steps)
    assert not all(a == b for a, b in zip(bad, good, strict=False)), f"{fault} leaves {program} as it is"


@pytest.mark.parametrize("fault", sorted(n for n, s in corpus.FAULTS.items() if s.late))
def test_a_late_fault_leaves_the_first_tenth_alone(fault: str) -> None:
    program = fitting(fault)[0]
    plan, label = corpus.plan_of(program, fault, 0, 0)
    assert label.onset is not None
    assert label.onset[0] > 0.1 * plan.steps or fault == "half_overflow"  # its scale grows until it no longer fits


@pytest.mark.parametrize("job", [j for j in corpus.runs() if j.fault == "clip_part"], ids=lambda job: job.name)
def test_where_a_clip_misses_a_part_a_clip_of_all_trains(job: corpus.Job) -> None:
    """So that the clip is to blame, and not the rate that it makes possible."""
    plan, _ = corpus.plan_of(job.program, job.fault, job.strength, job.seed)
    plan.clipped = None
    losses: list[float] = []
    plan.train(losses.append)
    assert all(math.isfinite(v) for v in losses)
    assert plan.score(plan) >= plan.good


def test_a_run_that_is_built_twice_is_the_same_run() -> None:
    assert losses_of("mlp_classes", 20) == losses_of("mlp_classes", 20)


def test_labels_are_those_that_the_injection_gives() -> None:
    for job in corpus.runs(limit=40):
        _, label = corpus.plan_of(job.program, job.fault, job.strength, job.seed, job.variant)
        assert label == job.label, job.name


def well_formed(label: Label) -> bool:
    if label.healthy:
        return label == corpus.HEALTHY
    first, last = label.onset or (-1, -1)
    return 0 <= first <= last and bool(label.failures) and set(label.failures) <= set(FAILURE_TYPES)


def test_a_label_with_an_invented_failure_is_not_well_formed() -> None:
    assert not well_formed(Label(("nan_in_input",), ("bad_luck",), (), (0, 0)))


def test_a_faulty_label_needs_an_onset() -> None:
    assert not well_formed(Label(("nan_in_input",), ("data_anomaly",), (), None))


def test_every_label_is_well_formed() -> None:
    assert [job.name for job in corpus.runs() if not well_formed(job.label)] == []


def test_layers_of_a_label_are_in_the_model() -> None:
    for job in corpus.runs(kind="faulty", limit=60):
        models, _ = corpus.build(job)
        several = len(models) > 1
        names = {f"{top}.{n}" if several else n for top, m in models.items() for n, _ in m.named_modules()}
        assert set(job.label.layers) <= names | {""}, job.name


def test_the_split_goes_by_program_and_is_frozen() -> None:
    found = {split: " ".join(sorted(n for n, p in corpus.PROGRAMS.items() if p.split == split)) for split in SPLIT}
    assert found == SPLIT


def test_the_parts_of_the_split_share_no_program() -> None:
    parts = [{job.program for job in corpus.runs(split)} for split in SPLIT]
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_the_corpus_is_large_enough_for_its_intervals() -> None:
    assert len(corpus.runs(kind="faulty")) >= 400
    assert len(corpus.runs(kind="healthy")) >= 600
    assert len(corpus.runs("test", "healthy")) >= 300


def test_a_third_of_the_faults_begins_late() -> None:
    faulty = corpus.runs(kind="faulty")
    late = [j for j in faulty if any(corpus.FAULTS[f].late for f in str(j.fault).split("+"))]
    assert len(late) >= len(faulty) / 3


def test_no_run_is_in_the_corpus_twice() -> None:
    names = [job.name for job in corpus.runs()]
    assert len(names) == len(set(names))


def test_a_limit_spreads_over_the_corpus() -> None:
    some = corpus.runs(limit=30)
    assert len(some) == 30 and len({job.program for job in some}) > 10


def test_an_unknown_split_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="split 'train' is unknown; use fit, check, test"):
        corpus.runs("train")
