"""The shape of a trace: arrivals, GPUs per job, run times, and who asks for most; each chart with its numbers beside it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

import charts
from lab.intake import Profile


def draw(facts: Profile) -> None:
    """Draw the charts in a grid that reflows."""
    axis = charts.TimeAxis(0.0, max(facts.span_s, 1.0))
    grid = st.grid(2, min_column_width=420)
    with grid.cell():
        _one(charts.arrivals(facts.arrivals, axis), facts.arrivals, "arrivals", "Jobs per hour over time")
    if facts.gpu_hours:
        with grid.cell():
            _one(charts.sizes(facts.sizes), facts.sizes, "gpu-demand", "Share of jobs and of GPU-hours by GPUs asked for")
    with grid.cell():
        _one(charts.durations(facts.durations), facts.durations, "durations", "Jobs by recorded run time, logarithmic")
    if facts.users is not None:
        with grid.cell():
            _one(charts.heaviest(facts.users), facts.users, "users", "Hours of GPUs, or of cores, by user")


def _one(figure: Any, data: pd.DataFrame, name: str, alt: str) -> None:
    st.plotly_chart(figure, key=f"chart/{name}", config=charts.image_config(f"trainyard-{name}"), alt=alt)
    with st.expander("Data", key=f"data/{name}", on_change="rerun") as box:
        if box.open:
            st.dataframe(data, hide_index=True)
