"""The fake PBS does what the recordings of the real ones show, so that it cannot drift into a friend of the adapter."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.fakes.pbs.recorded import Said, said, sessions
from tests.fakes.pbs.site import PbsSite, pbs_site

pytestmark = pytest.mark.xdist_group("pbs-fake")  # one process brings up the sites
SCRIPT = "#!/bin/sh\nsleep 300\n"
PATIENCE_S = 60.0


def until(right: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not right():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def openpbs() -> Iterator[PbsSite]:
    with pbs_site("openpbs", nodes=3, prefix="opbs-n", head="opbs-head", first=0) as site:
        yield site


@pytest.fixture(scope="module")
def torque() -> Iterator[PbsSite]:
    with pbs_site("torque", maui=True, nodes=3, prefix="trq-n", head="trq-head", first=0) as site:
        yield site


def submit(site: PbsSite, cwd: Path, *words: str, script: str = SCRIPT) -> str:
    done = site.run("qsub", *words, stdin=script, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def stderr_of(text: str) -> list[str]:
    """Without what differs by nature: usages."""
    return [line for line in text.partition("usage:")[0].splitlines() if line.strip()]


def replay(site: PbsSite, recording: list[Said], cwd: Path, leave_out: tuple[str, ...]) -> int:
    """Type what was typed, and compare exit code and complaints; how many were compared."""
    compared = 0
    for one in recording:
        words = shlex.split(one.command)
        if words[0] in leave_out or any(word.startswith("@") for word in words):
            continue
        if "bad name" in one.command:
            words = [word for word in words if word not in ("bad", "name")]
            words.insert(words.index("-N") + 1, "bad name")
        if words[0] == "qalter" and one.code == 124:  # the recorder's own time-out: it is hung on demand
            continue
        done = site.run(*words, cwd=cwd)
        assert (done.returncode, stderr_of(done.stderr)) == (one.code, stderr_of(one.stderr)), one.command
        if words[0] == "qstat" and "-f" not in words and "-xf" not in words and one.code:
            rows = [line.split()[0] for line in done.stdout.splitlines()[2:]]
            assert rows == [line.split()[0] for line in one.stdout.splitlines()[2:]], one.command
        compared += 1
    return compared


def test_openpbs_refuses_as_recorded(openpbs: PbsSite, tmp_path: Path) -> None:
    (tmp_path / "j.sh").write_text(SCRIPT)
    submit(openpbs, tmp_path, script="#!/bin/sh\n")
    for _ in range(3):
        openpbs.run("qdel", submit(openpbs, tmp_path, "-h"))
    until(lambda: not openpbs.numbers())
    submit(openpbs, tmp_path, "-l", "select=2:ncpus=4", "-l", "walltime=00:20:00")
    submit(openpbs, tmp_path, "-l", "select=3:ncpus=4", "-l", "walltime=00:10:00")
    submit(openpbs, tmp_path, "-h", "-l", "walltime=00:50:00")
    submit(openpbs, tmp_path, "-l", "select=1:ncpus=2", "-l", "walltime=00:05:00")
    assert openpbs.numbers() == [4, 5, 6, 7]
    begun = replay(openpbs, sessions("openpbs-errors")[16:], tmp_path, ("qmgr", "qrun", "qrerun", "PBS_SERVER=opbs-n1"))
    assert begun > 12
    openpbs.run("qdel", *map(str, openpbs.numbers()))
    assert replay(openpbs, sessions("openpbs-errors-qsub"), tmp_path, ()) > 15
    openpbs.run("qdel", *map(str, openpbs.numbers()))


def test_torque_refuses_as_recorded(torque: PbsSite, tmp_path: Path) -> None:
    (tmp_path / "tj.sh").write_text(SCRIPT)
    submit(torque, tmp_path, "-l", "nodes=2:ppn=4,walltime=00:20:00")
    submit(torque, tmp_path, "-l", "nodes=3:ppn=4,walltime=00:10:00")
    submit(torque, tmp_path, "-l", "nodes=1:ppn=4,walltime=00:15:00")
    torque.run("qalter", "-l", "walltime=01:00:00", "1")
    said_here = [
        one for one in sessions("torque-errors") if not one.command.startswith(("qrerun", "qmgr", "qrun", "env"))
    ]
    # What lies between is another person's; the jobs of these numbers are in the recorded states.
    assert (
        replay(
            torque, [one for one in said_here if "nosuchnode" not in one.command or "qsub" in one.command], tmp_path, ()
        )
        > 25
    )
    torque.run("qdel", *map(str, torque.numbers()))


def kinds(value: Any, path: str = "") -> dict[str, str]:
    """Every key with the type of its value; ids, hosts and variables by a common name."""
    if not isinstance(value, dict):
        return {path: type(value).__name__.replace("float", "int")}
    found: dict[str, str] = {}
    for key, each in value.items():
        plain = "*" if path in ("/Jobs", "/nodes") else key
        if path.endswith("Variable_List"):
            continue
        found |= kinds(each, f"{path}/{plain}")
    return found


def test_openpbs_lists_as_recorded(openpbs: PbsSite, tmp_path: Path) -> None:
    """No key that the real one lacks and no other type; what the adapter goes by is there."""
    recorded: dict[str, str] = {}
    for name in ("openpbs-qstat-f-json", "openpbs-json-oddvalues", "openpbs-pbsnodes-json", "openpbs-misc"):
        for one in sessions(name):
            if "json" in one.command:
                recorded |= kinds(json.loads(one.stdout))
    running = submit(openpbs, tmp_path, "-l", "select=2:ncpus=4", "-v", "SL=600", "-N", "007")
    waiting = submit(openpbs, tmp_path, "-l", "select=3:ncpus=4", "-N", "wide")
    until(lambda: "estimated" in openpbs.run("qstat", "-f", "-F", "json").stdout)
    listed = json.loads(openpbs.run("qstat", "-f", "-F", "json").stdout)
    here = kinds(listed) | kinds(json.loads(openpbs.run("pbsnodes", "-a", "-F", "json").stdout))
    assert {key: kind for key, kind in here.items() if recorded.get(key) != kind} == {}
    first = listed["Jobs"][running]
    assert first["Variable_List"]["SL"] == 600 and first["Job_Name"] == "007"
    assert re.fullmatch(r"opbs-n\d/0\*4\+opbs-n\d/0\*4", first["exec_host"])
    assert re.fullmatch(
        r"\(opbs-n\d:ncpus=4\)(\+\(opbs-n\d:ncpus=4\)){2}", listed["Jobs"][waiting]["estimated"]["exec_vnode"]
    )
    openpbs.run("qdel", waiting, running)
    until(lambda: not openpbs.numbers())
    assert json.loads(openpbs.run("qstat", "-f", "-F", "json").stdout).get("Jobs") is None
    # Of several jobs it lists the first alone, as 23.06.06 was seen to.
    both = [("qstat", "-x", "-f", "-F", "json", *ids) for ids in ((running, waiting), (waiting,))]
    ended = {id: job for words in both for id, job in json.loads(openpbs.run(*words).stdout)["Jobs"].items()}
    assert list(ended) == [running, waiting]
    assert (ended[running]["job_state"], ended[running]["substate"], ended[running]["Exit_status"]) == ("F", 91, 271)
    assert ended[waiting]["substate"] == 91 and "Exit_status" not in ended[waiting]


def tags(text: str) -> set[str]:
    root = ElementTree.fromstring(text)
    return {f"{child.tag}/{grandchild.tag}" for child in root for grandchild in child}


def test_torque_lists_as_recorded(torque: PbsSite, tmp_path: Path) -> None:
    recorded = tags(said("torque-qstat-x.xml", "qstat -x").stdout) | tags(said("torque-x-oddvalues", "qstat -x").stdout)
    recorded |= tags(said("torque-pbsnodes-x", "pbsnodes -x").stdout) | {"Job/exit_status", "Job/depend"}
    running = submit(torque, tmp_path, "-l", "nodes=2:ppn=4,walltime=00:20:00")
    waiting = submit(torque, tmp_path, "-l", "nodes=3:ppn=4,walltime=00:10:00")
    text = torque.run("qstat", "-x").stdout
    assert tags(text) | tags(torque.run("pbsnodes", "-x").stdout) <= recorded
    hosts = {job.findtext("Job_Id"): job.findtext("exec_host") for job in ElementTree.fromstring(text)}
    assert re.fullmatch(r"trq-n\d/0-3\+trq-n\d/0-3", hosts[running] or "") and hosts[waiting] is None
    # An idle job holds nodes in the future; rows of showbf are laid out as Maui's are.
    shape = {re.sub(r"\d+", "0", line) for one in sessions("maui-showbf") for line in one.stdout.splitlines()}
    assert {
        re.sub(r"\d+", "0", line).replace("root", "pbstest") for line in torque.run("showbf").stdout.splitlines()
    } <= {re.sub(r"(Sat|Sun|Mon|Tue|Wed|Thu|Fri) \w{3}", day(), line) for line in shape}
    assert torque.run("showres", "-n").stdout.count(waiting.partition(".")[0]) >= 3
    torque.run("qdel", waiting, running)
    until(lambda: not torque.numbers())
    job = ElementTree.fromstring(torque.run("qstat", "-x", running).stdout)[0]
    assert (job.findtext("job_state"), job.findtext("exit_status")) == ("C", "271")


def day() -> str:
    return time.strftime("%a %b", time.gmtime())


def test_a_server_that_is_down_answers_as_recorded(tmp_path: Path) -> None:
    for dialect, name in (("openpbs", "openpbs-serverdown"), ("torque", "torque-serverdown")):
        with pbs_site(dialect, nodes=1, head="opbs-head" if dialect == "openpbs" else "trq-head") as site:
            site.kill()
            for one in sessions(name):
                words = one.command.split()
                if words[0] in ("showbf", "showq", "qselect") or words[-1] == "ok.sh" or one.command == "qdel 5":
                    continue
                done = site.run(*words)
                assert done.returncode == one.code, one.command
                assert stderr_of(done.stderr)[-1].partition(" (errno")[0] in one.stderr, one.command
                if "json" in words:
                    assert json.loads(done.stdout).keys() == json.loads(one.stdout).keys()


def test_jobs_outlive_the_server_and_end_at_their_walltime(tmp_path: Path) -> None:
    with pbs_site("openpbs", nodes=2) as site:
        lives = submit(site, tmp_path, "-o", str(tmp_path / "out"), script="#!/bin/sh\nsleep 1\necho done\nexit 3\n")
        over = submit(site, tmp_path, "-l", "walltime=2")
        until(lambda: '"job_state":\t"R"' in site.run("qstat", "-f", "-F", "json", over).stdout)
        site.kill()
        time.sleep(1.5)
        site.start()
        until(lambda: not site.numbers())
        jobs = json.loads(site.run("qstat", "-x", "-f", "-F", "json").stdout)["Jobs"]
        assert (jobs[lives]["Exit_status"], jobs[over]["Exit_status"]) == (3, -29)
        assert (tmp_path / "out").read_text() == "done\n"


def test_tasks_of_pbsdsh_and_what_leaves_its_session(tmp_path: Path) -> None:
    """pbsdsh ends with 0 whatever its tasks do, and what calls setsid outlives the job."""
    script = f"""#!/bin/sh
PBSDSH -u /bin/sh -c 'env | sort > {tmp_path}/$HOSTNAME_OF_FAKE; exit 7' > {tmp_path}/said
echo $? >> {tmp_path}/said
setsid sh -c 'echo $$ > {tmp_path}/escaped; sleep 60' > /dev/null 2>&1 &
until [ -s {tmp_path}/escaped ]; do sleep 0.05; done
"""
    with pbs_site("torque", nodes=2) as site:
        submit(site, tmp_path, "-l", "nodes=2:ppn=2", script=script.replace("PBSDSH", f"{site.bin}/pbsdsh"))
        until(lambda: not site.numbers())
    lines = (tmp_path / "said").read_text().splitlines()
    assert len(lines) == 3 and lines[-1] == "0" and all("exit status 7" in line for line in lines[:2])
    seen = dict(line.split("=", 1) for line in (tmp_path / "n2").read_text().splitlines())
    assert seen["PBS_JOBID"] == "1.head" and "PBS_NODEFILE" not in seen and "EJB_TAG" not in seen
    pid = int((tmp_path / "escaped").read_text())
    assert Path(f"/proc/{pid}").exists()
    os.kill(pid, 9)
