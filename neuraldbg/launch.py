"""`neuraldbg run`: a script runs as `python script` would run it, and what it trains is watched.

The command replaces its own process by a fresh one, in which nothing but this module is loaded before the script:
torch is imported by the script, when and as it wants it. What optimizers train is then watched by `watch/discover.py`.
The script has its own arguments, `__main__`, `sys.path`, stdout, signals and exit code; we speak on stderr, at the end.
"""

from __future__ import annotations

import atexit
import builtins
import importlib.machinery
import importlib.util
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from neuraldbg.switch import is_off

if TYPE_CHECKING:
    from neuraldbg.launch_watch import Watch

FAILED = 3  # the exit code under --fail-on
RUNS = "neuraldbg_runs"
UNSEEN = "torch was not imported"
_CODE = """
import sys
if sys.path[:1] == [""]: del sys.path[0]
sys.path.append(sys.argv[2])
from neuraldbg.launch import main
sys.path.pop()
main(sys.argv[1])
"""


@dataclass(frozen=True)
class Options:
    """target: a script's path, or with `module` a module's name. folder: where journal and reports go.

    fail_on: the verdict ("failed" or "warning") from which on the exit code is 3 where the script's own is 0.
    """

    target: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    folder: str | None = None
    fail_on: str | None = None
    as_json: bool = False


def replace_process(options: Options) -> NoReturn:
    """Go on as the script's process; where the system has no such call, as its parent with its exit code."""
    home = str(Path(__file__).parents[1])  # where this package lies, in case only the current folder leads to it
    command = [sys.executable, "-c", _CODE, json.dumps(asdict(options)), home]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        sys.exit(subprocess.call(command))
    os.execv(sys.executable, command)


def main(text: str) -> None:
    """Run the script that the options, in JSON, name."""
    plain = json.loads(text)
    options = Options(**{**plain, "arguments": tuple(plain["arguments"])})
    if is_off():
        _execute(options)
        return
    watch = Watching(options)
    after_import("torch", watch.begin)
    atexit.register(watch.report)  # the last of all: handlers run in the opposite order
    try:
        _execute(options)
    except SystemExit as end:
        _join_threads()
        watch.end()
        code = 0 if end.code is None else end.code
        if code == 0 and watch.is_failed():
            raise SystemExit(FAILED) from None
        raise
    except BaseException as error:
        watch.end(error)
        _hide_our_frames(error)
        raise
    _join_threads()
    watch.end()
    if watch.is_failed():
        sys.exit(FAILED)


class Watching:
    """What is watched, from the script's import of torch on; nothing of it raises into the script."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._folder = options.folder or _free_folder(options)  # the script may change the current folder
        self._process = os.getpid()
        self._watch: Watch | None = None
        self._reported = False

    def begin(self) -> None:
        try:
            from neuraldbg.launch_watch import Watch

            self._watch = Watch(self._folder, command_line(self._options))
        except Exception as error:
            say(f"the training is not watched, by an error of NeuralDBG: {error!r}")

    def end(self, error: BaseException | None = None) -> None:
        if self._watch is not None:
            self._watch.end(error)

    def is_failed(self) -> bool:
        return self._watch is not None and self._watch.is_failed(self._options.fail_on)

    def report(self) -> None:
        """The verdicts, to stderr, once and in the process that was started."""
        if self._reported or os.getpid() != self._process:
            return
        self._reported = True
        with suppress(OSError, ValueError):  # the reader is gone, or the script closed it
            sys.stdout.flush()
        with suppress(OSError, ValueError):
            if self._watch is not None:
                self._watch.end()
                self._watch.tell(self._options.as_json)
            elif self._options.as_json:
                say(json.dumps({"nothing_seen": UNSEEN, "folder": None, "sessions": []}), name="")
            else:
                say(f"no training was seen: {UNSEEN}")


def say(text: str, name: str = "neuraldbg: ") -> None:
    print(f"{name}{text}", file=sys.stderr)


def _free_folder(options: Options) -> str:
    """`neuraldbg_runs/20261130-093000-train` here, or among the temporary files if nothing can be written here."""
    here = os.getcwd()
    root = os.path.join(here if os.access(here, os.W_OK) else tempfile.gettempdir(), RUNS)
    target = options.target if options.module else Path(options.target).stem
    rank = os.environ.get("RANK", "")
    name = time.strftime("%Y%m%d-%H%M%S") + f"-{target}" + (f"-rank{rank}" if rank else "")
    names = (name + (f"-{number}" if number > 1 else "") for number in itertools.count(1))
    return next(path for name in names if not os.path.exists(path := os.path.join(root, name)))


def _join_threads() -> None:
    """What Python does before it exits: threads that are no daemons go on to their end."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def _execute(options: Options) -> None:
    """Run the target as `__main__`."""
    module = types.ModuleType("__main__")
    if options.module:
        code = _module(options.target, module)
    else:
        path = os.path.abspath(options.target)
        _path(os.path.dirname(os.path.realpath(path)))
        module.__file__ = path
        module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        sys.argv[:] = [options.target, *options.arguments]
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    sys.argv[1:] = options.arguments
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    # running the user's script is what this is for
    exec(code, module.__dict__)  # nosec B102


def _module(name: str, module: types.ModuleType) -> types.CodeType:
    """The code of a module, or of a package's `__main__`, as `python -m` finds it."""
    _path(os.getcwd())
    sys.argv[:] = ["-m"]
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    code = spec.loader.get_code(spec.name) if spec is not None and hasattr(spec.loader, "get_code") else None  # type: ignore[union-attr]
    if spec is None or code is None:
        say(f"there is no module {name!r} that could be run; give what stands behind `python -m`")
        sys.exit(2)
    module.__spec__, module.__package__, module.__loader__ = spec, spec.parent, spec.loader
    if spec.origin is not None:
        module.__file__ = sys.argv[0] = spec.origin
    return code  # type: ignore[no-any-return]


def _path(first: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, first)


def _hide_our_frames(error: BaseException) -> None:
    """A traceback that reads as without us: it begins with the script's own frames."""
    hook = sys.excepthook

    def shown(kind: type[BaseException], raised: BaseException, trace: types.TracebackType | None) -> None:
        inner = trace
        while inner is not None and inner.tb_frame.f_code is not _execute.__code__:
            inner = inner.tb_next
        if inner is not None:
            trace = inner.tb_next
        hook(kind, raised.with_traceback(trace), trace)

    sys.excepthook = shown


class _After(MetaPathFinder):
    """Finds one module as everyone would, and calls back when it has been imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others if hasattr(finder, "find_spec"))
        spec = next((spec for spec in found if spec is not None), None)
        loader = spec.loader if spec is not None else None
        if loader is None:
            return spec
        original = loader.exec_module

        def execute(module: types.ModuleType) -> None:
            del loader.__dict__["exec_module"]
            if self in sys.meta_path:  # it stays until now: libraries look whether a module is there before it is used
                sys.meta_path.remove(self)
            original(module)
            self.then()

        loader.__dict__["exec_module"] = execute
        return spec


def after_import(name: str, then: Callable[[], None]) -> None:
    """Call `then` when this module has been imported by somebody, or now if it is."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _After(name, then))


def command_line(options: Options) -> dict[str, Any]:
    """What was run, for run.json."""
    return {
        "target": options.target,
        "module": options.module,
        "arguments": list(options.arguments),
        "started": time.time(),
        "python": sys.version.split()[0],
    }
