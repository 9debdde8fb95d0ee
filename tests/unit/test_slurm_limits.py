"""Limits of accounts as Slurm tells them (recorded outputs of 22.05.8), and reasons that are limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ejbd.batch.slurm.associations import ShowAssociations, ShowPartitions, ShowQos, limits_of
from ejbd.batch.slurm.charging import Charge, examine
from ejbd.batch.slurm.limits import AccountLimits, enforced, is_limit, kind_of
from ejbd.batch.slurm.siterules import rules_of, show_associations, show_qos
from ejbd.core.sitelimits import Limits
from ejbd.core.view import AccountLimit, BatchJobView, BatchState, Counted, FairShare, Share
from ejbd.errors import BatchError

RECORDED = Path(__file__).parent / "recorded" / "slurm-22.05"
ASSOCIATIONS = (RECORDED / "assoc_mgr.txt").read_text()
QOS = (RECORDED / "qos.txt").read_text()
ENFORCED = {"AccountingStorageEnforce": "associations,limits,qos"}


def recorded(partitions: str = "", *, safe: bool = False, text: str = ASSOCIATIONS) -> dict[str, AccountLimit]:
    found = limits_of(
        *ShowAssociations("root").parse(text),
        ShowQos().parse(QOS),
        ShowPartitions().parse(partitions),
        "root",
        0,
        safe=safe,
    )
    return {limit.name: limit for limit in found}


def test_recorded_limits() -> None:
    """Two jobs run: 4 processors in account root under QOS normal, 2 in account proj under QOS ejb."""
    assert {name: (one.counted, one.most, one.used) for name, one in recorded().items()} == {
        "GrpTRES=cpu of QOS normal": (Counted.PROCESSORS, 24, 4),
        "MaxJobsPU of QOS normal, root": (Counted.JOBS, 3, 1),
        "MaxSubmitJobsPU of QOS normal, root": (Counted.SUBMITTED, 7, 1),
        "MaxTRESPU=cpu of QOS normal, root": (Counted.PROCESSORS, 16, 4),
        "MaxJobs of root in account root": (Counted.JOBS, 2, 1),
        "MaxSubmitJobs of root in account root": (Counted.SUBMITTED, 5, 1),
        "MaxTRESPJ=cpu of root in account root": (Counted.OF_A_JOB, 30, 0),
        "MaxWallPJ of root in account root": (Counted.WALLTIME_S, 3600, 0),
        "GrpTRES=cpu of root in account root": (Counted.PROCESSORS, 20, 4),
        "GrpJobs of account root": (Counted.JOBS, 9, 2),
        "GrpTRES=cpu of account proj": (Counted.PROCESSORS, 40, 2),
    }


def test_whose_jobs_a_limit_counts() -> None:
    found = recorded()
    assert set(found["GrpJobs of account root"].accounts) == {"root", "proj", "other"}, "and all below it"
    mine = found["MaxJobs of root in account root"]
    assert mine.own and mine.other_rules == ("normal",), "that QOS has a MaxJobs of its own for each user"
    assert mine.holds_for("root", "ejb", "batch") and not mine.holds_for("root", "normal", "batch")
    assert mine.counts("root", "normal", "batch") and not mine.counts("root", "ejb", "batch", foreign=True)


def test_a_user_without_jobs_has_the_limits_of_a_qos_too() -> None:
    """The controller tells of a QOS's users only while they have jobs in it."""
    gone = ASSOCIATIONS[: ASSOCIATIONS.index("    Account Limits")] + "    User Limits\n        No Users\n"
    found = recorded(text=gone)
    assert (found["MaxJobsPU of QOS normal, root"].most, found["MaxJobsPU of QOS normal, root"].used) == (3, 0)
    assert found["MaxTRESPU=cpu of QOS normal, root"].most == 16


def test_the_qos_of_a_partition_holds_for_all_of_its_jobs() -> None:
    line = "PartitionName=batch AllowQos=ALL Default=YES QoS=normal MaxTime=UNLIMITED\nPartitionName=free QoS=N/A\n"
    one = recorded(line)["GrpTRES=cpu of QOS normal"]
    assert one.holds_for("any", "ejb", "batch") and not one.holds_for("any", "ejb", "free")


def test_minutes_of_processors_count_where_the_site_lets_nothing_exceed_them() -> None:
    text = ASSOCIATIONS.replace("GrpTRESMins=cpu=N(", "GrpTRESMins=cpu=100(", 1)
    assert not any("GrpTRESMins" in name for name in recorded(text=text))
    one = recorded(safe=True, text=text)["GrpTRESMins=cpu of account root"]
    assert (one.counted, one.most) == (Counted.PROCESSOR_SECONDS, 6000)
    assert one.used == 1200, "what the one that runs may still use"


@pytest.mark.parametrize(
    ("reason", "limit"),
    [
        ("AssocMaxJobsLimit", True),
        ("AssocGrpCpuLimit", True),
        ("AssocGrpNodeLimit", True),
        ("AssocGrpMemLimit", True),
        ("AssocGrpCPUMinutesLimit", True),
        ("QOSMaxJobsPerUserLimit", True),
        ("QOSMaxCpuPerUserLimit", True),
        ("QOSGrpCpuLimit", True),
        ("QOSMaxGRESPerUser", True),
        ("AssocGrpGRES", True),
        ("AssocGrpBillingMinutes", True),
        ("AssocGrpLicense", True),
        ("QOSGrpMemoryRunMinutes", True),
        ("MaxCpuPerAccount", True),
        ("MaxJobsPerAccount", True),
        ("MaxSubmitJobsPerAccount", True),
        ("Licenses", True),
        ("AssocMaxNodePerJobLimit", False),
        ("AssocMaxGRESPerNode", False),
        ("QOSMaxCpuPerNode", False),
        ("QOSMinGRES", False),
        ("QOSTimeLimit", False),
        ("MaxMemPerLimit", False),
        ("AssocMaxCpuPerJobLimit", False),
        ("QOSMaxWallDurationPerJobLimit", False),
        ("QOSMinCpuNotSatisfied", False),
        ("Priority", False),
        ("Resources", False),
        ("Dependency", False),
        ("BeginTime", False),
        ("PartitionTimeLimit", False),
        ("None", False),
    ],
)
def test_reasons_that_are_limits(reason: str, limit: bool) -> None:
    assert is_limit(reason) is limit


def test_limits_that_nobody_enforces_are_not_read() -> None:
    assert enforced(ENFORCED) and enforced({"AccountingStorageEnforce": "safe"})
    assert not enforced({"AccountingStorageEnforce": "associations,qos"}) and not enforced({})


class Slurm:
    """Answers the three commands, and counts them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = ""

    async def query(self, argv: Sequence[str], timeout_s: float, doing: str) -> str:
        self.asked.append(argv[0])
        if self.fails and self.fails in argv:
            raise BatchError(f"Slurm did not {doing}", transient=True)
        return {"assoc_mgr": ASSOCIATIONS, "qos": QOS}.get(next((w for w in argv if w in ("assoc_mgr", "qos")), ""), "")


RUNS = BatchJobView(
    "3", "wrap", "root", "batch", BatchState.RUNNING, 4, 300.0, nodes=("n1",), account="root", qos="normal"
)
WAITS = BatchJobView("5", "x", "root", "batch", BatchState.PENDING, 4, 300.0, account="root", qos="normal")


async def test_between_two_readings_listings_count_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("ejbd.batch.slurm.limits.time.monotonic", lambda: now)
    slurm = Slurm()
    limits = AccountLimits(slurm.query, "root", 0, 20.0)

    async def used(*jobs: BatchJobView) -> float:
        found = await limits.look(ENFORCED, jobs)
        return next(one.used for one in found if one.name == "MaxJobs of root in account root")

    assert await used(RUNS) == 1 and len(slurm.asked) == 3
    now = 10.0
    another = BatchJobView("6", "y", "root", "batch", BatchState.RUNNING, 4, 300.0, account="root", qos="normal")
    assert await used(RUNS, another) == 2 and await used() == 0 and len(slurm.asked) == 3
    assert await used(RUNS, WAITS) == 1 and len(slurm.asked) == 3, "a new job waits, but not so soon"
    now = 16.0
    await used(RUNS, WAITS)
    now = 40.0
    await used(RUNS, WAITS)
    assert len(slurm.asked) == 6
    now = 80.0
    slurm.fails = "assoc_mgr"
    assert await used(RUNS, WAITS) == 1 and "did not tell the limits of its accounts" in limits.unknown
    assert await limits.look({}, [RUNS]) == ()


async def test_what_a_qos_allows_may_stay_unknown() -> None:
    slurm = Slurm()
    slurm.fails = "qos"
    limits = AccountLimits(slurm.query, "root", 0, 20.0)
    assert await limits.look(ENFORCED, [RUNS]) and limits.unknown == "Slurm did not tell what its QOS allow"


async def test_shares_are_read_where_priorities_go_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fields as 22.05 tells them under priority/multifactor; limits need not be enforced."""
    shares = ASSOCIATIONS.replace("18446744073709551616.00", "0.33").replace("=0.00/1.00/0.00", "=487.97/1.00/1.00")

    async def query(argv: Sequence[str], timeout_s: float, doing: str) -> str:
        assert "assoc_mgr" in argv
        return shares

    limits = AccountLimits(query, "root", 0, 20.0)
    assert await limits.look(FAIR, [RUNS]) == ()
    assert limits.fair == FairShare(
        100_000.0, used=487.97, shares=(Share("other", 0.33, 487.97), Share("proj", 0.33, 487.97))
    )
    assert await limits.look({}, [RUNS]) == () and limits.fair is None
    limits = AccountLimits(query, "root", 0, 20.0)
    classic = FAIR | {"PriorityFlags": "NO_FAIR_TREE", "FairShareDampeningFactor": "3"}
    await limits.look(classic, [RUNS])
    assert limits.fair is not None and (limits.fair.by_rank, limits.fair.damping) == (False, 3.0)


FAIR = {"PriorityType": "priority/multifactor", "PriorityWeightFairShare": "100000"}


@pytest.mark.parametrize(
    ("charge", "config", "good", "says"),
    [
        (Charge("batch"), {}, None, ""),
        (Charge("batch"), FAIR, True, "sacctmgr -i add qos ejb UsageFactor=0"),
        (Charge("batch", "ejb"), FAIR, True, "charged to QOS ejb, UsageFactor 0"),
        (Charge("batch", "ejb", "proj"), FAIR, True, "charged to QOS ejb, UsageFactor 0, proj"),
        (Charge("batch", "normal"), FAIR, False, "sacctmgr -i modify qos normal set UsageFactor=0"),
        (Charge("batch", "normal"), {}, True, "charged to QOS normal"),
        (Charge("batch", "gone"), FAIR, False, "sacctmgr -i modify user root set qos+=gone"),
        (Charge("batch", "", "gone"), FAIR, False, "sacctmgr -i add user root account=gone"),
    ],
)
async def test_doctor_says_what_makes_the_qos_and_the_account_of_subjobs(
    charge: Charge, config: dict[str, str], good: bool | None, says: str
) -> None:
    async def query(argv: Sequence[str], timeout_s: float, doing: str) -> str:
        return QOS if "qos" in argv else "proj|ejb,normal\nroot|ejb,normal\n"

    found = await examine([charge], config, query, "root", 20.0)
    if good is None:
        assert found == []
    else:
        ((_, is_good, text),) = found
        assert is_good is good and says in text


def test_limits_of_a_whole_site_by_account_user_and_qos() -> None:
    """As sacctmgr of Slurm 22.05 prints them: a user has the MaxJobs of the account, where there is none of its own."""
    associations = "\n".join(
        [
            "root|||||||",
            "phys|||root||3|cpu=16,node=4|",
            "lab|||phys||||",
            "lab|eve||||||",
            "phys|bob|||2||cpu=8|cpu=60",
            "phys|bob|debug||1|||",
        ]
    )
    qos = "normal||||2|cpu=12||\nlong|5|||||1|node=2"
    rules = rules_of(show_associations(1).parse(associations), show_qos(1).parse(qos), {"long": ("slow", "slower")})
    assert rules.users == {"eve", "bob"} and not rules.knows("mallory")
    limits = Limits(rules)

    def held(user: str, account: str, qos: str, queue: str = "batch") -> list[tuple[float, float]]:
        takes = limits.takes(user, (account, qos), queue, 6, 120.0, 4)
        return sorted((limits.most[one.limit], one.amount) for one in takes if one.held)

    of_phys = [(3, 1), (4, 2), (16, 6)]  # jobs, nodes and processors of the account, with all below it
    assert held("eve", "lab", "none") == of_phys
    assert held("eve", "lab", "normal") == sorted([*of_phys, (2, 1), (12, 6)])
    # Bob's own: jobs, processors and running processor minutes; in one partition another number of jobs.
    assert held("bob", "phys", "none") == sorted([*of_phys, (2, 1), (8, 6), (3600, 720)])
    assert (1, 1) in held("bob", "phys", "none", "debug")
    # A QOS's limit on each user's jobs takes the place of his own, and a partition's QOS holds for all in it.
    assert held("bob", "phys", "normal").count((2, 1)) == 1
    assert held("eve", "lab", "none", "slow") == sorted([*of_phys, (5, 1), (1, 1), (2, 2)])
    mine, hers = (limits.takes(user, ("lab", "normal"), "batch", 1, 1.0, 4) for user in ("eve", "bob"))
    assert {one.limit for one in mine} != {one.limit for one in hers}, "each user has a limit of a QOS's own"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("QOSMaxJobsPerUserLimit", Counted.JOBS),
        ("AssocMaxJobsLimit", Counted.JOBS),
        ("AssocGrpCpuLimit", Counted.PROCESSORS),
        ("QOSMaxCpuPerUserLimit", Counted.PROCESSORS),
        ("QOSGrpNodeLimit", Counted.NODES),
        ("AssocGrpCPURunMinutesLimit", Counted.PROCESSOR_SECONDS),
        ("AssocGrpCPUMinutesLimit", None),
        ("AssocGrpGRES", None),
        ("Licenses", None),
        ("Resources", None),
    ],
)
def test_of_what_kind_the_limit_is_that_slurm_names(reason: str, kind: Counted | None) -> None:
    assert kind_of(reason) is kind
