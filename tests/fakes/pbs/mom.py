"""The mother superior of one job and her sisters, in one process that outlives the server: `mom.py FOLDER NUMBER`.

Runs the script in a session of its own, starts tasks for pbsdsh (each in one of its own, with almost no environment),
ends it all at the walltime, and leaves how the script ended in NUMBER.end. What has made a session for itself is out of
its reach, as with a real one.

A deletion is a TERM, and a KILL later. OpenPBS kills at once what runs on other nodes than the first. Of Torque's TERM
the shell dies that stands around the script: that was all of the job, and what is left is killed.

`mom.py FOLDER NUMBER again` is one that was killed and started again, as Torque's: the processes of the job are no
children of hers, so that she sees when they are gone, and tells of no exit code.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path


def main(folder: Path, number: str, again: bool) -> None:
    base = folder / "jobs" / number
    spec = json.loads(base.with_suffix(".json").read_text())
    os.setsid()
    base.with_suffix(".pid").write_text(str(os.getpid()))
    listener = socket.socket(socket.AF_UNIX)
    path = base.with_suffix(".sock")
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    listener.listen(64)
    mom = Mom(spec, base)
    if again:
        mom.adopt()
    else:
        mom.start()
    threading.Thread(target=mom.serve, args=(listener,), daemon=True).start()
    status = mom.wait()
    path.unlink(missing_ok=True)
    deliver(spec, base)
    temporary = base.with_suffix(".tmp")
    temporary.write_text(json.dumps({"status": status, "end_s": time.time()}))
    temporary.replace(base.with_suffix(".end"))


class Mom:
    def __init__(self, spec: dict, base: Path) -> None:  # type: ignore[type-arg]
        self.spec, self.base = spec, base
        self.sessions: list[int] = []
        self.elsewhere: list[int] = []  # those of them that are on other nodes than the first
        self.deleted = False
        self.over: float | None = None
        self.limit_s = spec["start_s"] + spec["walltime_s"]
        self.exceeded = False
        self.tasks = 0
        self.job: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()

    def adopt(self) -> None:
        """Look after what a mom before this one has started."""
        self.sessions = json.loads(self.base.with_suffix(".sessions").read_text())

    def begun(self, pid: int, elsewhere: bool = False) -> None:
        with self.lock:
            self.sessions.append(pid)
            if elsewhere:
                self.elsewhere.append(pid)
            temporary = self.base.with_suffix(".sessions.tmp")
            temporary.write_text(json.dumps(self.sessions))
            temporary.replace(self.base.with_suffix(".sessions"))

    def code(self) -> int | None:
        """How the script has ended; None while it runs."""
        if self.job is not None:
            return self.job.poll()
        return None if members(self.sessions) else 0

    def start(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        out = os.open(self.base.with_suffix(".OU"), flags, 0o600)
        err = out if self.spec["join"] in ("oe", "eo") else os.open(self.base.with_suffix(".ER"), flags, 0o600)
        script = self.base.with_suffix(".SC")
        script.chmod(0o700)
        first = script.read_bytes()[:2]
        argv = [str(script)] if first == b"#!" else ["/bin/sh", str(script)]
        self.job = subprocess.Popen(
            argv + self.spec["args"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=self.spec["environment"],
            cwd=self.spec["cwd"],
            start_new_session=True,
        )
        self.begun(self.job.pid)

    def wait(self) -> int:
        """256 and the signal where one ended it; below zero where the walltime did."""
        while True:
            code = self.code()
            if code is not None:
                break
            now = time.time()
            if now > self.limit_s and not self.exceeded:
                self.exceeded = True
                self.kill(signal.SIGTERM)
                self.over = self.over or now + self.spec["kill_delay_s"]
            if self.over is not None and now > self.over:
                self.kill(signal.SIGKILL)
            time.sleep(0.02)
        self.kill(signal.SIGTERM)  # sisters hear of it, too
        until = time.monotonic() + self.spec["kill_delay_s"]
        while members(self.sessions) and time.monotonic() < until:
            time.sleep(0.02)
        self.kill(signal.SIGKILL)
        if self.exceeded:
            return int(self.spec["exceeded"])
        if self.deleted and self.spec["dialect"] == "torque":
            return 256 + signal.SIGTERM
        return 256 - code if code < 0 else code

    def kill(self, number: int, sessions: list[int] | None = None) -> None:
        for pid in members(self.sessions if sessions is None else sessions):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def serve(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client: socket.socket) -> None:
        with client, client.makefile("rwb") as file:
            asked = json.loads(file.readline())
            if asked["do"] == "signal":
                self.kill(asked["number"])
            elif asked["do"] == "delete":
                self.deleted = True
                self.over = time.time() + self.spec["kill_delay_s"]
                if self.spec["dialect"] == "openpbs":
                    self.kill(signal.SIGKILL, self.elsewhere)
                self.kill(signal.SIGTERM)
            elif asked["do"] == "limit":
                self.limit_s = self.spec["start_s"] + asked["walltime_s"]
            elif asked["do"] == "spawn":
                file.write(json.dumps(self.spawn(asked["node"], asked["argv"])).encode() + b"\n")
                return
            file.write(b"{}\n")

    def spawn(self, node: int, argv: list[str]) -> dict:  # type: ignore[type-arg]
        """A task on the node of that line of the nodefile, to its end."""
        hosts = self.spec["nodefile"]
        if not 0 <= node < len(hosts):
            return {"error": f"no node {node}"}
        self.tasks += 1
        environment = {
            "PBS_JOBID": self.spec["environment"]["PBS_JOBID"],
            "PBS_NODENUM": str(list(dict.fromkeys(hosts)).index(hosts[node])),
            "PBS_TASKNUM": str(self.tasks + 1),
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "HOSTNAME_OF_FAKE": hosts[node],
            "HOME": self.spec["environment"].get("HOME", "/"),
            "PATH": "/usr/bin:/bin",
        }
        out = os.open(self.base.with_suffix(".OU"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            task = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                cwd=environment["HOME"],
                start_new_session=True,
            )
        except OSError as error:
            return {"task": self.tasks, "status": 254, "error": str(error)}
        finally:
            os.close(out)
        self.begun(task.pid, elsewhere=hosts[node] != hosts[0])
        code = task.wait()
        return {"task": self.tasks, "status": 256 - code if code < 0 else code}


def members(sessions: list[int]) -> list[int]:
    """The live processes of these sessions."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX" and int(fields[3]) in sessions:
                found.append(int(folder.name))
    return found


def deliver(spec: dict, base: Path) -> None:  # type: ignore[type-arg]
    """The output goes to where it was asked for once the job has ended; what cannot be delivered stays."""
    for suffix, target in ((".OU", spec["output"]), (".ER", spec["error"])):
        source = base.with_suffix(suffix)
        if source.exists() and target:
            try:
                shutil.copyfile(source, target)
            except OSError:
                continue
            source.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["again"])
