"""Folders that #PBS lines name for a job's files without a slash behind them: qsub looks whether there is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ejbd.manager.jobspec import JobSpec
from ejbd.manager.jobspec.pbsfiles import FILES, Names, without_server


def into_folders(spec: JobSpec) -> JobSpec:
    """The job, with PBS's own name for each file in a folder that is there now. May wait for a disk."""
    if not spec.pbs:
        return spec
    torque = any(word.startswith("nodes=") for word in (*spec.qsub, *(spec.asked.qsub if spec.asked else ())))
    names = Names(array=spec.array is not None, torque=torque)
    for file in FILES:
        pattern = getattr(spec, file)
        if pattern is None or not _is_folder(pattern):
            continue
        found = f"{pattern.rstrip('/')}/{names.in_folder(file)}"
        spec = _with(spec, file, found)
    return spec


def _with(spec: JobSpec, file: str, found: str) -> JobSpec:
    asked = spec.asked
    if asked is not None:
        said = f"--{file}={without_server(found)}"
        options = tuple(said if _names(word, file, spec) else word for word in asked.options)
        asked = replace(asked, options=options)
        asked = replace(asked, output=found) if file == "output" else replace(asked, error=found)
    return replace(spec, asked=asked, output=found) if file == "output" else replace(spec, asked=asked, error=found)


def _names(word: str, file: str, spec: JobSpec) -> bool:
    """Whether a word of sbatch's command line names the folder."""
    name, equals, value = word.partition("=")
    return bool(equals) and name == f"--{file}" and str(Path(spec.cwd) / value) == getattr(spec, file).rstrip("/")


def _is_folder(pattern: str) -> bool:
    return "%" not in pattern.replace("%%", "") and Path(pattern.replace("%%", "%")).is_dir()
