"""From what a running job holds to what it shall hold: replicas that stay as they are keep their nodes, the others go where there is room."""

from __future__ import annotations

from collections.abc import Collection

from allocators.placement import Placer
from sim.contract import Demand, Gang, Grant, Part, View


class Rebuild:
    """Places new replicas of running jobs beside the old ones.

    Parameters
    ----------
    place : Placer
        Chooses nodes.
    """

    def __init__(self, place: Placer) -> None:
        self._place = place
        self._demands: dict[Demand, Demand] = {}

    def interned(self, demand: Demand) -> Demand:
        """Return the one object for all equal demands; it lives as long as this."""
        return self._demands.setdefault(demand, demand)

    def __call__(self, view: View, held: Grant, wanted: Demand, avoid: Collection[int], *, beside: bool) -> Grant | None:
        """Return what a job shall hold, reserved on ``view.room``, or None if there is no room for it.

        Parameters
        ----------
        view : View
            The instant.
        held : Grant
            What it holds now: one gang with servers.
        wanted : Demand
            What it shall be made of. Where there is no room for all workers it gets fewer, if they are still more than now.
        avoid : collection of int
            Nodes on which it shall not have replicas.
        beside : bool
            Whether what it leaves stays reserved until all has moved; else that is free at once.
        """
        assert wanted.servers is not None
        workers, servers = held.gangs[0]
        assert servers is not None
        kept = _kept(workers, wanted, avoid), _kept(servers, wanted.servers, avoid)
        taken: list[Grant] = []
        if not beside:
            view.room.give(held)
            for part in kept:
                if part is not None:
                    taken.append(Grant((Gang(part),)))
                    view.room.take(taken[-1])
        beyond = sum(workers.count)
        many = self._added(view, wanted.servers, kept[1], avoid, taken, beyond=None)
        crew = self._added(view, wanted, kept[0], avoid, taken, beyond=beyond) if many is not None else None
        if crew is not None and many is not None:
            return Grant((Gang(crew, many),), held.tuning)
        for grant in reversed(taken):
            view.room.give(grant)
        if not beside:
            view.room.take(held)
        return None

    def _added(self, view: View, wanted: Demand, kept: Part | None, avoid: Collection[int], taken: list[Grant], *, beyond: int | None) -> Part | None:
        """Return all replicas of a role, the new ones reserved; with `beyond` also fewer than wanted, but more than that."""
        stay = sum(kept.count) if kept is not None else 0
        missing = wanted.replicas - stay
        if not missing:
            return kept
        if beyond is not None:
            nodes = [node for at in wanted.pools for node in view.room.pools[at].nodes if node not in avoid]
            missing = min(missing, sum([view.room.replicas_that_fit(node, wanted) for node in nodes]))
        found = None
        if missing and (stay + missing == wanted.replicas or beyond is None or stay + missing > beyond):
            found = self._place(view, self.interned(wanted._replace(replicas=missing, servers=None)), avoid)
        if found is None:
            return None
        taken.append(found)
        return _joined(kept, found.gangs[0].workers)


def _kept(part: Part, wanted: Demand, avoid: Collection[int]) -> Part | None:
    """Return the replicas that may stay: of the same kind, no more than wanted, and none on nodes to avoid."""
    if (part.gpus, part.cpus, part.mem_gb) != (wanted.gpus, wanted.cpus, wanted.mem_gb):
        return None
    spots, left = [], wanted.replicas
    for node, count in zip(part.nodes, part.count, strict=True):
        if left and node not in avoid:
            spots.append((node, min(count, left)))
            left -= spots[-1][1]
    return part._replace(nodes=tuple(node for node, _ in spots), count=tuple(count for _, count in spots)) if spots else None


def _joined(kept: Part | None, added: Part) -> Part:
    if kept is None:
        return added
    count = dict(zip(kept.nodes, kept.count, strict=True))
    for node, more in zip(added.nodes, added.count, strict=True):
        count[node] = count.get(node, 0) + more
    return added._replace(nodes=tuple(count), count=tuple(count.values()))


def fit_together(view: View, demand: Demand) -> bool:
    """Tell whether the empty cluster has room for workers and servers, those where these leave it."""
    servers = demand.servers
    assert servers is not None
    crew, many = demand.replicas, servers.replicas
    unknown = view.cluster.unknown(view.now_s)
    for node in (view.cluster.nodes[node] for at in demand.pools for node in view.room.pools[at].nodes if node not in unknown):
        took = _most((node.cpus, node.mem_gb), demand, crew)
        left = node.cpus - took * demand.cpus, node.mem_gb - took * demand.mem_gb
        crew, many = crew - took, many - _most(left, servers, many)
    return crew <= 0 and many <= 0


def _most(free: tuple[float, float], demand: Demand, wanted: int) -> int:
    amounts = [(free[0], demand.cpus), (free[1], demand.mem_gb)]
    return int(min([wanted, *((have + 1e-9) // each for have, each in amounts if each)]))
