"""A log that cannot be written costs its lines and nothing else."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import structlog

from ejbd.daemon import configure_logging
from ejbd.log.stream import Unbreakable


def test_a_full_disk_costs_the_lines_and_says_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full, (tmp_path / "log").open("w") as room:
        monkeypatch.setattr("sys.stderr", full)
        configure_logging("info")
        log = structlog.get_logger("test")
        log.error("lost")
        log.error("lost too")
        stream = log.bind()._logger._file
        assert isinstance(stream, Unbreakable)
        stream._stream = room
        log.error("there is room again")
        log.error("and still")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == "level=warning event=log-lines-lost lines=2"
    assert ["there is room again" in lines[1], "and still" in lines[2], len(lines)] == [True, True, 3]
    structlog.reset_defaults()


def test_a_name_forges_no_line_and_steers_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr("sys.stderr", log)
        configure_logging("info")
        structlog.get_logger("test").info("job", name="a\u202eb\nlevel=error event=forged\x1b[2J")
        structlog.reset_defaults()
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert r"a\u202eb\nlevel=error event=forged\x1b[2J" in line.replace("\\\\", "\\") and line.isprintable()


def test_a_reader_that_went_away_is_no_error() -> None:
    import os

    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        assert Unbreakable(gone).write("x\n") == 2


def test_a_stream_without_a_file_gets_the_text() -> None:
    text = io.StringIO()
    Unbreakable(text).write("line\n")
    assert text.getvalue() == "line\n"
