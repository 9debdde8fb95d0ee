"""A site from nothing to two users' jobs: the ten commands of docs/operators.md, as root on a copy of this machine.

The copy is an overlay in a mount namespace of its own; nothing of this machine is changed. Two things are not as on a
site: there is no systemd (a stand-in for `systemctl` starts what the installed units say, as the users that they say),
and pip fetches nothing (the checkout is laid where the wheel would be, which `integration/test_wheel.py` builds).
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import site
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.slurm_clusters import missing_slurm
from tests.integration.users import missing_users

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "operators.md").read_text()
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("users-slurm"),
    pytest.mark.skipif(bool(missing_users()), reason=missing_users()),
]
_COPY = """
set -eu
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
for name in proc dev sys; do mount --rbind "/$name" "$1/root/$name"; done
mount -t tmpfs -o mode=1777 tmpfs "$1/root/tmp"
mkdir "$1/root/tmp/given"
cp "$2"/* "$1/root/tmp/given/"
if ! [ -e "$1/root$3" ]; then  # the checkout is below /tmp
    mkdir -p "$1/root$3"
    mount --bind -o ro "$3" "$1/root$3"
fi
root=$1/root
shift 3
exec chroot "$root" "$@"
"""
# What systemd does with the four units: the socket with its mode and owner, its service with that as standard input,
# the port that it holds, and the daemon as its user with that.
_SYSTEMCTL = """#!/usr/bin/python3
import configparser, os, pwd, re, socket, subprocess, sys, time
assert sys.argv[1:3] == ["enable", "--now"], sys.argv
UNITS = "/etc/systemd/system/"
def unit(name):
    found = {}
    for line in open(UNITS + name):
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#"):
            found[key] = value
    return found
def left(pid):
    open("/tmp/systemctl.pids", "a").write("%d\\n" % pid)
held = []
def serve(name):
    door, service = unit(name), unit(name.replace(".socket", ".service"))
    if ":" in door["ListenStream"]:  # the daemon gets it, as from systemd
        host, _, port = door["ListenStream"].rpartition(":")
        end = socket.socket()
        end.bind((host, int(port)))
        end.listen()
        return held.append(end)
    end = socket.socket(socket.AF_UNIX)
    os.umask(0o177)
    end.bind(door["ListenStream"])
    os.chown(door["ListenStream"], pwd.getpwnam(door["SocketUser"]).pw_uid, 0)
    os.chmod(door["ListenStream"], int(door["SocketMode"], 8))
    end.listen(64)
    if (pid := os.fork()):
        return left(pid)
    os.setsid(); os.umask(0o022); os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    assert service["StandardInput"] == "socket" and service["StandardOutput"] == "null"
    for number, file in enumerate((end.fileno(), null, null)): os.dup2(file, number)
    words = service["ExecStart"].split()
    os.execve(words[0], words, {"PATH": os.defpath})
def begin(name):
    service = unit(name + ".service")
    user = pwd.getpwnam(service["User"])
    log = open("/tmp/ejbd.log", "ab")
    words = ["/bin/sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&%d' % held[0].fileno(), "sh"]
    words += service["ExecStart"].split()
    left(subprocess.Popen(words, user=user.pw_uid, group=user.pw_gid, extra_groups=[],
        umask=int(service["UMask"], 8), cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        start_new_session=True, pass_fds=[held[0].fileno()],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": user.pw_dir}).pid)
    for _ in range(600):
        if os.path.exists("/run/ejb/ejbd.sock"):
            return
        time.sleep(0.1)
    sys.exit(open("/tmp/ejbd.log").read()[-3000:])
for name in sys.argv[3:]:
    serve(name) if name.endswith(".socket") else begin(name)
"""
# In the place of `pip install`: the package, what it stands on, and its two commands.
_INSTALLED = """
folder=$(echo /opt/ejb/.venv/lib/python3*/site-packages)
cp -rL {root}/ejbd "$folder/ejbd"
mkdir /opt/ejb/packages && mount --bind {packages} /opt/ejb/packages && echo /opt/ejb/packages >"$folder/packages.pth"
for pair in ejb:ejbd.cli.main:main ejbd:ejbd.daemon:main; do
    IFS=: read -r name module entry <<EOF
$pair
EOF
    printf '#!/opt/ejb/.venv/bin/python\\nimport sys\\nfrom %s import %s\\nsys.exit(%s())\\n' \\
        "$module" "$entry" "$entry" >"/opt/ejb/.venv/bin/$name"
    chmod 0755 "/opt/ejb/.venv/bin/$name"
done
"""


def indented(behind: str) -> list[str]:
    """The lines of the first block of code behind some words of the document."""
    rest = TEXT[TEXT.index(behind) + len(behind) :]
    block = re.search(r"\n\n((?:    .*\n)+)", rest)
    assert block is not None
    return [line[4:] for line in block[1].splitlines()]


def without_overlays(folder: Path) -> str:
    """Why there can be no copy of this machine here; "" where there can."""
    for name in ("unshare", "chroot", "systemd-sysusers", "systemd-tmpfiles", "su"):
        if shutil.which(name) is None:
            return f"not installed: {name}"
    has = "import sys, ensurepip; sys.exit(sys.version_info[:2] != tuple(map(int, sys.argv[1].split('.'))))"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if subprocess.run(
        ["/usr/bin/python3", "-c", has, version], capture_output=True, timeout=180, check=False
    ).returncode:
        return f"/usr/bin/python3 is no Python {version} with venv"
    argv = ["unshare", "--mount", "--propagation=private", "sh", "-c", _COPY.replace("exec chroot", "exec true chroot")]
    argv += ["sh", str(folder / "copy"), str(folder / "given"), str(ROOT)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
    return f"no overlay of the root can be mounted: {done.stderr.strip()}" if done.returncode else ""


def test_ten_commands_lead_from_nothing_to_two_users_jobs(tmp_path: Path) -> None:
    if reason := missing_slurm():
        pytest.skip(reason)
    commands = indented("From nothing to two users' jobs")
    assert len(commands) == 10
    given = tmp_path / "given"
    given.mkdir()
    (tmp_path / "copy").mkdir()
    (given / "systemctl").write_text(_SYSTEMCTL)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    toml = "\n".join(indented("`ejbd.toml`:"))
    (given / "ejbd.toml").write_text(toml.replace("8642", str(port)).replace("login1", "127.0.0.1") + "\n")
    packages = next(path for path in site.getsitepackages() if path.endswith("site-packages"))
    first, pip, _ = commands[0].partition(" && /opt/ejb/.venv/bin/pip install ")
    assert pip
    installed = _INSTALLED.format(root=shlex.quote(str(ROOT)), packages=shlex.quote(packages))
    elsewhere = f"sed -i s/8642/{port}/ /etc/systemd/system/ejbd.socket"
    begin = next(at for at, line in enumerate(commands) if line.startswith("systemctl "))
    lines = [f"{first} --without-pip", installed, *commands[1:begin], elsewhere, *commands[begin:]]
    (given / "commands").write_text("\n".join(lines) + "\n")
    if reason := without_overlays(tmp_path):
        pytest.skip(reason)
    script = ROOT / "tests" / "acceptance" / "site_from_nothing.sh"
    argv = ["unshare", "--mount", "--propagation=private", "sh", "-c", _COPY]
    argv += ["sh", str(tmp_path / "copy"), str(given), str(ROOT)]
    argv += ["/bin/bash", str(script), str(ROOT), sys.executable, "/tmp/given"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, cwd="/")
    said = f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0, said
    for user in ("alice", "bob"):
        part = done.stdout.partition(f"== {user}\n")[2].partition("\n== ")[0]
        told, end = json.JSONDecoder().raw_decode(part)
        one = told["jobs"][0] if "jobs" in told else told
        assert (one["state"], one["user"]) == ("completed", user), said
        assert part[end:].split()[:2] == ["4", user], "its four ranks ran, as that user"
        assert f"/scratch/{user}/.ejb" not in part[end:], "whatever is in its spool is that user's"
    assert re.search(r"ejb-as.*answers, and refuses root", done.stdout), said
    assert "ok   port: " in done.stdout and "root holds it" in done.stdout, said
    assert re.search(r"(?m)^ejb +/opt/ejb/.venv/bin/python", done.stdout), said
