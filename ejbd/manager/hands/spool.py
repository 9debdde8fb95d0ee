"""The spool: the folder on a shared file system through which manager, workers and ranks hand each other files.

Folders are 0700 and files 0600. A file appears whole or not at all (write, fsync, rename).
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import marshal
import os
import time
import zipapp
import zipfile
from collections.abc import Collection, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ejbd.batch.base import END_FILE, TOLD_FILE
from ejbd.errors import Code, EjbError
from ejbd.files.paths import distrusted, distrusted_entry
from ejbd.manager.hands.files import OWN_FILES, Files, spool_faults
from ejbd.manager.protocol.worker_models import PROTOCOL
from ejbd.plugins.engines import site_engines

IDENTITY_NAME = "identity.json"
MOST_IDENTITY_BYTES = 4096
SPEED_TRIAL_BYTES = 16 << 20


class Spool:
    """Paths and files below the spool folder (docs/worker-protocol.md says what reads them)."""

    def __init__(self, root: Path, files: Files = OWN_FILES, site: Path | None = None) -> None:
        """`files`: of the user that has the spool. `site`: where what was built for this site is (None: in `root`)."""
        self.root = root
        self.files = files
        self.trouble = ""  # why nothing can be written here now
        self.is_silent = False  # its file system does not answer
        self.worker = root  # until it is installed
        self._site = root if site is None else site

    def prepare(self) -> None:
        """Make the spool's own folders. Raises EjbError(SPOOL) where others could have put something there."""
        self.make()
        self._trust()

    def make(self) -> None:
        """The folders alone: where `files` are another user's, ejb-as sees that the spool is that user's alone."""
        self._folder(self.root)
        self._folder(self.root / "jobs")

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
        path, known = self.root / IDENTITY_NAME, self.database()
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

    def require_mark(self, database: str) -> None:
        """Return where the spool says that it is this database's. Raises EjbError (SPOOL): its file system is away."""
        if (known := self.database()) != database:
            message = "the spool's mark is gone" if not known else "the spool says that it is another database's"
            hint = f"is its file system mounted? Nothing is begun before {IDENTITY_NAME} is seen there"
            raise EjbError(Code.SPOOL, message, where=str(self.root), hint=hint, transient=True)

    def database(self) -> str:
        """Which database the spool says it belongs to; "" where it says nothing yet. Raises EjbError."""
        path = self.root / IDENTITY_NAME
        with spool_faults(path):
            try:
                return str(json.loads(self.files.read(path, MOST_IDENTITY_BYTES)[0])["database"])
            except FileNotFoundError:
                return ""
            except (ValueError, KeyError, TypeError):
                raise EjbError(Code.CONFLICT, "cannot be read as the spool's identity", where=str(path)) from None

    def claim(self, database: str) -> None:
        """Mark a spool that says nothing yet. Raises EjbError (CONFLICT) where it belongs to another database: workers
        find the daemon by a file in it, and its daemon deletes each folder that belongs to no job it knows of."""
        if not (known := self.database()):
            self._json(self.root / IDENTITY_NAME, {"database": database})
        elif known != database:
            path = self.root / IDENTITY_NAME
            hint = f"give each daemon a pattern of its own (`spool`); where the other one is gone, remove {path}"
            raise EjbError(Code.CONFLICT, "the spool belongs to another daemon's database", where=str(path), hint=hint)

    def _folder(self, path: Path) -> Path:
        self.files.folder(path)
        return path

    # -- what workers need ------------------------------------------------------------------------------------------

    def publish_url(self, url: str) -> None:
        """Tell workers where the daemon listens now."""
        self._json(self.root / "manager.json", {"url": url})

    def install_worker(self, built: bytes | None = None) -> Path:
        """Put the worker's zipapp into the spool, named by its content so that running workers keep theirs."""
        data = build_worker() if built is None else built
        path = self.root / f"worker-{hashlib.sha256(data).hexdigest()}.pyz"
        try:
            there, _ = self.files.read(path, len(data) + 1)
        except OSError:
            there = b""
        if there != data:
            self.files.put(path, data, 0o700)
        self.worker = path
        return path

    def make_told_file(self) -> Path:
        """The file that a J0 without workers writes into as it begins and ends the job's script. Made here, for it
        only: with another umask a J0's would be open to others."""
        path = self.root / TOLD_FILE
        self.files.put(path, b"", 0o600)
        return path

    def short_mark(self, kind: str, processes: int) -> Path:
        """The file that says whether runs of a kind of job were short at that width: it has a byte then."""
        return self.root / "short" / kind / str(processes)

    def dmtcp_plugin(self) -> str | None:
        """The plugin that lets DMTCP restart ranks on several hosts, if it was built and proved on this site."""
        name = Path("dmtcp", "libejbmove.so")
        built = self.dmtcp_plugin_record().get("trusted") is True and (self._site / name).exists()
        return str(self.root / name) if built else None

    def progress_library(self) -> Path | None:
        """What over-subscribed MPI ranks are to load, if it was built on this site (`ejb doctor --mpi`)."""
        path = self.root / "dmtcp" / "libejbprogress.so"
        # LD_PRELOAD knows no quotes.
        return path if (self._site / "dmtcp" / path.name).exists() and not set(" :") & set(str(path)) else None

    def calls_library(self) -> str | None:
        """What every program under DMTCP loads, if it was built here (as the daemon began, or by `ejb doctor`)."""
        path = self.root / "dmtcp" / "libejbcalls.so"
        return str(path) if (self._site / "dmtcp" / path.name).exists() and not set(" :") & set(str(path)) else None

    def dmtcp_plugin_record(self) -> dict[str, Any]:
        """What was written down when the plugin was built: for which DMTCP, whether it is trusted and why not."""
        try:
            record = json.loads((self._site / "dmtcp" / "libejbmove.so.json").read_text())
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
        return self.job_dir(job) / "slurm_script"

    def make_job(self, job: str, *, env: dict[str, str], script: str | None, command: dict[str, Any] | None) -> None:
        """The job's folder with the user's environment, and the script or the one launch. Repeatable."""
        root = self._folder(self.job_dir(job))
        for name in ("subjobs", "epochs", "launches", "script"):
            self._folder(root / name)
        if script is not None:
            self.files.put(self.script_file(job), script.encode(), 0o700)
        if command is not None:
            self._json(self.launch_file(job, 0), command)
        self._json(self.env_file(job), env)  # last: its presence says that the rest is there

    def record_file(self, job: str) -> Path:
        """What the database says of a job, for a database that is restored from an older copy."""
        return self.job_dir(job) / "job.json"

    def subjob_file(self, job: str, subjob: str) -> Path:
        return self.subjob_dir(job, subjob) / "subjob.json"

    def make_record(self, job: str, record: dict[str, Any]) -> None:
        self._folder(self.job_dir(job))
        self._json(self.record_file(job), record)

    def make_subjob(
        self, job: str, subjob: str, secret: str, *, binding: str = "auto", row: dict[str, Any] | None = None
    ) -> Path:
        """The subjob's folder with the file that says what its workers work for. `binding`: `auto` or `none`. `row`: of
        the database, as for :meth:`record_file`."""
        root = self._folder(self.subjob_dir(job, subjob))
        content: dict[str, Any] = {
            "protocol": int(PROTOCOL),
            "job": job,
            "subjob": subjob,
            "secret": secret,
            "spool": str(self.root),
            "job_dir": str(self.job_dir(job)),
            "binding": binding,
        }
        if row is not None:
            content["row"] = row
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
        self.files.put(path, "".join(f"{node}\n" for node in nodes).encode())
        return path

    def has_checkpoint(self, job: str, epoch: int) -> bool:
        """Whether there is anything of a placement's checkpoint."""
        return self.files.there(self.checkpoint_dir(job, epoch))

    def drop_checkpoint(self, job: str, epoch: int) -> None:
        """Delete a checkpoint that nothing will resume any more."""
        self.files.remove(self.checkpoint_dir(job, epoch))

    def job_folders(self) -> set[str]:
        """The jobs that have a folder."""
        return self.files.names(self.root / "jobs")

    def drop_jobs(self, jobs: Collection[str]) -> None:
        """Delete the folders of jobs that nothing will ask for any more."""
        for job in jobs:
            self.files.remove(self.job_dir(job))

    def _json(self, path: Path, content: Any) -> None:
        self.files.put(path, json.dumps(content).encode())


SITE_ENGINES = "ejb_worker/engines/site.py"


def build_worker() -> bytes:
    """The worker package as one runnable zip file; the same sources give the same bytes.

    Beside each source is its bytecode. A Python of the daemon's version on the nodes takes it as it is: compiling was
    half of what a worker's start cost. Any other Python passes over it and reads the source.
    """
    source = io.BytesIO()
    modules = tuple(one.module for one in site_engines().values())
    package = resources.files("ejbd._workers") / "ejb_worker"
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
        # At the top: what stands on PYTHONPATH of evolving jobs is this very file (docs/workflows.md).
        module = b"from ejb_worker.elastic import *\nfrom ejb_worker.elastic import __doc__\n"
        archive.writestr(zipfile.ZipInfo("ejb_elastic.py", (1980, 1, 1, 0, 0, 0)), module)
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
