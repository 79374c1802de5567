"""Your runs, on Start: what this browser has run or opened, found again, named, set beside each
other, taken elsewhere, and deleted; and the field that opens what was saved or exported.
"""

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
from trainyard.library import archive, library
from trainyard.library.library import Beside, Item, Recipe
from trainyard.runs.disconnects import tidy
from trainyard.study.branch import FromHere
from trainyard.study.check import Check
from trainyard.study.study import Study
from trainyard.text import moment
from trainyard.traces import bundle, intake, start
from trainyard.views import charts
from ui import browser_identity, received, server, state, stored_results, words
from ui.planning import capacity as plan
from ui.planning import from_here, past

FILE: Final = "trainyard-runs.zip"
_PAGE: Final = 20
"""Things on one page of the list."""
_LONGEST: Final = 120
"""Characters of a title."""
_DELETED: Final = (
    "Results that nothing else needs, on your list or anybody else's, are deleted; a link to them"
    " then offers to run again."
)
_MOST_CHANGES: Final = 4
_SEARCH: Final = "runs/search"
_CHOSEN: Final = "runs/chosen"
_BESIDE: Final = "runs/beside"
_SAID: Final = "runs/said"
_FILES: Final = "Open a scenario file (JSON, or ZIP with its jobs), or exported runs (ZIP)"


@contextmanager
def _sentences() -> Iterator[None]:
    """End what is inside with one sentence when something cannot be done; what is around it goes
    on.
    """
    try:
        yield
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")


@st.fragment
def draw() -> None:
    """Draw the list, unless there is nothing to list."""
    with _sentences():
        search = str(st.session_state.get(_SEARCH, ""))
        found = library.items(server.store(), browser_identity.owner(), search)
        if found or search.strip() or _SAID in st.session_state:
            st.subheader("Your runs", anchor=False)
            _list(found)


def _list(found: Sequence[Item]) -> None:
    st.text_input(
        "Search",
        key=_SEARCH,
        placeholder="name, tag, policy, trace; comparison, sweep, plan or what-if",
        icon=":material/search:",
    )
    if message := st.session_state.pop(_SAID, ""):
        st.success(words.plain(message), icon=":material/check:")
    if not found:
        st.write(
            "Nothing that you ran or opened here contains these words."
            if st.session_state[_SEARCH].strip()
            else "Nothing is left."
        )
        return
    by_id = {one.id: one for one in found}
    chosen = [by_id[mark] for mark in _chosen() if mark in by_id]
    _actions(chosen)
    if len(chosen) == 2 and {one.id for one in chosen} == st.session_state.get(_BESIDE):
        with _sentences():
            _beside(*sorted(chosen, key=lambda one: one.used_s))
    pages = math.ceil(len(found) / _PAGE)
    place = st.container(gap="xxsmall")
    # A shorter list begins at its first page again.
    turned = st.pagination(pages, key=f"runs/page/{pages}") if pages > 1 else 1
    with place:
        for at in range((turned - 1) * _PAGE, min(turned * _PAGE, len(found))):
            _row(found[at], library.predecessor(found, at))
    days = f"{server.store().keep_days:g}"
    st.caption(
        f"{len(found):,} in all, seen by this browser only. What has a name or a tag is kept until"
        f" you delete it, results of the rest for {days} days."
    )


def _chosen() -> list[str]:
    known: list[str] = st.session_state.setdefault(_CHOSEN, [])
    return known


def _choose(mark: str) -> None:
    others = [other for other in _chosen() if other != mark]
    st.session_state[_CHOSEN] = [*others, mark] if st.session_state[_box(mark)] else others


def _clear() -> None:
    for mark in _chosen():
        st.session_state[_box(mark)] = False
    st.session_state[_CHOSEN] = []


def _box(mark: str) -> str:
    return f"runs/{mark}/chosen"


def _row(one: Item, before: Item | None) -> None:
    name = words.plain(_name(one))
    with st.container(
        key=f"runs/row/{one.id}",
        horizontal=True,
        vertical_alignment="top",
        gap="xsmall",
        wrap=False,
    ):
        # A box that a search hides is forgotten by Streamlit, the choice is not.
        st.session_state.setdefault(_box(one.id), one.id in _chosen())
        st.checkbox(
            f"Choose {name}",
            key=_box(one.id),
            label_visibility="collapsed",
            on_change=_choose,
            args=(one.id,),
        )
        with st.container(gap=None):
            if st.button(name, key=f"runs/open/{one.id}", type="tertiary"):
                with _sentences():
                    _open(one)
            st.caption(
                words.plain(_about(one, _changes(before.id, one.id, before, one) if before else ()))
            )


def _name(one: Item) -> str:
    return charts.visible(one.name or one.title, _LONGEST)


@st.cache_data(max_entries=4096, show_spinner=False)
def _changes(old: str, new: str, _old: Item, _new: Item) -> tuple[str, ...]:
    """Return what tells a comparison from an earlier one of the same title."""
    del old, new
    try:
        return library.changes(server.store(), _old, _new)
    except TrainyardError:
        return ()  # opening it says why it cannot be read


def _about(one: Item, changes: Sequence[str]) -> str:
    kind = library.KINDS.get(one.kind, one.kind).capitalize()
    title = [charts.visible(one.title, _LONGEST)] if one.name else []
    tags = [f"tags: {', '.join(one.tags)}"] if one.tags else []
    zone = _zone()
    more = ["; ".join(changes[:_MOST_CHANGES])] if changes else []
    return " · ".join(
        [
            kind,
            *title,
            *more,
            _runs(one),
            moment(datetime.fromtimestamp(one.used_s, zone), datetime.now(zone)),
            *tags,
        ]
    )


def _runs(one: Item) -> str:
    if one.there == one.runs:
        return words.plural(one.runs, "run")
    return f"{one.there:,} of {one.runs:,} runs kept" if one.there else "no run is kept"


def _zone() -> tzinfo:
    """Return where the browser is."""
    offset_min = st.context.timezone_offset
    try:
        return ZoneInfo(str(st.context.timezone))
    except (KeyError, ValueError, OSError):  # a name that this system does not know
        return timezone(timedelta(minutes=-offset_min)) if isinstance(offset_min, int) else UTC


def _actions(chosen: Sequence[Item]) -> None:
    # As high when empty as when full: the rows below must not move under a pointer.
    with st.container(
        key="runs/actions", horizontal=True, vertical_alignment="center", gap="small"
    ):
        if not chosen:
            st.caption(
                "Press a title to open it. Tick one to name, export or delete it, two to compare"
                " them."
            )
            return
        st.markdown(f"{len(chosen)} chosen")
        if len(chosen) == 1:
            # Another key closes it once they are saved.
            with st.popover(
                "Name and tags",
                icon=":material/label:",
                key=f"runs/naming/{hash((chosen[0].id, chosen[0].name, chosen[0].tags))}",
            ):
                _label(chosen[0])
        if len(chosen) == 2 and st.button(
            "Compare", key="runs/compare", icon=":material/compare_arrows:"
        ):
            st.session_state[_BESIDE] = {one.id for one in chosen}
        _export(chosen)
        with st.popover("Delete", icon=":material/delete:"), _sentences():
            _delete(chosen)
        st.button("Choose none", key="runs/none", type="tertiary", on_click=_clear)


def _label(one: Item) -> None:
    with st.form(f"runs/label/{one.id}", border=False):
        name = st.text_input(
            "Name",
            one.name,
            max_chars=library.MOST_NAME,
            key=f"runs/name/{one.id}",
            placeholder="optional",
        )
        tags = st.text_input(
            "Tags",
            ", ".join(one.tags),
            key=f"runs/tags/{one.id}",
            placeholder="with commas between them",
        )
        if st.form_submit_button("Save"):
            with _sentences():
                library.label(
                    server.store(),
                    browser_identity.owner(),
                    one.id,
                    name=name,
                    tags=tags.split(","),
                )
                st.rerun()


def _export(chosen: Sequence[Item]) -> None:
    large = sum(one.kept.size for one in chosen) > archive.MOST_MB * 1e6
    reason = (
        f"More than {archive.MOST_MB:.0f} MB of results: choose fewer."
        if large
        else "With the results that are kept: for another machine, or another browser."
    )
    store, session, ids = server.store(), browser_identity.owner(), [one.id for one in chosen]
    made, icon = (lambda: archive.packed(store, session, ids)[0]), ":material/folder_zip:"
    st.download_button(
        "Export (ZIP)",
        made,
        FILE,
        "application/zip",
        key="runs/export",
        on_click="ignore",
        disabled=large,
        help=reason,
        icon=icon,
    )


def _delete(chosen: Sequence[Item]) -> None:
    st.write(
        f"This takes {'it' if len(chosen) == 1 else f'all {len(chosen)}'} off your list. {_DELETED}"
    )
    if st.button(f"Delete {len(chosen)}", key="runs/delete", icon=":material/delete:"):
        there, gone = sum(one.there for one in chosen), 0
        for one in chosen:
            gone += library.remove(server.store(), browser_identity.owner(), one.id)
        stored_results.forget()
        stay = max(there - gone, 0)
        rest = (
            f" {words.plural(stay, 'result')} {'stays' if stay == 1 else 'stay'}, because other"
            " entries need them."
            if stay
            else ""
        )
        st.session_state[_SAID] = (
            f"{len(chosen)} taken off your list, {words.plural(gone, 'result')} deleted.{rest}"
        )
        _clear()
        # The whole page, because the status tells whether there are results.
        st.rerun()


def _open(one: Item) -> None:
    """Open a thing where it was made, with its results as far as they are kept."""
    recipe, session = _recipe(one), state.session()
    if isinstance(recipe, FromHere):
        session.replace(recipe.study)
        session.shown, session.window = recipe.study, None
        st.switch_page("pages/plan.py", query_params=state.address() | from_here.parameters(recipe))
    if isinstance(recipe, Check):
        session.replace(recipe.study)
        st.switch_page("pages/plan.py", query_params=state.address() | past.parameters(recipe))
    if not isinstance(recipe, Study):
        st.switch_page("pages/plan.py", query_params=state.address() | {plan.ASKED: recipe.pack()})
    study = recipe.named(one.name)
    session.window = None
    if not session.open(study) and not start.trace_is_gone(study, server.store()):
        session.shown = study  # the page says that its results are not kept any more
    st.switch_page("pages/compare.py", query_params=state.address())


def _recipe(one: Item) -> Recipe:
    """Return what was run, if a shared server may work on it: what was imported may name any
    file.
    """
    recipe = one.recipe()
    start.admitted(recipe if isinstance(recipe, Study) else recipe.study)
    return recipe


def _beside(first: Item, second: Item) -> None:
    for one in (first, second):
        _recipe(one)
    found = library.beside(server.store(), first, second)
    with st.container(border=True):
        for side, one in zip("AB", (first, second), strict=True):
            st.markdown(f"**{side}** {words.plain(_name(one))}")
        st.markdown(
            words.plain(
                f"From A to B: {'; '.join(found.changes)}."
                if found.changes
                else "Both have the same settings."
            )
        )
        st.html(_table(found))
        if any(one.kind in ("sweep", "plan") for one in (first, second)):
            st.caption("For a sweep or a plan: its stored runs at the settings of the scenario.")


def _table(found: Beside) -> str:
    """Return the means of both: two lines per policy, the difference below the second."""
    metrics = [metric for name, metric in COLUMNS.items() if name in library.BRIEF]
    head = "".join(
        f'<th scope="col" title="{html.escape(metric.help)}">{html.escape(metric.title)}</th>'
        for metric in metrics
    )
    cells = {
        (str(row["policy"]), str(row["metric"])): row for row in found.means().to_dict("records")
    }
    rows = []
    for policy in dict.fromkeys(policy for policy, _ in cells):
        own = [(metric, cells[policy, metric.name]) for metric in metrics]
        first = "".join(
            f"<td>{words.BY_UNIT[metric.unit](float(row['a']))}</td>" for metric, row in own
        )
        second = "".join(
            f"<td>{words.BY_UNIT[metric.unit](float(row['b']))}{_change(float(row['change']))}</td>"
            for metric, row in own
        )
        rows.append(
            '<tr><th scope="rowgroup"'
            f' rowspan="2">{html.escape(policy)}</th><td>A</td>{first}</tr><tr><td>B</td>{second}</tr>'  # noqa: E501
        )
    note = "Means over the repeats that are kept; differences from A to B."
    table = (
        '<table class="ty"><thead><tr><th'
        f' scope="col">Policy</th><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'  # noqa: E501
    )
    return f'<div class="ty-scroll" tabindex="0">{table}</div><p class="ty-note">{note}</p>'


def _change(share: float) -> str:
    text = words.change(share)
    return f'<span class="diff">{text}</span>' if text else ""


def open_file() -> None:
    """Draw the drop zone for a file, and take it over."""
    session = state.session()
    file = st.file_uploader(
        _FILES, ["json", "zip"], key="scenario_file", max_upload_size=intake.UPLOAD_MB
    )
    if file is None or st.session_state.get("taken_scenario") == file.file_id:
        return
    st.session_state["taken_scenario"], data = file.file_id, received.taken(file, "scenario_file")
    try:
        if archive.is_archive(data):
            _taken_over(data, file.name)
        else:
            _scenario(session, data, file.name)
    finally:
        size = len(data)
        del data
        tidy(size)


def _scenario(session: state.Session, data: bytes, name: str) -> None:
    try:
        found = bundle.opened(data, name, session.study, server.store(), [browser_identity.owner()])
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        st.caption("The scenario that was open before is still in use.")
        return
    shown, gone = session.open(found.study), start.trace_is_gone(found.study, server.store())
    away = (
        f"The scenario was saved with the file {found.away}. Load that file on the Trace page;"
        " until then the trace stays as it was. "
        if found.away
        else ""
    )
    held = f" with {words.plural(found.jobs, 'job')}" if found.jobs else ""
    after = (
        "Its jobs are still missing."
        if gone
        else (
            "Its results are stored here: see Compare."
            if shown
            else "Press Run to see its results."
        )
    )
    # The bar at the top shows the scenario, and is drawn already.
    session.news = f"{name} is open{held}. {away}{after}"
    st.rerun()


def _taken_over(data: bytes, name: str) -> None:
    try:
        taken = archive.unpack(server.store(), browser_identity.owner(), data, name, results=False)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    what = "1 entry is" if len(taken.ids) == 1 else f"{len(taken.ids):,} entries are"
    st.success(
        f"{what} taken over from {words.plain(name)}: see Your runs. {taken.summary}".rstrip(),
        icon=":material/check:",
    )
