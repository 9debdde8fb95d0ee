"""What accounting says of finished jobs is a log that can be simulated."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ejbd.cli.app import app
from ejbd.errors import EjbError
from ejbd.sim.accounts import read_log
from ejbd.sim.settings import Source, load

HEAD = "JobID|User|Submit|Start|End|NNodes|NCPUS|TimelimitRaw|State\n"
DAY = "2024-05-31T"
SACCT = HEAD + (
    f"7|ada|{DAY}10:00:00|{DAY}10:10:00|{DAY}11:10:00|2|8|90|COMPLETED\n"
    f"7.batch||{DAY}10:10:00|{DAY}10:10:00|{DAY}11:10:00|1|4||COMPLETED\n"
    f"7.0||{DAY}10:10:00|{DAY}10:10:00|{DAY}11:10:00|2|8||COMPLETED\n"
    f"8_1|bob|{DAY}09:00:00|{DAY}10:10:00|{DAY}10:11:00|1|4|UNLIMITED|FAILED\n"
    f"8_2|bob|{DAY}09:00:00|{DAY}10:10:00|{DAY}10:12:00|1|4|10|TIMEOUT\n"
    f"8_[3-9%2]|bob|{DAY}09:00:00|Unknown|Unknown|1|4|10|PENDING\n"
    "9|bob|torn\n"
    f"10|ada|{DAY}10:30:00|{DAY}10:40:00|Unknown|1|4|10|RUNNING\n"
    f"11|ada|{DAY}10:30:00|{DAY}10:40:00|yesterday|1|4|10|COMPLETED\n"
    f"12|ada|{DAY}10:30:00|{DAY}10:40:00|{DAY}10:50:00|1|four|10|COMPLETED\n"
    f"13|ada|{DAY}10:30:00|Unknown|{DAY}10:50:00|1|4|10|CANCELLED by 1000\n"
    f"14|eve|{DAY}10:30:00|{DAY}10:40:00|{DAY}10:40:30|1|64|10|CANCELLED by 1000\n"
)


def written(tmp_path: Path, text: str = SACCT) -> Path:
    path = tmp_path / "jobs.txt"
    path.write_text(text)
    return path


def test_jobs_of_sacct_become_rows_and_what_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    log = read_log(written(tmp_path))
    told = {name: log.column(name).tolist() for name in ("submit_s", "run_s", "processors", "requested_s", "status")}
    assert told == {
        "submit_s": [3600.0, 0.0, 0.0, 5400.0],
        "run_s": [3600.0, 60.0, 120.0, 30.0],
        "processors": [8.0, 4.0, 4.0, 64.0],
        "requested_s": [5400.0, -1.0, 600.0, 600.0],
        "status": [1.0, 0.0, 0.0, 5.0],
    }
    assert log.column("job").tolist() == [7.0, 2.0, 3.0, 14.0], "a task of an array has no number of its own"
    assert [log.users[int(user)] for user in log.column("user")] == ["ada", "bob", "bob", "eve"]
    assert [str(odd) for odd in log.odd] == [
        "2 rows (lines 7, 9): has not ended yet; left out",
        "1 row (line 8): torn: not 9 fields; left out",
        "1 row (line 10): a time that cannot be read; left out",
        "1 row (line 11): the number of processors is no number; left out",
        "1 row (line 12): never ran; left out",
    ]


def test_they_are_a_workload_by_the_archives_rules(tmp_path: Path) -> None:
    workload = load(Source(written(tmp_path), 32))
    assert workload.jobs.submit.tolist() == [0.0, 0.0, 3600.0] and workload.jobs.processors.tolist() == [4, 4, 8]
    assert workload.jobs.walltime.tolist() == [60.0, 600.0, 5400.0]
    assert "1 row (line 13): wider than the cluster of 32 processors; left out" in map(str, workload.odd)
    with pytest.raises(EjbError, match="with --procs"):
        load(Source(written(tmp_path)))


@pytest.mark.parametrize("limit", [1, 3])
def test_the_first_rows_only(tmp_path: Path, limit: int) -> None:
    assert len(read_log(written(tmp_path), limit=limit)) == limit


def test_a_trailing_bar_and_a_packed_file_are_read_as_well(tmp_path: Path) -> None:
    """`sacct --parsable` ends its lines with a bar."""
    text = "".join(line + "|\n" for line in SACCT.splitlines())
    packed = tmp_path / "jobs.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_log(packed).rows.tolist() == read_log(written(tmp_path)).rows.tolist()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD, "has no job that has run and ended"),
        (HEAD + "9|bob|torn\n", "torn: not 9 fields"),
        ("JobID|State|User\n1|COMPLETED|ada\n", "the heading has no"),
        (
            f"JobID|User|Start|End|NCPUS|TimelimitRaw|State\n7|ada|{DAY}10:10:00|{DAY}11:10:00|8|90|COMPLETED\n",
            "does not say when jobs were submitted",
        ),
    ],
)
def test_what_is_no_log_is_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(EjbError, match=said):
        read_log(written(tmp_path, text))


def test_the_simulator_takes_it_from_a_file_and_from_standard_input(tmp_path: Path) -> None:
    words = ["sim", "run", str(written(tmp_path)), "--procs", "32", "--policy", "easy", "--json", "-"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    of_file = json.loads(done.stdout)
    assert (of_file["jobs"], of_file["rows"]["read"]) == (3, 4)
    words[2] = "-"
    piped = subprocess.run(
        [sys.executable, "-m", "ejbd.cli.main", *words], input=SACCT, capture_output=True, text=True, timeout=120
    )
    assert piped.returncode == 0, piped.stderr
    assert json.loads(piped.stdout)["mean_turnaround_s"] == of_file["mean_turnaround_s"]
