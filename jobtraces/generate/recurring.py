"""Generate recurring jobs: groups of runs of one script by one user with similar run times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from jobtraces.generate.elastic import HOUR_S, MAX_JOBS, MAX_SEED, pick_by_share, random_streams
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import param
from sim.trace import Trace

MODELS: Final = ("VGG-19", "ResNet-152", "BERT-large", "XLNet-large", "GPT")
"""Names only; run times and slowdowns are drawn, not measured."""


@dataclass(frozen=True)
class Recurring:
    """Recurring jobs in groups with one user, model, gang size, run time and slowdown each.

    Reconstructs the workload of A-SRPT's evaluation, which takes recurring jobs from Alibaba's PAI
    trace of 2020; the parameter values are ours.
    """

    title: ClassVar[str] = "Recurring jobs that communicate"

    jobs: int = param(800, low=2, high=MAX_JOBS, help="Number of jobs.")
    groups: int = param(60, title="Groups of jobs", low=1, high=MAX_JOBS, help="Number of groups.")
    skew: float = param(
        0.5,
        title="Skew of the groups",
        low=0,
        high=5,
        help="The n-th group is as frequent as n to the power of minus this; 0 = equally frequent.",
    )
    users: int = param(
        20,
        low=1,
        high=MAX_JOBS,
        help="Number of users; groups are assigned to users at random.",
    )
    load: float = param(
        1.5,
        low=0.001,
        high=1000,
        help=(
            "GPU-seconds requested over GPU-seconds of the cluster, from the first to the"
            " last submission."
        ),
    )
    median_h: float = param(
        2.0,
        title="Median run time",
        unit="h",
        low=0.001,
        high=1e4,
        help="Median of the typical run times of groups, on the fewest servers.",
    )
    sigma: float = param(
        1.0,
        title="Spread among groups",
        low=0,
        high=5,
        help="Standard deviation of the logarithm of the typical run times.",
    )
    within: float = param(
        0.25,
        title="Spread within a group",
        low=0,
        high=5,
        help="Standard deviation of the logarithm of the run times of one group.",
    )
    gangs: tuple[float, ...] = param(
        (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        title="Gang sizes",
        unit="GPUs",
        low=1,
        high=4096,
        help="Sizes of gangs.",
    )
    shares: tuple[float, ...] = param(
        (4.0, 2.0, 2.0, 2.0, 1.0, 1.0),
        title="Mix of gang sizes",
        low=0,
        high=1e6,
        help="Frequency of each gang size among groups.",
    )
    slowdowns: tuple[float, ...] = param(
        (1.05, 1.2, 1.5, 2.0, 2.5, 3.5),
        title="Slowdown when spread",
        low=1,
        high=1000,
        help=(
            "Iteration time with one GPU per server over that on the fewest servers; equally"
            " frequent."
        ),
    )
    servers: int = param(25, low=1, high=10_000, help="Servers of the cluster.")
    gpus_per_server: int = param(
        8, title="GPUs per server", unit="GPUs", low=1, high=64, help="GPUs of each server."
    )
    seed: int = param(0, low=0, high=MAX_SEED, help="Seed of everything random.")

    def __post_init__(self) -> None:
        """Raise an error for parameters that contradict each other."""
        if len(self.shares) != len(self.gangs) or not 0 < sum(self.shares) < np.inf:
            raise ParameterError(
                f"recurring: shares must be {len(self.gangs)} numbers, one per gang size,"
                " not all 0."
            )
        if any(gang != int(gang) for gang in self.gangs) or max(self.gangs) > self.machines().gpus:
            raise ParameterError(
                "recurring: gangs must be whole numbers of GPUs, at most the"
                f" {self.machines().gpus} of the cluster."
            )
        if not self.slowdowns:
            raise ParameterError("recurring: slowdowns must hold at least one number such as 1.5.")

    def machines(self) -> Cluster:
        """Return the cluster of the workload."""
        return Cluster.parse(f"{self.servers}x{self.gpus_per_server}:v100")

    def make(self) -> Trace:
        """Return the jobs; another `load` gives the same jobs with scaled gaps.

        A job has the user, model, gang size and slowdown of its group, and a run time near the
        group's.
        """
        (
            arrival_rng,
            group_rng,
            length_rng,
            typical_rng,
            size_rng,
            slowdown_rng,
            user_rng,
            model_rng,
        ) = random_streams(self.seed, 8)
        weights = np.power(np.arange(1, self.groups + 1, dtype=np.float64), -self.skew)
        group = pick_by_share(weights, group_rng.random(self.jobs))
        typical_s = (
            self.median_h * HOUR_S * np.exp(self.sigma * typical_rng.standard_normal(self.groups))
        )
        gpus = np.array(self.gangs)[
            pick_by_share(np.array(self.shares), size_rng.random(self.groups))
        ]
        slowdown = np.array(self.slowdowns)[
            slowdown_rng.integers(0, len(self.slowdowns), self.groups)
        ]
        user, model = (
            user_rng.integers(0, self.users, self.groups),
            model_rng.integers(0, len(MODELS), self.groups),
        )
        duration = typical_s[group] * np.exp(self.within * length_rng.standard_normal(self.jobs))
        submit = np.cumsum(arrival_rng.standard_exponential(self.jobs))
        submit -= submit[0]
        span_s = float((gpus[group] * duration).sum()) / (self.machines().gpus * self.load)
        frame = pd.DataFrame(
            {
                "job_id": [str(index + 1) for index in range(self.jobs)],
                "submit_time_s": submit * (span_s / submit[-1]),
                "num_gpus": gpus[group],
                "duration_s": duration,
                "user": [f"user-{user[index] + 1:02}" for index in group],
                "name": [f"group-{index + 1:03}" for index in group],
                "model": [MODELS[model[index]] for index in group],
                "spread_slowdown": slowdown[group],
            }
        )
        return Trace.of(
            frame,
            name=(
                f"Made: {self.jobs:,} jobs of {self.groups:,} recurring groups, load {self.load:g},"
                f" seed {self.seed}"
            ),
        )
