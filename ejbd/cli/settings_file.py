"""Every setting of `ejbd` as one commented TOML file, from the models: meaning, unit, bounds, default."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from ejbd.config import OidcSettings, Settings, settings_schema

WIDTH = 118
UNITS = (("_per_s", "a second"), ("_s", "seconds"), ("_bytes", "bytes"), ("_days", "days"))
UNSET = "..."  # stands for a value where there is none
HEAD = """Every setting of ejbd, with its default: take the # of a line away to change it. `ejb admin settings` prints
this file; docs/configuration.md says more. An environment variable (EJBD_POLL_S, EJBD_LIMITS__LEASE_S) beats it."""
EMPTY: dict[str, Any] = {"array": [], "object": {}}  # of what the models make anew each time
# Tables of which the defaults say nothing: one of each kind, as an example.
QUEUE = "queues.default"
BOUNDS = (("exclusiveMinimum", "above"), ("minimum", "at least"), ("exclusiveMaximum", "below"), ("maximum", "at most"))


def settings_file() -> str:
    """The whole file. As it is, it changes nothing; without the # of a line it has that default."""
    schema = Settings.model_json_schema()
    known = schema["$defs"]
    lines = [*(f"# {line}" for line in HEAD.splitlines()), ""]
    tables: list[tuple[str, Mapping[str, Any]]] = []
    for name, about in schema["properties"].items():
        table = _table(about, known)
        if name == "queues":
            tables.append((QUEUE, settings_schema()))
        elif name == "oidc":
            tables.append((name, OidcSettings.model_json_schema()))
        elif table is not None and table.get("properties"):
            tables.append((name, table))
        else:
            lines += _setting(name, about, known)
    for name, table in tables:
        lines += ["", *_wrapped(_first_sentence(table.get("description", ""))), _header(name)]
        for key, about in table["properties"].items():
            lines += _setting(
                key, about, {**known, **table.get("$defs", {})}, required=key in table.get("required", ())
            )
    return "\n".join(lines) + "\n"


def _header(name: str) -> str:
    """A table that must not be there by itself is a comment, too."""
    return f"#[{name}]" if name == "oidc" else f"[{name}]"


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _table(about: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for one in (about, *about.get("anyOf", ())):
        found = known.get(str(one.get("$ref", "")).rpartition("/")[2])
        if found is not None and found.get("type") == "object":
            return dict(found)
    return None


def _setting(name: str, about: Mapping[str, Any], known: Mapping[str, Any], *, required: bool = False) -> Iterator[str]:
    about = {**about, **(_referred(about, known) or {}), "description": about.get("description", "")}
    notes = [unit for end, unit in UNITS if name.endswith(end)][:1]
    kinds = _kinds(about)
    notes += [f"{word} {_plain(one[key])}" for one in kinds for key, word in BOUNDS if key in one]
    notes += [" or ".join(map(json.dumps, one["enum"])) for one in kinds if "enum" in one]
    default = about.get("default", EMPTY.get(str(about.get("type"))))
    if required:
        notes.append("has to be given")
    elif default is None:
        notes.append("not set unless given")
    yield ""
    yield from _wrapped(about["description"])
    if notes:
        yield from _wrapped(f"({'; '.join(notes)})")
    yield f"#{name} = {UNSET if default is None else _toml(default)}"


def _referred(about: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return known.get(str(about.get("$ref", "")).rpartition("/")[2])


def _kinds(about: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [about, *about.get("anyOf", ())]


def _plain(number: float) -> str:
    return f"{number:,.0f}".replace(",", "_") if number == int(number) else f"{number:g}"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _wrapped(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH, break_on_hyphens=False, break_long_words=False)]
