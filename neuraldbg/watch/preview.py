"""What would be seen of a model, without training it: for `neuraldbg doctor MODEL`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neuraldbg.record import RunFacts
from neuraldbg.watch import NeuralDbg
from neuraldbg.watch.forward import first_tensor

TOKENS = 2  # int inputs are below it: the smallest vocabulary that is one


def load(target: str) -> nn.Module:
    """The model of `package.module:name` or `file.py:name`, where the name is a model, or makes one when called.

    Raises ValueError with words for all that is none.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise ValueError(f"{target!r} names no model; give package.module:name or file.py:name")
    found: Any = _module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{place} has no {part!r}; name a model, or a function that makes one, at its top level")
        found = getattr(found, part)
    if not isinstance(found, nn.Module) and callable(found):
        try:
            found = found()
        except Exception as error:
            raise ValueError(f"{name}() does not make a model: {error}; name a function without arguments") from error
    if not isinstance(found, nn.Module):
        raise ValueError(f"{target} is no torch.nn.Module but {type(found).__name__}; name a model, or what makes one")
    return found


def _module(place: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    arguments, sys.argv = sys.argv, [place]  # a script that reads its arguments must not read ours
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        if spec is None or spec.loader is None or not Path(place).is_file():
            raise ValueError(f"there is no file {place}; give its path from here, {Path.cwd()}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    except ValueError:
        raise
    except SystemExit as error:
        raise ValueError(f"{place} ends the program on import; put that under __name__ == '__main__'") from error
    except Exception as error:  # the user's module may raise anything
        raise ValueError(f"{place} does not import: {type(error).__name__}: {error}") from error
    finally:
        sys.argv = arguments


def batch(shape: str) -> Tensor:
    """Random numbers of this shape: `32,10`, or whole ones by `8,16:int`. Raises ValueError."""
    sizes, _, kind = shape.partition(":")
    try:
        numbers = [int(part) for part in sizes.replace("x", ",").split(",")]
        if kind not in ("", "float", "int") or min(numbers) < 1:
            raise ValueError(shape)
    except ValueError:
        raise ValueError(f"{shape!r} is no shape; give sizes such as 32,10, with :int behind them for tokens") from None
    return torch.randint(0, TOKENS, numbers) if kind == "int" else torch.randn(numbers)


def preview(model: nn.Module, inputs: Tensor | None = None) -> RunFacts:
    """What a session knows of the model; with a batch, after one forward and backward pass of it.

    Raises ValueError for a model that has nothing to train, or that does not take the batch.
    """
    with NeuralDbg(model, sinks=[], journal_dir=None, replay=False) as dbg:
        if inputs is not None:
            try:
                output = first_tensor(model(inputs))
                if output is not None and output.requires_grad:
                    output.float().pow(2).mean().backward()
            except Exception as error:
                shape = tuple(inputs.shape)
                raise ValueError(f"{type(model).__name__} does not take a batch of shape {shape}: {error}") from error
    return dbg.diagnose().facts
