"""Jobs that their J0 runs without workers: which may, and what says at its start that runs like it are short."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.core.shortruns import FEWEST_RUNS, NEWEST_RUNS
from ejbd.core.view import BatchState
from ejbd.errors import Code, EjbError
from ejbd.manager.acts.shortmarks import ShortMarks
from ejbd.manager.facts.placing import plain
from ejbd.manager.facts.placing.plain import is_plain
from ejbd.manager.hands.files import OwnFiles
from ejbd.manager.hands.hands import Hands
from ejbd.manager.hands.spool import Spool
from ejbd.manager.jobspec import JobKind, JobSpec
from ejbd.store.models import Job
from ejbd.store.store import Store
from tests.fakes.alone import SCRIPT, folder, order, text, waiting
from tests.fakes.live import LiveWorld
from tests.fakes.pastruns import remember


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


BARE: dict[str, Any] = {"name": "a", "kind": JobKind.SCRIPT, "argv": (), "walltime_s": 60.0, "output": "out"}
PLAIN: dict[str, Any] = {**SCRIPT, "mpi": "none", "begins_again": True}


def is_marked(live: LiveWorld, job: str) -> bool:
    return bool(text(order(live, job)["at_once_if"]))


@pytest.fixture
def on_slurm(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> LiveWorld:
    """The J0s of this world can run a script before any worker."""
    kind = live.settings.batch_kind
    able = replace(kind, traits=lambda own: replace(kind.traits(own), begins_at_once=True))
    monkeypatch.setattr(type(live.settings), "batch_kind", property(lambda _: able))
    return live


@pytest.mark.parametrize("more", [{}, {"kind": JobKind.COMMAND, "script": None, "argv": ("./heat",)}])
async def test_what_nothing_can_move_begins_at_once_in_its_j0(on_slurm: LiveWorld, more: dict[str, Any]) -> None:
    live = on_slurm
    job = await waiting(live, {**PLAIN, **more})
    assert order(live, job)["at_once"]
    live.batch.start(f"ejb-{job}.0")
    own = folder(live, job) / "own"
    begun = {"order": order(live, job)["id"], "at_s": live.clock.now, "node": "n1", "at_once": True}
    own.write_text(json.dumps({"begun": begun}))
    os.link(own, folder(live, job) / "claim.json")
    await live.poll(5)
    assert (live.job(job).state, live.job(job).elastic) == ("running", False)
    (told,) = (data for kind, data in live.events(job) if kind == "job.alone")
    assert "nothing can move it" in told["reason"]
    live.batch.end(f"ejb-{job}.0", BatchState.NODE_FAIL, None)
    await live.poll(5)
    row = live.job(job)
    assert (row.state, row.setbacks, len(live.subjobs(job))) == ("waiting", 1, 2), "as sbatch runs it again"


@pytest.mark.parametrize(
    "other",
    [
        {"engine": "application"},
        {"mpi": "auto"},  # 16 ranks of a program that is not there to be looked at
        {"restartable": True},
        {"script": "#!/bin/sh\nsrun ./heat $EJB_PROGRESS\n"},
        {"script": "#!/bin/sh\nmpirun ./heat\n"},
        {"kind": JobKind.COMMAND, "script": None, "argv": ("sh", "-c", "echo $EJB_RANK")},
    ],
    ids=["moves", "may-be-mpi", "restartable", "asks-ejb", "mpirun", "command-asks"],
)
async def test_what_a_worker_does_something_for_does_not(on_slurm: LiveWorld, other: dict[str, Any]) -> None:
    job = await waiting(on_slurm, {**PLAIN, **other})
    assert not order(on_slurm, job)["at_once"]


async def test_what_can_be_moved_begins_at_once_where_runs_like_it_are_short(on_slurm: LiveWorld) -> None:
    live = on_slurm
    remember(live, 1, 20.0, application="b")
    job = await waiting(live, {**PLAIN, "engine": "application"})
    assert not order(live, job)["at_once"] and not is_marked(live, job)
    remember(live, FEWEST_RUNS, 20.0, application="heat")
    await live.poll(1)
    assert is_marked(live, job), "20 s are short beside twenty times 3 s"
    remember(live, 2, 90.0, application="heat")
    await live.poll(1)
    assert not is_marked(live, job), "two in seven were long"
    remember(live, NEWEST_RUNS, 20.0, application="b")
    await live.poll(1)
    assert not is_marked(live, job), "another application"
    own = folder(live, job) / "own"
    own.write_text(json.dumps({"begun": {"order": order(live, job)["id"], "at_s": 1.0, "node": "n1", "at_once": True}}))
    live.batch.start(f"ejb-{job}.0")
    os.link(own, folder(live, job) / "claim.json")
    await live.poll(5)
    (told,) = (data for kind, data in live.events(job) if kind == "job.alone")
    assert "runs like it are short" in told["reason"] and not live.job(job).elastic


@pytest.mark.parametrize("setting", [{"plain_below": 0}, {"plain_j0": "off"}, {"in_place": "on"}], ids=str)
async def test_what_a_queue_is_told_reaches_j0s_that_wait(on_slurm: LiveWorld, setting: dict[str, Any]) -> None:
    live = on_slurm
    remember(live, FEWEST_RUNS, 20.0, application="heat")
    job = await waiting(live, {**PLAIN, "engine": "application"})
    assert is_marked(live, job)
    before = {name: getattr(live.settings.queues["default"], name) for name in setting}
    await live.manager.set_queue("batch", setting, "ada")
    await live.act()
    assert not is_marked(live, job)
    await live.manager.set_queue("batch", before, "ada")
    await live.act()
    assert is_marked(live, job)


async def test_a_new_daemon_looks_at_the_marks_of_the_one_before(on_slurm: LiveWorld) -> None:
    live = on_slurm
    remember(live, FEWEST_RUNS, 20.0, application="heat")
    job = await waiting(live, {**PLAIN, "engine": "application"})
    assert is_marked(live, job)
    live.settings.queues["default"] = live.settings.queues["default"].model_copy(update={"plain_below": 0.0})
    await live.restart()
    await live.act()
    assert not is_marked(live, job), "its file of settings was changed while there was none"
    remember(live, NEWEST_RUNS, 20.0, application="heat")
    live.settings.queues["default"] = live.settings.queues["default"].model_copy(update={"plain_below": 20.0})
    await live.restart()
    await live.act()
    assert is_marked(live, job)
    remember(live, NEWEST_RUNS, 90.0, application="heat")
    await live.poll(1)
    assert not is_marked(live, job), "runs that end after it has started count"


async def test_runs_at_any_width_count_where_its_own_are_too_few(on_slurm: LiveWorld) -> None:
    live = on_slurm
    remember(live, FEWEST_RUNS, 20.0, application="heat", processors=2)
    remember(live, FEWEST_RUNS - 1, 90.0, application="heat", processors=4)
    narrow, wide = [await waiting(live, {**PLAIN, "engine": "application", "processes": n}) for n in (2, 8)]
    assert is_marked(live, narrow)
    assert not is_marked(live, wide), "four in nine were long"
    remember(live, NEWEST_RUNS, 20.0, application="heat", processors=4)
    await live.poll(1)
    assert is_marked(live, wide)


async def test_a_mark_that_finds_no_room_is_written_at_the_next_look(
    on_slurm: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = on_slurm
    remember(live, 1, 20.0, application="b")
    job = await waiting(live, {**PLAIN, "engine": "application"})

    def full(files: OwnFiles, path: Path, data: bytes, mode: int = 0o600) -> None:
        raise EjbError(Code.SPOOL, "no space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(OwnFiles, "put", full)
        remember(live, FEWEST_RUNS, 20.0, application="heat")
        await live.poll(1)
    assert not is_marked(live, job)
    await live.poll(1)
    assert is_marked(live, job), "no run has ended since"


class HangingFiles(OwnFiles):
    """Those of a user with a file system that does not answer."""

    def __init__(self, answers: threading.Event) -> None:
        self.answers = answers

    def put(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        assert self.answers.wait(60)
        super().put(path, data, mode)


class UsersOwn(Hands):
    """A spool for each user, as with `identity = "helper"`."""

    by_user = True

    def __init__(self, folder: Path, hangs: dict[str, threading.Event]) -> None:
        self.folder = folder
        self.hangs = hangs

    def spool_of(self, user: str) -> Spool:
        return Spool(self.folder / user, HangingFiles(self.hangs[user]))


async def test_no_marks_wait_for_a_user_whose_files_do_not_answer(on_slurm: LiveWorld, tmp_path: Path) -> None:
    live, answers = on_slurm, {user: threading.Event() for user in ("ada", "bob")}
    remember(live, 1, 20.0, application="b")
    marks = ShortMarks(live.store, UsersOwn(tmp_path / "spools", answers), live.manager.world.context)
    jobs = [Job(user=user, queue="batch", engine="application") for user in answers]
    for event in answers.values():
        event.set()
    spec = replace(live.reading().spec, app="heat")
    of = dict(zip(answers, [await asyncio.to_thread(marks.mark_for, job, spec) for job in jobs], strict=True))
    await asyncio.wait_for(marks.refresh(), 60)
    answers["ada"].clear()
    for user in answers:
        remember(live, FEWEST_RUNS, 20.0, application="heat", user=user)
    await asyncio.wait_for(marks.refresh(), 60)
    for _ in range(1200):
        if text(str(of["bob"])):
            break
        await asyncio.sleep(0.05)
    assert text(str(of["bob"])) and not text(str(of["ada"]))
    await asyncio.wait_for(marks.refresh(), 60)
    answers["ada"].set()
    for _ in range(1200):
        if text(str(of["ada"])):
            break
        await asyncio.sleep(0.05)
    assert text(str(of["ada"]))
    await marks.stop()


MPIRUN = {"script": "#!/bin/sh\nmpirun ./heat\n"}


@pytest.mark.parametrize("other", [MPIRUN, {"restartable": True}], ids=["mpi", "saves"])
async def test_short_runs_that_workers_do_something_for_have_them(on_slurm: LiveWorld, other: dict[str, Any]) -> None:
    live = on_slurm
    assert order(live, await waiting(live, {**PLAIN, "engine": "application", **other}))["at_once_if"] is None
    live.settings.queues["default"] = live.settings.queues["default"].model_copy(update={"plain_below": 0.0})
    assert order(live, await waiting(live, {**PLAIN, "engine": "application"}))["at_once_if"] is None


async def test_a_queue_can_say_so_and_one_that_lends_processors_does(on_slurm: LiveWorld) -> None:
    for name in ("plain_j0", "in_place"):
        settings = on_slurm.settings.queues["default"].model_copy(update={"plain_j0": "on", "in_place": "off"})
        on_slurm.settings.queues["default"] = settings.model_copy(update={name: "off" if name == "plain_j0" else "on"})
        assert not order(on_slurm, await waiting(on_slurm, PLAIN))["at_once"], name


async def test_what_nodes_offer_has_to_be_known_first_where_the_engine_is_ejbs_choice(
    on_slurm: LiveWorld, absent: None
) -> None:
    live = on_slurm
    spec = {**PLAIN, "engine": "auto"}
    job = await waiting(live, spec)
    assert live.job(job).engine == "none" and not order(live, job)["at_once"]
    live.manager.world.memory.offers["ada"] = (("n1", {"engines": ["none"]}),)
    assert order(live, await waiting(live, spec))["at_once"]


def test_programs_that_are_surely_no_mpis(tmp_path: Path) -> None:
    def plain(words: str, processes: int = 4) -> bool:
        script = f"#!/bin/bash\n{words}\n"
        env = {"PATH": os.environ["PATH"]}
        return is_plain(JobSpec(**{**BARE, "script": script, "cwd": str(tmp_path), "env": env, "processes": processes}))

    (tmp_path / "own.sh").write_text("#!/bin/sh\n./a\n")
    (tmp_path / "own.sh").chmod(0o755)
    assert plain("srun sleep 1") and plain("srun -n 2 /bin/echo hi\nsrun sleep 2")
    assert plain("srun --mpi=pmix ./anything") and plain("srun -n2 --mpi=pmi2 ./anything")
    assert not plain("srun ./anything --mpi=pmix") and not plain("srun --mpi=none ./anything")
    assert plain("./anything", 1) and plain("srun ./anything", 1)
    for words in (
        "srun ./own.sh",
        "srun $WHAT",
        "srun python3 a.py",
        "srun sh a.sh",
        "srun ./missing",
        "./anything",
        "mpirun sleep 1",
    ):
        assert not plain(words), words
    (tmp_path / "own.sh").write_text("#!/bin/sh\nsrun ./a\n")
    assert not plain("./own.sh\nsrun sleep 1") and not plain("bash own.sh; srun sleep 1"), (
        "what it launches is not seen"
    )
    assert not plain("module load x\nsrun sleep 1")


def test_a_file_system_that_does_not_answer_leaves_the_job_to_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(plain, "is_plain", lambda _: answers.wait(60))
    monkeypatch.setattr(plain, "LOOK_S", 0.05)
    begun = time.monotonic()
    spec = JobSpec(**{**BARE, "script": "#!/bin/sh\nsrun sleep 1\n", "cwd": "/", "env": {}, "processes": 4})
    assert not plain.is_plain_in_time(spec)
    assert time.monotonic() - begun < 30
    answers.set()
