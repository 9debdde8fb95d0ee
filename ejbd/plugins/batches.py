"""Batch systems by name, each declared once: its settings, its traits, and what makes its adapter.

EJB's own are in :data:`OWN`. A package offers one by an entry point in the group `ejbd.batch`, which names a
:class:`BatchKind`. The table `[batch_settings]` of the configuration is its own. An example is in docs/plugins.md has
an example.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ejbd.plugins import entrypoints

GROUP = "ejbd.batch"


def on_or_off(value: object) -> object:
    """TOML's true and false as the words that they stand for."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


class LocalSettings(BaseModel):
    """The embedded cluster."""

    model_config = ConfigDict(extra="forbid")

    directory: Path | None = Field(default=None, description="default: <state_dir>/cluster")
    nodes: Annotated[int, Field(ge=1, le=4096, description="nodes that this machine plays")] = 8
    processors_per_node: Annotated[int, Field(ge=1, le=1024, description="virtual processors of each")] = 4
    pool: Annotated[bool, Field(description="fold running jobs in place for the next one (docs/malleable.md)")] = False
    node_names: Annotated[list[str], Field(description="real nodes, in place of `nodes` that it plays")] = []
    step: Annotated[str, Field(description="starts a worker on `{node}`, e.g. srun -N1 -n1 -w {node}")] = ""
    until_s: Annotated[float | None, Field(description="epoch seconds at which the pool ends; none: it does not")] = (
        None
    )
    drain_s: Annotated[float, Field(ge=0, description="before it: nothing starts that does not end by then")] = 0.0


class SlurmSettings(BaseModel):
    """A real Slurm, by its own commands."""

    model_config = ConfigDict(extra="forbid")

    conf: Path | None = Field(default=None, description="SLURM_CONF; default: as in the daemon's environment")
    bin: Path | None = Field(default=None, description="folder of sbatch, squeue, ...; default: PATH")
    timeout_s: Annotated[float, Field(gt=0, le=600, description="of every query")] = 20.0
    submit_timeout_s: Annotated[float, Field(gt=0, le=600, description="of a submission")] = 30.0


class PbsSettings(BaseModel):
    """OpenPBS or Torque, by their own commands; with Maui or Moab, where `showbf` is there."""

    model_config = ConfigDict(extra="forbid")

    dialect: Annotated[Literal["auto", "openpbs", "torque"], Field(description="auto: as `qstat --version` says")] = (
        "auto"
    )
    server: str = Field(default="", description="PBS_DEFAULT; default: as in the daemon's environment, or the site's")
    bin: Path | None = Field(default=None, description="folder of qsub, qstat, ...; default: PATH")
    maui: Annotated[
        Literal["auto", "on", "off"],
        BeforeValidator(on_or_off),
        Field(description="whether showbf and showres say what room there is; auto: where showbf is there"),
    ] = "auto"
    whole_nodes: bool = Field(default=False, description="the scheduler gives every job nodes of its own")
    longest_name: Annotated[
        int, Field(ge=8, le=230, description="characters that the name of a job may have; 15 everywhere")
    ] = 15
    timeout_s: Annotated[float, Field(gt=0, le=600, description="of every query")] = 20.0
    submit_timeout_s: Annotated[float, Field(gt=0, le=600, description="of a submission")] = 30.0
    change_timeout_s: Annotated[float, Field(gt=0, le=600, description="of qalter, which Torque lets hang")] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTraits:
    """What the daemon goes by, beyond the adapter, for one kind of batch system.

    `one_host`: its nodes are one machine, so that processors are virtual, files shared and ranks never span hosts.
    `exit_hook`: the script of a passed-through job can be made to write its exit code. `names_output`: where such a
    job's output goes is the batch system's own affair, by its own patterns. `command_s` and `submit_s`: the longest
    that one of its commands may take. `excludes_nodes`: a submission can be kept off nodes
    (`SubmitRequest.exclude`), which `ejb drain` needs. `excludes_by_name`: only by naming all that it is to have, as of
    now, which is nothing for a J0. `withholds`: a job that waits can be kept from beginning, and one that has begun
    meanwhile is not touched by that. `arrays`: one that is passed through is handed on as an array; elsewhere each of
    its elements is. `begins_alone`: a J0's script takes its workers' place where no daemon answers.
    `begins_at_once`: it can run the job's own script before any worker. `dependencies`: it waits itself for jobs that
    are named by its numbers; elsewhere EJB does. `signals`: the adapter sends signals to jobs that it runs
    (:class:`ejbd.batch.base.SendsSignals`); elsewhere its own command does.
    """

    command_s: float
    submit_s: float
    one_host: bool = False
    exit_hook: bool = False
    names_output: bool = False
    excludes_nodes: bool = False
    excludes_by_name: bool = False
    withholds: bool = False
    arrays: bool = False
    begins_alone: bool = False
    begins_at_once: bool = False
    dependencies: bool = True
    signals: bool = False


class NoSettings(BaseModel):
    """Of a batch system that needs none."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKind:
    """A batch system: its `name`, the model of its `settings`, the `traits` that these come to, and what makes it.

    `make` is called with the whole configuration and with the settings, and returns a `ejbd.batch.base.BatchSystem`. As
    a text it is MODULE:FUNCTION, which is imported when the daemon needs it. `helped`: the adapter acts for other users
    by `ejb-as`.
    """

    name: str
    make: str | Callable[[Any, Any], Any]
    traits: Callable[[Any], BatchTraits]
    settings: type[BaseModel] = NoSettings
    helped: bool = False

    def made(self, configuration: Any, own: BaseModel) -> Any:
        """The adapter."""
        make = self.make
        if isinstance(make, str):
            module, _, function = make.partition(":")
            make = getattr(importlib.import_module(module), function)
        return make(configuration, own)


def _local(own: LocalSettings) -> BatchTraits:
    return BatchTraits(
        one_host=not own.node_names,
        command_s=10.0,
        submit_s=10.0,
        withholds=True,
        begins_alone=True,
        dependencies=False,
        signals=True,
    )


def _slurm(own: SlurmSettings) -> BatchTraits:
    return BatchTraits(
        exit_hook=True,
        names_output=True,
        command_s=own.timeout_s,
        submit_s=own.submit_timeout_s,
        excludes_nodes=True,
        withholds=True,
        arrays=True,
        begins_alone=True,
        begins_at_once=True,
    )


def _pbs(own: PbsSettings) -> BatchTraits:
    return BatchTraits(
        command_s=own.timeout_s, submit_s=own.submit_timeout_s, excludes_nodes=True, excludes_by_name=True
    )


OWN: Mapping[str, BatchKind] = {
    one.name: one
    for one in (
        BatchKind(name="local", make="ejbd.batch.local.making:make", traits=_local, settings=LocalSettings),
        BatchKind(
            name="slurm", make="ejbd.batch.slurm.making:make", traits=_slurm, settings=SlurmSettings, helped=True
        ),
        BatchKind(name="pbs", make="ejbd.batch.pbs.making:make", traits=_pbs, settings=PbsSettings, helped=True),
    )
}


class UnknownBatch(LookupError):
    """No batch system has that name; the text is one sentence for people."""


def known_batch(name: str) -> BatchKind:
    """The batch system of that name. Raises UnknownBatch where there is none, in no installed package either."""
    if name in OWN:
        return OWN[name]
    found, failed = _installed()
    if name in found:
        return found[name]
    known = ", ".join((*OWN, *found))
    raise UnknownBatch(failed.get(name) or f"no batch system is called {name}; there are: {known}")


def broken_batches() -> Mapping[str, str]:
    """What could not be loaded, by its name, and why in a sentence."""
    return _installed()[1]


@functools.cache
def _installed() -> tuple[Mapping[str, BatchKind], Mapping[str, str]]:
    found: dict[str, BatchKind] = {}

    def take(name: str, one: object) -> None:
        if not isinstance(one, BatchKind):
            raise TypeError("it is no BatchKind of ejbd.plugins.batches")
        if one.name != name:
            raise ValueError(f"it is called {one.name!r}; an entry point has the batch system's name")
        if name in OWN or name in found:
            raise ValueError(f"there is a batch system {name} already")
        found[name] = one

    return found, entrypoints.load(GROUP, "batch system", take)
