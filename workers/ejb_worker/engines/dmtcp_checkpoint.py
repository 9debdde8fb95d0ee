"""One checkpoint by DMTCP after which the ranks end: how it is asked for, when it counts, and what is reported about
it.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional

from ..files import read_json, write_json
from . import dmtcp_images as images
from .background import Background
from .base import Checkpoint, EngineError, EpochContext, Outcome
from .dmtcp_obstacles import restless
from .dmtcp_tools import Commander, read_status, tools

STOPPED = 85
"""Reported for a rank that was checkpointed and stopped: its process ends with 0, as one that has finished does."""

STATUS_PAUSE_S = 0.1
VERDICT_PAUSE_S = 0.3
IMAGES_PAUSE_S = 0.2
SETTLED_S = 2.0
"""A process that a rank had started may have ended since the processes were counted. Once there have been no more
images for so long, these are all."""
QUIET_S = 2.0
LEFT_BEHIND_S = 5.0
"""What a rank leaves behind, and writes no image for so long, was not being checkpointed."""
ROOM = 1.1
"""Free space on the spool that a checkpoint needs, by the resident memory of the ranks."""


class DmtcpCheckpoint(Checkpoint):
    """Checkpoint and stop: the home asks the coordinator, every worker waits for its ranks to end and reads the images.

    Only the exit code of a command counts, never its text. `-kc` returns before anything is written; a computation that
    is refused answers 2.
    """

    poll_s = 0.02  # two commands are waited for in turn before the ranks stop, and the application waits with them

    def __init__(self, epoch: EpochContext) -> None:
        self._epoch = epoch
        state = epoch.state
        state["attempt"] = int(state.get("attempt", 0)) + 1
        self._attempt = int(state["attempt"])
        self._phase = "status" if epoch.home else "wait"
        self._next_s = 0.0
        self._peers = 0
        self._found = (0, 0)
        self._found_s = self._ended_s = self._quiet_until = 0.0
        self._refusal = ""
        self._sums: Optional[Background[Dict[str, str]]] = None
        for rank, child in epoch.ranks.items():
            images.empty_folder(images_of(epoch, images.member(rank)))
            child.spared = True  # the processes that it has started are checkpointed, too, and may be through later
        for name in epoch.services:
            images.empty_folder(images_of(epoch, name))

    def advance(self) -> Optional[Outcome]:
        failed = {r: c.code for r, c in self._epoch.ranks.items() if c.code not in (None, 0)}
        if failed:
            text = ", ".join("rank %d with %s" % item for item in sorted(failed.items()))
            return self._give_up("ranks ended without a checkpoint: " + text)
        if self._phase == "status":
            return self._ask_status()
        if self._phase == "command":
            return self._ask_checkpoint()
        if self._phase == "sums":
            return self._keep()
        return self._wait()

    def timed_out(self) -> Outcome:
        if self._phase == "status":
            return self._leave_running("the ranks were not ready for a checkpoint in time")
        if self._phase == "sums":
            return self._give_up("the checksums were not through in time")
        return self._give_up("no checkpoint in time")

    # -- the home -----------------------------------------------------------------------------------------------------

    def _ask_status(self) -> Optional[Outcome]:
        commander: Commander = self._epoch.state["commander"]
        result = commander.result()
        if result is not None:
            code, text = result
            status = read_status(text) if code == 0 else None
            if status is None:
                if _all_ended(self._epoch):
                    return self._finished()
                return self._leave_running("the coordinator does not answer (exit code %d)" % code)
            if status.running and status.peers >= _members(self._epoch) and self._quiet():
                self._peers = status.peers
                short = _missing_room(self._epoch, status.peers)
                if short:
                    return self._leave_running(short)
                self._phase = "command"
                commander.send("-kc")
                return None
            if any(child.code == 0 for child in self._epoch.ranks.values()):
                return self._finished()
        if not commander.busy and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + STATUS_PAUSE_S
            commander.send("-s")
        return None

    def _quiet(self) -> bool:
        """Whether no end of a process that a rank has started is waiting to be seen; not waited for without end."""
        now = time.monotonic()
        self._quiet_until = self._quiet_until or now + QUIET_S
        return now > self._quiet_until or not restless(child.pid for child in self._epoch.ranks.values())

    def _ask_checkpoint(self) -> Optional[Outcome]:
        commander: Commander = self._epoch.state["commander"]
        result = commander.result()
        if result is None:
            return None
        if result[0] != 0:
            # The application may have ended just before: then its ranks end with 0 and there are no images.
            self._refusal = "the coordinator refused the checkpoint (exit code %d)" % result[0]
            self._next_s = time.monotonic() + 1.0
        self._phase = "wait"
        return self._wait()

    # -- every worker -------------------------------------------------------------------------------------------------

    def _wait(self) -> Optional[Outcome]:
        epoch = self._epoch
        if self._refusal and not _all_ended(epoch):
            if time.monotonic() < self._next_s:
                return None
            return self._leave_running(self._refusal)
        if not epoch.home:
            outcome = self._heed_verdict()
            if outcome is not None:
                return outcome
        if not _all_ended(epoch) or any(child.code is None for child in epoch.services.values()):
            return None
        if self._awaits_their_own():
            return None
        found = [rank for rank in epoch.ranks if images.look(images_of(epoch, images.member(rank)))[0]]
        if not found:
            return self._finished()
        if len(found) < len(epoch.ranks):
            return self._give_up("only %d of %d ranks here have written an image" % (len(found), len(epoch.ranks)))
        if epoch.home and not self._complete():
            return None  # a network file system may show the others' images a little later; the time-out bounds it
        return self._keep()

    def _awaits_their_own(self) -> bool:
        """Whether processes that ranks have started here may still be writing their images."""
        now, ranks = time.monotonic(), self._epoch.ranks
        self._ended_s = self._ended_s or now
        unfinished = any(images.look(images_of(self._epoch, images.member(rank)))[1] for rank in ranks)
        if any(child.left_behind for child in ranks.values()):
            return unfinished or now < self._ended_s + LEFT_BEHIND_S
        return unfinished and now < self._ended_s + SETTLED_S

    def _complete(self) -> bool:
        now = time.monotonic()
        if now < self._next_s:
            return False
        self._next_s = now + IMAGES_PAUSE_S
        found = images.count(self._epoch.checkpoint_dir)
        if found != self._found:
            self._found, self._found_s = found, now
        whole, unfinished = found
        settled = whole >= _members(self._epoch) and now >= self._found_s + SETTLED_S
        return not unfinished and (whole == self._peers or settled)

    def _keep(self) -> Optional[Outcome]:
        """Write the manifest, once the checksums are there if there are to be any."""
        epoch = self._epoch
        names = [images.member(rank) for rank in sorted(epoch.ranks)] + sorted(epoch.services)
        try:
            if not settings_of(epoch).get("checksum"):
                return self._manifest(names, {})
            if self._sums is None:
                self._phase = "sums"
                self._sums = Background(lambda: images.checksums(epoch.checkpoint_dir, names))
            return self._manifest(names, self._sums.result()) if self._sums.done else None
        except (EngineError, OSError) as error:  # the ranks have stopped, and not because they had finished
            return self._give_up("the checkpoint cannot be written down: %s" % error)

    def _manifest(self, names: List[str], sums: Dict[str, str]) -> Outcome:
        epoch = self._epoch
        services: Dict[str, Any] = {}
        if epoch.services:
            services["pmi"] = {"folder": epoch.state.get("pmi_folder") or os.path.join(epoch.folder, "pmi")}
        sizes = images.keep(
            epoch.checkpoint_dir,
            names,
            size=epoch.launched,
            node=_whoami(epoch),
            version=tools().version,
            services=services,
            compress=epoch.state.get("compress") or {},
            sums=sums,
        )
        by_rank = {rank: sizes[images.member(rank)] for rank in epoch.ranks}
        return Outcome(True, sizes=by_rank, exits=dict.fromkeys(epoch.ranks, STOPPED))

    def _finished(self) -> Outcome:
        """The application came to its end before the checkpoint did."""
        ended = sorted(rank for rank, child in self._epoch.ranks.items() if child.code == 0)
        self._tell("the application had ended", killed=False)
        return Outcome(False, "ranks had finished: %s" % ", ".join(str(rank) for rank in ended))

    def _leave_running(self, why: str) -> Outcome:
        self._tell(why, killed=False)
        return Outcome(False, why)

    def _give_up(self, why: str) -> Outcome:
        """The computation is in pieces, or hangs in the middle of a checkpoint: end what is left of it here."""
        self._tell(why, killed=True)
        return self._kill(why)

    def _kill(self, why: str) -> Outcome:
        # Also those that DMTCP stopped: they did not finish.
        killed = [rank for rank, child in self._epoch.ranks.items() if child.code in (None, 0)]
        for child in (*self._epoch.ranks.values(), *self._epoch.services.values()):
            child.send_group(9)
        return Outcome(False, why, killed=killed)

    # -- verdicts -----------------------------------------------------------------------------------------------------

    def _tell(self, why: str, *, killed: bool) -> None:
        path = os.path.join(self._epoch.folder, "verdict-%d-%s.json" % (self._attempt, _whoami(self._epoch)))
        try:
            write_json(path, {"error": why, "killed": killed})
        except OSError:
            pass  # a full spool: the others find out by their time-out

    def _heed_verdict(self) -> Optional[Outcome]:
        if time.monotonic() < self._next_s:
            return None
        self._next_s = time.monotonic() + VERDICT_PAUSE_S
        prefix = "verdict-%d-" % self._attempt
        for name in os.listdir(self._epoch.folder):
            if name.startswith(prefix) and name.endswith(".json"):
                try:
                    verdict = read_json(os.path.join(self._epoch.folder, name))
                except (OSError, ValueError):
                    continue
                why = str(verdict.get("error"))
                return self._kill(why) if verdict.get("killed") else Outcome(False, why)
        return None


def settings_of(epoch: EpochContext) -> Dict[str, Any]:
    return dict(epoch.payload.get("dmtcp") or {})


def _whoami(epoch: EpochContext) -> str:
    """A name for this worker's files: two subjobs may share a node."""
    return "%s-%d" % (epoch.node.replace("/", "_"), os.getpid())


def images_of(epoch: EpochContext, name: str) -> str:
    return os.path.join(epoch.checkpoint_dir, name)


def _members(epoch: EpochContext) -> int:
    """How many processes the computation has at least: a launcher is one of them."""
    return epoch.size + int(epoch.launcher) + len(epoch.services)


def _all_ended(epoch: EpochContext) -> bool:
    return all(child.code is not None for child in epoch.ranks.values())


def _missing_room(epoch: EpochContext, peers: int) -> str:
    """Why the spool is too full for a checkpoint, or "". Judged by this node's ranks."""
    resident = 0
    for child in epoch.ranks.values():
        try:
            with open("/proc/%d/statm" % child.pid, encoding="ascii") as statm:
                resident += int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            continue
    need = ROOM * resident * peers / max(1, len(epoch.ranks))
    if epoch.state["compress"].get("on"):
        need /= 4
    found = os.statvfs(epoch.folder)
    free = found.f_bavail * found.f_frsize
    if free >= need:
        return ""
    return "the spool has %d MiB free, and a checkpoint needs about %d" % (free >> 20, int(need) >> 20)
