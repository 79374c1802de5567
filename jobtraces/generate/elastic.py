"""Small workloads of resizable jobs, after published experiments with elastic policies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.errors import ParameterError, TraceError
from sim.params import param
from sim.trace import Trace

Floats = NDArray[np.float64]

HOUR_S: Final = 3600.0
MAX_JOBS: Final = 200_000
"""Largest number of jobs of a workload, because a link can request one."""
MAX_SEED: Final = 1_000_000_000
CLASSES: Final = ("compute", "comm", "balanced", "non-scalable")
"""Models of `BatchJobs`, in the order of its shares."""
_BLOCK: Final = 4096


@dataclass(frozen=True)
class ElasticNodes:
    """Jobs with Poisson arrivals, lognormal work and power-law speed-up, resized by whole nodes.

    The speed-up is nodes ** exponent. Workload of our reconstruction of a published comparison of
    an optimal and a greedy elastic policy on 20 nodes.
    """

    title: ClassVar[str] = "Jobs resized by whole nodes"

    jobs: int = param(200, low=2, high=MAX_JOBS, help="Number of jobs.")
    per_h: float = param(
        10.0,
        title="Arrivals",
        unit="1/h",
        low=0.001,
        high=1e6,
        help="Mean arrivals per hour, a Poisson process.",
    )
    median_h: float = param(
        1.0,
        title="Median run time",
        unit="h",
        low=0.001,
        high=1e4,
        help="Median run time on one node.",
    )
    sigma: float = param(
        1.2,
        title="Spread of run times",
        low=0,
        high=5,
        help="Standard deviation of the logarithm of the run time.",
    )
    shortest_s: float = param(
        120.0,
        title="Shortest run time",
        unit="s",
        low=1,
        high=1e7,
        help="Shorter run times on one node are raised to this.",
    )
    longest_h: float = param(
        48.0,
        title="Longest run time",
        unit="h",
        low=0.001,
        high=1e5,
        help="Longer run times on one node are cut to this.",
    )
    exponent_low: float = param(
        0.55,
        title="Lowest exponent",
        low=0.01,
        high=1,
        help="Least exponent of the speed-up; drawn uniformly.",
    )
    exponent_high: float = param(
        0.95, title="Highest exponent", low=0.01, high=1, help="Largest exponent of the speed-up."
    )
    most_nodes: tuple[float, ...] = param(
        (4.0, 8.0, 16.0),
        title="Largest sizes",
        unit="nodes",
        low=1,
        high=4096,
        help="Largest sizes of the jobs, equally frequent.",
    )
    gpus_per_node: int = param(
        8,
        title="GPUs per node",
        unit="GPUs",
        low=1,
        high=64,
        help="GPUs per node; a job requests one node, which is also its smallest size.",
    )
    seed: int = param(0, low=0, high=MAX_SEED, help="Seed of everything random.")

    def __post_init__(self) -> None:
        """Raise an error for parameters that contradict each other."""
        if self.shortest_s > self.longest_h * HOUR_S:
            raise ParameterError(
                f"elastic-nodes: shortest_s = {self.shortest_s:g} s is more than longest_h ="
                f" {self.longest_h:g} h. Exchange them."
            )
        if self.exponent_low > self.exponent_high:
            raise ParameterError(
                f"elastic-nodes: exponent_low = {self.exponent_low:g} is more than exponent_high ="
                f" {self.exponent_high:g}. Exchange them."
            )
        if not self.most_nodes or any(nodes != int(nodes) for nodes in self.most_nodes):
            raise ParameterError(
                "elastic-nodes: most_nodes must be whole numbers of nodes such as 4/8/16."
            )

    def machines(self) -> Cluster:
        """Return the cluster of the workload: 20 nodes."""
        return Cluster.parse(f"20x{self.gpus_per_node}:v100")

    def make(self) -> Trace:
        """Return the jobs; another `per_h` gives the same jobs with scaled gaps.

        A job requests one node and may grow to a drawn number of nodes.
        """
        arrival_rng, work_rng, exponent_rng, size_rng = random_streams(self.seed, 4)
        gaps = arrival_rng.standard_exponential(self.jobs) * (HOUR_S / self.per_h)
        duration = self.median_h * HOUR_S * np.exp(self.sigma * work_rng.standard_normal(self.jobs))
        exponent = self.exponent_low + (
            self.exponent_high - self.exponent_low
        ) * exponent_rng.random(self.jobs)
        max_nodes = np.array(self.most_nodes)[
            pick_by_share(np.ones(len(self.most_nodes)), size_rng.random(self.jobs))
        ]
        frame = pd.DataFrame(
            {
                "job_id": _job_ids(self.jobs),
                "submit_time_s": np.cumsum(gaps),
                "num_gpus": self.gpus_per_node,
                "duration_s": np.clip(duration, self.shortest_s, self.longest_h * HOUR_S),
                "min_gpus": float(self.gpus_per_node),
                "max_gpus": max_nodes * self.gpus_per_node,
                "scaling_exponent": exponent,
            }
        )
        return Trace.of(
            frame,
            name=f"Made: {self.jobs:,} elastic jobs, {self.per_h:g} per hour, seed {self.seed}",
        )


@dataclass(frozen=True)
class BatchJobs:
    """Jobs with elastic batch sizes and GPUs, of four scaling profiles.

    Poisson arrivals for some hours, uniform run times on one GPU. Workload of our reconstruction of
    a published comparison of elastic and fixed batch sizes. The batch sizes of a profile are those
    of the batch-aware performance model for the model of this name.
    """

    title: ClassVar[str] = "Jobs with elastic batch sizes"

    per_min: float = param(
        1.5,
        title="Arrivals",
        unit="1/min",
        low=0.0001,
        high=1e4,
        help="Mean arrivals per minute, a Poisson process.",
    )
    hours: float = param(
        8.0, title="Time span", unit="h", low=0.01, high=8760, help="Period of arrivals."
    )
    burst: float = param(
        1.0,
        title="Burstiness",
        low=1,
        high=2,
        help=(
            "Arrival rate of the first, third, ... hour over the mean; the other hours "
            "have correspondingly fewer arrivals. 1 = steady, 1.8 = 1.8 and 0.2 times the"
            " mean."
        ),
    )
    shortest_h: float = param(
        0.2,
        title="Shortest run time",
        unit="h",
        low=0.001,
        high=1e4,
        help="Least run time on one GPU at the best batch size; drawn uniformly.",
    )
    longest_h: float = param(
        2.0,
        title="Longest run time",
        unit="h",
        low=0.001,
        high=1e4,
        help="Largest run time on one GPU at the best batch size.",
    )
    shares: tuple[float, ...] = param(
        (1.0, 1.0, 1.0, 1.0),
        title="Mix of scaling profiles",
        low=0,
        high=1e6,
        help="Frequency of compute, comm, balanced and non-scalable jobs.",
    )
    most_gpus: int = param(
        10,
        title="Most GPUs per job",
        unit="GPUs",
        low=1,
        high=4096,
        help="Largest size of every job; its request and smallest size are one GPU.",
    )
    seed: int = param(0, low=0, high=MAX_SEED, help="Seed of everything random.")

    def __post_init__(self) -> None:
        """Raise an error for parameters that contradict each other."""
        if self.shortest_h > self.longest_h:
            raise ParameterError(
                f"batch-jobs: shortest_h = {self.shortest_h:g} h is more than longest_h ="
                f" {self.longest_h:g} h. Exchange them."
            )
        if len(self.shares) != len(CLASSES) or not 0 < sum(self.shares) < math.inf:
            raise ParameterError(
                f"batch-jobs: shares must be {len(CLASSES)} numbers such as 1/1/1/1, for"
                f" {', '.join(CLASSES)}, not all 0."
            )
        if self.per_min * 60 * self.hours > MAX_JOBS:
            raise ParameterError(
                f"batch-jobs: {self.per_min:g} per minute for {self.hours:g} h exceed the limit of"
                f" {MAX_JOBS:,} jobs. Lower one of the two."
            )

    def machines(self) -> Cluster:
        """Return the cluster of the workload: 100 GPUs."""
        return Cluster.parse("25x4:v100")

    def make(self) -> Trace:
        """Return elastic one-GPU jobs; `per_min` rescales arrival times, not the jobs drawn.

        Raises
        ------
        TraceError
            If by chance no job arrives in the time span.
        """
        arrival_rng, work_rng, model_rng = random_streams(self.seed, 3)
        submit = self._times(arrival_rng)
        jobs = len(submit)
        if not jobs:
            raise TraceError(
                f"batch-jobs: no job arrived in {self.hours:g} h at {self.per_min:g} per minute."
                " Raise one of the two, or use another seed."
            )
        hours = self.shortest_h + (self.longest_h - self.shortest_h) * work_rng.random(jobs)
        model = pick_by_share(np.array(self.shares), model_rng.random(jobs))
        frame = pd.DataFrame(
            {
                "job_id": _job_ids(jobs),
                "submit_time_s": submit,
                "num_gpus": 1,
                "duration_s": hours * HOUR_S,
                "model": pd.Categorical.from_codes(model.astype(np.int8), pd.Index(CLASSES)),
                "min_gpus": 1.0,
                "max_gpus": float(self.most_gpus),
            }
        )
        bursts = "" if self.burst == 1 else f" in bursts of {self.burst:g}"
        return Trace.of(
            frame,
            name=(
                f"Made: {jobs:,} jobs with elastic batches, {self.per_min:g} per minute{bursts} for"
                f" {self.hours:g} h, seed {self.seed}"
            ),
        )

    def _times(self, rng: np.random.Generator) -> Floats:
        """Return Poisson arrivals in seconds over the time span; the rate alternates by hour."""
        edges = np.minimum(np.arange(math.ceil(self.hours) + 1), self.hours)
        rate = (
            60
            * self.per_min
            * np.where(np.arange(len(edges) - 1) % 2 == 0, self.burst, 2 - self.burst)
        )
        expected = np.concatenate(([0.0], np.cumsum(rate * np.diff(edges))))
        unit_times = np.empty(0)
        while not unit_times.size or unit_times[-1] < expected[-1]:
            start = unit_times[-1] if unit_times.size else 0.0
            unit_times = np.concatenate(
                (unit_times, start + np.cumsum(rng.standard_exponential(_BLOCK)))
            )
        return np.asarray(
            np.interp(unit_times[unit_times < expected[-1]], expected, edges * HOUR_S), np.float64
        )


def random_streams(seed: int, purposes: int) -> list[np.random.Generator]:
    """Return one random generator per purpose, independent of each other.

    Add new purposes at the end: the draws of the others then stay the same.
    """
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(purposes)]


def pick_by_share(shares: Floats | tuple[float, ...], uniform: Floats) -> NDArray[np.intp]:
    """Return the index of the share that each uniform number falls on; never a share of 0."""
    edges = np.cumsum(shares)
    return np.asarray(np.searchsorted(edges[:-1], uniform * edges[-1], side="right"), np.intp)


def _job_ids(jobs: int) -> pd.Series:
    """Return job ids from 1."""
    return pd.Series(range(1, jobs + 1)).astype("str")
