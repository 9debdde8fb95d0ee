"""Plan files: E-HPC's own, EJB's superset, and what is refused with its place."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.errors import Code, EjbError
from ejbd.workflow.graph import cycle_in, groups, in_order
from ejbd.workflow.plan import OnFailure, Plan, PlanMode
from ejbd.workflow.reading import OF_STAGE, check_files, read_plan
from ejbd.workflow.tree import MOST_CHARACTERS, MOST_NODES

FIGURE_3 = """\
workflow:
  command: python stage1.py
  stage1:
    nodes: 4
    ppn: 1
    walltime: 00:15:00
  stage2:
    nodes: 1
    walltime: 00:30:00
"""
BLAST = """\
workflow:
  name: blast
  mode: fast                 # fast | default
  retries: 1
  env: {LC_ALL: C}
  stages:
    split:  {command: ./split.sh, tasks: 1, walltime: 00:05:00}
    search:
      command: srun ./search
      tasks: 64
      min_tasks: 8
      walltime: 01:00:00
      needs: [split]
      engine: application
      retries: 2
    merge:
      {command: ./merge.sh, tasks: 1, walltime: 00:10:00, needs: [search], inputs: [out/*.tsv], outputs: [all.tsv]}
"""
CHAIN = """\
workflow:
  stages:
    a: {command: a, tasks: 4, walltime: 1}
    b: {command: b, tasks: 4, walltime: 2}
    c: {command: c, tasks: 8, walltime: 3}
    d: {command: d, tasks: 8, walltime: 4, needs: [b]}
    e: {command: e, tasks: 8, walltime: 5, needs: [c, d]}
    f: {command: f, tasks: 8, walltime: 6, scatter: [x, y]}
"""


def test_the_papers_file_is_read_as_it_stands() -> None:
    plan = read_plan(FIGURE_3)
    one, two = plan.stages
    assert (one.name, one.tasks, one.nodes, one.ppn, one.walltime_s, one.needs) == ("stage1", 4, 4, 1, 900.0, ())
    assert (two.name, two.tasks, two.walltime_s, two.needs) == ("stage2", 1, 1800.0, ("stage1",))
    assert one.command == two.command == "python stage1.py" and plan.mode is PlanMode.DEFAULT


def test_the_superset_is_read() -> None:
    plan = read_plan(BLAST)
    split, search, merge = plan.stages
    assert (plan.name, plan.mode, plan.widest, plan.on_failure) == ("blast", PlanMode.FAST, 64, OnFailure.STOP)
    assert (search.tasks, search.min_tasks, search.retries, search.engine) == (64, 8, 2, "application")
    assert (split.retries, split.env, merge.inputs, merge.outputs) == (1, {"LC_ALL": "C"}, ("out/*.tsv",), ("all.tsv",))
    assert search.place == (8, 5)


def test_a_plan_comes_back_from_the_store_as_it_was() -> None:
    for text in (FIGURE_3, BLAST, CHAIN):
        assert Plan.from_json(read_plan(text).to_json()) == read_plan(text)


EVOLVING = """\
workflow:
  stages:
    refine:
      command: srun ./refine
      profile: 16:10m,64:5m,16:20m
      walltime: 40
    merge: {command: srun ./merge, tasks: 64, walltime: 40}
"""


def test_a_stage_may_have_widths_one_after_the_other() -> None:
    plan = read_plan(EVOLVING)
    refine, merge = plan.stages
    assert (refine.profile, refine.tasks, merge.profile) == ("16:10m,64:5m,16:20m", 64, None)
    assert Plan.from_json(plan.to_json()) == plan
    assert [group.name for group in groups(plan)] == ["refine", "merge"], "it shares its allocation with none"


@pytest.mark.parametrize(
    ("change", "where", "said"),
    [
        (("16:10m,64", "16:10m,,64"), "5:16", "step 2 of the profile is empty; write WIDTH:DURATION"),
        (("16:20m", "16:20"), "5:16", "step 3 of the profile, '16:20', has no duration with a unit"),
        (("walltime: 40\n    m", "walltime: 30\n    m"), "5:16", "lasts 35m, longer than its walltime"),
        (("walltime: 40\n    m", "tasks: 16\n      walltime: 40\n    m"), "6:14", "16 tasks, and the widest step"),
        (("walltime: 40\n    m", "nodes: 4\n      walltime: 40\n    m"), "6:14", "its widths have no nodes"),
        (("walltime: 40\n    m", "scatter: 4\n      walltime: 40\n    m"), "6:16", "its widths have no scatter"),
    ],
)
def test_a_profile_that_cannot_be_is_refused_with_its_place(change: tuple[str, str], where: str, said: str) -> None:
    assert change[0] in EVOLVING
    with pytest.raises(EjbError) as found:
        read_plan(EVOLVING.replace(*change), "plan.yaml")
    assert found.value.where == f"plan.yaml:{where}"
    assert said in found.value.message


def test_a_walltime_is_no_number_in_base_sixty() -> None:
    text = "workflow: {stages: {a: {command: x, tasks: 010, walltime: 1:30:00, scatter: 3}}}"
    stage = read_plan(text).stages[0]
    assert (stage.tasks, stage.walltime_s, stage.elements, stage.width) == (10, 5400.0, ("0", "1", "2"), 30)


def test_stages_that_follow_each_other_with_equal_needs_share_an_allocation() -> None:
    found = groups(read_plan(CHAIN))
    assert [(group.name, [stage.name for stage in group.stages], group.needs) for group in found] == [
        ("a", ["a", "b"], ()),
        ("c", ["c"], ("a",)),
        ("d", ["d"], ("a",)),
        ("e", ["e"], ("c", "d")),
        ("f", ["f"], ("e",)),
    ]
    assert found[0].walltime_s == 180.0
    apart = read_plan(CHAIN.replace("workflow:\n", "workflow:\n  bundle: off\n"))
    assert len(groups(apart)) == 6


def test_two_stages_that_may_run_at_one_time_do_not_write_one_file() -> None:
    text = """\
workflow:
  stages:
    a: {command: a, tasks: 1, walltime: 1, outputs: [log]}
    b: {command: b, tasks: 1, walltime: 1}
    c: {command: c, tasks: 1, walltime: 1, outputs: [./log]}
"""
    assert len(read_plan(text).stages) == 3, "c begins behind a"
    with pytest.raises(EjbError) as found:
        read_plan(text.replace("b, tasks: 1, walltime: 1", "b, tasks: 1, walltime: 1, needs: []"), "plan.yaml")
    assert (found.value.where, found.value.message) == (
        "plan.yaml:5:53",
        "stages a and c both write 'log', and may run at one time",
    )


def test_stages_may_stand_in_any_order() -> None:
    plan = read_plan(
        "workflow: {stages: {b: {command: b, tasks: 1, walltime: 1, needs: [a]},"
        " a: {command: a, tasks: 1, walltime: 1, needs: []}}}"
    )
    assert [stage.name for stage in in_order(plan)] == ["a", "b"]
    assert [group.name for group in groups(plan)] == ["a"]


@pytest.mark.parametrize(
    ("change", "where", "said"),
    [
        (("tasks: 64", "taks: 64"), "10:7", "stage search has no key 'taks' (tasks is probably meant)"),
        (("name: blast", "nmae: blast"), "2:3", "a workflow has no key 'nmae'"),
        (("tasks: 64", "tasks: 0"), "10:14", "tasks of stage search: '0' is no number from 1 to"),
        (("tasks: 64", "nodes: 999999\n      ppn: 9999"), "10:14", "nodes and ppn of stage search are 9998990001"),
        (("tasks: 64", "tasks: 64\n      nodes: 3\n      ppn: 4"), "10:14", "3 nodes of 4 processors are 12"),
        (("min_tasks: 8", "min_tasks: 65"), "11:18", "min_tasks of stage search is more than its tasks (64)"),
        (("min_tasks: 8", "max_tasks: 128"), "11:18", "no engine changes the number of ranks"),
        (("needs: [split]", "needs: [spilt]"), "13:14", "needs 'spilt', which is no stage (split is probably meant)"),
        (("needs: [split]", "needs: [merge]"), "13:14", "in a circle: search needs merge needs search"),
        (("needs: [split]", "needs: [search]"), "13:14", "in a circle: search needs search"),
        (("01:00:00", "UNLIMITED"), "12:17", "walltime of stage search: 'UNLIMITED' has no end"),
        (("01:00:00", "soon"), "12:17", "'soon' is not a walltime"),
        (("retries: 2", "retries: some"), "15:16", "retries of stage search: 'some' is no number from 0 to 100"),
        (
            ("mode: fast", "mode: slow"),
            "3:9",
            "mode of the workflow: 'slow' is none of the words that may stand here (default or fast)",
        ),
        (("engine: application", "engine: magic"), "14:15", "engine of stage search: there is no engine 'magic'"),
        (("command: srun ./search", "command:"), "8:5", "has no command"),
        (("tasks: 64", "needs: []\n      tasks: 64"), "14:7", "the key 'needs' stands twice, first in line 10"),
        (("[split]", "*split"), "13:14", "an alias (*) has no place in a plan"),
        (("srun ./search", "!!python/name:os.system srun"), "9:16", "a tag (tag:yaml.org,2002:python/name:os.system)"),
        (("env: {LC_ALL: C}", "env: {EJB_JOB: C}"), "5:9", "'EJB_JOB' cannot be set as a variable"),
        (("  stages:", "  stages: ["), "8:5", "this is not YAML"),
        (("LC_ALL: C}", "LC_ALL: C}\n  inputs: [a]"), "6:3", "a workflow has no key 'inputs'"),
        (("retries: 2", "inputs: ['in/**']"), "15:15", "'in/**' names a whole tree"),
        (("    split:", "    spl it:"), "7:5", "'spl it' is no name of a stage"),
    ],
)
def test_what_cannot_be_right_is_refused_with_its_place(change: tuple[str, str], where: str, said: str) -> None:
    assert change[0] in BLAST
    with pytest.raises(EjbError) as found:
        read_plan(BLAST.replace(*change, 1), "blast.yaml", ("auto", "application"))
    assert found.value.code is Code.INVALID
    assert found.value.sentence().startswith(f"blast.yaml:{where}") and said in found.value.sentence()
    assert found.value.sentence().count("\n") == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "workflow:",
        "workflow: {}",
        "- 1",
        "workflow: {stages: {}}",
        "a: 1\n---\nb: 2",
        "[" * 500,
        "{a: " * 500,
        "workflow: {? [a] : b}",
        "workflow: \x00",
        "workflow: {stage1: 3}",
        "workflow: {command: x, stage1: {tasks: 1, walltime: 1}, stages: {}}",
        "x: &a [&b [*a]]",
    ],
)
def test_no_text_is_more_than_refused(text: str) -> None:
    with pytest.raises(EjbError) as found:
        read_plan(text, "p.yaml")
    assert found.value.code is Code.INVALID and found.value.where.startswith("p.yaml")


def test_a_plan_that_is_too_large_is_not_read() -> None:
    with pytest.raises(EjbError) as found:
        read_plan("#" * (MOST_CHARACTERS + 1))
    assert found.value.code is Code.TOO_LARGE
    with pytest.raises(EjbError) as found:
        read_plan("x: [" + "1," * MOST_NODES + "]")
    assert found.value.code is Code.TOO_LARGE


@settings(max_examples=30)
@given(st.text(max_size=200), st.sampled_from(OF_STAGE))
def test_whatever_stands_in_a_stage_is_read_or_refused(text: str, key: str) -> None:
    try:
        read_plan(f"workflow: {{stages: {{a: {{command: x, tasks: 1, walltime: 1, {key}: {text}}}}}}}")
    except EjbError as error:
        assert error.code is Code.INVALID and error.where


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from("abcdefgh"))))
def test_a_circle_is_one(needs: dict[str, set[str]]) -> None:
    found = cycle_in({name: sorted(others) for name, others in needs.items()})
    assert not found or found[0] == found[-1]
    assert all(after in needs[before] for before, after in itertools.pairwise(found))


def test_a_missing_file_is_told_where_its_stage_stands() -> None:
    plan = read_plan(BLAST)
    with pytest.raises(EjbError) as found:
        check_files(plan, "blast.yaml", lambda pattern: pattern != "./split.sh")
    assert "blast.yaml:7:23: command of stage split: program './split.sh' is not there" in found.value.sentence()
    with pytest.raises(EjbError) as found:
        check_files(plan, "blast.yaml", lambda pattern: not pattern.startswith("out"))
    assert "blast.yaml:17:84: inputs of stage merge: file 'out/*.tsv' is not there" in found.value.sentence()
    made = read_plan(BLAST.replace("needs: [split]", "needs: [split]\n      outputs: ['out/*.tsv']"))
    check_files(made, "blast.yaml", lambda pattern: not pattern.startswith("out"))


def test_a_stage_that_is_restartable_shares_no_allocation() -> None:
    lines = "workflow:\n  stages:\n    a: {command: srun x, tasks: 4, walltime: '5', restartable: on}\n"
    plan = read_plan(lines + "    b: {command: srun y, tasks: 4, walltime: '5'}\n")
    assert [stage.restartable for stage in plan.stages] == [True, False]
    assert [group.name for group in groups(plan)] == ["a", "b"]
