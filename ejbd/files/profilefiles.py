"""A user's own profiles as files: where they are, and their texts as a submission carries them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ejbd.files.paths import name_user_folder

MOST_SENT_BYTES = 64 << 10  # of all profiles together that go with one submission
MOST_SENT = 32


def own_folder(environ: Mapping[str, str] = os.environ) -> str:
    """A user's profiles: `$XDG_CONFIG_HOME/ejb/profiles`, else `~/.config/ejb/profiles`."""
    return f"{name_user_folder('XDG_CONFIG_HOME', '.config', environ)}/ejb/profiles"


def to_send(folder: str, left_out: Callable[[str], None]) -> dict[str, str]:
    """The profiles of a folder by the names of their files. `left_out` hears of each that is not sent."""
    found: dict[str, str] = {}
    left = MOST_SENT_BYTES
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".toml") and name != ".toml")  # noqa: PTH208
    except OSError:
        return found  # most users have none
    for name in names:
        try:
            with open(f"{folder}/{name}", "rb") as file:
                data = file.read(left + 1)
            text = data.decode()
            name.encode()
        except (OSError, UnicodeError) as error:
            left_out(f"the profiles in {folder}/{name} are not sent: {error}")
            continue
        if len(data) > left or len(found) == MOST_SENT:
            what = f"{MOST_SENT} files and {MOST_SENT_BYTES >> 10} KiB go with a submission at most"
            left_out(f"the profiles in {folder}/{name} are not sent: {what}")
            continue
        found[name] = text
        left -= len(data)
    return found
