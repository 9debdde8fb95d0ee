"""What the server knows: jobs, nodes, and EASY backfilling over them. No I/O but the file that outlives the server."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ejbd.batch.pbs.rows import node_groups
from ejbd.core.easy import ActiveJob, QueuedJob, easy_pass

Chunk = tuple[int, int]  # (how many, processors each)
RESERVED_S = 365 * 86400.0


@dataclass(slots=True)
class Job:
    """One job. `shares`: (node, first slot, processors) in the order of its chunks. `holds`: letters, "" for none."""

    number: int
    name: str
    owner: str
    asked: dict[str, str]
    chunks: list[Chunk]
    variables: dict[str, str]
    walltime_s: float
    submitted_s: float
    arguments: str
    output: str
    error: str
    join: str
    script: str
    directory: str
    queue: str = "batch"
    state: str = "Q"
    holds: str = ""
    depend: str = ""
    begin_s: float = 0.0
    shell_args: list[str] = field(default_factory=list)
    shares: list[tuple[str, int, int]] = field(default_factory=list)
    start_s: float | None = None
    end_s: float | None = None
    changed_s: float = 0.0
    status: int | None = None
    deleted: bool = False
    estimate: tuple[float, list[tuple[str, int]]] | None = None
    session: int | None = None
    rerunable: bool = True
    resumes: bool = False  # suspended, and wanted to run on
    submitted_to: str = ""  # the queue that qsub named, which may be a routing one
    indices: list[int] = field(default_factory=list)  # of an array
    remaining: list[int] = field(default_factory=list)  # of them those that have not begun
    array: int | None = None  # of an element: its array, and which it is
    index: int | None = None

    def id(self, head: str) -> str:
        """`12.head`, `12[].head`, `12[3].head`."""
        if self.array is not None:
            return f"{self.array}[{self.index}].{head}"
        return f"{self.number}[].{head}" if self.indices else f"{self.number}.{head}"

    @property
    def processors(self) -> int:
        return sum(count * each for count, each in self.chunks)

    @property
    def runs(self) -> bool:
        return self.state in "RE"

    @property
    def ended(self) -> bool:
        return self.state in "FC"


@dataclass(slots=True)
class Queue:
    """A queue; `destinations` make it a routing one. `most`: the greatest `ncpus` and `walltime` (seconds) of a job."""

    name: str
    destinations: list[str] = field(default_factory=list)
    from_route_only: bool = False
    most: dict[str, float] = field(default_factory=dict)
    started: bool = True

    def takes(self, job: Job) -> bool:
        of = {"ncpus": float(job.processors), "walltime": job.walltime_s}
        return all(of[name] <= most for name, most in self.most.items())


@dataclass(slots=True)
class Reservation:
    """Processors kept on nodes from when until when (`node -> processors`)."""

    name: str
    start_s: float
    end_s: float
    nodes: dict[str, int]


class World:
    """`dialect`: openpbs or torque; `scheduler`: easy (strict ordering, Maui) or fifo (what fits starts)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = json.loads((folder / "site.json").read_text())
        self.dialect: str = settings["dialect"]
        self.scheduler: str = settings["scheduler"]
        self.head: str = settings["head"]
        self.processors: int = settings["cpus"]
        self.nodes: dict[str, str] = {f"{settings['prefix']}{n}": "free" for n in range(1, settings["nodes"] + 1)}
        self.kill_delay_s: float = settings["kill_delay"]
        self.node_fail_requeue_s: float = settings["node_fail_requeue"]
        self.lost: dict[str, float] = {}  # nodes whose mom is away, since when
        self.jobs: dict[int, Job] = {}
        self.reservations: list[Reservation] = []
        self.queues: dict[str, Queue] = {
            each["name"]: Queue(**each) for each in settings.get("queues") or [{"name": "batch"}]
        }
        self.default_queue: str = settings.get("default_queue", "batch")
        self.scheduling = True
        self.next: int = settings["first"]
        self.load()

    # ---- what outlives the server

    def load(self) -> None:
        try:
            stored = json.loads((self.folder / "state.json").read_text())
        except FileNotFoundError:
            return
        self.next = stored["next"]
        self.default_queue, self.scheduling = stored["default_queue"], stored["scheduling"]
        self.nodes.update(stored["nodes"])
        self.lost = stored["lost"]
        self.reservations = [Reservation(**each) for each in stored["reservations"]]
        for each in stored["jobs"]:
            each["chunks"] = [tuple(chunk) for chunk in each["chunks"]]
            each["shares"] = [tuple(share) for share in each["shares"]]
            each["estimate"] = None
            self.jobs[each["number"]] = Job(**each)

    def save(self) -> None:
        stored = {
            "next": self.next,
            "default_queue": self.default_queue,
            "scheduling": self.scheduling,
            "nodes": self.nodes,
            "lost": self.lost,
            "reservations": [asdict(each) for each in self.reservations],
            "jobs": [asdict(job) for job in self.jobs.values()],
        }
        temporary = self.folder / "state.json.tmp"
        temporary.write_text(json.dumps(stored))
        temporary.replace(self.folder / "state.json")

    # ---- nodes

    def taken(self) -> dict[str, int]:
        found = dict.fromkeys(self.nodes, 0)
        for job in self.jobs.values():
            if job.runs:
                for node, _, count in job.shares:
                    found[node] += count
        return found

    def free(self) -> dict[str, int]:
        """Processors by node that can be given out now."""
        taken = self.taken()
        return {name: 0 if state != "free" else self.processors - taken[name] for name, state in self.nodes.items()}

    def kept(self, start_s: float, end_s: float) -> dict[str, int]:
        """What reservations keep on each node at some time between."""
        found: dict[str, int] = {}
        for each in self.reservations:
            if each.start_s < end_s and each.end_s > start_s:
                for node, count in each.nodes.items():
                    found[node] = found.get(node, 0) + count
        return found

    def place(self, job: Job, free: dict[str, int]) -> list[tuple[str, int]] | None:
        """Each chunk on one node; None where they do not fit.

        Chunks of one job may share a node, as in OpenPBS; of Torque's nodes each is another one, as long as there are
        as many.
        """
        chunks = job.chunks
        apart = "nodes" in job.asked and sum(count for count, _ in chunks) <= len(self.nodes)
        left = dict(free)
        found: list[tuple[str, int]] = []
        hosts = hosts_of(job.asked)
        for (count, each), host in sorted(zip(chunks, hosts, strict=True), key=lambda one: -one[0][1]):
            for _ in range(count):
                used = {name for name, _ in found} if apart else set()
                fitting = [name for name in left if left[name] >= each and name not in used and host in ("", name)]
                if not fitting:
                    return None
                # On where this job is already, then where it fits tightest.
                name = min(fitting, key=lambda n: (n not in [f[0] for f in found], left[n]))
                left[name] -= each
                found.append((name, each))
        return found

    # ---- scheduling

    def route(self, job: Job) -> bool:
        """Hand a job in a routing queue on to the first queue behind it that takes it; a held one stays there.

        False: none takes it. The server forgets such a job, though qsub has told its number.
        """
        queue = self.queues[job.queue]
        if not queue.destinations or job.holds:
            return True
        for name in queue.destinations:
            if self.queues[name].takes(job):
                job.queue = name
                return self.route(job)
        return False

    def due(self, job: Job, now: float) -> bool:
        if self.queues[job.queue].destinations or not self.queues[job.queue].started or job.array is not None:
            return False
        return (
            job.state in "QB"
            and bool(not job.indices or job.remaining)
            and not job.holds
            and not job.depend
            and job.begin_s <= now
        )

    def schedule(self, now: float) -> list[Job]:
        """The jobs that start now, with their shares."""
        for job in list(self.jobs.values()):
            if job.state == "W" and job.begin_s <= now:
                job.state = "Q"
            if job.state == "Q" and not self.route(job):
                del self.jobs[job.number]
        if not self.scheduling:
            return []
        due = sorted((job for job in self.jobs.values() if self.due(job, now)), key=lambda job: job.number)
        candidates = {each.number: each for job in due for each in self.next_of(job)}
        waiting = list(candidates.values())
        running = [job for job in self.jobs.values() if job.runs]
        for job in self.jobs.values():
            job.estimate = None
        total = self.processors * len(self.nodes)
        waiting = [job for job in waiting if job.processors <= total]
        free = self.free()
        if self.scheduler == "fifo":
            chosen = waiting
        else:
            queued = [QueuedJob(str(job.number), job.processors, job.walltime_s) for job in waiting]
            active = [
                ActiveJob(str(j.number), j.processors, max(now, (j.start_s or now) + j.walltime_s)) for j in running
            ]
            plan = easy_pass(queued, active, sum(free.values()), now)
            chosen = [candidates[int(id)] for id in plan.starts]
            if plan.head is not None and plan.shadow_s is not None:
                self._estimate(candidates[int(plan.head)], plan.shadow_s, running, now)
        started = []
        for job in chosen:
            kept = self.kept(now, now + job.walltime_s)
            usable = {name: max(0, count - kept.get(name, 0)) for name, count in free.items()}
            placed = self.place(job, usable)
            if placed is None:
                continue
            job.shares = self.slots(placed)
            for name, count in placed:
                free[name] -= count
            job.state, job.start_s, job.changed_s, job.estimate = "R", now, now, None
            if job.array is not None and job.index is not None:
                whole = self.jobs[job.array]
                self.jobs[job.number] = job
                whole.remaining.remove(job.index)
                whole.state, whole.start_s = "B", whole.start_s or now
            started.append(job)
        return started

    def _estimate(self, job: Job, shadow_s: float, running: list[Job], now: float) -> None:
        free = self.free()
        for other in running:
            if (other.start_s or now) + other.walltime_s <= shadow_s + 1e-6:
                for node, _, count in other.shares:
                    if self.nodes[node] == "free":
                        free[node] += count
        placed = self.place(job, free)
        if placed is not None:
            (job if job.array is None else self.jobs[job.array]).estimate = (shadow_s, placed)

    def next_of(self, job: Job) -> list[Job]:
        """The job itself, or of an array the elements that could begin next: it makes none before."""
        if not job.indices:
            return [job]
        most = self.processors * len(self.nodes) // max(1, job.processors) + 1
        return [self.element(job, index) for index in job.remaining[:most]]

    def element(self, job: Job, index: int) -> Job:
        return replace(
            job,
            number=element_number(job.number, index),
            array=job.number,
            index=index,
            variables={**job.variables, "PBS_ARRAY_INDEX": str(index), "PBS_ARRAY_ID": job.id(self.head)},
            output=job.output.replace("^array_index^", str(index)),
            error=job.error.replace("^array_index^", str(index)),
            indices=[],
            remaining=[],
            state="Q",
            start_s=None,
            estimate=None,
        )

    def slots(self, placed: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
        """The lowest slots of each node that nobody holds."""
        held: dict[str, set[int]] = {name: set() for name in self.nodes}
        for job in self.jobs.values():
            if job.runs:
                for node, first, count in job.shares:
                    held[node] |= set(range(first, first + count))
        found = []
        for node, count in placed:
            free = [n for n in range(4 * self.processors) if n not in held[node]]
            first = next((n for n in free if all(n + i in free for i in range(count))), free[0])
            held[node] |= set(range(first, first + count))
            found.append((node, first, count))
        return found

    def ended(self, job: Job, status: int | None, now: float) -> None:
        """The job is over, and those that depend on it are told."""
        job.state = "F" if self.dialect == "openpbs" else "C"
        job.status, job.end_s, job.changed_s, job.estimate = status, now, now, None
        if job.array is not None:
            whole = self.jobs[job.array]
            if not whole.remaining and all(each.ended for each in self.jobs.values() if each.array == job.array):
                self.ended(whole, 0, now)
        for other in self.jobs.values():
            kind, _, ids = other.depend.partition(":")
            if other.ended or str(job.number) not in [id.partition(".")[0] for id in ids.split(":")]:
                continue
            met = {"afterany": True, "afterok": status == 0, "afternotok": status != 0}.get(kind, True)
            other.depend, other.holds = "", other.holds.replace("s", "")
            other.state = "H" if other.holds else "Q"
            if not met:
                self.ended(other, None, now)

    def led_from(self, node: str) -> list[Job]:
        """The jobs that run with their mother superior on this node."""
        return [job for job in self.jobs.values() if job.runs and job.shares and job.shares[0][0] == node]

    def resumed(self) -> list[Job]:
        """Suspended jobs that run on from now: their processors are free again."""
        found = []
        for job in self.jobs.values():
            if job.state == "S" and job.resumes:
                free = self.free()
                for node, _, count in job.shares:
                    free[node] -= count
                if min(free.values()) >= 0:
                    job.state = "R"
                    found.append(job)
        return found

    def given_up(self, job: Job, status: int, now: float) -> None:
        """A job whose mom was lost: ended with what the server makes of it, or back in its queue if it may be."""
        if job.rerunable:
            job.state, job.shares, job.start_s, job.changed_s = "Q", [], None, now
        else:
            self.ended(job, status, now)

    # ---- Maui's

    def rooms(self, now: float, least_s: float) -> list[tuple[int, float]]:
        """(processors, seconds; inf: no end) as showbf has them: by node until what is planned there, nested."""
        ends: list[tuple[float, int]] = []
        kept = self.kept(now, now + 1)
        head = next((job for job in self.jobs.values() if job.estimate is not None), None)
        for name, count in self.free().items():
            count -= kept.get(name, 0)
            if count <= 0:
                continue
            begins = [each.start_s for each in self.reservations if name in each.nodes and each.start_s > now]
            if head is not None and head.estimate is not None and name in [n for n, _ in head.estimate[1]]:
                begins.append(head.estimate[0])
            ends.append((min(begins) - now if begins else float("inf"), count))
        rows: list[tuple[int, float]] = []
        for length in sorted({end for end, _ in ends}):
            if length >= least_s:
                rows.append((sum(count for end, count in ends if end >= length), length))
        return rows


def chunks_of(asked: dict[str, str], dialect: str) -> list[Chunk]:
    """What the resources come to. Raises ValueError."""
    if dialect == "openpbs" and "select" in asked:
        found = []
        for part in asked["select"].split("+"):
            words = part.split(":")
            count = int(words[0]) if words[0].isdigit() else 1
            ncpus = next((int(w[6:]) for w in words if w.startswith("ncpus=")), 1)
            found.append((count, ncpus))
        return found
    if "nodes" in asked:
        return [(count, ppn) for count, ppn, _ in node_groups(asked["nodes"])]
    if "procs" in asked:
        return [(int(asked["procs"]), 1)]
    return [(1, int(asked.get("ncpus", "1")))]


def hosts_of(asked: dict[str, str]) -> list[str]:
    """The host that each of :func:`chunks_of` names, "" where it names none."""
    if "select" in asked:
        words = (part.split(":") for part in asked["select"].split("+"))
        return [next((word[5:] for word in each if word.startswith("host=")), "") for each in words]
    if "nodes" in asked:
        return ["" if part[0].isdigit() else part.partition(":")[0] for part in asked["nodes"].split("+")]
    return [""]


def element_number(array: int, index: int) -> int:
    """By what the server itself knows an element."""
    return 10**9 + array * 10**6 + index


def job_number(word: str) -> int | None:
    """12 of `12`, `12.head`, `12.head@head` and `12[].head`; for `12[3]` what the server knows that element by."""
    match = re.fullmatch(r"([0-9]{1,9})(\[([0-9]*)\])?(\.[A-Za-z0-9.@-]+)?", word)
    if match is None:
        return None
    return element_number(int(match[1]), int(match[3])) if match[3] else int(match[1])


def clock() -> float:
    return time.time()


def as_json(value: Any, depth: int = 0) -> str:
    """Laid out as OpenPBS does: tabs, and a tab behind each colon."""
    if isinstance(value, dict):
        if not value:
            return "{}"
        tabs = "\t" * (depth + 1)
        rows = [f"{tabs}{json.dumps(key)}:\t{as_json(each, depth + 1)}" for key, each in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + "\t" * depth + "}"
    if isinstance(value, list):
        return "[" + ", ".join(as_json(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)
