"""What the product stands on: bounded in pyproject.toml, and locked by SHA-256 in requirements.lock."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
# Their versions count years, or as good as: a bound would say nothing of what breaks.
UNBOUNDED = {"parsl", "rich", "structlog"}
ENTRY = re.compile(r"(?m)^([a-z0-9][a-z0-9._-]*)==(\S+)( ; .*?)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    return [Requirement(text) for text in [*PROJECT["dependencies"], *(one for extra in extras for one in extra)]]


def locked() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, version, _, _ in ENTRY.findall(LOCK):
        found.setdefault(canonical(name), set()).add(version)
    return found


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_what_is_wanted_is_bounded_and_locked_within_its_bounds(requirement: Requirement) -> None:
    bounded = any(one.operator in ("<", "<=", "==", "~=") for one in requirement.specifier)
    assert bounded is (canonical(requirement.name) not in UNBOUNDED)
    versions = locked()[canonical(requirement.name)]
    assert versions and all(version in requirement.specifier for version in versions)


def test_every_line_of_the_lock_is_a_package_with_its_digests_and_names_no_place() -> None:
    rest = ENTRY.sub("", LOCK.partition("\n")[2])
    assert rest == "" and "://" not in LOCK and "index" not in LOCK.replace("index-", "")
    assert all(Version(version) for versions in locked().values() for version in versions)
    assert "setuptools" in locked()  # it builds ours


def test_a_word_that_setup_does_not_know_is_refused() -> None:
    done = subprocess.run([ROOT / "scripts" / "setup", "--lock"], capture_output=True, text=True, check=False)
    words = "--product installs no tools, --locked installs by requirements.lock"
    assert (done.returncode, done.stderr) == (2, f"setup: there is no --lock; {words}\n")
