"""Room for one demand over time: how much of it the free GPUs, cores and memory of the nodes it may
use could hold, and in which pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from sim.contract import Demand
from sim.metrics.jobs import Mask
from sim.metrics.steps import Floats, Ints, accumulate
from sim.metrics.timeline import Timeline

_PLENTY: Final = 1_000_000.0
"""Replicas of a demand that asks for nothing which its nodes limit."""
_ROUNDING: Final = 1e-6
_MOST_LEVELS: Final = 64


@dataclass(frozen=True, eq=False)
class RoomNeeds:
    """What a job needs in order to run.

    Parameters
    ----------
    demand : Demand
        Per replica.
    need : int
        Replicas that suffice: fewer than it asked for if it may be resized.
    kinds : array of int, one per node
        A number per GPU type on nodes that it may use, -1 elsewhere.
    mixed : bool
        Whether its replicas may be on several types.
    servers : RoomNeeds or None
        The same of its parameter servers.
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
    def together(self) -> bool:
        """Whether nodes of all its types count as one set."""
        return self.mixed or not self.demand.gpus


class RoomOverTime(NamedTuple):
    """Step functions of time: each value holds from its instant to the next.

    Parameters
    ----------
    t_s : array, seconds
        Instants.
    fits, without_later, when_empty, by_gpus : array of bool
        Whether there is room for it: as it is; if jobs submitted later held nothing; if nobody held
        anything on the nodes that are up; as it is, if GPUs were all it asked for.
    compact : array of bool
        Whether there is room for it on as few nodes as could ever hold it.
    free, anywhere, there : array
        GPUs free on nodes that it may use, free on all nodes, and on nodes that it may use if
        nobody held anything. For demands of cores, replicas.
    replicas : array
        Those that the free GPUs, with the cores and memory beside them, could hold: on one type, or
        on all if it may mix them.
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

    def at(self, t_s: Floats) -> RoomOverTime:
        """Return the same at other instants, none before the first one."""
        rows = np.searchsorted(self.t_s, t_s, "right") - 1
        return RoomOverTime._make([t_s, *(values[rows] for values in self[1:])])


class _Events(NamedTuple):
    """What holds and leaves nodes, in order of (node, time); one row per node and instant, with
    what is held after it.
    """

    t_s: Floats
    node: Ints
    used: Sequence[Floats]
    early: Sequence[Floats]
    down: Mask
    first: Mask


def room(line: Timeline, wanted: RoomNeeds, job: int, window: tuple[float, float]) -> RoomOverTime:
    """Return the room for what one job needs, over a window in which it holds nothing.

    Parameters
    ----------
    line : Timeline
        The run.
    wanted : RoomNeeds
        What the job needs.
    job : int
        Its row; rows after it were submitted later.
    window : (float, float), seconds
        From when to when.

    Notes
    -----
    A node holds min(floor(free GPUs / GPUs per replica), the same for cores and memory) replicas, 0
    if it is down; a type holds the sum of its nodes. There is room if one type holds the replicas
    needed, or all together for demands that may mix types or ask for no GPUs. Workers and parameter
    servers are looked at one by one, so that room for each does not prove room for both.
    """
    events = _events(line, job, window)
    found = _of(line, wanted, events, window[0])
    if wanted.servers is None:
        return found
    beside = _of(line, wanted.servers, events, window[0])
    t = np.union1d(found.t_s, beside.t_s)
    found, beside = found.at(t), beside.at(t)
    fits = found.fits & beside.fits
    return found._replace(
        fits=fits,
        without_later=found.without_later & beside.without_later,
        when_empty=found.when_empty & beside.when_empty,
        compact=found.compact & fits,
    )


def ever(line: Timeline, wanted: RoomNeeds) -> bool:
    """Return whether the empty cluster, with every node up, has room for it."""
    empty = _slots(_caps(line), wanted.demand, wanted.kinds >= 0)
    enough = any(empty[group].sum() >= wanted.need for group in _groups(wanted))
    return enough and (wanted.servers is None or ever(line, wanted.servers))


def _groups(wanted: RoomNeeds) -> list[Mask]:
    """Return the sets of nodes of which one alone must hold all replicas."""
    usable = wanted.kinds >= 0
    return (
        [usable]
        if wanted.together
        else [wanted.kinds == kind for kind in np.unique(wanted.kinds[usable]).tolist()]
    )


def spreads(line: Timeline, gpus: int) -> tuple[bool, bool]:
    """Tell of this run whether a job ever held just so many GPUs, and whether one did on more nodes
    than it had to, or on several types.

    Notes
    -----
    Fewest nodes = ceil(GPUs / GPUs of the largest node of the type). Forked jobs, whose copies are
    apart on purpose, are left aside.
    """
    frame, largest = line.result.placements, _largest(line)
    mine = (
        (line.result.segments["gpus"].to_numpy() == gpus)[line.segment]
        & (line.held_gpus > 0)
        & (line.node < len(line.size))
    )
    forked = np.zeros(len(line.t0), np.bool_)
    forked[line.segment[frame["gang"].to_numpy() > 0]] = True
    mine &= ~forked[line.segment]
    segment, kind = line.segment[mine], line.node_type[line.node[mine]]
    if not len(segment):
        return False, False
    nodes = np.bincount(segment)
    fewest = np.zeros(len(nodes))
    np.maximum.at(fewest, segment, np.ceil(gpus / largest[kind]))
    several = np.flatnonzero(nodes)
    return True, bool((nodes[several] > fewest[several]).any())


def _largest(line: Timeline) -> Floats:
    """Return the GPUs of the largest node of each type, 1 where there is none."""
    made = np.ones(len(line.cluster.types) + 1)
    np.maximum.at(made, line.node_type[:-1], [float(node.gpus) for node in line.cluster.nodes])
    return made


def _caps(line: Timeline) -> tuple[Floats, Floats, Floats]:
    nodes = line.cluster.nodes
    columns = (
        [float(getattr(node, name)) for node in nodes] for name in ("gpus", "cpus", "mem_gb")
    )
    gpus, cpus, mem_gb = (np.array(column, np.float64) for column in columns)
    return gpus, cpus, mem_gb


def _events(line: Timeline, job: int, window: tuple[float, float]) -> _Events:
    t0, t1 = window
    keep = np.flatnonzero(
        (line.begin < t1) & (line.end > t0) & (line.end > line.begin) & (line.node < len(line.size))
    )
    node, begin, end = line.down
    lost = (begin < t1) & (end > t0)
    times = np.concatenate(
        (np.maximum(line.begin[keep], t0), np.maximum(begin[lost], t0), line.end[keep], end[lost])
    )
    nodes = np.tile(np.concatenate((line.node[keep], node[lost])), 2)
    order = np.lexsort((times, nodes))
    frame = line.result.placements
    count = frame["count"].to_numpy(np.float64)[keep]
    early = np.concatenate((line.holder[keep] < job, np.zeros(int(lost.sum()), np.bool_)))
    amounts = [
        np.concatenate((count * frame[name].to_numpy(np.float64)[keep], np.zeros(int(lost.sum()))))
        for name in ("gpus", "cpus", "mem_gb")
    ]
    gone = np.concatenate((np.zeros(len(keep)), np.ones(int(lost.sum()))))
    times, nodes = times[order], nodes[order]
    last = np.append((times[1:] != times[:-1]) | (nodes[1:] != nodes[:-1]), True)[: len(times)]

    def held(amount: Floats) -> Floats:
        # Every node's changes sum to 0, so one running sum over all nodes is the running sum within
        # each.
        return np.asarray(np.cumsum(np.concatenate((amount, -amount))[order])[last])

    used, by_early = (
        [held(amount) for amount in amounts],
        [held(np.where(early, amount, 0.0)) for amount in amounts],
    )
    nodes = nodes[last]
    return _Events(
        times[last],
        nodes,
        used,
        by_early,
        held(gone) > 0,
        np.append(True, nodes[1:] != nodes[:-1])[: len(nodes)],
    )


def _of(line: Timeline, wanted: RoomNeeds, events: _Events, t0: float) -> RoomOverTime:
    caps, demand, kinds = _caps(line), wanted.demand, wanted.kinds
    here = kinds[events.node]
    empty = _slots(caps, demand, kinds >= 0)
    of_node = [cap[events.node] for cap in caps]
    up = (here >= 0) & ~events.down
    now = _slots([cap - used for cap, used in zip(of_node, events.used, strict=True)], demand, up)
    gpus = _slots([of_node[0] - events.used[0]], demand, up) if demand.gpus else now
    early = _slots(
        [cap - used for cap, used in zip(of_node, events.early, strict=True)], demand, up
    )
    cap = _slots(of_node, demand, up)
    groups = _groups(wanted)
    columns: list[Floats] = []

    def level(after: Floats, before: Floats) -> None:
        """Add the step function of a sum over nodes, from its value on each node after each event
        and before the first.
        """
        previous = (
            np.where(events.first, before[events.node], np.roll(after, 1)) if len(after) else after
        )
        columns.append(np.concatenate(([before.sum()], after - previous)))

    for group in groups:
        inside = group[events.node]
        for values, before in (
            (now, empty),
            (early, empty),
            (cap, empty),
            (gpus, _slots(caps[:1], demand, kinds >= 0) if demand.gpus else empty),
        ):
            level(np.where(inside, values, 0.0), np.where(group, before, 0.0))
    raw_empty = caps[0] if demand.gpus else empty
    raw = np.where(events.down, 0.0, of_node[0] - events.used[0]) if demand.gpus else now
    allowed = (here >= 0, kinds >= 0)
    level(np.where(allowed[0], raw, 0.0), np.where(allowed[1], raw_empty, 0.0))
    level(raw, raw_empty)
    level(
        np.where(events.down | ~allowed[0], 0.0, raw_empty[events.node]),
        np.where(allowed[1], raw_empty, 0.0),
    )
    pieces = _pieces(wanted, empty, groups) if demand.gpus else []
    levels = _levels(float(empty.max(initial=0.0))) if demand.gpus else []
    for group, at_least, _ in pieces:
        level(
            (group[events.node] & (now >= at_least)).astype(np.float64),
            (group & (empty >= at_least)).astype(np.float64),
        )
    for at_least in levels:
        level((now >= at_least).astype(np.float64), (empty >= at_least).astype(np.float64))
    t, made = accumulate(np.concatenate(([t0], events.t_s)), columns)
    held = 4 * len(groups)
    best = [np.max([*made[at:held:4]], axis=0) if groups else np.zeros(len(t)) for at in range(4)]
    after = made[held + 3 :]
    counts, ladder = after[: len(pieces)], after[len(pieces) :]
    fits, without_later, when_empty, by_gpus = (values >= wanted.need for values in best)
    compact = fits & _compact(pieces, counts, len(t)) if demand.gpus else fits
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
        made[held],
        made[held + 1],
        made[held + 2],
        best[0],
        most,
    )


def _slots(free: Sequence[Floats], demand: Demand, usable: Mask) -> Floats:
    """Return how many replicas fit into what is free."""
    made = np.full(len(usable), _PLENTY)
    for amount, per in zip(free, (demand.gpus, demand.cpus, demand.mem_gb), strict=False):
        if per:
            made = np.minimum(made, np.floor((amount + _ROUNDING) / per))
    return np.where(usable, np.maximum(made, 0.0), 0.0)


def _levels(largest: float) -> list[float]:
    """Return the distinguished sizes of pieces, ascending."""
    return (
        [
            float(size)
            for size in np.unique(
                np.linspace(1, largest, min(_MOST_LEVELS, int(largest))).astype(np.int64)
            )
        ]
        if largest
        else []
    )


def _pieces(
    wanted: RoomNeeds, empty: Floats, groups: Sequence[Mask]
) -> list[tuple[Mask, float, float]]:
    """Return what the fewest nodes mean on each type, two rows for each: at least so many nodes of
    it must have room for at least so many replicas.
    """
    made = []
    for group in groups:
        largest = float(empty[group].max(initial=0.0))
        whole, rest = divmod(wanted.need, largest) if largest else (np.inf, 0.0)
        made.append((group, largest or 1.0, whole))
        made.append((group, rest or largest or 1.0, whole + (rest > 0)))
    return made


def _compact(
    pieces: Sequence[tuple[Mask, float, float]], counts: Sequence[Floats], length: int
) -> Mask:
    found = np.zeros(length, np.bool_)
    enough = [count >= nodes for (_, _, nodes), count in zip(pieces, counts, strict=True)]
    for whole, rest in zip(enough[::2], enough[1::2], strict=True):
        found |= whole & rest
    return found
