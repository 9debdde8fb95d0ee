"""`ejb submit` as typer knows it: for help, completion, and every line that the quick start leaves to it."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Optional

import typer
from typer.core import TyperCommand

from ejbd.cli import completion
from ejbd.cli.options import client
from ejbd.cli.submission import sbatchwords, submitting
from ejbd.cli.submission import words as submit_words
from ejbd.cli.submission.words import KNOWN, OPTIONS, Kind, Option, Typed

_IS_COMMAND = "ejb.is_command"
# typer reads these at run time, where `X | None` is no type of its own
_TYPES: dict[Kind, Any] = {
    Kind.TEXT: Optional[str],  # noqa: UP045
    Kind.WHOLE: Optional[int],  # noqa: UP045
    Kind.NUMBER: Optional[float],  # noqa: UP045
    Kind.FLAG: bool,
    Kind.SWITCH: Optional[bool],  # noqa: UP045
    Kind.TEXTS: Optional[list[str]],  # noqa: UP045
}
_WORDS = typer.Argument(
    metavar="SCRIPT [ARGS]... | -- COMMAND [ARGS]...",
    help="Submit an sbatch script as it is (`-`: from standard input), or start a command on every rank.",
)


class SubmitCommand(TyperCommand):
    """Takes every option of sbatch, and knows whether a `--` stood before the words, which makes them a command."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        given = sbatchwords.translated(args, KNOWN)
        ctx.meta[_IS_COMMAND] = submit_words.is_command(given)
        return super().parse_args(ctx, given)


def submit(context: typer.Context, words: list[str] | None = None, **given: Any) -> None:
    """Submit a job: an sbatch script as it is, or a command."""
    typed = Typed(given, words or [], bool(context.meta.get(_IS_COMMAND)))
    raise typer.Exit(submitting.submit(typed, client(context)))


def _parameter(option: Option) -> inspect.Parameter:
    spellings = option.spellings
    if option.opposites:
        spellings = tuple(f"{yes}/{no}" for yes, no in zip(spellings, option.opposites, strict=True))
    told = typer.Option(
        *spellings,
        metavar=option.metavar,
        help=option.help,
        autocompletion=getattr(completion, option.offers) if option.offers else None,
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if option.kind is Kind.FLAG else None,
        annotation=Annotated[_TYPES[option.kind], told],
    )


# What typer makes the command from: the options of the table.
_FREE = inspect.Parameter.POSITIONAL_OR_KEYWORD
submit.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter("context", _FREE, annotation=typer.Context),
        inspect.Parameter("words", _FREE, default=None, annotation=Annotated[Optional[list[str]], _WORDS]),  # noqa: UP045
        *map(_parameter, OPTIONS),
    ]
)


def add_to(app: typer.Typer) -> None:
    # Behind the script's name everything is the script's, as with sbatch.
    app.command("submit", cls=SubmitCommand, context_settings={"allow_interspersed_args": False})(submit)
