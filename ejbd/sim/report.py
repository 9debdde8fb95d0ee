"""A simulation's figures as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ejbd.core.parameters import Parameters
from ejbd.sim.choosing import Choice
from ejbd.sim.fairness import max_bounded_slowdown, priority_inversions, shares
from ejbd.sim.metrics import Outcome, finite, idle_while_queued, makespan, means, paper_trim, utilization
from ejbd.sim.run import Policy, Ties
from ejbd.sim.workload import Workload

JOB_COLUMNS = ("job_id", "submit_s", "start_s", "end_s", "procs")
ELASTIC_COLUMNS = ("elastic", "subjobs", "migrations", "processor_seconds")


def run_report(
    workload: Workload,
    policy: Policy,
    outcome: Outcome,
    *,
    ties: Ties,
    parameters: Parameters,
    choice: Choice,
    trimmed: bool,
) -> dict[str, Any]:
    """The document that `ejb sim run --json` writes. With `trimmed` the means leave out what the paper's leave out."""
    jobs = workload.jobs
    kept = paper_trim(jobs, outcome) if trimmed else np.full(jobs.submit.size, True)
    given: dict[str, Any] = {
        "ties": ties.name.lower(),
        "procs": workload.processors,
        "trim": "paper" if trimmed else "none",
    }
    report: dict[str, Any] = {"trace": workload.name, "policy": policy.name.lower(), "parameters": given}
    if policy is Policy.EJB:
        given |= {k: v for k, v in parameters.to_json().items() if v is not None}
        given["min_procs"] = choice.min_processors
        if choice.share < 1.0:
            given |= {"elastic_share": choice.share, "seed": choice.seed}
        if choice.users is not None:
            given["elastic_users"] = list(choice.users)
        if choice.jobs is not None:
            given["elastic_jobs"] = len(choice.jobs)
    report |= means(jobs, outcome, kept).to_json()
    report |= {
        "max_bounded_slowdown": finite(max_bounded_slowdown(jobs, outcome, kept)),
        "priority_inversions": priority_inversions(jobs.submit[kept], outcome.start[kept]),
        "makespan_s": makespan(jobs, outcome),
        "utilization": utilization(jobs, outcome, workload.processors),
        "idle_procs_while_queued": idle_while_queued(outcome),
        "elapsed_s": outcome.elapsed_s,
        "kernels_s": outcome.kernels_s,
    }
    if policy is Policy.EJB:
        elastic = outcome.elastic != 0
        report["elastic"] = means(jobs, outcome, kept & elastic).to_json()
        report["non_elastic"] = means(jobs, outcome, kept & ~elastic).to_json()
        report["all"] = means(jobs, outcome, kept).to_json()
        chosen = kept & elastic
        several, moved = shares(outcome, chosen)
        report["elastic"] |= {
            "mean_subjobs": float(outcome.subjobs[chosen].mean()) if chosen.any() else 0.0,
            "mean_migrations": float(outcome.moves[chosen].mean()) if chosen.any() else 0.0,
            "several_subjobs_share": finite(several),
            "moved_share": finite(moved),
        }
    report["rows"] = rows_told(workload)
    return report


def rows_told(workload: Workload) -> dict[str, Any]:
    """How many rows of the log there were, how many are played, and what was changed about or left out of them."""
    told = [oddity.to_json() for oddity in workload.odd]
    return {"read": workload.read, "played": len(workload), "told": told}


def write_jobs_csv(out: TextIO, workload: Workload, outcome: Outcome, policy: Policy) -> None:
    """One line a job, in the order of submission."""
    jobs = workload.jobs
    columns: list[Any] = [jobs.id, jobs.submit, outcome.start, outcome.end, jobs.processors]
    names = list(JOB_COLUMNS)
    if policy is Policy.EJB:
        names += ELASTIC_COLUMNS
        columns += [outcome.elastic, outcome.subjobs, outcome.moves, outcome.used]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in zip(*(column.tolist() for column in columns), strict=True):
        writer.writerow([f"{value:.15g}" if isinstance(value, float) else value for value in row])


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; the first column reads to the left, figures to the right."""
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] + ["---:"] * (len(head) - 1)) + "|"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table as CSV."""
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
