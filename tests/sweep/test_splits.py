"""The splits, against the references that exist: scikit-learn's stump, SciPy's Fisher test, known intervals."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy.stats import fisher_exact
from sklearn.tree import DecisionTreeClassifier

from neuraldbg.sweep.rows import Row
from neuraldbg.sweep.splits import SURE, best_splits, candidates, fisher, unusable, wilson


def rows(**columns):
    count = len(next(iter(columns.values())))
    return [
        Row(f"run {k}", parameters={n: values[k] for n, values in columns.items() if values[k] is not None})
        for k in range(count)
    ]


def best(has, **columns):
    return best_splits(np.array(has, dtype=bool), candidates(rows(**columns), sorted(columns)))


def test_nothing_separates_noise_though_some_split_looks_good():
    """Of forty labellings by chance about two may look sure at 5 %, by Fisher's test of the best split alone more."""
    draw = random.Random(0)
    sure = alone = 0
    for _ in range(40):
        columns = {name: [draw.random() for _ in range(24)] for name in ("lr", "decay", "momentum")}
        (first, *_) = best([k < 8 for k in range(24)], **columns)
        sure += first.p <= SURE
        alone += first.fisher <= SURE
    assert sure <= 5 < alone


def test_two_trainings_with_a_cause_are_too_few_to_say():
    (split,) = best([1, 1, 0, 0, 0, 0, 0, 0], lr=[1.0, 1.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    assert split.p is None and (split.inside, split.inside_with) == (2, 2)


def test_a_parameter_that_does_not_vary_or_only_names_is_not_compared():
    given = rows(seed=[1.0, 1.0], out=["a", "b"], lr=[0.1, 0.2])
    assert unusable(given, "seed") == "the same in all" and unusable(given, "lr") == unusable(given, "out") == ""
    assert unusable(rows(out=[f"runs/{k}" for k in range(30)]), "out") == "30 different texts"


def test_no_parameter_and_no_cause_give_no_split():
    assert best_splits(np.array([True, False]), candidates(rows(lr=[0.1, 0.2]), [])) == []
    assert best([0, 0], lr=[0.1, 0.2]) == []


def test_a_threshold_of_rates_lies_between_their_decades():
    (split,) = best([0] * 6 + [1] * 4, lr=[1e-4] * 3 + [1e-2] * 3 + [1.0] * 4)
    assert str(split.condition) == "lr > 0.1"
    assert (split.inside, split.inside_with, split.outside, split.outside_with) == (4, 4, 6, 0)
    assert split.lift == pytest.approx(2.5) and split.low < split.lift and split.high == pytest.approx(2.5)
    assert split.p <= 0.02


def test_the_side_with_the_cause_may_be_the_lower_one():
    (split,) = best([1] * 4 + [0] * 6, depth=[1.0] * 4 + [8.0] * 6)
    assert (split.condition.sign, split.inside_with) == ("<=", 4)


def test_a_value_in_words_and_its_absence():
    (split,) = best([1] * 4 + [0] * 6, activation=["tanh"] * 4 + ["relu"] * 3 + ["gelu"] * 3)
    assert str(split.condition) == "activation is tanh" and split.outside_with == 0
    (split,) = best([1] * 6 + [0] * 4, activation=["tanh"] * 3 + ["relu"] * 3 + ["gelu"] * 4)
    assert str(split.condition) == "activation is not gelu" and split.inside_with == 6


def test_true_and_false_are_values_and_not_numbers():
    (split,) = best([1] * 4 + [0] * 4, amp=[True] * 4 + [False] * 4)
    assert str(split.condition) in ("amp is True", "amp is not False") and split.inside_with == 4


def test_trainings_without_a_value_are_left_out_of_its_split_and_weigh_it_down():
    has = [1] * 5 + [0] * 5
    some, whole = best(
        has, momentum=[1.0, 1.0, None, None, None, 0.0, 0.0, None, None, None], rate=[1.0] * 5 + [0.0] * 5
    )[::-1]
    assert (some.condition.parameter, some.inside, some.outside) == ("momentum", 2, 2)
    assert whole.gain == pytest.approx(1.0) and some.gain == pytest.approx(0.4)


def test_of_parameters_that_part_the_trainings_alike_the_first_is_told():
    given = rows(depth=[1.0] * 4 + [8.0] * 4, weights=[-10.0] * 4 + [-80.0] * 4, lr=[0.1, 0.2] * 4)
    has = np.array([False] * 4 + [True] * 4)
    found = best_splits(has, candidates(given, ["depth", "weights", "lr"]))
    assert [s.condition.parameter for s in found] == ["depth", "lr"]
    assert best_splits(has, candidates(given, ["weights", "depth"]))[0].condition.parameter == "weights"


def test_the_same_trainings_give_the_same_p_value():
    columns = {"lr": [0.1 * k for k in range(12)]}
    has = [0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 1, 1]
    assert best(has, **columns) == best(has, **columns)


@pytest.mark.parametrize("seed", range(8))
def test_the_best_threshold_gains_what_scikit_learns_stump_gains(seed):
    draw = np.random.default_rng(seed)
    x, has = draw.normal(size=40), draw.random(40) < 0.4
    (split,) = best(has, x=list(x))
    stump = DecisionTreeClassifier(max_depth=1, criterion="entropy", random_state=0).fit(x[:, None], has)
    tree = stump.tree_
    after = sum(tree.impurity[k] * tree.n_node_samples[k] for k in (1, 2)) / 40
    assert split.gain == pytest.approx(tree.impurity[0] - after)
    assert sorted((split.inside, split.outside)) == sorted(tree.n_node_samples[1:])


@pytest.mark.parametrize(
    "table", [(0, 5, 3, 1), (4, 0, 0, 6), (10, 20, 30, 40), (0, 0, 3, 4), (1, 1, 1, 1), (2, 7, 8, 2)]
)
def test_fishers_test_is_scipys(table):
    a, b, c, d = table
    assert fisher(a, b, c, d) == pytest.approx(fisher_exact([[a, b], [c, d]]).pvalue)


def test_wilsons_interval_is_the_published_one():
    """Newcombe 1998, table I: 81 of 263 and 0 of 20."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(0, 0) == (0.0, 1.0)
