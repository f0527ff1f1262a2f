"""`NEURALDBG=0` turns everything off, whatever else the environment says."""

import pytest

from neuraldbg.settings import make
from neuraldbg.switch import is_off


@pytest.mark.parametrize("value", ["", "1", "on", "true", "00"])
def test_other_values_leave_it_on(monkeypatch, value):
    monkeypatch.setenv("NEURALDBG", value)
    assert not is_off() and make().enabled


@pytest.mark.parametrize("value", ["0", "off", "False", " no "])
def test_a_value_that_says_off_turns_sessions_off_against_the_finer_switch(monkeypatch, value):
    monkeypatch.setenv("NEURALDBG", value)
    monkeypatch.setenv("NEURALDBG_ENABLED", "1")
    assert is_off() and not make().enabled


def test_an_argument_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("NEURALDBG", "0")
    assert make(enabled=True).enabled
