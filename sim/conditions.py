"""Everything of a run but trace, cluster and allocator: models, costs, failures, seed, and which
jobs count.
"""

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
"""What may end a run: see `Conditions.stop`."""


@dataclass(frozen=True)
class Measure:
    """Which jobs count in the metrics: those submitted in a span of seconds, and in a range of rows
    (last one included).
    """

    from_s: float = -inf
    to_s: float = inf
    first_job: int = 0
    last_job: int | None = None

    def mask(
        self, submit_s: np.ndarray[Any, np.dtype[np.float64]]
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return for each job whether it counts."""
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
    """All inputs of a run but trace, cluster and allocator.

    Parameters
    ----------
    perf, estimator : PerfSpec, EstimatorSpec
        Truth, and what allocators may think of it.
    overheads, faults : Overheads, Faults
        Costs of changes; failures.
    seed : int
        One seed; every random quantity has a stream of its own.
    horizon_s : float, seconds
        The run ends then at the latest.
    measure : Measure
        Jobs that count.
    stop : str
        "drained": when every job is settled; "measured": when those that count are; "horizon": at
        the horizon, even if all is settled before.

    Notes
    -----
    Whatever is set here, a run ends early when no job can start any more, and when it stands still
    (see `sim.engine.endings.Standstill`). Jobs that are active by then are unfinished, and
    `RunResult.reason` and `RunResult.remarks` say why.
    """

    perf: PerfSpec = field(default_factory=Rigid)
    estimator: EstimatorSpec = field(default_factory=Exact)
    overheads: Overheads = field(default_factory=Overheads)
    faults: Faults = field(default_factory=Faults)
    seed: int = 0
    horizon_s: float = inf
    measure: Measure = field(default_factory=Measure)
    stop: str = "drained"
