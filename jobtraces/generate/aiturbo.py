"""Parameter-server jobs on 16 GPUs with the statistics of AITurbo's published data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.elastic import MAX_JOBS, MAX_SEED, pick_by_share, random_streams
from sim.cluster import Cluster
from sim.params import param
from sim.trace import Trace

Floats = NDArray[np.float64]

GPUS: Final = 16
SERVER_CORES: Final = 5.0
WORKER_CORES: Final = 1.0
NEVER_PREDICTABLE: Final = 2.0
"""Share of work beyond 1: the size of the job never becomes predictable."""
BATCHES: Final = {
    "vgg": 128,
    "alexnet": 1024,
    "resnet50": 64,
    "resnet101": 64,
    "resnet152": 32,
    "inception3": 64,
    "inception4": 32,
    "googlenet": 256,
}
"""Model -> batch size of a step over all workers, as in the job files of the follow-up."""
SIZES: Final = ((2, 2), (1, 2), (2, 4), (2, 1), (3, 3), (4, 2), (2, 6), (1, 1), (2, 3))
COUNTS: Final = (2232, 1239, 912, 903, 713, 543, 522, 437, 310)
"""(servers, workers), and jobs of the data set with them, without the 575 jobs without servers."""


class LognormalTimes(NamedTuple):
    """A clipped lognormal distribution of run times in seconds."""

    mu: float
    sigma: float
    low: float
    high: float

    def from_normal(self, normal: Floats) -> Floats:
        """Return standard normal numbers as run times."""
        return np.asarray(
            np.clip(np.exp(self.mu + self.sigma * normal), self.low, self.high), np.float64
        )


class WorkloadMix(NamedTuple):
    """Defaults of a workload: run times of predictable and other jobs, counts, gaps."""

    at_once: LognormalTimes
    others: LognormalTimes
    jobs: int
    gap_s: float
    later: float


_W2_TIMES: Final = LognormalTimes(float(np.log(45 * 60)), 1.2, 120, 86_400)
MIXES: Final = {
    "w1": WorkloadMix(
        LognormalTimes(8.59, 1.71, 16, 89_145),
        LognormalTimes(5.83, 1.60, 2, 53_350),
        jobs=200,
        gap_s=1000,
        later=0.0,
    ),
    "w2": WorkloadMix(_W2_TIMES, _W2_TIMES, jobs=150, gap_s=200, later=0.4),
}


@dataclass(frozen=True)
class AITurboWorkload:
    """Jobs with parameter servers on 16 GPUs, some not predictable at their arrival.

    Reconstructs the workload of AITurbo's evaluation: run times, sizes and the share of
    unpredictable jobs are fits to the data set that one of its authors published; the arrivals are
    ours.
    """

    title: ClassVar[str] = "Partly predictable jobs with servers, after AITurbo"

    workload: str = param(
        "w1",
        choices=tuple(MIXES),
        labels={"w1": "W1", "w2": "W2"},
        help=(
            "w1: run times of the data set, unpredictable jobs mostly short. w2: one distribution,"
            " median 45 min."
        ),
    )
    jobs: int = param(0, low=0, high=MAX_JOBS, help="Number of jobs; 0 = 200 in w1, 150 in w2.")
    gap_s: float = param(
        0.0,
        title="Mean time between arrivals",
        unit="s",
        low=0,
        high=1e7,
        help=("Mean time between arrivals, a Poisson process; 0 = 1,000 s in w1, 200 s in w2."),
    )
    unpredictable: float = param(
        0.15,
        title="Share of unpredictable jobs",
        low=0,
        high=1,
        help="Share of the jobs whose size is not predictable when they arrive.",
    )
    later: float = param(
        -1.0,
        title="Share that becomes predictable",
        low=-1,
        high=1,
        help=(
            "Share of the unpredictable jobs that become predictable after 20 to 90 % of "
            "their work, uniform; -1 = 0 in w1, 0.4 in w2."
        ),
    )
    asynchronous: float = param(
        0.0,
        title="Share of asynchronous jobs",
        low=0,
        high=1,
        help="Share of the jobs that train asynchronously.",
    )
    cores: int = param(
        30,
        title="CPU cores per GPU",
        unit="cores",
        low=1,
        high=10_000,
        help="CPU cores of the cluster per GPU.",
    )
    seed: int = param(0, low=0, high=MAX_SEED, help="Seed of everything random.")

    def machines(self) -> Cluster:
        """Return the cluster of the workload: one node, as published, without placement."""
        return Cluster.parse(f"1x{GPUS}:v100/{GPUS * self.cores}c")

    def make(self) -> Trace:
        """Return the jobs; `gap_s` only scales the gaps, and fewer jobs are the first of more.

        GPUs are the workers. Unpredictable jobs have their own distribution of run times.
        """
        mix = MIXES[self.workload]
        jobs, gap_s = self.jobs or mix.jobs, self.gap_s or mix.gap_s
        arrival_rng, work_rng, chance_rng, after_rng, size_rng, model_rng, sync_rng = (
            random_streams(self.seed, 7)
        )
        is_unpredictable = chance_rng.random(jobs) < self.unpredictable
        servers, workers = np.array(SIZES, np.float64)[
            pick_by_share(np.array(COUNTS, np.float64), size_rng.random(jobs))
        ].T
        model = np.array(list(BATCHES))[model_rng.integers(0, len(BATCHES), jobs)]
        normal = work_rng.standard_normal(jobs)
        frame = pd.DataFrame(
            {
                "job_id": [str(index + 1) for index in range(jobs)],
                "submit_time_s": np.cumsum(arrival_rng.standard_exponential(jobs)) * gap_s,
                "num_gpus": workers.astype(np.int64),
                "duration_s": np.where(
                    is_unpredictable,
                    mix.others.from_normal(normal),
                    mix.at_once.from_normal(normal),
                ),
                "model": model,
                "batch_size": [BATCHES[name] for name in model],
                "cpus": workers * WORKER_CORES + servers * SERVER_CORES,
                "workers": workers,
                "servers": servers,
                "worker_cpus": WORKER_CORES,
                "server_cpus": SERVER_CORES,
                "asynchronous": (sync_rng.random(jobs) < self.asynchronous).astype(np.float64),
                "predictable_after": np.where(
                    is_unpredictable, self._predictable_after(after_rng, jobs), 0.0
                ),
            }
        )
        return Trace.of(
            frame,
            name=(
                f"Made: {jobs:,} {self.workload} jobs after AITurbo, {gap_s:g} s apart, seed"
                f" {self.seed}"
            ),
        )

    def _predictable_after(self, rng: np.random.Generator, jobs: int) -> Floats:
        """Return the share of work after which each job is predictable; 2 = never.

        Drawn for every job as if it were unpredictable: 0.2 to 0.9 with the chance `later`, else 2.
        """
        draw, share = rng.random((jobs, 2)).T
        return np.where(
            draw < (MIXES[self.workload].later if self.later < 0 else self.later),
            0.2 + 0.7 * share,
            NEVER_PREDICTABLE,
        )
