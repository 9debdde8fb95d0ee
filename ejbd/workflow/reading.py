"""From the text of a plan file to a :class:`Plan`: E-HPC's own file (Fig. 3) as it stands, and EJB's superset of it.

What cannot be right is refused in one sentence, with the name of the file, the line and the column.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from ejbd.core.evolving.profiles import Profile, parse_profile, time_words
from ejbd.core.walltime import parse_walltime
from ejbd.errors import EjbError
from ejbd.workflow.graph import all_behind, cycle_in
from ejbd.workflow.plan import OnFailure, Plan, PlanMode, Stage
from ejbd.workflow.tree import Faults, Node, Place, Scalar, read_tree
from ejbd.workflow.tree import Mapping as MappingNode
from ejbd.workflow.tree import Sequence as SequenceNode

MOST_STAGES = 1000
MOST_TASKS = 1_000_000
MOST_ELEMENTS = 10_000
MOST_RETRIES = 100
LONGEST_COMMAND = 65_536
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_PAPERS_STAGE = re.compile(r"stage[0-9]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[\x21-\x7e]{1,256}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_YES, _NO = frozenset({"on", "yes", "true"}), frozenset({"off", "no", "false"})

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

SHARED = ("account", "qos", "partition", "engine", "elastic", "restartable", "retries")
"""Keys of a stage that may stand above, too, where they hold for every stage that does not say otherwise."""
OF_WORKFLOW = ("name", "mode", "command", "on_failure", "bundle", "ahead", "linger", "env", "stages", *SHARED)
OF_STAGE = (
    *("command", "nodes", "ppn", "tasks", "min_tasks", "max_tasks", "profile", "walltime", "needs", "scatter"),
    *("inputs", "outputs", "env", *SHARED),
)


def read_plan(text: str, name: str = "plan.yaml", engines: Iterable[str] = ()) -> Plan:
    """The plan that a YAML text describes; `name` is that of its file, and `engines` those that may be asked for.

    Raises EjbError (INVALID, TOO_LARGE).
    """
    return _Reader(Faults(name), tuple(engines)).plan(read_tree(text, name))


def check_files(plan: Plan, name: str, there: Callable[[str], bool]) -> None:
    """Raise EjbError (INVALID) for an input, or a program of a command, that is not there and that no stage makes.

    `there` says whether a pattern matches a file. A program is looked for where its word has a `/` and no variable.
    """
    made = [pattern for stage in plan.stages for pattern in stage.outputs]
    for stage in plan.stages:
        for key, what, pattern in (*(("inputs", "file", one) for one in stage.inputs), *_program(stage.command)):
            if any(_meet(pattern, other) for other in made) or there(pattern):
                continue
            message = f"{key} of stage {stage.name}: {what} {pattern!r} is not there, and no stage has it as an output"
            raise Faults(name).at(
                stage.places.get(key, stage.place), message, "correct the path, or begin where it holds"
            )


def _meet(pattern: str, other: str) -> bool:
    one, two = (word.removeprefix("./") for word in (pattern, other))
    return one == two or fnmatchcase(one, two) or fnmatchcase(two, one)


def _program(command: str) -> list[tuple[str, str, str]]:
    word = next((word for word in command.split() if "=" not in word), "")
    plain = "/" in word and not set(word) & set("$`\"'\\*?[(){};|&<>~")
    return [("command", "program", word)] if plain else []


@dataclass
class _Reader:
    faults: Faults
    engines: tuple[str, ...]
    _owners: dict[int, str] = field(default_factory=dict)  # what the keys of a node are told of

    def plan(self, root: Node) -> Plan:
        top = self._mapping(root, "a plan")
        self._known(top, ("workflow",), "a plan")
        node = top.get("workflow")
        if node is None:
            raise self.faults.at(top.place, "a plan begins with the key `workflow`")
        flow = self._mapping(node, "workflow")
        named = self._stages(flow)
        if not named:
            raise self.faults.at(flow.place, "a workflow needs a stage", "give it stages, or stage1, stage2, ...")
        if len(named) > MOST_STAGES:
            raise self.faults.at(named[MOST_STAGES][0].place, f"a workflow has at most {MOST_STAGES} stages")
        stages = []
        for at, (key, stage) in enumerate(named):
            stages.append(self._stage(key, stage, flow, named[at - 1][0].text if at else None))
        self._check_needs(named, stages)
        given = {
            "name": self._of(flow, "name", self._name),
            "mode": self._of(flow, "mode", lambda node: self._choice(node, PlanMode)),
            "on_failure": self._of(flow, "on_failure", lambda node: self._choice(node, OnFailure)),
            "bundle": self._of(flow, "bundle", self._switch),
            "ahead_s": self._of(flow, "ahead", self._time),
            "linger_s": self._of(flow, "linger", self._time),
        }
        said: dict[str, Any] = {"name": "workflow", **{key: value for key, value in given.items() if value is not None}}
        return Plan(stages=tuple(stages), **said)

    def _stages(self, flow: MappingNode) -> list[tuple[Scalar, MappingNode]]:
        """Each stage's name and body. The paper's stand among the other keys, as `stage1`, `stage2`, ..."""
        known, found = [], []
        for key, node in flow.items:
            if _PAPERS_STAGE.fullmatch(key.text):
                found.append((key, self._mapping(node, f"stage {key.text}")))
            else:
                known.append((key, node))
        self._known(MappingNode(tuple(known), flow.place), OF_WORKFLOW, "a workflow")
        stages = flow.get("stages")
        if stages is None:
            return found
        if found:
            raise self.faults.at(found[0][0].place, "stages stand either under `stages` or beside it, not both")
        for key, node in self._mapping(stages, "stages").items:
            if not _NAME.fullmatch(key.text):
                raise self.faults.at(key.place, f"{_short(key.text)} is no name of a stage", _NAME_HINT)
            found.append((key, self._mapping(node, f"stage {key.text}")))
        return found

    def _stage(self, key: Scalar, node: MappingNode, flow: MappingNode, before: str | None) -> Stage:
        name = key.text
        self._known(node, OF_STAGE, f"stage {name}")
        self._owners[id(node)] = f"stage {name}"

        def either(one: str, read: Callable[[Node], T]) -> T | None:
            return self._of(node if node.get(one) is not None else flow, one, read)

        command = either("command", self._text)
        if command is None or not command.strip():
            raise self.faults.at(key.place, f"stage {name} has no command", "give it one, or the workflow")
        if "\0" in command or len(command) > LONGEST_COMMAND:
            raise self.faults.at(key.place, f"the command of stage {name} is too long, or no text")
        walltime_s = self._of(node, "walltime", self._time)
        if walltime_s is None:
            said = node.get("walltime")
            place = key.place if said is None else said.place
            raise self.faults.at(place, f"stage {name} has no walltime", "such as walltime: 00:30:00")
        profile = self._of(node, "profile", self._profile)
        nodes, ppn, tasks = self._width(name, key, node, profile)
        if profile is not None and profile.duration_s > walltime_s:
            message = f"the profile of stage {name} lasts {time_words(profile.duration_s)}, longer than its walltime"
            raise self.faults.at(_at(node, "profile"), message, "give it more, for each change of width, too")
        least = self._of(node, "min_tasks", lambda one: self._number(one, 1, MOST_TASKS))
        if least is not None and least > tasks:
            raise self.faults.at(_at(node, "min_tasks"), f"min_tasks of stage {name} is more than its tasks ({tasks})")
        most = self._of(node, "max_tasks", lambda one: self._number(one, 1, MOST_TASKS))
        if most is not None and most != tasks:
            message = f"max_tasks of stage {name} is not its tasks ({tasks}), and no engine changes the number of ranks"
            raise self.faults.at(_at(node, "max_tasks"), message, "leave it out; min_tasks lets it start narrower")
        needs = self._of(node, "needs", self._words)
        env = {**(self._of(flow, "env", self._env) or {}), **(self._of(node, "env", self._env) or {})}
        return Stage(
            name=name,
            command=command,
            tasks=tasks,
            nodes=nodes,
            ppn=ppn,
            min_tasks=least,
            profile=None if profile is None else profile.words(),
            walltime_s=walltime_s,
            needs=((before,) if before is not None else ()) if needs is None else needs,
            engine=either("engine", self._engine),
            elastic=either("elastic", lambda one: "on" if self._switch(one) else "off"),
            restartable=either("restartable", self._switch) or False,
            retries=either("retries", lambda one: self._number(one, 0, MOST_RETRIES)) or 0,
            elements=self._of(node, "scatter", self._elements) or (),
            inputs=self._of(node, "inputs", self._patterns) or (),
            outputs=self._of(node, "outputs", self._patterns) or (),
            env=env,
            account=either("account", self._word),
            qos=either("qos", self._word),
            partition=either("partition", self._word),
            place=key.place,
            places={one.text: value.place for one, value in node.items},
        )

    def _width(
        self, name: str, key: Scalar, node: MappingNode, profile: Profile | None
    ) -> tuple[int | None, int | None, int]:
        nodes, ppn, tasks = (
            self._of(node, one, lambda at: self._number(at, 1, MOST_TASKS)) for one in ("nodes", "ppn", "tasks")
        )
        if profile is not None:
            fixed = next((one for one in ("nodes", "ppn", "scatter") if node.get(one) is not None), None)
            if fixed is not None:
                message = f"stage {name} has a profile, and its widths have no {fixed}"
                raise self.faults.at(_at(node, fixed), message, "leave one of them out")
            if tasks is not None and tasks != profile.peak:
                message = f"stage {name} has {tasks} tasks, and the widest step of its profile {profile.peak}"
                raise self.faults.at(_at(node, "tasks"), message, "leave tasks out, or make them equal")
            tasks = profile.peak
        if nodes is None and tasks is None:
            hint = "give it tasks, nodes and ppn, or a profile"
            raise self.faults.at(key.place, f"stage {name} has no width", hint)
        if tasks is None:
            assert nodes is not None
            tasks, ppn = nodes * (ppn or 1), ppn or 1
        elif nodes is not None and tasks != nodes * (ppn or 1) and (ppn is not None or tasks < nodes):
            said = f"{nodes} nodes of {ppn} processors are {nodes * ppn}" if ppn else f"{nodes} nodes need {nodes}"
            raise self.faults.at(_at(node, "tasks"), f"stage {name} has {tasks} tasks, and {said}", "leave one out")
        if tasks > MOST_TASKS:
            message = f"nodes and ppn of stage {name} are {tasks} processors; {MOST_TASKS} are the most"
            raise self.faults.at(_at(node, "nodes"), message)
        return nodes, ppn, tasks

    def _check_needs(self, named: list[tuple[Scalar, MappingNode]], stages: list[Stage]) -> None:
        names = [stage.name for stage in stages]
        for (_, node), stage in zip(named, stages, strict=True):
            for one in stage.needs:
                if one not in names:
                    message = f"stage {stage.name} needs {_short(one)}, which is no stage"
                    raise self.faults.at(_at(node, "needs"), message, _like(one, names))
        cycle = cycle_in({stage.name: stage.needs for stage in stages})
        if cycle:
            first = min(cycle, key=names.index)
            at = cycle.index(first)
            words = [*cycle[at:-1], *cycle[:at], first] if at < len(cycle) - 1 else cycle
            place = _at(named[names.index(first)][1], "needs")
            hint = "one of them has to begin without the others"
            raise self.faults.at(place, f"stages need each other in a circle: {' needs '.join(words)}", hint)
        self._check_outputs(named, stages)

    def _check_outputs(self, named: list[tuple[Scalar, MappingNode]], stages: list[Stage]) -> None:
        """One file may be written again by a later stage, but not by two that may run beside each other."""
        before = all_behind({stage.name: stage.needs for stage in stages})
        writers: dict[str, list[str]] = {}
        for (_, node), stage in zip(named, stages, strict=True):
            for one in sorted({one.removeprefix("./") for one in stage.outputs}):
                for other in writers.setdefault(one, []):
                    if other not in before[stage.name] and stage.name not in before[other]:
                        message = f"stages {other} and {stage.name} both write {_short(one)}, and may run at one time"
                        hint = "have one need the other, or give each a file of its own"
                        raise self.faults.at(_at(node, "outputs"), message, hint)
                writers[one].append(stage.name)

    # -- values -------------------------------------------------------------------------------------------------------

    def _known(self, node: MappingNode, known: tuple[str, ...], what: str) -> None:
        for key, _ in node.items:
            if key.text not in known:
                message = f"{what} has no key {_short(key.text)}"
                raise self.faults.at(key.place, message, _like(key.text, known))

    def _mapping(self, node: Node, what: str) -> MappingNode:
        if not isinstance(node, MappingNode):
            raise self.faults.at(node.place, f"{what} is a mapping, of keys and values")
        return node

    def _of(self, node: MappingNode, key: str, read: Callable[[Node], T]) -> T | None:
        """What a key says; None where it is not there, or says nothing. Errors name it, and its stage."""
        value = node.get(key)
        if value is None or (isinstance(value, Scalar) and value.nothing):
            return None
        try:
            return read(value)
        except EjbError as error:
            owner = self._owners.get(id(node), "the workflow")
            raise EjbError(
                error.code, f"{key} of {owner}: {error.message}", hint=error.hint, where=error.where
            ) from None

    def _text(self, node: Node) -> str:
        if not isinstance(node, Scalar):
            raise self.faults.at(node.place, "one text is wanted here")
        return node.text

    def _word(self, node: Node) -> str:
        text = self._text(node)
        if not _WORD.fullmatch(text):
            raise self.faults.at(node.place, f"{_short(text)} is not one word")
        return text

    def _name(self, node: Node) -> str:
        text = self._text(node)
        if not _NAME.fullmatch(text):
            raise self.faults.at(node.place, f"{_short(text)} is no name of a workflow", _NAME_HINT)
        return text

    def _number(self, node: Node, least: int, most: int) -> int:
        text = self._text(node)
        if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
            raise self.faults.at(node.place, f"{_short(text)} is no number from {least} to {most}")
        return int(text)

    def _time(self, node: Node) -> float:
        text = self._text(node)
        try:
            found = parse_walltime(text)
        except ValueError as error:
            raise self.faults.at(node.place, str(error)) from None
        if found is None:
            raise self.faults.at(node.place, f"{_short(text)} has no end", "a stage needs a walltime that ends")
        return found

    def _profile(self, node: Node) -> Profile:
        text = self._text(node)
        try:
            return parse_profile(text)
        except ValueError as error:
            raise self.faults.at(node.place, str(error)) from None

    def _switch(self, node: Node) -> bool:
        text = self._text(node).lower()
        if text not in _YES | _NO:
            raise self.faults.at(node.place, f"{_short(text)} is neither on nor off")
        return text in _YES

    def _choice(self, node: Node, of: type[E]) -> E:
        text = self._text(node)
        try:
            return of(text)
        except ValueError:
            hint = " or ".join(one.value for one in of)
            raise self.faults.at(node.place, f"{_short(text)} is none of the words that may stand here", hint) from None

    def _engine(self, node: Node) -> str:
        text = self._word(node)
        if self.engines and text not in self.engines:
            raise self.faults.at(node.place, f"there is no engine {_short(text)}", _like(text, self.engines))
        return text

    def _words(self, node: Node) -> tuple[str, ...]:
        """A list of words, or one alone."""
        if isinstance(node, MappingNode):
            raise self.faults.at(node.place, "a list of words is wanted here")
        items = node.items if isinstance(node, SequenceNode) else (node,)
        found = tuple(self._text(item) for item in items)
        for text in found:
            if not text or len(text) > 4096 or not text.isprintable():
                raise self.faults.at(node.place, f"{_short(text)} is no word")
        return tuple(dict.fromkeys(found))

    def _patterns(self, node: Node) -> tuple[str, ...]:
        """Patterns of files; whole trees would be walked whenever the stage is looked at."""
        found = self._words(node)
        for text in found:
            if "**" in text:
                raise self.faults.at(node.place, f"{_short(text)} names a whole tree", "name its folders: a/*.txt")
        return found

    def _elements(self, node: Node) -> tuple[str, ...]:
        """`scatter: 8` (0 to 7) or `scatter: [a, b]`."""
        if isinstance(node, Scalar):
            return tuple(map(str, range(self._number(node, 1, MOST_ELEMENTS))))
        if not isinstance(node, SequenceNode) or not 1 <= len(node.items) <= MOST_ELEMENTS:
            raise self.faults.at(node.place, f"a number, or a list of 1 to {MOST_ELEMENTS} values, is wanted here")
        found = tuple(self._text(item) for item in node.items)
        for text in found:
            if not text.isprintable():
                raise self.faults.at(node.place, f"{_short(text)} cannot be a value of scatter")
        return found

    def _env(self, node: Node) -> Mapping[str, str]:
        found = {}
        for key, value in self._mapping(node, "env").items:
            if not _VARIABLE.fullmatch(key.text) or key.text.startswith("EJB_"):
                raise self.faults.at(key.place, f"{_short(key.text)} cannot be set as a variable")
            text = self._text(value)
            if "\0" in text:
                raise self.faults.at(value.place, f"the value of {key.text} is no text")
            found[key.text] = text
        return found


_NAME_HINT = "letters, digits, _ . and -, at most 64 of them"


def _at(node: MappingNode, key: str) -> Place:
    found = node.get(key)
    return found.place if found is not None else node.place


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _like(word: str, known: Iterable[str]) -> str:
    """A hint: what was probably meant, or what there is."""
    names = list(known)
    close = difflib.get_close_matches(word, names, 1)
    return f"{close[0]} is probably meant" if close else f"there is {', '.join(names[:24])}"
