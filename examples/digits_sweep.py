"""Six short trainings on handwritten digits, two healthy and four failing, as one MLflow sweep.

    python examples/digits_sweep.py [--out demo-runs] [--epochs 10] [--seed 0]

The loops are plain PyTorch. `neuraldbg.integrations.mlflow.autolog()` is the only line that knows NeuralDBG;
the verdicts printed at the end are read back from the tags of the MLflow runs.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import mlflow
import torch
from mlflow.entities import Run
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

import neuraldbg.integrations.mlflow

EXPERIMENT = "neuraldbg-demo"
BATCH = 64
TAGS = ("cause", "layer", "step")
TRAINING_ROWS = 1437  # four fifths of the 1797 images


@dataclass(frozen=True)
class Digits:
    """8 x 8 grey images, flat, scaled to 0..1, and what they show."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor


@dataclass(frozen=True)
class Trial:
    """One training of the sweep. `broken_from`: the step from which on one image of each batch holds a NaN."""

    name: str
    model: str
    optimizer: str
    rate: float
    broken_from: int | None = None


def digits(seed: int = 0) -> Digits:
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32) / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    train, test = order[:TRAINING_ROWS], order[TRAINING_ROWS:]
    return Digits(images[train], labels[train], images[test], labels[test])


def named(*layers: tuple[str, nn.Module]) -> nn.Module:
    return nn.Sequential(OrderedDict(layers))


def mlp() -> nn.Module:
    return named(
        ("linear1", nn.Linear(64, 64)),
        ("relu1", nn.ReLU()),
        ("linear2", nn.Linear(64, 32)),
        ("relu2", nn.ReLU()),
        ("output", nn.Linear(32, 10)),
    )


def cnn(bias: float | None = None) -> nn.Module:
    """Two convolutions and a linear layer; `bias` is a start value for the second convolution's bias."""
    second = nn.Conv2d(16, 32, kernel_size=3, padding=1)
    if bias is not None:
        nn.init.constant_(second.bias, bias)  # type: ignore[arg-type]  # a Conv2d with a bias has one
    return named(
        ("image", nn.Unflatten(1, (1, 8, 8))),
        ("conv1", nn.Conv2d(1, 16, kernel_size=3, padding=1)),
        ("relu1", nn.ReLU()),
        ("pool", nn.MaxPool2d(2)),
        ("conv2", second),
        ("relu2", nn.ReLU()),
        ("flat", nn.Flatten()),
        ("output", nn.Linear(32 * 4 * 4, 10)),
    )


def deep_sigmoid(hidden: int = 8) -> nn.Module:
    layers: list[tuple[str, nn.Module]] = []
    width = 64
    for i in range(1, hidden + 1):
        layers += [(f"linear{i}", nn.Linear(width, 32)), (f"sigmoid{i}", nn.Sigmoid())]
        width = 32
    return named(*layers, ("output", nn.Linear(width, 10)))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "cnn": cnn,
    "cnn-bias-6": partial(cnn, bias=-6.0),
    "deep-sigmoid": deep_sigmoid,
}

TRIALS = (
    Trial("mlp-healthy", "mlp", "sgd", 0.05),
    Trial("cnn-healthy", "cnn", "adam", 2e-3),
    Trial("mlp-high-rate", "mlp", "sgd", 2.0),
    Trial("mlp-deep-sigmoid", "deep-sigmoid", "sgd", 0.05),
    Trial("cnn-dying-relu", "cnn-bias-6", "adam", 2e-3),
    Trial("cnn-broken-batch", "cnn", "adam", 2e-3, broken_from=100),
)


def steps_of(epochs: int) -> int:
    return epochs * -(-TRAINING_ROWS // BATCH)


def batches(data: Digits, trial: Trial, epochs: int) -> Iterator[tuple[Tensor, Tensor]]:
    step = 0
    for _ in range(epochs):
        for rows in torch.randperm(len(data.images)).split(BATCH):
            images = data.images[rows]
            if trial.broken_from is not None and step >= trial.broken_from:
                images[0, 20] = torch.nan  # a dead pixel; indexing by rows made a copy
            yield images, data.labels[rows]
            step += 1


def accuracy(model: nn.Module, data: Digits) -> float:
    model.eval()
    with torch.no_grad():
        return float((model(data.test_images).argmax(1) == data.test_labels).float().mean())


def train(trial: Trial, data: Digits, epochs: int, seed: int, report: Callable[[int, float], None]) -> float:
    """Train as the trial says, report each loss, return the accuracy on the test images."""
    torch.manual_seed(seed)
    model = MODELS[trial.model]()
    optimizer: torch.optim.Optimizer = (
        torch.optim.Adam(model.parameters(), lr=trial.rate)
        if trial.optimizer == "adam"
        else torch.optim.SGD(model.parameters(), lr=trial.rate, momentum=0.9)
    )
    for step, (images, labels) in enumerate(batches(data, trial, epochs)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        report(step, loss.item())
    return accuracy(model, data)


def sweep(data: Digits, epochs: int, seed: int, progress: Progress) -> list[str]:
    """Run every trial inside an MLflow run of its own; the ids of the runs."""
    bar = progress.add_task("training", total=len(TRIALS) * steps_of(epochs))
    ids = []

    def report(step: int, loss: float) -> None:
        progress.advance(bar)
        if step % 10 == 0:
            mlflow.log_metric("loss", loss, step=step)

    for trial in TRIALS:
        progress.update(bar, description=trial.name)
        with mlflow.start_run(run_name=trial.name) as run:
            mlflow.log_params({"model": trial.model, "optimizer": trial.optimizer, "rate": trial.rate})
            mlflow.log_metric("accuracy", train(trial, data, epochs, seed, report))
        ids.append(run.info.run_id)
    return ids


def verdicts(runs: list[Run]) -> Table:
    table = Table(
        "run", "accuracy", "verdict", "cause", "layer", "step", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for run in runs:
        tags = run.data.tags
        verdict = tags.get("neuraldbg.verdict", "missing")
        colour = {"healthy": "green", "warning": "yellow"}.get(verdict, "red")
        table.add_row(
            run.info.run_name,
            f"{run.data.metrics['accuracy']:.3f}",
            f"[{colour}]{verdict}[/]",
            *("-" if (tag := tags.get(f"neuraldbg.{name}", "none")) == "none" else tag for name in TAGS),
        )
    return table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("demo-runs"), help="where runs and artifacts go")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the 1437 training images")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    for talkative in ("alembic", "mlflow.store.db.utils"):  # forty lines about the tables of a new database
        logging.getLogger(talkative).setLevel(logging.WARNING)
    torch.set_num_threads(1)  # matrices this small get slower with more
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    store = f"sqlite:///{out / 'mlflow.db'}"
    console = Console()
    with Progress(console=console) as progress:
        setting_up = progress.add_task("MLflow store", total=None)
        mlflow.set_tracking_uri(store)
        experiment = mlflow.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            mlflow.create_experiment(EXPERIMENT, artifact_location=(out / "artifacts").as_uri())
        mlflow.set_experiment(EXPERIMENT)
        progress.remove_task(setting_up)

        neuraldbg.integrations.mlflow.autolog()
        ids = sweep(digits(options.seed), options.epochs, options.seed, progress)

    console.print(verdicts([mlflow.get_run(run) for run in ids]))
    console.print("Look at the runs:", style="bold")
    console.print(f"  {Path(sys.executable).parent / 'mlflow'} ui --backend-store-uri {store}", soft_wrap=True)
    console.print(f"  http://127.0.0.1:5000{neuraldbg.integrations.mlflow.install_view(EXPERIMENT)}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
