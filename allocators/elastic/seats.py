"""Where a job goes whose size its allocator chose: between whom GPUs can be divided, and the nodes
of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import Final, NamedTuple

from allocators.placement import Placer, capacity_for
from sim.contract import Demand, FreeResources, Gang, Grant, Part, View

NOWHERE: Final = -1


class Area(NamedTuple):
    """Nodes of one GPU type among which sizes are divided.

    Parameters
    ----------
    pools : tuple of int
        The pools that contain them.
    type_at : int
        Place of the type in ``cluster.types``.
    per_node : int, GPUs
        Of its largest nodes.
    unit : int, GPUs
        What is divided.
    whole : mapping of int to int
        Where a unit is a whole node: pool -> bit set of its nodes of that size, the only ones that
        belong to the area. Else empty, and all nodes do.
    """

    pools: tuple[int, ...]
    type_at: int
    per_node: int
    unit: int
    whole: Mapping[int, int]


class Areas:
    """Divides the GPU nodes into areas: nodes of one type that the same jobs may use, and of one
    size where whole nodes are divided.

    Parameters
    ----------
    place : Placer
        Knows the order of GPU types.
    whole : bool
        Whether a unit is a whole node, and every size of node an area of its own, the largest
        first; else it is one GPU.
    """

    def __init__(self, place: Placer, *, whole: bool) -> None:
        self._place, self._whole = place, whole
        self._seen: set[tuple[int, ...]] = set()
        self._anything: Demand | None = None
        self._area_of: dict[int, int] = {}
        self.all: tuple[Area, ...] = ()

    def admit(self, view: View, pools: set[tuple[int, ...]]) -> bool:
        """Take in which pools jobs may use; return whether areas, and their numbers, have changed
        for that.
        """
        if pools <= self._seen:
            return False
        self._seen |= pools
        if self._anything is None:
            self._anything = Demand(
                1,
                1,
                0.0,
                0.0,
                tuple(at for at, pool in enumerate(view.room.pools) if pool.type_at >= 0),
            )
        kinds = self._place.ways(view, self._anything).groups
        parts = [
            part
            for kind in kinds
            for part in _joined(frozenset(kind).intersection(seen) for seen in self._seen)
        ]
        self.all = tuple(
            area
            for part in parts
            for area in (self._by_size(view, part) if self._whole else [self._area(view, part)])
        )
        self._area_of = {
            node: at
            for at, area in enumerate(self.all)
            for pool in area.pools
            for place, node in enumerate(view.room.pools[pool].nodes)
            if not self._whole or area.whole[pool] >> place & 1
        }
        return True

    def of(self, nodes: Iterable[int]) -> set[int]:
        """Return the numbers of the areas to which these nodes belong, with `NOWHERE` for a node
        outside all of them.
        """
        return {self._area_of.get(node, NOWHERE) for node in nodes}

    @staticmethod
    def _area(view: View, part: tuple[int, ...]) -> Area:
        pools = view.room.pools
        return Area(
            part, pools[part[0]].type_at, max(pools[at].gpus_per_node for at in part), 1, {}
        )

    @staticmethod
    def _by_size(view: View, part: tuple[int, ...]) -> list[Area]:
        pools, nodes = view.room.pools, view.cluster.nodes
        sizes: dict[int, dict[int, int]] = {}
        for pool in part:
            for place, node in enumerate(pools[pool].nodes):
                whole = sizes.setdefault(nodes[node].gpus, {})
                whole[pool] = whole.get(pool, 0) | 1 << place
        return [
            Area(tuple(whole), pools[part[0]].type_at, gpus, gpus, whole)
            for gpus, whole in sorted(sizes.items(), reverse=True)
        ]


class Range(NamedTuple):
    """How few and how many GPUs a job may have, and how many it asked for."""

    least: float
    most: float
    asked: float


def admissible(gpus: Range, unit: int, room: int, *, every: bool) -> tuple[int, ...]:
    """Return the sizes that a job may have.

    Parameters
    ----------
    gpus : Range
        In GPUs; the least counts where the most is below it.
    unit : int
        GPUs per unit; a job gets as many units as hold its least, even if that is more than its
        most.
    room : int
        Units that an empty and complete area could give it; larger sizes are left out.
    every : bool
        Whether every size in the range is admissible, or only powers of two, the ends of the range,
        and what was asked for.

    Returns
    -------
    tuple of int
        In units, ascending.
    """
    low = max(ceil(gpus.least / unit), 1)
    high = max(low, int(min(gpus.most, (room + 1) * unit)) // unit)
    if every:
        return tuple(range(low, min(high, room) + 1))
    asked = min(max(ceil(gpus.asked / unit), low), high)
    powers = [1 << power for power in range(high.bit_length())]
    return tuple(
        sorted(size for size in {low, asked, high, *powers} if low <= size <= min(high, room))
    )


def _joined(sets: Iterable[frozenset[int]]) -> list[tuple[int, ...]]:
    """Unite sets that have members in common; return each ascending, in order of their first
    members.
    """
    joined: list[frozenset[int]] = []
    for some in sets:
        if some:
            apart = [other for other in joined if not other & some]
            joined = [*apart, some.union(*(other for other in joined if other & some))]
    return sorted(tuple(sorted(part)) for part in joined)


class UnitPlacer:
    """Finds free nodes, and reserves them tentatively.

    Parameters
    ----------
    place : Placer
        Chooses the nodes where a unit is one GPU; whole nodes are all alike, and those of the
        lowest number are taken.
    whole : bool
        Whether a unit is a whole node, of which then no GPU may be in use and all are taken; each
        with the cores and memory that the job asked for per GPU, but never more than its share of
        the node.
    """

    def __init__(self, place: Placer, *, whole: bool) -> None:
        self._place, self._whole = place, whole
        self._resized: dict[tuple[int, int, int, tuple[int, ...]], Demand] = {}

    def demand(self, view: View, demand: Demand, gpus: int, area: Area) -> Demand:
        """Return the demand for another number of GPUs within an area; always the same object."""
        key = (demand.key, gpus, area.unit, area.pools)
        known = self._resized.get(key)
        if known is None:
            admitted = tuple(at for at in demand.pools if at in area.pools)
            known = replace(demand, replicas=gpus // demand.gpus, pools=admitted)
            self._resized[key] = known = self._by_node(view, known, area) if self._whole else known
        return known

    def most(self, view: View, demand: Demand, area: Area) -> int:
        """Return how many units the empty and complete area could give to a job."""
        node = self.demand(view, demand, area.per_node, area)
        nodes = [at for pool in node.pools for at in view.room.pools[pool].nodes]
        if self._whole:
            whole = [at for at in nodes if view.cluster.nodes[at].gpus == area.unit]
            return sum([capacity_for(view, at, node) * node.gpus >= area.unit for at in whole])
        return sum([capacity_for(view, at, node) * node.gpus for at in nodes])

    def free(self, room: FreeResources, area: Area) -> int:
        """Return the number of unused units of an area."""
        if not self._whole:
            return room.gpus_free(area.pools)
        return sum(
            [
                (room.masks[pool][area.unit] & whole).bit_count()
                for pool, whole in area.whole.items()
            ]
        )

    def find(
        self, view: View, demand: Demand, units: int, area: Area, own: Iterable[int] = ()
    ) -> Grant | None:
        """Place a job of so many units, or return None; whole nodes are taken from its `own`
        first.
        """
        resized = self.demand(view, demand, units * area.unit, area)
        if not self._whole:
            return self._place(view, resized)
        found = _take_whole(
            view.room, resized, area.unit, [*sorted(own), *_unused(view.room, resized.pools, area)]
        )
        return (
            self._place.with_servers(view, resized.servers, found)
            if found is not None and resized.servers is not None
            else found
        )

    def shrink(
        self, view: View, demand: Demand, grant: Grant, units: int, area: Area
    ) -> Grant | None:
        """Give a job back all but so many units on nodes of its own; None, and nothing given back,
        if it would not fit even there.
        """
        room, servers = view.room, grant.gangs[0].servers
        resized = self.demand(view, demand, units * area.unit, area)
        room.give(grant)
        own = {
            node: fit
            for node, held in gpus_by_node(grant).items()
            if (fit := min(held // resized.gpus, room.replicas_that_fit(node, resized)))
        }
        whole = _take_whole(room, resized, area.unit, sorted(own), servers) if self._whole else None
        if whole is not None:
            return whole
        if sum(own.values()) < resized.replicas:
            room.take(grant)
            return None
        return _reserve(room, resized, _fewest(own, resized.replicas), servers)

    def grow(
        self, view: View, demand: Demand, grant: Grant, sizes: Iterable[int], area: Area
    ) -> Grant | None:
        """Place a job again, at the first of these sizes for which its own and the free resources
        suffice; None, and no change, if there is none.
        """
        view.room.give(grant)
        own = gpus_by_node(grant)
        for units in sizes:
            found = self.find(view, demand, units, area, own)
            if found is not None:
                return found
        view.room.take(grant)
        return None

    def _by_node(self, view: View, demand: Demand, area: Area) -> Demand:
        # Who asked for one GPU with half the cores of a node does not ask for eight times that when
        # it is given the node.
        nodes = [
            view.cluster.nodes[at] for pool in demand.pools for at in view.room.pools[pool].nodes
        ]
        able = [
            node
            for node in nodes
            if node.gpus == area.unit and node.cpus >= demand.cpus and node.mem_gb >= demand.mem_gb
        ]
        cpus = min([demand.cpus, *(node.cpus / area.unit * demand.gpus for node in able)])
        return replace(
            demand,
            cpus=cpus,
            mem_gb=min([demand.mem_gb, *(node.mem_gb / area.unit * demand.gpus for node in able)]),
        )


def gpus_by_node(grant: Grant) -> dict[int, int]:
    """Return how many GPUs a grant holds on each of its nodes."""
    held: dict[int, int] = {}
    for gang in grant.gangs:
        for part in gang:
            if part is not None and part.gpus:
                for node, count in zip(part.nodes, part.count, strict=True):
                    held[node] = held.get(node, 0) + count * part.gpus
    return held


def _unused(room: FreeResources, pools: Iterable[int], area: Area) -> Iterator[int]:
    for pool in pools:
        nodes, mask = room.pools[pool].nodes, room.masks[pool][area.unit] & area.whole[pool]
        while mask:
            low = mask & -mask
            yield nodes[low.bit_length() - 1]
            mask ^= low


def _take_whole(
    room: FreeResources,
    demand: Demand,
    unit: int,
    candidates: Iterable[int],
    servers: Part | None = None,
) -> Grant | None:
    """Reserve the first of these nodes that are unused, all of each, or nothing if they are too
    few.
    """
    fit, spots = unit // demand.gpus, dict[int, int]()
    missing = demand.replicas // fit
    for node in candidates:
        if node not in spots and room.replicas_that_fit(node, demand) >= fit:
            spots[node] = fit
            missing -= 1
            if not missing:
                return _reserve(room, demand, spots, servers)
    return None


def _fewest(own: Mapping[int, int], need: int) -> dict[int, int]:
    """Choose from the replicas on these nodes so many, on as few nodes as possible; what is left
    over comes from the node with the least to spare.
    """
    spots: dict[int, int] = {}
    left = sorted((-fit, node) for node, fit in own.items())
    while need:
        rest = [(fit, node) for fit, node in left if -fit >= need]
        fit, node = max(rest, key=lambda item: (item[0], -item[1])) if rest else left[0]
        left.remove((fit, node))
        spots[node] = min(-fit, need)
        need -= spots[node]
    return spots


def _reserve(
    room: FreeResources, demand: Demand, spots: Mapping[int, int], servers: Part | None
) -> Grant:
    nodes = tuple(sorted(spots))
    grant = Grant(
        (
            Gang(
                Part(
                    nodes,
                    tuple(spots[node] for node in nodes),
                    demand.gpus,
                    demand.cpus,
                    demand.mem_gb,
                ),
                servers,
            ),
        )
    )
    room.take(grant)
    return grant
