"""The engine `snap` on the nodes: the application's own checkpoints, and its ranks are told that it is snap's."""

from __future__ import annotations

from .application import ApplicationEngine
from .base import Command, EpochContext


class SnapEngine(ApplicationEngine):  # type: ignore[misc]
    name = "snap"

    def launch(self, epoch: EpochContext, rank: int, argv: list[str], env: dict[str, str]) -> Command:
        command = super().launch(epoch, rank, argv, env)
        command.env["SNAP"] = "begun"
        return command

    def restart(self, epoch: EpochContext, rank: int, argv: list[str], env: dict[str, str]) -> Command:
        command = super().restart(epoch, rank, argv, env)
        command.env["SNAP"] = "restored"
        return command


ENGINE = SnapEngine()
