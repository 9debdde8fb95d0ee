"""What OpenPBS 23.06.06, Torque 6.1.3.h5 and Maui 3.3.1 write, and what is read from it. Recorded, times in UTC."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.batch.pbs import attributes, maui, openpbs, refusals, rows, states, torque
from ejbd.batch.pbs.openpbs import Unreadable
from ejbd.batch.pbs.rows import JobRow
from ejbd.batch.pbs.states import Dialect
from ejbd.batch.process import CommandResult
from ejbd.core.view import BatchState
from ejbd.errors import SubmitOutcomeUnknown
from tests.fakes.pbs.recorded import Said, said, sessions


def at(clock: str) -> float:
    return datetime.fromisoformat(f"2026-11-21T{clock}+00:00").timestamp()


NOW = at("06:39:44")
OPENPBS_JOBS = said("openpbs-qstat-f-json", "qstat -f -F json").stdout
OPENPBS_ODD = said("openpbs-json-oddvalues", "qstat -f -F json").stdout
OPENPBS_NODES = said("openpbs-pbsnodes-json", "pbsnodes -a -F json").stdout
TORQUE_JOBS = said("torque-qstat-x.xml", "qstat -x").stdout
TORQUE_ODD = said("torque-x-oddvalues", "qstat -x").stdout
TORQUE_NODES = said("torque-pbsnodes-x", "pbsnodes -x").stdout


def views(found: tuple[list[JobRow], int]) -> dict[str, JobRow]:
    jobs, unparsed = found
    assert unparsed == 0
    return {states.number_of(row.view.id): row for row in jobs}


def test_openpbs_jobs() -> None:
    jobs = views(openpbs.jobs(OPENPBS_JOBS, "pbstest", NOW))
    first, wide, toolong = jobs["4"].view, jobs["5"].view, jobs["6"].view
    assert (first.id, first.name, first.user, first.queue) == ("4.opbs-head", "first", "pbstest", "workq")
    assert (first.state, first.processors, first.nodes) == (BatchState.RUNNING, 8, ("opbs-n3", "opbs-n1"))
    assert (first.walltime_s, first.start_s, first.end_s) == (1200, at("06:38:18"), at("06:58:18"))
    assert first.planned_start_s is None  # what was estimated before it started is of no more use
    assert jobs["4"].shares == {"opbs-n3": 4, "opbs-n1": 4} and not first.foreign
    assert (wide.state, wide.processors, wide.start_s, wide.end_s) == (BatchState.PENDING, 12, None, None)
    assert (wide.planned_start_s, len(wide.planned_nodes)) == (at("06:58:18"), 3) and not wide.blocked
    assert toolong.planned_start_s == at("07:08:18") and toolong.planned_nodes == ("opbs-n3",)
    assert all(row.view.foreign for row in views(openpbs.jobs(OPENPBS_JOBS, "somebody", NOW)).values())


def test_what_a_job_waits_for_and_not_what_waits_for_it() -> None:
    def of(depend: str) -> tuple[str, ...]:
        row = {"job_state": "H", "Job_Owner": "ada@head", "ctime": "Mon Nov 23 10:00:00 2026", "depend": depend}
        found, unparsed = openpbs.jobs(json.dumps({"Jobs": {"7.head": row}}), "ada", 0.0)
        assert not unparsed
        return found[0].waits_for

    assert of("afterok:12.head@head:13.head@head,afterany:14.head@head") == ("12.head", "13.head", "14.head")
    assert of("beforeok:9.head@head,afternotok:12.head") == ("12.head",)
    assert of("on:2") == of("") == ()


def test_an_estimate_that_has_been_due_for_long_is_none() -> None:
    overdue = views(openpbs.jobs(OPENPBS_JOBS, "pbstest", at("06:58:40")))["5"].view
    assert overdue.planned_start_s == at("06:58:40")
    assert views(openpbs.jobs(OPENPBS_JOBS, "pbstest", at("06:59:40")))["5"].view.planned_start_s is None


def test_openpbs_numbers_that_were_words_and_odd_values() -> None:
    odd = views(openpbs.jobs(OPENPBS_ODD, "pbstest", NOW))
    assert odd["57"].view.state is BatchState.HELD and odd["57"].view.walltime_s == 60
    assert openpbs.document(OPENPBS_ODD)["Jobs"]["57.opbs-head"]["Variable_List"]["NUM"] == "7"
    names = said("openpbs-json-numeric-names", "qstat -f -F json").stdout
    assert {row.view.name for row in views(openpbs.jobs(names, "pbstest", NOW)).values()} == {"007", "1e5"}


def test_openpbs_arrays_with_their_elements() -> None:
    text = said("openpbs-states", "qstat -tf -F json").stdout
    jobs = views(openpbs.jobs(text, "pbstest", NOW))
    assert jobs["22[]"].view.state is BatchState.RUNNING and not jobs["22[]"].shares
    assert [jobs[f"22[{i}]"].view.state for i in range(4)] == [BatchState.RUNNING] * 4
    assert jobs["22[2]"].view.base_id == "22[].opbs-head"


def test_openpbs_ends() -> None:
    text = said("openpbs-states", "qstat -xf").stdout
    ends = []
    for block in re.split(r"^Job Id: ", text, flags=re.MULTILINE)[1:]:
        found = dict(re.findall(r"^    (\w+) = (\S+)$", block, re.MULTILINE))
        if found["job_state"] == "F":
            status = found.get("Exit_status")
            end = states.end_of(Dialect.OPENPBS, int(status) if status else None, found["substate"])
            ends.append((found.get("Job_Name"), status, end[0], end[1]))
    assert ("fits", "-29", BatchState.TIMEOUT, None) in ends
    assert ("first", "271", BatchState.CANCELLED, 143) in ends
    assert ("held", "0", BatchState.COMPLETED, 0) in ends
    assert any(status == "3" and state is BatchState.FAILED and code == 3 for _, status, state, code in ends)
    assert any(status is None and state is BatchState.CANCELLED for _, status, state, _ in ends)


def test_torque_ends() -> None:
    end = states.end_of
    assert end(Dialect.TORQUE, -11)[0] is BatchState.TIMEOUT and end(Dialect.OPENPBS, -11)[0] is not BatchState.TIMEOUT
    assert end(Dialect.TORQUE, 271)[:2] == (BatchState.CANCELLED, 143)
    assert end(Dialect.TORQUE, 265)[:2] == (BatchState.FAILED, 137)
    assert end(Dialect.TORQUE, None)[0] is BatchState.CANCELLED
    assert end(Dialect.OPENPBS, 271, "93")[:2] == (BatchState.FAILED, 143)


def test_a_job_of_torque_deleted_before_its_script_began_has_not_completed() -> None:
    """As 6.1.3.h5 tells of it: an exit status of 0, and no session."""
    text = (
        "<Data><Job><Job_Id>0.head</Job_Id><Job_Name>early</Job_Name><Job_Owner>root@head</Job_Owner>"
        "<resources_used><walltime>00:00:00</walltime></resources_used><job_state>C</job_state><queue>batch</queue>"
        "<exec_host>n4/0-3+n3/0-3</exec_host><session_id>0</session_id><substate>59</substate>"
        "<exit_status>0</exit_status><start_time>1795454778</start_time><comp_time>1795454778</comp_time>"
        "<total_runtime>0.375267</total_runtime></Job></Data>"
    )
    early = views(torque.jobs(text, "root", NOW))["0"].view
    assert (early.state, early.exit_code) == (BatchState.CANCELLED, None)
    began = views(torque.jobs(text.replace("<session_id>0<", "<session_id>134<"), "root", NOW))["0"].view
    assert (began.state, began.exit_code) == (BatchState.COMPLETED, 0)


def test_torque_jobs() -> None:
    jobs = views(torque.jobs(TORQUE_JOBS, "pbstest", NOW))
    first, wide = jobs["0"].view, jobs["1"].view
    assert (first.id, first.state, first.nodes) == ("0.trq-head", BatchState.RUNNING, ("trq-n2", "trq-n1"))
    assert (first.processors, first.start_s, first.end_s) == (8, 1795243380, 1795243380 + 1200)
    assert (wide.state, wide.processors, wide.walltime_s, wide.nodes) == (BatchState.PENDING, 12, 600, ())
    assert torque.jobs("", "pbstest", NOW) == ([], 0)


def test_torque_odd_values() -> None:
    odd = views(torque.jobs(TORQUE_ODD, "pbstest", NOW))
    assert odd["50"].view.name == "a<b" and odd["50"].view.state is BatchState.HELD
    assert odd["21"].view.state is BatchState.CANCELLED and odd["21"].view.end_s == 1795244228


def test_nodes_of_both() -> None:
    found, unparsed = openpbs.nodes(OPENPBS_NODES)
    assert unparsed == 0
    assert [(n.name, n.processors, n.free, n.usable) for n in found] == [
        ("opbs-n3", 4, 0, True),
        ("opbs-n1", 4, 0, True),
        ("opbs-n2", 4, 2, True),
    ]
    found, unparsed = torque.nodes(TORQUE_NODES)
    assert unparsed == 0 and [(n.name, n.processors, n.free) for n in found] == [(f"trq-n{i}", 4, 0) for i in (1, 2, 3)]
    text = said("openpbs-vnodes", "pbsnodes -a -F json")
    assert next((n.name, n.processors, n.free) for n in openpbs.nodes(text.stdout)[0]) == ("opbs-n3", 8, 7)


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("24684084kb", 24105), ("8gb", 8192), ("8GB", 8192), ("2097152", 2), ("1048576b", 1), ("1mw", 8), ("0kb", 0)],
)
def test_sizes(text: str, megabytes: int) -> None:
    assert states.megabytes(text) == megabytes


@pytest.mark.parametrize("text", ["", "kb", "-1kb", "1.5gb", "8xb", "8 gb", "lots"])
def test_what_no_size_is(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        states.megabytes(text)


def test_memory_of_openpbs_nodes() -> None:
    """What jobs have asked for is taken; what is not told, or cannot be read, costs the node nothing."""
    found, _ = openpbs.nodes(OPENPBS_NODES)
    assert {(n.memory_mb, n.free_memory_mb) for n in found} == {(24105, 24105)}
    some = {"state": "free", "resources_available": {"ncpus": 4, "mem": "8gb"}}
    nodes = {
        "a": some | {"resources_assigned": {"ncpus": 1, "mem": "3145728kb"}},
        "b": some | {"state": "offline"},
        "c": {"state": "free", "resources_available": {"ncpus": 4, "mem": "lots"}},
    }
    found, unparsed = openpbs.nodes(json.dumps({"nodes": nodes}))
    told = [(n.name, n.free, n.memory_mb, n.free_memory_mb) for n in found]
    assert told == [("a", 3, 8192, 5120), ("b", 0, 8192, 0), ("c", 4, 0, 0)] and unparsed == 0


@pytest.mark.parametrize(
    ("state", "usable"),
    [(state, True) for state in ("free", "job-busy", "job-exclusive", "resv-exclusive")]
    + [(s, False) for s in ("offline", "down", "down,offline", "free,offline", "state-unknown,down", "Stale", "")],
)
def test_states_of_nodes(state: str, usable: bool) -> None:
    assert rows.node_usable(state) is usable


def test_exclusive_and_torn_nodes() -> None:
    one = {"state": "free", "sharing": "force_exclhost", "resources_available": {"ncpus": 4}}
    full = {"state": "job-exclusive", "resources_available": {"ncpus": 4}, "resources_assigned": {"ncpus": 1}}
    text = json.dumps({"nodes": {"a": one, "b": full, "c": {"state": "free", "resources_available": {"ncpus": "x"}}}})
    found, unparsed = openpbs.nodes(text)
    assert [(n.name, n.free, n.exclusive) for n in found] == [("a", 4, True), ("b", 0, False)] and unparsed == 1
    text = (
        "<Data><Node><name>a</name><state>free</state><np>4</np><jobs>0/1.h, 1/1.h,3/2[7].h</jobs></Node>"
        "<Node><name>b</name><state>free</state><np>4</np><jobs>0,2-3/1.h</jobs></Node>"
        "<Node><name>c</name><state>free</state><np>many</np></Node></Data>"
    )
    found, unparsed = torque.nodes(text)
    assert [(n.name, n.free) for n in found] == [("a", 1), ("b", 1)] and unparsed == 1


def test_placements() -> None:
    assert states.exec_hosts("n3/0*4+n1/0*4") == {"n3": 4, "n1": 4}
    assert states.exec_hosts("n2/0-3+n1/0-3") == {"n2": 4, "n1": 4}
    assert states.exec_hosts("n/7+n/6") == {"n": 2}
    assert states.exec_vnodes("(n3:ncpus=3+n3[0]:ncpus=1)+(n1:ncpus=2:mem=3kb)") == {"n3": 3, "n3[0]": 1, "n1": 2}
    assert rows.node_groups("2:ppn=4+n7:ppn=2:gpu") == [(2, 4, ()), (1, 2, ("n7", "gpu"))]
    for torn in ("n3", "n3/", "/0", "n3/x", "n3/3-1", "n3/0*", "(n3:ncpus=4"):
        with pytest.raises(ValueError):
            states.exec_vnodes(torn) if torn.startswith("(") else states.exec_hosts(torn)


def test_what_a_job_gets_that_names_no_walltime() -> None:
    """As 23.06.06 has it: the queue's default, the server's, and then the most that queue or server allow."""
    text = "".join(
        f"Queue: {name}\n    queue_type = {kind}\n    enabled = True\n    started = True\n{more}\n"
        for name, kind, more in (
            ("own", "Execution", "    resources_default.walltime = 00:10:00\n    resources_max.walltime = 02:00:00\n"),
            ("limited", "Execution", "    resources_max.walltime = 02:00:00\n"),
            ("free", "Execution", ""),
            ("to_own", "Route", "    route_destinations = own\n"),
            ("to_both", "Route", "    route_destinations = own,limited\n"),
        )
    )

    def told(by_limit: bool = True, **settings: str) -> dict[str, float | None]:
        site = attributes.Site(attributes.queues(text), "", {key.replace("_w", ".w"): v for key, v in settings.items()})
        return {queue.name: site.default_walltime_s(queue, by_limit=by_limit) for queue in site.queues}

    assert told() == {"own": 600.0, "limited": 7200.0, "free": None, "to_own": 600.0, "to_both": None}
    assert told(by_limit=False)["limited"] is None, "Torque gives no job the most"
    server = told(resources_default_walltime="01:00:00")
    assert (server["own"], server["limited"], server["free"]) == (600.0, 3600.0, 3600.0)
    assert told(resources_max_walltime="05:00:00")["free"] == 18000.0


def test_queues_and_server() -> None:
    (queue,) = attributes.queues(said("openpbs-qstat-Q", "qstat -Qf").stdout)
    assert (queue.name, queue.up, queue.max_walltime_s) == ("workq", True, None)
    (queue,) = attributes.queues(said("torque-qstat-Q", "qstat -Qf").stdout)
    assert (queue.name, queue.up) == ("batch", True)
    found = attributes.server(said("torque-qstat-B", "qstat -Bf").stdout)
    assert found["default_queue"] == "batch" and found["keep_completed"] == "300"
    assert found["state_count"].endswith("Complete:0")  # put together from two lines
    assert attributes.server(said("openpbs-qstat-B", "qstat -Bf").stdout)["job_history_enable"] == "True"


def test_reservations_of_openpbs() -> None:
    (one,), unparsed = attributes.reservations(said("openpbs-jobctl", "pbs_rstat -F").stdout)
    assert unparsed == 0 and one.nodes == {"opbs-n3": 4} and one.owner == "pbstest"
    assert (one.start_s, one.end_s) == (at("23:30:00"), at("23:40:00"))
    assert attributes.reservations("") == ([], 0)


def test_which_dialect() -> None:
    assert refusals.version(said("openpbs-version", "qstat --version").stdout) == ("openpbs", "23.06.06")
    assert refusals.version(said("torque-version", "qstat --version").stdout) == ("torque", "6.1.3.h5")
    assert refusals.version("slurm-wlm 22.05.8") is None


@pytest.mark.parametrize(
    ("stderr", "wraps"),
    [
        ("Unknown option: version\nUsage:\n    qstat [-f] [-a|-i|-r]\n", True),
        ("perl: error: fetch_config: DNS SRV lookup failed\nperl: fatal: Could not establish a source\n", True),
        ("qstat: invalid option -- 'v'\n", False),
        ("qstat: cannot connect to server head (errno=15010)\n", False),
    ],
)
def test_slurms_wrappers_are_told_from_what_is_merely_away(stderr: str, wraps: bool) -> None:
    """As seen of Debian's slurm-wlm-torque 22.05.8: with its Slurm there, and without."""
    assert refusals.wraps_slurm(stderr) is wraps


# ---- Maui and Moab


def test_every_recorded_showbf_is_read_or_is_no_answer() -> None:
    read = 0
    for one in sessions("maui-showbf") + sessions("maui-showbf-windows"):
        if not one.command.startswith("showbf") or one.code != 0 or "-S" in one.command or "-V" in one.command:
            continue
        if "version" in one.command:
            continue
        found = maui.showbf(one.stdout)
        read += bool(found.rooms) or "no procs available" in one.stdout
    assert read > 20


def test_rows_of_showbf_nest() -> None:
    found = maui.showbf(said("maui-showbf-windows", "showbf").stdout)
    day = 86400
    assert [(r.processors, r.duration_s) for r in found.rooms] == [
        (12, 1807),
        (8, day + 7207),
        (4, maui.UNBOUNDED),
    ]
    nodes = next(o for o in sessions("maui-showbf-windows") if "nodes available" in o.stdout)
    assert maui.showbf(nodes.stdout, node_processors=4).rooms == (maui.Room(12, maui.UNBOUNDED),)


def test_the_age_of_a_header() -> None:
    found = maui.showbf(said("maui-showbf-windows", "showbf").stdout)
    assert maui.age_s(found.at, at("06:52:12")) == 2
    assert maui.age_s(found.at, at("06:59:12")) == 422
    new_year = datetime(2027, 1, 1, 0, 0, 2, tzinfo=UTC).timestamp()
    assert maui.age_s("Thu Dec 31 23:59:59", new_year) == 3


@pytest.mark.parametrize(
    ("table", "rooms"),
    [
        # by the headings, in any order; words behind; heading and value exchanged; a part without the whole
        (
            "Partition Tasks Nodes StartOffset Duration StartDate\n--------- ----- ----- ----\n"
            "ALL 3 3 00:00:00 INFINITY 11:32:38_08/19\nReqID=0\nA 1 1 00:00:00 INFINITY 11:32:38_08/19 TID=4 ReqID=0\n",
            [(3, maui.UNBOUNDED)],
        ),
        (
            "Partition Procs Nodes Duration StartOffset StartDate\n---\nALL 9 3 10:00 00:00:00 x\nALL 4 1 20:00 00:00 x"
            "\nALL 99 9 10:00:00 10:00 x\n",
            [(9, 600), (4, 1200)],
        ),
        (
            "Partition Tasks Nodes StartOffset Duration StartDate\n---- --\nrhea 4744 8 INFINITY 00:00:00 HH:MM:SS\n",
            [(4744, maui.UNBOUNDED)],
        ),
    ],
)
def test_the_table_of_moab(table: str, rooms: list[tuple[int, float]]) -> None:
    assert [(room.processors, room.duration_s) for room in maui.showbf(table).rooms] == rooms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  2 nodes (32 core) free (64 cores total) for 9:01:49 to     Inf\n",
        "Partition Tasks Nodes Surprise\nALL 1 1 1\n",
        "Partition Tasks Nodes Duration StartOffset\nALL 1 1\n",
        "backfill window (user: 'u' group: 'g' partition: ALL) Sat Nov 21 06:52:10\n\n 12 procs at your service\n",
        "backfill window (user: 'u' group: 'g' partition: ALL) Sat Nov 21 06:52:10\n\n 12 procs available for now\n",
    ],
)
def test_what_is_not_known_opens_no_window(text: str) -> None:
    with pytest.raises(Unreadable):
        maui.showbf(text)


def test_showres_by_node() -> None:
    holds, when, unparsed = maui.showres(said("maui-showres", "showres -n").stdout)
    assert unparsed == 0 and when.endswith("06:51:20") and len(holds) == 5
    planned = maui.starts(holds, 1000.0)
    assert planned == {"21": (1000.0 + 18 * 60 + 41, ("trq-n1", "trq-n2", "trq-n3"))}
    standing = (
        "reservations on Sat Nov 21 06:51:20\n n1  User SYSTEM.0  N/A  4  00:30:00 00:10:00 Sat Nov 21 07:21:20\n"
    )
    (hold,), _, unparsed = maui.showres(standing + "torn\n1 nodes reserved\n")
    assert hold.standing and hold.start_in_s == 1800 and unparsed == 1


# ---- refusals


def result(one: Said) -> CommandResult:
    return CommandResult(one.command.split()[0], one.code, one.stdout, one.stderr, 0.1)


def test_every_recorded_failure_says_why_and_whether_it_passes() -> None:
    seen = 0
    for name in ("openpbs-errors", "openpbs-errors-qsub", "openpbs-serverdown", "torque-errors", "torque-serverdown"):
        for one in sessions(name):
            if one.code == 0 or one.command.split()[0] in ("showbf", "showq", "env"):
                continue
            error = refusals.refusal(result(one), "do it")
            away = "serverdown" in name or "@nosuch" in one.command or "PBS_" in one.command
            assert error.transient is away, (one.command, error.message)
            assert len(error.message) > 20 and "usage" not in error.message
            seen += 1
    assert seen > 40


def test_recorded_refusals() -> None:
    def message(name: str, command: str) -> str:
        return refusals.submit_refusal(result(said(name, command))).message

    assert "there is no such queue" in message("openpbs-errors-qsub", "qsub -q nosuchqueue j.sh")
    assert "there is no such queue" in message("torque-errors", "qsub -q nosuchqueue tj.sh")
    assert "many processors" in message("torque-errors", "qsub -l nodes=99:ppn=4 tj.sh")
    assert "option" in message("torque-errors", "qsub -N bad name tj.sh")
    for name in ("openpbs-serverdown", "torque-serverdown"):
        error = refusals.submit_refusal(result(said(name, "qsub ok.sh")))
        assert error.transient and not isinstance(error, SubmitOutcomeUnknown)
    lost = CommandResult("qsub", 1, "", "qsub: End of File\n", 1)
    assert isinstance(refusals.submit_refusal(lost), SubmitOutcomeUnknown)
    assert isinstance(refusals.submit_refusal(CommandResult("qsub", -9, "", "", 1)), SubmitOutcomeUnknown)


def test_a_cancellation_of_what_is_gone_is_no_error() -> None:
    for name, command in (
        ("openpbs-errors", "qdel 9999"),
        ("openpbs-errors", "qdel 0"),
        ("torque-errors", "qdel 9999"),
        ("torque-errors", "qhold 9999"),
    ):
        assert refusals.cancel_refusal(result(said(name, command))) is None
    assert refusals.cancel_refusal(result(said("openpbs-serverdown", "qdel 5"))) is not None


# ---- what anybody may have written


def test_names_that_other_users_give_cost_at_most_nothing() -> None:
    hostile = [
        "</Job_Name><job_state>F</job_state>",
        '"},"99.h":{"job_state":"R',
        "a\x01b\ud800",
        "\\u12",
        "<!ENTITY x>",
    ]
    for number, name in enumerate(hostile):
        text = TORQUE_JOBS.replace("<Job_Name>wide<", f"<Job_Name>{escape(name)}<")
        found = views(torque.jobs(text, "pbstest", NOW))
        assert len(found) == 4 and found["0"].view.name == "first", number
        text = OPENPBS_JOBS.replace('"wide"', json.dumps(name))
        found = views(openpbs.jobs(text, "pbstest", NOW))
        assert len(found) == 4 and found["5"].view.name == name


def test_escapes_and_keys_that_json_does_not_know() -> None:
    text = OPENPBS_JOBS.replace('"wide"', '"w\\qi\\u1de"').replace(
        '"job_state":	"R"', '"job_state":	"R",\n"job_state":	"F"', 1
    )
    found = views(openpbs.jobs(text, "pbstest", NOW))
    assert found["5"].view.name == "w\\qi\\u1de" and found["4"].view.state is BatchState.RUNNING


def test_the_tag_is_found_whatever_the_job_is_called() -> None:
    tag = "ejb-1f00.2"
    for name, seen in ((rows.job_name(tag), tag), ("his-own", "his-own")):
        text = OPENPBS_JOBS.replace('"wide"', f'"{name}"').replace(
            "/opt/pbslab/home-pbstest/wide.e5", rows.tag_path(tag)
        )
        assert rows.tag_path(tag) in text
        view = views(openpbs.jobs(text, "pbstest", NOW))["5"].view
        assert (view.tag, view.name, view.mark) == (tag, seen, tag)
        assert views(openpbs.jobs(text, "other", NOW))["5"].view.mark == ""
    xml = TORQUE_JOBS.replace("/opt/pbslab/home-pbstest/wide.e1", rows.tag_path(tag))
    assert views(torque.jobs(xml, "pbstest", NOW))["1"].view.mark == tag


def test_no_variable_makes_a_job_one_of_ours() -> None:
    """`qsub -V` hands all of them on."""
    text = OPENPBS_JOBS.replace('"PBS_O_SYSTEM":	"Linux"', '"PBS_O_SYSTEM":	"Linux", "EJB_TAG": "ejb-1f00.2"')
    assert "EJB_TAG" in text and views(openpbs.jobs(text, "pbstest", NOW))["5"].view.mark == "wide"


@given(st.text(max_size=40))
def test_any_tag_becomes_a_name_and_a_word(tag: str) -> None:
    name, word = rows.job_name(tag), rows.tag_path(tag.encode(errors="replace").decode())
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", name)
    assert re.fullmatch(r"/dev/null/[A-Za-z0-9._~%-]*", word)
    assert rows.tag_of(f"head:{word}").encode(errors="replace") == tag.encode(errors="replace")


@pytest.mark.parametrize("spoiled", ["00:", "00:00:00:30:07"])
def test_a_row_of_showbf_with_a_length_that_is_none_is_unreadable(spoiled: str) -> None:
    text = said("maui-showbf-windows", "showbf -v").stdout
    changed = text.replace("available for      00:30:07", f"available for      {spoiled}")
    assert changed != text
    with pytest.raises(Unreadable, match="is not known here"):
        maui.showbf(changed)


SEEDS: list[tuple[str, Callable[[str], object]]] = [
    (OPENPBS_JOBS, lambda text: openpbs.jobs(text, "pbstest", NOW)),
    (OPENPBS_NODES, openpbs.nodes),
    (TORQUE_JOBS, lambda text: torque.jobs(text, "pbstest", NOW)),
    (TORQUE_NODES, torque.nodes),
    (said("openpbs-jobctl", "pbs_rstat -F").stdout, attributes.reservations),
    (said("torque-qstat-Q", "qstat -Qf").stdout, attributes.queues),
    (said("openpbs-qstat-B", "qstat -Bf").stdout, attributes.server),
    (said("maui-showbf-windows", "showbf -v").stdout, maui.showbf),
    (said("maui-showres", "showres -n").stdout, maui.showres),
]


@pytest.mark.parametrize("number", range(len(SEEDS)))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_spoiled_answer_is_read_or_refused_and_never_more(number: int, data: st.DataObject) -> None:
    """Cut off, with pieces exchanged, doubled or replaced: a value or Unreadable comes of it, whatever was done."""
    text, parse = SEEDS[number]
    for _ in range(data.draw(st.integers(1, 3))):
        i, j = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
        piece = data.draw(
            st.one_of(
                st.just(""),
                st.just(text[i:j] * 2),
                st.text(max_size=8),
                st.sampled_from(
                    ["\0", '"', "\\", "<", "&#0;", "]]>", "\n", "1e999", "-1", "9" * 30, "INFINITY", "[]", "{}"]
                ),
            )
        )
        text = text[:i] + piece + text[j if data.draw(st.booleans()) else i :]
    try:
        parse(text)
    except Unreadable:
        pass


@given(st.text(max_size=200), st.integers(-300, 400))
def test_any_complaint_becomes_one_sentence(stderr: str, code: int) -> None:
    error = refusals.submit_refusal(CommandResult("qsub", code, "", stderr, 0.0))
    assert error.message and "\n" not in error.message.replace(stderr, "")
    refusals.version(stderr)
    refusals.cancel_refusal(CommandResult("qdel", code, "", stderr, 0.0))


def test_rows_of_several_jobs_say_what_their_json_would() -> None:
    """`qstat -f -F json A B` has the first alone."""
    text = (
        "Job Id: 3.head|Job_Name=a\\|b\\\\|Job_Owner=ada@head|job_state=F|queue=batch|substate=91"
        "|Resource_List.ncpus=12|Resource_List.walltime=00:10:00|Error_Path=head:/dev/null/ejb-1.1"
        "|Exit_status=0\n\nJob Id: 4.head|Job_Name=x|Job_Owner=ada@head|job_state=Q|queue=batch|Resource_List.ncpus=2\n"
    )
    rows, unparsed = openpbs.jobs(text, "ada", 0.0)
    assert unparsed == 0
    first, second = (row.view for row in rows)
    assert (first.id, first.name, first.state, first.processors) == ("3.head", "a|b\\", BatchState.CANCELLED, 12)
    assert (first.mark, second.id, second.state) == ("ejb-1.1", "4.head", BatchState.PENDING)
