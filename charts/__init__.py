"""Figures: pure functions from small frames to Plotly figures; no Streamlit, no simulation, never WebGL."""

from charts.axes import TimeAxis, duration_text
from charts.cluster import racks
from charts.jct import change_histogram, dumbbell, jct_cdf
from charts.over_time import Row, busy_row, fragmentation_row, linked_rows, timeline, type_row, waiting_row
from charts.theme import image_config, policy_style, type_style
from charts.workload import arrivals, durations, heaviest, sizes

__all__ = [
    "Row",
    "TimeAxis",
    "arrivals",
    "busy_row",
    "change_histogram",
    "dumbbell",
    "duration_text",
    "durations",
    "fragmentation_row",
    "heaviest",
    "image_config",
    "jct_cdf",
    "linked_rows",
    "policy_style",
    "racks",
    "sizes",
    "timeline",
    "type_row",
    "type_style",
    "waiting_row",
]
