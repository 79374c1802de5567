"""The utility of a size for a job, by the four objectives of the elastic program: progress in a
look-ahead, speed, or remaining time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, frexp
from typing import Final, NamedTuple

from allocators.elastic.scaling import SizeOptions
from sim.contract import JobId, View

OBJECTIVES: Final = ("remaining", "total", "throughput", "etc")
_HOUR_S: Final = 3600.0
_SECOND_S: Final = (
    1.0  # nothing counts as done sooner: a job in its last moments would outweigh all others
)
_FINEST: Final = 24  # bits of the largest value in steps: solvers tell no more apart
_ROUNDING: Final = 1e-3  # of a step: more than floating point is off by
_PACE_GAP: Final = 1e-6  # relative step of the progress per second
_APART: Final = 2**12  # by about this much the weights of jobs in the last tie-break differ


class Offer(NamedTuple):
    """A job at one instant.

    Parameters
    ----------
    weight : float
        Fairness weight.
    rest : float
        What the whole remaining job counts: 1, or under ``total`` its remaining over its whole
        work.
    etc_s : list of float
        Estimated seconds to completion at each size, without a pause.
    pause_s : float
        Estimated pause of a change of size; 0 for a waiting job.
    held : int
        Place of the size it has; -1 = it waits.
    speeds : tuple of float
        Work per second at each size.
    """

    weight: float
    rest: float
    etc_s: list[float]
    pause_s: float
    held: int
    speeds: tuple[float, ...]


class Utility:
    """Values sizes, and remembers of each job what its weight needs.

    Parameters
    ----------
    objective : str
        One of `OBJECTIVES`.
    phi : float
        Fairness: the weight of a job is 1 + phi x the hours from its submission to its first start.
    """

    def __init__(self, objective: str, phi: float) -> None:
        self._objective, self._phi = objective, phi
        self._whole: dict[JobId, float] = {}
        self._waited_s: dict[JobId, float] = {}

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Drop what is known of jobs that are gone."""
        for job in jobs:
            self._whole.pop(job, None)
            self._waited_s.pop(job, None)

    def started(self, view: View, job: JobId) -> None:
        """Take in that a waiting job starts: if it is its first start, it has waited until now."""
        self._waited_s.setdefault(job, self._waits_s(view, job))

    def offer(self, view: View, option: SizeOptions) -> Offer:
        """Consider a job."""
        job, left = option.job, view.one("remaining_work", option.job)
        grant = view.grants[job] if option.held else None
        # Where another size would be placed is not known yet: a restart in place stands for it.
        pause_s = view.estimates.pause_s(job, grant, grant) if grant else 0.0
        rest = left / self._whole.setdefault(job, left) if self._objective == "total" else 1.0
        held = option.sizes.index(option.held) if option.held else -1
        return Offer(
            self._weight(view, option),
            rest,
            [left / rate for rate in option.rates],
            pause_s,
            held,
            option.rates,
        )

    def _weight(self, view: View, option: SizeOptions) -> float:
        if not self._phi:
            return 1.0
        waits_s = self._waited_s.get(option.job)
        if waits_s is None:
            waits_s = 0.0 if option.held else self._waits_s(view, option.job)
        return 1.0 + self._phi * waits_s / _HOUR_S

    def _waits_s(self, view: View, job: JobId) -> float:
        # Who has held GPUs before we knew of it was started by another policy, nobody knows when:
        # it counts as not having waited.
        return 0.0 if view.one("served_gpu_s", job) else view.now_s - view.one("arrival_s", job)


def progress(offer: Offer, window_s: float) -> list[float]:
    """Return p(k) = min(1, max(0, window - pause) / ETC(k)), the share of the remaining job done
    within the window; only a change costs the pause.
    """
    left_s, held, whole_s = max(0.0, window_s - offer.pause_s), offer.held, window_s
    return [
        min(1.0, (whole_s if at == held else left_s) / etc_s)
        for at, etc_s in enumerate(offer.etc_s)
    ]


def values(objective: str, offers: Sequence[Offer], window_s: float) -> list[list[float]]:
    """Return the utility of each size of each job.

    Notes
    -----
    ``remaining``: w p(k). ``total``: w p(k) x remaining work / whole work. ``throughput``: w x
    speed at k over speed at the job's smallest size. ``etc``: w (M - ETC(k)), so that the greatest
    sum has the least sum of w ETC over those served and w M over those not, see `price_of_waiting`;
    ETC contains the pause of a change.
    """
    if objective == "throughput":
        return [
            [offer.weight * speed / offer.speeds[0] for speed in offer.speeds] for offer in offers
        ]
    if objective == "etc":
        price = price_of_waiting(offers)
        return [
            [offer.weight * (price - etc_s) for etc_s in _with_pause(offer)] for offer in offers
        ]
    return [
        [offer.weight * offer.rest * share for share in progress(offer, window_s)]
        for offer in offers
    ]


def price_of_waiting(offers: Sequence[Offer]) -> float:
    """Return M, the seconds that a job counts which gets nothing: twice the longest estimated time
    to completion of any job at any of its sizes.

    To start a job is then worth at least as much as any one other job can lose by making room for
    it.
    """
    return 2 * max([max(_with_pause(offer)) for offer in offers], default=0.0)


def _with_pause(offer: Offer) -> list[float]:
    return [
        etc_s if at == offer.held else etc_s + offer.pause_s for at, etc_s in enumerate(offer.etc_s)
    ]


def paces(offers: Sequence[Offer], window_s: float) -> list[list[float]]:
    """Return the progress per second, times the window, at each size: w x remaining share p(k) x
    window / min(window, pause + ETC(k)).

    Notes
    -----
    Where a job would be done within the window at several sizes, p is 1 at all of them, and this
    prefers the one that is done sooner.
    """
    found = []
    for offer in offers:
        weight, times_s = offer.weight * offer.rest * window_s, _with_pause(offer)
        shares = progress(offer, window_s)
        found.append(
            [
                weight * p / max(_SECOND_S, min(window_s, t_s))
                for p, t_s in zip(shares, times_s, strict=True)
            ]
        )
    return found


def in_steps(numbers: Sequence[Sequence[float]], gap: float) -> list[list[float]]:
    """Return values as whole numbers of steps, so that all solvers see the same values as equal.

    Notes
    -----
    A step is the largest power of two up to ``gap`` times the largest value, but no less than 2^-24
    of it. Values are rounded down, so that two halves never count more than the whole: jobs that
    scale perfectly run one after the other rather than all at half speed.
    """
    most = max([abs(value) for row in numbers for value in row], default=0.0)
    bits = min(_FINEST, 2 - frexp(gap)[1]) if gap > 0 else _FINEST
    step = 2.0 ** (frexp(most)[1] - bits)
    return [[float(floor(value / step + _ROUNDING)) for value in row] for row in numbers]


def ties(
    offers: Sequence[Offer], options: Sequence[SizeOptions], window_s: float
) -> list[list[list[float]]]:
    """Return what decides between choices of the same value: progress per second, then the fewest
    changes, at last the order of submission.

    Parameters
    ----------
    offers : sequence of Offer
        The jobs.
    options : sequence of Option
        Their sizes, and their ids, which are in order of submission.
    window_s : float, seconds
        The look-ahead.

    Notes
    -----
    All are whole numbers. The last weighs units, so that the jobs submitted first get most; its
    weights fall from job to job by steps that are as good as random, so that two choices hardly
    ever weigh the same.
    """
    kept = [[float(place == offer.held) for place in range(len(offer.etc_s))] for offer in offers]
    rank = {job: at for at, job in enumerate(sorted([option.job for option in options]))}
    weights = [
        (len(rank) - rank[option.job]) * _APART + _scattered(rank[option.job]) for option in options
    ]
    order = [
        [float(weight * size) for size in option.sizes]
        for weight, option in zip(weights, options, strict=True)
    ]
    return [in_steps(paces(offers, window_s), _PACE_GAP), kept, order]


def _scattered(rank: int) -> int:
    """Return a number below `_APART` that is as good as random but always the same (Knuth's
    multiplicative hash).
    """
    return (rank + 1) * 2_654_435_761 % 2**32 // (2**32 // _APART)
