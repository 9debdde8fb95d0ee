"""Unmodified programs by DMTCP: one coordinator an epoch, one dmtcp_launch or dmtcp_restart a rank.

The coordinator lives on the epoch's home, in a group of its own; `<epoch_dir>/coordinator.json` tells the other workers
where. Only the home talks to it. What every worker sees for itself is whether its own ranks have ended and left whole
images; what the home learns besides (a refusal, a missing image elsewhere) it tells the others by a verdict file.
"""

from __future__ import annotations

import errno
import os
import time
from typing import Any, Dict, List, Optional

from ..files import make_dir, read_json, write_json
from . import compression
from . import dmtcp_images as images
from .background import Background
from .base import Checkpoint, Command, Engine, EngineError, EpochContext, Outcome
from .dmtcp_tools import PORT_FILE_TIMEOUT_S, Commander, clean, find_tools, library_sum, read_status, tools

STOPPED = 85
"""Reported for a rank that was checkpointed and stopped: its process ends with 0, as one that has finished does."""

KILLED = 137
STATUS_PAUSE_S = 0.1
VERDICT_PAUSE_S = 0.3
IMAGES_PAUSE_S = 0.2
SETTLED_S = 2.0
"""A process that a rank had started may have ended since the processes were counted: so many images, no more for so long,
are all that there are."""
LEFT_BEHIND_S = 5.0
"""What a rank leaves behind, and writes no image for so long, was not being checkpointed."""
ROOM = 1.1
"""Free space on the spool that a checkpoint needs, by the resident memory of the ranks."""


class DmtcpCheckpoint(Checkpoint):
    """Checkpoint and stop: the home asks the coordinator, everybody waits for his ranks to end and looks at the images.

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
        self._found_s = self._ended_s = 0.0
        self._refusal = ""
        self._sums: Optional[Background[Dict[str, str]]] = None
        for rank, child in epoch.ranks.items():
            images.empty_folder(_images(epoch, images.member(rank)))
            child.spared = True  # the processes that it has started are checkpointed, too, and may be through later
        for name in epoch.services:
            images.empty_folder(_images(epoch, name))

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
            if status.running and status.peers >= _members(self._epoch):
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
        found = [rank for rank in epoch.ranks if images.look(_images(epoch, images.member(rank)))[0]]
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
        unfinished = any(images.look(_images(self._epoch, images.member(rank)))[1] for rank in ranks)
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
            if not _settings(epoch).get("checksum"):
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
        exits = {}
        for rank, child in self._epoch.ranks.items():
            if child.code in (None, 0):
                exits[rank] = KILLED  # also those that DMTCP stopped: they did not finish
            child.send_group(9)
        for child in self._epoch.services.values():
            child.send_group(9)
        return Outcome(False, why, exits=exits)

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


class DmtcpEngine(Engine):
    name = "dmtcp"
    gave_up = 99

    def probe(self) -> str:
        return find_tools()[1]

    def prepare(self, epoch: EpochContext) -> None:
        settings = _settings(epoch)
        plugin = settings.get("plugin")
        if plugin is not None:
            _check_plugin(str(plugin))
        if epoch.restart_dir is not None:
            generation = images.Generation(epoch.restart_dir)
            generation.check(epoch.launched, tools().version)
            epoch.state["generation"] = generation
            epoch.state["compress"] = generation.compress  # a restored process goes on as it was launched
            if generation.summed:
                own = [images.member(rank) for rank in _own_ranks(epoch)]
                own += sorted(generation.services) if epoch.home else []
                epoch.state["verifying"] = Background(lambda: generation.verify(own))
            pmi = generation.services.get("pmi")
            if pmi is not None:
                epoch.state["pmi_folder"] = str(pmi["folder"])
        elif settings.get("compress") == "auto":
            processors = len({entry["processor"] for entry in epoch.payload["ranks"]})
            epoch.state["choosing"] = Background(lambda: compression.chosen(epoch.folder, processors))
        else:
            epoch.state["compress"] = compression.asked(bool(settings.get("compress")))
        if epoch.home:
            self._start_coordinator(epoch)

    def ready(self, epoch: EpochContext) -> bool:
        path = os.path.join(epoch.folder, "coordinator.json")
        if epoch.home and "port" not in epoch.state and not self._coordinator_listens(epoch, path):
            return False
        if "port" not in epoch.state:
            os.listdir(epoch.folder)  # what a network file system remembers to be missing is looked for again
            try:
                told = read_json(path)
            except FileNotFoundError:
                return False
            epoch.state["host"], epoch.state["port"] = str(told["host"]), int(told["port"])
        verifying: Optional[Background[None]] = epoch.state.get("verifying")
        if verifying is not None:
            if not verifying.done:
                return False
            verifying.result()
        choosing: Optional[Background[Dict[str, Any]]] = epoch.state.get("choosing")
        if choosing is not None:
            if not choosing.done:
                return False
            epoch.state["compress"] = choosing.result()
        return True

    def launch(self, epoch: EpochContext, rank: int, argv: List[str], env: Dict[str, str]) -> Command:
        # dmtcp_launch would start, join and only then find that there is no such program.
        _check_program(argv[0], env.get("PATH", os.defpath))
        return self._launched(epoch, images.member(rank), argv, env)

    def restart(self, epoch: EpochContext, rank: int, argv: List[str], env: Dict[str, str]) -> Command:
        return self._restored(epoch, images.member(rank), env)

    def service(self, epoch: EpochContext, name: str, argv: List[str], env: Dict[str, str]) -> Command:
        return self._launched(epoch, name, argv, env)

    def restored_services(self, epoch: EpochContext) -> Dict[str, Command]:
        if not epoch.home:
            return {}
        services = epoch.state["generation"].services
        return {name: self._restored(epoch, name, dict(os.environ)) for name in services}

    def up(self, epoch: EpochContext) -> bool:
        """At a restart nothing runs before everything is back; the home sees when that is."""
        if not epoch.home or epoch.restart_dir is None:
            return True
        for rank, child in epoch.ranks.items():
            if child.code:
                raise EngineError("rank %d ended with code %d at its restart" % (rank, child.code))
            if child.code == 0:
                return True  # it was restored, and has come to its end since
        commander: Commander = epoch.state["commander"]
        result = commander.result()
        if result is not None:
            status = read_status(result[1]) if result[0] == 0 else None
            if status is not None and status.running and status.peers >= epoch.state["generation"].processes:
                return True
            epoch.state["status_s"] = time.monotonic() + STATUS_PAUSE_S / 2
        if not commander.busy and time.monotonic() >= epoch.state.get("status_s", 0.0):
            commander.send("-s")
        return False

    def checkpoint(self, epoch: EpochContext) -> Checkpoint:
        if epoch.home and "commander" not in epoch.state:
            raise EngineError("epoch %d has no coordinator" % epoch.epoch)
        return DmtcpCheckpoint(epoch)

    def finish(self, epoch: EpochContext) -> None:
        if len(epoch.ranks) == epoch.launched and all(child.code is not None for child in epoch.services.values()):
            self.close(epoch)  # nobody elsewhere needs the coordinator

    def close(self, epoch: EpochContext) -> None:
        coordinator = epoch.state.get("coordinator")
        if coordinator is not None:
            coordinator.send_group(9)

    # -- processes ----------------------------------------------------------------------------------------------------

    def _start_coordinator(self, epoch: EpochContext) -> None:
        port_file = os.path.join(epoch.scratch(), "port-%d" % os.getpid())
        try:
            os.unlink(port_file)
        except FileNotFoundError:
            pass
        restart_scripts = os.path.join(
            epoch.folder, "coordinator"
        )  # written at each checkpoint; they know one host only
        make_dir(restart_scripts)
        words = [tools().path("dmtcp_coordinator"), "-q", "-q", "-p", "0", "--port-file", port_file]
        words += ["--ckptdir", restart_scripts, "--tmpdir", epoch.scratch()]
        words += ["--coord-logfile", os.path.join(epoch.folder, "coordinator.log")]
        env = clean(os.environ)
        env["DMTCP_COORD_HOST"] = epoch.address
        epoch.state["coordinator"] = epoch.run_tool("dmtcp-coordinator", words, env, lambda _code: None)
        epoch.state["port_file"] = port_file
        epoch.state["port_until"] = time.monotonic() + PORT_FILE_TIMEOUT_S

    def _coordinator_listens(self, epoch: EpochContext, path: str) -> bool:
        code = epoch.state["coordinator"].code
        if code is not None:
            raise EngineError("the DMTCP coordinator ended with code %d before it listened" % code)
        try:
            with open(epoch.state["port_file"], encoding="ascii") as file:
                text = file.read().strip()
        except FileNotFoundError:
            text = ""
        if not text:
            if time.monotonic() > epoch.state["port_until"]:
                raise EngineError("the DMTCP coordinator did not tell its port in time")
            return False
        host, port = epoch.address, int(text)
        epoch.state["host"], epoch.state["port"] = host, port
        epoch.state["commander"] = Commander(epoch, host, port)
        write_json(path, {"host": host, "port": port})
        return True

    def _common(self, epoch: EpochContext, name: str) -> List[str]:
        folder = _images(epoch, name)
        make_dir(folder)
        words = ["-q", "-q", "-j", "--coord-host", str(epoch.state["host"]), "--coord-port", str(epoch.state["port"])]
        return [*words, "--ckptdir", folder, "--tmpdir", epoch.scratch()]

    def _launched(self, epoch: EpochContext, name: str, argv: List[str], env: Dict[str, str]) -> Command:
        settings = _settings(epoch)
        words = [tools().path("dmtcp_launch"), *self._common(epoch, name)]
        words.append("--gzip" if epoch.state["compress"].get("on") else "--no-gzip")
        if settings.get("plugin") is not None:
            words += ["--with-plugin", str(settings["plugin"])]
        words += [str(option) for option in settings.get("options", [])]
        env = clean(env)
        # hwloc opens files of /sys that cannot be reopened elsewhere: DMTCP then ends the program with 99.
        env.setdefault("HWLOC_COMPONENTS", "-linuxio,-pci")
        env["DMTCP_TMPDIR"] = epoch.scratch()
        return Command(words + argv, env)

    def _restored(self, epoch: EpochContext, name: str, env: Dict[str, str]) -> Command:
        generation: images.Generation = epoch.state["generation"]
        words = [tools().path("dmtcp_restart"), *self._common(epoch, name), *generation.images(name)]
        env = clean(env)
        env["DMTCP_TMPDIR"] = epoch.scratch()
        return Command(words, env)


def _check_program(program: str, path: str) -> None:
    """Raises FileNotFoundError or PermissionError as starting it would."""
    folders = [""] if os.sep in program else path.split(os.pathsep)
    found = [os.path.join(folder, program) for folder in folders if os.path.isfile(os.path.join(folder, program))]
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    if not any(os.access(one, os.X_OK) for one in found):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), program)


def _settings(epoch: EpochContext) -> Dict[str, Any]:
    return dict(epoch.payload.get("dmtcp") or {})


def _own_ranks(epoch: EpochContext) -> List[int]:
    """Those that this worker starts itself."""
    return [0] if epoch.launcher else [int(entry["rank"]) for entry in epoch.payload["ranks"]]


def _whoami(epoch: EpochContext) -> str:
    """A name for this worker's files: two subjobs may share a node."""
    return "%s-%d" % (epoch.node.replace("/", "_"), os.getpid())


def _images(epoch: EpochContext, name: str) -> str:
    return os.path.join(epoch.checkpoint_dir, name)


def _members(epoch: EpochContext) -> int:
    """How many processes the computation has at least: a launcher is one of them."""
    return epoch.size + int(epoch.launcher) + len(epoch.services)


def _all_ended(epoch: EpochContext) -> bool:
    return all(child.code is not None for child in epoch.ranks.values())


def _check_plugin(path: str) -> None:
    """A plugin binds to internals: one that was built against another DMTCP crashes programs. Raises EngineError."""
    try:
        built = read_json(path + ".json")
        here = {"version": tools().version, "library": library_sum(), "machine": os.uname().machine}
    except (OSError, ValueError) as error:
        raise EngineError("the DMTCP plugin cannot be used: %s; run `ejb doctor --build-plugin`" % error) from None
    if {name: built.get(name) for name in here} != here:
        raise EngineError(
            "the DMTCP plugin was built for DMTCP %s, which is not the one on this node (%s in %s); run "
            "`ejb doctor --build-plugin`" % (built.get("version"), tools().version, tools().folder)
        )


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
