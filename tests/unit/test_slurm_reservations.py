"""What Slurm tells of reservations, and what is made of it. Recorded output: Slurm 22.05.8, times in UTC."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ejbd.batch.slurm.reservations import Reserved, ShowReservations
from ejbd.core.view import NodeView

TEXT = (Path(__file__).parent / "recorded" / "slurm-22.05" / "reservations.txt").read_text()
SHOW = ShowReservations()
NODES = tuple(NodeView(f"n{i}", 4, 4, True, ("batch",)) for i in range(1, 5))


def at(clock: str) -> float:
    return datetime.fromisoformat(f"2026-11-22T{clock}+00:00").timestamp()


def recorded() -> dict[str, Reserved]:
    found, unparsed = SHOW.parse(TEXT)
    assert unparsed == 0
    return {one.name: one for one in found}


def line(**changed: str) -> str:
    fields = {
        "ReservationName": "r", "StartTime": "2026-11-22T10:00:00", "EndTime": "2026-11-22T11:00:00", "Nodes": "n1",
        "Flags": "", "TRES": "cpu=4", "Users": "root", "Groups": "(null)", "Accounts": "(null)",
    } | changed  # fmt: skip
    return " ".join(f"{name}={value}" for name, value in fields.items())


def one(**changed: str) -> Reserved:
    (found,), unparsed = SHOW.parse(line(**changed))
    assert unparsed == 0
    return found


def test_recorded_reservations() -> None:
    found = recorded()
    assert list(found) == ["root_1", "daily", "flexy", "core", "part", "mag", "unl", "neg"]
    maintenance = found["root_1"]
    assert (maintenance.start_s, maintenance.end_s) == (at("09:03:37"), at("09:33:37"))
    assert maintenance.nodes == ("n1", "n2", "n3", "n4") and maintenance.cpus == 16
    assert maintenance.flags == {"MAINT", "IGNORE_JOBS", "SPEC_NODES", "ALL_NODES"}
    assert found["core"].flags == frozenset() and found["core"].cpus == 2
    assert found["neg"].users == ("-root",) and found["neg"].restricted


def test_no_reservation_is_no_reservation() -> None:
    assert SHOW.parse("No reservations in the system\n") == ((), 0)
    assert SHOW.parse("") == ((), 0)


def test_who_is_listed_is_let_in_where_slurm_does_so_unasked() -> None:
    found = recorded()
    assert [name for name, each in found.items() if each.admits("root")] == ["mag"]
    assert not found["mag"].admits("ada")
    assert not one(Flags="MAGNETIC", Accounts="physics").admits("root")
    assert not one(Flags="MAGNETIC", Users="root,-ada").admits("root")
    assert not one(Flags="MAGNETIC", Users="(null)", Accounts="physics").admits("root")


def test_what_the_view_shows_of_them() -> None:
    found = {name: each.seen_by("root", NODES) for name, each in recorded().items()}
    assert (found["root_1"].what, found["root_1"].processors, found["root_1"].admits) == ("maintenance", None, False)
    assert found["core"].processors == 2 and found["daily"].processors is None
    assert found["mag"].admits and not found["flexy"].admits
    assert found["daily"].start_s == at("10:59:37")  # the next time; the one behind it is told once that is over
    # Three processors on two nodes: one on each at least, so two on either at most.
    assert one(Nodes="n[1-2]", TRES="cpu=3").seen_by("root", NODES).processors == 2
    assert one(Nodes="n[1-2]", TRES="mem=1G,cpu=8,node=2").seen_by("root", NODES).processors is None
    assert one(Nodes="(null)", TRES="(null)").seen_by("root", NODES).nodes == ()
    free = one(Flags="FLEX,MAGNETIC").seen_by("root", NODES)
    assert (free.start_s, free.end_s) == (-math.inf, math.inf) and free.ends_windows_s(at("10:30:00")) is None


def test_free_text_forges_nothing() -> None:
    found = one(MaxStartDelay="(null)", Comment="for Ada StartTime=2026-01-01T00:00:00 Nodes=n[1-4] Flags=MAGNETIC")
    assert (found.start_s, found.nodes, found.flags) == (at("10:00:00"), ("n1",), frozenset())
    named = one(ReservationName="a b Nodes=n9")
    assert (named.name, named.nodes) == ("a b Nodes=n9", ("n1",))


def test_what_cannot_be_read_is_counted_and_hides_nobody_else() -> None:
    text = "\n".join([line(StartTime="soon"), "what?", line(ReservationName="good"), line(Nodes="n[1-"), "Comment=x"])
    found, unparsed = SHOW.parse(text)
    assert ([each.name for each in found], unparsed) == (["good"], 4)
    assert one(EndTime="N/A").end_s == math.inf


@given(st.lists(st.one_of(st.sampled_from(TEXT.splitlines()), st.text(max_size=200)), max_size=5), st.data())
def test_nothing_that_a_site_may_say_stops_a_poll(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.text(max_size=20)) + text[at:]
    found, unparsed = SHOW.parse(text)
    assert len(found) + unparsed <= sum(1 for each in text.splitlines() if each.strip())
    for each in found:
        shown = each.seen_by("root", NODES)
        assert shown.processors is None or shown.processors >= 1
        assert all(0 <= shown.of_node(node) <= node.processors for node in NODES)
