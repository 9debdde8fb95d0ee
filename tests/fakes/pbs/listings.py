"""What the server prints: jobs, nodes, queues and reservations of each dialect, and what Maui says of room."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any
from xml.sax.saxutils import escape

from tests.fakes.pbs.world import Job, World, as_json

VERSION = {"openpbs": "23.06.06", "torque": "6.1.3.h5"}


def length(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def long_length(seconds: float) -> str:
    """As Maui writes it: with days in front, and the sign."""
    whole = int(abs(seconds))
    days, rest = divmod(whole, 86400)
    text = f"{days}:{length(rest)}" if days else length(rest)
    return f"-{text}" if seconds < 0 else text


def clock(at: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(at))


def without_year(at: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S", time.gmtime(at))


def number_or_text(value: str) -> Any:
    """OpenPBS writes what looks like a number as one."""
    if re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][0-9]{1,2})?", value):
        found = float(value)
        return int(found) if found.is_integer() and abs(found) < 1e15 else found
    return value


def placed(shares: Iterable[tuple[str, int]]) -> str:
    return "+".join(f"({node}:ncpus={count})" for node, count in shares)


def exec_host(job: Job, dialect: str) -> str:
    found = []
    for node, first, count in job.shares:
        if dialect == "openpbs":
            found.append(f"{node}/{first}" + (f"*{count}" if count > 1 else ""))
        else:
            found.append(f"{node}/{first}" + (f"-{first + count - 1}" if count > 1 else ""))
    return "+".join(found)


def openpbs_job(world: World, job: Job, now: float) -> dict[str, Any]:
    head = world.head
    found: dict[str, Any] = {"Job_Name": job.name, "Job_Owner": f"{job.owner}@{head}"}
    if job.start_s is not None:
        used = (job.end_s if job.end_s is not None else now) - job.start_s
        found["resources_used"] = {"cput": "00:00:00", "ncpus": job.processors, "walltime": length(used)}
    found |= {"job_state": job.state, "queue": job.queue, "server": head, "Checkpoint": "u"}
    found["ctime"] = clock(job.submitted_s)
    if job.depend:
        found["depend"] = job.depend
    found["Error_Path"] = f"{head}:{job.error}"
    if job.shares:
        found["exec_host"] = exec_host(job, "openpbs")
        found["exec_vnode"] = placed((node, count) for node, _, count in job.shares)
    found |= {"Hold_Types": job.holds or "n", "Join_Path": job.join, "mtime": clock(job.changed_s)}
    found |= {
        "Output_Path": f"{head}:{job.output}",
        "Priority": 0,
        "qtime": clock(job.submitted_s),
        "Rerunable": str(job.rerunable),
    }
    asked = {key: number_or_text(value) for key, value in job.asked.items()}
    nodect = len({node for node, _, _ in job.shares}) or sum(count for count, _ in job.chunks)
    found["Resource_List"] = {
        "ncpus": job.processors,
        "nodect": nodect,
        **{"place": "free", "select": f"{job.processors}:ncpus=1"},
        **asked,
        "walltime": length(job.walltime_s),
    }
    if job.start_s is not None:
        found["stime"] = clock(job.start_s)
    if job.ended and job.end_s is not None:
        found["obittime"] = clock(job.end_s)
    substate = {"Q": 10, "H": 20, "W": 30, "R": 42, "E": 50}.get(job.state, 92)
    if job.state == "F":
        substate = 91 if job.deleted else 93 if job.status else 92
    found["substate"] = substate
    found["Variable_List"] = {key: number_or_text(value) for key, value in job.variables.items()}
    if job.state == "Q":
        found["comment"] = "Not Running: Insufficient amount of resource: ncpus"
    elif job.start_s is not None:
        found["comment"] = f"Job run at {time.strftime('%a %b %d at %H:%M', time.gmtime(job.start_s))}"
    if job.status is not None:
        found["Exit_status"] = job.status
    found["Submit_arguments"] = job.arguments
    if job.indices:
        of = [each for each in world.jobs.values() if each.array == job.number]
        counts = {"Queued": len(job.remaining), "Running": sum(e.state == "R" for e in of)}
        counts |= {"Exiting": sum(e.state == "E" for e in of), "Expired": sum(e.ended for e in of)}
        found["array"] = "True"
        found["array_state_count"] = " ".join(f"{name}:{count}" for name, count in counts.items())
        found["array_indices_submitted"] = f"{job.indices[0]}-{job.indices[-1]}"
    if job.estimate is not None and world.scheduler == "easy":
        at, shares = job.estimate
        found["estimated"] = {"exec_vnode": placed(shares), "start_time": clock(at)}
    found |= {"project": "_pbs_project_default", "Submit_Host": head}
    return found


def openpbs_jobs(world: World, jobs: Iterable[Job], now: float) -> str:
    found: dict[str, Any] = {"timestamp": int(now), "pbs_version": VERSION["openpbs"], "pbs_server": world.head}
    listed = {job.id(world.head): openpbs_job(world, job, now) for job in jobs}
    if listed:
        found["Jobs"] = listed
    return as_json(found) + "\n"


def openpbs_rows(world: World, jobs: Iterable[Job], now: float) -> str:
    """`-F dsv`: a row a job, a backslash before each bar that stands in a value."""

    def fields(of: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for name, value in of.items():
            if name == "Variable_List":
                yield name, ",".join(f"{key}={word}" for key, word in value.items())
            elif isinstance(value, dict):
                yield from ((f"{name}.{key}", str(word)) for key, word in value.items())
            else:
                yield name, str(value)

    rows = ""
    for job in jobs:
        words = [
            f"{key}={value.replace(chr(92), chr(92) * 2).replace('|', chr(92) + '|')}"
            for key, value in fields(openpbs_job(world, job, now))
        ]
        rows += "|".join([f"Job Id: {job.id(world.head)}", *words]) + "\n\n"
    return rows


def openpbs_nodes(world: World, now: float) -> str:
    taken = world.taken()
    nodes = {}
    for name, state in world.nodes.items():
        shown = "job-busy" if state == "free" and taken[name] >= world.processors else state
        here = sorted({j.number for j in world.jobs.values() if j.runs and name in [n for n, _, _ in j.shares]})
        nodes[name] = {
            "Mom": name,
            "ntype": "PBS",
            "state": shown,
            "pcpus": world.processors,
            **({"jobs": [world.jobs[number].id(world.head) for number in here]} if here else {}),
            "resources_available": {
                "arch": "linux",
                "host": name,
                "mem": "24684084kb",
                "ncpus": world.processors,
                "vnode": name,
            },
            "resources_assigned": {"ncpus": taken[name]} if taken[name] else {},
            "resv_enable": "True",
            "sharing": "default_shared",
            "license": "l",
        }
    whole = {"timestamp": int(now), "pbs_version": VERSION["openpbs"], "pbs_server": world.head, "nodes": nodes}
    return as_json(whole) + "\n"


def torque_job(world: World, job: Job, now: float) -> str:
    head = world.head

    def tags(pairs: dict[str, str]) -> str:
        return "".join(f"<{key}>{escape(value)}</{key}>" for key, value in pairs.items())

    found: dict[str, str] = {"Job_Id": f"{job.number}.{head}", "Job_Name": job.name, "Job_Owner": f"{job.owner}@{head}"}
    text = tags(found)
    if job.start_s is not None and job.state != "Q":
        used = {"cput": "00:00:00", "walltime": length((job.end_s or now) - job.start_s)}
        text += f"<resources_used>{tags(used)}</resources_used>"
    more = {
        "job_state": job.state,
        "queue": job.queue,
        "server": head,
        "Checkpoint": "u",
        "ctime": str(int(job.submitted_s)),
    }
    if job.depend:
        more["depend"] = job.depend
    more["Error_Path"] = f"{head}:{job.error}"
    if job.shares:
        more["exec_host"] = exec_host(job, "torque")
    more |= {"Hold_Types": job.holds or "n", "Join_Path": job.join, "Keep_Files": "n", "Mail_Points": "a"}
    more |= {"mtime": str(int(job.changed_s)), "Output_Path": f"{head}:{job.output}", "Priority": "0"}
    more |= {"qtime": str(int(job.submitted_s)), "Rerunable": str(job.rerunable)}
    text += tags(more)
    asked = {"nodes": "1", **job.asked, "walltime": length(job.walltime_s)}
    asked["nodect"] = str(sum(count for count, _ in job.chunks))
    text += f"<Resource_List>{tags(asked)}</Resource_List>"
    after = {"Variable_List": ",".join(f"{key}={value}" for key, value in job.variables.items())}
    after |= {"euser": job.owner, "egroup": job.owner, "queue_type": "E"}
    if job.state == "Q":
        after["comment"] = "Not Running: Not enough of the right type of nodes are available"
    after |= {"etime": str(int(job.submitted_s))}
    if job.status is not None:
        after["exit_status"] = str(job.status)
    after["submit_args"] = job.arguments
    if job.start_s is not None:
        after["start_time"] = str(int(job.start_s))
    text += tags(after)
    if job.runs and job.start_s is not None:
        left = job.start_s + job.walltime_s - now
        text += f"<Walltime>{tags({'Remaining': str(int(left))})}</Walltime>"
    last = {"start_count": "1"} if job.start_s is not None else {}
    last["fault_tolerant"] = "False"
    if job.ended and job.end_s is not None:
        last["comp_time"] = str(int(job.end_s))
    last |= {"job_radix": "0", "submit_host": head, "init_work_dir": job.variables.get("PBS_O_WORKDIR", "")}
    return f"<Job>{text}{tags(last)}<request_version>1</request_version></Job>"


def torque_jobs(world: World, jobs: Iterable[Job], now: float) -> str:
    rows = "".join(torque_job(world, job, now) for job in jobs)
    return f'<?xml version="1.0"?>\n<Data>{rows}</Data>\n' if rows else ""


def torque_nodes(world: World) -> str:
    found = []
    for name, state in world.nodes.items():
        held = []
        for job in world.jobs.values():
            for node, first, count in job.shares if job.runs else ():
                if node == name:
                    slots = f"{first}-{first + count - 1}" if count > 1 else str(first)
                    held.append((count, f"{slots}/{job.number}.{world.head}"))
        full = sum(count for count, _ in held) >= world.processors
        shown = "job-exclusive" if state == "free" and full else state
        jobs = f"<jobs>{','.join(text for _, text in held)}</jobs>" if held else ""
        found.append(
            f"<Node><name>{name}</name><state>{shown}</state><power_state>Running</power_state>"
            f"<np>{world.processors}</np><ntype>cluster</ntype>{jobs}<status>opsys=linux,state=free</status>"
            "<mom_service_port>15002</mom_service_port><mom_manager_port>15003</mom_manager_port></Node>"
        )
    return f"<Data>{''.join(found)}</Data>\n"


def queues(world: World) -> str:
    text = ""
    for queue in world.queues.values():
        text += f"Queue: {queue.name}\n    queue_type = {'Route' if queue.destinations else 'Execution'}\n"
        there = (job for job in world.jobs.values() if job.queue == queue.name)
        text += f"    total_jobs = {sum(not job.ended for job in there)}\n"
        text += "    state_count = Transit:0 Queued:0 Held:0 Waiting:0 Running:0 Exiting:0 Begun\n\t:0 \n"
        if queue.destinations:
            text += f"    route_destinations = {','.join(queue.destinations)}\n"
        if queue.from_route_only:
            text += "    from_route_only = True\n"
        for name, most in queue.most.items():
            text += f"    resources_max.{name} = {length(most) if name == 'walltime' else int(most)}\n"
        text += f"    enabled = True\n    started = {queue.started}\n\n"
    return text


def server(world: World) -> str:
    keeps = "    job_history_enable = True\n" if world.dialect == "openpbs" else "    keep_completed = 300\n"
    return (
        f"Server: {world.head}\n    server_state = Active\n    scheduling = {world.scheduling}\n"
        f"    default_queue = {world.default_queue}\n"
        f"    query_other_jobs = True\n    resources_default.walltime = 01:00:00\n{keeps}"
        f"    pbs_version = {VERSION[world.dialect]}\n\n"
    )


def reservations(world: World) -> str:
    found = []
    for each in world.reservations:
        nodes = placed(each.nodes.items())
        found.append(
            f"Resv ID: {each.name}.{world.head}\nReserve_Name = NULL\nReserve_Owner = root@{world.head}\n"
            f"reserve_state = RESV_CONFIRMED\nreserve_substate = 2\nreserve_start = {clock(each.start_s)}\n"
            f"reserve_end = {clock(each.end_s)}\nreserve_duration = {int(each.end_s - each.start_s)}\n"
            f"queue = {each.name}\nresv_nodes = {nodes}\nserver = {world.head}\n\n"
        )
    return "".join(found)


def table(world: World, jobs: list[Job]) -> str:
    if not jobs:
        return ""
    if world.dialect == "openpbs":
        text = "Job id            Name             User              Time Use S Queue\n"
        text += "----------------  ---------------- ----------------  -------- - -----\n"
        row = "{:<17} {:<16} {:<17} {:>8} {} {:<15}\n"
    else:
        text = "Job ID                    Name             User            Time Use S Queue\n"
        text += "------------------------- ---------------- --------------- -------- - -----\n"
        row = "{:<26} {:<16} {:<15} {:>8} {} {:<15}\n"
    for job in jobs:
        used = "0" if job.start_s is None else "00:00:00"
        text += row.format(f"{job.number}.{world.head}", job.name, job.owner, used, job.state, job.queue)
    return text


def showbf(world: World, user: str, words: list[str], now: float, at: float) -> str:
    least = 0.0
    if "-d" in words:
        parts = [float(part) for part in words[words.index("-d") + 1].split(":")]
        for factor, part in zip((1, 60, 3600, 86400), reversed(parts), strict=False):
            least += factor * part
    rows = ""
    for count, span in world.rooms(now, least):
        until = "with no timelimit" if span == float("inf") else f"for {long_length(span):>13}"
        rows += f"{count:>3} procs available {until}\n"
    head = f"backfill window (user: '{user}' group: '{user}' partition: ALL) {without_year(at)}"
    return f"{head}\n\n{rows or 'no procs available' + chr(10)}\n\n\n"


def holds(world: World, now: float) -> list[tuple[str, str, str, str, int, float, float]]:
    """(node, type, name, state, processors, start from now, length) of all that is planned."""
    found = []
    for job in world.jobs.values():
        if job.runs and job.start_s is not None:
            for node, _, count in job.shares:
                found.append((node, "Job", str(job.number), "Running", count, job.start_s - now, job.walltime_s))
        elif job.estimate is not None:
            at, shares = job.estimate
            together: dict[str, int] = {}
            for node, count in shares:
                together[node] = together.get(node, 0) + count
            for node, count in together.items():
                found.append((node, "Job", str(job.number), "Idle", count, at - now, job.walltime_s))
    for each in world.reservations:
        for node, count in each.nodes.items():
            found.append((node, "User", each.name, "N/A", count, each.start_s - now, each.end_s - each.start_s))
    return found


def showres_by_node(world: World, now: float, at: float) -> str:
    text = f"reservations on {without_year(at)}\n\n            NodeName       Type      ReservationID   JobState "
    text += "Task       Start    Duration            StartTime\n\n"
    rows = holds(world, now)
    for node, kind, name, state, count, start, span in sorted(rows):
        tasks = 1 if kind == "User" else count  # a whole node a task, as setres makes them
        text += f"{node:>20} {kind:>10} {name:>18} {state:>10} {tasks:>4} {long_length(start):>11} "
        text += f"{long_length(span):>11}  {without_year(now + start)}\n"
    return text + f"{len(rows)} nodes reserved\n"


def spoiled(text: str, how: str) -> str:
    """An OpenPBS listing with what real ones were seen to have."""
    if how == "duplicate_keys":
        return re.sub(r'("job_state":\t"\w")', r'\1,\n\t\t\t"job_state":\t"X"', text)
    if how == "bad_escapes":
        return text.replace('"Submit_arguments":\t"', '"Submit_arguments":\t"\\q\\x \\u12 ')
    return json.dumps({"this": "is no listing"}) if how == "other" else "<html>Bad Gateway</html>\n"
