"""Whether the DMTCP that is installed, with the plugin, restarts connected processes on other hosts: by doing it.

Run inside network and host-name namespaces of its own (`ejbd.plugin` sees to that): two hosts with an address each, two
processes that count to each other over TCP, A -> A+B -> B+A, both times with a checkpoint that has to stop them.
Prints one JSON object `{"ok": ..., "why": ...}`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOSTS = ("10.98.0.1", "10.98.0.2")
STEP_S = 30.0
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


class Failed(Exception):
    """One sentence."""


class Probe:
    def __init__(self, bin: Path, plugin: Path, folder: Path) -> None:
        self.bin = bin
        self.plugin = plugin
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

    def start(self, host: int, words: list[str]) -> subprocess.Popen[bytes]:
        tmp = self.folder / f"tmp-{host}"
        tmp.mkdir(exist_ok=True)
        env = {**os.environ, "DMTCP_TMPDIR": str(tmp), "DMTCP_COORD_HOST": HOSTS[0]}
        with (self.folder / "log").open("ab") as log:
            child = subprocess.Popen(
                self.on(host, words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=self.folder
            )
        self.children.append(child)
        return child

    def coordinate(self, number: int) -> subprocess.Popen[bytes]:
        file = self.folder / f"port-{number}"
        words = [str(self.bin / "dmtcp_coordinator"), "-q", "-q", "-p", "0", "--port-file", str(file)]
        child = self.start(0, words)
        wait(lambda: file.exists() and file.read_text().strip() != "", 10)
        self.port = int(file.read_text())
        return child

    def joined(self, tool: str, rank: int, number: int) -> list[str]:
        images = self.folder / f"images-{number}-{rank}"
        images.mkdir()
        words = [str(self.bin / tool), "-q", "-q", "-j", "--coord-host", HOSTS[0], "--coord-port", str(self.port)]
        return [*words, "--ckptdir", str(images)]

    def counted(self) -> int:
        try:
            return min(int((self.folder / f"count-{rank}").read_text()) for rank in (0, 1))
        except (OSError, ValueError):
            return 0

    def runs(self, what: str, ranks: list[subprocess.Popen[bytes]]) -> None:
        begun = self.counted()

        def on_its_way() -> bool:
            ended = [child.returncode for child in ranks if child.poll() is not None]
            if ended:
                raise Failed(f"{what}: a process ended with {ended[0]}: {self.said()}")
            return self.counted() >= begun + COUNTS

        if not wait(on_its_way, STEP_S):
            raise Failed(f"{what}: the processes do not run after {STEP_S:g} s: {self.said()}")

    def stop(self, what: str, ranks: list[subprocess.Popen[bytes]], number: int) -> None:
        words = [str(self.bin / "dmtcp_command"), "--coord-host", HOSTS[0], "--coord-port", str(self.port), "-kc"]
        done = subprocess.run(words, capture_output=True, timeout=STEP_S, check=False)
        if done.returncode:
            raise Failed(f"{what}: the checkpoint was refused")
        if not wait(lambda: all(child.poll() is not None for child in ranks), STEP_S):
            raise Failed(f"{what}: no checkpoint after {STEP_S:g} s")
        for rank in (0, 1):
            if len(list((self.folder / f"images-{number}-{rank}").glob("*.dmtcp"))) != 1:
                raise Failed(f"{what}: process {rank} has written no image: {self.said()}")

    def said(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").replace("dmtcp> ", "").strip().splitlines()
        return lines[-1][:300] if lines else "nothing was said"

    def run(self) -> None:
        self.network()
        coordinator = self.coordinate(0)
        mesh = self.folder / "mesh.py"
        mesh.write_text(MESH)
        ranks = []
        for rank in (0, 1):
            words = self.joined("dmtcp_launch", rank, 0)
            program = [sys.executable, "-I", "-S", str(mesh), str(rank), "7000", str(self.folder / f"count-{rank}")]
            ranks.append(self.start(0, [*words, "--no-gzip", "--with-plugin", str(self.plugin), *program]))
        self.runs("start", ranks)
        self.stop("on one host", ranks, 0)
        for number, hosts in ((1, (0, 1)), (2, (1, 0))):
            coordinator.kill()
            coordinator = self.coordinate(number)
            restored = []
            for rank in (0, 1):
                image = next((self.folder / f"images-{number - 1}-{rank}").glob("*.dmtcp"))
                restored.append(self.start(hosts[rank], [*self.joined("dmtcp_restart", rank, number), str(image)]))
            self.runs("restart on two hosts", restored)
            self.stop("on two hosts", restored, number)

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


def main(bin: Path, plugin: Path) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="ejb-probe-") as name:
        probe = Probe(bin, plugin, Path(name))
        try:
            probe.run()
            result = {"ok": True, "why": ""}
        except Failed as error:
            result = {"ok": False, "why": str(error)}
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            result = {"ok": False, "why": f"{type(error).__name__}: {error}"}
        finally:
            probe.close()
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
