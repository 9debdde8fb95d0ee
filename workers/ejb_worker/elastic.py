"""More or fewer processors for the job that this process is of, while it runs: E-HPC's calls (Fox et al., 2017).

    import ejb_elastic

    ejb_elastic.init()                   # what the job has: .held, .most, .nodes
    if not ejb_elastic.expand(16, wait_s=60):
        ...                              # not there within 60 s: the request stays, and the program runs on
    ejb_elastic.contract(4)              # or contract(by=12)
    ejb_elastic.done()                   # back to what the job holds throughout

It comes with EJB's worker: an evolving job finds it on PYTHONPATH, on nodes without EJB, too. It needs nothing but the
standard library (Python 3.8 or later), and asks the daemon by the proof that workers have.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, Iterator, List, Optional

from .settings import SettingsError, Subjob, read_subjob
from .transport import Away, Client

__all__ = ["ElasticError", "State", "contract", "done", "expand", "init"]

_LOOK_S = 0.5
_AWAY_S = 60.0  # how long a daemon that does not answer is asked again


class ElasticError(Exception):
    """What cannot be had, in one sentence."""


class State:
    """What a job has: `held` places now, `asked` for now, `base` throughout, `most` at all, `nodes`, `end_s`.

    `settled`: its ranks run on all that it holds. It is true where it holds what is asked for.
    """

    def __init__(self, told: Dict[str, Any]) -> None:
        self.job = str(told["job"])
        self.held = int(told["held"])
        self.asked = int(told["asked"])
        self.base = int(told["base"])
        self.most = int(told["most"])
        self.settled = bool(told["settled"])
        self.nodes: List[str] = list(told["nodes"])
        self.end_s: Optional[float] = told["end_s"]

    def __bool__(self) -> bool:
        return self.settled and self.held == self.asked

    def __repr__(self) -> str:
        return "State(job=%r, held=%d, asked=%d, most=%d)" % (self.job, self.held, self.asked, self.most)


class _Calls:
    """A restored process has its count of calls as it was: what it asks for again has the same key."""

    def __init__(self) -> None:
        self.count = 0
        self.name = "%d-%d" % (os.getpid(), time.time_ns())

    def key(self) -> str:
        self.count += 1
        return "%s-%d" % (self.name, self.count)


_calls = _Calls()


def init() -> State:
    """What the job has now. Raises ElasticError outside of an evolving job."""
    return _ask({"call": "show"})


def expand(places: int, wait_s: float = 60.0) -> State:
    """Have so many places from now on; true where the ranks run on them within `wait_s` seconds.

    It is false where they do not by then: the request stays, and `init()` tells later. The same call twice is one.
    Raises ElasticError where it can never be had.
    """
    end = time.monotonic() + wait_s
    state = _ask({"call": "resize", "to": places})
    while not (state.settled and state.held == places):
        left_s = end - time.monotonic()
        if left_s <= 0:
            state.settled = False
            return state
        time.sleep(min(_LOOK_S, left_s))
        state = init()
    return state


def contract(places: Optional[int] = None, by: Optional[int] = None, key: str = "") -> State:
    """Have so many places from now on, or so many fewer (`by`, as E-HPC has it). What is over is given back at once.

    A call with `by` that is made anew by a process restored from its image is one. A program that begins anew from
    files of its own names the call by a `key`, such as "behind phase 2", so that it counts once.
    """
    if (places is None) == (by is None):
        raise ElasticError("contract is to so many places, or by so many")
    if by is not None:
        return _ask({"call": "resize", "by": -by, "key": key or _calls.key()})
    return _ask({"call": "resize", "to": places})


def done() -> State:
    """Give back all that the job does not hold throughout."""
    return _ask({"call": "resize"})


def _ask(body: Dict[str, Any]) -> State:
    """Asked by the subjob that this process is of, else by any that the job has now: processes are moved."""
    end = time.monotonic() + _AWAY_S
    while True:
        refused, away = "", ""
        for subjob in _subjobs():
            client = Client(subjob)
            try:
                status, content = client.answer("POST", "/v1/worker/elastic", body)
            except Away as error:
                away = str(error)
                continue
            finally:
                client.close()
            if status == 200:
                return State(json.loads(content.decode("utf-8")))
            refused = _sentence(status, content)
            if status not in (401, 403):
                raise ElasticError(refused)
        if refused or time.monotonic() > end:
            raise ElasticError(refused or "the daemon does not answer: %s" % away)
        time.sleep(_LOOK_S)


def _sentence(status: int, content: bytes) -> str:
    try:
        told = json.loads(content.decode("utf-8"))
        return str(told.get("detail") or told.get("title") or status)
    except (ValueError, AttributeError):
        return "answer %d" % status


def _subjobs() -> Iterator[Subjob]:
    """The own one first, then the newest. Raises ElasticError outside of a job."""
    archive, job = os.environ.get("EJB_PYTHON_MODULES", ""), os.environ.get("EJB_JOB_ID", "")
    if not archive or not job:
        raise ElasticError("this process is of no evolving job of EJB's")
    top = os.path.join(os.path.dirname(archive), "jobs", job, "subjobs")
    own = os.environ.get("EJB_SUBJOB_ID", "")
    try:
        others = sorted(os.listdir(top), key=lambda name: os.stat(os.path.join(top, name)).st_mtime, reverse=True)
    except OSError as error:
        raise ElasticError("the job's folder cannot be read: %s" % error) from None
    for name in sorted(others, key=lambda name: name != own):
        try:
            yield read_subjob(os.path.join(top, name))
        except SettingsError:
            continue
