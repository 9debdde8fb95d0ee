"""What this site's Slurm writes otherwise than the versions that EJB was tried with: names that are missing, and words.

Parsers never guess: a row without what is needed is counted as unreadable, and a state that is not known takes no jobs.
Here it is said which name or word that is. `ejb doctor` asks once; polls do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ejbd.batch.slurm import states
from ejbd.core.view import BatchState

Check = tuple[str, bool, str]

_SETTINGS = """
    AccountingStorageEnforce AccountingStorageType ClusterName DefMemPerCPU DefMemPerNode DependencyParameters
    FairShareDampeningFactor KillWait MailDomain MailProg MaxMemPerCPU MaxMemPerNode MinJobAge PreemptType PriorityFlags
    PriorityType PriorityWeightAge PriorityWeightFairShare PriorityWeightFairshare PrivateData PropagatePrioProcess
    PropagateResourceLimits PropagateResourceLimitsExcept SLURM_VERSION SchedulerParameters SchedulerType SelectType
    SelectTypeParameters SlurmUser
"""
SETTINGS = frozenset(_SETTINGS.split())
"""Every setting that EJB reads of `scontrol show config`."""

_ONE_OF = (  # Slurm writes one of these
    {"DefMemPerCPU", "DefMemPerNode"},
    {"MaxMemPerCPU", "MaxMemPerNode"},
    {"PriorityWeightFairShare", "PriorityWeightFairshare"},
)

_OF_PRIORITIES = ("PriorityWeight", "PriorityFlags", "FairShare")  # written for priority/multifactor alone

_NODE_NEEDS = ("CPUAlloc", "CPUTot", "RealMemory", "AllocMem", "State", "ThreadsPerCore", "Partitions", "Gres")
_PARTITION_NEEDS = ("Default", "DefaultTime", "MaxTime", "OverSubscribe", "PriorityTier", "State")
_FIELD = re.compile(r"(?:^| )([A-Za-z][\w:/]*)=([^ ]*)")
_FREE_TEXT = re.compile(r" (?:Reason|Comment|Extra)=.*")
_WORDS = {  # of a partition
    "OverSubscribe": re.compile(r"NO|EXCLUSIVE|(?:YES|FORCE)(?::[0-9]+)?"),
    "Exclusive": re.compile(r"NO|NODE|USER|TOPO"),
}


@dataclass(frozen=True, slots=True)
class ShowJobStates:
    """The states of all jobs, in Slurm's words."""

    timeout_s: float = 20.0

    def argv(self) -> list[str]:
        return ["squeue", "--noheader", "--states=all", "--Format=State:|"]

    def parse(self, text: str) -> set[str]:
        return {word.strip() for word in text.replace("\n", "").split("|") if word.strip()}


def missing_settings(config: Mapping[str, str]) -> list[str]:
    """Names that `scontrol show config` does not have here."""
    groups = [*_ONE_OF, *({name} for name in SETTINGS - set().union(*_ONE_OF))]
    if not config.get("PriorityType", "priority/multifactor").endswith("multifactor"):
        groups = [names for names in groups if not any(name.startswith(_OF_PRIORITIES) for name in names)]
    return sorted("/".join(sorted(names)) for names in groups if not names & set(config))


def unknown_listing(text: str) -> list[str]:
    """What the lines of nodes and partitions lack, and what they say that is not known; each named once."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        kind = "node" if "NodeName=" in line[:24] else "partition" if "PartitionName=" in line[:30] else ""
        if not kind:
            continue
        fields = dict(_FIELD.findall(_FREE_TEXT.sub("", line)))
        needs = _NODE_NEEDS if kind == "node" else _PARTITION_NEEDS
        found |= dict.fromkeys(f"no {name} of a {kind}" for name in needs if name not in fields)
        if kind == "node":
            found |= dict.fromkeys(f"node state {word}" for word in states.unknown_node_words(fields.get("State", "")))
        else:
            known = ((name, fields.get(name, "NO"), pattern) for name, pattern in _WORDS.items())
            found |= {
                f"{name}={word} of a partition": None for name, word, pattern in known if not pattern.fullmatch(word)
            }
    return list(found)


def unknown_job_states(words: Iterable[str]) -> list[str]:
    """Words for a job's state that EJB does not know."""
    return [f"job state {word}" for word in sorted(words) if states.job_state(word) is BatchState.UNKNOWN]


def check_words(config: Mapping[str, str], listing: str, job_states: Iterable[str]) -> Check:
    """For `ejb doctor`."""
    odd = [f"no setting {name}" for name in missing_settings(config)]
    odd += unknown_listing(listing) + unknown_job_states(job_states)
    if odd:
        return "Slurm's words", False, f"not as in the versions tried: {', '.join(odd)}; what needs them is not used"
    return "Slurm's words", True, "every name and word that EJB reads is known"
