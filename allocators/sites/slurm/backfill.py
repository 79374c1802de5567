"""The backfill scheduler: plans for all waiting jobs that it tests, of whole nodes, in steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from math import floor, inf
from operator import or_
from types import MappingProxyType
from typing import Final, NamedTuple

from allocators.sites.slurm.preempt import Victim
from allocators.sites.slurm.reservations import Calendar
from allocators.sites.slurm.select import Ahead, FreeNodes, is_enough
from allocators.sites.slurm.state import Mask, Placement, SlurmJob, mask_of

FIRST_STEP_S: Final = 30
"""Width of the first step in which ends of running jobs are gathered; it doubles."""
YEAR_S: Final = 365 * 86_400.0
_NOBODY: Final = frozenset[int]()


class Gap(NamedTuple):
    """An instant from which nodes are free for a span: the nodes that somebody keeps in it, and
    when the first of them becomes free (0 = none does).
    """

    from_s: float
    kept: Mask
    later_s: float


Found = tuple[float, Placement]
"""When and where a job could start; -inf = now, inf = never."""


class NodeForecast(NamedTuple):
    """What will be free: the nodes now, how it grows as jobs end, and what was found in it, by the
    shape of jobs. To a job that may displace others these are gone.
    """

    nodes: FreeNodes
    ahead: Ahead
    gone: frozenset[int]
    found: dict[int, dict[Mask, Found]]


class NodeReservations:
    """Which nodes are kept for waiting jobs, from when to when: rows without gaps."""

    def __init__(self, begin_s: float) -> None:
        self._begins, self._kept = [begin_s], [0]
        self.hopeful_s = inf
        """Of the last walk over `gaps`."""

    def gaps(
        self,
        from_s: float,
        span_s: float,
        may: tuple[Mask, int],
        until_s: float = inf,
        tried: tuple[Mapping[Mask, Found], Mask] = (MappingProxyType({}), 0),
    ) -> Iterator[Gap]:
        """Yield the instants, of those at which nodes become free, from which enough nodes are free
        for a span, both ends included. `hopeful_s` is then the first of them, whatever was tried.

        Parameters
        ----------
        from_s, span_s : float, seconds
            The first instant that is looked at, and the span.
        may : tuple of (int, int)
            Nodes, and how many of them are enough.
        until_s : float, seconds
            Later instants are not looked at.
        tried : tuple of (mapping, int)
            Nodes -> the start that was found on them; instants are left out where nodes become free
            again before that. And the nodes in question.
        """
        begins, rows = self._begins, self._kept
        nodes, least = may
        known, within = tried
        self.hopeful_s = inf
        first = middle = bisect_right(begins, from_s) - 1
        last = bisect_right(begins, from_s + span_s)
        kept = reduce(or_, rows[first:last])
        below: list[Mask] = []
        behind, end = 0, len(rows) - 1
        while True:
            row, later_s = first, 0.0
            if kept:
                # Nothing is kept in the last row.
                while row < end:
                    if rows[row] & kept & ~rows[row + 1]:
                        later_s = begins[row + 1]
                        break
                    row += 1
            if (nodes & ~kept).bit_count() >= least:
                if self.hopeful_s == inf:
                    self.hopeful_s = from_s
                found = known.get(within & ~kept) if later_s else None
                if found is None or found[0] <= later_s:
                    yield Gap(from_s, kept, later_s)
            if not later_s or later_s > until_s:
                return
            first, from_s, before = row + 1, later_s, last
            last = bisect_right(begins, from_s + span_s, last)
            # What is kept in a window that moves on: up to its middle, and behind it.
            if first >= middle:
                middle, behind = last, 0
                below = list(accumulate(reversed(rows[first:last]), or_))
            else:
                behind = reduce(or_, rows[before:last], behind)
            kept = below[middle - 1 - first] | behind

    def is_free(self, from_s: float, to_s: float, nodes: Mask) -> bool:
        """Tell whether nobody keeps these nodes in a span without its end."""
        first = max(bisect_right(self._begins, from_s) - 1, 0)
        span = self._kept[first : bisect_left(self._begins, to_s)]
        return not reduce(or_, span, 0) & nodes

    def keep(self, from_s: float, to_s: float, nodes: Mask) -> None:
        """Keep nodes over a span."""
        first, last = self._cut(from_s), self._cut(to_s)
        for row in range(first, last):
            self._kept[row] |= nodes

    def _cut(self, at_s: float) -> int:
        if at_s <= self._begins[0]:
            return 0
        row = bisect_left(self._begins, at_s)
        if row == len(self._begins) or self._begins[row] != at_s:
            self._begins.insert(row, at_s)
            self._kept.insert(row, self._kept[row - 1])
        return row


class Planner:
    """Finds when and where jobs could start; what it found holds until something starts, ends or
    is overdue.

    Parameters
    ----------
    nodes : Nodes
        What is free.
    window_s, resolution_s : float, seconds
        No plan begins later; plans are rounded down to it.
    clock_s : float, seconds
        What the clock of the epoch shows at zero.
    linear : bool
        Steps widen by 30 s each instead of doubling.
    calendar : Calendar or None
        Reservations.
    """

    def __init__(
        self,
        nodes: FreeNodes,
        window_s: float,
        resolution_s: float,
        clock_s: float,
        *,
        linear: bool,
        calendar: Calendar | None = None,
    ) -> None:
        self._nodes, self._empty = nodes, nodes.copy()
        self._window_s, self._resolution_s = window_s, resolution_s
        self._clock_s, self._linear, self._calendar = clock_s, linear, calendar
        self._least: dict[int, int] = {}
        self._could: dict[int, dict[Mask, bool]] = {}
        self._outlooks: dict[frozenset[int], NodeForecast] = {}
        """By who is gone."""
        self._now_s = 0.0
        self._plans: list[tuple[float, float, Mask]] = []
        self._tables: dict[str, NodeReservations] = {}
        """By the reservation of jobs: the nodes of others are kept from them."""
        self._hopeless: dict[tuple[str, Mask], list[tuple[float, int, float]]] = {}

    def forget(self) -> None:
        """Drop what was found: what is free has changed."""
        self._outlooks.clear()

    def begin(self, now_s: float) -> None:
        """Begin a cycle without plans."""
        self._now_s = now_s
        self._plans.clear()
        self._tables.clear()
        self._hopeless.clear()
        known = self._outlooks.get(_NOBODY)
        if known is not None and known.ahead.at_s and known.ahead.at_s[0] <= now_s + 1.0:
            self.forget()

    @property
    def is_ready(self) -> bool:
        """Whether the ends of running jobs are known, see `look_ahead`."""
        return _NOBODY in self._outlooks

    def look_ahead(self, running: list[SlurmJob]) -> None:
        """Take note of the running jobs; those that are overdue end in a second."""
        now_s = self._now_s
        ends = sorted([(max(one.end_s, now_s + 1.0), one.id, one) for one in running])
        ahead = Ahead(self._nodes, [(end_s, one) for end_s, _, one in ends])
        self._outlooks[_NOBODY] = NodeForecast(self._nodes, ahead, _NOBODY, {})

    def outlook(self, gone: Sequence[Victim]) -> NodeForecast:
        """Return what will be free without some of the running jobs; the memory of suspended ones
        stays taken.
        """
        ids = frozenset([one.job.id for one in gone]) if gone else _NOBODY
        known = self._outlooks.get(ids)
        if known is None:
            nodes = self._nodes.copy()
            for one in gone:
                one.leave(nodes)
            ends = [end for end in self._outlooks[_NOBODY].ahead.ends if end[1].id not in ids]
            known = self._outlooks[ids] = NodeForecast(nodes, Ahead(nodes, ends), ids, {})
        return known

    def could_fit(self, job: SlurmJob, nodes: Mask) -> bool:
        """Tell whether these nodes, all of them empty, could hold a job."""
        known = self._could.setdefault(self._nodes.form(job), {})
        found = known.get(nodes)
        if found is None:
            found = known[nodes] = bool(self._empty.select(job, nodes))
        return found

    def least_nodes(self, job: SlurmJob) -> int:
        """Return on how many empty nodes a job goes at least."""
        form = self._nodes.form(job)
        known = self._least.get(form)
        if known is None:
            most = max(self._empty.room(job), default=1)
            known = self._least[form] = max(job.needed_nodes, -(-job.tasks // most))
        return known

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
            Whether nodes are kept for it if it does not start.
        gone : sequence of Victim
            Those that it may displace: they count as gone, and it may have to displace them.
        """
        now_s, table = self._now_s, self._table(job)
        limit_s = min(job.limit_s, YEAR_S)
        may, least = nodes & job.may, self.least_nodes(job)
        known = self._hopeless.setdefault((job.reservation, may), [])
        # Plans only grow in a cycle: where nodes were too few for one that needs no more of them
        # for no longer, they are too few here.
        from_s = max(
            [until_s for other_s, fewer, until_s in known if other_s <= limit_s and fewer <= least],
            default=now_s,
        )
        until_s = now_s + self._window_s
        outlook = self.outlook(gone)
        tried = outlook.found.setdefault(job.form, {})
        is_first = True
        while from_s <= until_s:
            walk = table.gaps(from_s, limit_s, (may, least), until_s, (tried, nodes))
            gap = next(walk, None)
            if is_first and table.hopeful_s > from_s:
                known.append((limit_s, least, table.hopeful_s))
            is_first, from_s = False, inf
            while gap is not None and (keeps or gap.from_s <= now_s):
                available = nodes & ~gap.kept
                found = tried.get(available)
                if found is None:
                    found = tried[available] = self._search(job, available, outlook)
                start_s, held = found
                start_s = max(start_s, gap.from_s)
                if start_s == inf or (gap.later_s and start_s > gap.later_s):
                    gap = next(walk, None)
                    continue
                if start_s <= now_s:
                    return held
                if start_s > until_s or not keeps:
                    return None
                if self._keep(table, start_s, limit_s, held):
                    return ()
                # Rounded down, it overlaps another plan.
                if start_s > gap.from_s:
                    from_s, gap = start_s, None
                else:
                    gap = next(walk, None)
        return None

    def keep_now(self, job: SlurmJob, held: Placement) -> None:
        """Keep nodes for a job that starts as soon as those have left whom it displaced."""
        self._keep(self._table(job), self._now_s, min(job.limit_s, YEAR_S), held)

    def _keep(self, own: NodeReservations, start_s: float, limit_s: float, held: Placement) -> bool:
        """Keep the nodes of a plan wholly; False = they are kept for another then."""
        begin_s, end_s = self._rounded(start_s), self._rounded(start_s + limit_s)
        nodes = mask_of(held)
        if not own.is_free(begin_s, end_s, nodes):
            return False
        self._plans.append((begin_s, end_s, nodes))
        for table in self._tables.values():
            table.keep(begin_s, end_s, nodes)
        return True

    def _table(self, job: SlurmJob) -> NodeReservations:
        """Return which nodes are kept from a job."""
        table = self._tables.get(job.reservation)
        if table is None:
            now_s = self._now_s
            table = self._tables[job.reservation] = NodeReservations(now_s)
            last_s = now_s + self._window_s
            until_s = last_s + YEAR_S
            reserved = self._calendar.kept(job, now_s, last_s, until_s) if self._calendar else ()
            for begin_s, end_s, nodes in (*reserved, *self._plans):
                table.keep(begin_s, end_s, nodes)
        return table

    def _rounded(self, at_s: float) -> float:
        clock, step = self._clock_s, self._resolution_s
        return floor((at_s + clock) / step) * step - clock

    def _search(self, job: SlurmJob, available: Mask, outlook: NodeForecast) -> Found:
        """Return when and where a job could start if only running jobs end, at their limits."""
        held = self._nodes.select(job, available)
        if not held and outlook.nodes is not self._nodes:
            held = outlook.nodes.select(job, available)
        if held:
            return -inf, held
        if not self._empty.could(job, available):
            return inf, ()
        ahead, may = outlook.ahead, available & job.may
        rooms = ahead.rooms(job)
        for last in self._steps(ahead, available):
            if len(rooms) <= last + 1:
                ahead.extend(job, last + 1)
            if is_enough(job, rooms[last + 1], may):
                held = ahead.select(job, available, last + 1)
                if held:
                    return ahead.at_s[last], held
        return inf, ()

    def _steps(self, ahead: Ahead, available: Mask) -> Iterator[int]:
        """Yield the last job of each step in which ends on these nodes are gathered."""
        at_s = ahead.at_s
        listed = (at for at, on in enumerate(ahead.on) if on & available)
        last = next(listed, -1)
        if last < 0:
            return
        clock, width = self._clock_s, float(FIRST_STEP_S)
        edge = (floor((at_s[last] + clock) / FIRST_STEP_S) + 1) * FIRST_STEP_S - clock
        for at in listed:
            if at_s[at] > edge + width:
                yield last
                width = self._wider(width)
                while at_s[at] > edge + width:
                    width = self._wider(width)
            last = at
        yield last

    def _wider(self, width: float) -> float:
        return width + FIRST_STEP_S if self._linear else width * 2
