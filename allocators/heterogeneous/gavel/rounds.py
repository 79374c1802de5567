"""Rounds of Gavel: GPU types as columns, ranking of jobs, and changes of grants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocators.placement import Placer
from allocators.toolkit import CpuJobs, reserve_if_free
from sim.contract import Demand, Floats, Gang, Grant, Ints, JobId, Part, Shape, View

Bools = NDArray[np.bool_]
Lane = tuple[Ints, Floats]
"""Jobs that may win on a type: row indices in the roster, and shares of time there. The job that is
owed more time comes first.
"""
NONE: Final = -1
"""Marks a job without a whole gang on one type, in place of the type's column."""


class DeficitRanking:
    """Ranks jobs on each type by how far they are behind their share of time.

    Parameters
    ----------
    roster : Roster
        The jobs.
    can : array of shape (jobs, types)
        Types on which each job may win.

    Notes
    -----
    On each type jobs are ranked by share of time over time received since the shares were computed,
    then by the time owed to them before, then by share, then by id. Upstream divides by the job's
    part of the time received by all jobs on the type [1]_; that sum is the same for all jobs of a
    type and does not change the order.

    References
    ----------
    .. [1] stanford-futuredata/gavel, scheduler/scheduler.py, ``_update_priorities`` and
    ``_schedule_jobs_on_workers_helper``.
    """

    def __init__(self, roster: Roster, can: Bools) -> None:
        self._gangs = roster.gangs
        self._lanes = [
            _lane(roster, np.flatnonzero(can[:, kind]), kind) for kind in range(can.shape[1])
        ]

    def winners(self, time_s: Floats, order: Iterable[int], left: Sequence[int]) -> Ints:
        """Return the column of the type on which each job wins GPUs; -1 for none.

        Parameters
        ----------
        time_s : array of shape (jobs, types)
            Time received, never 0.
        order : iterable of int
            Types, in the order in which they are filled.
        left : sequence of int
            GPUs to win on each type.
        """
        won, others = np.full(len(self._gangs), NONE), 0
        for kind in order:
            if left[kind] > 0 and others < len(won):
                lane, received_s = self._lanes[kind], time_s[:, kind]
                # Sorting thousands of jobs for a few winners would dominate a round, so the others
                # are ranked only if the top ones leave GPUs over.
                enough = 2 * left[kind] + 32 + others
                few = len(lane[0]) <= 2 * enough
                winners, over = self._lane_winners(
                    lane if few else _most_behind(lane, received_s, enough),
                    received_s,
                    won,
                    left[kind],
                )
                if over and not few:
                    winners, _ = self._lane_winners(lane, received_s, won, left[kind])
                won[winners] = kind
                others += len(winners)
        return won

    def _lane_winners(
        self, lane: Lane, received_s: Floats, won: Ints, left: int
    ) -> tuple[Ints, int]:
        """Return the rows that win on a type, in any order, and the GPUs left over.

        `lane` holds the candidate rows of the type and their shares. Rows that won on another type
        are skipped.
        """
        places, share = lane
        free = won.take(places) < 0
        places = places[free]
        sizes = self._gangs.take(places)
        total = int(sizes.sum())
        if total <= left:
            return places, left - total
        ranked_rows = (share[free] / -received_s.take(places)).argsort(kind="stable")
        return _first_that_fit(places[ranked_rows], sizes[ranked_rows].tolist(), left)

    def ranked_rows(self, time_s: Floats, kind: int) -> Ints:
        """Return the roster rows of the jobs that may win on a type, best first."""
        places, share = self._lanes[kind]
        ranked_rows: Ints = places[np.argsort(-(share / time_s[places, kind]), kind="stable")]
        return ranked_rows


def _lane(roster: Roster, places: Ints, kind: int) -> Lane:
    """Return the candidate rows of a type in the order that breaks ties, and their shares.

    The largest time owed goes first, then the largest share.
    """
    # The order of ties is the same in every round, so a round only sorts the priorities.
    share = roster.share[places, kind]
    order = np.lexsort((-share, -roster.deficit_s[places, kind]))
    return places[order], share[order]


def _most_behind(lane: Lane, received_s: Floats, count: int) -> Lane:
    """Return the rows and shares of at least `count` jobs furthest behind their shares."""
    places, share = lane
    behind = share / received_s.take(places)
    top = behind >= np.partition(behind, -count)[-count]
    return places[top], share[top]


def _first_that_fit(ranked: Ints, sizes: list[int], left: int) -> tuple[Ints, int]:
    """Return the ranked rows that fit one after the other, and the GPUs left over.

    A row that does not fit is skipped.
    """
    taken = []
    for at, size in enumerate(sizes):
        if size <= left:
            taken.append(at)
            left -= size
            if not left:
                break
    return ranked[taken], left


class Roster:
    """Arrays of all active GPU jobs, in order of job id; types are columns, the fastest first.

    Attributes
    ----------
    ids, gangs : arrays of shape (jobs,)
        Job ids, and the GPUs that the jobs request.
    rates : array of shape (jobs, types)
        Estimated work per second of the complete gang, or 1 if rates are not used; 0 where it
        cannot run.
    time_s, deficit_s, share : arrays of shape (jobs, types)
        Seconds received since the shares were computed (plus half a round), seconds owed before
        that, and the shares.
    counted : array of shape (jobs,)
        Whether the job was active when the shares were computed.
    left, fair_rate, fair_s : arrays of shape (jobs,)
        Work left when the shares were computed, work per second on an equal part of the cluster at
        that time, and the seconds that earlier work would have taken at such rates.
    """

    def __init__(self, types: int, head_start_s: float) -> None:
        self._types, self._head_start_s = types, head_start_s
        self.ids: Ints = np.zeros(0, np.int64)
        self.gangs: Ints = np.zeros(0, np.int64)
        self.counted: Bools = np.zeros(0, np.bool_)
        self.rates, self.time_s, self.deficit_s, self.share = (
            np.zeros((0, types)) for _ in range(4)
        )
        self.left, self.fair_rate, self.fair_s = (np.zeros(0) for _ in range(3))

    def __len__(self) -> int:
        return len(self.ids)

    def align(self, ids: Ints) -> Ints:
        """Remove jobs that are gone, add new ones, and return the rows of the new ones.

        The caller must fill in the gangs and rates of the new rows.
        """
        before = self.ids
        if len(ids) == len(before) and bool((ids == before).all()):
            return ids[:0]
        at = np.searchsorted(before, ids)
        at[at == len(before)] = 0
        new: Ints = np.flatnonzero(before[at] != ids) if len(before) else np.arange(len(ids))
        for name, fill in (
            ("gangs", 0),
            ("counted", False),
            ("left", 0.0),
            ("fair_rate", 0.0),
            ("fair_s", 0.0),
            ("rates", 0.0),
            *self._by_type(),
        ):
            setattr(self, name, _realign(getattr(self, name), at, new, fill))
        self.ids = ids
        return new

    def _by_type(self) -> tuple[tuple[str, float], ...]:
        """Return the names of the arrays by type, with the initial value of new rows."""
        return ("time_s", self._head_start_s), ("deficit_s", 0.0), ("share", 0.0)

    def reset(self, share: Floats, since_s: float) -> None:
        """Set new shares, add the time owed under the old ones, and restart the counts.

        Parameters
        ----------
        share : array of shape (jobs, types)
            The new shares.
        since_s : float, seconds
            Time since the old ones were computed.
        """
        self.deficit_s += self.share * since_s - (self.time_s - self._head_start_s)
        self.time_s[:] = self._head_start_s
        self.share = share
        self.counted[:] = True


def _realign(values: NDArray[Any], at: Ints, new: Ints, fill: float) -> NDArray[Any]:
    """Return an array rearranged to the new rows, with new rows filled with `fill`."""
    if len(new) == len(at):
        return np.full((len(at), *values.shape[1:]), fill, values.dtype)
    carried: NDArray[Any] = values.take(at, axis=0)
    carried[new] = fill
    return carried


_MAX_SEEN = 10_000


class Kinds:
    """The GPU types as columns, the fastest first, with the pools of each that a demand may use.

    Parameters
    ----------
    view : View
        The first instant.
    place : Placer
        Places gangs; must not mix types.
    """

    def __init__(self, view: View, place: Placer) -> None:
        self._place = place
        types, pools = view.cluster.types, view.room.pools
        used = {pool.type_at for pool in pools if pool.type_at >= 0}
        self.types = sorted(used, key=lambda at: (-types[at].speed, at))
        self._column = {at: column for column, at in enumerate(self.types)}
        self._all_types = len(types)
        self._column_of_node: list[int] = [NONE] * len(view.cluster.nodes)
        for pool in pools:
            for node in pool.nodes:
                self._column_of_node[node] = self._column.get(pool.type_at, NONE)
        self.widest = [
            max([pool.gpus_per_node for pool in pools if pool.type_at == at]) for at in self.types
        ]
        nodes = view.cluster.nodes
        self.racks = [
            len({nodes[node].rack for pool in pools if pool.type_at == at for node in pool.nodes})
            for at in self.types
        ]
        self._ways: dict[int, dict[int, tuple[int, ...]]] = {}
        self._seen: dict[int, tuple[Grant, Demand, int]] = {}
        self.pools: list[tuple[int, ...]] = [() for _ in self.types]
        self.by_count = True

    def __len__(self) -> int:
        return len(self.types)

    def type_pools(self, view: View, demand: Demand) -> Mapping[int, tuple[int, ...]]:
        """Return, by column, the pools of each type that could hold a demand when empty.

        Also updates `pools`, all pools in use, and `by_count`, whether only free GPUs limit
        placements.
        """
        pools_of = self._ways.get(demand.key)
        if pools_of is None:
            options = self._place.options(view, demand)
            pools_of = {
                self._column[view.room.pools[pools[0]].type_at]: pools for pools in options.groups
            }
            self._ways[demand.key] = pools_of
            for column, pools in pools_of.items():
                if self.pools[column] not in ((), pools):
                    self.by_count = False
                self.pools[column] = tuple(sorted({*self.pools[column], *pools}))
            self.by_count = self.by_count and self._place.needs_only_gpus(view, demand)
        return pools_of

    def free(self, view: View) -> list[int]:
        """Return the free GPUs of each type, by column."""
        free = view.room.free
        return [sum([free[at] for at in pools]) for pools in self.pools]

    def gpus_by_type(self, grant: Grant) -> list[int]:
        """Return the GPUs of each type in a grant, by column."""
        gpus_by_type = [0] * len(self.types)
        for gang in grant.gangs:
            for part in gang:
                if part is not None and part.gpus:
                    for node, count in zip(part.nodes, part.count, strict=True):
                        if self._column_of_node[node] >= 0:
                            gpus_by_type[self._column_of_node[node]] += count * part.gpus
        return gpus_by_type

    def column(self, grant: Grant, demand: Demand) -> int:
        """Return the column of the type on which a grant holds exactly one gang, or -1; cached."""
        entry = self._seen.get(grant.key)
        if entry is None or entry[0] is not grant or entry[1] is not demand:
            if len(self._seen) > _MAX_SEEN:
                self._seen.clear()
            entry = self._seen[grant.key] = grant, demand, self._whole_gang_column(grant, demand)
        return entry[2]

    def _whole_gang_column(self, grant: Grant, demand: Demand) -> int:
        """Return the column of a grant that holds exactly one gang on one type, or -1."""
        workers, servers = grant.gangs[0]
        size = (sum(workers.count), workers.gpus, workers.cpus, workers.mem_gb)
        if (
            len(grant.gangs) > 1
            or (servers is None) != (demand.servers is None)
            or size != (demand.replicas, demand.gpus, demand.cpus, demand.mem_gb)
        ):
            return NONE
        columns = {
            self._column_of_node[node] if node < len(self._column_of_node) else NONE
            for node in workers.nodes
        }
        return columns.pop() if len(columns) == 1 else NONE

    def rates(self, view: View, ids: Ints, gangs: Ints, *, look: bool) -> Floats:
        """Return the estimated work per second of gangs on each type.

        1 if speeds do not matter (`look` is False); 0 where a gang cannot run.


        Returns
        -------
        array of shape (jobs, types)
        """
        can = np.zeros((len(ids), len(self.types)))
        for at, job in enumerate(ids.tolist()):
            can[at, list(self.type_pools(view, view.demand(job)))] = 1.0
        if not look:
            return can
        sizes, which = np.unique(gangs, return_inverse=True)
        shapes = [
            self._shape(size, column)
            for size in sizes.tolist()
            for column in range(len(self.types))
        ]
        all_sizes = view.estimates.rates(ids, shapes).reshape(len(ids), len(sizes), len(self.types))
        return can * np.nan_to_num(all_sizes[np.arange(len(ids)), which])

    def _shape(self, gpus: int, column: int) -> Shape:
        """Return the shape of a gang of this size on the fewest nodes of one type."""
        at = self.types[column]
        return Shape(
            tuple([gpus if kind == at else 0 for kind in range(self._all_types)]),
            -(-gpus // self.widest[column]),
        )


class RoundPlacement:
    """Grants of all jobs at the end of a round, and the changes for the next one.

    Parameters
    ----------
    kinds : Kinds
        The GPU types.
    place : Placer
        Places gangs.

    Attributes
    ----------
    on : array of shape (jobs,)
        Column of the type on which a job holds its whole gang; -1 for none.
    ran : array of int
        Roster rows of the jobs that hold their whole gang on one type.
    ran_on : array of int
        Columns of these types.
    fixed : array of shape (jobs,)
        Whether a job runs and must not be stopped.
    gpus : tuple of int
        GPUs of each type that are free or held by these jobs.
    """

    def __init__(self, kinds: Kinds, place: Placer) -> None:
        self._kinds, self._place = kinds, place
        self._ids: list[JobId] = []
        self._held: dict[int, Grant] = {}
        self._spread: dict[tuple[tuple[int, ...], int], Grant] = {}
        self._left: list[int] = []
        self._odd: list[int] = []  # rows of jobs that hold no whole gang on one type
        self._some_stay = False
        self.on: Ints = np.zeros(0, np.int64)
        self.ran: Ints = np.zeros(0, np.int64)
        self.fixed: Bools = np.zeros(0, np.bool_)
        self.ran_on: Ints = np.zeros(0, np.int64)
        self.gpus: tuple[int, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether any job holds GPUs after the last changes."""
        return bool(self._held)

    def is_unchanged(self, view: View, cpu_jobs: CpuJobs) -> bool:
        """Return True if all grants are as last decided and all jobs are preemptible.

        A delayed plan may have become invalid.
        """
        grants, ids = view.grants, self._ids
        if self._some_stay or len(grants) != len(self._held) + cpu_jobs.running:
            return False
        return all(grants.get(ids[place]) is grant for place, grant in self._held.items())

    def read_grants(self, view: View, roster: Roster, cpu_jobs: CpuJobs) -> None:
        """Record all grants, their types, the fixed jobs, and the GPUs that a round can give out.

        `roster` must contain all active GPU jobs.
        """
        held = {job: grant for job, grant in view.grants.items() if job not in cpu_jobs}
        at = np.searchsorted(roster.ids, np.fromiter(held, np.int64, len(held)))
        self._ids = roster.ids.tolist()
        self._held = dict(zip(at.tolist(), held.values(), strict=True))
        self.on = np.full(len(roster), NONE)
        self.on[at] = [self._kinds.column(grant, view.demand(job)) for job, grant in held.items()]
        self.fixed = np.zeros(len(roster), np.bool_)
        self._some_stay = not view.active.preemptible.all()
        if self._some_stay:
            self.fixed[at] = ~view.running.preemptible[
                np.searchsorted(view.running.ids, roster.ids[at])
            ]
        self._count_gpus(view, roster.gangs)

    def _count_gpus(self, view: View, gangs: Ints) -> None:
        """Record the GPUs of each type in all, and those without fixed jobs that a round can give.

        Also records running jobs, and jobs with grants other than one whole gang on one type.
        """
        self._record_running()
        free, kinds = np.array(self._kinds.free(view)), len(self._kinds)
        held = np.bincount(self.ran_on, gangs[self.ran], kinds)
        kept = np.bincount(self.ran_on, gangs[self.ran] * self.fixed[self.ran], kinds)
        self._odd = (
            [place for place in self._held if self.on[place] < 0]
            if len(self.ran) < len(self._held)
            else []
        )
        for place in self._odd:
            odd = np.array(self._kinds.gpus_by_type(self._held[place]))
            held += odd
            kept += odd * self.fixed[place]
        self.gpus = tuple((free + held).astype(int).tolist())
        self._left = (free + held - kept).astype(int).tolist()

    def _record_running(self) -> None:
        """Record the jobs that hold their whole gang on one type."""
        self.ran = (self.on >= 0).nonzero()[0]
        self.ran_on = self.on.take(self.ran)

    def allocate(
        self,
        view: View,
        roster: Roster,
        ranking: DeficitRanking,
        order: Sequence[int],
        sits_out: Bools,
    ) -> dict[JobId, Grant | None]:
        """Decide a round and return the changes of grants.

        Parameters
        ----------
        view : View
            The instant.
        roster : Roster
            The jobs, those of the last `read_grants`.
        ranking : DeficitRanking
            Ranking of the jobs that are not fixed.
        order : sequence of int
            Types, in the order in which they are filled.
        sits_out : array of shape (jobs,)
            Jobs that may win GPUs, but leave them idle.
        """
        if not self._kinds.by_count:
            won, chosen = self._place_by_fit(view, roster, ranking, order)
            won[sits_out] = NONE
            leaving = self._leaving_jobs(self._moved_jobs(won))
            return self._apply_changes(
                won, leaving, {place: grant for place, grant in chosen.items() if won[place] >= 0}
            )
        won = ranking.winners(roster.time_s, order, self._left)
        won[sits_out] = NONE
        moved = self._moved_jobs(won)
        if not len(moved) and not self._odd:
            return {}
        leaving = self._leaving_jobs(moved)
        return self._apply_changes(
            won, leaving, self._place_moved(view, roster.gangs, won, moved, leaving)
        )

    def _moved_jobs(self, won: Ints) -> Ints:
        """Return the rows of jobs that won on another type than their present one, or on none.

        Fixed jobs never move.
        """
        differs = won != self.on
        if self._some_stay:
            differs &= ~self.fixed
        moved: Ints = differs.nonzero()[0]
        return moved

    def _leaving_jobs(self, moved: Ints) -> list[int]:
        """Return the rows of jobs that give up their present grants.

        These are moved jobs with a grant, and jobs whose grant is not one whole gang on one type.
        """
        whole: list[int] = moved[self.on.take(moved) >= 0].tolist()
        return whole + [place for place in self._odd if not self.fixed[place]]

    def _place_moved(
        self, view: View, gangs: Ints, won: Ints, moved: Ints, leaving: list[int]
    ) -> dict[int, Grant]:
        """Return new grants, by row, for jobs that won on another type than their present one.

        Grants of leaving jobs are released first. A job without room for its gang is left out.
        """
        chosen: dict[int, Grant] = {}
        columns = won.take(moved)
        seeking = moved[columns >= 0]
        # Large gangs first, so that small ones do not fragment servers.
        order = seeking[(-gangs.take(seeking)).argsort(kind="stable")]
        given, others = self._release_or_hand_on(view, leaving), []
        for place, column in zip(order.tolist(), won.take(order).tolist(), strict=True):
            demand = view.demand(self._ids[place])
            left_behind = given.get((column, demand.key))
            if left_behind:
                chosen[place] = left_behind.pop()
            else:
                others.append((place, column, demand))
        return chosen | self._place_elsewhere(view, others, given) if others else chosen

    def _release_or_hand_on(
        self, view: View, leaving: list[int]
    ) -> dict[tuple[int, int], list[Grant]]:
        """Return the grants of leaving jobs on one-GPU nodes, by type and demand.

        These nodes are interchangeable; all other grants of leaving jobs are released.
        """
        given: dict[tuple[int, int], list[Grant]] = {}
        for place in leaving:
            column = int(self.on[place])
            if column >= 0 and self._kinds.widest[column] == 1:
                given.setdefault((column, view.demand(self._ids[place]).key), []).append(
                    self._held[place]
                )
            else:
                view.room.give(self._held[place])
        return given

    def _place_elsewhere(
        self,
        view: View,
        others: list[tuple[int, int, Demand]],
        given: Mapping[tuple[int, int], list[Grant]],
    ) -> dict[int, Grant]:
        """Return grants, by row, for gangs without a released grant of the same size.

        They use released nodes in a single rack, or free nodes. A gang without room is left out.
        """
        chosen: dict[int, Grant] = {}
        left: dict[int, list[int]] = {}
        for (column, _), left_behind in given.items():
            left.setdefault(column, []).extend(
                [node for grant in left_behind for node in grant.gangs[0].workers.nodes]
            )
        for place, column, demand in others:
            nodes = left.get(column, [])
            if self._kinds.racks[column] == 1 and len(nodes) >= demand.replicas:
                chosen[place] = self._one_gpu_grant(nodes[: demand.replicas], demand)
                del nodes[: demand.replicas]
                continue
            if nodes:
                view.room.give(self._one_gpu_grant(nodes, demand))
                nodes.clear()
            grant = self._place.place_within(
                view, demand, self._kinds.type_pools(view, demand)[column]
            )
            if grant is not None:
                chosen[place] = grant
        return chosen

    def _one_gpu_grant(self, nodes: list[int], demand: Demand) -> Grant:
        """Return a grant of one worker on each of these nodes; cached."""
        # Few sets of nodes recur, and a shared object saves building, checking and adding it up.
        key = tuple(sorted(nodes)), demand.key
        grant = self._spread.get(key)
        if grant is None:
            if len(self._spread) >= _MAX_SEEN:
                self._spread.clear()
            grant = self._spread[key] = Grant(
                (Gang(Part(key[0], (1,) * len(nodes), 1, demand.cpus, demand.mem_gb)),)
            )
        return grant

    def _place_by_fit(
        self, view: View, roster: Roster, ranking: DeficitRanking, order: Sequence[int]
    ) -> tuple[Ints, dict[int, Grant]]:
        """Reserve nodes for each winner in turn; return winning columns and the grants, by row.

        Used if cores, memory or separate pools limit placements. First releases all grants that are
        not fixed. Winners without room are skipped.
        """
        for place, grant in self._held.items():
            if not self.fixed[place]:
                view.room.give(grant)
        won = np.full(len(roster), NONE)
        chosen: dict[int, Grant] = {}
        for column in order:
            denied: set[int] = set()  # free resources only shrink, so equal demands fail too
            for place in ranking.ranked_rows(roster.time_s, column).tolist():
                demand = view.demand(self._ids[place])
                if place in chosen or demand.key in denied:
                    continue
                new_grant = self._keep_or_place(view, demand, place, column)
                if new_grant is None:
                    denied.add(demand.key)
                else:
                    chosen[place], won[place] = new_grant, column
        return won, chosen

    def _keep_or_place(self, view: View, demand: Demand, place: int, column: int) -> Grant | None:
        """Reserve and return the present grant of a winner if it fits, or a new one, or None."""
        pools, held = self._kinds.type_pools(view, demand)[column], self._held.get(place)
        if not view.room.gpus_free(pools):
            return None
        if held is not None and self.on[place] == column and reserve_if_free(view, held, demand):
            return held
        return self._place.place_within(view, demand, pools)

    def _apply_changes(
        self, won: Ints, leaving: list[int], chosen: Mapping[int, Grant]
    ) -> dict[JobId, Grant | None]:
        """Return the changes of grants, None for a stop, and record the grants after them."""
        ids, held = self._ids, self._held
        changes: dict[JobId, Grant | None] = {}
        for place in leaving:
            if place not in chosen:
                changes[ids[place]] = None
                del held[place]
                self.on[place] = NONE
        for place, grant in chosen.items():
            if held.get(place) is not grant:
                changes[ids[place]] = held[place] = grant
                self.on[place] = won[place]
        self._odd = []
        self._record_running()
        return changes
