"""Context of a replay: figures of each policy along an axis, speed-up curves, its study."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from jobtraces.generate.elastic import CLASSES
from sim.metrics.registry import METRICS
from sim.perf.batch import Batch, speedups
from trainyard.labs.replays.explanation import fill_in
from trainyard.labs.replays.report import Numbers, ReplayCell, ReplayReport
from trainyard.labs.replays.types import BASE, Replay, ReplayPoint
from trainyard.study import catalog
from trainyard.study.scenario import Scenario
from trainyard.study.study import Study

ARM_COLUMNS: Final = ("axis", "value", "arm", "metric", "mean", "seeds")
MAX_GPUS: Final = 10
"""Largest size in the speed-up curves."""
_WAYS: Final = {
    "elastic": "best batch for each size",
    "max": "largest batch, fixed",
    "min": "smallest batch, fixed",
}


def by_arm(replay: Replay, numbers: Mapping[ReplayCell, Numbers]) -> pd.DataFrame:
    """Return the mean over seeds of every metric, by point and policy.

    Parameters
    ----------
    replay : Replay
        What was repeated.
    numbers : mapping
        Cell -> its numbers, from `ReplayRun.numbers`.

    Returns
    -------
    DataFrame
        `axis` ("" = the base scenario), `value` (of the axis), `arm` (its title), `metric` (in the
        order of the claims), `mean` (over the seeds with a finite number; NaN = none), `seeds` (how
        many runs there are).
    """
    groups: dict[tuple[ReplayPoint, str], list[Numbers]] = defaultdict(list)
    for cell, numbers_of_cell in numbers.items():
        groups[cell.at, cell.arm].append(numbers_of_cell)
    rows = []
    metric_names = (
        measure.metric
        for measure in (
            *(claim.measure for claim in replay.claims),
            *(one for axis in replay.axes for one in axis.measures),
        )
    )
    metrics = list(dict.fromkeys(metric_names))
    for (at, name), runs in groups.items():
        for metric in metrics:
            values = [one[metric] for one in runs if math.isfinite(one[metric])]
            rows.append(
                (
                    at.axis,
                    at.value,
                    replay.arm(name).title,
                    metric,
                    float(np.mean(values)) if values else math.nan,
                    len(runs),
                )
            )
    return pd.DataFrame(rows, columns=list(ARM_COLUMNS))


def title(metric: str) -> str:
    """Return the title of a metric; as in the replays' texts, a makespan is the total time."""
    if metric == "makespan_s":
        return "Total time"
    return METRICS[metric].title or metric.replace("_", " ")


def unit(metric: str) -> str:
    """Return the unit of a metric: "s", "ms", "1" (a share), "USD" or "" (a plain number)."""
    return METRICS[metric].unit


def explanation(replay: Replay, report: ReplayReport) -> str:
    """Return the explanation of a replay with the numbers of its run."""
    return fill_in(replay.explain, report.in_text, unit)


def speed_curves(base: Scenario) -> pd.DataFrame | None:
    """Return the speed-up of the four classes of jobs with elastic batches, or None.

    Returns
    -------
    DataFrame
        `class`, `gpus`, `arm` (how the batch is chosen), `speedup` (against one GPU at its best
        batch; NaN = cannot run so).
    """
    spec = catalog.instance("perf", base.perf)
    if not isinstance(spec, Batch):
        return None
    rows = [
        (point.model, point.gpus, text, point.speedup)
        for way, text in _WAYS.items()
        for point in speedups(spec, CLASSES, MAX_GPUS, way)
    ]
    return pd.DataFrame(rows, columns=["class", "gpus", "arm", "speedup"])


def study(replay: Replay, at: ReplayPoint = BASE) -> Study | None:
    """Return the comparison of a replay's policies at a point, or None.

    None if the policies differ in more than the allocator. Seed 0; the baseline is the first policy
    that a claim compares with.
    """
    against = next(
        (claim.measure.against for claim in replay.claims if claim.measure.against),
        replay.arms[0].name,
    )
    first, *others = [replay.scenario(arm.name, at) for arm in replay.arms]
    if any(replace(other, allocator=first.allocator) != first for other in others):
        return None
    return Study(
        replace(first, name=replay.title),
        (first.allocator, *(other.allocator for other in others)),
        [arm.name for arm in replay.arms].index(against),
    )
