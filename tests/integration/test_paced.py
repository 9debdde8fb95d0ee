"""examples/paced.c: ranks that hold virtual processors by sleeping compute the same however they are moved."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "paced.c"
RANKS, STEPS, WAIT_S = 6, 40, 60
CHECKPOINTED = 85


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (apt-get install gcc)")
    target = tmp_path_factory.mktemp("paced") / "paced"
    words = ["cc", "-Wall", "-Wextra", "-Werror", "-O2", "-o", str(target), str(SOURCE)]
    subprocess.run(words, check=True, timeout=120)
    return target


def expected(program: Path, ranks: int = RANKS) -> str:
    words = [str(program), "--steps", str(STEPS), "--expect", str(ranks)]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=180).stdout


class Placement:
    """All ranks on so many virtual processors."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        number: int,
        processors: int,
        restart: int | None = None,
        ranks: int = RANKS,
        patience: str = "60s",
    ) -> None:
        (folder / f"meet-{number}").mkdir()
        self.ranks = []
        for rank in range(ranks):
            env = {
                **os.environ,
                "EJB_RANK": str(rank),
                "EJB_SIZE": str(ranks),
                "EJB_RENDEZVOUS": str(folder / f"meet-{number}"),
                "EJB_CHECKPOINT_DIR": str(folder / f"checkpoint-{number}"),
                "EJB_PROCESSOR": f"{number}.{rank % processors}",
                "EJB_PROCESSOR_DIR": str(folder / "processors"),
                "EJB_PROGRESS": str(folder / "progress"),
            }
            if restart is not None:
                env["EJB_RESTART_DIR"] = str(folder / f"checkpoint-{restart}")
            words = [str(program), "--steps", str(STEPS), "--pace", "5ms", "--result", str(folder / "result")]
            words += ["--patience", patience]
            self.ranks.append(subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))

    def signal(self) -> None:
        for rank in self.ranks:
            while rank.poll() is None and not catches(rank.pid):
                pass  # as the worker does: before that it would kill
            rank.send_signal(signal.SIGUSR1)

    def ends(self) -> list[int]:
        try:
            return [rank.wait(WAIT_S) for rank in self.ranks]
        finally:
            for rank in self.ranks:
                rank.kill()
                rank.wait()

    def said(self) -> str:
        return "".join(rank.stderr.read().decode() for rank in self.ranks if rank.stderr is not None)


def catches(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)
    return False


def test_the_result_is_the_same_however_often_the_ranks_were_moved(program: Path, tmp_path: Path) -> None:
    """On one processor, on four, suspended, then one each; the stop comes at any moment of a step."""
    placement = Placement(program, tmp_path, 0, 1)
    for number, processors in enumerate((4, 2, RANKS), 1):
        placement.signal()
        assert set(placement.ends()) == {CHECKPOINTED}, placement.said()
        written = sorted(path.name for path in (tmp_path / f"checkpoint-{number - 1}").iterdir())
        assert written == sorted(f"rank-{rank}.ckpt" for rank in range(RANKS))
        placement = Placement(program, tmp_path, number, processors, number - 1)
    assert set(placement.ends()) == {0}, placement.said()
    assert (tmp_path / "result").read_text() == expected(program)
    assert (tmp_path / "progress").read_text().split()[1] == str(STEPS)


def test_a_rank_alone_and_one_of_another_result(program: Path, tmp_path: Path) -> None:
    assert Placement(program, tmp_path, 0, 1, ranks=1).ends() == [0]
    assert (tmp_path / "result").read_text() == expected(program, 1) != expected(program, 2)


def test_where_a_checkpoint_cannot_be_written_the_ranks_go_on(program: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoint-0").write_text("a file, and no folder")
    placement = Placement(program, tmp_path, 0, 2)
    placement.signal()
    assert set(placement.ends()) == {0}
    assert "no checkpoint at step" in placement.said()
    assert (tmp_path / "result").read_text() == expected(program)


def test_a_checkpoint_that_is_not_whole_is_refused(program: Path, tmp_path: Path) -> None:
    placement = Placement(program, tmp_path, 0, 2)
    placement.signal()
    assert set(placement.ends()) == {CHECKPOINTED}
    path = tmp_path / "checkpoint-0" / "rank-2.ckpt"
    path.write_bytes(path.read_bytes()[:-8] + b"\0" * 8)
    placement = Placement(program, tmp_path, 1, 2, 0, patience="1s")  # for the rank that does not come
    assert set(placement.ends()) == {1}
    assert "rank-2.ckpt is not whole" in placement.said()
    assert not (tmp_path / "result").exists()
