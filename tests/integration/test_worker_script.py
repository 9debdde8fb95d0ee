"""The user's script on the lead, and the srun, mpirun and mpiexec that it meets."""

from __future__ import annotations

import json
import os
import resource
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.manager_server import Json
from tests.fakes.worker_process import PROGRAM, World, alive, eventually, world


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        value.start()
        yield value


def launch_reports(there: World, count: int) -> list[Json]:
    there.manager.wait_for(lambda: len(there.manager.of_kind("launch")) >= count)
    return there.manager.of_kind("launch")


def carry_out(there: World, ordinal: int, code: int = 0) -> None:
    """What the manager does with a launch: ranks, their ends, drain, launch-ended. Epoch = ordinal + 1."""
    report = launch_reports(there, ordinal + 1)[ordinal]
    assert report["ordinal"] == ordinal
    payload = there.launch_payload(Path(report["file"]), ranks=report["size"], epoch=ordinal + 1)
    result = there.manager.run("launch", payload)
    assert result["ok"], result
    there.manager.wait_for(
        lambda: len([r for r in there.manager.of_kind("rank-exit") if r["epoch"] == ordinal + 1]) == report["size"]
    )
    assert there.manager.run("drain", {"epoch": ordinal + 1})["ok"]
    assert there.manager.run("launch-ended", {"ordinal": ordinal, "code": code})["ok"]


def script_exit(there: World) -> int:
    there.manager.wait_for(lambda: there.manager.of_kind("script-exit"))
    reports = there.manager.of_kind("script-exit")
    assert len(reports) == 1
    return int(reports[0]["code"])


def test_a_script_with_one_launch(there: World) -> None:
    (there.spool / "app").write_text("#!/bin/sh\necho rank $EJB_RANK of $EJB_SIZE: $1 $MINE $ADDED\n")
    (there.spool / "app").chmod(0o755)
    script = there.script(
        '#!/bin/bash\necho "before $1"\nexport ADDED=later\nsrun -n 3 ./app "a b"\necho "after $?"\nexit 5\n', "arg"
    )
    assert there.lead(script)["data"]["pid"] > 0
    carry_out(there, 0, code=9)
    assert script_exit(there) == 5
    lines = there.collected().splitlines()
    assert lines[0] == "before arg"
    assert sorted(lines[1:4]) == [f"rank {rank} of 3: a b as submitted later" for rank in range(3)]
    assert lines[4:] == ["after 9"]


def test_launches_one_after_another(there: World) -> None:
    text = "#!/bin/sh\nsrun echo one\nmpirun -np 2 echo two || echo failed $?\nmpiexec -n 1 echo three\n"
    there.lead(there.script(text))
    carry_out(there, 0)
    carry_out(there, 1, code=3)
    carry_out(there, 2)
    assert script_exit(there) == 0
    assert [report["size"] for report in there.manager.of_kind("launch")] == [4, 2, 1]
    assert there.collected().splitlines() == ["one"] * 4 + ["two"] * 2 + ["failed 3", "three"]


def test_the_ranks_of_mpirun_have_the_number_of_tasks_that_the_script_has(there: World) -> None:
    text = "#!/bin/sh\nmpirun -np 1 true\nsrun -n 1 -c 2 true\n"
    there.lead(there.script(text, variables={"SLURM_NTASKS": "4", "SLURM_NPROCS": "4"}))
    carry_out(there, 0)
    carry_out(there, 1)
    assert script_exit(there) == 0
    told = [json.loads((there.job_dir / "launches" / f"{one}.json").read_text())["told"] for one in (0, 1)]
    assert told[0] == {"SLURM_NTASKS": "4", "SLURM_NPROCS": "4"}
    assert told[1]["SLURM_CPUS_PER_TASK"] == "2" and "SLURM_NTASKS" not in told[1]


def test_what_the_script_sees(there: World) -> None:
    names = "EJB_JOB_ID SLURM_JOB_ID SLURM_NTASKS SLURM_SUBMIT_DIR SLURM_JOB_NAME MINE PWD"
    text = f'#!/bin/bash -e\nfor name in {names}; do echo "$name=${{!name}}"; done\ncat\ntype -t srun\n'
    there.lead(there.script(text, variables={"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "4"}))
    assert script_exit(there) == 0
    assert there.collected().splitlines() == [
        f"EJB_JOB_ID={there.manager.job}",
        "SLURM_JOB_ID=4711",
        "SLURM_NTASKS=4",
        f"SLURM_SUBMIT_DIR={there.spool}",
        "SLURM_JOB_NAME=the name",
        "MINE=as submitted",
        f"PWD={there.spool}",
        "function",
    ]


def test_a_rank_has_what_its_script_has_made_of_itself(there: World) -> None:
    """As srun gives it: umask, soft limits, exported functions and odd names; not hard limits, niceness or signals."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    text = """\
        #!/bin/bash
        look() { echo "$1 $(umask) $SLURM_UMASK $(ulimit -Sn) $(ulimit -Hn) $(ulimit -Sc) $(nice) $(odd)"
            grep -E 'Sig(Blk|Ign)' /proc/self/status; }
        odd() { env | grep -a '^A-B'; }; export -f look odd
        umask 077; ulimit -n 300; ulimit -Sc 0; trap '' HUP USR2; renice -n $(($(nice) + 3)) $$ > /dev/null
        env A-B=1 srun -n 1 bash -c 'look srun'
        SLURM_UMASK=0002 srun -n 1 --propagate=CORE bash -c 'look asked'
        env A-B=1 mpirun -n 1 bash -c 'look mpirun'
        pbsdsh -c 1 bash -c 'umask'
    """
    there.lead(there.script(textwrap.dedent(text)))
    for ordinal in range(4):
        carry_out(there, ordinal)
    assert script_exit(there) == 0
    none = [f"Sig{one}:\t{0:016x}" for one in ("Blk", "Ign")]
    mask, nice = os.umask(0o077), os.getpriority(os.PRIO_PROCESS, 0)
    os.umask(mask)
    assert there.collected().splitlines() == [
        f"srun 0077 0077 300 {hard} 0 {nice} A-B=1",
        *none,
        f"asked 0002 0002 {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} {hard} 0 {nice} ",
        *none,
        f"mpirun 0077  300 300 0 {min(nice + 3, 19)} A-B=1",  # without the site's word: from itself
        *none,
        f"{mask:04o}",
    ]


def test_a_path_that_changes_does_not_hide_the_shims_from_bash(there: World) -> None:
    (there.spool / "bin").mkdir()
    (there.spool / "bin" / "mpirun").write_text("#!/bin/sh\necho the wrong one\n")
    (there.spool / "bin" / "mpirun").chmod(0o755)
    there.lead(there.script('#!/usr/bin/env bash\nPATH="$HOME/bin:$PATH"\nmpirun -n 1 echo right\n'))
    carry_out(there, 0)
    assert script_exit(there) == 0
    assert there.collected() == "right\n"


def test_the_ranks_see_nothing_of_the_shims(there: World) -> None:
    there.lead(there.script("#!/bin/bash\nsrun -n 1 env\n"))
    carry_out(there, 0)
    assert script_exit(there) == 0
    env = there.collected()
    assert "EJB_RANK=0" in env
    assert "MINE=as submitted" in env
    for word in ("EJB_LAUNCH_SOCKET", "EJB_SHIMS", "BASH_FUNC_", f"/{there.worker.pid}/shims"):
        assert word not in env


# With a launcher behind EJB's.
PLAIN = """\
#!/bin/sh
printf '#!/bin/sh\\necho by itself "$@" $(wc -c); exit 5' > mpirun && chmod +x mpirun && PATH=$EJB_SHIMS:$PWD:$PATH
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("#!/bin/sh\nexit 7\n", 7, ""),
        ("#!/bin/sh\nkill -KILL $$\n", 137, ""),
        ("#!/bin/sh\nsrun -n 5 true\n", 2, "5 ranks were asked for, but job 7 has 4 processors"),
        ("#!/bin/sh\nsrun --speed 9 true\n", 2, "option --speed is not known"),
        (PLAIN + "mpirun -n 1 true : -n 1 false\n", 5, "by itself -n 1 true : -n 1 false"),
        (PLAIN + "mpirun -n 5 true\n", 5, "warning: mpirun: 5 ranks were asked for, but job 7 has 4 processors: this"),
        (PLAIN + "head -c 67108900 /dev/zero | mpirun cat\n", 5, "by itself cat 67108900"),
        ("#!/bin/sh\nsrun -l true\n", 2, "labels"),
        ("#!/bin/sh\nsrun no-such-program-anywhere\n", 2, "was not found"),
        ("#!/bin/sh\nsrun\n", 2, "no program"),
        ("#!/usr/bin/python3\nimport sys\nprint(sys.argv[0].rpartition('/')[2])\nsys.exit(4)\n", 4, "slurm_script"),
    ],
)
def test_how_scripts_end(there: World, text: str, code: int, words: str) -> None:
    there.lead(there.script(text))
    assert script_exit(there) == code
    assert words in there.collected()
    assert there.manager.of_kind("launch") == []
    assert "Traceback" not in there.collected()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "words"),
    [("echo no interpreter line\n", "#!"), ("#!/no/such/shell\n", "/no/such/shell"), ("", "#!")],
)
def test_scripts_that_cannot_be_started(there: World, text: str, words: str) -> None:
    result = there.lead(there.script(text))
    assert not result["ok"]
    assert words in result["error"]
    assert there.lead(there.script("#!/bin/sh\necho now\n"), run=2)["ok"]
    assert script_exit(there) == 0


def test_a_second_launch_at_the_same_time_is_refused(there: World) -> None:
    there.lead(there.script("#!/bin/sh\nsrun -n 1 echo one &\nsleep 0.5\nsrun -n 1 echo two\necho code $?\nwait\n"))
    eventually(lambda: "code 2" in there.collected())
    assert "launch 0 is still running" in there.collected()
    carry_out(there, 0)
    assert script_exit(there) == 0
    assert len(there.manager.of_kind("launch")) == 1


def test_redirected_output_goes_where_the_script_says(there: World) -> None:
    commands = [
        "srun -n 2 echo to a file > log",
        "srun -n 1 echo to a pipe | tr a-z A-Z",
        "srun -n 1 sh -c 'echo e >&2' 2> err",
    ]
    text = "\n".join(["#!/bin/bash", *commands, ""])
    there.lead(there.script(text))
    carry_out(there, 0)
    carry_out(there, 1)
    carry_out(there, 2)
    assert script_exit(there) == 0
    assert (there.spool / "log").read_text() == "to a file\n" * 2
    assert (there.spool / "err").read_text() == "e\n"
    assert there.collected() == "TO A PIPE\n"


def test_output_and_error_apart(there: World) -> None:
    error = there.spool / "job.err"
    launch = "srun -n 1 sh -c 'echo ro; echo re >&2'"
    text = f"#!/bin/sh\necho so\necho se >&2\n{launch}\n{launch} 2>&1\n"
    there.lead(there.script(text), error=str(error))
    carry_out(there, 0)
    carry_out(there, 1)
    assert script_exit(there) == 0
    assert sorted(there.collected().split()) == ["re", "ro", "ro", "so"]
    assert error.read_text().split() == ["se", "re"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", ["timeout 5 srun -n 1 sleep 60", "timeout -s KILL 5 srun -n 1 sleep 60"])
def test_a_launch_that_the_script_ends(there: World, command: str) -> None:
    there.lead(there.script(f"#!/bin/sh\n{command}\necho code $?\nsrun -n 1 echo next\n"))
    report = launch_reports(there, 1)[0]
    pids = there.manager.run("launch", there.launch_payload(Path(report["file"])))["data"]["pids"]
    there.manager.wait_for(lambda: there.manager.of_kind("launch-cancel"))
    assert there.manager.of_kind("launch-cancel")[0]["ordinal"] == 0
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 1})["data"] == {"exits": {"0": 143}}
    assert not alive(pids["0"])
    assert len(there.manager.of_kind("launch")) == 1  # the next one waits for the end of this one
    assert there.manager.run("launch-ended", {"ordinal": 0, "code": 143})["ok"]
    carry_out(there, 1)
    assert script_exit(there) == 0
    assert there.collected().splitlines()[-1] == "next"
    assert f"code {137 if 'KILL' in command else 124}" in there.collected()


def test_a_pipe_that_nobody_reads_ends_the_launch(there: World) -> None:
    there.lead(
        there.script(
            "#!/bin/bash\nsrun -n 1 sh -c 'while :; do echo y; sleep 0.05; done' | head -n 1\nexit ${PIPESTATUS[0]}\n"
        )
    )
    report = launch_reports(there, 1)[0]
    there.manager.run("launch", there.launch_payload(Path(report["file"])))
    there.manager.wait_for(lambda: there.manager.of_kind("launch-cancel"))
    there.manager.run("stop", {"epoch": 1, "grace_s": 1})
    there.manager.run("launch-ended", {"ordinal": 0, "code": 143})
    assert script_exit(there) == 141
    assert there.collected() == "y\n"


def test_started_again_behind_its_launches(there: World) -> None:
    text = "#!/bin/sh\nsrun -n 2 echo first\nsrun -n 1 echo second > log\nsrun -n 1 echo third\n"
    (there.job_dir / "script").mkdir()
    (there.job_dir / "script" / "1.out").write_text("of the first run\n")
    launches = there.job_dir / "launches"
    launches.mkdir()
    (launches / "1.out").write_text("second\n")
    there.launch_file("echo", "third as before", ordinal=2)
    script = there.script(text, restartable=True, ended_launches={"0": 0, "1": 0})
    assert there.lead(script, run=2)["ok"]
    report = launch_reports(there, 1)[0]
    assert (report["ordinal"], report["size"]) == (2, 1)
    assert "third as before" in Path(report["file"]).read_text()
    there.manager.wait_for(lambda: there.manager.of_kind("log"))  # it is not what it was
    assert (there.spool / "log").read_text() == "second\n"  # the redirection has emptied it: it is filled again
    assert there.manager.run("launch-ended", {"ordinal": 2, "code": 0})["ok"]
    assert script_exit(there) == 0
    assert there.collected() == "of the first run\n"


def test_a_launch_that_ended_before_the_script_came_back_to_it(there: World) -> None:
    there.lead(there.script("#!/bin/sh\nsleep 0.5\nsrun -n 1 echo one\nexit $?\n"))
    assert there.manager.run("launch-ended", {"ordinal": 0, "code": 6})["ok"]
    assert script_exit(there) == 6
    assert there.manager.of_kind("launch") == []


def test_unlead_ends_the_script_and_its_children(there: World) -> None:
    there.lead(there.script("#!/bin/bash\ntrap 'echo going; exit 1' TERM\necho $$\nsleep 60 & echo $!\nwait\n"))
    eventually(lambda: len(there.collected().split()) == 2)
    pids = [int(word) for word in there.collected().split()]
    result = there.manager.run("unlead", {"grace_s": 5})
    assert result["ok"]
    eventually(lambda: not any(alive(pid) for pid in pids))  # on a busy machine what was killed takes a while to end
    assert there.collected().splitlines()[2:] == ["going"]
    assert there.manager.of_kind("script-exit") == []


def test_unlead_kills_a_script_that_stays(there: World) -> None:
    there.lead(there.script("#!/bin/sh\ntrap '' TERM\necho $$\nwhile :; do sleep 0.1; done\n"))
    eventually(lambda: there.collected())
    assert there.manager.run("unlead", {"grace_s": 0.3})["ok"]
    eventually(lambda: not alive(int(there.collected())))


def test_a_script_ends_with_a_killed_worker(there: World) -> None:
    pid = there.lead(there.script("#!/bin/sh\nwhile :; do sleep 0.1; done\n"))["data"]["pid"]
    there.worker.kill()
    eventually(lambda: not alive(pid))


@pytest.mark.parametrize(("soon_s", "told"), [(3600.0, True), (0.0, False)])
def test_a_script_whose_last_word_was_a_launch_is_not_held_twice(tmp_path: Path, soon_s: float, told: bool) -> None:
    """The end of its ranks was held before: behind it there was no time to begin what could leave on a TERM."""
    program = PROGRAM.replace(
        "from",
        "import ejb_worker.agent as agent, ejb_worker.lead; agent.SURE_S = agent.QUIET_SURE_S = 3600.0; "
        f"ejb_worker.lead.LAST_WORD_S = {soon_s}; from",
        1,
    )
    with world(tmp_path) as there:
        there.start(program=program)
        script = there.lead(there.script("#!/bin/sh\nsrun -n 1 true\n"))["data"]["pid"]
        launch_reports(there, 1)
        assert there.manager.run("launch-ended", {"ordinal": 0, "code": 0})["ok"]
        eventually(lambda: not alive(script))
        if told:
            there.manager.wait_for(lambda: there.manager.of_kind("script-exit"))
        else:
            assert there.manager.run("drain", {"epoch": 1})["ok"] and not there.manager.of_kind("script-exit")


def test_the_end_of_the_whole_job_cancels_nothing(there: World) -> None:
    there.lead(there.script("#!/bin/sh\nsrun -n 1 sleep 60\n"))
    report = launch_reports(there, 1)[0]
    there.manager.run("launch", there.launch_payload(Path(report["file"])))
    for pid in descendants(there.worker.pid):
        with suppress(ProcessLookupError):  # a shell's own helpers come and go
            os.kill(pid, 15)
    there.worker.terminate()
    assert there.worker.wait(20) == 143
    for kind in ("launch-cancel", "script-exit", "rank-exit"):
        assert there.manager.of_kind(kind) == []
    assert len(there.manager.of_kind("leaving")) == 1


def descendants(pid: int) -> list[int]:
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since it was named
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def test_a_shim_outside_of_a_script(there: World) -> None:
    """A rank has no launches to make."""
    there.lead(there.script("#!/bin/sh\necho $EJB_SHIMS\nsleep 60\n"))
    shims = eventually(lambda: there.collected().strip())
    there.launch(f"{shims}/srun", "-n", "1", "true")
    assert there.exits(1) == {0: 2}
    assert "no lead" in there.rank_output(0, stream="err")


def test_idle_shims_wait_without_work(there: World) -> None:
    there.lead(there.script("#!/bin/sh\nsrun -n 1 sleep 60\n"))
    launch_reports(there, 1)
    shim = next(p for p in descendants(there.worker.pid) if b"/shims/srun\0" in Path(f"/proc/{p}/cmdline").read_bytes())
    before = Path(f"/proc/{shim}/stat").read_text().split()[13:15]
    time.sleep(0.5)
    assert Path(f"/proc/{shim}/stat").read_text().split()[13:15] == before


def test_a_signal_goes_to_the_ranks_or_to_the_shell_alone(there: World) -> None:
    up = there.spool / "up"
    words = f"#!/bin/bash\ntrap 'echo rank told; exit 7' USR1\n: > {up}\nwhile :; do sleep 0.05; done\n"
    (there.spool / "app").write_text(words)
    (there.spool / "app").chmod(0o755)
    script = there.script("#!/bin/bash\ntrap 'echo shell told' USR2\nsrun -n 1 ./app\necho \"srun said $?\"\n")
    assert there.lead(script)["ok"]
    file = Path(launch_reports(there, 1)[0]["file"])
    file.write_text(file.read_text().replace('"./app"', f'"{there.spool}/app"'))
    assert there.manager.run("launch", there.launch_payload(file, engine="none"))["ok"]
    eventually(up.exists)
    assert there.manager.run("signal", {"signal": 12, "epoch": None})["ok"]
    assert there.manager.run("signal", {"signal": 10, "epoch": 1})["ok"]
    assert there.exits(1) == {0: 7}, "USR2 would have ended it"
    assert there.manager.run("signal", {"signal": 10, "epoch": 1})["ok"], "there is nobody any more"
    assert there.manager.run("drain", {"epoch": 1})["ok"]
    assert there.manager.run("launch-ended", {"ordinal": 0, "code": 7})["ok"]
    assert script_exit(there) == 0
    said = [
        line for line in there.collected().splitlines() if line != "User defined signal 1"
    ]  # of the sleep, told, too
    assert said == ["rank told", "shell told", "srun said 7"]


def test_a_script_that_a_signal_ends_is_told_from_one_that_ends_with_its_code(there: World) -> None:
    assert there.lead(there.script("#!/bin/sh\nkill -9 $$\n"))["data"]["pid"] > 0
    assert script_exit(there) == 137
    assert there.manager.of_kind("script-exit")[0]["signal"] == 9
