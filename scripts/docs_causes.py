"""The pages of causes and failure types: a rule's docstring, and what the code knows beside it."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from neuraldbg.diagnosis import FAILURE_TYPES
from neuraldbg.events import SYMPTOMS, EventType
from neuraldbg.report.sentences import CAUSES

ROOT = Path(__file__).parents[1]
RULES = ROOT / "neuraldbg" / "rules"
QUESTIONS = ROOT / "examples" / "questions"
KEPT = ROOT / "benchmarks" / "causes.json"  # python -m benchmarks.causes --write

# what a failure of each type is, and the (event type, state) in which it shows
FAILURES: Mapping[str, tuple[str, EventType, tuple[str, ...]]] = {
    "vanishing_gradients": (
        "The gradient of some layers is too small to train them, or never reaches them.",
        EventType.GRADIENT_HEALTH_TRANSITION,
        ("vanishing",),
    ),
    "exploding_gradients": (
        "The gradient grows by decades, until updates destroy the weights or a value leaves its format.",
        EventType.GRADIENT_HEALTH_TRANSITION,
        ("exploding", "saturated"),
    ),
    "dead_neurons": (
        "Units of a rectifier give zero for every sample. They get no gradient, so they stay as they are. "
        "A unit that is zero for many samples is no dead one.",
        EventType.ACTIVATION_REGIME_SHIFT,
        ("dead",),
    ),
    "saturated_activations": (
        "A bounded function works at its limits, where it has no slope, or the signal leaves its scale on the way.",
        EventType.ACTIVATION_REGIME_SHIFT,
        ("saturated", "anomalous"),
    ),
    "optimizer_instability": (
        "The loss or the updates misbehave: a plateau above chance, a spike, divergence, oscillation, parameters that "
        "never move.",
        EventType.OPTIMIZER_INSTABILITY,
        ("plateau", "spike", "diverging", "oscillating"),
    ),
    "data_anomaly": (
        "What enters the model or the loss is at fault: values that are not finite, a shift, zeros, repeats, labels.",
        EventType.DATA_ANOMALY,
        ("nan", "inf", "shifted", "constant", "unscaled"),
    ),
}


def escape(text: str) -> str:
    """Prose of a docstring as Markdown that shows it as it is; what stands in backticks is left alone."""
    parts = re.split(r"(`[^`]+`)", text.replace("``", "`"))
    return "".join(p if p.startswith("`") else re.sub(r"([\\*_\[\]<>#|])", r"\\\1", p) for p in parts)


def rules() -> dict[str, str]:
    """Cause -> the source of its rule."""
    return {file.stem: file.read_text("utf-8") for file in sorted(RULES.glob("*.py")) if file.stem[0] != "_"}


def failure_types(source: str) -> list[str]:
    """The failure types that a rule's source names, in their usual order."""
    tree = ast.parse(source)
    named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return [failure for failure in FAILURE_TYPES if failure in named]


def headed(docstring: str) -> Iterator[tuple[str, str]]:
    """(heading, text) of each part of a rule's docstring, its title first with what stands below it."""
    heading = ""
    lines: list[str] = []
    for line in docstring.splitlines():
        if line and not line.startswith(" "):
            if heading:
                yield heading, textwrap.dedent("\n".join(lines)).strip()
            heading, lines = line, []
        else:
            lines.append(line)
    yield heading, textwrap.dedent("\n".join(lines)).strip()


def examples() -> dict[str, list[Path]]:
    """Cause -> the scripts of examples/questions that get it."""
    spec = importlib.util.spec_from_file_location("questions", QUESTIONS / "index.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{QUESTIONS} has no index.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out: dict[str, list[Path]] = {}
    for number, answer in module.ANSWERS.items():
        if answer.cause is not None:
            out.setdefault(answer.cause, []).extend(sorted(QUESTIONS.glob(f"{number}_*.py")))
    return out


def trainings() -> dict[str, dict[str, str]]:
    """Cause -> a labelled training of it, and what was said of that."""
    found: dict[str, dict[str, str]] = json.loads(KEPT.read_text("utf-8"))
    return found


def training(cause: str, kept: Mapping[str, str], heading: str = "A training that fails of it") -> Iterator[str]:
    """How to run a labelled training of a cause, and its verdict as it was printed."""
    yield from (
        "",
        f"## {heading}",
        "",
        f"`python -m benchmarks.causes {cause}`, in a checkout, says:",
    )
    if kept["answer"] != cause:
        yield from ("", "(It is a training of this cause, and here NeuralDBG does not name it.)")
    yield from ("", "```text", *kept["text"].replace("```", "").splitlines(), "```")


def cause_page(
    cause: str,
    source: str,
    calibrated: bool,
    scripts: Sequence[Path] = (),
    kept: Mapping[str, str] | None = None,
) -> str:
    """A cause's page: its docstring, what the code knows of it, and trainings of it that run."""
    (title, _), *parts = headed(inspect.cleandoc(ast.get_docstring(ast.parse(source)) or cause))
    types = ", ".join(f"[{name}](../failures/{name}.md)" for name in failure_types(source)) or "as the trace shows it"
    out = [
        f"# {escape(title)}",
        "",
        f"`{cause}`: *likely due to {escape(CAUSES.get(cause, cause))}*.",
        "",
        f"Failure type: {types}. "
        + ("" if calibrated else "Its confidence is not fitted on labelled trainings: it stays at 0.5 or below. ")
        + f"In a terminal: `neuraldbg explain {cause}`.",
    ]
    for heading, text in parts:
        shown = escape(text)
        if heading == "Reference":
            issue = r"https://github.com/\1/issues/\2"
            shown = re.sub(r"\b([\w.-]+/[\w.-]+) issue (\d+)", rf"[\1 issue \2]({issue})", shown)
        out += ["", f"## {escape(heading)}", "", shown]
    out += training(cause, kept) if kept else ()
    for script in scripts:
        code = script.read_text("utf-8")
        asked = (ast.get_docstring(ast.parse(code)) or script.stem).partition("\n")[0]
        out += ["", f"## Asked: {escape(asked)}", "", f"`python {script.relative_to(ROOT).as_posix()}`", ""]
        out += ["```python", code.rstrip(), "```"]
    return "\n".join(out) + "\n"


def cause_index(sources: Mapping[str, str]) -> str:
    """All causes; those that no rule claims yet stand below."""
    out = ["# Causes", "", "What NeuralDBG can name. The slug is what tags, searches and `neuraldbg explain` use.", ""]
    out += ["| cause | likely due to |", "| --- | --- |"]
    out += [f"| [`{cause}`]({cause}.md) | {escape(CAUSES.get(cause, ''))} |" for cause in sources]
    waiting = [cause for cause in CAUSES if cause not in sources]
    if waiting:
        out += ["", "No rule claims these yet, so a training that fails of one gets another answer, or `unknown`:", ""]
        out += [f"- `{cause}`: {escape(CAUSES[cause])}" for cause in waiting]
    return "\n".join(out) + "\n"


def failure_page(failure: str, sources: Mapping[str, str], kept: Mapping[str, Mapping[str, str]]) -> str:
    """A failure type: what it is, what is seen of it, which causes lead to it, and a training that fails so."""
    text, kind, states = FAILURES[failure]
    seen = [(name, s) for name, s in SYMPTOMS.items() if s.event_type == kind and str(s.to_state) in states]
    causes = [cause for cause, source in sources.items() if failure in failure_types(source)]
    out = [f"# {failure.replace('_', ' ').capitalize()}", "", f"`{failure}`. {text}", "", "## What is seen of it", ""]
    out += [f"Events of the type `{kind}`. What each carries: [symptoms](../design/symptoms.md).", ""]
    out += ["| symptom | state | |", "| --- | --- | --- |"]
    out += [f"| `{name}` | {s.to_state} | {escape(s.text)} |" for name, s in seen]
    out += ["", "## Causes", ""]
    out += [f"- [{escape(CAUSES.get(cause, cause))}](../causes/{cause}.md)" for cause in causes]
    out += ["", "## In code", "", "```python", f'dbg.explain_failure("{failure}")  # best first', "```"]
    right = [cause for cause in causes if cause in kept and kept[cause]["answer"] == cause]
    shown = next((cause for cause in right if kept[cause].get("failure") == failure), None)
    if shown is not None:
        out += training(shown, kept[shown], "A training that fails so")
    return "\n".join(out) + "\n"


def failure_index() -> str:
    out = ["# Failure types", "", "The type of a failure is that of the earliest event that harmed the training.", ""]
    out += [f"- [{name.replace('_', ' ')}]({name}.md): {FAILURES[name][0]}" for name in FAILURE_TYPES]
    return "\n".join(out) + "\n"
