"""Whether a script may be begun again from its first line, where the shell that ran it was lost with its node, and
whether a job may put itself back into the queue.

Launches that had ended return their codes then, and the one that ran goes on from its checkpoint. What a script does
beside them would be done twice, and only its user knows whether it stands that. So it is begun again where it does
nothing else that can be seen, or where the user says so. As with launches only the text is read. Here what is not known
is in the way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ejbd._workers.ejb_worker.programs import is_assignment
from ejbd.manager.jobspec.findings import Given, Refusal, shortened
from ejbd.options.signals import EndSignal

WORDS = ("requeue", "no-requeue")
"""What a user says of it: sbatch's --requeue and --no-requeue, and `-r y` and `-r n` of #PBS lines."""
HINT = "say --requeue, or `#EJB restartable`, if the script may be begun again"
_LEAVES_NOTHING = frozenset(
    {
        *("cd", "pushd", "popd", "export", "readonly", "declare", "typeset", "local", "unset", "set", "shift"),
        *("ulimit", "umask", "shopt", "module", "ml", "sleep", "wait", "exit", "return", "break", "continue"),
        *("for", "done", "fi", "}", ")", ":", "true", "false", "echo", "printf", "hostname", "date", "uname"),
        *("uptime", "id", "whoami", "pwd", "ls", "df", "free", "nproc", "lscpu", "printenv", "which", "type"),
        *("sinfo", "squeue", "nvidia-smi"),
    }
)
"""Commands that leave nothing behind but what they print, and go the same way each time."""


@dataclass(slots=True)
class InTheWay:
    """`found`: the first line of a script that stands in the way of another beginning."""

    found: Refusal | None = None

    def launch(self, line: int, words: Sequence[str], *, appends: bool) -> None:
        """A launch, with its assignments: what it wrote into a file or a pipe is written there once more."""
        if appends:
            self._note(line, "what a launch adds to a file (>>) would be added twice")
        self._substitutes(line, words)

    def command(self, line: int, words: Sequence[str], files: Sequence[str]) -> None:
        """A command that is no launch, with its assignments and wrappers; `files` are those that it writes."""
        command = list(words)
        while command and is_assignment(command[0]):
            command.pop(0)
        name = command[0] if command else ""
        if name and name not in _LEAVES_NOTHING:
            self._note(line, f"{shortened(name)} is work beside the launches")
        if any(file != "/dev/null" for file in files):
            self._note(line, f"{shortened(name or '>')} writes a file beside the launches")
        if name == "for" and any(set(word) & set("*?[`") or "$(" in word for word in command):
            self._note(line, "what the loop goes over may change")
        self._substitutes(line, words)

    def _substitutes(self, line: int, words: Sequence[str]) -> None:
        if not all(map(_only_reads, words)):
            self._note(line, "what stands in a substitution may be work, or come out otherwise")

    def _note(self, line: int, message: str) -> None:
        if self.found is None:
            self.found = Refusal(f"line {line}", message, HINT)


def _only_reads(word: str) -> bool:
    """Whether the substitutions in a word do no more than read and count, as `$(wc -l < $PBS_NODEFILE)` does."""
    left = _SUBSTITUTION.sub(lambda found: "" if _reads(found[1] or found[2] or "") else found[0], word)
    return "$(" not in left and "`" not in left


_SUBSTITUTION = re.compile(r"\$\(([^()`]{0,200})\)|`([^()`]{0,200})`")
_READS = frozenset(
    {
        *("basename", "cat", "cut", "date", "dirname", "expr", "head", "hostname"),
        *("nproc", "pwd", "seq", "tail", "tr", "uniq", "wc"),
    }
)


def _reads(text: str) -> bool:
    if set(text) & set(">;&\n"):
        return False
    names = [part.split()[:1] for part in text.split("|")]
    return all(name and name[0] in _READS for name in names)


UNSEEN = Refusal("script", "what it does beside its launches cannot be seen", HINT)


def said(given: Sequence[Given]) -> Given | None:
    """What the user says of it; the last word holds."""
    return next((one for one in reversed(given) if one.name in WORDS), None)


def obstacle(word: Given | None, seen: Refusal | None) -> Refusal | None:
    """Why a script that is not `restartable` is not begun again; None: it is."""
    if word is None:
        return seen
    if word.name == "requeue":
        return None
    return Refusal(word.where, "it says that it is not to be run again", HINT)


def note(why: Refusal) -> str:
    """What the user of an elastic job is told beforehand."""
    return (
        f"{why.where}: the script is not begun again where the node of its shell is lost, and has failed then, though "
        f"its launches may have checkpoints: {why.message} ({why.hint})"
    )


_REQUEUES = re.compile(r"\bscontrol\b[\"',\s]{1,9}(?:-\S{1,60}[\"',\s]{1,9}){0,9}requeue(?:hold)?\b")


def requeues_itself(script: str | None, signal: EndSignal | None, where: str, word: Given | None) -> Refusal | None:
    """Why a job may put itself back into the queue (`scontrol requeue`), which an elastic one cannot; None: it will
    not.

    Its text may say so. Programs that are told of their end do it in their handler: of their ranks the text does not
    show it. `signal` and `where` it stands: --signal. `word`: what the user says of another run, as :func:`said`.
    """
    # The pattern alone looks at each character of a long line, and nothing else of the daemon's goes on meanwhile.
    for number, line in enumerate(script.split("\n") if script and "scontrol" in script else (), 1):
        if not line.lstrip().startswith("#") and _REQUEUES.search(line):
            message = "`scontrol requeue` puts a job back into the queue, and only an ordinary one can go there"
            return Refusal(f"line {number}", message)
    if signal is None or signal.script or (word is not None and word.name == "no-requeue"):
        return None
    message = "ranks that --signal tells of their end may put the job back into the queue, where no elastic one can go"
    return Refusal(where, message, "say --no-requeue, if they only save their work", doubt=True)
