"""The capacity tab: the fewest nodes that meet a target, for every policy; and what the address
holds of a search or a sweep.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import streamlit as st

from sim.errors import ParameterError, TrainyardError
from trainyard.library import library
from trainyard.study.document import unpack_document
from trainyard.study.search import SizeQuestion
from trainyard.study.study import Study
from trainyard.study.sweep import Sweep
from trainyard.sweeps import sentences
from trainyard.traces import start
from ui import server, state, url_params, words
from ui.planning import capacity_form as plan_form
from ui.planning import capacity_results as plan_results
from ui.planning import live as plan_live
from ui.planning import sweep_form
from ui.planning.live import Recipe

ASKED: Final = "q"
"""Parameter of the address: the question or the sweep."""
T = TypeVar("T", SizeQuestion, Sweep)
_WRITTEN: Final = "plan_written"
_ADOPTED: Final = "plan_adopted"


def adopt() -> Recipe | None:
    """Take over a question or a sweep from the address, if it is not what this session has written
    there; return it.
    """
    text = url_params.asked(ASKED)
    if not text or text == st.session_state.get(_WRITTEN):
        return None
    st.session_state[_WRITTEN] = text
    try:
        recipe = library.read(unpack_document(text))
        if not isinstance(recipe, SizeQuestion | Sweep):
            raise ParameterError("The address holds neither a search nor a sweep.")
        start.admitted(recipe.study)
        _take_study(recipe.study)
    except TrainyardError as error:
        url_params.put(ASKED, "")
        st.error(words.plain(str(error)), icon=":material/error:")
        return None
    st.session_state[_ADOPTED] = recipe
    plan_live.opened(recipe)
    if isinstance(recipe, SizeQuestion):
        plan_form.take(plan_form.of_question(recipe))
    else:
        sweep_form.take(sweep_form.of_sweep(recipe))
    return recipe


def _take_study(study: Study) -> None:
    """Make the study of a question that of the session, unless it is the same but for what the form
    replaces and what cannot be asked about.
    """
    session, store = state.session(), server.store()
    if not start.trace_is_gone(session.study, store):
        own, _ = sentences.runnable(
            plan_form.with_load(session.study, study.base.trace.load, study.repeats), store
        )
        if own is not None and sweep_form.alike(own, study):
            return
    session.replace(study)


def as_it_came(recipe: T) -> T:
    """Return the question or sweep of a form as it came from the address, if it is still the same.

    Notes
    -----
    A form gives 1.0 for 1, and decides itself how thoroughly is searched: that makes no other
    question, but another id.
    """
    came: T | None = st.session_state.get(_ADOPTED)
    same = (
        replace(recipe, check=came.check)
        if isinstance(recipe, SizeQuestion) and isinstance(came, SizeQuestion)
        else recipe
    )
    return came if came is not None and same == came else recipe


def write(recipe: Recipe) -> None:
    """Put a question or a sweep into the address."""
    text = recipe.pack()
    st.session_state[_WRITTEN] = text
    url_params.put(ASKED, text)


def runnable() -> Study | None:
    """Return the scenario with the policies that can be asked about, and say which are left out;
    None = that was said instead.
    """
    session, store = state.session(), server.store()
    if start.trace_is_gone(session.study, store):
        return None  # said above the page
    if not session.study.base.cluster.groups:
        st.info("The cluster has no nodes, so there is nothing to vary.", icon=":material/dns:")
        st.page_link("pages/cluster.py", label="Build a cluster", icon=":material/dns:")
        return None
    study, left_out = sentences.runnable(session.study, store)
    if study is None:
        st.info(
            "None of the scenario's policies can be asked about other machines or loads. Choose"
            " another one.",
            icon=":material/rule:",
        )
        st.page_link("pages/policies.py", label="Choose policies", icon=":material/rule:")
    for title, why in left_out.items():
        st.caption(f":material/block: {words.plain(f'{title} is left out. {why}')}")
    return study


def draw() -> None:
    """Draw the tab."""
    study = runnable()
    if study is None:
        return
    before = plan_form.asked(study)
    try:
        locked = plan_live.is_going(as_it_came(before.question(study)))
    except TrainyardError:
        locked = False
    line = st.container(horizontal=True, vertical_alignment="center", key="plan_sentence")
    try:
        with line:
            asked = plan_form.draw(study, before, locked=locked)
        question = as_it_came(asked.question(study))
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    write(question)
    each = question.most_runs // len(study.allocators)
    panel = plan_live.Panel(
        question,
        "Search",
        question.most_runs,
        f"at most {words.plural(each, 'run')} per policy",
        partial(plan_results.draw, question, library.identity(question)),
        place=line,
    )
    plan_live.draw(panel)
