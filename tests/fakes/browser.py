"""Debian's Chromium, driven by playwright, for tests of the page; and what axe finds in one.

Its headless shell is taken where it is there: a page costs it a fifth of the processor time that all of Chromium needs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE_MS = 60_000


def program() -> str | None:
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


def missing_browser() -> str:
    """Why no page can be looked at here; empty where one can."""
    if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
        return "playwright and axe are not installed: pip install -e '.[dev]'"
    if program() is None:
        return "no chromium is on PATH: apt-get install chromium-headless-shell, or chromium"
    return ""


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium's own sandbox refuses root.
        words = ["--no-sandbox"] if os.geteuid() == 0 else []
        words += ["--disable-dev-shm-usage"]  # /dev/shm of a container is small
        browser = playwright.chromium.launch(executable_path=program(), args=words)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def reader(browser: Browser, link: str, **options: Any) -> Iterator[Page]:
    """A reader who has opened a link that signs in. What the page's scripts complain of fails the test."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    page.goto(link)
    page.wait_for_url(lambda url: "/web/in" not in url)  # it leads on by itself
    try:
        yield page
    finally:
        context.close()
    assert faults == []


def found_by_axe(page: Page) -> list[str]:
    """Each fault of accessibility that axe sees: its rule, and where it is."""
    from axe_playwright_python.sync_playwright import Axe

    faults = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in faults for node in one["nodes"]]
