"""Memory as a bound of over-subscription in the simulator: by the log's fields, and by the live manager's rule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.bundling.parameters import BundlingParameters, Order, Rules, rules_of, rules_of_one
from ejbd.core.memory import NONE_FITS, ranks_by_memory
from ejbd.errors import EjbError
from ejbd.sim.elastic import held_processors
from ejbd.sim.engine import next_time, step
from ejbd.sim.memory import Memory, bounded
from ejbd.sim.own import run_own
from ejbd.sim.run import Policy, SimulationError, Ties, refuse_fault, run
from ejbd.sim.settings import Source, parse_setting, play
from ejbd.sim.swf import FIELDS, SwfLog, write_swf
from ejbd.sim.workload import Workload
from ejbd.sim.world import ELASTIC, FAULT, OUT_OF_MEMORY, RUNNING, new_world
from ejbd.wire.sizes import kilobytes
from tests.fakes.ejb_sim import ejb_sim
from tests.fakes.sim_worlds import Row, workload

PROCESSOR_KB = 512 * 1024
SETTINGS: list[dict[str, Any]] = [
    {},
    {"suspend": True, "order": Order.LEAST_WORK},
    {"suspend": True, "whole_slots": True, "act_in_move": True, "omax": 32, "lambda_s": 10.0},
]


def crowded(seed: int, count: int = 40) -> Workload:
    """Jobs of all widths, the ranks of which need between an eighth of a processor's memory and all of it."""
    dice = random.Random(seed)
    total, now = dice.choice([12, 32, 100]), 0.0
    rows: list[Row] = []
    for _ in range(count):
        now += dice.randint(1, 700)
        walltime = dice.randint(200, 20_000)
        rows.append((now, dice.randint(1, total), walltime, dice.randint(1, walltime)))
    needs = np.array([dice.choice([8, 5, 3, 2, 1]) for _ in rows], dtype=np.int64)
    return replace(workload(rows, total), memory_asked_kb=PROCESSOR_KB // needs)


def most_in_use_kb(load: Workload, parameters: BundlingParameters) -> int:
    """The most memory that the ranks on a processor of a subjob ever need, looked at after every event.

    Ranks are laid out as evenly as can be, so that some processor has their number over the processors, rounded up.
    """
    assert load.memory_asked_kb is not None
    w: Any = new_world(load.jobs, load.processors, np.full(len(load), ELASTIC), elastic_rows=len(load), plain=True)
    rules, most = rules_of(parameters), 0
    while next_time(w) < np.inf:
        step(w, int(Policy.EJB), int(Ties.PAPER), rules)
        refuse_fault(w)
        for job in range(len(load)):
            held = held_processors(w, job)
            if w.mode[job] == RUNNING and held:
                most = max(most, -(-w.processors[job] // held) * int(load.memory_asked_kb[job]))
    return most


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
def test_no_placement_needs_more_memory_than_its_processors_have(changes: dict[str, Any]) -> None:
    parameters = BundlingParameters(**changes)
    beyond = 0
    for seed in range(6):
        load = crowded(seed)
        assert most_in_use_kb(bounded(load, Memory(PROCESSOR_KB), parameters.omax), parameters) <= PROCESSOR_KB
        beyond += most_in_use_kb(load, parameters) > PROCESSOR_KB
    assert beyond == 6, "without the bound memory is exceeded on each of them"


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 64), st.integers(1, 64))
def test_as_many_ranks_as_the_memory_holds_and_not_one_more(rank: int, share: int, places: int, omax: int) -> None:
    most = ranks_by_memory(rank, share, share * places, omax)
    if rank > share * places:
        assert most == NONE_FITS
    elif rank > share:
        assert most == 1
    else:
        assert most * rank <= share and 1 <= most <= omax
        assert most == omax or (most + 1) * rank > share


def test_a_job_by_hand() -> None:
    """8 ranks on the 4 processors that are free until 1000: two a processor, if both find their memory."""
    rows: list[Row] = [(0, 6, 1000, 1000), (1, 8, 400, 400)]
    for rank_kb, start in ((PROCESSOR_KB // 2, 1), (PROCESSOR_KB // 2 + 1, 1000)):
        load = replace(workload(rows, 10), memory_asked_kb=np.array([1, rank_kb]))
        outcome = run(
            bounded(load, Memory(PROCESSOR_KB), 8),
            Policy.EJB,
            parameters=BundlingParameters(),
            plain=True,
            checking=True,
        )
        assert outcome.start[1] == start


def test_where_memory_is_plenty_nothing_is_changed_by_it() -> None:
    for seed in range(3):
        load = crowded(seed)
        free = run(load, Policy.EJB, min_processors=4, plain=True)
        plenty = run(bounded(load, Memory(PROCESSOR_KB * 64), 8), Policy.EJB, min_processors=4, plain=True)
        assert free.end.tolist() == plenty.end.tolist()


def test_the_engine_and_a_policy_that_is_asked_have_one_bound() -> None:
    for seed in range(3):
        load = bounded(crowded(seed), Memory(PROCESSOR_KB), 8)
        wide = load.jobs.processors >= 4
        parameters = BundlingParameters(suspend=True)
        asked = run_own(load, lambda question: question.answer(), candidates=wide, parameters=parameters)
        played = run(load, Policy.EJB, candidates=wide, parameters=parameters, plain=True)
        assert asked.end.tolist() == played.end.tolist()


def test_an_answer_that_memory_does_not_hold_is_refused() -> None:
    load = replace(workload([(0, 6, 1000, 1000), (1, 8, 400, 400)], 10), memory_asked_kb=np.full(2, PROCESSOR_KB))
    load = bounded(load, Memory(PROCESSOR_KB), 8)
    with pytest.raises(EjbError, match="the memory of a processor holds 1 of its ranks, and more would share one"):
        run_own(
            load, lambda question: replace(question, parameters=BundlingParameters()).answer(), candidates=[True, True]
        )


def test_checking_finds_a_placement_without_its_memory() -> None:
    load = crowded(3)
    tight = replace(load, jobs=load.jobs._replace(most_ranks=np.full(len(load), 2)))
    w: Any = new_world(tight.jobs, load.processors, np.full(len(load), ELASTIC), elastic_rows=len(load), plain=True)
    for job in range(len(load)):
        w.most_ranks[job] = 8
    rules = rules_of(BundlingParameters())
    from ejbd.sim.invariants import check

    while next_time(w) < np.inf and w.count[FAULT] == 0:
        step(w, int(Policy.EJB), int(Ties.PAPER), rules)
        w.most_ranks[:] = [1] * len(load)
        check(w, int(Policy.EJB), rules)
        w.most_ranks[:] = [8] * len(load)
    assert w.count[FAULT] == OUT_OF_MEMORY
    with pytest.raises(SimulationError, match="more ranks share a processor than its memory holds"):
        refuse_fault(w)


def test_the_rules_of_a_job_differ_in_nothing_but_o_max_and_what_is_known_of_runs() -> None:
    rules = rules_of(BundlingParameters(suspend=True, order=Order.LEAST_WORK, omax=16, lambda_s=7.0))
    names = Rules._fields  # type: ignore[attr-defined]
    for omax, found in ((3, 3), (16, 16), (99, 16)):
        bound = rules_of_one(rules, omax, 1234.0)
        own = {"omax": found, "runs_s": 1234.0}
        assert {name: getattr(bound, name) for name in names} == {
            name: own.get(name, getattr(rules, name)) for name in names
        }


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """8 processors; 4 are busy, then come: 256 MB requested, 512 MB used, nothing known, more than a processor has."""
    rows = np.full((5, len(FIELDS)), -1.0)
    for at, (submit, width, seconds, used, asked) in enumerate(
        [(0, 4, 5000, 1, 1), (1, 8, 600, 9_999, 262_144), (2, 8, 600, 524_288, -1), (3, 8, 600, -1, 0),
         (4, 8, 600, -1, 600_000)]
    ):  # fmt: skip
        rows[at, :5] = [at + 1, submit, 0, seconds, width]
        rows[at, 6:11] = [used, width, seconds, asked, 1]
    path = tmp_path / "memory.swf"
    write_swf(path, SwfLog(rows, (("MaxProcs", "8"),)))
    yield path


def started_before_the_others_end(log: Path, words: str) -> list[int]:
    """Numbers of the jobs that ran before the first had ended: on 4 processors, two ranks on each."""
    workload, outcome, _ = play(Source(log), parse_setting(f"ejb:suspend,{words}"))
    return [int(job) for job, start in zip(workload.jobs.id[1:], outcome.start[1:], strict=True) if start < 5000]


def test_fields_of_the_log_bound_its_jobs(log: Path) -> None:
    """What was requested comes before what was used; who says nothing has all of a processor, or the default."""
    assert started_before_the_others_end(log, "memory=off") == [2, 3, 4, 5]
    assert started_before_the_others_end(log, "memory=512M") == [2]
    assert started_before_the_others_end(log, "memory=512M,default-memory=200M") == [2, 4]
    assert started_before_the_others_end(log, "memory=1G") == [2, 3]
    assert started_before_the_others_end(log, "memory=2G,default-memory=all") == [2, 3, 5]


def test_what_is_made_of_the_fields_is_told_with_the_lines(log: Path) -> None:
    workload, outcome, report = play(Source(log), parse_setting("ejb:memory=512M"))
    told = [str(one) for one in workload.odd]
    assert told == [
        "1 row (line 4): no memory requested: what was used is taken",
        "1 row (line 5): no memory known: all that a processor has is taken",
        "1 row (line 6): more memory than the 524,288 KB of a processor: stays rigid",
    ]
    assert [row["what"] for row in report["rows"]["told"]] == [one.what for one in workload.odd]
    assert report["parameters"]["memory_kb"] == 524_288 and report["parameters"]["default_memory_kb"] is None
    assert outcome.elastic.tolist() == [0, 1, 1, 1, 0]
    easy, _, plain = play(Source(log), parse_setting("easy:memory=512M"))
    assert easy.odd == () and "memory_kb" not in plain["parameters"], "the scheduler itself is not bounded"


def test_mistakes_are_told_in_a_sentence(log: Path, tmp_path: Path) -> None:
    without = tmp_path / "without.swf"
    without.write_text("; MaxProcs: 8\n1 0 0 10 8 -1 -1 8 10 -1 1 1 1 1 1 1 -1 -1\n")
    said = ejb_sim("run", str(without), "--memory", "1G", code=2).stderr
    assert "no row of without says what memory a job asked for or used (fields 10 and 7)" in said
    for size in ("12Q", "0", "-1G", ""):
        said = ejb_sim("run", str(log), f"--memory={size}", code=2).stderr
        assert "is not a size of memory" in said and "such as 4G, 500M or 2000" in said
    said = ejb_sim("run", str(log), "--default-memory", "1G", code=2).stderr
    assert "--default-memory says nothing without --memory" in said


def test_the_commands_take_it(log: Path, tmp_path: Path) -> None:
    ejb_sim("compare", str(log), "easy", "ejb", "ejb:memory=off", "--memory", "512M")
    swept = ejb_sim("sweep", str(log), "--out", str(tmp_path / "out"), "--vary", "memory=off,512M,2G", "--trim", "none")
    assert [word in swept.stdout for word in ("memory=512M", "memory=2G")] == [True, True]


@pytest.mark.parametrize(
    ("text", "found"),
    [("4G", 4 * 1024**2), ("500M", 512_000), ("2000", 2_048_000), ("64kb", 64), ("1TB", 1024**3), ("G", None),
     ("1.5G", None), ("", None), ("5P", None), ("-1M", None)],
)  # fmt: skip
def test_sizes_are_read_as_sbatch_reads_them(text: str, found: int | None) -> None:
    assert kilobytes(text) == found
