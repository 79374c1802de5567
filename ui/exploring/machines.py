"""The machines of the Explore page: which policies are seen, the machines over time as a heat map,
and the jobs of one node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pandas as pd
import streamlit as st

from trainyard.runs import frames
from trainyard.views import charts
from trainyard.views import explored as explored_views
from trainyard.views.compared import ComparedRuns
from trainyard.views.explored import ExploredRuns, node_jobs
from trainyard.what_if import explore, tables
from trainyard.what_if.explore import Bars, Book, Occupancy
from ui import comparison, exploration, figure, job_drawer, words

CHART: Final = "machines"
_ALONE: Final = "nothing"
_ROWS: Final = {"node": "Nodes", "rack": "Racks", "type": "GPU types"}
_ORDERS: Final = {
    "cluster": "as described",
    "type": "GPU type",
    "rack": "rack",
    "load": "load, fullest first",
}
_USE: Final = "in use"
_DIFFERENCE: Final = "difference"
_PICTURES: Final = {_USE: "GPUs in use", _DIFFERENCE: "Difference"}
_BINS: Final = 400
_NO_TIME_S: Final = 60.0


@dataclass(frozen=True)
class MachineMap:
    """What the figure shows.

    Parameters
    ----------
    rows, names : tuple of str
        From top to bottom: rows as the cluster names them, and as the figure does.
    panels : int
        Heat maps.
    is_node : bool
        Whether a row is a node.
    queue : mapping of DataFrame
        By policy: jobs waiting in the window.
    """

    rows: tuple[str, ...]
    names: tuple[str, ...]
    panels: int
    is_node: bool
    queue: Mapping[str, pd.DataFrame]


def policies(compared: ComparedRuns) -> list[int]:
    """Draw the choice of the policy and of the one it is seen against; return their places in the
    study.
    """
    runs = compared.runs
    titles = {str(at): runs.titles[at] for at in runs.places}
    base = str(runs.baseline)
    subject = comparison.subject(compared.report)
    first = next(
        (at for at in titles if at != base and titles[at] == subject),
        next((at for at in titles if at != base), next(iter(titles))),
    )
    plain: dict[str, Any] = {"width": 220, "label_visibility": "collapsed"}
    chosen = exploration.choice(
        st.selectbox,
        "Policy",
        list(titles),
        exploration.POLICY,
        first,
        format_func=titles.__getitem__,
        **plain,
    )
    st.markdown("against")
    others = [exploration.NOTHING, *(at for at in titles if at != chosen)]
    named = {exploration.NOTHING: _ALONE, **titles}
    usual = base if base in others else exploration.NOTHING
    against = exploration.choice(
        st.selectbox,
        "Against",
        others,
        exploration.AGAINST,
        usual,
        format_func=named.__getitem__,
        **plain,
    )
    return [int(at) for at in (chosen, against) if at != exploration.NOTHING]


@dataclass(frozen=True)
class Wanted:
    """How the machines are to be seen: what a row is, the group whose nodes are shown ("" = all),
    the order of rows, and whether the difference is drawn.
    """

    by: str
    within: str
    sort: str
    differs: bool


def choices(explored: ExploredRuns) -> Wanted:
    """Draw what chooses rows, their order, and what is compared."""
    by = exploration.asked(exploration.ROWS, explore.fitting(explored.book))
    with st.popover(_ROWS.get(by, _ROWS["type"]), key="explore_rows"):
        by, within = _rows(explored.book)
        sort = exploration.choice(
            st.selectbox,
            "Sort by",
            list(explore.ORDERS),
            exploration.SORT,
            "cluster",
            format_func=_ORDERS.__getitem__,
        )
    picture = _USE
    if len(explored.books) > 1:
        picture = exploration.choice(
            st.segmented_control,
            "Show",
            list(_PICTURES),
            exploration.PICTURE,
            _USE,
            required=True,
            format_func=_PICTURES.__getitem__,
            label_visibility="collapsed",
        )
    return Wanted(by, within, sort, picture == _DIFFERENCE)


def draw(explored: ExploredRuns, wanted: Wanted) -> MachineMap | None:
    """Draw the headline and the figure; None where no machine can be shown."""
    found = {
        title: _occupancy(explored.keys[title], explored.window, wanted.by, wanted.within, book)
        for title, book in explored.books.items()
    }
    queue = {
        title: _queue(explored.keys[title], explored.window, book)
        for title, book in explored.books.items()
    }
    first = found[explored.title]
    if not first.rows:
        st.caption("No machine of this cluster can be shown.")
        return None
    st.title(words.plain(_headline(explored, found, queue)), anchor=False)
    order = explore.order(first, wanted.sort)
    end_s = explored.compared.report.end_s
    whole = _queue(explored.keys[explored.title], (0.0, max(end_s, 1.0)), explored.book)
    waiting = charts.Waiting(queue, whole, max(end_s, 1.0))
    # Seen in another theme, the same policies have other colours.
    colours = tuple(explored.compared.style[title] for title in explored.books)
    key = (CHART, tuple(explored.keys.items()), explored.window, wanted, colours, end_s)
    view_of = figure.kept(
        key,
        lambda: explored_views.machines(explored, found, order, waiting, differs=wanted.differs),
    )
    figure.draw(view_of, CHART)
    return MachineMap(
        tuple(first.rows[at] for at in order),
        tuple(explored_views.row_labels(first, order)),
        1 if wanted.differs else len(found),
        wanted.by == explore.ROWS_BY[0],
        queue,
    )


def _headline(
    explored: ExploredRuns,
    found: Mapping[str, Occupancy],
    queue: Mapping[str, pd.DataFrame],
) -> str:
    """Return on which row GPUs are idle longest while jobs wait, and for how long under the other
    policy.
    """
    idle = {title: tables.idle_while_waiting_s(one, queue[title]) for title, one in found.items()}
    title, first = explored.title, found[explored.title]
    unit = f"{first.unit}s"
    most = int(idle[title].argmax())
    others = {other: words.time(float(idle[other][most])) for other in idle if other != title}
    if idle[title][most] < _NO_TIME_S:
        said = "".join(
            f"; {other}: up to {words.time(float(idle[other].max()))} on one row"
            for other in others
            if idle[other].max() >= _NO_TIME_S
        )
        return f"{title} leaves no {unit} idle while jobs wait{said}."
    where = tables.row_names(first)[most]
    longest = words.time(float(idle[title][most]))
    more = "".join(f"; {other}: {time}" for other, time in others.items())
    return f"Where {title} leaves {unit} idle while jobs wait: {where}, {longest}{more}"


def _rows(book: Book) -> tuple[str, str]:
    """Draw what a row is; return that, and the group whose nodes are shown, "" = all."""
    finest = explore.fitting(book)
    fit = list(explore.ROWS_BY[explore.ROWS_BY.index(finest) :])
    by = exploration.choice(
        st.selectbox, "Rows", fit, exploration.ROWS, finest, format_func=_ROWS.__getitem__
    )
    if by == explore.ROWS_BY[0]:
        return by, ""
    groups = ["", *explore.groups(book, by)]
    within = exploration.choice(
        st.selectbox,
        "Expand",
        groups,
        exploration.WITHIN,
        "",
        format_func=lambda name: charts.visible(name) or "none",
    )
    if not within:
        return by, ""
    if (inner := explore.fitting(book, within)) == by:
        st.caption(
            words.plain(f"{within} has more than {explore.MOST_ROWS} rows within, so it stays one.")
        )
    return inner, within


@st.cache_resource(max_entries=32, show_spinner=False)
def _queue(key: str, window: tuple[float, float], _book: Book) -> pd.DataFrame:
    del key
    return frames.series("queue", _book.result, _book.cluster, window, _BINS)


@st.cache_resource(max_entries=32, show_spinner=False)
def _occupancy(
    key: str, window: tuple[float, float], by: str, within: str, _book: Book
) -> Occupancy:
    del key
    return explore.occupancy(_book, window, by, within)


def node(explored: ExploredRuns) -> None:
    """Draw the jobs of one node."""
    sizes, _ = tables.node_sizes(explored.book.cluster)
    if not sizes:
        st.caption("The cores of these nodes are not modelled, so there are no bars to draw.")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        node = exploration.choice(
            st.selectbox,
            "Node",
            list(sizes),
            exploration.NODE,
            next(iter(sizes)),
            format_func=charts.visible,
            width=300,
            label_visibility="collapsed",
        )
        title = _policy(explored)
    found = _bars(explored.keys[title], node, explored.window, explored.books[title])
    # A click is kept under the key of a figure, so every picture has its own.
    edition = job_drawer.edition()
    name = f"node/{title}/{node}/{edition}"
    clicked = partial(_bar_clicked, name, edition, found.frame["id"].tolist())
    key = ("node", title, explored.keys[title], node, explored.window)
    made = figure.kept(key, lambda: node_jobs(explored, title, node, found))
    figure.draw(made, name, on_select=clicked, selection_mode="points")


def _policy(explored: ExploredRuns) -> str:
    titles = list(explored.books)
    if len(titles) == 1:
        return titles[0]
    return str(
        st.segmented_control(
            "Under",
            titles,
            default=titles[0],
            required=True,
            key=f"node_policy/{'/'.join(titles)}",
            label_visibility="collapsed",
        )
    )


def _bar_clicked(name: str, edition: int, jobs: list[str]) -> None:
    event: Any = st.session_state.get(name)
    for point in event["selection"]["points"] if event else []:
        if 0 <= (at := int(point.get("point_index", -1))) < len(jobs):
            job_drawer.request(jobs[at], edition)


@st.cache_resource(max_entries=64, show_spinner=False)
def _bars(key: str, node: str, window: tuple[float, float], _book: Book) -> Bars:
    del key
    return explore.bars(_book, node, window)
