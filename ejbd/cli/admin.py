"""`ejb admin`: what only administrators of a daemon ask for."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from ejbd.cli.options import AsJson, MaybePath, MaybeText, client, output
from ejbd.options.moments import parse_moment
from ejbd.release.shipped import DEPLOY, EXAMPLES

admin_app = typer.Typer(help="Look after the daemon (administrators).", no_args_is_help=True)


@admin_app.callback()
def admin() -> None:
    """Look after the daemon (administrators)."""


@admin_app.command("audit")
def audit(
    context: typer.Context,
    user: Annotated[
        MaybeText, typer.Option("--user", "-u", help="Show what this user did, and what was done on their behalf.")
    ] = None,
    job: Annotated[MaybeText, typer.Option("--job", "-j", help="Show what was done to this job, by its id.")] = None,
    outcome: Annotated[
        MaybeText, typer.Option("--outcome", help="Show only what was done, refused, failed or unanswered.")
    ] = None,
    since: Annotated[
        MaybeText, typer.Option("--since", metavar="TIME", help="Show from then on: 2026-11-30, 2026-11-30T06:00 ...")
    ] = None,
    until: Annotated[MaybeText, typer.Option("--until", metavar="TIME", help="Show up to then.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", metavar="COUNT", help="Show the newest so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show which user did what, by which proof, for which owner, and how it ended."""
    out = output(as_json, False)
    now_s = time.time()
    query: dict[str, Any] = {"user": user, "job": job, "outcome": outcome, "limit": limit}
    query["since_s"] = parse_moment(since, now_s) if since is not None else None
    query["until_s"] = parse_moment(until, now_s) if until is not None else None
    found = client(context).get("/v1/audit", **query)

    def human() -> None:
        rows = [
            [one["at"], one["user"] or "-", one["proof"] or "-", one["on_behalf_of"] or "-", _ended(one), one["act"]]
            for one in found["lines"]
        ]
        out.table(["AT", "USER", "PROOF", "FOR", "OUTCOME", "ACT"], rows)

    out.result(found, human)


@admin_app.command("files")
def files(as_json: AsJson = False) -> None:
    """Show where the files are that came along: units, settings, alert rules, completion; and the examples."""
    found = {"deploy": str(DEPLOY), "examples": str(EXAMPLES)}
    out = output(as_json, False)
    out.result(found, lambda: out.lines(f"{name:<9} {path}" for name, path in found.items()))


@admin_app.command("settings")
def settings() -> None:
    """Print every setting of ejbd as a TOML file: what it is, its unit, its bounds, its default. No daemon is asked."""
    from ejbd.cli.settings_file import settings_file

    output(False, False).line(settings_file().removesuffix("\n"))


@admin_app.command("unknown")
def unknown(
    context: typer.Context,
    cancel: Annotated[
        list[str] | None, typer.Option("--cancel", metavar="JOB", help="Have done with this job, by its id.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the jobs of which it is not known how they ended, or have done with them: they are cancelled then."""
    out, daemon = output(as_json, False), client(context)
    for job in cancel or ():
        daemon.request("POST", f"/v1/jobs/{quote(job, safe='')}/cancel")
    found = list(daemon.jobs(state="unknown"))

    def human() -> None:
        rows = [[job["id"], job["user"], job["name"], job["reason"]] for job in found]
        out.table(["ID", "USER", "NAME", "REASON"], rows)

    out.result({"jobs": found}, human)


Config = Annotated[
    MaybePath, typer.Option("--config", metavar="FILE", help="Read this ejbd.toml; which database it is.")
]


def _ejbd(command: str, config: Path | None, *words: str) -> None:
    """Database and settings are the daemon's affair: its own program does it, with its own exit code."""
    argv = [sys.executable, "-m", "ejbd.daemon", command, *words, *(["--config", str(config)] if config else [])]
    code = subprocess.run(argv, check=False).returncode
    if code:
        raise typer.Exit(code)


@admin_app.command("backup")
def backup(file: Annotated[Path, typer.Argument(help="Write a new file.")], config: Config = None) -> None:
    """Copy the daemon's database into a new file, as of one moment. The daemon may run meanwhile."""
    _ejbd("backup", config, str(file))


@admin_app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(help="Read what `ejb admin backup` has written.")],
    config: Config = None,
    replace: Annotated[bool, typer.Option("--replace", help="Do so where the database holds jobs, too.")] = False,
) -> None:
    """Make the daemon's database what a copy holds. No daemon may run on it."""
    _ejbd("restore", config, str(file), *["--replace"] * replace)


@admin_app.command("check")
def check(config: Config = None) -> None:
    """Read the daemon's whole database. Exit with 1 where something is wrong with it."""
    _ejbd("check", config)


@admin_app.command("adopt")
def adopt(
    config: Config = None,
    leave_jobs: Annotated[
        bool, typer.Option("--leave-jobs", help="Do so where the database has open jobs, too: another daemon has them.")
    ] = False,
) -> None:
    """Make a copy of a daemon's database another site's. No daemon may run on it, and it needs a spool of its own."""
    _ejbd("adopt", config, *["--leave-jobs"] * leave_jobs)


def _ended(one: dict[str, Any]) -> str:
    return f"{one['outcome']} ({one['code']})" if one["code"] else str(one["outcome"])


def add_to(app: typer.Typer) -> None:
    app.add_typer(admin_app, name="admin")
