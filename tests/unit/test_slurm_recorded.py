"""Every parser of what Slurm writes, over what each version wrote (`python -m tests.record_slurm` has recorded it)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest

from ejbd.accounting import sacct
from ejbd.accounting.rows import Ending
from ejbd.batch.process import CommandResult
from ejbd.batch.slurm import associations, charging, checks, commands, drift, limits, mpi, privacy, refusals, siterules
from ejbd.batch.slurm.listing import JobRow, Squeue
from ejbd.batch.slurm.nodes import ShowNodes
from ejbd.batch.slurm.reservations import ShowReservations
from ejbd.batch.slurm.sharing import ShowPartitions
from ejbd.batch.slurm.versions import TRIED, check_version, parse_version
from ejbd.core.view import BatchState, Counted
from ejbd.errors import BatchError, SubmitOutcomeUnknown
from tests.record_slurm import FOLDER, REFUSED, SEPARATOR, tag_of
from workers.ejb_worker import own_job

VERSIONS = sorted(folder.name for folder in FOLDER.iterdir())


def at(day: int, clock: str) -> float:
    return datetime.fromisoformat(f"2026-01-{day:02d}T{clock}+00:00").timestamp()


class Answers:
    """What one version answered, by the name of the file."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.folder: Path = FOLDER / version

    def __getitem__(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    def jobs(self, now_s: float = at(1, "00:01:00")) -> dict[str, JobRow]:
        """By the jobs' names; of an array both rows, by name and state."""
        rows, unparsed = Squeue(SEPARATOR, own_uid=0).parse(self["squeue"], now_s)
        assert unparsed == 0
        names = [row.view.name + (f" {row.view.state}" if row.view.name == "array" else "") for row in rows]
        assert len(set(names)) == len(rows)
        return dict(zip(names, rows, strict=True))

    def refused(self, name: str) -> CommandResult:
        lines = (self.folder / "refusals.jsonl").read_text().splitlines()
        code, stderr = next((code, stderr) for one, code, stderr in map(json.loads, lines) if one == name)
        return CommandResult(REFUSED[name][0] if name in REFUSED else "sbatch", code, "", stderr, 0.0)


@pytest.fixture(params=VERSIONS)
def told(request: pytest.FixtureRequest) -> Answers:
    return Answers(cast(str, request.param))


def test_every_version_that_is_tried_is_recorded() -> None:
    assert [Answers(version)["version"].split()[1] for version in VERSIONS] == list(TRIED)
    assert sum(file.stat().st_size for file in FOLDER.glob("*/*")) < 150_000, "they are to stay small"


def test_jobs(told: Answers) -> None:
    jobs = {name: row.view for name, row in told.jobs().items()}
    odd = "odd\n9|RUNNING|0|batch"
    assert {name: job.state for name, job in jobs.items()} == {
        **dict.fromkeys(("array running", "running", odd), BatchState.RUNNING),
        **dict.fromkeys(("array pending", "behind", "never", "later", "limited", "whole", "two"), BatchState.PENDING),
        **dict.fromkeys(("stopped", "withdrawn"), BatchState.CANCELLED),
        **dict.fromkeys(("failed", "killed"), BatchState.FAILED),
        "ended": BatchState.COMPLETED,
        "held": BatchState.HELD,
        "late": BatchState.TIMEOUT,
        "lost": BatchState.NODE_FAIL,
        "suspended": BatchState.SUSPENDED,
    }
    assert all(job.tag == tag_of(name if name == odd else name.partition(" ")[0]) for name, job in jobs.items())
    assert [jobs[name].exit_code for name in ("ended", "failed", "running")] == [0, 7, None]
    assert (jobs["killed"].exit_signal, jobs["killed"].exit_code) == (9, 137)
    running, whole, two = jobs["running"], jobs["whole"], jobs["two"]
    assert (running.nodes, running.processors, running.walltime_s) == (("n1",), 2, 1800)
    assert (running.account, running.qos, running.foreign) == ("ours", "normal", False)
    assert running.start_s is not None and running.end_s == running.start_s + 1800
    assert whole.planned_nodes == ("n1",) and whole.planned_start_s is not None
    assert whole.planned_start_s >= running.end_s - 60 and not whole.blocked
    assert set(two.queue.split(",")) == {"batch", "short"}
    assert jobs["limited"].limited and jobs["limited"].limited_by is Counted.PROCESSORS
    assert all(jobs[name].blocked for name in ("behind", "never", "later", "limited", "array pending"))
    assert jobs["array pending"].id.startswith(jobs["array running"].id.partition("_")[0] + "_[2-4")


def test_what_jobs_wait_for(told: Answers) -> None:
    ids = {name: row.view.id for name, row in told.jobs().items()}
    waited = commands.Dependencies(SEPARATOR).parse(told["dependencies"])
    assert waited == {ids["running"], ids["failed"]}


def test_nodes_and_partitions(told: Answers) -> None:
    listing = ShowNodes().parse(told["nodes"])
    assert (listing.unparsed, listing.untold, listing.tiers) == (0, (), {"batch": 1, "whole": 1, "short": 1})
    first, drained, lost = listing.nodes
    assert (first.name, first.processors, first.free, first.usable) == ("n1", 6, 2, True)
    assert first.state in ("mixed", "mixed+planned")
    assert (first.memory_mb, first.features, first.gres) == (1000, ("ib", "fast"), (("gpu", 2, 1),))
    assert (drained.state, drained.usable, drained.processors) == ("idle+drain", False, 6)
    assert not lost.usable and lost.state.startswith("down")
    batch, whole, short = listing.queues
    assert (batch.processor_quantum, batch.default, batch.max_walltime_s, batch.up) == (1, True, None, True)
    assert (whole.processor_quantum, whole.default, whole.default_walltime_s) == (6, False, 600)
    assert (short.up, short.max_walltime_s, short.total_processors) == (False, 300, 18)
    assert all(queue.jobs_a_processor == 1 for queue in listing.queues)


def test_what_partitions_say_of_shared_processors_and_qos(told: Answers) -> None:
    lines = "".join(line + "\n" for line in told["nodes"].splitlines() if line.startswith("PartitionName="))
    assert [(one.partition, one.jobs) for one in ShowPartitions().parse(lines)] == [
        ("batch", 1),
        ("whole", 1),
        ("short", 1),
    ]
    assert associations.ShowPartitions().parse(lines) == {}
    assert associations.ShowPartitions().parse(lines.replace("QoS=N/A", "QoS=ejb", 1)) == {"ejb": ("batch",)}


def test_reservations(told: Answers) -> None:
    found, unparsed = ShowReservations().parse(told["reservations"])
    assert unparsed == 0
    upkeep, group = found
    assert (upkeep.name, upkeep.nodes, upkeep.users, upkeep.restricted, upkeep.cpus) == (
        *("upkeep", ("n1",), ("root",), False),
        6,
    )
    assert "MAINT" in upkeep.flags and upkeep.end_s - upkeep.start_s == 3600
    assert (group.name, group.nodes, group.restricted, group.cpus) == ("class", ("n2",), True, 2)
    seen = group.seen_by("root", ShowNodes().parse(told["nodes"]).nodes)
    assert seen.processors == 2 and not seen.admits


def test_ends_by_the_accounts(told: Answers) -> None:
    ids = {row.view.id: name for name, row in told.jobs().items()}
    found, unparsed = commands.Sacct(list(ids), SEPARATOR).parse(told["sacct"])
    assert unparsed == 0
    ends = {ids[one.id]: one.end for one in found if one.end is not None}
    assert {name: end.state for name, end in ends.items()} == {
        "ended": BatchState.COMPLETED,
        "failed": BatchState.FAILED,
        "killed": BatchState.FAILED,
        "late": BatchState.TIMEOUT,
        "lost": BatchState.NODE_FAIL,
        "stopped": BatchState.CANCELLED,
        "withdrawn": BatchState.CANCELLED,
    }
    assert [ends[name].exit_code for name in ("ended", "failed", "killed")] == [0, 7, 137]
    assert all(one.tag == tag_of(ids[one.id]) for one in found if one.end is not None)


def test_the_history_of_jobs(told: Answers) -> None:
    heading, *lines = told["history"].splitlines()
    assert sacct.is_heading(heading)
    parse = sacct.parser(heading)
    runs = {run.name: run for run in map(parse, lines) if run is not None}
    assert {name: run.ending for name, run in runs.items()} == {
        "ended": Ending.COMPLETED,
        "failed": Ending.FAILED,
        "killed": Ending.FAILED,
        "lost": Ending.FAILED,
        "late": Ending.TIMEOUT,
        "stopped": Ending.CANCELLED,
    }
    assert (runs["lost"].processors, runs["lost"].nodes, runs["late"].requested_s) == (6, 1, 60)


def test_the_log_that_is_played_finds_its_sizes_by_sinfo(told: Answers) -> None:
    rows = [line.split() for line in told["sinfo"].splitlines()]
    assert {name: counts.split("/")[-1] for name, counts, _ in rows} == {"batch*": "18", "whole": "18", "short": "18"}
    assert {size for *_, size in rows} == {"6"}


def test_limits_of_accounts(told: Answers) -> None:
    known, qualities = associations.ShowAssociations("root").parse(told["assoc_mgr"])
    allowed = associations.ShowQos().parse(told["qos"])
    found = associations.limits_of(known, qualities, allowed, {}, "root", 0, safe=False)
    assert {one.name: (one.counted, one.most, one.used) for one in found} == {
        "MaxJobsPU of QOS ejb, root": (Counted.JOBS, 50, 1),
        "MaxTRESPU=cpu of QOS ejb, root": (Counted.PROCESSORS, 64, 1),
        "MaxSubmitJobs of root in account narrow": (Counted.SUBMITTED, 1, 1),
        "MaxWallPJ of root in account narrow": (Counted.WALLTIME_S, 3600, 0),
        "GrpTRES=cpu of root in account narrow": (Counted.PROCESSORS, 1, 0),
        "GrpJobs of account ours": (Counted.JOBS, 40, 4),
    }
    config = commands.ShowConfig().parse(told["config"])
    shares = charging.shares_of(known, config)
    assert shares is not None and shares.weight == 1000
    assert {one.account for one in shares.shares} == {"ours", "narrow"} and shares.used > 0


def test_what_the_accounting_database_says(told: Answers) -> None:
    assert associations.ShowQos().parse(told["qos"])["ejb"]["UsageFactor"].startswith("0.0")
    accounts = charging.ShowUser("root").parse(told["user"])
    assert set(accounts) == {"ours", "narrow", "root"} and accounts["ours"] == {"ejb", "normal"}
    assert privacy.ShowLevel("root").parse(told["level"]) == "Administrator"
    rules = siterules.rules_of(
        siterules.show_associations(1).parse(told["all_associations"]),
        siterules.show_qos(1).parse(told["all_qos"]),
        {},
    )
    assert sorted(one.limit.name for one in rules.limits) == [
        "GrpJobs of account ours",
        "GrpTRES=cpu of root in account narrow",
        "MaxJobsPU of QOS ejb, each user",
        "MaxTRESPU=cpu of QOS ejb, each user",
    ]


class Asked(Mapping[str, str]):
    """Settings, and which of them were read."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings, self.read = settings, set[str]()

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return self.settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)


def test_settings(told: Answers) -> None:
    config = Asked(commands.ShowConfig().parse(told["config"]))
    assert commands.pass_s(config) == 1 and commands.kill_wait_s(config) == 2
    assert not commands.has_preemption(config) and not commands.kills_unmet(config)
    assert commands.memory_rules(config).counted is False and limits.enforced(config)
    assert not commands.is_nice_propagated(config) and len(commands.propagated_limits(config)) > 5
    assert privacy.keeps_accounts(config) and privacy.privileged(config, "root", 0) and not privacy.hidden(config)
    assert charging.fair_share(config) == 1000
    privacy.privileged(config, "ada", 1000)
    assert all(good for _, good, _ in checks.check_config(cast(dict[str, str], config), whole_nodes=False))
    assert config.read <= drift.SETTINGS, "drift.py names every setting that is read"


def test_the_ways_of_srun_to_wire_up_ranks(told: Answers) -> None:
    types = mpi.ListMpi().parse(told["mpi"])
    assert {"none", "pmi2"} <= set(types)
    assert all(re.fullmatch("[a-z0-9_]+", name) for name in types)


def test_a_job_is_shown_with_the_fields_that_are_put_in(told: Answers) -> None:
    """What `scontrol show job` says of J0 is altered field by field (workers/ejb_worker/own_job.py)."""
    fields = {word.partition("=")[0] for word in told["job"].split() if "=" in word}
    assert {*own_job._OF_THE_RUN, "JobName", "Command", "Comment", "WorkDir", "StdErr", "StdOut"} <= fields


@pytest.mark.parametrize(
    ("name", "transient", "meaning"),
    [
        ("partition", False, "there is no such partition"),
        ("account", False, "the account is not allowed or not known"),
        ("qos", False, "the QoS is not allowed or not known"),
        ("nodes", False, "the partition does not have that many"),
        ("processors", False, "the partition does not have that many"),
        ("memory", False, "the partition does not have that many"),
        ("device", False, "the partition does not have that many"),
        ("feature", False, "Invalid feature specification"),
        ("walltime", False, "the walltime is longer than the partition allows"),
        ("reservation", False, "Requested reservation is invalid"),
        ("submissions", True, "a limit on jobs in the queue is reached"),
        ("controller away", True, "Slurm's controller does not answer"),
        ("begin of running", False, "Job is no longer pending execution"),
        ("longer than allowed", False, "the job has ended"),
    ],
)
def test_refusals(told: Answers, name: str, transient: bool, meaning: str) -> None:
    result = told.refused(name)
    assert result.code != 0
    error = refusals.submit_refusal(result)
    assert not isinstance(error, SubmitOutcomeUnknown)
    assert (error.transient, meaning in error.message) == (transient, True), error.message


def test_what_has_ended_or_is_not_known_is_cancelled_without_complaint(told: Answers) -> None:
    assert all(refusals.cancel_refusal(told.refused(name)) is None for name in ("cancel unknown", "cancel ended"))
    assert "invalid job id" in told.refused("list unknown").stderr.lower()
    assert isinstance(refusals.refusal(told.refused("release unknown"), "release it"), BatchError)


@pytest.mark.parametrize("name", ["column", "column of accounts", "column of QOS"])
def test_a_column_that_slurm_does_not_know_is_named(told: Answers, name: str) -> None:
    """squeue leaves it out and ends with 0."""
    error = refusals.refusal(told.refused(name), "list its jobs")
    assert "does not know the column" in error.message and "nosuchcolumn" in error.message.lower()
    assert not error.transient


def test_doctor_finds_every_name_and_word(told: Answers) -> None:
    states = drift.ShowJobStates().parse("|\n".join(re.findall(r"\|([A-Z_]+)\|0\|", told["squeue"])))
    assert len(states) > 7
    config = commands.ShowConfig().parse(told["config"])
    what, good, said = drift.check_words(config, told["nodes"], states)
    assert (what, good) == ("Slurm's words", True), said
    what, good, said = check_version(told["version"], config["SLURM_VERSION"])
    assert good and f"tried as {config['SLURM_VERSION']}" in said


def test_doctor_names_what_has_another_name_here(told: Answers) -> None:
    config = commands.ShowConfig().parse(told["config"].replace("SchedulerType ", "PlannerType "))
    nodes = told["nodes"].replace(" ThreadsPerCore=", " Threads=").replace("State=IDLE+DRAIN", "State=IDLE+ASLEEP")
    nodes = nodes.replace("OverSubscribe=", "Sharing=", 1)
    _, good, said = drift.check_words(config, nodes, {"RUNNING", "PONDERING"})
    assert not good
    for word in ("setting SchedulerType", "no ThreadsPerCore of a node", "no OverSubscribe of a partition"):
        assert word in said
    assert "node state ASLEEP" in said and "job state PONDERING" in said
    listing = ShowNodes().parse(nodes)
    assert listing.unparsed >= 3, "and nothing is guessed: what it is missing from is counted as unreadable"


@pytest.mark.parametrize(
    ("client", "controller", "good", "said"),
    [
        ("slurm 22.05.8", "22.05.8", True, "Slurm 22.05.8, tried as 22.05.8"),
        ("slurm-wlm 24.11.5", "24.11.5", True, "Slurm 24.11.5, tried as 24.11.7"),
        ("slurm 25.05.3", "25.05.3", True, "inherit SIGCHLD blocked"),
        ("slurm 25.11.0-0rc1", "25.11.0-0rc1", True, "inherit SIGCHLD blocked"),
        ("slurm 24.05.8", "25.05.8", True, "the commands here are of 24.05.8"),
        ("slurm 25.05.8", "24.05.8", False, "the commands here are newer"),
        ("slurm 27.11.1", "27.11.1", True, "not one of those tried"),
        ("slurm 20.11.9", "20.11.9", False, "EJB needs 22.05 or later"),
        ("slurm", "", False, "names no version"),
    ],
)
def test_doctor_says_what_is_known_of_a_version(client: str, controller: str, good: bool, said: str) -> None:
    what, found, text = check_version(client, controller)
    assert (what, found) == ("version", good) and said in text
    assert ("SIGCHLD" in text) is (parse_version(controller) in [(25, 5, n) for n in range(9)] + [(25, 11, 0)])
