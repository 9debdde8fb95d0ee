"""What a site installs beside the wheel, read by the very tools of systemd that will read it there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ejbd.config import load

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MOST_EXPOSED = 2.0


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here")
    return found


def run(*words: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=180, check=False, env=env)


def told(done: subprocess.CompletedProcess[str], folder: Path) -> list[str]:
    """What is said of our own units; this machine's may have faults of their own."""
    return [line for line in (done.stdout + done.stderr).splitlines() if str(folder) in line or "ejb" in line]


@pytest.mark.parametrize(
    "names",
    [
        ("ejbd.service", "ejbd.socket"),
        ("ejb-as.socket", "ejb-as.service"),
        ("user/ejbd.service", "user/ejbd.socket"),
    ],
)
def test_systemd_finds_no_fault_in_a_unit(names: tuple[str, ...], tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    for name in names:
        text = (DEPLOY / "systemd" / name).read_text()
        # What is started stands elsewhere on this machine.
        (tmp_path / Path(name).name).write_text(
            re.sub(r"^ExecStart=\S+", f'ExecStart="{sys.executable}"', text, flags=re.M)
        )
    files = [tmp_path / Path(name).name for name in names if "@" not in name]
    how = ["--man=no", *["--user"] * names[0].startswith("user/")]
    done = run(analyze, "verify", *how, *files, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd-analyze verify works not here: {done.stderr.strip().splitlines()[-1]}")
    assert told(done, tmp_path) == [] and done.returncode == 0, done.stderr


def test_a_fault_would_be_found(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    (tmp_path / "ejbd.service").write_text((DEPLOY / "systemd" / "ejbd.service").read_text() + "[Service]\nTypo=yes\n")
    assert any("Typo" in line for line in told(run(analyze, "verify", "--man=no", tmp_path / "ejbd.service"), tmp_path))


def test_the_system_unit_is_exposed_little(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    words = ["security", "--offline=true", "--no-pager"]
    done = run(analyze, *words, f"--threshold={MOST_EXPOSED * 10:.0f}", DEPLOY / "systemd" / "ejbd.service")
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze has no --offline")
    found = re.search(r"exposure level for ejbd.service: ([\d.]+)", done.stdout)
    assert found is not None, done.stderr
    print(found[0])
    assert float(found[1]) <= MOST_EXPOSED and done.returncode == 0


def test_users_are_told_apart() -> None:
    """In a user namespace of its own the daemon would see every peer as `nobody`."""
    assert "\nPrivateUsers=" not in (DEPLOY / "systemd" / "ejbd.service").read_text()


def test_the_service_user_and_its_folders_are_made(tmp_path: Path) -> None:
    sysusers, tmpfiles = tool("systemd-sysusers"), tool("systemd-tmpfiles")
    (tmp_path / "etc").mkdir()
    made = run(sysusers, f"--root={tmp_path}", DEPLOY / "sysusers.d" / "ejb.conf")
    if made.returncode and "ermission" in made.stderr:
        pytest.skip("only root makes users")
    assert made.returncode == 0, made.stderr
    row = next(row for row in (tmp_path / "etc" / "passwd").read_text().splitlines() if row.startswith("ejb:"))
    assert row.endswith(":/var/lib/ejb:/usr/sbin/nologin")
    done = run(tmpfiles, f"--root={tmp_path}", "--create", DEPLOY / "tmpfiles.d" / "ejb.conf")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "var" / "lib" / "ejb"
    assert folder.stat().st_mode & 0o777 == 0o700 and folder.stat().st_uid == int(row.split(":")[2])


def test_logrotate_takes_its_file(tmp_path: Path) -> None:
    logrotate = tool("logrotate")
    (tmp_path / "audit").write_text(
        (DEPLOY / "logrotate.d" / "ejb").read_text().replace("su ejb ejb", "").replace("ejb ejb", "")
    )
    done = run(logrotate, "--debug", "--state", tmp_path / "state", tmp_path / "audit")
    assert done.returncode == 0 and "error" not in done.stderr.lower(), done.stderr


def test_visudo_takes_the_rule() -> None:
    done = run(tool("visudo"), "--check", "--file", DEPLOY / "sudoers.d" / "ejb-as")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_credential_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the file, and below the environment."""
    (tmp_path / "ejbd_database_url").write_text("postgresql://ejb:secret@db/ejb\n")
    (tmp_path / "tls-key").write_text("no setting\n")
    (tmp_path / "ejbd.toml").write_text('database_url = "postgresql://elsewhere/ejb"\npoll_s = 3\n')
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    settings = load(tmp_path / "ejbd.toml")
    assert settings.database_url == "postgresql://ejb:secret@db/ejb" and settings.poll_s == 3
    monkeypatch.setenv("EJBD_DATABASE_URL", "sqlite:////x/y.sqlite")
    assert load(tmp_path / "ejbd.toml").database_url == "sqlite:////x/y.sqlite"
