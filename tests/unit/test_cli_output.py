"""What `ejb` prints: errors as they are typed, JSON that is JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ejbd.cli.output import as_typed
from ejbd.cli.show import exporting
from ejbd.errors import Code, EjbError


@pytest.mark.parametrize(
    ("where", "typed"),
    [
        ("query.state", "--state"),
        ("body.overrides.lambda_s", "--lambda"),
        ("body.overrides.ntasks_per_node", "--ntasks-per-node"),
        ("body.script", "script"),
        ("line 3", "line 3"),
        ("", ""),
    ],
)
def test_a_place_is_told_as_it_is_typed_and_the_error_stays_as_it_was(where: str, typed: str) -> None:
    error = EjbError(Code.INVALID, "no", hint="yes", transient=True, where=where, details={"also": ["that"]})
    told = as_typed(error)
    assert (told.where, error.where) == (typed, where)
    assert (told.code, told.message, told.hint, told.transient, told.details) == (
        error.code, error.message, error.hint, error.transient, error.details,
    )  # fmt: skip


def test_an_exported_log_is_strict_json(capsys: pytest.CaptureFixture[str]) -> None:
    """A figure that is no number, or is infinite, has no word in JSON: null."""

    class Daemon:
        def get(self, path: str, **query: Any) -> Any:
            event = {"id": 1, "kind": "epoch.rate", "data": {"epoch": 1, "rate": float("inf"), "was": float("nan")}}
            return {"/v1/version": {"version": "1"}, "/v1/windows": {"windows": []}}.get(path) or {"events": [event]}

    assert exporting.export(Daemon(), "-") == 1  # type: ignore[arg-type]
    header, event = capsys.readouterr().out.splitlines()

    def refuse(word: str) -> Any:
        raise AssertionError(word)

    assert json.loads(header, parse_constant=refuse)["kind"] == "ejb.log"
    assert json.loads(event, parse_constant=refuse)["data"] == {"epoch": 1, "rate": None, "was": None}
