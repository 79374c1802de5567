"""Data frames for charts: series of a run, binned for display, whole or in a window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pandas as pd

from sim import metrics
from sim.cluster import Cluster
from sim.engine.simulator import Measure
from sim.errors import ParameterError
from sim.metrics import reduce_frame
from sim.perf import PerfSpec
from sim.perf.lookup import used_types
from sim.result import RunResult
from sim.trace import Trace

SERIES: Final[Mapping[str, Callable[[RunResult, Cluster], pd.DataFrame]]] = {
    "queue": lambda result, cluster: metrics.queue_series(result),
    "utilisation": metrics.utilisation_series,
    "capacity": metrics.capacity_series,
    "states": metrics.state_series,
}
"""Name of a step series -> function; its frame has ``t_s`` and values that hold until the next."""
MAX_SHOWN: Final = 6
"""Maximum number of policies with distinct colors in one chart."""
_RESOURCE_BINS: Final = 149
"""Bins of a resource chart: three lines per policy."""
_ALLOCATION_BINS: Final = 499
"""Bins of the allocation chart: one policy, at most nine lines and the capacity."""


def policies_to_draw(titles: Sequence[str], baseline: str) -> tuple[str, ...]:
    """Return the first `MAX_SHOWN` titles; the baseline replaces the last if it is not there."""
    first = titles[:MAX_SHOWN]
    return tuple(first if baseline not in titles or baseline in first else [*first[:-1], baseline])


def series(
    name: str,
    result: RunResult,
    cluster: Cluster,
    window: tuple[float, float] | None = None,
    bins: int = 999,
) -> pd.DataFrame:
    """Return one binned step series.

    Parameters
    ----------
    name : str
        Key of `SERIES`.
    result : RunResult
        The run.
    cluster : Cluster
        The machines.
    window : (float, float) or None, seconds
        None = the whole run.
    bins : int
        Maximum number of bins.

    Raises
    ------
    ParameterError
        If the name is unknown or the window empty.
    """
    if name not in SERIES:
        raise ParameterError(f"There is no series '{name}'. Choose one of {', '.join(SERIES)}.")
    t0, t1 = window or (0.0, max(result.end_s, 1.0))
    return reduce_frame(SERIES[name](result, cluster), t0, t1, bins)


def repeat_note(repeats: int, seed: int) -> str:
    """Return the note that says which repeat a time series shows; "" without repeats."""
    return f"Time series show the first of {repeats} repeats (seed {seed})." if repeats > 1 else ""


def chart_frames(result: RunResult, cluster: Cluster, measure: Measure) -> dict[str, pd.DataFrame]:
    """Return the binned frames of all charts: series, resources, allocation, CDF, JCT parts."""
    # Frames are stored per run, before the number of policies on a page is known, so assume the
    # maximum. Lines per policy: queue, busy, one per GPU type, capacity, fragmented; plus the total
    # capacity. Bands are drawn for few policies only and need fewer lines.
    bins = metrics.bins_for(MAX_SHOWN * (4 + len(cluster.types)) + 1)
    frames = {name: series(name, result, cluster, bins=bins) for name in SERIES}
    used = metrics.resource_series(result, cluster)
    return frames | {
        "resources": (
            reduce_frame(used, 0.0, max(result.end_s, 1.0), _RESOURCE_BINS) if len(used) else used
        ),
        "allocation": metrics.allocation_series(result, bins=_ALLOCATION_BINS),
        "cdf": metrics.jct_cdf(result, measure),
        "parts": metrics.jct_parts(result, measure),
    }


def type_frames(
    result: RunResult, trace: Trace, cluster: Cluster, measure: Measure, perf: PerfSpec
) -> dict[str, pd.DataFrame]:
    """Return the frames of charts by GPU type; {} for clusters with one type.

    Returns
    -------
    dict
        ``types`` (see `sim.metrics.type_shares`), ``use`` (`type_use`), ``notes`` (`note_series`),
        and ``fairness`` (`fairness` against `isolated_s`).
    """
    if len(used_types(cluster)) < 2:
        return {}
    return {
        "types": metrics.type_shares(result, trace, cluster, measure),
        "use": metrics.type_use(result, cluster),
        "notes": metrics.note_series(result),
        "fairness": metrics.fairness(
            result, metrics.isolated_s(trace, cluster, perf.bind(trace, cluster)), measure
        ),
    }
