"""`ejb` under the names of Slurm's commands, and of qsub, for tools that know no others.

A link of such a name to `ejb` is all that there is to be made. Jobs are told by their numbers (ejbd.wire.numbers). What
is about no job of EJB's goes to the site's own command of that name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from ejbd.errors import EjbError


def run(name: str, words: Sequence[str]) -> int:
    """Do what the command of this name would do; its exit code. Errors are printed as that command prints them."""
    from ejbd.cli.output import sentences

    try:
        code: int = importlib.import_module(f"ejbd.cli.links.{name}").run(list(words))
    except EjbError as error:
        print(f"{name}: error: {sentences(error.sentence())}", file=sys.stderr)
        for other in error.details.get("also", ()):
            print(f"{name}: error: also {sentences(str(other))}", file=sys.stderr)
        return 1
    return code
