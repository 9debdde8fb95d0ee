"""#SBATCH and #EJB lines. What sbatch does with each was measured against sbatch 22.05."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.errors import Code, EjbError
from ejbd.manager.jobspec import JobKind, JobRequest, JobSpec, Overrides, build_spec, parse_script, read
from ejbd.manager.jobspec.wants import Wants
from ejbd.options.sbatch import BY_LETTER, BY_NAME, OPTIONS, Use
from ejbd.options.signals import EndSignal


def script(*lines: str, body: str = "srun ./app\n") -> str:
    return "\n".join(["#!/bin/bash", *lines, body])


def spec_of(*lines: str, **overrides: object) -> JobSpec:
    request = JobRequest(cwd="/home/ada", script=script(*lines), overrides=Overrides(**overrides))  # type: ignore[arg-type]
    return build_spec(request)


def error_of(*lines: str, **overrides: object) -> EjbError:
    with pytest.raises(EjbError) as caught:
        spec_of(*lines, **overrides)
    return caught.value


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH -n 16 -t 10",
        "#SBATCH -n16 -t10",
        "#SBATCH-n16 -t 10",
        "#SBATCH --ntasks=16 --time=10",
        "#SBATCH --ntasks 16 --time 10",
        "#SBATCH   --ntasks  16\t-t 10",
        "#SBATCH -n '16' -t \"10\"",
        "#SBATCH -n 1\\6 -t 10",
        "#SBATCH -n 16 -t 10 # -n 4",
        "#SBATCH -n 16 -t 10#4",
        "#SBATCH -N 4 --ntasks-per-node=4 -t 0:10:00",
        "#SBATCH -N 4-4 --ntasks-per-node=4 -t 0:10:00",
        "#SBATCH -n 4 -t 1\n# a comment\n\n#SBATCH -n 16 -t 10",
        "#SBATCH -n\n#SBATCH 16\n#SBATCH -t 10",
        "#SBATCH --job-na=x -n 16 -t 10",
    ],
)
def test_sixteen_processes_for_ten_minutes_in_every_spelling(line: str) -> None:
    spec = spec_of(line)
    assert (spec.processes, spec.walltime_s) == (16, 600.0)


def test_a_cluster_of_letters() -> None:
    spec = spec_of("#SBATCH -Hn3 -t 5")
    assert spec.hold and spec.processes == 3


def test_only_lines_before_the_first_command_count() -> None:
    text = "#!/bin/sh\n#SBATCH -n 4 -t 5\n  # comment\n: no comment\n#SBATCH -n 9\nsrun x\n"
    assert parse_script(text).processes == 4


def test_an_indented_line_is_a_comment() -> None:
    assert spec_of("#SBATCH -n 4 -t 5", " #SBATCH -n 9").processes == 4


def test_a_quoted_hash_is_no_comment() -> None:
    assert spec_of('#SBATCH -J "a # b" -n 3 -t 5').name == "a # b"


@pytest.mark.parametrize("name", ["a'b", 'a"b', "a|b", "$(reboot)", "`x`", "a;b&c", "ä ö", "-n", "%j", "../x"])
def test_names_are_data(name: str) -> None:
    spec = build_spec(
        JobRequest(cwd="/w", command=("./app",), overrides=Overrides(name=name, account=name, ntasks="2", time="5"))
    )
    assert spec.name == name
    assert spec.options == (f"--account={name}",)


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a\x00b", "a\x1b[31mb", "\x7f", "a\x85b", "a\u2028b", "\ud800"])
def test_control_characters_are_refused_by_name(name: str) -> None:
    for setting in ("name", "account", "partition", "output", "chdir"):
        error = error_of("#SBATCH -n 2 -t 5", **{setting: name})
        assert error.code is Code.INVALID
        assert "control character" in error.message
        assert "\n" not in error.sentence() and "\x1b" not in error.sentence()


@pytest.mark.parametrize(
    ("line", "where", "words"),
    [
        ("#SBATCH -n 0", "line 2", "at least 1, not 0"),
        ("#SBATCH -n -4", "line 2", "whole number above 0, not '-4'"),
        ("#SBATCH -n 4k", "line 2", "whole number above 0, not '4k'"),
        ("#SBATCH -n=3", "line 2", "not '=3'"),
        ("#SBATCH -n 1000001", "line 2", "more than 1000000"),
        ("#SBATCH -n 99999999999999999999999999", "line 2", "more than 1000000"),
        ("#SBATCH -n", "line 2", "-n needs a value"),
        ("#SBATCH -N 0", "line 2", "not a number of nodes"),
        ("#SBATCH -t 1:2:3:4", "line 2", "not a walltime"),
        ("#SBATCH -t tomorrow", "line 2", "not a walltime"),
        ("#SBATCH foo", "line 2", "'foo' is not an option of sbatch"),
        ("#SBATCHX", "line 2", "'X' is not an option of sbatch"),
        ("#SBATCH -- -n 4", "line 2", "'--' is not an option"),
        ("#SBATCH --exclusive user", "line 2", "'user' is not an option"),
        ("#SBATCH --nonsense=4", "line 2", "no option '--nonsense'"),
        ("#SBATCH -@", "line 2", "no option '-@'"),
        ("#SBATCH --nt=3", "line 2", "may mean --ntasks"),
        ("#SBATCH --hold=yes", "line 2", "takes no value"),
        ('#SBATCH -J "abc', "line 2", "is not closed"),
        ("#SBATCH -n 4 : -n 5", "line 2", "':'"),
        ("#SBATCH --uid=0", "line 2", "runs as the user that submits it"),
        ("#SBATCH --export-file=/etc/shadow", "line 2", "read by the daemon"),
        ("#SBATCH --bbf=/etc/shadow", "line 2", "read by the daemon"),
        ("#SBATCH --wrap=ls", "line 2", "ejb submit -- COMMAND"),
        ("#SBATCH --test-only", "line 2", "--dry-run"),
        ("#SBATCH -M other", "line 2", "one cluster"),
        ("#SLURM -n 4", "line 2", "not a directive"),
        ("#SBATCH -J ''", "line 2", "the job's name is empty"),
        ("#EJB omax=0", "line 2", "at least 1"),
        ("#EJB omax=1025", "line 2", "more than 1024"),
        ("#EJB lambda=-1", "line 2", "from 0 to 86400"),
        ("#EJB lambda=nan", "line 2", "from 0 to 86400"),
        ("#EJB delta=0.5", "line 2", "from 1 to 100"),
        ("#EJB checkpoint=0", "line 2", "off, auto or seconds from 1 to 2678400, not '0'"),
        ("#EJB checkpoint", "line 2", "off, auto or seconds"),
        ("#EJB checkpoint=often", "line 2", "not 'often'"),
        ("#EJB elastic=maybe", "line 2", "on or off"),
        ("#EJB engine=dmtcp2", "line 2", "no checkpoint engine"),
        ("#EJB colour=red", "line 2", "no setting 'colour'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(line: str, where: str, words: str) -> None:
    error = error_of(line)
    assert error.code is Code.INVALID
    assert error.where == where
    assert words in f"{error.message} {error.hint}"


def test_the_line_of_a_later_directive_is_named() -> None:
    assert error_of("#SBATCH -n 4", "", "# x", "#SBATCH -t soon").where == "line 5"


@pytest.mark.parametrize(
    "option",
    [
        *(
            "--array=[1-3]",
            "-a 3-1",
            "-C [a*2&b]",
            "-d afterburstbuffer:12",
            "-d afterok:12?singleton,after:13",
            "-w ./hosts",
            "--exclusive=user",
            "-N 2-4",
            "--signal=R:USR1@60",
        ),
        *("--reservation=r", "-L lic:1", "--time-min=5", "-i in.txt", "-O", "-k", "hetjob"),
    ],
)
def test_what_only_an_ordinary_job_can_keep(option: str) -> None:
    error = error_of("#SBATCH -n 4 -t 5", f"#SBATCH {option}")
    assert error.code is Code.UNSUPPORTED
    assert error.where == "line 3"
    assert "--elastic off" in error.hint
    passed = spec_of("#SBATCH -n 4 -t 5", f"#SBATCH {option}", elastic="off")
    assert passed.elastic is False
    assert bool(passed.rigid_options) is (option != "hetjob")


@pytest.mark.parametrize(
    ("lines", "wants"),
    [
        ("--mem=4G", Wants(memory_per_node_mb=4096)),
        ("--mem=0", Wants(memory_per_node_mb=0)),
        ("--mem=1500K", Wants(memory_per_node_mb=2)),
        ("--mem-per-cpu=2", Wants(memory_per_processor_mb=2)),
        ("--mem=1G --mem-per-cpu=1T", Wants(memory_per_processor_mb=1024 * 1024)),
        ("--exclusive -N 2 -n 4", Wants(whole_nodes=True)),
        ("-N 2", Wants(unsized=True)),
        ("-C a|b -w n[1-2] -x n7", Wants(constraint="a|b", nodelist="n[1-2]", exclude="n7")),
        ("--gres=gpu:a100:2,x:1", Wants(shape=("--gres=gpu:a100:2,x:1",), devices=(("gpu", 2), ("x", 1)))),
        ("--gpus-per-node=k80:2", Wants(shape=("--gpus-per-node=k80:2",), devices=(("gpu", 2),))),
        ("-b now+1hour -d afterok:1", Wants(first=("--begin=now+1hour",), dependency="afterok:1")),
    ],
)
def test_what_a_job_wants_of_its_nodes(lines: str, wants: Wants) -> None:
    spec = spec_of("#SBATCH -t 5", f"#SBATCH {lines}")
    assert spec.wants == wants and JobSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize("text", ["4X", "-1", "4 G", "G", "1e3", "4.5G"])
def test_what_is_no_size_of_memory(text: str) -> None:
    error = error_of(f"#SBATCH '--mem={text}'")
    assert error.code is Code.INVALID and "size of memory" in error.message


def test_what_concerns_every_subjob_is_handed_on() -> None:
    spec = spec_of("#SBATCH -n 4 -t 5 -A proj -q high --nice=10 --wckey=w")
    assert spec.options == ("--account=proj", "--qos=high", "--nice=10", "--wckey=w")
    assert spec.rigid_options == ()


def test_what_is_not_acted_on_is_told() -> None:
    reading = read(JobRequest(cwd="/", script=script("#SBATCH -n 4 -t 5 --open-mode=append -v --no-requeue --requeue")))
    assert len(reading.notes) == 1 and all(note.startswith("line 2: --") for note in reading.notes)
    assert reading.elastic_spec().rigid_options == ()
    assert set(reading.passed_through("").rigid_options) == {"--open-mode=append", "--requeue"}


def test_no_walltime_and_an_endless_one_need_a_passed_through_job() -> None:
    missing = error_of("#SBATCH -n 4")
    assert missing.code is Code.UNSUPPORTED and "needs a walltime" in missing.message and "-t" in missing.hint
    endless = error_of("#SBATCH -n 4 -t UNLIMITED")
    assert endless.where == "line 2" and "ends" in endless.message
    assert spec_of("#SBATCH -n 4", elastic="off").walltime_s == 0.0
    assert spec_of("#SBATCH -n 4 -t 0", elastic="off").rigid_options == ("--time=UNLIMITED",)


def test_every_reason_is_told_at_once() -> None:
    error = error_of("#SBATCH -n 4 -O -L lic:1")
    assert error.where == "line 2" and len(error.details["also"]) == 2


def test_ejb_lines() -> None:
    spec = spec_of(
        "#SBATCH -n 4 -t 5", "#EJB restartable engine=application", "#EJB elastic=off omax=16 lambda=30 delta=1.2"
    )
    assert (spec.restartable, spec.engine, spec.elastic) == (True, "application", False)
    assert (spec.omax, spec.lambda_s, spec.delta) == (16, 30.0, 1.2)
    assert spec_of("#SBATCH -n 4 -t 5", "#EJBX foo").omax is None
    for word, told in (("off", "off"), ("AUTO", "auto"), ("600", "600"), ("90.5", "90.5")):
        assert spec_of("#SBATCH -n 4 -t 5", f"#EJB checkpoint={word}").checkpoint == told
    assert spec_of("#SBATCH -n 4 -t 5").checkpoint is None


def test_the_command_line_wins() -> None:
    spec = spec_of(
        "#SBATCH -n 4 -t 5 -J old -p a -o old.out",
        "#EJB elastic=on restartable",
        ntasks="8",
        time="1:00:00",
        name="new",
        partition="b",
        output="new.out",
        elastic="off",
        restartable=False,
        options=("--qos=x", "-x", "n1"),
    )
    assert (spec.processes, spec.walltime_s, spec.name, spec.queue) == (8, 3600.0, "new", "b")
    assert (spec.output, spec.elastic, spec.restartable) == ("/home/ada/new.out", False, False)
    assert spec.options == ("--qos=x",) and spec.rigid_options == ("--exclude=n1",)
    assert error_of("#SBATCH -n 4 -t 5", options=("--nix",)).where == "option"
    assert error_of("#SBATCH -n 4 -t 5", ntasks="0").where == "--ntasks"


def test_layouts() -> None:
    assert (spec_of("#SBATCH -N 3 -t 5").processes, spec_of("#SBATCH -t 5").processes) == (3, 1)
    spec = spec_of("#SBATCH -n 16 --ntasks-per-node=4 -t 5")
    assert (spec.nodes, spec.processors_per_node) == (4, 4)
    uneven = error_of("#SBATCH -n 16 --ntasks-per-node=5 -t 5")
    assert uneven.code is Code.UNSUPPORTED and "cannot be laid out" in uneven.message


def test_files_and_folders() -> None:
    spec = spec_of("#SBATCH -n 2 -t 5 -D sub -e /abs/%j.err")
    assert (spec.cwd, spec.output, spec.error) == ("/home/ada/sub", "/home/ada/sub/ejb-%i.out", "/abs/%j.err")
    for typed, output in (("%q%b-%5j.%i", "%%q%%b-%5j.%%i"), (r"'a\\%j'", "a%%j"), ("a%", "a%%"), ("%%i", "%%i")):
        assert spec_of(f"#SBATCH -n 2 -t 5 -o {typed}").output == f"/home/ada/{output}", "as sbatch reads them"


def test_the_specification_survives_json() -> None:
    spec = spec_of("#SBATCH -n 4 -t 5 -A x", "#EJB omax=3")
    assert spec.kind is JobKind.SCRIPT
    assert JobSpec.from_json(spec.to_json()) == spec


def test_the_table_of_options_is_of_one_piece() -> None:
    assert len(BY_NAME) == len(OPTIONS)
    assert len(BY_LETTER) == len([option for option in OPTIONS if option.short])
    assert all(option.why for option in OPTIONS if option.use in (Use.RIGID, Use.REFUSED, Use.SOFT, Use.DROPPED))


_WORDS = st.sampled_from(
    [
        *("#SBATCH", "#EJB", "#!/bin/sh", "-n", "--ntasks=", "-t", "4", "10", "-N", "--mem=1", "omax=", "'", '"'),
        *("\\", "#", " ", "\n", "\t", "srun", "&", "|", "(", ")", "<<EOF", "$(", "`", "case", "esac", "do", "{"),
        *(":", "\r\n", "\0"),
    ]
)


@settings(deadline=None)
@given(st.lists(st.one_of(_WORDS, st.text(max_size=5)), max_size=40).map("".join))
def test_any_text_is_a_job_or_an_error(text: str) -> None:
    for candidate in (text, f"#!/bin/bash\n#SBATCH -n 4 -t 5\n{text}", f"#!/bin/bash\n#SBATCH {text}"):
        try:
            spec = parse_script(candidate)
        except EjbError as error:
            assert error.message and "\n" not in error.sentence()
            continue
        assert 1 <= spec.processes <= 1_000_000 and spec.walltime_s > 0
        assert JobSpec.from_json(spec.to_json()) == spec


_VALUES = st.one_of(st.none(), st.text(max_size=12), st.sampled_from(["1", "0", "-1", "16", "10:00", "on", "%j"]))


@settings(deadline=None)
@given(
    st.fixed_dictionaries(dict.fromkeys(("ntasks", "nodes", "ntasks_per_node", "time", "name"), _VALUES)),
    st.fixed_dictionaries(dict.fromkeys(("output", "chdir", "export", "elastic", "omax", "delta"), _VALUES)),
    st.lists(st.text(max_size=8), max_size=3),
)
def test_any_overrides_are_a_job_or_an_error(some: dict[str, str], more: dict[str, str], words: list[str]) -> None:
    overrides = Overrides(**some, **more, options=tuple(words))  # type: ignore[arg-type]
    try:
        spec = build_spec(JobRequest(cwd="/w", command=("x",), env={"HOME": "/h"}, overrides=overrides))
    except EjbError as error:
        assert "\n" not in error.sentence()
        return
    assert spec.processes >= 1


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("#SBATCH -N 4 -n 2", "2 processes cannot fill 4 nodes"),
        ("#SBATCH -N 2 --ntasks-per-node=4 -n 16", "do not fit on 2 nodes"),
        ("#SBATCH -p batch,whole", "one partition"),
        ("#SBATCH --array=[1-5]", "indices"),
    ],
)
def test_what_an_elastic_job_cannot_be_is_left_to_sbatch_where_it_is_passed_through(lines: str, words: str) -> None:
    reading = read(JobRequest(cwd="/home/ada", script=f"#!/bin/sh\n#SBATCH -t 5\n{lines}\nhostname\n"))
    assert any(words in refusal.message for refusal in reading.refusals)
    assert reading.passed_through("").elastic is False


def test_options_are_read_as_sbatch_reads_them() -> None:
    lines = "#SBATCH --tasks=3 -N 2\n#SBATCH --mail-user=\n#SBATCH --comment=mine\n"
    reading = read(JobRequest(cwd="/home/ada", script=f"#!/bin/sh\n{lines}hostname\n"))
    assert (reading.spec.processors_per_node, reading.spec.processes) == (3, 6), "--tasks is --tasks-per-node"
    assert reading.spec.asked is not None and reading.spec.asked.comment == reading.spec.comment == "mine"
    assert "--mail-user=" in reading.spec.rigid_options


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("USR1", EndSignal(10)),
        ("SIGUSR2@120", EndSignal(12, 120)),
        ("b:term@300", EndSignal(15, 300, script=True)),
        ("B:9@0", EndSignal(9, 0, script=True)),
        ("R:23@65535", EndSignal(23, 65535, reserved=True)),
    ],
)
def test_a_signal_is_read_as_sbatch_reads_it(text: str, signal: EndSignal) -> None:
    assert EndSignal.read(text) == signal
    if not signal.reserved:
        spec = spec_of("#SBATCH -n 4 -t 5", f"#SBATCH --signal={text}", elastic="on")
        assert spec.signal == text
        assert spec.learned is False, "the end that it goes by is the one that was asked for"
    assert f"--signal={text}" in spec_of("#SBATCH -n 4 -t 5", f"#SBATCH --signal={text}", elastic="off").rigid_options


@pytest.mark.parametrize("text", ["", "@60", "USR3", "0", "65", "USR1@", "USR1@65536", "X:USR1", "USR1@-1"])
def test_what_is_no_signal(text: str) -> None:
    error = error_of("#SBATCH -n 4 -t 5", f"#SBATCH --signal={text}")
    assert error.code is Code.INVALID and error.where == "line 3" and "USR1@120" in error.hint
