"""Workloads after DLRover: CPU jobs with parameter servers and inaccurate requests."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.elastic import HOUR_S, MAX_JOBS, MAX_SEED, pick_by_share, random_streams
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import param
from sim.perf.profiles import plain
from sim.perf.steps import ROWS
from sim.trace import Trace

Floats = NDArray[np.float64]

NODE_CORES, NODE_GB = 96, 384
MIN_NODES, MAX_NODES = 3, 150
"""Smallest and largest total number of workers and servers of a job."""
WORKERS_PER_SERVER, TYPICAL_WORKERS = 3, 16
"""Workers per server, and the median number of workers."""
BATCH: Final = 512
"""Samples per worker and step; the time per sample does not depend on it."""
MODELS: Final = tuple(f"dlrover-{''.join(scales)}" for scales in product("012", repeat=3))
"""Models with compute, update and input costs of 0.5, 1 or 2 times the fit."""
SHARES: Final = tuple(
    float(np.prod([(1, 4, 1)[int(scale)] for scale in name[-3:]])) for name in MODELS
)
"""Weights with which the three factors match mean, variance and kurtosis of a lognormal with sigma
0.4 (in logarithms).
"""
MAX_CORES, MAX_GB = 32.0, 64.0
"""Largest excess request per replica: the limits of a node in DLRover's code."""
WORKER_GB, WORKER_GB_SIGMA = 3.0, 0.4
SERVER_GB, SERVER_GB_SIGMA = 5.0, 0.5
"""Median memory of a replica at the start, and the standard deviation of its logarithm."""
GROWTH: Final = (0.5, 2.0)
"""Range of memory growth of a typical job over its initial memory; drawn uniformly."""
USERS: Final = 20


class SampleCosts(NamedTuple):
    """Costs of one sample of a worker, per job.

    Core-seconds of the worker, core-seconds of the servers per worker, and fixed seconds.
    """

    compute: Floats
    update: Floats
    fixed: Floats

    def sample_s(self, worker_cpus: Floats, server_cpus: Floats) -> Floats:
        """Return seconds per sample, given worker cores and server cores per worker."""
        return np.asarray(
            self.compute / worker_cpus + self.update / server_cpus + self.fixed, np.float64
        )


class JobNeeds(NamedTuple):
    """Resources that jobs need: cores and GB per replica, and memory growth of all servers."""

    worker_cpus: Floats
    server_cpus: Floats
    worker_gb: Floats
    server_gb: Floats
    growth_gb: Floats


@dataclass(frozen=True)
class DLRoverWorkload:
    """CPU jobs with parameter servers; most request more than they need, some less.

    Three quarters of the jobs request too much and a quarter too little. Reconstructs DLRover's
    production workload, whose trace is not public: calibrated to its completion rates and
    utilization.
    """

    title: ClassVar[str] = "CPU jobs with wrong requests, after DLRover"

    jobs: int = param(300, low=2, high=MAX_JOBS, help="Number of jobs.")
    scenarios: int = param(
        60,
        title="Recurring jobs",
        low=1,
        high=MAX_JOBS,
        help=(
            "Number of recurring jobs (DLRover's scenarios); every job is a run of one scenario."
        ),
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
        help=("Share of time that workers compute, and servers update, with the cores they need."),
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
        help="Whether users request more or less than their jobs need.",
    )
    under: float = param(
        0.25,
        title="Share of requests that are too small",
        low=0,
        high=1,
        help=(
            "Share of the jobs that request too little of one resource; all other "
            "requests are in excess."
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
            "Share of the later runs of a recurring job whose requests the user has "
            "corrected to the need."
        ),
    )
    nodes: int = param(
        150, low=1, high=10_000, help="Nodes of the cluster, with 96 cores and 384 GB each."
    )
    seed: int = param(0, low=0, high=MAX_SEED, help="Seed of everything random.")

    def __post_init__(self) -> None:
        """Raise an error if `little` is not a range."""
        if len(self.little) != 2 or self.little[0] > self.little[1]:
            raise ParameterError("dlrover: little must be two ascending numbers, such as 0.3/0.9.")

    def machines(self) -> Cluster:
        """Return the cluster of the workload: nodes without GPUs."""
        return Cluster.parse(f"{self.nodes}x0:cpu/{NODE_CORES}c/{NODE_GB}g")

    def make(self) -> Trace:
        """Return the jobs; needs do not depend on requests, and `load` only scales the gaps.

        Every job is a run of a recurring job, which determines user, model, replicas and typical
        work. The run time follows from the requested cores.
        """
        (
            arrival_rng,
            group_rng,
            size_rng,
            model_rng,
            typical_rng,
            work_rng,
            memory_rng,
            user_rng,
            over_rng,
            under_rng,
            correction_rng,
        ) = random_streams(self.seed, 11)
        group = group_rng.integers(0, self.scenarios, self.jobs)
        nodes = np.floor(
            MIN_NODES * ((MAX_NODES + 1) / MIN_NODES) ** size_rng.random(self.scenarios)
        )[group]
        servers = np.maximum(1.0, np.round(nodes / (1 + WORKERS_PER_SERVER)))
        workers = nodes - servers
        model = pick_by_share(np.array(SHARES), model_rng.random(self.scenarios))[group]
        relative = np.exp(self.within * work_rng.standard_normal(self.jobs))
        typical_h = (
            self.median_h
            * np.exp(self.sigma * typical_rng.standard_normal(self.scenarios))[group]
            * (workers / TYPICAL_WORKERS) ** self.grows
        )
        alone_s = typical_h * relative * HOUR_S

        cost, share = _sample_costs(model), servers / workers
        needs = self._needs(cost, share, self._memory(memory_rng, group, relative))
        requests = _requests_per_replica(
            needs, self._factors(over_rng, under_rng, self._is_corrected(correction_rng, group))
        )
        per_worker = needs.worker_cpus + needs.server_cpus * share
        samples = alone_s / cost.sample_s(needs.worker_cpus, needs.server_cpus * share)
        frame = pd.DataFrame(
            {
                "job_id": [str(index + 1) for index in range(self.jobs)],
                "submit_time_s": self._submit_s(arrival_rng, alone_s * per_worker),
                "num_gpus": 0,
                "duration_s": (
                    samples
                    / workers
                    * cost.sample_s(requests["worker_cpus"], requests["server_cpus"] * share)
                ),
                "user": [
                    f"user-{index + 1:02}"
                    for index in user_rng.integers(0, USERS, self.scenarios)[group]
                ],
                "name": [f"scenario-{index + 1:03}" for index in group],
                "model": np.array(MODELS)[model],
                "batch_size": workers * BATCH,
                "total_steps": samples / (workers * BATCH),
                "cpus": workers * requests["worker_cpus"] + servers * requests["server_cpus"],
                "mem_gb": workers * requests["worker_mem_gb"] + servers * requests["server_mem_gb"],
                "workers": workers,
                "servers": servers,
                **requests,
                "asynchronous": 1.0,
                "worker_mem_need_gb": needs.worker_gb,
                "server_mem_need_gb": needs.server_gb * servers,
                "server_mem_growth_gb": needs.growth_gb * servers,
            }
        )
        label = "wrong" if self.wrong else "right"
        return Trace.of(
            frame,
            name=(
                f"Made: {self.jobs:,} jobs after DLRover, {label} requests, load {self.load:g},"
                f" seed {self.seed}"
            ),
        )

    def _memory(
        self, rng: np.random.Generator, group: NDArray[np.intp], relative: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Return worker GB, server GB and server growth in GB of each job.

        Runs of one recurring job need equal memory; its growth is proportional to the run's work.
        """
        normal = rng.standard_normal((2, self.scenarios))
        growth_draw, amount = rng.random((2, self.scenarios))
        worker_gb = WORKER_GB * np.exp(WORKER_GB_SIGMA * normal[0])
        server_gb = SERVER_GB * np.exp(SERVER_GB_SIGMA * normal[1])
        growth_gb = np.where(
            growth_draw < self.growing,
            server_gb * (GROWTH[0] + (GROWTH[1] - GROWTH[0]) * amount),
            0.0,
        )
        return worker_gb[group], server_gb[group], growth_gb[group] * relative

    def _needs(
        self, cost: SampleCosts, share: Floats, memory: tuple[Floats, Floats, Floats]
    ) -> JobNeeds:
        """Return the cores per replica that give the busy share of time, and the given memory.

        Cores are rounded up to a tenth, from 1 to `MAX_CORES`.
        """
        sample_s = cost.fixed / (1 - 2 * self.busy)
        worker_cpus = np.clip(_round_up(cost.compute / (self.busy * sample_s)), 1.0, MAX_CORES)
        server_cpus = np.clip(
            _round_up(cost.update / (self.busy * sample_s * share)), 1.0, MAX_CORES
        )
        return JobNeeds(worker_cpus, server_cpus, *memory)

    def _is_corrected(self, rng: np.random.Generator, group: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Draw which jobs request exactly their needs; never the first run of a recurring job."""
        is_first = np.zeros(self.jobs, np.bool_)
        is_first[np.unique(group, return_index=True)[1]] = True
        return (rng.random(self.jobs) < self.corrected) & ~is_first

    def _factors(
        self,
        over_rng: np.random.Generator,
        under_rng: np.random.Generator,
        corrected: NDArray[np.bool_],
    ) -> Floats:
        """Return requests over needs: rows of worker and server cores, then memory.

        All 1 with correct requests. Else corrected jobs have 1, a share `under` of the jobs too
        little cores, worker memory or server memory, and all other requests are at least 1.
        """
        if not self.wrong:
            return np.ones((4, self.jobs))
        cores, memory = np.maximum(
            1.0,
            self.over_median * np.exp(self.over_sigma * over_rng.standard_normal((self.jobs, 2))),
        ).T
        job_draw, resource_draw, ratio_draw = under_rng.random((self.jobs, 3)).T
        of_servers, of_workers = (
            resource_draw < self.of_memory / 2,
            (resource_draw >= self.of_memory / 2) & (resource_draw < self.of_memory),
        )
        of_cores = resource_draw >= self.of_memory
        is_too_small = (job_draw < self.under) & np.stack(
            [of_cores, of_cores, of_workers, of_servers]
        )
        factors = np.where(
            is_too_small,
            self.little[0] + (self.little[1] - self.little[0]) * ratio_draw,
            np.stack([cores, cores, memory, memory]),
        )
        return np.where(corrected, 1.0, factors)

    def _submit_s(self, rng: np.random.Generator, core_s: Floats) -> Floats:
        """Return Poisson submissions in seconds, scaled so that the core-seconds give the load."""
        submit = np.cumsum(rng.standard_exponential(self.jobs))
        submit -= submit[0]
        span_s = float(core_s.sum()) / (self.nodes * NODE_CORES * self.load)
        return np.asarray(submit * (span_s / submit[-1]), np.float64)


class SingleJob(NamedTuple):
    """A single job: model, run time, replicas with (cores, GB) each, and its cluster."""

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
MEMORY_USE_SHARE: Final = 0.625
"""Memory need over request (our assumption)."""


@dataclass(frozen=True)
class DLRoverCheck:
    """A single job of DLRover's experiments, with its requests and measured run time."""

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
            " 30 min with its initial request."
        ),
    )

    def machines(self) -> Cluster:
        """Return the cluster of the job: for all cases but deepfm one node per replica."""
        return Cluster.parse(CASES[self.case].cluster)

    def make(self) -> Trace:
        """Return the trace of one job: requests and run time of the case, not random.

        The memory needs are a fixed share of the requests.
        """
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
            "worker_mem_need_gb": MEMORY_USE_SHARE * worker_gb,
            "server_mem_need_gb": MEMORY_USE_SHARE * server_gb * case.servers,
        }
        return Trace.of(pd.DataFrame([values]), name=f"Made: DLRover's {self.case} job")


def _sample_costs(model: NDArray[np.intp]) -> SampleCosts:
    """Return the sample costs of jobs, given the index of each job's model in `MODELS`."""
    rows = [ROWS[plain(name)] for name in MODELS]
    return SampleCosts(
        *(
            np.array([getattr(row, name) for row in rows])[model]
            for name in ("sample_s", "update_s", "input_s")
        )
    )


def _requests_per_replica(needs: JobNeeds, factors: Floats) -> dict[str, Floats]:
    """Return requests per replica by column: needs times factors, in cores and GB.

    Requests below the need are exact. Others are rounded up to a tenth and limited to `MAX_CORES`
    and `MAX_GB`, but at least the need.
    """
    needs_by_column = (
        needs.worker_cpus,
        needs.server_cpus,
        _round_up(needs.worker_gb),
        _round_up(needs.server_gb + needs.growth_gb),
    )
    names, caps = (
        ("worker_cpus", "server_cpus", "worker_mem_gb", "server_mem_gb"),
        (
            MAX_CORES,
            MAX_CORES,
            MAX_GB,
            MAX_GB,
        ),
    )
    requests = {}
    for name, need, factor, cap in zip(names, needs_by_column, factors, caps, strict=True):
        requests[name] = np.where(
            factor < 1, need * factor, np.maximum(need, np.minimum(_round_up(need * factor), cap))
        )
    return requests


def _round_up(values: Floats) -> Floats:
    """Return values rounded up to a tenth, up to floating-point noise."""
    return np.asarray(np.ceil(values * 10 - 1e-9) / 10, np.float64)
