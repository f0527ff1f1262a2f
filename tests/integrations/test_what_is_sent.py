"""What reaches a tracker's run, searched as a whole: nothing secret, no sample, and the model's names as plain text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mlflow
import pytest
import torch
from torch import nn

from neuraldbg.integrations.mlflow import autolog

TOKEN = "tok-5b1e7c0d94"
HOSTILE = (
    "<script>alert(1)</script>",
    "`tick` **bold** [x](y)",
    "a|b|c",
    "line\n# head\r\n```",
    "\"quoted\" 'single' &amp;",
    "<!-- neuraldbg:end -->",
    "x" * 10_000,
)


def train(names: tuple[str, ...], samples: torch.Tensor, message: str = "") -> None:
    """A rate far too high, and a batch that breaks; with a message it ends by an exception."""
    model = nn.Sequential()
    for name in names:
        model.add_module(name, nn.Linear(6, 6))
        model.add_module(f"{name} act", nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=300.0)
    for step in range(25):
        x = samples[step].clone()
        if step > 15:
            x[0, 0] = torch.nan
        loss = (model(x) - samples[step]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 20 and message:
            raise RuntimeError(message)


def everything(run: str, folder: Path) -> dict[str, str]:
    """Place -> text: tags, params, metrics and each artifact of a run."""
    data = mlflow.get_run(run).data
    found = {"tags": json.dumps(data.tags), "params": json.dumps(data.params), "metrics": json.dumps(data.metrics)}
    top = Path(mlflow.artifacts.download_artifacts(run_id=run, dst_path=str(folder)))
    return found | {str(p.relative_to(top)): p.read_text() for p in top.rglob("*") if p.is_file()}


def samples() -> torch.Tensor:
    return torch.randn(25, 8, 6, generator=torch.Generator().manual_seed(3)) * 3.7


def written(values: torch.Tensor) -> set[str]:
    """Numbers as a report could write them: in full, and with six digits."""
    return {form for v in values.flatten().tolist() for form in (repr(v), f"{v:.6g}")}


def numbers(text: str) -> set[str]:
    return set(re.findall(r"-?\d+\.\d{3,}(?:e-?\d+)?", text))


def test_the_search_would_find_a_sample() -> None:
    data = samples()
    assert numbers(json.dumps({"value": data[3, 2, 1].item()})) & written(data)


def test_no_sample_no_variable_of_the_environment_and_no_message_of_an_exception_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_PASSWORD", TOKEN)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
    data = samples()
    autolog()
    with pytest.raises(RuntimeError, match=TOKEN), mlflow.start_run() as run:
        train(("first", "second"), data, message=f"no access with {TOKEN}")
    found = everything(run.info.run_id, tmp_path / "down")
    assert '"neuraldbg.exception": "RuntimeError"' in found["tags"]
    assert len(found) == 3 + 7
    assert [place for place, text in found.items() if TOKEN in text] == []
    assert {place: leaked for place, text in found.items() if (leaked := numbers(text) & written(data))} == {}


def test_names_of_the_model_stay_text_in_every_form_and_within_mlflows_limits(tmp_path: Path, told: Any) -> None:
    autolog()
    with mlflow.start_run() as run:
        train(HOSTILE, samples())
    got = told(run)
    assert got.tags["verdict"] == "failed"
    texts = {"mlflow.note.content", "mlflow.loggedArtifacts"}
    ours = {k: v for k, v in got.run.data.tags.items() if k in texts or k.startswith("neuraldbg.")}
    assert max(len(v) for k, v in ours.items() if k not in texts) <= 250
    assert max(map(len, [*ours, *got.metrics])) <= 250
    assert len(got.note) <= 5000
    assert got.note.startswith("<!-- neuraldbg:begin -->\n**NeuralDBG: failed**")
    assert got.note.count("<!-- neuraldbg:end -->") == 1

    found = everything(run.info.run_id, tmp_path / "down")
    shown = {p: t for p, t in found.items() if p.endswith((".html", ".svg", ".md", ".mmd"))} | {"note": got.note}
    assert len(shown) == 5
    markdown = {place: shown[place] for place in ("neuraldbg/report.md", "note")}
    assert [place for place, text in shown.items() if "<script" in text] == []
    assert [place for place, text in markdown.items() if re.search(r"\*\*bold\*\*|\[x\]\(y\)", text)] == []
    assert max(map(len, shown.values())) < 400_000
    ElementTree.fromstring(found["neuraldbg_graph.svg"])
    assert "\n# head" not in found["neuraldbg/report.md"]
    assert found["neuraldbg/report.md"].count("```") == 2
    for line in found["neuraldbg/graph.mmd"].splitlines():
        assert re.fullmatch(r'graph TD|    (\w+\(?\[".*"\]\)?:::\w+|\w+ (==>|-->|-\.->) \w+|classDef .*)', line), line
