"""Resizable jobs: size limits, and speed on other numbers of GPUs than requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.contract import Floats, Grant, Ints, JobId, Shape, Telemetry
from sim.errors import ContractError
from sim.params import param
from sim.perf.copy_cost import Copies
from sim.perf.machines import ON_CPUS, Machines, Spans, healthy_telemetry
from sim.perf.model import Limits, Rate
from sim.trace import Trace


class Speedup(Protocol):
    """Speed of jobs at any admissible size, relative to the requested size."""

    def one(self, job: JobId, gpus: float) -> float:
        """Return the relative speed of one job at a size."""
        ...

    def many(self, ids: Ints, gpus: Floats) -> Floats:
        """Return the relative speed of jobs at sizes, broadcast to (jobs, sizes)."""
        ...

    def best(self) -> Floats:
        """Return the highest relative speed of each job within its limits, of shape (jobs,)."""
        ...


@dataclass(frozen=True)
class Sizing(Copies):
    """Base of the models of resizable jobs: size limits of jobs that state none."""

    scales: ClassVar[bool] = True
    staffed: ClassVar[bool] = False

    reference: str = param(
        "",
        title="Reference GPU type",
        help=(
            "GPU type that durations without a type of their own were measured on; empty = the"
            " first type of the cluster."
        ),
    )
    shrink: float = param(
        0.25,
        title="Smallest size",
        low=0,
        high=1,
        help=(
            "Smallest size of a job without min_gpus, as a share of the GPUs it asked for; never"
            " below one GPU."
        ),
    )
    grow: float = param(
        4.0,
        title="Largest size",
        low=1,
        high=1024,
        help="Largest size of a job without max_gpus, as a multiple of the GPUs it asked for.",
    )

    def sizes(self, trace: Trace, largest: int) -> tuple[Floats, Floats]:
        """Return the smallest and the largest size of every job; 0 for CPU jobs.

        Parameters
        ----------
        trace : Trace
            Its columns min_gpus and max_gpus take precedence.
        largest : int, GPUs
            No job grows beyond this; a job that requested more may keep its size.
        """
        requested = trace.numbers("num_gpus")
        low, high = trace.numbers("min_gpus"), trace.numbers("max_gpus")
        low = np.ceil(np.where(np.isnan(low), self.shrink * requested - 1e-9, low))
        high = np.floor(np.where(np.isnan(high), self.grow * requested + 1e-9, high))
        on_gpus = requested > 0
        return np.where(on_gpus, np.clip(low, 1, np.maximum(requested, 1)), 0.0), np.where(
            on_gpus, np.maximum(requested, np.minimum(high, largest)), 0.0
        )

    def curve(self, trace: Trace) -> str:
        """Return a phrase on the assumed speed-up of jobs that state none; "" = all state it.

        In this base class: that step times are computed.
        """
        del trace
        return "step times that are computed, not measured"

    def about_sizes(self, trace: Trace, among: NDArray[np.bool_] | None = None) -> tuple[str, ...]:
        """Return a sentence on the assumed sizes of jobs that state none; () = all state them.

        `among`: jobs that may be resized at all.
        """
        on_gpus = trace.numbers("num_gpus") > 0
        silent = (on_gpus if among is None else on_gpus & among) & (
            np.isnan(trace.numbers("min_gpus")) | np.isnan(trace.numbers("max_gpus"))
        )
        if not silent.any():
            return ()
        what = (
            f"{self.shrink:g} to {self.grow:g} times what they asked for"
            if self.shrink < 1 or self.grow > 1
            else "no other number than they asked for"
        )
        return (
            (
                f"{job_share(silent, on_gpus)} do not say on how many GPUs they may run; assumed:"
                f" {what} (shrink, grow)."
            ),
        )


@dataclass(frozen=True)
class Resizable(Sizing):
    """Base of resizable models with slowdowns for spans, as in `Rigid`."""

    span_node: float = param(
        1.0,
        title="Slowdown across nodes",
        low=1,
        high=100,
        help="Slowdown of a gang that spans several nodes of one rack.",
    )
    span_rack: float = param(
        1.0,
        title="Slowdown across racks",
        low=1,
        high=100,
        help="Slowdown of a gang that spans several racks; at least that of several nodes.",
    )

    @property
    def spans(self) -> Spans:
        """Reference type and slowdowns of spans."""
        return Spans(self.reference, self.span_node, self.span_rack)


class ResizableModel:
    """Speed relative to the requested size, times the speed of the machines.

    Bound to one trace and one cluster.

    Parameters
    ----------
    trace : Trace
        The jobs.
    machines : Machines
        Speeds of the cluster.
    sizes : two arrays of shape (jobs,)
        Smallest and largest size.
    speedup : Speedup
        Speed relative to the requested size.
    price : Copies
        Cost of the copies of a forked job.

    Notes
    -----
    The work of a job is its recorded duration times the speed of the type it was measured on, as in
    `Rigid`, so that jobs that keep their size finish at the same instants under either model. A
    forked job does the sum of its gangs, minus the cost of copies.
    """

    def __init__(
        self,
        trace: Trace,
        machines: Machines,
        sizes: tuple[Floats, Floats],
        speedup: Speedup,
        price: Copies,
    ) -> None:
        requested, duration = trace.numbers("num_gpus"), trace.numbers("duration_s")
        self._machines, self._speedup, self._price = machines, speedup, price
        self._on_gpus = requested > 0
        # CPU jobs were measured on CPUs: their recorded time is their run time.
        self._work: Floats = np.where(self._on_gpus, duration * machines.measured, duration)
        no_batch = np.full(len(trace), np.nan)
        self._limits = Limits(sizes[0], sizes[1], no_batch, no_batch)
        for values in self._limits:
            values.flags.writeable = False
        self._requested: memoryview[float] = memoryview(requested)  # type: ignore[arg-type]
        self._least: memoryview[float] = memoryview(sizes[0])  # type: ignore[arg-type]
        self._most: memoryview[float] = memoryview(sizes[1])  # type: ignore[arg-type]
        self._rates: dict[float, Rate] = {}

    def work(self) -> Floats:
        """Return seconds at the requested size on the reference type, of shape (jobs,)."""
        return self._work

    def limits(self) -> Limits:
        """Return the stated or assumed size limits."""
        return self._limits

    def fastest(self) -> Floats:
        """Return the rate at the best admissible size on the fastest type; 1 for CPU jobs."""
        return np.where(self._on_gpus, self._speedup.best() * self._machines.fastest, 1.0)

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        """Return the rate under a grant; GPUs beyond the largest size do not help.

        Raises
        ------
        ContractError
            If a gang is smaller than the smallest size.
        """
        del done, now_s
        if not self._requested[job]:
            return ON_CPUS
        value = 0.0
        for gang in grant.gangs:
            held = sum(gang.workers.count) * gang.workers.gpus
            if held < self._least[job]:
                raise ContractError(
                    f"job {job} runs on {self._least[job]:g} GPUs or more and cannot run on {held}"
                )
            value += self._speedup.one(job, min(held, self._most[job])) * self._machines.gang_speed(
                job, gang
            )
        value *= self._price.worth(len(grant.gangs))
        rate = self._rates.get(value)
        if rate is None:
            rate = self._rates[value] = Rate(value)
        return rate

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return rates before placement, of shape (jobs, shapes); 0 for too few GPUs."""
        gpus, speeds = self._machines.shapes(shapes)
        least, most = self._limits.min_gpus[ids, None], self._limits.max_gpus[ids, None]
        rates = (
            self._speedup.many(
                ids, np.clip(gpus[None, :], np.maximum(least, 1), np.maximum(most, 1))
            )
            * speeds
        )
        return np.where(
            least > 0, np.where(gpus >= least, rates, 0.0), np.where(gpus == 0, 1.0, 0.0)
        )

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        """Return telemetry of healthy workers that use their request."""
        del job, done, now_s
        return healthy_telemetry(grant)


def job_share(some: NDArray[np.bool_], every: NDArray[np.bool_]) -> str:
    """Return "n of m GPU jobs" from two masks."""
    return f"{int(some.sum()):,} of {int(every.sum()):,} GPU jobs"
