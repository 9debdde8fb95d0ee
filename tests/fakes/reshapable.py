"""A program that checkpoints itself and goes on at another width: what profiles are tried with. Standard library only.

    reshapable.py STEPS SECONDS_A_STEP [WORD=VALUE ...]

A step takes SECONDS_A_STEP / EJB_SIZE. At SIGUSR1, or where a file STOP is there, it writes state.json and ends. Words:
`code` (the exit code then: 85), `spoils` (at this width it changes its state and fails), `hangs` (after its state is
written it goes on for so many seconds), `silent` (it hears nothing), `ends` (it prints `wall` and ends at that step).

Of several ranks (`EJB_RANK`) the first does the work and has the state, as fast as all of them would.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    steps, second = int(sys.argv[1]), float(sys.argv[2])
    words = dict(word.split("=", 1) for word in sys.argv[3:] if "=" in word)
    size, told = int(os.environ.get("EJB_SIZE", "1")), []
    state = Path("state.json")
    rank = int(os.environ.get("EJB_RANK", "0"))
    signal.signal(signal.SIGUSR1, lambda *_: None if "silent" in words else told.append(1))
    while rank:
        if told or Path("STOP").exists():
            return int(words.get("code", "85"))
        if Path("result.txt").exists():
            return 0
        time.sleep(0.02)
    step, total = 0, 0
    if "EJB_RESTART_DIR" in os.environ:
        if words.get("spoils") == str(size):
            state.write_text("spoiled")
            print("Error in routine davcio (10)")
            return 1
        step, total = json.loads(state.read_text())
    print(f"steps {steps}", flush=True)
    while step < steps:
        if told or Path("STOP").exists():
            state.with_suffix(".tmp").write_text(json.dumps([step, total]))
            state.with_suffix(".tmp").replace(state)
            print(f"stopped after step {step}", flush=True)
            time.sleep(float(words.get("hangs", "0")))
            return int(words.get("code", "85"))
        time.sleep(second / size)
        step += 1
        total = (31 * total + step) % 1_000_003
        print(f"step {step}", flush=True)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # one that comes while the interpreter ends must not kill
    Path("result.txt").write_text(f"{total}\n")
    print(f"total is {total}\ndone at step {step}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
