"""Running jobs that may be stopped, in order, so that the worst are found without a look at the others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from sim.contract import Demand, Grant, JobId, View, inf

Key = tuple[float, ...]
"""Priority of a waiting job; smaller goes first, ties go to the lower job id."""
Height = tuple[float, ...]
"""Place of a running job on its ladder; of two jobs the higher is the worse."""

NOBODY: Height = (inf,)
"""A limit above which no job stands."""
EVERYBODY: Height = ()
"""A limit above which every job stands."""


class Order(Protocol):
    """The priorities of a policy, for waiting jobs as keys and for running ones as rungs of ladders."""

    def key(self, view: View, job: JobId) -> Key:
        """Return the priority of a job that begins to wait. It does not change while the job waits."""
        ...

    def rung(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, Height]:
        """Return ladder and height of a job that starts with this grant."""
        ...

    def moved(self, view: View, job: JobId, grant: Grant, seat: Seat) -> tuple[float, Height]:
        """Return ladder and height of a running job that goes on with another grant."""
        ...

    def limit(self, ladder: float, key: Key, now_s: float) -> Height:
        """Return the height above which running jobs of a ladder stand behind a waiting job."""
        ...

    def rank(self, ladder: float, height: Height, now_s: float) -> tuple[float, ...]:
        """Return what compares jobs of different ladders: larger is worse."""
        ...

    def outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Tell whether the key of a job that has been stopped is no longer right."""
        ...

    def landed(self, view: View, job: JobId) -> None:
        """Take note that a job whose start was decided at the call before holds its grant."""
        ...

    def left(self, job: JobId, key: Key) -> None:
        """Take note that a job waits no longer, or at another place, without having been given a rung."""
        ...


Rung = tuple[Height, JobId, int]
"""A running job on a ladder, and its GPUs."""


class Ladder(NamedTuple):
    """Running jobs on the same pools, best first. ``pools`` is a bit set."""

    tag: float
    pools: int
    rungs: list[Rung]


class Seat(NamedTuple):
    """Where a running job is found."""

    ladder: Ladder
    height: Height
    gpus: int
    grant: Grant


class Ladders:
    """The ladders of all running jobs that may be stopped.

    Parameters
    ----------
    order : Order
        The policy's priorities.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self.seats: dict[JobId, Seat] = {}
        self.all: dict[tuple[float, int], Ladder] = {}
        self._masks: dict[int, int] = {}
        self._bit: dict[int, int] = {}

    def add(self, view: View, job: JobId, grant: Grant, key: Key) -> None:
        """Take in a job that starts, or has just been found running."""
        tag, height = self._order.rung(view, job, grant, key)
        if view.one("preemptible", job):
            at = (tag, self._pools(view, grant))
            self._seat(job, at, height, gpus_of(view.demand(job)), grant)

    def move(self, job: JobId, tag: float, height: Height) -> int:
        """Give a job another rung; return its GPUs."""
        seat = self.remove(job)
        self._seat(job, (tag, seat.ladder.pools), height, seat.gpus, seat.grant)
        return seat.gpus

    def relocate(self, view: View, job: JobId, grant: Grant) -> int:
        """Note that a running job goes on with another grant; return its GPUs."""
        seat = self.remove(job)
        tag, height = self._order.moved(view, job, grant, seat)
        self._seat(job, (tag, self._pools(view, grant)), height, seat.gpus, grant)
        return seat.gpus

    def remove(self, job: JobId) -> Seat:
        """Take a job out and return where it was."""
        seat = self.seats.pop(job)
        ladder = seat.ladder
        del ladder.rungs[bisect_left(ladder.rungs, (seat.height, job, 0))]
        if not ladder.rungs:
            del self.all[ladder.tag, ladder.pools]
        return seat

    def worse(self, view: View, demand: Demand, key: Key, gpus: float) -> tuple[list[JobId], int]:
        """Return jobs on the pools of a demand that stand behind a key, the worst first, and the GPUs that they hold.

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
        behind: list[tuple[float, list[Rung]]] = []
        held = 0
        for tag, pools, rungs in self.all.values():
            if not pools & mask:
                continue
            limit = limit_on(tag, key, now_s)
            if rungs[-1][0] <= limit:
                continue
            worst: list[Rung] = []
            held = 0
            for rung in reversed(rungs):
                if rung[0] <= limit or held >= gpus:
                    break
                held += rung[2]
                worst.append(rung)
            behind.append((tag, worst))
        if len(behind) > 1:
            return self._merged(behind, now_s, gpus)
        return [job for _, worst in behind for _, job, _ in worst], held  # in order as they stand

    def _merged(
        self,
        behind: list[tuple[float, list[Rung]]],
        now_s: float,
        gpus: float,
    ) -> tuple[list[JobId], int]:
        found: list[tuple[tuple[float, ...], JobId, int]] = []
        for tag, rungs in behind:
            found += [(self._order.rank(tag, height, now_s), job, size) for height, job, size in rungs]
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
        known = self._masks.get(id(demand))
        if known is None:
            known = self._masks[id(demand)] = _union(1 << pool for pool in demand.pools)
        return known

    def _seat(
        self,
        job: JobId,
        at: tuple[float, int],
        height: Height,
        gpus: int,
        grant: Grant,
    ) -> None:
        ladder = self.all.get(at)
        if ladder is None:
            ladder = self.all[at] = Ladder(*at, [])
        insort(ladder.rungs, (height, job, gpus))
        # The named tuple's own constructor costs a second call, once per start.
        self.seats[job] = tuple.__new__(Seat, (ladder, height, gpus, grant))

    def _pools(self, view: View, grant: Grant) -> int:
        if not self._bit:
            self._bit = {node: 1 << at for at, pool in enumerate(view.room.pools) for node in pool.nodes}
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
