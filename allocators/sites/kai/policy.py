"""The KAI policy: queues lend unused quota and reclaim it when needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Final

from allocators.placement import Placer, placement_param, types_param
from allocators.quotas import Quota
from allocators.reasons import prefix_reason, room_reason
from allocators.sites.kai.queues import (
    RESOURCES,
    UNMAPPED,
    QueueSpec,
    queue_per_tenant,
    queue_without_quota,
    read_queues,
)
from allocators.sites.kai.tree import (
    IdenticalJobs,
    JobOrder,
    QueueNode,
    QueueTree,
    Work,
    is_within,
)
from allocators.tenants import (
    TENANT_NOUNS,
    gpus_to_share,
    tenant_column,
    tenant_names,
    tenant_param,
)
from allocators.toolkit import reserve_if_free
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
"""Length of a scheduling cycle: the delay to the next cycle after jobs were stopped."""
USAGE_S: Final = 60.0
"""Period at which past usage is updated while jobs wait."""
MAX_MOVED_JOBS: Final = 16
"""Maximum number of jobs that one consolidation moves."""
_PER_UNIT: Final = (1.0, 1000.0, 1000.0)
"""Units of `RESOURCES` per GPU, core and GB."""


@dataclass
class QueuedJobs:
    """All waiting and running jobs of a run."""

    works: dict[JobId, Work] = field(default_factory=dict)
    waiting: set[JobId] = field(default_factory=set)
    held: set[JobId] = field(default_factory=set)


@dataclass
class Kai(Allocator):
    """Give each queue its quota on request, and divide the rest by over-quota weight.

    Notes
    -----
    A cycle of the KAI scheduler: allocate, consolidate, reclaim, preempt. Queues form a tree. The
    fair share of a queue is the requested part of its quota, plus its part by weight of the
    resources over quota. *Allocate* starts jobs of the queue furthest below its share, up to its
    limit. *Consolidate* moves running jobs to free a place for a waiting one. *Reclaim* stops jobs
    of queues above their share for a queue below its own. *Preempt* stops jobs of lower priority in
    the same queue.

    Assumptions: a cycle runs at every event and 1 s after jobs were stopped, not every second.
    Resources that a queue does not list are not limited. A victim that turns out not to be needed
    runs on. Not simulated: fractional GPUs, topology, node pools, elastic gangs.
    """

    queues: str = param(
        "",
        title="Your queues",
        file="queues.yaml",
        help=(
            "YAML of Queue objects. Empty = one queue per tenant with equal quotas, or without"
            " quotas if past usage counts."
        ),
    )
    tenant: str = tenant_param()
    non_preemptible_from: float = param(
        100.0,
        title="Priority that is never stopped",
        low=0,
        high=1_000_000_000,
        help=(
            "Jobs from this priority on are never stopped, and start only within the quota of"
            " their queue."
        ),
    )
    consolidate: bool = param(
        True,
        title="Consolidation",
        help="Move running jobs to make room for a waiting job if enough GPUs are free.",
    )
    usage: bool = param(
        False,
        title="Past usage counts",
        help="Queues with more recent usage get less over quota.",
    )
    usage_window_h: float = param(
        168.0,
        title="Window of past usage",
        unit="h",
        low=0.01,
        high=100_000,
        help="Length of the past that counts, if 'Past usage counts'.",
    )
    usage_half_life_h: float = param(
        0.0,
        title="Half-life of past usage",
        unit="h",
        low=0,
        high=100_000,
        help="Time after which usage counts half, if 'Past usage counts'; 0 = no decay.",
    )
    usage_weight: float = param(
        1.0,
        title="Weight of past usage",
        low=0,
        high=1000,
        help="Reduction of a queue's part by its usage (kValue), if 'Past usage counts'.",
    )
    placement: str = placement_param()
    types: str = types_param()
    _place: Placer = field(init=False, repr=False)
    _tree: QueueTree | None = field(init=False, repr=False, default=None)
    _kinds: tuple[int, ...] = field(init=False, repr=False, default=())
    _total: list[float] = field(init=False, repr=False, default_factory=list)
    _given: tuple[QueueSpec, ...] = field(init=False, repr=False, default=())
    _jobs: QueuedJobs = field(init=False, repr=False, default_factory=QueuedJobs)
    _leaf_of: dict[int, QueueNode] = field(init=False, repr=False, default_factory=dict)
    _column: str = field(init=False, repr=False, default="")
    _notes: tuple[str, ...] = field(init=False, repr=False, default=())
    _reclaimed: int = field(init=False, repr=False, default=0)
    _refused: int = field(init=False, repr=False, default=0)

    card = Card(
        title="KAI",
        brief="queue quotas; surplus by weight, reclaimable",
        what=(
            "Every queue gets its quota on request; unused quota is lent by weight, and reclaimed"
            " by stopping jobs."
        ),
        cost="Jobs beyond their queue's quota are stopped when another queue asks for its own.",
        limits="Ignores run times; fractional GPUs and topology are not simulated.",
        source="KAI Scheduler (NVIDIA, Apache-2.0), plugins proportion and its actions, 2026",
        certainty="our reading of the scheduler's source; its division of shares is exact",
        goals=("fairness",),
        how=(
            "Each queue's fair share is its quota, plus a part by weight of what others leave.",
            "The queue furthest below its share starts its next job that fits.",
            "If enough GPUs are free but scattered, running jobs are moved together.",
            "A queue below its share stops jobs of queues above theirs.",
            "Within a queue, a higher priority stops a lower one.",
        ),
    )

    def __post_init__(self) -> None:
        """Parse the queues.

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
                self._notes = (f"kai does not read {_join_names(unread)}.",)

    def quotas(self) -> tuple[Quota, ...]:
        """Return the GPU quota of each configured queue."""
        return tuple(
            Quota(queue.name, gpu.deserved, gpu.limit, gpu.weight, queue.priority, queue.parent)
            for queue in self._given
            for gpu in queue.quotas[:1]
        )

    def remarks(self) -> tuple[str, ...]:
        """Return notes on queues and tenants, and the numbers of stopped and refused jobs."""
        notes = list(self._notes)
        if self._reclaimed:
            notes.append(f"kai stopped {_jobs(self._reclaimed)} for another queue.")
        if self._refused:
            notes.append(
                f"{_jobs(self._refused)} refused: larger than the limit of a queue, or never"
                " stopped and larger than its quota."
            )
        return tuple(notes)

    def allocate(self, view: View, /) -> Plan:
        """Run one scheduling cycle: allocate, consolidate, reclaim, preempt; return its plan.

        The first call builds the queue tree.
        """
        tree = self._tree
        if tree is None:
            tree = self._tree = self._build_tree(view)
        refused = self._sync_jobs(view, tree)
        self._refused += len(refused)
        if self.usage:
            tree.update_usage(view.now_s)
        if view.delta.nodes or not self._total:
            self._total = _total(view, view.capacity, self._kinds)
        tree.update_shares(self._total, self.usage_weight if self.usage else 0.0)
        cycle = _Cycle(view, tree, self._jobs, self._place)
        if self._jobs.waiting:
            cycle.allocate()
            if self.consolidate:
                cycle.consolidate()
            cycle.reclaim()
            cycle.preempt()
        if self.usage:
            tree.record_allocations()
        self._reclaimed += cycle.reclaimed
        wake_at_s = self._wake_s(view, cycle)
        if cycle.changes or refused or wake_at_s < inf:
            return Plan(cycle.changes, refused, wake_at_s)
        return EMPTY

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """Return what blocks a waiting job, and its queue's GPUs and fair share; else None.

        A job is blocked by a limit, by the quota of a non-preemptible job, or by lack of room.
        """
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
            return prefix_reason(stands, room_reason(decided, job), **values)
        values["where"] = lane.barrier.queue
        if lane.barrier.kind == "limit":
            return Reason(f"it would go beyond the limit of queue {{where:text}}; {stands}", values)
        return Reason(
            "jobs that are never stopped start within the quota only, and that of queue"
            f" {{where:text}} is in use; {stands}",
            values,
        )

    # -- state ------------------------------------------------------------------------------------

    def _build_tree(self, view: View) -> QueueTree:
        """Build the queue tree from the queues or tenants; set resources, column and notes.

        Tenants without a leaf queue share a queue without quota.
        """
        cluster = view.cluster.nodes
        is_limited = (
            any(node.gpus for node in cluster),
            all(isfinite(node.cpus) for node in cluster),
            all(isfinite(node.mem_gb) for node in cluster),
        )
        self._kinds = tuple(at for at, is_known in enumerate(is_limited) if is_known)
        self._column = tenant_column(view, self.tenant)
        tenants = tenant_names(view, self._column)
        gpus = int(gpus_to_share(view).sum())
        # Quotas that add up to the cluster would leave nothing for past usage to divide.
        each = 0 if self.usage else gpus // max(1, len(tenants))
        queues = self._given or queue_per_tenant(tenants, each)
        notes = list(self._notes)
        if not self.queues:
            notes.append(
                f"kai was given no queues: {len(tenants)} with a quota of {each} GPUs each are"
                f" assumed, one for each {TENANT_NOUNS[self._column]} of the trace."
                if tenants
                else "kai was given no queues and the trace names no tenants: all jobs are in one"
                f" queue, {UNMAPPED}."
            )
        parents = {queue.parent for queue in queues}
        leaves = {queue.name for queue in queues} - parents
        unmapped = [name for name in tenants if name not in leaves]
        if UNMAPPED not in {queue.name for queue in queues}:
            queues = (*queues, queue_without_quota(UNMAPPED))
        if unmapped:
            notes.append(
                f"No queue for {_join_names(unmapped)} of column {self._column}: their jobs are in"
                f" {UNMAPPED}, whose quota is 0."
            )
        notes += self._quota_notes(queues, _total(view, view.installed, self._kinds))
        self._notes = tuple(notes)
        tree = QueueTree(queues, self._kinds)
        if self.usage:
            tree.track_usage(
                view.now_s,
                self.usage_window_h * 3600.0,
                self.usage_half_life_h * 3600.0 or inf,
            )
        return tree

    def _quota_notes(self, queues: Iterable[QueueSpec], total: list[float]) -> list[str]:
        """Return a note for each resource with root quotas that exceed the cluster in total."""
        notes = []
        for at, amount in zip(self._kinds, total, strict=True):
            quotas = [queue.quotas[at].deserved for queue in queues if not queue.parent]
            quota_total = sum([quota for quota in quotas if quota < inf])
            if quota_total > amount:
                notes.append(
                    f"The quotas of {RESOURCES[at]} add up to {quota_total:g}, the cluster has"
                    f" {amount:g}."
                )
        return notes

    def _sync_jobs(self, view: View, tree: QueueTree) -> frozenset[JobId]:
        """Update waiting and running jobs from the view; return the jobs to refuse.

        Refused are new jobs that no empty queue could hold.
        """
        unsatisfiable = []
        jobs, grants = self._jobs, view.grants
        waiting = set(view.waiting.ids.tolist())
        has_new_grants, has_new_waiting = jobs.held != grants.keys(), jobs.waiting != waiting
        for job in jobs.held - grants.keys() if has_new_grants else ():
            tree.release(job, jobs.works[job])
            jobs.held.remove(job)
        for job in jobs.waiting - waiting if has_new_waiting else ():
            tree.dequeue(job, jobs.works[job])
            jobs.waiting.remove(job)
        for job in waiting - jobs.waiting if has_new_waiting else ():
            work = self._work(view, job)
            if tree.is_unsatisfiable(work):
                unsatisfiable.append(job)
                del jobs.works[job]
                continue
            tree.enqueue(job, work)
            jobs.waiting.add(job)
        for job in grants.keys() - jobs.held if has_new_grants else ():
            work = self._work(view, job)
            work.since_s = view.now_s
            tree.allocate(job, work)
            jobs.held.add(job)
        for job in view.delta.finished:
            jobs.works.pop(job, None)
        return frozenset(unsatisfiable)

    def _work(self, view: View, job: JobId) -> Work:
        """Return a job's queue, amounts, priority and preemptibility as Work (cached)."""
        work = self._jobs.works.get(job)
        if work is None:
            demand, priority = view.demand(job), view.one("priority", job)
            work = self._jobs.works[job] = Work(
                self._leaf(view, job),
                tuple(_amounts(demand)[at] * _PER_UNIT[at] for at in self._kinds),
                priority,
                demand.key,
                priority >= self.non_preemptible_from,
            )
        return work

    def _leaf(self, view: View, job: JobId) -> QueueNode:
        """Return the leaf queue of a job's tenant, or the queue for unmapped tenants (cached)."""
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
        """Return the time of the next cycle without an event; inf = none.

        One second after a stop; else, while jobs wait, the earliest end of a protected run time or
        the next update of past usage.
        """
        now_s = view.now_s
        if cycle.stopped:
            return now_s + CYCLE_S
        if not self._jobs.waiting:
            return inf
        assert self._tree is not None, "it was built before the cycle"
        protected_until_s = [
            until_s
            for leaf in self._tree.leaves()
            if leaf.reclaim_after_s or leaf.preempt_after_s
            for job in leaf.running
            for until_s in (cycle.reclaimable_s(job), cycle.preemptible_s(job))
            if now_s < until_s < inf
        ]
        periodic_s = now_s + USAGE_S if self.usage else inf
        return min([periodic_s, *protected_until_s])


class _Cycle:
    """One scheduling cycle."""

    def __init__(self, view: View, tree: QueueTree, jobs: QueuedJobs, place: Placer) -> None:
        self._view, self._tree, self._jobs, self._place = view, tree, jobs, place
        self.changes: dict[JobId, Grant | None] = {}
        self.stopped = False
        self.reclaimed = 0
        self._unplaced: dict[int, Demand] = {}
        """Demands that `allocate` found no place for, by key."""
        self._victims_of: dict[QueueNode, list[JobId]] = {}
        """Results of `_victims` until a job of the queue is stopped or moved."""

    def allocate(self) -> None:
        """Start waiting jobs that fit, from the queue furthest below its share.

        Sets the `barrier` of each group whose first job exceeds a limit or quota.
        """
        tree, view = self._tree, self._view
        line = JobOrder(tree, self._jobs.works)
        while (lane := line.next_lane()) is not None:
            job, work = self._head(lane)
            lane.barrier = tree.barrier(work)
            if lane.barrier is not None:
                line.close([lane])
                continue
            demand = view.demand(job)
            grant = self._place(view, demand)
            if grant is None:
                # No resources are freed in this action, so equal jobs do not fit either.
                self._unplaced[demand.key] = demand
                line.close(tree.by_demand[work.demand])
                continue
            self._start(job, work, grant)
            line.update_leaves(work.leaf)

    def consolidate(self) -> None:
        """Move running jobs to start waiting jobs that have enough GPUs only in total."""
        view, tree = self._view, self._tree
        if not any(one.gpus and self._is_free(one) for one in self._unplaced.values()):
            return
        line = JobOrder(tree, self._jobs.works)
        while (lane := line.next_lane()) is not None:
            job, work = self._head(lane)
            demand = view.demand(job)
            free = self._is_free(demand)
            if (
                tree.barrier(work)
                or not demand.gpus
                or not free
                or not self._consolidate_for(job, work)
            ):
                line.close(tree.by_demand[work.demand] if not free else [lane])
                continue
            line.update_leaves(work.leaf)

    def reclaim(self) -> None:
        """Stop jobs of queues above their share to start jobs of queues below theirs.

        The stopped jobs are counted in `reclaimed`.
        """
        tree, none = self._tree, (0.0,) * len(self._tree.total)
        if not any(
            tree.may_reclaim(self._jobs.works[head[1]])
            for leaf in tree.leaves()
            if leaf.waiting and is_within(leaf.allocated, none, leaf.fair)
            for head, _ in leaf.heads()
        ):
            return
        line = JobOrder(tree, self._jobs.works)
        while (lane := line.next_lane()) is not None:
            job, work = self._head(lane)
            victims = self._reclaim_for(job, work) if tree.may_reclaim(work) else []
            if not victims:
                line.close([lane])
                continue
            self.reclaimed += len(victims)
            line.update_leaves(work.leaf, *(self._jobs.works[one].leaf for one in victims))

    def preempt(self) -> None:
        """Stop jobs of lower priority in the same queue to start waiting jobs.

        Jobs within the minimum run time of their queue are spared.
        """
        view, tree, works = self._view, self._tree, self._jobs.works
        if not any(
            min([works[job].priority for job in leaf.running])
            < -min([negative for (negative, _), _ in leaf.heads()])
            for leaf in tree.leaves()
            if leaf.waiting and leaf.running
        ):
            return
        line = JobOrder(tree, works)
        while (lane := line.next_lane()) is not None:
            job, work = self._head(lane)
            worse = [
                one
                for one in self._victims(work.leaf)
                if works[one].priority < work.priority and self.preemptible_s(one) <= view.now_s
            ]
            if not worse or not self._make_room(job, work, worse):
                line.close([lane])
                continue
            line.update_leaves(work.leaf)

    def reclaimable_s(self, job: JobId) -> float:
        """Return the time from which a running job may be stopped for another queue."""
        work = self._jobs.works[job]
        return work.since_s + work.leaf.reclaim_after_s

    def preemptible_s(self, job: JobId) -> float:
        """Return the time from which a running job may be stopped for its own queue."""
        work = self._jobs.works[job]
        return work.since_s + work.leaf.preempt_after_s

    # -- steps -------------------------------------------------------------------------------------

    def _head(self, lane: IdenticalJobs) -> tuple[JobId, Work]:
        """Return the id and Work of the first job in a group of identical jobs."""
        head = lane.head
        assert head is not None, "a lane without jobs is next"
        return head[1], self._jobs.works[head[1]]

    def _start(self, job: JobId, work: Work, grant: Grant) -> None:
        """Move a waiting job to the running jobs, and plan its grant."""
        self._tree.dequeue(job, work)
        self._tree.allocate(job, work)
        self._jobs.waiting.remove(job)
        self._jobs.held.add(job)
        work.since_s = self._view.now_s
        self.changes[job] = grant

    def _stop(self, job: JobId) -> None:
        """Move a running job back to its queue, and plan its stop."""
        work = self._jobs.works[job]
        self._tree.release(job, work)
        self._tree.enqueue(job, work)
        self._jobs.held.remove(job)
        self._jobs.waiting.add(job)
        self._victims_of.pop(work.leaf, None)
        self.changes[job] = None
        self.stopped = True

    def _victims(self, leaf: QueueNode) -> list[JobId]:
        """Return a queue's preemptible jobs: lowest priority first, then the newest.

        Jobs already started, moved or stopped in this cycle are left out.
        """
        victims = self._victims_of.get(leaf)
        if victims is None:
            works, view = self._jobs.works, self._view
            victims = self._victims_of[leaf] = sorted(
                [
                    job
                    for job in leaf.running
                    if not works[job].fixed
                    and job not in self.changes
                    and view.one("preemptible", job)
                ],
                key=lambda job: (works[job].priority, -job),
            )
        return victims

    def _is_free(self, demand: Demand) -> bool:
        """Return True if enough GPUs for a demand are free in total."""
        return self._view.room.gpus_free(demand.pools) >= demand.replicas * demand.gpus

    def _reclaim_for(self, job: JobId, work: Work) -> list[JobId]:
        """Stop jobs of other queues to start a waiting job; return the stopped jobs.

        Victims come from the queue served last, without those in their minimum run time.
        """
        tree, works, now_s = self._tree, self._jobs.works, self._view.now_s
        victims_of: dict[QueueNode, list[JobId]] = {}
        for leaf in tree.leaves():
            reclaimable = (
                [one for one in self._victims(leaf) if self.reclaimable_s(one) <= now_s]
                if leaf is not work.leaf and leaf.running
                else []
            )
            if reclaimable:
                victims_of[leaf] = reclaimable[::-1]

        def in_turn() -> Iterable[JobId]:
            """Yield victims of the queue served last; drop queues without any to reclaim."""
            while victims_of:
                leaf = tree.last_queue(victims_of)
                if not tree.can_reclaim_from(work, works[victims_of[leaf][-1]]):
                    del victims_of[leaf]  # its allocation only shrinks
                    continue
                yield victims_of[leaf].pop()
                if not victims_of[leaf]:
                    del victims_of[leaf]

        return self._make_room(job, work, in_turn(), balanced=True)

    def _make_room(
        self, job: JobId, work: Work, victims: Iterable[JobId], *, balanced: bool = False
    ) -> list[JobId]:
        """Stop as few victims as needed, in order, to start a job; return them.

        With `balanced`, its queue must not end further above its share than those of the victims.

        The list is empty, and no job is stopped, if all victims together do not help.
        """
        view, tree, works = self._view, self._tree, self._jobs.works
        room, demand = view.room, view.demand(job)
        freed: list[JobId] = []
        grant: Grant | None = None
        for victim in victims:
            freed.append(victim)
            room.give(view.grants[victim])
            tree.add_allocation(works[victim], -1)
            grant = None if tree.barrier(work) else self._place(view, demand)
            if grant is not None:
                break
        fair = not balanced or tree.is_balanced(work, [works[one] for one in freed])
        if grant is None or not fair:
            if grant is not None:
                room.give(grant)
            for victim in reversed(freed):
                room.take(view.grants[victim])
                tree.add_allocation(works[victim], 1)
            return []
        stopped = [freed[-1]]  # without it there was no place
        for victim in freed[-2::-1]:
            tree.add_allocation(works[victim], 1)
            if tree.barrier(work) or not reserve_if_free(
                view, view.grants[victim], view.demand(victim)
            ):
                tree.add_allocation(works[victim], -1)
                stopped.append(victim)
        for victim in stopped:
            tree.add_allocation(works[victim], 1)
        for victim in stopped:
            self._stop(victim)
        self._start(job, work, grant)
        return stopped

    def _consolidate_for(self, job: JobId, work: Work) -> bool:
        """Move up to 16 running jobs, smallest first, to start a job; True = it starts."""
        view, works = self._view, self._jobs.works
        room, demand = view.room, view.demand(job)
        leaves = [leaf for leaf in self._tree.leaves() if leaf.running]
        victims = [one for leaf in leaves for one in self._victims(leaf)]
        victims.sort(key=lambda one: (sum(works[one].amounts), works[one].priority, -one))
        freed: list[JobId] = []
        for victim in victims[:MAX_MOVED_JOBS]:
            freed.append(victim)
            room.give(view.grants[victim])
            grant = self._place(view, demand)
            if grant is None:
                continue
            moved = self._place_again(freed)
            if moved is not None:
                for one, new in moved.items():
                    if new != view.grants[one]:
                        self.changes[one] = new
                        self._victims_of.pop(works[one].leaf, None)
                self._start(job, work, grant)
                return True
            room.give(grant)
        for victim in reversed(freed):
            room.take(view.grants[victim])
        return False

    def _place_again(self, jobs: list[JobId]) -> dict[JobId, Grant] | None:
        """Reserve places for moved jobs, largest first and old ones if free; None = not for all."""
        view, works = self._view, self._jobs.works
        grants: dict[JobId, Grant] = {}
        for job in sorted(jobs, key=lambda one: (-sum(works[one].amounts), one)):
            demand, old = view.demand(job), view.grants[job]
            grant = old if reserve_if_free(view, old, demand) else self._place(view, demand)
            if grant is None:
                for new in grants.values():
                    view.room.give(new)
                return None
            grants[job] = grant
        return grants


def _amounts(demand: Demand) -> tuple[float, float, float]:
    """Return the total GPUs, cores and GB of all replicas and servers of a demand."""
    gpus = float(demand.replicas * demand.gpus)
    cpus, mem_gb = demand.replicas * demand.cpus, demand.replicas * demand.mem_gb
    servers = demand.servers
    if servers is not None:
        cpus += servers.replicas * servers.cpus
        mem_gb += servers.replicas * servers.mem_gb
    return gpus, cpus, mem_gb


def _total(view: View, gpus: Ints, kinds: Iterable[int]) -> list[float]:
    """Return the total of each kind of resource on nodes that are up, in `RESOURCES` units."""
    up = [node for node, own in zip(view.cluster.nodes, gpus, strict=True) if own or not node.gpus]
    amounts = (
        float(gpus.sum()),
        sum([node.cpus for node in up]),
        sum([node.mem_gb for node in up]),
    )
    return [amounts[at] * _PER_UNIT[at] for at in kinds]


def _jobs(count: int) -> str:
    """Return a number of jobs as text."""
    return "1 job" if count == 1 else f"{count:,} jobs"


def _join_names(names: Iterable[str]) -> str:
    """Return the first five names joined by commas, and the number of further names."""
    all_names = [*names]
    shown = ", ".join(all_names[:5])
    return f"{shown} and {len(all_names) - 5} more" if len(all_names) > 5 else shown
