"""The hooks that hang on a user's model: inert objects.

They hold the session weakly, do nothing in copies (deepcopy, pickle and torch.save give a hook that is silent), and
return None always. A closure would be copied along with an EMA model and report the copy as the original.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.watch.measure import output_row
from neuraldbg.watch.sample import MOST, MOST_UNITS, some_rows

if TYPE_CHECKING:
    from neuraldbg.watch.forward import Place
    from neuraldbg.watch.session import Session


class Silent:
    """What a copied or unpickled hook becomes: it accepts any call and does nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None


def silent() -> Silent:
    return Silent()


class _Hook:
    """Weak towards the session, silent in copies."""

    def __init__(self, session: Session, index: int) -> None:
        self.session = weakref.ref(session)
        self.index = index

    def __deepcopy__(self, memo: dict[int, Any]) -> Silent:
        return Silent()

    def __copy__(self) -> Silent:
        return Silent()

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return silent, ()


class BeforeForward(_Hook):
    """Module forward pre-hook with keyword arguments: where a call begins, and what entered."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling():
            return
        session = self.session()
        if session is not None:
            session.before_forward(self.index, module, args, kwargs)


class BeforeCompiled(_Hook):
    """Forward pre-hook of a compiled wrapper: it runs outside the graph, so the inputs can be read here."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session = self.session()
        if session is not None:
            session.before_compiled(self.index, module, args, kwargs)


class AfterCompiled(_Hook):
    """Forward hook of a compiled wrapper, outside the graph too: where a call ends."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        session = self.session()
        if session is not None:
            session.after_compiled(output)


class AfterForward(_Hook):
    """Module forward hook. While a graph is traced it only writes into the module's own preallocated memory.

    On a CPU these are some rows of the output, which a sampled step looks at outside the graph; an accelerator reads an
    output once, with the operator that makes it, and writes a row of statistics. With rows of one tensor the compiler
    would make a kernel for every module, since each writes at another place, and take twice as long.
    """

    def __init__(self, session: Session, index: int, place: Place, passing: bool) -> None:
        super().__init__(session, index)
        self.row = place.row
        self.sample = None if place.sample is None else place.sample.values
        self.function, self.rectifier, self.passing = place.function, place.rectifies, passing

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling():
            out = output[0] if isinstance(output, tuple) else output
            if self.passing:
                self.row[-1:].fill_(1.0)
            elif not isinstance(out, Tensor) or not out.is_floating_point() or not out.numel():
                return
            elif self.sample is not None and out.device.type == "cpu":
                some = some_rows(out, MOST_UNITS if self.rectifier else MOST)
                self.sample[: some.shape[0]].copy_(some)
            else:
                new = output_row(out, self.function, None, out if self.rectifier else None)
                row = self.row[: new.shape[0]]
                row.copy_(torch.maximum(row, new))
            return
        session = self.session()
        if session is not None:
            session.after_forward(self.index, module, args, output)


@functools.cache
def disabled() -> tuple[type[BeforeCompiled], type[AfterCompiled]]:
    """The two for a model that is compiled in place: Dynamo calls them outside the graph, and must not trace them.

    Made when first needed, for `torch.compiler.disable` loads Dynamo.
    """

    class BeforeInPlace(BeforeCompiled):
        __call__ = torch.compiler.disable(BeforeCompiled.__call__)

    class AfterInPlace(AfterCompiled):
        __call__ = torch.compiler.disable(AfterCompiled.__call__)

    return BeforeInPlace, AfterInPlace


@functools.cache
def disabled_forward() -> tuple[type[BeforeForward], type[AfterForward]]:
    """The same for a block inside an eager model that is compiled in place."""

    class BeforeBlock(BeforeForward):
        __call__ = torch.compiler.disable(BeforeForward.__call__)

    class AfterBlock(AfterForward):
        __call__ = torch.compiler.disable(AfterForward.__call__)

    return BeforeBlock, AfterBlock


class Around(_Hook):
    """Forward pre-hook of DistributedDataParallel: the forward came through it."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        session = self.session()
        if session is not None:
            session.around = True


class AfterGradient(_Hook):
    """Post-accumulate-grad hook of one parameter: the first of a backward pass queues the end-of-backward read."""

    def __call__(self, parameter: Tensor) -> None:
        session = self.session()
        if session is not None and not session.in_backward:  # asked here: it is called once a parameter
            session.after_gradient()
