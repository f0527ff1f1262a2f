"""A `Row` is one training as `compare` sees it; a `Reader` gets rows from a tracker; folders are read here.

A reader is a callable, named by an entry point of the group `neuraldbg.readers`: `neuraldbg compare mlflow:digits`
calls the reader named `mlflow` with "digits". It yields rows one by one, as it gets them, and raises LookupError or
ValueError with words that say what to type where the source is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from neuraldbg.diagnosis import Diagnosis
from neuraldbg.record import RunFacts

Value = str | float | bool
GROUP = "neuraldbg.readers"


@dataclass(frozen=True, slots=True)
class Row:
    """One training.

    name: what its owner knows it by. verdict: healthy, warning or failed; running or "" where there is no diagnosis.
    cause, layer, step, confidence: of the hypothesis that the verdict is about; None where there is none.
    parameters: hyper-parameters. where: a path or a link to look it up.
    """

    name: str
    verdict: str = ""
    cause: str | None = None
    layer: str | None = None
    step: int | None = None
    confidence: float | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    where: str = ""


Reader = Callable[[str], Iterator[Row]]


def rows_of(source: str) -> Iterator[Row]:
    """The trainings of `READER:WHAT`, or of a file or folder.

    Raises LookupError for a source that is not there and ValueError for one that cannot be read.
    """
    name, colon, rest = source.partition(":")
    points = {point.name: point for point in entry_points(group=GROUP)}
    if colon and name in points:
        try:
            reader: Reader = points[name].load()
        except ImportError as error:
            raise LookupError(str(error)) from error
        return reader(rest)
    if Path(source).exists():
        return folder_rows(Path(source))
    if colon and re.fullmatch(r"[a-z_]{2,}", name):
        known = ", ".join(sorted(points)) or "none is installed"
        raise LookupError(f"there is no reader {name!r} for {source!r}; the readers are: {known}")
    raise LookupError(
        f"there is no file or folder {source!r}; give one, or a tracker's runs, such as mlflow:EXPERIMENT"
    )


def folder_rows(top: Path) -> Iterator[Row]:
    """The sessions in a folder: of `neuraldbg run`, of NEURALDBG_DIR, or saved by hand."""
    from neuraldbg.runfolder import command_of, read, sessions

    files = [top] if top.is_file() else sessions(top)
    if not files:
        raise LookupError(f"there is no diagnosis.json and no journal (.jsonl) in {top}")
    for file in files:
        try:
            diagnosis = read(file)
        except (OSError, ValueError) as error:
            raise ValueError(f"{file}: {error}") from error
        typed = command_of(file).get("arguments", [])
        given = arguments([str(a) for a in typed] if isinstance(typed, list) else [])
        seen = facts_parameters(diagnosis.facts)
        yield row(diagnosis, _name(file, top), {**given, **{k: seen[k] for k in seen if k not in given}}, str(file))


def _name(file: Path, top: Path) -> str:
    """`sweep/run-3` of `sweep/run-3/diagnosis.json`."""
    path = file.relative_to(top) if file != top else Path(file.name)
    alone = path.stem in ("diagnosis", "journal") and path.parent != Path()
    return str(path.parent if alone else path.with_suffix(""))


def row(diagnosis: Diagnosis, name: str, parameters: Mapping[str, Value], where: str = "") -> Row:
    """A diagnosis as one row."""
    from neuraldbg.report.text import shown_hypothesis

    top = shown_hypothesis(diagnosis)
    verdict = "" if diagnosis.saw_nothing else str(diagnosis.verdict)
    if top is None:
        return Row(name, verdict, parameters=parameters, where=where)
    return Row(name, verdict, top.cause, top.layer_name, top.step, top.confidence, parameters, where)


def value(text: str) -> Value:
    """A hyper-parameter as trackers and command lines write it: a number, true or false, else text.

    >>> value("1e-3"), value("True"), value("relu")
    (0.001, True, 'relu')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


def arguments(typed: Sequence[str]) -> dict[str, Value]:
    """Hyper-parameters of a command line: `--lr 0.1`, `--lr=0.1`, `lr=0.1`, and `--amp` alone as true.

    >>> arguments(["--lr", "0.1", "--amp", "model=cnn", "data.csv"])
    {'lr': 0.1, 'amp': True, 'model': 'cnn'}
    """
    out: dict[str, Value] = {}
    waiting: str | None = None
    for token in typed:
        is_option = token.startswith("-") and not isinstance(value(token), float)
        if waiting is not None:
            out[waiting] = True if is_option else value(token)
            waiting, done = None, not is_option
            if done:
                continue
        name, equals, rest = token.partition("=")
        if equals and (is_option or name.replace(".", "_").replace("-", "_").isidentifier()):
            out[name.lstrip("-")] = value(rest)
        elif is_option:
            waiting = token.lstrip("-") or None
    if waiting is not None:
        out[waiting] = True
    return out


def facts_parameters(facts: RunFacts) -> dict[str, Value]:
    """What the watching itself knows of a training's hyper-parameters."""
    out: dict[str, Value] = {}
    for k, optimizer in enumerate(facts.optimizers[:4]):
        end = "" if k == 0 else f"_{k + 1}"
        out[f"optimizer{end}"] = optimizer.kind
        if optimizer.rates:
            out[f"learning_rate{end}"] = max(optimizer.rates)
        out[f"weight_decay{end}"] = optimizer.weight_decay
        out[f"momentum{end}"] = optimizer.momentum
    kinds = sorted({m.activation for m in facts.modules if m.activation and m.activation != "other"})
    if kinds:
        out["activation"] = "+".join(kinds)
    layers = [m for m in facts.modules if m.parameters and not m.has_children]
    if layers:
        out["layers"] = float(len(layers))
        out["parameters"] = float(sum(p.numel for p in facts.parameters))
    if facts.loss_kind:
        out["loss"] = facts.loss_kind
    return out
