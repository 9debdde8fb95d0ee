"""What comes in: a script or a command, where it was submitted from, and the settings of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ejbd.core.parameters import per_job
from ejbd.manager.jobspec.directives import Word, parse_options
from ejbd.manager.jobspec.findings import Given, shortened
from ejbd.manager.jobspec.ownwords import given_setting
from ejbd.manager.jobspec.spec import WITH_FIELDS


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings that win over those of the script (None: not given). Texts are in sbatch's spelling.

    `options` are further options of sbatch as words of an argument list, e.g. ("--mem=4G", "-x", "n7").
    `settings` are those that `#EJB` knows, by their names.
    """

    ntasks: str | None = None
    nodes: str | None = None
    ntasks_per_node: str | None = None
    time: str | None = None
    name: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    output: str | None = None
    error: str | None = None
    chdir: str | None = None
    export: str | None = None
    elastic: str | None = None
    engine: str | None = None
    mpi: str | None = None
    omax: str | None = None
    lambda_s: str | None = None
    delta: str | None = None
    checkpoint: str | None = None
    app: str | None = None
    ntasks_max: str | None = None
    walltime: str | None = None
    profile: str | None = None
    best_effort: bool | None = None
    stages: bool | None = None
    restartable: bool | None = None
    rerunnable: bool | None = None
    hold: bool | None = None
    options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    def given(self) -> Iterator[Given]:
        """The settings in the form in which a script's lines give them; their place is the option's spelling."""
        yield from parse_options([Word(text, "option") for text in self.options])
        for attribute, name in _NAMES.items():
            value = getattr(self, attribute)
            if attribute == "profile" and value and value.replace(",", "").isalpha():
                yield Given("profile", value, "--profile")  # sbatch's own: task, energy, ...
            elif value is not None:
                yield Given(name, value, f"--{attribute.removesuffix('_s').replace('_', '-')}")
        for word, text in self.settings.items():
            yield given_setting(word, text, f"--setting {shortened(word)}")
        if self.restartable is not None:
            yield Given("ejb:restartable", "yes" if self.restartable else "no", "--restartable")
        if self.best_effort is not None:
            yield Given("ejb:best-effort", "yes" if self.best_effort else "no", "--best-effort")
        if self.stages is not None:
            yield Given("ejb:stages", "yes" if self.stages else "no", "--stages")
        if self.rerunnable is not None:
            yield Given("ejb:rerunnable", "yes" if self.rerunnable else "no", "--rerunnable")
        if self.hold:
            yield Given("hold", None, "--hold")


_NAMES = {
    "ntasks": "ntasks",
    "nodes": "nodes",
    "ntasks_per_node": "ntasks-per-node",
    "time": "time",
    "name": "job-name",
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "output": "output",
    "error": "error",
    "chdir": "chdir",
    "export": "export",
    "elastic": "ejb:elastic",
    "engine": "ejb:engine",
    "mpi": "ejb:mpi",
    **{name: f"ejb:{one.key}" for name, one in per_job().items() if name in WITH_FIELDS},
    "checkpoint": "ejb:checkpoint",
    "app": "ejb:app",
    "ntasks_max": "ejb:ntasks-max",
    "walltime": "ejb:walltime",
    "profile": "ejb:profile",
}


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One job as it was handed in: `script` (with `args`) or `command`, exactly one of the two.

    `cwd` is an absolute path, `env` the submitter's environment, `script_name` what the job is called by default.
    `script_path` is where the script was read from (None: from no file). `umask` and `limits` (soft ones by their
    names, -1 is unlimited) are the submitter's, as far as known. `numbered`: the user knows the job by number.
    `profiles`: of how applications are run, the submitter's own (TOML), by the names of their files.
    """

    cwd: str
    script: str | None = None
    script_name: str = "job"
    args: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None
    env: dict[str, str] = field(default_factory=dict)
    overrides: Overrides = field(default_factory=Overrides)
    script_path: str | None = None
    umask: int | None = None
    limits: dict[str, int] = field(default_factory=dict)
    numbered: bool = False
    profiles: Mapping[str, str] = field(default_factory=dict)
