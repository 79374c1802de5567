"""Remembers which demands had no room where cores and memory are limited, so that they are tried again only when enough has become free."""

from __future__ import annotations

from collections.abc import Iterable

from allocators.placement import nodes_with
from sim.contract import Demand, Grant, View

_LONGEST_LOG = 20_000


class Denials:
    """An upper bound on what each denied demand would find now: what it found then, and all that each node given back since can take.

    Notes
    -----
    Whoever asks must report every node on which room was given back, except what it took itself within the same call.
    """

    def __init__(self) -> None:
        self._freed: list[int] = []
        self._known: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}

    def give_back(self, grant: Grant) -> None:
        """Note that a job left its nodes."""
        if self._known:
            self.renew(node for gang in grant.gangs for part in gang if part is not None for node in part.nodes)

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
        fit = sum([room.replicas_that_fit(node, demand) for node in nodes_with(room, pools, demand.gpus)])
        self._known[id(demand), pools] = len(self._freed), fit

    def holds(self, view: View, demand: Demand, pools: tuple[int, ...]) -> bool:
        """Tell whether a demand surely has no room there still."""
        known = self._known.get((id(demand), pools))
        if known is None:
            return False
        seen, most = known
        freed, room, overflow = self._freed, view.room, view.room.overflow
        while seen < len(freed) and most < demand.replicas:
            if freed[seen] != overflow:
                most += room.replicas_that_fit(freed[seen], demand)
            seen += 1
        self._known[id(demand), pools] = seen, most
        return most < demand.replicas
