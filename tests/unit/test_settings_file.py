"""`deploy/ejbd.toml`: every setting, generated from the models, and true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ejbd.cli.settings_file import UNSET, settings_file
from ejbd.config import OidcSettings, QueueSettings, Settings, load, settings_model
from ejbd.errors import EjbError
from ejbd.plugins.policies import BUNDLING

FILE = Path(__file__).resolve().parents[2] / "deploy" / "ejbd.toml"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the caller's environment are none of the file's."""
    import os

    for name in os.environ:
        if name.startswith("EJBD_"):
            monkeypatch.delenv(name)


def test_the_file_is_what_the_models_say() -> None:
    assert FILE.read_text() == settings_file(), "ejb admin settings > deploy/ejbd.toml"


def test_as_it_is_it_changes_nothing() -> None:
    found = load(FILE)
    assert found.queues.pop("default") == QueueSettings() and found == load(None)


def test_without_their_marks_its_lines_are_the_defaults(tmp_path: Path) -> None:
    lines = settings_file().splitlines()
    kept = [line.removeprefix("#") if re.match(r"#\w+ = ", line) else line for line in lines]
    text = "\n".join(line for line in kept if not line.endswith(f"= {UNSET}"))
    text = (
        text[: text.index("#[oidc]")] + text[text.index("\n[", text.index("#[oidc]")) :]
    )  # it must not be there alone
    (tmp_path / "ejbd.toml").write_text(text)
    found = load(tmp_path / "ejbd.toml")
    assert found.queues.pop("default") == QueueSettings() and found == load(None)
    assert len(tomllib.loads(text)["limits"]) == len(
        Settings().limits.model_fields_set | set(Settings().limits.model_dump())
    )


def _named(model: type[BaseModel], into: set[str], tables: dict[str, Any]) -> set[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            _named(kind, into, tables)
        elif name not in tables:
            into.add(name)
    return into


def test_every_setting_is_there_and_says_what_it_is() -> None:
    wanted = _named(Settings, set(), {"queues": 0, "oidc": 0})
    wanted |= set(settings_model(BUNDLING).model_fields) | set(OidcSettings.model_fields)
    lines = settings_file().splitlines()
    told = {found[1]: lines[at - 1] for at, line in enumerate(lines) if (found := re.match(r"#(\w+) = ", line))}
    assert wanted - told.keys() == set()
    assert [name for name, before in told.items() if not before.startswith("# ")] == []
    assert "# (seconds; above 0; at most 3_600)" in lines and "#poll_s = 5.0" in lines


def test_the_operators_four_lines_are_a_whole_file(tmp_path: Path) -> None:
    """Behind the file that `ejb admin settings` prints they were in its last table, and were refused there."""
    page = (FILE.parents[1] / "docs" / "start-operator.md").read_text()
    lines = page.partition("as the whole of `ejbd.toml`:\n\n")[2].partition("\n\n")[0]
    path = tmp_path / "ejbd.toml"
    path.write_text("\n".join(line.strip() for line in lines.splitlines()) + "\n")
    found = load(path)
    assert found.batch == "slurm" and list(found.queues) == ["batch"] and len(lines.splitlines()) == 4
    path.write_text(settings_file() + path.read_text())
    with pytest.raises(EjbError, match="batch stands above the first"):
        load(path)
