"""What `ejb doctor` says of the DMTCP plugin that lies in the spool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ejbd.config import Settings
from ejbd.doctor import plugin
from ejbd.doctor.checks import examine_engines

OLD = "the plugin is an older EJB's"


@pytest.mark.parametrize(
    ("record", "says", "says_not"),
    [
        (None, "can_split_hosts: false", OLD),
        ({"trusted": False, "sources": "0"}, "can_split_hosts: false", OLD),
        ({"trusted": True}, f"can_split_hosts: true: ranks may be on several hosts; {OLD}", "cannot"),
        ({"trusted": True, "sources": "here"}, "can_split_hosts: true: ranks may be on several hosts)", OLD),
    ],
    ids=["none", "failed", "of other sources", "of these"],
)
def test_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, Any] | None, says: str, says_not: str
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "dmtcp_launch").write_text("#!/bin/sh\n")
    (tools / "dmtcp_launch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    settings = Settings(spool=tmp_path / "spool")
    folder = settings.spool_dir / "dmtcp"
    folder.mkdir(parents=True)
    if record is not None:
        if record.get("sources") == "here":
            record = {**record, "sources": plugin.sources_sum()}
        (folder / f"{plugin.PLUGIN}.json").write_text(json.dumps(record))
    finding = examine_engines(settings)
    assert finding.good and says in finding.text and says_not not in finding.text, finding
