"""Jobs with workers and parameter servers on GPUs or cores, with stragglers and memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.clock import instant
from sim.cluster import Cluster
from sim.contract import Floats, Gang, Grant, Ints, JobId, Shape, Telemetry
from sim.errors import ContractError, ParameterError
from sim.params import param
from sim.perf.machines import Machines, Spans
from sim.perf.model import Limits, Rate, Roles, Usage
from sim.perf.profiles import number
from sim.perf.role_requests import (
    OWNER,
    RoleRequests,
    Staffing,
    assumption_sentences,
    check_stand_in,
)
from sim.perf.steps import Coefficients, StepSetup
from sim.trace import Trace

_BLOCK: Final = 1_000_000
_MAX_CREWS: Final = 200_000
_ANY: Final = 1e9  # servers, if more of them always help
HEALTHY: Final = 1.0


@dataclass(frozen=True)
class ParameterServer(Staffing):
    """Samples per second of workers that exchange weights with parameter servers.

    Notes
    -----
    A step of m samples on one of W workers with P servers takes ``compute + W / P * exchange +
    worker * W + server * P + input * m``. On a GPU the first is ``sample * m + step``, divided by
    the speed of its type, on a CPU worker of c cores ``kappa * 8 / c`` times that; the exchange
    depends on the cores of the servers. Coefficients are those of the job's model
    (`sim.perf.steps.ROWS`). The form joins those of the code that follows AITurbo [1]_ and of
    DLRover-RM [2]_; it is our reading of both.

    Synchronous workers divide the batch and run at the pace of the slowest. Asynchronous ones keep
    their part of the requested batch, each at its own pace. With data sharding their paces add up;
    the last shard of the slowest is neglected. Without sharding the job waits for the slowest: W
    times its pace. On a straggler the whole step of a worker takes longer; a slow server stretches
    the exchange of all workers.

    Work is counted in samples: ``total_steps * batch_size``, else recorded duration x speed of the
    request, all healthy, on the type it was measured on. A worker runs out of memory at once if it
    needs more than it holds; a server when the need of the job, which may grow with the work done,
    exceeds the memory of its servers. Memory of 0 is not modelled.

    References
    ----------
    .. [1] L. Zhao, F. Li, W. Qu, K. Zhan, Q. Zhang, "AITurbo: Unified Compute Allocation for
    Partial Predictable Training in Commodity Clusters", HPDC 2021. .. [2] Q. Wang et al.,
    "DLRover-RM: Resource Optimization for Deep Recommendation Models Training in the Cloud", PVLDB
    17, 2024, arXiv 2304.01468.
    """

    kappa: float = param(
        4.0,
        title="Time on a CPU worker over GPU",
        low=0.01,
        high=1000,
        help=(
            "Forward and backward pass on a CPU worker of 8 cores, as a multiple of the time on the"
            " reference GPU."
        ),
    )
    slow: str = param(
        "",
        title="Stragglers",
        help=(
            "Stragglers as node:from_s:to_s:speed, separated by semicolons; speed above 0 and up to"
            " 1, to_s may be inf."
        ),
    )
    slow_role: str = param(
        "both",
        title="Slow replicas",
        choices=("both", "worker", "server"),
        labels={"both": "Workers and servers", "worker": "Workers", "server": "Servers"},
        help="Which replicas are slow on these nodes: workers, servers or both.",
    )

    def __post_init__(self) -> None:
        """Refuse invalid rows and stragglers, and an unknown `stand_in`."""
        super().__post_init__()
        check_stand_in(self)
        parse_slow_periods(f"{OWNER}, slow", self.slow)

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Return sentences for users on values assumed because the trace lacks them."""
        return assumption_sentences(self, trace)

    def bind(self, trace: Trace, cluster: Cluster) -> ParameterServerModel:
        """Bind the model to jobs and machines.

        Raises
        ------
        ParameterError
            If the reference type or the node of a straggler is missing, or a job has no row, no
            cores, or fractions of workers.
        """
        machines = Machines(OWNER, Spans(self.reference), trace, cluster)
        stragglers = Stragglers(
            f"{OWNER}, slow", parse_slow_periods(f"{OWNER}, slow", self.slow), cluster
        )
        requests = RoleRequests(self, trace)
        requests.check(trace)
        return ParameterServerModel(self, trace, machines, stragglers, requests)


class _Pace(NamedTuple):
    """Speed of one gang at an instant: samples per second, and the parts of a healthy step."""

    samples_per_s: float
    step_s: float
    compute_s: float
    exchange_s: float
    samples: float
    workers: tuple[float, ...]  # speed per node, in the order of the part
    servers: tuple[float, ...]


class _Groups(NamedTuple):
    """Columns of the values that determine a job's speed, one row per distinct combination."""

    row: Floats
    batch: Floats
    asynchronous: Floats
    per_worker: Floats
    workers: Floats
    servers: Floats
    worker_cpus: Floats
    server_cpus: Floats
    least: Floats
    most: Floats


class ParameterServerModel:
    """`ParameterServer`, bound to one trace and one cluster."""

    def __init__(
        self,
        spec: ParameterServer,
        trace: Trace,
        machines: Machines,
        stragglers: Stragglers,
        requests: RoleRequests,
    ) -> None:
        self._spec, self._machines, self._stragglers, self._requests = (
            spec,
            machines,
            stragglers,
            requests,
        )
        self._steps = Coefficients(requests.table, spec.kappa)
        low, high = spec.sizes(trace, machines.largest)
        low = np.where(requests.on_gpus, np.maximum(low, requests.per_worker), 0.0)
        nothing = np.full(len(trace), nan)
        self._limits = Limits(low, high, nothing, nothing)
        for values in self._limits:
            values.flags.writeable = False
        roles = requests.roles
        most = np.where(
            requests.on_gpus,
            np.floor(high / np.maximum(requests.per_worker, 1)),
            np.ceil(spec.grow * roles.workers),
        )
        columns = (
            requests.row,
            requests.batch,
            requests.asynchronous,
            requests.per_worker,
            *roles[:3],
            roles.server_cpus,
            low,
            most,
        )
        names = (
            "row",
            "batch",
            "asynchronous",
            "per_worker",
            "workers",
            "servers",
            "worker_cpus",
            "server_cpus",
            "least",
            "most",
        )
        distinct, group = np.unique(
            np.stack(columns, axis=1).astype(np.float64), axis=0, return_inverse=True
        )
        self._groups = _Groups(**dict(zip(names, distinct.T, strict=True)))
        self._group: Ints = group.reshape(-1).astype(np.int64)
        self._group_of: list[int] = self._group.tolist()
        self._step_cache: dict[tuple[float, ...], tuple[float, float, float, float]] = {}
        steps, duration = trace.numbers("total_steps"), trace.numbers("duration_s")
        self._work: Floats = np.where(
            np.isnan(steps), duration * self._recorded_speed(), steps * requests.batch
        )
        self._recorded_rate: Floats = self._work / duration
        self._asynchronous: list[bool] = requests.asynchronous.tolist()
        self._needs = [
            trace.numbers(name, 0.0)
            for name in ("worker_mem_need_gb", "server_mem_need_gb", "server_mem_growth_gb")
        ]

    def work(self) -> Floats:
        """Return samples, of shape (jobs,)."""
        return self._work

    def limits(self) -> Limits:
        """Return size limits in GPUs; 0 for jobs with workers on CPUs."""
        return self._limits

    def roles(self) -> Roles:
        """Return the requested workers and servers of each job."""
        return self._requests.roles

    def resources(self) -> Floats:
        """Return worker cores, worker GB, server cores and server GB in use, of shape (jobs, 4).

        Per worker or server of the request. Cores are the requested cores times the busy part of a
        step on the reference type; GB are the need at the end of the job, or the request if no need
        is stated.
        """
        groups, roles = self._groups, self._requests.roles
        row, setup = self._step_setup(
            np.arange(len(groups.row)), groups.workers[:, None], groups.servers[:, None]
        )
        step, has_servers = self._steps.step(row, setup), roles.servers > 0
        step_s = step.compute_s + step.exchange_s + step.rest_s
        worker, server = (
            (part / step_s)[self._group, 0] for part in (step.compute_s, step.exchange_s)
        )
        worker_gb, *server_gb = self._needs
        each_gb = sum(server_gb) / np.maximum(roles.servers, 1.0)
        return np.column_stack(
            (
                worker * roles.worker_cpus,
                np.where(worker_gb > 0, worker_gb, roles.worker_mem_gb),
                np.where(has_servers, server * roles.server_cpus, 0.0),
                np.where(has_servers, np.where(each_gb > 0, each_gb, roles.server_mem_gb), 0.0),
            )
        )

    def fastest(self) -> Floats:
        """Return samples per second with the best workers and servers on the fastest type.

        Workers up to `grow` times the request; servers only for jobs with servers.
        """
        groups = self._groups
        best, count = np.zeros(len(groups.row)), int(groups.most.max())
        all_groups = np.arange(len(best))
        has_servers = groups.servers[:, None] > 0
        step = max(1, _BLOCK // len(best))
        for first in range(1, count + 1, step):
            workers = np.minimum(
                np.arange(first, min(first + step, count + 1), dtype=np.float64),
                groups.most[:, None],
            )
            row, setup = self._step_setup(all_groups, workers, np.ones_like(workers))
            best_servers = np.clip(self._steps.best_servers(row, setup), 1.0, _ANY)
            for servers in (np.floor(best_servers), np.ceil(best_servers)):
                staffed = setup._replace(servers=np.where(has_servers, servers, 0.0))
                best = np.maximum(
                    best, self._speed(row, staffed, self._machines.fastest).max(axis=1)
                )
        return best[self._group]

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        """Return the samples per second of a grant, until a straggler changes or memory is full.

        Raises
        ------
        ContractError
            If a gang is smaller than the smallest size, lacks the servers that the job asks for, or
            has CPU workers or servers without cores.
        """
        if grant.gangs[0].workers.nodes[0] == self._machines.overflow:
            return Rate(float(self._recorded_rate[job]))
        speed = sum(
            [
                self._pace(job, gang, now_s, sharding=grant.tuning.sharding).samples_per_s
                for gang in grant.gangs
            ]
        ) * self._spec.worth(len(grant.gangs))
        until_s = self._stragglers.next_change(_grant_nodes(grant), now_s)
        full_at, role = min([self._memory_full_at(job, gang) for gang in grant.gangs])
        if full_at == inf:
            return Rate(speed, inf, until_s)
        # A rate has only one end: if a straggler may change first, the simulator requests the rate
        # again there, and then at the work at which memory is full.
        if until_s == inf or done >= full_at - 1e-9 * float(self._work[job]):
            return Rate(speed, max(done, full_at), inf, "oom", role)
        return Rate(speed, full_at, until_s)

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return samples per second before placement, all healthy; 0 = the job cannot run.

        Workers on CPUs have the requested cores; CPU workers that replace GPU workers have
        `cores_per_worker`.
        """
        if not shapes:
            return np.zeros((len(ids), 0))
        gpus, speeds = self._machines.shapes(shapes)
        on_cpus = np.array([shape.kind == "cpu" for shape in shapes])
        counts = np.array([(shape.workers, shape.servers) for shape in shapes], np.float64).T
        groups, group_index = np.unique(self._group[ids], return_inverse=True)
        requested = _Groups(*[column[groups, None] for column in self._groups])
        with_gpus = (requested.per_worker > 0) & ~on_cpus
        workers = np.where(
            with_gpus,
            gpus / np.maximum(requested.per_worker, 1.0),
            np.where(counts[0] > 0, counts[0], requested.workers),
        )
        servers = np.where(counts[1] > 0, counts[1], requested.servers)
        row, setup = self._step_setup(
            groups, np.maximum(np.floor(workers), 1.0), servers, on_gpus=with_gpus
        )
        possible = np.where(
            with_gpus, (workers % 1 == 0) & (gpus >= requested.least) & (gpus > 0), gpus == 0
        )
        speeds_by_group = np.where(possible, self._speed(row, setup, speeds), 0.0)
        every: Floats = speeds_by_group[group_index.reshape(-1)]
        return every

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        """Return use of the busiest replica of each role, and the speed of each replica.

        Of the first gang, replicas in the order of its nodes.
        """
        gang = grant.gangs[0]
        workers, servers = gang.workers, gang.servers
        if workers.nodes[0] == self._machines.overflow:
            return Telemetry(
                {"worker": workers.cpus},
                {"worker": workers.mem_gb},
                {"worker": (HEALTHY,) * sum(workers.count)},
            )
        pace = self._pace(job, gang, now_s, sharding=grant.tuning.sharding)
        worker_gb, server_gb = self._memory(job, gang, done)
        cpus = {"worker": workers.cpus * pace.compute_s / pace.step_s}
        mem_gb, speed = (
            {"worker": worker_gb},
            {"worker": _speed_per_replica(pace.workers, workers.count)},
        )
        if servers is not None:
            cpus["server"] = servers.cpus * pace.exchange_s / pace.step_s
            mem_gb["server"] = server_gb
            speed["server"] = _speed_per_replica(pace.servers, servers.count)
        return Telemetry(cpus, mem_gb, speed)

    def usage(
        self, job: JobId, grant: Grant, done: tuple[float, float], now_s: float
    ) -> tuple[Usage, ...]:
        """Return cores and GB that workers and servers use on average, an entry per gang and role.

        GB are NaN if no need is stated. Gangs on the overflow node are left out.
        """
        usages = []
        for gang in grant.gangs:
            workers, servers = gang.workers, gang.servers
            if workers.nodes[0] == self._machines.overflow:
                continue
            pace = self._pace(job, gang, now_s, sharding=grant.tuning.sharding)
            steps_per_s = pace.samples_per_s / pace.samples
            # Needs that are not stated are unknown here, although a monitor would measure them.
            stated = (float(need[job]) > 0 for need in self._needs)
            worker_gb, server_gb = (
                gb if is_stated else nan
                for gb, is_stated in zip(
                    self._memory(job, gang, sum(done) / 2), stated, strict=False
                )
            )
            usages.append(
                Usage(
                    "worker",
                    steps_per_s * pace.compute_s * workers.cpus,
                    worker_gb * sum(workers.count),
                )
            )
            if servers is not None:
                count = sum(servers.count)
                # Servers are idle while they wait for a slow one.
                busy = steps_per_s / sum(workers.count) * pace.exchange_s * min(pace.servers)
                usages.append(Usage("server", busy * servers.cpus * count, server_gb * count))
        return tuple(usages)

    def _step_setup(
        self,
        groups: Ints,
        workers: Floats,
        servers: Floats,
        on_gpus: NDArray[np.bool_] | None = None,
    ) -> tuple[Ints, StepSetup]:
        """Return rows of coefficients and step setups of groups of jobs.

        `on_gpus`: whether the workers have GPUs; None = as requested.
        """
        requested = _Groups(*[column[groups, None] for column in self._groups])
        gpus = (
            requested.per_worker + np.zeros_like(workers)
            if on_gpus is None
            else np.where(on_gpus, requested.per_worker, 0.0)
        )
        cores = np.where(
            (requested.per_worker > 0) & (gpus == 0),
            self._spec.cores_per_worker,
            requested.worker_cpus,
        )
        samples = requested.batch / np.where(requested.asynchronous > 0, requested.workers, workers)
        return requested.row.astype(np.int64), StepSetup(
            samples,
            workers,
            gpus,
            cores,
            servers,
            np.where(requested.servers > 0, requested.server_cpus, self._spec.cores_per_server),
        )

    def _speed(self, row: Ints, setup: StepSetup, type_speed: Floats | float) -> Floats:
        """Return samples per second of step setups on types of a relative speed."""
        step = self._steps.step(row, setup)
        compute = step.compute_s / np.where(setup.gpus > 0, type_speed, 1.0)
        speed: Floats = setup.workers * setup.samples / (compute + step.exchange_s + step.rest_s)
        return speed

    def _recorded_speed(self) -> Floats:
        """Return samples per second of each job's request on the type it was measured on."""
        every, groups = self._group, self._groups
        row, setup = self._step_setup(
            np.arange(len(groups.row)), groups.workers[:, None], groups.servers[:, None]
        )
        setup = StepSetup(*[column[every, 0] for column in np.broadcast_arrays(*setup)])
        return self._speed(row[every, 0], setup, self._machines.measured)

    def _pace(self, job: JobId, gang: Gang, now_s: float, *, sharding: bool) -> _Pace:
        """Return the speed of a gang now, with the stragglers among its nodes."""
        workers, servers = gang.workers, gang.servers
        self._check(job, gang)
        count, spec = float(sum(workers.count)), self._spec
        compute_s, exchange_s, rest_s, samples = self._step(job, gang, count)
        worker_speeds = (
            self._stragglers.speeds(workers.nodes, now_s)
            if spec.slow_role != "server"
            else [HEALTHY] * len(workers.nodes)
        )
        server_speeds = [HEALTHY] * len(servers.nodes) if servers else [HEALTHY]
        if servers and spec.slow_role != "worker":
            server_speeds = self._stragglers.speeds(servers.nodes, now_s)
        exchange_s /= min(server_speeds)
        types = [self._machines.node_speed[node] if workers.gpus else 1.0 for node in workers.nodes]
        times = [
            (compute_s / kind + exchange_s + rest_s) / speed
            for kind, speed in zip(types, worker_speeds, strict=True)
        ]
        if sharding and self._asynchronous[job]:
            steps_per_s = sum(
                [replicas / step_s for replicas, step_s in zip(workers.count, times, strict=True)]
            )
        else:
            steps_per_s = count / max(times)
        compute_s /= min(types)
        return _Pace(
            steps_per_s * samples,
            compute_s + exchange_s + rest_s,
            compute_s,
            exchange_s,
            samples,
            tuple(worker_speeds),
            tuple(server_speeds),
        )

    def _step(self, job: JobId, gang: Gang, count: float) -> tuple[float, float, float, float]:
        """Return compute, exchange and rest of a healthy step in seconds, and its samples.

        Compute is on the reference type.
        """
        workers, servers = gang.workers, gang.servers
        server_values = (
            (float(sum(servers.count)), servers.cpus)
            if servers
            else (0.0, self._spec.cores_per_server)
        )
        group = self._group_of[job]
        key = (group, count, workers.gpus, workers.cpus, *server_values)
        step_parts = self._step_cache.get(key)
        if step_parts is None:
            if len(self._step_cache) >= _MAX_CREWS:
                self._step_cache.clear()
            requested = _Groups(*[column[group] for column in self._groups])
            samples = requested.batch / (requested.workers if requested.asynchronous else count)
            setup = StepSetup(
                *[
                    np.array([value])
                    for value in (samples, count, float(workers.gpus), workers.cpus, *server_values)
                ]
            )
            compute, exchange, rest = [
                float(part[0]) for part in self._steps.step(np.array([int(requested.row)]), setup)
            ]
            step_parts = self._step_cache[key] = compute, exchange, rest, float(samples)
        return step_parts

    def _check(self, job: JobId, gang: Gang) -> None:
        """Refuse a gang that is too small, or without servers or cores that it needs."""
        workers, servers = gang.workers, gang.servers
        held = sum(workers.count) * workers.gpus
        if workers.gpus and held < self._limits.min_gpus[job]:
            raise ContractError(
                f"job {job} runs on {self._limits.min_gpus[job]:g} GPUs or more and cannot run on"
                f" {held}"
            )
        if servers is None and self._requests.roles.servers[job]:
            raise ContractError(
                f"job {job} asks for {self._requests.roles.servers[job]:g} parameter servers and"
                " cannot run without any"
            )
        if not (workers.gpus or workers.cpus) or (servers is not None and not servers.cpus):
            raise ContractError(f"job {job} has CPU workers or parameter servers without cores")

    def _memory_full_at(self, job: JobId, gang: Gang) -> tuple[float, str]:
        """Return the work at which memory is full, and the role that runs out; inf = never."""
        workers, servers = gang.workers, gang.servers
        worker_gb, server_gb, growth_gb = [float(need[job]) for need in self._needs]
        if workers.mem_gb and worker_gb > workers.mem_gb + 1e-9:
            return 0.0, "worker"
        if servers is None or not servers.mem_gb:
            return inf, "worker"
        spare_gb = servers.mem_gb * sum(servers.count) - server_gb
        if spare_gb < -1e-9:
            return 0.0, "server"
        return (
            (max(spare_gb, 0.0) / growth_gb * float(self._work[job]), "server")
            if spare_gb < growth_gb
            else (inf, "server")
        )

    def _memory(self, job: JobId, gang: Gang, done: float) -> tuple[float, float]:
        """Return GB in use per worker and per server: the stated need, else the held GB."""
        workers, servers = gang.workers, gang.servers
        worker_gb, server_gb, growth_gb = [float(need[job]) for need in self._needs]
        worker_gb = min(worker_gb, workers.mem_gb or inf) or workers.mem_gb
        if servers is None:
            return worker_gb, 0.0
        each_gb = (server_gb + growth_gb * done / float(self._work[job])) / sum(servers.count)
        return worker_gb, min(each_gb, servers.mem_gb or inf) or servers.mem_gb


def _grant_nodes(grant: Grant) -> list[int]:
    """Return the nodes of all parts of a grant."""
    return [
        node for gang in grant.gangs for part in gang if part is not None for node in part.nodes
    ]


def _speed_per_replica(speeds: Sequence[float], count: Sequence[int]) -> tuple[float, ...]:
    """Return the speed of each replica, given speed and count per node."""
    return tuple(
        speed for speed, replicas in zip(speeds, count, strict=True) for _ in range(replicas)
    )


class SlowPeriod(NamedTuple):
    """A period of reduced speed of a node."""

    node: int
    from_s: float
    to_s: float
    speed: float


def parse_slow_periods(owner: str, text: str) -> tuple[SlowPeriod, ...]:
    """Return the slow periods of text entries node:from_s:to_s:speed.

    Entries are separated by semicolons; to_s may be inf. Times are rounded to instants, so that no
    rate is requested just before a node changes its speed.

    Raises
    ------
    ParameterError
        If an entry is malformed, its times do not grow, or its speed is not above 0 and up to 1.
    """
    periods = []
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        fields = entry.split(":")
        figures = [
            inf if field.strip() == "inf" and index == 2 else number(field)
            for index, field in enumerate(fields)
        ]
        if len(figures) != 4 or any(map(isnan, figures)) or figures[0] % 1:
            raise ParameterError(
                f"{owner}: '{entry:.60}' is not of the form node:from_s:to_s:speed, e.g."
                " 3:600:inf:0.5."
            )
        period = SlowPeriod(int(figures[0]), instant(figures[1]), instant(figures[2]), figures[3])
        if not 0 <= period.from_s < period.to_s:
            raise ParameterError(
                f"{owner}: '{entry}' must begin at 0 s or later and end after it began; inf ="
                " never."
            )
        if not 0 < period.speed <= 1:
            raise ParameterError(
                f"{owner}: '{entry}' has speed {period.speed:g}; a straggler runs at a speed above"
                " 0 and up to 1. For a node that stops, set an outage."
            )
        periods.append(period)
    return tuple(periods)


class Stragglers:
    """Slow periods per node.

    Parameters
    ----------
    owner : str
        Model and parameter, for messages.
    periods : iterable of SlowPeriod
        Slow periods; where two overlap on a node, the slower counts.
    cluster : Cluster
        The machines.

    Raises
    ------
    ParameterError
        If a node does not exist.
    """

    def __init__(self, owner: str, periods: Iterable[SlowPeriod], cluster: Cluster) -> None:
        self._periods_of: dict[int, list[SlowPeriod]] = {}
        for period in periods:
            if not 0 <= period.node < len(cluster.nodes):
                raise ParameterError(
                    f"{owner}: there is no node {period.node}; the nodes are 0 to"
                    f" {len(cluster.nodes) - 1}. Name one of them."
                )
            self._periods_of.setdefault(period.node, []).append(period)

    def speeds(self, nodes: Iterable[int], now_s: float) -> list[float]:
        """Return the current speed of each node; 1 = healthy."""
        if not self._periods_of:
            return [HEALTHY for _ in nodes]
        return [
            min(
                [
                    period.speed
                    for period in self._periods_of.get(node, ())
                    if period.from_s <= now_s < period.to_s
                ],
                default=HEALTHY,
            )
            for node in nodes
        ]

    def next_change(self, nodes: Iterable[int], now_s: float) -> float:
        """Return the next instant at which the speed of a node may change; inf = never."""
        if not self._periods_of:
            return inf
        return min(
            [
                at_s
                for node in nodes
                for period in self._periods_of.get(node, ())
                for at_s in period[1:3]
                if at_s > now_s
            ],
            default=inf,
        )
