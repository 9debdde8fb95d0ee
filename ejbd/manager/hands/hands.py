"""Each user's spool: everything that touches a user's files gets them here, for that user."""

from __future__ import annotations

import pwd
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.files.userfiles import read_plain
from ejbd.identity.ejb_as import Refused, find_files
from ejbd.identity.sessions import PATIENCE_S, Helper
from ejbd.manager.hands.fenced import FencedFiles, Prove
from ejbd.manager.hands.files import Files, UsersFiles
from ejbd.manager.hands.spool import Spool, build_worker
from ejbd.store.models import Job

log = structlog.get_logger(__name__)

MOST_NAMES, FIND_S = 200_000, 20  # that one look for a user's files may take: names in folders, and seconds
_BUILT_HERE = ("libejbmove.so", "libejbmove.so.json", "libejbprogress.so", "libejbcalls.so")  # for this site


def uid_of(user: str) -> int:
    """The user's number; -1, which no file has, where there is no such user."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return int(user) if user.isdigit() else -1


class Hands:
    """With `identity = "self"`: one user's jobs, in the daemon's own spool."""

    by_user = False  # whether jobs are of many users, each acted for apart

    def __init__(self, own: Spool) -> None:
        self.own = own
        self._url: str | None = None
        self._has_begun = self._is_told = False

    def spool_of(self, user: str) -> Spool:
        """The spool of a user's jobs."""
        return self.own

    def spool_by(self, user: Callable[[], str]) -> Spool:
        """The same, where it costs something to know the user."""
        return self.own

    def ready(self, user: str) -> Spool:
        """The same, with what workers need in it. Blocks; raises EjbError (SPOOL)."""
        return self.own

    def users_of(self, session: Session, jobs: Collection[str]) -> dict[str, str]:
        """Job -> user, as far as it matters to which user a job belongs."""
        return {}

    def begin(self, expected: Iterable[str], database: str) -> None:
        """What has to be there before any job is. `expected`: users with workers that run, and are to be told of us.
        `database`: what names the one that this daemon has."""
        self.own.install_worker()
        self._has_begun = True

    def in_own(self, jobs: Iterable[str]) -> set[str]:
        """Those of these jobs that have their files in the daemon's own spool."""
        return set(jobs)

    def job_folders(self, users: Iterable[str]) -> list[tuple[Spool, set[str]]]:
        """The jobs that have a folder, by the spool that it is in. Blocks; what cannot be seen is left out, and so is
        what belongs to another daemon."""
        return [(self.own, self.own.job_folders())]

    def publish(self, url: str) -> None:
        """Tell workers where the daemon listens now, once it has begun."""
        self._url, self._is_told = url, False
        self.tell()

    def tell(self) -> None:
        """Tell it to those that could not be told so far. Blocks."""
        if self._url is None or self._is_told or not self._has_begun:
            return
        try:
            self.own.publish_url(self._url)
            self._is_told = True
        except EjbError as error:
            log.warning("workers-not-told", error=error.sentence())

    def read(self, path: Path, most: int) -> tuple[bytes, float]:
        """A file in the spool of whichever user it is in. Raises OSError."""
        return self.own.files.read(path, most)

    def user_at(self, path: Path) -> str:
        """The user that has the spool in which that is, as far as it matters."""
        return ""

    def output(self, user: str, path: str, most: int, offset: int) -> bytes:
        """Up to `most` bytes of a job's output from `offset` on. Raises OSError (NotPlain, NotTheirs, ...).

        The path came from a user, and the daemon may be allowed to read more than that user. What is opened must be a
        regular file of theirs. A link is followed, as the batch system did that wrote through it.
        """
        return read_plain(path, most, owner=uid_of(user), offset=offset, follow=True)[0]

    def find_files(self, user: str, cwd: str, patterns: Sequence[str]) -> list[list[float]]:
        """Of each pattern of a user's files how many match it, and when the oldest and newest changed (epoch seconds).

        Blocks for `FIND_S` at most where the file system answers. Raises OSError, and EjbError: TOO_LARGE for more than
        `MOST_NAMES` names, or where it took longer.
        """
        try:
            return find_files(cwd, patterns, MOST_NAMES, FIND_S)
        except Refused as error:
            raise EjbError(Code.TOO_LARGE, str(error)) from None

    def read_file(self, user: str, path: Path, most: int) -> bytes:
        """Up to `most` bytes of a file of the user's, in whichever folder. Raises OSError."""
        return read_plain(path, most)[0]

    def make_empty_file(self, user: str, path: Path) -> None:
        """Make an empty file of the user's, and its folder, where it is not there. Blocks; raises OSError, EjbError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


class UsersHands(Hands):
    """With `identity = "helper"`: each user's files in a spool of that user's own, by `ejb-as`.

    The daemon's own spool has what is the site's: which database it belongs to, and what `ejb doctor` has built.
    """

    by_user = True

    def __init__(self, own: Spool, helper: Helper, prove: Prove | None = None) -> None:
        super().__init__(own)
        self._prove = prove
        self._helper = helper
        self._spools: dict[str, Spool] = {}
        self._told: set[str] = set()
        self._untold: set[str] = set()
        self._worker, self._database = b"", ""
        self._lock = threading.Lock()

    def spool_of(self, user: str) -> Spool:
        found = self._spools.get(user)
        if found is None:
            try:
                root = self._helper.spools.of(user)
            except ValueError as error:
                raise EjbError(Code.FORBIDDEN, str(error)) from None
            files: Files = UsersFiles(self._helper, user)
            files = files if self._prove is None else FencedFiles(files, self._prove)
            found = self._spools.setdefault(user, Spool(root, files, site=self.own.root))
        return found

    def spool_by(self, user: Callable[[], str]) -> Spool:
        return self.spool_of(user())

    def ready(self, user: str) -> Spool:
        spool, url = self.spool_of(user), self._url
        if user in self._told:
            spool.require_mark(self._database)
            return spool
        spool.make()
        spool.claim(self._database)
        spool.install_worker(self._worker)
        for name in _BUILT_HERE:
            file = self.own.root / "dmtcp" / name
            if file.exists():
                spool.files.put(spool.root / "dmtcp" / name, file.read_bytes(), 0o700)
        if url is not None:
            spool.publish_url(url)
        with self._lock:
            if url is not None and url == self._url:
                self._told.add(user)
                self._untold.discard(user)
        return spool

    def users_of(self, session: Session, jobs: Collection[str]) -> dict[str, str]:
        rows = session.execute(select(Job.id, Job.user).where(Job.id.in_(jobs)))
        return {row.id: row.user for row in rows}

    def begin(self, expected: Iterable[str], database: str) -> None:
        self._worker, self._database = build_worker(), database
        with self._lock:
            self._untold.update(expected)

    def in_own(self, jobs: Iterable[str]) -> set[str]:
        return set()

    def job_folders(self, users: Iterable[str]) -> list[tuple[Spool, set[str]]]:
        found = []
        for user in users:
            try:
                spool = self.spool_of(user)
                if spool.database() == self._database:  # else another daemon has jobs there that we know nothing of
                    found.append((spool, spool.job_folders()))
            except (OSError, EjbError) as error:
                log.warning("folders-not-seen", user=user, error=str(error))
        return found

    def publish(self, url: str) -> None:
        with self._lock:
            self._url = url
            self._untold |= self._told
            self._told = set()

    def tell(self) -> None:
        if self._url is None:
            return
        for user in sorted(self._untold):
            try:
                self.ready(user)
            except EjbError as error:
                log.warning("workers-not-told", user=user, error=error.sentence())

    def read(self, path: Path, most: int) -> tuple[bytes, float]:
        return self._helper.read(path, most)

    def user_at(self, path: Path) -> str:
        return self._helper.spools.user_at(path) or ""

    def output(self, user: str, path: str, most: int, offset: int) -> bytes:
        return self._helper.read(Path(path), most, user, offset)[0]

    def find_files(self, user: str, cwd: str, patterns: Sequence[str]) -> list[list[float]]:
        asked = {"cwd": cwd, "patterns": list(patterns), "most": MOST_NAMES, "seconds": FIND_S}
        answer = self._helper.ask(user, "find", answer_s=FIND_S + PATIENCE_S, **asked)
        if "over" in answer:
            raise EjbError(Code.TOO_LARGE, str(answer["over"]))
        found: list[list[float]] = answer["found"]
        return found

    def read_file(self, user: str, path: Path, most: int) -> bytes:
        return self._helper.read(path, most, user)[0]

    def make_empty_file(self, user: str, path: Path) -> None:
        self._helper.ask(user, "touch", path=str(path))
