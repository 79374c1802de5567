"""Utility of a size for a job: progress in a look-ahead, speed-up, or time to completion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, frexp
from typing import Final, NamedTuple

from allocators.elastic.scaling import SizeOptions
from sim.contract import JobId, View

OBJECTIVES: Final = ("remaining", "total", "throughput", "etc")
_HOUR_S: Final = 3600.0
_SECOND_S: Final = 1.0  # shortest time to completion that counts, so no job outweighs all others
_FINEST: Final = 24  # bits of the largest value in steps: the resolution of the solvers
_ROUNDING: Final = 1e-3  # in steps: above the floating-point error
_PACE_GAP: Final = 1e-6  # relative step of the progress per second
_APART: Final = 2**12  # mean difference between the weights of jobs in the last tie-break


class JobValues(NamedTuple):
    """Weight, times to completion and speeds of a job at its sizes, at one instant.

    Parameters
    ----------
    weight : float
        Fairness weight.
    rest : float
        Value of the whole remaining job: 1, or under ``total`` its remaining over its whole work.
    etc_s : list of float
        Estimated seconds to completion at each size, without a pause.
    pause_s : float
        Estimated pause of a change of size; 0 for a waiting job.
    held : int
        Index of its present size; -1 = it waits.
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
    """Evaluates the sizes of jobs and stores the figures for their weights.

    Parameters
    ----------
    objective : str
        One of `OBJECTIVES`.
    phi : float
        Fairness: the weight of a job is 1 + phi x the hours from its submission to its first start.
    """

    def __init__(self, objective: str, phi: float) -> None:
        self._objective, self._phi = objective, phi
        self._whole_work: dict[JobId, float] = {}
        self._waited_s: dict[JobId, float] = {}

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Delete the records of finished or refused jobs."""
        for job in jobs:
            self._whole_work.pop(job, None)
            self._waited_s.pop(job, None)

    def record_first_start(self, view: View, job: JobId) -> None:
        """Record how long a job waited until its first start."""
        self._waited_s.setdefault(job, self._wait_s(view, job))

    def evaluate_job(self, view: View, option: SizeOptions) -> JobValues:
        """Return the weight, times to completion and speeds of a job at its sizes.

        Under ``total`` it also records the whole work of a job when first seen.
        """
        job, left = option.job, view.one("remaining_work", option.job)
        grant = view.grants[job] if option.held else None
        # The nodes of another size are not known yet, so a restart in place is assumed.
        pause_s = view.estimates.pause_s(job, grant, grant) if grant else 0.0
        rest = left / self._whole_work.setdefault(job, left) if self._objective == "total" else 1.0
        held = option.sizes.index(option.held) if option.held else -1
        return JobValues(
            self._weight(view, option),
            rest,
            [left / rate for rate in option.rates],
            pause_s,
            held,
            option.rates,
        )

    def _weight(self, view: View, option: SizeOptions) -> float:
        """Return the fairness weight of a job: 1 + phi x hours from submission to first start.

        A running job without a recorded start counts as not having waited.
        """
        if not self._phi:
            return 1.0
        waits_s = self._waited_s.get(option.job)
        if waits_s is None:
            waits_s = 0.0 if option.held else self._wait_s(view, option.job)
        return 1.0 + self._phi * waits_s / _HOUR_S

    def _wait_s(self, view: View, job: JobId) -> float:
        """Return the seconds since the submission of a job; 0 if it has run before."""
        # A job started earlier by another policy has no known first start: it counts as not having
        # waited.
        return 0.0 if view.one("served_gpu_s", job) else view.now_s - view.one("arrival_s", job)


def progress(offer: JobValues, window_s: float) -> list[float]:
    """Return the share of the remaining job done within the window, at each size.

    p(k) = min(1, max(0, window - pause) / ETC(k)); only a change of size costs the pause.
    """
    left_s, held, whole_s = max(0.0, window_s - offer.pause_s), offer.held, window_s
    return [
        min(1.0, (whole_s if at == held else left_s) / etc_s)
        for at, etc_s in enumerate(offer.etc_s)
    ]


def values(objective: str, offers: Sequence[JobValues], window_s: float) -> list[list[float]]:
    """Return the utility of each size of each job.

    Notes
    -----
    ``remaining``: w p(k). ``total``: w p(k) x remaining work / whole work. ``throughput``: w x
    speed at k over speed at the job's smallest size. ``etc``: w (M - ETC(k)), which minimizes the
    sum of w ETC over jobs that run and w M over jobs that wait, see `price_of_waiting`; ETC
    contains the pause of a change.
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


def price_of_waiting(offers: Sequence[JobValues]) -> float:
    """Return M, the cost in seconds of a job that waits.

    It is twice the longest estimated time to completion of any job at any size, so that starting a
    job gains at least as much as any other job can lose by making room for it.
    """
    return 2 * max([max(_with_pause(offer)) for offer in offers], default=0.0)


def _with_pause(offer: JobValues) -> list[float]:
    """Return the times to completion at each size, with the pause of a change."""
    return [
        etc_s if at == offer.held else etc_s + offer.pause_s for at, etc_s in enumerate(offer.etc_s)
    ]


def paces(offers: Sequence[JobValues], window_s: float) -> list[list[float]]:
    """Return the progress per second at each size, times the window.

    w x remaining share p(k) x window / min(window, pause + ETC(k))

    Notes
    -----
    If a job would finish within the window at several sizes, p is 1 at all of them, and this
    prefers the size that finishes sooner.
    """
    paces_of_jobs = []
    for offer in offers:
        weight, times_s = offer.weight * offer.rest * window_s, _with_pause(offer)
        shares = progress(offer, window_s)
        paces_of_jobs.append(
            [
                weight * p / max(_SECOND_S, min(window_s, t_s))
                for p, t_s in zip(shares, times_s, strict=True)
            ]
        )
    return paces_of_jobs


def in_steps(numbers: Sequence[Sequence[float]], gap: float) -> list[list[float]]:
    """Round values down to whole steps, so that all solvers see the same values as equal.

    Notes
    -----
    A step is the largest power of two up to ``gap`` times the largest value, but at least 2^-24 of
    it. Rounding down means that two halves never count more than the whole: jobs that scale
    perfectly run one after the other rather than all at half speed.
    """
    most = max([abs(value) for row in numbers for value in row], default=0.0)
    bits = min(_FINEST, 2 - frexp(gap)[1]) if gap > 0 else _FINEST
    step = 2.0 ** (frexp(most)[1] - bits)
    return [[float(floor(value / step + _ROUNDING)) for value in row] for row in numbers]


def ties(
    offers: Sequence[JobValues], options: Sequence[SizeOptions], window_s: float
) -> list[list[list[float]]]:
    """Return three tie-break levels: progress per second, unchanged sizes, submission order.

    Parameters
    ----------
    offers : sequence of Offer
        The jobs.
    options : sequence of SizeOptions
        Their sizes and ids; ids are in order of submission.
    window_s : float, seconds
        The look-ahead.

    Notes
    -----
    All values are whole numbers. The last level weighs units, so that the jobs submitted first get
    most. Its weights fall from job to job by pseudo-random steps, so that two choices hardly ever
    have the same weight.
    """
    kept = [[float(place == offer.held) for place in range(len(offer.etc_s))] for offer in offers]
    rank = {job: at for at, job in enumerate(sorted([option.job for option in options]))}
    weights = [
        (len(rank) - rank[option.job]) * _APART + _hash_rank(rank[option.job]) for option in options
    ]
    order = [
        [float(weight * size) for size in option.sizes]
        for weight, option in zip(weights, options, strict=True)
    ]
    return [in_steps(paces(offers, window_s), _PACE_GAP), kept, order]


def _hash_rank(rank: int) -> int:
    """Return a pseudo-random but fixed number below `_APART` (Knuth's multiplicative hash)."""
    return (rank + 1) * 2_654_435_761 % 2**32 // (2**32 // _APART)
