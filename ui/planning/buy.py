"""The tab "Buy" of Plan (the cheapest purchase for a target), and searches in the URL."""

from __future__ import annotations

from functools import partial
from typing import Final, TypeVar

import streamlit as st

from sim.errors import ParameterError, TrainyardError
from trainyard.library import library
from trainyard.study.document import unpack_document
from trainyard.study.size_question import SizeQuestion
from trainyard.study.study import Study
from trainyard.study.sweep import Sweep
from trainyard.sweeps import summaries
from trainyard.traces import new_study
from ui import server, state, url_params, words
from ui.planning import buy_form as plan_form
from ui.planning import buy_results as plan_results
from ui.planning import run_panel as plan_live
from ui.planning import sweep_form
from ui.planning.run_panel import Recipe

ASKED: Final = "q"
"""URL parameter: the search or the sweep."""
T = TypeVar("T", SizeQuestion, Sweep)
_WRITTEN: Final = "plan_written"
_ADOPTED: Final = "plan_adopted"


def read_url() -> Recipe | None:
    """Return the search or sweep of a newly followed link after adopting it, else None.

    Adopting puts its study into the session and its values into the form. An invalid link draws an
    error and is removed from the URL.
    """
    text = url_params.get(ASKED)
    if not text or text == st.session_state.get(_WRITTEN):
        return None
    st.session_state[_WRITTEN] = text
    try:
        recipe = library.read_recipe(unpack_document(text))
        if not isinstance(recipe, SizeQuestion | Sweep):
            raise ParameterError("The link has neither a search nor a sweep.")
        new_study.refuse_server_file(recipe.study)
        _adopt_study(recipe.study)
    except TrainyardError as error:
        url_params.set_param(ASKED, "")
        st.error(words.plain(str(error)), icon=":material/error:")
        return None
    st.session_state[_ADOPTED] = recipe
    plan_live.note_link(recipe)
    if isinstance(recipe, SizeQuestion):
        plan_form.set_request(plan_form.request_of(recipe))
    else:
        sweep_form.set_request(sweep_form.request_of(recipe))
    return recipe


def _adopt_study(study: Study) -> None:
    """Replace the scenario by the study of a link, unless only form settings differ."""
    session, store = state.session(), server.store()
    if not new_study.is_trace_missing(session.study, store):
        runnable_study, _ = summaries.without_replays(
            plan_form.with_load_and_repeats(session.study, study.base.trace.load, study.repeats),
            store,
        )
        if runnable_study is not None and sweep_form.equal_but_estimator(runnable_study, study):
            return
    session.replace(study)


def match_link(recipe: T) -> T:
    """Return the followed link's search or sweep if the form's equals it, else the form's.

    Notes
    -----
    A form returns 1.0 for 1 and sets ranges and thoroughness itself: the search is equal, but its
    id would differ.
    """
    linked: T | None = st.session_state.get(_ADOPTED)
    if isinstance(recipe, SizeQuestion) and isinstance(linked, SizeQuestion):
        values = plan_form.request_of(linked)
        is_equal = recipe.study == linked.study and plan_form.request_of(recipe) == values
        return linked if is_equal else recipe
    return linked if linked is not None and recipe == linked else recipe


def write_url(recipe: Recipe) -> None:
    """Write a search or a sweep into the URL, and note that it is not a followed link."""
    text = recipe.pack()
    st.session_state[_WRITTEN] = text
    url_params.set_param(ASKED, text)


def runnable_study() -> Study | None:
    """Return the scenario's study with the policies that can run at other sizes, or None.

    Draws which policies are left out, or why no policy or node can vary. None also without a trace.
    """
    session, store = state.session(), server.store()
    if new_study.is_trace_missing(session.study, store):
        return None  # a warning above the page reports it
    if not session.study.base.cluster.groups:
        st.info("The cluster has no nodes to vary. Add some on Cluster.", icon=":material/dns:")
        st.page_link("pages/cluster.py", label="Build a cluster", icon=":material/dns:")
        return None
    study, left_out = summaries.without_replays(session.study, store)
    if study is None:
        st.info(
            "No policy of the scenario can run with other clusters or loads. Add another one.",
            icon=":material/rule:",
        )
        st.page_link("pages/policies.py", label="Choose policies", icon=":material/rule:")
    for title, reason in left_out.items():
        st.caption(f":material/block: {words.plain(f'{title} is left out. {reason}')}")
    return study


def draw() -> None:
    """Draw the tab "Buy": the form, its search and its results."""
    study = runnable_study()
    if study is None:
        return
    initial = plan_form.current_request(study)
    try:
        is_locked = plan_live.is_running(match_link(initial.question(study)))
    except TrainyardError:
        is_locked = False
    sentence_row = st.container(horizontal=True, vertical_alignment="center", key="plan_sentence")
    try:
        with sentence_row:
            request = plan_form.draw(study, initial, is_locked=is_locked)
        question = match_link(request.question(study))
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    write_url(question)
    panel = plan_live.Panel(
        question,
        "Search",
        question.expected_runs,
        f"about {words.plural(question.expected_runs, 'run')}",
        partial(plan_results.draw, question, library.recipe_id(question)),
        button_place=sentence_row,
    )
    plan_live.draw(panel)
