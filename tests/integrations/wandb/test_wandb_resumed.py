"""A run that is resumed in the same process (`wandb.init(id=..., resume="must")`): a new session, and nothing lost."""

from __future__ import annotations

from typing import Any

from torch.optim import SGD

from neuraldbg.integrations.wandb import autolog
from neuraldbg.report.json import from_json

from .loopback import Server
from .sessions import FILES
from .test_wandb_autolog import STEPS, net, train


def trained(run: Any, **options: Any) -> None:
    """A model of its own in this run, which ends with it."""
    model = net()
    train(model, SGD(model.parameters(), 0.05), **options)
    run.finish()


def test_a_resumed_run_that_trains_no_more_keeps_its_diagnosis(server: Server, online: Any) -> None:
    autolog()
    first = online()
    trained(first, broken_from=5)
    again = online(id=first.id, resume="must")
    again.log({"accuracy": 0.5})
    again.finish()
    got = server.run(first.id)
    assert (got.summary["neuraldbg_cause"], got.summary["neuraldbg_first_step"]) == ("nan_in_input", 5)
    assert got.summary["neuraldbg/hypotheses"]["nrows"] >= 1
    assert (got.tags, got.config["neuraldbg"]["verdict"]) == (["neuraldbg:failed", "neuraldbg:nan_in_input"], "failed")


def test_a_resumed_run_tells_of_its_new_session_and_keeps_what_the_first_one_left(server: Server, online: Any) -> None:
    autolog()
    first = online(tags=["mine"])
    trained(first, broken_from=5)
    again = online(id=first.id, resume="must")
    assert again.id == first.id and again is not first
    trained(again, steps=200)
    got = server.run(first.id)
    told = {name.removeprefix("neuraldbg_"): value for name, value in got.summary.items() if name[:10] == "neuraldbg_"}
    assert (told["verdict"], told["cause"], told["failed"], told["sessions"]) == ("healthy", "none", 0, 2)
    assert "first_step" not in told and "neuraldbg/hypotheses" not in got.summary, "nothing of the first one is left"
    assert (got.tags, got.config["neuraldbg"]["verdict"]) == (["mine", "neuraldbg:healthy"], "healthy")

    assert {f"neuraldbg/{place}{name}" for place in ("", "session-2/") for name in FILES} <= set(got.files)
    kept, new = (from_json(got.files[f"neuraldbg/{place}diagnosis.json"].decode()) for place in ("", "session-2/"))
    assert (kept.verdict, kept.steps, new.verdict, new.steps) == ("failed", STEPS, "healthy", 200)
    aliases = [set(a.aliases) for a in server.artifacts.values() if a.kind == "neuraldbg-diagnosis"]
    assert aliases == [{"latest", "failed"}, {"latest", "healthy"}]

    losses = [row["_step"] for row in got.rows if "loss" in row]
    assert len(losses) == STEPS + 200 and losses == sorted(losses), "every row of both sessions, in order"
    assert max(row.get("neuraldbg/event/nan_input", 0) for row in got.rows) == STEPS - 5


def test_a_second_failure_has_its_own_step_and_table(server: Server, online: Any) -> None:
    autolog()
    first = online()
    trained(first, broken_from=5)
    trained(online(id=first.id, resume="must"), broken_from=11)
    got = server.run(first.id)
    assert (got.summary["neuraldbg_first_step"], got.summary["neuraldbg_sessions"]) == (11, 2)
    assert got.summary["neuraldbg_first_event_step"] == 11 and got.summary["neuraldbg/hypotheses"]["nrows"] >= 1
