"""What a workflow held over time, as SVG: a bar an attempt, as high as it was wide."""

from __future__ import annotations

import html
from typing import Any

WIDTH, HEIGHT, MARGIN, ROW = 900, 260, 60, 18
COLOURS = {"completed": "#4878a8", "lingered": "#c8a24b", "": "#6a9f6a"}
FAILED = "#b85450"


def chart(found: dict[str, Any]) -> str:
    """An SVG document of a report (`GET /v1/workflows/{id}/report`)."""
    begin_s = found["submit_s"]
    length_s = max(1.0, found["turnaround_s"])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    wide, high = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN
    for one in found["attempts"]:
        if one["start_s"] is None:
            continue
        left = MARGIN + wide * (one["start_s"] - begin_s) / length_s
        length = max(1.0, wide * (one["run_s"] or 0.0) / length_s)
        tall = max(1.0, high * one["tasks"] / found["widest"])
        colour = COLOURS.get(one["outcome"], FAILED)
        told = f"{', '.join(one['stages'])}: {one['tasks']} processors, {one['core_h']['held']:.4f} core-hours held"
        lines.append(
            f'<rect x="{left:.1f}" y="{HEIGHT - MARGIN - tall:.1f}" width="{length:.1f}" height="{tall:.1f}"'
            f' fill="{colour}" fill-opacity="0.8"><title>{html.escape(told)}</title></rect>'
        )
        name = html.escape(f"{one['stage']} {one['tasks']}")
        lines.append(f'<text x="{left:.1f}" y="{HEIGHT - MARGIN - tall - 4:.1f}">{name}</text>')
    bottom = HEIGHT - MARGIN
    saved = "" if found["saved_percent"] is None else f", {found['saved_percent']:.1f} % fewer than one allocation"
    title = f"{found['name']}: {found['core_h']['held']:.4f} core-hours held{saved}"
    lines += [
        f'<line x1="{MARGIN}" y1="{bottom}" x2="{WIDTH - MARGIN}" y2="{bottom}" stroke="black"/>',
        f'<text x="{MARGIN}" y="{bottom + ROW}">0</text>',
        f'<text x="{WIDTH - MARGIN}" y="{bottom + ROW}" text-anchor="end">{length_s:.0f} s</text>',
        f'<text x="{MARGIN}" y="{ROW}">{html.escape(title)}</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
