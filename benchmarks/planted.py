"""Faults to be planted, one at a time, by `mutants.py`: what a suite that is worth its time catches.

A fault is a piece of one line that is replaced. It is found by its text, wherever in `ejbd` or `workers` it stands, so
that modules may move; a text that a later change rewords is told as not found, and has to be pointed at its new words.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """`old` stands exactly once in the sources. `tests`: files that should see it, below `tests/`, without `.py`."""

    name: str
    kind: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS = (
    Fault(
        "timeout-told-as-failure",
        "wrong state",
        "SubjobState.TIMEOUT: JobState.TIMEOUT,",
        "SubjobState.TIMEOUT: JobState.FAILED,",
        ("unit/test_manager_speculating", "unit/test_manager_outcomes"),
    ),
    Fault(
        "one-setback-too-many",
        "off by one",
        "if way_back or setbacks < limits.max_setbacks:",
        "if way_back or setbacks <= limits.max_setbacks:",
        ("unit/test_manager_outcomes", "unit/test_manager_setbacks"),
    ),
    Fault(
        "later-start-is-the-first",
        "wrong state",
        "if new is JobState.RUNNING and job.start_s is None:",
        "if new is JobState.RUNNING:",
        ("unit/test_store_transitions", "unit/test_manager_journey"),
    ),
    Fault(
        "hold-is-not-handed-on",
        "dropped intent",
        "_tell_first(ctx, world, IntentKind.HOLD)",
        "pass",
        ("unit/test_manager_journey",),
    ),
    Fault(
        "doubles-stay",
        "dropped act",
        "carry_out(ctx, doubles.look(ctx, self._view, self._roster.tags()))",
        "pass",
        ("unit/test_manager_journey",),
    ),
    Fault(
        "shorter-subjob-first",
        "wrong order",
        'key=lambda i: -lasts.get(i.subjob_id or "", 0.0)',
        'key=lambda i: lasts.get(i.subjob_id or "", 0.0)',
        ("unit/test_manager_auto",),
    ),
    Fault(
        "standby-before-room",
        "wrong order",
        "case((Subjob.role == SubjobRole.SUBJOB, 0), (Subjob.role == SubjobRole.STANDBY, 2), else_=1)",
        "case((Subjob.role == SubjobRole.SUBJOB, 2), (Subjob.role == SubjobRole.STANDBY, 0), else_=1)",
        ("unit/test_manager_flood", "unit/test_manager_standby"),
    ),
    Fault(
        "report-out-of-turn",
        "off by one",
        'if report["n"] != worker.reports_stored + 1:',
        'if report["n"] < worker.reports_stored + 1:',
        ("unit/test_manager_away", "unit/test_manager_journey"),
    ),
    Fault(
        "silence-is-not-told",
        "swallowed error",
        "await self._no_answer(error)",
        "pass",
        ("unit/test_manager_health",),
    ),
    Fault(
        "unknown-outcome-wakes-nothing",
        "lost wake",
        "wake(session, INTENTS_TOPIC)  # no task waits yet for the end of this pause",
        "pass  # no task waits yet for the end of this pause",
        ("unit/test_manager_looks",),
    ),
    Fault(
        "new-job-wakes-nothing",
        "lost wake",
        "INTENTS_TOPIC in topics or (NEW_JOBS_TOPIC in topics and not self._backlog)",
        "INTENTS_TOPIC in topics",
        ("unit/test_manager_looks",),
    ),
    Fault(
        "walltime-without-its-slack",
        "wrong walltime",
        "wanted = round_up(length_s + slack_s, quantum_s)",
        "wanted = round_up(length_s, quantum_s)",
        ("unit/test_core_room", "unit/test_manager_windows"),
    ),
    Fault(
        "crash-repeats-a-submission",
        "crash boundary",
        "move_intent(session, intent, IntentState.UNKNOWN, now, reason=why)",
        "move_intent(session, intent, IntentState.PENDING, now, setback=True)",
        ("unit/test_manager_journey", "unit/test_manager_away"),
    ),
    Fault(
        "commits-are-not-synced",
        "commit before act",
        '"foreign_keys=ON", "journal_mode=WAL", "synchronous=FULL"',
        '"foreign_keys=ON", "journal_mode=WAL", "synchronous=OFF"',
        ("unit/test_store_transitions",),
    ),
    Fault(
        "act-before-the-commit",
        "commit before act",
        "begun = await self.store.write(lambda s: self._begin_submit(s, intent.id, files), patient=True)",
        "begun = self.store.read_sync(lambda s: self._begin_submit(s, intent.id, files))",
        ("unit/test_manager_journey",),
    ),
    Fault(
        "leased-is-handed-out-again",
        "done twice",
        "if operation.state == OperationState.LEASED and (operation.lease_until_s or 0) > ctx.now:",
        "if operation.state == OperationState.LEASED and (operation.lease_until_s or 0) > ctx.now + 1e9:",
        ("unit/test_manager_journey", "unit/test_manager_setbacks"),
    ),
    Fault(
        "signal-again-and-again",
        "done twice",
        "if _was_told(world, home):",
        "if False:",
        ("unit/test_manager_end_signal",),
    ),
    Fault(
        "worker-answers-twice",
        "worker",
        "if self._results.get(seq) is not None:",
        "if False:",
        ("unit/test_worker_operations", "integration/test_worker_manager"),
    ),
    Fault(
        "worker-keeps-what-was-taken",
        "worker",
        'while self._reports and self._reports[0]["n"] <= n:',
        'while self._reports and self._reports[0]["n"] < n:',
        ("unit/test_worker_full_spool", "integration/test_worker_manager"),
    ),
    Fault(
        "read-token-writes",
        "API check",
        "if self.scope.covers(need):",
        "if True:",
        ("unit/test_api_neighbours", "unit/test_api_jobs", "unit/test_api_words"),
    ),
    Fault(
        "body-is-not-held-to-its-proof",
        "API check",
        "if hashlib.sha256(body).hexdigest() != claim.content:",
        "if False:",
        ("unit/test_api_worker",),
    ),
    Fault(
        "request-is-taken-twice",
        "API check",
        "elif claim.count <= last:",
        "elif claim.count < last:",
        ("unit/test_api_worker",),
    ),
    Fault(
        "key-with-another-body",
        "API check",
        "if body != request_hash:",
        "if False:",
        ("unit/test_manager_intake",),
    ),
    Fault(
        "start-around-dead-nodes-is-a-plan",
        "parser",
        'away = "UnavailableNodes" in reason',
        "away = False",
        ("unit/test_slurm_parsers",),
    ),
    Fault(
        "killed-command-is-final",
        "parser",
        "transient = bool(passes) or result.code < 0",
        "transient = bool(passes)",
        ("unit/test_slurm_parsers",),
    ),
    Fault(
        "afternotok-is-afterany",
        "rule",
        "When.AFTERNOTOK: lambda well: Met.NEVER if well else Met.YES,",
        "When.AFTERNOTOK: lambda well: Met.YES,",
        ("unit/test_manager_dependencies",),
    ),
    Fault(
        "room-in-vain-for-ever",
        "rule",
        "self.in_vain |= dict.fromkeys((to, *one.givers), now + in_vain_s)",
        "self.in_vain |= {}",
        ("unit/test_manager_giving",),
    ),
    Fault(
        "grace-of-a-start-is-tripled",
        "wrong time",
        "elif waited > grace_s:",
        "elif waited > 3 * grace_s:",
        ("unit/test_manager_journey",),
    ),
)
