"""One adapter a peer: what it is given of a plain loop, and what it says at the end. Each uses the peer's defaults.

A peer that the loop calls before the optimizer steps (`before_step`) or after (`after_step`) is called there. What it
says is a list of `Said`, the most serious first: `serious` as the peer itself grades it, the kind of failure and the
cause in our words where its sentence names one. Its packages are imported here only, from a folder of its own.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Said:
    """One finding of a peer. failure and cause: in our words, "" where it names none."""

    text: str
    serious: bool
    failure: str = ""
    cause: str = ""


@dataclass
class Peer:
    """Does nothing and says nothing: what an adapter starts from. model: all models of the training as one."""

    model: nn.Module
    folder: Path
    found: list[Said] = field(default_factory=list)

    def start(self, optimizer: Optimizer) -> None:
        """The first optimizer that exists, or that steps."""

    def before_step(self, step: int, loss: Tensor | None, optimizer: Optimizer) -> None:
        """Gradients are there, the optimizer has not used them."""

    def after_step(self, step: int, loss: float) -> None:
        """The step is over."""

    def end(self) -> list[Said]:
        return sorted(self.found, key=lambda s: not s.serious)


class Torchmortem(Peer):
    """`Autopsy`: WARNING and CRITICAL findings; the latter are its serious ones."""

    FAILURES: Mapping[str, str] = {
        "Vanishing": "vanishing_gradients",
        "Gradient stalling": "vanishing_gradients",
        "Exploding": "exploding_gradients",
        "Dead units": "dead_neurons",
        "Activation saturation": "saturated_activations",
        "Training divergence": "optimizer_instability",
        "Loss plateau": "optimizer_instability",
        "Catapult": "optimizer_instability",
        "Update ratio": "optimizer_instability",
        "Weight norm explosion": "optimizer_instability",
    }
    CAUSES: Mapping[str, str] = {
        "Training divergence": "learning_rate_too_high",
        "Update ratio too high": "learning_rate_too_high",
        "Update ratio too low": "learning_rate_too_low",
    }

    def start(self, optimizer: Optimizer) -> None:
        self.autopsy = importlib.import_module("torchmortem").Autopsy(self.model, optimizer=optimizer)
        self.autopsy.attach()

    def after_step(self, step: int, loss: float) -> None:
        self.autopsy.step(loss=loss)

    def end(self) -> list[Said]:
        self.autopsy.detach()
        report = self.autopsy.get_report()
        self.found = [
            Said(f.title, int(f.severity) >= 2, _first(f.title, self.FAILURES), _first(f.title, self.CAUSES))
            for f in report.findings
            if int(f.severity) >= 1
        ]
        return super().end()


class Ormas(Peer):
    """`Monitor`: events of severity warning and critical; the latter are its serious ones."""

    FAILURES: Mapping[str, str] = {
        "nonfinite_loss": "optimizer_instability",
        "nonfinite_gradients": "exploding_gradients",
        "loss_spike": "optimizer_instability",
        "dead": "dead_neurons",
        "no_gradients": "vanishing_gradients",
        "vanish": "vanishing_gradients",
        "explod": "exploding_gradients",
    }

    def start(self, optimizer: Optimizer) -> None:
        module = importlib.import_module("ormas_monitor")
        self.optimizer = optimizer
        self.monitor = module.Monitor(
            self.model, optimizer, out=self.folder / "ormas", verbose=False, sinks=[self._heard]
        )

    def _heard(self, kind: str, payload: Mapping[str, Any]) -> None:
        if kind == "event" and payload.get("severity") in ("warning", "critical"):
            name = f"{payload.get('event')} {payload.get('kind', '')}".strip()
            self.found.append(Said(name, payload["severity"] == "critical", _first(name, self.FAILURES)))

    def before_step(self, step: int, loss: Tensor | None, optimizer: Optimizer) -> None:
        if optimizer is self.optimizer:
            self.monitor.step(loss)

    def end(self) -> list[Said]:
        self.monitor.close(report=False)
        return super().end()


class Gradsnitch(Peer):
    """`watch`, logged after backward as its page shows; findings of severity error are its serious ones."""

    FAILURES: Mapping[str, str] = {
        "Loss became NaN/Inf": "optimizer_instability",
        "Gradient norm exploded": "exploding_gradients",
        "Gradient-norm spike": "exploding_gradients",
        "Loss plateau": "optimizer_instability",
        "Loss divergence": "optimizer_instability",
        "Vanishing": "vanishing_gradients",
        "LR ": "optimizer_instability",
        "Loss oscillation": "optimizer_instability",
    }
    CAUSES: Mapping[str, str] = {
        "Loss divergence": "learning_rate_too_high",
        "Loss oscillation": "learning_rate_too_high",
        "LR too high": "learning_rate_too_high",
        "LR too low": "learning_rate_too_low",
        "Loss plateau": "learning_rate_too_low",
        "LR schedule": "schedule_jump",
    }

    def start(self, optimizer: Optimizer) -> None:
        self.module = importlib.import_module("gradsnitch")
        self.optimizer = optimizer
        self.monitor = self.module.watch(self.model, optimizer)

    def before_step(self, step: int, loss: Tensor | None, optimizer: Optimizer) -> None:
        if optimizer is self.optimizer and loss is not None:
            self.monitor.log(step, float(loss.detach()))

    def end(self) -> list[Said]:
        found = self.module.lint(self.monitor.df()) if self.monitor.rows else []
        self.found = [
            Said(f.name, f.severity == "error", _first(f.name, self.FAILURES), _first(f.name, self.CAUSES))
            for f in found
        ]
        return super().end()


class Traintools(Peer):
    """`GradientHealthMonitor` and `BatchInspector` (the model's inputs), which know one severity."""

    FAILURES: Mapping[str, str] = {
        "non-finite gradients": "exploding_gradients",
        "vanished": "vanishing_gradients",
        "very large": "exploding_gradients",
        "exceeds clipping": "exploding_gradients",
        "ratio": "optimizer_instability",
        "non-finite values": "data_anomaly",
        "abs max": "data_anomaly",
        "nearly constant": "data_anomaly",
    }
    CAUSES: Mapping[str, str] = {
        "ratio is high": "learning_rate_too_high",
        "ratio is tiny": "learning_rate_too_low",
        "abs max": "unnormalised_inputs",
        "nearly constant": "zeroed_inputs",
    }

    def start(self, optimizer: Optimizer) -> None:
        module = importlib.import_module("traintools")
        self.health, self.batches = module.GradientHealthMonitor(), module.BatchInspector()
        self.taken: tuple[Any, ...] = ()
        for top in self.model.children() if isinstance(self.model, nn.ModuleDict) else [self.model]:
            top.register_forward_pre_hook(self._enter)

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.taken = args

    def before_step(self, step: int, loss: Tensor | None, optimizer: Optimizer) -> None:
        warned = list(self.health.inspect(self.model, step=step, lr=optimizer.param_groups[0]["lr"]).warnings)
        floats = [x for x in self.taken if isinstance(x, Tensor) and x.is_floating_point()]
        warned += self.batches.inspect(floats, step=step).warnings if floats else []
        if "inf" in str(warned) and any("nan=" in w for w in warned):
            warned.sort(key=lambda w: "inputs" not in w)
        self.found += [Said(w, True, _first(w, self.FAILURES), _first(w, self.CAUSES)) for w in warned]


class StabilityGuard(Peer):
    """The detecting half of `GuardedOptimizer`: its hooks and spike detector. What it does to a step is left out."""

    def start(self, optimizer: Optimizer) -> None:
        self.hooks = importlib.import_module("stabilityguard.core.hooks").GradientHookManager()
        self.detector = importlib.import_module("stabilityguard.core.spike_detector").SpikeDetector()
        self.hooks.attach(self.model)
        self.optimizer = optimizer

    def before_step(self, step: int, loss: Tensor | None, optimizer: Optimizer) -> None:
        if optimizer is not self.optimizer:
            return
        norms, broken = self.hooks.collect()
        for name, p in self.model.named_parameters():
            if p.grad is not None:
                norm = float(p.grad.float().norm())
                norms.setdefault(name, norm)
                if not math.isfinite(norm):
                    broken.add(name)
        spiked, _, _ = self.detector.check(norms, broken)
        if spiked:
            self.found.append(Said("gradient spike", True, "exploding_gradients"))

    def end(self) -> list[Said]:
        self.hooks.detach()
        return super().end()


class Anomaly(Peer):
    """`torch.autograd.set_detect_anomaly`: what it raises ends the training, and is what it says."""

    def start(self, optimizer: Optimizer) -> None:
        torch.autograd.set_detect_anomaly(True)

    def end(self) -> list[Said]:
        torch.autograd.set_detect_anomaly(False)
        return super().end()


class Thresholds(Peer):
    """A plain-threshold baseline: any gradient norm outside [1e-6, 1e3] in a layer, any loss that is not finite."""

    LOW, HIGH = 1e-6, 1e3  # the first NeuralDBG's

    def before_step(self, step: int, loss: Tensor | None, optimizer: Optimizer) -> None:
        norms = [float(p.grad.norm()) for p in self.model.parameters() if p.grad is not None and p.dim() > 1]
        if norms and not max(norms) <= self.HIGH:
            self.found.append(Said("a gradient above 1e3", True, "exploding_gradients"))
        if norms and min(norms) < self.LOW:
            self.found.append(Said("a gradient below 1e-6", True, "vanishing_gradients"))

    def after_step(self, step: int, loss: float) -> None:
        if not math.isfinite(loss):
            self.found.append(Said("a loss that is not finite", True, "optimizer_instability"))


def _first(text: str, names: Mapping[str, str]) -> str:
    return next((said for part, said in names.items() if part in text), "")


@dataclass(frozen=True)
class Entry:
    """How a peer is had: its adapter, what to install beside it, and what it cannot be compared in."""

    adapter: Callable[[nn.Module, Path], Peer]
    packages: Sequence[str] = ()
    note: str = ""


NAMELESS = "names no cause"
PEERS: Mapping[str, Entry] = {
    "torchmortem": Entry(Torchmortem, ("torchmortem", "plotly", "narwhals"), "causes: a rate too high or too low"),
    "ormas-monitor": Entry(Ormas, ("ormas-monitor",), NAMELESS),
    "gradsnitch": Entry(Gradsnitch, ("gradsnitch",), "causes: a rate too high or too low, a schedule"),
    "traintools": Entry(
        Traintools, ("traintools",), "causes: a rate too high or too low, scale and constancy of inputs"
    ),
    "stabilityguard": Entry(
        StabilityGuard, ("stabilityguard",), f"{NAMELESS}; its guard also skips steps, left out here"
    ),
    "autograd's anomaly mode": Entry(Anomaly, (), f"{NAMELESS}; an operator instead"),
    "plain thresholds": Entry(Thresholds, (), NAMELESS),
}
