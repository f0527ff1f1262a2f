"""A saved view of an experiment's runs: our columns, grouped by cause.

MLflow (3.15 on) keeps shared views as experiment tags; the format is its own and may change, which is why this is an
explicit call and never a part of `autolog()`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import zlib

import mlflow

NAME = "NeuralDBG: by cause"
COLUMNS = ("verdict", "cause", "layer", "step", "causes")


def install_view(experiment: str, *, tracking_uri: str | None = None) -> str:
    """Add (or renew) the view in an experiment, given by name or id; the page's path, to put after the server's URL."""
    client = mlflow.MlflowClient(tracking_uri=tracking_uri or mlflow.get_tracking_uri())
    found = client.get_experiment_by_name(experiment)
    if found is None:
        try:
            found = client.get_experiment(experiment)
        except mlflow.MlflowException as error:
            raise ValueError(f"there is no experiment with the name or id {experiment!r}") from error
    key = hashlib.sha256(f"neuraldbg:{found.experiment_id}".encode()).hexdigest()
    now = int(time.time() * 1000)
    view = {"name": NAME, "createdAt": now, "updatedAt": now, "state": state()}
    client.set_experiment_tag(found.experiment_id, f"mlflow.sharedViewState.{key}", json.dumps(view))
    return f"/#/experiments/{found.experiment_id}/runs?viewStateShareKey={key}&workflowType=machine_learning"


def state() -> str:
    """The page's state as MLflow packs it."""
    plain = {
        "selectedColumns": [
            "attributes.`Created`",
            *(f"tags.`neuraldbg.{name}`" for name in COLUMNS),
            "metrics.`neuraldbg/top_confidence`",
        ],
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "tag", "groupByData": "neuraldbg.cause"}],
        },
    }
    packed = zlib.compress(json.dumps(plain).encode())
    return "deflate;" + base64.b64encode(packed).decode()
