"""Jobs that wait for other jobs of EJB, as --dependency says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from ejbd.core.view import BatchJobView, BatchState
from ejbd.errors import Code, EjbError
from ejbd.manager.jobspec import JobRequest, Overrides, Reading, read
from ejbd.manager.jobspec.depends import Depends
from ejbd.manager.rules.linked import dependencies
from ejbd.manager.telling import explaining
from ejbd.store.models import Job
from ejbd.store.states import JobState
from ejbd.store.store import Store
from ejbd.store.transitions import move_job
from tests.fakes.live import LiveWorld

pytestmark = pytest.mark.sql


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def reading(live: LiveWorld, *options: str, name: str = "heat", elastic: str | None = None) -> Reading:
    given = Overrides(ntasks="2", time="10", engine="application", name=name, options=options, elastic=elastic)
    return read(JobRequest(cwd=str(live.folder), command=("./heat",), overrides=given))


async def submit(live: LiveWorld, *options: str, name: str = "heat", elastic: str | None = None) -> str:
    id = (await live.manager.submit(reading(live, *options, name=name, elastic=elastic), "ada", None, "body")).id
    await live.act()
    return id


async def moves_to(live: LiveWorld, id: str, *states: JobState) -> None:
    def move(session: Session) -> None:
        job = session.query(Job).where(Job.id == id).one()
        for state in states:
            move_job(session, job, state, live.clock.now)

    await live.store.write(move)
    await live.act()


RUNS = JobState.RUNNING
WELL, BADLY, GONE = (RUNS, JobState.COMPLETED), (RUNS, JobState.FAILED), (JobState.CANCELLED,)
GOES, STAYS, NEVER = "waiting", "received", "DependencyNeverSatisfied"


@pytest.mark.parametrize(
    ("when", "steps", "becomes"),
    [
        ("after", (RUNS,), GOES),
        ("after", GONE, GOES),
        ("afterany", (RUNS,), STAYS),
        ("afterany", WELL, GOES),
        ("afterany", BADLY, GOES),
        ("afterok", WELL, GOES),
        ("afterok", BADLY, NEVER),
        ("afterok", GONE, NEVER),
        ("afternotok", BADLY, GOES),
        ("afternotok", WELL, NEVER),
        ("aftercorr", WELL, GOES),
    ],
)
async def test_each_condition_as_slurm_has_it(
    live: LiveWorld, when: str, steps: tuple[JobState, ...], becomes: str
) -> None:
    await live.poll()
    first = await submit(live)
    second = await submit(live, f"--dependency={when}:{first}")
    assert live.job(second).state == "received" and live.subjobs(second) == []
    assert live.job(second).reason == f"Dependency: {when}:{first}"
    await moves_to(live, first, *steps)
    job = live.job(second)
    if becomes == NEVER:
        assert job.state == "received" and job.reason.startswith(f"{NEVER}: {when}:{first}")
        said = live.store.read_sync(lambda s: explaining.explain(live.manager.world.context(s), second, ""))["now"]
        assert "until it is cancelled" in said
        assert ("job.dependency", False) in [(kind, data.get("met")) for kind, data in live.events(second)]
        await live.manager.cancel(second, "ada")
        assert live.job(second).state == "cancelled"
    else:
        assert job.state == becomes


async def test_what_can_never_be_met_ends_the_job_where_it_says_so(live: LiveWorld) -> None:
    await live.poll()
    first = await submit(live)
    second = await submit(live, f"--dependency=afterok:{first}", "--kill-on-invalid-dep=yes")
    await moves_to(live, first, *BADLY)
    assert live.job(second).state == "cancelled" and NEVER in live.job(second).reason


@pytest.mark.parametrize(("said", "becomes"), [("yes", "cancelled"), ("no", "received"), (None, "cancelled")])
async def test_a_site_that_ends_such_jobs_does_unless_the_job_says_otherwise(
    live: LiveWorld, said: str | None, becomes: str
) -> None:
    await live.poll()
    first = await submit(live)
    words = () if said is None else (f"--kill-on-invalid-dep={said}",)
    second = await submit(live, f"--dependency=afterok:{first}", *words)
    assert live.manager.world.view is not None
    live.manager.world.view = replace(live.manager.world.view, kills_unmet=True)
    await moves_to(live, first, *BADLY)
    assert live.job(second).state == becomes and NEVER in live.job(second).reason


@pytest.fixture
def waits(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> LiveWorld:
    """The batch system of this world waits for jobs itself, as Slurm does."""
    kind = live.settings.batch_kind
    able = replace(kind, traits=lambda own: replace(kind.traits(own), dependencies=True))
    monkeypatch.setattr(type(live.settings), "batch_kind", property(lambda _: able))
    return live


async def test_what_the_batch_system_is_to_end_it_is_told(waits: LiveWorld) -> None:
    live = waits
    await live.poll()
    job = await submit(live, "--dependency=afterok:987654", "--kill-on-invalid-dep=yes")
    assert live.job(job).spec["wants"]["first"] == ["--dependency=afterok:987654", "--kill-on-invalid-dep=yes"]


async def test_a_number_that_slurm_would_cut_to_32_bits_is_no_job_to_depend_on(live: LiveWorld) -> None:
    """A real `sbatch -d afterok:4294967436` waits for job 140."""
    await live.poll()
    with pytest.raises(EjbError, match="there is no job '4294967436' to depend on"):
        await submit(live, "--dependency=afterok:4294967436")


async def test_elements_that_no_array_has_are_refused(live: LiveWorld) -> None:
    await live.poll()
    array, job = await submit(live, "--array=1-7:3%2"), await submit(live)
    await submit(live, f"--dependency=afterok:{array}_4")
    for text in (f"{array}_5", f"{array}_8", f"{job}_1"):
        with pytest.raises(EjbError) as refused:
            await submit(live, f"--dependency=afterok:{text}")
        assert refused.value.code is Code.INVALID
    assert f"there is no job '{job}_1'" in refused.value.message


async def test_all_of_several_or_any_of_them(live: LiveWorld) -> None:
    await live.poll()
    first, second = await submit(live), await submit(live)
    both = await submit(live, f"--dependency=afterok:{first}:{second}")
    either = await submit(live, f"--dependency=afterok:{first}?afterok:{second}")
    await moves_to(live, first, *BADLY)
    assert NEVER in live.job(both).reason and live.job(either).state == "received"
    await moves_to(live, second, *WELL)
    assert live.job(either).state == "waiting"


async def test_a_singleton_waits_for_the_earlier_ones_of_its_name(live: LiveWorld) -> None:
    await live.poll()
    first = await submit(live, "--dependency=singleton")
    second = await submit(live, "--dependency=singleton")
    third = await submit(live, "--dependency=singleton")
    other = await submit(live, "--dependency=singleton", name="other")
    assert [live.job(id).state for id in (first, second, third, other)] == [GOES, STAYS, STAYS, GOES]
    await moves_to(live, first, *BADLY)
    assert [live.job(id).state for id in (second, third)] == [GOES, STAYS]
    await live.manager.cancel(second, "ada")
    await live.act()
    assert live.job(third).state == GOES


@pytest.mark.parametrize(("user", "state"), [("ada", STAYS), ("bob", GOES)])
async def test_a_singleton_waits_for_no_other_users_job_of_its_name(live: LiveWorld, user: str, state: str) -> None:
    """Where many users are served no batch job is another user's than the daemon's own."""
    live.batch.others.append(BatchJobView("7", "heat", user, "batch", BatchState.RUNNING, 1, 600.0))
    await live.poll()
    assert live.job(await submit(live, "--dependency=singleton")).state == state


async def test_where_the_batch_system_waits_for_nothing_all_numbers_are_ejbs(live: LiveWorld) -> None:
    """A passed-through job's, too. A number of none is passed over, as Slurm passes over what it does not know."""
    await live.poll()
    first = await submit(live, elastic="off")
    number = live.subjobs(first)[0].batch_id
    second = await submit(live, f"--dependency=afterok:{number},afterok:987654", elastic="off")
    assert live.job(second).reason == f"Dependency: afterok:{first}"
    assert live.job(second).spec["asked"]["options"][-1] == "--dependency=" and not live.subjobs(second)
    at_once = await submit(live, f"--dependency=afterok:{number}?afterok:987654", elastic="off")
    assert live.subjobs(at_once) and not live.job(at_once).reason
    await moves_to(live, first, *WELL)
    assert live.subjobs(second)


async def test_numbers_are_the_batch_systems_unless_a_script_knows_itself_by_them(waits: LiveWorld) -> None:
    live = waits
    await live.poll()
    first = await submit(live)
    number = live.subjobs(first)[0].batch_id
    known = await submit(live, f"--dependency=afterany:{number}")
    assert live.job(known).reason == f"Dependency: afterany:{first}"
    strange = await submit(live, f"--dependency=afterany:987654:{first}")
    assert live.job(strange).spec["wants"]["first"] == ["--dependency=afterany:987654"]
    assert live.job(strange).reason == f"Dependency: afterany:{first}"
    for text, said in ((f"afterok:{first}?afterok:987654", "put a comma"), ("afterok:abcdef01", "whole id")):
        with pytest.raises(EjbError) as refused:
            await submit(live, f"--dependency={text}")
        assert said in refused.value.hint


async def test_a_passed_through_job_waits_too_and_its_line_is_taken_back(live: LiveWorld) -> None:
    await live.poll()
    first = await submit(live)
    second = await submit(live, f"--dependency=afterok:{first}", elastic="off")
    assert live.job(second).spec["asked"]["options"][-1] == "--dependency="
    assert live.subjobs(second) == []
    await moves_to(live, first, *WELL)
    assert live.job(second).state == "waiting" and len(live.subjobs(second)) == 1


async def test_each_element_of_an_array_waits_for_its_own(live: LiveWorld) -> None:
    await live.poll()
    first = await submit(live, "--array=0-2")
    second = await submit(live, "--array=0-2", f"--dependency=aftercorr:{first}")
    await live.act()
    assert {live.job(f"{second}_{index}").state for index in range(3)} == {"received"}
    await moves_to(live, f"{first}_1", *WELL)
    await live.manager.cancel(f"{first}_2", "ada")
    await live.act()
    assert [live.job(f"{second}_{index}").state for index in range(3)] == ["received", "waiting", "received"]
    assert NEVER in live.job(f"{second}_2").reason


async def test_an_element_without_a_counterpart_waits_for_the_whole_array(live: LiveWorld) -> None:
    await live.poll()
    first = await submit(live, "--array=0")
    second = await submit(live, "--array=0-1", f"--dependency=aftercorr:{first}")
    await live.act()
    assert {live.job(f"{second}_{index}").state for index in range(2)} == {"received"}
    await moves_to(live, f"{first}_0", *WELL)
    await live.act()
    assert {live.job(f"{second}_{index}").state for index in range(2)} == {"waiting"}


async def test_the_whole_of_an_array_is_waited_for(live: LiveWorld) -> None:
    await live.poll()
    first = await submit(live, "--array=0-1%1")
    second = await submit(live, f"--dependency=afterok:{first}")
    one = await submit(live, f"--dependency=afterany:{first}_1")
    await moves_to(live, f"{first}_0", *WELL)
    assert live.job(second).state == live.job(one).state == "received"
    await moves_to(live, f"{first}_1", *WELL)
    await live.act()
    assert live.job(first).state == "completed"
    assert live.job(second).state == live.job(one).state == "waiting"


async def test_a_daemon_that_is_restarted_still_waits(live: LiveWorld) -> None:
    await live.poll()
    first = await submit(live)
    second = await submit(live, f"--dependency=afterok:{first}")
    await live.restart()
    await live.poll()
    assert live.job(second).state == "received"
    await moves_to(live, first, *WELL)
    assert live.job(second).state == "waiting"


@pytest.mark.parametrize("text", ["afterok", "afterok:", "singleton:3", "afterok:x y", "afterburst:3", "afterok:3+5"])
def test_what_only_sbatch_can_read_is_left_to_it(text: str) -> None:
    assert Depends.read(text) is None


def test_what_is_read_is_written_the_same() -> None:
    for text in ("afterok:1a:2b_3,singleton", "after:12+30", "afterany:1?afternotok:2"):
        found = Depends.read(text)
        assert found is not None
        again = Depends.read(str(found))
        assert again == found
    assert dependencies.waits_for("x") == "Dependency: x"
