"""A profile out of the JSON that a worker is told: its attributes are those of `ejbd.profiles.profile.Profile`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Mapping

STDOUT = "stdout"
ONE_RANK = "one-rank"
_MAPPINGS = ("names", "input", "env")  # what stays a mapping: its keys are the profile's own words


def profile_from(told: Mapping[str, Any]) -> Any:
    """The profile that `ejbd.profiles.profile.Profile.model_dump` has written."""
    return _namespace(told)


def _namespace(told: Mapping[str, Any]) -> Any:
    return SimpleNamespace(**{name: _value(name, value) for name, value in told.items()})


def _value(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_namespace(one) if isinstance(one, dict) else one for one in value]
    if not isinstance(value, dict):
        return value
    if name in _MAPPINGS:
        return {key: _namespace(one) if isinstance(one, dict) else one for key, one in value.items()}
    return _namespace(value)
