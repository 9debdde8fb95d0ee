"""Groups of tests that one process of pytest-xdist runs, under pytest 9.2, too: there xdist 3.8 names them in vain.

It writes the group behind `_nodeid`, which pytest 9.2 no longer reads, and its groups are torn apart without a word.
"""

from __future__ import annotations

import pytest


def name_groups(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Write `@group` behind the id of every test that has a group, where `--dist loadgroup` looks for it."""
    if not getattr(config.option, "loadgroup", False):  # set by xdist in its workers
        return
    for item in items:
        names = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
        behind = f"@{'_'.join(names)}"
        if names and not item.nodeid.endswith(behind) and hasattr(item, "_id"):
            item._id = type(item._id).parse(item.nodeid + behind)


def keep_together(items: list[pytest.Item]) -> None:
    """Have one process run the unit tests that share what a fixture of their file makes: each would make it anew."""
    for item in items:
        if "unit" not in item.path.parts or item.get_closest_marker("xdist_group"):
            continue
        info = getattr(item, "_fixtureinfo", None)
        known = [made[-1] for made in info.name2fixturedefs.values()] if info is not None else []
        file = item.nodeid.partition("::")[0]
        if any(fixture.scope == "module" and fixture.baseid == file for fixture in known):
            item.add_marker(pytest.mark.xdist_group(item.path.stem.removeprefix("test_").replace("_", "-")))
