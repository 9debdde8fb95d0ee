"""What an operator tries (deploy/docker/README.md), each with what is to be seen, and with the result of every job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from composed.project import HEAT, Project
from composed.shell import Steps, Wrong, say, until

SHORT, LONG = 600, 1500  # steps of 20 ms: seconds at full width, twice and four times as long over-subscribed
AWAY_S = 65  # for how long the daemon is away while J0 starts
RESERVATION = "servicing"


def undisturbed(project: Project) -> None:
    """The result that every job has to have: without EJB, without a pause, and undisturbed."""
    words = [one for one in HEAT if one not in ("--pace", "20ms")]
    for steps in (SHORT, LONG):
        options = ("--steps", str(steps), "--result", f"undisturbed-{steps}", "--spawn", "2")
        project.ask("alice", *words, *options, bound_s=180)


def crowd(project: Project) -> None:
    """Bob leaves four processors of c2 and four of c3: sixteen ranks run on them over-subscribed, and J0 waits."""
    for node, processors in (("c1", 16), ("c2", 12), ("c3", 12)):
        project.submit_other(node, processors)
    until("bob's jobs run", lambda: project.ask("bob", "squeue", "-hu", "bob", "-o", "%t").split() == ["R"] * 3, 40)


def restarts(project: Project) -> None:
    """Controller, daemon and database restarted under one elastic job: none of them costs it anything."""
    job = project.submit("restarts", LONG, 16, 5)
    project.computing(job)

    project.container("restart", "slurmctld")
    project.healthy("slurmctld")
    say("controller restarted; the job runs on")

    project.container("kill", "-s", "KILL", "ejbd")
    project.container("start", "ejbd")
    project.healthy("ejbd")
    say("ejbd killed and restarted; the job runs on")

    project.container("stop", "postgres")
    if not project.refused("alice", "ejb", "submit", "-n", "2", "--wrap", "true"):
        raise Wrong("a submission was taken while the database was away")
    say("PostgreSQL stopped: a submission is refused")
    project.container("start", "postgres")
    project.healthy("postgres")
    project.healthy("ejbd")
    project.end_others()
    project.completed(job, "restarts", LONG)
    if project.seen(job, "job.setback", "epoch.failed"):
        raise Wrong(f"{job} was set back")
    say(f"{job}: completed, bit-identical")


def node_killed(project: Project) -> None:
    """A node dies under an elastic job: it goes on from its last checkpoint on what is left."""
    job = project.submit("node-killed", SHORT, 16, 5, "--checkpoint", "4")
    project.computing(job, after=1)  # one checkpoint has been made
    victim = next(one for one in ("c3", "c2") if one in str(project.status(job)["subjobs"]))
    before = project.count(job, "epoch.running")
    project.container("kill", "-s", "KILL", victim)
    say(f"{victim} killed")
    project.computing(job, 240, after=before)
    say(f"{job} runs again, without {victim}")
    until(f"Slurm calls {victim} down", lambda: project.node(victim).startswith("down"), 90)
    project.container("start", victim)
    until(f"{victim} is back", lambda: project.node(victim) in ("idle", "mixed", "allocated"), 60)
    project.end_others()
    project.completed(job, "node-killed", SHORT)
    say(f"{job}: completed, bit-identical, after {project.count(job, 'epoch.running')} placements; {victim} is back")


def daemon_away(project: Project) -> None:
    """The daemon is away for a minute and more, and J0 starts meanwhile: the job begins without it."""
    for node in ("c1", "c2", "c3"):
        project.submit_other(node, 16)
    job = project.submit("daemon-away", SHORT)
    until("J0 waits in Slurm", lambda: bool(project.ask("alice", "squeue", "-hu", "alice").strip()), 40)
    project.container("kill", "-s", "KILL", "ejbd")
    gone = time.monotonic()
    project.end_others()
    say("ejbd killed while J0 waits; now J0 starts")
    states = ("squeue", "-hu", "alice", "-t", "running")
    until("J0 runs", lambda: bool(project.ask("alice", *states).strip()), 40)
    time.sleep(max(0.0, AWAY_S - (time.monotonic() - gone)))
    project.container("start", "ejbd")
    project.healthy("ejbd")
    project.completed(job, "daemon-away", SHORT)
    if not project.seen(job, "job.alone"):
        raise Wrong(f"{job} did not begin alone")
    say(f"{job}: began alone on J0 while ejbd was away for {AWAY_S} s; completed, bit-identical")


def spool_full(project: Project) -> None:
    """The spool's volume is full: what runs goes on, what is submitted waits until there is room."""
    job = project.submit("spool-full", LONG, 16, 5, "--checkpoint", "6")
    project.computing(job)
    project.past_step(job, 16)  # ranks that have not met yet find each other through files of the spool
    project.ask("alice", "sh", "-c", "head -c 100M /dev/zero >/spool/alice/fill || true")
    say("the spool is full")
    until("a worker says so", lambda: "No space left" in str(project.events(job)), 60)
    late = project.submit("spool-full-late", SHORT)
    until("its submission is postponed", lambda: project.seen(late, "intent.postponed"), 40)
    say("the job runs on, its worker says that there is no space; another submission is kept and postponed")
    project.ask("alice", "rm", "/spool/alice/fill")
    project.end_others()
    project.completed(job, "spool-full", LONG)
    project.completed(late, "spool-full-late", SHORT)
    say(f"{job}, {late}: completed, bit-identical")


def drained(project: Project) -> None:
    """A node is drained, in Slurm and in EJB: the job leaves it in time, with its work."""
    job = project.submit("drained", LONG, 16, 5)
    project.computing(job)
    project.ask("root", "scontrol", "update", "nodename=c3", "state=drain", "reason=servicing")
    project.ask("ops", "ejb", "drain", "c3", "--by", "now+30seconds")
    gone = "squeue -hu alice -t running -w c3"
    until("c3 has no job of alice's", lambda: not project.ask("alice", *gone.split()).strip(), 60)
    say("c3 is drained: alice's job has left it")
    project.ask("ops", "ejb", "drain", "c3", "--cancel")
    project.ask("root", "scontrol", "update", "nodename=c3", "state=resume")
    project.end_others()
    project.completed(job, "drained", LONG)
    say(f"{job}: completed, bit-identical")


def maintenance(project: Project) -> None:
    """A maintenance is announced: room ends with it, and what does not fit before it is suspended with its work."""
    words = [
        f"reservationname={RESERVATION}",
        "starttime=now+150",
        "duration=30",
        "nodes=ALL",
        "flags=maint,ignore_jobs",
    ]
    project.ask("root", "scontrol", "create", "reservation", *words, "user=root")
    try:
        until("the window ends by it", lambda: RESERVATION in project.ask("alice", "ejb", "window", "batch"), 90)
        say(next(line for line in project.ask("alice", "ejb", "window", "batch").splitlines() if RESERVATION in line))
        job = project.submit("maintenance", SHORT, 16, 10)
        project.computing(job)
        say(f"{job}, which asks for 10 minutes, runs before it")
    finally:
        project.ask("root", "scontrol", "delete", f"reservationname={RESERVATION}")
    project.completed(job, "maintenance", SHORT)
    say(f"{job}: completed, bit-identical")


def two_users(project: Project) -> None:
    """Alice and bob hand jobs in at once: each runs as its user, and neither reaches what is the other's."""
    crowd(project)
    jobs = {user: project.submit("two-users", SHORT, 4, user=user) for user in ("alice", "bob")}
    for user, job in jobs.items():
        project.computing(job)
        rows = project.ask("root", "squeue", "-hu", user, "-o", "%k %u").splitlines()
        if not any(row.split()[:1] and row.startswith(f"ejb-{job}.") and row.split()[-1] == user for row in rows):
            raise Wrong(f"no batch job of {job} is {user}'s: {rows}")
        spool = project.ask(user, "find", f"/spool/{user}/.ejb", "!", "-user", user)
        if spool:
            raise Wrong(f"files in the spool of {user} that are not {user}'s: {spool}")
    for user, other in (("alice", "bob"), ("bob", "alice")):
        for words in (
            ("ejb", "cancel", jobs[other]),
            ("ejb", "status", jobs[other]),
            ("ls", f"/spool/{other}/.ejb"),
        ):
            if not project.refused(user, *words):
                raise Wrong(f"{user} was not refused: {' '.join(words)}")
    both = project.ask("ops", "ejb", "status", "--all-users", "--all")
    if any(job not in both for job in jobs.values()):
        raise Wrong(f"the administrator does not see both: {both}")
    project.end_others()
    for user, job in jobs.items():
        project.completed(job, "two-users", SHORT, user=user)
    say(f"{jobs}: each ran as its user, completed, bit-identical; neither could see or cancel the other's")


def measured(project: Project) -> None:
    """Prometheus reads what the daemon measures, and has the alert rules; Grafana has the board, where it is had."""
    more = project.metrics()
    for service in more:
        project.healthy(service)
    end = "http://127.0.0.1:9090/api/v1"
    up = ("curl", "-fsS", f"{end}/query?query=up%7Bjob%3D%22ejb%22%7D")
    until("Prometheus reads from ejbd", lambda: '"1"]' in project.inside("prometheus", *up), 60)
    rules = project.inside("prometheus", "curl", "-fsS", f"{end}/rules")
    firing = project.inside("prometheus", "curl", "-fsS", f"{end}/alerts")
    if "EjbAway" not in rules or '"firing"' in firing:
        raise Wrong(f"rules: {rules[:300]}; alerts: {firing[:300]}")
    if "grafana" not in more:
        say("skipped: grafana: no registry gives its image here")
    say("Prometheus reads ejbd's figures with the administrator's token; no alert fires")


NAMED: dict[str, tuple[Callable[[Project], None], ...]] = {
    "controller, daemon and database restarted": (crowd, restarts),
    "alice and bob at once": (two_users,),
    "what is measured": (measured,),
    "the daemon away while J0 starts": (daemon_away,),
    "a node killed": (crowd, node_killed),
    "the spool full": (crowd, spool_full),
    "a node drained": (crowd, drained),
    "a maintenance announced": (maintenance,),
}


def play(project: Project, steps: Steps, names: Iterable[str]) -> None:
    """These faults, one after the other."""
    project.ask("ops", "ejb", "queue", "set", "batch", "elasticity=on")
    undisturbed(project)
    for name in names:
        with steps.step(f"fault: {name}"):
            for part in NAMED[name]:
                part(project)
