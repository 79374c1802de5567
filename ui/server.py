"""Store and worker pool shared by all sessions; each session's seat on the server."""

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
from trainyard.runs.executors import DEFAULT, Processes, RunLimits, cores
from trainyard.runs.grace_period import freeze_imports, release_memory
from trainyard.runs.pool import WorkerPool
from trainyard.runs.queue import RunQueue
from trainyard.store import Store
from trainyard.sweeps.summaries import parallel_runs
from trainyard.traces import new_study
from trainyard.traces.sources import clear_cache

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_SERVER: Final = "server"
"""Watcher and owner of the runs that the server starts itself."""
_SESSIONS: Final[dict[str, Callable[[], int]]] = {}
"""Watcher -> function that frees the data of its session and returns the bytes freed."""
_LOCAL: Final = re.compile(rf"{DEFAULT}(:[1-9]\d*)?")
_LOG: Final = logging.getLogger(__name__)


@st.cache_resource(show_spinner=False)
def pool() -> WorkerPool:
    """Return the worker pool of this server; the first call starts its processes."""
    count = parallel_runs(executor_name()) if _LOCAL.fullmatch(executor_name()) else cores()
    workers_pool = WorkerPool(
        Store(), Processes(count, spare=1, limits=RunLimits.from_environment())
    )
    workers_pool.grace.on_expiry(_on_session_end)
    freeze_imports()
    atexit.register(workers_pool.close)
    return workers_pool


def executor_name() -> str:
    """Return the executor of sweeps, plans and replays: TRAINYARD_EXECUTOR or the default."""
    return os.environ.get("TRAINYARD_EXECUTOR", "") or DEFAULT


def batch_queue() -> RunQueue | str:
    """Return the queue of sweeps, plans and replays: the pool, or another executor's name."""
    return pool() if _LOCAL.fullmatch(executor_name()) else executor_name()


def store() -> Store:
    """Return the store of this server."""
    return pool().store


@st.cache_resource(ttl=_HOUR_S, show_spinner=False)
def delete_expired() -> None:
    """Delete results and uploads past their retention, at most hourly; log failures."""
    try:
        store().expire()
    except TrainyardError as error:
        _LOG.warning("Expired results were not deleted: %s", error)


@st.cache_resource(ttl=_DAY_S, show_spinner=False)
def prepare_sample() -> None:
    """Run the sample at most once a day, and keep its result as the server's own entry."""
    study = new_study.sample_study()
    try:
        keys = [pool().submit(scenario, _SERVER).key for scenario in study.scenarios()]
        # The server's own entry keeps the result when a visitor deletes theirs.
        library.shelve(store(), _SERVER, study, keys)
    except TrainyardError as error:
        _LOG.warning("The sample was not prepared: %s", error)


@dataclass(frozen=True, eq=False)
class SessionSeat:
    """Presence of a session on this server.

    Parameters
    ----------
    watcher : str
        Id of the session.
    """

    watcher: str

    def release(self) -> None:
        """Cancel runs that only this session watches, unless it returns within the grace period."""
        pool().grace.begin(self.watcher)


def _on_session_end(watcher: str) -> None:
    """Free the uploads of a session that has ended, and cached jobs after the last one."""
    freed_bytes = _SESSIONS.pop(watcher, lambda: 0)()
    if not _SESSIONS:
        freed_bytes += clear_cache()
    release_memory(freed_bytes)


@st.cache_resource(show_spinner=False, scope="session", on_release=SessionSeat.release)
def seat(watcher: str, _free_session: Callable[[], int]) -> SessionSeat:
    """Register a session on every rerun; a short disconnect keeps its runs.

    `_free_session` frees its uploads and returns the bytes freed. Returns the session's seat,
    released when it ends.
    """
    pool().grace.end(watcher)
    _SESSIONS[watcher] = _free_session
    return SessionSeat(watcher)
