"""The part of the Compare page on clusters of several GPU types: who had which, how busy and dear they were, notes of a policy, finish-time fairness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd
import streamlit as st

import charts
from sim.errors import TrainyardError
from trainyard.results import gpu_types
from trainyard.results.gpu_types import TypeReport
from trainyard.results.outcomes import Report, Shown
from ui import figure, words
from ui.comparing import over_time, overview, tables

_ISOLATED: Final = "each job alone with an equal part of every GPU type"
_KEEP: Final[dict[str, Any]] = {"width": 320}


@st.fragment
def draw(said: Report, shown: Shown, look: tables.Look, window: overview.Window | None = None) -> None:
    """Draw one of the figures, which the user chooses."""
    try:
        found = _report(shown.mark, shown)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    views = {name: view for name, view in _VIEWS.items() if name != _NOTES or found.notes}
    name = st.segmented_control("What about them", list(views), default=next(iter(views)), required=True, key="type_view", label_visibility="collapsed")
    views[name](_Scene(said, shown, found, look, window))


class _Scene:
    """What every view draws from."""

    def __init__(self, said: Report, shown: Shown, found: TypeReport, look: tables.Look, window: overview.Window | None) -> None:
        self.said, self.shown, self.found, self.window = said, shown, found, window
        self.types = charts.type_style([kind.name for kind in shown.study.base.cluster.types])
        drawn = look.drawn(said.labels)
        self.style = {title: look.style[title] for title in drawn}


def _shares(scene: _Scene) -> None:
    title = st.selectbox("Policy", scene.said.labels, key="type_policy", **_KEEP)
    table = scene.found.shares[title]
    drawn = charts.type_shares(table, {name: scene.types[name] for name in scene.found.types}, "Who gets which GPUs?")
    whole = table[(table["kind"] == "all").to_numpy()]
    told = ", ".join(f"{name} {words.share(float(whole[name].iloc[0]))}" for name in scene.found.types) if len(whole) else "nobody held a GPU"
    alt = f"Share of GPU-hours by GPU type under {title}, for groups of jobs and the heaviest jobs. All jobs: {told}."
    named = {"kind": "By", "group": "Group", "jobs": "Jobs", "gpu_h": "GPU-hours"} | {name: f"{name} (share)" for name in scene.found.types}
    figure.draw(drawn, "type-shares", alt, lambda: table.assign(gpu_h=table["gpu_s"] / 3600)[list(named)].rename(columns=named))
    st.caption("GPU-hours held, pauses included, of measured jobs. A row without a type had none of it.")


def _use(scene: _Scene) -> None:
    use = {title: frame for title, frame in scene.found.use.items() if title in scene.style}
    busy = charts.type_use(use, scene.style, "How busy is each GPU type?")
    figure.draw(busy, "type-use", f"Utilisation of each GPU type over the whole run: {_busy(use)}.")
    st.caption("From the first submission to the end of the run; nodes that were down or absent do not count. How it changed: the linked figure above.")
    cost = charts.type_cost(use, scene.types, "What do the GPUs cost that jobs hold?")
    rows = pd.concat([frame.assign(policy=title) for title, frame in use.items()], ignore_index=True)
    alt = f"Cost of the GPUs held, by GPU type, and of the whole cluster: {_cost(use)}."
    figure.draw(cost, "type-cost", alt, lambda: rows[list(_USE)].rename(columns=_USE))
    meaning = "Bars: GPUs held at the price of their nodes. Mark: all nodes, from the first submission to the end. Prices are set on the Cluster page."
    st.caption(words.plain(f"{_cost(use)}. {meaning}"))


def _fairness(scene: _Scene) -> None:
    reference = st.selectbox("Compared with", [_ISOLATED, *scene.style], key="type_reference", width=420)
    if reference == _ISOLATED:
        curves, of = {title: scene.found.fairness[title] for title in scene.style}, "in isolation"
    else:
        against = gpu_types.fairness_against(scene.shown, reference)
        curves, of = {title: frame for title, frame in against.items() if title in scene.style}, f"under {reference}"
    curves = {title: frame for title, frame in curves.items() if len(frame)}
    if not curves:
        st.caption("No other policy completed a job that can be compared.")
        return
    question = "Is every job done as soon as with its own part of the cluster?" if reference == _ISOLATED else f"Is every job done as soon as {of}?"
    drawn = charts.fairness_cdf(curves, scene.style, question, of)
    late = "; ".join(f"{title}: {_later(frame):.0f} % of jobs later" for title, frame in curves.items())
    alt = f"Finish-time fairness, JCT divided by that {of}. {late}."
    rows = pd.concat([frame.assign(policy=title) for title, frame in curves.items()])[["policy", "share", "rho"]]
    figure.draw(drawn, "type-fairness", alt, lambda: rows.rename(columns=_RHO))
    st.caption(words.plain(f"{late}. {_MEANING if reference == _ISOLATED else _AGAINST}"))


def _notes(scene: _Scene) -> None:
    with st.container(horizontal=True):
        noting = [title for title in scene.said.labels if title in scene.found.notes]
        first = next((at for at, title in enumerate(noting) if any(len(lines) > 1 for lines in scene.found.families(title).values())), 0)
        title = st.selectbox("Policy", noting, first, key="type_noting", **_KEEP)
        families = scene.found.families(title)
        by_type = [family for family, lines in families.items() if len(lines) > 1]
        ordered = [*by_type, *(family for family in families if family not in by_type)]
        family = st.selectbox("What it noted", ordered, key="type_noted", format_func=lambda name: name.replace("_", " "), **_KEEP)
    names = families[family]
    frame = scene.found.notes[title] if scene.window is None else over_time.notes(scene.shown, title, scene.window)
    names = {name: label for name, label in names.items() if (frame["name"] == name).any()}
    if not names:
        st.caption("Nothing of it was noted before the end of the chosen window.")
        return
    colours = charts.note_colours(list(names.values()), scene.types)
    said, axis = family.replace("_", " "), overview.axis(scene.said, scene.window)
    drawn = charts.note_lines(frame, {name: (label, colours[label]) for name, label in names.items()}, axis, f"What {title} noted: {said}")
    last = [f"{label} {_last(frame, name):.4g}" for name, label in names.items()]
    alt = f"{said} over time as {title} noted it. At the end: {', '.join(last)}."
    figure.draw(drawn, "type-notes", alt, lambda: frame[frame["name"].isin(list(names)).to_numpy()].rename(columns=_NOTED))
    st.caption("Numbers of the policy's own, in its own unit, with each of its decisions; each holds until the next. Long runs are averaged.")


def _busy(use: Mapping[str, pd.DataFrame]) -> str:
    return "; ".join(f"{title}: {', '.join(_busy_types(frame))}" for title, frame in use.items())


def _busy_types(frame: pd.DataFrame) -> list[str]:
    rows = zip(frame["gpu_type"], frame["held_gpu_h"], frame["capacity_gpu_h"], strict=True)
    return [f"{kind} {words.share(float(held) / float(there))}" for kind, held, there in rows if there > 0]


def _cost(use: Mapping[str, pd.DataFrame]) -> str:
    return "; ".join(
        f"{title} {words.money(float(frame['held_usd'].sum()))} of {words.money(float(frame['capacity_usd'].sum()))}" for title, frame in use.items()
    )


def _later(frame: pd.DataFrame) -> float:
    return 100 * float((frame["rho"] > _SAME).mean())


def _last(frame: pd.DataFrame, name: str) -> float:
    return float(frame.loc[(frame["name"] == name).to_numpy(), "value"].iloc[-1])


@st.cache_resource(max_entries=24, show_spinner=False)
def _report(mark: str, _shown: Shown) -> TypeReport:
    del mark
    return gpu_types.type_report(_shown)


_SAME: Final = 1.0 + 1e-9
_MEANING: Final = (
    "Left of 1: sooner than with an equal part of every GPU type for each of the jobs that are there at a time, computed without pauses and failures."
)
_AGAINST: Final = "Jobs completed under both; left of 1: sooner than under the policy that they are compared with."
_USE: Final = {
    "policy": "Policy",
    "gpu_type": "GPU type",
    "held_gpu_h": "Held (GPU-hours)",
    "capacity_gpu_h": "There (GPU-hours)",
    "held_usd": "Held (USD)",
    "capacity_usd": "All (USD)",
}
_NOTED: Final = {"name": "Note", "t_s": "Seconds since the first submission", "value": "Value"}
_RHO: Final = {"policy": "Policy", "share": "Share of jobs", "rho": "At most so many times the reference"}
_NOTES: Final = "Notes over time"
_VIEWS: Final[Mapping[str, Callable[[_Scene], None]]] = {"Who gets which": _shares, "Use and cost": _use, "Finish-time fairness": _fairness, _NOTES: _notes}
