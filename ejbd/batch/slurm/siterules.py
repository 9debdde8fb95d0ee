"""The limits of all users, accounts and QOS, by `sacctmgr`: what a replay of a past day plays.

Polls read those of the daemon's own user alone (ejbd/batch/slurm/limits.py). These are read where a day is replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ejbd.batch.slurm.associations import SUMS, Association, Query, ShowPartitions, limit_of, limits_in, said, up
from ejbd.batch.slurm.limits import enforced
from ejbd.core.sitelimits import PLAYED, Each, SiteLimit, SiteRules
from ejbd.core.view import AccountLimit, Counted

_OF_A_USER = (("MaxJobs", Counted.JOBS),)
_EACH = (
    ("MaxJobsP{}", Counted.JOBS),
    ("MaxTRESP{}/cpu", Counted.PROCESSORS),
    ("MaxTRESP{}/node", Counted.NODES),
)
_LEFT_OUT = ("GrpTRESMins",)  # a budget over months: what is left of it is no matter of a day
_PLAYED = tuple((name, counted) for name, counted in SUMS if counted in PLAYED and not name.startswith(_LEFT_OUT))


@dataclass(frozen=True, slots=True)
class ShowAll:
    """All associations, or all QOS, one a line."""

    what: str
    fields: tuple[str, ...]
    timeout_s: float

    def argv(self) -> list[str]:
        return ["sacctmgr", "--noheader", "--parsable2", "show", self.what, "format=" + ",".join(self.fields)]

    def parse(self, text: str) -> list[dict[str, str]]:
        rows = (line.split("|") for line in text.splitlines() if line.strip())
        return [dict(zip(self.fields, row, strict=True)) for row in rows if len(row) == len(self.fields)]


_SUM_FIELDS = ("GrpJobs", "GrpTRES", "GrpTRESRunMins")


def show_associations(timeout_s: float) -> ShowAll:
    return ShowAll("assoc", ("Account", "User", "Partition", "ParentName", "MaxJobs", *_SUM_FIELDS), timeout_s)


def show_qos(timeout_s: float) -> ShowAll:
    return ShowAll("qos", ("Name", *_SUM_FIELDS, "MaxJobsPU", "MaxTRESPU", "MaxJobsPA", "MaxTRESPA"), timeout_s)


async def read(query: Query, config: Mapping[str, str], timeout_s: float) -> SiteRules:
    """Raises BatchError where the accounts do not tell."""
    if not enforced(config):
        return SiteRules(of_all=True)
    associations, qos, partitions = show_associations(timeout_s), show_qos(timeout_s), ShowPartitions(timeout_s)
    known = associations.parse(await query(associations.argv(), timeout_s, "tell the limits of all accounts"))
    allowed = qos.parse(await query(qos.argv(), timeout_s, "tell what its QOS allow"))
    queues = partitions.parse(await query(partitions.argv(), timeout_s, "tell the QOS of its partitions"))
    return rules_of(known, allowed, queues)


def rules_of(
    associations: Sequence[Mapping[str, str]],
    qualities: Iterable[Mapping[str, str]],
    partitions: Mapping[str, tuple[str, ...]],
) -> SiteRules:
    """Of the same kind a QOS's limit takes the place of an association's. Sums of an account hold for all below it."""
    known = [Association(one["Account"], one["User"], one["Partition"], one["ParentName"], one) for one in associations]
    found: list[SiteLimit] = []
    rules: dict[str, set[str]] = {}  # field of an association -> QOS that have such a limit of their own
    for fields in qualities:
        name = fields["Name"]
        common: dict[str, object] = {"qos": name, "queues": partitions.get(name, ())}
        for field, limit in limits_in(fields, _PLAYED, safe=False):
            rules.setdefault(field, set()).add(name)
            found.append(SiteLimit(limit_of(limit, f"QOS {name}", **common)))
        for letter, each in (("U", Each.USER), ("A", Each.ACCOUNT)):
            for pattern, counted in _EACH:
                field = pattern.format(letter)
                most = said(fields, field).most
                if most is not None:
                    rules.setdefault(field.replace(f"P{letter}", "", 1), set()).add(name)
                    limit = AccountLimit(field.replace("/", "="), counted, most)
                    found.append(SiteLimit(limit_of(limit, f"QOS {name}, each {each}", **common), each))
    parents = {one.account: one.parent for one in known if not one.user}
    below: dict[str, list[str]] = {}
    for account in parents:
        for above in up([account], parents):
            below.setdefault(above, []).append(account)
    for one in known:
        own = bool(one.user)
        for field, limit in limits_in(one.fields, (*(_OF_A_USER if own else ()), *_PLAYED), safe=False):
            accounts = (one.account,) if own else tuple(sorted(below.get(one.account, [one.account])))
            owner = f"{one.user} in account {one.account}" if own else f"account {one.account}"
            other = tuple(sorted(rules.get(field, ())))
            queues = (one.partition,) if one.partition else ()
            more: dict[str, object] = {"accounts": accounts, "queues": queues, "other_rules": other}
            found.append(SiteLimit(limit_of(limit, owner, **more), user=one.user))
    return SiteRules(tuple(found), frozenset(one.user for one in known if one.user))
