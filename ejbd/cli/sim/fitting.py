"""`ejb sim fit`: one evolving profile, fitted into the space that an occupation leaves."""

from __future__ import annotations

from typing import Annotated

import typer

from ejbd.cli.options import AsJson, output
from ejbd.cli.sim.options import figure


def fit(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Give the cluster so many nodes.")],
    profile: Annotated[
        str, typer.Option("--profile", metavar="S:N,...", help="Fit these steps: seconds, then nodes (or 4:10m).")
    ],
    resource: Annotated[
        str, typer.Option("--resource", metavar="S:N,...", help="Take these steps as occupied before.")
    ] = "",
    limit: Annotated[
        str, typer.Option("--limit", metavar="1|2|inf", help="Hold a step for so many times its duration at most.")
    ] = "1",
    compact: Annotated[bool, typer.Option("--compact", help="Begin late and hold least, for the same end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fit an evolving job into the free space of a cluster (Klein & Perez 2011): where it completes earliest."""
    from ejbd.studies.evolving.onefit import fit_words

    found = fit_words(nodes, resource, profile, limit, compact=compact)
    rows = [
        [str(number), figure(begin), figure(begin + duration), figure(count)]
        for number, (begin, (duration, count)) in enumerate(zip(found["starts"], found["profile"], strict=True), 1)
    ]
    out = output(as_json, False)

    def people() -> None:
        waste = f", {100 * found['waste']:.1f} % more than it computes" if found["waste"] else ""
        out.line(f"starts at {figure(found['start'])} s, ends at {figure(found['end'])} s{waste}")
        out.table(["STEP", "BEGIN", "END", "NODES"], rows, frozenset({1, 2, 3}))

    out.result(found, people)
