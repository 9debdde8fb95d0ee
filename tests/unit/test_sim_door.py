"""The simulator from Python, and which jobs are elastic: what docs/simulator.md promises to a researcher."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ejbd.sim
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.errors import EjbError
from ejbd.sim import Choice, Decision, DecisionKind, Question, Situation, SubjobRequest, load, play
from ejbd.sim.models import Model, generate
from ejbd.sim.swf import write_swf
from tests.fakes.ejb_sim import ejb_sim
from tests.unit.test_sim_elastic import BEYOND, busy

DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    made = generate(Model.UNIFORM, jobs=150, processors=32, seed=3, load=1.1)
    made.rows[:, 11] = np.arange(150) % 7
    path = tmp_path / "small.swf"
    write_swf(path, made)
    return path


@pytest.mark.sampled(3)
@pytest.mark.parametrize("changes", BEYOND[:8], ids=str)
def test_asking_a_function_that_answers_as_ejb_does_is_ejb(changes: dict[str, Any]) -> None:
    parameters = BundlingParameters(**changes)
    asked = 0

    def same(question: Question) -> Decision:
        nonlocal asked
        asked += 1
        return question.answer()

    for seed in range(4):
        workload = busy(seed)
        wide = workload.jobs.processors >= 4
        own = play(workload, same, candidates=wide, parameters=parameters, checking=True)
        ejb = play(workload, "ejb", candidates=wide, parameters=parameters)
        assert own.end.tolist() == ejb.end.tolist()
        assert own.outcome.used.tolist() == ejb.outcome.used.tolist()
        assert own.outcome.moves.tolist() == ejb.outcome.moves.tolist()
    assert asked > 100


def never(question: Question) -> Decision:
    if question.situation is Situation.PLACEHOLDER_STARTED:
        return question.answer()
    return Decision(DecisionKind.NOTHING, question.state.job, question.now_s, "never")


def test_a_policy_that_takes_nothing_is_easy() -> None:
    workload = busy(2)
    assert play(workload, never).end.tolist() == play(workload, "easy").end.tolist()


def wants(processors: int, length_s: float, kind: DecisionKind = DecisionKind.START) -> Any:
    def policy(question: Question) -> Decision:
        if question.situation is Situation.PLACEHOLDER_STARTED:
            return question.answer()
        request = SubjobRequest(processors, length_s, 0)
        return Decision(kind, question.state.job, question.now_s, "mine", (request,))

    return policy


def too_long(question: Question) -> Decision:
    """All of the slot that ends first, a second longer than it lasts."""
    last = question.slots[-1] if question.slots else None
    if question.situation is not Situation.WAIT or last is None or np.isinf(last.duration_s):
        return never(question)
    request = SubjobRequest(min(last.processors, question.state.processes), last.duration_s + 1, 0)
    return Decision(DecisionKind.START, question.state.job, question.now_s, "mine", (request,))


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (wants(33, 10.0), "more processors than its"),
        (wants(1, float("inf")), "are no subjob"),
        (wants(0, 10.0), "are no subjob"),
        (too_long, "no slot lasts longer|processors asked for beyond"),
        (wants(1, 10.0, DecisionKind.EXPAND), "only start may have"),
        (lambda question: replace(question.answer(), kind=DecisionKind.KEEP_SUBJOBS), "no answer to a J0|has requests"),
    ],
)
def test_an_answer_that_cannot_be_carried_out_is_refused_in_a_sentence(policy: Any, why: str) -> None:
    with pytest.raises(EjbError, match=rf"the policy's answer about job \d+ at .* cannot be carried out: .*({why})"):
        play(busy(2), policy, candidates=np.full(60, True))


def test_what_is_not_known_is_refused_with_what_is(log: Path) -> None:
    with pytest.raises(EjbError, match="no policy is called sjf") as refusal:
        play(load(log), "sjf")
    assert "easy, conservative" in refusal.value.sentence()
    with pytest.raises(EjbError, match="3 flags for 150 jobs"):
        play(load(log), candidates=[True] * 3)


def test_arrays_are_in_the_order_of_submission_and_a_frame_has_them_by_name(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = play(load(log), "ejb")
    columns = result.columns()
    assert (np.diff(columns["submit_s"]) >= 0).all()
    assert (columns["wait_s"] == result.start - result.submit).all()
    assert columns["user"].tolist() == [number % 7 for number in range(150)]
    assert result.means(result.elastic).jobs == int(result.elastic.sum()) > 10
    assert 0 < result.figures()["utilization"] <= 1
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    assert list(result.frame()) == list(columns)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EjbError, match="needs pandas"):
        result.frame()


def test_the_example_in_the_documentation_runs(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    monkeypatch.chdir(log.parent)
    exec(compile(example, "docs/simulator.md", "exec"), {})
    told = capsys.readouterr().out.split()
    assert len(told) == 3 and all(float(word) > 0 for word in told)


def test_every_name_of_the_door_is_there_and_importing_it_loads_nothing() -> None:
    for name in ejbd.sim.__all__:
        assert getattr(ejbd.sim, name) is not None
    with pytest.raises(AttributeError):
        _ = ejbd.sim.nothing_of_the_kind
    code = "import sys, ejbd.sim; print([m for m in ('numpy', 'numba', 'pandas') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)
    assert result.stdout.strip() == "[]"


def test_a_share_of_the_jobs_is_elastic_by_lot(log: Path) -> None:
    workload = load(log)
    wide = workload.jobs.processors >= 8
    some = {share: Choice(share=share, seed=5).flags(workload) for share in (0.0, 0.2, 0.5, 1.0)}
    assert [int(flags.sum()) for flags in some.values()] == [round(share * int(wide.sum())) for share in some]
    assert (some[0.2] <= some[0.5]).all() and (some[1.0] == wide).all()
    assert (Choice(share=0.2, seed=5).flags(workload) == some[0.2]).all()
    assert (Choice(share=0.2, seed=6).flags(workload) != some[0.2]).any()


def test_jobs_of_some_users_or_of_a_list_are_elastic(log: Path, tmp_path: Path) -> None:
    def report(*words: str, code: int = 0) -> Any:
        said = ejb_sim("run", str(log), "--json", "-", *words, code=code)
        return said.stderr if code else json.loads(said.stdout)

    workload = load(log)
    of_two = Choice(min_processors=1, users=(2, 5)).flags(workload)
    assert of_two.tolist() == np.isin(play(workload, "easy").columns()["user"], [2, 5]).tolist()
    by_user = report("--min-procs", "1", "--elastic-users", "2,5")
    assert by_user["parameters"]["elastic_users"] == [2, 5]
    assert by_user["elastic"]["jobs"] == int(play(workload, candidates=of_two).elastic.sum()) > 5
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("# those of the paper\n3, 4\n5 6  # and these\n")
    assert Choice(min_processors=1, jobs=(3, 4, 5, 6)).flags(workload).sum() == 4
    assert report("--min-procs", "1", "--elastic-jobs", str(numbers))["parameters"]["elastic_jobs"] == 4
    numbers.write_text("3\nfour\n")
    assert "line 2 of" in report("--elastic-jobs", str(numbers), code=2)
    assert "has no user 99 among the jobs" in report("--elastic-users", "99", code=2)
