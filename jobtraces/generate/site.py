"""Generate the jobs of a small site with a batch scheduler: few users, time limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from jobtraces.generate.elastic import MAX_JOBS, MAX_SEED, pick_by_share, random_streams
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import param
from sim.trace import Trace

MINUTE_S = 60.0


@dataclass(frozen=True)
class Site:
    """Jobs of a few users, with time limits that most jobs use only in part.

    A synthetic twin of the workload that the University at Buffalo ran on a small Slurm in real
    time (slurm_sim_tools): run times of minutes, a fifth of the jobs fail at once, one in eleven
    reaches its limit, sizes from part of a node to most nodes. The parameter values are close to
    that run, but no row of it is used. GPUs represent its cores.
    """

    title: ClassVar[str] = "A small site with time limits"

    jobs: int = param(500, low=2, high=MAX_JOBS, help="Number of jobs.")
    users: int = param(5, low=1, high=MAX_JOBS, help="Number of equally active users.")
    load: float = param(
        1.5,
        low=0.001,
        high=1000,
        help="GPU-seconds requested over GPU-seconds of the cluster, while jobs are submitted.",
    )
    shortest_min: float = param(
        5.0,
        title="Shortest time limit",
        unit="min",
        low=0.1,
        high=1e5,
        help="Time limits are drawn uniformly from this limit up.",
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
        help="Frequency of each gang size.",
    )
    nodes: int = param(10, low=1, high=10_000, help="Nodes of the cluster.")
    gpus_per_node: int = param(
        8, title="GPUs per node", unit="GPUs", low=1, high=64, help="GPUs of each node."
    )
    seed: int = param(0, low=0, high=MAX_SEED, help="Seed of everything random.")

    def __post_init__(self) -> None:
        """Raise an error for parameters that contradict each other."""
        if len(self.shares) != len(self.gangs) or not 0 < sum(self.shares) < np.inf:
            raise ParameterError(
                f"site: shares must be {len(self.gangs)} numbers, one per gang size, not all 0."
            )
        if any(gang != int(gang) for gang in self.gangs) or max(self.gangs) > self.machines().gpus:
            raise ParameterError(
                "site: gangs must be whole numbers of GPUs, at most the"
                f" {self.machines().gpus} of the cluster."
            )
        if self.longest_min < self.shortest_min:
            raise ParameterError("site: longest_min is below shortest_min. Exchange them.")
        if self.failing + self.cut > 1:
            raise ParameterError("site: failing and cut must be shares with a sum of at most 1.")

    def machines(self) -> Cluster:
        """Return the cluster of the workload."""
        return Cluster.parse(f"{self.nodes}x{self.gpus_per_node}:v100")

    def make(self) -> Trace:
        """Return the jobs; another `load` gives the same jobs with scaled gaps.

        Failing jobs run 1 s, jobs that reach their limit have status timeout; times are whole
        seconds.
        """
        arrival_rng, limit_rng, end_rng, use_rng, size_rng, user_rng = random_streams(self.seed, 6)
        limit_s = np.round(
            MINUTE_S * limit_rng.uniform(self.shortest_min, self.longest_min, self.jobs)
        )
        end = end_rng.random(self.jobs)
        part = use_rng.uniform(0.05, 0.9, self.jobs)
        part = np.where(end < self.failing + self.cut, 1.0, part)
        run_s = np.where(end < self.failing, 1.0, np.ceil(limit_s * part))
        gpus = np.array(self.gangs)[
            pick_by_share(np.array(self.shares), size_rng.random(self.jobs))
        ]
        submit = np.cumsum(arrival_rng.standard_exponential(self.jobs))
        submit -= submit[0]
        span_s = float((gpus * run_s).sum()) / (self.machines().gpus * self.load)
        status = np.where(
            end < self.failing, "failed", np.where(part == 1.0, "timeout", "completed")
        )
        frame = pd.DataFrame(
            {
                "job_id": [str(index + 1) for index in range(self.jobs)],
                "submit_time_s": np.round(submit * (span_s / submit[-1])),
                "num_gpus": gpus,
                "duration_s": run_s,
                "time_limit_s": limit_s,
                "user": [
                    f"user-{index + 1}" for index in user_rng.integers(0, self.users, self.jobs)
                ],
                "status": status,
            }
        )
        return Trace.of(
            frame,
            name=f"Made: {self.jobs:,} jobs of a small site, load {self.load:g}, seed {self.seed}",
        )
