"""What `ejb doctor` checks: all that must be right on a site before EJB can do its work, and how to mend it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ejbd.batch.base import BatchSystem, Mailing, mailing
from ejbd.config import Settings
from ejbd.doctor import mpicheck, plugin
from ejbd.errors import EjbError
from ejbd.files.paths import distrusted, distrusted_entry
from ejbd.files.tcpports import NOWHERE, find_socket_owner, is_port_of_any_user
from ejbd.plugins.engines import site_engines

LOCAL_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "overlay", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs"})
ENOUGH_BYTES = 1 << 30
MARK = "identity.json"  # ejbd/manager/hands/spool.py
SKEW_S = 2.0
PYTHON_S = 20.0  # a Python that takes longer to start is none
WRAPPED_S = 0.05  # a start that is later by so much, and by half as much again as the bare one, is reported


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked; where it is not good, `text` says how to mend it."""

    subject: str
    good: bool
    text: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{'ok  ' if self.good else 'BAD '} {self.subject}: {self.text}"


async def examine(
    settings: Settings, batch: BatchSystem, broken: Sequence[str] = (), *, is_set_up: bool = False
) -> list[Finding]:
    """Every check; each answers for itself, so that one that fails does not hide the others.

    `broken`: what packages offer and could not be loaded, in sentences. `is_set_up`: a daemon has run here before, so
    that the spool has to be there.
    """
    findings = [
        _spool(settings, is_set_up),
        _shared(settings),
        examine_python(settings.worker_python),
        examine_engines(settings),
    ]
    findings += [found for found in (_port(settings),) if found]
    findings += [Finding("plug-in", False, f"{why}; mend or uninstall the package") for why in broken]
    findings.append(await asyncio.to_thread(_clock, settings.spool_dir))
    try:
        findings += [Finding(*entry) for entry in await batch.doctor()]
        findings.append(_mails(await mailing(settings.mail_program, batch)))
    except EjbError as error:
        findings.append(Finding(f"batch system {batch.name}", False, error.sentence()))
    finally:
        await batch.close()
    return findings


def _port(settings: Settings) -> Finding | None:
    """Whether another user could listen in the place of a daemon that is away; asked of one that serves all users."""
    if settings.identity != "helper":
        return None
    host, _, port = settings.listen.rpartition(":")
    theirs = host.strip("[]"), int(port) if port.isdigit() else 0
    family, nowhere = (socket.AF_INET6, ("::", 0)) if ":" in theirs[0] else (socket.AF_INET, NOWHERE)
    if theirs[1] and not is_port_of_any_user(theirs[1]):
        return Finding("port", True, f"{settings.listen}: only root and what root starts may listen there")
    if theirs[1] and find_socket_owner(nowhere, theirs, family) == 0:
        return Finding("port", True, f"{settings.listen}: root holds it, also while the daemon is away")
    text = (
        f"{settings.listen}: any user may listen there while the daemon is away; ejbd.socket of release/deploy holds it"
    )
    return Finding("port", False, text)


def _mails(found: Mailing) -> Finding:
    subject = "mails of elastic jobs"
    if not found.program:
        return Finding(subject, True, "none are sent; mail_program can name what sends them")
    if shutil.which(found.program) is None:
        return Finding(subject, False, f"{found.program} is not here; mail_program can name another one, or none")
    return Finding(subject, True, f"{found.program} sends them")


def _spool(settings: Settings, is_set_up: bool = False) -> Finding:
    path = settings.spool_dir
    if is_set_up and not (path / MARK).exists():
        return Finding("spool", False, f"{path}: its mark {MARK} is not there; is its file system mounted?")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".doctor-") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(path).free
        why = distrusted(path) or next(filter(None, map(distrusted_entry, path.iterdir())), "")
    except OSError as error:
        return Finding(
            "spool", False, f"{path}: {error.strerror}; name a folder that the daemon can write (spool = ...)"
        )
    if why:
        mend = "chown and chmod it, or name a new folder"
        text = f"{path}: {why}; a user that can write there could run anything as you: {mend}"
        return Finding("spool", False, text)
    if free < ENOUGH_BYTES:
        return Finding("spool", False, f"{path}: only {free >> 20} MiB are free; checkpoints need more")
    return Finding("spool", True, f"{path}: writable, {free >> 30} GiB free")


def _shared(settings: Settings) -> Finding:
    """Whether the compute nodes can see the spools of jobs cannot be proved from here; a local disk surely is not
    shared. With a helper these are the users' own, and the daemon's may be on a disk of its machine."""
    path, subject, key = settings.spool_dir, "spool is shared", "spool"
    if settings.identity == "helper":
        path, subject, key = (
            Path(settings.helper.spool.partition("%u")[0]),
            "users' spools are shared",
            "[helper] spool",
        )
    kind = _file_system(path)
    if settings.traits.one_host:
        return Finding(subject, True, f"{kind}: the embedded cluster's nodes are this machine")
    if kind in LOCAL_FILE_SYSTEMS:
        return Finding(
            subject,
            False,
            f"{path} is on {kind}, a file system of this machine; let {key} be where all nodes see it "
            "(fine only if all nodes are this machine)",
        )
    return Finding(subject, True, f"{path} is on {kind}")


def _file_system(path: Path) -> str:
    """Type of the file system that holds `path`, by the longest mount point above it."""
    best, kind = "", "unknown"
    resolved = str(path.resolve())
    for line in Path("/proc/mounts").read_text().splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ")
        if (resolved == mount or resolved.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, kind = mount, fields[2]
    return kind


def _clock(spool: Path) -> Finding:
    """The file server's clock against ours: planned ends are compared across machines."""
    try:
        with tempfile.NamedTemporaryFile(dir=spool, prefix=".doctor-") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
            skew = Path(file.name).stat().st_mtime - time.time()
    except OSError as error:
        return Finding("clock", False, f"cannot be compared with the spool's: {error.strerror}")
    if abs(skew) > SKEW_S:
        return Finding("clock", False, f"{skew:+.1f} s against the spool's file server; run an NTP client on both")
    return Finding("clock", True, f"{skew:+.2f} s against the spool's")


def examine_python(program: str) -> Finding:
    """The Python of workers. Each launch starts it on every node, so that what a wrapper costs comes every time."""
    code = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable); sys.exit(sys.version_info < (3, 8))"
    subject = "worker's Python"
    try:
        done, own_s = _timed([program, "-c", code])
        version, _, real = done.stdout.strip().partition(" ")
        if done.returncode != 0:
            return Finding(subject, False, f"{program} is {version or 'broken'}; workers need 3.8")
        again_s, bare_s = _timed([program, "-c", ""])[1], min(_timed([real, "-c", ""])[1] for _ in range(2))
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(subject, False, f"{program}: {error}; set worker_python to a Python >= 3.8 of the nodes")
    text = f"{program} is {version} here (the nodes' must be 3.8 or later)"
    late_s = min(own_s, again_s) - bare_s
    if late_s > max(WRAPPED_S, bare_s / 2):
        text += f"; it is a wrapper of {real} and starts {late_s:.2f} s later: worker_python can name that one itself"
    return Finding(subject, True, text)


def _timed(argv: list[str]) -> tuple[subprocess.CompletedProcess[str], float]:
    """What a command said, and how many seconds it took. Raises OSError and TimeoutExpired as subprocess does."""
    begun = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PYTHON_S, check=False)
    return done, time.monotonic() - begun


def examine_engines(settings: Settings) -> Finding:
    """The checkpoint engines that jobs may ask for here."""
    text = ", ".join(("application (SIGUSR1, exit code 85, EJB_RESTART_DIR)", "none", *site_engines()))
    launch = shutil.which("dmtcp_launch")
    if launch is None:
        return Finding("checkpoint engines", True, f"{text}; dmtcp is not on PATH here (it comes from {plugin.SOURCE})")
    record = settings.spool_dir / "dmtcp" / f"{plugin.PLUGIN}.json"
    try:
        told = json.loads(record.read_text())
    except (OSError, ValueError):
        told = {}
    proved = told.get("trusted") is True
    can = "ranks may be on several hosts" if proved else "ranks cannot be moved over hosts: ejb doctor --build-plugin"
    if proved and told.get("sources") != plugin.sources_sum():
        can += "; the plugin is an older EJB's: ejb doctor --build-plugin"
    return Finding(
        "checkpoint engines", True, f"{text}, dmtcp ({launch}; can_split_hosts: {str(proved).lower()}: {can})"
    )


def examine_moving(settings: Settings, *, build_plugin: bool, mpi: bool) -> list[Finding]:
    """Build what over-subscribed MPI ranks load; build and prove the DMTCP plugin; try the site's MPI."""
    spool = settings.spool_dir
    findings = [_examined("library for MPI ranks", lambda: (True, f"built: {plugin.build_progress(spool)}"))]
    if build_plugin:
        findings.append(_examined("library for DMTCP", lambda: (True, f"built: {plugin.build_calls(spool)}")))
        findings.append(_examined("DMTCP plugin", lambda: _plugin(spool)))
    if mpi:
        library = spool / "dmtcp" / plugin.PROGRESS
        findings.append(_examined("MPI", lambda: mpicheck.check(library if library.exists() else None)))
    return findings


def _plugin(spool: Path) -> tuple[bool, str]:
    record = plugin.build(spool)
    if not record["trusted"]:
        return False, f"of DMTCP {record['version']}, not used: {record['why']}"
    proved = "built and proved: a TCP mesh was restarted on two hosts, twice"
    return True, f"of DMTCP {record['version']}, {proved}; {record['mpi']}"


def _examined(subject: str, look: Callable[[], tuple[bool, str]]) -> Finding:
    try:
        return Finding(subject, *look())
    except EjbError as error:
        return Finding(subject, False, error.sentence())
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return Finding(subject, False, f"{where}{error.strerror or error} (run it as the daemon's user; set TMPDIR)")
