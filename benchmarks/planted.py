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
        "INTENTS_TOPIC in topics or (NEW_JOBS_TOPIC in topics and not self.receiving.backlog)",
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
        "begun = await self.store.write(lambda s: self.asking.begin(s, intent.id, files), patient=True)",
        "begun = self.store.read_sync(lambda s: self.asking.begin(s, intent.id, files))",
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
    # What real daemons show in the nightly run alone: by default these have to be caught on the fake world.
    Fault(
        "no-queue-is-ever-paused",
        "rule",
        "FAILURES = 3  # in a row, until the queue is paused",
        "FAILURES = 3000  # in a row, until the queue is paused",
        ("unit/test_manager_queue_pause",),
    ),
    Fault(
        "suspension-uses-up-the-walltime",
        "wrong time",
        "walltime_s=subjob.walltime_s + away_s, usable_s=subjob.usable_s + away_s",
        "walltime_s=subjob.walltime_s, usable_s=subjob.usable_s",
        ("unit/test_manager_suspensions",),
    ),
    Fault(
        "drained-nodes-are-not-left",
        "dropped act",
        "yield note(subjob, leave_by_s=leave_by_s)",
        "yield note(subjob, leave_by_s=None)",
        ("unit/test_manager_drains",),
    ),
    Fault(
        "checkpoints-are-never-due",
        "wrong time",
        "if due_s is None or ctx.now < due_s or",
        "if due_s is None or ctx.now < 2 * due_s or",
        ("unit/test_manager_periodic",),
    ),
    Fault(
        "what-stands-by-is-not-let-begin",
        "dropped intent",
        "if submission != IntentState.PENDING:  # otherwise it will be submitted as what it is now",
        "if False:  # otherwise it will be submitted as what it is now",
        ("unit/test_manager_standby",),
    ),
    Fault(
        "warned-subjob-is-not-left",
        "dropped act",
        "yield from leave(world, [subjob], WARNED)",
        "yield from ()",
        ("unit/test_manager_warnings",),
    ),
    Fault(
        "what-a-job-gives-frees-no-limit",
        "rule",
        "if limit.most - limit.used + freed < needs(",
        "if limit.most - limit.used < needs(",
        ("unit/test_manager_limits",),
    ),
    Fault(
        "increment-is-never-asked-for",
        "dropped act",
        "if (near or guaranteed) and now < course.ends(block):",
        "if False:",
        ("unit/test_manager_evolving",),
    ),
    Fault(
        "refused-resize-is-asked-at-once",
        "wrong time",
        "elif last and world.ctx.now < max(o.done_s or o.created_s for o in last) + AGAIN_S:",
        "elif False:",
        ("unit/test_manager_resizing",),
    ),
    Fault(
        "forgotten-cancellation-is-not-asked-again",
        "dropped intent",
        "if 0 <= ctx.now - asked[0].done_s < pause_s:",
        "if True:",
        ("unit/test_manager_uncancelled",),
    ),
    Fault(
        "workers-that-speak-are-not-heard",
        "rule",
        "ctx.settings.limits.missing_grace_s and not _speaks(world, subjob):",
        "ctx.settings.limits.missing_grace_s:",
        ("unit/test_manager_away", "unit/test_manager_journey", "unit/test_manager_outside"),
    ),
    Fault(
        "link-of-a-chain-that-timed-out-is-the-last",
        "rule",
        "if job.setbacks >= limits.max_setbacks or not _may_go_on(world):",
        "if True:",
        ("unit/test_manager_continuing",),
    ),
    Fault(
        "another-jobs-id-is-ours",
        "rule",
        "return seen.mark == subjob.tag",
        "return True",
        ("unit/test_manager_journey", "unit/test_manager_outside"),
    ),
    Fault(
        "clock-that-is-set-is-a-jump-of-nothing",
        "wrong time",
        "return by_s if abs(by_s) >= JUMP_S else 0.0",
        "return 0.0",
        ("unit/test_manager_clock",),
    ),
    Fault(
        "days-of-a-walltime-are-hours",
        "parser",
        "zip((1.0, 60.0, 3600.0, 86400.0), reversed(parts), strict=False)",
        "zip((1.0, 60.0, 3600.0, 3600.0), reversed(parts), strict=False)",
        ("unit/test_pbs_parsers",),
    ),
    Fault(
        "answer-without-proof-counts",
        "worker",
        "if not same(shown, of_answer(secret, proof, status, offered, content)):",
        "if False:",
        ("integration/test_worker_hostile",),
    ),
    Fault(
        "worker-of-another-subjob-is-answered",
        "rule",
        "if worker.subjob_id != subjob.id:",
        "if False:",
        ("unit/test_manager_hearing",),
    ),
    Fault(
        "worker-that-waits-asks-again-and-again",
        "worker",
        "if not at_once and wait_s <= 0:",
        "if not at_once:",
        ("unit/test_manager_hearing",),
    ),
    Fault(
        "ranks-of-open-mpi-on-each-others-nodes",
        "wrong place",
        "hosts = [names[seat.worker] for seat in sorted(seats)]",
        "hosts = [names[seat.worker] for seat in sorted(seats, reverse=True)]",
        ("unit/test_manager_mpirun",),
    ),
    # Of what is shown by the default run's share of a family of integration tests, the nightly run has the rest.
    Fault(
        "checkpoint-image-that-others-read",
        "worker",
        "os.chmod(path, 0o600)",
        "os.chmod(path, 0o644)",
        ("integration/test_worker_dmtcp",),
    ),
    Fault(
        "submission-to-pbs-without-an-answer-is-refused",
        "done twice",
        'raise SubmitOutcomeUnknown(f"PBS may have taken the job or not: {error}"',
        'raise BatchError(f"PBS may have taken the job or not: {error}"',
        ("integration/test_pbs_faults",),
    ),
    Fault(
        "qalter-that-hangs-has-done-nothing",
        "rule",
        "if not any(row.view.walltime_s == max(1, round(walltime_s)) for row in found):",
        "if True:",
        ("integration/test_pbs_faults",),
    ),
    Fault(
        "signal-is-an-exit-code-of-its-own",
        "wrong state",
        "self._code = code if code >= 0 else 128 - code",
        "self._code = code if code >= 0 else -code",
        ("integration/test_local_cluster", "integration/test_batch_contract"),
    ),
    Fault(
        "table-that-is-not-taken-back",
        "migration",
        'op.drop_table("other_priorities")',
        "pass",
        ("integration/test_store_migrations",),
    ),
)
