"""The limits of accounts and QOS. `scontrol show assoc_mgr` has limits with their use. `sacctmgr show qos` has what a
QOS allows each user, also of one that has no job now. And there is which QOS a partition has.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ejbd.core.view import AccountLimit, Counted

_FIELD = re.compile(r"(\w+)=(\S*)")
_COUNT = re.compile(r"(N|[0-9.]+)\(([0-9.]+)\)")
_HEAD = re.compile(r"([^\s(]+)(?:\([0-9]+\))?")
MINUTE_S = 60.0
Query = Callable[[Sequence[str], float, str], Awaitable[str]]
"""Runs a command: its words, its time-out (seconds), and what it is to do, for the sentence of its error."""


@dataclass(frozen=True, slots=True)
class Amount:
    """`20(8)`: a limit and what is used of it; `most` None: there is none."""

    most: float | None
    used: float


_NOTHING = Amount(None, 0.0)


def amount(text: str) -> Amount:
    """`20(8)`, `N(8)`, `20` or nothing."""
    found = _COUNT.fullmatch(text)
    if found is not None:
        return Amount(None if found[1] == "N" else float(found[1]), float(found[2]))
    try:
        return Amount(float(text), 0.0)
    except ValueError:
        return _NOTHING


def of_tres(text: str, name: str) -> Amount:
    """What is said of one resource in `cpu=20(8),mem=N(0)`."""
    for word in text.split(","):
        key, _, value = word.partition("=")
        if key == name:
            return amount(value)
    return _NOTHING


@dataclass(frozen=True, slots=True)
class Association:
    """A user's in an account (perhaps of one partition), or (`user` "") an account's own."""

    account: str
    user: str
    partition: str
    parent: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Qos:
    """One QOS: its own fields, and those of each account and user that has jobs in it (users by uid or name)."""

    name: str
    fields: dict[str, str] = field(default_factory=dict)
    accounts: dict[str, dict[str, str]] = field(default_factory=dict)
    users: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShowAssociations:
    """What the controller knows of the user's associations, of all accounts and of every QOS."""

    user: str
    timeout_s: float = 20.0

    def argv(self) -> list[str]:
        return ["scontrol", "show", "assoc_mgr", f"users={self.user}", "flags=assoc,qos"]

    def parse(self, text: str) -> tuple[list[Association], list[Qos]]:
        """Associations and QOS; what is not one of theirs is left out."""
        associations: list[Association] = []
        qualities: list[Qos] = []
        into: dict[str, str] = {}
        each: dict[str, dict[str, str]] | None = None
        for line in text.splitlines():
            words = line.strip()
            if line.startswith("ClusterName="):
                into = dict(_FIELD.findall(words))
                user, parent = _bare(into.get("UserName", "")), ""
                associations.append(Association(into.get("Account", ""), user, into.get("Partition", ""), parent, into))
            elif line.startswith("QOS="):
                qualities.append(Qos(_bare(words.removeprefix("QOS="))))
                into, each = qualities[-1].fields, None
            elif qualities and words in ("Account Limits", "User Limits"):
                each = qualities[-1].accounts if words.startswith("Account") else qualities[-1].users
            elif each is not None and words and "=" not in words:
                if words not in ("No Accounts", "No Users"):
                    into = each.setdefault(_bare(words), {})
            elif "=" in words:
                into.update(_FIELD.findall(words))
        return [_with_parent(one) for one in associations], qualities


def _bare(text: str) -> str:
    """`root(0)` -> `root`."""
    found = _HEAD.match(text)
    return found[1] if found else ""


def _with_parent(one: Association) -> Association:
    return Association(one.account, one.user, one.partition, _bare(one.fields.get("ParentAccount", "")), one.fields)


@dataclass(frozen=True, slots=True)
class ShowQos:
    """What each QOS allows, from the accounting database: of users without a job now the controller says nothing."""

    timeout_s: float = 20.0

    FIELDS = ("Name", "UsageFactor", "MaxJobsPU", "MaxSubmitPU", "MaxTRESPU", "MaxJobsPA", "MaxSubmitPA", "MaxTRESPA")

    def argv(self) -> list[str]:
        return ["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=" + ",".join(self.FIELDS)]

    def parse(self, text: str) -> dict[str, dict[str, str]]:
        rows = (line.split("|") for line in text.splitlines() if line.strip())
        return {row[0]: dict(zip(self.FIELDS, row, strict=True)) for row in rows if len(row) == len(self.FIELDS)}


@dataclass(frozen=True, slots=True)
class ShowPartitions:
    """Which QOS partitions have."""

    timeout_s: float = 20.0

    def argv(self) -> list[str]:
        return ["scontrol", "--oneliner", "show", "partition"]

    def parse(self, text: str) -> dict[str, tuple[str, ...]]:
        """QOS -> its partitions."""
        found: dict[str, tuple[str, ...]] = {}
        for line in text.splitlines():
            fields = dict(_FIELD.findall(line))
            name, qos = fields.get("PartitionName", ""), fields.get("QoS", "N/A")
            if name and qos not in ("", "N/A", "(null)"):
                found[qos] = (*found.get(qos, ()), name)
        return found


SUMS: tuple[tuple[str, Counted], ...] = (
    ("GrpJobs", Counted.JOBS),
    ("GrpSubmitJobs", Counted.SUBMITTED),
    ("GrpTRES/cpu", Counted.PROCESSORS),
    ("GrpTRES/node", Counted.NODES),
    ("GrpTRESRunMins/cpu", Counted.PROCESSOR_SECONDS),
    ("GrpTRESMins/cpu", Counted.PROCESSOR_SECONDS),
)
_OF_A_USER = (("MaxJobs", Counted.JOBS), ("MaxSubmitJobs", Counted.SUBMITTED))
_OF_A_JOB = (("MaxTRESPJ/cpu", Counted.OF_A_JOB), ("MaxWallPJ", Counted.WALLTIME_S))
_EACH = (
    ("MaxJobsP{}", "MaxJobsP{}", Counted.JOBS),
    ("MaxSubmitJobsP{}", "MaxSubmitP{}", Counted.SUBMITTED),
    ("MaxTRESP{}/cpu", "MaxTRESP{}/cpu", Counted.PROCESSORS),
    ("MaxTRESP{}/node", "MaxTRESP{}/node", Counted.NODES),
)


def said(fields: Mapping[str, str], name: str) -> Amount:
    key, _, resource = name.partition("/")
    return of_tres(fields.get(key, ""), resource) if resource else amount(fields.get(key, ""))


def limits_in(
    fields: Mapping[str, str], kinds: Iterable[tuple[str, Counted]], safe: bool
) -> Iterator[tuple[str, AccountLimit]]:
    """What is limited, by its field; the account or user that it is of comes later."""
    for name, counted in kinds:
        found = said(fields, name)
        if found.most is None:
            continue
        most, used = found.most, found.used
        if name.startswith("GrpTRESMins"):
            if not safe:
                continue  # a job starts as long as anything is left, however much it would use
            used += said(fields, "GrpTRESRunMins/cpu").used
        if counted in (Counted.PROCESSOR_SECONDS, Counted.WALLTIME_S):
            most, used = most * MINUTE_S, used * MINUTE_S
        yield name, AccountLimit(name.replace("/", "="), counted, most, used)


def limits_of(
    associations: Iterable[Association],
    qualities: Iterable[Qos],
    allowed: Mapping[str, Mapping[str, str]],
    partitions: Mapping[str, tuple[str, ...]],
    user: str,
    uid: int,
    *,
    safe: bool,
) -> tuple[AccountLimit, ...]:
    """Every limit that jobs of `user` may meet. `allowed`: by QOS, as :class:`ShowQos` reads it; `safe`: the site lets
    no job start that could exceed a sum of processor minutes.

    Of the same kind a QOS's limit takes the place of an association's. Sums of an account hold for all below it.
    """
    known, found = list(associations), []
    qos = list(qualities)
    own = [one for one in known if one.user == user]
    parents = {one.account: one.parent for one in known if not one.user}
    rules: dict[str, set[str]] = {}  # field of an association -> QOS that have such a limit of their own

    for one in qos:
        told = allowed.get(one.name, {})
        where = f"QOS {one.name}"
        common = {"qos": one.name, "queues": partitions.get(one.name, ())}
        for name, limit in limits_in(one.fields, (*SUMS, *_OF_A_JOB), safe):
            rules.setdefault(name, set()).add(one.name)
            found.append(limit_of(limit, where, **common))
        mine = one.users.get(str(uid)) or one.users.get(user) or {}
        for account, letter in [("", "U"), *((account, "A") for account in dict.fromkeys(a.account for a in own))]:
            used_by = one.accounts.get(account, {}) if account else mine
            for live, stored, counted in _EACH:
                now, name = said(used_by, live.format(letter)), live.format(letter)
                most = now.most if now.most is not None else said(told, stored.format(letter)).most
                if most is None:
                    continue
                rules.setdefault(name.replace(f"P{letter}", "", 1), set()).add(one.name)
                limit = AccountLimit(name.replace("/", "="), counted, most, now.used)
                owner = f"{where}, account {account}" if account else f"{where}, {user}"
                found.append(limit_of(limit, owner, accounts=(account,) if account else (), own=not account, **common))

    for association in own:
        account, queues = association.account, (association.partition,) if association.partition else ()
        for name, limit in limits_in(association.fields, (*_OF_A_USER, *_OF_A_JOB, *SUMS), safe):
            owner = f"{user} in account {account}" + (f", partition {queues[0]}" if queues else "")
            other = tuple(sorted(rules.get(name, ())))
            found.append(limit_of(limit, owner, accounts=(account,), queues=queues, own=True, other_rules=other))
    for account in up(dict.fromkeys(one.account for one in own), parents):
        fields = next((one.fields for one in known if one.account == account and not one.user), {})
        below = tuple(sorted(name for name in parents if account in up([name], parents)))
        for name, limit in limits_in(fields, SUMS, safe):
            other = tuple(sorted(rules.get(name, ())))
            found.append(limit_of(limit, f"account {account}", accounts=below or (account,), other_rules=other))
    return tuple(found)


def limit_of(limit: AccountLimit, owner: str, **more: object) -> AccountLimit:
    values: dict[str, object] = {"accounts": (), "qos": "", "queues": (), "own": False, "other_rules": ()} | more
    return AccountLimit(f"{limit.name} of {owner}", limit.counted, limit.most, limit.used, **values)  # type: ignore[arg-type]


def up(accounts: Iterable[str], parents: Mapping[str, str]) -> list[str]:
    """These accounts and all above them, each once."""
    found: dict[str, None] = {}
    for account in accounts:
        at = account
        while at and at not in found:
            found[at] = None
            at = parents.get(at, "")
    return list(found)
