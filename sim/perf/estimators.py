"""Estimators of work, rates and resources for allocators: exact, noisy, biased or unknown.

Prediction error is a parameter, not a code path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.contract import Floats, Grant, Ints, JobId, Shape
from sim.errors import RateError
from sim.overheads import Transitions
from sim.params import param
from sim.perf.model import PerfModel
from sim.perf.resources import (
    BoundResources,
    KnownResources,
    distorted_resources,
    resource_noise,
    true_resources,
)
from sim.trace import Trace

ESTIMATE_STREAM = 3


class BoundEstimator(Protocol):
    """An estimator bound to a run.

    Allocators see only the part in `sim.contract.Estimates`.
    """

    def rate(self, job: JobId, grant: Grant) -> float:
        """Return the estimated work per second under a grant."""
        ...

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return estimated work per second, of shape (jobs, shapes)."""
        ...

    def pause_s(self, job: JobId, old: Grant | None, new: Grant, *, restarted: bool) -> float:
        """Return the estimated pause of a change of grant, in seconds.

        Parameters
        ----------
        job : int
            Row of the job.
        old : Grant or None
            Current grant; None = a start.
        new : Grant
            Next grant.
        restarted : bool
            Whether a start is a restart, because the job runs or ran before.
        """
        ...

    def remaining(self, ids: Ints, done: Floats) -> Floats:
        """Return the estimated work left, given the work done; both of shape (jobs,)."""
        ...

    def remaining_one(self, job: JobId, done: float) -> float:
        """Return the estimated work left of one job."""
        ...

    def predictable(self, ids: Ints, done: Floats) -> NDArray[np.bool_]:
        """Return a boolean per job: whether its work is predictable yet, given the work done."""
        ...

    def first_estimates(self) -> Floats:
        """Return the first estimate of each job's work, of shape (jobs,); NaN = never read."""
        ...

    def observe(self, job: JobId, finish_s: float) -> None:
        """Learn from a finished job, before the decision of that instant."""
        ...


class EstimatorSpec(Protocol):
    """An estimator chosen by the user: a dataclass of parameters.

    ``chance = True``: it draws random numbers.
    """

    def bind(
        self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int
    ) -> BoundEstimator:
        """Bind the estimator to the true values that it distorts.

        Parameters
        ----------
        model : PerfModel
            The true performance model.
        trace : Trace
            The jobs: columns that a predictor may read, and recorded run times.
        transitions : Transitions
            Source of pauses.
        seed : int
            Seed of the noise.
        """
        ...

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> BoundResources:
        """Bind the estimates of cores and memory; see `bind`."""
        ...


@dataclass(frozen=True)
class Exact:
    """Policies know the true run time and needs of every job."""

    def bind(
        self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int
    ) -> SizeEstimator:
        """Bind the estimator to the true work."""
        del seed
        return SizeEstimator(model, transitions, model.work().copy(), _predictable_after(trace))

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> KnownResources:
        """Return the true resources."""
        del trace, seed
        return KnownResources(true_resources(model))


@dataclass(frozen=True)
class Noisy:
    """Estimates are wrong by a random factor per job (log-normal, median 1).

    Cores and memory have their own factors.
    """

    chance: ClassVar[bool] = True

    sigma: float = param(
        0.3,
        title="Error (sigma)",
        low=0,
        high=5,
        help=("Standard deviation of the natural logarithm of the estimated over the true size."),
    )

    def bind(
        self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int
    ) -> SizeEstimator:
        """Bind the estimator to the true work times the noise of this seed."""
        work = model.work()
        drawn = np.random.default_rng([seed, ESTIMATE_STREAM]).standard_normal(len(work))
        return SizeEstimator(
            model, transitions, work * np.exp(self.sigma * drawn), _predictable_after(trace)
        )

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> KnownResources:
        """Return the true resources times the noise of this seed."""
        del trace
        return distorted_resources(
            model, lambda shape: np.exp(self.sigma * resource_noise(seed, shape))
        )


@dataclass(frozen=True)
class Biased:
    """Estimates are wrong by one factor, the same for all jobs."""

    factor: float = param(
        1.5,
        title="Estimated over true size",
        low=0.001,
        high=1000,
        help="Estimated size over true size.",
    )

    def bind(
        self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int
    ) -> SizeEstimator:
        """Bind the estimator to a multiple of the true work."""
        del seed
        return SizeEstimator(
            model, transitions, model.work() * self.factor, _predictable_after(trace)
        )

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> KnownResources:
        """Return a multiple of the true resources."""
        del trace, seed
        return distorted_resources(model, lambda _: self.factor)


@dataclass(frozen=True)
class Unknown:
    """Run times are unknown: one guess for all jobs, doubled when a job outlives it."""

    guess_s: float = param(
        3600.0,
        title="Estimate for every job",
        unit="s",
        low=1,
        high=1e7,
        help="Estimated run time of every job on the GPUs it asks for.",
    )

    def bind(
        self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int
    ) -> SizeEstimator:
        """Bind the estimator to one guessed run time for all jobs; none is predictable."""
        del seed
        guesses = self.guess_s * (model.work() / trace.numbers("duration_s"))
        return SizeEstimator(model, transitions, guesses, np.full(len(trace), np.inf))

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> KnownResources:
        """Return a source without any estimates of resources."""
        del model, trace, seed
        return KnownResources()


def _predictable_after(trace: Trace) -> Floats:
    """Return the share of work after which each job is predictable; 0 = at once."""
    return trace.numbers("predictable_after", 0.0)


class SizeEstimator:
    """Estimated total work per job with true rates; an outlived total doubles.

    Parameters
    ----------
    model : PerfModel
        Source of rates.
    transitions : Transitions
        Source of pauses.
    totals : array of shape (jobs,)
        Estimated total work; changed in place as jobs outlive it.
    predictable_after : array of shape (jobs,)
        Share of the work after which the total of a job is predictable; above 1 = never.
    """

    def __init__(
        self, model: PerfModel, transitions: Transitions, totals: Floats, predictable_after: Floats
    ) -> None:
        self._model, self._transitions = model, transitions
        self._totals, self._first = totals, totals.copy()
        self._predictable_at: Floats = np.where(
            predictable_after <= 1, predictable_after * model.work(), np.inf
        )
        self._total: memoryview[float] = memoryview(totals)  # type: ignore[arg-type]

    def rate(self, job: JobId, grant: Grant) -> float:
        """Return the true rate of a job at its start under a grant."""
        return self._model.rate(job, grant, 0.0, 0.0).work_per_s

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return the true rates before placement.

        Raises
        ------
        RateError
            If one of them is infinite or not a number.
        """
        rates = self._model.rates(ids, shapes)
        if not np.isfinite(rates).all():
            row, column = np.argwhere(~np.isfinite(rates))[0]
            raise RateError(int(ids[row]), float(rates[row, column]))
        return rates

    def pause_s(self, job: JobId, old: Grant | None, new: Grant, *, restarted: bool) -> float:
        """Return the true pause of a change of grant."""
        return self._transitions.transition(job, old, new, restarted=restarted)[1]

    def remaining(self, ids: Ints, done: Floats) -> Floats:
        """Return estimated total minus work done, doubling outlived totals."""
        left: Floats = self._totals[ids] - done
        for index in np.flatnonzero(left <= 0):
            left[index] = self.remaining_one(int(ids[index]), float(done[index]))
        return left

    def remaining_one(self, job: JobId, done: float) -> float:
        """Return estimated total minus work done of one job, doubling an outlived total."""
        total = self._total[job]
        if total <= done:
            # True work is outlived only by rounding, within a microsecond of work: the job is about
            # to finish, not twice as long.
            if done - total < 1e-6:
                return 1e-6
            while total <= done:
                total *= 2
            self._total[job] = total
        return total - done

    def predictable(self, ids: Ints, done: Floats) -> NDArray[np.bool_]:
        """Return a boolean per job: whether enough work is done to predict its total."""
        return np.asarray(done >= self._predictable_at[ids])

    def first_estimates(self) -> Floats:
        """Return the estimated totals before any doubling."""
        return self._first

    def observe(self, job: JobId, finish_s: float) -> None:
        """Ignore a finished job: nothing is learned."""
