"""Inputs of a run beyond trace, cluster and allocator."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import numpy as np

from sim.engine.faults import Faults
from sim.overheads import Overheads
from sim.perf.estimators import EstimatorSpec, Exact
from sim.perf.model import PerfSpec
from sim.perf.rigid import Rigid

ENDS: Final = ("drained", "measured", "horizon")
"""Values of `Conditions.stop`."""


@dataclass(frozen=True)
class Measure:
    """The jobs that count in the metrics: a span of submissions and a range of rows.

    Both bounds are included.
    """

    from_s: float = -inf
    to_s: float = inf
    first_job: int = 0
    last_job: int | None = None

    def mask(
        self, submit_s: np.ndarray[Any, np.dtype[np.float64]]
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return a boolean per job: whether its submission and its row are within the bounds."""
        rows = np.arange(len(submit_s))
        last = len(submit_s) if self.last_job is None else self.last_job
        return np.asarray(
            (submit_s >= self.from_s)
            & (submit_s <= self.to_s)
            & (rows >= self.first_job)
            & (rows <= last)
        )


@dataclass(frozen=True)
class Conditions:
    """Inputs of a run beyond trace, cluster and allocator.

    Parameters
    ----------
    perf, estimator : PerfSpec, EstimatorSpec
        The true performance model, and the estimates that allocators see.
    overheads, faults : Overheads, Faults
        Costs of changes; failures.
    seed : int
        Seed of all random streams; each random quantity has its own stream.
    horizon_s : float, seconds
        Latest end of the run.
    measure : Measure
        Jobs that count.
    stop : str
        "drained": end when every job has its outcome; "measured": when the jobs that count have
        theirs; "horizon": at the horizon, even if all jobs have their outcome before.

    Notes
    -----
    With any settings a run ends early when no job can start any more, and when it makes no
    progress (see `sim.engine.give_up.Standstill`). Jobs that are active then are unfinished;
    `RunResult.reason` and `RunResult.remarks` give the reason.
    """

    perf: PerfSpec = field(default_factory=Rigid)
    estimator: EstimatorSpec = field(default_factory=Exact)
    overheads: Overheads = field(default_factory=Overheads)
    faults: Faults = field(default_factory=Faults)
    seed: int = 0
    horizon_s: float = inf
    measure: Measure = field(default_factory=Measure)
    stop: str = "drained"
