"""A trial of a profile: the application is run at n, m and n ranks, and once without a stop, and compared.

A profile that is wrong fails here, and not at three in the morning.
"""

from __future__ import annotations

import filecmp
import math
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ejbd._workers.ejb_worker.profiles.filling import filled
from ejbd._workers.ejb_worker.profiles.judging import FAILED, FINISHED, STOPPED, Judged, last_number
from ejbd._workers.ejb_worker.profiles.since import missing
from ejbd._workers.ejb_worker.profiles.starting import free_port, start
from ejbd._workers.ejb_worker.profiles.state import copy_state, newest, put_back, state_files
from ejbd.errors import Code, EjbError
from ejbd.profiles.acts.running import LOOKED_EVERY_S, Run, begin, prepare
from ejbd.profiles.command import ANY_FOLDER, Command, split
from ejbd.profiles.filling import values_of
from ejbd.profiles.profile import How, Profile

LONGEST_S = 3600.0
PARTS = 3  # of the whole run, after which it is told to stop


@dataclass(frozen=True, slots=True)
class Part:
    """One launch of the chain. Seconds: `start_up_s` until its first step (None: no step was seen), `run_s` in all,
    `stop_s` from the request until it had ended, `copy_s` and `prepare_s` before the next. `speed`: steps a second."""

    ranks: int
    verdict: str
    why: str
    run_s: float
    start_up_s: float | None = None
    stop_s: float | None = None
    copy_s: float | None = None
    prepare_s: float | None = None
    state_bytes: int = 0
    speed: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Trial:
    """What was learned. `wrong`: what did not go as the profile says; `compared`: how the results are to each other."""

    profile: str
    parts: list[Part] = field(default_factory=list)
    alone: Part | None = None
    wrong: list[str] = field(default_factory=list)
    compared: str = ""

    @property
    def alpha(self) -> float | None:
        """Of the law (n/P)^alpha, by the speeds at the two widths."""
        speeds = {part.ranks: part.speed for part in self.parts if part.speed}
        if len(speeds) < 2:
            return None
        (low, slow), *_, (high, fast) = sorted(speeds.items())
        return math.log(fast / slow) / math.log(high / low) if slow and fast else None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "profile": self.profile,
            "parts": [part.to_json() for part in self.parts],
            "alone": None if self.alone is None else self.alone.to_json(),
            "alpha": self.alpha,
            "compared": self.compared,
            "wrong": self.wrong,
        }


def try_profile(
    profile: Profile,
    words: Sequence[str],
    case: Path,
    scratch: Path,
    widths: tuple[int, int],
    *,
    tell: Callable[[str], None] = lambda text: None,
    longest_s: float = LONGEST_S,
) -> Trial:
    """Run copies of the folder `case` in `scratch`: uninterrupted at widths[0], then at widths[0], [1] and [0].

    Raises EjbError where the command cannot be run at all, or the case is not one for the profile.
    """
    runs: list[Run] = []
    try:
        return _tried(profile, split(words), case, scratch, widths, tell, longest_s, runs)
    finally:
        for run in runs:  # also where it was interrupted
            if not run.ended():
                run.kill()


def _tried(
    profile: Profile,
    command: Command,
    case: Path,
    scratch: Path,
    widths: tuple[int, int],
    tell: Callable[[str], None],
    longest_s: float,
    runs: list[Run],
) -> Trial:
    trial = Trial(profile.name)
    whole = _folder(case, scratch / "alone")
    run, _ = _launch(profile, command, whole, widths[0], None, 0)
    runs.append(run)
    if problem := missing(profile, run.values, command.program, _reader_in(whole)):
        raise EjbError(Code.INVALID, problem, hint="docs/profiles.md says what a case needs")
    tell(f"{widths[0]} ranks, uninterrupted")
    trial.alone = _ended(run, widths[0], longest_s)
    if trial.alone.verdict != FINISHED:
        trial.wrong.append(f"uninterrupted it is not seen to finish: {trial.alone.why}")
        return trial
    chain = _folder(case, scratch / "chain")
    part_s = trial.alone.run_s / PARTS
    before: int | None = None
    done, final = 0.0, run
    prepared: float | None = None
    for epoch, ranks in enumerate((widths[0], widths[1], widths[0]), 1):
        tell(f"{ranks} ranks, {'to its end' if epoch == PARTS else 'told to stop'}")
        final, prepared = _launch(profile, command, chain, ranks, before, epoch, done)
        runs.append(final)
        part = _part(final, ranks, part_s * _slower(widths, ranks), longest_s, last=epoch == PARTS)
        part = Part(**{**part.to_json(), "prepare_s": prepared})
        if part.verdict == FAILED and before is not None and before != ranks:
            put_back(chain, _patterns(profile, final.values), scratch / "kept")
            trial.wrong.append(f"it does not go on with {ranks} ranks: {part.why}; its state was put back")
            trial.parts.append(part)
            return trial
        if part.verdict == FINISHED and epoch < PARTS:
            trial.parts.append(part)
            trial.wrong.append("it finished before it was told to stop, or heard of it: take a longer case")
            return trial
        if part.verdict != (FINISHED if epoch == PARTS else STOPPED):
            trial.parts.append(part)
            trial.wrong.append(f"with {ranks} ranks: {part.why}")
            return trial
        if epoch < PARTS:
            begun = time.monotonic()
            size = copy_state(chain, _patterns(profile, final.values), scratch / "kept")
            if not size:
                trial.parts.append(part)
                trial.wrong.append(f"it left no state: nothing is like {', '.join(profile.state)}")
                return trial
            took_s = time.monotonic() - begun
            part = Part(**{**part.to_json(), "copy_s": took_s, "state_bytes": size})
        trial.parts.append(part)
        before, done = ranks, max(done, final.progress()[0])
    trial.compared, same = compare(profile, run, final)
    if not same:
        trial.wrong.append(trial.compared)
    return trial


def compare(profile: Profile, one: Run, other: Run) -> tuple[str, bool]:
    """How the results of two runs are to each other, and whether that is what the profile says."""
    about = profile.compare
    if about.how is How.STATISTICS:
        return "results over widths agree statistically, by what its authors say; nothing was compared", True
    if about.how is How.BITS:
        for name in about.files:
            first, second = (run.folder / filled(name, run.values) for run in (one, other))
            if not (first.is_file() and second.is_file()):
                return f"{name} is not there", False
            if not filecmp.cmp(first, second, shallow=False):
                return f"{name} differs", False
        return f"{', '.join(about.files)}: bit for bit the same", True
    log = filled(about.log, one.values)
    here, there = (last_number(about.line, run.texts().get(log, "")) for run in (one, other))
    if here is None or there is None:
        return f"no {about.line!r} in {about.log}", False
    digits = _digits(here, there)
    said = f"{here:.15g} and {there:.15g}: {digits} digits the same, {about.digits} are to be"
    return said, digits >= about.digits


def _digits(one: float, other: float) -> int:
    if one == other:
        return 15
    return max(0, min(15, math.floor(-math.log10(abs(one - other) / max(abs(one), abs(other))))))


def _slower(widths: tuple[int, int], ranks: int) -> float:
    """So that both widths get about a third of the work, at most twice the time."""
    return min(2.0, max(0.5, widths[0] / ranks))


def _folder(case: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(case, to, symlinks=True)
    return to


def _patterns(profile: Profile, values: Mapping[str, str]) -> list[str]:
    return [filled(pattern, values) for pattern in profile.state]


def _reader_in(folder: Path) -> Callable[[str], str | None]:
    def reads(path: str) -> str | None:
        try:
            return (folder / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    return reads


def _launch(
    profile: Profile, command: Command, folder: Path, ranks: int, before: int | None, epoch: int, done: float = 0.0
) -> tuple[Run, float]:
    """The run, and the seconds that its preparation took."""

    reads = _reader_in(folder)
    values = values_of(profile, command.program, reads)
    newest_file = newest(state_files(folder, _patterns(profile, values)))
    launch = start(
        profile, command.program, values, ranks=ranks, before=before, epoch=epoch, done=done,
        endpoint=(socket.gethostname(), free_port()),
        newest_state="" if newest_file is None else str(newest_file.relative_to(folder)),
        input_text=reads(values["input"]) if "input" in values else None,
    )  # fmt: skip
    output = folder.parent / f"{folder.name}-{epoch}.out"
    begun = time.monotonic()
    prepare(launch, folder, folder.parent / f"{folder.name}-{epoch}.prepare", _in(folder, command.container.tools))
    took_s = time.monotonic() - begun
    launcher = (*command.at_width(ranks).launcher, *_in(folder, command.container.wrapper))
    launch.env.update(command.container.with_passed(launch.env))
    return begin(
        profile, launcher, launch, folder, {**values, "epoch": str(epoch), "ranks": str(ranks)}, output
    ), took_s


def _in(folder: Path, words: Sequence[str]) -> list[str]:
    """A container's words, which name no folder but that of the copy: a relative one would begin at its root."""
    return [
        f"{word[: -len(ANY_FOLDER)]}{folder}" if word == ANY_FOLDER or word.endswith(f"={ANY_FOLDER}") else word
        for word in words
    ]


def _part(run: Run, ranks: int, part_s: float, longest_s: float, *, last: bool) -> Part:
    start_up_s = _until_step(run, longest_s, part_s)
    first, _ = run.progress()
    began = time.monotonic()
    if last:
        return _ended(run, ranks, longest_s, start_up_s)
    done, total = run.progress()
    while not run.wait(LOOKED_EVERY_S) and time.monotonic() - run.began_s < part_s:
        done, total = run.progress()
        if total is not None and done - first >= total / PARTS:
            break
    done, _ = run.progress()
    spent = time.monotonic() - began
    asked = time.monotonic()
    run.stop()
    stop_s = time.monotonic() - asked
    judged = run.judged()
    speed = (done - first) / spent if spent > 0 and done > first else None
    return Part(ranks, judged.verdict, judged.why, time.monotonic() - run.began_s, start_up_s, stop_s, speed=speed)


def _until_step(run: Run, longest_s: float, part_s: float) -> float | None:
    """Wait for the first step that this launch makes: seconds from the launch; None where the profile tells no steps,
    or none came in time."""
    if run.profile.progress is None:
        return None
    while not run.ended() and time.monotonic() - run.began_s < min(longest_s, max(part_s, run.profile.grace_s)):
        if run.progress()[0] > 0.0:
            return time.monotonic() - run.began_s
        time.sleep(0.02)
    return None


def _ended(run: Run, ranks: int, longest_s: float, start_up_s: float | None = None) -> Part:
    if not run.wait(longest_s):
        run.kill()
    judged: Judged = run.judged()
    return Part(ranks, judged.verdict, judged.why, time.monotonic() - run.began_s, start_up_s)
