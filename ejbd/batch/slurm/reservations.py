"""`scontrol show reservation`: what the site keeps for others, and whether our jobs may run in it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ejbd.batch.slurm import states
from ejbd.core.view import NodeView, SiteReservation

ASK_EVERY_S = 60.0
_FIELD = re.compile(r"(?:^| )([A-Za-z]+)=")
_NAME = re.compile(r"ReservationName=(.*?) (?=StartTime=)")
_CPUS = re.compile(r"(?:^|,)cpu=([0-9]+[KM]?)(?:,|$)")


@dataclass(frozen=True, slots=True)
class Reserved:
    """One reservation as Slurm lists it. `cpus` of all its nodes together; None: not given."""

    name: str
    start_s: float
    end_s: float
    nodes: tuple[str, ...]
    flags: frozenset[str]
    users: tuple[str, ...]
    restricted: bool  # to accounts, groups or users that are not named, beside `users`
    cpus: int | None

    def admits(self, user: str) -> bool:
        """Whether jobs of this user run in it without asking: of a MAGNETIC one that names nothing but users.

        Being listed is not enough: Slurm keeps every job out of a reservation that does not ask for it by name. What
        accounts and groups would let in is not known of a job that has yet to be submitted, and counts as a refusal.
        """
        return "MAGNETIC" in self.flags and not self.restricted and user in self.users

    def seen_by(self, user: str, nodes: Sequence[NodeView]) -> SiteReservation:
        """The same for `user`. Where it keeps fewer processors than its nodes have, Slurm does not say which ones."""
        there = [node.processors for node in nodes if node.name in self.nodes]
        part = None
        if self.cpus is not None and there and self.cpus < sum(there):
            part = max(1, self.cpus - (len(there) - 1))  # one at least of each node, and maybe all the others of one
        admits = self.admits(user)
        # FLEX lets jobs of the reservation begin before it and end after it.
        free = admits and "FLEX" in self.flags
        what = "maintenance" if "MAINT" in self.flags else "reservation"
        return SiteReservation(
            self.name,
            -math.inf if free else self.start_s,
            math.inf if free else self.end_s,
            self.nodes,
            part,
            admits,
            what,
        )


@dataclass(frozen=True, slots=True)
class ShowReservations:
    """Every reservation that this user may see (`PrivateData=reservations` hides others')."""

    timeout_s: float = 20.0

    def argv(self) -> list[str]:
        return ["scontrol", "--oneliner", "show", "reservation"]

    def parse(self, text: str) -> tuple[tuple[Reserved, ...], int]:
        """The reservations, and the number of lines that could not be read."""
        found, unparsed = [], 0
        for line in filter(None, (line.strip() for line in text.splitlines())):
            if line == "No reservations in the system":
                continue
            try:
                found.append(_reserved(line))
            except ValueError:
                unparsed += 1
        return tuple(found), unparsed


def _reserved(line: str) -> Reserved:
    """Raises ValueError for what is no reservation."""
    name = _NAME.match(line)
    if name is None:
        raise ValueError(f"{line[:40]!r} is not a reservation")
    fields = _fields(line[name.end() :])
    start, end = states.epoch_s(fields["StartTime"]), states.epoch_s(fields.get("EndTime", ""))
    if start is None:
        raise ValueError("a reservation without a start")
    users = _words(fields.get("Users", ""))
    restricted = any(_words(fields.get(key, "")) for key in ("Accounts", "Groups")) or any(
        user.startswith("-") for user in users
    )
    cpus = _CPUS.search(fields.get("TRES", ""))
    return Reserved(
        name=name[1],
        start_s=start,
        end_s=math.inf if end is None else end,
        nodes=states.hosts(fields.get("Nodes", "")),
        flags=frozenset(_words(fields.get("Flags", ""))),
        users=users,
        restricted=restricted,
        cpus=states.count(cpus[1]) if cpus else None,
    )


def _fields(text: str) -> dict[str, str]:
    """`A=1 B=x y C=` -> values by name, the first of two; the comment, which is free text, comes last."""
    found: dict[str, str] = {}
    heads = list(_FIELD.finditer(text))
    for head, behind in zip(heads, [*heads[1:], None], strict=False):
        end = len(text) if behind is None else behind.start()
        found.setdefault(head[1], text[head.end() : end].strip())
        if head[1] == "Comment":
            break
    if "StartTime" not in found:
        raise ValueError("a reservation without a start")
    return found


def _words(value: str) -> tuple[str, ...]:
    return tuple(word for word in value.split(",") if word not in ("", "(null)", "N/A"))
