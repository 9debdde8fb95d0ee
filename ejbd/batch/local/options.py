"""What becomes of sbatch's options on the embedded cluster.

Those in :data:`MEANT` do what they do on a Slurm. Those in :data:`REFUSED` ask for what no node here has, and the
submission is refused in Slurm's words. All others have no effect, since one user's machine has no such thing: the
answer names them, but for :data:`QUIET` ones, which a small Slurm takes without effect and without a word, too.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ejbd.batch.base import SubmitRequest
from ejbd.batch.local.nodes import Layout
from ejbd.errors import BatchError, EjbError
from ejbd.options.moments import parse_moment
from ejbd.options.sbatch import BY_NAME
from ejbd.options.signals import EndSignal
from ejbd.wire.hostlists import unfold
from ejbd.wire.sizes import kilobytes

QUEUE = "batch"
UNLIMITED_S = 366 * 86400.0  # in place of a walltime without end, with which EASY could not plan
MEANT = frozenset({
    "cpus-per-task", "mem", "mem-per-cpu", "mincpus", "tmp", "exclusive", "nodelist", "exclude", "overcommit",
    "distribution", "begin", "dependency", "kill-on-invalid-dep", "signal", "open-mode", "input", "time", "partition",
})  # fmt: skip
REFUSED = frozenset({
    "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres", "tres-per-task", "bb", "container",
    "container-id",
})  # fmt: skip
QUIET = frozenset({
    "account", "qos", "wckey", "comment", "oversubscribe", "share", "no-requeue", "no-kill", "propagate",
})  # fmt: skip
T = TypeVar("T")
_NOTHING = ("", "none", "0")
_NOT_AVAILABLE = "Requested node configuration is not available"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options of one submission come to.

    `processors` and `layout`: what it gets. `begin_s`: it may not begin before (epoch seconds; 0: at once).
    `walltime_s` is None where its options say nothing. `variables`: what tells a job of its options. `append`: its
    output is added to what is there. `input`: the file of its standard input ("": none). `signal`: what it is told
    before its end. `unheeded`: options without effect, as they are spelt.
    """

    processors: int
    layout: Layout
    begin_s: float = 0.0
    walltime_s: float | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    append: bool = False
    input: str = ""
    signal: EndSignal | None = None
    unheeded: tuple[str, ...] = ()


def read_options(request: SubmitRequest, *, memory_mb: int | None, processors_per_node: int) -> Wanted:
    """Read them. `memory_mb`: of the machine (None: not to be counted).

    Raises BatchError, which will not pass, for what the embedded cluster has not.
    """
    if QUEUE not in (request.queue or QUEUE).split(","):
        raise _refused(f"invalid partition specified: {request.queue}", f"the only partition is {QUEUE}")
    values: dict[str, str] = {}
    for word in request.options:
        name, _, value = word.removeprefix("--").partition("=")
        values[name] = value
    for name in values.keys() - BY_NAME.keys():
        raise _refused(f"unrecognized option '--{name}'", "sbatch has no such option")
    for name in values.keys() & REFUSED:
        if values[name].lower() not in _NOTHING:
            raise _refused(_NOT_AVAILABLE, f"the embedded cluster has nothing for --{name}={values[name]}")
    if values.get("dependency"):  # EJB itself waits for its own jobs; this is no list of jobs
        raise _refused("Job dependency problem", f"--dependency={values['dependency']} cannot be read")
    threads = request.threads
    found = Wanted(
        processors=request.processors,
        layout=Layout(
            threads=threads,
            nodes=request.nodes or 0,
            most_a_node=(request.tasks_per_node or 0) * threads,
            whole="exclusive" in values and values["exclusive"] not in ("user", "mcs"),
            only=_names(values, "nodelist"),
            never=tuple(dict.fromkeys((*request.exclude, *_names(values, "exclude")))),
        ),
        variables={**_tasks(request, values), **_memory(values, memory_mb, threads)},
        append=values.get("open-mode", "").lower().startswith("a"),
        input=values.get("input", ""),
        unheeded=tuple(f"--{name}" for name in values if name not in MEANT | REFUSED | QUIET),
    )
    if "overcommit" in values:
        found = replace(found, processors=max(1, request.nodes or 0), layout=replace(found.layout, most_a_node=0))
    if _count(values, "mincpus") > processors_per_node or found.layout.most_a_node > processors_per_node:
        raise _refused(_NOT_AVAILABLE, f"a node of the embedded cluster has {processors_per_node} processors")
    if (disk_kb := kilobytes(values.get("tmp", "0")) or 0) * 1024 > shutil.disk_usage(_scratch()).total:
        raise _refused(_NOT_AVAILABLE, f"{_scratch()} has less than {disk_kb // 1024} MB")
    if "time" in values:  # which comes here only where it has no end
        found = replace(found, walltime_s=UNLIMITED_S)
    if begin := values.get("begin"):
        found = replace(found, begin_s=_read("begin", begin, lambda text: parse_moment(text, time.time())))
    if signal := values.get("signal"):
        found = replace(found, signal=_read("signal", signal, EndSignal.read))
    return found


def describe_unheeded(options: Iterable[str]) -> str:
    """One sentence about options without effect; "" where there are none."""
    words = " ".join(options)
    return f"without effect on the embedded cluster: {words}" if words else ""


def machine_memory_mb() -> int:
    """What this machine has, or what its control group may use of that."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            found = min(found, int(file.read()))
    except (OSError, ValueError):
        pass  # none, or without a bound
    return found // 2**20


def _tasks(request: SubmitRequest, values: Mapping[str, str]) -> dict[str, str]:
    asked = request.asked
    found = dict(asked.told) if asked is not None else {}
    if asked is not None and asked.tasks_asked:
        tasks = str(request.processors // request.threads)
        found |= {"SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks}
    if request.tasks_per_node:
        found["SLURM_NTASKS_PER_NODE"] = str(request.tasks_per_node)
    if "cpus-per-task" in values or request.threads > 1:
        found["SLURM_CPUS_PER_TASK"] = str(request.threads)
    if "overcommit" in values:
        found["SLURM_OVERCOMMIT"] = "1"
    if "distribution" in values:
        found["SLURM_DISTRIBUTION"] = values["distribution"]
    return found


def _memory(values: dict[str, str], memory_mb: int | None, threads: int) -> dict[str, str]:
    """The last one wins, as in sbatch. Raises BatchError for more than the machine has."""
    name = next((name for name in reversed(values) if name in ("mem", "mem-per-cpu")), None)
    if name is None:
        return {}
    asked = -(-(kilobytes(values[name]) or 0) // 1024)
    least = asked * (1 if name == "mem" else threads)
    if memory_mb is not None and least > memory_mb:
        raise _refused(
            f"Memory specification can not be satisfied. {_NOT_AVAILABLE}",
            f"this machine has {memory_mb} MB, and --{name} asks for {least}",
        )
    asked = asked or memory_mb or 0  # 0 is all of a node
    return {"SLURM_MEM_PER_NODE" if name == "mem" else "SLURM_MEM_PER_CPU": str(asked)}


def _names(values: Mapping[str, str], option: str) -> tuple[str, ...]:
    text = values.get(option, "")
    if "/" in text:
        raise _refused("Invalid node name specified", f"--{option} names a file; write the nodes themselves")
    return tuple(_read(option, text, lambda text: list(map(str, unfold(text))))) if text else ()


def _count(values: Mapping[str, str], option: str) -> int:
    return _read(option, values.get(option) or "0", int)


def _read(option: str, text: str, read: Callable[[str], T]) -> T:
    try:
        return read(text)
    except (ValueError, EjbError) as error:
        raise _refused(f"Invalid --{option} specification", f"{text!r} cannot be read") from error


def _scratch() -> str:
    return os.environ.get("TMPDIR") or "/tmp"


def _refused(text: str, hint: str) -> BatchError:
    return BatchError(text, transient=False, hint=hint)
