"""A script of four times the length takes about four times as long to read, whatever it holds; nobody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

import pytest

from ejbd.api.models import JobSubmission
from ejbd.api.submission import read_submission
from ejbd.errors import EjbError
from ejbd.manager.jobspec import JobRequest, read
from ejbd.manager.jobspec.directives import Word, parse_options, split_words
from ejbd.manager.jobspec.shell import look

pytestmark = pytest.mark.slow

SHORT = 12_000  # characters
QUADRATIC = 16  # what four times the length would cost a reader that looks back; a linear one takes 4


def _cost(work: Callable[[str], object], text: str) -> float:
    """Seconds of this thread's own processor time, the least of three: what else runs on the machine counts little."""
    costs = []
    for _ in range(3):
        begun = time.thread_time()
        with contextlib.suppress(EjbError):
            work(text)
        costs.append(time.thread_time() - begun)
    return min(costs)


def _grown(work: Callable[[str], object], piece: str, head: str) -> float:
    short, long = (head + piece * (length // len(piece)) for length in (SHORT, 4 * SHORT))
    return _cost(work, long) / max(_cost(work, short), 1e-4)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("piece", ["a", "\\a", "'a'", "''", "a ", '"', "a#", "'a b'\t"])
def test_a_directive_line_takes_no_longer_than_its_length(piece: str) -> None:
    assert _grown(lambda text: split_words(text, "line 2"), piece, " ") < QUADRATIC * 0.6


def test_a_cluster_of_letters_takes_no_longer_than_its_length() -> None:
    assert _grown(lambda text: list(parse_options([Word(text, "line 2")])), "H" * 100, "-") < QUADRATIC * 0.6


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("piece", "head"),
    [
        ("< ", "[[ "),
        ("a & ", "[[ "),
        ("=()", "a"),
        ("=''()", "a"),
        ("'a'\"b\"", ""),
        ("`a`", ""),
        ("<<a ", "cat "),
        ("1<a", ""),
        ("(a;", ""),
        ("{ a;", ""),
        ("srun a | ", ""),
        ("srun a & ", ""),
        ("f() ", ""),
        ("case a in a) ", ""),
        ('"$(a)"', ""),
        ("a ", "srun "),
        ("A=1 ", ""),
        ("env -i ", ""),
        ("\\\n", "srun a"),
        ("$'a\n'", ""),
        ("${a}", ""),
        ("srun a || ", ""),
        ("{ srun a || ", ""),
        ("if srun a; then ", ""),
        ("while srun a < b; do ", ""),
        ("cat | { srun a;", ""),
        ("(a=", "$("),
        ("\n\t", "$("),
        ("mpirun", "$"),
        ("A=srun; $A b;", ""),
        ("-n $A ", "srun "),
    ],
)
def test_a_script_takes_no_longer_than_its_length(piece: str, head: str) -> None:
    assert _grown(look, piece, "#!/bin/bash\n" + head) < QUADRATIC * 0.6


def test_nested_strings_are_not_copied_at_every_level() -> None:
    def script(levels: int) -> str:
        return '"$(' * levels + "a" * 100_000 + ')"' * levels

    assert _cost(look, script(200)) < 6 * _cost(look, script(2)) + 1e-3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("line", ["#SBATCH -J " + "a" * 400_000, "#SBATCH -" + "H" * 400_000, "[[ " + "< " * 200_000])
def test_400_kilobytes_of_script_are_read_at_once(line: str) -> None:
    text = f"#!/bin/bash\n#SBATCH -n 4 -t 5\n{line}\nsrun a\n"
    reader = threading.Thread(target=_reading, args=(text,), daemon=True)
    reader.start()
    reader.join(60)  # it took minutes, and takes a fraction of a second
    assert not reader.is_alive()


def _reading(text: str) -> None:
    with contextlib.suppress(EjbError):
        read(JobRequest(cwd="/", script=text))


def test_a_long_script_is_read_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[str] = []

    def watched(request: JobRequest) -> object:
        readers.append(threading.current_thread().name)
        return read(request)

    monkeypatch.setattr("ejbd.api.submission.read", watched)
    script = "#!/bin/bash\n#SBATCH -n 4 -t 5\n" + "# nothing\n" * 40_000
    asyncio.run(read_submission(JobSubmission(cwd="/", script=script), "ada"))
    assert readers and readers[0].startswith("submission-reader")


def test_a_thousand_refusals_are_told_in_a_short_answer() -> None:
    reading = read(JobRequest(cwd="/", script="#!/bin/bash\n#SBATCH -n 4 -t 5\n" + "srun a &\n" * 1000))
    with pytest.raises(EjbError) as caught:
        reading.elastic_spec()
    assert len(caught.value.details["also"]) == 21
    assert caught.value.details["also"][-1] == "and 979 more"


def test_a_script_too_long_to_be_read_is_passed_through() -> None:
    script = "#!/bin/bash\n#SBATCH -n 4 -t 5\nsrun ./a\n" + "x\n" * 4_000_000
    begun = time.thread_time()
    refusals = read(JobRequest(cwd="/", script=script, script_name="long")).refusals
    assert [(refusal.where, refusal.doubt) for refusal in refusals] == [("script", True)]
    assert time.thread_time() - begun < 5, "it was read all the same: half a minute"
