"""Ranks that hang after a restart: which are told, and which only wait as they did before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workers.ejb_worker.stillness import LOOK_S, Signs, Stillness, keep, kept, signs_of

STILL = Signs(100, 10, False)


def looks(watched: Stillness, signs: list[Signs], step_s: float = LOOK_S) -> list[tuple[int, float] | None]:
    return [watched.look(step_s * number, {0: one}) for number, one in enumerate(signs)]


def test_a_rank_that_got_on_before_and_stands_still_since_its_restart_is_told() -> None:
    found = looks(Stillness({0: 0.0}), [STILL] * 8)
    assert found[:6] == [None] * 6 and found[6] == (0, 60.0)


def test_a_rank_of_which_nothing_is_known_is_not_told() -> None:
    assert looks(Stillness({}), [STILL] * 30) == [None] * 30


def test_a_program_that_waits_for_minutes_now_and_then_may_do_so_after_a_restart() -> None:
    assert looks(Stillness({0: 40.0}), [STILL] * 16) == [None] * 16
    assert looks(Stillness({0: 40.0}), [STILL] * 17)[-1] == (0, 160.0)


def test_a_wait_in_which_the_checkpoint_comes_is_known_after_it() -> None:
    """A program that had waited for 50 s, and was moved in the middle of that, was told after 60 s more of it."""
    watched = Stillness({})
    looks(watched, [STILL, STILL._replace(ticks=101), *[STILL._replace(ticks=101)] * 5])
    assert watched.longest == {0: 50.0}


@pytest.mark.parametrize("sign", [STILL._replace(ticks=101), STILL._replace(written=11), STILL._replace(awake=True)])
def test_any_sign_of_life_begins_the_wait_anew(sign: Signs) -> None:
    watched = Stillness({0: 0.0})
    assert looks(watched, [*[STILL] * 6, sign, *[sign._replace(awake=False)] * 5]) == [None] * 12
    assert watched.longest[0] >= 50.0


def test_the_time_in_which_the_worker_itself_was_stopped_does_not_count() -> None:
    watched = Stillness({0: 0.0})
    assert watched.look(0.0, {0: STILL}) is None and watched.look(3600.0, {0: STILL}) is None


def test_what_is_known_before_a_checkpoint_is_kept_beside_it(tmp_path: Path) -> None:
    assert kept(str(tmp_path / "nowhere")) == {}
    keep(str(tmp_path), "n1-17", {0: 0.0, 2: 30.0})
    keep(str(tmp_path), "n2-18", {1: 1.5})
    assert kept(str(tmp_path)) == {0: 0.0, 1: 1.5, 2: 30.0}
    (tmp_path / "stillness-n3.json").write_text("torn {")
    assert kept(str(tmp_path)) == {}


def test_what_a_process_does_is_seen_in_it(tmp_path: Path) -> None:
    words = "import time; print('ready', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        output = tmp_path / "0.out"
        ranks = {0: (child.pid, [str(output)])}
        until = time.monotonic() + 20
        while signs_of(ranks)[0].awake and time.monotonic() < until:
            time.sleep(0.01)
        asleep = signs_of(ranks)[0]
        assert asleep == signs_of(ranks)[0] and not asleep.awake
        output.write_text("more")
        assert signs_of(ranks)[0].written == 4
        os.kill(child.pid, signal.SIGSTOP)
        while not signs_of(ranks)[0].awake and time.monotonic() < until:
            time.sleep(0.01)
        assert signs_of(ranks)[0].awake, "what is stopped does not hang"
        child.kill()
