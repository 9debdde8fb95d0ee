"""A program that asks for another width of its own job: as a command, and by the module that needs no EJB."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from ejbd.client import Client
from tests.acceptance.evolving import Paced

DRIVER = """
import importlib.util, json, sys
import ejb_elastic
told = {"ejbd": importlib.util.find_spec("ejbd") is not None, "init": ejb_elastic.init().held}
told["expand"] = [bool(ejb_elastic.expand(16, wait_s=60)), ejb_elastic.init().held]
told["again"] = bool(ejb_elastic.expand(16, wait_s=60))
try:
    ejb_elastic.expand(17)
except ejb_elastic.ElasticError as error:
    told["too wide"] = str(error)
ejb_elastic.contract(by=12, key="once")
told["contract"] = ejb_elastic.contract(by=12, key="once").asked
told["done"] = ejb_elastic.done().asked
json.dump(told, open(sys.argv[1], "w"))
"""


def bare_python() -> str:
    """An interpreter that has no EJB. Skips where there is none."""
    found = shutil.which("python3", path="/usr/bin:/bin")
    if found is None:
        pytest.skip("there is no python3 in /usr/bin")
    return found


def asks_from_inside(paced: Paced) -> None:
    """4 processors, 16 as the program asks for them, and 4 again; each call made twice is one."""
    told, driver = paced.folder / "told.json", paced.folder / "driver.py"
    driver.write_text(DRIVER)
    words = " ".join(paced.words("result"))
    script = paced.folder / "inside.sh"
    script.write_text(f"#!/bin/bash\n{bare_python()} {driver} {told} &\nsrun {words} || exit\nwait $!\n")
    with Client(socket=str(paced.daemon.state / "ejbd.sock")) as client:
        job = client.submit(script=str(script), output=str(paced.folder / "out"), **paced.overrides("4:8m,16:1m")).id
    paced.ended_well("result", job, 200)
    assert paced.epochs(job) == [4, 16, 4], paced.daemon.trace(job)
    found = json.loads(told.read_text())
    assert "wider than the job" in found.pop("too wide")
    assert found == {"ejbd": False, "init": 4, "expand": [True, 16], "again": True, "contract": 4, "done": 4}
    asked = [e for e in paced.daemon.events(job) if e["kind"] == "decision.evolve"]
    assert len([e for e in asked if "replaced" in e["data"]["reason"]]) == 2, "the same call twice is one"


def is_told_in_time(paced: Paced, until_busy: str) -> None:
    """What cannot be had now is told within its time-out, and the program runs on to its end."""
    ejb, said = Path(sys.executable).parent / "ejb", paced.folder / "said"
    words = " ".join(paced.words("result"))
    script = paced.folder / "late.sh"
    script.write_text(
        f"#!/bin/bash\n(\n{ejb} elastic init --json >{said}.init\n{until_busy}\n"
        f"{ejb} elastic expand 16 --wait 1 >{said} 2>{said}.late; echo $? >{said}.code\n"
        f"{ejb} elastic contract 4; {ejb} elastic done\n) &\nsrun {words} || exit\nwait $!\n"
    )
    with Client(socket=str(paced.daemon.state / "ejbd.sock")) as client:
        job = client.submit(script=str(script), output=str(paced.folder / "out"), **paced.overrides("4:8m,16:1m")).id
    paced.ended_well("result", job, 200)
    assert json.loads(Path(f"{said}.init").read_text())["most"] == 16
    assert Path(f"{said}.code").read_text() == "124\n", Path(f"{said}.late").read_text()
    assert "does not hold 16 places after 1 s; the request stays" in Path(f"{said}.late").read_text()
    assert paced.epochs(job) == [4]
