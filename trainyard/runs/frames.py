"""Frames for charts: full series of a run, reduced to what a screen can show, for the whole run or
a window of it.
"""

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
"""Name of a step series -> function; each frame has ``t_s`` and its values, a row holding until the
next.
"""
MOST_SHOWN: Final = 6
"""Policies that one chart can show with different colours."""
_RESOURCE_BINS: Final = 149
"""Three lines per policy, of one resource at a time."""
_ALLOCATION_BINS: Final = 499
"""One policy at a time, with at most nine lines: together with the capacity what the other charts
of a page leave of its points.
"""


def drawn(titles: Sequence[str], baseline: str) -> tuple[str, ...]:
    """Return which of some policies are drawn where one chart has several: the first few, the
    baseline always among them.
    """
    first = titles[:MOST_SHOWN]
    return tuple(first if baseline not in titles or baseline in first else [*first[:-1], baseline])


def series(
    name: str,
    result: RunResult,
    cluster: Cluster,
    window: tuple[float, float] | None = None,
    bins: int = 999,
) -> pd.DataFrame:
    """Return one reduced step series.

    Parameters
    ----------
    name : str
        Key of `SERIES`.
    result : RunResult
        The run.
    cluster : Cluster
        The machines it ran on.
    window : (float, float) or None, seconds
        None = the whole run.
    bins : int
        At most this many.

    Raises
    ------
    ParameterError
        If the name is unknown or the window empty.
    """
    if name not in SERIES:
        raise ParameterError(f"There is no series '{name}'. Choose one of {', '.join(SERIES)}.")
    t0, t1 = window or (0.0, max(result.end_s, 1.0))
    return reduce_frame(SERIES[name](result, cluster), t0, t1, bins)


def first_of(repeats: int, seed: int) -> str:
    """Return what must be known of figures over time where there are repeats; "" = there are
    none.
    """
    return (
        f"Figures over time show the first of {repeats} repeats, with seed {seed}."
        if repeats > 1
        else ""
    )


def chart_frames(result: RunResult, cluster: Cluster, measure: Measure) -> dict[str, pd.DataFrame]:
    """Return what the first view of a result draws: the series of `SERIES` and ``resources`` over
    the whole run, ``allocation``, ``cdf`` and ``parts``.
    """
    # Frames are kept per run, before anybody knows how many policies a page will show: so for the
    # most. Per policy one line waits, one is busy, one per GPU type, one its capacity, one what is
    # fragmented; and the capacity above all. Bands are drawn for few policies only, which makes
    # fewer lines than that.
    bins = metrics.bins_for(MOST_SHOWN * (4 + len(cluster.types)) + 1)
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
    """Return what is drawn where a cluster has several GPU types, nothing elsewhere.

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
