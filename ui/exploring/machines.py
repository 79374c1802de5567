"""The machines on Explore: choice of policies, map of nodes and jobs, jobs of one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd
import streamlit as st

from trainyard.runs import frames
from trainyard.views import charts, job_map
from trainyard.views import explored_runs as explored_views
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.explored_runs import ExploredRuns, node_jobs
from trainyard.what_if import explore, tables
from trainyard.what_if.explore import Bars, Book, Occupancy
from ui import comparison, explore_params, figure, job_drawer, words, zoom_window

CHART: Final = "machines"
_ALONE: Final = "nothing"
_ROWS: Final = {"node": "Nodes", "rack": "Racks", "type": "GPU types"}
_ORDERS: Final = {
    "cluster": "cluster order",
    "type": "GPU type",
    "rack": "rack",
    "load": "load, fullest first",
}
_USE: Final = "in use"
_DIFFERENCE: Final = "difference"
_PICTURES: Final = {_USE: "GPUs in use", _DIFFERENCE: "Difference"}
_BINS: Final = 400
_NO_TIME_S: Final = 60.0
_JOBS: Final = "jobs"
_HERE: Final = Path(__file__).parent
_HTML: Final = (
    '<div class="ty-jobs" tabindex="0" role="application" aria-label="Jobs by node and time:'
    ' arrow keys move, Enter opens the job"><p aria-live="polite"></p></div>'
)
_MOUNT: Final = st.components.v2.component(
    "trainyard_jobs",
    html=_HTML,
    css=(_HERE / "job_map.css").read_text(encoding="utf-8"),
    js=(_HERE / "job_map.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


@dataclass(frozen=True)
class MachineMap:
    """Rows and queue of the drawn heat map.

    Parameters
    ----------
    rows, names : tuple of str
        Rows from top to bottom: names in the cluster, and labels in the figure.
    panels : int
        Number of heat maps.
    is_node : bool
        Whether a row is a node.
    queue : mapping of DataFrame
        Policy title -> waiting jobs over the window.
    """

    rows: tuple[str, ...]
    names: tuple[str, ...]
    panels: int
    is_node: bool
    queue: Mapping[str, pd.DataFrame]


def draw_policy_choice(compared: ComparedRuns) -> list[int]:
    """Draw the choices of a policy and one to compare with; return their indices.

    The list has one index into the study's policies, or two.
    """
    runs = compared.runs
    titles = {str(index): runs.titles[index] for index in runs.places}
    base = str(runs.baseline)
    subject = comparison.highlighted_policy(compared.report)
    first = next(
        (index for index in titles if index != base and titles[index] == subject),
        next((index for index in titles if index != base), next(iter(titles))),
    )
    layout: dict[str, Any] = {"width": 220, "label_visibility": "collapsed"}
    chosen = explore_params.draw_choice(
        st.selectbox,
        "Policy",
        list(titles),
        explore_params.POLICY,
        first,
        format_func=titles.__getitem__,
        **layout,
    )
    st.markdown("vs.")
    others = [explore_params.NOTHING, *(index for index in titles if index != chosen)]
    labels = {explore_params.NOTHING: _ALONE, **titles}
    default = base if base in others else explore_params.NOTHING
    against = explore_params.draw_choice(
        st.selectbox,
        "Against",
        others,
        explore_params.AGAINST,
        default,
        format_func=labels.__getitem__,
        **layout,
    )
    return [int(index) for index in (chosen, against) if index != explore_params.NOTHING]


@dataclass(frozen=True)
class MachineMapOptions:
    """Options of the heat map: row type, expanded group ("" = all), order, use or difference."""

    by: str
    within: str
    sort: str
    differs: bool


def draw_options(explored: ExploredRuns) -> MachineMapOptions:
    """Draw the options of the heat map (rows, order, use or difference); return them."""
    by = explore_params.get(explore_params.ROWS, explore.fitting(explored.book))
    with st.popover(_ROWS.get(by, _ROWS["type"]), key="explore_rows"):
        by, within = _draw_rows_choice(explored.book)
        sort = explore_params.draw_choice(
            st.selectbox,
            "Sort by",
            list(explore.ORDERS),
            explore_params.SORT,
            "cluster",
            format_func=_ORDERS.__getitem__,
        )
    picture = _USE
    if len(explored.books) > 1:
        picture = explore_params.draw_choice(
            st.segmented_control,
            "Show",
            list(_PICTURES),
            explore_params.PICTURE,
            _USE,
            required=True,
            format_func=_PICTURES.__getitem__,
            label_visibility="collapsed",
        )
    return MachineMapOptions(by, within, sort, picture == _DIFFERENCE)


def draw(
    explored: ExploredRuns,
    options: MachineMapOptions,
    on_pick: Callable[[MachineMap, Mapping[str, float]], None],
) -> MachineMap | None:
    """Draw headline and map of the machines; return its rows, or None without machines.

    `on_pick` handles a click, see `ui.exploring.instant.pick`.
    """
    occupancies = {
        title: _occupancy(explored.keys[title], explored.window, options.by, options.within, book)
        for title, book in explored.books.items()
    }
    queue = {
        title: _queue_over_time(explored.keys[title], explored.window, book)
        for title, book in explored.books.items()
    }
    first = occupancies[explored.title]
    if not first.rows:
        st.caption("No machine of this cluster can be shown.")
        return None
    names_jobs = options.by == explore.ROWS_BY[0] and not options.differs
    has_canvas = names_jobs and len(first.rows) > job_map.MAX_PLOTTED
    headline = _headline(explored, occupancies, queue, has_canvas=has_canvas)
    st.title(words.plain(headline), anchor=False)
    order = explore.order(first, options.sort)
    end_s = explored.compared.report.end_s
    whole_queue = _queue_over_time(
        explored.keys[explored.title], (0.0, max(end_s, 1.0)), explored.book
    )
    waiting = charts.Waiting(queue, whole_queue, max(end_s, 1.0))
    machine_map = MachineMap(
        tuple(first.rows[row] for row in order),
        tuple(explored_views.row_labels(first, order)),
        0 if has_canvas else 1 if options.differs else len(occupancies),
        options.by == explore.ROWS_BY[0],
        queue,
    )
    # Colors differ between themes.
    colours = tuple(explored.compared.style[title] for title in explored.books)
    key = (CHART, tuple(explored.keys.items()), explored.window, options, colours, end_s)
    if names_jobs:
        _MOUNT(
            key=_JOBS,
            data=_packed_jobs(key, explored, first, order),
            on_pick_change=lambda: _forward("pick", partial(on_pick, machine_map)),
            on_window_change=lambda: _forward(
                "window", lambda ends: zoom_window.set_window(ends, end_s)
            ),
        )
    view = figure.cached_view(
        key,
        lambda: explored_views.machines(
            explored, occupancies, order, waiting, differs=options.differs, has_map=not has_canvas
        ),
    )
    figure.draw(view, CHART)
    return machine_map


@st.cache_resource(max_entries=8, show_spinner=False)
def _packed_jobs(
    key: tuple[Any, ...], _explored: ExploredRuns, _first: Occupancy, _order: list[int]
) -> bytes:
    """Return the jobs on the nodes of the map as bytes, cached by everything they depend on."""
    del key
    return job_map.pack(_explored, _first, _order)


def _forward(trigger: str, act: Callable[[Any], None]) -> None:
    """Call `act` with what the script of the map has sent by a trigger, if anything."""
    if (message := getattr(st.session_state[_JOBS], trigger)) is not None:
        act(message)


def _headline(
    explored: ExploredRuns,
    occupancies: Mapping[str, Occupancy],
    queue: Mapping[str, pd.DataFrame],
    *,
    has_canvas: bool,
) -> str:
    """Return how many of many nodes are never used, else which row is idle while jobs wait.

    Times of the other policies are for the same row. Below a minute, no row is named.
    """
    first = occupancies[explored.title]
    unused = {title: tables.unused_rows(one) for title, one in occupancies.items()}
    title = explored.title
    if has_canvas and unused[title]:
        others_text = "".join(f" ({other}: {unused[other]:,})" for other in [*unused][1:])
        whole = explored.compared.window is None
        uses, ends = ("never uses", "") if whole else ("does not use", " in this window")
        return f"{title} {uses} {unused[title]:,} of {len(first.rows):,} nodes{others_text}{ends}."
    idle = {
        title: tables.idle_while_waiting_s(occupancy, queue[title])
        for title, occupancy in occupancies.items()
    }
    worst_row = int(idle[title].argmax())
    others = {other: words.time(float(idle[other][worst_row])) for other in idle if other != title}
    if idle[title][worst_row] < _NO_TIME_S:
        others_note = "".join(
            f"; {other}: up to {words.time(float(idle[other].max()))} per {first.unit}"
            for other in others
            if idle[other].max() >= _NO_TIME_S
        )
        return f"{title} leaves no {first.unit}s idle while jobs wait{others_note}."
    where = tables.row_names(first)[worst_row]
    longest = words.time(float(idle[title][worst_row]))
    others_text = "".join(f" (under {other}: {time})" for other, time in others.items())
    return (
        f"Most idle while jobs wait under {title}: {where}, {longest} per {first.unit}{others_text}"
    )


def _draw_rows_choice(book: Book) -> tuple[str, str]:
    """Draw the choices of row type and of a group to expand; return both.

    With a group ("" = none), the row type is that of the rows within it.
    """
    finest = explore.fitting(book)
    row_types = list(explore.ROWS_BY[explore.ROWS_BY.index(finest) :])
    by = explore_params.draw_choice(
        st.selectbox, "Rows", row_types, explore_params.ROWS, finest, format_func=_ROWS.__getitem__
    )
    if by == explore.ROWS_BY[0]:
        return by, ""
    groups = ["", *explore.groups(book, by)]
    within = explore_params.draw_choice(
        st.selectbox,
        "Expand",
        groups,
        explore_params.WITHIN,
        "",
        format_func=lambda name: charts.visible(name) or "none",
    )
    if not within:
        return by, ""
    if (inner := explore.fitting(book, within)) == by:
        st.caption(
            words.plain(f"{within} has more than {explore.MAX_ROWS} rows, so it is not expanded.")
        )
    return inner, within


@st.cache_resource(max_entries=32, show_spinner=False)
def _queue_over_time(key: str, window: tuple[float, float], _book: Book) -> pd.DataFrame:
    """Return waiting jobs over a window as a reduced series, cached by the run's key."""
    del key
    return frames.series("queue", _book.result, _book.cluster, window, _BINS)


@st.cache_resource(max_entries=32, show_spinner=False)
def _occupancy(
    key: str, window: tuple[float, float], by: str, within: str, _book: Book
) -> Occupancy:
    """Return the use of each row (node, rack or type) over a window, cached by the run's key."""
    del key
    return explore.occupancy(_book, window, by, within)


def draw_node(explored: ExploredRuns) -> None:
    """Draw the choice of a node and the bars of its jobs; a click opens the job drawer."""
    sizes, _ = tables.node_sizes(explored.book.cluster)
    if not sizes:
        st.caption("The cores of these nodes are not modeled, so their jobs cannot be drawn.")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        node = explore_params.draw_choice(
            st.selectbox,
            "Node",
            list(sizes),
            explore_params.NODE,
            next(iter(sizes)),
            format_func=charts.visible,
            width=300,
            label_visibility="collapsed",
        )
        title = _draw_node_policy(explored)
    bars = _bars(explored.keys[title], node, explored.window, explored.books[title])
    # Streamlit keeps a click under the key of its figure, so each view has its own key.
    version = job_drawer.version()
    name = f"node/{title}/{node}/{version}"
    on_click = partial(_on_bar_click, name, version, bars.frame["id"].tolist())
    key = ("node", title, explored.keys[title], node, explored.window)
    view = figure.cached_view(key, lambda: node_jobs(explored, title, node, bars))
    figure.draw(view, name, on_select=on_click, selection_mode="points")


def _draw_node_policy(explored: ExploredRuns) -> str:
    """Draw the choice of the policy for one node if there are two; return its title."""
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


def _on_bar_click(name: str, version: int, jobs: list[str]) -> None:
    """Open the job drawer with the job of the clicked bar; `jobs` = ids by bar."""
    event: Any = st.session_state.get(name)
    for point in event["selection"]["points"] if event else []:
        if 0 <= (bar_index := int(point.get("point_index", -1))) < len(jobs):
            job_drawer.open_job(jobs[bar_index], version)


@st.cache_resource(max_entries=64, show_spinner=False)
def _bars(key: str, node: str, window: tuple[float, float], _book: Book) -> Bars:
    """Return the bars of a node's jobs over a window, cached by the run's key."""
    del key
    return explore.bars(_book, node, window)
