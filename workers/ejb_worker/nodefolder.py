"""The worker's folder on its node: not shared with other nodes, private to the user."""

from __future__ import annotations

import os
import stat
import time
import zlib

_ROOT = "/tmp"
_LONGEST = 40
_ABANDONED_S = 10.0
"""So long after it was made a folder names its users."""
_ELSEWHERE_S = 7 * 86400.0
"""Processes of another machine, or container, that has the same /tmp are not seen from here."""
_NAMESPACE = "namespace-"
_PROCESSORS = "processors"


class NodeFolder:
    """`processors` is the same for every worker of this subjob and node; `own` is this worker process's alone."""

    def __init__(self, subjob: str, node: str) -> None:
        self._path = _private(subjob, node)
        self.processors = os.path.join(self._path, _PROCESSORS)
        self.own = os.path.join(self._path, str(os.getpid()))
        for folder in (self.processors, self.own):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        _mark(self._path)
        _remove_abandoned()

    def remove(self) -> None:
        """What is this worker's, and the rest once no other worker is using it."""
        _remove_tree(self.own)
        if not _in_use(self._path):
            _remove_tree(self._path)
        _remove_abandoned()


class Scratch:
    """A folder of this machine for one epoch, shared by all of the job's workers here; made when first asked for."""

    def __init__(self, job: str, epoch: int) -> None:
        self._name = "%s-%d" % (job, epoch)
        self._path = ""

    def path(self) -> str:
        if not self._path:
            # Machines may share /tmp (containers): the host's name keeps them apart.
            self._path = _private("e-" + self._name, os.uname().nodename)
            os.makedirs(os.path.join(self._path, str(os.getpid())), mode=0o700, exist_ok=True)
            _mark(self._path)
        return self._path

    def remove(self) -> None:
        """Once no other process here uses it."""
        if self._path:
            _remove_tree(os.path.join(self._path, str(os.getpid())))
            if not _in_use(self._path):
                _remove_tree(self._path)
            self._path = ""


def _private(subjob: str, node: str) -> str:
    # Short, since the path of a unix socket in it has at most 107 bytes.
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in "%s-%s" % (subjob, node))
    if len(name) > _LONGEST:
        name = "%s-%08x" % (name[: _LONGEST - 9], zlib.crc32(name.encode("utf-8")))
    path = os.path.join(_ROOT, "ejb-%d-%s" % (os.getuid(), name))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            path = "%s-%s" % (path, os.urandom(4).hex())  # another process was there first: another name will do
            os.mkdir(path, 0o700)
    return path


def _in_use(path: str) -> bool:
    return any(name.isdigit() and os.path.exists("/proc/" + name) for name in os.listdir(path))


def _here() -> str:
    """What tells the processes that this one can see from those of another machine or container with the same /tmp."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
        return "%s%s-%s" % (_NAMESPACE, boot.read().strip()[:8], os.stat("/proc/self/ns/pid").st_ino)


def _mark(path: str) -> None:
    try:
        os.close(os.open(os.path.join(path, _here()), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError:
        pass  # it will be older before it is swept


def _remove_abandoned() -> None:
    """What killed workers of this user left on this node."""
    prefix, here = "ejb-%d-" % os.getuid(), _here()
    for name in os.listdir(_ROOT):
        if not name.startswith(prefix):
            continue
        path = os.path.join(_ROOT, name)
        try:
            status = os.lstat(path)
            if not (stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()):
                continue
            marks = [mark for mark in os.listdir(path) if mark.startswith(_NAMESPACE)]
            patience_s = _ABANDONED_S if marks == [here] else _ELSEWHERE_S
            if time.time() - status.st_mtime > patience_s and not _in_use(path):
                _remove_tree(path)
        except OSError:
            pass  # another worker was faster


def _remove_tree(path: str) -> None:
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files + folders:
            full = os.path.join(folder, name)
            try:
                os.rmdir(full) if name in folders and not os.path.islink(full) else os.unlink(full)
            except OSError:
                pass
    try:
        os.rmdir(path)
    except OSError:
        pass
