"""`ejb` under the names of Slurm's commands: what they take and print."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from ejbd.cli import links
from ejbd.cli.links import sacct
from ejbd.cli.links.qsub import with_line
from ejbd.cli.links.states import word_of
from ejbd.cli.main import LINKS
from ejbd.cli.show.columns import describe_state
from ejbd.client.client import Client
from ejbd.manager.jobspec.pbslines import read_pbs_lines
from ejbd.store.models import Job
from ejbd.store.states import JobState
from tests.fakes.api_server import ApiServer
from tests.fakes.daemon import until
from tests.fakes.me import ME

Said = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path_factory.mktemp("links"))
    yield running
    running.close()


@pytest.fixture
def said(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Said:
    """Call a link; what it says. The site's own commands print their words."""
    site = tmp_path / "site"
    site.mkdir()
    for name in LINKS:
        (site / name).write_text(f'#!/bin/sh\necho "site: {name} $*"\n')
        (site / name).chmod(0o755)
    monkeypatch.setenv("EJB_SOCKET", server.socket)
    monkeypatch.setenv("PATH", f"{site}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)

    def call(name: str, *words: str, code: int = 0) -> str:
        found = links.run(name, words)
        out, err = capfd.readouterr()
        assert found == code, err
        return out if not code else out + err

    return call


def submitted(said: Said, *words: str) -> str:
    found = said("sbatch", "--elastic", "on", "-n", "2", "-t", "9", *words, "--wrap", "a")
    (number,) = re.findall(r"^Submitted batch job ([0-9]+)$", found)
    return str(number)


def change(server: ApiServer, number: str, **columns: Any) -> None:
    def write(session: Session) -> None:
        session.query(Job).filter(Job.number == number).update(columns)  # type: ignore[arg-type]

    server.run(server.store.write(write))


@pytest.mark.slow
def test_sbatch_prints_what_slurms_prints(said: Said, server: ApiServer) -> None:
    number = submitted(said)
    assert said("sbatch", "--parsable", "-n", "2", "-t", "9", "--wrap", "a").strip().isdigit()
    job = server.store.read_sync(lambda s: s.query(Job).filter(Job.number == number).one())
    assert job.spec["output"].endswith("/slurm-%j.out")
    until(lambda: job.id in server.manager.numbers_read, "it may begin now", 30)
    assert said("sbatch", "--version") == "site: sbatch --version\n"
    Path("site/sbatch").write_text("#!/bin/sh\necho 'sbatch: error: Unable to open file' >&2\nexit 1\n")
    assert said("sbatch", "-n", "2", "no-such-script", code=1) == "sbatch: error: Unable to open file\n"


def test_a_line_that_slurm_would_refuse_is_refused_in_its_words_and_with_its_code(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools look for sbatch's sentences. What it would take is handed on to it, with EJB's reason."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"#!/bin/sh\n#SBATCH -p nope\n")))
    (tmp_path / "own.sh").write_text("#!/bin/sh\n")
    (tmp_path / "site" / "sbatch").write_text("""#!/bin/sh
case "$*" in
*test-only*wrap*) exit 0 ;;
*wrap*) exit 3 ;;
*-N*) echo 'sbatch: error: "many" is not a valid node count' >&2; exit 255 ;;
esac
read -r _; read -r line
echo "sbatch: error: $1 ${line##* }" >&2
echo "allocation failure: Invalid partition name specified" >&2
exit 1
""")
    said_of_it = "sbatch: error: Batch job submission failed: Invalid partition name specified\n"
    assert said("sbatch", "-n", "2", "-t", "9", code=1) == f"sbatch: error: --test-only nope\n{said_of_it}"
    assert said("sbatch", "-N", "many", "own.sh", code=255) == 'sbatch: error: "many" is not a valid node count\n'
    handed_on = said("sbatch", "-p", "nope", "-n", "2", "--wrap", "a", code=3)
    assert "the job is Slurm's alone: there is no queue 'nope'" in handed_on
    assert "'bogus' is none of" in said("sbatch", "--engine", "bogus", "-n", "2", "own.sh", code=1), "not Slurm's word"


def test_sbatch_takes_the_name_of_its_only_cluster(said: Said, tmp_path: Path) -> None:
    (tmp_path / "site" / "scontrol").write_text('#!/bin/sh\necho "ClusterName             = lab"\n')
    job = ("-n", "2", "-t", "9", "--wrap", "a")
    assert re.fullmatch("Submitted batch job [0-9]+ on cluster lab\n", said("sbatch", "-M", "lab", *job))
    assert re.fullmatch("[0-9]+;lab\n", said("sbatch", "--parsable", "--clusters=lab,other", *job))
    assert said("sbatch", "-Mother", *job) == "site: sbatch -Mother -n 2 -t 9 --wrap a\n", "no job of EJB's"
    (tmp_path / "own.sh").write_text("#!/bin/sh\n")
    assert re.fullmatch("[0-9]+\n", said("sbatch", "--parsable", "-n2", "-t9", "own.sh", "-M", "other"))


def test_when_a_job_would_start_is_asked_of_the_batch_system(said: Said) -> None:
    assert said("sbatch", "--test-only", "-n", "2", "--wrap", "a") == "site: sbatch --test-only -n 2 --wrap a\n"
    assert "site: " not in said("sbatch", "--test-only", "--elastic", "on", "-n", "2", "-t", "9", "--wrap", "a")


def test_sbatch_waits_and_ends_as_the_job_does(said: Said, server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, words, begins in ((3, ("--wait",), "Submitted batch job "), (0, ("--parsable", "-W"), "")):

        def ends(client: Any, id: str, output: Any, code: int = code) -> Iterator[Any]:
            state = JobState.FAILED if code else JobState.COMPLETED
            server.run(server.manager.end(id, state, exit_code=code))
            yield {}

        monkeypatch.setattr("ejbd.cli.show.following.events", ends)
        found = said("sbatch", *words, "-n", "1", "-t", "1", "--wrap", "a", code=code)
        assert re.match(f"{begins}[0-9]+\n", found)


def test_an_array_without_an_output_of_its_own_writes_as_sbatchs_does(said: Said, server: ApiServer) -> None:
    number = submitted(said, "-a", "1-3")
    job = server.store.read_sync(lambda s: s.query(Job).filter(Job.number == number).one())
    assert job.spec["output"].endswith("/slurm-%A_%a.out")


def test_squeue_lists_jobs_as_slurms_does(said: Said, server: ApiServer) -> None:
    number = submitted(said, "-J", "wave")
    heading, *rows = said("squeue", "--me", "-n", "wave").splitlines()
    assert heading == "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    assert rows == [f"{number:>18}      main     wave {ME.user[:8]:>8} PD       0:00      1 (None)"]
    date, heading, row = said("squeue", "-l", "-n", "wave").splitlines()
    assert re.fullmatch(r"\w{3} \w{3} [ 0-9][0-9] [0-9:]{8} [0-9]{4}", date)
    assert heading.split()[4:7] == ["STATE", "TIME", "TIME_LIMI"] and row.split()[4:7] == ["PENDING", "0:00", "9:00"]
    assert said("squeue", "--start", "-h", "-n", "wave").split()[5] == "N/A"
    (job,) = json.loads(said("squeue", "--json", "-n", "wave"))["jobs"]
    assert (job["job_id"], job["job_state"], job["time_limit"]) == (int(number), "PENDING", 9)
    assert said("squeue", "--noheader", "--format=%i %t", "--job", number) == f"{number} PD\n"
    assert said("squeue", "-h", "-o", "%i|%V|%S", "-j", number).count("T") == 1
    change(server, number, state="completed", exit_code=0)
    assert said("squeue", "-h", "-j", number) == ""
    assert said("squeue", "-h", "-t", "all", "-o", "%T", "-j", number) == "COMPLETED\n"
    assert "Invalid job state specified: XX" in said("squeue", "-t", "XX", code=1)
    assert "squeue: error: option --no-such" in said("squeue", "--no-such", code=1)


@pytest.mark.parametrize(("elastic", "word"), [(True, "SUSPENDED"), (False, "PENDING")])
def test_a_passed_through_job_that_is_back_in_the_queue_is_pending(elastic: bool, word: str) -> None:
    """Tools take a job that is neither pending nor running for ended."""
    job: Any = {"state": "waiting", "start_s": 1.0, "elastic": elastic}
    assert word_of(job) == word


def test_what_is_cancelled_is_that_at_once(said: Said, server: ApiServer) -> None:
    runs, waits = submitted(said, "-J", "runs"), submitted(said, "-J", "waits")
    ending = {"state": "ending", "final_state": "cancelled", "reason": f"cancelled by {ME.user}"}
    change(server, runs, start_s=1e9, **ending)
    change(server, waits, **ending)
    assert said("squeue", "-h", "-o", "%t", "-j", runs) == "CG\n"
    assert said("squeue", "-h", "-j", waits) == "", "there is nothing of it to complete"
    for number in (runs, waits):
        assert said("sacct", "-X", "-P", "-n", "-o", "State", "-j", number) == f"CANCELLED by {os.getuid()}\n"
    (job,) = Client(None, server.socket).get("/v1/jobs", number=[runs])["jobs"]
    assert describe_state(job) == "cancelled (ending)"


def test_sacct_answers_without_accounts(said: Said, server: ApiServer) -> None:
    number = submitted(said, "-J", "run-42")
    change(server, number, state="failed", exit_code=7, start_s=1e9, end_s=1e9 + 65, submit_s=1e9 - 5)
    query = ("-X", "--parsable2", "--noheader", "--format=JobIdRaw,State")
    assert said("sacct", *query, "-j", number) == f"{number}|FAILED\n"
    assert said("sacct", *query, "--starttime", "2001-01-01T00:00", "--endtime", "now", "--name", "run-42",
                "--clusters", "all") == f"{number}|FAILED\n"  # fmt: skip
    assert said("sacct", *query, "--name", "run-42") == ""  # it was not today
    heading, row = said("sacct", "-X", "-o", "JobID,State,NodeList", "-P", "-j", number, "-j", number).splitlines()
    assert (heading, row) == ("JobID|State|NodeList", f"{number}|FAILED|Unknown")  # what nobody has seen is not told
    heading, line, row = said("sacct", "-X", "-j", number).splitlines()
    assert heading.split() == ["JobID", "JobName", "Partition", "Account", "AllocCPUS", "State", "ExitCode"]
    assert set(line) == {"-", " "} and row.split() == [number, "run-42", "main", "2", "FAILED", "7:0"]
    assert said("sacct", "-n", "-X", "--format=jobid,state%20,elapsed", "--job", number).split() == [
        number, "FAILED", "00:01:05",
    ]  # fmt: skip
    assert said("sacct", "-n", "-P", "-s", "COMPLETED", "-o", "JobID", "-j", number) == ""
    assert 'Invalid field requested: "Wishes"' in said("sacct", "-o", "Wishes", code=1)


def test_columns_are_those_of_the_sites_slurm(said: Said, tmp_path: Path) -> None:
    """Where its version has other headings and widths than the table, further names, or none of a name."""
    for name, text in {
        "squeue": "printf 'ACCOUNT\\037SLUID\\037NEWS\\037\\037\\036\\n'",
        "sacct": "case $* in *parsable2*) exit 1 ;; esac; echo 'JobID Account'; echo '----- ------------'",
    }.items():
        (tmp_path / "site" / name).write_text(f"#!/bin/sh\n{text}\n")
    nobody = ("-u", "nobody", "-O", "account:6|,sluid:6|,news:5|,exclusive:9|")
    assert said("squeue", *nobody) == "ACCOUN|SLUID |NEWS ||\n"
    number = submitted(said)
    assert said("sacct", "-X", "-o", "JobID,Account", "-j", number).splitlines()[1] == "----- ------------ "


def test_times_of_sacct_lie_in_the_past() -> None:
    now_s = sacct._moment("now")
    assert now_s is not None
    for text, ago_s in (("now-2days", 2 * 86400), ("now-90", 90), ("now-1hour", 3600)):
        assert abs((sacct._moment(text) or 0) - (now_s - ago_s)) < 60
    assert all(now_s - 86400 - 60 <= (sacct._moment(word) or 0) <= now_s + 60 for word in ("today", "00:00", "12:30"))


def test_scontrol_shows_a_job(said: Said, server: ApiServer) -> None:
    number = submitted(said, "-J", "wave")
    shown = said("scontrol", "show", "job", number)
    assert f"JobId={number} JobName=wave" in shown and "JobState=PENDING" in shown and "TimeLimit=00:09:00" in shown
    assert said("scontrol", "-o", "show", f"jobid={number}").count("\n") == 2
    said("scontrol", "hold", number)
    assert "Reason=JobHeldUser" in said("scontrol", "show", "job", number)
    said("scontrol", "release", number)
    assert said("scontrol", "show", "hostnames", "n[1-2]") == "site: scontrol show hostnames n[1-2]\n"
    assert said("scontrol", "show", "job", "777") == "site: scontrol show job 777\n"


@pytest.mark.parametrize("command", ["requeue", "requeuehold"])
def test_scontrol_becomes_the_sites_own_where_that_ends_its_caller(
    said: Said, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm ends a job that puts itself back before a link could say that it was taken."""
    became: list[tuple[str, list[str]]] = []
    monkeypatch.setattr("os.execv", lambda program, words: became.append((Path(program).name, words[1:])))
    said("scontrol", command, "77_3")
    assert became == [("scontrol", [command, "77_3"])]


def test_scancel_takes_jobs_by_number_name_user_and_state(said: Said, server: ApiServer) -> None:
    one, two, three = (submitted(said, "-J", name) for name in ("a", "b", "b"))
    said("scancel", one)
    assert said("squeue", "-h", "-t", "CA", "-o", "%t", "-j", one) == "CA\n"
    said("scancel", one)  # as Slurm's: it is over already, and that is well
    said("scancel", "-u", ME.user, "-n", "b", "-t", "RUNNING")
    said("scancel", "--name=a", two)
    assert said("squeue", "-h", "-o", "%t", "-j", f"{two},{three}") == "PD\nPD\n"
    said("scancel", "-u", ME.user, "-n", "b")
    assert said("squeue", "-h", "-j", f"{two},{three}") == ""
    id = said("sbatch", "--json", "--elastic", "on", "-n", "2", "-t", "9", "--wrap", "a")
    said("scancel", json.loads(id)["id"])  # as `ejb submit` prints it

    def state() -> str:
        told = said("squeue", "--json", "-t", "all", "-j", json.loads(id)["number"])
        return str(json.loads(told)["jobs"][0]["job_state"])

    until(lambda: state() == "CANCELLED", "it is not cancelled", 60)
    assert "No job identification provided" in said("scancel", code=1)


def test_scancel_signals_what_runs(said: Said) -> None:
    number = submitted(said)
    told = said("scancel", "--signal=USR1", number, code=1)
    assert f"Kill job error on job id {number}" in told and "that a signal could be sent to" in told
    assert said("squeue", "-h", "-o", "%t", "-j", number) == "PD\n"


def test_a_number_that_is_not_ejbs_is_the_sites_affair(said: Said) -> None:
    number = submitted(said)
    assert said("squeue", "-h", "-o", "%i", "-j", f"777,{number}").splitlines() == [
        number, "site: squeue -h -o %i --noheader --jobs 777",
    ]  # fmt: skip
    assert said("scancel", "777", number) == "site: scancel 777\n"
    assert said("sacct", "-j", "777") == "site: sacct -j 777\n"


def test_no_slurm_is_told_to_change_a_job_of_the_embedded_cluster(
    said: Said, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Slurm that is there besides has other jobs under its numbers."""
    number = submitted(said)
    change(server, number, elastic=False)
    assert said("scontrol", "suspend", number) == f"site: scontrol suspend {number}\n"
    health = server.manager.health()
    monkeypatch.setattr(server.manager, "health", lambda: {**health, "batch": "local"})
    for words in (("requeue", number), ("update", f"JobId={number}", "TimeLimit=9"), ("suspend", number)):
        assert f"the embedded cluster cannot {words[0]} a job" in said("scontrol", *words, code=1)
    assert said("scontrol", "update", "JobId=777", "TimeLimit=9").startswith("site: scontrol update JobId=777")
    assert said("scontrol", "show", "job", number).startswith(f"JobId={number} ")


def test_a_number_is_never_taken_for_the_beginning_of_an_id(said: Said, server: ApiServer) -> None:
    number = submitted(said)
    change(server, number, id="140abcde")
    assert said("scancel", "140") == "site: scancel 140\n"
    assert said("squeue", "-h", "-o", "%t", "-j", number) == "PD\n"


@pytest.mark.parametrize("number", ["4294967436", "4294967280", "99999999999"])
def test_a_number_that_slurm_would_cut_to_32_bits_reaches_none_of_its_commands(said: Said, number: str) -> None:
    """A real `scancel 4294967436` cancels job 140."""
    mine = submitted(said)
    for words in (
        ("scancel", mine),
        ("squeue", "-j"),
        ("sacct", "-j"),
        ("scontrol", "hold"),
        ("scontrol", "show", "job"),
    ):
        with_it = (*words[:-1], f"{words[-1]} {number}") if words[0] == "scancel" else (*words, f"{number}_3")
        told = said(*with_it, code=1)
        assert "Invalid job id specified" in told and "site:" not in told, words
    assert said("squeue", "-h", "-o", "%t", "-j", mine) == "PD\n"


def test_squeue_and_sacct_take_lists_of_users_queues_and_names(said: Said) -> None:
    one, two, three = (submitted(said, "-J", name) for name in ("red", "green", "blue"))
    assert set(said("squeue", "-h", "-o", "%i", "-n", "red,green,none").split()) == {one, two}
    assert set(said("squeue", "-h", "-o", "%i", "-u", f"nobody,{ME.user}", "--name=blue").split()) == {three}
    assert set(said("sacct", "-X", "-n", "-o", "JobID", "--name", "green,blue").split()) == {two, three}
    assert said("squeue", "-h", "-u", "nobody,daemon") == ""


def test_qsub_takes_a_script_for_pbs_with_its_options(said: Said, server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "job.pbs").write_text("#!/bin/bash\n#PBS -N old\n#PBS -l walltime=10:00\n\nmpirun ./heat\n")
    told = said("qsub", "-N", "two words", "-l", "nodes=2:ppn=4", "-v", 'A="q",B=x\\y', "job.pbs", "in.dat").strip()
    assert told.isdigit()
    job = server.store.read_sync(lambda s: s.query(Job).filter(Job.number == told).one())
    assert (job.name, job.processes, job.walltime_s, job.spec["argv"]) == ("two words", 8, 600.0, ["in.dat"])
    assert job.spec["output"].endswith("/%x.o%j") and job.spec["script"].endswith("\nmpirun ./heat\n")
    assert "no-such" in said("qsub", "no-such.pbs", code=1)
    assert "qsub: error: " in said("qsub", "-I", "job.pbs", code=1)
    assert said("qsub", "--version") == "site: qsub --version\n"


@pytest.mark.parametrize("value", ["a b", 'say "so"', "back\\slash", "#1", "it's"])
def test_an_option_of_qsub_comes_through_its_line_as_it_was_typed(value: str) -> None:
    script = with_line("#!/bin/sh\n#PBS -N old\n\ntrue\n", [("A", value), ("h", "")])
    (account,) = [one.value for one in read_pbs_lines(script).given if one.name == "account"]
    assert account == value
    assert script.endswith("\ntrue\n") and script.index("-N old") < script.index("-A ")
