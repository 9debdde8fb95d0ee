"""Jobs over REST: what is taken, what is refused and how, and who may see what."""

from __future__ import annotations

import asyncio
import getpass
import os
import time
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from ejbd.api.access.roles import overflow_uid
from ejbd.api.app import create_app
from ejbd.api.auth import Peer, digest
from ejbd.config import Limits, Settings
from ejbd.errors import HTTP_STATUS, Code, EjbError
from ejbd.manager.jobspec import JobRequest, Overrides, build_spec
from ejbd.store.models import Event, Token
from ejbd.store.retention import prune
from ejbd.store.states import JobState
from ejbd.store.store import Store
from tests.fakes.port import FakeManager, job_row, new_store, subjob_row

pytestmark = pytest.mark.sql

MOST = 100_000
SCRIPT = "#!/bin/bash\n#SBATCH -n 16 -t 10\nsrun ./app\n"


def body(**values: Any) -> dict[str, Any]:
    return {"cwd": "/home/ada", "script": SCRIPT, **values}


class World:
    """The application with three clients: ada, bob, and the administrator root."""

    def __init__(self, manager: FakeManager) -> None:
        self.manager = manager
        app = create_app(manager)
        transport = httpx.ASGITransport(app)

        async def by_socket(scope: Any, receive: Any, send: Any) -> None:
            """As the unix socket's server hands a request on."""
            await app({**scope, "state": {"peer": Peer(1, os.geteuid(), os.getegid())}}, receive, send)

        self.here = httpx.AsyncClient(transport=httpx.ASGITransport(by_socket), base_url="http://ejbd")
        self.ada, self.bob, self.root, self.nobody = (
            httpx.AsyncClient(
                transport=transport,
                base_url="http://ejbd",
                headers={"Authorization": f"Bearer ejb_{user}"} if user else {},
            )
            for user in ("ada", "bob", "root", "")
        )

    async def submit(self, **values: Any) -> str:
        answer = await self.ada.post("/v1/jobs", json=body(**values))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = new_store(tmp_path / "ejbd.sqlite")
    yield await _world(store, tmp_path)
    store.close()


async def _world(store: Store, folder: Path) -> World:
    def tokens(session: Session) -> None:
        for user in ("ada", "bob", "root"):
            session.add(Token(digest=digest(f"ejb_{user}"), user=user, created_s=0.0, expires_s=4e9, scope="admin"))
        session.add(Token(digest=digest("ejb_old"), user="ada", created_s=0.0, expires_s=1.0))

    await store.write(tokens)
    settings = Settings(state_dir=folder, limits=Limits(max_body_bytes=MOST), admins=["root"])
    return World(FakeManager(settings, store))


def problem(answer: httpx.Response, code: Code, *, status: int | None = None, where: str | None = None) -> str:
    """Check that this is a problem document of that code; its sentence."""
    assert answer.status_code == (status or HTTP_STATUS[code]), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["code"] == code and found["status"] == answer.status_code
    assert found["type"] == f"urn:ejb:error:{code.value}"
    if where is not None:
        assert found["where"] == where
    return f"{found['detail']} {found['hint']}"


async def test_submitting_a_script(world: World) -> None:
    answer = await world.ada.post("/v1/jobs", json=body(env={"X": "1"}, script_name="heat.sh"))
    assert answer.status_code == 201
    job = answer.json()
    assert job["created"] is True and job["name"] == "heat.sh" and answer.headers["location"] == f"/v1/jobs/{job['id']}"
    detail = (await world.ada.get(answer.headers["location"])).json()
    assert (detail["user"], detail["processes"], detail["walltime_s"], detail["state"]) == ("ada", 16, 600, "received")


async def test_both_databases_answer_alike(store: Store, tmp_path: Path) -> None:
    world = await _world(store, tmp_path)
    id = await world.submit()
    await store.write(lambda session: session.add(subjob_row(id, 1)))
    assert (await world.ada.get(f"/v1/jobs/{id[:4]}")).json()["processors"] == 4
    assert [job["processors"] for job in (await world.ada.get("/v1/jobs?limit=1")).json()["jobs"]] == [4]
    token = (await world.here.post("/v1/tokens", json={})).json()["id"]
    assert (await world.here.delete(f"/v1/tokens/{token}")).status_code == 204
    await world.ada.post(f"/v1/jobs/{id}/cancel")
    assert "event: job.cancelled" in (await world.ada.get(f"/v1/jobs/{id}/events/stream")).text
    assert (await world.ada.get(f"/v1/jobs/{id}/timeline")).json()["state"] == "cancelled"


async def test_which_batch_jobs_were_one_job_and_what_they_were_charged(world: World) -> None:
    id = await world.submit()
    ended, running = {"start_s": 1000.0, "end_s": 1090.5, "state": "completed"}, {"start_s": time.time() - 100}
    rows = [
        subjob_row(id, 0, batch_id="12", state="pending", start_s=None),
        subjob_row(id, 1, batch_id="13", **ended),
        subjob_row(id, 2, batch_id="15", processors=8, end_s=time.time() + 500, **running),
        subjob_row(id, 3, batch_id=None, state="planned", start_s=None),
    ]
    await world.manager.store.write(lambda session: session.add_all(rows))
    detail = (await world.ada.get(f"/v1/jobs/{id}")).json()
    each = [subjob["processor_s"] for subjob in detail["subjobs"]]
    assert each[:2] == [0.0, 4 * 90.5] and 800 <= each[2] < 8 * 200 and each[3] == 0.0
    assert detail["batch_ids"] == ["12", "13", "15"] and detail["processor_s"] == pytest.approx(sum(each), abs=40)
    (listed,) = (await world.ada.get("/v1/jobs")).json()["jobs"]
    assert listed["batch_ids"] == detail["batch_ids"] and listed["processor_s"] >= detail["processor_s"]
    # Elements of an array have times of their own, which are not kept.
    of_array = {"all": "0-1", "ended": {}, "code": 0}
    await world.manager.store.write(lambda session: session.add(subjob_row(id, 4, batch_id="16", elements=of_array)))
    detail = (await world.ada.get(f"/v1/jobs/{id}")).json()
    assert detail["subjobs"][4]["processor_s"] is None and detail["processor_s"] is None


async def test_submitting_a_command(world: World) -> None:
    overrides = {"ntasks": 4, "time": "1:00:00", "lambda_s": 3, "omax": 2}
    id = await world.submit(script=None, command=["./app", "$(x)"], overrides=overrides)
    detail = (await world.ada.get(f"/v1/jobs/{id}")).json()
    assert (detail["kind"], detail["command"], detail["processes"]) == ("command", ["./app", "$(x)"], 4)


async def test_the_same_key_gives_the_same_job(world: World) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = await world.ada.post("/v1/jobs", json=body(), headers=headers)
    reordered = dict(reversed(body().items()))
    again = await world.ada.post("/v1/jobs", json=reordered, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"] and again.json()["created"] is False
    problem(await world.ada.post("/v1/jobs", json=body(args=["x"]), headers=headers), Code.KEY_REUSED)
    other = await world.bob.post("/v1/jobs", json=body(), headers=headers)
    assert other.status_code == 201 and other.json()["id"] != first.json()["id"]
    problem(await world.ada.post("/v1/jobs", json=body(), headers={"Idempotency-Key": "a b"}), Code.INVALID)


@pytest.mark.parametrize(
    ("values", "code", "where", "words"),
    [
        ({"script": "#!/bin/sh\n#SBATCH --nonsense\n"}, Code.INVALID, "line 2", "no option '--nonsense'"),
        ({"script": "#!/bin/sh\n#SBATCH -n 0 -t 5\n"}, Code.INVALID, "line 2", "at least 1"),
        ({"script": "#!/bin/sh\n#SBATCH -n -3 -t 5\n"}, Code.INVALID, "line 2", "above 0"),
        ({"overrides": {"ntasks": 0}}, Code.INVALID, "--ntasks", "at least 1"),
        ({"overrides": {"ntasks": -1}}, Code.INVALID, "--ntasks", "above 0"),
        ({"overrides": {"ntasks": 10**30}}, Code.INVALID, "--ntasks", "more than 1000000"),
        ({"overrides": {"ntasks": 2000}}, Code.INVALID, "", "more than queue main has"),
        ({"overrides": {"nodes": 17, "elastic": "on"}}, Code.UNSUPPORTED, "--nodes", "cannot fill 17 nodes"),
        ({"overrides": {"time": "10m"}}, Code.INVALID, "--time", "not a walltime"),
        ({"overrides": {"time": "UNLIMITED", "elastic": "on"}}, Code.UNSUPPORTED, "--time", "walltime that ends"),
        ({"script": "#!/bin/sh\n#SBATCH -n 4\n#EJB elastic=on\n"}, Code.UNSUPPORTED, "walltime", "needs a walltime"),
        ({"overrides": {"partition": "nix"}}, Code.INVALID, "", "there is no queue 'nix'"),
        ({"overrides": {"name": "a\nb"}}, Code.INVALID, "--name", "control character"),
        (
            {"overrides": {"elastic": "perhaps"}},
            Code.INVALID,
            "body.overrides.elastic",
            "'perhaps' is none of: on, off, auto",
        ),
        ({"overrides": {"colour": "red"}}, Code.INVALID, "body.overrides.colour", "there is no such field"),
        ({"colour": "red"}, Code.INVALID, "body.colour", "there is no such field"),
        ({"script": None}, Code.INVALID, "request", "either a script or a command"),
        ({"command": ["x"]}, Code.INVALID, "request", "exactly one"),
        ({"script": None, "command": []}, Code.INVALID, "command", "the command is empty"),
        ({"script": ""}, Code.INVALID, "script", "empty"),
        ({"script": "echo"}, Code.INVALID, "line 1", "does not look like a batch script"),
        ({"script": "#!/bin/sh\r\n"}, Code.INVALID, "line 1", "DOS line ends"),
        ({"script": SCRIPT + "\0"}, Code.INVALID, "script", "binary"),
        ({"cwd": "work"}, Code.INVALID, "cwd", "not an absolute path"),
        ({"env": {"A=": "x"}}, Code.INVALID, "env", "not the name"),
        ({"env": {"A": 1}}, Code.INVALID, "body.env.A", "1 is not text"),
        (
            {"script": SCRIPT + "srun x &\n", "overrides": {"elastic": "on"}},
            Code.UNSUPPORTED,
            "line 4",
            "--elastic off",
        ),
        (
            {"overrides": {"options": ["--signal=R:USR1@60"], "elastic": "on"}},
            Code.UNSUPPORTED,
            "option",
            "--elastic off",
        ),
        ({"overrides": {"options": ["--uid=root"]}}, Code.INVALID, "option", "user that submits it"),
    ],
)
async def test_bad_submissions(world: World, values: dict[str, Any], code: Code, where: str, words: str) -> None:
    for path in ("/v1/jobs", "/v1/jobs/plan"):
        assert words in problem(await world.ada.post(path, json=body(**values)), code, where=where)
    assert (await world.ada.get("/v1/jobs")).json()["jobs"] == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["a'b", 'a"b', "a|b", "$(reboot)", "`x`", "a;b&c", "ä", "<b>&"])
async def test_names_are_data(world: World, name: str) -> None:
    id = await world.submit(overrides={"name": name})
    assert (await world.ada.get(f"/v1/jobs/{id}")).json()["name"] == name
    picture = (await world.ada.get(f"/v1/jobs/{id}/timeline?format=svg")).text
    assert name in "".join(ET.fromstring(picture).itertext())


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"cwd": "/\\ud800", "command": ["x"]}'])
async def test_bodies_that_are_no_submission(world: World, raw: bytes) -> None:
    answer = await world.ada.post("/v1/jobs", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    problem(answer, Code.INVALID, status=answer.status_code)


async def test_a_body_that_is_too_large(world: World) -> None:
    large = body(env={"X": "x" * MOST})
    assert str(MOST) in problem(await world.ada.post("/v1/jobs", json=large), Code.TOO_LARGE)

    async def endless() -> AsyncIterator[bytes]:  # no Content-Length, and nobody would ever read it to its end
        while True:
            yield b" " * 10_000

    problem(await world.ada.post("/v1/jobs", content=endless()), Code.TOO_LARGE)


async def test_a_queue_that_passes_through_takes_what_is_not_elastic(world: World) -> None:
    world.manager.elasticity = "off"
    rigid = "#!/bin/sh\n#SBATCH -n 4 --mem=4G --array=1-3\nsrun x &\nwait\n"
    id = await world.submit(script=rigid)
    assert (await world.ada.get(f"/v1/jobs/{id}")).json()["elastic"] is False


@pytest.mark.parametrize("elasticity", ["auto", "on"])
async def test_a_queue_passes_through_what_cannot_be_elastic(world: World, elasticity: str) -> None:
    world.manager.elasticity = elasticity
    answer = await world.ada.post("/v1/jobs", json=body(overrides={"options": ["--signal=R:USR1@60"]}))
    assert answer.status_code == 201
    assert answer.json()["elastic"] is False and "--signal" in answer.json()["why"] and answer.json()["notes"] == []
    wanted = body(overrides={"options": ["--signal=R:USR1@60"], "elastic": "on"})
    problem(await world.ada.post("/v1/jobs", json=wanted), Code.UNSUPPORTED)


@pytest.mark.parametrize(
    ("body_of_script", "words"),
    [
        ("make -j 16\n", "script: the script starts nothing by srun, mpirun or mpiexec"),
        ("srun ./a\nmpiexec.slurm ./b\n", "line 4: `mpiexec.slurm` is no launcher that EJB can stand for"),
        ("srun -l ./a\n", "line 3: `srun` cannot be held: -l: labels"),
    ],
)
async def test_a_script_that_sbatch_would_run_and_ejb_cannot_hold_is_passed_through_with_the_reason(
    world: World, body_of_script: str, words: str
) -> None:
    script = SCRIPT.partition("srun")[0] + body_of_script
    answer = await world.ada.post("/v1/jobs", json=body(script=script))
    assert answer.status_code == 201 and words in answer.json()["why"], answer.json()
    job = (await world.ada.get(f"/v1/jobs/{answer.json()['id']}")).json()
    assert job["elastic"] is False


async def test_a_script_that_says_it_is_elastic_is_believed_where_nobody_can_see(world: World) -> None:
    script = SCRIPT.partition("srun")[0] + "./pipeline\n"
    answer = await world.ada.post("/v1/jobs", json=body(script=script, overrides={"elastic": "on"}))
    job = (await world.ada.get(f"/v1/jobs/{answer.json()['id']}")).json()
    assert job["elastic"] is True


async def test_what_is_not_acted_on_is_told(world: World) -> None:
    answer = await world.ada.post("/v1/jobs", json=body(overrides={"options": ["--acctg-freq=30"]}))
    assert answer.status_code == 201 and "--acctg-freq" in answer.json()["notes"][0]


async def test_a_plan_keeps_nothing(world: World) -> None:
    plan = (await world.ada.post("/v1/jobs/plan", json=body())).json()
    assert plan["elastic"] is True and plan["decision"]["kind"] == "start" and plan["placeholder"]["processors"] == 16
    assert (await world.ada.get("/v1/jobs")).json()["jobs"] == []


async def test_lists_by_page_state_and_owner(world: World) -> None:
    ids = [await world.submit() for _ in range(5)]
    await world.ada.post(f"/v1/jobs/{ids[0]}/cancel")
    pages: list[str] = []
    before = ""
    for _ in range(3):
        page = (await world.ada.get(f"/v1/jobs?limit=2{before}")).json()
        pages += [job["id"] for job in page["jobs"]]
        before = f"&before={page['next']}"
    assert pages == ids[::-1] and page["next"] is None
    cancelled = (await world.ada.get("/v1/jobs?state=cancelled&state=failed")).json()["jobs"]
    assert [job["id"] for job in cancelled] == ids[:1]
    assert (await world.bob.get("/v1/jobs")).json()["jobs"] == []
    assert len((await world.root.get("/v1/jobs")).json()["jobs"]) == 5
    assert (await world.root.get("/v1/jobs?mine=true")).json()["jobs"] == []
    problem(await world.bob.get("/v1/jobs?user=ada"), Code.FORBIDDEN)
    for query in ("colour=red", "limit=0", "limit=x", "state=asleep", "user=%00"):
        problem(await world.ada.get(f"/v1/jobs?{query}"), Code.INVALID)


async def test_selectors(world: World) -> None:
    id = await world.submit()
    assert (await world.ada.get("/v1/jobs/last")).json()["id"] == id
    assert (await world.ada.get(f"/v1/jobs/{id[:5]}")).json()["id"] == id
    problem(await world.ada.get("/v1/jobs/zzzz"), Code.NOT_FOUND)
    problem(await world.ada.get("/v1/jobs/a%20b"), Code.INVALID)

    def alike(session: Session) -> None:
        for name in ("zz01", "zz02"):
            session.add(job_row(name, _spec(), "ada"))

    await world.manager.store.write(alike)
    assert "zz01" in problem(await world.ada.get("/v1/jobs/zz"), Code.CONFLICT)


@pytest.mark.parametrize("path", ["", "/explain", "/events", "/events/stream", "/timeline", "/logs"])
async def test_other_peoples_jobs_are_not_there(world: World, path: str) -> None:
    id = await world.submit()
    problem(await world.bob.get(f"/v1/jobs/{id}{path}"), Code.NOT_FOUND)
    problem(await world.nobody.get(f"/v1/jobs/{id}{path}"), Code.UNAUTHENTICATED)


@pytest.mark.parametrize("action", ["cancel", "hold", "release"])
async def test_steering(world: World, action: str) -> None:
    id = await world.submit(overrides={"hold": action == "release"})
    problem(await world.bob.post(f"/v1/jobs/{id}/{action}"), Code.NOT_FOUND)
    answer = await world.ada.post(f"/v1/jobs/{id}/{action}")
    assert answer.status_code == 200
    assert (answer.json()["state"] == "cancelled", answer.json()["held"]) == (action == "cancel", action == "hold")
    await world.manager.end(id, JobState.CANCELLED) if action != "cancel" else None
    problem(await world.root.post(f"/v1/jobs/{id}/{action}"), Code.CONFLICT)


async def test_explain_and_events(world: World) -> None:
    id = await world.submit()
    explained = (await world.ada.get(f"/v1/jobs/{id}/explain")).json()
    assert explained["decisions"][0]["decision"]["candidates"][0]["feasible"] is True
    await world.ada.post(f"/v1/jobs/{id}/cancel")
    events = (await world.ada.get(f"/v1/jobs/{id}/events")).json()["events"]
    assert [event["kind"] for event in events] == ["job.received", "job.cancelled"]
    later = (await world.ada.get(f"/v1/jobs/{id}/events?after={events[0]['id']}")).json()["events"]
    assert later == events[1:]


async def test_a_jobs_stream_ends_with_it_and_resumes(world: World) -> None:
    id = await world.submit()
    await world.ada.post(f"/v1/jobs/{id}/cancel")
    text = (await world.ada.get(f"/v1/jobs/{id}/events/stream")).text
    kinds = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    ids = [line.removeprefix("id: ") for line in text.splitlines() if line.startswith("id: ")]
    assert kinds == ["job.received", "job.cancelled", "end"]
    rest = (await world.ada.get(f"/v1/jobs/{id}/events/stream", headers={"Last-Event-ID": ids[0]})).text
    assert "job.received" not in rest and "job.cancelled" in rest
    bad = await world.ada.get(f"/v1/jobs/{id}/events/stream", headers={"Last-Event-ID": "x"})
    problem(bad, Code.INVALID)


async def test_the_timeline_as_json_and_as_a_picture(world: World) -> None:
    id = await world.submit()
    await world.manager.store.write(lambda session: session.add(subjob_row(id, 1)))
    found = (await world.ada.get(f"/v1/jobs/{id}/timeline")).json()
    assert found["job"] == id and found["intervals"][0]["kind"] == "wait" and len(found["subjobs"]) == 1
    for answer in (
        await world.ada.get(f"/v1/jobs/{id}/timeline?format=svg"),
        await world.ada.get(f"/v1/jobs/{id}/timeline", headers={"Accept": "image/svg+xml"}),
    ):
        assert answer.headers["content-type"] == "image/svg+xml"
        assert ET.fromstring(answer.text).tag == "{http://www.w3.org/2000/svg}svg"


async def test_what_is_planned_is_told_and_drawn_apart_from_what_has_been(world: World) -> None:
    id = await world.submit()
    await world.manager.store.write(lambda session: session.add(subjob_row(id, 1)))
    found = (await world.ada.get(f"/v1/jobs/{id}/timeline")).json()
    assert [(p["kind"], p["processors"], p["degree"], p["on_placeholder"]) for p in found["planned"]] == [
        ("wait", 0, 0, False),
        ("run", 16, 1, True),
    ]
    assert found["planned"][0]["end_s"] == found["planned"][1]["start_s"]
    picture = ET.fromstring((await world.ada.get(f"/v1/jobs/{id}/timeline?format=svg")).text)
    svg = "{http://www.w3.org/2000/svg}"
    patterns = {pattern.get("id") for pattern in picture.iter(f"{svg}pattern")}
    hatched = [box for box in picture.iter(f"{svg}rect") if (box.get("fill") or "").startswith("url(#")]
    assert {(box.get("fill") or "")[5:-1] for box in hatched} <= patterns
    titles = [title.text for box in hatched for title in box.iter(f"{svg}title")]
    assert titles[:2] == ["planned: waits, 1:00", "planned: runs, 10:00, 16 processors of J0"]
    assert [title.endswith("may be held until its limit") for title in titles[2:] if title] == [True]
    in_patterns = {box for pattern in picture.iter(f"{svg}pattern") for box in pattern}
    solid = [box for box in picture.iter(f"{svg}rect") if box.get("fill") == "#c9ced6" and box not in in_patterns]
    assert len(solid) == 2  # waiting until now, and its place in the legend
    words = "".join(picture.itertext())
    assert "now" in words and "hatched: planned" in words
    assert len([line for line in picture.iter(f"{svg}line") if line.get("stroke") == "#222222"]) == 1

    await world.ada.post(f"/v1/jobs/{id}/cancel")
    over = (await world.ada.get(f"/v1/jobs/{id}/timeline")).json()
    assert over["planned"] == []
    picture = ET.fromstring((await world.ada.get(f"/v1/jobs/{id}/timeline?format=svg")).text)
    assert "now" not in "".join(picture.itertext())


async def test_a_dry_run_and_an_explanation_carry_the_plan(world: World) -> None:
    plan = (await world.ada.post("/v1/jobs/plan", json=body())).json()
    assert plan["planned"] == plan["decision"]["timeline"]
    assert [(p["kind"], p["end_s"] - p["start_s"], p["degree"]) for p in plan["planned"]] == [("run", 2400, 4)]
    rigid = (await world.ada.post("/v1/jobs/plan", json=body(overrides={"elastic": "off"}))).json()
    assert rigid["planned"] == []
    assert (await world.ada.get(f"/v1/jobs/{await world.submit()}/explain")).json()["planned"] == []


async def test_tokens(world: World) -> None:
    made = (await world.here.post("/v1/tokens", json={"label": "ci", "expires_in_s": 60})).json()
    new = {"Authorization": f"Bearer {made['token']}"}
    assert (await world.nobody.get("/v1/jobs", headers=new)).status_code == 200
    listed = (await world.here.get("/v1/tokens")).json()["tokens"]
    assert made["id"] in [token["id"] for token in listed] and "token" not in listed[0]
    problem(await world.bob.delete(f"/v1/tokens/{made['id']}"), Code.FORBIDDEN)
    assert (await world.here.delete(f"/v1/tokens/{made['id']}")).status_code == 204
    problem(await world.nobody.get("/v1/jobs", headers=new), Code.UNAUTHENTICATED)
    for wrong in ({"expires_in_s": -1}, {"expires_in_s": 400 * 86400}, {"expires_in_s": None}, {"scope": "all"}):
        problem(await world.here.post("/v1/tokens", json=wrong), Code.INVALID)
    events = await world.manager.store.read(lambda s: [(e.kind, e.data) for e in s.scalars(select(Event))])
    assert [(kind, data["token"], data["user"]) for kind, data in events if kind.startswith("token.")] == [
        ("token.created", made["id"], getpass.getuser()),
        ("token.revoked", made["id"], getpass.getuser()),
    ]


async def test_a_stream_ends_with_the_token_that_it_came_with(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ejbd.api.events.KEEP_ALIVE_S", 0.2)  # between two looks of a stream without news
    made = (await world.here.post("/v1/tokens", json={})).json()
    plain, open_now = world.manager.wait_for_events, asyncio.Event()

    async def waits(*given: Any) -> Any:
        open_now.set()
        return await plain(*given)

    monkeypatch.setattr(world.manager, "wait_for_events", waits)
    headers = {"Authorization": f"Bearer {made['token']}"}
    stream = asyncio.create_task(world.nobody.get("/v1/events/stream", headers=headers))
    async with asyncio.timeout(60):
        await open_now.wait()
        assert (await world.here.delete(f"/v1/tokens/{made['id']}")).status_code == 204
        answer = await stream
    assert answer.status_code == 200 and "token.revoked" not in answer.text


async def test_a_peer_that_the_kernel_cannot_name_is_no_user(world: World) -> None:
    """Of another user namespace: all such users would be `nobody` together."""
    app = create_app(world.manager)

    async def by_socket(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": {"peer": Peer(1, overflow_uid(), overflow_uid())}}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(by_socket), base_url="http://ejbd") as client:
        problem(await client.get("/v1/jobs"), Code.UNAUTHENTICATED)


async def test_a_token_mints_no_tokens_and_every_token_ends(world: World) -> None:
    made = (await world.here.post("/v1/tokens", json={"expires_in_s": 5})).json()
    short = {"Authorization": f"Bearer {made['token']}"}
    for more in ({}, {"expires_in_s": 5}, {"scope": "read"}):
        problem(await world.nobody.post("/v1/tokens", json=more, headers=short), Code.FORBIDDEN)
    default = (await world.here.post("/v1/tokens", json={})).json()
    assert 29 * 86400 < default["expires_s"] - default["created_s"] < 31 * 86400 and default["scope"] == "submit"
    problem(await world.nobody.delete(f"/v1/tokens/{default['id']}", headers=short), Code.FORBIDDEN)
    assert (await world.nobody.delete(f"/v1/tokens/{made['id']}", headers=short)).status_code == 204  # itself
    kept = {made["id"], default["id"]}
    await world.manager.store.write(lambda s: prune(s, default["expires_s"] + 1, 1e6))
    assert not kept & {t["id"] for t in (await world.here.get("/v1/tokens")).json()["tokens"]}


async def test_a_token_can_do_what_its_scope_says(world: World) -> None:
    async def holder(scope: str) -> dict[str, str]:
        made = (await world.here.post("/v1/tokens", json={"scope": scope})).json()
        return {"Authorization": f"Bearer {made['token']}"}

    read, jobs, admin = [await holder(scope) for scope in ("read", "jobs", "admin")]
    of_ada = await world.submit()
    for headers in (read, jobs, admin):
        assert (await world.nobody.get("/v1/jobs", headers=headers)).status_code == 200
        assert (await world.nobody.post("/v1/jobs/plan", json=body(), headers=headers)).status_code == 200
    problem(await world.nobody.post("/v1/jobs", json=body(), headers=read), Code.FORBIDDEN)
    assert (await world.nobody.post("/v1/jobs", json=body(), headers=jobs)).status_code == 201
    problem(await world.nobody.post(f"/v1/jobs/{of_ada}/cancel", headers=jobs), Code.NOT_FOUND)
    problem(await world.nobody.patch("/v1/queues/main", json={"omax": 4}, headers=jobs), Code.FORBIDDEN)
    assert (await world.nobody.patch("/v1/queues/main", json={"omax": 4}, headers=admin)).status_code == 200
    assert (await world.nobody.post(f"/v1/jobs/{of_ada}/cancel", headers=admin)).status_code == 200


async def test_nobody_has_tokens_without_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.manager.settings.limits, "user_tokens", 3)
    answers = [(await world.here.post("/v1/tokens", json={})).status_code for _ in range(5)]
    assert answers[0] == 201 and answers.count(201) <= 3 and answers[3:] == [409, 409]


@pytest.mark.parametrize("header", ["Bearer ejb_wrong", "Bearer ejb_old", "Basic eDp5", "Bearer ", "x"])
async def test_tokens_that_are_none(world: World, header: str) -> None:
    answer = await world.nobody.get("/v1/jobs", headers={"Authorization": header})
    problem(answer, Code.UNAUTHENTICATED)
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_queues_and_windows(world: World) -> None:
    assert (await world.ada.get("/v1/queues")).json()["queues"][0]["settings"]["elasticity"] == "on"
    problem(await world.ada.patch("/v1/queues/main", json={"omax": 4}), Code.FORBIDDEN)
    changed = (await world.root.patch("/v1/queues/main", json={"omax": 4, "elasticity": "auto"})).json()
    assert changed["settings"]["omax"] == 4 and changed["overridden"] == ["elasticity", "omax"]
    assert (await world.ada.get("/v1/queues/main")).json() == changed
    reset = (await world.root.patch("/v1/queues/main", json={"omax": None})).json()
    assert reset["overridden"] == ["elasticity"]
    for change in ({}, {"omax": 0}, {"omax": "many"}, {"colour": 1}, {"elasticity": "maybe"}, {"delta": 0.5}):
        problem(await world.root.patch("/v1/queues/main", json=change), Code.INVALID)
    problem(await world.root.patch("/v1/queues/nix", json={"omax": 4}), Code.NOT_FOUND)
    problem(await world.ada.get("/v1/queues/nix"), Code.NOT_FOUND)
    assert (await world.ada.get("/v1/windows?queue=main")).json()["windows"][0]["slots"][1]["duration_s"] is None
    problem(await world.ada.get("/v1/windows?queue=nix"), Code.NOT_FOUND)


async def test_health_version_and_figures(world: World) -> None:
    assert (await world.nobody.get("/v1/health")).json() == world.manager.health()
    world.manager.ok = False
    assert (await world.nobody.get("/v1/health")).status_code == 503
    assert (await world.nobody.get("/v1/version")).json()["worker_protocol"] == "2"
    await world.submit()
    figures = (await world.ada.get("/metrics")).text.splitlines()
    for line in (
        'ejb_jobs{state="received"} 1.0',
        'ejb_subjobs{state="pending"} 0.0',
        "ejb_workers 0.0",
        'ejb_batch_commands_total{command="squeue"} 3.0',
        'ejb_batch_command_failures_total{command="squeue"} 1.0',
        "ejb_failed_polls_total 0.0",
    ):
        assert line in figures
    problem(await world.nobody.get("/metrics"), Code.UNAUTHENTICATED)


async def test_errors_of_the_framework_and_of_the_manager(world: World) -> None:
    problem(await world.ada.get("/v1/nothing"), Code.NOT_FOUND)
    problem(await world.ada.put("/v1/jobs", json={}), Code.INVALID, status=405)
    world.manager.fault = EjbError(Code.BATCH_UNAVAILABLE, "no answer", transient=True)
    answer = await world.ada.post("/v1/jobs", json=body())
    problem(answer, Code.BATCH_UNAVAILABLE)
    assert answer.json()["transient"] is True
    world.manager.fault = RuntimeError("secret of the inside")
    with capture_logs() as logged:
        answer = await world.ada.post("/v1/jobs", json=body())
    problem(answer, Code.INTERNAL)
    assert "secret" not in answer.text
    assert [(entry["event"], entry["path"]) for entry in logged] == [("api.failed", "/v1/jobs")]


def _spec() -> Any:
    return build_spec(JobRequest(cwd="/w", command=("x",), overrides=Overrides(time="5")))
