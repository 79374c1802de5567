"""Index of the preemptible running jobs, sorted by priority."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from sim.contract import Demand, Grant, JobId, View, inf

Key = tuple[float, ...]
"""Priority of a waiting job: smaller goes first, ties go to the lower job id."""
Height = tuple[Any, ...]
"""Sort key of a running job within its group: a larger height is a lower priority."""

MIN_PRIORITY_LIMIT: Height = (inf,)
"""Height limit that no job exceeds."""
MAX_PRIORITY_LIMIT: Height = ()
"""Height limit that every job exceeds."""


class Priorities(Protocol):
    """The priority order of a policy: keys of waiting jobs and heights of running jobs.

    Jobs of one group compare by height at any time; jobs of different groups by `rank`.
    """

    def key(self, view: View, job: JobId) -> Key:
        """Return the priority of a job that begins to wait; constant while it waits."""
        ...

    def position(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, Height]:
        """Return group and height of a job that starts with this grant."""
        ...

    def move_position(
        self, view: View, job: JobId, grant: Grant, slot: RunningSlot
    ) -> tuple[float, Height]:
        """Return group and height of a running job that continues with another grant."""
        ...

    def limit(self, group: float, key: Key, now_s: float) -> Height:
        """Return the height above which running jobs of a group rank below a waiting job."""
        ...

    def rank(self, group: float, height: Height, now_s: float) -> tuple[float, ...]:
        """Return the key that compares jobs of different groups; larger is lower priority."""
        ...

    def is_outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Return True if the key of a preempted job must be computed again."""
        ...

    def confirm_start(self, view: View, job: JobId) -> None:
        """Record that a job holds the grant decided at the previous call."""
        ...

    def stop_waiting(self, job: JobId, key: Key) -> None:
        """Record that a job left its place in the waiting queue without starting."""
        ...


Member = tuple[Height, JobId, int]
"""Height of a running job, the job, and its GPUs."""


class RunningGroup(NamedTuple):
    """Running jobs on the same pools with the same tag, best first; ``pools`` is a bit set."""

    tag: float
    pools: int
    members: list[Member]


class RunningSlot(NamedTuple):
    """Group, height, GPUs and grant of a running job."""

    group: RunningGroup
    height: Height
    gpus: int
    grant: Grant


class RunningIndex:
    """All preemptible running jobs, in groups sorted by priority.

    Parameters
    ----------
    order : Priorities
        The priority order of the policy.
    """

    def __init__(self, order: Priorities) -> None:
        self._order = order
        self.slots: dict[JobId, RunningSlot] = {}
        self.all: dict[tuple[float, int], RunningGroup] = {}
        self._masks: dict[int, int] = {}
        self._bit: dict[int, int] = {}

    def add(self, view: View, job: JobId, grant: Grant, key: Key) -> None:
        """Add a job that starts or runs already, unless it is not preemptible."""
        tag, height = self._order.position(view, job, grant, key)
        if view.one("preemptible", job):
            at = (tag, self._pool_mask(view, grant))
            self._insert(job, at, height, gang_gpus(view.demand(job)), grant)

    def move(self, job: JobId, tag: float, height: Height) -> int:
        """Change the tag and height of a job in the index and return its GPUs."""
        slot = self.remove(job)
        self._insert(job, (tag, slot.group.pools), height, slot.gpus, slot.grant)
        return slot.gpus

    def relocate(self, view: View, job: JobId, grant: Grant) -> int:
        """Replace a running job's grant in the index and return the job's GPU count."""
        slot = self.remove(job)
        tag, height = self._order.move_position(view, job, grant, slot)
        self._insert(job, (tag, self._pool_mask(view, grant)), height, slot.gpus, grant)
        return slot.gpus

    def remove(self, job: JobId) -> RunningSlot:
        """Remove a job and return its slot."""
        slot = self.slots.pop(job)
        group = slot.group
        del group.members[bisect_left(group.members, (slot.height, job, 0))]
        if not group.members:
            del self.all[group.tag, group.pools]
        return slot

    def worse(self, view: View, demand: Demand, key: Key, gpus: float) -> tuple[list[JobId], int]:
        """Return lower-priority running jobs on the pools of a demand, and their GPUs.

        The job of the lowest priority comes first.

        Parameters
        ----------
        view : View
            The instant.
        demand : Demand
            The demand with the pools to search.
        key : Key
            Priority of the waiting job.
        gpus : float
            Stop once the jobs hold so many GPUs; inf = return all of them.
        """
        mask, now_s, limit_on = self.mask(demand), view.now_s, self._order.limit
        candidates: list[tuple[float, list[Member]]] = []
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
            candidates.append((tag, worst))
        if len(candidates) > 1:
            return self._merge_groups(candidates, now_s, gpus)
        return [job for _, worst in candidates for _, job, _ in worst], held  # already in order

    def _merge_groups(
        self,
        candidates: list[tuple[float, list[Member]]],
        now_s: float,
        gpus: float,
    ) -> tuple[list[JobId], int]:
        """Return the jobs of several groups, lowest rank first, until they hold `gpus` GPUs.

        Also returns the GPUs that they hold.
        """
        ranked: list[tuple[tuple[float, ...], JobId, int]] = []
        for tag, members in candidates:
            ranked += [
                (self._order.rank(tag, height, now_s), job, size) for height, job, size in members
            ]
        ranked.sort(reverse=True)
        jobs: list[JobId] = []
        held = 0
        for _, job, size in ranked:
            if held >= gpus:
                break
            jobs.append(job)
            held += size
        return jobs, held

    def mask(self, demand: Demand) -> int:
        """Return the pools of a demand as a bit set."""
        mask = self._masks.get(demand.key)
        if mask is None:
            mask = self._masks[demand.key] = _union(1 << pool for pool in demand.pools)
        return mask

    def _insert(
        self,
        job: JobId,
        at: tuple[float, int],
        height: Height,
        gpus: int,
        grant: Grant,
    ) -> None:
        """Insert a job into its group and record its slot."""
        group = self.all.get(at)
        if group is None:
            group = self.all[at] = RunningGroup(*at, [])
        insort(group.members, (height, job, gpus))
        # Faster than the constructor of the named tuple; this runs once per start.
        self.slots[job] = tuple.__new__(RunningSlot, (group, height, gpus, grant))

    def _pool_mask(self, view: View, grant: Grant) -> int:
        """Return the pools of a grant's workers as a bit set."""
        if not self._bit:
            self._bit = {
                node: 1 << at for at, pool in enumerate(view.room.pools) for node in pool.nodes
            }
        nodes = grant.gangs[0].workers.nodes
        return self._bit[nodes[0]] if len(nodes) == 1 else _union(self._bit[node] for node in nodes)


def gang_gpus(demand: Demand) -> int:
    """Return the GPUs of a gang, including its parameter servers."""
    gpus = demand.replicas * demand.gpus
    if demand.servers is None:
        return gpus
    return gpus + demand.servers.replicas * demand.servers.gpus


def _union(bits: Iterable[int]) -> int:
    """Return the union of bit sets."""
    mask = 0
    for bit in bits:
        mask |= bit
    return mask
