"""How far an application is, by its own log, for the file in which a program would tell it itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Mapping, Optional

from .filling import filled
from .judging import last_number
from .saying import STDOUT
from .since import Since

TAIL_BYTES = 64 * 1024
"""Of a log's end: the last step stands there."""
HEAD_BYTES = 1024 * 1024
"""Of what was written since the launch: how many steps there are to be stands there."""


class Progress:
    """Of one launch. `about`: the profile's `progress`."""

    def __init__(self, about: Any, values: Mapping[str, str], since: Since, folder: Path, output: Path) -> None:
        name = filled(about.log, values)
        self._about = about
        self._path = output if name == STDOUT else folder / name
        self._from, self._inode = since.logs.get(name, (0, 0))
        self._total: Optional[float] = None

    def read(self) -> "Optional[tuple[float, Optional[float]]]":
        """Steps done, and to be done as far as that is said; None where nothing is told yet."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                begin = self._from if found.st_ino == self._inode and found.st_size >= self._from else 0
                if self._about.total and self._total is None:
                    file.seek(begin)
                    self._total = last_number(self._about.total, file.read(HEAD_BYTES).decode("utf-8", "replace"))
                file.seek(max(begin, found.st_size - TAIL_BYTES))
                done = last_number(self._about.line, file.read(TAIL_BYTES).decode("utf-8", "replace"))
        except OSError:
            return None
        return None if done is None else (done, self._total)

    def tell(self, path: str) -> None:
        """Write it into the file in which a program tells its progress."""
        found = self.read()
        if found is None or found[0] < 0:
            return
        done, total = found
        line = "%.15g\n" % done if total is None or total < done else "%.15g %.15g\n" % (done, total)
        with open(path + ".tmp", "w", encoding="ascii") as file:
            file.write(line)
        os.replace(path + ".tmp", path)
