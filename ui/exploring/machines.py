"""The Explore page above the line of time: which policies, the window, and the machines over time as a heat map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import pandas as pd
import streamlit as st

import charts
from trainyard.results.outcomes import Report, Shown
from trainyard.what_if import explore, tables
from trainyard.what_if.explore import Book, Occupancy
from ui import figure, words
from ui.comparing import comparison
from ui.exploring import view
from ui.exploring.view import Scene

_NAME: Final = "occupancy"
_ALONE: Final = "nothing"
_ROWS: Final = {"node": "Nodes", "rack": "Racks", "type": "GPU types"}
_ORDERS: Final = {"cluster": "as described", "type": "GPU type", "rack": "rack", "load": "load, fullest first"}
_USE: Final = "in use"
_DIFFERENCE: Final = "difference"


def policies(said: Report, shown: Shown) -> list[int]:
    """Draw the choice of the policy and of the one it is seen against; return their places in the study."""
    titles = {str(at): shown.titles[at] for at in shown.places}
    base = str(shown.baseline)
    told = comparison.subject(said)
    first = next((at for at in titles if at != base and titles[at] == told), next((at for at in titles if at != base), next(iter(titles))))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = view.choice(st.selectbox, "Policy", list(titles), view.POLICY, first, format_func=titles.__getitem__, width=280)
        others = [view.NOTHING, *(at for at in titles if at != chosen)]
        named = {view.NOTHING: _ALONE, **titles}
        usual = base if base in others else view.NOTHING
        against = view.choice(st.selectbox, "Against", others, view.AGAINST, usual, format_func=named.__getitem__, width=280)
    if shown.study.repeats > 1:
        st.caption(f"Of the {shown.study.repeats} repeats the first is shown, with seed {shown.study.base.seed}.")
    return [int(at) for at in (chosen, against) if at != view.NOTHING]


def occupancy(scene: Scene) -> int:
    """Draw the machines over time, with what chooses rows, their order, and what is compared; return the room of the labels, in pixels."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        by, within = _rows(scene.book)
        sort = view.choice(st.selectbox, "Sort by", list(explore.ORDERS), view.SORT, "cluster", format_func=_ORDERS.__getitem__, width=200)
        picture = _USE
        if len(scene.books) > 1:
            picture = view.choice(st.segmented_control, "Show", [_USE, _DIFFERENCE], view.PICTURE, _USE, required=True)
    found = {title: _occupancy(scene.keys[title], scene.window, by, within, book) for title, book in scene.books.items()}
    first = found[scene.title]
    if not first.rows:
        st.caption("No machine of this cluster can be shown.")
        return charts.label_px([])
    order = explore.order(first, sort)
    told = tables.row_names(first)
    labels = charts.row_labels([told[at] for at in order])
    differs = picture == _DIFFERENCE
    grids = _grids(found, order, differs=differs)
    question = _question(scene, first, differs=differs)
    key = (_NAME, tuple(scene.keys.items()), scene.window, by, within, sort, picture)
    drawn = figure.kept(key, lambda: charts.occupancy(grids, labels, scene.axis, difference=differs, title=question))
    names = {label: first.rows[at] for label, at in zip(labels, order, strict=True)}
    clicked = partial(_clicked, names, is_node=by == explore.ROWS_BY[0])
    figure.draw(drawn, _NAME, _alt(scene, found), lambda: _table(found, order), on_select=clicked, selection_mode="points")
    st.caption(words.plain(_caption(scene, first, by, grids, differs=differs)))
    return charts.label_px(labels)


def _rows(book: Book) -> tuple[str, str]:
    """Draw what a row is; return that, and the group whose nodes are shown, "" = all."""
    finest = explore.fitting(book)
    fit = list(explore.ROWS_BY[explore.ROWS_BY.index(finest) :])
    by = view.choice(st.selectbox, "Rows", fit, view.ROWS, finest, format_func=_ROWS.__getitem__, width=160)
    if by == explore.ROWS_BY[0]:
        return by, ""
    groups = ["", *explore.groups(book, by)]
    within = view.choice(st.selectbox, "Expand", groups, view.WITHIN, "", format_func=lambda name: charts.visible(name) or "none", width=200)
    if not within:
        return by, ""
    if (inner := explore.fitting(book, within)) == by:
        st.caption(words.plain(f"{within} has more than {explore.MOST_ROWS} rows within, so it stays one."))
    return inner, within


@st.cache_resource(max_entries=32, show_spinner=False)
def _occupancy(key: str, window: tuple[float, float], by: str, within: str, _book: Book) -> Occupancy:
    del key
    return explore.occupancy(_book, window, by, within)


def _grids(found: Mapping[str, Occupancy], order: Sequence[int], *, differs: bool) -> list[charts.Grid]:
    if not differs:
        return charts.thinned([charts.Grid(title, *tables.shares(one, order)) for title, one in found.items()])
    (title, first), (other, second) = found.items()
    return charts.thinned([charts.Grid(f"{title} minus {other}", *tables.differing(first, second, order))])


def _clicked(names: Mapping[str, str], *, is_node: bool) -> None:
    """Take over the row whose mark was clicked: a node becomes the one whose jobs are drawn, a group is opened."""
    event: Any = st.session_state.get(_NAME)
    for point in event["selection"]["points"] if event else []:
        if name := names.get(str(point.get("y"))):
            view.put(view.NODE if is_node else view.WITHIN, name)


def _question(scene: Scene, found: Occupancy, *, differs: bool) -> str:
    unit = f"{found.unit}s"
    if differs:
        return f"{unit} in use: {' minus '.join(scene.books)}"
    return f"Which {unit} are in use, and when?"


def _alt(scene: Scene, found: Mapping[str, Occupancy]) -> str:
    told = "; ".join(f"{title} {words.share(tables.in_use(one))}" for title, one in found.items())
    begin, end = map(scene.book.clock.at, scene.window)
    return f"{next(iter(found.values())).unit}s in use, mean from {begin} to {end}: {told}."


def _caption(scene: Scene, found: Occupancy, by: str, grids: Sequence[charts.Grid], *, differs: bool) -> str:
    bin_s = (scene.window[1] - scene.window[0]) / grids[0].share.shape[1]
    of = {"node": "one node", "rack": "all nodes of a rack", "type": "all nodes of a GPU type"}[by]
    told = [f"A cell: {found.unit}s held on {of}, as a share of its {found.unit}s, mean over {charts.duration_text(bin_s)}."]
    if differs:
        more, fewer = scene.books
        told.append(f"Orange: more under {more}; blue: more under {fewer}.")
    if any(charts.down_spells(grid) for grid in grids):
        told.append("Hatched: at least half of it down or absent.")
        if lost := charts.left_out(grids):
            told.append(f"{words.plural(lost, 'short spell')} of that are not drawn.")
    told.append("Click a mark at the right to see the jobs of that node." if by == explore.ROWS_BY[0] else "Click a mark at the right to open that row.")
    return " ".join(told)


def _table(found: Mapping[str, Occupancy], order: Sequence[int]) -> pd.DataFrame:
    rows = tables.rows_table(found, order)
    shares = [name for name in rows.columns if name.startswith(("in_use ", "down "))]
    told = rows.assign(**{name: rows[name].map(words.share) for name in shares})
    unit = f"{next(iter(found.values())).unit}s"
    named = {name: f"{'In use' if name.startswith('in_use') else 'Down'}, {name.partition(' ')[2]}" for name in shares}
    return told.rename(columns={"row": "Row", "gpu_type": "GPU type", "rack": "Rack", "size": unit} | named)
