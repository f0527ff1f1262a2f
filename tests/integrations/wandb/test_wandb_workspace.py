"""The saved view by failure cause: what it holds, that it is accepted, and what the command says when it is not."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from neuraldbg.integrations import _wandb_commands, _wandb_workspace

from .loopback import Server


def run(*arguments: str) -> Any:
    return CliRunner().invoke(_wandb_commands.app, ["workspace", *arguments])


@pytest.mark.parametrize("project", ["p", "/p", "team/", "a/b/c", ""])
def test_what_names_no_project_is_refused_with_an_example(project: str) -> None:
    done = run(project)
    assert done.exit_code == 2
    assert f"{project!r} is no ENTITY/PROJECT; give for example: neuraldbg wandb workspace my-team" in done.stderr


def test_without_the_package_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wandb_workspaces", "wandb_workspaces.workspaces", "wandb_workspaces.reports.v2"):
        monkeypatch.setitem(sys.modules, name, None)
    done = run("team/p")
    assert done.exit_code == 2
    assert "pip install 'neuraldbg[wandb-workspaces]'" in done.stderr


def test_the_command_line_has_the_command() -> None:
    from neuraldbg import cli

    done = CliRunner().invoke(cli.build(), ["wandb", "--help"])
    assert done.exit_code == 0
    assert "workspace" in done.stdout


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # wandb-workspaces' own
def test_the_view_groups_by_the_configs_cause_and_shows_our_columns() -> None:
    spec = json.loads(_wandb_workspace.build("team", "p", ["lr", "net.depth"])._to_model().spec.model_dump_json())
    told = json.dumps(spec)
    assert "neuraldbg.value.cause" in told
    for expected in ("neuraldbg_failed", "neuraldbg_first_step", "neuraldbg/graph", "neuraldbg/hypotheses", "depth"):
        assert expected in told, expected
    (section,) = [s for s in spec["section"]["panel_bank_config"]["sections"] if s["name"] == "NeuralDBG"]
    assert len(section["panels"]) == 7


def test_the_view_is_saved_and_its_address_is_printed(server: Server, elsewhere: Any) -> None:
    printed = elsewhere("-m", "neuraldbg", "wandb", "workspace", "local/p", "-p", "lr", "--json")
    (view,) = server.views
    assert (view["entityName"], view["projectName"]) == ("local", "p")
    assert view["displayName"] == "NeuralDBG: failure causes"
    assert "neuraldbg.value.cause" in view["spec"]
    (line,) = [line for line in printed.splitlines() if line.startswith("{")]
    assert "/local/p?nw=" in json.loads(line)["url"]
