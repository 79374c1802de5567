"""Estimators that learn work and resources from finished jobs; the simplest: user medians."""

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
from sim.perf.resources import BoundResources, Predictor, learned_resources
from sim.trace import Trace


class LearnedEstimator(SizeEstimator):
    """True rates, and work predicted on demand from finished jobs.

    Parameters
    ----------
    model : PerfModel
        Source of rates, and of the work of finished jobs.
    transitions : Transitions
        Source of pauses.
    jobs : int
        Number of jobs.
    predictor : Predictor
        The predictor.

    Notes
    -----
    The learned value is the ideal run time: the work of a finished job over its rate alone on the
    best type, which is comparable across models. A prediction stays, except that it doubles when
    the job outlives it. A stand-in is replaced when an allocator reads whether the work is
    predictable, and it is by then.
    """

    def __init__(
        self, model: PerfModel, transitions: Transitions, jobs: int, predictor: Predictor
    ) -> None:
        super().__init__(model, transitions, np.full(jobs, np.nan), np.zeros(jobs))
        self._predictor = predictor
        self._fastest: Floats = np.nan_to_num(model.fastest(), nan=1.0)
        self._logs: Floats = np.log(model.work() / self._fastest)
        self._is_predicted = np.zeros(jobs, np.bool_)

    def remaining(self, ids: Ints, done: Floats) -> Floats:
        """Return predicted work minus work done, of shape (jobs,); predict at the first read."""
        for job in ids[np.isnan(self._totals[ids])].tolist():
            self._predict(job)
        return super().remaining(ids, done)

    def remaining_one(self, job: JobId, done: float) -> float:
        """Return predicted work minus work done of one job; predict at the first read."""
        if isnan(self._total[job]):
            self._predict(job)
        return super().remaining_one(job, done)

    def predictable(self, ids: Ints, done: Floats) -> NDArray[np.bool_]:
        """Return a boolean per job: whether its prediction rests on enough finished jobs.

        Predicts the work of jobs for which this is true for the first time.
        """
        del done
        for job in ids[~self._is_predicted[ids]].tolist():
            if self._predictor.can_tell(job):
                self._predict(job)
        return self._is_predicted[ids]

    def observe(self, job: JobId, finish_s: float) -> None:
        """Learn the ideal run time of a finished job."""
        self._predictor.learn(job, float(self._logs[job]))

    def _predict(self, job: JobId) -> None:
        """Predict the work of a job and store it as first estimate and total."""
        self._is_predicted[job] = self._predictor.can_tell(job)
        self._total[job] = self._first[job] = exp(self._predictor.predict(job)) * self._fastest[job]


@dataclass(frozen=True)
class PerUser:
    """Median of the finished jobs of the same user, for run time and resources.

    If no job of this user has finished: median of all finished jobs.

    Notes
    -----
    Ideal run times, see `LearnedEstimator`. The work of a job is predictable once ``least`` jobs of
    its user have finished; until then it is the median of all finished jobs, or ``guess_s`` without
    any. Jobs without a user count as one user's.
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
        """Bind the estimator to jobs and rates; only the work of finished jobs is read."""
        del seed
        return LearnedEstimator(
            model, transitions, len(trace), Medians(trace, self.least, self.guess_s)
        )

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> BoundResources:
        """Bind the estimator to the resources of finished jobs."""
        del seed
        return learned_resources(model, lambda: Medians(trace, self.least))


class Medians:
    """Medians of finished jobs, per user and over all: a `Predictor`.

    Parameters
    ----------
    trace : Trace
        Source of the users.
    least : int
        Finished jobs of a user needed for their own median.
    guess : float
        Prediction before any job has finished.
    """

    def __init__(self, trace: Trace, least: int, guess: float = 1.0) -> None:
        self._user: list[int] = number_texts(trace, "user").tolist()
        self._least, self._guess = least, log(guess)
        self._all: list[float] = []
        self._own: dict[int, list[float]] = {}

    def learn(self, job: JobId, value: float) -> None:
        """Add the value of a finished job."""
        insort(self._all, value)
        insort(self._own.setdefault(self._user[job], []), value)

    def can_tell(self, job: JobId) -> bool:
        """Return True if enough jobs of the same user have finished."""
        return len(self._own.get(self._user[job], ())) >= self._least

    def predict(self, job: JobId) -> float:
        """Return the median of the user, else of all jobs, else the guess."""
        values = self._own[self._user[job]] if self.can_tell(job) else self._all
        return _median(values) if values else self._guess


def number_texts(trace: Trace, column: str) -> NDArray[np.int64]:
    """Return the texts of a column as numbers in order of first submission, of shape (jobs,).

    This order reveals nothing about later jobs.
    """
    return np.asarray(pd.factorize(np.asarray(trace.texts(column).codes))[0], np.int64)


def _median(ordered: list[float]) -> float:
    """Return the median of sorted values."""
    # `statistics.median` would copy and sort the values first.
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
