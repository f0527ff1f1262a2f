"""The example notebook, run by a real kernel, gives the outputs that are stored in it."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
DIAGNOSIS, GRAPH = "text/html", "text/vnd.mermaid"

# In a process of its own: a kernel's client leaves an event loop and sockets behind.
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=200, kernel_name="python3", record_timing=False).execute()
nbformat.write(notebook, sys.argv[2])
"""


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def told(notebook: Any) -> list[str]:
    """What each diagnosis says: verdict, symptom, layer, step, cause; without shares of time and figures."""
    texts = [output.data["text/plain"] for output in outputs(notebook) if DIAGNOSIS in output.get("data", {})]
    return [re.split(r" \(|;", text.splitlines()[0])[0] for text in texts]


def printed(notebook: Any) -> list[str]:
    return [output.text for output in outputs(notebook) if output.output_type == "stream"]


def blamed(notebook: Any) -> list[list[str]]:
    """The causes of each graph that is shown; how many symptoms follow them depends on the processor's rounding."""
    graphs = [output.data[GRAPH] for output in outputs(notebook) if GRAPH in output.get("data", {})]
    return [re.findall(r'\["([^"]*)"\]\):::cause', graph) for graph in graphs]


@pytest.fixture(scope="module", name="stored")
def _stored() -> Any:
    return nbformat.read(NOTEBOOK, 4)


@pytest.fixture(scope="module", name="ran")
def _ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("notebook")
    own = {name: str(folder) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(NOTEBOOK), "ran.ipynb"],
        cwd=folder,
        env={**os.environ, **own, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return nbformat.read(folder / "ran.ipynb", 4)


def test_the_stored_outputs_are_those_of_a_training_that_is_healthy_and_two_that_fail(stored: Any) -> None:
    healthy, broken, fast = told(stored)
    assert healthy.startswith("HEALTHY: ")
    assert (
        broken == "FAILED: NaN values detected in input to layer '0' at step 60, likely due to NaN in the training data"
    )
    assert fast.startswith("FAILED: ") and fast.endswith("likely due to a learning rate that is too high")


def test_a_kernel_gives_the_stored_verdicts_causes_layers_and_steps(stored: Any, ran: Any) -> None:
    assert told(ran) == told(stored)
    assert printed(ran) == printed(stored)
    assert blamed(ran) == blamed(stored)
    broken = ["nan in input<br/>step 60"]
    assert blamed(ran) == [[], broken, broken, ["learning rate too high<br/>step 0"]]


def test_each_diagnosis_stands_in_its_page_and_has_its_graph(ran: Any) -> None:
    shown = [output.data for output in outputs(ran) if DIAGNOSIS in output.get("data", {})]
    for data in shown:
        words = html.unescape(re.sub(r"<[^>]+>", "", data[DIAGNOSIS]))
        assert re.split(r": | at step|;| \(", data["text/plain"].splitlines()[0])[1] in words
        assert data[GRAPH].startswith("graph TD")
    assert len(shown) == 3


def test_every_code_cell_was_run_in_order(stored: Any) -> None:
    counts = [cell.execution_count for cell in stored.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


def test_a_cell_that_is_run_again_leaves_one_set_of_hooks_and_a_session_none(ran: Any) -> None:
    assert printed(ran)[-1].split() == ["True", "0", "0"]


def test_no_path_of_a_machine_is_stored(stored: Any) -> None:
    assert not re.search(r"(?<![\w<.])/(tmp|home|root|Users|work|opt|var|usr)/", nbformat.writes(stored))
