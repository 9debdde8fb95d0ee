"""Policies by name: one that nothing of EJB knows is chosen from TOML, by an administrator at run time, and simulated.

No other module is touched for it: `tests/fakes/site_policy.py` is the whole of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ejbd.core.policy as policies
from ejbd.config import Elasticity, QueueSettings, check_changes, load
from ejbd.core.bundling.policy import Bundling
from ejbd.core.decision import Decision, DecisionKind, SubjobRequest
from ejbd.core.policy import Policy, register
from ejbd.core.state import ElasticState
from ejbd.core.view import BatchState
from ejbd.errors import EjbError
from ejbd.sim.models import Model, generate
from ejbd.sim.swf import write_swf
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, some

SOURCE = Path(__file__).parents[1] / "fakes" / "site_policy.py"
TOML = """
policies = ["our_site"]

[queues.batch]
elasticity = "on"
policy = "patient"
most_at_start = 3
lambda_s = 5

[queues.default]
omax = 4
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on Python's path with the site's module; what it registers is forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "our_site.py").write_bytes(SOURCE.read_bytes())
    monkeypatch.syspath_prepend(str(folder))
    before = dict(policies.registered())
    yield folder
    for name in set(policies._POLICIES) - set(before):
        del policies._POLICIES[name]
    sys.modules.pop("our_site", None)


def toml(folder: Path, text: str) -> Path:
    path = folder / "ejbd.toml"
    path.write_text(text)
    return path


def test_a_queues_policy_and_its_parameters_stand_in_the_toml_file(site: Path) -> None:
    settings = load(toml(site, TOML))
    batch, other = settings.queue_settings("batch"), settings.queue_settings("long")
    assert (batch.policy, batch.model_dump()["most_at_start"], batch.parameters.lambda_s) == ("patient", 3, 5.0)
    assert (other.policy, other.parameters.omax, hasattr(other, "most_at_start")) == ("bundling", 4, False)
    assert QueueSettings(policy="patient").model_dump()["most_at_start"] == 2, "a queue's own default"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("most_at_start = 3", "most_at_start = 65"), "queues.batch.most_at_start: .* less than or equal to 64"),
        (("most_at_start = 3", "most_at_once = 3"), "queues.batch.most_at_once: Extra inputs are not permitted"),
        (("omax = 4", "most_at_start = 3"), "queues.default.most_at_start: Extra inputs"),
        (
            ('"patient"', '"impatient"'),
            "queues.batch: no policy is called impatient; there are: bundling, fcfs-malleable, patient",
        ),
        (('"our_site"', '"their_site"'), "policies: the module their_site cannot be imported: No module named"),
        (("lambda_s = 5", "act_in_move = true"), "queues.batch: act_in_move is a setting of ejb sim alone"),
    ],
)
def test_what_cannot_be_is_told_in_one_sentence(site: Path, changed: tuple[str, str], said: str) -> None:
    with pytest.raises(EjbError, match=said):
        load(toml(site, TOML.replace(*changed)))


async def test_it_decides_in_the_daemon(site: Path, tmp_path: Path, store: Store) -> None:
    load(toml(site, TOML))  # imports what is trusted
    live = LiveWorld(tmp_path, store, policy="patient", most_at_start=1)
    live.batch.free = 4
    job = await live.submit()
    await live.poll(1)
    assert some((await live.manager.explain(job))["present"])["reason"] == "too crowded a start: it waits"
    queue = await live.manager.set_queue("batch", {"most_at_start": 4}, "root")
    assert queue["settings"]["most_at_start"] == 4 and queue["overridden"] == ["most_at_start"]
    await live.poll(1)
    question = next(data["question"] for kind, data in live.events(job) if kind == "decision.start")
    assert (question["policy"], question["parameters"]["most_at_start"]) == ("patient", 4)
    back = await live.manager.set_queue("batch", {"policy": "bundling"}, "root")
    assert back["settings"]["policy"] == "bundling" and "most_at_start" not in back["settings"]


@pytest.mark.parametrize("changes", [{"policy": "patient", "omax": 4}, {"most_at_start": 3}, {"most_at_start": None}])
def test_rest_takes_what_some_policy_knows(site: Path, changes: dict[str, Any]) -> None:
    load(toml(site, TOML))
    check_changes(changes)


@pytest.mark.parametrize(
    "changes", [{"policy": "os"}, {"policy": "bundling", "most_at_start": 3}, {"most_at_start": 0}, {"colour": None}]
)
def test_rest_takes_registered_names_only(site: Path, changes: dict[str, Any]) -> None:
    load(toml(site, TOML))
    with pytest.raises(ValueError, match=r"no policy is called os|Extra inputs|greater than"):
        check_changes(changes)


@pytest.mark.slow
def test_an_installed_package_offers_it_to_the_simulator(site: Path) -> None:
    """By its entry point, on the command line; the same name and parameters as in a queue."""
    info = site / "our_site-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-site\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ejbd.policies]\npatient = our_site:Patient\nbroken = our_site:Nobody\n")
    log = site / "made.swf"
    write_swf(log, generate(Model.LUBLIN, jobs=120, processors=32, seed=5))

    def ejb(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ejbd.cli.main", "sim", *words]
        env = {**os.environ, "PYTHONPATH": str(site), "EJB_SIM_PLAIN": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=env, check=False)
        assert done.returncode == code, done.stderr
        return done

    settings = ["easy", "ejb", "patient:most-at-start=64", "patient:most-at-start=1"]
    compared = json.loads(ejb("compare", str(log), *settings, "--json").stdout)
    easy, ejbs, crowded, alone = (row["mean_turnaround_s"] for row in compared)
    assert [row["setting"] for row in compared] == settings
    assert len({easy, ejbs, crowded}) == 3 and alone == easy, "who never starts crowded starts as a rigid job would"
    ran = json.loads(ejb("run", str(log), "--policy", "patient:most-at-start=1", "--json", "-").stdout)
    assert ran["mean_turnaround_s"] == alone and ran["parameters"]["most_at_start"] == 1
    assert "there are: bundling, fcfs-malleable, patient" in ejb("run", str(log), "--policy", "os", code=2).stderr
    assert "cannot be loaded" in ejb("run", str(log), "--policy", "broken", code=2).stderr
    assert "most-at-start=0 is no setting" in ejb("run", str(log), "--policy", "patient:most-at-start=0", code=2).stderr


async def test_it_is_asked_about_the_end_of_a_job(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AGAIN queues the job anew, for the time that is asked for; setbacks bound how often."""

    def again(self: Policy, state: ElasticState, now: float, outcome: str) -> Decision:
        longer = SubjobRequest(state.processes, 2 * state.requested_s, -1)
        return Decision(DecisionKind.AGAIN, state.job, now, f"{outcome}: twice as long", (longer,))

    monkeypatch.setattr(Bundling, "ended", again)
    live = LiveWorld(tmp_path, store)
    live.batch.free = 0
    job = await live.submit(walltime_s=100.0)
    await live.poll(1)
    await live.begin(f"{job}.0")
    for _ in range(3):
        await live.work()
        await live.poll(1)
    assert live.job(job).state == "running"
    live.settings.limits.max_setbacks = 1
    for _ in range(30):
        await live.poll(5)
        if "job.again" in live.kinds(job):
            break
        if live.clock.now > live.job(job).submit_s + 100:
            live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    said = [data for kind, data in live.events(job) if kind == "job.again"]
    assert [(data["walltime_s"], data["reason"]) for data in said] == [(200.0, "timeout: twice as long")]
    assert live.job(job).setbacks == 1 and live.job(job).state == "waiting"


@pytest.mark.parametrize(("queue", "goes_to"), [("long", "long"), ("off", "batch"), ("none", "batch")])
async def test_what_it_queues_anew_goes_into_the_queue_that_it_names_where_elastic_jobs_may(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, queue: str, goes_to: str
) -> None:
    def again(self: Policy, state: ElasticState, now: float, outcome: str) -> Decision:
        return Decision(DecisionKind.AGAIN, state.job, now, "elsewhere", queue=queue)

    monkeypatch.setattr(Bundling, "ended", again)
    live = LiveWorld(tmp_path, store)
    live.settings.queues["off"] = QueueSettings(elasticity=Elasticity.OFF)
    live.batch.queues, live.batch.free = ("batch", "long", "off"), 0
    job = await live.submit(walltime_s=100.0)
    await live.poll(1)
    await live.begin(f"{job}.0")
    await live.work()
    await live.poll(1)
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    for _ in range(10):
        await live.poll(5)
        if "job.again" in live.kinds(job):
            break
    told = [data.get("queue", "batch") for kind, data in live.events(job) if kind == "job.again"]
    assert told == [goes_to] and live.job(job).queue == goes_to
    await live.poll(5)
    assert [one.queue for one in live.batch.live()] == [goes_to]


def test_names_are_taken_once() -> None:
    with pytest.raises(ValueError, match="no name for a policy"):
        register(type("Easy", (Bundling,), {"name": "easy"}))
    with pytest.raises(ValueError, match=r"there is a policy bundling already, in ejbd\.core\.bundling\.policy"):
        register(type("Mine", (Bundling,), {"name": "bundling"}))
    with pytest.raises(TypeError, match="abstract"):
        Policy(Bundling.declares())  # type: ignore[abstract]
