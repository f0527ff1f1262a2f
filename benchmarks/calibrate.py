"""Fits the confidences on the corpus's fit split and writes `neuraldbg/reasoning/calibration.json`.

    python -m benchmarks.calibrate                      trains the fit split, about ten minutes on two cores
    python -m benchmarks.calibrate --rows FILE          from what `benchmarks.accuracy --out FILE` has kept
    python -m benchmarks.calibrate --rows FILE --check  only says how good the fit is, and writes nothing

The first hypothesis of every run that is called failed gives one sample: its score, and whether its cause is the
label's (on a healthy run none is). One curve is fitted for all causes, with an offset for each cause that shrinks to
nothing where it has few samples. Of the hypotheses behind the first one, which are right where there was a second
fault, only the share of right ones is taken, as their ceiling. `unknown` keeps the prior: where it is labelled so, an
exact fact says it, and that tells nothing of the runs in which merely no rule speaks. How good that is, is said of base
programs that are left out whole: runs of one program are alike, and a fit that has seen some of them knows the others.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.grading import BINS

Array = NDArray[np.float64]

OUT = Path(__file__).parents[1] / "neuraldbg" / "reasoning" / "calibration.json"

PRIOR = (1.0, -1.5)  # of the common curve; the fit leaves it only for evidence
CURVE_WIDTH = 1.0  # standard deviation of that prior
OFFSET_WIDTH = 0.5  # of a cause's own offset: ten samples move it, one hardly does
UNKNOWN = "unknown"
RULE_OF_THREE = 3.0  # over n: with no error in n runs, the 95 % bound of how often there is one
FLATTEST = 0.2  # a higher score is never less sure


class Sample(NamedTuple):
    """One first hypothesis. program: the base program of its run."""

    program: str
    cause: str
    score: float
    right: bool


def samples_of(rows: Iterable[dict[str, Any]]) -> list[Sample]:
    """Those of the fit split's rows, as `grading.as_json` gives them."""
    found = []
    for row in rows:
        if row["split"] == "fit" and row["verdict"] == "failed" and row["answers"]:
            top = row["answers"][0]
            right = top["cause"] in row["causes"]
            if top["cause"] != UNKNOWN:
                found.append(Sample(row["name"].split("/")[0], top["cause"], float(top["score"]), right))
    return found


def later_of(rows: Iterable[dict[str, Any]]) -> float:
    """The share of right ones among hypotheses behind the first (Laplace's estimate); explained ones do not count."""
    behind = [
        a["cause"] in row["causes"]
        for row in rows
        if row["split"] == "fit" and row["verdict"] == "failed"
        for a in row["answers"][1:]
        if a["score"] > 0
    ]
    return (sum(behind) + 1) / (len(behind) + 2)


def fit(samples: Sequence[Sample]) -> tuple[float, float, dict[str, float]]:
    """(a, b, offset by cause) of the most probable curve: logistic regression with the priors above."""
    causes = sorted({s.cause for s in samples})
    x = np.zeros((len(samples), 2 + len(causes)))
    for row, s in zip(x, samples, strict=True):
        row[0], row[1], row[2 + causes.index(s.cause)] = s.score, 1.0, 1.0
    y = np.array([float(s.right) for s in samples])
    prior = np.array([*PRIOR, *[0.0] * len(causes)])
    weight = np.array([*[CURVE_WIDTH**-2] * 2, *[OFFSET_WIDTH**-2] * len(causes)])

    def loss(at: Array) -> tuple[float, Array]:
        z, away = x @ at, at - prior
        value = float(np.sum(np.logaddexp(0.0, z) - y * z) + 0.5 * np.sum(weight * away**2))
        return value, x.T @ (1.0 / (1.0 + np.exp(-np.clip(z, -30, 30))) - y) + weight * away

    bounds = [(FLATTEST, None), *[(None, None)] * (1 + len(causes))]
    at = minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=bounds).x
    return float(at[0]), float(at[1]), dict(zip(causes, (float(v) for v in at[2:]), strict=True))


def confidence(fitted: tuple[float, float, dict[str, float]], sample: Sample) -> float:
    a, b, offsets = fitted
    return 1.0 / (1.0 + math.exp(-(a * sample.score + b + offsets.get(sample.cause, 0.0))))


def quality(said: Sequence[float], samples: Sequence[Sample]) -> tuple[float, float]:
    """(Brier score, expected calibration error in tenths) of confidences."""
    p, y = np.array(said), np.array([float(s.right) for s in samples])
    place = np.minimum((p * BINS).astype(int), BINS - 1)
    apart = sum(abs(float(np.sum(p[place == k] - y[place == k]))) for k in range(BINS))
    return float(np.mean((p - y) ** 2)), apart / len(samples)


def left_out(samples: Sequence[Sample]) -> tuple[float, float]:
    """`quality` where each program's confidences come from a fit on all the others."""
    said = [0.0] * len(samples)
    for program in {s.program for s in samples}:
        fitted = fit([s for s in samples if s.program != program])
        for k, s in enumerate(samples):
            if s.program == program:
                said[k] = confidence(fitted, s)
    return quality(said, samples)


def as_data(samples: Sequence[Sample], later: float, version: int, known: Iterable[str]) -> dict[str, object]:
    """What calibration.json holds."""
    a, b, offsets = fit(samples)
    programs = len({s.program for s in samples})
    source = f"benchmarks/calibrate.py on {len(samples)} first hypotheses of {programs} programs"
    return {
        "source": f"fitted by {source}, the fit split of corpus version {version}",
        "fallback": {"a": round(a, 4), "b": round(b, 4)},
        "later": round(later, 4),
        "surest": round(max(0.5, 1.0 - RULE_OF_THREE / len(samples)), 4),
        "causes": {c: {"a": round(a, 4), "b": round(b + offsets.get(c, 0.0), 4)} for c in sorted(known)}
        | {UNKNOWN: dict(zip("ab", PRIOR, strict=True))},
    }


def rows_of(path: Path | None, processes: int) -> tuple[list[dict[str, Any]], int]:
    """(rows, version of the corpus) from a file, or by training the fit split."""
    if path is not None:
        data = json.loads(path.read_text())
        return data["rows"], data["version"]
    from benchmarks import corpus
    from benchmarks.accuracy import measure
    from benchmarks.grading import as_json

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    jobs = [*corpus.runs("fit", "faulty"), *corpus.runs("fit", "healthy")]
    return [as_json(row) for row in measure(jobs, processes)], corpus.VERSION


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, help="a file that benchmarks.accuracy wrote")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--check", action="store_true", help="only print how good the fit is")
    args = parser.parse_args()
    rows, version = rows_of(args.rows, args.jobs)
    samples = samples_of(rows)
    if not samples:
        raise SystemExit(f"no run of the fit split in {args.rows or 'the corpus'} gave a hypothesis: nothing to fit")
    whole = fit(samples)
    inside, outside = quality([confidence(whole, s) for s in samples], samples), left_out(samples)
    print(
        f"{len(samples)} first hypotheses, {sum(s.right for s in samples)} right. Brier score and calibration error: "
        f"{inside[0]:.3f}, {inside[1]:.3f} in the fit; {outside[0]:.3f}, {outside[1]:.3f} with programs left out"
    )
    if not args.check:
        known = json.loads(OUT.read_text())["causes"]  # a rule of advice alone has no entry, and stays below 0.5
        args.out.write_text(json.dumps(as_data(samples, later_of(rows), version, known), indent=1) + "\n")
        print(f"written: {args.out}")


if __name__ == "__main__":
    main()
