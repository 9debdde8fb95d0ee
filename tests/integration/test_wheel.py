"""The wheel as it is built, in an environment of its own, out of sight of the sources."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
import yaml
from typer._completion_shared import get_completion_script

from ejbd import __version__
from tests.fakes.daemon import until

ROOT = Path(__file__).resolve().parents[2]
BOUND_S = 300.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / "scripts" / "wheel").exists():
        pytest.skip("no checkout: nothing to build a wheel of")
    folder = tmp_path_factory.mktemp("wheel")
    env = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "scripts" / "wheel", folder], env=env, capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    if found := re.search(".*(No module named pip|No matching distribution|connection error).*", done.stderr, re.I):
        pytest.skip(f"pip cannot fetch what builds a wheel here: {found[0]}")
    assert done.returncode == 0, done.stderr
    return next(folder.glob("ejb-*.whl"))


def test_nothing_but_ejb_is_in_it_and_all_of_ejb_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        stamp = archive.read("ejbd/release/stamp.py").decode()
        needs = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        papers = {name: archive.read(f"ejbd/release/{name}") for name in ("LICENSE", "SECURITY.md", "CITATION.cff")}
    assert papers == {name: (ROOT / name).read_bytes() for name in papers}
    assert yaml.safe_load(papers["CITATION.cff"])["version"] == __version__
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"ejbd"}
    assert not [name for name in names if "__pycache__" in name or "/docker/" in name]

    def below(folder: str, prefix: str) -> set[str]:
        paths = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {f"{prefix}/{path.relative_to(ROOT / folder)}" for path in paths}

    wanted = below("ejbd", "ejbd") | below("workers", "ejbd/_workers") | below("examples", "ejbd/release/examples")
    for folder in ("systemd", "sudoers.d", "completion"):
        wanted |= below(f"deploy/{folder}", f"ejbd/release/deploy/{folder}")
    assert wanted - names == set()
    assert re.search(r"BUILT = '[0-9a-f]{7,}\+? \d{4}-\d\d-\d\d'", stamp) or not (ROOT / ".git").exists(), stamp
    plain = {re.split(r"[^\w-]", line.split()[1])[0] for line in needs.splitlines() if line.startswith("Requires-Dist")
             and "extra ==" not in line}  # fmt: skip
    assert "pydantic" in plain and not plain & {"scipy", "matplotlib", "numba", "psycopg"}


@pytest.fixture(scope="module")
def bin_folder(wheel: Path) -> Iterator[Path]:
    """With a short path, for the daemon's socket. What EJB needs is borrowed from here, but not EJB itself."""
    with tempfile.TemporaryDirectory(prefix="ejb-wheel-") as folder:
        venv.create(folder, with_pip=False, symlinks=True)
        inside = next(Path(folder, "lib").glob("python3*/site-packages"))
        (inside / "borrowed.pth").write_text(f"{Path(numpy.__file__).parents[1]}\n")
        words = ["-m", "pip", "--python", f"{folder}/bin/python", "install", "--quiet", "--no-deps", "--no-index"]
        words += ["--ignore-installed", str(wheel)]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=BOUND_S, check=False)
        assert done.returncode == 0, done.stderr
        yield Path(folder, "bin")


@pytest.mark.nightly("scripts/compose-test runs its jobs by a wheel; the one before looks for every file in it")
def test_a_job_runs_out_of_sight_of_the_sources(bin_folder: Path) -> None:
    """The daemon makes its tables, ships its worker, and finds files that are no modules."""
    home = bin_folder.parent
    env = {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(home), "EJB_SOCKET": str(home / "s" / "ejbd.sock")}

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    where = run("python", "-c", "import ejbd, ejbd._workers.ejb_worker; print(ejbd.__file__, ejbd._workers.__file__)")
    assert all(path.startswith(str(home)) for path in where.split()), where
    assert re.fullmatch(r"ejb 0\.\d+\.\d+ \(.+ \d{4}-\d\d-\d\d\)\n", run("ejb", "--version"))
    files = json.loads(run("ejb", "admin", "files", "--json"))
    assert (Path(files["deploy"]) / "systemd" / "ejbd.service").is_file()
    assert (Path(files["examples"]) / "heat.py").is_file()
    assert run("ejb", "demo", "--help") and "GROMACS" in run("ejb", "profile", "list").upper()
    helper = run("python", "-c", "import ejbd.identity.ejb_as as helper; print(helper.__file__)")
    assert helper.startswith(str(home))
    (home / "ejbd.toml").write_text(
        f'state_dir = "{home / "s"}"\npoll_s = 0.5\n[local]\nnodes = 2\n[queues.default]\nelasticity = "on"\n'
    )
    with (home / "log").open("wb") as log:
        daemon = subprocess.Popen(["ejbd", "--config", "ejbd.toml"], cwd=home, env=env, stdout=log, stderr=log)
    try:
        until(lambda: (home / "s" / "ejbd.sock").exists() or daemon.poll() is not None, "no daemon", 60)
        assert daemon.poll() is None, (home / "log").read_text()
        (home / "job.sh").write_text(
            "#!/bin/sh\n#SBATCH -n 4 -t 5 -o out\n#EJB engine=none\nsrun echo from the wheel\n"
        )
        run("ejb", "submit", "--wait", "job.sh")
        assert (home / "out").read_text() == "from the wheel\n" * 4
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
        run("python", "-m", "ejbd.batch.local", "down", str(home / "s" / "cluster"))


@pytest.mark.parametrize(("shell", "name"), [("bash", "ejb.bash"), ("zsh", "_ejb"), ("fish", "ejb.fish")])
def test_completion_that_comes_along_is_that_of_today(shell: str, name: str) -> None:
    wanted = get_completion_script(prog_name="ejb", complete_var="_EJB_COMPLETE", shell=shell)
    assert (ROOT / "deploy" / "completion" / name).read_text() == wanted + "\n"
