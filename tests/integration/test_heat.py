"""The example program: its result does not depend on where, or in how many pieces, it was computed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ejbd.batch.base import SubmitRequest
from ejbd.batch.local import LocalBatch
from ejbd.batch.local.client import Client
from ejbd.core.view import BatchState
from ejbd.manager.jobspec.shell import read_script
from tests.fakes.me import ME

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HEAT = EXAMPLES / "heat.py"
PATIENCE_S = 60.0
RANKS = 5
CHECKPOINTED = 85

# Where each rank runs: subjob A has 2 processors, B has 3.
ON_A = [f"A.n1.{rank * 2 // RANKS}" for rank in range(RANKS)]
ON_A_AND_B = ["A.n1.0", "A.n1.0", "A.n1.1", "B.n2.0", "B.n3.0"]
ON_B = ["B.n2.0", "B.n2.1", "B.n3.0", "B.n2.0", "B.n2.1"]


def wait_until(right: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not right():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.01)


def catches_usr1(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & 1 << (signal.SIGUSR1 - 1))
    return False


class Epoch:
    """One placement of the ranks, with the environment that EJB's worker would give them."""

    def __init__(
        self,
        folder: Path,
        processors: Sequence[str],
        *,
        restart: Path | None = None,
        steps: int = 60,
        pace: str = "4ms",
        more: Sequence[str] = (),
        ranks: Sequence[int] | None = None,
    ) -> None:
        self.folder = folder
        self.result = folder / "result"
        self.checkpoints = folder / "checkpoint"
        self._words = ["--size", "24", "--steps", str(steps), "--pace", pace, "--result", str(self.result), *more]
        self._processors = processors
        self._restart = restart
        (folder / "rendezvous").mkdir(parents=True)
        self.ranks = {rank: self.start(rank) for rank in (range(len(processors)) if ranks is None else ranks)}

    def start(self, rank: int) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "EJB_RANK": str(rank),
            "EJB_SIZE": str(len(self._processors)),
            "EJB_EPOCH": "1",
            "EJB_PROCESSOR": self._processors[rank],
            "EJB_PROCESSOR_DIR": str(self.folder / "processors"),
            "EJB_CHECKPOINT_DIR": str(self.checkpoints),
            "EJB_RENDEZVOUS": str(self.folder / "rendezvous"),
            "EJB_ADDRESS": "127.0.0.1",
        }
        if self._restart is not None:
            environment["EJB_RESTART_DIR"] = str(self._restart)
        with open(self.folder / f"{rank}.out", "ab") as out, open(self.folder / f"{rank}.err", "ab") as err:
            return subprocess.Popen([sys.executable, str(HEAT), *self._words], env=environment, stdout=out, stderr=err)

    def ready(self) -> Epoch:
        """All ranks have installed their handler, and a rank of each processor has met its neighbours."""
        wait_until(lambda: all(catches_usr1(rank.pid) for rank in self.ranks.values()), "a handler of USR1")
        processors = len(set(self._processors))
        wait_until(lambda: len(list((self.folder / "processors").glob("*"))) == processors, "a step")
        return self

    def signal(self, *ranks: int) -> None:
        for rank in ranks:
            self.ranks[rank].send_signal(signal.SIGUSR1)

    def codes(self) -> list[int]:
        deadline = time.monotonic() + PATIENCE_S
        return [rank.wait(max(deadline - time.monotonic(), 0.1)) for rank in self.ranks.values()]

    def steps_on_disk(self) -> set[int]:
        files = sorted(self.checkpoints.glob("*"))
        assert [file.name for file in files] == [f"rank-{rank}.ckpt" for rank in range(len(self._processors))]
        return {json.loads(file.read_bytes().split(b"\n", 1)[0])["step"] for file in files}

    def said(self, kind: str = "err") -> str:
        return "".join((self.folder / f"{rank}.{kind}").read_text() for rank in self.ranks)

    def kill(self) -> None:
        for rank in self.ranks.values():
            rank.kill()
            rank.wait()


class Epochs:
    """Starts epochs, and ends what a failed test leaves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Epoch] = []

    def __call__(self, processors: Sequence[str] = ON_A_AND_B, **options: object) -> Epoch:
        folder = self._folder / f"epoch-{len(self._all) + 1}"
        epoch = Epoch(folder, processors, **options)  # type: ignore[arg-type]
        self._all.append(epoch)
        return epoch

    def close(self) -> None:
        for epoch in self._all:
            epoch.kill()


@pytest.fixture
def epochs(tmp_path: Path) -> Iterator[Epochs]:
    epochs = Epochs(tmp_path)
    yield epochs
    epochs.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The result after 60 steps, by one rank and by several that the program starts itself."""
    folder = tmp_path_factory.mktemp("undisturbed")
    results: list[bytes] = []
    for words in ([], ["--spawn", str(RANKS)]):
        path = folder / f"result{len(results)}"
        command = [sys.executable, str(HEAT), *words, "--size", "24", "--steps", "60", "--result", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        assert "sha256" in done.stdout
        results.append(path.read_bytes())
    assert results[0] == results[1]
    return results[0]


def test_moved_twice_the_result_is_the_same_to_the_last_bit(epochs: Epochs, undisturbed: bytes) -> None:
    first = epochs(ON_A).ready()
    first.signal(*range(RANKS))
    assert first.codes() == [CHECKPOINTED] * RANKS
    second = epochs(ON_A_AND_B, restart=first.checkpoints).ready()
    second.signal(*range(RANKS))
    assert second.codes() == [CHECKPOINTED] * RANKS
    assert 0 < first.steps_on_disk().pop() < second.steps_on_disk().pop() < 60
    third = epochs(ON_B, restart=second.checkpoints)
    assert third.codes() == [0] * RANKS
    assert third.result.read_bytes() == undisturbed
    assert not first.result.exists() and not second.result.exists()


def test_a_checkpoint_can_be_taken_up_by_another_number_of_ranks(epochs: Epochs, undisturbed: bytes) -> None:
    first = epochs(ON_A).ready()
    first.signal(0)
    assert first.codes() == [CHECKPOINTED] * RANKS
    second = epochs(["C.n1.0", "C.n1.1", "C.n1.2"], restart=first.checkpoints)
    assert second.codes() == [0, 0, 0]
    assert second.result.read_bytes() == undisturbed


@pytest.mark.sampled(4)
@pytest.mark.parametrize("signalled", [[0], [4], [3], [4, 2]])
def test_a_signal_to_some_ranks_stops_all_at_one_step(epochs: Epochs, signalled: list[int]) -> None:
    epoch = epochs().ready()
    for rank in signalled:
        epoch.signal(rank)
        time.sleep(0.01)
    assert epoch.codes() == [CHECKPOINTED] * RANKS
    assert len(epoch.steps_on_disk()) == 1


def test_late_and_repeated_signals_do_no_harm(epochs: Epochs, undisturbed: bytes) -> None:
    dice = random.Random(7)
    epoch = epochs().ready()
    while any(rank.poll() is None for rank in epoch.ranks.values()):  # also while they write and end
        epoch.signal(dice.randrange(RANKS))
        time.sleep(0.003)
    assert epoch.codes() == [CHECKPOINTED] * RANKS
    last = epochs(ON_B, restart=epoch.checkpoints)
    assert last.codes() == [0] * RANKS
    assert last.result.read_bytes() == undisturbed


@pytest.mark.sampled(3)
@pytest.mark.parametrize("wait_s", [0.0, 0.05, 0.1, 0.15, 0.2, 0.25])
def test_near_the_end_all_checkpoint_or_all_finish(epochs: Epochs, wait_s: float) -> None:
    epoch = epochs([f"A.n1.{rank}" for rank in range(RANKS)], steps=40).ready()
    time.sleep(wait_s)
    epoch.signal(RANKS - 2)
    codes = epoch.codes()
    assert codes in ([CHECKPOINTED] * RANKS, [0] * RANKS)
    assert epoch.result.exists() == (codes[0] == 0)


def test_a_signal_that_is_too_late_for_all_to_hear_is_ignored(epochs: Epochs) -> None:
    epoch = epochs(steps=RANKS // 2, pace="80ms").ready()  # any target lies at or behind the last step
    epoch.signal(*range(RANKS))
    assert epoch.codes() == [0] * RANKS
    assert epoch.result.exists()


def break_temporary(epoch: Epoch) -> None:
    (epoch.checkpoints / "rank-3.ckpt.tmp").mkdir(parents=True)


def break_final(epoch: Epoch) -> None:
    (epoch.checkpoints / "rank-4.ckpt" / "in the way").mkdir(parents=True)


def break_folder(epoch: Epoch) -> None:
    epoch.checkpoints.write_text("not a folder")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("breakage", [break_temporary, break_final, break_folder])
def test_a_rank_that_cannot_write_keeps_all_computing(
    epochs: Epochs, undisturbed: bytes, breakage: Callable[[Epoch], None]
) -> None:
    epoch = epochs().ready()
    breakage(epoch)
    epoch.signal(*range(RANKS))
    assert epoch.codes() == [0] * RANKS
    assert epoch.result.read_bytes() == undisturbed
    assert "no checkpoint at step" in epoch.said()
    if epoch.checkpoints.is_dir():
        assert [path for path in epoch.checkpoints.glob("*") if path.is_file()] == []


@pytest.mark.parametrize("there", [True, False], ids=["told", "no such folder"])
def test_progress_is_told_where_that_can_be_written(
    epochs: Epochs, undisturbed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    path = tmp_path / ("progress" if there else "missing/progress")
    monkeypatch.setenv("EJB_PROGRESS", str(path))
    epoch = epochs(["A.n1.0"] * 2)
    assert epoch.codes() == [0, 0] and epoch.said() == ""
    assert epoch.result.read_bytes() == undisturbed
    if there:
        done, total = map(int, path.read_text().split())
        assert 1 <= done <= total == 60
        assert [p.name for p in tmp_path.iterdir() if "progress" in p.name] == ["progress"]


def test_after_a_failed_checkpoint_the_next_one_works(epochs: Epochs) -> None:
    epoch = epochs(steps=5000).ready()
    break_folder(epoch)
    epoch.signal(1)
    wait_until(lambda: "no checkpoint at step" in epoch.said(), "the complaint")
    epoch.checkpoints.unlink()
    epoch.signal(4)
    assert epoch.codes() == [CHECKPOINTED] * RANKS
    assert len(epoch.steps_on_disk()) == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("killed", [0, 2, 4])
def test_when_a_rank_is_killed_the_others_end_too(epochs: Epochs, killed: int) -> None:
    epoch = epochs([f"A.n1.{rank}" for rank in range(RANKS)], steps=100_000).ready()
    epoch.ranks[killed].kill()
    codes = epoch.codes()
    assert codes[killed] == -signal.SIGKILL
    assert all(code == 1 for rank, code in enumerate(codes) if rank != killed)
    assert "has gone" in epoch.said() or "cannot be reached" in epoch.said()
    assert not epoch.result.exists()


def test_a_rank_that_never_appears_is_not_waited_for_without_end(epochs: Epochs) -> None:
    epoch = epochs(more=["--patience", "1s"], ranks=[0, 1, 2, 4])
    assert epoch.codes() == [1] * 4
    assert "within 1 s" in epoch.said()


def test_a_stranger_on_the_port_is_turned_away(epochs: Epochs, undisturbed: bytes) -> None:
    epoch = epochs(["A.n1.0", "A.n1.1"], ranks=[0])
    place = epoch.folder / "rendezvous" / "rank-0"
    wait_until(place.exists, "an address")
    port = json.loads(place.read_text())["port"]
    for words in (b"GET / HTTP/1.0\r\n\r\n" * 3, b"", b"\x02\x00\x00\x00{}", b"\x02\x00\x00\x0017"):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(words)
    epoch.ranks[1] = epoch.start(1)
    assert epoch.codes() == [0, 0]
    assert epoch.result.read_bytes() == undisturbed


def test_a_damaged_checkpoint_is_refused(epochs: Epochs) -> None:
    places = ["A.n1.0", "A.n1.1", "A.n1.2"]
    first = epochs(places).ready()
    first.signal(0)
    assert first.codes() == [CHECKPOINTED] * 3
    path = first.checkpoints / "rank-2.ckpt"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    second = epochs(places, restart=first.checkpoints, more=["--patience", "5s"])
    assert all(code == 1 for code in second.codes())
    assert "rank-2.ckpt is not whole" in second.said()
    path.unlink()
    third = epochs(places, restart=first.checkpoints, more=["--patience", "5s"])
    assert all(code == 1 for code in third.codes())
    assert "rank-2.ckpt cannot be read" in third.said()


def test_checkpoints_at_intervals_survive_a_sudden_end(epochs: Epochs, undisturbed: bytes) -> None:
    first = epochs(more=["--checkpoint-every", "20"], steps=50)
    assert first.codes() == [0] * RANKS
    assert first.steps_on_disk() == {40}
    second = epochs(ON_B, restart=first.checkpoints)
    assert second.codes() == [0] * RANKS
    assert second.result.read_bytes() == undisturbed


def test_wrong_command_lines() -> None:
    for words in (
        ["--size", "0"],
        ["--steps", "-1"],
        ["--pace", "fast"],
        ["--size", "3", "--spawn", "8"],
        ["--spa", "2"],
    ):
        done = subprocess.run([sys.executable, str(HEAT), *words], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode != 0, words
        assert "Traceback" not in done.stderr


def test_without_ejb_srun_of_slurm_says_who_is_who(tmp_path: Path, undisturbed: bytes) -> None:
    command = [sys.executable, str(HEAT), "--size", "24", "--steps", "60", "--result", "result"]
    slurm = {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "3"}
    ranks = [
        subprocess.Popen(command, env={**os.environ, **slurm, "SLURM_PROCID": str(rank)}, cwd=tmp_path)
        for rank in range(3)
    ]
    assert [rank.wait(PATIENCE_S) for rank in ranks] == [0, 0, 0]
    assert (tmp_path / "result").read_bytes() == undisturbed
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_the_batch_script_may_be_begun_again_and_no_warning_is_told() -> None:
    assert read_script((EXAMPLES / "heat.sbatch").read_text(), 16).once is None


@pytest.mark.nightly("acceptance/test_scripts.py::test_the_example has it run by EJB, with the same result")
async def test_the_batch_script_is_an_ordinary_one(tmp_path: Path, undisturbed: bytes) -> None:
    shutil.copy(HEAT, tmp_path)
    script = (EXAMPLES / "heat.sbatch").read_text()
    shorter = script.replace("--steps 1000 --pace 20ms", "--steps 60 --size 24 --pace 1ms")
    assert shorter != script
    batch = LocalBatch(tmp_path / "cluster")
    try:
        id = await batch.submit(
            ME, SubmitRequest("heat", "", "batch", 16, 60, shorter, workdir=tmp_path, output=tmp_path / "heat-%j.out")
        )
        deadline = time.monotonic() + PATIENCE_S
        while not (job := next(job for job in (await batch.observe()).jobs if job.id == id)).state.ended:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert (job.state, job.exit_code) == (BatchState.COMPLETED, 0), (tmp_path / "heat-1.out").read_text()
        assert (tmp_path / "heat.txt").read_bytes() == undisturbed
    finally:
        await Client(tmp_path / "cluster", 8, 4, timeout_s=10).call("down", start=False, timeout_s=PATIENCE_S)
