"""What packages offer by entry points, and what is said of what cannot be had."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import ejbd.core.policy as policies
from ejbd.config import load
from ejbd.daemon import broken_plugins, make_batch
from ejbd.doctor.checks import examine
from ejbd.errors import EjbError
from ejbd.manager.hands.spool import build_worker
from ejbd.plugins import batches, engines
from ejbd.plugins import policies as offered
from tests.fakes.batch import Clock, MemoryBatch
from tests.fakes.site_plugins import BROKEN, install

CACHES = (engines._installed, batches._installed, offered._load_installed)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(folder))
    for cache in CACHES:
        cache.cache_clear()
    yield folder
    policies._POLICIES.pop("patient", None)
    for name in ("our_site", "our_plugins"):
        sys.modules.pop(name, None)
    for cache in CACHES:
        cache.cache_clear()


def test_bad_ones_are_told_in_a_sentence_each_and_the_others_are_there(site: Path) -> None:
    told = broken_plugins()
    assert len(told) == len(BROKEN)
    for begins, ends in BROKEN.items():
        assert any(one.startswith(begins) and one.endswith(ends) for one in told), (begins, told)
    assert engines.known_engines()[-1] == "snap" and "snap" in engines.moving_engines()
    assert set(offered.known_policies()) >= {"bundling", "patient"}
    assert batches.known_batch("shed").name == "shed"


async def test_the_doctor_tells_them(site: Path, tmp_path: Path) -> None:
    settings = load(written(tmp_path, 'batch = "local"'))
    found = await examine(settings, MemoryBatch(Clock()), ["the engine odd cannot be loaded: it is none"])
    (finding,) = [one for one in found if one.subject == "plug-in"]
    assert (finding.good, finding.text[:20]) == (False, "the engine odd canno")
    assert any("snap" in one.text for one in found if one.subject == "checkpoint engines")


def test_the_engine_travels_with_the_worker(site: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(build_worker())) as archive:
        assert archive.read("ejb_worker/engines/site_snap.py") == (site / "snap.py").read_bytes()
        assert b"MODULES = ('site_snap',)" in archive.read("ejb_worker/engines/site.py")


def written(folder: Path, text: str) -> Path:
    path = folder / "ejbd.toml"
    path.write_text(f'state_dir = "{folder / "state"}"\n{text}\n')
    return path


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('batch = "barn"', "batch: no batch system is called barn; there are: local, slurm, pbs, shed"),
        ('batch = "gone"', "the batch system gone .* cannot be loaded: No module named"),
        ('batch = "shed"\n[batch_settings]\nsheds = 0', "batch_settings.sheds: .*greater than or equal to 1"),
        ('batch = "shed"\n[batch_settings]\nbarns = 1', "batch_settings.barns: Extra inputs"),
        ("[batch_settings]\nsheds = 1", r"that of local is \[local\]"),
    ],
)
def test_a_configuration_says_in_one_sentence_what_is_wrong(site: Path, tmp_path: Path, toml: str, said: str) -> None:
    with pytest.raises(EjbError, match=said):
        load(written(tmp_path, toml))


def test_an_adapter_that_cannot_be_made_is_one_sentence(site: Path, tmp_path: Path) -> None:
    settings = load(written(tmp_path, 'batch = "shed"\n[batch_settings]\nsheds = 2'))
    assert settings.traits.one_host and make_batch(settings).name == "shed"
    sys.modules["our_plugins"].ShedBatch = None  # type: ignore[attr-defined]
    with pytest.raises(EjbError, match="the batch system shed cannot be made: "):
        make_batch(settings)
