"""What a user is on this site: by name, and by the groups that the system says the user is in."""

from __future__ import annotations

import asyncio
import functools
import grp
import os
import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ejbd.config import Settings
from ejbd.wire.rights import Role

OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")
GROUP_MARK = "%"  # before the name of a group, as in sudoers
KNOWN_S = 60.0  # after which the system is asked again: a user that has left a group is soon none of it
MOST_KNOWN = 10_000

K = TypeVar("K")
V = TypeVar("V")


def user_name(uid: int) -> str:
    """The name of a user id; the number itself where the system knows no name, and where no account is called so."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        pass
    try:
        pwd.getpwnam(str(uid))
    except KeyError:
        return str(uid)
    return f"#{uid}"  # no account has such a name


@functools.cache
def overflow_uid() -> int:
    """What the kernel says for each user that has no number in the daemon's user namespace: they are many, and no one
    user."""
    return int(OVERFLOW_UID.read_text())


def groups_of(user: str) -> frozenset[str]:
    """The names of the groups that a user is in as the system has it now; none of a user that it does not know."""
    try:
        ids = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except (KeyError, OSError):
        return frozenset()
    found = set()
    for gid in ids:
        try:
            found.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Entry:
    """What the system says of a user."""

    ordinary: bool  # it has an account, and not root's
    groups: frozenset[str]


def entry_of(user: str) -> Entry:
    """As the system has it now."""
    try:
        ordinary = pwd.getpwnam(user).pw_uid != 0
    except (KeyError, ValueError):  # a NUL in the name
        return Entry(False, frozenset())
    return Entry(ordinary, groups_of(user))


class Kept(Generic[K, V]):
    """What the system has said of late: asked in a thread, since a directory may be slow, and once in `KNOWN_S`."""

    def __init__(self, ask: Callable[[K], V]) -> None:
        self._ask = ask
        self._known: dict[K, tuple[float, V]] = {}

    async def of(self, key: K) -> V:
        known = self._known.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        found = await asyncio.to_thread(self._ask, key)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[key] = (time.monotonic() + KNOWN_S, found)
        return found


class Roles:
    """The roles that the settings give. A directory that is slow to answer keeps the event loop waiting for nothing."""

    def __init__(self, settings: Settings) -> None:
        self._always = {user_name(0), user_name(os.geteuid())}
        self._named = ((Role.ADMIN, settings.admins), (Role.OPERATOR, settings.operators))
        self._by_group = any(word.startswith(GROUP_MARK) for _, words in self._named for word in words)
        self._entries = Kept[str, Entry](entry_of)
        self._names = Kept[int, str](user_name)

    async def name_of(self, uid: int) -> str:
        """:func:`user_name`, as of the last minute."""
        return await self._names.of(uid)

    async def of(self, user: str) -> Role:
        """The widest role of a user."""
        if user in self._always:
            return Role.ADMIN
        groups = (await self._entries.of(user)).groups if self._by_group else frozenset()
        names = {GROUP_MARK + group for group in groups} | ({user} if not user.startswith(GROUP_MARK) else set())
        return next((role for role, words in self._named if names.intersection(words)), Role.USER)

    async def is_ordinary(self, user: str) -> bool:
        """Whether the system has an account of this name, and not root's: no other may be meant by a claim."""
        return (await self._entries.of(user)).ordinary
