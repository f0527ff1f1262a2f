"""What the watcher hands over: one step in plain numbers, and the facts about the run that it knows.

Everything here is a frozen value of plain Python numbers, text and tuples; no tensor passes this border.
`lg` in a name means log10. A number that could not be measured is None, never 0 or NaN standing in for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

REPLAY_OFF = "it was switched off (replay=False)"  # in a note of the coverage: what a remedy may advise to turn on


@dataclass(frozen=True, slots=True)
class LayerStats:
    """One module's output over one sampled step (several calls: the worst of each number).

    rms, low, high: of all elements (not finite where the output is not).
    mean: of all elements.
    spread: mean over units of the standard deviation over the samples, divided by rms; None without samples.
    dead: share of units that were zero or below on every sample of the last window (rectifiers only);
    never: share of units not active on any sample so far; both None before a window is full.
    saturated: share of outputs at the limits of a bounded function; derivative: mean of f' / max f'.
    entropy: of a softmax's rows, over the log of the visible keys.
    inputs_high, inputs_rms: largest absolute value and rms of the input to its first call.
    offset: mean over units of abs(mean over samples) / std over samples.
    finite, inputs_finite: of the output, of the inputs to this call.
    nan_share, inf_share: of the output's elements where it is not finite. training: the module was in training mode.
    """

    rms: float
    low: float
    high: float
    mean: float
    spread: float | None = None
    dead: float | None = None
    never: float | None = None
    saturated: float | None = None
    derivative: float | None = None
    entropy: float | None = None
    offset: float | None = None
    finite: bool = True
    inputs_finite: bool = True
    inputs_high: float | None = None
    inputs_rms: float | None = None
    nan_share: float = 0.0
    inf_share: float = 0.0
    training: bool = True


@dataclass(frozen=True, slots=True)
class InputStats:
    """One floating-point tensor that entered the model at one step.

    means, stds, rms: per feature (last dimension, or channels for images), at most 256 of them.
    far: largest absolute value; far_value: with its sign; far_repeats: how many elements equal it.
    fingerprint: a number that equal batches share; rows: number of samples. zeros: every element is zero.
    nans, infs: how many elements; bad_features, bad_rows: indices of the features and samples that hold them.
    """

    name: str
    rows: int
    means: tuple[float, ...]
    stds: tuple[float, ...]
    rms: tuple[float, ...]
    far: float
    far_value: float
    far_repeats: int
    fingerprint: float
    zeros: bool = False
    nans: int = 0
    infs: int = 0
    bad_features: tuple[int, ...] = ()
    bad_rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ParameterStats:
    """One parameter at one step.

    gradient: RMS of the gradient at the end of backward, before clipping, unscaled; None: no gradient.
    weight: RMS of the values after the step. update: rms(w_t - w_(t-1)) / rms(w_t), None before the second step.
    moved: whether any watched element changed. carried: its gradient contains one that was consumed before.
    writes: how often its gradient was written to after backward, before its optimizer took it (clipping, unscaling).
    used: RMS of the gradient as it was taken, for all of an optimizer whose gradients were not all written to alike.
    """

    gradient: float | None = None
    weight: float | None = None
    update: float | None = None
    moved: bool | None = None
    carried: bool = False
    weight_finite: bool = True
    used: float | None = None
    writes: int = 0


@dataclass(frozen=True, slots=True)
class LossStats:
    """The loss of one step as its own operator saw it, read from the autograd graph.

    value: the operator's loss, without scaling or added terms; chance: what a constant prediction gets;
    target_low, target_high, target_rms: of the saved targets; outlier: largest abs(target - median) / MAD;
    probabilities: the operator expects logits and got rows that already sum to one.
    sign: -1 where backward starts from the negated loss.
    """

    kind: str
    reduction: str | None = None
    value: float | None = None
    chance: float | None = None
    target_low: float | None = None
    target_high: float | None = None
    target_rms: float | None = None
    outlier: float | None = None
    probabilities: bool = False
    sign: int = 1
    output_low: float | None = None
    output_high: float | None = None


@dataclass(frozen=True, slots=True)
class Culprit:
    """The operator that made the first non-finite value, as the replay of the step found it.

    module: the watched module it ran in (None: outside the models). file: base name; with line, where the user's code
    calls it (for an operator of the loss: where backward starts). phase: input (the batch itself was bad), forward,
    loss or backward. detail: why, where its arguments tell: zero_divisor, empty, zero_argument, outside_domain,
    masked_row, overflow or ""; of an input, nan or inf.
    """

    module: str | None
    operator: str | None
    file: str | None = None
    line: int | None = None
    phase: str = "forward"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of the training. `sampled` is False where only the cheap sentinels were read.

    loss: what the user recorded, else what backward started from (raw, unscaled); None if neither was seen.
    gradient_norm: global (2-norm), before clipping, unscaled. rates: learning rate of each optimizer group.
    layers, parameters: by name, in forward and in model order. first_bad: (phase, layer) of the first
    non-finite place: phase is one of input, weight, forward, loss, gradient, weight after.
    skipped: the optimizer step was skipped by a GradScaler. stepped: an optimizer took the step. backwards: backward
    passes in this step. loss_scale: of a GradScaler.
    group_gradients: RMS gradient of each optimizer's parameters when it consumed them.
    window: sampled steps in the window that unit activity is counted over.
    cosine: of this step's fresh gradient with the one before (on a sample of elements).
    culprit: the operator behind first_bad, in the one step that was replayed.
    alike: in the first sampled step, matrices whose units (rows) were equal when the session began; zeros
    only where the whole net of three and more matrices was zero or equal.
    samples: indices into the data set of this step's batch, as a DataLoader's sampler gave them (None: not known).
    divided: a backward pass of this step began from a loss times a constant (a division by the accumulation count).
    validation: the loss on other data that the user recorded since the step before.
    """

    step: int
    sampled: bool = True
    loss: float | None = None
    gradient_norm: float | None = None
    rates: tuple[float, ...] = ()
    inputs: tuple[InputStats, ...] = ()
    layers: Mapping[str, LayerStats] = field(default_factory=dict)
    parameters: Mapping[str, ParameterStats] = field(default_factory=dict)
    loss_stats: LossStats | None = None
    first_bad: tuple[str, str | None] | None = None
    skipped: bool = False
    stepped: bool = True
    backwards: int = 1
    group_gradients: tuple[float | None, ...] = ()
    cosine: float | None = None
    loss_scale: float | None = None
    window: int | None = None
    culprit: Culprit | None = None
    alike: tuple[str, ...] = ()
    samples: tuple[int, ...] | None = None
    divided: bool | None = None
    validation: float | None = None


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """A watched module. `order` is its place in the forward order of the first step (None: never ran).

    activation: relu, leaky, sigmoid, tanh, softmax, glu, other or "" (not an activation). `functional` says that
    the activation is a function called on this module's output (found in the graph), not a module.
    position: input, hidden or output. norm_over: how many values a norm divides over. recurrent: RNN, LSTM, GRU.
    container: its output is its last child's, so that it has no numbers of its own. has_children: it holds modules.
    without_grad: it ran inside a training forward, and only where gradients were off.
    running_rms: what a batch norm's running statistics take its input's rms for; known at the end.
    """

    name: str
    kind: str
    order: int | None = None
    activation: str = ""
    functional: bool = False
    position: str = "hidden"
    parameters: int = 0
    trainable: int = 0
    width: int | None = None
    norm_over: int | None = None
    recurrent: bool = False
    source: str | None = None
    container: bool = False
    has_children: bool = False
    dtype: str = "float32"
    without_grad: bool = False
    running_rms: float | None = None


@dataclass(frozen=True, slots=True)
class ParameterFacts:
    """A parameter: owner is the index of the optimizer that holds it (None: none that was seen).

    rms, mean: of the values before the first update (mean: vectors only).
    """

    name: str
    module: str
    numel: int
    dims: int
    dtype: str
    trainable: bool
    owner: int | None = None
    rms: float | None = None
    mean: float | None = None


@dataclass(frozen=True, slots=True)
class OptimizerFacts:
    """An optimizer that stepped.

    fresh: its own step counter said 1 after the first step (None: it has none). first_rate: when it was met, its rate
    was the one that its schedule begins with (None: no schedule is known).
    """

    kind: str
    rates: tuple[float, ...]
    eps: float | None = None
    weight_decay: float = 0.0
    momentum: float = 0.0
    parameters: int = 0
    fresh: bool | None = None
    first_rate: bool | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was looked at and what was not, in numbers and sentences.

    share: the part of the training's time that watching took. notes: one sentence per blind spot.
    """

    modules: int = 0
    modules_seen: int = 0
    parameters: int = 0
    parameters_seen: int = 0
    steps: int = 0
    steps_sampled: int = 0
    mode: str = "eager"
    share: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of the run besides its events. It grows: each update is a new value.

    structure: residual (blocks add their input), post_norm (norm after the sum), attention, recurrent,
    norm: as far as modules and the graph show it. rank, world: of a distributed training, this process's number
    and how many there are. exception: the type of what the user's code raised; exception_place: forward (of
    exception_layer), backward, optimizer, loop (outside of these), or "": not known.
    """

    models: tuple[str, ...] = ()
    modules: tuple[ModuleFacts, ...] = ()
    parameters: tuple[ParameterFacts, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()
    structure: frozenset[str] = frozenset()
    loss_kind: str | None = None
    loss_reduction: str | None = None
    told_loss: bool = False
    scaler: bool = False
    manual_optimizer: bool = False
    coverage: Coverage = field(default_factory=Coverage)
    exception: str | None = None
    exception_layer: str | None = None
    exception_place: str = ""
    tracked_run: str | None = None
    started: float | None = None
    rank: int | None = None
    world: int | None = None

    def module(self, name: str | None) -> ModuleFacts | None:
        return next((m for m in self.modules if m.name == name), None)

    @property
    def forward_order(self) -> tuple[str, ...]:
        """Names of the leaf modules that ran, first to last."""
        ran = [m for m in self.modules if m.order is not None and not m.container]
        return tuple(m.name for m in sorted(ran, key=lambda m: m.order or 0))
