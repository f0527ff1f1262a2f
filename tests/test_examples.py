"""The examples do what they say: both sweeps, the plain loop, the GAN, the healthy run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from neuraldbg import compare
from neuraldbg.report.sweep import counts

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

# What each training of the sweep is, by its name: the causes that are right for it, best first.
EXPECTED = {
    "mlp-healthy": "none",
    "cnn-healthy": "none",
    "mlp-high-rate": "learning_rate_too_high",
    "mlp-deep-sigmoid": "saturating_activations_deep",
    "cnn-dying-relu": "dead_relu_negative_bias",
    "cnn-broken-batch": "nan_in_input",
}

# Reads the store as a user would; a line a run: name, status, accuracy, verdict, cause, description drawn, files there.
READ = """
import sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
client = mlflow.MlflowClient()
experiment = client.get_experiment_by_name("neuraldbg-demo")
for run in client.search_runs([experiment.experiment_id]):
    tags = run.data.tags
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    print(run.info.run_name, run.info.status, round(run.data.metrics["accuracy"], 3), tags["neuraldbg.verdict"],
          tags["neuraldbg.cause"], "neuraldbg_graph.svg" in tags["mlflow.note.content"],
          {"neuraldbg.html", "neuraldbg_graph.svg"} <= files)
"""


def python(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", name="sweep")
def _sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, list[str]]]:
    """What the sweep printed, and its runs as they stand in the store."""
    folder = tmp_path_factory.mktemp("sweep")
    printed = python(str(EXAMPLES / "digits_sweep.py"), "--out", "runs", folder=folder)
    rows = python("-c", READ, f"sqlite:///{folder / 'runs' / 'mlflow.db'}", folder=folder)
    return printed, {name: rest for name, *rest in map(str.split, rows.splitlines())}


def test_the_healthy_trainings_learn_and_the_failing_ones_do_not(sweep: tuple[str, dict[str, list[str]]]) -> None:
    _, runs = sweep
    accuracy = {name: float(run[1]) for name, run in runs.items()}
    assert accuracy.keys() == EXPECTED.keys()
    assert all(value > 0.9 if "healthy" in name else value < 0.2 for name, value in accuracy.items())


def test_each_training_of_the_sweep_gets_its_verdict_and_cause(sweep: tuple[str, dict[str, list[str]]]) -> None:
    _, runs = sweep
    verdicts = {name: run[2] for name, run in runs.items()}
    assert verdicts == {name: "healthy" if cause == "none" else "failed" for name, cause in EXPECTED.items()}
    assert {name: run[3] for name, run in runs.items()} == EXPECTED


def test_every_run_of_the_sweep_has_its_description_and_its_page(sweep: tuple[str, dict[str, list[str]]]) -> None:
    """The description of a failed run draws its causal graph; a run's status stays what its owner made it."""
    _, runs = sweep
    assert {run[0] for run in runs.values()} == {"FINISHED"}
    assert {run[5] for run in runs.values()} == {"True"}
    assert {name: run[4] for name, run in runs.items()} == {
        name: str(cause != "none") for name, cause in EXPECTED.items()
    }


def test_the_sweep_prints_each_verdict_and_how_to_look_at_it(sweep: tuple[str, dict[str, list[str]]]) -> None:
    printed, _ = sweep
    table = printed[printed.index("verdict") :].splitlines()
    rows = {name: next(line for line in table if name in line) for name in EXPECTED}
    assert [
        name for name, cause in EXPECTED.items() if ("healthy" if cause == "none" else cause) not in rows[name]
    ] == []
    assert "ui --backend-store-uri sqlite:///" in printed
    assert "workflowType=machine_learning" in printed


def test_the_healthy_example_says_so(tmp_path: Path) -> None:
    assert python(str(EXAMPLES / "healthy.py"), folder=tmp_path).startswith("HEALTHY")


def test_the_plain_loop_blames_the_learning_rate(tmp_path: Path) -> None:
    said = python(str(EXAMPLES / "plain_loop.py"), folder=tmp_path)
    assert said.startswith("FAILED")
    assert "likely due to a learning rate that is too high" in said.splitlines()[0]


def test_the_gan_blames_the_discriminator_that_wins(tmp_path: Path) -> None:
    said = python(str(EXAMPLES / "gan.py"), folder=tmp_path)
    assert said.startswith("FAILED")
    assert "likely due to a discriminator that wins" in said.splitlines()[0]
    assert "generator" in said


def test_the_sweep_of_causes_leaves_a_folder_that_compare_reads_again(tmp_path: Path) -> None:
    said = python(str(EXAMPLES / "cause_sweep.py"), "--trainings", "3", "--out", "sweep", folder=tmp_path)
    found = compare(tmp_path / "sweep")
    assert len(found.rows) == 3 and counts(found) in said
    chosen = {"lr", "depth", "activation", "batch_size", "init_scale", "optimizer"}
    assert all(chosen <= set(row.parameters) for row in found.rows)
    assert "<svg" in (tmp_path / "sweep" / "sweep.html").read_text()
