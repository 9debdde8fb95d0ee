"""Hosts on one machine: network namespaces with an address and a host name each, on a bridge of their own.

A network has a number K. Its addresses are the K-th /24 of 198.18.0.0/15 (set aside for benchmarks by RFC 2544, so in
no use); host I has .I, the machine itself .254. Its names: `ejbK` is the machine's interface and the namespace in
which the bridge lives (no firewall of the machine's forwards there), `ejbK-nI` is that of host I. Making a namespace
takes the number, so two networks never share one. Standard library only; needs root.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

NETWORKS = 512
MOST_HOSTS = 250
MACHINE = 254
_FOLDER = Path("/run/netns")
_SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

# In mount and host-name namespaces of its own. /sys/class/net is made to tell this host's interfaces: UCX reads it. The
# rest of /sys stays (a new one would have no cgroups below it).
_ENTER = """
hostname "$1"; hosts=$2; sys=$3; shift 3
mount --bind "$hosts" /etc/hosts
mount -t sysfs sysfs "$sys"
for part in devices/virtual/net class/net; do mount --bind "$sys/$part" "/sys/$part"; done
umount "$sys"
exec "$@"
"""
_TRIAL = "ip link add ejbtrial type veth peer name ejblairt && mount -t sysfs sysfs /sys"


class NetworkError(Exception):
    """One sentence."""


def impossible() -> str:
    """Why no hosts can be made here, "" where they can: by trying, in namespaces that are gone afterwards."""
    if os.getuid() != 0:
        return "only root can make network namespaces with names"
    try:
        _run(["unshare", "--net", "--uts", "--mount", "sh", "-c", _TRIAL])
        _run(["ip", "netns", "list"])
        _run(["nsenter", "--version"])
    except NetworkError as error:
        return f"network namespaces cannot be made here: {error}"
    return ""


def address(network: int, host: int) -> str:
    """The address of host 1 … MOST_HOSTS, or of the machine itself (MACHINE)."""
    return f"198.{18 + network // 256}.{network % 256}.{host}"


def name(network: int, host: int = 0) -> str:
    """The namespace of a host, or of the network's bridge (0), which is the machine's interface to it, too."""
    return f"ejb{network}-n{host}" if host else f"ejb{network}"


def make(hosts: int, seed: str) -> int:
    """A new network of this many hosts; its number. What can be seen from `seed` decides which is tried first."""
    first = sum(position * byte for position, byte in enumerate(seed.encode(), 1))
    for position in range(NETWORKS):
        network = (first + position) % NETWORKS
        if _is_free(network) and _claim(network):
            break
    else:
        raise NetworkError(f"all {NETWORKS} networks from 198.18.0.0 on are in use; take some down")
    try:
        bridge = name(network)
        _ip(f"-n {bridge}", "link add br0 type bridge", "link set br0 up")
        _ip("", f"link add {bridge} type veth peer name up0 netns {bridge}")
        _ip(f"-n {bridge}", "link set up0 master br0 up")
        _ip("", f"addr add {address(network, MACHINE)}/24 dev {bridge}", f"link set {bridge} up")
        mend(network, hosts)
    except NetworkError:
        remove(network)
        raise
    return network


def mend(network: int, hosts: int) -> None:
    """Add the hosts that are missing."""
    bridge = name(network)
    if not (_FOLDER / bridge).exists() or not (Path("/sys/class/net") / bridge).exists():
        raise NetworkError(f"the network {address(network, 0)}/24 is gone (a restart of the machine?); take it down")
    missing = [host for host in range(1, hosts + 1) if not (_FOLDER / name(network, host)).exists()]
    if not missing:
        return
    _ip("", *(f"netns add {name(network, host)}" for host in missing))
    add = "link add h{0} master br0 up type veth peer name eth0 netns {1}"
    _ip(f"-n {bridge}", *(add.format(host, name(network, host)) for host in missing))
    for host in missing:
        there = f"-n {name(network, host)}"
        _ip(there, "link set lo up", f"addr add {address(network, host)}/24 dev eth0", "link set eth0 up")


def remove(network: int) -> None:
    """Remove it, whatever is left of it. Processes in it keep their namespaces until they end."""
    bridge = name(network)
    if (Path("/sys/class/net") / bridge).exists():
        _ip("", f"link del {bridge}")
    for namespace in [*sorted(path.name for path in _FOLDER.glob(f"{bridge}-n*")), bridge]:
        if (_FOLDER / namespace).exists():
            _ip("", f"netns del {namespace}")


def write_hosts(file: Path, network: int, names: dict[str, int]) -> None:
    """What /etc/hosts shall say in the network: these names, the machine's own, and what the machine's says besides."""
    lines = ["127.0.0.1 localhost", f"{address(network, MACHINE)} {os.uname().nodename}"]
    lines += [f"{address(network, host)} {name}" for name, host in names.items()]
    known = {name for line in lines for name in line.split()[1:]}
    for line in Path("/etc/hosts").read_text().splitlines():
        words = line.partition("#")[0].split()
        if len(words) > 1 and not known & set(words[1:]):
            lines.append(line)
    file.write_text("\n".join(lines) + "\n")


def command(network: int, host: int, hostname: str, hosts_file: Path, words: list[str]) -> list[str]:
    """The command line that runs `words` on a host. `hosts_file` lies in a folder for this purpose alone."""
    empty = hosts_file.parent / "sys"
    empty.mkdir(exist_ok=True)
    enter = ["nsenter", f"--net={_FOLDER / name(network, host)}", "unshare", "--uts", "--mount"]
    return [*enter, "sh", "-ec", _ENTER, "sh", hostname, str(hosts_file), str(empty), *words]


def _is_free(network: int) -> bool:
    prefix = address(network, 0).rpartition(".")[0] + "."
    taken = _run(["ip", "-4", "-o", "addr", "show"]) + _run(["ip", "-4", "route", "show"])
    bridge = name(network)
    return prefix not in taken and not (_FOLDER / bridge).exists() and not (Path("/sys/class/net") / bridge).exists()


def _claim(network: int) -> bool:
    """Make the bridge's namespace; False where another process has been faster."""
    try:
        _ip("", f"netns add {name(network)}")
    except NetworkError as error:
        if "File exists" in str(error):
            return False
        raise
    return True


def _ip(where: str, *lines: str) -> None:
    _run(["ip", *where.split(), "-batch", "-"], "\n".join(lines) + "\n")


def _run(words: list[str], text: str = "") -> str:
    try:
        environment = {**os.environ, "PATH": _SEARCH_PATH, "LC_ALL": "C"}
        done = subprocess.run(
            words, input=text, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
    except FileNotFoundError:
        raise NetworkError(f"{words[0]} is not installed (apt-get install iproute2 util-linux)") from None
    except subprocess.TimeoutExpired:
        raise NetworkError(f"{words[0]} hung") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"code {done.returncode}"]
        raise NetworkError(f"{words[0]}: {said[0]}")
    return done.stdout
