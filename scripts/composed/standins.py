"""Local images with the names of public ones, for machines without a registry; only ever in a private engine.

What belongs to this machine (package sources, proxies, certificates, pip's index) is read from it and goes into these
images, so that the project's own Dockerfiles know nothing of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from composed.engine import Engine, install
from composed.shell import Skipped, Wrong, root_on_debian, run, say

DEBIAN, PYTHON, POSTGRES = "debian:bookworm-slim", "python:3.11-slim-bookworm", "postgres:15"
RELEASE = "bookworm"
PACKAGED = "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"

PYTHON_FILE = f"""
FROM {DEBIAN}
RUN apt-get update -qq && {PACKAGED} python3 python3-venv >/dev/null
COPY certificates /usr/local/share/ca-certificates
COPY pip.conf /etc/pip.conf
RUN update-ca-certificates
CMD ["python3"]
"""

POSTGRES_FILE = f"""
FROM {DEBIAN}
RUN apt-get update -qq && {PACKAGED} postgresql-15 >/dev/null
ENV PGDATA=/var/lib/postgresql/data PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/15/bin
RUN install -d -o postgres -g postgres -m 700 $PGDATA && install -d -o postgres -g postgres /var/run/postgresql
COPY entrypoint.sh /usr/local/bin/entrypoint.sh
STOPSIGNAL SIGINT
ENTRYPOINT ["sh", "/usr/local/bin/entrypoint.sh"]
CMD ["postgres"]
"""

# What the public image does, as far as docker-compose.yml asks for it.
POSTGRES_ENTRY = """#!/bin/sh
set -eu
if [ "$(id -u)" = 0 ]; then
    exec setpriv --reuid postgres --regid postgres --clear-groups sh "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf '%s\\n' "$POSTGRES_PASSWORD" >/tmp/password
    initdb -D "$PGDATA" -U "$POSTGRES_USER" -E UTF8 --pwfile=/tmp/password --auth-local=trust \\
        --auth-host=scram-sha-256 >/dev/null
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    pg_ctl -D "$PGDATA" -o "-c listen_addresses=" -w start >/dev/null
    createdb -U "$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl -D "$PGDATA" -m fast -w stop >/dev/null
fi
exec "$1" -c listen_addresses='*'
"""


def provide(engine: Engine) -> None:
    """The base images, pulled or stood in for. Raises Skipped where neither works."""
    wanted = [image for image in (DEBIAN, PYTHON, POSTGRES) if not engine.pulled(image)]
    if not wanted:
        return
    if not engine.private or not root_on_debian(RELEASE):
        raise Skipped(f"{wanted[0]} cannot be pulled, and is stood in for by root on Debian {RELEASE} only")
    say(f"no registry gives {', '.join(wanted)}: stood in for from this machine's own package sources")
    assert engine.folder is not None
    try:
        if DEBIAN in wanted:
            install("mmdebstrap")
            _debian(engine, engine.folder)
        files = {PYTHON: _python(engine.folder), POSTGRES: _postgres(engine.folder)}
        builds = [
            subprocess.Popen(
                [*engine.docker, "build", "--quiet", "--network=host", f"--tag={image}", str(files[image])],
                env={**os.environ, **engine.env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for image in wanted
            if image in files
        ]
        for build in builds:
            said = build.communicate(timeout=300)[1]
            if build.returncode:
                raise Wrong(said.strip().splitlines()[-1] if said.strip() else "a build failed")
    except (Wrong, subprocess.TimeoutExpired, OSError) as error:
        raise Skipped(f"the base images cannot be stood in for here: {str(error).splitlines()[-1]}") from None


def _debian(engine: Engine, folder: Path) -> None:
    form = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)|$(ORIGIN)"
    rows = run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"], 30).splitlines()
    sources = sorted({row.removesuffix("|Debian") for row in rows if row.endswith(" main|Debian")})
    if not sources:
        raise Skipped("apt has no source of Debian's own packages here")
    (folder / "sources.list").write_text("\n".join(sources) + "\n")
    proxies = [
        line for line in run(["apt-config", "dump"], 20).splitlines() if "Acquire::http" in line and "Proxy" in line
    ]
    scratch = folder / "scratch"
    scratch.mkdir()
    words = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates", "--dpkgopt=force-unsafe-io"]
    # The lists of packages stay: each image that is built on it would fetch and read them anew.
    words += ["--skip=cleanup/apt/lists"]
    words += [f"--aptopt={line.rstrip(';')}" for line in proxies]
    words += [RELEASE, str(folder / "debian.tar"), str(folder / "sources.list")]
    run(words, 300, env={"TMPDIR": str(scratch)})
    run([*engine.docker, "import", "--change", 'CMD ["bash"]', str(folder / "debian.tar"), DEBIAN], 120, env=engine.env)
    (folder / "debian.tar").unlink()


def _python(folder: Path) -> Path:
    where = folder / "python"
    (where / "certificates").mkdir(parents=True)
    (where / "Dockerfile").write_text(PYTHON_FILE)
    for one in Path("/usr/local/share/ca-certificates").rglob("*.crt"):
        shutil.copy(one, where / "certificates" / one.name)
    (where / "certificates" / "README").write_text("this machine's own certificates, if it has any\n")
    lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt"]
    told = json.loads(run([sys.executable, "-c", PIP_SETTINGS], 30, fails=True) or "{}")
    lines += [f"{name} = {value}" for name, value in sorted(told.items())]
    (where / "pip.conf").write_text("\n".join(lines) + "\n")
    return where


# Where pip goes from here: what is on this machine's own disk an image cannot see.
PIP_SETTINGS = """
import json, os, subprocess, sys
names = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
found = {}
words = [sys.executable, "-m", "pip", "config", "list"]
for line in subprocess.run(words, capture_output=True, text=True).stdout.splitlines():
    name, _, value = line.partition("=")
    name = name.rpartition(".")[2]
    if name in names:
        words = [one for one in value.strip("'\\"").split() if not one.startswith(("file:", "/"))]
        if words:
            found[name] = " ".join(words)
print(json.dumps(found))
"""


def _postgres(folder: Path) -> Path:
    where = folder / "postgres"
    where.mkdir()
    (where / "Dockerfile").write_text(POSTGRES_FILE)
    (where / "entrypoint.sh").write_text(POSTGRES_ENTRY)
    return where
