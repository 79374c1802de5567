"""What the Explore page looks at: policies, rows, instant and node; the address holds it, so a
reload or a sent link shows the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from trainyard.results.outcomes import Shown
from trainyard.store import StoredResult
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace
from trainyard.views.compared import ComparedRuns
from trainyard.views.explored import ExploredRuns
from trainyard.what_if import explore
from trainyard.what_if.explore import Book
from ui import server, state, words
from ui.faults import guarded

POLICY: Final = "p"
AGAINST: Final = "vs"
ROWS: Final = "by"
WITHIN: Final = "in"
SORT: Final = "sort"
PICTURE: Final = "pic"
INSTANT: Final = "at"
NODE: Final = "node"
PARAMETERS: Final = (POLICY, AGAINST, ROWS, WITHIN, SORT, PICTURE, INSTANT, NODE)
"""Of the address: places of policies in the study, names, seconds since the first submission."""
NOTHING: Final = "-"
_KEPT: Final = "explore_view"
_OF: Final = "explore_of"


def explored(compared: ComparedRuns, chosen: Sequence[int]) -> ExploredRuns:
    """Open the runs of the chosen policies, places in the study.

    Raises
    ------
    TrainyardError
        If a stored result was removed meanwhile.
    """
    runs, epoch = compared.runs, compared.epoch
    entries = {runs.titles[at]: runs.entries[at][0] for at in chosen}
    books = {title: _book(entry.key, title, epoch, entry, runs) for title, entry in entries.items()}
    keys = {title: f"{entry.key} {epoch}" for title, entry in entries.items()}
    return ExploredRuns(compared, books, keys)


@st.cache_resource(max_entries=8, show_spinner=False)
def _book(key: str, title: str, epoch: str, _entry: StoredResult, _shown: Shown) -> Book:
    del key
    base = _shown.study.base
    # Sentences write instants as the axis does: on the calendar, or in days since the first
    # submission.
    trace = replace(load_trace(base.trace, server.store()), epoch=epoch)
    return explore.opened(_entry, trace, base.cluster, title, server.store())


def asked(name: str, default: str = "") -> str:
    """Return what is looked at; the address leads."""
    kept: dict[str, str] = st.session_state.setdefault(_KEPT, {})
    return st.query_params.get(name, kept.get(name, default))


def put(name: str, value: str) -> None:
    """Look at something else; "" = at what the page chooses by itself."""
    st.session_state.setdefault(_KEPT, {})[name] = value
    if value:
        st.query_params[name] = value
    else:
        st.query_params.pop(name, None)


def keep(study: Study | None) -> None:
    """Bring both together after a change of page, which drops parameters, or after Back, which
    changes them; one message to the browser at most.

    Parameters
    ----------
    study : Study or None
        What is shown. An instant or a place of a policy means nothing in another one, so it is
        dropped with it.
    """
    kept: dict[str, str] = st.session_state.setdefault(_KEPT, {})
    now = _without_strangers(study, kept)
    kept |= {name: now[name] for name in PARAMETERS if name in now}
    wanted = now | {name: value for name, value in kept.items() if value}
    if wanted != now:
        st.query_params.from_dict(wanted)


def _without_strangers(study: Study | None, kept: dict[str, str]) -> dict[str, str]:
    """Return the parameters of the address without those that were of another study, which are
    forgotten too.
    """
    now = st.query_params.to_dict()
    if study is None:
        return now
    of = {
        (INSTANT,): study.base.trace,
        (POLICY, AGAINST): study.allocators,
        (NODE, WITHIN): study.base.cluster,
    }
    before = st.session_state.get(_OF, of)
    strangers = {name for names, part in of.items() if part != before[names] for name in names}
    st.session_state[_OF] = of
    for name in strangers:
        kept.pop(name, None)
        st.query_params.pop(name, None)
    return {name: text for name, text in now.items() if name not in strangers}


def number(name: str) -> float | None:
    """Return a parameter that is a number; None if it is none, because the page then has an answer
    of its own.
    """
    try:
        value = float(asked(name))
    except ValueError:
        return None
    return value if abs(value) < 1e12 else None


def choice(
    box: Callable[..., Any],
    label: str,
    options: Sequence[str],
    name: str,
    default: str,
    **more: Any,
) -> str:
    """Draw a widget that chooses one of a few names, and return the chosen one.

    Parameters
    ----------
    box : callable
        `st.selectbox` or `st.segmented_control`.
    label : str
        Of the widget.
    options : sequence of str
        What can be chosen.
    name : str
        Parameter of the address that holds it.
    default : str
        Chosen while the address says nothing, or something that is not there.
    **more
        For the widget.
    """
    found = asked(name)
    if found and found not in options:
        # What was chosen under another scenario is dropped in silence; what a link asks for is not.
        if state.session().arrived:
            st.caption(
                f":material/info: “{words.plain(found[:80])}” is no option of “{label}”, so the"
                " page shows its default."
            )
        put(name, "")
    key = f"explore/{name}"
    st.session_state[key] = found if found in options else default
    box(label, options, key=key, on_change=_take, args=(name, key), **more)
    return found if found in options else default


def _take(name: str, key: str) -> None:
    if (value := st.session_state[key]) is not None:
        put(name, str(value))


def part(
    name: str,
    draw: Callable[[ExploredRuns], None],
    scene: ExploredRuns,
    run_every: float | None = None,
) -> None:
    """Draw a part of the page that can be drawn anew on its own; a fault ends this part only."""
    st.fragment(lambda: guarded(lambda: draw(scene)), key=f"explore/{name}", run_every=run_every)()
