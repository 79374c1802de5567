"""The shape of a trace: arrivals, GPUs per job, run times, and who asks for most; each chart with its finding and its numbers beside it."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import streamlit as st

import charts
from trainyard.traces.intake import Profile
from ui import figure, words


def draw(facts: Profile) -> None:
    """Draw the charts in a grid that reflows."""
    axis = charts.TimeAxis(0.0, max(facts.span_s, 1.0))
    grid = st.grid(2, min_column_width=420)
    with grid.cell():
        _one(charts.arrivals(facts.arrivals, axis), "arrivals", (_peak(facts.arrivals), _PEAKS), facts.arrivals)
    if facts.gpu_hours:
        with grid.cell():
            _one(charts.sizes(facts.sizes), "gpu-demand", (_largest(facts.sizes), _FEW), facts.sizes)
    with grid.cell():
        _one(charts.durations(facts.durations), "durations", (_half(facts.durations), _ORDER), facts.durations)
    if facts.users is not None:
        with grid.cell():
            _one(charts.heaviest(facts.users), "users", (_heaviest(facts.users), _SHARES), facts.users)


def _one(drawn: Any, name: str, told: tuple[str, str], rows: pd.DataFrame) -> None:
    """Draw a chart, and below it what it shows and what that means."""
    figure.draw(drawn, name, told[0], lambda: rows.rename(columns=_NAMED))
    st.caption(words.plain(" ".join(told)))


_HOUR_S: Final = 3600.0
_PEAKS: Final = "Queues form in the peaks."
_FEW: Final = "Where the two differ, few large jobs hold most of the GPUs, and wait until so many are free at once."
_ORDER: Final = "The wider this is, the more the order matters in which jobs start: short ones behind long ones wait many times their own run time."
_SHARES: Final = "A policy that divides by users treats a few heavy ones otherwise than many light ones."


def _peak(arrivals: pd.DataFrame) -> str:
    most = arrivals.iloc[int(arrivals["jobs_per_hour"].argmax())]
    width_s, rate = float(most["width_s"]), f"{words.count(float(most['jobs_per_hour']))} per hour"
    many = rate if width_s >= _HOUR_S else f"{words.plural(int(most['jobs']), 'job')} in {words.time(width_s)}"
    return f"Jobs per hour over time: at most {many}, at {words.instant(float(most['t_s']))}."


def _largest(sizes: pd.DataFrame) -> str:
    jobs, hours = (sizes["gpus"].iloc[int(sizes[name].argmax())].replace("-", "–") for name in ("jobs", "gpu_hours"))
    return f"Share of jobs and of GPU-hours by GPUs asked for: most jobs ask for {jobs}, most GPU-hours are of jobs that ask for {hours}."


def _half(durations: pd.DataFrame) -> str:
    middle = durations.iloc[int((durations["jobs"].cumsum() < durations["jobs"].sum() / 2).sum())]
    low, high = words.time(float(middle["low_s"])), words.time(float(middle["high_s"]))
    return f"Jobs by recorded run time, logarithmic: the median is {f'about {low}' if low == high else f'between {low} and {high}'}."


def _heaviest(users: pd.DataFrame) -> str:
    column, unit = ("gpu_hours", "GPU-hours") if "gpu_hours" in users else ("core_hours", "core-hours")
    hours = float(users[column].iloc[0])
    told = words.count(hours) if hours >= 10 else f"{hours:.2g}"
    return f"Who asks for most: {users['name'].iloc[0]}, {told} {unit[:-1] if told == '1' else unit}."


_NAMED: Final = {
    "t_s": "From (s)",
    "width_s": "Width (s)",
    "jobs": "Jobs",
    "jobs_per_hour": "Jobs per hour",
    "gpus_per_hour": "GPUs asked for per hour",
    "gpus": "GPUs",
    "gpu_hours": "GPU-hours",
    "core_hours": "Core-hours",
    "low_s": "From (s)",
    "high_s": "To (s)",
    "name": "Name",
}
