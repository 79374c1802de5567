"""Shares of time outside a simulation: for bounds that ignore rounds and whole GPUs."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from allocators.heterogeneous.timeshare.problem import Floats, Ints


class JobsSnapshot(NamedTuple):
    """The jobs with GPUs and the GPU types at one instant, jobs in order of id, types the fastest
    first. A single number holds for all.

    Parameters
    ----------
    ids, gangs : arrays of shape (jobs,)
        Jobs, and the GPUs that they ask for.
    rates : array of shape (jobs, types)
        Estimated work per second of the whole gang on one type; 0 where it cannot run.
    gpus : array of shape (types,)
        GPUs in service that these jobs hold or could get.
    prices : array of shape (types,), USD per GPU and hour
        As in the cluster; 0 = not known.
    priority, age_s : arrays of shape (jobs,)
        As in the trace, and seconds since submission.
    left : array of shape (jobs,)
        Estimated work left.
    due_s : array of shape (jobs,)
        Seconds until the deadline; inf = none.
    owner : array of shape (jobs,)
        Number of the owner of each job.
    owners : int
        How many owners there are.
    """

    ids: Ints
    gangs: Ints
    rates: Floats
    gpus: Ints
    prices: Floats
    priority: Floats
    age_s: Floats
    left: Floats | float = 1.0
    due_s: Floats | float = np.inf
    owner: Ints | None = None
    owners: int = 1


@runtime_checkable
class Fluid(Protocol):
    """An allocator that first decides on shares of time, which another may follow in its own
    way.
    """

    @property
    def owner_column(self) -> str:
        """Column of the trace that `JobsSnapshot.owner` is read from; "" = owners do not matter."""
        ...

    def shares(self, standing: JobsSnapshot, rng: np.random.Generator) -> Floats:
        """Return the shares of time of every job on every type, 0 to 1, of shape (jobs, types);
        calls must go forward in time.
        """
        ...
