"""--mail-type and --mail-user: which mails a job is to send, as sbatch reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ejbd.manager.jobspec.findings import Given, Refusal, shortened

BEGIN, END, FAIL, REQUEUE, TIME_LIMIT, TASKS = "BEGIN", "END", "FAIL", "REQUEUE", "TIME_LIMIT", "ARRAY_TASKS"
_SENT = frozenset({BEGIN, END, FAIL, REQUEUE, TIME_LIMIT, TASKS})
_NOT_SENT = frozenset({"INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50"})
_ALL = (BEGIN, END, FAIL, REQUEUE)
# Programs that send mail take more for a recipient: an option, a file, a command behind a bar.
_RECIPIENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._%+=@,-]{0,255}", re.ASCII)


def is_recipient(text: str) -> bool:
    """Whether a program that sends mail takes this for nothing but an address, or several with commas between."""
    return _RECIPIENT.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Mail:
    """The events of which a job sends a mail, and the user that gets it ("": its own)."""

    kinds: tuple[str, ...]
    user: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"kinds": list(self.kinds), "user": self.user}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(tuple(data["kinds"]), str(data["user"]))


def read_mail(settings: Mapping[str, Given], notes: list[str]) -> tuple[Mail | None, Refusal | None]:
    """The mails that are asked for, or why only the batch system can send them; `notes` get what is left out."""
    asked, to = settings.get("mail-type"), settings.get("mail-user")
    if asked is None:
        return None, None
    user = to.value or "" if to is not None else ""
    if to is not None and user and not is_recipient(user):
        return None, Refusal(to.where, f"an elastic job sends no mail to {shortened(user)}, which is no address")
    words = [word.strip().upper() for word in (asked.value or "").split(",")]
    kinds: list[str] = []
    for word in words:
        if word == "NONE":
            continue
        if word != "ALL" and word not in _SENT | _NOT_SENT:
            return None, Refusal(asked.where, f"{shortened(word)} is no type of mail that EJB knows")
        if word in _NOT_SENT:
            notes.append(f"{asked.where}: {word} of --mail-type is not acted on in an elastic job")
        kinds += _ALL if word == "ALL" else (word,)
    found = tuple(kind for kind in dict.fromkeys(kinds) if kind in _SENT)
    return (Mail(found, user) if set(found) - {TASKS} else None), None
