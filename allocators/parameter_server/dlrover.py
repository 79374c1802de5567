"""DLRover: sizes jobs with parameter servers from measurements, around an inner policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from allocators.inner_policies import InnerGrants, InnerPolicy, MakePolicy, SubView
from allocators.parameter_server.replicas import Rebuild, fit_together
from allocators.parameter_server.scaling_rules import (
    HOT_RECORDS,
    MAX_CORES,
    MAX_GB,
    PRESETS,
    EarlierSpeed,
    History,
    JobResources,
    Measurement,
    RulePreset,
    Watched,
    after_oom,
    config_of,
    demand_of,
    estimated_resources,
    final_gb,
    first_servers,
    halve_resources,
    hot_servers,
    more_workers,
    servers_within,
    workers_within,
)
from allocators.placement import Placer, could_ever_hold, placement_param
from allocators.reasons import prefix_reason
from sim.contract import (
    EMPTY,
    Allocator,
    Cadence,
    Card,
    Decided,
    Demand,
    Grant,
    JobId,
    Needs,
    ParameterError,
    Plan,
    Reason,
    Spec,
    Telemetry,
    View,
    instant,
    param,
    remarks_of,
)

WORKER_INITIAL, PS_INITIAL, PS_RUNNING = range(3)
_SERVERS_EVERY_S = 3600.0


@dataclass(slots=True)
class JobState:
    """Request, present or planned size, and measurements of a job.

    ``due_s`` is the time of its next check. No slow replica moves until ``stays_s``.
    """

    request: Demand
    config: JobResources
    demand: Demand
    kind: int
    due_s: float = inf
    stage: int = WORKER_INITIAL
    plans: int = 0
    planned_s: float = -inf
    servers_s: float = -inf
    before: EarlierSpeed | None = None
    seen: list[Measurement] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    watched: Watched = field(default_factory=lambda: Watched([], []))
    suspects: frozenset[int] = frozenset()
    avoid: frozenset[int] = frozenset()
    stays_s: float = -inf

    def reset(self) -> None:
        """Reset the measurements because the job starts or moves."""
        self.planned_s = -inf
        self.seen.clear()
        self.memory.clear()
        self.suspects, self.stays_s = frozenset(), -inf

    def record(self, speed: float, left: float, telemetry: Telemetry) -> None:
        """Record speed, resource usage and server memory of the running job, and its work left."""
        cpus, gb = telemetry.cpus, telemetry.mem_gb
        measurement = Measurement(speed, cpus["worker"], gb["worker"], cpus["server"], gb["server"])
        self.seen.append(measurement)
        del self.seen[:-HOT_RECORDS]
        self.watched.seen.append(measurement)
        self.watched.servers.append(self.config.servers)
        self.memory[1:] = [(left, measurement.server_gb * self.config.servers)]

    def change_resources(self, config: JobResources, demand: Demand, now_s: float) -> None:
        """Record new resources and, if workers change, the speed before; clear measurements."""
        if config.workers != self.config.workers and self.seen:
            self.before = EarlierSpeed(self.config.workers, self.seen[-1].speed)
        self.config, self.demand, self.planned_s = config, demand, now_s
        self.seen.clear()


class Stages(NamedTuple):
    """The stage machine that plans the size of a job.

    Parameters
    ----------
    preset : RulePreset
        Thresholds.
    brain : bool
        Whether the rules with a history are used.
    """

    preset: RulePreset
    brain: bool

    def plan_size(
        self, case: JobState, now_s: float, left: float, limit: tuple[float, float]
    ) -> JobResources:
        """Return the planned size of a checked job: servers at first, then hot servers or workers.

        `left` is its remaining work, `limit` its limit of cores and GB without a history.
        """
        if case.stage == PS_INITIAL:
            return self._servers(case, left, limit[0])
        if self._hot_due(case, now_s):
            hot = hot_servers(case.config, case.seen, with_history=self.brain)
            if hot != case.config:
                return hot
        if not self.brain:
            return workers_within(case.config, case.seen, case.before, limit)
        return more_workers(
            case.config, case.seen, case.before, case.plans, self._alone_s(case, left), self.preset
        )

    def advance(self, case: JobState, now_s: float, *, servers_move: bool) -> None:
        """Record that a plan was carried out and move to the next stage, if there is one."""
        case.planned_s = now_s
        if case.stage == PS_INITIAL or servers_move:
            case.servers_s = now_s
        else:
            case.plans += 1
        case.stage = min(case.stage + 1, PS_RUNNING)

    def _hot_due(self, case: JobState, now_s: float) -> bool:
        """Return True in the last stage, an hour after the last plan for servers."""
        return case.stage == PS_RUNNING and now_s >= instant(case.servers_s + _SERVERS_EVERY_S)

    def _servers(self, case: JobState, left: float, limit_cores: float) -> JobResources:
        """Return the first plan for servers, by history or within the limit of cores."""
        end_gb = final_gb(case.memory[0], case.memory[-1])
        if not self.brain:
            return servers_within(case.config, case.seen, limit_cores, end_gb)
        return first_servers(case.config, case.seen, self._alone_s(case, left), end_gb, self.preset)

    @staticmethod
    def _alone_s(case: JobState, left: float) -> float:
        """Return the seconds that a single worker would still need."""
        return left / (case.seen[-1].speed / case.config.workers)


def slow_nodes(grant: Grant, telemetry: Telemetry, below: float) -> frozenset[int]:
    """Return the nodes of a grant with a replica slower than share `below` of healthy speed."""
    workers, servers = grant.gangs[0]
    slow: set[int] = set()
    for part, role in ((workers, "worker"), (servers, "server")):
        if part is not None:
            nodes = [
                node
                for node, count in zip(part.nodes, part.count, strict=True)
                for _ in range(count)
            ]
            slow.update(
                node
                for node, speed in zip(nodes, telemetry.speed[role], strict=True)
                if speed < below
            )
    return frozenset(slow)


_FIRST_LOOK_S = 90.0
_AGAIN_S = 60.0  # time between the two checks of a replica that seems slow
_STAYS_S = 3600.0  # time between two attempts to move a slow replica; our choice
_PATIENCE_S = 900.0  # wait after which the request of a job is halved


@dataclass
class DLRover(Allocator):
    """Size jobs with parameter servers from measurements of them and of similar jobs.

    Notes
    -----
    The inner policy decides which jobs run, where, and in which order. Only jobs with CPU workers
    and parameter servers are resized; their requests are ignored. A job begins (CREATE) with one
    worker and as many servers as similar jobs used; the first of its kind gets 4 servers of 12
    cores and 16 GB. 90 s after its start the first plan for workers follows (WORKER_INITIAL), then
    one for servers (PS_INITIAL), then plans for workers at least ``plan_s`` apart, and for servers
    that lack cores or memory at least an hour apart (PS_RUNNING). A job that runs out of memory
    restarts with more; a job that waits for 15 minutes requests half. A replica that is slow at two
    checks moves to another node. Rules and thresholds are those of the code [1]_.

    Our reading: replicas of a role are equal, so the rules for uneven servers, and for the first
    worker alone after an OOM, never apply; new workers get another size only if they are the
    majority, and then all do. Cores are whole. The first plan for servers divides the memory at the
    end of the job among them, as the first version of the algorithm did, and never has fewer
    servers than that takes. If not all workers of a plan fit, a job gets those that do; servers
    must all fit. A size that can never fit is replaced by the request. A slow replica without
    another node stays for at least an hour.

    Observed: speeds are measured without noise, so nearly every further worker counts as a gain,
    and jobs grow to 60 workers unless servers are full or the job is short. They run faster but
    wait longer for servers, so the share of cores in use rises less than reported.

    References
    ----------
    .. [1] Q. Wang et al., "DLRover-RM", PVLDB 17, 2024, arXiv 2304.01468;
       rules as in the code (intelligent-machine-learning/dlrover).
    """

    inner: Spec = param(  # noqa: RUF009
        Spec("fifo"),
        title="Queue policy",
        help="Decides which jobs run; must not resize jobs.",
    )
    brain: bool = param(
        True,
        title="Learn from similar jobs",
        help="Whether plans use the history of similar jobs, too.",
    )
    preset: str = param(
        "code",
        title="Scaling thresholds",
        choices=tuple(PRESETS),
        labels={"code": "Source-code defaults", "manifest": "Shipped manifest"},
        help="When workers and servers are added or removed: as in DLRover's code or manifest.",
    )
    similar: str = param(
        "name",
        title="Column of similar jobs",
        choices=("name", "user", "model"),
        labels={"name": "Name", "user": "User", "model": "Model"},
        help="Column with equal values for similar jobs.",
    )
    first_sizes: str = param(
        "own",
        title="Initial sizes",
        choices=("own", "estimate"),
        labels={"own": "Measured use", "estimate": "Estimates"},
        help="Initial sizes: measured use of similar jobs, or the run's estimates.",
        was="history",
        were={"own": "own", "estimate": "belief"},
    )
    history_days: float = param(
        7.0,
        title="History kept",
        unit="days",
        low=0.01,
        high=3650,
        help="Time until a finished job is forgotten.",
    )
    limit_cores: float = param(
        0.0,
        title="Core limit per job",
        unit="cores",
        low=0,
        high=1e6,
        help="Most cores of a job without 'Learn from similar jobs'; 0 = its request.",
    )
    limit_gb: float = param(
        0.0,
        title="Memory limit per job",
        unit="GB",
        low=0,
        high=1e7,
        help="Most memory of a job without 'Learn from similar jobs'; 0 = its request.",
    )
    resize: bool = param(
        True,
        title="Resize jobs",
        help="Whether jobs are resized, not only after running out of memory.",
    )
    sharding: bool = param(
        True,
        title="Data in shards",
        help="Whether data comes in shards, so slow or lost replicas delay no others.",
    )
    slow: float = param(
        0.8,
        title="Threshold of slow replicas",
        low=0,
        high=1,
        help="Replicas below this share of healthy speed at two checks move; 0 = never.",
    )
    migration: str = param(
        "seamless",
        title="When servers move",
        choices=("seamless", "stop_and_go"),
        labels={"seamless": "Seamless", "stop_and_go": "Stop and go"},
        help="Seamless: servers serve until the new ones are ready. Stop and go: the job stops.",
    )
    look_s: float = param(
        300.0,
        title="Time between checks",
        unit="s",
        low=1,
        high=1e6,
        help="Time between checks of a job; DLRover: 30 s, slower to simulate.",
    )
    plan_s: float = param(
        300.0,
        title="Time between plans",
        unit="s",
        low=1,
        high=1e6,
        help="Least time between plans for a job.",
    )
    placement: str = placement_param()
    _inside: InnerPolicy | None = field(init=False, repr=False, default=None)
    _rebuild: Rebuild = field(init=False, repr=False)
    _history: History = field(init=False, repr=False)
    _stages: Stages = field(init=False, repr=False)
    _cases: dict[JobId, JobState] = field(init=False, repr=False, default_factory=dict)
    _due: list[tuple[float, JobId]] = field(init=False, repr=False, default_factory=list)
    _shown: dict[JobId, tuple[Grant, Grant]] = field(init=False, repr=False, default_factory=dict)
    _begun: bool = field(init=False, repr=False, default=False)
    _staffed: int = field(init=False, repr=False, default=0)
    _differs: bool = field(init=False, repr=False, default=False)
    _nameless: int = field(init=False, repr=False, default=-1)

    card = Card(
        title="DLRover",
        brief="sizes jobs by measured need",
        what=(
            "Sizes the CPU workers and parameter servers of a job by measured need, and replaces"
            " slow ones."
        ),
        cost=("Jobs begin small and are changed while they run; users' requests are ignored."),
        limits=("Jobs on GPUs keep their size. Each job is sized alone, without regard to others."),
        source="Wang et al., DLRover-RM, PVLDB 17 (2024), arXiv 2304.01468; code of the project",
        certainty=(
            "our reading of its code: equal replicas per role, one cluster instead of a"
            " limit per job; thresholds as published"
        ),
        goals=("elastic",),
        how=(
            "A job begins small: one worker, and as many servers as similar jobs used.",
            "Soon after the start, measurements give plans for its workers and its servers.",
            "More plans follow every few minutes, for speed or if cores or memory are short.",
            "A job out of memory restarts with more; a slow replica moves to another node.",
            "Which jobs run, and where, is decided by the inner policy.",
        ),
    )

    def __post_init__(self) -> None:
        """Create empty tables."""
        self._rebuild = Rebuild(Placer(self.placement, "fastest", mix=False))
        self._history = History(self.history_days)
        self._stages = Stages(PRESETS[self.preset], self.brain)

    def assemble(self, make: MakePolicy) -> None:
        """Build the inner policy.

        Raises
        ------
        ParameterError
            If it resizes jobs itself, or cannot be built.
        """
        allocator = make(self.inner)
        if "scaling" in allocator.needs.requires or "telemetry" in allocator.needs.reads:
            raise ParameterError(
                f"dlrover: the inner policy, {self.inner}, resizes jobs itself. Choose one that"
                " does not, such as fifo."
            )
        self._inside = InnerPolicy(allocator)

    @property
    def cadence(self) -> Cadence:
        """Return the cadence of the inner policy; checks of jobs are wake-ups."""
        return self._inner_policy().cadence

    @property
    def needs(self) -> Needs:
        """Return the needs of the inner policy, plus telemetry, remaining work and servers."""
        reads = {"telemetry", "remaining_work"}
        reads |= {"resources"} if self.first_sizes == "estimate" else set()
        return self._inner_policy().allocator.needs | Needs(
            frozenset(reads), frozenset({"servers"})
        )

    def allocate(self, view: View, /) -> Plan:
        """Check the jobs that are due, then call the inner policy and return the plan."""
        inside = self._inner_policy()
        if not self._begun:
            self._begin(view)
        self._update_states(view)
        resized = self._check_due_jobs(view)
        inside.notify(view.delta)
        plan = (
            inside.decide(self._inner_view(view, inside, resized))
            if inside.is_due(view.now_s, active=len(view.active) > 0)
            else EMPTY
        )
        changes: dict[JobId, Grant | None] = {
            job: grant for job, grant in resized.items() if job not in plan.changes
        }
        for job, grant in plan.changes.items():
            changes[job] = self._apply_sizing(view, job, grant)
        for job in plan.refuse:
            self._cases.pop(job, None)
        wake_at_s = min(inside.wake_at_s, self._next_s())
        if not (changes or plan.refuse or plan.notes or wake_at_s < inf):
            return EMPTY
        seamless = (
            frozenset(resized).difference(plan.changes)
            if self.migration == "seamless"
            else frozenset[JobId]()
        )
        return Plan(changes, plan.refuse, wake_at_s, plan.notes, plan.seamless | seamless)

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """Explain a wait by the planned size and the inner policy; None if that has no reason."""
        cases, request = self._cases, decided.demand
        resized = decided.made_of(lambda one: cases[one].demand if one in cases else request(one))
        case, reason = cases.get(job), self._inner_policy().allocator.explain(resized, job)
        if reason is None or case is None:
            return reason
        return prefix_reason(
            "it was to begin with {workers:number} workers of {worker_cores:number} cores and"
            " {servers:number} parameter servers of {server_cores:number}",
            reason,
            workers=case.config.workers,
            worker_cores=case.config.worker_cpus,
            servers=case.config.servers,
            server_cores=case.config.server_cpus,
        )

    def remarks(self) -> tuple[str, ...]:
        """Return the notes of the inner policy, preceded by one if no job was changed."""
        inner_notes = remarks_of(self._inner_policy().allocator)
        if not self._begun or self._differs:
            return inner_notes
        why = "it sizes jobs of CPU workers and parameter servers, and no job here is one"
        if self._staffed:
            why = (
                f"jobs with workers and parameter servers ({self._staffed:,}) ran as they were"
                " asked for"
            )
        return (
            f"DLRover changed nothing: {why}; the schedule is that of {self.inner}.",
            *inner_notes,
        )

    def _inner_policy(self) -> InnerPolicy:
        """Return the inner policy, or raise if it is not built."""
        if self._inside is None:
            raise ParameterError(
                "dlrover: the inner policy is not built yet. Build this one with allocators.make."
            )
        return self._inside

    # -- events
    # ----------------------------------------------------------------------------------------------

    def _begin(self, view: View) -> None:
        """Record the sized jobs that already run at the first call and schedule their checks."""
        self._begun = True
        names = view.names(self.similar)
        self._nameless = names.index("") if "" in names else -1
        for job, grant in view.grants.items():
            if _is_sized(view.demand(job)) and _is_cpu_gang_with_servers(grant):
                self._start_job(job, self._add_job(view, job, _config_held(grant)), view.now_s)

    def _update_states(self, view: View) -> None:
        """Update the states of sized jobs that arrived, ended or were evicted.

        Newly waiting jobs get a size and a time for halving it; finished jobs become history.
        """
        delta, now_s = view.delta, view.now_s
        for eviction in delta.evicted:
            case = self._cases.get(eviction.job)
            if case is not None and eviction.job not in delta.finished:
                if eviction.cause == "oom":
                    watched = bool(case.watched.seen)
                    self._set_demand(
                        view,
                        case,
                        after_oom(
                            case.config, eviction.role, config_of(case.request), watched=watched
                        ),
                    )
                self._schedule_halving(eviction.job, case, now_s)
        failed = {eviction.job for eviction in delta.evicted}
        for job in delta.finished:
            self._shown.pop(job, None)
            case = self._cases.pop(job, None)
            if case is not None and case.watched.seen and job not in failed:
                self._history.add(case.kind, case.watched.past(now_s))
        for job in delta.arrived:
            request = view.demand(job)
            if _is_sized(request):
                self._schedule_halving(job, self._add_job(view, job, None), now_s)

    def _add_job(self, view: View, job: JobId, config: JobResources | None) -> JobState:
        """Create and return the state of a new job with this or its initial size."""
        request = view.demand(job)
        code = int(view.one(self.similar, job))
        kind = (
            code if code != self._nameless else -1 - job
        )  # a job without an entry is a kind of its own
        self._staffed += 1
        case = self._cases[job] = JobState(request, config_of(request), request, kind)
        self._set_demand(view, case, config or self._initial_resources(view, job, case))
        return case

    def _initial_resources(self, view: View, job: JobId, case: JobState) -> JobResources:
        """Return a job's first resources: requested, estimated, by history, or parts of a limit."""
        requested = config_of(case.request)
        if not self.resize:
            return requested
        if self.brain and self.first_sizes == "estimate":
            first = estimated_resources(view.estimates.resources(job), requested.servers)
        elif self.brain:
            first = self._history.first(case.kind, view.now_s)
        else:
            cores, gb = self._limit(case)
            each = min(16.0, cores / 5), min(8.0, gb / 5)
            first = JobResources(1, *each, 1, *each)
        return first._replace(
            worker_gb=first.worker_gb if requested.worker_gb else 0.0,
            server_gb=first.server_gb if requested.server_gb else 0.0,
        )

    def _limit(self, case: JobState) -> tuple[float, float]:
        """Return the most cores and GB of a job without a history; by default its request."""
        requested = config_of(case.request)
        cores = (
            requested.workers * requested.worker_cpus + requested.servers * requested.server_cpus
        )
        gb = requested.workers * requested.worker_gb + requested.servers * requested.server_gb
        return self.limit_cores or cores, self.limit_gb or gb

    def _set_demand(self, view: View, case: JobState, config: JobResources) -> None:
        """Set the demand of a waiting job to a configuration, clipped to the nodes.

        If the cluster can never hold it, the user's request is used.
        """
        demand = self._rebuild.intern_demand(
            demand_of(case.request, self._clip_to_nodes(view, case, config))
        )
        possible = could_ever_hold(view, demand, mixed=False) and fit_together(view, demand)
        case.demand = demand if possible else self._rebuild.intern_demand(case.request)
        case.config = config_of(case.demand)

    @staticmethod
    def _clip_to_nodes(view: View, case: JobState, config: JobResources) -> JobResources:
        """Return resources per replica up to the largest node or usual maximum, or the request."""
        nodes = [
            view.cluster.nodes[node]
            for at in case.request.pools
            for node in view.room.pools[at].nodes
        ]
        cores, gb = (
            min(MAX_CORES, max(node.cpus for node in nodes)),
            min(MAX_GB, max(node.mem_gb for node in nodes)),
        )
        requested = config_of(case.request)
        return config._replace(
            worker_cpus=min(config.worker_cpus, max(cores, requested.worker_cpus)),
            worker_gb=min(config.worker_gb, max(gb, requested.worker_gb)),
            server_cpus=min(config.server_cpus, max(cores, requested.server_cpus)),
            server_gb=min(config.server_gb, max(gb, requested.server_gb)),
        )

    # -- checks of running jobs
    # ----------------------------------------------------------------------------------------------

    def _check_due_jobs(self, view: View) -> dict[JobId, Grant]:
        """Check the due jobs: halve waiting ones; return the new grants of resized ones."""
        due, now_s = self._due, view.now_s
        resized: dict[JobId, Grant] = {}
        while due and due[0][0] <= now_s:
            at_s, job = heappop(due)
            case = self._cases.get(job)
            if case is None or case.due_s != at_s:
                continue
            grant = view.grants.get(job)
            if grant is None:
                self._halve_request(view, job, case)
                continue
            self._schedule_check(job, case, now_s + self.look_s)
            if (
                not _is_cpu_gang_with_servers(grant)
                or grant.gangs[0].workers.nodes[0] == view.room.overflow
                or not view.one("preemptible", job)
            ):
                continue
            new_grant = self._check_job(view, job, case, grant)
            if new_grant is not None:
                resized[job] = self._record_resize(job, new_grant)
        return resized

    def _halve_request(self, view: View, job: JobId, case: JobState) -> None:
        """Halve the replicas' cores and memory of a job that waited too long; check it again."""
        less = halve_resources(case.config) if self.resize else case.config
        case.due_s = inf
        if less != case.config:
            self._set_demand(view, case, less)
            self._inner_policy().resize(job)
            self._schedule_check(job, case, view.now_s + _PATIENCE_S)

    def _check_job(self, view: View, job: JobId, case: JobState, held: Grant) -> Grant | None:
        """Check a running job for slow nodes or a due plan; return its new grant, or None."""
        speed = view.one("rate", job)
        if not speed:
            return None
        case.config = _config_held(held)
        telemetry = view.telemetry(job)
        slow = slow_nodes(held, telemetry, self.slow)
        confirmed, case.suspects = slow & case.suspects, slow
        if confirmed and view.now_s >= case.stays_s:
            avoid_before, case.avoid = case.avoid, case.avoid | confirmed
            new_grant = self._place_resized(view, job, case, held, case.config)
            if new_grant is None:  # later plans must not wait for a better node either
                case.avoid, case.stays_s = avoid_before, instant(view.now_s + _STAYS_S)
            return new_grant
        if slow and view.now_s >= case.stays_s:
            self._schedule_check(job, case, view.now_s + min(self.look_s, _AGAIN_S))
            return None
        left = view.one("remaining_work", job)
        case.record(speed, left, telemetry)
        if not self.resize or view.now_s < instant(case.planned_s + self.plan_s):
            return None
        was, planned = (
            case.config,
            self._clip_to_nodes(
                view, case, self._stages.plan_size(case, view.now_s, left, self._limit(case))
            ),
        )
        new_grant = self._place_resized(view, job, case, held, planned) if planned != was else None
        if new_grant is not None or planned == was:
            self._stages.advance(case, view.now_s, servers_move=planned[3:] != was[3:])
        return new_grant

    def _place_resized(
        self, view: View, job: JobId, case: JobState, held: Grant, config: JobResources
    ) -> Grant | None:
        """Reserve, record and return a running job's new grant; None if it does not fit now."""
        demand = self._rebuild.intern_demand(demand_of(case.request, config))
        servers = held.gangs[0].servers
        assert servers is not None
        serves_on = config[3:] == case.config[3:] and case.avoid.isdisjoint(servers.nodes)
        at_once = self.migration == "stop_and_go" or (held.tuning.sharding and serves_on)
        new_grant = self._rebuild(view, held, demand, case.avoid, beside=not at_once)
        if new_grant is not None:
            now = _config_held(new_grant)
            case.change_resources(
                now, self._rebuild.intern_demand(demand_of(case.request, now)), view.now_s
            )
            self._schedule_check(job, case, view.now_s + max(self.look_s, self.plan_s))
            self._inner_policy().resize(job)
        return new_grant

    # -- the inner policy
    # ----------------------------------------------------------------------------------------------

    def _inner_view(
        self, view: View, inside: InnerPolicy, resized: Mapping[JobId, Grant]
    ) -> SubView:
        """Return the view of the inner policy: resized jobs and its own grants."""
        cases, demand = self._cases, view.demand
        sub = SubView(view, inside.take_events())
        sub.demand = lambda job: cases[job].demand if job in cases else demand(job)
        sub.grants = InnerGrants(view.grants, resized, self._shown)
        return sub

    def _apply_sizing(self, view: View, job: JobId, grant: Grant | None) -> Grant | None:
        """Record the inner policy's decision for a job, schedule a check, return its real grant."""
        case = self._cases.get(job)
        if case is None:
            return grant
        if grant is None:
            self._schedule_halving(job, case, view.now_s)
            return None
        self._start_job(job, case, view.now_s)
        self._differs = self._differs or case.demand != case.request or self.sharding
        real = Grant(grant.gangs, grant.tuning._replace(sharding=self.sharding))
        self._shown[job] = real, grant
        return real

    def _record_resize(self, job: JobId, real: Grant) -> Grant:
        """Record the actual grant of a resized job and what the inner policy sees; return it."""
        self._differs = True
        tuning = self._shown[job][1].tuning if job in self._shown else real.tuning
        self._shown[job] = real, Grant(real.gangs, tuning)
        return real

    def _start_job(self, job: JobId, case: JobState, now_s: float) -> None:
        """Reset the measurements of a job that starts and schedule its first check."""
        case.reset()
        self._schedule_check(job, case, now_s + _FIRST_LOOK_S)

    def _schedule_halving(self, job: JobId, case: JobState, now_s: float) -> None:
        """Schedule the halving of a waiting job's request."""
        self._schedule_check(job, case, now_s + _PATIENCE_S)

    def _schedule_check(self, job: JobId, case: JobState, at_s: float) -> None:
        """Schedule the next check of a job."""
        case.due_s = instant(at_s)
        heappush(self._due, (case.due_s, job))

    def _next_s(self) -> float:
        """Return the time of the next check of any job, or inf; drop outdated checks."""
        due, cases = self._due, self._cases
        while due and (due[0][1] not in cases or cases[due[0][1]].due_s != due[0][0]):
            heappop(due)
        return due[0][0] if due else inf


def _is_sized(demand: Demand) -> bool:
    """Return True if a demand has servers and CPU workers, so that the policy sizes its job."""
    return demand.servers is not None and not demand.gpus


def _is_cpu_gang_with_servers(grant: Grant) -> bool:
    """Return True if a grant is one gang of CPU workers with servers."""
    workers, servers = grant.gangs[0]
    return len(grant.gangs) == 1 and servers is not None and not workers.gpus


def _config_held(grant: Grant) -> JobResources:
    """Return the number, cores and memory of the workers and servers of a grant."""
    workers, servers = grant.gangs[0]
    assert servers is not None, "a job that lost its servers has no configuration"
    return JobResources(
        sum(workers.count),
        workers.cpus,
        workers.mem_gb,
        sum(servers.count),
        servers.cpus,
        servers.mem_gb,
    )
