"""From a claim's score to a confidence, by a logistic curve fitted on labelled runs and shipped as data.

`calibration.json` holds one pair (a, b) for each cause: confidence = 1 / (1 + exp(-(a * score + b))), which is how
often a first hypothesis with that score is right, and how often those behind it are (a second fault, mostly). A rule
without an entry, such as a plug-in's, stays at or below 0.5 and says "uncalibrated".
`benchmarks/calibrate.py` writes the file anew from the fit split of the labelled corpus.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

UNCALIBRATED_CEILING = 0.5  # nobody has counted how often it is right: no surer than a coin
NOTE = (1.0, -1.5)  # the prior: no labelled run says how often a note, which claims no failure, is right


@dataclass(frozen=True)
class Calibration:
    """source: what the numbers come from. causes: slug -> (a, b). fallback: the curve of causes without an entry.

    later: the most that a hypothesis behind the first one gets, however well it stands for itself. surest: the most
    that any gets, for so many runs show no more.
    """

    source: str = ""
    causes: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    fallback: tuple[float, float] = (1.0, -1.5)
    later: float = 1.0
    surest: float = 1.0

    def knows(self, cause: str) -> bool:
        return cause in self.causes

    def confidence(self, cause: str, score: float, note: bool = False) -> float:
        """Never NaN, in [0, 1]; at most 0.5 for a cause without an entry. note: of a claim without an outcome.

        >>> Calibration(causes={"x": (1.0, 0.0)}).confidence("x", 0.0)
        0.5
        """
        a, b = NOTE if note else self.causes.get(cause, self.fallback)
        raw = min(self.surest, 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, a * score + b)))))
        return raw if self.knows(cause) else min(raw, UNCALIBRATED_CEILING)


def parse(data: Mapping[str, Any]) -> Calibration:
    """The content of calibration.json. Raises KeyError where `source`, `causes` or `fallback` is missing."""
    return Calibration(
        source=str(data["source"]),
        causes={cause: (float(entry["a"]), float(entry["b"])) for cause, entry in data["causes"].items()},
        fallback=(float(data["fallback"]["a"]), float(data["fallback"]["b"])),
        later=float(data.get("later", 1.0)),
        surest=float(data.get("surest", 1.0)),
    )


@functools.cache
def load() -> Calibration:
    """The calibration that ships with the package."""
    return parse(json.loads((files("neuraldbg.reasoning") / "calibration.json").read_text(encoding="utf-8")))
