"""What squeue and sacct say under EJB's names, field by field beside Slurm's own, on a real Slurm with accounts."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ejbd.cli import links
from ejbd.cli.links.fields import BY_LETTER, SACCT, SQUEUE
from ejbd.cli.main import LINKS
from tests.acceptance.scripting import Site, running_site
from tests.fakes.daemon import FAST, until
from tests.fakes.me import ME
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("chains-slurm")]
MANUAL = Path("/usr/share/man/man1/squeue.1.gz")
SCRIPT = "#!/bin/sh\n#SBATCH -n 1 -t 2 -J alike --mem 100 -o /dev/null\nsrun -n 1 sleep 1\nexit 7\n"
LASTS_S = 120.0

# Fields of which two jobs, or two runs of one, have different values.
_OWN = re.compile(
    r"(array)?jobid|jobarrayid|jobidraw|.*time|time(used|left)|pending.*|priority.*|elapsed.*|cputime.*|.*cpu|planned.*|reserved|resv.*"
    r"|submit(line)?|start|end|eligible|dbindex|lastschedeval|allocsid|tresusage.*|schednodes|.*node(list|s|)|batchhost"
    r"|reasonlist|flags|(original)?sluid|selectjobinfo|command|max.*|ave.*|min(cpu|vm|pages).*|consumed.*|derived.*|extra"
    r"|dependency"
)
# What an elastic job has of its own: docs/scripts.md says what is not told of it.
_ELASTIC = re.compile(r"requeue|stdout|stderr|.*comment|restart.*|ntper.*|network|batchflag|nice|std(out|err)")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm(accounting=True):
        pytest.skip(reason)
    with shared_cluster(2, 2, "--profile=acct") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def site(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    toml = f'batch = "slurm"\npoll_s = 1.0\nworker_python = "{sys.executable}"\n' + FAST
    toml = toml.replace("[queues.default]", '[queues.default]\nmin_processors = 1\nguard = "off"')
    with running_site(tmp_path_factory.mktemp("answers"), toml, {"SLURM_CONF": str(cluster.conf)}) as site:
        site.environment["SLURM_CONF"] = str(cluster.conf)
        yield site


class Answers:
    """Asks Slurm's own commands, and EJB's of the same names."""

    def __init__(self, cluster: SlurmCluster, capfd: pytest.CaptureFixture[str]) -> None:
        self.cluster, self.capfd = cluster, capfd

    def plain(self, *words: str) -> list[str]:
        return self.cluster.run(*words).splitlines()

    def ours(self, name: str, *words: str) -> list[str]:
        self.capfd.readouterr()
        code = links.run(name, words)
        out, err = self.capfd.readouterr()
        assert code == 0, err
        return out.splitlines()


@pytest.fixture
def answers(
    cluster: SlurmCluster, site: Site, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Answers:
    monkeypatch.setenv("EJB_SOCKET", str(site.daemon.state / "ejbd.sock"))
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    return Answers(cluster, capfd)


def cells(lines: list[str], names: list[str], at: int = 1) -> Mapping[str, str]:
    return dict(zip(names, lines[at].split("\x1f"), strict=False))


def differing(plain: Mapping[str, str], ours: Mapping[str, str], left_out: re.Pattern[str] | None = None) -> list[str]:
    assert plain.keys() == ours.keys() and len(plain) > 40
    return [
        f"{name}: {value!r}, EJB's {ours[name]!r}"
        for name, value in plain.items()
        if ours[name] != value
        and not _OWN.fullmatch(name.lower())
        and not (left_out and left_out.fullmatch(name.lower()))
    ]


def test_each_field_has_slurms_value(site: Site, cluster: SlurmCluster, answers: Answers) -> None:
    """Of a job that is passed through, and of one that is elastic, beside the same script under plain sbatch."""
    home = {"PATH": os.environ["PATH"], "HOME": str(site.folder)}
    script = site.folder / "alike.sh"
    script.write_text(SCRIPT)
    plain = cluster.run("sbatch", "--parsable", f"--chdir={site.folder}", str(script)).strip()
    ids = [site.submit(SCRIPT, env=home, overrides={"elastic": how}) for how in ("off", "on")]
    passed, elastic = (str(site.daemon.wait(id, timeout_s=LASTS_S)["number"]) for id in ids)
    until(lambda: cluster.states().get(plain) == "FAILED", "the job of sbatch did not end", LASTS_S)
    known = " ".join(answers.plain("sacct", "--helpformat")).split()
    of_sacct = ("sacct", "--parsable2", "--delimiter=\x1f", f"--format={','.join(known)}", "--jobs")
    short = ("sacct", "-n", "-P", "-o", "JobIDRaw,JobName,WorkDir", "-j")

    def are_whole() -> bool:
        """Whether slurmdbd has all of each job: it has parts of one a moment later than others."""
        told = ["\n".join(answers.plain(*short, number)) for number in (plain, passed, elastic)]
        return all(re.fullmatch(r"\d+\|alike\|/.*(\n\d+\.\w+\|.*){2,}", one) for one in told)

    until(are_whole, "not all is in the accounts", LASTS_S)
    letters, long = list(BY_LETTER), [field.name for field in SQUEUE]
    by_letter = ("squeue", "--states=all", "--format", "\x1f".join(f"%{name}" for name in letters), "--jobs")
    by_name = ("squeue", "--states=all", "--Format", ",".join(f"{name}:\x1f" for name in long), "--jobs")
    for number, left_out in ((passed, None), (elastic, _ELASTIC)):
        names = [BY_LETTER[letter].name for letter in letters]
        for line, fields in ((by_letter, names), (by_name, long), (of_sacct, known)):
            said, ours = answers.plain(*line, plain), answers.ours(*line, number)
            assert said[0] == ours[0]
            assert differing(cells(said, fields), cells(ours, fields), left_out) == [], line
        # Rows of the accounts: the job, its shell, its launch.
        rows = [[row.split("\x1f") for row in lines[1:]] for lines in (said, ours)]
        steps, named, codes = (known.index(name) for name in ("JobID", "JobName", "ExitCode"))
        told = [[(row[steps].partition(".")[2], row[named], row[codes]) for row in one] for one in rows]
        assert told[0] == told[1] == [("", "alike", "7:0"), ("batch", "batch", "7:0"), ("0", "sleep", "0:0")]


def test_headings_and_widths_are_those_of_the_sites_slurm(answers: Answers) -> None:
    """Of every field that its version has, and of a name that no version has; also where no job is listed."""
    known = " ".join(answers.plain("sacct", "--helpformat")).split()
    line = ("sacct", "--jobs=999999", f"--format={','.join(known)}")
    assert answers.ours(*line)[:2] == answers.plain(*line)[:2]
    letters = ("--jobs=999998,999999", "--format", "\x1f".join(f"%{one}" for one in BY_LETTER))
    names = ("--jobs=999998,999999", "--Format", ",".join(f"{field.name}:|" for field in SQUEUE) + ",nosuch:|")
    for words in (letters, names):
        assert answers.ours("squeue", *words) == answers.plain("squeue", *words)


def test_the_tables_have_every_name_of_the_sites_slurm(answers: Answers) -> None:
    known = " ".join(answers.plain("sacct", "--helpformat")).split()
    assert set(known) <= set(SACCT)
    try:
        named = {name.lower() for name in "\n".join(answers.plain("squeue", "--helpFormat")).split()}
    except AssertionError:  # before 24.11 only the manual tells
        if not MANUAL.exists():
            pytest.skip(f"{MANUAL} is not installed: the names of --Format are held against no list")
        text = gzip.decompress(MANUAL.read_bytes()).decode()
        long = text.partition("\\fB\\-O\\fR")[2].partition("\\fB\\-\\-help\\fR")[0]
        found = re.findall(r"^\\fB([A-Za-z_\\-]+)\\fR$", long, re.MULTILINE)
        of_steps = {"cpufreq", "nodes", "resvport", "resvports", "stepid", "stepname", "stepstate", "tres-per-step"}
        named = {name.replace("\\", "").lower() for name in found} - of_steps
    assert len(named) > 100
    assert named <= {field.name.lower() for field in SQUEUE}


def test_a_step_or_a_number_that_is_not_there_has_no_row(site: Site, cluster: SlurmCluster, answers: Answers) -> None:
    home = {"PATH": os.environ["PATH"], "HOME": str(site.folder)}
    job = site.daemon.wait(site.submit(SCRIPT, env=home, overrides={"elastic": "off"}), timeout_s=LASTS_S)
    number = str(job["number"])
    short = ("sacct", "-n", "-P", "-o", "JobID,State,NNodes,Account", "-j")
    until(lambda: len(answers.plain(*short, number)) == 3, "no step in the accounts", 60)
    assert answers.ours(*short, f"{number}.7") == answers.plain(*short, f"{number}.7") == []
    for which in (f"{number}.batch", f"{number}.0", f"{number},999999", number):
        assert answers.ours(*short, which) == answers.plain(*short, which)
    assert answers.ours("squeue", "-h", "-t", "all", "-o", "%i %T %N", "-j", f"999999,{number}") == answers.plain(
        "squeue", "-h", "-t", "all", "-o", "%i %T %N", "-j", f"999999,{number}"
    )


TRIES = """\
sub() { sbatch --parsable -n1 -t1 -o /dev/null "$@"; }
say() { echo "\\$ $*"; "$@"; echo "rc=$?"; }
soon() { for _ in $(seq 300); do eval "$1" && return; sleep 0.2; done; echo "not soon: $1"; }
ended=$(sub -W --wrap 'exit 3'); echo "rc=$?"
killed=$(sub -W --wrap 'kill -9 $$'); echo "rc=$?"
printf '#!/bin/sh\n# caf\351\nexit 8\n' | sub -W >/dev/null 2>&1; echo "rc=$?"
held=$(sub -H -J "$1" --comment 'my words' --wrap true)
runs=$(sub -J "$1" --wrap 'srun -n1 -o /dev/null sleep 1m; sleep 1m')
read_=$(printf '#!/bin/sh\\nexit 4\\n' | sub -W); echo "rc=$?"
soon 'squeue -h -s -j $runs -o %i | grep -q "$runs[.]0"'
say scancel -t PENDING -n "$1"
say squeue -h -t all -j "$held,$runs,$read_" -o '%T %j'
scancel $runs.0 2>/dev/null
soon '! squeue -h -s -j $runs -o %i | grep -q "$runs[.]0"'
scancel $runs.7 2>/dev/null  # Slurm answers both in several ways
say squeue -h -j $runs -o %T
for job in $ended $killed; do say scancel $job; say scancel -v $job; say scancel -s USR1 $job; done
say scontrol hold $ended
say scancel -t BOGUS $runs
say scancel -s BOGUS $runs
say scancel -u nosuchuser
say scancel ""
say scancel abc
say scancel 999999
say scancel -A nosuch -w n9 -n "$1"
say sbatch -Q -n1 -t1 -o /dev/null --wrap true
say sbatch --bogus --wrap true 2>/dev/null
for line in -pnope -tabc -n0 -N900-800 -N700 -a900-800 -dnonsense -wnope --mem=abc -bnever --gres=no:900; do
    say sbatch $line --wrap true
done
for line in -n1 '-n1 -d afterok:999999'; do
    say sbatch -t1 --mem=900G $line --wrap true
    say sbatch -t1 --mem-per-cpu=900G $line --wrap 'srun true'
done
for line in -t-7777 -t-0 -t999- '-t1 --mem=900G' '-t1 --deadline=yesterday' '-t1 --deadline=2020-01-01'; do
    say sbatch -H -n1 -o /dev/null --parsable $line --wrap true | sed 's/^[0-9]*$/ID/'
done
limited=$(sbatch --parsable -H -n1 -t999- -o /dev/null --wrap true)
echo "$(squeue -h -j $limited -o %l)"
late=$(sbatch --parsable -W -n1 -t1 -o /dev/null --deadline=now --wrap 'exit 5'); echo "rc=$?"
in_time=$(sub -W --deadline=now+1hour --wrap 'exit 6'); echo "rc=$?"
scancel $limited
named=$(sub -H -J before --wckey=mine --wrap true)
say scontrol update jobid=$named name=$1.new
for name in $1.new before; do say squeue -h -n $name -o '%j %w'; done
scontrol show job $named | grep -o 'JobName=.*'
for line in --name=before --wckey=other --wckey=mine; do
    say scancel $line -t PENDING
    [ $line = --wckey=mine ] || say squeue -h -j $named -o %T
done
soon '! squeue -h -j $named -o %T 2>/dev/null | grep -q PENDING'
# Newer Slurms ask on and on at the end of input, and 26.05 then asks of jobs that nobody has named.
{ yes n 2>/dev/null | say scancel -i $runs; } | grep -oE "^Cancel job_id=$runs [^?]*[?]|rc=.*"
scontrol show job $held | grep -E '^ *(Command|Comment|WorkDir|StdOut)='
scontrol write batch_script $runs -
say scancel -p batch -q normal -t R $runs
soon '! squeue -h -j $runs -o %T 2>/dev/null | grep -q RUNNING'
echo "$ended $killed $held $runs $read_ $named" >&3
"""


def test_small_tries_answer_as_slurms_commands_do(site: Site, cluster: SlurmCluster, tmp_path: Path) -> None:
    """Options, states, steps, exit codes and words of sbatch, scancel and scontrol, line by line."""
    names = tmp_path / "names"
    names.mkdir()
    for name in LINKS:
        (names / name).symlink_to(Path(sys.executable).with_name("ejb"))
    (tmp_path / "tries.sh").write_text(TRIES)
    home = {"HOME": str(tmp_path), "SLURM_CONF": str(cluster.conf), "LANG": "C.UTF-8", "USER": ME.user}
    running = {}
    for how, path in (("plain", os.environ["PATH"]), ("ejb", f"{names}:{os.environ['PATH']}")):
        env = {**home, "PATH": path, "EJB_SOCKET": str(site.daemon.state / "ejbd.sock")}
        line = f'exec 3>"{tmp_path}/{how}.ids"; exec timeout 200 bash {tmp_path}/tries.sh {how} 2>&1'
        running[how] = subprocess.Popen(["bash", "-c", line], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    said = {}
    for how, process in running.items():
        text = process.communicate(timeout=240)[0].replace(str(tmp_path), "FOLDER")  # which may have a job's number
        ids = (tmp_path / f"{how}.ids").read_text().split()
        for name, id in zip(("ENDED", "KILLED", "HELD", "RUNS", "READ", "NAMED"), ids, strict=True):
            text = re.sub(rf"(?<!rc=)\b{id}\b", name, text)
        said[how] = re.sub(rf"\b{how}\b", "NAME", text).splitlines()
    assert said["ejb"] == said["plain"]
