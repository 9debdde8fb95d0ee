"""What subjobs are charged to: that it is there, for `ejb doctor`, and what the site's fair share makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ejbd.batch.slurm.associations import Association, Query, ShowQos
from ejbd.core.view import FairShare, Share
from ejbd.errors import BatchError

Check = tuple[str, bool, str]
SUBJECT = "fair share"


@dataclass(frozen=True, slots=True)
class Charge:
    """The QOS and the account that a queue has for its subjobs ("": J0's)."""

    queue: str
    qos: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True)
class ShowUser:
    """The accounts that a user may charge, and the QOS that may be used there."""

    user: str
    timeout_s: float = 20.0

    def argv(self) -> list[str]:
        where = f"user={self.user}"
        return ["sacctmgr", "--noheader", "--parsable2", "show", "assoc", "where", where, "format=Account,QOS"]

    def parse(self, text: str) -> dict[str, set[str]]:
        """Account -> QOS."""
        found: dict[str, set[str]] = {}
        for line in text.splitlines():
            account, bar, qos = line.partition("|")
            if bar:
                found.setdefault(account, set()).update(filter(None, qos.split(",")))
        return found


def fair_share(config: Mapping[str, str]) -> int:
    """What fair share weighs in the site's priorities; 0: nothing."""
    weight = config.get("PriorityWeightFairShare", config.get("PriorityWeightFairshare", "0"))
    return int(weight) if config.get("PriorityType", "").endswith("multifactor") and weight.isdigit() else 0


def shares_of(associations: Iterable[Association], config: Mapping[str, str]) -> FairShare | None:
    """The accounts' shares and use as the controller shows them; None where priorities do not go by them."""
    weight = fair_share(config)
    if not weight:
        return None
    found = [  # SharesRaw/Norm/Level/Factor=..., UsageRaw/Norm/Efctv=...
        Share(one.account, _part(one.fields, "Factor", 1), _part(one.fields, "Efctv", 0))
        for one in associations
        if not one.user
    ]
    return FairShare(
        float(weight),
        by_rank="NO_FAIR_TREE" not in config.get("PriorityFlags", "").upper().split(","),
        damping=max(1.0, _number(config.get("FairShareDampeningFactor", ""))),
        used=next((one.used for one in found if one.account == "root"), 0.0),
        shares=tuple(one for one in found if one.account != "root" and 0.0 < one.share <= 1.0),
    )


def _part(fields: Mapping[str, str], name: str, at: int) -> float:
    """One of several numbers, as in `SharesRaw/Norm/Level/Factor=1/0.33/3/0.00`; 0 where it is not given."""
    words = fields.get(name, "").split("/")
    try:
        return float(words[at])
    except (IndexError, ValueError):
        return 0.0


async def examine(
    charges: Iterable[Charge], config: Mapping[str, str], query: Query, user: str, timeout_s: float
) -> list[Check]:
    """One check for what each queue has for its subjobs, or one that says what fair share costs without."""
    wanted = [one for one in charges if one.qos or one.account]
    weight = fair_share(config)
    if not wanted:
        if not weight:
            return []
        text = (
            f"PriorityWeightFairShare={weight}: what subjobs use lowers the priority of the J0 that waits, so that "
            f"others may pass it; cured by subjob_qos=ejb of a queue, once an administrator has run "
            f"{_lines('ejb', user)}"
        )
        return [(SUBJECT, True, text)]
    qos, own = ShowQos(timeout_s), ShowUser(user, timeout_s)
    try:
        known = qos.parse(await query(qos.argv(), qos.timeout_s, "tell its QOS"))
        accounts = own.parse(await query(own.argv(), own.timeout_s, "tell the accounts of its user"))
    except BatchError as error:
        return [(SUBJECT, False, error.sentence())]
    return [_judged(one, known, accounts, weight, user) for one in wanted]


def _judged(
    one: Charge, known: Mapping[str, Mapping[str, str]], accounts: Mapping[str, set[str]], weight: int, user: str
) -> Check:
    subject = f"subjobs of queue {one.queue}"
    if one.account and one.account not in accounts:
        line = f"sacctmgr -i add user {user} account={one.account}"
        return subject, False, f"{user} may not charge account {one.account} (subjob_account); mended by: {line}"
    may = accounts[one.account] if one.account else set[str]().union(*accounts.values())
    if one.qos and (one.qos not in known or one.qos not in may):
        what = f"QOS {one.qos} (subjob_qos) is not there" if one.qos not in known else f"{user} may not use {one.qos}"
        return subject, False, f"{what}; an administrator makes it with: {_lines(one.qos, user)}"
    factor = known.get(one.qos, {}).get("UsageFactor", "1")
    if one.qos and weight and _number(factor) != 0.0:
        line = f"sacctmgr -i modify qos {one.qos} set UsageFactor=0"
        return subject, False, f"QOS {one.qos} charges J0's fair share (UsageFactor={factor}); mended by: {line}"
    words = [f"QOS {one.qos}, UsageFactor {_number(factor):g}" if one.qos else "", one.account]
    return subject, True, f"charged to {', '.join(filter(None, words))}"


def _lines(qos: str, user: str) -> str:
    """The two lines that make a QOS for subjobs."""
    return f"`sacctmgr -i add qos {qos} UsageFactor=0` and `sacctmgr -i modify user {user} set qos+={qos}`"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0
