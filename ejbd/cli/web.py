"""`ejb web`: a link that signs a browser in."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import typer

from ejbd.cli.options import AsJson, Quiet, client, output


def web(
    context: typer.Context,
    scope: Annotated[
        str, typer.Option("--scope", help="Let the browser read, submit (and steer your own jobs), operate, or admin.")
    ] = "admin",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Print a link to the daemon's web page. It signs a browser in once, as you, and is good for two minutes."""
    out = output(as_json, quiet)
    found = client(context).request("POST", "/v1/web", body={"scope": scope}).json()

    def human() -> None:
        out.line(found["url"] or found["path"])
        port = urlsplit(found["url"] or "").port
        if port is not None:
            out.note(f"from another machine: ssh -L {port}:127.0.0.1:{port} HERE, and open the link there")

    out.result(found, human, quiet=found["url"] or found["path"])


def add_to(app: typer.Typer) -> None:
    app.command()(web)
