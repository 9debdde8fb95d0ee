"""What the accounts allow, read now and then, and counted on by the listings of each poll in between."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ejbd.batch.slurm.associations import Query, ShowAssociations, ShowPartitions, ShowQos, limits_of
from ejbd.batch.slurm.charging import fair_share, shares_of
from ejbd.core.view import AccountLimit, BatchJobView, BatchState, Counted, FairShare
from ejbd.errors import BatchError

READ_EVERY_S = 60.0
READ_SOONER_S = 15.0  # while a job of ours stands on a limit, or there are new ones: an operator may have changed it
READ_TIMEOUT_S = 10.0  # of each command: a poll waits for them, and what was read last holds
# By all of Slurm's words (22.05): those of a QOS for each account have neither `QOS` nor `Limit` in them.
_SHARED = re.compile(
    r"Licenses|(?:Assoc|QOS)Grp\w+|AssocMax(?:Jobs|SubmitJob)Limit|QOSMax\w+PerUser(?:Limit)?|Max\w+PerAccount"
    r"|(?:Association|QOS)(?:Job|Resource)Limit"
)


def enforced(config: Mapping[str, str]) -> bool:
    """Whether the site's limits keep jobs from starting (AccountingStorageEnforce)."""
    return bool({"limits", "safe"} & set(config.get("AccountingStorageEnforce", "").lower().split(",")))


def is_limit(reason: str) -> bool:
    """Whether Slurm's reason for a pending job is a limit that jobs which run are counted against, or licences.

    What one job alone may have (`AssocMaxCpuPerJobLimit`, `QOSMaxWallDurationPerJobLimit`) does not pass by waiting.
    """
    return _SHARED.fullmatch(reason) is not None


_KINDS = (
    (re.compile(r"SubmitJob|Minutes(?<!RunMinutes)", re.I), None),
    (re.compile(r"JobsLimit|JobsPer|JobLimit", re.I), Counted.JOBS),
    (re.compile(r"CpuRunMinutes", re.I), Counted.PROCESSOR_SECONDS),
    (re.compile(r"Cpu", re.I), Counted.PROCESSORS),
    (re.compile(r"Node", re.I), Counted.NODES),
)


def kind_of(reason: str) -> Counted | None:
    """Of what kind the limit is that Slurm names as the reason; None: of another one, or it is no limit."""
    return next((kind for words, kind in _KINDS if words.search(reason)), None) if is_limit(reason) else None


class AccountLimits:
    """`look` once a poll. What could not be read is reported, and what was read last holds."""

    def __init__(self, query: Query, user: str, uid: int, timeout_s: float) -> None:
        self._query = query
        self._user = user
        self._uid = uid
        self._timeout_s = min(timeout_s, READ_TIMEOUT_S)
        self._asked_s = -math.inf  # by the monotonic clock
        self._elsewhere: list[tuple[AccountLimit, float]] = []  # with what is used that listings do not show
        self._waited: set[str] = set()  # jobs of ours that waited then
        self.unknown = ""
        self.fair: FairShare | None = None  # the accounts' shares, and what they had used when that was read

    async def look(self, config: Mapping[str, str], jobs: Sequence[BatchJobView]) -> tuple[AccountLimit, ...]:
        """The limits with what is used of them now, by the jobs that were listed just now."""
        if not enforced(config) and not fair_share(config):
            self.fair, self._elsewhere = None, []
            return ()
        counts = _Counts(jobs)
        ours = {job.id for job in jobs if not job.foreign and job.state is BatchState.PENDING}
        stands = not ours <= self._waited or any(job.limited and job.id in ours for job in jobs)
        if time.monotonic() - self._asked_s >= (READ_SOONER_S if stands else READ_EVERY_S):
            self._asked_s, self._waited = time.monotonic(), ours
            await self._read(config, counts)
        return tuple(replace(one, used=max(0.0, elsewhere + counts.of(one))) for one, elsewhere in self._elsewhere)

    async def _read(self, config: Mapping[str, str], counts: _Counts) -> None:
        associations = ShowAssociations(self._user, self._timeout_s)
        qos, partitions = ShowQos(self._timeout_s), ShowPartitions(self._timeout_s)
        try:
            text = await self._query(associations.argv(), associations.timeout_s, "tell the limits of its accounts")
            known, qualities = associations.parse(text)
            self.fair = shares_of(known, config)
            if not enforced(config):
                self.unknown, self._elsewhere = "", []
                return
            of_partitions = partitions.parse(
                await self._query(partitions.argv(), partitions.timeout_s, "tell the QOS of its partitions")
            )
        except BatchError as error:
            self.unknown = error.sentence() if enforced(config) else ""
            self.fair = self.fair or shares_of((), config)
            return
        allowed: dict[str, dict[str, str]] = {}
        self.unknown = ""
        try:
            allowed = qos.parse(await self._query(qos.argv(), qos.timeout_s, "tell what its QOS allow"))
        except BatchError as error:
            self.unknown = error.sentence()
        safe = "safe" in config.get("AccountingStorageEnforce", "").lower().split(",")
        limits = limits_of(known, qualities, allowed, of_partitions, self._user, self._uid, safe=safe)
        self._elsewhere = [(one, one.used - counts.of(one)) for one in limits]


class _Counts:
    """What the listed jobs use of limits. Of 20,000 jobs there are few kinds, and each is counted once."""

    def __init__(self, jobs: Iterable[BatchJobView]) -> None:
        self._sums: dict[tuple[str, str, str, bool], dict[Counted, float]] = {}
        for job in jobs:
            if job.state.ended:
                continue
            sums = self._sums.setdefault((job.account, job.qos, job.queue, job.foreign), {})
            sums[Counted.SUBMITTED] = sums.get(Counted.SUBMITTED, 0.0) + 1.0
            if job.state in (BatchState.RUNNING, BatchState.SUSPENDED, BatchState.ENDING):
                for counted, count in (
                    (Counted.JOBS, 1.0),
                    (Counted.PROCESSORS, float(job.processors)),
                    (Counted.NODES, float(len(job.nodes))),
                    (Counted.PROCESSOR_SECONDS, job.processors * (job.walltime_s or 0.0)),
                ):
                    sums[counted] = sums.get(counted, 0.0) + count

    def of(self, limit: AccountLimit) -> float:
        return sum(sums.get(limit.counted, 0.0) for kind, sums in self._sums.items() if limit.counts(*kind))
