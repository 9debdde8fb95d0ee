"""A site's package as a site would write it: a policy is in `site_policy.py`; here are an engine and a batch system.

Nothing of EJB knows it. Tests put it on Python's path, with the entry points of an installed package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ejbd.batch.local import LocalBatch
from ejbd.config import Settings
from ejbd.plugins.batches import BatchKind, BatchTraits
from ejbd.plugins.engines import EngineKind

SNAP = EngineKind(name="snap", worker=Path(__file__).with_name("snap.py"))


class ShedSettings(BaseModel):
    """The table `[batch_settings]`."""

    model_config = ConfigDict(extra="forbid")

    sheds: Annotated[int, Field(ge=1, le=64, description="machines")] = 2


class ShedBatch(LocalBatch):
    """The site's own nodes, as an embedded cluster of their own beside the state folder."""

    name = "shed"


def make(settings: Settings, own: ShedSettings) -> ShedBatch:
    return ShedBatch(settings.state_dir / "sheds", nodes=own.sheds, processors_per_node=2)


def traits(_: ShedSettings) -> BatchTraits:
    return BatchTraits(one_host=True, command_s=10.0, submit_s=10.0, withholds=True)


SHED = BatchKind(name="shed", make=make, traits=traits, settings=ShedSettings)
TAKEN = EngineKind(name="dmtcp", worker=Path(__file__).with_name("snap.py"))
NO_ENGINE = object()
