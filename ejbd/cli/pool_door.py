"""How the daemon of a pool is reached from other hosts: https with a certificate of its own, and a token in a file.

Both lie in the pool's folder, which every node sees and this user alone may read.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ejbd.client.client import Client
from ejbd.client.pools import CERTIFICATE, TOKEN
from ejbd.errors import Code, EjbError
from ejbd.files.paths import PORTS, TLS_PORT

MAKING_S = 60.0
TOKEN_S = 30 * 86400.0
_KEY = "key.pem"


def certificate(folder: Path, host: str, address: str) -> bool:
    """Make a key and a certificate for this host in `folder`; false where it has no openssl. Raises EjbError."""
    openssl = shutil.which("openssl")
    if openssl is None:
        return False
    names = f"subjectAltName=IP:{address},DNS:{host}"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(folder / _KEY), "-out", str(folder / CERTIFICATE)]
    words = [openssl, "req", "-x509", *curve, *files, "-days", "400", "-subj", "/CN=ejb-pool", "-addext", names]
    done = subprocess.run(words, capture_output=True, text=True, timeout=MAKING_S, check=False, umask=0o077)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise EjbError(Code.INTERNAL, f"openssl makes no certificate: {said[-1] if said else done.returncode}")
    return True


def settings(folder: Path, address: str) -> str:
    """The daemon's, for what `certificate` has made."""
    files = f'certificate = "{folder / CERTIFICATE}"\nkey = "{folder / _KEY}"\n'
    return f'\n[tls]\nlisten = "{address}:0"\n{files}'


def open_door(folder: Path, address: str, daemon: Client) -> str | None:
    """Write a token down for this user; where the daemon answers by https, None where it does not."""
    if not (folder / CERTIFICATE).exists():
        return None
    ports = json.loads((folder / "state" / PORTS).read_text())
    body: dict[str, Any] = {"label": "pool", "expires_in_s": TOKEN_S}
    token = daemon.request("POST", "/v1/tokens", body=body).json()["token"]
    new = folder / f"{TOKEN}.new"
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    new.rename(folder / TOKEN)
    return f"https://{address}:{ports[f'{TLS_PORT}{address}:0']}"
