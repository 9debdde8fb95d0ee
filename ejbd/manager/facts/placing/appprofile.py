"""Which profile an application is run by: what a submission's launches name, and whether a launch is one of it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ejbd._workers.ejb_worker.launch_options import LAUNCHERS, program
from ejbd._workers.ejb_worker.profiles.filling import NotFound, values_of
from ejbd._workers.ejb_worker.profiles.matching import matches
from ejbd._workers.ejb_worker.profiles.saying import profile_from
from ejbd._workers.ejb_worker.profiles.since import missing
from ejbd._workers.ejb_worker.profiles.wrapping import NotSeen, unwrapped
from ejbd.core.rungs import Shape
from ejbd.errors import Code, EjbError
from ejbd.files.userfiles import read_plain, within
from ejbd.manager.hands.files import OWN_FILES, Reads
from ejbd.manager.jobspec import JobKind, JobSpec
from ejbd.manager.jobspec.shell import read_script
from ejbd.profiles.profile import Profile
from ejbd.profiles.reading import SHIPPED, folders, matching, read_all, read_sent

LOOK_S = 2.0
MOST_INPUT_BYTES = 4 << 20
ReadsUsersFile = Callable[[Path, int], bytes]
"""Up to so many bytes of a file of a job's user. Raises OSError."""
MOST_LAUNCH_BYTES = 64 << 20

Reader = Callable[[bool], Mapping[str, Profile]]


def programs_of(spec: JobSpec) -> Iterator[list[str]]:
    """The words of the programs that a job's launches start, as far as its command or its script shows them."""
    if spec.kind is not JobKind.SCRIPT or spec.script is None:
        yield list(spec.argv)
        return
    for words in launches_of(spec):
        theirs = program(words[0].rpartition("/")[2], words[1:])
        if theirs:
            yield theirs


def launchers_of(spec: JobSpec) -> list[str]:
    """By which command each launch of a job's script is written."""
    return [words[0] for words in launches_of(spec)]


def launches_of(spec: JobSpec) -> Iterator[list[str]]:
    """The words of each launch of a script, from its launcher on."""
    if spec.kind is not JobKind.SCRIPT or spec.script is None:
        return
    lines = spec.script.split("\n")
    for launch in read_script(spec.script, spec.processes * spec.threads).launches:
        text = "\n".join(lines[launch.first_line - 1 : launch.last_line]).replace("\\\n", " ")
        try:
            words = _first(text)
        except ValueError:
            continue  # a quotation that ends elsewhere
        found = next((at for at, word in enumerate(words) if word.rpartition("/")[2] in LAUNCHERS), None)
        if found is not None:
            yield words[found:]


def _first(text: str) -> list[str]:
    """The words of the launch up to what the shell reads as its end or as a redirection."""
    split = shlex.shlex(text, posix=True, punctuation_chars=True)
    split.whitespace_split = True
    words: list[str] = []
    for word in split:
        if word and not word.strip("();<>|&"):
            if any(one.rpartition("/")[2] in LAUNCHERS for one in words):
                break
            words = []
            continue
        words.append(word)
    return words


def read_as_daemon(path: Path, most: int) -> bytes:
    """Up to `most` bytes of a file, as the daemon itself may read it. Raises OSError."""
    return read_plain(path, most, follow=True)[0]


def none_is_for(spec: JobSpec, profiles: Mapping[str, Profile] | None) -> bool:
    """Whether it is plain without a look at any file that a job is run by none of these `profiles` (None: not read)."""
    if spec.engine not in ("auto", "profile") or spec.elastic is False:
        return spec.profile is None
    if spec.engine == "profile":
        return False
    programs = list(programs_of(spec))
    if profiles is None:
        return not programs
    try:
        return not any(matching(unwrapped(words, spec.cwd).program, profiles) for words in programs)
    except NotSeen:
        return False


def with_profile(
    spec: JobSpec,
    own: bool,
    sent: Mapping[str, str] | None = None,
    read_known: Reader | None = None,
    read_file: ReadsUsersFile = read_as_daemon,
) -> tuple[JobSpec, str]:
    """The job with the profile by which its application is run, where it may have one; and a note ("": none).

    It reads files. `sent`: profiles that came with the submission, which count first. `own`: the daemon runs jobs of
    its own user alone, and reads that one's profiles, too. `read_known`: in place of :func:`known`. `read_file`: of the
    job's user. With engine `auto`
    the case has to be fit for it, as far as that is seen; else another engine is taken. Of a profile that another user
    has sent that is left to the worker: its patterns are never searched for by the daemon. Raises EjbError for profiles
    that are wrong, and for engine `profile` alone.
    """
    if spec.engine not in ("auto", "profile") or spec.elastic is False:
        return spec, ""
    programs = list(programs_of(spec))
    note, theirs = "", {}
    others: Mapping[str, Profile] = {}
    try:
        theirs = read_sent(sent) if programs and sent else {}
    except EjbError as error:
        if spec.engine == "profile":
            raise
        note = f"{error.message}; none of the profiles that were sent is used"
    try:
        others = (read_known or known)(own) if programs else {}
    except EjbError:
        if spec.engine == "profile":
            raise
    strange = {} if own else theirs
    profiles = {**theirs, **{name: one for name, one in others.items() if name not in theirs}}
    unseen: list[str] = []
    for command in programs:
        try:
            words = unwrapped(command, spec.cwd).program
        except NotSeen as error:
            unseen.append(str(error))
            continue
        one = matching(words, profiles)
        foreign = one is not None and one.name in strange
        if one is None:
            continue
        if spec.engine == "auto" and not foreign and (why := unfit(one, words, spec.cwd, read_file)):
            unseen.append(why)
            continue
        return _taken(spec, one, foreign or not own), note
    if unseen and spec.engine == "profile":
        raise EjbError(Code.UNSUPPORTED, f"no profile is for what the job launches: {unseen[0]}")
    return spec, "; ".join(filter(None, (note, f"no profile is taken: {unseen[0]}" if unseen else "")))


def known(own: bool) -> Mapping[str, Profile]:
    """The profiles of this machine by name, and with `own` those of the daemon's user. It reads files; EjbError."""
    places = folders() if own else folders()[1:]
    return _read(tuple((folder, _written(folder)) for folder in places))


@lru_cache(maxsize=4)
def _read(places: tuple[tuple[Path, tuple[tuple[str, int], ...]], ...]) -> dict[str, Profile]:
    return read_all(folder for folder, _ in places)


def _written(folder: Path) -> tuple[tuple[str, int], ...]:
    """When its profiles were written: they are read again once one has changed. Those of EJB itself do not change."""
    if folder == SHIPPED:
        return ()
    try:
        with os.scandir(folder) as entries:
            return tuple(sorted((one.name, one.stat().st_mtime_ns) for one in entries if one.name.endswith(".toml")))
    except OSError:
        return ()


def _taken(spec: JobSpec, one: Profile, foreign: bool) -> JobSpec:
    widths = spec.widths or (",".join(map(str, one.ranks.widths)) or str(one.ranks.shape))
    if widths not in set(Shape) and not widths.replace(",", "").isdigit():
        widths = ""  # no other width than it began at
    told = one.model_dump(mode="json", exclude={"says", "origin"}) | ({"sent": True} if foreign else {})
    return replace(spec, profile=told, widths=widths)


def unfit(profile: Any, words: Sequence[str], cwd: str, read_file: ReadsUsersFile = read_as_daemon) -> str:
    """Why a program cannot be run by a profile that is for it: an option or a line that is not there, or one that is;
    "" where it can.

    It reads files by `read_file`, and blocks.
    """

    def reads(path: str) -> str | None:
        try:
            return read_file(Path(cwd, path), MOST_INPUT_BYTES).decode("utf-8", "replace")
        except OSError:
            return None

    try:
        return missing(profile, values_of(profile, list(words), reads), words, reads)
    except NotFound as error:
        return str(error)


@lru_cache(maxsize=1024)
def why_not(file: str, told: str, read: Reads = OWN_FILES.read) -> str:
    """Why a launch is not run by its job's profile (JSON), looked up once; "" where it is, as far as is seen here."""
    profile = profile_from(json.loads(told))
    try:
        launch = json.loads(read(Path(file), MOST_LAUNCH_BYTES)[0])
        words, cwd = [str(word) for word in launch["argv"]], str(launch["cwd"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, EjbError):
        return ""  # the worker will say what is wrong with it
    try:
        words = unwrapped(words, cwd).program
    except NotSeen as error:
        return str(error)
    if not matches(profile, words):
        return f"the profile {profile.name} is not for {words[0] if words else 'no program'}"
    if getattr(profile, "sent", False):
        return ""  # the worker looks, as its user
    try:
        return within(lambda: unfit(profile, words, cwd), LOOK_S)
    except TimeoutError:
        return ""
