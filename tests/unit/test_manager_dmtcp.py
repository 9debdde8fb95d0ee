"""Engine `dmtcp` in the manager: who gets it, what a launch is told, where it is not moved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.config import Settings
from ejbd.errors import EjbError
from ejbd.manager.facts.placing.mpi import profiles
from ejbd.store.store import Store
from tests.fakes.dmtcp_commands import install
from tests.fakes.live import LiveWorld, some


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'dmtcp')}:/usr/bin:/bin")


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
    assert "engine dmtcp: it is on the daemon's PATH, and no worker was seen yet" in received["reason"]


@pytest.mark.parametrize(
    ("words", "engine"),
    [
        ("torchrun --nnodes 2 --rdzv_endpoint n1:29500 train.py", "none"),
        ("/opt/conda/bin/python3.11 -m torch.distributed.run --nnodes 2 train.py", "none"),
        ("accelerate launch train.py", "none"),
        ("python3 train.py", "dmtcp"),
    ],
)
async def test_what_starts_ranks_that_meet_by_themselves_is_moved_by_nothing_and_has_all_of_them_at_once(
    live: LiveWorld, installed: None, words: str, engine: str
) -> None:
    """It began with one rank of two, and waited for the other; at its first growth it had FAILED."""
    job = await live.submit(engine="auto", argv=tuple(words.split()))
    assert live.job(job).engine == engine
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    await live.work()
    launched = next(payload for kind, payload in worker.done if kind == "launch")
    assert len(launched["ranks"]) == launched["size"] == live.job(job).processes


@pytest.mark.parametrize("asked", ["auto", "dmtcp"])
async def test_a_job_whose_first_nodes_have_none_runs_without_it(live: LiveWorld, installed: None, asked: str) -> None:
    """It is on the daemon's own PATH alone. What a user asks for is not taken back in silence."""
    live.engines = ["application", "none"]
    job = await live.submit(engine=asked, mpi="none")
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    await live.work()
    payload = next(payload for kind, payload in worker.done if kind == "launch")
    assert payload["engine"] == ("none" if asked == "auto" else "dmtcp")
    told = [data for kind, data in live.events(job) if kind == "job.not-movable"]
    assert told == ([{"how": "node", "reason": "node n1 has no usable DMTCP"}] if asked == "auto" else [])
    assert live.job(await live.submit(engine="auto")).engine == "none", "the next one is told so from the beginning"


async def test_workers_know_better_than_the_daemons_path(live: LiveWorld, installed: None) -> None:
    job = await live.submit()
    await live.poll(1)
    first = await live.begin(f"{job}.1")  # it tells no engines: nothing is concluded from that
    await live.manager.register_worker(
        f"{job}.1",
        {
            "node": first.node,
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
    assert payload["dmtcp"] == {
        "calls": str(live.manager.world.spool.root / "dmtcp" / "libejbcalls.so"),
        "plugin": None,
        "compress": "auto",
        "checksum": False,
        "options": ["--disable-svipc-plugin"],
    }
    assert payload["mpi"] == {
        "env": profiles(None)["mpich-ucx"].dmtcp_env,
        "nodes": ["127.0.0.1"],
        "preload": None,
        "sure": True,
    }


async def told(live: LiveWorld, **spec: Any) -> dict[str, Any]:
    """The payload of a job's launch."""
    job = await live.submit(**spec)
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    await live.work()
    return next(payload for kind, payload in worker.done if kind == "launch")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "argv",
    [("./wrapper.sh",), ("env", "A=b", "./a"), ("python3", "x.py"), ("bash", "-c", "./a")],
    ids=["a script", "env", "python", "bash -c"],
)
async def test_ranks_are_wired_up_whatever_stands_before_the_program(live: LiveWorld, argv: tuple[str, ...]) -> None:
    """Nobody sees from outside what it starts. Without moves ranks have their node's network."""
    payload = await told(live, argv=argv, engine="none")
    assert payload["mpi"] == {"env": {}, "nodes": ["127.0.0.1"], "preload": None, "sure": False}


async def test_who_says_that_it_is_no_mpi_program_is_believed(live: LiveWorld) -> None:
    assert (await told(live, engine="none", mpi="none"))["mpi"] is None


@pytest.mark.parametrize("engine", ["none", "application", "dmtcp"])
async def test_what_only_moves_need_is_only_for_moves(live: LiveWorld, installed: None, engine: str) -> None:
    library = live.manager.world.spool.root / "dmtcp" / "libejbprogress.so"
    library.parent.mkdir(exist_ok=True)
    library.touch()
    payload = await told(live, engine=engine)
    if engine != "dmtcp":
        expected = {"env": {}, "nodes": ["127.0.0.1"], "preload": str(library), "sure": False}
        assert (payload["mpi"], payload["dmtcp"]) == (expected, None)
        return
    assert payload["dmtcp"]["options"] == [], "not seen to be MPI's: System V shared memory may be the program's own"
    assert payload["mpi"]["env"]["UCX_TLS"] == "tcp,self" and payload["mpi"]["preload"] is None
    assert "OPENBLAS_NUM_THREADS" not in payload["mpi"]["env"]


async def test_a_proved_plugin_is_handed_on_and_one_that_failed_is_not(live: LiveWorld, installed: None) -> None:
    folder = live.manager.world.spool.root / "dmtcp"
    folder.mkdir(exist_ok=True)
    (folder / "libejbmove.so").touch()
    record = folder / "libejbmove.so.json"
    for trusted in (False, True):
        record.write_text(json.dumps({"trusted": trusted}))
        assert (live.manager.world.spool.dmtcp_plugin() is not None) is trusted
    _job, payload = await launched(live)
    assert payload["dmtcp"]["plugin"] == str(folder / "libejbmove.so")  # type: ignore[index]


async def test_without_a_plugin_the_application_moves_as_a_whole(live: LiveWorld, installed: None) -> None:
    live.settings.batch = "slurm"
    job, payload = await launched(live)
    assert payload["dmtcp"]["plugin"] is None  # type: ignore[index]
    received = next(data for kind, data in live.events(job) if kind == "job.received")
    assert (
        "can_split_hosts is false: no plugin was built (ejb doctor --build-plugin): it moves as a whole"
        in (received["reason"])
    )
    assert live.batch.requests[live.batch.of(f"ejb-{job}.1").id].nodes == 1
    live.batch.free = 8
    await live.poll(10)
    decision = next(data for kind, data in live.events(job) if kind == "decision.expand")["decision"]
    assert decision["reason"].startswith("grow by whole move: all processes to 8 processors on one node (degree 2)")
    assert live.batch.requests[live.batch.of(f"ejb-{job}.2").id].nodes == 1
    live.batch.free = 0
    await live.begin(f"{job}.2")
    await live.work()
    await live.poll(5)
    last = live.epochs(job)[-1]
    assert (last.number, last.state, last.members) == (2, "running", [f"{job}.2"]), "the old place is left"
    assert len({worker for _, worker, _ in last.placement}) == 1 and last.restart_from == 1
    assert next(s for s in live.subjobs(job) if s.id == f"{job}.1").releasing


async def test_without_a_plugin_it_says_why_it_does_not_grow(live: LiveWorld, installed: None) -> None:
    live.settings.batch = "slurm"
    live.batch.node_processors = 4
    job, _payload = await launched(live)
    live.batch.free = 8  # on two nodes
    await live.poll(10)
    assert "decision.expand" not in live.kinds(job)
    explained = await live.manager.explain(job)
    reason = some(explained["present"])["reason"]
    assert reason.startswith("stay on 4 processors, done in ")
    assert reason.endswith("the 16 processes have to stay on one node, where 4 can be had at most: no lower degree")


async def test_without_a_plugin_a_launch_of_a_script_with_stages_is_on_as_many_nodes_as_it_needs(
    live: LiveWorld, installed: None
) -> None:
    """Slurm refused the rest of sixteen places on one node of four, and the script waited until its own end."""
    live.settings.batch = "slurm"
    live.batch.node_processors = 4
    job = await live.submit_script("#!/bin/bash\n#SBATCH -n 16 -t 30\n#EJB stages\n#EJB engine=dmtcp\nsrun ./b\n")
    await live.act()
    worker = await live.begin(f"{job}.0")
    await live.poll()
    await live.work()
    file = str(live.manager.world.spool.launch_file(job, 0))
    await worker.report("launch", ordinal=0, size=16, file=file)
    await live.poll()
    asked = live.batch.requests[live.batch.of(f"ejb-{job}.1").id]
    assert (asked.processors, asked.nodes) == (15, None)
    await live.begin(f"{job}.1")
    await live.poll()
    await live.work()
    assert [(e.size, e.processors, e.state) for e in live.epochs(job)] == [(16, 16, "running")]


async def test_without_a_plugin_a_profile_of_widths_is_refused(live: LiveWorld, installed: None) -> None:
    """Each widening would begin the program anew: its checkpoint cannot be brought back on several nodes."""
    evolving = {"steps": [[100, 4], [200, 12]], "best_effort": True}
    assert live.job(await live.submit(12, elastic=True, engine="dmtcp", evolving=evolving)).engine == "dmtcp", (
        "one host"
    )
    live.settings.batch = "slurm"
    for engine in ("dmtcp", "auto"):
        with pytest.raises(EjbError, match="DMTCP cannot take its ranks from one node to several: can_split_hosts is"):
            await live.submit(12, elastic=True, engine=engine, evolving=evolving)


async def test_ranks_that_no_node_can_hold_start_anywhere_and_stay(live: LiveWorld, installed: None) -> None:
    live.settings.batch = "slurm"
    live.batch.node_processors = 1  # at O_max 8 eight ranks
    job, _payload = await launched(live)
    assert live.batch.requests[live.batch.of(f"ejb-{job}.1").id].nodes is None
    live.batch.free = 8
    await live.poll(10)
    assert "decision.expand" not in live.kinds(job)


async def test_a_place_holder_of_several_nodes_is_no_place_to_move_to(live: LiveWorld, installed: None) -> None:
    live.settings.batch = "slurm"
    live.batch.node_processors = 8
    job, _payload = await launched(live)
    live.batch.start(f"ejb-{job}.0")
    placeholder = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[placeholder.id] = replace(placeholder, nodes=("n1", "n2"))
    await live.poll(1)
    decisions = [data["decision"] for kind, data in live.events(job) if kind.startswith("decision.")]
    moved = [c for c in decisions[-1]["candidates"] if c["name"] == "(i) move to J0"]
    assert not moved[0]["feasible"] and "have to stay on one node" in moved[0]["why"]
    assert decisions[-1]["kind"] in ("keep_subjobs", "start_on_placeholder")


async def test_a_plugin_for_another_dmtcp_is_not_used(live: LiveWorld, installed: None) -> None:
    folder = live.manager.world.spool.root / "dmtcp"
    folder.mkdir(exist_ok=True)
    (folder / "libejbmove.so").touch()
    built = {"version": "5.0", "library": "0badcafe", "machine": "x86_64"}
    (folder / "libejbmove.so.json").write_text(json.dumps({"trusted": True, **built}))
    live.settings.batch = "slurm"
    first = await live.submit()
    await live.poll(1)
    await live.begin(f"{first}.1")
    hello = {"node": "n1", "processors": 1, "host": "h", "pid": 2, "address": "10.0.0.2", "engines": ["dmtcp", "none"]}
    await live.manager.register_worker(f"{first}.1", {**hello, "boot": "b", "dmtcp": built})
    job = await live.submit(engine="dmtcp")
    received = next(data for kind, data in live.events(job) if kind == "job.received")
    assert "can_split_hosts" not in received["reason"]
    await live.manager.register_worker(f"{first}.1", {**hello, "boot": "c", "dmtcp": {**built, "library": "12345678"}})
    job = await live.submit(engine="dmtcp")
    received = next(data for kind, data in live.events(job) if kind == "job.received")
    assert "the plugin was built for another DMTCP than node n1 has" in received["reason"]


async def test_open_mpi_without_dmtcp_is_passed_through(live: LiveWorld, absent: None) -> None:
    with pytest.raises(EjbError, match="started by one mpirun, and without DMTCP that cannot be moved"):
        await live.submit(mpi="openmpi", engine="auto", elastic=True)
    job = await live.submit(mpi="openmpi", engine="auto")
    assert not live.job(job).elastic
    received = next(data for kind, data in live.events(job) if kind == "job.received")
    assert received["reason"] == "Open MPI's ranks are started by one mpirun, and without DMTCP that cannot be moved"
    script = live.batch.requests[live.batch.of(f"ejb-{job}.0").id].script
    launch = script.splitlines()[1]
    assert launch.startswith("mpirun ") and launch.endswith("-np 16 ./heat")


async def test_open_mpi_under_dmtcp_is_one_mpirun_on_one_node(live: LiveWorld, installed: None) -> None:
    job = await live.submit(mpi="openmpi", engine="dmtcp")
    assert live.job(job).elastic
    received = next(data for kind, data in live.events(job) if kind == "job.received")
    assert "one mpirun starts Open MPI's ranks: it moves as a whole, from one node to another" in received["reason"]
    assert live.batch.requests[live.batch.of(f"ejb-{job}.0").id].nodes == 1
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    await live.work()
    payload = next(payload for kind, payload in worker.done if kind == "launch")
    assert payload["mpi"] is None and len(payload["ranks"]) == 16
    assert payload["launcher"]["argv"][0] == "mpirun" and payload["launcher"]["argv"][-2:] == ["-np", "16"]


async def test_open_mpi_that_fits_no_node_is_passed_through(live: LiveWorld, installed: None) -> None:
    live.batch.node_processors = 8
    await live.poll(1)
    job = await live.submit(mpi="openmpi", engine="dmtcp")
    received = next(data for kind, data in live.events(job) if kind == "job.received")
    assert not received["elastic"] and "no node of queue batch has 16 processors (at most 8)" in received["reason"]


async def test_an_mpi_that_nobody_knows_is_refused(live: LiveWorld) -> None:
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
