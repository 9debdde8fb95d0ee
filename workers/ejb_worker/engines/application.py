"""The application writes its own checkpoint: SIGUSR1; write, fsync, rename; exit 85; run again with EJB_RESTART_DIR."""

from __future__ import annotations

import os
import re
import signal
from typing import Dict, List, Mapping, Optional, Set

from .. import linux
from .base import Checkpoint, Command, Engine, EngineError, EpochContext, Outcome

CHECKPOINTED = 85
"""The exit code of a rank that has written its checkpoint."""

SIGNAL = signal.SIGUSR1

_RANK = re.compile(r"(?:^|[._-])(?P<word>rank[._-]?)?(?P<rank>[0-9]+)(?=[._-]|$)")


def rank_of(name: str) -> Optional[int]:
    """The rank that a file in the checkpoint folder belongs to.

    It is the first number that stands alone between `.`, `-` and `_`; one after the word `rank` goes before others.
    """
    found = list(_RANK.finditer(name))
    for match in found:
        if match.group("word"):
            return int(match.group("rank"))
    return int(found[0].group("rank")) if found else None


class ApplicationCheckpoint(Checkpoint):
    """Signals each rank once, as soon as it catches the signal: before that SIGUSR1 would kill it."""

    def __init__(self, epoch: EpochContext) -> None:
        self._epoch = epoch
        self._unsignalled: Set[int] = set(epoch.ranks)

    def advance(self) -> Optional[Outcome]:
        ranks = self._epoch.ranks
        for rank in sorted(self._unsignalled):
            if ranks[rank].code is None and not linux.receives(ranks[rank].pid, SIGNAL):
                continue
            ranks[rank].send(SIGNAL)
            self._unsignalled.discard(rank)
        if not self._unsignalled:
            self.poll_s = None  # from here on the ends of the ranks say everything
        failed = {r: c.code for r, c in ranks.items() if c.code not in (None, 0, CHECKPOINTED)}
        if failed:
            return Outcome(False, "ranks ended without a checkpoint: %s" % _codes(failed))
        if any(child.code is None for child in ranks.values()):
            return None
        finished = {r: c.code for r, c in ranks.items() if c.code == 0}
        if finished:
            return Outcome(False, "ranks had finished: %s" % _codes(finished))
        return self._look_at_files()

    def timed_out(self) -> Outcome:
        if self._unsignalled:
            return Outcome(False, "ranks do not catch SIGUSR1: %s" % _numbers(self._unsignalled))
        running = [r for r, c in self._epoch.ranks.items() if c.code is None]
        return Outcome(False, "no checkpoint in time, ranks still running: %s" % _numbers(running))

    def _look_at_files(self) -> Outcome:
        sizes = dict.fromkeys(self._epoch.ranks, 0)
        for folder, _folders, names in os.walk(self._epoch.checkpoint_dir):
            inside = os.path.relpath(folder, self._epoch.checkpoint_dir)
            for name in names:
                rank = rank_of(name if inside == "." else inside.split(os.sep)[0])
                if rank not in sizes:
                    continue
                if name.endswith(".tmp"):
                    return Outcome(False, "rank %d left an unfinished file: %s" % (rank, name))
                sizes[rank] += os.stat(os.path.join(folder, name)).st_size
        return Outcome(True, sizes=sizes)


class ApplicationEngine(Engine):
    name = "application"

    def probe(self) -> str:
        if not os.path.exists("/proc/self/status"):
            return "engine application needs /proc on this node"
        return ""

    def prepare(self, epoch: EpochContext) -> None:
        if epoch.restart_dir is not None and not os.path.isdir(epoch.restart_dir):
            raise EngineError("the checkpoint to restart from is not there: %s" % epoch.restart_dir)

    def launch(self, epoch: EpochContext, rank: int, argv: List[str], env: Dict[str, str]) -> Command:
        return Command(argv, env)

    def restart(self, epoch: EpochContext, rank: int, argv: List[str], env: Dict[str, str]) -> Command:
        return Command(argv, env)  # the program reads EJB_RESTART_DIR

    def checkpoint(self, epoch: EpochContext) -> Checkpoint:
        return ApplicationCheckpoint(epoch)

    def finish(self, epoch: EpochContext) -> None:
        return


def _codes(codes: Mapping[int, Optional[int]]) -> str:
    return ", ".join("rank %d with %s" % (rank, code) for rank, code in sorted(codes.items()))


def _numbers(ranks: "Set[int] | List[int]") -> str:
    return ", ".join(str(rank) for rank in sorted(ranks))
