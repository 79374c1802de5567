"""Kueue as sites run it: jobs wait in queues until quota can be reserved for them, perhaps lent by
other queues, and then for room on nodes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from allocators.placement import Placer, could_ever_hold, placement_param
from allocators.reasons import joined, room
from allocators.sites.kueue import sites
from allocators.sites.kueue.files import read
from allocators.sites.kueue.objects import Config
from allocators.sites.kueue.queueing import FlavorChoice, QueuedWorkload, QueueState
from allocators.sites.kueue.scheduler import Scheduler
from allocators.tenants import COLUMN_WORDS, COLUMNS
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

_SHOWN: Final = 5
"""Lines of a configuration that remarks quote."""
_NOT_PLACED: Final = "admitted_without_place"


@dataclass
class Kueue(Allocator):
    """Reserve quota for whole jobs queue by queue, let queues of a cohort lend to one another, and
    place what is admitted.

    Notes
    -----
    The rules of Kueue's scheduler (2026) for quotas with borrowing and lending limits in a tree of
    cohorts, flavors and their fungibility, queueing strategies, preemption within a queue and
    within a cohort, and fair sharing by the dominant resource share.

    A workload is a gang. Admission reserves quota; then nodes must have room. A job that is
    admitted where no node has room waits and **holds its quota** meanwhile, as with Kueue itself
    without topology-aware scheduling; figures of a run count such jobs.

    A preempted workload keeps its place by submission: only workloads that were evicted because
    their pods did not become ready queue by the time of the eviction, and that is not simulated. A
    job that lost its nodes keeps its quota and waits for others.

    A job that others were displaced for stays the head of its queue until it is admitted (the
    sticky workload of Kueue's BestEffortFIFO), else others would take what was freed for it.

    Ours: the scheduler reacts to every event at once, and preempted jobs are gone at once. A
    workload is displaced at most once at an instant. A flavor that could not hold a job even on
    empty nodes is passed over. Resources that a queue does not cover are not counted, except that a
    job with GPUs is refused by a queue without any. What a trace has as one replica is a pod. Jobs
    that could never be admitted are refused, instead of waiting for ever. Not simulated:
    topology-aware scheduling, MultiKueue, partial admission, elastic slices, admission checks,
    admission fair sharing by usage, and timeouts of pods that are not ready.
    """

    config: str = param(
        "",
        title="Configuration",
        file="kueue.yaml",
        help=(
            "YAML of ClusterQueues, Cohorts, LocalQueues and ResourceFlavors; empty ="
            " equal queues per tenant."
        ),
    )
    tenant: str = param(
        "auto",
        title="What names the queue of a job",
        choices=("auto", *COLUMNS),
        labels={
            "auto": "Whatever fits best",
            **{column: word.capitalize() for column, word in COLUMN_WORDS.items()},
        },
        help=(
            "Column with names of local queues, namespaces or cluster queues. auto: the"
            " column with most of them; without configuration the first with several"
            " names."
        ),
    )
    fair_sharing: str = param(
        "as_configured",
        title="Fair sharing",
        choices=("as_configured", "on", "off"),
        labels={"as_configured": "As configured", "on": "On", "off": "Off"},
        help=(
            "Whether the queue that borrows least goes first and the one that borrows"
            " most is preempted first. as_configured: the YAML's Configuration, else"
            " off."
        ),
    )
    requeue_s: float = param(
        0.0,
        title="Delay of another try",
        unit="s",
        low=0,
        high=3600,
        help=(
            "Delay from a release of quota to the next try of jobs that did not fit; 0"
            " = none. Kueue collects releases for 1 s."
        ),
    )
    placement: str = placement_param()
    _site: Config | None = field(init=False, repr=False)
    _place: Placer = field(init=False, repr=False)
    _run: _Run | None = field(init=False, repr=False, default=None)

    card = Card(
        title="Kueue",
        brief="quotas that queues lend to one another",
        what=(
            "Each queue owns a quota, borrows unused quota of its cohort, and may take"
            " its own back."
        ),
        cost="Jobs that run on borrowed quota are stopped when its owner wants it.",
        limits="Uses no run times, and reserves quota without looking at nodes.",
        source="Kueue (kubernetes-sigs/kueue), version of 2026: documentation and scheduler",
        certainty=(
            "exact for the rules named, without topology-aware scheduling and admission checks"
        ),
        goals=("fairness", "baseline"),
        how=(
            "Jobs wait in the queue of their tenant, by priority and then by submission.",
            "The first of each queue gets quota if its queue has some left or can borrow it.",
            "If not, it may preempt jobs of lower priority, or jobs that run on borrowed quota.",
            "A queue whose first job does not fit tries the next ones, unless it is strict.",
            "A job with quota starts as soon as nodes have room for it.",
        ),
    )

    def __post_init__(self) -> None:
        """Read the configuration."""
        self._site = read(self.config) if self.config.strip() else None
        self._place = Placer(self.placement)

    def remarks(self) -> tuple[str, ...]:
        """Say what of the configuration is not simulated, and what was assumed."""
        ignored = self._site.ignored if self._site is not None else ()
        said = []
        if ignored:
            more = len(ignored) - _SHOWN
            rest = f"; and {more:,} more" if more > 0 else ""
            said.append(
                f"Of the configuration {len(ignored):,}"
                f" {'entry is' if len(ignored) == 1 else 'entries are'} not simulated:"
                f" {'; '.join(ignored[:_SHOWN])}{rest}."
            )
        return (*said, *(self._run.remarks() if self._run is not None else ()))

    def allocate(self, view: View, /) -> Plan:
        """Take in what happened, reserve quota, and start what has room."""
        run = self._run
        if run is None:
            run = self._run = self._begin(view)
        run.begin(view)
        refused = run.follow(view)
        changes = run.decide(view, self._place)
        notes = run.notes()
        if not (changes or refused or notes) and run.wake_s == inf:
            return EMPTY
        return Plan(changes, refuse=refused, wake_at_s=run.wake_s, notes=notes)

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """State what its queue uses and who is before it, or that only nodes are missing."""
        return self._run.explain(decided, job) if self._run is not None else None

    def _begin(self, view: View) -> _Run:
        if self._site is None:
            site, tenants = sites.proposed(view, self.tenant)
        else:
            site, tenants = self._site, sites.tenants_of(self._site, view, self.tenant)
        scheduler = Scheduler(site, fair=self._is_fair(site), requeue_s=self.requeue_s)
        return _Run(view, site, tenants, scheduler, proposed=self._site is None)

    def _is_fair(self, site: Config) -> bool:
        if self.fair_sharing == "as_configured":
            return site.fair_sharing
        return self.fair_sharing == "on"


class _Run:
    """What a policy knows of one run.

    Parameters
    ----------
    view : View
        The first instant; what runs already is booked.
    site : Config
        The objects.
    tenants : Tenants
        Which queue a job is in.
    scheduler : Scheduler
        The queues of the objects.
    proposed : bool
        Whether the objects are a proposal.
    """

    def __init__(
        self,
        view: View,
        site: Config,
        tenants: sites.Tenants,
        scheduler: Scheduler,
        *,
        proposed: bool,
    ) -> None:
        self._site, self._tenants = site, tenants
        self._stopped = sites.stopped(site)
        self._scheduler = scheduler
        classes = {one.name: float(one.value) for one in site.classes}
        self._classes = {
            code: classes[name] for code, name in enumerate(view.names("qos")) if name in classes
        }
        scheduler.begin(view.now_s)
        self._pools = {flavor.name: sites.pools_of(flavor, view) for flavor in site.flavors}
        self._jobs: dict[JobId, QueuedWorkload] = {}
        self._narrow: dict[tuple[int, tuple[str, ...]], Demand] = {}
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
        self._noted = 0
        self._ever_waited: set[JobId] = set()
        self._demands: dict[int, Demand] = {}
        self._said = self._assumptions(view, proposed=proposed)
        for job in view.grants:
            self._adopt(view, job)

    # -- what is said
    # ----------------------------------------------------------------------------------------------

    def _assumptions(self, view: View, *, proposed: bool) -> list[str]:
        column, site = self._tenants.column, self._site
        if proposed:
            named = len([name for name in self._tenants.queues if name != sites.UNNAMED])
            if not named:
                return ["Without a configuration, and no tenants in the trace, there is one queue."]
            return [
                "Without a configuration there is an equal cluster queue for each"
                f" {_WHOSE[column]} of the trace, {named:,} in all, in one cohort; each may"
                " reclaim its own quota, and jobs without a name have none of their own."
            ]
        said = [f"Jobs find their queue by their {_WHOSE[column]}."]
        blind = [one.name for one in site.flavors if self._pools[one.name] is None]
        if blind and len(view.room.pools) > 1:
            said.append(
                f"Nothing in flavor {', '.join(blind)} names a GPU type or partition of this"
                " cluster: taken as all nodes. A node label with the name of the type says which."
            )
        closed = [queue.name for queue in site.queues if not queue.selects]
        if closed:
            said.append(
                f"Cluster queue {', '.join(closed[:_SHOWN])} has no namespaceSelector, so Kueue"
                " would admit nobody to it; here it is open."
            )
        return said + sites.over_the_cluster(site, self._pools, view)

    def remarks(self) -> tuple[str, ...]:
        """Return sentences on what was assumed and what happened."""
        said = list(self._said)
        said += [f"{_jobs(count)} refused: {why}." for why, count in self._refused.items()]
        said += [
            f"{_jobs(count)} asked for {what}, which does not cover it: not counted there."
            " Kueue itself admits such jobs only where it is told to ignore the resource."
            for what, count in self._uncounted.items()
        ]
        if self._ever_waited:
            said.append(
                f"{_jobs(len(self._ever_waited))} admitted without a place: quota was reserved, and"
                " held, while no nodes had room."
            )
        return tuple(said)

    def notes(self) -> dict[str, float]:
        """Return how many jobs hold quota without a place, when that has changed."""
        count = len(self._unplaced)
        if count == self._noted:
            return {}
        self._noted = count
        return {_NOT_PLACED: float(count)}

    def explain(self, decided: Decided, job: JobId) -> Reason | None:
        """State why a job waits."""
        one = self._jobs.get(job)
        if one is None:
            return None
        queue = one.queue
        if one.order:
            return joined(
                "quota of cluster queue {queue:text} is reserved for it, but its pods have no room",
                room(decided, job),
                queue=queue.config.name,
            )
        node, cells = queue.node, self._scheduler.tree.cells
        mine = [at for cell, at in cells.items() if sites.is_gpu(cell.resource)]
        ahead = len(queue.ahead(one))
        place = "{ahead:jobs_were} ahead" if ahead else "it was the first"
        return joined(
            f"{place} in cluster queue {{queue:text}}, which used {{used:gpus}} and owns"
            " {own:gpus}, and no more quota could be had",
            room(decided, job),
            **({"ahead": ahead} if ahead else {}),
            queue=queue.config.name,
            used=sum(node.used[at] for at in mine),
            own=sum(node.nominal[at] for at in mine),
        )

    # -- what happened
    # ----------------------------------------------------------------------------------------------

    @property
    def wake_s(self) -> float:
        """When there is something to decide next, whatever happens."""
        return self._scheduler.wake_s

    def begin(self, view: View) -> None:
        """Find out which changes of the last plan did not take effect: a decision that takes time
        lands without those that became void.
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
                self._unplace(view, one)
            else:  # it was to be stopped or moved, and runs on
                self._forget_place(job)
                if not one.order:
                    self._scheduler.book(one, *self._running_on(view, one, held))
        self._last = {}

    def follow(self, view: View) -> frozenset[JobId]:
        """Take in what happened; return the jobs that can never be admitted."""
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
                self._unplace(view, one)
        for job in delta.resized:
            self._resize(view, job, refused)
        for job in delta.arrived:
            if job not in self._jobs:
                self._submit(view, job, refused)
        return frozenset(refused)

    def _submit(self, view: View, job: JobId, refused: list[JobId]) -> None:
        one = self._workload(view, job)
        why = one if isinstance(one, str) else self._obstacle(one)
        if why:
            self._refused[why] += 1
            refused.append(job)
            return
        assert isinstance(one, QueuedWorkload)
        self._jobs[job] = one
        self._scheduler.submit(one)

    def _resize(self, view: View, job: JobId, refused: list[JobId]) -> None:
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
        """Book the quota of a job that runs already."""
        one = self._workload(view, job)
        if isinstance(one, QueuedWorkload):
            self._jobs[job] = one
            self._scheduler.book(one, *self._running_on(view, one, view.grants[job]))

    def _running_on(
        self, view: View, one: QueuedWorkload, grant: Grant
    ) -> tuple[list[tuple[int, int]], list[str]]:
        """Return the usage and the flavors of a job on the nodes that it holds."""
        nodes = set(grant.gangs[0].workers.nodes)
        usage: list[tuple[int, int]] = []
        chosen: list[str] = []
        for choices, wanted in one.queue.wanted(one.request):
            on = next((it for it in choices if nodes <= self._nodes(view, it)), choices[0])
            usage += [(on.cells[name], amount) for name, amount in wanted]
            chosen.append(on.name)
        return usage, chosen

    def _nodes(self, view: View, choice: FlavorChoice) -> set[int]:
        here = self._pools[choice.name]
        return {
            node
            for at, pool in enumerate(view.room.pools)
            if here is None or at in here
            for node in pool.nodes
        }

    # -- what a job is to Kueue
    # ----------------------------------------------------------------------------------------------

    def _workload(self, view: View, job: JobId) -> QueuedWorkload | str:
        """Return the workload of a job, or why there is none."""
        tenants = self._tenants
        code = int(view.one(tenants.column, job))
        name = tenants.queues[code]
        if name == sites.HELD:
            return "their local queue is stopped (stopPolicy)"
        if not name:
            who = view.names(tenants.column)[code]
            if not who:
                return f"they name no {_WHOSE[tenants.column]}, so no queue"
            return f"no local or cluster queue of the configuration is called {who[:40]!r}"
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
            self._flavors(view, demand),
            bool(view.one("preemptible", job)),
        )

    def _priority(self, view: View, job: JobId) -> float:
        """Return the value of the class that a job names, else what the trace says."""
        own = view.one("priority", job)
        return self._classes.get(int(view.one("qos", job)), own) if self._classes else own

    def _request(self, queue: QueueState, demand: Demand) -> tuple[tuple[str, int], ...] | str:
        """Return what a gang asks of a queue, or why it cannot be in it."""
        known = self._requests.get((queue, demand.key))
        if known is None:
            covered = sorted(queue.covered)
            gpu = next((name for name in covered if sites.is_gpu(name)), sites.GPU)
            asked = {name: sites.amount(name, demand) for name in (gpu, *sites.OTHERS)}
            missing = tuple(
                name for name, amount in asked.items() if amount and name not in covered
            )
            request = tuple((name, asked[name]) for name in covered if asked.get(name))
            known = self._requests[queue, demand.key] = request, missing
        request, missing = known
        for name in missing if not self._proposed else ():
            if sites.is_gpu(name):
                return f"they ask for GPUs, which cluster queue {queue.config.name} does not cover"
            if name != "pods":
                self._uncounted[f"{name} in cluster queue {queue.config.name}"] += 1
        return request

    def _obstacle(self, one: QueuedWorkload) -> str:
        """Return why a queue could never admit a workload; "" = it could."""
        queue = one.queue
        if queue.config.name in self._stopped:
            return f"cluster queue {queue.config.name} is stopped (stopPolicy)"
        if not self._scheduler.can_ever(one):
            return (
                f"they ask for more than cluster queue {queue.config.name} could ever get, with all"
                " that it may borrow, of flavors whose nodes could hold them"
            )
        return ""

    def _flavors(self, view: View, demand: Demand) -> frozenset[str]:
        """Return the flavors whose nodes could hold a gang."""
        known = self._fitting.get(demand.key)
        if known is None:
            known = self._fitting[demand.key] = frozenset(
                name
                for name in self._pools
                if could_ever_hold(view, self._restricted(demand, (name,)), mixed=False)
            )
        return known

    def _restricted(self, demand: Demand, chosen: tuple[str, ...]) -> Demand:
        """Return a demand on the nodes of the flavors that were chosen for it."""
        known = self._narrow.get((demand.key, chosen))
        if known is None:
            pools = demand.pools
            for name in chosen:
                here = self._pools[name]
                if here is not None:
                    pools = tuple(at for at in pools if at in here)
            known = demand if pools == demand.pools else replace(demand, pools=pools)
            self._narrow[demand.key, chosen] = known
        return known

    # -- what is decided
    # ----------------------------------------------------------------------------------------------

    def decide(self, view: View, place: Placer) -> dict[JobId, Grant | None]:
        """Reserve quota and start what has room."""
        changes: dict[JobId, Grant | None] = {}
        for one, admitted in self._scheduler.run():
            if admitted:
                self._unplace(view, one)
            elif one.id in self._unplaced:
                self._forget_place(one.id)
            elif one.id not in changes:
                view.room.give(view.grants[one.id])
                changes[one.id] = None
                self._freed = True
        changes.update(self._start(view, place))
        self._ever_waited.update(self._unplaced)
        self._last = changes
        return changes

    def _unplace(self, view: View, one: QueuedWorkload) -> None:
        """Let a workload with quota wait for nodes."""
        demand = self._restricted(view.demand(one.id), one.chosen)
        self._unplaced[one.id] = one.order
        self._demands[demand.key] = demand
        heappush(self._lanes.setdefault(demand.key, []), (one.order, one.id))
        self._fresh.add(demand.key)

    def _forget_place(self, job: JobId) -> None:
        self._unplaced.pop(job, None)

    def _start(self, view: View, place: Placer) -> dict[JobId, Grant | None]:
        """Start what has quota and room, in order of admission; where one has no room, no other
        that asks for the same has.
        """
        if self._freed:
            self._full.clear()
            hopeful = set(self._lanes)
        else:
            hopeful = self._fresh - self._full
        self._fresh.clear()
        heads = [(*self._lanes[key][0], key) for key in hopeful]
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


_WHOSE: Final = {"": "trace", **COLUMN_WORDS}


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
