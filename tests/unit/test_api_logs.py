"""A job's output over REST: in pieces, followed, and never anybody else's files."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy.orm import Session

from ejbd.api import logs
from ejbd.api.app import create_app
from ejbd.api.auth import digest
from ejbd.config import Settings
from ejbd.store.models import Token
from ejbd.store.states import JobState
from tests.fakes.port import FakeManager, new_store

ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[FakeManager]:
    store = new_store(tmp_path / "ejbd.sqlite")

    def token(session: Session) -> None:
        session.add(Token(digest=digest("ejb_me"), user=ME, created_s=0.0, expires_s=4e9, scope="jobs"))
        session.add(Token(digest=digest("ejb_stranger"), user="nobody", created_s=0.0, expires_s=4e9, scope="jobs"))

    await store.write(token)
    yield FakeManager(Settings(state_dir=tmp_path), store)
    store.close()


def client(manager: FakeManager, user: str = "me") -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(manager)),
        base_url="http://ejbd",
        headers={"Authorization": f"Bearer ejb_{user}"},
    )


async def job_writing_to(api: httpx.AsyncClient, output: Path, error: Path | None = None) -> str:
    overrides = {"time": "5", "output": str(output), **({"error": str(error)} if error else {})}
    answer = await api.post("/v1/jobs", json={"cwd": "/", "command": ["x"], "overrides": overrides})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_output_comes_in_pieces(manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CHUNK", 4)
    api = client(manager)
    id = await job_writing_to(api, tmp_path / "%j.out", tmp_path / "%x.err")
    empty = await api.get(f"/v1/jobs/{id}/logs")
    assert (empty.content, empty.headers["x-ejb-complete"]) == (b"", "false")
    (tmp_path / f"{id}.out").write_bytes(b"abcdef")
    (tmp_path / "x.err").write_bytes(b"oops")
    first = await api.get(f"/v1/jobs/{id}/logs")
    assert (first.content, first.headers["x-ejb-next-offset"]) == (b"abcd", "4")
    assert (await api.get(f"/v1/jobs/{id}/logs?stream=stderr")).content == b"oops"
    await manager.end(id, JobState.CANCELLED)
    rest = await api.get(f"/v1/jobs/{id}/logs?offset=4")
    assert (rest.content, rest.headers["x-ejb-complete"]) == (b"ef", "true")
    assert (await api.get(f"/v1/jobs/{id}/logs?stream=nix")).status_code == 422


async def test_output_is_followed_to_the_end(manager: FakeManager, tmp_path: Path) -> None:
    api = client(manager)
    output = tmp_path / "out"
    id = await job_writing_to(api, output)

    async def run() -> None:
        for line in (b"one\n", b"two\n"):
            with output.open("ab") as file:
                file.write(line)
            await asyncio.sleep(0.05)
        await manager.end(id, JobState.CANCELLED)

    answer, _ = await asyncio.wait_for(asyncio.gather(api.get(f"/v1/jobs/{id}/logs?follow=true"), run()), 20)
    assert answer.content == b"one\ntwo\n"


async def test_only_regular_files_of_the_jobs_user_are_read(manager: FakeManager, tmp_path: Path) -> None:
    mine, strange = client(manager), client(manager, "stranger")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    link = tmp_path / "link"
    link.symlink_to(secret)
    hard = tmp_path / "hard"
    hard.hardlink_to(secret)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (secret, link, hard):  # they belong to the daemon's user, not to the job's
        id = await job_writing_to(strange, path)
        answer = await strange.get(f"/v1/jobs/{id}/logs")
        assert answer.status_code == 403 and "secret" not in answer.json()["detail"]
    for path, status in ((fifo, 422), (Path("/dev/null"), 422), (tmp_path, 422), (secret / "x", 200)):
        id = await job_writing_to(mine, path)
        assert (await mine.get(f"/v1/jobs/{id}/logs")).status_code == status
