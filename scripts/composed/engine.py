"""An engine to test on: the one that runs here, or a private one that is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from composed.shell import Environment, Skipped, Wrong, root_on_debian, run, say, works

# Memory is many times as fast as a disk for what unpacks thousands of small files, and gone by itself.
MEMORY, DISK = Path("/dev/shm"), Path("/var/tmp")
ROOM_BYTES = 8 << 30
APT = Path(__file__).resolve().parents[1] / "apt"
CLIENTS = ("docker", "/usr/bin/docker")
PACKAGES = {"dockerd": "docker.io"}  # where a package does not have its program's name


def missing(*programs: str) -> list[str]:
    paths = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [one for one in programs if not shutil.which(one, path=paths)]


def install(*programs: str) -> None:
    """Debian's packages for what is not here. Raises Skipped where that is not ours to do, or does not work."""
    wanted = [PACKAGES.get(one, one) for one in missing(*programs)]
    if not wanted:
        return
    if not root_on_debian():
        raise Skipped(f"no {', '.join(wanted)} here, and only root on Debian may install it")
    say(f"installing {' '.join(wanted)}")
    try:
        run([str(APT), *wanted], 480)  # it may have to wait for another one
    except Wrong as error:
        raise Skipped(f"{' '.join(wanted)} could not be installed: {str(error).splitlines()[-1]}") from None


class Engine:
    """A docker client, and Compose, on one engine. `folder` is where a private one lives."""

    def __init__(self, env: Environment, folder: Path | None = None, process: subprocess.Popen[bytes] | None = None):
        self.env, self.folder, self._process = env, folder, process
        self.docker = self._client()
        self.compose = self._composer()

    @property
    def private(self) -> bool:
        return self.folder is not None

    def _client(self) -> list[str]:
        """A client that this engine understands: a newer one may not speak to Debian's."""
        for one in CLIENTS:
            if works([one, "version"], 30, self.env):
                return [one]
        raise Skipped("no docker client here that this engine understands")

    def _composer(self) -> list[str]:
        if works([*self.docker, "compose", "version"]):
            return [*self.docker, "compose"]
        install("docker-compose")
        return ["docker-compose"]

    def run(self, *words: str, bound_s: float = 60, given: str | None = None, fails: bool = False) -> str:
        return run([*self.docker, *words], bound_s, env=self.env, given=given, fails=fails)

    def has(self, image: str) -> bool:
        return works([*self.docker, "image", "inspect", image], 30, self.env)

    def pulled(self, image: str) -> bool:
        """Whether the image is there now."""
        return self.has(image) or works([*self.docker, "pull", "--quiet", image], 180, self.env)

    def end(self) -> None:
        if self._process is not None and self.folder is not None:
            self.run("network", "prune", "--force", fails=True)  # a bridge outlives the engine that made it
            _ended(self._process, self.folder)


def running() -> Engine | None:
    """The engine that runs here already, if any."""
    return Engine({}) if works(["docker", "info"], 30) else None


def started() -> Engine:
    """A private engine, with its data in a folder of its own. Raises Skipped where none can be had."""
    if os.geteuid() != 0:
        raise Skipped("no engine runs here, and only root can start one")
    install("dockerd", "iptables")
    folder = Path(tempfile.mkdtemp(prefix="ejb-compose.", dir=MEMORY if _roomy(MEMORY) else DISK))
    sock = f"unix://{folder}/docker.sock"
    # No rule and no bridge outside the project's own networks, which need no way out: images are built on the host's
    # network. So nothing of the host's changes, and nothing is to be put back.
    words = ["dockerd", "-H", sock, "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false"]
    words += ["--ip-forward=false", f"--data-root={folder}/data", f"--exec-root={folder}/exec"]
    words += [f"--pidfile={folder}/dockerd.pid"]
    env = {"DOCKER_HOST": sock, "DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    with open(folder / "dockerd.log", "wb") as log:
        process = subprocess.Popen(
            words,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        return _answering(env, folder, process)
    except BaseException:
        # Also where this is told to stop meanwhile.
        _ended(process, folder)
        raise


def _answering(env: Environment, folder: Path, process: subprocess.Popen[bytes]) -> Engine:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if any(works([client, "version"], 10, env) for client in CLIENTS):
            return Engine(env, folder, process)
        time.sleep(0.5)
    said = [line for line in (folder / "dockerd.log").read_text(errors="replace").splitlines() if line.strip()]
    raise Skipped(f"dockerd does not start here: {said[-1][-200:] if said else 'it says nothing'}")


def _ended(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End a private engine, and leave nothing of it."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
    with open("/proc/self/mounts") as file:
        mounts = [line.split()[1] for line in file if line.split()[1].startswith(str(folder))]
    for mount in sorted(mounts, reverse=True):
        run(["umount", "--lazy", mount], 20, fails=True)
    shutil.rmtree(folder, ignore_errors=True)


def _roomy(folder: Path) -> bool:
    """Whether there is memory for an engine's data."""
    try:
        room = shutil.disk_usage(folder).free
        with open("/proc/meminfo") as file:
            memory = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return False
    return room > ROOM_BYTES and memory > 2 * ROOM_BYTES
