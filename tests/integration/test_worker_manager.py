"""A manager that is away, repeats itself, refuses, or no longer wants the subjob; and a spool that is full."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.worker_process import World, alive, eventually, worker_command, world


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        yield value


def copies(there: World) -> list[Path]:
    return sorted((there.manager.subjob_dir / "reports").glob("*.jsonl"))


def told(there: World) -> list[str]:
    """The kinds of all reports but samples, which come by the clock."""
    return [report["kind"] for report in there.manager.reports if report["kind"] != "sample"]


def test_the_application_outlives_an_absent_manager(there: World) -> None:
    there.start()
    pids = there.launch("sh", "-c", "[ $EJB_RANK = 0 ] && exec sleep 60; sleep 0.5; exit 6", ranks=2)
    before = told(there)
    there.manager.stop()
    eventually(lambda: "rank-exit" in copies(there)[0].read_text())
    assert alive(pids[0])
    there.manager.start()  # on another port: the worker reads manager.json again
    assert there.exits(1) == {1: 6}
    assert alive(pids[0])
    assert [report["n"] for report in there.manager.reports] == list(range(1, len(there.manager.reports) + 1))
    assert told(there) == [*before, "rank-exit"]
    assert len({registration["boot"] for registration in there.manager.registrations}) == 1
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 1})["data"] == {"exits": {"0": 143, "1": 6}}


def test_a_manager_with_an_older_memory_goes_on_where_the_worker_is(there: World) -> None:
    """It asks for the same placement once more: nothing is launched, and ends so far are told again."""
    there.start()
    pids = there.launch("sh", "-c", "[ $EJB_RANK = 0 ] && exec sleep 60; exit 6", ranks=2, epoch=2)
    there.manager.wait_for(lambda: "rank-exit" in told(there))
    assert there.launch("false", ranks=2, epoch=2) == pids
    there.manager.wait_for(lambda: told(there).count("rank-exit") == 2)
    earlier = there.manager.run("launch", there.launch_payload(there.launch_file("true"), epoch=1), epoch=1)
    assert not earlier["ok"] and alive(pids[0])
    there.manager.stop()
    there.manager.start()
    there.manager.wait_for(lambda: len(there.manager.registrations) > 1)
    assert there.manager.registrations[-1]["accepted"] == len(there.manager.reports)
    assert there.manager.run("stop", {"epoch": 2, "grace_s": 1})["ok"]
    there.launch("true", epoch=3)


def test_a_manager_that_is_not_there_at_the_start(there: World) -> None:
    there.manager.start()
    there.manager.stop()
    there.process = subprocess.Popen(worker_command(there.manager.subjob_dir, "--processors", "2"))
    time.sleep(0.5)
    (there.spool / "manager.json").write_text("{ half of it")
    time.sleep(0.3)
    assert there.process.poll() is None
    there.manager.start()
    there.manager.wait_for(lambda: there.manager.registrations)
    assert there.manager.registrations[0]["processors"] == 2


def test_an_operation_delivered_twice_is_carried_out_once(there: World) -> None:
    there.start()
    there.launch("sh", "-c", "echo started; exec sleep 60")
    eventually(lambda: there.rank_output(0))

    def again() -> bool:
        there.manager.deliver_again()  # in vain for as long as the first answer is on its way
        time.sleep(0.2)
        return len([r for r in there.manager.of_kind("result") if r["seq"] == 1]) >= 2

    eventually(again)
    first, second = [r for r in there.manager.of_kind("result") if r["seq"] == 1][:2]
    assert {**first, "n": 0, "told_s": 0} == {**second, "n": 0, "told_s": 0}
    assert there.rank_output(0) == "started\n"


def test_an_operation_under_way_is_not_begun_again(there: World) -> None:
    there.start()
    there.launch("sh", "-c", "trap 'sleep 0.6; exit 85' USR1; echo ready; while :; do sleep 0.1; done")
    eventually(lambda: there.rank_output(0))
    seq = there.manager.send("checkpoint", {"epoch": 1, "timeout_s": 20})
    time.sleep(0.3)
    there.manager.deliver_again()
    assert there.manager.result(seq)["ok"]
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 0})["ok"]
    assert len([r for r in there.manager.of_kind("result") if r["seq"] == seq]) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("status", [401, 403])
def test_told_three_times_that_it_is_not_wanted(there: World, status: int) -> None:
    there.start()
    pids = there.launch("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", ranks=2)
    there.manager.status = status
    assert there.worker.wait(20) == 3
    assert not any(alive(pid) for pid in pids.values())


def test_a_manager_that_does_not_know_the_subjob_ends_nothing(there: World, tmp_path: Path) -> None:
    """A daemon with a wrong or empty database: it cannot prove itself. The ranks run on until the right one is back."""
    with (tmp_path / "words").open("wb") as words:
        there.start(stderr=words)
    pids = there.launch("sleep", "60", ranks=2)
    right, there.manager.secret = there.manager.secret, "another database's"
    words_of = (tmp_path / "words").read_text
    eventually(lambda: "answer 401 without the manager's proof" in words_of())
    time.sleep(3)  # more than three refusals
    assert there.worker.poll() is None and all(alive(pid) for pid in pids.values())
    assert words_of().count("answer 401 without the manager's proof") == 1, "told once"
    there.manager.secret = right
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 1})["ok"]
    eventually(lambda: "the manager answers again" in words_of())


def test_one_refusal_is_not_enough(there: World) -> None:
    there.start()
    pids = there.launch("sleep", "60")
    seen = len(there.manager.requests)
    there.manager.status = 403
    there.manager.wait_for(lambda: len(there.manager.requests) > seen)
    there.manager.status = None
    assert there.manager.run("stop", {"epoch": 5, "grace_s": 0})["ok"]
    assert alive(pids[0])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("status", [500, 503, 418])
def test_other_failures_mean_that_the_manager_is_away(there: World, status: int) -> None:
    there.start()
    pids = there.launch("sleep", "60")
    seen = len(there.manager.requests)
    there.manager.status = status
    there.manager.wait_for(lambda: len(there.manager.requests) > seen + 3)
    assert alive(pids[0])
    there.manager.status = None
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 1})["ok"]


def test_a_manager_that_forgot_the_worker(there: World) -> None:
    there.start()
    pids = there.launch("sleep", "60")
    there.manager.workers.clear()
    there.manager.wait_for(lambda: len(there.manager.registrations) > 1)
    first, *_, last = there.manager.registrations
    assert {**first, "accepted": 1} == last
    assert alive(pids[0])


def test_a_report_that_can_never_be_taken_does_not_hold_up_the_others(there: World) -> None:
    there.start()
    there.manager.refuse_report = lambda report: report["kind"] == "rank-exit" and report["rank"] == 0
    there.launch("sh", "-c", "exit 4", ranks=2)
    there.manager.wait_for(lambda: there.manager.of_kind("rank-exit") and there.manager.of_kind("log"))
    assert [report["rank"] for report in there.manager.of_kind("rank-exit")] == [1]
    assert "rank-exit was refused" in there.manager.of_kind("log")[0]["message"]
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 0})["data"] == {"exits": {"0": 4, "1": 4}}


def test_heartbeats_while_nothing_happens(there: World) -> None:
    there.manager.heartbeat_s = 0.2
    there.start()
    there.manager.wait_for(lambda: there.manager.heartbeats >= 3)


def test_undelivered_reports_stay_in_the_spool(there: World) -> None:
    there.start()
    there.launch("sh", "-c", "sleep 0.3; exit 9")
    there.manager.stop()
    eventually(lambda: "rank-exit" in copies(there)[0].read_text())
    there.worker.terminate()
    assert there.worker.wait(20) == 143
    lines = [json.loads(line) for line in copies(there)[0].read_text().splitlines()]
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    assert [line["kind"] for line in lines if line["n"] > there.manager.stored["w1"]] == ["rank-exit", "leaving"]


def test_delivered_reports_do_not(there: World) -> None:
    there.start()
    there.launch("true")
    there.exits(1)
    there.manager.send("exit", {})
    assert there.worker.wait(20) == 0
    assert copies(there) == []


def test_a_spool_that_takes_no_reports(there: World) -> None:
    """As on a full disk: what the worker cannot write down it keeps in memory, and nothing stops."""
    (there.manager.subjob_dir / "reports").write_text("in the way of the folder")
    there.start()
    there.launch("sh", "-c", "sleep 0.3; exit 9")
    there.manager.stop()
    time.sleep(0.8)
    there.manager.start()
    assert there.exits(1) == {0: 9}


def test_files_that_cannot_grow(there: World) -> None:
    """A limit on the size of files, which the ranks do not notice and the report buffer soon meets."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))

    there.start(preexec_fn=limit)
    there.launch("sh", "-c", "sleep 0.2; exit $EJB_RANK", ranks=12)
    assert there.exits(12) == {rank: rank for rank in range(12)}
    assert there.worker.poll() is None
    assert all(path.stat().st_size <= 400 for path in copies(there))
