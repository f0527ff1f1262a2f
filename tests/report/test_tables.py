from neuraldbg.report.tables import hypotheses_table


def test_a_healthy_run_has_columns_and_no_rows(healthy):
    table = hypotheses_table(healthy)
    assert table["data"] == [] and table["columns"][:2] == ["rank", "cause"]


def test_each_hypothesis_is_a_row_and_notes_follow_without_a_rank(failed, warning):
    table = hypotheses_table(failed)
    assert [row[:2] for row in table["data"]] == [[1, "learning_rate_too_high"], [2, "dead_relu_negative_bias"]]
    assert all(len(row) == len(table["columns"]) for row in table["data"])
    assert hypotheses_table(warning)["data"][0][:3] == [None, "unnormalised_inputs", "data_anomaly"]
