"""Running jobs in order of their estimated ends, kept up to date from what changes instead of sorted anew."""

from __future__ import annotations

from bisect import bisect_left, insort

from sim.contract import Grant, JobId, Room

End = tuple[float, JobId, Grant, tuple[tuple[int, int], ...]]
"""A running job: when it is expected to leave its nodes, its id, what it holds, and GPUs of that by pool."""


class Ends:
    """The running jobs, the one that is expected to end first in front."""

    def __init__(self) -> None:
        self.order: list[End] = []
        self._at_s: dict[JobId, float] = {}
        self._pool_of: list[int] = []

    def __contains__(self, job: JobId) -> bool:
        return job in self._at_s

    def add(self, room: Room, job: JobId, grant: Grant, at_s: float) -> None:
        """Take in a job that starts now, or has been running."""
        self._at_s[job] = at_s
        insort(self.order, (at_s, job, grant, self.gpus_by_pool(room, grant)))

    def drop(self, job: JobId) -> End:
        """Forget a job that left its nodes."""
        return self.order.pop(bisect_left(self.order, (self._at_s.pop(job), job)))

    def overdue(self, now_s: float) -> list[End]:
        """Forget and return the jobs that should have left by now but have not."""
        order = self.order
        until = 0
        while until < len(order) and order[until][0] <= now_s:
            del self._at_s[order[until][1]]
            until += 1
        late = order[:until]
        del order[:until]
        return late

    def gpus_by_pool(self, room: Room, grant: Grant) -> tuple[tuple[int, int], ...]:
        """Return (pool, GPUs) of what a grant holds; the overflow node belongs to no pool."""
        pool_of = self._pool_of or self._read(room)
        gangs = grant.gangs
        nodes, count, gpus, _, _ = gangs[0].workers
        if len(gangs) == 1 and gangs[0].servers is None and len(nodes) == 1:
            return ((pool_of[nodes[0]], count[0] * gpus),)
        held: dict[int, int] = {}
        for part in (part for gang in gangs for part in gang if part is not None):
            for node, replicas in zip(part.nodes, part.count, strict=True):
                held[pool_of[node]] = held.get(pool_of[node], 0) + replicas * part.gpus
        return tuple(held.items())

    def _read(self, room: Room) -> list[int]:
        at = {node: pool for pool, nodes in enumerate(room.pools) for node in nodes.nodes}
        self._pool_of = [at[node] for node in range(len(at))] + [-1]
        return self._pool_of
