"""A log's jobs on a real OpenPBS or Torque, by qsub and pbsdsh."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection
from pathlib import Path
from xml.etree import ElementTree

from ejbd.errors import Code, EjbError
from ejbd.studies.live.batch import BatchRuns, without
from ejbd.studies.live.program import Program

OPENPBS, TORQUE = "openpbs", "torque"
_AWAY = ("down", "offline", "unknown", "stale")
_OVER = ("C", "F", "X")  # states in a listing
_ROW = re.compile(r"(?P<number>[0-9]+)\S*\s.*\s(?P<state>[A-Z])\s+\S+\s*", re.ASCII)


class PbsRuns(BatchRuns):
    """`dialect`: openpbs or torque. `folder` of its commands: `bin`, or they are on PATH."""

    name = "PBS"
    quantum_s = 1.0
    starts_by = "pbsdsh"
    silent = ("cannot connect to server", "Connection refused", "Unable to communicate with", "End of File")
    where = "--cluster says where PBS is, or its commands on PATH are those of a server that runs"

    def __init__(
        self, folder: Path, dialect: str = OPENPBS, commands: Path | None = None, program: Program | None = None
    ) -> None:
        environment = without("PBS_O_")
        if commands is not None:
            environment["PATH"] = f"{commands}{os.pathsep}{environment.get('PATH', os.defpath)}"
        super().__init__(folder, environment, program)
        self._dialect = dialect
        self._commands = commands

    def processors(self) -> int:
        """Those of all nodes that take jobs."""
        return sum(self._nodes())

    def node_processors(self) -> int:
        """OpenPBS plans with processors wherever they are; jobs of Torque's are asked for in whole nodes and a rest."""
        return min(self._nodes()) if self._dialect == TORQUE else 1

    def _nodes(self) -> list[int]:
        """Processors of each node that takes jobs."""
        words = ["-x"] if self._dialect == TORQUE else ["-a", "-F", "json"]
        text = self._run("pbsnodes", *words)
        try:
            read = _of_torque(text) if self._dialect == TORQUE else _of_openpbs(text)
        except (ValueError, KeyError, TypeError, AttributeError, ElementTree.ParseError):
            hint = f"--batch {self._dialect} was said"
            raise EjbError(Code.BATCH_UNAVAILABLE, "what pbsnodes prints cannot be read", hint=hint) from None
        sizes = [size for state, size in read if size > 0 and not any(word in state for word in _AWAY)]
        if not sizes:
            raise EjbError(Code.BATCH_UNAVAILABLE, "PBS has no node that takes jobs", hint=self.where)
        return sizes

    def _submit(self, name: str, processors: int, walltime_s: float, script: str) -> str:
        hours, seconds = divmod(round(walltime_s), 3600)
        shape = f"select={processors}:ncpus=1:mpiprocs=1"
        if self._dialect == TORQUE:
            each = max(self._nodes())
            whole, rest = divmod(processors, each)
            groups = [f"{count}:ppn={size}" for count, size in ((whole, each), (int(rest > 0), rest)) if count]
            shape = "nodes=" + "+".join(groups)
        words = ["-N", name[:15], "-l", shape, "-l", f"walltime={hours}:{seconds // 60:02}:{seconds % 60:02}"]
        words += ["-j", "oe", "-o", "/dev/null", "-r", "n"]
        said = self._run("qsub", *words, stdin=script).split()
        if not said or not said[-1].partition(".")[0].isdigit():
            raise EjbError(Code.BATCH_REFUSED, f"qsub did not say the job's number: {' '.join(said)[:80]!r}")
        return said[-1].partition(".")[0]

    def _listed(self) -> Collection[str]:
        rows = map(_ROW.fullmatch, self._run("qstat").splitlines())
        return [row["number"] for row in rows if row is not None and row["state"] not in _OVER]

    def _cancel(self, ids: Collection[str]) -> None:
        for id in ids:
            try:
                self._run("qdel", id)
            except EjbError as error:
                if error.code is not Code.BATCH_REFUSED:  # it may have ended meanwhile
                    raise

    def _step(self, number: int, processors: int, command: str, meet: Path) -> str:
        """A task for each line of the nodefile. pbsdsh tells nothing of their ends: the result must be right.

        Under Torque a login shell makes the PATH, which may lack pbsdsh: then it is where the submitter has qsub.
        """
        rank = self._note(number, "rank")
        rank.write_text(
            f'#!/bin/sh\nexport EJB_RANK="$1" EJB_SIZE={processors} EJB_RENDEZVOUS={shlex.quote(str(meet))} '
            f'EJB_ADDRESS="$2"\nexec {command}\n'
        )
        start = f'pbsdsh -n "$rank" /bin/sh {shlex.quote(str(rank))} "$rank" "$address"'
        return (
            'PATH=$PATH:$PBS_O_PATH\naddress=$(getent ahostsv4 "$(hostname)" | { read first rest; echo "$first"; })\n'
            f"rank=0\nwhile [ $rank -lt {processors} ]; do {start} & rank=$((rank + 1)); done\n"
            f"wait\n[ -s {shlex.quote(str(self._note(number, 'result')))} ]"
        )


def _of_openpbs(text: str) -> list[tuple[str, int]]:
    nodes = json.loads(text, strict=False).get("nodes", {})
    return [(str(one["state"]), int(one["resources_available"].get("ncpus", 0))) for one in nodes.values()]


def _of_torque(text: str) -> list[tuple[str, int]]:
    if "<!" in text:  # Torque writes none; what could be declared there could only do harm
        raise ValueError(text[:40])
    nodes = ElementTree.fromstring(text).iterfind("Node")
    return [(node.findtext("state", ""), int(node.findtext("np", "0"))) for node in nodes]
