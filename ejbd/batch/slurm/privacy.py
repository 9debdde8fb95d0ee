"""`PrivateData`: what a site hides from ordinary users, of which windows would be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SEES_ALL = ("operator", "administrator")  # levels of slurmdbd's users


def hidden(config: Mapping[str, str]) -> frozenset[str]:
    """The words of PrivateData."""
    words = (word.strip().lower() for word in config.get("PrivateData", "").split(","))
    return frozenset(word for word in words if word not in ("", "none", "(null)"))


def privileged(config: Mapping[str, str], user: str, uid: int) -> bool:
    """Whether Slurm hides nothing from this user, by its settings alone: root and SlurmUser."""
    return uid == 0 or config.get("SlurmUser", "").partition("(")[0] == user


def keeps_accounts(config: Mapping[str, str]) -> bool:
    return config.get("AccountingStorageType", "").endswith("slurmdbd")


def blindness(config: Mapping[str, str], user: str, uid: int, level: str) -> str:
    """Why this user cannot see the jobs of others, "" where nothing hides them. `level`: AdminLevel in the accounts."""
    if "jobs" not in hidden(config) or privileged(config, user, uid) or level.lower() in SEES_ALL:
        return ""
    cure = f"`sacctmgr modify user {user} set adminlevel=operator` lets {user} see them"
    if not keeps_accounts(config):
        cure = "without slurmdbd only root and SlurmUser see them: an administrator can take `jobs` out of PrivateData"
    return f"PrivateData=jobs hides the jobs of others from {user}, and with them their planned starts; {cure}"


def raises(config: Mapping[str, str], user: str, uid: int, level: str) -> bool:
    """Whether this user may raise the limits of jobs."""
    return privileged(config, user, uid) or level.lower() in SEES_ALL


@dataclass(frozen=True, slots=True)
class ShowLevel:
    """The AdminLevel of one user in the accounts."""

    user: str
    timeout_s: float = 20.0

    def argv(self) -> list[str]:
        return ["sacctmgr", "--noheader", "--parsable2", "show", "user", f"name={self.user}", "format=AdminLevel"]

    def parse(self, text: str) -> str:
        return text.strip().partition("\n")[0].strip()
