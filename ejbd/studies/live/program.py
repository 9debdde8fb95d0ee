"""What the elastic jobs of a played log run: paced ranks that can be moved, and what they must have computed.

Under EASY, which moves no job, srun starts the ranks of the same program.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ejbd.doctor.compiling import compile_c
from ejbd.errors import Code, EjbError

EXPECT_S = 60.0
STEP_S, HEAT_STEP_S = 1.0, 0.05  # of the C program, which stops within its step and hardly ever has to meet; of heat.py


@dataclass(frozen=True, slots=True)
class Program:
    """A program of paced ranks. `pace_s`: what a step takes of each rank's processor.

    `why`: the reason for which it is not the one that was wanted, or ""; `checked`: it can say what its result must be.
    """

    argv: tuple[str, ...]
    name: str
    pace_s: float
    checked: bool
    why: str = ""

    def steps(self, run_s: float) -> int:
        """How many steps take so long."""
        return max(1, round(run_s / self.pace_s))

    def command(self, run_s: float, result: Path) -> list[str]:
        options = ["--steps", str(self.steps(run_s)), "--pace", f"{self.pace_s * 1000:g}ms", "--result", str(result)]
        return [*self.argv, *([] if self.checked else ["--size", "32"]), *options]

    def expected(self, ranks: int, run_s: float) -> str | None:
        """What the result must be; None where it cannot be told. Raises EjbError where the program does not say it."""
        if not self.checked:
            return None
        words = [*self.argv, "--steps", str(self.steps(run_s)), "--expect", str(ranks)]
        return _output(words)

    def check(self, job: str, ranks: int, run_s: float, result: Path) -> None:
        """Raises EjbError where `job` has computed something else than it should, however often it was moved."""
        meant = self.expected(ranks, run_s)
        if meant is None:
            return
        try:
            said = result.read_text()
        except OSError as error:
            said = f"nothing ({error.strerror})"
        if said != meant:
            raise EjbError(
                Code.INTERNAL, f"job {job} was to compute {meant.strip()!r}, and its result is {said.strip()!r}"
            )


def program_at(source: Path, other: Path, folder: Path, pace_s: float | None) -> Program:
    """The program of `source`: compiled into `folder`, which all nodes see, if it is C.

    Where that cannot be, it is `other` (examples/heat.py), with the reason. Raises EjbError where neither is there.
    """
    if source.suffix != ".c":
        return _python(source, pace_s, "")
    compiler = shutil.which("cc") or shutil.which("gcc")
    why = ""
    if not source.is_file():
        why = f"{source} is not there"
    elif compiler is None:
        why = "there is no C compiler on PATH (Debian: apt-get install gcc)"
    else:
        target = folder / source.stem
        try:
            compile_c(compiler, source, target, ["-O2"])
            target.chmod(0o755)
            _output([str(target), "--steps", "1", "--expect", "1"])
        except EjbError as error:
            why = error.message
        else:
            return Program((str(target),), source.name, STEP_S if pace_s is None else pace_s, True)
    return _python(other, pace_s, f"{why}: {other.name} instead; its ranks need far more of the machine")


def _python(source: Path, pace_s: float | None, why: str) -> Program:
    if not source.is_file():
        raise EjbError(Code.INVALID, f"{source} is not there", hint="--program names examples/paced.c or heat.py")
    return Program((sys.executable, str(source)), source.name, HEAT_STEP_S if pace_s is None else pace_s, False, why)


def _output(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=EXPECT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EjbError(Code.UNSUPPORTED, f"{words[0]} does not run here: {error}") from None
    if done.returncode:
        said = done.stderr.strip() or f"it ended with {done.returncode}"
        raise EjbError(Code.UNSUPPORTED, f"{words[0]} does not run here: {said}")
    return done.stdout
