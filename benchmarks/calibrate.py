#!/usr/bin/env python3
"""Fits the confidences on labelled trainings and writes `neuraldbg/reasoning/calibration.json`.

    python benchmarks/calibrate.py CASES                 the cases of a folder, seed 0
    python benchmarks/calibrate.py CASES --seeds 0 1 2   more seeds
    python benchmarks/calibrate.py CASES --check         leave whole cases out and print the Brier scores, write nothing

A case is a file with LABEL (failure, cause) and build(seed) -> (model, train), where train(record_loss) is a plain
PyTorch loop. Each runs in a process of its own, with label and proof taken out. Every hypothesis gives one sample:
its score, and whether its cause is the label's. One curve is fitted for all causes, and an offset for each cause that
shrinks to nothing where there are few samples: most causes have one case, and a fit of their own would be vain.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import json
import math
import os
import subprocess
import sys
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

OUT = Path(__file__).parents[1] / "neuraldbg" / "reasoning" / "calibration.json"
RULES = OUT.parents[1] / "rules"
HIDDEN = {"LABEL", "PAPER", "truth"}
SAME = {"warmup_missing": {"learning_rate_too_high"}}  # a label's other right answers

PRIOR = (1.0, -1.5)  # of the common curve; the fit leaves it only for evidence
CURVE_WIDTH = 1.0  # standard deviation of that prior
OFFSET_WIDTH = 0.5  # of a cause's own offset: ten samples move it, one hardly does
FLATTEST = 0.2  # a higher score is never less sure


class Sample(NamedTuple):
    case: str
    cause: str
    score: float
    right: bool


def stripped(source: str) -> ast.Module:
    """The case without what gives it away."""
    tree = ast.parse(source)
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    tree.body = [node for node in body if not _gives_away(node)]
    return tree


def _gives_away(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in HIDDEN
    return isinstance(node, ast.Assign) and any(getattr(t, "id", None) in HIDDEN for t in node.targets)


def label_of(source: str) -> str | None:
    """The cause of a failing case, None of a healthy one."""
    names: dict[str, object] = {"range": range, "dict": dict, "list": list}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                names[node.targets[0].id] = eval(compile(ast.Expression(node.value), "label", "eval"), dict(names))
            except Exception:  # a constant that needs the case's own code is none that the label needs
                continue
    label = names["LABEL"]
    assert isinstance(label, dict)
    cause = label["cause"]
    return None if cause is None else str(cause)


def child(seed: int) -> None:
    """Train the case that comes on standard input and print its hypotheses as JSON."""
    import warnings

    import torch

    from neuraldbg import NeuralDbg

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    module = types.ModuleType("training")
    sys.modules["training"] = module
    exec(compile(stripped(sys.stdin.read()), "training.py", "exec"), module.__dict__)
    model, train = module.build(seed)
    with NeuralDbg(model) as dbg:
        train(dbg.record_loss)
    found = dbg.diagnose().hypotheses
    print("\n" + json.dumps([{"cause": h.cause, "score": h.metadata["score"]} for h in found]))


def samples_of(path: Path, seed: int, limit: float) -> list[Sample]:
    source = path.read_text()
    done = subprocess.run(
        [sys.executable, __file__, "--child", str(seed)],
        input=source,
        capture_output=True,
        text=True,
        timeout=limit,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise SystemExit(f"{path.name}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    cause = label_of(source)
    right = set() if cause is None else {cause} | SAME.get(cause, set())
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return [Sample(path.stem, h["cause"], float(h["score"]), h["cause"] in right) for h in found]


def fit(samples: Sequence[Sample]) -> tuple[float, float, dict[str, float]]:
    """(a, b, offset by cause) of the most probable curve: logistic regression with the priors above."""
    causes = sorted({s.cause for s in samples})
    if not samples:
        return (*PRIOR, {})
    x = np.zeros((len(samples), 2 + len(causes)))
    for row, s in zip(x, samples, strict=True):
        row[0], row[1], row[2 + causes.index(s.cause)] = s.score, 1.0, 1.0
    y = np.array([float(s.right) for s in samples])
    prior = np.array([*PRIOR, *[0.0] * len(causes)])
    weight = np.array([*[CURVE_WIDTH**-2] * 2, *[OFFSET_WIDTH**-2] * len(causes)])
    at = newton(x, y, prior, weight)
    if at[0] < FLATTEST:  # hold the slope there and fit the rest
        prior[0], weight[0] = FLATTEST, 1e9
        at = newton(x, y, prior, weight)
    return float(at[0]), float(at[1]), dict(zip(causes, (float(v) for v in at[2:]), strict=True))


def newton(x: Array, y: Array, prior: Array, weight: Array) -> Array:
    """The minimum of the logistic loss plus the prior's square; steps are halved until the sum falls."""

    def loss(at: Array) -> float:
        z = x @ at
        return float(np.sum(np.logaddexp(0.0, z) - y * z) + 0.5 * np.sum(weight * (at - prior) ** 2))

    at, now = prior.copy(), loss(prior)
    for _ in range(100):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ at, -30, 30)))
        gradient = x.T @ (p - y) + weight * (at - prior)
        step = np.linalg.solve((x.T * (p * (1 - p))) @ x + np.diag(weight), gradient)
        while np.abs(step).max() > 1e-9 and loss(at - step) > now:
            step = step / 2
        if np.abs(step).max() <= 1e-9:
            break
        at = at - step
        now = loss(at)
    return at


def confidence(fitted: tuple[float, float, dict[str, float]], sample: Sample) -> float:
    a, b, offsets = fitted
    return 1.0 / (1.0 + math.exp(-(a * sample.score + b + offsets.get(sample.cause, 0.0))))


def left_out(samples: Sequence[Sample]) -> tuple[float, float]:
    """Brier score (with whole cases left out, in the fit)."""
    whole = fit(samples)
    inside = [(confidence(whole, s) - s.right) ** 2 for s in samples]
    outside = []
    for case in sorted({s.case for s in samples}):
        rest = fit([s for s in samples if s.case != case])
        outside += [(confidence(rest, s) - s.right) ** 2 for s in samples if s.case == case]
    return sum(outside) / len(outside), sum(inside) / len(inside)


def as_data(samples: Sequence[Sample], runs: int, known: Iterable[str]) -> dict[str, object]:
    """What calibration.json holds."""
    a, b, offsets = fit(samples)
    cases = len({s.case for s in samples})
    return {
        "source": f"fitted by benchmarks/calibrate.py on {len(samples)} hypotheses of {runs} runs, {cases} cases",
        "fallback": {"a": round(a, 4), "b": round(b, 4)},
        "causes": {c: {"a": round(a, 4), "b": round(b + offsets.get(c, 0.0), 4)} for c in sorted(known)},
    }


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120, help="seconds for one training")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--check", action="store_true", help="only print how good the fit is")
    args = parser.parse_args()
    paths = sorted(p for folder in args.folder for p in folder.glob("*.py") if "\nLABEL = " in p.read_text())
    if not paths:
        raise SystemExit(f"no labelled case (a file with LABEL) in: {', '.join(map(str, args.folder))}")
    jobs = [(path, seed) for path in paths for seed in args.seeds]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        samples = [s for found in pool.map(lambda job: samples_of(job[0], job[1], args.limit), jobs) for s in found]
    if not samples:
        raise SystemExit("no run gave a hypothesis: there is nothing to fit")
    outside, inside = left_out(samples)
    print(f"{len(samples)} hypotheses, Brier {inside:.3f} in the fit, {outside:.3f} with whole cases left out")
    if args.check:
        return
    known = [p.stem for p in RULES.glob("*.py") if not p.stem.startswith("_")]
    args.out.write_text(json.dumps(as_data(samples, len(jobs), known), indent=1) + "\n")
    print(f"written: {args.out}")


if __name__ == "__main__":
    main()
