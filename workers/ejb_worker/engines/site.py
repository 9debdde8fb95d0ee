"""Engines of the site that are in this worker: the daemon writes the modules' names here when it packs the zip."""

from __future__ import annotations

MODULES = ()
