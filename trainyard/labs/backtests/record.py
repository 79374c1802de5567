"""Recorded waits of a trace, their split into fitted and judged part, and quality checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.metrics import SIZE_CLASSES, size_class
from sim.metrics.gpu_seconds import absences
from sim.metrics.steps import accumulate
from sim.trace import Trace
from trainyard.formatting import duration, plural

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
DAY_S: Final = 86_400.0
MIN_JOBS: Final = 200
MIN_DAYS: Final = 3.0
MAX_WITHOUT_START: Final = 0.2
"""Share of jobs without a recorded start above which the recording cannot be judged against."""
OVER: Final = 1.05
OVER_TIME: Final = 0.01
"""Use above capacity by this factor, for this share of time, shows a wrong cluster."""
MIN_JUDGED: Final = 30
JUDGED_S: Final = 7 * DAY_S
_LOADED: Final = 10
"""Jobs present at the start of the recording from which they are kept as recorded."""


@dataclass(frozen=True, eq=False)
class RecordedJobs:
    """Recorded times and sizes, one row per job of the trace.

    Parameters
    ----------
    submit_s, start_s, end_s : array, seconds
        Recorded times; NaN = no start.
    size : array
        GPUs, or cores where less than half of the jobs ask for GPUs.
    unit : {"GPUs", "cores"}
        Of `size`.
    partition : sequence of str
        Partition of each job; "" = unknown.
    size_name : sequence of str
        Size class of each job.
    """

    submit_s: Floats
    start_s: Floats
    end_s: Floats
    size: Floats
    unit: str
    partition: NDArray[np.object_]
    size_name: NDArray[np.object_]

    @classmethod
    def from_trace(cls, trace: Trace) -> RecordedJobs:
        """Return the recorded times, size (GPUs or cores), partition and class of every job."""
        start_s = trace.numbers("start_time_s")
        gpus, cores = trace.numbers("num_gpus"), trace.numbers("cpus", 0.0)
        by_gpu = bool(np.mean(gpus > 0) >= 0.5) or not (cores > 0).any()
        size = gpus if by_gpu else cores
        frame = trace.frame
        names = (
            frame["partition"].astype(object).fillna("").to_numpy()
            if "partition" in frame
            else np.full(len(frame), "", object)
        )
        classes = np.asarray(size_class(np.ceil(size).astype(np.int64))).astype(object)
        return cls(
            trace.numbers("submit_time_s"),
            start_s,
            start_s + trace.numbers("duration_s"),
            np.asarray(size, np.float64),
            "GPUs" if by_gpu else "cores",
            names,
            classes,
        )

    @property
    def started(self) -> Mask:
        """Mask of jobs with a recorded start."""
        return np.isfinite(self.start_s)

    @property
    def wait_s(self) -> Floats:
        """Recorded start minus submission."""
        return np.asarray(self.start_s - self.submit_s)

    @property
    def span_s(self) -> float:
        """Time from first to last submission of jobs with a recorded start; 0 without any."""
        at_s = self.submit_s[self.started]
        return float(at_s.max() - at_s.min()) if len(at_s) else 0.0

    @property
    def opens_s(self) -> float:
        """Start of the recording: the first job end; 0 if fewer than `_LOADED` jobs run then.

        An export of a time window holds the jobs that ended later.
        """
        if not self.started.any():
            return 0.0
        first_s = float(np.nanmin(self.end_s))
        is_running = self.started & (self.submit_s <= first_s) & (self.end_s > first_s)
        return first_s if int(is_running.sum()) >= _LOADED else 0.0


@dataclass(frozen=True)
class Split:
    """Split of a recording by submission into warm-up, fitted and judged part.

    Parameters
    ----------
    warm_s : float, seconds
        Jobs submitted earlier are simulated but not measured.
    judge_s : float, seconds
        Jobs submitted from this time are judged; jobs in between are fitted.
    end_s : float, seconds
        The last submission of a job with a recorded start.
    """

    warm_s: float
    judge_s: float
    end_s: float

    def judged_mask(self, record: RecordedJobs) -> Mask:
        """Return the mask of judged jobs: started, submitted in the judged part after warm-up."""
        since_s = max(self.judge_s, self.warm_s)
        return np.asarray(record.started & (record.submit_s >= since_s))

    def fitted_mask(self, record: RecordedJobs) -> Mask:
        """Return the mask of fitted jobs: started, submitted between warm-up and judged part."""
        at_s = record.submit_s
        return np.asarray(record.started & (at_s >= self.warm_s) & (at_s < self.judge_s))

    def unjudged_mask(self, record: RecordedJobs) -> Mask:
        """Return the mask of all recorded jobs before the judged part, including the warm-up."""
        return np.asarray(record.started & (record.submit_s < self.judge_s))


def split_record(
    record: RecordedJobs,
    half_life_s: float,
    warm_s: float | None = None,
    judge_s: float | None = None,
) -> Split:
    """Divide a recording by time into warm-up, fitted and judged part.

    Waits are correlated, so a random split would leak the judged part into the fit.

    Parameters
    ----------
    record : RecordedJobs
        The recorded jobs.
    half_life_s : float, seconds
        Half-life of the usage that the policy remembers; 0 = none.
    warm_s : float or None, seconds
        Length of the warm-up; None = the longest of a day, a half-life, and the 95th percentile of
        the recorded waits.
    judge_s : float or None, seconds
        Length of the judged part; None = seven days, or half of the record if that is less.
    """
    at_s = record.submit_s[record.started]
    first_s, last_s = float(at_s.min()), float(at_s.max())
    if warm_s is None:
        p95_s = float(np.percentile(record.wait_s[record.started], 95))
        warm_s = max(DAY_S, half_life_s, p95_s)
    if judge_s is None:
        judge_s = min(JUDGED_S, record.span_s / 2)
    return Split(first_s + warm_s, max(last_s - judge_s, first_s), last_s)


def record_faults(trace: Trace, cluster: Cluster) -> tuple[str, ...]:
    """Return why a recording is unusable for a backtest, with the remedy; empty if usable.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        The jobs and the described machines.
    """
    if not trace.has("start_time_s"):
        return (
            "The trace holds no recorded start times. Needed: an export with the start of each job,"
            " for example of sacct.",
        )
    record = RecordedJobs.from_trace(trace)
    started = int(record.started.sum())
    sentences = []
    if started < MIN_JOBS:
        sentences.append(
            f"Only {plural(started, 'job')} {'has' if started == 1 else 'have'} a recorded start."
            f" Needed: at least {MIN_JOBS}."
        )
    if record.span_s < MIN_DAYS * DAY_S:
        sentences.append(
            f"The record spans {duration(record.span_s)}. Needed: at least {MIN_DAYS:g} days, so"
            " that days can be judged that were not fitted."
        )
    early = int((record.wait_s[record.started] < 0).sum())
    if early:
        sentences.append(
            f"{plural(early, 'job')} started before {'its' if early == 1 else 'their'} submission."
            " Needed: times of one clock, in one zone."
        )
    without = 1 - started / len(trace)
    if without > MAX_WITHOUT_START:
        sentences.append(
            f"{100 * without:.0f} % of the jobs have no recorded start. Needed: at most"
            f" {100 * MAX_WITHOUT_START:.0f} %, because their use is unknown."
        )
    if beyond := _overuse_sentence(record, trace, cluster):
        sentences.append(beyond)
    return tuple(sentences)


def use(
    record: RecordedJobs, start_s: Floats, end_s: Floats, chosen: Mask
) -> tuple[Floats, Floats]:
    """Return the amount in use over time: instants, and the value from each on."""
    has_times = chosen & np.isfinite(start_s) & np.isfinite(end_s)
    size = record.size[has_times]
    at_s = np.concatenate((start_s[has_times], end_s[has_times]))
    t_s, (level,) = accumulate(at_s, [np.concatenate((size, -size))])
    return t_s, level


def capacity(cluster: Cluster, unit: str) -> float:
    """Return the GPUs or cores of a cluster; inf if cores are not modelled."""
    return float(sum(node.gpus if unit == "GPUs" else node.cpus for node in cluster.nodes))


def _overuse_sentence(record: RecordedJobs, trace: Trace, cluster: Cluster) -> str:
    """Return the sentence on recorded use above the cluster's capacity; "" = none.

    Checks GPUs, then cores, in service at that instant; short excesses are tolerated.
    """
    for unit, sizes in (("GPUs", trace.numbers("num_gpus")), ("cores", trace.numbers("cpus", 0.0))):
        total = capacity(cluster, unit)
        is_counted = record.started & (sizes > 0)
        if not np.isfinite(total) or not is_counted.any():
            continue
        of_node = np.array([n.gpus if unit == "GPUs" else n.cpus for n in cluster.nodes], float)
        node, gone_s, back_s = absences(cluster, float(np.nanmax(record.end_s)))
        size, away = sizes[is_counted], of_node[node]
        at_s = np.concatenate(
            (record.start_s[is_counted], record.end_s[is_counted], gone_s, back_s)
        )
        changes = [
            np.concatenate((size, -size, np.zeros(2 * len(away)))),
            np.concatenate((np.zeros(2 * len(size)), away, -away)),
        ]
        t_s, (used, absent) = accumulate(at_s, changes)
        lengths = np.diff(t_s)
        over = float(lengths[(used > OVER * (total - absent))[:-1]].sum())
        if lengths.sum() > 0 and over > OVER_TIME * lengths.sum():
            most = float(used.max())
            return (
                f"The record uses more than the cluster has: up to {most:,.0f} {unit} of"
                f" {total:,.0f}, for {100 * over / lengths.sum():.0f} % of the time. Needed: the"
                " cluster as it was."
            )
    return ""


def job_groups(record: RecordedJobs, chosen: Mask) -> list[tuple[str, str, Mask]]:
    """Return (kind, name, mask) of `chosen` jobs, by partition and by size.

    Kinds with a single group are left out.
    """
    groups = []
    for kind, names in (("Partition", record.partition), ("Size", record.size_name)):
        present = pd.unique(names[chosen])
        rank = {name: at for at, name in enumerate(SIZE_CLASSES)}
        for name in sorted(map(str, present), key=lambda one: (rank.get(one, 0), one)):
            members = np.asarray(chosen & (names == name))
            if name and len(present) > 1:
                groups.append((kind, name, members))
    return groups
