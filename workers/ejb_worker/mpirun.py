"""Open MPI's ranks on several workers: one `mpirun` at home, and with each other worker the daemon that it asks for.

mpirun starts a daemon (orted, prted) on every other host, by a command that it takes for ssh. Here that is an agent: it
writes down in the epoch's folder what it was to start. The worker there reads it and starts it itself: in its own
allocation, with the environment of the ranks, and without any ssh. Hosts have made-up names, so that mpirun takes none
of them but the home's for its own machine, also where workers share one.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Mapping, Optional

from .engines.base import Command, EngineError, EpochContext
from .files import make_dir, write_json

FOLDER = "mpirun"
_AGENT = """\
#!/bin/sh
# What mpirun takes for ssh: AGENT HOST COMMAND... The worker there starts the command.
host=$1
shift
printf '%%s' "$*" > %(folder)s/"$host.new" && mv %(folder)s/"$host.new" %(folder)s/"$host.command"
"""
_VERSION = re.compile(r"\(Open MPI\) v?(\d+)")
_SPREADS = (4, 5)
"""The versions of Open MPI that are spread."""


class OneNodeOnly(EngineError):
    """The job's mpirun starts ranks on one node alone, as far as EJB knows how."""


class Spread:
    """One epoch's ranks, on this worker.

    `launcher` is the payload's: `host` is this worker's name, `hosts` each rank's, `shares` whether two workers of the
    epoch are on one machine.
    """

    def __init__(self, launcher: Mapping[str, Any], context: EpochContext) -> None:
        self._launcher = launcher
        self._context = context
        self._host = str(launcher["host"])
        self._hosts = [str(one) for one in launcher["hosts"]]
        self._folder = os.path.join(context.folder, FOLDER)
        self._version = _SPREADS[0]
        self.home = self._host == self._hosts[0]

    def ready(self, env: Dict[str, str]) -> Iterator[None]:
        """Until its process here can be started; yields where it has to wait. Raises EngineError and OSError."""
        make_dir(self._folder)
        if self.home:
            yield from self._known_version(env)
            self._write("agent", _AGENT % {"folder": _quoted(self._folder)})
            own = os.uname().nodename
            self._write("hosts", "".join("%s\n" % (own if one == self._host else one) for one in self._hosts))
            return
        while self._asked() is None and not self.over:
            os.listdir(self._folder)  # what a network file system remembers to be missing is looked for again
            yield

    def _known_version(self, env: Dict[str, str]) -> Iterator[None]:
        program = str(self._launcher["argv"][0])
        codes: List[int] = []
        self._context.run_tool("mpirun-version", [program, "--version"], env, codes.append)
        while not codes:
            yield
        path = os.path.join(self._context.folder, "mpirun-version-%s.log" % self._context.node)
        with open(path, encoding="utf-8", errors="replace") as log:
            found = _VERSION.search(log.read())
        if found is None or int(found[1]) not in _SPREADS:
            what = "is Open MPI %s" % found[1] if found else "does not say that it is Open MPI"
            raise OneNodeOnly("%s %s: its ranks stay on one node (versions 4 and 5 are spread)" % (program, what))
        self._version = int(found[1])

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self._folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def options(self) -> List[str]:
        """Of mpirun, before the program."""
        agent = "/bin/sh %s" % os.path.join(self._folder, "agent")
        words = ["--hostfile", os.path.join(self._folder, "hosts"), "--map-by", "seq", "--leave-session-attached"]
        if self._version == 4:
            settings = {"plm": "rsh", "plm_rsh_agent": agent, "plm_rsh_no_tree_spawn": "1", "orte_do_not_resolve": "1"}
            return words + [word for name, value in settings.items() for word in ("--mca", name, value)]
        settings = {"plm": "ssh", "plm_ssh_agent": agent, "plm_ssh_no_tree_spawn": "1", "prte_do_not_resolve": "1"}
        words += [word for name, value in settings.items() for word in ("--prtemca", name, value)]
        # Collectives that go by hosts take two daemons of one host for one, and hang.
        return words + (["--mca", "coll", "^han,sm"] if self._launcher.get("shares") else [])

    def daemon(self, env: Dict[str, str]) -> Optional[Command]:
        """What mpirun asked for here, in the ranks' environment; None where mpirun had ended before."""
        asked = self._asked()
        if asked is None:
            return None
        env = dict(env)
        if self._launcher.get("shares"):  # two daemons of one host would take each other's files for their own
            own = os.path.join(self._context.scratch(), self._host)
            make_dir(own)
            env.update(OMPI_MCA_orte_tmpdir_base=own, OMPI_MCA_btl_vader_backing_directory=own)
            env.update(PRTE_MCA_prte_tmpdir_base=own)
        return Command(["/bin/sh", "-c", "exec %s" % asked if _plain(asked) else asked], env)

    def _asked(self) -> Optional[str]:
        try:
            with open(os.path.join(self._folder, self._host + ".command"), encoding="utf-8") as file:
                return file.read().strip()
        except FileNotFoundError:
            return None

    @property
    def over(self) -> bool:
        """Whether mpirun has ended."""
        return os.path.exists(os.path.join(self._folder, "over.json"))

    def ended(self, code: int) -> None:
        """mpirun has, with this code: no daemon is to be waited for any more."""
        write_json(os.path.join(self._folder, "over.json"), {"code": code})


def _plain(command: str) -> bool:
    """Whether it is one command of a shell, and not several."""
    return not set(command) & set(";&|\n")


def _quoted(path: str) -> str:
    return "'%s'" % path.replace("'", "'\\''")
