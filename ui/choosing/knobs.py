"""What else may differ from the recorded world: restart cost, failures, how jobs scale and what is believed of it, each a form of its declared parameters."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from sim.trace import Trace
from trainyard.results import plainest
from trainyard.store import profiles
from trainyard.study import catalog
from trainyard.study.catalog import Choice
from trainyard.study.scenario import NEW_COSTS, NO_OVERHEADS
from trainyard.traces import start
from ui import server, state, words
from ui.choosing import forms
from ui.choosing import profiles as profile_form


def draw() -> None:
    """Draw the forms, folded; an unusable value is said and not taken over."""
    base = state.desk().study.base
    # Filled after the forms, which may change what it says.
    said = st.container()
    with st.expander("Restart cost and checkpoints", expanded=base.overheads not in (NO_OVERHEADS, NEW_COSTS)):
        _measured()
        _single("overheads")
    with st.expander("Failures and repairs", expanded=bool(base.faults.params)):
        _single("faults")
    with said:
        now = state.desk().study.base
        st.caption(f"Restart cost: {_set_values('overheads', now.overheads)} · failures: {_set_values('faults', now.faults)}")
    st.page_link("pages/policies.py", label="How fast jobs run, and what schedulers are told of it: see Policies", icon=":material/speed:")


def _set_values(kind: str, chosen: Spec) -> str:
    """Return in words what is not at its default."""
    labels = {info.name: _uncapitalised(forms.label(info)) for info in catalog.choice_params(kind)}
    return (
        words.plain(", ".join(f"{labels[name]} {value:g}" if isinstance(value, float) else f"{labels[name]} {value}" for name, value in chosen.params))
        or "none"
    )


def _uncapitalised(label: str) -> str:
    return label[:1].lower() + label[1:]


def belief() -> None:
    """Draw what schedulers that ask are told of run times, folded."""
    now = state.desk().study.base.belief
    with st.expander("What schedulers believe of run times", expanded=now != catalog.canonical("belief", Spec("exact"))):
        _chosen("belief", "Belief", catalog.beliefs())
        st.caption("For the policies below that need a guess at run times; how near it came to the truth is shown with the results.")


def scaling(trace: Trace | None) -> None:
    """Draw how fast jobs run at other sizes, and what that assumes of the jobs of this trace."""
    now = state.desk().study.base.perf
    by_name = {choice.name: choice for choice in catalog.perf_models()}
    with st.container(border=True):
        name = st.segmented_control(
            "How fast jobs run",
            list(by_name),
            default=now.name,
            required=True,
            key=state.widget("perf"),
            format_func=lambda one: by_name[one].title,
            wrap=True,
        )
        st.caption(words.plain(by_name[name].help))
        # Drawn above the form that may change what is assumed, filled after it.
        said = st.container()
        if profiles.is_profiled(Spec(name)):
            _take("perf", profile_form.form(now if now.name == name else Spec(name), state.widget("perf", name)))
        elif by_name[name].params:
            with st.expander("Parameters of the model", expanded=False):
                _take("perf", forms.spec(name, now if now.name == name else Spec(name), state.widget("perf", name)))
        else:
            _take("perf", Spec(name))
        with said:
            _assumed(trace)
        profile_form.findings()


def can_scale(spec: Spec) -> bool:
    """Tell whether jobs may run at other sizes than they asked for under this performance model."""
    return bool(catalog.instance("perf", spec).scales)


def let_scale() -> None:
    """Take the first performance model under which jobs can be resized."""
    mine = state.desk()
    name = next(choice.name for choice in catalog.perf_models() if can_scale(Spec(choice.name)))
    mine.replace(start.with_model(mine.study, "perf", Spec(name)))


def selectable(trace: Trace | None) -> None:
    """Draw the button that takes the plainest performance model under which the most policies can run, while fewer can; say before what it assumes."""
    mine = state.desk()
    if trace is None:
        return
    policies = [Spec(choice.name) for choice in catalog.allocator_choices()]
    barred = [choice.title for choice in catalog.allocator_choices(trace, mine.study.base.perf) if choice.reason]
    perf = plainest.for_all(policies, trace, mine.study.base.cluster) if barred else mine.study.base.perf
    gained = [choice.title for choice in catalog.allocator_choices(trace, perf) if choice.title in barred and not choice.reason]
    if not gained:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Make all selectable", key="selectable", icon=":material/select_all:"):
            mine.replace(start.with_model(mine.study, "perf", perf))
            mine.news = f"Jobs run under “{catalog.model_title(perf)}”. What that assumes of this trace stands below it."
            st.rerun()
        st.caption(words.plain(f"{', '.join(gained)} cannot run under this model, but under “{catalog.model_title(perf)}”, with more assumptions."))


def _assumed(trace: Trace | None) -> None:
    if trace is None:
        return
    try:
        sentences = profiles.assumptions(state.desk().study.base.perf, trace, server.store())
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    for sentence in sentences:
        st.markdown(f":material/info: {words.plain(sentence)}")


def _measured() -> None:
    """Draw the measured times of checkpoints, which fill the form below."""
    by_name = {choice.name: choice for choice in catalog.checkpoints()}
    name = st.selectbox("Fill in measured times", list(by_name), None, key=state.widget("checkpoints"), format_func=lambda one: by_name[one].title, width=320)
    if name is None:
        return
    mine = state.desk()
    before = mine.study.base.overheads
    made = catalog.canonical("overheads", Spec.of(before.name, **{**before.values, **catalog.checkpoint_values(name)}))
    mine.replace(start.with_model(mine.study, "overheads", made))
    mine.news = f"{by_name[name].title}: {by_name[name].help}."
    st.rerun()


def _single(kind: str) -> None:
    chosen: Spec = getattr(state.desk().study.base, kind)
    _take(kind, forms.spec(kind, chosen, state.widget(kind)))


def _chosen(kind: str, label: str, choices: Sequence[Choice]) -> None:
    now: Spec = getattr(state.desk().study.base, kind)
    by_name = {choice.name: choice for choice in choices}
    names = list(by_name)
    name = st.selectbox(label, names, names.index(now.name), key=state.widget(kind), format_func=lambda one: by_name[one].title)
    st.caption(by_name[name].help)
    _take(kind, forms.spec(name, now if now.name == name else Spec(name), state.widget(kind, name)))


def _take(kind: str, spec: Spec) -> None:
    mine = state.desk()
    try:
        made = catalog.canonical(kind, spec)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    if made != getattr(mine.study.base, kind):
        mine.edit(start.with_model(mine.study, kind, made))
