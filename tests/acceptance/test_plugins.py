"""A policy, a checkpoint engine and a batch system that nothing of EJB knows, from one package, in a real daemon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fakes.daemon import FAST, ROOT, Daemon
from tests.fakes.site_plugins import BROKEN, install

TOML = f"""
batch = "shed"
poll_s = 0.5
worker_python = "{sys.executable}"

[batch_settings]
sheds = 3
"""


def test_a_job_by_all_three_and_what_is_said_of_those_that_cannot_be_loaded(tmp_path: Path) -> None:
    site, seen = install(tmp_path / "site"), tmp_path / "seen"
    toml = TOML + FAST.replace("[queues.default]", '[queues.default]\npolicy = "patient"')
    daemon = Daemon(tmp_path, toml, {"PYTHONPATH": f"{site}:{ROOT}"})

    def ejb(*words: str) -> str:
        argv = [sys.executable, "-m", "ejbd.cli.main", "--socket", str(daemon.state / "ejbd.sock"), *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr + daemon.log.read_text()[-2000:]
        return done.stdout

    try:
        daemon.start()
        told = f'echo "$SNAP" >> {seen}; exec "$@"'
        command = ["sh", "-c", told, "sh", *daemon.heat(75, tmp_path / "result", "40ms")]
        options = ["--engine", "snap", "--checkpoint", "1", "--setting", "most-at-start=2", "--quiet"]
        job = ejb("submit", "-n", "2", "-t", "2", *options, "--", *command).strip()
        final = daemon.wait(job)
        assert (final["state"], final["exit_code"], final["engine"]) == ("completed", 0, "snap"), final
        assert final["settings"] == {"most-at-start": "2"} and "most-at-start=2" in ejb("status", job)
        words = seen.read_text().split()
        assert words[:2] == ["begun"] * 2 and set(words[2:]) == {"restored"}, words
        log = daemon.log.read_text()
        findings = daemon.client.post("/v1/doctor", json={}, timeout=120).json()["findings"]
        assert any(one["text"].startswith("3 nodes of 2 processors") for one in findings), "[batch_settings]"
        bad = [one["text"] for one in findings if one["subject"] == "plug-in" and not one["good"]]
        for begins, ends in BROKEN.items():
            assert begins in log
            assert any(text.startswith(begins) and f"{ends}; mend or uninstall" in text for text in bad), (begins, bad)
        assert len(bad) == len(BROKEN)
    finally:
        daemon.stop()
