"""A fit of a real Lightning Trainer is watched as the same training in a plain loop is, and is the same to the bit."""

from __future__ import annotations

import copy
import math
import signal
from typing import Any

import lightning
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from neuraldbg import NeuralDbg
from neuraldbg.integrations.lightning import NeuralDbgCallback
from neuraldbg.testing import Memory

pytestmark = [  # Lightning's advice, and what it still calls of torch
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*treespec"),
]
BATCHES = 24


class Net(lightning.LightningModule):  # type: ignore[misc]
    """rate: of SGD. told: norm of the gradient after each backward pass, before it is clipped. losses: as computed."""

    def __init__(self, rate: float = 0.05, fails_at: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        self.rate, self.fails_at = rate, fails_at
        self.told: list[float] = []
        self.losses: list[float] = []
        self.backwards = 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == self.fails_at:
            raise ValueError("a batch that the user did not expect")
        x, y = batch
        loss = F.cross_entropy(self.body(x), y)
        self.losses.append(float(loss.detach()))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self.body(x), y))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("test_loss", F.cross_entropy(self.body(x), y))

    def on_after_backward(self) -> None:
        self.backwards += 1
        self.told.append(math.sqrt(sum(float(p.grad.square().sum()) for p in self.parameters() if p.grad is not None)))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), self.rate)


def loader(broken_at: int | None = None) -> DataLoader[Any]:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(8 * BATCHES, 6, generator=g)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
    if broken_at is not None:
        x[8 * broken_at + 3, 2] = math.nan
    return DataLoader(TensorDataset(x, y), batch_size=8)


def fit(module: Net, data: DataLoader[Any], *callbacks: Any, val: Any = None, **arguments: Any) -> lightning.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(
        accelerator="cpu", callbacks=list(callbacks), **{"max_epochs": 1, "logger": False, **quiet, **arguments}
    )
    trainer.fit(module, data, val)
    return trainer


def watcher(**arguments: Any) -> tuple[NeuralDbgCallback, Memory]:
    memory = Memory()
    return NeuralDbgCallback(sinks=[memory], show=False, **arguments), memory


def test_steps_losses_and_norms_are_those_of_the_module_before_clipping() -> None:
    module, (callback, memory) = Net(), watcher()
    fit(module, loader(), callback, gradient_clip_val=0.01)
    assert callback.diagnosis is not None and callback.diagnosis.steps == BATCHES
    assert dict(memory.series["gradient_norm"]) == pytest.approx(dict(enumerate(module.told)), rel=1e-5)
    assert dict(memory.series["loss"]) == pytest.approx(dict(enumerate(module.losses)), rel=1e-5)
    assert min(module.told) > 0.01


def test_micro_batches_of_an_accumulation_make_one_step_whose_loss_is_not_divided() -> None:
    module, (callback, memory) = Net(), watcher()
    fit(module, loader(), callback, accumulate_grad_batches=4)
    assert callback.diagnosis is not None and callback.diagnosis.steps == BATCHES / 4
    assert module.backwards == BATCHES
    assert dict(memory.series["gradient_norm"]) == pytest.approx(dict(enumerate(module.told[3::4])), rel=1e-5)
    assert memory.series["rows"] == [(k, 8 * 4) for k in range(6)]
    assert dict(memory.series["loss"]) == pytest.approx(dict(enumerate(module.losses[3::4])), rel=1e-5)


def test_validation_and_the_sanity_check_are_no_training() -> None:
    both = []
    for val in (None, loader()):
        callback, memory = watcher(monitor=None)
        fit(Net(), loader(), callback, val=val, val_check_interval=6, num_sanity_val_steps=2)
        assert callback.diagnosis is not None
        both.append((callback.diagnosis.steps, memory.series))
    assert both[0] == both[1]


def test_a_test_after_the_fit_is_no_training_and_leaves_its_diagnosis() -> None:
    module, (callback, _) = Net(), watcher()
    trainer = fit(module, loader(), callback)
    first = callback.diagnosis
    trainer.test(module, loader(broken_at=2), verbose=False)
    assert callback.diagnosis is first and first is not None and first.steps == BATCHES


def test_the_monitored_metric_of_validation_is_the_loss_there() -> None:
    module, (callback, memory) = Net(), watcher()
    trainer = fit(module, loader(), callback, val=loader(), val_check_interval=6)
    told = dict(memory.series["validation"])
    assert list(told) == [5, 11, 17, 23]
    assert told[23] == pytest.approx(float(trainer.callback_metrics["val_loss"]), rel=1e-6)


class Dropped(Net):
    """With random numbers in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body.append(nn.Dropout(0.2))


def test_the_watched_fit_equals_the_bare_one_to_the_bit() -> None:
    ways = []
    for callbacks in ([], [watcher()[0]]):
        module = Dropped()
        data = DataLoader(loader().dataset, batch_size=8, shuffle=True)
        more = {"gradient_clip_val": 0.5, "accumulate_grad_batches": 2, "max_epochs": 2, "val_check_interval": 10}
        fit(module, data, *callbacks, val=loader(), **more)
        ways.append((module, torch.get_rng_state()))
    (bare, bare_state), (watched, state) = ways
    assert bare.told == watched.told and bare.losses == watched.losses and len(bare.losses) == 2 * BATCHES
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), watched.parameters(), strict=True))
    assert torch.equal(bare_state, state)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in watched.modules())


@pytest.mark.parametrize(("rate", "broken_at"), [(0.05, None), (1e4, None), (0.05, 9)])
def test_the_diagnosis_is_that_of_a_plain_loop(rate: float, broken_at: int | None) -> None:
    callback, _ = watcher()
    fit(Net(rate), loader(broken_at), callback)
    plain = Net(rate)
    optimizer = plain.configure_optimizers()
    with NeuralDbg(plain) as dbg:
        for k, batch in enumerate(loader(broken_at)):
            optimizer.zero_grad()
            plain.training_step(batch, k).backward()
            optimizer.step()
    both = [callback.diagnosis, dbg.diagnose()]
    told = [(d.verdict, d.top and (d.top.cause, d.top.layer_name, d.top.step)) for d in both if d is not None]
    assert told[0] == told[1]
    if broken_at is not None:
        assert told[0][1] == ("nan_in_input", None, 9)


def test_an_exception_of_the_users_passes_and_its_diagnosis_is_kept() -> None:
    callback, memory = watcher()
    with pytest.raises(ValueError, match="the user did not expect"):
        fit(Net(fails_at=5), loader(), callback)
    assert callback.diagnosis is not None and callback.diagnosis.steps == 5
    assert callback.diagnosis.facts.exception == "ValueError"
    assert memory.diagnosis is not None


def test_what_the_session_would_not_take_is_refused_where_it_is_given() -> None:
    with pytest.raises(TypeError, match="on_failure=7 cannot be called"):
        NeuralDbgCallback(on_failure=7)
    with pytest.raises(TypeError, match=r"settings is a neuraldbg\.Settings, got 'dense'"):
        NeuralDbgCallback(settings="dense")


class Nothing(lightning.LightningModule):  # type: ignore[misc]
    """Without parameters: there is nothing to watch."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.batches = batch_idx + 1

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.05)


def test_an_error_of_ours_is_logged_and_the_fit_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NEURALDBG_STRICT")
    module, (callback, _) = Nothing(), watcher()
    module.automatic_optimization = False
    fit(module, loader(), callback)
    assert module.batches == BATCHES
    assert "leaves this training alone" in caplog.text and "Nothing has no parameters" in caplog.text


def test_each_fit_is_a_session_of_its_own_and_a_copied_callback_watches_nothing() -> None:
    callback, _ = watcher()
    fit(Net(), loader(), callback)
    first = callback.dbg
    assert copy.deepcopy(callback).diagnosis is None
    fit(Net(1e4), loader(), callback)
    assert first is not None and callback.dbg is not first
    assert [str(d.diagnose().verdict) for d in (first, callback.dbg) if d is not None] == ["healthy", "failed"]


def test_on_failure_stop_ends_the_fit() -> None:
    module = Net()
    trainer = fit(module, loader(broken_at=9), watcher(on_failure="stop")[0])
    assert trainer.global_step < BATCHES and module.backwards < BATCHES


class Pair(Net):
    """Two optimizers by hand, one after the other, as in a GAN."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.other = nn.Linear(6, 3)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        for optimizer, part in zip(self.optimizers(), (self.body, self.other), strict=True):
            optimizer.zero_grad()
            self.manual_backward(F.cross_entropy(part(x), y))
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), 0.05) for part in (self.body, self.other)]


def test_optimizers_stepped_by_hand_make_one_step_together() -> None:
    callback, _ = watcher()
    trainer = fit(Pair(), loader(), callback)
    assert trainer.global_step == 2 * BATCHES
    assert callback.diagnosis is not None and callback.diagnosis.steps == BATCHES


def test_a_fit_that_was_not_healthy_is_told_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    fit(Net(), loader(), NeuralDbgCallback(sinks=[]))
    assert "NaN" not in capsys.readouterr().out
    fit(Net(), loader(broken_at=9), NeuralDbgCallback(sinks=[]))
    assert "FAILED: NaN values detected" in capsys.readouterr().out


def test_steps_go_on_as_the_loggers_do_where_a_fit_is_resumed(tmp_path: Any) -> None:
    trainer = fit(Net(), loader(), watcher()[0])
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    callback, memory = watcher()
    again = {"max_epochs": 2, "enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = lightning.Trainer(accelerator="cpu", callbacks=[callback], enable_checkpointing=False, **again)
    trainer.fit(Net(), loader(broken_at=9), ckpt_path=tmp_path / "last.ckpt")
    assert [step for step, _ in memory.series["rate"]] == list(range(BATCHES, 2 * BATCHES))
    assert callback.diagnosis is not None and callback.diagnosis.top is not None
    assert (callback.diagnosis.top.cause, callback.diagnosis.top.step) == ("nan_in_input", BATCHES + 9)


def test_an_interrupt_leaves_the_diagnosis() -> None:
    class Impatient(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 7:
                raise KeyboardInterrupt
            return super().training_step(batch, batch_idx)

    callback, memory = watcher()
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            fit(Impatient(), loader(), callback)
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning leaves interrupts off
    assert callback.diagnosis is memory.diagnosis and memory.diagnosis.steps == 7
    assert memory.diagnosis.facts.exception == "KeyboardInterrupt"
