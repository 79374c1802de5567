"""Room for one job's demand over time: replicas that fit into the free resources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from sim.contract import Demand
from sim.metrics.jobs import Mask
from sim.metrics.steps import Floats, Ints, accumulate
from sim.metrics.timeline import Timeline

_UNLIMITED: Final = 1_000_000.0
"""Replicas of a demand that no resource limits."""
_ROUNDING: Final = 1e-6
_MAX_LEVELS: Final = 64


@dataclass(frozen=True, eq=False)
class RoomNeeds:
    """Resources that a job needs in order to run.

    Parameters
    ----------
    demand : Demand
        Demand per replica.
    need : int
        Replicas that suffice: fewer than requested if the job may be resized.
    kinds : array of int, one per node
        Number of the GPU type of each node that it may use; -1 = other nodes.
    mixed : bool
        Whether its replicas may be on several types.
    servers : RoomNeeds or None
        Needs of its parameter servers.
    """

    demand: Demand
    need: int
    kinds: Ints
    mixed: bool
    servers: RoomNeeds | None = None

    @property
    def gpus(self) -> int:
        """GPUs that suffice; replicas of a demand without GPUs."""
        return self.need * max(self.demand.gpus, 1)

    @property
    def counts_types_together(self) -> bool:
        """Whether nodes of all its types count as one set."""
        return self.mixed or not self.demand.gpus


class RoomOverTime(NamedTuple):
    """Room for a job as step functions of time: each value holds until the next instant.

    Parameters
    ----------
    t_s : array, seconds
        Instants.
    fits, without_later, when_empty, by_gpus : array of bool
        Whether the job fits: now; if jobs submitted later held nothing; if the nodes that are up
        were empty; now, counting only GPUs.
    compact : array of bool
        Whether the job fits on the fewest nodes that could ever hold it.
    free, anywhere, there : array
        GPUs free on nodes that it may use; free on all nodes; and of the nodes that it may use if
        they were empty. Replicas for demands without GPUs.
    replicas : array
        Replicas that fit into free GPUs, cores and memory: on one type, or on all if it may mix
        types.
    most : array
        Most replicas that one node could hold; -1 for demands without GPUs.
    """

    t_s: Floats
    fits: Mask
    without_later: Mask
    when_empty: Mask
    by_gpus: Mask
    compact: Mask
    free: Floats
    anywhere: Floats
    there: Floats
    replicas: Floats
    most: Floats

    def sample_at(self, t_s: Floats) -> RoomOverTime:
        """Return the room at other instants, none of which may be before the first one."""
        rows = np.searchsorted(self.t_s, t_s, "right") - 1
        return RoomOverTime._make([t_s, *(values[rows] for values in self[1:])])


class _Events(NamedTuple):
    """Node events in order of (node, time): amounts held after each event.

    One row per node and instant.
    """

    t_s: Floats
    node: Ints
    used: Sequence[Floats]
    early: Sequence[Floats]
    down: Mask
    first: Mask


def room(line: Timeline, wanted: RoomNeeds, job: int, window: tuple[float, float]) -> RoomOverTime:
    """Return the room for one job's needs, over a window without a grant of this job.

    Parameters
    ----------
    line : Timeline
        The run.
    wanted : RoomNeeds
        Needs of the job.
    job : int
        Row of the job; later rows were submitted later.
    window : (float, float), seconds
        Begin and end.

    Notes
    -----
    A node holds min(floor(free GPUs / GPUs per replica), the same for cores and memory) replicas, 0
    if it is down; a type holds the sum of its nodes. The job fits if one type holds the replicas
    needed, or all types together for demands that may mix types or need no GPUs. Workers and
    parameter servers are checked separately, so room for each does not prove room for both.
    """
    events = _events(line, job, window)
    total = _room_for(line, wanted, events, window[0])
    if wanted.servers is None:
        return total
    servers = _room_for(line, wanted.servers, events, window[0])
    t = np.union1d(total.t_s, servers.t_s)
    total, servers = total.sample_at(t), servers.sample_at(t)
    fits = total.fits & servers.fits
    return total._replace(
        fits=fits,
        without_later=total.without_later & servers.without_later,
        when_empty=total.when_empty & servers.when_empty,
        compact=total.compact & fits,
    )


def could_ever_fit(line: Timeline, wanted: RoomNeeds) -> bool:
    """Return True if the empty cluster, with every node up, has room for the job."""
    empty = _slots(_caps(line), wanted.demand, wanted.kinds >= 0)
    has_enough = any(empty[group].sum() >= wanted.need for group in _groups(wanted))
    return has_enough and (wanted.servers is None or could_ever_fit(line, wanted.servers))


def _groups(wanted: RoomNeeds) -> list[Mask]:
    """Return the node sets of which one must hold all replicas: one per GPU type, or all."""
    usable = wanted.kinds >= 0
    return (
        [usable]
        if wanted.counts_types_together
        else [wanted.kinds == kind for kind in np.unique(wanted.kinds[usable]).tolist()]
    )


def has_spread_jobs(line: Timeline, gpus: int) -> tuple[bool, bool]:
    """Return whether jobs of this run with `gpus` GPUs exist, and whether any was spread out.

    Spread out: on more nodes than necessary, or on several types.

    Notes
    -----
    Fewest nodes = ceil(GPUs / GPUs of the largest node of the type). Forked jobs, whose copies are
    on separate nodes on purpose, are left out.
    """
    frame, largest = line.result.placements, _largest(line)
    is_counted = (
        (line.result.segments["gpus"].to_numpy() == gpus)[line.segment]
        & (line.held_gpus > 0)
        & (line.node < len(line.size))
    )
    forked = np.zeros(len(line.t0), np.bool_)
    forked[line.segment[frame["gang"].to_numpy() > 0]] = True
    is_counted &= ~forked[line.segment]
    segment, kind = line.segment[is_counted], line.node_type[line.node[is_counted]]
    if not len(segment):
        return False, False
    nodes = np.bincount(segment)
    fewest_nodes = np.zeros(len(nodes))
    np.maximum.at(fewest_nodes, segment, np.ceil(gpus / largest[kind]))
    used = np.flatnonzero(nodes)
    return True, bool((nodes[used] > fewest_nodes[used]).any())


def _largest(line: Timeline) -> Floats:
    """Return the GPUs of the largest node per type, at least 1; the last is for CPU nodes."""
    largest = np.ones(len(line.cluster.types) + 1)
    np.maximum.at(largest, line.node_type[:-1], [float(node.gpus) for node in line.cluster.nodes])
    return largest


def _caps(line: Timeline) -> tuple[Floats, Floats, Floats]:
    """Return GPUs, cores and memory of each node."""
    nodes = line.cluster.nodes
    columns = (
        [float(getattr(node, name)) for node in nodes] for name in ("gpus", "cpus", "mem_gb")
    )
    gpus, cpus, mem_gb = (np.array(column, np.float64) for column in columns)
    return gpus, cpus, mem_gb


def _events(line: Timeline, job: int, window: tuple[float, float]) -> _Events:
    """Return the node events in a window: all holdings, earlier jobs' holdings, outages."""
    t0, t1 = window
    in_window = np.flatnonzero(
        (line.begin < t1) & (line.end > t0) & (line.end > line.begin) & (line.node < len(line.size))
    )
    node, begin, end = line.down
    is_outage = (begin < t1) & (end > t0)
    times = np.concatenate(
        (
            np.maximum(line.begin[in_window], t0),
            np.maximum(begin[is_outage], t0),
            line.end[in_window],
            end[is_outage],
        )
    )
    nodes = np.tile(np.concatenate((line.node[in_window], node[is_outage])), 2)
    order = np.lexsort((times, nodes))
    frame = line.result.placements
    count = frame["count"].to_numpy(np.float64)[in_window]
    early = np.concatenate((line.holder[in_window] < job, np.zeros(int(is_outage.sum()), np.bool_)))
    amounts = [
        np.concatenate(
            (count * frame[name].to_numpy(np.float64)[in_window], np.zeros(int(is_outage.sum())))
        )
        for name in ("gpus", "cpus", "mem_gb")
    ]
    down_flags = np.concatenate((np.zeros(len(in_window)), np.ones(int(is_outage.sum()))))
    times, nodes = times[order], nodes[order]
    is_last = np.append((times[1:] != times[:-1]) | (nodes[1:] != nodes[:-1]), True)[: len(times)]

    def held_after(amount: Floats) -> Floats:
        """Return the amounts held after each event, from the amounts of the holdings."""
        # Each node's changes sum to 0, so one running sum over all nodes is right within each
        # node.
        return np.asarray(np.cumsum(np.concatenate((amount, -amount))[order])[is_last])

    used, by_early = (
        [held_after(amount) for amount in amounts],
        [held_after(np.where(early, amount, 0.0)) for amount in amounts],
    )
    nodes = nodes[is_last]
    return _Events(
        times[is_last],
        nodes,
        used,
        by_early,
        held_after(down_flags) > 0,
        np.append(True, nodes[1:] != nodes[:-1])[: len(nodes)],
    )


def _room_for(line: Timeline, wanted: RoomNeeds, events: _Events, t0: float) -> RoomOverTime:
    """Return the room for one demand, workers or servers, from the events on all nodes."""
    caps, demand, kinds = _caps(line), wanted.demand, wanted.kinds
    event_kinds = kinds[events.node]
    empty = _slots(caps, demand, kinds >= 0)
    node_caps = [cap[events.node] for cap in caps]
    is_usable = (event_kinds >= 0) & ~events.down
    now = _slots(
        [cap - used for cap, used in zip(node_caps, events.used, strict=True)], demand, is_usable
    )
    gpus = _slots([node_caps[0] - events.used[0]], demand, is_usable) if demand.gpus else now
    slots_by_early = _slots(
        [cap - used for cap, used in zip(node_caps, events.early, strict=True)], demand, is_usable
    )
    cap = _slots(node_caps, demand, is_usable)
    groups = _groups(wanted)
    columns: list[Floats] = []

    def add_step_function(after: Floats, before: Floats) -> None:
        """Add a sum over nodes to the columns: its first value, and its change at each event.

        `after`: value on the node after each event; `before`: value on each node before the first
        event.
        """
        previous = (
            np.where(events.first, before[events.node], np.roll(after, 1)) if len(after) else after
        )
        columns.append(np.concatenate(([before.sum()], after - previous)))

    for group in groups:
        inside = group[events.node]
        for values, before in (
            (now, empty),
            (slots_by_early, empty),
            (cap, empty),
            (gpus, _slots(caps[:1], demand, kinds >= 0) if demand.gpus else empty),
        ):
            add_step_function(np.where(inside, values, 0.0), np.where(group, before, 0.0))
    raw_empty = caps[0] if demand.gpus else empty
    raw = np.where(events.down, 0.0, node_caps[0] - events.used[0]) if demand.gpus else now
    allowed = (event_kinds >= 0, kinds >= 0)
    add_step_function(np.where(allowed[0], raw, 0.0), np.where(allowed[1], raw_empty, 0.0))
    add_step_function(raw, raw_empty)
    add_step_function(
        np.where(events.down | ~allowed[0], 0.0, raw_empty[events.node]),
        np.where(allowed[1], raw_empty, 0.0),
    )
    pieces = _pieces(wanted, empty, groups) if demand.gpus else []
    levels = _levels(float(empty.max(initial=0.0))) if demand.gpus else []
    for group, at_least, _ in pieces:
        add_step_function(
            (group[events.node] & (now >= at_least)).astype(np.float64),
            (group & (empty >= at_least)).astype(np.float64),
        )
    for at_least in levels:
        add_step_function(
            (now >= at_least).astype(np.float64), (empty >= at_least).astype(np.float64)
        )
    t, sums = accumulate(np.concatenate(([t0], events.t_s)), columns)
    group_columns = 4 * len(groups)
    best_groups = [
        np.max([*sums[index:group_columns:4]], axis=0) if groups else np.zeros(len(t))
        for index in range(4)
    ]
    piece_columns = sums[group_columns + 3 :]
    counts, ladder = piece_columns[: len(pieces)], piece_columns[len(pieces) :]
    fits, without_later, when_empty, by_gpus = (values >= wanted.need for values in best_groups)
    compact = fits & _compact_mask(pieces, counts, len(t)) if demand.gpus else fits
    most = np.full(len(t), 0.0 if demand.gpus else -1.0)
    for at_least, count in zip(levels, ladder, strict=True):
        most[count > 0] = at_least
    return RoomOverTime(
        t,
        fits,
        without_later,
        when_empty,
        by_gpus,
        compact,
        sums[group_columns],
        sums[group_columns + 1],
        sums[group_columns + 2],
        best_groups[0],
        most,
    )


def _slots(free: Sequence[Floats], demand: Demand, usable: Mask) -> Floats:
    """Return the replicas per node that fit into free amounts; 0 on nodes not usable."""
    slots = np.full(len(usable), _UNLIMITED)
    for amount, per in zip(free, (demand.gpus, demand.cpus, demand.mem_gb), strict=False):
        if per:
            slots = np.minimum(slots, np.floor((amount + _ROUNDING) / per))
    return np.where(usable, np.maximum(slots, 0.0), 0.0)


def _levels(largest: float) -> list[float]:
    """Return up to 64 whole numbers from 1 to the largest, ascending; none if that is 0."""
    return (
        [
            float(size)
            for size in np.unique(
                np.linspace(1, largest, min(_MAX_LEVELS, int(largest))).astype(np.int64)
            )
        ]
        if largest
        else []
    )


def _pieces(
    wanted: RoomNeeds, empty: Floats, groups: Sequence[Mask]
) -> list[tuple[Mask, float, float]]:
    """Return two conditions per node set for a fit on the fewest nodes: (nodes, size, count).

    At least `count` of the nodes must have room for `size` replicas each: first the nodes that are
    filled, then these and the node for the rest.
    """
    pieces = []
    for group in groups:
        largest = float(empty[group].max(initial=0.0))
        full_nodes, rest = divmod(wanted.need, largest) if largest else (np.inf, 0.0)
        pieces.append((group, largest or 1.0, full_nodes))
        pieces.append((group, rest or largest or 1.0, full_nodes + (rest > 0)))
    return pieces


def _compact_mask(
    pieces: Sequence[tuple[Mask, float, float]], counts: Sequence[Floats], length: int
) -> Mask:
    """Return a boolean per instant: whether a job fits on the fewest nodes that can hold it.

    `pieces` are the conditions of `_pieces`, `counts` the nodes that have room for the size of each
    at every instant. Both conditions of any one node set must have enough nodes.
    """
    is_compact = np.zeros(length, np.bool_)
    conditions = [count >= nodes for (_, _, nodes), count in zip(pieces, counts, strict=True)]
    for whole, rest in zip(conditions[::2], conditions[1::2], strict=True):
        is_compact |= whole & rest
    return is_compact
