"""The parts of the embedded cluster that need no process."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.batch.base import AsAsked, SubmitRequest
from ejbd.batch.local import processes, srun
from ejbd.batch.local.__main__ import walltime
from ejbd.batch.local.jobs import Job, JobFile
from ejbd.batch.local.nodes import ANYWHERE, Layout, Nodes
from ejbd.batch.local.options import MEANT, QUIET, REFUSED, UNLIMITED_S, read_options
from ejbd.batch.local.schedule import plan_starts
from ejbd.batch.local.steps import _expanded
from ejbd.core.easy import ActiveJob, QueuedJob, easy_pass
from ejbd.core.view import BatchState
from ejbd.errors import BatchError
from ejbd.options import sbatch


def job(name: str = "job", state: BatchState = BatchState.PENDING, end_s: float | None = None) -> Job:
    return Job(0, name, "", "u", 4, 60.0, state, 100.0, end_s=end_s)


def test_a_job_takes_as_few_nodes_as_possible() -> None:
    nodes = Nodes(3, 4)
    assert nodes.take(3) == (("n1", 3),)
    assert nodes.take(1) == (("n1", 1),)  # the tightest fit
    assert nodes.take(6) == (("n2", 4), ("n3", 2))
    with pytest.raises(ValueError, match="3 processors are wanted, 2 are free"):
        nodes.take(3)


@given(st.lists(st.integers(1, 12), max_size=20))
def test_processors_are_given_once_and_come_back(wanted: list[int]) -> None:
    nodes = Nodes(3, 4)
    given = [nodes.take(processors) for processors in wanted if processors <= nodes.all_free]
    assert all(0 <= free <= 4 for free in nodes.free.values())
    assert sum(count for shares in given for _, count in shares) + nodes.all_free == 12
    for shares in given:
        assert len({name for name, _ in shares}) == len(shares)
        nodes.give_back(shares)
    assert nodes.all_free == 12


def test_the_file_keeps_jobs(tmp_path: Path) -> None:
    file = JobFile(tmp_path / "jobs.sqlite")
    first, second = job("a"), job("a")
    first.id = file.add(first, {"script": "x"})
    second.id = file.add(second, {"script": "\udcff"})
    first.state, first.end_s, first.nodes, first.exit_code = BatchState.FAILED, 200.0, (("n1", 2), ("n2", 2)), 3
    file.save([first])
    cluster = file.cluster
    file.close()

    again = JobFile(tmp_path / "jobs.sqlite")
    assert again.cluster == cluster
    assert again.live_or_ended_since(150) == [first, second]
    assert again.live_or_ended_since(250) == [second]
    assert again.by_ids([first.id, 99]) == [first]
    assert again.by_names(["a", "b"]) == {"a": second.id}
    assert again.spec(second.id) == {"script": "\udcff"}
    assert again.spec(first.id) == {}
    again.forget_ended_before(250)
    assert again.by_ids([first.id, second.id]) == [second]
    third = job()
    assert again.add(third, {}) == second.id + 1
    again.close()


def test_numbers_are_never_used_again(tmp_path: Path) -> None:
    file = JobFile(tmp_path / "jobs.sqlite")
    ended = job(state=BatchState.COMPLETED, end_s=1.0)
    number = file.add(ended, {})
    file.forget_ended_before(2.0)
    assert file.add(job(), {}) == number + 1
    file.close()


def test_patterns_of_output_names() -> None:
    one = job("a/b%j")
    one.id = 7
    assert _expanded("/x/%j-%x-%u-%%j-%q%", one) == "/x/7-a_b%j-u-%j-%q%"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-n", "3", "a", "-n"], ({"ntasks": "3"}, ["a", "-n"])),
        (["-n3", "-N1", "-lu", "a"], ({"ntasks": "3", "nodes": "1", "label": "", "unbuffered": ""}, ["a"])),
        (["--ntasks=2", "--", "--a"], ({"ntasks": "2"}, ["--a"])),
        (["--ntasks-per-n", "2", "-K0", "a"], ({"ntasks-per-node": "2", "kill-on-bad-exit": "0"}, ["a"])),
        (["-u", "--mpi=none", "-J", "x", "--exclusive", "a"],
         ({"unbuffered": "", "mpi": "none", "job-name": "x", "exclusive": ""}, ["a"])),
    ],
)  # fmt: skip
def test_the_launcher_reads_options(words: list[str], expected: tuple[dict[str, str], list[str]]) -> None:
    assert srun.parse(words) == expected


@pytest.mark.parametrize("words", [[], ["-n"], ["--multi-prog", "a"], ["--nt", "a"], ["-Z", "a"]])
def test_the_launcher_refuses_what_it_does_not_know(words: list[str]) -> None:
    with pytest.raises(srun.UsageError):
        srun.parse(words)


TWO = [("n1", 4), ("n3", 2)]


@pytest.mark.parametrize(
    ("words", "told", "nodes"),
    [
        ("-n 5", {}, "n1 n1 n1 n1 n3"),
        ("-n 2", {}, "n1 n3"),
        ("-n 2 -N 1", {}, "n1 n1"),
        ("-n 3 -m cyclic", {}, "n1 n3 n1"),
        ("-n 3", {"SLURM_DISTRIBUTION": "cyclic"}, "n1 n3 n1"),
        ("-N 2 --ntasks-per-node=2", {}, "n1 n1 n3 n3"),
        ("-n 2 -c 2", {}, "n1 n3"),
        ("-n 1 -w n3", {}, "n3"),
        ("-w n[3]", {}, "n3 n3"),
        ("-x n1 -n 2", {}, "n3 n3"),
        ("-r 1 -n 1", {}, "n3"),
        ("", {"SLURM_JOB_ID": "1"}, "n1 n3"),  # one a node, as Slurm has it where nothing is said
        ("", {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "3"}, "n1 n1 n3"),
        ("", {}, "n1 n1 n1 n1 n3 n3"),
        ("-n 8 -O", {}, "n1 n1 n1 n1 n3 n3 n3 n3"),
    ],
)
def test_the_launcher_lays_tasks_out(words: str, told: dict[str, str], nodes: str) -> None:
    options, _ = srun.parse([*words.split(), "a"])
    assert " ".join(task.node for task in srun.lay_out(options, TWO, told)) == nodes


@pytest.mark.parametrize("words", ["-n 7", "-n 3 -c 3", "-w n2", "-N 3", "-n 0", "-n x", "-x n1,n3"])
def test_the_launcher_refuses_what_the_job_has_not(words: str) -> None:
    options, _ = srun.parse([*words.split(), "a"])
    with pytest.raises(srun.UsageError):
        srun.lay_out(options, TWO, {})


def test_processors_lie_as_they_are_wanted() -> None:
    nodes = Nodes(4, 4)
    assert nodes.place(4, Layout(nodes=2, most_a_node=2)) == (("n1", 2), ("n2", 2))
    assert nodes.place(6, Layout(threads=3)) == (("n3", 3), ("n4", 3))
    assert nodes.place(2, Layout(threads=2)) == (("n1", 2),)
    assert nodes.place(4, Layout(whole=True)) is None  # four are free, but on no node of their own
    nodes = Nodes(4, 4)
    assert nodes.place(1, Layout(only=("n3",))) == (("n3", 1),)
    assert nodes.place(8, Layout(nodes=2, whole=True)) == (("n1", 4), ("n2", 4))
    assert nodes.place(1, Layout(never=("n4",))) == (("n3", 1),)
    assert nodes.place(3, Layout(only=("n3", "n4"))) == (("n3", 2), ("n4", 1))
    assert nodes.place(2, Layout(only=("n1",))) is None


LAYOUTS = st.builds(
    Layout,
    threads=st.integers(1, 3),
    nodes=st.integers(0, 3),
    most_a_node=st.sampled_from([0, 3]),
    whole=st.booleans(),
    only=st.sampled_from([(), ("n2",)]),
    never=st.sampled_from([(), ("n3",)]),
)


@given(st.lists(st.integers(0, 4), min_size=4, max_size=4), st.integers(1, 4), LAYOUTS)
def test_what_is_placed_is_what_was_wanted(used: list[int], tasks: int, layout: Layout) -> None:
    nodes = Nodes(4, 4)
    nodes.retake(tuple((f"n{number}", count) for number, count in enumerate(used, 1)))
    before = dict(nodes.free)
    processors, layout = layout.sized(tasks * layout.threads, 4)
    shares = nodes.place(processors, layout)
    if shares is None:
        assert nodes.free == before
        return
    assert sum(count for _, count in shares) == processors
    assert all(0 < count <= before[name] for name, count in shares)
    assert nodes.free == {name: free - dict(shares).get(name, 0) for name, free in before.items()}
    names = {name for name, _ in shares}
    assert names >= set(layout.only) and not names & set(layout.never)
    assert not layout.nodes or len(shares) == max(layout.nodes, len(layout.only))
    if layout.whole:
        assert all(count == 4 for _, count in shares)
    else:
        assert all(count % layout.threads == 0 for _, count in shares)
        assert not layout.most_a_node or all(count <= layout.most_a_node for _, count in shares)


def waiting(id: int, processors: int, walltime_s: float, layout: Layout = ANYWHERE) -> Job:
    return Job(id, str(id), "", "u", processors, walltime_s, BatchState.PENDING, 0.0, layout=layout)


SIZES = st.lists(st.tuples(st.integers(1, 10), st.integers(1, 5)), max_size=6)


@given(SIZES, SIZES)
def test_jobs_without_a_layout_start_as_easy_has_it(
    running: list[tuple[int, int]], queue: list[tuple[int, int]]
) -> None:
    nodes, active = Nodes(2, 4), []
    for id, (processors, length) in enumerate(running, 100):
        job = waiting(id, processors, 10.0 * length)
        if (shares := nodes.place(processors, ANYWHERE)) is not None:
            job.state, job.nodes, job.end_s = BatchState.RUNNING, shares, 10.0 * length
            active.append(job)
    jobs = [waiting(id, processors, 10.0 * length) for id, (processors, length) in enumerate(queue)]
    found = plan_starts(jobs, active, nodes, 0.0)
    wanted = easy_pass(
        [QueuedJob(str(job.id), job.processors, job.walltime_s) for job in jobs],
        [ActiveJob(str(job.id), job.processors, job.end_s or 0) for job in active],
        nodes.all_free,
        0.0,
    )
    assert [str(job.id) for job, _ in found.starts] == list(wanted.starts)
    assert (None if found.head is None else str(found.head.id), found.shadow_s) == (wanted.head, wanted.shadow_s)


def test_a_job_that_waits_for_its_nodes_is_not_passed_for_ever() -> None:
    """Two processors are free on each node, and a whole one is wanted: what would last beyond its time keeps off it."""
    nodes = Nodes(2, 4)
    first, second = waiting(1, 2, 30.0), waiting(2, 2, 60.0)
    for job, node in ((first, "n1"), (second, "n2")):
        job.state, job.nodes, job.end_s = BatchState.RUNNING, ((node, 2),), job.walltime_s
        nodes.retake(job.nodes)
    whole = waiting(3, 4, 50.0, Layout(whole=True, nodes=1))
    long, short = waiting(4, 2, 90.0), waiting(5, 2, 20.0)
    plan = plan_starts([whole, waiting(6, 3, 90.0), long, short], [first, second], nodes, 0.0)
    assert plan.head is whole and plan.shadow_s == 30.0
    assert plan.starts == ((short, (("n1", 2),)),)


def request(*options: str, processors: int = 1, **more: Any) -> SubmitRequest:
    here = Path("/")
    return SubmitRequest("t", "", "batch", processors, 60.0, "#!/bin/sh\n", here, here / "o", options=options, **more)


def test_every_option_of_sbatch_is_decided() -> None:
    """What no node has is refused, and of all that has no meaning here the answer says that it has no effect."""
    understood = {
        "chdir",
        "error",
        "job-name",
        "ntasks",
        "nodes",
        "ntasks-per-node",
        "output",
        "export",
        "hold",
        "array",
    }
    for option in sbatch.OPTIONS:
        if option.use in (sbatch.Use.DROPPED, sbatch.Use.REFUSED) or option.name in understood:
            continue  # it never comes here as an option
        try:
            found = read_options(request(f"{option.spelling}=1"), memory_mb=1000, processors_per_node=4)
        except BatchError as error:
            assert option.name in REFUSED | MEANT, error
            assert not error.transient
        else:
            assert option.name not in REFUSED
            assert (option.spelling in found.unheeded) is (option.name not in MEANT | QUIET), option


def test_options_come_to_a_layout_and_variables() -> None:
    asked = AsAsked((), None, Path("/"), None, {}, None, "job", tasks_asked=True)
    words = (
        "--cpus-per-task=2",
        "--mem=1G",
        "--mem-per-cpu=100M",
        "--exclude=n[2-3]",
        "--exclusive",
        "--open-mode=append",
    )
    found = read_options(
        request(*words, processors=8, threads=2, nodes=2, tasks_per_node=2, asked=asked, exclude=("n1",)),
        memory_mb=1000,
        processors_per_node=4,
    )
    assert found.layout == Layout(threads=2, nodes=2, most_a_node=4, whole=True, never=("n1", "n2", "n3"))
    assert found.variables == {
        "SLURM_NTASKS": "4",
        "SLURM_NPROCS": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_MEM_PER_CPU": "100",  # the last one wins
    }
    assert found.append and not found.unheeded
    crowded = read_options(request("--overcommit", processors=64, nodes=2), memory_mb=None, processors_per_node=4)
    assert (crowded.processors, crowded.variables["SLURM_OVERCOMMIT"]) == (2, "1")
    endless = read_options(request("--time=UNLIMITED"), memory_mb=None, processors_per_node=4)
    assert endless.walltime_s == UNLIMITED_S


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--mem=900G", "Memory specification can not be satisfied"),
        ("--mem-per-cpu=600G", "Memory specification can not be satisfied"),
        ("--gres=gpu:2", "Requested node configuration is not available"),
        ("--gpus=1", "Requested node configuration is not available"),
        ("--tmp=9999T", "Requested node configuration is not available"),
        ("--mincpus=5", "Requested node configuration is not available"),
        ("--begin=soonish", "Invalid --begin specification"),
        ("--signal=FOO", "Invalid --signal specification"),
        ("--nodelist=n[", "Invalid --nodelist specification"),
        ("--dependency=afterok:1?after:2,any:3", "Job dependency problem"),
    ],
)
def test_what_no_node_has_is_refused_in_slurms_words(option: str, says: str) -> None:
    with pytest.raises(BatchError, match=says):
        read_options(request(option), memory_mb=4000, processors_per_node=4)


@pytest.mark.parametrize("option", ["--gres=none", "--gpus=0", "--mem=0", "--exclusive=user"])
def test_what_asks_for_nothing_is_taken(option: str) -> None:
    assert not read_options(request(option), memory_mb=4000, processors_per_node=4).layout.whole


def test_walltimes_of_the_command() -> None:
    assert [walltime(text) for text in ("90s", "5m", "1h", "2", "1:30")] == [90, 300, 3600, 120, 90]
    for text in ("soon", "-1", "", "UNLIMITED"):
        with pytest.raises(argparse.ArgumentTypeError):
            walltime(text)


def test_a_process_is_told_from_a_later_one_of_its_number() -> None:
    me = processes.identify(os.getpid())
    assert me is not None
    assert processes.is_alive(me)
    assert not processes.is_alive(me._replace(started=me.started + 1))
    assert not processes.is_alive(me._replace(boot="another"))
    assert processes.identify(2**22 + 1) is None
