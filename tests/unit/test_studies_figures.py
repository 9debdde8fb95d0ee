"""The paper's figures as a reader of a print sees them: told apart without colour, nothing over anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ejbd.studies.paper import figures

pytestmark = pytest.mark.slow

LOGS = ("CTC", "SDSC", "BLUE", "KTH")
Drawn = dict[str, Any]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """The figures by their names, instead of files."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return draw_all(monkeypatch, tmp_path_factory.mktemp("figures"))


def draw_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Drawn:
    found: Drawn = {}

    def keep(figure: Any, folder: Path, name: str) -> list[Path]:
        figure.canvas.draw()
        found[name] = figure
        return [folder / name]

    monkeypatch.setattr(figures, "_save", keep)
    hours = {name: 3600.0 * (number + 1) for number, name in enumerate(LOGS)}
    figures.turnaround_bars(tmp_path, hours, {name: 0.8 * v for name, v in hours.items()}, dict.fromkeys(LOGS, 200.0))
    dice = np.random.default_rng(1)
    figures.speedup_cdf(tmp_path, {name: 10.0 ** dice.normal(0.4, 0.5, 300) for name in LOGS})
    lines = {name: [(x, -float(x * number)) for x in (2, 4, 8)] for number, name in enumerate(LOGS)}
    figures.sensitivity(tmp_path, {"O_max": lines, "lambda": lines})
    kinds = {"elastic": (80.0, 70.0, 6.0), "non-elastic": (40.0, 45.0, 2.0), "all": (50.0, 49.0, 3.0)}
    figures.slowdown_bars(tmp_path, dict.fromkeys(LOGS, kinds))
    sizes = np.arange(1.0, 60.0)
    figures.fairness(tmp_path, dict.fromkeys(LOGS, (sizes, 400 * sizes, 300 * sizes)))
    figures.loads(tmp_path, {name: [(0.4, 4000.0, 3900.0), (0.6, 5000.0, 4500.0)] for name in LOGS})
    figures.later_and_earlier(tmp_path, dict.fromkeys(LOGS, (dice.normal(0, 3e3, 300), dice.normal(-5e3, 6e3, 300))))
    return found


def test_lines_are_told_apart_without_colour(drawn: Drawn) -> None:
    for name in ("figure-7b-speedup-cdf", "figure-8-sensitivity", "figure-11-fairness", "figure-12-utilization"):
        for axes in drawn[name].axes:
            lines = [line for line in axes.lines if not line.get_label().startswith("_")]
            assert len(lines) >= 2
            dashes = {str(line._unscaled_dash_pattern) for line in lines}
            assert len(dashes) == len(lines), name
            marks = {line.get_marker() for line in lines}
            assert len(marks) == len(lines) or name == "figure-11-fairness", name


def test_who_is_later_and_who_is_earlier(drawn: Drawn) -> None:
    """By how much at least, on either side; each kind of jobs has its dashes and its marker."""
    for axes in drawn["figure-later"].axes:
        lines = [line for line in axes.lines if len(line.get_xdata()) > 2]
        assert len(lines) == 4
        assert len({(str(line._unscaled_dash_pattern), line.get_marker()) for line in lines}) == 2
        for line in lines:
            shares = list(line.get_ydata())
            assert shares == sorted(shares, reverse=True)
            assert shares[-1] < shares[0] <= 100
        assert sum(line.get_ydata()[0] for line in lines[:2]) == pytest.approx(100, abs=1)  # later, earlier, alike


def test_no_label_lies_on_a_bar_or_on_another_label(drawn: Drawn) -> None:
    for name in ("figure-7a-turnaround", "figure-10-slowdown"):
        for axes in drawn[name].axes:
            texts = [text.get_window_extent() for text in axes.texts]
            assert len(texts) >= 3
            things = [bar.get_window_extent() for bar in axes.patches] + [axes.title.get_window_extent()] * 2
            ticks = [label.get_window_extent() for label in axes.get_xticklabels()]
            assert not [text for text in texts for thing in things if text.overlaps(thing)], name
            for labels in (texts, ticks):
                pairs = [(one, other) for at, one in enumerate(labels) for other in labels[:at]]
                assert not [one for one, other in pairs if one.overlaps(other)], name


def test_runs_have_error_bars(drawn: Drawn) -> None:
    for name in ("figure-7a-turnaround", "figure-10-slowdown"):
        for axes in drawn[name].axes:
            assert [type(one).__name__ for one in axes.containers].count("ErrorbarContainer") == 1


def test_a_figure_comes_as_png_svg_and_pdf(tmp_path: Path) -> None:
    paths, slopes = figures.fairness(tmp_path, {"KTH": (np.arange(1.0, 9.0), np.arange(8.0), np.arange(8.0) / 2)})
    assert [path.suffix for path in paths] == [".png", ".svg", ".pdf"]
    assert [path.read_bytes()[:5] for path in paths] == [b"\x89PNG\r", b"<?xml", b"%PDF-"]
    assert slopes["KTH"] == pytest.approx((1.0, 0.5))
