"""Estimates of jobs' cores and memory: exact, distorted, learned from finished jobs, or none."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from typing import Protocol

import numpy as np

from sim.contract import Floats, JobId, Resources
from sim.perf.model import Needing, PerfModel

RESOURCES_STREAM = 6


class Predictor(Protocol):
    """Predicts the logarithm of one quantity of jobs from finished ones.

    The quantity is the ideal run time in seconds, or cores or GB of a replica.
    """

    def learn(self, job: JobId, value: float) -> None:
        """Learn the value of a finished job."""
        ...

    def can_tell(self, job: JobId) -> bool:
        """Return True if enough jobs have finished to predict this one.

        Before that, the prediction is a stand-in.
        """
        ...

    def predict(self, job: JobId) -> float:
        """Return the predicted logarithm of a job's value."""
        ...


class BoundResources(Protocol):
    """An estimator of resources bound to a run, for allocators that read resources."""

    def estimate(self, job: JobId) -> Resources | None:
        """Return the current estimate of a job's resources; None = no estimate yet."""
        ...

    def observe(self, job: JobId) -> None:
        """Learn from a finished job, before the decision of that instant."""
        ...


class KnownResources:
    """Resources that are given, correctly or not, before any job runs.

    Parameters
    ----------
    resources : array of shape (jobs, 4), or None
        The columns of `Resources`; None = no estimates.
    """

    def __init__(self, resources: Floats | None = None) -> None:
        self._resources = resources

    def estimate(self, job: JobId) -> Resources | None:
        """Return the given resources of a job, or None."""
        return None if self._resources is None else Resources(*self._resources[job].tolist())

    def observe(self, job: JobId) -> None:
        """Ignore a finished job: nothing is learned."""


class LearnedResources:
    """Resources predicted for each job from the use of finished jobs.

    Parameters
    ----------
    true : array of shape (jobs, 4)
        True resources; only rows of finished jobs are read, except whether values are 0.
    predictor : callable
        Returns a new predictor; each resource has its own.

    Notes
    -----
    The learned value is the natural logarithm of the use under the requested replicas, which is
    comparable between jobs that ran with other replicas. A job without servers is not used to
    learn servers, and a job without modelled memory not to learn memory.
    """

    def __init__(self, true: Floats, predictor: Callable[[], Predictor]) -> None:
        self._true = true
        self._predictors = [predictor() for _ in Resources._fields]
        self._has_learned = [False] * len(self._predictors)

    def estimate(self, job: JobId) -> Resources | None:
        """Return the predicted resources of a job; None until each of them was learned once."""
        is_used = [value > 0 for value in self._true[job].tolist()]
        if any(has and not taught for has, taught in zip(is_used, self._has_learned, strict=True)):
            return None
        return Resources(
            *(
                exp(one.predict(job)) if has else 0.0
                for has, one in zip(is_used, self._predictors, strict=True)
            )
        )

    def observe(self, job: JobId) -> None:
        """Learn those resources of a finished job that are above 0."""
        for index, used in enumerate(self._true[job].tolist()):
            if used > 0:
                self._predictors[index].learn(job, log(used))
                self._has_learned[index] = True


class RecordedResources:
    """An estimator of resources that records the first estimate of each job.

    Parameters
    ----------
    bound : BoundResources
        The estimator.
    true : array of shape (jobs, 4), or None
        True resources; read after the run.
    """

    def __init__(self, bound: BoundResources, true: Floats | None) -> None:
        self._bound, self._true = bound, true
        self._first: dict[JobId, Resources] = {}

    def estimate(self, job: JobId) -> Resources | None:
        """Return the current estimate of a job, recording the first one."""
        estimate = self._bound.estimate(job)
        if estimate is not None:
            self._first.setdefault(job, estimate)
        return estimate

    def remarks(self) -> tuple[str, ...]:
        """Return a sentence on the error of the first estimates; () if none or all exact."""
        if not self._first or self._true is None:
            return ()
        first, true = np.array(list(self._first.values())), self._true[list(self._first)]
        errors = np.abs(np.log(np.divide(first, true, out=np.ones_like(true), where=true > 0)))
        if errors.max() < _EXACT:
            return ()
        errors_by_name = [
            (name, errors[used > 0, index])
            for index, (name, used) in enumerate(zip(_NAMES, true.T, strict=True))
        ]
        factors = ", ".join(
            f"{exp(np.median(values)):.2f} for {name}"
            for name, values in errors_by_name
            if len(values)
        )
        jobs = "1 job" if len(first) == 1 else f"{len(first):,} jobs"
        return (
            (
                f"First estimates of the cores and memory of {jobs}, against what they use:"
                f" half of them are within a factor of {factors}."
            ),
        )


_EXACT = 1e-9
_NAMES = ("cores of workers", "their GB", "cores of servers", "their GB")


def true_resources(model: PerfModel) -> Floats | None:
    """Return the true resources of all jobs, or None if the model does not know them."""
    return model.resources() if isinstance(model, Needing) else None


def distorted_resources(
    model: PerfModel, factor: Callable[[tuple[int, int]], Floats | float]
) -> KnownResources:
    """Return estimates: the true resources times a factor, which may have shape (jobs, 4)."""
    true = true_resources(model)
    return KnownResources(
        None if true is None else true * factor((len(true), len(Resources._fields)))
    )


def resource_noise(seed: int, shape: tuple[int, int]) -> Floats:
    """Return standard normal numbers per job and resource, from their own random stream."""
    return np.random.default_rng([seed, RESOURCES_STREAM]).standard_normal(shape)


def learned_resources(model: PerfModel, predictor: Callable[[], Predictor]) -> BoundResources:
    """Return an estimator that learns from finished jobs; empty if the model has no resources."""
    true = true_resources(model)
    return KnownResources() if true is None else LearnedResources(true, predictor)
