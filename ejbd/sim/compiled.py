"""Kernels compiled as they stand, where numba is installed; the same functions in plain Python where it is not."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ejbd.core.kernel import is_kernel

P = ParamSpec("P")
R = TypeVar("R")

PLAIN = "EJB_SIM_PLAIN"  # set: kernels run as plain Python
NUMBA_PLAIN = "NUMBA_DISABLE_JIT"  # numba's own word for it


@functools.cache
def can_compile() -> bool:
    """Whether kernels are compiled here."""
    if os.environ.get(PLAIN) or os.environ.get(NUMBA_PLAIN, "0") != "0":
        return False
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The kernel, compiled together with every kernel that it calls."""
    if not can_compile():
        return function
    kernels: dict[str, types.FunctionType] = {}
    _gather(function, kernels)
    _keep_in(kernels)
    return _compile(function)  # type: ignore[no-any-return]


def _called(function: Callable[..., object]) -> dict[str, types.FunctionType]:
    names = function.__code__.co_names
    known = function.__globals__
    return {name: known[name] for name in names if is_kernel(known.get(name))}


def _gather(function: Callable[..., object], found: dict[str, types.FunctionType]) -> None:
    name = f"{function.__module__}.{function.__qualname__}"
    if name in found:
        return
    found[name] = function  # type: ignore[assignment]
    for callee in _called(function).values():
        _gather(callee, found)


@functools.cache
def _compile(function):  # type: ignore[no-untyped-def]
    import numba

    known = dict(function.__globals__)
    for name, callee in _called(function).items():
        known[name] = _compile(callee)
    twin = types.FunctionType(function.__code__, known, function.__name__, function.__defaults__)
    twin.__qualname__ = function.__qualname__
    twin.__module__ = function.__module__
    # Kernels allocate nothing, so arrays need not be counted, which makes both compiling and running much faster.
    options: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}
    return numba.njit(**options)(twin)


@functools.cache
def _source(path: str) -> bytes:
    return Path(path).read_bytes()


def _keep_in(kernels: dict[str, types.FunctionType]) -> None:
    """Compiled code is kept in a folder named after all sources: numba itself would not see a callee change."""
    import numba

    digest = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for path in sorted({inspect.getfile(kernel) for kernel in kernels.values()}):
        digest.update(_source(path))
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = str(Path(base) / "ejb" / f"kernels-{digest.hexdigest()[:16]}")
    setattr(numba.config, "CACHE_DIR", folder)  # noqa: B010  (a name that numba makes at run time)
