"""What Slurm writes, and what is read from it. Recorded outputs: Slurm 22.05.8, separator `|qwertz|`, times in UTC; the
columns of squeue's are in the order in which they are asked for by now."""

from __future__ import annotations

import string
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.batch.base import LIMITS, SubmitRequest, WorkerScript
from ejbd.batch.exits import exit_file_outcome
from ejbd.batch.process import CommandResult, plain_environment
from ejbd.batch.slurm import commands, privacy, refusals, states
from ejbd.batch.slurm.checks import check_config
from ejbd.batch.slurm.environments import split_environment
from ejbd.batch.slurm.listing import JobRow, Memory, Squeue, in_order, new_separator
from ejbd.batch.slurm.nodes import ShowNodes
from ejbd.batch.slurm.script import rigid_command, worker_script
from ejbd.batch.slurm.sharing import ShowPartitions, check_sharing
from ejbd.core.room.windows import windows
from ejbd.core.view import BatchState, ClusterView, MemoryRules, Reservations
from ejbd.errors import BatchError, SubmitOutcomeUnknown

RECORDED = Path(__file__).parent / "recorded" / "slurm-22.05"
SEPARATOR = "|qwertz|"
SQUEUE = Squeue(SEPARATOR)
SHOW_NODES = ShowNodes()
SQUEUE_TEXT = (RECORDED / "squeue.txt").read_text()
NODES_TEXT = (RECORDED / "nodes.txt").read_text()
CONFIG_TEXT = (RECORDED / "config.txt").read_text()


def at(clock: str) -> float:
    return datetime.fromisoformat(f"2026-11-21T{clock}+00:00").timestamp()


NOW = at("09:48:33")


def recorded_jobs() -> dict[str, JobRow]:
    rows, unparsed = SQUEUE.parse(SQUEUE_TEXT, NOW)
    assert unparsed == 0
    return {row.view.id: row for row in rows}


def test_recorded_jobs() -> None:
    jobs = {id: row.view for id, row in recorded_jobs().items()}
    assert {id: job.state.value for id, job in jobs.items()} == {
        "13": "cancelled",
        "1": "completed",
        "2": "failed",
        "3": "failed",
        "7_[3-5%2]": "pending",
        "11": "pending",
        "12": "pending",
        "6": "held",
        "4": "running",
        "5": "running",
        "7_1": "running",
        "7_2": "running",
        "8": "running",
    }
    assert [jobs[id].exit_code for id in ("1", "2", "3", "4")] == [0, 7, 137, None]
    four = jobs["4"]
    assert four.name == "evil\n99|RUNNING|root|0|batch"
    assert (four.processors, four.nodes, four.walltime_s) == (10, ("n1", "n2", "n3", "n4"), 600)
    assert (four.submit_s, four.start_s, four.end_s) == (at("09:48:28"), at("09:48:29"), at("09:58:29"))
    assert jobs["5"].name == 'pipe|quote"$(x)' and jobs["5"].walltime_s == 86400 + 7380
    big = jobs["11"]
    assert (big.planned_start_s, big.start_s, big.end_s, big.nodes) == (at("09:58:29"), None, None, ())
    assert big.planned_nodes == ("n1", "n2", "n3", "n4", "n6", "n7") and big.reason == "Resources"
    assert jobs["8"].queue == "whole" and jobs["8"].user == "root"


def test_a_start_that_is_due_is_still_planned_and_a_forgotten_one_is_not() -> None:
    rows, _ = SQUEUE.parse(SQUEUE_TEXT, at("09:58:29"))
    big = next(row.view for row in rows if row.view.id == "11")
    assert (big.planned_start_s, len(big.planned_nodes)) == (at("09:58:29"), 6)
    rows, _ = SQUEUE.parse(SQUEUE_TEXT, at("09:59:30"))
    big = next(row.view for row in rows if row.view.id == "11")
    assert (big.planned_start_s, big.planned_nodes) == (None, ())


def test_around_nodes_that_do_not_answer_nothing_is_planned() -> None:
    rows, _ = SQUEUE.parse(SQUEUE_TEXT.replace("Resources", "ReqNodeNotAvail, UnavailableNodes:n[1-4]"), at("09:58:29"))
    big = next(row.view for row in rows if row.view.id == "11")
    assert (big.planned_start_s, big.planned_nodes) == (None, ())
    assert big.reason == "ReqNodeNotAvail, UnavailableNodes:n[1-4]"


def test_recorded_nodes_and_partitions() -> None:
    listing = SHOW_NODES.parse(NODES_TEXT)
    assert listing.unparsed == 0 and listing.tiers == {"batch": 1, "whole": 1}
    assert {node.name: node.free for node in listing.nodes} == dict(
        zip((f"n{i}" for i in range(1, 9)), (3, 0, 0, 0, 0, 4, 4, 0), strict=True)
    )
    assert [node.name for node in listing.nodes if not node.usable] == ["n8"]
    assert all(node.queues == ("batch", "whole") and node.processors == 4 for node in listing.nodes)
    batch, whole = listing.queues
    assert (batch.name, batch.up, batch.max_walltime_s, batch.default) == ("batch", True, None, True)
    assert batch.default_walltime_s == 600.0
    assert (batch.processor_quantum, whole.processor_quantum) == (1, 4)
    assert batch.total_processors == whole.total_processors == 32


def test_what_nodes_have_beside_processors() -> None:
    changed = {
        "AllocMem=0": "AllocMem=400",
        "ActiveFeatures=(null)": "ActiveFeatures=ib,fast",
        "Gres=(null) GresDrain=N/A": "Gres=gpu:a100:2(S:0-1),gpu:k80:2,x:1 GresUsed=gpu:a100:1(IDX:0),x:0",
    }
    text = NODES_TEXT
    for old, new in changed.items():
        text = text.replace(old, new, 1)
    node = SHOW_NODES.parse(text).nodes[0]
    assert (node.memory_mb, node.free_memory_mb, node.features) == (1000, 600, ("ib", "fast"))
    assert node.gres == (("gpu", 4, 3), ("x", 1, 1))
    plain = SHOW_NODES.parse(NODES_TEXT).nodes[0]
    assert (plain.memory_mb, plain.free_memory_mb, plain.features, plain.gres) == (1000, 1000, (), ())


def test_processors_that_the_site_keeps_for_itself_are_not_idle() -> None:
    node = SHOW_NODES.parse(NODES_TEXT.replace("CPUAlloc=1 CPUEfctv=4", "CPUAlloc=1 CPUEfctv=3", 1)).nodes[0]
    assert (node.processors, node.free) == (3, 2)


def test_what_people_write_about_a_node_changes_nothing() -> None:
    """n8's reason is recorded as `a b|c State=IDLE CPUTot=64 NodeName=n9`; a comment keeps its line breaks."""
    noted = NODES_TEXT.replace(
        "ExtSensorsTemp=n/s\nNodeName=n8",
        "ExtSensorsTemp=n/s Comment=hi | a=b\nPartitions=x\n\nat 5 Extra=x\nNodeName=n8",
    )
    assert noted != NODES_TEXT
    listing = SHOW_NODES.parse(noted)
    assert listing == SHOW_NODES.parse(NODES_TEXT)
    assert [(node.name, node.processors, node.state) for node in listing.nodes][-1] == ("n8", 4, "idle+drain")


def test_an_scontrol_without_a_line_editor_writes_its_prompt_before_the_answer() -> None:
    bare = NODES_TEXT.replace("scontrol: show nodes\n", "scontrol: ").replace(
        "scontrol: show partitions\n", "scontrol: "
    )
    assert SHOW_NODES.parse(bare) == SHOW_NODES.parse(NODES_TEXT)


def test_a_partition_that_is_down_takes_nothing() -> None:
    down = NODES_TEXT.replace("PreemptMode=OFF State=UP", "PreemptMode=OFF State=DRAIN", 1)
    assert [queue.up for queue in SHOW_NODES.parse(down).queues] == [False, True]


def test_partitions_that_are_not_asked_for_again_are_as_they_were() -> None:
    whole = SHOW_NODES.parse(NODES_TEXT)
    nodes = NODES_TEXT[: NODES_TEXT.index("scontrol: show partitions")]
    again = replace(SHOW_NODES, partitions=whole.partitions)
    assert (SHOW_NODES.stdin, again.stdin) == ("show nodes\nshow partitions\n", "show nodes\n")
    assert again.parse(nodes) == whole
    assert again.parse(nodes.replace("Partitions=batch", "Partitions=batch,new", 1)).untold == ("new",)


def test_a_partition_that_is_not_told_is_counted() -> None:
    listing = SHOW_NODES.parse(NODES_TEXT[: NODES_TEXT.index("PartitionName=whole")])
    assert [queue.name for queue in listing.queues] == ["batch"] and listing.unparsed == 1


def test_what_the_site_says_of_memory() -> None:
    told = "SelectTypeParameters = CR_CORE_MEMORY\nDefMemPerCPU = 100\nDefMemPerNode = UNLIMITED\nMaxMemPerCPU = 0\n"
    assert commands.memory_rules(commands.ShowConfig().parse(told)) == MemoryRules(True, 100, None, None)
    assert commands.memory_rules({}) == MemoryRules()


@pytest.mark.parametrize(
    ("line", "seconds"), [("KillWait                = 30 sec", 30.0), ("KillWait = (null)", 2.0), ("Other = 1", 2.0)]
)
def test_how_long_a_job_has_between_term_and_kill(line: str, seconds: float) -> None:
    assert commands.kill_wait_s(commands.ShowConfig().parse(line)) == seconds


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("bf_window=60,bf_interval=5", 5.0), ("(null)", 30.0), ("bf_interval=often", 30.0), ("", 30.0)],
)
def test_how_often_backfilling_looks(said: str, seconds: float) -> None:
    assert commands.pass_s(commands.ShowConfig().parse(f"SchedulerParameters     = {said}")) == seconds


@pytest.mark.parametrize(
    ("line", "kills"),
    [
        ("DependencyParameters = kill_invalid_depend,max_depend_depth=5", True),
        ("SchedulerParameters = bf_interval=30,kill_invalid_depend", True),
        ("DependencyParameters = (null)", False),
    ],
)
def test_whether_the_site_ends_what_waits_for_ever(line: str, kills: bool) -> None:
    assert commands.kills_unmet(commands.ShowConfig().parse(line)) is kills


@pytest.mark.parametrize(
    ("text", "limits", "nice", "warns"),
    [
        ("", list(LIMITS), False, False),
        ("PropagateResourceLimits = ALL\nPropagateResourceLimitsExcept = (null)", list(LIMITS), False, False),
        ("PropagateResourceLimits = NONE\nPropagatePrioProcess = 0", [], False, False),
        ("PropagateResourceLimits = STACK,CORE\nPropagatePrioProcess = 1", ["stack", "core"], True, False),
        ("PropagateResourceLimitsExcept = MEMLOCK", [one for one in LIMITS if one != "memlock"], False, False),
        ("PropagatePrioProcess = 2\nPreemptType = preempt/none", list(LIMITS), True, False),
        ("PreemptType = preempt/partition_prio", list(LIMITS), False, True),
    ],
)
def test_workers_are_told_what_the_sites_srun_hands_on(text: str, limits: list[str], nice: bool, warns: bool) -> None:
    config = commands.ShowConfig().parse(text)
    found = commands.propagated_limits(config)
    assert found == limits
    assert (commands.is_nice_propagated(config), commands.has_preemption(config)) == (nice, warns)
    folder = Path("/spool")
    request = WorkerScript("python3", folder / "worker.pyz", folder, folder / "exit")
    script = worker_script(request, 30, found, nice=nice, warns=warns, srun="/opt/slurm/bin/srun")
    assert "\nsrun=/opt/slurm/bin/srun\n" in script and 'exec "$srun" --quiet' in script
    assert f" --propagate {','.join(limits) or 'none'}{' --propagate-nice yes' if nice else ''}" in script
    assert (" --warns yes" in script) is warns


def test_a_script_that_is_started_with_sigchld_blocked_sees_its_workers_end(tmp_path: Path) -> None:
    """As slurmstepd of 25.05 starts some: a shell that waits for its children would never wake up."""
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\nsleep 0.2\nexit 3\n")
    srun.chmod(0o755)
    request = WorkerScript(sys.executable, tmp_path / "worker.pyz", tmp_path, tmp_path / "exit")
    (tmp_path / "script").write_text(worker_script(request, 30, srun=str(srun)))
    blocked = "import os, signal; signal.pthread_sigmask(signal.SIG_BLOCK, [17]); os.execv('/bin/sh', ['sh', 'script'])"
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_NUM_NODES": "1"}
    done = subprocess.run([sys.executable, "-c", blocked], cwd=tmp_path, env=environment, timeout=60, check=False)
    assert done.returncode == 3 and (tmp_path / "exit").read_text() == "3\n"


def test_windows_from_the_recording() -> None:
    listing = SHOW_NODES.parse(NODES_TEXT)
    jobs = in_order(list(recorded_jobs().values()), listing.tiers)
    view = ClusterView(NOW, listing.nodes, jobs, listing.queues, Reservations.NODES, 60)
    # All idle processors are planned for job 11 in 9 min 56 s.
    assert windows(view, "batch", NOW).available(540) == 11
    assert windows(view, "batch", NOW).available(600) == 0
    assert windows(view, "whole", NOW).available(540) == 8


@pytest.mark.parametrize("told", ["OverSubscribe=EXCLUSIVE", "Exclusive=NODE OverSubscribe=NO", "Exclusive=TOPO"])
def test_a_partition_that_gives_out_whole_nodes(told: str) -> None:
    """Since 26.05 in a word of its own."""
    text = NODES_TEXT.replace("OverSubscribe=NO", told).replace("OverSubscribe=EXCLUSIVE", told)
    queues = SHOW_NODES.parse(text).queues
    assert {queue.processor_quantum for queue in queues} == {4}


def test_select_linear_gives_out_whole_nodes_everywhere() -> None:
    listing = replace(SHOW_NODES, whole_nodes=True).parse(NODES_TEXT)
    assert {queue.processor_quantum for queue in listing.queues} == {4}


def test_pending_jobs_are_in_slurms_order() -> None:
    rows = list(recorded_jobs().values())
    pending = [job.id for job in in_order(rows, {}) if job.state is BatchState.PENDING]
    assert pending == ["7_[3-5%2]", "11", "12"]
    urgent = [replace(row, priority=2**32 - 1) if row.view.id == "12" else row for row in rows]
    assert next(job.id for job in in_order(urgent, {}) if job.state is BatchState.PENDING) == "12"
    tiered = [replace(row, view=replace(row.view, queue="fast")) if row.view.id == "12" else row for row in rows]
    assert next(job.id for job in in_order(tiered, {"batch": 1, "fast": 9}) if not job.state.ended) == "12"


def listed(name: str, reason: str = "None", id: str = "42") -> str:
    plain = SQUEUE_TEXT.partition(SEPARATOR)[0].partition("|")[2]
    return SEPARATOR.join((f"{id}|{plain}", reason, name, "(null)")) + SQUEUE.row_end + "\n"


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_free_text_neither_loses_nor_forges_a_row(texts: list[tuple[str, str]]) -> None:
    rows, unparsed = SQUEUE.parse("".join(listed(*text) for text in texts), NOW)
    assert unparsed == 0
    assert [row.view.name for row in rows] == [name for name, _ in texts]


@given(st.integers(min_value=0, max_value=len(SQUEUE_TEXT)))
def test_a_torn_listing_loses_no_row_in_silence(length: int) -> None:
    text = SQUEUE_TEXT[:length]
    rows, unparsed = SQUEUE.parse(text, NOW)
    whole = list(recorded_jobs())
    assert [row.view.id for row in rows] == whole[: len(rows)]
    assert unparsed == (0 if text == "" or text.rstrip("\n").endswith(SQUEUE.row_end) else 1)


def test_what_a_row_meant_is_remembered_as_long_as_it_means_the_same() -> None:
    known: Memory = {}
    first, _ = SQUEUE.parse(SQUEUE_TEXT, NOW, known)
    other = Squeue("|bcdfg|")  # as the next poll's
    text = SQUEUE_TEXT.replace(SQUEUE.row_end, other.row_end).replace(SEPARATOR, other.separator)
    second, unparsed = other.parse(text.replace("|RUNNING|0|batch|10|", "|RUNNING|0|batch|11|"), NOW + 1, known)
    assert unparsed == 0 and len(second) == len(first) == len(known)
    changed = [new.view.id for old, new in zip(first, second, strict=True) if new is not old]
    assert changed == ["4"], "what is told as before is the very same, and nothing else is"
    # Job 11 is planned for 09:58:29: a minute later that is a start that was forgotten, in the same words.
    for clock, planned in (("09:59:28", at("09:58:29")), ("09:59:30", None)):
        rows, _ = SQUEUE.parse(SQUEUE_TEXT, at(clock), known)
        assert next(row.view for row in rows if row.view.id == "11").planned_start_s == planned
    gone, _ = SQUEUE.parse("", NOW, known)
    assert gone == [] and not known


def test_squeue_is_not_asked_to_look_up_names() -> None:
    """A name a row costs it more than all else of the row: the numbers are known here."""
    assert "UserName" not in " ".join(SQUEUE.argv())
    assert {row.view.user for row in recorded_jobs().values()} == {"root"}


@given(st.integers(min_value=0, max_value=len(NODES_TEXT)))
def test_a_torn_node_listing_is_never_taken_for_a_whole_one(length: int) -> None:
    whole, listing = SHOW_NODES.parse(NODES_TEXT), SHOW_NODES.parse(NODES_TEXT[:length])
    # A view is made only where there are queues. What is read of a partition stands first in its line.
    assert not listing.queues or listing.unparsed or listing == replace(whole, partitions=listing.partitions)


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from(string.digits + "|\nn[],-:/*"))))
def test_garbage_is_counted(text: str) -> None:
    for junk in (text, text + SEPARATOR, SQUEUE_TEXT.replace("RUNNING", text), SQUEUE_TEXT + text):
        rows, unparsed = SQUEUE.parse(junk, NOW)
        assert rows or unparsed or not junk.strip("\n")
    for junk in (text, f"NodeName={text}", NODES_TEXT.replace("MIXED", text)):
        SHOW_NODES.parse(junk)
    commands.Sacct(["1"], SEPARATOR).parse(text)
    commands.ShowConfig().parse(text)


def test_a_row_with_an_impossible_field_is_counted_and_the_others_are_kept() -> None:
    rows, unparsed = SQUEUE.parse(SQUEUE_TEXT.replace("1-02:03:00", "tomorrow"), NOW)
    assert unparsed == 1 and "5" not in {row.view.id for row in rows} and len(rows) == 12


def test_separators_are_new_each_time_and_safe_in_a_format() -> None:
    several = {new_separator() for _ in range(50)}
    assert len(several) == 50
    assert all(not set(one) & set(string.digits + ".,:%") for one in several)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("RUNNING", BatchState.RUNNING),
        ("CANCELLED by 1003", BatchState.CANCELLED),
        ("CANCELLED+", BatchState.CANCELLED),
        ("COMPLETING", BatchState.ENDING),
        ("CONFIGURING", BatchState.RUNNING),
        ("OUT_OF_MEMORY", BatchState.FAILED),
        ("BOOT_FAIL", BatchState.NODE_FAIL),
        ("SOMETHING_NEW", BatchState.UNKNOWN),
        ("", BatchState.UNKNOWN),
    ],
)
def test_job_states(word: str, state: BatchState) -> None:
    assert states.job_state(word) is state
    assert not BatchState.UNKNOWN.ended


USABLE = """IDLE MIXED ALLOCATED IDLE+PLANNED MIXED+CLOUD+PLANNED IDLE+COMPLETING MIXED+RESERVED IDLE+DYNAMIC_NORM"""
UNUSABLE = """
    IDLE* IDLE+CLOUD+POWERED_DOWN MIXED+POWERING_UP IDLE+DRAIN ALLOCATED+DRAIN DOWN DOWN*+DRAIN IDLE+RESERVED FUTURE
    IDLE+MAINTENANCE+RESERVED MIXED+MAINTENANCE ALLOCATED+REBOOT_REQUESTED IDLE+NOT_RESPONDING IDLE+FAIL UNKNOWN
    NEW IDLE+NEW
"""


@pytest.mark.parametrize("word", USABLE.split())
def test_usable_node_states(word: str) -> None:
    assert states.node_usable(word)


@pytest.mark.parametrize("word", ["", *UNUSABLE.split()])
def test_unusable_node_states(word: str) -> None:
    assert not states.node_usable(word)


@pytest.mark.parametrize(
    ("text", "code", "signal"),
    [("0", 0, None), ("1792", 7, None), ("9", 137, 9), ("35072", 137, None), ("7:0", 7, None), ("0:9", 137, 9),
     ("139", 139, 11), ("137:0", 137, None)],
)  # fmt: skip
def test_exit_codes(text: str, code: int, signal: int | None) -> None:
    assert states.exit_of(text) == (code, signal)


@pytest.mark.parametrize("text", ["", "x", "-1", "7:", "70000"])
def test_what_is_no_exit_code(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        states.exit_of(text)


def test_times_and_hosts() -> None:
    assert states.epoch_s("1970-01-02T00:00:00") == 86400
    assert states.epoch_s("N/A") is states.epoch_s("Unknown") is None
    assert sorted(states.hosts("n[1-3,07],login")) == ["login", "n07", "n1", "n2", "n3"]
    assert states.hosts("(null)") == ()
    with pytest.raises(ValueError, match="host list"):
        states.hosts("n[1-")
    assert [states.count(text) for text in ("12", "4K", "12-24")] == [12, 4096, 12]


def test_sacct() -> None:
    rows = (
        ("7", "COMPLETED", "0:0", "2026-11-21T09:48:29", "2026-11-21T09:40:00", "mine | own ejb-1.0"),
        ("7", "FAILED", "1:0", "2026-11-21T09:59:00", "2026-11-21T09:50:00", ""),  # the number was given again
        ("8", "CANCELLED by 0", "0:15", "2026-11-21T09:48:29", "2026-11-21T09:40:00", "two\nlines ejb-2.0"),
        ("9", "RUNNING", "0:0", "Unknown", "2026-11-21T09:40:00", ""),
    )
    text = "".join("|sep|".join(row) + "\n" for row in rows)
    found, unparsed = commands.Sacct(["7", "8", "9"], "|sep|").parse(text)
    assert unparsed == 1, "the second line of a comment"
    assert [(one.id, one.tag, one.submit_s) for one in found] == [
        ("7", "ejb-1.0", at("09:40:00")),
        ("7", "", at("09:50:00")),
        ("8", "", at("09:40:00")),
        ("9", "", at("09:40:00")),
    ]
    ends = [one.end for one in found if one.end is not None]
    assert [(end.state, end.exit_code, end.end_s, end.source) for end in ends] == [
        (BatchState.COMPLETED, 0, at("09:48:29"), "accounting"),
        (BatchState.FAILED, 1, at("09:59:00"), "accounting"),
        (BatchState.CANCELLED, 143, at("09:48:29"), "accounting"),
    ]


def test_what_anybodys_jobs_wait_for() -> None:
    waiting = commands.Dependencies("|sep|")
    assert waiting.argv()[-1] == "--Format=Dependency:|sep|"
    text = (
        "(null)|sep|\nafterok:12(unfulfilled)|sep|\nafterany:13_*(unfulfilled)?afternotok:14_2(unfulfilled)|sep|\n"
        "after:15+5(unfulfilled),afterok:16:17(unfulfilled)|sep|\nsingleton(unfulfilled)|sep|\n"
    )
    assert waiting.parse(text) == {"12", "13", "14", "15", "16", "17"}
    assert waiting.parse("") == set()


REQUEST = SubmitRequest(
    tag="ejb-1",
    comment="full id",
    queue="batch",
    processors=16,
    walltime_s=90,
    script="#!/bin/sh\n",
    workdir=Path("/home/u/a b"),
    output=Path("/home/u/out"),
)


def test_sbatch_arguments() -> None:
    request = replace(
        REQUEST, nodes=4, tasks_per_node=4, error=Path("/home/u/err"), options=("-A", "proj", "--qos=x"), hold=True
    )
    argv = commands.Sbatch(request).argv()
    assert argv[:4] == ["sbatch", "-A", "proj", "--qos=x"]
    assert {
        "--parsable",
        "--no-requeue",
        "--export=ALL",
        "--time=00:02:00",
        "--ntasks=16",
        "--nodes=4",
        "--hold",
    } <= set(argv)
    assert {"--chdir=/home/u/a b", "--error=/home/u/err", "--ntasks-per-node=4", "--partition=batch"} <= set(argv)
    assert all(word.startswith("-") for word in argv[1:] if word != "proj")
    assert not any(word.startswith("--partition") for word in commands.Sbatch(replace(REQUEST, queue="")).argv())


def test_a_job_has_its_users_name_and_the_tag_in_its_comment() -> None:
    assert "--job-name=ejb-1" in commands.Sbatch(REQUEST).argv(), "what has no name goes by its tag"
    argv = commands.Sbatch(replace(REQUEST, name="-wave 1, %x")).argv()
    assert {"--job-name=-wave 1, %x", "--comment=full id ejb-1"} <= set(argv)


@pytest.mark.parametrize(
    "options",
    [
        *(("--wrap=x",), ("--wra", "x"), ("--array=1-3",), ("-a1-3",), ("--wait",), ("-W",), ("-M", "c"), ("job.sh",)),
        *(("-A", "x", "job.sh"), ("--qos=x", "job.sh"), ("--",), ("--test-only",), ("-",)),
    ],
)
def test_options_that_would_submit_something_else_are_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(BatchError) as caught:
        commands.Sbatch(replace(REQUEST, options=options)).argv()
    assert not caught.value.transient


@pytest.mark.parametrize("change", [{"tag": "a\0b"}, {"tag": ""}, {"name": "\0"}, {"script": "\0"}, {"comment": "\0"}])
def test_texts_that_no_command_can_carry_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(BatchError):
        commands.Sbatch(replace(REQUEST, **change)).argv()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "id"), [("17\n", "17"), ("17;lab\n", "17"), ("", None), ("Submitted batch job 17", None), ("-5", None)]
)
def test_the_id_of_a_submission(text: str, id: str | None) -> None:
    assert commands.Sbatch(REQUEST).parse(text) == id


@pytest.mark.parametrize("id", ["", "-u root", "1,2", "--all", "1 2", "n1", "١"])
def test_what_is_no_job_id_reaches_no_command(id: str) -> None:
    for make in (commands.Scancel([id]), commands.Hold(id, True), commands.Shorten(id, 60)):
        with pytest.raises(BatchError):
            make.argv()


def failed(stderr: str, code: int = 1, name: str = "sbatch") -> CommandResult:
    return CommandResult(name, code, "", stderr, 0.1)


@pytest.mark.parametrize(
    ("stderr", "transient", "meaning"),
    [
        ("Unable to contact slurm controller (connect failure)", True, "controller does not answer"),
        ("Slurm temporarily unable to accept job", True, "no more jobs for now"),
        ("Invalid account or account/partition combination specified", False, "account is not allowed"),
        ("Requested node configuration is not available", False, "does not have that many"),
        ("Invalid partition name specified", False, "no such partition"),
        ("Requested time limit is invalid (missing or exceeds some limit)", False, "walltime is longer"),
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", False, "limit"),
        ("something nobody has seen", False, "something nobody has seen"),
    ],
)
def test_refusals(stderr: str, transient: bool, meaning: str) -> None:
    line = f"sbatch: error: Batch job submission failed: {stderr}\n"
    error = refusals.submit_refusal(failed(line))
    assert not isinstance(error, SubmitOutcomeUnknown)
    assert error.transient is transient
    assert meaning in error.message and stderr in error.message and error.stderr == line.strip()


@pytest.mark.parametrize(
    ("stderr", "told"),
    [
        # As sbatch of Slurm 22.05 says what a job_submit plugin told by log_user, with --test-only and without.
        (
            "sbatch: error: Please name your project with -A.\nsbatch: error: See https://site.example/projects\n"
            "allocation failure: Unspecified error\n",
            "Slurm did not take the job: Please name your project with -A.; See https://site.example/projects",
        ),
        (
            "sbatch: error: first line\nsbatch: error: second line\n"
            "sbatch: error: Batch job submission failed: Unspecified error\n",
            "Slurm did not take the job: first line; second line",
        ),
        (
            "sbatch: error: Give a time limit.\n"
            "allocation failure: Requested time limit is invalid (missing or exceeds some limit)\n",
            "Slurm did not take the job: the walltime is longer than the partition allows (Give a time limit.; "
            "Requested time limit is invalid (missing or exceeds some limit))",
        ),
        ("allocation failure: Unspecified error\n", "Slurm did not take the job: Unspecified error"),
    ],
)
def test_what_the_site_says_of_a_job_is_told_and_not_slurms_last_word_alone(stderr: str, told: str) -> None:
    assert refusals.refusal(failed(stderr), "take the job").message == told


@pytest.mark.parametrize(
    "result",
    [
        failed("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"),
        failed("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n"),
        failed("", code=-9),
    ],
)
def test_a_lost_answer_is_no_refusal(result: CommandResult) -> None:
    assert isinstance(refusals.submit_refusal(result), SubmitOutcomeUnknown)


POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("lines", "transient", "own_fault"),
    [
        # As Slurm 22.05 says it where a user's MaxSubmitJobs is reached: the limit's name, and the same for all limits.
        (["AssocMaxSubmitJobLimit", f"Batch job submission failed: {POLICY}"], True, False),
        (["QOSMaxSubmitJobPerUserLimit", f"Batch job submission failed: {POLICY}"], True, False),
        (["AssocGrpSubmitJobsLimit", f"Batch job submission failed: {POLICY}"], True, False),
        (["MaxSubmitJobsPerAccount", f"Batch job submission failed: {POLICY}"], True, False),
        (["AssocMaxWallDurationPerJobLimit", f"Batch job submission failed: {POLICY}"], False, True),
        (["Batch job submission failed: Required partition not available (inactive or drain)"], True, False),
        (["Batch job submission failed: Reservation is not usable"], True, True),
        (["Batch job submission failed: Invalid qos specification"], False, True),
    ],
)
def test_whose_fault_a_refusal_is(lines: list[str], transient: bool, own_fault: bool) -> None:
    error = refusals.submit_refusal(failed("".join(f"sbatch: error: {line}\n" for line in lines)))
    assert (error.transient, error.own_fault) == (transient, own_fault)


def test_cancelling_what_has_ended_is_fine() -> None:
    benign = "scancel: error: Kill job error on job id 9: Invalid job id specified\n"
    assert refusals.cancel_refusal(failed(benign, name="scancel")) is None
    denied = benign + "scancel: error: Kill job error on job id 8: Access/permission denied\n"
    problem = refusals.cancel_refusal(failed(denied, name="scancel"))
    assert problem is not None and not problem.transient and "denied" in problem.message
    assert refusals.cancel_refusal(failed("", name="scancel")) is not None


def test_what_a_signal_has_ended_is_tried_again() -> None:
    """The kernel, or an operator, ended the command; it says nothing of the job."""
    problem = refusals.cancel_refusal(failed("", code=-9, name="scancel"))
    assert problem is not None and problem.transient
    said = refusals.cancel_refusal(failed("", name="scancel"))
    assert said is not None and not said.transient


def test_site_settings() -> None:
    config = commands.ShowConfig().parse(CONFIG_TEXT)
    assert commands.scheduler_parameters(config)["bf_interval"] == "1"
    assert all(good for _, good, _ in check_config(config, whole_nodes=False))
    poor = config | {"SchedulerType": "sched/builtin", "SelectType": "select/linear", "PrivateData": "jobs,usage"}
    assert [what for what, good, _ in check_config(poor, whole_nodes=False) if not good] == [
        *("backfill", "allocation unit")
    ]
    assert "allocation unit" not in [what for what, good, _ in check_config(poor, whole_nodes=True) if not good]


@pytest.mark.parametrize(
    ("hides", "user", "level", "blind"),
    [
        ("none", "ada", "", False),
        ("(null)", "ada", "", False),
        ("cloud,usage,nodes", "ada", "", False),
        ("jobs,usage", "ada", "", True),
        ("jobs", "ada", "None", True),
        ("jobs", "ada", "Operator", False),
        ("jobs", "ada", "Administrator", False),
        ("jobs", "slurm", "", False),
    ],
)
def test_who_sees_the_jobs_of_others(hides: str, user: str, level: str, blind: bool) -> None:
    config = {"PrivateData": hides, "SlurmUser": "slurm(64030)", "AccountingStorageType": "accounting_storage/slurmdbd"}
    said = privacy.blindness(config, user, 1000, level)
    assert bool(said) is blind and (not blind or "adminlevel=operator" in said)
    assert privacy.blindness(config, "root", 0, "") == ""
    assert "adminlevel" not in privacy.blindness(config | {"AccountingStorageType": "none"}, user, 1000, level)


def test_the_level_of_a_user() -> None:
    assert privacy.ShowLevel("ada").parse("Operator\n") == "Operator"
    assert privacy.ShowLevel("ada").parse("") == "", "a user of whom the accounts know nothing"


@pytest.mark.parametrize(
    ("kind", "weight", "told"),
    [
        ("priority/multifactor", "1000", True),
        ("priority/multifactor", "0", False),
        ("priority/basic", "1000", False),
        ("priority/multifactor", "(null)", False),
    ],
)
def test_that_a_time_out_costs_the_age_is_told_where_age_counts(kind: str, weight: str, told: bool) -> None:
    config = commands.ShowConfig().parse(CONFIG_TEXT) | {"PriorityType": kind, "PriorityWeightAge": weight}
    found = [text for what, good, text in check_config(config, whole_nodes=False) if what == "age after a time-out"]
    assert len(found) == told and all("ACCRUE_ALWAYS" in text and weight in text for text in found)
    assert all("gains no age before the time-out" in text for text in found)
    config["PriorityFlags"] = "ACCRUE_ALWAYS,SMALL_RELATIVE_TO_TIME"
    found = [text for what, good, text in check_config(config, whole_nodes=False) if what == "age after a time-out"]
    assert all("from the beginning of the run before it on" in text for text in found)


def test_exit_files(tmp_path: Path) -> None:
    file = tmp_path / "exit"
    assert exit_file_outcome(file) is None
    for text in ("", "x", "-1", "256", "0 0", "٣", "9" * 5000):
        file.write_text(text)
        assert exit_file_outcome(file) is None
    file.write_text("143\n")
    outcome = exit_file_outcome(file)
    assert outcome is not None and (outcome.state, outcome.exit_code) == (BatchState.FAILED, 143)
    assert outcome.end_s is not None and abs(outcome.end_s - datetime.now(UTC).timestamp()) < 60


def test_of_an_environment_that_sbatch_reads_from_no_file_what_would_steer_it_is_named() -> None:
    users = {"PATH": "/his", "LD_PRELOAD": "a b", "SBATCH_HINT": "x,y", "SLURM_CONF": "/his", "TZ": "UTC", "Q": "it's"}
    users |= {"LD_LIBRARY_PATH": "/lib", "SLURM_NTASKS": "9"}  # as in most environments, and within a job
    started_in, words = split_environment(users, {"SLURM_CONF": "/site"})
    plain = {name: users[name] for name in ("PATH", "TZ", "Q", "LD_LIBRARY_PATH", "SLURM_NTASKS")}
    assert started_in == {"SLURM_CONF": "/site", **plain}
    assert words == ["LD_PRELOAD=a b", "'SBATCH_HINT=x,y'", "SLURM_CONF=/his"]
    assert split_environment({"SLURM_CONF": "/site"}, {"SLURM_CONF": "/site"})[1] == []
    with pytest.raises(BatchError, match="LD_X"):
        split_environment({"LD_X": "it's"}, {})


def test_an_ordinary_command_is_quoted() -> None:
    processors = '${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"}'
    find, command = rigid_command(["./a b", "$x", "-n"], 16, "/opt/slurm 2/srun").rsplit("\n", 1)
    assert find == "srun='/opt/slurm 2/srun'\n[ -x \"$srun\" ] || srun=srun"
    assert command == f"\"$srun\" {processors} -- './a b' '$x' -n"
    with pytest.raises(ValueError, match="no command"):
        rigid_command([], 1)


def test_nothing_steers_the_commands() -> None:
    before = {
        "SBATCH_PARTITION": "x",
        "SQUEUE_FORMAT": "x",
        "SLURM_TIME_FORMAT": "relative",
        "LC_ALL": "de",
        "TZ": "Asia/Tokyo",
    }
    before |= {"SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin", "HOME": "/home/u"}
    assert plain_environment(before) == {
        "SLURM_CONF": "/etc/slurm.conf",
        "PATH": "/bin",
        "HOME": "/home/u",
        "LC_ALL": "C",
        "TZ": "UTC0",
    }


RECORDED_PARTITIONS = (Path(__file__).parent / "recorded" / "slurm-22.05" / "nodes.txt").read_text()


@pytest.mark.parametrize(
    ("word", "jobs", "said"),
    [
        ("NO", 1, "no partition has OverSubscribe=YES:2"),
        ("EXCLUSIVE", 1, "no partition has"),
        ("YES:2", 2, "same processors in batch (OverSubscribe=YES:2); with YES only those that ask for it"),
        ("FORCE:2", 2, "same processors in batch (OverSubscribe=FORCE:2)"),
        ("YES", 4, "more than two may where it is not :2"),
    ],
)
def test_doctor_says_where_two_jobs_may_share_processors(word: str, jobs: int, said: str) -> None:
    text = RECORDED_PARTITIONS.replace("OverSubscribe=NO", f"OverSubscribe={word}")
    found = ShowPartitions().parse(text)
    assert [(one.partition, one.jobs) for one in found] == [("batch", jobs), ("whole", 1)]
    what, good, told = check_sharing(found)
    assert (what, good) == ("shared processors", True) and said in told


@pytest.mark.parametrize(
    ("user", "uid", "level", "may"),
    [("root", 0, "", True), ("slurm", 64030, "", True), ("ejb", 1000, "Operator", True), ("ejb", 1000, "None", False)],
)
def test_who_may_raise_limits(user: str, uid: int, level: str, may: bool) -> None:
    assert privacy.raises({"SlurmUser": "slurm(64030)"}, user, uid, level) is may
