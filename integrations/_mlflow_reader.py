"""The runs of an MLflow experiment as `neuraldbg compare` reads them: tags and parameters, no artifact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.sweep.rows import Row, value

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PAGE = 250  # runs a request; memory holds one page of MLflow's own objects, of a server two


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
    """Newest first. A server is asked from both ends at once: its work on a page is as long as ours on the answer."""
    pages = _pages(client, experiment, "DESC")
    first = next(pages)
    for run in first.runs:
        yield _row(run, base)
    if first.is_last:
        return
    if base:
        yield from _both_ends(first, pages, _pages(client, experiment, "ASC"), base)
    else:
        yield from (_row(run, base) for page in pages for run in page.runs)


@dataclass(frozen=True)
class _Page:
    runs: Sequence[Run]
    is_last: bool

    @property
    def edge(self) -> int | None:
        """When the run started that the page ends with, in ms; every run beyond it was in a page before."""
        return self.runs[-1].info.start_time if self.runs else None


def _pages(client: MlflowClient, experiment: str, direction: str) -> Iterator[_Page]:
    order = [f"attributes.start_time {direction}"]
    token: str | None = None
    while True:
        page = client.search_runs([experiment], order_by=order, max_results=PAGE, page_token=token)
        token = page.token
        yield _Page(page, not token)
        if not token:
            return


def _both_ends(first: _Page, newest: Iterator[_Page], oldest: Iterator[_Page], base: str) -> Iterator[Row]:
    """What follows the first page, until the two directions meet; runs that both bring come once."""
    seen = {run.info.run_id for run in first.runs}
    edges: list[int | None] = [first.edge, None]
    old: list[Row] = []
    with ThreadPoolExecutor(2) as pool:
        asked = {pool.submit(next, side): k for k, side in enumerate((newest, oldest))}
        while asked:
            for answer in wait(asked, return_when=FIRST_COMPLETED).done:
                k = asked.pop(answer)
                page = answer.result()
                fresh = [_row(run, base) for run in page.runs if run.info.run_id not in seen]
                seen.update(run.info.run_id for run in page.runs)
                if k == 0:
                    yield from fresh
                else:
                    old += fresh
                edges[k] = page.edge
                met = edges[0] is not None and edges[1] is not None and edges[0] < edges[1]
                if page.is_last or met:
                    yield from reversed(old)
                    return
                asked[pool.submit(next, (newest, oldest)[k])] = k


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
