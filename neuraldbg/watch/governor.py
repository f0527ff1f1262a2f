"""How much to record: everything at first, then what the budget allows. Plain arithmetic over measured seconds."""

from __future__ import annotations

from enum import Enum

from neuraldbg.settings import Settings

ALERT_STEPS = 5  # sampled in a row when a watched value leaves its band
ALERT_PAUSE = 200  # steps between two alerts: a run that swings for ever must not be dense for ever
DEBT_RATE = 0.5  # of the budget is used while the dense steps' debt is paid back with the rest
DEAR = 0.05  # of a step: a level that costs more is felt as a hitch,
RARE = 25  # so it is taken at most every so many steps: 95 of 100 go on without one
LATEST = 0.2  # weight of a level's latest cost beside what it has cost so far: one hitch is not its price


class Level(Enum):
    """What one step records: everything, the loss and the gradient norm, or the loss alone."""

    FULL = "full"
    NORM = "norm"
    LOSS = "loss"


SHARES = {Level.FULL: 0.5, Level.NORM: 0.3}  # of what may be spent; the rest is the hooks' own


class Governor:
    """Keeps the share of time within `overhead_budget`, averaged over the run.

    Dense for the first `dense_steps` or `dense_seconds`; afterwards a full sample or a gradient norm is taken when its
    usual cost has been saved up. A fixed `cadence` takes every k-th step instead and measures nothing.
    """

    def __init__(self, settings: Settings, now: float) -> None:
        self.settings = settings
        self.started = now
        self.dense_end: float | None = None
        self.dense_spent = 0.0
        self.dense_count = 0
        self.cost = {Level.FULL: 0.0, Level.NORM: 0.0, Level.LOSS: 0.0}
        self.paid_since = {Level.FULL: 0.0, Level.NORM: 0.0, Level.LOSS: 0.0}
        self.alert_left = 0
        self.quiet_until = 0

    def decide(self, count: int, now: float, spent: float) -> Level:
        """The level of step number `count`; `spent` is all time that watching has taken so far (seconds)."""
        s = self.settings
        if s.cadence is not None:
            return Level.FULL if count % s.cadence == 0 else Level.NORM
        if self.dense_end is None:
            if count < s.dense_steps and now - self.started < s.dense_seconds:
                return Level.FULL
            self.dense_end, self.dense_spent, self.dense_count = now, spent, count
        if self.alert_left:
            self.alert_left -= 1
            return Level.FULL
        within = spent <= s.overhead_budget * (now - self.started)
        rate = s.overhead_budget * (1.0 if within else DEBT_RATE)
        earned = rate * (now - self.dense_end) - self.paid_since[Level.LOSS]
        usual = (now - self.dense_end) / max(1, count - self.dense_count)
        for level in (Level.FULL, Level.NORM):
            apart = s.sparse_every if level is Level.FULL else 1
            if count % (max(apart, RARE) if self.cost[level] > DEAR * usual else apart):
                continue
            saved = SHARES[level] * earned - self.paid_since[level]
            if saved > 0 and saved >= self.cost[level]:
                return level
        return Level.LOSS

    def paid(self, level: Level, seconds: float) -> None:
        """What a step of this level has cost."""
        usual = self.cost[level]
        self.cost[level] = seconds if usual == 0.0 else (1 - LATEST) * usual + LATEST * seconds
        if self.dense_end is not None:
            self.paid_since[level] += seconds

    def alert(self, count: int) -> None:
        """A watched value left its band: the next steps are sampled in full."""
        if self.dense_end is not None and count >= self.quiet_until:
            self.alert_left, self.quiet_until = ALERT_STEPS, count + ALERT_PAUSE
