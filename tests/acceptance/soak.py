"""Kills at random instants, by a seed, and what must hold afterwards: nothing lost, doubled, stuck or told wrong.

    python -m tests.acceptance.soak [--seed N] [--minutes M | --kills K] [--local | --pbs]

A real `ejbd` on a real Slurm and a real PostgreSQL (with `--local`, or where they are not installed, on the embedded
cluster and SQLite; with `--pbs` on the fake PBS) gets jobs of all kinds, while the daemon, slurmctld, slurmd, workers,
ranks and the database are killed, stopped and starved, batch jobs cancelled and nodes drained behind the back
(`soaks/faults.py`). Then everything is brought up again, and every job is held against what the batch system's own
records, its program's work and what was done to it say that it should have been told (`soaks/reckoning.py`). The
seed fixes what is done and the pauses in between, not what the machine makes of it. A long soak is many rounds, with
seed + 1, ...; `--kills` goes on until so many processes have been ended by SIGKILL.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx

from tests.acceptance.journeys import NoRanks, ranks_of, ranks_of_all, undisturbed
from tests.acceptance.sites import LocalSite, Site, SlurmSite
from tests.acceptance.soaks.faults import Faults
from tests.acceptance.soaks.reckoning import Left, open_subjobs, wrong_with
from tests.acceptance.soaks.records import Records
from tests.acceptance.soaks.sent import STEPS, Done, Sent, any_kind, post
from tests.fakes.daemon import ROOT, Daemon, until
from tests.fakes.pbs.site import pbs_site
from tests.integration.postgres import PostgresServer
from tests.integration.postgres import why_not as no_postgres
from tests.integration.slurm_clusters import EPILOG, missing_slurm, slurm_cluster

FINAL = frozenset({"completed", "failed", "timeout", "cancelled", "unknown"})
ROUND_S = 240.0  # of a long soak
A_JOB_EVERY_S = 4.0
SUBMITTERS = 3  # users
OPEN_AT_MOST = 7  # jobs; on eight processors
SETTLE_S = 420.0
COMPLETING_S = 300.0  # for so long Slurm may be at the end of a job whose slurmd was killed
READ_OFTEN = {"EJBD_READ_ANEW_S": "3"}  # what the daemon keeps in memory, to be held against the database
ALONE_S = ("0", "4", "10")  # for how long J0's workers look for a daemon before they begin by themselves (0: for ever)
SPOOL_SIZE, DATABASE_SIZE = "256m", "400m"
WRONG = ("lost", "doubled", "stuck", "told wrongly", "left behind")


class Soak:
    """One daemon with its site; `round` as often as one likes."""

    def __init__(
        self,
        folder: Path,
        site: Site,
        postgres: PostgresServer | None = None,
        disks: dict[str, Path] | None = None,
    ) -> None:
        self.folder = folder
        self.site = site
        self.postgres = postgres
        self.disks = disks or {}
        self.url = postgres.new_database() if postgres is not None else ""
        # Workers are killed far oftener than programs fail: nobody is given up for it.
        limits = {"EJBD_LIMITS__MAX_SETBACKS": "1000", "EJBD_LIMITS__MISSING_GRACE_S": "5"}
        top = f'database_url = "{self.url}"\n' if self.url else ""
        self.daemon = Daemon(folder, top + site.toml, {**site.environment, **limits, **READ_OFTEN})
        self.sent: list[Sent] = []
        self.told: list[str] = []
        self.doubled: dict[str, list[str]] = {}
        self.expected = {steps: undisturbed(folder, steps) for steps in STEPS}
        self.jobs, self.alone, self.kinds = 0, 0, Counter[str]()
        self.kills, self.others, self.ends = Counter[str](), Counter[str](), Counter[str]()
        self.records = Records(site)
        self._over = threading.Event()

    # -- life ---------------------------------------------------------------------------------------------------------

    def living(self) -> list[Sent]:
        return [sent for sent in list(self.sent) if sent.over_at is None]

    def up(self) -> None:
        """A daemon that answers, and a database for it; bounded."""
        deadline = time.monotonic() + 90
        while True:
            if self.postgres is not None:
                with suppress(RuntimeError):
                    self.postgres.up()
            if not self.daemon.ended():
                return
            assert time.monotonic() < deadline, f"stuck: the daemon does not stay up\n{self._log()}"
            self.daemon.start()
            if self.daemon.ended():
                time.sleep(0.5)

    def submit(self, sent: Sent) -> None:
        """As a careful client does: the same key and body until it is answered. Nobody else is told the id."""
        deadline = time.monotonic() + SETTLE_S  # it may be away for most of this
        while not sent.id:
            try:
                sent.id = post(sent, self.daemon, self.folder, dict(self.site.layout))
                sent.submitted_at = time.monotonic()
            except (httpx.HTTPError, AssertionError) as error:
                refused = '"status":4' in str(error)
                late = time.monotonic() > deadline
                assert not refused and not late, f"lost: no answer to a submission: {error}\n{self._log()}"
                time.sleep(0.3)

    def _submit_all(self, plan: list[tuple[float, Sent]]) -> None:
        for pause, sent in plan:
            if self._over.wait(pause):
                return
            while len(self.living()) >= OPEN_AT_MOST and not self._over.wait(0.5):
                pass
            if self._over.is_set():
                return
            self.sent.append(sent)
            try:
                self.submit(sent)
            except (httpx.HTTPError, AssertionError) as error:
                self.told.append(str(error))
                return

    def _cancel_due(self) -> None:
        for sent in self.living():
            due = sent.cancel_after_s and time.monotonic() > sent.submitted_at + sent.cancel_after_s
            if sent.id and due and not sent.suffered("cancel"):
                with suppress(httpx.HTTPError):
                    if not sent.suffered("cancel asked"):
                        sent.done.append(Done("cancel asked", sent.id))  # which counts where the answer is lost
                    if self.daemon.client.post(f"/v1/jobs/{sent.id}/cancel").is_success:
                        sent.done.append(Done("cancel", sent.id))

    def _look_all(self, peace: threading.Event) -> None:
        """Who is over, and what the batch system says; until there is peace and all are over."""
        while not peace.wait(1.0):
            self.records.look()
            self._cancel_due()
            for sent in self.living():
                with suppress(httpx.HTTPError, AssertionError):
                    if sent.id and self.daemon.job(sent.id)["state"] in FINAL:
                        sent.over_at = time.monotonic()

    def _watch_all(self, peace: threading.Event) -> None:
        """Whether a rank is there twice."""
        before: dict[tuple[str, int], set[int]] = {}
        others = NoRanks()
        while not peace.wait(0.5):
            found: dict[tuple[str, int], set[int]] = {}
            for job, ranks in ranks_of_all(others=others).items():
                for pid, rank in ranks.items():
                    found.setdefault((job, rank), set()).add(pid)
            for (job, rank), pids in found.items():
                # Looked at twice: while a scan goes on one rank may end and its successor start.
                both = pids & before.get((job, rank), set())
                if len(both) > 1:
                    self.doubled.setdefault(job, []).append(f"rank {rank}: processes {sorted(both)}")
            before = found

    def round(self, seed: int, seconds: float = ROUND_S, pause_s: float = 1.0) -> None:
        """Faults for so long, then peace, then the reckoning. AssertionError says what does not hold, and the seed."""
        dice = random.Random(seed)
        print(f"soak: seed {seed}, {seconds:g} s of faults", flush=True)
        kinds = max(6, round(seconds / A_JOB_EVERY_S))
        slow = seconds >= 60
        plan = [
            (dice.random() * 2 * SUBMITTERS * A_JOB_EVERY_S, any_kind(dice, f"soak-{seed}-{i}", slow))
            for i in range(kinds)
        ]
        plan[0] = (0.0, plan[0][1])  # something is there to be lost, whatever the dice say
        self.sent, self.told, self.doubled = [], [], {}
        self._over.clear()
        # From the next start of the daemon on; J0s that are submitted then have it in their orders.
        self.daemon.environment["EJBD_LIMITS__ALONE_AFTER_S"] = dice.choice(ALONE_S)
        peace = threading.Event()
        faults = Faults(self, seconds)
        parts = [plan[i::SUBMITTERS] for i in range(SUBMITTERS)]
        threads = [
            *(threading.Thread(target=self._submit_all, args=(part,)) for part in parts),
            threading.Thread(target=self._look_all, args=(peace,), name="soak-looks"),
            threading.Thread(target=self._watch_all, args=(peace,), name="soak-watches"),
        ]
        for thread in threads:
            thread.start()
        done: list[str] = []
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(dice.random() * 2 * pause_s)
                done.append(faults.any(dice))
                self.up()
            self._over.set()
            self._make_peace(faults)
            for thread in threads[:SUBMITTERS]:
                thread.join(SETTLE_S + 10)
            assert not self.told, self.told[0]
            self._finish_all()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, after {done}: {error}") from error
        finally:
            self._over.set()
            faults.undo_all()
            self.kills += faults.kills
            self.others += faults.others
            peace.set()
            for thread in threads:
                thread.join(200)
        self.records.look()
        wrong = [*self.told, *self._reckon()]
        self.jobs += len(self.sent)
        self.kinds.update(sent.kind for sent in self.sent)
        assert not wrong, f"seed {seed}, after {done}:\n" + "\n".join(wrong)
        said = ", ".join(f"{name} {count}" for name, count in Counter(done).most_common())
        print(f"soak: seed {seed} held: {len(self.sent)} jobs, {faults.kills.total()} kills; {said}", flush=True)

    def _make_peace(self, faults: Faults) -> None:
        faults.undo_all()
        if isinstance(self.site, SlurmSite):
            self.site.cluster.up_again("--profile=fail")
        self.up()

    def _finish_all(self) -> None:
        """All jobs come to their end; what is left of them goes."""

        def quiet(ready: Callable[[], bool]) -> Callable[[], bool]:
            def asked() -> bool:
                with suppress(httpx.HTTPError):
                    self.up()
                    self._release_held()
                    return ready()
                return False

            return asked

        def states() -> str:
            return "\n".join(
                f"{s.key} {s.kind} {self.daemon.explain(s.id).get('now')}{self.daemon.trace(s.id)()}"
                for s in self.living()
            )

        def left() -> str:
            found = self._left()
            traces = (self.daemon.trace(s.id)() for s in self.sent if s.id and any(s.id in one for one in found))
            return "\n".join((str(found), *traces, str(self.daemon.client.get("/v1/health").json()), self._log()))

        def ended() -> None:
            until(quiet(lambda: not self._left()), "left behind", 120, left)

        until(quiet(lambda: not self.living()), "stuck: jobs do not end", SETTLE_S, lambda: states() + self._log())
        ended()
        with suppress(AssertionError):
            until(quiet(lambda: not self._completing()), "Slurm does not complete", COMPLETING_S)
        if still := self._completing():
            print(f"soak: not ended by Slurm itself within {COMPLETING_S:g} s: {still}", flush=True)
            self.others["a job that Slurm never completes"] += len(still)
        ended()

    def _release_held(self) -> None:
        """As an operator would: what Slurm could not launch on a slurmd that was killed it holds, whoever's it is."""
        if isinstance(self.site, SlurmSite) and (held := self.site.cluster.release_unlaunched()):
            self.others["held by Slurm after a failed launch, released"] += held

    def _completing(self) -> list[str]:
        return self._open_subjobs()[1]

    def _open_subjobs(self) -> tuple[list[str], list[str]]:
        states = {(job.id, job.name): job.state for job in self.site.jobs()}
        found = [open_subjobs(self.daemon.job(sent.id), states) for sent in self.sent]
        return [said for left, _ in found for said in left], [said for _, ending in found for said in ending]

    def _left(self) -> list[str]:
        """What is still there of jobs that are over."""
        ids = tuple(f"ejb-{sent.id}." for sent in self.sent if sent.id)
        found = [
            f"batch job {job.name} {job.state}" for job in self.site.jobs() if job.live and job.name.startswith(ids)
        ]
        found += [f"process {process}" for process in self.daemon.processes()]
        for sent in self.sent:
            found += [f"rank {pid} of {sent.id}" for pid in ranks_of(sent.id, forks=True)]
        found += self._open_subjobs()[0]
        figures = self.daemon.client.get("/metrics").text.splitlines()
        found += [line for line in figures if line.startswith("ejb_intents{") and not line.endswith(" 0.0")]
        return found

    # -- the reckoning ------------------------------------------------------------------------------------------------

    def _reckon(self) -> list[str]:
        """Everything that does not hold, a sentence each."""
        log = self.daemon.log.read_text(errors="replace").splitlines()
        wrong = [f"told wrongly: {line}" for line in log if "working-set-differs" in line]
        listed = [job["id"] for job in self.daemon.client.get("/v1/jobs", params={"limit": 1000}).json()["jobs"]]
        if len({sent.id for sent in self.sent}) != len(self.sent):
            wrong.append("lost: two submissions are one job")
        for sent in self.sent:
            said = f"{sent.key} ({sent.id}, {sent.kind})"
            if listed.count(sent.id) != 1:
                wrong.append(f"{'doubled' if sent.id in listed else 'lost'}: {said} is {listed.count(sent.id)} jobs")
                continue
            left = self._left_of(sent)
            self.ends[left.state] += 1
            stories = self.records.of(sent.id)
            found = list(wrong_with(sent, stories, left))
            if "job.fault" in self.daemon.kinds(sent.id):
                found.append("told wrongly: a fault of EJB")
            if found:
                done = [f"{one.what} {one.to} at {one.at - sent.submitted_at:.1f}" for one in sent.done]
                wrong += [f"{what}: {said}\n  {left}\n  done: {done}\n  records: {stories}" for what in found]
                wrong.append(self.daemon.trace(sent.id)())
        return wrong

    def _left_of(self, sent: Sent) -> Left:
        job = self.daemon.job(sent.id)
        result, runs, output = sent.result(self.folder), sent.runs(self.folder), sent.output(self.folder)
        return Left(
            state=str(job["state"]),
            code=job["exit_code"],
            reason=str(job.get("reason")),
            result=result.read_bytes() == self.expected[sent.steps] if result.exists() else None,
            runs=len(runs.read_text().split()) if runs.exists() else 0,
            output=output.read_text(errors="replace") if output.exists() else None,
            alone=self._alone(sent),
            as_it_is=not job["elastic"],
            j0=frozenset(str(s["batch_id"]) for s in job["subjobs"] if s["role"] == "placeholder"),
            doubled=self.doubled.get(sent.id, ()),
        )

    def _alone(self, sent: Sent) -> str:
        """The tag of the J0 whose workers have begun the job by themselves."""
        said = [str(event["subjob"]) for event in self.daemon.events(sent.id) if event["kind"] == "job.alone"]
        assert len(said) <= 1, f"told wrongly: {sent.id} is taken up {len(said)} times"
        self.alone += len(said)
        return f"ejb-{said[0]}" if said else ""

    def _log(self) -> str:
        return "\n" + self.daemon.log.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        self.daemon.stop()
        self.daemon.client.close()
        self.site.close()


@contextmanager
def _disk(folder: Path, size: str) -> Iterator[bool]:
    """A tmpfs of `size` at `folder`; False where that cannot be, and then nothing there fills up."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    argv = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "ejb-soak", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        print(f"soak: no disk is filled: {done.stderr.strip()}", flush=True)
    try:
        yield not done.returncode
    finally:
        if not done.returncode:
            subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=30)


@contextmanager
def soak_on(folder: Path, on: str = "slurm") -> Iterator[Soak]:
    """A soak that is up, `on` slurm | local | pbs, with PostgreSQL where it is installed and not `local`; says where
    not."""
    with ExitStack() as stack:
        reason = missing_slurm() if on == "slurm" else ""
        if reason:
            print(f"soak: on the embedded cluster ({reason})", flush=True)
        site: Site = LocalSite(folder)
        if on == "slurm" and not reason:
            cluster = stack.enter_context(slurm_cluster(4, 2, "--profile=fail", more=EPILOG))
            cluster.epilog_takes(0)
            site = SlurmSite(cluster, folder)
        elif on == "pbs":
            sys.path.append(str(ROOT / "scripts"))  # as pytest's settings do
            from tests.acceptance.pbs_background import PbsBackground

            pbs = stack.enter_context(pbs_site("openpbs", nodes=4, cpus=2))
            site = PbsBackground(pbs, folder)
        disks: dict[str, Path] = {}
        (folder / "state").mkdir(mode=0o700)
        reason = "asked for" if on == "local" else no_postgres() or ""
        postgres = None
        spool = folder / "state" if reason else folder / "state" / "spool"
        if stack.enter_context(_disk(spool, SPOOL_SIZE)):
            disks["state" if reason else "spool"] = spool
        if reason:
            print(f"soak: on SQLite ({reason})", flush=True)
        else:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ejb-soak-pg-")))
            home.chmod(0o755)
            disk = home / "disk"
            if stack.enter_context(_disk(disk, DATABASE_SIZE)):
                disks["database"] = disk
            postgres = PostgresServer(disk=disk)
            stack.callback(postgres.stop)
        soak = Soak(folder, site, postgres, disks)
        stack.callback(soak.close)
        soak.up()
        yield soak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: any")
    parser.add_argument("--minutes", type=float, help="default: 30; with --kills: 90 at most")
    parser.add_argument("--kills", type=int, help="go on until so many processes have been killed")
    parser.add_argument("--round", type=float, default=ROUND_S, help="seconds of faults between two reckonings")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two faults, on the average")
    parser.add_argument("--local", dest="on", action="store_const", const="local", help="the embedded cluster, SQLite")
    parser.add_argument("--pbs", dest="on", action="store_const", const="pbs", help="the fake PBS")
    options = parser.parse_args()
    for one in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored where a shell put this in the background
        signal.signal(one, lambda signum, _frame: sys.exit(128 + signum))
    began, seed, total = time.monotonic(), options.seed, Totals()
    minutes = options.minutes or (90.0 if options.kills else 30.0)

    def more() -> bool:
        wanted = options.kills is None or total.kills.total() < options.kills
        return wanted and time.monotonic() < began + minutes * 60

    while more():
        with (
            tempfile.TemporaryDirectory(prefix="ejb-soak-", ignore_cleanup_errors=True) as name,
            soak_on(Path(name), options.on or "slurm") as soak,
        ):
            held = True
            while held and more():
                try:
                    soak.round(seed, options.round, options.pause)
                except AssertionError as error:
                    print(f"soak: seed {seed} FAILED: {error}", flush=True)
                    total.wrong_in(str(error))
                    held = False  # on with everything anew
                seed += 1
                total.take(soak)
                print(total.line(time.monotonic() - began), flush=True)
    print(f"soak: seeds {options.seed} to {seed - 1}, {total.failed} failed\n{total.line(time.monotonic() - began)}")
    print(f"soak: kills: {dict(total.kills.most_common())}\nsoak: other faults: {dict(total.others.most_common())}")
    print(f"soak: begun without a daemon: {total.alone}")
    print(f"soak: kinds: {dict(total.kinds.most_common())}\nsoak: told: {dict(total.ends.most_common())}")
    sys.exit(1 if total.failed else 0)


class Totals:
    """The figures of a whole run."""

    def __init__(self) -> None:
        self.kills, self.others, self.kinds, self.ends = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
        self.wrong: Counter[str] = Counter()
        self.failed = self.alone = 0

    def take(self, soak: Soak) -> None:
        for mine, its in (
            (self.kills, soak.kills),
            (self.others, soak.others),
            (self.kinds, soak.kinds),
            (self.ends, soak.ends),
        ):
            mine.update(its)
            its.clear()
        self.alone += soak.alone
        soak.alone = 0

    def wrong_in(self, text: str) -> None:
        self.failed += 1
        found = Counter(word for word in WRONG for line in text.splitlines() if line.startswith(f"{word}:"))
        found.update(word for word in WRONG if f": {word}" in text.splitlines()[0])
        self.wrong.update(found or Counter(["other"]))

    def line(self, seconds: float) -> str:
        figures = ", ".join(f"{word} {self.wrong[word]}" for word in (*WRONG, "other"))
        return (
            f"soak: {self.kinds.total()} jobs, {self.kills.total()} kills, {self.others.total()} other faults in "
            f"{seconds / 60:.1f} min; {figures}"
        )


if __name__ == "__main__":
    main()
