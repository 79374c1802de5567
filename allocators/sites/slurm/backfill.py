"""The backfill scheduler: plans whole nodes for all tested waiting jobs, in time steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from math import floor, inf
from operator import or_
from types import MappingProxyType
from typing import Final, NamedTuple

from allocators.sites.slurm.node_selection import FreeNodes, ReleaseForecast, is_enough
from allocators.sites.slurm.preempt import Victim
from allocators.sites.slurm.reservations import Calendar
from allocators.sites.slurm.state import Mask, Placement, SlurmJob, mask_of

FIRST_STEP_S: Final = 30
"""Width of the first time step that groups ends of running jobs; widths double."""
YEAR_S: Final = 365 * 86_400.0
_NOBODY: Final = frozenset[int]()


class Gap(NamedTuple):
    """A start time from which nodes are free for a span.

    `kept` are the nodes planned for others in the span; the first becomes free at `later_s` (0 =
    none does).
    """

    from_s: float
    kept: Mask
    later_s: float


Start = tuple[float, Placement]
"""Time and placement of a possible start; -inf = now, inf = never."""


class NodeForecast(NamedTuple):
    """Free nodes now and as jobs end, without the jobs in `gone`.

    `starts` caches the possible starts by shape of jobs and available nodes.
    """

    nodes: FreeNodes
    ahead: ReleaseForecast
    gone: frozenset[int]
    starts: dict[int, dict[Mask, Start]]


class NodeReservations:
    """A timeline of the nodes planned for waiting jobs."""

    def __init__(self, begin_s: float) -> None:
        self._begins, self._kept = [begin_s], [0]
        self.first_feasible_s = inf
        """First feasible start of the last walk over `gaps`."""

    def gaps(
        self,
        from_s: float,
        span_s: float,
        may: tuple[Mask, int],
        until_s: float = inf,
        tried: tuple[Mapping[Mask, Start], Mask] = (MappingProxyType({}), 0),
    ) -> Iterator[Gap]:
        """Yield the Gaps (start time, planned nodes) with enough free nodes for a span.

        Candidates are times at which nodes become free; both ends of the span count. The first
        feasible one is `first_feasible_s`, tried or not.

        Parameters
        ----------
        from_s, span_s : float, seconds
            Earliest start time, and the span.
        may : tuple of (int, int)
            Mask of candidate nodes, and the number required.
        until_s : float, seconds
            Latest start time.
        tried : tuple of (mapping, int)
            Cached starts by available nodes, and the nodes of the partition. Times are skipped
            where nodes become free again before the cached start.
        """
        begins, rows = self._begins, self._kept
        nodes, least = may
        cached_starts, within = tried
        self.first_feasible_s = inf
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
                if self.first_feasible_s == inf:
                    self.first_feasible_s = from_s
                cached = cached_starts.get(within & ~kept) if later_s else None
                if cached is None or cached[0] <= later_s:
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
        """Return True if no plan uses these nodes in a span, its end excluded."""
        first = max(bisect_right(self._begins, from_s) - 1, 0)
        span = self._kept[first : bisect_left(self._begins, to_s)]
        return not reduce(or_, span, 0) & nodes

    def keep(self, from_s: float, to_s: float, nodes: Mask) -> None:
        """Reserve nodes over a span, its end excluded."""
        first, last = self._split_row(from_s), self._split_row(to_s)
        for row in range(first, last):
            self._kept[row] |= nodes

    def _split_row(self, at_s: float) -> int:
        """Return the row that begins at a time; insert it by a split if there is none."""
        if at_s <= self._begins[0]:
            return 0
        row = bisect_left(self._begins, at_s)
        if row == len(self._begins) or self._begins[row] != at_s:
            self._begins.insert(row, at_s)
            self._kept.insert(row, self._kept[row - 1])
        return row


class Planner:
    """Finds when and where jobs can start; caches results until jobs start or end.

    Parameters
    ----------
    nodes : FreeNodes
        Free resources now.
    window_s, resolution_s : float, seconds
        Plans begin within the window; their times are rounded down to the resolution.
    clock_s : float, seconds
        Seconds since 1970 at the zero of the trace.
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
        self._forecasts: dict[frozenset[int], NodeForecast] = {}
        """By the ids of the preempted jobs."""
        self._now_s = 0.0
        self._plans: list[tuple[float, float, Mask]] = []
        self._tables: dict[str, NodeReservations] = {}
        """By the reservation of jobs: other nodes are reserved from them."""
        self._infeasible_until: dict[tuple[str, Mask], list[tuple[float, int, float]]] = {}

    def forget(self) -> None:
        """Drop all forecasts, because free resources changed."""
        self._forecasts.clear()

    def begin(self, now_s: float) -> None:
        """Start a cycle without plans; drop all forecasts if one of their ends is due."""
        self._now_s = now_s
        self._plans.clear()
        self._tables.clear()
        self._infeasible_until.clear()
        forecast = self._forecasts.get(_NOBODY)
        if forecast is not None and forecast.ahead.at_s and forecast.ahead.at_s[0] <= now_s + 1.0:
            self.forget()

    @property
    def is_ready(self) -> bool:
        """True if the ends of running jobs are known, see `look_ahead`."""
        return _NOBODY in self._forecasts

    def look_ahead(self, running: list[SlurmJob]) -> None:
        """Build the forecast from the running jobs; overdue jobs end in a second."""
        now_s = self._now_s
        ends = sorted([(max(one.end_s, now_s + 1.0), one.id, one) for one in running])
        ahead = ReleaseForecast(self._nodes, [(end_s, one) for end_s, _, one in ends])
        self._forecasts[_NOBODY] = NodeForecast(self._nodes, ahead, _NOBODY, {})

    def forecast(self, gone: Sequence[Victim]) -> NodeForecast:
        """Return the forecast as if some running jobs had been preempted (cached).

        Suspended jobs keep their memory.
        """
        ids = frozenset([one.job.id for one in gone]) if gone else _NOBODY
        cached = self._forecasts.get(ids)
        if cached is None:
            nodes = self._nodes.copy()
            for one in gone:
                one.release(nodes)
            ends = [end for end in self._forecasts[_NOBODY].ahead.ends if end[1].id not in ids]
            cached = self._forecasts[ids] = NodeForecast(
                nodes, ReleaseForecast(nodes, ends), ids, {}
            )
        return cached

    def could_fit(self, job: SlurmJob, nodes: Mask) -> bool:
        """Return True if these nodes could hold a job when empty (cached by shape)."""
        cached = self._could.setdefault(self._nodes.shape_id(job), {})
        fits = cached.get(nodes)
        if fits is None:
            fits = cached[nodes] = bool(self._empty.select(job, nodes))
        return fits

    def min_node_count(self, job: SlurmJob) -> int:
        """Return the minimum number of empty nodes that a job needs (cached by shape)."""
        shape_id = self._nodes.shape_id(job)
        count = self._least.get(shape_id)
        if count is None:
            most = max(self._empty.room(job), default=1)
            count = self._least[shape_id] = max(job.needed_nodes, -(-job.tasks // most))
        return count

    def place(
        self, job: SlurmJob, nodes: Mask, *, keeps: bool, gone: Sequence[Victim] = ()
    ) -> Placement | None:
        """Find or plan the nodes of a job: its placement if it starts now, () = planned.

        None = neither. The job itself is not started.

        Parameters
        ----------
        job : Job
            The next of the queue.
        nodes : int
            Mask of the nodes of its partition.
        keeps : bool
            Whether nodes may be planned for it if it does not start.
        gone : sequence of Victim
            Jobs that it may preempt; they count as ended.
        """
        now_s, table = self._now_s, self._reservations_for(job)
        limit_s = min(job.limit_s, YEAR_S)
        may, least = nodes & job.may, self.min_node_count(job)
        infeasible = self._infeasible_until.setdefault((job.reservation, may), [])
        # Plans only grow in a cycle: times without room for a smaller and shorter job have no room
        # for this one.
        from_s = max(
            [
                until_s
                for other_s, fewer, until_s in infeasible
                if other_s <= limit_s and fewer <= least
            ],
            default=now_s,
        )
        until_s = now_s + self._window_s
        forecast = self.forecast(gone)
        tried = forecast.starts.setdefault(job.shape_id, {})
        is_first = True
        while from_s <= until_s:
            walk = table.gaps(from_s, limit_s, (may, least), until_s, (tried, nodes))
            gap = next(walk, None)
            if is_first and table.first_feasible_s > from_s:
                infeasible.append((limit_s, least, table.first_feasible_s))
            is_first, from_s = False, inf
            while gap is not None and (keeps or gap.from_s <= now_s):
                available = nodes & ~gap.kept
                start = tried.get(available)
                if start is None:
                    start = tried[available] = self._find_start(job, available, forecast)
                start_s, held = start
                start_s = max(start_s, gap.from_s)
                if start_s == inf or (gap.later_s and start_s > gap.later_s):
                    gap = next(walk, None)
                    continue
                if start_s <= now_s:
                    return held
                if start_s > until_s or not keeps:
                    return None
                if self._add_plan(table, start_s, limit_s, held):
                    return ()
                # Rounded down, it overlaps another plan.
                if start_s > gap.from_s:
                    from_s, gap = start_s, None
                else:
                    gap = next(walk, None)
        return None

    def keep_now(self, job: SlurmJob, held: Placement) -> None:
        """Plan nodes for a job that starts once its victims have left."""
        self._add_plan(self._reservations_for(job), self._now_s, min(job.limit_s, YEAR_S), held)

    def _add_plan(
        self, own: NodeReservations, start_s: float, limit_s: float, held: Placement
    ) -> bool:
        """Plan the nodes of a placement over a rounded span; False if another plan has them.

        The plan is entered in all timelines.
        """
        begin_s, end_s = self._round_down_s(start_s), self._round_down_s(start_s + limit_s)
        nodes = mask_of(held)
        if not own.is_free(begin_s, end_s, nodes):
            return False
        self._plans.append((begin_s, end_s, nodes))
        for table in self._tables.values():
            table.keep(begin_s, end_s, nodes)
        return True

    def _reservations_for(self, job: SlurmJob) -> NodeReservations:
        """Return the timeline of nodes closed to a job: reservations and plans (cached)."""
        table = self._tables.get(job.reservation)
        if table is None:
            now_s = self._now_s
            table = self._tables[job.reservation] = NodeReservations(now_s)
            last_s = now_s + self._window_s
            until_s = last_s + YEAR_S
            reserved = (
                self._calendar.reserved_spans(job, now_s, last_s, until_s) if self._calendar else ()
            )
            for begin_s, end_s, nodes in (*reserved, *self._plans):
                table.keep(begin_s, end_s, nodes)
        return table

    def _round_down_s(self, at_s: float) -> float:
        """Round a time down to the resolution, counted from 1970."""
        clock, step = self._clock_s, self._resolution_s
        return floor((at_s + clock) / step) * step - clock

    def _find_start(self, job: SlurmJob, available: Mask, forecast: NodeForecast) -> Start:
        """Return the earliest time and placement of a job if running jobs end at their limits.

        -inf = now, inf = never. Only the available nodes count.
        """
        held = self._nodes.select(job, available)
        if not held and forecast.nodes is not self._nodes:
            held = forecast.nodes.select(job, available)
        if held:
            return -inf, held
        if not self._empty.has_enough(job, available):
            return inf, ()
        ahead, may = forecast.ahead, available & job.may
        rooms = ahead.rooms(job)
        for last in self._step_ends(ahead, available):
            if len(rooms) <= last + 1:
                ahead.extend(job, last + 1)
            if is_enough(job, rooms[last + 1], may):
                held = ahead.select(job, available, last + 1)
                if held:
                    return ahead.at_s[last], held
        return inf, ()

    def _step_ends(self, ahead: ReleaseForecast, available: Mask) -> Iterator[int]:
        """Yield the index of the last job end in each time step, among ends on these nodes."""
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
                width = self._next_width(width)
                while at_s[at] > edge + width:
                    width = self._next_width(width)
            last = at
        yield last

    def _next_width(self, width: float) -> float:
        """Return the width of the next time step."""
        return width + FIRST_STEP_S if self._linear else width * 2
