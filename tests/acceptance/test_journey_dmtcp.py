"""An unmodified MPI program through real DMTCP: started over-subscribed without mpiexec, grown, shrunk, finalized."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ejbd.doctor.plugin import build
from tests.acceptance.journeys import each_tag_once, nothing_left
from tests.acceptance.sites import LocalSite, SlurmSite
from tests.fakes.daemon import ROOT, Daemon, until
from tests.fakes.hosts import missing_hosts
from tests.fakes.mpi import build as build_program
from tests.fakes.mpi import build_progress, build_rank, missing_mpich, mpi_payload
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

pytestmark = [pytest.mark.dmtcp, pytest.mark.xdist_group("dmtcp")]
RANKS = 4
STEPS = 1500
EXAMPLE = ROOT / "examples" / "heat_mpi.c"
HPL_INPUT = """HPLinpack benchmark input file
one problem on a grid of 2 x 2 processes
{out}
8            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
{size}       Ns
1            # of NBs
80           NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
2            Ps
2            Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
##### This line (no. 32) is ignored (it serves as a separator). ######
0            Number of additional problem sizes for PTRANS
1000         values of N
0            number of additional blocking sizes for PTRANS
40           values of NB
"""

Site = LocalSite | SlurmSite


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")
    if reason := missing_mpich():
        pytest.skip(reason)
    return build_rank(tmp_path_factory.mktemp("mpi"))


def grows_twice_and_ends_well(site: Site, daemon: Daemon, program: Path, folder: Path) -> None:
    site.fill()
    daemon.start()
    overrides = {"engine": "dmtcp", "mpi": "auto", "output": str(folder / "out"), **site.layout}
    job = daemon.submit(str(program), str(STEPS), ranks=RANKS, time="3:00", overrides=overrides)
    daemon.wait_event(job, "epoch.running", 1)
    for count in (2, 3):
        site.more()
        daemon.wait_event(job, "epoch.running", count, timeout_s=90)
    final = daemon.wait(job, timeout_s=600)  # ranks of MPICH wait busily: on a busy machine each step takes long
    assert (final["state"], final["exit_code"], final["engine"]) == ("completed", 0, "dmtcp"), final
    lines = (folder / "out").read_text().splitlines()
    for rank in range(RANKS):
        assert lines.count(f"rank {rank} of {RANKS} ends, bad 0") == 1
        told = [int(line.rpartition(" ")[2]) for line in lines if line.startswith(f"rank {rank} of {RANKS} step")]
        assert told == list(range(0, STEPS, 10)), "each line once and in order, across all moves"
    assert "epoch.failed" not in daemon.kinds(job)
    nothing_left(daemon, site, job)
    each_tag_once(daemon, site, job)


def test_an_mpi_program_on_the_embedded_cluster(tmp_path: Path, program: Path) -> None:
    site = LocalSite(tmp_path, 4, 2, block=4, fillers=(1, 2))
    daemon = Daemon(tmp_path, site.toml)
    try:
        grows_twice_and_ends_well(site, daemon, program, tmp_path)
    finally:
        daemon.stop()
        site.close()


@pytest.fixture(scope="module")
def cluster(program: Path) -> Iterator[SlurmCluster]:
    """A real Slurm, whose nodes are hosts of their own where this machine allows it."""
    if reason := missing_slurm():
        pytest.skip(reason)
    with slurm_cluster(4, 2, "--profile=fast" if missing_hosts() else "--profile=netns") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def plugin(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the plugin, built and proved once for the tests of this module."""
    spool = tmp_path_factory.mktemp("plugin")
    record = build(spool)
    assert record["trusted"], record["why"]
    return spool / "dmtcp"


@contextmanager
def on_slurm(cluster: SlurmCluster, folder: Path, plugin: Path) -> Iterator[tuple[SlurmSite, Daemon]]:
    """A site on the cluster, and a daemon (not yet started) that its nodes can reach."""
    site = SlurmSite(cluster, folder, settings=f'listen = "{cluster.controller_address}:0"\n')
    daemon = Daemon(folder, site.toml, site.environment)
    shutil.copytree(plugin, daemon.state / "spool" / "dmtcp")
    try:
        yield site, daemon
    finally:
        daemon.stop()
        site.close()


@pytest.mark.slurm
def test_starts_grows_and_leaves_a_subjob_before_its_end(cluster: SlurmCluster, plugin: Path, tmp_path: Path) -> None:
    """Four ranks on three processors, two of them for a minute only; then on four; then on the two that last.

    The block holds n1 and n2 for two minutes; `wide` then takes n1 to n3. So n3 is idle until then, and on n4 one
    processor is idle for as long as one likes, and the other one, too, when the filler has ended.
    """
    heat = build_program(EXAMPLE, tmp_path / "heat_mpi", "-O2")
    steps, result = 4500, tmp_path / "moved"
    undisturbed, said = undisturbed_run(heat, steps, tmp_path)

    def other(name: str, nodes: str, processors: int, minutes: int) -> str:
        place = (f"--nodelist={nodes}", f"--ntasks-per-node={processors}", f"--time={minutes}", f"--job-name={name}")
        return cluster.sbatch(*place, script=f"until [ -e '{tmp_path}/end-{name}' ]; do sleep 0.3; done")

    def state(id: str) -> str:
        return cluster.states().get(id, "")

    with on_slurm(cluster, tmp_path, plugin) as (site, daemon):
        daemon.start()
        filler, block = other("filler", "n4", 1, 60), other("block", "n[1-2]", 2, 2)
        until(lambda: state(block) == state(filler) == "RUNNING", "the background did not start")
        wide = other("wide", "n[1-3]", 2, 5)
        planned = ("squeue", "--noheader", f"--jobs={wide}", "--format=%S")
        until(lambda: not cluster.run(*planned).startswith("N/A"), "the job that waits has no planned start")

        overrides = {"engine": "dmtcp", "mpi": "auto", "output": str(tmp_path / "out"), **site.layout}
        job = daemon.submit(
            str(heat), str(steps), str(result), "32", "20", ranks=RANKS, time="3:00", overrides=overrides
        )
        daemon.wait_event(job, "epoch.running", 1)
        (tmp_path / "end-filler").touch()
        daemon.wait_event(job, "epoch.running", 2, timeout_s=90)
        daemon.wait_event(job, "decision.shrink", timeout_s=120)
        daemon.wait_event(job, "epoch.running", 3, timeout_s=90)
        (tmp_path / "end-block").touch()
        until(lambda: state(wide) == "RUNNING", "the job that was first did not start when promised", 90)
        (tmp_path / "end-wide").touch()
        final = daemon.wait(job, timeout_s=240)

        assert (final["state"], final["exit_code"], final["engine"]) == ("completed", 0, "dmtcp"), final
        assert result.read_bytes() == undisturbed
        assert lines_of_ranks((tmp_path / "out").read_text()) == said
        launched = [e["data"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        assert launched[0]["processors"] < RANKS, "started over-subscribed"
        assert launched[1]["processors"] > launched[0]["processors"], "expanded"
        shrink = next(e["data"] for e in daemon.events(job) if e["kind"] == "decision.shrink")
        subjobs = {s["id"]: s for s in final["subjobs"]}
        for left in shrink["leaves"]:
            assert subjobs[left]["walltime_s"] < min(subjobs[stayed]["walltime_s"] for stayed in shrink["stays"])
            until(lambda left=left: subjob_state(daemon, job, left) == "completed", "not left in time", 90)  # type: ignore[misc]
        assert "epoch.failed" not in daemon.kinds(job)
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)


def subjob_state(daemon: Daemon, job: str, id: str) -> str:
    return str(next(s["state"] for s in daemon.job(job)["subjobs"] if s["id"] == id))


def undisturbed_run(heat: Path, steps: int, folder: Path) -> tuple[bytes, dict[int, list[str]]]:
    """Result and output by rank of the program where MPICH's own mpiexec starts it and nobody moves it."""
    result = folder / "undisturbed"
    # Over TCP and with the library that lets ranks yield: more ranks than cores would else take minutes.
    preload = {**mpi_payload()["env"], "LD_PRELOAD": str(build_progress(folder))}
    words = ["mpiexec.mpich", *(w for n, v in preload.items() for w in ("-genv", n, v)), "-n", str(RANKS)]
    words += [str(heat), str(steps), str(result), "32"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=True)
    return result.read_bytes(), lines_of_ranks(done.stdout)


def lines_of_ranks(output: str) -> dict[int, list[str]]:
    """What each rank said, in its order. Between ranks there is none."""
    said: dict[int, list[str]] = {}
    for line in output.splitlines():
        said.setdefault(int(line.split()[1]), []).append(line)
    return said


@pytest.mark.slurm
def test_hpl_is_moved_twice_and_its_residual_is_right(cluster: SlurmCluster, plugin: Path, tmp_path: Path) -> None:
    """EJB_TEST_HPL is an hpcc (or xhpl) that was built against MPICH; EJB_TEST_HPL_N is the size of the problem.

    Or `.../hpcc_one hpl` (benchmarks/hpcc_one.c): then what hpcc does before HPL is left out.
    """
    words = shlex.split(os.environ.get("EJB_TEST_HPL", ""))
    if not words:
        pytest.skip("EJB_TEST_HPL does not name an hpcc or xhpl built against MPICH (docs/operators.md says how)")
    alone = words[1:] == ["hpl"]
    size = os.environ.get("EJB_TEST_HPL_N", "5000")
    for name, out in (("hpccinf.txt", "hpccoutf.txt"), ("HPL.dat", "HPL.out")):
        (tmp_path / name).write_text(HPL_INPUT.format(out=out, size=size))

    def begun() -> bool:
        return bool(verdict()) or (tmp_path / "HPL.out").exists()

    def told(name: str) -> str:
        return (tmp_path / name).read_text() if (tmp_path / name).exists() else ""

    def verdict() -> str:
        """What HPL itself has said; the other parts of hpcc come before."""
        return told("hpccoutf.txt").partition("Hostname:" if alone else "Begin of HPL section.")[2] + told("HPL.out")

    with on_slurm(cluster, tmp_path, plugin) as (site, daemon):
        site.fill()
        daemon.start()
        overrides = {"engine": "dmtcp", "mpi": "mpich", "output": str(tmp_path / "out"), **site.layout}
        job = daemon.submit(*words, ranks=RANKS, time="10:00", overrides=overrides)
        daemon.wait_event(job, "epoch.running", 1)
        until(begun, "HPL did not begin", 240, lambda: told("hpccoutf.txt")[-2000:])
        for count in (2, 3):
            assert "PASSED" not in verdict(), "HPL was over before it was moved; a larger N, please"
            site.more()
            daemon.wait_event(job, "epoch.running", count, timeout_s=120)
        assert "PASSED" not in verdict(), "HPL was over before it had been moved twice; a larger N, please"
        final = daemon.wait(job, timeout_s=500)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        check = verdict()
        assert check.count("PASSED") == 1 and "FAILED" not in check, check[-2000:]
        assert "epoch.failed" not in daemon.kinds(job)
        sizes = [e["data"] for e in daemon.events(job) if e["kind"].startswith(("epoch.", "checkpoint."))]
        print(*sizes, *[line for line in check.splitlines() if line.startswith(("WR", "||"))], sep="\n")
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)


def test_auto_is_dmtcp_where_the_site_has_it(tmp_path: Path, program: Path) -> None:
    site = LocalSite(tmp_path, 2, 2)
    daemon = Daemon(tmp_path, site.toml, {"PATH": os.environ["PATH"]})
    try:
        daemon.start()
        job = daemon.submit(str(program), "5", ranks=2, overrides={"engine": "auto"})
        assert daemon.job(job)["engine"] == "dmtcp"
        assert daemon.wait(job)["exit_code"] == 0
    finally:
        daemon.stop()
        site.close()
