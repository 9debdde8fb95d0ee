"""Jobs, plans and decisions in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ejbd.cli.output import Output, ascii_only, printable, width
from ejbd.cli.show.chart import plan_chart, plan_lines
from ejbd.cli.show.columns import charged, describe_state
from ejbd.cli.show.words import clock, duration, slots
from ejbd.wire.payloads import EventView, JobView
from ejbd.wire.states import TERMINAL_JOB


def outcome(job: JobView) -> str:
    """How a job ended, in one line."""
    text = f"job {job['id']} {job['state']}"
    if job["exit_code"] is not None:
        text += f" with exit code {job['exit_code']}"
    if job["end_s"] is not None:
        text += f" after {duration(job['end_s'] - job['submit_s'])}"
    return printable(text + (f": {job['reason']}" if job["reason"] else ""))


def job_detail(job: dict[str, Any], out: Output) -> None:
    """All about one job."""
    facts = [
        ("job", f"{job['id']}  {job['name']}"),
        ("state", describe_state(job) + " (held)" * job["held"] + f": {job['reason']}" * bool(job["reason"])),
        ("user, queue", f"{job['user']}, {job['queue']}"),
        ("kind", ("elastic " if job["elastic"] else "passed-through ") + job["kind"] + f", engine {job['engine']}"),
        ("processors", f"{job['processors']} now, for {job['processes']} processes"),
        ("progress", f"{job['progress']:.0%} of {duration(job['walltime_s']) if job['walltime_s'] else 'no walltime'}"),
        ("settings", " ".join(f"{key}={value}" for key, value in job.get("settings", {}).items()) or "-"),
        ("submitted", clock(job["submit_s"])),
        ("started", clock(job["start_s"])),
        ("rigid start", clock(job["rigid_start_s"])),
        ("expected end", clock(job["expected_completion_s"])),
        ("ended", clock(job["end_s"])),
        ("exit code", "-" if job["exit_code"] is None else str(job["exit_code"])),
        ("directory", job["cwd"]),
    ]
    for name, value in facts:
        if value != "-":
            out.line(f"{name:<13} {printable(value)}")
    for state, which in (job.get("element_indices") or {}).items():
        out.line(f"{state:<13} {job['elements'].get(state, '')} of its elements: {shortened(which)}")
    if job["subjobs"]:
        out.line()
        rows = [
            [
                f"J{s['ordinal']}",
                s["batch_id"] or "-",
                s["state"],
                str(s["processors"]),
                duration(s["walltime_s"]) if s["walltime_s"] else "-",
                clock(s["start_s"] if s["start_s"] is not None else s["planned_start_s"]),
                charged(s.get("processor_s")),
                ",".join(s["nodes"][:6]) + (",..." if len(s["nodes"]) > 6 else ""),
            ]
            for s in job["subjobs"]
        ]
        heading = ["SUBJOB", "BATCH ID", "STATE", "PROCS", "LIMIT", "START", "CHARGED", "NODES"]
        out.table(heading, rows, right=frozenset({3, 4, 6}))
        if together := _together(job):
            out.line(printable(together))
        if job.get("launches"):
            out.line()
            heading, rows, right = launches(job)
            out.table(heading, rows, right=right)
            out.line()
        if against := _against_rigid(job):
            out.line(against)


def launches(job: dict[str, Any]) -> tuple[list[str], list[list[str]], frozenset[int]]:
    """The launches of a script with stages: heading, rows, and the columns with numbers."""
    rows = [
        [
            str(one["ordinal"] + 1),
            str(one["ranks"]),
            duration(one["wait_s"]),
            duration(one["run_s"]),
            charged(one["beside_processor_s"]),
            "-" if one["code"] is None else str(one["code"]),
        ]
        for one in job["launches"]
    ]
    return ["LAUNCH", "RANKS", "WAITED", "RAN", "CHARGED BESIDE", "CODE"], rows, frozenset(range(6))


def _together(job: dict[str, Any]) -> str:
    """What the batch jobs that were one job of the user's were charged together; "" where nothing is known of it."""
    ids, processor_s = job.get("batch_ids") or [], job.get("processor_s")
    if not ids or processor_s is None:
        return ""
    which = f"batch job {ids[0]} is" if len(ids) == 1 else f"batch jobs {', '.join(ids)} are"
    return f"{which} this one job: {charged(processor_s)} processor-seconds{' together' if len(ids) > 1 else ''}"


def _against_rigid(job: dict[str, Any]) -> str:
    """What its batch jobs were charged beside what a rigid job would have been for the same work."""
    held_s, alone_s = job.get("processor_s"), job.get("alone_processor_s")
    if held_s is None or not alone_s:
        return ""
    hours = f"{held_s / 3600:.4f} core-hours were charged; a rigid job would have been charged {alone_s / 3600:.4f}"
    return f"{hours} for the work that is done ({held_s / alone_s - 1:+.0%})"


def shortened(indices: str, most: int = 90) -> str:
    """The indices of elements, as many as a line holds."""
    return indices if len(indices) <= most else indices[:most].rpartition(",")[0] + ",..."


def plan(found: dict[str, Any], out: Output) -> None:
    """What would be done with a job, and why."""
    limit = duration(found["walltime_s"]) if found["walltime_s"] else "no walltime"
    out.line(printable(f"{found['name']}: {found['processes']} processes for {limit} in queue {found['queue']}"))
    how = "elastic" if found["elastic"] else "passed through as an ordinary job"
    code = f" ({found['code']})" if found.get("code") else ""
    out.line(printable(f"{how}{code}: {found['why']}"))
    out.line(f"free now: {slots(found['slots'])}")
    if found["placeholder"] and found["elastic"]:
        out.line(f"the place holder J0 would queue for {found['placeholder']['processors']} processors")
    if found["decision"]:
        decision(found["decision"], out, indent="")
    _planned(found.get("planned", []), found["processes"], out, "if it were submitted now", found.get("free_ahead", []))
    if found.get("cost"):
        out.line(printable(cost_line(found["cost"])))
    _print_measured(found, out)
    if found.get("walltimes"):
        out.lines(map(printable, walltime_lines(found["walltimes"])))
    for note in found["notes"]:
        out.note(note)


def decision(found: dict[str, Any], out: Output, indent: str = "  ") -> None:
    """A decision with what was weighed."""
    out.line(printable(f"{indent}{found['kind']}: {found['reason']}"))
    if found.get("expected_completion_s") is not None and found.get("now_s") is not None:
        out.line(f"{indent}  expected to be done in {duration(found['expected_completion_s'] - found['now_s'])}")
    if found.get("slots"):
        out.line(f"{indent}  seen: {slots(found['slots'])}")
    chosen = _chosen(found)
    if chosen is not None and chosen.get("price") is not None:
        gained = "of the job's own work" if found["kind"] == "start" else "by which it ends earlier"
        out.line(f"{indent}  price: {chosen['price']:.3g} processor-seconds for each second {gained}")
    for candidate in found.get("candidates", ()):
        sign = "+" if candidate["feasible"] else "-"
        out.line(printable(f"{indent}  {sign} {candidate['name']}: {candidate['why']}"))


def _chosen(found: dict[str, Any]) -> dict[str, Any] | None:
    """The candidate that a start or growth carries out."""
    asked = found.get("requests")
    fitting = (one for one in found.get("candidates", ()) if one["feasible"] and one["requests"] == asked)
    return next(fitting, None) if asked else None


def application_lines(found: dict[str, Any]) -> list[str]:
    """By what profile an application is run, and what is left at each of its widths."""
    by = f"the profile {found['profile']} stops and resumes it" if found["profile"] else "it stops and resumes itself"
    now = f"; {found['now']} ranks run" if found["now"] is not None else ""
    lines = [f"{by}{now}" + (f"; not in this launch: {found['why']}" if found["why"] else "")]
    if broken := found.get("not_again"):
        ranks = ", ".join(map(str, broken))
        lines.append(f"  it did not go on with {ranks} ranks when it was moved there: not tried again")
    if (least := found.get("least_by_memory", 1)) > 1:
        lines.append(f"  with fewer than {least} ranks each would need more memory than a node has: not used")
    takes = [
        f"{one['ranks']}: {duration(one['takes_s'])}{' (measured)' if one['measured'] else ''}"
        for one in found["widths"]
    ]
    return lines + ([f"  ranks, and what is left with them: {', '.join(takes)}"] if takes else [])


def cost_line(cost: dict[str, Any]) -> str:
    """What a move costs, and how that is known."""
    return (
        f"a move costs {cost['lambda_s']:.3g} s ({cost['why']}); "
        f"the last checkpoint begins {cost['reserve_s']:.3g} s before a subjob's end"
    )


def penalty_line(penalty: dict[str, Any], deltas: list[dict[str, Any]]) -> str:
    """What over-subscription costs, and how that is known; of several degrees each."""
    told = f"over-subscription costs a factor (Delta) of {penalty['delta']:.3g} ({penalty['why']})"
    if len(deltas) > 1:
        told += "; by degree " + ", ".join(f"{one['degree']}: {one['delta']:.3g}" for one in deltas)
    return told


def overheads_line(overheads: dict[str, Any]) -> str:
    """What a start and an end cost beside a move, and how that is known."""
    ready, launch, back, pace = (overheads[name] for name in ("ready", "launch", "giving_back", "pace"))
    return (
        f"a start costs {overheads['start_up_s']:.3g} s: {ready['value']:.3g} s until workers answer ({ready['why']}), "
        f"{launch['value']:.3g} s until ranks run ({launch['why']}); giving back costs {back['value']:.3g} s "
        f"({back['why']}); pace {pace['value']:.3g} ({pace['why']})"
    )


def explanation(found: dict[str, Any], out: Output) -> None:
    """Why a job is where it is."""
    out.line(printable(found["now"]))
    out.lines(printable(f"note: {note}") for note in found.get("notes", ()))
    if found["state"] not in TERMINAL_JOB:
        _figures(found, out)
    if found.get("walltimes"):
        out.lines(map(printable, walltime_lines(found["walltimes"])))
    for past in found["decisions"]:
        out.line()
        out.line(clock(past["at_s"]))
        if "reason" in past["decision"]:
            decision({"kind": past["kind"], **past["decision"]}, out)
        else:
            out.line(printable(f"  {past['kind']}: {past['decision']}"))
        if past.get("cost"):
            out.line(printable(f"    lambda {past['cost']['lambda_s']:.3g} s, {past['cost']['why']}"))
        if past.get("penalty"):
            out.line(printable(f"    Delta {past['penalty']['delta']:.3g}, {past['penalty']['why']}"))
    if found["present"]:
        out.line()
        out.line("right now")
        decision(found["present"], out)
    if planned := found.get("planned"):
        out.line()
        _planned(
            planned,
            max(interval["processors"] for interval in planned),
            out,
            "from now on",
            begun=found["state"] != "waiting",
        )


def _print_measured(found: dict[str, Any], out: Output) -> None:
    """What over-subscription, starts and ends, and the application cost, as far as it is known."""
    if found.get("penalty"):
        out.line(printable(penalty_line(found["penalty"], found.get("deltas", []))))
    if found.get("overheads"):
        out.line(printable(overheads_line(found["overheads"])))
    if found.get("application"):
        out.lines(map(printable, application_lines(found["application"])))


def _figures(found: dict[str, Any], out: Output) -> None:
    """What planning goes by now, of a job that is not over: a move's cost only where it may be moved."""
    movable = found.get("movable")
    if movable:
        can = {True: "yes", False: "no", None: "not known yet"}[movable["movable"]]
        out.line(printable(f"can be moved: {can}: {movable['why']}"))
    if found.get("cost") and (movable is None or movable["movable"] is not False):
        out.line(printable(cost_line(found["cost"])))
    _print_measured(found, out)
    if found.get("checkpoints"):
        out.line(printable(f"checkpoints: {found['checkpoints']['why']}"))


def walltime_lines(known: dict[str, Any]) -> list[str]:
    """The walltimes that were learned for a job: the law, and of each the chances and what it is expected to cost."""
    of = f"{known['application']}{':' + known['input_class'] if known['input_class'] else ''}"
    of = f"{of} on {known['processors']} processors"
    if known["planned_s"]:
        planned_s, own_s = known["planned_s"]
        outlived = "; it was outlived, and the request counts" if known["at"] else ""
        with_s = f"{duration(planned_s)}, by which 95 of 100 are over{outlived}"
        law = f"{known['why']}: {known['law']}, mean {duration(known['mean_s'])}"
        weighed = "; moves are weighed by its law" if known["points_s"] else ""
        return [f"planned with the run time of {of}: {with_s} ({law}); {duration(own_s)} are asked for{weighed}"]
    if not known["sequence_s"] and known["points_s"]:
        law = f"{known['why']}: {known['law']}, mean {duration(known['mean_s'])}"
        return [f"moves are weighed by the run times of {of} ({law})"]
    if not known["sequence_s"]:
        return [f"walltime ({of}): {known['why']}", *_gap_lines(known["gaps"])]
    lines = [f"walltimes learned of {of} {known['why']}: {known['law']}, mean {duration(known['mean_s'])}"]
    if known["checkpoint_s"] is not None:
        lines.append(
            f"  resumed: a checkpoint takes {known['checkpoint_s']:.3g} s, a restart {known['restart_s']:.3g} s"
        )
    rows = zip(known["sequence_s"], known["finishes"], known["costs_s"], strict=True)
    for at, (walltime_s, finishes, cost_s) in enumerate(rows):
        done = "timed out" if at < known["at"] else "asked for now" if at == known["at"] else "after a time-out"
        chance = f"is enough with probability {finishes:.3f}"
        lines.append(f"  {duration(walltime_s)}: {done}; {chance}; begun with it, {duration(cost_s)} are expected")
    lines += _gap_lines(known["gaps"])
    if known["own_cost_s"] is not None:
        lines.append(f"  the user's own: {duration(known['own_cost_s'])}, asked for once")
    return lines


def _gap_lines(gaps: list[dict[str, Any]]) -> list[str]:
    """Windows that a job was sent into."""
    return [
        f"  sent into a gap of {gap['processors']} x {duration(gap['walltime_s'])}: is enough with "
        f"probability {gap['finishes']:.3f}{gap['by'] and ': ' + gap['by']}; {gap['end'] or 'not over'}"
        for gap in gaps
    ]


def _planned(
    planned: list[dict[str, Any]],
    processes: int,
    out: Output,
    since: str,
    free: Sequence[tuple[float, int]] = (),
    *,
    begun: bool = False,
) -> None:
    """What is to come by the plan: a line for each stretch, and a picture, with what is `free` below it."""
    if not planned:
        return
    out.line(f"planned, {since}:")
    out.lines(f"  {line}" for line in plan_lines(planned, begun=begun))
    out.lines(plan_chart(planned, processes, width(), free, plain=ascii_only()))


def event_line(event: EventView) -> str:
    """An event in one line."""
    data = event["data"]
    words = [f"{key}={value}" for key, value in data.items() if not isinstance(value, (dict, list)) and value != ""]
    subjob = f" {event['subjob']}" if event["subjob"] else ""
    return printable(f"{clock(event['at_s'])} {event['kind']}{subjob} {' '.join(words)}".rstrip())
