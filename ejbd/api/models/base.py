"""What all bodies and answers have in common: strict fields, bounded texts."""

from __future__ import annotations

from pydantic import (
    BaseModel,
    ConfigDict,
)

PLAIN = r"^[^\x00-\x1f\x7f]*$"
NAME = r"^[^\x00-\x1f\x7f]+$"


class Api(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")
