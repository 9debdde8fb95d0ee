"""Elastic job bundling (Liu & Weissman, SC'15, section 3): when to start, grow and move an elastic job."""

from __future__ import annotations

from ejbd.core.decision import Candidate, Decision, DecisionKind, SubjobRequest
from ejbd.core.plan import BundlingParameters, ElasticState, HeldSubjob, Shrink

__all__ = [
    "BundlingParameters",
    "Candidate",
    "Decision",
    "DecisionKind",
    "ElasticState",
    "HeldSubjob",
    "Shrink",
    "SubjobRequest",
]
