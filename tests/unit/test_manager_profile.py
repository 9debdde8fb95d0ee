"""Engine `profile` in the manager: the profile is found by what is launched, its widths are planned with, and what goes
wrong goes back to the state as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ejbd._workers.ejb_worker.profiles.matching import matches
from ejbd._workers.ejb_worker.profiles.wrapping import unwrapped
from ejbd.api.models.plans import ApplicationView
from ejbd.cli.show.jobs import application_lines
from ejbd.core.memory import Memory
from ejbd.errors import EjbError
from ejbd.files.profilefiles import MOST_SENT_BYTES, to_send
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing.appprofile import programs_of, unfit, why_not, with_profile
from ejbd.manager.jobspec import JobRequest, Overrides, read
from ejbd.manager.jobspec.wants import Wants
from ejbd.profiles.reading import SHIPPED, matching, read_all
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

OWN: dict[str, Any] = {"engine": "auto", "argv": ("./ejb-own-heat",)}
PROFILES = read_all([SHIPPED])


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def running_on_four(live: LiveWorld, **spec: Any) -> str:
    job = await live.submit(**{**OWN, **spec})
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    return job


async def grown(live: LiveWorld, deaf: set[str] | None = None, fail: dict[str, Any] | None = None) -> str:
    """It runs with 4 ranks, and 4 processors more are there; its first worker does not hear, or fails, from then on."""
    job = await running_on_four(live)
    await live.poll(10)
    live.workers[f"{job}.1"].deaf, live.workers[f"{job}.1"].fail = deaf or set(), fail or {}
    await live.begin(live.subjobs(job)[2].id)
    return job


def told(live: LiveWorld, job: str) -> list[tuple[str, int, int | None]]:
    return [(one.state, one.size, one.restart_from) for one in live.epochs(job)]


def payloads(live: LiveWorld, kind: str) -> list[dict[str, Any]]:
    return [payload for worker in live.workers.values() for which, payload in worker.done if which == kind]


async def test_auto_finds_the_profile_by_what_is_launched_and_plans_with_its_widths(live: LiveWorld) -> None:
    job = await running_on_four(live)
    row = live.job(job)
    assert row.engine == "profile" and row.spec["profile"]["name"] == "own" and row.spec["widths"] == "any"
    (launch,) = payloads(live, "launch")
    assert (launch["engine"], launch["size"], launch["profile"]["stop"]["signal"]) == ("profile", 4, "USR1")
    await live.poll(10)
    await live.begin(live.subjobs(job)[2].id)
    await live.work()
    await live.poll(1)
    await live.work()
    assert told(live, job) == [("stopped", 4, None), ("running", 8, 1)]
    (stop, *_) = payloads(live, "checkpoint")
    assert stop["timeout_s"] >= row.spec["profile"]["grace_s"] + 30, "it is killed after its grace, and judged"


async def test_ranks_of_open_mpi_are_spread_until_a_worker_says_that_its_mpirun_cannot(live: LiveWorld) -> None:
    job = await running_on_four(live, mpi="openmpi")
    await live.poll(10)
    live.workers[f"{job}.1"].fail = {"launch": {"one_node": True}}
    await live.begin(live.subjobs(job)[2].id)
    await live.work()
    live.workers[f"{job}.1"].fail = {}
    for _ in range(4):
        await live.poll(5)
        await live.work()
    spread = [one["launcher"] for one in payloads(live, "launch") if one["size"] == 8]
    assert sorted(one["host"] for one in spread) == ["ejb-w1", "ejb-w2"]
    assert all(one["hosts"] == ["ejb-w1"] * 4 + ["ejb-w2"] * 4 for one in spread)
    sizes = [(size, len({seat.worker for seat in one.placement})) for one in live.epochs(job) for size in [one.size]]
    assert sizes[:2] == [(4, 1), (8, 2)] and sizes[2:] == [(4, 1)] * (len(sizes) - 2) and len(sizes) > 2, sizes
    assert live.epochs(job)[-1].state == "running"


async def test_a_program_without_a_profile_is_as_it_was_and_engine_profile_says_so(
    live: LiveWorld, absent: None
) -> None:
    assert live.job(await live.submit(engine="auto")).engine == "none"
    with pytest.raises(EjbError, match="no profile is for what the job launches"):
        await live.submit(engine="profile")


async def test_widths_that_the_job_says_count_before_those_of_its_profile(live: LiveWorld) -> None:
    job = await running_on_four(live, widths="3,8")
    assert live.epochs(job)[0].size == 3


async def test_a_move_costs_by_its_width_what_moves_to_it_have_cost(live: LiveWorld) -> None:
    def moves_of(job: str) -> tuple[float, ...]:
        rungs = live.store.read_sync(lambda s: JobWorld(live.manager.world.context(s), live.job(job)).rungs)
        assert rungs is not None
        return rungs.moves_s

    job = await running_on_four(live)
    assert moves_of(job) == ()
    await live.poll(10)
    await live.begin(live.subjobs(job)[2].id)
    await live.work()
    await live.poll(1)
    await live.work()
    assert told(live, job)[-1] == ("running", 8, 1)
    assert len(moves_of(job)) == 16, "by what the move to eight has cost"
    own = await live.submit(**{**OWN, "lambda_s": 7.0})
    assert moves_of(own) == (), "what a job says holds for every width"


async def test_what_ends_when_it_is_told_to_stop_has_finished(live: LiveWorld) -> None:
    exits = {str(rank): 0 for rank in range(4)}
    job = await grown(live, fail={"checkpoint": {"exits": exits, "bytes": {}, "seconds": 0.1}})
    await live.work()
    await live.poll(1)
    await live.work()
    await live.act()
    assert told(live, job) == [("ended", 4, None)] and live.job(job).state == "completed"


async def test_a_width_at_which_its_state_did_not_go_on_is_not_tried_again(live: LiveWorld) -> None:
    job = await grown(live)
    await live.work()
    await live.poll(1)
    await live.work()
    assert told(live, job)[-1] == ("running", 8, 1)
    await live.workers[f"{job}.1"].report("rank-exit", epoch=2, rank=0, code=1)
    for _ in range(3):
        await live.poll(10)
        await live.work()
    sizes = [size for _, size, _ in told(live, job)]
    assert sizes[:2] == [4, 8] and len(sizes) > 2 and 8 not in sizes[2:], told(live, job)
    assert told(live, job)[2][2] == 1, "from the state that it had before"
    assert live.job(job).state == "running"


async def test_a_job_goes_on_without_the_width_that_it_asked_for_where_it_fails_there_alone(live: LiveWorld) -> None:
    """As pw.x with more ranks than it has bands. The first failure may be a node's doing: it is tried twice."""
    job = await running_on_four(live)
    await live.poll(60)  # less work than a move is worth would be begun anew on J0
    await live.begin(f"{job}.0")
    for _ in range(8):
        await live.poll(2)
        await live.work()
        last = live.epochs(job)[-1]
        if last.size == 16 and last.state == "running":
            await live.workers[f"{job}.0"].report("rank-exit", epoch=last.number, rank=0, code=1)
    assert [size for _, size, _ in told(live, job)] == [4, 16, 16, 15], [e.reason for e in live.epochs(job)]
    assert live.epochs(job)[-1].state == "running"
    explained = (await live.manager.explain(job))["application"]
    assert explained is not None and explained["not_again"] == [16]
    assert max(one["ranks"] for one in explained["widths"]) == 15
    lines = application_lines(ApplicationView.model_validate(explained).model_dump())
    assert any("did not go on with 16 ranks" in line for line in lines), lines


@pytest.mark.parametrize("phase", ["stopping", "launching", "running"])
async def test_a_node_that_is_lost_in_a_phase_of_a_move_costs_what_was_done_since_the_last_stop(
    live: LiveWorld, phase: str
) -> None:
    job = await grown(live, {"stopping": {"checkpoint"}, "launching": {"launch"}}.get(phase))
    second = live.subjobs(job)[2].id
    await live.work()
    await live.poll(1)
    await live.work()
    assert live.epochs(job)[-1].state == phase
    lost = f"{job}.1" if phase == "stopping" else second
    live.batch.end(f"ejb-{lost}")
    for worker in live.workers.values():
        worker.deaf = set()
    for _ in range(5):
        await live.poll(31)
        await live.work()
    if phase == "stopping":  # its only stop was lost with the node: it waits, and begins anew
        assert told(live, job) == [("failed", 4, None)] and live.job(job).state == "waiting"
        assert live.job(job).work_s == 0.0
        return
    last = told(live, job)[-1]
    assert live.job(job).state == "running" and last[0] == "running", told(live, job)
    assert last[2] == 1, "what was stopped is gone on with"


async def test_a_node_that_the_batch_system_takes_back_is_left_by_its_profile(live: LiveWorld) -> None:
    job = await running_on_four(live)
    first = f"{job}.1"
    await live.poll(10)
    await live.begin(live.subjobs(job)[2].id)
    await live.work()
    await live.poll(1)
    await live.work()
    assert told(live, job)[-1] == ("running", 8, 1)
    await live.workers[first].report("warned", signal="TERM")  # of a preemption with a grace
    for _ in range(3):
        await live.poll(2)
        await live.work()
    stops = [payload["epoch"] for payload in payloads(live, "checkpoint")]
    assert 2 in stops, "told to stop by its profile, before its node is taken"
    last = live.epochs(job)[-1]
    assert last.restart_from == 2 and first not in last.members, told(live, job)


async def test_before_a_subjobs_walltime_is_over_it_is_stopped_and_goes_on_with_the_ranks_of_the_others(
    live: LiveWorld,
) -> None:
    job = await running_on_four(live, walltime_s=400.0)
    await live.poll(20)
    second = live.subjobs(job)[2].id
    granted, live.batch.start = live.batch.start, partial(live.batch.start, walltime_s=100)  # type: ignore[method-assign]
    await live.begin(second)
    live.batch.start, live.batch.free = granted, 0  # type: ignore[method-assign]
    await live.poll(1)
    await live.work()
    assert told(live, job) == [("stopped", 4, None), ("running", 8, 1)]
    await live.poll(90)
    await live.work()
    assert told(live, job)[1:] == [("stopped", 8, 1), ("running", 4, 2)], "before the batch system ends it"
    assert live.epochs(job)[-1].members == [f"{job}.1"] and not live.job(job).setbacks
    starts = sorted({(one["epoch"], one["engine"], one["size"]) for one in payloads(live, "launch")})
    assert starts == [(1, "profile", 4), (2, "profile", 8), (3, "profile", 4)]


async def test_a_dry_run_and_explain_say_the_profile_and_its_widths(live: LiveWorld) -> None:
    plan = await live.plan(**OWN)
    found = plan["application"]
    assert found is not None and found["profile"] == "own" and found["now"] is None
    takes = {one["ranks"]: one["takes_s"] for one in found["widths"]}
    assert takes[16] == 100.0 and takes[1] == 1600.0 and len(takes) <= 12
    job = await running_on_four(live)
    explained = (await live.manager.explain(job))["application"]
    assert explained is not None and explained["now"] == 4 and explained["why"] == ""


async def test_a_program_that_needs_the_same_memory_in_all_asks_for_more_on_fewer_processors(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {"own": PROFILES["own"].model_copy(update={"memory": Memory.WHOLE})}
    monkeypatch.setattr("ejbd.manager.facts.placing.appprofile.known", lambda own: whole)
    live.batch.node_processors, live.batch.node_memory_mb = 4, 1000
    job = await running_on_four(live, wants=Wants(memory_per_processor_mb=50))
    asked = {request.processors: request.options for request in live.batch.requests.values()}
    assert asked == {16: ("--mem-per-cpu=50M",), 4: ("--mem-per-cpu=200M",)}
    explained = (await live.manager.explain(job))["application"]
    assert explained is not None and explained["least_by_memory"] == 1
    plan = await live.plan(**OWN, wants=Wants(memory_per_processor_mb=200))
    found, decision = plan["application"], plan["decision"]
    assert found is not None and found["least_by_memory"] == 4 and min(one["ranks"] for one in found["widths"]) == 4
    lines = application_lines(ApplicationView.model_validate(found).model_dump())
    assert any("fewer than 4 ranks each would need more memory than a node has" in line for line in lines), lines
    assert decision is not None and decision["kind"] == "nothing", "four processors are free, of one node alone"


IN_MELT = """\
read_restart ${resume}
dump d all atom 100 melt.*.dump
variable seen atom is_file(STOP)
fix h all halt 20 v_s > 0
run 2000 upto
write_restart melt.last
"""


def launch_file(folder: Path, *argv: str) -> str:
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({"argv": argv, "cwd": str(folder), "env": {}, "size": 4}))
    return str(path)


def test_a_launch_of_another_program_or_of_a_case_that_is_not_fit_is_not_run_by_the_profile(tmp_path: Path) -> None:
    lammps = json.dumps(PROFILES["lammps"].model_dump(mode="json"))
    assert "is not for gmx" in why_not(launch_file(tmp_path, "gmx", "grompp"), lammps)
    assert "in.melt is not there" in why_not(launch_file(tmp_path, "lmp", "-in", "in.melt"), lammps)
    (tmp_path / "in.melt").write_text("run 10\nwrite_restart melt.last\n")
    assert "no line of in.melt is like" in why_not(launch_file(tmp_path, "lmp", "-in", "in.melt"), lammps)
    (tmp_path / "in.melt").write_text(IN_MELT)
    assert why_not(launch_file(tmp_path, "lmp", "-in", "in.melt"), lammps) == ""
    assert "no option -deffnm" in unfit(PROFILES["gromacs"], ["gmx", "mdrun"], str(tmp_path))
    scf = tmp_path / "h2.in"
    for calculation, says in (("'vc-relax'", ""), ("'scf'", "no line of h2.in is like")):
        scf.write_text(f"&control\n calculation = {calculation}\n/\n")
        found = unfit(PROFILES["pwscf"], ["pw.x", "-i", "h2.in"], str(tmp_path))
        assert bool(found) == bool(says) and says in found, "a single SCF would begin anew with each move"


def test_a_training_script_that_does_not_look_for_the_stop_is_not_run_by_the_profile(tmp_path: Path) -> None:
    """It was told to stop at its first growth, killed after its grace, and FAILED with 137."""
    words = ["torchrun", "--nnodes=1:4", "--nproc_per_node=1", "train.py", "--epochs", "3"]
    for text, says in (("import torch", "no line of train.py is like"), ("if Path('STOP').exists(): save()", "")):
        (tmp_path / "train.py").write_text(text)
        found = unfit(PROFILES["torchrun"], words, str(tmp_path))
        assert bool(found) == bool(says) and says in found
    assert "no word like" in unfit(PROFILES["torchrun"], ["torchrun", "--nnodes=1:4", "-m", "train"], str(tmp_path))


@pytest.mark.parametrize(
    ("launch", "program"),
    [
        ("srun -n $SLURM_NTASKS lmp -in x", ["lmp", "-in", "x"]),
        ("mpirun -np 16 gmx_mpi mdrun -deffnm md > log 2>&1", ["gmx_mpi", "mdrun", "-deffnm", "md"]),
        ("cd a && srun \\\n  ./field in.dat || exit 3", ["./field", "in.dat"]),
        ("srun python3 field.py 'a b' # the field", ["python3", "field.py", "a b"]),
    ],
)
def test_the_program_of_a_launch_is_read_out_of_the_script(tmp_path: Path, launch: str, program: list[str]) -> None:
    script = f"#!/bin/sh\n#SBATCH -n 16 -t 10\n{launch}\n"
    spec = read(JobRequest(cwd=str(tmp_path), script=script, overrides=Overrides())).spec
    assert [words[: len(program)] for words in programs_of(spec)] == [program]


FOAM = "startFrom latestTime;\nstopAt endTime;\nendTime 1;\nstopAtWriteNowSignal 10;\n"
WATER = "PROJECT w\nRUN_TYPE MD\nSTEPS 50\nMAX_STEPS 50\n"
RELAXES = "&control\n calculation = 'relax'\n/\n"


@pytest.mark.parametrize(
    ("words", "files", "why"),
    [
        ("gmx_mpi mdrun -deffnm md -ntomp 4 -npme 0 -cpt 5 -v", {}, ""),
        ("gmx_mpi mdrun -deffnm md -nsteps 30000", {}, "-nsteps: with -cpi it counts from the checkpoint on"),
        ("gmx_mpi mdrun -deffnm md -nsteps=30000", {}, "-nsteps: with -cpi it counts"),
        ("gmx mdrun -deffnm md -maxh 0.3", {}, "-maxh: each part"),
        ("gmx mdrun -deffnm md -noappend -cpi", {}, "-noappend: "),
        ("gmx mdrun -deffnm md -npme 4", {}, "-npme: "),
        ("gmx mdrun -deffnm md -cpt -1", {}, "-cpt: "),
        ("gmx mdrun -deffnm md -rerun t.xtc", {}, "-rerun: "),
        ("lmp -in in.melt", {"in.melt": IN_MELT}, ""),
        ("lmp -in in.melt -p 2x4", {"in.melt": IN_MELT}, "-p: "),
        ("lmp -in in.melt", {"in.melt": IN_MELT.replace(" upto", "")}, "in.melt: `run N` without upto"),
        ("lmp -in in.melt", {"in.melt": IN_MELT.replace("run", "run 0\nrun")}, ""),
        ("lmp -in in.melt", {"in.melt": IN_MELT.replace("is_file(STOP)", "x")}, "looks for the file STOP"),
        ("lmp -in in.melt", {"in.melt": IN_MELT.replace("melt.*.dump", "melt.dump")}, "dump_modify ... append yes"),
        (
            "lmp -in in.melt",
            {"in.melt": IN_MELT.replace("melt.*.dump", "melt.dump\ndump_modify d sort id append yes")},
            "",
        ),
        ("lmp -in in.melt", {"in.melt": IN_MELT + "fix a all ave/time 1 9 9 c_t file t.txt\n"}, "the file of a fix"),
        ("lmp -in in.melt", {"in.melt": IN_MELT + "timer timeout 1:00\n"}, "timer timeout"),
        ("cp2k.psmp -i w.inp", {"w.inp": WATER}, ""),
        ("cp2k.psmp -i w.inp", {"w.inp": WATER.replace("MAX_STEPS 50", "MAX_STEPS 5000")}, "no line of w.inp is like"),
        ("cp2k.psmp -i w.inp", {"w.inp": "PROJECT w\nRUN_TYPE GEO_OPT\n"}, ""),
        ("cp2k.psmp -i w.inp", {"w.inp": "PROJECT w\nRUN_TYPE ENERGY\n"}, "no line of w.inp is like"),
        ("cp2k.psmp -i w.inp", {"w.inp": WATER + "  WALLTIME 3600\n"}, "each part"),
        ("simpleFoam -parallel", {"system/controlDict": FOAM}, ""),
        ("simpleFoam -parallel", {"system/controlDict": FOAM + "functions\n{\n}\n"}, "function objects"),
        (
            "simpleFoam -parallel",
            {"system/controlDict": FOAM, "system/fvSolution": "SIMPLE\n{\n    residualControl\n    {\n    }\n}\n"},
            "may end before endTime",
        ),
        ("pw.x -in si.in", {"si.in": RELAXES}, ""),
        ("pw.x -in si.in", {"si.in": RELAXES.replace("/", "max_seconds = 300\n/")}, "each part"),
    ],
)
def test_what_a_resumed_run_would_not_keep_is_not_moved(
    tmp_path: Path, words: str, files: dict[str, str], why: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    one = matching(words.split(), PROFILES)
    assert one is not None
    found = why_not(launch_file(tmp_path, *words.split()), json.dumps(one.model_dump(mode="json")))
    assert bool(found) == bool(why) and why in found, found
    script = f"#!/bin/sh\n#SBATCH -n 16 -t 10\nsrun {words}\n"
    spec = read(JobRequest(cwd=str(tmp_path), script=script, overrides=Overrides())).spec
    taken, note = with_profile(spec, False)
    assert (taken.profile is None, note) == (bool(why), f"no profile is taken: {found}" if why else "")


MD = "lmp -in in.melt"


@pytest.mark.parametrize(
    ("command", "tools"),
    [
        (f"apptainer exec melt.sif {MD}", "apptainer exec melt.sif"),
        (f"/opt/bin/apptainer -q exec --nv -B /data:/d --env=A=1 -- m.sif {MD}", None),
        (f"singularity run --cleanenv --bind /scratch docker://x/lmp:1 {MD}", None),
        (f"apptainer exec --pwd /case m.sif {MD}", None),
        (f"apptainer exec --cwd $PWD m.sif {MD}", None),
        (f"ch-run --cd /case -b /data:/d /var/img -- {MD}", None),
        (f"ch-run --cd=/case -w img {MD}", None),
    ],
)
def test_the_program_in_a_container_is_seen_behind_its_wrappers_words(command: str, tools: str | None) -> None:
    words = command.split()
    found = unwrapped(words, "/case")
    assert found.program == MD.split() and found.wrapper + found.program == words
    assert matches(PROFILES["lammps"], found.program) and not matches(PROFILES["lammps"], words)
    assert found.tools == (tools.split() if tools else ["exec" if one == "run" else one for one in found.wrapper])
    assert unwrapped(MD.split(), "/case").wrapper == []


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (f"apptainer exec --fancy x m.sif {MD}", "the option --fancy is not known"),
        (f"apptainer exec --pwd /other m.sif {MD}", "it runs in /other, but"),
        (f"apptainer exec -C m.sif {MD}", "apptainer -C: the folder in which the launch runs has to be there"),
        (f"apptainer exec instance://melt {MD}", "what an instance has"),
        ("singularity run m.sif", "singularity: the program is not named"),
        ("apptainer exec --bind", "--bind needs a value"),
        ("apptainer shell m.sif", "only what it starts by exec or run"),
        (f"ch-run img -- {MD}", "say --cd"),
        (f"ch-run --cd . img -- {MD}", "ch-run: it runs in ., but"),
        (f"podman run img {MD}", "podman: no profile is looked for"),
    ],
)
def test_why_no_profile_is_found_in_a_container_is_a_sentence(tmp_path: Path, command: str, says: str) -> None:
    spec = read(JobRequest(cwd=str(tmp_path), command=tuple(command.split()), overrides=Overrides(ntasks="4"))).spec
    taken, note = with_profile(replace(spec, engine="auto"), False)
    assert taken.profile is None and note.startswith("no profile is taken: ") and says in note, note
    with pytest.raises(EjbError, match="no profile is for what the job launches: "):
        with_profile(replace(spec, engine="profile"), False)
    why = why_not(launch_file(tmp_path, *command.split()), json.dumps(PROFILES["lammps"].model_dump(mode="json")))
    assert says in why


def test_a_script_that_launches_a_container_has_the_profile_of_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "in.melt").write_text(IN_MELT)
    script = f"#!/bin/sh\n#SBATCH -n 16 -t 10\nsrun apptainer exec -B /data melt.sif {MD}\n"
    spec = read(JobRequest(cwd=str(tmp_path), script=script, overrides=Overrides())).spec
    taken, note = with_profile(replace(spec, engine="auto"), False)
    assert taken.profile is not None and taken.profile["name"] == "lammps" and note == ""


HOSTILE = """
[mine]
match = { program = ["ejb-own-*"] }
stop = { signal = "USR1", needs = "(a+)+$", needs_in = "/etc/passwd" }
stopped = { codes = [85], code_alone = true }
finished = { codes = [0], code_alone = true }
state = ["/etc/passwd", "../../{epoch}"]
resume = { prepare = ["rm -rf {newest state}"] }
"""


def taken(tmp_path: Path, own: bool, sent: dict[str, str], engine: str = "auto") -> tuple[Any, str]:
    request = JobRequest(cwd=str(tmp_path), command=("./ejb-own-heat",), overrides=Overrides(ntasks="4", time="5"))
    spec = replace(read(request).spec, engine=engine)
    return with_profile(spec, own, sent)


def test_a_profile_that_was_sent_counts_first_and_is_kept_with_the_job(tmp_path: Path) -> None:
    spec, note = taken(tmp_path, False, {"mine.toml": HOSTILE})
    assert spec.profile["name"] == "mine" and spec.profile["sent"] and not note
    assert spec.profile["state"] == ["/etc/passwd", "../../{epoch}"], "it is the user's rank that reads it"


def test_the_daemon_searches_no_file_for_the_pattern_of_a_profile_that_another_user_has_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def unfit_too(*_: Any) -> str:
        looked.append("unfit")
        return ""

    monkeypatch.setattr("ejbd.manager.facts.placing.appprofile.unfit", unfit_too)
    spec, _ = taken(tmp_path, False, {"mine.toml": HOSTILE})
    launch = tmp_path / "launch.json"
    launch.write_text(json.dumps({"argv": ["./ejb-own-heat"], "cwd": str(tmp_path), "env": {}}))
    assert why_not(str(launch), json.dumps(spec.profile)) == "" and looked == []
    taken(tmp_path, True, {"mine.toml": HOSTILE})
    assert looked == ["unfit"], "of the daemon's own user it does"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "the profiles in mine.toml is no TOML"),
        ("x = " + "[" * 3000 + "]" * 3000, "is nested too deeply"),
        (HOSTILE.replace('"(a+)+$"', '"' + "(" * 3000 + ")" * 3000 + '"'), "a pattern of the profile mine is nested"),
        (HOSTILE.replace("state = [", "states = ["), "the profile mine, state: Field required"),
    ],
    ids=["no TOML", "deep", "deep pattern", "no state"],
)
def test_a_sent_profile_that_is_wrong_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    spec, note = taken(tmp_path, False, {"mine.toml": text})
    assert says in note and note.endswith("none of the profiles that were sent is used") and "\n" not in note[:200]
    assert spec.profile["name"] == "own", "what the site has is as it was"
    with pytest.raises(EjbError, match=says.split(":")[0]):
        taken(tmp_path, False, {"mine.toml": text}, "profile")


def test_what_a_user_has_is_sent_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(HOSTILE)
    (tmp_path / "b.toml").write_bytes(b"x" * (MOST_SENT_BYTES + 1))
    (tmp_path / "c.toml").write_bytes(b"\xff")
    (tmp_path / "d.toml").mkdir()
    (tmp_path / "e.txt").write_text(HOSTILE)
    said: list[str] = []
    assert list(to_send(str(tmp_path), said.append)) == ["a.toml"]
    assert [f"{name}.toml are not sent" in line for name, line in zip("bcd", said, strict=True)] == [True] * 3
    assert to_send(str(tmp_path / "none"), said.append) == {} and len(said) == 3
