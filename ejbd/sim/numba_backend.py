"""What numba is taught, so that kernels compile in a fraction of the time: it is imported where something is compiled.

A named tuple of vectors goes by reference. Numba passes it by value, and an array as seven numbers: a world would be
six hundred arguments of each kernel.

A kernel is optimised once, together with what calls it. Numba makes a library of each function, with a copy of all that
the function calls, and optimises each copy anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numba
import numba._dynfunc
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.datamodel import models
from numba.core.typed_passes import NativeLowering
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, infer_getattr, lower_getattr_generic, register_model, typeof_impl, unbox


class VectorTuple(types.Type):
    """A named tuple with no members but arrays, or such tuples."""

    def __init__(self, kind: type, members: dict[str, types.Type]) -> None:
        self.members = members
        # Short, since it is part of the name of each function that takes one.
        digest = hashlib.sha256(repr([kind.__module__, *members.items()]).encode()).hexdigest()
        super().__init__(f"{kind.__name__}_{digest[:12]}")


@register_model(VectorTuple)
class _Pointer(models.PrimitiveModel):
    """A pointer to what the members are, one after the other."""

    def __init__(self, manager: Any, kind: VectorTuple) -> None:
        members = [manager.lookup(member).get_value_type() for member in kind.members.values()]
        super().__init__(manager, kind, ir.LiteralStructType(members).as_pointer())


@infer_getattr
class _Members(AttributeTemplate):
    key = VectorTuple

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        return kind.members.get(name)


@lower_getattr_generic(VectorTuple)
def _read_member(context: Any, builder: Any, kind: VectorTuple, value: Any, name: str) -> Any:
    """No member is ever another array. So what has been read of one need not be read again after a vector changed."""
    never_changes = builder.module.add_metadata([])

    def load(pointer: Any) -> Any:
        found = builder.load(pointer)
        found.set_metadata("invariant.load", never_changes)
        return found

    member: Any = kind.members[name]
    pointer = cgutils.gep_inbounds(builder, value, 0, list(kind.members).index(name))
    if isinstance(member, VectorTuple):
        return load(pointer)
    array = context.make_array(member)(context, builder)
    for place, field in enumerate(context.data_model_manager.lookup(member)._fields):
        at = cgutils.gep_inbounds(builder, pointer, 0, place)
        if field in ("shape", "strides"):
            axes = [load(cgutils.gep_inbounds(builder, at, 0, axis)) for axis in range(member.ndim)]
            setattr(array, field, cgutils.pack_array(builder, axes))
        elif field not in ("meminfo", "parent"):  # kernels own no memory
            setattr(array, field, load(at))
    return array._getvalue()


@unbox(VectorTuple)
def _from_python(kind: VectorTuple, value: Any, c: Any) -> NativeValue:
    """The members lie on the stack of what Python calls, for as long as that runs."""
    failed = cgutils.alloca_once_value(c.builder, cgutils.false_bit)
    room = cgutils.alloca_once(c.builder, c.context.get_value_type(kind).pointee)
    for place, member in enumerate(kind.members.values()):
        native = c.unbox(member, c.pyapi.tuple_getitem(value, place))
        c.builder.store(native.value, cgutils.gep_inbounds(c.builder, room, 0, place))
        with c.builder.if_then(native.is_error, likely=False):
            c.builder.store(cgutils.true_bit, failed)
    return NativeValue(room, is_error=c.builder.load(failed))


_by_reference: set[type] = set()


def pass_by_reference(values: Any) -> None:
    """From now on numba takes such a value by reference, and what is within it, if it is a named tuple of vectors."""
    kind = type(values)
    if kind in _by_reference or not _is_of_vectors(values):
        return
    for value in values:
        pass_by_reference(value)
    _by_reference.add(kind)

    @typeof_impl.register(kind)
    def _type_of(value: Any, context: Any) -> types.Type:
        members = {name: typeof_impl(one, context) for name, one in zip(value._fields, value, strict=True)}
        return VectorTuple(kind, members)


def _is_of_vectors(value: Any) -> bool:
    return hasattr(value, "_fields") and all(isinstance(one, np.ndarray) or _is_of_vectors(one) for one in value)


class _Part(JITCodeLibrary):
    """The code of a kernel that only kernels call. It is as it was written: neither optimised, nor run from here."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0


class _Whole(JITCodeLibrary):
    """The code of a kernel that Python calls, and of all that it calls."""

    def finalize(self) -> None:
        parts = list(self._linking_libraries)
        for part in parts:  # which grows meanwhile
            parts += [one for one in part._linking_libraries if one not in parts]
        self._linking_libraries = parts
        super().finalize()


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerPart(NativeLowering):
    _name = "ejb_lower_part"

    def run_pass(self, state: Any) -> bool:
        library = state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags = state.flags.copy()
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        fndesc = lowered.fndesc
        # Its callers find it by a function object, which is never called.
        name = numba._dynfunc.make_function(fndesc.lookup_module(), fndesc.qualname, "", 0, lowered.env, (library,))
        state.targetctx.insert_user_function(name, fndesc, [library])
        state["cr"] = lowered._replace(cfunc=name)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerWhole(NativeLowering):
    _name = "ejb_lower_whole"

    def run_pass(self, state: Any) -> bool:
        state.library = _Whole(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


def _pipeline(state: Any, lowering: type) -> list[Any]:
    manager = DefaultPassBuilder.define_nopython_pipeline(state)
    manager.passes = [(lowering if one is NativeLowering else one, told) for one, told in manager.passes]
    manager.finalize()
    return [manager]


class _PartCompiler(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        return _pipeline(self.state, _LowerPart)


class _WholeCompiler(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        return _pipeline(self.state, _LowerWhole)


# Kernels allocate nothing, so arrays need not be counted, which makes both compiling and running much faster.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}


def make_dispatcher(function: Callable[..., object], *, is_called_by_python: bool) -> Any:
    """Numba's dispatcher of a kernel that calls such dispatchers. What Python calls is kept in numba's cache folder."""
    if is_called_by_python:
        return numba.njit(cache=True, pipeline_class=_WholeCompiler, **_OPTIONS)(function)
    # No object of Python's is ever unpacked for it.
    alone: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(pipeline_class=_PartCompiler, **alone, **_OPTIONS)(function)
