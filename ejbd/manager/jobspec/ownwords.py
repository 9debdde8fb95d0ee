"""What a job says of its queue's policy: `#EJB name=value` and `--setting name=value`, by the policies' declarations.

When a text is read, the queue of the job is not known yet. What any policy declares is taken, and :func:`check_words`
asks the queue's own when the job is admitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ejbd.config import QueueSettings
from ejbd.core.parameters import JOB_WORDS, declared, per_job, said_by_job
from ejbd.errors import Code, EjbError
from ejbd.manager.jobspec.findings import Given, invalid, shortened
from ejbd.manager.jobspec.spec import WITH_FIELDS
from ejbd.plugins.policies import job_words, known_policies, known_policy

FIELD_KEYS = tuple(per_job()[name].key for name in WITH_FIELDS)
_MOST = 1024  # characters of a value


def known_keys() -> tuple[str, ...]:
    """All that `#EJB` knows here, installed policies' own words last."""
    own = (key for key in job_words() if key not in FIELD_KEYS)
    return (*JOB_WORDS, *FIELD_KEYS, *own)


def key_of(word: str) -> str | None:
    """The key that a word means, with `_` or with `-`; None where none is declared."""
    for key in (word, word.replace("_", "-"), word.removesuffix("_s").replace("_", "-")):
        if key in JOB_WORDS or key in FIELD_KEYS or key in job_words():
            return key
    return None


def given_setting(word: str, value: str | None, where: str) -> Given:
    """A setting of `#EJB` or `--setting`. Raises EjbError (INVALID) for what is not known."""
    key = key_of(word)
    if key is None:
        raise invalid(where, f"#EJB has no setting {shortened(word)}", "it has " + ", ".join(known_keys()))
    return Given(f"ejb:{key}", value, where)


def own_words(settings: Mapping[str, Given]) -> dict[str, str]:
    """The policies' own among the settings, as texts. Raises EjbError (INVALID) for a value that no policy takes."""
    found = {}
    for key, declarations in job_words().items():
        given = settings.get(f"ejb:{key}")
        if key in FIELD_KEYS or given is None:
            continue
        text = given.value or ""
        if len(text) > _MOST or not text.isprintable():
            raise invalid(given.where, f"{key} cannot be {shortened(text)}", "a short word without control characters")
        wanted = []
        for one in declarations:
            try:
                one.in_a_job(text)
            except ValueError as error:
                wanted.append(str(error))
        if len(wanted) == len(declarations):
            raise invalid(given.where, f"{key} must be {' or '.join(dict.fromkeys(wanted))}, not {shortened(text)}")
        found[key] = text
    return found


def words_of(spec: Mapping[str, Any]) -> dict[str, str]:
    """What a stored job says of parameters, by key, in words for people."""
    plain = {per_job()[name].key: spec.get(name) for name in WITH_FIELDS}
    return {key: f"{value:g}" for key, value in plain.items() if value is not None} | dict(spec.get("settings") or {})


def told(spec: Mapping[str, Any], policy: str) -> str:
    """Which of the job's own words the policy goes by now, and which it does not; "" where there are none."""
    words, of = words_of(spec), known_policy(policy).declares
    heard = {declared(of)[name].key for name in said_by_job(of, words)}
    followed = " ".join(f"{key}={text}" for key, text in words.items() if key in heard)
    unheard = ", ".join(key for key in words if key not in heard)
    parts = (followed and f"by its own word: {followed}", unheard and f"policy {policy} does not go by its {unheard}")
    return "; ".join(filter(None, parts))


def check_words(words: Mapping[str, str], queue: str, settings: QueueSettings) -> None:
    """Raise EjbError (INVALID) where an elastic job says what the policy of its queue does not know, or not so."""
    of = {one.key: one for one in declared(known_policy(settings.policy).declares).values() if one.about.per_job}
    for key, text in words.items():
        if key not in of:
            having = [name for name, policy in known_policies().items() if _has(policy.declares, key)]
            raise EjbError(
                Code.INVALID,
                f"the policy of queue {queue}, {settings.policy}, has no setting {key} for a job",
                where=f"setting {key}",
                hint=f"leave it out, or choose a queue of policy {' or '.join(having)}" if having else "leave it out",
            )
        try:
            of[key].in_a_job(text)
        except ValueError as error:
            told = f"{key} must be {error} in queue {queue}, not {shortened(text)}"
            raise EjbError(Code.INVALID, told, where=f"setting {key}") from None


def _has(of: type, key: str) -> bool:
    return any(one.key == key and one.about.per_job for one in declared(of).values())
