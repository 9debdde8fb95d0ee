"""The program that a launch starts, behind wrappers (`env A=1 prog`), containers (`apptainer exec IMAGE prog`) and
interpreters, and the words before it."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from ..programs import skip_interpreter, skip_wrappers

_NO_FOLDER = "the folder in which the launch runs has to be there in the container, by the same name"


class NotSeen(ValueError):
    """What a container's command starts does not show, or could not be run by a profile: one sentence."""


class Wrapped:
    """A command as two: `wrapper` (empty: it starts itself) and `program`, or a script. `tools`: what starts another
    program in the same container. `passing`: the prefix of variables that are there in the container whatever
    becomes of others."""

    __slots__ = ("passing", "program", "tools", "wrapper")

    def __init__(
        self, wrapper: Sequence[str], program: Sequence[str], tools: Sequence[str] = (), passing: str = ""
    ) -> None:
        self.wrapper = list(wrapper)
        self.program = list(program)
        self.tools = list(tools)
        self.passing = passing

    def with_passed(self, env: Mapping[str, str]) -> Dict[str, str]:
        """These variables, and again by the names by which a container has them whatever becomes of others."""
        passed = {self.passing + name: value for name, value in env.items()} if self.passing else {}
        return dict(env, **passed)


class _Options:
    """Those that are known: `plain` ones, those with a `value`, those with the `folder` in which the program runs,
    and those that are `refused` (why)."""

    def __init__(self, plain: str, value: str, folder: str, refused: Mapping[str, str]) -> None:
        self.plain = frozenset(plain.split())
        self.value = frozenset(value.split())
        self.folder = frozenset(folder.split())
        self.refused = refused


_APPTAINER_FIRST = _Options(
    "-d --debug --nocolor -q --quiet -s --silent -v --verbose", "-c --config --build-config", "", {}
)
_APPTAINER = _Options(
    "--allow-setuid -e --cleanenv --disable-cache -f --fakeroot -i --ipc --keep-privs -n --net --no-eval --no-home "
    "--no-https --nohttps --no-init --no-nv --no-pid --no-privs --no-rocm --no-tmp-sandbox --no-umask --nv --nvccli "
    "--oom-kill-disable --passphrase -p --pid --rocm --sharens --sif-fuse --tmp-sandbox --underlay --unsquash -u "
    "--userns --uts -w --writable --writable-tmpfs",
    "--add-caps --app --apply-cgroups --authfile -B --bind --blkio-weight --blkio-weight-device --cpu-shares --cpus "
    "--cpuset-cpus --cpuset-mems --dns --docker-host --drop-caps --env --env-file --fusemount --hostname --memory "
    "--memory-reservation --memory-swap --mount --network --network-args -o --overlay --pem-path --pids-limit "
    "-S --scratch --security -W --workdir",
    "--pwd --cwd",
    dict.fromkeys(("-c", "--contain", "-C", "--containall", "--compat", "-H", "--home", "--no-mount"), _NO_FOLDER),
)
_CH_RUN = _Options(
    "--env-no-expand --home --no-home -j --join --no-passwd -q --quiet --seccomp --set-env -t --private-tmp --unsafe "
    "-v --verbose -w --write -W --write-fake",
    "-b --bind --feature -g --gid --join-ct --join-pid --join-tag -m --mount -s --storage -u --uid --unset-env "
    "--warnings",
    "-c --cd",
    {},
)
_APPTAINERS: Dict[str, str] = {"apptainer": "APPTAINERENV_", "singularity": "SINGULARITYENV_"}
_OTHERS = ("podman", "docker", "shifter", "udocker", "enroot", "sarus")


def unwrapped(words: Sequence[str], cwd: str) -> Wrapped:
    """The command of a launch that runs in the folder `cwd`, as it is started again and again. Raises NotSeen."""
    found = without_container(words, cwd)
    script = skip_interpreter(found.program) or 0
    wrapper = [*found.wrapper, *found.program[:script]]
    return Wrapped(wrapper, found.program[script:], found.tools, found.passing)


def without_container(words: Sequence[str], cwd: str) -> Wrapped:
    """The same, with an interpreter as the program."""
    at = skip_wrappers(words, again=True)
    before, own = list(words[:at]), list(words[at:])
    name = own[0].rpartition("/")[2] if own else ""
    if name in _APPTAINERS:
        found = _of_apptainer(name, own, cwd)
    elif name == "ch-run":
        found = _of_ch_run(own, cwd)
    elif name in _OTHERS:
        raise NotSeen("%s: no profile is looked for in its containers" % name)
    else:
        found = Wrapped([], own)
    inside = skip_wrappers(found.program, again=True)
    tools = [*before, *found.tools] if before and before[0].rpartition("/")[2] == "env" else found.tools
    wrapper = [*before, *found.wrapper, *found.program[:inside]]
    return Wrapped(wrapper, found.program[inside:], tools, found.passing)


def _of_apptainer(name: str, words: List[str], cwd: str) -> Wrapped:
    at, _ = _behind(name, _APPTAINER_FIRST, words, 1)
    if at >= len(words) or words[at] not in ("exec", "run"):
        raise NotSeen("%s: only what it starts by exec or run is seen" % name)
    image, folder = _behind(name, _APPTAINER, words, at + 1)
    _has(name, folder, cwd)
    if image >= len(words):
        raise NotSeen("%s: no image is named" % name)
    if words[image].startswith("instance://"):
        raise NotSeen("%s: what an instance has of the host's folders is not known" % name)
    if image + 1 >= len(words):
        raise NotSeen("%s: the program is not named; say it behind the image" % name)
    wrapper = words[: image + 1]
    return Wrapped(wrapper, words[image + 1 :], [*words[:at], "exec", *wrapper[at + 1 :]], _APPTAINERS[name])


def _of_ch_run(words: List[str], cwd: str) -> Wrapped:
    image, folder = _behind("ch-run", _CH_RUN, words, 1)
    if folder is None:
        raise NotSeen("ch-run: say --cd with the folder in which the launch runs")
    _has("ch-run", folder, cwd)
    if image >= len(words):
        raise NotSeen("ch-run: no image is named")
    begins = image + 2 if words[image + 1 : image + 2] == ["--"] else image + 1
    if begins >= len(words):
        raise NotSeen("ch-run: the program is not named; say it behind the image")
    return Wrapped(words[:begins], words[begins:], words[:begins])


def _behind(name: str, options: _Options, words: Sequence[str], at: int) -> Tuple[int, Optional[str]]:
    """Where the first word behind the options is; and the folder that they name."""
    folder: Optional[str] = None
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        option, equals, value = word.partition("=")
        if option in options.refused:
            raise NotSeen("%s %s: %s" % (name, option, options.refused[option]))
        if option in options.value or option in options.folder:
            if not equals:
                if at >= len(words):
                    raise NotSeen("%s: %s needs a value" % (name, option))
                value = words[at]
                at += 1
            folder = value if option in options.folder else folder
        elif option not in options.plain:
            raise NotSeen("%s: the option %s is not known, so the program behind it is not seen" % (name, option))
    return at, folder


def _has(name: str, folder: Optional[str], cwd: str) -> None:
    """Raise NotSeen where the program runs in another folder; what only the shell knows is not judged."""
    if folder is None or "$" in folder or "`" in folder:
        return
    if folder != cwd and os.path.normpath(os.path.join("/", folder)) != os.path.normpath(cwd):  # as it is in there
        raise NotSeen("%s: it runs in %s, but %s" % (name, folder, _NO_FOLDER))
