"""`sbatch`: `ejb submit`, with sbatch's answers. It is started often: nothing is imported before it is needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from ejbd.errors import Code, EjbError

_TEST, _CLUSTERS, _QUIET = (
    "--test-only",
    "--option=--clusters=",
    "--option=--quiet",
)  # as the words of a line are translated

_CLICKS_WRONG_LINE, _WRONG_LINE = 2, 255
_REFUSALS = (Code.INVALID, Code.NOT_FOUND, Code.CONFLICT, Code.UNSUPPORTED, Code.BATCH_REFUSED)
_UNREAD = (Code.INVALID, Code.UNSUPPORTED)
_ALLOCATION = "allocation failure: "  # so a line of sbatch begins where it only tests
_SUBMISSION = "sbatch: error: Batch job submission failed: "  # and so where it submits


def run(words: Sequence[str]) -> int:
    """Submit; the exit code. Raises EjbError where the job is refused."""
    if list(words) in (["--version"], ["-V"], ["--usage"]):
        from ejbd import __version__
        from ejbd.cli.links import real

        code = real.ask("sbatch", words)
        if code is None:
            print(f"ejb {__version__}")
        return code or 0
    line, cluster, silent = list(words), "", False
    if any(word.startswith(("-M", "--cl", "--te", "-Q", "--qu")) for word in words):
        from ejbd.cli.links import real
        from ejbd.cli.submission import sbatchwords
        from ejbd.cli.submission.words import KNOWN, words_behind

        line = sbatchwords.translated(words, KNOWN)
        options = line[: len(line) - len(words_behind(line))]
        silent = bool({_QUIET, "--quiet"} & set(options))
        named = [word.removeprefix(_CLUSTERS) for word in options if word.startswith(_CLUSTERS)]
        cluster = _own_cluster() if named else ""
        # Another cluster's jobs are none of EJB's, and when one would start is asked of the batch system.
        theirs = bool(named) and not {cluster, "all"} & set(named[-1].split(","))
        if theirs or (_TEST in options and not any(map(_is_ours, options))):
            code = real.ask("sbatch", words)
            if code is not None:
                return code
        if not theirs:
            line = [word for at, word in enumerate(line) if at >= len(options) or not word.startswith(_CLUSTERS)]
    sys.stdin = script = _Kept(sys.stdin)
    try:
        return _submit(["submit", "--numbered", *line], cluster, silent)
    except Exception as error:
        wrong_line = getattr(error, "exit_code", None) == _CLICKS_WRONG_LINE
        if not wrong_line and not (isinstance(error, EjbError) and error.code in _REFUSALS):
            raise
        by_slurm = isinstance(error, EjbError) and error.code is Code.BATCH_REFUSED
        code = _test_by_slurm(words, script.text, str(error) if by_slurm else "")
        if code:
            return code
        if code == 0 and (wrong_line or getattr(error, "code", None) in _UNREAD):
            return _hand_to_slurm(words, script.text, error)
        if not wrong_line:
            raise
        error.show()  # type: ignore[attr-defined]
        return _WRONG_LINE


class _Kept:
    """Standard input, with what was read of it: another command may have to read the script, too."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.buffer = self
        self.isatty = stream.isatty
        self.text = b""

    def read(self, most: int) -> bytes:
        self.text = self._stream.buffer.read(most)
        return self.text


def _submit(line: list[str], cluster: str, silent: bool) -> int:
    """The exit code. Raises EjbError, and what typer raises of a line that is wrong."""
    from ejbd.cli.submission.submitting import quickly

    code = quickly(line, cluster, silent=silent)
    if code is not None:
        return code
    from ejbd.cli.app import app

    return int(app(line, prog_name="ejb", standalone_mode=False) or 0)


def _hand_to_slurm(words: Sequence[str], script: bytes, error: Exception) -> int:
    """What EJB cannot read, and Slurm can, is submitted as without EJB; the exit code."""
    from ejbd.cli.links import real

    said = str(getattr(error, "message", "") or error).rstrip(".")
    print(f"sbatch: warning: EJB cannot read this, so that the job is Slurm's alone: {said}", file=sys.stderr)
    return real.hand_on("sbatch", words, script) or 0


def _test_by_slurm(words: Sequence[str], script: bytes, told: str) -> int | None:
    """What sbatch itself would make of the line: 0, or its exit code once it has said why not. None: there is none, or
    the line is none of its own. `told`: what it has said of the submission itself."""
    from ejbd.cli.links import real
    from ejbd.cli.links.scontrol import is_embedded
    from ejbd.cli.submission import sbatchwords
    from ejbd.cli.submission.words import KNOWN, words_behind
    from ejbd.client.client import Client

    line = sbatchwords.translated(words, KNOWN)
    if any(map(_is_ours, line[: len(line) - len(words_behind(line))])):
        return None
    try:
        if is_embedded(Client()):
            return None  # a Slurm that is there besides has other nodes
    except EjbError:
        return None
    done = real.query("sbatch", [_TEST, *words], script.decode(errors="replace"))
    if done is None or not done.returncode:
        return None if done is None else 0
    for words_before in told.split("; ")[:-1]:  # which sbatch does not say where it only tests
        said = words_before.rpartition("(")[2].rpartition(": ")[2]
        if said not in done.stderr:
            sys.stderr.write(f"sbatch: error: {said}\n")
    sys.stderr.write(done.stderr.replace(_ALLOCATION, _SUBMISSION))
    return done.returncode


def _is_ours(word: str) -> bool:
    """Whether a word is an option that only EJB has."""
    from ejbd.cli.submission.words import KNOWN
    from ejbd.options.sbatch import matching

    name = word.partition("=")[0]
    return word.startswith("--") and name in KNOWN and name != "--option" and not matching(name[2:])


def _own_cluster() -> str:
    """The name of the cluster that the site's commands ask; "" where they tell none."""
    import subprocess

    from ejbd.cli.links import real

    command = real.own_command("scontrol")
    if command is None:
        return ""
    told = subprocess.run([command, "show", "config"], check=False, capture_output=True, text=True).stdout
    pairs = (row.partition("=") for row in told.splitlines())
    return next((value.strip() for name, _, value in pairs if name.strip() == "ClusterName"), "")
