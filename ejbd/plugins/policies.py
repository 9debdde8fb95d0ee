"""Policies by name: EJB's own, those of installed packages, and those of modules that an administrator trusts.

A package offers a policy by an entry point in the group `ejbd.policies`. A module is named in the daemon's
configuration (`policies = ["our_site.policies"]`) and imported when the daemon starts. Both register themselves
(`ejbd.core.policy.register`); no other user can name anything to be imported. docs/policies.md has an example.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence

from ejbd.core.parameters import Declared, declared, per_job
from ejbd.core.policy import Policy, UnknownPolicy, policy_named, register, registered
from ejbd.plugins import entrypoints

__all__ = [
    "Declared",
    "declared_by",
    "import_policies",
    "job_words",
    "known_policies",
    "known_policy",
    "per_job",
    "queue_policies",
]

GROUP = "ejbd.policies"
BUNDLING = "bundling"


def known_policy(name: str) -> type[Policy]:
    """The policy of that name. Raises UnknownPolicy where there is none, in no installed package either."""
    if name not in registered():
        failed = _load_installed()
        if name in failed and name not in registered():
            raise UnknownPolicy(failed[name])
    return policy_named(name)


def known_policies() -> Mapping[str, type[Policy]]:
    """All policies, those of installed packages among them."""
    _load_installed()
    return registered()


def queue_policies() -> Mapping[str, type[Policy]]:
    """Those that a queue of a batch system may have."""
    return known_policies()


@functools.cache
def _load_installed() -> Mapping[str, str]:
    """Load what installed packages offer; what could not be loaded, by its name, and why."""
    return entrypoints.load(GROUP, "policy", _take)


def _take(_name: str, found: object) -> None:
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise TypeError("it is no Policy of ejbd.core.policy")
    register(found)


def broken_policies() -> Mapping[str, str]:
    """What could not be loaded, by its name, and why in a sentence."""
    return _load_installed()


def job_words() -> Mapping[str, Sequence[Declared]]:
    """What jobs may say of parameters, by key: each with the declarations of the policies that have it."""
    found: dict[str, list[Declared]] = {}
    for policy in known_policies().values():
        for one in declared(policy.declares).values():
            if one.about.per_job and one not in found.setdefault(one.key, []):
                found[one.key].append(one)
    return found


def import_policies(modules: Sequence[str]) -> None:
    """Import modules; their policies register themselves. Raises UnknownPolicy that names the one that fails."""
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise UnknownPolicy(f"the module {module} cannot be imported: {error}") from error


def declared_by(policy: str = BUNDLING) -> Mapping[str, Declared]:
    """The parameters of a policy by their names."""
    return declared(known_policy(policy).declares)
