"""The server: `python -m tests.fakes.pbs.server FOLDER`. Killed and started again it knows what it knew, and jobs live.

`FOLDER/site.json` says what site it is; `FOLDER/mischief.json`, read anew at every request, how it misbehaves.
"""

from __future__ import annotations

import asyncio
import json
import marshal
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.fakes.pbs import listings, submit
from tests.fakes.pbs.submit import Refused
from tests.fakes.pbs.world import Job, Reservation, World, job_number

Answer = tuple[str, str, int]
MOM = Path(__file__).with_name("mom.py")
EXCEEDED = {"openpbs": -29, "torque": -11}
# OpenPBS, of a job that is not rerunable: its mom has started anew, or was away for longer than node_fail_requeue.
MOM_STARTED, MOM_LOST = -4, -20
FORGOTTEN_S = 300.0
PATH = "/usr/local/bin:/usr/bin:/bin"
SHELL_GONE_S = 0.3
"""Torque: so long after a TERM the shell around the script is seen to be gone."""


class Server:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = World(folder)
        self.moms: dict[int, subprocess.Popen[bytes]] = {}
        self.stale_s: float | None = None
        self.users: bool = json.loads((folder / "site.json").read_text()).get("users", False)

    async def run(self) -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        names = ["server", "control"] + (
            ["maui"] if json.loads((self.folder / "site.json").read_text())["maui"] else []
        )
        servers = []
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
            servers.append(await asyncio.start_unix_server(self.connected, str(self.folder / name), limit=1 << 26))
            (self.folder / name).chmod(0o666 if self.users and name != "control" else 0o600)
        cycle = asyncio.create_task(self.cycle())
        await stop.wait()
        cycle.cancel()
        for server in servers:
            server.close()

    async def cycle(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0.1)

    def look(self) -> None:
        """Ends of jobs, and starts of others."""
        world, changed = self.world, False
        for job in list(world.jobs.values()):
            if job.runs and not job.indices:
                end = self.folder / "jobs" / f"{job.number}.end"
                if end.exists():
                    found = json.loads(end.read_text())
                    status = found["status"]
                    world.ended(job, status, found["end_s"])
                    changed = True
        for node, since_s in world.lost.items():
            if world.dialect == "openpbs" and time.time() > since_s + world.node_fail_requeue_s:
                for job in world.led_from(node):
                    world.given_up(job, MOM_LOST, time.time())
                    changed = True
        for job in world.schedule(time.time()):
            self.launch(job)
            changed = True
        for job in world.resumed():
            self.tell(job, do="signal", number=int(signal.SIGCONT))
            changed = True
        for number in [n for n, mom in self.moms.items() if mom.poll() is not None]:
            del self.moms[number]
        if changed:
            world.save()

    def launch(self, job: Job) -> None:
        world = self.world
        base = self.folder / "jobs" / str(job.number)
        nodefile = [node for node, _, count in job.shares for _ in range(count)]
        if world.dialect == "openpbs" and "mpiprocs" not in job.asked.get("select", ""):
            nodefile = [node for node, _, _ in job.shares]  # one line a chunk
        base.with_suffix(".nodes").write_text("".join(f"{node}\n" for node in nodefile))
        base.with_suffix(".SC").write_bytes(job.script.encode(errors="surrogateescape"))
        user = self.runs_as(job)
        environment = {
            "HOME": user.pw_dir,
            "LOGNAME": user.pw_name,
            "USER": user.pw_name,
            "SHELL": user.pw_shell or "/bin/sh",
            # Of Torque's jobs a login shell makes it, which knows nothing of Torque.
            "PATH": f"{self.folder / 'bin'}:{PATH}" if world.dialect == "openpbs" else PATH,
            **job.variables,
            "PBS_JOBID": f"{job.number}.{world.head}",
            "PBS_JOBNAME": job.name,
            "PBS_NODEFILE": str(base.with_suffix(".nodes")),
            "PBS_QUEUE": job.queue,
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "PBS_NODENUM": "0",
            "PBS_TASKNUM": "1",
        }
        spec = {
            "environment": environment,
            "nodefile": nodefile,
            "args": job.shell_args,
            "cwd": job.directory or user.pw_dir,
            "output": job.output,
            "error": job.error,
            "join": job.join,
            "start_s": job.start_s,
            "walltime_s": job.walltime_s,
            "dialect": world.dialect,
            "kill_delay_s": world.kill_delay_s if world.dialect == "openpbs" else SHELL_GONE_S,
            "exceeded": EXCEEDED[world.dialect],
        }
        base.with_suffix(".json").write_text(json.dumps(spec))
        for suffix in (".nodes", ".SC", ".json"):
            os.chown(base.with_suffix(suffix), user.pw_uid, user.pw_gid)
        self.follow(job)

    def runs_as(self, job: Job) -> pwd.struct_passwd:
        """The job's owner, where this is a site of real users and there is such a one."""
        try:
            return pwd.getpwnam(job.owner if self.users else "")
        except KeyError:
            return pwd.getpwuid(os.geteuid())

    def follow(self, job: Job, *again: str) -> None:
        words = ["-S", "-E", str(MOM), str(self.folder), str(job.number), *again]
        user = self.runs_as(job)
        if user.pw_uid == os.geteuid():
            self.moms[job.number] = subprocess.Popen([sys.executable, *words], stdin=subprocess.DEVNULL)
            return
        words[2] = str(self.folder / MOM.name)
        self.moms[job.number] = subprocess.Popen(
            ["/usr/bin/python3", *words],
            stdin=subprocess.DEVNULL,
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=os.getgrouplist(user.pw_name, user.pw_gid),
            cwd="/",
        )

    def mom_started(self, node: str) -> None:
        """OpenPBS's gives up what ran, and does not look after its processes; Torque's goes on with it (-p)."""
        world = self.world
        world.nodes[node] = "free"
        del world.lost[node]
        for job in world.led_from(node):
            if world.dialect == "openpbs":
                world.given_up(job, MOM_STARTED, time.time())
            else:
                self.follow(job, "again")

    def tell(self, job: Job, **what: Any) -> None:
        """Tell the job's mom, if it is there. On a busy machine one that was just begun takes seconds to listen."""
        path = self.folder / "jobs" / f"{job.number}.sock"
        tries = 0
        while tries < 100 or (not path.exists() and job.number in self.moms and self.moms[job.number].poll() is None):
            tries += 1
            try:
                with socket.socket(socket.AF_UNIX) as mom:
                    mom.settimeout(5)
                    mom.connect(str(path))
                    mom.sendall(json.dumps(what).encode() + b"\n")
                    mom.recv(100)
                return
            except OSError:
                if (self.folder / "jobs" / f"{job.number}.end").exists():
                    return
                time.sleep(0.02)

    # ---- requests

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.readexactly(1)
            if first == b"{":  # a test's: a command's begins with its length
                request = json.loads(first + await reader.readline())
                writer.write(json.dumps(self.control(request)).encode() + b"\n")
                return
            length = int.from_bytes(await reader.readexactly(7), "big")
            request = marshal.loads(await reader.readexactly(length))
            peer = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if self.users and (uid := int.from_bytes(peer[4:8], sys.byteorder)):
                request["user"] = pwd.getpwuid(uid).pw_name
            mischief = self.mischief()
            out, err, code = self.answer(request, mischief)
            if request["command"] in mischief.get("hang", ()):
                await asyncio.sleep(3600)
            data = marshal.dumps({"out": out, "err": err, "code": code}, 2)
            writer.write(len(data).to_bytes(8, "big") + data)
        except (ConnectionError, ValueError, EOFError):
            pass
        finally:
            writer.close()

    def mischief(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / "mischief.json").read_text()))
        except (FileNotFoundError, ValueError):
            return {}

    def control(self, request: dict[str, Any]) -> dict[str, Any]:
        """What no command of a user could do: the administrator's part of a test."""
        world = self.world
        what = request["control"]
        if what == "node":
            world.nodes[request["name"]] = request["state"]
        elif what == "mom":
            if request["up"]:
                self.mom_started(request["name"])
            else:
                world.nodes[request["name"]] = "down"
                world.lost[request["name"]] = time.time()
        elif what == "reserve":
            world.reservations.append(
                Reservation(request["name"], request["start_s"], request["end_s"], request["nodes"])
            )
        elif what == "walltime":
            self.set_walltime(world.jobs[request["job"]], request["walltime_s"])
        elif what == "forget":
            job = world.jobs.pop(request["job"], None)
            if job is not None and request.get("kill"):  # its mom has been told that nobody knows it
                later = partial(self.tell, job, do="signal", number=int(signal.SIGKILL))
                asyncio.get_running_loop().run_in_executor(None, later)
        elif what == "server":
            world.default_queue = request.get("default_queue", world.default_queue)
            world.scheduling = request.get("scheduling", world.scheduling)
        elif what == "unreserve":
            world.reservations.clear()
        world.save()
        return {}

    def set_walltime(self, job: Job, walltime_s: float) -> None:
        job.walltime_s = walltime_s
        job.asked["walltime"] = listings.length(walltime_s)
        if job.runs:
            self.tell(job, do="limit", walltime_s=walltime_s)

    def answer(self, request: dict[str, Any], mischief: dict[str, Any]) -> Answer:
        command, words = request["command"], request["words"]
        if command in mischief.get("garbage", ()):
            return "<html>Bad Gateway</html>\n", "", 0
        if command in mischief.get("fails", {}):
            text, code = mischief["fails"][command]
            return "", text, code
        now = time.time()
        try:
            out, err, code = getattr(self, command)(request, words, now)
        except Refused as refused:
            return "", refused.text, refused.code
        if command == "qstat" and "json" in words:
            if mischief.get("no_jobs"):
                return (
                    listings.openpbs_jobs(self.world, [], now),
                    "qstat: cannot connect to server (errno=15010)\n",
                    255,
                )
            if mischief.get("spoil"):
                out = listings.spoiled(out, mischief["spoil"])
        return out, err, code

    def qsub(self, request: dict[str, Any], words: list[str], now: float) -> Answer:
        if words == ["--version"]:
            return self.qstat(request, words, now)
        job = submit.job_of(self.world, request, now)
        self.world.jobs[job.number] = job
        self.world.save()
        self.look()
        quiet = "z" in submit.parse(words, self.world.dialect).flags
        return "" if quiet else f"{job.id(self.world.head)}\n", "", 0

    def job(self, word: str) -> Job | None:
        """An element of an array that has not begun is made for the answer, and for nothing else."""
        number = job_number(word)
        found = None if number is None else self.world.jobs.get(number)
        if found is None and (match := re.match(r"([0-9]+)\[([0-9]+)\]", word)):
            whole = self.world.jobs.get(int(match[1]))
            if whole is not None and int(match[2]) in whole.remaining:
                return self.world.element(whole, int(match[2]))
        return found

    def qstat(self, request: dict[str, Any], words: list[str], now: float) -> Answer:
        world, openpbs = self.world, self.world.dialect == "openpbs"
        if "--version" in words:
            version = listings.VERSION[world.dialect]
            return (f"pbs_version = {version}\n" if openpbs else f"Version: {version}\nCommit: \n"), "", 0
        letters = "".join(word[1:] for word in words if word.startswith("-"))
        ids = [word for index, word in enumerate(words) if not word.startswith("-") and words[index - 1] != "-F"]
        ids = [word for word in ids if word not in ("json", "dsv")]
        if "Q" in letters:
            return listings.queues(world), "", 0
        if "B" in letters:
            return listings.server(world), "", 0
        self.look()
        err, code, found = "", 0, []
        if ids:
            for id in ids:
                number = job_number(id)
                if number is None:
                    return "", f"qstat: Unknown queue destination {id}\n", 170 if openpbs else 172
                job = self.job(id)
                if job is None:
                    word = "Unknown Job Id" if openpbs else "Unknown Job Id Error"
                    err, code = err + f"qstat: {word} {number}.{world.head}\n", 153
                elif openpbs and job.ended and "x" not in letters:
                    text = "Job has finished, use -x or -H to obtain historical job information"
                    err, code = err + f"qstat: {job.number}.{world.head} {text}\n", 35
                else:
                    found.append(job)
        else:
            found = [
                job
                for job in world.jobs.values()
                if not job.ended
                or (openpbs and "x" in letters)
                or (not openpbs and (job.end_s or 0) > now - FORGOTTEN_S)
            ]
            if "t" in letters:
                found += [world.element(job, index) for job in found for index in job.remaining]
            else:
                found = [job for job in found if job.array is None]
        if openpbs:
            if "dsv" in words:
                out = listings.openpbs_rows(world, found, now)
            elif "f" in letters:
                found = found[:1] if ids else found  # so does 23.06.06
                out = listings.openpbs_jobs(world, found, now) if found or not code else ""
            else:
                out = listings.table(world, found)
        else:
            out = listings.torque_jobs(world, found, now) if "x" in letters else listings.table(world, found)
        return out, err, code

    def pbsnodes(self, request: dict[str, Any], words: list[str], now: float) -> Answer:
        self.look()
        names = [word for index, word in enumerate(words) if not word.startswith("-") and words[index - 1] != "-F"]
        if "-o" in words:
            return "", f"Error marking node {names[0]} - Unauthorized Request \n", 1
        if any(name not in self.world.nodes for name in names):
            if self.world.dialect == "openpbs":
                return "", f"Node: {names[0]},  Error: Unknown node \n", 1
            return "", "pbsnodes: Unknown node  MSG=cannot locate specified node\n", 1
        if self.world.dialect == "openpbs":
            return listings.openpbs_nodes(self.world, now), "", 0
        return listings.torque_nodes(self.world), "", 0

    def pbs_rstat(self, request: dict[str, Any], words: list[str], now: float) -> Answer:
        return listings.reservations(self.world), "", 0

    def changing(self, command: str, word: str, request: dict[str, Any]) -> tuple[Job | None, Answer]:
        """The job that a command names, or what it says where there is none, or where it is another user's."""
        openpbs, job = self.world.dialect == "openpbs", self.job(word)
        if job is None:
            if openpbs:
                return None, ("", f"{command}: Unknown Job Id {job_number(word)}.{self.world.head}\n", 153)
            text = {"qdel": f"qdel: nonexistent job id: {word}\n", "qhold": ""}
            return None, ("", text.get(command, f"{command}: Unknown Job Id Error {word}.{self.world.head}\n"), 153)
        if job.ended:
            if openpbs:
                return None, ("", f"{command}: Job has finished {job.number}.{self.world.head}\n", 35)
            return None, ("", f"{command}: Request invalid for state of job {job.number}.{self.world.head}\n", 170)
        if self.users and request["user"] not in (job.owner, "root"):
            return None, ("", f"{command}: Unauthorized Request  {job.number}.{self.world.head}\n", 159)
        return job, ("", "", 0)

    def qdel(self, request: dict[str, Any], words: list[str], now: float) -> Answer:
        err, code = "", 0
        for word in words:
            if word.startswith("-") or (word.isdigit() and words[words.index(word) - 1] == "-W"):
                continue
            job, said = self.changing("qdel", word, request)
            if job is None:
                err, code = err + said[1], said[2]
                continue
            if job.indices:
                job.deleted, job.remaining = True, []
                elements = [each for each in self.world.jobs.values() if each.array == job.number and each.runs]
                for each in elements:
                    each.deleted, each.state = True, "E"
                    asyncio.get_running_loop().run_in_executor(None, partial(self.tell, each, do="delete"))
                if not elements:
                    self.world.ended(job, None, now)
            elif job.runs:
                job.deleted, job.state, job.changed_s = True, "E", now
                asyncio.get_running_loop().run_in_executor(None, partial(self.tell, job, do="delete"))
            else:
                job.deleted = True
                self.world.ended(job, None, now)
        self.world.save()
        return "", err, code

    def qhold(self, request: dict[str, Any], words: list[str], now: float) -> Answer:
        return self._hold("qhold", words, request, True)

    def qrls(self, request: dict[str, Any], words: list[str], now: float) -> Answer:
        return self._hold("qrls", words, request, False)

    def _hold(self, command: str, words: list[str], request: dict[str, Any], hold: bool) -> Answer:
        job, said = self.changing(command, words[-1], request)
        if job is None:
            return said
        job.holds = job.holds.replace("u", "") + ("u" if hold else "")
        if not job.runs:
            job.state = "H" if job.holds else "Q"
        self.world.save()
        return "", "", 0

    def qalter(self, request: dict[str, Any], words: list[str], now: float) -> Answer:
        openpbs = self.world.dialect == "openpbs"
        job, said = self.changing("qalter", words[-1], request)
        if job is None:
            return said
        id = f"{job.number}.{self.world.head}"
        options = submit.parse(words[:-1], self.world.dialect)
        for key, value in options.resources.items():
            if key != "walltime" and job.runs:
                text = f"qalter: Cannot modify attribute while job running  Resource_List.{key} {id}\n"
                return "", text, 167 if openpbs else 169
            if key == "walltime":
                if job.runs and submit.seconds(value) > job.walltime_s:
                    return "", f"qalter: Unauthorized Request  {id}\n", 159
                self.set_walltime(job, submit.seconds(value))
            else:
                job.asked[key] = value
        self.world.save()
        return "", "", 0

    def qsig(self, request: dict[str, Any], words: list[str], now: float) -> Answer:
        openpbs = self.world.dialect == "openpbs"
        job, said = self.changing("qsig", words[-1], request)
        if job is None:
            return said
        id = f"{job.number}.{self.world.head}"
        word = words[words.index("-s") + 1].removeprefix("SIG")
        if word in ("suspend", "resume") and openpbs:
            return self.suspend(job, id, word == "suspend", now)
        if not job.runs:
            return "", f"qsig: Request invalid for state of job {id}\n", 168 if openpbs else 170
        number = getattr(signal, f"SIG{word}", None)
        if number is None:
            return "", f"qsig: Unknown/illegal signal name {id}\n", 165 if openpbs else 167
        self.tell(job, do="signal", number=int(number))
        return "", "", 0

    def suspend(self, job: Job, id: str, stop: bool, now: float) -> Answer:
        """Its processors are others' until it runs on, which it does once they are free again."""
        if job.state != ("R" if stop else "S"):
            return "", f"qsig: Request invalid for state of job {id}\n", 168
        job.changed_s = now
        if stop:
            self.tell(job, do="signal", number=int(signal.SIGSTOP))
            job.state, job.resumes = "S", False
        else:
            job.resumes = True
        self.world.save()
        self.look()
        return "", "", 0

    # ---- Maui

    def showbf(self, request: dict[str, Any], words: list[str], now: float) -> Answer:
        self.look()
        at = now - self.mischief().get("stale_s", 0.0)
        return listings.showbf(self.world, request["user"], words, now, at), "", 0

    def showres(self, request: dict[str, Any], words: list[str], now: float) -> Answer:
        self.look()
        if words != ["-n"]:
            return "", f"showres: this fake knows showres -n alone, not {words}\n", 1
        at = now - self.mischief().get("stale_s", 0.0)
        return listings.showres_by_node(self.world, now, at), "", 0


if __name__ == "__main__":
    asyncio.run(Server(Path(sys.argv[1])).run())
