"""The mpirun of a job that is restarted on another number of ranks is looked at when it is submitted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.core.placing import Seat
from ejbd.manager.facts.placing.checkpointing import spread, with_mpi
from ejbd.manager.facts.placing.mpi import linked_mpi, linked_with
from ejbd.manager.facts.placing.mpirun import doubt, with_launcher
from ejbd.manager.jobspec import JobKind, JobRequest, JobSpec, Overrides, read
from ejbd.store.models import Worker
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld


def spec_of(tmp_path: Path, launch: str = "mpirun -np 4 ./field", engine: str = "application") -> JobSpec:
    script = f"#!/bin/sh\n#SBATCH -n 4 -t 10\n#EJB engine={engine}\n{launch}\n"
    env = {"PATH": f"{tmp_path}/bin"}
    return read(JobRequest(cwd=str(tmp_path), script=script, env=env, overrides=Overrides())).spec


def mpirun(tmp_path: Path, text: bytes) -> None:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "mpirun").write_bytes(text)
    (folder / "mpirun").chmod(0o755)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"\x7fELF libopen-rte.so.40", ""),
        (b"\x7fELF HYDRA build details", ""),
        (b"\x7fELF libprrte.so.3", ""),
        (b"\x7fELF OMPI_PRTERUN %s%sprterun", ""),
        (
            b"\x7fELF libopen-rte.so.20",
            "is an Open MPI before version 4: ranks of Open MPI 4 and 5 and MPICH alone run on several nodes",
        ),
        (b"#!/bin/sh\nexport I_MPI_ROOT\n", "is Intel MPI"),
        (b"#!/bin/sh\nexec something\n", "is of a kind that is not known"),
    ],
)
def test_the_kind_of_an_mpirun_is_seen_by_what_it_names(tmp_path: Path, text: bytes, says: str) -> None:
    mpirun(tmp_path, text)
    found = doubt(spec_of(tmp_path))
    assert (says in found and found.startswith(f"{tmp_path}/bin/mpirun")) if says else found == ""


def test_what_is_started_otherwise_is_not_doubted(tmp_path: Path) -> None:
    assert "there is no mpirun on the job's PATH" in doubt(spec_of(tmp_path))
    mpirun(tmp_path, b"unknown")
    assert doubt(spec_of(tmp_path, "srun ./field")) == ""
    assert doubt(spec_of(tmp_path, "module load openmpi\nmpirun -np 4 ./field")) == "", "it may find another"
    assert doubt(spec_of(tmp_path, engine="dmtcp")) == "", "its ranks stay on one node anyway"


async def test_a_dry_run_and_a_submission_say_so(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    mpirun(tmp_path, b"unknown")
    script = "#!/bin/sh\n#EJB engine=application widths=any\nmpirun -np 16 ./field\n"
    spec = {"script": script, "env": {"PATH": f"{tmp_path}/bin"}, "widths": "any", "restartable": True}
    plan = await live.plan(kind=JobKind.SCRIPT, argv=(), engine="application", cwd=str(tmp_path), **spec)
    assert any("is of a kind that is not known" in note for note in plan["notes"]), plan["notes"]


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (b"libmpi_mpifh.so.40", "openmpi"),  # a Fortran program that uses mpif.h: Debian's pw.x and cp2k
        (b"libmpi_usempif08.so.40", "openmpi"),
        (b"libmpichfort.so.12", "mpich"),
        (b"libmpi.so.12", "mpich"),
        (b"libmpifort.so.12", "mpich"),
        (b"libmpisomething.so.40", "none"),
    ],
)
def test_the_mpi_of_a_fortran_program_is_seen_too(tmp_path: Path, names: bytes, family: str) -> None:
    (tmp_path / "a").write_bytes(b"\x7fELF " + names)
    (tmp_path / "a").chmod(0o755)
    assert linked_with(["./a"], str(tmp_path), {}) == family


def test_a_program_that_names_no_mpi_has_that_of_its_mpirun(tmp_path: Path) -> None:
    mpirun(tmp_path, b"\x7fELF libopen-rte.so.40")
    own = replace(spec_of(tmp_path, "mpirun -np 4 ./ejb-own-heat"), profile={"name": "own"})
    assert with_launcher(own).mpi == "openmpi"
    assert with_launcher(replace(own, profile=None)).mpi == "auto"
    assert with_launcher(replace(own, mpi="none")).mpi == "none"
    assert with_launcher(replace(spec_of(tmp_path, "srun ./ejb-own-heat"), profile={"name": "own"})).mpi == "auto"
    mpirun(tmp_path, b"\x7fELF HYDRA")
    assert with_launcher(own).mpi == "auto"


@pytest.mark.parametrize(
    ("launcher", "mark", "text", "family"),
    [
        ("mpirun", b"prterun", "from mpi4py import MPI", "openmpi"),
        ("mpiexec", b"libopen-rte.so.40", "import mpi4py.MPI", "openmpi"),
        ("mpirun", b"HYDRA", "from mpi4py import MPI", "none"),
        ("srun", b"prterun", "from mpi4py import MPI", "none"),  # which MPI that Python has is not known
        ("mpirun", b"prterun", "# no mpi4py here", "none"),
    ],
)
def test_a_script_with_mpi4py_has_the_mpi_of_its_mpirun(
    tmp_path: Path, launcher: str, mark: bytes, text: str, family: str
) -> None:
    """Its ranks were started one by one, and each was rank 0 of 1."""
    mpirun(tmp_path, b"\x7fELF " + mark)
    (tmp_path / "bin" / "mpiexec").write_bytes(b"\x7fELF " + mark)
    (tmp_path / "bin" / "mpiexec").chmod(0o755)
    (tmp_path / "field.py").write_text(text + "\n")
    launch = {"argv": ["python3", "field.py"], "cwd": str(tmp_path), "env": {"PATH": f"{tmp_path}/bin"}}
    (tmp_path / "0.json").write_text(json.dumps({**launch, "launcher": launcher}))
    assert linked_mpi(tmp_path / "0.json") == family
    (tmp_path / "0.json").write_text(json.dumps(launch))
    assert linked_mpi(tmp_path / "0.json") == "none", "as a worker wrote it that knows of no launchers"


@pytest.mark.parametrize(
    ("mark", "engine", "chosen"),
    [(b"prterun", "auto", "none"), (b"prterun", "dmtcp", "dmtcp"), (b"libopen-rte.so.40", "auto", "auto")],
)
def test_a_command_of_open_mpi_5_is_not_begun_under_dmtcp(
    tmp_path: Path, mark: bytes, engine: str, chosen: str
) -> None:
    mpirun(tmp_path, b"\x7fELF " + mark)
    (tmp_path / "a").write_bytes(b"\x7fELF libmpi.so.40")
    (tmp_path / "a").chmod(0o755)
    spec = replace(spec_of(tmp_path), kind=JobKind.COMMAND, argv=("./a",), script=None, engine=engine)
    assert (with_mpi(spec).mpi, with_mpi(spec).engine) == ("openmpi", chosen)


def test_one_mpirun_is_told_on_which_worker_each_rank_sits() -> None:
    workers = [Worker(id=id, address=address) for id, address in (("a", "10.0.0.1"), ("b", "10.0.0.2"))]
    told = spread({"argv": ["mpirun"]}, [Seat(2, "a", 1), Seat(0, "b", 0), Seat(1, "a", 0)], workers)
    assert told["a"]["hosts"] == told["b"]["hosts"] == ["ejb-w2", "ejb-w1", "ejb-w1"], "in the order of the ranks"
    assert (told["a"]["host"], told["b"]["host"]) == ("ejb-w1", "ejb-w2")
    assert not told["a"]["shares"]
    workers[1].address = "10.0.0.1"
    assert spread({"argv": ["mpirun"]}, [Seat(0, "b", 0), Seat(1, "a", 0)], workers)["b"]["shares"]
    assert spread({"argv": ["mpirun"]}, [Seat(0, "a", 0)], workers[:1]) == {}, "one worker has all of them"
