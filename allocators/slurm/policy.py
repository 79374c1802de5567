"""Slurm as sites run it: multifactor priority with fair share, the main scheduling pass, and the
backfill scheduler that plans for all waiting jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final

from allocators.placement import Placer
from allocators.reasons import joined, room
from allocators.slurm.controller import Controller, Partition, Rules, Timers
from allocators.slurm.fairshare import FairShare
from allocators.slurm.state import Job, Nodes, Placement, Switch
from allocators.toolkit import newly_waiting
from sim.contract import (
    EMPTY,
    Allocator,
    Card,
    Decided,
    Delta,
    Demand,
    Gang,
    Grant,
    JobId,
    Needs,
    Part,
    Plan,
    Reason,
    View,
    param,
)

HOUR_S: Final = 3600.0


@dataclass
class Slurm(Allocator):
    """Start jobs as a Slurm controller would: by priority in the main pass, and where the plans of
    the backfill leave room.

    Notes
    -----
    The rules of Slurm's priority/multifactor, sched/backfill and select/cons_tres plugins, as its
    manuals and sources state them (20.02 to 26.11). Priorities are renewed every five minutes only.
    A pass starts jobs in the order of their priority until one of a partition does not fit, whose
    nodes are then out for all that follow. The backfill keeps whole nodes free for every waiting
    job that it tests, from the end of running jobs at their time limits on, in steps that double
    from 30 s and on whole minutes of the clock.

    The instants of the three clocks are not known of any real cluster; they are drawn from the seed
    of the run. A loaded controller amplifies a shift of seconds into hours for single jobs, so
    compare repeats, not single runs.

    Ours: a job without a time limit has that of ``default_limit_h``; a job that outlives its limit
    is not stopped. A gang stays on one GPU type, the first of the cluster that has room. The size
    of a job and what is billed are its cores, or its GPUs where it names no cores. Each user of a
    trace without accounts has one share. A job that lost its nodes queues anew. Not simulated:
    preemption, limits of associations and qualities of service, reservations, arrays as one record,
    dependencies.
    """

    weight_age: int = param(
        1000,
        title="Weight of age",
        low=0,
        high=4_000_000_000,
        help="PriorityWeightAge: what a job gains by waiting for the full maximum age.",
    )
    weight_fairshare: int = param(
        10_000,
        title="Weight of fair share",
        low=0,
        high=4_000_000_000,
        help="PriorityWeightFairshare: what a user gains who has used nothing.",
    )
    weight_size: int = param(
        1000,
        title="Weight of job size",
        low=0,
        high=4_000_000_000,
        help="PriorityWeightJobSize: what a job gains that needs the whole cluster.",
    )
    favor_small: bool = param(
        False,
        title="Favour small jobs",
        help="PriorityFavorSmall: small jobs gain by their size instead of large ones.",
    )
    max_age_h: float = param(
        168.0,
        title="Maximum age",
        unit="h",
        low=0.01,
        high=100_000,
        help="PriorityMaxAge: after this wait, age adds nothing more.",
    )
    half_life_h: float = param(
        168.0,
        title="Half-life of usage",
        unit="h",
        low=0.0,
        high=100_000,
        help="PriorityDecayHalfLife: after this, usage counts half; 0 = never forgotten.",
    )
    fairshare: str = param(
        "tree",
        title="Fair share",
        choices=("tree", "classic"),
        labels={"tree": "Fair Tree (from 19.05)", "classic": "Classic"},
        help="How usage becomes a factor: Fair Tree ranks users, the classic rule halves.",
    )
    dampening: float = param(
        1.0,
        title="Dampening of fair share",
        low=0.01,
        high=1000,
        help="FairShareDampeningFactor: counts with fairshare = classic only.",
    )
    topology: str = param(
        "flat",
        title="Topology",
        choices=("flat", "tree"),
        labels={"flat": "Runs of nodes", "tree": "Racks as switches"},
        help="How nodes are chosen: few runs of neighbours, or few racks.",
    )
    backfill: bool = param(
        True,
        title="Backfill",
        help="SchedulerType: sched/backfill, or the main pass alone (sched/builtin).",
    )
    bf_interval_s: float = param(
        30.0,
        title="Backfill interval",
        unit="s",
        low=1,
        high=86_400,
        help="bf_interval: from the end of a backfill cycle to the next one.",
    )
    bf_window_h: float = param(
        24.0,
        title="Backfill window",
        unit="h",
        low=0.1,
        high=100_000,
        help="bf_window: nothing is planned later than this.",
    )
    bf_max_job_test: int = param(
        500,
        title="Jobs tested per cycle",
        unit="jobs",
        low=1,
        high=1_000_000,
        help="bf_max_job_test: waiting jobs that a backfill cycle looks at.",
    )
    bf_max_job_user: int = param(
        0,
        title="Jobs tested per user",
        unit="jobs",
        low=0,
        high=1_000_000,
        help="bf_max_job_user: of one user in a cycle; 0 = no limit.",
    )
    queue_depth: int = param(
        100,
        title="Depth of the main pass",
        unit="jobs",
        low=1,
        high=1_000_000,
        help="default_queue_depth: jobs tried after a submission or an end; once a minute all are.",
    )
    default_limit_h: float = param(
        24.0,
        title="Time limit where a job has none",
        unit="h",
        low=0.01,
        high=100_000,
        help="DefaultTime of the partitions; backfill plans with limits, not with run times.",
    )
    _controller: Controller | None = field(init=False, repr=False, default=None)
    _place: Placer = field(init=False, repr=False, default_factory=lambda: Placer("fewest"))
    _without_limit: int = field(init=False, repr=False, default=0)

    card = Card(
        title="Slurm",
        slot=1,
        brief="priority by age, usage and size, backfill around plans",
        what=(
            "Starts jobs by a priority of age, fair share and size; others may go first where no"
            " plan for a waiting job is delayed."
        ),
        cost="Plans keep whole nodes free until the time limits, so GPUs idle beside waiting jobs.",
        limits="Knows time limits only; single starts depend on when its clocks tick.",
        source=(
            "Slurm 20.02 to 26.11: priority/multifactor, sched/backfill and select/cons_tres, as"
            " documented by SchedMD; weights of the example in its manual"
        ),
        certainty=(
            "exact for the rules named, on a recorded run; our reading on mixed GPU types and where"
            " jobs have no time limit"
        ),
        goals=("fairness", "baseline"),
        how=(
            "Each waiting job has a priority: the sum of age, fair share and size.",
            "After submissions and ends, jobs start by priority until one does not fit.",
            "Every 30 s the backfill plans all waiting jobs in that order, whole nodes each.",
            "A job starts early if it ends, at its limit, before the plans on its nodes begin.",
            "A running job is never stopped.",
        ),
    )

    @property
    def needs(self) -> Needs:
        """Jobs stay in their partition."""
        return Needs(confine_by="partition")

    def remarks(self) -> tuple[str, ...]:
        """Say how many jobs have an assumed time limit."""
        if not self._without_limit:
            return ()
        jobs = "1 job has" if self._without_limit == 1 else f"{self._without_limit:,} jobs have"
        return (
            f"{jobs} no time limit; slurm plans with {self.default_limit_h:g} h for each"
            " (default_limit_h).",
        )

    def allocate(self, view: View, /) -> Plan:
        """Take in what happened, do what is due, and start what was found."""
        now_s = view.now_s
        controller = self._controller
        if controller is None:
            controller = self._controller = self._begin(view)
        else:
            controller.catch_up(now_s)
            self._follow(view, controller, view.delta)
        for job in newly_waiting(view.delta):
            controller.submit(now_s, self._job(view, job))
        changes: dict[JobId, Grant | None] = {}
        for started in controller.tick(now_s):
            grant = self._grant(view, started)
            if grant is None:
                controller.put_back(started)
            else:
                changes[started.id] = grant
        wake_at_s = controller.wake_s()
        return Plan(changes, wake_at_s=wake_at_s) if changes or wake_at_s < inf else EMPTY

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """State the priority of a job and who is before it."""
        controller = self._controller
        mine = controller.waiting.get(job) if controller is not None else None
        if controller is None or mine is None:
            return None
        rank = controller.rank(mine)
        ahead = [other for other in controller.queue() if controller.rank(other) < rank]
        if not ahead:
            return joined(
                "its priority of {own:number} was the highest",
                room(decided, job),
                own=mine.priority,
            )
        first = ahead[0]
        return joined(
            "{ahead:jobs_were} ahead by priority, job {first:job} with {other:number} against its"
            " {own:number}, and nodes are kept for those",
            room(decided, job),
            ahead=len(ahead),
            first=first.id,
            other=first.priority,
            own=mine.priority,
        )

    def _grant(self, view: View, job: Job) -> Grant | None:
        """Return what a job gets that the controller started; None if its servers find no place."""
        demand, room = view.demand(job.id), view.room
        if any(room.replicas_that_fit(node, demand) < count for node, count in job.held):
            return None
        nodes, counts = zip(*job.held, strict=True)
        grant = Grant((Gang(Part(nodes, counts, demand.gpus, demand.cpus, demand.mem_gb)),))
        room.take(grant)
        return (
            grant
            if demand.servers is None
            else self._place.with_servers(view, demand.servers, grant)
        )

    # -- what the controller is told
    # ----------------------------------------------------------------------------------------------

    def _begin(self, view: View) -> Controller:
        machines = view.cluster.nodes
        nodes = Nodes(
            [node.gpus for node in machines],
            [node.cpus for node in machines],
            [node.mem_gb for node in machines],
            self._levels(view),
        )
        names = view.names("partition")
        members = [
            sum([1 << at for at, node in enumerate(machines) if _admits(node.partitions, name)])
            for name in names
        ]
        # Jobs without a partition may use all nodes.
        partitions = [Partition(nodes.up), *map(Partition, members)]
        half_life_s = self.half_life_h * HOUR_S or inf
        now_s = view.now_s
        clocks = view.rng.random(3)
        controller = Controller(
            Rules(
                weight_age=self.weight_age,
                weight_fairshare=self.weight_fairshare,
                weight_size=self.weight_size,
                max_age_s=self.max_age_h * HOUR_S,
                favor_small=self.favor_small,
                depth=self.queue_depth,
                backfill=self.backfill,
                interval_s=self.bf_interval_s,
                window_s=self.bf_window_h * HOUR_S,
                most_tested=self.bf_max_job_test,
                most_per_user=self.bf_max_job_user or inf,
            ),
            partitions,
            nodes,
            FairShare((), half_life_s, self.dampening, tree=self.fairshare == "tree"),
            Timers(
                main_s=now_s + clocks[0] * 60.0,
                backfill_s=now_s + clocks[1] * self.bf_interval_s,
                priority_s=now_s + clocks[2] * 300.0,
            ),
        )
        for job, grant in view.grants.items():
            controller.adopt(now_s, self._job(view, job), held_by(grant))
        self._sync(view, controller)
        return controller

    def _levels(self, view: View) -> list[list[Switch]]:
        racks: dict[str, int] = {}
        for at, node in enumerate(view.cluster.nodes):
            racks[node.rack] = racks.get(node.rack, 0) | 1 << at
        if self.topology == "flat" or len(racks) < 2:
            return []
        leaves = [Switch(nodes, (nodes,)) for nodes in racks.values()]
        return [leaves, [Switch(sum(racks.values()), tuple(racks.values()))]]

    def _follow(self, view: View, controller: Controller, delta: Delta) -> None:
        gone = [*delta.finished, *(eviction.job for eviction in delta.evicted)]
        for job in gone:
            if job in controller.running:
                controller.end(view.now_s, job)
            controller.waiting.pop(job, None)
        if delta.nodes or delta.resized:
            controller.follow_nodes(view.now_s)
        if gone or delta.nodes or delta.resized:
            self._sync(view, controller)

    def _sync(self, view: View, controller: Controller) -> None:
        """Take over what is free from the simulator: nodes fail, and other policies may share
        them.
        """
        nodes = controller.nodes
        nodes.gpus = view.free_gpus.tolist()
        nodes.cpus = view.free_cpus.tolist()
        nodes.mem_gb = view.free_mem_gb.tolist()

    def _job(self, view: View, job: JobId) -> Job:
        demand = view.demand(job)
        limit_s = view.one("time_limit_s", job)
        if limit_s == inf:
            self._without_limit += 1
            limit_s = self.default_limit_h * HOUR_S
        servers = demand.servers
        # The controller knows one kind of task: servers are divided among the workers.
        share = servers.replicas / demand.replicas if servers else 0.0
        return Job(
            id=job,
            user=str(int(view.one("user", job))),
            account="",
            partition=int(view.one("partition", job)) + 1,
            tasks=demand.replicas,
            allowed=_by_type(view, demand),
            limit_s=limit_s,
            since_s=view.now_s,
            gpus=demand.gpus,
            cpus=demand.cpus + (share * servers.cpus if servers else 0.0),
            mem_gb=demand.mem_gb + (share * servers.mem_gb if servers else 0.0),
        )


def _admits(partitions: tuple[str, ...], name: str) -> bool:
    return not partitions or not name or name in partitions


def _by_type(view: View, demand: Demand) -> tuple[int, ...]:
    """Return the nodes that a demand admits, one mask for each GPU type."""
    masks: dict[int, int] = {}
    for at in demand.pools:
        pool = view.room.pools[at]
        kind = pool.type_at if demand.gpus else 0
        masks[kind] = masks.get(kind, 0) | sum([1 << node for node in pool.nodes])
    return tuple(masks[kind] for kind in sorted(masks))


def held_by(grant: Grant) -> Placement:
    """Return the tasks on nodes of a grant that another policy made."""
    workers = grant.gangs[0].workers
    return tuple(zip(workers.nodes, workers.count, strict=True))
