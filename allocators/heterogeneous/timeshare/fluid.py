"""Interface of policies that compute shares of time, for bounds without rounds."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from allocators.heterogeneous.timeshare.problem import Floats, Ints


class JobsSnapshot(NamedTuple):
    """The jobs with GPUs, in order of id, and the GPU types, fastest first, at one instant.

    A single number holds for all jobs.

    Parameters
    ----------
    ids, gangs : arrays of shape (jobs,)
        Job ids, and the GPUs that the jobs request.
    rates : array of shape (jobs, types)
        Estimated work per second of the whole gang on one type; 0 where it cannot run.
    gpus : array of shape (types,)
        GPUs in service that these jobs hold or could get.
    prices : array of shape (types,), USD per GPU and hour
        As in the cluster; 0 = unknown.
    priority, age_s : arrays of shape (jobs,)
        As in the trace, and seconds since submission.
    left : array of shape (jobs,)
        Estimated work left.
    due_s : array of shape (jobs,)
        Seconds until the deadline; inf = none.
    owner : array of shape (jobs,)
        Index of the owner of each job.
    owners : int
        Number of owners.
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
    """A policy that first computes shares of time, which others may follow in their own way."""

    @property
    def owner_column(self) -> str:
        """Trace column for `JobsSnapshot.owner`; "" if owners do not matter."""
        ...

    def shares(self, standing: JobsSnapshot, rng: np.random.Generator) -> Floats:
        """Return the shares of time, 0 to 1, of shape (jobs, types).

        Calls must go forward in time.
        """
        ...
