"""What all sessions of one server share: the store and the worker processes; and each session's
seat, which ends its runs when it leaves.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.library import library
from trainyard.runs.disconnects import freeze_imports, tidy
from trainyard.runs.executors import DEFAULT, Processes, RunLimits, cores
from trainyard.runs.pool import WorkerPool
from trainyard.runs.queue import RunQueue
from trainyard.store import Store
from trainyard.sweeps.sentences import workers
from trainyard.traces import start
from trainyard.traces.sources import forget

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_HERE: Final = "server"
"""Who waits for what the server runs by itself, and whose shelf that is on."""
_HERE_NOW: Final[dict[str, Callable[[], int]]] = {}
"""Session -> what lets go of what it holds, and returns its bytes."""
_LOCAL: Final = re.compile(rf"{DEFAULT}(:[1-9]\d*)?")
_LOG: Final = logging.getLogger(__name__)


@st.cache_resource(show_spinner=False)
def pool() -> WorkerPool:
    """Return the worker processes of this server; the first call starts them, so that they are warm
    at the first click.
    """
    count = workers(where()) if _LOCAL.fullmatch(where()) else cores()
    made = WorkerPool(Store(), Processes(count, spare=1, limits=RunLimits.from_environment()))
    made.grace.on_expiry(_left)
    freeze_imports()
    atexit.register(made.close)
    return made


def where() -> str:
    """Return where sweeps, plans and replays run: what TRAINYARD_EXECUTOR says."""
    return os.environ.get("TRAINYARD_EXECUTOR", "") or DEFAULT


def queue() -> RunQueue | str:
    """Return where a sweep, plan or replay submits its runs: the queue of this server, unless
    TRAINYARD_EXECUTOR names something else.
    """
    return pool() if _LOCAL.fullmatch(where()) else where()


def store() -> Store:
    """Return the store of this server."""
    return pool().store


@st.cache_resource(ttl=_HOUR_S, show_spinner=False)
def hourly() -> None:
    """Delete results and uploads whose retention period is over."""
    try:
        store().expire()
    except TrainyardError as error:
        _LOG.warning("The library is not tidied: %s", error)


@st.cache_resource(ttl=_DAY_S, show_spinner=False)
def daily() -> None:
    """Run the first sample unless its result is kept, so that a first visitor finds it."""
    study = start.sample_study()
    try:
        keys = [pool().submit(scenario, _HERE).key for scenario in study.scenarios()]
        # So that it stays when a visitor takes it off his own.
        library.shelve(store(), _HERE, study, keys)
    except TrainyardError as error:
        _LOG.warning("The first sample is not prepared: %s", error)


@dataclass(frozen=True, eq=False)
class SessionSeat:
    """A session at this server.

    Parameters
    ----------
    watcher : str
        Its name.
    """

    watcher: str

    def leave(self) -> None:
        """End the runs and replays that nobody else watches, unless the session is back soon: a tab
        was closed, or a network blinked.
        """
        pool().grace.begin(self.watcher)


def _left(watcher: str) -> None:
    """Let go of what a session held that has not come back, and with the last one of the jobs that
    are kept in memory; Streamlit itself takes its time.
    """
    size = _HERE_NOW.pop(watcher, lambda: 0)()
    if not _HERE_NOW:
        size += forget()
    tidy(size)


@st.cache_resource(show_spinner=False, scope="session", on_release=SessionSeat.leave)
def seat(watcher: str, _let_go: Callable[[], int]) -> SessionSeat:
    """Take a seat; called on every run, so that a session that was gone for a moment keeps its
    runs.
    """
    pool().grace.end(watcher)
    _HERE_NOW[watcher] = _let_go
    return SessionSeat(watcher)
