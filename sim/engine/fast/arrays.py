"""Arrays of the loops: inputs known before a run, and outputs to fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.clock import instant
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.contract import Demand, Floats, NodePool
from sim.demand import Demands
from sim.engine.fast import free_gpus, loops, order, reservation
from sim.engine.faults import Faults
from sim.perf.model import PerfModel
from sim.queue_rules import QueueRule
from sim.trace import Trace

_MORE_STARTS: Final = 1 << 16
_NODE_EVENTS: Final = 1 << 20
"""Further starts and decisions with space in the arrays, if nodes or jobs fail."""
_PLACEMENTS: Final = ("pack", "fewest", "consolidate", "first_fit", "spread", "anywhere")


def can_fail(faults: Faults, cluster: Cluster) -> bool:
    """Return True if nodes or jobs fail, or nodes come and go."""
    outages = faults.mtbf_h or faults.outages.strip(" ;") or cluster.changes
    return bool(outages or faults.interruptions_per_node_h)


class FastRun(NamedTuple):
    """Input of one run that the loops can make.

    Parameters
    ----------
    trace, cluster, conditions : Trace, Cluster, Conditions
        Inputs of the run.
    rule : QueueRule
        Queue rule of the policy.
    model : PerfModel
        True performance model.
    work : array of shape (jobs,)
        True work of each job.
    speed : array of shape (types,)
        Work per second on each type.
    pools : tuple of NodePool
        One for each type.
    demands : Demands
        Demands of the jobs.
    estimates : array of shape (jobs,), or None
        Estimated work; None = the policy does not read it.
    """

    trace: Trace
    cluster: Cluster
    conditions: Conditions
    rule: QueueRule
    model: PerfModel
    work: Floats
    speed: Floats
    pools: tuple[NodePool, ...]
    demands: Demands
    estimates: Floats | None

    @property
    def can_fail(self) -> bool:
        """Whether nodes or jobs fail, or nodes come and go."""
        return can_fail(self.conditions.faults, self.cluster)

    @property
    def changes_keys(self) -> bool:
        """Whether evicted jobs of a queue without preemption get new keys."""
        by_time = not {"run_time_s", "gpu_time_s"}.isdisjoint(self.rule.key)
        return self.can_fail and by_time and self.rule.preemption == "none"


class Tables:
    """Arrays of jobs, demands and pools, known before the run."""

    def __init__(self, lane: FastRun) -> None:
        trace, cluster, demands = lane.trace, lane.cluster, lane.demands
        self.submit_s = np.ascontiguousarray(trace.frame["submit_time_s"].to_numpy())
        self.work = np.ascontiguousarray(lane.work)
        self.left = (
            self.work.copy() if lane.can_fail or lane.rule.preemption != "none" else self.work
        )
        kind = demands.codes.astype(np.int32)
        self.impossible = np.array(
            [
                not _fitting_pools(cluster, lane.pools, demand, "fastest")
                for demand in demands.unique
            ]
        )[demands.codes]
        kind[self.impossible] = -1
        groups = [
            _fitting_pools(cluster, lane.pools, demand, lane.rule.types)
            for demand in demands.unique
        ]
        self.rates = np.array(
            [lane.speed[pool.type_at] if pool.type_at >= 0 else 1.0 for pool in lane.pools]
        )
        self.key, by_rank = _job_order(lane, groups, self.rates)
        rank = np.empty_like(by_rank)
        rank[by_rank] = np.arange(len(by_rank), dtype=np.int32)
        self.jobs = loops.JobArrays(
            self.submit_s,
            self.left if lane.rule.preemption == "none" else self.work,
            kind,
            rank,
            by_rank,
            np.array([demand.replicas for demand in demands.unique]),
            np.cumsum([0, *map(len, groups)]),
            np.array([pool for pools in groups for pool in pools], np.int64),
            np.array(
                [
                    _fewest_nodes(cluster, lane.pools[pool], demand.replicas)
                    for demand, pools in zip(demands.unique, groups, strict=True)
                    for pool in pools
                ],
                np.int64,
            ),
            self.rates * lane.conditions.overheads.efficiency,
            float(lane.conditions.overheads.start_s),
            np.full(len(trace), float(lane.conditions.overheads.start_s)),
            _PLACEMENTS.index(lane.rule.placement),
            lane.rule.backfill == "first_fit",
            lane.rule.backfill == "locked",
            instant(lane.conditions.horizon_s),
            lane.conditions.stop == "drained",
        )

    @property
    def group_bounds(self) -> list[tuple[int, int]]:
        """Index of the first and after the last pool of each demand in `JobArrays.pool`."""
        return list(pairwise(self.jobs.groups.tolist()))


def _fitting_pools(
    cluster: Cluster, pools: Sequence[NodePool], demand: Demand, types: str
) -> list[int]:
    """Return the indices of the pools with enough GPUs for a gang, in order of preference.

    The order `types` is "fastest", "slowest_that_fits" or "cheapest", as in
    `allocators.placement.Ways`.
    """
    kinds = cluster.types
    keys: dict[str, Callable[[int], float]] = {
        "fastest": lambda at: -kinds[at].speed,
        "slowest_that_fits": lambda at: kinds[at].speed,
        "cheapest": lambda at: kinds[at].price_per_gpu_hour,
    }
    order = sorted(demand.pools, key=lambda at: (keys[types](pools[at].type_at), pools[at].type_at))
    return [
        at
        for at in order
        if sum(cluster.nodes[node].gpus for node in pools[at].nodes) >= demand.replicas
    ]


def _fewest_nodes(cluster: Cluster, pool: NodePool, gpus: int) -> int:
    """Return the smallest number of nodes of an empty pool that hold `gpus` GPUs."""
    held = np.cumsum(sorted((cluster.nodes[node].gpus for node in pool.nodes), reverse=True))
    return int(np.searchsorted(held, gpus)) + 1


def _job_order(
    lane: FastRun, groups: list[list[int]], rates: Floats
) -> tuple[Floats, NDArray[np.int32]]:
    """Return the keys of the jobs, if keys change, and the jobs sorted by the key of the rule.

    Without a key they are in order of the trace.
    """
    trace, rule = lane.trace, lane.rule
    columns: list[Floats] = []
    for name in rule.key:
        if name == "arrival_s":
            columns.append(trace.frame["submit_time_s"].to_numpy())
        elif name == "priority":
            columns.append(-trace.numbers("priority", 0.0))
        else:
            assert lane.estimates is not None, "a rule by run times reads no estimates"
            preferred = np.array([rates[each[0]] if each else np.nan for each in groups])
            time_s = lane.estimates / preferred[lane.demands.codes]
            gpus = np.maximum(trace.numbers("num_gpus"), 1.0)
            columns.append(time_s * gpus if name == "gpu_time_s" else time_s)
    if lane.changes_keys:
        return columns[0].copy(), np.arange(len(trace), dtype=np.int32)
    if not columns:
        return np.empty(0), np.arange(len(trace), dtype=np.int32)
    return np.empty(0), np.lexsort(columns[::-1]).astype(np.int32)


def new_room(lane: FastRun) -> free_gpus.Room:
    """Return the free GPUs of an empty cluster, with space for the spots of all gangs."""
    nodes, base, levels = lane.cluster.nodes, [], []
    slot = word = count = 0
    words, counts = [], []
    for pool in lane.pools:
        width, most = (len(pool.nodes) + 31) // 32, pool.gpus_per_node
        base += [slot, len(pool.nodes), most, word, count]
        gpus = np.array([nodes[node].gpus for node in pool.nodes])
        places = np.arange(len(gpus))
        sets = np.zeros((most + 1, width), np.int64)
        np.bitwise_or.at(sets, (gpus, places // 32), 1 << (places % 32))
        words.append(sets.ravel())
        counts.append(np.bincount(gpus, minlength=most + 1))
        levels.append(gpus)
        slot, word, count = slot + len(gpus), word + sets.size, count + most + 1
    bit = np.zeros(37, np.int64)
    for shift_bits in range(32):
        bit[(1 << shift_bits) % 37] = shift_bits
    spots = most_spots(lane.demands, lane.pools) * _starts_per_job(lane) + slot
    if lane.can_fail:
        spots += 4 * int(sum(gpus.sum() for gpus in levels)) + _MORE_STARTS
    return free_gpus.Room(
        np.concatenate(words),
        np.concatenate(counts).astype(np.int64),
        np.array([gpus.sum() for gpus in levels], np.int64),
        np.concatenate(levels).astype(np.int64),
        np.array(base, np.int64),
        bit,
        # Sized for the worst case: memory that is never written is never allocated.
        np.empty(spots, np.int32),
        np.empty(spots, np.int32),
        np.zeros(slot, np.int64),
        np.zeros(1, np.int64),
    )


def _starts_per_job(lane: FastRun) -> int:
    """Return the starts per job with space in the arrays: 1, 16 with failures, 64 with preemption.

    A run with more starts is left to the general simulator.
    """
    if lane.rule.preemption != "none":
        return 64
    return 16 if lane.can_fail else 1


def new_run(lane: FastRun, tables: Tables) -> loops.Run:
    """Return the state of a run before its begin, with space for its record."""
    jobs = len(lane.trace)
    stints = jobs * _starts_per_job(lane) + (_MORE_STARTS if lane.can_fail else 0)
    decisions = 2 * stints + 1 + (_NODE_EVENTS if lane.can_fail else 0)
    most = min(jobs, sum(node.gpus for node in lane.cluster.nodes)) + 1
    several = lane.rule.backfill == "first_fit"
    lanes = np.bincount(lane.demands.codes) if several else np.array([jobs])
    return loops.Run(  # type: ignore[call-arg]
        np.array([0] * 7 + [jobs], np.int64),
        np.empty(most, np.int32),
        *(np.empty(stints, np.int32) for _ in range(4)),
        np.empty(stints),
        np.empty(stints),
        np.empty(stints, np.int32),
        np.zeros(stints, np.int8),
        tables.key,
        # Without node events, at every instant at least one job arrives or ends.
        np.empty(decisions),
        np.empty(3 * decisions, np.int32),
        np.empty(jobs, np.int32),
        np.cumsum([0, *lanes[:-1]]),
        np.zeros(len(lanes), np.int64),
        np.zeros(len(lanes), np.int64),
    )


def new_queue(lane: FastRun, tables: Tables) -> reservation.Queue:
    """Return an empty queue with reservation; time limits count only if the rule reads them."""
    jobs, kinds = len(lane.trace), len(lane.demands.unique)
    running = min(jobs, sum(node.gpus for node in lane.cluster.nodes)) + 1
    limit_s = np.full(jobs, inf)
    if lane.rule.by_limit:
        given = lane.trace.numbers("time_limit_s", inf)
        limit_s = np.where(given > 0, given, inf)
    at = np.zeros(13, np.int64)
    at[[reservation.HEAD, reservation.BLOCKED, reservation.PROMISED]] = -1
    assert lane.estimates is not None, "a reservation without estimates"
    return reservation.Queue(
        at,
        np.zeros(1),
        lane.rule.depth,
        lane.rule.spare,
        tables.rates,
        lane.estimates.copy(),
        limit_s,
        np.empty(jobs, np.int32),
        np.cumsum([0, *np.bincount(lane.demands.codes)[:-1]]),
        np.zeros(kinds, np.int64),
        np.empty(jobs, np.int32),
        np.empty(running),
        np.empty(running, np.int32),
        np.empty(jobs),
        np.empty(jobs, np.int32),
        np.zeros(kinds, np.int64),
        np.zeros(kinds, np.int64),
        np.zeros(kinds, np.int64),
        np.zeros(kinds, np.int64),
        np.zeros(len(tables.jobs.pool), np.int64),
        np.zeros(jobs, np.int32),
    )


def new_order(lane: FastRun, tables: Tables) -> order.Order:
    """Return an empty preemption order, with arrays for all jobs of the run."""
    rule, types = lane.rule, lane.cluster.types
    jobs, kinds, pools = len(lane.trace), lane.demands.unique, lane.pools
    running = min(jobs, sum(node.gpus for node in lane.cluster.nodes)) + 1
    nominal = np.array(
        [types[pool.type_at].speed if pool.type_at >= 0 else 1.0 for pool in pools], np.float64
    )
    times = _new_times(lane, tables, nominal)
    lanes = _new_lanes(lane)
    restart_s = float(lane.conditions.overheads.restart_s)
    return order.Order(
        np.zeros(15, np.int64),
        np.full(1, inf),
        rule.preemption == "attained",
        times,
        _new_service(lane, running),
        _new_groups(lane, tables, times, running),
        lanes,
        rule.backfill == "none",
        rule.moves and sum(pool.type_at >= 0 for pool in pools) > 1,
        len(pools) == 1,
        restart_s,
        np.array([sum(1 << pool for pool in demand.pools) for demand in kinds], np.int64),
        tables.rates,
        nominal,
        tables.left,
        np.full(jobs, -1.0),
        np.zeros(order.KEY * (jobs + len(lanes.size) + 1)),
        np.zeros(jobs),
        np.zeros(jobs),
        np.zeros(jobs),
        np.full(jobs, -1, np.int32),
        np.zeros(jobs, np.int32),
        np.zeros(jobs, np.int32),
        np.zeros(jobs, np.int32),
        np.full(jobs, -1, np.int32),
        np.empty(64 * running, np.int32),
        np.empty(running, np.int32),
        np.empty(running, np.int32),
        np.empty(jobs),
    )


def _new_times(lane: FastRun, tables: Tables, nominal: Floats) -> order.Times:
    """Return the parameters of an order by remaining time, with space for links."""
    if lane.rule.preemption == "attained":
        return order.Times(*(np.zeros(0) for _ in range(9)))
    rates, jobs = tables.rates, tables.jobs
    # At the speed of the first pool; jobs that fit none never wait.
    scale = np.ones(len(lane.demands.unique))
    for kind, (first, end) in enumerate(pairwise(jobs.groups)):
        if first < end:
            scale[kind] = nominal[jobs.pool[first]] / rates[jobs.pool[first]]
    weight = np.where(lane.rule.key == ("gpu_time_s",), jobs.need, 1.0)
    pace = [
        max(round(float(rate * each * factor), 9), 1e-9)
        for each, factor in zip(scale, weight, strict=True)
        for rate in rates
    ]
    assert lane.estimates is not None, "an order by remaining time without estimates"
    links = [np.empty(len(lane.trace) * _starts_per_job(lane)) for _ in range(3)]
    pauses = [np.zeros(len(lane.trace)) for _ in range(2)]
    return order.Times(np.array(pace), scale, weight, lane.estimates.copy(), *pauses, *links)


def _new_groups(lane: FastRun, tables: Tables, times: order.Times, running: int) -> order.Groups:
    """Return the empty groups of running jobs."""
    pools, jobs = len(lane.pools), tables.jobs
    if lane.rule.preemption == "attained":
        count = (len(lane.rule.limits) + 1) * pools
        of, members = np.arange(count), [(0.0, at % pools) for at in range(count)]
    else:
        of, numbers = np.full(len(times.pace), -1), dict[tuple[float, int], int]()
        for kind, (first, end) in enumerate(pairwise(jobs.groups)):
            for pool in jobs.pool[first:end].tolist():
                key = float(times.pace[kind * pools + pool]), pool
                of[kind * pools + pool] = numbers.setdefault(key, len(numbers))
        members = list(numbers)
    width = 3 * running
    return order.Groups(
        width,
        of.astype(np.int32),
        np.array([pool for _, pool in members], np.int64),
        np.array([pace for pace, _ in members], np.float64),
        np.full(len(members), running),
        np.zeros(len(members), np.int64),
        np.empty(width * len(members), np.int32),
        np.full(len(members), -1),
        np.zeros(3 * len(members)),
    )


def _new_lanes(lane: FastRun) -> order.Lanes:
    """Return the empty lanes of waiting jobs: one per demand, or one if the first job blocks."""
    jobs = len(lane.trace)
    sizes = np.bincount(lane.demands.codes) if lane.rule.backfill != "none" else np.array([jobs])
    lanes = len(sizes)
    return order.Lanes(
        np.empty(jobs, np.int32),
        np.cumsum([0, *sizes[:-1]]),
        np.zeros(lanes, np.int64),
        np.zeros(lanes),
        np.full(lanes, -1, np.int32),
        np.full(4 * lanes, -1),
        np.zeros(lanes, np.int8),
    )


def _new_service(lane: FastRun, running: int) -> order.Service:
    """Return the empty state of an order by attained service, with limits in s per demand."""
    rule, queues = lane.rule, len(lane.rule.limits)
    jobs = len(lane.trace) if rule.preemption == "attained" else 0
    limits = [
        limit / (demand.replicas if rule.per_gpu else 1)
        for demand in lane.demands.unique
        for limit in rule.limits
    ]
    return order.Service(
        queues,
        running,
        rule.key == ("arrival_s",),
        np.array(limits, np.float64),
        np.zeros(jobs),
        np.zeros(jobs),
        np.zeros(jobs, np.int32),
        np.zeros(queues + 1, np.int64),
        np.empty(queues * jobs),
        np.full(queues * jobs, -1, np.int32),
        np.zeros(queues, np.int64),
        np.empty(queues * running, np.int32),
    )


def most_spots(demands: Demands, pools: Sequence[NodePool]) -> int:
    """Return the maximum total of nodes over all gangs, if each job starts once."""
    most = max(len(pool.nodes) for pool in pools)
    each = np.array([min(demand.replicas, most) for demand in demands.unique])
    return int((np.bincount(demands.codes) * each).sum())
