"""Cached comparisons of stored runs, the highlighted policy, and the accuracy note."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from sim.errors import TrainyardError
from trainyard.results.groups import GroupComparison
from trainyard.results.outcomes import ComparisonReport, StudyResults
from trainyard.views import comparison as views
from trainyard.views import metric_table
from trainyard.views.compared_runs import ComparedRuns, Window, compare_runs
from trainyard.views.comparison import ComparisonChoice, ComparisonView
from ui import empty_states, figure, server, state, stored_results, url_params, words, zoom_window


def compare(runs: StudyResults) -> ComparedRuns | None:
    """Return the comparison of stored runs, cached; None if no policy is complete."""
    # Incomplete runs count too: the report names the policies that cannot run.
    compared = _compare_cached(
        "|".join((runs.mark, *(key for policy_keys in runs.keys for key in policy_keys))), runs
    )
    # The cached comparison may come from a study with other incomplete runs.
    return compared and replace(
        compared, runs=runs, epoch=state.session().epoch(compared.report.epoch)
    )


@st.cache_resource(max_entries=24, show_spinner=False)
def _compare_cached(key: str, _runs: StudyResults) -> ComparedRuns | None:
    """Return the comparison of runs, cached by their keys for all sessions."""
    # Shared by all sessions and never changed.
    del key
    return compare_runs(_runs, server.store())


def stored_before() -> ComparedRuns | None:
    """Return the stored comparison before the last change of the scenario; None without one."""
    study = state.session().before_study
    if study is None:
        return None
    try:
        return compare(stored_results.gather(study))
    except TrainyardError:
        return None  # its results are gone; those of the scenario itself are shown


def build_view(compared: ComparedRuns, choice: ComparisonChoice) -> ComparisonView:
    """Return the view of a comparison for a choice, cached for all sessions.

    Raises
    ------
    TrainyardError
        If the trace or a stored result was removed meanwhile.
    """
    return _build_view_cached(views.key_of(compared, choice), compared, choice)


@st.cache_resource(max_entries=128, show_spinner=False)
def _build_view_cached(
    key: tuple[object, ...], _compared: ComparedRuns, _choice: ComparisonChoice
) -> ComparisonView:
    """Return the view of a comparison, cached by its key."""
    del key
    window = ComparisonChoice(window=_choice.window)
    seen = _zoom_cached(views.key_of(_compared, window), _compared, _choice.window)
    return views.build(
        seen, _choice, *(compare_jobs(runs, _choice) for runs in (seen, seen.before))
    )


def compare_jobs(compared: ComparedRuns | None, choice: ComparisonChoice) -> GroupComparison | None:
    """Return the comparison over the chosen group and window, cached; None = all jobs."""
    if compared is None or (choice.group is None and choice.window is None):
        return None
    return _compare_jobs(compared.report.mark, choice.group, choice.window, compared)


@st.cache_resource(max_entries=64, show_spinner=False)
def _zoom_cached(
    key: tuple[object, ...], _compared: ComparedRuns, _window: Window | None
) -> ComparedRuns:
    """Return the comparison within a zoom window, cached by its key."""
    # Views of other policies, metrics and groups share the frames of a window.
    del key
    return _compared.with_window(_window)


@st.cache_resource(max_entries=24, show_spinner=False)
def _compare_jobs(
    cache_key: str, group: tuple[str, str] | None, window: Window | None, _compared: ComparedRuns
) -> GroupComparison | None:
    """Return the comparison over a group (grouping title, name) within a window; cached."""
    del cache_key
    return _compared.details.of_jobs(group, window)


def compare_displayed(
    session: state.Session, title: str, about: str, *, has_ledger: bool = False
) -> ComparedRuns | None:
    """Return the displayed comparison, or draw an empty state and return None.

    Also draws warnings about outdated, failed and cancelled runs, and drops a zoom window outside
    the run.

    Parameters
    ----------
    session : Session
        State of this session.
    title, about : str
        Title of the page, and what it will show.
    has_ledger : bool
        Whether the page has a ledger, with a row for each policy without a result.
    """
    if session.displayed_study is None:
        empty_states.draw_not_run(session, title, about)
        return None
    runs = stored_results.gather(session.displayed_study)
    if not has_ledger:
        empty_states.draw_outdated(session)
    empty_states.draw_failures(session, runs, has_ledger=has_ledger)
    compared = compare(runs)
    if compared is None:
        empty_states.draw_incomplete(session, title)
    else:
        zoom_window.drop_outside(compared.report.end_s)
    return compared


def highlighted_policy(report: ComparisonReport) -> str:
    """Return the policy highlighted in the URL, else the subject of the headline."""
    url_title = url_params.get(url_params.HIGH)
    if url_title in report.labels:
        return url_title
    goal = st.session_state.get(url_params.GOAL) or url_params.get(url_params.GOAL)
    return report.headlines.get(goal, report.first_headline).subject


def hidden_policies(titles: Sequence[str]) -> tuple[str, ...]:
    """Return the titles of policies with hidden lines, from the URL."""
    hidden = url_params.get_titles(url_params.HIDE)
    return tuple(title for title in titles if title in hidden)


def draw_accuracy(report: ComparisonReport) -> None:
    """Draw the error of simulated against recorded waits, or why there is none."""
    if report.trust is None:
        st.caption(report.untold)
        return
    with st.expander(words.plain(report.trust.sentence())):
        rows = metric_table.accuracy_table(report.trust)
        jobs = st.column_config.NumberColumn(format="localized")
        figure.draw_table(rows, hide_index=True, height="content", column_config={"Jobs": jobs})
        st.caption(
            "Absolute error of the wait (first start − submission) against the recorded wait, by"
            " requested GPUs."
        )
    st.page_link(
        "pages/plan.py",
        label="Backtest a policy",
        icon=":material/history:",
        query_params=state.url_parameters() | {url_params.TAB: url_params.PAST},
    )
