"""What profiles do: state is copied and put back, and `ejb profile test` finds out what is wrong with one."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest

from ejbd._workers.ejb_worker.profiles.since import from_json, note_logs
from ejbd._workers.ejb_worker.profiles.starting import Start
from ejbd._workers.ejb_worker.profiles.state import copy_state, newest, put_back, state_files
from ejbd.profiles.acts.running import begin
from ejbd.profiles.acts.trying import Trial, try_profile
from ejbd.profiles.profile import Profile
from ejbd.profiles.reading import SHIPPED, parse, read_all
from tests.fakes.ejb_sim import ejb_command
from tests.fakes.field_profile import PROGRAM, TEXT


def profile(*changes: tuple[str, str]) -> Profile:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse(text, "test.toml")[0]


def tried(tmp_path: Path, one: Profile, *words: str, widths: tuple[int, int] = (2, 1)) -> Trial:
    case = tmp_path / "case"
    case.mkdir(exist_ok=True)
    command = [sys.executable, str(PROGRAM), "60", "0.02", *words]
    return try_profile(one, command, case, tmp_path / "scratch", widths, longest_s=60.0)


def test_of_a_log_that_goes_on_from_an_earlier_place_all_that_is_new_counts(tmp_path: Path) -> None:
    """As GROMACS has it: what stands behind its checkpoint is cut off, and a quick end is shorter than that was."""
    gromacs, values = read_all([SHIPPED])["gromacs"], {"deffnm": "md", "log": "md.log"}
    log, kept = tmp_path / "md.log", "step 0\nReceived the INT signal, stopping within 20 steps\nstep 20\n"
    log.write_text(kept + "averages\n" * 50)
    since = from_json(note_logs(gromacs, tmp_path, values, "mark").to_json())
    assert since.texts(gromacs, tmp_path, values, tmp_path / "out")["md.log"] == ""
    new = "restarting\nReceived the TERM signal, stopping within 20 steps\n"
    with log.open("r+") as file:
        file.truncate(len(kept))
        file.seek(len(kept))
        file.write(new)
    assert since.texts(gromacs, tmp_path, values, tmp_path / "out")["md.log"] == new
    with log.open("a") as file:
        file.write("averages\n" * 80)
    assert since.texts(gromacs, tmp_path, values, tmp_path / "out")["md.log"] == new + "averages\n" * 80


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "stands_in", "words"),
    [
        (
            "apptainer",
            '[ "$1 $2 $3" = "exec --cleanenv m.sif" ] && shift 3 || exit 98\n'
            'exec env IN=1 EJB_SIZE="$APPTAINERENV_EJB_SIZE" "$@"\n',
            ["exec", "--cleanenv", "m.sif"],
        ),
        # As Charliecloud's does: a relative folder would be one of the image's root.
        ("ch-run", 'cd / && cd "$2" || exit 98\nshift 4\nexec env IN=1 "$@"\n', ["--cd", ".", "img", "--"]),
    ],
)
def test_a_program_in_a_container_is_tried_in_it(tmp_path: Path, tool: str, stands_in: str, words: list[str]) -> None:
    container = tmp_path / tool
    container.write_text("#!/bin/sh\n" + stands_in)
    container.chmod(0o755)
    one = profile((">> prepared", "in $IN >> prepared"))
    (tmp_path / "case").mkdir()
    command = [str(container), *words, sys.executable, str(PROGRAM), "60", "0.02"]
    found = try_profile(one, command, tmp_path / "case", tmp_path / "scratch", (2, 1), longest_s=60.0)
    assert found.wrong == [], found.wrong
    prepared = [path.read_text() for path in (tmp_path / "scratch").rglob("prepared")]
    assert prepared == ["2 to 1 in 1\n1 to 2 in 1\n"]


@pytest.mark.slow
def test_a_right_profile_comes_through_at_three_widths_bit_for_bit(tmp_path: Path) -> None:
    trial = tried(tmp_path, profile())
    assert trial.wrong == [] and trial.compared == "result.txt: bit for bit the same"
    assert [(part.ranks, part.verdict) for part in trial.parts] == [(2, "stopped"), (1, "stopped"), (2, "finished")]
    assert all(part.stop_s is not None and part.copy_s is not None for part in trial.parts[:2])
    assert trial.parts[0].state_bytes > 0
    assert (tmp_path / "scratch" / "chain" / "prepared").read_text() == "2 to 1\n1 to 2\n", "once before each"
    assert not list((tmp_path / "case").iterdir()), "the case stays as it is"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "words", "says"),
    [
        ([('line = "^done at step"', 'line = "^all is done"')], [], "it is not seen to finish"),
        ([], ["spoils=1"], "it does not go on with 1 ranks"),
        ([], ["silent=1"], "with 2 ranks: it ended with signal 9 after the grace"),
        ([("codes = [85]", "codes = [0]")], ["code=3"], "the code is 3"),
        ([('"state.json"', '"states.*"')], [], "it left no state"),
        ([('"result.txt"', '"other.txt"')], [], "other.txt is not there"),
    ],
    ids=["no line", "spoils its state", "hears nothing", "another code", "no state", "no result"],
)
def test_a_wrong_profile_fails_in_the_trial(
    tmp_path: Path, changes: list[tuple[str, str]], words: list[str], says: str
) -> None:
    quick = [("grace_s = 20", "grace_s = 0.1")] if "silent=1" in words else []
    trial = tried(tmp_path, profile(*changes, *quick), *words)
    assert len(trial.wrong) == 1 and says in trial.wrong[0], trial.wrong


@pytest.mark.slow
def test_a_resume_that_spoils_its_state_has_it_put_back(tmp_path: Path) -> None:
    tried(tmp_path, profile(), "spoils=1")
    step, _ = json.loads((tmp_path / "scratch" / "chain" / "state.json").read_text())
    assert step > 0


@pytest.mark.slow
def test_one_that_hangs_after_its_checkpoint_is_killed_and_has_stopped(tmp_path: Path) -> None:
    trial = tried(tmp_path, profile(("grace_s = 20", "grace_s = 1")), "hangs=300")
    assert trial.wrong == [] and trial.parts[0].verdict == "stopped"


@pytest.mark.slow
def test_a_stop_file_that_was_left_over_is_taken_away_before_a_launch(tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "STOP").touch()
    trial = tried(tmp_path, profile(('signal = "USR1", to = "ranks"', 'file = "STOP"')), "code=0")
    assert len(trial.wrong) == 1 and "with 2 ranks: it ended with code 0: not finished" in trial.wrong[0]
    assert trial.alone is not None and trial.alone.verdict == "finished"


def test_the_state_is_copied_whole_or_not_at_all(tmp_path: Path) -> None:
    case, kept = tmp_path / "case", tmp_path / "kept"
    (case / "processor0" / "0.1").mkdir(parents=True)
    (case / "processor0" / "0.1" / "p").write_text("1 2 3")
    (case / "md.cpt").write_text("first")
    patterns = ["processor*", "md*.cpt", "none.*"]
    assert copy_state(case, patterns, kept) == 10
    (case / "md.cpt").write_text("spoiled")
    (case / "md_new.cpt").write_text("new")
    shutil.rmtree(case / "processor0")
    put_back(case, patterns, kept)
    assert (case / "md.cpt").read_text() == "first" and not (case / "md_new.cpt").exists()
    assert (case / "processor0" / "0.1" / "p").read_text() == "1 2 3"

    (case / "md.cpt").write_text("second")
    full = OSError(28, "No space left on device")
    with patch("os.fsync", side_effect=full), pytest.raises(OSError, match="No space"):
        copy_state(case, patterns, kept)
    assert (kept / "md.cpt").read_text() == "first", "the copy of before is whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["case", "kept"]


@pytest.mark.slow
def test_what_is_killed_leaves_no_process_in_a_group_of_its_own(tmp_path: Path) -> None:
    """Open MPI's mpirun gives each rank one."""
    words = ["sh", "-c", "setsid sleep 600 & echo started; wait"]
    run = begin(profile(), (), Start((), words, {}, None), tmp_path, {}, tmp_path / "out")
    try:
        end = time.monotonic() + 60.0
        below: list[psutil.Process] = []
        while not any(one.name() == "sleep" for one in below):
            assert time.monotonic() < end, "it does not start"
            below = psutil.Process(run.process.pid).children(recursive=True)
    finally:
        run.kill()
    gone, alive = psutil.wait_procs(below, timeout=180.0)
    assert gone and not alive


def test_the_newest_state_is_the_one_that_was_written_last(tmp_path: Path) -> None:
    for at, name in enumerate(("melt.r2", "melt.r1")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ns=(at, at))
    found = state_files(tmp_path, ["melt.r*"])
    assert newest(found) == tmp_path / "melt.r1" and newest([]) is None


@pytest.mark.slow
def test_the_command_lists_checks_and_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "ejb" / "profiles"
    folder.mkdir(parents=True)
    (folder / "field.toml").write_text(TEXT)
    assert "field" in ejb_command("profile", "list").stdout
    assert json.loads(ejb_command("profile", "show", "field", "--json").stdout)["grace_s"] == 20
    assert "field: right in form" in ejb_command("profile", "check").stdout
    refused = ejb_command("profile", "show", "fields", code=3)
    assert "no profile is called fields" in refused.stderr and "gromacs" in refused.stderr
    (tmp_path / "case").mkdir()
    words = ["--case", str(tmp_path / "case"), "--widths", "2,1", "--json", "--", sys.executable, str(PROGRAM)]
    found = json.loads(ejb_command("profile", "test", "field", *words, "40", "0.06").stdout)
    assert found["wrong"] == [] and len(found["parts"]) == 3
    assert ejb_command("profile", "test", "field", *words, "40", "0.06", "spoils=1", code=1).stdout
    bad = ejb_command("profile", "test", "field", "--widths", "2", "--", "true", code=2)
    assert "--widths 2 are not two widths" in bad.stderr
    (folder / "bad.toml").write_text("[x]\nstate = 1\n")
    assert "bad.toml: the profile x" in ejb_command("profile", "check", code=2).stderr
