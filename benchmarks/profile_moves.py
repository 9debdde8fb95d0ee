"""The move of an application by its profile, by width, beside its own stop and restart by hand.

    benchmarks/profile_moves.py all                                    # the cases of the tests, in less than 20 minutes
    benchmarks/profile_moves.py                                        # the program of the tests
    benchmarks/profile_moves.py cp2k                                   # a case of the tests: pwscf, openfoam, torchrun,
                                                                       # lammps, gromacs, mpi4py
    benchmarks/profile_moves.py lammps CASE -- mpirun -np 2 lmp -in in.melt

A move is: told to stop until it has ended, the state copied, the preparation, and the start until its first step. By
hand it is the same without the copy and the profile's watching: the signal or the file, the wait, the same commands.
Both are done in turn, from the same state. The seconds are medians of some rounds, by phase; the ratio is of the whole.
After `--longest` seconds it ends: what is begun then is killed with all that it has started, and whole rounds count.
CP2K looks for its file EXIT each 20 seconds, so that each of its moves lasts as long, by hand as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ejbd._workers.ejb_worker.profiles.filling import filled
from ejbd._workers.ejb_worker.profiles.starting import Start, free_port, start
from ejbd._workers.ejb_worker.profiles.state import copy_state, newest, state_files
from ejbd.profiles.acts.running import Run, begin, prepare
from ejbd.profiles.command import split
from ejbd.profiles.filling import values_of
from ejbd.profiles.profile import Profile
from ejbd.profiles.reading import named, parse, read_all
from harness import ROOT, machine
from tests.acceptance.test_applications_slurm import ENVIRONMENT
from tests.fakes import applications  # of the same checkout
from tests.integration.test_profiles_applications import LAMMPS, MPI4PY, SYSTEMS_PYTHON, water

OWN = """
[field]
match = { program = ["reshapable.py"] }
stop = { signal = "USR1", to = "ranks" }
stopped = { codes = [85], line = "^stopped after step" }
finished = { codes = [0], line = "^done at step" }
state = ["state.json"]
progress = { line = "^step +(\\\\d+)" }
"""
LONGEST_S = 120.0  # of a start-up or a stop
PHASES = ("stop", "copy", "prepare", "start-up", "all")
STEPS = 100_000  # more than all moves take


def _lammps(case: Path, steps: int) -> None:
    (case / "in.melt").write_text(LAMMPS.replace("run 1500", f"run {steps}"))


def _gromacs(case: Path, steps: int) -> None:
    case.rmdir()
    water(case, steps)


def _nothing(case: Path, steps: int) -> None:
    """It has no input."""


# Those that have a case in the tests: it, what is done with it first, the command, and widths that it can have.
MADE: dict[str, tuple[Callable[[Path, int], None], str, str, str]] = {
    "cp2k": (applications.cp2k, "", "mpirun -np 1 --oversubscribe cp2k.psmp -i w.inp", "1,2"),
    "pwscf": (applications.pwscf, "", "mpirun -np 1 --oversubscribe pw.x -in h2.in", "1,2"),
    "openfoam": (applications.openfoam, "blockMesh", "mpirun -np 2 --oversubscribe icoFoam -parallel", "2,3"),
    "torchrun": (
        applications.torch,
        "",
        "mpirun -np 1 --oversubscribe torchrun --nproc_per_node=1 train_torch.py",
        "1,2",
    ),
    "lammps": (_lammps, "", "mpirun -np 1 --oversubscribe lmp -in in.melt", "1,2"),
    "gromacs": (
        _gromacs,
        "",
        "mpirun -np 1 --oversubscribe gmx_mpi mdrun -deffnm md -ntomp 1 -notunepme -npme 0 -pin off",
        "1,2",
    ),
    "mpi4py": (
        _nothing,
        "",
        f"mpirun -np 1 --oversubscribe {SYSTEMS_PYTHON} {ROOT}/tests/fakes/field_mpi4py.py 240 {STEPS} 0.02",
        "1,2",
    ),
}
# Of `all`: CP2K's round has eight moves of 20 s.
SHARE_S, LONGER_S = 140.0, {"cp2k": 240.0}
OWN_PROFILES = {"": OWN, "mpi4py": MPI4PY}
# To each width (1: the wide one) from the other and from itself, as often one way as the other.
ORDER = (
    (1, "profile"), (1, "hand"), (0, "hand"), (0, "profile"), (1, "hand"), (1, "profile"), (0, "profile"), (0, "hand"),
)  # fmt: skip


class Case:
    """An application in a folder of its own, which is stopped and started again and again."""

    def __init__(self, profile: Profile, words: list[str], folder: Path) -> None:
        self.profile, self.command, self.folder, self.epoch = profile, split(words), folder, 0
        self.last: Run | None = None
        self.values = values_of(profile, self.command.program, self._reads)

    def _reads(self, path: str) -> str | None:
        file = self.folder / path
        return file.read_text(errors="replace") if file.is_file() else None

    def launch(self, ranks: int, before: int | None) -> Start:
        self.epoch += 1
        state = newest(state_files(self.folder, [filled(one, self.values) for one in self.profile.state]))
        return start(
            self.profile, self.command.program, self.values, ranks=ranks, before=before, epoch=self.epoch,
            newest_state=state.name if state else "", input_text=self._reads(self.values.get("input", "")),
            endpoint=(socket.gethostname(), free_port()),
        )  # fmt: skip

    def begun(self, launch: Start, ranks: int) -> Run:
        values = {**self.values, "epoch": str(self.epoch), "ranks": str(ranks)}
        launcher = self.command.at_width(ranks).launcher
        output = self.folder.parent / f"{self.epoch}.out"
        self.last = begin(self.profile, launcher, launch, self.folder, values, output)
        return self.last

    def end(self) -> None:
        """Nothing of it runs on, wherever it was interrupted."""
        if self.last is not None and not self.last.ended():
            self.last.kill()


def first_step(run: Run) -> None:
    end = time.monotonic() + LONGEST_S
    while not run.ended() and run.progress()[0] <= 0.0 and time.monotonic() < end:
        time.sleep(0.02)
    if run.ended():
        said = run.output.read_text(errors="replace")[-500:]
        sys.exit(f"it ended before it was told to stop ({run.judged().why}): take a longer case\n{said}")
    if run.progress()[0] <= 0.0:
        sys.exit(f"no step within {LONGEST_S:g} s: the machine is too busy, or the profile's progress is wrong")


class Late(Exception):
    """The time is over."""


def _late(number: int, frame: object) -> None:
    raise Late


class Timed:
    """Seconds of each phase of a move, one after the other."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}
        self._last = self._began = time.monotonic()

    def passed(self, phase: str) -> None:
        now = time.monotonic()
        self.of[phase], self._last = now - self._last, now
        self.of["all"] = now - self._began


def by_profile(case: Case, run: Run, before: int, ranks: int, kept: Path) -> tuple[Run, dict[str, float]]:
    timed = Timed()
    run.stop()
    timed.passed("stop")
    copy_state(case.folder, [filled(one, case.values) for one in case.profile.state], kept)
    timed.passed("copy")
    launch = case.launch(ranks, before)
    prepare(launch, case.folder, case.folder.parent / "prepare")
    timed.passed("prepare")
    following = case.begun(launch, ranks)
    first_step(following)
    timed.passed("start-up")
    return following, timed.of


def by_hand(case: Case, run: Run, before: int, ranks: int) -> tuple[Run, dict[str, float]]:
    stop = case.profile.stop
    heard = [] if stop.file else [one.pid for one in run.ranks()]
    timed = Timed()
    if stop.file:
        (case.folder / filled(stop.file, case.values)).touch()
    for pid in heard[:1] if stop.to == "one-rank" else heard:
        os.kill(pid, getattr(signal, f"SIG{stop.signal}"))
    run.process.wait(LONGEST_S)
    timed.passed("stop")
    launch = case.launch(ranks, before)
    for line in launch.prepare:
        subprocess.run(["sh", "-c", line], cwd=case.folder, check=True, stdout=subprocess.DEVNULL)
    timed.passed("prepare")
    following = case.begun(launch, ranks)
    first_step(following)
    timed.passed("start-up")
    return following, timed.of


def every_one(rounds: int) -> int:
    """Each of MADE by a process of its own; how many of them have no figures."""
    without = 0
    for name, (_, _, command, _) in MADE.items():
        if shutil.which(command.split()[4]) is None:
            print(f"{name}: not installed", flush=True)
            continue
        longest = str(LONGER_S.get(name, SHARE_S))
        argv = [sys.executable, __file__, name, "--rounds", str(rounds), "--longest", longest]
        without += subprocess.run(argv, check=False).returncode != 0
    return without


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("profile", nargs="?", default="")
    asked.add_argument("case", nargs="?", type=Path)
    asked.add_argument("--widths", default="")
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--longest", type=float, default=230.0, help="seconds after which it ends")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    given, command = asked.parse_args(words[:at]), words[at + 1 :]
    if given.profile == "all":
        sys.exit(1 if every_one(given.rounds) else 0)
    made = MADE.get(given.profile) if given.case is None else None
    narrow, wide = (int(word) for word in (given.widths or (made[3] if made else "1,2")).split(","))
    theirs_too = OWN_PROFILES.get(given.profile)
    profile = parse(theirs_too, "the tests")[0] if theirs_too else named(given.profile, read_all())
    command = (
        command
        or (made[2].split() if made else [])
        or [sys.executable, str(ROOT / "tests" / "fakes" / "reshapable.py"), "100000", "0.05"]
    )
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    took: dict[tuple[str, int], list[dict[str, float]]] = {}
    rounds = 0
    signal.signal(signal.SIGALRM, _late)
    signal.signal(signal.SIGTERM, _late)
    signal.setitimer(signal.ITIMER_REAL, given.longest)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "case"
        shutil.copytree(given.case, folder) if given.case else folder.mkdir()
        if made is not None:
            made[0](folder, STEPS)
            subprocess.run(["sh", "-c", made[1]], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        case = Case(profile, command, folder)
        try:
            first = case.launch(narrow, None)
            prepare(first, case.folder, case.folder.parent / "prepare")
            run = case.begun(first, narrow)
            first_step(run)
            before = narrow
            while rounds < given.rounds:
                of_round = []
                for is_wide, way in ORDER:
                    ranks = wide if is_wide else narrow
                    if way == "profile":
                        run, seconds = by_profile(case, run, before, ranks, Path(scratch) / "kept")
                    else:
                        run, seconds = by_hand(case, run, before, ranks)
                    of_round.append((way, ranks, seconds))
                    before = ranks
                rounds += 1
                for way, ranks, seconds in of_round:
                    took.setdefault((way, ranks), []).append(seconds)
        except Late:
            if not rounds:
                sys.exit(f"{profile.name}: no whole round within {given.longest:g} s; {machine()}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            case.end()
    print(f"{profile.name}: median seconds of a move to a width, {2 * rounds} moves each way; {machine()}")
    print(f"{'ranks':>5} {'way':>8} " + " ".join(f"{phase:>8}" for phase in PHASES) + f" {'ratio':>6}")
    for ranks in (narrow, wide):
        theirs = statistics.median(one["all"] for one in took["hand", ranks])
        for way in ("hand", "profile"):
            told = [statistics.median(one.get(phase, 0.0) for one in took[way, ranks]) for phase in PHASES]
            figures = " ".join(f"{seconds:>8.3f}" for seconds in told)
            print(f"{ranks:>5} {way:>8} {figures} {told[-1] / theirs:>6.2f}")


if __name__ == "__main__":
    main()
