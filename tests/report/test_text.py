import dataclasses
import subprocess
import sys

from rich.console import Console

from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.events import observed, recovered
from neuraldbg.report.text import headline, lines, rich_report, summary


def on_terminal(diagnosis, width=100):
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    with console.file:
        console.print(rich_report(diagnosis))
        return console.export_text()


def test_a_healthy_run_says_so_and_what_was_looked_at(healthy):
    assert summary(healthy).splitlines() == [
        "HEALTHY: No sign of failure in 40 steps; the loss went from 2.3 to 0.311",
        "Looked at: 9 of 10 parameters, 5 of 5 modules, 35 of 40 steps (compiled); watching took 1.3 % of the time",
    ]


def test_notes_of_a_healthy_run_are_no_part_of_its_verdict(healthy, warning):
    noted = dataclasses.replace(healthy, notes=warning.notes)
    assert summary(noted) == summary(healthy)


def test_a_diagnosis_of_nothing_can_be_told():
    said = summary(Diagnosis(Verdict.RUNNING, 0.0))
    assert said == "RUNNING: Nothing found so far in 0 steps\nLooked at: nothing yet"


def test_a_warning_tells_its_note_as_one_verdict(warning):
    said = summary(warning).splitlines()
    assert said[0].startswith("WARNING: Inputs of large scale or offset detected in the model's input at step 0")
    assert len(said) <= 6 and not any("Also possible" in line for line in said)


def test_a_failed_verdict_is_six_lines_and_one_for_each_further_hypothesis(failed):
    said = summary(failed).splitlines()
    assert [line.split(":")[0] for line in said] == [
        "FAILED",
        "Confidence",
        "Evidence",
        "Would disprove it",
        "Next",
        "Looked at",
        "Also possible",
    ]
    assert said[0] == f"FAILED: {failed.top.description}"
    assert said[5].endswith("Not looked at: 5 of 40 steps were not sampled")
    assert said[6] == f"Also possible: {failed.hypotheses[1]} [{failed.hypotheses[1].cause}]"


def test_the_verdict_names_its_cause_as_the_command_that_explains_it_takes_it(failed):
    sure = next(line for line in summary(failed).splitlines() if line.startswith("Confidence: "))
    command = sure.rpartition("more on it: neuraldbg ")[2].split()
    assert command == ["explain", failed.top.cause]


def test_a_healthy_run_has_no_cause_to_name(healthy):
    assert "neuraldbg explain" not in summary(healthy)


def test_a_failed_run_without_a_hypothesis_admits_it_and_names_the_exception(failed):
    facts = dataclasses.replace(failed.facts, exception="RuntimeError: boom", exception_layer="head")
    said = summary(dataclasses.replace(failed, hypotheses=(), facts=facts)).splitlines()
    assert said[0] == "FAILED: The training failed within 40 steps; there is not enough evidence to name a cause"
    assert said[1] == "Exception: RuntimeError: boom in layer 'head'"


def test_one_step_is_not_steps(healthy):
    assert "in 1 step;" in headline(dataclasses.replace(healthy, steps=1))


def test_str_of_a_diagnosis_is_its_summary(failed):
    assert str(failed) == summary(failed)


def test_the_terminal_shows_all_that_the_summary_says(failed):
    shown = " ".join(on_terminal(failed, 400).split())
    for line in summary(failed).splitlines()[1:6]:
        assert line.split(": ", 1)[1] in shown
    assert "dead_relu_negative_bias" in shown and "0.21" in shown


def test_names_that_look_like_markup_or_escapes_are_printed_as_they_are(hostile):
    shown = on_terminal(hostile, 400)
    assert "<script>alert(1)</script>" in shown and '"]; x[' in shown
    assert "\x1b" not in summary(hostile) and "\r" not in summary(hostile)
    assert len(summary(hostile).splitlines()) == 7


def test_advice_is_a_note_of_a_healthy_run_and_of_no_other(healthy, failed):
    note = dataclasses.replace(
        failed.top, description="Perhaps a model too small for the task", remedy="widen it", metadata={"advice": True}
    )
    said = summary(dataclasses.replace(healthy, notes=(note,))).splitlines()
    assert said[0] == summary(healthy).splitlines()[0]
    assert said[1] == "Note: Perhaps a model too small for the task. widen it" and len(said) == 3
    assert summary(dataclasses.replace(failed, notes=(note,))) == summary(failed)


def test_to_look_at_a_diagnosis_draws_no_random_number() -> None:
    """In a process of its own, for what is loaded here was loaded long ago."""
    code = """
import random
from neuraldbg.diagnosis import Diagnosis, Verdict
random.seed(0)
first = random.random()
random.seed(0)
d = Diagnosis(Verdict.HEALTHY, 0.02, steps=5)
str(d), d._repr_html_(), d._repr_mimebundle_()
assert random.random() == first
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_warning_without_a_cause_says_what_was_seen(warning):
    event = observed("loss_plateau", 3, skill=1.0)
    gone = observed("exploding_gradient", 5, "fc", rms=4.0)
    bare = dataclasses.replace(warning, notes=(), events=(event, gone, recovered(gone, 9)))
    said = dict(lines(bare))
    assert "does not fall" in said["Seen"]
    assert "fc" not in said["Seen"]
    assert "Seen" not in dict(lines(warning))


def test_one_rank_of_several_says_so_and_where_the_others_are(healthy):
    ranked = dataclasses.replace(healthy, facts=dataclasses.replace(healthy.facts, rank=1, world=4))
    assert "This is rank 1 of 4; which was first: neuraldbg merge" in dict(lines(ranked))["Looked at"]
    assert "rank" not in dict(lines(healthy))["Looked at"]
