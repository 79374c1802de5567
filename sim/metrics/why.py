"""Why a job waited, from the record of the run alone: free resources, admissible nodes, jobs ahead
of it and jobs that ran instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.metrics.hetero import note_families
from sim.metrics.moment import ranks
from sim.metrics.room import RoomNeeds, RoomOverTime, ever, room, spreads
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
"""In the order of their numbers.

no_room: less free than it needs, and so it would be without jobs submitted later. not_allowed:
enough was free, but not on nodes that it may use. down: its nodes were down or absent. cores:
enough GPUs, but not with the cores and memory it needs. scattered: enough, but in too small pieces
or of several types. overtaken: without the jobs submitted later there was room. round: there was
room, and the policy had not decided since. in_flight: the decision to start it was taking effect.
behind: there was room, and jobs submitted earlier waited too. policy: there was room, and none did.
beyond: it needs more than the cluster has, which only recordings can hold.
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
MOST_PIECES: Final = 8
_LEAST_SHARE: Final = 0.01
"""Of a wait: shorter parts of it are no piece of their own."""
MOST_NAMED: Final = 5
MOST_NOTES: Final = 6


class Waits(NamedTuple):
    """The times in which a job waited, and how each ended.

    Parameters
    ----------
    t0, t1 : array, seconds
        From when to when.
    started : array of bool
        Whether it then got something; if not, the run ended.
    """

    t0: Floats
    t1: Floats
    started: NDArray[np.bool_]


@dataclass(frozen=True)
class Piece:
    """A time in which a job waited for mostly one cause.

    Parameters
    ----------
    t0, t1 : float, seconds
        From when to when.
    cause : str
        The one of `CAUSES` with the most time.
    waited_s : float, seconds
        What it waited of that: t1 - t0, but for a sum of several waits.
    seconds : mapping
        Cause -> time, all of them; the sum is `waited_s`.
    waits : int
        Waits that are summed up in it, beyond what has a piece of its own; 0 = it is one of these.
    free_least, free, anywhere, there : int
        While the cause held: least and most GPUs free on nodes that it may use, most free on all
        nodes, and least that were up on those it may use. Replicas for demands without GPUs.
    most : int
        Most GPUs free on one node that it may use; -1 for demands without GPUs.
    replicas : int
        Most replicas for which there was room on one type, or on all if it may mix them.
    ahead : int
        Jobs submitted before it that waited too, at `t0`.
    first : int
        The first of them; -1 = none.
    later : tuple of int
        Jobs submitted after it that held something on nodes it may use meanwhile, most GPU-seconds
        first, at most 5.
    more_later : int
        How many others did.
    decides_s, changes_s : float, seconds
        The first decision at or after `t0`, and the first that changed anything; inf = none.
    notes : tuple of (str, float, float)
        Name, least and greatest value of what the policy noted meanwhile.
    started : bool
        Whether the job got something at `t1`.
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
    """Neighbouring times within waits: seconds by cause, and the wait each belongs to."""

    t0: Floats
    t1: Floats
    seconds: Floats
    wait: Ints


def waits(line: Timeline, job: int) -> Waits:
    """Return when a job was in the system and held nothing."""
    enter, leave = (float(times[job]) for times in line.presence)
    owner, begin, end = line.held
    low, high = np.searchsorted(owner, [job, job + 1])
    t0, t1 = np.append(enter, end[low:high]), np.append(begin[low:high], leave)
    keep = np.minimum(t1, leave) > t0
    return Waits(t0[keep], np.minimum(t1, leave)[keep], (np.arange(len(t0)) < high - low)[keep])


def causes(case: JobCase, found: Waits) -> tuple[Floats, Floats, Ints, RoomOverTime]:
    """Cut the waits of a job where the cause changes.

    Returns
    -------
    (array, array, array of int, RoomOverTime)
        Begin and end of each part and the place of its cause in `CAUSES`; together they are exactly
        the waits. And the room at the begin of each.
    """
    line, wanted, job = case
    window = float(found.t0[0]), float(found.t1[-1])
    here = room(line, wanted, job, window)
    here = here._replace(compact=here.compact | np.bool_(spreads(line, wanted.gpus)[1]))
    decided = line.decided
    rank_s, earlier = _earlier(line, job, window)
    t0, t1, _ = _cut(found, [here.t_s, rank_s])
    begins = _begins(_state(wanted, here.at(t0)) == _POLICY, t0, t1)
    follows = np.append(decided, np.inf)[np.searchsorted(decided, t0[begins], "left")]
    landing = _landing(found, decided)
    t0, t1, wait = _cut(found, [here.t_s, rank_s, follows, landing])
    known = here.at(t0)
    code = _state(wanted, known)
    if not ever(line, wanted):
        code[code == _DOWN] = _BEYOND
    fits = code == _POLICY
    since = t0[np.maximum.accumulate(np.where(_begins(fits, t0, t1), np.arange(len(t0)), 0))]
    decided_since = np.searchsorted(decided, t0, "right") > np.searchsorted(decided, since, "left")
    code = np.where(fits & (earlier[np.searchsorted(rank_s, t0, "right") - 1] > 0), _BEHIND, code)
    code = np.where(fits & ~decided_since, _ROUND, code)
    return t0, t1, np.where(t0 >= landing[wait], _IN_FLIGHT, code), known


def reasons(case: JobCase, most: int = MOST_PIECES) -> tuple[Piece, ...]:
    """Return why a job waited, in at most `most` pieces that together are all its waits, in order.

    Notes
    -----
    Where the cause changes more often, the shortest parts are added to their neighbours within the
    same wait, which are named by the cause with most time; where there are more waits than that,
    the longest stay and the others are summed up in one piece at the end.
    """
    found = waits(case.line, case.job)
    if not len(found.t0):
        return ()
    t0, t1, code, known = causes(case, found)
    seconds = np.zeros((len(t0), len(CAUSES)))
    seconds[np.arange(len(t0)), code] = t1 - t0
    parts = _reduced(_Parts(t0, t1, seconds, np.searchsorted(found.t0, t0, "right") - 1), most)
    kept = np.arange(len(parts.t0))
    if len(kept) > most:
        kept = np.sort(np.argsort(-(parts.t1 - parts.t0), kind="stable")[: most - 1])
    made = []
    for at in kept.tolist():
        seen = (t0 >= parts.t0[at]) & (t0 < parts.t1[at]) & (code == parts.seconds[at].argmax())
        piece = _piece(
            case, (float(parts.t0[at]), float(parts.t1[at])), parts.seconds[at], known.at(t0[seen])
        )
        wait = parts.wait[at]
        made.append(
            replace(piece, started=bool(found.started[wait] and piece.t1 == found.t1[wait]))
        )
    others = np.setdiff1d(np.arange(len(parts.t0)), kept)
    return (*made, _rest(parts, others)) if len(others) else tuple(made)


def _state(wanted: RoomNeeds, known: RoomOverTime) -> Ints:
    """Return what the nodes alone say: `_POLICY` where there is room in a shape that this run
    uses.
    """
    code = np.where(known.anywhere >= wanted.gpus, _NOT_ALLOWED, _NO_ROOM)
    code = np.where(known.free >= wanted.gpus, np.where(known.by_gpus, _CORES, _SCATTERED), code)
    code = np.where(known.without_later, _OVERTAKEN, code)
    code = np.where(known.when_empty, code, _DOWN)
    return np.asarray(
        np.where(known.fits, np.where(known.compact, _POLICY, _SCATTERED), code), np.int64
    )


def _begins(fits: NDArray[np.bool_], t0: Floats, t1: Floats) -> NDArray[np.bool_]:
    """Return where a time with room begins."""
    goes_on = np.append(False, fits[:-1] & (t1[:-1] == t0[1:]))
    return np.asarray(fits & ~goes_on, np.bool_)


def _earlier(line: Timeline, job: int, window: tuple[float, float]) -> tuple[Floats, Ints]:
    """Return the instants at which the number of waiting jobs submitted before this one becomes or
    stops being 0, and that number.
    """
    t0, t1 = window
    leave = line.presence.leave_s[:job]
    _, begin, end = (values[: np.searchsorted(line.held[0], job)] for values in line.held)
    met = (begin < t1) & (end > t0)
    gone = leave[(leave > t0) & (leave < t1)]
    times = np.concatenate(([t0], gone, np.maximum(begin[met], t0), end[met]))
    signs = np.concatenate(
        (
            [float((leave > t0).sum())],
            -np.ones(len(gone)),
            -np.ones(int(met.sum())),
            np.ones(int(met.sum())),
        )
    )
    order = np.argsort(times, kind="stable")
    times, count = times[order], np.cumsum(signs[order])
    last = np.append(times[1:] != times[:-1], True)
    times, count = times[last], count[last].astype(np.int64)
    turns = np.append(True, (count[1:] > 0) != (count[:-1] > 0))
    return times[turns], count[turns]


def _cut(found: Waits, instants: Sequence[Floats]) -> tuple[Floats, Floats, Ints]:
    """Return the waits cut at instants: begin and end of each part, and the wait it belongs to."""
    edges = np.unique(np.concatenate((*instants, found.t0, found.t1)))
    wait = np.searchsorted(found.t0, edges[:-1], "right") - 1
    keep = (wait >= 0) & (edges[:-1] < found.t1[wait])
    return edges[:-1][keep], edges[1:][keep], wait[keep]


def _landing(found: Waits, decided: Floats) -> Floats:
    """Return for each wait since when the decision that ended it was taking effect; inf = it did at
    once, or nothing ended it.
    """
    before = np.searchsorted(decided, found.t1, "left")
    at_once = np.searchsorted(decided, found.t1, "right") > before
    last = np.append(-np.inf, decided)[before]
    return np.where(found.started & ~at_once & (last >= found.t0), last, np.inf)


def _reduced(parts: _Parts, most: int) -> _Parts:
    parts = _joined(parts, np.zeros(len(parts.t0), np.bool_))
    while True:
        same = np.append(False, parts.wait[1:] == parts.wait[:-1])
        absorbable = same | np.append(same[1:], False)
        length = parts.t1 - parts.t0
        small = absorbable & (length < _LEAST_SHARE * np.bincount(parts.wait, length)[parts.wait])
        excess = max(len(length) - most, int(small.sum()))
        count = min(
            (excess + 1) // 2, int(absorbable.sum())
        )  # not all at once, so that long times of different causes stay apart
        if count <= 0:
            return parts
        joins = np.zeros(len(length), np.bool_)
        joins[np.lexsort((length, ~small, ~absorbable))[:count]] = True
        parts = _joined(parts, same & (joins | np.append(False, (joins & ~same)[:-1])))


def _joined(parts: _Parts, joins: NDArray[np.bool_]) -> _Parts:
    """Join parts to the one before, and then neighbours of the same wait and cause."""
    for _ in range(2):
        first = np.flatnonzero(~joins)
        last = np.append(first[1:] - 1, len(joins) - 1)
        parts = _Parts(
            parts.t0[first],
            parts.t1[last],
            np.add.reduceat(parts.seconds, first, axis=0),
            parts.wait[first],
        )
        cause = parts.seconds.argmax(axis=1)
        joins = np.append(False, (cause[1:] == cause[:-1]) & (parts.wait[1:] == parts.wait[:-1]))
    return parts


def _piece(
    case: JobCase, window: tuple[float, float], seconds: Floats, known: RoomOverTime
) -> Piece:
    line, wanted, job = case
    later, more = _later(line, wanted, job, window)
    ahead, first = ranks(line, job, window[0])
    free, anywhere, most, replicas = (
        int(values.max()) for values in (known.free, known.anywhere, known.most, known.replicas)
    )
    return Piece(
        t0=window[0],
        t1=window[1],
        cause=CAUSES[int(seconds.argmax())],
        waited_s=float(seconds.sum()),
        seconds=_by_cause(seconds),
        free_least=int(known.free.min()),
        free=free,
        anywhere=anywhere,
        there=int(known.there.min()),
        most=most * max(wanted.demand.gpus, 1),
        replicas=replicas,
        ahead=ahead,
        first=first,
        later=later,
        more_later=more,
        decides_s=_next(line.decided, window[0]),
        changes_s=_next(line.changed, window[0]),
        notes=_notes(line, wanted, window),
    )


def _next(instants: Floats, t_s: float) -> float:
    return float(np.append(instants, np.inf)[np.searchsorted(instants, t_s, "left")])


def _rest(parts: _Parts, others: Ints) -> Piece:
    """Sum up waits that have no piece of their own."""
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
    order = np.argsort(-seconds, kind="stable")
    return {CAUSES[at]: float(seconds[at]) for at in order.tolist() if seconds[at] > 0}


def _later(
    line: Timeline, wanted: RoomNeeds, job: int, window: tuple[float, float]
) -> tuple[tuple[int, ...], int]:
    """Return the jobs that were submitted later and held resources on these nodes, most GPU-seconds
    first.
    """
    t0, t1 = window
    keep = np.flatnonzero(
        (line.begin < t1) & (line.end > t0) & (line.holder > job) & (line.node < len(line.size))
    )
    keep = keep[wanted.kinds[line.node[keep]] >= 0]
    amount = line.held_gpus if wanted.demand.gpus else line.amount
    share = amount[keep] * (np.minimum(line.end[keep], t1) - np.maximum(line.begin[keep], t0))
    jobs, place = np.unique(line.holder[keep], return_inverse=True)
    total = np.bincount(place, share, minlength=len(jobs))
    jobs, total = jobs[total > 0], total[total > 0]
    named = jobs[np.argsort(-total, kind="stable")[:MOST_NAMED]]
    return tuple(named.tolist()), len(jobs) - len(named)


def _notes(
    line: Timeline, wanted: RoomNeeds, window: tuple[float, float]
) -> tuple[tuple[str, float, float], ...]:
    """Return what was noted with the decisions of a time; of notes per GPU type those of the types
    that the job may use.
    """
    decision, code, names, value = line.notes
    low, high = np.searchsorted(decision, np.searchsorted(line.decided, window, "left"), "left")
    if low == high:
        return ()
    present, place = np.unique(code[low:high], return_inverse=True)
    types = [kind.name for kind in line.cluster.types]
    usable = {line.kinds[node] for node in np.flatnonzero(wanted.kinds >= 0).tolist()}
    families = note_families([names[at] for at in present.tolist()], types)
    shown = {
        name
        for family in families.values()
        for name, kind in family.items()
        if kind not in types or kind in usable
    }
    least, most = np.full((2, len(present)), np.inf)
    np.minimum.at(least, place, value[low:high])
    np.minimum.at(most, place, -value[low:high])
    made = zip(
        (names[at] for at in present.tolist()), least.tolist(), (-most).tolist(), strict=True
    )
    return tuple(one for one in made if one[0] in shown)[:MOST_NOTES]
