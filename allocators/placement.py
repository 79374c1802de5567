"""Placement rules: choose the free nodes of a gang by the parameters of a policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import Any, Final, NamedTuple, Self

from sim.contract import Demand, FreeResources, Gang, Grant, JobId, Part, View, instant, param

Spot = tuple[int, int]
"""(node, replicas on it)"""

PLACEMENTS: Final = ("pack", "fewest", "consolidate", "first_fit", "spread", "anywhere")
WAITING_PLACEMENTS: Final = frozenset({"consolidate", "first_fit"})
"""Placements under which a gang may wait although enough GPUs are free."""
TYPES: Final = ("fastest", "slowest_that_fits", "cheapest")
RUN_TIME_NEEDS: Final = frozenset({"remaining_work", "rates"})
"""Needs of `Placer.run_time_s`; see `sim.contract.Needs`."""


def placement_param() -> Any:
    """Declare the policy parameter ``placement``."""
    return param(
        "fewest",
        choices=PLACEMENTS,
        labels={
            "pack": "Fullest nodes first",
            "fewest": "Fewest nodes now",
            "consolidate": "Fewest nodes, else wait",
            "first_fit": "Fewest nodes, lowest number",
            "spread": "Emptiest nodes first",
            "anywhere": "Any free GPUs",
        },
        help=(
            "pack: fullest nodes first. fewest: as few nodes as possible now. consolidate: as few"
            " as an empty cluster needs, else wait, fullest first (best fit). first_fit: the same,"
            " lowest number first. spread: emptiest first, evenly. anywhere: any free GPUs, lowest"
            " number first."
        ),
    )


def types_param() -> Any:
    """Declare the policy parameter ``types``."""
    return param(
        "fastest",
        title="Preferred GPU type",
        choices=TYPES,
        labels={
            "fastest": "Fastest first",
            "slowest_that_fits": "Slowest first",
            "cheapest": "Cheapest first",
        },
        help="GPU type to try first on a mixed cluster: by speed or by price.",
    )


def mix_param() -> Any:
    """Declare the policy parameter ``mix``."""
    return param(
        False,
        title="Mix GPU types",
        help="Whether one gang may span GPU types when no single type has room.",
    )


class PlacementOptions(NamedTuple):
    """Pools that may hold a demand, in the order to try them.

    Parameters
    ----------
    groups : tuple of tuples of int
        Sets of pools: one for each GPU type, then all together if a gang may span types. Sets that
        could not hold the gang even when empty are left out.
    by_mask : bool
        Whether only GPUs limit the placement: the job asks for no servers, and cores and memory
        are not requested or not limited.
    preferred : int
        Number of groups as good as the first one; all groups for a job without GPUs.
    """

    groups: tuple[tuple[int, ...], ...]
    by_mask: bool
    preferred: int


class Placer:
    """Chooses free nodes for a demand and reserves them on the view.

    Parameters
    ----------
    how : str
        One of `PLACEMENTS`.
    types : str
        One of `TYPES`.
    mix : bool
        Whether a gang may span types.

    Notes
    -----
    Parameter servers are placed after the workers and like a job without GPUs, on nodes without
    GPUs first. Our reading; the papers leave it open.

    With ``fewest``, a gang fills the emptiest nodes; its last replicas go to the fullest node with
    room for them, with ``first_fit`` to the one with the lowest number.

    Ties go to the node with the lowest number. If only GPUs limit the placement, it works on bit
    sets of free GPUs; otherwise every node of the pools is checked for cores and memory.
    """

    def __init__(self, how: str, types: str = "fastest", mix: bool = False) -> None:
        self._how, self._types, self._mix = how, types, mix
        self._find = _BY_MASK[how]
        self._one_if_it_can = how in {"fewest", "consolidate"}
        self._may_wait = how in WAITING_PLACEMENTS
        self._ways: dict[int, PlacementOptions] = {}
        self._one_node_grants: dict[tuple[int, int], Grant] = {}
        self._fewest_nodes: dict[tuple[int, int, int], int] = {}
        self._empty_grants: dict[tuple[int, int], Grant] = {}

    def __call__(self, view: View, demand: Demand, avoid: Collection[int] = ()) -> Grant | None:
        """Reserve free nodes for a demand and return the grant, or None if it does not fit.

        No worker is placed on the nodes in `avoid`.
        """
        room = view.room
        groups, by_mask, _ = self._ways.get(demand.key) or self.options(view, demand)
        for pools in groups:
            if (
                demand.gpus
                and (room.free[pools[0]] if len(pools) == 1 else room.gpus_free(pools))
                < demand.replicas
            ):
                continue
            grant = (
                self._place_on_one_node(room, demand, pools[0])
                if by_mask and not avoid and self._one_if_it_can and len(pools) == 1
                else None
            )
            if grant is None:
                grant = self._within(view, demand, pools, avoid, by_mask=by_mask and not avoid)
            if grant is not None:
                return grant
        return None

    def place_within(self, view: View, demand: Demand, pools: tuple[int, ...]) -> Grant | None:
        """Reserve free nodes for a demand in one set of pools; return the grant, or None."""
        if demand.gpus and view.room.gpus_free(pools) < demand.replicas:
            return None
        return self._within(view, demand, pools, (), by_mask=self.options(view, demand).by_mask)

    def _place_on_one_node(self, room: FreeResources, demand: Demand, pool: int) -> Grant | None:
        """Reserve the fullest single node of a pool that holds the whole gang, or return None."""
        # A shortcut of `_fewest` for the most frequent gangs: one node of one pool holds them.
        masks = room.masks[pool]
        for free in range(demand.replicas, len(masks)):
            mask = masks[free]
            if mask:
                node = room.pools[pool].nodes[(mask & -mask).bit_length() - 1]
                grant = self._one_node_grants.get((node, demand.key)) or self._grant(
                    demand, [(node, demand.replicas)]
                )
                room.take(grant)
                return grant
        return None

    def _within(
        self,
        view: View,
        demand: Demand,
        pools: tuple[int, ...],
        avoid: Collection[int],
        *,
        by_mask: bool,
    ) -> Grant | None:
        """Reserve nodes in these pools by the placement rule; return the grant, or None.

        None also if more nodes are used than an empty cluster needs and the rule is to wait.
        """
        room = view.room
        spots = (
            self._find(room, pools, demand.replicas)
            if by_mask
            else _place_by_fit(room, pools, demand, self._how, avoid)
        )
        if spots is None or (
            self._may_wait and len(spots) > self._fewest_possible(view, demand, pools)
        ):
            return None
        grant = self._grant(demand, spots)
        room.take(grant)
        return grant if demand.servers is None else self.with_servers(view, demand.servers, grant)

    def with_servers(self, view: View, servers: Demand, workers: Grant) -> Grant | None:
        """Reserve servers for reserved workers and return both; else release the workers: None."""
        room = view.room
        server_grant = self(view, servers)
        room.give(workers)
        if server_grant is None:
            return None
        room.give(server_grant)
        grant = Grant((Gang(workers.gangs[0].workers, server_grant.gangs[0].workers),))
        room.take(grant)
        return grant

    def needs_only_gpus(self, view: View, demand: Demand) -> bool:
        """Return True if a demand can be placed whenever enough GPUs are free, on any nodes."""
        return self.options(view, demand).by_mask and not self._may_wait

    def options(self, view: View, demand: Demand) -> PlacementOptions:
        """Return the pools that may hold a demand, in the order to try them; cached."""
        options = self._ways.get(demand.key)
        if options is None:
            nodes, pools = view.cluster.nodes, view.room.pools
            pool_nodes = [nodes[node] for pool in demand.pools for node in pools[pool].nodes]
            unlimited = not (demand.cpus or demand.mem_gb) or all(
                node.cpus == inf and node.mem_gb == inf for node in pool_nodes
            )
            groups, preferred = self._rank_groups(view, demand)
            by_mask = demand.gpus == 1 and unlimited and demand.servers is None
            options = self._ways[demand.key] = PlacementOptions(groups, by_mask, preferred)
        return options

    def run_time_s(self, view: View, job: JobId, at: int = 0) -> float:
        """Return the estimated run time in seconds of a waiting job at its requested size.

        Reads the columns of `RUN_TIME_NEEDS`.

        Parameters
        ----------
        view : View
            The instant.
        job : int
            A waiting job.
        at : int
            Index of the group of pools that it would run on; 0 = the preferred type.
        """
        demand = view.demand(job)
        whole = self._empty_grants.get((demand.key, at))
        if whole is None:
            groups = self.options(view, demand).groups
            if not groups:
                return inf
            whole = self._empty_grants[demand.key, at] = empty_cluster_grant(
                view, demand, groups[at:]
            )
        rate = view.estimates.rate(job, whole)
        return view.one("remaining_work", job) / rate if rate > 0 else inf

    def _fewest_possible(self, view: View, demand: Demand, pools: Sequence[int]) -> int:
        """Return the number of nodes that a demand's workers need on empty pools; cached."""
        key = (demand.key, pools[0], len(pools))
        if key not in self._fewest_nodes:
            self._fewest_nodes[key] = len(
                empty_cluster_grant(view, demand, [pools]).gangs[0].workers.nodes
            )
        return self._fewest_nodes[key]

    def _grant(self, demand: Demand, spots: list[Spot]) -> Grant:
        """Return the grant of a demand on these nodes; grants of one node are cached."""
        if len(spots) > 1:
            nodes, count = zip(*spots, strict=True)
            return Grant((Gang(Part(nodes, count, demand.gpus, demand.cpus, demand.mem_gb)),))
        # Most grants use one node. A shared object saves building, checking and adding it up again.
        node = spots[0][0]
        grant = self._one_node_grants.get((node, demand.key))
        if grant is None:
            part = Part((node,), (demand.replicas,), demand.gpus, demand.cpus, demand.mem_gb)
            grant = self._one_node_grants[node, demand.key] = Grant((Gang(part),))
        return grant

    def _rank_groups(self, view: View, demand: Demand) -> tuple[tuple[tuple[int, ...], ...], int]:
        """Return groups of pools that can hold a demand, best first, and how many are preferred."""
        types = view.cluster.types
        keys: dict[str, Callable[[int], float]] = {
            "fastest": lambda at: -types[at].speed,
            "slowest_that_fits": lambda at: types[at].speed,
            "cheapest": lambda at: types[at].price_per_gpu_hour,
        }
        by_type: dict[int, list[int]] = {}
        for at in demand.pools:
            by_type.setdefault(view.room.pools[at].type_at, []).append(at)
        rank = {at: (at >= 0, keys[self._types](at) if at >= 0 else 0.0) for at in by_type}
        order = sorted(by_type, key=lambda at: (*rank[at], at))
        fit = [at for at in order if _fits_empty(view, demand, by_type[at])]
        groups = [tuple(by_type[at]) for at in fit]
        preferred = sum(rank[at] == rank[fit[0]] for at in fit)
        if (self._mix or not demand.gpus) and len(order) > 1:
            all_pools = tuple(pool for at in order for pool in by_type[at])
            groups += [all_pools] if _fits_empty(view, demand, all_pools) else []
        return tuple(groups), preferred if demand.gpus else len(groups)


def empty_cluster_grant(view: View, demand: Demand, groups: Iterable[Sequence[int]]) -> Grant:
    """Return the grant that a job would get in the first group of pools if all were empty.

    The largest nodes go first, the lowest number in a tie.
    """
    pools = next(iter(groups))
    fits = [
        (-capacity_for(view, node, demand), node)
        for at in pools
        for node in view.room.pools[at].nodes
    ]
    nodes, count = zip(
        *sorted(
            _take_in_order([(-fit, node) for fit, node in sorted(fits) if fit], demand.replicas)
        ),
        strict=True,
    )
    servers = (
        None
        if demand.servers is None
        else empty_cluster_grant(view, demand.servers, [demand.servers.pools]).gangs[0].workers
    )
    return Grant((Gang(Part(nodes, count, demand.gpus, demand.cpus, demand.mem_gb), servers),))


def could_ever_hold(view: View, demand: Demand, *, mixed: bool) -> bool:
    """Return True if a gang fits the empty cluster, on one GPU type or on several if `mixed`."""
    kinds: dict[int, list[int]] = {}
    for at in demand.pools:
        kinds.setdefault(0 if mixed or not demand.gpus else view.room.pools[at].type_at, []).append(
            at
        )
    fits = any(_fits_empty(view, demand, pools) for pools in kinds.values())
    return fits and (
        demand.servers is None or _fits_empty(view, demand.servers, demand.servers.pools)
    )


def _fits_empty(view: View, demand: Demand, pools: Iterable[int]) -> bool:
    """Return True if these pools hold all replicas of a demand when empty."""
    return (
        sum(
            [capacity_for(view, node, demand) for at in pools for node in view.room.pools[at].nodes]
        )
        >= demand.replicas
    )


def capacity_for(view: View, at: int, demand: Demand) -> int:
    """Return how many replicas of a demand an empty node holds, at most all; 0 if unannounced."""
    if view.cluster.unforeseen and at in view.cluster.unknown(view.now_s):
        return 0
    node = view.cluster.nodes[at]
    fit = node.gpus // demand.gpus if demand.gpus else inf
    fit = min(
        fit,
        (node.cpus + 1e-9) // demand.cpus if demand.cpus else inf,
        (node.mem_gb + 1e-9) // demand.mem_gb if demand.mem_gb else inf,
    )
    return int(min(fit, demand.replicas))


def _set_bits(mask: int) -> Iterable[int]:
    """Yield the positions of the set bits of a mask."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _fill_levels(room: FreeResources, order: Iterable[tuple[int, int]], need: int) -> list[Spot]:
    """Return (node, replicas) pairs that fill levels of (pool, free GPUs) in this order."""
    return _take_in_order(
        (
            (free, room.pools[pool].nodes[place])
            for pool, free in order
            for place in _set_bits(room.masks[pool][free])
        ),
        need,
    )


def _best_fit_node(
    room: FreeResources, pools: Sequence[int], need: int, below: int | None = None
) -> list[Spot]:
    """Return the fullest node with room for the whole gang as (node, need); empty if none.

    Only nodes with fewer than `below` free GPUs count.
    """
    best, where = inf, -1
    for pool in pools:
        masks = room.masks[pool]
        for free in range(need, min(below or len(masks), len(masks))):
            if masks[free]:
                if free < best:
                    best, where = free, pool
                break
    if where < 0:
        return []
    mask = room.masks[where][int(best)]
    return [(room.pools[where].nodes[(mask & -mask).bit_length() - 1], need)]


def _free_levels(
    room: FreeResources, pools: Sequence[int], *, emptiest_first: bool
) -> list[tuple[int, int]]:
    """Return the levels (pool, free GPUs) that have nodes, sorted by free GPUs."""
    if len(pools) == 1:
        pool = pools[0]
        masks = room.masks[pool]
        return [
            (pool, free)
            for free in (range(len(masks) - 1, 0, -1) if emptiest_first else range(1, len(masks)))
            if masks[free]
        ]
    levels = [
        (pool, free)
        for pool in pools
        for free in range(1, len(room.masks[pool]))
        if room.masks[pool][free]
    ]
    return sorted(levels, key=lambda level: (-level[1] if emptiest_first else level[1], level[0]))


def _place_packed(room: FreeResources, pools: Sequence[int], need: int) -> list[Spot]:
    """Return (node, replicas) pairs that fill the fullest nodes first."""
    if need == 1:
        return _best_fit_node(room, pools, 1)
    return _fill_levels(room, _free_levels(room, pools, emptiest_first=False), need)


def _fewest(room: FreeResources, pools: Sequence[int], need: int) -> list[Spot]:
    """Return (node, replicas) pairs on the fewest nodes: the emptiest, then the best fit.

    The last replicas go to the fullest node with room for them.
    """
    single_node = _best_fit_node(room, pools, need)
    if single_node:
        return single_node
    spots: list[Spot] = []
    for pool, free in _free_levels(room, pools, emptiest_first=True):
        nodes, mask = room.pools[pool].nodes, room.masks[pool][free]
        while mask and need > free:
            low = mask & -mask
            spots.append((nodes[low.bit_length() - 1], free))
            mask ^= low
            need -= free
        if mask:
            # The last node only takes the rest: the fullest node with room for it does too and
            # keeps the emptier one free.
            return spots + (
                _best_fit_node(room, pools, need, below=free)
                or [(nodes[(mask & -mask).bit_length() - 1], need)]
            )
    return spots


def _place_first_fit(room: FreeResources, pools: Sequence[int], need: int) -> list[Spot]:
    """Return (node, replicas) pairs on the fewest nodes; the last node has the lowest number."""
    *full, (_, rest) = _fewest(room, pools, need)
    used = {node for node, _ in full}
    return [
        *full,
        (min(node for node in nodes_with_free_gpus(room, pools, rest) if node not in used), rest),
    ]


def _place_spread(room: FreeResources, pools: Sequence[int], need: int) -> list[Spot]:
    """Return (node, replicas) pairs: one by one on the node with the most free GPUs."""
    levels = {
        (free, -pool): room.masks[pool][free]
        for pool in pools
        for free in range(1, len(room.masks[pool]))
    }
    taken: dict[tuple[int, int], int] = {}
    while need:
        free, key = max(level for level, mask in levels.items() if mask)
        mask = levels[free, key]
        low = mask & -mask
        levels[free, key] = mask ^ low
        levels[free - 1, key] = levels.get((free - 1, key), 0) | low if free > 1 else 0
        spot = (-key, low.bit_length() - 1)
        taken[spot] = taken.get(spot, 0) + 1
        need -= 1
    return [
        (room.pools[pool].nodes[place], count) for (pool, place), count in sorted(taken.items())
    ]


def _place_anywhere(room: FreeResources, pools: Sequence[int], need: int) -> list[Spot]:
    """Return (node, replicas) pairs that fill nodes with free GPUs in order of node number."""
    free_nodes: list[Spot] = []
    for pool in pools:
        nodes, masks = room.pools[pool].nodes, room.masks[pool]
        free_nodes += [
            (nodes[place], free)
            for free in range(1, len(masks))
            for place in _set_bits(masks[free])
        ]
    return _take_in_order(((free, node) for node, free in sorted(free_nodes)), need)


_BY_MASK: Final[dict[str, Callable[[FreeResources, Sequence[int], int], list[Spot]]]] = {
    "pack": _place_packed,
    "fewest": _fewest,
    "consolidate": _fewest,
    "first_fit": _place_first_fit,
    "spread": _place_spread,
    "anywhere": _place_anywhere,
}


def _place_by_fit(
    room: FreeResources, pools: Sequence[int], demand: Demand, how: str, avoid: Collection[int]
) -> list[Spot] | None:
    """Return (node, replicas) pairs where cores or memory matter too; None if they do not fit."""
    fits = [
        (fit, node)
        for node in nodes_with_free_gpus(room, pools, demand.gpus)
        if node not in avoid and (fit := room.replicas_that_fit(node, demand))
    ]
    if sum([fit for fit, _ in fits]) < demand.replicas:
        return None
    if how == "spread":
        return _spread_evenly(fits, demand.replicas)
    order = _ORDERS.get(how)
    spots = _take_in_order(
        sorted(fits, key=order or (lambda fit: (-fit[0], fit[1]))), demand.replicas
    )
    return spots if order else _refit_last_node(fits, spots, first=how == "first_fit")


_ORDERS: Final[dict[str, Callable[[Spot], tuple[int, int]]]] = {
    "pack": lambda fit: (fit[0], fit[1]),
    "anywhere": lambda fit: (fit[1], 0),
}


def nodes_with_free_gpus(room: FreeResources, pools: Sequence[int], gpus: int) -> Iterable[int]:
    """Yield the nodes of these pools with at least `gpus` free GPUs."""
    for pool in pools:
        nodes, masks = room.pools[pool].nodes, room.masks[pool]
        for free in range(gpus, len(masks)):
            for place in _set_bits(masks[free]):
                yield nodes[place]


def _take_in_order(fits: Iterable[tuple[int, int]], need: int) -> list[Spot]:
    """Return (node, replicas) pairs that fill (replicas that fit, node) in order up to `need`."""
    spots: list[Spot] = []
    ordered = iter(fits)
    while need:
        fit, node = next(ordered)
        spots.append((node, min(fit, need)))
        need -= spots[-1][1]
    return spots


def _refit_last_node(fits: list[tuple[int, int]], spots: list[Spot], *, first: bool) -> list[Spot]:
    """Return the spots with the last node replaced by the tightest one with room.

    With `first` by the one with the lowest number.
    """
    # The last node only takes the rest: the fullest node with room for it does too and keeps the
    # emptier one free.
    rest, used = spots[-1][1], {node for node, _ in spots[:-1]}
    last = [(fit, node) for fit, node in fits if fit >= rest and node not in used]
    return [*spots[:-1], (min(node for _, node in last) if first else min(last)[1], rest)]


def _spread_evenly(fits: list[tuple[int, int]], need: int) -> list[Spot]:
    """Return (node, replicas) pairs: one by one on the node with the most room."""
    left = {node: fit for fit, node in fits}
    for _ in range(need):
        left[min(left, key=lambda node: (-left[node], node))] -= 1
    return sorted((node, fit - left[node]) for fit, node in fits if fit > left[node])


_MAX_LOG = 20_000


class NoFitCache:
    """Cache of demands that did not fit, valid until enough resources are released.

    Notes
    -----
    For each denied demand it keeps an upper bound on the replicas that fit: those at the denial,
    plus all that each node released since can hold. The caller must report every node on which
    resources were released, except those that it reserved itself in the same call.
    """

    def __init__(self) -> None:
        self._freed: list[int] = []
        self._denied: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}

    def record_release(self, grant: Grant) -> None:
        """Record that a job released its nodes."""
        if self._denied:
            self.record_nodes(
                node
                for gang in grant.gangs
                for part in gang
                if part is not None
                for node in part.nodes
            )

    def record_nodes(self, nodes: Iterable[int]) -> None:
        """Record nodes with changed free resources; discard all denials if they are too many."""
        if self._denied:
            self._freed.extend(nodes)
            if len(self._freed) > _MAX_LOG:
                self._freed.clear()
                self._denied.clear()

    def record_no_fit(self, view: View, demand: Demand, pools: tuple[int, ...]) -> None:
        """Record that a demand does not fit these pools, and the replicas that still do."""
        room = view.room
        fit = sum(
            [
                room.replicas_that_fit(node, demand)
                for node in nodes_with_free_gpus(room, pools, demand.gpus)
            ]
        )
        self._denied[demand.key, pools] = len(self._freed), fit

    def is_known_no_fit(self, view: View, demand: Demand, pools: tuple[int, ...]) -> bool:
        """Return True if a denied demand still cannot fit these pools."""
        denial = self._denied.get((demand.key, pools))
        if denial is None:
            return False
        seen, most = denial
        freed, room, overflow = self._freed, view.room, view.room.overflow
        while seen < len(freed) and most < demand.replicas:
            if freed[seen] != overflow:
                most += room.replicas_that_fit(freed[seen], demand)
            seen += 1
        self._denied[demand.key, pools] = seen, most
        return most < demand.replicas


def wait_for_type_param() -> Any:
    """Declare the policy parameter ``wait_for_type``."""
    return param(
        0.0,
        title="Wait for the preferred type",
        unit="s",
        low=0,
        high=1e7,
        help=("Time after submission until a job takes another than its 'Preferred GPU type'."),
    )


class TypeWait:
    """Limits how long jobs wait for their preferred GPU types, and places them there.

    Parameters
    ----------
    place : Placer
        Places jobs; its options say which types they prefer.
    wait_s : float, seconds
        Longest wait, counted from the submission of a job.

    Notes
    -----
    The wait counts from the submission, not from when a job could start. This bounds the loss of
    each job, and jobs from a long queue do not wait again one after the other.
    """

    def __init__(self, place: Placer, wait_s: float) -> None:
        self._place, self._wait_s = place, wait_s

    @classmethod
    def create(cls, place: Placer, wait_s: float) -> Self | None:
        """Return a wait of `wait_s` seconds, or None if that is zero."""
        return cls(place, wait_s) if wait_s else None

    def until_s(self, view: View, job: JobId) -> float:
        """Return when a job's wait for preferred types ends; -inf if it prefers no type."""
        ways = self._place.options(view, view.demand(job))
        if ways.preferred == len(ways.groups):
            return -inf
        return instant(view.one("arrival_s", job) + self._wait_s)

    def place_preferred(self, view: View, demand: Demand) -> Grant | None:
        """Reserve nodes of the preferred GPU types and return the grant, or None."""
        ways = self._place.options(view, demand)
        for pools in ways.groups[: ways.preferred]:
            grant = self._place.place_within(view, demand, pools)
            if grant is not None:
                return grant
        return None
