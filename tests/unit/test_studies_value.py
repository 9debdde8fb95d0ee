"""The page for a director: what it counts, and that it says what was found."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ejbd.cli.app import app
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.parameters import declared
from ejbd.sim.fairness import shift
from ejbd.sim.grid import LENGTH_NAMES, grid, table_of, width_names
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy
from ejbd.sim.settings import Source, load, play
from ejbd.sim.swf import FIELDS, write_swf
from ejbd.studies.value.page import write_page
from ejbd.studies.value.worth import DELTA, FEW_JOBS, Value, break_even, live_setting, value_of


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A busy cluster of 32 processors, the jobs of which are those of five users."""
    log = generate(Model.LUBLIN, jobs=250, processors=32, seed=3, load=0.9, overestimate=3.0)
    log.rows[:, FIELDS.index("user")] = np.arange(len(log)) % 5 + 1
    path = tmp_path_factory.mktemp("value") / "busy.swf"
    write_swf(path, log)
    return Source(path, 32)


@pytest.fixture(scope="module")
def value(source: Source) -> Value:
    return value_of(source, live_setting({}, 8, False), deltas=[1.0, 3.0], lambdas_s=[120.0])


def test_it_is_what_a_queue_does_unless_somebody_says_otherwise() -> None:
    parameters = live_setting({}, 8, False).parameters
    usual = {name: one.queue_default for name, one in declared(BundlingParameters).items()}
    usual |= {"delta": DELTA, "fair_half_life_s": 0.0}  # turns between users are told apart (docs/policies.md)
    assert {name: getattr(parameters, name) for name in usual} == usual
    told = live_setting({"omax": 2, "delta": 1.5}, 4, True)
    assert (told.parameters.omax, told.parameters.delta, told.choice.min_processors, told.trimmed) == (2, 1.5, 4, True)


def test_its_figures_are_those_of_the_simulations(source: Source, value: Value) -> None:
    setting = live_setting({}, 8, False)
    workload, easy, before = play(source, replace(setting, policy=Policy.EASY))
    _, ejb, after = play(source, setting)
    everybody, elastic, others = (value.groups[name] for name in ("all", "elastic", "others"))
    assert (everybody.before_s, everybody.after_s) == (before["mean_turnaround_s"], after["mean_turnaround_s"])
    assert (elastic.jobs, others.jobs) == (after["elastic"]["jobs"], after["non_elastic"]["jobs"])
    assert elastic.jobs > 0 and everybody.jobs == elastic.jobs + others.jobs == len(workload)
    assert elastic.after_s == after["elastic"]["mean_turnaround_s"]
    assert (value.price.after, value.price.before) == (ejb.used.sum(), easy.used.sum())
    assert value.asked.submissions == ejb.subjobs[ejb.elastic != 0].sum() and value.asked.elastic == elastic.jobs
    chosen = ejb.elastic == 0
    assert value.others_start == shift(easy.start[chosen], ejb.start[chosen])
    assert sum(user.jobs for user in value.users) == len(workload) and len(value.users) == 5
    assert all(user.jobs >= FEW_JOBS for user in value.users)


def test_every_delta_and_lambda_is_a_simulation_of_its_own(source: Source, value: Value) -> None:
    assert set(value.points) == {(1.0, 120.0), (3.0, 120.0)}
    again = value_of(source, live_setting({"delta": 3.0, "lambda_s": 120.0}, 8, False), deltas=[1.0], lambdas_s=[120.0])
    assert value.points[3.0, 120.0][0] == again.groups["all"].change_percent


@pytest.mark.parametrize(
    ("changes", "limit"),
    [((-10.0, -2.0, 2.0), 2.5), ((1.0, 2.0, 3.0), 1.0), ((-3.0, -2.0, -1.0), None), ((-1.0, 1.0, -1.0), 1.5)],
)
def test_from_where_on_it_stops_paying(value: Value, changes: tuple[float, ...], limit: float | None) -> None:
    points = {(delta, 60.0): (change, 0.0) for delta, change in zip((1.0, 2.0, 3.0), changes, strict=True)}
    assert break_even(replace(value, points=points), 60.0) == limit


def test_the_grid_has_every_job_once(source: Source, value: Value) -> None:
    assert width_names(100) == ["1", "2 to 7", "8 to 15", "16 to 31", "32 to 63", "64 and more"]
    assert width_names(8)[-1] == "8"
    workload = load(source)
    assert sum(cell.jobs for cell in value.cells) == len(workload)
    changed = sum(cell.jobs * (cell.after_s - cell.before_s) for cell in value.cells) / len(workload)
    everybody = value.groups["all"]
    assert changed == pytest.approx(everybody.after_s - everybody.before_s)
    for cell in value.cells:
        low, _, high = cell.width.replace(" and more", " to 32").partition(" to ")
        wide = (workload.jobs.processors >= int(low)) & (workload.jobs.processors <= int(high or low))
        assert cell.jobs <= int(wide.sum()) and 0 <= cell.later <= 1
    head, rows = table_of(list(value.cells))
    assert head[1:] == list(LENGTH_NAMES) and {len(row) for row in rows} == {6}


def test_an_unchanged_simulation_changes_no_cell(source: Source) -> None:
    workload, easy, _ = play(source, replace(live_setting({}, 8, False), policy=Policy.EASY))
    cells = grid(workload.jobs, easy, easy, np.full(len(workload), True))
    assert cells and all(cell.change_percent == 0 and cell.later == 0 for cell in cells)


@pytest.mark.slow
def test_the_page_begins_with_the_answer_in_short_sentences(value: Value, tmp_path: Path) -> None:
    page, *rest = write_page(tmp_path, [value], "ejb sim value busy.swf")
    text = page.read_text()
    first = text.split("\n\n")[1].replace("\n", " ")
    said = re.split(r"(?<=\.)\s", first)
    assert 4 <= len(said) <= 5 and all(len(one.split()) <= 25 for one in said), first
    assert f"({value.groups['all'].change_percent:+.0f} %)" in first
    for title in ("Which jobs gain", "Which jobs lose", "By width and length", "By user", "When it would stop paying"):
        assert f"## {title}" in text
    assert max(map(len, (line for line in text.splitlines() if not line.startswith(("|", "!", "    "))))) <= 120
    for name in re.findall(r"\]\((value/[^)]*)\)", text):
        assert (tmp_path / name).stat().st_size > 1000, name
    assert all(path.is_file() for path in rest)
    with (tmp_path / "value" / "gains.csv").open() as table:
        assert [row["jobs"] for row in csv.DictReader(table)] == ["all", "elastic", "others"]


def test_where_it_loses_the_page_says_so(value: Value, tmp_path: Path, undrawn: None) -> None:
    others = replace(value.groups["others"], after_s=1.5 * value.groups["others"].before_s)
    everybody = replace(value.groups["all"], after_s=1.2 * value.groups["all"].before_s)
    points = {(1.0, 120.0): (20.0, 50.0)}
    lost = replace(value, groups={**value.groups, "all": everybody, "others": others}, points=points, users=[])
    text = write_page(tmp_path, [lost, replace(lost, name="again")], "")[0].read_text().replace("\n", " ")
    assert "changes by +20 and +20 % on busy and again for all jobs" in text
    assert "The others pay for it (by +50 and +50 % on busy and again)" in text
    assert "It stops paying where over-subscription costs a factor (Delta) of 1 on busy, 1 on again" in text


@pytest.mark.slow
def test_the_command_takes_a_log_or_what_sacct_printed(source: Source, tmp_path: Path, undrawn: None) -> None:
    accounts = tmp_path / "jobs.txt"
    lines = ["JobID|User|Submit|Start|End|NNodes|NCPUS|TimelimitRaw|State"]
    for number in range(40):
        day = "2024-05-31T"
        start = f"{day}10:{number:02}:00|{day}11:{number:02}:00|{day}12:{number:02}:30"
        lines.append(f"{number}|u{number % 3}|{start}|1|{8 * (number % 4 + 1)}|180|COMPLETED")
        lines.append(f"{number}.batch||{start}|1|8||COMPLETED")
    accounts.write_text("\n".join([*lines, "41|u1|torn"]) + "\n")
    words = ["sim", "value", str(accounts), "--procs", "32", "--out", str(tmp_path / "out"), "--trim", "none"]
    done = CliRunner().invoke(app, [*words, "--deltas", "1", "--lambdas", "60", "--delta", "1.2"])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "out" / "value.md").read_text()
    assert re.search(r"\| jobs(\.txt)? \| u0 \| 14 \|", text) and "Taken here is 1.2" in text.replace("\n", " ")
    assert "1 row (line 82): torn: not 9 fields; left out" in done.output
    for wrong in (["--deltas", "x"], ["--lambdas", "-1"], ["--name", "a", "--name", "b"], ["--delta", "2:x"]):
        refused = CliRunner().invoke(app, [*words, *wrong])
        assert refused.exit_code != 0, wrong
