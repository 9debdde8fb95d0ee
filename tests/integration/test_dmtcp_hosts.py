"""Real DMTCP with the plugin, over hosts that are network namespaces: A -> A+B -> A -> A+B+C+D, every step verified.

EJB_DMTCP_RUNS: how often each is done (2).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ejbd.doctor.plugin import build
from tests.fakes.hosts import Hosts, hosts, missing_hosts
from tests.fakes.manager_server import Json, ManagerServer
from tests.fakes.mpi import PYTHON_RANK, build_rank, missing_mpich, mpi4py, mpi_payload
from tests.fakes.worker_process import eventually, worker_command

pytestmark = [pytest.mark.dmtcp, pytest.mark.serial, pytest.mark.xdist_group("dmtcp-hosts")]
HOSTS = 4
PATHS = ([1], [1, 2], [1], [1, 2, 3, 4])
RUNS = int(os.environ.get("EJB_DMTCP_RUNS", "2"))

# Every rank talks to every other over TCP and checks what it gets; ends when the file `end` appears.
MESH = """
import os, socket, struct, sys, time
rank, size, folder = int(os.environ["EJB_RANK"]), int(os.environ["EJB_SIZE"]), os.environ["EJB_RENDEZVOUS"]
listener = socket.create_server((os.environ["EJB_ADDRESS"], 0), backlog=64)
path = os.path.join(folder, str(rank))
open(path + ".new", "w").write("%s %d" % listener.getsockname()); os.rename(path + ".new", path)
peers = {}
for other in range(rank):
    while not os.path.exists(os.path.join(folder, str(other))): time.sleep(0.02)
    host, port = open(os.path.join(folder, str(other))).read().split()
    peers[other] = socket.create_connection((host, int(port)))
    peers[other].sendall(struct.pack("!q", rank))
def take(peer):
    data = b""
    while len(data) < 8:
        got = peer.recv(8 - len(data))
        if not got: sys.exit(3)
        data += got
    return struct.unpack("!q", data)[0]
while len(peers) < size - 1:
    peer = listener.accept()[0]
    peers[take(peer)] = peer
listener.close()
step, stop = 0, 0
while not stop:
    stop = int(os.path.exists(sys.argv[1])) if rank == 0 else 0
    for peer in peers.values(): peer.sendall(struct.pack("!q", step * 1000 + rank * 2 + stop))
    for other, peer in peers.items():
        got = take(peer)
        if other == 0: stop = got & 1
        if got >> 1 << 1 != step * 1000 + other * 2: sys.exit(4)
    step += 1
    if step % 10 == 0: print("step", step, flush=True)
    time.sleep(0.01)
print("ends", flush=True)
"""


# Rank 0 listens and accepts nobody before the file `go` is there, when rank 1 has long connected and sent.
PENDING = """
import os, pathlib, select, socket, sys, time
how, go = sys.argv[1], sys.argv[2]
meeting = pathlib.Path(os.environ["EJB_RENDEZVOUS"], "port")
COUNT = 3
if os.environ["EJB_RANK"] == "0":
    listener = socket.create_server(("", 0))
    waiting = select.epoll()
    if how == "epoll":
        listener.setblocking(False)
        waiting.register(listener, select.EPOLLIN | select.EPOLLET)
    meeting.with_suffix(".new").write_text(f"{os.environ['EJB_ADDRESS']} {listener.getsockname()[1]}")
    meeting.with_suffix(".new").rename(meeting)
    print("listens", flush=True)
    while not os.path.exists(go): time.sleep(0.05)
    peers = []
    while len(peers) < COUNT:
        if how == "epoll" and not waiting.poll(60): sys.exit(5)
        try:
            while len(peers) < COUNT: peers.append(listener.accept()[0])
        except BlockingIOError:
            pass
    for peer in peers:
        peer.setblocking(True)
        peer.sendall(b"you said " + peer.recv(100))
    if how == "epoll":
        try: listener.accept()
        except BlockingIOError: pass
        else: sys.exit(6)
else:
    while not meeting.exists(): time.sleep(0.05)
    host, port = meeting.read_text().split()
    peers = [socket.create_connection((host, int(port))) for _ in range(COUNT)]
    for number, peer in enumerate(peers): peer.sendall(b"hello %d" % number)
    print("sent", flush=True)
    for number, peer in enumerate(peers):
        if peer.recv(100) != b"you said hello %d" % number: sys.exit(7)
print("ends", flush=True)
"""


class Site:
    """One worker and one manager a host, one job over all of them."""

    def __init__(self, net: Hosts, folder: Path, plugin: str) -> None:
        self.net = net
        self.folder = folder
        self.plugin = plugin
        self.managers: dict[int, ManagerServer] = {}
        self.workers: list[subprocess.Popen[bytes]] = []
        self.environment = {"PATH": os.environ["PATH"]}
        for host in range(1, HOSTS + 1):
            spool = folder / f"spool-{host}"
            spool.mkdir()
            shutil.copytree(Path(plugin).parent, spool / "dmtcp")  # workers take it from their own spool alone
            name = f"7.{host}{os.urandom(3).hex()}"
            manager = ManagerServer(spool, subjob=name, host=net.machine, shared=folder)
            manager.start()
            command = worker_command(manager.subjob_dir, "--processors", "3", "--address", net.address(host))
            self.workers.append(subprocess.Popen(net.on(host, command)))
            manager.wait_for(lambda manager=manager: manager.registrations)  # type: ignore[misc]
            self.managers[host] = manager

    def close(self) -> None:
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait(20)
        for manager in self.managers.values():
            manager.stop()
        for image in self.folder.rglob("*.dmtcp"):  # gigabytes, where each test is done twenty times
            image.unlink()

    def place(self, argv: list[str], size: int, epoch: int, on_hosts: list[int], mpi: bool) -> None:
        file = self.folder / "jobs" / "7" / "launches" / "0.json"
        file.parent.mkdir(exist_ok=True)
        content = {"argv": argv, "cwd": str(self.folder), "env": self.environment, "size": size}
        file.write_text(json.dumps(content))
        asked = []
        for index, host in enumerate(on_hosts):
            payload: Json = {
                "epoch": epoch,
                "size": size,
                "engine": "dmtcp",
                "argv": [],
                "cwd": "",
                "launch_file": str(file),
                "ranks": [{"rank": r, "processor": 0} for r in range(size) if r % len(on_hosts) == index],
                "epoch_dir": str(self.epoch(epoch)),
                "restart_dir": str(self.epoch(epoch - 1) / "checkpoint") if epoch > 1 else None,
                "home": index == 0,
                "timeout_s": 60.0,
                "mpi": mpi_payload(*(self.net.address(h) for h in on_hosts)) if mpi else None,
                "dmtcp": {
                    "plugin": str(self.folder / f"spool-{host}" / "dmtcp" / Path(self.plugin).name),
                    "compress": False,
                    "options": ["--disable-svipc-plugin"],
                },
            }
            asked.append((host, self.managers[host].send("launch", payload, epoch=epoch)))
        for host, seq in asked:
            result = self.managers[host].result(seq, 90)
            assert result["ok"], (epoch, host, json.dumps(result))

    def stop(self, size: int, epoch: int, on_hosts: list[int]) -> None:
        asked = [
            (h, self.managers[h].send("checkpoint", {"epoch": epoch, "timeout_s": 60}, epoch=epoch)) for h in on_hosts
        ]
        exits: dict[str, int] = {}
        for host, seq in asked:
            result = self.managers[host].result(seq, 90)
            assert result["ok"], (epoch, host, json.dumps(result))
            exits.update(result["data"]["exits"])
        assert exits == {str(rank): 85 for rank in range(size)}

    def epoch(self, number: int) -> Path:
        return self.folder / "jobs" / "7" / "epochs" / str(number)

    def printed(self, epoch: int, size: int) -> bool:
        files = [self.epoch(epoch) / "output" / f"{rank}.out" for rank in range(size)]
        return all(file.exists() and file.stat().st_size for file in files)

    def ended(self, on_hosts: list[int], size: int) -> dict[int, int]:
        codes: dict[int, int] = {}
        for host in on_hosts:
            manager = self.managers[host]
            count = len([rank for rank in range(size) if on_hosts[rank % len(on_hosts)] == host])
            reports = manager.wait_for(lambda m=manager, c=count: len(m.of_kind("rank-exit")) >= c and m.reports, 240)  # type: ignore[misc]
            codes.update({r["rank"]: r["code"] for r in reports if r["kind"] == "rank-exit"})
        if any(codes.values()):  # what a failed comparison of the codes does not say
            told = [r for host in on_hosts for r in self.managers[host].reports if r["kind"] != "sample"]
            print("\n".join(json.dumps(report) for report in told))
        return codes


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")
    if reason := missing_hosts():
        pytest.skip(reason)
    spool = tmp_path_factory.mktemp("plugin")
    record = build(spool)
    assert record["trusted"], record["why"]
    return str(spool / "dmtcp" / "libejbmove.so")


@pytest.fixture
def site(tmp_path: Path, plugin: str) -> Iterator[Site]:
    with hosts(HOSTS) as net:
        value = Site(net, tmp_path, plugin)
        try:
            yield value
        finally:
            value.close()


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("ranks", [4, 16])
def test_a_tcp_mesh_spreads_and_shrinks(site: Site, ranks: int, run: int) -> None:
    end = site.folder / "end"
    for epoch, on_hosts in enumerate(PATHS, start=1):
        site.place([sys.executable, "-c", MESH, str(end)], ranks, epoch, on_hosts, mpi=False)
        eventually(lambda epoch=epoch: site.printed(epoch, ranks), 60)  # type: ignore[misc]
        if epoch < len(PATHS):
            site.stop(ranks, epoch, on_hosts)
    end.touch()
    assert site.ended(PATHS[-1], ranks) == dict.fromkeys(range(ranks), 0)


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("how", ["blocking", "epoll"])
def test_connections_that_nobody_has_accepted_yet(site: Site, how: str, run: int) -> None:
    """They are moved, twice, with what was sent into them, and accepted where their listener is by then."""
    go = site.folder / "go"
    paths = [[1], [1, 2], [3, 4]]
    for epoch, on_hosts in enumerate(paths, start=1):
        site.place([sys.executable, "-c", PENDING, how, str(go)], 2, epoch, on_hosts, mpi=False)
        if epoch == 1:
            eventually(lambda: site.printed(1, 2), 60)
        if epoch < len(paths):
            site.stop(2, epoch, on_hosts)
    go.touch()
    assert site.ended(paths[-1], 2) == {0: 0, 1: 0}


@pytest.mark.parametrize("run", range(RUNS))
def test_an_mpi_program_spreads_and_shrinks(site: Site, tmp_path: Path, run: int) -> None:
    if reason := missing_mpich():
        pytest.skip(reason)
    mpi_spreads_and_shrinks(site, [str(build_rank(tmp_path)), "800"])


@pytest.fixture(scope="module")
def python_environment(plugin: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if reason := missing_mpich():
        pytest.skip(reason)
    environment, reason = mpi4py(tmp_path_factory.mktemp("mpi4py"))
    if reason:
        pytest.skip(reason)
    return environment


@pytest.mark.parametrize("run", range(RUNS))
def test_an_mpi4py_program_spreads_and_shrinks(python_environment: dict[str, str], site: Site, run: int) -> None:
    site.environment |= python_environment
    mpi_spreads_and_shrinks(site, [sys.executable, str(PYTHON_RANK), "800"])


def mpi_spreads_and_shrinks(site: Site, argv: list[str], ranks: int = 4) -> None:
    for epoch, on_hosts in enumerate(PATHS, start=1):
        site.place(argv, ranks, epoch, on_hosts, mpi=True)
        eventually(lambda epoch=epoch: site.printed(epoch, ranks), 60)  # type: ignore[misc]
        if epoch < len(PATHS):
            site.stop(ranks, epoch, on_hosts)
    assert site.ended(PATHS[-1], ranks) == dict.fromkeys(range(ranks), 0)
    last = site.epoch(len(PATHS)) / "output"
    for rank in range(ranks):
        assert (last / f"{rank}.out").read_text().splitlines()[-1] == f"rank {rank} of {ranks} ends, bad 0"
    record = [json.loads(line) for line in (site.epoch(1) / "pmi" / "events.jsonl").read_text().splitlines()]
    assert record[-1]["event"] == "done" and record[-1]["bad"] == {}
