"""The pages of the settings and of the public names, from their docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from docs_causes import escape

import neuraldbg
from neuraldbg.settings import Settings


def settings_page() -> str:
    """Every setting, its default and the environment's variable; the words are the class's."""
    doc = inspect.getdoc(Settings) or ""
    out = ["# Settings", ""]
    out += [
        "An argument goes before the environment, that before `[tool.neuraldbg]` in pyproject.toml, that before the"
    ]
    out += [
        "default: `NeuralDbg(model, cadence=5)`, `NEURALDBG_CADENCE=5`, `cadence = 5`. An unknown name is an error.",
        "",
    ]
    out += ["| setting | default | environment |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        value = field.default
        out.append(f"| `{name}` | {'none' if value is None else value} | `NEURALDBG_{name.upper()}` |")
    out += ["", "## What they mean", ""]
    for part in re.split(r"\n(?=[a-z_]+(?:, [a-z_]+)*(?: \([A-Z_]+\))?: )", doc.partition("\n\n")[2]):
        names, _, text = " ".join(part.split()).partition(": ")
        out.append(f"- **{escape(names)}**: {escape(text)}")
    return "\n".join(out) + "\n"


def signature(value: Any) -> str:
    """A callable's signature without `self`, with types as they are written."""
    shown = inspect.signature(value)
    kept = [p for p in shown.parameters.values() if p.name != "self"]
    return re.sub(r"'([^']*)'", r"\1", str(shown.replace(parameters=kept)))


def api_page() -> str:
    """The public names, with their docstrings."""
    out = ["# API", "", f"`from neuraldbg import ...`: {', '.join(f'`{name}`' for name in neuraldbg.__all__)}.", ""]
    for name in sorted(neuraldbg.__all__, key=lambda name: (name != "NeuralDbg", name)):
        value = getattr(neuraldbg, name)
        out += [f"## {name}", ""]
        if not inspect.isclass(value):
            out += ["```python", f"{name}{signature(value)}", "```", ""]
        out += [described(value), ""]
        for member in sorted(vars(value)) if inspect.isclass(value) and name != "Settings" else ():
            found = inspect.getattr_static(value, member)
            called = found.fget if isinstance(found, property) else found
            if member.startswith("_") or not inspect.isroutine(called) or not called.__doc__:
                continue
            shown = member if isinstance(found, property) else f"{member}{signature(getattr(value, member))}"
            out += [f"### {member}", "", "```python", shown, "```", "", described(called), ""]
        if name == "Settings":
            out += ["Its fields: [Settings](settings.md).", ""]
    return "\n".join(out)


def described(value: Any) -> str:
    """A docstring as Markdown; an example in it as a block."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and issubclass(value, str):
        return ", ".join(f"`{member.value}`" for member in value)  # type: ignore[attr-defined]
    prose, mark, rest = text.partition(">>> ")
    example, _, after = rest.partition("\n\n")
    example = (mark + example).replace("  # doctest: +SKIP", "")
    parts = [escape(prose.rstrip()), *([f"```python\n{example}\n```", escape(after)] if mark else [])]
    if dataclasses.is_dataclass(value):
        parts.append("Fields: " + ", ".join(f"`{field.name}`" for field in dataclasses.fields(value)) + ".")
    return "\n\n".join(part for part in parts if part)
