"""Where EJB keeps its things unless the configuration says otherwise. Imports nothing slow: `ejb` needs it at every
start.
"""

# ruff: noqa: PTH100, PTH114, PTH115, PTH118  # `ejb submit` is started often: no pathlib

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ejbd.errors import Code, EjbError

if TYPE_CHECKING:  # `ejb submit` does without it: it takes as long to load as the rest of this room
    from pathlib import Path

SOCKET_NAME = "ejbd.sock"
PORTS = "ports"  # of a state folder: the ports that were taken where any would do, by the addresses as they were given
TLS_PORT = "tls "  # before the address of what is encrypted
LONGEST_SOCKET_PATH = 107 - len(".new")  # bytes in sockaddr_un, and what it is called until it listens


def name_user_folder(variable: str, below_home: str, environ: Mapping[str, str] = os.environ) -> str:
    """The folder for a user's files of one kind: `$variable` (`XDG_STATE_HOME`), else `below_home` of the home.

    The home is `$HOME`, or what the account says. A variable that is empty, or no absolute path, says nothing.
    Raises EjbError (INVALID) where nothing says where the home is.
    """
    for name, below in ((variable, ""), ("HOME", below_home)):
        if environ.get(name, "").startswith("/"):
            return os.path.join(environ[name], below) if below else environ[name].rstrip("/") or "/"
    try:
        return os.path.join(pwd.getpwuid(os.getuid()).pw_dir, below_home)
    except KeyError:
        message = f"neither {variable} nor HOME is an absolute path, and user {os.getuid()} has no account"
        raise EjbError(Code.INVALID, message, hint="set HOME") from None


def user_folder(variable: str, below_home: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The same, as a path."""
    from pathlib import Path

    return Path(name_user_folder(variable, below_home, environ))


def default_state_dir() -> Path:
    """`$XDG_STATE_HOME/ejbd`, else `~/.local/state/ejbd`."""
    return user_folder("XDG_STATE_HOME", ".local/state") / "ejbd"


def default_socket() -> str:
    """The socket of a daemon, where its configuration says nothing else."""
    return f"{name_user_folder('XDG_STATE_HOME', '.local/state')}/ejbd/{SOCKET_NAME}"


def distrusted(folder: Path) -> str:
    """Why what lies in `folder` could be another user's work, or "": each level's owner and mode, links and their ends.

    Every level has to belong to this user or to root, the last one to this user. Where others may write, as in /tmp,
    the sticky bit has to keep them from what they do not own. Raises OSError where that cannot be seen.
    """
    for level in _levels(os.path.abspath(folder)):  # links are what is checked
        found = os.lstat(level)
        last = level == os.path.realpath(folder)
        if found.st_uid != os.geteuid() and (last or found.st_uid != 0):
            return f"{level} belongs to {_owner(found.st_uid)}"
        if stat.S_ISLNK(found.st_mode):
            continue  # which users may change a link is up to its folder
        if not stat.S_ISDIR(found.st_mode):
            return f"{level} is not a folder"
        if _open_to_others(found) and (last or not found.st_mode & stat.S_ISVTX):
            return f"others may write in {level} (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def distrusted_socket(path: str) -> str:
    """Why another user could have put a socket there, or "": a folder above it that every user may write in.

    What root or this user owns in a sticky folder is as good as in one of its own. What is not there is not looked at.
    """
    open_folder: tuple[str, int] | None = None
    try:
        for level in _levels(os.path.abspath(path)):  # links are what is checked
            found = os.lstat(level)
            if open_folder and (found.st_uid not in (0, os.geteuid()) or not open_folder[1] & stat.S_ISVTX):
                return f"every user may write in {open_folder[0]}"
            is_open = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IWOTH
            open_folder = (level, found.st_mode) if is_open else None
    except OSError:
        pass  # whatever connects says more
    return ""


def distrusted_entry(path: Path) -> str:
    """Why one file or folder inside a trusted folder could be another user's work, or ""."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return ""  # it was there for a moment
    if found.st_uid != os.geteuid():
        return f"{path} belongs to {_owner(found.st_uid)}"
    if not stat.S_ISLNK(found.st_mode) and _open_to_others(found):
        return f"others may write to {path} (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _levels(path: str, links: int = 40) -> Iterator[str]:
    """Every level of a path from the root on, and of whatever its links lead to. Raises OSError for a ring of links."""
    names = [name for name in path.split("/") if name]
    level = "/"
    yield level
    for at, name in enumerate(names):
        folder, level = level, os.path.join(level, name)
        yield level
        if os.path.islink(level):
            if links == 0:
                raise OSError(40, "too many links", path)
            end = os.path.join(folder, os.readlink(level), *names[at + 1 :])
            yield from _levels(os.path.abspath(end), links - 1)
            return


def _open_to_others(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _own_group(found.st_gid)


def _own_group(gid: int) -> bool:
    """Whether a group is this user's alone, as every user's first group is on many systems."""
    import grp

    try:
        me, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == me.pw_gid and group.gr_name == me.pw_name and set(group.gr_mem) <= {me.pw_name}


def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
