"""What the rules on the first non-finite place share: which place it is, and whether it is a cause of its own."""

from __future__ import annotations

from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import grew_before, value
from neuraldbg.run import Run

# The loss follows within a few steps; of the other places only the first is recorded.
SPREADS = {"nonfinite_activation": 50, "nonfinite_gradient": 50, "nonfinite_weight": 50}
PREDICTS = {"loss_nonfinite": 5, **SPREADS, "loss_spike": 50}

LARGE = 1e4  # finite values of healthy layers are below; an overflow has 1e9 and more right before it
LEFT_DOMAIN = ("zero_divisor", "empty", "zero_argument", "outside_domain")  # what the replay says of arguments
OVERFLOWS = ("exp", "expm1", "exp2", "cosh", "sinh")  # they leave the range by themselves
DIVIDES = ("div", "mean", "reciprocal", "rsqrt", "normalize", "std", "var")
LEAVES = (
    "exp",
    "log",
    "sqrt",
    "acos",
    "asin",
    "atanh",
    "cosh",
    "sinh",
    "tan",
    "softplus",
    "mul",
    "mm",
    "linear",
    "square",
)


def half(event: SemanticEvent) -> bool:
    """Whether it happened in float16; bfloat16 has the range of float32."""
    dtype = str(event.metadata.get("dtype"))
    return dtype.endswith("float16") and not dtype.endswith("bfloat16")


def rounded_away(stuck: SemanticEvent) -> bool:
    """Whether parameters that an optimizer holds stand still in a half format: their updates round to nothing."""
    return stuck.metadata.get("owned") is True and str(stuck.metadata.get("dtype")).endswith("float16")


def first_place(run: Run, symptom: str) -> SemanticEvent | None:
    """The first non-finite place, if it is of this symptom and no runaway led there."""
    bad = run.first_nonfinite
    if bad is None or bad.symptom != symptom or grew_before(run, bad):
        return None
    return bad


def first_forward(run: Run) -> SemanticEvent | None:
    """The first non-finite output, or the first loss that an operator outside the model made non-finite by itself."""
    bad = first_place(run, "nonfinite_activation")
    if bad is not None:
        return bad
    loss = first_place(run, "loss_nonfinite")
    if loss is None or not (loss.metadata.get("detail") in LEFT_DOMAIN or loss.metadata.get("operator") in OVERFLOWS):
        return None
    return loss


def where(bad: SemanticEvent) -> str:
    """The operator with file and line as the replay found it, "" without one.

    >>> from neuraldbg.events import observed
    >>> where(observed("nonfinite_gradient", 3, operator="sqrt", file="model.py", line=12, place="model"))
    'operator sqrt at model.py:12; '
    """
    operator, file, line = (bad.metadata.get(key) for key in ("operator", "file", "line"))
    if not operator:
        return ""
    at = f"{file}:{line}" if file else ""
    if bad.metadata.get("place") == "loss":
        return f"operator {operator} in the loss{f', backward called at {at}' if at else ''}; "
    return f"operator {operator}{f' at {at}' if at else ''}; "


def divides(bad: SemanticEvent) -> bool:
    """Whether 0/0 made it: by the operator where it is known, else NaN out of moderate finite values."""
    operator = str(bad.metadata.get("operator") or "").lower()
    if bad.metadata.get("detail"):
        return bad.metadata["detail"] in ("zero_divisor", "empty")
    if "pow" in operator:
        return value(bad, "largest", 0.0) < LARGE  # an overflow has large values before it, 0 ** -0.5 has none
    if any(name in operator for name in DIVIDES):
        return True
    if operator and any(name in operator for name in LEAVES):
        return False
    return value(bad, "largest", 0.0) < LARGE and value(bad, "inf_share", 0.0) == 0.0


def attention_row(run: Run, bad: SemanticEvent) -> bool:
    """Whether it is a softmax (or an attention layer) that turned whole rows into NaN."""
    operator = str(bad.metadata.get("operator") or "")
    if operator:
        return bad.metadata.get("detail") == "masked_row" or operator.startswith("scaled_dot_product")
    module = run.facts.module(bad.layer_name)
    if module is None or value(bad, "inf_share", 0.0) > 0:
        return False
    return module.activation == "softmax" or "Attention" in module.kind
