"""Whether checkpoint images are compressed: as it was asked for, or by what this node and its spool were measured at.

An image is written through `gzip -1` or as it is. Ranks compress at the same time, each on its processor; what they
write goes through the one spool. So compressing pays where the spool is slower than all of them together.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from typing import Any, Dict

SAMPLE_BYTES = 8 << 20
WRITTEN_BYTES = 32 << 20
PATIENCE_S = 2.0

_measured: Dict[int, "Speeds"] = {}


class Speeds:
    """Bytes per second: written to the spool, and taken in by one gzip; `ratio`: bytes out of gzip for each one in."""

    __slots__ = ("gzip", "ratio", "write")

    def __init__(self, write: float, gzip: float, ratio: float) -> None:
        self.write = write
        self.gzip = gzip
        self.ratio = ratio

    def pays(self, processors: int) -> bool:
        """Whether images are on the spool sooner if as many processors compress them."""
        return max(1.0 / (self.gzip * processors), self.ratio / self.write) < 1.0 / self.write


def asked(compress: bool) -> Dict[str, Any]:
    """The record of a choice that was not ours."""
    return {"on": compress, "asked": "on" if compress else "off"}


def chosen(folder: str, processors: int) -> Dict[str, Any]:
    """Measure (once for each file system in this process), choose, and put the figures down. Takes a second or two.

    Images are not compressed where the spool cannot be tried: `why` says what it answered.
    """
    try:
        device = os.stat(folder).st_dev
        if device not in _measured:
            _measured[device] = measure(folder)
    except OSError as error:
        return {"on": False, "asked": "auto", "why": "the spool's speed was not measured: %s" % error}
    speeds = _measured[device]
    return {
        "on": speeds.pays(processors),
        "asked": "auto",
        "write_mb_s": round(speeds.write / 1e6, 1),
        "gzip_mb_s": round(speeds.gzip / 1e6, 1),
        "ratio": round(speeds.ratio, 3),
        "processors": processors,
    }


def measure(folder: str) -> Speeds:
    """Try both here. The sample for gzip is the program that runs this: images are mostly programs and their data."""
    with open(sys.executable, "rb") as program:
        sample = program.read(SAMPLE_BYTES) or bytes(4096)
    began = time.monotonic()
    compressed = len(zlib.compress(sample, 1))
    gzip_s = max(1e-6, time.monotonic() - began)
    return Speeds(_write_speed(folder), len(sample) / gzip_s, compressed / len(sample))


def _write_speed(folder: str) -> float:
    path = os.path.join(folder, ".speed-%s-%d" % (os.uname().nodename, os.getpid()))
    block = os.urandom(1 << 20)  # a file system that compresses by itself gains nothing
    written = 0
    began = time.monotonic()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while written < WRITTEN_BYTES and time.monotonic() - began < PATIENCE_S:
            written += os.write(descriptor, block)
        os.fsync(descriptor)
        return written / max(1e-6, time.monotonic() - began)
    finally:
        os.close(descriptor)
        os.unlink(path)
