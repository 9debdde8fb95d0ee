"""Questions that have gathered while others were answered are answered together."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

MOST_TOGETHER = 64


class Together(Generic[Q, A]):
    """Hands questions to `answer`, those that wait at once, up to `most` of them: one of each user in turn, each user's
    in the order of their coming.

    `answer` returns an answer for each, or the exception that its asker is to meet; what it raises is met by all.
    """

    def __init__(
        self, answer: Callable[[list[Q]], Awaitable[Sequence[A | Exception]]], name: str, most: int = MOST_TOGETHER
    ) -> None:
        self._answer = answer
        self._name = name
        self._most = most
        self._waiting: OrderedDict[str, deque[tuple[Q, asyncio.Future[A]]]] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Q, user: str = "") -> A:
        """The answer. A question is not put where its asker is cancelled before its turn."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append((question, future))
        if self._task is None or self._task.done():  # of no one user's context
            self._task = asyncio.get_running_loop().create_task(self._drain(), name=self._name, context=Context())
        return await future

    def _next(self) -> tuple[Q, asyncio.Future[A]]:
        """The first of the next user in turn; the second of that user comes behind one of each other's."""
        user, own = self._waiting.popitem(last=False)
        first = own.popleft()
        if own:
            self._waiting[user] = own
        return first

    async def _drain(self) -> None:
        while self._waiting:
            some: list[tuple[Q, asyncio.Future[A]]] = []
            while self._waiting and len(some) < self._most:
                question, future = self._next()
                if not future.done():
                    some.append((question, future))
            if not some:
                continue
            answers: Sequence[A | Exception]
            try:
                answers = await self._answer([question for question, _ in some])
            except Exception as fault:
                answers = [fault] * len(some)
            for (_, future), answer in zip(some, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
