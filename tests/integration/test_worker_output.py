"""The output in one piece: whole lines, each exactly once, whatever happens to the one who collects them."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.manager_server import Json
from tests.fakes.worker_process import World, eventually, world
from workers.ejb_worker import collector as collector_module
from workers.ejb_worker.collector import Collector, Output
from workers.ejb_worker.journal import Superseded

ROOT = Path(__file__).resolve().parents[2]


class Job:
    """A job's folder with ranks that a test writes for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out, self.err = folder / "job.out", folder / "job.err"

    def file(self, rank: int, *, epoch: int = 1, stream: str = "out") -> Path:
        path = self.folder / "epochs" / str(epoch) / "output" / f"{rank}.{stream}"
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            (path.parent.parent / "launch.json").write_text("{}")
        return path

    def write(self, text: str, rank: int = 0, *, epoch: int = 1, stream: str = "out") -> None:
        with self.file(rank, epoch=epoch, stream=stream).open("a") as file:
            file.write(text)

    def script(self, text: str, *, run: int = 1, stream: str = "out") -> None:
        path = self.folder / "script" / f"{run}.{stream}"
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(text)

    def output(self, *, owner: str = "one", error: bool = False, truncate: bool = True, run: int = 1) -> Output:
        err = str(self.err) if error else None
        return Output(str(self.folder), str(self.out), err, owner=owner, truncate=truncate, run=run)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_whole_lines_only(job: Job) -> None:
    output = job.output()
    job.write("one\ntw")
    job.write("1\n2", rank=1)
    output.collect()
    assert job.out.read_text() == "one\n1\n"
    job.write("o\n")
    output.collect()
    assert job.out.read_text() == "one\n1\ntwo\n"
    output.collect(final_epoch=1)
    assert job.out.read_text() == "one\n1\ntwo\n2"
    job.write("later\n", epoch=2)
    output.collect()
    assert job.out.read_text() == "one\n1\ntwo\n2later\n", "as with srun, nothing is put behind a last line"


def test_an_output_without_last_newline_stays_so(job: Job) -> None:
    output = job.output()
    job.write("only")
    output.collect(final_epoch=1)
    assert job.out.read_bytes() == b"only"


def test_nothing_is_put_between_last_lines_but_where_ranks_go_on_elsewhere(job: Job) -> None:
    output = job.output()
    job.script("one: ")
    output.collect()
    assert job.out.read_text() == "one: ", "a script's line is there as far as it is written"
    job.write("x", rank=0)
    job.write("y\nx", rank=1)
    output.collect(final_epoch=1)
    job.script("done\n")
    output.collect()
    assert job.out.read_text() == "one: y\nxxdone\n"
    job.write("a", rank=0, epoch=2)
    job.write("b", rank=1, epoch=2)
    output.collect(final_epoch=2, moved=True)
    job.write("aa\n", rank=0, epoch=3)
    output.collect()
    assert job.out.read_text() == "one: y\nxxdone\na\nb\naa\n"


def test_a_line_of_any_length_is_not_broken_by_those_of_others(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "_CHUNK", 1000)
    monkeypatch.setattr(collector_module, "_BATCH", 3000)
    output = job.output()
    for rank in range(3):
        job.write(str(rank) * 3500, rank=rank)
        output.collect()
    for rank in range(3):
        job.write(f"{rank}\nnext {rank}\n" + str(rank) * 700, rank=rank)
    output.collect()
    output.collect()
    output.collect(final_epoch=1)
    lines = job.out.read_text().split("\n")
    assert sorted(lines[:-1]) == sorted([str(rank) * 3501 for rank in range(3)] + [f"next {rank}" for rank in range(3)])
    assert sorted(lines[-1]) == sorted("012" * 700)


def test_who_stops_in_the_middle_of_a_long_line_holds_up_nobody_for_long(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "_CHUNK", 1000)
    output = job.output()
    job.write("0" * 1500)
    job.write("1\n", rank=1)
    output.collect()
    assert job.out.read_text() == "0" * 1500
    monkeypatch.setattr(collector_module, "_LINE_PATIENCE_S", 0.0)
    output.collect()
    assert job.out.read_text() == "0" * 1500 + "1\n"


def test_two_streams(job: Job) -> None:
    output = job.output(error=True)
    job.write("o\n")
    job.write("e\n", stream="err")
    job.script("so\n")
    job.script("se\n", stream="err")
    output.collect()
    assert job.out.read_text() == "so\no\n"
    assert job.err.read_text() == "se\ne\n"


def test_one_stream_takes_both(job: Job) -> None:
    output = job.output()
    job.write("o\n")
    job.write("e\n", stream="err")
    output.collect()
    assert job.out.read_text() == "e\no\n"


@pytest.mark.parametrize(("truncate", "expected"), [(True, "new\n"), (False, "old\nnew\n")])
def test_what_was_there_before(job: Job, truncate: bool, expected: str) -> None:
    job.out.write_text("old\n")
    output = job.output(truncate=truncate)
    output.collect()
    job.write("new\n")
    output.collect()
    assert job.out.read_text() == expected
    after = job.output(owner="two", truncate=truncate)  # the next lead never empties it
    after.collect()
    assert job.out.read_text() == expected


def test_an_earlier_placement_comes_first(job: Job) -> None:
    output = job.output()
    job.write("a\nlast", epoch=1)
    job.write("b\n", epoch=2)
    job.write("c\n", epoch=10)
    output.collect()
    assert job.out.read_text() == "a\nlast\nb\nc\n"


def test_a_placement_that_is_not_launched_waits(job: Job) -> None:
    output = job.output()
    job.write("a\n")
    (job.folder / "epochs" / "1" / "launch.json").unlink()
    output.collect()
    assert job.out.read_text() == ""
    output.collect(final_epoch=1)
    assert job.out.read_text() == "a\n"


def test_a_launch_with_files_of_its_own(job: Job) -> None:
    output = job.output()
    job.write("mine\n")
    job.write("wrong\n", stream="err")
    own = job.folder / "0.out"
    (job.folder / "epochs" / "1" / "launch.json").write_text(json.dumps({"stdout": str(own), "stderr": "output"}))
    output.collect()
    assert own.read_text() == "mine\n"
    assert job.out.read_text() == "wrong\n"


def test_what_an_attempt_has_printed_is_taken_off_again_where_its_launch_begins_anew(job: Job) -> None:
    """Its errors stood in the output of a job that had completed."""
    job.script("hello\n")
    output = job.output(error=True)
    output.collect()
    job.write("half a line", epoch=1)
    job.write("it failed\n", epoch=1, stream="err")
    output.collect()
    output.collect(final_epoch=1)
    assert (job.out.read_text(), job.err.read_text()) == ("hello\nhalf a line", "it failed\n")
    output.take_back(1)
    assert (job.out.read_text(), job.err.read_text()) == ("hello\n", "")
    job.write("whole\n", epoch=2)
    output.collect(final_epoch=2)
    assert job.out.read_text() == "hello\nwhole\n"


def test_of_an_output_to_which_others_have_written_since_nothing_is_taken_off(job: Job) -> None:
    output = job.output()
    job.write("first\n", epoch=1)
    output.collect(final_epoch=1)
    with job.out.open("a") as file:
        file.write("another's\n")
    job.output(owner="two", truncate=False).take_back(1)
    assert job.out.read_text() == "first\nanother's\n"


def test_a_line_longer_than_a_chunk(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "_CHUNK", 10)
    output = job.output()
    job.write("x" * 25 + "\n")
    output.collect()
    assert job.out.read_text() == "x" * 25 + "\n"


def test_the_earlier_runs_of_a_script_have_ended(job: Job) -> None:
    job.script("before\ncut", run=1)
    output = job.output(run=2)
    job.script("again\nopen", run=2)
    output.collect()
    assert job.out.read_text() == "before\ncut\nagain\nopen"
    output.collect(final_run=2)
    assert job.out.read_text() == "before\ncut\nagain\nopen"


def test_a_second_collector_stops_the_first(job: Job) -> None:
    first = job.output()
    job.write("a\n")
    first.collect()
    second = job.output(owner="two")
    job.write("b\n")
    with pytest.raises(Superseded):
        first.collect()
    second.collect()
    assert job.out.read_text() == "a\nb\n"


def test_an_output_that_cannot_be_written_yet(job: Job) -> None:
    job.out = job.folder / "later" / "job.out"
    said: list[str] = []
    answers: list[str] = []
    collector = Collector(job.output, call_soon=lambda call: call(), log=said.append)
    collector.start()
    job.write("a\n")
    collector.flush(answers.append)
    eventually(lambda: answers)
    assert "later" in answers[0]
    job.out.parent.mkdir()
    eventually(lambda: job.out.exists() and job.out.read_text() == "a\n")
    assert len(said) == 1
    done = threading.Event()
    collector.close(lambda error: done.set())
    assert done.wait(120)


# A collector that ends itself at the N-th step that could be torn: half of a write, before or after a rename or a sync.
FAULTY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from workers.ejb_worker import files, journal
from workers.ejb_worker.collector import Output
left = int(sys.argv[3])

def step():
    global left
    left -= 1
    if left == 0:
        os._exit(9)

def torn_write(descriptor, data):
    half = len(data) // 2
    os.write(descriptor, data[:half])
    step()
    os.write(descriptor, data[half:])
    step()

replace, sync = os.replace, os.fdatasync
def torn_replace(a, b):
    step()
    replace(a, b)
    step()

def torn_sync(descriptor):
    step()
    sync(descriptor)
    step()

files.write_all = journal.write_all = torn_write
os.replace = torn_replace
os.fdatasync = torn_sync
folder = sys.argv[2]
output = Output(folder, folder + "/job.out", folder + "/job.err", owner=str(os.getpid()), truncate=True, run=1)
output.collect()
output.collect(final_epoch=1)
"""


def test_ended_at_every_step(job: Job) -> None:
    job.script("start\n")
    for rank in range(3):
        job.write("".join(f"rank {rank} line {n}\n" for n in range(20)) + "torn", rank=rank)
        job.write(f"error {rank}\n", rank=rank, stream="err")
    steps = 0
    while True:
        steps += 1
        assert steps < 200
        for name in ("job.out", "job.err", "output.json", "output.lock"):
            (job.folder / name).unlink(missing_ok=True)
        command = [sys.executable, "-c", FAULTY, str(ROOT), str(job.folder), str(steps)]
        code = subprocess.run(command, check=False, timeout=180).returncode
        output = job.output(owner="next", error=True)
        output.collect()
        output.collect(final_epoch=1)
        lines = job.out.read_text().split("\n")
        expected = [f"rank {rank} line {n}" for rank in range(3) for n in range(20)] + ["torn" * 3, "start"]
        assert sorted(lines) == sorted(expected), f"ended at step {steps}"
        assert sorted(job.err.read_text().splitlines()) == ["error 0", "error 1", "error 2"]
        if code == 0:
            break
    assert steps > 10  # the faults were met


COLLECTING = """
import sys, time, os
sys.path.insert(0, sys.argv[1])
from workers.ejb_worker.collector import Output
folder = sys.argv[2]
output = Output(folder, folder + "/job.out", None, owner=str(os.getpid()), truncate=True, run=1)
while True:
    output.collect()
"""

WRITING = """
import os, random, sys
path, rank = sys.argv[1:]
chance = random.Random(rank)
fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
text = b"".join(b"rank %s line %d %s\\n" % (rank.encode(), n, b"x" * chance.randrange(200)) for n in range(2000))
at = 0
while at < len(text):
    at += os.write(fd, text[at : at + chance.randrange(1, 700)])
"""


def test_killed_at_random_while_ranks_write(job: Job) -> None:
    chance = random.Random(1)
    job.out.parent.mkdir(exist_ok=True)
    writers = [subprocess.Popen([sys.executable, "-c", WRITING, str(job.file(rank)), str(rank)]) for rank in range(3)]
    try:
        for _ in range(8):
            collecting = subprocess.Popen([sys.executable, "-c", COLLECTING, str(ROOT), str(job.folder)])
            time.sleep(0.15 + 0.2 * chance.random())
            collecting.send_signal(signal.SIGKILL)
            collecting.wait()
        for writer in writers:
            assert writer.wait(60) == 0
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    job.output(owner="last").collect(final_epoch=1)
    lines = job.out.read_text().splitlines()
    assert len(lines) == 3 * 2000
    for rank in range(3):
        mine = [line for line in lines if line.startswith(f"rank {rank} ")]
        assert mine == job.file(rank).read_text().splitlines()


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        yield value


def test_a_lead_without_script(there: World) -> None:
    there.start()
    first = there.lead()
    assert first == {**there.lead(), "n": 1, "seq": 1, "told_s": first["told_s"]}
    there.launch("sh", "-c", "for i in 1 2 3; do echo rank $EJB_RANK line $i; done; printf torn", ranks=4)
    there.exits(4)
    assert there.manager.run("drain", {"epoch": 1})["ok"]
    lines = there.collected().splitlines()
    assert sorted(lines) == sorted([f"rank {r} line {i}" for r in range(4) for i in (1, 2, 3)] + ["torn" * 4])
    assert there.manager.run("unlead", {"grace_s": 1})["ok"]
    assert not there.manager.run("drain", {"epoch": 1})["ok"]
    assert there.manager.run("unlead", {"grace_s": 1})["ok"]


def test_a_collector_that_is_to_hand_over_at_once_has_begun_and_ended(there: World) -> None:
    """So the output is brought that could not be at the job's end: all three words come together."""
    folder = there.job_dir / "script"
    folder.mkdir()
    (folder / "1.out").write_text("last words\n")
    lead = {"run": 2, "output": str(there.output), "error": None, "script": None, "processors": 4, "append": True}
    told: list[tuple[str, Json]] = [("lead", lead), ("drain", {"epoch": 1}), ("unlead", {"grace_s": 1})]
    asked = [there.manager.send(kind, payload) for kind, payload in told]
    there.start()
    there.manager.wait_for(lambda: len(there.manager.of_kind("result")) == len(asked))
    assert {result["seq"]: result["error"] for result in there.manager.of_kind("result")} == dict.fromkeys(asked, "")
    assert there.collected() == "last words\n"


def test_a_lead_shows_lines_while_ranks_run(there: World) -> None:
    there.start()
    there.lead()
    there.launch("sh", "-c", "echo early; exec sleep 60")
    eventually(lambda: there.collected() == "early\n")
    assert "still run" in there.manager.run("drain", {"epoch": 1})["error"]


def test_another_lead_goes_on(there: World) -> None:
    there.start()
    there.lead()
    there.launch("sh", "-c", "echo one; printf two; exec sleep 60")
    eventually(lambda: there.collected() == "one\n")
    assert there.manager.run("unlead", {"grace_s": 1})["ok"]
    assert there.lead(run=2)["ok"]
    there.manager.run("stop", {"epoch": 1, "grace_s": 1})
    there.launch("sh", "-c", "echo three", epoch=2)
    there.exits(1)
    assert there.manager.run("drain", {"epoch": 2})["ok"]
    assert there.collected() == "one\ntwo\nthree\n"
    assert "run 2 is led here" in there.lead(run=3)["error"]


def test_the_last_lines_are_collected_when_the_batch_system_ends_the_lead(there: World) -> None:
    there.start()
    there.lead(error=str(there.spool / "job.err"))
    there.launch("sh", "-c", "trap 'echo goodbye; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    eventually(lambda: there.collected() == "ready\n")
    there.worker.terminate()
    assert there.worker.wait(20) == 143
    assert there.collected() == "ready\ngoodbye\n"
