"""What MPI ranks are told of how many share a processor: of each rank by itself, and never less than is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.ejb_worker import degrees


def ranks(*processors: int, first: int = 0) -> list[dict[str, int]]:
    return [{"rank": first + number, "processor": processor} for number, processor in enumerate(processors)]


def test_each_rank_has_the_degree_of_its_processor() -> None:
    assert degrees.degrees_of(ranks(0, 1, 2, 0), 3) == {0: 2, 1: 1, 2: 1, 3: 2}


def test_where_cpus_are_fewer_than_processors_the_ranks_share_them() -> None:
    assert set(degrees.degrees_of(ranks(0, 1, 2, 3), 2).values()) == {2}
    assert set(degrees.degrees_of(ranks(*[0] * 300), 1).values()) == {degrees.MOST}


def test_workers_write_of_their_own_ranks_alone_into_one_file(tmp_path: Path) -> None:
    page = tmp_path / "degrees"
    degrees.write(str(page), {2: 4, 3: 4}, 4)
    degrees.write(str(page), {0: 1, 1: 2}, 4)
    assert page.read_bytes() == bytes([1, 2, 4, 4])
    degrees.write(str(page), {0: 3}, 2)  # a smaller launch of the same job: the page is mapped, and keeps its size
    assert page.read_bytes() == bytes([3, 2, 4, 4])
    assert page.stat().st_mode & 0o777 == 0o600


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "degrees").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        degrees.write(str(tmp_path / "degrees"), {0: 1}, 1)
