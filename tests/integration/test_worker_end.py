"""How a worker ends, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.fakes.worker_process import PROGRAM, World, alive, eventually, worker_command, world

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        yield value


def test_ranks_end_with_a_killed_worker(there: World) -> None:
    there.start()
    pids = there.launch(sys.executable, "-c", "import time; time.sleep(60)", ranks=4)
    there.worker.kill()
    eventually(lambda: not any(alive(pid) for pid in pids.values()))


DAEMONIZED = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + os.environ["EJB_RANK"], "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


def grandchildren(there: World, ranks: int) -> list[int]:
    """Processes in sessions of their own that ranks have left behind on purpose; none is in a rank's group."""
    eventually(lambda: all((there.spool / f"pid-{rank}").exists() for rank in range(ranks)))
    return [int(eventually((there.spool / f"pid-{rank}").read_text)) for rank in range(ranks)]


def test_what_ranks_have_started_ends_with_a_killed_worker(there: World) -> None:
    """A session of its own, no parent that lives, no group that anybody knows."""
    there.start()
    there.launch(sys.executable, "-c", DAEMONIZED, str(there.spool / "pid-"), ranks=2)
    left = grandchildren(there, 2)
    assert all(alive(pid) for pid in left)
    there.worker.kill()
    eventually(lambda: not any(alive(pid) for pid in left))


def test_what_a_script_has_started_ends_with_a_killed_worker(there: World) -> None:
    there.start()
    pid = f"{there.spool}/pid-0"
    text = f"#!/bin/bash\nsetsid sleep 600 &\necho $! > {pid}.new; mv {pid}.new {pid}\nsleep 600\n"
    assert there.lead(there.script(text))["ok"]
    left = grandchildren(there, 1)
    there.worker.kill()
    eventually(lambda: not any(alive(pid) for pid in left))


def test_the_next_placement_here_begins_when_nothing_of_the_last_one_is_left(there: World) -> None:
    """The warden was killed as well (an operator's pkill): the next worker on this node looks for itself."""
    there.start()
    there.launch(sys.executable, "-c", DAEMONIZED, str(there.spool / "pid-"), ranks=2)
    left = grandchildren(there, 2)
    for child in psutil.Process(there.worker.pid).children():
        if "ejb-warden" in child.cmdline():
            child.kill()
    there.worker.kill()
    there.worker.wait()

    def marked(value: str, **env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "600"], env={"EJB_MARK": value, "PATH": os.environ["PATH"], **env})

    other = marked(f"{there.job_dir}x:")
    foreign = marked(f"{there.job_dir}:", SLURM_JOB_ID="4711")
    earlier, running = marked(f"{there.job_dir}::1"), marked(f"{there.job_dir}::2")
    try:
        assert all(alive(pid) for pid in left)
        there.start()
        there.launch("sleep", "600", ranks=2, epoch=2, env={"EJB_MARK": f"{there.job_dir}::2"})
        assert not any(alive(pid) for pid in left)
        assert alive(other.pid), "another job's"
        assert alive(foreign.pid), "a batch job of its own that was submitted from within the job"
        assert earlier.wait(20) == -signal.SIGKILL, "an earlier run of the script has started it"
        assert alive(running.pid), "a step of the script that runs, below the batch system's daemon"
        there.manager.wait_for(lambda: [log for log in there.manager.of_kind("log") if "3 processes" in log["message"]])
    finally:
        for process in (other, foreign, earlier, running):
            process.kill()
            process.wait()


def test_told_to_leave(there: World) -> None:
    there.start()
    pids = there.launch("sh", "-c", STUBBORN, ranks=2)
    eventually(lambda: there.rank_output(1))
    folders = processor_folders(pids[0])
    assert there.manager.run("exit", {})["ok"]
    assert there.worker.wait(20) == 0
    assert not any(alive(pid) for pid in pids.values())
    assert there.manager.of_kind("rank-exit") == []
    assert there.manager.of_kind("leaving") == []
    assert not any(folder.exists() for folder in folders)


def test_a_lead_that_is_to_leave_behind_its_output_does_so(there: World) -> None:
    """One word less to wait for: the batch system has the processors as soon as the output is whole."""
    there.start()
    there.lead()
    there.launch("sh", "-c", "printf torn")
    there.exits(1)
    there.manager.send("drain", {"epoch": 1})
    assert there.manager.run("unlead", {"grace_s": 1, "exit": {"code": 3}})["ok"]
    assert there.worker.wait(20) == 3
    assert there.collected() == "torn" and there.manager.of_kind("leaving") == []


def test_one_that_was_no_lead_stays(there: World) -> None:
    """Its output is not whole: another attempt to bring it follows."""
    there.start()
    assert there.manager.run("unlead", {"grace_s": 1, "exit": {}})["ok"]
    assert there.lead(run=2)["ok"] and there.worker.poll() is None


def test_one_whose_output_cannot_be_written_stays(there: World) -> None:
    there.start()
    folder = there.spool / "gone"
    folder.mkdir()
    there.lead(output=str(folder / "out"))
    shutil.rmtree(folder)
    there.launch("sh", "-c", "echo lost")
    there.exits(1)
    assert not there.manager.run("unlead", {"grace_s": 1, "exit": {}})["ok"]
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 0})["ok"] and there.worker.poll() is None


def processor_folders(pid: int) -> list[Path]:
    env = dict(word.split("=", 1) for word in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in word)
    folder = Path(env["EJB_PROCESSOR_DIR"])
    assert folder.is_dir()
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    return [folder, folder.parent]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_ended_by_the_batch_system(there: World, signum: int, code: int) -> None:
    there.start()
    pids = there.launch("sh", "-c", f"if [ $EJB_RANK = 0 ]; then {STUBBORN}; fi; echo ready; exec sleep 60", ranks=2)
    eventually(lambda: there.rank_output(0) and there.rank_output(1))
    there.worker.send_signal(signum)
    assert there.worker.wait(20) == code
    assert not any(alive(pid) for pid in pids.values())
    leaving = there.manager.of_kind("leaving")
    assert [report["exits"] for report in leaving] == [{"1": {"0": 137, "1": 143}}]
    assert signal.Signals(signum).name in leaving[0]["reason"]


def test_a_job_that_ends_as_a_whole_is_no_failure_of_its_ranks(there: World) -> None:
    """Batch systems signal every process of a job: ranks may be gone before the worker has seen its own signal."""
    there.start()
    pids = there.launch("sleep", "60", ranks=2)
    for pid in pids.values():
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not any(alive(pid) for pid in pids.values()))
    there.worker.terminate()
    assert there.worker.wait(20) == 143
    assert there.manager.of_kind("rank-exit") == []
    assert there.manager.of_kind("leaving")[0]["exits"] == {"1": {"0": 143, "1": 143}}


@pytest.mark.parametrize("how", ["blocked", "ignored"])
def test_a_worker_that_was_started_without_word_of_ended_children_hears_of_them(there: World, how: str) -> None:
    """So Slurm 25.05 starts its tasks. The ranks have no signal blocked or ignored, as srun's."""
    signals = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}

    def without_word() -> None:
        if how == "blocked":
            signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        for signum in signals if how == "ignored" else ():
            signal.signal(signum, signal.SIG_IGN)

    there.start(preexec_fn=without_word)
    there.launch("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")
    assert there.exits(1) == {0: 0}
    assert [line.split()[1].strip("0") for line in there.rank_output(0).splitlines()] == ["", ""]
    there.worker.terminate()
    assert there.worker.wait(20) == 143


def test_a_rank_whose_end_no_signal_has_told_is_found_all_the_same(there: World) -> None:
    program = PROGRAM.replace(
        "main()",
        "import signal, ejb_worker.processes as processes; processes.LOOK_S = 0.2\n"
        "set_handler = signal.signal\n"
        "signal.signal = lambda number, call: None if number == signal.SIGCHLD else set_handler(number, call)\n"
        "main()",
    )
    there.start(program=program)
    there.launch("true")
    assert there.exits(1) == {0: 0}


def test_hang_up_means_nothing(there: World) -> None:
    there.start()
    pids = there.launch("sleep", "60")
    there.worker.send_signal(signal.SIGHUP)
    assert there.manager.run("stop", {"epoch": 2, "grace_s": 0})["ok"]
    assert alive(pids[0])


def test_a_worker_ends_with_its_parent(there: World) -> None:
    there.manager.start()
    command = worker_command(there.manager.subjob_dir, "--processors", "2")
    program = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); sys.stdin.read()"
    parent = subprocess.Popen([sys.executable, "-c", program, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        there.manager.wait_for(lambda: there.manager.registrations)
        pids = there.launch("sleep", "60", ranks=2)
        assert alive(worker)
    finally:
        parent.kill()
        parent.communicate()
    eventually(lambda: not alive(worker) and not any(alive(pid) for pid in pids.values()))
    assert "parent" in there.manager.of_kind("leaving")[0]["reason"]


def test_orphans_of_ranks_end_with_the_worker(there: World) -> None:
    """A process that left its rank's group (setsid) is still the worker's to end."""
    there.start()
    there.launch("sh", "-c", "setsid sh -c 'echo $$; exec sleep 60' & sleep 0.3; exit 0")
    assert there.exits(1) == {0: 0}
    orphan = int(there.rank_output(0))
    assert alive(orphan)
    assert there.manager.run("exit", {})["ok"]
    assert there.worker.wait(20) == 0
    assert not alive(orphan)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "agent, shim, pmi, sweep or alone is missing"),
        (["agent"], "--subjob-dir is missing"),
        (["agent", "--subjob-dir"], "needs a value"),
        (["agent", "--subjob-dir=x", "--processors", "0"], "at least 1"),
        (["agent", "--subjob-dir=x", "--processors", "many"], "many"),
        (["agent", "--subjob-dir=x", "--speed", "9"], "unknown option --speed"),
        (["agent", "--subjob-dir=/no/such"], "/no/such/subjob.json"),
    ],
)
def test_usage(there: World, words: list[str], sentence: str) -> None:
    command = worker_command(there.manager.subjob_dir)
    command = [*command[: command.index("agent")], *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.sampled(3)
@pytest.mark.parametrize("change", [{"protocol": 1}, {"secret": None}, "[]"])
def test_a_subjob_file_that_is_not_ours(there: World, change: dict[str, object] | str) -> None:
    file = there.manager.subjob_dir / "subjob.json"
    if isinstance(change, str):
        file.write_text(change)
    else:
        content = {**json.loads(file.read_text()), **change}
        file.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
    command = worker_command(there.manager.subjob_dir)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 2
    assert "subjob.json" in ended.stderr
    assert "Traceback" not in ended.stderr
