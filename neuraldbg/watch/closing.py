"""The end of a step: what was measured becomes a record, by one transfer from the device."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from neuraldbg.record import StepRecord
from neuraldbg.watch import inputs, losses
from neuraldbg.watch.assemble import Transfer, build_facts, first_bad, group_gradients, with_culprit
from neuraldbg.watch.parameters import Watched

if TYPE_CHECKING:
    from neuraldbg.watch.session import Session

MAPPED_STEPS = 2  # sampled steps whose graph is walked: GAN and actor-critic steps show all paths by then
LIGHT_STEPS = 64  # steps whose sentinels wait on the device before they are read all the same
BAND = 10.0  # times its running mean: batch noise moves a gradient norm by 2 to 3
NEWEST = 0.1  # weight of the newest norm in the running mean
FACTS_AT, FACTS_EVERY = 4, 50  # steps whose facts are told at once, and how often after: it goes through all modules


def light(session: Session) -> None:
    """A step of which only the sentinels were taken: they wait on their device."""
    loss = session.loss if session.loss is not None else session.root_loss
    record = StepRecord(
        step=session.clock.step,
        sampled=False,
        rates=rates(session),
        skipped=session.skipped,
        stepped=session.clock.stepped,
        backwards=session.clock.backwards,
        samples=samples(session),
        validation=validation(session),
        culprit=session.replay.step_ends(loss),
    )
    session.light.append((record, loss, session.quick, 1.0 if session.scale is None else session.scale))
    if len(session.light) >= LIGHT_STEPS:
        flush(session)


def started_alike(session: Session) -> tuple[str, ...]:
    """Told once, with the first sampled step."""
    if session.sampled_count > 1:
        return ()
    return tuple(session.names.parameter(i) for i in session.parameters.started_alike())


def samples(session: Session) -> tuple[int, ...] | None:
    return None if session.samples is None else tuple(session.samples)


def validation(session: Session) -> float | None:
    """The validation loss that waits, once. One that lies on a device waits for a sampled step's transfer."""
    value = session.validation
    if value is None or isinstance(value, Tensor):
        return None
    session.validation = None
    return value


def last_validation(session: Session) -> None:
    """One that was recorded behind the last step belongs to that step."""
    if session.validation is not None and session.clock.empty and session.count:
        session.validation = float(session.validation)
        step = max(0, session.clock.step - 1)
        session.hand_on(StepRecord(step=step, sampled=False, stepped=False, validation=validation(session)))


def rates(session: Session) -> tuple[float, ...]:
    """The learning rates that this step used; where no optimizer stepped, those of now."""
    return session.parameters.rates(session.rates)


def flush(session: Session) -> None:
    """Read the sentinels that wait on the device, all in one transfer."""
    light, session.light = session.light, []
    transfer = Transfer()
    for k, (_, *values) in enumerate(light):
        for name, value in zip("lns", values, strict=True):
            transfer.add(f"{name}{k}", [value] if isinstance(value, Tensor) else [])
    got = transfer.read() if transfer.flat else {}
    for k, (record, *values) in enumerate(light):
        loss, norm, scale = (
            got[f"{name}{k}"][0] if isinstance(value, Tensor) else value
            for name, value in zip("lns", values, strict=True)
        )
        norm = None if norm is None else norm / (scale or 1.0)
        bad = norm is not None and not math.isfinite(norm) and not record.skipped
        watch_band(session, norm)
        loss = None if loss is None else float(loss)
        place = ("gradient", None) if bad else ("loss", None) if loss is not None and not math.isfinite(loss) else None
        first = with_culprit(place, record.culprit)
        session.replay.say_unknown(record.step, first)
        session.hand_on(replace(record, loss=loss, gradient_norm=norm, first_bad=first))


def watch_band(session: Session, norm: float | None) -> None:
    """The gradient norm leaves its band: look closely at the next steps."""
    if norm is None:
        return
    if session.band is not None and not norm < BAND * session.band:
        session.governor.alert(session.count)
    if math.isfinite(norm):
        session.band = norm if session.band is None else (1 - NEWEST) * session.band + NEWEST * norm


def sampled(session: Session) -> None:
    """A step of which everything was taken: one transfer, one record."""
    flush(session)
    if session.mapped >= MAPPED_STEPS:
        session.forward.mapping = False
    elif session.clock.backwards:
        session.mapped += 1
    transfer = Transfer()
    dead, rows = session.forward.to_transfer()
    transfer.add("rows", rows)
    indices, weights = session.parameters.measure(session.count)
    transfer.add("weights", weights)
    grads = [(i, n) for i, w in enumerate(session.parameters.items) if (n := _grad_of(w)) is not None]
    transfer.add("grads", [n for _, n in grads])
    taken = [(i, n) for i, w in enumerate(session.parameters.items) if (n := w.used_norm) is not None]
    transfer.add("used", [n for _, n in taken])
    cosine = session.parameters.cosine() if session.clock.backwards else None
    transfer.add("cosine", [cosine] if cosine is not None else [])
    batch = list(session.batch.values())
    for m in batch:
        transfer.add(m.name + "#", [m.values])
    transfer.add("loss", [session.found.values] if session.found is not None else [])
    transfer.add("scale", [session.scale] if isinstance(session.scale, Tensor) else [])
    value = session.loss if session.loss is not None else session.root_loss
    transfer.add("told", [value] if isinstance(value, Tensor) else [])
    other = session.validation
    transfer.add("validation", [other] if isinstance(other, Tensor) else [])
    got = transfer.read()

    scale = got["scale"][0] if got["scale"] else 1.0
    told = got["told"][0] if got["told"] else value
    session.validation = got["validation"][0] if got["validation"] else other
    half = len(weights) // 2
    used = dict(zip((i for i, _ in taken), got["used"], strict=True))
    gradients = {i: n / scale for (i, _), n in zip(grads, got["grads"], strict=True)}
    layers = session.forward.read(dead, got["rows"])
    given = tuple(inputs.read(m, got[m.name + "#"]) for m in batch)
    parameters = {
        i: session.parameters.stats(i, w, u, gradients.get(i), used.get(i))
        for i, w, u in zip(indices, got["weights"][:half], got["weights"][half:], strict=True)
    }
    session.sampled_count += 1
    window = session.forward.window
    session.forward.end(given[0].rows if given else None)
    session.names.fix(session)
    norm = math.sqrt(sum(n * n for n in gradients.values())) if gradients else None
    watch_band(session, norm)
    culprit = session.replay.step_ends(told)
    bad = with_culprit(first_bad(session, given, layers, told, gradients, parameters), culprit)
    session.replay.say_unknown(session.clock.step, bad)
    session.weights_bad = any(not p.weight_finite for p in parameters.values())
    if session.count < FACTS_AT or session.count % FACTS_EVERY == 0:
        session.facts = build_facts(session)
    session.hand_on(
        StepRecord(
            step=session.clock.step,
            loss=None if told is None else float(told),
            gradient_norm=norm,
            rates=rates(session),
            inputs=given,
            layers={session.names.module(i): s for i, s in layers.items()},
            parameters={session.names.parameter(i): s for i, s in parameters.items()},
            loss_stats=losses.read(session.found, got["loss"]) if session.found is not None else None,
            first_bad=bad,
            skipped=session.skipped,
            stepped=session.clock.stepped,
            backwards=session.clock.backwards,
            group_gradients=group_gradients(session, gradients),
            cosine=next(filter(math.isfinite, got["cosine"]), None),
            window=window,
            culprit=culprit,
            alike=started_alike(session),
            loss_scale=scale if isinstance(session.scale, Tensor) else None,
            samples=samples(session),
            divided=session.divided,
            validation=validation(session),
        )
    )


def _grad_of(w: Watched) -> Tensor | None:
    return w.consumed_norm if w.consumed_norm is not None else w.grad_norm
