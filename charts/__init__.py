"""Figures: pure functions from small frames to Plotly figures; no Streamlit, no simulation, never WebGL."""

from charts.allocation import PARTS, allocation, decomposition
from charts.axes import TimeAxis, duration_text
from charts.bars import MOST_SPELLS, life, node_jobs
from charts.behind import predictions, resources
from charts.cluster import racks
from charts.decides import example
from charts.groups import dumbbell
from charts.hetero import fairness_cdf, note_colours, note_lines, type_cost, type_shares, type_use
from charts.jct import jct_cdf
from charts.lesson import lesson_curve
from charts.occupancy import Grid, down_spells, instant_strip, label_px, left_out, occupancy, row_labels, thinned
from charts.over_time import STATES, Row, busy_row, fragmentation_row, linked_rows, state_row, timeline, type_row, waiting_row
from charts.overview import overview
from charts.plan import Nodes, Target, capacity_curve, mix_map
from charts.replay import Claim, published_vs_simulated, ratio_curve
from charts.scaling import speedup_figure
from charts.since import parted
from charts.sweep import Amount, sweep_curve, sweep_map
from charts.theme import image_config, literal, policy_style, type_style, visible
from charts.winners import winners
from charts.workload import arrivals, durations, heaviest, sizes

__all__ = [
    "MOST_SPELLS",
    "PARTS",
    "STATES",
    "Amount",
    "Claim",
    "Grid",
    "Nodes",
    "Row",
    "Target",
    "TimeAxis",
    "allocation",
    "arrivals",
    "busy_row",
    "capacity_curve",
    "decomposition",
    "down_spells",
    "dumbbell",
    "duration_text",
    "durations",
    "example",
    "fairness_cdf",
    "fragmentation_row",
    "heaviest",
    "image_config",
    "instant_strip",
    "jct_cdf",
    "label_px",
    "left_out",
    "lesson_curve",
    "life",
    "linked_rows",
    "literal",
    "mix_map",
    "node_jobs",
    "note_colours",
    "note_lines",
    "occupancy",
    "overview",
    "parted",
    "policy_style",
    "predictions",
    "published_vs_simulated",
    "racks",
    "ratio_curve",
    "resources",
    "row_labels",
    "sizes",
    "speedup_figure",
    "state_row",
    "sweep_curve",
    "sweep_map",
    "thinned",
    "timeline",
    "type_cost",
    "type_row",
    "type_shares",
    "type_style",
    "type_use",
    "visible",
    "waiting_row",
    "winners",
]
