"""Estimates of sizes, speeds and resources that an allocator sees: exact, noisy, biased or unknown.
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
from sim.perf.resources import BoundResources, KnownResources, distorted, noise, true_resources
from sim.trace import Trace

ESTIMATE_STREAM = 3


class BoundEstimator(Protocol):
    """An estimator as the simulator uses it; allocators see only the part named in
    `sim.contract.Estimates`.
    """

    def rate(self, job: JobId, grant: Grant) -> float:
        """Return the estimated work per second under a grant."""
        ...

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return estimated work per second, of shape (jobs, shapes)."""
        ...

    def pause_s(self, job: JobId, old: Grant | None, new: Grant, *, restarted: bool) -> float:
        """Return the estimated pause of a change.

        Parameters
        ----------
        job : int
            The job.
        old : Grant or None
            What it holds; None = a start.
        new : Grant
            What it would hold.
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
        """Return whether the size of each job is predictable by now, given the work done; of shape
        (jobs,).
        """
        ...

    def first_estimates(self) -> Floats:
        """Return the first estimate of the total work of each job, of shape (jobs,); NaN where the
        estimate was never read.
        """
        ...

    def observe(self, job: JobId, finish_s: float) -> None:
        """Learn from a finished job, before the decision of that instant."""
        ...


class EstimatorSpec(Protocol):
    """An estimator as chosen by the user: a dataclass of parameters; ``chance = True`` says that it
    is drawn at random.
    """

    def bind(
        self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int
    ) -> BoundEstimator:
        """Bind the estimator to the truth it distorts.

        Parameters
        ----------
        model : PerfModel
            The truth.
        trace : Trace
            The jobs: the columns that a predictor may read, and the recorded run times at the pace
            of which each was measured.
        transitions : Transitions
            Where pauses come from.
        seed : int
            Of the noise.
        """
        ...

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> BoundResources:
        """Bind the estimates of cores and memory; see `bind`."""
        ...


@dataclass(frozen=True)
class Exact:
    """The allocator knows every size and speed."""

    def bind(
        self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int
    ) -> SizeEstimator:
        """Bind to the truth."""
        del seed
        return SizeEstimator(model, transitions, model.work().copy(), _predictable_after(trace))

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> KnownResources:
        """Return true resources."""
        del trace, seed
        return KnownResources(true_resources(model))


@dataclass(frozen=True)
class Noisy:
    """Estimated size = true size x a log-normal factor of median 1, drawn once per (seed, job); so
    are cores and memory, each with a factor of its own.
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
        """Bind to the truth, with the noise of this seed."""
        work = model.work()
        drawn = np.random.default_rng([seed, ESTIMATE_STREAM]).standard_normal(len(work))
        return SizeEstimator(
            model, transitions, work * np.exp(self.sigma * drawn), _predictable_after(trace)
        )

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> KnownResources:
        """Return resources with the noise of this seed."""
        del trace
        return distorted(model, lambda shape: np.exp(self.sigma * noise(seed, shape)))


@dataclass(frozen=True)
class Biased:
    """Estimated size = true size x one factor, and so for cores and memory: every job is over- or
    underestimated alike.
    """

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
        """Bind to the truth."""
        del seed
        return SizeEstimator(
            model, transitions, model.work() * self.factor, _predictable_after(trace)
        )

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> KnownResources:
        """Return a multiple of the true resources."""
        del trace, seed
        return distorted(model, lambda _: self.factor)


@dataclass(frozen=True)
class Unknown:
    """Nothing is known of sizes, cores and memory: every job is estimated equally long until it has
    proved longer.
    """

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
        """Bind to the truth, of which only speeds are kept."""
        del seed
        guesses = self.guess_s * (model.work() / trace.numbers("duration_s"))
        return SizeEstimator(model, transitions, guesses, np.full(len(trace), np.inf))

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> KnownResources:
        """Return no estimates."""
        del model, trace, seed
        return KnownResources()


def _predictable_after(trace: Trace) -> Floats:
    return trace.numbers("predictable_after", 0.0)


class SizeEstimator:
    """An estimated total per job over the true speeds; when a job outlives its estimated total, the
    total doubles.

    Parameters
    ----------
    model : PerfModel
        Where speeds come from.
    transitions : Transitions
        Where pauses come from.
    totals : array of shape (jobs,)
        Estimated total work; changed in place as jobs outlive it.
    predictable_after : array of shape (jobs,)
        Share of the work after which the size of a job is predictable; above 1 = never.
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
        """Return the true rate at the start of such a grant."""
        return self._model.rate(job, grant, 0.0, 0.0).work_per_s

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return the true rates.

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
        """Return the true pause of a change."""
        return self._transitions.transition(job, old, new, restarted=restarted)[1]

    def remaining(self, ids: Ints, done: Floats) -> Floats:
        """Return estimated total minus work done, after doubling the totals that are used up."""
        left: Floats = self._totals[ids] - done
        for at in np.flatnonzero(left <= 0):
            left[at] = self.remaining_one(int(ids[at]), float(done[at]))
        return left

    def remaining_one(self, job: JobId, done: float) -> float:
        """Return the same for one job."""
        total = self._total[job]
        if total <= done:
            # A true size is outlived only by rounding, within a microsecond of work: that is "about
            # to finish", not "twice as long".
            if done - total < 1e-6:
                return 1e-6
            while total <= done:
                total *= 2
            self._total[job] = total
        return total - done

    def predictable(self, ids: Ints, done: Floats) -> NDArray[np.bool_]:
        """Return whether each job has done enough work for its size to be predictable."""
        return np.asarray(done >= self._predictable_at[ids])

    def first_estimates(self) -> Floats:
        """Return the totals before any was doubled."""
        return self._first

    def observe(self, job: JobId, finish_s: float) -> None:
        """Learn nothing."""
