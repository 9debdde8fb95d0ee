"""What can be seen in a shell script that an elastic job could not hold.

This is a look, not an interpreter: it follows quotes, comments, substitutions, here-documents and the grouping of
commands, and says something only where a launch stands plainly in the place of a command. What it cannot see (a launch
in a function that is called in the background) the shims refuse at run time.

It takes time in proportion to the script's length, whatever that holds: every place is passed once, and nothing that
was passed is looked through again (tests/unit/test_jobspec_growth.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ejbd.manager.jobspec.findings import Refusal

LAUNCHERS = frozenset({"srun", "mpirun", "mpiexec"})
_WRAPPERS = frozenset({"nohup", "exec", "command", "env", "nice", "setsid", "stdbuf", "timeout", "ionice", "builtin"})
_STAY = frozenset({"then", "do", "else", "elif", "!", "time"})  # what follows is a command again
_OPEN = {"if": "fi", "while": "done", "until": "done", "{": "}"}
_OPEN_NO_COMMAND = {"for": "done", "select": "done", "case": "esac"}
_CLOSE = frozenset({"fi", "done", "esac", "}"})
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_REDIRECTIONS = ("<<<", "<<-", "<<", "<(", ">(", "<&", ">&", ">>", ">|", "<>", "<", ">")
_BACKGROUND_HINT = "remove the & so that launches run one after another, or pass the job through with --elastic off"


def is_shell(script: str) -> bool:
    """Whether the first line names a shell whose language this module reads."""
    words = script.split("\n", 1)[0].removeprefix("#!").split()
    if words and words[0].rpartition("/")[2] == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    return bool(words) and words[0].rpartition("/")[2] in _SHELLS


def look(script: str) -> list[Refusal]:
    """The launches that cannot be held, by line; empty where there is none, or where the script cannot be followed."""
    try:
        return _Look(script).run()
    except (_Lost, RecursionError):
        return []


class _Lost(Exception):
    """The script cannot be followed: nothing is said about it."""


@dataclass(slots=True)
class _Frame:
    """A group of commands: `item` is the line of a launch in the list that an & would send to the background."""

    closes: str
    item: int | None = None
    any: int | None = None
    piped: int = 0


@dataclass(slots=True)
class _Look:
    text: str
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
    frames: list[_Frame] = field(default_factory=lambda: [_Frame("")])
    heredocs: list[tuple[str, bool]] = field(default_factory=list)
    found: list[Refusal] = field(default_factory=list)

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
            self.put(self.text[start + 1 : self.at - 1], quoted=True)
        elif c == "`":
            self.put("$" + self.take_to("`"))
        elif c == "$" and after in ("(", "{"):
            self.at += 1
            self.balanced(after, ")" if after == "(" else "}")
            self.put("$")
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
        self.drop_word()
        if self.words or quoted:
            self.add(word)
        elif word in _STAY:
            pass
        elif word in _OPEN:
            self.frames.append(_Frame(_OPEN[word]))
        elif word in _OPEN_NO_COMMAND:
            self.frames.append(_Frame(_OPEN_NO_COMMAND[word]))
            self.add(word)
        elif word in _CLOSE:
            self.close(word)
            self.add(word)
        else:
            self.add(word)

    def close(self, closer: str) -> None:
        if len(self.frames) > 1 and self.frames[-1].closes == closer:
            frame = self.frames.pop()
            self.frames[-1].item = self.frames[-1].item or frame.item or frame.any

    # commands

    def end_command(self) -> None:
        self.end_word()
        words = self.words
        self.drop_words()
        if not words:
            return
        if words[0] in ("function", "alias") and any(word.partition("=")[0] in LAUNCHERS for word in words[1:]):
            raise _Lost  # the script gives these words a meaning of its own
        if words[0] == "coproc" and LAUNCHERS.intersection(self.command_of(words[1:])[:1]):
            message = "a launch in the background (coproc) cannot be moved: launches run one after another"
            self.found.append(Refusal(f"line {self.first_line}", message, _BACKGROUND_HINT))
            return
        command = self.command_of(words)
        name = command[0].rpartition("/")[2] if command else ""
        if name in LAUNCHERS and command[0].startswith("/"):
            self.refuse(command[0], f"would go past EJB: write `{name}` without its folder")
        if name in LAUNCHERS:
            self.launch(name, command)
        elif name == "salloc":
            self.refuse(name, "asks for an allocation of its own, which EJB could not move")
        elif name == "sbatch" and any(word == "--wrap" or word.startswith("--wrap=") for word in command):
            self.refuse("sbatch --wrap", "starts work outside of this job, which EJB could not move")

    @staticmethod
    def command_of(words: list[str]) -> list[str]:
        """The words from the command's own name on: without assignments and wrappers such as `nohup` or `env A=1`."""
        at = 0
        while at < len(words) and _is_assignment(words[at]):
            at += 1
        while at < len(words) and words[at].rpartition("/")[2] in _WRAPPERS:
            at += 1
            while at < len(words) and (words[at].startswith("-") or _is_assignment(words[at]) or _is_number(words[at])):
                at += 1
        return words[at:]

    def launch(self, name: str, command: list[str]) -> None:
        frame = self.frames[-1]
        frame.item = frame.item or self.first_line
        frame.piped += 1
        if frame.piped > 1:
            self.refuse(name, "would run at the same time as another launch of the same pipeline")
            frame.piped = 0
        if name == "srun" and "--pty" in command:
            self.refuse("srun --pty", "is interactive, and an elastic job has no terminal")

    def refuse(self, what: str, why: str) -> None:
        hint = "remove it, or pass the job through with --elastic off"
        self.found.append(Refusal(f"line {self.first_line}", f"`{what}` {why}", hint))

    def end_pipeline(self) -> None:
        self.end_command()
        self.frames[-1].piped = 0

    def end_list(self) -> None:
        self.end_pipeline()
        frame = self.frames[-1]
        frame.any, frame.item = frame.any or frame.item, None

    def operator(self, c: str, after: str) -> None:
        self.at += 1
        if c == "&" and after == ">":  # &>file
            self.end_word()
        elif c in "&|" and after == c:  # && ||
            self.at += 1
            self.end_pipeline()
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
            self.balanced("(", ")")
            return
        if self.in_word or self.words:
            rest = self.text[self.at : self.at + 40].lstrip(" \t")
            if rest.startswith(")"):  # name () ...
                if ("".join(self.word) if self.in_word else self.words[-1]) in LAUNCHERS:
                    raise _Lost
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
        self.frames.append(_Frame(")"))
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


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.rstrip("+").isidentifier()


def _is_number(word: str) -> bool:
    return word.rstrip("smhd").replace(".", "", 1).isdigit()
