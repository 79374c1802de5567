"""Where a gang goes: plain rules over the free room, chosen by a parameter of every allocator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import Any, Final, NamedTuple, Self

from sim.contract import Demand, FreeResources, Gang, Grant, JobId, Part, View, instant, param

Spot = tuple[int, int]
"""(node, replicas on it)"""

PLACEMENTS: Final = ("pack", "fewest", "consolidate", "first_fit", "spread", "anywhere")
WAITING: Final = frozenset({"consolidate", "first_fit"})
"""Of these, with which a gang may wait although there are enough free GPUs."""
TYPES: Final = ("fastest", "slowest_that_fits", "cheapest")
RUN_TIME: Final = frozenset({"remaining_work", "rates"})
"""What `Placer.run_time_s` reads, see `sim.contract.Needs`."""


def placement_param() -> Any:
    """Declare the parameter ``placement``."""
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
            "pack: fullest nodes first. fewest: as few nodes as possible now."
            " consolidate: wait for as few nodes as an empty cluster needs, fullest"
            " first (best fit). first_fit: as consolidate, lowest node number first."
            " spread: emptiest nodes first, evenly. anywhere: any free GPUs, lowest node"
            " number first."
        ),
    )


def types_param() -> Any:
    """Declare the parameter ``types``."""
    return param(
        "fastest",
        title="Preferred GPU type",
        choices=TYPES,
        labels={
            "fastest": "Fastest first",
            "slowest_that_fits": "Slowest first",
            "cheapest": "Cheapest first",
        },
        help="Which GPU type to try first on a mixed cluster: by speed or by price.",
    )


def mix_param() -> Any:
    """Declare the parameter ``mix``."""
    return param(
        False,
        title="Mix GPU types in a gang",
        help="Whether one gang may span GPU types when no single type has room.",
    )


class Ways(NamedTuple):
    """Where a demand may go.

    Parameters
    ----------
    groups : tuple of tuples of int
        Sets of pools in the order in which they are tried: one for each GPU type, then all together
        if a gang may span types. Sets that could not hold the gang even if they were empty are left
        out.
    by_mask : bool
        Whether GPUs are all that matters there: the job asks for no servers, and for no cores and
        memory, or no node limits them.
    preferred : int
        How many groups are as good as the first one; all of them for a job without GPUs.
    """

    groups: tuple[tuple[int, ...], ...]
    by_mask: bool
    preferred: int


class Placer:
    """Finds free nodes for a demand, and reserves them tentatively.

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

    On the fewest nodes, a gang fills the emptiest ones and leaves its rest to the fullest that has
    room for it; with ``first_fit`` to the one with the lowest number.

    Ties go to the node with the lowest number. Where nodes do not limit cores and memory, only bit
    sets of free GPUs are looked at and the cost does not grow with the number of nodes that do not
    matter; otherwise every node of the admitted pools is asked what it can still take.
    """

    def __init__(self, how: str, types: str = "fastest", mix: bool = False) -> None:
        self._how, self._types, self._mix = how, types, mix
        self._find = _BY_MASK[how]
        self._one_if_it_can = how in {"fewest", "consolidate"}
        self._may_wait = how in WAITING
        self._ways: dict[int, Ways] = {}
        self._on_one: dict[tuple[int, int], Grant] = {}
        self._ever: dict[tuple[int, int, int], int] = {}
        self._whole: dict[tuple[int, int], Grant] = {}

    def __call__(self, view: View, demand: Demand, avoid: Collection[int] = ()) -> Grant | None:
        """Return a grant of one gang with no worker on nodes to avoid, reserved on ``view.room``,
        or None if there is no room now.
        """
        room = view.room
        groups, by_mask, _ = self._ways.get(demand.key) or self.ways(view, demand)
        for pools in groups:
            if (
                demand.gpus
                and (room.free[pools[0]] if len(pools) == 1 else room.gpus_free(pools))
                < demand.replicas
            ):
                continue
            grant = (
                self._lone(room, demand, pools[0])
                if by_mask and not avoid and self._one_if_it_can and len(pools) == 1
                else None
            )
            if grant is None:
                grant = self._within(view, demand, pools, avoid, by_mask=by_mask and not avoid)
            if grant is not None:
                return grant
        return None

    def within(self, view: View, demand: Demand, pools: tuple[int, ...]) -> Grant | None:
        """Do the same in one of the groups of `ways` only."""
        if demand.gpus and view.room.gpus_free(pools) < demand.replicas:
            return None
        return self._within(view, demand, pools, (), by_mask=self.ways(view, demand).by_mask)

    def _lone(self, room: FreeResources, demand: Demand, pool: int) -> Grant | None:
        # What `_fewest` does for a gang that one node of one pool can hold, without its detours:
        # that is most of them.
        masks = room.masks[pool]
        for free in range(demand.replicas, len(masks)):
            mask = masks[free]
            if mask:
                node = room.pools[pool].nodes[(mask & -mask).bit_length() - 1]
                grant = self._on_one.get((node, demand.key)) or self._grant(
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
        room = view.room
        spots = (
            self._find(room, pools, demand.replicas)
            if by_mask
            else _by_fit(room, pools, demand, self._how, avoid)
        )
        if spots is None or (
            self._may_wait and len(spots) > self._fewest_ever(view, demand, pools)
        ):
            return None
        grant = self._grant(demand, spots)
        room.take(grant)
        return grant if demand.servers is None else self.with_servers(view, demand.servers, grant)

    def with_servers(self, view: View, servers: Demand, alone: Grant) -> Grant | None:
        """Find nodes for the servers of tentatively placed workers; without any, free those."""
        room = view.room
        beside = self(view, servers)
        room.give(alone)
        if beside is None:
            return None
        room.give(beside)
        grant = Grant((Gang(alone.gangs[0].workers, beside.gangs[0].workers),))
        room.take(grant)
        return grant

    def counts(self, view: View, demand: Demand) -> bool:
        """Tell whether enough free GPUs are all that a demand needs in order to be placed."""
        return self.ways(view, demand).by_mask and not self._may_wait

    def ways(self, view: View, demand: Demand) -> Ways:
        """Return where a demand may go, in order, and whether GPUs are all that matters there."""
        known = self._ways.get(demand.key)
        if known is None:
            nodes, pools = view.cluster.nodes, view.room.pools
            here = [nodes[node] for at in demand.pools for node in pools[at].nodes]
            unlimited = not (demand.cpus or demand.mem_gb) or all(
                node.cpus == inf and node.mem_gb == inf for node in here
            )
            groups, preferred = self._groups(view, demand)
            by_mask = demand.gpus == 1 and unlimited and demand.servers is None
            known = self._ways[demand.key] = Ways(groups, by_mask, preferred)
        return known

    def run_time_s(self, view: View, job: JobId, at: int = 0) -> float:
        """Return the estimated seconds that a waiting job needs at the requested size; reads
        `RUN_TIME`.

        Parameters
        ----------
        view : View
            The instant.
        job : int
            A waiting job.
        at : int
            Which of the groups of `ways` it would run on; 0 = the preferred type.
        """
        demand = view.demand(job)
        whole = self._whole.get((demand.key, at))
        if whole is None:
            groups = self.ways(view, demand).groups
            if not groups:
                return inf
            whole = self._whole[demand.key, at] = alone(view, demand, groups[at:])
        rate = view.estimates.rate(job, whole)
        return view.one("remaining_work", job) / rate if rate > 0 else inf

    def _fewest_ever(self, view: View, demand: Demand, pools: Sequence[int]) -> int:
        key = (demand.key, pools[0], len(pools))
        if key not in self._ever:
            self._ever[key] = len(alone(view, demand, [pools]).gangs[0].workers.nodes)
        return self._ever[key]

    def _grant(self, demand: Demand, spots: list[Spot]) -> Grant:
        if len(spots) > 1:
            nodes, count = zip(*spots, strict=True)
            return Grant((Gang(Part(nodes, count, demand.gpus, demand.cpus, demand.mem_gb)),))
        # Most grants are one node's: the same object again costs nothing to build, check or add up.
        node = spots[0][0]
        known = self._on_one.get((node, demand.key))
        if known is None:
            part = Part((node,), (demand.replicas,), demand.gpus, demand.cpus, demand.mem_gb)
            known = self._on_one[node, demand.key] = Grant((Gang(part),))
        return known

    def _groups(self, view: View, demand: Demand) -> tuple[tuple[tuple[int, ...], ...], int]:
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
        fit = [at for at in order if _holds(view, demand, by_type[at])]
        groups = [tuple(by_type[at]) for at in fit]
        preferred = sum(rank[at] == rank[fit[0]] for at in fit)
        if (self._mix or not demand.gpus) and len(order) > 1:
            whole = tuple(pool for at in order for pool in by_type[at])
            groups += [whole] if _holds(view, demand, whole) else []
        return tuple(groups), preferred if demand.gpus else len(groups)


def alone(view: View, demand: Demand, groups: Iterable[Sequence[int]]) -> Grant:
    """Return what a job would hold if it were alone, every node in service: the fewest nodes of the
    first of these groups (at least one) of `Ways`.
    """
    pools = next(iter(groups))
    fits = [
        (-capacity_for(view, node, demand), node)
        for at in pools
        for node in view.room.pools[at].nodes
    ]
    nodes, count = zip(
        *sorted(_walk([(-fit, node) for fit, node in sorted(fits) if fit], demand.replicas)),
        strict=True,
    )
    servers = (
        None
        if demand.servers is None
        else alone(view, demand.servers, [demand.servers.pools]).gangs[0].workers
    )
    return Grant((Gang(Part(nodes, count, demand.gpus, demand.cpus, demand.mem_gb), servers),))


def could_ever_hold(view: View, demand: Demand, *, mixed: bool) -> bool:
    """Tell whether a gang would find room if the cluster were empty and complete, on one GPU type
    or, if `mixed`, on several.
    """
    kinds: dict[int, list[int]] = {}
    for at in demand.pools:
        kinds.setdefault(0 if mixed or not demand.gpus else view.room.pools[at].type_at, []).append(
            at
        )
    fits = any(_holds(view, demand, pools) for pools in kinds.values())
    return fits and (demand.servers is None or _holds(view, demand.servers, demand.servers.pools))


def _holds(view: View, demand: Demand, pools: Iterable[int]) -> bool:
    return (
        sum(
            [capacity_for(view, node, demand) for at in pools for node in view.room.pools[at].nodes]
        )
        >= demand.replicas
    )


def capacity_for(view: View, at: int, demand: Demand) -> int:
    """Return how many replicas of a demand a node holds when it is empty and in service; 0 while
    the node is not announced.
    """
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


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _fill(room: FreeResources, order: Iterable[tuple[int, int]], need: int) -> list[Spot]:
    return _walk(
        (
            (free, room.pools[pool].nodes[place])
            for pool, free in order
            for place in _bits(room.masks[pool][free])
        ),
        need,
    )


def _one_node(
    room: FreeResources, pools: Sequence[int], need: int, below: int | None = None
) -> list[Spot]:
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


def _levels(
    room: FreeResources, pools: Sequence[int], *, emptiest_first: bool
) -> list[tuple[int, int]]:
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


def _pack(room: FreeResources, pools: Sequence[int], need: int) -> list[Spot]:
    if need == 1:
        return _one_node(room, pools, 1)
    return _fill(room, _levels(room, pools, emptiest_first=False), need)


def _fewest(room: FreeResources, pools: Sequence[int], need: int) -> list[Spot]:
    alone = _one_node(room, pools, need)
    if alone:
        return alone
    spots: list[Spot] = []
    for pool, free in _levels(room, pools, emptiest_first=True):
        nodes, mask = room.pools[pool].nodes, room.masks[pool][free]
        while mask and need > free:
            low = mask & -mask
            spots.append((nodes[low.bit_length() - 1], free))
            mask ^= low
            need -= free
        if mask:
            # The last node only takes the rest: the fullest node with room for it does as well and
            # leaves the emptier one whole.
            return spots + (
                _one_node(room, pools, need, below=free)
                or [(nodes[(mask & -mask).bit_length() - 1], need)]
            )
    return spots


def _first_fit(room: FreeResources, pools: Sequence[int], need: int) -> list[Spot]:
    *full, (_, rest) = _fewest(room, pools, need)
    used = {node for node, _ in full}
    return [*full, (min(node for node in nodes_with(room, pools, rest) if node not in used), rest)]


def _spread(room: FreeResources, pools: Sequence[int], need: int) -> list[Spot]:
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


def _anywhere(room: FreeResources, pools: Sequence[int], need: int) -> list[Spot]:
    found: list[Spot] = []
    for pool in pools:
        nodes, masks = room.pools[pool].nodes, room.masks[pool]
        found += [
            (nodes[place], free) for free in range(1, len(masks)) for place in _bits(masks[free])
        ]
    return _walk(((free, node) for node, free in sorted(found)), need)


_BY_MASK: Final[dict[str, Callable[[FreeResources, Sequence[int], int], list[Spot]]]] = {
    "pack": _pack,
    "fewest": _fewest,
    "consolidate": _fewest,
    "first_fit": _first_fit,
    "spread": _spread,
    "anywhere": _anywhere,
}


def _by_fit(
    room: FreeResources, pools: Sequence[int], demand: Demand, how: str, avoid: Collection[int]
) -> list[Spot] | None:
    fits = [
        (fit, node)
        for node in nodes_with(room, pools, demand.gpus)
        if node not in avoid and (fit := room.replicas_that_fit(node, demand))
    ]
    if sum([fit for fit, _ in fits]) < demand.replicas:
        return None
    if how == "spread":
        return _evenly(fits, demand.replicas)
    order = _ORDERS.get(how)
    spots = _walk(sorted(fits, key=order or (lambda fit: (-fit[0], fit[1]))), demand.replicas)
    return spots if order else _top_off(fits, spots, first=how == "first_fit")


_ORDERS: Final[dict[str, Callable[[Spot], tuple[int, int]]]] = {
    "pack": lambda fit: (fit[0], fit[1]),
    "anywhere": lambda fit: (fit[1], 0),
}


def nodes_with(room: FreeResources, pools: Sequence[int], gpus: int) -> Iterable[int]:
    """Walk the nodes of these pools on which so many GPUs are free."""
    for pool in pools:
        nodes, masks = room.pools[pool].nodes, room.masks[pool]
        for free in range(gpus, len(masks)):
            for place in _bits(masks[free]):
                yield nodes[place]


def _walk(fits: Iterable[tuple[int, int]], need: int) -> list[Spot]:
    """Take what is needed from nodes in order, given as (replicas that fit, node); they hold
    enough.
    """
    spots: list[Spot] = []
    ordered = iter(fits)
    while need:
        fit, node = next(ordered)
        spots.append((node, min(fit, need)))
        need -= spots[-1][1]
    return spots


def _top_off(fits: list[tuple[int, int]], spots: list[Spot], *, first: bool) -> list[Spot]:
    # The last node only takes the rest: the fullest node that has room for it does as well and
    # leaves the emptier one whole.
    rest, used = spots[-1][1], {node for node, _ in spots[:-1]}
    last = [(fit, node) for fit, node in fits if fit >= rest and node not in used]
    return [*spots[:-1], (min(node for _, node in last) if first else min(last)[1], rest)]


def _evenly(fits: list[tuple[int, int]], need: int) -> list[Spot]:
    left = {node: fit for fit, node in fits}
    for _ in range(need):
        left[min(left, key=lambda node: (-left[node], node))] -= 1
    return sorted((node, fit - left[node]) for fit, node in fits if fit > left[node])


_LONGEST_LOG = 20_000


class Denials:
    """An upper bound on what each denied demand would find now: what it found then, and all that
    each node given back since can take.

    Notes
    -----
    Whoever asks must report every node on which room was given back, except what it took itself
    within the same call.
    """

    def __init__(self) -> None:
        self._freed: list[int] = []
        self._known: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}

    def give_back(self, grant: Grant) -> None:
        """Note that a job left its nodes."""
        if self._known:
            self.renew(
                node
                for gang in grant.gangs
                for part in gang
                if part is not None
                for node in part.nodes
            )

    def renew(self, nodes: Iterable[int]) -> None:
        """Note that there is news of these nodes."""
        if self._known:
            self._freed.extend(nodes)
            if len(self._freed) > _LONGEST_LOG:
                self._freed.clear()
                self._known.clear()

    def deny(self, view: View, demand: Demand, pools: tuple[int, ...]) -> None:
        """Note that a demand has no room on these pools."""
        room = view.room
        fit = sum(
            [room.replicas_that_fit(node, demand) for node in nodes_with(room, pools, demand.gpus)]
        )
        self._known[demand.key, pools] = len(self._freed), fit

    def holds(self, view: View, demand: Demand, pools: tuple[int, ...]) -> bool:
        """Tell whether a demand surely has no room there still."""
        known = self._known.get((demand.key, pools))
        if known is None:
            return False
        seen, most = known
        freed, room, overflow = self._freed, view.room, view.room.overflow
        while seen < len(freed) and most < demand.replicas:
            if freed[seen] != overflow:
                most += room.replicas_that_fit(freed[seen], demand)
            seen += 1
        self._known[demand.key, pools] = seen, most
        return most < demand.replicas


def wait_for_type_param() -> Any:
    """Declare the parameter ``wait_for_type``."""
    return param(
        0.0,
        title="Wait for the preferred type",
        unit="s",
        low=0,
        high=1e7,
        help=(
            "How long after submission a job waits for the first type of `types` even"
            " if another type has room; then it takes any type."
        ),
    )


class Patience:
    """Says how long a job holds out for the types that it prefers, and places it there.

    Parameters
    ----------
    place : Placer
        What places jobs, and knows which types they prefer.
    wait_s : float, seconds
        From a job's submission on.

    Notes
    -----
    The time counts from the submission, not from the instant at which a job could start: so it
    bounds what a job may lose by it, and jobs that have waited in a long queue do not wait again,
    one after the other.
    """

    def __init__(self, place: Placer, wait_s: float) -> None:
        self._place, self._wait_s = place, wait_s

    @classmethod
    def of(cls, place: Placer, wait_s: float) -> Self | None:
        """Return None if no job waits for a type."""
        return cls(place, wait_s) if wait_s else None

    def until_s(self, view: View, job: JobId) -> float:
        """Return the instant from which a job takes any type; minus infinity if it always does."""
        ways = self._place.ways(view, view.demand(job))
        if ways.preferred == len(ways.groups):
            return -inf
        return instant(view.one("arrival_s", job) + self._wait_s)

    def place(self, view: View, demand: Demand) -> Grant | None:
        """Place a job as its `Placer` does, on the types only that it prefers."""
        ways = self._place.ways(view, demand)
        for pools in ways.groups[: ways.preferred]:
            grant = self._place.within(view, demand, pools)
            if grant is not None:
                return grant
        return None
