"""`ejb workflow`: plans of stages, each with a width of its own. `check` and `cost` ask no daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ejbd.cli.options import AsJson, MaybePath, output
from ejbd.cli.output import Output, printable
from ejbd.cli.words import duration
from ejbd.errors import Code, EjbError
from ejbd.wire.kinds import ENGINES

if TYPE_CHECKING:
    from ejbd.workflow.plan import Plan

workflow_app = typer.Typer(help="Run plans of stages, each with a width of its own.", no_args_is_help=True)

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="Read the plan from this YAML file; - is stdin.")]
Folder = Annotated[
    MaybePath, typer.Option("-D", "--chdir", metavar="DIR", help="Run the stages here; without: in this directory.")
]


@workflow_app.command("check")
def check(plan: PlanFile, chdir: Folder = None, as_json: AsJson = False) -> None:
    """Say whether a plan can be right: keys, widths, circles, files. No daemon is asked."""
    read = checked(plan, chdir or Path())
    out = output(as_json, False)
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


def read_file(path: Path) -> Plan:
    """The plan in a file. Raises EjbError for one that cannot be read, and for what is none."""
    return read_text(text_of(path), name_of(path))


def read_text(text: str, name: str) -> Plan:
    from ejbd.workflow.reading import read_plan

    return read_plan(text, name, ENGINES)


def checked(path: Path, folder: Path) -> Plan:
    """The plan in a file, the files of which are there. Raises EjbError."""
    from ejbd.workflow.reading import check_files

    found = read_file(path)
    check_files(found, name_of(path), lambda pattern: any(_matching(folder, pattern)))
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


def _matching(folder: Path, pattern: str) -> Any:
    import glob

    return glob.iglob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207  # absolute patterns, too


def _told(plan: Plan, out: Output) -> None:
    from ejbd.workflow.graph import groups

    found = groups(plan)
    out.line(printable(f"{plan.name}: {len(plan.stages)} stages in {len(found)} allocations, mode {plan.mode}"))
    rows = [
        [", ".join(stage.name for stage in group.stages), str(group.width), duration(group.walltime_s), needs]
        for group in found
        for needs in [", ".join(group.needs) or "-"]
    ]
    out.table(["STAGES", "PROCESSORS", "WALLTIME", "AFTER"], rows, frozenset({1}))


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
