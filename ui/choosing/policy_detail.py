"""Detail of one policy: rule, cost, limits, stored result, settings, decisions, source."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.labs.replays import cards
from trainyard.labs.replays.types import ReplayCard
from trainyard.preflight import preflight
from trainyard.results import decision_picture
from trainyard.study import catalog
from trainyard.study.catalog import CatalogEntry
from trainyard.study.study import MAX_NAME_LENGTH, Study, clean_name, titles
from trainyard.views import inputs
from ui import figure, state, url_params, words
from ui.choosing import forms, policy_results, policy_rows
from ui.choosing.policy_rows import PolicyRow, PolicyRows

OPEN: Final = "policy"
"""URL parameter: the row with the open detail."""
_GOALS: Final[Mapping[str, str]] = {
    "baseline": "reference",
    "heterogeneous": "mixed GPU types",
    "elastic": "elastic jobs",
    "combined": "combined policies",
}
"""Labels of goals that differ from their names."""
_NAME: Final = "Letters, digits and . , + - = ( ) / % only. Empty: named after its settings."
_FIRST: Final = 3
"""Settings outside the expander; they are declared in the order of use."""


def draw(row: PolicyRow, rows: PolicyRows, choice: CatalogEntry, largest: int) -> None:
    """Draw the detail of a policy: rule, cost, limits, stored result, buttons, and tabs.

    Parameters
    ----------
    row : PolicyRow
        The row.
    rows : PolicyRows
        All rows.
    choice : CatalogEntry
        Its policy, with the reason if it cannot run.
    largest : int
        GPUs of the largest job.
    """
    card = choice.card
    assert card is not None, "every policy of the registry has a card"
    study = state.session().study
    with st.container(border=True, key="policy_detail"):
        st.subheader(words.plain(rows.titles[rows.rows.index(row)]), anchor=False)
        st.html(
            '<div class="ty-tags">'
            + "".join(f"<span>{html.escape(_GOALS.get(goal, goal))}</span>" for goal in card.goals)
            + "</div>"
        )
        st.markdown(words.plain(card.what))
        st.markdown(f"**Trade-off**  \n{words.plain(card.cost)}")
        st.markdown(f"**Limits**  \n{words.plain(card.limits)}")
        _draw_on_these_jobs(row, choice, study, largest)
        _draw_buttons(row, rows, choice, study)
        tabs: url_params.Tabs = {
            "settings": ("Settings", lambda: _draw_settings(row, rows, choice)),
            "how": ("How it decides", lambda: _draw_how(choice)),
            "source": ("Source", lambda: _draw_source(choice)),
        }
        requested = url_params.get(url_params.TAB)
        url_params.draw_tabs(tabs, requested if requested in tabs else "settings", "policy_tabs")


def _draw_on_these_jobs(row: PolicyRow, choice: CatalogEntry, study: Study, largest: int) -> None:
    """Draw the stored result of the policy on these jobs, or why it cannot run, and warnings."""
    if choice.reason:
        st.markdown(f":material/block: Cannot run: {words.plain(words.in_sentence(choice.reason))}")
    elif result := policy_results.describe_result(row.spec, study):
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
def _warnings(cache_key: str, _spec: Spec, _overheads: Spec, largest: int) -> tuple[str, ...]:
    """Return the warnings on a policy's settings; `largest` = GPUs of the largest job; cached."""
    del cache_key
    return preflight.warnings(_spec, _overheads, largest)


def _draw_buttons(row: PolicyRow, rows: PolicyRows, choice: CatalogEntry, study: Study) -> None:
    """Draw the buttons of a row: compare or remove, add a variant, delete."""
    with st.container(horizontal=True, gap="small"):
        is_compared = row.study_index is not None
        is_last = is_compared and len(study.allocators) == 1
        card = cards.find_card(row.spec.name) if choice.reason else None
        if card is not None:
            st.button(
                "Use a trace where it acts",
                key="acting_trace",
                icon=":material/swap_horiz:",
                help=f"Replaces jobs, cluster and policies by those of “{card.title}”.",
                on_click=_on_use_acting_trace,
                args=(card, row.spec.name),
            )
        st.button(
            "Remove from comparison" if is_compared else "Add to comparison",
            key="compare_it",
            disabled=is_last or bool(choice.reason and not is_compared),
            help="At least one policy stays in the comparison." if is_last else None,
            on_click=_on_tick,
            args=(row.id, rows, not is_compared),
        )
        if choice.params:
            st.button(
                "Add a variant",
                key="add_variant",
                icon=":material/add:",
                type="tertiary",
                on_click=_on_add_variant,
                args=(row, rows, bool(choice.reason)),
            )
        if row.is_variant:
            st.button(
                "Delete",
                key="delete_variant",
                icon=":material/delete:",
                type="tertiary",
                disabled=is_last,
                on_click=_on_delete_variant,
                args=(row, rows),
            )


def _on_use_acting_trace(card: ReplayCard, policy: str) -> None:
    """Replace the study by the comparison of a card, with a policy that acts on its jobs."""
    state.session().replace(cards.card_study(card, policy))


def _on_tick(row_id: str, rows: PolicyRows, on: bool) -> None:
    """Add the policy of a row to the comparison, or remove it; the last one stays."""
    session = state.session()
    session.edit(policy_rows.with_ticks(session.study, rows, {row_id: on}))


def _on_add_variant(row: PolicyRow, rows: PolicyRows, barred: bool) -> None:
    """Add a variant of a policy and open it; compare it unless it cannot run (`barred`)."""
    session, variant = state.session(), rows.add(row.spec)
    variant.stays_listed = True
    if not barred:
        session.edit(policy_rows.with_ticks(session.study, rows, {variant.id: True}))
    url_params.set_param(OPEN, variant.id)


def _on_delete_variant(row: PolicyRow, rows: PolicyRows) -> None:
    """Delete a variant from the list and the study; open the policy's first row."""
    session = state.session()
    row.stays_listed = False
    if row.study_index is not None:
        session.edit(policy_rows.without_rows(session.study, rows, [row]))
    rows.rows.remove(row)
    url_params.set_param(OPEN, row.spec.name)


def _draw_settings(row: PolicyRow, rows: PolicyRows, choice: CatalogEntry) -> None:
    """Draw and apply the settings of a row; list which lines of its files are simulated."""
    key = state.widget_key("policy", row.id)
    if len(rows.rows_of(row.spec.name)) > 1:
        _draw_name(row, rows, f"{key}/name")
    values = dict(row.spec.values)
    entered = forms.draw_fields(choice.params[:_FIRST], values, key)
    others = choice.params[_FIRST:]
    if others:
        changed = sum(info.name in values for info in others)
        others_text = words.plural(len(others), "more setting")
        label = f"{others_text}, {changed} changed" if changed else others_text
        entered |= {info.name: values[info.name] for info in others if info.name in values}
        with st.expander(label, key=f"more/{row.id}", on_change="rerun") as box:
            if box.open:
                entered |= forms.draw_fields(others, values, key)
    _apply_spec(row, Spec.of(row.spec.name, **entered), choice)
    lines = catalog.file_findings(row.spec)
    if lines:
        not_simulated = sum(line["Effect"] not in {"used", "without effect here"} for line in lines)
        count = (
            f"{words.plural(not_simulated, 'setting')} not simulated"
            if not_simulated
            else "all simulated"
        )
        with st.expander(f"Lines of your files: {count}"):
            st.dataframe(lines, hide_index=True)


def _draw_name(row: PolicyRow, rows: PolicyRows, key: str) -> None:
    """Draw the field for the name of a row; save a new name and rerun."""
    by_settings = titles([row_of_list.spec for row_of_list in rows.rows])[rows.rows.index(row)]
    name = st.text_input(
        "Name", row.name, MAX_NAME_LENGTH, key=key, placeholder=by_settings, help=_NAME
    )
    if clean_name(name) != row.name:
        session = state.session()
        session.edit(policy_rows.with_name(session.study, row, name))
        st.rerun()


def _apply_spec(row: PolicyRow, spec: Spec, choice: CatalogEntry) -> None:
    """Save changed settings in the study and rerun, or draw why they are invalid."""
    session = state.session()
    try:
        canonical = catalog.canonical("allocator", spec)
    except TrainyardError as error:
        st.error(
            words.plain(f"{error} The last valid settings stay in use."),
            icon=":material/error:",
        )
        return
    for remark in catalog.allocator(canonical).remarks:
        if remark not in choice.remarks:
            st.caption(f":material/info: {words.plain(remark)}")
    if canonical != row.spec:
        session.edit(policy_rows.with_settings(session.study, row, canonical))
        # The list and the title are above the form.
        st.rerun()


def _draw_how(choice: CatalogEntry) -> None:
    """Draw how a policy decides: the steps of its card and a picture of an example."""
    assert choice.card is not None, "see draw"
    st.markdown(
        "\n".join(
            f"{number}. {words.plain(line)}" for number, line in enumerate(choice.card.how, 1)
        )
    )
    try:
        picture = decision_picture.run_example(choice.name)
    except TrainyardError as error:
        st.caption(f"No picture: {words.plain(str(error))}")
        return
    figure.draw(inputs.decision(choice.title, choice.name, picture))


def _draw_source(choice: CatalogEntry) -> None:
    """Draw the publication of a policy and how certain its rule is."""
    card = choice.card
    assert card is not None, "see draw"
    st.markdown(
        f"{words.plain(card.source)}."
        f"  \n{words.plain(card.certainty[:1].upper() + card.certainty[1:])}."
    )
