"""A queue's settings by windows of the week: edges on the test's clock, summer time, and a daemon that was away."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import select

from ejbd.config import Settings
from ejbd.errors import EjbError
from ejbd.store.models import Event
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = "mon-fri 20:00-08:00"


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    world = LiveWorld(tmp_path, store, elasticity="off")
    world.settings.time_zone = "Europe/Berlin"
    return world


async def at(live: LiveWorld, text: str) -> None:
    """The first poll at or after that time of Berlin."""
    live.clock.now = datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()
    await live.poll(0)


async def queue(live: LiveWorld) -> Any:
    return (await live.manager.queues())[0]


def told(live: LiveWorld) -> list[Any]:
    return live.store.read_sync(
        lambda s: list(s.scalars(select(Event.data).where(Event.kind == "queue.window").order_by(Event.id)))
    )


def clock(at_s: float | None) -> str:
    assert at_s is not None
    return datetime.fromtimestamp(at_s, BERLIN).isoformat(timespec="minutes")


async def test_a_job_is_made_elastic_at_night_and_the_dry_run_says_so(live: LiveWorld) -> None:
    await at(live, "2026-06-01T19:59")
    found = await live.manager.set_queue_window("batch", NIGHT, {"elasticity": "on", "omax": 4}, "root")
    assert found["settings"]["elasticity"] == "off" and clock(found["calendar"]["until_s"]) == "2026-06-01T20:00+02:00"
    for now, elastic in (("19:59:30", False), ("20:00", True), ("23:00", True)):
        await at(live, f"2026-06-01T{now}")
        assert (await live.manager.plan(live.reading(), "ada"))["elastic"] is elastic, now
        assert (await live.manager.submit(live.reading(), "ada", None, "")).elastic is elastic, now
    assert (await queue(live))["settings"]["omax"] == 4
    await at(live, "2026-06-02T08:00")
    assert not (await live.manager.plan(live.reading(), "ada"))["elastic"]
    assert [(data["begun"], data["ended"], data["settings"]["elasticity"]) for data in told(live)] == [
        ([NIGHT], [], "on"),
        ([], [NIGHT], "off"),
    ]
    assert clock(told(live)[0]["until_s"]) == "2026-06-02T08:00+02:00"


async def test_the_nights_in_which_the_clock_is_changed(live: LiveWorld) -> None:
    await at(live, "2026-03-28T12:00")
    await live.manager.set_queue_window("batch", "daily 20:00-02:30", {"elasticity": "on"}, "root")
    for now, value, until in (
        ("2026-03-28T20:00", "on", "2026-03-29T03:00+02:00"),  # there is no 02:30 in that night
        ("2026-03-29T03:00", "off", "2026-03-29T20:00+02:00"),
        ("2026-10-24T20:00", "on", "2026-10-25T02:30+02:00"),  # there are two
        ("2026-10-25T02:30", "off", "2026-10-25T20:00+01:00"),
        ("2026-10-25T03:00", "off", "2026-10-25T20:00+01:00"),
    ):
        await at(live, now)
        found = await queue(live)
        assert (found["settings"]["elasticity"], clock(found["calendar"]["until_s"])) == (value, until), now


async def test_a_daemon_that_was_away_over_an_edge_tells_it_once(live: LiveWorld) -> None:
    await at(live, "2026-03-27T12:00")
    await live.manager.set_queue_window("batch", NIGHT, {"elasticity": "on"}, "root")
    await at(live, "2026-03-27T21:00")
    live.clock.now = datetime(2026, 3, 31, 21, tzinfo=BERLIN).timestamp()  # the same is in force again
    await live.restart()
    await live.poll(0)
    assert len(told(live)) == 1
    live.clock.now = datetime(2026, 4, 4, 12, tzinfo=BERLIN).timestamp()  # a Saturday
    for _ in range(2):
        await live.restart()
        await live.poll(0)
        await live.poll(5)
    assert [data["ended"] for data in told(live)] == [[], [NIGHT]]
    assert (await queue(live))["settings"]["elasticity"] == "off"


async def test_one_setting_is_taken_out_and_then_the_window_and_what_was_below_holds_at_once(live: LiveWorld) -> None:
    await at(live, "2026-06-01T21:00")
    await live.manager.set_queue("batch", {"omax": 8}, "root")
    both = {"elasticity": "on", "omax": 4}
    assert (await live.manager.set_queue_window("batch", "Mon-Fri 20:00-8:00", both, "root"))["settings"]["omax"] == 4
    found = await live.manager.set_queue_window("batch", NIGHT, {"omax": None}, "root")
    assert found["settings"]["omax"] == 8 and found["settings"]["elasticity"] == "on"
    assert [row["settings"] for row in found["calendar"]["windows"]] == [{"elasticity": "on"}]
    found = await live.manager.clear_queue_windows("batch", NIGHT, "root")
    assert found["settings"]["elasticity"] == "off" and found["calendar"]["windows"] == []
    await live.manager.set_queue_window("batch", NIGHT, {"omax": 4}, "root")
    assert (await live.manager.set_queue_window("batch", NIGHT, {"omax": None}, "root"))["calendar"]["windows"] == []
    await live.poll(5)
    assert told(live) == []  # a change by an operator is no edge


@pytest.mark.parametrize(
    ("when", "changes", "says"),
    [
        ("moon 20:00-08:00", {"omax": 4}, "'moon' is no day"),
        (NIGHT, {"omax": -1}, "omax"),
        (NIGHT, {"policy": "bundling"}, "cannot choose another policy"),
        (NIGHT, {"omax": None}, "has no window mon-fri 20:00-08:00"),
    ],
)
async def test_what_cannot_be_set_is_refused_in_a_sentence(
    live: LiveWorld, when: str, changes: dict[str, Any], says: str
) -> None:
    await live.poll()
    with pytest.raises(EjbError, match=says):
        await live.manager.set_queue_window("batch", when, changes, "root")
    assert (await queue(live))["calendar"]["windows"] == []
    for name, window in (("batch", None), ("batch", NIGHT), ("none", None)):
        with pytest.raises(EjbError, match=r"has no window|there is no queue"):
            await live.manager.clear_queue_windows(name, window, "root")


def test_a_time_zone_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there is no time zone 'Europe/Atlantis'"):
        Settings(time_zone="Europe/Atlantis")
    monkeypatch.setenv("TZ", ":Pacific/Apia")
    assert str(Settings().zone) == "Pacific/Apia"
