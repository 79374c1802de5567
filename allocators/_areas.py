"""Between whom GPUs can be divided: nodes of one type that the same jobs may use, and the sizes that a job may have there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Final, NamedTuple

from allocators.placement import Placer
from sim.contract import Demand, View

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
        Where a unit is a whole node: pool -> bit set of its nodes of that size, the only ones that belong to the area. Else empty, and all nodes do.
    """

    pools: tuple[int, ...]
    type_at: int
    per_node: int
    unit: int
    whole: Mapping[int, int]


class Areas:
    """Divides the GPU nodes into areas: nodes of one type that the same jobs may use, and of one size where whole nodes are divided.

    Parameters
    ----------
    place : Placer
        Knows the order of GPU types.
    whole : bool
        Whether a unit is a whole node, and every size of node an area of its own, the largest first; else it is one GPU.
    """

    def __init__(self, place: Placer, *, whole: bool) -> None:
        self._place, self._whole = place, whole
        self._seen: set[tuple[int, ...]] = set()
        self._anything: Demand | None = None
        self._area_of: dict[int, int] = {}
        self.all: tuple[Area, ...] = ()

    def admit(self, view: View, pools: set[tuple[int, ...]]) -> bool:
        """Take in which pools jobs may use; return whether areas, and their numbers, have changed for that."""
        if pools <= self._seen:
            return False
        self._seen |= pools
        if self._anything is None:
            self._anything = Demand(1, 1, 0.0, 0.0, tuple(at for at, pool in enumerate(view.room.pools) if pool.type_at >= 0))
        kinds = self._place.ways(view, self._anything).groups
        parts = [part for kind in kinds for part in _joined(frozenset(kind).intersection(seen) for seen in self._seen)]
        self.all = tuple(area for part in parts for area in (self._by_size(view, part) if self._whole else [self._area(view, part)]))
        self._area_of = {
            node: at
            for at, area in enumerate(self.all)
            for pool in area.pools
            for place, node in enumerate(view.room.pools[pool].nodes)
            if not self._whole or area.whole[pool] >> place & 1
        }
        return True

    def of(self, nodes: Iterable[int]) -> set[int]:
        """Return the numbers of the areas to which these nodes belong, with `NOWHERE` for a node outside all of them."""
        return {self._area_of.get(node, NOWHERE) for node in nodes}

    @staticmethod
    def _area(view: View, part: tuple[int, ...]) -> Area:
        pools = view.room.pools
        return Area(part, pools[part[0]].type_at, max(pools[at].gpus_per_node for at in part), 1, {})

    @staticmethod
    def _by_size(view: View, part: tuple[int, ...]) -> list[Area]:
        pools, nodes = view.room.pools, view.cluster.nodes
        sizes: dict[int, dict[int, int]] = {}
        for pool in part:
            for place, node in enumerate(pools[pool].nodes):
                whole = sizes.setdefault(nodes[node].gpus, {})
                whole[pool] = whole.get(pool, 0) | 1 << place
        return [Area(tuple(whole), pools[part[0]].type_at, gpus, gpus, whole) for gpus, whole in sorted(sizes.items(), reverse=True)]


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
        GPUs per unit; a job gets as many units as hold its least, even if that is more than its most.
    room : int
        Units that an empty and complete area could give it; larger sizes are left out.
    every : bool
        Whether every size in the range is admissible, or only powers of two, the ends of the range, and what was asked for.

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
    return tuple(sorted(size for size in {low, asked, high, *powers} if low <= size <= min(high, room)))


def _joined(sets: Iterable[frozenset[int]]) -> list[tuple[int, ...]]:
    """Unite sets that have members in common; return each ascending, in order of their first members."""
    joined: list[frozenset[int]] = []
    for some in sets:
        if some:
            apart = [other for other in joined if not other & some]
            joined = [*apart, some.union(*(other for other in joined if other & some))]
    return sorted(tuple(sorted(part)) for part in joined)
