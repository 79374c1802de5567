"""State of all jobs as columns: one array per attribute over all jobs of the trace."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

FLOATS: Final = {
    "left": 0.0,  # true work left at the start of the open segment
    "resume": 0.0,  # end of the current pause
    "rate": 0.0,  # true work per second after the pause; 0 without a grant
    "unsaved": 0.0,  # work since the last checkpoint, at the start of the open segment
    "unsaved_s": 0.0,  # seconds of progress since then
    "segment_t0": 0.0,  # start of the open segment
    "held_cpus": 0.0,
    "served_gpu_s": 0.0,  # of closed segments
    "served_cpu_s": 0.0,
    "lost_work": 0.0,
}
COUNTS: Final = ("held_gpus", "outcome", "preemptions", "evictions", "relaunches")


class Columns:
    """Arrays of job attributes, each with a memoryview of the same buffer for fast scalars.

    ``columns.left`` is the memoryview (scalars), ``columns.array("left")`` the array (vectors).
    """

    __slots__ = (*FLOATS, *COUNTS, "_arrays")

    left: memoryview[float]
    resume: memoryview[float]
    rate: memoryview[float]
    unsaved: memoryview[float]
    unsaved_s: memoryview[float]
    segment_t0: memoryview[float]
    held_gpus: memoryview[int]
    held_cpus: memoryview[float]
    served_gpu_s: memoryview[float]
    served_cpu_s: memoryview[float]
    lost_work: memoryview[float]
    outcome: memoryview[int]
    preemptions: memoryview[int]
    evictions: memoryview[int]
    relaunches: memoryview[int]

    def __init__(self, jobs: int) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, value in FLOATS.items():
            self._arrays[name] = np.full(jobs, value)
        for name in COUNTS:
            self._arrays[name] = np.zeros(jobs, np.int32)
        for name, array in self._arrays.items():
            setattr(self, name, memoryview(array))  # type: ignore[arg-type]

    def array(self, name: str) -> NDArray[Any]:
        """Return the array of a column."""
        return self._arrays[name]


class IdSet(dict[int, None]):
    """A set of job ids in order of insertion.

    A dictionary, because nothing adds and discards faster.
    """

    __slots__ = ()

    def ids(self) -> NDArray[np.int64]:
        """Return the members, ascending."""
        members = np.fromiter(self, np.int64, len(self))
        members.sort()
        return members
