"""The adapter of Slurm, by the configuration."""

from __future__ import annotations

import os

from ejbd.batch.slurm import SlurmBatch
from ejbd.batch.slurm.charging import Charge
from ejbd.config import Settings, SlurmSettings
from ejbd.identity.sessions import Helper
from ejbd.identity.settings import RunsAs


def make(settings: Settings, own: SlurmSettings) -> SlurmBatch:
    return SlurmBatch(
        conf=own.conf,
        timeout_s=own.timeout_s,
        submit_timeout_s=own.submit_timeout_s,
        path=f"{own.bin}:{os.environ.get('PATH', '/usr/bin:/bin')}" if own.bin else None,
        helper=Helper.made(settings.helper, ("slurm",)) if settings.identity is RunsAs.HELPER else None,
        charges=[Charge(name, one.subjob_qos, one.subjob_account) for name, one in settings.queues.items()],
    )
