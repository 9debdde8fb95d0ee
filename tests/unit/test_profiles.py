"""Profiles: read, matched, filled in, judged; pure."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from ejbd._workers.ejb_worker.profiles.filling import edited, filled, with_options
from ejbd._workers.ejb_worker.profiles.judging import FAILED, FINISHED, STOPPED, Seen, how_far, judge
from ejbd._workers.ejb_worker.profiles.saying import profile_from
from ejbd._workers.ejb_worker.profiles.starting import start
from ejbd.errors import Code, EjbError
from ejbd.profiles.command import split
from ejbd.profiles.filling import values_of
from ejbd.profiles.profile import Profile
from ejbd.profiles.reading import SHIPPED, matching, parse, read_all

SHIPPED_PROFILES = read_all([SHIPPED])
LEAST = """
[mine]
match = { program = ["mine"] }
stop = { signal = "USR1" }
stopped = { codes = [85], line = "stopped after" }
finished = { line = "done" }
state = ["state.*"]
"""


def test_every_application_of_the_list_is_shipped_and_says_how_its_results_compare() -> None:
    assert set(SHIPPED_PROFILES) == {"gromacs", "lammps", "pwscf", "cp2k", "openfoam", "own", "torchrun"}
    assert all(one.says for one in SHIPPED_PROFILES.values())


def test_a_folder_that_is_not_to_be_entered_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, plain = tmp_path / "closed", Path.is_dir

    def refused(self: Path) -> bool:
        if self == closed:  # as `stat` below another user's HOME: root is refused nothing
            raise PermissionError(13, "Permission denied", str(self))
        return plain(self)

    monkeypatch.setattr(Path, "is_dir", refused)
    with pytest.raises(PermissionError):
        list(closed.glob("*.toml"))
    assert set(read_all([closed, SHIPPED])) == set(SHIPPED_PROFILES)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("mpirun -np 4 gmx_mpi mdrun -deffnm md", "gromacs"),
        ("srun -n 4 /usr/bin/lmp -in in.melt", "lammps"),
        ("srun pw.x -nk 2 -in si.in", "pwscf"),
        ("mpiexec -n 2 cp2k.psmp -i w.inp", "cp2k"),
        ("mpirun -np 2 icoFoam -parallel", "openfoam"),
        ("mpirun -np 2 python3 ejb-own-field.py", "own"),
        ("srun torchrun --nnodes=1:4 --nproc_per_node=1 train.py", "torchrun"),
        ("srun python3 -m torch.distributed.run --nnodes=1:4 train.py", "torchrun"),
        ("srun torchrun --nnodes 2 --nproc_per_node 2 --rdzv_endpoint n1:29500 train.py", None),
        ("srun torchrun --nnodes=2 --rdzv_endpoint=n1:29500 train.py", None),
        ("srun torchrun --nproc_per_node 2 train.py", None),
        ("python3 -m train", None),
        ("gmx grompp -f md.mdp", None),
        ("mpirun -np 2 decomposePar", None),
    ],
)
def test_a_launch_finds_its_profile_by_its_words(words: str, name: str | None) -> None:
    found = matching(split(words.split()).program, SHIPPED_PROFILES)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ('finished = { line = "done" }|finished = { codes = [0] }', "an exit code alone does not tell"),
        ('stop = { signal = "USR1" }|stop = { signal = "USR1", file = "STOP" }', "one of the two"),
        ('stop = { signal = "USR1" }|stop = { signal = "NOW" }', "'NOW' is no signal"),
        ('line = "done"|line = "(done"', "no regular expression"),
        ('"state.*"|"{deffnm}.cpt"', "{deffnm} is no name of this profile"),
        ('state = ["state.*"]|', "state: Field required"),
        ('state = ["state.*"]|state = ["s"]\nresumes = 1', "resumes: Extra inputs"),
        ('state = ["state.*"]|state = ["s"]\nenv = { EJB_SIZE = "9" }', "'EJB_SIZE' is no name of a variable"),
        ('state = ["state.*"]|state = ["s"]\nenv = { X = "{where}" }', "{where} is no name of this profile"),
        ('[mine]|mine = [', "is no TOML"),
    ],
)  # fmt: skip
def test_what_a_profile_may_not_say_is_told_in_one_sentence(change: str, says: str) -> None:
    old, new = change.split("|")
    with pytest.raises(EjbError) as refused:
        parse(LEAST.replace(old, new), "site.toml")
    assert says in str(refused.value) and "site.toml" in str(refused.value)
    assert refused.value.code is Code.INVALID


def test_the_user_comes_before_the_site_and_the_site_before_what_is_shipped(tmp_path: Path) -> None:
    mine, site = tmp_path / "mine", tmp_path / "site"
    mine.mkdir()
    site.mkdir()
    (site / "a.toml").write_text(LEAST + LEAST.replace("[mine]", "[own]"))
    (mine / "a.toml").write_text(LEAST.replace('"state.*"', '"other.*"'))
    found = read_all([mine, site, SHIPPED, tmp_path / "none"])
    assert found["mine"].state == ("other.*",) and found["own"].state == ("state.*",)
    assert found["own"].origin == str(site / "a.toml") and len(found) == len(SHIPPED_PROFILES) + 1


def test_the_width_is_put_where_the_launcher_or_the_program_counts() -> None:
    assert split(["mpirun", "-np", "4", "--bind-to", "none", "lmp", "-in", "x"]).at_width(3).words[:3] == (
        "mpirun",
        "-np",
        "3",
    )
    assert split(["srun", "--ntasks=4", "lmp"]).at_width(2).words == ("srun", "--ntasks=2", "lmp")
    assert split(["srun", "-c", "2", "-n", "4", "lmp"]).at_width(2).words == ("srun", "-c", "2", "-n", "2", "lmp")
    gromacs = start(SHIPPED_PROFILES["gromacs"], ["gmx", "mdrun", "-ntmpi", "{ranks}"], {}, ranks=2, before=2, epoch=1)
    assert "2" in gromacs.words


def test_torchrun_has_its_rendezvous_on_the_node_of_its_first_rank_anew_at_each_start() -> None:
    words = ["torchrun", "--nnodes=1:4", "train.py"]
    one = SHIPPED_PROFILES["torchrun"]
    told = profile_from(one.model_dump(mode="json"))
    for profile in (one, told):
        begun = start(profile, words, {}, ranks=2, before=3, epoch=4, endpoint=("n1", 29400))
        assert list(begun.words) == words and begun.env["EJB_SIZE"] == "2"
        assert begun.env["PET_RDZV_ENDPOINT"] == "n1:29400" and begun.env["PET_RDZV_ID"] == "ejb-4"


def test_options_are_put_in_the_place_of_the_same_ones() -> None:
    lammps = ["lmp", "-in", "x", "-var", "first", "1", "-log", "log.1"]
    found = with_options(lammps, ["-var", "first", "0", "-var", "resume", "melt.r1", "-log", "log.2"])
    assert " ".join(found) == "lmp -in x -var first 0 -log log.2 -var resume melt.r1"
    with pytest.raises(EjbError, match="no command"):
        split([])
    behind = ["apptainer", "exec", "-n", "--nv", "m.sif", "lmp", "-in", "x"]
    inside = split(["mpirun", "-np", "4", *behind])
    assert inside.program == ("lmp", "-in", "x")
    assert inside.at_width(2).words == ("mpirun", "-np", "2", *behind)
    with pytest.raises(EjbError, match="apptainer: it runs in /case"):
        split(["apptainer", "exec", "--pwd", "/case", "m.sif", "lmp"])


def test_names_come_from_options_and_from_lines_of_files() -> None:
    quantum = SHIPPED_PROFILES["pwscf"]
    files = {"si.in": "&control\n prefix = 'si', outdir='out'\n/\n"}

    def reads(path: str) -> str | None:
        return files.get(path)

    values = values_of(quantum, ["pw.x", "-in", "si.in"], reads)
    assert values == {"input": "si.in", "prefix": "si", "nstep": "50", "outdir": "out"}
    assert filled("rm {outdir}/{prefix}.wfc* {other}", {"outdir": "a b", "prefix": "si"}, for_shell=True) == (
        "rm 'a b'/si.wfc* {other}"
    )
    assert values_of(quantum, ["pw.x", "-nk", "2", "-i", "si.in"], reads) == values
    mine = LEAST.replace("[mine]", "[mine]\nnames = { input = { argument = 1 } }")
    third = Profile.model_validate(tomllib.loads(mine)["mine"])
    assert values_of(third, ["mb", "-q", "run.nex"], reads) == {"input": "run.nex"}
    with pytest.raises(EjbError, match="has no argument 1"):
        values_of(third, ["mb", "-q"], reads)
    with pytest.raises(EjbError, match="has no option -deffnm"):
        values_of(SHIPPED_PROFILES["gromacs"], ["gmx", "mdrun"], reads)


def test_an_input_is_edited_in_a_copy() -> None:
    text = "&control\n  restart_mode='from_scratch',\n  prefix='si'\n/\n"
    assert edited(text, {"restart_mode": "'restart'"}) == text.replace(
        "restart_mode='from_scratch',", "restart_mode = 'restart',"
    )
    assert edited("&control\n/\n", {"restart_mode": "'restart'"}) == "&control\n  restart_mode = 'restart'\n/\n"
    quantum, command = SHIPPED_PROFILES["pwscf"], ["pw.x", "-in", "si.in"]
    values = {"input": "si.in", "prefix": "si", "outdir": "."}
    first = start(quantum, command, values, ranks=2, before=None, epoch=1, input_text=text)
    assert first.input is None and first.words[-1] == "si.in" and first.prepare == ()
    same = start(quantum, command, values, ranks=2, before=2, epoch=2, input_text=text)
    assert same.prepare == () and same.words[-1] == "si.in.resumed"
    other = start(quantum, command, values, ranks=3, before=2, epoch=2, input_text=text)
    assert other.prepare == ("rm -f ./si.wfc* ./si.mix* ./si.restart_*",)
    assert other.input is not None and "'restart'" in other.input[1] and other.env["EJB_SIZE"] == "3"
    known = {**values, "nstep": "8"}
    inline = "&control\ncalculation='md', restart_mode = 'from_scratch', nstep = 8, dt = 5.0 ! nstep = 7\n/\n"
    for done, left in ((0.0, "8"), (5.0, "3"), (8.0, "1")):
        later = start(quantum, command, known, ranks=2, before=2, done=done, epoch=2, input_text=inline)
        assert later.input is not None and later.input[1].splitlines()[1] == (
            f"calculation='md', restart_mode = 'restart', nstep = {left}, dt = 5.0 ! nstep = 7"
        )


def test_gromacs_starts_as_it_is_written_and_one_rank_of_openfoam_is_not_parallel() -> None:
    gromacs = ["gmx_mpi", "mdrun", "-deffnm", "md"]
    first = start(SHIPPED_PROFILES["gromacs"], gromacs, {"deffnm": "md"}, ranks=2, before=None, epoch=1)
    assert first.words == tuple(gromacs), "a file that an earlier run left is not gone on from"
    later = start(SHIPPED_PROFILES["gromacs"], gromacs, {"deffnm": "md"}, ranks=2, before=4, epoch=2)
    assert later.words[-2:] == ("-cpi", "md.cpt")
    foam = ["icoFoam", "-parallel"]
    alone = start(SHIPPED_PROFILES["openfoam"], foam, {"endTime": "1"}, ranks=1, before=2, epoch=2)
    assert alone.words == ("icoFoam",)


FOAM_TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >> calls
case "$*" in *method*) echo "method          $4;" > system/decomposeParDict ;; esac
! { test "$(basename "$0")" = decomposePar && grep -q scotch system/decomposeParDict; }
"""


def test_openfoam_without_scotch_is_cut_into_slices_and_scotch_is_not_tried_at_each_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "decomposeParDict").write_text("method          simple;\n")
    for name in ("foamDictionary", "decomposePar", "reconstructPar"):
        (tmp_path / name).write_text(FOAM_TOOL)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tried = []
    for before in (None, 2):
        (tmp_path / "calls").unlink(missing_ok=True)
        made = start(SHIPPED_PROFILES["openfoam"], ["icoFoam"], {"endTime": "1"}, ranks=3, before=before, epoch=1)
        for line in made.prepare:
            subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True, timeout=180)
        calls = (tmp_path / "calls").read_text()
        assert "{ n (3 1 1); }" in calls and calls.endswith("decomposePar -force -latestTime\n"), calls
        tried.append("scotch" in calls)
    assert tried == [True, False]


# What was seen of each: (profile, code, log, words since the launch, values) -> the verdict.
ENDS = [
    ("gromacs", 1, "md.log", "Received the TERM signal, stopping within 80 steps", STOPPED),
    ("gromacs", 0, "md.log", "Run time exceeded 0.001 hours, will terminate the run within 80 steps", STOPPED),
    ("gromacs", 0, "md.log", "Finished mdrun on rank 0 Tue", FINISHED),
    ("gromacs", 1, "md.log", "Fatal error:\nappending needs its own log", FAILED),
    ("lammps", 0, "stdout", "DONE step 380 stopped 1", STOPPED),
    ("lammps", 0, "stdout", "DONE step 2000 stopped 0", FINISHED),
    ("lammps", 0, "stdout", "", FAILED),
    ("pwscf", 2, "stdout", "Calculation stopped in scf loop at iteration #  3", STOPPED),
    ("pwscf", 255, "stdout", "Program stopped by user request\n JOB DONE.", STOPPED),
    ("pwscf", 0, "stdout", "     JOB DONE.", FINISHED),
    ("pwscf", 1, "stdout", "Error in routine davcio (10)", FAILED),
    ("cp2k", 0, "stdout", "MD run terminated by external request\nPROGRAM ENDED AT", STOPPED),
    ("cp2k", 0, "stdout", "PROGRAM ENDED AT", FINISHED),
    ("openfoam", 0, "stdout", "Time = 0.2\n\nTime = 0.31\n\nEnd\n", STOPPED),
    ("openfoam", 0, "stdout", "Time = 0.2\n\nTime = 0.5\n\nEnd\n", FINISHED),
    ("openfoam", 1, "stdout", "number of processor directories = 2 is not equal to", FAILED),
    ("own", 0, "stdout", "", FINISHED),
    ("own", 85, "stdout", "", STOPPED),
    ("own", 1, "stdout", "", FAILED),
]  # fmt: skip
VALUES = {"deffnm": "md", "log": "md.log", "endTime": "0.5"}


@pytest.mark.parametrize(("name", "code", "log", "text", "verdict"), ENDS)
def test_ends_are_told_apart_as_they_were_seen(name: str, code: int, log: str, text: str, verdict: str) -> None:
    found = judge(SHIPPED_PROFILES[name], Seen(code, {log: text}, asked=True), VALUES)
    assert found.verdict == verdict, found.why


def test_a_stop_is_judged_by_its_checkpoint_also_where_it_had_to_be_killed() -> None:
    gromacs, line = SHIPPED_PROFILES["gromacs"], "Received the TERM signal, stopping within 80 steps"
    killed = Seen(-9, {"md.log": line}, asked=True, killed=True)
    assert judge(gromacs, killed, VALUES).verdict is STOPPED
    none = judge(gromacs, Seen(-9, {"md.log": ""}, asked=True, killed=True), VALUES)
    assert none.verdict is FAILED and "after the grace" in none.why
    own = judge(SHIPPED_PROFILES["own"], Seen(-9, {}, asked=True, killed=True), VALUES)
    assert own.verdict is FAILED, "nothing tells that its state was written"


def test_a_value_without_its_option_may_be_made_of_names_above_it() -> None:
    words = ["gmx", "mdrun", "-deffnm", "md"]
    assert values_of(SHIPPED_PROFILES["gromacs"], words, lambda _: None)["log"] == "md.log"
    assert values_of(SHIPPED_PROFILES["gromacs"], [*words, "-g", "a.log"], lambda _: None)["log"] == "a.log"


def test_a_file_tells_an_end_if_it_was_written_since_the_launch() -> None:
    text = LEAST.replace('finished = { line = "done" }', 'finished = { file = "result" }')
    profile = Profile.model_validate(tomllib.loads(text)["mine"])
    assert judge(profile, Seen(0, {}), {}).verdict is FAILED
    assert judge(profile, Seen(0, {}, frozenset({"result"})), {}).verdict is FINISHED


def test_how_far_it_is_is_what_the_log_said_last() -> None:
    about = SHIPPED_PROFILES["gromacs"].progress
    assert about is not None
    text = "   nsteps                         = 2500\n           Step           Time\n            400        0.8\n"
    assert how_far(about, {"md.log": text}, VALUES) == (400.0, 2500.0)
    quantum = SHIPPED_PROFILES["pwscf"].progress
    assert quantum is not None
    head, iteration = "     nstep                     =           60\n", "     iteration #  7     ecut=    30.00 Ry\n"
    dynamics = f"{head}{iteration}     Entering Dynamics:    iteration =     5\n{iteration}"
    assert how_far(quantum, {"stdout": dynamics}, {}) == (5.0, 60.0), "and not the iteration of an SCF"
    relaxes = f"{head}{iteration}     number of scf cycles    =   3\n     number of bfgs steps    =   2\n{iteration}"
    assert how_far(quantum, {"stdout": relaxes}, {}) == (3.0, None), "nstep is the most that it may need"
