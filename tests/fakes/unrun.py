"""A session of `ejb-as` in this process, as this user, that runs no command."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

from ejbd.identity import ejb_as


class Unrun(ejb_as.Session):
    """Records commands instead of running them."""

    def __init__(self, spool: Path, batch: str = "slurm") -> None:
        config = {"spool": str(spool), "path": "/nowhere", "environment": {}, "batch": batch}
        super().__init__(pwd.getpwuid(os.geteuid()), config)
        self.ran: list[list[str]] = []
        self.logged: list[str] = []

    def run(self, argv: list[str], request: dict[str, Any], keep: Any = ()) -> dict[str, Any]:
        self.ran.append(argv)
        return {"code": 0}

    def log(self, what: str) -> None:
        self.logged.append(what)

    def ask(self, **request: Any) -> dict[str, Any]:
        return self.answer(json.dumps(request).encode())
