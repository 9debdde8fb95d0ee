"""The page: signing in, rights, forms, headers, and what stands on it."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from ejbd.api.signin import GOOD_S, MOST, Links
from ejbd.core.view import BatchState
from ejbd.errors import EjbError
from ejbd.store.models import Event, OtherDay, OtherReplay, Subjob
from ejbd.store.queries import ORDERS
from ejbd.wire.rights import Scope
from tests.fakes.api_server import ApiServer
from tests.fakes.port import subjob_row
from tests.fakes.web import batch_job, cluster_view, link, mark, page_server, runs, signed_in, submit, waits

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}"
PAGES = ("/", "/web/jobs", "/web/queues", "/web/savings", "/web/health")
ME = pwd.getpwuid(os.geteuid()).pw_name

fetched = partial(httpx.get, timeout=180)  # however busy the machine is


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with page_server(tmp_path_factory.mktemp("web")) as made:
        yield made


@pytest.fixture
def ada(server: ApiServer) -> Iterator[httpx.Client]:
    with signed_in(server, "ada") as client:
        yield client


@pytest.fixture
def otto(server: ApiServer) -> Iterator[httpx.Client]:
    with signed_in(server, "otto") as client:
        yield client


def post(client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    return client.post(path, data={"mark": mark(client), **fields})


@pytest.mark.parametrize("path", PAGES)
def test_without_a_sign_in_a_page_says_how_to_sign_in(server: ApiServer, path: str) -> None:
    answer = fetched(server.servers.url + path)
    assert answer.status_code == 401
    assert "ejb web" in answer.text and answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("path", PAGES)
def test_no_page_has_a_script_or_style_of_its_own_or_an_outside_address(ada: httpx.Client, path: str) -> None:
    answer = ada.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy and "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*src=\"/web/static/)|<style|\sstyle=|\son[a-z]+=|javascript:", answer.text)
    outside = re.findall(r"(?:src|href|action|hx-get)=\"(?!/|#)[^\"]*\"", answer.text)
    assert outside == []
    assert answer.headers["cache-control"] == "no-store"


def test_a_link_is_good_once_and_its_cookie_is_out_of_reach(server: ApiServer) -> None:
    address = link(server, "ada")
    first = fetched(address)
    cookie = first.headers["set-cookie"]
    assert first.status_code == 200 and "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    again = fetched(address)
    assert again.status_code == 401 and "set-cookie" not in again.headers and "used already" in again.text


def test_a_link_runs_out() -> None:
    now = 0.0
    links = Links(lambda: now)
    key = links.new("ada", Scope.SUBMIT)
    now = GOOD_S + 1
    with pytest.raises(EjbError, match="run out"):
        links.take(key)


def test_a_user_who_makes_a_thousand_links_takes_none_from_another() -> None:
    links = Links(lambda: 0.0)
    others = links.new("bob", Scope.READ)
    own = [links.new("ada", Scope.SUBMIT) for _ in range(MOST + 1)]
    assert links.take(others).user == "bob" and links.take(own[-1]).user == "ada"
    with pytest.raises(EjbError, match="used already, or has run out"):
        links.take(own[0])
    assert links.new("eve", Scope.READ)


def test_only_the_unix_socket_makes_links(server: ApiServer, ada: httpx.Client) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(uds=server.socket), base_url="http://ejbd", timeout=180) as peer:
        made = peer.post("/v1/web", json={}).json()
        assert made["url"] == server.servers.url + made["path"]
        token = peer.post("/v1/tokens", json={}).json()["token"]
    assert ME in fetched(made["url"]).text
    refused = httpx.post(server.servers.url + "/v1/web", json={}, headers={"Authorization": f"Bearer {token}"})
    assert refused.status_code == 403
    assert ada.post("/v1/web", json={}).status_code == 403


def test_the_browsers_token_is_listed_and_revoked_as_any_other(server: ApiServer) -> None:
    with signed_in(server, "nina") as client:
        assert [one["label"] for one in client.get("/v1/tokens").json()["tokens"]] == ["web page"]
        assert post(client, "/web/out").status_code == 303
        assert client.get("/web/jobs").status_code == 401


def test_each_user_sees_what_rest_would_show(server: ApiServer, ada: httpx.Client, otto: httpx.Client) -> None:
    job = submit(server, "bob", "bobs-secret")
    assert "bobs-secret" not in ada.get("/web/jobs").text
    assert "bobs-secret" in otto.get("/web/jobs").text
    assert otto.get(f"/web/jobs/{job}").status_code == 200
    for path in (f"/web/jobs/{job}", f"/v1/jobs/{job}"):
        assert ada.get(path).status_code == 404
    assert post(ada, f"/web/jobs/{job}/cancel").status_code == 404
    assert ada.get("/web/jobs", params={"user": "bob"}).status_code == 403


def test_a_cookie_changes_nothing_without_the_pages_own_form(server: ApiServer, ada: httpx.Client) -> None:
    job = submit(server, "ada", "mine")
    path = f"/web/jobs/{job}/cancel"
    assert ada.post(path).status_code == 403
    assert ada.post(path, data={"mark": "0" * 32}).status_code == 403
    assert ada.post(path, json={"mark": mark(ada)}).status_code == 403
    assert ada.post(path, data={"mark": mark(ada)}, headers={"Sec-Fetch-Site": "same-site"}).status_code == 403
    assert ada.post(f"/v1/jobs/{job}/cancel").status_code == 403
    assert ada.delete("/v1/tokens/" + "0" * 16).status_code == 403
    with signed_in(server, "ada") as other:
        assert ada.post(path, data={"mark": mark(other)}).status_code == 403
    assert ada.get(f"/v1/jobs/{job}").json()["state"] == "received"
    assert post(ada, path).headers["location"] == f"/web/jobs/{job}"
    assert ada.get(f"/v1/jobs/{job}").json()["state"] == "cancelled"


def test_a_job_is_held_and_released(server: ApiServer, ada: httpx.Client) -> None:
    job = submit(server, "ada", "held")
    assert post(ada, f"/web/jobs/{job}/hold").status_code == 303
    assert "Release" in ada.get(f"/web/jobs/{job}").text
    assert post(ada, f"/web/jobs/{job}/release").status_code == 303
    assert "Hold" in ada.get(f"/web/jobs/{job}").text


def test_a_jobs_page_has_degrees_what_moves_cost_and_commands_to_copy(
    server: ApiServer, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(server, "ada", "measured")
    runs(server, job, "88", ["n3"], 4)
    explained = server.manager.explain
    move = {"job_id": job, "epoch": 1, "at_s": 100.0, "processors": 4, "nodes": 1, "to_processors": 8, "to_nodes": 1}
    move |= {"bytes": 3 << 20, "checkpoint_s": 1.5, "write_s": 1.0, "wait_s": 2.25, "restart_s": 0.75, "by_node": []}
    speed = {"job_id": job, "launch": 1, "epoch": 1, "at_s": 90.0, "processors": 4, "degree": 2, "total": None}
    cost = {"lambda_s": 4.5, "reserve_s": 2.0, "source": "measured", "why": "measured once", "samples": 1}
    cost |= {"bytes": 3 << 20, "checkpoint_s": 1.5, "write_s": 1.0, "wait_s": 2.25, "restart_s": 0.75}

    async def measured(job_id: str) -> Any:
        speeds = [{**speed, "units": 30.0, "seconds": 60.0}]
        return {**await explained(job_id), "cost": cost, "moves": [move], "speeds": speeds}

    monkeypatch.setattr(server.manager, "explain", measured)
    text = ada.get(f"/web/jobs/{job}").text
    assert "for 8 processes: degree 2" in text
    assert "4.5 s (lambda): measured once" in text and "Memory (MB)" in text and "MiB" not in text
    assert "a factor of 1.25 (Delta)" in text
    assert re.search(r"4 → 8</td><td class=\"n\">3.15</td><td>1.5 s</td><td>2.25 s</td><td>0.75 s", text)
    assert re.search(r'aria-label="Measured speeds".*<td>1 min</td><td class="n">0.5</td>', text, re.S)
    for command in ("status", "explain", "logs -f", "hold", "cancel"):
        assert f'data-copy="ejb {command} {job}"' in text


def test_a_sign_in_for_looking_has_no_forms_that_act(server: ApiServer) -> None:
    job = submit(server, "ada", "looked-at")
    with signed_in(server, "ada", Scope.READ) as client:
        assert f"/web/jobs/{job}/cancel" not in client.get(f"/web/jobs/{job}").text
        assert post(client, f"/web/jobs/{job}/cancel").status_code == 403


def test_the_switch_is_for_operators(server: ApiServer, ada: httpx.Client, otto: httpx.Client) -> None:
    assert "/web/queues/main/set" not in ada.get("/web/queues").text
    assert post(ada, "/web/queues/main/set", elasticity="off").status_code == 403
    assert post(otto, "/web/queues/main/set", elasticity="nonsense").status_code == 422
    assert post(otto, "/web/queues/main/set", elasticity="off").status_code == 303
    assert otto.get("/v1/queues/main").json()["settings"]["elasticity"] == "off"
    assert post(otto, "/web/queues/main/set", elasticity="").status_code == 303
    assert otto.get("/v1/queues/main").json()["overridden"] == []


def test_the_checks_are_for_administrators(server: ApiServer, otto: httpx.Client) -> None:
    assert post(otto, "/web/doctor").status_code == 403
    with signed_in(server, ME) as admin:
        assert "BAD: spool" in post(admin, "/web/doctor").text


def test_a_hostile_name_stays_text(server: ApiServer, ada: httpx.Client) -> None:
    job = submit(server, "ada", HOSTILE)
    runs(server, job, "188", ["n3"], 8)
    server.manager.view = cluster_view(jobs=(batch_job("77", ["n1"], 16), batch_job("188", ["n3"], 8)))
    for path in ("/web/jobs", f"/web/jobs/{job}", "/"):
        text = ada.get(path).text
        assert "&lt;script&gt;alert(1)" in text
        assert "<script>alert" not in text and "<img" not in text and "49" not in re.findall(r">(\d+)<", text)


def test_what_turns_or_hides_text_is_shown_by_its_escape_and_sent_back_as_it_was_typed(
    server: ApiServer, ada: httpx.Client
) -> None:
    turned = "a\u202ecod.exe\u200b"
    job = submit(server, "ada", turned)
    runs(server, job, "89", ["n3"], 8)
    server.manager.view = cluster_view(jobs=(batch_job("89", ["n3"], 8),))
    for path in ("/web/jobs", f"/web/jobs/{job}", "/"):
        text = ada.get(path).text
        assert "a\\u202ecod.exe\\u200b" in text and "\u202e" not in text and "\u200b" not in text
    listed = ada.get("/web/jobs", params={"name": turned}).text
    assert f'name="name" value="{turned}"' in listed and job in listed


def test_filters_stay_in_the_address(server: ApiServer, ada: httpx.Client) -> None:
    submit(server, "ada", "wanted")
    submit(server, "ada", "other")
    text = ada.get("/web/jobs", params={"name": "wanted", "which": "living", "limit": 1}).text
    assert ">wanted<" in text and ">other<" not in text
    assert 'hx-get="/web/jobs?name=wanted&amp;which=living&amp;limit=1"' in text
    submit(server, "ada", "wanted")
    text = ada.get("/web/jobs", params={"name": "wanted", "limit": 1}).text
    older = re.search(r'href="(/web/jobs\?[^"]*before=\d+[^"]*)"', text)
    assert older is not None and ">wanted<" in ada.get(older[1].replace("&amp;", "&")).text


def names_in(text: str) -> list[str]:
    return re.findall(r'<bdi class="short">([^<]*)</bdi>', text)


def test_a_name_is_found_by_a_part_of_it(server: ApiServer, ada: httpx.Client) -> None:
    for name in ("wide-solver", "narrow", "50%_off"):
        submit(server, "ada", name)
    for part, found in {"wide": ["wide-solver"], "SOLV": ["wide-solver"], "%": ["50%_off"], "_": ["50%_off"]}.items():
        assert names_in(ada.get("/web/jobs", params={"name": part}).text) == found
        answer = ada.get("/v1/jobs", params={"name_part": part, "limit": 1}).json()
        assert [job["name"] for job in answer["jobs"]] == found and answer["next"] is None
    assert ada.get("/v1/jobs", params={"name": "wide"}).json()["jobs"] == [], "the name itself is another question"


def test_a_list_is_ordered_by_its_columns_and_says_what_it_comes_to(
    server: ApiServer, ada: httpx.Client, otto: httpx.Client
) -> None:
    def shown(client: httpx.Client, **more: str | int) -> str:
        return client.get("/web/jobs", params={"queue": "ordered", **more}).text

    first = submit(server, "ada", "beta", queue="ordered", state="running", start_s=time.time() - 600)
    submit(server, "ada", "Alpha", queue="ordered")
    submit(server, "bob", "gamma", queue="ordered")
    runs(server, first, "4711", ["n1"], 8)
    text = shown(otto)
    assert names_in(text) == ["gamma", "Alpha", "beta"] and 'href="/web/jobs?queue=ordered&amp;sort=name"' in text
    assert "3 jobs: 1 running, 2 waiting, 0 others; 8 processors in use." in text
    assert "2 jobs: 1 running, 1 waiting, 0 others; 8 processors in use." in shown(ada)
    ordered = shown(otto, sort="name", limit=2)
    assert names_in(ordered) == ["Alpha", "beta"] and 'aria-sort="ascending"' in ordered
    assert 'href="/web/jobs?queue=ordered&amp;sort=-name&amp;limit=2"' in ordered
    more = re.search(r'id="older" href="([^"]*)"', ordered)
    assert more is not None and names_in(otto.get(more[1].replace("&amp;", "&")).text) == ["gamma"]
    assert names_in(shown(otto, sort="-name")) == ["gamma", "beta", "Alpha"]
    for way in ("started", "-started"):
        assert names_in(shown(otto, sort=way))[0] == "beta", "those without a time come last"
    assert names_in(shown(otto, sort="seq;--")) == ["gamma", "Alpha", "beta"]
    for key in ORDERS:
        assert len(names_in(shown(otto, sort=key))) == 3


def test_a_row_says_why_a_job_waits_and_which_number_it_has(server: ApiServer, ada: httpx.Client) -> None:
    values = {"number": "4711", "reason": "Dependency: afterok:1a2b3c4d"}
    submit(server, "ada", "waits-for", **values)
    submit(server, "ada", "waits-held", held=True, **values)
    text = ada.get("/web/jobs", params={"name": "waits-for"}).text
    assert '<td class="minor">4711</td>' in text and "Dependency: afterok:1a2b3c4d" in text
    assert "held by its user" in ada.get("/web/jobs", params={"name": "waits-held"}).text


def test_jobs_of_others_are_processors_without_a_name(server: ApiServer, ada: httpx.Client, otto: httpx.Client) -> None:
    job = submit(server, "bob", "bobs-elastic")
    runs(server, job, "99", ["n4"], 8)
    to_come = batch_job(
        "100", [], 16, state=BatchState.PENDING, planned_start_s=time.time() + 60, planned_nodes=("n5",)
    )
    server.manager.view = cluster_view(jobs=(batch_job("77", ["n1"], 16), batch_job("99", ["n4"], 8), to_come))
    seen = ada.get("/v1/cluster").json()
    assert {bar["kind"] for bar in seen["bars"]} == {"other", "planned", "reservation"}
    assert not any(bar["job"] or bar["user"] for bar in seen["bars"])
    for secret in ("secret-77", "eve", "bobs-elastic", job):
        assert secret not in ada.get("/").text
    kinds = {bar["job"]: (bar["kind"], bar["user"]) for bar in otto.get("/v1/cluster").json()["bars"]}
    assert kinds[job] == ("elastic", "bob") and kinds["77"] == ("other", "eve")


def test_windows_room_ahead_and_plans_without_nodes_are_drawn(
    server: ApiServer, ada: httpx.Client, otto: httpx.Client
) -> None:
    job = submit(server, "ada", "to-come")
    waits(server, job, "101", 16)
    now = time.time()
    planned = batch_job("101", [], 16, state=BatchState.PENDING, start_s=None, planned_start_s=now + 600)
    server.manager.view = cluster_view(jobs=(batch_job("77", ["n1"], 16), planned))
    (room,) = ada.get("/v1/cluster").json()["rooms"]
    assert (room["queue"], room["total"], room["levels"][0]["free"]) == ("main", 160, 144)
    free = [one["free"] for one in room["levels"]]
    # The plan takes 16, the running job gives 16 back, the last node is kept for a while.
    assert 128 in free and free[-1] == 160
    text = ada.get("/").text
    assert text.count('class="bar window"') == 2 and 'class="ahead"' in text and "planned<title>" in text
    assert re.search(rf'<a href="/web/jobs/{job}"[^>]*><path class="bar j0"', text)
    # Another user sees that something is planned, and not what.
    with signed_in(server, "bob") as bob:
        other = bob.get("/").text
    assert 'class="bar planned"' in other and job not in other
    # Under the picture's time ahead nothing of it is there.
    assert "planned<title>" not in ada.get("/?shift=48").text
    many = [
        batch_job(str(200 + at), [], 1, state=BatchState.PENDING, start_s=None, planned_start_s=now + 60 * at)
        for at in range(1, 71)
    ]
    server.manager.view = cluster_view(jobs=tuple(many))
    assert "10 more planned jobs are not drawn" in otto.get("/").text
    server.manager.view = cluster_view()


def test_a_queue_shows_its_calendar(server: ApiServer, ada: httpx.Client, otto: httpx.Client) -> None:
    assert "No calendar" in otto.get("/web/queues").text and "No calendar" not in ada.get("/web/queues").text
    when, settings = "mon-fri 20:00-08:00", {"elasticity": "off"}
    asked = {"when": when, "settings": settings}
    assert otto.put("/v1/queues/main/calendar", json=asked).status_code == 403  # a cookie: by the page's forms alone
    server.run(server.manager.set_queue_window("main", when, settings, "otto"))
    try:
        text = ada.get("/web/queues").text
        assert "mon-fri 20:00-08:00" in text and "elasticity off" in text and "time zone UTC" in text
    finally:
        server.run(server.manager.clear_queue_windows("main", None, "otto"))


def test_a_page_that_looks_anew_is_sent_what_changed_and_once_packed(
    server: ApiServer, ada: httpx.Client, otto: httpx.Client
) -> None:
    job = submit(server, "ada", "to-look-at")
    again = {"HX-Request": "true"}
    for path in ("/", "/web/jobs", f"/web/jobs/{job}", "/web/queues", "/web/savings", "/web/health"):
        part = ada.get(path, headers=again).text
        assert part.strip().startswith('<div id="live"') and "<html" not in part
        assert part.count('id="live"') == 1 and "</main>" not in part
    first = ada.get("/web/jobs", headers=again)
    have = {**again, "X-EJB-Have": first.headers["X-EJB-Is"]}
    assert (ada.get("/web/jobs", headers=have).status_code, otto.get("/web/jobs", headers=have).status_code) == (
        204,
        200,
    )
    assert ada.get("/web/jobs").status_code == 200  # a browser that loads the page has nothing yet
    submit(server, "ada", "one more")
    assert ">one more<" in ada.get("/web/jobs", headers=have).text
    jobs = [batch_job(str(at), [f"n{at + 1}"], 16) for at in range(400)]
    server.manager.view = cluster_view(5000, jobs=tuple(jobs))
    packed = ada.get("/", headers={**again, "Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip" and int(packed.headers["content-length"]) < len(packed.text) / 2
    assert "content-encoding" not in ada.get("/", headers={**again, "Accept-Encoding": "identity"}).headers
    server.manager.view = cluster_view()


def test_many_nodes_are_grouped_and_each_group_leads_to_its_own_picture(server: ApiServer, ada: httpx.Client) -> None:
    jobs = [batch_job(str(at), [f"n{at + 1}", f"n{at + 2}"], 32) for at in range(0, 1000, 2)]
    server.manager.view = cluster_view(5000, jobs=tuple(jobs))
    text = ada.get("/").text
    assert len(text) < 300_000
    groups = re.findall(r'href="(/\?first=\d+&amp;last=\d+)"', text)
    assert len(groups) == 60 and groups[0] == "/?first=0&amp;last=84"
    near = ada.get("/?first=0&last=50").text
    assert near.count('class="lane"') == 50 and 'class="bar other"' in near
    server.manager.view = cluster_view()


@pytest.mark.parametrize("query", ["back=0", "ahead=nan", "first=-1", "shift=1e9", "last=x"])
def test_a_time_or_place_that_cannot_be_is_told_in_a_page(ada: httpx.Client, query: str) -> None:
    answer = ada.get(f"/?{query}")
    assert answer.status_code == 422
    assert "Back to the first page" in answer.text


def test_health_says_faults_first(server: ApiServer, ada: httpx.Client) -> None:
    assert "The daemon does its work" in ada.get("/web/health").text
    server.manager.ok = False
    assert "cannot do its work" in ada.get("/web/health").text
    server.manager.ok = True


def test_savings_are_by_day_and_user_with_what_is_worse_first(
    server: ApiServer, ada: httpx.Client, otto: httpx.Client
) -> None:
    end = 1_700_000_000.0
    common: dict[str, Any] = {"state": "completed", "end_s": end, "start_s": end - 200, "work_s": 100.0}
    for user, promised in (("ada", end + 500), ("bob", end - 160)):
        job = submit(server, user, "saved", **common, rigid_start_s=promised)
        runs(server, job, f"5{len(user)}{promised:.0f}", ["n9"], 4)
        server.run(server.store.write(lambda session, job=job: _ended(session, job, end)))  # type: ignore[misc]
    submit(server, "ada", "failed", state="failed", end_s=end, start_s=end - 5)
    query = {"since_s": end - 10, "until_s": end + 10}
    own = ada.get("/v1/savings", params=query).json()
    assert [(row["key"], row["jobs"], row["uncounted"]) for row in own["rows"]] == [("2023-11-14", 1, 1)]
    assert own["total"]["saved_s"] == 600.0  # promised at +500, 100 s of work
    assert own["total"]["charged_processor_s"] == 4 * 200 and own["total"]["alone_processor_s"] == 8 * 100
    everyone = otto.get("/v1/savings", params={**query, "by": "day,user"}).json()
    assert [row["key"] for row in everyone["rows"]] == ["2023-11-14 ada", "2023-11-14 bob"]
    assert (everyone["total"]["later"], everyone["total"]["later_s"]) == (1, 60.0)
    assert everyone["total"]["saved_s"] == 540.0
    lines = otto.get("/v1/savings", params={**query, "by": "day,user", "format": "csv"}).text.splitlines()
    assert lines[0].startswith("day,user,jobs,saved_s") and lines[2].startswith("2023-11-14,bob,1,-60.0")
    assert ada.get("/v1/savings?since_s=5&until_s=4").status_code == 422
    assert "ended later than J0" in otto.get("/web/savings?days=3660").text


def test_what_other_jobs_gained_is_told_beside_how_far_the_replay_is_off_and_to_whom_it_may_be(
    server: ApiServer, ada: httpx.Client, otto: httpx.Client
) -> None:
    day = 1_699_920_000.0
    assert "No day has been replayed" in ada.get("/web/savings").text
    nothing = ada.get("/v1/savings").json()["others"]
    assert (nothing["as_of_s"], nothing["rows"], nothing["total"]["jobs"]) == (None, [], 0)

    def add(session: Session) -> None:
        known: dict[str, Any] = {"away_s": 3600, "unknown": 2, "left_out": 1, "ranked": False, "limits": "none answers"}
        session.add(OtherReplay(day_s=day, as_of_s=day + 90_000, **known))
        for user, gained_s, lost_s in (("ada", 7200.0, 0.0), ("eve", 0.0, 18_000.0), ("=HYPERLINK", 0.0, 0.0)):
            sums = {"gained_s": gained_s, "lost_s": lost_s, "error_s": 600.0, "before_real_s": gained_s - lost_s}
            counts = {"jobs": 2, "gained": int(gained_s > 0), "lost": int(lost_s > 0), "unsure": int(user == "eve")}
            session.add(OtherDay(day_s=day, user=user, queue="main", **counts, **sums))

    server.run(server.store.write(add))
    query: dict[str, Any] = {"since_s": day + 10, "until_s": day + 20, "by": "day,user"}
    own = ada.get("/v1/savings", params=query).json()["others"]
    assert [row["key"] for row in own["rows"]] == ["2023-11-14 ada"]
    assert (own["total"]["net_s"], own["total"]["error_s"], own["total"]["says_something"]) == (7200.0, 600.0, True)
    everyone = otto.get("/v1/savings", params=query).json()["others"]
    assert (everyone["total"]["net_s"], everyone["total"]["lost"], everyone["away_s"]) == (-10_800.0, 1, 3600)
    assert otto.get("/v1/savings", params={**query, "mine": "true"}).json()["others"]["rows"] == []
    lines = otto.get("/v1/savings", params={**query, "format": "csv", "of": "others"}).text.splitlines()
    assert lines[0].startswith("day,user,jobs,net_s") and lines[2].startswith("2023-11-14,ada,2,7200.0,1")
    assert lines[1].startswith("2023-11-14,'=HYPERLINK,")
    page = otto.get("/web/savings?days=3660").text
    assert "Other jobs started later by 3 h altogether" in page and "2 ends" in page
    assert "1 jobs waited for a limit" in page and "not played: none answers." in page and "On 1 of these days" in page
    assert (own["total"]["unsure"], everyone["total"]["unsure"], own["unranked"]) == (0, 1, 1)
    assert "of=others" in page and "eve" not in ada.get("/web/savings?days=3660&by=user").text


def test_an_open_page_looks_anew_between_polls_and_a_first_load_does_not_wait(
    server: ApiServer, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def between(most_s: float) -> None:
        waits.append(most_s)

    monkeypatch.setattr(server.manager, "between_polls", between)
    assert "X-EJB-Waited" not in ada.get("/web/jobs").headers and waits == []
    assert float(ada.get("/web/jobs", headers={"HX-Request": "true"}).headers["X-EJB-Waited"]) >= 0
    assert waits == [2.0], "a poll that lasts keeps no page for longer"


def test_of_many_moves_batch_jobs_and_queues_the_first_look_has_few(
    server: ApiServer, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(server, "ada", "moves-a-lot", state="running", start_s=time.time() - 9000)

    def add(session: Session) -> None:
        for at in range(1, 101):
            session.add(subjob_row(job, at, batch_id=f"{at}", processors=4, state="completed"))

    server.run(server.store.write(add))
    page = ada.get(f"/web/jobs/{job}").text
    assert "80 earlier ones" in page and "60 earlier batch jobs are not drawn" in page
    (told,) = server.run(server.manager.windows("main"))

    async def many(queue: str | None) -> Any:
        return [{**told, "queue": f"q{at}"} for at in range(30)]

    monkeypatch.setattr(server.manager, "windows", many)
    page = ada.get("/").text
    assert "Usable now, by queue" in page and "In q0 usable now" not in page


@pytest.mark.parametrize("path", PAGES)
def test_below_a_prefix_of_a_proxy_every_address_begins_with_it(
    server: ApiServer, ada: httpx.Client, path: str
) -> None:
    address = re.compile(r'(?:href|src|action|hx-get)="([^"]*)"')

    def addresses_of(text: str) -> list[str]:
        return [re.sub(r"since_s=\d+", "since_s=", one) for one in address.findall(text)]  # seconds pass meanwhile

    plain = addresses_of(ada.get(path).text)
    below = ada.get(path, headers={"X-Forwarded-Prefix": "/site/ejb/"})
    assert int(below.headers["content-length"]) == len(below.content)
    addresses = address.findall(below.text)
    assert len(addresses) > 5 and all(one.startswith(("/site/ejb/", "#")) for one in addresses)
    assert below.text.count("/site/ejb/") >= len(addresses) - below.text.count('="#')
    for odd in ("//evil.example", "/a b", "/../x", "https://evil.example", '/"onload="'):
        told = ada.get(path, headers={"X-Forwarded-Prefix": odd}).text
        assert addresses_of(told) == plain and "evil" not in told


def test_below_a_prefix_the_cookie_and_the_ways_back_are_below_it(server: ApiServer) -> None:
    prefix = {"X-Forwarded-Prefix": "/ejb"}
    with httpx.Client(base_url=server.servers.url, timeout=180) as client:
        entered = client.get(link(server, "ada"), headers=prefix)
        assert "Path=/ejb/;" in entered.headers["set-cookie"]
        assert 'href="/ejb/"' in entered.text or "url=/ejb/" in entered.text
        assert 'href="/ejb/"' in client.get("/web/jobs", headers=prefix).text  # how to sign in: the cookie is not sent
        client.cookies = httpx.Cookies(dict(client.cookies.items()))
        left = client.post("/web/out", data={"mark": mark(client)}, headers=prefix)
        assert (left.status_code, left.headers["location"]) == (303, "/ejb/")


def test_the_newest_events_of_a_job_with_many_are_shown(server: ApiServer, ada: httpx.Client) -> None:
    job = submit(server, "ada", "long-lived")

    def add(session: Session) -> None:
        for at in range(300):
            session.add(Event(job_id=job, kind="job.waiting", at_s=1e9 + at, data={"number": at}))

    server.run(server.store.write(add))
    text = ada.get(f"/web/jobs/{job}").text
    assert "200 of 300" in text and "299" in text and "&#34;number&#34;: 99}" not in text


def _ended(session: Session, job: str, end_s: float) -> None:
    rows = update(Subjob).where(Subjob.job_id == job)
    session.execute(rows.values(state="ended", start_s=end_s - 200, end_s=end_s))
