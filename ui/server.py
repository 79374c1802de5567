"""What all sessions of one server share: the store and the worker processes; and each session's seat, which ends its runs when it leaves."""

from __future__ import annotations

import atexit
import logging
from dataclasses import dataclass
from typing import Final

import streamlit as st

from lab import library, start
from lab.front import Pool, Store, TrainyardError

_DAY_S: Final = 86_400.0
_HERE: Final = "server"
"""Who waits for what the server runs by itself, and whose shelf that is on."""
_LOG: Final = logging.getLogger(__name__)


@st.cache_resource(show_spinner=False)
def pool() -> Pool:
    """Return the worker processes of this server; the first call starts them, so that they are warm at the first click."""
    made = Pool(Store())
    atexit.register(made.close)
    return made


def store() -> Store:
    """Return the store of this server."""
    return pool().store


@st.cache_resource(ttl=_DAY_S, show_spinner=False)
def daily() -> None:
    """Remove what has been kept for its time, and run the first sample unless its result is kept, so that a first visitor finds it."""
    study = start.sample_study()
    try:
        store().expire()
        keys = [pool().submit(scenario, _HERE).key for scenario in study.scenarios()]
        # So that it stays when a visitor takes it off his own.
        library.shelve(store(), _HERE, study, keys)
    except TrainyardError as error:
        _LOG.warning("The library is not tidied, or the first sample is not prepared: %s", error)


@dataclass(frozen=True, eq=False)
class Seat:
    """A session at this server.

    Parameters
    ----------
    watcher : str
        Its name.
    """

    watcher: str

    def leave(self) -> None:
        """End the runs and replays that nobody else watches, unless the session is back soon: a tab was closed, or a network blinked."""
        pool().leaving.leave(self.watcher)


@st.cache_resource(show_spinner=False, scope="session", on_release=Seat.leave)
def seat(watcher: str) -> Seat:
    """Take a seat; called on every run, so that a session that was gone for a moment keeps its runs."""
    pool().leaving.back(watcher)
    return Seat(watcher)
