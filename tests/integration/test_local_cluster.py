"""The embedded cluster with real processes: EASY's order, ends of jobs, and a server that is killed and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from ejbd.batch.base import SubmitRequest, WorkerScript
from ejbd.batch.local import LocalBatch
from ejbd.batch.local.client import Client, start_server
from ejbd.core.view import BatchJobView, BatchState, ClusterView, Reservations
from ejbd.errors import BatchError, SubmitOutcomeUnknown
from tests.fakes.me import ME

NODES, PROCESSORS = 2, 4
PATIENCE_S = 30.0


class Site:
    """One cluster of 2 x 4 processors in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "cluster"
        self.batch = self.adapter()
        self.client = Client(self.directory, NODES, PROCESSORS, timeout_s=10)

    def adapter(self) -> LocalBatch:
        return LocalBatch(self.directory, NODES, PROCESSORS)

    async def submit(
        self,
        command: str,
        processors: int = 1,
        walltime_s: float = 60,
        *,
        name: str = "job",
        hold: bool = False,
        shell: str = "/bin/sh",
        environment: dict[str, str] | None = None,
    ) -> str:
        return await self.batch.submit(
            ME,
            SubmitRequest(
                tag=name,
                comment="",
                queue="batch",
                processors=processors,
                walltime_s=walltime_s,
                script=f"#!{shell}\n{command}\n",
                workdir=self.folder,
                output=self.folder / "out-%j",
                environment=environment or {},
                hold=hold,
            ),
        )

    def output(self, id: str) -> str:
        path = self.folder / f"out-{id}"
        return path.read_text() if path.exists() else ""

    async def job(self, id: str) -> BatchJobView:
        return next(job for job in (await self.batch.observe()).jobs if job.id == id)

    async def until(self, right: Callable[[ClusterView], bool]) -> ClusterView:
        """The first view that is right."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            view = await self.batch.observe()
            if right(view):
                return view
            assert time.monotonic() < deadline, f"never seen: {view.jobs}"
            await asyncio.sleep(0.05)

    async def ended(self, *ids: str) -> list[BatchJobView]:
        view = await self.until(lambda view: all(job.state.ended for job in view.jobs if job.id in ids))
        jobs = {job.id: job for job in view.jobs}
        return [jobs[id] for id in ids]

    async def server_pid(self) -> int:
        return int((await self.client.call("hello"))["pid"])

    async def kill_server(self, signum: signal.Signals = signal.SIGKILL) -> None:
        pid = await self.server_pid()
        os.kill(pid, signum)
        await until_true(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)

    def leftovers(self) -> list[str]:
        """Processes that carry the mark of this cluster's jobs or work in its folder."""
        found = []
        for process in psutil.process_iter():
            try:
                environment = process.environ()
                here = str(self.directory) in " ".join(process.cmdline())
                if here or environment.get("EJB_LOCAL_JOB_DIR", "").startswith(str(self.directory)):
                    found.append(f"{process.pid} {process.cmdline()}")
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found

    async def down(self) -> None:
        try:
            await self.client.call("down", start=False, timeout_s=PATIENCE_S)
        except BatchError as error:
            assert "cannot be reached" in error.message, error
        await until_true(lambda: not self.leftovers())


async def until_true(right: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not right():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    yield site
    await site.down()
    assert not site.leftovers()


async def test_an_empty_cluster(site: Site) -> None:
    view = await site.batch.observe()
    assert [(node.name, node.processors, node.free) for node in view.nodes] == [("n1", 4, 4), ("n2", 4, 4)]
    assert view.reservations is Reservations.PROCESSORS
    assert view.jobs == ()
    assert [(queue.name, queue.total_processors, queue.default) for queue in view.queues] == [("batch", 8, True)]
    assert (site.directory / "socket").stat().st_mode & 0o777 == 0o600
    assert all(good for _, good, _ in await site.batch.doctor())


async def test_it_tells_what_starts_and_what_ends(site: Site) -> None:
    before = await site.batch.changed(-1)
    waiting = asyncio.create_task(site.batch.changed(before))
    id = await site.submit("read line < gate", name="gated")
    os.mkfifo(site.folder / "gate")
    started = await asyncio.wait_for(waiting, PATIENCE_S)
    assert started > before and (await site.job(id)).state is BatchState.RUNNING
    waiting = asyncio.create_task(site.batch.changed(started))
    await site.batch.cancel(ME, [id])
    assert await asyncio.wait_for(waiting, PATIENCE_S) > started and (await site.job(id)).state.ended


async def test_states_codes_and_output(site: Site) -> None:
    good = await site.submit("echo out; echo err >&2")
    bad = await site.submit("exit 7")
    killed = await site.submit("kill -SEGV $$")
    jobs = await site.ended(good, bad, killed)
    assert [(job.state, job.exit_code) for job in jobs] == [
        (BatchState.COMPLETED, 0),
        (BatchState.FAILED, 7),
        (BatchState.FAILED, 128 + signal.SIGSEGV),
    ]
    assert site.output(good).split() == ["out", "err"]
    outcomes = await site.batch.outcomes({job.id: site.folder / "none" for job in jobs})
    assert {id: (outcome.state, outcome.exit_code) for id, outcome in outcomes.items()} == {
        job.id: (job.state, job.exit_code) for job in jobs
    }


async def test_what_cannot_start_fails_with_a_reason(site: Site) -> None:
    missing = await site.submit("true", shell="/no/such/interpreter")
    [job] = await site.ended(missing)
    assert (job.state, job.exit_code) == (BatchState.FAILED, 127)
    assert "cannot be started" in job.reason


async def test_the_head_of_the_queue_is_not_delayed_by_a_backfilled_job(site: Site) -> None:
    running = await site.submit("sleep 4", 6, walltime_s=5)
    head = await site.submit("true", 8, walltime_s=5)
    too_long = await site.submit("true", 2, walltime_s=60)  # would fit now, but would delay the head
    short = await site.submit("sleep 1", 2, walltime_s=2)  # fits now and ends before the head's start
    view = await site.until(
        lambda view: any(job.id == short and job.state is not BatchState.PENDING for job in view.jobs)
    )
    jobs = {job.id: job for job in view.jobs}
    assert jobs[too_long].state is BatchState.PENDING
    assert jobs[head].state is BatchState.PENDING
    assert jobs[head].planned_start_s == jobs[running].end_s
    assert jobs[too_long].planned_start_s is None
    assert [job.id for job in view.jobs if job.state is BatchState.PENDING] == [head, too_long]
    done = {job.id: job for job in await site.ended(running, head, too_long, short)}
    promised = jobs[head].planned_start_s
    started = done[head].start_s
    assert promised is not None and started is not None and started <= promised + 3  # the grace of a kill, at most
    assert (done[short].start_s or 0) < started <= (done[too_long].start_s or 0)


async def test_a_job_spans_nodes_and_their_processors_are_given_once(site: Site) -> None:
    one = await site.submit("sleep 30", 6)
    two = await site.submit("echo $EJB_LOCAL_NODES; sleep 30", 2)
    view = await site.until(lambda view: sum(node.free for node in view.nodes) == 0)
    jobs = {job.id: job for job in view.jobs}
    assert set(jobs[one].nodes) == {"n1", "n2"}
    await until_true(lambda: site.output(two).strip() != "")
    assert site.output(two).strip() == f"{jobs[two].nodes[0]}:2"
    await site.batch.cancel(ME, [one, two])
    await site.ended(one, two)
    assert [node.free for node in (await site.batch.observe()).nodes] == [4, 4]


# Words by which a test finds its own processes, whatever else runs on the machine.
SECONDS = str(1_000_000 + os.getpid())

STUBBORN = """\
trap '' TERM
(setsid sh -c 'trap "" TERM; while :; do sleep 60; done' &)
python3 -c '
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "SECONDS"], {})   # no mark left in the environment
    os._exit(0)
'
echo ready
while :; do sleep 60; done
""".replace("SECONDS", SECONDS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["walltime", "cancel"])
async def test_no_process_of_a_stubborn_tree_is_left(site: Site, how: str) -> None:
    id = await site.submit(STUBBORN, walltime_s=2 if how == "walltime" else 60)
    await until_true(lambda: "ready" in site.output(id))
    if how == "cancel":
        await site.batch.cancel(ME, [id])
        assert (await site.job(id)).state in (BatchState.ENDING, BatchState.CANCELLED)
    [job] = await site.ended(id)
    assert job.state is (BatchState.TIMEOUT if how == "walltime" else BatchState.CANCELLED)
    assert job.exit_code == 128 + signal.SIGKILL
    assert not [process for process in psutil.process_iter() if SECONDS in _words(process)]
    server = await site.server_pid()
    assert all(f"{server} " in line for line in site.leftovers())


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def test_a_daemon_that_the_script_left_behind_is_ended_with_it(site: Site) -> None:
    id = await site.submit(f"(setsid sleep {SECONDS} &) ; exit 3")
    [job] = await site.ended(id)
    assert (job.state, job.exit_code) == (BatchState.FAILED, 3)
    assert not [process for process in psutil.process_iter() if SECONDS in _words(process)]


async def test_term_reaches_a_script_that_ends_in_order(site: Site) -> None:
    id = await site.submit("trap 'echo told; exit 5' TERM\necho ready\nwhile :; do sleep 0.1; done")
    await until_true(lambda: "ready" in site.output(id))
    await site.batch.cancel(ME, [id])
    [job] = await site.ended(id)
    assert (job.state, job.exit_code) == (BatchState.CANCELLED, 5)
    assert "told" in site.output(id)


@pytest.mark.parametrize(
    "count", [40, pytest.param(200, marks=pytest.mark.nightly("five times as many as the one before: nothing else"))]
)
async def test_many_short_jobs(site: Site, count: int) -> None:
    ids = [await site.submit(f"echo {number} >> order", name=f"short {number}") for number in range(count)]
    assert [int(id) for id in ids] == list(range(1, count + 1))
    jobs = await site.ended(*ids)
    assert {job.state for job in jobs} == {BatchState.COMPLETED}
    assert sorted(map(int, (site.folder / "order").read_text().split())) == list(range(count))
    assert list((site.directory / "jobs").iterdir()) == []


async def test_a_killed_server_comes_back_to_its_jobs(site: Site) -> None:
    long = await site.submit("echo begin >> log; sleep 4; echo end >> log; exit 6", 8, name="long")
    waiting = await site.submit("echo waited >> log", 8, name="waiting")
    held = await site.submit("true", hold=True, name="held")
    doomed = await site.submit("true", name="doomed")
    await site.batch.cancel(ME, [doomed])
    await site.until(lambda view: sum(node.free for node in view.nodes) == 0)
    await until_true((site.folder / "log").exists)
    await site.kill_server()

    view = await site.batch.observe()  # starts another
    jobs = {job.name: job for job in view.jobs}
    assert jobs["long"].state is BatchState.RUNNING
    assert jobs["waiting"].state is BatchState.PENDING
    assert jobs["held"].state is BatchState.HELD
    assert jobs["doomed"].state is BatchState.CANCELLED
    assert sum(node.free for node in view.nodes) == 0
    assert await site.batch.find(ME, ["long", "waiting", "nobody"]) == {"long": long, "waiting": waiting}
    done = await site.ended(long, waiting)
    assert [(job.state, job.exit_code) for job in done] == [(BatchState.FAILED, 6), (BatchState.COMPLETED, 0)]
    assert (site.folder / "log").read_text().split() == ["begin", "end", "waited"]
    assert int(await site.submit("true")) == int(doomed) + 1
    await site.batch.cancel(ME, [held])


async def test_a_job_that_ends_while_no_server_runs_is_known_afterwards(site: Site) -> None:
    id = await site.submit("sleep 1; exit 4")
    late = await site.submit("sleep 60", walltime_s=2)
    await site.until(lambda view: all(job.state is BatchState.RUNNING for job in view.jobs))
    step = site.directory / "jobs" / id / "result.json"
    other = site.directory / "jobs" / late / "result.json"
    await site.kill_server()
    await until_true(lambda: step.exists() and other.exists())
    done = await site.ended(id, late)
    assert [(job.state, job.exit_code) for job in done] == [
        (BatchState.FAILED, 4),
        (BatchState.TIMEOUT, 128 + signal.SIGTERM),
    ]


async def test_servers_killed_again_and_again_double_and_lose_nothing(site: Site) -> None:
    ids = [await site.submit(f"echo {number} >> runs; sleep 0.3", 2) for number in range(12)]
    for _ in range(3):
        await site.kill_server()
        await site.batch.observe()
        await asyncio.sleep(0.15)
    jobs = await site.ended(*ids)
    assert {job.state for job in jobs} == {BatchState.COMPLETED}
    assert sorted(map(int, (site.folder / "runs").read_text().split())) == list(range(12))


async def test_a_job_noted_as_started_but_never_started_is_started_once(site: Site) -> None:
    """The server was killed between its note and the start of the step: the next one makes up for it."""
    held = await site.submit("echo once >> runs", hold=True)
    await site.kill_server()
    with sqlite3.connect(site.directory / "jobs.sqlite") as file:
        now = time.time()
        file.execute(
            "UPDATE jobs SET state = 'running', start_s = ?, end_s = ?, nodes = '[[\"n1\", 1]]' WHERE id = ?",
            (now, now + 60, int(held)),
        )
    [job] = await site.ended(held)
    assert job.state is BatchState.COMPLETED
    assert (site.folder / "runs").read_text() == "once\n"


def _is_server(process: psutil.Process, site: Site) -> bool:
    return "ejbd.batch.local.server" in _words(process) and str(site.directory) in _words(process)


async def test_a_job_whose_step_is_killed_ends_with_all_its_processes(site: Site) -> None:
    id = await site.submit(f"(setsid sleep {SECONDS} &) ; kill -9 $PPID; sleep {SECONDS}")
    [job] = await site.ended(id)
    assert job.state is BatchState.NODE_FAIL
    assert not [process for process in psutil.process_iter() if SECONDS in _words(process)]
    assert [node.free for node in (await site.batch.observe()).nodes] == [4, 4]


async def test_jobs_outlive_the_adapter(site: Site) -> None:
    id = await site.submit("sleep 1; exit 9", name="outlives")
    await site.batch.close()
    site.batch = site.adapter()
    assert await site.batch.find(ME, ["outlives"]) == {"outlives": id}
    assert [job.exit_code for job in await site.ended(id)] == [9]


EVIL = [
    'it\'s "quoted"',
    "two\nlines\r\n",
    "a|b|c",
    "$(touch evil) `touch evil`; touch evil",
    "x" * 10_240,
    "-J --help",
    "%j%n",
    "ünïcödé \U0001f600",
    "",
]


async def test_evil_names_are_names_and_nothing_else(site: Site) -> None:
    ids = {
        name: await site.submit('printf %s "$EJB_LOCAL_JOB_NAME"', name=name, environment={"EVIL": name})
        for name in EVIL
    }
    jobs = await site.ended(*ids.values())
    assert [job.name for job in jobs] == EVIL
    assert {job.state for job in jobs} == {BatchState.COMPLETED}
    assert await site.batch.find(ME, EVIL) == ids
    for name, id in ids.items():
        assert (site.folder / f"out-{id}").read_bytes() == name.encode()
    assert not (site.folder / "evil").exists()


async def test_refusals_say_why(site: Site) -> None:
    cases = {
        "9 processors are more than the 8": site.submit("true", 9),
        "at least 1 processor": site.submit("true", 0),
        "a walltime must be": site.submit("true", walltime_s=0),
        "not valid UTF-8": site.submit("true", name="\udcff"),
        "NUL": site.submit("true", name="a\0b"),
        "bytes; 32768 are the most": site.submit("true", name="x" * 40_000),
        "does not begin with a line": site.submit("true", shell=""),
    }
    for text, submission in cases.items():
        with pytest.raises(BatchError, match=text) as refusal:
            await submission
        assert not refusal.value.transient
        assert not isinstance(refusal.value, SubmitOutcomeUnknown)
    assert (await site.batch.observe()).jobs == ()


async def test_hold_release_and_shortened_walltimes(site: Site) -> None:
    id = await site.submit("sleep 60", hold=True)
    await site.batch.observe()
    assert (await site.job(id)).state is BatchState.HELD
    await site.batch.update(ME, id, walltime_s=50)
    with pytest.raises(BatchError, match="shortened only"):
        await site.batch.update(ME, id, walltime_s=55)
    await site.batch.update(ME, id, hold=False)
    await site.until(lambda view: view.jobs[0].state is BatchState.RUNNING)
    with pytest.raises(BatchError, match="only a waiting job"):
        await site.batch.update(ME, id, hold=True)
    await site.batch.update(ME, id, walltime_s=1)
    [job] = await site.ended(id)
    assert job.state is BatchState.TIMEOUT
    with pytest.raises(BatchError, match="has ended"):
        await site.batch.update(ME, id, hold=True)
    await site.batch.cancel(ME, [id, "77", "no number"])


async def test_racing_starts_make_one_server(site: Site) -> None:
    command = [sys.executable, "-m", "ejbd.batch.local.server", str(site.directory), "--nodes", "2", "--cpus", "4"]
    racers = [await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        await asyncio.gather(*(asyncio.to_thread(start_server, site.directory, NODES, PROCESSORS) for _ in range(4)))
        await until_true(lambda: sum(racer.returncode is None for racer in racers) <= 1)
        pid = await site.server_pid()
        # The losers end by themselves, as soon as they have found the lock taken.
        await until_true(lambda: [one.pid for one in psutil.process_iter() if _is_server(one, site)] == [pid])
        assert all(racer.returncode in (None, 0) for racer in racers)
    finally:
        await site.down()
        for racer in racers:
            await asyncio.wait_for(racer.communicate(), PATIENCE_S)


async def test_another_shape_is_refused(site: Site) -> None:
    id = await site.submit("sleep 60")
    with pytest.raises(BatchError, match="has 2 nodes of 4 processors") as refusal:
        await LocalBatch(site.directory, 8, 4).observe()
    assert not refusal.value.transient
    await site.kill_server(signal.SIGTERM)
    with pytest.raises(BatchError, match=r"cannot be started.*2 nodes of 4 processors and has jobs"):
        await LocalBatch(site.directory, 8, 4).observe()
    await site.batch.cancel(ME, [id])


async def test_a_server_that_hangs_fails_nobody(site: Site) -> None:
    pid = await site.server_pid()
    hasty = LocalBatch(site.directory, NODES, PROCESSORS, timeout_s=0.3)
    await hasty.observe()
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(BatchError) as refusal:
            await hasty.observe()
        assert refusal.value.transient
        site.batch = hasty
        with pytest.raises(SubmitOutcomeUnknown):
            await site.submit("true", name="perhaps")
    finally:
        os.kill(pid, signal.SIGCONT)
    site.batch = site.adapter()
    found = await site.batch.find(ME, ["perhaps"])  # it had been taken
    assert [job.state for job in await site.ended(found["perhaps"])] == [BatchState.COMPLETED]


async def test_a_lost_connection_leaves_a_submission_unknown(site: Site) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if b'"hello"' in line:
            writer.write(b'{"ok": true, "protocol": 2, "nodes": 2, "processors": 4}\n')
        writer.close()  # anything else was read, and nobody will ever know what became of it

    site.directory.mkdir()
    async with await asyncio.start_unix_server(serve, site.directory / "socket"):
        with pytest.raises(SubmitOutcomeUnknown):
            await site.submit("true")
        with pytest.raises(BatchError) as refusal:
            await site.batch.observe()
        assert refusal.value.transient and not isinstance(refusal.value, SubmitOutcomeUnknown)
    (site.directory / "socket").unlink(missing_ok=True)


async def test_outcomes_without_books_come_from_the_exit_file(site: Site) -> None:
    (site.folder / "exit").write_text("3\n")
    found = await site.batch.outcomes({"4711": site.folder / "exit", "4712": site.folder / "none"})
    assert list(found) == ["4711"]
    assert (found["4711"].state, found["4711"].exit_code) == (BatchState.FAILED, 3)
    assert found["4711"].source == "exit-file"


async def test_a_directory_longer_than_a_socket_address(tmp_path: Path) -> None:
    site = Site(tmp_path / ("long" * 30))
    site.folder.mkdir()
    try:
        [job] = await site.ended(await site.submit("true"))
        assert job.state is BatchState.COMPLETED
    finally:
        await site.down()


async def test_the_launcher_of_ordinary_jobs(site: Site) -> None:
    show = 'echo "$EJB_RANK $EJB_SIZE $EJB_EPOCH $EJB_PROCESSOR $EJB_NODE $EJB_ADDRESS"; exit $EJB_RANK'
    body = site.batch.rigid_command(["sh", "-c", show, "it's"], 5)
    id = await site.submit(body, 5)
    wrong = await site.submit("srun --multi-prog true")
    most = await site.submit("srun -n9 true", 2)
    jobs = await site.ended(id, wrong, most)
    assert [job.exit_code for job in jobs] == [4, 1, 1]
    lines = sorted(line.split() for line in site.output(id).splitlines() if not line.startswith("srun: error: "))
    assert [line[0] for line in lines] == ["0", "1", "2", "3", "4"]
    assert {(line[1], line[2], line[5]) for line in lines} == {("5", "1", "127.0.0.1")}
    assert len({line[3] for line in lines}) == 5
    assert all(line[3] == f"{id}.{line[4]}.{line[3].rsplit('.', 1)[1]}" for line in lines)
    assert "--multi-prog" in site.output(wrong)
    assert "More processors requested than permitted" in site.output(most)


WORKER = """\
import os, signal, sys, time
def told(signum, frame):
    time.sleep(0.3)
    open(os.path.join(folder, "told-" + node), "w").close()
    sys.exit(40 + int(processors))
words = dict(zip(sys.argv[2::2], sys.argv[3::2]))
folder, node, processors = words["--subjob-dir"], words["--node"], words["--processors"]
signal.signal(signal.SIGTERM, told)
open(os.path.join(folder, "up-" + node + "-" + processors), "w").close()
if os.path.exists(os.path.join(folder, "short")):
    sys.exit(int(processors))
while True:
    time.sleep(60)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["ends", "cancelled"])
async def test_the_worker_script(site: Site, how: str) -> None:
    folder = site.folder / "sub 'job'"
    folder.mkdir()
    worker = site.folder / "worker $(x).py"
    worker.write_text(WORKER)
    if how == "ends":
        (folder / "short").touch()
    script = site.batch.worker_script(WorkerScript(sys.executable, worker, folder, folder / "exit"))
    blocker = await site.submit("sleep 60", 3)
    id = await site.submit(script.partition("\n")[2], 5, shell=script.partition("\n")[0][2:])
    await until_true(lambda: sorted(path.name for path in folder.glob("up-*")) == ["up-n1-1", "up-n2-4"])
    if how == "cancelled":
        await site.batch.cancel(ME, [id])
    [job] = await site.ended(id)
    code = 4 if how == "ends" else 44
    assert (job.state, job.exit_code) == (BatchState.FAILED if how == "ends" else BatchState.CANCELLED, code)
    assert (folder / "exit").read_text() == f"{code}\n"
    assert [path.name for path in folder.glob("exit*")] == ["exit"]
    if how == "cancelled":
        assert sorted(path.name for path in folder.glob("told-*")) == ["told-n1", "told-n2"]
    await site.batch.cancel(ME, [blocker])


async def test_the_command(site: Site) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        action, *rest = words
        command = [sys.executable, "-m", "ejbd.batch.local", action, str(site.directory), *rest]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=site.folder, check=False)

    assert run("up", "--nodes", "2", "--cpus", "4").returncode == 0
    submitted = run(
        "submit", "-n", "8", "-t", "60s", "-J", "na'me", "--", "sh", "-c", 'echo "$1"; sleep 30', "x", "a  b"
    )
    assert (submitted.returncode, submitted.stdout) == (0, "1\n")
    assert run("submit", "-n", "99", "--", "true").returncode == 7
    assert run("submit", "-t", "soon", "--", "true").returncode == 2
    output = site.folder / "local-1.out"
    await until_true(lambda: output.exists() and output.read_text() == "a  b\n")
    shown = run("queue")
    assert "0 free" in shown.stdout and "running" in shown.stdout
    assert run("cancel", "1").returncode == 0
    [job] = await site.ended("1")
    assert (job.state, job.walltime_s, job.name) == (BatchState.CANCELLED, 60.0, "na'me")
    assert run("down").returncode == 0
    await until_true(lambda: not site.leftovers())  # it answers before it ends
    assert run("down").returncode == 0


async def test_what_is_let_begin_begins_whatever_begin_it_had(site: Site) -> None:
    here = site.folder
    request = SubmitRequest("later", "", "batch", 1, 60.0, "#!/bin/sh\ntrue\n", here, here / "o", begin_in_s=600.0)
    id = await site.batch.submit(ME, request)
    assert (await site.job(id)).blocked
    await site.batch.update(ME, id, begins=True)
    assert [job.state for job in await site.ended(id)] == [BatchState.COMPLETED]
