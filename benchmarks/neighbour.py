"""For how long one user of the machine keeps a daemon from all others, and how large it grows by that.

    python benchmarks/neighbour.py [--before TREE] [--streams 2048] [--bodies]

A daemon of its own on the embedded cluster, with a state folder that is removed at the end. Each attack is one or a few
requests by a user with the number 65534, which may not submit, or by the holder of a token that only looks; meanwhile
another process asks for the daemon's health on a new connection each time, ten times a second. Told are the longest
that it waited for an answer (seconds; a connection that is refused or reset counts until one is answered), and the
daemon's resident memory afterwards (MB). `--before`: a checkout of an earlier commit with its own .venv: its daemon is
treated alike first. `--bodies`: each route that takes large bodies gets 8 MB of each kind of bytes instead, of the
daemon's own user. It has to run as root, which may become another user.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import psutil

from harness import ROOT, machine

STRANGER = 65534
BOUND_S = 240.0  # of one attack
START_S = 60.0
Attack = Callable[["Site"], None]


class Unix(http.client.HTTPConnection):
    """HTTP over the daemon's unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("ejbd", timeout=BOUND_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Site:
    """A daemon of one tree."""

    def __init__(self, tree: Path, folder: Path) -> None:
        folder.chmod(0o711)
        environment = {**os.environ, "EJBD_STATE_DIR": str(folder / "state"), "EJBD_BATCH": "local"}
        self._log = (folder / "log").open("w+")
        self.ejbd = subprocess.Popen([tree / ".venv/bin/ejbd"], env=environment, stderr=self._log, cwd=folder)
        self.socket = str(folder / "state" / "ejbd.sock")
        self.url = self._address()
        made = self.ask("POST", "/v1/tokens", {"scope": "read"})
        self.token = str(made["token"])

    def _address(self) -> str:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            for line in Path(self._log.name).read_text().splitlines():
                if " listening" in line or "event=listening" in line:
                    return line.partition("http://")[2].split()[0].strip("\"'")
            time.sleep(0.1)
        raise SystemExit("the daemon did not start")

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """One request of the daemon's own user."""
        connection = Unix(self.socket)
        connection.request(method, path, json.dumps(body or {}), {"Content-Type": "application/json"})
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def megabytes(self) -> int:
        return int(psutil.Process(self.ejbd.pid).memory_info().rss / 2**20)

    def stop(self) -> float:
        """Seconds until it has ended after SIGTERM; it is killed after BOUND_S."""
        began = time.monotonic()
        self.ejbd.send_signal(signal.SIGTERM)
        try:
            self.ejbd.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            self.ejbd.kill()
            self.ejbd.wait()
        took_s = time.monotonic() - began
        self._log.close()
        for one in psutil.process_iter(["cmdline"]):  # the embedded cluster outlives its daemon
            if any(self.socket.removesuffix("ejbd.sock") in word for word in one.info["cmdline"] or ()):
                one.kill()
        return took_s


def _as_stranger(site: Site, body: str, path: str = "/v1/jobs") -> None:
    """One request of a user that may not submit, in a process of its own."""
    child = os.fork()
    if not child:
        try:
            os.setuid(STRANGER)
            connection = Unix(site.socket)
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            connection.getresponse().read()
        except OSError:
            pass  # refused before its end
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _as_owner(site: Site, path: str, body: str) -> None:
    connection = Unix(site.socket)
    try:
        connection.request("POST", path, body.encode(), {"Content-Type": "application/json"})
        connection.getresponse().read()
    except OSError:
        pass  # refused before its end


def _by_token(site: Site, body: str) -> None:
    host, _, port = site.url.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=BOUND_S)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {site.token}"}
    try:
        connection.request("POST", "/v1/jobs/plan", body, headers)
        connection.getresponse().read()
    except OSError:
        pass


def _numbers(count: int) -> str:
    return ",".join(f'"{n}":1' for n in range(count))


def _streams(site: Site, count: int) -> None:
    host, _, port = site.url.rpartition(":")
    head = f"GET /v1/events/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.token}\r\n\r\n".encode()
    held = []
    for _ in range(count):
        try:
            one = socket.create_connection((host, int(port)), timeout=10)
            one.sendall(head)
            held.append(one)
        except OSError:
            break
    time.sleep(3)
    for one in held:
        one.close()


WORDS = '{"cwd": "/", "command": [' + "1," * 3_900_000 + "1]}"
ATTACKS: dict[str, Attack] = {
    "8 MB of numbers for words, a stranger": lambda site: _as_stranger(site, WORDS),
    "500,000 variables that are numbers, a stranger": lambda site: _as_stranger(
        site, '{"cwd": "/", "env": {' + _numbers(500_000) + "}}"
    ),
    "80,000 unknown fields, a stranger": lambda site: _as_stranger(site, '{"cwd": "/", ' + _numbers(80_000) + "}"),
    "8 MB of numbers to plan, a token that looks": lambda site: _by_token(site, WORDS),
    "a list of 2,000,000 nodes to plan, a token that looks": lambda site: _by_token(
        site,
        json.dumps({"cwd": "/", "script": '#!/bin/sh\n#SBATCH -n 4 -t 5 --exclude "n[10-2000000]"\nsrun hostname\n'}),
    ),
}


BODY_BYTES = 8 * 1024 * 1024 - 4096
# A script of each of these, and what is no JSON at all behind a script's beginning.
SCRIPT_BYTES = {
    **{
        f"{unit!r}": unit
        for unit in ("x", " ", "\n", "\t", '"', "\\", "'", "`", "$(", "${", "((", "[", "{", "#", ";", "|", "&", "<<x\n")
    },
    **{
        f"{unit!r}": unit
        for unit in ("\0", "\x7f", "\u00e4", "\u2028", "\U0001f600", "\\\n", "a=b ", "x\n", "x;", "if x\n")
    },
    "lines of echo": 'echo "step of \\"run\\"" >> "$LOG"\n',
    "lines of #SBATCH": "#SBATCH -n 2\n",
    "lines of srun": "srun ./x\n",
    "functions": "f() { srun ./x; }\n",
    "loops": "for a in 1 2; do\n",
}
RAW_BYTES = ("[", "{", "[]", '""', ",", '"', "\\", " ", "0", "1,", '["",', '{"a":', "\u00e4", "-", "e", "nul")
LARGE_ROUTES = ("/v1/jobs/plan", "/v1/jobs", "/v1/workflows/check", "/v1/workflows", "/v1/history")


def _bodies() -> dict[str, Attack]:
    """8 MB of each kind of bytes, to each route that takes them."""
    found: dict[str, Attack] = {}

    def add(path: str, what: str, head: str, unit: str, tail: str) -> None:
        size = len(json.dumps(unit)) - 2 if tail else len(unit.encode())
        held = unit * (BODY_BYTES // max(1, size))
        found[f"{what}, {path}"] = lambda site: _as_owner(
            site, path, head + (json.dumps(held)[1:-1] if tail else held) + tail
        )

    for path in LARGE_ROUTES:
        for what, unit in SCRIPT_BYTES.items():
            add(path, f"a script of {what}", '{"cwd": "/", "script": "#!/bin/bash\\n#SBATCH -n 2 -t 5\\n', unit, '"}')
        for unit in RAW_BYTES:
            add(path, f"{unit!r}", '{"cwd": "/", "script": ', unit, "")
    return found


def _watch(url: str, quiet: Event, told: multiprocessing.Queue[float]) -> None:
    """The longest wait for an answer, by new connections, until `quiet`."""
    host, _, port = url.rpartition(":")
    longest, since = 0.0, time.monotonic()
    until = since + 4 * BOUND_S
    while time.monotonic() < until:
        try:
            connection = http.client.HTTPConnection(host, int(port), timeout=BOUND_S)
            connection.request("GET", "/v1/health")
            connection.getresponse().read()
            connection.close()
            longest, since = max(longest, time.monotonic() - since), time.monotonic()
            if quiet.is_set():
                break
            time.sleep(0.1)
            since = time.monotonic()
        except OSError:
            time.sleep(0.1)
    told.put(max(longest, time.monotonic() - since))


def attacked(site: Site, attack: Attack) -> tuple[float, int]:
    """Seconds that others waited at most, and the daemon's memory afterwards."""
    quiet: Event = multiprocessing.Event()
    told: multiprocessing.Queue[float] = multiprocessing.Queue()
    watcher = multiprocessing.Process(target=_watch, args=(site.url, quiet, told))
    watcher.start()
    time.sleep(0.5)
    attack(site)
    quiet.set()
    waited = told.get(timeout=5 * BOUND_S)
    watcher.join()
    return waited, site.megabytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit, with its .venv")
    parser.add_argument("--streams", type=int, default=2048)
    parser.add_argument(
        "--bodies", action="store_true", help="8 MB of each kind of bytes to each route that takes them"
    )
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("neighbour.py: only root can be two users; run it with sudo")
    print(machine())
    trees = {"before": options.before, "now": ROOT} if options.before else {"now": ROOT}
    attacks = {**ATTACKS, f"{options.streams} event streams of one token": lambda s: _streams(s, options.streams)}
    if options.bodies:
        attacks = _bodies()
    for name, tree in trees.items():
        print(f"{name}: the longest that others waited (s), memory afterwards (MB)")
        with tempfile.TemporaryDirectory(prefix="ejb-neighbour-") as folder:
            site = Site(tree.resolve(), Path(folder))
            try:
                for what, attack in attacks.items():
                    waited, memory = attacked(site, attack)
                    print(f"  {waited:8.2f} s {memory:6} MB  {what}", flush=True)
            finally:
                print(f"  {site.stop():8.2f} s            from SIGTERM to its end", flush=True)


if __name__ == "__main__":
    main()
