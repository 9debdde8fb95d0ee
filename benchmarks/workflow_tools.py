"""One workflow of four stages (4, 16, 4 and 16 processors) by several tools, on one private Slurm of 8 x 4.

    python benchmarks/workflow_tools.py [--tools DIR/bin] [--narrow 20] [--wide 10] [--only WAY ...] [--json FILE]

Each stage is one `srun` that sleeps on all of its processors and writes a file that the next one needs. Told are the
seconds from the call to the end of the last job, the core-seconds of all of Slurm's jobs by Slurm's own records, and
the lines that the user writes. `--tools` is the bin folder of an environment with snakemake, its plug-in
snakemake-executor-plugin-cluster-generic, and parsl. What is not there is passed over, and said. Nextflow is called
where it is on the PATH. The cluster is idle: what waits in a queue is not measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness import folder, machine
from stages import PATIENCE_S, Bench
from tests.fakes.daemon import until
from tests.integration.slurm_clusters import missing_slurm, slurm_cluster

WIDTHS = {"first": 4, "second": 16, "third": 4, "fourth": 16}


class Tools:
    """The ways, each of which answers the text that a user writes for it, and runs it in a folder."""

    def __init__(self, bench: Bench, bin: Path | None, narrow_s: float, wide_s: float) -> None:
        self.bench, self.bin = bench, bin
        self.seconds = {name: narrow_s if width == 4 else wide_s for name, width in WIDTHS.items()}
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(bench.cluster.conf),
            "EJB_SOCKET": str(bench.daemon.state / "ejbd.sock"),
            "PATH": os.pathsep.join(
                [*([str(bin)] if bin else []), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
        }

    def command(self, name: str, before: str | None) -> str:
        """A stage in bash."""
        needs = f"[ -e {before} ] && " if before else ""
        return f"{needs}srun -n {WIDTHS[name]} sleep {self.seconds[name]:g} && touch {name}"

    def commands(self) -> dict[str, str]:
        names = list(WIDTHS)
        return {name: self.command(name, names[at - 1] if at else None) for at, name in enumerate(names)}

    def run(self, where: Path, *words: str, state: Callable[[], str] | None = None) -> None:
        """`state`: what was submitted ends later."""
        done = subprocess.run(
            words, cwd=where, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if done.returncode == 0 and state is not None:
            until(lambda: state() in ("completed", "failed", "cancelled", "timeout"), "it did not end", PATIENCE_S)
        if done.returncode or not (where / "fourth").exists():
            raise RuntimeError(f"{words[0]}: {done.stdout[-1500:]} {done.stderr[-3000:]}")

    # -- Slurm and EJB ------------------------------------------------------------------------------------------------

    def one_job(self, where: Path) -> str:
        text = "#!/bin/bash -e\n#SBATCH -n 16 -t 10\n" + "\n".join(self.commands().values()) + "\n"
        (where / "one.sh").write_text(text)
        self.run(where, "sbatch", "--wait", "one.sh")
        return text

    def dependencies(self, where: Path) -> str:
        lines = ["#!/bin/bash -e"]
        for at, (name, command) in enumerate(self.commands().items()):
            after = " -d afterok:$id" if at else ""
            wait = " --wait" if name == "fourth" else ""
            lines.append(f"id=$(sbatch --parsable -n {WIDTHS[name]} -t 5{after}{wait} --wrap '{command}')")
        text = "\n".join(lines) + "\n"
        (where / "chain.sh").write_text(text)
        self.run(where, "bash", "chain.sh")
        return text

    def ejb_plan(self, where: Path) -> str:
        stages = "".join(
            f"    {name}: {{tasks: {WIDTHS[name]}, walltime: 5, command: '{command}'}}\n"
            for name, command in self.commands().items()
        )
        text = f"workflow:\n  elastic: off\n  stages:\n{stages}"
        (where / "plan.yaml").write_text(text)
        client = self.bench.client
        self.run(where, "ejb", "workflow", "submit", "plan.yaml", state=lambda: client.workflow("last")["state"])
        return text

    def ejb_stages(self, where: Path) -> str:
        lines = ["#!/bin/bash -e", "#SBATCH -n 16 -t 10", "#EJB stages engine=none", *self.commands().values()]
        text = "\n".join(lines) + "\n"
        (where / "staged.sh").write_text(text)
        self.run(where, "ejb", "submit", "staged.sh", state=lambda: self.bench.client.job("last").state)
        return text

    # -- workflow systems ---------------------------------------------------------------------------------------------

    def snakemake(self, where: Path) -> str:
        program = self.found("snakemake")
        rules = ["rule all:\n    input: 'fourth'\n"]
        before = ""
        for name in WIDTHS:
            needs = f"    input: '{before}'\n" if before else ""
            command = f"srun -n {{threads}} sleep {self.seconds[name]:g} && touch {{output}}"
            rules.append(
                f"rule {name}:\n{needs}    output: '{name}'\n    threads: {WIDTHS[name]}\n    shell: '{command}'\n"
            )
            before = name
        text = "\n".join(rules)
        (where / "Snakefile").write_text(text)
        submit = "sbatch --parsable -n {threads} -t 5 -o /dev/null"
        words = ["--executor", "cluster-generic", "--jobs", "4", "--cluster-generic-submit-cmd", submit]
        self.run(where, program, *words, "--latency-wait", "10")
        return text

    def make(self, where: Path) -> str:
        """GNU make, each recipe of which is a job of EJB's: make's shell is `ejb submit --wait --wrap`."""
        program = self.found("make")
        lines = ["SHELL := ejb", ".SHELLFLAGS = submit --quiet --wait --elastic off -n $(tasks) -t 5 --wrap"]
        before = ""
        for name in WIDTHS:
            command = f"srun -n $(tasks) sleep {self.seconds[name]:g} && touch $@"
            lines.append(f"{name}: tasks := {WIDTHS[name]}\n{name}: {before}\n\t{command}")
            before = name
        text = "\n".join(lines) + "\n"
        (where / "Makefile").write_text(text)
        self.run(where, program, "-j", "4", "fourth")
        return text

    def parsl(self, where: Path) -> str:
        python = Path(self.found("parsl-perf")).with_name("python")
        calls = ""
        before = ""
        for name in WIDTHS:
            needs = f", inputs=[{before}]" if before else ""
            calls += f"    {name} = stage({WIDTHS[name]}, {self.seconds[name]:g}, '{name}'{needs})\n"
            before = name
        text = (
            "import parsl\n"
            "from parsl.config import Config\n"
            "from parsl.executors import HighThroughputExecutor\n"
            "from parsl.launchers import SimpleLauncher\n"
            "from parsl.providers import SlurmProvider\n"
            "@parsl.bash_app\n"
            "def stage(width, seconds, name, inputs=()):\n"
            f"    return f'cd {where} && srun --overlap -c 1 -n {{width}} sleep {{seconds}} && touch {{name}}'\n"
            "provider = SlurmProvider(nodes_per_block=4, cores_per_node=4, init_blocks=1, max_blocks=1,\n"
            "    exclusive=False, walltime='00:10:00', launcher=SimpleLauncher(),\n"
            "    worker_init=f'export PATH={PATH}')\n"
            "executor = HighThroughputExecutor(address='127.0.0.1', max_workers_per_node=1, provider=provider)\n"
            "with parsl.load(Config(executors=[executor], strategy_period=1)):\n"
            f"{calls}    fourth.result()\n"
        )
        (where / "flow.py").write_text(f"import os\nPATH = os.environ['PATH']\n{text}")
        self.run(where, str(python), "flow.py")
        return text

    def nextflow(self, where: Path) -> str:
        program = self.found("nextflow")
        processes, calls, before = "", "", ""
        for name in WIDTHS:
            needs = f"  input:\n  path '{before}'\n" if before else ""
            command = f"srun -n {WIDTHS[name]} sleep {self.seconds[name]:g} && touch {name}"
            processes += (
                f"process {name} {{\n  clusterOptions '-n {WIDTHS[name]} -t 5'\n  publishDir '.', mode: 'copy'\n"
                f"{needs}  output:\n  path '{name}'\n  script:\n  \"{command}\"\n}}\n"
            )
            calls = f"{name}({calls})"
            before = name
        text = f"{processes}workflow {{ {calls} }}\n"
        (where / "main.nf").write_text(text)
        self.run(where, program, "run", "main.nf", "-process.executor", "slurm")
        return text

    def found(self, name: str) -> str:
        program = shutil.which(name, path=self.environment["PATH"])
        if program is None:
            raise FileNotFoundError(f"{name} is not there")
        return program


def jobs_behind(bench: Bench, last: int) -> tuple[dict[int, float], float]:
    """Core-seconds of each of Slurm's jobs behind a number, once all of them have ended; and the end of the last."""
    listing = bench.cluster.run("scontrol", "--oneliner", "show", "jobs")
    found, over_s = {}, 0.0
    for line in listing.splitlines():
        number = int((re.search(r"JobId=(\d+)", line) or [0, 0])[1])
        if number > last:
            bench.over_with(str(number))
            _, begin_s, end_s = bench.record(str(number))
            cpus = int((re.search(r"NumCPUs=(\d+)", line) or [0, 0])[1])
            over_s = max(over_s, end_s)
            found[number] = max(0.0, end_s - begin_s) * cpus if begin_s else 0.0
    return found, over_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, help="the bin folder of an environment with snakemake and parsl")
    parser.add_argument("--narrow", type=float, default=20.0, help="seconds of a stage on 4 processors")
    parser.add_argument("--wide", type=float, default=10.0, help="seconds of a stage on 16 processors")
    parser.add_argument("--only", nargs="+", help="these ways alone")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    options = parser.parse_args()
    if reason := missing_slurm():
        sys.exit(reason)
    print(machine())
    rows: dict[str, Any] = {}
    with folder() as where, slurm_cluster(8, 4) as cluster:
        bench = Bench(where, cluster, small=False)
        tools = Tools(bench, options.tools, options.narrow, options.wide)
        ways: Mapping[str, Callable[[Path], str]] = {
            "one job": tools.one_job,
            "sbatch --dependency": tools.dependencies,
            "ejb workflow": tools.ejb_plan,
            "#EJB stages": tools.ejb_stages,
            "snakemake": tools.snakemake,
            "make": tools.make,
            "parsl": tools.parsl,
            "nextflow": tools.nextflow,
        }
        last = 0
        try:
            for way in options.only or ways:
                begin_s = time.time()
                try:
                    text = ways[way](bench.fresh())
                except FileNotFoundError as missing:
                    print(f"{way}: not measured, {missing}")
                    continue
                jobs, over_s = jobs_behind(bench, last)
                took_s = over_s - begin_s
                last = max(jobs, default=last)
                lines = len([line for line in text.splitlines() if line.strip()])
                rows[way] = {"seconds": took_s, "core_s": sum(jobs.values()), "jobs": len(jobs), "lines": lines}
                print(
                    f"{way}: {took_s:.0f} s, {sum(jobs.values()):.0f} core-s in {len(jobs)} of Slurm's jobs, "
                    f"{lines} lines",
                    flush=True,
                )
        finally:
            bench.close()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
