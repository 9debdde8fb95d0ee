"""Which jobs, and which elements of an array, the words of `squeue`, `scancel` and `scontrol` mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ejbd.cli.links import options, sacct, squeue
from ejbd.cli.links.batchrows import Answer, is_of, with_slurms
from ejbd.cli.links.fields import UNKNOWN, WORKERS, moment, sacct_value, squeue_value, wait_status
from ejbd.cli.links.rows import Details, Row, named

ARRAY = {"id": "1a2b3c4d", "number": "8", "array_number": None, "array": None, "index": None, "kind": "array",
         "elements": {"to come": 9}, "state": "waiting", "start_s": None}  # fmt: skip


class Answers:
    """A daemon with one array of nine elements, of which the first is a job that runs."""

    def get(self, path: str, **query: Any) -> Any:
        if path == "/v1/jobs":
            return {"jobs": [ARRAY]}
        return {**ARRAY, "element_indices": {"running": "1", "to come": "2-9"}}

    def jobs(self, **query: Any) -> list[dict[str, Any]]:
        first = {"id": "1a2b3c4d_1", "number": "8", "array_number": "8", "array": ARRAY["id"], "index": 1}
        return [{**ARRAY, **first, "elements": None, "state": "running"}]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["8_2"], ["8_2"]),
        (["8_[2-4]"], ["8_[2,3,4]"]),
        (["8_2", "8_7"], ["8_2", "8_7"]),
        (["8_[1-2]"], ["8_1", "8_2"]),
        (["8_1"], ["8_1"]),
        (["8_10"], []),
        (["8"], ["8"]),
    ],
)
def test_of_elements_that_wait_together_those_alone_are_meant_that_a_word_names(
    words: list[str], meant: list[str]
) -> None:
    found = named(Answers(), words, apart=False)  # type: ignore[arg-type]
    assert [row.id for row in found.rows] == meant and not found.others


NOTHING: dict[str, Any] = {
    "array_number": None, "array": None, "index": None, "elements": None, "kind": "script", "batch_ids": ["12"],
    "elastic": False, "name": "wave", "user": "ada", "queue": "batch", "processes": 4, "walltime_s": 300.0,
    "held": False,
    "submit_s": 1e9, "start_s": None, "end_s": None, "rigid_start_s": None, "expected_completion_s": None, "reason": "",
    "exit_code": None, "exit_signal": None, "final_state": None, "nodes": [],
}  # fmt: skip


def job(**columns: Any) -> Any:
    return {**NOTHING, "id": "1a2b3c4d", "number": "12", "state": "waiting", **columns}


def cells(id: str = "12", **told: str) -> dict[str, str]:
    """A row as Slurm's squeue gives it."""
    base, _, index = id.partition("_")
    told = {"state": "PENDING", "comment": "hey ejb-1a2b3c4d.0", "jobarrayid": id, "arrayjobid": base, **told}
    return {**told, "base": base, "index": index, "step": "", "arraytaskid": index.strip("[]") or "N/A"}


def put(rows: list[Row], *found: dict[str, str], named: set[int] | None = None) -> list[Row]:
    answer = Answer({"12": list(found)})
    return list(with_slurms(rows, answer, Details(Answers()), {"1a2b3c4d": named}))  # type: ignore[arg-type]


def test_a_job_that_is_passed_through_has_slurms_row() -> None:
    (row,) = put([Row(job(), "PENDING")], cells(state="RUNNING", nodelist="n[1-2]", minmemory="100M"))
    assert (row.theirs, row.state) == (True, "RUNNING")
    told = [squeue_value(row, name) for name in ("nodelist", "minmemory", "comment", "jobarrayid", "gres")]
    assert told == ["n[1-2]", "100M", "hey", "12", UNKNOWN]


def test_a_row_without_the_jobs_mark_is_another_jobs() -> None:
    for comment in ("(null)", "ejb-99999999.0", "ejb-1a2b3c4d_1.0"):
        (row,) = put([Row(job(), "PENDING")], cells(state="RUNNING", comment=comment))
        assert (row.theirs, row.state, dict(row.slurm)) == (False, "PENDING", {})
    account = {"user": "ada", "submit": moment(1e9 + 2)}
    assert is_of(job(), {"comment": "", **account})
    assert not is_of(job(), {"comment": "", **account, "user": "eve"})
    assert not is_of(job(end_s=1e9 + 1), {"comment": "", "user": "ada", "submit": "2011-09-09T01:46:40"})


def test_an_end_that_ejb_has_recorded_stays_one() -> None:
    ended = job(state="cancelled", start_s=1e9, end_s=1e9 + 5, exit_code=143)
    (row,) = put([Row(ended, "CANCELLED")], cells(state="RUNNING"))
    assert (row.theirs, row.state, sacct_value(row, "ExitCode")) == (False, "CANCELLED", "0:0")


def test_what_an_elastic_job_asks_for_is_told_by_its_j0_alone() -> None:
    elastic = job(elastic=True, start_s=1e9, nodes=["n1"], batch_ids=["12", "13"])
    (row,) = put([Row(elastic, "RUNNING")], cells(numcpus="8", numnodes="2", account="ours", reason="Resources"))
    told = [squeue_value(row, name) for name in ("numcpus", "numnodes", "account", "state", "nodelist", "reasonlist")]
    assert told == ["8", "1", "ours", "RUNNING", "n1", "n1"]
    answer = Answer({"13": [{**cells("13", numcpus="1", account="ours")}]})
    (row,) = with_slurms([Row(elastic, "RUNNING")], answer, Details(Answers()), {})  # type: ignore[arg-type]
    assert [squeue_value(row, name) for name in ("numcpus", "account")] == ["4", "ours"]
    (row,) = put([Row(job(elastic=True), "PENDING")], cells(reason="BeginTime"))
    assert squeue_value(row, "reasonlist") == "(BeginTime)"


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        (None, ["12_2 RUNNING", "12_[3-5%2] PENDING", "12_1 COMPLETED"]),
        ({1, 4}, ["12_4 PENDING", "12_1 COMPLETED"]),
        ({2}, ["12_2 RUNNING"]),
    ],
)
def test_of_an_array_slurm_tells_what_it_still_has(named: set[int] | None, meant: list[str]) -> None:
    array = job(elements={"all": 5}, kind="script")
    wanted = named or {1, 2, 3, 4, 5}
    rows = [Row(array, "COMPLETED", "1")] * (1 in wanted) + [Row(array, "PENDING", "[2-5]")]
    found = put(rows, cells("12_2", state="RUNNING"), cells("12_[3-5%2]"), named=named)
    assert [f"{squeue_value(row, 'jobarrayid')} {row.state}" for row in found] == meant


def test_codes_are_told_as_slurm_tells_them() -> None:
    def told(state: str, **columns: Any) -> list[str]:
        row = Row(job(elastic=True, start_s=1e9, **columns), state, details=Details(Answers()))  # type: ignore[arg-type]
        return [squeue_value(row, "exit_code"), sacct_value(row, "ExitCode")]

    assert told("FAILED", exit_code=7) == ["1792", "7:0"]
    assert told("FAILED", exit_code=137, exit_signal=9) == ["9", "0:9"]
    assert told("FAILED", exit_code=137) == ["35072", "9:0"]  # which Slurm's sacct makes of `exit 137`
    assert told("CANCELLED", exit_code=143) == ["15", "0:0"]
    since_23_02 = Row(job(exit_code=7), "FAILED", slurm={"exit_code": "0:0"})
    assert squeue_value(since_23_02, "exit_code") == "7:0"
    assert [wait_status(code) for code in ("7:0", "0:9", "1792", "", "N/A")] == [1792, 9, 1792, 0, 0]
    step = {"ordinal": 0, "ranks": 2, "start_s": 1e9, "end_s": 1e9 + 1, "code": 139}
    row = Row(job(start_s=1e9), "CANCELLED", step_id="0", step=step)  # type: ignore[arg-type]
    assert [sacct_value(row, name) for name in ("JobID", "ExitCode", "NTasks", "User")] == ["12.0", "0:11", "2", ""]


def test_a_jobs_launches_are_its_steps_and_the_workers_are_none() -> None:
    found = job(elastic=True, start_s=1e9, state="running")
    account = {"user": "ada", "submit": moment(1e9), "comment": "", "state": "RUNNING"}
    rows = [
        {**account, "base": "12", "index": "", "step": step, "jobname": name}
        for step, name in (("", "wave"), ("batch", "batch"), ("0", WORKERS))
    ]
    answer = Answer({"12": rows})
    (row,) = with_slurms([Row(found, "RUNNING")], answer, Details(Answers()), {})  # type: ignore[arg-type]
    launches = [
        {"ordinal": n, "ranks": 4, "start_s": 1e9, "end_s": None, "code": code} for n, code in ((0, 3), (1, None))
    ]
    asked = Details(Answers())  # type: ignore[arg-type]
    asked._known["1a2b3c4d"] = {**found, "steps": launches}  # type: ignore[typeddict-item]
    told = [(one.id, one.state) for one in sacct._steps(replace(row, details=asked), answer)]
    assert told == [("12.batch", "RUNNING"), ("12.0", "FAILED"), ("12.1", "RUNNING")]


@pytest.mark.parametrize(
    ("words", "heading", "printed"),
    [
        (["-o", "a%.6i|%3j|%.3t-%5u"], "a JOBID|NAM| ST-USER ", "a    12|wav| PD-ada  "),
        (["-o", "%i %!x"], "JOBID %!x", "12 %!x"),
        (["-O", "JobID:.6,Name:3x,UserName:"], " JOBIDNAMxUSER", "    12wavxada"),
        (["-O", "Name,nosuch:5"], f"{'NAME':20}", f"{'wave':20}"),
        (["-O", "account:|,minmemory:|"], "ACCOUNT|MIN_MEMORY|", "N/A|N/A|"),
    ],
)
def test_columns_are_as_wide_as_slurms(words: list[str], heading: str, printed: str) -> None:
    layout = squeue._keep_known_names(squeue._layout(options.read(squeue._KNOWN, words, "squeue")), Answer())
    row = Row(job(), "PENDING")
    assert squeue._printed(layout, lambda column: squeue._heading(column, Answer())) == heading
    assert squeue._printed(layout, lambda column: squeue_value(row, column.name)) == printed


def test_jobs_are_sorted_by_state_or_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row(job(number=number, name=name), state) for number, name, state in
            (("9", "b", "RUNNING"), ("10", "a", "PENDING"), ("11", "c", "PENDING"))]  # fmt: skip

    def order(*words: str) -> list[str]:
        line = options.read(squeue._KNOWN, options.with_variables(squeue._KNOWN, squeue._BY_VARIABLE, words), "squeue")
        return [row.number for row in squeue._sorted(rows, squeue._sort_keys(line))]

    assert (order(), order("-S", "i"), order("-S", "-j")) == (["10", "11", "9"], ["9", "10", "11"], ["11", "9", "10"])
    monkeypatch.setenv("SQUEUE_SORT", "-i")
    assert (order(), order("-S", "j")) == (["11", "10", "9"], ["10", "9", "11"])
