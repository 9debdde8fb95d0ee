"""What OpenPBS lists: `qstat -f -F json` (and `-F dsv`), `pbsnodes -a -F json`, `pbs_rstat -F`.

Its JSON turns words that look like numbers into numbers, and names a key twice now and then. In some versions it
escapes what JSON does not know. Numbers are therefore taken as they are written, the first of two equal keys counts,
and a backslash that escapes nothing stands for itself. What a row cannot mean costs that row, and is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ejbd.batch.pbs import states
from ejbd.batch.pbs.rows import Attributes, JobRow, NodeRow, job_row, node_full, node_usable
from ejbd.batch.pbs.states import Dialect

_BAD_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}|(.))', re.DOTALL)


class Unreadable(ValueError):
    """The answer as a whole is nothing that this command prints."""


def document(text: str) -> dict[str, Any]:
    """A whole answer. Raises Unreadable."""
    try:
        try:
            found = _loads(text)
        except json.JSONDecodeError:
            found = _loads(_BAD_ESCAPE.sub(lambda m: m[0] if m[1] is None else "\\\\" + m[1], text))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{text.strip()[:60]!r} is not JSON: {str(error)[:80]}") from None
    if not isinstance(found, dict):
        raise Unreadable(f"{text.strip()[:60]!r} is no listing")
    return found


def _loads(text: str) -> Any:
    return json.loads(text, strict=False, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_first)


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        old = found.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            found[key] = value | old
        else:
            found.setdefault(key, value)
    return found


def jobs(text: str, own_user: str | None, now_s: float) -> tuple[list[JobRow], int]:
    """The jobs, and the number of rows that could not be read. Raises Unreadable.

    Only for the answer of a command that ended with 0: with the server away it is valid, too, and has no jobs.
    """
    listed = apart(text) if text.startswith(_JOB) else document(text).get("Jobs", {})
    if not isinstance(listed, dict):
        raise Unreadable(f"{str(listed)[:60]!r} is no list of jobs")
    found, unparsed = [], 0
    for id, attributes in listed.items():
        try:
            if not isinstance(attributes, dict):
                raise ValueError("no attributes")
            job = Attributes(
                id,
                _plain(attributes),
                _part(attributes, "Resource_List"),
                _part(attributes, "estimated"),
                _part(attributes, "resources_used"),
            )
            found.append(job_row(Dialect.OPENPBS, job, own_user, now_s))
        except (ValueError, OverflowError):
            unparsed += 1
    return found, unparsed


_JOB = "Job Id: "
_FIELD = re.compile(r"(?:[^|\\]|\\.)+", re.DOTALL)


def apart(text: str) -> dict[str, dict[str, Any]]:
    """What `qstat -f -F dsv` says of each job, as its JSON would. Of several jobs asked for by their ids JSON has the
    first alone (seen in 23.06.06). Fields have bars between them, and a backslash before each bar of their own.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in re.split(rf"^{_JOB}", text, flags=re.MULTILINE)[1:]:
        id, *fields = _FIELD.findall(row.rstrip("\n"))
        job = found.setdefault(id, {})
        for field in fields:
            name, _, value = field.partition("=")
            part, dot, key = name.partition(".")
            if dot:
                job.setdefault(part, {}).setdefault(key, _unescaped(value))
            else:
                job.setdefault(name, _unescaped(value))
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([|\\])", r"\1", text)


def nodes(text: str) -> tuple[list[NodeRow], int]:
    """The hosts (`pbsnodes -a` puts the vnodes of a host together), and the rows not read. Raises Unreadable."""
    listed = document(text).get("nodes", {})
    if not isinstance(listed, dict):
        raise Unreadable(f"{str(listed)[:60]!r} is no list of nodes")
    found, unparsed = [], 0
    for name, attributes in listed.items():
        try:
            if not isinstance(attributes, dict) or not name.strip():
                raise ValueError("no node")
            plain, has = _plain(attributes), _part(attributes, "resources_available")
            given = _part(attributes, "resources_assigned")
            state = plain.get("state", "")
            processors = states.slots(f"0*{has.get('ncpus', plain.get('pcpus', '0'))}")
            sharing = plain.get("sharing", "")
            found.append(
                NodeRow(
                    name=name,
                    processors=processors,
                    taken=processors if node_full(state) else states.slots(f"0*{given.get('ncpus', '0')}"),
                    state=state,
                    usable=node_usable(state),
                    exclusive="excl" in sharing,
                    bound_to=plain.get("queue", ""),
                    memory_mb=_megabytes(has.get("mem", "")),
                    taken_mb=_megabytes(given.get("mem", "")),
                    elements=_elements(attributes.get("jobs")),
                    properties=tuple(n if value == "True" else f"{n}={value}" for n, value in sorted(has.items())),
                )
            )
        except (ValueError, OverflowError):
            unparsed += 1
    return found, unparsed


def _elements(jobs: Any) -> tuple[str, ...]:
    """Of the jobs on a node the elements of arrays."""
    found = (str(id) for id in jobs) if isinstance(jobs, list) else ()
    return tuple(dict.fromkeys(id for id in found if states.is_job_id(id) and "[" in id and "[]" not in id))


def _megabytes(text: str) -> int:
    """0 where it cannot be read: a node is not left out for its memory."""
    try:
        return states.megabytes(text)
    except ValueError:
        return 0


def _plain(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in attributes.items() if isinstance(value, str)}


def _part(attributes: Mapping[str, Any], name: str) -> dict[str, str]:
    part = attributes.get(name)
    return _plain(part) if isinstance(part, dict) else {}
