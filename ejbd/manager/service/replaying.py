"""A day's replay beside the daemon: a small one on a thread, a large one as a program of its own, that yields to all.

`python -m ejbd.manager.service.replaying` reads a day from its standard input, and writes its rows. Both ends are ours.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from typing import Any

from ejbd.errors import Code, EjbError
from ejbd.manager.facts.past.hindsight import Day, replayed

FEW = 2000  # jobs that a thread replays within a second
LONGEST_S = 3600.0


async def replay_beside(day: Day, few: int = FEW) -> list[dict[str, Any]]:
    """The rows of the day. Raises EjbError where the program does not do it."""
    if sum(pool.jobs for pool in day.pools.values()) <= few:
        return await asyncio.to_thread(replayed, day)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LONGEST_S):
            found, said = await process.communicate(await asyncio.to_thread(pickle.dumps, day))
    except TimeoutError:
        raise EjbError(Code.INTERNAL, f"the replay of a day took more than {LONGEST_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        raise EjbError(Code.INTERNAL, f"the replay of a day failed: {last[0] if last else process.returncode}")
    rows: list[dict[str, Any]] = pickle.loads(found)
    return rows


def main() -> None:
    os.nice(10)
    day: Day = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps(replayed(day)))


if __name__ == "__main__":
    main()
