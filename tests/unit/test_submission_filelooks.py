"""A flood of submissions looks at files once: a job of which no file can say anything has no look of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.files.userfiles import apart
from ejbd.manager.jobspec import JobRequest, Overrides, Reading, read
from ejbd.manager.submission.filelooks import FRESH_S, FileLooks

OWN = """
[mine]
match = { program = ["quench-*"] }
stop = { signal = "USR1" }
stopped = { codes = [85], code_alone = true }
finished = { codes = [0], code_alone = true }
state = ["state.dat"]
"""


class Counted:
    """Looks of a daemon of one user, whose profiles are in `folder`, at times that a test says."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.now = 0, 100.0
        self.files = FileLooks(own=True, now=lambda: self.now)
        self.folder = folder / "config" / "ejb" / "profiles"
        self.folder.mkdir(parents=True)

        async def counted(work: Any, patience_s: float, user: str) -> Any:
            self.begun += 1
            return await apart(work, patience_s, user)

        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setattr("ejbd.manager.submission.filelooks.apart", counted)


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(tmp_path, monkeypatch)


def script(tmp_path: Path, line: str, **said: Any) -> Reading:
    text = f"#!/bin/sh\n#SBATCH -n 4 -t 10\n{line}\n"
    found = read(JobRequest(cwd=str(tmp_path), script=text, overrides=Overrides()))
    return replace(found, spec=replace(found.spec, engine="auto", **said))


async def test_of_many_scripts_one_is_looked_at(looks: Counted, tmp_path: Path) -> None:
    for _ in range(9):
        assert (await looks.files.at(script(tmp_path, "srun ./heat"))).spec.profile is None
    assert looks.begun == 1


async def test_a_program_that_a_profile_may_be_for_is_always_looked_at(looks: Counted, tmp_path: Path) -> None:
    (looks.folder / "own.toml").write_text(OWN)
    for _ in range(3):
        found = await looks.files.at(script(tmp_path, "srun ./quench-heat"))
        assert found.spec.profile is not None and found.spec.profile["name"] == "mine"
    assert looks.begun == 3


async def test_a_profile_that_has_just_been_written_counts_a_moment_later(looks: Counted, tmp_path: Path) -> None:
    job = script(tmp_path, "srun ./quench-heat")
    assert (await looks.files.at(job)).spec.profile is None
    (looks.folder / "own.toml").write_text(OWN)
    looks.now += FRESH_S
    assert (await looks.files.at(job)).spec.profile is not None


@pytest.mark.parametrize("said", [{"engine": "profile"}, {"engine": "application"}, {"pbs": True}])
async def test_what_only_files_can_say_is_looked_at_each_time(
    looks: Counted, tmp_path: Path, said: dict[str, Any]
) -> None:
    await looks.files.at(script(tmp_path, "srun ./heat"))
    job = script(tmp_path, "srun ./heat")
    job = replace(job, spec=replace(job.spec, **said))
    await looks.files.at(job)
    await looks.files.at(job)
    assert looks.begun == 3


async def test_a_container_that_shows_no_program_is_looked_at_each_time(looks: Counted, tmp_path: Path) -> None:
    await looks.files.at(script(tmp_path, "srun ./heat"))
    found = await looks.files.at(script(tmp_path, "srun podman run img ./heat"))
    assert looks.begun == 2 and any("no profile is taken" in note for note in found.notes)


async def test_a_script_that_launches_nothing_is_not_looked_at(looks: Counted, tmp_path: Path) -> None:
    await looks.files.at(script(tmp_path, "./heat"))
    assert looks.begun == 0
