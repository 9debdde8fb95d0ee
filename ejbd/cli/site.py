"""Commands about the site: queues, windows, tokens, and whether everything is as it should be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ejbd.cli import completion
from ejbd.cli.options import AsJson, MaybeText, Quiet, client, output
from ejbd.cli.output import Output, printable, sentences
from ejbd.cli.show.calendars import tell_calendar
from ejbd.cli.show.trouble import tell_trouble
from ejbd.cli.show.words import clock, slots
from ejbd.client.messages import segment
from ejbd.errors import Code, EjbError
from ejbd.wire.limited import limited_to

DOCTOR_S = 300

queue_app = typer.Typer(help="Show and set the elasticity of queues.", no_args_is_help=True)
token_app = typer.Typer(help="Make and revoke bearer tokens for the REST API over TCP.", no_args_is_help=True)


def window(
    context: typer.Context,
    queue: Annotated[MaybeText, typer.Argument(help="Show only this queue.", autocompletion=completion.queues)] = None,
    as_json: AsJson = False,
) -> None:
    """Show the processors that could be used right now without delaying other jobs."""
    out = output(as_json, False)
    daemon = client(context)
    if not as_json:
        tell_trouble(daemon, out)
    found = daemon.get("/v1/windows", queue=queue)

    def human() -> None:
        rows = [[w["queue"], f"{w['free']}/{w['total']}", slots(w["slots"])] for w in found["windows"]]
        out.table(["QUEUE", "FREE", "USABLE NOW"], rows)
        for w in found["windows"]:
            for one in w["closed"]:
                until = f" until {clock(one['until_s'])}" if one["until_s"] is not None else ""
                out.line(printable(f"{w['queue']}: {one['nodes']} not used{until}: {one['what']} {one['name']}"))
        for w in found["windows"]:
            kept = w.get("kept_for")
            if kept:
                waiting = f"job {kept['job']} of {kept['user']}"
                out.line(printable(f"{w['queue']}: kept for {waiting}; until it starts, elastic jobs take none of it"))
        for blind in sorted({w["blind"] for w in found["windows"] if w.get("blind")}):
            out.line(printable(f"no window is used: {blind}"))
        for by in sorted({w["by"] for w in found["windows"] if w.get("by")}):
            out.line(f"by {by}")

    out.result(found, human)


@queue_app.command("list")
def queue_list(context: typer.Context, as_json: AsJson = False) -> None:
    """List the queues and their settings (`*`: changed at run time)."""
    out = output(as_json, False)
    found = client(context).get("/v1/queues")
    out.result(found, lambda: _queue_table(found["queues"], out))


@queue_app.command("set")
def queue_set(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Set this queue.", autocompletion=completion.queues)],
    settings: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="Set these, e.g. elasticity=on omax=16; KEY= alone resets one."),
    ],
    when: Annotated[
        MaybeText, typer.Option("--when", metavar="WINDOW", help="Set them in this window: mon-fri 20:00-08:00.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a queue at run time, always or in a window of the week (operators)."""
    out = output(as_json, False)
    changes: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise EjbError(Code.INVALID, f"{setting!r} is not KEY=VALUE", hint="e.g. elasticity=auto")
        changes[key] = _value(value)
    daemon = client(context)
    if when is None:
        found = daemon.request("PATCH", f"/v1/queues/{segment(name)}", body=changes).json()
    else:
        found = daemon.set_queue_window(name, when, changes)
    out.result(found, lambda: _queue_table([found], out))


@queue_app.command("clear")
def queue_clear(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Clear windows of this queue.", autocompletion=completion.queues)],
    when: Annotated[MaybeText, typer.Option("--when", metavar="WINDOW", help="Clear only this window.")] = None,
    as_json: AsJson = False,
) -> None:
    """Take out windows of the week, which `ejb queue set --when` has made (operators)."""
    out = output(as_json, False)
    found = client(context).clear_queue_windows(name, when)
    out.result(found, lambda: _queue_table([found], out))


@queue_app.command("show")
def queue_show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Show this queue.", autocompletion=completion.queues)],
    as_json: AsJson = False,
) -> None:
    """Show one queue, its windows of the week, and why it is paused where it is."""
    out = output(as_json, False)
    found = client(context).get(f"/v1/queues/{segment(name)}")
    out.result(found, lambda: _queue_table([found], out))


@queue_app.command("resume")
def queue_resume(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Try this queue again.", autocompletion=completion.queues)],
    as_json: AsJson = False,
) -> None:
    """Try a paused queue again at once (administrators). Its submissions or starts have kept failing."""
    out = output(as_json, False)
    found = client(context).request("POST", f"/v1/queues/{segment(name)}/resume").json()
    out.result(found, lambda: out.line(f"queue {name} is tried again"))


def _value(text: str) -> Any:
    """Numbers as numbers, nothing as null, all else as text."""
    if text == "":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


_COLUMNS = ("omax", "lambda_s", "delta", "min_processors", "max_subjobs")


def _queue_table(queues: list[dict[str, Any]], out: Output) -> None:
    rows = []
    for queue in queues:
        settings = queue["settings"]

        def shown(key: str, queue: dict[str, Any] = queue) -> str:
            value = queue["settings"][key]
            text = f"{value:g}" if isinstance(value, float) else str(value)
            return text + ("*" if key in queue["overridden"] else "")

        elasticity = shown("elasticity")
        if settings["elasticity"] == "auto":
            elasticity += (
                f" (from {settings['auto_queue_length']} waiting: {'on' if queue['elastic_now'] else 'off'} now)"
            )
        others = [shown(key) for key in _COLUMNS]
        state = "paused" if queue["paused"] else "up" if queue["up"] else "down"
        row = [queue["name"], state, str(queue["waiting"]), str(queue["running"]), *others]
        rows.append([*row, _beyond(settings, queue["overridden"]), elasticity])
    headings = [
        "QUEUE",
        "STATE",
        "WAITING",
        "RUNNING",
        "OMAX",
        "LAMBDA",
        "DELTA",
        "MIN PROCS",
        "MAX SUBJOBS",
        "BEYOND THE PAPER",
        "ELASTIC",
    ]
    out.table(headings, rows, right=frozenset(range(2, 9)))
    for queue in queues:
        tell_calendar(queue, out)
        for pause in queue["paused"]:
            if pause["what"] == "promises":
                again = f"at {clock(pause['until_s'])}, or at once by `ejb queue resume {queue['name']}`"
                told = f"no job of queue {queue['name']} is made elastic: {pause['reason']}; tried again {again}"
                out.line(printable(told))
                continue
            since, until = clock(pause["since_s"]), clock(pause["until_s"])
            out.line(
                printable(
                    f"queue {queue['name']} is paused{limited_to(pause['whose'])}: {pause['what']} have failed "
                    f"since {since}, {pause['failures']} in a row ({pause['reason']}); tried again at {until}, "
                    f"or at once by `ejb queue resume {queue['name']}`"
                )
            )


def _beyond(settings: dict[str, Any], overridden: list[str]) -> str:
    """The settings that go beyond the paper's algorithm, as far as they are on."""
    from ejbd.plugins.policies import BUNDLING, declared_by, known_policies

    words = {"policy": "" if settings["policy"] == BUNDLING else f"policy {settings['policy']}"}
    for one in declared_by(settings["policy"] if settings["policy"] in known_policies() else BUNDLING).values():
        value = settings.get(one.name, one.default)
        if one.name in _COLUMNS or one.name not in settings:
            continue
        figure = "" if value is True else f" {value:g}" if isinstance(value, float) else f" {value}"
        words[one.name] = "" if value == one.default else f"{one.key}{figure}".removeprefix("order ")
    every = settings["checkpoint_every"]
    words["checkpoint_every"] = "" if every == "off" else f"checkpoint {every}"
    told = [
        (word or f"no {key.removesuffix('_s')}") + "*" if key in overridden else word for key, word in words.items()
    ]
    return " ".join(filter(None, told)) or "-"


@token_app.command("create")
def token_create(
    context: typer.Context,
    label: Annotated[str, typer.Option("--label", help="Say what the token is for.")] = "",
    days: Annotated[float, typer.Option("--days", help="Let the token end after so many days, at most 366.")] = 30.0,
    scope: Annotated[
        str, typer.Option("--scope", help="Let the token read, submit (and steer your own jobs), operate, or admin.")
    ] = "submit",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make a token for yourself. It is shown this once."""
    out = output(as_json, quiet)
    body: dict[str, Any] = {"label": label, "expires_in_s": days * 86400, "scope": scope}
    found = client(context).request("POST", "/v1/tokens", body=body).json()

    def human() -> None:
        out.line(found["token"])
        out.note(f"this is the only time it is shown; `ejb token revoke {found['id']}` makes it worthless")

    out.result(found, human, quiet=found["token"])


@token_app.command("list")
def token_list(
    context: typer.Context,
    user: Annotated[MaybeText, typer.Option("--user", "-u", help="List this user's tokens (administrators).")] = None,
    all_users: Annotated[bool, typer.Option("--all", help="List the tokens of all users (administrators).")] = False,
    as_json: AsJson = False,
) -> None:
    """List your tokens."""
    out = output(as_json, False)
    found = client(context).get("/v1/tokens", user=user, all_users="true" if all_users else None)

    def human() -> None:
        rows = [
            [t["id"], t["user"], clock(t["created_s"]), clock(t["expires_s"]), t["scope"], t["label"]]
            for t in found["tokens"]
        ]
        out.table(["ID", "USER", "MADE", "RUNS OUT", "SCOPE", "LABEL"], [list(map(printable, row)) for row in rows])

    out.result(found, human)


@token_app.command("revoke")
def token_revoke(context: typer.Context, id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Make a token worthless."""
    out = output(False, False)
    client(context).request("DELETE", f"/v1/tokens/{segment(id)}")
    out.line(f"token {id} revoked")


def doctor(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", help="Read the daemon's TOML file in place of asking a daemon.")
    ] = None,
    build_plugin: Annotated[
        bool, typer.Option("--build-plugin", help="Compile the DMTCP plugin into the spool, and prove it.")
    ] = False,
    mpi: Annotated[
        bool, typer.Option("--mpi", help="Try whether ranks of this site's MPI start without mpiexec, and end.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the site: batch commands, spool, clock, engines. The daemon does it; with --config none is needed."""
    out = output(as_json, False)
    found = _asked_of_the_daemon(context, out, build_plugin, mpi) if config is None else None
    findings = found if found is not None else _examined_here(config, build_plugin, mpi)
    good = all(finding["good"] for finding in findings)

    def human() -> None:
        for finding in findings:
            sign = "ok  " if finding["good"] else "BAD "
            out.line(sentences(f"{sign} {finding['subject']}: {finding['text']}"))

    out.result({"good": good, "findings": findings}, human)
    if not good:
        raise typer.Exit(1)


def _asked_of_the_daemon(context: typer.Context, out: Output, build_plugin: bool, mpi: bool) -> Any:
    """What the daemon finds, by its own configuration; None where none answers."""
    daemon = client(context)
    daemon.answer_s = DOCTOR_S
    try:
        return daemon.request("POST", "/v1/doctor", body={"build_plugin": build_plugin, "mpi": mpi}).json()["findings"]
    except EjbError as error:
        if error.code is not Code.UNREACHABLE:
            raise
        out.note(f"no daemon answers at {daemon.place}: these are the checks of one without a configuration file")
        return None


def _examined_here(config: Path | None, build_plugin: bool, mpi: bool) -> Any:
    """The same without a daemon."""
    argv = [sys.executable, "-m", "ejbd.daemon", "doctor", "--json"]
    argv += ["--build-plugin"] * build_plugin + ["--mpi"] * mpi
    argv += ["--config", str(config)] if config else []
    try:
        done = subprocess.run(argv, capture_output=True, timeout=DOCTOR_S, check=False, stdin=subprocess.DEVNULL)
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise EjbError(Code.INTERNAL, f"the checks were not over after {DOCTOR_S} s") from None
    except ValueError:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        message = said[-1].removeprefix("ejbd: ") if said else "the checks ended without a result"
        raise EjbError(Code.INVALID if done.returncode == 2 else Code.INTERNAL, message) from None


def add_to(app: typer.Typer) -> None:
    app.command()(window)
    app.command()(doctor)
    app.add_typer(queue_app, name="queue")
    app.add_typer(token_app, name="token")
