"""`ejb doctor --build-plugin`: compile the DMTCP plugin on site, prove it, and put it where the workers look."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from importlib import resources
from pathlib import Path
from typing import Any

from ejbd.doctor import mpicheck
from ejbd.doctor.compiling import compile_c, writable_folder
from ejbd.errors import Code, EjbError

PLUGIN = "libejbmove.so"
PROGRESS = "libejbprogress.so"
CALLS = "libejbcalls.so"
PROBE_S = 200
SOURCE = "https://github.com/dmtcp/dmtcp"


def build_progress(spool: Path) -> Path:
    """Compile the library that over-subscribed MPI ranks load; it needs no DMTCP. Raises EjbError where it cannot."""
    folder = writable_folder(spool / "dmtcp")
    _compile("progress.c", folder / PROGRESS, [])
    return folder / PROGRESS


def build_calls(spool: Path) -> Path:
    """Compile the library that every program under DMTCP loads, where it is not there by these sources. Raises EjbError
    where that cannot be."""
    folder = writable_folder(spool / "dmtcp")
    library, sources = folder / CALLS, sources_sum()
    if not library.exists() or f"sources {sources}".encode() not in library.read_bytes():
        _compile("calls.c", library, [f'-DEJB_SOURCES="{sources}"'])
    return library


def build(spool: Path) -> dict[str, Any]:
    """Compile and prove; the record that lies beside the plugin (`trusted`, `why`). Raises EjbError where it cannot."""
    launch = shutil.which("dmtcp_launch")
    if launch is None:
        raise EjbError(
            Code.UNSUPPORTED,
            "dmtcp_launch is not on PATH, so there is no plugin to build",
            hint=f"DMTCP comes from {SOURCE}; jobs that are not moved by it need none",
        )
    bin = Path(launch).resolve().parent
    prefix = bin.parent
    version = _version(launch)
    library = prefix / "lib" / "dmtcp" / "libdmtcp.so"
    if not library.is_file():
        raise EjbError(
            Code.UNSUPPORTED, "DMTCP is not whole: this is missing", where=str(library), hint="make install in DMTCP"
        )
    folder = writable_folder(spool / "dmtcp")
    plugin = folder / PLUGIN
    record_file = folder / f"{PLUGIN}.json"
    record_file.unlink(missing_ok=True)  # not trusted while it is being replaced
    calls = build_calls(spool)
    _compile("move.c", plugin, [f"-I{prefix / 'include'}", f'-DEJB_DMTCP_VERSION="{version}"'])
    with tempfile.TemporaryDirectory(prefix="ejb-rank-") as name:
        rank, no_rank = mpicheck.build_moved_rank(Path(name))
        ok, why, mpi = prove(bin, f"{calls}:{plugin}", rank)
    record = {
        "version": version,
        "library": f"{zlib.crc32(library.read_bytes()):08x}",
        "machine": os.uname().machine,
        "sources": sources_sum(),
        "trusted": ok,
        "why": why,
        "mpi": mpi or f"MPI ranks were not tried: {no_rank or 'the mesh failed before'}",
        "built_s": round(time.time(), 1),
    }
    temporary = record_file.with_suffix(".new")
    temporary.write_text(json.dumps(record))
    temporary.chmod(0o600)
    temporary.replace(record_file)
    return record


def sources_sum() -> str:
    """A checksum of the C sources: a plugin that was built from others can be bettered by building it again."""
    with resources.as_file(resources.files("ejbd._workers") / "native") as native:
        return f"{zlib.crc32(b''.join(path.read_bytes() for path in sorted(native.glob('*.[ch]')))):08x}"


def _version(launch: str) -> str:
    try:
        said = subprocess.run([launch, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = "it does not answer" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        raise EjbError(
            Code.UNSUPPORTED, f"{launch} does not run: {why}", hint=f"build DMTCP anew from {SOURCE}"
        ) from None
    found = re.search(r"\b(\d+(?:\.\d+)+\S*)", said.stdout + said.stderr)
    if found is None:
        raise EjbError(Code.UNSUPPORTED, f"{launch} does not tell its version", hint=f"build DMTCP anew from {SOURCE}")
    return found.group(1)


def _compile(source: str, target: Path, options: list[str]) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise EjbError(
            Code.UNSUPPORTED,
            f"there is no C compiler on PATH to build {target.name}",
            hint="Debian: apt-get install gcc",
        )
    with resources.as_file(resources.files("ejbd._workers") / "native") as native:
        temporary = target.with_suffix(".new")
        shared = ["-shared", "-fPIC", "-O2", "-pthread", *options]
        compile_c(compiler, native / source, temporary, shared, ["-ldl"])
    temporary.chmod(0o700)
    temporary.replace(target)


def prove(bin: Path, plugins: str, rank: Path | None) -> tuple[bool, str, str]:
    """Whether restarts over two addresses work with these plugins, why not, and what became of two MPI ranks.

    `rank` is their program (see :func:`ejbd.doctor.mpicheck.build_moved_rank`). Takes about ten seconds.
    """
    words = ["unshare", "--net", "--uts", "--fork", "--kill-child"]
    if os.getuid() != 0:
        words += ["--user", "--map-root-user"]
    mpi = None
    if rank is not None:
        mpi = {
            "program": str(rank),
            "workers": str(resources.files("ejbd._workers")),
            "env": mpicheck.rank_environment(),
        }
    words += [sys.executable, "-m", "ejbd.doctor.moveprobe", str(bin), plugins, json.dumps(mpi)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except FileNotFoundError:
        return False, "unshare (util-linux) is not there, so it could not be proved", ""
    except subprocess.TimeoutExpired:
        return False, f"the probe was not over after {PROBE_S} s", ""
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = done.stderr.strip().splitlines()
        why = said[-1] if said else "the probe said nothing"
        if why.startswith("unshare:"):
            why += "; this user may not make network namespaces: run ejb doctor --build-plugin as root once"
        return False, f"it could not be proved: {why}", ""
    return bool(result["ok"]), str(result["why"]), str(result["mpi"])
