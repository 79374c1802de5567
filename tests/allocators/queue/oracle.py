"""The definition of priority preemption: the walk down an order of all jobs, made anew at every
decision. `allocators.queue.preemption` gives the same result and looks only at what has changed;
tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from allocators.placement import Placer
from allocators.queue.upgrade import Upgrades
from sim.contract import Demand, Grant, JobId, View

Rank = tuple[float, ...]


@dataclass
class Walk:
    """Walks all active jobs at every decision, best first, with nothing remembered but starts and
    stops.

    Parameters
    ----------
    rank : callable
        (walk, view, job, runs) -> what sorts jobs, best first; the job id comes last.
    beats : callable
        (walk, view, waiting job, running job) -> whether the running one stands behind it.
    upgrades : Upgrades, optional
        Moves to faster types; tested by themselves. After them the walk is made again.
    """

    rank: Callable[[Walk, View, JobId, bool], Rank]
    beats: Callable[[Walk, View, JobId, JobId], bool]
    place: Placer
    backfill: str
    upgrades: Upgrades | None = None
    since_s: dict[JobId, float] = field(default_factory=dict)
    order: list[JobId] = field(default_factory=list)

    def note(self, view: View) -> None:
        """Take in what the order depends on beyond the columns."""
        for job in view.delta.arrived:
            self.since_s[job] = view.now_s
        for eviction in view.delta.evicted:
            self.since_s[eviction.job] = view.now_s

    def close(self, view: View, held: dict[JobId, Grant], started: list[JobId]) -> None:
        """Take in what has been decided."""

    def allocate(self, view: View) -> dict[JobId, Grant | None]:
        """Return the changes of one decision: walk, then move jobs up and walk again."""
        self.note(view)
        held = dict(view.grants)
        started = self.pass_over(view, held)
        moved: set[JobId] = set()
        while self.upgrades is not None and self.upgrades.possible(view) and any(view.room.free):
            stay = [
                (job, grant)
                for job, grant in held.items()
                if view.grants.get(job) == grant
                and view.one("preemptible", job)
                and job not in moved
            ]
            moves = self.upgrades(view, stay)
            if not moves:
                break
            held.update(moves)
            moved.update(job for job, _ in moves)
            started += self.pass_over(view, held)
        self.close(view, held, started)
        changes: dict[JobId, Grant | None] = {job: None for job in view.grants if job not in held}
        return changes | {
            job: grant for job, grant in held.items() if view.grants.get(job) != grant
        }

    def pass_over(self, view: View, held: dict[JobId, Grant]) -> list[JobId]:
        """Walk over all active jobs once, best first."""
        runs = set(view.grants) | set(held)
        line = [(*self.rank(self, view, job, job in runs), job) for job in view.active.ids.tolist()]
        self.order = [entry[-1] for entry in sorted(line)]
        started: list[JobId] = []
        for job in self.order:
            if job in held:
                continue
            found = self.fit(view, held, job)
            if found is not None:
                held[job], stopped = found
                started.append(job)
                for victim in stopped:
                    del held[victim]
                    self.since_s[victim] = view.now_s
            elif self.backfill == "none":
                break
        return started

    def fit(
        self, view: View, held: dict[JobId, Grant], job: JobId
    ) -> tuple[Grant, list[JobId]] | None:
        """Return a place for a job and the jobs to be stopped for it: worst first until it fits,
        then those that turn out not to be needed are kept, best first.
        """
        demand, room = view.demand(job), view.room
        grant = self.place(view, demand)
        if grant is not None:
            return grant, []
        worse = [
            other
            for other in held
            if view.one("preemptible", other)
            and touches(view, demand, held[other])
            and self.beats(self, view, job, other)
        ]
        worse.sort(key=lambda other: (*self.rank(self, view, other, True), other), reverse=True)
        stopped: list[JobId] = []
        for other in worse:
            room.give(held[other])
            stopped.append(other)
            grant = self.place(view, demand)
            if grant is not None:
                break
        if grant is None:
            for other in stopped:
                room.take(held[other])
            return None
        for other in stopped[-2::-1]:
            room.give(grant)
            room.take(held[other])
            without = self.place(view, demand)
            if without is None:
                room.give(held[other])
                grant = self.place(view, demand)
                assert grant is not None
            else:
                grant = without
                stopped.remove(other)
        return grant, stopped


def touches(view: View, demand: Demand, grant: Grant) -> bool:
    """Tell whether a grant holds a node that the demand may use."""
    admitted = {node for pool in demand.pools for node in view.room.pools[pool].nodes}
    return not admitted.isdisjoint(grant.gangs[0].workers.nodes)
