"""`scripts/setup --locked` refuses a package that is not the one of the lock file; here from a folder, not an index."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def wheel(folder: Path) -> Path:
    path = folder / "tiny_thing-1.0-py3-none-any.whl"
    info = "tiny_thing-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_thing.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False], ids=["the-right-hash", "a-wrong-hash"])
def test_a_file_with_another_hash_than_the_lock_file_says_is_not_installed(tmp_path: Path, right: bool) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").touch()
    sha = hashlib.sha256(wheel(tmp_path).read_bytes()).hexdigest()
    sha = sha if right else "0" * 64
    (tmp_path / "requirements.lock").write_text(f"tiny-thing==1.0 --hash=sha256:{sha}\n")
    python = tmp_path / ".venv" / "bin" / "python"  # with this one's pip; EJB itself is not installed
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\ncase "$*" in *" -e .") exit 0 ;; esac\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_TARGET": str(tmp_path / "target")}
    pip |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", "PYTHON": sys.executable}

    def setup(option: str) -> subprocess.CompletedProcess[str]:
        words = ["sh", str(tmp_path / "scripts" / "setup"), option]
        return subprocess.run(words, env=kept | pip, capture_output=True, text=True, timeout=300, check=False)

    done = setup("--locked")
    refused = "a file is not the one that requirements.lock names: nothing was installed" in done.stderr
    assert (done.returncode == 0, refused) == (right, not right), done.stderr
    assert (tmp_path / "target" / "tiny_thing.py").exists() is right
    assert (tmp_path / ".venv" / "ejb-setup").exists() is right, "it begins anew next time"
    if right:  # what the lock file made has the product: `scripts/demo` installs nothing over it
        (python.parent / "ejb").touch(0o755)
        again = setup("--product")
        assert (again.returncode, again.stdout + again.stderr) == (0, "")


def test_what_a_site_installs_is_locked_as_all_is() -> None:
    """By the first of the ten commands of docs/operators.md: `scripts/wheel` writes `ejb.txt`."""
    locked, of_site = ((ROOT / name).read_text() for name in ("requirements.lock", "requirements-site.lock"))
    pins = re.findall(r"^([a-z0-9-]+==[^ ]+)", of_site, re.M)
    assert {"sqlalchemy", "uvicorn", "psycopg"} <= {pin.partition("==")[0] for pin in pins}
    assert [pin for pin in pins if f"\n{pin} " not in locked] == []
    assert set(re.findall(r"sha256:[0-9a-f]{64}", of_site)) <= set(re.findall(r"sha256:[0-9a-f]{64}", locked))
    assert "mypy==" not in of_site and "pip install --require-hashes -r ejb.txt" in (
        ROOT / "docs" / "operators.md"
    ).read_text(encoding="utf-8")
