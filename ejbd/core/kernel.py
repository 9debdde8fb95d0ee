"""Kernels: the rules themselves, written so that they run as plain Python and can be compiled as they stand.

A function marked with :func:`kernel` works on numbers and on vectors that are only indexed. The live manager calls it
with lists and never loads a compiler; the simulator compiles the same source and calls it with arrays. A kernel calls
other kernels and the standard `math` module only, allocates nothing, and keeps every name to one type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

_MARK = "ejb_kernel"

F = TypeVar("F", bound=Callable[..., object])


class Floats(Protocol):
    """A vector of seconds (or of work): a list, or an array of float64."""

    def __getitem__(self, index: int, /) -> float: ...

    def __setitem__(self, index: int, value: float, /) -> None: ...

    def __len__(self) -> int: ...


class Ints(Protocol):
    """A vector of counts, indices or flags: a list, or an array of int64."""

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...

    def __len__(self) -> int: ...


def kernel(function: F) -> F:
    """Mark a function as a kernel. It stays the plain function that it is."""
    setattr(function, _MARK, True)
    return function


def is_kernel(value: object) -> bool:
    """Whether a value is a function marked with :func:`kernel`."""
    return getattr(value, _MARK, False) is True
