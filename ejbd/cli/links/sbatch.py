"""`sbatch`: `ejb submit`, with sbatch's answers."""

from __future__ import annotations

from collections.abc import Sequence

from ejbd import __version__
from ejbd.cli.links import real


def run(words: Sequence[str]) -> int:
    """Submit; the exit code. Raises EjbError where the job is refused."""
    if list(words) in (["--version"], ["-V"]):
        code = real.ask("sbatch", words)
        if code is None:
            print(f"ejb {__version__}")
        return code or 0
    from ejbd.cli.submission.submitting import quickly

    line = ["submit", "--numbered", *words]
    code = quickly(line)
    if code is not None:
        return code
    from ejbd.cli.app import app

    app(line, prog_name="ejb")  # which says what is wrong with it, and exits
    return 0
