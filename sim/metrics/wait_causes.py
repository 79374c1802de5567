"""Reasons why a job waited, from the result of a run alone.

Inputs: free resources, admissible nodes, jobs submitted earlier that wait, and later jobs that run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.metrics.fit import RoomNeeds, RoomOverTime, could_ever_fit, has_spread_jobs, room
from sim.metrics.gpu_types import note_families
from sim.metrics.run_state import ranks
from sim.metrics.steps import Floats, Ints
from sim.metrics.timeline import Timeline

CAUSES: Final = (
    "no_room",
    "not_allowed",
    "down",
    "cores",
    "scattered",
    "overtaken",
    "round",
    "in_flight",
    "behind",
    "policy",
    "beyond",
)
"""Causes of waiting, in the order of their numbers.

no_room: too little was free, even without jobs submitted later. not_allowed: enough was free, but
not on nodes that the job may use. down: its nodes were down or absent. cores: enough GPUs, but not
with the cores and memory it needs. scattered: enough, but in too small pieces or of several types.
overtaken: it would have fitted without the jobs submitted later. round: it fitted, and the policy
had not decided since. in_flight: the decision to start it was taking effect. behind: it fitted, and
jobs submitted earlier waited too. policy: it fitted, and no earlier job waited. beyond: it needs
more than the cluster has, which only recordings can hold.
"""
(
    _NO_ROOM,
    _NOT_ALLOWED,
    _DOWN,
    _CORES,
    _SCATTERED,
    _OVERTAKEN,
    _ROUND,
    _IN_FLIGHT,
    _BEHIND,
    _POLICY,
    _BEYOND,
) = range(len(CAUSES))
MAX_PIECES: Final = 8
_MIN_SHARE: Final = 0.01
"""Smallest share of a wait that gets its own piece."""
MAX_NAMED: Final = 5
MAX_NOTES: Final = 6


class Waits(NamedTuple):
    """The waiting periods of a job, and whether each ended with a start.

    Parameters
    ----------
    t0, t1 : array, seconds
        Begin and end.
    started : array of bool
        Whether the job then got a grant; False = the run ended.
    """

    t0: Floats
    t1: Floats
    started: NDArray[np.bool_]


@dataclass(frozen=True)
class Piece:
    """A period of waiting with mostly one cause.

    Parameters
    ----------
    t0, t1 : float, seconds
        Begin and end.
    cause : str
        The cause with the most time, one of `CAUSES`.
    waited_s : float, seconds
        Time waited: t1 - t0, except for a sum of several waits.
    seconds : mapping
        Cause -> time of every cause; the sum is `waited_s`.
    waits : int
        Number of summed waits that have no own piece; 0 = this is an own piece.
    free_least, free, anywhere, there : int
        While the cause held: least and most GPUs free on nodes that the job may use, most free on
        all nodes, and fewest GPUs up on nodes that it may use. Replicas for demands without GPUs.
    most : int
        Most GPUs free on one node that the job may use; -1 for demands without GPUs.
    replicas : int
        Most replicas that fitted on one type, or on all if the job may mix types.
    ahead : int
        Number of jobs submitted earlier that waited too, at `t0`.
    first : int
        The first of them; -1 = none.
    later : tuple of int
        Jobs submitted later that held resources on nodes it may use in this period, most
        GPU-seconds first, at most 5.
    more_later : int
        Number of further such jobs.
    decides_s, changes_s : float, seconds
        First decision at or after `t0`, and first that changed anything; inf = none.
    notes : tuple of (str, float, float)
        Name, least and greatest value of the policy's notes in this period.
    started : bool
        Whether the job got a grant at `t1`.
    """

    t0: float
    t1: float
    cause: str
    waited_s: float
    seconds: Mapping[str, float]
    waits: int = 0
    free_least: int = 0
    free: int = 0
    anywhere: int = 0
    there: int = 0
    most: int = -1
    replicas: int = 0
    ahead: int = 0
    first: int = -1
    later: tuple[int, ...] = ()
    more_later: int = 0
    decides_s: float = np.inf
    changes_s: float = np.inf
    notes: tuple[tuple[str, float, float], ...] = ()
    started: bool = False


class JobCase(NamedTuple):
    """A job of a run, and its needs."""

    line: Timeline
    wanted: RoomNeeds
    job: int


class _Parts(NamedTuple):
    """Consecutive parts of waits: begin, end, seconds by cause, and index of the wait."""

    t0: Floats
    t1: Floats
    seconds: Floats
    wait: Ints


def waits(line: Timeline, job: int) -> Waits:
    """Return the periods that a job spent in the system without a grant."""
    enter, leave = (float(times[job]) for times in line.presence)
    owner, begin, end = line.grant_periods
    low, high = np.searchsorted(owner, [job, job + 1])
    t0, t1 = np.append(enter, end[low:high]), np.append(begin[low:high], leave)
    keep = np.minimum(t1, leave) > t0
    return Waits(t0[keep], np.minimum(t1, leave)[keep], (np.arange(len(t0)) < high - low)[keep])


def causes(case: JobCase, job_waits: Waits) -> tuple[Floats, Floats, Ints, RoomOverTime]:
    """Cut the waits of a job where the cause changes.

    Returns
    -------
    (array, array, array of int, RoomOverTime)
        Begin and end of each part, index of its cause in `CAUSES`, and the room at its begin. The
        parts together are exactly the waits.
    """
    line, wanted, job = case
    window = float(job_waits.t0[0]), float(job_waits.t1[-1])
    job_room = room(line, wanted, job, window)
    job_room = job_room._replace(
        compact=job_room.compact | np.bool_(has_spread_jobs(line, wanted.gpus)[1])
    )
    decisions_s = line.decided
    rank_s, earlier_waiting = _earlier_waiting(line, job, window)
    t0, t1, _ = _split_waits(job_waits, [job_room.t_s, rank_s])
    begins = _fit_begins(_node_cause(wanted, job_room.sample_at(t0)) == _POLICY, t0, t1)
    next_decisions = np.append(decisions_s, np.inf)[
        np.searchsorted(decisions_s, t0[begins], "left")
    ]
    landing = _taking_effect_from_s(job_waits, decisions_s)
    t0, t1, wait = _split_waits(job_waits, [job_room.t_s, rank_s, next_decisions, landing])
    room_at_parts = job_room.sample_at(t0)
    code = _node_cause(wanted, room_at_parts)
    if not could_ever_fit(line, wanted):
        code[code == _DOWN] = _BEYOND
    fits = code == _POLICY
    fits_since = t0[
        np.maximum.accumulate(np.where(_fit_begins(fits, t0, t1), np.arange(len(t0)), 0))
    ]
    decided_since = np.searchsorted(decisions_s, t0, "right") > np.searchsorted(
        decisions_s, fits_since, "left"
    )
    code = np.where(
        fits & (earlier_waiting[np.searchsorted(rank_s, t0, "right") - 1] > 0), _BEHIND, code
    )
    code = np.where(fits & ~decided_since, _ROUND, code)
    return t0, t1, np.where(t0 >= landing[wait], _IN_FLIGHT, code), room_at_parts


def reasons(case: JobCase, most: int = MAX_PIECES) -> tuple[Piece, ...]:
    """Return why a job waited, as at most `most` pieces that cover all its waits, in order.

    Notes
    -----
    If the cause changes more often, the shortest parts are added to their neighbors within the same
    wait, which keep the cause with the most time. If there are more waits than `most`, the longest
    keep their pieces and the others are summed in one piece at the end.
    """
    job_waits = waits(case.line, case.job)
    if not len(job_waits.t0):
        return ()
    t0, t1, code, room_at_parts = causes(case, job_waits)
    seconds = np.zeros((len(t0), len(CAUSES)))
    seconds[np.arange(len(t0)), code] = t1 - t0
    parts = _merge_short_parts(
        _Parts(t0, t1, seconds, np.searchsorted(job_waits.t0, t0, "right") - 1), most
    )
    own_pieces = np.arange(len(parts.t0))
    if len(own_pieces) > most:
        own_pieces = np.sort(np.argsort(-(parts.t1 - parts.t0), kind="stable")[: most - 1])
    pieces = []
    for index in own_pieces.tolist():
        has_cause = (
            (t0 >= parts.t0[index])
            & (t0 < parts.t1[index])
            & (code == parts.seconds[index].argmax())
        )
        piece = _piece(
            case,
            (float(parts.t0[index]), float(parts.t1[index])),
            parts.seconds[index],
            room_at_parts.sample_at(t0[has_cause]),
        )
        wait = parts.wait[index]
        pieces.append(
            replace(piece, started=bool(job_waits.started[wait] and piece.t1 == job_waits.t1[wait]))
        )
    others = np.setdiff1d(np.arange(len(parts.t0)), own_pieces)
    return (*pieces, _summed_piece(parts, others)) if len(others) else tuple(pieces)


def _node_cause(wanted: RoomNeeds, job_room: RoomOverTime) -> Ints:
    """Return the cause that follows from the nodes alone; `_POLICY` if the job fits compactly."""
    code = np.where(job_room.anywhere >= wanted.gpus, _NOT_ALLOWED, _NO_ROOM)
    code = np.where(
        job_room.free >= wanted.gpus, np.where(job_room.by_gpus, _CORES, _SCATTERED), code
    )
    code = np.where(job_room.without_later, _OVERTAKEN, code)
    code = np.where(job_room.when_empty, code, _DOWN)
    return np.asarray(
        np.where(job_room.fits, np.where(job_room.compact, _POLICY, _SCATTERED), code), np.int64
    )


def _fit_begins(fits: NDArray[np.bool_], t0: Floats, t1: Floats) -> NDArray[np.bool_]:
    """Return a boolean per part: whether it fits and does not continue a part that fits."""
    continues = np.append(False, fits[:-1] & (t1[:-1] == t0[1:]))
    return np.asarray(fits & ~continues, np.bool_)


def _earlier_waiting(line: Timeline, job: int, window: tuple[float, float]) -> tuple[Floats, Ints]:
    """Return the instants at which the number of earlier waiting jobs becomes or leaves 0.

    With that number at each; the first instant is the begin of the window.
    """
    t0, t1 = window
    leave = line.presence.leave_s[:job]
    _, begin, end = (
        values[: np.searchsorted(line.grant_periods[0], job)] for values in line.grant_periods
    )
    is_in_window = (begin < t1) & (end > t0)
    departures = leave[(leave > t0) & (leave < t1)]
    times = np.concatenate(
        ([t0], departures, np.maximum(begin[is_in_window], t0), end[is_in_window])
    )
    signs = np.concatenate(
        (
            [float((leave > t0).sum())],
            -np.ones(len(departures)),
            -np.ones(int(is_in_window.sum())),
            np.ones(int(is_in_window.sum())),
        )
    )
    order = np.argsort(times, kind="stable")
    times, count = times[order], np.cumsum(signs[order])
    last = np.append(times[1:] != times[:-1], True)
    times, count = times[last], count[last].astype(np.int64)
    crosses_zero = np.append(True, (count[1:] > 0) != (count[:-1] > 0))
    return times[crosses_zero], count[crosses_zero]


def _split_waits(job_waits: Waits, instants: Sequence[Floats]) -> tuple[Floats, Floats, Ints]:
    """Return the waits cut at instants: begin and end of each part, and index of its wait."""
    edges = np.unique(np.concatenate((*instants, job_waits.t0, job_waits.t1)))
    wait = np.searchsorted(job_waits.t0, edges[:-1], "right") - 1
    keep = (wait >= 0) & (edges[:-1] < job_waits.t1[wait])
    return edges[:-1][keep], edges[1:][keep], wait[keep]


def _taking_effect_from_s(job_waits: Waits, decided: Floats) -> Floats:
    """Return for each wait the instant of the decision that ended it with a delay.

    inf = the decision took effect at once, or no decision ended the wait.
    """
    before = np.searchsorted(decided, job_waits.t1, "left")
    is_immediate = np.searchsorted(decided, job_waits.t1, "right") > before
    last_decision_s = np.append(-np.inf, decided)[before]
    return np.where(
        job_waits.started & ~is_immediate & (last_decision_s >= job_waits.t0),
        last_decision_s,
        np.inf,
    )


def _merge_short_parts(parts: _Parts, most: int) -> _Parts:
    """Join the shortest parts with neighbors of their wait, until `most` remain if possible.

    Parts below 1 % of their wait are always joined, if they have a neighbor.
    """
    parts = _join_parts(parts, np.zeros(len(parts.t0), np.bool_))
    while True:
        same = np.append(False, parts.wait[1:] == parts.wait[:-1])
        is_absorbable = same | np.append(same[1:], False)
        length = parts.t1 - parts.t0
        is_small = is_absorbable & (
            length < _MIN_SHARE * np.bincount(parts.wait, length)[parts.wait]
        )
        excess = max(len(length) - most, int(is_small.sum()))
        count = min(
            (excess + 1) // 2, int(is_absorbable.sum())
        )  # in steps, so that long periods of different causes stay separate
        if count <= 0:
            return parts
        joins = np.zeros(len(length), np.bool_)
        joins[np.lexsort((length, ~is_small, ~is_absorbable))[:count]] = True
        parts = _join_parts(parts, same & (joins | np.append(False, (joins & ~same)[:-1])))


def _join_parts(parts: _Parts, joins_previous: NDArray[np.bool_]) -> _Parts:
    """Join marked parts to the previous one, then neighbors of the same wait and cause."""
    for _ in range(2):
        first = np.flatnonzero(~joins_previous)
        last = np.append(first[1:] - 1, len(joins_previous) - 1)
        parts = _Parts(
            parts.t0[first],
            parts.t1[last],
            np.add.reduceat(parts.seconds, first, axis=0),
            parts.wait[first],
        )
        cause = parts.seconds.argmax(axis=1)
        joins_previous = np.append(
            False, (cause[1:] == cause[:-1]) & (parts.wait[1:] == parts.wait[:-1])
        )
    return parts


def _piece(
    case: JobCase, window: tuple[float, float], seconds: Floats, job_room: RoomOverTime
) -> Piece:
    """Return the piece of one period, with free resources, earlier and later jobs, and notes."""
    line, wanted, job = case
    later, more = _later_jobs(line, wanted, job, window)
    ahead, first = ranks(line, job, window[0])
    free, anywhere, most, replicas = (
        int(values.max())
        for values in (job_room.free, job_room.anywhere, job_room.most, job_room.replicas)
    )
    return Piece(
        t0=window[0],
        t1=window[1],
        cause=CAUSES[int(seconds.argmax())],
        waited_s=float(seconds.sum()),
        seconds=_by_cause(seconds),
        free_least=int(job_room.free.min()),
        free=free,
        anywhere=anywhere,
        there=int(job_room.there.min()),
        most=most * max(wanted.demand.gpus, 1),
        replicas=replicas,
        ahead=ahead,
        first=first,
        later=later,
        more_later=more,
        decides_s=_first_after(line.decided, window[0]),
        changes_s=_first_after(line.changed, window[0]),
        notes=_note_ranges(line, wanted, window),
    )


def _first_after(instants: Floats, t_s: float) -> float:
    """Return the first instant at or after a time; inf = none."""
    return float(np.append(instants, np.inf)[np.searchsorted(instants, t_s, "left")])


def _summed_piece(parts: _Parts, others: Ints) -> Piece:
    """Return one piece that sums the waits without their own piece."""
    total = parts.seconds[others].sum(axis=0)
    begin, end = float(parts.t0[others[0]]), float(parts.t1[others[-1]])
    return Piece(
        begin,
        end,
        CAUSES[int(total.argmax())],
        float(total.sum()),
        _by_cause(total),
        waits=len(others),
    )


def _by_cause(seconds: Floats) -> dict[str, float]:
    """Return cause -> seconds, longest first, without zeros."""
    order = np.argsort(-seconds, kind="stable")
    return {CAUSES[index]: float(seconds[index]) for index in order.tolist() if seconds[index] > 0}


def _later_jobs(
    line: Timeline, wanted: RoomNeeds, job: int, window: tuple[float, float]
) -> tuple[tuple[int, ...], int]:
    """Return up to 5 later jobs on its nodes, most GPU-seconds first, and how many more."""
    t0, t1 = window
    in_window = np.flatnonzero(
        (line.begin < t1) & (line.end > t0) & (line.holder > job) & (line.node < len(line.size))
    )
    in_window = in_window[wanted.kinds[line.node[in_window]] >= 0]
    amount = line.held_gpus if wanted.demand.gpus else line.amount
    share = amount[in_window] * (
        np.minimum(line.end[in_window], t1) - np.maximum(line.begin[in_window], t0)
    )
    jobs, job_index = np.unique(line.holder[in_window], return_inverse=True)
    total = np.bincount(job_index, share, minlength=len(jobs))
    jobs, total = jobs[total > 0], total[total > 0]
    named = jobs[np.argsort(-total, kind="stable")[:MAX_NAMED]]
    return tuple(named.tolist()), len(jobs) - len(named)


def _note_ranges(
    line: Timeline, wanted: RoomNeeds, window: tuple[float, float]
) -> tuple[tuple[str, float, float], ...]:
    """Return name, least and greatest value of up to 6 notes of the policy in a period.

    Notes per GPU type only for the types that the job may use.
    """
    decision, code, names, value = line.notes
    low, high = np.searchsorted(decision, np.searchsorted(line.decided, window, "left"), "left")
    if low == high:
        return ()
    present, name_index = np.unique(code[low:high], return_inverse=True)
    types = [kind.name for kind in line.cluster.types]
    usable = {line.kinds[node] for node in np.flatnonzero(wanted.kinds >= 0).tolist()}
    families = note_families([names[index] for index in present.tolist()], types)
    shown_names = {
        name
        for family in families.values()
        for name, kind in family.items()
        if kind not in types or kind in usable
    }
    least, most = np.full((2, len(present)), np.inf)
    np.minimum.at(least, name_index, value[low:high])
    np.minimum.at(most, name_index, -value[low:high])
    ranges = zip(
        (names[index] for index in present.tolist()), least.tolist(), (-most).tolist(), strict=True
    )
    return tuple(one for one in ranges if one[0] in shown_names)[:MAX_NOTES]
