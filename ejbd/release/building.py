"""The one step of a build that is EJB's own: commit and date are written into the wheel. Run by setuptools alone."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from setuptools.command.build_py import build_py  # type: ignore[import-untyped]

sys.path.insert(0, str(Path.cwd()))  # an isolated build has not the sources there
from ejbd.release.version import checked_out


class BuildPy(build_py):  # type: ignore[misc]
    """Writes `ejbd/release/stamp.py` into what is built, never into the sources."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            stamp = Path(self.build_lib, "ejbd", "release", "stamp.py")
            stamp.write_text(f'"""Written by the build."""\n\nBUILT = {_known()!r}\n')


def _known() -> str:
    """By git; else EJB_COMMIT, and the day: that of SOURCE_DATE_EPOCH where builds are to be equal."""
    found = checked_out(str(Path.cwd()))
    if found:
        return found
    at = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return f"{os.environ.get('EJB_COMMIT') or 'built'} {time.strftime('%Y-%m-%d', time.gmtime(at))}"
