"""`ejb`: where the command line starts. Nothing is imported before it is needed: `ejb submit` is started often."""

from __future__ import annotations

import os
import sys

from ejbd import __version__

_NAMES_OF_SLURM = ("sbatch", "squeue", "scancel")  # under which `ejb` does what a tool expects of these
_COMPLETING = "_EJB_COMPLETE"  # set by the shell's completion, whose words are not in argv


def main() -> None:
    """Entry point."""
    words = sys.argv[1:]
    if words == ["--version"] and _COMPLETING not in os.environ:
        print(f"ejb {__version__}")
        return
    from ejbd.cli.output import current
    from ejbd.errors import EjbError

    try:
        name = sys.argv[0].rpartition("/")[2]
        if name in _NAMES_OF_SLURM:
            from ejbd.cli import slurm_names

            words = slurm_names.command_line(name, words)
            if not words:
                return
        if "submit" in words and _COMPLETING not in os.environ:
            from ejbd.cli.submit import quickly

            code = quickly(words)
            if code is not None:
                sys.exit(code)
        from ejbd.cli.app import app

        app(words, prog_name="ejb")
    except EjbError as error:
        sys.exit(current().failure(error))
    except BrokenPipeError:  # the reader (head, less) has had enough
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
