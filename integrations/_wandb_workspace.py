"""A saved view of a W&B project: its runs grouped by failure cause, with the panels that compare causes.

Built on wandb-workspaces, which W&B calls a preview: this is an explicit call and never a part of `autolog()`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from . import _wandb_content as content

NAME = "NeuralDBG: failure causes"
PINNED = ("neuraldbg_cause", "neuraldbg_layer", "neuraldbg_first_step", "neuraldbg_confidence", "neuraldbg_cause_2")


def build(entity: str, project: str, parameters: Sequence[str] = ("lr",)) -> Any:
    """The view, not yet saved: no request is made. parameters: config keys to set beside the causes."""
    try:  # by name, for its types are not declared as exported
        panels: Any = importlib.import_module("wandb_workspaces.reports.v2")
        views: Any = importlib.import_module("wandb_workspaces.workspaces")
    except ImportError as error:
        raise ImportError(
            "the view needs the package 'wandb-workspaces'; type: pip install 'neuraldbg[wandb-workspaces]'"
        ) from error

    cause = panels.Config("neuraldbg.cause")
    columns = [
        *(panels.ParallelCoordinatesPlotColumn(panels.Config(name)) for name in parameters),
        panels.ParallelCoordinatesPlotColumn(cause, display_name="cause"),
        panels.ParallelCoordinatesPlotColumn(panels.SummaryMetric("neuraldbg_first_step"), display_name="since step"),
        panels.ParallelCoordinatesPlotColumn(panels.SummaryMetric("neuraldbg_confidence"), display_name="confidence"),
    ]
    shown = [
        panels.BarPlot(
            title="Failed runs by cause",
            metrics=[panels.SummaryMetric("neuraldbg_failed")],
            groupby=cause,
            groupby_aggfunc="sum",
        ),
        panels.ParallelCoordinatesPlot(title="Hyper-parameters and causes", columns=columns),
        *(
            panels.ScatterPlot(
                title=f"{name}: failed or not", x=panels.Config(name), y=panels.SummaryMetric("neuraldbg_failed")
            )
            for name in parameters
        ),
        panels.MediaBrowser(title="Causal graphs", media_keys=[content.GRAPH], num_columns=2),
        panels.WeavePanelSummaryTable(table_name=content.TABLE),
        panels.RunComparer(diff_only="split"),
    ]
    return views.Workspace(
        entity=entity,
        project=project,
        name=NAME,
        sections=[views.Section(name="NeuralDBG", panels=shown, is_open=True, pinned=True)],
        runset_settings=views.RunsetSettings(
            groupby=[views.Config("neuraldbg.cause")], pinned_columns=[f"summary:{name}" for name in PINNED]
        ),
    )


def save(entity: str, project: str, parameters: Sequence[str] = ("lr",)) -> str:
    """Save the view in the project, each time a new one; its URL."""
    return str(build(entity, project, parameters).save().url)
