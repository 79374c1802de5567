"""What an allocator may think of sizes, speeds and resources: exact, noisy, biased or unknown. Prediction error is a knob, not a code path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.contract import Floats, Grant, Ints, JobId, Shape
from sim.overheads import Transitions
from sim.params import param
from sim.perf.model import PerfModel
from sim.perf.resources import BoundResources, Told, distorted, noise, true_resources
from sim.trace import Trace

BELIEF_STREAM = 3


class BoundBelief(Protocol):
    """A belief as the simulator uses it; allocators see only the part named in `sim.contract.Belief`."""

    def rate(self, job: JobId, grant: Grant) -> float:
        """Return the believed work per second under a grant."""
        ...

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return believed work per second, of shape (jobs, shapes)."""
        ...

    def pause_s(self, job: JobId, old: Grant | None, new: Grant) -> float:
        """Return the believed pause of a change."""
        ...

    def remaining(self, ids: Ints, done: Floats) -> Floats:
        """Return the believed work left, given the work done; both of shape (jobs,)."""
        ...

    def remaining_one(self, job: JobId, done: float) -> float:
        """Return the believed work left of one job."""
        ...

    def predictable(self, ids: Ints, done: Floats) -> NDArray[np.bool_]:
        """Tell of which jobs the size can be told by now, given the work done; of shape (jobs,)."""
        ...

    def believed(self) -> Floats:
        """Return the total work of each job as it was first believed, of shape (jobs,); NaN where nobody asked."""
        ...

    def observe(self, job: JobId, finish_s: float) -> None:
        """Learn from a finished job, before the decision of that instant."""
        ...


class BeliefSpec(Protocol):
    """A belief as chosen by the user: a dataclass of parameters; ``chance = True`` says that it is drawn at random."""

    def bind(self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int) -> BoundBelief:
        """Bind the belief to the truth it distorts.

        Parameters
        ----------
        model : PerfModel
            The truth.
        trace : Trace
            The jobs: what a predictor may read of them, and the recorded run times that say at which pace each was measured.
        transitions : Transitions
            Where pauses come from.
        seed : int
            Of the noise.
        """
        ...

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> BoundResources:
        """Bind what it says of cores and memory; see `bind`."""
        ...


@dataclass(frozen=True)
class Exact:
    """The allocator knows every size and speed."""

    def bind(self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int) -> SizedBelief:
        """Bind to the truth."""
        del seed
        return SizedBelief(model, transitions, model.work().copy(), _told_after(trace))

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> Told:
        """Tell what jobs really use."""
        del trace, seed
        return Told(true_resources(model))


@dataclass(frozen=True)
class Noisy:
    """Believed size = true size x a log-normal factor of median 1, drawn once per (seed, job); so are cores and memory, each with a factor of its own."""

    chance: ClassVar[bool] = True

    sigma: float = param(0.3, low=0, high=5, help="Standard deviation of the natural logarithm of the factor.")

    def bind(self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int) -> SizedBelief:
        """Bind to the truth, with the noise of this seed."""
        work = model.work()
        drawn = np.random.default_rng([seed, BELIEF_STREAM]).standard_normal(len(work))
        return SizedBelief(model, transitions, work * np.exp(self.sigma * drawn), _told_after(trace))

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> Told:
        """Tell what jobs use, with the noise of this seed."""
        del trace
        return distorted(model, lambda shape: np.exp(self.sigma * noise(seed, shape)))


@dataclass(frozen=True)
class Biased:
    """Believed size = true size x one factor, and so for cores and memory: every job is over- or underestimated alike."""

    factor: float = param(1.5, low=0.001, high=1000, help="Believed size over true size.")

    def bind(self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int) -> SizedBelief:
        """Bind to the truth."""
        del seed
        return SizedBelief(model, transitions, model.work() * self.factor, _told_after(trace))

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> Told:
        """Tell a multiple of what jobs use."""
        del trace, seed
        return distorted(model, lambda _: self.factor)


@dataclass(frozen=True)
class Unknown:
    """Nothing is known of sizes, cores and memory: every job is believed equally long until it has proved longer."""

    guess_s: float = param(3600.0, unit="s", low=1, high=1e7, help="Believed run time of every job on the GPUs it asks for.")

    def bind(self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int) -> SizedBelief:
        """Bind to the truth, of which only speeds are kept."""
        del seed
        guesses = self.guess_s * (model.work() / trace.numbers("duration_s"))
        return SizedBelief(model, transitions, guesses, np.full(len(trace), np.inf))

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> Told:
        """Tell nothing."""
        del model, trace, seed
        return Told()


def _told_after(trace: Trace) -> Floats:
    return trace.numbers("predictable_after", 0.0)


class SizedBelief:
    """A believed total per job over the true speeds; when a job outlives its believed total, the total doubles.

    Parameters
    ----------
    model : PerfModel
        Where speeds come from.
    transitions : Transitions
        Where pauses come from.
    totals : array of shape (jobs,)
        Believed total work; changed in place as jobs outlive it.
    told_after : array of shape (jobs,)
        Share of the work after which the size of a job can be told; above 1 = never.
    """

    def __init__(self, model: PerfModel, transitions: Transitions, totals: Floats, told_after: Floats) -> None:
        self._model, self._transitions = model, transitions
        self._totals, self._first = totals, totals.copy()
        self._told_at: Floats = np.where(told_after <= 1, told_after * model.work(), np.inf)
        self._total: memoryview[float] = memoryview(totals)  # type: ignore[arg-type]

    def rate(self, job: JobId, grant: Grant) -> float:
        """Return the true rate at the start of such a grant."""
        return self._model.rate(job, grant, 0.0, 0.0).work_per_s

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return the true rates."""
        return self._model.rates(ids, shapes)

    def pause_s(self, job: JobId, old: Grant | None, new: Grant) -> float:
        """Return the true pause of a change."""
        return self._transitions.transition(job, old, new, restarted=True)[1]

    def remaining(self, ids: Ints, done: Floats) -> Floats:
        """Return believed total minus work done, after doubling the totals that are used up."""
        left: Floats = self._totals[ids] - done
        for at in np.flatnonzero(left <= 0):
            left[at] = self.remaining_one(int(ids[at]), float(done[at]))
        return left

    def remaining_one(self, job: JobId, done: float) -> float:
        """Return the same for one job."""
        total = self._total[job]
        if total <= done:
            # A true size is outlived only by rounding, within a microsecond of work: that is "about to finish", not "twice as long".
            if done - total < 1e-6:
                return 1e-6
            while total <= done:
                total *= 2
            self._total[job] = total
        return total - done

    def predictable(self, ids: Ints, done: Floats) -> NDArray[np.bool_]:
        """Tell which jobs have done enough for their size to be told."""
        return np.asarray(done >= self._told_at[ids])

    def believed(self) -> Floats:
        """Return the totals before any was doubled."""
        return self._first

    def observe(self, job: JobId, finish_s: float) -> None:
        """Learn nothing."""
