"""The judge of the soak can condemn: each kind of wrong is found, and what is right is let be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.acceptance.soaks.reckoning import Left, open_subjobs, should, wrong_with
from tests.acceptance.soaks.records import End, Story
from tests.acceptance.soaks.sent import Done, Sent

WELL = Left("completed", 0, "", result=True, runs=1, output="begin\nend\n", j0=frozenset({"7"}))


def story(state: str, code: int | None = 0, **more: bool) -> Story:
    return Story("7", "ejb-j.0", ran=True, live=False, ends=[End(state, code)], **more)


def sent(kind: str, *done: Done) -> Sent:
    return Sent("key", kind, id="j", done=list(done))


def found(job: Sent, ended: Story, **left: object) -> str:
    return "; ".join(wrong_with(job, [ended], replace(WELL, **left)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["application", "none", "script", "restartable", "rigid"])
def test_what_is_right_is_let_be(kind: str) -> None:
    assert found(sent(kind), story("completed")) == ""


@pytest.mark.parametrize("kind", ["application", "none", "script", "rigid"])
@pytest.mark.parametrize("state", ["timeout", "failed", "cancelled"])
def test_a_job_that_did_its_work_and_is_told_otherwise_is_found(kind: str, state: str) -> None:
    assert "told wrongly" in found(sent(kind), story("completed"), state=state, code=None)


def test_the_batch_systems_word_comes_first() -> None:
    assert "told wrongly" in found(sent("rigid"), story("cancelled", 15))
    assert found(sent("rigid"), story("cancelled", 15), state="cancelled", code=None) == ""
    assert "told wrongly" in found(sent("rigid"), story("cancelled", 15), state="timeout", code=None)
    assert found(sent("rigid-failing"), story("failed", 7), state="failed", code=7, output="begin\n") == ""
    assert "told wrongly" in found(sent("rigid-failing"), story("failed", 7), state="failed", code=1, output="begin\n")


def test_a_place_holder_that_was_cancelled_is_a_cancelled_job_and_another_subjob_is_not() -> None:
    taken = sent("none", Done("scancel", "ejb-j.0"))
    gone = {"result": None, "output": "", "runs": 0}
    assert "told wrongly" in found(taken, story("cancelled", 15), state="timeout", code=None, **gone)
    assert found(taken, story("cancelled", 15), state="cancelled", code=None, **gone) == ""
    elsewhere = {"j0": frozenset({"9"}), **gone}
    assert "told wrongly" in found(taken, story("cancelled", 15), state="cancelled", code=None, **elsewhere)


def test_a_time_out_counts_only_where_something_ran_until_the_limit() -> None:
    away = {"state": "timeout", "code": None, "result": None}
    assert found(sent("none"), story("timeout", None), **away) == ""
    assert "told wrongly" in found(sent("none"), replace(story("timeout", None), ran=False), **away)


def test_work_that_is_lost_is_found() -> None:
    assert "its result is wrong" in found(sent("application"), story("completed"), result=False)
    assert "its result is missing" in found(sent("none"), story("completed"), result=None)
    assert "its output is ''" in found(sent("script"), story("completed"), output=None)
    assert "never began" in found(sent("rigid"), story("completed"), runs=0)


def test_what_is_there_twice_is_found() -> None:
    assert "began 2 times" in found(sent("rigid"), story("completed"), runs=2)
    assert "two live copies" in found(sent("application"), story("completed"), doubled=("rank 0",))


def test_a_batch_job_that_is_left_is_found() -> None:
    assert "left behind" in found(sent("application"), replace(story("completed"), live=True))


def test_a_killed_worker_excuses_a_script_that_cannot_begin_again_and_nobody_else() -> None:
    killed = Done("worker killed", "1")
    assert ("failed", None) in should(sent("script", killed), [story("completed")], WELL)
    for kind in ("application", "none", "restartable"):
        assert should(sent(kind, killed), [story("completed")], WELL) == {("completed", 0)}


def test_what_began_alone_is_told_as_the_batch_system_says() -> None:
    alone = {"alone": "ejb-j.0", "result": None}
    assert found(sent("application"), story("failed", 7), state="failed", code=7, **alone) == ""
    assert found(sent("application"), story("cancelled", None), state="cancelled", code=None, **alone) == ""
    assert "told wrongly" in found(sent("application"), story("failed", 7), **alone)
    assert "told wrongly" in found(sent("application"), story("completed"), state="failed", code=7, **alone)
    assert "began 2 times" in found(sent("script"), story("completed"), **{**alone, "result": True, "runs": 2})


def test_what_slurm_itself_gives_up_as_cancelled_is_told_so_where_its_controller_was_killed_and_nowhere_else() -> None:
    gone = {"state": "cancelled", "code": None, "result": None, "output": "", "runs": 0}
    killed = sent("application", Done("controller killed", ""))
    assert found(killed, story("cancelled", 0), **gone) == ""
    assert "told wrongly" in found(sent("application"), story("cancelled", 0), **gone)
    assert "told wrongly" in found(killed, replace(story("cancelled", 0), ran=False), **gone)


def test_a_job_that_was_too_small_to_be_elastic_is_told_as_the_batch_system_says() -> None:
    small = {"as_it_is": True, "state": "cancelled", "code": 0, "result": None, "output": None, "runs": 0}
    cancelled = sent("failing", Done("scancel", "ejb-j.0"))
    assert found(cancelled, story("cancelled", 0), **small) == ""
    assert "told wrongly" in found(cancelled, story("failed", 7), **small)


def test_ranks_whose_peer_was_killed_may_be_heard_of_first_and_no_other_code_may() -> None:
    failed = {"state": "failed", "result": None, "output": "heat: rank 1: rank 0 has gone\n"}
    killed = sent("none", Done("rank killed", "1"))
    assert found(killed, story("failed", 1), code=137, **failed) == ""
    assert found(killed, story("failed", 1), code=1, **failed) == ""
    assert "told wrongly" in found(killed, story("failed", 1), code=2, **failed)
    assert "told wrongly" in found(sent("none"), story("failed", 1), code=1, **failed)


def test_what_slurm_itself_is_completing_is_not_left_behind_and_whatever_else_is_open_is() -> None:
    rows = [("running", "7"), ("running", "8"), ("suspended", "9"), ("pending", None), ("completed", "7")]
    subjobs = [{"id": f"j.{i}", "state": state, "batch_id": id} for i, (state, id) in enumerate(rows)]
    states = {("7", "ejb-j.0"): "COMPLETING", ("8", "ejb-j.1"): "RUNNING"}
    left, ending = open_subjobs({"state": "failed", "subjobs": subjobs}, states)
    assert ending == ["subjob j.0 running (batch job 7: COMPLETING)"]
    assert left == [
        "subjob j.1 running (batch job 8: RUNNING)",
        "subjob j.2 suspended (batch job 9: not listed)",
        "subjob j.3 pending (batch job None: not listed)",
    ]


def test_a_job_of_which_the_batch_system_knows_nothing_is_asked_for_and_one_that_is_listed_is_left_behind() -> None:
    job = {"state": "unknown", "subjobs": [{"id": "j.0", "state": "running", "batch_id": "7"}]}
    assert open_subjobs(job, {("8", "ejb-j.0"): "RUNNING"}) == ([], [])
    assert open_subjobs(job, {("7", "ejb-k.0"): "COMPLETED"}) == ([], []), "another job has its id now"
    assert open_subjobs(job, {("7", "ejb-j.0"): "RUNNING"})[0] and open_subjobs({**job, "state": "failed"}, {})[0]
