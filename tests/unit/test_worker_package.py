"""The worker as it is shipped: one zipapp, old Python, few modules."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import zipapp
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ejbd.batch.base import WorkerScript
from ejbd.batch.starter import python_behind, worker_words
from ejbd.manager.hands.spool import build_worker
from tests.fakes.worker_process import WORKERS, World, eventually, world

PACKAGE = WORKERS / "ejb_worker"


SOURCES = sorted(PACKAGE.rglob("*.py"))
# What Python 3.8 does not have and our linter does not know of: each has been seen in code for newer ones.
NEWER = {"removeprefix", "removesuffix", "waitstatus_to_exitcode", "pidfd_open", "to_thread", "randbytes", "pairwise"}


def test_syntax_of_python_3_8() -> None:
    evaluated = [
        path.name
        for path in SOURCES
        for tree in [ast.parse(path.read_text(), filename=str(path), feature_version=(3, 8))]
        if not any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
        and path.read_text().count("\n") > 5
    ]
    assert SOURCES and evaluated == [], "annotations of a newer Python are not to be evaluated"


def test_no_functions_of_newer_pythons() -> None:
    used = {
        (path.name, node.attr)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in NEWER
    }
    assert SOURCES and used == set()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    target = tmp_path / "worker.pyz"
    zipapp.create_archive(WORKERS, target, main="ejb_worker.__main__:main", filter=lambda path: path.suffix != ".pyc")
    return target


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        yield value


@pytest.mark.parametrize("flags", [[], ["-I", "-S"]])
def test_the_archive_works(there: World, archive: Path, flags: list[str]) -> None:
    there.manager.start()
    words = ["agent", "--subjob-dir", str(there.manager.subjob_dir), "--node", "n1", "--processors", "2"]
    elsewhere = {**os.environ, "PYTHONPATH": str(there.spool)}
    (there.spool / "json.py").write_text("raise ImportError('a user has a module of this name')\n" if flags else "")
    if not flags:
        (there.spool / "json.py").unlink()
    there.process = subprocess.Popen([sys.executable, *flags, str(archive), *words], cwd="/", env=elsewhere)
    script = there.script("#!/bin/bash\nsrun -n 1 echo from the archive\nexit $?\n")
    assert there.lead(script, processors=2)["ok"]
    there.manager.wait_for(lambda: there.manager.of_kind("launch"))
    file = Path(there.manager.of_kind("launch")[0]["file"])
    assert there.manager.run("launch", there.launch_payload(file))["ok"]
    there.exits(1)
    assert there.manager.run("drain", {"epoch": 1})["ok"]
    assert there.manager.run("launch-ended", {"ordinal": 0, "code": 8})["ok"]
    there.manager.wait_for(lambda: there.manager.of_kind("script-exit"))
    assert there.manager.of_kind("script-exit")[0]["code"] == 8
    assert there.collected() == "from the archive\n"


def test_what_a_worker_at_rest_has_loaded(there: World) -> None:
    """Each of these is a megabyte or more that would stay resident on every node of every job."""
    spy = there.spool / "modules.json"
    program = (
        "import sys, json, signal; sys.path.insert(0, sys.argv.pop(1)); from ejb_worker.__main__ import main\n"
        f"signal.signal(signal.SIGUSR2, lambda *_: open({str(spy)!r}, 'w').write(json.dumps(sorted(sys.modules))))\n"
        "main()\n"
    )
    there.manager.start()
    words = ["agent", "--subjob-dir", str(there.manager.subjob_dir), "--node", "n1", "--processors", "2"]
    there.process = subprocess.Popen([sys.executable, "-I", "-S", "-c", program, str(WORKERS), *words])
    there.manager.wait_for(lambda: there.manager.registrations)
    there.lead()
    there.launch("true")
    there.exits(1)
    there.process.send_signal(12)
    loaded = set(json.loads(eventually(lambda: spy.exists() and spy.read_text())))
    heavy = {
        "ssl",
        "asyncio",
        "logging",
        "pathlib",
        "dataclasses",
        "argparse",
        "shutil",
        "tempfile",
        "hashlib",
        "ejb_worker.engines.dmtcp",
        "ejb_worker.engines.profile",
    }
    assert loaded & heavy == set()


def test_a_worker_registers_before_it_loads_what_only_a_job_needs() -> None:
    """Each millisecond until then is one that a job waits for its first rank."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import ejb_worker.agent; print(*sys.modules)"
    words = [sys.executable, "-I", "-S", "-c", program, str(WORKERS)]
    loaded = set(subprocess.run(words, check=True, capture_output=True, text=True, timeout=180).stdout.split())
    late = {*(f"ejb_worker.{name}" for name in ("epochs", "lead", "collector", "engines.dmtcp")), "http.client"}
    assert "ejb_worker.transport" in loaded and not loaded & late


def test_what_is_shipped_is_not_compiled_again_on_the_nodes(tmp_path: Path) -> None:
    """Every module of it has bytecode of this Python, and its source for any other."""
    data = build_worker()
    assert data == build_worker()
    archive = tmp_path / "worker.pyz"
    archive.write_bytes(data)
    names = set(zipfile.ZipFile(archive).namelist())
    sources = {str(path.relative_to(WORKERS)) for path in PACKAGE.rglob("*.py")}
    assert names == {"__main__.py", "ejb_elastic.py", *sources, *(name + "c" for name in sources)}
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import ejb_worker.agent\n"
        "print(sorted({type(m.__loader__).__name__ + m.__spec__.origin[-4:] "
        "for n, m in sys.modules.items() if n.startswith('ejb_worker')}))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program, str(archive)], capture_output=True, text=True)
    assert done.stdout == "['zipimporter.pyc']\n", done.stderr


def test_bytecode_of_another_python_is_passed_over(tmp_path: Path) -> None:
    archive = tmp_path / "worker.pyz"
    with zipfile.ZipFile(io.BytesIO(build_worker())) as shipped, zipfile.ZipFile(archive, "w") as other:
        for name in shipped.namelist():
            content = shipped.read(name)
            other.writestr(name, b"\0\0\r\n" + content[4:] if name.endswith(".pyc") else content)
    program = "import sys; sys.path.insert(0, sys.argv[1]); import ejb_worker.agent; print(ejb_worker.agent.__file__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program, str(archive)], capture_output=True, text=True)
    assert done.stdout.endswith("agent.py\n"), done.stderr


def test_a_python_behind_a_script_is_started_without_it_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "python3-behind").write_text(f'#!/bin/sh\necho asked >> "{tmp_path}/log"\nexec "{sys.executable}" "$@"\n')
    (shims / "python3-behind").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{os.environ['PATH']}")
    real = python_behind("python3-behind")
    assert Path(real).samefile(sys.executable)
    assert python_behind(sys.executable) == python_behind("no-such-python") == ""
    for at, asked in ((real, 1), (str(tmp_path / "not-here"), 2)):
        start = WorkerScript("python3-behind", tmp_path / "w.pyz", tmp_path, tmp_path / "exit", python_at=at)
        words = worker_words(start)
        said = subprocess.run([*words[: words.index("-I")], "-c", "print(6 * 7)"], capture_output=True, check=True)
        assert said.stdout == b"42\n" and (tmp_path / "log").read_text().count("asked") == asked
