"""The parts of the embedded cluster that need no process."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.batch.local import processes, srun
from ejbd.batch.local.__main__ import walltime
from ejbd.batch.local.jobs import Job, JobFile
from ejbd.batch.local.nodes import Nodes
from ejbd.batch.local.steps import _expanded
from ejbd.core.view import BatchState


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
        (["-n", "3", "a", "-n"], (3, ["a", "-n"])),
        (["-n3", "a"], (3, ["a"])),
        (["--ntasks=2", "--", "--a"], (2, ["--a"])),
        (["-u", "--mpi=none", "-J", "x", "--kill-on-bad-exit=1", "a"], (4, ["a"])),
    ],
)
def test_the_launcher_reads_options(words: list[str], expected: tuple[int, list[str]]) -> None:
    assert srun.parse(words, 4) == expected


@pytest.mark.parametrize("words", [[], ["-n"], ["-n", "0", "a"], ["-n5", "a"], ["-n", "x", "a"], ["--exclusive", "a"]])
def test_the_launcher_refuses_what_it_cannot_do(words: list[str]) -> None:
    with pytest.raises(srun.UsageError):
        srun.parse(words, 4)


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
