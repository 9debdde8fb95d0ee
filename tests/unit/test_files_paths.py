"""Where a user's files are: one rule for state, profiles and cache."""

from __future__ import annotations

import asyncio
import os
import pwd
from pathlib import Path

import pytest

from ejbd.config import Settings
from ejbd.daemon import run
from ejbd.errors import Code, EjbError
from ejbd.files import paths, profilefiles
from ejbd.sim import compiled

ACCOUNT = Path(pwd.getpwuid(os.getuid()).pw_dir)


@pytest.mark.parametrize(
    ("home", "xdg", "base"),
    [
        ("/home/ada", None, "/home/ada/{}"),
        ("/home/ada", "/fast", "/fast"),
        ("/home/ada", "", "/home/ada/{}"),
        ("/home/ada", "relative", "/home/ada/{}"),
        ("", None, f"{ACCOUNT}/{{}}"),
        ("relative", None, f"{ACCOUNT}/{{}}"),
        (None, None, f"{ACCOUNT}/{{}}"),
    ],
)
def test_one_rule_says_where_a_users_files_are(
    home: str | None, xdg: str | None, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled._folder.cache_clear()
    kinds = {"XDG_STATE_HOME": ".local/state", "XDG_CONFIG_HOME": ".config", "XDG_CACHE_HOME": ".cache"}
    for name, value in {"HOME": home, **dict.fromkeys(kinds, xdg)}.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    state, config, cache = (Path(base.format(below)) for below in kinds.values())
    assert paths.default_state_dir() == state / "ejbd"
    assert Path(profilefiles.own_folder()) == config / "ejb" / "profiles"
    assert compiled._folder().parent == cache / "ejb"
    compiled._folder.cache_clear()


def test_without_a_home_and_an_account_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(EjbError, match="neither XDG_STATE_HOME nor HOME is an absolute path") as refused:
        paths.user_folder("XDG_STATE_HOME", ".local/state", {})
    assert refused.value.code is Code.INVALID


def test_a_state_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EjbError, match="cannot be used: Not a directory") as refused:
        asyncio.run(run(Settings(state_dir=tmp_path / "file" / "state"), None))
    assert refused.value.code is Code.INVALID
