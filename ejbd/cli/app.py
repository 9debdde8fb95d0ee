"""All commands of `ejb` as one typer application. A command's module is imported when the command is wanted."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from ejbd.cli.options import MaybeText
from ejbd.release.version import told

EPILOG = (
    "Exit codes: 0 done; 1 a check failed; 2 the request cannot be right; 3 there is no such job, queue or token; "
    "4 not in the present state; 5 not allowed; 6 this job, queue or site cannot do it; 7 the batch system; "
    "8 spool or database; 9 no daemon answers; 70 a fault of EJB; 130 interrupted. "
    "`wait` and `submit --wait` exit as the job does (124 time-out, 125 cancelled)."
)
_PLAIN = {"help_option_names": ["-h", "--help"]}
# In the order of the help. Each module has `add_to`, which adds the commands that it has.
MODULES = {
    "submit": "submission.command",
    "status": "status",
    "wait": "waiting",
    "watch": "jobs",
    "explain": "jobs",
    "events": "jobs",
    "timeline": "jobs",
    "logs": "jobs",
    "cancel": "jobs",
    "hold": "jobs",
    "release": "jobs",
    "evolve": "evolve",
    "resize": "elastic",
    "elastic": "elastic",
    "window": "site",
    "doctor": "site",
    "drain": "drain",
    "queue": "site",
    "token": "site",
    "report": "report",
    "web": "web",
    "admin": "admin",
    "history": "history",
    "pool": "pool",
    "profile": "profile",
    "workflow": "workflow",
    "sim": "sim.commands",
    "demo": "demo",
}


class _Commands(MutableMapping[str, Any]):
    """The commands by their names; each is made when it is asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            made = typer.Typer(rich_markup_mode=None, context_settings=_PLAIN)
            importlib.import_module(f"ejbd.cli.{MODULES[name]}").add_to(made)
            self._made |= get_group(made).commands
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError("a command cannot be taken away")

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


class _Group(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()


app = typer.Typer(
    name="ejb",
    help="Run parallel jobs that start early on what is idle, and grow (elastic job bundling).",
    epilog=EPILOG,
    cls=_Group,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help pages would cost every command their import
    pretty_exceptions_enable=False,
    context_settings=_PLAIN,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(told("ejb"))
        raise typer.Exit


@app.callback()
def ejb(
    context: typer.Context,
    url: Annotated[
        MaybeText, typer.Option("--url", help="Ask the daemon at this address; EJB_URL, with EJB_TOKEN.")
    ] = None,
    socket: Annotated[
        MaybeText, typer.Option("--socket", help="Ask the daemon at this unix socket; EJB_SOCKET.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print version, commit and date.")
    ] = False,
) -> None:
    """Run parallel jobs that start early on what is idle, and grow (elastic job bundling)."""
    context.obj = {"url": url, "socket": socket}
