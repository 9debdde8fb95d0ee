"""`ejb history`: what it prints, and what it says of mistakes."""

from __future__ import annotations

import json

import pytest

from tests.fakes.ejb_sim import ejb_command

LAW = "truncnorm:mu=8h,sigma=2h,low=0h,high=20h"


def test_a_sequence_needs_no_daemon() -> None:
    done = ejb_command("history", "sequence", "--law", LAW, "--points", "200", "--json")
    found = json.loads(done.stdout)
    assert [time / 3600 for time in found["sequence_s"]] == pytest.approx([10.8, 13.4, 15.4, 17.1, 18.7, 20.0])
    assert found["expected_cost_s"] / 3600 == pytest.approx(11.937461, abs=1e-6)
    table = ejb_command("history", "sequence", "--law", LAW, "--checkpoint", "9m", "--restart", "9m").stdout
    assert "6:57:00" in table and "expected cost 9:24:28" in table


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--law", "gamma:x=1"), "--law: 'gamma' is no law that is known here"),
        (("--law", LAW, "--zeta", "1"), "--zeta: zeta is at least 0 and below 1"),
        (("--law", LAW, "--zeta", "nan"), "--zeta: zeta is at least 0 and below 1"),
        (("--law", LAW, "--points", "0"), "--points: 1 to 2000 points"),
        (("--law", LAW, "--checkpoint", "-3"), "--checkpoint: '-3' is below 0"),
        (("--law", LAW, "--checkpoint", "3", "--zeta", ".1"), "do not go together"),
        (("--law", LAW, "--restart", "1h", "--limit", "1h"), "no reservation makes progress"),
        (("--law", LAW, "--limit", "0"), "--limit: a limit is above 0"),
    ],
)
def test_mistakes_are_told_in_a_sentence(words: tuple[str, ...], said: str) -> None:
    done = ejb_command("history", "sequence", *words, code=2)
    assert said in done.stderr and done.stdout == ""
