"""Which results of a study are stored, looked up once for every run of a page."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.results import outcomes, past
from trainyard.results.outcomes import Shown
from trainyard.results.past import Past
from trainyard.store import StoredResult
from trainyard.study.study import Study
from trainyard.traces import start
from ui import server

_GATHERED: Final = "gathered"
_MOST_KNOWN: Final = 4096


def begin() -> None:
    """Begin a run of the page: what was looked up before may have changed."""
    st.session_state[_GATHERED] = {}


def barred(study: Study) -> dict[str, str]:
    """Return the policies of a study that cannot run on its trace and cluster: title -> reason."""
    reasons = (start.reason(study, at, server.store()) for at in range(len(study.allocators)))
    return {title: reason for title, reason in zip(study.titles, reasons, strict=True) if reason}


def gather(study: Study) -> Shown:
    """Look up which runs of a study are stored; one run of the page gets one answer, however often
    it asks.
    """
    known: dict[object, Shown] = st.session_state.setdefault(_GATHERED, {})
    mark = study.canonical(), study.slots, study.names
    if mark not in known:
        keys = keys_of(mark[0], study)
        found = _entries([key for own in keys for key in own])
        entries = tuple(tuple(found[key] for key in own if key in found) for own in keys)
        known[mark] = Shown(
            study,
            study.titles,
            keys,
            entries,
            outcomes.stand_in(study, entries, server.store()),
            _past(study),
        )
    return known[mark]


def _past(study: Study) -> Past | None:
    try:
        return past.known(study, server.store())
    except TrainyardError:
        # Of a damaged library is told elsewhere, and what is at hand is still shown.
        return None


@st.cache_data(max_entries=64, show_spinner=False)
def keys_of(mark: str, _study: Study) -> tuple[tuple[str, ...], ...]:
    """Return the keys of a study's results: per policy, one per repeat; `mark` is its canonical
    text.
    """
    del mark
    return outcomes.keys(_study, server.store())


def _entries(keys: list[str]) -> dict[str, StoredResult]:
    """Return the results that are stored; those not known yet are looked up together, because
    hundreds may be absent.
    """
    known = _known()
    found = {key: entry for key in keys if (entry := known.get(key))}
    absent = [key for key in keys if key not in found]
    if absent:
        found |= server.store().get_all(absent)
        if len(known) > _MOST_KNOWN:
            known.clear()
        known |= found
    return found


@st.cache_resource(max_entries=1, ttl=300, show_spinner=False)
def _known() -> dict[str, StoredResult]:
    """Return the results that sessions have looked up; only what is there is remembered."""
    return {}


def forget() -> None:
    """Look all results up again, because some were deleted."""
    _known.clear()
    st.session_state[_GATHERED] = {}


def has_results(study: Study, among: Collection[str] | None = None) -> bool:
    """Tell whether a policy of a study is complete; `among` = one with a result of these keys."""
    try:
        runs = gather(study)
    except TrainyardError:
        return False
    return any(among is None or not set(runs.keys[at]).isdisjoint(among) for at in runs.places)
