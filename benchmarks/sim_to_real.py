#!/usr/bin/env python3
"""What EJB gains on a real Slurm, and how far its simulation is off: two windows of four logs, EASY and EJB by turns.

    benchmarks/sim_to_real.py TRACES OUT [--at-once 8] [--rounds 2] [--only kth-1,ctc-2] [--scale 1/75] [--again]

The windows are those that `ejb sim live --pick` tells: by a rule, before anything has been played. By default it is
the first of each half of a log; `--only` names others, too: `-3` and `-4` are the last of each half. Each play is on a
Slurm of its own (scripts/cluster), which has as many virtual processors as the log's cluster; BLUE, which gives out
nodes of 8 processors, has its nodes. Each play's JSON is put into OUT when it is over; what is there already is not
played again, so that an interrupted run goes on. A play that fails is told, the others go on, and the exit code is 1;
what it wrote stays (OUT/*.log and, with the daemon's database, OUT/*.dir).
Then the tables, and OUT/sim-to-real.png, .svg and .pdf. `--again` makes only the simulations anew, from the same plays.
`--free` tells beside them what EJB's decisions alone would change, and what they would without turns (or with them).
`--scales` tells what the simulation makes of the windows at other scales, with the costs that were measured.

The logs are those of the Parallel Workloads Archive, by their names there (TRACES/KTH-SP2-1996-2.swf.xz ...).
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

from ejbd.studies.live.comparison import pooled
from ejbd.studies.live.figure import draw
from ejbd.studies.live.pairs import GROUPS, LEVEL, Pair, change_percent, errors, interval, turnarounds
from ejbd.studies.live.run import simulated_again
from harness import ROOT, machine

SCALE = "1/75"  # a move of 0.8 s is a minute of the log
LAMBDA_S = 0.8  # what decisions count with until moves have been measured
PATIENCE_S = 1800.0  # at least, from the last submission on; more where the scale is larger
END_S = 90.0  # a play may take so long to end when it is told to
LOOK_S = 0.5
APART_S = 20.0  # from the start of a cluster to that of the next: each loads the machine, and the plays that run
BEGINNING = threading.Lock()
STOPPING = threading.Event()  # INT and TERM: plays that run are ended, with their clusters; the others are not begun
AIMS = {"all": -10.0, "elastic": -20.0, "non_elastic": 0.0}
ERROR_AIM = 7.0
NAMES = {"all": "all jobs", "elastic": "elastic", "non_elastic": "others"}


@dataclass(frozen=True, slots=True)
class Log:
    """`nodes` x `cpus` is the Slurm that it is played on; `words` are those of `ejb sim live`. `within_h`: in so many
    hours of the log its windows are over under EASY."""

    file: str
    nodes: int
    cpus: int
    words: tuple[str, ...] = ()
    within_h: float = 24.0


LOGS = {
    "kth": Log("KTH-SP2-1996-2.swf.xz", 10, 10),
    "ctc": Log("CTC-SP2-1996-3.1-cln.rebuilt.swf.xz", 13, 26),
    "sdsc": Log("SDSC-SP2-1998.rebuilt.swf.xz", 8, 16, ("--procs=128",)),
    "blue": Log("SDSC-BLUE-2000-4.1-cln.swf.xz", 9, 16),
    # It is made up, and busier than full: nothing in it is over within a day, and its second half has no window.
    "lublin": Log("lublin_256.swf.xz", 16, 16, (), 48.0),
}
FIRST = [f"{log}-{window}" for window in (1, 2) for log in ("kth", "ctc", "sdsc", "blue")]
NEW = ["lublin-1", "lublin-3", "kth-3", "ctc-3", "sdsc-3", "blue-3", "kth-4", "ctc-4", "sdsc-4", "blue-4"]
WINDOWS = {name: (name[:-2], int(name[-1])) for name in FIRST + NEW}
POLICIES = ("easy", "ejb")


@dataclass(frozen=True, slots=True)
class Play:
    window: str
    policy: str
    round: int

    def file(self, out: Path) -> Path:
        return out / f"{self.window}-{self.policy}-{self.round}.json"


def plays(windows: list[str], rounds: int) -> list[Play]:
    """EASY and EJB by turns; the second time EJB is first."""
    found = []
    for number in range(1, rounds + 1):
        turn = POLICIES if number % 2 else POLICIES[::-1]
        found += [Play(window, policy, number) for window in windows for policy in turn]
    return found


def ended(argv: list[str], sink: IO[bytes], limit_s: float) -> int:
    """The exit code of a command; one that is late, or unwanted since this program was told to stop, is ended."""
    process = subprocess.Popen(argv, cwd=ROOT, stdout=sink, stderr=sink, start_new_session=True)
    until = time.monotonic() + limit_s
    told = False
    while process.poll() is None:
        if not told and (STOPPING.is_set() or time.monotonic() > until):
            process.terminate()  # it cancels its jobs, and ends its daemon
            told, until = True, time.monotonic() + END_S
        elif told and time.monotonic() > until:
            process.kill()
        time.sleep(LOOK_S)
    return process.returncode


def stop(signum: int, frame: object) -> None:
    STOPPING.set()


def run_play(traces: Path, out: Path, scale: str, play: Play) -> str:
    """One play on a cluster of its own; why it failed, or ""."""
    if STOPPING.is_set():
        return "it was not begun"
    log = LOGS[WINDOWS[play.window][0]]
    cluster = [sys.executable, str(ROOT / "scripts" / "cluster")]
    part, said, kept = (play.file(out).with_suffix(suffix) for suffix in (".part", ".log", ".dir"))
    shutil.rmtree(kept, ignore_errors=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ejb-play-", ignore_cleanup_errors=True) as folder, said.open("wb") as sink:
        try:
            up = [*cluster, "up", folder, f"--nodes={log.nodes}", f"--cpus={log.cpus}", "--profile=easy"]
            with BEGINNING:
                subprocess.run(up, stdout=sink, stderr=sink, timeout=300, check=True, start_new_session=True)
                STOPPING.wait(APART_S)
            argv = [sys.executable, "-m", "ejbd.cli.main", "sim", "live", str(traces / log.file), *log.words]
            argv += [f"--scale={scale}", f"--window={WINDOWS[play.window][1]}", f"--policy={play.policy}"]
            argv += [f"--lambda={LAMBDA_S}", "--cluster", folder, "--dir", str(kept), "--json", str(part)]
            patience_s = max(PATIENCE_S, 1.2 * 3600.0 * log.within_h * float(Fraction(scale)))
            argv += [f"--within={log.within_h:g}", f"--patience={patience_s:.0f}"]
            code = ended(argv, sink, 2 * patience_s)
            if code:
                lines = said.read_text(errors="replace").strip().splitlines()
                if STOPPING.is_set():
                    return "it was stopped"
                return f"it ended with {code}: {lines[-1] if lines else 'no word'} (see {said})"
            part.replace(play.file(out))
        except (subprocess.SubprocessError, OSError) as error:
            return f"{error} (see {said})"
        finally:
            down = [*cluster, "down", folder]
            with suppress(subprocess.SubprocessError):
                subprocess.run(down, stdout=sink, stderr=sink, timeout=300, check=False, start_new_session=True)
    said.unlink()
    shutil.rmtree(kept, ignore_errors=True)
    print(f"{play.window} {play.policy} {play.round}: {time.monotonic() - begun:.0f} s", flush=True)
    return ""


def run_missing(traces: Path, out: Path, scale: str, wanted: list[Play], at_once: int) -> bool:
    """Play what has no JSON yet; whether all is there then."""
    missing = [play for play in wanted if not play.file(out).is_file()]
    print(f"{len(wanted)} plays, {len(wanted) - len(missing)} of them done before; {at_once} at once", flush=True)
    whole = True
    with ThreadPoolExecutor(at_once) as pool:
        for play, why in zip(missing, pool.map(lambda one: run_play(traces, out, scale, one), missing), strict=True):
            if why:
                whole = False
                print(f"{play.window} {play.policy} {play.round} failed: {why}", file=sys.stderr, flush=True)
    return whole


def simulate_again(traces: Path, out: Path, wanted: list[Play]) -> None:
    for play in wanted:
        if play.file(out).is_file():
            log = LOGS[WINDOWS[play.window][0]]
            told = simulated_again(json.loads(play.file(out).read_text()), traces / log.file)
            part = play.file(out).with_suffix(".part")
            part.write_text(json.dumps(told, indent=1) + "\n")
            part.replace(play.file(out))


def tell_free(pairs: list[Pair], traces: Path) -> None:
    """What EJB would change if starts and ends of its jobs cost what they cost under EASY: its decisions alone.

    And as measured, but with turns where it was played without them, and without where it was played with them.
    """
    print(
        "\nsimulated change, as measured; with EASY's costs of starts and ends; as measured, turns switched: all jobs,"
    )
    print("elastic, others (%)")
    made: tuple[list[Pair], ...] = ([], [], [])
    for pair in pairs:
        trace = traces / LOGS[pair.name.rsplit("-", 1)[0]].file
        paid, costs = pair.ejb["overheads"], pair.easy["overheads"]
        free = {**costs, "elastic_arrival_s": costs["arrival_s"], "start_up_s": 0.0, "giving_back_s": 0.0}
        free["move_s"] = paid["move_s"]
        given = pair.ejb["parameters"]
        switched = {**given, "j0_in_turn": not given.get("j0_in_turn", False)}
        for again, overheads, parameters in zip(made, (paid, free, paid), (given, given, switched), strict=True):
            told = simulated_again({**pair.ejb, "overheads": overheads, "parameters": parameters}, trace)
            again.append(Pair(pair.name, pair.easy, told))
        print(" ".join([f"{pair.name:10}", *(f"{mean_changes(again[-1:]):24}" for again in made)]), flush=True)
    print(" ".join([f"{'all':10}", *(f"{mean_changes(again):24}" for again in made)]), flush=True)


def tell_scales(pairs: list[Pair], traces: Path, scales: list[str]) -> None:
    """What is simulated where times are not as short beside what starts, moves and a minute of walltime take."""
    print(f"\nsimulated change, all jobs, elastic, others (%), at the scales {', '.join(scales)}")
    made: dict[str, list[Pair]] = {scale: [] for scale in scales}
    for pair in pairs:
        trace = traces / LOGS[pair.name.rsplit("-", 1)[0]].file
        for scale, again in made.items():
            both = (simulated_again(play, trace, float(Fraction(scale))) for play in (pair.easy, pair.ejb))
            again.append(Pair(pair.name, *both))
        print(" ".join([f"{pair.name:10}", *(f"{mean_changes(again[-1:]):24}" for again in made.values())]), flush=True)
    print(" ".join([f"{'all':10}", *(f"{mean_changes(again):24}" for again in made.values())]), flush=True)


def mean_changes(pairs: list[Pair]) -> str:
    """Of each group the change of the simulated mean turnaround of all jobs, over all simulations, in per cent."""
    found = []
    for group in GROUPS:
        there = [pair for pair in pairs if group in pair.ejb]
        if there:
            easy, ejb = (
                sum(one[group]["jobs"] * one[group]["simulated"]["mean_turnaround_s"] for one in plays)
                for plays in ([pair.easy for pair in there], [pair.ejb for pair in there])
            )
            found.append(f"{100 * (ejb / easy - 1):+6.1f}")
    return " ".join(found)


def pairs_of(told: Mapping[Play, Any], windows: list[str], rounds: int) -> list[Pair]:
    found = []
    for window in windows:
        for number in range(1, rounds + 1):
            easy, ejb = (told.get(Play(window, policy, number)) for policy in POLICIES)
            if easy is not None and ejb is not None:
                found.append(Pair(f"{window} {number}", easy, ejb))
    return found


def mean(play: Mapping[str, Any], group: str, world: str) -> str:
    values = turnarounds(play, group, world)
    return f"{values.mean():6.1f}" if values.size else "     -"


def tell(pairs: list[Pair]) -> None:
    print(
        f"\n{'mean turnaround (s)':20} {'jobs':>5} {'EASY':>6} {'EJB':>6} {'change':>8} {'simulated':>10}  moves  load"
    )
    for pair in pairs:
        for group in GROUPS:
            if group not in pair.ejb:
                continue
            live, simulated = (change_percent([pair], group, world) for world in ("live", "simulated"))
            name = pair.name if group == "all" else f"  {NAMES[group]}"
            row = f"{name:20} {pair.ejb[group]['jobs']:5} {mean(pair.easy, group, 'live')} "
            row += f"{mean(pair.ejb, group, 'live')} {live:+7.1f}% {simulated:+9.1f}%"
            if group == "all":
                loads = [one["load_average"]["mean"] for one in (pair.easy, pair.ejb)]
                row += f"  {pair.ejb['moves']['live']:5}  {loads[0]:.1f} {loads[1]:.1f}"
            print(row)
    print("\nerror of the simulated mean turnaround (%), EASY and EJB: all jobs, elastic, others; measured costs (s)")
    for pair in pairs:
        shown = []
        for play in (pair.easy, pair.ejb):
            shown.append(" ".join(f"{value:+6.1f}" for value in errors(play).values() if value is not None))
        costs = pair.ejb["overheads"]
        measured = " ".join(f"{key.removesuffix('_s')} {v:.2f}" for key, v in costs.items() if v is not None)
        print(f"{pair.name:10} {shown[0]:24} {shown[1]:24} {measured}")
    print(f"\npooled over {len(pairs)} pairs of plays: change of the mean turnaround from EASY to EJB")
    for group in GROUPS:
        low, high = interval(pairs, group)
        found = change_percent(pairs, group)
        aim = "met" if found <= AIMS[group] else "missed"
        print(
            f"{NAMES[group]:10} {found:+6.1f} % ({low:+.1f} to {high:+.1f} %, {LEVEL:.0f} %); simulated "
            f"{change_percent(pairs, group, 'simulated'):+.1f} %; aim at most {AIMS[group]:+.0f} %: {aim}"
        )
    off = [v for pair in pairs for play in (pair.easy, pair.ejb) for v in errors(play).values() if v is not None]
    print(f"errors within {ERROR_AIM:g} %: {sum(abs(v) < ERROR_AIM for v in off)} of {len(off)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--at-once", type=int, default=8, help="so many plays at the same time")
    parser.add_argument("--rounds", type=int, default=2, help="how often each is played")
    parser.add_argument("--only", default=",".join(FIRST), help="windows, by their names: kth-1,kth-2,...")
    parser.add_argument("--scale", default=SCALE, help="all times are multiplied by this")
    parser.add_argument("--again", action="store_true", help="play nothing; make the simulations anew")
    parser.add_argument("--free", action="store_true", help="also simulate EJB with EASY's costs of starts and ends")
    parser.add_argument("--scales", default="", help="also simulate the plays at these: 1/75,1/30,...")
    args = parser.parse_args()
    windows = args.only.split(",")
    if unknown := [name for name in windows if name not in WINDOWS]:
        parser.error(f"--only {','.join(unknown)}: the windows are {', '.join(WINDOWS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    wanted = plays(windows, args.rounds)
    whole = True
    if args.again:
        simulate_again(args.traces, args.out, wanted)
    else:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        print(machine(), flush=True)
        whole = run_missing(args.traces, args.out, args.scale, wanted, args.at_once)
    told = {play: json.loads(play.file(args.out).read_text()) for play in wanted if play.file(args.out).is_file()}
    pairs = pairs_of(told, windows, args.rounds)
    if pairs:
        tell(pairs)
        if args.free:
            tell_free(pairs, args.traces)
        if args.scales:
            tell_scales(pairs, args.traces, args.scales.split(","))
        for path in draw(args.out / "sim-to-real", pooled(list(told.values()))):
            print(path)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
