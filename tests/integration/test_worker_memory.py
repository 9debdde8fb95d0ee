"""Ranks that the kernel kills for memory, and who is told what killed them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.worker_process import World, eventually, world
from workers.ejb_worker.linux import memory_kills

MEGABYTES = 1024 * 1024
HOG = "import sys; kept = bytearray(int(sys.argv[1])); print(len(kept))"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        yield value


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group with 100 MB, as a batch system makes one for a job."""
    root = Path("/sys/fs/cgroup/memory")
    group = root / f"ejb-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(100 * MEGABYTES))
        (group / "memory.swappiness").write_text("0")
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group for memory can be made here ({error}): version 1 and root are needed")
    try:
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(pid)

        def gone() -> bool:
            with suppress(OSError):
                group.rmdir()
            return not group.exists()

        eventually(gone)


def test_a_rank_that_the_kernel_killed_for_memory_is_told_as_that(there: World, limited: Path) -> None:
    worker = there.start()
    (limited / "cgroup.procs").write_text(str(worker.pid))
    there.launch(sys.executable, "-c", HOG, str(400 * MEGABYTES))
    assert there.exits(1) == {0: 137}
    assert there.manager.of_kind("rank-exit")[0]["memory"] is True
    there.launch("sh", "-c", "kill -KILL $$", epoch=2)
    reports = there.manager.wait_for(lambda: [r for r in there.manager.of_kind("rank-exit") if r["epoch"] == 2])
    assert "memory" not in reports[0], "what was killed before is not what killed this one"


@pytest.mark.parametrize(
    ("group", "file", "text", "kills"),
    [
        (
            "5:cpu:/a\n4:memory:/slurm/job_1\n0::/",
            "memory/slurm/job_1/memory.oom_control",
            "under_oom 0\noom_kill 3",
            3,
        ),
        ("4:cpu,memory:/\n", "memory/memory.oom_control", "oom_kill_disable 0\noom_kill 1\n", 1),
        ("0::/job_1/task_0\n", "job_1/task_0/memory.events", "low 0\noom 9\noom_kill 2\n", 2),
        ("0::/\n", "memory.stat", "", 0),
        ("4:memory:/x\n", "memory/x/memory.oom_control", "under_oom 0\n", 0),
        ("not a group\n", "memory.events", "oom_kill 7\n", 0),
    ],
)
def test_kills_are_counted_in_both_versions_of_control_groups(
    tmp_path: Path, group: str, file: str, text: str, kills: int
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(group)
    counters = tmp_path / "sys/fs/cgroup" / file
    counters.parent.mkdir(parents=True)
    counters.write_text(text)
    assert memory_kills(str(tmp_path)) == kills


def test_where_nobody_counts_nothing_was_killed(tmp_path: Path) -> None:
    assert memory_kills(str(tmp_path)) == 0
