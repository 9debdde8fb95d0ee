"""The launches that can be seen in a shell script, and what an elastic job could not hold.

This is a look, not an interpreter. It follows quotes, comments, substitutions, here-documents and the grouping of
commands. It says something only where a launch stands plainly in the place of a command. What it cannot see (a launch
in a file that the script runs in the background) the shims launch without EJB at run time.

It takes time in proportion to the script's length, whatever that holds. Every place is passed once, and not read again
(tests/unit/test_jobspec_growth.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ejbd._workers.ejb_worker.launch_options import LAUNCHERS, is_unreadable, objection, program, shape
from ejbd._workers.ejb_worker.programs import is_assignment
from ejbd.manager.jobspec.again import UNSEEN, InTheWay
from ejbd.manager.jobspec.beside import Beside, is_parallel, only_looks, without_wrappers
from ejbd.manager.jobspec.findings import Refusal
from ejbd.manager.jobspec.inturn import InTurn

# Launchers that EJB does not speak for: their ranks would stay where the script runs.
_FOREIGN = frozenset(
    {
        *("ibrun", "aprun", "jsrun", "lrun", "yhrun", "prun", "prterun", "poe", "charmrun", "flux", "ccc_mprun"),
        *("mpirun_rsh", "mpirun_mpt", "mpiexec_mpt", "mpiexec.gforker", "mpiexec.slurm"),
    }
)
_STAY = frozenset({"then", "do", "else", "elif", "!", "time"})  # what follows is a command again
_DECLARING = frozenset({"export", "readonly", "local", "declare"})
_CONDITIONS = frozenset({"if", "elif", "while", "until"})
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_NAMES_A_LAUNCHER = re.compile(r"\$\{?\w*(?:srun|mpi_?(?:run|exec)|launch)\w*(?::?[-=+?][^}]*)?\}?", re.IGNORECASE)
_NAMES = "|".join(re.escape(name) for name in LAUNCHERS)
_IN_SUBSTITUTION = re.compile(  # in the place of a command
    rf"(?:^|[;&|({{`!\n]|\bdo\b|\bthen\b)[ \t]{{0,99}}(?:\w{{1,99}}=\S{{0,99}}[ \t]+){{0,9}}({_NAMES})\s"
)
_LONGEST_LAUNCH = 200  # characters of a launch in a substitution that are looked at
_END_OF_COMMAND = re.compile(r"[;|&)`\n]")
_IN_TEXT = re.compile(rf"(?<![\w./$-])(?:{_NAMES})(?![\w.=-])")
_MOST_LAUNCHES, _MOST_VARIABLES, _MOST_WORDS = 10_000, 1000, 100
_LONGEST_NAME = 100  # of a variable that is looked at
_LONGEST_SCRIPT = 500_000  # characters; the worst of that length take three seconds of a processor
_DOUBT_HINT = "start it by srun, mpirun or mpiexec; --elastic on, if that happens where EJB does not look"
_PASS_HINT = "remove it, or pass the job through with --elastic off"
_OPEN = {"if": "fi", "while": "done", "until": "done", "{": "}"}
_OPEN_NO_COMMAND = {"for": "done", "select": "done", "case": "esac"}
_CLOSE = frozenset({"fi", "done", "esac", "}"})
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_REDIRECTIONS = ("<<<", "<<-", "<<", "<(", ">(", "<&", ">&", ">>", ">|", "<>", "<", ">")
_BACKGROUND_HINT = "remove the & so that launches run one after another, or pass the job through with --elastic off"


def is_shell(script: str) -> bool:
    """Whether the first line names a shell, of those that this module can read."""
    words = script.split("\n", 1)[0].removeprefix("#!").split()
    if words and words[0].rpartition("/")[2] == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    return bool(words) and words[0].rpartition("/")[2] in _SHELLS


@dataclass(slots=True)
class Launch:
    """A launch as it stands in a script: its lines, and whether the script asks how it ended (`||`, `if`, `!`).

    `looks`: it only tells something of its nodes (`srun hostname`). `at_once`: it is known to come right behind the
    launch before it. `shape`: its ranks and its time, where the text shows them.
    """

    name: str
    first_line: int
    last_line: int
    handled: bool = False
    looks: bool = False
    at_once: bool = False
    shape: tuple[int | None, str] | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen in a script. `refusals` are certain; `doubt` says why nothing is known to be launched, or is "".
    `once`: why it is not begun again by itself where its shell is lost (None: it is)."""

    launches: tuple[Launch, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    doubt: Refusal | None = None
    once: Refusal | None = UNSEEN


@lru_cache(maxsize=32)  # each step of a submission asks, and many submissions have one script
def read_script(script: str, processors: int) -> Sight:
    """The launches of a batch script for a job of so many processors, in whatever language it is written."""
    if not is_shell(script):
        body = "\n".join(line for line in script.split("\n") if not line.lstrip().startswith("#"))
        return Sight(doubt=None if _IN_TEXT.search(body) else _unseen())
    if len(script) > _LONGEST_SCRIPT:
        message = f"a script of more than {_LONGEST_SCRIPT:,} characters is not read"
        return Sight(doubt=Refusal("script", message, "leave data in files, or say --elastic on", doubt=True))
    seen = _Look(script, processors)
    try:
        refusals = tuple(seen.run())
    except (_Lost, RecursionError):
        line = f"line {seen.line_now()}"
        return Sight(doubt=Refusal(line, "the script cannot be followed from here on", _DOUBT_HINT, doubt=True))
    return Sight(tuple(seen.launches), refusals, None if refusals else _doubt(seen), seen.in_the_way.found)


def look(script: str, processors: int = 1_000_000) -> list[Refusal]:
    """The launches that cannot be held, by line; empty where there is none, or where the script cannot be followed."""
    return list(read_script(script, processors).refusals)


def _doubt(seen: _Look) -> Refusal | None:
    """Why the job's work would not be what its launches start."""
    if not (seen.launches or seen.mentioned or seen.looked):
        return _unseen()
    if seen.beside.why:
        return Refusal(f"line {seen.beside.line}", seen.beside.why, _DOUBT_HINT, doubt=True)
    if seen.mentioned or not all(launch.looks for launch in seen.launches):
        return None
    message = (
        "its launches only look at their nodes, as `srun hostname` does, or lay out files there, so that its work "
        "would stay on one subjob"
    )
    return Refusal("script", message, _DOUBT_HINT, doubt=True)


def _unseen() -> Refusal:
    message = "the script starts nothing by srun, mpirun or mpiexec, so that all its work would stay on one subjob"
    return Refusal("script", message, _DOUBT_HINT, doubt=True)


class _Lost(Exception):
    """The script cannot be followed: nothing is said about it."""


@dataclass(slots=True)
class _Frame:
    """A group of commands: `item` is the line of a launch in the list that an & would send to the background.

    `list_from`: the first launch of the present and-or list. `asks_from`: the first launch of the condition that is
    being read, while one is.
    """

    closes: str
    item: int | None = None
    any: int | None = None
    piped: int = 0
    list_from: int = 0
    asks_from: int | None = None
    defines: str = ""  # the function that it is the body of


@dataclass(slots=True)
class _Look:
    text: str
    processors: int
    at: int = 0
    line: int = 1  # of `counted`: line_now() takes it to `at`
    counted: int = 0
    words: list[str] = field(default_factory=list)
    word: list[str] = field(default_factory=list)
    in_word: bool = False
    assigns: bool = False  # the word so far ends with =
    tested: bool = False  # the words so far hold ]]
    quoted: bool = False
    first_line: int = 1
    last_line: int = 1
    frames: list[_Frame] = field(default_factory=lambda: [_Frame("")])
    heredocs: list[tuple[str, bool]] = field(default_factory=list)
    found: list[Refusal] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    unasked: list[int] = field(default_factory=list)  # launches (by number) of which the script does not ask the end
    mentioned: bool = False  # a launch stands in a substitution
    looked: bool = False  # one that only looks does
    beside: Beside = field(default_factory=Beside)
    in_the_way: InTheWay = field(default_factory=InTheWay)
    in_turn: InTurn = field(default_factory=InTurn)
    files: list[str] = field(default_factory=list)  # that the present command writes
    variables: dict[str, str] = field(default_factory=dict)
    names_file: bool = False  # the next word is the file of a redirection
    writes_file: bool = False  # and is written
    appends: bool = False  # something of the present command is added to a file
    negated: bool = False
    defined: str = ""  # a function: its body comes next
    launching: set[str] = field(default_factory=set)  # functions that launch

    def run(self) -> list[Refusal]:
        while self.at < len(self.text):
            self.step()
        self.end_list()
        return self.found

    def step(self) -> None:
        c = self.text[self.at]
        after = self.text[self.at + 1 : self.at + 2]
        if c == "\\":
            if after != "\n":
                self.put(after)
            self.at += 2
        elif c == "'":
            self.put(self.take_to("'"), quoted=True)
        elif c == '"':
            start = self.at
            self.double_quoted()
            text = self.text[start + 1 : self.at - 1]
            self.put(text, quoted=True)
            if "$(" in text or "`" in text:
                self.mention(text)
        elif c == "`":
            text = self.take_to("`")
            self.put("`" + text + "`")
            self.mention(text)
        elif c == "$" and after in ("(", "{"):
            start = self.at
            self.at += 1
            self.balanced(after, ")" if after == "(" else "}")
            text = self.text[start : self.at]
            self.put(text)
            if after == "(":
                self.mention(text)
        elif c == "$" and after == "'":
            self.at += 1
            start = self.at
            self.ansi_quoted()
            self.put(self.text[start + 1 : self.at - 1], quoted=True)
        elif c == "#" and not self.in_word:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif c in "<>|&()" and self.words[:1] == ["[["] and not self.tested:
            self.end_word()
            self.add(c)  # of a test, not of a command
            self.at += 1
        elif c in "<>":
            self.redirection()
        elif c in " \t\r":
            self.end_word()
            self.at += 1
        elif c in "\n;|&()":
            self.operator(c, after)
        else:
            self.put(c)
            self.at += 1

    # words

    def put(self, text: str, *, quoted: bool = False) -> None:
        if not self.in_word and not self.words:
            self.first_line = self.line_now()
        self.in_word = True
        self.quoted = self.quoted or quoted
        if text:
            self.word.append(text)
            self.assigns = text.endswith("=")

    def mention(self, text: str) -> None:
        """Look for launches in a substitution, which is not followed."""
        for match in _IN_SUBSTITUTION.finditer(text):
            said = text[match.end() : match.end() + _LONGEST_LAUNCH + 1]
            command = _END_OF_COMMAND.split(said, maxsplit=1)[0]
            words = self.with_known(command.split()[: -1 if len(command) > _LONGEST_LAUNCH else None])
            if why := objection(match[1], words, self.processors):
                self.refuse(match[1], f"cannot be held: {why}", self.line_now())
            argv = program(match[1], words)
            looks = bool(argv) and only_looks(argv)
            self.looked, self.mentioned = self.looked or looks, self.mentioned or not looks
            self.in_turn.lost = True

    def line_now(self) -> int:
        """The line of the present place."""
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line

    def add(self, word: str) -> None:
        self.words.append(word)
        self.tested = self.tested or word == "]]"

    def drop_word(self) -> None:
        self.word, self.in_word, self.quoted, self.assigns = [], False, False, False

    def drop_words(self) -> None:
        self.words, self.tested = [], False

    def end_word(self) -> None:
        if not self.in_word:
            return
        word, quoted = "".join(self.word), self.quoted
        self.last_line = self.line_now()
        self.drop_word()
        if self.names_file:
            self.names_file = False
            if self.writes_file:
                self.files.append(word)
        elif self.words or quoted:
            self.add(word)
        elif word in _STAY:
            self.stay(word)
        elif word in _OPEN:
            self.open(_OPEN[word])
            if word in _CONDITIONS:
                self.frames[-1].asks_from = len(self.launches)
        elif word in _OPEN_NO_COMMAND:
            self.open(_OPEN_NO_COMMAND[word])
            self.add(word)
        elif word in _CLOSE:
            self.close(word)
            self.add(word)
        else:
            self.add(word)

    def stay(self, word: str) -> None:
        frame = self.frames[-1]
        if word == "!":
            self.negated = True
        elif word == "elif":
            frame.asks_from = len(self.launches)
        elif word in ("then", "do") and frame.asks_from is not None:
            self.asked_since(frame.asks_from)
            frame.asks_from = None

    def asked_since(self, number: int) -> None:
        """The script asks how launches from `number` on ended. Each is taken off the list once."""
        while self.unasked and self.unasked[-1] >= number:
            self.launches[self.unasked.pop()].handled = True

    def open(self, closer: str) -> None:
        self.frames.append(_Frame(closer, list_from=len(self.launches), defines=self.defined))
        self.defined = ""

    def close(self, closer: str) -> None:
        if len(self.frames) > 1 and self.frames[-1].closes == closer:
            frame = self.frames.pop()
            outer = self.frames[-1]
            if frame.defines and (frame.item or frame.any):
                self.launching.add(frame.defines)
            elif not frame.defines:
                outer.item = outer.item or frame.item or frame.any

    # commands

    def end_command(self) -> None:
        self.end_word()
        words, negated, files, appends = self.words, self.negated, self.files, self.appends
        self.drop_words()
        self.files = []
        self.names_file = self.negated = self.appends = False
        if not words:
            if files:
                self.in_the_way.command(self.last_line, words, files)
            return
        named = words[1:2] if words[0] == "function" else words[1:] if words[0] == "alias" else []
        if any(word.partition("=")[0] in LAUNCHERS for word in named):
            raise _Lost  # the script gives these words a meaning of its own
        if words[0] == "function" and len(words) > 1:
            self.defined = words[1]
            if "{" in words:
                self.open("}")
            words = words[words.index("{") + 1 :] if "{" in words else []
            if not words:
                return
        if words[0] == "coproc" and set(LAUNCHERS).intersection(without_wrappers(words[1:])[:1]):
            message = "a launch in the background (coproc) cannot be moved: launches run one after another"
            self.found.append(Refusal(f"line {self.first_line}", message, _BACKGROUND_HINT))
            return
        command = list(without_wrappers(self.substituted(words)))
        name = command[0].rpartition("/")[2] if command else ""
        if name in self.launching:
            self.frames[-1].item = self.frames[-1].item or self.first_line
        if name in LAUNCHERS and "/" in command[0]:
            self.refuse(command[0], f"would go past EJB: write `{name}` without its folder")
        if name in LAUNCHERS:
            command = [name, *self.with_known(command[1:])]
            argv = program(name, command[1:])
            self.launch(name, command, negated, looks=bool(argv) and only_looks(argv))
            self.beside.launch(self.first_line, words, argv, files)
            self.in_the_way.launch(self.first_line, words, appends=appends)
            return
        self.beside.command(self.first_line, words, files)
        self.in_the_way.command(self.first_line, words, files)
        self.in_turn.command(words)
        if name in _FOREIGN:
            self.refuse(name, "is no launcher that EJB can stand for: it knows srun, mpirun and mpiexec")
        elif command and len(command[0]) <= _LONGEST_NAME and _NAMES_A_LAUNCHER.fullmatch(command[0]):
            self.refuse(command[0], "may name a launcher that would go past EJB: write srun, mpirun or mpiexec")
        elif is_parallel(command) and any(_IN_TEXT.search(word) for word in self.with_known(command[1:])):
            self.refuse(name, "would run several launches at the same time")
        elif name == "salloc":
            self.refuse(name, "asks for an allocation of its own, which EJB could not move")

    def substituted(self, words: list[str]) -> list[str]:
        """With a launcher in the place of a variable that the script itself has set to it (`RUN="srun -n 4"`)."""
        at = 0
        while at < len(words) and (is_assignment(words[at]) or words[at] in _DECLARING):
            name, equals, value = words[at].partition("=")
            if equals and len(self.variables) < _MOST_VARIABLES:
                self.variables[name] = "" if is_unreadable(value) or value.startswith("(") else value
            at += 1
        match = _VARIABLE.fullmatch(words[at]) if at < len(words) else None
        value = self.variables.get(match[1] or match[2], "") if match else ""
        meant = value.split(None, _MOST_WORDS)
        return [*words[:at], *meant, *words[at + 1 :]] if meant else words

    def with_known(self, words: Sequence[str]) -> list[str]:
        """With the words of variables that the script itself has set (`OPTIONS="-w n1"`), where they are short."""
        found: list[str] = []
        for word in words:
            match = _VARIABLE.match(word.lstrip('"')[:_LONGEST_NAME])
            value = self.variables.get(match[1] or match[2], "") if match else ""
            found += value.split() if value and len(value) <= _LONGEST_LAUNCH else [word]
        return found

    def launch(self, name: str, command: list[str], negated: bool, *, looks: bool) -> None:
        if len(self.launches) >= _MOST_LAUNCHES:
            raise _Lost
        frame = self.frames[-1]
        frame.item = frame.item or self.first_line
        frame.piped += 1
        if frame.piped > 1:
            self.refuse(name, "would run at the same time as another launch of the same pipeline")
            frame.piped = 0
        if not negated:
            self.unasked.append(len(self.launches))
        certain = len(self.frames) == 1 and frame.list_from == len(self.launches)
        at_once = self.in_turn.launch(certain=certain)
        seen = Launch(name, self.first_line, self.last_line, negated, looks, at_once, shape(name, command[1:]))
        self.launches.append(seen)
        if name == "srun" and "--pty" in command:
            self.refuse("srun --pty", "is interactive, and an elastic job has no terminal")
            return
        if why := objection(name, command[1:], self.processors):
            self.refuse(name, f"cannot be held: {why}")

    def refuse(self, what: str, why: str, line: int | None = None) -> None:
        self.found.append(Refusal(f"line {line or self.first_line}", f"`{what}` {why}", _PASS_HINT))

    def end_pipeline(self) -> None:
        self.end_command()
        self.frames[-1].piped = 0
        self.beside.end_pipeline()

    def end_list(self) -> None:
        self.end_pipeline()
        frame = self.frames[-1]
        frame.any, frame.item = frame.any or frame.item, None
        frame.list_from = len(self.launches)

    def operator(self, c: str, after: str) -> None:
        if c == "\n":
            self.end_word()  # on its own line still
        self.at += 1
        if c == "&" and after == ">":  # &>file
            self.end_word()
        elif c in "&|" and after == c:  # && ||
            self.at += 1
            self.end_pipeline()
            if c == "|":
                self.asked_since(self.frames[-1].list_from)
        elif c == "|":
            self.at += after == "&"
            self.end_command()
        elif c == "&":
            self.end_pipeline()
            line = self.frames[-1].item
            if line is not None:
                message = "a launch in the background (&) cannot be moved: launches run one after another"
                self.found.append(Refusal(f"line {line}", message, _BACKGROUND_HINT))
                self.frames[-1].item = None
            self.end_list()
        elif c == "(":
            self.open_parenthesis(after)
        elif c == ")":
            self.end_list()
            if self.frames[-1].closes == ")":
                self.close(")")
                self.add(")")
            else:  # the end of a pattern of `case`
                self.frames[-1].item = self.frames[-1].any = None
        else:
            self.end_list()
            if c == "\n":
                self.here_documents()

    def open_parenthesis(self, after: str) -> None:
        if self.in_word and self.assigns:  # an array
            self.at -= 1
            start = self.at
            self.balanced("(", ")")
            text = self.text[start : self.at]
            self.put(text)
            if "$(" in text or "`" in text:
                self.mention(text)
            return
        if self.in_word or self.words:
            rest = self.text[self.at : self.at + 40].lstrip(" \t")
            if rest.startswith(")"):  # name () ...
                name = "".join(self.word) if self.in_word else self.words[-1]
                if name in LAUNCHERS:
                    raise _Lost
                self.defined = name
                self.at = self.text.index(")", self.at) + 1
                self.word, self.in_word, self.assigns = [], False, False
                self.drop_words()
                return
        elif after == "(":  # arithmetic
            self.at -= 1
            self.balanced("(", ")")
            self.add("((")
            return
        self.end_word()
        self.open(")")
        self.drop_words()

    # what is skipped

    def redirection(self) -> None:
        operator = next(o for o in _REDIRECTIONS if self.text.startswith(o, self.at))
        if not "".join(self.word).isdigit():
            self.end_word()
        self.word, self.in_word, self.assigns = [], False, False
        if operator in ("<(", ">("):
            self.at += 1
            self.balanced("(", ")")
            self.put("$")
            return
        self.at += len(operator)
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        if operator in ("<<", "<<-"):
            self.heredocs.append((self.delimiter(), operator == "<<-"))
        elif operator in ("<&", ">&") and self.text[self.at : self.at + 1] == "-":
            self.at += 1
        else:
            self.names_file, self.writes_file = True, operator in (">", ">>", ">|")
            self.appends = self.appends or operator == ">>"

    def delimiter(self) -> str:
        found: list[str] = []
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;&|()<>":
            c = self.text[self.at]
            if c in "'\"":
                found.append(self.take_to(c))
            else:
                self.at += 1
                if c != "\\":
                    found.append(c)
        if not found:
            raise _Lost
        return "".join(found)

    def here_documents(self) -> None:
        for delimiter, tabs in self.heredocs:
            while True:
                if self.at >= len(self.text):
                    break
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = end + 1
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
        self.heredocs = []

    def take_to(self, closer: str) -> str:
        """What stands between the quote at the present place and its end; moves behind it."""
        end = self.text.find(closer, self.at + 1)
        if end < 0:
            raise _Lost
        found = self.text[self.at + 1 : end]
        self.at = end + 1
        return found

    def ansi_quoted(self) -> None:
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != "'":
            self.at += 2 if self.text[self.at] == "\\" else 1
        self.over_closer()

    def double_quoted(self) -> None:
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            c = self.text[self.at]
            if c == "\\":
                self.at += 2
            elif c == "$" and self.text[self.at + 1 : self.at + 2] == "(":
                self.at += 1
                self.balanced("(", ")")
            else:
                self.at += 1
        self.over_closer()

    def over_closer(self) -> None:
        if self.at >= len(self.text):
            raise _Lost
        self.at += 1

    def balanced(self, opener: str, closer: str) -> None:
        """Skip from an opening bracket to behind the closing one, whatever is quoted in between."""
        depth = 0
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == "\\":
                self.at += 2
            elif c == "'" and opener == "(":
                self.take_to("'")
            elif c == '"':
                self.double_quoted()
            else:
                self.at += 1
                depth += (c == opener) - (c == closer)
                if depth == 0:
                    return
        raise _Lost
