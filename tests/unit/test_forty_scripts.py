"""Forty scripts in the manner of public ones, and what becomes of each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ejbd.manager.jobspec import JobRequest, read

SCRIPTS = Path(__file__).resolve().parents[1] / "forty"
# What only an ordinary job can be, and the reason that its user is told. All others are elastic.
PASSED_THROUGH = {
    "coupled": "line 3: a heterogeneous job",
    "openfoam-ibrun": "line 6: `ibrun` is no launcher that EJB can stand for",
    "packing": "line 7: a launch in the background",
    "python-dask": "line 5: a launch in the background",
    "torch-one": "line 4: an elastic job cannot keep --gpus-per-task",
    "python-pool": "script: the script starts nothing by srun",
    "torchrun": "line 12: a launch is told names of the job's nodes",
}
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.sh"))


def why_not_elastic(name: str) -> str:
    """The first reason, as an answer to a submission gives it; "" where the job is elastic."""
    path = SCRIPTS / f"{name}.sh"
    refusals = read(JobRequest(cwd="/home/ada", script=path.read_text(), script_name=path.name)).refusals
    return f"{refusals[0].where}: {refusals[0].message}" if refusals else ""


@pytest.mark.parametrize("name", NAMES)
def test_a_script_is_taken_as_the_table_says(name: str) -> None:
    why = why_not_elastic(name)
    wanted = PASSED_THROUGH.get(name, "")
    assert why.startswith(wanted) and bool(why) is bool(wanted), why


def test_most_of_forty_scripts_are_elastic() -> None:
    count = Counter("passed through" if why_not_elastic(name) else "elastic" for name in NAMES)
    assert len(NAMES) == 40 and count["elastic"] == 33, count
