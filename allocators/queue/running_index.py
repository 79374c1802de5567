"""An index of the running jobs that may be stopped, sorted by priority: the worst are found without
looking at the others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from sim.contract import Demand, Grant, JobId, View, inf

Key = tuple[float, ...]
"""Priority of a waiting job; smaller goes first, ties go to the lower job id."""
Height = tuple[Any, ...]
"""Place of a running job in its group; of two jobs the higher is the worse."""

NOBODY: Height = (inf,)
"""A limit that no job is above."""
EVERYBODY: Height = ()
"""A limit that every job is above."""


class Priorities(Protocol):
    """The priorities of a policy: keys of waiting jobs, and heights of running jobs in groups.

    Jobs of one group compare by their heights at any time; jobs of several groups by `rank`.
    """

    def key(self, view: View, job: JobId) -> Key:
        """Return the priority of a job that begins to wait. It does not change while the job
        waits.
        """
        ...

    def position(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, Height]:
        """Return group and height of a job that starts with this grant."""
        ...

    def moved(
        self, view: View, job: JobId, grant: Grant, slot: RunningSlot
    ) -> tuple[float, Height]:
        """Return group and height of a running job that continues with another grant."""
        ...

    def limit(self, group: float, key: Key, now_s: float) -> Height:
        """Return the height above which running jobs of a group stand behind a waiting job."""
        ...

    def rank(self, group: float, height: Height, now_s: float) -> tuple[float, ...]:
        """Return what jobs of different groups are compared by: larger is worse."""
        ...

    def outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Tell whether the key of a job that has been stopped is no longer right."""
        ...

    def landed(self, view: View, job: JobId) -> None:
        """Note that a job whose start was decided at the previous call holds its grant."""
        ...

    def left(self, job: JobId, key: Key) -> None:
        """Note that a job waits no longer, or at another place, and was not started."""
        ...


Member = tuple[Height, JobId, int]
"""Height of a running job, the job, and its GPUs."""


class RunningGroup(NamedTuple):
    """Running jobs on the same pools with the same tag, best first. ``pools`` is a bit set."""

    tag: float
    pools: int
    members: list[Member]


class RunningSlot(NamedTuple):
    """Where a running job is found."""

    group: RunningGroup
    height: Height
    gpus: int
    grant: Grant


class RunningIndex:
    """All running jobs that may be stopped, in groups.

    Parameters
    ----------
    order : Order
        The policy's priorities.
    """

    def __init__(self, order: Priorities) -> None:
        self._order = order
        self.slots: dict[JobId, RunningSlot] = {}
        self.all: dict[tuple[float, int], RunningGroup] = {}
        self._masks: dict[int, int] = {}
        self._bit: dict[int, int] = {}

    def add(self, view: View, job: JobId, grant: Grant, key: Key) -> None:
        """Take in a job that starts, or has just been found running."""
        tag, height = self._order.position(view, job, grant, key)
        if view.one("preemptible", job):
            at = (tag, self._pools(view, grant))
            self._put(job, at, height, gpus_of(view.demand(job)), grant)

    def move(self, job: JobId, tag: float, height: Height) -> int:
        """Give a job another height; return its GPUs."""
        slot = self.remove(job)
        self._put(job, (tag, slot.group.pools), height, slot.gpus, slot.grant)
        return slot.gpus

    def relocate(self, view: View, job: JobId, grant: Grant) -> int:
        """Note that a running job continues with another grant; return its GPUs."""
        slot = self.remove(job)
        tag, height = self._order.moved(view, job, grant, slot)
        self._put(job, (tag, self._pools(view, grant)), height, slot.gpus, grant)
        return slot.gpus

    def remove(self, job: JobId) -> RunningSlot:
        """Take a job out and return where it was."""
        slot = self.slots.pop(job)
        group = slot.group
        del group.members[bisect_left(group.members, (slot.height, job, 0))]
        if not group.members:
            del self.all[group.tag, group.pools]
        return slot

    def worse(self, view: View, demand: Demand, key: Key, gpus: float) -> tuple[list[JobId], int]:
        """Return running jobs on the pools of a demand that rank behind a key, the worst first, and
        the GPUs that they hold.

        Parameters
        ----------
        view : View
            The instant.
        demand : Demand
            Whose pools matter.
        key : Key
            Priority of a waiting job.
        gpus : float
            No more jobs than hold so many GPUs; inf = all of them.
        """
        mask, now_s, limit_on = self.mask(demand), view.now_s, self._order.limit
        behind: list[tuple[float, list[Member]]] = []
        held = 0
        for tag, pools, members in self.all.values():
            if not pools & mask:
                continue
            limit = limit_on(tag, key, now_s)
            if members[-1][0] <= limit:
                continue
            worst: list[Member] = []
            held = 0
            for member in reversed(members):
                if member[0] <= limit or held >= gpus:
                    break
                held += member[2]
                worst.append(member)
            behind.append((tag, worst))
        if len(behind) > 1:
            return self._merged(behind, now_s, gpus)
        return [job for _, worst in behind for _, job, _ in worst], held  # in order as they stand

    def _merged(
        self,
        behind: list[tuple[float, list[Member]]],
        now_s: float,
        gpus: float,
    ) -> tuple[list[JobId], int]:
        found: list[tuple[tuple[float, ...], JobId, int]] = []
        for tag, members in behind:
            found += [
                (self._order.rank(tag, height, now_s), job, size) for height, job, size in members
            ]
        found.sort(reverse=True)
        jobs: list[JobId] = []
        held = 0
        for _, job, size in found:
            if held >= gpus:
                break
            jobs.append(job)
            held += size
        return jobs, held

    def mask(self, demand: Demand) -> int:
        """Return the pools of a demand as a bit set."""
        known = self._masks.get(demand.key)
        if known is None:
            known = self._masks[demand.key] = _union(1 << pool for pool in demand.pools)
        return known

    def _put(
        self,
        job: JobId,
        at: tuple[float, int],
        height: Height,
        gpus: int,
        grant: Grant,
    ) -> None:
        group = self.all.get(at)
        if group is None:
            group = self.all[at] = RunningGroup(*at, [])
        insort(group.members, (height, job, gpus))
        # The named tuple's own constructor costs a second call, once per start.
        self.slots[job] = tuple.__new__(RunningSlot, (group, height, gpus, grant))

    def _pools(self, view: View, grant: Grant) -> int:
        if not self._bit:
            self._bit = {
                node: 1 << at for at, pool in enumerate(view.room.pools) for node in pool.nodes
            }
        nodes = grant.gangs[0].workers.nodes
        return self._bit[nodes[0]] if len(nodes) == 1 else _union(self._bit[node] for node in nodes)


def gpus_of(demand: Demand) -> int:
    """Return the GPUs of a whole gang, of its servers too where they have any."""
    gpus = demand.replicas * demand.gpus
    if demand.servers is None:
        return gpus
    return gpus + demand.servers.replicas * demand.servers.gpus


def _union(bits: Iterable[int]) -> int:
    mask = 0
    for bit in bits:
        mask |= bit
    return mask
