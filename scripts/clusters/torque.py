"""A private Torque: server, trqauthd and Maui (or else Torque's own pbs_sched) on one host, and a mom on each node.

What Torque and Maui keep is where they were told when they were built: every host has a folder of its own mounted
there, which is not seen outside the host.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

from clusters.errors import ClusterError
from clusters.pbs import HEAD, Pbs, holder, job_environment, last_line
from clusters.programs import until

_QUEUE = f"""\
create queue batch queue_type=execution
set queue batch enabled = True
set queue batch started = True
set server default_queue = batch
set server acl_roots = root@*
set server query_other_jobs = True
set server keep_completed = 300
set server node_check_rate = 60
set server tcp_timeout = 30
set server job_stat_rate = 10
set server poll_jobs = True
set server mom_job_sync = True
set server scheduler_iteration = 20
set server submit_hosts = {HEAD}
set server scheduling = True
"""
# Torque's qsub takes nothing from user 0, whatever the server says: on the hosts root has a second number.
_AGAIN = 65533
_AS_AGAIN = f"setpriv --reuid={_AGAIN} --inh-caps=+dac_override --ambient-caps=+dac_override "
_OPEN, _SHUT, _STICKY = 0o755, 0o750, 0o1777
_FOLDERS = {
    **dict.fromkeys(("aux", "job_logs", "mom_logs", "sched_logs", "server_logs"), _OPEN),
    **dict.fromkeys(("spool", "checkpoint", "undelivered"), _STICKY),
    **dict.fromkeys(("mom_priv", "mom_priv/jobs"), 0o751),
    **dict.fromkeys(("sched_priv", "server_priv"), _SHUT),
    **dict.fromkeys(("server_priv/accounting", "sched_priv/accounting"), _OPEN),
    **{
        f"server_priv/{name}": _SHUT
        for name in (
            *("jobs", "hostlist", "queues", "arrays", "credentials", "disallowed_types"),
            *("acl_svr", "acl_hosts", "acl_users", "acl_groups"),
        )
    },
}
# What they say of themselves every 45 s otherwise comes too late for the server's look at them on a busy machine.
_MOM = f"$pbsserver {HEAD}\n$usecp *:/ /\n$status_update_time 10\n"
# Every waiting job has a planned start, and what a job asks for in several groups of nodes is understood.
_MAUI = f"""\
SERVERHOST {HEAD}
ADMIN1 root
RMCFG[base] TYPE=PBS
SERVERPORT 42559
SERVERMODE NORMAL
RMPOLLINTERVAL 00:00:05
LOGFILE maui.log
LOGLEVEL 1
QUEUETIMEWEIGHT 1
BACKFILLPOLICY FIRSTFIT
RESERVATIONPOLICY CURRENTHIGHEST
RESERVATIONDEPTH 10
NODEALLOCATIONPOLICY MINRESOURCE
NODEACCESSPOLICY SHARED
ENABLEMULTIREQJOBS TRUE
JOBNODEMATCHPOLICY EXACTNODE
"""


class Torque(Pbs):
    """From `pbs_server` on PATH, in the `sbin` of where Torque was installed; with Maui where `maui` is on PATH."""

    batch = "torque"
    title = "Torque"
    server = "pbs_server"
    sign = "sbin/trqauthd"
    more_users = f"root:x:{_AGAIN}:0::/root:/bin/sh\n"
    commands = ("qsub", "qstat", "qdel", "qalter", "qhold", "qrls", "qsig", "qmgr", "qrun", "qrerun", "pbsnodes")
    maui_commands = (
        *("showbf", "showq", "showres", "showstart", "checkjob", "checknode", "diagnose"),
        *("setres", "releaseres"),
    )

    @classmethod
    def maui(cls) -> Path | None:
        """Where Maui is installed, if it is."""
        return holder("maui", "bin/showbf")

    def _kept(self) -> str:
        """Where this build keeps what it has to keep."""
        argv = [str(self.prefix() / "sbin" / "pbs_server"), "--about"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        for line in done.stdout.splitlines():
            name, _, value = line.partition(":")
            if name.strip().lower() == "serverhome":
                return value.strip()
        raise ClusterError(f"pbs_server --about tells no Serverhome: {last_line(done.stdout + done.stderr)}")

    @property
    def _maui_home(self) -> Path:
        return self.home(HEAD).parent / "maui"

    def environment(self, host: str) -> dict[str, str]:
        """Maui's commands read where it is; Torque's read it where it was told when it was built."""
        return {"MAUIHOMEDIR": str(self._maui_home)} if host == HEAD and self.maui() else {}

    def prepare(self, host: str) -> None:
        home = self.home(host)
        if not home.exists():
            for name, mode in {"": _OPEN, **_FOLDERS}.items():
                (home / name).mkdir(parents=True)
                (home / name).chmod(mode)
            (home / "server_name").write_text(f"{HEAD}\n")
            (home / "pbs_environment").write_text(job_environment(self.prefix()))
            (home / "mom_priv" / "config").write_text(_MOM)
            if host == HEAD and self.maui():
                for name in ("", "log", "spool", "stats", "tools", "traces"):
                    (self._maui_home / name).mkdir()
                (self._maui_home / "maui.cfg").write_text(_MAUI)
        self.mount(host, home, self._kept())

    def under(self, command: str) -> str:
        return _AS_AGAIN if command == "qsub" else ""

    def start_head(self) -> None:
        self.start(HEAD, "trqauthd")
        new = not (self.home(HEAD) / "server_priv" / "serverdb").exists()
        self.start(HEAD, "pbs_server", *(["-f", "-t", "create"] if new else []))
        until("the server did not answer", lambda: bool(self.command("qstat", "-Bf")), 60, self.directory, "commands")
        if "batch" not in self.command("qstat", "-Q"):
            settings = self.settings  # a new server forgets a file with nodes
            nodes = "".join(f"create node n{i} np={settings['cpus']}\n" for i in range(1, settings["nodes"] + 1))
            self.command("qmgr", text=_QUEUE + nodes)
        if folder := self.maui():
            self.start(HEAD, "maui", folder=folder / "sbin")
        else:
            self.start(HEAD, "pbs_sched")

    def answering(self) -> int:
        try:
            states = [node.findtext("state", "") for node in ElementTree.fromstring(self.command("pbsnodes", "-x"))]
        except ElementTree.ParseError:
            return 0
        return sum(state in ("free", "job-exclusive", "busy") for state in states)

    def write_commands(self, folder: Path, names: tuple[str, ...]) -> None:
        super().write_commands(folder, names)
        if not (own := self.directory / "bin" / "pbsdsh").is_symlink():
            own.symlink_to(folder / "pbsdsh")  # for jobs, on their nodes
        if maui := self.maui():
            super().write_commands(maui / "bin", self.maui_commands)
