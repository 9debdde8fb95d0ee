"""However much of one user's waits at a place that all share, what another user sends comes between."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from ejbd.api.sockets import ACCEPTED_AT_ONCE, REFUSED_AT_ONCE, Door, make_unix_socket, peer_of
from ejbd.batch.base import Identity, SubmitRequest
from ejbd.config import Elasticity
from ejbd.manager.jobspec import JobRequest, Overrides, read
from ejbd.manager.submission.together import Together
from ejbd.store.store import WRITES_OF_ONE, Store
from ejbd.store.turns import ASKER
from tests.fakes.many import ManyWorld

BOUND_S = 60.0


def as_asker(user: str, call: Any) -> asyncio.Task[Any]:
    """A request of that user's: a task has a context of its own."""

    async def run() -> Any:
        ASKER.set(user)
        return await call()

    return asyncio.create_task(run())


async def test_reads_of_one_user_leave_threads_to_others(store: Store) -> None:
    over = threading.Event()
    theirs = [as_asker("mallory", lambda: store.read(lambda session: over.wait(BOUND_S))) for _ in range(20)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(as_asker("bob", lambda: store.read(lambda session: "bob's")), BOUND_S) == "bob's"
    over.set()
    assert all(await asyncio.gather(*theirs))


async def test_writes_of_one_user_leave_room_before_the_writer(store: Store) -> None:
    held, over, order = threading.Event(), threading.Event(), list[str]()

    def hold(session: Session) -> None:
        held.set()
        over.wait(BOUND_S)

    first = asyncio.create_task(store.write(hold))
    assert await asyncio.to_thread(held.wait, BOUND_S)
    theirs = [as_asker("mallory", lambda: store.write(lambda session: order.append("mallory"))) for _ in range(50)]
    await asyncio.sleep(0)
    bobs = as_asker("bob", lambda: store.write(lambda session: order.append("bob")))
    await asyncio.sleep(0)
    over.set()
    await asyncio.gather(first, bobs, *theirs)
    assert order.index("bob") <= WRITES_OF_ONE and len(order) == 51


async def test_a_question_comes_between_those_of_another_user() -> None:
    batches: list[list[str]] = []

    async def answer(questions: list[str]) -> Sequence[str]:
        assert ASKER.get() == "", "of no one user's: what it asks would wait for that user's turn"
        batches.append(questions)
        await asyncio.sleep(0)
        return questions

    together: Together[str, str] = Together(answer, "questions", most=10)
    theirs = [as_asker("mallory", lambda n=n: together.ask(f"mallory {n}", "mallory")) for n in range(100)]
    await asyncio.sleep(0)
    assert await together.ask("bob", "bob") == "bob"
    assert batches[0][:2] == ["mallory 0", "bob"]
    assert await asyncio.gather(*theirs) == [f"mallory {n}" for n in range(100)]


async def test_checks_of_one_users_jobs_leave_a_turn_to_others(tmp_path: Path, store: Store) -> None:
    """Mallory's are not answered by the batch system; bob's has a turn all the same, and is shown."""
    live = ManyWorld(tmp_path, store, elasticity=Elasticity.OFF)
    begun, over, shown = asyncio.Event(), asyncio.Event(), list[str]()

    async def check(identity: Identity, request: SubmitRequest, timeout_s: float) -> None:
        shown.append(identity.user)
        begun.set()
        if identity.user == "mallory":
            await over.wait()

    live.batch.check = check  # type: ignore[method-assign]
    asked = JobRequest(cwd="/", command=("true",), overrides=Overrides(ntasks="1", time="1", elastic="off"))
    theirs = [asyncio.create_task(live.manager.submit(read(asked), "mallory", None, "")) for _ in range(20)]
    await asyncio.wait_for(begun.wait(), BOUND_S)
    taken = await asyncio.wait_for(live.manager.submit(read(asked), "bob", None, ""), BOUND_S)
    assert "bob" in shown and not [note for note in taken.notes if "no turn" in note]
    over.set()
    await asyncio.gather(*theirs)


@pytest.mark.parametrize("most", [0, 1000])
def test_connections_are_taken_a_few_at_a_time_and_what_may_not_come_is_told(tmp_path: Path, most: int) -> None:
    came: list[int] = []

    def welcome(uid: int) -> bool:
        came.append(uid)
        return len(came) <= most

    with ExitStack() as stack:
        door = stack.enter_context(Door(make_unix_socket(tmp_path / "door"), welcome, b"HTTP/1.1 429 Too Many\r\n\r\n"))
        ends = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(REFUSED_AT_ONCE + 10)]
        for end in ends:
            end.connect(str(tmp_path / "door"))
        taken = []
        with pytest.raises(BlockingIOError):
            while True:
                taken.append(stack.enter_context(door.accept()[0]))
        assert len(came) == (ACCEPTED_AT_ONCE if most else REFUSED_AT_ONCE), "the event loop goes on in between"
        assert len(taken) == (ACCEPTED_AT_ONCE if most else 0)
        assert {peer_of(one)[1] for one in ends[:1]} == set(came)
        if not most:
            ends[0].settimeout(BOUND_S)
            assert ends[0].recv(100).startswith(b"HTTP/1.1 429")
        else:
            taken.append(stack.enter_context(door.accept()[0]))
            assert len(taken) == ACCEPTED_AT_ONCE + 1
