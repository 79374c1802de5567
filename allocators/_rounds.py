"""Rounds in the manner of Gavel: who runs next, given the shares of time that each job shall have on each GPU type, and where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.contract import Floats, Ints

Bools = NDArray[np.bool_]
Lane = tuple[Ints, Floats]
"""Who may win on a type: places in the roster, and shares of time there; who is owed more comes first."""
NONE: Final = -1
"""In place of a type: the job holds, or wins, no whole gang on one type."""


class Contest:
    """Who would run where in the next rounds: on each type those that are furthest behind what they shall have.

    Parameters
    ----------
    roster : Roster
        The jobs.
    can : array of shape (jobs, types)
        Where each job may win.

    Notes
    -----
    On each type jobs are ranked by share of time over time received since the shares were computed, then by what was owed to them before, then by share, then
    by id. Upstream divides by the job's part of the time received by all jobs on the type [1]_; that sum is common to a type and does not change the order.

    References
    ----------
    .. [1] stanford-futuredata/gavel, scheduler/scheduler.py, ``_update_priorities`` and ``_schedule_jobs_on_workers_helper``.
    """

    def __init__(self, roster: Roster, can: Bools) -> None:
        self._gangs = roster.gangs
        self._lanes = [_lane(roster, np.flatnonzero(can[:, kind]), kind) for kind in range(can.shape[1])]

    def winners(self, time_s: Floats, order: Iterable[int], left: Sequence[int]) -> Ints:
        """Return the type on which each job wins a place, -1 for none.

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
                # Sorting thousands for the sake of a few is the cost of a round; only if those at the top leave GPUs over, are the others looked at.
                enough = 2 * left[kind] + 32 + others
                few = len(lane[0]) <= 2 * enough
                found, over = self._best(lane if few else _furthest_behind(lane, received_s, enough), received_s, won, left[kind])
                if over and not few:
                    found, _ = self._best(lane, received_s, won, left[kind])
                won[found] = kind
                others += len(found)
        return won

    def _best(self, lane: Lane, received_s: Floats, won: Ints, left: int) -> tuple[Ints, int]:
        """Return who of a lane wins, in any order, and what is left over then."""
        places, share = lane
        free = won.take(places) < 0
        places = places[free]
        sizes = self._gangs.take(places)
        total = int(sizes.sum())
        if total <= left:
            return places, left - total
        ranked = (share[free] / -received_s.take(places)).argsort(kind="stable")
        return _first_that_fit(places[ranked], sizes[ranked].tolist(), left)

    def ranked(self, time_s: Floats, kind: int) -> Ints:
        """Return the jobs that may win on a type, as places in the roster, best first."""
        places, share = self._lanes[kind]
        ranked: Ints = places[np.argsort(-(share / time_s[places, kind]), kind="stable")]
        return ranked


def _lane(roster: Roster, places: Ints, kind: int) -> Lane:
    # What breaks ties stays the same from round to round, so only the priorities are sorted in each.
    share = roster.share[places, kind]
    order = np.lexsort((-share, -roster.deficit_s[places, kind]))
    return places[order], share[order]


def _furthest_behind(lane: Lane, received_s: Floats, count: int) -> Lane:
    """Return at least so many of a lane, those that are furthest behind."""
    places, share = lane
    behind = share / received_s.take(places)
    top = behind >= np.partition(behind, -count)[-count]
    return places[top], share[top]


def _first_that_fit(ranked: Ints, sizes: list[int], left: int) -> tuple[Ints, int]:
    taken = []
    for at, size in enumerate(sizes):
        if size <= left:
            taken.append(at)
            left -= size
            if not left:
                break
    return ranked[taken], left


class Roster:
    """What is remembered of every active GPU job: arrays in order of job id; types are columns, the fastest first.

    Attributes
    ----------
    ids, gangs : arrays of shape (jobs,)
        Jobs, and the GPUs that they ask for.
    rates : array of shape (jobs, types)
        Believed work per second of the complete gang, or 1 if rates are not looked at; 0 where it cannot run.
    time_s, deficit_s, share : arrays of shape (jobs, types)
        Seconds received since the shares were computed (and half a round), seconds owed before that, and the shares.
    counted : array of shape (jobs,)
        Whether the job was there when the shares were computed.
    left, fair_rate, fair_s : arrays of shape (jobs,)
        Work left when the shares were computed, work per second on a fair part of the cluster as it was then, seconds that the work done before would have
        taken so.
    """

    def __init__(self, types: int, head_start_s: float) -> None:
        self._types, self._head_start_s = types, head_start_s
        self.ids: Ints = np.zeros(0, np.int64)
        self.gangs: Ints = np.zeros(0, np.int64)
        self.counted: Bools = np.zeros(0, np.bool_)
        self.rates, self.time_s, self.deficit_s, self.share = (np.zeros((0, types)) for _ in range(4))
        self.left, self.fair_rate, self.fair_s = (np.zeros(0) for _ in range(3))

    def __len__(self) -> int:
        return len(self.ids)

    def align(self, ids: Ints) -> Ints:
        """Forget who is gone and make room for who is new; return the places of the new ones, whose gangs and rates are still to be filled in."""
        before = self.ids
        if len(ids) == len(before) and bool((ids == before).all()):
            return ids[:0]
        at = np.searchsorted(before, ids)
        at[at == len(before)] = 0
        new: Ints = np.flatnonzero(before[at] != ids) if len(before) else np.arange(len(ids))
        for name, fill in (("gangs", 0), ("counted", False), ("left", 0.0), ("fair_rate", 0.0), ("fair_s", 0.0), ("rates", 0.0), *self._by_type()):
            setattr(self, name, _carried(getattr(self, name), at, new, fill))
        self.ids = ids
        return new

    def _by_type(self) -> tuple[tuple[str, float], ...]:
        return ("time_s", self._head_start_s), ("deficit_s", 0.0), ("share", 0.0)

    def reset(self, share: Floats, since_s: float) -> None:
        """Take new shares: what is owed under the old ones is noted, and counting begins anew.

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


def _carried(values: NDArray[Any], at: Ints, new: Ints, fill: float) -> NDArray[Any]:
    if len(new) == len(at):
        return np.full((len(at), *values.shape[1:]), fill, values.dtype)
    made: NDArray[Any] = values.take(at, axis=0)
    made[new] = fill
    return made
