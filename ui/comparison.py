"""What pages of results are about: the compared runs, the highlighted policy, and how far from the
recording they are.
"""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from trainyard.results.groups import GroupComparison
from trainyard.results.outcomes import ComparisonReport, Shown
from trainyard.views import comparison as views
from trainyard.views import metric_table
from trainyard.views.compared import ComparedRuns, Window, compare_runs
from trainyard.views.comparison import ComparisonChoice, ComparisonView
from ui import empty_states, figure, server, state, stored_results, url_params, words, zoom_window


def compare(runs: Shown) -> ComparedRuns | None:
    """Compare the complete runs; None while there is none."""
    # Of incomplete runs too: the report says which policies cannot run.
    compared = _compare("|".join((runs.mark, *(key for own in runs.keys for key in own))), runs)
    # Equal complete runs may stand beside others that are not complete.
    return compared and replace(
        compared, runs=runs, epoch=state.session().epoch(compared.report.epoch)
    )


@st.cache_resource(max_entries=24, show_spinner=False)
def _compare(key: str, _runs: Shown) -> ComparedRuns | None:
    # Shared by all sessions and never changed. Frames must not be keys, so the key is the hashes of
    # the runs.
    del key
    return compare_runs(_runs, server.store())


def view(compared: ComparedRuns, choice: ComparisonChoice) -> ComparisonView:
    """Return the view of stored results, built once for all sessions.

    Raises
    ------
    TrainyardError
        If the trace or a stored result was removed meanwhile.
    """
    return _view(views.key_of(compared, choice), compared, choice)


@st.cache_resource(max_entries=128, show_spinner=False)
def _view(
    key: tuple[object, ...], _compared: ComparedRuns, _choice: ComparisonChoice
) -> ComparisonView:
    del key
    window = ComparisonChoice(window=_choice.window)
    seen = _zoomed(views.key_of(_compared, window), _compared, _choice.window)
    group = None if _choice.group is None else _group(seen.report.mark, _choice.group, seen)
    return views.build(seen, _choice, group)


@st.cache_resource(max_entries=64, show_spinner=False)
def _zoomed(
    key: tuple[object, ...], _compared: ComparedRuns, _window: Window | None
) -> ComparedRuns:
    # What is computed for a window is shared by its views of other policies, goals and groups.
    del key
    return _compared.seen(_window)


@st.cache_resource(max_entries=24, show_spinner=False)
def _group(mark: str, group: tuple[str, str], _compared: ComparedRuns) -> GroupComparison:
    del mark
    return _compared.details.of_group(*group)


def opened(
    session: state.Session, title: str, about: str, *, listed: bool = False
) -> ComparedRuns | None:
    """Return what a page of results is about, and say what about it is old or missing; None after
    drawing what stands there while there is nothing to show.

    Parameters
    ----------
    session : Session
        What this session has before it.
    title, about : str
        Of the page: its question, and what it will show.
    listed : bool
        Whether it has a ledger, with a row for each policy without a result.
    """
    if session.shown is None:
        empty_states.nothing(session, title, about)
        return None
    runs = stored_results.gather(session.shown)
    if not listed:
        empty_states.stale(session)
    empty_states.troubles(session, runs, listed=listed)
    compared = compare(runs)
    if compared is None:
        empty_states.waiting(session, title)
    else:
        zoom_window.drop_outside(compared.report.end_s)
    return compared


def subject(report: ComparisonReport) -> str:
    """Return the title of the highlighted policy: the chosen one, or else the one that the headline
    on the chosen goal is about; "" = none.
    """
    asked = url_params.asked(url_params.HIGH)
    if asked in report.labels:
        return asked
    goal = st.session_state.get(url_params.GOAL) or url_params.asked(url_params.GOAL)
    return report.headlines.get(goal, report.first_headline).subject


def trust(report: ComparisonReport) -> None:
    """Draw how far the simulator is from the recorded history."""
    if report.trust is None:
        st.caption(report.untold)
        return
    with st.expander(words.plain(report.trust.sentence())):
        rows = metric_table.accuracy_table(report.trust)
        jobs = st.column_config.NumberColumn(format="localized")
        figure.show(rows, hide_index=True, height="content", column_config={"Jobs": jobs})
        st.caption(
            "Absolute error of the wait (first start − submission) against the recorded one, by"
            " GPUs asked for."
        )
    st.page_link(
        "pages/plan.py",
        label="Check a policy against the past",
        icon=":material/history:",
        query_params=state.address() | {url_params.TAB: url_params.PAST},
    )
