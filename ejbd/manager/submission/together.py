"""Questions that have gathered while others were answered are answered together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

MOST_TOGETHER = 64


class Together(Generic[Q, A]):
    """Hands questions to `answer` in the order of their coming, those that wait at once, up to `most` of them.

    `answer` returns an answer for each, or the exception that its asker is to meet; what it raises is met by all.
    """

    def __init__(
        self, answer: Callable[[list[Q]], Awaitable[Sequence[A | Exception]]], name: str, most: int = MOST_TOGETHER
    ) -> None:
        self._answer = answer
        self._name = name
        self._most = most
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Q) -> A:
        """The answer. A question is not put where its asker is cancelled before its turn."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), name=self._name)
        return await future

    async def _drain(self) -> None:
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            if not (some := [(question, future) for question, future in some if not future.done()]):
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
