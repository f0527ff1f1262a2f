"""The runs of a W&B project as `neuraldbg compare` reads them: config and summary, no file and no history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from neuraldbg.sweep.rows import Row, value

PAGE = 500  # runs a request


def read(project: str) -> Iterator[Row]:
    """The runs of `ENTITY/PROJECT`, or of a project of the default entity, oldest first.

    Raises LookupError where there is none, or no server that answers.
    """
    try:
        import wandb
    except ImportError as error:
        raise LookupError("wandb is not installed; type: pip install 'neuraldbg[wandb]'") from error
    if not project.strip("/") or project.count("/") > 1:
        raise LookupError(f"{project!r} is no W&B project; give for example wandb:my-team/my-project")
    try:
        runs = wandb.Api().runs(project, order="+created_at", per_page=PAGE, lazy=False)
        next(iter(runs), None)  # ask now: a project that is not there is told at once
    except Exception as error:
        raise LookupError(f"W&B gave no runs of the project {project!r}: {error}") from error
    return map(_row, runs)


def _row(run: Any) -> Row:
    told: Mapping[str, Any] = run.summary
    cause = _known(told.get("neuraldbg_cause"))
    layer = _known(told.get("neuraldbg_layer"))
    step, sure = told.get("neuraldbg_first_step"), told.get("neuraldbg_confidence")
    return Row(
        name=str(run.name or run.id),
        verdict=str(told.get("neuraldbg_verdict", "")),
        cause=cause,
        layer="" if layer == "(model)" else layer,
        step=int(step) if cause and isinstance(step, (int, float)) else None,
        confidence=float(sure) if cause and isinstance(sure, (int, float)) else None,
        parameters=dict(_flat(run.config)),
        where=str(run.url),
    )


def _flat(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str | float | bool]]:
    """Hyper-parameters by dotted name; what is ours, W&B's or no plain value is none."""
    for name, given in config.items():
        if not above and (name == "neuraldbg" or name.startswith("_")):
            continue
        if isinstance(given, Mapping):
            yield from _flat(given, f"{above}{name}.")
        elif isinstance(given, bool):
            yield f"{above}{name}", given
        elif isinstance(given, (int, float, str)):
            yield f"{above}{name}", value(given) if isinstance(given, str) else float(given)


def _known(told: Any) -> str | None:
    return None if told in (None, "", "none") else str(told)
