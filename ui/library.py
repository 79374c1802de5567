"""The list of runs on Start: search, name, compare, export, delete."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

import streamlit as st

from sim.errors import TrainyardError
from sim.metrics.registry import COLUMNS
from trainyard.formatting import relative_date
from trainyard.library import archive, library
from trainyard.library.library import Item, ItemComparison, Recipe
from trainyard.study.branch_point import FromHere
from trainyard.study.check import Check
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.views import charts
from ui import browser_identity, server, state, stored_results, words
from ui.planning import backtest, mid_run_switch
from ui.planning import buy as plan

FILE: Final = "trainyard-runs.zip"
_PAGE: Final = 20
"""Entries on one page of the list."""
_MAX_TITLE: Final = 120
"""Characters of a title."""
_DELETED: Final = (
    "Results that no other entry needs are deleted, here and in other browsers' lists; links to"
    " them offer to run again."
)
_MAX_CHANGES: Final = 4
_SEARCH: Final = "runs/search"
_CHOSEN: Final = "runs/chosen"
_BESIDE: Final = "runs/beside"
_MESSAGE: Final = "runs/said"


@contextmanager
def _show_errors() -> Iterator[None]:
    """Draw a `TrainyardError` of the block as a message, and continue after the block."""
    try:
        yield
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")


@st.fragment
def draw() -> None:
    """Draw "Your runs", a fragment: search, actions and entries; nothing if the list is empty."""
    with _show_errors():
        search = str(st.session_state.get(_SEARCH, ""))
        items = library.items(server.store(), browser_identity.owner(), search)
        if items or search.strip() or _MESSAGE in st.session_state:
            st.subheader("Your runs", anchor=False)
            _draw_list(items)


def _draw_list(items: Sequence[Item]) -> None:
    """Draw the search field, actions on ticked entries, a comparison of two, and a page."""
    st.text_input(
        "Search",
        key=_SEARCH,
        placeholder="name, tag, policy, trace; comparison, sweep, plan or what-if",
        icon=":material/search:",
    )
    if message := st.session_state.pop(_MESSAGE, ""):
        st.success(words.plain(message), icon=":material/check:")
    if not items:
        st.write(
            "No entry contains these words."
            if st.session_state[_SEARCH].strip()
            else "The list is empty."
        )
        return
    by_id = {item.id: item for item in items}
    chosen_items = [by_id[item_id] for item_id in _chosen_ids() if item_id in by_id]
    _draw_actions(chosen_items)
    if len(chosen_items) == 2 and {item.id for item in chosen_items} == st.session_state.get(
        _BESIDE
    ):
        with _show_errors():
            _draw_comparison(*sorted(chosen_items, key=lambda item: item.used_s))
    pages = math.ceil(len(items) / _PAGE)
    rows = st.container(gap="xxsmall")
    # A shorter list begins at its first page again.
    page = st.pagination(pages, key=f"runs/page/{pages}") if pages > 1 else 1
    with rows:
        for index in range((page - 1) * _PAGE, min(page * _PAGE, len(items))):
            _draw_row(items[index], library.predecessor(items, index))
    days = f"{server.store().keep_days:g}"
    st.caption(
        f"{len(items):,} in all, visible in this browser only. Named or tagged entries stay until"
        f" you delete them, other results {days} days."
    )


def _chosen_ids() -> list[str]:
    """Return the ids of the ticked entries, in the order of ticking."""
    ids: list[str] = st.session_state.setdefault(_CHOSEN, [])
    return ids


def _on_tick(item_id: str) -> None:
    """Add an entry to the ticked ones or remove it, as its checkbox says."""
    others = [other for other in _chosen_ids() if other != item_id]
    st.session_state[_CHOSEN] = (
        [*others, item_id] if st.session_state[_checkbox_key(item_id)] else others
    )


def _untick_all() -> None:
    """Untick all entries."""
    for item_id in _chosen_ids():
        st.session_state[_checkbox_key(item_id)] = False
    st.session_state[_CHOSEN] = []


def _checkbox_key(item_id: str) -> str:
    """Return the widget key of an entry's checkbox."""
    return f"runs/{item_id}/chosen"


def _draw_row(item: Item, before: Item | None) -> None:
    """Draw one entry: checkbox, title that opens it, and a line with its changes and runs.

    `before` is the entry to list changes against, or None.
    """
    name = words.plain(_title_of(item))
    with st.container(
        key=f"runs/row/{item.id}",
        horizontal=True,
        vertical_alignment="top",
        gap="xsmall",
        wrap=False,
    ):
        # Streamlit forgets a checkbox that a search hides; the session keeps the choice.
        st.session_state.setdefault(_checkbox_key(item.id), item.id in _chosen_ids())
        st.checkbox(
            f"Choose {name}",
            key=_checkbox_key(item.id),
            label_visibility="collapsed",
            on_change=_on_tick,
            args=(item.id,),
        )
        with st.container(gap=None):
            if st.button(name, key=f"runs/open/{item.id}", type="tertiary"):
                with _show_errors():
                    _open(item)
            st.caption(
                words.plain(
                    _describe(item, _changes(before.id, item.id, before, item) if before else ())
                )
            )


def _title_of(item: Item) -> str:
    """Return the visible title of an entry: its name, else its own title."""
    return charts.visible(item.name or item.title, _MAX_TITLE)


@st.cache_data(max_entries=4096, show_spinner=False)
def _changes(old: str, new: str, _old: Item, _new: Item) -> tuple[str, ...]:
    """Return the changed settings of an entry against an earlier one; cached.

    Empty if one of them cannot be read.
    """
    del old, new
    try:
        return library.changes(server.store(), _old, _new)
    except TrainyardError:
        return ()  # opening it says why it cannot be read


def _describe(item: Item, changes: Sequence[str]) -> str:
    """Return the line below a title: kind, title if named, changes, runs, date, tags."""
    kind = library.KINDS.get(item.kind, item.kind).capitalize()
    title = [charts.visible(item.title, _MAX_TITLE)] if item.name else []
    tags = [f"tags: {', '.join(item.tags)}"] if item.tags else []
    zone = _browser_zone()
    shown_changes = ["; ".join(changes[:_MAX_CHANGES])] if changes else []
    return " · ".join(
        [
            kind,
            *title,
            *shown_changes,
            _runs_kept(item),
            relative_date(datetime.fromtimestamp(item.used_s, zone), datetime.now(zone)),
            *tags,
        ]
    )


def _runs_kept(item: Item) -> str:
    """Return the number of runs of an entry, and how many results of them are still stored."""
    if item.there == item.runs:
        return words.plural(item.runs, "run")
    return f"{item.there:,} of {item.runs:,} runs kept" if item.there else "no run is kept"


def _browser_zone() -> tzinfo:
    """Return the browser's time zone, else its UTC offset as a zone, else UTC."""
    offset_min = st.context.timezone_offset
    try:
        return ZoneInfo(str(st.context.timezone))
    except (KeyError, ValueError, OSError):  # a name that this system does not know
        return timezone(timedelta(minutes=-offset_min)) if isinstance(offset_min, int) else UTC


def _draw_actions(chosen: Sequence[Item]) -> None:
    """Draw the buttons for ticked entries: name (one), compare (two), export, delete."""
    # The height is fixed: rows below must not move under the pointer.
    with st.container(
        key="runs/actions", horizontal=True, vertical_alignment="center", gap="small"
    ):
        if not chosen:
            st.caption(
                "Press a title to open it. Tick one to name, export or delete it; two to compare."
            )
            return
        st.markdown(f"{len(chosen)} chosen")
        if len(chosen) == 1:
            # A new key closes the popover after saving.
            with st.popover(
                "Name and tags",
                icon=":material/label:",
                key=f"runs/naming/{hash((chosen[0].id, chosen[0].name, chosen[0].tags))}",
            ):
                _draw_label_form(chosen[0])
        if len(chosen) == 2 and st.button(
            "Compare", key="runs/compare", icon=":material/compare_arrows:"
        ):
            st.session_state[_BESIDE] = {item.id for item in chosen}
        _draw_export(chosen)
        with st.popover("Delete", icon=":material/delete:"), _show_errors():
            _draw_delete(chosen)
        st.button("Choose none", key="runs/none", type="tertiary", on_click=_untick_all)


def _draw_label_form(item: Item) -> None:
    """Draw the form for the name and tags of an entry; Save stores both and reruns."""
    with st.form(f"runs/label/{item.id}", border=False):
        name = st.text_input(
            "Name",
            item.name,
            max_chars=library.MAX_NAME_LENGTH,
            key=f"runs/name/{item.id}",
            placeholder="optional",
        )
        tags = st.text_input(
            "Tags",
            ", ".join(item.tags),
            key=f"runs/tags/{item.id}",
            placeholder="separated by commas",
        )
        if st.form_submit_button("Save"):
            with _show_errors():
                library.label_item(
                    server.store(),
                    browser_identity.owner(),
                    item.id,
                    name=name,
                    tags=tags.split(","),
                )
                st.rerun()


def _draw_export(chosen: Sequence[Item]) -> None:
    """Draw the button that downloads the ticked entries as ZIP; disabled if too large."""
    is_large = sum(item.kept.size for item in chosen) > archive.MAX_MB * 1e6
    reason = (
        f"More than {archive.MAX_MB:.0f} MB of results: choose fewer."
        if is_large
        else "With their stored results, for another machine or browser."
    )
    store, session, ids = server.store(), browser_identity.owner(), [item.id for item in chosen]
    make_archive, icon = (
        (lambda: archive.pack_items(store, session, ids)[0]),
        ":material/folder_zip:",
    )
    st.download_button(
        "Export (ZIP)",
        make_archive,
        FILE,
        "application/zip",
        key="runs/export",
        on_click="ignore",
        disabled=is_large,
        help=reason,
        icon=icon,
    )


def _draw_delete(chosen: Sequence[Item]) -> None:
    """Draw what deleting the ticked entries does, and the button that deletes them.

    Afterwards a message is stored for the list, nothing is ticked, and the page reruns.
    """
    st.write(
        f"This removes {'it' if len(chosen) == 1 else f'all {len(chosen)}'} from your list."
        f" {_DELETED}"
    )
    if st.button(f"Delete {len(chosen)}", key="runs/delete", icon=":material/delete:"):
        stored_count, deleted_count = sum(item.there for item in chosen), 0
        for item in chosen:
            deleted_count += library.remove_item(server.store(), browser_identity.owner(), item.id)
        stored_results.forget_entries()
        shared_count = max(stored_count - deleted_count, 0)
        note = (
            f" {words.plural(shared_count, 'result')} {'stays' if shared_count == 1 else 'stay'},"
            " because other entries need them."
            if shared_count
            else ""
        )
        st.session_state[_MESSAGE] = (
            f"{len(chosen)} removed from your list, {words.plural(deleted_count, 'result')}"
            f" deleted.{note}"
        )
        _untick_all()
        # The whole page, because the status line depends on stored results.
        st.rerun()


def _open(item: Item) -> None:
    """Open an entry as the scenario on Compare, or as a plan, backtest or switch on Plan."""
    recipe, session = _admitted_recipe(item), state.session()
    if isinstance(recipe, FromHere):
        session.replace(recipe.study)
        session.displayed_study, session.window = recipe.study, None
        session.forget_before()
        st.switch_page(
            "pages/plan.py",
            query_params=state.url_parameters() | mid_run_switch.url_parameters(recipe),
        )
    if isinstance(recipe, Check):
        session.replace(recipe.study)
        st.switch_page(
            "pages/plan.py", query_params=state.url_parameters() | backtest.url_parameters(recipe)
        )
    if not isinstance(recipe, Study):
        st.switch_page(
            "pages/plan.py", query_params=state.url_parameters() | {plan.ASKED: recipe.pack()}
        )
    study = recipe.with_name(item.name)
    session.window = None
    if not session.open(study) and not new_study.is_trace_missing(study, server.store()):
        session.displayed_study = study  # the page reports that its results are gone
        session.forget_before()
    st.switch_page("pages/compare.py", query_params=state.url_parameters())


def _admitted_recipe(item: Item) -> Recipe:
    """Return an entry's recipe; refuse one with files that a shared server may not open."""
    recipe = item.recipe()
    new_study.refuse_server_file(recipe if isinstance(recipe, Study) else recipe.study)
    return recipe


def _draw_comparison(first: Item, second: Item) -> None:
    """Draw two entries in one frame: titles, changed settings, mean metrics."""
    for item in (first, second):
        _admitted_recipe(item)
    comparison = library.compare_items(server.store(), first, second)
    with st.container(border=True):
        for side, item in zip("AB", (first, second), strict=True):
            st.markdown(f"**{side}** {words.plain(_title_of(item))}")
        st.markdown(
            words.plain(
                f"From A to B: {'; '.join(comparison.changes)}."
                if comparison.changes
                else "Both have the same settings."
            )
        )
        st.html(_comparison_table(comparison))
        if any(item.kind in ("sweep", "plan") for item in (first, second)):
            st.caption("For a sweep or a plan: its stored runs at the settings of the scenario.")


def _comparison_table(comparison: ItemComparison) -> str:
    """Return an HTML table of mean metrics: per policy, row A and row B with its change."""
    metrics = [metric for name, metric in COLUMNS.items() if name in library.BRIEF]
    head = "".join(
        f'<th scope="col" title="{html.escape(metric.help)}">{html.escape(metric.title)}</th>'
        for metric in metrics
    )
    cells = {
        (str(row["policy"]), str(row["metric"])): row
        for row in comparison.means().to_dict("records")
    }
    rows = []
    for policy in dict.fromkeys(policy for policy, _ in cells):
        own = [(metric, cells[policy, metric.name]) for metric in metrics]
        first = "".join(
            f"<td>{words.BY_UNIT[metric.unit](float(row['a']))}</td>" for metric, row in own
        )
        second = "".join(
            f"<td>{words.BY_UNIT[metric.unit](float(row['b']))}{_change_markup(float(row['change']))}</td>"
            for metric, row in own
        )
        rows.append(
            '<tr><th scope="rowgroup"'
            f' rowspan="2">{html.escape(policy)}</th><td>A</td>{first}</tr><tr><td>B</td>{second}</tr>'  # noqa: E501
        )
    note = "Means over the stored repeats; differences are B minus A."
    table = (
        '<table class="ty"><thead><tr><th'
        f' scope="col">Policy</th><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'  # noqa: E501
    )
    return f'<div class="ty-scroll" tabindex="0">{table}</div><p class="ty-note">{note}</p>'


def _change_markup(share: float) -> str:
    """Return a relative change as HTML, or "" if it is too small to show."""
    text = words.change(share)
    return f'<span class="diff">{text}</span>' if text else ""
