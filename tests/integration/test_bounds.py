"""What every test may rely on, shown by a run of its own: default signals in children, and a bound on every wait."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
# What else is installed for pytest each of its processes would import.
ALONE = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
TESTS = """
import signal, subprocess, sys

def test_a_child_may_be_interrupted():
    show = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True)
    assert done.stdout == "True\\n"
    child = subprocess.Popen(["sleep", "600"])
    child.send_signal(signal.SIGINT)
    assert child.wait() == -signal.SIGINT

def test_that_waits_for_ever():
    with subprocess.Popen(["sh", "-c", "sleep SECONDS; sleep SECONDS"], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        child.communicate()
"""


@pytest.mark.parametrize("ignored", ["", "HUP INT QUIT TERM"], ids=["as usual", "behind nohup and &"])
def test_a_run_with_sigint_ignored_ends_and_kills_what_hangs(tmp_path: Path, ignored: str) -> None:
    """`nohup scripts/test &` waited for ever in test_ctrl_c_leaves_the_job_alone."""
    seconds = f"600.{uuid.uuid4().int % 10**9}"  # others run this test, too
    (tmp_path / "test_them.py").write_text(TESTS.replace("SECONDS", seconds))
    pytest_words = [sys.executable, "-m", "pytest", "-q", "-p", "tests.bounds", "-p", "no:cacheprovider", "--rootdir"]
    ignoring = f'for one in {ignored}; do trap "" $one; done; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", ignoring, "sh", *pytest_words, str(tmp_path), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "EJB_TEST_BOUND_S": "10", **ALONE},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "WaitedTooLong: not through after 10 s" in done.stdout
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", seconds]]


def test_a_group_is_run_by_one_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.groups import name_groups\n"
        "def pytest_collection_modifyitems(config, items): name_groups(config, items)\n"
    )
    (tmp_path / "test_them.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.xdist_group('one')\n"
        "@pytest.mark.parametrize('at', range(6))\n"
        "def test_it(at): open('pids', 'a').write(f'{os.getpid()}\\n')\n"
    )
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "xdist",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-p",
        "no:cacheprovider",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    subprocess.run(
        [*words, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env={**environment, **ALONE},
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert len(set((tmp_path / "pids").read_text().split())) == 1
