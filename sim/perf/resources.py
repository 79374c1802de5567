"""Estimates of the cores and memory that jobs use: exact, distorted, learnt from finished jobs, or
unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from typing import Protocol

import numpy as np

from sim.contract import Floats, JobId, Resources
from sim.perf.model import Needing, PerfModel

RESOURCES_STREAM = 6


class Predictor(Protocol):
    """Predicts one quantity of jobs, as its natural logarithm, from those of finished ones: the
    ideal run time in seconds, cores or GB of a replica.
    """

    def learn(self, job: JobId, value: float) -> None:
        """Take in a finished job."""
        ...

    def can_tell(self, job: JobId) -> bool:
        """Return whether enough has finished for a prediction of this job; before that, what is
        predicted is a stand-in.
        """
        ...

    def predict(self, job: JobId) -> float:
        """Return the prediction."""
        ...


class BoundResources(Protocol):
    """An estimator of resources as the simulator uses it; bound only for allocators that read
    resources.
    """

    def of(self, job: JobId) -> Resources | None:
        """Return the present estimate of what a job uses; None = there is none yet."""
        ...

    def observe(self, job: JobId) -> None:
        """Learn from a finished job, before the decision of that instant."""
        ...


class KnownResources:
    """Resources that are known, truly or wrongly, before any job has run.

    Parameters
    ----------
    known : array of shape (jobs, 4), or None
        The columns of `Resources`; None = of no job.
    """

    def __init__(self, known: Floats | None = None) -> None:
        self._known = known

    def of(self, job: JobId) -> Resources | None:
        """Return the resources of a job."""
        return None if self._known is None else Resources(*self._known[job].tolist())

    def observe(self, job: JobId) -> None:
        """Learn nothing."""


class Learnt:
    """Resources predicted on demand, one by one, from those that finished jobs have used.

    Parameters
    ----------
    true : array of shape (jobs, 4)
        What jobs use; only rows of finished jobs are looked at, but for which of their values are
        0.
    predictor : callable
        Makes a fresh predictor; each resource has its own.

    Notes
    -----
    What is learnt is the natural logarithm of what the job used as its user asked for it, which is
    comparable between jobs that ran with other replicas. A job without servers teaches nothing of
    them, nor does one whose memory is not modelled.
    """

    def __init__(self, true: Floats, predictor: Callable[[], Predictor]) -> None:
        self._true = true
        self._predictors = [predictor() for _ in Resources._fields]
        self._taught = [False] * len(self._predictors)

    def of(self, job: JobId) -> Resources | None:
        """Return what is predicted of a job; None until every resource that it has was seen in
        use.
        """
        there = [value > 0 for value in self._true[job].tolist()]
        if any(has and not taught for has, taught in zip(there, self._taught, strict=True)):
            return None
        return Resources(
            *(
                exp(one.predict(job)) if has else 0.0
                for has, one in zip(there, self._predictors, strict=True)
            )
        )

    def observe(self, job: JobId) -> None:
        """Learn what a finished job used."""
        for at, used in enumerate(self._true[job].tolist()):
            if used > 0:
                self._predictors[at].learn(job, log(used))
                self._taught[at] = True


class Noted:
    """An estimator of resources that keeps the first estimate for each job.

    Parameters
    ----------
    bound : BoundResources
        The estimator.
    true : array of shape (jobs, 4), or None
        What jobs use; looked at after the run.
    """

    def __init__(self, bound: BoundResources, true: Floats | None) -> None:
        self._bound, self._true = bound, true
        self._first: dict[JobId, Resources] = {}

    def of(self, job: JobId) -> Resources | None:
        """Return the present estimate for a job."""
        estimate = self._bound.of(job)
        if estimate is not None:
            self._first.setdefault(job, estimate)
        return estimate

    def remarks(self) -> tuple[str, ...]:
        """Say how near the first estimates came to the truth, unless there were none or all were
        exact.
        """
        if not self._first or self._true is None:
            return ()
        first, true = np.array(list(self._first.values())), self._true[list(self._first)]
        off = np.abs(np.log(np.divide(first, true, out=np.ones_like(true), where=true > 0)))
        if off.max() < _EXACT:
            return ()
        halves = [
            (name, off[used > 0, at])
            for at, (name, used) in enumerate(zip(_NAMES, true.T, strict=True))
        ]
        said = ", ".join(
            f"{exp(np.median(values)):.2f} for {name}" for name, values in halves if len(values)
        )
        jobs = "1 job" if len(first) == 1 else f"{len(first):,} jobs"
        return (
            (
                f"First estimates of the cores and memory of {jobs}, against what they use:"
                f" half of it is within a factor of {said}."
            ),
        )


_EXACT = 1e-9
_NAMES = ("cores of workers", "their GB", "cores of servers", "their GB")


def true_resources(model: PerfModel) -> Floats | None:
    """Return what jobs use as the performance model has it; None under a model that does not
    know.
    """
    return model.resources() if isinstance(model, Needing) else None


def distorted(
    model: PerfModel, factor: Callable[[tuple[int, int]], Floats | float]
) -> KnownResources:
    """Return the truth times a factor, which may be drawn for its shape (jobs, 4)."""
    true = true_resources(model)
    return KnownResources(
        None if true is None else true * factor((len(true), len(Resources._fields)))
    )


def noise(seed: int, shape: tuple[int, int]) -> Floats:
    """Return standard normal numbers of a stream of their own, one for each job and resource."""
    return np.random.default_rng([seed, RESOURCES_STREAM]).standard_normal(shape)


def learnt(model: PerfModel, predictor: Callable[[], Predictor]) -> BoundResources:
    """Return what is learnt from finished jobs; nothing under a model that does not know what they
    use.
    """
    true = true_resources(model)
    return KnownResources() if true is None else Learnt(true, predictor)
