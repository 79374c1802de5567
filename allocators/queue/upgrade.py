"""Moves of running jobs to faster GPU types on nodes that no waiting job takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from allocators.placement import Placer
from sim.contract import Demand, Grant, JobId, View, param

Gain = Callable[[View, JobId, Grant, Grant], float]
"""(view, job, old grant, new grant) -> seconds that the move saves after its pause; 0 = no move."""


def migrate_param() -> Any:
    """Declare the policy parameter ``migrate``."""
    return param(
        "upgrade",
        title="Move running jobs",
        choices=("upgrade", "never"),
        labels={"upgrade": "To a faster type", "never": "Never"},
        help=(
            "Whether a running job moves to a better type by 'Preferred GPU type', if that has"
            " room and the gain exceeds the restart."
        ),
    )


class Upgrades:
    """Finds moves of running jobs to faster GPU types that save time.

    Parameters
    ----------
    place : Placer
        Places gangs and orders the GPU types. A job only moves to a type before its own, so it
        never moves back and forth.
    gain : Gain
        Returns the seconds that a move saves.
    """

    def __init__(self, place: Placer, gain: Gain) -> None:
        self._place, self._gain = place, gain
        self._pool_of: dict[int, int] = {}

    def possible(self, view: View) -> bool:
        """Record the pool of each node and return True if there are several GPU types.

        Must be called first.
        """
        pools = view.room.pools
        self._pool_of = {node: at for at, pool in enumerate(pools) for node in pool.nodes}
        return len({pool.type_at for pool in pools if pool.type_at >= 0}) > 1

    def __call__(
        self, view: View, holding: Iterable[tuple[JobId, Grant]]
    ) -> list[tuple[JobId, Grant]]:
        """Reserve and return the moves that save time, the largest gain first.

        Parameters
        ----------
        view : View
            The instant, after all waiting jobs that fit have started.
        holding : iterable
            Running jobs that may move, with their grants.
        """
        roomy: dict[int, list[tuple[int, ...]]] = {}
        candidates = []
        for job, old in holding:
            demand = view.demand(job)
            groups = roomy.get(demand.key)
            if groups is None:
                groups = roomy[demand.key] = self._groups_with_room(view, demand)
            best = self._best_move(view, job, demand, old) if groups else None
            if best is not None:
                candidates.append((-best[0], job, old))
        moves = []
        for _, job, old in sorted(candidates):
            best = self._best_move(
                view, job, view.demand(job), old
            )  # an earlier move may have taken it
            if best is not None:
                view.room.take(best[1])
                view.room.give(old)
                moves.append((job, best[1]))
        return moves

    def _groups_with_room(self, view: View, demand: Demand) -> list[tuple[int, ...]]:
        """Return the groups of pools with enough free GPUs for a demand, except the last group.

        Nothing moves to the group that is preferred least. Empty without GPUs.
        """
        groups = self._place.options(view, demand).groups[:-1] if demand.gpus else ()
        return [pools for pools in groups if view.room.gpus_free(pools) >= demand.replicas]

    def _best_move(
        self, view: View, job: JobId, demand: Demand, old: Grant
    ) -> tuple[float, Grant] | None:
        """Return the gain in seconds and the grant of the best move, or None; nothing is reserved.

        Only groups preferred to the present one count, and only gains above 0.
        """
        held = {self._pool_of[node] for node in old.gangs[0].workers.nodes}
        best: tuple[float, Grant] | None = None
        for pools in self._place.options(view, demand).groups:
            if held.issubset(pools):
                break
            new = self._place.place_within(view, demand, pools)
            if new is None:
                continue
            view.room.give(new)
            gain_s = self._gain(view, job, old, new)
            if gain_s > (best[0] if best else 0.0):
                best = gain_s, new
        return best


def slowest_speed(view: View, grant: Grant) -> float:
    """Return the nominal speed of the slowest GPU type in a grant."""
    nodes, cluster = grant.gangs[0].workers.nodes, view.cluster
    kinds = [kind for node in nodes if (kind := cluster.nodes[node].gpu_type)]
    return min([cluster.types[cluster.type_index[kind]].speed for kind in kinds], default=1.0)
