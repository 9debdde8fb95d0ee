"""Commands of batch systems are started as their submitters would have started them, whichever event loop runs."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ejbd.batch.process import Commands, Surroundings

UMASKS = (None, 0o027)


@pytest.mark.parametrize("runs", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_command_has_the_umask_the_limits_and_the_directory_of_its_submitter(
    runs: Callable[..., Any], tmp_path: Path
) -> None:
    ours = resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    async def said(umask: int | None) -> list[str]:
        where = Surroundings(tmp_path, umask, {"nofile": ours - 7})
        words = ["sh", "-c", "umask; ulimit -S -n; pwd; cat; echo $1", "sh", "a  b"]
        result = await Commands().run(words, timeout_s=60, stdin="in\n", surroundings=where)
        assert result.code == 0, result
        return result.stdout.splitlines()

    without, given = (runs(said(umask)) for umask in UMASKS)
    assert given == ["0027", str(ours - 7), str(tmp_path), "in", "a  b"]
    assert without[1:] == given[1:]
