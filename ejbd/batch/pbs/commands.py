"""PBS's commands: argument lists for both dialects. Parsers and refusals stand beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ejbd.batch.base import SubmitRequest
from ejbd.batch.pbs import states
from ejbd.batch.pbs.rows import TAG_VARIABLE, job_name, tag_word
from ejbd.batch.pbs.states import Dialect
from ejbd.errors import BatchError


def checked_ids(ids: Sequence[str]) -> list[str]:
    """The ids themselves. Raises BatchError for what is no job id (and might be read as an option)."""
    for id in ids:
        if not states.is_job_id(id):
            raise BatchError(f"{id[:60]!r} is not a job id of PBS", transient=False)
    return list(ids)


def list_jobs(dialect: Dialect, ids: Sequence[str] = (), *, ended: bool = False) -> list[str]:
    """All jobs with the elements of arrays, or those of these ids; `ended`: those of OpenPBS's history, too."""
    if dialect is Dialect.TORQUE:
        return ["qstat", "-t", "-x", *checked_ids(ids)]
    return ["qstat", "-t", *(["-x"] if ended else []), "-f", "-F", "json", *checked_ids(ids)]


def list_nodes(dialect: Dialect) -> list[str]:
    return ["pbsnodes", "-x"] if dialect is Dialect.TORQUE else ["pbsnodes", "-a", "-F", "json"]


def delete(ids: Sequence[str]) -> list[str]:
    return ["qdel", *checked_ids(ids)]


def shorten(id: str, walltime_s: float) -> list[str]:
    return ["qalter", "-l", f"walltime={states.formatted(walltime_s)}", *checked_ids([id])]


def hold(id: str, held: bool) -> list[str]:
    return ["qhold" if held else "qrls", "-h", "u", *checked_ids([id])]


def layout(
    dialect: Dialect, request: SubmitRequest, free: Mapping[str, int], node_processors: int
) -> list[tuple[int, int]]:
    """How a job's processors are asked for: groups of (nodes or chunks, processors of each).

    OpenPBS takes processors one by one, wherever they are. Torque knows nodes only: what fits into those that are idle
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


@dataclass(frozen=True, slots=True)
class Qsub:
    """Submit one job, the script on standard input. `groups`: see :func:`layout`."""

    dialect: Dialect
    request: SubmitRequest
    groups: Sequence[tuple[int, int]]
    longest_name: int = 15

    def argv(self) -> list[str]:
        """Raises BatchError for what PBS cannot be told.

        The output is /dev/null, since the script writes its own where it belongs, from its first line on; the owner's
        mask, and who is told of its end by mail, are left to the site.
        """
        request = self.request
        _check_text(request)
        argv = ["qsub", *native(request.options), "-N", job_name(request.tag, self.longest_name)]
        if request.queue:
            argv += ["-q", request.queue]
        if self.dialect is Dialect.OPENPBS:
            chunks = "+".join(f"{count}:ncpus={each}:mpiprocs={each}" for count, each in self.groups)
            argv += ["-l", f"select={chunks}"]
            if request.nodes is not None:
                argv += ["-l", "place=scatter"]
        else:
            argv += ["-l", "nodes=" + "+".join(f"{count}:ppn={each}" for count, each in self.groups)]
        if request.walltime_s is not None:
            argv += ["-l", f"walltime={states.formatted(request.walltime_s)}"]
        argv += ["-j", "oe", "-o", "/dev/null", "-r", "n", "-v", f"{TAG_VARIABLE}={tag_word(request.tag)}"]
        if request.hold:
            argv.append("-h")
        return argv

    def parse(self, text: str) -> str | None:
        """The job's id: the last line; None where the answer holds none."""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines and states.is_job_id(lines[-1]) and "." in lines[-1] else None


# What means the same to both and needs no more than another word; the rest is refused in a sentence.
_SAME = {"account": "-A", "begin": "", "mail-user": "-M", "priority": "-p", "reservation": "-q"}
_MAIL = {"NONE": "n", "BEGIN": "b", "END": "e", "FAIL": "a", "ALL": "abe", "REQUEUE": "", "TIME_LIMIT": ""}
_WITHOUT_EFFECT = frozenset({"comment", "wckey", "requeue", "no-requeue", "open-mode", "parsable", "quiet", "verbose"})


def native(options: Sequence[str]) -> list[str]:
    """Options in qsub's words. sbatch's long ones are put into them where PBS has the same; raises BatchError."""
    found: list[str] = []
    for word in options:
        if not word.startswith("--"):
            found.append(word)
            continue
        name, _, value = word[2:].partition("=")
        if name in _WITHOUT_EFFECT:
            continue
        if name == "mail-type":
            letters = "".join(dict.fromkeys("".join(_MAIL.get(kind.upper(), "") for kind in value.split(","))))
            found += ["-m", letters or "n"]
        elif _SAME.get(name) and value:
            found += [_SAME[name], value]
        else:
            raise BatchError(
                f"PBS has nothing that does what {word.partition('=')[0]!r} does in Slurm",
                transient=False,
                hint="leave it out, or write a #PBS line with what the site has instead",
            )
    return found


def _check_text(request: SubmitRequest) -> None:
    texts = {"name": request.tag, "queue": request.queue, "script": request.script, "output": str(request.output)}
    for name, text in (texts | {"arguments": "".join(request.args)}).items():
        if "\0" in text:
            raise BatchError(f"the {name} of a job cannot hold a null character", transient=False)
    if not request.tag:
        raise BatchError("a job without a name could not be found again", transient=False)
    if request.queue and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]*", request.queue, re.ASCII):
        raise BatchError(f"{request.queue[:60]!r} is no queue of PBS", transient=False)
