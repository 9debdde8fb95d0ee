"""Commands with a bound, steps with their times, and the two ways in which this can end early."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

Environment = dict[str, str]
BUSY = 2.5  # how much slower things may be in CI, which runs the test suite beside this


_under_way: set[subprocess.Popen[str]] = set()
_ending = threading.Event()


class Skipped(Exception):
    """Nothing can be tested here; the text says why."""


class Wrong(Exception):
    """Something is not as it should be; the text says what."""


def say(text: str) -> None:
    print(f"compose-test: {text}", flush=True)


def run(
    words: Sequence[str],
    bound_s: float,
    *,
    env: Environment | None = None,
    given: str | None = None,
    fails: bool = False,
) -> str:
    """What a command prints on standard output. Raises Wrong where it fails (unless it may) or takes too long."""
    try:
        process = subprocess.Popen(
            list(words),
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise Wrong(f"{words[0]}: {error.strerror}") from None
    _under_way.add(process)
    try:
        if _ending.is_set() and threading.current_thread() is not threading.main_thread():
            raise Wrong(f"everything is being taken down: {' '.join(words)}")
        output, errors = process.communicate(given, BUSY * bound_s)
    except subprocess.TimeoutExpired:
        raise Wrong(f"not done within {BUSY * bound_s:.0f} s: {' '.join(words)}") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        _under_way.discard(process)
    if process.returncode and not fails:
        last = "\n".join((output + errors).strip().splitlines()[-15:])
        raise Wrong(f"exit code {process.returncode}: {' '.join(words)}\n{last}")
    return output


def end_others() -> None:
    """End what other threads have under way, and let them begin nothing: what is taken down must not come up behind."""
    _ending.set()
    for process in list(_under_way):
        process.kill()


def works(words: Sequence[str], bound_s: float = 20, env: Environment | None = None) -> bool:
    try:
        run(words, bound_s, env=env)
    except Wrong:
        return False
    return True


def until(what: str, true: Callable[[], bool], bound_s: float, every_s: float = 0.5, seldom_s: float = 2.5) -> None:
    """Wait, with a bound for a quiet machine. Looks more and more seldom: a look costs half a second of a processor.

    Raises Wrong.
    """
    bound_s *= BUSY
    end = time.monotonic() + bound_s
    while not true():
        if time.monotonic() > end:
            raise Wrong(f"not within {bound_s:.0f} s: {what}")
        time.sleep(every_s)
        every_s = min(seldom_s, 1.3 * every_s)


class Steps:
    """What was done, and how long each took."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, float]] = []
        self._begin = time.monotonic()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        say(f"-- {name}")
        begin = time.monotonic()
        try:
            yield
        finally:
            self.taken.append((name, time.monotonic() - begin))
            say(f"   {self.taken[-1][1]:6.1f} s")

    def told(self) -> str:
        lines = [f"{seconds:7.1f} s  {name}" for name, seconds in self.taken]
        return "\n".join([*lines, f"{time.monotonic() - self._begin:7.1f} s  from beginning to end"])


def root_on_debian(release: str = "") -> bool:
    """Whether packages may be installed here (and, where it matters, whether it is this release)."""
    if sys.platform != "linux" or os.geteuid() != 0 or not works(["apt-get", "--version"]):
        return False
    with open("/etc/os-release") as file:
        words = dict(line.rstrip().split("=", 1) for line in file if "=" in line)
    told = {name: value.strip('"') for name, value in words.items()}
    return told.get("ID") == "debian" and release in ("", told.get("VERSION_CODENAME"))
