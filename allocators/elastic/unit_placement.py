"""Division of nodes into areas, and placement of jobs of a chosen size on them."""

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
        Index of the type in ``cluster.types``.
    per_node : int, GPUs
        GPUs of its largest nodes.
    unit : int, GPUs
        GPUs per unit.
    whole : mapping of int to int
        If a unit is a whole node: pool -> bit set of its nodes of that size, the only ones in the
        area. Otherwise empty: all nodes belong to it.
    """

    pools: tuple[int, ...]
    type_at: int
    per_node: int
    unit: int
    whole: Mapping[int, int]


class Areas:
    """Divides the GPU nodes into areas: nodes of one type that the same jobs may use.

    Parameters
    ----------
    place : Placer
        Orders the GPU types.
    whole : bool
        Whether a unit is a whole node; then every node size is an area of its own, the largest
        first. Otherwise a unit is one GPU.
    """

    def __init__(self, place: Placer, *, whole: bool) -> None:
        self._place, self._whole = place, whole
        self._pool_sets: set[tuple[int, ...]] = set()
        self._any_gpu_demand: Demand | None = None
        self._area_of: dict[int, int] = {}
        self.all: tuple[Area, ...] = ()

    def add_pools(self, view: View, pools: set[tuple[int, ...]]) -> bool:
        """Add sets of pools that jobs may use; return True if one is new and areas were rebuilt."""
        if pools <= self._pool_sets:
            return False
        self._pool_sets |= pools
        if self._any_gpu_demand is None:
            self._any_gpu_demand = Demand(
                1,
                1,
                0.0,
                0.0,
                tuple(at for at, pool in enumerate(view.room.pools) if pool.type_at >= 0),
            )
        kinds = self._place.options(view, self._any_gpu_demand).groups
        parts = [
            part
            for kind in kinds
            for part in _merge_overlapping(
                frozenset(kind).intersection(seen) for seen in self._pool_sets
            )
        ]
        self.all = tuple(
            area
            for part in parts
            for area in (
                self._areas_by_size(view, part)
                if self._whole
                else [self._area_of_pools(view, part)]
            )
        )
        self._area_of = {
            node: at
            for at, area in enumerate(self.all)
            for pool in area.pools
            for place, node in enumerate(view.room.pools[pool].nodes)
            if not self._whole or area.whole[pool] >> place & 1
        }
        return True

    def area_indices(self, nodes: Iterable[int]) -> set[int]:
        """Return the indices of the areas of these nodes; `NOWHERE` for a node outside them."""
        return {self._area_of.get(node, NOWHERE) for node in nodes}

    @staticmethod
    def _area_of_pools(view: View, part: tuple[int, ...]) -> Area:
        """Return the area of all nodes of these pools of one GPU type, with one GPU as unit."""
        pools = view.room.pools
        return Area(
            part, pools[part[0]].type_at, max(pools[at].gpus_per_node for at in part), 1, {}
        )

    @staticmethod
    def _areas_by_size(view: View, part: tuple[int, ...]) -> list[Area]:
        """Return an area for each node size of these pools, the largest first."""
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
    """Least and most GPUs of a job, and its request."""

    least: float
    most: float
    request: float


def admissible(gpus: Range, unit: int, room: int, *, every: bool) -> tuple[int, ...]:
    """Return the sizes that a job may have, in units, ascending.

    Parameters
    ----------
    gpus : Range
        Range in GPUs; the least counts if the most is below it.
    unit : int
        GPUs per unit; a job gets as many units as hold its least, even if that exceeds its most.
    room : int
        Most units that an empty area can give to the job.
    every : bool
        Whether every size in the range is admissible, or only powers of two, the ends of the range,
        and the request.

    Returns
    -------
    tuple of int
        In units, ascending.
    """
    low = max(ceil(gpus.least / unit), 1)
    high = max(low, int(min(gpus.most, (room + 1) * unit)) // unit)
    if every:
        return tuple(range(low, min(high, room) + 1))
    request = min(max(ceil(gpus.request / unit), low), high)
    powers = [1 << power for power in range(high.bit_length())]
    return tuple(
        sorted(size for size in {low, request, high, *powers} if low <= size <= min(high, room))
    )


def _merge_overlapping(sets: Iterable[frozenset[int]]) -> list[tuple[int, ...]]:
    """Return the unions of sets with common members, each ascending."""
    joined: list[frozenset[int]] = []
    for some in sets:
        if some:
            apart = [other for other in joined if not other & some]
            joined = [*apart, some.union(*(other for other in joined if other & some))]
    return sorted(tuple(sorted(part)) for part in joined)


class UnitPlacer:
    """Finds free nodes for a number of units and reserves them tentatively.

    Parameters
    ----------
    place : Placer
        Chooses the nodes if a unit is one GPU; whole nodes are taken by lowest number.
    whole : bool
        Whether a unit is a whole unused node. Each has the cores and memory that the job requests
        per GPU, but at most its share of the node.
    """

    def __init__(self, place: Placer, *, whole: bool) -> None:
        self._place, self._whole = place, whole
        self._resized: dict[tuple[int, int, int, tuple[int, ...]], Demand] = {}

    def demand(self, view: View, demand: Demand, gpus: int, area: Area) -> Demand:
        """Return the demand for another number of GPUs, in the area's pools only; cached.

        With whole nodes, cores and memory are capped at the GPUs' share of a node.
        """
        key = (demand.key, gpus, area.unit, area.pools)
        resized = self._resized.get(key)
        if resized is None:
            admitted = tuple(at for at in demand.pools if at in area.pools)
            resized = replace(demand, replicas=gpus // demand.gpus, pools=admitted)
            self._resized[key] = resized = (
                self._cap_by_node(view, resized, area) if self._whole else resized
            )
        return resized

    def max_units(self, view: View, demand: Demand, area: Area) -> int:
        """Return the most units that the empty area could give to a job."""
        node = self.demand(view, demand, area.per_node, area)
        nodes = [at for pool in node.pools for at in view.room.pools[pool].nodes]
        if self._whole:
            whole = [at for at in nodes if view.cluster.nodes[at].gpus == area.unit]
            return sum([capacity_for(view, at, node) * node.gpus >= area.unit for at in whole])
        return sum([capacity_for(view, at, node) * node.gpus for at in nodes])

    def free_units(self, room: FreeResources, area: Area) -> int:
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
        """Reserve nodes for a number of units and return the grant, or None if they do not fit.

        Whole nodes are taken from its `own` nodes first.
        """
        resized = self.demand(view, demand, units * area.unit, area)
        if not self._whole:
            return self._place(view, resized)
        grant = _take_whole_nodes(
            view.room,
            resized,
            area.unit,
            [*sorted(own), *_unused_nodes(view.room, resized.pools, area)],
        )
        return (
            self._place.with_servers(view, resized.servers, grant)
            if grant is not None and resized.servers is not None
            else grant
        )

    def shrink(
        self, view: View, demand: Demand, grant: Grant, units: int, area: Area
    ) -> Grant | None:
        """Return a job's grant of only `units`, on its own nodes; None if that is impossible.

        On failure nothing is released.
        """
        room, servers = view.room, grant.gangs[0].servers
        resized = self.demand(view, demand, units * area.unit, area)
        room.give(grant)
        own = {
            node: fit
            for node, held in gpus_by_node(grant).items()
            if (fit := min(held // resized.gpus, room.replicas_that_fit(node, resized)))
        }
        whole = (
            _take_whole_nodes(room, resized, area.unit, sorted(own), servers)
            if self._whole
            else None
        )
        if whole is not None:
            return whole
        if sum(own.values()) < resized.replicas:
            room.take(grant)
            return None
        return _reserve(room, resized, _fewest_spots(own, resized.replicas), servers)

    def grow(
        self, view: View, demand: Demand, grant: Grant, sizes: Iterable[int], area: Area
    ) -> Grant | None:
        """Place a job again at the first of these sizes that fits; None if none does.

        It may use its own and free resources; on failure nothing changes.
        """
        view.room.give(grant)
        own = gpus_by_node(grant)
        for units in sizes:
            larger = self.find(view, demand, units, area, own)
            if larger is not None:
                return larger
        view.room.take(grant)
        return None

    def _cap_by_node(self, view: View, demand: Demand, area: Area) -> Demand:
        """Return the demand with cores and memory capped at its GPUs' share of a whole node."""
        # A request of one GPU with half the cores of a node does not become eight times that when
        # the job gets the whole node.
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
    """Return the GPUs of a grant on each of its nodes."""
    held: dict[int, int] = {}
    for gang in grant.gangs:
        for part in gang:
            if part is not None and part.gpus:
                for node, count in zip(part.nodes, part.count, strict=True):
                    held[node] = held.get(node, 0) + count * part.gpus
    return held


def _unused_nodes(room: FreeResources, pools: Iterable[int], area: Area) -> Iterator[int]:
    """Yield the unused nodes of an area in these pools, pool by pool."""
    for pool in pools:
        nodes, mask = room.pools[pool].nodes, room.masks[pool][area.unit] & area.whole[pool]
        while mask:
            low = mask & -mask
            yield nodes[low.bit_length() - 1]
            mask ^= low


def _take_whole_nodes(
    room: FreeResources,
    demand: Demand,
    unit: int,
    candidates: Iterable[int],
    servers: Part | None = None,
) -> Grant | None:
    """Reserve the first unused nodes of the candidates as whole nodes; None if too few."""
    fit, spots = unit // demand.gpus, dict[int, int]()
    missing = demand.replicas // fit
    for node in candidates:
        if node not in spots and room.replicas_that_fit(node, demand) >= fit:
            spots[node] = fit
            missing -= 1
            if not missing:
                return _reserve(room, demand, spots, servers)
    return None


def _fewest_spots(own: Mapping[int, int], need: int) -> dict[int, int]:
    """Return the replicas per node, on as few of these nodes as possible.

    The last replicas go to the node with the least room that holds them.
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
    """Reserve replicas on nodes and return the grant."""
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
