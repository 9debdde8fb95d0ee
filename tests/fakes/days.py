"""Whole days of a daemon: users, rivals, an EASY scheduler and faults, all drawn from one seed, on a clock of its own.

What a day touches of EJB are the manager's own functions, the tables and the fake world, so that it outlives any
rearrangement of the manager's rooms.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.api.app import create_app
from ejbd.api.auth import Peer
from ejbd.core.view import BatchJobView, BatchState
from ejbd.errors import BatchError, EjbError
from ejbd.store.models import Epoch, Job, Launch, PastRun, Subjob
from ejbd.store.store import Store
from ejbd.wire.kinds import JobKind
from tests.fakes.live import LiveWorld, Worker

TERMINAL = ("completed", "failed", "timeout", "cancelled")
SCRIPT = "#!/bin/bash\nsrun ./heat\nsrun ./cool\n"


@contextmanager
def numbered_tokens() -> Iterator[None]:
    """Tokens count up, those of each caller by themselves: threads that draw some for names of files disturb nobody."""
    drawn: dict[str, Iterator[int]] = {}
    kept = secrets.token_hex

    def token(nbytes: int | None = None) -> str:
        caller = sys._getframe(1).f_code.co_name
        number = next(drawn.setdefault(caller, itertools.count(1)))
        return f"a{number:0{2 * (nbytes or 32) - 1}x}"

    secrets.token_hex = token
    try:
        yield
    finally:
        secrets.token_hex = kept


@dataclass
class Errand:
    """What a job turns out to do: seconds at full width, its code, and the sizes of its launches (a script's)."""

    need_s: float
    code: int = 0
    launches: tuple[int, ...] = ()
    progress: bool = False


class Hand(Worker):
    """A worker that leads scripts, leaves when it is told to, and may fall silent."""

    def __init__(self, day: Day, subjob: str, processors: int, node: str) -> None:
        super().__init__(day.live, subjob, processors, node)
        self.day = day
        self.job = subjob.partition(".")[0]
        self.run = 0
        self.silent_until_s = 0.0

    async def work(self) -> list[str]:
        if self.day.live.clock.now < self.silent_until_s or not self.id:
            return []
        before = len(self.done)
        try:
            kinds = await super().work()
        except EjbError:  # the manager has given it up
            self.id = ""
            return []
        for kind, payload in self.done[before:]:
            if kind in self.fail:
                continue
            if kind == "lead" and payload["script"]:
                self.run = payload["run"]
                await self._go_on(len(payload["script"]["ended_launches"]))
            elif kind == "launch-ended" and self.run:
                await self._go_on(payload["ordinal"] + 1)
            elif kind == "exit":
                self.day.leaves(self, payload.get("code", 0))
        return kinds

    async def _go_on(self, ordinal: int) -> None:
        errand = self.day.errand(self.job)
        if ordinal < len(errand.launches):
            file = str(self.day.live.manager.world.spool.launch_file(self.job, ordinal))
            await self.report("launch", ordinal=ordinal, size=errand.launches[ordinal], file=file)
        else:
            await self.report("script-exit", run=self.run, code=errand.code)
            self.run = 0


@dataclass
class Plan:
    """One day: its seed, its queues, how many steps of it are busy, and how often what happens in them."""

    name: str
    seed: int
    steps: int
    happens: dict[str, float]
    queue: dict[str, Any] = field(default_factory=dict)
    engines: tuple[str, ...] = ("application",)
    pace_s: tuple[float, float] = (4.0, 20.0)
    past: int = 0  # earlier runs that are known
    crowd: tuple[tuple[int, float], ...] = ()  # processors that others have, until when; then all are for who waits
    at_once: tuple[int, ...] = (0, 1, 2, 3)  # how much happens in a step, one of these
    shown: bool = False  # what REST tells of it at its end is part of the record


class Day:
    """Plays a plan. Afterwards the database has what came of it, `seen` what was looked at, in its order."""

    def __init__(self, folder: Path, store: Store, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.live = LiveWorld(folder, store, **plan.queue)
        self.live.settings.limits.submit_concurrency = 1  # else threads decide which of two is submitted first
        self.live.batch.free = self.live.batch.total
        self.live.settings.batch = "slurm"  # whose submissions can be kept off nodes
        self.live.batch.node_processors = 4
        self.live.engines = ["application", "dmtcp", "none"]
        self.hands: list[Hand] = []
        self.coming: list[tuple[float, str, int, str]] = []
        self.errands: dict[str, Errand] = {}
        self.ends: dict[str, tuple[float, int]] = {}  # of what is passed through: when it ends by itself, and how
        self.seen: list[str] = []
        self.shown: list[tuple[str, int, Any]] = []
        self.calm: list[tuple[float, str]] = []  # faults of the batch system that pass
        self.rivals = itertools.count(9000)
        self._told: dict[str, str] = {}

    # -- the course of a day ------------------------------------------------------------------------------------------

    async def play(self) -> None:
        if self.plan.past:
            await self.live.store.write(self._learn)
        if self.plan.crowd:
            self._crowd()
        names, weights = list(self.plan.happens), list(self.plan.happens.values())
        for _ in range(self.plan.steps):
            for name in self.random.choices(names, weights, k=self.random.choice(self.plan.at_once)):
                await self._happens(name)
            await self.step(self.random.uniform(*self.plan.pace_s))
        self._all_well()
        for _ in range(12):
            if not self.open():
                break
            await self.step(60.0)
        for job in self.open():
            await self._asked("cancel", self.live.manager.cancel(job.id, "root"))
        for _ in range(3):
            await self.step(40.0)
        if self.plan.shown:
            await self._shown()

    def _crowd(self) -> None:
        now = self.live.clock.now
        runs = BatchJobView(
            "8000", "x", "bob", "batch", BatchState.RUNNING, 1, submit_s=now, start_s=now, nodes=("n1",)
        )
        self.live.batch.others = [
            replace(runs, id=str(8001 + at), processors=width, walltime_s=length, end_s=now + length)
            for at, (width, length) in enumerate(self.plan.crowd)
        ]
        waits = replace(runs, id="8000", state=BatchState.PENDING, processors=32, walltime_s=200.0, start_s=None)
        self.live.batch.others.append(replace(waits, nodes=(), reason="Resources"))

    async def _shown(self) -> None:
        """What people are shown of each job, and of the rest."""
        app = create_app(self.live.manager)

        async def by_socket(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": {"peer": Peer(1, os.geteuid(), os.getegid())}}, receive, send)

        jobs = self.live.store.read_sync(lambda s: list(s.scalars(select(Job.id).order_by(Job.seq))))
        paths = [f"/v1/jobs/{job}{what}" for job in jobs for what in ("", "/explain", "/moves", "/timeline")]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(by_socket), base_url="http://ejbd") as client:
            for path in ("/v1/jobs", "/v1/queues", "/v1/windows", "/v1/drains", *paths):
                answer = await client.get(path)
                told = answer.json()
                for queue in told.get("queues", ()):
                    assert queue.pop("calendar")["windows"] == []  # no day has one (test_manager_calendar.py)
                if path.endswith("/explain"):
                    assert told.pop("application", None) is None  # every job of a day keeps its number of ranks
                self.shown.append((path, answer.status_code, told))

    def _learn(self, session: Session) -> None:
        """Earlier runs, by which walltimes are learned."""
        drawn = random.Random(self.plan.seed)
        for at in range(self.plan.past):
            name, mean_s = (("heat", 600), ("quick", 200))[at // 2 % 2]
            run_s = max(60.0, drawn.gauss(mean_s, mean_s / 5))
            session.add(
                PastRun(
                    key=at, user="ada", application=name, input_class="", processors=(4, 16)[at % 2], run_s=run_s,
                    requested_s=7200.0, outcome="completed", end_s=1000.0 + at,
                )
            )  # fmt: skip

    async def _happens(self, name: str) -> None:
        self.seen.append(f"{self.at()} {name}")
        await getattr(self, f"do_{name}")()

    def at(self) -> str:
        return f"{self.live.clock.now - 1_000_000.0:.1f}"

    async def _asked(self, what: str, request: Any) -> Any:
        """A user's request; what it is refused with is part of the record."""
        try:
            return await request
        except (EjbError, BatchError) as error:
            self.seen.append(f"{self.at()} {what}: {error.sentence()}")
            return None

    async def step(self, seconds: float) -> None:
        live = self.live
        live.clock.now += seconds
        for at_s, what in [one for one in self.calm if one[0] <= live.clock.now]:
            self.calm.remove((at_s, what))
            self._passes(what)
        self.schedule()
        for due in [one for one in self.coming if one[0] <= live.clock.now]:
            self.coming.remove(due)
            await self._comes(*due[1:])
        await self._all_work()
        await live.poll(heartbeats=False, rounds=2)
        await self._get_on()
        await self._all_work()
        await live.act(1)
        self._look()

    async def _all_work(self) -> None:
        for _ in range(3):
            done = [await hand.work() for hand in list(self.hands)]
            if not any(done):
                break

    # -- the batch system ---------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """What is over ends; then EASY."""
        batch, now = self.live.batch, self.live.clock.now
        for job in batch.live():
            if job.state is BatchState.RUNNING and job.id in self.ends and self.ends[job.id][0] <= now:
                code = self.ends.pop(job.id)[1]
                self.over(job.name, BatchState.FAILED if code else BatchState.COMPLETED, code)
            elif job.state is BatchState.RUNNING and (job.end_s or now) <= now:
                self.over(job.name, BatchState.TIMEOUT, None)
        batch.others = [j for j in batch.others if j.state is not BatchState.RUNNING or (j.end_s or 0) > now]
        all_jobs = [*batch.others, *batch.live()]
        running = [j for j in all_jobs if j.state in (BatchState.RUNNING, BatchState.SUSPENDED)]
        free = batch.total - sum(j.processors for j in running)
        waiting = [j for j in all_jobs if j.state is BatchState.PENDING and not j.blocked]
        waiting.sort(key=lambda j: (j.submit_s or 0.0, j.id))
        shadow_s, spare, head = 0.0, 0, False
        for job in waiting:
            length = job.walltime_s or 0.0
            fits = job.processors <= free
            if head:
                in_time = now + length <= shadow_s
                fits = fits and (in_time or job.processors <= spare)
                spare -= 0 if in_time or not fits else job.processors
            elif not fits:
                head, later = True, free
                for other in sorted(running, key=lambda j: (j.end_s or 0.0, j.id)):
                    later += other.processors
                    if later >= job.processors:
                        shadow_s, spare = other.end_s or 0.0, later - job.processors
                        break
            if fits:
                free -= job.processors
                running.append(replace(job, end_s=now + length))
                self._starts(job)
        batch.free = max(0, free)

    def _starts(self, job: BatchJobView) -> None:
        batch, now = self.live.batch, self.live.clock.now
        if job.id not in batch.jobs:
            end_s = now + (job.walltime_s or 0.0)
            started = replace(job, state=BatchState.RUNNING, start_s=now, end_s=end_s, nodes=("n1",))
            batch.others[batch.others.index(job)] = started
            return
        batch.start(job.name)
        nodes = tuple(f"n{1 + (int(job.id) + at) % 8}" for at in range(min(2, -(-job.processors // 8))))
        batch.jobs[job.id] = replace(batch.jobs[job.id], nodes=nodes)
        subjob = job.name.removeprefix("ejb-")
        row = self.row(Subjob, Subjob.id == subjob)
        if row is not None and row.role in ("placeholder", "subjob"):
            share = job.processors // len(nodes)
            for node in nodes:
                due_s = now + self.random.choice((0.0, 0.0, 5.0, 15.0))
                self.coming.append((due_s, subjob, share, node))
        else:
            errand = self.errand(subjob.partition(".")[0])
            self.ends[job.id] = (now + errand.need_s, errand.code)

    def over(self, tag: str, state: BatchState, code: int | None) -> None:
        """A batch job ends, and its workers with it."""
        self.live.batch.end(tag, state, code)
        self._gone(tag)

    def _gone(self, tag: str) -> None:
        subjob = tag.removeprefix("ejb-")
        self.hands = [hand for hand in self.hands if hand.subjob != subjob]
        self.coming = [one for one in self.coming if one[1] != subjob]

    def leaves(self, hand: Hand, code: int) -> None:
        if hand in self.hands:
            self.hands.remove(hand)
        tag = f"ejb-{hand.subjob}"
        if not any(other.subjob == hand.subjob for other in self.hands) and not self.live.batch.of(tag).state.ended:
            self.over(tag, BatchState.FAILED if code else BatchState.COMPLETED, code)

    async def _comes(self, subjob: str, processors: int, node: str) -> None:
        if self.live.batch.of(f"ejb-{subjob}").state is not BatchState.RUNNING:
            return
        hand = Hand(self, subjob, processors, node)
        try:
            await hand.register()
        except EjbError as error:
            self.seen.append(f"{self.at()} {subjob} {node}: {error.sentence()}")
            return
        self.hands.append(hand)

    async def _get_on(self) -> None:
        """What has computed for long enough ends; some tell how far they are; what was cancelled is left."""
        for hand in list(self.hands):
            if self.live.batch.of(f"ejb-{hand.subjob}").state.ended:
                if self.random.random() < 0.5:
                    await self._reports(hand, "leaving", reason="ended by SIGTERM", exits={})
                self._gone(f"ejb-{hand.subjob}")
        now = self.live.daemon_clock()
        query = (
            select(Job, Epoch, Launch)
            .join(Epoch, Epoch.job_id == Job.id)
            .join(Launch, (Launch.job_id == Job.id) & (Launch.ordinal == Epoch.launch_ordinal))
            .where(Epoch.state == "running")
            .order_by(Job.seq)
        )
        rows = self.live.store.read_sync(lambda s: [(job, epoch, one) for job, epoch, one in s.execute(query)])
        for job, epoch, launch in rows:
            errand = self.errand(job.id)
            done = job.work_s + job.work_rate * max(0.0, now - (job.work_as_of_s or now)) - launch.work_at_start_s
            need = errand.need_s / max(1, len(errand.launches))
            hands = [h for h in self.hands if h.job == job.id and h.ranks.get(epoch.number)]
            if done >= need:
                code = 0 if errand.launches else errand.code
                for hand in hands:
                    if self.live.clock.now >= hand.silent_until_s:
                        await hand.finish_ranks(epoch.number, code)
            elif errand.progress:
                for hand in hands[:1]:
                    told = {"done": round(done, 1), "total": errand.need_s, "at_s": self.live.clock.now}
                    await self._reports(hand, "sample", epoch=epoch.number, resident=10**9, **told)

    # -- what is looked at --------------------------------------------------------------------------------------------

    def row(self, table: Any, *where: Any) -> Any:
        return self.live.store.read_sync(lambda s: s.scalars(select(table).where(*where)).first())

    def open(self) -> list[Job]:
        query = select(Job).where(Job.state.not_in(TERMINAL)).order_by(Job.seq)
        return self.live.store.read_sync(lambda s: list(s.scalars(query)))

    def errand(self, job: str) -> Errand:
        if job not in self.errands:  # an element of an array
            drawn = random.Random(f"{self.plan.seed} {job}")
            self.errands[job] = Errand(drawn.uniform(10.0, 90.0), drawn.choice((0, 0, 0, 3)))
        return self.errands[job]

    def _look(self) -> None:
        query = select(Job).where(Job.state.not_in(TERMINAL) | (Job.end_s >= self.live.daemon_clock() - 60.0))
        for job in self.live.store.read_sync(lambda s: list(s.scalars(query.order_by(Job.seq)))):
            told = (
                f"{job.state} members={job.members} work={job.work_s:.5g} rate={job.work_rate:.5g} "
                f"held={job.held} setbacks={job.setbacks} overruns={job.overruns} not_before={job.not_before_s:.1f} "
                f"wall={job.walltime_s:.5g} lead={job.lead_worker} reason={job.reason}"
            )
            if self._told.get(job.id) != told:
                self._told[job.id] = told
                self.seen.append(f"{self.at()} job {job.id} {told}")

    # -- users --------------------------------------------------------------------------------------------------------

    async def _submit(self, errand: Errand, **spec: Any) -> str | None:
        spec.setdefault("engine", self.random.choice(self.plan.engines))
        job: str | None = await self._asked("submit", self.live.submit(rounds=0, **spec))
        if job is not None:
            self.errands[job] = errand
        return job

    def _shape(self) -> dict[str, Any]:
        return {
            "processes": self.random.choice((4, 8, 8, 16, 16, 24)),
            "walltime_s": float(self.random.choice((100, 200, 300, 600))),
        }

    def _need(self, walltime_s: float) -> float:
        """Mostly less than was asked for; one in eight asks for too little."""
        return walltime_s * (1.5 if self.random.random() < 0.125 else self.random.uniform(0.1, 0.9))

    async def do_command(self) -> None:
        shape = self._shape()
        errand = Errand(self._need(shape["walltime_s"]), self.random.choice((0, 0, 0, 0, 3)))
        errand.progress = self.random.random() < 0.5
        app = self.random.choice((None, "heat", "heat:big"))
        signal = self.random.choice(("", "", "", "USR1@60"))
        threads = self.random.choice((1, 1, 1, 2))
        checkpoint = self.random.choice((None, None, "50"))
        await self._submit(errand, **shape, app=app, signal=signal, threads=threads, checkpoint=checkpoint)

    async def do_script(self) -> None:
        shape = self._shape()
        size = shape["processes"]
        errand = Errand(self._need(shape["walltime_s"]), self.random.choice((0, 0, 2)), (size, max(1, size // 2)))
        again = self.random.random() < 0.4
        signal = self.random.choice(("", "", "B:USR1@50"))
        await self._submit(
            errand, **shape, kind=JobKind.SCRIPT, argv=(), script=SCRIPT, restartable=again, signal=signal
        )

    async def do_engineless(self) -> None:
        shape = self._shape()
        await self._submit(Errand(self._need(shape["walltime_s"])), **shape, engine="none")

    async def do_small(self) -> None:
        """Passed through."""
        errand = Errand(self.random.uniform(10, 200), self.random.choice((0, 0, 1)))
        await self._submit(errand, processes=self.random.choice((4, 8)), walltime_s=150.0, elastic=False)

    async def do_learned(self) -> None:
        """It may be run again. Its walltime is learned, or its user's own, with which it is sent into windows alike."""
        name, mean_s = self.random.choice((("heat", 700), ("quick", 300)))
        errand = Errand(max(60.0, self.random.gauss(mean_s, 300)), self.random.choice((0, 0, 0, 0, 1)))
        processes = self.random.choice((4, 4, 16))
        learned = self.random.choice((True, None))
        await self._submit(
            errand, processes=processes, walltime_s=7200.0, learned=learned, rerunnable=True, app=name, elastic=False
        )

    async def do_array(self) -> None:
        options = (f"--array=0-{self.random.randint(2, 4)}%2",)
        await self._read("command", options)

    async def do_lines(self) -> None:
        """A script with lines of its own, as it is read from its file."""
        asks = (
            "-n 8 -t 5",
            "-N 2 --ntasks-per-node=4 -t 5 -J heat",
            "-n 4 -c 2 -t 3 --mem=1G",
            "-n 16 -t 8 --signal=B:10@60",
        )
        lines = f"#!/bin/bash\n#SBATCH {self.random.choice(asks)}\n#EJB engine=application\nsrun ./heat\n"
        job = await self._asked("submit", self.live.submit_script(lines))
        if job is not None:
            self.errands[job] = Errand(self.random.uniform(30, 200), 0, (8,))

    async def do_dependent(self) -> None:
        jobs = self.open()
        if jobs:
            when = self.random.choice(("afterok", "afterany", "afternotok", "after"))
            more = self.random.choice(((), ("--kill-on-invalid-dep=yes",)))
            await self._read("command", (f"--dependency={when}:{self.random.choice(jobs).id}", *more))

    async def _read(self, name: str, options: tuple[str, ...]) -> None:
        job = await self._asked("submit", self.live.submit_as_asked(("./heat",), ntasks="4", time="5", options=options))
        if job is not None and not any(option.startswith("--array") for option in options):
            self.errands[job] = Errand(self.random.uniform(20, 250), self.random.choice((0, 0, 1)))

    def _pick(self, *states: str) -> Job | None:
        found = [job for job in self.open() if not states or job.state in states]
        return self.random.choice(found) if found else None

    async def do_cancel(self) -> None:
        if (job := self._pick()) is not None:
            await self._asked("cancel", self.live.manager.cancel(job.id, "ada"))

    async def do_cancel_elements(self) -> None:
        arrays = [job for job in self.open() if job.kind == JobKind.ARRAY]
        if arrays:
            await self._asked("cancel", self.live.manager.cancel_elements(arrays[-1].id, "1,3", "ada"))

    async def do_hold(self) -> None:
        if (job := self._pick("received", "waiting")) is not None:
            await self._asked("hold", self.live.manager.hold(job.id, "ada"))

    async def do_unhold(self) -> None:
        held = [job for job in self.open() if job.held]
        for job in held[:2]:
            await self._asked("release", self.live.manager.release(job.id, "ada"))

    async def do_signal(self) -> None:
        if (job := self._pick()) is not None:
            name, to = self.random.choice(("USR1", "TERM", "nothing")), self.random.choice(("ranks", "script", "all"))
            await self._asked("signal", self.live.manager.signal(job.id, name, to, "ada"))

    async def do_ask(self) -> None:
        """What people look at."""
        live = self.live
        if (job := self._pick()) is not None:
            told = await self._asked("explain", live.manager.explain(job.id))
            if told is not None:
                self.seen.append(f"{self.at()} explain {job.id}: {told['now']}")
            number = await self._asked("number", live.manager.number(job.id, 0.0))
            planned = await self._asked("planned", live.manager.planned(job.id))
            self.seen.append(f"{self.at()} {job.id}: number {number}, planned {planned}")
        for row in await self._asked("windows", live.manager.windows(None)) or []:
            self.seen.append(f"{self.at()} window {row}")
        for row in await self._asked("queues", live.manager.queues()) or []:
            told = {key: row[key] for key in sorted(row) if key in ("name", "elasticity", "elastic_now", "paused")}
            self.seen.append(f"{self.at()} queue {told}")
        spec = {**self._shape(), "engine": "application"}
        planned = await self._asked("plan", live.plan(**spec))
        if planned is not None:
            decision = planned["decision"] or {}
            told = f"{planned['elastic']} {planned['why']}: {decision.get('kind')} {decision.get('reason')}"
            self.seen.append(f"{self.at()} plan {spec}: {told}")
        health = live.manager.health()
        self.seen.append(f"{self.at()} health {health['ok']} {health['faults']} {health['failed_polls']}")

    # -- rivals, operators --------------------------------------------------------------------------------------------

    async def do_rival(self) -> None:
        walltime_s = float(self.random.choice((60, 120, 300, 600)))
        processors = self.random.choice((2, 4, 8, 16, 32))
        limit = self.random.choice(("", "", "", "Dependency"))
        self.live.batch.others.append(
            BatchJobView(
                str(next(self.rivals)), "other", "eve", "batch", BatchState.PENDING, processors, walltime_s,
                submit_s=self.live.clock.now, reason=limit or "Resources", blocked=bool(limit),
            )
        )  # fmt: skip

    async def do_rival_leaves(self) -> None:
        if self.live.batch.others:
            self.live.batch.others.remove(self.random.choice(self.live.batch.others))

    async def do_drain(self) -> None:
        nodes = f"n[{self.random.randint(1, 3)}-{self.random.randint(3, 5)}]"
        await self._asked("drain", self.live.manager.drain(nodes, self.live.clock.now + 120.0, "root"))

    async def do_undrain(self) -> None:
        for row in await self._asked("drains", self.live.manager.drains()) or []:
            self.seen.append(f"{self.at()} drain {row}")
            await self._asked("undrain", self.live.manager.cancel_drain(row["nodes"], "root"))

    async def do_queue_set(self) -> None:
        changes = self.random.choice(
            ({"elasticity": "off"}, {"elasticity": "on"}, {"elasticity": "auto"}, {"min_processors": 6},
             {"guard": "off"}, {"guard": "on"}, {"max_subjobs": 1}, {"checkpoint_every": 60.0}, {"gaps": "on"})
        )  # fmt: skip
        await self._asked("queue set", self.live.manager.set_queue("batch", dict(changes), "root"))

    async def do_queue_on(self) -> None:
        await self._asked("queue set", self.live.manager.set_queue("batch", {"elasticity": "on"}, "root"))

    async def do_queue_resume(self) -> None:
        await self._asked("queue resume", self.live.manager.resume_queue("batch", "root"))

    # -- faults of the batch system -----------------------------------------------------------------------------------

    def _for(self, seconds: float, what: str) -> None:
        self.calm.append((self.live.clock.now + seconds, what))

    def _passes(self, what: str) -> None:
        batch = self.live.batch
        word, _, rest = what.partition(" ")
        if word == "silent":
            batch.silent = False
        elif word == "refuse":
            batch.refuse, batch.refuse_role = None, ""
        elif word == "changes":
            batch.refuse_changes = None
        elif word == "suspended" and rest in batch.jobs and batch.jobs[rest].state is BatchState.SUSPENDED:
            job = batch.jobs[rest]
            batch.jobs[rest] = replace(job, state=BatchState.RUNNING, end_s=self.live.clock.now + 100.0)
        elif word == "stand":
            batch.stand(rest)

    def _all_well(self) -> None:
        for _at_s, what in self.calm:
            self._passes(what)
        self.calm = []
        self.live.batch.hang_submissions = self.live.batch.lose_answers = 0

    async def do_silent(self) -> None:
        self.live.batch.silent = True
        self._for(self.random.uniform(10, 60), "silent")

    async def do_refuse(self) -> None:
        self.live.batch.refuse = BatchError("the controller does not answer", transient=True)
        self._for(self.random.uniform(40, 200), "refuse")

    async def do_refuse_for_good(self) -> None:
        self.live.batch.refuse = BatchError("the account is not allowed", transient=False)
        self.live.batch.refuse_role = self.random.choice((".0", ".1", ".2"))
        self._for(self.random.uniform(10, 40), "refuse")

    async def do_refuse_changes(self) -> None:
        self.live.batch.refuse_changes = BatchError("the partition gives out no less", transient=False)
        self._for(60.0, "changes")

    async def do_hang(self) -> None:
        self.live.batch.hang_submissions += self.random.choice((1, 2))

    async def do_lose_answer(self) -> None:
        self.live.batch.lose_answers += 1

    async def do_awaited(self) -> None:
        """Somebody submits a job that waits for a J0."""
        waiting = [job for job in self.live.batch.live() if job.name.endswith(".0")]
        if waiting:
            self.live.batch.awaited.add(self.random.choice(waiting).id)

    def _batch_job(self, state: BatchState) -> BatchJobView | None:
        found = [job for job in self.live.batch.live() if job.state is state]
        return self.random.choice(found) if found else None

    async def do_node_fails(self) -> None:
        if (job := self._batch_job(BatchState.RUNNING)) is not None:
            self.over(job.name, self.random.choice((BatchState.NODE_FAIL, BatchState.PREEMPTED)), None)

    async def do_ended_outside(self) -> None:
        """Somebody cancels a batch job behind the daemon's back."""
        job = self._batch_job(self.random.choice((BatchState.RUNNING, BatchState.PENDING)))
        if job is not None:
            self.over(job.name, BatchState.CANCELLED, None)

    async def do_fails_outside(self) -> None:
        if (job := self._batch_job(BatchState.RUNNING)) is not None:
            self.over(job.name, BatchState.FAILED, 1)

    async def do_forgotten(self) -> None:
        if (job := self._batch_job(self.random.choice((BatchState.RUNNING, BatchState.PENDING)))) is not None:
            self.live.batch.forget(job.name)
            self._gone(job.name)

    async def do_held_outside(self) -> None:
        if (job := self._batch_job(BatchState.PENDING)) is not None:
            self.live.batch.stand(job.name, "QOSMaxCpuPerUserLimit")
            self._for(80.0, f"stand {job.name}")

    async def do_suspended(self) -> None:
        if (job := self._batch_job(BatchState.RUNNING)) is not None:
            self.live.batch.jobs[job.id] = replace(job, state=BatchState.SUSPENDED)
            self._for(self.random.uniform(20, 120), f"suspended {job.id}")

    async def do_brought_forward(self) -> None:
        if (job := self._batch_job(BatchState.RUNNING)) is not None:
            self.live.batch.jobs[job.id] = replace(job, end_s=self.live.clock.now + 50.0)

    async def do_double(self) -> None:
        if (job := self._batch_job(BatchState.PENDING)) is not None:
            await self.live.batch.submit_again(job.id)

    # -- faults of workers --------------------------------------------------------------------------------------------

    async def _reports(self, hand: Hand, kind: str, **fields: Any) -> None:
        try:
            await hand.report(kind, **fields)
        except EjbError as error:
            self.seen.append(f"{self.at()} {hand.subjob} {kind}: {error.sentence()}")

    def _hand(self) -> Hand | None:
        return self.random.choice(self.hands) if self.hands else None

    def _at_work(self) -> tuple[Hand, int, list[int]] | None:
        found = [(h, epoch, ranks) for h in self.hands for epoch, ranks in h.ranks.items() if ranks and h.id]
        return self.random.choice(found) if found else None

    async def do_worker_silent(self) -> None:
        if (hand := self._hand()) is not None:
            hand.silent_until_s = self.live.clock.now + self.random.choice((30.0, 150.0))

    async def do_worker_again(self) -> None:
        if (hand := self._hand()) is not None:
            hand.ranks, hand.n = {}, 0
            await self._asked("register", hand.register(boot="b"))

    async def do_worker_fails(self) -> None:
        if (hand := self._hand()) is not None:
            kind = self.random.choice(("checkpoint", "checkpoint", "launch", "lead", "unlead", "stop", "signal"))
            hand.fail[kind] = self.random.choice(({}, {"exits": {"0": 85}}, {"own": True}))

    async def do_worker_deaf(self) -> None:
        if (hand := self._hand()) is not None:
            hand.deaf = {self.random.choice(("checkpoint", "launch", "exit"))}

    async def do_worker_well(self) -> None:
        for hand in self.hands:
            hand.fail.clear()
            hand.deaf.clear()

    async def do_worker_slow(self) -> None:
        if (hand := self._hand()) is not None:
            hand.takes["checkpoint"] = self.random.uniform(1, 12)

    async def do_warned(self) -> None:
        if (hand := self._hand()) is not None:
            await self._reports(hand, "warned", signal="TERM")

    async def do_rank_fails(self) -> None:
        if (found := self._at_work()) is not None:
            hand, epoch, ranks = found
            code = self.random.choice((1, 7, 99, 137, 139))
            rank = ranks.pop(0)
            await self._reports(hand, "rank-exit", epoch=epoch, rank=rank, code=code, memory=code == 137)

    async def do_rank_stuck(self) -> None:
        if (found := self._at_work()) is not None:
            await self._reports(found[0], "stuck", epoch=found[1], rank=found[2][0], seconds=120.0)

    async def do_coordinator_lost(self) -> None:
        if (found := self._at_work()) is not None:
            await self._reports(found[0], "coordinator-lost", epoch=found[1], reason="dmtcp_coordinator has ended")

    async def do_obstacle(self) -> None:
        if (found := self._at_work()) is not None:
            nothing = {"done": None, "total": None, "at_s": None}
            for more in ({"obstacle": "rank 0 has a timer"}, {"passed": True})[: self.random.choice((1, 2))]:
                await self._reports(found[0], "sample", epoch=found[1], resident=10**8, **nothing, **more)

    async def do_log(self) -> None:
        if (hand := self._hand()) is not None:
            await self._reports(hand, "log", level="warning", message="the disk is slow")

    async def do_launch_cancelled(self) -> None:
        leads = [hand for hand in self.hands if hand.run]
        if leads:
            row = self.row(Launch, Launch.job_id == leads[0].job, Launch.state.not_in(("ended", "failed")))
            if row is not None:
                await self._reports(leads[0], "launch-cancel", ordinal=row.ordinal)

    async def do_launch_refused(self) -> None:
        leads = [hand for hand in self.hands if hand.run]
        if leads:
            fields: dict[str, Any] = {"run": leads[0].run, "name": "srun", "line": 2, "reason": "--het-group"}
            await self._reports(leads[0], "launch-refused", **fields)

    async def do_script_ends(self) -> None:
        leads = [hand for hand in self.hands if hand.run]
        if leads:
            await self._reports(leads[-1], "script-exit", run=leads[-1].run, code=self.random.choice((0, 5)))
            leads[-1].run = 0

    # -- the daemon ---------------------------------------------------------------------------------------------------

    async def do_daemon_away(self) -> None:
        for _ in range(self.random.choice((1, 4, 12))):
            self.live.clock.now += self.random.uniform(5, 30)
            self.schedule()
        await self.live.restart()

    async def do_alone(self) -> None:
        """A J0 begins while no daemon is there, and its workers begin the job by themselves."""
        query = select(Subjob).where(Subjob.role == "placeholder", Subjob.state == "pending").order_by(Subjob.id)
        for subjob in self.live.store.read_sync(lambda s: list(s.scalars(query))):
            folder = self.live.manager.world.spool.subjob_dir(subjob.job_id, subjob.id) / "alone"
            if not (folder / "order.json").exists() or (folder / "claim.json").exists():
                continue
            self.live.batch.start(subjob.tag)
            self.live.clock.now += 15.0
            order = json.loads(json.loads((folder / "order.json").read_text())["order"])
            begun = {"order": order["id"], "at_s": self.live.clock.now, "node": "n1"}
            (folder / "claim.json").write_text(json.dumps({"begun": begun}))
            job = self.live.batch.of(subjob.tag)
            self.ends[job.id] = (self.live.clock.now + 80.0, self.errand(subjob.job_id).code)
            self.live.clock.now += 20.0
            await self.live.restart()
            return

    async def do_clock_set(self) -> None:
        self.live.set_by_s += self.random.choice((-3600.0, 600.0, 86400.0))

    async def do_prune(self) -> None:
        await self.live.manager.prune()
