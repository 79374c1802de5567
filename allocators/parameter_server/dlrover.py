"""DLRover: sizes jobs with parameter servers before and while they run; another allocator decides
which of them run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from allocators.nesting import GrantsShown, Inside, Make, SubView
from allocators.parameter_server.replicas import Rebuild, fit_together
from allocators.parameter_server.scaling_rules import (
    HOT_RECORDS,
    MOST_CORES,
    MOST_GB,
    PRESETS,
    Before,
    History,
    JobResources,
    RulePreset,
    Seen,
    Watched,
    after_oom,
    at_end_gb,
    config_of,
    demand_of,
    estimated,
    first_servers,
    halved,
    hot_servers,
    more_workers,
    servers_within,
    workers_within,
)
from allocators.placement import Placer, could_ever_hold, placement_param
from allocators.reasons import joined
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
    """The request of a job, its present or planned size, and what was measured of it; ``due_s`` is
    the time of its next check.

    Until ``stays_s`` none of its replicas is moved for being slow, as there was no better place for
    them.
    """

    asked: Demand
    config: JobResources
    demand: Demand
    kind: int
    due_s: float = inf
    stage: int = WORKER_INITIAL
    plans: int = 0
    planned_s: float = -inf
    servers_s: float = -inf
    before: Before | None = None
    seen: list[Seen] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    watched: Watched = field(default_factory=lambda: Watched([], []))
    suspects: frozenset[int] = frozenset()
    avoid: frozenset[int] = frozenset()
    stays_s: float = -inf

    def begins(self) -> None:
        """Take note that the job starts or moves; what was seen in another place counts no more."""
        self.planned_s = -inf
        self.seen.clear()
        self.memory.clear()
        self.suspects, self.stays_s = frozenset(), -inf

    def look(self, speed: float, left: float, telemetry: Telemetry) -> None:
        """Remember what is seen of the running job: work per second, work left, and use of cores
        and memory.
        """
        cpus, gb = telemetry.cpus, telemetry.mem_gb
        found = Seen(speed, cpus["worker"], gb["worker"], cpus["server"], gb["server"])
        self.seen.append(found)
        del self.seen[:-HOT_RECORDS]
        self.watched.seen.append(found)
        self.watched.servers.append(self.config.servers)
        self.memory[1:] = [(left, found.server_gb * self.config.servers)]

    def becomes(self, config: JobResources, demand: Demand, now_s: float) -> None:
        """Take note that the running job is made of something else from now on."""
        if config.workers != self.config.workers and self.seen:
            self.before = Before(self.config.workers, self.seen[-1].speed)
        self.config, self.demand, self.planned_s = config, demand, now_s
        self.seen.clear()


class Stages(NamedTuple):
    """The stage machine.

    Parameters
    ----------
    preset : RulePreset
        Thresholds.
    brain : bool
        Whether the rules are those that go with a history.
    """

    preset: RulePreset
    brain: bool

    def planned(
        self, case: JobState, now_s: float, left: float, limit: tuple[float, float]
    ) -> JobResources:
        """Return the planned size of a job that was just checked: `left` is its remaining work,
        `limit` its cores and GB without a history.
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
        """Take note that what was planned is carried out."""
        case.planned_s = now_s
        if case.stage == PS_INITIAL or servers_move:
            case.servers_s = now_s
        else:
            case.plans += 1
        case.stage = min(case.stage + 1, PS_RUNNING)

    def _hot_due(self, case: JobState, now_s: float) -> bool:
        return case.stage == PS_RUNNING and now_s >= instant(case.servers_s + _SERVERS_EVERY_S)

    def _servers(self, case: JobState, left: float, limit_cores: float) -> JobResources:
        end_gb = at_end_gb(case.memory[0], case.memory[-1])
        if not self.brain:
            return servers_within(case.config, case.seen, limit_cores, end_gb)
        return first_servers(case.config, case.seen, self._alone_s(case, left), end_gb, self.preset)

    @staticmethod
    def _alone_s(case: JobState, left: float) -> float:
        return left / (case.seen[-1].speed / case.config.workers)


def slow_nodes(grant: Grant, telemetry: Telemetry, below: float) -> frozenset[int]:
    """Return the nodes of a grant on which a replica runs below this share of the speed of a
    healthy one.
    """
    workers, servers = grant.gangs[0]
    found: set[int] = set()
    for part, role in ((workers, "worker"), (servers, "server")):
        if part is not None:
            nodes = [
                node
                for node, count in zip(part.nodes, part.count, strict=True)
                for _ in range(count)
            ]
            found.update(
                node
                for node, speed in zip(nodes, telemetry.speed[role], strict=True)
                if speed < below
            )
    return frozenset(found)


_FIRST_LOOK_S = 90.0
_AGAIN_S = 60.0  # from the suspicion that a replica is slow to the second look
_STAYS_S = 3600.0  # from a move for which there was no room to the next attempt; our choice
_PATIENCE_S = 900.0  # waiting for longer, a job asks for less


@dataclass
class DLRover(Allocator):
    """Size jobs with parameter servers from measurements of them and of similar jobs; the inner
    allocator decides which of them run, where, and in which order.

    Notes
    -----
    Only jobs whose workers run on CPUs, and that have parameter servers, are touched. What their
    users ask for is set aside. A job begins (CREATE) with one worker and as many servers as its
    like have used, or, as the first of its kind, with 4 servers of 12 cores and 16 GB. 90 s after
    its start the first plan for workers follows (WORKER_INITIAL), then one for servers
    (PS_INITIAL), then further ones for workers at least ``plan_s`` apart, and for servers that are
    short of cores or memory at least an hour apart (PS_RUNNING). Who runs out of memory comes back
    with more; who waits for 15 minutes asks for half of it. A replica that is slow at two looks
    moves to another node. Rules and thresholds are those of the code [1]_.

    Our reading: replicas of a role are alike, so the rules for uneven servers, and for the first
    worker alone after an OOM, never apply, and the size of new workers goes for all where these are
    the majority, else for none. Cores are whole. The first plan for servers divides the memory that
    all will need at the end among them, as the first version of the algorithm did, and there are no
    fewer of them than that takes. Where a cluster has no room for all workers of a plan a job gets
    those that fit; for servers it waits. What cannot fit at all is left as the user asked for it. A
    slow replica for which there is no other node stays, for an hour at least.

    Found with it: speeds are seen without noise, so nearly every further worker counts as a gain,
    and jobs grow to the 60 that a job may have unless servers are full or it is short; they get
    faster by that, but wait for servers more and more, so the share of cores in use rises less than
    was reported.

    References
    ----------
    .. [1] Q. Wang et al., "DLRover-RM", PVLDB 17, 2024, arXiv 2304.01468;
       rules as in the code (intelligent-machine-learning/dlrover).
    """

    inner: Spec = param(  # noqa: RUF009
        Spec("fifo"),
        title="Policy inside",
        help="The policy that decides which jobs run; it must not resize jobs.",
    )
    brain: bool = param(
        True,
        title="Learn from similar jobs",
        help="Whether plans use the history of similar jobs, not only measurements of the job.",
    )
    preset: str = param(
        "code",
        title="Thresholds",
        choices=tuple(PRESETS),
        labels={"code": "Defaults of the code", "manifest": "Shipped manifest"},
        help="Thresholds: the defaults in the code, or those of its shipped manifest.",
    )
    similar: str = param(
        "name",
        title="Column of similar jobs",
        choices=("name", "user", "model"),
        labels={"name": "Name", "user": "User", "model": "Model"},
        help="Jobs are similar if they have the same entry in this column.",
    )
    first_sizes: str = param(
        "own",
        title="Initial sizes",
        choices=("own", "estimate"),
        labels={"own": "Measured use", "estimate": "Estimates"},
        help="Initial sizes: measured use of similar jobs (own), or the run's estimates.",
        was="history",
        were={"own": "own", "estimate": "belief"},
    )
    history_days: float = param(
        7.0,
        title="History kept",
        unit="days",
        low=0.01,
        high=3650,
        help="For how long a finished job is remembered.",
    )
    limit_cores: float = param(
        0.0,
        title="Core limit per job",
        unit="cores",
        low=0,
        high=1e6,
        help="With brain = no: total cores of a job; 0 = as many as it asks for.",
    )
    limit_gb: float = param(
        0.0,
        title="Memory limit per job",
        unit="GB",
        low=0,
        high=1e7,
        help="With brain = no: total memory of a job; 0 = as much as it asks for.",
    )
    resize: bool = param(
        True,
        title="Resize jobs",
        help="Whether jobs are resized; without it, only after they ran out of memory.",
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
        help="Replicas below this share of healthy speed at two checks are moved; 0 = never.",
    )
    migration: str = param(
        "seamless",
        title="When servers move",
        choices=("seamless", "stop_and_go"),
        labels={"seamless": "Seamless", "stop_and_go": "Stop and go"},
        help="seamless: servers serve until the new ones are ready. stop_and_go: the job stops.",
    )
    look_s: float = param(
        300.0,
        title="Time between checks",
        unit="s",
        low=1,
        high=1e6,
        help="Time between two checks of a job; 30 s in DLRover, which takes longer to simulate.",
    )
    plan_s: float = param(
        300.0,
        title="Time between plans",
        unit="s",
        low=1,
        high=1e6,
        help="Least time between two plans for a job.",
    )
    placement: str = placement_param()
    _inside: Inside | None = field(init=False, repr=False, default=None)
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
        brief="learns the sizes that jobs need",
        what=(
            "Gives jobs with parameter servers the workers, servers, cores and memory"
            " they measurably need, and replaces slow replicas."
        ),
        cost=("Jobs begin small and are changed while they run; users' requests are ignored."),
        limits=(
            "Only jobs whose workers run on CPUs. Considers one job at a time, without"
            " comparing jobs."
        ),
        source="Wang et al., DLRover-RM, PVLDB 17 (2024), arXiv 2304.01468; code of the project",
        certainty=(
            "our reading of its code: equal replicas per role, one cluster instead of a"
            " limit per job; thresholds as published"
        ),
        goals=("elastic",),
        how=(
            (
                "A job with parameter servers begins small: one worker, and as many servers as"
                " similar jobs used."
            ),
            (
                "Soon after its start, measurements give a plan for its workers and one for its"
                " servers."
            ),
            (
                "Further plans follow at intervals of minutes, if they promise speed or if"
                " cores or memory are short."
            ),
            (
                "A job that runs out of memory restarts with more; a slow replica moves to"
                " another node."
            ),
            "Which jobs run, and where, is decided by the inner policy.",
        ),
    )

    def __post_init__(self) -> None:
        """Prepare empty tables."""
        self._rebuild = Rebuild(Placer(self.placement, "fastest", mix=False))
        self._history = History(self.history_days)
        self._stages = Stages(PRESETS[self.preset], self.brain)

    def assemble(self, make: Make) -> None:
        """Build the allocator inside.

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
        self._inside = Inside(allocator)

    @property
    def cadence(self) -> Cadence:
        """That of the allocator inside; looks at jobs are wake-ups."""
        return self._built().cadence

    @property
    def needs(self) -> Needs:
        """What the allocator inside needs, measurements, and work left."""
        reads = {"telemetry", "remaining_work"}
        reads |= {"resources"} if self.first_sizes == "estimate" else set()
        return self._built().allocator.needs | Needs(frozenset(reads), frozenset({"servers"}))

    def allocate(self, view: View, /) -> Plan:
        """Check the jobs that are due, then let the inner allocator decide."""
        inside = self._built()
        if not self._begun:
            self._begin(view)
        self._take_in(view)
        resized = self._looks(view)
        inside.notify(view.delta)
        plan = (
            inside.decide(self._sub(view, inside, resized))
            if inside.is_due(view.now_s, active=len(view.active) > 0)
            else EMPTY
        )
        changes: dict[JobId, Grant | None] = {
            job: grant for job, grant in resized.items() if job not in plan.changes
        }
        for job, grant in plan.changes.items():
            changes[job] = self._carried_out(view, job, grant)
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
        """State what a job asks for now, and what the policy inside states."""
        cases, asked = self._cases, decided.demand
        made = decided.made_of(lambda one: cases[one].demand if one in cases else asked(one))
        case, said = cases.get(job), self._built().allocator.explain(made, job)
        if said is None or case is None:
            return said
        return joined(
            "it was to begin with {workers:number} workers of {worker_cores:number} cores and"
            " {servers:number} parameter servers of {server_cores:number}",
            said,
            workers=case.config.workers,
            worker_cores=case.config.worker_cpus,
            servers=case.config.servers,
            server_cores=case.config.server_cpus,
        )

    def remarks(self) -> tuple[str, ...]:
        """Return what the one inside has to say, after saying whether anything else happened than
        what it decided.
        """
        said = remarks_of(self._built().allocator)
        if not self._begun or self._differs:
            return said
        why = "it sizes jobs of CPU workers and parameter servers, and no job here is one"
        if self._staffed:
            why = (
                f"jobs with workers and parameter servers ({self._staffed:,}) ran as they were"
                " asked for"
            )
        return (f"dlrover changed nothing: {why}; the schedule is that of {self.inner}.", *said)

    def _built(self) -> Inside:
        if self._inside is None:
            raise ParameterError(
                "dlrover: the inner policy is not built yet. Build this one with allocators.make."
            )
        return self._inside

    # -- what happened
    # ----------------------------------------------------------------------------------------------

    def _begin(self, view: View) -> None:
        self._begun = True
        names = view.names(self.similar)
        self._nameless = names.index("") if "" in names else -1
        for job, grant in view.grants.items():
            if _sized(view.demand(job)) and _alike(grant):
                self._starts(job, self._admit(view, job, _config_held(grant)), view.now_s)

    def _take_in(self, view: View) -> None:
        delta, now_s = view.delta, view.now_s
        for eviction in delta.evicted:
            case = self._cases.get(eviction.job)
            if case is not None and eviction.job not in delta.finished:
                if eviction.cause == "oom":
                    watched = bool(case.watched.seen)
                    self._settle_on(
                        view,
                        case,
                        after_oom(
                            case.config, eviction.role, config_of(case.asked), watched=watched
                        ),
                    )
                self._waits(eviction.job, case, now_s)
        failed = {eviction.job for eviction in delta.evicted}
        for job in delta.finished:
            self._shown.pop(job, None)
            case = self._cases.pop(job, None)
            if case is not None and case.watched.seen and job not in failed:
                self._history.add(case.kind, case.watched.past(now_s))
        for job in delta.arrived:
            asked = view.demand(job)
            if _sized(asked):
                self._waits(job, self._admit(view, job, None), now_s)

    def _admit(self, view: View, job: JobId, config: JobResources | None) -> JobState:
        asked = view.demand(job)
        code = int(view.one(self.similar, job))
        kind = (
            code if code != self._nameless else -1 - job
        )  # without an entry a job is like no other
        self._staffed += 1
        case = self._cases[job] = JobState(asked, config_of(asked), asked, kind)
        self._settle_on(view, case, config or self._created(view, job, case))
        return case

    def _created(self, view: View, job: JobId, case: JobState) -> JobResources:
        """Return what a job begins with."""
        asked = config_of(case.asked)
        if not self.resize:
            return asked
        if self.brain and self.first_sizes == "estimate":
            first = estimated(view.estimates.resources(job), asked.servers)
        elif self.brain:
            first = self._history.first(case.kind, view.now_s)
        else:
            cores, gb = self._limit(case)
            each = min(16.0, cores / 5), min(8.0, gb / 5)
            first = JobResources(1, *each, 1, *each)
        return first._replace(
            worker_gb=first.worker_gb if asked.worker_gb else 0.0,
            server_gb=first.server_gb if asked.server_gb else 0.0,
        )

    def _limit(self, case: JobState) -> tuple[float, float]:
        """Return the most cores and GB of a job while nothing is known of similar jobs."""
        asked = config_of(case.asked)
        cores = asked.workers * asked.worker_cpus + asked.servers * asked.server_cpus
        gb = asked.workers * asked.worker_gb + asked.servers * asked.server_gb
        return self.limit_cores or cores, self.limit_gb or gb

    def _settle_on(self, view: View, case: JobState, config: JobResources) -> None:
        """Let a job that waits ask for this, as far as the nodes are large enough; if the cluster
        never has room for it, for what its user asks.
        """
        demand = self._rebuild.interned(demand_of(case.asked, self._clipped(view, case, config)))
        possible = could_ever_hold(view, demand, mixed=False) and fit_together(view, demand)
        case.demand = demand if possible else self._rebuild.interned(case.asked)
        case.config = config_of(case.demand)

    @staticmethod
    def _clipped(view: View, case: JobState, config: JobResources) -> JobResources:
        """Return a configuration whose replicas are no larger than usual and than the largest node,
        or than the user asked for.
        """
        nodes = [
            view.cluster.nodes[node]
            for at in case.asked.pools
            for node in view.room.pools[at].nodes
        ]
        cores, gb = (
            min(MOST_CORES, max(node.cpus for node in nodes)),
            min(MOST_GB, max(node.mem_gb for node in nodes)),
        )
        asked = config_of(case.asked)
        return config._replace(
            worker_cpus=min(config.worker_cpus, max(cores, asked.worker_cpus)),
            worker_gb=min(config.worker_gb, max(gb, asked.worker_gb)),
            server_cpus=min(config.server_cpus, max(cores, asked.server_cpus)),
            server_gb=min(config.server_gb, max(gb, asked.server_gb)),
        )

    # -- looks
    # ----------------------------------------------------------------------------------------------

    def _looks(self, view: View) -> dict[JobId, Grant]:
        """Check the jobs that are due; return the new grants of those that change."""
        due, now_s = self._due, view.now_s
        resized: dict[JobId, Grant] = {}
        while due and due[0][0] <= now_s:
            at_s, job = heappop(due)
            case = self._cases.get(job)
            if case is None or case.due_s != at_s:
                continue
            grant = view.grants.get(job)
            if grant is None:
                self._ask_for_less(view, job, case)
                continue
            self._expect(job, case, now_s + self.look_s)
            if (
                not _alike(grant)
                or grant.gangs[0].workers.nodes[0] == view.room.overflow
                or not view.one("preemptible", job)
            ):
                continue
            found = self._look(view, job, case, grant)
            if found is not None:
                resized[job] = self._changed(job, found)
        return resized

    def _ask_for_less(self, view: View, job: JobId, case: JobState) -> None:
        less = halved(case.config) if self.resize else case.config
        case.due_s = inf
        if less != case.config:
            self._settle_on(view, case, less)
            self._built().resize(job)
            self._expect(job, case, view.now_s + _PATIENCE_S)

    def _look(self, view: View, job: JobId, case: JobState, held: Grant) -> Grant | None:
        speed = view.one("rate", job)
        if not speed:
            return None
        case.config = _config_held(held)
        telemetry = view.telemetry(job)
        slow = slow_nodes(held, telemetry, self.slow)
        confirmed, case.suspects = slow & case.suspects, slow
        if confirmed and view.now_s >= case.stays_s:
            known, case.avoid = case.avoid, case.avoid | confirmed
            found = self._made(view, job, case, held, case.config)
            if found is None:  # plans must not wait for a better node either
                case.avoid, case.stays_s = known, instant(view.now_s + _STAYS_S)
            return found
        if slow and view.now_s >= case.stays_s:
            self._expect(job, case, view.now_s + min(self.look_s, _AGAIN_S))
            return None
        left = view.one("remaining_work", job)
        case.look(speed, left, telemetry)
        if not self.resize or view.now_s < instant(case.planned_s + self.plan_s):
            return None
        was, planned = (
            case.config,
            self._clipped(
                view, case, self._stages.planned(case, view.now_s, left, self._limit(case))
            ),
        )
        found = self._made(view, job, case, held, planned) if planned != was else None
        if found is not None or planned == was:
            self._stages.advance(case, view.now_s, servers_move=planned[3:] != was[3:])
        return found

    def _made(
        self, view: View, job: JobId, case: JobState, held: Grant, config: JobResources
    ) -> Grant | None:
        """Find a place for what a running job shall be made of; None = there is none now."""
        demand = self._rebuild.interned(demand_of(case.asked, config))
        servers = held.gangs[0].servers
        assert servers is not None
        serves_on = config[3:] == case.config[3:] and case.avoid.isdisjoint(servers.nodes)
        at_once = self.migration == "stop_and_go" or (held.tuning.sharding and serves_on)
        found = self._rebuild(view, held, demand, case.avoid, beside=not at_once)
        if found is not None:
            now = _config_held(found)
            case.becomes(now, self._rebuild.interned(demand_of(case.asked, now)), view.now_s)
            self._expect(job, case, view.now_s + max(self.look_s, self.plan_s))
            self._built().resize(job)
        return found

    # -- the one inside
    # ----------------------------------------------------------------------------------------------

    def _sub(self, view: View, inside: Inside, resized: Mapping[JobId, Grant]) -> SubView:
        """Show the jobs as they are made here, and the grants as the one inside has given them."""
        cases, demand = self._cases, view.demand
        sub = SubView(view, inside.news())
        sub.demand = lambda job: cases[job].demand if job in cases else demand(job)
        sub.grants = GrantsShown(view.grants, resized, self._shown)
        return sub

    def _carried_out(self, view: View, job: JobId, grant: Grant | None) -> Grant | None:
        """Take note of what the one inside has decided of a job; return the grant as it is carried
        out.
        """
        case = self._cases.get(job)
        if case is None:
            return grant
        if grant is None:
            self._waits(job, case, view.now_s)
            return None
        self._starts(job, case, view.now_s)
        self._differs = self._differs or case.demand != case.asked or self.sharding
        real = Grant(grant.gangs, grant.tuning._replace(sharding=self.sharding))
        self._shown[job] = real, grant
        return real

    def _changed(self, job: JobId, real: Grant) -> Grant:
        self._differs = True
        tuning = self._shown[job][1].tuning if job in self._shown else real.tuning
        self._shown[job] = real, Grant(real.gangs, tuning)
        return real

    def _starts(self, job: JobId, case: JobState, now_s: float) -> None:
        case.begins()
        self._expect(job, case, now_s + _FIRST_LOOK_S)

    def _waits(self, job: JobId, case: JobState, now_s: float) -> None:
        self._expect(job, case, now_s + _PATIENCE_S)

    def _expect(self, job: JobId, case: JobState, at_s: float) -> None:
        case.due_s = instant(at_s)
        heappush(self._due, (case.due_s, job))

    def _next_s(self) -> float:
        due, cases = self._due, self._cases
        while due and (due[0][1] not in cases or cases[due[0][1]].due_s != due[0][0]):
            heappop(due)
        return due[0][0] if due else inf


def _sized(demand: Demand) -> bool:
    return demand.servers is not None and not demand.gpus


def _alike(grant: Grant) -> bool:
    """Tell whether a grant is of one gang of CPU workers with servers."""
    workers, servers = grant.gangs[0]
    return len(grant.gangs) == 1 and servers is not None and not workers.gpus


def _config_held(grant: Grant) -> JobResources:
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
