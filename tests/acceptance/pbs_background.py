"""A fake PBS as a site of journeys: other people's jobs on it that an elastic job has to wait behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ejbd.batch.pbs.rows import tag_of
from tests.acceptance.sites import POLL_S, BatchJob
from tests.fakes.daemon import FAST, until
from tests.fakes.pbs.site import PbsSite
from tests.integration.pbs_clusters import PbsCluster


@dataclass
class PbsBackground:
    """Shared by the tests of a module and emptied in between; `folder` is one test's."""

    site: PbsSite
    folder: Path
    block: int = 4
    fillers: Sequence[int] = (1, 2)
    settings: str = ""
    ended: int = 0
    ids: dict[str, int] = field(default_factory=dict)
    layout: Mapping[str, int] = field(default_factory=dict)

    @property
    def toml(self) -> str:
        top = f'batch = "pbs"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n'
        return f'{top}{self.settings}{FAST}\n[pbs]\nbin = "{self.site.bin}"\n'

    @property
    def environment(self) -> Mapping[str, str]:
        return {}

    def start(self, name: str, processors: int, walltime_s: int = 3600) -> None:
        """Queue somebody's job that ends when `end` is called."""
        script = f"#!/bin/sh\nuntil [ -e '{self.folder}/end-{name}' ]; do sleep 0.3; done\n"
        shape = f"select={processors}:ncpus=1" if self.site.dialect == "openpbs" else f"procs={processors}"
        words = ["-l", shape, "-l", f"walltime={walltime_s}", "-N", name, "-j", "oe", "-o", "/dev/null"]
        done = self.site.run("qsub", *words, stdin=script, cwd=self.folder, user="somebody")
        assert done.returncode == 0, done.stderr
        self.ids[name] = int(done.stdout.partition(".")[0])

    def state(self, name: str) -> str:
        return next(job.state for job in self.jobs() if job.id.partition(".")[0] == str(self.ids[name]))

    def end(self, name: str) -> None:
        (self.folder / f"end-{name}").touch()
        until(lambda: self.state(name) in "FC", f"{name} did not end")

    def fill(self) -> None:
        self.start("block", self.block, 600)
        for i, processors in enumerate(self.fillers):
            self.start(f"filler-{i}", processors)
        until(lambda: all(self.state(name) == "R" for name in self.ids), "the background did not start")

    def more(self) -> None:
        self.end(f"filler-{self.ended}")
        self.ended += 1

    def unblock(self) -> None:
        self.end("block")

    def jobs(self) -> list[BatchJob]:
        stored = json.loads((self.site.folder / "state.json").read_text())
        return [
            BatchJob(
                f"{job['number']}.head",
                tag_of(f":{job['error']}") or job["name"],
                job["state"],
                job["state"] not in "FC",
                job["status"],
            )
            for job in stored["jobs"]
        ]

    def close(self) -> None:
        for name in self.ids:
            (self.folder / f"end-{name}").touch()  # a lost mom's jobs end, too
        self.site.empty()


@dataclass
class RealPbsBackground(PbsBackground):
    """The same on a real one, whose nodes reach the daemon over the network of the cluster."""

    site: PbsCluster  # type: ignore[assignment]

    @property
    def toml(self) -> str:
        top = f'batch = "pbs"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n'
        top += f'listen = "{self.site.machine}:0"\n'
        return f'{top}{self.settings}{FAST}\n[pbs]\nbin = "{self.site.bin}"\n'

    def start(self, name: str, processors: int, walltime_s: int = 3600) -> None:
        script = f"#!/bin/sh\nuntil [ -e '{self.folder}/end-{name}' ]; do sleep 0.3; done\n"
        shape = f"select={processors}:ncpus=1"
        if self.site.dialect == "torque":  # Maui takes `procs` for one processor
            each = min(processors, self.site.cpus)
            shape = f"nodes={processors // each}:ppn={each}"
        words = ["-l", shape, "-l", f"walltime={walltime_s}", "-N", name, "-j", "oe", "-o", "/dev/null"]
        done = self.site.run("qsub", *words, stdin=script, cwd=self.folder)
        self.ids[name] = int(done.partition(".")[0])

    def jobs(self) -> list[BatchJob]:
        return [
            BatchJob(job.id, tag_of(job.error_path) or job.name, job.state, job.live, job.status)
            for job in self.site.listed()
        ]
