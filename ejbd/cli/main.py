"""`ejb`: where the command line starts. Nothing is imported before it is needed: `ejb submit` is started often."""

from __future__ import annotations

import gc
import os
import sys

LINKS = ("sbatch", "squeue", "scancel", "scontrol", "sacct", "qsub")  # under which `ejb` does as these do
_COMPLETING = "_EJB_COMPLETE"  # set by the shell's completion: its words are not in argv


def _await_starting_daemon(path: str) -> bool:
    from ejbd.cli.starting_daemon import await_starting_daemon

    return await_starting_daemon(path)


def main() -> None:
    """Entry point."""
    words, name = sys.argv[1:], sys.argv[0].rpartition("/")[2]
    if words == ["--version"] and name not in LINKS and _COMPLETING not in os.environ:
        from ejbd.release.version import told

        print(told("ejb"))
        return
    if _is_often_started():
        gc.set_threshold(100_000)  # so little is made that nothing has to be looked for in it
    from ejbd.cli.output import current
    from ejbd.client import unix
    from ejbd.errors import EjbError

    unix.await_daemon = _await_starting_daemon
    try:
        if name in LINKS:
            from ejbd.cli import links

            sys.exit(links.run(name, words))
        if "submit" in words and _COMPLETING not in os.environ:
            from ejbd.cli.submission.submitting import quickly

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


def _is_often_started() -> bool:
    return "submit" in sys.argv or sys.argv[0].rpartition("/")[2] in LINKS


def run() -> None:
    """`ejb` as a program. What is called in scripts ends at once: Python would take itself apart for as long as a tenth
    of a submission lasts."""
    try:
        main()
    except SystemExit as ended:
        if _is_often_started() and isinstance(ended.code, int):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code)
        raise


if __name__ == "__main__":
    run()
