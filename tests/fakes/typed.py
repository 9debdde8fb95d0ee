"""`ejb` as a process of its own, forked off one that has imported it: tests type it hundreds of times, and each would
import for a quarter of a second of a processor. What is forked is `ejb` itself, from its `main` on.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from tests.fakes.nursery import Child, of_this_process, serve

_BESIDE = ("httpx", "rich.console", "rich.table", "rich.text", "encodings.idna", "stringprep", "zoneinfo")
_SELDOM = ("ejbd.cli.sim",)  # brings numpy and pictures


class Typed:
    """`ejb` with these words, as far as tests use a `Popen` of it."""

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        ends = [os.pipe() for _ in range(2)]
        # The nursery opens the ends that are written to, and these are closed then.
        files = [f"/proc/{os.getpid()}/fd/{write}" for _, write in ends]
        try:
            self._child: Child = of_this_process("tests.fakes.typed").begin_in(
                str(folder), words, environment, (os.devnull, *files)
            )
        except BaseException:
            for read, _ in ends:
                os.close(read)
            raise
        finally:
            for _, write in ends:
                os.close(write)
        self.stdout, self.stderr = (os.fdopen(read, encoding="utf-8") for read, _ in ends)

    @property
    def returncode(self) -> int | None:
        return self._child.returncode

    def send_signal(self, number: int) -> None:
        self._child.send_signal(number)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What it still says on standard output and on standard error. Raises TimeoutExpired, and has ended it."""
        said = {"out": "", "err": ""}

        def read(name: str, stream: TextIO) -> None:
            said[name] = stream.read()

        readers = [
            threading.Thread(target=read, args=given, daemon=True)
            for given in (("out", self.stdout), ("err", self.stderr))
        ]
        for one in readers:
            one.start()
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(timeout)
            raise
        for one in readers:
            one.join(timeout)
        return said["out"], said["err"]

    def __enter__(self) -> Typed:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _where: TracebackType | None) -> None:
        if kind is not None:
            self._child.kill()
        self._child.wait(60)
        self.stdout.close()
        self.stderr.close()


def _import_all() -> None:
    import ejbd.cli
    import ejbd.client

    for package in (ejbd.cli, ejbd.client):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith(_SELDOM) and not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    for name in _BESIDE:
        importlib.import_module(name)
    assert threading.active_count() == 1, "what is forked off a process with threads may hang"


def _ejb(words: list[str]) -> int:
    from ejbd.cli.main import main

    sys.argv = ["ejb", *words]
    # As an interpreter makes them that is started with this environment.
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False)
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


if __name__ == "__main__":
    _import_all()
    serve(_ejb)
