"""Files of finished jobs: what they say, and what is told of lines that are wrong."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest

from ejbd.accounting.reading import Format, read_runs
from ejbd.accounting.rows import Ending, Finished, Oddities
from ejbd.errors import EjbError
from ejbd.wire.naming import application_name

SACCT = """\
JobIDRaw|User|JobName|Partition|AllocCPUS|ElapsedRaw|TimelimitRaw|State|Submit|Start|End
1|ada|heat.sh|batch|4|3600|90|COMPLETED|2024-05-31T10:00:00|2024-05-31T10:10:00|2024-05-31T11:10:00
1.batch||batch||4|3600||COMPLETED|2024-05-31T10:10:00|2024-05-31T10:10:00|2024-05-31T11:10:00
2|ada|heat.sh|batch|4|5400|90|TIMEOUT|2024-05-31T10:00:00|2024-05-31T10:10:00|2024-05-31T11:40:00
3|bob|x|batch|1|0|UNLIMITED|CANCELLED by 1000|2024-05-31T10:00:00|Unknown|2024-05-31T10:10:00
4|bob|x|batch
5|bob|x|batch|1|-3|10|FAILED|2024-05-31T10:00:00|2024-05-31T10:10:00|2024-05-31T10:10:03
6|bob|x|batch|1|3|10|MELTED|2024-05-31T10:00:00|2024-05-31T10:10:00|2024-05-31T10:10:03
7|bob|x|batch|1|3|10|RUNNING|2024-05-31T10:00:00|2024-05-31T10:10:00|Unknown
8|bob|x|batch|1|3|Partition_Limit|OUT_OF_MEMORY|2024-05-31T10:00:00|2024-05-31T10:10:00|yesterday
9|bob|x|batch|1|3|Partition_Limit|OUT_OF_MEMORY|2024-05-31T10:00:00|2024-05-31T10:10:00|2024-05-31T10:10:03
"""
PBS = """\
05/31/2024 11:10:00;Q;7.srv;queue=batch
05/31/2024 11:10:00;E;7.srv;user=ada group=g jobname=heat queue=batch ctime=900 qtime=900 etime=900 start=1000 \
exec_host=n1/0*4 Resource_List.ncpus=4 Resource_List.walltime=01:00:00 end=2000 Exit_status=0 \
resources_used.walltime=00:16:40
05/31/2024 11:10:00;E;8.srv;user=ada jobname=heat queue=batch qtime=900 start=1000 Resource_List.nodes=2:ppn=4 \
Resource_List.walltime=00:10:00 end=1605 Exit_status=271 resources_used.walltime=00:10:05
05/31/2024 11:10:00;E;9.srv;user=ada jobname=he
"""
JOBCOMP = (
    "JobId=3 UserId=ada(1000) GroupId=ada(1000) Name=two words JobState=COMPLETED Partition=batch TimeLimit=10 "
    "StartTime=2024-05-31T10:10:00 EndTime=2024-05-31T10:15:00 NodeList=n1 NodeCnt=1 ProcCnt=4 WorkDir=/ "
    "SubmitTime=2024-05-31T10:00:00 \n"
)


def read(tmp_path: Path, text: str, format: Format | None = None) -> tuple[list[Finished], list[str]]:
    path = tmp_path / "finished"
    path.write_text(text)
    odd = Oddities()
    return list(read_runs(path, odd, format)), odd.sentences()


def test_sacct(tmp_path: Path) -> None:
    runs, told = read(tmp_path, SACCT)
    assert [run.job for run in runs] == ["1", "2", "9"]
    begun = time.mktime(time.strptime("2024-05-31T10:10:00", "%Y-%m-%dT%H:%M:%S"))
    assert runs[0] == Finished(
        "1", "ada", "heat.sh", "batch", 4, None, 5400.0, begun - 600, begun, begun + 3600, 3600.0, Ending.COMPLETED
    )
    assert (runs[1].ending, runs[2].ending, runs[2].requested_s) == (Ending.TIMEOUT, Ending.FAILED, None)
    assert told == [
        "1 line (5): never ran; left out",
        "1 line (6): torn: not 11 fields; left out",
        "1 line (7): the run time is negative; left out",
        "1 line (8): a state that is not known; left out",
        "1 line (9): has not ended yet; left out",
        "1 line (10): a time that cannot be read; left out",
    ]


def test_sacct_with_times_for_people(tmp_path: Path) -> None:
    text = "JobID|User|JobName|NCPUS|Elapsed|Timelimit|State|Start|End\n" + (
        "1|ada|heat|4|1-01:00:00|2-00:00:00|COMPLETED|2024-05-31T10:10:00|2024-06-01T11:10:00\n"
    )
    runs, told = read(tmp_path, text)
    assert (runs[0].run_s, runs[0].requested_s, told) == (90000.0, 172800.0, [])


def test_pbs(tmp_path: Path) -> None:
    runs, told = read(tmp_path, PBS)
    assert [(run.job, run.processors, run.run_s, run.requested_s, run.ending) for run in runs] == [
        ("7.srv", 4, 1000.0, 3600.0, Ending.COMPLETED),
        ("8.srv", 8, 605.0, 600.0, Ending.TIMEOUT),
    ]
    assert told == ["1 line (4): torn: no start; left out"]


def test_jobcomp(tmp_path: Path) -> None:
    runs, told = read(tmp_path, JOBCOMP + "JobId=4 UserId=a")
    assert [(run.user, run.name, run.processors, run.run_s, run.requested_s) for run in runs] == [
        ("ada", "two words", 4, 300.0, 600.0)
    ]
    assert told == ["1 line (2): torn: no JobState; left out"]


def test_packed_files_and_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "finished.gz"
    path.write_bytes(gzip.compress(SACCT.encode()))
    assert len(list(read_runs(path, Oddities()))) == 3
    for text, said in (("", "has no line"), ("hello\n", "of no format"), ("JobID|State\n", "the heading has no user")):
        with pytest.raises(EjbError, match=said):
            read(tmp_path, text)
    with pytest.raises(EjbError, match="cannot be read"):
        list(read_runs(tmp_path / "none", Oddities()))
    path.write_bytes(gzip.compress(SACCT.encode())[:80])
    with pytest.raises(EjbError, match="cannot be read"):
        list(read_runs(path, Oddities()))


@pytest.mark.parametrize(
    ("job", "application"),
    [("heat-012.sh", "heat"), ("heat.sbatch", "heat"), ("fig8", "fig8"), ("run_7", "run"), ("12", "12"), ("-3", "-3")],
)
def test_what_an_application_is_called(job: str, application: str) -> None:
    assert application_name(job) == application
