"""Whatever a user's files are needed for is looked at as that user, and costs no other user's looks."""

from __future__ import annotations

import asyncio
import errno
import glob
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ejbd.api import submission
from ejbd.api.models import JobSubmission
from ejbd.config import Elasticity
from ejbd.files import userfiles
from ejbd.files.userfiles import apart
from ejbd.identity.ejb_as import Refused, find_files
from ejbd.manager import jobspec
from ejbd.manager.hands import hands
from ejbd.manager.jobspec import JobRequest, Overrides
from ejbd.manager.submission import flows
from ejbd.manager.submission.filelooks import FileLooks
from ejbd.manager.submission.flows import Asked
from ejbd.store.store import Store
from tests.fakes.many import ManyWorld
from tests.unit.test_manager_profile import RELAXES
from tests.unit.test_manager_workflows import Flow

PLAN = "workflow: {stages: {a: {command: ./a, tasks: 1, walltime: 1, inputs: ['%s'], outputs: [out]}}}\n"


@pytest.fixture
def live(tmp_path: Path, store: Store) -> ManyWorld:
    return ManyWorld(tmp_path, store, elasticity=Elasticity.OFF)


async def sent(live: ManyWorld, user: str, inputs: str) -> Flow:
    folder = live.folder / "homes" / user
    folder.mkdir(parents=True, exist_ok=True)
    asked = Asked(PLAN % inputs, "plan.yaml", {"cwd": str(folder), "env": {}})
    return Flow(live, (await live.manager.submit_workflow(asked, user, None))[0])


async def come_to(live: ManyWorld, found: list[Flow], state: str) -> None:
    for _ in range(400):
        await live.act()
        if all(one.states() == {"a": state} for one in found):
            return
        await asyncio.sleep(0.05)
    pytest.fail(str([one.states() for one in found]))


def calls_of(live: ManyWorld, monkeypatch: pytest.MonkeyPatch, verb: str, then: Any = None) -> list[str]:
    """Users for which that verb was asked; `then` is called for each before it is answered."""
    plain, users = live.helper.ask, list[str]()

    def ask(user: str, asked: str, **more: Any) -> dict[str, Any]:
        if asked == verb:
            users.append(user)
            if then is not None:
                then(user)
        return plain(user, asked, **more)

    monkeypatch.setattr(live.helper, "ask", ask)
    return users


async def test_inputs_outputs_and_the_word_to_begin_are_looked_at_as_the_workflows_user(
    live: ManyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.poll()
    users = calls_of(live, monkeypatch, "find")
    monkeypatch.setattr(hands, "find_files", partial(pytest.fail, "the daemon has looked by itself"))
    flow = await sent(live, "alice", "in.*")
    (live.folder / "homes/alice/in.txt").touch()
    await live.act()
    assert flow.states() == {"a": "submitted"} and set(users) == {"alice"}
    missing = await sent(live, "bob", "in.*")
    await live.act()
    assert missing.states() == {"a": "failed"} and "'in.*' of stage a is not there" in missing.row().reason
    touched = calls_of(live, monkeypatch, "touch")
    live.manager.world.hands.make_empty_file("alice", live.folder / "homes/alice/deep/x.go")
    assert touched == ["alice"] and (live.folder / "homes/alice/deep/x.go").exists()


async def test_looks_that_take_long_keep_their_own_user_waiting_alone(
    live: ManyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight workflows of mallory's, each with a pattern that takes for ever."""
    monkeypatch.setattr(flows, "TURN_S", 0.05)
    await live.poll()
    released = threading.Event()
    users = calls_of(live, monkeypatch, "find", lambda user: user == "mallory" and released.wait(60))
    theirs = [await sent(live, "mallory", "*/*/*/*/nomatch") for _ in range(8)]
    flow = await sent(live, "bob", "in.*")
    (live.folder / "homes/bob/in.txt").touch()
    await come_to(live, [flow], "submitted")
    assert users.count("mallory") == 1, "one look of a user's at a time"
    assert await apart(lambda: "read", user="bob") == "read"
    released.set()
    await come_to(live, theirs, "failed")


async def test_a_user_with_files_that_do_not_come_is_left_alone_for_a_while(
    live: ManyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.poll()

    def hangs(user: str) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "its sessions did not answer in time")

    users = calls_of(live, monkeypatch, "find", hangs)
    flow = await sent(live, "mallory", "in")
    for _ in range(5):
        await live.manager.entrance.workflows.advance()
    assert users == ["mallory"] and flow.states() == {"a": "waiting"}
    monkeypatch.setattr(flows, "time", type("Later", (), {"monotonic": lambda: 1e12}))
    await live.manager.entrance.workflows.advance()
    assert users == ["mallory"] * 2


async def test_a_look_has_a_bound_and_says_so(live: ManyWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hands, "MOST_NAMES", 50)
    await live.poll()
    flow = await sent(live, "mallory", "*/*")
    for n in range(60):
        (live.folder / "homes/mallory" / str(n)).mkdir()
    await live.act()
    assert flow.states() == {"a": "failed"} and "more than 50 names" in flow.row().reason


def test_files_are_found_as_by_a_shell(tmp_path: Path) -> None:
    for name in ("a/x1.txt", "a/x2.txt", "b/x1.txt", "b/.hidden", "top", "deep/er/still/f"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "a/dangling").symlink_to("nowhere")
    patterns = [
        "*/x?.txt",
        "a/*",
        "top",
        "*",
        "./b/.*",
        "none/*",
        "*/*/*/f",
        "b//x1.txt",
        f"{tmp_path}/[ab]/x1.*",
        "a/",
    ]
    counts = [len([n for n in glob.glob(one, root_dir=tmp_path) if (tmp_path / n).exists()]) for one in patterns]  # noqa: PTH207
    assert [int(found[0]) for found in find_files(str(tmp_path), patterns, 1000, 10)] == counts
    os.utime(tmp_path / "a/x1.txt", (5, 5))
    os.utime(tmp_path / "b/x1.txt", (9, 9))
    assert find_files(str(tmp_path), ["*/x1.txt", "gone"], 1000, 10) == [[2, 5.0, 9.0], [0, 0.0, 0.0]]
    for most, seconds in ((3, 10.0), (1000, -1.0)):
        with pytest.raises(Refused, match="more than"):
            find_files(str(tmp_path), ["*/*"], most, seconds)


async def test_threads_that_wait_for_one_users_files_are_a_part_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 streams of mallory's output, none of which comes: the output of bob's job is read meanwhile."""
    released = threading.Event()
    streams = [asyncio.create_task(apart(lambda: released.wait(60), 60, user="mallory")) for _ in range(32)]
    await asyncio.sleep(0.1)
    assert await apart(lambda: "output", user="bob") == "output"
    with pytest.raises(TimeoutError):
        await apart(lambda: "output", 0.1, user="mallory")
    released.set()
    assert all(await asyncio.gather(*streams))
    assert await apart(lambda: "output", user="mallory") == "output"
    for _ in range(200):  # a thread gives its share back behind its answer
        if not +userfiles._of_users:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"it counts still: {userfiles._of_users}")


async def test_long_scripts_of_one_user_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty of mallory's, none of which comes to an end: bob's is read meanwhile."""
    released, begun = threading.Event(), list[str]()

    def read(body: JobSubmission, hashed: bool) -> tuple[Any, str]:
        begun.append(body.cwd)
        if body.cwd == "/mallory":
            released.wait(60)
        return None, body.cwd

    monkeypatch.setattr(submission, "_read", read)
    long = "echo\n" * 10_000
    theirs = [
        asyncio.create_task(submission.read_submission(JobSubmission(cwd="/mallory", script=long), "mallory"))
        for _ in range(50)
    ]
    async with asyncio.timeout(60):
        while not begun:  # noqa: ASYNC110  # a thread sets no event
            await asyncio.sleep(0.01)
    body = JobSubmission(cwd="/bob", script=long)
    assert (await asyncio.wait_for(submission.read_submission(body, "bob"), 30))[1] == "/bob"
    assert begun == ["/mallory", "/bob"]
    released.set()
    assert [digest for _, digest in await asyncio.gather(*theirs)] == ["/mallory"] * 50


async def test_what_a_profile_needs_of_a_case_is_read_as_the_jobs_user(tmp_path: Path) -> None:
    """In a home that is closed to the daemon; and a FIFO in its place keeps no thread."""
    read_by = list[str]()

    def read_file(user: str, path: Path, most: int) -> bytes:
        read_by.append(f"{user} {path.name}")
        return RELAXES.encode()

    looks = FileLooks(own=False, read_file=read_file)
    os.mkfifo(tmp_path / "si.in")
    script = "#!/bin/sh\n#SBATCH -n 16 -t 10\nsrun pw.x -in si.in\n"
    job = jobspec.read(JobRequest(cwd=str(tmp_path), script=script, overrides=Overrides()))
    profile = (await looks.at(job, "alice")).spec.profile
    assert profile is not None and profile["name"] == "pwscf" and profile["sent"], "its worker looks again"
    assert set(read_by) == {"alice si.in"}
    threads = threading.active_count()
    for _ in range(40):
        await FileLooks(own=False).at(job, "alice")
    assert threading.active_count() <= threads + 2
