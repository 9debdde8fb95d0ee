"""A job says of its queue's policy what the policy lets it say, though nothing of EJB knows the policy.

`tests/fakes/site_policy.py` comes by an entry point, as an installed package's policy does.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import httpx
import pytest
from sqlalchemy.orm import Session

import ejbd.core.parameters as parameters
import ejbd.core.policy as policies
import ejbd.plugins.policies
from ejbd.api.app import create_app
from ejbd.api.auth import digest
from ejbd.cli.links import sbatch
from ejbd.cli.submission import submitting as submit
from ejbd.client.client import Client
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.policy import Bundling
from ejbd.core.parameters import Parameter, Parameters, declared
from ejbd.core.policy import register
from ejbd.errors import EjbError
from ejbd.manager.jobspec import JobRequest, JobSpec, Overrides, read
from ejbd.sim.replay import read_log, replay
from ejbd.store.models import Token
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

SOURCE = Path(__file__).parents[1] / "fakes" / "site_policy.py"
SCRIPT = "#!/bin/sh\n#SBATCH -n 8 -t 10\n#EJB {}\nsrun ./app\n"


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The policy `patient` in an installed package."""
    folder = tmp_path / "site"
    info = folder / "our_site-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "our_site.py").write_bytes(SOURCE.read_bytes())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-site\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ejbd.policies]\npatient = our_site:Patient\n")
    monkeypatch.syspath_prepend(str(folder))
    ejbd.plugins.policies._load_installed.cache_clear()
    yield
    policies._POLICIES.pop("patient", None)
    sys.modules.pop("our_site", None)
    ejbd.plugins.policies._load_installed.cache_clear()


def spec(word: str, **overrides: Any) -> JobSpec:
    return read(JobRequest(cwd="/", script=SCRIPT.format(word), overrides=Overrides(**overrides))).spec


@pytest.mark.parametrize("word", ["most-at-start=3", "most_at_start=3"])
def test_a_script_says_it_by_either_spelling(patient: None, word: str) -> None:
    assert spec(word).settings == {"most-at-start": "3"}
    assert spec(word, settings={"most-at-start": "4"}).settings == {"most-at-start": "4"}, "the command line wins"
    assert JobSpec.from_json(json.loads(json.dumps(spec(word).to_json()))) == spec(word)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("most-at-start=65", r"line 3: most-at-start must be a whole number from 1 to 64, not '?65"),
        ("most-at-start=few", "line 3: most-at-start must be a whole number from 1 to 64"),
        ("most-at-start", "line 3: most-at-start must be a whole number from 1 to 64"),
        ("most-at-end=3", "line 3: #EJB has no setting '?most-at-end'?.*most-at-start"),
    ],
)
def test_what_no_policy_takes_is_refused_with_its_line(patient: None, word: str, said: str) -> None:
    with pytest.raises(EjbError) as found:
        spec(word)
    assert re.search(said, found.value.sentence())


async def test_it_holds_in_the_daemon_from_the_submission_to_the_replay(
    patient: None, tmp_path: Path, store: Store
) -> None:
    """By REST, by the script; in status, explain and replay; and not in a queue whose policy knows it not."""
    live = LiveWorld(tmp_path, store, policy="patient", most_at_start=1)
    live.manager.world.runs_as = None  # type: ignore[assignment]
    live.batch.free = 4
    await live.poll(1)
    transport, headers = httpx.ASGITransport(create_app(live.manager)), {"Authorization": "Bearer ejb_ada"}

    def known(session: Session) -> None:
        session.add(Token(digest=digest("ejb_ada"), user="ada", created_s=0.0, expires_s=4e9, scope="jobs"))

    await store.write(known)
    async with httpx.AsyncClient(transport=transport, base_url="http://ejbd", headers=headers) as here:

        async def submitted(word: str, **overrides: Any) -> httpx.Response:
            body = {"cwd": "/", "script": SCRIPT.format(word), "overrides": overrides}
            return await here.post("/v1/jobs", json=body)

        patiently = (await submitted("omax=8")).json()["id"]
        await live.poll(1)
        assert "decision.start" not in live.kinds(patiently), "the queue's word: too crowded a start"
        by_script = (await submitted("most-at-start=2")).json()["id"]
        by_rest = (await submitted("omax=8", settings={"most_at_start": 2})).json()["id"]
        for job in (by_script, by_rest):
            assert (await here.get(f"/v1/jobs/{job}")).json()["settings"]["most-at-start"] == "2"
        told = (await here.get(f"/v1/jobs/{by_rest}/explain")).json()["now"]
        assert "by its own word: omax=8 most-at-start=2" in told
        for _ in range(3):
            await live.poll(1)
        both = [(job, kind, data) for job in (by_script, by_rest) for kind, data in live.events(job)]
        ((started, question),) = [(job, d["question"]) for job, kind, d in both if kind == "decision.start"]
        assert (question["policy"], question["parameters"]["most_at_start"]) == ("patient", 2)
        await live.manager.set_queue("batch", {"policy": "bundling"}, "root")
        refused = await submitted("most-at-start=2")
        assert refused.status_code == 422 or refused.status_code == 400, refused.text
        assert "the policy of queue batch, bundling, has no setting most-at-start" in refused.text
        assert "choose a queue of policy patient" in refused.text
        told = (await here.get(f"/v1/jobs/{by_rest}/explain")).json()["now"]
        assert "policy bundling does not go by its most-at-start" in told
    queues = [{"name": "batch", "processors": 32}]
    rows: list[dict[str, Any]] = [{"kind": "ejb.log", "format": 1, "version": "x", "queues": queues}]
    rows += [
        {"id": at, "at_s": 0.0, "job": started, "kind": kind, "data": data}
        for at, (kind, data) in enumerate(live.events(started))
    ]
    log = tmp_path / "events.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = replay(read_log(log))
    assert (again.decisions, again.differing) == (1, ())


def test_the_command_line_hands_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[dict[str, Any]] = []

    def taken(self: object, body: dict[str, Any], key: str | None) -> dict[str, Any]:
        bodies.append(body)
        return {"id": "7", "name": "app", "created": True, "elastic": True, "why": "", "notes": []}

    monkeypatch.setattr(Client, "submit_body", taken)
    line = ["submit", "-n", "4", "-t", "5", "--setting", "most-at-start=2", "--setting=calm", "--", "./app"]
    assert submit.quickly(line) == 0 and bodies[0]["overrides"]["settings"] == {"most-at-start": "2", "calm": "on"}
    with pytest.raises(EjbError, match="--setting is NAME=VALUE"):
        submit.quickly([*line[:5], "--setting", "=3", "--", "./app"])


def test_notes_on_a_job_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each submission of an ordinary script printed several lines. The link `sbatch` prints what sbatch prints."""
    notes = [
        "line 3: the script is not begun again where the node of its shell is lost, and has failed then: 'cp' is work",
        "--mail-type: nothing here sends the mails of elastic jobs (an admin can set mail_program)",
    ]
    job = {"id": "7", "name": "app", "created": True, "elastic": True, "why": "it is on", "notes": notes}
    monkeypatch.setattr(Client, "submit_body", lambda *_: job)
    line = ["submit", "-n", "4", "-t", "5", "--", "./app"]
    assert submit.quickly(line) == 0
    told = capsys.readouterr()
    assert told.out == "Submitted job 7\n"
    assert told.err == (
        "ejb: elastic: it is on; 2 notes (the script is not begun again; --mail-type): `ejb explain 7` has them\n"
    )
    assert submit.quickly(["submit", "-v", *line[1:]]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines() == [*(f"ejb: {note}" for note in notes), "ejb: elastic: it is on"]
    numbered = SimpleNamespace(json=lambda: {"state": "waiting", "start_s": None, "number": 12})
    monkeypatch.setattr(Client, "request_repeatedly", lambda *_, **__: numbered)
    assert sbatch.run(line[1:]) == 0
    assert capsys.readouterr() == ("Submitted batch job 12\n", "")
    monkeypatch.setattr(Client, "submit_body", lambda *_: {**job, "notes": []})
    assert submit.quickly(line) == 0 and capsys.readouterr().err == "ejb: elastic: it is on\n"


def test_a_fourth_in_the_base_is_one_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a submission goes on, and a job may say it like any other."""
    known = dict(declared(Parameters))
    fourth = parameters.Declared("patience_s", float, 1.0, Parameter(says="how long", least=0, most=9, per_job=True))
    monkeypatch.setitem(parameters._DECLARED, Parameters, {**known, "patience_s": fourth})
    own = dict(declared(BundlingParameters))
    monkeypatch.setitem(parameters._DECLARED, BundlingParameters, {**own, "patience_s": fourth})
    found = spec("patience=3", omax="4")
    assert (found.omax, found.settings) == (4, {"patience": "3"})


@dataclass(frozen=True, slots=True)
class Wishes(BundlingParameters):
    walltime: Annotated[int, Parameter(says="a job's wish", least=0, most=9, per_job=True)] = 1


def test_a_parameter_that_is_called_as_another_word_of_a_job_is_refused_at_once() -> None:
    mine = type("Wishing", (Bundling,), {"name": "wishing", "declares": Wishes})
    with pytest.raises(ValueError, match="walltime of the policy wishing cannot be per_job=True"):
        register(mine)
