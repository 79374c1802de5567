"""View of Explore in the URL (policies, rows, instant, node), and its cached runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from trainyard.results.outcomes import StudyResults
from trainyard.store import StoredResult
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.explored_runs import ExploredRuns
from trainyard.what_if import explore
from trainyard.what_if.explore import Book
from ui import server, state, words
from ui.error_boundary import run_guarded

POLICY: Final = "p"
AGAINST: Final = "vs"
ROWS: Final = "by"
WITHIN: Final = "in"
SORT: Final = "sort"
PICTURE: Final = "pic"
INSTANT: Final = "at"
NODE: Final = "node"
PARAMETERS: Final = (POLICY, AGAINST, ROWS, WITHIN, SORT, PICTURE, INSTANT, NODE)
"""URL parameters: policy indices, names, seconds since the first submission."""
NOTHING: Final = "-"
_KEPT: Final = "explore_view"
_OF: Final = "explore_of"


def open_runs(compared: ComparedRuns, chosen: Sequence[int]) -> ExploredRuns:
    """Open the first repeat of the chosen policies (indices in the study) for Explore.

    Raises
    ------
    TrainyardError
        If a stored result was removed.
    """
    runs, epoch = compared.runs, compared.epoch
    entries = {runs.titles[index]: runs.entries[index][0] for index in chosen}
    books = {title: _book(entry.key, title, epoch, entry, runs) for title, entry in entries.items()}
    keys = {title: f"{entry.key} {epoch}" for title, entry in entries.items()}
    return ExploredRuns(compared, books, keys)


@st.cache_resource(max_entries=8, show_spinner=False)
def _book(key: str, title: str, epoch: str, _entry: StoredResult, _shown: StudyResults) -> Book:
    """Return one run opened for Explore, with dates if `epoch` is known; cached by its key."""
    del key
    base = _shown.study.base
    # Text writes instants as the axis does: as dates, or in days since the first submission.
    trace = replace(load_trace(base.trace, server.store()), epoch=epoch)
    return explore.open_run(_entry, trace, base.cluster, title, server.store())


def get(name: str, default: str = "") -> str:
    """Return a parameter of the view from the URL, else from the session."""
    values: dict[str, str] = st.session_state.setdefault(_KEPT, {})
    return st.query_params.get(name, values.get(name, default))


def set_param(name: str, value: str) -> None:
    """Write a parameter to the session and the URL; "" restores the page's default."""
    st.session_state.setdefault(_KEPT, {})[name] = value
    if value:
        st.query_params[name] = value
    else:
        st.query_params.pop(name, None)


def sync_url(study: Study | None) -> None:
    """Restore view parameters that a change of page or Back dropped from the URL.

    Parameters
    ----------
    study : Study or None
        The displayed study. Instants and policy indices of another study are dropped.
    """
    values: dict[str, str] = st.session_state.setdefault(_KEPT, {})
    url_values = _drop_foreign_values(study, values)
    values |= {name: url_values[name] for name in PARAMETERS if name in url_values}
    all_values = url_values | {name: value for name, value in values.items() if value}
    if all_values != url_values:
        st.query_params.from_dict(all_values)


def _drop_foreign_values(study: Study | None, values: dict[str, str]) -> dict[str, str]:
    """Return the URL parameters without values of another study; forget those."""
    url_values = st.query_params.to_dict()
    if study is None:
        return url_values
    parts = {
        (INSTANT,): study.base.trace,
        (POLICY, AGAINST): study.allocators,
        (NODE, WITHIN): study.base.cluster,
    }
    earlier_parts = st.session_state.get(_OF, parts)
    foreign = {
        name for names, part in parts.items() if part != earlier_parts[names] for name in names
    }
    st.session_state[_OF] = parts
    for name in foreign:
        values.pop(name, None)
        st.query_params.pop(name, None)
    return {name: text for name, text in url_values.items() if name not in foreign}


def get_number(name: str) -> float | None:
    """Return a parameter as a number; None if missing, not a number or too large."""
    try:
        value = float(get(name))
    except ValueError:
        return None
    return value if abs(value) < 1e12 else None


def draw_choice(
    box: Callable[..., Any],
    label: str,
    options: Sequence[str],
    name: str,
    default: str,
    **options_of_widget: Any,
) -> str:
    """Draw a widget bound to a URL parameter; return its value, else the default.

    Parameters
    ----------
    box : callable
        `st.selectbox` or `st.segmented_control`.
    label : str
        Label of the widget.
    options : sequence of str
        Possible values.
    name : str
        URL parameter.
    default : str
        Value while the URL has none, or an invalid one.
    **options_of_widget
        For the widget.
    """
    url_value = get(name)
    if url_value and url_value not in options:
        # A choice of another scenario is dropped silently; an invalid link is reported.
        if state.session().page_changed:
            st.caption(
                f":material/info: “{words.plain(url_value[:80])}” is no option of “{label}”. The"
                " default is shown."
            )
        set_param(name, "")
    key = f"explore/{name}"
    st.session_state[key] = url_value if url_value in options else default
    box(label, options, key=key, on_change=_on_choose, args=(name, key), **options_of_widget)
    return url_value if url_value in options else default


def _on_choose(name: str, key: str) -> None:
    """Write the chosen value of a widget to the URL; None changes nothing."""
    if (value := st.session_state[key]) is not None:
        set_param(name, str(value))


def draw_fragment(
    name: str,
    draw: Callable[[ExploredRuns], None],
    scene: ExploredRuns,
    run_every: float | None = None,
) -> None:
    """Draw a part of Explore as a fragment; an exception becomes a message in it."""
    st.fragment(
        lambda: run_guarded(lambda: draw(scene)), key=f"explore/{name}", run_every=run_every
    )()
