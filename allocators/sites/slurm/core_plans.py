"""Plans of the backfill that take only what a job needs of its nodes: ``plan = cores``."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from allocators.sites.slurm.backfill import YEAR_S, NodeForecast, NodeReservations, Planner
from allocators.sites.slurm.preempt import Victim
from allocators.sites.slurm.select import Free, FreeNodes, Room, is_enough
from allocators.sites.slurm.state import Mask, Placement, SlurmJob

_ANY: Final = (0, 0)
"""Of `NodeReservations.gaps`: no node is needed, so that all instants come."""


_Tasks = tuple[Mask, list[float], list[int]]
"""A node, when its rows begin, and how many tasks fit in each."""


class _Plan(NamedTuple):
    """A job that is planned, from when to when, and where."""

    begin_s: float
    end_s: float
    job: SlurmJob
    held: Placement


class _Rows:
    """What will be free on a node: from when on, how much, and how many tasks of a shape fit."""

    __slots__ = ("begins", "counts", "free")

    def __init__(self, free: Free) -> None:
        self.begins, self.free = [-inf], [free]
        self.counts: dict[int, list[int]] = {}

    def cut(self, at_s: float) -> int:
        """Let a row begin at an instant, and return which."""
        row = bisect_left(self.begins, at_s)
        if row == len(self.begins) or self.begins[row] != at_s:
            self.begins.insert(row, at_s)
            self.free.insert(row, self.free[row - 1])
        return row


class CorePlanner(Planner):
    """A `Planner` whose plans leave the rest of their nodes to others.

    Notes
    -----
    Not what Slurm does, but what textbooks call conservative backfilling: a job starts, or is
    planned, at the first instant from which enough is free until its limit beside what runs and
    what is planned already. Looked at are now, the ends of running jobs in the steps of `Planner`,
    and the ends of plans and reservations. Plans are on whole minutes, and an end counts as in
    use, as there.
    """

    def begin(self, now_s: float) -> None:
        """Begin a cycle without plans."""
        super().begin(now_s)
        self._booked: list[_Plan] = []
        self._renew()

    def look_ahead(self, running: list[SlurmJob]) -> None:
        """Take note of the running jobs."""
        super().look_ahead(running)
        self._renew()

    def _renew(self) -> None:
        self._rows: dict[frozenset[int], list[_Rows]] = {}
        """By who is gone."""
        self._ends: dict[tuple[frozenset[int], Mask], list[float]] = {}
        self._since: dict[object, list[tuple[float, float]]] = {}

    def place(
        self, job: SlurmJob, nodes: Mask, *, keeps: bool, gone: Sequence[Victim] = ()
    ) -> Placement | None:
        """Return where a job starts now; () = it has a plan, None = it has none.

        Parameters
        ----------
        job : Job
            The next of the queue.
        nodes : int
            Those of its partition.
        keeps : bool
            Whether room is kept for it if it does not start.
        gone : sequence of Victim
            Those that it may displace: they count as gone, and it may have to displace them.
        """
        if gone and (held := self.place(job, nodes, keeps=False)):
            return held
        outlook = self.outlook(gone)
        now_s, table = self._now_s, self._table(job)
        limit_s = min(job.limit_s, YEAR_S)
        # Plans only grow in a cycle: before a job of this shape found room, none that is as long
        # does.
        key = self._nodes.form(job), job.reservation, nodes, outlook.gone
        since = self._since.setdefault(key, [])
        from_s = max([at_s for other_s, at_s in since if other_s <= limit_s], default=now_s)
        until_s = now_s + (self._window_s if keeps else 0.0)
        rows = self._tasks(job, nodes & job.may & self._nodes.up, outlook)
        ends = self._ends_on(nodes & job.may, outlook)
        for at_s in self._instants((from_s, limit_s, until_s), ends, table):
            kept = next(table.gaps(at_s, limit_s, _ANY)).kept if self._calendar else 0
            room = self._room(job, rows, outlook, kept, (at_s, at_s + limit_s))
            held = self._select(job, nodes & ~kept, room, outlook, at_s)
            if held:
                since.append((limit_s, at_s))
                if at_s <= now_s:
                    return held
                self._book(_Plan(self._rounded(at_s), self._rounded(at_s + limit_s), job, held))
                return ()
        if keeps:
            since.append((limit_s, inf))
        return None

    def keep_now(self, job: SlurmJob, held: Placement) -> None:
        """Keep room for a job that starts as soon as those have left whom it displaced."""
        now_s = self._now_s
        end_s = self._rounded(now_s + min(job.limit_s, YEAR_S))
        self._book(_Plan(self._rounded(now_s), end_s, job, held))

    def _instants(
        self, span: tuple[float, float, float], ends: list[float], table: NodeReservations
    ) -> Iterable[float]:
        """Return when a job might start, in order."""
        from_s, limit_s, until_s = span
        if from_s > until_s:
            return ()
        found = {from_s}
        if until_s > from_s:
            found.update(ends)
            found.update([plan.end_s for plan in self._booked])
            found.update([gap.from_s for gap in table.gaps(from_s, limit_s, _ANY, until_s)])
        return sorted([at_s for at_s in found if from_s <= at_s <= until_s])

    def _ends_on(self, nodes: Mask, outlook: NodeForecast) -> list[float]:
        """Return the ends of running jobs on these nodes, in steps."""
        found = self._ends.get((outlook.gone, nodes))
        if found is None:
            at_s = outlook.ahead.at_s
            found = [at_s[last] for last in self._steps(outlook.ahead, nodes)]
            self._ends[outlook.gone, nodes] = found
        return found

    def _tasks(self, job: SlurmJob, nodes: Mask, outlook: NodeForecast) -> list[_Tasks]:
        """Return how many tasks of a job fit on each of these nodes, row by row."""
        found = []
        for node, rows in enumerate(self._planned(outlook)):
            if not nodes >> node & 1:
                continue
            counts = rows.counts.get(job.form)
            if counts is None:
                usable_of = self._nodes.usable_of
                counts = [usable_of(job, node, *free) for free in rows.free]
                rows.counts[job.form] = counts
            found.append((1 << node, rows.begins, counts))
        return found

    def _room(
        self,
        job: SlurmJob,
        every: list[_Tasks],
        outlook: NodeForecast,
        kept: Mask,
        span: tuple[float, float],
    ) -> Room | None:
        """Return how many tasks of a job fit all over a span, both ends included; None = too few
        even if nothing were planned.
        """
        ahead, (from_s, to_s) = outlook.ahead, span
        ended = bisect_right(ahead.at_s, from_s)
        rooms = ahead.rooms(job)
        if len(rooms) <= ended:
            ahead.extend(job, ended)
        if not is_enough(job, rooms[ended], job.may & ~kept):
            return None
        room: Room = {}
        for node, begins, counts in every:
            first = bisect_right(begins, from_s) - 1
            if not counts[first] or node & kept:
                continue
            tasks = min(counts[first : bisect_right(begins, to_s, first)])
            if tasks:
                room[tasks] = room.get(tasks, 0) | node
        return room

    def _select(
        self, job: SlurmJob, available: Mask, room: Room | None, outlook: NodeForecast, at_s: float
    ) -> Placement:
        """Return where a job goes from an instant on; () = it does not fit."""
        if room is None or not is_enough(job, room, available):
            return ()
        nodes = self._at(at_s, outlook) if self._nodes.prefer else self._nodes
        return nodes.select(job, available, room)

    def _at(self, at_s: float, outlook: NodeForecast) -> FreeNodes:
        """Return the nodes with what is free at an instant."""
        made = outlook.nodes.copy()
        every = self._planned(outlook)
        free = [rows.free[bisect_right(rows.begins, at_s) - 1][0] for rows in every]
        gpus, cpus, mem_gb = zip(*free, strict=True)
        made.follow(gpus, cpus, mem_gb)
        return made

    def _planned(self, outlook: NodeForecast) -> list[_Rows]:
        """Return what is free on each node as running jobs end, without what is planned."""
        found = self._rows.get(outlook.gone)
        if found is None:
            nodes, ahead = outlook.nodes, outlook.ahead
            found = self._rows[outlook.gone] = [_Rows(nodes.free(at)) for at in range(len(nodes))]
            for at, at_s in enumerate(ahead.at_s):
                for node, free, gres in ahead.freed(at):
                    found[node].begins.append(at_s)
                    found[node].free.append((free, gres))
            for plan in self._booked:
                self._take(found, plan)
        return found

    def _book(self, plan: _Plan) -> None:
        self._booked.append(plan)
        for rows in self._rows.values():
            self._take(rows, plan)

    def _take(self, every: list[_Rows], plan: _Plan) -> None:
        for node, tasks in plan.held:
            rows = every[node]
            gpus, cpus, mem_gb = self._nodes.share(plan.job, node, tasks)
            own = dict(plan.job.gres)
            first, last = rows.cut(plan.begin_s), rows.cut(plan.end_s)
            for row, (free, gres) in enumerate(islice(rows.free, first, last), first):
                left = free[0] - gpus, free[1] - cpus, free[2] - mem_gb
                rest = tuple([count - own.get(kind, 0) for kind, count in enumerate(gres)])
                rows.free[row] = left, rest
            rows.counts.clear()
