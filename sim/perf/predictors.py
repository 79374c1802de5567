"""Estimators that learn sizes and resources from the jobs that have finished so far: what they
share, and the simplest, the median of each user.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from math import exp, isnan, log

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.contract import Floats, Ints, JobId
from sim.overheads import Transitions
from sim.params import param
from sim.perf.estimators import SizeEstimator
from sim.perf.model import PerfModel
from sim.perf.resources import BoundResources, Predictor, learnt
from sim.trace import Trace


class LearnedEstimator(SizeEstimator):
    """True speeds over sizes that are predicted when somebody asks; of true sizes only those of
    finished jobs are looked at.

    Parameters
    ----------
    model : PerfModel
        Where speeds come from, and the sizes of finished jobs.
    transitions : Transitions
        Where pauses come from.
    jobs : int
        Number of jobs.
    predictor : Predictor
        The predictor.

    Notes
    -----
    What is learnt is the ideal run time: the work of a finished job over its rate on its own on the
    best type, which is comparable across models. A prediction stays, but for the doubling of every
    estimator that is outlived. A stand-in is replaced when an allocator asks whether the size is
    predictable, and it is by then.
    """

    def __init__(
        self, model: PerfModel, transitions: Transitions, jobs: int, predictor: Predictor
    ) -> None:
        super().__init__(model, transitions, np.full(jobs, np.nan), np.zeros(jobs))
        self._predictor = predictor
        self._fastest: Floats = np.nan_to_num(model.fastest(), nan=1.0)
        self._logs: Floats = np.log(model.work() / self._fastest)
        self._told = np.zeros(jobs, np.bool_)

    def remaining(self, ids: Ints, done: Floats) -> Floats:
        """Return predicted size minus work done, of shape (jobs,)."""
        for job in ids[np.isnan(self._totals[ids])].tolist():
            self._predict(job)
        return super().remaining(ids, done)

    def remaining_one(self, job: JobId, done: float) -> float:
        """Return the same for one job."""
        if isnan(self._total[job]):
            self._predict(job)
        return super().remaining_one(job, done)

    def predictable(self, ids: Ints, done: Floats) -> NDArray[np.bool_]:
        """Tell which sizes are predicted from enough finished jobs, or can be by now."""
        del done
        for job in ids[~self._told[ids]].tolist():
            if self._predictor.can_tell(job):
                self._predict(job)
        return self._told[ids]

    def observe(self, job: JobId, finish_s: float) -> None:
        """Learn the size of a finished job."""
        self._predictor.learn(job, float(self._logs[job]))

    def _predict(self, job: JobId) -> None:
        self._told[job] = self._predictor.can_tell(job)
        self._total[job] = self._first[job] = exp(self._predictor.predict(job)) * self._fastest[job]


@dataclass(frozen=True)
class PerUser:
    """A job is estimated as long, and to use as much, as the median of the jobs of its user that
    have finished; no jobs of this user yet: of all jobs.

    Notes
    -----
    Ideal run times, see `LearnedEstimator`. The size of a job is predictable once ``least`` jobs of
    its user have finished; until then it is the median of all jobs that have finished, or
    ``guess_s`` while there are none. Jobs without a user count as those of one.
    """

    least: int = param(
        1,
        title="Finished jobs needed",
        unit="jobs",
        low=1,
        high=1_000_000,
        help="Number of a user's jobs that must have finished before their median is used.",
    )
    guess_s: float = param(
        3600.0,
        title="Estimate before any finish",
        unit="s",
        low=1,
        high=1e7,
        help="Estimated ideal run time before any job has finished.",
    )

    def bind(
        self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int
    ) -> LearnedEstimator:
        """Bind to jobs and speeds; of sizes only those of finished jobs are looked at."""
        del seed
        return LearnedEstimator(
            model, transitions, len(trace), Medians(trace, self.least, self.guess_s)
        )

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> BoundResources:
        """Bind to what finished jobs have used."""
        del seed
        return learnt(model, lambda: Medians(trace, self.least))


class Medians:
    """The medians of finished jobs, of each user and of all: a `Predictor`.

    Parameters
    ----------
    trace : Trace
        Where users come from.
    least : int
        Finished jobs of a user from which on their own median is taken.
    guess : float
        What is predicted before anything has finished.
    """

    def __init__(self, trace: Trace, least: int, guess: float = 1.0) -> None:
        self._user: list[int] = numbered(trace, "user").tolist()
        self._least, self._guess = least, log(guess)
        self._all: list[float] = []
        self._own: dict[int, list[float]] = {}

    def learn(self, job: JobId, value: float) -> None:
        """Take in a finished job."""
        insort(self._all, value)
        insort(self._own.setdefault(self._user[job], []), value)

    def can_tell(self, job: JobId) -> bool:
        """Return whether enough jobs of the same user have finished."""
        return len(self._own.get(self._user[job], ())) >= self._least

    def predict(self, job: JobId) -> float:
        """Return the median of the user, else of all, else the guess."""
        known = self._own[self._user[job]] if self.can_tell(job) else self._all
        return _middle(known) if known else self._guess


def numbered(trace: Trace, column: str) -> NDArray[np.int64]:
    """Return the texts of a column as numbers in order of their first submission, so that nothing
    can be known of later ones; of shape (jobs,).
    """
    return np.asarray(pd.factorize(np.asarray(trace.texts(column).codes))[0], np.int64)


def _middle(ordered: list[float]) -> float:
    # `statistics.median` would copy and sort them first.
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
