"""Metrics: pure functions from the result of a run to numbers and tables, without a new run."""

from sim.metrics.gpu_seconds import UsageArrays, capacity_gpu_s, cost_cluster_usd, downtimes
from sim.metrics.gpu_types import (
    fairness,
    isolated_s,
    note_families,
    note_series,
    quantiles,
    ratios,
    type_shares,
    type_use,
)
from sim.metrics.jobs import (
    JCT_PARTS,
    OTHERS,
    SIZE_CLASSES,
    Window,
    allocation_series,
    change_histogram,
    distribution,
    jct_cdf,
    jct_parts,
    job_table,
    measured_mask,
    size_class,
)
from sim.metrics.predictions import Accuracy, accuracy, prediction_points
from sim.metrics.registry import summary
from sim.metrics.resources import resource_hours, resource_series, resource_share
from sim.metrics.run_state import first_difference_s
from sim.metrics.series import (
    GPU_STATES,
    capacity_series,
    presence,
    queue_series,
    state_series,
    utilisation_series,
)
from sim.metrics.steps import Steps, bins_for, integral, reduce_frame, reduce_steps
from sim.metrics.workload import arrivals, durations, heaviest, node_table, sizes

__all__ = [
    "GPU_STATES",
    "JCT_PARTS",
    "OTHERS",
    "SIZE_CLASSES",
    "Accuracy",
    "Steps",
    "UsageArrays",
    "Window",
    "accuracy",
    "allocation_series",
    "arrivals",
    "bins_for",
    "capacity_gpu_s",
    "capacity_series",
    "change_histogram",
    "cost_cluster_usd",
    "distribution",
    "downtimes",
    "durations",
    "fairness",
    "first_difference_s",
    "heaviest",
    "integral",
    "isolated_s",
    "jct_cdf",
    "jct_parts",
    "job_table",
    "measured_mask",
    "node_table",
    "note_families",
    "note_series",
    "prediction_points",
    "presence",
    "quantiles",
    "queue_series",
    "ratios",
    "reduce_frame",
    "reduce_steps",
    "resource_hours",
    "resource_series",
    "resource_share",
    "size_class",
    "sizes",
    "state_series",
    "summary",
    "type_shares",
    "type_use",
    "utilisation_series",
]
