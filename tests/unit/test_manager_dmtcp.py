"""Engine `dmtcp` in the manager: who gets it, what a launch is told, where it is not moved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ejbd.config import Settings
from ejbd.errors import EjbError
from ejbd.manager.checkpointing import profiles
from ejbd.store.store import Store
from tests.fakes.dmtcp_commands import install
from tests.fakes.live import LiveWorld


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'dmtcp')}:/usr/bin:/bin")


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


async def test_refused_in_one_sentence_where_it_is_not(live: LiveWorld, absent: None) -> None:
    with pytest.raises(EjbError) as error:
        await live.submit(engine="dmtcp")
    assert error.value.sentence().startswith("engine dmtcp cannot be used: dmtcp_launch is not on PATH (it comes from ")


async def test_auto_falls_back_and_says_so(live: LiveWorld, absent: None) -> None:
    job = await live.submit(engine="auto")
    assert live.job(job).engine == "none"
    received = next(data for kind, data in live.events(job) if kind == "job.received")
    assert "engine none: dmtcp_launch is not on PATH" in received["reason"]


async def test_auto_is_dmtcp_where_it_is(live: LiveWorld, installed: None) -> None:
    job = await live.submit(engine="auto")
    assert live.job(job).engine == "dmtcp"
    received = next(data for kind, data in live.events(job) if kind == "job.received")
    assert "engine dmtcp: every worker offers it" in received["reason"]


async def test_workers_know_better_than_the_daemons_path(live: LiveWorld, installed: None) -> None:
    job = await live.submit()
    await live.poll(1)
    await live.begin(f"{job}.1")  # these workers tell no engines: nothing is concluded from them
    await live.manager.register_worker(
        live.workers[f"{job}.1"].token,
        {
            "node": "n2",
            "processors": 1,
            "host": "h2",
            "pid": 2,
            "address": "10.0.0.2",
            "boot": "b",
            "engines": ["application", "none"],
        },
    )
    with pytest.raises(EjbError, match="has no usable DMTCP"):
        await live.submit(engine="dmtcp")


async def launched(live: LiveWorld) -> tuple[str, dict[str, object]]:
    job = await live.submit(engine="dmtcp", mpi="mpich")
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    await live.work()
    return job, next(payload for kind, payload in worker.done if kind == "launch")


async def test_what_a_launch_is_told(live: LiveWorld, installed: None) -> None:
    _job, payload = await launched(live)
    assert payload["engine"] == "dmtcp" and payload["home"] is True
    assert payload["dmtcp"] == {"plugin": None, "compress": False, "options": ["--disable-svipc-plugin"]}
    assert payload["mpi"] == {"env": profiles(None)["mpich-ucx"].env, "nodes": ["127.0.0.1"]}


async def test_a_proved_plugin_is_handed_on_and_one_that_failed_is_not(live: LiveWorld, installed: None) -> None:
    folder = live.manager.spool.root / "dmtcp"
    folder.mkdir()
    (folder / "libejbmove.so").touch()
    record = folder / "libejbmove.so.json"
    for trusted in (False, True):
        record.write_text(json.dumps({"trusted": trusted}))
        assert (live.manager.spool.dmtcp_plugin() is not None) is trusted
    _job, payload = await launched(live)
    assert payload["dmtcp"]["plugin"] == str(folder / "libejbmove.so")  # type: ignore[index]


async def test_without_a_plugin_ranks_on_real_nodes_stay(live: LiveWorld, installed: None) -> None:
    live.settings.batch = "slurm"
    job, _payload = await launched(live)
    await live.poll(10)
    assert "decision.expand" not in live.kinds(job)


async def test_open_mpi_is_refused_plainly(live: LiveWorld) -> None:
    with pytest.raises(EjbError, match="Open MPI's ranks cannot be started one by one"):
        await live.submit(mpi="openmpi")
    with pytest.raises(EjbError, match="there is no MPI profile 'lam'"):
        await live.submit(mpi="lam")


def test_a_site_adds_profiles(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text('[ours]\nfamily = "mpich"\nenv = { A = "1" }\n')
    found = profiles(Settings(mpi_profiles=file).mpi_profiles)
    assert found["ours"].env == {"A": "1"} and "mpich-ucx" in found
    bad = tmp_path / "bad.toml"
    bad.write_text('[ours]\nfamily = "lam"\n')
    with pytest.raises(EjbError, match="not a file of MPI profiles"):
        profiles(bad)
