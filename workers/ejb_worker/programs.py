"""The program that a command line is about: behind `env`, `nice`, `numactl` and the like, and behind an interpreter.

The one place that knows. By it a profile is found, the history of runs is kept, and a script's text is read.
"""

from __future__ import annotations

import re
from typing import Dict, FrozenSet, NamedTuple, Optional, Sequence


class _Syntax(NamedTuple):
    """The options of a command. `values`: those that take a value; `plain`: how many words stand before the program.

    `never`: with one of these there is no program that is seen. `once`: with one of these it does not mean the same if
    it is started again and again, or takes away what EJB tells the program. `letters`: several may stand in one word.
    """

    values: FrozenSet[str] = frozenset()
    plain: int = 0
    never: FrozenSet[str] = frozenset()
    once: FrozenSet[str] = frozenset()
    letters: bool = True


def _syntax(values: str = "", plain: int = 0, never: str = "", once: str = "", letters: bool = True) -> _Syntax:
    return _Syntax(frozenset(values.split()), plain, frozenset(never.split()), frozenset(once.split()), letters)


_ALWAYS = "*"  # of `once`: whatever its options are
_WRAPPERS: Dict[str, _Syntax] = {
    "env": _syntax("-u --unset -C --chdir", never="-S --split-string", once="- -i --ignore-environment -C --chdir"),
    "nice": _syntax("-n --adjustment"),
    "ionice": _syntax("-c --class -n --classdata", never="-p --pid -P --pgid -u --uid"),
    "chrt": _syntax("-T --sched-runtime -P --sched-period -D --sched-deadline", plain=1, never="-p --pid -m --max"),
    "taskset": _syntax(plain=1, never="-p --pid"),
    "numactl": _syntax(
        "-i --interleave -p --preferred -P --preferred-many -N --cpunodebind -C --physcpubind -m --membind "
        "-w --weighted-interleave",
        never="-s --show -H --hardware -S --shm -f --file",
    ),
    "stdbuf": _syntax("-i --input -o --output -e --error"),
    "nohup": _syntax(),
    "time": _syntax("-f --format -o --output"),
    "catchsegv": _syntax(),
    "prlimit": _syntax("-o --output", never="-p --pid"),
    "timeout": _syntax("-k --kill-after -s --signal", plain=1, once=_ALWAYS),  # its time would begin anew
    "setsid": _syntax(once=_ALWAYS),  # it may leave the program behind
    "exec": _syntax("-a", once=_ALWAYS),  # words of a shell
    "command": _syntax(never="-v -V", once=_ALWAYS),
    "builtin": _syntax(once=_ALWAYS),
}

_INTERPRETERS = (
    # the name, its options, and one behind which the program stands
    (re.compile(r"(python|pypy)[0-9.]*"), _syntax("-W -X --check-hash-based-pycs", never="-c -"), "-m"),
    (re.compile(r"bash|dash|ksh|zsh|sh"), _syntax("-o +o -O +O --rcfile --init-file", never="-c -s -"), ""),
    (re.compile(r"perl[0-9.]*"), _syntax("-I -M -m", never="-e -E -"), ""),
    (re.compile(r"ruby[0-9.]*"), _syntax("-I -r -C", never="-e -"), ""),
    (re.compile(r"lua(jit)?[0-9.]*"), _syntax("-l", never="-e -"), ""),
    (re.compile(r"node(js)?"), _syntax("-r --require --import --loader", never="-e --eval -p --print -"), ""),
    (
        re.compile(r"julia[0-9.]*"),
        _syntax(
            "-p --procs -t --threads -J --sysimage -H --home -L --load -C --cpu-target --machine-file",
            never="-e --eval -E --print -",
        ),
        "",
    ),
    (re.compile(r"Rscript"), _syntax("-g --gui", never="-e -"), ""),
    (re.compile(r"java"), _syntax("-cp -classpath --class-path -p --module-path", letters=False), "-jar"),
)


def is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.rstrip("+").isidentifier()


def skip_wrappers(words: Sequence[str], *, again: bool = False) -> int:
    """Where the program of a command stands. A wrapper without a program is the program itself.

    `again`: of a command that is started again and again; a wrapper that would then mean something else is not skipped.
    """
    at = 0
    while at < len(words):
        name = words[at].rpartition("/")[2]
        syntax = _WRAPPERS.get(name)
        if syntax is None or (again and _ALWAYS in syntax.once):
            return at
        begins = _behind_options(words, at + 1, syntax, syntax.never | (syntax.once if again else frozenset()))
        if begins is None:
            return at
        begins += syntax.plain
        while name == "env" and begins < len(words) and is_assignment(words[begins]):
            begins += 1
        if begins >= len(words):
            return at
        at = begins
    return at


def skip_interpreter(words: Sequence[str]) -> Optional[int]:
    """Where the script or module stands that an interpreter runs: 0 where a program runs itself. None: it is told code,
    or reads it."""
    name = words[0].rpartition("/")[2] if words else ""
    for pattern, syntax, option in _INTERPRETERS:
        if pattern.fullmatch(name):
            begins = _behind_options(words, 1, syntax, syntax.never, option)
            return begins if begins is not None and begins < len(words) else None
    return 0


def program_name(words: Sequence[str]) -> str:
    """What a command runs, in a word or two: the program's name, behind an interpreter's that of its script."""
    own = list(words[skip_wrappers(words) :])
    if not own:
        return ""
    at = skip_interpreter(own)
    names = [own[0].rpartition("/")[2]]
    if at:
        names.append(own[at].rpartition("/")[2])
    return " ".join(filter(None, names))


def _behind_options(
    words: Sequence[str], at: int, syntax: _Syntax, never: FrozenSet[str], ends_with: str = ""
) -> Optional[int]:
    """Where the first word behind the options is; None where one of `never` is among them. `ends_with`: an option
    behind which the program stands."""
    while at < len(words) and words[at][:1] in ("-", "+"):
        word = words[at]
        at += 1
        if word == "--" or word == ends_with:
            return at
        option, equals, _ = word.partition("=")
        if option in never:
            return None
        if option in syntax.values:
            at += not equals
        elif syntax.letters and not word.startswith("--"):
            # Several letters in one word: the first that takes a value takes the rest of the word, or the next one.
            for number, letter in enumerate(word[1:], 2):
                option, is_last = word[0] + letter, number == len(word)
                if option in never or (option == ends_with and not is_last):
                    return None
                if option == ends_with:
                    return at
                if option in syntax.values:
                    at += is_last
                    break
    return at
