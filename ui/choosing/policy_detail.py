"""One policy of the Policies page: what it does, costs and does not know, its stored result, its
settings, how it decides and where it comes from.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.preflight import preflight
from trainyard.results import decision_picture
from trainyard.study import catalog
from trainyard.study.catalog import CatalogEntry
from trainyard.study.study import LONGEST_NAME, Study, cleaned, titles
from trainyard.views import inputs
from ui import figure, state, url_params, words
from ui.choosing import forms, policy_results, policy_rows
from ui.choosing.policy_rows import PolicyRow, PolicyRows

OPEN: Final = "policy"
"""Parameter of the address: the row whose detail is shown."""
_GOALS: Final[Mapping[str, str]] = {
    "baseline": "reference",
    "heterogeneous": "mixed GPU types",
}
"""Goals of cards that are called otherwise here."""
_NAME: Final = "Letters, digits and . , + - = ( ) / % are kept. Empty = named after its settings."
_FIRST: Final = 3
"""Settings that are always shown: declared in the order of their use."""


def draw(row: PolicyRow, rows: PolicyRows, choice: CatalogEntry, largest: int) -> None:
    """Draw the detail of a row.

    Parameters
    ----------
    row : PolicyRow
        The row.
    rows : PolicyRows
        All of them.
    choice : CatalogEntry
        Its policy, with what keeps it from running here.
    largest : int
        GPUs of the largest job.
    """
    about = choice.card
    assert about is not None, "every policy of the registry has a card"
    study = state.session().study
    with st.container(border=True, key="policy_detail"):
        st.subheader(words.plain(rows.titles[rows.rows.index(row)]), anchor=False)
        goals = "".join(
            f"<span>{html.escape(_GOALS.get(goal, goal))}</span>" for goal in about.goals
        )
        st.html(f'<div class="ty-tags">{goals}</div>')
        st.markdown(words.plain(about.what))
        st.markdown(f"**What it costs**  \n{words.plain(about.cost)}")
        st.markdown(f"**What it does not know**  \n{words.plain(about.limits)}")
        _here(row, choice, study, largest)
        _buttons(row, rows, choice, study)
        known: url_params.Tabs = {
            "settings": ("Settings", lambda: _settings(row, rows, choice)),
            "how": ("How it decides", lambda: _how(choice)),
            "source": ("Source", lambda: _source(choice)),
        }
        asked = url_params.get(url_params.TAB)
        url_params.draw_tabs(known, asked if asked in known else "settings", "policy_tabs")


def _here(row: PolicyRow, choice: CatalogEntry, study: Study, largest: int) -> None:
    """Say how it did on these jobs, or why it cannot run on them."""
    if choice.reason:
        st.markdown(f":material/block: Cannot run here: {words.plain(choice.reason)}")
    elif result := policy_results.sentence(row.spec, study):
        st.markdown(f"**On these jobs**  \n{result}")
    overheads = study.base.overheads
    remarks = [f":material/info: {words.plain(text)}" for text in choice.remarks]
    remarks += [
        f":material/warning: {words.plain(text)}"
        for text in _warnings(f"{row.spec} {overheads}", row.spec, overheads, largest)
    ]
    for remark in remarks:
        st.caption(remark)


@st.cache_data(max_entries=256, show_spinner=False)
def _warnings(mark: str, _spec: Spec, _overheads: Spec, largest: int) -> tuple[str, ...]:
    del mark
    return preflight.warnings(_spec, _overheads, largest)


def _buttons(row: PolicyRow, rows: PolicyRows, choice: CatalogEntry, study: Study) -> None:
    with st.container(horizontal=True, gap="small"):
        compared = row.at is not None
        last = compared and len(study.allocators) == 1
        st.button(
            "Remove from comparison" if compared else "Compare it",
            key="compare_it",
            disabled=last or bool(choice.reason and not compared),
            help="At least one policy stays in the comparison." if last else None,
            on_click=_tick,
            args=(row.id, rows, not compared),
        )
        if choice.params:
            st.button(
                "Add a variant",
                key="add_variant",
                icon=":material/add:",
                type="tertiary",
                on_click=_add,
                args=(row, rows, bool(choice.reason)),
            )
        if row.is_variant:
            st.button(
                "Delete",
                key="delete_variant",
                icon=":material/delete:",
                type="tertiary",
                disabled=last,
                on_click=_delete,
                args=(row, rows),
            )


def _tick(row_id: str, rows: PolicyRows, on: bool) -> None:
    session = state.session()
    session.edit(policy_rows.ticked(session.study, rows, {row_id: on}))


def _add(row: PolicyRow, rows: PolicyRows, barred: bool) -> None:
    session, made = state.session(), rows.add(row.spec)
    made.kept = True
    if not barred:
        session.edit(policy_rows.ticked(session.study, rows, {made.id: True}))
    url_params.put(OPEN, made.id)


def _delete(row: PolicyRow, rows: PolicyRows) -> None:
    session = state.session()
    row.kept = False
    if row.at is not None:
        session.edit(policy_rows.without(session.study, rows, [row]))
    rows.rows.remove(row)
    url_params.put(OPEN, row.spec.name)


def _settings(row: PolicyRow, rows: PolicyRows, choice: CatalogEntry) -> None:
    key = state.widget_key("policy", row.id)
    if len(rows.of(row.spec.name)) > 1:
        _name(row, rows, f"{key}/name")
    values = dict(row.spec.values)
    made = forms.fields(choice.params[:_FIRST], values, key)
    others = choice.params[_FIRST:]
    if others:
        changed = sum(info.name in values for info in others)
        more = words.plural(len(others), "more setting")
        label = f"{more}, {changed} changed" if changed else more
        made |= {info.name: values[info.name] for info in others if info.name in values}
        with st.expander(label, key=f"more/{row.id}", on_change="rerun") as box:
            if box.open:
                made |= forms.fields(others, values, key)
    _take(row, Spec.of(row.spec.name, **made), choice)
    lines = catalog.lines_read(row.spec)
    if lines:
        missed = sum(one["Effect"] not in {"used", "without effect here"} for one in lines)
        count = f"{words.plural(missed, 'setting')} not simulated" if missed else "all simulated"
        with st.expander(f"What becomes of each line of your files: {count}"):
            st.dataframe(lines, hide_index=True)


def _name(row: PolicyRow, rows: PolicyRows, key: str) -> None:
    by_settings = titles([one.spec for one in rows.rows])[rows.rows.index(row)]
    name = st.text_input(
        "Name", row.name, LONGEST_NAME, key=key, placeholder=by_settings, help=_NAME
    )
    if cleaned(name) != row.name:
        session = state.session()
        session.edit(policy_rows.renamed(session.study, row, name))
        st.rerun()


def _take(row: PolicyRow, spec: Spec, choice: CatalogEntry) -> None:
    session = state.session()
    try:
        tidy = catalog.canonical("allocator", spec)
    except TrainyardError as error:
        st.error(
            words.plain(f"{error} Until then the last values that go together are used."),
            icon=":material/error:",
        )
        return
    for remark in catalog.allocator(tidy).remarks:
        if remark not in choice.remarks:
            st.caption(f":material/info: {words.plain(remark)}")
    if tidy != row.spec:
        session.edit(policy_rows.changed(session.study, row, tidy))
        # The list and the title stand above the form.
        st.rerun()


def _how(choice: CatalogEntry) -> None:
    assert choice.card is not None, "see draw"
    st.markdown(
        "\n".join(f"{at}. {words.plain(line)}" for at, line in enumerate(choice.card.how, 1))
    )
    try:
        made = decision_picture.picture(choice.name)
    except TrainyardError as error:
        st.caption(f"There is no picture: {words.plain(str(error))}")
        return
    figure.draw(inputs.decision(choice.title, choice.name, made))


def _source(choice: CatalogEntry) -> None:
    about = choice.card
    assert about is not None, "see draw"
    st.markdown(
        f"{words.plain(about.source)}."
        f"  \n{words.plain(about.certainty[:1].upper() + about.certainty[1:])}."
    )
