"""The profile of an evolving job: `#EJB profile=16:10m,64:5m,16:20m`, or --profile. And `#EJB stages`, or --stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ejbd.core.evolving.profiles import Profile, parse_profile, time_words
from ejbd.core.walltime import MINUTE_S, parse_walltime
from ejbd.manager.jobspec import values
from ejbd.manager.jobspec.findings import Given, invalid
from ejbd.manager.jobspec.layout import Layout
from ejbd.manager.jobspec.shell import Launch

_MOST_AHEAD = 1000  # launches of a script that are kept
SHORT_S = 30.0  # a launch of less is worth no processors of its own: to come to them takes 1 to 3 s of their time
CHANGE_S = MINUTE_S  # what a walltime that EJB chooses has for each change of width


def read_profile(settings: Mapping[str, Given], layout: Layout, walltime_s: float) -> Profile | None:
    """The profile that is asked for; None where none is.

    `walltime_s`: as asked for, 0 where it is not. Raises EjbError (INVALID) for what is no
    profile, or none of this job.
    """
    given = settings.get("ejb:profile")
    if given is None:
        return None
    try:
        profile = parse_profile(given.value or "").joined()
    except ValueError as error:
        raise invalid(given.where, str(error)) from None
    if layout.tasks_asked and layout.processes != profile.peak:
        what = f"the profile's widest step has {profile.peak} ranks' places, and the job {layout.processes} ranks"
        raise invalid(given.where, what, "leave -n out, or make them equal")
    if layout.nodes is not None or layout.processors_per_node is not None:
        raise invalid(given.where, "the widths of a profile have no fixed layout", "leave out -N and --ntasks-per-node")
    if walltime_s and profile.duration_s > walltime_s:
        what = f"the profile lasts {time_words(profile.duration_s)}, longer than the walltime"
        raise invalid(given.where, what, "ask for more with -t, or leave it out")
    if "array" in settings:
        raise invalid(given.where, "the elements of an array have no profiles", "submit them as jobs of their own")
    engine = values.engine(settings["ejb:engine"]) if "ejb:engine" in settings else "auto"
    if engine == "none":
        what = "a program under engine none cannot change its width"
        raise invalid(given.where, what, "it needs engine application or dmtcp")
    if "ejb:elastic" in settings and values.elastic(settings["ejb:elastic"]) is False:
        raise invalid(given.where, "a job that is passed through has one width", "leave out --elastic off")
    return profile


def read_stages(
    settings: Mapping[str, Given], layout: Layout, walltime_s: float, launches: Sequence[Launch] | None
) -> dict[str, Any] | None:
    """What a job keeps of `#EJB stages`: each launch of its script has a width of its own. None where it has none.

    `launches`: those that its script shows; None of a command.

    Raises EjbError (INVALID) for a job that can have none.
    """
    given = settings.get("ejb:stages")
    if given is None or not values.switch(given):
        return None
    if launches is None:
        raise invalid(given.where, "stages are launches of a script, and this is a command", "submit a script")
    if "ejb:profile" in settings:
        raise invalid(given.where, "a job has a profile or stages, not both", "leave one of them out")
    if layout.nodes is not None or layout.processors_per_node is not None:
        raise invalid(given.where, "launches with widths of their own have no fixed layout", "say -n, not -N")
    if not layout.tasks_asked:
        raise invalid(given.where, "a job with stages says how wide its widest launch may be", "such as -n 64")
    if "array" in settings:
        raise invalid(given.where, "the elements of an array have no stages", "submit them as jobs of their own")
    if "ejb:elastic" in settings and values.elastic(settings["ejb:elastic"]) is False:
        raise invalid(given.where, "a job that is passed through has one width", "leave out --elastic off")
    ahead = [_known(launch, layout.processes) for launch in launches[:_MOST_AHEAD]]
    return {"steps": [[walltime_s, 1]], "best_effort": True, "stages": True, **({"ahead": ahead} if any(ahead) else {})}


def notes_on(launches: Sequence[Launch]) -> list[str]:
    """What the user of a script with stages is told beforehand: where it costs more than jobs of their own do."""
    for launch in launches:
        seconds = _time_of(launch)
        if seconds is not None and seconds < SHORT_S:
            what = f"its launch has {time_words(round(seconds))} at most, and takes 1 to 3 s to come to its processors"
            return [f"line {launch.first_line}: {what}: sbatch --dependency or a plan holds less for launches so short"]
    return []


def _time_of(launch: Launch) -> float | None:
    """Seconds that a launch may run, where its line says so; what is no time is refused as it begins."""
    try:
        return parse_walltime(launch.shape[1]) if launch.shape is not None and launch.shape[1] else None
    except ValueError:
        return None


def _known(launch: Launch, processes: int) -> list[float | None] | None:
    """The ranks and seconds (None: not said) of a launch that comes right behind another; None where that is unsure."""
    if not launch.at_once or launch.shape is None:
        return None
    return [launch.shape[0] or processes, _time_of(launch)]


def stored(profile: Profile | None, settings: Mapping[str, Given]) -> dict[str, Any] | None:
    """What a job keeps of its profile. Raises EjbError (INVALID) for best effort without one."""
    best = settings.get("ejb:best-effort")
    best_effort = best is not None and values.switch(best)
    if profile is None:
        if best is not None and best_effort:
            raise invalid(
                best.where, "best effort is about the widths of a profile, and there is none", "add --profile"
            )
        return None
    return {"steps": profile.to_json(), **({"best_effort": True} if best_effort else {})}


def walltime_of(profile: Profile) -> float:
    """What is asked for where no walltime is given: the profile and a while for each step, in whole minutes."""
    seconds = profile.duration_s + CHANGE_S * len(profile.steps)
    return float(-(-seconds // MINUTE_S) * MINUTE_S)
