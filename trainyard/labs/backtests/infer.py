"""Proposals from a recording: outages, missing machines, hidden load, limits, time limits.

Each has its evidence, and none is applied automatically.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

import numpy as np

from sim.cluster import Change, Cluster
from sim.errors import TrainyardError
from sim.host_lists import expand_hosts
from sim.trace import Trace
from trainyard.formatting import RunClock, duration, plural
from trainyard.labs.backtests.limits import propose_limits, propose_time_limit
from trainyard.labs.backtests.proposal import (
    CAPACITY,
    HIDDEN,
    MAINTENANCE,
    MAX_NAMED,
    MIN_CASES,
    NEAR,
    NODES,
    SHARE,
    Proposal,
)
from trainyard.labs.backtests.record import DAY_S, Floats, Mask, RecordedJobs, capacity, use
from trainyard.study.scenario import Scenario

PERSISTENT_S: Final = 60.0
"""Time from which room for a waiting job counts as unused: two backfill intervals."""
_AROUND_S: Final = 12 * 3600.0
_UNSEEN_S: Final = 24 * 3600.0
_GAPS: Final = 10.0
"""Factor over the usual gap from which a gap is an outage."""
_MAX_UNKNOWN: Final = 0.05
_SPECIAL_REQUESTS: Final = (
    "constraint",
    "gres",
    "exclusive",
    "reservation",
    "dependency",
    "begin_s",
    "nodes",
    "tasks_per_node",
)
"""Columns of requests other than amounts."""


def proposals(trace: Trace, scenario: Scenario) -> tuple[Proposal, ...]:
    """Return the proposals that a recording supports.

    Hidden load, missing capacity, maintenance, drained nodes, limits of owners, time limit.

    Parameters
    ----------
    trace : Trace
        The jobs.
    scenario : Scenario
        Described machines and policy.
    """
    record, cluster = RecordedJobs.from_trace(trace), scenario.cluster
    clock = RunClock(trace.epoch)
    idle = unused_room(record, trace, cluster)
    candidates = [
        _propose_hidden_load(idle, record, cluster),
        _propose_less_capacity(idle, record, cluster, clock),
        _propose_maintenance(record, cluster, clock),
        _propose_drained_nodes(record, trace, cluster, clock),
        *propose_limits(record, trace, cluster),
        propose_time_limit(record, trace, scenario),
    ]
    return tuple(one for one in candidates if one is not None)


@dataclass(frozen=True, eq=False)
class UnusedRoom:
    """Intervals of at least `PERSISTENT_S` with enough free GPUs for a waiting job.

    Parameters
    ----------
    from_s, to_s : array, seconds
        Start and end of each piece, from one change to the next.
    free : array
        GPUs or cores free in each piece.
    waiting_s : float, seconds
        Total time with a waiting job.
    """

    from_s: Floats
    to_s: Floats
    free: Floats
    waiting_s: float

    @property
    def share(self) -> float:
        """Share of the time with waiting jobs; 0 if none waited."""
        return float((self.to_s - self.from_s).sum()) / self.waiting_s if self.waiting_s else 0.0


def unused_room(record: RecordedJobs, trace: Trace, cluster: Cluster) -> UnusedRoom:
    """Return intervals with room for a waiting job that stayed unused.

    Notes
    -----
    Only amounts count, in the unit of the recording. A job that fits on one node certainly fits if
    more is free in its partition than nodes x (size - 1), the most that can be left over with too
    little on each node. Grants of other partitions with shared nodes count as if on these nodes.
    Jobs with requests other than amounts are left out (features, GPU types if there are several, a
    task layout, more memory per unit than nodes have). The result is empty for clusters with dated
    changes, whose capacity is known, and if more than 5 % of the jobs have no recorded start.
    """
    unknown = 1 - record.started.mean() > _MAX_UNKNOWN
    if unknown or cluster.changes or not np.isfinite(capacity(cluster, record.unit)):
        return UnusedRoom(np.zeros(0), np.zeros(0), np.zeros(0), 0.0)
    sizes = _sizes(record, cluster)
    names = list(dict.fromkeys(map(str, record.partition)))
    codes = np.array([names.index(str(name)) for name in record.partition])
    admits = [
        np.array(
            [not one.partitions or not name or name in one.partitions for one in cluster.nodes]
        )
        for name in names
    ]
    parts = [
        _PartitionFacts(
            float(sizes[mine].sum()),
            int((sizes[mine] > 0).sum()),
            [at for at, other in enumerate(admits) if bool((mine & other).any())],
        )
        for mine in admits
    ]
    candidate = record.started & (record.size > 0) & (record.size <= sizes.max(initial=0.0))
    candidate &= ~_has_special_request(trace, cluster, record, sizes)
    return _sweep_unused(record, candidate, codes, parts)


def _has_special_request(
    trace: Trace, cluster: Cluster, record: RecordedJobs, node_sizes: Floats
) -> Mask:
    """Return the mask of jobs with requests beyond an amount of GPUs or cores.

    Features, task layouts, GPU types if the cluster has several, GPUs in a recording of cores, or
    more memory per GPU or core than the node with the least. `node_sizes` are the GPUs or cores of
    each node.
    """
    several = len({one.gpu_type for one in cluster.nodes if one.gpus}) > 1
    has_request = np.zeros(len(trace), np.bool_)
    for column in (*_SPECIAL_REQUESTS, *(("gpu_type", "gpu_types_allowed") if several else ())):
        if trace.has(column):
            has_request |= trace.frame[column].notna().to_numpy()
    if record.unit == "cores":
        has_request |= trace.numbers("num_gpus") > 0
    mem_gb = np.array([one.mem_gb for one in cluster.nodes])
    has_units = node_sizes > 0
    per_unit = (
        float((mem_gb[has_units] / node_sizes[has_units]).min()) if has_units.any() else math.inf
    )
    return np.asarray(has_request | (trace.numbers("mem_gb", 0.0) > per_unit * record.size))


@dataclass
class _PartitionFacts:
    """A partition: capacity, nodes, partitions with shared nodes, and its waiting jobs."""

    total: float
    nodes: int
    shares: list[int]
    waiting: list[tuple[float, int]] = field(default_factory=list)


def _sweep_unused(
    record: RecordedJobs, candidate: Mask, codes: np.ndarray, parts: Sequence[_PartitionFacts]
) -> UnusedRoom:
    """Sweep over all events and return the intervals of unused room."""
    started = np.flatnonzero(record.started)
    events = sorted(
        [
            *((record.end_s[job], 0, job) for job in started),
            *((record.start_s[job], 1, job) for job in started),
            *((record.submit_s[job], 2, job) for job in np.flatnonzero(candidate)),
        ]
    )
    held, gone, count = [0.0] * len(parts), set[int](), 0
    spells: list[list[tuple[float, float, float]]] = []
    before_s, waiting_s = math.inf, 0.0
    for at_s, kind, job in events:
        if at_s > before_s and count:
            waiting_s += at_s - before_s
            free = max(_free_for_smallest(part, gone, held) for part in parts)
            if free > 0 and not (spells and spells[-1][-1][1] == before_s):
                spells.append([])
            if free > 0:
                spells[-1].append((before_s, at_s, free))
        before_s, code = at_s, codes[job]
        waits = candidate[job] and record.start_s[job] > record.submit_s[job]
        if kind == 2 and waits:
            heappush(parts[code].waiting, (float(record.size[job]), int(job)))
            count += 1
        elif kind == 1:
            held[code] += record.size[job]
            if waits:
                gone.add(int(job))
                count -= 1
        elif kind == 0:
            held[code] -= record.size[job]
    long = [one for one in spells if one[-1][1] - one[0][0] >= PERSISTENT_S]
    table = np.array([piece for one in long for piece in one], np.float64).reshape(-1, 3)
    return UnusedRoom(table[:, 0], table[:, 1], table[:, 2], waiting_s)


def _free_for_smallest(part: _PartitionFacts, gone: set[int], held: Sequence[float]) -> float:
    """Return the free amount of a partition if its smallest waiting job fits, else 0.

    Removes jobs in `gone` from the top of the heap of waiting jobs.
    """
    while part.waiting and part.waiting[0][1] in gone:
        heappop(part.waiting)
    if not part.waiting:
        return 0.0
    free = part.total - sum(held[at] for at in part.shares)
    return free if free > part.nodes * (part.waiting[0][0] - 1) else 0.0


# -- proposals
# --------------------------------------------------------------------------------------------------


def _propose_hidden_load(
    idle: UnusedRoom, record: RecordedJobs, cluster: Cluster
) -> Proposal | None:
    """Propose to take away nodes that stayed free while a job waited that would fit.

    Takes away the last nodes, up to the median free amount. None if this was less than `SHARE` of
    the time with waiting jobs.
    """
    if idle.share < SHARE:
        return None
    lengths = idle.to_s - idle.from_s
    floor = _weighted_median(idle.free, lengths)
    nodes = _last_nodes(cluster, record.unit, floor)
    if not nodes:
        return None
    hours = np.floor(idle.from_s % DAY_S / 3600)
    by_hour = [
        _weighted_median(idle.free[hours == hour], lengths[hours == hour])
        for hour in np.unique(hours)
    ]
    return Proposal(
        HIDDEN,
        f"Others use about {floor:,.0f} {record.unit} ({plural(len(nodes), 'node')}) that the trace"
        " does not show.",
        f"In {100 * idle.share:.0f} % of the time with waiting jobs, one of them would have fitted"
        f" into what was free; the median by hour of the day is"
        f" {min(by_hour):,.0f} to {max(by_hour):,.0f} {record.unit}.",
        (Change(0.0, nodes, present=False),),
    )


def _propose_less_capacity(
    idle: UnusedRoom, record: RecordedJobs, cluster: Cluster, clock: RunClock
) -> Proposal | None:
    """Propose fewer nodes for half days with low peak use and waiting jobs.

    Takes away the last nodes in these half days. None without such half days, or if fitting jobs
    waited for less than `SHARE` of the time.
    """
    if idle.share < SHARE:
        return None
    total = capacity(cluster, record.unit)
    t_s, level = use(record, record.start_s, record.end_s, record.started)
    edges = np.arange(0.0, float(record.submit_s.max()) + _AROUND_S, _AROUND_S)
    changes: list[Change] = []
    lows: list[tuple[float, float]] = []
    away: tuple[int, ...] = ()
    for at_s in edges:
        near = (t_s >= at_s - _AROUND_S) & (t_s < at_s + 2 * _AROUND_S)
        most = float(level[near].max(initial=0.0))
        waited = bool(((idle.from_s < at_s + _AROUND_S) & (idle.to_s > at_s)).any())
        now = (
            _last_nodes(cluster, record.unit, total - most)
            if waited and most < NEAR * total
            else ()
        )
        if now:
            lows.append((most, at_s))
        if back := tuple(sorted(set(away) - set(now))):
            changes.append(Change(float(at_s), back, present=True))
        if gone := tuple(sorted(set(now) - set(away))):
            changes.append(Change(float(at_s), gone, present=False))
        away = now
    if not lows:
        return None
    least, when_s = min(lows)
    return Proposal(
        CAPACITY,
        f"Fewer nodes were there than described: in {plural(len(lows), 'half day')} of"
        f" {len(edges):,}.",
        f"Around {clock.format(when_s)} never more than {least:,.0f} of {total:,.0f} {record.unit}"
        " were in use, within 12 hours before and after, while jobs waited despite free capacity.",
        tuple(changes),
    )


def _propose_maintenance(
    record: RecordedJobs, cluster: Cluster, clock: RunClock
) -> Proposal | None:
    """Propose an outage of all nodes for gaps without a start while jobs waited.

    Gaps during which other jobs ran on are named without an outage. None without any gap.
    """
    start_s = np.sort(record.start_s[record.started])
    gaps = np.diff(start_s)
    if len(gaps) < MIN_CASES:
        return None
    usual_s = max(float(np.percentile(gaps, 99)), PERSISTENT_S)
    gaps_found = []
    for at in np.flatnonzero(gaps > _GAPS * usual_s):
        from_s, to_s = float(start_s[at]), float(start_s[at + 1])
        waited = record.started & (record.submit_s < to_s - usual_s) & (record.start_s >= to_s)
        if waited.any():
            # The gap begins with the first job that waited through it.
            began_s = max(from_s, float(record.submit_s[waited].min()))
            if to_s - began_s > _GAPS * usual_s:
                gaps_found.append((began_s, to_s, int(waited.sum())))
    if not gaps_found:
        return None
    changes: list[Change] = []
    everything = tuple(range(len(cluster.nodes)))
    for from_s, to_s, _ in gaps_found:
        running = record.started & (record.start_s < to_s) & (record.end_s > from_s)
        last_s = float(record.end_s[running & (record.end_s < to_s)].max(initial=from_s))
        if not (running & (record.end_s >= to_s)).any() and last_s < to_s:
            changes += [
                Change(last_s, everything, present=False),
                Change(to_s, everything, present=True),
            ]
    spans = ", ".join(clock.span(a, b) for a, b, _ in gaps_found[:MAX_NAMED])
    rest = "" if changes else " Other jobs continued to run, which cannot be simulated."
    return Proposal(
        MAINTENANCE,
        f"Nothing was started for {duration(max(b - a for a, b, _ in gaps_found))} or less in"
        f" {plural(len(gaps_found), 'gap')}: maintenance, or an outage of the scheduler.",
        f"{spans}: up to {plural(max(count for *_, count in gaps_found), 'job')} waited; 99 % of"
        " the"
        f" gaps are below {duration(usual_s)}.{rest}",
        tuple(changes),
    )


def _propose_drained_nodes(
    record: RecordedJobs, trace: Trace, cluster: Cluster, clock: RunClock
) -> Proposal | None:
    """Propose downtime of nodes that ran no job while fitting jobs waited.

    None without node lists in the trace, or without such a node.
    """
    if not trace.has("node_list"):
        return None
    places = {node.name: at for at, node in enumerate(cluster.nodes)}
    sizes = _sizes(record, cluster)
    spans_by_node: dict[int, list[tuple[float, float]]] = {}
    texts = trace.frame["node_list"].astype(object)
    for job in np.flatnonzero(record.started & texts.notna().to_numpy()):
        try:
            names = expand_hosts(str(texts.iloc[job]), "node_list")
        except TrainyardError:
            continue  # a list in another format names no node of this cluster
        for name in names:
            if name in places:
                spans_by_node.setdefault(places[name], []).append(
                    (float(record.start_s[job]), float(record.end_s[job]))
                )
    changes: list[Change] = []
    spans_text: list[str] = []
    for node, spans in sorted(spans_by_node.items()):
        for from_s, to_s in _long_gaps(spans):
            waited = (
                record.started
                & (record.size <= sizes[node])
                & (record.submit_s < to_s)
                & (record.start_s > from_s + PERSISTENT_S)
                & (record.wait_s > PERSISTENT_S)
            )
            if waited.any():
                changes += [
                    Change(from_s, (node,), present=False),
                    Change(to_s, (node,), present=True),
                ]
                spans_text.append(f"{cluster.nodes[node].name} {clock.span(from_s, to_s)}")
    if not changes:
        return None
    more = f" and {len(spans_text) - MAX_NAMED:,} more" if len(spans_text) > MAX_NAMED else ""
    return Proposal(
        NODES,
        f"Nodes were drained or down: {plural(len(spans_text), 'time')}.",
        f"No job was seen on {', '.join(spans_text[:MAX_NAMED])}{more}, while jobs waited that"
        " would"
        " have fitted.",
        tuple(changes),
    )


def _long_gaps(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the gaps between the jobs of a node that are far longer than usual."""
    gaps, reach = [], -math.inf
    for from_s, to_s in sorted(spans):
        if math.isfinite(reach):
            gaps.append((reach, max(from_s, reach)))
        reach = max(reach, to_s)
    usual_s = float(np.median([b - a for a, b in gaps])) if gaps else 0.0
    return [(a, b) for a, b in gaps if b - a > max(_UNSEEN_S, _GAPS * usual_s)]


def _sizes(record: RecordedJobs, cluster: Cluster) -> Floats:
    """Return the GPUs or cores of each node, in the unit of the recording."""
    return np.array(
        [one.gpus if record.unit == "GPUs" else one.cpus for one in cluster.nodes], np.float64
    )


def _last_nodes(cluster: Cluster, unit: str, amount: float) -> tuple[int, ...]:
    """Return indices of nodes, from the last, that hold at most `amount` together; never 0.

    Node 0 always stays, and a node that is too large is skipped. Ascending.
    """
    nodes, remaining = [], amount
    for at in reversed(range(1, len(cluster.nodes))):
        node = cluster.nodes[at]
        size = node.gpus if unit == "GPUs" else node.cpus
        if 0 < size <= remaining:
            nodes.append(at)
            remaining -= size
    return tuple(sorted(nodes))


def _weighted_median(values: Floats, weights: Floats) -> float:
    """Return the median of values by weight."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])
