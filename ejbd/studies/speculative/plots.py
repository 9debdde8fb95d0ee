"""The experiments' results as tables and pictures, what the paper says beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Row = dict[str, Any]
_PAPER_1 = {
    "Classical HPC": "20.0",
    "TOptimal": "10.8, 13.4, 15.4, 17.1, 18.7, 20.0",
    "ATOptimal (zeta = 0.1)": "10.86, 13.91, 18.69, 20.0",
    "ATOptimal (zeta = 0.5)": "13.04, 20.0",
    "ATOptimal (zeta = 0.9)": "17.39, 20.0",
}


def _table(headings: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _figure(row: Row, name: str, digits: int) -> str:
    half = {"utilisation": "utilisation_half", "response_h": "response_half", "all_response_h": "all_response_half"}
    return f"{row[name]:.{digits}f} ± {row[half[name]]:.{digits}f}"


def _kept(row: Row) -> str:
    return "kept" if row["kept"] else "released"


def tables(found: dict[str, list[Row]], runs: int) -> str:
    """All tables as Markdown."""
    parts = [
        "# Speculative scheduling: the paper's experiments",
        f"Means of {runs} runs with 95 % intervals; response in hours. *Kept*: a reservation holds its processors to "
        "its end, as the paper reckons;\n*released*: they are free when the run ends, as on a real batch system.",
        "## Table 1",
        _table(
            ["algorithm", "ours (h)", "paper (h)", "expected cost (h)"],
            [
                [r["algorithm"], ", ".join(f"{t:.2f}" for t in r["sequence_h"]), _PAPER_1[r["algorithm"]],
                 f"{r['cost_h']:.4f}"]
                for r in found["table1"]
            ],
        ),
        "## Figures 2 and 3 (scenario 1)",
        "The paper: +10-11 % utilisation and -12-14 % response for Normal and Beta against the best of the HPC "
        "approaches; over 1.5x and 2.5x for Pareto\nand Exponential.",
        _table(
            ["law", "allocation", "reservations", "algorithm", "utilisation", "response"],
            [
                [r["law"], r["allocation"], _kept(r), r["algorithm"], _figure(r, "utilisation", 3),
                 _figure(r, "response_h", 1)]
                for r in found["figure2"]
            ],
        ),
        _gains(found["figure2"]),
        "## Figure 4",
        "The paper: best at about 10 runs.",
        _table(
            ["algorithm", "history", "utilisation", "response"],
            [
                [r["algorithm"], str(r["history"] or ""), _figure(r, "utilisation", 3), _figure(r, "response_h", 1)]
                for r in found["figure4"]
            ],
        ),
        "## Figure 5 (scenario 2)",
        "The paper: speculative backfill lifts HPC a lot, TOptimal a little.",
        _table(
            ["small", "reservations", "algorithm", "speculative backfill", "utilisation", "response"],
            [
                [f"{r['small_share']:.0%}", _kept(r), r["algorithm"], "yes" if r["speculative"] else "no",
                 _figure(r, "utilisation", 3), _figure(r, "response_h", 1)]
                for r in found["figure5"]
            ],
        ),
        "## Figures 6 and 7 (scenario 3)",
        "The paper: ATOptimal lies between TOptimal and HPC in response, with the highest utilisation.",
        _table(
            ["rate", "algorithm", "utilisation", "response, all", "response, large"],
            [
                [str(r["rate"]), r["algorithm"], _figure(r, "utilisation", 4), _figure(r, "all_response_h", 1),
                 _figure(r, "response_h", 1)]
                for r in found["figure6"]
            ],
        ),
        "## Figure 8 (scenario 4)",
        "The paper: ATOptimal about 20 % better than HPC in both, 25-30 % with speculative backfill.",
        _table(
            ["reservations", "algorithm", "speculative backfill", "utilisation", "response"],
            [
                [_kept(r), r["algorithm"], "yes" if r["speculative"] else "no", _figure(r, "utilisation", 3),
                 _figure(r, "response_h", 1)]
                for r in found["figure8"]
            ],
        ),
    ]  # fmt: skip
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _gains(rows: list[Row]) -> str:
    """TOptimal against each of the others."""
    at = {(r["law"], r["allocation"], r["kept"], r["algorithm"]): r for r in rows}
    lines = []
    for (law, allocation, kept, name), row in at.items():
        if name == "TOptimal" or not kept:
            continue
        best = at[law, allocation, kept, "TOptimal"]
        lines.append(
            [law, allocation, name, f"{best['utilisation'] / row['utilisation']:.2f}x",
             f"{row['response_h'] / best['response_h']:.2f}x"]
        )  # fmt: skip
    headings = ["law", "allocation", "TOptimal against (reservations kept)", "utilisation", "response shorter by"]
    return _table(headings, lines)


def draw(found: dict[str, list[Row]], out: Path) -> list[Path]:
    """Pictures of Figures 2 to 8."""
    import matplotlib

    matplotlib.use("Agg")
    paths = []
    kept = [row for row in found["figure2"] if row["kept"]]
    for name, allocations in (("figure2", ("Full", "Beta")), ("figure3", ("Full", "Half", "Truncnormal", "Beta"))):
        rows = [row for row in kept if row["allocation"] in allocations and "bound" not in row["algorithm"]]
        labels = list(dict.fromkeys(f"{row['law']}\n{row['allocation']}" for row in rows))
        bars = {way: [row for row in rows if row["algorithm"] == way] for way in ("HPC", "Neuroscience", "TOptimal")}
        paths.append(_bars(out / f"{name}.png", labels, bars))
    figure_4 = {row["algorithm"]: [] for row in found["figure4"]}  # type: dict[str, list[Row]]
    histories = [row["history"] for row in found["figure4"] if row["algorithm"] == "Neuroscience"]
    for row in found["figure4"]:
        figure_4[row["algorithm"]] += [row] * (1 if row["algorithm"] == "Neuroscience" else len(histories))
    paths.append(_lines(out / "figure4.png", histories, figure_4, "runs of the history", log=True))
    by_way: dict[str, list[Row]] = {}
    for row in found["figure5"]:
        if row["kept"]:
            by_way.setdefault(row["algorithm"] + (" + speculative" if row["speculative"] else ""), []).append(row)
    shares = list(dict.fromkeys(row["small_share"] for row in found["figure5"]))
    paths.append(_lines(out / "figure5.png", shares, by_way, "share of small jobs"))
    rates = list(dict.fromkeys(row["rate"] for row in found["figure6"]))
    by_way = {}
    for row in found["figure6"]:
        by_way.setdefault(row["algorithm"], []).append(row)
    paths.append(_lines(out / "figure6.png", rates, by_way, "rate of small work", response="all_response_h"))
    paths.append(_lines(out / "figure7.png", rates, by_way, "rate of small work"))
    bars = {}
    for row in found["figure8"]:
        bars.setdefault("kept" if row["kept"] else "released", []).append(row)
    labels = [r["algorithm"] + ("\n+ speculative" if r["speculative"] else "") for r in found["figure8"] if r["kept"]]
    paths.append(_bars(out / "figure8.png", labels, bars))
    return paths


def _bars(path: Path, labels: list[str], bars: dict[str, list[Row]]) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(12, 4))
    for axis, key, half, title in zip(
        axes, ("utilisation", "response_h"), ("utilisation_half", "response_half"), ("utilisation", "response (h)"),
        strict=True,
    ):  # fmt: skip
        wide = 0.8 / len(bars)
        for at, (name, rows) in enumerate(bars.items()):
            places = [place + at * wide for place in range(len(rows))]
            axis.bar(places, [r[key] for r in rows], wide, yerr=[r[half] for r in rows], label=name)
        axis.set_xticks([place + 0.4 - wide / 2 for place in range(len(labels))], labels, fontsize=7)
        axis.set_title(title)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def _lines(
    path: Path, x: list[float], ways: dict[str, list[Row]], label: str, *, response: str = "response_h",
    log: bool = False,
) -> Path:  # fmt: skip
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4))
    for axis, key, title in zip(axes, ("utilisation", response), ("utilisation", "response (h)"), strict=True):
        for name, rows in ways.items():
            axis.plot(x, [row[key] for row in rows], marker="o", label=name)
        axis.set_xlabel(label)
        axis.set_title(title)
        axis.legend(fontsize=8)
        if log:
            axis.set_xscale("log")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path
