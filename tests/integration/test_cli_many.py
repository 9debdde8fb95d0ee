"""`ejb` about several jobs: selectors, waiting, the list, completion; and every option of sbatch at `ejb submit`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ejbd.cli.submission.sbatchwords import Known, behind_the_script, translated
from ejbd.cli.submission.words import KNOWN as SUBMIT
from ejbd.errors import EXIT_CODE, Code, EjbError
from ejbd.options.sbatch import OPTIONS, Argument
from ejbd.store.states import JobState
from tests.fakes.api_server import ApiServer
from tests.fakes.daemon import until
from tests.fakes.shell import LONG_S, Shell

pytestmark = pytest.mark.xdist_group("cli")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    state, work = tmp_path / "state", tmp_path / "work"
    state.mkdir()
    work.mkdir()
    server = ApiServer(state)
    yield Shell(server, work)
    server.close()


def jobs(shell: Shell, count: int) -> list[str]:
    return [shell.submit("-n", "2", "-t", "5", "-J", f"job-{i}", "--", "x") for i in range(count)]


def test_status_shows_the_living_first_and_tells_of_more(shell: Shell) -> None:
    old, ended, new = jobs(shell, 3)
    shell.end(ended, JobState.COMPLETED, 0)
    shell.end(new, JobState.FAILED, 1)
    assert shell.ejb("status", "--quiet")[0].split() == [old, new, ended]
    out, err = shell.ejb("status", "--quiet", "-l", "2")
    assert out.split() == [old, new]
    assert "these are the first 2; --all" in shell.ejb("status", "-l", "2")[1]
    out, err = shell.ejb("status", "--all", "-l", "2")
    assert len(out.splitlines()) == 4 and err == ""
    assert shell.ejb("status", "--quiet", "--name", "job-1")[0].split() == [ended]
    user = shell.row(old).user
    assert shell.ejb("status", "--quiet", "--user", user, "-s", "ended")[0].split() == [new, ended]
    assert shell.ejb("status", "--user", "nobody-here")[1] == "ejb: no such job\n"


def test_status_takes_states_as_words_and_columns_by_name(shell: Shell) -> None:
    first, second = jobs(shell, 2)
    shell.end(second, JobState.CANCELLED, None)
    assert shell.ejb("status", "--quiet", "-s", "PENDING")[0].split() == [first]
    assert shell.ejb("status", "--quiet", "-s", "living,CA")[0].split() == [first, second]
    out = shell.ejb("status", "-o", "name,state,exit", "--no-heading")[0]
    assert [line.split() for line in out.splitlines()] == [["job-0", "received", "-"], ["job-1", "cancelled", "-"]]
    assert shell.ejb("status", "-o", "id,engine")[0].splitlines()[0].split() == ["ID", "ENGINE"]
    for words, sentence in (
        (("-s", "asleep"), "--state: 'asleep' is not the state of a job (there are: received, waiting, running,"),
        (("-o", "colour"), "--columns: there is no column 'colour' (there are: id, name,"),
        (("-o", ","), "--columns: no column is given"),
    ):
        assert sentence in shell.ejb("status", *words, code=2)[1]


def test_several_jobs_and_ranges_for_every_verb(shell: Shell) -> None:
    a, b, c, d = jobs(shell, 4)
    assert shell.ejb("status", "--quiet", a, c)[0].split() == [a, c]
    assert shell.ejb("status", "--quiet", f"{b}..last")[0].split() == [b, c, d]
    assert shell.ejb("status", "--quiet", "last-1")[0] == "received\n"
    assert json.loads(shell.ejb("status", "last-1", "--json")[0])["id"] == c
    found = json.loads(shell.ejb("explain", "--json", a, b)[0])["jobs"]
    assert [one["id"] for one in found] == [a, b] and found[0]["decisions"]
    assert f"==> {a} <==" in shell.ejb("events", a, b)[0]
    assert shell.ejb("timeline", f"{a}..{b}")[0].count("job-") == 2
    assert shell.ejb("logs", a, b)[0].splitlines() == [f"==> {a} <==", f"==> {b} <=="]
    assert "this is for one job, and 2 are named" in shell.ejb("logs", "-f", a, b, code=2)[1]
    assert "this is for one job" in shell.ejb("timeline", "--svg", "x.svg", a, b, code=2)[1]
    assert shell.ejb("hold", f"{c}..{a}")[0].split()[1::3] == [a, b, c]
    shell.end(b, JobState.COMPLETED, 0)
    # A range is about those that live; a job that is named is named.
    assert shell.ejb("cancel", f"{a}..{c}")[0].split()[1::3] == [a, c]
    assert "ejb: job" in shell.ejb("cancel", b, code=4)[1]
    assert shell.ejb("cancel", "all")[0].split()[1::3] == [d]
    assert shell.ejb("cancel", "all") == ("", "ejb: all: no job that lives\n")
    assert "there is no job 'zz'" in shell.ejb("cancel", "zz..last", code=3)[1]
    assert "names no range of jobs (e.g. last-3..last, or all)" in shell.ejb("cancel", "..", code=2)[1]
    assert "has 4 jobs" in shell.ejb("status", "last-4", code=3)[1]


def test_wait_ends_with_the_jobs_and_as_the_first_bad_one(shell: Shell) -> None:
    a, b, c = jobs(shell, 3)
    shell.end(a, JobState.COMPLETED, 0)
    shell.end(b, JobState.FAILED, 7)
    with shell.start("wait", f"{a}..{c}") as process:
        assert f"job {a} completed" in process.stdout.readline()
        assert f"job {b} failed with exit code 7" in process.stdout.readline()
        shell.end(c, JobState.TIMEOUT, None)
        out, err = process.communicate(timeout=LONG_S)
    assert process.returncode == 7 and f"job {c} timeout" in out, err
    assert shell.ejb("wait", "--quiet", a)[0] == "completed\n"
    assert [one["id"] for one in json.loads(shell.ejb("wait", "--json", c, a, code=124)[0])["jobs"]] == [c, a]


def test_wait_no_longer_than_it_may(shell: Shell) -> None:
    (job,) = jobs(shell, 1)
    err = shell.ejb("wait", "--timeout", "0.5", job, code=EXIT_CODE[Code.CONFLICT])[1]
    assert err == f"ejb: job {job} has not ended after 0.5 s [conflict]\n"


def test_an_option_behind_the_script_is_told(shell: Shell) -> None:
    script = shell.script()
    _, err = shell.ejb("submit", script, "--dry-run")
    assert err.startswith(f"ejb: --dry-run stands behind {script} and goes to it")
    assert "stands behind" not in shell.ejb("submit", script, "--", "--dry-run")[1]
    assert "stands behind" not in shell.ejb("submit", "-n", "2", "-t", "5", "--", "app", "--dry-run")[1]


def test_any_option_of_sbatch_is_known_on_the_command_line(shell: Shell) -> None:
    id = shell.submit("--mem=4G", "-x", "n7,n8", "--gres", "gpu:1", "--exclusive", "--elastic", "off", shell.script())
    assert shell.row(id).spec["rigid_options"] == ["--mem=4G", "--exclude=n7,n8", "--gres=gpu:1", "--exclusive"]
    _, err = shell.ejb("submit", "--signal=R:USR1@60", "--elastic=on", shell.script(), code=EXIT_CODE[Code.UNSUPPORTED])
    assert "an elastic job cannot keep R: of --signal" in err
    assert "--mem: a value must follow" in shell.ejb("submit", "--mem", code=2)[1]
    assert "--gpu is the beginning of several options" in shell.ejb("submit", "--gpu=1", shell.script(), code=2)[1]
    assert "--nonsense" in shell.ejb("submit", "--nonsense", shell.script(), code=2)[1]


KNOWN: Known = {}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_of_sbatch_in_each_spelling(option: object) -> None:
    one = next(o for o in OPTIONS if o is option)
    value = ["v"] if one.argument is Argument.REQUIRED else []
    expected = f"--option={one.spelling}" + "".join(f"={v}" for v in value)
    assert translated([one.spelling, *value, "job.sh", "--mem"], KNOWN) == [expected, "job.sh", "--mem"]
    if one.argument is not Argument.NONE:
        assert translated([f"{one.spelling}=a b"], KNOWN) == [f"--option={one.spelling}=a b"]
    if one.short:
        assert translated([f"-{one.short}", *value], KNOWN) == [expected]
        if value:
            assert translated([f"-{one.short}v"], KNOWN) == [expected]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-sO", "-n4", "x"], ["--option=--oversubscribe", "--option=--overcommit", "--option=--ntasks=4", "x"]),
        (["--contig", "x"], ["--option=--contiguous", "x"]),
        (["--", "--mem=4G"], ["--", "--mem=4G"]),
        (["-", "--mem=4G"], ["-", "--mem=4G"]),
        (["--unknown", "-Z"], ["--unknown", "-Z"]),
        ([], []),
    ],
)
def test_words_as_getopt_reads_them(words: list[str], expected: list[str]) -> None:
    assert translated(words, KNOWN) == expected


def test_options_that_the_command_has_keep_their_values() -> None:
    words = ["-n", "4", "-O", "--mem=1", "--part", "q", "-HW", "--time=5", "--mem", "2G", "s.sh", "--mem", "3"]
    assert translated(words, SUBMIT) == [
        *["-n", "4", "-O", "--mem=1", "--partition", "q", "-H", "-W", "--time=5", "--option=--mem=2G"],
        *["s.sh", "--mem", "3"],
    ]
    assert behind_the_script(["a", "--dry-run"], SUBMIT) == "--dry-run"
    assert behind_the_script(["--mine", "-n", "3"], SUBMIT) is None
    with pytest.raises(EjbError):
        translated(["--ntasks-per"], SUBMIT)


def completed(shell: Shell, line: str, socket: str | None = None) -> tuple[set[str], str]:
    """What bash would offer at the end of a line, and what was said on stderr."""
    at = str(line.count(" "))
    words = {"_EJB_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": at}
    if socket is not None:
        words["EJB_SOCKET"] = socket
    out, err = shell.ejb(code=0, **words)
    return set(out.split()), err


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ejb status --state r", {"received", "running"}),
        ("ejb submit --engine d", {"dmtcp"}),
        ("ejb submit --partition ", {"main"}),
        ("ejb queue set m", {"main"}),
        ("ejb cancel la", {"last"}),
    ],
)
def test_completion_offers_what_could_stand_there(shell: Shell, line: str, offered: set[str]) -> None:
    found: set[str] = set()
    for _ in range(5):  # on a busy machine the daemon may not answer within the time that completion gives it
        if found := completed(shell, line)[0]:
            break
    assert found == offered


def test_completion_of_jobs_and_without_a_daemon(shell: Shell) -> None:
    (job,) = jobs(shell, 1)
    # Nobody waits long for a completion: a daemon on a busy machine may have been too slow for it.
    until(lambda: completed(shell, "ejb cancel ") == ({"last", job}, ""), "the job is not offered", 120)
    assert completed(shell, "ejb cancel ", socket="/nowhere") == (set(), "")


def test_status_and_window_say_when_what_they_show_may_be_old(shell: Shell) -> None:
    (id,) = jobs(shell, 1)
    assert shell.ejb("status")[1] == shell.ejb("window")[1] == ""
    shell.server.manager.ok = False
    for words in (["status"], ["status", id], ["window"]):
        out, err = shell.ejb(*words)
        assert out and err.startswith("ejb: the daemon cannot do its work") and "what is shown was so when" in err
    assert shell.ejb("status", "--json")[1] == "", "a program asks /v1/health"


def test_watch_goes_on_until_the_output_is_collected_and_tells_how_the_job_ended(shell: Shell) -> None:
    (id,) = jobs(shell, 1)
    shell.end(id, JobState.ENDING)
    assert json.loads(shell.ejb("status", id, "--json")[0])["end_s"] is None
    with shell.start("watch", id) as process:
        for line in process.stdout:  # the job's events
            if "job.ending" in line:
                break
        shell.end(id, JobState.COMPLETED, 0)
        last = process.stdout.read().splitlines()[-1]
    assert last.startswith(f"job {id} completed with exit code 0 after")
