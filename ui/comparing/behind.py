"""The part of the Compare page on what is behind the numbers: where time and GPUs go, GPU types, cores and memory, believed against true sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import pandas as pd
import streamlit as st

import charts
from sim.errors import TrainyardError
from trainyard.results import diagnostics, gpu_types
from trainyard.results.diagnostics import Behind
from trainyard.results.outcomes import Report, Shown
from trainyard.traces.sources import load_trace
from ui import figure, server, words
from ui.comparing import comparison, over_time, overview, tables
from ui.comparing import gpu_types as types_of_gpus

_PARTS: Final = "Where time goes"
_HOLDERS: Final = "Who holds the GPUs"
_TYPES: Final = "GPU types"
_SIZES: Final = "Believed sizes"
_RESOURCES: Final = "Cores and memory"
_OF: Final = {"Cores": ("cpus", "cores"), "Memory": ("mem_gb", "GB")}


@st.fragment
def draw(said: Report, shown: Shown, look: tables.Look, window: overview.Window | None = None) -> None:
    """Draw what the user chooses of what is behind the numbers: nothing else is computed or sent."""
    views: dict[str, Callable[[], None]] = {_PARTS: lambda: comparison.decomposition(said)}
    if shown.study.base.cluster.gpus:
        views[_HOLDERS] = lambda: over_time.allocation(said, shown, window)
    if gpu_types.several_types(shown):
        views[_TYPES] = lambda: types_of_gpus.draw(said, shown, look, window)
    try:
        found = _found(said.mark, shown)
        if found.resources:
            views[_RESOURCES] = lambda: _resources(said, _within(found, said, shown, window), look, window)
        if found.points:
            views[_SIZES] = lambda: _sizes(found, look)
        st.subheader("Behind the numbers", anchor=False)
        name = st.segmented_control("Which", list(views), default=_PARTS, required=True, key="behind_view", label_visibility="collapsed", wrap=True)
        views[name]()
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")


def _within(found: Behind, said: Report, shown: Shown, window: overview.Window | None) -> Behind:
    if window is None:
        return found
    return replace(found, resources=over_time.frames_of(said, shown, list(found.resources), window)["resources"])


def _sizes(found: Behind, look: tables.Look) -> None:
    title = st.selectbox("Policy", list(found.points), key="behind_policy", width=320)
    points = found.points[title]
    drawn = charts.predictions(points, look.style[title][0], "How well was it told how long jobs take?")
    near = found.accuracy[title]
    alt = f"Believed over true ideal run times of {words.plural(len(points), 'job')} under {title}, logarithmic. {_told(title, near.near, near.median_factor)}"
    figure.draw(drawn, "predictions", alt, lambda: points[list(_POINTS)].rename(columns=_POINTS))
    some = "" if len(points) == near.jobs else f" Drawn: {words.count(len(points))} of {words.plural(near.jobs, 'job')}, of all sizes."
    told = " ".join(_told(name, one.near, one.median_factor) for name, one in found.accuracy.items())
    st.caption(words.plain(f"{told} Sizes as the policy was first told them, as run times alone at the best size on the fastest GPU type.{some}"))


def _told(title: str, near: float, factor: float) -> str:
    return f"{title}: {words.share(near)} of sizes within a factor of 2, half of them within {words.factor(factor)}."


def _resources(said: Report, found: Behind, look: tables.Look, window: overview.Window | None) -> None:
    known = [one for one, (column, _) in _OF.items() if any(f"used_{column}" in frame for frame in found.resources.values())]
    what = st.segmented_control("Which", known, default=known[0], required=True, key="behind_resource", label_visibility="collapsed")
    name, unit = _OF[what]
    shown = look.drawn(list(found.resources))
    frames = {title: found.resources[title] for title in shown if f"used_{name}" in found.resources[title]}
    drawn = charts.resources(frames, look.style, (name, unit), overview.axis(said, window), f"How much of the {what.lower()} that jobs hold do they use?")
    metric = "cpus_used" if name == "cpus" else "mem_used"
    values = said.table[(said.table["metric"] == metric).to_numpy()]
    told = "; ".join(f"{row['label']} {words.share(float(row['value']))}" for row in values.to_dict("records"))
    alt = f"{what} held and used over time, one row per policy. Used of held: {told or 'not known'}."
    figure.draw(drawn, "resources", alt, lambda: _rows(frames))
    st.caption(words.plain(f"Used of held, in the whole run: {told or 'not known'}. {_HELD}"))


def _rows(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    rows = pd.concat([frame.assign(policy=title) for title, frame in frames.items()], ignore_index=True)
    return rows[[column for column in _COLUMNS if column in rows]].rename(columns=_COLUMNS)


@st.cache_resource(max_entries=24, show_spinner=False)
def _found(mark: str, _shown: Shown) -> Behind:
    del mark
    return diagnostics.behind(_shown, load_trace(_shown.study.base.trace, server.store()))


_HELD: Final = "Held is what jobs asked for and got. What they use is said by the performance model, as a mean of every period of constant size."
_POINTS: Final = {"job_id": "Job", "ideal_s": "True (s)", "believed_s": "Believed (s)"}
_COLUMNS: Final = {
    "policy": "Policy",
    "t_s": "Seconds since the first submission",
    "held_cpus": "Cores held",
    "used_cpus": "Cores used",
    "there_cpus": "Cores there",
    "held_mem_gb": "GB held",
    "used_mem_gb": "GB used",
    "there_mem_gb": "GB there",
}
