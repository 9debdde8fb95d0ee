"""What squeue and sacct print of a job: Slurm's fields, in one table each, and what EJB knows of them itself.

Slurm has a batch job where EJB has a job: J0, subjobs, or the job that is passed through. What stands in its own row
(:attr:`Row.slurm`) is printed but where EJB knows better: which number, state, nodes and times an elastic job has.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ejbd.cli.links.rows import Row, without_tag
from ejbd.cli.links.states import LIVING, SHORT, word_recorded
from ejbd.wire.states import JobState

NONE = "(null)"
UNKNOWN = "N/A"
WORKERS = "ejb-workers"  # the name of the step in which the workers of an elastic job run
_ENDED = {  # Slurm's reasons of an end
    "COMPLETED": "None", "CANCELLED": "None", "FAILED": "NonZeroExitCode", "TIMEOUT": "TimeLimit",
}  # fmt: skip
_DEPENDENCY = "Dependency"  # how EJB's reason of a job begins that waits for others, and all that Slurm says of it
_NO_REASON = ("", "None")
_ENDED_BY_OTHERS = ("CANCELLED", "TIMEOUT")
_WITH_REASON = ("PENDING", "SUSPENDED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE")

# The fields of `squeue --Format`: name/letter of `--format`/heading. As Slurm 22.05 to 26.05 have them.
# Where the site's own squeue answers its headings count, and it may have further names.
_OF_SQUEUE = """
Account/a/ACCOUNT AccrueTime//ACCRUE_TIME admin_comment//ADMIN_COMMENT AllocNodes//ALLOC_NODES AllocSID//ALLOC_SID
ArrayJobId/F/ARRAY_JOB_ID ArrayTaskId/K/ARRAY_TASK_ID AssocId//ASSOC_ID BatchFlag//BATCH_FLAG BatchHost/B/EXEC_HOST
BoardsPerNode//BOARDS_PER_NODE BurstBuffer//BURST_BUFFER BurstBufferState//BURST_BUFFER_STATE Cluster//CLUSTER
ClusterFeature//CLUSTER_FEATURES Command/o/COMMAND Comment/k/COMMENT Container//CONTAINER ContainerId//CONTAINERID
Contiguous/O/CONTIGUOUS Cores/I/CORES_PER_SOCKET CoreSpec/X/CORE_SPEC CPUsPerTask//CPUS_PER_TASK
cpus-per-task//CPUS_PER_TASK cpus-per-tres//CPUS_PER_TRES Deadline//DEADLINE DelayBoot//DELAY_BOOT
Dependency/E/DEPENDENCY DerivedEC//DERIVED_EC EligibleTime//ELIGIBLE_TIME EndTime/e/END_TIME ExcNodes/x/EXC_NODES
exit_code//EXIT_CODE Feature/f/FEATURES Gres/b/TRES_PER_NODE GroupId/G/GROUP GroupName/g/GROUP HetJobId//HET_JOB_ID
HetJobIdSet//HET_JOB_ID_SET HetJobOffset//HET_JOB_OFFSET JobArrayId/i/JOBID JobId/A/JOBID LastSchedEval//LAST_SCHED_EVAL
Licenses/W/LICENSES MaxCPUs//MAX_CPUS MaxNodes//MAX_NODES mem-per-tres//MEM_PER_TRES MCSLabel//MCSLABEL
MinCPUs/c/MIN_CPUS MinMemory/m/MIN_MEMORY MinTime//TIME_MIN MinTmpDisk/d/MIN_TMP_DISK Name/j/NAME Network//NETWORK
Nice/y/NICE NodeList/N/NODELIST NTPerCore//NTASKS_PER_CORE NTPerNode//NTASKS_PER_NODE NTPerSocket//NTASKS_PER_SOCKET
NTPerBoard//NTASKS_PER_BOARD NumCPUs/C/CPUS NumNodes/D/NODES NumTasks//TASKS Origin//ORIGIN OriginRaw//ORIGIN_RAW
OverSubscribe/h/OVER_SUBSCRIBE PackJobId//HET_JOB_ID PackJobIdSet//HET_JOB_ID_SET PackJobOffset//HET_JOB_OFFSET
Partition/P/PARTITION PendingTime//PENDING_TIME PreemptTime//PREEMPT_TIME Prefer//PREFER Priority/p/PRIORITY
PriorityLong/Q/PRIORITY Profile//PROFILE QOS/q/QOS Reason/r/REASON ReasonList/R/NODELIST(REASON) Reboot//REBOOT
ReqNodes/n/REQ_NODES ReqSwitch//REQ_SWITCH Requeue//REQUEUE Reservation/v/RESERVATION ResizeTime//RESIZE_TIME
RestartCnt//RESTART_COUNT SchedNodes/Y/SCHEDNODES SCT/z/S:C:T SiblingsActive//ACTIVE_SIBLINGS
SiblingsActiveRaw//ACTIVE_SIBLINGS_RAW SiblingsViable//VIABLE_SIBLINGS SiblingsViableRaw//VIALBLE_SIBLINGS_RAW
Shared/h/OVER_SUBSCRIBE Sockets/H/SOCKETS_PER_NODE SPerBoard//SOCKETS_PER_BOARD StartTime/S/START_TIME State/T/STATE
StateCompact/t/ST StdErr//STDERR StdIn//STDIN StdOut//STDOUT SubmitTime/V/SUBMIT_TIME system_comment//SYSTEM_COMMENT
Threads/J/THREADS_PER_CORE TimeLeft/L/TIME_LEFT TimeLimit/l/TIME_LIMIT TimeUsed/M/TIME Tres//TRES_ALLOC
tres-alloc//TRES_ALLOC tres-bind//TRES_BIND tres-freq//TRES_FREQ tres-per-job//TRES_PER_JOB tres-per-node//TRES_PER_NODE
tres-per-socket//TRES_PER_SOCKET tres-per-task//TRES_PER_TASK UserId/U/UID UserName/u/USER Wait4Switch//WAIT4SWITCH
WCKey/w/WCKEY WorkDir/Z/WORK_DIR SelectJobInfo/s/ SLUID//SLUID ContainerType//CONTAINERTYPE CronJob//CRON_JOB
Exclusive//EXCLUSIVE LicensesAlloc//LICENSES_ALLOC SegmentSize//SEGMENT_SIZE
"""

# The fields of `sacct --format`: name:width, to the left where that is negative. As Slurm 22.05 to 26.05 have them.
# Where the site's own sacct answers its names and widths count.
_OF_SACCT = """
Account:10 AdminComment:15 AllocCPUS:10 AllocNodes:10 AllocTRES:10 AssocID:7 AveCPU:10 AveCPUFreq:10 AveDiskRead:14
AveDiskWrite:14 AvePages:10 AveRSS:10 AveVMSize:10 BlockID:16 Cluster:10 Comment:14 Constraints:19 ConsumedEnergy:14
ConsumedEnergyRaw:17 Container:19 CPUTime:10 CPUTimeRAW:10 DBIndex:-21 DerivedExitCode:15 Elapsed:10 ElapsedRaw:10
Eligible:19 End:19 Exclusive:14 ExitCode:8 Extra:14 FailedNode:8 Flags:19 GID:6 Group:9 JobID:-12 JobIDRaw:-12
JobName:10 Layout:9 Licenses:10 MaxDiskRead:12 MaxDiskReadNode:15 MaxDiskReadTask:15 MaxDiskWrite:12 MaxDiskWriteNode:16
MaxDiskWriteTask:16 MaxPages:8 MaxPagesNode:12 MaxPagesTask:14 MaxRSS:10 MaxRSSNode:10 MaxRSSTask:10 MaxVMSize:10
MaxVMSizeNode:14 MaxVMSizeTask:14 McsLabel:12 MinCPU:10 MinCPUNode:10 MinCPUTask:10 NCPUS:10 NNodes:8 NodeList:15
NTasks:8 OriginalSLUID:14 OverSubscribe:14 Partition:10 Planned:10 PlannedCPU:10 PlannedCPURAW:13 Priority:10 QOS:10
QOSRAW:6 QOSREQ:10 Reason:22 ReqCPUFreq:10 ReqCPUFreqGov:13 ReqCPUFreqMax:13 ReqCPUFreqMin:13 ReqCPUS:8 ReqMem:10
ReqNodes:8 ReqReservation:20 ReqTRES:10 Reservation:20 ReservationId:8 Reserved:10 Restarts:8 ResvCPU:10 ResvCPURAW:10
SegmentSize:11 SLUID:14 Start:19 State:10 StdErr:20 StdIn:20 StdOut:20 Submit:19 SubmitLine:20 Suspended:10
SystemComment:15 SystemCPU:10 Timelimit:10 TimelimitRaw:10 TotalCPU:10 TRESUsageInAve:14 TRESUsageInMax:14
TRESUsageInMaxNode:18 TRESUsageInMaxTask:18 TRESUsageInMin:14 TRESUsageInMinNode:18 TRESUsageInMinTask:18
TRESUsageInTot:14 TRESUsageOutAve:15 TRESUsageOutMax:15 TRESUsageOutMaxNode:19 TRESUsageOutMaxTask:19 TRESUsageOutMin:15
TRESUsageOutMinNode:19 TRESUsageOutMinTask:19 TRESUsageOutTot:15 UID:6 User:9 UserCPU:10 WCKey:10 WCKeyID:10 WorkDir:20
"""


class Field(NamedTuple):
    """A field of squeue: its long name and its letter ("": it has none), and what stands above its column."""

    name: str
    letter: str
    heading: str


SQUEUE = [Field(*cell.split("/", 2)) for cell in _OF_SQUEUE.split()]
BY_NAME = {field.name.lower(): field for field in SQUEUE}
BY_LETTER = {field.letter: field for field in reversed(SQUEUE) if field.letter}
SACCT = {name: int(width) for name, _, width in (cell.partition(":") for cell in _OF_SACCT.split())}


def sacct_name(word: str) -> str | None:
    """The field of sacct that a word means: the first that begins so; None for none."""
    return next((name for name in SACCT if name.lower().startswith(word.lower())), None)


# -- values -----------------------------------------------------------------------------------------------------------


def elapsed_s(row: Row) -> int:
    """Seconds since its start, until its end or now."""
    start_s, end_s = row.start_s, row.end_s
    return int((end_s or time.time()) - start_s) if start_s is not None else 0


def lasting(seconds: float, *, whole: bool = False) -> str:
    """Slurm's `M:SS`, `H:MM:SS`, `D-HH:MM:SS`; with `whole` always with hours (`00:00:05`)."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    if whole:
        return f"{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def limit(row: Row, *, whole: bool = False) -> str:
    seconds = row.job["walltime_s"]
    return lasting(seconds, whole=whole) if seconds else "UNLIMITED"


def moment(at_s: float | None, unknown: str = UNKNOWN) -> str:
    """Local time, as Slurm writes it; in the user's own format where SLURM_TIME_FORMAT has one."""
    if at_s is None:
        return unknown
    own = os.environ.get("SLURM_TIME_FORMAT", "")
    return time.strftime(own if "%" in own else "%Y-%m-%dT%H:%M:%S", time.localtime(at_s))


def start(row: Row, unknown: str = UNKNOWN) -> str:
    """When it began, or is to begin at the latest."""
    known = row.start_s
    if known is None and row.state == "PENDING":
        known = row.job["rigid_start_s"]
    return moment(known, unknown)


def end(row: Row, unknown: str = UNKNOWN) -> str:
    """When it ended, or is expected to have ended."""
    job = row.job
    if row.end_s is None and row.start_s is None:
        return unknown
    return moment(row.end_s if row.end_s is not None else job["expected_completion_s"], unknown)


def nodes(row: Row) -> str:
    """`n[1-2]`; empty while it has none."""
    if not (nodes := row.job["nodes"]):
        return ""
    from ejbd.wire.hostlists import fold  # it takes as long to load as all the rest

    return fold(nodes)


def reason(row: Row) -> str:
    """Why it is where it is; Slurm's words where it says the same."""
    if row.state == "PENDING" and row.job["held"]:
        return "JobHeldUser"
    if row.state in _ENDED:
        return _ENDED[row.state]
    told = row.job["reason"].partition("\n")[0]
    if told.startswith(_DEPENDENCY):
        return _DEPENDENCY
    if row.state == "PENDING" and told in _NO_REASON:
        return row.slurm.get("reason") or "None"  # J0's, which says BeginTime, Priority or Resources
    return told or "None"


def where(row: Row) -> str:
    """Its nodes; the reason of a job that has none now."""
    waits = row.state in LIVING and not row.job["nodes"]
    return f"({reason(row)})" if waits or row.state in _WITH_REASON else nodes(row)


def node_count(row: Row) -> str:
    """That it has or had; what it asks for where it has none yet."""
    return str(len(row.job["nodes"]) or row.asked("numnodes", "nnodes") or 1)


def processors(row: Row) -> str:
    """As many as it asked for, however many it has now."""
    return row.asked("numcpus", "reqcpus") or str(row.job["processes"])


def exit_code(row: Row) -> str:
    """`CODE:SIGNAL` of the job, or of the step that the row is about: Slurm ends with SIGTERM what a user cancels."""
    if row.step is not None:
        code = row.step["code"] or 0
        return f"0:{code - 128}" if code > 128 else f"{code}:0"
    if row.state in _ENDED_BY_OTHERS:
        return "0:0" if row.start_s is None and not row.job["exit_signal"] else "0:15"
    signal = row.job["exit_signal"]
    return f"0:{signal}" if signal else f"{row.job['exit_code'] or 0}:0"


def _accounted(row: Row) -> str:
    """The same as sacct has it: without the signal of an end from outside, and without the shell's mark of a signal."""
    if row.state in _ENDED_BY_OTHERS and not row.step_id:
        return "0:0"
    code, _, signal = exit_code(row).partition(":")
    return f"{int(code) - 128 if int(code) >= 128 else code}:{signal}"


def derived(row: Row) -> str:
    """The highest code of the job's launches."""
    code = max((step["code"] or 0 for step in row.detail.get("steps", ())), default=0)
    return f"0:{code - 128}" if code > 128 else f"{code}:0"


def wait_status(code: str) -> int:
    """`CODE:SIGNAL` as wait(2) has it. Before 23.02 squeue told the latter itself. 0 for what is neither."""
    ended, colon, signal = code.partition(":")
    if not (ended.isdigit() and (signal.isdigit() or not colon)):
        return 0
    return int(ended) << 8 | int(signal) if colon else int(ended)


def _as_squeue_has_it(row: Row) -> str:
    code = exit_code(row)
    return code if ":" in row.slurm.get("exit_code", "") else str(wait_status(code))


def uid(row: Row) -> str:
    try:
        return str(pwd.getpwnam(row.job["user"]).pw_uid)
    except KeyError:
        return str(os.getuid())


def dependency(row: Row) -> str:
    """`afterok:12(unfulfilled)` of a job that waits for others."""
    told = row.job["reason"].partition("\n")[0]
    if row.state != "PENDING" or not told.startswith(f"{_DEPENDENCY}: "):
        return row.slurm.get("dependency", NONE)
    text = re.sub(r"\b[0-9a-f]{8}(?:_[0-9]+)?\b", lambda one: row.number_of(one[0]), told.partition(": ")[2])
    return ",".join(f"{part.strip()}(unfulfilled)" for part in re.split("[, ]+", text) if part)


def _file(row: Row, name: str) -> str:
    path = row.detail.get(name)
    if not path:
        return UNKNOWN
    known = {"j": row.number, "J": row.number, "A": row.array, "a": row.index or "", "x": row.job["name"]}
    known |= {"u": row.job["user"], "%": "%"}
    return re.sub("%([0-9]*)([jJAaxu%])", lambda sign: known[sign[2]].rjust(int(sign[1] or 0), "0"), str(path))


def _left(row: Row) -> str:
    return lasting(row.job["walltime_s"] - elapsed_s(row)) if row.job["walltime_s"] else "UNLIMITED"


def _waited_s(row: Row) -> float:
    until_s = row.start_s if row.start_s is not None else row.end_s
    return max(0.0, (time.time() if until_s is None else until_s) - row.job["submit_s"])


_SQUEUE: Mapping[str, Callable[[Row], str]] = {
    "jobarrayid": lambda row: row.id,
    "jobid": lambda row: row.number,
    "arrayjobid": lambda row: row.array,
    "arraytaskid": lambda row: UNKNOWN if row.index is None else row.index.strip("[]"),
    "comment": lambda row: without_tag(row.slurm.get("comment", NONE)) or NONE,
    "statecompact": lambda row: SHORT.get(row.state, row.state),
    "state": lambda row: row.state,
    "name": lambda row: row.name,
    "username": lambda row: row.job["user"],
    "userid": uid,
    "partition": lambda row: row.job["queue"],
    "numcpus": processors,
    "numtasks": lambda row: str(row.job["processes"]),
    "numnodes": node_count,
    "timeused": lambda row: lasting(elapsed_s(row)),
    "timelimit": limit,
    "timeleft": _left,
    "starttime": start,
    "endtime": end,
    "submittime": lambda row: moment(row.job["submit_s"]),
    "pendingtime": lambda row: str(int(_waited_s(row))),
    "nodelist": nodes,
    "schednodes": lambda row: row.slurm.get("schednodes", NONE),
    "batchhost": lambda row: row.job["nodes"][0] if row.job["nodes"] else "n/a",
    "reason": reason,
    "reasonlist": where,
    "dependency": dependency,
    "exit_code": _as_squeue_has_it,
    "derivedec": lambda row: str(wait_status(derived(row))),
    "workdir": lambda row: _file(row, "cwd"),
    "command": lambda row: " ".join(filter(None, [row.detail.get("script"), *row.detail.get("command", ())])) or NONE,
    "stdout": lambda row: _file(row, "output"),
    "stderr": lambda row: _file(row, "error" if row.detail.get("error") else "output"),
    "stdin": lambda row: "/dev/null",
}
_IDS = frozenset({"jobarrayid", "jobid", "arrayjobid", "jobidraw"})
"""What is EJB's affair of a job that is passed through, too, where it goes by another number."""


_FILES = frozenset({"workdir", "command", "stdout", "stderr", "stdin", "submitline"})
_CODES = frozenset({"exitcode", "exit_code"})
"""What a script that EJB has put into one of its own has other values of: codes where a signal has ended it."""


def _is_slurms(row: Row, name: str) -> bool:
    """Whether Slurm's word counts, of this field of this row."""
    if not row.theirs or name == "comment" or (name in _IDS and not row.same_number):
        return False
    of_shell = name in _CODES and (row.job["exit_signal"] or row.job["state"] == JobState.CANCELLED)
    return not (name in _FILES or of_shell) or row.slurm.get("workdir") == row.detail.get("cwd")


def squeue_value(row: Row, name: str) -> str:
    """What squeue prints of this field (in small letters); UNKNOWN where neither EJB nor Slurm knows it."""
    known, told = _SQUEUE.get(name), row.slurm.get(name)
    if told is not None and (known is None or _is_slurms(row, name)):
        return told
    return UNKNOWN if known is None else known(row)


def _allocated(row: Row) -> str:
    return processors(row) if row.start_s is not None else "0"


def _cpu_s(row: Row) -> int:
    return elapsed_s(row) * int(_allocated(row))


def _forgotten(row: Row) -> bool:
    """Whether a job ran on nodes that are not known any more: it was over before the daemon saw them."""
    return row.start_s is not None and row.state not in LIVING and not row.job["nodes"]


def _ranks(row: Row) -> str:
    return "1" if row.step is None else str(row.step["ranks"])


_SACCT: Mapping[str, Callable[[Row], str]] = {
    "jobid": lambda row: row.id,
    "jobidraw": lambda row: row.raw_id,
    "jobname": lambda row: row.step["name"] if row.step is not None else row.step_id or row.name,
    "partition": lambda row: row.job["queue"],
    "user": lambda row: row.job["user"],
    "uid": uid,
    "alloccpus": _allocated,
    "ncpus": _allocated,
    "reqcpus": processors,
    "ntasks": lambda row: _ranks(row) if row.step_id else "",
    "nnodes": lambda row: "" if _forgotten(row) else node_count(row),
    "reqnodes": lambda row: row.asked("reqnodes") or node_count(row),
    "allocnodes": lambda row: "" if _forgotten(row) else str(len(row.job["nodes"])),
    "nodelist": lambda row: nodes(row) or ("Unknown" if _forgotten(row) else "None assigned"),
    "state": lambda row: row.state if row.step_id else word_recorded(row.job, row.state),
    "reason": lambda row: row.slurm.get("reason") or reason(row),
    "exitcode": _accounted,
    "derivedexitcode": derived,
    "submit": lambda row: moment(row.job["submit_s"]),
    "start": lambda row: moment(row.start_s, "Unknown"),
    "end": lambda row: moment(row.end_s, "Unknown"),
    "eligible": lambda row: row.slurm.get("eligible") or moment(row.job["submit_s"]),
    "elapsed": lambda row: lasting(elapsed_s(row), whole=True),
    "elapsedraw": lambda row: str(elapsed_s(row)),
    "cputime": lambda row: lasting(_cpu_s(row), whole=True),
    "cputimeraw": lambda row: str(_cpu_s(row)),
    "planned": lambda row: lasting(_waited_s(row), whole=True),
    "reserved": lambda row: lasting(_waited_s(row), whole=True),
    "timelimit": lambda row: limit(row, whole=True),
    "timelimitraw": lambda row: str(round(row.job["walltime_s"] / 60)) if row.job["walltime_s"] else "UNLIMITED",
    "comment": lambda row: without_tag(row.slurm.get("comment", "")),
    "workdir": lambda row: str(row.detail.get("cwd") or ""),
    "submitline": lambda row: "",
    "stdout": lambda row: str(row.detail.get("output") or ""),
    "stderr": lambda row: str(row.detail.get("error") or ""),
    "stdin": lambda row: "/dev/null",
}
_OF_JOBS_ALONE = frozenset({
    "partition", "user", "uid", "reqnodes", "reason", "derivedexitcode", "planned", "reserved", "timelimit",
    "timelimitraw", "comment", "workdir", "submitline", "stdout", "stderr", "stdin",
})  # fmt: skip
_USAGE = re.compile("(ave|max|min|tresusage|consumed).*|(total|user|system)cpu|dbindex")


def sacct_value(row: Row, name: str) -> str:
    """What sacct prints of this field; empty where neither EJB nor Slurm knows it."""
    key = name.lower()
    known, told = _SACCT.get(key), row.slurm.get(key)
    if told is not None and _is_slurms(row, key):
        return told
    if key in _OF_JOBS_ALONE and row.step_id:
        return ""
    if known is not None:
        return known(row)
    if told is None or (len(row.job["batch_ids"]) > 1 and _USAGE.fullmatch(key)):
        return ""  # what one of its batch jobs used is not what the job used
    return told
