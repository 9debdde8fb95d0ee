#!/usr/bin/python3 -IS
"""ejb-as: acts as one user, on the word of the service user alone (docs/threat-model.md).

One file, owned by root, of Python's standard library (3.9 or later). Root's socket unit starts it with the socket as
standard input. It forks a process for each connection, and reads nothing itself, so that no session knows of another.
Where there is no systemd, one sudoers rule starts a process for each session. The first line names the user. Root is
given up for good before any request is read. Lines of JSON go in and come out: a request has a `verb`, an answer has
`ok`, and where that is false an `error`.
"""

import base64
import ctypes
import fnmatch
import glob
import json
import os
import pwd
import re
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import syslog
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

MOST_LINE, MOST_READ, MOST_SAID = 32 << 20, 8 << 20, 64 << 20
MOST_REQUESTS, MOST_SESSIONS, IDLE_S, READ_OUT_S, MOST_COMMAND_S = 10000, 256, 60, 2, 120
MOST_SESSION_S, FULL_S = 600, 0.2  # the caller ends a session after a minute, and a command has two
USER, PART = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", r"(?!\.\.?$)[^/\0]{1,255}"
TEXT, ABSOLUTE, VARIABLE, UNREAD = r"[^\0]*", r"/[^\0]{0,4096}", r"[^=\0]{1,4096}", "it cannot be read: %s"
# Of a batch job, and what may be said for a command: how it reads times.
TAG, PLACE = r"ejb-[0-9a-f]{1,32}(_[0-9]{1,7})?\.[0-9]{1,9}", r"LC_[A-Z]{1,32}|LANG|LANGUAGE|TZ"
LOGGED, LIMITS = ("tag", "ids", "id", "change", "set", "path"), "cpu|fsize|data|stack|core|rss|nproc|nofile|memlock|as"
# sbatch's options, each one word. Not among them: another user or group, a login's environment, files that sbatch reads
# on its own, other clusters, and what makes no job of the script.
OPTIONS = """account acctg-freq array batch bb begin chdir comment constraint container(-id)? contiguous core-spec
cores-per-socket cpu-freq cpus-per-(gpu|task) deadline delay-boot dependency distribution error exclude exclusive export
extra-node-info gpu-(bind|freq) gpus(-per-(node|socket|task))? gres(-flags)? hint hold ignore-pbs input job-name
kill-on-invalid-dep licenses mail-(type|user) mcs-label mem(-bind|-per-cpu|-per-gpu)? mincpus network nice no-kill
no-requeue nodelist nodes ntasks(-per-(board|core|gpu|node|socket|tres))? open-mode output overcommit oversubscribe
parsable partition power prefer priority profile propagate qos quiet reboot requeue reservation share signal
sockets-per-node spread-job switches thread-spec threads-per-core time(-min)? tmp tres-(bind|per-task) use-min-nodes
verbose wait-all-nodes wckey"""
SBATCH, ONE = "--(%s)(=%s)?" % ("|".join(OPTIONS.split()), TEXT), "NumNodes=1-1|(NumTasks|NumCPUs|MinCPUsNode)=1"
SETTING = r"TimeLimit=[0-9:-]{1,20}|StartTime=now(\+1000days)?|MinMemoryNode=[0-9]{1,6}|Requeue=[01]|" + ONE
# qsub's, each a letter with its value behind it: neither -u, -W group_list and Torque's -P, nor -C, -I, -v, -V, -X.
QSUB = r"-(h|Wdepend=[a-z0-9:,.\[\]-]+|[%s][^\0]+)"
PBS = r"[0-9]{1,12}(\[[0-9]{0,9}\])?(\.[A-Za-z0-9.-]{1,255})?", "qhold|qrls"
PBS_SETTING = "walltime=[0-9:]{1,20}|select=1:ncpus=1:mpiprocs=1|place=free|nodes=1:ppn=1"
BATCH = {  # options of a submission, what deletes jobs, those, changes of a job, and what is set of it to what
    "slurm": (SBATCH, "scancel", r"[0-9]{1,12}(_[0-9]{1,9})?", "uhold|release|requeuehold", SETTING),
    "openpbs": (QSUB % "aAJlmMNpPqrS", "qdel", *PBS, PBS_SETTING),
    "torque": (QSUB % "aAlmMNpqrSt", "qdel", *PBS, PBS_SETTING),
}
Request = dict[str, Any]


class Refused(Exception):
    """What is not done, in one sentence."""


def refuse(wrong: Any, why: str) -> None:
    if wrong:
        raise Refused(why)


def need(pattern: str, value: Any, what: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII | re.DOTALL):
        raise Refused("%s is not allowed: %.60r" % (what, value))
    return value


def words(pattern: str, value: Any, what: str) -> list[str]:
    refuse(not isinstance(value, list), "%s is no list" % what)
    return [need(pattern, word, what) for word in value]


def table(names: str, value: Any, what: str) -> dict[str, str]:
    return {need(names, name, what): need(TEXT, text, what) for name, text in value.items()}


def number(value: Any, what: str, least: int, most: int) -> int:
    refuse(type(value) is not int or not least <= value <= most, "%s is no number from %d to %d" % (what, least, most))
    return int(value)


# -- as root: which user asks, and for which -----------------------------------------------------------------------


def configuration(path: str) -> dict[str, Any]:
    """Root's own file: the user that is served (`service`), the pattern of `spool`, and more (docs/operators.md)."""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        refuse(found.st_uid != 0 or found.st_mode & 0o022, "%s must belong to root, which alone may write it" % path)
        plain = {"least_uid": 1000, "path": "/usr/bin:/bin", "environment": {}, "refused": [], "no_new_privs": True}
        return {**plain, **json.load(file)}


def check_caller(service: str) -> None:
    """The kernel says which user is at the other end; where there is no socket, sudo does."""
    caller = int(os.environ.get("SUDO_UID", "-1"))
    if stat.S_ISSOCK(os.fstat(0).st_mode):
        with socket.socket(fileno=os.dup(0)) as end:
            # pid, uid, gid
            caller = int.from_bytes(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8], sys.byteorder)
    refuse(caller != pwd.getpwnam(service).pw_uid, "user id %d is not served here" % caller)


def check_user(name: Any, config: dict[str, Any]) -> pwd.struct_passwd:
    """The entry of a user that may be acted for."""
    user = pwd.getpwnam(need(USER, name, "the user"))
    refuse(0 in (user.pw_uid, user.pw_gid) or user.pw_uid < config["least_uid"], "user %s is the system's" % name)
    refuse(name in (config["service"], *config["refused"]), "user %s is not acted for" % name)
    # The batch system knows the jobs of a number by its first name.
    refuse(pwd.getpwuid(user.pw_uid).pw_name != name, "user %s is not what its number is called" % name)
    with open("/etc/shells") as file:
        shells = [line.strip() for line in file if line[0] == "/" and not line.endswith(("/nologin\n", "/false\n"))]
    refuse(user.pw_shell not in shells, "user %s has no shell to log in with" % name)
    shadow = subprocess.run(["/usr/bin/getent", "shadow", name], stdout=subprocess.PIPE, env={}, timeout=10).stdout
    end = [*shadow.decode(errors="replace").split(":"), *8 * [""]][7]  # in days since the epoch
    refuse(end.isdecimal() and int(end) <= time.time() // 86400, "the account of user %s has expired" % name)
    return user


def become(user: pwd.struct_passwd, no_new_privs: bool) -> None:
    """Take the user's groups, as they are today, and ids; and see that there is no way back."""
    os.initgroups(user.pw_name, user.pw_gid)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    if no_new_privs and ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) != 0:
        os._exit(70)
    for back in (lambda: os.setresuid(-1, 0, -1), lambda: os.setresgid(-1, 0, -1), lambda: os.setgroups([0])):
        with suppress(PermissionError):
            back()  # type: ignore[no-untyped-call]
            os._exit(70)
    with open("/proc/self/status") as file:
        left = [line for line in file if re.match("Cap(Inh|Prm|Eff|Amb):", line) and int(line.split()[1], 16)]
    now = ({*os.getresuid()}, {*os.getresgid()})
    if left or 0 in os.getgroups() or now != ({user.pw_uid}, {user.pw_gid}):
        os._exit(70)
    os.umask(0o077)
    os.chdir("/")


# -- as the user ---------------------------------------------------------------------------------------------------


def find_files(cwd: str, patterns: Sequence[str], most: int, seconds: float) -> list[list[float]]:
    """As a shell finds files below `cwd`: of each pattern the number of matches, and the first and the last time of
    change (epoch seconds; 0 of none). Raises Refused beyond `most` names in all, or so many seconds."""
    left, until_s = most, time.monotonic() + seconds

    def walk(at: str, parts: list[str]) -> Iterator[float]:
        nonlocal left
        wild = glob.has_magic(parts[0])
        with suppress(OSError):
            for name in (entry.name for entry in os.scandir(at)) if wild else parts[:1]:
                left -= 1
                refuse(left < 0 or time.monotonic() > until_s, "more than %d names, or %g s" % (most, seconds))
                path = os.path.join(at, name)
                if wild and (not fnmatch.fnmatchcase(name, parts[0]) or (name[0] == "." and parts[0][0] != ".")):
                    continue
                if parts[1:]:
                    yield from walk(path, parts[1:])
                    continue
                with suppress(OSError):
                    yield os.stat(path).st_mtime

    of_each = [
        list(walk("/" if one[:1] == "/" else cwd, re.sub("/+", "/", one).lstrip("/").split("/"))) for one in patterns
    ]
    return [[len(times), min(times, default=0.0), max(times, default=0.0)] for times in of_each]


class Session:
    """What is done for one user: files below the spool, and batch commands."""

    def __init__(self, user: pwd.struct_passwd, config: dict[str, Any]) -> None:
        self.user, self.config, self.root = user, config, config["spool"].replace("%u", user.pw_name)
        self.batch = need("|".join(BATCH), config.get("batch", "slurm"), "the batch system")
        self.option, self.delete, self.job, self.change, self.setting = BATCH[self.batch]

    def log(self, what: str) -> None:
        syslog.syslog("for %s: %s" % (self.user.pw_name, re.sub("[^ -~]", "?", what)[:1000]))

    def answer(self, line: bytes) -> Request:
        """Do what a line asks for. It is logged before that: the user may kill this process as soon as it is done."""
        what = "?"
        try:
            request = json.loads(line)
            verb = need(
                "prepare|submit|cancel|update|put|read|find|touch|remove|test_only", request["verb"], "the verb"
            )
            what = " ".join([verb] + ["%s=%.200r" % (name, request[name]) for name in LOGGED if name in request])
            self.log(what)
            return {"ok": True, **(getattr(self, verb)(request) or {})}
        except OSError as error:
            said: Request = {"error": error.strerror or "it failed", "errno": error.errno}
        except (Refused, ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
            said = {"error": str(error if isinstance(error, Refused) else UNREAD % type(error)), "refused": True}
        self.log("%s: %s" % (what, said["error"]))
        return {"ok": False, **said}

    # files: each folder is opened from the one before, and none of them may be a link

    def folder(self, parts: Sequence[str], make: bool = False) -> int:
        """A descriptor of a folder below the spool, which has to be the user's alone, out of others' reach."""
        for path in {self.root, os.path.realpath(self.root)}:
            while path != "/":
                path = os.path.dirname(path)
                found, why = os.stat(path), "others could put something else below %s" % path
                refuse(found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX, why)
                refuse(found.st_uid not in (0, self.user.pw_uid), why)
        if make and not os.path.lexists(self.root):
            os.mkdir(self.root, 0o700)
        at = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            others = os.fstat(at).st_uid != self.user.pw_uid or os.fstat(at).st_mode & 0o077
            refuse(others, "%s is not the user's alone (mode 0700)" % self.root)
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=at)
                outer, at = at, os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(outer)
            return at
        except BaseException:
            os.close(at)
            raise

    @contextmanager
    def place(self, path: Any, make: bool = False) -> Iterator[tuple[int, str]]:
        """Where a path below the spool is: its folder's descriptor, and its name there."""
        *parts, name = words(PART, need(TEXT, path, "the path").split("/")[:64], "the path")
        at = self.folder(parts, make)
        try:
            yield at, name
        finally:
            os.close(at)

    def prepare(self, request: Request) -> None:
        for path in ["", *words(TEXT, request.get("folders", []), "a folder")]:
            os.close(self.folder([need(PART, part, "a folder") for part in path.split("/") if path], make=True))

    def put(self, request: Request) -> None:
        """A file, whole or not at all. `link`: another name of a file beside it; the new one must not be there yet."""
        data, mode = base64.b64decode(request.get("data", "")), number(request.get("mode", 0o600), "mode", 0, 0o700)
        temporary = ".%s.tmp" % os.urandom(8).hex()
        with self.place(request["path"], make=True) as (at, name):
            if "link" in request:
                return os.link(need(PART, request["link"], "the link"), name, src_dir_fd=at, dst_dir_fd=at)
            try:
                with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=at), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
            except OSError:
                os.unlink(temporary, dir_fd=at)
                raise

    def read(self, request: Request) -> Request:
        """A file of the user's, or a folder's names. By a whole path it is an output, and may be behind links."""
        path, flags = request["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
        inside = not str(path).startswith("/")
        if inside:
            with self.place(path) as (at, name):
                file = os.open(name, flags | os.O_NOFOLLOW, dir_fd=at)
        else:
            file = os.open(need(ABSOLUTE, path, "the path"), flags)
        try:
            found = os.fstat(file)
            if stat.S_ISDIR(found.st_mode) and inside:
                return {"names": os.listdir(file)}
            no_file = not stat.S_ISREG(found.st_mode) or (inside and found.st_uid != self.user.pw_uid)
            refuse(no_file, "it is not a regular file of the user's")
            most, offset = (number(request.get(name, 0), name, 0, 1 << 60) for name in ("most", "offset"))
            data = os.pread(file, min(most, MOST_READ), offset)
            return {"data": base64.b64encode(data).decode(), "mtime": found.st_mtime}
        finally:
            os.close(file)

    def find(self, request: Request) -> Request:
        """Of each pattern of files, below `cwd`, how many match it, and when the oldest and newest changed."""
        patterns, cwd = words(TEXT, request["patterns"], "a pattern"), need(ABSOLUTE, request["cwd"], "the folder")
        most, seconds = number(request["most"], "most", 1, 1 << 30), number(request["seconds"], "seconds", 1, IDLE_S)
        try:
            return {"found": find_files(cwd, patterns, most, seconds)}
        except Refused as error:
            return {"over": str(error)}

    def touch(self, request: Request) -> None:
        """Make an empty file of the user's, and the folder that it is in; one that is there stays as it is."""
        path = need(ABSOLUTE, request["path"], "the path")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY, 0o666))

    def remove(self, request: Request) -> None:
        with self.place(request["path"]) as (at, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                shutil.rmtree("/proc/self/fd/%d/%s" % (at, name))  # which follows no link
            else:
                os.unlink(name, dir_fd=at)

    # batch commands: made here of what was checked, and run without a shell

    def submit(self, request: Request, *test: str) -> Request:
        options = words(self.option, request["options"], "the option")
        if self.batch != "slurm":  # of a job in PBS the tag is where its errors would go
            tag = need(TAG, request["tag"], "the tag")
            return self.run(["qsub", "-joe", "-o/dev/null", "-e/dev/null/" + tag, *options], request)
        argv = ["sbatch", *options, *test]
        if not test:
            comment = need(r"([^\0]* )?", request["comment"], "the comment") + need(TAG, request["tag"], "the tag")
            argv.append("--comment=" + comment)
        with open(os.memfd_create("environment"), "wb", 0) as file:
            if "environment" in request:
                variables = table(VARIABLE, request["environment"], "a variable")
                file.write("".join("%s=%s\0" % one for one in variables.items()).encode(errors="surrogateescape"))
                argv.append("--export-file=/proc/self/fd/%d" % file.fileno())
            if "file" in request:
                argv += [need(ABSOLUTE, request["file"], "the file"), *words(TEXT, request["args"], "an argument")]
            return self.run(argv, request, [file.fileno()])

    def test_only(self, request: Request) -> Request:
        need("slurm", self.batch, "a test at the batch system")
        return self.submit(request, "--test-only")

    def cancel(self, request: Request) -> Request:
        return self.run([self.delete, *words(self.job, request["ids"], "a job")], request)

    def update(self, request: Request) -> Request:
        id = need(self.job, request["id"], "the job")
        if "change" in request:
            change = need(self.change, request["change"], "the change")
            return self.run(["scontrol", change, id] if self.batch == "slurm" else [change, "-h", "u", id], request)
        settings = words(self.setting, ["%s=%s" % one for one in request["set"].items()], "a setting")
        argv = ["scontrol", "update", "JobId=" + id, *settings]
        return self.run(argv if self.batch == "slurm" else ["qalter", *["-l" + one for one in settings], id], request)

    def run(self, argv: list[str], request: Request, keep: Sequence[int] = ()) -> Request:
        """A command of the batch system's, in an environment of ours. What it says is cut at MOST_SAID bytes."""
        name, umask = self.user.pw_name, number(request.get("umask", 0o077), "umask", 0, 0o777)
        environment = {"PATH": self.config["path"], "USER": name, "LOGNAME": name, **self.config["environment"]}
        environment.update(HOME=self.user.pw_dir, SHELL=self.user.pw_shell)
        environment.update(table(PLACE, request.get("wording", {"LC_ALL": "C", "TZ": "UTC0"}), "the wording"))
        if "started_in" in request:  # of an sbatch that takes the job's environment from nowhere else
            environment = {**table(VARIABLE, request["started_in"], "a variable"), **self.config["environment"]}
        program = shutil.which(argv[0], path=self.config["path"]) or argv[0]
        limits = {
            getattr(resource, "RLIMIT_" + need(LIMITS, name, "the limit").upper()): number(most, name, -1, 1 << 62)
            for name, most in request.get("limits", {}).items()
        }

        def before() -> None:
            for kind, most in limits.items():
                hard = resource.getrlimit(kind)[1]
                resource.setrlimit(kind, (hard if hard != -1 and not 0 <= most <= hard else most, hard))

        began, timed_out = time.monotonic(), False
        seconds: float = number(request.get("timeout_s", 30), "timeout_s", 1, MOST_COMMAND_S)
        if "until_s" in request:  # by the clock of the machine, which the daemon is on, too
            seconds = min(seconds, float(request["until_s"]) - began)
            if seconds <= 0:
                return {"code": -signal.SIGKILL, "timed_out": True, "seconds": 0.0, "stdout": "", "stderr": ""}
        script = need(TEXT, request.get("script", ""), "the script").encode(errors="surrogateescape")
        around: Any = {"executable": program, "env": environment, "umask": umask}
        around.update(cwd=need(ABSOLUTE, request.get("cwd", "/"), "the folder"))
        around.update(dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE))
        child = subprocess.Popen(argv, pass_fds=keep, preexec_fn=before, start_new_session=True, **around)
        try:
            out, err = child.communicate(script, timeout=seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
        said = {"stdout": out[:MOST_SAID].decode(errors="replace"), "stderr": err[:MOST_SAID].decode(errors="replace")}
        return {"code": child.returncode, "timed_out": timed_out, "seconds": time.monotonic() - began, **said}


def next_line(source: Any, idle_s: int = IDLE_S) -> bytes:
    """Of a caller that says nothing for so long, or does not take its answer, the alarm ends the process."""
    signal.alarm(idle_s)
    line: bytes = source.readline(MOST_LINE + 1)
    signal.alarm(2 * MOST_COMMAND_S)
    return line if line.endswith(b"\n") and len(line) <= MOST_LINE else b""


def tell(answer: Request) -> None:
    print(json.dumps(answer), flush=True)  # which is ASCII


def serve(config: dict[str, Any]) -> None:
    """One session, on standard input and output."""
    source, name = sys.stdin.buffer, "?"
    try:
        check_caller(config["service"])
        user = check_user(name := json.loads(next_line(source))["user"], config)
    except (Refused, ValueError, TypeError, LookupError, OSError, RecursionError) as error:
        why = str(error) if isinstance(error, Refused) else "there is no such user"
        syslog.syslog(syslog.LOG_WARNING, "refused for %.80r: %s" % (name, why))
        tell({"ok": False, "error": why, "refused": True})
        next_line(source, READ_OUT_S)  # a socket that is closed with words unread in it takes the answer away
        return
    become(user, config["no_new_privs"])
    session = Session(user, config)
    tell({"ok": True, "uid": user.pw_uid, "spool": session.root, "batch": session.batch})
    for _, line in zip(range(MOST_REQUESTS), iter(lambda: next_line(source), b"")):  # noqa: B905 (Python 3.9)
        tell(session.answer(line))


def begun() -> bool:
    """Whether this process is a session. Behind a listening socket each child is, and what forks them comes back only
    when another file is in this one's place: the socket unit then starts that one."""
    door, mine, living = socket.socket(fileno=os.dup(0)), os.stat(__file__).st_ctime_ns, dict[int, float]()
    serving = bool(door.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    while serving and os.stat(__file__).st_ctime_ns == mine:
        for pid in [pid for pid, since_s in living.items() if time.monotonic() - since_s > MOST_SESSION_S]:
            os.kill(pid, signal.SIGKILL)  # its user has stopped it: else it would be over
        while living and (ended := os.waitpid(-1, os.WNOHANG)[0]):
            del living[ended]
        if len(living) >= MOST_SESSIONS:
            time.sleep(FULL_S)
            continue
        if select.select([door], [], [], IDLE_S)[0] and os.stat(__file__).st_ctime_ns == mine:
            with door.accept()[0] as end:
                if (pid := os.fork()) == 0:
                    os.dup2(end.fileno(), 0)
                    os.dup2(end.fileno(), 1)
                    return True
            living[pid] = time.monotonic()
    return not serving


if __name__ == "__main__":
    syslog.openlog("ejb-as", syslog.LOG_PID | (0 if os.path.exists("/dev/log") else syslog.LOG_PERROR), syslog.LOG_AUTH)
    try:
        refuse(os.geteuid() != 0 or len(sys.argv) > 2, "root's socket unit or sudoers rule starts this")
        if not stat.S_ISSOCK(os.fstat(0).st_mode) or begun():
            serve(configuration([*sys.argv, "/etc/ejb/ejb-as.json"][1]))
        os._exit(0)  # what Python would tidy up costs more than a session
    except (OSError, ValueError, Refused) as error:
        sys.exit("ejb-as: %s" % error)
