"""What does a law from ten runs cost where no form fits: two clusters of run times, or some that fail early?

    python benchmarks/few_runs.py [--runs 10 20 40] [--seeds 20]

The ratio of what is asked for in expectation, over what the best sequence of the true law asks for. `forms alone`: with
no misfit noticed, so that the best form is taken however far it is from what was seen.
"""

from __future__ import annotations

import argparse
import math
import statistics
from unittest import mock

from ejbd.core.speculation import fitting
from ejbd.studies.speculative.fewruns import ODD, costs_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    for kind in ODD:
        for runs in options.runs:
            now = costs_of(kind, runs, options.seeds)
            with mock.patch.object(fitting, "_MISFIT", math.inf):
                forms = costs_of(kind, runs, options.seeds)
            told = "  ".join(
                f"{name} {statistics.mean(each):.2f} (worst {max(each):.2f})"
                for name, each in (("now", now), ("forms alone", forms))
            )
            print(f"{kind:<16}{runs:>4} runs  {told}")


if __name__ == "__main__":
    main()
