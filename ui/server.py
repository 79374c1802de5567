"""What all sessions of one server share: the store and the worker processes; and each session's seat, which ends its runs when it leaves."""

from __future__ import annotations

import atexit
from dataclasses import dataclass

import streamlit as st

from lab.front import Pool, Store


@st.cache_resource(show_spinner=False)
def pool() -> Pool:
    """Return the worker processes of this server; the first call starts them, so that they are warm at the first click."""
    store = Store()
    store.expire()
    made = Pool(store)
    atexit.register(made.close)
    return made


def store() -> Store:
    """Return the store of this server."""
    return pool().store


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
