"""Which ranks are taken for MPI ranks that know nothing of each other: only those that surely are."""

from __future__ import annotations

import pytest

from workers.ejb_worker import mpiwatch

MPICH, OPEN_MPI, LIBC = b"7f00 /usr/lib/libmpich.so.12\n", b"7f00 /usr/lib/libmpi.so.40\n", b"7f00 /usr/lib/libc.so.6\n"


@pytest.mark.parametrize(
    ("maps", "environ", "ends", "told"),
    [
        (MPICH, b"PATH=/bin\0", False, mpiwatch.CLEARED),
        (MPICH, b"", False, mpiwatch.CLEARED),  # env -i
        (MPICH, b"PATH=/bin\0PMI_PORT=h:1\0", False, ""),
        (MPICH, b"", True, ""),  # between two looks, as every rank does once
        (LIBC, b"", False, ""),
        (OPEN_MPI, b"PMI_PORT=h:1\0", False, mpiwatch.OPEN_MPI),
        (OPEN_MPI, b"", True, ""),
    ],
)
def test_a_rank_that_is_ending_is_not_taken_for_one_that_is_alone(
    monkeypatch: pytest.MonkeyPatch, maps: bytes, environ: bytes, ends: bool, told: str
) -> None:
    ended = False

    def read(path: str) -> bytes:
        nonlocal ended
        if path.endswith("/environ"):
            ended = ends
            return environ
        return b"" if ended else maps

    monkeypatch.setattr(mpiwatch, "_members", lambda groups: [4711])
    monkeypatch.setattr(mpiwatch, "_read", read)
    assert mpiwatch.alone([4711]) == told
