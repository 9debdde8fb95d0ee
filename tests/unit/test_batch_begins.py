"""A batch job that may not begin before its time: what each batch system is told, and what the embedded cluster keeps
for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.batch.base import SubmitRequest
from ejbd.batch.local.adapter import _jobs
from ejbd.batch.local.cluster import beside
from ejbd.batch.local.jobs import Job
from ejbd.batch.pbs.commands import Qsub
from ejbd.batch.pbs.states import Dialect
from ejbd.batch.slurm.commands import BeginsIn, Sbatch
from ejbd.core.view import BatchState
from ejbd.errors import BatchError

REQUEST = SubmitRequest(
    tag="ejb-1",
    comment="full id ejb-1",
    queue="batch",
    processors=8,
    walltime_s=120.0,
    script="#!/bin/sh\n",
    workdir=Path("/home/u"),
    output=Path("/home/u/out"),
)


def job(id: int, processors: int, walltime_s: float, begin_s: float = 0.0) -> Job:
    state = BatchState.PENDING
    return Job(id, "job", "", "u", processors, walltime_s, state, 100.0, begin_s=begin_s)


def starts(starting: list[Job], kept: list[Job], active: list[Job], free: int) -> list[int]:
    return [found.id for found, _ in beside([(one, ()) for one in starting], kept, active, free, 1000.0)]


def test_slurm_is_told_in_how_many_whole_seconds() -> None:
    assert "--begin=now+31" in Sbatch(replace(REQUEST, begin_in_s=30.2)).argv()
    assert not [word for word in Sbatch(REQUEST).argv() if word.startswith("--begin")]
    assert BeginsIn("7", 30.2).argv() == ["scontrol", "update", "JobId=7", "StartTime=now+31"]
    assert BeginsIn("7", 0.0).argv()[-1] == "StartTime=now"
    with pytest.raises(BatchError):
        BeginsIn("7 --all", 5.0).argv()


@pytest.mark.parametrize("dialect", list(Dialect))
def test_pbs_holds_what_begins_later(dialect: Dialect) -> None:
    groups = [(1, 8)]
    assert "-h" in Qsub(dialect, replace(REQUEST, begin_in_s=30.0), groups).argv()
    assert "-h" not in Qsub(dialect, REQUEST, groups).argv()


def test_what_would_still_run_at_a_begin_waits_for_it() -> None:
    kept = [job(1, 6, 100.0, begin_s=1060.0)]
    assert starts([job(2, 4, 61.0)], kept, [], 8) == [], "8 free, 4 + 6 wanted from 1060 on"
    assert starts([job(2, 4, 60.0)], kept, [], 8) == [2], "it is over by then"
    assert starts([job(2, 2, 900.0)], kept, [], 8) == [2], "both fit"


def test_those_that_start_together_count_beside_each_other() -> None:
    kept = [job(1, 6, 100.0, begin_s=1060.0)]
    assert starts([job(2, 2, 900.0), job(3, 1, 900.0), job(4, 1, 50.0)], kept, [], 8) == [2, 4]


def test_what_ends_in_time_is_free_at_a_begin() -> None:
    kept = [job(1, 6, 100.0, begin_s=1060.0)]
    assert starts([job(2, 4, 900.0)], kept, [replace(job(9, 4, 50.0), end_s=1050.0)], 6) == [2]
    assert starts([job(2, 4, 900.0)], kept, [replace(job(9, 4, 70.0), end_s=1070.0)], 6) == []


@pytest.mark.parametrize("begin_s", [None, 0.0, 990.0, 1060.0])
def test_the_embedded_cluster_tells_of_what_waits_for_its_begin(begin_s: float | None) -> None:
    row = job(1, 6, 100.0, begin_s=begin_s or 0.0).wire()
    if begin_s is None:
        del row["begin_s"]  # a server from before there were begins
    (seen,) = _jobs({"time_s": 1000.0, "jobs": [row], "head": None, "shadow_s": None})
    early = begin_s == 1060.0
    assert (seen.planned_start_s, seen.blocked) == ((1060.0, True) if early else (None, False))
    assert seen.reason == ("BeginTime" if early else "waits for processors")
