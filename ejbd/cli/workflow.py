"""`ejb workflow`: plans of stages, each with a width of its own. `check` and `cost` ask no daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ejbd.cli.options import AsJson, MaybePath, MaybeText, Quiet, client, output
from ejbd.cli.output import Output, printable
from ejbd.cli.show.words import duration
from ejbd.errors import Code, EjbError
from ejbd.wire.kinds import ENGINES

if TYPE_CHECKING:
    from ejbd.workflow.plan import Plan

workflow_app = typer.Typer(help="Run plans of stages, each with a width of its own.", no_args_is_help=True)

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="Read the plan from this YAML file; - is stdin.")]
Workflow = Annotated[str, typer.Argument(metavar="WORKFLOW", help="Name it by its id, its beginning, or `last`.")]


@workflow_app.command("check")
def check(
    context: typer.Context,
    plan: PlanFile,
    site: Annotated[
        bool, typer.Option("--site", help="Ask the daemon, too, whether the site would take each allocation.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether a plan can be right: keys, widths, circles, and files, by this directory."""
    text = text_of(plan)
    read = checked(text, name_of(plan))
    out = output(as_json, False)
    if site:
        client(context).check_workflow(text, file=name_of(plan))
    out.result(read.to_json(), lambda: _told(read, out))


@workflow_app.command("cost")
def cost(
    plan: PlanFile,
    move: Annotated[
        float, typer.Option("--move", metavar="S", min=0.0, max=1e6, help="Reckon so many seconds for a move.")
    ] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Reckon the core-hours of a plan by its walltimes, beside one allocation of its greatest width (Eq. 1 to 3)."""
    from ejbd.workflow.accounts import cost as cost_of

    found = cost_of(read_file(plan), move)
    out = output(as_json, False)
    out.result(found, lambda: _costs(found, out))


@workflow_app.command("submit")
def submit(context: typer.Context, plan: PlanFile, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Submit a plan: its stages run in this directory, with this environment."""
    text = text_of(plan)
    checked(text, name_of(plan))
    found = client(context).submit_workflow(text, file=name_of(plan))
    out = output(as_json, quiet)
    out.result(found, lambda: out.line(f"workflow {found['id']}: {len(found['stages'])} allocations"), found["id"])


@workflow_app.command("status")
def status(
    context: typer.Context,
    workflow: Annotated[
        MaybeText, typer.Argument(metavar="[WORKFLOW]", help="Show this one: an id, its beginning, `last`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how far a workflow is, or list the newest."""
    out = output(as_json, False)
    if workflow is None:
        found = client(context).workflows()
        out.result({"workflows": found}, lambda: _list(found, out))
        return
    one = client(context).workflow(workflow)
    out.result(one, lambda: _show(one, out))


@workflow_app.command("report")
def report(
    context: typer.Context,
    workflow: Workflow = "last",
    svg: Annotated[
        MaybePath, typer.Option("--svg", metavar="FILE", help="Draw what was held over time into this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a workflow held and used, in core-hours, beside one allocation of its greatest width."""
    found = client(context).workflow_report(workflow)
    out = output(as_json, False)
    if svg is not None:
        from ejbd.cli.show.workflow_chart import chart

        try:
            svg.write_text(chart(found), encoding="utf-8")
        except OSError as error:
            raise EjbError(Code.INVALID, f"{svg} cannot be written: {error.strerror}") from None
    out.result(found, lambda: _accounts(found, out))


@workflow_app.command("cancel")
def cancel(context: typer.Context, workflow: Workflow, as_json: AsJson = False) -> None:
    """End a workflow: nothing new begins, and what runs is ended."""
    found = client(context).cancel_workflow(workflow)
    out = output(as_json, False)
    out.result(found, lambda: _show(found, out))


@workflow_app.command("retry")
def retry(context: typer.Context, workflow: Workflow, as_json: AsJson = False) -> None:
    """Try again what did not end well; what did is not run again."""
    found = client(context).retry_workflow(workflow)
    out = output(as_json, False)
    out.result(found, lambda: _show(found, out))


def read_file(path: Path) -> Plan:
    """The plan in a file. Raises EjbError for one that cannot be read, and for what is none."""
    return read_text(text_of(path), name_of(path))


def read_text(text: str, name: str) -> Plan:
    from ejbd.workflow.reading import read_plan

    return read_plan(text, name, ENGINES)


def checked(text: str, name: str) -> Plan:
    """The plan, the files of which are there. Raises EjbError."""
    from ejbd.workflow.reading import check_files

    found = read_text(text, name)
    check_files(found, name, lambda pattern: any(_matching(pattern)))
    return found


def name_of(path: Path) -> str:
    return "stdin" if str(path) == "-" else str(path)


def text_of(path: Path) -> str:
    """The text of a plan file. Raises EjbError."""
    import sys

    from ejbd.workflow.tree import MOST_CHARACTERS

    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(4 * MOST_CHARACTERS + 1)
        else:
            with path.open("rb") as file:
                data = file.read(4 * MOST_CHARACTERS + 1)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise EjbError(Code.INVALID, f"cannot read the plan: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise EjbError(Code.INVALID, f"line {line} is not UTF-8", where=name_of(path)) from None


def _matching(pattern: str) -> Iterator[str]:
    import glob

    return glob.iglob(pattern)  # noqa: PTH207  # absolute patterns, too


def _told(plan: Plan, out: Output) -> None:
    from ejbd.workflow.accounts import doubt
    from ejbd.workflow.graph import groups

    found = groups(plan)
    out.line(printable(f"{plan.name}: {len(plan.stages)} stages in {len(found)} allocations, mode {plan.mode}"))
    rows = [
        [", ".join(stage.name for stage in group.stages), str(group.width), duration(group.walltime_s), needs]
        for group in found
        for needs in [", ".join(group.needs) or "-"]
    ]
    out.table(["STAGES", "PROCESSORS", "WALLTIME", "AFTER"], rows, frozenset({1}))
    if why := doubt(plan):
        out.line(f"one job may do better: {why}")


def _list(found: list[dict[str, Any]], out: Output) -> None:
    if not found:
        out.line("no workflow yet")
        return
    rows = []
    for one in found:
        done = sum(stage["state"] in ("completed", "skipped") for stage in one["stages"])
        rows.append([one["id"], one["name"], one["user"], one["state"], f"{done}/{len(one['stages'])}"])
    out.table(["WORKFLOW", "NAME", "USER", "STATE", "DONE"], rows)


def _show(one: dict[str, Any], out: Output) -> None:
    why = f": {one['reason']}" if one["reason"] else ""
    out.line(printable(f"workflow {one['id']} ({one['name']}, mode {one['mode']}) is {one['state']}{why}"))
    rows = [
        [
            ", ".join(stage["stages"]),
            str(stage["tasks"]),
            stage["state"] if stage["state"] != "submitted" else stage["job_state"] or "submitted",
            stage["job"] or "-",
            str(stage["attempt"]),
            stage["reason"],
        ]
        for stage in one["stages"]
    ]
    out.table(["STAGES", "PROCESSORS", "STATE", "JOB", "TRY", "REASON"], rows, frozenset({1, 4}))


def _accounts(found: dict[str, Any], out: Output) -> None:
    keys = ("held", "used", "moves", "waits")
    rows = [
        [
            ", ".join(one["stages"]),
            one["job"] or "-",
            one["outcome"] or "goes on",
            str(one["tasks"]),
            duration(one["wait_s"]),
            duration(one["run_s"]),
            *(f"{one['core_h'][key]:.4f}" for key in keys),
        ]
        for one in found["attempts"]
    ]
    total = [f"{found['core_h'][key]:.4f}" for key in keys]
    rows.append(["all of them", "", found["state"], "", duration(found["wait_s"]), duration(found["run_s"]), *total])
    headings = ["STAGES", "JOB", "OUTCOME", "PROCESSORS", "WAITED", "RAN", "HELD", "USED", "MOVES", "IDLE"]
    out.table(headings, rows, frozenset(range(3, 10)))
    if found["saved_percent"] is not None:
        whole, saved = found["one_allocation_core_h"], found["saved_percent"]
        what = f"{saved:.1f} % fewer than" if saved >= 0 else f"{-saved:.1f} % MORE than"
        out.line(f"core-hours; {what} one allocation of {found['widest']} processors, {whole:.4f}, by Eq. 1")


def _costs(found: dict[str, Any], out: Output) -> None:
    rows = [
        [", ".join(one["stages"]), str(one["tasks"]), duration(one["walltime_s"]), f"{one['core_h']:.3f}"]
        for one in found["allocations"]
    ]
    rows += [
        ["all of them", "", duration(found["staged_s"]), f"{found['staged_core_h']:.3f}"],
        ["one allocation", str(found["widest"]), duration(found["run_s"]), f"{found['one_allocation_core_h']:.3f}"],
    ]
    out.table(["STAGES", "PROCESSORS", "TIME", "CORE-HOURS"], rows, frozenset({1, 3}))
    lost, gained = found["lost_to_moves_core_h"], found["gained_core_h"]
    what = f"{found['saved_percent']:.1f} % fewer" if found["pays"] else "stages of their own do not pay"
    out.line(f"{what}: moves cost {lost:.3f} core-hours, narrower stages save {gained:.3f} (Eq. 3)")


def add_to(app: typer.Typer) -> None:
    app.add_typer(workflow_app, name="workflow")
