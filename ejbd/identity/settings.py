"""How the daemon reaches `ejb-as`, and where users' spools are."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ejbd.identity.spools import checked_pattern


class RunsAs(StrEnum):
    """As which user things are done for a job."""

    SELF = "self"  # as the daemon's own: it runs no other user's jobs
    HELPER = "helper"  # as each job's own user, by ejb-as


class HelperSettings(BaseModel):
    """`[helper]`. Read where `identity = "helper"`."""

    model_config = ConfigDict(extra="forbid")

    socket: Path = Field(
        default=Path("/run/ejb-as.sock"), description="of root's socket unit, behind which `ejb-as` is started"
    )
    command: list[str] = Field(
        default_factory=list,
        description='what starts `ejb-as` where there is no such unit: `["sudo", "-n", "/usr/local/lib/ejb/ejb-as"]`',
    )
    spool: Annotated[str, AfterValidator(checked_pattern)] = Field(
        default="/scratch/%u/.ejb",
        description="each user's spool, shared by all nodes; the same words stand in root's `ejb-as.json`",
    )
    sessions: Annotated[int, Field(ge=1, le=64)] = Field(
        default=16, description="sessions with `ejb-as` that may be at work at once; twice as many are kept"
    )
