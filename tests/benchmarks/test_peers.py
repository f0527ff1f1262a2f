"""What the peers' benchmark does around a training: it is the same one, told as a user would, and errors are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from benchmarks import corpus
from benchmarks.peers.__main__ import line
from benchmarks.peers.adapters import Anomaly, Peer, Said, Thresholds
from benchmarks.peers.harness import peer_says


def job(kind: str, part: str = "") -> corpus.Job:
    return next(j for j in corpus.runs("fit", kind) if part in j.name)


class Listening(Peer):
    """Keeps what it is told, in order."""

    def start(self, optimizer: Optimizer) -> None:
        self.heard: list[tuple[str, int, float]] = []

    def before_step(self, step: int, loss: Tensor | None, optimizer: Optimizer) -> None:
        assert loss is not None
        self.heard.append(("before", step, float(loss.detach())))

    def after_step(self, step: int, loss: float) -> None:
        self.heard.append(("after", step, loss))

    def end(self) -> list[Said]:
        return [Said(name, False, str(step), str(value)) for name, step, value in self.heard]


def test_a_peer_is_called_in_a_users_order_and_leaves_the_training_as_it_is(tmp_path: Path) -> None:
    one = job("healthy", "mlp_classes/plain")
    losses: list[float] = []
    _, train = corpus.build(one)
    train(losses.append)
    said, error = peer_says(Listening, one, tmp_path)
    assert error is None
    assert [s.text for s in said] == ["before", "after"] * len(losses)
    assert [float(s.cause) for s in said if s.text == "after"] == losses
    assert [int(s.failure) for s in said if s.text == "before"] == list(range(len(losses)))


def test_a_hook_that_raises_is_told_as_breaking_the_training(tmp_path: Path) -> None:
    class Raising(Peer):
        def before_step(self, step: int, loss: Tensor | None, optimizer: Optimizer) -> None:
            raise ValueError("a hook of mine")

    assert peer_says(Raising, job("healthy"), tmp_path) == ([], "ValueError: a hook of mine")


def test_thresholds_say_nothing_of_usual_gradients_and_see_a_nan(tmp_path: Path) -> None:
    assert peer_says(Thresholds, job("healthy", "mlp_classes/plain"), tmp_path) == ([], None)
    said, _ = peer_says(Thresholds, job("faulty", "/nan_input"), tmp_path)
    assert "a loss that is not finite" in {s.text for s in said}


def test_what_anomaly_mode_raises_is_what_it_says(tmp_path: Path) -> None:
    (said,), error = peer_says(Anomaly, job("faulty", "/nan_input"), tmp_path)
    assert error is None
    assert "returned nan values" in said.text
    assert not torch.is_anomaly_enabled()


def test_a_row_counts_serious_and_other_findings_apart() -> None:
    faulty: dict[str, Any] = {"causes": ["label_error"], "failures": ["data_anomaly"], "error": None}
    healthy: dict[str, Any] = {"causes": [], "failures": [], "error": None}
    rows = [
        {**faulty, "said": [["x", True, "data_anomaly", "label_error"]]},
        {**faulty, "said": [["x", False, "dead_neurons", ""]]},
        {**healthy, "said": []},
        {**healthy, "said": [["x", False, "", ""]]},
    ]
    shares = [cell.split(" %")[0].strip() for cell in line("a tool", rows).split("|")[2:9]]
    assert shares == ["50.0", "100.0", "0.0", "50.0", "50.0", "50.0", "0.0"]
