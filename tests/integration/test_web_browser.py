"""The page in a browser: who sees what, the switch, hostile names, many nodes, small screens, and what axe says."""

from __future__ import annotations

import os
import pwd
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.config import OidcSettings
from ejbd.core.view import BatchState
from ejbd.store.models import Job, OtherDay, OtherReplay
from tests.fakes.api_server import ApiServer
from tests.fakes.browser import chromium, found_by_axe, missing_browser, reader
from tests.fakes.issuer import AUDIENCE, USER, Issuer
from tests.fakes.proxy import below_a_prefix
from tests.fakes.web import batch_job, cluster_view, link, page_server, runs, submit
from tests.nightly import everything

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("web-browser")]
ME = pwd.getpwuid(os.geteuid()).pw_name
DAY = 1_699_920_000.0
PAGES = ("/", "/web/jobs", "/web/queues", "/web/savings", "/web/health")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if reason := missing_browser():
        pytest.skip(reason)
    with chromium() as found:
        yield found


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with page_server(tmp_path_factory.mktemp("web")) as made:
        yield made


def test_users_see_their_own_jobs_and_operators_all(browser: Browser, server: ApiServer) -> None:
    submit(server, "ada", "adas-work")
    submit(server, "bob", "bobs-work")
    seen = {}
    for user in ("ada", "bob", "otto"):
        with reader(browser, link(server, user)) as page:
            page.goto(server.servers.url + "/web/jobs")
            text = page.inner_text("main")
            seen[user] = {name for name in ("adas-work", "bobs-work") if name in text}
    assert seen == {"ada": {"adas-work"}, "bob": {"bobs-work"}, "otto": {"adas-work", "bobs-work"}}


def test_an_operator_turns_elasticity_off_and_on_by_the_switch(browser: Browser, server: ApiServer) -> None:
    with reader(browser, link(server, "ada")) as page:
        page.goto(server.servers.url + "/web/queues")
        assert page.locator("form.switch").count() == 0
    with reader(browser, link(server, "otto")) as page:
        page.goto(server.servers.url + "/web/queues")
        for choice in ("off", "on"):
            with page.expect_navigation():
                page.locator(f"form.switch button[value={choice}]").click()
            assert page.locator("form.switch button[aria-pressed=true]").inner_text() == choice
            assert server.manager.overrides["elasticity"] == choice


def test_a_job_is_cancelled_by_keyboard(browser: Browser, server: ApiServer) -> None:
    job = submit(server, "ada", "unwanted")
    with reader(browser, link(server, "ada")) as page:
        page.goto(f"{server.servers.url}/web/jobs/{job}")
        page.locator("details.sure summary").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        assert page.locator(".now .state").inner_text() == "cancelled"


def test_pages_at_another_port_or_name_change_nothing_and_read_nothing(
    browser: Browser, server: ApiServer, tmp_path: Path
) -> None:
    """Forms, requests and frames of a page that a signed-in browser opens; the host's other ports are the same site."""
    job, url = submit(server, "ada"), server.servers.url
    acts = f"/web/jobs/{job}/cancel", "/web/out", f"/v1/jobs/{job}/cancel"
    forms = "".join(
        f'<form method="post" action="{url}{act}" target="f{n}"><input name="mark" value="{"0" * 32}"></form>'
        f'<iframe name="f{n}"></iframe>'
        for n, act in enumerate(acts)
    )
    tries = f"""<body>{forms}<iframe src="{url}/web/jobs/{job}"></iframe><script>
      for (const form of document.forms) form.submit();
      const asked = {list(acts)}.map((act) => fetch("{url}" + act, {{
        method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams({{ mark: "0" }}) }}));
      const read = fetch("{url}/v1/jobs/{job}", {{ credentials: "include" }}).then(() => "read", () => "refused");
      Promise.allSettled([...asked, read]).then((all) => {{ document.title = "over " + all.at(-1).value; }});
    </script>"""
    (tmp_path / "index.html").write_text(tries)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as other, reader(browser, link(server, "ada")) as page:
        threading.Thread(target=other.serve_forever, args=(0.02,), daemon=True).start()
        for name in ("127.0.0.1", "localhost"):
            page.goto(f"http://{name}:{other.server_port}/")
            page.wait_for_function("document.title.startsWith('over')")
            assert page.title() == "over refused"
        page.goto(f"{url}/web/jobs/{job}")
        assert page.locator("nav").is_visible(), "still signed in"
        other.shutdown()
    state = server.store.read_sync(lambda session: session.scalars(select(Job.state).where(Job.id == job)).one())
    assert state == "received"


def test_a_page_left_open_over_a_restart_misses_nothing(browser: Browser, server: ApiServer) -> None:
    submit(server, "ada", "before")
    before = server.servers.url
    with reader(browser, link(server, "ada")) as page:
        page.goto(before + "/web/jobs")
        page.wait_for_selector("#connection:has-text('live')")
        page.evaluate("window.sameDocument = true")
        server.stop_listening()
        page.wait_for_selector("#connection.gone")
        submit(server, "ada", "meanwhile")
        server.listen_again()  # `listen` names no port
        assert server.servers.url == before
        page.wait_for_selector("#connection:not(.gone)")
        page.wait_for_selector("text=meanwhile")
        assert page.evaluate("window.sameDocument") is True


@pytest.mark.nightly("the one before is left open over a restart")
def test_a_page_left_open_over_an_upgrade_says_so(
    browser: Browser, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reader(browser, link(server, "ada")) as page:
        page.goto(server.servers.url + "/web/jobs")
        page.wait_for_selector("#connection:has-text('live')")
        monkeypatch.setattr("ejbd.web.render.MADE", "another")
        submit(server, "ada", "after-it")
        page.wait_for_selector("#connection:has-text('upgraded')")
        page.wait_for_selector("text=after-it")
        monkeypatch.undo()
        page.get_by_role("link", name="load this page anew").click()
        page.wait_for_selector("#connection:has-text('live')")


@pytest.mark.nightly("the switch above is a button, too; what is copied is the text of the page")
def test_a_command_is_copied(browser: Browser, server: ApiServer) -> None:
    job = submit(server, "ada", "copied")
    with reader(browser, link(server, "ada"), permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(f"{server.servers.url}/web/jobs/{job}")
        page.locator(f"[data-copy='ejb explain {job}']").click()
        page.wait_for_selector("button.copy:has-text('copied')")
        assert page.evaluate("navigator.clipboard.readText()") == f"ejb explain {job}"


def test_output_comes_as_the_job_writes_it(browser: Browser, server: ApiServer, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"first line\n")
    job = submit(server, ME, "talks", cwd=str(tmp_path), state="running", start_s=time.time())
    with reader(browser, link(server, ME)) as page:
        page.goto(f"{server.servers.url}/web/jobs/{job}")
        output = page.locator("[data-log*='stdout']")
        page.wait_for_selector("[data-log*='stdout']:has-text('first line')")
        for at in range(3):
            with path.open("ab") as file:
                file.write(f"step {at} \N{SNOWMAN}\n".encode())
            page.wait_for_selector(f"[data-log*='stdout']:has-text('step {at} \N{SNOWMAN}')")
        assert output.inner_text().splitlines() == ["first line", *(f"step {at} \N{SNOWMAN}" for at in range(3))]


@pytest.mark.nightly("unit/test_web_oidc.py signs in without a browser")
def test_a_browser_signs_in_by_the_sites_identity_provider(browser: Browser, tmp_path: Path) -> None:
    issuer = Issuer()
    oidc = OidcSettings(issuer=issuer.url, audience=AUDIENCE, client_id="page")
    server = ApiServer(tmp_path, settings={"oidc": oidc})
    server.manager.view = cluster_view()
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(server.servers.url + "/web/jobs")
        assert found_by_axe(page) == []
        page.get_by_role("link", name="identity provider").click()
        page.wait_for_selector(f"form.out:has-text('{USER}')")  # the strict cookie is sent, though the way led outside
        assert page.url == server.servers.url + "/"
    finally:
        context.close()
        server.close()
        issuer.close()


def test_a_hostile_name_stays_text(browser: Browser, server: ApiServer) -> None:
    job = submit(server, "ada", HOSTILE)
    runs(server, job, "88", ["n3"], 8)
    server.manager.view = cluster_view(jobs=(batch_job("88", ["n3"], 8),))
    with reader(browser, link(server, "ada")) as page:
        for path in ("/web/jobs", f"/web/jobs/{job}", "/"):
            page.goto(server.servers.url + path)
            assert HOSTILE in (page.text_content("main") or "")
            assert page.locator("main img, main script").count() == 0


@pytest.mark.nightly("unit/test_web_pages.py has the page of many nodes")
def test_five_thousand_nodes_are_readable_and_lead_to_single_ones(browser: Browser, server: ApiServer) -> None:
    jobs = [batch_job(str(at), [f"n{at + 1}", f"n{at + 2}"], 32) for at in range(0, 1000, 2)]
    server.manager.view = cluster_view(5000, jobs=tuple(jobs))
    with reader(browser, link(server, "otto")) as page:
        page.goto(server.servers.url + "/")
        assert page.locator("svg.gantt .lane").count() == 60
        page.locator("svg.gantt a").first.click()
        page.wait_for_url("**/?*last=84*")
        # 84 nodes are two a lane still; the group of these leads to each.
        page.locator("svg.gantt a[href*='first']").first.click()
        page.wait_for_url("**/?*last=2")
        assert page.locator("svg.gantt .lane").count() == 2


@pytest.mark.nightly("unit/test_web_oidc.py signs out")
def test_a_tab_that_was_signed_out_in_another_one_says_so_and_asks_for_nothing_more(
    browser: Browser, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ejbd.api.events.KEEP_ALIVE_S", 0.5)  # between two looks of a stream whether its cookie holds
    with reader(browser, link(server, "ada")) as page:
        page.clock.install()
        page.goto(server.servers.url + "/web/jobs")
        page.wait_for_selector("#connection:has-text('live')")
        other = page.context.new_page()
        other.goto(server.servers.url + "/web/queues")
        with other.expect_navigation():
            other.get_by_role("button", name="Sign out").click()
        page.wait_for_selector("#connection:has-text('signed out')")
        page.wait_for_load_state("networkidle")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.run_for(120_000)
        assert asked == []
        page.get_by_role("link", name="sign in again").click()
        page.wait_for_selector("text=ejb web")


def test_without_javascript_pages_can_be_read_and_left(browser: Browser, server: ApiServer) -> None:
    job = submit(server, "ada", "read-by-eye")
    with reader(browser, link(server, "ada"), java_script_enabled=False) as page:
        page.goto(server.servers.url + "/web/jobs?name=read-by-eye")
        assert "UTC" in page.inner_text("#live time >> nth=0")
        page.get_by_role("link", name=job).click()
        assert page.locator(f"a[href='/v1/jobs/{job}/logs?stream=stdout']").count() == 1
        page.get_by_role("button", name="Hold").click()
        page.wait_for_selector("text=Release")
        page.get_by_role("link", name="Cluster").click()
        page.wait_for_selector("svg.gantt")


def test_behind_a_proxy_that_serves_it_below_a_prefix_the_page_works(browser: Browser, server: ApiServer) -> None:
    submit(server, "ada", "below")
    with (
        below_a_prefix(server.servers.url, "/ejb") as base,
        reader(browser, link(server, "ada").replace(server.servers.url, base)) as page,
    ):
        assert page.url == f"{base}/"
        page.wait_for_selector("#connection:has-text('live')")
        page.get_by_role("link", name="Jobs").click()
        page.get_by_label("Name").fill("below")
        page.get_by_role("button", name="Show").click()
        page.wait_for_url(f"{base}/web/jobs?*name=below*")
        page.locator("#jobs-table tbody a").first.click()
        page.locator("details.sure summary").click()
        page.locator("details.sure button").click()
        page.wait_for_selector(".now .state.cancelled")
        page.goto(f"{base}/web/jobs?name=below")
        page.get_by_role("link", name="Queues").click()
        page.wait_for_url(f"{base}/web/queues")
        page.go_back()
        assert page.get_by_label("Name").input_value() == "below"


@pytest.mark.nightly("unit/test_cli_moments.py has that night")
def test_hours_are_the_readers_also_in_the_night_in_which_clocks_are_set(
    browser: Browser, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone, night = ZoneInfo("Europe/Berlin"), datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    monkeypatch.setattr("ejbd.web.cluster.time", SimpleNamespace(time=night.timestamp))
    with reader(browser, link(server, "ada"), timezone_id="Europe/Berlin", locale="en-GB") as page:
        page.goto(server.servers.url + "/?back=6&ahead=24")
        ticks = page.locator("svg.gantt text[data-at]")
        told = [
            (datetime.fromtimestamp(float(one.get_attribute("data-at") or 0), zone), one.inner_html())
            for one in ticks.all()
        ]
    assert [text[-5:] for _, text in told] == [at.strftime("%H:%M") for at, _ in told]
    assert "05:00" in told[2][1]  # three hours behind 01:00, by the sun
    days = [at.day for at, _ in told]
    named = [at for at in range(1, len(days)) if days[at] != days[at - 1]]
    assert named and all(told[at][0].strftime("%a") in told[at][1] for at in named)


def test_axe_finds_nothing_and_a_small_screen_needs_no_scrolling_to_the_side(
    browser: Browser, server: ApiServer
) -> None:
    job = submit(server, "ada", "heat")
    runs(server, job, "88", ["n3"], 8)
    long = submit(server, "ada", "a-name-without-an-end" * 9)
    submit(server, "ada", "\N{HEBREW LETTER SHIN}" * 20)
    server.run(server.store.write(_others_gained))
    planned = batch_job("90", [], 16, state=BatchState.PENDING, planned_start_s=time.time() + 600)
    server.manager.view = cluster_view(jobs=(batch_job("77", ["n1"], 16), batch_job("88", ["n3"], 8), planned))
    server.run(server.manager.set_queue_window("main", "mon-fri 20:00-08:00", {"elasticity": "on"}, "otto"))
    with reader(browser, link(server, "otto"), viewport={"width": 360, "height": 740}, color_scheme="light") as page:
        for path in (*PAGES, f"/web/jobs/{job}", f"/web/jobs/{long}", "/web/savings?days=3660&by=day,user"):
            page.goto(server.servers.url + path)
            assert found_by_axe(page) == [], path
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 360, f"{path} is {wide} wide"
        page.emulate_media(color_scheme="dark")
        # Colours are of one style sheet, so that a table, a picture and an error (the last one) have them all.
        for path in (*(PAGES if everything() else PAGES[:1]), f"/web/jobs/{job}", "/web/jobs/00000000"):
            page.goto(server.servers.url + path)
            assert found_by_axe(page) == [], f"{path}, dark"
    with reader(browser, server.servers.url + "/") as page:  # not signed in
        assert found_by_axe(page) == []


def _others_gained(session: Session) -> None:
    session.add(OtherReplay(day_s=DAY, as_of_s=DAY, away_s=0.0, unknown=0, left_out=0, ranked=True, limits=""))
    sums = {"gained": 1, "gained_s": 60.0, "lost": 2, "lost_s": 7200.0, "error_s": 60.0, "before_real_s": 0.0}
    session.add(OtherDay(day_s=DAY, user="eve", queue="main", jobs=4, unsure=0, **sums))
