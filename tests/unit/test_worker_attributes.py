"""What a rank has of the process that launched it: umask, resource limits, niceness."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from ejbd.batch.base import LIMITS as SITES_LIMITS
from workers.ejb_worker.attributes import (
    LIMITS,
    Attributes,
    Propagation,
    attributes_handed_on,
    attributes_of,
    parse_limits,
    read_own_attributes,
)

HELD = {"umask": 0o77, "limits": {name: [10, 20] for name in LIMITS}, "nice": 5}
SOFT, BOTH = [10, None], [10, 20]


def test_the_daemon_and_the_worker_know_the_same_limits() -> None:
    assert set(LIMITS) == set(SITES_LIMITS)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("all", list(LIMITS)),
        ("ALL,STACK", list(LIMITS)),
        ("NONE", []),
        ("NONE,STACK", []),
        ("STACK,NOFILE", ["nofile", "stack"]),
    ],
)
def test_limits_are_named_as_slurm_names_them(text: str, limits: list[str]) -> None:
    assert parse_limits(text) == limits


@pytest.mark.parametrize("text", ["", "STAX", "STACK,", "RLIMIT_STACK"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_limits(text)


@pytest.mark.parametrize(
    ("launcher", "asked", "site", "limits", "nice"),
    [
        ("srun", None, None, dict.fromkeys(LIMITS, SOFT), None),
        ("srun", None, Propagation(["stack", "core"]), {"stack": SOFT, "core": SOFT}, None),
        ("srun", None, Propagation([]), {}, None),
        ("srun", ["nofile"], Propagation([]), {"nofile": SOFT}, None),
        ("srun", [], Propagation(LIMITS), {}, None),
        ("srun", None, Propagation([], nice=True), {}, 5),
        ("mpirun", None, Propagation(["stack"]), {"stack": SOFT}, None),  # srun starts its daemons
        ("mpirun", None, None, dict.fromkeys(LIMITS, BOTH), 5),
    ],
)
def test_a_launcher_hands_on_what_it_hands_on_there(
    launcher: str,
    asked: list[str] | None,
    site: Propagation | None,
    limits: dict[str, list[int | None]],
    nice: int | None,
) -> None:
    found = attributes_handed_on(launcher, HELD, asked, site)
    assert (found["umask"], found["limits"], found.get("nice")) == (0o77, limits, nice)


def test_tasks_of_the_batch_systems_own_daemon_have_what_that_gives_them() -> None:
    assert attributes_handed_on("pbsdsh", HELD, None, None) == {}


def test_a_process_reads_its_own() -> None:
    own = read_own_attributes()
    assert own["limits"]["nofile"] == list(resource.getrlimit(resource.RLIMIT_NOFILE))
    assert {name: own[name] for name in ("umask", "nice")} == attributes_of(os.getpid())


def started_with(told: dict[str, object]) -> tuple[list[str], str]:
    """What a process has that is started so: umask, niceness, soft and hard limit of files; and what it says."""
    program = "import os, resource as r; print(oct(os.umask(0)), os.getpriority(0, 0), *r.getrlimit(r.RLIMIT_NOFILE))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        preexec_fn=Attributes(told).set_here,
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    return done.stdout.split(), done.stderr


def test_no_hard_limit_is_raised_and_a_soft_one_up_to_it_alone() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    assert hard > 300, "the test has to be able to lower it"
    told = {"umask": 0o27, "limits": {"nofile": [hard + 1, hard + 2]}, "nice": nice + 1}
    assert started_with(told) == (["0o27", str(min(nice + 1, 19)), str(hard), str(hard)], "")
    assert started_with({"limits": {"nofile": [-1, None]}})[0][2:] == [str(hard), str(hard)]
    assert started_with({"limits": {"nofile": [200, 300]}})[0][2:] == ["200", "300"]
    assert started_with({"limits": {"nofile": [200, None]}})[0][2:] == ["200", str(hard)]


def test_a_limit_that_was_asked_for_and_cannot_be_is_said_as_slurm_says_it() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found, said = started_with({"limits": {"nofile": [hard + 1, None]}, "asked": ["nofile"]})
    assert found[2:] == [str(soft), str(hard)]
    refused = f"Can't propagate RLIMIT_NOFILE of {hard + 1} from submit host: Invalid argument"
    assert said == f"slurmstepd: error: {refused}\n"


@pytest.mark.parametrize(
    "told", [{"limits": {"speed": [1, 2]}}, {"limits": {"nofile": [1]}}, {"umask": "x"}, {"nice": "x"}]
)
def test_a_launch_file_that_says_something_else_starts_nothing(told: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Attributes(told)
