"""From a request to a JobSpec."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from ejbd._workers.ejb_worker.launch_options import objection
from ejbd.core.parameters import Declared, per_job
from ejbd.manager.jobspec import again, pbsfiles, shell, values
from ejbd.manager.jobspec.asked import asked_for, beside, output_pattern
from ejbd.manager.jobspec.directives import read_directives
from ejbd.manager.jobspec.endsignal import read_signal
from ejbd.manager.jobspec.evolving import notes_on, read_profile, read_stages, stored, walltime_of
from ejbd.manager.jobspec.export import check_environment, exported
from ejbd.manager.jobspec.findings import CONTROL_HINT, Given, Refusal, has_control, invalid, shortened
from ejbd.manager.jobspec.indices import Indices
from ejbd.manager.jobspec.layout import read_layout
from ejbd.manager.jobspec.mail import read_mail
from ejbd.manager.jobspec.ownwords import own_words
from ejbd.manager.jobspec.patterns import DEFAULT_OUTPUT, SBATCHS_ARRAY_OUTPUT, SBATCHS_OUTPUT
from ejbd.manager.jobspec.pbslines import PbsLines, read_pbs_lines
from ejbd.manager.jobspec.request import JobRequest
from ejbd.manager.jobspec.spec import WITH_FIELDS, JobKind, JobSpec
from ejbd.manager.jobspec.wants import read_wants
from ejbd.options.sbatch import BY_NAME, Use
from ejbd.wire.kinds import Engine

MOST_OF_A_VALUE = 131_071  # characters; a word of a command may have no more
KEPT_CHARACTERS = 16_384
NO_WALLTIME = Refusal(
    "walltime",
    "an elastic job needs a walltime, and none is given",
    "add `#SBATCH -t 1:00:00` (or -t 1:00:00), or pass the job through with --elastic off",
)


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Reading:
    """A job as it was understood.

    `refusals` say why it cannot be elastic (none: it can), `notes` what is not acted on. A `walltime_s` of 0 in the
    spec means that none was given or that it is unlimited; only a passed-through job can have that. `profiles`: as of
    the :class:`JobRequest`. `behind_batch_jobs`: what its dependency names are batch jobs, whatever they are of.
    `numbered`: its user waits for its number.
    """

    spec: JobSpec
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    profiles: Mapping[str, str] = field(default_factory=dict)
    behind_batch_jobs: bool = False
    numbered: bool = False

    def elastic_spec(self) -> JobSpec:
        """The job as an elastic one, without what the notes say that it does without.

        Raises EjbError (UNSUPPORTED) where it surely cannot be one; of what is merely doubted its user knows better.
        """
        certain = tuple(refusal for refusal in self.refusals if not refusal.doubt)
        if certain:
            raise certain[0].error(certain[1:])
        return replace(self.spec, rigid_options=()) if self.spec.rigid_options else self.spec

    def passed_through(self, why: str) -> JobSpec:
        """The job as one that is handed on as it is, and `why`: also if its queue's settings change meanwhile."""
        asked = replace(self.spec.asked, why=why) if self.spec.asked is not None else None
        return replace(self.spec, elastic=False, asked=asked)


def build_spec(request: JobRequest) -> JobSpec:
    """The JobSpec of a request, of an elastic job unless it says `elastic=off`.

    Raises EjbError (INVALID, or UNSUPPORTED where an elastic job cannot be held).
    """
    reading = read(request)
    return reading.spec if reading.spec.elastic is False else reading.elastic_spec()


def parse_script(text: str, *, cwd: str = "/", name: str = "job") -> JobSpec:
    """The JobSpec of a script alone, as an elastic job. Raises EjbError as :func:`build_spec` does."""
    return build_spec(JobRequest(cwd=cwd, script=text, script_name=name))


def read(request: JobRequest) -> Reading:
    """Read a request. Raises EjbError (INVALID) for what could not be run in any way."""
    _check_request(request)
    given: list[Given] = []
    refusals: list[Refusal] = []
    typed = list(request.overrides.given())
    pbs = PbsLines()
    if request.script is not None:
        if request.script.lstrip()[:1] in ("#", ":"):
            pbs = _for_pbs(request.script, typed)
        check_script(request.script, first_line=not pbs.present)
        directives = _kept(_directives, read_directives, request.script)
        if any(one.name == _IGNORE_PBS for one in directives.given):
            pbs = PbsLines()
            check_script(request.script)
        pbs = replace(pbs, given=pbsfiles.from_home(pbs.given, request.env.get("HOME")))
        given += (*directives.given, *pbs.given)
        refusals += (*directives.refusals, *pbs.refusals)
    given += typed
    for one in given:
        if one.value is not None and len(one.value) > MOST_OF_A_VALUE:
            message = f"the value of {one.name} has more than {MOST_OF_A_VALUE} characters"
            raise invalid(one.where, message, "no command takes a longer word; use a file, or shorten it")
    settings = {one.name: one for one in given}  # the last one wins
    options, notes = _sort_options(settings, refusals)
    notes += pbs.notes
    layout = read_layout(settings)
    refusals += layout.refusals
    unsized = not layout.tasks_asked and layout.nodes is not None
    wants, cannot = read_wants(settings, options.shape, options.first, unsized)
    refusals += cannot
    rigid = (*options.rigid, *layout.rigid)
    if (word := again.said(given)) is not None:
        rigid = (*rigid, f"--{word.name}")
    once: Refusal | None = None
    launches: tuple[shell.Launch, ...] | None = None if request.script is None else ()
    restartable = values.switch(settings["ejb:restartable"]) if "ejb:restartable" in settings else False
    walltime_s = 0.0
    if (time := settings.get("time")) is None:
        refusals.append(NO_WALLTIME)
    elif (seconds := values.walltime(time)) is None:
        message = f"an elastic job needs a walltime that ends, not {shortened(time.value or '')}"
        refusals.append(Refusal(time.where, message, NO_WALLTIME.hint))
        rigid = (*rigid, "--time=UNLIMITED")
    else:
        walltime_s = seconds
    if request.script is not None:
        # Where nodes are whole, as many ranks as they have processors: that only the cluster knows.
        processors = values.MOST_PROCESSES if unsized or wants.whole_nodes else layout.processes * layout.threads
        script = _with_shell(request, pbs) or ""
        seen = _kept(_seen, shell.read_script, script, processors)
        launches = seen.launches
        refusals += seen.refusals if script == request.script else map(_line_before, seen.refusals)
        if seen.doubt is not None:
            refusals.append(seen.doubt)
        once = again.obstacle(word, seen.once if script == request.script else seen.once and _line_before(seen.once))
        if once is not None and not restartable:
            notes.append(again.note(once))
    if (partition := settings.get("partition")) and "," in (partition.value or ""):
        refusals.append(Refusal(partition.where, "an elastic job waits in one partition, not in several"))
        rigid = (*rigid, f"--partition={partition.value}")
    if (given_way := settings.get("distribution")) and (
        why := objection("srun", [f"--distribution={given_way.value}", "a"], values.MOST_PROCESSES)
    ):
        refusals.append(Refusal(given_way.where, f"an elastic job cannot keep {why}"))
    array = settings.get("array")
    if array is not None and Indices.read(array.value or "") is None:
        message = f"only the batch system can read the indices {shortened(array.value or '')}"
        refusals.append(Refusal(array.where, message, "such as 0-99%10 or 1,3,5-9:2, or --elastic off"))
    end_signal = read_signal(settings["signal"]) if "signal" in settings else None
    if end_signal is not None and end_signal.reserved:
        message = "an elastic job cannot keep R: of --signal: only the batch system sees such room"
        refusals.append(Refusal(settings["signal"].where, message))
    elif end_signal is not None and end_signal.script and request.script is None:
        message = "B: of --signal is for the shell of a script, and this is a command"
        refusals.append(Refusal(settings["signal"].where, message))
    told_by = settings["signal"].where if "signal" in settings else ""
    if (requeues := again.requeues_itself(request.script, end_signal, told_by, word)) is not None:
        refusals.append(requeues)
    profile = read_profile(settings, layout, walltime_s)
    if profile is not None:
        layout = replace(layout, processes=profile.peak, tasks_asked=True)
        walltime_s = walltime_s or walltime_of(profile)
        refusals = [refusal for refusal in refusals if refusal is not NO_WALLTIME]
    stages = read_stages(settings, layout, walltime_s, launches)
    if stages is None:
        refusals += [
            Refusal(f"line {one.first_line}", f"`{one.name} -t` ends its ranks after a time, and moves take some of it")
            for one in launches or ()
            if one.shape is not None and one.shape[1]
        ]
    else:
        refusals = [refusal for refusal in refusals if refusal is not NO_WALLTIME] if walltime_s else refusals
        notes += notes_on(launches or ())
    evolves = profile is not None or stages is not None
    mail, not_sent = read_mail(settings, notes)
    if not_sent is not None:
        refusals.append(not_sent)
    cwd = _directory(settings.get("chdir"), request.cwd)
    check_environment(request.env)
    export = settings.get("export")
    env = exported(request.env, export.value if export else None, export.where if export else "")
    if export is not None and export.value and request.script is not None and not pbs.present:
        env["SLURM_EXPORT_ENV"] = export.value  # by it the script's own srun does the same
    name = _name(settings.get("job-name"), request)
    asked = asked_for(request, settings, typed, cwd, pbs)
    spec = JobSpec(
        name=name,
        kind=JobKind.SCRIPT if request.script is not None else JobKind.COMMAND,
        argv=request.args if request.command is None else request.command,
        processes=layout.processes,
        walltime_s=walltime_s,
        cwd=cwd,
        output=output_pattern(settings.get("output"), cwd) or beside(cwd, _output(request, array is not None)),
        queue=values.text(settings["partition"], "the queue") if "partition" in settings else None,
        error=output_pattern(settings.get("error"), cwd),
        script=_with_shell(request, pbs),
        env=env,
        nodes=layout.nodes,
        processors_per_node=layout.processors_per_node,
        tasks_asked=layout.tasks_asked,
        threads=layout.threads,
        threads_asked=layout.threads_asked,
        wants=wants,
        engine=values.engine(settings["ejb:engine"]) if "ejb:engine" in settings else "auto",
        mpi=values.text(settings["ejb:mpi"], "the MPI") if "ejb:mpi" in settings else "auto",
        restartable=restartable,
        begins_again=request.script is not None and once is None,
        keeps_output=values.keeps_output(settings["open-mode"]) if "open-mode" in settings else False,
        rerunnable=values.switch(settings["ejb:rerunnable"]) if "ejb:rerunnable" in settings else False,
        elastic=_elastic(settings, evolves=evolves),
        options=options.shared,
        rigid_options=rigid,
        hold="hold" in settings,
        **{name: _own(settings, per_job()[name]) for name in WITH_FIELDS},
        settings=own_words(settings),
        checkpoint=values.every(settings["ejb:checkpoint"]) if "ejb:checkpoint" in settings else None,
        app=values.application(settings["ejb:app"]) if "ejb:app" in settings else None,
        learned=False if evolves else _learned(settings, notes),
        array=array.value if array is not None else None,
        asked=asked,
        comment=asked.comment,
        umask=request.umask if pbs.umask is None else pbs.umask,
        limits=request.limits,
        script_path=request.script_path,
        widths=values.widths(settings["ejb:widths"]) if "ejb:widths" in settings else "",
        ntasks_max=values.count(settings["ejb:ntasks-max"], "ntasks-max") if "ejb:ntasks-max" in settings else 0,
        pbs=pbs.present,
        qsub=pbs.shared,
        signal=settings["signal"].value or "" if end_signal is not None else "",
        mail=mail,
        evolving=stages or stored(profile, settings),
    )
    if spec.restartable and spec.kind is JobKind.COMMAND:
        raise invalid(settings["ejb:restartable"].where, "restartable is about scripts, and this is a command")
    if spec.widths and not Engine.reshapes(spec.engine):
        what = "widths are of an application that checkpoints itself"
        raise invalid(settings["ejb:widths"].where, what, "say engine=application, too, if it does")
    if spec.ntasks_max:
        _check_growth(spec, settings["ejb:ntasks-max"], evolves=profile is not None)
    return Reading(spec, tuple(refusals), tuple(notes), request.profiles, numbered=request.numbered)


def _check_growth(spec: JobSpec, given: Given, *, evolves: bool) -> None:
    """Raise EjbError (INVALID) where a job cannot grow beyond its ranks as it says."""
    if not Engine.reshapes(spec.engine) and spec.engine not in ("auto", "profile"):
        what = "ntasks-max is of an application that can be restarted on another number of ranks"
        raise invalid(given.where, what, "say engine=profile, or engine=application with widths, if it does")
    if evolves:
        raise invalid(given.where, "a job with a profile of widths says them all itself", "leave ntasks-max out")
    if spec.tasks_asked and spec.ntasks_max < spec.processes:
        what = f"ntasks-max {spec.ntasks_max} is less than the {spec.processes} ranks that the job asks for"
        raise invalid(given.where, what)


# A script that is submitted a thousand times, with other arguments each, is read once.
_directives = lru_cache(maxsize=64)(read_directives)
_seen = lru_cache(maxsize=64)(shell.read_script)


def _kept(kept: Callable[..., _T], read: Callable[..., _T], script: str, *more: int) -> _T:
    """What a script says, from before if it is a short one that was read of late."""
    return (kept if len(script) <= KEPT_CHARACTERS else read)(script, *more)


_IGNORE_PBS = "ignore-pbs"
_pbs_lines = lru_cache(maxsize=64)(read_pbs_lines)


def _for_pbs(script: str, typed: Sequence[Given]) -> PbsLines:
    """What a script's #PBS lines say, unless the command line says that they are not to be read."""
    if any(one.name == _IGNORE_PBS for one in typed):
        return PbsLines()
    return _kept(_pbs_lines, read_pbs_lines, script)


def _with_shell(request: JobRequest, pbs: PbsLines) -> str | None:
    """The script with a first line that names what runs it: qsub goes by -S, or else takes its user's shell."""
    text = request.script
    if text is None or not pbs.present:
        return text
    first = text.partition("\n")[0]
    named = first[2:].split()[:1] if first.startswith("#!") else []
    shell = pbs.shell or ("" if named else request.env.get("SHELL") or "/bin/sh")
    return f"#!{shell}\n{text}" if shell and named != [shell] else text


def _line_before(refusal: Refusal) -> Refusal:
    """With the line as its user counts it: the user's script has no first line that names a shell."""
    word, _, number = refusal.where.partition(" ")
    return replace(refusal, where=f"line {int(number) - 1}") if word == "line" and number.isdigit() else refusal


def check_script(script: str, *, first_line: bool = True) -> None:
    """Raise EjbError (INVALID) for a text that is no batch script; qsub needs no `#!` in its first line."""
    if not script:
        raise invalid("script", "the script is empty")
    if not script.strip():
        raise invalid("script", "the script holds nothing but blanks")
    if "\0" in script:
        raise invalid("script", "this is not a text but a binary file", "run a program by `ejb submit -- ./program`")
    if first_line and not script.startswith("#!"):
        hint = "its first line must name an interpreter, such as #!/bin/bash"
        raise invalid("line 1", "this does not look like a batch script", hint)
    if "\r\n" in script:
        line = script[: script.index("\r\n")].count("\n") + 1
        hint = "convert it: sed -i 's/\\r$//' SCRIPT"
        raise invalid(f"line {line}", "the script has DOS line ends (\\r\\n) instead of \\n", hint)
    try:
        script.encode()
    except UnicodeEncodeError:
        raise invalid("script", "the script is not valid Unicode") from None


@dataclass(slots=True)
class _Options:
    shared: tuple[str, ...] = ()
    rigid: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


def _sort_options(settings: dict[str, Given], refusals: list[Refusal]) -> tuple[_Options, list[str]]:
    """The options that are handed on as words, and notes on those that are not acted on."""
    found = _Options()
    notes: list[str] = []
    for name, given in settings.items():
        option = BY_NAME.get(name)
        if option is None or option.use is Use.UNDERSTOOD:
            continue
        if option.use is Use.REFUSED:
            raise invalid(given.where, f"{option.spelling} cannot be used here: {option.why}")
        word = option.spelling
        if given.value is not None:
            word += "=" + values.text(given, f"the value of {option.spelling}", empty=True)
        if option.use is Use.SHARED:
            found.shared += (word,)
        elif option.use is Use.DROPPED:
            notes.append(f"{given.where}: {option.spelling} is not acted on: {option.why}")
        else:
            found.rigid += (word,)
            if option.use is Use.SHAPED:
                found.shape += (word,)
            elif option.use is Use.FIRST:
                found.first += (word,)
            elif option.use is Use.SOFT:
                notes.append(f"{given.where}: {option.spelling} is not acted on in an elastic job: {option.why}")
            elif option.use is Use.RIGID:
                message = f"an elastic job cannot keep {option.spelling}: {option.why}"
                refusals.append(Refusal(given.where, message))
    return found, notes


def _check_request(request: JobRequest) -> None:
    if (request.script is None) == (request.command is None):
        raise invalid("request", "a job is either a script or a command", "give exactly one of the two")
    if request.command is not None and request.args:
        raise invalid("args", "arguments belong to a script; a command has its own")
    for word in (*request.args, *(request.command or ())):
        if "\0" in word or any(0xD800 <= ord(c) < 0xE000 for c in word):
            raise invalid("command", f"the argument {shortened(word)} cannot be handed to a program")
    if request.command is not None and (not request.command or not request.command[0].strip()):
        raise invalid("command", "the command is empty", "write it behind `--`: ejb submit -n 16 -t 10 -- ./app")


def _directory(given: Given | None, cwd: str) -> str:
    for where, path in (("cwd", cwd), (given.where, given.value or "") if given else ("cwd", cwd)):
        if not path:
            raise invalid(where, "the working directory is empty")
        if has_control(path):
            raise invalid(where, f"the working directory {shortened(path)} holds a control character", CONTROL_HINT)
    if not cwd.startswith("/"):
        raise invalid("cwd", f"the working directory {shortened(cwd)} is not an absolute path")
    return posixpath.join(cwd, given.value or "") if given else cwd


def _output(request: JobRequest, is_array: bool) -> str:
    """Where the output goes if nothing is said of that: to a file by which the job's user knows the job."""
    if not request.numbered:
        return DEFAULT_OUTPUT
    return SBATCHS_ARRAY_OUTPUT if is_array else SBATCHS_OUTPUT


def _name(given: Given | None, request: JobRequest) -> str:
    if given is None:
        word = request.command[0] if request.command else request.script_name
        given = Given("job-name", posixpath.basename(word.rstrip("/")) or "job", "name")
    return values.text(given, "the job's name", values.LONGEST_NAME)


def _learned(settings: dict[str, Given], notes: list[str]) -> bool | None:
    """Whether the walltime is learned: not where the end that a signal goes by is the one that was asked for."""
    given = settings.get("ejb:walltime")
    learned = values.learned_walltime(given) if given is not None else None
    if "signal" not in settings:
        return learned
    if given is not None and learned:
        notes.append(f"{given.where}: the walltime is not learned, since --signal goes by the one that is asked for")
    return False


def _elastic(settings: dict[str, Given], *, evolves: bool) -> bool | None:
    """Whether the job is to be elastic: one that evolves is in any case."""
    return evolves or (values.elastic(settings["ejb:elastic"]) if "ejb:elastic" in settings else None)


def _own(settings: dict[str, Given], one: Declared) -> Any:
    """A parameter of the policy in the job's own words, within the bounds that it is declared with."""
    given = settings.get(f"ejb:{one.key}")
    if given is None:
        return None
    if one.kind is int:
        return values.count(given, one.key, int(one.about.most))
    return values.number(given, one.key, one.about.least, one.about.most)


__all__ = ["Reading", "build_spec", "check_script", "parse_script", "read"]
