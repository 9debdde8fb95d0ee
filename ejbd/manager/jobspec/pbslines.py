"""The #PBS lines of a script, read as qsub reads them, and said again in sbatch's words.

By the sources of OpenPBS 23.06 and Torque 6.1, lines count from the first on until one that is neither empty nor a
comment. Blanks may stand before the word. Each line is an argument list of its own, of getopt's letters. Where #SBATCH
lines say something else, #PBS lines hold: so it is with sbatch (22.05), too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ejbd.manager.jobspec import pbsresources
from ejbd.manager.jobspec.findings import Given, Refusal, invalid, shortened
from ejbd.manager.jobspec.pbsfiles import Names
from ejbd.manager.jobspec.pbsresources import Resource
from ejbd.options.qsub import BY_LETTER, Option, Use

_PBS = "#PBS"
_HOSTED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*:(?=.)", re.ASCII)
_VARIABLES = {"PBS_JOBID": "%j", "PBS_JOBNAME": "%x", "PBS_ARRAYID": "%a", "PBS_ARRAY_INDEX": "%a"}
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))|\^array_index\^", re.ASCII)
_KEY = re.compile(r"[A-Za-z_]+=", re.ASCII)
_JOB = re.compile(r"(?P<number>[0-9a-f]{1,16}(?:_[0-9]{1,7})?)(?:\[\])?(?:\.[A-Za-z0-9._-]+)?", re.ASCII)
_DEPENDENCIES = frozenset({"after", "afterok", "afternotok", "afterany"})
_MAIL = {"a": "FAIL", "b": "BEGIN", "e": "END"}
_DATE = re.compile(r"(?P<date>[0-9]{8}|[0-9]{6}|[0-9]{4}|[0-9]{2})?(?P<clock>[0-9]{4})(?:\.(?P<s>[0-9]{2}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PbsLines:
    """What the lines say. `given`: in sbatch's words; `shared`: words of qsub for every subjob; `whole`: those of a
    passed-through job, as they stand. `shell`: what the script is to be run by, instead of what its first line names.
    """

    present: bool = False
    given: tuple[Given, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    shell: str = ""
    umask: int | None = None


@dataclass(slots=True)
class _Found:
    settings: dict[str, Given] = field(default_factory=dict)
    resources: list[Resource] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    shell: str = ""
    umask: int | None = None
    join: str = "n"
    keep: str = "n"
    torque: bool = False

    def give(self, name: str, value: str | None, where: str) -> None:
        self.settings[name] = Given(name, value, where)


def read_pbs_lines(script: str) -> PbsLines:
    """The #PBS lines of a script. Raises EjbError (INVALID) naming the line."""
    found = _Found()
    present = False
    for number, line in enumerate(script.split("\n"), start=1):
        text = line.strip()
        if text.startswith(_PBS):
            present = True
            for option, value in _options(_words(text[len(_PBS) :], f"line {number}"), f"line {number}"):
                _take(option, value, f"line {number}", found)
        elif text and not text.startswith(("#", ":") if number == 1 else "#"):
            break
    if not present:
        return PbsLines()
    resources = pbsresources.read(found.resources)
    settings = {**found.settings, **{one.name: one for one in resources.given if one.name not in found.settings}}
    torque = found.torque or any(one.name == "nodes" for one in found.resources)
    names = Names("array" in settings, torque)
    return PbsLines(
        present=True,
        given=tuple(_joined(settings, found, names)),
        refusals=(*found.refusals, *resources.refusals),
        notes=tuple(found.notes),
        shared=tuple(found.shared),
        whole=(*found.shared, *found.whole, *(word for one in resources.words for word in ("-l", one))),
        shell=found.shell,
        umask=found.umask,
    )


def _joined(settings: dict[str, Given], found: _Found, names: Names) -> Iterator[Given]:
    """With both outputs where -j has them: standard error into the other file (oe), the other way round (eo), apart."""
    output = names.of("output", settings.pop("output", None), found.keep)
    error = names.of("error", settings.pop("error", None), found.keep)
    yield from settings.values()
    if found.join == "oe":
        yield output
    elif found.join == "eo":
        yield Given("output", error.value, error.where)
    else:
        yield output
        yield error


def _words(line: str, where: str) -> list[str]:
    """As qsub splits a line: quotes group, and a backslash takes the next character as it is.

    A `#` between begins words that are for the reader.
    """
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    characters = iter(line)
    for c in characters:
        if quote:
            if c == quote:
                quote = ""
            else:
                assert word is not None
                word.append(c)
        elif c in "\"'":
            quote, word = c, word or []
        elif c == "\\":
            word = word or []
            word.append(next(characters, ""))
        elif c.isspace():
            if word is not None:
                words.append("".join(word))
            word = None
        elif c == "#" and word is None:
            break
        else:
            word = word or []
            word.append(c)
    if quote:
        raise invalid(where, f"the quote {quote} is not closed", "close it on the same line")
    return [*words, "".join(word)] if word is not None else words


def _options(words: list[str], where: str) -> Iterator[tuple[Option, str]]:
    queue = iter(words)
    for word in queue:
        if not word.startswith("-") or len(word) < 2 or word.startswith("--"):
            hint = "each line holds options with one dash, and a value with blanks needs quotes"
            raise invalid(where, f"{shortened(word)} is not an option of qsub", hint)
        for at, letter in enumerate(word[1:], start=2):
            option = BY_LETTER.get(letter)
            if option is None:
                raise invalid(where, f"qsub has no option {shortened('-' + letter)}", "see `man qsub`, or remove it")
            if not option.valued:
                yield option, ""
                continue
            value = word[at:] or next(queue, None)
            if value is None:
                raise invalid(where, f"{option.spelling} needs a value")
            yield option, value
            break


def _take(option: Option, value: str, where: str, found: _Found) -> None:
    if option.use is Use.REFUSED:
        if option.letter == "C" and value == _PBS:
            return
        raise invalid(where, f"{option.spelling} cannot be used here: {option.why}")
    if option.use is Use.DROPPED:
        found.notes.append(f"{where}: {option.spelling} is not acted on: {option.why}")
    elif option.use is Use.SHARED:
        _plain(value, option, where)
        if option.letter == "p" and not re.fullmatch(r"[-+]?[0-9]{1,4}", value):
            raise invalid(where, f"-p is a whole number from -1024 to 1023, not {shortened(value)}")
        found.shared += [option.spelling, value]
    elif option.use is Use.RIGID:
        _keep(found, option, value, where, option.why)
    else:
        _plain(value, option, where)
        _UNDERSTOOD[option.letter](value, where, found)


def _plain(value: str, option: Option, where: str) -> None:
    if option.valued and not value.strip():
        raise invalid(where, f"the value of {option.spelling} is empty")


def _keep(found: _Found, option: Option, value: str, where: str, why: str) -> None:
    found.whole += [option.spelling, value] if option.valued else [option.spelling]
    word = f"{option.spelling} {value}".strip()
    found.refusals.append(Refusal(where, f"an elastic job cannot keep {shortened(word)}: {why}"))


def _begin(value: str, where: str, found: _Found) -> None:
    match = _DATE.fullmatch(value)
    if match is None:
        raise invalid(
            where, f"-a {shortened(value)} is no time of PBS", "[[[CC]YY]MM]DD]hhmm[.SS], such as 202601312330"
        )
    date, clock = match["date"] or "", f"{match['clock'][:2]}:{match['clock'][2:]}:{match['s'] or '00'}"
    if len(date) == 2:
        _keep(found, BY_LETTER["a"], value, where, "a day of the month alone may be of this one or of the next")
        return
    if len(date) == 4:
        clock = f"{date[:2]}/{date[2:]}-{clock}"
    elif date:
        year = date[:-4] if len(date) == 8 else f"20{date[:2]}"
        clock = f"{year}-{date[-4:-2]}-{date[-2:]}T{clock}"
    found.give("begin", clock, where)


def _path(value: str, where: str, found: _Found, name: str) -> None:
    """A file as PBS has it: the host before it is where the job was submitted anyhow."""
    value = _HOSTED.sub("", value, count=1)
    pattern = ""
    end = 0
    for match in _VARIABLE.finditer(value):
        sign = "%a" if match[0].startswith("^") else _VARIABLES.get(match[1] or match[2])
        if sign:
            pattern += value[end : match.start()].replace("%", "%%") + sign
            end = match.end()
    pattern += value[end:].replace("%", "%%")
    found.give(name, pattern, where)


def _queue(value: str, where: str, found: _Found) -> None:
    queue, at, server = value.partition("@")
    if at and server:
        raise invalid(where, f"-q {shortened(value)} names a server, and EJB looks after one", "write the queue alone")
    if queue:
        found.give("partition", queue, where)


def _mail(value: str, where: str, found: _Found) -> None:
    letters = value.lower()
    if set(letters) - set("abenjfp"):
        raise invalid(where, f"-m is n, or letters of a, b and e, not {shortened(value)}")
    kinds = [_MAIL[letter] for letter in dict.fromkeys(letters) if letter in _MAIL]
    found.give("mail-type", ",".join(kinds) if kinds and "n" not in letters else "NONE", where)


def _rerunnable(value: str, where: str, found: _Found) -> None:
    if value.lower() not in ("y", "n"):
        raise invalid(where, f"-r is y or n, not {shortened(value)}")
    found.give("requeue" if value.lower() == "y" else "no-requeue", None, where)


def _join(value: str, where: str, found: _Found) -> None:
    if value not in ("oe", "eo", "n"):
        raise invalid(where, f"-j is oe, eo or n, not {shortened(value)}")
    found.join = value


def _keep_files(value: str, where: str, found: _Found) -> None:
    if not value or set(value) - set("oedn") or ("n" in value and value != "n"):
        raise invalid(where, f"-k is n, or letters of o, e and d, not {shortened(value)}")
    found.keep = value


def _torques_array(value: str, where: str, found: _Found) -> None:
    found.torque = True
    found.give("array", value, where)


def _shell(value: str, where: str, found: _Found) -> None:
    """`PATH[@HOST][,PATH...]`: the one without a host."""
    found.shell = next((path for path in value.split(",") if "@" not in path), value.partition("@")[0])
    if not found.shell.startswith("/"):
        raise invalid(where, f"-S {shortened(value)} is not the absolute path of a shell")


def _variables(value: str, where: str, found: _Found) -> None:
    before = found.settings.get("export")
    found.give("export", f"{before.value if before else 'ALL'},{value}", where)


def _attributes(value: str, where: str, found: _Found) -> None:
    pieces: list[str] = []
    for piece in value.split(","):  # a value may hold commas itself
        if _KEY.match(piece) or not pieces:
            pieces.append(piece)
        else:
            pieces[-1] += f",{piece}"
    for piece in pieces:
        name, equals, text = piece.partition("=")
        if not equals or not text:
            raise invalid(where, f"-W {shortened(piece)} is not NAME=VALUE", "such as depend=afterok:123")
        if name == "depend":
            _depend(text, where, found)
        elif name == "umask":
            if not re.fullmatch(r"0?[0-7]{1,3}", text):
                raise invalid(where, f"umask={shortened(text)} is no mask", "such as 022")
            found.umask = int(text, 8)
        elif name == "block":
            found.notes.append(f"{where}: -W block is not acted on: write `ejb submit --wait`")
        elif name == "group_list":
            found.shared += ["-W", piece]
        else:
            _keep(found, BY_LETTER["W"], piece, where, "only PBS itself knows what it would mean")


def _depend(text: str, where: str, found: _Found) -> None:
    clauses = []
    for clause in text.split(","):
        kind, *jobs = clause.split(":")
        numbers = [_JOB.fullmatch(job) for job in jobs]
        if kind not in _DEPENDENCIES or not jobs or not all(numbers):
            _keep(found, BY_LETTER["W"], f"depend={text}", where, "only PBS can tell when it is met")
            return
        clauses.append(":".join([kind, *(match["number"] for match in numbers if match)]))
    found.give("dependency", ",".join(clauses), where)


def _resources(value: str, where: str, found: _Found) -> None:
    found.resources += pbsresources.split(value, where)


def _named(name: str, *, bare: bool = False) -> Callable[[str, str, _Found], None]:
    def take(value: str, where: str, found: _Found) -> None:
        found.give(name, None if bare else value, where)

    return take


_UNDERSTOOD: dict[str, Callable[[str, str, _Found], None]] = {
    "a": _begin,
    "A": _named("account"),
    "d": _named("chdir"),
    "w": _named("chdir"),
    "e": lambda value, where, found: _path(value, where, found, "error"),
    "o": lambda value, where, found: _path(value, where, found, "output"),
    "h": _named("hold", bare=True),
    "j": _join,
    "J": _named("array"),
    "k": _keep_files,
    "t": _torques_array,
    "l": _resources,
    "m": _mail,
    "M": _named("mail-user"),
    "n": _named("exclusive", bare=True),
    "N": _named("job-name"),
    "q": _queue,
    "r": _rerunnable,
    "S": _shell,
    "v": _variables,
    "V": lambda value, where, found: None,
    "W": _attributes,
}
