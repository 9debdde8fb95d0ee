"""Commands of the names of DMTCP's that behave as DMTCP 5.0 was measured to, faults included, and checkpoint nothing.

A "checkpoint" is the command line: a restarted program begins again and has to find its own way. What matters to
whoever calls the commands is as recorded: `-kc` returns at once, a process that was stopped ends with 0, one whose
coordinator died with 99, an image is `*.temp` until it is whole, a restart waits until every process is back, a refusal
is exit code 2 whatever the text says.

`faults.json` beside the commands makes them go wrong: `{"refuse": true}`, `{"version": "4.2.0"}`, and by the name of a
checkpoint folder `{"rank-1": "temp" | "none" | "hang" | "die"}`; `{"coordinator": "die"}` at the checkpoint. No
fault but a feature: with `{"rank-1": "child"}` the process has started another one, which is longer at writing its own
image; `"brief child"` is one that has ended by then. What is said of an end with 99 is in the file that
JALIB_STDERR_PATH names.

Two faults work with the real commands, too (`wrap`): a program `before-checkpoint` beside the commands is run before
`-kc` is sent, and a file `hold-restart-<name of the checkpoint folder>` lets one restart of that process hang.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # each rank starts this: `typing`, `shutil` and `ctypes` would be a third of what it costs
    from typing import Any

COMMANDS = ("dmtcp_launch", "dmtcp_restart", "dmtcp_command", "dmtcp_coordinator")
TAKES_VALUE = (
    *("--coord-host", "--coord-port", "-p", "--ckptdir", "--tmpdir", "--port-file", "--coord-logfile"),
    *("--with-plugin", "--ckpt-signal"),
)


def install(folder: Path) -> Path:
    """The commands in `folder`/bin, which a test puts on PATH."""
    import shlex  # each rank starts this, and needs none of it

    target = folder / "bin"
    target.mkdir(parents=True)
    for name in COMMANDS:
        path = target / name
        words = shlex.join([sys.executable, "-I", "-S", str(Path(__file__).resolve()), name, str(target)])
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return target


def wrap(folder: Path) -> Path:
    """The real commands, each behind a script of its name in `folder`/bin that knows the two faults."""
    from shutil import which

    found = which("dmtcp_launch")
    assert found is not None
    real = Path(found).resolve().parent
    target = folder / "bin"
    target.mkdir(parents=True)
    (folder / "lib").symlink_to(real.parent / "lib")  # where a plugin's library is looked for
    for name in COMMANDS:
        path = target / name
        path.write_text(f"#!/bin/sh\nhere='{target}'\n{WRAPPED.get(name, '')}exec '{real}/{name}' \"$@\"\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return target


WRAPPED = {
    "dmtcp_restart": """last=
for word in "$@"; do
    [ "$last" = --ckptdir ] && rm "$here/hold-restart-${word##*/}" 2>/dev/null && exec sleep 600
    last=$word
done
""",
    "dmtcp_command": """for word in "$@"; do
    [ "$word" = -kc ] && [ -x "$here/before-checkpoint" ] && "$here/before-checkpoint"
done
""",
}


def set_faults(target: Path, **faults: Any) -> None:
    (target / "faults.json").write_text(json.dumps(faults))


def faults_of(target: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((target / "faults.json").read_text()))
    except (OSError, ValueError):
        return {}


def options_of(words: list[str]) -> tuple[dict[str, str], list[str]]:
    options, rest = {}, list(words)
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)
        options[name] = rest.pop(0) if name in TAKES_VALUE else ""
        if name in ("-s", "-kc", "-k"):
            break
    return options, rest


class Line:
    """Lines of JSON over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.held = b""

    def send(self, **message: Any) -> None:
        try:
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass

    def receive(self) -> list[dict[str, Any]] | None:
        """What has come; None at the end."""
        try:
            data = self.connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self.held = (self.held + data).split(b"\n")
        return [json.loads(line) for line in lines]


def coordinator(target: Path, options: dict[str, str]) -> int:
    listener = socket.create_server(("0.0.0.0", int(options["-p"])))
    Path(options["--port-file"]).write_text(str(listener.getsockname()[1]))  # no newline at its end
    peers: dict[Line, int] = {}  # process -> how many there are to be
    lines: list[Line] = []
    while True:
        readable = select.select([listener, *[line.connection for line in lines]], [], [])[0]
        for one in readable:
            if one is listener:
                lines.append(Line(listener.accept()[0]))
                continue
            line = next(line for line in lines if line.connection is one)
            messages = line.receive()
            if messages is None:
                lines.remove(line)
                peers.pop(line, None)
                one.close()
                continue
            for message in messages:
                if _serve(target, line, message, peers):
                    os._exit(1)


def _serve(target: Path, line: Line, message: dict[str, Any], peers: dict[Line, int]) -> bool:
    """Whether the coordinator is to die now."""
    faults = faults_of(target)
    if "join" in message:
        peers[line] = message["join"]
        if len(peers) >= max(peers.values()):
            for peer in peers:
                peer.send(go=True)
        return False
    running = bool(peers) and len(peers) >= max(peers.values())
    command = message["command"]
    if command == "-s":
        count = len(peers) + sum(fault in ("child", "brief child") for fault in faults.values())
        line.send(code=0, text=f"Status...\n  NUM_PEERS={count}\n  RUNNING={'yes' if running else 'no'}\n")
    elif command == "-kc" and (faults.get("refuse") or not running):
        line.send(code=2, text="Checkpoint: success\n")
    else:
        line.send(code=0, text="")
        if command == "-kc" and faults.get("coordinator") == "die":
            return True
        for peer in peers:
            peer.send(checkpoint=len(peers)) if command == "-kc" else peer.send(kill=True)
    return False


def command(target: Path, options: dict[str, str]) -> int:
    word = next(name for name in options if name in ("-s", "-kc", "-k"))
    if word == "-kc" and (target / "before-checkpoint").exists():
        subprocess.run([str(target / "before-checkpoint")], check=False)
    try:
        line = Line(socket.create_connection((options["--coord-host"], int(options["--coord-port"])), 10))
    except OSError:
        sys.stderr.write("Coordinator not found\n")
        return 2
    line.send(command=word)
    answers = line.receive()
    if not answers:
        return 2
    print(answers[0]["text"])
    return int(answers[0]["code"])


def member(target: Path, options: dict[str, str], argv: list[str], join: int) -> int:
    """A process of the computation: waits for the others where `join` says how many, then runs the program."""
    line = Line(socket.create_connection((options["--coord-host"], int(options["--coord-port"])), 10))
    line.connection.settimeout(None)
    line.send(join=join)
    child: subprocess.Popen[bytes] | None = None
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        watched: list[Any] = [line.connection, wake]
        readable = select.select(watched, [], [])[0]
        if wake in readable:
            os.read(wake, 4096)
        if child is not None and child.poll() is not None:
            return child.returncode if child.returncode >= 0 else 128 - child.returncode
        if line.connection not in readable:
            continue
        messages = line.receive()
        if messages is None:
            _end(child)
            _say("ASSERT at dmtcpmessagetypes.cpp:81: messageMagicIsValid(_magicBits): read invalid message")
            return 99  # an assertion of DMTCP's: the coordinator is gone
        for message in messages:
            if message.get("go") and child is None:
                child = subprocess.Popen(argv, preexec_fn=_die_with_parent)
            elif message.get("kill"):
                _end(child)
                return 0
            elif "checkpoint" in message:
                _checkpoint(target, Path(options["--ckptdir"]), argv, int(message["checkpoint"]), child)
                _end(child)
                return 0


def _say(text: str) -> None:
    with open(os.environ.get("JALIB_STDERR_PATH") or "/dev/stderr", "a") as file:
        file.write(text + "\n")


def _checkpoint(target: Path, folder: Path, argv: list[str], peers: int, child: subprocess.Popen[bytes] | None) -> None:
    fault = faults_of(target).get(folder.name)
    image = folder / f"ckpt_{Path(argv[0]).name}_98ff-{40000 + os.getpid()}-1.dmtcp"
    temporary = image.with_name(image.name + ".temp")
    temporary.write_text(json.dumps({"argv": argv, "peers": peers}))
    if fault == "die":
        _end(child)
        os._exit(99)
    if fault == "hang":
        time.sleep(600)
    if fault == "child":
        _childs_image(image.with_name(image.name.replace("-1.dmtcp", "-2.dmtcp")))
    if fault == "none":
        temporary.unlink()
    elif fault != "temp":
        temporary.rename(image)
    time.sleep(0.2)  # nobody is killed before all have written


def _childs_image(image: Path) -> None:
    """Of a process in the same group, which is at it when its parent has ended."""
    temporary = image.with_name(image.name + ".temp")
    temporary.touch()
    if os.fork() == 0:
        time.sleep(1)
        temporary.rename(image)
        os._exit(0)


def _die_with_parent() -> None:
    """In truth launcher and program are one process."""
    from ctypes import CDLL

    CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


def _end(child: subprocess.Popen[bytes] | None) -> None:
    if child is not None:
        child.kill()
        child.wait()


def main(name: str, target: Path, words: list[str]) -> int:
    if words == ["--version"]:
        print(f"{name} (DMTCP) {faults_of(target).get('version', '5.0')}")
        return 0
    options, rest = options_of(words)
    if name == "dmtcp_coordinator":
        return coordinator(target, options)
    if name == "dmtcp_command":
        return command(target, options)
    if name == "dmtcp_launch":
        with (target / "launched").open("a") as file:
            file.write(" ".join(word for word in options if "gzip" in word) + "\n")
        return member(target, options, rest, 1)
    try:
        (target / f"hold-restart-{Path(options['--ckptdir']).name}").unlink()
        time.sleep(600)
    except FileNotFoundError:
        pass
    image = json.loads(Path(rest[0]).read_text())
    return member(target, options, image["argv"], image["peers"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
