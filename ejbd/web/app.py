"""Puts the page into the application of REST."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from ejbd.web import acts, cluster, jobs, news, savings, signin, site
from ejbd.web.door import PageDoor
from ejbd.web.shared import Shared

STATIC = Path(__file__).parent / "static"


def install(app: FastAPI) -> None:
    """Serve `/` and what is below `/web/`. REST's addresses, and its OpenAPI document, stay as they are."""
    app.state.pictures = Shared[cluster.Drawn]()
    app.state.lists = Shared[jobs.Listed]()
    app.state.sites = Shared[site.Site]()
    app.state.crowds = {}
    for module in (cluster, jobs, site, savings, signin, acts, news):
        app.include_router(module.router, include_in_schema=False)
    app.mount("/web/static", StaticFiles(directory=STATIC))
    app.add_middleware(PageDoor)
