"""Jobs of workers and parameter servers: the time of a step follows from both, on GPUs or on cores;
stragglers and memory included.
"""

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
from sim.perf.roles import OWNER, RoleRequests, Staffing, assumed, checked_stand_in
from sim.perf.steps import Coefficients, StepSetup
from sim.trace import Trace

_BLOCK: Final = 1_000_000
_MOST_CREWS: Final = 200_000
_ANY: Final = 1e9  # servers, where more of them always help
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

    Synchronous workers divide the batch, and the slowest paces them. Asynchronous ones keep their
    part of the batch that the job asked for, each at its own pace. If data is dealt in shards,
    their paces add up; the shard that the slowest holds at the end is neglected. If it is divided
    beforehand, the slowest is waited for: W times its pace. On a straggler all of a worker's step
    takes longer; a slow server stretches the exchange of all workers.

    Work is counted in samples: ``total_steps * batch_size``, else recorded duration x speed of what
    the job asks for, all healthy, on the type it was measured on. A worker runs out of memory at
    once if it needs more than it holds; a server when what the job needs, which may grow with the
    work done, exceeds what its servers hold. Memory of 0 is not modelled.

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
        """Refuse rows and stragglers that make no sense, and a stand-in that is not there."""
        super().__post_init__()
        checked_stand_in(self)
        spells(f"{OWNER}, slow", self.slow)

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Say what is assumed of jobs that do not state what they are made of, how long they are,
        or what they need.
        """
        return assumed(self, trace)

    def bind(self, trace: Trace, cluster: Cluster) -> ParameterServerModel:
        """Bind to jobs and machines.

        Raises
        ------
        ParameterError
            If the reference type or the node of a straggler is not there, or a job has no row, no
            cores, or parts of workers.
        """
        machines = Machines(OWNER, Spans(self.reference), trace, cluster)
        stragglers = Stragglers(f"{OWNER}, slow", spells(f"{OWNER}, slow", self.slow), cluster)
        asked = RoleRequests(self, trace)
        asked.check(trace)
        return ParameterServerModel(self, trace, machines, stragglers, asked)


class _Pace(NamedTuple):
    """How one gang works at an instant: samples per second, and how long a step of a healthy worker
    takes and what for.
    """

    samples_per_s: float
    step_s: float
    compute_s: float
    exchange_s: float
    samples: float
    workers: tuple[float, ...]  # speed of the nodes in the order of the part
    servers: tuple[float, ...]


class _Groups(NamedTuple):
    """Columns of what the speed of a job depends on; few jobs differ in it."""

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
        asked: RoleRequests,
    ) -> None:
        self._spec, self._machines, self._stragglers, self._asked = (
            spec,
            machines,
            stragglers,
            asked,
        )
        self._steps = Coefficients(asked.table, spec.kappa)
        low, high = spec.sizes(trace, machines.largest)
        low = np.where(asked.on_gpus, np.maximum(low, asked.per_worker), 0.0)
        nothing = np.full(len(trace), nan)
        self._limits = Limits(low, high, nothing, nothing)
        for values in self._limits:
            values.flags.writeable = False
        roles = asked.roles
        most = np.where(
            asked.on_gpus,
            np.floor(high / np.maximum(asked.per_worker, 1)),
            np.ceil(spec.grow * roles.workers),
        )
        columns = (
            asked.row,
            asked.batch,
            asked.asynchronous,
            asked.per_worker,
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
        self._crews: dict[tuple[float, ...], tuple[float, float, float, float]] = {}
        steps, duration = trace.numbers("total_steps"), trace.numbers("duration_s")
        self._work: Floats = np.where(
            np.isnan(steps), duration * self._recorded(), steps * asked.batch
        )
        self._recorded_rate: Floats = self._work / duration
        self._asynchronous: list[bool] = asked.asynchronous.tolist()
        self._needs = [
            trace.numbers(name, 0.0)
            for name in ("worker_mem_need_gb", "server_mem_need_gb", "server_mem_growth_gb")
        ]

    def work(self) -> Floats:
        """Return samples, of shape (jobs,)."""
        return self._work

    def limits(self) -> Limits:
        """Return sizes in GPUs; 0 for jobs with workers on CPUs."""
        return self._limits

    def roles(self) -> Roles:
        """Return what each job asks for."""
        return self._asked.roles

    def resources(self) -> Floats:
        """Return cores in use on the reference type, and GB at the end, of each worker and each
        server; where no need is stated, the GB asked for.
        """
        groups, roles = self._groups, self._asked.roles
        row, crew = self._crew(
            np.arange(len(groups.row)), groups.workers[:, None], groups.servers[:, None]
        )
        step, has = self._steps.step(row, crew), roles.servers > 0
        whole_s = step.compute_s + step.exchange_s + step.rest_s
        worker, server = (
            (part / whole_s)[self._group, 0] for part in (step.compute_s, step.exchange_s)
        )
        worker_gb, *server_gb = self._needs
        each_gb = sum(server_gb) / np.maximum(roles.servers, 1.0)
        return np.column_stack(
            (
                worker * roles.worker_cpus,
                np.where(worker_gb > 0, worker_gb, roles.worker_mem_gb),
                np.where(has, server * roles.server_cpus, 0.0),
                np.where(has, np.where(each_gb > 0, each_gb, roles.server_mem_gb), 0.0),
            )
        )

    def fastest(self) -> Floats:
        """Return samples per second with the best numbers of workers, up to `grow` times as asked,
        and of servers, if any, on the fastest type.
        """
        groups = self._groups
        best, count = np.zeros(len(groups.row)), int(groups.most.max())
        every = np.arange(len(best))
        has_servers = groups.servers[:, None] > 0
        step = max(1, _BLOCK // len(best))
        for first in range(1, count + 1, step):
            workers = np.minimum(
                np.arange(first, min(first + step, count + 1), dtype=np.float64),
                groups.most[:, None],
            )
            row, crew = self._crew(every, workers, np.ones_like(workers))
            wanted = np.clip(self._steps.best_servers(row, crew), 1.0, _ANY)
            for servers in (np.floor(wanted), np.ceil(wanted)):
                some = crew._replace(servers=np.where(has_servers, servers, 0.0))
                best = np.maximum(best, self._speed(row, some, self._machines.fastest).max(axis=1))
        return best[self._group]

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        """Return the samples per second of workers and servers as they are now, until a straggler
        changes or memory runs out.

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
        until_s = self._stragglers.next_change(_nodes(grant), now_s)
        full_at, role = min([self._full_at(job, gang) for gang in grant.gangs])
        if full_at == inf:
            return Rate(speed, inf, until_s)
        # A rate has one end only: where a straggler may change first, the simulator asks again
        # there, and at the work at which memory is full.
        if until_s == inf or done >= full_at - 1e-9 * float(self._work[job]):
            return Rate(speed, max(done, full_at), inf, "oom", role)
        return Rate(speed, full_at, until_s)

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return the samples per second, all healthy, for grants that are not placed yet; 0 where a
        job cannot run so.

        Workers on CPUs have the cores that the job asks for, those that stand in for GPU workers
        `cores_per_worker`.
        """
        if not shapes:
            return np.zeros((len(ids), 0))
        gpus, speeds = self._machines.shapes(shapes)
        on_cpus = np.array([shape.kind == "cpu" for shape in shapes])
        given = np.array([(shape.workers, shape.servers) for shape in shapes], np.float64).T
        some, back = np.unique(self._group[ids], return_inverse=True)
        asked = _Groups(*[column[some, None] for column in self._groups])
        with_gpus = (asked.per_worker > 0) & ~on_cpus
        workers = np.where(
            with_gpus,
            gpus / np.maximum(asked.per_worker, 1.0),
            np.where(given[0] > 0, given[0], asked.workers),
        )
        servers = np.where(given[1] > 0, given[1], asked.servers)
        row, crew = self._crew(some, np.maximum(np.floor(workers), 1.0), servers, on_gpus=with_gpus)
        possible = np.where(
            with_gpus, (workers % 1 == 0) & (gpus >= asked.least) & (gpus > 0), gpus == 0
        )
        found = np.where(possible, self._speed(row, crew, speeds), 0.0)
        every: Floats = found[back.reshape(-1)]
        return every

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        """Return cores and memory of the busiest replica of each role, and the speed of each
        replica in the order of the nodes; of the first gang.
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
        mem_gb, speed = {"worker": worker_gb}, {"worker": _each(pace.workers, workers.count)}
        if servers is not None:
            cpus["server"] = servers.cpus * pace.exchange_s / pace.step_s
            mem_gb["server"] = server_gb
            speed["server"] = _each(pace.servers, servers.count)
        return Telemetry(cpus, mem_gb, speed)

    def usage(
        self, job: JobId, grant: Grant, done: tuple[float, float], now_s: float
    ) -> tuple[Usage, ...]:
        """Return what workers and servers use together while they do this work."""
        found = []
        for gang in grant.gangs:
            workers, servers = gang.workers, gang.servers
            if workers.nodes[0] == self._machines.overflow:
                continue
            pace = self._pace(job, gang, now_s, sharding=grant.tuning.sharding)
            steps_per_s = pace.samples_per_s / pace.samples
            # What is not stated is not known here, though a monitor would see something.
            stated = (float(need[job]) > 0 for need in self._needs)
            worker_gb, server_gb = (
                gb if known else nan
                for gb, known in zip(self._memory(job, gang, sum(done) / 2), stated, strict=False)
            )
            found.append(
                Usage(
                    "worker",
                    steps_per_s * pace.compute_s * workers.cpus,
                    worker_gb * sum(workers.count),
                )
            )
            if servers is not None:
                count = sum(servers.count)
                # Servers that wait for a slow one do no work meanwhile.
                busy = steps_per_s / sum(workers.count) * pace.exchange_s * min(pace.servers)
                found.append(Usage("server", busy * servers.cpus * count, server_gb * count))
        return tuple(found)

    def _crew(
        self,
        groups: Ints,
        workers: Floats,
        servers: Floats,
        on_gpus: NDArray[np.bool_] | None = None,
    ) -> tuple[Ints, StepSetup]:
        asked = _Groups(*[column[groups, None] for column in self._groups])
        gpus = (
            asked.per_worker + np.zeros_like(workers)
            if on_gpus is None
            else np.where(on_gpus, asked.per_worker, 0.0)
        )
        cores = np.where(
            (asked.per_worker > 0) & (gpus == 0), self._spec.cores_per_worker, asked.worker_cpus
        )
        samples = asked.batch / np.where(asked.asynchronous > 0, asked.workers, workers)
        return asked.row.astype(np.int64), StepSetup(
            samples,
            workers,
            gpus,
            cores,
            servers,
            np.where(asked.servers > 0, asked.server_cpus, self._spec.cores_per_server),
        )

    def _speed(self, row: Ints, crew: StepSetup, type_speed: Floats | float) -> Floats:
        step = self._steps.step(row, crew)
        compute = step.compute_s / np.where(crew.gpus > 0, type_speed, 1.0)
        speed: Floats = crew.workers * crew.samples / (compute + step.exchange_s + step.rest_s)
        return speed

    def _recorded(self) -> Floats:
        every, groups = self._group, self._groups
        row, crew = self._crew(
            np.arange(len(groups.row)), groups.workers[:, None], groups.servers[:, None]
        )
        crew = StepSetup(*[column[every, 0] for column in np.broadcast_arrays(*crew)])
        return self._speed(row[every, 0], crew, self._machines.measured)

    def _pace(self, job: JobId, gang: Gang, now_s: float, *, sharding: bool) -> _Pace:
        workers, servers = gang.workers, gang.servers
        self._check(job, gang)
        count, spec = float(sum(workers.count)), self._spec
        compute_s, exchange_s, rest_s, samples = self._step(job, gang, count)
        slow = (
            self._stragglers.speeds(workers.nodes, now_s)
            if spec.slow_role != "server"
            else [HEALTHY] * len(workers.nodes)
        )
        serving = [HEALTHY] * len(servers.nodes) if servers else [HEALTHY]
        if servers and spec.slow_role != "worker":
            serving = self._stragglers.speeds(servers.nodes, now_s)
        exchange_s /= min(serving)
        types = [self._machines.node_speed[node] if workers.gpus else 1.0 for node in workers.nodes]
        times = [
            (compute_s / kind + exchange_s + rest_s) / speed
            for kind, speed in zip(types, slow, strict=True)
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
            tuple(slow),
            tuple(serving),
        )

    def _step(self, job: JobId, gang: Gang, count: float) -> tuple[float, float, float, float]:
        """Return compute on the reference type, exchange and rest of a healthy step in seconds, and
        its samples.
        """
        workers, servers = gang.workers, gang.servers
        beside = (
            (float(sum(servers.count)), servers.cpus)
            if servers
            else (0.0, self._spec.cores_per_server)
        )
        group = self._group_of[job]
        key = (group, count, workers.gpus, workers.cpus, *beside)
        known = self._crews.get(key)
        if known is None:
            if len(self._crews) >= _MOST_CREWS:
                self._crews.clear()
            asked = _Groups(*[column[group] for column in self._groups])
            samples = asked.batch / (asked.workers if asked.asynchronous else count)
            crew = StepSetup(
                *[
                    np.array([value])
                    for value in (samples, count, float(workers.gpus), workers.cpus, *beside)
                ]
            )
            compute, exchange, rest = [
                float(part[0]) for part in self._steps.step(np.array([int(asked.row)]), crew)
            ]
            known = self._crews[key] = compute, exchange, rest, float(samples)
        return known

    def _check(self, job: JobId, gang: Gang) -> None:
        workers, servers = gang.workers, gang.servers
        held = sum(workers.count) * workers.gpus
        if workers.gpus and held < self._limits.min_gpus[job]:
            raise ContractError(
                f"job {job} runs on {self._limits.min_gpus[job]:g} GPUs or more and cannot run on"
                f" {held}"
            )
        if servers is None and self._asked.roles.servers[job]:
            raise ContractError(
                f"job {job} asks for {self._asked.roles.servers[job]:g} parameter servers and"
                " cannot run without any"
            )
        if not (workers.gpus or workers.cpus) or (servers is not None and not servers.cpus):
            raise ContractError(f"job {job} has CPU workers or parameter servers without cores")

    def _full_at(self, job: JobId, gang: Gang) -> tuple[float, str]:
        """Return the work at which memory runs out, and the role that runs out of it."""
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
        """Return GB in use per worker and per server; what they hold where nobody says what they
        need.
        """
        workers, servers = gang.workers, gang.servers
        worker_gb, server_gb, growth_gb = [float(need[job]) for need in self._needs]
        worker_gb = min(worker_gb, workers.mem_gb or inf) or workers.mem_gb
        if servers is None:
            return worker_gb, 0.0
        each_gb = (server_gb + growth_gb * done / float(self._work[job])) / sum(servers.count)
        return worker_gb, min(each_gb, servers.mem_gb or inf) or servers.mem_gb


def _nodes(grant: Grant) -> list[int]:
    return [
        node for gang in grant.gangs for part in gang if part is not None for node in part.nodes
    ]


def _each(speeds: Sequence[float], count: Sequence[int]) -> tuple[float, ...]:
    return tuple(
        speed for speed, replicas in zip(speeds, count, strict=True) for _ in range(replicas)
    )


class SlowPeriod(NamedTuple):
    """A time during which a node runs at a share of its speed."""

    node: int
    from_s: float
    to_s: float
    speed: float


def spells(owner: str, text: str) -> tuple[SlowPeriod, ...]:
    """Read entries node:from_s:to_s:speed, separated by semicolons; to_s may be inf.

    Times are rounded to instants, so that the model is not asked shortly before a node changes its
    speed.

    Raises
    ------
    ParameterError
        If an entry is malformed, its times do not grow, or its speed is not above 0 and up to 1.
    """
    found = []
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        fields = entry.split(":")
        figures = [
            inf if field.strip() == "inf" and at == 2 else number(field)
            for at, field in enumerate(fields)
        ]
        if len(figures) != 4 or any(map(isnan, figures)) or figures[0] % 1:
            raise ParameterError(
                f"{owner}: '{entry:.60}' is not of the form node:from_s:to_s:speed, e.g."
                " 3:600:inf:0.5."
            )
        spell = SlowPeriod(int(figures[0]), instant(figures[1]), instant(figures[2]), figures[3])
        if not 0 <= spell.from_s < spell.to_s:
            raise ParameterError(
                f"{owner}: '{entry}' must begin at 0 s or later and end after it began; inf ="
                " never."
            )
        if not 0 < spell.speed <= 1:
            raise ParameterError(
                f"{owner}: '{entry}' has speed {spell.speed:g}; a straggler runs at a speed above 0"
                " and up to 1. For a node that stops, set an outage."
            )
        found.append(spell)
    return tuple(found)


class Stragglers:
    """When each node is slow.

    Parameters
    ----------
    owner : str
        Model and parameter, for messages.
    found : iterable of SlowPeriod
        From `spells`. Where two overlap on a node, the slower counts.
    cluster : Cluster
        The machines.

    Raises
    ------
    ParameterError
        If a node is not there.
    """

    def __init__(self, owner: str, found: Iterable[SlowPeriod], cluster: Cluster) -> None:
        self._of: dict[int, list[SlowPeriod]] = {}
        for spell in found:
            if not 0 <= spell.node < len(cluster.nodes):
                raise ParameterError(
                    f"{owner}: there is no node {spell.node}; the nodes are 0 to"
                    f" {len(cluster.nodes) - 1}. Name one of them."
                )
            self._of.setdefault(spell.node, []).append(spell)

    def speeds(self, nodes: Iterable[int], now_s: float) -> list[float]:
        """Return the speed of each node, 1 = healthy."""
        if not self._of:
            return [HEALTHY for _ in nodes]
        return [
            min(
                [
                    spell.speed
                    for spell in self._of.get(node, ())
                    if spell.from_s <= now_s < spell.to_s
                ],
                default=HEALTHY,
            )
            for node in nodes
        ]

    def next_change(self, nodes: Iterable[int], now_s: float) -> float:
        """Return when the speed of one of these nodes may change next; inf = never."""
        if not self._of:
            return inf
        return min(
            [
                at_s
                for node in nodes
                for spell in self._of.get(node, ())
                for at_s in spell[1:3]
                if at_s > now_s
            ],
            default=inf,
        )
