"""Bounds of the daemon: what users may ask for, how long things are waited for, what is kept."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
)

from ejbd.config.queues import _of_others


class Limits(BaseModel):
    """Safety knobs: how much EJB may ask of the batch system, and how long it waits before it believes the worst."""

    model_config = ConfigDict(extra="forbid")

    start_grace_s: Annotated[
        float, Field(gt=0, description="a subjob that does not start within this is cancelled")
    ] = 60.0
    give_back_grace_s: Annotated[
        float, Field(gt=0, description="an evolving job that has not left a width by then ends")
    ] = 60.0
    missing_grace_s: Annotated[
        float,
        Field(
            gt=0,
            description="a batch job that is neither listed nor accounted for this long is lost",
        ),
    ] = 60.0
    worker_silence_s: Annotated[
        float,
        Field(
            gt=0,
            description="a worker not heard of for this long is lost, and its subjob cancelled",
        ),
    ] = 90.0
    alone_after_s: Annotated[
        float, Field(ge=0, description="J0's workers wait so long for a daemon, then begin. 0: never")
    ] = 60.0
    settle_s: Annotated[
        float,
        Field(
            gt=0,
            description="pause between the two look-ups that prove that a submission never arrived",
        ),
    ] = 10.0
    checkpoint_timeout_s: Annotated[
        float,
        Field(
            gt=0,
            description="a checkpoint that takes longer, and four times longer than usual, has failed once what it "
            "writes grows no more",
        ),
    ] = 120.0
    warned_grace_s: Annotated[
        float, Field(gt=0, description="from a warning (TERM) to the end, where nothing says more")
    ] = 20.0
    launch_timeout_s: Annotated[
        float,
        Field(
            gt=0,
            description="ranks that are not up, or workers that have not come, by then are given up; a restart has "
            "longer where it needs longer (docs/faults.md)",
        ),
    ] = 60.0
    lease_s: Annotated[
        float, Field(gt=0, description="an operation that is not answered by then is handed out again")
    ] = 15.0
    heartbeat_s: Annotated[float, Field(gt=0, description="how often workers call")] = 10.0
    check_timeout_s: Annotated[
        float, Field(gt=0, description="asking the batch system about a job to be passed through")
    ] = 5.0
    check_wait_s: Annotated[
        float,
        Field(
            gt=0,
            description="what waits longer for its turn to be shown to the batch system is taken unchecked",
        ),
    ] = 0.5
    early_looks: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="polls in a row that do not wait for `poll_s`, since a worker has reported that it leaves its "
            "subjob. In the long run there is one for every two of the timer's. 0: none",
        ),
    ] = 4
    submit_concurrency: Annotated[int, Field(ge=1, le=64, description="submissions to the batch system at once")] = 4
    submits_per_s: Annotated[
        float,
        Field(
            gt=0,
            le=1000,
            description="submissions to the batch system a second, at most (a burst of one second's worth is let "
            "through)",
        ),
    ] = 20.0
    max_setbacks: Annotated[int, Field(ge=0, description="failed placements after which a job is given up")] = 5
    max_array_size: Annotated[
        int, Field(ge=1, le=4_000_001, description="indices of an elastic array are below it")
    ] = 10_001
    array_jobs: Annotated[
        int,
        Field(
            ge=1,
            le=2000,
            description="elements of one elastic array that are jobs, and so have a J0 in the queue, at a time",
        ),
    ] = 200
    max_body_bytes: Annotated[int, Field(ge=1024, description="larger requests are refused unread")] = 8 * 1024 * 1024
    user_requests_per_s: Annotated[
        float, Field(gt=0, le=100_000, description="of one user; ten seconds' worth at once")
    ] = 50.0
    user_submissions_per_s: Annotated[
        float,
        Field(gt=0, le=100_000, description="of one user; four seconds' worth at once, and what is beyond waits"),
    ] = 25.0
    user_connections: Annotated[
        int,
        Field(
            ge=1,
            le=2048,
            description="connections of one user, to each of socket and TCP; the oldest idle one goes for a new one",
        ),
    ] = 128
    user_streams: Annotated[
        int,
        Field(
            ge=1,
            le=2048,
            description="streams of events and output that one user has open: each is looked at whenever anything "
            "happens",
        ),
    ] = 32
    user_waiting_jobs: Annotated[
        int,
        Field(
            ge=1,
            le=1_000_000,
            description="jobs of one user that have not started: "
            "a loop that submits without end costs only its own user",
        ),
    ] = 5000
    user_script_bytes: Annotated[
        int,
        Field(
            ge=1024,
            description="the longest script, as Slurm's own `max_script_size`",
        ),
    ] = 4 * 1024 * 1024
    user_tokens: Annotated[int, Field(ge=1, le=10_000, description="tokens of one user that are still good")] = 100
    event_retention_days: Annotated[
        float, Field(gt=0, description="older finished jobs and their events are deleted")
    ] = 90.0
    spool_retention_days: Annotated[
        float, Field(gt=0, description="of a job that has ended; sooner than its events")
    ] = 3.0
    others_retention_days: Annotated[
        float,
        Field(
            ge=0,
            description="of batch jobs that are not EJB's, noted for what they gained or lost by elastic ones "
            "(docs/web.md): 4 at least. 0: they are not noted",
        ),
        AfterValidator(_of_others),
    ] = 7.0
