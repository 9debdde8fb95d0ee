"""Whether the DMTCP that is installed, with the plugin, restarts connected processes on other hosts: by doing it.

Run inside network and host-name namespaces of its own (`ejbd.doctor.plugin` sees to that). There are two hosts with an
address each, and two processes that count to each other over TCP. They go A -> A+B -> B+A, both times with a checkpoint
that has to stop them. Then, where it is given a program for that, two MPI ranks with their PMI server in the same way.
Prints one JSON object `{"ok": ..., "why": ..., "mpi": ...}`; `mpi` says what became of the ranks.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HOSTS = ("10.98.0.1", "10.98.0.2")
STEP_S = 30.0
CHECKPOINT_SIGNAL = 16  # as of the workers' engine
COUNTS = 10  # that must be exchanged before the next step

# Both ends send what they have received plus one, and write down how far they came. Their sockets carry SOCK_CLOEXEC.
MESH = """
import os, socket, sys, time
rank, port, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if rank == 0:
    listener = socket.create_server(("10.98.0.1", port))
    peer = listener.accept()[0]
    listener.close()
    peer.sendall((0).to_bytes(8, "big"))
else:
    for _ in range(200):
        try:
            peer = socket.create_connection(("10.98.0.1", port))
            break
        except OSError:
            time.sleep(0.05)
expected = 1 if rank == 0 else 0
while True:
    data = b""
    while len(data) < 8:
        got = peer.recv(8 - len(data))
        if not got:
            sys.exit(3)
        data += got
    number = int.from_bytes(data, "big")
    if number != expected:
        sys.exit(4)
    expected += 2
    with open(path, "w") as file:
        file.write(str(number))
    time.sleep(0.01)
    peer.sendall((number + 1).to_bytes(8, "big"))
"""


WORKER = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ejb_worker.__main__ import main; main()"


class Failed(Exception):
    """One sentence."""


class NotTried(Exception):
    """What keeps the MPI ranks from being tried, and says nothing against the plugin: one sentence."""


class Probe:
    def __init__(self, bin: Path, plugins: str, folder: Path) -> None:
        self.bin = bin
        self.plugins = plugins
        self.folder = folder
        self.other = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", "hostname probe2; exec sleep 600"])
        self.children: list[subprocess.Popen[bytes]] = []
        self.port = 0

    def on(self, host: int, words: list[str]) -> list[str]:
        return words if host == 0 else ["nsenter", "-t", str(self.other.pid), "-n", "-u", *words]

    def network(self) -> None:
        subprocess.run(["hostname", "probe1"], check=True)
        wait(lambda: Path(f"/proc/{self.other.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink(), 10)
        for words in (
            ["ip", "link", "set", "lo", "up"],
            ["ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"],
            ["ip", "link", "set", "probe1", "netns", str(self.other.pid)],
            ["ip", "addr", "add", HOSTS[0] + "/24", "dev", "probe0"],
            ["ip", "link", "set", "probe0", "up"],
            self.on(1, ["ip", "link", "set", "lo", "up"]),
            self.on(1, ["ip", "addr", "add", HOSTS[1] + "/24", "dev", "probe1"]),
            self.on(1, ["ip", "link", "set", "probe1", "up"]),
        ):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Failed(f"no two hosts to try it on: {' '.join(words)}: {done.stderr.strip()}")

    def start(self, host: int, words: list[str], more: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        tmp = self.folder / f"tmp-{host}"
        tmp.mkdir(exist_ok=True)
        env = {**os.environ, "DMTCP_TMPDIR": str(tmp), "DMTCP_COORD_HOST": HOSTS[0], **(more or {})}
        with (self.folder / "log").open("ab") as log:
            child = subprocess.Popen(
                self.on(host, words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=self.folder
            )
        self.children.append(child)
        return child

    def coordinate(self, name: str) -> subprocess.Popen[bytes]:
        file = self.folder / f"port-{name}"
        words = [str(self.bin / "dmtcp_coordinator"), "-q", "-q", "-p", "0", "--port-file", str(file)]
        child = self.start(0, words)
        wait(lambda: file.exists() and file.read_text().strip() != "", 10)
        self.port = int(file.read_text())
        return child

    def ask(self, command: str) -> subprocess.CompletedProcess[str]:
        words = [str(self.bin / "dmtcp_command"), "--coord-host", HOSTS[0], "--coord-port", str(self.port), command]
        return subprocess.run(words, capture_output=True, text=True, timeout=STEP_S, check=False)

    def all_running(self, count: int) -> bool:
        said = self.ask("-s").stdout
        return f"NUM_PEERS={count}\n" in said and "RUNNING=yes" in said

    def joined(self, tool: str, images: Path) -> list[str]:
        images.mkdir()
        words = [str(self.bin / tool), "-q", "-q", "-j", "--coord-host", HOSTS[0], "--coord-port", str(self.port)]
        return [*words, "--ckptdir", str(images)]

    def launch(self, images: Path, program: list[str], more: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        words = [*self.joined("dmtcp_launch", images), "--no-gzip", "--with-plugin", self.plugins]
        words += ["--ckpt-signal", str(CHECKPOINT_SIGNAL)]
        return self.start(0, [*words, "--disable-svipc-plugin", *program], more)

    def said(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").replace("dmtcp> ", "").strip().splitlines()
        return lines[-1][:300] if lines else "nothing was said"

    # -- two processes that are connected -----------------------------------------------------------------------------

    def mesh(self) -> None:
        coordinator = self.coordinate("mesh")
        mesh = self.folder / "mesh.py"
        mesh.write_text(MESH)
        members = []
        for rank in (0, 1):
            program = [sys.executable, "-I", "-S", str(mesh), str(rank), "7000", str(self.folder / f"count-{rank}")]
            members.append(self.launch(self.folder / f"mesh-0-{rank}", program))
        self.counts("start", members)
        last = self.moved("mesh", members, coordinator, ((0, 1), (1, 0)))
        last[0].kill()

    # -- two MPI ranks, and the server that they were wired up by -----------------------------------------------------

    def ranks(self, program: Path, workers: Path, variables: dict[str, str]) -> None:
        for file in self.folder.glob("count-*"):
            file.unlink()
        coordinator = self.coordinate("mpi")
        pmi = self.folder / "pmi"
        pmi.mkdir()
        tickets = [secrets.randbits(30) for _ in (0, 1)]
        (pmi / "tickets.json").write_text(json.dumps({"tickets": tickets, "nodes": list(HOSTS)}))
        words = [sys.executable, "-I", "-S", "-c", WORKER, str(workers), "pmi", "--folder", str(pmi)]
        members = [self.launch(self.folder / "mpi-0-0", [*words, "--host", HOSTS[0]])]
        if not wait(lambda: (pmi / "port.json").exists(), STEP_S):
            raise NotTried(f"the PMI server did not come up: {self.said()}")
        port = json.loads((pmi / "port.json").read_text())["port"]
        for rank in (0, 1):
            more = {**variables, "PMI_PORT": f"{HOSTS[0]}:{port}", "PMI_ID": str(tickets[rank])}
            members.append(self.launch(self.folder / f"mpi-0-{rank + 1}", [str(program), str(self.folder)], more))
        try:
            self.counts("MPI ranks", members)
        except Failed as error:
            raise NotTried(f"{error} (ejb doctor --mpi tells more)") from None
        coordinator, *members = self.moved("mpi", members, coordinator, ((0, 0, 1), (1, 1, 0)), leave=True)
        (self.folder / "end").touch()
        if not wait(lambda: all(child.poll() is not None for child in members), STEP_S):
            raise Failed(f"restarted MPI ranks do not finalize: {self.said()}")
        codes = [child.returncode for child in members]
        if any(codes):
            raise Failed(f"restarted MPI ranks ended with {codes[1:]}, their server with {codes[0]}")
        coordinator.kill()

    # -- the same for both --------------------------------------------------------------------------------------------

    def counted(self) -> int:
        try:
            return min(int((self.folder / f"count-{rank}").read_text()) for rank in (0, 1))
        except (OSError, ValueError):
            return 0

    def counts(self, what: str, members: list[subprocess.Popen[bytes]]) -> None:
        """Wait until both have come further."""
        begun = self.counted()

        def on_its_way() -> bool:
            ended = [child.returncode for child in members if child.poll() is not None]
            if ended:
                raise Failed(f"{what}: a process ended with {ended[0]}: {self.said()}")
            return self.counted() >= begun + COUNTS

        if not wait(on_its_way, STEP_S):
            raise Failed(f"{what}: the processes do not run after {STEP_S:g} s: {self.said()}")

    def moved(
        self,
        name: str,
        members: list[subprocess.Popen[bytes]],
        coordinator: subprocess.Popen[bytes],
        places: tuple[tuple[int, ...], ...],
        leave: bool = False,
    ) -> list[subprocess.Popen[bytes]]:
        """Checkpoint, and restart on `places` (a host for each member), again and again; the last coordinator first.

        In the end the members are stopped by one more checkpoint unless they are to be left running.
        """
        where = "on one host"
        for number, hosts in enumerate(places, start=1):
            self.stop(f"{name} {where}", members, name, number - 1)
            coordinator.kill()
            coordinator = self.coordinate(f"{name}-{number}")
            before, members = members, []
            for member in range(len(before)):
                image = next((self.folder / f"{name}-{number - 1}-{member}").glob("*.dmtcp"))
                words = self.joined("dmtcp_restart", self.folder / f"{name}-{number}-{member}")
                members.append(self.start(hosts[member], [*words, str(image)]))
            where = "on two hosts"
            self.counts(f"{name}, restart {where}", members)
        if not leave:
            self.stop(f"{name} {where}", members, name, len(places))
        return [coordinator, *members]

    def stop(self, what: str, members: list[subprocess.Popen[bytes]], name: str, number: int) -> None:
        # Processes run again a moment before their coordinator knows that all of them do; until then it refuses.
        if not wait(lambda: self.all_running(len(members)), STEP_S):
            raise Failed(f"{what}: the coordinator does not see all processes running after {STEP_S:g} s")
        done = self.ask("-kc")
        if done.returncode:
            raise Failed(f"{what}: the checkpoint was refused with {done.returncode}: {done.stderr.strip()[-200:]}")
        if not wait(lambda: all(child.poll() is not None for child in members), STEP_S):
            raise Failed(f"{what}: no checkpoint after {STEP_S:g} s")
        for member in range(len(members)):
            if len(list((self.folder / f"{name}-{number}-{member}").glob("*.dmtcp"))) != 1:
                raise Failed(f"{what}: process {member} has written no image: {self.said()}")

    def close(self) -> None:
        for child in [*self.children, self.other]:
            child.kill()
            child.wait()


def wait(ready: object, seconds: float) -> bool:
    """Whether `ready()` became true in time."""
    assert callable(ready)
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def main(bin: Path, plugins: str, mpi: dict[str, Any] | None) -> int:
    """`mpi`: `{"program": path, "workers": folder of the worker's package, "env": variables}`."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="ejb-probe-") as name:
        probe = Probe(bin, plugins, Path(name))
        result: dict[str, Any] = {"ok": False, "why": "", "mpi": ""}
        try:
            probe.network()
            probe.mesh()
            if mpi is not None:
                probe.ranks(Path(mpi["program"]), Path(mpi["workers"]), mpi["env"])
                result["mpi"] = "two MPI ranks were restarted on two hosts, twice"
            result["ok"] = True
        except NotTried as error:
            result["ok"], result["mpi"] = True, f"MPI ranks were not tried: {error}"
        except Failed as error:
            result["why"] = str(error)
        except (OSError, subprocess.SubprocessError, ValueError, StopIteration) as error:
            result["why"] = f"{type(error).__name__}: {error}"
        finally:
            probe.close()
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])))
