"""`ejb` typed in a working directory, as a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import select

from ejbd.store.models import Job
from ejbd.store.states import JobState
from tests.fakes.api_server import ApiServer
from tests.fakes.typed import Typed

SCRIPT = "#!/bin/bash\n#SBATCH -n 16 -t 10\n#EJB restartable\nsrun ./app\n"
LONG_S = 30.0


class Shell:
    """A working directory in which `ejb` is typed."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "EJB_SOCKET": server.socket,
            "PYTHONIOENCODING": "utf-8",
        }

    def start(self, *words: str, **environment: str) -> Typed:
        return Typed(words, self.folder, {**self.environment, **environment})

    def ejb(self, *words: str, code: int = 0, **environment: str) -> tuple[str, str]:
        """Run it to its end; what it said on stdout and on stderr."""
        with self.start(*words, **environment) as process:
            out, err = process.communicate(timeout=LONG_S)
        assert process.returncode == code, (words, process.returncode, out, err)
        return out, err

    def submit(self, *words: str) -> str:
        return self.ejb("submit", "--quiet", *words)[0].strip()

    def script(self, text: str = SCRIPT, name: str = "job.sh") -> str:
        (self.folder / name).write_text(text)
        return name

    def row(self, id: str) -> Job:
        return self.server.store.read_sync(lambda session: session.scalars(select(Job).where(Job.id == id)).one())

    def end(self, id: str, state: JobState, exit_code: int | None = None) -> None:
        self.server.run(self.server.manager.end(id, state, exit_code))
