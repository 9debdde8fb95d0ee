"""Which spool `ejb doctor` wants on a shared file system, and what it says of one that is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from ejbd.config import Settings
from ejbd.doctor import checks


def shared(settings: Settings, kinds: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> checks.Finding:
    monkeypatch.setattr(checks, "_file_system", lambda path: kinds[str(path)])
    return checks._shared(settings)


def test_with_a_helper_the_spools_of_users_are_to_be_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"batch": "slurm", "identity": "helper", "helper": {"spool": "/scratch/%u/.ejb"}}
    settings = Settings.model_validate({"state_dir": tmp_path, **given})
    own = {str(settings.spool_dir): "ext4"}
    assert shared(settings, own | {"/scratch": "nfs4"}, monkeypatch).good
    told = shared(settings, own | {"/scratch": "ext4"}, monkeypatch)
    assert not told.good and "[helper] spool" in told.text and "/scratch" in told.text
    alone = Settings(state_dir=tmp_path, batch="slurm")
    assert not shared(alone, own, monkeypatch).good


def test_a_spool_that_is_away_is_not_made_anew(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    told = checks._spool(settings, True)
    assert not told.good and "mounted" in told.text and not settings.spool_dir.exists()
    assert checks._spool(settings).good
