"""State of all jobs as columns: one array per attribute for the whole trace, read by scalars and by vectors from the same memory."""

from __future__ import annotations

from math import nan
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

FLOATS: Final = {
    "left": 0.0,  # true work left at `asof`
    "asof": 0.0,  # instant up to which progress is settled
    "resume": 0.0,  # end of the current pause
    "rate": 0.0,  # true work per second after the pause; 0 without a grant
    "unsaved": 0.0,  # work since the last checkpoint, up to `asof`
    "unsaved_s": 0.0,  # seconds of progress since then
    "segment_t0": 0.0,  # start of the open segment
    "held_gpus": 0.0,
    "held_cpus": 0.0,
    "served_gpu_s": 0.0,  # of closed segments
    "served_cpu_s": 0.0,
    "held_s": 0.0,
    "paused_s": 0.0,
    "lost_work": 0.0,
    "first_start_s": nan,
    "finish_s": nan,
}
COUNTS: Final = ("generation", "outcome", "preemptions", "evictions")


class Columns:
    """One float64 or int32 array per attribute, each with a memoryview of the same buffer for fast scalars.

    ``columns.left`` is the memoryview (scalars), ``columns.array("left")`` the array (vectors).
    """

    left: memoryview[float]
    asof: memoryview[float]
    resume: memoryview[float]
    rate: memoryview[float]
    unsaved: memoryview[float]
    unsaved_s: memoryview[float]
    segment_t0: memoryview[float]
    held_gpus: memoryview[float]
    held_cpus: memoryview[float]
    served_gpu_s: memoryview[float]
    served_cpu_s: memoryview[float]
    held_s: memoryview[float]
    paused_s: memoryview[float]
    lost_work: memoryview[float]
    first_start_s: memoryview[float]
    finish_s: memoryview[float]
    generation: memoryview[int]
    outcome: memoryview[int]
    preemptions: memoryview[int]
    evictions: memoryview[int]

    def __init__(self, jobs: int) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, value in FLOATS.items():
            self._arrays[name] = np.full(jobs, value)
        for name in COUNTS:
            self._arrays[name] = np.zeros(jobs, np.int32)
        for name, array in self._arrays.items():
            setattr(self, name, memoryview(array))  # type: ignore[arg-type]

    def array(self, name: str) -> NDArray[Any]:
        """Return the array behind a column."""
        return self._arrays[name]


class IdSet:
    """A set of job ids: O(1) add and discard, and its members as one array without a loop."""

    __slots__ = ("_array", "_dense", "_place", "size")

    def __init__(self, jobs: int) -> None:
        self._array: NDArray[np.int32] = np.zeros(jobs, np.int32)
        self._dense = memoryview(self._array)  # type: ignore[arg-type]
        self._place = memoryview(np.full(jobs, -1, np.int32))  # type: ignore[arg-type]
        self.size = 0

    def add(self, job: int) -> None:
        """Add a job that is not in the set."""
        size = self.size
        self._dense[size] = job
        self._place[job] = size
        self.size = size + 1

    def discard(self, job: int) -> None:
        """Remove a job that is in the set; the last one takes its place."""
        place = self._place
        size = self.size - 1
        at = place[job]
        last = self._dense[size]
        self._dense[at] = last
        place[last] = at
        place[job] = -1
        self.size = size

    def __contains__(self, job: int) -> bool:
        return bool(self._place[job] >= 0)

    def ids(self) -> NDArray[np.int64]:
        """Return the members, ascending."""
        return np.sort(self._array[: self.size]).astype(np.int64)
