"""Workloads after DLRover's experiments: a population of CPU jobs with parameter servers whose
users ask for too much or too little, and single jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.elastic import HOUR_S, MOST_JOBS, MOST_SEED, pick, streams
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import param
from sim.perf.profiles import plain
from sim.perf.steps import ROWS
from sim.trace import Trace

Floats = NDArray[np.float64]

NODE_CORES, NODE_GB = 96, 384
LEAST_NODES, MOST_NODES = 3, 150
"""Workers and servers of a job together."""
WORKERS_PER_SERVER, TYPICAL_WORKERS = 3, 16
"""The second is the median."""
BATCH: Final = 512
"""Samples per worker and step; the time for a sample does not depend on it."""
MODELS: Final = tuple(f"dlrover-{''.join(scales)}" for scales in product("012", repeat=3))
"""Compute, update and input each half, once or twice those of the fit."""
SHARES: Final = tuple(
    float(np.prod([(1, 4, 1)[int(scale)] for scale in name[-3:]])) for name in MODELS
)
"""The three points with these weights have the mean, variance and kurtosis of the logarithm of a
lognormal with sigma 0.4.
"""
MOST_CORES, MOST_GB = 32.0, 64.0
"""Nobody asks for more than needed beyond this, per replica: the limits of a node in DLRover's
code.
"""
WORKER_GB, WORKER_GB_SIGMA = 3.0, 0.4
SERVER_GB, SERVER_GB_SIGMA = 5.0, 0.5
"""Median memory of a replica at the start, and the standard deviation of its logarithm."""
GROWTH: Final = (0.5, 2.0)
"""Where memory grows: what a typical job of the scenario adds to it, over what it begins with;
drawn uniformly.
"""
USERS: Final = 20


class SampleCosts(NamedTuple):
    """Core-seconds of a worker, core-seconds of the servers per worker, and seconds, each for a
    sample of a worker; of shape (jobs,).
    """

    compute: Floats
    update: Floats
    fixed: Floats

    def sample_s(self, worker_cpus: Floats, server_cpus: Floats) -> Floats:
        """Return the seconds for a sample of one worker with so many cores, and so many cores of
        servers per worker.
        """
        return np.asarray(
            self.compute / worker_cpus + self.update / server_cpus + self.fixed, np.float64
        )


class JobNeeds(NamedTuple):
    """What jobs need: cores and GB of each replica, and what all servers together add until the
    end; of shape (jobs,).
    """

    worker_cpus: Floats
    server_cpus: Floats
    worker_gb: Floats
    server_gb: Floats
    growth_gb: Floats


@dataclass(frozen=True)
class DLRoverWorkload:
    """Runs of recurring scenarios on CPUs, each with parameter servers; three quarters of the jobs
    ask for more than they need and a quarter for less.

    Our reconstruction of DLRover's production workload, of which no trace was published: calibrated
    to its completion rates and utilisation.
    """

    title: ClassVar[str] = "CPU jobs with wrong requests, after DLRover"

    jobs: int = param(300, low=2, high=MOST_JOBS, help="Number of jobs.")
    scenarios: int = param(
        60,
        title="Recurring jobs",
        low=1,
        high=MOST_JOBS,
        help=("Number of recurring jobs (DLRover's scenarios); every job is a run of one of them."),
    )
    load: float = param(
        0.4,
        low=0.001,
        high=1000,
        help=(
            "Core-seconds needed over core-seconds of the cluster, from the first to the "
            "last submission."
        ),
    )
    median_h: float = param(
        40.0,
        title="Median run time",
        unit="h",
        low=0.001,
        high=1e5,
        help="Median run time with a single worker.",
    )
    sigma: float = param(
        0.8,
        title="Spread of work among recurring jobs",
        low=0,
        high=5,
        help=(
            "Standard deviation of the logarithm of the typical work of recurring jobs of one size."
        ),
    )
    within: float = param(
        0.25,
        title="Spread of work within a recurring job",
        low=0,
        high=5,
        help=("Standard deviation of the logarithm of the work of the runs of one recurring job."),
    )
    grows: float = param(
        1.0,
        title="Growth of work with workers",
        low=0,
        high=2,
        help=(
            "Work grows with the workers to the power of this; 1 = jobs of any size take equally"
            " long."
        ),
    )
    busy: float = param(
        0.35,
        title="Busy share of time",
        low=0.01,
        high=0.49,
        help=(
            "Share of the time for which workers compute, and servers update, with the cores that"
            " are needed."
        ),
    )
    growing: float = param(
        0.3,
        title="Share with growing memory",
        low=0,
        high=1,
        help="Share of the recurring jobs whose servers' memory grows with the steps.",
    )
    wrong: bool = param(
        True,
        title="Inaccurate requests",
        help="Whether users ask for more or less than their jobs need.",
    )
    under: float = param(
        0.25,
        title="Share of requests that are too small",
        low=0,
        high=1,
        help=(
            "Share of the jobs that ask for too little of one resource; everything else "
            "is asked for in excess."
        ),
    )
    little: tuple[float, ...] = param(
        (0.3, 0.9),
        title="Range of requests that are too small",
        low=0.01,
        high=1,
        help=(
            "Least and largest ratio of a request that is too small to the need; drawn uniformly."
        ),
    )
    of_memory: float = param(
        0.25,
        title="Share of these that lack memory",
        low=0,
        high=1,
        help=(
            "Share of the jobs with too small a request that lack memory, of workers or "
            "of servers; the others lack cores."
        ),
    )
    over_median: float = param(
        2.6,
        title="Median of the other requests",
        low=1,
        high=100,
        help="Median ratio of the other requests to the need; lognormal and at least 1.",
    )
    over_sigma: float = param(
        0.6,
        title="Spread of the other requests",
        low=0,
        high=5,
        help=(
            "Standard deviation of the logarithm of the ratio of the other requests to the need."
        ),
    )
    corrected: float = param(
        0.0,
        title="Share of corrected requests",
        low=0,
        high=1,
        help=(
            "Share of the runs of a recurring job, after its first, for which the user "
            "has corrected the requests to the need."
        ),
    )
    nodes: int = param(
        150, low=1, high=10_000, help="Nodes of the cluster, with 96 cores and 384 GB each."
    )
    seed: int = param(0, low=0, high=MOST_SEED, help="Seed of everything random.")

    def __post_init__(self) -> None:
        """Refuse what is not a range."""
        if len(self.little) != 2 or self.little[0] > self.little[1]:
            raise ParameterError("dlrover: little must be two numbers that grow, such as 0.3/0.9.")

    def machines(self) -> Cluster:
        """Return the cluster that the workload comes with: nodes without GPUs."""
        return Cluster.parse(f"{self.nodes}x0:cpu/{NODE_CORES}c/{NODE_GB}g")

    def make(self) -> Trace:
        """Return the jobs; the same parameters give the same jobs, other requests the same needs,
        and another `load` the same jobs with scaled gaps.
        """
        when, which, size, kind, typical, work, memory, who, over, under, learnt = streams(
            self.seed, 11
        )
        group = which.integers(0, self.scenarios, self.jobs)
        nodes = np.floor(
            LEAST_NODES * ((MOST_NODES + 1) / LEAST_NODES) ** size.random(self.scenarios)
        )[group]
        servers = np.maximum(1.0, np.round(nodes / (1 + WORKERS_PER_SERVER)))
        workers = nodes - servers
        model = pick(np.array(SHARES), kind.random(self.scenarios))[group]
        relative = np.exp(self.within * work.standard_normal(self.jobs))
        typical_h = (
            self.median_h
            * np.exp(self.sigma * typical.standard_normal(self.scenarios))[group]
            * (workers / TYPICAL_WORKERS) ** self.grows
        )
        alone_s = typical_h * relative * HOUR_S

        cost, share = _coefficients(model), servers / workers
        needs = self._needs(cost, share, self._memory(memory, group, relative))
        asked = _asked(needs, self._factors(over, under, self._corrected(learnt, group)))
        per_worker = needs.worker_cpus + needs.server_cpus * share
        samples = alone_s / cost.sample_s(needs.worker_cpus, needs.server_cpus * share)
        frame = pd.DataFrame(
            {
                "job_id": [str(at + 1) for at in range(self.jobs)],
                "submit_time_s": self._submit_s(when, alone_s * per_worker),
                "num_gpus": 0,
                "duration_s": (
                    samples
                    / workers
                    * cost.sample_s(asked["worker_cpus"], asked["server_cpus"] * share)
                ),
                "user": [
                    f"user-{at + 1:02}" for at in who.integers(0, USERS, self.scenarios)[group]
                ],
                "name": [f"scenario-{at + 1:03}" for at in group],
                "model": np.array(MODELS)[model],
                "batch_size": workers * BATCH,
                "total_steps": samples / (workers * BATCH),
                "cpus": workers * asked["worker_cpus"] + servers * asked["server_cpus"],
                "mem_gb": workers * asked["worker_mem_gb"] + servers * asked["server_mem_gb"],
                "workers": workers,
                "servers": servers,
                **asked,
                "asynchronous": 1.0,
                "worker_mem_need_gb": needs.worker_gb,
                "server_mem_need_gb": needs.server_gb * servers,
                "server_mem_growth_gb": needs.growth_gb * servers,
            }
        )
        requests = "wrong" if self.wrong else "right"
        return Trace.of(
            frame,
            name=(
                f"Made: {self.jobs:,} jobs after DLRover, {requests} requests, load {self.load:g},"
                f" seed {self.seed}"
            ),
        )

    def _memory(
        self, rng: np.random.Generator, group: NDArray[np.intp], relative: Floats
    ) -> tuple[Floats, Floats, Floats]:
        normal = rng.standard_normal((2, self.scenarios))
        grown, amount = rng.random((2, self.scenarios))
        worker_gb = WORKER_GB * np.exp(WORKER_GB_SIGMA * normal[0])
        server_gb = SERVER_GB * np.exp(SERVER_GB_SIGMA * normal[1])
        growth_gb = np.where(
            grown < self.growing, server_gb * (GROWTH[0] + (GROWTH[1] - GROWTH[0]) * amount), 0.0
        )
        return worker_gb[group], server_gb[group], growth_gb[group] * relative

    def _needs(
        self, cost: SampleCosts, share: Floats, memory: tuple[Floats, Floats, Floats]
    ) -> JobNeeds:
        sample_s = cost.fixed / (1 - 2 * self.busy)
        worker_cpus = np.clip(_up(cost.compute / (self.busy * sample_s)), 1.0, MOST_CORES)
        server_cpus = np.clip(_up(cost.update / (self.busy * sample_s * share)), 1.0, MOST_CORES)
        return JobNeeds(worker_cpus, server_cpus, *memory)

    def _corrected(self, rng: np.random.Generator, group: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which jobs ask for what they need, because their user has seen a run before."""
        first = np.zeros(self.jobs, np.bool_)
        first[np.unique(group, return_index=True)[1]] = True
        return (rng.random(self.jobs) < self.corrected) & ~first

    def _factors(
        self, over: np.random.Generator, under: np.random.Generator, corrected: NDArray[np.bool_]
    ) -> Floats:
        """Return the requests over the needs: a row for worker cores, server cores, worker memory,
        server memory.
        """
        if not self.wrong:
            return np.ones((4, self.jobs))
        cores, memory = np.maximum(
            1.0, self.over_median * np.exp(self.over_sigma * over.standard_normal((self.jobs, 2)))
        ).T
        who, what, size = under.random((self.jobs, 3)).T
        of_servers, of_workers = (
            what < self.of_memory / 2,
            (what >= self.of_memory / 2) & (what < self.of_memory),
        )
        of_cores = what >= self.of_memory
        lacking = (who < self.under) & np.stack([of_cores, of_cores, of_workers, of_servers])
        found = np.where(
            lacking,
            self.little[0] + (self.little[1] - self.little[0]) * size,
            np.stack([cores, cores, memory, memory]),
        )
        return np.where(corrected, 1.0, found)

    def _submit_s(self, rng: np.random.Generator, core_s: Floats) -> Floats:
        submit = np.cumsum(rng.standard_exponential(self.jobs))
        submit -= submit[0]
        span_s = float(core_s.sum()) / (self.nodes * NODE_CORES * self.load)
        return np.asarray(submit * (span_s / submit[-1]), np.float64)


class SingleJob(NamedTuple):
    """A single job: its model, run time, replicas, and (cores, GB) of each worker and of each
    server; and its cluster.
    """

    model: str
    minutes: float
    workers: int
    servers: int
    worker: tuple[float, float]
    server: tuple[float, float]
    cluster: str = "40x0:cpu/32c/64g"


_WIDE_DEEP: Final = SingleJob("wide_deep", 27, 24, 8, (3, 4), (16, 8))
CASES: Final = {
    "wide_deep": _WIDE_DEEP,
    "xdeepfm": SingleJob("xdeepfm", 104, 8, 2, (20, 8), (16, 8)),
    "hot": _WIDE_DEEP._replace(minutes=18),
    "deepfm": SingleJob("deepfm", 30, 1, 1, (3, 5.86), (3, 5.86), "1x0:cpu/15c/29.3g"),
}
USED: Final = 0.625
"""Memory needed over that asked for; ours."""


@dataclass(frozen=True)
class DLRoverCheck:
    """One job alone, with the replicas that its users asked for in DLRover's experiments and the
    run time that they measured.
    """

    title: ClassVar[str] = "A single job of DLRover's experiments"

    case: str = param(
        "wide_deep",
        choices=tuple(CASES),
        labels={
            "wide_deep": "Wide & Deep",
            "xdeepfm": "xDeepFM",
            "hot": "Wide & Deep, hot server",
            "deepfm": "DeepFM",
        },
        help=(
            "wide_deep 27 min, xdeepfm 104 min; hot: wide_deep of 18 min; deepfm: within 15 cores,"
            " 30 min as it starts."
        ),
    )

    def machines(self) -> Cluster:
        """Return the cluster that the job comes with; for all but deepfm so many nodes that every
        replica can have one of its own.
        """
        return Cluster.parse(CASES[self.case].cluster)

    def make(self) -> Trace:
        """Return the job."""
        case = CASES[self.case]
        (worker_cpus, worker_gb), (server_cpus, server_gb) = case.worker, case.server
        values: dict[str, float | str] = {
            "job_id": "1",
            "submit_time_s": 0.0,
            "num_gpus": 0,
            "duration_s": 60.0 * case.minutes,
            "name": self.case,
            "model": case.model,
            "batch_size": float(case.workers * BATCH),
            "cpus": case.workers * worker_cpus + case.servers * server_cpus,
            "mem_gb": case.workers * worker_gb + case.servers * server_gb,
            "workers": float(case.workers),
            "servers": float(case.servers),
            "worker_cpus": worker_cpus,
            "worker_mem_gb": worker_gb,
            "server_cpus": server_cpus,
            "server_mem_gb": server_gb,
            "asynchronous": 1.0,
            "worker_mem_need_gb": USED * worker_gb,
            "server_mem_need_gb": USED * server_gb * case.servers,
        }
        return Trace.of(pd.DataFrame([values]), name=f"Made: DLRover's {self.case} job")


def _coefficients(model: NDArray[np.intp]) -> SampleCosts:
    rows = [ROWS[plain(name)] for name in MODELS]
    return SampleCosts(
        *(
            np.array([getattr(row, name) for row in rows])[model]
            for name in ("sample_s", "update_s", "input_s")
        )
    )


def _asked(needs: JobNeeds, factors: Floats) -> dict[str, Floats]:
    """Return what is asked for per replica, by column; rounded up where it must do for the need,
    and never to 0.
    """
    needed = (
        needs.worker_cpus,
        needs.server_cpus,
        _up(needs.worker_gb),
        _up(needs.server_gb + needs.growth_gb),
    )
    names, caps = (
        ("worker_cpus", "server_cpus", "worker_mem_gb", "server_mem_gb"),
        (
            MOST_CORES,
            MOST_CORES,
            MOST_GB,
            MOST_GB,
        ),
    )
    found = {}
    for name, need, factor, cap in zip(names, needed, factors, caps, strict=True):
        found[name] = np.where(
            factor < 1, need * factor, np.maximum(need, np.minimum(_up(need * factor), cap))
        )
    return found


def _up(values: Floats) -> Floats:
    # To a tenth of a core or GB; what is a tenth already but for its last bits stays.
    return np.asarray(np.ceil(values * 10 - 1e-9) / 10, np.float64)
