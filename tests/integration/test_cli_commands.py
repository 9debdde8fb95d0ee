"""`ejb` as a process of its own, against the real server over a manager that runs nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ejbd.errors import EXIT_CODE, Code
from ejbd.manager.facts.queues import ToldPause
from ejbd.store.states import JobState
from tests.fakes.api_server import ApiServer
from tests.fakes.port import subjob_row
from tests.fakes.shell import LONG_S, SCRIPT, Shell

pytestmark = pytest.mark.xdist_group("cli")  # one process of pytest imports `ejb` for both files


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path_factory.mktemp("cli"))
    yield running
    running.close()


@pytest.fixture
def shell(server: ApiServer, tmp_path: Path) -> Shell:
    server.manager.elasticity = "on"
    return Shell(server, tmp_path)


def test_a_script_as_it_is(shell: Shell) -> None:
    out, err = shell.ejb("submit", shell.script(), "--its-own", "-n", "3", MARK="here")
    assert out.startswith("Submitted job ") and err == "ejb: elastic: elasticity is on in queue main\n"
    job = shell.row(out.split()[-1])
    assert (job.name, job.processes, job.walltime_s, job.kind) == ("job.sh", 16, 600.0, "script")
    assert job.spec["argv"] == ["--its-own", "-n", "3"] and job.spec["restartable"] is True
    assert job.spec["cwd"] == str(shell.folder) and job.spec["env"]["MARK"] == "here"
    of_ejb = {name: value for name, value in job.spec["env"].items() if name.startswith("EJB_")}
    assert of_ejb == {"EJB_SOCKET": str(shell.server.socket)}  # a job may submit jobs


def test_a_command_with_every_override(shell: Shell) -> None:
    words = ["-n", "8", "-N", "2", "--ntasks-per-node", "4", "-t", "1:00:00", "-J", "a|b $(c)", "-A", "acc"]
    words += ["-q", "qos", "-p", "main", "-O", "--nice=5"]
    words += ["-o", "%j.o", "-e", "%j.e", "-D", "sub", "--export", "NONE", "--elastic", "on", "--engine", "application"]
    words += ["--omax", "4", "--lambda", "3.5", "--delta", "1.5", "-H"]
    job = shell.row(shell.submit(*words, "--", "./app", "-n", "9", "--", "x y"))
    spec = job.spec
    assert spec["argv"] == ["./app", "-n", "9", "--", "x y"] and job.kind == "command" and job.held
    assert (job.name, job.processes, job.walltime_s, job.engine) == ("a|b $(c)", 8, 3600.0, "application")
    assert (spec["nodes"], spec["processors_per_node"], spec["queue"]) == (2, 4, "main")
    assert spec["options"] == ["--nice=5", "--account=acc", "--qos=qos"]
    assert (spec["output"], spec["error"]) == (f"{shell.folder}/sub/%j.o", f"{shell.folder}/sub/%j.e")
    assert (spec["omax"], spec["lambda_s"], spec["delta"], spec["elastic"]) == (4, 3.5, 1.5, True)
    assert set(spec["env"]) <= {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "EJB_SOCKET"}


def test_a_script_from_standard_input(shell: Shell) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "ejbd.cli.main", "submit", "--quiet", "-", "arg"],
        env=shell.environment,
        cwd=shell.folder,
        input=SCRIPT.encode(),
        capture_output=True,
        timeout=LONG_S,
        check=True,
    )
    assert shell.row(process.stdout.decode().strip()).spec["argv"] == ["arg"]


def test_json_and_quiet(shell: Shell) -> None:
    found = json.loads(shell.ejb("submit", "--json", shell.script())[0])
    assert found["created"] is True
    assert json.loads(shell.ejb("status", "--json", found["id"])[0])["id"] == found["id"]
    assert shell.ejb("status", "--quiet", found["id"])[0] == "received\n"
    error = json.loads(shell.ejb("status", "--json", "zzzz", code=3)[1])["error"]
    assert (error["code"], error["exit_code"]) == ("not-found", 3)


def test_a_dry_run_keeps_nothing(shell: Shell) -> None:
    before = shell.ejb("status", "--quiet")[0]
    out, _ = shell.ejb("submit", "--dry-run", shell.script())
    assert "elastic: elasticity is on in queue main" in out and "+ case 2: 4 processors are free" in out
    assert "- wait: J0 starts later" in out
    assert shell.ejb("status", "--quiet")[0] == before


def test_the_same_key_gives_the_same_job(shell: Shell) -> None:
    words = ["--idempotency-key", "k-1", shell.script()]
    assert shell.submit(*words) == shell.submit(*words)
    assert "Idempotency-Key" in shell.ejb("submit", *words, "more", code=2)[1]


@pytest.mark.parametrize(
    ("text", "words", "code", "sentence"),
    [
        (None, ["missing.sh"], Code.INVALID, "missing.sh: cannot read the script: No such file"),
        (None, ["."], Code.INVALID, ".: a directory is not a script"),
        (b"", ["s"], Code.INVALID, "the script is empty"),
        (b"echo\n", ["s"], Code.INVALID, "does not look like a batch script"),
        (b"#!/bin/sh\r\necho\r\n", ["s"], Code.INVALID, "DOS line ends"),
        (b"\x7fELF\0", ["s"], Code.INVALID, "binary file (run a program by: ejb submit -n 16 -t 10 -- s)"),
        (b"#!/bin/sh\n# \xe4\n", ["s"], Code.INVALID, "line 2 is not UTF-8"),
        (b"#!/bin/sh\n#SBATCH --nix\n", ["s"], Code.INVALID, "line 2: sbatch has no option '--nix'"),
        (b"#!/bin/sh\n#SBATCH -n 4\n", ["--elastic=on", "s"], Code.UNSUPPORTED, "needs a walltime"),
        (
            b"#!/bin/sh\n#SBATCH -n 4 -t 5 --signal=R:USR1@60\n",
            ["--elastic=on", "s"],
            Code.UNSUPPORTED,
            "line 2: an elastic job cannot keep R: of --signal",
        ),
        (
            b"#!/bin/sh\n#SBATCH -n 4 -t 5\n#EJB elastic=on\nsrun x &\n",
            ["s"],
            Code.UNSUPPORTED,
            "line 4: a launch in the background",
        ),
        (None, ["-n", "0", "-t", "5", "--", "x"], Code.INVALID, "--ntasks: the number of processes must be at least 1"),
        (None, ["-n", "-1", "-t", "5", "--", "x"], Code.INVALID, "must be a whole number above 0, not '-1'"),
        (None, ["-n", "9" * 30, "-t", "5", "--", "x"], Code.INVALID, "cannot be more than 1000000"),
        (None, ["-n", "2000", "-t", "5", "--", "x"], Code.INVALID, "more than queue main has"),
        (None, ["-n", "four", "-t", "5", "--", "x"], Code.INVALID, "valid integer"),
        (None, ["-n", "4", "-t", "1:2:3:4", "--", "x"], Code.INVALID, "--time: '1:2:3:4' is not a walltime"),
        (None, ["--elastic=on", "-n", "4", "--", "x"], Code.UNSUPPORTED, "needs a walltime"),
        (None, ["-n", "4", "-t", "5", "-p", "nix", "--", "x"], Code.INVALID, "there is no queue 'nix'"),
        (None, ["-n", "4", "-t", "5", "-J", "a\nb", "--", "x"], Code.INVALID, "the job's name 'a\\nb' holds a control"),
        (None, ["-n", "4", "-t", "5", "--"], Code.INVALID, "the command is empty"),
        (None, ["-n", "4", "-t", "5", "--", ""], Code.INVALID, "the command is empty"),
        (None, ["--nonsense"], Code.INVALID, "--nonsense"),
    ],
)
def test_bad_submissions(shell: Shell, text: bytes | None, words: list[str], code: Code, sentence: str) -> None:
    if text is not None:
        (shell.folder / "s").write_bytes(text)
    out, err = shell.ejb("submit", *words, code=EXIT_CODE[code])
    assert out == "" and sentence in err and "Traceback" not in err


def test_waiting_for_the_end_and_its_exit_code(shell: Shell) -> None:
    for state, exit_code, expected in (
        (JobState.FAILED, 7, 7),
        (JobState.COMPLETED, 0, 0),
        (JobState.TIMEOUT, None, 124),
        (JobState.CANCELLED, None, 125),
    ):
        with shell.start("submit", "--wait", shell.script()) as process:
            id = process.stderr.readline().split("submitted job ")[1].split(",")[0]
            shell.end(id, state, exit_code)
            out, _ = process.communicate(timeout=LONG_S)
        assert process.returncode == expected and f"job {id} {state.value}" in out


def test_ctrl_c_leaves_the_job_alone(shell: Shell) -> None:
    with shell.start("submit", "--wait", shell.script()) as process:
        id = process.stderr.readline().split("submitted job ")[1].split(",")[0]
        time.sleep(0.5)  # let it begin to wait
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LONG_S)
    assert process.returncode == 130 and f"job {id} goes on" in err and "Traceback" not in err
    assert shell.row(id).state == "received"


def test_waiting_survives_a_restart_of_the_daemon(shell: Shell) -> None:
    with shell.start("submit", "--wait", shell.script()) as process:
        id = process.stderr.readline().split("submitted job ")[1].split(",")[0]
        shell.server.stop_listening()
        assert "the daemon is away" in process.stderr.readline()
        shell.server.listen_again()
        shell.end(id, JobState.COMPLETED, 0)
        out, _ = process.communicate(timeout=LONG_S)
    assert process.returncode == 0 and f"job {id} completed" in out


def test_status(shell: Shell) -> None:
    id = shell.submit(shell.script())
    out, _ = shell.ejb("status")
    assert out.splitlines()[0].split() == ["ID", "NAME", "QUEUE", "STATE", "PROCS", "DONE", "TIME", "LIMIT", "REASON"]
    assert out.splitlines()[1].split()[:5] == [id, "job.sh", "main", "received", "0/16"]
    assert shell.ejb("status", id[:7])[0].startswith(f"job           {id}  job.sh")
    assert shell.ejb("status", "last", "--quiet")[0] == "received\n"
    assert shell.ejb("status", "--state", "running")[0] == ""
    assert "USER" in shell.ejb("status", "-a", "-l", "1")[0]
    assert "\033" not in out


def test_steering(shell: Shell) -> None:
    id, other = shell.submit(shell.script()), shell.submit(shell.script())
    assert shell.ejb("hold", id)[0] == f"job {id} held\n"
    assert shell.row(id).held
    assert shell.ejb("release", id)[0] == f"job {id} released\n"
    assert "is not held" in shell.ejb("release", id, code=4)[1]
    out, err = shell.ejb("cancel", id, "zzzz", other, code=3)
    assert out.splitlines() == [f"job {id} cancelled", f"job {other} cancelled"] and "no job 'zzzz'" in err
    assert shell.ejb("cancel", id, code=4)[1].startswith("ejb: job")


def test_why_what_and_when(shell: Shell) -> None:
    id = shell.submit(shell.script())
    shell.server.store.write_sync(lambda session: session.add(subjob_row(id, 1)))
    explained = shell.ejb("explain", id)[0]
    assert "waiting: nothing is free" in explained and "    Delta 1.25, measured once at degree 4" in explained
    assert "over-subscription costs a factor (Delta) of 1.25 (measured once at degree 4)" in explained
    assert json.loads(shell.ejb("explain", id, "--json")[0])["decisions"][0]["kind"] == "start"
    assert "job.received queue=main" in shell.ejb("events", id)[0]
    out, _ = shell.ejb("timeline", id)
    assert out.startswith(f"job {id}  job.sh  received") and "J1    4p" in out and "WWW" in out
    assert "█" not in shell.ejb("timeline", id, PYTHONIOENCODING="ascii")[0]
    shell.ejb("timeline", id, "--svg", "life.svg")
    assert (shell.folder / "life.svg").read_text().startswith("<svg")
    assert "cannot write" in shell.ejb("timeline", id, "--svg", "no/such/folder.svg", code=2)[1]


def test_watching_without_a_terminal_ends_with_the_job(shell: Shell) -> None:
    id = shell.submit(shell.script())
    with shell.start("watch", id) as process:
        assert process.stdout is not None and "job.received" in process.stdout.readline()
        shell.end(id, JobState.FAILED, 3)
        out, _ = process.communicate(timeout=LONG_S)
    assert process.returncode == 0
    assert "job.failed" in out and out.splitlines()[-1].startswith(f"job {id} failed with exit code 3")


def test_logs(shell: Shell) -> None:
    id = shell.submit("-o", "out", "-e", "err", "-t", "5", "--", "x")
    assert shell.ejb("logs", id) == ("", "")
    (shell.folder / "out").write_text("one\n")
    (shell.folder / "err").write_text("oops\n")
    assert shell.ejb("logs", id)[0] == "one\n"
    assert shell.ejb("logs", id, "--stderr")[0] == "oops\n"
    with shell.start("logs", "-f", id) as process:
        assert process.stdout is not None and process.stdout.readline() == "one\n"
        with (shell.folder / "out").open("a") as file:
            file.write("two\n")
        assert process.stdout.readline() == "two\n"
        shell.end(id, JobState.COMPLETED, 0)
        assert process.communicate(timeout=LONG_S)[0] == ""
    assert process.returncode == 0


def test_queues_and_windows(shell: Shell) -> None:
    assert "4 for 10:00, 2 without an end" in shell.ejb("window")[0]
    assert "there is no queue 'nix'" in shell.ejb("window", "nix", code=3)[1]
    assert "main" in shell.ejb("queue", "list")[0]
    out, _ = shell.ejb("queue", "set", "main", "omax=4", "elasticity=auto", "lambda_s=2.5")
    assert " 4* " in out and "2.5*" in out and "auto* (from 10 waiting" in out
    assert shell.server.manager.overrides == {"omax": 4, "elasticity": "auto", "lambda_s": 2.5}
    assert " suspend least-work " in out
    paper = ("suspend=off", "order=arrival", "start_up_s=1800")
    out, _ = shell.ejb("queue", "set", "main", *paper)
    assert "no suspend* no order*" in out and "1800*" in out
    shell.ejb("queue", "set", "main", *(change.partition("=")[0] + "=" for change in paper))
    shell.ejb("queue", "set", "main", "omax=", "elasticity=", "lambda_s=")
    assert shell.server.manager.overrides == {}
    for bad in ("omax=0", "omax=many", "colour=red", "elasticity=maybe", "omax"):
        shell.ejb("queue", "set", "main", bad, code=2)
    shell.ejb("queue", "set", "nix", "omax=4", code=3)


def test_a_paused_queue_is_told_and_resumed(shell: Shell) -> None:
    assert "queue main is not paused" in shell.ejb("queue", "resume", "main", code=4)[1]
    why: ToldPause = {
        "what": "submissions",
        "whose": "",
        "reason": "it takes no jobs",
        "failures": 5,
        "since_s": 90.0,
        "until_s": 160.0,
    }
    shell.server.manager.paused = [why]
    for words in (("list",), ("show", "main")):
        out, _ = shell.ejb("queue", *words)
        assert " paused " in out and "5 in a row (it takes no jobs)" in out and "`ejb queue resume main`" in out
    assert json.loads(shell.ejb("queue", "show", "main", "--json")[0])["paused"] == [why]
    assert shell.ejb("queue", "resume", "main")[0] == "queue main is tried again\n"
    assert " paused " not in shell.ejb("queue", "show", "main")[0]
    assert "there is no queue 'nix'" in shell.ejb("queue", "show", "nix", code=3)[1]


def test_tokens_and_tcp(shell: Shell) -> None:
    token = shell.ejb("token", "create", "--label", "ci", "--days", "1", "--quiet")[0].strip()
    url = shell.server.servers.url
    assert "does not say which user sends it" in shell.ejb("status", code=5, EJB_SOCKET="", EJB_URL=url)[1]
    shell.ejb("status", EJB_TOKEN=token, EJB_SOCKET="", EJB_URL=url)
    id = next(line.split()[0] for line in shell.ejb("token", "list")[0].splitlines() if line.endswith("ci"))
    shell.ejb("token", "revoke", id)
    assert "does not know this token" in shell.ejb("--url", url, "status", code=5, EJB_TOKEN=token)[1]
    assert "no address of a daemon" in shell.ejb("--url", "ftp://x", "status", code=2)[1]


def test_no_daemon(shell: Shell, tmp_path: Path) -> None:
    out, err = shell.ejb("--socket", str(tmp_path / "none.sock"), "status", code=9)
    assert out == "" and "no daemon answers" in err and "ejb doctor" in err
    _, err = shell.ejb("submit", shell.script(), code=9, EJB_SOCKET="", XDG_STATE_HOME="/nowhere")
    assert "/nowhere/ejbd/ejbd.sock: no daemon" in err


def test_the_doctor_needs_no_daemon(shell: Shell) -> None:
    config = shell.folder / "ejbd.toml"
    config.write_text(f'state_dir = "{shell.folder}/state"\n')
    process = shell.start("doctor", "--json", "--config", str(config), EJB_SOCKET="/nowhere")
    out, err = process.communicate(timeout=180)
    found: dict[str, Any] = json.loads(out)
    assert process.returncode == (0 if found["good"] else 1), err
    assert {"subject", "good", "text"} == set(found["findings"][0])
    config.write_text("colour = 1\n")
    assert "colour" in shell.ejb("doctor", "--config", str(config), code=2)[1]


def test_the_doctor_asks_the_daemon_that_runs(shell: Shell) -> None:
    """Beside a daemon on Slurm it checked the embedded cluster, and all was well."""
    out, err = shell.ejb("doctor", code=1)
    assert (out, err) == ("BAD  spool: /shared: not there\n", "")
    asked = json.loads(shell.ejb("doctor", "--json", "--mpi", code=1)[0])
    assert asked == {
        "good": False,
        "findings": [{"subject": "spool", "good": False, "text": "/shared: not there, mpi"}],
    }


def test_help_version_and_completion(shell: Shell) -> None:
    assert "Exit codes" in shell.ejb("--help")[0]
    assert shell.ejb("--version")[0].startswith("ejb ")
    assert "submit" in shell.ejb(_EJB_COMPLETE="complete_bash", COMP_WORDS="ejb sub", COMP_CWORD="1")[0]


def test_starting_stays_light() -> None:
    """What a start must not load: it would be paid for by every `ejb submit`."""
    code = "import sys, ejbd.cli.main; print(sorted(m for m in sys.modules if m.partition('.')[0] in HEAVY))"
    heavy = "HEAVY = {'pydantic', 'httpx', 'rich', 'sqlalchemy', 'fastapi', 'structlog'}; "
    done = subprocess.run([sys.executable, "-c", heavy + code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
