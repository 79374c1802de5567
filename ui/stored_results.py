"""Stored results of a study, looked up once per run of a page."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.results import backtest_verdict, outcomes
from trainyard.results.backtest_verdict import Past
from trainyard.results.outcomes import StudyResults
from trainyard.store import StoredResult
from trainyard.study.study import Study
from trainyard.traces import new_study
from ui import server

_GATHERED: Final = "gathered"
_MAX_CACHED: Final = 4096


def clear_lookups() -> None:
    """Forget the lookups of the last page run: results may have changed."""
    st.session_state[_GATHERED] = {}


def unrunnable(study: Study) -> dict[str, str]:
    """Return title -> reason for policies that cannot run on the study's trace and cluster."""
    reasons = (
        new_study.refusal_reason(study, index, server.store())
        for index in range(len(study.allocators))
    )
    return {title: reason for title, reason in zip(study.titles, reasons, strict=True) if reason}


def gather(study: Study) -> StudyResults:
    """Return the stored results of a study, missing ones left out; cached for one page run."""
    lookups: dict[object, StudyResults] = st.session_state.setdefault(_GATHERED, {})
    cache_key = study.canonical(), study.slots, study.names
    if cache_key not in lookups:
        keys = keys_of(cache_key[0], study)
        stored = _load_entries([key for policy_keys in keys for key in policy_keys])
        entries = tuple(
            tuple(stored[key] for key in policy_keys if key in stored) for policy_keys in keys
        )
        lookups[cache_key] = StudyResults(
            study,
            study.titles,
            keys,
            entries,
            outcomes.replacement_baseline(study, entries, server.store()),
            _load_backtest(study),
        )
    return lookups[cache_key]


def _load_backtest(study: Study) -> Past | None:
    """Return the best verdict of a study's stored backtests; None without a readable one."""
    try:
        return backtest_verdict.best_verdict(study, server.store())
    except TrainyardError:
        # Other parts report a damaged library; stored results are still shown.
        return None


@st.cache_data(max_entries=64, show_spinner=False)
def keys_of(canonical: str, _study: Study) -> tuple[tuple[str, ...], ...]:
    """Return the result keys of a study, a tuple per policy; cached by its canonical text."""
    del canonical
    return outcomes.keys(_study, server.store())


def _load_entries(keys: list[str]) -> dict[str, StoredResult]:
    """Return key -> stored result, from the cache or the store; missing keys are absent."""
    cache = _entry_cache()
    entries = {key: entry for key in keys if (entry := cache.get(key))}
    missing = [key for key in keys if key not in entries]
    if missing:
        entries |= server.store().get_all(missing)
        if len(cache) > _MAX_CACHED:
            cache.clear()
        cache |= entries
    return entries


@st.cache_resource(max_entries=1, ttl=300, show_spinner=False)
def _entry_cache() -> dict[str, StoredResult]:
    """Return the cache of stored results, shared by all sessions; misses are not cached."""
    return {}


def forget_entries() -> None:
    """Clear the caches of stored results, because results were deleted."""
    _entry_cache.clear()
    st.session_state[_GATHERED] = {}


def has_results(study: Study, among: Collection[str] | None = None) -> bool:
    """Return True if a policy has all results, and with `among` one of these keys."""
    try:
        runs = gather(study)
    except TrainyardError:
        return False
    return any(
        among is None or not set(runs.keys[index]).isdisjoint(among) for index in runs.places
    )
