"""Engine `profile` of a real worker process: an application with a state of its own goes on at another width."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ejbd.profiles.reading import parse
from tests.acceptance.sites import small_file_system
from tests.fakes.field_profile import PROGRAM, TEXT, total
from tests.fakes.worker_process import World, alive, eventually, world

STEPS = 60


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        value.start()
        yield value


class Application:
    """The program in the spool's folder, launched by its profile."""

    def __init__(self, there: World, *words: str, text: str = TEXT, pace: str = "0.1") -> None:
        self.there, self.epoch = there, 0
        self.profile = parse(text, "test.toml")[0].model_dump(mode="json")
        self.argv = [sys.executable, str(PROGRAM), str(STEPS), pace, *words]

    def launch(self, ranks: int, restart: int | None = None) -> dict[str, Any]:
        self.epoch += 1
        file = self.there.launch_file(*self.argv, size=3)
        payload = self.there.launch_payload(file, ranks=ranks, epoch=self.epoch, engine="profile", restart=restart)
        return self.there.manager.run("launch", {**payload, "profile": self.profile}, epoch=self.epoch)

    def begin(self, ranks: int, restart: int | None = None) -> None:
        result = self.launch(ranks, restart)
        assert result["ok"], result
        eventually(lambda: self.steps() > 0)

    def steps(self) -> int:
        return self.there.rank_output(0, self.epoch).count("step ")

    def stop(self, timeout_s: float = 30) -> dict[str, Any]:
        return self.there.manager.run("checkpoint", {"epoch": self.epoch, "timeout_s": timeout_s})

    def state(self) -> int:
        return int(json.loads((self.there.spool / "state.json").read_text())[0])


def test_it_goes_on_at_two_other_widths_and_its_result_is_the_same(there: World) -> None:
    one = Application(there)
    one.begin(1)
    stopped = one.stop()
    assert stopped["ok"] and stopped["data"]["exits"] == {"0": 85} and stopped["data"]["bytes"]["0"] > 0, stopped
    one.begin(3, restart=1)
    stopped = one.stop()
    assert stopped["ok"] and stopped["data"]["exits"] == {"0": 85, "1": 85, "2": 85}, stopped
    one.begin(2, restart=2)
    assert there.exits(2) == {0: 0, 1: 0}
    assert (there.spool / "result.txt").read_text() == total(STEPS)
    assert (there.spool / "prepared").read_text() == "1 to 3\n3 to 2\n", "once before each"
    told = [float(word) for word in (there.job_dir / "launches" / "0.progress").read_text().split()]
    assert 0 < told[0] <= STEPS and told[1] == STEPS, "its log tells its progress"


APPTAINER = """#!/bin/sh
# As apptainer has it: the folder is there by the same name; with --cleanenv the container has what is passed on alone.
[ "$1 $2 $3 $4" = "exec --cleanenv --bind /data" ] && [ "$5" = field.sif ] || exit 98
shift 5
echo "$1" >>containers
set -- PATH="$PATH" IN_CONTAINER=1 EJB_SIZE="$APPTAINERENV_EJB_SIZE" \\
    ${APPTAINERENV_EJB_RESTART_DIR:+EJB_RESTART_DIR="$APPTAINERENV_EJB_RESTART_DIR"} \\
    EJB_RANK="$EJB_RANK" PMI_RANK="$PMI_RANK" "$@"
exec env -i "$@"
"""


def test_a_program_in_a_container_goes_on_in_it_and_so_is_what_prepares_it(there: World) -> None:
    apptainer = there.spool / "bin" / "apptainer"
    apptainer.parent.mkdir()
    apptainer.write_text(APPTAINER)
    apptainer.chmod(0o755)
    one = Application(there, text=TEXT.replace(">> prepared", "in $IN_CONTAINER >> prepared"))
    one.argv = [str(apptainer), "exec", "--cleanenv", "--bind", "/data", "field.sif", *one.argv]
    one.begin(1)
    stopped = one.stop()
    assert stopped["ok"] and stopped["data"]["exits"] == {"0": 85}, stopped
    one.begin(2, restart=1)
    assert there.exits(2) == {0: 0, 1: 0}
    assert (there.spool / "result.txt").read_text() == total(STEPS)
    assert (there.spool / "prepared").read_text() == "1 to 2 in 1\n", "in the same container"
    started = (there.spool / "containers").read_text().splitlines()
    assert started == [sys.executable, "sh", sys.executable, sys.executable]


def test_a_program_behind_wrappers_goes_on_behind_them_and_is_told_to_stop_itself(there: World) -> None:
    one = Application(there, text=TEXT.replace(">> prepared", "with $WITH >> prepared"))
    time = there.spool / "time"  # as a program of that name does, which need not be installed
    time.write_text('#!/bin/sh\nshift\n"$@"\ncode=$?\necho real 1.0 >&2\nexit $code\n')
    time.chmod(0o755)
    one.argv = ["env", "WITH=1", str(time), "-p", one.argv[0], "-uB", *one.argv[1:]]
    one.begin(1)
    stopped = one.stop()
    assert stopped["ok"] and stopped["data"]["exits"] == {"0": 85}, stopped
    one.begin(2, restart=1)
    assert there.exits(2) == {0: 0, 1: 0}
    assert (there.spool / "result.txt").read_text() == total(STEPS)
    assert (there.spool / "prepared").read_text() == "1 to 2 with 1\n"
    assert "real " in there.rank_output(0, 2, "err")


def test_a_code_that_is_above_all_signals_is_the_programs_own(there: World) -> None:
    """pw.x may leave with 255 where it is told to stop."""
    one = Application(there, "code=255", text=TEXT.replace("codes = [85]", "codes = [2, 255]"))
    one.begin(1)
    stopped = one.stop()
    assert stopped["ok"] and stopped["data"]["exits"] == {"0": 85}, stopped


def test_a_resume_that_fails_and_spoils_its_state_goes_back_with_the_state_as_it_was(there: World) -> None:
    one = Application(there, "spoils=3")
    one.begin(2)
    assert one.stop()["ok"]
    at = one.state()
    assert one.launch(3, restart=1)["ok"]
    assert 1 in there.exits(1).values(), "it does not go on with three ranks"
    assert (there.spool / "state.json").read_text() == "spoiled"
    there.manager.run("stop", {"epoch": 2, "grace_s": 0.5})
    one.begin(2, restart=1)
    first = next(line for line in there.rank_output(0, 3).splitlines() if line.startswith("step "))
    assert first == f"step {at + 1}"
    assert one.stop()["ok"] and one.state() > at


def test_what_ends_when_it_is_told_to_stop_has_finished(there: World) -> None:
    one = Application(there, "silent=1")
    one.argv[3] = "0.02"
    one.begin(1)
    found = one.stop()
    assert not found["ok"] and found["data"]["exits"] == {"0": 0} and "had finished" in found["error"], found
    assert (there.spool / "result.txt").read_text() == total(STEPS)


def test_a_stop_that_takes_longer_than_the_grace_is_killed_and_judged_by_its_checkpoint(there: World) -> None:
    one = Application(there, "hangs=600", text=TEXT.replace("grace_s = 20", "grace_s = 1"))
    one.begin(2)
    found = one.stop()
    assert found["ok"] and found["data"]["exits"] == {"0": 85, "1": 85}, found
    one.begin(1, restart=1)


def test_without_a_checkpoint_what_was_killed_after_its_grace_has_failed(there: World) -> None:
    one = Application(there, "silent=1", text=TEXT.replace("grace_s = 20", "grace_s = 0.5"), pace="20")
    assert one.launch(1)["ok"]
    eventually(lambda: "steps" in there.rank_output(0, 1))
    found = one.stop()
    assert not found["ok"] and "not stopped" in found["error"] and found["data"]["killed"] == [0], found


def test_a_stop_file_that_was_left_over_is_removed_before_a_launch_and_after_a_stop(there: World) -> None:
    text = TEXT.replace('stop = { signal = "USR1", to = "ranks" }', 'stop = { file = "STOP" }')
    stale = there.spool / "STOP"
    stale.touch()
    one = Application(there, text=text)
    one.begin(2)
    assert not stale.exists()
    assert one.stop()["ok"] and not stale.exists()


def test_code_0_alone_is_no_end_once_it_was_resumed(there: World) -> None:
    one = Application(there, "code=0", text=TEXT.replace("codes = [85]", "codes = [0, 85]"))
    one.begin(1)
    assert one.stop()["ok"]
    one.begin(2, restart=1)
    (there.spool / "STOP").touch()  # not by EJB
    assert there.exits(2)[0] == 85
    (said,) = there.manager.of_kind("log")
    assert "it has stopped itself, and has not finished" in said["message"]


def test_what_ends_by_itself_at_its_first_start_ends_with_its_own_code(there: World) -> None:
    """Its success line is nowhere (in another log, say), or it was stopped by its user: as under the batch system."""
    one = Application(there, text=TEXT.replace("^done at step", "^never said"), pace="0.01")
    assert one.launch(1)["ok"]
    assert there.exits(1) == {0: 0}
    stopped = Application(there, "code=0", text=TEXT.replace("codes = [85]", "codes = [0, 85]"))
    (there.spool / "result.txt").unlink()
    stopped.epoch = 1
    stopped.begin(1)
    (there.spool / "STOP").touch()
    assert there.exits(2) == {0: 0}
    assert there.manager.of_kind("log") == []


def test_state_that_cannot_be_copied_goes_on_at_its_own_width_alone(there: World) -> None:
    one = Application(there)
    one.begin(2)
    assert one.stop()["ok"]
    blocked = there.epoch_dir(1) / "checkpoint" / "state.begun"
    blocked.write_text("in the way")  # as a full disk is
    failed = one.launch(3, restart=1)
    assert not failed["ok"] and "cannot be copied, so that it does not go on with another number" in failed["error"]
    assert not (failed.get("data") or {}).get("code"), "not the program's fault"
    one.begin(2, restart=1)
    assert one.stop()["ok"]


def test_a_disk_that_is_full_during_the_copy_leaves_no_part_of_it_and_the_state_as_it_was(there: World) -> None:
    one = Application(there, text=TEXT.replace('["state.json"]', '["state.json", "field.*"]'))
    one.begin(2)
    assert one.stop()["ok"]
    (there.spool / "field.dat").write_bytes(os.urandom(300_000))
    checkpoint = there.epoch_dir(1) / "checkpoint"
    record = (checkpoint / "stopped.json").read_text()
    shutil.rmtree(checkpoint)
    with small_file_system(checkpoint, "128k"):
        (checkpoint / "stopped.json").write_text(record)
        failed = one.launch(3, restart=1)
        assert not failed["ok"] and "No space left on device" in failed["error"], failed
        assert sorted(path.name for path in checkpoint.iterdir()) == ["stopped.json"], "a copy is whole or not there"
        one.begin(2, restart=1)
        assert one.stop()["ok"], "at its own width it goes on"


def test_a_preparation_that_fails_leaves_nothing_running_and_the_state_as_it_was(there: World) -> None:
    one = Application(there, text=TEXT.replace("echo {before} to {ranks} >> prepared", "rm state.json && false"))
    one.begin(2)
    assert one.stop()["ok"]
    at = one.state()
    failed = one.launch(1, restart=1)
    assert not failed["ok"] and "failed with code 1" in failed["error"]
    one.begin(2, restart=1)
    assert one.stop()["ok"] and one.state() >= at


def test_a_launch_that_is_given_up_in_its_preparation_leaves_nothing(there: World) -> None:
    mark = there.spool / "pid"
    one = Application(there, text=TEXT.replace("echo {before} to {ranks} >> prepared", f"echo $$ > {mark}; sleep 600"))
    one.begin(2)
    assert one.stop()["ok"]
    one.epoch += 1
    file = there.launch_file(*one.argv, size=3)
    payload = there.launch_payload(file, ranks=1, epoch=2, engine="profile", restart=1)
    there.manager.send("launch", {**payload, "profile": one.profile}, epoch=2)
    eventually(lambda: mark.exists() and mark.read_text().strip())
    there.manager.run("stop", {"epoch": 2, "grace_s": 0.5})
    eventually(lambda: not alive(int(mark.read_text())))


def test_a_checkpoint_without_its_record_is_spoiled(there: World) -> None:
    one = Application(there)
    one.begin(1)
    assert one.stop()["ok"]
    (there.epoch_dir(1) / "checkpoint" / "stopped.json").unlink()
    failed = one.launch(2, restart=1)
    assert not failed["ok"] and failed["data"]["spoiled"]


def test_an_mpirun_of_another_version_is_not_spread(there: World) -> None:
    """Of a launch whose ranks are on several workers; its daemons are started by other means than EJB knows."""
    mpirun = there.spool / "mpirun"
    mpirun.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 3.1.6'\n")
    mpirun.chmod(0o755)
    one = Application(there)
    one.epoch += 1
    file = there.launch_file(*one.argv, size=2)
    payload = there.launch_payload(file, ranks=1, epoch=1, engine="profile")
    launcher = {"argv": [str(mpirun), "-np", "2"], "env": {}, "host": "ejb-w1", "hosts": ["ejb-w1", "ejb-w2"]}
    failed = there.manager.run("launch", {**payload, "size": 2, "profile": one.profile, "launcher": launcher}, epoch=1)
    assert not failed["ok"] and "is Open MPI 3: its ranks stay on one node" in failed["error"], failed
    assert failed["data"] == {"one_node": True}
