"""Folders of unit tests: in memory, where scripts/test names a place there (EJB_TEST_UNIT_TEMP).

Half of a unit test with a database would be waiting for the disk to sync SQLite's commits. Tests of the other rooms
stay on the disk: what they start has to do with it.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ejbd.studies import plotting


@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory: pytest.TempPathFactory) -> pytest.TempPathFactory:
    place = os.environ.get("EJB_TEST_UNIT_TEMP")
    if not place:
        return tmp_path_factory
    here = copy.copy(tmp_path_factory)
    here._basetemp = Path(tempfile.mkdtemp(dir=place)).resolve()
    return here


@pytest.fixture(scope="module", autouse=True)
def no_certificates() -> Iterator[None]:
    """The machine's authorities, which httpx reads for each client: 50 ms each. No unit test has to do with them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("SSL_CERT_FILE", raising=False)
        patched.setenv("SSL_CERT_DIR", str(Path(__file__).parent))  # none is in there
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but their files are hardly more than names: to draw one three times takes a second.

    What is drawn is looked at by test_studies_figures.py, and a whole page by test_studies_value.py.
    """

    def closed(figure: Any, folder: Path, name: str) -> list[Path]:
        plotting.pyplot().close(figure)
        paths = [folder / f"{name}.{kind}" for kind in ("png", "svg", "pdf")]
        for path in paths:
            path.write_text("undrawn")
        return paths

    monkeypatch.setattr(plotting, "save", closed)


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """DMTCP is not on the daemon's PATH, whatever this machine has."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
