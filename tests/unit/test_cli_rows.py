"""Which jobs, and which elements of an array, the words of `squeue`, `scancel` and `scontrol` mean."""

from __future__ import annotations

from typing import Any

import pytest

from ejbd.cli.links.rows import named

ARRAY = {"id": "1a2b3c4d", "number": "8", "array_number": None, "array": None, "index": None, "kind": "array",
         "elements": {"to come": 9}, "state": "waiting", "start_s": None}  # fmt: skip


class Answers:
    """A daemon with one array of nine elements, of which the first is a job that runs."""

    def get(self, path: str, **query: Any) -> Any:
        if path == "/v1/jobs":
            return {"jobs": [ARRAY]}
        return {**ARRAY, "element_indices": {"running": "1", "to come": "2-9"}}

    def jobs(self, **query: Any) -> list[dict[str, Any]]:
        first = {"id": "1a2b3c4d_1", "number": "8", "array_number": "8", "array": ARRAY["id"], "index": 1}
        return [{**ARRAY, **first, "elements": None, "state": "running"}]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["8_2"], ["8_2"]),
        (["8_[2-4]"], ["8_[2,3,4]"]),
        (["8_2", "8_7"], ["8_2", "8_7"]),
        (["8_[1-2]"], ["8_1", "8_2"]),
        (["8_1"], ["8_1"]),
        (["8_10"], []),
        (["8"], ["8"]),
    ],
)
def test_of_elements_that_wait_together_those_alone_are_meant_that_a_word_names(
    words: list[str], meant: list[str]
) -> None:
    found = named(Answers(), words, apart=False)  # type: ignore[arg-type]
    assert [row.id for row in found.rows] == meant and not found.others
