"""Profiles out of TOML, and which of them a launch goes by: the user's own before the site's before EJB's."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from ejbd._workers.ejb_worker.profiles.matching import matches
from ejbd.errors import Code, EjbError
from ejbd.files.profilefiles import own_folder
from ejbd.profiles.profile import Profile

SHIPPED = Path(__file__).parent / "shipped"
SITE = Path("/etc/ejbd/profiles.d")
SITE_VARIABLE = "EJB_PROFILES"  # another folder of the site's
MOST_BYTES = 1 << 20


def folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where profiles are, in the order in which they count: the first of a name is taken."""
    return [Path(own_folder(environ)), Path(environ.get(SITE_VARIABLE) or SITE), SHIPPED]


def parse(text: str, origin: str) -> list[Profile]:
    """The profiles of one file: one table each. Raises EjbError: which profile and what of it is wrong, and how."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise EjbError(Code.INVALID, f"{origin} is no TOML: {error}") from None
    except RecursionError:
        raise EjbError(Code.INVALID, f"{origin} is nested too deeply") from None
    found = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise EjbError(Code.INVALID, f"{origin}: {name} stands in no profile", hint="a profile is a table, [name]")
        try:
            found.append(Profile.model_validate({**table, "name": name, "origin": origin}))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("function"))
            what = first["msg"].removeprefix("Value error, ")
            at = f", {where}" if where else ""
            raise EjbError(
                Code.INVALID, f"{origin}: the profile {name}{at}: {what}", hint="docs/profiles.md has the form"
            ) from None
        except (RecursionError, OverflowError):  # of a pattern
            raise EjbError(Code.INVALID, f"{origin}: a pattern of the profile {name} is nested too deeply") from None
    return found


def read_sent(files: Mapping[str, str]) -> dict[str, Profile]:
    """The profiles that came with a submission, by name: texts by the names of their files. Raises EjbError."""
    found: dict[str, Profile] = {}
    for file, text in sorted(files.items()):
        for profile in parse(text, f"the profiles in {file}"):
            found.setdefault(profile.name, profile)
    return found


def read_file(path: Path) -> list[Profile]:
    """The profiles of a file. Raises EjbError where it cannot be read or is none."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise EjbError(Code.INVALID, f"{path} is longer than {MOST_BYTES} bytes")
        return parse(text.decode(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise EjbError(Code.INVALID, f"{path} cannot be read: {error}") from None


def read_all(places: Iterable[Path] | None = None) -> dict[str, Profile]:
    """By name, those that count. A folder that is not there, or not to be entered, has none.

    Raises EjbError for the first that is wrong.
    """
    found: dict[str, Profile] = {}
    for folder in folders() if places is None else places:
        try:
            paths = sorted(folder.glob("*.toml"))
        except OSError:  # a daemon's HOME may be another user's
            continue
        for path in paths:
            for profile in read_file(path):
                found.setdefault(profile.name, profile)
    return found


def named(name: str, profiles: Mapping[str, Profile]) -> Profile:
    """The profile of that name. Raises EjbError where there is none."""
    if name not in profiles:
        hint = f"there are {', '.join(sorted(profiles))}"
        raise EjbError(Code.NOT_FOUND, f"no profile is called {name}", hint=hint)
    return profiles[name]


def matching(program: Sequence[str], profiles: Mapping[str, Profile]) -> Profile | None:
    """The profile by which a program is stopped and resumed; None: it has none."""
    return next((one for one in profiles.values() if matches(one, program)), None)
