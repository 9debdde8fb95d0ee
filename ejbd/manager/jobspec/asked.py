"""What a passed-through job keeps as it was asked for: sbatch is to read it as if its user had typed it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence

from ejbd.manager.jobspec import values
from ejbd.manager.jobspec.findings import Given, has_control, invalid, shortened
from ejbd.manager.jobspec.patterns import as_sbatch_reads, check_pattern
from ejbd.manager.jobspec.pbsfiles import for_sbatch
from ejbd.manager.jobspec.pbslines import PbsLines
from ejbd.manager.jobspec.request import JobRequest
from ejbd.manager.jobspec.spec import Asked
from ejbd.options.sbatch import BY_NAME, Use

# Given by EJB itself, or in its own way.
_OURS = frozenset({"hold", "comment", "wait", "verbose", "quiet", "parsable"})

# Measured against sbatch 22.05: what it sets in its own environment, and so not in one that it reads from a file.
_TOLD: dict[str, Callable[[str], str]] = {
    "open-mode": lambda value: value[:1].lower(),
    "profile": lambda value: ",".join(word.strip().capitalize() for word in value.split(",")),
    "acctg-freq": str,
    "cpu-freq": lambda value: value.capitalize(),
    "hint": str,
    "container": str,
}
_SPELLED = {"cpu-freq": "SLURM_CPU_FREQ_REQ"}
_VARIABLES = [(name, _SPELLED.get(name, "SLURM_" + name.upper().replace("-", "_"))) for name in _TOLD]


def asked_for(
    request: JobRequest, settings: Mapping[str, Given], typed: Sequence[Given], cwd: str, pbs: PbsLines
) -> Asked:
    """What the command line (`typed`) and the whole of the settings say. Raises EjbError (INVALID).

    sbatch, too, reads #PBS lines, and knows less of them: it is told what they say by options, and to leave them alone.
    """
    export = settings.get("export")
    comment = settings.get("comment")
    array = settings.get("array")
    path = request.script_path
    if path is not None and (has_control(path) or not path.startswith("/")):
        raise invalid("script_path", f"{shortened(path)} is not the absolute path of a script")
    return Asked(
        directory=request.cwd,
        options=(*(("--ignore-pbs", *_words(for_sbatch(pbs.given))) if pbs.present else ()), *_words(typed)),
        comment=values.text(comment, "the comment", empty=True) if comment is not None else "",
        named="job-name" in settings,
        path=path,
        env=request.env,
        whole_env=export is None or (export.value or "").upper() == "ALL",
        export="" if export is None else export.value or "",
        umask=request.umask if pbs.umask is None else pbs.umask,
        limits=request.limits,
        output=output_pattern(settings.get("output"), cwd),
        error=output_pattern(settings.get("error"), cwd),
        array=array.value if array is not None else None,
        told={variable: _TOLD[name](settings[name].value or "") for name, variable in _VARIABLES if name in settings},
        qsub=_for_qsub(pbs, typed),
    )


_SHAPE = frozenset({"ntasks", "nodes", "ntasks-per-node", "cpus-per-task", "mem", "mem-per-cpu", "constraint"})


def _for_qsub(pbs: PbsLines, typed: Sequence[Given]) -> tuple[str, ...]:
    """The words of #PBS lines, without the resources where the command line says what goes before them."""
    if not any(one.name in _SHAPE for one in typed):
        return pbs.whole
    return tuple(word for word, before in zip(pbs.whole, ("", *pbs.whole), strict=False) if "-l" not in (word, before))


def _words(given: Iterable[Given]) -> Iterable[str]:
    """The options of the command line as words that sbatch reads as they were meant."""
    for one in given:
        option = BY_NAME.get(one.name)
        if option is None or option.use is Use.REFUSED or one.name in _OURS:
            continue
        if one.value is None:
            yield option.spelling
        else:
            longest = 1_000_000 if one.name == "export" else 4096
            yield f"{option.spelling}={values.text(one, f'the value of {option.spelling}', longest, empty=True)}"


def output_pattern(given: Given | None, cwd: str) -> str | None:
    """The absolute pattern of an output file. Raises EjbError (INVALID) for one that cannot be."""
    if given is None:
        return None
    check_pattern(given.value or "", given.where)
    return beside(cwd, as_sbatch_reads(given.value or ""))


def beside(cwd: str, pattern: str) -> str:
    """A pattern within a folder."""
    return posixpath.join(cwd.replace("%", "%%"), pattern)  # a % in the folder's own name is no sign
