"""The runs of an MLflow experiment as `neuraldbg compare` reads them: tags and parameters, no artifact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from neuraldbg.sweep.rows import Row, value

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PAGE = 500  # runs a request; memory holds one page of MLflow's own objects


def read(experiment: str) -> Iterator[Row]:
    """The runs of an experiment, given by name or id, at the tracking server that MLflow's settings name.

    Raises LookupError where there is none.
    """
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise LookupError("MLflow is not installed; type: pip install 'neuraldbg[mlflow]'") from error
    client = MlflowClient()
    found = _experiment(client, experiment)
    uri = client.tracking_uri
    base = f"{uri.rstrip('/')}/#/experiments/{found}/runs/" if uri.startswith("http") else ""
    return _rows(client, found, base)


def _experiment(client: MlflowClient, experiment: str) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(experiment)
    if found is None:
        with suppress(MlflowException):  # an id that is none of the store's
            found = client.get_experiment(experiment)
    if found is None:
        names = ", ".join(repr(e.name) for e in client.search_experiments(max_results=10))
        raise LookupError(
            f"there is no experiment {experiment!r} at {client.tracking_uri} (MLFLOW_TRACKING_URI says where); "
            f"there are: {names}"
        )
    return str(found.experiment_id)


def _rows(client: MlflowClient, experiment: str, base: str) -> Iterator[Row]:
    token: str | None = None
    while True:
        page = client.search_runs([experiment], max_results=PAGE, page_token=token)
        for run in page:
            yield _row(run, base)
        token = page.token
        if not token:
            return


def _row(run: Run, base: str) -> Row:
    tags = run.data.tags
    cause, layer, step = (_known(tags.get(f"neuraldbg.{name}")) for name in ("cause", "layer", "step"))
    first = tags.get("neuraldbg.causes", "").partition(",")[0].rpartition(":")
    return Row(
        name=run.info.run_name or run.info.run_id,
        verdict=tags.get("neuraldbg.verdict", ""),
        cause=cause,
        layer="" if layer == "(model)" else layer,
        step=int(step) if step is not None and step.isdecimal() else None,
        confidence=_number(first[2]) if first[0] == cause else None,
        parameters={name: value(text) for name, text in run.data.params.items()},
        where=f"{base}{run.info.run_id}",
    )


def _known(tag: str | None) -> str | None:
    return None if tag in (None, "", "none") else tag


def _number(text: str) -> float | None:
    found = value(text)
    return found if isinstance(found, float) else None
