"""The docs as a site: built strictly, with nothing from outside; and the page of REST operations as the API is."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from docsite import pages, rest

with_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="no mkdocs-material here (pip install -e '.[docs]')"
)


def test_the_page_of_rest_operations_is_as_the_api() -> None:
    assert rest.PAGE.read_text() == rest.page(), "scripts/docs --rest writes it anew"


@pytest.mark.slow
@with_mkdocs
def test_the_site_builds_strictly_and_asks_for_nothing_outside(tmp_path: Path) -> None:
    assert pages.build(tmp_path / "site") == 0
    for page in ("index.html", "docs/start-scientist.html", "docs/rest-operations.html", "docs/troubleshooting.html"):
        assert (tmp_path / "site" / page).is_file()
    assert 'id="batch-unavailable"' in (tmp_path / "site" / "docs" / "troubleshooting.html").read_text()
    outside = re.compile(r"<(?:link|script|img|iframe)\b[^>]*(?:href|src)=[\"']?(?:https?:)?//[^>]*>")
    loaded = [found for path in (tmp_path / "site").rglob("*.html") for found in outside.findall(path.read_text())]
    assert loaded == []
    styles = [path for path in (tmp_path / "site").rglob("*.css") if re.search(r"url\([\"']?https?:", path.read_text())]
    assert styles == []


@pytest.mark.nightly("the one before builds strictly")
@pytest.mark.slow
@with_mkdocs
def test_an_anchor_that_is_not_there_fails_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pages.lay_out(tmp_path / "pages")
    page = tmp_path / "pages" / "docs" / "web.md"
    page.write_text(page.read_text() + "\n[nothing](errors.md#no-such-anchor)\n")
    assert pages.build_from(tmp_path / "pages", tmp_path / "site") == 1
    assert "no-such-anchor" in capfd.readouterr().err
