"""What a training's trace means: the values that every report, sink and comparison reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuraldbg.events import SemanticEvent, _Text
from neuraldbg.record import RunFacts

SCHEMA_VERSION = 1

FAILURE_TYPES = (
    "vanishing_gradients",
    "exploding_gradients",
    "dead_neurons",
    "saturated_activations",
    "optimizer_instability",
    "data_anomaly",
)


class Verdict(_Text):
    """Whether the training failed; `running` until the session ends, unless it has failed before."""

    RUNNING = "running"
    HEALTHY = "healthy"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Claim:
    """What a rule says: this cause, here, since then. A rule never scores itself; `reasoning` does.

    root: the event in which the cause shows first (it gives step and layer where these are not given).
    predicts: symptoms that this cause brings about later, each with the steps within which it is expected.
    strength: the smallest margin of the conditions in log10 units to the healthy extreme (None for an exact fact).
    exact: the claim rests on an exact fact and needs no threshold.
    outcome: the training was hurt (not falling, non-finite, capacity lost, ...); False makes it a note.
    advice: a note that says what else is known; it leaves a healthy run healthy.
    """

    cause: str
    failure_type: str
    layer_name: str | None
    step: int
    predicts: Mapping[str, int] = field(default_factory=dict)
    evidence_for: tuple[SemanticEvent, ...] = ()
    evidence_against: tuple[SemanticEvent, ...] = ()
    remedy: str = ""
    summary: str = ""
    refuted_by: str = ""
    exact: bool = False
    strength: float | None = None
    outcome: bool = True
    advice: bool = False

    @property
    def root(self) -> SemanticEvent | None:
        return min(self.evidence_for, key=lambda e: e.order, default=None)


@dataclass(frozen=True)
class CausalHypothesis:
    """A cause with its place, its evidence and how sure it is. `str()` is one sentence."""

    failure_type: str
    cause: str
    layer_name: str | None
    step: int
    confidence: float
    description: str
    remedy: str = ""
    evidence: tuple[SemanticEvent, ...] = ()
    evidence_against: tuple[SemanticEvent, ...] = ()
    causal_chain: tuple[str, ...] = ()
    refuted_by: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.description} (confidence: {self.confidence:.2f})"


@dataclass(frozen=True)
class Coupling:
    """Two events in causal reach of each other; also readable by key: ``c["trigger"]``."""

    trigger: str
    consequence: str
    step_difference: int
    confidence: float

    def __getitem__(self, key: str) -> Any:
        if key not in ("trigger", "consequence", "step_difference", "confidence"):
            raise KeyError(key)
        return getattr(self, key)


@dataclass(frozen=True)
class GraphNode:
    """A node of the causal graph: a (collapsed) event, or the cause itself (kind "cause")."""

    id: str
    label: str
    kind: str
    step: int
    layer_name: str | None = None
    count: int = 1


@dataclass(frozen=True)
class GraphEdge:
    """source brought about target; kind: causes, mechanism or propagates (same symptom, next layer)."""

    source: str
    target: str
    kind: str = "mechanism"


@dataclass(frozen=True)
class CausalGraph:
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()


class Hypotheses(list[CausalHypothesis]):
    """A list that, when empty, says why if it is indexed."""

    def __init__(self, items: Sequence[CausalHypothesis] = (), reason: str = "the run is healthy") -> None:
        super().__init__(items)
        self.reason = reason

    def __getitem__(self, index: Any) -> Any:
        try:
            return super().__getitem__(index)
        except IndexError:
            if not self:
                raise IndexError(f"there is no hypothesis: {self.reason}") from None
            raise


@dataclass(frozen=True)
class Diagnosis:
    """Verdict, ranked hypotheses, couplings, causal graph and coverage of one training.

    failure_probability: of the run having failed, whatever the cause. `notes` are hypotheses below a claim: what
    is known of a healthy or warning run. `profile` holds one row per layer for pictures:
    layer name -> list of (step, state) changes.
    """

    verdict: Verdict
    failure_probability: float
    hypotheses: tuple[CausalHypothesis, ...] = ()
    notes: tuple[CausalHypothesis, ...] = ()
    couplings: tuple[Coupling, ...] = ()
    graph: CausalGraph = field(default_factory=CausalGraph)
    events: tuple[SemanticEvent, ...] = ()
    facts: RunFacts = field(default_factory=RunFacts)
    series: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    steps: int = 0
    schema_version: int = SCHEMA_VERSION

    @property
    def saw_nothing(self) -> bool:
        """Whether the session is over and no step of any training came by, so that no verdict means anything."""
        if self.verdict is Verdict.RUNNING or self.steps:
            return False
        return not (self.hypotheses or self.notes or self.events or self.series)

    @property
    def top(self) -> CausalHypothesis | None:
        return self.hypotheses[0] if self.hypotheses else None

    def __str__(self) -> str:
        from neuraldbg.report.text import summary  # the only place that makes sentences

        return summary(self)

    def _repr_html_(self) -> str:
        from neuraldbg.report.html import fragment

        return fragment(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from neuraldbg.report.mermaid import mermaid

        return {"text/plain": str(self), "text/html": self._repr_html_(), "text/vnd.mermaid": mermaid(self.graph)}
