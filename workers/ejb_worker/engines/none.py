"""No checkpoints: a job that has to move starts over."""

from __future__ import annotations

from typing import Dict, List

from .base import Checkpoint, Command, Engine, EngineError, EpochContext


class NoneEngine(Engine):
    name = "none"

    def probe(self) -> str:
        return ""

    def prepare(self, epoch: EpochContext) -> None:
        if epoch.restart_dir is not None:
            raise EngineError("engine none cannot restart from a checkpoint")

    def launch(self, epoch: EpochContext, rank: int, argv: List[str], env: Dict[str, str]) -> Command:
        return Command(argv, env)

    def restart(self, epoch: EpochContext, rank: int, argv: List[str], env: Dict[str, str]) -> Command:
        raise EngineError("engine none cannot restart from a checkpoint")

    def checkpoint(self, epoch: EpochContext) -> Checkpoint:
        raise EngineError("engine none cannot checkpoint")

    def finish(self, epoch: EpochContext) -> None:
        return
