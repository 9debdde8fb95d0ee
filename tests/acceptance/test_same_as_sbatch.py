"""Scripts as people have them, under sbatch and under EJB on one real Slurm: they do the same."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.same_as_sbatch import FORTY, Pair, differences, pair
from tests.fakes.daemon import until
from tests.integration.background import fill
from tests.integration.slurm_clusters import missing_slurm, slurm_cluster
from tests.unit.test_forty_scripts import PASSED_THROUGH

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("same-as-sbatch")]

SHORT = ("conda-mpi4py", "espresso-here", "gromacs-hybrid", "lammps-stdin", "torchrun")
# srun's own word on where it runs: EJB's ranks are no step of it.
SAID_BY_SRUN = "srun: cluster configuration lacks support for cpu binding"
PROBE = """\
#!/bin/bash
#SBATCH -t 5 {lines}
pwd; umask; ulimit -S -a; ulimit -H -a | sed 's/^/hard: /'
env | grep -E '^(SLURM_(JOB_(NUM|CPUS|NAME|PART)|NNODES|NTASKS|NPROCS|TASKS|CPUS|MEM|SUBMIT)|MINE)' | sort > told
scontrol show hostnames | wc -l
srun sh -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS, $SLURM_CPUS_PER_TASK; ulimit -S -a; ulimit -H -a' > ranks
umask 077; ulimit -Sn 1500; ulimit -Ss 16384; ulimit -n 3000; ulimit -c 0; trap '' USR2
hello() {{ echo "hello from $1"; }}; export -f hello
srun bash -c 'touch made.$SLURM_PROCID; stat -c %a made.$SLURM_PROCID; umask; echo $SLURM_UMASK
    ulimit -S -a; ulimit -H -a; hello rank
    grep -E "Sig(Blk|Ign)" /proc/self/status; sleep 9 & kill $!; wait $!; echo $?' > attributes
MINE=1 srun --export=MINE,OTHER=2 /usr/bin/env | grep -E '^(MINE|OTHER|HOME)=' > exported
exit 3
"""
ARRAY = """\
#!/bin/bash
#SBATCH -t 5 -n 2 -a {array} -o whole-%A_%a.out -e %x-%a.err
env | grep -E '^SLURM_ARRAY' | grep -v JOB_ID | sort > told-$SLURM_ARRAY_TASK_ID
echo "element $SLURM_ARRAY_TASK_ID of $([ "$SLURM_ARRAY_JOB_ID" -gt 0 ] && echo a number)" >&2
srun sh -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS in element $SLURM_ARRAY_TASK_ID'
exit $SLURM_ARRAY_TASK_ID
"""
# Ranks and script do a last thing when they are told to end, for which Slurm leaves them KillWait.
SAVING = """\
#!/bin/bash
#SBATCH -n 2 -t {minutes} -o /dev/null
#EJB engine=none
trap 'echo told > script-told' TERM
srun sh -c 'trap "sleep 4; echo saved > rank-\\$SLURM_PROCID-saved; exit 0" TERM
    echo up > rank-$SLURM_PROCID-up; while :; do sleep 0.2; done'
echo after > script-after
"""
# Whoever is told before the end writes it down. What is not told ends by itself, before the time limit.
WARNED = """\
#!/bin/bash
#SBATCH -n 2 -t 1 -o /dev/null --signal={who}USR1@20
trap 'echo told > script-told' USR1
srun sh -c 'trap "echo told > rank-\\$SLURM_PROCID-told; exit 0" USR1
    end=$(($(date +%s) + 44)); while [ $(date +%s) -lt $end ]; do sleep 0.2; done'
echo "srun said $?" > script-after
"""
DEALT = """\
#!/bin/bash
#SBATCH -N 2 -n 4 -t 5 -m cyclic -o dealt.out
tell() {
    srun "$@" sh -c 'echo "$SLURM_PROCID of $SLURM_NTASKS on $SLURM_NODEID.$SLURM_LOCALID with $SLURM_GTIDS" \
        "of $SLURM_TASKS_PER_NODE: $SLURM_DISTRIBUTION $SLURM_DIST_PLANESIZE $SLURM_JOB_NAME"' > "told$*"
}
env | grep DIST > told-of-it
tell
tell -m block
tell -m plane=2 -J other
tell -n 3
tell -n 3 -m block,nopack
tell -N 1 -n 2
SLURM_NTASKS=2 SRUN_CPUS_PER_TASK=1 tell -Q
"""
REQUEUED = """\
#!/bin/bash
#SBATCH -n 2 -t 5 -o /dev/null --requeue
run=${SLURM_RESTART_COUNT:-0}
echo "run $run" >> runs
srun sh -c 'run=${SLURM_RESTART_COUNT:-0}
    echo "run $run" >> rank-$SLURM_PROCID
    [ $run = 0 ] || exit 0
    until [ -e rank-0 ] && [ -e rank-1 ]; do sleep 0.1; done
    [ $SLURM_PROCID = 1 ] || scontrol requeue $SLURM_JOB_ID
    exec sleep 60'
echo "after $run" >> runs
"""
# Launches that EJB cannot hold, by words that the text does not show; what a script asks of itself; long lines.
ODD = """\
#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=2 -t 5 -J odd -o odd.out -e odd.err
set -- -w -x -l --multi-prog --export=NONE,MINE=1 --pty : -n9 "--jobid=$SLURM_JOB_ID" "-o part-%t" --no-such
names=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
where() { srun -N1 -n1 "$@" sh -c '[ $SLURMD_NODENAME = '"${names[$at]}"' ] && echo $SLURM_NTASKS there'; }
at=1; where $1 ${names[1]}; where $2 ${names[0]}; at=0; where $1 ${names[0]}
srun $3 -n 2 echo label | sort
printf '0 echo one\\n1-3 echo others\\n' > multi.conf; srun $4 multi.conf | sort
srun -n 1 $5 /bin/sh -c 'echo ${MINE-unset} ${OTHER-unset}'
srun -n 1 $6 echo terminal < /dev/null
srun -n 1 echo left $7 -n 1 echo right | sort
srun $8 true; echo "too many: $?"
srun -O $8 echo over | wc -l
srun -n 1 $9 echo in the job
srun -n 2 ${10} echo part && cat part-0 part-1
srun -n 1 ${11} true; echo "unknown: $?"
for i in 1 2 3; do eval 'srun --exact -N1 -n1 sh -c "sleep 0.3; echo at once"' "&"; done; wait
echo "${0##*/}"; echo -n "line: "; srun -n 1 echo whole; printf 'torn '; srun -n 2 printf x; echo
srun python3 -c 'import os; r = os.environ["SLURM_PROCID"]; print(r * 300000, flush=True)' | wc -lc
scontrol show job $SLURM_JOB_ID | grep -oE '(Command|WorkDir|StdErr|StdIn|StdOut|JobName|JobState|NodeList)=.*'
scontrol show job $SLURM_JOB_ID | grep -oE 'TimeLimit=\\S*|NumNodes.*'
squeue -h -j $SLURM_JOB_ID -o '%o %Z %j %l %D %C %T %k'
"""
KILL_WAIT_S = 60  # far longer than what they do takes, also on a busy machine
MOVED = """\
#!/bin/bash
#SBATCH -n 8 -t 5 --mem-per-cpu=100M -o moved.out
#EJB engine=application lambda=0
srun lmp < lines
echo "lmp ended with $?"
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if reason := missing_slurm():
        pytest.skip(reason)
    options = ("--memory=1000", "--gpus=2", "--features=ib,fast")
    with (
        slurm_cluster(4, 4, *options, more=f"KillWait={KILL_WAIT_S}\n") as cluster,
        pair(tmp_path_factory.mktemp("same"), cluster) as found,
    ):
        yield found


@pytest.fixture(autouse=True)
def emptied(both: Pair) -> Iterator[None]:
    yield
    both.cluster.empty()


def is_plain(both: Pair, id: str) -> bool:
    """Whether J0 has run it without workers."""
    return "job.alone" in both.daemon.kinds(id)


def chosen() -> list[str]:
    """The short ones; with EJB_TEST_SCRIPTS=all, all of the forty."""
    if os.environ.get("EJB_TEST_SCRIPTS") == "all":
        return sorted(path.stem for path in FORTY.glob("*.sh"))
    return list(SHORT)


def test_scripts_end_with_the_same_code_and_write_the_same_files(both: Pair) -> None:
    """One after the other under EJB: a launch that began early, where others hold the nodes, may begin anew on J0."""
    names = chosen()
    ours, ended = {}, {}
    for name in names:
        ours[name] = both.begin_ejb(FORTY / f"{name}.sh")
        ended[name] = both.end_ejb(ours[name])
    elastic = {name for name, id in ours.items() if both.daemon.job(id)["elastic"] or is_plain(both, id)}
    assert elastic == set(names) - set(PASSED_THROUGH)
    plain = {name: both.begin_sbatch(FORTY / f"{name}.sh") for name in names}
    differ = {}
    for name, id in plain.items():
        found = both.end_sbatch(id)
        for lines in found.files.values():
            lines[:] = [line for line in lines if line != SAID_BY_SRUN]
        differ[name] = differences(found, ended[name])
    assert {name: lines for name, lines in differ.items() if lines} == {}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "lines", ["-n 4 -c 2", "-n 4 -c 2\n#EJB mpi=none", "-N 2 --ntasks-per-node=2 --mem=200M", "-N 2 --exclusive"]
)
def test_what_a_script_sees_of_its_job_is_the_same(both: Pair, lines: str) -> None:
    script = both.folder / "probe.sh"
    script.write_text(PROBE.format(lines=lines))
    ours = both.end_ejb(both.begin_ejb(script, "--elastic", "on", MINE="two words"))
    plain = both.end_sbatch(both.begin_sbatch(script, MINE="two words"))
    assert ours.code == plain.code == 3
    assert differences(plain, ours) == []


def test_what_ejb_cannot_hold_is_launched_as_by_sbatch_and_a_script_is_told_the_same_of_itself(both: Pair) -> None:
    script = both.folder / "odd.sh"
    script.write_text(ODD)
    id = both.begin_ejb(script, "--elastic", "on", OTHER="1")
    ours = both.end_ejb(id)
    plain = both.end_sbatch(both.begin_sbatch(script, OTHER="1"))
    assert both.daemon.job(id)["state"] == "completed" and not is_plain(both, id)
    said, told = ([re.sub(r"job [0-9]+:", "job:", line) for line in one.files.pop("odd.err")] for one in (plain, ours))
    errors = [line for line in said if line.startswith("srun: error: ") or "unrecognized" in line]
    (warning,) = (line for line in told if line.startswith("ejb: "))
    assert warning.startswith(
        "ejb: warning: line 5: srun: -w: EJB places the ranks itself: this launch runs on the nodes"
    )
    assert len(errors) == 4 and errors == [line for line in told if line in errors]
    assert differences(plain, ours) == []


@pytest.mark.nightly("test_arrays_pbs.py runs EJB's own; test_passed_through_slurm.py one of a real Slurm")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("array", ["1-7:3%2", "2,5"])
def test_the_elements_of_an_array_are_what_sbatch_makes_of_them(both: Pair, array: str) -> None:
    script = both.folder / "array.sh"
    script.write_text(ARRAY.format(array=array))
    id = both.begin_ejb(script, "--elastic", "on")
    # One more of each kind that goes once the array has ended, which does not end well.
    later = both.folder / "later.sh"
    later.write_text("#!/bin/bash\n#SBATCH -t 5 -n 2\nsrun sleep 0\n")
    after = [both.begin_ejb(later, "--elastic", how, "-d", f"afternotok:{id}") for how in ("on", "off")]
    ours = both.end_ejb(id)
    plain = both.end_sbatch(both.begin_sbatch(script))
    assert differences(plain, ours) == []
    whole = both.daemon.job(id)
    assert whole["kind"] == "array" and sum(whole["elements"].values()) == len(ours.files) // 3
    for one in after:
        assert both.end_ejb(one).code == 0
        dependent = both.daemon.job(one)
        began_s = dependent["start_s"] or dependent["end_s"]  # in whole seconds by Slurm; nobody may have seen it run
        assert dependent["submit_s"] < whole["end_s"] < began_s + 1


@pytest.mark.parametrize("how", ["cancelled", "timeout"])
def test_what_is_done_at_a_cancellation_or_at_the_time_limit_is_done_to_its_end(both: Pair, how: str) -> None:
    if how == "timeout" and os.environ.get("EJB_TEST_SCRIPTS") != "all":
        pytest.skip("a time limit is a minute at least: EJB_TEST_SCRIPTS=all")
    script = both.folder / "saving.sh"
    script.write_text(SAVING.replace("{minutes}", "1" if how == "timeout" else "30"))
    ours, plain = both.begin_ejb(script, "--elastic", "on"), both.begin_sbatch(script)
    for id in (ours, plain):
        until(lambda id=id: all(both.text(id, f"rank-{rank}-up") for rank in (0, 1)), "the ranks did not start", 120)  # type: ignore[misc]
    if how == "cancelled":
        both.cluster.run("scancel", plain)
        assert both.daemon.client.post(f"/v1/jobs/{ours}/cancel").is_success
    there, here = both.end_sbatch(plain), both.end_ejb(ours)
    assert both.daemon.job(ours)["state"] == how
    assert {"rank-0-saved", "rank-1-saved", "script-told", "script-after"} <= there.files.keys()
    assert here.files == there.files


@pytest.mark.sampled(2)
@pytest.mark.parametrize("who", ["", "B:"])
def test_who_is_to_be_told_before_the_end_is_told(both: Pair, who: str) -> None:
    if os.environ.get("EJB_TEST_SCRIPTS") != "all":
        pytest.skip("a time limit is a minute at least: EJB_TEST_SCRIPTS=all")
    script = both.folder / "warned.sh"
    script.write_text(WARNED.replace("{who}", who))
    ours, plain = both.begin_ejb(script, "--elastic", "on"), both.begin_sbatch(script)
    there, here = both.end_sbatch(plain), both.end_ejb(ours)
    told = {"script-told"} if who else {"rank-0-told", "rank-1-told"}
    assert there.files.keys() == told | {"script-after"}
    assert (here.code, here.files) == (there.code, there.files)


def test_ranks_lie_where_srun_lays_them_and_are_told_so(both: Pair) -> None:
    script = both.folder / "dealt.sh"
    script.write_text(DEALT)
    ours = both.begin_ejb(script, "--elastic", "on")
    here = both.end_ejb(ours)
    assert both.daemon.job(ours)["elastic"] and not is_plain(both, ours)
    both.cluster.empty()  # so that Slurm gives both the same nodes in the same order
    there = both.end_sbatch(both.begin_sbatch(script))
    assert len(there.files) == 9 and not differences(there, here), differences(there, here)


def test_a_job_that_puts_itself_back_into_the_queue_begins_again_there(both: Pair) -> None:
    script = both.folder / "requeued.sh"
    script.write_text(REQUEUED)
    ours, plain = both.begin_ejb(script), both.begin_sbatch(script)
    there, here = both.end_sbatch(plain), both.end_ejb(ours)
    assert there.files["runs"] == ["after 1", "run 0", "run 1"]
    assert not differences(there, here), differences(there, here)


@pytest.mark.nightly("test_scripts_moved.py moves scripts; the first test here compares with sbatch")
def test_a_script_whose_ranks_are_moved_reads_and_writes_what_it_would_have(both: Pair, tmp_path: Path) -> None:
    script = both.folder / "moved.sh"
    script.write_text(MOVED)
    lines = "".join(f"line {number}\n" for number in range(400))
    background = fill(both.cluster, tmp_path, free=4, block_nodes=2)
    both.inputs["lines"] = lines
    try:
        id = both.begin_ejb(script, STEPS="400")
        until(lambda: both.daemon.job(id)["state"] == "running", "it did not start early", 60)
        until(lambda: "line 5" in both.text(id, "moved.out"), "it does not get on", 60)
        # It waits for the block's eight processors; four of its ranks' pairs share the four that are free.
        held = [s for s in both.daemon.job(id)["subjobs"] if s["state"] == "running"]
        assert [(s["role"], s["processors"]) for s in held] == [("subjob", 4)]
        asked = both.cluster.run("squeue", "--noheader", f"--jobs={held[0]['batch_id']}", "--Format=MinMemory")
        assert asked.strip() == "200M", "enough for two ranks on each of its processors"
        background.end("block")
        both.end_ejb(id)
        placements = both.daemon.kinds(id).count("epoch.running")
    finally:
        del both.inputs["lines"]
    assert placements > 1
    said = both.text(id, "moved.out").splitlines()
    assert [line for line in said if "read line" in line] == [f"lmp: read line {number}" for number in range(400)]
    assert sum("done after 400 steps" in line for line in said) == 8 and said[-1] == "lmp ended with 0"
