from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import initial_signal
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.testing import facts, feed, layer_stats, module, parameter, record

found = partial(feed, initial_signal)


def chain(*gains: float, step: int = 0, size: float = 1.0) -> tuple[StepRecord, RunFacts]:
    """A net whose layers change the signal's size by these decades, one after the other."""
    layers, names = {}, [f"fc{k}" for k in range(len(gains))]
    for name, gain in zip(names, gains, strict=True):
        layers[name] = layer_stats(size * 10**gain, inputs_rms=size)
        size = layers[name].rms
    modules = [module(name, k) for k, name in enumerate(names)]
    return record(step, layers=layers), facts(*modules, parameters=tuple(parameter(f"{n}.weight") for n in names))


def events(*gains: float, **more: Any) -> list[Any]:
    one, known = chain(*gains, **more)
    return found([one], facts=known)


def test_layers_that_change_the_signal_by_up_to_three_quarters_of_a_decade_are_healthy() -> None:
    assert events(-0.75, 0.7, -0.6, 0.75, -0.75) == []


def test_two_layers_of_small_weights_are_no_chain() -> None:
    assert events(-1.5, -1.5, 0.0, 0.0, 0.0) == []


def test_small_projections_between_others_are_a_transformers_way() -> None:
    """GPT-2 scales the projections back into the residual sum by their number: -0.95 decades each."""
    assert events(*[-0.4, -0.95] * 6) == []


def test_branches_that_start_at_zero_are_healthy() -> None:
    names = [f"fc{k}" for k in range(6)]
    layers = {n: layer_stats(0.0 if k % 2 else 1.0, inputs_rms=1.0) for k, n in enumerate(names)}
    known = facts(
        *[module(n, k) for k, n in enumerate(names)], parameters=tuple(parameter(f"{n}.weight") for n in names)
    )
    assert found([record(0, layers=layers)], facts=known) == []


def test_a_first_layer_that_starts_at_zero_is_no_signal_to_grow_from() -> None:
    names = [f"fc{k}" for k in range(4)]
    layers = {n: layer_stats(0.0 if k == 0 else 0.5, inputs_rms=None) for k, n in enumerate(names)}
    known = facts(
        *[module(n, k) for k, n in enumerate(names)], parameters=tuple(parameter(f"{n}.weight") for n in names)
    )
    assert found([record(0, layers=layers)], facts=known) == []


def test_what_is_first_seen_after_training_began_is_no_initialisation() -> None:
    assert events(-1.5, -1.5, -1.5, -1.5, step=2) == []


def test_only_the_first_sampled_step_is_looked_at() -> None:
    healthy, known = chain(0.0, 0.0, 0.0, 0.0)
    grown, _ = chain(-1.5, -1.5, -1.5, -1.5, step=1)
    assert found([healthy, grown], facts=known) == []


def test_a_step_without_layers_is_waited_out() -> None:
    small, known = chain(-1.5, -1.5, -1.5, step=1)
    (event,) = found([record(0), small], facts=known)
    assert event.step == 1


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_weights_too_small_are_told_in_the_first_layer_that_shrinks_the_signal(size: float) -> None:
    (event,) = events(0.0, -1.0, -1.0, -1.0, size=size)
    assert (event.symptom, event.layer_name, event.step) == ("small_weights", "fc1", 0)
    assert event.metadata["gain_lg"] == pytest.approx(-1.0)
    assert event.metadata["depth_lg"] == pytest.approx(-2.0)


def test_weights_too_large_are_told_in_the_first_layer_that_grows_the_signal() -> None:
    (event,) = events(0.0, 1.0, 1.0, 1.0, 0.0)
    assert (event.symptom, event.layer_name, event.step) == ("large_weights", "fc1", 0)
    assert event.metadata["depth_lg"] == pytest.approx(3.0)


def test_layers_that_overflow_at_once_leave_the_finite_ones_to_judge() -> None:
    one, known = chain(1.0, 1.0, 1.0, 1.0)
    broken = {**one.layers, "fc3": layer_stats(math.inf, finite=False)}
    (event,) = found([record(0, layers=broken, first_bad=("forward", "fc3"))], facts=known)
    assert (event.symptom, event.layer_name) == ("large_weights", "fc0")


# a residual sum that grows


def test_growth_by_less_than_one_and_a_half_decades_over_the_depth_is_healthy() -> None:
    assert events(0.0, 0.45, 0.45, 0.45, 0.0) == []


def test_a_sum_that_grows_with_depth_is_told_in_the_first_block_that_grows_it() -> None:
    one, known = chain(0.0, 0.6, 0.6, 0.6, 0.0)
    grown = {**one.layers, "block0": layer_stats(1.1), "block1": layer_stats(2.0), "": layer_stats(9.0)}
    blocks = tuple(module(n, 10 + k, has_children=True) for k, n in enumerate(("block0", "block1")))
    whole = module("", 20, has_children=True)
    shape = facts(*known.modules, *blocks, whole, parameters=known.parameters, structure=("residual",))
    (event,) = found([record(0, layers=grown)], facts=shape)
    assert (event.symptom, event.layer_name, event.step) == ("signal_growth", "block1", 0)
    assert event.metadata["depth_lg"] == pytest.approx(1.8) and event.metadata["gain_lg"] == pytest.approx(0.6)
    assert (event.metadata["residual"], event.metadata["has_norm"]) == (True, False)


def test_a_sum_that_grows_in_a_model_without_blocks_is_told_in_its_first_layer() -> None:
    (event,) = events(0.0, 0.6, 0.6, 0.6, 0.0)
    assert (event.symptom, event.layer_name) == ("signal_growth", "fc0")


# recurrence

RNN = facts(module("rnn", 0, kind="RNN", recurrent=True))


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e3])
def test_a_recurrent_state_of_up_to_a_thousand_times_its_input_is_bounded(size: float) -> None:
    state = layer_stats(999 * max(size, 1e-3), inputs_rms=size)
    assert found([record(0, layers={"rnn": state})], facts=RNN) == []


def test_a_recurrent_state_without_input_is_not_judged() -> None:
    assert found([record(0, layers={"rnn": layer_stats(1e9, inputs_rms=None)})], facts=RNN) == []
    assert found([record(0, layers={"rnn": layer_stats(math.nan, inputs_finite=False)})], facts=RNN) == []


@pytest.mark.parametrize("rms", [2e3, math.inf, math.nan])
def test_a_recurrent_state_that_grows_over_time_is_told(rms: float) -> None:
    (event,) = found([record(0, layers={"rnn": layer_stats(rms)})], facts=RNN)
    assert (event.symptom, event.layer_name, event.step) == ("recurrent_growth", "rnn", 0)
    assert event.metadata["inputs_lg"] == pytest.approx(0.0)


def test_just_beyond_the_limits_it_is_told() -> None:
    assert [e.symptom for e in events(0.0, -0.95, -0.95, -0.95)] == ["small_weights"]
    assert events(0.0, -0.85, -0.85, -0.85) == []
    assert len(found([record(0, layers={"rnn": layer_stats(1.1e3)})], facts=RNN)) == 1


def sums(count: int, growth: float = 2.0) -> tuple[StepRecord, RunFacts]:
    """A plain list of layers; before each of the last `count` another branch is added to the signal."""
    names = [f"b{k}.fc" for k in range(8)]
    layers, size = {}, 1.0
    for k, name in enumerate(names):
        size *= growth if k >= len(names) - count else 1.0
        layers[name] = layer_stats(size, inputs_rms=size)
    known = facts(
        *[module(n, k) for k, n in enumerate(names)], parameters=tuple(parameter(f"{n}.weight") for n in names)
    )
    return record(0, layers=layers), known


def test_a_plain_stack_or_two_joined_inputs_make_no_residual_stream() -> None:
    for one, known in (sums(2, 50.0), chain(0.6, 0.6, 0.6, 0.6, 0.6)):
        (event,) = found([one], facts=known)
        assert event.symptom == "signal_growth" and event.metadata["residual"] is False


def test_sums_that_the_graph_does_not_show_are_known_by_the_sizes() -> None:
    one, known = sums(7)
    (event,) = found([one], facts=known)
    assert (event.symptom, event.layer_name, event.step) == ("signal_growth", "b0.fc", 0)
    assert event.metadata["residual"] is True and event.metadata["weights_lg"] == pytest.approx(0.0)


def test_the_share_of_the_weights_in_the_growth_is_told() -> None:
    (event,) = events(0.6, 0.6, 0.6, 0.6, 0.6)
    assert event.metadata["weights_lg"] == pytest.approx(3.0) and event.metadata["residual"] is False


def recurrence(kind: str, gain: float, name: str = "weight_hh_l0") -> list[Any]:
    net = facts(
        module("rnn", 0, kind=kind, recurrent=True),
        parameters=(
            parameter("rnn.weight_ih_l0", numel=4 * 64, rms=0.01),
            parameter(f"rnn.{name}", numel=64 * 64, rms=gain / 8),
        ),
    )
    return found([record(0, layers={"rnn": layer_stats()})], facts=net)


@pytest.mark.parametrize(("kind", "gain"), [("RNN", 0.577), ("RNN", 1.0), ("RNN", 0.41), ("LSTM", 0.05), ("GRU", 0.05)])
def test_usual_recurrent_matrices_and_gated_cells_keep_their_state(kind: str, gain: float) -> None:
    assert recurrence(kind, gain) == []


def test_a_small_input_matrix_is_no_recurrence() -> None:
    assert recurrence("RNN", 0.1, name="weight_ih_l1") == []


def test_a_recurrent_matrix_far_below_gain_one_forgets() -> None:
    (event,) = recurrence("RNN", 0.15)
    assert (event.symptom, event.layer_name, event.step) == ("recurrent_decay", "rnn", 0)
    assert event.metadata == {"gain": pytest.approx(0.15)}
