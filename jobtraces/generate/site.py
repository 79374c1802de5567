"""Jobs of a small site under a batch scheduler: few users, time limits, whole nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from jobtraces.generate.elastic import MOST_JOBS, MOST_SEED, pick, streams
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import param
from sim.trace import Trace

MINUTE_S = 60.0


@dataclass(frozen=True)
class Site:
    """Jobs of a few users, each with a time limit that most of them use in part only.

    A made twin of the workload that the University at Buffalo ran on a small Slurm in real time
    (slurm_sim_tools): run times of minutes, a fifth of the jobs failing at once, one in eleven cut
    at its limit, sizes from a part of a node to most of them. The figures are ours, near those of
    that run; none of its rows is used. GPUs stand for its cores.
    """

    title: ClassVar[str] = "A small site with time limits"

    jobs: int = param(500, low=2, high=MOST_JOBS, help="Number of jobs.")
    users: int = param(5, low=1, high=MOST_JOBS, help="Number of users, each as active.")
    load: float = param(
        1.5,
        low=0.001,
        high=1000,
        help="GPU-seconds asked for over GPU-seconds of the cluster, while jobs are submitted.",
    )
    shortest_min: float = param(
        5.0,
        title="Shortest time limit",
        unit="min",
        low=0.1,
        high=1e5,
        help="Time limits are spread evenly from this one on.",
    )
    longest_min: float = param(
        30.0,
        title="Longest time limit",
        unit="min",
        low=0.1,
        high=1e5,
        help="The longest time limit.",
    )
    failing: float = param(
        0.2,
        title="Share that fails at once",
        low=0,
        high=1,
        help="Share of the jobs that end within a second of their start.",
    )
    cut: float = param(
        0.09,
        title="Share that reaches its limit",
        low=0,
        high=1,
        help="Share of the jobs that run until their time limit; the others use 5 to 90 % of it.",
    )
    gangs: tuple[float, ...] = param(
        (1.0, 4.0, 8.0, 16.0, 24.0, 32.0, 64.0),
        title="Gang sizes",
        unit="GPUs",
        low=1,
        high=4096,
        help="Sizes of gangs.",
    )
    shares: tuple[float, ...] = param(
        (29.0, 18.0, 28.0, 8.0, 8.0, 5.0, 4.0),
        title="Mix of gang sizes",
        low=0,
        high=1e6,
        help="How frequent each of the gangs is.",
    )
    nodes: int = param(10, low=1, high=10_000, help="Nodes of the cluster.")
    gpus_per_node: int = param(
        8, title="GPUs per node", unit="GPUs", low=1, high=64, help="GPUs of each node."
    )
    seed: int = param(0, low=0, high=MOST_SEED, help="Seed of everything random.")

    def __post_init__(self) -> None:
        """Refuse figures that contradict each other."""
        if len(self.shares) != len(self.gangs) or not 0 < sum(self.shares) < np.inf:
            raise ParameterError(
                f"site: shares must be {len(self.gangs)} numbers, one for each of the gangs, not"
                " all 0."
            )
        if any(gang != int(gang) for gang in self.gangs) or max(self.gangs) > self.machines().gpus:
            raise ParameterError(
                "site: gangs must be whole numbers of GPUs, at most the"
                f" {self.machines().gpus} of the cluster."
            )
        if self.longest_min < self.shortest_min:
            raise ParameterError("site: the longest time limit is below the shortest.")
        if self.failing + self.cut > 1:
            raise ParameterError("site: failing and cut are shares, together at most 1.")

    def machines(self) -> Cluster:
        """Return the cluster that the workload comes with."""
        return Cluster.parse(f"{self.nodes}x{self.gpus_per_node}:v100")

    def make(self) -> Trace:
        """Return the jobs; another `load` gives the same jobs with scaled gaps."""
        when, limits, ends, used, size, who = streams(self.seed, 6)
        limit_s = np.round(
            MINUTE_S * limits.uniform(self.shortest_min, self.longest_min, self.jobs)
        )
        end = ends.random(self.jobs)
        part = used.uniform(0.05, 0.9, self.jobs)
        part = np.where(end < self.failing + self.cut, 1.0, part)
        run_s = np.where(end < self.failing, 1.0, np.ceil(limit_s * part))
        gpus = np.array(self.gangs)[pick(np.array(self.shares), size.random(self.jobs))]
        submit = np.cumsum(when.standard_exponential(self.jobs))
        submit -= submit[0]
        span_s = float((gpus * run_s).sum()) / (self.machines().gpus * self.load)
        status = np.where(
            end < self.failing, "failed", np.where(part == 1.0, "timeout", "completed")
        )
        frame = pd.DataFrame(
            {
                "job_id": [str(at + 1) for at in range(self.jobs)],
                "submit_time_s": np.round(submit * (span_s / submit[-1])),
                "num_gpus": gpus,
                "duration_s": run_s,
                "time_limit_s": limit_s,
                "user": [f"user-{at + 1}" for at in who.integers(0, self.users, self.jobs)],
                "status": status,
            }
        )
        return Trace.of(
            frame,
            name=f"Made: {self.jobs:,} jobs of a small site, load {self.load:g}, seed {self.seed}",
        )
