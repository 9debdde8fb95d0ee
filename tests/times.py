"""Where the time of a run goes: the files whose tests took longest, all of their phases together."""

from __future__ import annotations

from collections import Counter

import pytest

MOST = 20
LEAST_S = 10.0


def by_file(terminalreporter: pytest.TerminalReporter) -> list[str]:
    """One line a file, the longest first, with its tests. Processes run beside each other: the sums exceed the run."""
    seconds: Counter[str] = Counter()
    tests: dict[str, set[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                seconds[file] += report.duration  # type: ignore[assignment]
                tests.setdefault(file, set()).add(report.nodeid)
    longest = [(file, spent) for file, spent in seconds.most_common(MOST) if spent >= LEAST_S]
    return [f"{spent:6.0f} s  {len(tests[file]):4} tests  {file}" for file, spent in longest]
