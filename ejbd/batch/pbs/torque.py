"""What Torque lists: `qstat -x` and `pbsnodes -x`, in XML.

What users call their jobs or put into their variables may hold characters that XML does not allow. They are replaced
before anything is read. Where the whole can still not be read each job is read for itself: a name costs at most
its own row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from ejbd.batch.pbs import states
from ejbd.batch.pbs.openpbs import Unreadable
from ejbd.batch.pbs.rows import Attributes, JobRow, NodeRow, job_row, node_full, node_usable
from ejbd.batch.pbs.states import Dialect

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFERENCE = re.compile(r"&#(?:x([0-9A-Fa-f]{1,8})|([0-9]{1,9}));")
_REPLACED = "\ufffd"


def jobs(text: str, own_user: str | None, now_s: float) -> tuple[list[JobRow], int]:
    """The jobs, and the number of rows that could not be read. Nothing at all is no jobs. Raises Unreadable."""
    found, unparsed = [], 0
    for element in _elements(text, "Job"):
        try:
            if element is None:
                raise ValueError("torn row")
            asked = _children(element, "Resource_List")
            job = Attributes(element.findtext("Job_Id", "").strip(), _texts(element), asked, {})
            found.append(job_row(Dialect.TORQUE, job, own_user, now_s))
        except (ValueError, OverflowError):
            unparsed += 1
    return found, unparsed


def nodes(text: str) -> tuple[list[NodeRow], int]:
    """The nodes, and the number of rows that could not be read. Raises Unreadable."""
    found, unparsed = [], 0
    for element in _elements(text, "Node"):
        try:
            if element is None:
                raise ValueError("torn row")
            name, state = element.findtext("name", "").strip(), element.findtext("state", "").strip()
            if not name:
                raise ValueError("a node without a name")
            processors = states.slots(f"0*{element.findtext('np', '').strip()}")
            taken = sum(_held(element.findtext("jobs", "")))
            found.append(
                NodeRow(
                    name=name,
                    processors=processors,
                    taken=processors if node_full(state) and not taken else taken,
                    state=state,
                    usable=node_usable(state),
                    properties=tuple(filter(None, element.findtext("properties", "").strip().split(","))),
                )
            )
        except (ValueError, OverflowError):
            unparsed += 1
    return found, unparsed


def _held(text: str) -> Iterator[int]:
    """`0-1/12.head,3/13.head`, and `0/12.head, 1/12.head` of older versions: the slots that each job holds."""
    slots = ""
    for piece in filter(None, (word.strip() for word in text.split(","))):
        part, slash, _ = piece.partition("/")
        slots = f"{slots},{part}" if slots else part
        if slash:
            yield states.slots(slots)
            slots = ""
    if slots:
        raise ValueError(f"{text[:40]!r} ends without a job")


def _elements(text: str, name: str) -> Iterator[ElementTree.Element | None]:
    """The elements of that name, None for one that cannot be read."""
    clean = _REFERENCE.sub(_allowed, _NOT_XML.sub(_REPLACED, text)).strip()
    if not clean:
        return
    if "<!" in clean:  # Torque writes none; what could be declared there could only do harm
        raise Unreadable(f"{clean[:60]!r} is no listing")
    try:
        root = ElementTree.fromstring(clean)
    except ElementTree.ParseError:
        rows = re.findall(f"<{name}>.*?</{name}>", clean, re.DOTALL)
        whole = clean.endswith("</Data>")
        if not rows:
            raise Unreadable(f"{clean[:60]!r} is no listing") from None
        for row in rows:
            try:
                yield ElementTree.fromstring(row)
            except ElementTree.ParseError:
                yield None
        if not whole:
            yield None
        return
    if root.tag != "Data":
        raise Unreadable(f"{clean[:60]!r} is no listing")
    yield from root.iterfind(name)


def _allowed(match: re.Match[str]) -> str:
    number = int(match[1], 16) if match[1] else int(match[2])
    inside = number in (9, 10, 13) or 0x20 <= number <= 0xD7FF or 0xE000 <= number <= 0xFFFD
    return match[0] if inside or 0x10000 <= number <= 0x10FFFF else _REPLACED


def _texts(element: ElementTree.Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for child in element:
        if not len(child):
            found.setdefault(child.tag, child.text or "")
    return found


def _children(element: ElementTree.Element, name: str) -> dict[str, str]:
    part = element.find(name)
    return {} if part is None else _texts(part)
