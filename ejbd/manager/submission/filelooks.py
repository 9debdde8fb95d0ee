"""What a submission's files show: the profile of its application, the kind of its mpirun, where its ranks can be."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from ejbd.files.userfiles import apart
from ejbd.manager.facts.batchjob.pbsfolders import into_folders
from ejbd.manager.facts.placing import appprofile
from ejbd.manager.facts.placing.appprofile import none_is_for, read_as_daemon, with_profile
from ejbd.manager.facts.placing.checkpointing import with_mpi
from ejbd.manager.facts.placing.mpi import LOOK_S
from ejbd.manager.facts.placing.mpirun import doubt, with_launcher
from ejbd.manager.jobspec import JobKind, Reading
from ejbd.profiles.profile import Profile
from ejbd.wire.kinds import Engine

ReadsFileOf = Callable[[str, Path, int], bytes]
FRESH_S = 0.25  # so long a flood of submissions goes by the profiles that one of it has read
MOST_KEPT, KEPT_CHARACTERS = 256, 16_384


class FileLooks:
    """Looks at the files of submissions, in a thread, as far as that comes within `LOOK_S`.

    A job of which no file can say anything has no look: in a flood a thread costs more than all else of a submission.
    `own`: the daemon runs jobs of its own user alone.
    """

    def __init__(
        self, own: bool, now: Callable[[], float] = time.monotonic, read_file: ReadsFileOf | None = None
    ) -> None:
        """`read_file`: reads up to so many bytes of a file as the user that is named (None: as the daemon)."""
        self._own = own
        self._read_file = read_file
        self._now = now
        self._seen: tuple[float, Mapping[str, Profile]] | None = None  # when profiles were read, and which there are
        self._asked_of: Mapping[str, Profile] = {}
        self._none_is_for: set[tuple[object, ...]] = set()  # of those: what is submitted again and again

    async def at(self, job: Reading, user: str = "") -> Reading:
        """The user's job with what is seen of its files."""
        if self._nothing_to_see(job):
            return job
        found = [job]

        def look() -> None:
            found.append(self._with_profile(job, user))
            for step in (_with_launcher, _with_mpi):
                found.append(step(found[-1]))

        with suppress(TimeoutError):
            await apart(look, LOOK_S, user)
        return found[-1]

    def _nothing_to_see(self, job: Reading) -> bool:
        if job.spec.pbs or _may_have_mpi(job) or job.profiles or Engine.reshapes(job.spec.engine):
            return False
        if len(job.spec.script or "") > KEPT_CHARACTERS:
            return False  # to see that takes longer than a thread
        seen = self._seen
        if seen is None or self._now() - seen[0] >= FRESH_S:
            return none_is_for(job.spec, None)
        spec, profiles = job.spec, seen[1]
        asked = (spec.engine, spec.elastic, spec.kind, spec.script, spec.argv, spec.processes, spec.threads, spec.cwd)
        if profiles is not self._asked_of or len(self._none_is_for) >= MOST_KEPT:
            self._asked_of, self._none_is_for = profiles, set()
        if asked in self._none_is_for:
            return True
        if not none_is_for(spec, profiles):
            return False
        self._none_is_for.add(asked)
        return True

    def _with_profile(self, job: Reading, user: str) -> Reading:
        read_file = read_as_daemon if self._read_file is None else partial(self._read_file, user)
        spec, said = with_profile(job.spec, self._own, job.profiles, self._read, read_file)
        return replace(job, spec=spec, notes=(*job.notes, *([said] if said else ())))

    def _read(self, own: bool) -> Mapping[str, Profile]:
        began_s = self._now()
        profiles = appprofile.known(own)
        self._seen = began_s, profiles
        return profiles


def _with_launcher(job: Reading) -> Reading:
    doubted = doubt(job.spec)
    return replace(job, spec=with_launcher(job.spec), notes=(*job.notes, *([doubted] if doubted else ())))


def _may_have_mpi(job: Reading) -> bool:
    return job.spec.mpi == "auto" and job.spec.kind is JobKind.COMMAND


def _with_mpi(job: Reading) -> Reading:
    if job.spec.pbs:
        return replace(job, spec=into_folders(job.spec))
    return replace(job, spec=with_mpi(job.spec)) if _may_have_mpi(job) else job
