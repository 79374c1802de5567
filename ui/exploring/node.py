"""One node: the jobs that were on it in the window, as bars."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pandas as pd
import streamlit as st

import charts
from trainyard.what_if import explore, tables
from trainyard.what_if.explore import Bars, Book
from ui import figure, words
from ui.exploring import view
from ui.exploring.view import Scene

_COLUMNS: Final = {"id": "Job", "user": "User", "gpus": "Held", "t0": "From", "t1": "To"}


def draw(scene: Scene) -> None:
    """Draw the part of the page about one node; nothing where no node has a GPU."""
    st.subheader("One node", anchor="node")
    view.part("node", _node, scene)


def _node(scene: Scene) -> None:
    sizes, unit = tables.node_sizes(scene.book.cluster)
    if not sizes:
        st.caption("The cores of these nodes are not modelled, so there are no bars to draw.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        node = view.choice(st.selectbox, "Node", list(sizes), view.NODE, next(iter(sizes)), format_func=charts.visible, width=300)
        title = _policy(scene)
    found = _bars(scene.keys[title], node, scene.window, scene.books[title])
    # A click is kept under the key of a figure, so every picture has its own.
    name = f"node/{title}/{node}/{view.picked()}"
    clicked = partial(_clicked, name, found.frame["job"].tolist())
    question = f"Which jobs were on {charts.literal(node)} under {title}?"
    key = ("node", title, scene.keys[title], node, scene.window)
    drawn = figure.kept(key, lambda: charts.node_jobs(found.frame, (sizes[node], unit), scene.axis, question))
    alt = f"{words.plural(found.frame['job'].nunique(), 'job')} on {node} under {title} in the window, one bar for each time that a job was there."
    figure.draw(drawn, name, alt, lambda: _table(scene, found), on_select=clicked, selection_mode="points")
    if not len(found.frame):
        st.caption("No job was on it in this window.")
        return
    lanes = "" if sizes[node] == 1 else f" It is as high as its {unit}s; which {unit} of the node it had is not recorded."
    lost = f" {words.plural(found.left_out, 'short bar')} of the window are left out." if found.left_out else ""
    st.caption(f"A bar: one job for as long as it was there, without a change.{lanes} Colours only tell neighbours apart. Click a bar to open its job.{lost}")


def _policy(scene: Scene) -> str:
    titles = list(scene.books)
    if len(titles) == 1:
        return titles[0]
    return str(st.segmented_control("Under", titles, default=titles[0], required=True, key=f"node_policy/{'/'.join(titles)}"))


def _clicked(name: str, jobs: list[int]) -> None:
    event: Any = st.session_state.get(name)
    for point in event["selection"]["points"] if event else []:
        if 0 <= (at := int(point.get("point_index", -1))) < len(jobs):
            view.pick_job(jobs[at])
            st.rerun()


@st.cache_resource(max_entries=64, show_spinner=False)
def _bars(key: str, node: str, window: tuple[float, float], _book: Book) -> Bars:
    del key
    return explore.bars(_book, node, window)


def _table(scene: Scene, found: Bars) -> pd.DataFrame:
    clock = scene.book.clock
    told = found.frame.assign(t0=found.frame["t0"].map(clock.at), t1=found.frame["t1"].map(clock.at))
    return told[list(_COLUMNS)].rename(columns=_COLUMNS)
