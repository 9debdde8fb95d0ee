"""What a batch system's limit belongs to: a user in an account and a QOS, as one text (`ada/physics/long`).

An account or a QOS that a submission does not name is its user's default, and stands as nothing (`ada//`).
"""

from __future__ import annotations

PARTS = 3


def text_of(user: str, account: str, qos: str) -> str:
    """The three as one text."""
    return f"{user}/{account}/{qos}"


def limited_to(text: str) -> str:
    """` for ada in account physics and QOS long`; "" of what holds for all."""
    if not text:
        return ""
    user, account, qos = text.split("/", PARTS - 1)
    place = f"account {account}" if account else "the default account"
    return f" for {user} in {place}{f' and QOS {qos}' if qos else ''}"
