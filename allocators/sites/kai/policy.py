"""KAI as a policy: queues with quotas that lend what they do not need, and take it back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Final

from allocators.placement import Placer, placement_param, types_param
from allocators.quotas import Quota
from allocators.reasons import joined, room
from allocators.sites.kai.queues import (
    RESOURCES,
    UNMAPPED,
    QueueSpec,
    nothing_of_its_own,
    one_each,
    read_queues,
)
from allocators.sites.kai.tree import IdenticalJobs, JobOrder, QueueNode, QueueTree, Work
from allocators.tenants import COLUMN_WORDS, gpus_to_share, named, tenant_column, tenant_param
from allocators.toolkit import takes
from sim.contract import (
    EMPTY,
    Allocator,
    Card,
    Decided,
    Demand,
    Grant,
    Ints,
    JobId,
    ParameterError,
    Plan,
    Reason,
    Value,
    View,
    param,
)

CYCLE_S: Final = 1.0
"""After stops a real scheduler looks again in its next cycle, so much later."""
USAGE_S: Final = 60.0
"""Past usage is looked at again so often while jobs wait."""
MOST_MOVED: Final = 16
"""Jobs that one consolidation moves at most."""
_PER_UNIT: Final = (1.0, 1000.0, 1000.0)
"""Units of `RESOURCES` per GPU, core and GB."""


@dataclass
class QueuedJobs:
    """All jobs of a run that wait or run."""

    works: dict[JobId, Work] = field(default_factory=dict)
    waiting: set[JobId] = field(default_factory=set)
    held: set[JobId] = field(default_factory=set)


@dataclass
class Kai(Allocator):
    """Give every queue its quota whenever it asks for it, and divide what is left by weight.

    Notes
    -----
    The cycle of the KAI scheduler: allocate, consolidate, reclaim, preempt. Queues form a tree; the
    fair share of each is its quota as far as it asks for it, plus its part by weight of what is
    left over. *Allocate* starts jobs of the queue that is furthest below its share, whatever its
    share, up to its limit. *Consolidate* moves running jobs together where a waiting one lacks
    nothing but a place. *Reclaim* stops jobs of queues above their share for a queue below its own.
    *Preempt* stops jobs of lower priority in the same queue.

    Ours: the scheduler looks at every event and 1 s after it stopped somebody, not each second. A
    resource that a queue does not name is not limited. Among victims one that turns out not to be
    needed runs on. Not simulated: parts of GPUs, topology, node pools, elastic gangs.
    """

    queues: str = param(
        "",
        title="Your queues",
        file="queues.yaml",
        help=(
            "YAML of KAI's Queue objects; empty = one queue per tenant, with equal"
            " quotas, or with none if past usage counts."
        ),
    )
    tenant: str = tenant_param()
    non_preemptible_from: float = param(
        100.0,
        title="Priority that is never stopped",
        low=0,
        high=1_000_000_000,
        help=(
            "Jobs of at least this priority are never preempted and start only within"
            " their queue's quota."
        ),
    )
    consolidate: bool = param(
        True,
        title="Consolidation",
        help="Whether running jobs move together where a waiting job lacks only a place.",
    )
    usage: bool = param(
        False,
        title="Past usage counts",
        help="Whether a queue that held much lately gets less of the surplus.",
    )
    usage_window_h: float = param(
        168.0,
        title="Window of past usage",
        unit="h",
        low=0.01,
        high=100_000,
        help="Window of past usage; with usage.",
    )
    usage_half_life_h: float = param(
        0.0,
        title="Half-life of past usage",
        unit="h",
        low=0,
        high=100_000,
        help="After this, usage counts half; 0 = equal weights; with usage.",
    )
    usage_weight: float = param(
        1.0,
        title="Weight of past usage",
        low=0,
        high=1000,
        help="Effect of past usage on a queue's share (kValue); with usage.",
    )
    placement: str = placement_param()
    types: str = types_param()
    _place: Placer = field(init=False, repr=False)
    _tree: QueueTree | None = field(init=False, repr=False, default=None)
    _kinds: tuple[int, ...] = field(init=False, repr=False, default=())
    _given: tuple[QueueSpec, ...] = field(init=False, repr=False, default=())
    _jobs: QueuedJobs = field(init=False, repr=False, default_factory=QueuedJobs)
    _leaf_of: dict[int, QueueNode] = field(init=False, repr=False, default_factory=dict)
    _column: str = field(init=False, repr=False, default="")
    _said: tuple[str, ...] = field(init=False, repr=False, default=())
    _reclaimed: int = field(init=False, repr=False, default=0)
    _refused: int = field(init=False, repr=False, default=0)

    card = Card(
        title="KAI",
        brief="quotas per queue, the rest by weight, taken back",
        what=(
            "Every queue gets its quota on demand; the rest is lent by weight and taken"
            " back by preempting jobs."
        ),
        cost="Jobs beyond their queue's quota are stopped when another queue asks for its own.",
        limits="Uses no run times; parts of GPUs and topology are not simulated.",
        source="KAI Scheduler (NVIDIA, Apache-2.0), plugins proportion and its actions, 2026",
        certainty="our reading of the scheduler's source; its division of shares is exact",
        goals=("fairness",),
        how=(
            "Each queue's fair share is its quota, plus a part by weight of what others leave.",
            "The queue furthest below its share starts its next job that has a place.",
            "Where only a place is lacking, running jobs are moved together.",
            "A queue below its share stops jobs of queues above theirs.",
            "Within a queue, a higher priority stops a lower one.",
        ),
    )

    def __post_init__(self) -> None:
        """Read the queues.

        Raises
        ------
        ParameterError
            If they cannot be read.
        """
        self._place = Placer(self.placement, self.types)
        if self.queues:
            try:
                self._given, unread = read_queues(self.queues)
            except ParameterError as error:
                raise ParameterError(f"kai: queues: {error}") from error
            if unread:
                self._said = (f"kai does not read {_listed(unread)}.",)

    def quotas(self) -> tuple[Quota, ...]:
        """Return the GPUs of its queues as rows."""
        return tuple(
            Quota(queue.name, gpu.deserved, gpu.limit, gpu.weight, queue.priority, queue.parent)
            for queue in self._given
            for gpu in queue.quotas[:1]
        )

    def remarks(self) -> tuple[str, ...]:
        """Say which queues were assumed, who has none, and what was stopped."""
        said = list(self._said)
        if self._reclaimed:
            said.append(f"kai stopped {_jobs(self._reclaimed)} for another queue.")
        if self._refused:
            said.append(
                f"{_jobs(self._refused)} refused: beyond the limit of a queue or, as jobs that are"
                " never stopped, beyond its quota even when nobody else uses it."
            )
        return tuple(said)

    def allocate(self, view: View, /) -> Plan:
        """Run one cycle."""
        tree = self._tree
        if tree is None:
            tree = self._tree = self._begin(view)
        hopeless = self._follow(view, tree)
        self._refused += len(hopeless)
        if self.usage:
            tree.elapse(view.now_s)
        total = _total(view, view.capacity, self._kinds)
        tree.divide(total, self.usage_weight if self.usage else 0.0)
        cycle = _Cycle(view, tree, self._jobs, self._place)
        if self._jobs.waiting:
            cycle.allocate()
            if self.consolidate:
                cycle.consolidate()
            cycle.reclaim()
            cycle.preempt()
        if self.usage:
            tree.mark()
        self._reclaimed += cycle.reclaimed
        wake_at_s = self._wake_s(view, cycle)
        if cycle.changes or hopeless or wake_at_s < inf:
            return Plan(cycle.changes, hopeless, wake_at_s)
        return EMPTY

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """State what kept a job out, and how its queue stands."""
        work = self._jobs.works.get(job)
        if work is None or job not in work.leaf.waiting:
            return None
        leaf = work.leaf
        lane = leaf.lanes[work.demand, work.fixed]
        values: dict[str, Value] = {
            "queue": leaf.queue.name,
            "held": leaf.allocated[0] if self._kinds[:1] == (0,) else 0.0,
            "fair": leaf.fair[0] if self._kinds[:1] == (0,) else 0.0,
        }
        stands = "its queue {queue:text} held {held:number} GPUs of a fair share of {fair:number}"
        if lane.barrier is None:
            return joined(stands, room(decided, job), **values)
        values["where"] = lane.barrier.queue
        if lane.barrier.kind == "limit":
            return Reason(f"it would go beyond the limit of queue {{where:text}}; {stands}", values)
        return Reason(
            "jobs that are never stopped start within the quota only, and that of queue"
            f" {{where:text}} is in use; {stands}",
            values,
        )

    # -- what happened -----------------------------------------------------------------------------

    def _begin(self, view: View) -> QueueTree:
        cluster = view.cluster.nodes
        known = (
            any(node.gpus for node in cluster),
            all(isfinite(node.cpus) for node in cluster),
            all(isfinite(node.mem_gb) for node in cluster),
        )
        self._kinds = tuple(at for at, is_known in enumerate(known) if is_known)
        self._column = tenant_column(view, self.tenant)
        tenants = named(view, self._column)
        gpus = int(gpus_to_share(view).sum())
        # Quotas that are the whole cluster would leave nothing that past usage could divide.
        each = 0 if self.usage else gpus // max(1, len(tenants))
        queues = self._given or one_each(tenants, each)
        said = list(self._said)
        if not self.queues:
            said.append(
                f"kai was given no queues: {len(tenants)} with a quota of {each} GPUs each are"
                f" assumed, one for each {COLUMN_WORDS[self._column]} of the trace."
                if tenants
                else "kai was given no queues and the trace names no tenants: all jobs are in one"
                f" queue, {UNMAPPED}."
            )
        parents = {queue.parent for queue in queues}
        leaves = {queue.name for queue in queues} - parents
        strangers = [name for name in tenants if name not in leaves]
        if UNMAPPED not in {queue.name for queue in queues}:
            queues = (*queues, nothing_of_its_own(UNMAPPED))
        if strangers:
            said.append(
                f"No queue is there for {_listed(strangers)} of column {self._column}: their jobs"
                f" are in {UNMAPPED}, whose quota is 0."
            )
        said += self._of_quotas(queues, _total(view, view.installed, self._kinds))
        self._said = tuple(said)
        tree = QueueTree(queues, self._kinds)
        if self.usage:
            tree.remember(
                view.now_s,
                self.usage_window_h * 3600.0,
                self.usage_half_life_h * 3600.0 or inf,
            )
        return tree

    def _of_quotas(self, queues: Iterable[QueueSpec], total: list[float]) -> list[str]:
        said = []
        for at, amount in zip(self._kinds, total, strict=True):
            quotas = [queue.quotas[at].deserved for queue in queues if not queue.parent]
            whole = sum([quota for quota in quotas if quota < inf])
            if whole > amount:
                said.append(
                    f"The quotas of {RESOURCES[at]} add up to {whole:g}, the cluster has"
                    f" {amount:g}."
                )
        return said

    def _follow(self, view: View, tree: QueueTree) -> frozenset[JobId]:
        """Take over who waits and who runs, whatever became of the last plan; return the jobs that
        can never start.
        """
        hopeless = []
        jobs, grants = self._jobs, view.grants
        waiting = set(view.waiting.ids.tolist())
        for job in jobs.held - grants.keys():
            tree.release(job, jobs.works[job])
            jobs.held.remove(job)
        for job in jobs.waiting - waiting:
            tree.leave(job, jobs.works[job])
            jobs.waiting.remove(job)
        for job in waiting - jobs.waiting:
            work = self._work(view, job)
            if tree.is_hopeless(work):
                hopeless.append(job)
                del jobs.works[job]
                continue
            tree.wait(job, work)
            jobs.waiting.add(job)
        for job in grants.keys() - jobs.held:
            work = self._work(view, job)
            work.since_s = view.now_s
            tree.hold(job, work)
            jobs.held.add(job)
        for job in view.delta.finished:
            jobs.works.pop(job, None)
        return frozenset(hopeless)

    def _work(self, view: View, job: JobId) -> Work:
        known = self._jobs.works.get(job)
        if known is None:
            demand, priority = view.demand(job), view.one("priority", job)
            known = self._jobs.works[job] = Work(
                self._leaf(view, job),
                tuple(_amounts(demand)[at] * _PER_UNIT[at] for at in self._kinds),
                priority,
                demand.key,
                priority >= self.non_preemptible_from,
            )
        return known

    def _leaf(self, view: View, job: JobId) -> QueueNode:
        assert self._tree is not None, "a job was sorted before the queues were built"
        code = int(view.one(self._column, job))
        leaf = self._leaf_of.get(code)
        if leaf is None:
            names = view.names(self._column)
            node = self._tree.nodes.get(names[code]) if code >= 0 else None
            if node is None or node.children:
                node = self._tree.nodes[UNMAPPED]
            leaf = self._leaf_of[code] = node
        return leaf

    def _wake_s(self, view: View, cycle: _Cycle) -> float:
        now_s = view.now_s
        if cycle.stopped:
            return now_s + CYCLE_S
        if not self._jobs.waiting:
            return inf
        protected_until_s = [
            until_s
            for job in self._jobs.held
            for until_s in (cycle.reclaimable_s(job), cycle.preemptible_s(job))
            if now_s < until_s < inf
        ]
        periodic_s = now_s + USAGE_S if self.usage else inf
        return min([periodic_s, *protected_until_s])


class _Cycle:
    """One look at all queues."""

    def __init__(self, view: View, tree: QueueTree, jobs: QueuedJobs, place: Placer) -> None:
        self._view, self._tree, self._jobs, self._place = view, tree, jobs, place
        self.changes: dict[JobId, Grant | None] = {}
        self.stopped = False
        self.reclaimed = 0

    def allocate(self) -> None:
        """Start what has a place, the queue furthest below its share first."""
        tree, view = self._tree, self._view
        line = JobOrder(tree, self._jobs.works)
        while (lane := line.first()) is not None:
            job, work = self._head(lane)
            lane.barrier = tree.barrier(work)
            if lane.barrier is not None:
                line.close([lane])
                continue
            grant = self._place(view, view.demand(job))
            if grant is None:
                # Nobody frees anything in this action, so the others do not find a place either.
                line.close(tree.by_demand[work.demand])
                continue
            self._start(job, work, grant)
            line.renew(work.leaf)

    def consolidate(self) -> None:
        """Move running jobs together where enough is free, but not in one place."""
        view, tree = self._view, self._tree
        line = JobOrder(tree, self._jobs.works)
        while (lane := line.first()) is not None:
            job, work = self._head(lane)
            demand = view.demand(job)
            free = view.room.gpus_free(demand.pools) >= demand.replicas * demand.gpus
            if tree.barrier(work) or not demand.gpus or not free or not self._gather(job, work):
                line.close(tree.by_demand[work.demand] if not free else [lane])
                continue
            line.renew(work.leaf)

    def reclaim(self) -> None:
        """Stop jobs of queues above their share for jobs of queues below their own."""
        line = JobOrder(self._tree, self._jobs.works)
        while (lane := line.first()) is not None:
            job, work = self._head(lane)
            victims = self._reclaim(job, work) if self._tree.may_reclaim(work) else []
            if not victims:
                line.close([lane])
                continue
            self.reclaimed += len(victims)
            line.renew(work.leaf, *(self._jobs.works[one].leaf for one in victims))

    def preempt(self) -> None:
        """Stop jobs of lower priority for one of the same queue."""
        view = self._view
        line = JobOrder(self._tree, self._jobs.works)
        while (lane := line.first()) is not None:
            job, work = self._head(lane)
            worse = [
                one
                for one in self._victims(work.leaf)
                if self._jobs.works[one].priority < work.priority
                and self.preemptible_s(one) <= view.now_s
            ]
            if not worse or not self._make_room(job, work, worse):
                line.close([lane])
                continue
            line.renew(work.leaf)

    def reclaimable_s(self, job: JobId) -> float:
        """Return from when on a running job may be stopped for another queue."""
        work = self._jobs.works[job]
        return work.since_s + work.leaf.reclaim_after_s

    def preemptible_s(self, job: JobId) -> float:
        """Return from when on a running job may be stopped for one of its own queue."""
        work = self._jobs.works[job]
        return work.since_s + work.leaf.preempt_after_s

    # -- steps -------------------------------------------------------------------------------------

    def _head(self, lane: IdenticalJobs) -> tuple[JobId, Work]:
        head = lane.head
        assert head is not None, "a lane without jobs is next"
        return head[1], self._jobs.works[head[1]]

    def _start(self, job: JobId, work: Work, grant: Grant) -> None:
        self._tree.leave(job, work)
        self._tree.hold(job, work)
        self._jobs.waiting.remove(job)
        self._jobs.held.add(job)
        work.since_s = self._view.now_s
        self.changes[job] = grant

    def _stop(self, job: JobId) -> None:
        work = self._jobs.works[job]
        self._tree.release(job, work)
        self._tree.wait(job, work)
        self._jobs.held.remove(job)
        self._jobs.waiting.add(job)
        self.changes[job] = None
        self.stopped = True

    def _victims(self, leaf: QueueNode) -> list[JobId]:
        """Return the jobs of a queue that may be stopped, in the order in which they are: lowest
        priority first, then the newest.
        """
        works, view = self._jobs.works, self._view
        return sorted(
            [
                job
                for job in leaf.running
                if not works[job].fixed and job not in self.changes and view.one("preemptible", job)
            ],
            key=lambda job: (works[job].priority, -job),
        )

    def _reclaim(self, job: JobId, work: Work) -> list[JobId]:
        tree, works, now_s = self._tree, self._jobs.works, self._view.now_s
        line: dict[QueueNode, list[JobId]] = {}
        for leaf in tree.leaves():
            found = (
                [one for one in self._victims(leaf) if self.reclaimable_s(one) <= now_s]
                if leaf is not work.leaf and leaf.running
                else []
            )
            if found:
                line[leaf] = found[::-1]

        def in_turn() -> Iterable[JobId]:
            while line:
                leaf = tree.worst(line)
                if not tree.may_take(work, works[line[leaf][-1]]):
                    del line[leaf]  # it will not come to have more
                    continue
                yield line[leaf].pop()
                if not line[leaf]:
                    del line[leaf]

        return self._make_room(job, work, in_turn(), balanced=True)

    def _make_room(
        self, job: JobId, work: Work, victims: Iterable[JobId], *, balanced: bool = False
    ) -> list[JobId]:
        """Stop as many jobs, in turn, as give one a place, and start it; return the stopped ones,
        none if all together do not.
        """
        view, tree, works = self._view, self._tree, self._jobs.works
        room, demand = view.room, view.demand(job)
        given: list[JobId] = []
        grant: Grant | None = None
        for victim in victims:
            given.append(victim)
            room.give(view.grants[victim])
            tree.give(works[victim], -1)
            grant = None if tree.barrier(work) else self._place(view, demand)
            if grant is not None:
                break
        fair = not balanced or tree.is_balanced(work, [works[one] for one in given])
        if grant is None or not fair:
            if grant is not None:
                room.give(grant)
            for victim in reversed(given):
                room.take(view.grants[victim])
                tree.give(works[victim], 1)
            return []
        stopped = [given[-1]]  # without it there was no place
        for victim in given[-2::-1]:
            tree.give(works[victim], 1)
            if tree.barrier(work) or not takes(view, view.grants[victim], view.demand(victim)):
                tree.give(works[victim], -1)
                stopped.append(victim)
        for victim in stopped:
            tree.give(works[victim], 1)
        for victim in stopped:
            self._stop(victim)
        self._start(job, work, grant)
        return stopped

    def _gather(self, job: JobId, work: Work) -> bool:
        """Give a job a place by moving others; tell whether that was possible."""
        view, works = self._view, self._jobs.works
        room, demand = view.room, view.demand(job)
        leaves = [leaf for leaf in self._tree.leaves() if leaf.running]
        victims = [one for leaf in leaves for one in self._victims(leaf)]
        victims.sort(key=lambda one: (sum(works[one].amounts), works[one].priority, -one))
        given: list[JobId] = []
        for victim in victims[:MOST_MOVED]:
            given.append(victim)
            room.give(view.grants[victim])
            grant = self._place(view, demand)
            if grant is None:
                continue
            moved = self._settle(given)
            if moved is not None:
                for one, new in moved.items():
                    if new != view.grants[one]:
                        self.changes[one] = new
                self._start(job, work, grant)
                return True
            room.give(grant)
        for victim in reversed(given):
            room.take(view.grants[victim])
        return False

    def _settle(self, jobs: list[JobId]) -> dict[JobId, Grant] | None:
        """Find places for jobs that hold none, the largest first; None = not for all."""
        view, works = self._view, self._jobs.works
        found: dict[JobId, Grant] = {}
        for job in sorted(jobs, key=lambda one: (-sum(works[one].amounts), one)):
            demand, old = view.demand(job), view.grants[job]
            grant = old if takes(view, old, demand) else self._place(view, demand)
            if grant is None:
                for new in found.values():
                    view.room.give(new)
                return None
            found[job] = grant
        return found


def _amounts(demand: Demand) -> tuple[float, float, float]:
    """Return GPUs, cores and GB of all replicas and servers."""
    gpus = float(demand.replicas * demand.gpus)
    cpus, mem_gb = demand.replicas * demand.cpus, demand.replicas * demand.mem_gb
    servers = demand.servers
    if servers is not None:
        cpus += servers.replicas * servers.cpus
        mem_gb += servers.replicas * servers.mem_gb
    return gpus, cpus, mem_gb


def _total(view: View, gpus: Ints, kinds: Iterable[int]) -> list[float]:
    """Return how much there is of each kind, on nodes that have these GPUs."""
    up = [node for node, own in zip(view.cluster.nodes, gpus, strict=True) if own or not node.gpus]
    amounts = (
        float(gpus.sum()),
        sum([node.cpus for node in up]),
        sum([node.mem_gb for node in up]),
    )
    return [amounts[at] * _PER_UNIT[at] for at in kinds]


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _listed(names: Iterable[str]) -> str:
    known = [*names]
    shown = ", ".join(known[:5])
    return f"{shown} and {len(known) - 5} more" if len(known) > 5 else shown
