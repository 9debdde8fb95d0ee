"""One project of docker-compose.yml: brought up, asked, broken, and taken down."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from composed.engine import Engine
from composed.shell import BUSY, Wrong, run, until, works

ROOT = Path(__file__).resolve().parents[2]
FILES = ("docker-compose.yml", "deploy/docker/small-spool.yml")
BUILT = ("munge", "mariadb", "ejbd", "prometheus")  # a service of each image
SERVICES = ("munge", "mariadb", "slurmdbd", "slurmctld", "c1", "c2", "c3", "postgres", "helper", "ejbd", "client")
METRICS = ("token", "prometheus")
GRAFANA = "grafana"
# The users of the jobs, and what they compute.
HEAT = ("python3", "/opt/examples/heat.py", "--pace", "20ms")


class Project:
    def __init__(self, engine: Engine, name: str, subnet: str) -> None:
        self.engine, self.name, self.subnet = engine, name, subnet
        self._env = {**engine.env, "EJB_SUBNET": subnet}
        self._ids: dict[str, str] = {}
        self._files = [str(ROOT / one) for one in FILES]
        if engine.folder:
            # A private engine has no bridge to the outside: what an image is built from comes over the host's network.
            hosts = engine.folder / "host-network.yml"
            hosts.write_text("services:\n" + "".join(f"  {one}: {{build: {{network: host}}}}\n" for one in BUILT))
            self._files.append(str(hosts))

    def compose(self, *words: str, bound_s: float = 120, fails: bool = False) -> str:
        files = [word for one in self._files for word in ("-f", one)]
        head = [*self.engine.compose, "--project-directory", str(ROOT), *files, "-p", self.name]
        return run([*head, *words], bound_s, env=self._env, fails=fails)

    def build(self) -> None:
        try:
            self.compose("build", "--quiet", "--parallel", *BUILT, bound_s=600)
        except Wrong:
            # One more try: a package source may have been away for a moment.
            self.compose("build", *BUILT, bound_s=600)

    def up(self) -> None:
        """All services, each healthy by its own check: the loop that `--wait` of Compose v2 makes unnecessary."""
        self.compose("up", "-d", *SERVICES, bound_s=300)
        for one in SERVICES:
            self.healthy(one)

    def down(self) -> None:
        self.compose(
            "--profile",
            "demo",
            "--profile",
            "metrics",
            "down",
            "--volumes",
            "--remove-orphans",
            "--timeout",
            "3",
            fails=True,
        )

    def container(self, *words: str) -> None:
        """`kill -s KILL`, `start`, `stop` or `restart` and a service: of its container, as Compose does it.

        Without Compose, which costs a second of a processor to start.
        """
        *verb, service = words
        self.engine.run(*verb, self.id_of(service), bound_s=120)

    def id_of(self, service: str) -> str:
        if service not in self._ids:
            labels = (f"project={self.name}", f"service={service}", "oneoff=False")
            words = [word for one in labels for word in ("--filter", f"label=com.docker.compose.{one}")]
            found = self.engine.run("ps", "--all", "--quiet", *words).split()
            if not found:
                raise Wrong(f"there is no container of {service}")
            self._ids[service] = found[0]
        return self._ids[service]

    def healthy(self, service: str, bound_s: float = 150) -> None:
        """Wait until the service's own check says so."""
        form = "{{.State.Running}} {{.State.Health.Status}}"

        def told() -> bool:
            said = self.engine.run("inspect", "--format", form, self.id_of(service)).strip()
            if said.startswith("false"):
                raise Wrong(f"{service} has ended: {self.last_words(service)}")
            return said == "true healthy"

        until(f"{service} is healthy", told, bound_s)

    def last_words(self, service: str) -> str:
        words = ["sh", "-c", 'exec "$@" 2>&1', "sh", *self.engine.docker, "logs", "--tail", "12", self.id_of(service)]
        done = run(words, 30, env=self._env, fails=True)
        return done.strip()

    def metrics(self) -> tuple[str, ...]:
        """Bring up what looks at the daemon's figures; the services that are up then."""
        more: tuple[str, ...] = METRICS
        images = self.compose("--profile", "metrics", "config")
        image = next(line.split()[1] for line in images.splitlines() if "grafana/grafana" in line)
        if self.engine.pulled(image):
            more = (*METRICS, GRAFANA)
        self.compose("--profile", "metrics", "up", "-d", *more, bound_s=200)
        return more

    def inside(self, service: str, *words: str) -> str:
        """What a command prints in the container of a service."""
        return self.engine.run("exec", self.id_of(service), *words, fails=True)

    # What people type in the client's container.

    def _words(self, user: str, words: Sequence[str]) -> list[str]:
        return ["exec", "-u", user, "-w", "/tmp" if user == "root" else f"/home/{user}", self.id_of("client"), *words]

    def ask(self, user: str, *words: str, bound_s: float = 60, fails: bool = False) -> str:
        return self.engine.run(*self._words(user, words), bound_s=bound_s, fails=fails)

    def refused(self, user: str, *words: str) -> bool:
        return not works([*self.engine.docker, *self._words(user, words)], 60, self._env)

    def submit(
        self, result: str, steps: int, ranks: int = 16, minutes: int = 2, *options: str, user: str = "alice"
    ) -> str:
        words = ["ejb", "submit", "--parsable", "-n", str(ranks), "-t", str(minutes), "--engine", "application"]
        words += [*options, "--", *HEAT, "--steps", str(steps), "--result", result]
        return self.ask(user, *words).strip()

    def status(self, job: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.ask("ops", "ejb", "status", job, "--json"))
        return told

    def events(self, job: str) -> list[dict[str, Any]]:
        told: dict[str, Any] = json.loads(self.ask("ops", "ejb", "events", job, "--json"))
        found: list[dict[str, Any]] = told["events"]
        return found

    def seen(self, job: str, *kinds: str) -> bool:
        return bool({event["kind"] for event in self.events(job)} & set(kinds))

    def count(self, job: str, kind: str) -> int:
        return sum(event["kind"] == kind for event in self.events(job))

    def computing(self, job: str, bound_s: float = 120, after: int = 0) -> None:
        """Wait until the ranks of the job run, in a placement beyond the first `after`."""
        until(f"ranks of {job} run", lambda: self.count(job, "epoch.running") > after, bound_s)

    def past_step(self, job: str, step: int, user: str = "alice", bound_s: float = 60) -> None:
        """Wait until rank 0 is past that step. Then as many ranks, and one more, have met their neighbours."""
        words = ("find", f"/spool/{user}/.ejb", "-path", f"*{job}*", "-name", "*.progress", "-exec", "cat", "{}", "+")

        def told() -> bool:
            return any(int(line.split()[0]) > step for line in self.ask(user, *words, fails=True).splitlines())

        until(f"{job} is past step {step}", told, bound_s)

    def completed(self, job: str, result: str, steps: int, bound_s: float = 300, user: str = "alice") -> None:
        """The job ends well, and its result is to the last bit that of an undisturbed run."""
        words = ("ejb", "wait", "--quiet", "--timeout", f"{BUSY * bound_s:.0f}", job)
        self.ask("ops", *words, bound_s=bound_s + 30, fails=True)  # it ends as the job does
        until(f"{job} ends", lambda: bool(self.status(job)["end_s"]), 10)
        told = self.status(job)
        if told["state"] != "completed":
            last = [f"{event['kind']} {event['data']}" for event in self.events(job)[-8:]]
            raise Wrong("\n".join([f"{job} is {told['state']}: {told['reason']}", *last]))
        # Of alice alone; bob sees it where homes are open, as those of these images are.
        self.ask(user, "cmp", result, f"/home/alice/undisturbed-{steps}")

    def submit_other(self, node: str, processors: int, minutes: int = 30) -> str:
        """An ordinary job of bob's."""
        words = [
            "sbatch",
            "--parsable",
            "--no-requeue",
            f"-w{node}",
            f"-n{processors}",
            f"-t{minutes}",
            "-o",
            "/dev/null",
        ]
        return self.ask("bob", *words, "--wrap", "sleep 3600").strip()

    def end_others(self) -> None:
        mine = ("-u", "bob", "-n", "wrap")  # those of submit_other, by the name that sbatch gives them
        self.ask("bob", "scancel", *mine)
        until("bob's jobs are gone", lambda: not self.ask("bob", "squeue", "-h", *mine).strip(), 40)

    def node(self, name: str) -> str:
        """What Slurm says of a node."""
        return self.ask("root", "sinfo", "-hn", name, "-o", "%T").strip()


def free_subnets(count: int) -> list[str]:
    """As many networks (three numbers of an address) that this machine has no route to."""
    taken = run(["ip", "-4", "route"], 20, fails=True) if os.path.exists("/sbin/ip") else ""  # noqa: PTH110
    found = [f"172.30.{number}" for number in range(26, 200) if f"172.30.{number}." not in taken]
    return found[:count]
