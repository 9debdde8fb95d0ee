"""Somebody swaps files and folders of a job for links while the daemon reads, writes and deletes there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ejbd.files.userfiles import NotPlain, read_plain
from ejbd.manager.hands.files import OWN_FILES
from ejbd.manager.hands.spool import Spool

ROUNDS = 150
PATIENCE_S = 60.0
SECRET = b"somebody else's"


@contextmanager
def racing(*swaps: Callable[[], None]) -> Iterator[Callable[[], int]]:
    """The swaps one after the other, again and again, in a thread; called, it says how often each was made."""
    over, made = threading.Event(), [0]

    def race() -> None:
        while not over.is_set():
            for swap in swaps:
                with suppress(OSError):
                    swap()
            made[0] += 1

    racer = threading.Thread(target=race)
    racer.start()
    try:
        yield lambda: made[0]
    finally:
        over.set()
        racer.join(30)


def until(enough: Callable[[], bool], act: Callable[[], object]) -> None:
    """`act` again and again, until what races with it has been met often enough; bounded."""
    deadline = time.monotonic() + PATIENCE_S
    while not enough():
        assert time.monotonic() < deadline, "the race was not met"
        act()


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    """In one step, as `ln -sfT` and `mv` do."""
    beside = path.with_name("beside")
    make(beside)
    beside.replace(path)


def test_a_file_swapped_for_a_link_is_read_as_it_was_or_not_at_all(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "exit.json"
    victim.write_bytes(SECRET)
    seen: set[bytes] = set()

    def read() -> None:
        with suppress(NotPlain, FileNotFoundError):
            seen.add(read_plain(path, 100)[0])

    with racing(
        lambda: replaced(path, lambda p: p.write_bytes(b"own")), lambda: replaced(path, lambda p: p.symlink_to(victim))
    ) as made:
        until(lambda: made() >= ROUNDS and bool(seen), read)
    assert seen == {b"own"}


def test_what_is_written_beside_a_swapping_link_is_written_there_and_nowhere_else(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "env.json"
    victim.write_bytes(SECRET)
    with racing(lambda: replaced(path, lambda p: p.symlink_to(victim)), path.unlink) as made:
        until(lambda: made() >= ROUNDS, lambda: OWN_FILES.put(path, b"{}"))
    OWN_FILES.put(path, b"{}")
    assert victim.read_bytes() == SECRET
    assert path.read_bytes() == b"{}" and not path.is_symlink()


def test_a_folder_swapped_for_a_link_is_deleted_without_what_it_leads_to(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.prepare()
    victim = tmp_path / "victim"
    victim.mkdir()
    for number in range(20):
        (victim / str(number)).write_bytes(SECRET)
    folder = spool.job_dir("j") / "subjobs"
    swapped, dropped = [], []

    def link() -> None:
        folder.replace(folder.with_name("away"))
        folder.symlink_to(victim)
        swapped.append(True)

    def back() -> None:
        folder.unlink()
        folder.with_name("away").replace(folder)

    def drop() -> None:
        with suppress(OSError):
            (folder / "0").mkdir(parents=True, exist_ok=True) if not folder.is_symlink() else None
        spool.drop_jobs(["j"])
        dropped.append(True)

    with racing(link, back):
        until(lambda: min(len(swapped), len(dropped)) >= ROUNDS // 4, drop)
    assert len(list(victim.iterdir())) == 20
