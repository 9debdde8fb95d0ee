"""A private OpenPBS: server, its database, scheduler and communication on one host, and a mom on each node."""

from __future__ import annotations

import json
from pathlib import Path

from clusters.errors import ClusterError
from clusters.pbs import HEAD, Pbs, job_environment, last_line
from clusters.programs import until

_QUEUE = """\
create queue batch queue_type=execution,enabled=True,started=True
set server default_queue = batch
set server flatuid = True
set server acl_roots = root
set server query_other_jobs = True
set server job_history_enable = True
set server backfill_depth = 10
set server scheduler_iteration = 20
set server scheduling = True
"""
_SCHEDULER = {"strict_ordering": "true ALL", "backfill_prime": "false ALL", "preemptive_sched": "false ALL"}


class OpenPbs(Pbs):
    """From `pbs_server` on PATH, in the `sbin` of where OpenPBS was installed."""

    batch = "openpbs"
    title = "OpenPBS"
    server = "pbs_server.bin"
    sign = "libexec/pbs_habitat"
    commands = (
        *("qsub", "qstat", "qdel", "qalter", "qhold", "qrls", "qsig", "qmgr", "qrun", "qrerun"),
        *("pbsnodes", "pbs_rstat", "pbs_rsub", "pbs_rdel"),
    )

    def environment(self, host: str) -> dict[str, str]:
        return {"PBS_CONF_FILE": str(self._conf(host))}

    def _conf(self, host: str) -> Path:
        return self.home(host).parent / "pbs.conf"

    def prepare(self, host: str) -> None:
        folder, home, serves = self.prefix(), self.home(host), int(host == HEAD)
        home.parent.mkdir(parents=True, exist_ok=True)
        lines = {
            "PBS_EXEC": folder,
            "PBS_HOME": home,
            "PBS_SERVER": HEAD,
            "PBS_START_SERVER": serves,
            "PBS_START_SCHED": serves,
            "PBS_START_COMM": serves,
            "PBS_START_MOM": 1 - serves,
            "PBS_SCP": "/bin/cp",
            "PBS_CORE_LIMIT": 0,
        }
        self._conf(host).write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        if (home / "server_priv" / "db_user" if serves else home / "mom_priv" / "config").exists():
            return
        habitat = str(folder / "libexec" / "pbs_habitat")
        done = self.hosts.run(host, habitat, environment=self.full_environment(host), timeout=120)
        if not serves:
            (home / "mom_priv" / "config").write_text(f"$clienthost {HEAD}\n$usecp *:/ /\n$restrict_user False\n")
            own = f"PBS_CONF_FILE={self._conf(host)}\n"
            (home / "pbs_environment").write_text(job_environment(folder) + own)
        elif done.returncode:
            log = self.directory / "log" / "commands.log"
            raise ClusterError(f"pbs_habitat: {last_line(done.stdout)}; see {log}")
        else:
            _set_scheduler(home / "sched_priv" / "sched_config")

    def start_head(self) -> None:
        for daemon in ("pbs_comm", "pbs_sched", "pbs_server"):
            self.start(HEAD, daemon)
        until("the server did not answer", lambda: bool(self.command("qstat", "-Bf")), 60, self.directory, "commands")
        if "batch" not in self.command("qstat", "-Q"):
            settings = self.settings
            numbers = range(1, settings["nodes"] + 1)
            nodes = "".join(f"create node n{i} resources_available.ncpus={settings['cpus']}\n" for i in numbers)
            self.command("qmgr", text=_QUEUE + nodes)

    def answering(self) -> int:
        try:
            nodes = json.loads(self.command("pbsnodes", "-a", "-F", "json")).get("nodes", {})
        except ValueError:
            return 0
        return sum(node.get("state") in ("free", "job-busy", "job-exclusive") for node in nodes.values())


def _set_scheduler(file: Path) -> None:
    """As sites set it that plan the starts of waiting jobs: without strict ordering no job is protected."""
    kept = [line for line in file.read_text().splitlines() if line.partition(":")[0].strip() not in _SCHEDULER]
    file.write_text("\n".join([*kept, *(f"{name}: {value}" for name, value in _SCHEDULER.items())]) + "\n")
