"""What the ranks of an MPI need (profiles), and which MPI a program is built with."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ejbd.config import Settings
from ejbd.errors import Code, EjbError
from ejbd.files.userfiles import read_plain, within
from ejbd.manager.hands.files import OWN_FILES, Reads

LOOKED_AT_BYTES = 4 << 20  # of a program: the names of the libraries that it needs stand near its beginning
MOST_LAUNCH_BYTES = 64 << 20
LOOK_S = 2.0

PROGRAMS_LOOKED_AT = 16
WORDS_LOOKED_AT = 64
SCRIPT_LOOKED_AT = 64 << 10

_BLANKS = re.compile(r"\s")
_WORDS = re.compile(r"[^\s;|&()<>\"'`]+")
_MPICH = re.compile(rb"libmpich(fort|f90)?\.so|libmpi(fort)?\.so\.12")
_PYTHON_MPI = re.compile(rb"^\s*(?:from|import)\s+mpi4py\b", re.MULTILINE)
STARTS_ALL = re.compile(r"(mpirun|mpiexec)(\.[a-z]+)?")
_KINDS = (
    (b"libopen-rte.so.40", "Open MPI 4"),
    (b"libopen-rte.so.", "an Open MPI before version 4"),
    (b"libprrte.so", "Open MPI 5"),
    (b"prterun", "Open MPI 5"),
    (b"HYDRA", "MPICH"),
    (b"hydra", "MPICH"),
    (b"I_MPI_", "Intel MPI"),
    (b"OPAL_PREFIX", "Open MPI 5"),  # the wheel's
)
_OPEN_MPI = re.compile(rb"libmpi(_[a-z0-9_]+)?\.so\.[24]0")  # a Fortran program may name that of mpif.h alone


class Profile(BaseModel):
    """What the ranks of one MPI need: variables, and options of dmtcp_launch.

    `env`: always; `dmtcp_env`: on top, under engine dmtcp alone. `launcher`: the words (before `-np N PROGRAM ...`) of
    the one command that starts all ranks; where it is empty they are started one by one.
    """

    model_config = ConfigDict(extra="forbid")

    family: Literal["mpich", "openmpi"]
    description: str = ""
    env: dict[str, str] = {}
    dmtcp_env: dict[str, str] = {}
    dmtcp_options: Annotated[list[str], Field(max_length=32)] = []
    launcher: Annotated[list[str], Field(max_length=64)] = []

    @model_validator(mode="after")
    def _launched_as_its_family(self) -> Self:
        if bool(self.launcher) != (self.family == "openmpi"):
            raise ValueError("family openmpi needs a launcher, and family mpich has none")
        return self


@lru_cache(maxsize=8)
def profiles(more: Path | None) -> dict[str, Profile]:
    """The profiles that come with EJB and, on top, those of the site's file. Raises EjbError naming the fault."""
    text = (resources.files("ejbd.manager.facts.placing") / "mpi_profiles.toml").read_text()
    found = _read(text, "mpi_profiles.toml")
    if more is not None:
        try:
            found |= _read(more.read_text(), str(more))
        except OSError as error:
            raise EjbError(Code.INVALID, f"cannot read the MPI profiles: {error.strerror}", where=str(more)) from None
    return found


def _read(text: str, where: str) -> dict[str, Profile]:
    try:
        return {name: Profile(**values) for name, values in tomllib.loads(text).items()}
    except (tomllib.TOMLDecodeError, ValidationError, TypeError) as error:
        raise EjbError(Code.INVALID, f"not a file of MPI profiles: {error}", where=where) from None


def profile_named(settings: Settings, name: str) -> Profile:
    """The profile of that name, or the first of that family. Raises EjbError (UNSUPPORTED)."""
    known = profiles(settings.mpi_profiles)
    if name in known:
        return known[name]
    for profile in known.values():
        if profile.family == name:
            return profile
    raise EjbError(
        Code.UNSUPPORTED,
        f"there is no MPI profile {name!r}",
        hint=f"there are: mpich, openmpi, {', '.join(sorted(known))}",
    )


def is_open_mpi(settings: Settings, name: str) -> bool:
    """Whether `--mpi NAME` means one mpirun for all ranks. Never raises: a name that is not known does not."""
    if name in ("auto", "none"):
        return False
    try:
        return profile_named(settings, name).family == "openmpi"
    except EjbError:
        return False


@lru_cache(maxsize=4096)
def mpi_of_launch(file: str, read: Reads = OWN_FILES.read) -> str:
    """:func:`linked_mpi`, looked up once, since launch files stay as they are. `none` where the file system hangs."""
    try:
        return within(lambda: linked_mpi(Path(file), read), LOOK_S)
    except TimeoutError:
        return "none"


def linked_mpi(launch_file: Path, read: Reads = OWN_FILES.read) -> str:
    """`mpich`, `openmpi` or `none` by the libraries that the launch's program names.

    A Python script with mpi4py names none: that it was launched by Open MPI's mpirun says which one it has.
    """
    try:
        launch = json.loads(read(launch_file, MOST_LAUNCH_BYTES)[0])
        argv, cwd, env = launch["argv"], launch["cwd"], launch["env"]
        family = linked_with(argv, cwd, env)
        launcher = str(launch.get("launcher", ""))
        if family == "none" and STARTS_ALL.fullmatch(launcher) and _imports_mpi(argv, cwd):
            found = shutil.which(launcher, path=env.get("PATH", os.defpath))
            return "openmpi" if found and is_mpirun_of_open_mpi(found) else "none"
        return family
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "none"  # the worker will say what is wrong with it


def linked_with(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> str:
    """The same for a command that would be started there.

    A program may stand behind others (`nice ./a`, `env X=1 ./a`, `bash -c "./a"`) or in a shell script. Then the first
    MPI program among their words counts. `none` says only that none was seen.
    """
    programs = islice(filter(None, _programs(argv, cwd, env.get("PATH", os.defpath))), PROGRAMS_LOOKED_AT)
    return next((family for family in map(_family, programs) if family != "none"), "none")


def _programs(argv: Sequence[str], cwd: str, path: str) -> Iterator[bytes]:
    """The beginnings of the files that a command might execute."""
    for place, given in enumerate(argv[:WORDS_LOOKED_AT]):
        for word in [given] if place == 0 or not _BLANKS.search(given) else _WORDS.findall(given[:SCRIPT_LOOKED_AT]):
            program = _program(word, cwd, path)
            yield program
            first, _, body = program[:SCRIPT_LOOKED_AT].partition(b"\n")
            if first.startswith(b"#!") and re.search(rb"sh\b", first):
                words = _WORDS.findall(body.decode("utf-8", "replace"))
                yield from (_program(word, cwd, path) for word in words if "/" in word)


def _program(word: str, cwd: str, path: str) -> bytes:
    """The beginning of a program, or nothing where there is none of that name."""
    try:
        found = Path(cwd) / (word if "/" in word else shutil.which(word, path=path) or word)
        return read_plain(found, LOOKED_AT_BYTES, follow=True)[0] if os.access(found, os.X_OK) else b""
    except (OSError, ValueError):
        return b""


def _family(program: bytes) -> str:
    if not program.startswith(b"\x7fELF"):
        return "none"
    if _MPICH.search(program):
        return "mpich"
    return "openmpi" if _OPEN_MPI.search(program) else "none"


def _imports_mpi(argv: Sequence[str], cwd: str) -> bool:
    """Whether one of the words is a Python script that imports mpi4py."""
    for word in argv[1:WORDS_LOOKED_AT]:
        try:
            if word.endswith(".py") and _PYTHON_MPI.search(
                read_plain(Path(cwd) / word, SCRIPT_LOOKED_AT, follow=True)[0]
            ):
                return True
        except (OSError, ValueError):
            continue
    return False


def kind_of_mpirun(path: str) -> str:
    """What an mpirun is of, by the libraries that it names; "" where that is not known."""
    try:
        text = read_plain(path, LOOKED_AT_BYTES, follow=True)[0]
    except OSError:
        return ""
    return next((name for mark, name in _KINDS if mark in text), "")


def is_mpirun_of_open_mpi(path: str) -> bool:
    """Whether it is of an Open MPI that is spread over nodes."""
    return kind_of_mpirun(path) in ("Open MPI 4", "Open MPI 5")
