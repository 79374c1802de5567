"""Which results of a study are stored, looked up once for every run of a page."""

from __future__ import annotations

from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.results import outcomes
from trainyard.results.outcomes import Shown
from trainyard.store import Entry
from trainyard.study.study import Study
from trainyard.traces import start
from ui import server

_GATHERED: Final = "gathered"


def begin() -> None:
    """Begin a run of the page: what was looked up before may have changed."""
    st.session_state[_GATHERED] = {}


def barred(study: Study) -> dict[str, str]:
    """Return the policies of a study that cannot run on its trace and cluster: title -> reason."""
    reasons = (start.reason(study, at, server.store()) for at in range(len(study.allocators)))
    return {title: reason for title, reason in zip(outcomes.titles(study.allocators), reasons, strict=True) if reason}


def gather(study: Study) -> Shown:
    """Look up which runs of a study are stored; one run of the page gets one answer, however often it asks."""
    known: dict[str, Shown] = st.session_state.setdefault(_GATHERED, {})
    mark = study.canonical()
    if mark not in known:
        keys = keys_of(mark, study)
        entries = tuple(tuple(entry for key in own if (entry := _entry(key))) for own in keys)
        known[mark] = Shown(study, outcomes.titles(study.allocators), keys, entries, outcomes.stand_in(study, entries, server.store()))
    return known[mark]


@st.cache_data(max_entries=64, show_spinner=False)
def keys_of(mark: str, _study: Study) -> tuple[tuple[str, ...], ...]:
    """Return the keys of a study's results: per policy, one per repeat; `mark` is its canonical text."""
    del mark
    return outcomes.keys(_study, server.store())


def _entry(key: str) -> Entry | None:
    try:
        return _known_entry(key)
    except KeyError:
        return None


@st.cache_resource(max_entries=4096, ttl=300, show_spinner=False)
def _known_entry(key: str) -> Entry:
    # An absent result raises, because only what is there may be remembered.
    entry = server.store().get(key)
    if entry is None:
        raise KeyError(key)
    return entry


def forget() -> None:
    """Look all results up again, because some were deleted."""
    _known_entry.clear()
    st.session_state[_GATHERED] = {}


def has_results(study: Study) -> bool:
    """Tell whether a policy of a study is complete."""
    try:
        return bool(gather(study).places)
    except TrainyardError:
        return False
