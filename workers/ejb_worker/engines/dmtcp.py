"""Unmodified programs by DMTCP: one coordinator an epoch, one dmtcp_launch or dmtcp_restart a rank.

The coordinator lives on the epoch's home, in a group of its own; `<epoch_dir>/coordinator.json` tells the other workers
where. Only the home talks to it. What every worker sees for itself is whether its own ranks have ended and left whole
images. What the home learns besides (a refusal, a missing image elsewhere) reaches the others by a verdict file.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..attributes import attributes_of
from ..files import make_dir, read_json, write_json
from . import compression
from . import dmtcp_images as images
from . import dmtcp_log as log
from .background import Background
from .base import Checkpoint, Command, Engine, EngineError, EpochContext
from .dmtcp_checkpoint import STATUS_PAUSE_S, DmtcpCheckpoint, images_of, settings_of
from .dmtcp_obstacles import FEWEST_FILES, Turnover, describe_few_files, obstacle
from .dmtcp_tools import PORT_FILE_TIMEOUT_S, Commander, clean, find_tools, library_sum, read_status, tools

CHECKPOINT_SIGNAL = 16
"""SIGSTKFLT, which no kernel sends and hardly a program knows. DMTCP's own choice, USR2, is many programs' own."""


class DmtcpEngine(Engine):
    name = "dmtcp"
    keeps_services = True
    may_hang = True
    gave_up = 99

    def probe(self) -> str:
        return find_tools()[1]

    def prepare(self, epoch: EpochContext) -> None:
        settings = settings_of(epoch)
        plugin = settings.get("plugin")
        if plugin is not None:
            _check_plugin(str(plugin))
        if settings.get("calls") is not None:
            _check_calls(str(settings["calls"]))
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
        _check_program(argv[0], env.get("PATH", os.defpath), epoch.cwd)
        if _has_few_files(epoch):
            return Command(argv, env)
        return self._launched(epoch, images.member(rank), argv, env)

    def restart(self, epoch: EpochContext, rank: int, argv: List[str], env: Dict[str, str]) -> Command:
        return self._restored(epoch, images.member(rank), env, _kept_attributes(epoch, rank))

    def service(self, epoch: EpochContext, name: str, argv: List[str], env: Dict[str, str]) -> Command:
        return Command(argv, env) if _has_few_files(epoch) else self._launched(epoch, name, argv, env)

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

    def ended(self, epoch: EpochContext, rank: int, code: int) -> Tuple[int, str]:
        said = log.read_last_words(epoch, rank) if code == self.gave_up else ""
        return code, "DMTCP has ended rank %d: %s" % (rank, said) if said else ""

    def obstacle(self, epoch: EpochContext) -> str:
        if _has_few_files(epoch):
            return "each rank %s" % describe_few_files(epoch.most_files)
        if epoch.launcher:
            return ""  # an mpirun has much that looks so, and is moved
        pids = {rank: child.pid for rank, child in epoch.ranks.items() if child.code is None}
        turnover = epoch.state.setdefault("turnover", Turnover())
        return obstacle(pids, held=os.path.exists(tools().library), turnover=turnover)

    def checkpoint(self, epoch: EpochContext) -> Checkpoint:
        if epoch.home and "commander" not in epoch.state:
            raise EngineError("epoch %d has no coordinator" % epoch.epoch)
        _keep_attributes(epoch)
        return DmtcpCheckpoint(epoch)

    def finish(self, epoch: EpochContext) -> None:
        if len(epoch.ranks) == epoch.launched and all(child.code is not None for child in epoch.services.values()):
            self.close(epoch)  # no other worker needs the coordinator

    def close(self, epoch: EpochContext) -> None:
        coordinator = epoch.state.get("coordinator")
        if coordinator is not None:
            epoch.state["closed"] = True
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
        epoch.state["coordinator"] = epoch.run_tool(
            "dmtcp-coordinator", words, env, lambda code: _coordinator_ended(epoch, code)
        )
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
        folder = images_of(epoch, name)
        make_dir(folder)
        words = ["-q", "-q", "-j", "--coord-host", str(epoch.state["host"]), "--coord-port", str(epoch.state["port"])]
        return [*words, "--ckptdir", folder, "--tmpdir", epoch.scratch()]

    def _launched(self, epoch: EpochContext, name: str, argv: List[str], env: Dict[str, str]) -> Command:
        settings = settings_of(epoch)
        words = [tools().path("dmtcp_launch"), *self._common(epoch, name)]
        words.append("--gzip" if epoch.state["compress"].get("on") else "--no-gzip")
        libraries = [str(settings[kind]) for kind in ("calls", "plugin") if settings.get(kind) is not None]
        if libraries:
            words += ["--with-plugin", ":".join(libraries)]
        if settings.get("calls") is not None:
            words += ["--ckpt-signal", str(CHECKPOINT_SIGNAL)]
        words += [str(option) for option in settings.get("options", [])]
        env = clean(env)
        if epoch.launcher:
            # DMTCP gives the first process of every application the same process id, by which mpirun names its files.
            env["OMPI_MCA_orte_tmpdir_base"] = os.path.join(epoch.folder, "mpirun")
        # hwloc opens files of /sys that cannot be reopened elsewhere: DMTCP then ends the program with 99.
        env.setdefault("HWLOC_COMPONENTS", "-linuxio,-pci")
        if "OMP_NUM_THREADS" not in env:
            # A process that has OpenBLAS's threads and forks (numpy with multiprocessing) hangs under DMTCP.
            env.setdefault("OPENBLAS_NUM_THREADS", "1")
        env["DMTCP_TMPDIR"] = epoch.scratch()
        log.keep_words(epoch, name, env)
        return Command(words + argv, env)

    def _restored(
        self, epoch: EpochContext, name: str, env: Dict[str, str], attributes: Optional[Mapping[str, Any]] = None
    ) -> Command:
        generation: images.Generation = epoch.state["generation"]
        words = [tools().path("dmtcp_restart"), *self._common(epoch, name), *generation.images(name)]
        env = clean(env)
        env["DMTCP_TMPDIR"] = epoch.scratch()
        return Command(words, env, attributes)


def _has_few_files(epoch: EpochContext) -> bool:
    """Whether the ranks may have too few files open to begin under DMTCP: they begin without it, and stay."""
    return epoch.restart_dir is None and 0 <= epoch.most_files < FEWEST_FILES


_ATTRIBUTES = "attributes-%s.json"


def _keep_attributes(epoch: EpochContext) -> None:
    """What DMTCP does not bring back of the ranks here, beside the checkpoint."""
    kept = {}
    for rank, child in epoch.ranks.items():
        try:
            kept[str(rank)] = attributes_of(child.pid)
        except OSError:
            continue  # it has just ended
    write_json(os.path.join(epoch.folder, _ATTRIBUTES % epoch.node), kept)


def _kept_attributes(epoch: EpochContext, rank: int) -> Mapping[str, Any]:
    """Of a rank that comes back, wherever it was; nothing where it was not looked at."""
    folder = os.path.dirname(str(epoch.restart_dir))
    for path in glob.glob(os.path.join(glob.escape(folder), _ATTRIBUTES % "*")):
        kept = read_json(path).get(str(rank))
        if kept is not None:
            return dict(kept)
    return {}


def _coordinator_ended(epoch: EpochContext, code: int) -> None:
    # A worker that leaves after its ranks have ended well ends the coordinator, too, and nothing is lost by that.
    if not epoch.state.get("closed") and any(child.code != 0 for child in epoch.ranks.values()):
        epoch.lost("the DMTCP coordinator ended with code %d" % code)


def _check_program(program: str, path: str, cwd: str) -> None:
    """Raises FileNotFoundError or PermissionError as starting it in `cwd` would."""
    folders = [""] if os.sep in program else path.split(os.pathsep)
    places = [os.path.join(cwd, folder, program) for folder in folders]
    found = [place for place in places if os.path.isfile(place)]
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    if not any(os.access(one, os.X_OK) for one in found):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), program)


def _own_ranks(epoch: EpochContext) -> List[int]:
    """Those that this worker starts itself."""
    return [0] if epoch.launcher else [int(entry["rank"]) for entry in epoch.payload["ranks"]]


def _check_calls(path: str) -> None:
    """Each rank would end where it begins, with words of the linker's. Raises EngineError."""
    try:
        ctypes.CDLL(path)
    except OSError as error:
        why = "EJB's library for DMTCP cannot be used on this node: %s; run `ejb doctor --build-plugin` on one"
        raise EngineError(why % error) from None


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
