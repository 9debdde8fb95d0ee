"""Which rule stands behind which door (:mod:`ejbd.manager.effects.doors`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ejbd.manager import effects as fx
from ejbd.manager.effects import Effect, Effects
from ejbd.manager.rules.ends import concluding, deaths, ending
from ejbd.manager.rules.evolving import replacing, steps
from ejbd.manager.rules.learning import gaps, measuring, overheads, retrying, standby
from ejbd.manager.rules.linked import elements
from ejbd.manager.rules.looks import heard
from ejbd.manager.rules.placements import (
    alone,
    application,
    exits,
    generations,
    launching,
    lead,
    leaving,
    movability,
    setbacks,
    stopping,
)
from ejbd.manager.rules.planning import decide
from ejbd.manager.rules.queues import queuepause
from ejbd.manager.rules.requests import reports, requests
from ejbd.manager.rules.signals import endsignal, periodic, warnings

Rule = Callable[..., Effects[Any]]

OF_JOB: dict[type[Effect], Rule] = {
    fx.Conclude: concluding.conclude,
    fx.Evolve: steps.evolve,
    fx.ReplaceTail: replacing.replace_tail,
    fx.NoteDeaths: deaths.note_deaths,
    fx.NoteMemory: deaths.note_memory,
    fx.NoteRefusal: deaths.note_refusal,
    fx.FinishEnd: ending.finish,
    fx.StopRanks: ending.stop_ranks,
    fx.NoteCheckpoint: measuring.note_checkpoint,
    fx.NoteRestart: measuring.note_restart,
    fx.TakeSample: measuring.take_sample,
    fx.NoteGivenBack: overheads.note_given_back,
    fx.NoteStartUp: overheads.note_start_up,
    fx.SavesInTime: retrying.saves_in_time,
    fx.AdoptStandby: standby.adopt,
    fx.LetStandbyGo: standby.let_go,
    fx.PlanStandby: standby.plan,
    fx.AdoptAlone: alone.adopt,
    fx.BeginOnJ0: decide.begin_on_j0,
    fx.WorkerCame: heard.came,
    fx.AddLaunch: launching.add_launch,
    fx.Advance: application.advance,
    fx.BeginCheckpoint: stopping.begin_checkpoint,
    fx.RankStandsStill: exits.stands_still,
    fx.StopLaunch: exits.stop_launch,
    fx.DropCheckpoints: generations.drop_all,
    fx.HandOver: lead.hand_over,
    fx.GiveBack: leaving.gives_back,
    fx.LeavesBeyond: leaving.leaves_beyond,
    fx.LeavesInTime: leaving.leaves_in_time,
    fx.Overruns: leaving.overruns,
    fx.ObstaclePassed: movability.passed,
    fx.ObstacleSeen: movability.seen,
    fx.CameToNothing: setbacks.came_to_nothing,
    fx.EndByTime: setbacks.end_by_time,
    fx.EndIfTimeIsUp: setbacks.end_if_time_is_up,
    fx.EnsurePlaceholder: setbacks.ensure_placeholder,
    fx.GiveUp: setbacks.give_up,
    fx.GivesBackLate: setbacks.gives_back_late,
    fx.LeaveSubjob: setbacks.leave_subjob,
    fx.LostWorker: setbacks.lost_worker,
    fx.StartOver: setbacks.start_over,
    fx.TakeLeftBehind: reports.take_left_behind,
    fx.SignalsInTime: endsignal.signals_in_time,
    fx.ToRanks: endsignal.to_ranks,
    fx.ToScript: endsignal.to_script,
    fx.CheckpointInTime: periodic.checkpoint_in_time,
    fx.LeaveEnding: warnings.leave,
    fx.LeavesWhatEnds: warnings.leaves_what_ends,
    fx.TakeWarning: warnings.take_warning,
}
"""Rules about a job: its world, then the fields of the effect."""

OF_SITE: dict[type[Effect], Rule] = {
    fx.CancelJob: requests.cancel,
    fx.QueueSucceeded: queuepause.succeeded,
    fx.TryStart: queuepause.try_start,
}
"""Rules about the whole site: the context, then the fields."""

OF_ROW: dict[type[Effect], Rule] = {
    fx.GapBegun: gaps.begun,
    fx.Stalled: measuring.stalled,
    fx.DropElements: elements.drop,
}
"""Rules about the rows in their fields."""
