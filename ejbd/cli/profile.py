"""`ejb profile`: how applications that checkpoint themselves are stopped and run again at another width.

It needs no daemon: profiles are files, and a trial runs here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ejbd.cli.options import AsJson, MaybePath, output
from ejbd.cli.output import Output, printable
from ejbd.errors import Code, EjbError

profile_app = typer.Typer(
    help="Show and try the profiles of applications that checkpoint themselves.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name the profile.")]


@profile_app.command("list")
def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles that count here: yours, the site's, and EJB's."""
    from ejbd.profiles.reading import read_all

    found = read_all()
    rows = [[one.name, ", ".join(one.match.program), _widths(one), one.origin] for one in found.values()]
    out = output(as_json, False)
    told = [{"name": row[0], "programs": row[1], "widths": row[2], "file": row[3]} for row in rows]
    out.result(told, lambda: out.table(["NAME", "PROGRAMS", "WIDTHS", "FILE"], rows, frozenset()))


@profile_app.command("show")
def show(name: Name, as_json: AsJson = False) -> None:
    """Show all that a profile says."""
    from ejbd.profiles.reading import named, read_all

    one = named(name, read_all())
    told = one.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    out = output(as_json, False)

    def lines() -> None:
        for key, value in told.items():
            out.line(printable(f"{key}: {value}"))

    out.result(told, lines)


@profile_app.command("check")
def check(
    file: Annotated[
        MaybePath, typer.Argument(metavar="[FILE]", help="Check this file; without, all that count here.")
    ] = None,
) -> None:
    """Read profiles and say what of them cannot be right (exit code 2)."""
    from ejbd.profiles.reading import read_all, read_file

    found = list(read_all().values()) if file is None else read_file(file)
    for one in found:
        print(f"{one.name}: right in form ({one.origin})")


@profile_app.command("test")
def test(
    name: Name,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Run this, with its launcher.")],
    case: Annotated[Path, typer.Option("--case", help="Run it in copies of this folder.")] = Path(),
    scratch: Annotated[
        MaybePath, typer.Option("--scratch", help="Make the copies here; without, beside the case.")
    ] = None,
    widths: Annotated[str, typer.Option("--widths", metavar="N,M", help="Run it at N, M and N ranks.")] = "2,1",
    longest: Annotated[float, typer.Option("--longest", min=1, help="Let no run take more seconds.")] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Run a command at N, M and N ranks by a profile, and once without a stop; say what was learned (1: it is wrong).

    The case stays as it is. The uninterrupted run should take a minute and more: a third of it is done at each width.
    """
    from ejbd.profiles.acts.trying import try_profile
    from ejbd.profiles.reading import named, read_all

    profile = named(name, read_all())
    try:
        n, m = (int(word) for word in widths.split(","))
    except ValueError:
        n = m = 0
    if min(n, m) < profile.ranks.min or n == m:
        least = profile.ranks.min
        raise EjbError(Code.INVALID, f"--widths {widths} are not two widths of {least} ranks and more", hint="4,2")
    if not case.is_dir():
        raise EjbError(Code.INVALID, f"{case} is no folder", where="--case")
    folder = case.resolve()
    place = (scratch or folder.with_name(f"{folder.name}.ejb-profile")).resolve()
    if folder in (place, *place.parents):
        raise EjbError(Code.INVALID, f"{place} lies in the case itself", where="--scratch", hint="a folder elsewhere")

    def tell(text: str) -> None:
        print(f"ejb: {text}", file=sys.stderr)

    trial = try_profile(profile, command, folder, place, (n, m), tell=tell, longest_s=longest)
    out = output(as_json, False)
    told = trial.to_json()
    out.result(told, lambda: _tell(out, told))
    if trial.wrong:
        raise typer.Exit(1)


def _tell(out: Output, told: Mapping[str, Any]) -> None:
    rows = [
        [what, *(_figure(part[key]) for key in _SECONDS), _figure(part["speed"]), part["verdict"]]
        for what, part in (
            ("uninterrupted", told["alone"]),
            *((f"part {n}", p) for n, p in enumerate(told["parts"], 1)),
        )
        if part is not None
    ]
    out.table(["RUN", "RANKS", "START-UP", "RUN", "STOP", "COPY", "PREPARE", "STEPS/S", "ENDED"], rows, _RIGHT)
    if told["alpha"] is not None:
        out.line(f"speed goes as (n/P)^{told['alpha']:.2f} by the two widths")
    for sentence in [*told["wrong"]] or [told["compared"]]:
        out.line(printable(("wrong: " if told["wrong"] else "") + sentence))


_SECONDS = ("ranks", "start_up_s", "run_s", "stop_s", "copy_s", "prepare_s")
_RIGHT = frozenset(range(1, 8))


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _widths(profile: Any) -> str:
    ranks = profile.ranks
    listed = ", ".join(map(str, ranks.widths)) or ranks.shape
    return f"{listed}, from {ranks.min}" if ranks.min > 1 else str(listed)


def add_to(app: typer.Typer) -> None:
    app.add_typer(profile_app, name="profile")
