"""#PBS lines: read as qsub reads them, and what becomes of each option."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.batch.base import AsAsked, SubmitRequest
from ejbd.batch.pbs.commands import Qsub, beside, layout
from ejbd.batch.pbs.states import Dialect
from ejbd.errors import BatchError, Code, EjbError
from ejbd.manager.facts.batchjob import passing
from ejbd.manager.facts.batchjob.output import expand, server_in
from ejbd.manager.facts.batchjob.pbsfolders import into_folders
from ejbd.manager.jobspec import JobRequest, JobSpec, Overrides, Reading, read
from ejbd.manager.rules.linked.elements import one_by_one
from ejbd.options.qsub import BY_LETTER, Use

BODY = "cd $PBS_O_WORKDIR\nmpirun -np $(wc -l < $PBS_NODEFILE) -machinefile $PBS_NODEFILE ./app\n"


def reading(
    *lines: str,
    first: str = "#!/bin/bash",
    body: str = BODY,
    cwd: str = "/home/ada",
    env: dict[str, str] | None = None,
    **overrides: object,
) -> Reading:
    script = "\n".join([*([first] if first else []), *lines, body])
    options = Overrides(**overrides)  # type: ignore[arg-type]
    return read(JobRequest(cwd=cwd, script=script, script_name="job.pbs", env=env or {}, overrides=options))


def spec_of(*lines: str, **overrides: object) -> JobSpec:
    found = reading(*lines, **overrides)  # type: ignore[arg-type]
    assert not found.refusals
    return found.spec


def error_of(*lines: str) -> EjbError:
    with pytest.raises(EjbError) as caught:
        reading(*lines)
    assert caught.value.code is Code.INVALID
    return caught.value


@pytest.mark.parametrize(
    ("resources", "shape"),
    [
        # ranks, nodes, ranks a node, threads
        ("nodes=4:ppn=4", (16, 4, 4, 1)),
        ("nodes=4", (4, 4, 1, 1)),
        ("nodes=1:ppn=16", (16, 1, 16, 1)),
        ("nodes=2:ppn=4+2:ppn=4", (16, 4, 4, 1)),
        ("nodes=n1:ppn=4+n2:ppn=4", (8, 2, 4, 1)),
        ("select=16", (16, None, None, 1)),
        ("select=16:ncpus=1", (16, None, None, 1)),
        ("select=4:ncpus=4:mpiprocs=4", (16, None, 4, 1)),
        ("select=4:ncpus=8:mpiprocs=4", (16, None, 4, 2)),
        ("select=4:ncpus=8:mpiprocs=4:ompthreads=2,place=scatter", (16, 4, 4, 2)),
        ("select=2:ncpus=8", (2, None, None, 8)),
        ("select=ncpus=4:mpiprocs=4", (4, None, 4, 1)),
        ("procs=16", (16, None, None, 1)),
        ("ncpus=8", (1, None, None, 8)),
    ],
)
def test_ranks_and_where_they_lie(resources: str, shape: tuple[int, int | None, int | None, int]) -> None:
    spec = spec_of(f"#PBS -l {resources},walltime=600")
    assert (spec.processes, spec.nodes, spec.processors_per_node, spec.threads) == shape


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1:30", 90), ("01:00:00", 3600), ("1:00:00:00", 86400), ("90:00", 5400), ("10.5", 11)],
)
def test_a_walltime_is_seconds_as_qsub_has_it(text: str, seconds: int) -> None:
    assert spec_of(f"#PBS -l nodes=1:ppn=2 -l walltime={text}").walltime_s == seconds


def test_one_line_of_all_that_is_understood() -> None:
    spec = spec_of(
        "#PBS -N heat -q long -A physics -j oe -o /scratch/ada/ -V -v A=1,B -m abe -M ada@example.org -h -r n",
        " #PBS -l select=2:ncpus=4:mpiprocs=4:mem=8gb -l walltime=1:00:00 # as on the old machine",
        "",
        "# a comment",
        "#PBS -W depend=afterok:12.head:13.head,umask=027 -a 203001312330 -p 5 -P proj",
    )
    assert (spec.name, spec.queue, spec.hold, spec.walltime_s) == ("heat", "long", True, 3600.0)
    assert (spec.output, spec.error) == ("/scratch/ada/%j%S.OU", None)
    assert spec.options == ("--account=physics",)
    assert spec.qsub == ("-p", "5", "-P", "proj")
    assert spec.env == {"A": "1"}
    assert spec.wants.memory_per_processor_mb == 2048
    assert spec.asked is not None and spec.asked.umask == 0o027
    told = {word.partition("=")[0]: word for word in spec.asked.options}
    assert told["--begin"] == "--begin=2030-01-31T23:30:00"
    assert told["--dependency"] == "--dependency=afterok:12:13"
    assert (told["--mail-type"], told["--mail-user"]) == ("--mail-type=FAIL,BEGIN,END", "--mail-user=ada@example.org")


def test_files_are_called_as_pbs_calls_them() -> None:
    plain = spec_of("#PBS -l nodes=2,walltime=60 -N heat")
    assert (plain.output, plain.error) == ("/home/ada/%x.o%j", "/home/ada/%x.e%j")
    said = spec_of("#PBS -l nodes=2,walltime=60 -o head:/data/out.$PBS_JOBID -e 50%.err")
    assert (said.output, said.error) == ("/data/out.%j", "/home/ada/50%%.err")
    other = spec_of("#PBS -l nodes=2,walltime=60 -j eo -e both")
    assert (other.output, other.error) == ("/home/ada/both", None)


def test_lines_end_where_the_script_begins() -> None:
    spec = spec_of("#PBS -l nodes=2,walltime=60", body=f"echo\n#PBS -l nodes=9\n{BODY}")
    assert spec.processes == 2


def test_a_script_needs_no_first_line_and_is_run_by_the_shell_that_is_named() -> None:
    bare = reading("#PBS -l nodes=2,walltime=60 -S /bin/bash", first="", body="srun -l ./a\n")
    assert bare.spec.script is not None and bare.spec.script.startswith("#!/bin/bash\n#PBS ")
    assert bare.refusals[0].where == "line 2"  # as its user counts
    other = spec_of("#PBS -l nodes=2,walltime=60 -S /bin/ksh")
    assert other.script is not None and other.script.startswith("#!/bin/ksh\n#!/bin/bash\n")
    same = spec_of("#PBS -l nodes=2,walltime=60 -S /bin/bash")
    assert same.script is not None and same.script.startswith("#!/bin/bash\n#PBS ")


def test_pbs_lines_go_over_sbatch_lines_as_with_sbatch_and_options_over_both() -> None:
    lines = ("#PBS -N p -l nodes=2:ppn=4,walltime=60", "#SBATCH -J s -n 3 -t 5")
    assert (spec_of(*lines).name, spec_of(*lines).processes) == ("p", 8)
    assert spec_of(*lines, name="o").name == "o"
    ignored = spec_of(*lines, options=("--ignore-pbs",))
    assert (ignored.name, ignored.processes, ignored.pbs) == ("s", 3, False)
    assert not spec_of(*lines, "#SBATCH --ignore-pbs").pbs


@pytest.mark.parametrize(
    "line",
    [
        "-l nodes=1:ppn=4+2:ppn=2",
        "-l select=1:ncpus=4:mpiprocs=4+2:ncpus=2:mpiprocs=2",
        "-l select=2:ncpus=5:mpiprocs=2",
        "-l nodes=2 -l software=fluent",
        "-l select=2 -l place=pack",
        "-W depend=on:3",
        "-W stagein=a@head:/b",
        "-L tasks=2:lprocs=4",
        "-a 312330",
    ],
)
def test_only_a_passed_through_job_keeps_it(line: str) -> None:
    found = reading(f"#PBS -l walltime=60 {line}")
    assert found.refusals and found.refusals[0].where == "line 2"
    assert found.spec.asked is not None
    words = line.split()
    for letter, value in zip(words[::2], words[1::2], strict=True):
        assert (letter, value) in zip(found.spec.asked.qsub, found.spec.asked.qsub[1:], strict=False)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-I", "terminal"),
        ("-X", "terminal"),
        ("-u root", "runs as the user"),
        ("-y", "no option '-y'"),
        ("heat.sh", "not an option"),
        ("-N", "needs a value"),
        ("-N 'a", "not closed"),
        ("-l walltime=soon", "no walltime"),
        ("-l walltime=0", "no time to run"),
        ("-l nodes=0:ppn=4", "nodes must be"),
        ("-l nodes=2:ppn=x", "ppn must be"),
        ("-l select=2:ncpus", "cannot be read"),
        ("-l select=2,nodes=2", "two ways"),
        ("-l mem=lots", "not a size"),
        ("-q long@other", "names a server"),
        ("-j yes", "oe, eo or n"),
        ("-r maybe", "y or n"),
        ("-m x", "letters of a, b and e"),
        ("-S bash", "absolute path"),
        ("-W umask=9", "no mask"),
        ("-a tomorrow", "no time of PBS"),
        ("-p high", "-p is a whole number"),
        ("-l nodes=999999:ppn=999999", "are more than"),
        ("-l nodes=2,,walltime=5", "no list of resources"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(line: str, says: str) -> None:
    error = error_of(f"#PBS {line}")
    assert says in error.message and error.where == "line 2"


def test_every_option_of_both_qsubs_is_known() -> None:
    openpbs, torque = "aAcCefhIjJklmMNopqrRSuvVWXzP", "aAbcCdDeEfFhiIjJkKlLmMnNopPqrStTuvVwWXxz"
    assert set(openpbs + torque) - {"i"} == set(BY_LETTER)
    assert all(option.why or option.use in (Use.UNDERSTOOD, Use.SHARED) for option in BY_LETTER.values())


def test_sbatch_is_told_what_qsub_would_read() -> None:
    """sbatch takes `walltime=90` for minutes and adds up ppn of unlike parts wrongly."""
    spec = reading("#PBS -l nodes=1:ppn=4+2:ppn=2,walltime=90", "#PBS -N heat").spec
    assert spec.asked is not None
    assert spec.asked.options[0] == "--ignore-pbs"
    assert {"--ntasks=8", "--nodes=3", "--time=00:01:30", "--job-name=heat"} <= set(spec.asked.options)
    request = passing.request_for(spec, spec.script or "", passing.Names("ejb-1.0", "1", "ada", "q"), None)
    assert isinstance(request.asked, AsAsked)
    assert request.asked.environment["PBS_O_WORKDIR"] == "/home/ada"


def qsub(dialect: Dialect, spec: JobSpec) -> str:
    request = passing.request_for(spec, spec.script or "", passing.Names("ejb-1.0", "1", "ada", "q"), None)
    return " ".join(Qsub(dialect, request, layout(dialect, request, {"n1": 8, "n2": 8}, 8)).argv())


def test_a_passed_through_job_has_its_own_resources_in_front_of_pbs() -> None:
    chunks = "select=2:ncpus=4:mpiprocs=2:mem=4gb+1:ncpus=1"
    spec = reading(f"#PBS -l {chunks},place=scatter,walltime=60 -W group_list=g -A acc").spec
    line = qsub(Dialect.OPENPBS, spec)
    assert f"-l {chunks} -l place=scatter" in line and line.count("select=") == 1
    assert "-W group_list=g" in line and "-A acc" in line and "walltime=00:01:00" in line
    with pytest.raises(BatchError, match="Torque has no select"):
        qsub(Dialect.TORQUE, spec)
    parts = reading("#PBS -l nodes=1:ppn=4:fast+2:ppn=2,walltime=60").spec
    assert "-l nodes=1:ppn=4:fast+2:ppn=2" in qsub(Dialect.TORQUE, parts)


@pytest.mark.parametrize(("words", "told"), [("", ""), (" -r y", " -r y"), (" -r n", " -r n")])
def test_a_passed_through_job_is_run_again_where_its_user_or_pbs_says_so(words: str, told: str) -> None:
    for dialect in Dialect:
        line = qsub(dialect, reading(f"#PBS -l nodes=1:ppn=4,walltime=60{words}").spec)
        assert f" -e /dev/null/ejb-1.0{told}" in line and line.count(" -r ") == bool(told)


def test_a_script_for_sbatch_that_must_not_run_twice_does_not_in_front_of_pbs() -> None:
    spec = read(JobRequest(cwd="/w", script="#!/bin/sh\n#SBATCH -n 4 -t 10 --no-requeue\nsrun ./a\n")).spec
    assert " -r n" in qsub(Dialect.OPENPBS, spec)


def test_no_subjob_is_run_again_by_pbs() -> None:
    subjob = SubmitRequest("ejb-f00d.1", "", "batch", 8, 60.0, "#!/bin/sh\n", Path("/w"), Path("/w/out"))
    assert "-r n" in " ".join(Qsub(Dialect.OPENPBS, subjob, [(8, 1)]).argv())


def test_a_select_becomes_nodes_in_front_of_torque_and_options_go_before_lines() -> None:
    spec = spec_of("#PBS -l select=2:ncpus=4:mpiprocs=4:mem=4gb,walltime=60")
    line = qsub(Dialect.TORQUE, spec)
    assert "nodes=2:ppn=4" in line and "pmem=1024mb" in line and "select" not in line
    other = reading("#PBS -l select=2:ncpus=4:mpiprocs=4,walltime=60", ntasks="4", ntasks_per_node="2").spec
    assert "select=2:ncpus=2:mpiprocs=2" in qsub(Dialect.OPENPBS, other)


def test_sbatch_options_in_qsubs_words() -> None:
    script = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=4 -c 2 -t 10 --mem-per-cpu=1G -b 2030-01-31T23:30 -C fast\n"
    script += "#SBATCH -d afterok:12 --exclusive --mail-type=END -A acc\nsrun ./a\n"
    spec = read(JobRequest(cwd="/w", script=script)).spec
    line = qsub(Dialect.OPENPBS, spec)
    assert "select=2:ncpus=8:mpiprocs=4:fast=True:mem=8192mb" in line and "place=scatter:excl" in line
    assert "-a 203001312330" in line and "-W depend=afterok:12" in line and "-m e" in line
    with pytest.raises(BatchError, match="whole nodes"):
        qsub(Dialect.TORQUE, spec)


def test_memory_of_each_node_where_only_the_ranks_of_one_are_said() -> None:
    """A subjob of whole parts of nodes: each chunk is what one node has of it."""
    folder = Path("/w")
    asked = SubmitRequest("ejb-f00d.1", "", "batch", 8, 60.0, "#!/bin/sh\n", folder, folder / "out", tasks_per_node=4)
    asked = replace(asked, options=("--mem=4096M",))
    argv = Qsub(Dialect.OPENPBS, asked, layout(Dialect.OPENPBS, asked, {}, 4)).argv()
    assert "select=2:ncpus=4:mpiprocs=4:mem=4096mb" in argv
    loose = replace(asked, tasks_per_node=None)
    with pytest.raises(BatchError, match="memory of each node"):
        Qsub(Dialect.OPENPBS, loose, layout(Dialect.OPENPBS, loose, {}, 4)).argv()


def test_hosts_by_name() -> None:
    spec = spec_of("#PBS -l nodes=n1:ppn=4+n2:ppn=4,walltime=60", ntasks_per_node="4")
    assert "nodes=n1:ppn=4+n2:ppn=4" in qsub(Dialect.TORQUE, spec)
    assert "ncpus=4:mpiprocs=4:host=n1+" in qsub(Dialect.OPENPBS, spec)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="#PBS -lNoWadtSvqnodeslctpuk=:+,.'\"\\0123456789[]@$^%gb\n\t", max_size=80))
def test_whatever_stands_there_is_read_or_refused_in_a_sentence(text: str) -> None:
    try:
        found = reading(f"#PBS -l {text}", f"#PBS {text}", f"#PBS {text[:20]} -l walltime=5")
    except EjbError as error:
        assert error.message and error.where
        return
    assert JobSpec.from_json(found.spec.to_json()) == found.spec


def test_a_submission_without_lines_has_no_words_of_theirs() -> None:
    assert SubmitRequest.__dataclass_fields__["native"].default == ()


@pytest.mark.parametrize(
    ("line", "array"),
    [
        ("-J 1-9:2", "1-9:2"),
        ("-t 1-9%3", "1-9%3"),
        ("-J 1-9 -W max_run_subjobs=4", "1-9%4"),
        ("-J 1-9%3 -W max_run_subjobs=4", "1-9%3"),
    ],
)
def test_each_element_of_an_array_is_submitted_without_it(line: str, array: str) -> None:
    spec = one_by_one(reading(f"#PBS {line} -l walltime=60 -W group_list=us").spec)
    assert spec.array == array and spec.asked is not None and spec.asked.array is None
    assert one_by_one(spec) == spec, "it is admitted twice"
    for dialect in Dialect:
        words = qsub(dialect, spec)
        assert "-J" not in words and "-t" not in words and "max_run_subjobs" not in words and "group_list=us" in words
    typed = one_by_one(reading("#PBS -l walltime=60", options=("--array=0-3",)).spec)
    assert typed.asked is not None and typed.array == "0-3"
    assert "array" not in " ".join((*typed.rigid_options, *typed.asked.options))


def test_an_array_without_indices_is_refused() -> None:
    with pytest.raises(EjbError, match="names no indices of an array"):
        one_by_one(reading("#PBS -J some -l walltime=60").spec)


def test_files_in_a_folder_and_of_an_array_are_called_as_openpbs_calls_them() -> None:
    line = "#PBS -l select=2:ncpus=1,walltime=60 -N heat"
    folder = spec_of(f"{line} -o logs/ -e logs/")
    assert (folder.output, folder.error) == ("/home/ada/logs/%j%S.OU", "/home/ada/logs/%j%S.ER")
    array = spec_of(f"{line} -J 1-3 -e logs/")
    assert (array.output, array.error) == ("/home/ada/%x.o%A.%a", "/home/ada/logs/%A[%a]%S.ER")
    torque = spec_of("#PBS -l walltime=60 -t 1-3 -e logs/")
    assert (torque.output, torque.error) == ("/home/ada/%x.o%A-%a", "/home/ada/logs/%x.e%A-%a")

    def called(pattern: str, element: tuple[str, int] | None = None) -> str:
        told = {"job_id": "f00d", "number": "128", "name": "heat", "user": "ada", "node": "n1", "server": ".head"}
        return expand(pattern, **told, element=element)

    assert called("%j%S.OU") == "128.head.OU"
    assert called("%A[%a]%S.ER", ("128", 3)) == "128[3].head.ER"
    assert called("%x.o%A.%a", ("128", 3)) == "heat.o128.3"
    assert server_in("128.head") == ".head" and server_in("4711") == server_in(None) == ""


def test_what_pbs_keeps_is_in_the_users_home() -> None:
    line = "#PBS -l select=2:ncpus=1,walltime=60 -N heat -o out"
    home = {"HOME": "/homes/ada%"}
    kept = spec_of(f"{line} -k eo", env=home)
    assert (kept.output, kept.error) == ("/homes/ada%%/%x.o%j", "/homes/ada%%/%x.e%j")
    one = spec_of(f"{line} -k e -e err", env=home)
    assert (one.output, one.error) == ("/home/ada/out", "/homes/ada%%/%x.e%j")
    for letters in ("n", "doe"):  # d: written at once to where it belongs, as EJB does anyhow
        assert spec_of(f"{line} -k {letters}", env=home).output == "/home/ada/out"
    assert not reading(f"{line} -k eo").notes
    with pytest.raises(EjbError, match="-k is n, or letters of o, e and d, not 'x'"):
        reading(f"{line} -k x")


def test_a_folder_without_a_slash_is_one_where_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    lines = "#PBS -l select=2:ncpus=1,walltime=60 -o logs -e errors"
    found = into_folders(spec_of(lines, cwd=str(tmp_path)))
    assert (found.output, found.error) == (f"{tmp_path}/logs/%j%S.OU", f"{tmp_path}/errors")
    assert found.asked is not None and found.asked.output == found.output
    assert f"--output={tmp_path}/logs/%j.OU" in found.asked.options, "as sbatch would take it"


def test_sbatch_is_told_of_no_server() -> None:
    spec = spec_of("#PBS -l select=2:ncpus=1,walltime=60 -o logs/")
    assert spec.asked is not None and "--output=logs/%j.OU" in spec.asked.options


def test_what_is_to_stay_off_nodes_names_those_that_it_gets() -> None:
    free = {"n2": 3, "n3": 4}
    loose = SubmitRequest(
        "ejb-f00d.1", "", "batch", 6, 60.0, "#!/bin/sh\n", Path("/w"), Path("/w/out"), exclude=("n1",)
    )
    hosts = beside(loose, free)
    assert hosts == [("n3", 4), ("n2", 2)]
    told = {dialect: " ".join(Qsub(dialect, loose, [(6, 1)], hosts=hosts).argv()) for dialect in Dialect}
    assert "select=1:ncpus=4:mpiprocs=4:host=n3+1:ncpus=2:mpiprocs=2:host=n2" in told[Dialect.OPENPBS]
    assert "nodes=n3:ppn=4+n2:ppn=2" in told[Dialect.TORQUE]
    assert beside(replace(loose, processors=4, threads=2), free) == [("n3", 4)]
    assert beside(replace(loose, processors=4, nodes=2), free) == [("n3", 2), ("n2", 2)]
    with pytest.raises(BatchError, match=r"no room is idle beside the nodes that are to be left \(n1\)"):
        beside(replace(loose, processors=8), free)
