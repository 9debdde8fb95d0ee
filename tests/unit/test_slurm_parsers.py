"""What Slurm writes, and what is read from it. Recorded outputs: Slurm 22.05.8, separator `|qwertz|`, times in UTC."""

from __future__ import annotations

import string
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.batch.base import SubmitRequest
from ejbd.batch.exits import exit_file_outcome
from ejbd.batch.process import CommandResult, plain_environment
from ejbd.batch.slurm import commands, refusals, states
from ejbd.batch.slurm.checks import check_config
from ejbd.batch.slurm.listing import JobRow, Sinfo, Squeue, in_order, new_separator
from ejbd.batch.slurm.script import rigid_command
from ejbd.core.room.windows import windows
from ejbd.core.view import BatchState, ClusterView, MemoryRules, Reservations
from ejbd.errors import BatchError, SubmitOutcomeUnknown

RECORDED = Path(__file__).parent / "recorded" / "slurm-22.05"
SEPARATOR = "|qwertz|"
SQUEUE = Squeue(SEPARATOR)
SINFO = Sinfo(SEPARATOR)
SQUEUE_TEXT = (RECORDED / "squeue.txt").read_text()
SINFO_TEXT = (RECORDED / "sinfo.txt").read_text()
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
    listing = SINFO.parse(SINFO_TEXT)
    assert listing.unparsed == 0 and listing.tiers == {"batch": 1, "whole": 1}
    assert {node.name: node.free for node in listing.nodes} == dict(
        zip((f"n{i}" for i in range(1, 9)), (3, 0, 0, 0, 0, 4, 4, 0), strict=True)
    )
    assert [node.name for node in listing.nodes if not node.usable] == ["n8"]
    assert all(node.queues == ("batch", "whole") and node.processors == 4 for node in listing.nodes)
    batch, whole = listing.queues
    assert (batch.name, batch.up, batch.max_walltime_s, batch.default) == ("batch", True, None, True)
    assert (batch.processor_quantum, whole.processor_quantum) == (1, 4)
    assert batch.total_processors == whole.total_processors == 32


def test_what_nodes_have_beside_processors() -> None:
    text = SINFO_TEXT.split("\n")[0].replace("1000|qwertz|0|", "1000|qwertz|400|")
    row = text.replace(
        "(null)|qwertz|(null)|qwertz|(null)|",
        "ib,fast|qwertz|gpu:a100:2(S:0-1),gpu:k80:2,x:1|qwertz|gpu:a100:1(IDX:0),x:0|",
    )
    node = SINFO.parse(row).nodes[0]
    assert (node.memory_mb, node.free_memory_mb, node.features) == (1000, 600, ("ib", "fast"))
    assert node.gres == (("gpu", 4, 3), ("x", 1, 1))
    plain = SINFO.parse(SINFO_TEXT).nodes[0]
    assert (plain.memory_mb, plain.free_memory_mb, plain.features, plain.gres) == (1000, 1000, (), ())


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


def test_windows_from_the_recording() -> None:
    listing = SINFO.parse(SINFO_TEXT)
    jobs = in_order(list(recorded_jobs().values()), listing.tiers)
    view = ClusterView(NOW, listing.nodes, jobs, listing.queues, Reservations.NODES, 60)
    # All idle processors are planned for job 11 in 9 min 56 s.
    assert windows(view, "batch", NOW).available(540) == 11
    assert windows(view, "batch", NOW).available(600) == 0
    assert windows(view, "whole", NOW).available(540) == 8


def test_select_linear_gives_out_whole_nodes_everywhere() -> None:
    listing = replace(SINFO, whole_nodes=True).parse(SINFO_TEXT)
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
    row = dict(zip(SQUEUE.FIELDS, SQUEUE_TEXT.split("\n")[0].split(SEPARATOR), strict=False))
    row |= {"JobArrayID": id, "Name": name, "Reason": reason}
    return "".join(row[field] + SEPARATOR for field in SQUEUE.FIELDS) + "\n"


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
    complete = text == "" or (
        text.rstrip("\n").endswith(SEPARATOR) and len(text.split(SEPARATOR)) % len(SQUEUE.FIELDS) == 1
    )
    assert unparsed == (0 if complete else 1)


@given(st.integers(min_value=0, max_value=len(SINFO_TEXT)))
def test_a_torn_node_listing(length: int) -> None:
    listing = SINFO.parse(SINFO_TEXT[:length])
    assert len(listing.nodes) <= 8 and listing.unparsed <= 1


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from(string.digits + "|\nn[],-:/*"))))
def test_garbage_is_counted(text: str) -> None:
    for junk in (text, text + SEPARATOR, SQUEUE_TEXT.replace("RUNNING", text), SQUEUE_TEXT + text):
        rows, unparsed = SQUEUE.parse(junk, NOW)
        assert rows or unparsed or not junk.strip("\n")
    SINFO.parse(text)
    commands.Sacct(["1"]).parse(text)
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


@pytest.mark.parametrize("word", ["idle", "mixed", "allocated", "planned", "mixed-", "completing"])
def test_usable_node_states(word: str) -> None:
    assert states.node_usable(word)


@pytest.mark.parametrize(
    "word",
    ["idle*", "idle~", "mixed#", "drained", "draining", "down", "down*", "reserved", "maint", "idle$", "", "new"],
)
def test_unusable_node_states(word: str) -> None:
    assert not states.node_usable(word)


@pytest.mark.parametrize(("text", "code"), [("0", 0), ("1792", 7), ("9", 137), ("7:0", 7), ("0:9", 137), ("139", 139)])
def test_exit_codes(text: str, code: int) -> None:
    assert states.exit_code(text) == code


@pytest.mark.parametrize("text", ["", "x", "-1", "7:", "70000"])
def test_what_is_no_exit_code(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        states.exit_code(text)


def test_times_and_hosts() -> None:
    assert states.epoch_s("1970-01-02T00:00:00") == 86400
    assert states.epoch_s("N/A") is states.epoch_s("Unknown") is None
    assert sorted(states.hosts("n[1-3,07],login")) == ["login", "n07", "n1", "n2", "n3"]
    assert states.hosts("(null)") == ()
    with pytest.raises(ValueError, match="host list"):
        states.hosts("n[1-")
    assert [states.count(text) for text in ("12", "4K", "12-24")] == [12, 4096, 12]


def test_sacct() -> None:
    text = (
        "7|COMPLETED|0:0|2026-11-21T09:48:29\n8|CANCELLED by 0|0:15|2026-11-21T09:48:29\n9|RUNNING|0:0|Unknown\nbad\n"
    )
    found, unparsed = commands.Sacct(["7", "8", "9"]).parse(text)
    assert unparsed == 1
    assert {id: (o.state, o.exit_code, o.end_s, o.source) for id, o in found.items()} == {
        "7": (BatchState.COMPLETED, 0, at("09:48:29"), "accounting"),
        "8": (BatchState.CANCELLED, 143, at("09:48:29"), "accounting"),
    }


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


@pytest.mark.parametrize("change", [{"tag": "a\0b"}, {"tag": ""}, {"script": "\0"}, {"comment": "\0"}])
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


def test_site_settings() -> None:
    config = commands.ShowConfig().parse(CONFIG_TEXT)
    assert commands.scheduler_parameters(config)["bf_interval"] == "1"
    assert all(good for _, good, _ in check_config(config, whole_nodes=False))
    poor = config | {"SchedulerType": "sched/builtin", "SelectType": "select/linear", "PrivateData": "jobs,usage"}
    assert [what for what, good, _ in check_config(poor, whole_nodes=False) if not good] == [
        *("backfill", "allocation unit", "other people's jobs")
    ]
    assert "allocation unit" not in [what for what, good, _ in check_config(poor, whole_nodes=True) if not good]


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


def test_an_ordinary_command_is_quoted() -> None:
    processors = '${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"}'
    assert rigid_command(["./a b", "$x", "-n"], 16) == f"srun {processors} -- './a b' '$x' -n"
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
