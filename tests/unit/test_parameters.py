"""A parameter is declared in one place; queues, documents, REST, simulator, replay and jobs have it from there."""

from __future__ import annotations

import re
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from ejbd.api.models import OverridesBody
from ejbd.cli.submission.words import OPTIONS
from ejbd.config import QueueSettings, changes_schema, settings_model
from ejbd.core.bundling.parameters import BundlingParameters, Order, Rules, rules_of
from ejbd.core.parameters import Declared, Parameters, declared
from ejbd.manager.jobspec.ownwords import known_keys
from ejbd.sim.settings import names, parse_setting

ROOT = Path(__file__).parents[2]
PARAMETERS = declared(BundlingParameters)


def default_told(value: Any) -> str:
    """As docs/configuration.md has it."""
    if isinstance(value, StrEnum):
        return f"`{value.value}`"
    if value == "":
        return "empty"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else f"`{value}`"
    return f"{value:.10g}"


def queue_table() -> str:
    """The table of a queue's settings, from the declarations."""
    rows = ["| key | default | meaning |", "| --- | --- | --- |"]
    for name, field in settings_model("bundling").model_fields.items():
        rows.append(f"| `{name}` | {default_told(field.default)} | {field.description} |")
    return "\n".join(rows) + "\n"


def test_the_documented_settings_of_a_queue_are_the_declared_ones() -> None:
    """Where this fails, put `queue_table()` into the document."""
    assert queue_table() in (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("one", PARAMETERS.values(), ids=PARAMETERS)
def test_a_declared_parameter_is_everywhere(one: Declared) -> None:
    assert one.about.says and not one.about.says.endswith(".")
    model = settings_model("bundling").model_fields.get(one.name)
    assert (model is None) == one.about.simulated_only == (one.name not in changes_schema()["properties"]), "REST"
    if model is not None:
        assert model.default == one.queue_default and str(model.description).startswith(one.about.says)
    assert one.key in names(), "the simulator's settings"
    text = "on" if one.kind is bool else one.choices[-1] if one.choices else "7"
    assert getattr(parse_setting(f"ejb:{one.key}={text}").parameters, one.name) == one.parse(text)
    assert one.name in options_of("run")
    assert one.name in options_of("replay") or one.name == "order", "which is between jobs, and replay asks each alone"


def options_of(command: str) -> set[str]:
    import inspect

    from ejbd.cli.sim import commands as sim
    from ejbd.cli.sim import replaying as sim_replay

    return set(inspect.signature({"run": sim.run, "replay": sim_replay.replay}[command]).parameters)


def test_what_a_job_may_say_is_declared_so() -> None:
    per_job = {one.name: one.key for one in PARAMETERS.values() if one.about.per_job}
    assert per_job == {"omax": "omax", "lambda_s": "lambda", "delta": "delta"}
    assert set(per_job.values()) <= set(known_keys())
    assert set(per_job) <= {option.name for option in OPTIONS}, "ejb submit"
    assert set(per_job) <= set(OverridesBody.model_fields)
    assert not (set(PARAMETERS) - set(per_job)) & set(OverridesBody.model_fields)


def test_kernels_take_the_same_fields_as_numbers() -> None:
    rules = BundlingParameters(lambda_s=5, order=Order.LEAST_WORK).rules
    of_rungs = ("form", "alpha", "widths", "stretches", "moves_s", "above", "beyond")  # which `rungs` becomes
    names = tuple(field.name for field in fields(BundlingParameters) if field.name not in ("rungs", "fair_half_life_s"))
    assert getattr(Rules, "_fields") == names + of_rungs  # noqa: B009
    assert [type(value) for value in rules if isinstance(value, StrEnum)] == []  # type: ignore[attr-defined]
    assert (rules.lambda_s, rules.order) == (5.0, 1) and isinstance(rules.lambda_s, float)
    assert rules_of(Parameters(omax=3)).omax == 3, "a policy of its own has the paper's where it says nothing"


def test_bounds_hold_in_a_queue_and_in_a_simulation() -> None:
    for key, value in (("omax", 0), ("omax", 1025), ("delta", 0.5), ("lambda_s", -1), ("order", "random")):
        with pytest.raises(ValueError, match=key):
            QueueSettings(**{key: value})
    assert parse_setting("ejb:delta=0.5").parameters.delta == 0.5, "a simulation may ask what would be"


def test_a_parameter_more_is_a_field_more() -> None:
    """No list of parameters stands anywhere else: their names are where they are declared, where a rule or a person
    uses one, and nowhere between."""
    between = [
        *(ROOT / "ejbd" / "api").rglob("*.py"),
        *(ROOT / "ejbd" / "config").glob("*.py"),
        *(ROOT / "ejbd" / "cli" / "sim").glob("*.py"),
        *(ROOT / "ejbd" / "sim").glob("settings.py"),
        *(ROOT / "ejbd" / "sim").glob("replay.py"),
        *(ROOT / "ejbd" / "manager").glob("*.py"),
        *(ROOT / "ejbd" / "core").glob("question.py"),
    ]
    words = ("suspend", "order", "guard", "start_up_s")  # of a plain meaning, or measured
    only = [one.name for one in PARAMETERS.values() if not one.about.per_job and one.name not in words]
    assert {"whole_slots", "act_in_move", "min_left_s"} <= set(only)
    found = [
        (path.name, name) for path in between for name in only if re.search(rf"\b{name}\b", path.read_text("utf-8"))
    ]
    assert found == []
