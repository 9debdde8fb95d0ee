"""The spool: the folder on a shared file system through which manager, workers and ranks hand each other files.

Folders are 0700 and files 0600. A file appears whole or not at all (write, fsync, rename).
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import io
import json
import marshal
import os
import secrets
import shutil
import time
import zipapp
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from ejbd.batch.base import END_FILE
from ejbd.errors import Code, EjbError
from ejbd.files.paths import distrusted, distrusted_entry
from ejbd.files.userfiles import read_plain
from ejbd.manager.protocol.worker_models import PROTOCOL
from ejbd.plugins.engines import site_engines

IDENTITY_NAME = "identity.json"
SPEED_TRIAL_BYTES = 16 << 20


@contextmanager
def _spool_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise EjbError(
            Code.SPOOL,
            f"cannot write: {error.strerror}",
            where=str(path),
            transient=full,
            hint="free space on the spool's file system" if full else "the daemon must own its spool",
        ) from error


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write `data` so that `path` is either what it was or all of it. Raises EjbError(SPOOL)."""
    # A new file under a name that cannot be guessed: a FIFO put there would hold us up, a link lead us elsewhere.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with _spool_faults(path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


class Spool:
    """Paths and files below the spool folder (docs/worker-protocol.md says what reads them)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def prepare(self) -> None:
        """Make the spool's own folders. Raises EjbError(SPOOL) where others could have put something there."""
        self._folder(self.root)
        self._folder(self.root / "jobs")
        self._trust()

    def _trust(self) -> None:
        hint = "chown and chmod it (`ejb doctor` looks again), or set `spool` to a new folder"
        try:
            why = distrusted(self.root) or next(filter(None, map(distrusted_entry, self.root.iterdir())), "")
        except OSError as error:
            why = f"{error.filename or self.root}: {error.strerror}"
        if why:
            message = f"the spool is not yours alone: {why}; a user that can write there could run anything as you"
            raise EjbError(Code.SPOOL, message, where=str(self.root), hint=hint)

    def claim_for(self, database: str, newly_named: bool, expected: Collection[str]) -> None:
        """See that this spool and the database `database` belong together, and mark a spool that says nothing yet.

        `expected`: jobs that the database believes to have files here. Raises EjbError (CONFLICT): the workers of jobs
        that run on a spool know nothing of another database, nor that database of them.
        """
        path = self.root / IDENTITY_NAME
        with _spool_faults(path):
            try:
                known = str(json.loads(path.read_text())["database"])
            except FileNotFoundError:
                known = ""
            except (ValueError, KeyError, TypeError):
                raise EjbError(Code.CONFLICT, "cannot be read as the spool's identity", where=str(path)) from None
        if known == database:
            return
        jobs = {folder.name for folder in (self.root / "jobs").iterdir()}
        if known and jobs:
            what = "this one is new" if newly_named else "this one is another"
            raise EjbError(
                Code.CONFLICT,
                f"the spool with {len(jobs)} jobs belongs to a database of its own, and {what}",
                where=str(self.root),
                hint=f"set database_url to theirs, or give this database another spool; to give those jobs up, "
                f"remove {path}",
            )
        if expected and not jobs.intersection(expected):
            raise EjbError(
                Code.CONFLICT,
                f"the spool has none of the files of the {len(expected)} jobs that are under way",
                where=str(self.root),
                hint="is its file system mounted? To give those jobs up, start with a new database",
            )
        self._json(path, {"database": database})

    def _folder(self, path: Path) -> Path:
        with _spool_faults(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    # -- what workers need ------------------------------------------------------------------------------------------

    def publish_url(self, url: str) -> None:
        """Tell workers where the daemon listens now."""
        self._json(self.root / "manager.json", {"url": url})

    def install_worker(self) -> Path:
        """Put the worker's zipapp into the spool, named by its content so that running workers keep theirs."""
        data = build_worker()
        path = self.root / f"worker-{hashlib.sha256(data).hexdigest()}.pyz"
        try:
            there, _ = read_plain(path, len(data) + 1, owner=os.geteuid())
        except OSError:
            there = b""
        if there != data:
            write_atomically(path, data, 0o700)
        return path

    def dmtcp_plugin(self) -> str | None:
        """The plugin that lets DMTCP restart ranks on several hosts, if it was built and proved on this site."""
        path = self.root / "dmtcp" / "libejbmove.so"
        return str(path) if self.dmtcp_plugin_record().get("trusted") is True and path.exists() else None

    def progress_library(self) -> Path | None:
        """What over-subscribed MPI ranks are to load, if it was built on this site (`ejb doctor --mpi`)."""
        path = self.root / "dmtcp" / "libejbprogress.so"
        # LD_PRELOAD knows no quotes.
        return path if path.exists() and not set(" :") & set(str(path)) else None

    def dmtcp_plugin_record(self) -> dict[str, Any]:
        """What was written down when the plugin was built: for which DMTCP, whether it is trusted and why not."""
        try:
            record = json.loads((self.root / "dmtcp" / "libejbmove.so.json").read_text())
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    def measure_speed(self, size: int = SPEED_TRIAL_BYTES) -> float | None:
        """Bytes a second that this machine writes to the spool and has on disk; None where there is no room to try."""
        path = self.root / f".speed.{os.getpid()}"
        try:
            room = os.statvfs(self.root)
            if room.f_bavail * room.f_frsize < 16 * size:
                return None
            block = os.urandom(1 << 20)  # that no file system can compress
            began = time.monotonic()
            with path.open("wb") as file:
                for _ in range(size >> 20):
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
            return size / max(1e-6, time.monotonic() - began)
        except OSError:
            return None
        finally:
            path.unlink(missing_ok=True)

    # -- one job ----------------------------------------------------------------------------------------------------

    def job_dir(self, job: str) -> Path:
        return self.root / "jobs" / job

    def subjob_dir(self, job: str, subjob: str) -> Path:
        return self.job_dir(job) / "subjobs" / subjob

    def exit_file(self, job: str, subjob: str) -> Path:
        return self.subjob_dir(job, subjob) / "exit"

    def end_file(self, job: str, subjob: str) -> Path:
        return self.subjob_dir(job, subjob) / END_FILE

    def epoch_dir(self, job: str, epoch: int) -> Path:
        return self.job_dir(job) / "epochs" / str(epoch)

    def checkpoint_dir(self, job: str, epoch: int) -> Path:
        return self.epoch_dir(job, epoch) / "checkpoint"

    def launch_file(self, job: str, ordinal: int) -> Path:
        return self.job_dir(job) / "launches" / f"{ordinal}.json"

    def env_file(self, job: str) -> Path:
        return self.job_dir(job) / "env.json"

    def script_file(self, job: str) -> Path:
        return self.job_dir(job) / "batch-script"

    def make_job(self, job: str, *, env: dict[str, str], script: str | None, command: dict[str, Any] | None) -> None:
        """The job's folder with the user's environment, and the script or the one launch. Repeatable."""
        root = self._folder(self.job_dir(job))
        for name in ("subjobs", "epochs", "launches", "script"):
            self._folder(root / name)
        if script is not None:
            write_atomically(self.script_file(job), script.encode(), 0o700)
        if command is not None:
            self._json(self.launch_file(job, 0), command)
        self._json(self.env_file(job), env)  # last: its presence says that the rest is there

    def make_subjob(self, job: str, subjob: str, secret: str, *, binding: str = "auto") -> Path:
        """The subjob's folder with the file that says what its workers work for. `binding`: `auto` or `none`."""
        root = self._folder(self.subjob_dir(job, subjob))
        content = {
            "protocol": int(PROTOCOL),
            "job": job,
            "subjob": subjob,
            "secret": secret,
            "spool": str(self.root),
            "job_dir": str(self.job_dir(job)),
            "binding": binding,
        }
        self._json(root / "subjob.json", content)
        return root

    def make_epoch(self, job: str, epoch: int) -> Path:
        """The folder of a placement: empty rendezvous, checkpoint and output folders."""
        root = self._folder(self.epoch_dir(job, epoch))
        for name in ("rendezvous", "checkpoint", "output"):
            self._folder(root / name)
        return root

    def make_nodefile(self, folder: Path, nodes: Sequence[str]) -> Path:
        """The file that $PBS_NODEFILE names: a line a rank, with the node where it is."""
        path = folder / "nodefile"
        write_atomically(path, "".join(f"{node}\n" for node in nodes).encode())
        return path

    def drop_checkpoint(self, job: str, epoch: int) -> None:
        """Delete a checkpoint that nothing will resume any more."""
        shutil.rmtree(self.checkpoint_dir(job, epoch), ignore_errors=True)

    def job_folders(self) -> set[str]:
        """The jobs that have a folder."""
        return {folder.name for folder in (self.root / "jobs").iterdir()}

    def drop_jobs(self, jobs: Collection[str]) -> None:
        """Delete the folders of jobs that nothing will ask for any more."""
        for job in jobs:
            shutil.rmtree(self.job_dir(job), ignore_errors=True)

    def _json(self, path: Path, content: Any) -> None:
        write_atomically(path, json.dumps(content).encode())


SITE_ENGINES = "ejb_worker/engines/site.py"


def build_worker() -> bytes:
    """The worker package as one runnable zip file; the same sources give the same bytes.

    Beside each source is its bytecode. A Python of the daemon's version on the nodes takes it as it is: compiling was
    half of what a worker's start cost. Any other Python passes over it and reads the source.
    """
    source = io.BytesIO()
    modules = tuple(one.module for one in site_engines().values())
    package = resources.files("workers") / "ejb_worker"
    with zipfile.ZipFile(source, "w") as archive:
        for name, data in _sources(package, "ejb_worker"):
            if name == SITE_ENGINES:
                data = data.replace(b"MODULES = ()", f"MODULES = {modules!r}".encode())
            # What is read by every worker is stored as it is; what is there in case, small.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
            archive.writestr(zipfile.ZipInfo(name + "c", (1980, 1, 1, 0, 0, 0)), _bytecode(name, data))
        for one in site_engines().values():
            archive.writestr(
                zipfile.ZipInfo(f"ejb_worker/engines/{one.module}.py", (1980, 1, 1, 0, 0, 0)), one.worker.read_bytes()
            )
        entry = b"from ejb_worker.__main__ import main\nimport sys\nsys.exit(main())\n"
        archive.writestr(zipfile.ZipInfo("__main__.py", (1980, 1, 1, 0, 0, 0)), entry)
    source.seek(0)
    target = io.BytesIO()
    zipapp.create_archive(source, target, interpreter="/usr/bin/env python3")
    return target.getvalue()


def _bytecode(name: str, source: bytes) -> bytes:
    """A .pyc file that is never held against its source (PEP 552): both are in one file, and its digest is known."""
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    return head + marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0))


def _sources(folder: Any, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda e: str(e.name)):
        name = f"{prefix}/{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _sources(entry, name)
        elif entry.name.endswith(".py"):
            yield name, entry.read_bytes()
