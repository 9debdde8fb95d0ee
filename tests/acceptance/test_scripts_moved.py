"""Batch scripts whose launches move: on a fragment, grown, handed over to J0, started again behind their launches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import undisturbed
from tests.acceptance.scripting import Others, Site, local_site, said
from tests.fakes.daemon import HEAT, until

pytestmark = pytest.mark.xdist_group("scripts-moved")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with local_site(tmp_path_factory.mktemp("moved")) as site:
        yield site


@pytest.fixture
def others(site: Site) -> Iterator[Others]:
    """4 of 16 processors are idle; a job of 8 would wait for `block`, whose end nobody foresees."""
    others = Others(site)
    until(lambda: not others.unfinished(), "the job before has left something", 30)
    others.hold("block", 8)
    others.hold("filler", 4, 900)
    yield others
    others.end()


def heat(steps: int, name: str, size: int = 8) -> str:
    """A launch line; each rank computes for 50 ms a step while two share a processor."""
    return f'srun -n {size} "{sys.executable}" "{HEAT}" --size 16 --steps {steps} --pace 25ms --result {name}'


def epochs(site: Site, id: str) -> list[tuple[int, int, str]]:
    """(launch, processors, subjobs' numbers) of each placement that was launched, in order."""
    found = [e["data"] for e in site.daemon.events(id) if e["kind"] == "epoch.launching"]
    return [(e["launch"], e["processors"], "".join(s.rpartition(".")[2] for s in e["subjobs"])) for e in found]


def states(site: Site, id: str) -> dict[int, str]:
    return {s["ordinal"]: s["state"] for s in site.daemon.job(id)["subjobs"]}


def events(site: Site, id: str, kind: str) -> list[dict[str, Any]]:
    return [e for e in site.daemon.events(id) if e["kind"] == kind]


def output(site: Site, id: str) -> list[str]:
    return (site.folder / f"ejb-{id}.out").read_text().splitlines()


def ran(site: Site, name: str) -> list[str]:
    """What a script's side effects noted down."""
    path = Path(site.folder / name)
    return path.read_text().split() if path.exists() else []


def test_grows_in_the_middle_of_a_launch(site: Site, others: Others) -> None:
    steps = 160
    id = site.submit(
        f"""\
        #!/bin/bash
        #SBATCH --job-name=grows --ntasks=8 --time=2
        #EJB engine=application
        echo preamble $MINE
        echo body >> grows.txt
        {heat(steps, "grown")}
        echo "code $?"
        srun -n 2 echo after
        exit 5
        """,
        env={"MINE": "as submitted"},
    )
    site.daemon.wait_event(id, "epoch.running")
    others.end("filler")
    site.daemon.wait_event(id, "epoch.running", 2)
    assert site.daemon.wait(id)["exit_code"] == 5
    lines = output(site, id)
    assert lines[0] == "preamble as submitted"
    assert lines[-3:] == ["code 0", "after", "after"]
    assert ran(site, "grows.txt") == ["body"]
    assert epochs(site, id) == [(0, 4, "1"), (0, 8, "12"), (1, 2, "12")]
    assert (site.folder / "grown").read_bytes() == undisturbed(site.folder, steps, 16)


@pytest.mark.nightly("unit/test_manager_journey.py keeps it; test_scripts_slurm.py has a real script")
def test_the_anchor_is_kept_until_the_script_ends(site: Site, others: Others) -> None:
    steps = 120
    id = site.submit(
        f"""\
        #!/bin/bash
        #SBATCH --ntasks=8 --time=2
        #EJB engine=application lambda=0
        echo body >> anchored.txt
        {heat(steps, "anchored")}
        echo "code $?"
        echo $EJB_SUBJOB_ID > where
        until [ -e go-on ]; do sleep 0.1; done
        srun echo last
        """
    )
    site.daemon.wait_event(id, "epoch.running")
    others.end("block")
    until(lambda: (site.folder / "where").exists(), "the launch did not end", 60, lambda: str(site.daemon.events(id)))
    assert states(site, id) == {0: "running", 1: "running"}
    assert ran(site, "where") == [f"{id}.1"]
    (site.folder / "go-on").touch()
    assert site.daemon.wait(id)["state"] == "completed"
    assert [(e[0], e[2]) for e in epochs(site, id)] == [(0, "1"), (0, "0"), (1, "0")]
    assert ran(site, "anchored.txt") == ["body"]
    assert output(site, id)[-9:] == ["code 0", *["last"] * 8]
    assert (site.folder / "anchored").read_bytes() == undisturbed(site.folder, steps, 16)
    until(lambda: others.unfinished() == ["filler"], "a subjob is left", 30)


@pytest.mark.nightly(
    "integration/test_worker_script.py starts one again; unit/test_manager_begun_again.py leads the next"
)
def test_a_restartable_script_is_started_again_behind_its_launches(site: Site, others: Others) -> None:
    steps = 200
    id = site.submit(
        f"""\
        #!/bin/bash
        #SBATCH --ntasks=8 --time=2
        #EJB restartable engine=application lambda=0  # a move pays, whatever little has been done
        echo "the shell says this in each run"
        echo body >> again.txt
        srun -n 2 sh -c 'echo rank >> again.txt; echo first launch'
        srun -n 2 sh -c 'exit 3'
        echo "the second launch ended with $?"
        srun -n 2 echo redirected > redirected.txt
        srun "{sys.executable}" counter.py {steps}
        echo "code $?"
        cat redirected.txt
        srun -n 2 echo last
        """
    )
    until(lambda: len(epochs(site, id)) == 4, "the fourth launch did not begin", 60)
    site.daemon.wait_event(id, "epoch.running", 4)
    others.end("block")
    assert site.daemon.wait(id)["state"] == "completed"
    assert [(e[0], e[2]) for e in epochs(site, id)] == [*[(n, "1") for n in range(4)], (3, "0"), (4, "0")]
    assert len(events(site, id, "lead.appointed")) == 2
    until(lambda: others.unfinished() == ["filler"], "a subjob is left", 30)
    assert ran(site, "again.txt") == ["body", "rank", "rank", "body"]
    lines = output(site, id)
    counted = [line for line in lines if " step " in line]
    assert sorted(counted) == sorted(f"rank {r} step {s}" for r in range(8) for s in range(steps)), "each line once"
    assert [line for line in said("\n".join(lines)) if line not in set(counted)] == [
        *["the shell says this in each run", "first launch", "first launch", "the second launch ended with 3"],
        *["the shell says this in each run", "the second launch ended with 3"],
        *["code 0", "redirected", "redirected", "last", "last"],
    ]


@pytest.mark.nightly("unit/test_manager_setbacks.py has it on the fake world")
def test_a_restartable_script_survives_the_loss_of_its_subjob(site: Site, others: Others) -> None:
    id = site.submit(
        f"""\
        #!/bin/bash
        #SBATCH --ntasks=8 --time=2
        #EJB restartable engine=application
        echo body >> lost.txt
        srun -n 2 sh -c 'echo rank >> lost.txt'
        {heat(80, "lost")}
        echo "code $?"
        """
    )
    until(lambda: len(epochs(site, id)) == 2, "the second launch did not begin", 60)
    batch_id = next(s["batch_id"] for s in site.daemon.job(id)["subjobs"] if s["ordinal"] == 1)
    others.cancel_batch_job(batch_id)
    assert site.daemon.wait(id)["state"] == "completed"
    assert ran(site, "lost.txt") == ["body", "rank", "rank", "body"]
    assert output(site, id)[-1] == "code 0"
    assert (site.folder / "lost").read_bytes() == undisturbed(site.folder, 80, 16)


@pytest.mark.nightly("unit/test_manager_setbacks.py and test_manager_begun_again.py have it on the fake world")
def test_an_ordinary_script_ends_with_its_anchor(site: Site, others: Others) -> None:
    id = site.submit(
        f"""\
        #!/bin/bash
        #SBATCH --ntasks=8 --time=2
        #EJB engine=application
        echo body >> gone.txt
        {heat(800, "gone")}
        """
    )
    site.daemon.wait_event(id, "epoch.running")
    batch_id = next(s["batch_id"] for s in site.daemon.job(id)["subjobs"] if s["ordinal"] == 1)
    others.cancel_batch_job(batch_id)
    job = site.daemon.wait(id)
    assert job["state"] == "failed"
    assert "held the script" in job["reason"]
    assert ran(site, "gone.txt") == ["body"]


@pytest.mark.nightly("unit/test_manager_journey.py has one without an engine")
def test_without_an_engine_it_is_never_moved(site: Site, others: Others) -> None:
    id = site.submit(
        f"""\
        #!/bin/bash
        #SBATCH --ntasks=8 --time=2
        #EJB engine=none
        {heat(60, "unmoved")}
        echo "code $?"
        """
    )
    site.daemon.wait_event(id, "epoch.running")
    others.end("filler")
    assert site.daemon.wait(id)["state"] == "completed"
    assert epochs(site, id) == [(0, 4, "1")]
    assert output(site, id)[-1] == "code 0"


def test_nothing_is_left(site: Site) -> None:
    until(lambda: not site.daemon.processes(), "a worker, a script or a rank is left", 30)
