"""What the workers of J0 begin where no manager answers: the job as it was submitted, by the batch system's own means.

The manager puts a signed order into J0's folder before it submits J0. Workers that have found no manager for as long as
the order says, and nothing to do, say so there. Once all of J0's have, one of them claims the order, and all leave with
EXIT_ALONE. J0's script is then the only process of EJB that is left, and becomes the job's own (`begin`).

The claim is the name `claim.json`, which can be made once only (link). A manager that is about to begin anything of the
job makes it first; no worker can begin the order then. So the two never both begin.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from .failures import LaunchError
from .files import make_dir, read_json, write_json
from .interpreter import interpreter_of, is_bash
from .own_job import describe_job
from .proof import digest, mac, same
from .settings import SITES_OWN, Subjob, launcher_variables, read_subjob
from .shimfolder import QUERIES, shim_environment, write_queries

if TYPE_CHECKING:
    from .loop import Loop  # what begins a job needs none

EXIT_ALONE = 79
EXIT_OUTPUT = 128 + 53  # what the manager ends a job with if its output cannot be opened
LOOK_S = 1.0
FRESH_S = 30.0  # a worker that has not said for so long that it finds no manager has found one, or is gone
APPEARS_S = 60.0  # on a file system that is shared, what another node has written may come late
_OF_THE_BATCH_SYSTEM = ("SLURM_", "SLURMD_", "PBS_", "EJB_LOCAL_", "EJB_STD", "EJB_PBSDSH")
_NODE, _NUMBER = "\x01", "\x02"  # in the order's output paths: what is known only where it begins


class OrderError(Exception):
    """One sentence."""


def order_of(subjob: Subjob) -> Optional[Dict[str, Any]]:
    """The order in a subjob's folder, None where there is none. Raises OrderError for one that is not the manager's."""
    path = os.path.join(_folder(subjob), "order.json")
    try:
        envelope = read_json(path)
        text, shown = str(envelope["order"]), str(envelope["proof"])
        if not same(shown, mac(subjob.secret, "ejb order", subjob.subjob, text)):
            raise OrderError("%s is not the manager's" % path)
        order = json.loads(text)
        return order if isinstance(order, dict) else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise OrderError("the standing order cannot be read: %s" % error) from None


def claim_of(subjob: Subjob) -> Optional[Dict[str, Any]]:
    """The claim: None while there is none; {} where the manager has made it, so that the order is void."""
    try:
        begun = read_json(os.path.join(_folder(subjob), "claim.json")).get("begun")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return begun if isinstance(begun, dict) else {}


def _folder(subjob: Subjob) -> str:
    return os.path.join(subjob.folder, "alone")


class Alone:
    """One worker's part. `away_s`: for how long no manager has answered (None: it does). `idle`: whether nothing of the
    job has ever begun here. `leave` is called once the order is claimed.
    """

    def __init__(
        self,
        subjob: Subjob,
        node: str,
        processors: int,
        *,
        loop: Loop,
        away_s: Callable[[], Optional[float]],
        idle: Callable[[], bool],
        leave: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self._subjob = subjob
        self._node = node
        self._processors = processors
        self._loop = loop
        self._away_s = away_s
        self._idle = idle
        self._leave = leave
        self._log = log
        self._word = os.path.join(_folder(subjob), "away-%s.json" % node.replace("/", "_"))
        self._looking = False
        self._over = False
        self._order: Optional[Dict[str, Any]] = None

    def look(self) -> None:
        """No manager answers: look, and look again for as long as none does."""
        if not (self._looking or self._over):
            self._looking = True
            self._look()

    def _look(self) -> None:
        away_s = self._away_s()
        if away_s is None or not self._idle():
            self._looking = False
            self._take_back()
            return
        try:
            self._over = self._step(away_s)
        except OSError as error:  # a spool that is full or gone for a moment
            self._log("cannot look whether to begin without the manager: %s" % error)
        except OrderError as error:
            self._log(str(error))
            self._over = True
        if not self._over:
            self._loop.call_later(LOOK_S, self._look)

    def _step(self, away_s: float) -> bool:
        """True: there is nothing to look for any more."""
        if self._order is None:
            self._order = order_of(self._subjob)
            if self._order is None:
                return True
        claim = claim_of(self._subjob)
        if claim is None and away_s >= float(self._order["after_s"]):
            write_json(self._word, {"processors": self._processors})
            if self._all_there():
                self._claim()
                claim = claim_of(self._subjob)
        if claim is None:
            return False
        if claim:
            self._leave()
        return True

    def _all_there(self) -> bool:
        """Whether the workers of all of J0's processors say that they find no manager. Times are the file system's."""
        assert self._order is not None
        folder, now = _folder(self._subjob), os.stat(self._word).st_mtime
        found = 0
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if not (name.startswith("away-") and name.endswith(".json")):
                continue
            try:
                if os.stat(path).st_mtime >= now - FRESH_S:
                    found += int(read_json(path)["processors"])
            except (FileNotFoundError, ValueError, KeyError):
                pass  # it has just found the manager
        return found >= int(self._order["processors"])

    def _claim(self) -> None:
        assert self._order is not None
        _make_claim(self._subjob, self._order, self._node)

    def _take_back(self) -> None:
        try:
            os.unlink(self._word)
        except OSError:
            pass


def _make_claim(subjob: Subjob, order: Dict[str, Any], node: str, **more: bool) -> None:
    """Claim the order, where there is no claim yet."""
    folder = _folder(subjob)
    own = os.path.join(folder, "claim-%s.%d" % (node.replace("/", "_"), os.getpid()))
    write_json(own, {"begun": {"order": order["id"], "at_s": time.time(), "node": node, **more}}, sync=True)
    try:
        os.link(own, os.path.join(folder, "claim.json"))
    except FileExistsError:
        pass
    finally:
        os.unlink(own)


def begin(folder: str, path_first: str, at_once: bool = False) -> int:
    """Become the job's own script: does not return where that can be. The exit code of J0's script where it cannot.

    `at_once`: before any worker, where the order allows that and nothing has claimed it; else EXIT_ALONE.
    """
    subjob = read_subjob(folder)
    if at_once and not _takes(subjob):
        return EXIT_ALONE
    try:
        order, claim = order_of(subjob), claim_of(subjob)
        until = time.monotonic() + APPEARS_S
        while order is not None and claim is None and time.monotonic() < until:
            time.sleep(0.2)
            claim = claim_of(subjob)
        if order is None or not claim or claim.get("order") != order["id"]:
            return EXIT_ALONE  # it was the job's own code, or workers are to come
        script = subjob.inside(str(order["script"]))
        with open(script, "rb") as file:
            if digest(file.read()) != order["digest"]:
                raise OrderError("%s is not what the manager has put there" % script)
        _once(os.path.join(_folder(subjob), "begun"))
        for path in order.get("folders") or ():
            make_dir(str(path))
        if at_once:
            _tell(subjob)
        words = interpreter_of(script) + [script] + [str(word) for word in order["args"]]
        environment = _environment(order, subjob, path_first)
        environment = _with_queries(environment, order, subjob, is_bash(words))
        _output(order)
        os.chdir(str(order["cwd"]))
        for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM):
            signal.signal(signum, signal.SIG_DFL)
        os.execvpe(words[0], words, environment)
    except _NoOutput as error:
        return _say("the job's output cannot be opened: %s" % error, EXIT_OUTPUT)
    except FileExistsError:
        return _say("the job was begun here before, and begins only once", 1)
    except LaunchError as error:  # the script names no interpreter
        return _say(str(error), error.code or 1)
    except (OSError, ValueError, KeyError, TypeError, OrderError) as error:
        return _say("the job cannot be begun: %s" % error, 1)


def _takes(subjob: Subjob) -> bool:
    """Claim an order that is to begin at once. False: there is none, or it is void; then workers are to come."""
    try:
        order, claim = order_of(subjob), claim_of(subjob)
    except OrderError:
        return False
    if order is None or not (order.get("at_once") or claim is not None or _is_marked(order)):
        return False
    if claim is None:
        try:
            _make_claim(subjob, order, os.uname().nodename, at_once=True)
        except OSError:
            pass  # a disk that is full, or has no links
        claim = claim_of(subjob)
    return bool(claim and claim.get("order") == order["id"])


def _is_marked(order: Dict[str, Any]) -> bool:
    """Whether the mark that the order names says by now that runs like the job are short."""
    mark = order.get("at_once_if")
    try:
        return bool(mark) and os.stat(str(mark)).st_size > 0
    except OSError:
        return False


class _NoOutput(Exception):
    pass


def _say(sentence: str, code: int) -> int:
    sys.stderr.write("ejb worker: %s\n" % sentence)
    sys.stderr.flush()
    return code


def _once(path: str) -> None:
    """Raises FileExistsError the second time, whatever runs J0's script again."""
    make_dir(os.path.dirname(path))
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _tell(subjob: Subjob) -> None:
    """Have a daemon that is there look at the batch system soon."""
    try:
        file = os.open(os.path.join(subjob.spool, "told"), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    except OSError:
        return  # there is none
    try:
        os.write(file, b".")
    except OSError:
        pass
    finally:
        os.close(file)


def _environment(order: Dict[str, Any], subjob: Subjob, path_first: str) -> Dict[str, str]:
    """The user's, with what the batch system says of this batch job on top."""
    env = {str(k): str(v) for k, v in read_json(subjob.inside(str(order["env_file"]))).items()}
    own_tmp = env.get("TMPDIR")
    env.update(launcher_variables(env))
    for name, value in os.environ.items():
        if name.startswith(_OF_THE_BATCH_SYSTEM) or name in SITES_OWN:
            env[name] = value
    if own_tmp:
        env["TMPDIR"] = own_tmp  # the user's own word counts, as with sbatch
    for name, value in order["variables"].items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    if path_first:
        env["PATH"] = "%s:%s" % (path_first, env.get("PATH") or os.defpath)
    env["HOSTNAME"] = os.uname().nodename
    if "EJB_STDOUT" in env:  # tasks of pbsdsh write there
        env["EJB_STDOUT"], env["EJB_STDERR"] = _paths(order)
    return env


def _with_queries(env: Dict[str, str], order: Dict[str, Any], subjob: Subjob, bash: bool) -> Dict[str, str]:
    """With commands that know what the script asks Slurm about its own job."""
    number = env.get("SLURM_JOB_ID")
    if number is None:
        return env
    folder = os.path.join(_folder(subjob), "shims")
    write_queries(folder, describe_job(number, number, env, *_paths(order)))
    return shim_environment(env, folder, bash=bash, names=QUERIES)


def _paths(order: Dict[str, Any]) -> List[str]:
    """Where the output goes, and the errors."""
    given = os.environ
    number = given.get("SLURM_JOB_ID") or given.get("EJB_LOCAL_JOB_ID") or given.get("PBS_JOBID", "").partition(".")[0]
    nodes = given.get("EJB_LOCAL_NODES", "").partition(":")[0]
    node = given.get("SLURMD_NODENAME") or nodes or os.uname().nodename.partition(".")[0]
    found = []
    for path in (order["output"], order["error"] if order["error"] is not None else order["output"]):
        found.append(str(path).replace(_NODE, node).replace(_NUMBER, number))
    return found


def _output(order: Dict[str, Any]) -> None:
    """Open it as sbatch does: emptied unless it is to be kept, and both in one where they are."""
    output, error = _paths(order)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if order.get("append") else os.O_TRUNC) | os.O_CLOEXEC
    try:
        out = os.open(output, flags, 0o666)
        err = out if error == output else os.open(error, flags, 0o666)
    except OSError as failure:
        raise _NoOutput(str(failure)) from None
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    sys.stderr.flush()
    for source, target in ((null, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
