"""Splits a run into parts of the cluster that share no nodes, and joins their records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.contract import Floats, Ints, NodePool
from sim.engine.fast import free_gpus, loops
from sim.engine.fast.arrays import FastRun, Tables
from sim.engine.record import FINISHED


class Section(NamedTuple):
    """A virtual cluster or partition with jobs that can run.

    Parameters
    ----------
    name : str
        Its name.
    jobs : array of int64
        Rows of its jobs in the trace, ascending.
    pools : array of int64
        Pools that its jobs may use.
    lane : FastRun
        Input of its run, on these pools only.
    """

    name: str
    jobs: Ints
    pools: Ints
    lane: FastRun


def split_run(lane: FastRun, tables: Tables) -> list[Section]:
    """Return the parts of a run in the order of their names; jobs that never fit are left out."""
    homes = lane.trace.texts(lane.rule.by)
    codes = np.where(tables.impossible, -1, np.asarray(homes.codes))
    parts = []
    for code in np.unique(codes[codes >= 0]).tolist():
        rows = np.flatnonzero(codes == code)
        frame = lane.trace.frame.iloc[rows].reset_index(drop=True)
        kinds = np.unique(lane.demands.codes[rows])
        pools = sorted({at for kind in kinds for at in lane.demands.unique[kind].pools})
        own = lane._replace(
            pools=tuple(lane.pools[at] for at in pools),
            trace=replace(lane.trace, frame=frame),
            work=lane.work[rows],
            demands=lane.demands.take(rows, pools),
            estimates=None if lane.estimates is None else lane.estimates[rows],
        )
        parts.append(Section(str(homes.categories[code]), rows, np.array(pools), own))
    return parts


def merge_types(pools: Sequence[NodePool]) -> tuple[NodePool, ...]:
    """Return one pool for each GPU type; placement goes through its nodes pool by pool."""
    by_type: dict[int, list[NodePool]] = {}
    for pool in pools:
        by_type.setdefault(pool.type_at, []).append(pool)
    return tuple(
        NodePool(
            tuple(node for pool in same for node in pool.nodes),
            kind,
            (),
            max(pool.gpus_per_node for pool in same),
        )
        for kind, same in by_type.items()
    )


def share_nodes(names: Sequence[str], pools: Sequence[NodePool]) -> bool:
    """Return True if two of these parts may use the same nodes, or a job names several or none."""
    used = [
        {at for at, pool in enumerate(pools) if not pool.partitions or name in pool.partitions}
        for name in names
    ]
    several = any(not name or "," in name for name in names)
    return several or len(set[int]().union(*used)) < sum(map(len, used))


def join_runs(
    lane: FastRun,
    parts: Sequence[Section],
    states: Sequence[loops.Run],
    rooms: Sequence[free_gpus.Room],
    last_submit_s: float,
) -> tuple[loops.Run, free_gpus.Room]:
    """Return the record of all parts as one, in the order of the general simulator."""
    stints = [int(state.at[loops.STINTS]) for state in states]
    spots = [int(room.at[free_gpus.SPOTS]) for room in rooms]
    part = np.repeat(np.arange(len(parts)), stints)
    local = np.concatenate([np.arange(count) for count in stints])
    began_s, until_s, ended = (
        np.concatenate(
            [getattr(state, name)[:count] for state, count in zip(states, stints, strict=True)]
        )
        for name in ("began_s", "until_s", "ended")
    )
    number, place = np.empty((2, len(part)), np.int64)
    number[np.lexsort((local, part, began_s))] = np.arange(len(part))
    first = np.cumsum([0, *stints[:-1]])
    for state, offset, count in zip(states, first, stints, strict=True):
        place[offset + state.closed[:count]] = np.arange(count)
    # At one instant jobs finish in the order of their begins, then the parts decide in turn.
    stopped = ended != FINISHED
    closed = np.lexsort(
        (np.where(stopped, place, 0), np.where(stopped, part, number), stopped, until_s)
    )
    end_s = max(float(until_s.max()), last_submit_s)
    decided_s, decided = _join_decisions(states, end_s)
    at = sum((state.at for state in states), np.zeros(8, np.int64))
    at[loops.DECISIONS], at[loops.SETTLED] = len(decided_s), len(lane.trace)
    joined = states[0]._replace(
        at=at,
        stint_job=np.concatenate(
            [
                own.jobs[state.stint_job[:count]].astype(np.int32)
                for own, state, count in zip(parts, states, stints, strict=True)
            ]
        ),
        stint_pool=np.concatenate(
            [
                own.pools[state.stint_pool[:count]]
                for own, state, count in zip(parts, states, stints, strict=True)
            ]
        ),
        stint_first=_join([state.stint_first for state in states], stints)
        + np.repeat(np.cumsum([0, *spots[:-1]]), stints),
        stint_spots=_join([state.stint_spots for state in states], stints),
        began_s=began_s,
        until_s=until_s,
        closed=closed,
        ended=ended,
        decided_s=decided_s,
        decided=decided,
    )
    room = rooms[0]._replace(
        spot_slot=np.concatenate(
            [
                _slots(lane, own)[room.spot_slot[:count]]
                for own, room, count in zip(parts, rooms, spots, strict=True)
            ]
        ),
        spot_gpus=_join([room.spot_gpus for room in rooms], spots),
    )
    return joined, room


def _slots(lane: FastRun, part: Section) -> Ints:
    """Return the slot among all nodes for each slot of a part."""
    sizes = [len(pool.nodes) for pool in lane.pools]
    first = np.cumsum([0, *sizes])
    return np.concatenate([np.arange(first[at], first[at + 1]) for at in part.pools])


def _join(columns: Sequence[Ints], sizes: Sequence[int]) -> Ints:
    """Return the filled beginnings of columns as one."""
    return np.concatenate([own[:size] for own, size in zip(columns, sizes, strict=True)])


def _join_decisions(states: Sequence[loops.Run], end_s: float) -> tuple[Floats, NDArray[np.int32]]:
    """Return the instants and numbers of decisions, with one decision per instant."""
    instants_s, rows = [], []
    for state in states:
        count = int(state.at[loops.DECISIONS])
        at_s = state.decided_s[:count]
        # changes, and differences of waiting and running jobs to the decision before
        row = state.decided[: 3 * count].reshape(-1, 3).astype(np.int64)
        row[1:, 1:] -= row[:-1, 1:].copy()
        last_s = float(state.until_s[: state.at[loops.STINTS]].max())
        if last_s < end_s and last_s > at_s[-1]:
            # The loop ends with its last job, but the general simulator decides then.
            at_s = np.append(at_s, last_s)
            row = np.vstack([row, [0, 0, 0]])
            row[-1, 1:] = -row[:-1, 1:].sum(axis=0)
        instants_s.append(at_s)
        rows.append(row)
    decided_s, which = np.unique(np.concatenate(instants_s), return_inverse=True)
    numbers = np.zeros((len(decided_s), 3), np.int64)
    np.add.at(numbers, which, np.concatenate(rows))
    numbers[:, 1:] = numbers[:, 1:].cumsum(axis=0)
    return decided_s, numbers.astype(np.int32).ravel()
