"""Run every question and write README.md: what was asked, the verdict it gets, and whether that answers it.

    python examples/questions/index.py

ANSWERS says what the right answer is (the tests hold the verdicts against it) and, where we do not reach it, what
that would take.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import NamedTuple

from neuraldbg.diagnosis import CausalHypothesis, Diagnosis

FOLDER = Path(__file__).parent
HOSTED = re.compile(r"^([\w.-]+/[\w.-]+)#(\d+)$")


class Answer(NamedTuple):
    """The verdict that a question gets; `layer` and `steps` only where the question has one.

    steps: (first, last) step in which the cause began. says: what the printed diagnosis has to tell beside the cause.
    gap: what is missing of the full answer and what it would take, "" where nothing is.
    """

    verdict: str
    cause: str | None = None
    layer: str | None = None
    steps: tuple[int, int] | None = None
    says: tuple[str, ...] = ()
    gap: str = ""


RANKS = (
    "in part: a session sees its own process only. Of a job on many ranks each has to write a journal (NEURALDBG_DIR),"
    " which `neuraldbg merge` then puts side by side"
)
MEMORY = (
    "in part: held graphs are told in the last line. Bytes are not measured; that takes the allocator's own snapshot"
)
COMPILED = "in part: that the plain model is finite. Which kernel is wrong takes a bisection of the compiled graph"
REWARD = "in part, as a warning: a policy's loss says nothing of its reward. More takes the reward and its entropy"
COLLAPSE = "as a warning: to a trainer that asks for equal outputs it is a success"
USED = "yes, as a warning: the training is not hurt by it, DDP alone stops"

ANSWERS: Mapping[str, Answer] = MappingProxyType(
    {
        "q01": Answer("failed", "half_precision_underflow", "0", (0, 0), ("the loss is not finite at step 1",)),
        "q02": Answer("failed", "division_by_zero", None, (17, 17), ("it is taken over nothing",)),
        "q03": Answer("failed", "numerical_op_forward", "2", (5, 40), ("operator log",)),
        "q04": Answer("failed", "half_precision_overflow", "", (20, 79), ("65504",)),
        "q05": Answer("healthy"),
        "q06": Answer("failed", "numerical_op_backward", "", (25, 25), ("operator sqrt",)),
        "q07": Answer("failed", "attention_mask_all_inf", "softmax", (12, 12)),
        "q08": Answer("failed", "learning_rate_too_high", None, (0, 3)),
        "q09": Answer("failed", "wrong_output_activation", "3", (0, 2)),
        "q10": Answer("healthy"),
        "q11": Answer("warning", "detached_graph", "auxiliary", (0, 0), ("auxiliary.weight, auxiliary.bias",), USED),
        "q12": Answer("failed", "detached_graph", "blocks.2", (0, 0), ("use_reentrant=False",)),
        "q13": Answer("failed", "optimizer_misses_parameters", "0", (0, 0), ("0.weight, 0.bias",)),
        "q14": Answer("failed", "learning_rate_too_low", None, (60, 60), ("the rate is zero for the last 75%",)),
        "q15": Answer("failed", "half_precision_underflow", "2", (0, 0), ("bfloat16 parameters",)),
        "q16": Answer("failed", "missing_zero_grad", None, (0, 1)),
        "q17": Answer("failed", "loss_scale", None, (0, 0), ("16 backward passes",)),
        "q18": Answer("warning", "stale_statistics", "1", (0, 0), ("update_bn",)),
        "q19": Answer("healthy", says=("goes around DistributedDataParallel",), gap=RANKS),
        "q20": Answer("failed", "numerical_op_forward", "rank1.0", (30, 30), gap=RANKS),
        "q21": Answer("failed", "schedule_jump", None, (0, 0), ("Adam starts without its state",)),
        "q22": Answer("healthy", says=("graphs of all earlier losses are still held", "loss.item()"), gap=MEMORY),
        "q23": Answer("failed", "discriminator_saturation", "discriminator.4", (0, 60)),
        "q24": Answer("warning", "learning_rate_too_high", None, (0, 3), ("Confidence: low",), REWARD),
        "q25": Answer("warning", "representation_collapse", "2", (100, 399), gap=COLLAPSE),
        "q26": Answer("failed", "nan_in_input", None, (4, 4), ("feature 3", "sample 321 of the data set")),
        "q27": Answer("warning", "overfitting", None, (5, 60), ("stop at step",)),
        "q28": Answer("failed", "unknown", None, (30, 30), ("suspect the compiled code",), COMPILED),
        "q29": Answer("failed", "division_by_zero", "", (0, 0), ("the divisor holds zeros",)),
    }
)


def files() -> list[Path]:
    return sorted(FOLDER.glob("q[0-9][0-9]_*.py"))


def load(path: Path) -> ModuleType:
    """A question's module, without a package around it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(path: Path) -> Diagnosis:
    """Run one question; what it prints is dropped."""
    with contextlib.redirect_stdout(io.StringIO()):
        diagnosis: Diagnosis = load(path).main().diagnose()
    return diagnosis


def first(diagnosis: Diagnosis) -> CausalHypothesis | None:
    """The hypothesis that the verdict shows: the best one of a failed run, the first note of a warning."""
    shown = diagnosis.hypotheses if diagnosis.verdict == "failed" else diagnosis.notes
    return shown[0] if shown and diagnosis.verdict != "healthy" else None


def question(module: ModuleType) -> tuple[str, list[str]]:
    """(the question, where it was asked) from a module's docstring."""
    lines = (module.__doc__ or "").splitlines()
    asked = next(line for line in lines if line.startswith("Asked in: ")).removeprefix("Asked in: ")
    return lines[0], asked.split(", ")


def link(address: str) -> str:
    """A thread's address as a Markdown link.

    >>> link("pytorch/pytorch#2421")
    '[pytorch/pytorch#2421](https://github.com/pytorch/pytorch/issues/2421)'
    """
    thread = HOSTED.match(address)
    if thread:
        return f"[{address}](https://github.com/{thread[1]}/issues/{thread[2]})"
    return f"[{address.removeprefix('https://')}]({address})"


def row(path: Path) -> str:
    module, diagnosis = load(path), answer(path)
    asked, where = question(module)
    verdict = f"**{diagnosis.verdict}**"
    shown = first(diagnosis)
    if shown is not None:
        place = f" in `{shown.layer_name}`" if shown.layer_name else ""
        verdict += f": `{shown.cause}`{place}, step {shown.step}"
    gap = ANSWERS[path.stem[:3]].gap
    cells = (f"[{path.stem[1:3]}]({path.name})", asked, ", ".join(map(link, where)), verdict, gap or "yes")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


HEAD = """# Questions that people asked, and the verdict each gets

Each file reproduces one question in a few seconds on a CPU and prints the diagnosis:

    python examples/questions/q01_zero_loss_in_the_log.py

This page is written by `python examples/questions/index.py` from what the files really give.

| | Question | Asked in | Verdict | Answered |
| --- | --- | --- | --- | --- |
"""


def main() -> None:
    (FOLDER / "README.md").write_text(HEAD + "\n".join(map(row, files())) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
