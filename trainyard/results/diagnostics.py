"""What is behind the results of a study: how well sizes were told, and what was used of the cores and memory that jobs held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sim.metrics import Accuracy, accuracy, predicted
from sim.trace import Trace
from trainyard.results.outcomes import Shown, measured_jobs
from trainyard.study import catalog

_EXACT = 1e-9


@dataclass(frozen=True, eq=False)
class Behind:
    """Of the complete policies of a study, first repeats.

    Parameters
    ----------
    points : mapping of DataFrame
        Title -> `job_id`, `ideal_s` and `believed_s`, at most 1,000 jobs, see `sim.metrics.predicted`; only of policies that asked for sizes, and empty where
        every size that anybody was told was true.
    accuracy : mapping of Accuracy
        Title -> how near they were; the same policies.
    resources : mapping of DataFrame
        Title -> reduced `sim.metrics.resource_series`; only of runs of which the use of something is known.
    """

    points: Mapping[str, pd.DataFrame]
    accuracy: Mapping[str, Accuracy]
    resources: Mapping[str, pd.DataFrame]


def behind(shown: Shown, trace: Trace) -> Behind:
    """Collect what the complete policies left behind.

    Raises
    ------
    StoreError
        If a stored result was removed meanwhile.
    """
    entries = {shown.titles[at]: shown.entries[at][0] for at in shown.places}
    jobs = {title: entry.jobs() for title, entry in entries.items()}
    masks = {title: measured_jobs(frame, shown.study) for title, frame in jobs.items()}
    asked = [shown.titles[at] for at in shown.places if "remaining_work" in catalog.allocator(shown.study.allocators[at]).needs]
    near = {title: found for title in asked if (found := accuracy(jobs[title], masks[title])).jobs}
    names = trace.frame["job_id"].to_numpy()
    points = {title: (frame := predicted(jobs[title], masks[title])).assign(job_id=names[frame["job"].to_numpy()]) for title in near}
    if not any(_differ(frame) for frame in points.values()):
        points, near = {}, {}
    used = {title: frame for title, entry in entries.items() if len(frame := entry.chart("resources"))}
    return Behind(points, near, used)


def _differ(points: pd.DataFrame) -> bool:
    return bool((np.abs(points["believed_s"] / points["ideal_s"] - 1) > _EXACT).any())
