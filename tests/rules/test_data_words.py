from __future__ import annotations

from neuraldbg.rules._data import joined, where_in_data
from neuraldbg.testing import observed


def test_an_event_that_knows_nothing_of_its_place_says_nothing() -> None:
    assert where_in_data(observed("zero_batch", 3, samples=(), feature=None, rows="many", features=(True,))) == ""


def test_features_rows_and_samples_are_listed_and_long_lists_cut() -> None:
    event = observed("nan_input", 4, features=(0, 3), rows=(2,), samples=(9, 8, 7, 6, 5))
    assert where_in_data(event) == "features 0, 3, row 2 of the batch, samples 9, 8, 7, 6, ... of the data set"


def test_parts_that_say_nothing_are_left_out() -> None:
    assert joined("", "3 values", "") == "3 values"
    assert joined("3 values", "feature 1") == "3 values; feature 1"
