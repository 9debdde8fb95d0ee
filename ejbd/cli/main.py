"""`ejb`: the command line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ejbd import __version__
from ejbd.cli import jobs, site
from ejbd.cli.options import MaybeText
from ejbd.cli.output import current
from ejbd.cli.sim import sim_app
from ejbd.cli.status import status
from ejbd.cli.submit import SubmitCommand, submit
from ejbd.cli.waiting import wait
from ejbd.errors import EjbError

EPILOG = (
    "Exit codes: 0 done; 1 a check failed; 2 the request cannot be right; 3 there is no such job, queue or token; "
    "4 not in the present state; 5 not allowed; 6 this job, queue or site cannot do it; 7 the batch system; "
    "8 spool or database; 9 no daemon answers; 70 a fault of EJB; 130 interrupted. "
    "`wait` and `submit --wait` exit as the job does (124 time-out, 125 cancelled)."
)
_PLAIN = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="ejb",
    help="Elastic job bundling: parallel jobs that start early on what is idle, and grow.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help pages would cost every command their import
    pretty_exceptions_enable=False,
    context_settings=_PLAIN,
)
# Behind the script's name everything is the script's, as with sbatch.
app.command("submit", cls=SubmitCommand, context_settings={**_PLAIN, "allow_interspersed_args": False})(submit)
app.command()(status)
app.command()(wait)
app.command()(jobs.watch)
app.command()(jobs.explain)
app.command()(jobs.events)
app.command()(jobs.timeline)
app.command()(jobs.logs)
app.command()(jobs.cancel)
app.command()(jobs.hold)
app.command()(jobs.release)
app.command()(site.window)
app.command()(site.doctor)
app.add_typer(site.queue_app, name="queue")
app.add_typer(site.token_app, name="token")
app.add_typer(sim_app, name="sim")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ejb {__version__}")
        raise typer.Exit


@app.callback()
def ejb(
    context: typer.Context,
    url: Annotated[MaybeText, typer.Option("--url", help="Address of the daemon; EJB_URL, with EJB_TOKEN.")] = None,
    socket: Annotated[MaybeText, typer.Option("--socket", help="Unix socket of the daemon; EJB_SOCKET.")] = None,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Elastic job bundling: parallel jobs that start early on what is idle, and grow."""
    context.obj = {"url": url, "socket": socket}


def main() -> None:
    """Entry point."""
    try:
        app(prog_name="ejb")
    except EjbError as error:
        sys.exit(current().failure(error))
    except BrokenPipeError:  # the reader (head, less) has had enough
        sys.stderr.close()
        sys.exit(0)


if __name__ == "__main__":
    main()
