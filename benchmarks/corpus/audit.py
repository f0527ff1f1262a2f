"""Decides which candidates are in the corpus, by training them bare: python -m benchmarks.corpus.audit

A fault must hurt: against the same program and seed without it, the run ends non-finite, scores worse on held-out
data, ends with a higher loss, jumps far above its first loss, loses units for good, or leaves parameters unmoved
that should move. A healthy variant must reach its program's score with a finite loss.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import corpus
from benchmarks.corpus.plan import Plan

WORSE = 0.85  # of the twin's score above chance
HIGHER = 1.3  # times the twin's last loss, and
LOST = 0.25  # of the way that the twin's loss came down
JUMP = 3.0  # times the first loss, at some later time
DEAD = 0.4  # more of a layer's units silent than in the twin

OTHER = 20.0  # times the twin's first loss: another loss, or another scale, says nothing

HEALTHY_SEEDS = {"fit": (10,), "check": (10,), "test": (10, 11)}
PAIRS = (
    ("misses", "relabelled"),
    ("keep_gradients", "nan_input"),
    ("dead_bias", "shift"),
    ("rate_low", "zeroed"),
    ("misses", "inf_input"),
)


@dataclass(frozen=True)
class Outcome:
    """What a bare run came to."""

    losses: tuple[float, ...]
    score: float
    dead: float
    unmoved: int
    finite: bool
    seconds: float

    @property
    def first(self) -> float:
        return sum(self.losses[:5]) / 5

    @property
    def last(self) -> float:
        tail = self.losses[-max(5, len(self.losses) // 10) :]
        return sum(tail) / len(tail)


def _silent(plan: Plan) -> float:
    """The largest share of a rectified layer's units that are zero for all held-out rows."""
    shares: list[float] = [0.0]

    def look(module: nn.Module, given: Any, out: Tensor) -> None:
        flat = out.detach().transpose(1, -1).reshape(-1, out.shape[1]) if out.dim() > 2 else out.detach()
        shares.append((flat == 0).all(0).float().mean().item())

    relus = [m for top in plan.models.values() for m in top.modules() if isinstance(m, nn.ReLU)]
    handles = [m.register_forward_hook(look) for m in relus]
    plan.score(plan)
    for handle in handles:
        handle.remove()
    return max(shares)


def measure(plan: Plan) -> Outcome:
    """Train it, bare, and look at what became of it."""
    start = time.perf_counter()
    before = [p.detach().clone() for p in plan.parameters()]
    trainable = [p.requires_grad for p in plan.parameters()]
    losses: list[float] = []
    plan.train(losses.append)
    took = time.perf_counter() - start
    same = [a.shape == b.shape and torch.equal(a, b) for a, b in zip(before, plan.parameters(), strict=False)]
    unmoved = sum(1 for s, t in zip(same, trainable, strict=True) if s and t)
    weights = all(bool(torch.isfinite(p).all()) for p in plan.parameters())
    finite = weights and all(math.isfinite(v) for v in losses)
    score = plan.score(plan)
    return Outcome(tuple(losses), score, _silent(plan) if finite else 0.0, unmoved, finite, took)


@functools.lru_cache(maxsize=64)
def twin(program: str, seed: int) -> Outcome:
    """The program without a fault."""
    return measure(corpus.plan_of(program, None, 0, seed)[0])


def harm(plan: Plan, bad: Outcome, good: Outcome) -> list[str]:
    """In which ways a run suffers against its twin."""
    found = [] if bad.finite else ["nonfinite"]
    if not math.isfinite(bad.score) or bad.score - plan.chance < WORSE * (good.score - plan.chance):
        found.append("score")
    if bad.finite:
        lift = max((HIGHER - 1) * abs(good.last), LOST * abs(good.first - good.last))
        same_loss = abs(bad.first) < OTHER * abs(good.first)
        if same_loss and bad.last > good.last + lift:
            found.append("loss")
        if max(bad.losses[5:]) > JUMP * max(abs(bad.first), 1e-6) and max(good.losses[5:]) < good.first * JUMP:
            found.append("jump")
        if bad.dead > good.dead + DEAD:
            found.append("dead")
    if bad.unmoved > good.unmoved:
        found.append("unmoved")
    return found


def audit(candidate: tuple[str, str | None, int, int, str]) -> dict[str, Any]:
    """One row: the candidate, its label, and why it is in or out."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    program, fault, strength, seed, variant = candidate
    row: dict[str, Any] = {
        "program": program, "fault": fault, "strength": strength, "seed": seed, "variant": variant
    }  # fmt: skip
    try:
        plan, label = corpus.plan_of(program, fault, strength, seed, variant)
        outcome = measure(plan)
    except Exception as error:
        return {**row, "in": False, "why": [f"{type(error).__name__}: {error}"[:200]]}
    row.update(label=asdict(label), score=_rounded(outcome.score), seconds=round(outcome.seconds, 2))
    if fault is None:
        good = outcome.finite and outcome.score >= plan.good
        return {**row, "in": good, "why": [] if good else ["does not learn"]}
    good_twin = twin(program, seed)
    why = harm(plan, outcome, good_twin)
    sound = good_twin.finite and good_twin.score >= plan.good
    return {**row, "in": bool(why) and sound, "why": why if sound else ["the twin does not learn"]}


def _rounded(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


def candidates(programs: Sequence[str]) -> list[tuple[str, str | None, int, int, str]]:
    """(program, fault or None, strength, seed, variant) of all that switches can make of these programs."""
    out: list[tuple[str, str | None, int, int, str]] = []
    for name in programs:
        program = corpus.PROGRAMS[name]
        for switch in corpus.fitting(program, True):  # another seed for each strength
            out += [(name, switch.name, level, level, "plain") for level in range(switch.levels)]
        for a, b in PAIRS:
            if corpus.FAULTS[a].fits(program) and corpus.FAULTS[b].fits(program):
                out.append((name, f"{a}+{b}", 0, 0, "plain"))
        for seed in HEALTHY_SEEDS[program.split]:
            for switch in corpus.fitting(program, False):
                out += [(name, None, level, seed, switch.name) for level in range(switch.levels)]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--programs", nargs="+", default=sorted(corpus.PROGRAMS), choices=sorted(corpus.PROGRAMS))
    parser.add_argument("--only", default=[""], nargs="+", help="only faults and variants whose name has one of these")
    parser.add_argument("--why", nargs="+", help="only runs that are in for exactly these reasons so far")
    parser.add_argument("--dry", action="store_true", help="print what is left out and why, write nothing")
    args = parser.parse_args()
    chosen = [c for c in candidates(args.programs) if any(part in (c[1] or c[4]) for part in args.only)]
    if args.why:
        old = json.loads(corpus.ACCEPTED.read_text())["runs"]
        names = ("program", "fault", "strength", "seed", "variant")
        chosen = sorted(
            {tuple(r[n] for n in names) for r in old if r["why"] == args.why} & set(chosen), key=lambda c: c[0]
        )
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        rows = pool.map(audit, chosen, chunksize=8)
    for row in rows:
        if args.dry or not row["in"]:
            name = f"{row['program']}/{row['fault'] or row['variant']}.{row['strength']}:{row['seed']}"
            print("in " if row["in"] else "out", f"{name:44}", row.get("score"), row.get("seconds"), *row["why"])
    faulty = sum(1 for r in rows if r["in"] and r["fault"])
    print(f"{faulty} faulty and {sum(1 for r in rows if r['in']) - faulty} healthy of {len(rows)} candidates")
    if args.dry:
        return
    done = {(r["program"], r["fault"], r["variant"], r["strength"], r["seed"]) for r in rows}
    kept = _kept(done)
    for r in rows:
        if r.pop("in"):
            kept.append({k: v for k, v in r.items() if k != "seconds"})
    kept.sort(key=lambda r: (r["program"], r["fault"] or "", r["variant"], r["strength"], r["seed"]))
    lines = ",\n".join(json.dumps(r) for r in kept)
    corpus.ACCEPTED.write_text(f'{{"version": {corpus.VERSION}, "runs": [\n{lines}\n]}}\n')


def _kept(done: set[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Rows of the file that were not audited again."""
    if not corpus.ACCEPTED.exists():
        return []
    old = json.loads(corpus.ACCEPTED.read_text())["runs"]
    return [r for r in old if (r["program"], r["fault"], r["variant"], r["strength"], r["seed"]) not in done]


if __name__ == "__main__":
    main()
