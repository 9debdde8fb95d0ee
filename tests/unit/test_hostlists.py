"""Lists of nodes, and other short texts that stand for much."""

from __future__ import annotations

import tracemalloc

import pytest

from ejbd.core.needs import Needs
from ejbd.core.view import ClusterView, NodeView, QueueView, Reservations
from ejbd.errors import Code, EjbError
from ejbd.manager.facts.batchjob.fitting import fitted
from ejbd.manager.jobspec import JobRequest, read
from ejbd.manager.jobspec.indices import chosen, folded
from ejbd.manager.rules.linked.elements import check_size
from ejbd.wire.hostlists import MOST_HOSTS, fold, unfold

SCRIPT = "#!/bin/sh\n#SBATCH -n 4 -t 5 {0}\nsrun hostname\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("n1", 1),
        ("n[1-3],m7", 4),
        ("n[01-10]", 10),
        ("r[1-4]n[1-8]", 32),
        ("n[1-9/2]", 5),
        (f"n[1-{MOST_HOSTS}]", MOST_HOSTS),
    ],
)
def test_a_list_of_nodes_is_unfolded(text: str, count: int) -> None:
    assert len(unfold(text)) == count


@pytest.mark.parametrize(
    "text",
    ["n[10-2000000]", "n[1-9999][1-9999]", "n[0-65536]", ",".join(["n[1-9999]"] * 70), "n[1-" + "9" * 60 + "]"],
)
@pytest.mark.parametrize("option", ["--exclude", "--nodelist"])
def test_a_list_of_millions_of_nodes_is_refused_unread(text: str, option: str) -> None:
    with pytest.raises(EjbError) as refused:
        read(JobRequest(cwd="/", script=SCRIPT.format(f'{option} "{text}"')))
    assert refused.value.code is Code.INVALID and refused.value.where


def test_names_that_do_not_fold_stay_as_they_are() -> None:
    assert fold(["n1", "n2", "n3", "m7"]) == "m7,n[1-3]" and fold([]) == ""


def test_needs_come_back_from_json_as_they_were() -> None:
    needs = Needs(only=frozenset({"n1", "n2"}), never=frozenset({"n3"}), gres=(("gpu", 2),))
    assert Needs.from_json(needs.to_json()) == needs
    assert Needs.from_json({"only": ["n2", "n1"], "never": ["n3"], "gres": [["gpu", 2]]}) == needs


def test_elements_are_chosen_from_those_that_there_are() -> None:
    assert folded(chosen("0-9999999", [1, 2, 3, 9])) == "1-3,9"
    assert folded(chosen("2,9,77", [1, 2, 3, 9])) == "2,9"
    with pytest.raises(ValueError, match="names no indices"):
        chosen("1-3%2", [1, 2])


def test_an_array_that_names_its_indices_again_and_again_is_refused() -> None:
    check_size("0-9,5-9", 100)
    with pytest.raises(EjbError, match="more than once"):
        check_size(",".join(["0-9"] * 100), 100)


@pytest.mark.parametrize("line", ["#SBATCH --export=" + "A," * 70_000 + "B", "#SBATCH --comment=" + "x" * 140_000])
def test_a_value_that_no_command_takes_is_refused(line: str) -> None:
    with pytest.raises(EjbError, match="more than 131071 characters") as refused:
        read(JobRequest(cwd="/", script=f"#!/bin/sh\n{line}\nhostname\n"))
    assert refused.value.where == "line 2"


def test_of_a_list_of_nodes_those_are_kept_that_there_are() -> None:
    """A dozen characters name thousands, and every submission may name others."""
    nodes = tuple(NodeView(name, 4, 4, True, ("batch",)) for name in ("n1", "n12", "n13", "v[0]"))
    queue = QueueView("batch", True, None, 1, 16, default=True)
    view = ClusterView(0.0, nodes, (), (queue,), Reservations.NODES, 60.0)
    jobs = [read(JobRequest(cwd="/", script=SCRIPT.format(f'-x "n[10-{last}]"'))).spec for last in range(9000, 9005)]
    tracemalloc.start()
    try:
        found = [fitted(job, view, "batch", 4).spec.needs.never for job in jobs]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [{"n12", "n13"}] * 5
    assert kept < 500_000, "they were kept by name"
