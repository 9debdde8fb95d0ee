"""A daemon whose `listen` names no port is found at the same address again."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.fakes.api_server import ApiServer


def test_the_same_port_is_taken_again(tmp_path: Path) -> None:
    addresses = []
    for _ in range(2):
        server = ApiServer(tmp_path)
        addresses.append(server.servers.url)
        server.close()
    assert addresses[0] == addresses[1]


def test_a_port_that_another_has_by_then_keeps_no_daemon_from_starting(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    before = server.servers.url
    server.close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", int(before.rpartition(":")[2])))
        other.listen()
        server = ApiServer(tmp_path)
        after = server.servers.url
        server.close()
    assert after != before


@pytest.mark.parametrize("text", ["", "[]", '{"127.0.0.1:0": "80"}', '{"127.0.0.1:0": -4}', "\x00"])
def test_a_file_that_makes_no_sense_keeps_no_daemon_from_starting(tmp_path: Path, text: str) -> None:
    (tmp_path / "ports").write_text(text)
    server = ApiServer(tmp_path)
    server.close()
    assert server.servers.url.rpartition(":")[2] in (tmp_path / "ports").read_text()
