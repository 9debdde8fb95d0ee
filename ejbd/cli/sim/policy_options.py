"""Options for the parameters of EJB's policy, one for each that is declared."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Optional, get_type_hints

import typer

from ejbd.errors import Code, EjbError
from ejbd.plugins.policies import Declared, declared_by

Command = Callable[..., None]


def policy_options(*, unless: str = "", without: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """A command with one option for each parameter in its `**parameters`, under the names of their fields.

    `unless`: for commands in which a parameter that is not given stays as it is, and is not among them. The text says
    what it then is. `without`: these have no option.
    """

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        named = inspect.signature(command).parameters.values()
        own = [p for p in named if p.kind is not p.VAR_KEYWORD]
        hints = {p.name: hints[p.name] for p in own}
        for one in (one for name, one in declared_by().items() if name not in without):
            hints[one.name] = _option(one, unless)
            default = None if unless else str(one.default) if one.by_degree else one.simulated_default
            own.append(inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default))

        @functools.wraps(command)
        def wrapper(*words: Any, **given: Any) -> None:
            found = {key: value for key, value in given.items() if value is not None or key in fixed}
            command(*words, **{key: _parsed(key, value) for key, value in found.items()})

        fixed = {parameter.name for parameter in own} - set(declared_by())
        wrapper.__annotations__ = hints
        signature = inspect.Signature([p.replace(annotation=hints[p.name]) for p in own], return_annotation=None)
        setattr(wrapper, "__signature__", signature)  # noqa: B010  (typer reads it)
        return wrapper

    return decorate


def _parsed(name: str, value: Any) -> Any:
    """The text of a parameter that may have one figure by degree as its value."""
    one = declared_by().get(name)
    if one is None or not one.by_degree or not isinstance(value, str):
        return value
    try:
        return one.parse(value)
    except ValueError as error:
        hint = f"a number of {one.simulated_least:g} at least, or one by degree: 2:0.8,4:1.1,8:1.7"
        raise EjbError(Code.INVALID, f"--{one.key} {value} cannot be: {error}", hint=hint) from None


def _option(one: Declared, unless: str) -> Any:
    key, kind = one.key, str if one.by_degree else one.kind
    names = f"--{key}/--no-{key}" if kind is bool else f"--{key}"
    bounds = {"min": kind(one.simulated_least)} if kind in (int, float) else {}
    told = one.about.says[0].upper() + one.about.says[1:]
    if one.by_degree:
        told += ", or by degree: 2:0.8,4:1.1"
    option = typer.Option(names, help=f"{told} ({unless})." if unless else f"{told}.", **bounds)
    return Annotated[Optional[kind] if unless else kind, option]  # noqa: UP045
