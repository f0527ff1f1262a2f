"""Sixty short trainings over six hyper-parameters, and which causes of failure go with which of them.

    python examples/cause_sweep.py [--out cause-sweep] [--trainings 60] [--seed 0]

Optuna draws learning rate, depth, activation, batch size, scale of the initial weights and optimizer at random (a
sampler that learns, such as TPE, would soon leave the places where trainings fail); the task is two interleaved half
moons. Each training's diagnosis is saved as `neuraldbg run` would save it, so that `neuraldbg compare cause-sweep`
reads the folder again; verdict and cause stand in the trial too, as `trial.user_attrs["neuraldbg.cause"]` and so on.

    pip install optuna
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import optuna
import torch
from rich.console import Console
from torch import Tensor, nn

from neuraldbg import Diagnosis, NeuralDbg, compare, report
from neuraldbg.integrations.optuna import note
from neuraldbg.report.sweep import rich_report
from neuraldbg.report.sweep_page import page

STEPS = 150
WIDTH = 24
Chosen = dict[str, str | float]


def half_moons(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """`count` points of two interleaved arcs, with noise, and which arc each belongs to."""
    noise = torch.Generator().manual_seed(seed)
    angle = torch.rand(count, generator=noise) * torch.pi
    label = torch.arange(count) % 2
    x = torch.where(label == 0, angle.cos(), 1 - angle.cos()) - 0.5
    y = torch.where(label == 0, angle.sin(), 0.5 - angle.sin()) - 0.25
    points = torch.stack([x, y], 1) + 0.1 * torch.randn(count, 2, generator=noise)
    return points, label


def choose(trial: optuna.Trial) -> Chosen:
    return {
        "lr": trial.suggest_float("lr", 3e-4, 10.0, log=True),
        "depth": float(trial.suggest_categorical("depth", [1, 2, 4, 8])),
        "activation": trial.suggest_categorical("activation", ["relu", "tanh", "sigmoid"]),
        "batch_size": float(trial.suggest_categorical("batch_size", [16, 64, 256])),
        "init_scale": trial.suggest_categorical("init_scale", [0.5, 1.0, 2.0, 4.0]),
        "optimizer": trial.suggest_categorical("optimizer", ["sgd", "adam"]),
    }


def build(chosen: Chosen) -> nn.Module:
    activations: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}
    layers: list[nn.Module] = []
    width = 2
    for _ in range(int(chosen["depth"])):
        layers += [nn.Linear(width, WIDTH), activations[str(chosen["activation"])]()]
        width = WIDTH
    model = nn.Sequential(*layers, nn.Linear(width, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(float(chosen["init_scale"]))
    return model


def train(chosen: Chosen, seed: int) -> tuple[Diagnosis, float]:
    """The diagnosis, and the mean of the last losses."""
    torch.manual_seed(seed)
    points, labels = half_moons(1024, seed=0)
    model = build(chosen)
    kind = torch.optim.Adam if chosen["optimizer"] == "adam" else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=float(chosen["lr"]))
    losses: list[float] = []
    with NeuralDbg(model) as dbg:
        for _ in range(STEPS):
            rows = torch.randint(len(points), (int(chosen["batch_size"]),))
            loss = nn.functional.cross_entropy(model(points[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return dbg.diagnose(), sum(losses[-10:]) / 10


def save(diagnosis: Diagnosis, chosen: Chosen, folder: Path) -> None:
    report.save(diagnosis, folder / "diagnosis.json")
    typed = [f"--{name}={value}" for name, value in chosen.items()]
    (folder / "run.json").write_text(json.dumps({"target": Path(__file__).name, "arguments": typed}))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("cause-sweep"), help="where the diagnoses and the page go")
    parser.add_argument("--trainings", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # matrices this small get slower with more
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: optuna.Trial) -> float:
        chosen = choose(trial)
        diagnosis, loss = train(chosen, seed=options.seed + trial.number)
        save(diagnosis, chosen, options.out / f"run-{trial.number:03d}")
        note(trial, diagnosis)
        return loss  # NaN makes it a failed trial in Optuna too

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=options.seed))
    study.optimize(objective, n_trials=options.trainings)
    found = compare(options.out)
    (options.out / "sweep.html").write_text(page(found), encoding="utf-8")
    Console().print(rich_report(found))
    print(f"wrote {options.out / 'sweep.html'}; again: neuraldbg compare {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
