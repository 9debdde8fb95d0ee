"""The MariaDB behind a cluster's accounting."""

from __future__ import annotations

import subprocess
from pathlib import Path

from clusters.configuration import user_name
from clusters.errors import ClusterError
from clusters.programs import environment, last_words, program, run, start, until


def start_database(directory: Path, alive: dict[str, int]) -> None:
    data, sock = directory / "db", directory / "run" / "db.sock"
    me = user_name()
    if not (data / "mysql").exists():
        with open(directory / "log" / "start.log", "ab") as log:
            argv = [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={data}",
                "--auth-root-authentication-method=socket",
            ]
            argv += [f"--auth-root-socket-user={me}", "--skip-test-db", f"--user={me}"]
            done = subprocess.run(
                [program(argv[0]), *argv[1:]],
                env=environment(directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=120,
                check=False,
            )
        if done.returncode:
            raise ClusterError(f"mariadb-install-db failed; {last_words(directory, 'start')}")
    if "mariadbd" not in alive:
        start(
            directory,
            *(
                "mariadbd",
                "--no-defaults",
                f"--datadir={data}",
                f"--socket={sock}",
                "--skip-networking",
                f"--user={me}",
            ),
            *(f"--log-error={directory}/log/mariadbd.log", f"--pid-file={directory}/run/mariadbd.pid"),
            *("--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=0"),
            wait=False,
        )
    ping = ("mariadb-admin", "--no-defaults", f"--socket={sock}", "ping")
    until("MariaDB did not answer", lambda: "alive" in run(directory, *ping), 30, directory, "mariadbd")
