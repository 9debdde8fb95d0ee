"""Wiring up the MPI ranks of one epoch on this worker.

When the PMI server is started, what a rank is told, and what the user is told where ranks cannot find each other.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterator, Mapping

from .engines.base import Command, Engine, EngineError, EpochContext
from .loop import Loop
from .mpi import SERVICE, MpiEpoch
from .mpiwatch import alone, like_srun, refused

# Of another wire-up, such as that of an mpiexec around us.
_WIRED_UP = ("OMPI_COMM_", "PMIX_RANK", "PMIX_NAMESPACE", "PMIX_SERVER", "PMI_")


class Wiring:
    """`start_service` starts a helper of the epoch by its name; further arguments are descriptors that it gets."""

    def __init__(
        self,
        mpi: MpiEpoch,
        context: EpochContext,
        engine: Engine,
        *,
        loop: Loop,
        start_service: Callable[..., None],
        report: Callable[..., object],
    ) -> None:
        self._mpi = mpi
        self._context = context
        self._engine = engine
        self._loop = loop
        self._start_service = start_service
        self._report = report
        self._told = False

    def bring_up(self) -> Iterator[None]:
        """Until ranks can be started; yields where it has to wait. Raises EngineError and OSError."""
        context, mpi = self._context, self._mpi
        folder = context.state.get("pmi_folder")
        if folder is not None:
            mpi.resume(folder)
            return
        if self._engine.keeps_services and context.restart_dir is not None:
            return  # what was not a member of the computation is not to become one
        if context.home and self._engine.keeps_services:
            argv = mpi.server()
            self._start_service(SERVICE, self._engine.service(context, SERVICE, argv, dict(os.environ)))
        elif context.home:
            door = mpi.open_door().fileno()
            self._loop.on_readable(door, lambda: self._answer(door))
        while not mpi.ready():
            service = context.services.get(SERVICE)
            if service is not None and service.code is not None:
                raise EngineError("the PMI server ended with code %d before it listened" % service.code)
            yield

    def environment(self, rank: int, given: Mapping[str, str]) -> Dict[str, str]:
        """A rank's whole environment."""
        env = {name: value for name, value in given.items() if not name.startswith(_WIRED_UP)}
        step = os.path.splitext(os.path.basename(str(self._context.payload["launch_file"])))[0]
        env.update(like_srun(step, self._context.node, env))
        env.update(self._mpi.environment(rank, env))
        return env

    def exit_code(self, rank: int, code: int) -> int:
        return self._mpi.exit_code(rank, code)

    def why(self) -> str:
        return self._mpi.why()

    def tell_if_alone(self, pids: Mapping[int, int]) -> bool:
        """Whether these ranks run and know nothing of each other; the job's output says so."""
        if self._engine.keeps_services and self._context.restart_dir is not None:
            return False  # a restored process shows the environment of dmtcp_restart, and had found its peers before
        why = alone(pids.values())
        if why:
            self._tell(min(pids), why)
        return bool(why)

    def tell_if_refused(self, rank: int) -> None:
        """A rank has failed: say more, once, where an MPI did not want to be started like this."""
        why = "" if self._told else refused(self._errors(rank))
        if why:
            self._tell(rank, why)

    def close(self) -> None:
        descriptor = self._mpi.close_door()
        if descriptor is not None:
            self._loop.forget(descriptor)

    def _answer(self, door: int) -> None:
        """The first rank asks for the others: an MPI program, then."""
        self._loop.forget(door)
        try:
            self._start_service(SERVICE, Command(self._mpi.server(door), dict(os.environ)), door)
        except OSError as error:
            self._report("log", level="error", message="cannot start the PMI server: %s" % error)
        self._mpi.close_door()  # without a server the ranks get the answer that it is not there

    def _tell(self, rank: int, sentence: str) -> None:
        """Into the job's output, behind what the rank wrote, and into the job's events."""
        self._told = True
        fields: Dict[str, Any] = {"level": "error", "message": sentence}
        self._report("log", **fields)
        try:
            with open(self._errors(rank), "a", encoding="utf-8") as errors:
                errors.write("ejb: %s\n" % sentence)
        except OSError:
            pass  # a full disk: the event is left

    def _errors(self, rank: int) -> str:
        return os.path.join(self._context.folder, "output", "%d.err" % rank)
