"""`python3 -I -S worker.pyz agent --subjob-dir DIR [--node NAME] [--processors N]`, a shim, or the PMI server.

Exit codes of `agent`: 0 asked to leave, 2 usage or unreadable subjob, 3 no longer wanted, 4 the parent died, 79 the
job's own script is to begin without a manager (`alone`), 128+signal.
"""

from __future__ import annotations

import os
import sys
from typing import Dict, List, NoReturn

USAGE = (
    "usage: worker.pyz agent --subjob-dir DIR [--node NAME] [--processors N] [--address IP] [--grace-s SECONDS]\n"
    "                        [--ending FILE] [--propagate LIMITS] [--propagate-nice yes|no] [--warns yes|no]\n"
    "       worker.pyz shim srun|mpirun|mpiexec|... ...\n"
    "       worker.pyz pmi --folder DIR --host ADDRESS|--fd NUMBER\n"
    "       worker.pyz sweep --job-dir DIR\n"
    "       worker.pyz alone --subjob-dir DIR [--path-first DIR] [--at-once yes]"
)


def _options(words: List[str], known: "tuple[str, ...]") -> Dict[str, str]:
    # argparse would cost a megabyte that stays resident as long as the worker does.
    options: Dict[str, str] = {}
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in known:
            _usage("unknown option %s" % name)
        if not equals:
            if not rest:
                _usage("%s needs a value" % name)
            value = rest.pop(0)
        options[name] = value
    return options


def _usage(message: str) -> NoReturn:
    sys.stderr.write("ejb worker: %s\n%s\n" % (message, USAGE))
    sys.exit(2)


def _agent(words: List[str]) -> int:
    from .linux import reset_signals
    from .settings import SettingsError, read_subjob

    reset_signals()  # before any thread: each has the mask of the one that starts it
    known = ("--subjob-dir", "--node", "--processors", "--address", "--grace-s", "--ending", "--propagate")
    options = _options(words, (*known, "--propagate-nice", "--warns"))
    if "--subjob-dir" not in options:
        _usage("--subjob-dir is missing")
    node = options.get("--node") or os.environ.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]
    try:
        given = options.get("--processors") or os.environ.get("SLURM_CPUS_ON_NODE")
        processors = int(given) if given else len(os.sched_getaffinity(0))
        grace_s = float(options.get("--grace-s", "1.5"))
    except ValueError as error:
        _usage(str(error))
    if processors < 1 or grace_s < 0:
        _usage("--processors must be at least 1 and --grace-s not negative")
    try:
        subjob = read_subjob(options["--subjob-dir"])
    except SettingsError as error:
        sys.stderr.write("ejb worker: %s\n" % error)
        return 2
    from .agent import Agent
    from .attributes import Propagation, parse_limits

    propagation = None
    if "--propagate" in options:
        try:
            limits = parse_limits(options["--propagate"])
        except ValueError as error:
            _usage("--propagate: %s is no resource limit" % error)
        propagation = Propagation(limits, options.get("--propagate-nice") == "yes")
    return Agent(
        subjob,
        node=node,
        processors=processors,
        address=options.get("--address", ""),
        grace_s=grace_s,
        ending=options.get("--ending", ""),
        propagation=propagation,
        warns=options.get("--warns") == "yes",
    ).run()


def _alone(words: List[str]) -> int:
    from .settings import SettingsError

    options = _options(words, ("--subjob-dir", "--path-first", "--at-once"))
    if "--subjob-dir" not in options:
        _usage("--subjob-dir is missing")
    from .alone import begin

    try:
        return begin(options["--subjob-dir"], options.get("--path-first", ""), options.get("--at-once") == "yes")
    except SettingsError as error:
        sys.stderr.write("ejb worker: %s\n" % error)
        return 2


def main() -> NoReturn:
    words = sys.argv[1:]
    if words[:1] == ["agent"]:
        code = _agent(words[1:])
        sys.stderr.flush()
        os._exit(code)  # everything is closed; what the interpreter would tidy up keeps processors from others
    if words[:1] == ["shim"] and len(words) > 1:
        from .shim import main as shim

        code = shim(words[1], words[2:])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the script waits for it, and the job's processors for the script
    if words[:1] == ["pmi"]:
        from .pmi.server import main as pmi

        options = _options(words[1:], ("--folder", "--host", "--fd"))
        if "--folder" not in options or ("--host" in options) == options.get("--fd", "").isdigit():
            _usage("--folder, and one of --host and --fd (a number) are needed")
        sys.exit(pmi(options["--folder"], options.get("--host"), int(options.get("--fd", "-1"))))
    if words[:1] == ["sweep"]:
        from .leftovers import end

        options = _options(words[1:], ("--job-dir",))
        if "--job-dir" not in options:
            _usage("--job-dir is missing")
        sys.exit(1 if end(options["--job-dir"]) else 0)
    if words[:1] == ["alone"]:
        sys.exit(_alone(words[1:]))
    _usage("agent, shim, pmi, sweep or alone is missing")


if __name__ == "__main__":
    main()
