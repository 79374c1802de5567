"""The Kueue policy: jobs wait for quota, which cohorts lend and reclaim, then for nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from allocators.placement import Placer, could_ever_hold, placement_param
from allocators.reasons import prefix_reason, room_reason
from allocators.sites.kueue import mapping
from allocators.sites.kueue.files import read_config
from allocators.sites.kueue.objects import KueueConfig
from allocators.sites.kueue.queueing import FlavorChoice, QueuedWorkload, QueueState
from allocators.sites.kueue.scheduler import Scheduler
from allocators.tenants import TENANT_COLUMNS, TENANT_NOUNS
from sim.contract import (
    EMPTY,
    Allocator,
    Card,
    Decided,
    Delta,
    Demand,
    Grant,
    JobId,
    Plan,
    Reason,
    View,
    param,
)

_MAX_QUOTED: Final = 5
"""Maximum number of configuration entries quoted in a note."""
_NOT_PLACED: Final = "admitted_without_place"


@dataclass
class Kueue(Allocator):
    """Reserve quota for whole jobs by queue, with borrowing in cohorts, then place them.

    Notes
    -----
    Rules of Kueue's scheduler (2026): quotas with borrowing and lending limits in a tree of
    cohorts, flavor fungibility, queueing strategies, preemption within a queue and within a cohort,
    and fair sharing by the dominant resource share.

    A workload is a gang. Admission reserves quota; then nodes must have room. An admitted job
    without room **holds its quota** while it waits, as in Kueue without topology-aware scheduling;
    the results count such jobs.

    A preempted workload is queued by its submission time. (Kueue queues only workloads with pods
    that did not become ready by eviction time, which is not simulated.) A job that lost its nodes
    keeps its quota and waits for others.

    A job for which others were preempted stays the head of its queue until it is admitted (the
    sticky workload of Kueue's BestEffortFIFO), else other jobs would take the freed quota.

    Assumptions: the scheduler reacts to every event at once, and preempted jobs stop at once. A
    workload is preempted at most once at an instant. A flavor that could not hold a job on empty
    nodes is skipped. Resources that a queue does not cover are not counted, but a queue without
    GPUs refuses jobs with GPUs. One replica in a trace is one pod. Jobs that could never be
    admitted are refused. Not simulated: topology-aware scheduling, MultiKueue, partial admission,
    elastic slices, admission checks, admission fair sharing by usage, and timeouts of pods that are
    not ready.
    """

    config: str = param(
        "",
        title="Configuration",
        file="kueue.yaml",
        help=(
            "YAML of ClusterQueues, Cohorts, LocalQueues and ResourceFlavors. Empty = one"
            " queue per tenant with equal quotas."
        ),
    )
    tenant: str = param(
        "auto",
        title="What names the queue of a job",
        choices=("auto", *TENANT_COLUMNS),
        labels={
            "auto": "Best match",
            **{column: word.capitalize() for column, word in TENANT_NOUNS.items()},
        },
        help=(
            "Column of local queues, namespaces or cluster queues. auto: the one with most"
            " matches; without a configuration the first with several names."
        ),
    )
    fair_sharing: str = param(
        "as_configured",
        title="Fair sharing",
        choices=("as_configured", "on", "off"),
        labels={"as_configured": "As configured", "on": "On", "off": "Off"},
        help=(
            "Admit the queue with the smallest borrowed share first, preempt the one with the"
            " largest. As configured: by a Configuration in the YAML, else off."
        ),
    )
    requeue_s: float = param(
        0.0,
        title="Retry delay",
        unit="s",
        low=0,
        high=3600,
        help="Time from a release of quota to the next try of jobs that did not fit; Kueue: 1 s.",
    )
    placement: str = placement_param()
    _site: KueueConfig | None = field(init=False, repr=False)
    _place: Placer = field(init=False, repr=False)
    _run: _Run | None = field(init=False, repr=False, default=None)

    card = Card(
        title="Kueue",
        brief="quotas that queues lend to one another",
        what=(
            "Each queue has a quota, borrows unused quota of its cohort, and may reclaim its own."
        ),
        cost="Jobs on borrowed quota are stopped when its owner reclaims it.",
        limits="Ignores run times, and reserves quota without checking nodes.",
        source="Kueue (kubernetes-sigs/kueue), version of 2026: documentation and scheduler",
        certainty=(
            "exact for the rules named, without topology-aware scheduling and admission checks"
        ),
        goals=("fairness",),
        how=(
            "Jobs wait in the queue of their tenant, by priority and then by submission.",
            "The first of each queue gets quota if its queue has some left or can borrow it.",
            "If not, it may preempt jobs of lower priority, or jobs that run on borrowed quota.",
            "A queue whose first job does not fit tries the next ones, unless it is strict.",
            "A job with quota starts as soon as nodes have room for it.",
        ),
    )

    def __post_init__(self) -> None:
        """Parse the configuration."""
        self._site = read_config(self.config) if self.config.strip() else None
        self._place = Placer(self.placement)

    def remarks(self) -> tuple[str, ...]:
        """Return notes on entries that are not simulated, assumptions, and refused jobs."""
        ignored = self._site.ignored if self._site is not None else ()
        notes = []
        if ignored:
            more = len(ignored) - _MAX_QUOTED
            rest = f"; and {more:,} more" if more > 0 else ""
            notes.append(
                f"{len(ignored):,} {'entry' if len(ignored) == 1 else 'entries'} of the"
                f" configuration {'is' if len(ignored) == 1 else 'are'} not simulated:"
                f" {'; '.join(ignored[:_MAX_QUOTED])}{rest}."
            )
        return (*notes, *(self._run.remarks() if self._run is not None else ()))

    def allocate(self, view: View, /) -> Plan:
        """Update the queues, reserve quota, and return a plan that starts jobs with room."""
        run = self._run
        if run is None:
            run = self._run = self._start_run(view)
        run.begin(view)
        refused = run.follow(view)
        changes = run.decide(view, self._place)
        notes = run.notes()
        if not (changes or refused or notes) and run.wake_s == inf:
            return EMPTY
        return Plan(changes, refuse=refused, wake_at_s=run.wake_s, notes=notes)

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """Return the usage of a job's queue and the jobs ahead, or that only nodes are missing."""
        return self._run.explain(decided, job) if self._run is not None else None

    def _start_run(self, view: View) -> _Run:
        """Build the run's state from the configuration, or from proposed queues."""
        if self._site is None:
            site, tenants = mapping.propose_queues(view, self.tenant)
        else:
            site, tenants = self._site, mapping.tenants_of(self._site, view, self.tenant)
        scheduler = Scheduler(site, fair=self._is_fair(site), requeue_s=self.requeue_s)
        return _Run(view, site, tenants, scheduler, proposed=self._site is None)

    def _is_fair(self, site: KueueConfig) -> bool:
        """Return True if fair sharing is on."""
        if self.fair_sharing == "as_configured":
            return site.fair_sharing
        return self.fair_sharing == "on"


class _Run:
    """The state of a Kueue policy in one run.

    Parameters
    ----------
    view : View
        The view at the first decision; quota of running jobs is booked.
    site : KueueConfig
        The objects.
    tenants : Tenants
        Queue of each tenant.
    scheduler : Scheduler
        The queues of the objects.
    proposed : bool
        Whether the objects were proposed without a configuration.
    """

    def __init__(
        self,
        view: View,
        site: KueueConfig,
        tenants: mapping.Tenants,
        scheduler: Scheduler,
        *,
        proposed: bool,
    ) -> None:
        self._site, self._tenants = site, tenants
        self._stopped = mapping.stopped_queues(site)
        self._scheduler = scheduler
        classes = {one.name: float(one.value) for one in site.classes}
        self._classes = {
            code: classes[name] for code, name in enumerate(view.names("qos")) if name in classes
        }
        scheduler.begin(view.now_s)
        self._pools = {flavor.name: mapping.pools_of(flavor, view) for flavor in site.flavors}
        self._jobs: dict[JobId, QueuedWorkload] = {}
        self._narrowed_demands: dict[tuple[int, tuple[str, ...]], Demand] = {}
        self._fitting: dict[int, frozenset[str]] = {}
        self._requests: dict[
            tuple[QueueState, int], tuple[tuple[tuple[str, int], ...], tuple[str, ...]]
        ] = {}
        self._proposed = proposed
        self._unplaced: dict[JobId, int] = {}
        self._lanes: dict[int, list[tuple[int, JobId]]] = {}
        self._full: set[int] = set()
        self._fresh: set[int] = set()
        self._freed = True
        self._last: dict[JobId, Grant | None] = {}
        self._refused: Counter[str] = Counter()
        self._uncounted: Counter[str] = Counter()
        self._reported_unplaced = 0
        self._ever_waited: set[JobId] = set()
        self._demands: dict[int, Demand] = {}
        self._assumption_notes = self._assumptions(view, proposed=proposed)
        for job in view.grants:
            self._adopt(view, job)

    # -- notes
    # ----------------------------------------------------------------------------------------------

    def _assumptions(self, view: View, *, proposed: bool) -> list[str]:
        """Return notes on assumptions about queues, flavors and quotas."""
        column, site = self._tenants.column, self._site
        if proposed:
            named_count = len([name for name in self._tenants.queues if name != mapping.UNNAMED])
            if not named_count:
                return ["Without a configuration, and no tenants in the trace, there is one queue."]
            return [
                "Without a configuration there is an equal cluster queue for each"
                f" {_TENANT_NOUNS[column]} of the trace, {named_count:,} in all, in one cohort;"
                " each may reclaim its own quota, and jobs without a name have none of their own."
            ]
        notes = [f"Jobs find their queue by their {_TENANT_NOUNS[column]}."]
        unmatched = [one.name for one in site.flavors if self._pools[one.name] is None]
        if unmatched and len(view.room.pools) > 1:
            notes.append(
                f"Flavor {', '.join(unmatched)} names no GPU type or partition of this cluster, so"
                " it is taken as all nodes. Add a node label with the type."
            )
        closed = [queue.name for queue in site.queues if not queue.selects]
        if closed:
            notes.append(
                f"Cluster queue {', '.join(closed[:_MAX_QUOTED])} has no namespaceSelector, so"
                " Kueue would admit no jobs; here it is open."
            )
        return notes + mapping.quotas_above_cluster(site, self._pools, view)

    def remarks(self) -> tuple[str, ...]:
        """Return notes on assumptions, refused jobs, uncounted requests and unplaced jobs."""
        notes = list(self._assumption_notes)
        notes += [f"{_jobs(count)} refused: {why}." for why, count in self._refused.items()]
        notes += [
            f"{_jobs(count)} requested {what}, which does not cover it: not counted."
            " Kueue admits such jobs only if it is configured to ignore the resource."
            for what, count in self._uncounted.items()
        ]
        if self._ever_waited:
            notes.append(
                f"{_jobs(len(self._ever_waited))} admitted without a place: quota was reserved, and"
                " held, while no nodes had room."
            )
        return tuple(notes)

    def notes(self) -> dict[str, float]:
        """Return the number of admitted jobs without nodes by note name; empty if unchanged."""
        count = len(self._unplaced)
        if count == self._reported_unplaced:
            return {}
        self._reported_unplaced = count
        return {_NOT_PLACED: float(count)}

    def explain(self, decided: Decided, job: JobId) -> Reason | None:
        """Return why a job waits: quota in use, jobs ahead, or missing nodes; None if unknown."""
        one = self._jobs.get(job)
        if one is None:
            return None
        queue = one.queue
        if one.order:
            return prefix_reason(
                "quota of cluster queue {queue:text} is reserved for it, but its pods have no room",
                room_reason(decided, job),
                queue=queue.config.name,
            )
        node, cells = queue.node, self._scheduler.tree.cells
        mine = [at for cell, at in cells.items() if mapping.is_gpu(cell.resource)]
        ahead = len(queue.ahead(one))
        place = "{ahead:jobs_were} ahead" if ahead else "first"
        return prefix_reason(
            f"{place} in cluster queue {{queue:text}}, which used {{used:gpus}} and owns"
            " {own:gpus}, and no more quota could be had",
            room_reason(decided, job),
            **({"ahead": ahead} if ahead else {}),
            queue=queue.config.name,
            used=sum(node.used[at] for at in mine),
            own=sum(node.nominal[at] for at in mine),
        )

    # -- events
    # ----------------------------------------------------------------------------------------------

    @property
    def wake_s(self) -> float:
        """Time of the next decision without an event."""
        return self._scheduler.wake_s

    def begin(self, view: View) -> None:
        """Set the time, and correct the state for changes that did not take effect.

        With decision latency, changes of jobs that ended or were evicted become void. A job that
        did not start waits for nodes again; a job that was not stopped gets its quota back.
        """
        self._scheduler.begin(view.now_s)
        delta = view.delta
        lost = {eviction.job for eviction in delta.evicted}
        for job, grant in self._last.items():
            held = view.grants.get(job)
            if held is grant or held == grant or job in lost or job in delta.finished:
                continue
            one = self._jobs[job]
            if held is None:
                self._await_nodes(view, one)
            else:  # its stop or move became void
                self._forget_place(job)
                if not one.order:
                    self._scheduler.book(one, *self._usage_on_nodes(view, one, held))
        self._last = {}

    def follow(self, view: View) -> frozenset[JobId]:
        """Process the events since the last decision; return the jobs to refuse.

        Ended jobs free their quota, evicted jobs wait for nodes or are submitted, resized and
        arrived jobs are submitted.
        """
        delta: Delta = view.delta
        refused: list[JobId] = []
        self._freed = bool(delta.finished or delta.evicted or delta.nodes or delta.resized)
        for job in delta.finished:
            if job in self._jobs:
                self._forget_place(job)
                self._scheduler.withdraw(self._jobs.pop(job))
        for eviction in delta.evicted:
            if eviction.job in delta.finished:
                continue
            one = self._jobs.get(eviction.job)
            if one is None:
                self._submit(view, eviction.job, refused)
            elif one.order:
                self._await_nodes(view, one)
        for job in delta.resized:
            self._resubmit(view, job, refused)
        for job in delta.arrived:
            if job not in self._jobs:
                self._submit(view, job, refused)
        return frozenset(refused)

    def _submit(self, view: View, job: JobId, refused: list[JobId]) -> None:
        """Submit a job to its queue; or count the reason and add it to `refused`."""
        one = self._workload(view, job)
        why = one if isinstance(one, str) else self._permanent_obstacle(one)
        if why:
            self._refused[why] += 1
            refused.append(job)
            return
        assert isinstance(one, QueuedWorkload)
        self._jobs[job] = one
        self._scheduler.submit(one)

    def _resubmit(self, view: View, job: JobId, refused: list[JobId]) -> None:
        """Withdraw a resized job; book it on its nodes if it runs, else submit it again."""
        old = self._jobs.pop(job, None)
        if old is None:
            return
        self._forget_place(job)
        self._scheduler.withdraw(old)
        if job in view.grants:
            self._adopt(view, job)
        else:
            self._submit(view, job, refused)

    def _adopt(self, view: View, job: JobId) -> None:
        """Book the quota of a running job by the flavors of its nodes, if it has a queue."""
        one = self._workload(view, job)
        if isinstance(one, QueuedWorkload):
            self._jobs[job] = one
            self._scheduler.book(one, *self._usage_on_nodes(view, one, view.grants[job]))

    def _usage_on_nodes(
        self, view: View, one: QueuedWorkload, grant: Grant
    ) -> tuple[list[tuple[int, int]], list[str]]:
        """Return the usage and flavors of a job on its current nodes.

        In each resource group, the first flavor that includes all its nodes, else the first flavor.
        """
        nodes = set(grant.gangs[0].workers.nodes)
        usage: list[tuple[int, int]] = []
        chosen: list[str] = []
        for choices, requests in one.queue.group_requests(one.request):
            on = next((it for it in choices if nodes <= self._flavor_nodes(view, it)), choices[0])
            usage += [(on.cells[name], amount) for name, amount in requests]
            chosen.append(on.name)
        return usage, chosen

    def _flavor_nodes(self, view: View, choice: FlavorChoice) -> set[int]:
        """Return the nodes of a flavor; all nodes if it names no GPU type or partition."""
        here = self._pools[choice.name]
        return {
            node
            for at, pool in enumerate(view.room.pools)
            if here is None or at in here
            for node in pool.nodes
        }

    # -- workloads
    # ----------------------------------------------------------------------------------------------

    def _workload(self, view: View, job: JobId) -> QueuedWorkload | str:
        """Return the workload of a job, or the reason to refuse it."""
        tenants = self._tenants
        code = int(view.one(tenants.column, job))
        name = tenants.queues[code]
        if name == mapping.HELD:
            return "their local queue is stopped (stopPolicy)"
        if not name:
            tenant = view.names(tenants.column)[code]
            if not tenant:
                return f"they name no {_TENANT_NOUNS[tenants.column]}, so no queue"
            return f"no local or cluster queue of the configuration is called {tenant[:40]!r}"
        queue = self._scheduler.queues[name]
        demand = view.demand(job)
        request = self._request(queue, demand)
        if isinstance(request, str):
            return request
        return QueuedWorkload(
            job,
            queue,
            self._priority(view, job),
            view.one("arrival_s", job),
            request,
            self._feasible_flavors(view, demand),
            bool(view.one("preemptible", job)),
        )

    def _priority(self, view: View, job: JobId) -> float:
        """Return the value of a job's WorkloadPriorityClass, else the trace's priority.

        The class is named by the column ``qos``.
        """
        own = view.one("priority", job)
        return self._classes.get(int(view.one("qos", job)), own) if self._classes else own

    def _request(self, queue: QueueState, demand: Demand) -> tuple[tuple[str, int], ...] | str:
        """Return the (resource, amount) pairs that a gang requests, or why it is refused.

        GPUs that the queue does not cover refuse it; other uncovered resources are counted for
        `remarks`.
        """
        cached = self._requests.get((queue, demand.key))
        if cached is None:
            covered = sorted(queue.covered)
            gpu = next((name for name in covered if mapping.is_gpu(name)), mapping.GPU)
            amounts = {
                name: mapping.requested_amount(name, demand)
                for name in (gpu, *mapping.OTHER_RESOURCES)
            }
            missing = tuple(
                name for name, amount in amounts.items() if amount and name not in covered
            )
            request = tuple((name, amounts[name]) for name in covered if amounts.get(name))
            cached = self._requests[queue, demand.key] = request, missing
        request, missing = cached
        for name in missing if not self._proposed else ():
            if mapping.is_gpu(name):
                return f"they request GPUs, which cluster queue {queue.config.name} does not cover"
            if name != "pods":
                self._uncounted[f"{name} in cluster queue {queue.config.name}"] += 1
        return request

    def _permanent_obstacle(self, one: QueuedWorkload) -> str:
        """Return why a queue could never admit a workload; "" = it could."""
        queue = one.queue
        if queue.config.name in self._stopped:
            return f"cluster queue {queue.config.name} is stopped (stopPolicy)"
        if not self._scheduler.can_ever(one):
            return (
                f"they request more than cluster queue {queue.config.name} could ever get, borrowed"
                " quota included, of flavors whose nodes could hold them"
            )
        return ""

    def _feasible_flavors(self, view: View, demand: Demand) -> frozenset[str]:
        """Return the flavors with nodes that can hold a gang (cached)."""
        feasible = self._fitting.get(demand.key)
        if feasible is None:
            feasible = self._fitting[demand.key] = frozenset(
                name
                for name in self._pools
                if could_ever_hold(view, self._narrow_demand(demand, (name,)), mixed=False)
            )
        return feasible

    def _narrow_demand(self, demand: Demand, chosen: tuple[str, ...]) -> Demand:
        """Return a demand limited to the node pools of its flavors (cached)."""
        narrowed = self._narrowed_demands.get((demand.key, chosen))
        if narrowed is None:
            pools = demand.pools
            for name in chosen:
                here = self._pools[name]
                if here is not None:
                    pools = tuple(at for at in pools if at in here)
            narrowed = demand if pools == demand.pools else replace(demand, pools=pools)
            self._narrowed_demands[demand.key, chosen] = narrowed
        return narrowed

    # -- decisions
    # ----------------------------------------------------------------------------------------------

    def decide(self, view: View, place: Placer) -> dict[JobId, Grant | None]:
        """Run the scheduler, start admitted jobs that have room; return the changes.

        Preempted jobs are None.
        """
        changes: dict[JobId, Grant | None] = {}
        for one, admitted in self._scheduler.run():
            if admitted:
                self._await_nodes(view, one)
            elif one.id in self._unplaced:
                self._forget_place(one.id)
            elif one.id not in changes:
                view.room.give(view.grants[one.id])
                changes[one.id] = None
                self._freed = True
        changes.update(self._start_admitted(view, place))
        self._ever_waited.update(self._unplaced)
        self._last = changes
        return changes

    def _await_nodes(self, view: View, one: QueuedWorkload) -> None:
        """Queue an admitted workload for nodes, with others of equal demand."""
        demand = self._narrow_demand(view.demand(one.id), one.chosen)
        self._unplaced[one.id] = one.order
        self._demands[demand.key] = demand
        heappush(self._lanes.setdefault(demand.key, []), (one.order, one.id))
        self._fresh.add(demand.key)

    def _forget_place(self, job: JobId) -> None:
        """Remove a job from the queue for nodes."""
        self._unplaced.pop(job, None)

    def _start_admitted(self, view: View, place: Placer) -> dict[JobId, Grant | None]:
        """Start admitted jobs that fit, in order of admission; return their grants.

        If a job does not fit, jobs with the same demand are not tried until resources are freed.
        """
        if self._freed:
            self._full.clear()
            candidates = set(self._lanes)
        else:
            candidates = self._fresh - self._full
        self._fresh.clear()
        heads = [(*self._lanes[key][0], key) for key in candidates]
        heapify(heads)
        started: dict[JobId, Grant | None] = {}
        while heads:
            order, job, key = heappop(heads)
            lane = self._lanes[key]
            if self._unplaced.get(job) == order:
                grant = place(view, self._demands[key])
                if grant is None:
                    self._full.add(key)
                    continue
                started[job] = grant
                del self._unplaced[job]
            heappop(lane)
            if lane:
                heappush(heads, (*lane[0], key))
            else:
                del self._lanes[key]
        return started


_TENANT_NOUNS: Final = {"": "trace", **TENANT_NOUNS}


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
