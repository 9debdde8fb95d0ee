"""What newer Slurms tell a script: for mpirun's sake (since 23.11), and of the batch job in which it runs."""

from __future__ import annotations

import pytest

from workers.ejb_worker.rankenvironment import launchers_environment
from workers.ejb_worker.settings import LAUNCHER_VARIABLES, batch_job_variables, launcher_variables

HYDRA = {"HYDRA_BOOTSTRAP": "slurm", "HYDRA_LAUNCHER_EXTRA_ARGS": "--external-launcher"}
INTEL = {"I_MPI_HYDRA_BOOTSTRAP": "slurm", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "--external-launcher"}
OPEN_MPI = {f"{name}_MCA_plm_slurm_args": "--external-launcher" for name in ("OMPI", "PRTE")}
OF_SLURM = HYDRA | INTEL | OPEN_MPI


@pytest.fixture(params=[{}, OF_SLURM], ids=["22.05", "23.11"])
def of_slurm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)
    return dict(request.param)


@pytest.mark.parametrize(
    ("given", "left_to_user"),
    [
        ({}, set()),
        ({"HYDRA_BOOTSTRAP": "ssh"}, set(HYDRA)),
        ({"HYDRA_BOOTSTRAP": "slurm"}, {"HYDRA_BOOTSTRAP"}),
        ({"I_MPI_HYDRA_BOOTSTRAP": "ssh"}, set(INTEL)),
        ({"OMPI_MCA_plm_slurm_args": "--mem=1"}, {"OMPI_MCA_plm_slurm_args"}),
    ],
)
def test_a_users_choice_of_a_launcher_counts(
    of_slurm: dict[str, str], given: dict[str, str], left_to_user: set[str]
) -> None:
    expected = {name: value for name, value in of_slurm.items() if name not in left_to_user}
    assert launcher_variables(given) == expected


def test_an_mpirun_of_ejbs_own_does_not_know_of_them(of_slurm: dict[str, str]) -> None:
    assert launchers_environment({"A": "b", "SLURM_JOB_ID": "7", **of_slurm}, {"C": "d"}) == {"A": "b", "C": "d"}


def test_a_script_is_told_of_the_batch_job_in_which_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a Slurm that does so. Where the job goes by another number, this batch job's unique name is not its own."""
    told = {"SLURM_JOB_START_TIME": "9", "SLURM_JOB_EXCLUSIVE": "NO"}
    for name, value in {**told, "SLURM_JOB_ID": "12", "SLURM_JOB_SLUID": "s4", "SLURM_STEP_ID": "0"}.items():
        monkeypatch.setenv(name, value)
    assert batch_job_variables("12") == {**told, "SLURM_JOB_SLUID": "s4"}
    assert batch_job_variables("11") == told
    monkeypatch.setenv("EJB_BATCH_STEP_ID", "-5")
    assert batch_job_variables("11") == {**told, "SLURM_STEP_ID": "-5", "SLURM_STEPID": "-5"}
