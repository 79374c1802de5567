"""The loop of Gavel's published simulator, written anew from its description, job by job and round
by round: a second witness of the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from numpy.typing import NDArray

ROUND_S, RECOMPUTE_S = 360.0, 1920.0
Shares = Callable[[list[int]], NDArray[Any]]


class Job(NamedTuple):
    arrival_s: float
    gang: int
    steps: float
    rates: tuple[float, ...]


class Loop:
    """Who runs where, from round to round; types are in order, the fastest first.

    ``shares`` gives the jobs that are there their shares of time, of shape (jobs, types); ``order``
    shuffles the types in every round. With ``whole`` jobs stop, and rounds end, with the last whole
    iteration, as published; otherwise only what counts as time received is so rounded. Arrivals are
    those of the trace's own clock, which this one starts with: at 0 it takes shares for never
    computed. With ``fifo`` jobs without a share never run.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        devices: Sequence[int],
        shares: Shares,
        order: Random | None,
        *,
        whole: bool,
        fifo: bool = False,
    ) -> None:
        self.jobs, self.devices, self.shares, self.order = jobs, devices, shares, order
        self.whole, self.fifo = whole, fifo
        self.left = [job.steps for job in jobs]
        self.finish_s: dict[int, float] = {}
        self.now_s = self.computed_s = self.busy_gpu_s = 0.0
        self.over_s: float | None = None
        self.changed = False
        self.got, self.owed, self.share = (dict[int, list[float]]() for _ in range(3))

    def run(self) -> tuple[float, float, float]:
        """Return average completion time and makespan in hours, and utilisation."""
        here: list[int] = []
        coming = list(range(len(self.jobs)))
        while len(self.finish_s) < len(self.jobs):
            self.now_s = self.now_s if here else max(self.now_s, self.jobs[coming[0]].arrival_s)
            while coming and self.jobs[coming[0]].arrival_s <= self.now_s:
                here.append(coming.pop(0))
                self.changed = True
            self._recompute(here)
            self._round([(job, kind) for job, kind in self._winners(here) if job in self.share])
            self.changed = self.changed or any(job in self.finish_s for job in here)
            here = [job for job in here if job not in self.finish_s]
        total_s = sum(self.finish_s[at] - job.arrival_s for at, job in enumerate(self.jobs))
        return (
            total_s / len(self.jobs) / 3600,
            self.now_s / 3600,
            self.busy_gpu_s / (self.now_s * sum(self.devices)),
        )

    def _recompute(self, here: list[int]) -> None:
        since_s, nobody = self.now_s - self.computed_s, not any(job in self.share for job in here)
        if not self.changed or (since_s < RECOMPUTE_S and self.computed_s > 0 and not nobody):
            return
        fresh = [0.0] * len(self.devices)
        head_start_s = ROUND_S / 2
        for job in here:
            had = zip(
                self.owed.get(job, fresh),
                self.share.get(job, fresh),
                self.got.get(job, [head_start_s] * len(fresh)),
                strict=True,
            )
            self.owed[job] = [
                owed + share * since_s - (got - head_start_s) for owed, share, got in had
            ]
            self.got[job] = [head_start_s] * len(fresh)
        self.share = dict(zip(here, self.shares(here).tolist(), strict=True))
        self.computed_s, self.changed = self.now_s, False

    def _winners(self, here: list[int]) -> list[tuple[int, int]]:
        kinds = list(range(len(self.devices)))
        if self.order:
            self.order.shuffle(kinds)
        won: dict[int, int] = {}
        for kind in kinds:
            free = self.devices[kind]
            for job in sorted(here, key=partial(self._behind, kind)):
                if self.fifo and not self._behind(kind, job)[0]:
                    continue
                if (
                    job not in won
                    and self.jobs[job].rates[kind] > 0
                    and self.jobs[job].gang <= free
                ):
                    won[job] = kind
                    free -= self.jobs[job].gang
        return list(won.items())

    def _behind(self, kind: int, job: int) -> tuple[float, float, float]:
        if job not in self.share:
            return 0.0, 0.0, 0.0
        share = self.share[job][kind]
        return -share / self.got[job][kind], -self.owed[job][kind], -share

    def _round(self, running: list[tuple[int, int]]) -> None:
        ends_s = []
        # What a job received counts from the end of the round before, even if nobody ran since.
        idle_s = 0.0 if self.over_s is None else self.now_s - self.over_s
        for job, kind in running:
            rate = self.jobs[job].rates[kind]
            steps = min(
                int(rate * ROUND_S + 1e-6) if self.whole else rate * ROUND_S, self.left[job]
            )
            self.left[job] -= steps
            ends_s.append(self.now_s + steps / rate)
            self.busy_gpu_s += steps / rate * self.jobs[job].gang
            self.got[job][kind] += int(steps + 1e-6) / rate + idle_s
            if self.left[job] <= 1e-6:
                self.finish_s[job] = ends_s[-1]
        self.now_s = self.over_s = max(ends_s)
