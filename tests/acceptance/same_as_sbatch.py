"""Runs a script under real sbatch and under EJB, and tells what differs: a tool of the tests.

A run gets a folder of its own with the same files in it, and in the end an :class:`Outcome`: how it ended, which files
are there and what is in them. Differences that docs/scripts.md names are taken out here, by :func:`alike`, and nowhere
else.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ejbd.cli.links.fields import wait_status
from tests.fakes.daemon import FAST, Daemon, first_line, until
from tests.integration.slurm_clusters import SlurmCluster

POLL_S = 1.0
UMASK = 0o026  # of the user; the daemon has another
FORTY = Path(__file__).resolve().parents[1] / "forty"

# Stands in for every program that the forty scripts start: says who it is and what it was given, and does its steps.
# It can be moved by the `application` engine.
STAND_IN = """\
{first_line}import os, signal, sys, time
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
env = os.environ
rank, size = int(env.get("SLURM_PROCID", 0)), env.get("SLURM_NTASKS", "1")
name, step, read = os.path.basename(sys.argv[0]), 0, 0
kept = f"{{env['EJB_RESTART_DIR']}}/{{rank}}" if "EJB_RESTART_DIR" in env else ""
if kept:
    step, read = map(int, open(kept).read().split())
else:
    threads = env.get("OMP_NUM_THREADS", "-")
    print(f"{{name}}: rank {{rank}} of {{size}}, {{threads}} threads,", *sys.argv[1:], flush=True)
steps = int(env.get("STEPS", "0"))
while True:
    line = b""
    while rank == 0 and not line.endswith(b"\\n"):
        more = os.read(0, 1)
        if not more:
            break
        line += more
    if line:
        read += 1
        print(f"{{name}}: read {{line.decode().strip()}}", flush=True)
    if not line and step >= steps or asked:
        break
    if step < steps:
        step += 1
        time.sleep(0.05)
if asked:
    path = f"{{env['EJB_CHECKPOINT_DIR']}}/{{rank}}"
    with open(path + ".tmp", "w") as file:
        file.write(f"{{step}} {{read}}")
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    sys.exit(85)
print(f"{{name}}: rank {{rank}} done after {{step}} steps", flush=True)
"""
PROGRAMS = (
    *("gmx_mpi", "lmp", "pw.x", "ph.x", "decomposePar", "simpleFoam", "reconstructPar", "snappyHexMesh", "vasp_std"),
    *("vasp_gam", "python", "julia", "Rscript", "torchrun", "cp2k.psmp", "nwchem", "pmemd.MPI", "namd2", "conda"),
)
LOCAL_PROGRAMS = ("real.exe", "wrf.exe", "metgrid.exe", "segment.x", "task.x", "ocean.x", "atmosphere.x")
# Under sbatch alone: a launcher as MPIs have it, in the allocation that it finds.
MPIRUN = """\
#!/bin/sh
n=
while :; do
    case $1 in
        -np|-n) n=$2; shift 2 ;;
        *) break ;;
    esac
done
exec srun ${n:+-n "$n"} --input=0 "$@"
"""
INPUTS = {"in.lj": "units lj\natom_style atomic\nrun 100\n", "in.scf": "&control\n calculation='scf'\n/\n"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """`code` of the job, its output files by name, and what stands in them."""

    code: int
    files: dict[str, list[str]]


@dataclass
class Pair:
    """One cluster, with sbatch and a daemon on it."""

    cluster: SlurmCluster
    daemon: Daemon
    folder: Path
    made: int = 0
    folders: dict[str, Path] = field(default_factory=dict)  # by the id of a job
    inputs: dict[str, str] = field(default_factory=lambda: dict(INPUTS))

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(home), "SLURM_CONF": str(self.cluster.conf), "USER": "ada", **more}

    def home(self, how: str) -> Path:
        """A new folder with the files that the scripts read."""
        self.made += 1
        home = self.folder / f"{how}-{self.made}"
        (home / "conda/etc/profile.d").mkdir(parents=True)
        (home / "conda/etc/profile.d/conda.sh").write_text(
            "conda() { CONDA_DEFAULT_ENV=$2; export CONDA_DEFAULT_ENV; }\n"
        )
        for name, text in self.inputs.items():
            (home / name).write_text(text)
        for name in LOCAL_PROGRAMS:
            (home / name).symlink_to(self.folder / "bin" / "gmx_mpi")
        (home / "rsl.out.0000").write_text("wrf: SUCCESS COMPLETE WRF\n")
        return home

    def begin_sbatch(self, script: Path, *options: str, **env: str) -> str:
        """Submit it by sbatch itself; the job's number."""
        home = self.home("sbatch")
        (home / "plain").mkdir()
        for name in ("mpirun", "mpiexec"):
            (home / "plain" / name).write_text(MPIRUN)
            (home / "plain" / name).chmod(0o755)
        given = self.environment(home, **env)
        given["PATH"] = f"{home}/plain:{given['PATH']}"
        words = ["sbatch", "--parsable", *options, str(script)]
        done = subprocess.run(
            words, cwd=home, env=given, umask=UMASK, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 0, f"{script.name}: {done.stderr}"
        id = done.stdout.strip()
        self.folders[id] = home
        return id

    def end_sbatch(self, id: str) -> Outcome:
        """Wait for its end."""
        fields = "--Format=State:|,exit_code:|"
        rows = ["squeue", "--noheader", "--states=all", f"--jobs={id}", fields]

        def states() -> list[list[str]]:
            return [line.split("|")[:2] for line in self.cluster.run(*rows).splitlines()]

        live = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING")
        until(lambda: all(state not in live for state, _ in states()), f"job {id} of sbatch did not end", 240)
        codes = [wait_status(code) for _, code in states()]
        code = max(one >> 8 if one > 255 else one for one in codes)
        return self._outcome(self.folders[id], code)

    def begin_ejb(self, script: Path, *options: str, **env: str) -> str:
        """Submit it by `ejb submit`; EJB's id."""
        home = self.home("ejb")
        given = self.environment(home, EJB_SOCKET=str(self.daemon.state / "ejbd.sock"), **env)
        words = [sys.executable, "-m", "ejbd.cli.main", "submit", *options, str(script)]
        done = subprocess.run(
            words, cwd=home, env=given, umask=UMASK, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 0, f"{script.name}: {done.stderr}"
        id = done.stdout.split()[-1]
        self.folders[id] = home
        return id

    def end_ejb(self, id: str) -> Outcome:
        """Wait for its end."""
        job = self.daemon.wait(id, timeout_s=240)
        assert job["state"] in ("completed", "failed", "cancelled", "timeout"), job
        return self._outcome(self.folders[id], job["exit_code"])

    def text(self, id: str, name: str) -> str:
        """What stands in a file of a job by now."""
        path = self.folders[id] / name
        return path.read_text() if path.exists() else ""

    def _outcome(self, home: Path, code: int) -> Outcome:
        given = {*self.inputs, "rsl.out.0000", *LOCAL_PROGRAMS}
        files = {}
        for path in sorted(home.rglob("*")):
            name = str(path.relative_to(home))
            if path.is_file() and name not in given and not name.startswith(("conda/", "plain/")):
                text = path.read_text(errors="replace").replace(str(home), "HOME")
                said = (line for line in text.splitlines() if not _BUSY.match(line))
                files[alike(name)] = sorted(alike(line) for line in said)
        return Outcome(code, files)


# What srun says where Slurm is slow to give the nodes of a step back for the next one.
_BUSY = re.compile(r"srun: (Job [0-9]+ step creation temporarily disabled|Step created for (job |StepId=)[0-9])")


def alike(text: str) -> str:
    """Without what differs between any two jobs, and what docs/scripts.md says that differs."""
    text = re.sub(r"\b(?:slurm-[0-9]+|ejb-[0-9a-f]{8})(?=(?:_[0-9]+)?\.out)", "DEFAULT", text)  # where no -o is given
    text = re.sub(r"(?<=-)[0-9]+(?=_[0-9]+\.out)", "NUMBER", text)  # %A_%a
    text = re.sub(r"\bn[0-9]+\b", "NODE", text)
    text = re.sub(r"\bjob[0-9]{5,}(?=/slurm_script)", "JOB", text)  # where Slurm keeps a script
    text = re.sub(r"^(srun: (?:Step created for j|J)ob) [0-9]+", r"\1 NUMBER", text)
    return re.sub(r"(?<=\.)[0-9]+(?=\.(?:log|out|err)$)", "NUMBER", text)


def differences(plain: Outcome, ours: Outcome) -> list[str]:
    """What differs, a line each."""
    found = [] if plain.code == ours.code else [f"exit code {plain.code} under sbatch, {ours.code} under EJB"]
    for name in sorted(plain.files.keys() | ours.files.keys()):
        before, after = plain.files.get(name), ours.files.get(name)
        if before is None or after is None:
            found.append(f"{name} is there only under {'EJB' if before is None else 'sbatch'}")
        elif before != after:
            gone = list((Counter(before) - Counter(after)).elements())[:3]
            new = list((Counter(after) - Counter(before)).elements())[:3]
            found.append(f"{name}: {len(before)} and {len(after)} lines; only sbatch {gone}, only EJB {new}")
    return found


@contextmanager
def pair(folder: Path, cluster: SlurmCluster, settings: Mapping[str, str] | None = None) -> Iterator[Pair]:
    """A daemon on the cluster, and the programs that the scripts start."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in PROGRAMS:
        (programs / name).write_text(textwrap.dedent(STAND_IN).format(first_line=first_line()))
        (programs / name).chmod(0o755)
    toml = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n{FAST}'
    toml = toml.replace("alone_after_s = 0", "alone_after_s = 60")  # J0 runs without workers what nothing can move
    # Scripts of one rank, too. The guard would learn from the short ones that no run lasts here, and borrow nothing.
    toml = toml.replace("[queues.default]", '[queues.default]\nmin_processors = 1\nguard = "off"')
    daemon = Daemon(folder, toml, {"SLURM_CONF": str(cluster.conf), **(settings or {})})
    daemon.start()
    assert not daemon.ended(), daemon.log.read_text()
    try:
        yield Pair(cluster, daemon, folder)
    finally:
        daemon.stop()
