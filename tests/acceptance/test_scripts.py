"""Batch scripts as their users wrote them, on the embedded cluster: launches, codes, output, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.journeys import undisturbed
from tests.acceptance.scripting import Site, local_site, said, sleeping
from tests.fakes.daemon import HEAT, until

pytestmark = pytest.mark.xdist_group("scripts-local")
EJB = Path(sys.executable).with_name("ejb")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with local_site(tmp_path_factory.mktemp("scripts")) as site:
        yield site


def test_launches_one_after_another(site: Site) -> None:
    text = site.run(
        """\
        #!/bin/bash
        #SBATCH -n 8 -t 2
        echo preamble
        srun sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS'
        echo "first ended with $?"
        mpirun -np 4 sh -c 'echo $EJB_RANK of $EJB_SIZE'
        echo "second ended with $?"
        mpiexec -n 3 sh -c 'echo three; exit 3'
        echo "third ended with $?"
        srun -n 1 hostname
        for i in 1 2 3; do srun -n 2 echo loop $i; done
        srun -n 1 sh -c 'exit 3' || true
        exit 9
        """,
        code=9,
    )
    lines = said(text)
    assert lines[0] == "preamble"
    assert sorted(lines[1:9]) == [f"{rank} of 8" for rank in range(8)]
    assert lines[9] == "first ended with 0"
    assert sorted(lines[10:14]) == [f"{rank} of 4" for rank in range(4)]
    assert lines[14] == "second ended with 0"
    assert set(lines[15:-8]) == {"three"}, "a failed rank ends the others, which may not have said anything yet"
    assert lines[-8:] == ["third ended with 3", os.uname().nodename, *[f"loop {i}" for i in (1, 1, 2, 2, 3, 3)]]


def test_set_e_stops_at_a_failed_launch(site: Site) -> None:
    script = "#!/bin/bash -e\n#SBATCH -n 4 -t 2\nsrun -n 2 sh -c 'exit 3'\necho not reached\n"
    assert said(site.run(script, code=3)) == []


@pytest.mark.nightly("integration/test_worker_output.py has whole lines of ranks that write at once")
def test_lines_of_many_ranks_stay_whole_and_in_their_places(site: Site) -> None:
    text = site.run(
        f"""\
        #!/bin/bash
        #SBATCH -n 16 -t 2
        echo begin
        srun "{sys.executable}" chatter.py 100
        echo middle >&2
        srun -n 2 "{sys.executable}" chatter.py 2
        for i in 1 2 3; do echo out $i; echo err $i >&2; done
        printf 'no newline at the end'
        """
    )
    lines = text.splitlines()
    blank = " " + "x" * 60
    assert lines[0] == "begin"
    assert sorted(lines[1:1601]) == sorted(f"rank {r} line {n}{blank}" for r in range(16) for n in range(100))
    for rank in range(16):
        own = [line for line in lines[1:1601] if line.startswith(f"rank {rank} ")]
        assert own == [f"rank {rank} line {n}{blank}" for n in range(100)], "a rank's lines keep their order"
    assert lines[1601] == "middle"
    assert sorted(lines[1602:1606]) == [f"rank {r} line {n}{blank}" for r in range(2) for n in range(2)]
    assert lines[1606:] == [f"{where} {i}" for i in (1, 2, 3) for where in ("out", "err")] + ["no newline at the end"]
    assert not text.endswith("\n")


def test_output_goes_where_sbatch_lines_say(site: Site) -> None:
    (site.folder / "logs").mkdir()
    script = """\
        #!/bin/bash
        #SBATCH --job-name=a_name --ntasks=4 --time=2
        #SBATCH -o logs/%x-%j-%N.out
        #SBATCH -e logs/%x-%5A-%%.err
        echo out; echo err >&2
        srun -n 2 sh -c 'echo rank out; echo rank err >&2'
        """
    id = site.submit(script)
    job = site.daemon.wait(id)
    assert job["state"] == "completed"
    number = job["subjobs"][0]["batch_id"]
    (out,) = (site.folder / "logs").glob(f"a_name-{number}-*.out")
    assert out.name.removeprefix(f"a_name-{number}-").removesuffix(".out") in ("n1", "n2", "n3", "n4")
    assert out.read_text() == "out\n" + "rank out\n" * 2
    assert (site.folder / "logs" / f"a_name-{int(number):05}-%.err").read_text() == "err\n" + "rank err\n" * 2
    assert not (site.folder / f"ejb-{id}.out").exists()


def test_the_users_environment_and_folder(site: Site) -> None:
    (site.folder / "sub").mkdir()
    text = site.run(
        """\
        #!/bin/sh
        #SBATCH --ntasks=4 -t 2
        echo "$GREETING $SLURM_NTASKS $1|$2"
        cd sub
        export ADDED=later
        srun -n 1 sh -c 'echo "$GREETING $ADDED $PWD"'
        """,
        env={"GREETING": "hello there"},
        args=["a b", "$(touch hit) \"'`"],
    )
    assert text.splitlines() == ["hello there 4 a b|$(touch hit) \"'`", f"hello there later {site.folder}/sub"]
    assert not (site.folder / "hit").exists()


def test_pipes_redirections_and_quotes(site: Site) -> None:
    text = site.run(
        """\
        #!/bin/bash
        #SBATCH -n 4 -t 2
        srun -n 2 echo into a pipe | tr a-z A-Z
        echo "codes ${PIPESTATUS[*]}"
        srun -n 2 sh -c 'echo kept; echo lost >&2' > kept.txt 2>/dev/null
        all=$(srun -n 1 echo substituted)
        echo "$all"
        srun -n 1 sh -c 'printf "[%s]" "$@"; echo' sh '$(touch hit)' 'a "quoted" one' "it's" '' '*' $'two\\nlines'
        srun -n 4 sh -c 'exit 5' | cat
        echo "codes ${PIPESTATUS[*]}"
        srun -n 1 yes | head -n 2
        echo "codes ${PIPESTATUS[*]}"
        """
    )
    assert said(text) == [
        *["INTO A PIPE"] * 2,
        "codes 0 0",
        "substituted",
        '[$(touch hit)][a "quoted" one][it\'s][][*][two',
        "lines]",
        "codes 5 0",
        *["y"] * 2,
        "codes 141 0",
    ]
    assert (site.folder / "kept.txt").read_text() == "kept\nkept\n"
    assert not (site.folder / "hit").exists()


def test_timeout_ends_a_launch_and_the_script_goes_on(site: Site) -> None:
    text = site.run(
        """\
        #!/bin/bash
        #SBATCH -n 4 -t 2
        timeout 1 srun -n 3 sleep 9870.1
        echo "timeout said $?"
        srun -n 2 echo next
        """
    )
    assert text == "timeout said 124\nnext\nnext\n"
    assert sleeping("9870.1") == []


def test_what_a_launch_cannot_be(site: Site) -> None:
    text = site.run(
        f"""\
        #!/bin/bash
        #SBATCH -n 4 -t 2
        go() {{ "$@"; echo "code $?"; }}
        go srun -n 5 true
        go srun --speed=9 true
        go srun -l true
        go srun no-such-program
        go srun
        srun_later() {{ srun -n 1 sleep 2; }}
        eval 'srun_later &'; sleep 0.5
        go "{sys.executable}" -c 'import subprocess; raise SystemExit(subprocess.call(["srun", "true"]))'
        wait $!
        echo "first $?"
        """,
        code=2,
    )
    lines = text.splitlines()
    assert lines[1:-1:2] == ["code 2"] * 6
    words = ["5 ranks", "--speed", "labels", "no-such-program was not found", "no program"]
    words.append("one launch at a time")
    for line, word in zip(lines[0:-1:2], words, strict=True):
        assert word in line
        assert line.endswith("(EJB)")
    assert lines[-1] == "first 0"


def test_what_a_launch_is_given_on_standard_input_goes_to_its_ranks(site: Site) -> None:
    (site.folder / "list").write_text("one\ntwo\nthree\n")
    text = site.run(
        """\
        #!/bin/bash
        #SBATCH -n 3 -t 2
        echo file; srun -n 1 cat < list
        echo here; srun -n 1 tr a-z A-Z <<END
        within $((1 + 1)) lines
        END
        echo pipe; printf 'a\\nb\\n' | srun -n 1 wc -l
        echo all; srun -n 3 head -n 1 < list
        echo first; mpirun -n 3 wc -l < list | sort
        echo none; srun -n 1 --input=none wc -l < list
        echo named; srun -n 1 -i list tail -n 1
        echo offset; { read line; srun -n 1 cat; } < list
        echo loop; while read line; do echo "$line"; srun -n 1 true; done < list
        """
    )
    told = (
        "file one two three here WITHIN 2 LINES pipe 2 all one one one first 0 0 3 none 0 named three offset two three"
    )
    # srun reads on where the loop would have: as with srun itself, nothing is left for the second turn.
    assert text.split() == f"{told} loop one".split()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("body", "state"),
    [
        ("label=$(echo -l); srun $label true", "failed"),
        ("label=$(echo -l); if srun $label true; then exit 9; fi", "completed"),
        ("label=$(echo -l)\nsrun -n 2 $label \\\n  true || echo without", "completed"),
        ("label=$(echo -l); timeout 60 srun $label true", "failed"),
        ("label=$(echo -l); timeout 60 srun $label true || true", "completed"),
        ("sh -c 'echo x | srun -l true'", "failed"),
        ("srun no-such-program", "completed"),  # as with srun itself
    ],
)
def test_a_launch_that_was_refused_makes_the_end_a_failure_unless_the_script_asks_how_it_ended(
    site: Site, body: str, state: str
) -> None:
    id = site.submit(f"#!/bin/bash\n#SBATCH -n 4 -t 2\n{body}\necho done\n")
    job = site.daemon.wait(id, timeout_s=60)
    assert job["state"] == state, job
    text = (site.folder / f"ejb-{id}.out").read_text()
    assert text.endswith("done\n") and "(EJB)" in text
    if state == "failed":
        assert job["exit_code"] == 2
        known = "line 3: " if body.startswith("label=$(echo -l); srun") else ""
        assert job["reason"].startswith(f"{known}a launch was refused, and the script went on: srun: "), job["reason"]


def test_a_rank_that_dies_is_told_in_the_output_as_srun_tells_it(site: Site) -> None:
    text = site.run(
        """\
        #!/bin/bash
        #SBATCH -n 4 -t 2
        srun -K sh -c 'echo rank; if [ $SLURM_PROCID = 3 ]; then kill -SEGV $$; fi; sleep 30'
        echo "code $?"
        mpirun -np 1 sh -c 'exit 7' 2> errors
        echo "code $?"
        """
    )
    first, *others = [line for line in text.splitlines() if line != "rank"]
    assert first.startswith("srun: error: n") and first.endswith(": task 3: Segmentation fault (sh)"), text
    assert others == ["srun: error: 3 other tasks were ended (sh)", "code 139", "code 7"]
    (error,) = (site.folder / "errors").read_text().splitlines()
    assert error.startswith("mpirun: error: n") and error.endswith(": task 0: Exited with exit code 7 (sh)")


def test_ranks_of_srun_run_to_their_own_end_when_one_has_failed(site: Site) -> None:
    """And the highest code is the launch's, as srun has it; mpirun ends the others."""
    text = site.run(
        """\
        #!/bin/bash
        #SBATCH -n 4 -t 2
        srun sh -c 'sleep 0.$SLURM_PROCID; touch own-$SLURM_PROCID; exit $((SLURM_PROCID % 3 + 3))'
        echo "code $?"
        ls own-*
        srun -n 2 --kill-on-bad-exit=1 sh -c '[ $SLURM_PROCID = 1 ] && exit 9; sleep 60' 2> errors
        echo "code $?"
        SLURM_KILL_BAD_EXIT=1 srun -n 2 sh -c '[ $SLURM_PROCID = 1 ] && exit 8; sleep 60' 2>> errors
        echo "code $?"
        mpirun -np 2 sh -c 'test $SLURM_PROCID = 1 && exit 7; sleep 60' 2>> errors
        echo "code $?"
        """
    )
    lines = [line for line in text.splitlines() if not line.startswith("srun: error: ")]
    assert lines == ["code 5", "own-0", "own-1", "own-2", "own-3", "code 9", "code 8", "code 7"], text
    said = [line.partition(": ")[2].partition(": ")[2] for line in text.splitlines() if line not in lines]
    assert [line.partition(": ")[2] for line in said] == [
        "tasks 0,3: Exited with exit code 3 (sh)",
        "task 1: Exited with exit code 4 (sh)",
        "task 2: Exited with exit code 5 (sh)",
    ]


@pytest.mark.parametrize("command", [True, False], ids=["command", "script"])
def test_a_job_whose_output_cannot_be_written_fails_as_under_sbatch_and_nothing_runs(site: Site, command: bool) -> None:
    """Whether the folder is there is not known before the job has its number; Slurm says 0:53, which is 128 + 53."""
    mark = site.folder / f"ran-{command}"
    given: dict[str, object] = {"command": ["touch", str(mark)]}
    if not command:
        given = {"script": f"#!/bin/sh\ntouch '{mark}'\n"}
    overrides = {"ntasks": 2, "time": "2", "elastic": "on", "output": "logs-%j/out"}
    request = {**given, "cwd": str(site.folder), "env": {"PATH": os.environ["PATH"]}, "overrides": overrides}
    id = site.daemon.client.post("/v1/jobs", json=request).json()["id"]
    job = site.daemon.wait(id, timeout_s=60)
    assert (job["state"], job["exit_code"]) == ("failed", 181), job
    assert job["reason"].startswith("cannot write the output ") and "/out: No such file or directory" in job["reason"]
    assert not mark.exists()


def test_an_output_folder_that_is_missing_is_told_at_submission(site: Site) -> None:
    for option in ("-o", "-e"):
        answer = site.post(f"#!/bin/bash\n#SBATCH -n 2 -t 2 {option} missing/%x-out\nsrun true\n")
        assert answer.status_code == 422 or answer.status_code == 400, answer.text
        assert answer.json()["detail"] == "the output cannot be written: there is no such folder"
        assert answer.json()["hint"] == f"mkdir -p {site.folder}/missing"


def test_a_job_that_loses_its_output_folder_has_not_completed(site: Site) -> None:
    (site.folder / "going").mkdir()
    body = "echo first\nsrun -n 1 rm -r going\necho second\n"
    id = site.submit(f"#!/bin/bash\n#SBATCH -n 2 -t 2 -o going/out\n{body}")
    job = site.daemon.wait(id, timeout_s=60)
    assert (job["state"], job["exit_code"]) == ("failed", 181), job
    assert "cannot write the output" in job["reason"]


def test_a_rank_of_a_command_that_dies_is_told_in_its_output(site: Site) -> None:
    command = ["sh", "-c", "echo rank; [ $SLURM_PROCID != 1 ] || exit 7; sleep 30"]
    request = {"command": command, "cwd": str(site.folder), "env": {"PATH": os.environ["PATH"]}}
    overrides = {"ntasks": 4, "time": "2", "elastic": "on"}
    id = site.daemon.client.post("/v1/jobs", json={**request, "overrides": overrides}).json()["id"]
    job = site.daemon.wait(id, timeout_s=60)
    assert (job["state"], job["exit_code"]) == ("failed", 7)
    lines = (site.folder / f"ejb-{id}.out").read_text().splitlines()
    first, second = lines[-2:]
    assert first.startswith("ejb: error: n") and first.endswith(": task 1: Exited with exit code 7 (sh)"), lines
    assert second == "ejb: error: 3 other tasks were ended (sh)" and set(lines[:-2]) == {"rank"}
    assert job["reason"].endswith("task 1: Exited with exit code 7")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\n#SBATCH -n 4 -t 2\nsrun ./a &\nwait\n", "background"),
        ("#!/bin/sh\r\n#SBATCH -n 4 -t 2\r\nsrun ./a\r\n", "DOS line ends"),
        ("#!/bin/sh\n#SBATCH -n 4 -t 2\n#SBATCH --array=[1-3]\nsrun ./a\n", "indices"),
        ("#!/bin/sh\n#SBATCH -n 400 -t 2\nsrun ./a\n", "400 processors"),
        ("#!/bin/sh\n#SBATCH -n 4\nsrun ./a\n", "walltime"),
        ("#!/bin/sh\n#SBATCH -n 4 -t 2\nsrun ./a | srun ./b\n", "same pipeline"),
        ("#!/bin/sh\n#SBATCH -n 4 -t 2\n/usr/bin/srun ./a\n", "without its folder"),
        ("echo no interpreter\n", "batch script"),
    ],
)
def test_what_is_refused_where_it_is_to_be_elastic_all_the_same(site: Site, script: str, words: str) -> None:
    answer = site.post(script)
    assert answer.status_code in (400, 422), answer.text
    assert words in answer.json()["detail"], answer.text


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("#!/no/such/shell\n#SBATCH -n 4 -t 2\n", None, "/no/such/shell"),
        ("#!/bin/sh\n#SBATCH -n 4 -t 2 -D /no/such/folder\n", 181, "/no/such/folder"),
        ("#!/bin/sh\n#SBATCH -n 4 -t 2\nkill -KILL $$\n", 137, ""),
        ("#!/bin/sh\n#SBATCH -n 4 -t 2\nexec srun -n 2 sh -c 'exit 4'\n", 4, ""),
    ],
)
def test_scripts_that_fail_at_once(site: Site, script: str, code: int, words: str) -> None:
    job = site.daemon.wait(site.submit(script), timeout_s=120)
    assert (job["state"], job["exit_code"]) == ("failed", code), job
    assert words in job["reason"]


def test_python_scripts(site: Site) -> None:
    text = site.run(
        """\
        #!/usr/bin/env python3
        #SBATCH -n 4
        #SBATCH -t 2
        import subprocess, sys
        print("before", sys.argv[1], flush=True)
        done = subprocess.run(["srun", "-n", "2", "echo", "it's $HOME"], capture_output=True, text=True)
        print(done.returncode, done.stdout.splitlines(), flush=True)
        subprocess.run(["mpirun", "-np", "3", "echo", "direct"], check=True)
        sys.exit(subprocess.call(["srun", "-n", "1", "sh", "-c", "exit 6"]))
        """,
        args=["argument"],
        code=6,
    )
    assert said(text) == ["before argument", '0 ["it\'s $HOME", "it\'s $HOME"]', *["direct"] * 3]


@pytest.mark.sampled(6, first=3)
@pytest.mark.parametrize("name", ["with spaces", 'it\'s "quoted"', "ünïcødé ✓", "$(touch hit)`x`", "50%j %x %%", "-n"])
def test_folders_with_unusual_names(site: Site, name: str) -> None:
    folder = site.folder / name
    folder.mkdir()
    (folder / "app").write_text('#!/bin/sh\nprintf "%s\\n" "$PWD"\n')
    (folder / "app").chmod(0o755)
    script = "#!/bin/bash\n#SBATCH -n 2 -t 2\necho \"$PWD\"\nsrun ./app\nsrun -n 1 ./app > 'a file'\n"
    assert site.run(script, cwd=folder) == f"{folder}\n" * 3
    assert (folder / "a file").read_text() == f"{folder}\n"


def test_a_folder_with_a_newline_is_refused(site: Site) -> None:
    folder = site.folder / "two\nlines"
    folder.mkdir()
    answer = site.post("#!/bin/sh\n#SBATCH -n 2 -t 2\n", cwd=folder)
    assert answer.status_code == 422
    assert "control character" in answer.json()["detail"]


def test_a_large_environment(site: Site) -> None:
    env = {f"VARIABLE_{n}": "v" * 1000 + str(n) for n in range(60)} | {"ONE": "'\n\"$(x)é" + "o" * 40000}
    script = f"""\
        #!/bin/bash
        #SBATCH -n 2 -t 2
        srun -n 2 "{sys.executable}" -c '
        import json, os
        print(json.dumps({{n: v for n, v in os.environ.items() if n[:4] in ("VARI", "ONE")}}))'
        """
    for line in site.run(script, env=env).splitlines():
        assert json.loads(line) == env


def test_cancel_ends_the_scripts_children_too(site: Site) -> None:
    script = """\
        #!/bin/bash
        #SBATCH -n 4 -t 2
        trap 'echo "TERM came first"; exit 7' TERM
        sleep 9871.1 &
        setsid sleep 9871.2 &
        (trap '' TERM; exec sleep 9871.3) &
        later() { srun -n 2 sleep 9871.4; }
        eval 'later &'
        wait
        """
    sleeps = [f"9871.{n}" for n in (1, 2, 3, 4)]
    id = site.submit(script)
    until(lambda: [len(sleeping(s)) for s in sleeps] == [1, 1, 1, 2], "the script did not come so far", 30)
    assert site.daemon.client.post(f"/v1/jobs/{id}/cancel").status_code < 300
    assert site.daemon.wait(id, timeout_s=120)["state"] == "cancelled"
    until(lambda: not any(sleeping(s) for s in sleeps), "something is left", 60)
    assert (site.folder / f"ejb-{id}.out").read_text() == "TERM came first\n"


def test_submitted_by_the_command_line(site: Site) -> None:
    script = site.folder / "command line.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -n 4 -t 2 -o cli.out\necho $MINE\nsrun -n 2 echo $1\nexit $2\n")
    done = subprocess.run(
        [str(EJB), "submit", "--wait", str(script), "word", "5"],
        env={**os.environ, "EJB_SOCKET": str(site.daemon.state / "ejbd.sock"), "MINE": "by hand"},
        cwd=site.folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 5, done.stdout + done.stderr
    assert (site.folder / "cli.out").read_text() == "by hand\nword\nword\n"


def test_the_example(site: Site) -> None:
    for name in ("heat.py", "heat.sbatch"):
        text = (HEAT.parent / name).read_text().replace("--steps 1000", "--steps 30")
        (site.folder / name).write_text(text)
    done = subprocess.run(
        [str(EJB), "submit", "--wait", "-n", "8", "heat.sbatch"],
        env={**os.environ, "EJB_SOCKET": str(site.daemon.state / "ejbd.sock")},
        cwd=site.folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (output,) = site.folder.glob("heat-*.out")
    assert "after 30 steps, computed by 8 ranks" in output.read_text()
    assert (site.folder / "heat.txt").read_bytes() == undisturbed(site.folder, 30, 64)


def test_the_walltime_ends_the_script(site: Site) -> None:
    """As sbatch does: TERM first, and the job's state says why."""
    script = """\
        #!/bin/bash
        #SBATCH -n 4 -t 0:04
        trap 'echo "TERM came first"; exit 7' TERM
        echo begun
        sleep 9871.5 &
        wait
        """
    id = site.submit(script)
    job = site.daemon.wait(id, timeout_s=40)
    assert job["state"] == "timeout", job
    assert (site.folder / f"ejb-{id}.out").read_text() == "begun\nTERM came first\n"
    until(lambda: not sleeping("9871.5"), "something is left", 60)


def test_nothing_is_left(site: Site) -> None:
    until(lambda: not site.daemon.processes(), "a worker, a script or a rank is left", 30)
