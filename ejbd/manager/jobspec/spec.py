"""The job as the manager needs it, whatever form the user gave it in."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from ejbd.core.needs import Needs
from ejbd.core.parameters import per_job
from ejbd.manager.jobspec.mail import Mail
from ejbd.manager.jobspec.wants import Wants
from ejbd.wire.kinds import JobKind as JobKind


@dataclass(frozen=True, slots=True)
class Asked:
    """What a passed-through job keeps that the rest of its JobSpec does not hold: how its user asked for it.

    `options` of the command line, in the spelling of sbatch; the script's own lines stay in the script. `output` and
    `error` are absolute patterns (None: what sbatch chooses). `directory` is where the job was submitted, from a script
    that stood in `path`. `env` is the submitter's whole environment, of which all goes to the job if `whole_env`, and
    else what `--export` (`export`) says. `umask` and the soft resource `limits` are the user's (-1: unlimited; what is
    missing is not known). `array`: the indices.
    `told`: the variables by which sbatch tells its job some of the options.
    `qsub`: the words of #PBS lines for PBS itself. `why`: what made it a passed-through job, unless its user did.
    """

    directory: str
    options: tuple[str, ...] = ()
    comment: str = ""
    named: bool = False
    path: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    whole_env: bool = True
    export: str = "NONE"
    umask: int | None = None
    limits: dict[str, int] = field(default_factory=dict)
    output: str | None = None
    error: str | None = None
    array: str | None = None
    told: dict[str, str] = field(default_factory=dict)
    qsub: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job as its user described it.

    `processes` ranks of `threads` processors each for at most `walltime_s` seconds at full width (P and R of the
    paper). `tasks_asked` and `threads_asked` tell whether the user said how many. What the job `wants` of nodes beside
    that is made into `needs` when the job is admitted, and the cluster is known. `output` and `error` are
    absolute path patterns with sbatch's `%` signs still in them (`error` None: into `output`). `elastic` None: as the
    queue says. `engine` is `auto`, `application`, `profile`, `dmtcp` or `none`; `mpi` `auto`, `none`, `openmpi`,
    `mpich` or the name of a profile. `options` are sbatch options that concern every subjob
    (account, QoS, ...); `rigid_options` are those that only a passed-through job can keep. `omax`, `lambda_s`, `delta`
    override the queue's. So do `settings` (parameters of its policy by their keys, as texts) and `checkpoint`
    (`off`, `auto` or seconds between periodic ones). `app` is the
    application that it is a run of, NAME or NAME:CLASS (None: by the job's name or its program). `learned`: its
    walltime is learned from earlier runs, and never above `walltime_s` (None: as the queue says). `rerunnable`: it may
    be run again from its beginning. `array`: the indices of an elastic array, as --array has them; each element has
    them, too. `asked` is what a passed-through job needs beside that (None: it is elastic, or was stored by an EJB that
    did not keep it). `pbs`: it has #PBS lines, and `qsub` are words of theirs for every subjob in front of
    PBS. `signal`: as --signal has it. `begins_again`: its script is begun again, behind the launches that have ended,
    where its shell is lost. `keeps_output`: what stands in its output files when it begins stays (--open-mode=append).
    `mail`: the mails that an elastic job sends. `evolving`: the widths that it has one after the other, as
    `ejbd.core.evolving.course` writes them; before it has begun, `steps` alone (None: it does not evolve). `widths`:
    its application can be restarted on another number of ranks, of this shape or list ("": it keeps them).
    `ntasks_max`: up to how many ranks it may grow while no other job waits (0: not beyond its own). `profile`: how its
    application is stopped, judged and resumed, as `ejbd.profiles.profile.Profile` is written (None: it has none).
    `chain`: its queue's limit, where it is longer than that and goes on in the next place holder (`limit_s`), and the
    last one that it was saved on (`left`). `umask` and the soft resource `limits` are the user's, as in :class:`Asked`:
    sbatch hands them on. `script_path`: the file that the script was read from. `comment`: its user's own.
    """

    name: str
    kind: JobKind
    argv: tuple[str, ...]
    processes: int
    walltime_s: float
    cwd: str
    output: str
    queue: str | None = None
    error: str | None = None
    script: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    nodes: int | None = None
    processors_per_node: int | None = None
    engine: str = "auto"
    mpi: str = "auto"
    restartable: bool = False
    begins_again: bool = False
    keeps_output: bool = False
    rerunnable: bool = False
    elastic: bool | None = None
    options: tuple[str, ...] = ()
    rigid_options: tuple[str, ...] = ()
    hold: bool = False
    omax: int | None = None
    lambda_s: float | None = None
    delta: float | None = None
    checkpoint: str | None = None
    app: str | None = None
    learned: bool | None = None
    array: str | None = None
    asked: Asked | None = None
    tasks_asked: bool = True
    threads: int = 1
    threads_asked: bool = False
    wants: Wants = field(default_factory=Wants)
    needs: Needs = field(default_factory=Needs)
    pbs: bool = False
    qsub: tuple[str, ...] = ()
    signal: str = ""
    mail: Mail | None = None
    settings: dict[str, str] = field(default_factory=dict)
    widths: str = ""
    ntasks_max: int = 0
    profile: dict[str, Any] | None = None
    evolving: dict[str, Any] | None = None
    chain: dict[str, Any] | None = None
    umask: int | None = None
    limits: dict[str, int] = field(default_factory=dict)
    script_path: str | None = None
    comment: str = ""

    def passed_through(self) -> JobSpec:
        """As it is kept where the job is passed through: its environment once."""
        if self.asked is None:
            return self
        return replace(self, env={} if self.asked.whole_env else self.env, elastic=False)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`from_json` is its inverse."""
        # Not asdict(), which copies every variable of the environment by way of its own recursion.
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.widths:  # few jobs have any
            del found["widths"]
        if self.script_path is None:
            del found["script_path"]
        if not self.comment:
            del found["comment"]
        if not self.ntasks_max:
            del found["ntasks_max"]
        if self.profile is None:
            del found["profile"]
        found["wants"], found["needs"] = self.wants.to_json(), self.needs.to_json()
        found["mail"] = self.mail.to_json() if self.mail is not None else None
        if self.asked is not None:
            found["asked"] = {field.name: getattr(self.asked, field.name) for field in fields(self.asked)}
        return found

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> JobSpec:
        values = dict(data)
        values["kind"] = JobKind(values["kind"])
        for key in ("argv", "options", "rigid_options", "qsub"):
            values[key] = tuple(values.get(key, ()))
        values["wants"] = Wants.from_json(values.get("wants"))
        values["needs"] = Needs.from_json(values.get("needs"))
        if values.get("mail") is not None:
            values["mail"] = Mail.from_json(values["mail"])
        if values.get("asked") is not None:
            asked = values["asked"]
            words = {key: tuple(asked.get(key, ())) for key in ("options", "qsub")}
            values["asked"] = Asked(**{**asked, **words})
        return cls(**values)


WITH_FIELDS = tuple(name for name in per_job() if name in {field.name for field in fields(JobSpec)})
"""Parameters of every policy that are fields of a JobSpec, since measurements are weighed against them."""
