"""What a script is told that asks Slurm about its own job: `scontrol show job $SLURM_JOB_ID`, `squeue -j ...`.

Slurm's own commands answer. Their job of that number is J0. Its script and files are EJB's, and it may wait while the
script runs in a subjob already. What differs by that is put in: the script's file, its folder and its output files,
and, until J0 runs, the state and the times of the batch job that the script runs in. All other calls pass as they are.

The file is copied into the folder of the shims, and runs there by itself: it imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence

FILE = "own-job.json"
"""In the folder of the shims: `number`, `batch_job` (that the script runs in), and `fields` as scontrol names them."""
_OF_THE_RUN = ("JobState", "Reason", "RunTime", "StartTime", "EndTime", "BatchHost")
_JOB_OPTIONS = ("-j", "--jobs", "--job")
_FORMAT_OPTIONS = ("-o", "--format")
_SIGN = re.compile(r"%(\.?)([0-9]*)([A-Za-z])")


def main(name: str, folder: str, words: Sequence[str]) -> int:
    import shutil  # a worker reads this module's names, and needs no more of it

    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    env = {**os.environ, "PATH": os.pathsep.join(part for part in path if part != folder)}
    program = shutil.which(name, path=env["PATH"])
    if program is None:
        sys.stderr.write("%s: command not found\n" % name)
        return 127
    own = _read(folder)
    if own and os.path.basename(os.path.realpath(program)) != "ejb":  # that one knows the job itself
        job = OwnJob(own, env, program)
        if name == "scontrol" and job.is_shown(words):
            return job.show(words)
        if name == "squeue" and job.is_listed(words):
            return job.list(words)
    try:
        os.execve(program, [name, *words], env)
    except OSError as error:
        sys.stderr.write("%s: %s\n" % (program, error.strerror))
        return 126


def describe_job(number: str, batch_job: str, env: Mapping[str, str], output: str, error: str) -> Dict[str, Any]:
    """The content of FILE, for a script with this environment."""
    fields = {
        "JobName": env.get("SLURM_JOB_NAME", ""),
        "Command": env.get("EJB_COMMAND", "(null)"),
        "Comment": env.get("EJB_COMMENT", ""),
        "WorkDir": env.get("SLURM_SUBMIT_DIR", ""),
        "StdErr": error,
        "StdOut": output,
    }
    return {"number": number, "batch_job": batch_job, "fields": fields}


def _read(folder: str) -> Dict[str, Any]:
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8") as file:
            return dict(json.load(file))
    except (OSError, ValueError):
        return {}


class OwnJob:
    """The job that the script belongs to. `program`: Slurm's own scontrol or squeue."""

    def __init__(self, own: Mapping[str, Any], env: Dict[str, str], program: str) -> None:
        self._number = str(own["number"])
        self._batch_job = str(own["batch_job"])
        self._fields: Dict[str, str] = dict(own["fields"])
        self._env = env
        self._program = program
        element = "%s_%s" % (env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID"))
        self._names = (self._number, element)

    def is_shown(self, words: Sequence[str]) -> bool:
        said = [word.partition("=")[2] or word for word in words]
        shows = "show" in words and any(word.lower().startswith("job") for word in words)
        return shows and any(word in self._names for word in said)

    def is_listed(self, words: Sequence[str]) -> bool:
        return self._listed_at(words) is not None

    def show(self, words: Sequence[str]) -> int:
        """As scontrol has it of J0; of the batch job that runs the script where Slurm has no J0."""
        number = self._number
        done = self._run(self._asking(words, number))
        fields = dict(self._fields)
        if number != self._batch_job and "JobState=RUNNING" not in done.stdout:
            there = self._run(self._asking(words, self._batch_job))
            if done.returncode:
                done = there
                fields["JobId"] = number
            else:
                fields.update((name, _field(there.stdout, name)) for name in _OF_THE_RUN)
                fields["NodeList"] = self._env.get("SLURM_JOB_NODELIST", "")
                fields["NumNodes"] = self._env.get("SLURM_JOB_NUM_NODES", "1")
        sys.stdout.write(with_fields(done.stdout, fields))
        sys.stderr.write(done.stderr)
        return done.returncode

    def list(self, words: Sequence[str]) -> int:
        """As squeue has it: of J0 once it runs, else of the batch job that the script runs in."""
        number = self._number
        if number != self._batch_job:
            state = self._run(["--noheader", "--jobs=%s" % number, "--format=%T"]).stdout.strip()
            number = number if state == "RUNNING" else self._batch_job
        at = self._listed_at(words)
        assert at is not None
        asked = list(words)
        asked[at] = asked[at].replace(self._listed(words[at]), number)
        known = {"o": self._fields["Command"], "Z": self._fields["WorkDir"], "k": self._fields["Comment"] or "(null)"}
        if number != self._number:
            known.update(i=self._number, A=self._number, F=self._number, j=self._fields["JobName"])
            known.update(D=self._env.get("SLURM_JOB_NUM_NODES", "1"), N=self._env.get("SLURM_JOB_NODELIST", ""))
        for place, word in enumerate(asked):
            option, equals, value = word.partition("=")
            if place and asked[place - 1] in _FORMAT_OPTIONS:
                asked[place] = _with_known(word, known)
            elif equals and option in _FORMAT_OPTIONS:
                asked[place] = "%s=%s" % (option, _with_known(value, known))
            elif word.startswith("-o") and len(word) > 2:
                asked[place] = "-o" + _with_known(word[2:], known)
        done = self._run(asked)
        text = done.stdout
        if number != self._number:
            text = re.sub(r"(?m)^( *)%s(?=\s)" % number, lambda found: self._number.rjust(len(found[0])), text)
        sys.stdout.write(text)
        sys.stderr.write(done.stderr)
        return done.returncode

    def _asking(self, words: Sequence[str], number: str) -> List[str]:
        """scontrol's words, about the job of this number."""
        found = []
        for word in words:
            option, equals, value = word.partition("=")
            named = value if equals else word
            found.append((option + "=" if equals else "") + number if named in self._names else word)
        return found

    def _listed_at(self, words: Sequence[str]) -> Optional[int]:
        """Where squeue's words name the own job, and no other."""
        for at, word in enumerate(words):
            named = word if at and words[at - 1] in _JOB_OPTIONS else self._listed(word)
            if named in self._names:
                return at
        return None

    @staticmethod
    def _listed(word: str) -> str:
        option, equals, value = word.partition("=")
        if equals and option in _JOB_OPTIONS:
            return value
        return word[2:] if word.startswith("-j") and len(word) > 2 else word if not word.startswith("-") else ""

    def _run(self, words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self._program, *words],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            errors="surrogateescape",
        )


def with_fields(text: str, fields: Mapping[str, str]) -> str:
    """scontrol's answer with these values in it, without an empty comment, or one by which EJB knows its batch job."""
    if "BatchHost=" not in text and "BatchHost" in fields:
        text = re.sub(r"(\s+)(?=NumNodes=)", r"\1BatchHost=\1", text, count=1)
    for name, value in fields.items():
        pattern = r"(?<!\S)%s=.*?(?=\s[A-Z][\w/:&.]*=|\s*\n|\s*$)" % name
        text = re.sub(pattern, lambda _found, word="%s=%s" % (name, value): word, text, count=1)  # type: ignore[misc]
    return re.sub(r"\s+(?:Comment=(?:ejb-\S*)? *|SchedNodeList=\S*)(?=\s)", "", text)


def _field(text: str, name: str) -> str:
    found = re.search(r"(?<!\S)%s=(\S*)" % name, text)
    return found[1] if found else ""


def _with_known(format: str, known: Mapping[str, str]) -> str:
    """squeue's format with the values that are known here in their places, as wide as was asked for."""

    def fill(found: "re.Match[str]") -> str:
        right, width, sign = found[1], int(found[2] or "0"), found[3]
        if sign not in known:
            return found[0]
        value = known[sign][:width] if width else known[sign]
        return value.rjust(width) if right else value.ljust(width)

    return _SIGN.sub(fill, format)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
