"""A daemon whose `listen` names no port is found at the same address again."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.fakes.api_server import ApiServer


def test_the_same_port_is_taken_again(tmp_path: Path) -> None:
    # A port that is free again may be another process's a moment later: then the next try shows it.
    for _ in range(5):
        addresses = []
        for _ in range(2):
            server = ApiServer(tmp_path)
            addresses.append(server.servers.url)
            server.close()
        if addresses[0] == addresses[1]:
            return
    pytest.fail("never the same port twice")


def test_a_port_that_another_has_by_then_keeps_no_daemon_from_starting(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        before = other.getsockname()[1]
        (tmp_path / "ports").write_text(json.dumps({"127.0.0.1:0": before}))
        server = ApiServer(tmp_path)
        after = int(server.servers.url.rpartition(":")[2])
        server.close()
    assert after != before


@pytest.mark.parametrize("text", ["", "[]", '{"127.0.0.1:0": "80"}', '{"127.0.0.1:0": -4}', "\x00"])
def test_a_file_that_makes_no_sense_keeps_no_daemon_from_starting(tmp_path: Path, text: str) -> None:
    (tmp_path / "ports").write_text(text)
    server = ApiServer(tmp_path)
    server.close()
    assert server.servers.url.rpartition(":")[2] in (tmp_path / "ports").read_text()
