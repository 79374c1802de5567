"""Moves of running jobs to a faster GPU type on which there is room that no waiting job takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from allocators.placement import Placer
from sim.contract import Demand, Grant, JobId, View, param

Gain = Callable[[View, JobId, Grant, Grant], float]
"""(view, job, what it holds, what it would hold) -> seconds that the move saves, its pause taken
off; without any the job stays.
"""


def migrate_param() -> Any:
    """Declare the parameter ``migrate``."""
    return param(
        "upgrade",
        title="Move running jobs",
        choices=("upgrade", "never"),
        labels={"upgrade": "To a faster type", "never": "Never"},
        help=(
            "upgrade: a running job moves to a GPU type that `types` prefers, if it has"
            " room and the gain exceeds the restart. never: it stays."
        ),
    )


class Upgrades:
    """Finds the moves that pay.

    Parameters
    ----------
    place : Placer
        Where a gang goes, and in which order types are tried: a job only ever moves to a type
        before its own, so moves cannot go round in circles.
    gain : Gain
        What a move saves.
    """

    def __init__(self, place: Placer, gain: Gain) -> None:
        self._place, self._gain = place, gain
        self._pool_of: dict[int, int] = {}

    def possible(self, view: View) -> bool:
        """Tell whether the cluster has several GPU types at all; to be asked first."""
        pools = view.room.pools
        self._pool_of = {node: at for at, pool in enumerate(pools) for node in pool.nodes}
        return len({pool.type_at for pool in pools if pool.type_at >= 0}) > 1

    def __call__(
        self, view: View, holding: Iterable[tuple[JobId, Grant]]
    ) -> list[tuple[JobId, Grant]]:
        """Return moves, the largest gain first and ties by job id, as tentatively reserved now.

        Parameters
        ----------
        view : View
            The instant, after all waiting jobs that have room have taken it.
        holding : iterable
            Running jobs that may be moved, and what they hold.
        """
        roomy: dict[int, list[tuple[int, ...]]] = {}
        found = []
        for job, old in holding:
            demand = view.demand(job)
            groups = roomy.get(demand.key)
            if groups is None:
                groups = roomy[demand.key] = self._with_room(view, demand)
            best = self._best(view, job, demand, old) if groups else None
            if best is not None:
                found.append((-best[0], job, old))
        moves = []
        for _, job, old in sorted(found):
            best = self._best(view, job, view.demand(job), old)  # room may be gone by now
            if best is not None:
                view.room.take(best[1])
                view.room.give(old)
                moves.append((job, best[1]))
        return moves

    def _with_room(self, view: View, demand: Demand) -> list[tuple[int, ...]]:
        groups = self._place.ways(view, demand).groups[:-1] if demand.gpus else ()
        return [pools for pools in groups if view.room.gpus_free(pools) >= demand.replicas]

    def _best(
        self, view: View, job: JobId, demand: Demand, old: Grant
    ) -> tuple[float, Grant] | None:
        held = {self._pool_of[node] for node in old.gangs[0].workers.nodes}
        best: tuple[float, Grant] | None = None
        for pools in self._place.ways(view, demand).groups:
            if held.issubset(pools):
                break
            new = self._place.within(view, demand, pools)
            if new is None:
                continue
            view.room.give(new)
            gain_s = self._gain(view, job, old, new)
            if gain_s > (best[0] if best else 0.0):
                best = gain_s, new
        return best


def speed_of(view: View, grant: Grant) -> float:
    """Return the nominal speed of the slowest GPU type that a grant holds."""
    nodes, cluster = grant.gangs[0].workers.nodes, view.cluster
    kinds = [kind for node in nodes if (kind := cluster.nodes[node].gpu_type)]
    return min([cluster.types[cluster.type_index[kind]].speed for kind in kinds], default=1.0)
