"""Stragglers as the user describes them: nodes on which workers or servers run slower for a time."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isnan
from typing import NamedTuple

from sim.clock import instant
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.perf.profiles import number

HEALTHY = 1.0


class Spell(NamedTuple):
    """A time during which a node runs at a share of its speed."""

    node: int
    from_s: float
    to_s: float
    speed: float


def spells(owner: str, text: str) -> tuple[Spell, ...]:
    """Read entries node:from_s:to_s:speed, separated by semicolons; to_s may be inf.

    Times are rounded to instants, so that nobody is asked shortly before a node changes its speed.

    Raises
    ------
    ParameterError
        If an entry is malformed, its times do not grow, or its speed is not above 0 and up to 1.
    """
    found = []
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        fields = entry.split(":")
        figures = [inf if field.strip() == "inf" and at == 2 else number(field) for at, field in enumerate(fields)]
        if len(figures) != 4 or any(map(isnan, figures)) or figures[0] % 1:
            raise ParameterError(f"{owner}: '{entry:.60}' is not of the form node:from_s:to_s:speed, e.g. 3:600:inf:0.5.")
        spell = Spell(int(figures[0]), instant(figures[1]), instant(figures[2]), figures[3])
        if not 0 <= spell.from_s < spell.to_s:
            raise ParameterError(f"{owner}: '{entry}' must begin at 0 s or later and end after it began; inf = never.")
        if not 0 < spell.speed <= 1:
            raise ParameterError(
                f"{owner}: '{entry}' has speed {spell.speed:g}; a straggler runs at a speed above 0 and up to 1. For a node that stops, set an outage."
            )
        found.append(spell)
    return tuple(found)


class Stragglers:
    """Who is slow when.

    Parameters
    ----------
    owner : str
        Model and parameter, for messages.
    found : iterable of Spell
        From `spells`. Where two overlap on a node, the slower counts.
    cluster : Cluster
        The machines.

    Raises
    ------
    ParameterError
        If a node is not there.
    """

    def __init__(self, owner: str, found: Iterable[Spell], cluster: Cluster) -> None:
        self._of: dict[int, list[Spell]] = {}
        for spell in found:
            if not 0 <= spell.node < len(cluster.nodes):
                raise ParameterError(f"{owner}: there is no node {spell.node}; the nodes are 0 to {len(cluster.nodes) - 1}. Name one of them.")
            self._of.setdefault(spell.node, []).append(spell)

    def speeds(self, nodes: Iterable[int], now_s: float) -> list[float]:
        """Return the speed of each node, 1 = healthy."""
        if not self._of:
            return [HEALTHY for _ in nodes]
        return [min([spell.speed for spell in self._of.get(node, ()) if spell.from_s <= now_s < spell.to_s], default=HEALTHY) for node in nodes]

    def next_change(self, nodes: Iterable[int], now_s: float) -> float:
        """Return when the speed of one of these nodes may change next; inf = never."""
        if not self._of:
            return inf
        return min([at_s for node in nodes for spell in self._of.get(node, ()) for at_s in spell[1:3] if at_s > now_s], default=inf)
