"""Limits and shares of Slurm's accounts on a real Slurm of 8 x 4: nothing of an elastic job stands in the way of its
own J0, or costs it its place."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ejbd.batch.slurm.adapter import SlurmBatch
from ejbd.batch.slurm.limits import is_limit
from ejbd.core.sitelimits import Limits
from tests.fakes.daemon import FAST, Daemon, until
from tests.fakes.me import ME
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("limits-slurm")]
POLL_S = 0.5
EVERY = os.environ.get("EJB_TEST_SCRIPTS") == "all"  # every limit: some twenty seconds each
ENFORCED = "AccountingStorageEnforce=associations,limits,qos\n"
FAIR = "PriorityType=priority/multifactor\nPriorityWeightFairshare=100000\nPriorityCalcPeriod=1\n"


@dataclass
class Site:
    """`ours` is the account of the elastic jobs, which has the limits; others' jobs run in `others`."""

    cluster: SlurmCluster
    folder: Path
    daemon: Daemon

    def limit(self, *words: str, account: str = "ours") -> None:
        """Change limits of the user in an account (-1: none), and wait until the controller knows."""
        self.cluster.run("sacctmgr", "-i", "modify", "user", ME.user, "where", f"account={account}", "set", *words)

    def limit_qos(self, *words: str) -> None:
        self.cluster.run("sacctmgr", "-i", "modify", "qos", "normal", "set", *words)

    def limit_account(self, *words: str) -> None:
        self.cluster.run("sacctmgr", "-i", "modify", "account", "where", "name=ours", "set", *words)

    def filler(self, processors: int, minutes: int = 30, ends: str = "end") -> str:
        """Somebody else's job, which ends when it is told to."""
        script = f"while [ ! -e {self.folder}/{ends} ]; do sleep 0.1; done"
        id = self.cluster.sbatch(f"-n{processors}", f"-t{minutes}", "--account=others", script=script)
        self.cluster.until(lambda: self.cluster.states()[id] == "RUNNING", "the filler does not run")
        return id

    def end_filler(self, ends: str = "end") -> None:
        (self.folder / ends).touch()

    def submit(self, steps: int = 200, ranks: int = 32, time: str = "4:00", account: str = "ours") -> str:
        """It can be moved. Without steps it sleeps: of ranks that nothing moves there are many, and they cost most."""
        if not steps:
            return self.daemon.submit("sleep", "3", ranks=ranks, time=time, overrides={"account": account})
        heat = self.daemon.heat(steps, self.folder / "result", pace="50ms", size=64)
        return self.daemon.submit(*heat, ranks=ranks, time=time, overrides={"account": account})

    def j0(self, job: str) -> dict[str, Any]:
        """{"batch_id": None} before it is planned."""
        found = [s for s in self.daemon.job(job)["subjobs"] if s["role"] == "placeholder"]
        return found[0] if found else {"batch_id": None}

    def subjobs(self, job: str) -> list[dict[str, Any]]:
        return [s for s in self.daemon.job(job)["subjobs"] if s["role"] == "subjob"]

    def standing(self, j0: str) -> tuple[str, list[str]]:
        """Why J0 waits ("None": it does not), and what else of its account there is, in one answer of squeue's."""
        rows = self.cluster.run("squeue", "--noheader", "--account=ours", "--format=%i %T %r").splitlines()
        listed = {id: (state, reason) for id, state, reason in (row.split(maxsplit=2) for row in rows)}
        waits = listed.pop(j0, ("", "None"))
        return waits[1], [f"{id} {state}" for id, (state, _) in listed.items()]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm(accounting=True):
        pytest.skip(reason)
    with slurm_cluster(8, 4, "--profile=acct", more=ENFORCED + FAIR) as cluster:
        cluster.run("sacctmgr", "-i", "add", "qos", "ejb", "UsageFactor=0")
        for account in ("ours", "others", "poor", "rivals"):
            cluster.run("sacctmgr", "-i", "add", "account", account)
            cluster.run("sacctmgr", "-i", "add", "user", ME.user, f"account={account}")
        cluster.run("sacctmgr", "-i", "modify", "user", ME.user, "set", "qos+=ejb")
        yield cluster


@pytest.fixture
def site(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Site]:
    settings = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n{FAST}'
    daemon = Daemon(tmp_path, settings, {"SLURM_CONF": str(cluster.conf)})
    site = Site(cluster, tmp_path, daemon)
    site.limit("MaxJobs=-1", "MaxSubmitJobs=-1", "GrpTRES=cpu=-1", "GrpJobs=-1")
    try:
        yield site
    finally:
        daemon.stop()
        cluster.empty()


@pytest.mark.nightly("unit/test_manager_limits.py has it on the fake world")
def test_a_limit_that_leaves_one_job_leaves_it_to_j0(site: Site) -> None:
    """A subjob on what is free would take the only slot, and J0 stand on AssocMaxJobsLimit on an idle cluster."""
    site.limit("MaxJobs=1")
    site.daemon.start()
    site.filler(28)
    job = site.submit()
    until(lambda: bool(site.j0(job)["batch_id"]), "J0 was not submitted", 60, site.daemon.trace(job))
    until(lambda: "MaxJobs" in site.daemon.explain(job)["now"], "the limit is not named", 60, site.daemon.trace(job))
    print(site.daemon.explain(job)["now"])
    assert site.subjobs(job) == []
    site.end_filler()
    site.daemon.wait(job, "completed", timeout_s=180)
    assert site.subjobs(job) == [] and "AssocMaxJobsLimit" not in str(site.daemon.events(job))


@pytest.mark.nightly("unit/test_manager_limits.py has it; the next one reads limits of a real Slurm")
def test_what_runs_is_given_back_where_j0_could_start_but_for_it(site: Site) -> None:
    """The limit is lowered while a subjob runs: J0 stands on it as soon as there is room, and gets its way."""
    site.limit("MaxJobs=2")
    site.daemon.start()
    site.filler(28)
    job = site.submit(steps=1500)
    site.daemon.wait(job, "running", timeout_s=60)
    until(lambda: [s["state"] for s in site.subjobs(job)] == ["running"], "no subjob", 60, site.daemon.trace(job))
    site.limit("MaxJobs=1")
    site.end_filler()
    until(lambda: site.j0(job)["state"] == "running", "J0 does not start", 120, site.daemon.trace(job))
    (subjob,) = site.subjobs(job)
    assert subjob["state"] in ("completed", "cancelled"), subjob
    told = [e["data"] for e in site.daemon.events(job) if e["kind"] == "decision.suspend"]
    print(told[0]["reason"])
    assert "AssocMaxJobsLimit" in told[0]["reason"]


def test_the_limits_of_all_users_are_told_for_a_replay(site: Site) -> None:
    site.limit("MaxJobs=3", "GrpTRES=cpu=17")
    site.limit_qos("MaxTRESPerUser=cpu=30")
    try:
        rules = asyncio.run(SlurmBatch(conf=site.cluster.conf).site_rules())
    finally:
        site.limit_qos("MaxTRESPerUser=cpu=-1")
    limits = Limits(rules)
    takes = limits.takes(ME.user, ("ours", "normal"), "batch", 5, 60.0, 4)
    assert rules.knows(ME.user) and not rules.knows("mallory")
    assert sorted((limits.most[one.limit], one.amount) for one in takes if one.held) == [(3, 1), (17, 5), (30, 5)]
    takes = limits.takes(ME.user, ("others", "normal"), "batch", 5, 60.0, 4)
    assert [(limits.most[one.limit], one.amount) for one in takes if one.held] == [(30, 5)]


LIMITS = {
    "MaxJobs": ("user", "MaxJobs=1"),
    "MaxSubmitJobs": ("user", "MaxSubmitJobs=1"),
    "GrpTRES": ("user", "GrpTRES=cpu=32"),
    "GrpJobs": ("user", "GrpJobs=1"),
    "MaxTRESPerUser of the QOS": ("qos", "MaxTRESPerUser=cpu=33"),
    "MaxJobsPerUser of the QOS": ("qos", "MaxJobsPerUser=1"),
    "MaxJobsPerAccount of the QOS": ("qos", "MaxJobsPerAccount=1"),
    "MaxTRESPerAccount of the QOS": ("qos", "MaxTRESPerAccount=cpu=32"),
    "GrpTRES of the QOS": ("qos", "GrpTRES=cpu=60"),
    "GrpTRES of nodes": ("user", "GrpTRES=node=8"),
    "GrpTRESRunMins": ("user", "GrpTRESRunMins=cpu=64"),
    "GrpTRES of the account": ("account", "GrpTRES=cpu=32"),
    "GrpJobs of the account": ("account", "GrpJobs=1"),
}
USUAL = ("GrpTRES",)


@pytest.mark.nightly("unit/test_manager_limits.py has it for each limit; the one before reads those of a real Slurm")
@pytest.mark.parametrize("limit", [
    pytest.param(name, marks=() if EVERY or name in USUAL else pytest.mark.skip(reason="EJB_TEST_SCRIPTS is not all"))
    for name in LIMITS
])  # fmt: skip
def test_an_elastic_job_begins_when_a_rigid_one_would_under_any_limit(site: Site, limit: str) -> None:
    """Four processors are free beside somebody's job, then all: under no limit does J0 stand on it together with
    anything else of its job. A rigid job would stand on it likewise by whatever else the user runs, as he does here."""
    whose, words = LIMITS[limit]
    change = {"user": site.limit, "qos": site.limit_qos, "account": site.limit_account}[whose]
    change(words)
    try:
        site.daemon.start()
        site.filler(28)
        job = site.submit(steps=0, time="2:00")
        until(lambda: bool(site.j0(job)["batch_id"]), "J0 was not submitted", 60, site.daemon.trace(job))
        time.sleep(6 * POLL_S)  # the time in which a subjob would be asked for
        assert site.subjobs(job) == [], "what could never start beside J0 was asked for"
        site.end_filler()
        stood: list[tuple[str, list[str]]] = []

        def over() -> bool:
            stood.append(site.standing(site.j0(job)["batch_id"]))
            return bool(site.daemon.job(job)["state"] == "completed")

        until(over, "it did not complete", 180, site.daemon.trace(job))
        print(limit, "J0:", sorted({reason for reason, _ in stood}))
        in_its_way = [(reason, own) for reason, own in stood if is_limit(reason) and own]
        assert in_its_way == [], "J0 stood on the limit beside what its own job runs on"
    finally:
        change(words.rpartition("=")[0] + "=-1")


@pytest.mark.nightly("unit/test_manager_limits.py has the place of J0; unit/test_slurm_limits.py the answers")
def test_a_rival_does_not_take_the_place_that_j0_has_by_its_fair_share(site: Site) -> None:
    """Two accounts that have used nothing, and a job of each that waits for all processors, J0 first. By the first
    thing that J0's account is charged for the other goes first: no subjob, but one under a QOS that charges nobody."""
    site.daemon.start()
    site.filler(28, minutes=5)
    site.filler(4, minutes=5, ends="first")
    job = site.submit(account="poor")
    until(lambda: bool(site.j0(job)["batch_id"]), "J0 was not submitted", 60, site.daemon.trace(job))
    rival = site.cluster.sbatch("-n32", "-t5", "--account=rivals", script="sleep 30")
    # Of a J0 for which Slurm has planned no start yet nothing is known that could be lost.
    until(lambda: bool(site.j0(job)["planned_start_s"]), "J0 is not planned", 60, site.daemon.trace(job))
    site.end_filler("first")
    goes_first = f"job {rival} of {ME.user} would go first"
    until(lambda: goes_first in site.daemon.explain(job)["now"], "it is not told", 60, site.daemon.trace(job))
    print(site.daemon.explain(job)["now"])
    assert site.subjobs(job) == []
    site.daemon.client.patch("/v1/queues/batch", json={"subjob_qos": "ejb"}).raise_for_status()
    until(lambda: [s["state"] for s in site.subjobs(job)] == ["running"], "no subjob", 60, site.daemon.trace(job))
    id = site.subjobs(job)[0]["batch_id"]
    assert site.cluster.run("squeue", "--noheader", "--format=%q", f"--jobs={id}").strip() == "ejb"
