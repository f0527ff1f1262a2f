from __future__ import annotations

import math
from functools import partial

import pytest

from neuraldbg.detectors import architecture
from neuraldbg.record import ModuleFacts, RunFacts, StepRecord
from neuraldbg.testing import facts, feed, input_stats, layer_stats, loss_stats, module, parameter, record

found = partial(feed, architecture)

NORM = module("norm", 1, kind="LayerNorm", norm_over=1)
SOFTMAX = module("softmax", 2, "softmax", width=1)


def seen(*names: str, step: int = 0, **stats: bool) -> StepRecord:
    return record(step, layers={n: layer_stats(**stats) for n in names})


# a norm and a softmax over one value


def test_a_norm_over_two_values_is_a_norm() -> None:
    assert found([seen("norm")], facts=facts(module("norm", 1, kind="LayerNorm", norm_over=2))) == []


def test_a_norm_that_never_ran_harms_nothing() -> None:
    assert found([seen("fc")], facts=facts(NORM)) == []


def test_a_norm_over_a_single_value_is_told_once() -> None:
    (event,) = found([seen("norm", step=k) for k in range(5)], facts=facts(NORM))
    assert (event.symptom, event.layer_name, event.step) == ("norm_over_one", "norm", 0)
    assert event.metadata["size"] == 1


def test_a_softmax_over_two_classes_is_a_softmax() -> None:
    assert found([seen("softmax")], facts=facts(module("softmax", 2, "softmax", width=2))) == []


def test_a_softmax_function_has_the_width_of_the_layer_before_it_and_is_left_out() -> None:
    assert found([seen("softmax")], facts=facts(module("softmax", 2, "softmax", width=1, functional=True))) == []


def test_a_softmax_over_one_value_is_told_once() -> None:
    (event,) = found([seen("softmax", step=k) for k in range(3)], facts=facts(SOFTMAX))
    assert (event.symptom, event.layer_name, event.step) == ("softmax_over_one", "softmax", 0)


# the loss


def test_a_sum_over_one_sample_and_a_mean_are_harmless() -> None:
    one, many = input_stats(rows=1), input_stats(rows=32)
    assert found([record(0, inputs=(one,), loss_stats=loss_stats(reduction="sum"))]) == []
    assert found([record(0, inputs=(many,), loss_stats=loss_stats(reduction="mean"))]) == []


def test_a_sum_over_a_batch_is_told_with_its_rows() -> None:
    (event,) = found(
        [record(k, inputs=(input_stats(),), loss_stats=loss_stats("mse", reduction="sum")) for k in (0, 1)]
    )
    assert (event.symptom, event.layer_name, event.metadata["rows"]) == ("summed_loss", None, 32)
    assert event.metadata["loss_kind"] == "mse"


def test_a_loss_that_is_only_scaled_keeps_its_sign() -> None:
    assert found([record(k, loss_stats=loss_stats("mse", sign=1)) for k in range(3)]) == []


def test_a_negated_loss_on_a_step_that_was_not_sampled_is_not_looked_at() -> None:
    assert found([record(0, sampled=False, loss_stats=loss_stats("mse", sign=-1))]) == []


def test_a_negated_loss_is_told_once_at_the_first_step_that_has_it() -> None:
    (event,) = found([record(k, loss_stats=loss_stats("mse", sign=1 if k < 4 else -1)) for k in range(9)])
    assert (event.symptom, event.layer_name, event.step) == ("negated_loss", None, 4)
    assert event.metadata == {"loss_kind": "mse"}


def test_probabilities_in_a_loss_on_logits_are_told_once() -> None:
    (event,) = found([record(k, loss_stats=loss_stats("nll", probabilities=True, chance=2.3)) for k in range(3)])
    assert (event.symptom, event.metadata["chance"]) == ("double_softmax", 2.3)


# two zero factors


def factors(first: float | None, second: float | None) -> RunFacts:
    return facts(
        module("down", 0),
        module("up", 1),
        parameters=(parameter("down.weight", rms=first), parameter("up.weight", rms=second)),
    )


def test_one_zero_factor_is_the_usual_start_of_an_adapter() -> None:
    assert found([record(0)], facts=factors(0.1, 0.0)) == []
    assert found([record(0)], facts=factors(0.0, 0.1)) == []


def test_weights_whose_size_is_unknown_are_not_zero() -> None:
    assert found([record(0)], facts=factors(None, None)) == []


def test_two_zero_factors_in_a_row_are_told_with_both_names() -> None:
    (event,) = found([record(0), record(1)], facts=factors(0.0, 0.0))
    assert (event.symptom, event.layer_name, event.step, event.metadata["other"]) == ("zero_factors", "down", 0, "up")


# eval mode


def bn(trainable: bool = True) -> ModuleFacts:
    return ModuleFacts("bn", "BatchNorm1d", 1, parameters=8, trainable=8 if trainable else 0)


DROPOUT = ModuleFacts("drop", "Dropout", 1)
MODEL = facts(bn(), parameters=(parameter("fc.weight"),))


def test_nine_steps_in_eval_mode_are_not_yet_a_habit() -> None:
    evaluating = [seen("bn", step=k, training=False) for k in range(9)]
    assert found([*evaluating, seen("bn", step=9, training=True), *evaluating], facts=MODEL) == []


def test_a_frozen_batch_norm_belongs_in_eval_mode() -> None:
    frozen = facts(bn(trainable=False), parameters=(parameter("fc.weight"),))
    assert found([seen("bn", step=k, training=False) for k in range(30)], facts=frozen) == []


def test_dropout_in_a_partly_frozen_model_may_be_the_frozen_parts() -> None:
    partly = facts(DROPOUT, parameters=(parameter("fc.weight"), parameter("base.weight", trainable=False)))
    assert found([seen("drop", step=k, training=False) for k in range(30)], facts=partly) == []


def test_one_module_in_training_mode_says_that_the_model_trains() -> None:
    two = facts(bn(), DROPOUT, parameters=(parameter("fc.weight"),))
    mixed = [record(k, layers={"bn": layer_stats(training=False), "drop": layer_stats()}) for k in range(30)]
    assert found(mixed, facts=two) == []


def test_ten_steps_in_eval_mode_are_dated_from_the_first() -> None:
    (event,) = found([seen("bn", step=k, training=k < 5) for k in range(30)], facts=MODEL)
    assert (event.symptom, event.layer_name, event.step) == ("eval_mode", None, 5)
    assert event.metadata["modules"] == 1


@pytest.mark.parametrize("rms", [1.0, 150.0])
def test_what_the_norms_let_through_in_eval_mode_goes_with_it(rms: float) -> None:
    layers = {"bn": layer_stats(rms, training=False)}
    (event,) = found([record(k, layers=layers) for k in range(10)], facts=MODEL)
    assert event.metadata["rms_lg"] == pytest.approx(math.log10(rms))


def test_dropout_alone_lets_nothing_through() -> None:
    alone = facts(DROPOUT, parameters=(parameter("fc.weight"),))
    (event,) = found([seen("drop", step=k, training=False) for k in range(10)], facts=alone)
    assert event.metadata["rms_lg"] is None


def test_the_tenth_step_in_eval_mode_is_enough() -> None:
    assert len(found([seen("bn", step=k, training=False) for k in range(10)], facts=MODEL)) == 1


def accumulated(backwards: int = 16, divided: bool | None = False, reduction: str = "mean") -> list[str]:
    loss = loss_stats("nll", reduction=reduction)
    return [e.symptom for e in found([record(0, backwards=backwards, divided=divided, loss_stats=loss)])]


def test_backward_passes_of_several_tasks_or_of_divided_losses_are_no_sum() -> None:
    assert accumulated(backwards=4) == accumulated(divided=True) == accumulated(divided=None) == []
    assert accumulated(reduction="none") == []


def test_many_backward_passes_from_losses_that_nothing_divides_are_a_sum() -> None:
    assert accumulated() == ["summed_loss"]
