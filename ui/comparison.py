"""The parts of the Compare page: headline, table, figures, trust, how jobs ended, and exports; each part is drawn from one stored report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

import charts
from lab import outcomes
from lab.front import Study
from lab.outcomes import Report, Shown
from ui import server, tables, words

_AXIS: Final = "axis"
_CALENDAR: Final = "calendar"
_COLUMNS: Final = {"t_s": "Seconds since the first submission", "others": "Other jobs"}
_SMALL_S: Final = 0.5
"""A part below that is not worth a sentence."""


@st.cache_resource(max_entries=24, show_spinner=False)
def report(mark: str, _shown: Shown) -> Report | None:
    """Return the comparison of the complete runs; shared by all sessions and never changed.

    Parameters
    ----------
    mark : str
        `Shown.mark`: the hashes of the runs, because frames must not be keys.
    """
    del mark
    return outcomes.report(_shown, server.store())


def headline(said: Report) -> None:
    """Draw the sentence and what it is about."""
    st.subheader(words.plain(said.headline), anchor=False)
    st.caption(words.plain(said.facts))
    if said.assumptions:
        with st.expander("Assumed of how jobs scale, because the trace does not say it", icon=":material/rule:"):
            for sentence in said.assumptions:
                st.markdown(words.plain(sentence))


def table(said: Report, look: tables.Look) -> None:
    """Draw the metrics, with all of them folded below."""
    st.html(tables.main_table(said.table, look, said.remarks))
    if said.overflow:
        st.warning(words.plain(said.overflow), icon=":material/warning:")
    _ends(said)
    if said.not_common:
        st.caption(words.plain(said.not_common))
    with st.expander("All metrics"):
        st.html(tables.full_table(said.table, look, said.remarks))


def figures(said: Report, style: tables.Style, study: Study) -> None:
    """Draw the linked rows over time, and the distribution of completion times."""
    shown = [title for title in said.labels if title in list(style)[: outcomes.MOST_SHOWN]]
    if said.epoch:
        st.segmented_control("Time axis", ["since start", _CALENDAR], default="since start", key=_AXIS)
    over_time = _over_time(said, shown, style, _axis(said, calendar=bool(said.epoch) and _calendar()), study)
    st.plotly_chart(over_time, key="timeline", config=charts.image_config("trainyard-timeline"), alt=_alt(said, study.base.cluster.gpus))
    left_out = {title: said.left_out[title] for title in shown}
    curves = {title: said.frames["cdf"][title] for title in shown}
    cdf = charts.jct_cdf(curves, {title: style[title] for title in shown}, "How long do jobs take, from submission to finish?", left_out)
    st.plotly_chart(cdf, key="cdf", config=charts.image_config("trainyard-jct"), alt="Share of jobs done within a time, by policy")


def decomposition(said: Report) -> None:
    """Draw what the mean completion times consist of, with a sentence on every part that is there."""
    table = said.parts
    figure = charts.decomposition(table, "Where does the time of a job go?")
    st.plotly_chart(figure, key="parts", config=charts.image_config("trainyard-jct-parts"), alt=_parts_alt(table))
    there = [part for part in charts.PARTS if (table[part.column] > _SMALL_S).any()]
    st.caption(f"Means over completed jobs. {'; '.join(f'**{part.name}**: {part.meaning}' for part in there)}.")
    with st.expander("Data", key="data/parts", on_change="rerun") as box:
        if box.open:
            told = {part.name.capitalize(): table[part.column].map(words.time) for part in charts.PARTS}
            st.dataframe({"Policy": table["policy"], "Jobs completed": table["jobs"], "Mean JCT": table["jct_s"].map(words.time), **told}, hide_index=True)


@st.fragment
def allocation(said: Report, study: Study) -> None:
    """Draw which jobs hold the GPUs under one policy, which the user chooses; nothing without GPUs."""
    if not study.base.cluster.gpus:
        return
    title = st.selectbox("Policy of the next chart", said.labels, key="allocation_policy", width=320)
    series, capacity = said.frames["allocation"][title], said.frames["capacity"][title]
    axis = _axis(said, calendar=bool(said.epoch) and _calendar())
    figure = charts.allocation(series, axis, said.job_ids, capacity, "Which jobs hold the GPUs?")
    named = [said.job_ids[name] for name in series.columns if name in said.job_ids]
    alt = f"GPUs per job over time under {title}, stacked. The jobs with the most GPU-hours: {', '.join(named)}."
    st.plotly_chart(figure, key="allocation", config=charts.image_config("trainyard-allocation"), alt=alt)
    st.caption(f"Named: the {words.plural(len(named), 'job')} with the most GPU-hours of this run; what is empty below the dotted line, the capacity, is free.")
    with st.expander("Data", key="data/allocation", on_change="rerun") as box:
        if box.open:
            st.dataframe(series.rename(columns=_COLUMNS | {name: f"Job {job}" for name, job in said.job_ids.items()}), hide_index=True)


def trust(said: Report) -> None:
    """Draw how far the simulator is from the recorded history."""
    if said.trust is None:
        st.caption("This trace holds no recorded start times, so nothing can be said about how close the simulator comes to what happened.")
        return
    with st.expander(f"How far to believe it: {words.plain(said.trust.sentence())}"):
        told = said.trust.by_size.assign(**{name: said.trust.by_size[name].map(words.time) for name in ("recorded_s", "median_s", "p95_s")})
        st.dataframe(told, hide_index=True, height="content", column_config=_TRUST)
        st.caption("Absolute error of the wait (first start − submission) against the recorded one, by GPUs asked for.")


def look(shown: Shown) -> tables.Look:
    """Return how the policies of a study are drawn: by their place in it, so that one that comes later changes no colour."""
    baseline = shown.titles[shown.study.baseline]
    dark = getattr(st.context.theme, "type", "light") == "dark"
    return tables.Look(charts.policy_style(shown.titles, baseline), baseline if shown.complete(shown.study.baseline) else "", dark)


def _calendar() -> bool:
    return st.session_state.get(_AXIS) == _CALENDAR


def _parts_alt(table: pd.DataFrame) -> str:
    told = [
        f"{row['policy']} {words.time(float(row['jct_s']))}, of it {words.time(float(row['queue_s']))} waiting to start" for row in table.to_dict("records")
    ]
    return f"Mean completion time and its parts, by policy: {'; '.join(told)}."


def _axis(said: Report, *, calendar: bool) -> charts.TimeAxis:
    return charts.TimeAxis(0.0, max(said.end_s, 1.0), said.epoch if calendar else "")


def _over_time(said: Report, shown: Sequence[str], style: tables.Style, axis: charts.TimeAxis, study: Study) -> Any:
    queue, busy, capacity = ({title: said.frames[kind][title] for title in shown} for kind in ("queue", "utilisation", "capacity"))
    if not study.base.cluster.gpus:
        return charts.timeline(queue, {}, (style, {}), axis, title="Who waits?")
    types = charts.type_style([kind.name for kind in study.base.cluster.types])
    return charts.timeline(queue, busy, (style, types), axis, capacity=capacity, title="Who waits, and how busy are the GPUs?")


def _ends(said: Report) -> None:
    """Say how many jobs did not complete, beside every mean."""
    rows = [{str(key): value for key, value in row.items()} for row in said.counts.to_dict("records")]
    told = []
    for row in rows:
        why = f" ({row['why']})" if row["why"] else ""
        others = [
            f"{words.count(row[name])} {name}{why if name == 'failed' else ''}" for name in ("failed", "impossible", "refused", "unfinished") if row[name]
        ]
        if others:
            told.append(f"{words.plain(str(row['label']))}: {', '.join(others)}")
    st.caption(
        f"Not completed, so not in the means: {'; '.join(told)}."
        if told
        else f"All {words.plural(int(rows[0]['jobs']), 'job')} were completed under every policy."
    )


def _alt(said: Report, gpus: int) -> str:
    return f"Jobs waiting{', GPUs busy and utilisation by GPU type' if gpus else ''} over time for {', '.join(said.labels)}. {said.headline}"


_TRUST: Final[dict[str, Any]] = {
    "size": "GPUs",
    "jobs": st.column_config.NumberColumn("Jobs", format="localized"),
    "recorded_s": "Median recorded wait",
    "median_s": "Median error",
    "p95_s": "95th percentile of the error",
}
