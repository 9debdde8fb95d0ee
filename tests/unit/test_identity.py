"""Which user something is done as: users' spools, whose tag is whose, and what is asked of `ejb-as`."""

from __future__ import annotations

import asyncio
import os
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.batch.base import AsAsked, Identity, SubmitRequest
from ejbd.batch.slurm import SlurmBatch
from ejbd.config import Settings
from ejbd.core.view import BatchJobView, BatchState, ClusterView, Reservations
from ejbd.errors import BatchError, Code, EjbError, SubmitOutcomeUnknown
from ejbd.identity.sessions import Helper, NoAnswer, not_reached
from ejbd.identity.spools import SpoolPattern, checked_pattern
from ejbd.manager.facts.listing.roster import Roster
from ejbd.manager.facts.owners import Owners
from ejbd.manager.hands.hands import UsersHands
from ejbd.manager.hands.spool import Spool
from tests.fakes.unrun import Unrun

ME = pwd.getpwuid(os.geteuid()).pw_name


def test_a_users_spool_is_found_by_the_user_and_the_user_by_a_path_in_it() -> None:
    pattern = SpoolPattern(checked_pattern("/scratch/%u/.ejb"))
    assert pattern.of("alice") == Path("/scratch/alice/.ejb")
    assert pattern.user_at(Path("/scratch/alice/.ejb/jobs/1/env.json")) == "alice"
    assert pattern.user_at(Path("/scratch/alice/.ejb")) == "alice"
    for path in ("/scratch/alice", "/scratch/alice/ejb/x", "/home/alice/.ejb/x", "/scratch/../.ejb/x", "x"):
        assert pattern.user_at(Path(path)) is None
    assert pattern.user_at(Path("/scratch/alice/.ejb/../../bob/.ejb/x")) is None
    for user in ("", "..", "a/b", "%u", "a b", "-x"):
        with pytest.raises(ValueError):
            pattern.of(user)
    for text in ("scratch/%u", "/scratch", "/scratch/%u/%u", "/scratch/x%u", "/scratch/%j/%u", "/a/../%u"):
        with pytest.raises(ValueError):
            checked_pattern(text)


@given(st.text())
def test_no_path_is_of_a_user_in_whose_spool_it_is_not(text: str) -> None:
    pattern = SpoolPattern("/scratch/%u/.ejb")
    try:
        path = Path("/scratch", text)
    except ValueError:
        return
    user = pattern.user_at(path)
    assert user is None or path.is_relative_to(pattern.of(user))


def test_the_daemon_does_not_begin_with_a_helper_where_nothing_would_ask_it() -> None:
    with pytest.raises(ValueError, match="the embedded cluster is one user's own"):
        Settings(identity="helper", batch="local")
    with pytest.raises(ValueError, match="%u"):
        Settings(batch="slurm", helper={"spool": "/scratch/ejb"})


def test_a_tag_is_good_on_its_own_users_batch_job_alone() -> None:
    def job(id: str, user: str, tag: str) -> BatchJobView:
        return BatchJobView(id, "x", user, "batch", BatchState.RUNNING, 1, tag=tag)

    owners = Owners()
    rows = (job("1", "alice", "ejb-3f.0"), job("2", "mallory", "ejb-3f.1"), job("3", "alice", "ejb-9.0"))
    view = ClusterView(0.0, (), (*rows, job("4", "bob", "")), (), Reservations.NODES)
    assert owners.unknown(view) == {"3f", "9"}
    owners._users = {"3f": "alice"}
    seen = {one.id: one for one in owners.verified(view).jobs}
    assert (seen["1"].mark, seen["1"].foreign) == ("ejb-3f.0", False)
    assert (seen["2"].mark, seen["2"].foreign) == ("", True), "another user's"
    assert (seen["3"].mark, seen["3"].foreign) == ("", True), "of no job of this daemon's"
    assert seen["4"].foreign is False


def test_a_number_that_a_user_makes_sbatch_say_makes_no_other_users_batch_job_its_own() -> None:
    """Mallory can make the own `sbatch` answer anything, such as the numbers of alice's batch jobs."""

    def job(id: str, user: str) -> BatchJobView:
        return BatchJobView(id, "x", user, "batch", BatchState.PENDING, 1, submit_s=5.0)

    def subjob(job: str, id: str) -> Any:
        return SimpleNamespace(job_id=job, tag=f"ejb-{job}.0", batch_id=id, told_submit_s=5.0, stays=False)

    jobs: Any = {"a": SimpleNamespace(user="alice"), "b": SimpleNamespace(user="mallory")}
    roster = Roster(jobs, {"a": [subjob("a", "1")], "b": [subjob("b", "1"), subjob("b", "2"), subjob("b", "3")]})
    view = ClusterView(0.0, (), (job("1", "alice"), job("2", "alice"), job("3", "mallory")), (), Reservations.NODES)
    seen = {one.id: (one.mark, one.foreign) for one in roster.known_in(view, by_user=True).jobs}
    assert seen["1"] == ("ejb-a.0", False), "alice's own, whatever mallory's says"
    assert seen["2"] == ("", True), "no job of EJB's, and not mallory's either"
    assert seen["3"] == ("ejb-b.0", False)


class Asked(Helper):
    """Keeps what it is asked, and answers as `answer` says."""

    def __init__(self, answer: Any) -> None:
        super().__init__(Path(), [], "/scratch/%u/.ejb")
        self.answer, self.requests = answer, []  # type: ignore[var-annotated]

    def ask(self, user: str, verb: str, *, answer_s: float = 0, **fields: Any) -> dict[str, Any]:
        self.requests.append((user, verb, fields))
        if isinstance(self.answer, Exception):
            raise self.answer
        return {
            "ok": True,
            "code": 0,
            "timed_out": False,
            "stdout": "12\n",
            "stderr": "",
            "seconds": 0.1,
            **self.answer,
        }


def batch(helper: Helper, folder: Path) -> SlurmBatch:
    (folder / "scontrol").write_text("#!/bin/sh\necho ClusterName=x\n")
    (folder / "scontrol").chmod(0o755)
    return SlurmBatch(path=f"{folder}:/usr/bin:/bin", helper=helper)


def request(**more: Any) -> SubmitRequest:
    given: dict[str, Any] = {
        "tag": "ejb-3f.0",
        "comment": "mine",
        "queue": "batch",
        "processors": 4,
        "walltime_s": 60.0,
    }
    given |= {"walltime_s": 60.0, "script": "#!/bin/sh\n", "workdir": Path("/w"), "output": Path("/w/out")}
    return SubmitRequest(**(given | more))


def test_what_the_adapter_asks_for_another_user_is_what_the_helper_lets_through(tmp_path: Path) -> None:
    helper = Asked({})
    slurm = batch(helper, tmp_path)
    asked = AsAsked(
        ["-n", "4", "--part=x"], None, Path("/w"), "name", {"TZ": "CET", "A": "b"}, None, "name", told={"T": "1"}
    )
    own = request(environment={"A": "b"}, options=["--account=x"])
    as_typed = request(asked=asked, umask=0o22, limits={"nofile": 99}, args=["x"])
    for one in (own, as_typed):
        assert asyncio.run(slurm.submit(Identity(ME), one)) == "12"
        asyncio.run(slurm.check(Identity(ME), one, 10))
    asyncio.run(slurm.cancel(Identity(ME), ["12", "13_1"]))
    for change in ({"hold": True}, {"hold": False}, {"begins": True}, {"begins": False}, {"walltime_s": 90.0}):
        asyncio.run(slurm.update(Identity(ME), "12", **change))
    asyncio.run(slurm.reduce(Identity(ME), "12", held=True))
    asyncio.run(slurm.set_aside(Identity(ME), "12"))
    tmp_path.chmod(0o755)
    session = Unrun(tmp_path / "spool")
    for user, verb, fields in helper.requests:
        answer = session.ask(verb=verb, **fields)
        assert user == ME and answer["ok"], (verb, fields, answer)
    commands = [" ".join(argv) for argv in session.ran]
    assert "--account=x" in commands[0] and commands[0].count("--comment=mine ejb-3f.0") == 1
    assert commands[1].endswith("--test-only") and "--comment" not in commands[1]
    assert commands[2].startswith(
        "sbatch --ntasks=4 --partition=x --parsable --job-name=name --export=ALL --comment=mine ejb-3f.0"
    )
    assert commands[2].endswith("/dev/stdin x")
    fields = helper.requests[2][2]
    assert fields["wording"] == {"LC_ALL": "C", "TZ": "CET"} and fields["umask"] == 0o22
    assert fields["environment"]["A"] == "b" and fields["environment"]["T"] == "1" and fields["cwd"] == "/w"
    assert "scancel 12 13_1" in commands and "scontrol requeuehold 12" in commands


@pytest.mark.parametrize(
    ("answer", "kind", "transient"),
    [
        (EjbError(Code.FORBIDDEN, "no"), BatchError, False),
        (not_reached("it is away"), BatchError, True),
        (NoAnswer(ME, "submit", "it died"), SubmitOutcomeUnknown, True),
        (FileNotFoundError(2, "No such file or directory"), BatchError, False),
        ({"timed_out": True, "stdout": "", "code": -9}, SubmitOutcomeUnknown, True),
        ({"code": 1, "stdout": "", "stderr": "sbatch: error: invalid partition"}, BatchError, False),
    ],
)
def test_what_comes_of_a_submission_is_told_apart(tmp_path: Path, answer: Any, kind: type, transient: bool) -> None:
    """What surely did not happen, what may have happened, and what never will."""
    slurm = batch(Asked(answer), tmp_path)
    with pytest.raises(BatchError) as failed:
        asyncio.run(slurm.submit(Identity(ME), request()))
    assert type(failed.value) is kind and failed.value.transient is transient
    assert slurm.command_counts["sbatch"].failures == slurm.command_counts["sbatch"].calls == 1
    with pytest.raises(BatchError, match="no user"):
        asyncio.run(slurm.submit(Identity("no-such-user-here"), request()))


@pytest.mark.parametrize(
    ("answer", "good"),
    [(EjbError(Code.FORBIDDEN, "no"), True), (not_reached("x"), False), (OSError(2, "x"), False), ({}, False)],
)
def test_the_doctor_says_whether_the_helper_answers_and_refuses_root(answer: Any, good: bool) -> None:
    name, fine, said = Asked(answer).examined()
    assert (name, fine) == ("ejb-as", good) and said


class InProcess(Helper):
    """The helper's own code, in this process, for a user that has the spool."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Path(), [], f"{folder}/%u/.ejb")
        (folder / ME).mkdir()
        self.session = Unrun(self.spools.of(ME))
        self.away = False

    def ask(self, user: str, verb: str, *, answer_s: float = 0, **fields: Any) -> dict[str, Any]:
        if self.away or user != ME:
            raise not_reached("it is away")
        answer = self.session.ask(verb=verb, **fields)
        if "errno" in answer:
            raise OSError(answer["errno"], answer["error"])
        if not answer["ok"]:
            raise EjbError(Code.FORBIDDEN, answer["error"])
        return answer


def test_workers_of_every_user_are_told_where_the_daemon_is_as_soon_as_that_can_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    helper = InProcess(tmp_path)
    hands = UsersHands(Spool(tmp_path / "own"), helper)
    hands.own.prepare()
    hands.begin([ME], "ours")
    file = helper.spools.of(ME) / "manager.json"
    helper.away = True
    hands.publish("http://first")
    hands.tell()
    assert not file.exists(), "and nothing is lost by that: it is told again"
    with pytest.raises(EjbError) as failed:
        hands.ready(ME)
    assert failed.value.code is Code.SPOOL and failed.value.transient
    helper.away = False
    hands.tell()
    assert "http://first" in file.read_text()
    spool = hands.ready(ME)
    assert spool.worker.name.startswith("worker-") and spool.worker.exists()
    hands.publish("http://second")
    hands.tell()
    assert "http://second" in file.read_text()
    spool.make_job("3f", env={}, script=None, command=None)
    assert hands.job_folders([ME]) == [(spool, {"3f"})]
    assert hands.read(spool.env_file("3f"), 10)[0] == b"{}"
    with pytest.raises(FileNotFoundError):
        hands.read(tmp_path / "own" / "x", 10)
    with pytest.raises(EjbError):
        hands.spool_of("../x")


def test_two_daemons_with_one_pattern_of_spools_touch_nothing_of_each_others_jobs(tmp_path: Path) -> None:
    """Each knows nothing of the other's jobs: it would delete their folders, and lead their workers to itself."""
    tmp_path.chmod(0o755)
    helper = InProcess(tmp_path)
    first, second = (UsersHands(Spool(tmp_path / name), helper) for name in ("first", "second"))
    for hands, database in ((first, "one"), (second, "another")):
        hands.begin([], database)
        hands.publish(f"http://{database}")
    spool = first.ready(ME)
    spool.make_job("3f", env={}, script=None, command=None)
    assert second.job_folders([ME]) == [] and first.job_folders([ME]) == [(spool, {"3f"})]
    with pytest.raises(EjbError) as refused:
        second.ready(ME)
    assert refused.value.code is Code.CONFLICT and "identity.json" in refused.value.sentence()
    assert "http://one" in (spool.root / "manager.json").read_text()
    (spool.root / "identity.json").unlink()  # what the sentence says where the first one is gone
    assert second.ready(ME).root == spool.root and first.job_folders([ME]) == []
    (spool.root / "identity.json").write_text("[]")
    assert second.job_folders([ME]) == [], "what its user writes there is believed no more than that"
