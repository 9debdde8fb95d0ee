"""PBS's commands: argument lists for both dialects. Parsers and refusals stand beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ejbd.batch.base import SubmitRequest
from ejbd.batch.pbs import states
from ejbd.batch.pbs.rows import job_name, tag_path
from ejbd.batch.pbs.states import Dialect
from ejbd.batch.pbs.words import Words, words
from ejbd.errors import BatchError


def checked_ids(ids: Sequence[str]) -> list[str]:
    """The ids themselves. Raises BatchError for what is no job id (and might be read as an option)."""
    for id in ids:
        if not states.is_job_id(id):
            raise BatchError(f"{id[:60]!r} is not a job id of PBS", transient=False)
    return list(ids)


def list_jobs(dialect: Dialect, ids: Sequence[str] = (), *, ended: bool = False) -> list[str]:
    """All jobs, or those of these ids; `ended`: those of OpenPBS's history, too.

    OpenPBS lists an array as one job, since its elements may be many thousands.
    Its JSON leaves out all but the first of several ids (seen in 23.06.06): those are asked for in rows.
    """
    if dialect is Dialect.TORQUE:
        return ["qstat", "-t", "-x", *checked_ids(ids)]
    return ["qstat", *(["-x"] if ended else []), "-f", "-F", "dsv" if len(ids) > 1 else "json", *checked_ids(ids)]


def list_nodes(dialect: Dialect) -> list[str]:
    return ["pbsnodes", "-x"] if dialect is Dialect.TORQUE else ["pbsnodes", "-a", "-F", "json"]


def delete(ids: Sequence[str]) -> list[str]:
    return ["qdel", *checked_ids(ids)]


def shorten(id: str, walltime_s: float) -> list[str]:
    return ["qalter", "-l", f"walltime={states.formatted(walltime_s)}", *checked_ids([id])]


def reduce(dialect: Dialect, id: str, walltime_s: float) -> list[str]:
    """One processor for so long, of a job that waits."""
    openpbs = dialect is Dialect.OPENPBS
    shape = ["-l", "select=1:ncpus=1:mpiprocs=1", "-l", "place=free"] if openpbs else ["-l", "nodes=1:ppn=1"]
    return ["qalter", *shape, "-l", f"walltime={states.formatted(walltime_s)}", *checked_ids([id])]


def hold(id: str, held: bool) -> list[str]:
    return ["qhold" if held else "qrls", "-h", "u", *checked_ids([id])]


def layout(
    dialect: Dialect, request: SubmitRequest, free: Mapping[str, int], node_processors: int
) -> list[tuple[int, int]]:
    """How a job's processors are asked for: groups of (nodes or chunks, processors of each).

    OpenPBS takes processors one by one, wherever they are. Torque knows nodes only. What fits into those that are idle
    now (`free`) is asked for just so, and anything wider in whole nodes of `node_processors` and a rest.
    """
    if request.nodes is not None:
        each, rest = divmod(request.processors, request.nodes)
        each = request.processors_per_node or each
        if request.processors_per_node is None and rest:
            return [(rest, each + 1), *([(request.nodes - rest, each)] if each else [])]
        return [(request.nodes, max(1, each))]
    if request.processors_per_node is not None:
        each = request.processors_per_node
        whole, rest = divmod(request.processors, each)
        return [(count, size) for count, size in ((whole, each), (1 if rest else 0, rest)) if count]
    if dialect is Dialect.OPENPBS:
        return [(request.processors // request.threads, request.threads)]
    if sum(free.values()) >= request.processors:
        sizes, left = [], request.processors
        for idle in sorted(free.values(), reverse=True):
            if left and idle:
                sizes.append(min(idle, left))
                left -= sizes[-1]
        return [(sizes.count(size), size) for size in dict.fromkeys(sizes)]
    whole, rest = divmod(request.processors, max(1, node_processors))
    return [(count, size) for count, size in ((whole, node_processors), (1 if rest else 0, rest)) if count]


def beside(request: SubmitRequest, free: Mapping[str, int]) -> list[tuple[str, int]]:
    """Hosts by name, with the processors to be had of each, of a job that is to stay off others. PBS has no word for
    nodes that a job must not have. `free`: the processors that are idle on those that it may have.

    Raises BatchError where they are too few: it may be asked for again.
    """
    each = request.processors_per_node or (
        -(-request.processors // request.nodes) if request.nodes is not None else request.threads
    )
    whole = request.nodes is not None or request.processors_per_node is not None
    found, left = [], request.processors
    for host, idle in sorted(free.items(), key=lambda one: (-one[1], one[0])):
        taken = min(left, each if whole else idle - idle % each)
        if 0 < taken <= idle:
            found.append((host, taken))
            left -= taken
    if left:
        names = ", ".join(request.exclude)
        raise BatchError(f"no room is idle beside the nodes that are to be left ({names})", transient=False)
    return found


@dataclass(frozen=True, slots=True)
class Qsub:
    """Submit one job, the script on standard input. `groups`: see :func:`layout`; `hosts`: see :func:`beside`, instead
    of them."""

    dialect: Dialect
    request: SubmitRequest
    groups: Sequence[tuple[int, int]]
    longest_name: int = 15
    hosts: Sequence[tuple[str, int]] = ()

    def argv(self) -> list[str]:
        """Raises BatchError for what PBS has no words for.

        The output is /dev/null, since the script writes its own where it belongs, from its first line on. The owner's
        mask, and mails about its end, are left to the site.
        """
        request = self.request
        _check_text(request)
        found = words(self.dialect, request.options, request.native)
        argv = ["qsub", *found.argv, "-N", job_name(request.tag, self.longest_name)]
        if request.queue:
            argv += ["-q", request.queue]
        if not found.shape:
            argv += self._select(found) if self.dialect is Dialect.OPENPBS else self._nodes(found)
        if request.walltime_s is not None:
            argv += ["-l", f"walltime={states.formatted(request.walltime_s)}"]
        argv += ["-j", "oe", "-o", "/dev/null", "-e", tag_path(request.tag), *_rerun(request)]
        # What stands by is held, no more: a dependency would be deleted, with a mail to its user, where all went well.
        # What is to begin later is held, too, and let go at its time: `-a` cannot be changed everywhere.
        if request.hold or request.stands_by_for or request.begin_in_s > 0:
            argv.append("-h")
        return argv

    def _select(self, found: Words) -> list[str]:
        """Chunks. Of a passed-through job each has a line of the nodefile a rank, otherwise one a processor."""
        request = self.request
        chunks = []
        for count, each, host in self._with_hosts(found):
            ranks = each // request.threads if request.asked is not None and each % request.threads == 0 else each
            chunk = [f"{count}:ncpus={each}:mpiprocs={ranks}", *found.each]
            if found.mb_per_node and request.nodes is None and request.processors_per_node is None:
                raise _untold("memory of each node (--mem)", "say --mem-per-cpu, or how many nodes")
            if mb := found.mb_per_node or found.mb_per_processor * each:
                chunk.append(f"mem={mb}mb")
            chunks.append(":".join([*chunk, *([f"host={host}"] if host else [])]))
        argv = ["-l", f"select={'+'.join(chunks)}"]
        places = [*(["scatter"] if request.nodes is not None else []), *(["excl"] if found.exclusive else [])]
        return [*argv, "-l", f"place={':'.join(places)}"] if places else argv

    def _nodes(self, found: Words) -> list[str]:
        if found.exclusive:
            raise _untold("whole nodes (--exclusive)", "ask for all processors of a node, or say whole_nodes in [pbs]")
        if found.mb_per_node:
            raise _untold("memory of each node (--mem)", "say --mem-per-cpu")
        groups = [
            ":".join([host or str(count), f"ppn={each}", *found.each]) for count, each, host in self._with_hosts(found)
        ]
        argv = ["-l", f"nodes={'+'.join(groups)}"]
        return [*argv, "-l", f"pmem={found.mb_per_processor}mb"] if found.mb_per_processor else argv

    def _with_hosts(self, found: Words) -> list[tuple[int, int, str]]:
        if self.hosts:
            return [(1, each, host) for host, each in self.hosts]
        if not found.hosts:
            return [(count, each, "") for count, each in self.groups]
        sizes = [each for count, each in self.groups for _ in range(count)]
        if self.request.nodes is None or len(sizes) != len(found.hosts):
            raise _untold("some nodes by name", "name as many as are asked for (-N)")
        return [(1, each, host) for each, host in zip(sizes, found.hosts, strict=True)]

    def parse(self, text: str) -> str | None:
        """The job's id: the last line; None where the answer holds none."""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines and states.is_job_id(lines[-1]) and "." in lines[-1] else None


def _rerun(request: SubmitRequest) -> list[str]:
    """Whether PBS may run a job again when its node is lost. A passed-through one is left to its user, or to PBS
    itself, which does. Of a subjob EJB decides what comes next.
    """
    if request.asked is None:
        return ["-r", "n"]
    words = {"--requeue": "y", "--no-requeue": "n"}
    options = (*request.options, *request.asked.options)
    said = next((words[word] for word in reversed(options) if word in words), "")
    return ["-r", said] if said else []


def _untold(what: str, hint: str) -> BatchError:
    return BatchError(f"PBS cannot be asked for {what} like that", transient=False, hint=hint)


def _check_text(request: SubmitRequest) -> None:
    texts = {"name": request.tag, "queue": request.queue, "script": request.script, "output": str(request.output)}
    for name, text in (texts | {"arguments": "".join(request.args)}).items():
        if "\0" in text:
            raise BatchError(f"the {name} of a job cannot hold a null character", transient=False)
    if not request.tag:
        raise BatchError("a job without a name could not be found again", transient=False)
    if request.queue and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]*", request.queue, re.ASCII):
        raise BatchError(f"{request.queue[:60]!r} is no queue of PBS", transient=False)
