"""A training of the real Trainer, and a loop with accelerate, are watched as a plain loop is, and equal to the bit."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import mlflow
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

import neuraldbg.integrations.mlflow
from neuraldbg import NeuralDbg
from neuraldbg.integrations.transformers import NeuralDbgCallback
from neuraldbg.testing import Memory

from .trainer import BATCH, ROWS, STEPS, InOrder, Net, Rows


class Norms(TrainerCallback):  # type: ignore[misc]
    """Trainer's own figure: the norm before it clipped."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.logged.append(dict(logs))


def make(folder: Path, model: nn.Module, data: Any, *callbacks: Any, **arguments: Any) -> Trainer:
    given = {
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": BATCH,
        "num_train_epochs": 1,
        "report_to": "none",
        "use_cpu": True,
        "logging_steps": 1,
        "disable_tqdm": True,
        "save_strategy": "no",
        "optim": "sgd",
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "dataloader_pin_memory": False,
    }
    args = TrainingArguments(**{**given, **arguments})
    return InOrder(model=model, args=args, train_dataset=data, eval_dataset=Rows(), callbacks=[*callbacks])


def train(folder: Path, model: nn.Module, data: Any, *callbacks: Any, **arguments: Any) -> Norms:
    norms = Norms()
    make(folder, model, data, *callbacks, norms, **arguments).train()
    return norms


def watcher(**arguments: Any) -> tuple[NeuralDbgCallback, Memory]:
    memory = Memory()
    return NeuralDbgCallback(sinks=[memory], show=False, **arguments), memory


class Words(Dataset[dict[str, torch.Tensor]]):
    """Each word is followed by the next one; labels of a third of the rows are padded."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, k: int) -> dict[str, torch.Tensor]:
        ids = (k + torch.arange(12)) % 17
        return {"input_ids": ids, "labels": torch.where(torch.arange(12) < (6 if k % 3 == 0 else 12), ids, -100)}


def language_model() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model: nn.Module = LlamaForCausalLM(
        LlamaConfig(vocab_size=17, num_key_value_heads=2, max_position_embeddings=16, **sizes)
    )
    return model


@pytest.mark.parametrize("accumulated", [1, 4])
def test_a_language_models_loss_is_the_mean_over_the_tokens_of_the_step(tmp_path: Path, accumulated: int) -> None:
    """Its loss is a sum over tokens divided by those of all micro-batches, so none of them has the step's loss."""
    callback, memory = watcher()
    norms = train(
        tmp_path, language_model(), Words(), callback, optim="adamw_torch", learning_rate=3e-3, max_steps=6,
        gradient_accumulation_steps=accumulated, max_grad_norm=0.1,
    )  # fmt: skip
    steps = [line for line in norms.logged if "grad_norm" in line]
    for ours, theirs in (("loss", "loss"), ("gradient_norm", "grad_norm")):
        logged = {k: float(line[theirs]) for k, line in enumerate(steps)}
        assert len(logged) == 6 and dict(memory.series[ours]) == pytest.approx(logged, rel=1e-4)
    assert dict(memory.series["loss"])[0] == pytest.approx(math.log(17), rel=0.1)


def test_steps_go_on_from_the_checkpoint_that_a_training_resumes_from(tmp_path: Path) -> None:
    (whole, _), (rest, memory) = watcher(), watcher()
    how = {"save_strategy": "steps", "save_steps": 10, "optim": "adamw_torch"}
    once, again = Net(), Net()
    train(tmp_path, once, Rows(), whole, **how)
    make(tmp_path, again, Rows(), rest, **how).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-10"))
    assert [step for step, _ in memory.series["gradient_norm"]] == list(range(10, STEPS))
    assert rest.diagnosis is not None and str(rest.diagnosis.verdict) == "healthy"
    assert all(torch.equal(a, b) for a, b in zip(once.parameters(), again.parameters(), strict=True))


def test_steps_and_norms_are_those_of_the_trainer_before_clipping(tmp_path: Path) -> None:
    callback, memory = watcher()
    norms = train(tmp_path, Net(), Rows(), callback, max_grad_norm=0.01)
    assert callback.diagnosis is not None and callback.diagnosis.steps == STEPS
    logged = [float(line["grad_norm"]) for line in norms.logged if "grad_norm" in line]
    assert dict(memory.series["gradient_norm"]) == pytest.approx(dict(enumerate(logged)), rel=1e-4)
    assert min(logged) > 0.01


def test_micro_batches_of_an_accumulation_make_one_step_whose_loss_is_not_divided(tmp_path: Path) -> None:
    callback, memory = watcher()
    model = Net()
    norms = train(tmp_path, model, Rows(), callback, gradient_accumulation_steps=4, max_grad_norm=0.01)
    assert callback.diagnosis is not None and callback.diagnosis.steps == STEPS / 4
    assert model.calls == STEPS
    logged = [float(line["grad_norm"]) for line in norms.logged if "grad_norm" in line]
    assert dict(memory.series["gradient_norm"]) == pytest.approx(dict(enumerate(logged)), rel=1e-4)
    assert memory.series["rows"] == [(k, BATCH * 4) for k in range(STEPS // 4)]
    assert dict(memory.series["loss"])[0] == pytest.approx(math.log(3), rel=0.3), "a quarter of it would be 0.27"


def test_an_evaluation_is_no_training_and_its_loss_is_the_validation_loss(tmp_path: Path) -> None:
    (plain, memory), (evaluating, seen) = watcher(), watcher()
    train(tmp_path, Net(), Rows(), plain)
    norms = train(tmp_path, Net(), Rows(), evaluating, eval_strategy="steps", eval_steps=6)
    assert plain.diagnosis is not None and evaluating.diagnosis is not None
    assert evaluating.diagnosis.steps == plain.diagnosis.steps
    told = dict(seen.series.pop("validation"))
    assert seen.series == memory.series
    logged = [float(line["eval_loss"]) for line in norms.logged if "eval_loss" in line]
    assert list(told) == [5, 11, 17, 23] and list(told.values()) == pytest.approx(logged)


def test_the_watched_training_equals_the_bare_one_to_the_bit(tmp_path: Path) -> None:
    bare, watched = Net(), Net()
    train(tmp_path, bare, Rows(), max_grad_norm=0.5, gradient_accumulation_steps=2)
    train(tmp_path, watched, Rows(), watcher()[0], max_grad_norm=0.5, gradient_accumulation_steps=2)
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), watched.parameters(), strict=True))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in watched.modules())


@pytest.mark.parametrize(("rate", "broken"), [(0.05, None), (1e4, None), (0.05, 9)])
def test_the_diagnosis_is_that_of_a_plain_loop(tmp_path: Path, rate: float, broken: int | None) -> None:
    callback, _ = watcher()
    train(tmp_path, Net(), Rows(broken), callback, learning_rate=rate)
    plain = Net()
    optimizer = torch.optim.SGD(plain.parameters(), rate)
    with NeuralDbg(plain) as dbg:
        for batch in DataLoader(Rows(broken), BATCH):
            optimizer.zero_grad()
            plain(**batch)["loss"].backward()
            optimizer.step()
    both = [callback.diagnosis, dbg.diagnose()]
    told = [(d.verdict, d.top and (d.top.cause, d.top.layer_name, d.top.step)) for d in both if d is not None]
    assert told[0] == told[1]
    if broken is not None:
        assert told[0][1] == ("nan_in_input", None, 9)


def test_a_loss_of_zero_in_the_log_is_told_as_the_nan_that_it_hides(tmp_path: Path) -> None:
    """`logging_nan_inf_filter` is on by default: the log says 0.0, or the loss before."""
    callback, memory = watcher()
    norms = train(tmp_path, Net(), Rows(broken=9), callback)
    logged = [line["loss"] for line in norms.logged if "loss" in line]
    assert all(math.isfinite(float(value)) for value in logged)
    assert callback.diagnosis is not None and callback.diagnosis.top is not None
    assert (callback.diagnosis.top.cause, callback.diagnosis.top.step) == ("nan_in_input", 9)
    assert 9 not in dict(memory.series["loss"]), "a number that is not finite is no point of a curve"
    assert any(e.symptom == "loss_nonfinite" and e.step == 9 for e in callback.diagnosis.events)


def test_an_exception_of_the_users_passes_and_its_diagnosis_is_stored_at_once(tmp_path: Path) -> None:
    callback, memory = watcher()
    with pytest.raises(ValueError, match="the user did not expect"):
        train(tmp_path, Net(fails_at=6), Rows(), callback)
    assert memory.diagnosis is not None and memory.diagnosis is callback.diagnosis
    assert memory.diagnosis.steps == 6, "the last was begun"
    assert memory.diagnosis.facts.exception == "ValueError" and str(memory.diagnosis.verdict) == "healthy"


def test_a_step_that_an_exception_cuts_short_has_the_loss_of_its_micro_batches(tmp_path: Path) -> None:
    callback, memory = watcher()
    with pytest.raises(ValueError, match="the user did not expect"):
        train(tmp_path, Net(fails_at=12), Rows(), callback, gradient_accumulation_steps=4)
    assert [step for step, _ in memory.series["loss"]] == [0, 1, 2] and callback.diagnosis is not None
    assert dict(memory.series["loss"])[2] == pytest.approx(dict(memory.series["loss"])[1], rel=0.2), (
        "of three micro-batches of four"
    )


def test_an_error_of_ours_is_logged_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NEURALDBG_STRICT")
    monkeypatch.setenv("NEURALDBG_CADENCE", "often")
    model, callback = Net(), NeuralDbgCallback(sinks=[])
    train(tmp_path, model, Rows(), callback)
    assert model.calls == STEPS and callback.diagnosis is None
    assert "leaves this training alone" in caplog.text and "cadence" in caplog.text.lower()


@pytest.mark.parametrize(
    ("argument", "kind", "told"),
    [
        ({"on_failure": "halt"}, ValueError, '\'halt\' is unknown; give "raise", "stop"'),
        ({"on_failure": 7}, TypeError, "on_failure=7 cannot be called"),
        ({"settings": {"cadence": 5}}, TypeError, r"got {'cadence': 5}; pass Settings"),
    ],
)
def test_a_wrong_argument_is_refused_before_the_training(argument: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        NeuralDbgCallback(**argument)


def test_each_training_is_a_session_of_its_own_and_a_copied_callback_watches_nothing(tmp_path: Path) -> None:
    callback, _ = watcher()
    train(tmp_path, Net(), Rows(), callback)
    first = callback.dbg
    assert copy.deepcopy(callback).diagnosis is None
    train(tmp_path, Net(), Rows(), callback, learning_rate=1e4)
    assert first is not None and callback.dbg is not first
    assert [str(d.diagnose().verdict) for d in (first, callback.dbg) if d is not None] == ["healthy", "failed"]


def test_on_failure_stop_ends_the_training(tmp_path: Path) -> None:
    model = Net()
    train(tmp_path, model, Rows(broken=9), watcher(on_failure="stop")[0])
    assert model.calls < STEPS


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[mlflow.MlflowClient]:
    """Of the experiment "1", which Trainer's MLflowCallback reports into."""
    uri = f"sqlite:///{tmp_path}/t.db"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "e")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    mlflow.set_tracking_uri(uri)
    mlflow.create_experiment("e", f"file://{tmp_path}/a")
    yield mlflow.MlflowClient(uri)
    neuraldbg.integrations.mlflow.autolog(disable=True)
    mlflow.end_run()
    mlflow.set_tracking_uri("")


@pytest.mark.parametrize("autolog", [False, True])
def test_the_verdict_lies_in_the_run_of_the_trainers_mlflow_callback(
    tmp_path: Path, client: mlflow.MlflowClient, autolog: bool
) -> None:
    if autolog:
        neuraldbg.integrations.mlflow.autolog()
    train(tmp_path, Net(), Rows(broken=9), NeuralDbgCallback(show=False), report_to="mlflow")
    (run,) = client.search_runs(["1"])
    assert run.data.tags["neuraldbg.verdict"] == "failed" and run.data.tags["neuraldbg.cause"] == "nan_in_input"
    assert "grad_norm" in run.data.metrics, "the run is the one that Trainer reported into"


def test_a_second_training_and_an_exception_reach_their_runs_too(tmp_path: Path, client: mlflow.MlflowClient) -> None:
    """Trainer's callback ends the run that it made; the next `train()` gets one with the first line of its log."""
    trainer = make(tmp_path, Net(fails_at=STEPS + 6), Rows(), NeuralDbgCallback(show=False), report_to="mlflow")
    trainer.train()
    with pytest.raises(ValueError, match="the user did not expect"):
        trainer.train()
    second, first = client.search_runs(["1"], order_by=["attributes.start_time DESC"])
    assert first.data.tags["neuraldbg.verdict"] == second.data.tags["neuraldbg.verdict"] == "healthy"
    assert "neuraldbg.exception" not in first.data.tags
    assert second.data.tags["neuraldbg.exception"].startswith("ValueError") and "grad_norm" in second.data.metrics


def test_a_training_that_was_not_healthy_is_told_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, Net(), Rows(broken=9), NeuralDbgCallback(sinks=[]))
    assert "FAILED: NaN values detected" in capsys.readouterr().out


def test_a_loop_with_accelerate_is_watched_without_a_callback() -> None:
    told, memory = [], Memory()
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = Net()
    prepared, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.05), DataLoader(Rows(), BATCH)
    )
    with NeuralDbg(prepared, sinks=[memory]) as dbg:
        for batch in loader:
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(**batch)["loss"])
                if accelerator.sync_gradients:
                    told.append(float(accelerator.clip_grad_norm_(prepared.parameters(), 0.01)))
                optimizer.step()
                optimizer.zero_grad()
    diagnosis = dbg.diagnose()
    assert diagnosis.steps == STEPS / 4 == len(told)
    assert dbg.model is model, "the prepared model's own names are reported"
    assert dict(memory.series["gradient_norm"]) == pytest.approx(dict(enumerate(told)), rel=1e-4)
    assert dict(memory.series["loss"])[0] == pytest.approx(math.log(3), rel=0.3)
