"""Kernels compiled as they stand, where numba is installed. Until something is compiled, numba is not imported.

Compiled code is kept in a folder of the user's cache that is named after all sources that kernels depend on, since
numba itself would not see a callee or a constant change. It is named after where these stand, too: numba looks for
compiled code by the path of its source, so that a second clone finds nothing of the first one's.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ejbd.core import kernel as of_core
from ejbd.core.kernel import is_kernel
from ejbd.files.paths import user_folder
from ejbd.sim import progress

PLAIN = "EJB_SIM_PLAIN"  # set: kernels run as plain Python
NUMBA_PLAIN = "NUMBA_DISABLE_JIT"  # numba's own word for it


@functools.cache
def can_compile() -> bool:
    """Whether there is a compiler, and it is not forbidden."""
    if os.environ.get(PLAIN) or os.environ.get(NUMBA_PLAIN, "0") != "0":
        return False
    return importlib.util.find_spec("numba") is not None


def at_hand(function: Callable[..., object]) -> bool:
    """Whether the kernel has been compiled before on this machine, in this version."""
    return _done_mark(function).exists()


def compiled(function: Callable[..., object], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """The kernel compiled for these arguments, together with every kernel that it calls; it is not run.

    The first time on a machine takes from five to thirty seconds, which is told as it goes on; later ones a moment.
    """
    import numba
    from numba.core import event

    from ejbd.sim.numba_backend import pass_by_reference

    for argument in arguments:
        pass_by_reference(argument)
    setattr(numba.config, "CACHE_DIR", str(_folder()))  # noqa: B010  (a name that numba makes at run time)
    dispatcher = _dispatcher(function, is_called_by_python=True)
    types_ = tuple(numba.typeof(argument) for argument in arguments)  # type: ignore[no-untyped-call]
    if at_hand(function):
        dispatcher.compile(types_)
        return dispatcher  # type: ignore[no-any-return]
    kernels: dict[str, Callable[..., object]] = {}
    _gather(function, kernels)
    what = f"compiling {len(kernels)} kernels, once for this version"
    progress.tell(what, 0.0)
    done: list[str] = []

    class Count(event.Listener):
        def on_start(self, event: Any) -> None:
            pass

        def on_end(self, event: Any) -> None:
            done.append("")
            progress.tell(what, min(1.0, len(done) / len(kernels)))

    with event.install_listener("numba:compile", Count()):
        dispatcher.compile(types_)
    try:
        _done_mark(function).touch()
    except OSError:  # a cache that cannot be written to: compiled for this process alone
        pass
    return dispatcher  # type: ignore[no-any-return]


def source_digest(*folders: Path, word: bytes = b"") -> str:
    """A name for the modules in the folders, and in folders within, that have `word` in them."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            text = path.read_bytes()
            if word in text:
                digest.update(str(path.relative_to(folder)).encode() + b"\0" + text)
    return digest.hexdigest()


@functools.cache
def _folder() -> Path:
    versions = f"{importlib.metadata.version('numba')} {sys.version} {of_core.__name__}"
    core = source_digest(Path(of_core.__file__).parent)
    where = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256(f"{versions} {where} {core}".encode())
    digest.update(source_digest(Path(__file__).parent, word=of_core.__name__.encode()).encode())
    digest.update(Path(__file__).with_name("numba_backend.py").read_bytes())
    return user_folder("XDG_CACHE_HOME", ".cache") / "ejb" / f"kernels-{digest.hexdigest()[:16]}"


def _done_mark(function: Callable[..., object]) -> Path:
    return _folder() / f"{function.__name__}.compiled"


def _called(function: Callable[..., object]) -> dict[str, Callable[..., object]]:
    names = function.__code__.co_names
    known = function.__globals__
    return {name: known[name] for name in names if is_kernel(known.get(name))}


def _gather(function: Callable[..., object], found: dict[str, Callable[..., object]]) -> None:
    name = f"{function.__module__}.{function.__qualname__}"
    if name in found:
        return
    found[name] = function
    for callee in _called(function).values():
        _gather(callee, found)


@functools.cache
def _dispatcher(function: Callable[..., object], is_called_by_python: bool = False) -> Any:
    from ejbd.sim.numba_backend import make_dispatcher

    known = dict(function.__globals__)
    for name, callee in _called(function).items():
        known[name] = _dispatcher(callee)
    twin = types.FunctionType(function.__code__, known, function.__name__, function.__defaults__)
    twin.__qualname__ = function.__qualname__
    twin.__module__ = function.__module__
    return make_dispatcher(twin, is_called_by_python=is_called_by_python)
