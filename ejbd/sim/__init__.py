"""The simulated world: the batch system and EJB are `ejbd.core`, unchanged; true run times are known here alone.

What is named here is for use from Python (docs/simulator.md). It is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ejbd.core.bundling.parameters import BundlingParameters
    from ejbd.core.decision import Decision, DecisionKind, SubjobRequest
    from ejbd.core.policy import Situation
    from ejbd.core.question import Question
    from ejbd.sim.choosing import Choice
    from ejbd.sim.door import Result, load, play
    from ejbd.sim.workload import Workload

_FROM = {
    "BundlingParameters": "ejbd.core.bundling.parameters",
    "Choice": "ejbd.sim.choosing",
    "Decision": "ejbd.core.decision",
    "DecisionKind": "ejbd.core.decision",
    "Question": "ejbd.core.question",
    "Result": "ejbd.sim.door",
    "Situation": "ejbd.core.policy",
    "SubjobRequest": "ejbd.core.decision",
    "Workload": "ejbd.sim.workload",
    "load": "ejbd.sim.door",
    "play": "ejbd.sim.door",
}
__all__ = [
    "BundlingParameters",
    "Choice",
    "Decision",
    "DecisionKind",
    "Question",
    "Result",
    "Situation",
    "SubjobRequest",
    "Workload",
    "load",
    "play",
]


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_FROM[name]), name)
