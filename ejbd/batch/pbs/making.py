"""The adapter of PBS, by the configuration."""

from __future__ import annotations

import os

from ejbd.batch.pbs import PbsBatch
from ejbd.batch.pbs.states import Dialect
from ejbd.config import PbsSettings, Settings
from ejbd.identity.sessions import Helper
from ejbd.identity.settings import RunsAs

HELPED = ("openpbs", "torque")
"""What `batch` in `ejb-as.json` may be."""


def make(settings: Settings, own: PbsSettings) -> PbsBatch:
    return PbsBatch(
        dialect=None if own.dialect == "auto" else Dialect(own.dialect),
        server=own.server,
        use_maui={"on": True, "off": False}.get(own.maui),
        whole_nodes=own.whole_nodes,
        longest_name=own.longest_name,
        timeout_s=own.timeout_s,
        submit_timeout_s=own.submit_timeout_s,
        change_timeout_s=own.change_timeout_s,
        path=f"{own.bin}:{os.environ.get('PATH', '/usr/bin:/bin')}" if own.bin else None,
        helper=Helper.made(settings.helper, HELPED) if settings.identity is RunsAs.HELPER else None,
    )
