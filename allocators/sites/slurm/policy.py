"""Slurm as sites run it: multifactor priority with fair share, the main scheduling pass, and the
backfill scheduler that plans for all waiting jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from typing import Final

from allocators.placement import Placer
from allocators.reasons import joined, room
from allocators.sites.slurm.constraints import NotSimulatedError
from allocators.sites.slurm.controller import Controller
from allocators.sites.slurm.eligible import IneligibleJob, NeverError, Waitlist, conditions_of
from allocators.sites.slurm.fairshare import FairShare, read_usage
from allocators.sites.slurm.keys import Finding
from allocators.sites.slurm.limits import UsageLimits
from allocators.sites.slurm.preempt import CANCEL, SUSPEND, preemption_of
from allocators.sites.slurm.requests import Requests
from allocators.sites.slurm.reservations import Calendar
from allocators.sites.slurm.rules import Rules, SlurmPartition, Timers
from allocators.sites.slurm.select import FreeNodes
from allocators.sites.slurm.settings import Settings
from allocators.sites.slurm.site import (
    IN_FILE,
    RULE_OF,
    SlurmSite,
    depth_told,
    gate_of,
    is_classic,
    levels_on,
    missed,
    name_order,
    partitions_on,
    preference,
    read_site,
    rules_of,
    threads_of,
    too_large,
    topology_notes,
)
from allocators.sites.slurm.state import Placement, SlurmJob, replicas_on
from allocators.sites.slurm.surplus import Surplus
from allocators.toolkit import newly_waiting
from sim.contract import (
    EMPTY,
    Card,
    Decided,
    Delta,
    Gang,
    Grant,
    JobId,
    Needs,
    Node,
    Part,
    Plan,
    Reason,
    View,
    is_file_text,
    parameters,
)

HOUR_S: Final = 3600.0
REQUEUE_S: Final = 121.0
"""A displaced job does not start again before: the lifetime of a credential, and a second."""


@dataclass
class Slurm(Settings):
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
    is not stopped unless ``limits`` says so. A gang stays on one GPU type, the first of the cluster
    that has room; types are those of the cluster, as its ``slurm.conf`` or ``gres.conf`` names
    them. The size of a job and what is billed are its cores, or its GPUs where it names no cores.
    Each user of a trace without accounts has one share. A job that lost its nodes queues
    anew; what a displaced one keeps is a matter of its checkpoints. Jobs end well here, so that a
    job which depends on a failure starts only where the other is ended at its limit or displaced;
    jobs that a limit would keep waiting for ever are refused. A job in a reservation starts if its
    limit ends within. A suspended job loses nothing, and queues anew if its node fails. Plans of
    single cores are no setting of Slurm, see `CorePlanner`. Not simulated: jobs that take turns,
    arrays as one record, heterogeneous jobs, licences.
    """

    _controller: Controller | None = field(init=False, repr=False, default=None)
    _place: Placer = field(init=False, repr=False, default_factory=lambda: Placer("fewest"))
    _requests: Requests | None = field(init=False, repr=False, default=None)
    _order: list[int] = field(init=False, repr=False, default_factory=list)
    _surplus: Surplus | None = field(init=False, repr=False, default=None)
    _gate: UsageLimits | None = field(init=False, repr=False, default=None)
    _waitlist: Waitlist = field(init=False, repr=False, default_factory=Waitlist)
    _ids: dict[str, list[JobId]] = field(init=False, repr=False, default_factory=dict)
    _lost: set[JobId] = field(init=False, repr=False, default_factory=set)
    _limits_due: list[tuple[float, JobId]] = field(init=False, repr=False, default_factory=list)
    _kill_after_s: float = field(init=False, repr=False, default=inf)
    _killed: int = field(init=False, repr=False, default=0)
    _noted: Counter[str] = field(init=False, repr=False, default_factory=Counter)
    _failed: set[JobId] = field(init=False, repr=False, default_factory=set)
    _calendar: Calendar | None = field(init=False, repr=False, default=None)
    _undated: int = field(init=False, repr=False, default=0)
    _above: tuple[str, ...] = field(init=False, repr=False, default=())

    card = Card(
        title="Slurm",
        brief="priority by age, usage and size, backfill around plans",
        what=(
            "Starts jobs by a priority of age, fair share and size; backfill may start"
            " others that delay no planned job."
        ),
        cost="Plans keep whole nodes free until the time limits, so GPUs idle while jobs wait.",
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
            "Running jobs are stopped only where a site lets others displace them.",
        ),
    )

    @property
    def needs(self) -> Needs:
        """Jobs stay in their partition."""
        return Needs(confine_by="partition")

    def __post_init__(self) -> None:
        """Read the files, so that what cannot be read is said before a run."""
        site = self._site
        if site.config is not None:
            rules_of(site, site.config)

    @property
    def _site(self) -> SlurmSite:
        topology = self.topology if is_file_text(self.topology) else ""
        return read_site(self.conf, self.accounts, self.qos, topology, self.reservations)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What becomes of each setting of the files."""
        return self._site.findings

    def remarks(self) -> tuple[str, ...]:
        """Say what is not simulated, which parameters go before the file, and what was assumed."""
        found = [*missed(self._site), *self._overrides()]
        found += [note for note in (is_classic(self._site, self.fairshare)[1],) if note]
        found += [*topology_notes(self._site, self.topology), *self._above]
        if self._undated:
            found.append(
                "The trace has no dates, so that nothing is reserved, although reservations are"
                " given."
            )
        if self._killed:
            killed = "1 job was" if self._killed == 1 else f"{self._killed:,} jobs were"
            found.append(f"{killed} ended at the time limit.")
        without_limit = self._requests.without_limit if self._requests is not None else 0
        if without_limit:
            jobs = "1 job has" if without_limit == 1 else f"{without_limit:,} jobs have"
            found.append(
                f"{jobs} no time limit; slurm plans with {self.default_limit_h:g} h for each"
                " (default_limit_h)."
            )
        found += [
            f"{count:,} {'job names' if count == 1 else 'jobs name'} a {what}."
            for what, count in self._noted.items()
        ]
        if self._controller is not None and self._controller.cycles:
            found.append(depth_told(self._controller.tested / self._controller.cycles))
        return tuple(found)

    def _overrides(self) -> tuple[str, ...]:
        config = self._site.config
        if config is None:
            return ()
        said = config.values.keys() | config.options.keys()
        return tuple(
            f"{name} = {value} counts instead of {key} in slurm.conf."
            for name, (key, _) in IN_FILE.items()
            if (value := getattr(self, name)) != DEFAULTS[name] and key.lower() in said
        )

    def allocate(self, view: View, /) -> Plan:
        """Take in what happened, do what is due, and start what was found."""
        now_s, lost = view.now_s, list[JobId]()
        controller = self._controller
        if controller is None:
            controller = self._controller = self._begin(view)
        else:
            controller.catch_up(now_s)
            lost = self._follow(view, controller, view.delta)
        arrived = [*newly_waiting(view.delta), *lost]
        refused = frozenset([job for job in arrived if not self._submit(view, controller, job)])
        refused |= frozenset(self._lost_for_ever())
        self._release(view, controller)
        ended = self._overdue(controller, now_s)
        changes: dict[JobId, Grant | None] = {}
        started = controller.tick(now_s)
        ended |= self._displaced(view, controller, changes)
        seamless = frozenset(changes.keys() & controller.suspended.keys())
        self._resumed(view, controller, changes)
        for one in started:
            grant = self._grant(view, one)
            if grant is None:
                controller.put_back(one)
            else:
                changes[one.id] = grant
                self._waitlist.started(one.id, now_s)
                self._expect_end(one)
        if self._waitlist.held and changes:
            self._release(view, controller)
        wake_at_s = min(controller.wake_s(), self._waitlist.wake_s(now_s))
        if self._limits_due:
            wake_at_s = min(wake_at_s, self._limits_due[0][0])
        if changes or refused or ended or wake_at_s < inf:
            return Plan(changes, refused, wake_at_s, seamless=seamless, ended=ended)
        return EMPTY

    def _lost_for_ever(self) -> list[JobId]:
        """Return the jobs that depend on something that came otherwise."""
        never = self._waitlist.never() if self._waitlist.held else []
        if never:
            self._noted["dependency that can never be met: refused"] += len(never)
        return never

    def _release(self, view: View, controller: Controller) -> None:
        """Hand the jobs to the controller that have become eligible."""
        if not self._waitlist.held:
            return
        for first, *others in self._waitlist.release(view.now_s):
            for one in (first, *others):
                if not controller.rules.accrue_always:
                    one.since_s = view.now_s
            controller.submit(view.now_s, first, tuple(others))

    def _overdue(self, controller: Controller, now_s: float) -> frozenset[JobId]:
        """Return the jobs that are ended at their limits."""
        found = []
        while self._limits_due and self._limits_due[0][0] <= now_s:
            at_s, job = heappop(self._limits_due)
            running = controller.running.get(job)
            if running is not None and running.end_s + self._kill_after_s <= at_s:
                found.append(job)
        self._killed += len(found)
        self._failed.update(found)
        return frozenset(found)

    def _displaced(
        self, view: View, controller: Controller, changes: dict[JobId, Grant | None]
    ) -> frozenset[JobId]:
        """Stop the jobs that had to give way; return those that may not queue again."""
        assert self._surplus is not None, "see _begin"
        gone = []
        for one, mode, _ in controller.displaced:
            view.room.give(view.grants[one.id])
            self._surplus.note(one, view.demand(one.id), -1)
            changes[one.id] = None
            if mode == CANCEL:
                gone.append(one.id)
                continue
            if mode == SUSPEND:
                self._surplus.note_suspended(one)
                continue
            entries = [replace(entry, since_s=view.now_s) for entry in controller.entries(one)]
            again_s = view.now_s + REQUEUE_S
            self._waitlist.held[one.id] = IneligibleJob(tuple(entries), again_s)
        self._failed.update(gone)
        controller.displaced.clear()
        return frozenset(gone)

    def _resumed(
        self, view: View, controller: Controller, changes: dict[JobId, Grant | None]
    ) -> None:
        """Let the jobs go on that were suspended."""
        assert self._surplus is not None, "see _begin"
        for one in controller.resumed:
            self._surplus.note_suspended(one, -1)
            grant = self._grant(view, one)
            if grant is None:
                self._surplus.note_suspended(one)
                controller.suspend(view.now_s, one)
            else:
                changes[one.id] = grant
                self._expect_end(one)
        controller.resumed.clear()

    def _expect_end(self, one: SlurmJob) -> None:
        if self._kill_after_s < inf:
            heappush(self._limits_due, (one.end_s + self._kill_after_s, one.id))

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """State why a job waits in the words of squeue, its priority, and who is before it."""
        controller = self._controller
        mine = controller.waiting.get(job) if controller is not None else None
        if controller is None:
            return None
        if mine is None:
            return self._not_queued(decided.view.now_s, controller, job)
        if mine.why not in {"None", "Priority", "Resources"}:
            return Reason("it was held back ({word:text})", {"word": mine.why})
        ahead = [other for other in controller.queue() if other.rank < mine.rank]
        if not ahead:
            return joined(
                "its priority of {own:number} was the highest (Resources)",
                room(decided, job),
                own=mine.priority,
            )
        first = ahead[0]
        return joined(
            "{ahead:jobs_were} ahead by priority, job {first:job} with {other:number} against its"
            " {own:number}, and nodes are kept for those (Priority)",
            room(decided, job),
            ahead=len(ahead),
            first=first.id,
            other=first.priority,
            own=mine.priority,
        )

    def _not_queued(self, now_s: float, controller: Controller, job: JobId) -> Reason | None:
        if job in controller.suspended:
            return Reason("it was suspended: jobs that go before it had its cores (Suspended)", {})
        if job not in self._waitlist.held:
            return None
        word = self._waitlist.why(now_s, job)
        return Reason("it was not eligible yet ({word:text})", {"word": word})

    def _grant(self, view: View, job: SlurmJob) -> Grant | None:
        """Return what a job gets that the controller started; None if its servers find no place."""
        demand, room = view.demand(job.id), view.room
        held = replicas_on(job.held, demand.replicas, evenly=job.node_gpus > 0)
        order = self._order
        parts = [(order[place], count) for place, count in held]
        if any(room.replicas_that_fit(node, demand) < count for node, count in parts):
            return None
        nodes, counts = zip(*parts, strict=True)
        grant = Grant((Gang(Part(nodes, counts, demand.gpus, demand.cpus, demand.mem_gb)),))
        room.take(grant)
        assert self._surplus is not None, "see _begin"
        self._surplus.note(job, demand)
        return (
            grant
            if demand.servers is None
            else self._place.with_servers(view, demand.servers, grant)
        )

    # -- what the controller is told
    # ----------------------------------------------------------------------------------------------

    def _submit(self, view: View, controller: Controller, job: JobId) -> bool:
        """Give a job to the controller; tell whether it can ever run."""
        assert self._requests is not None, "see _begin"
        if job in self._lost and not self._requests.may_requeue(view, job):
            self._noted["node that failed, and may not queue again: refused"] += 1
            return False
        try:
            made = self._requests.job(view, job)
            # Where a partition can never hold it, it would only keep nodes from others.
            fitting = tuple([one for one in made if controller.could_fit(one)])
            held = self._held(view, fitting or made)
        except (NeverError, NotSimulatedError) as error:
            self._noted[str(error)] += 1
            return False
        if not fitting:
            self._noted["shape that even the empty cluster cannot hold: refused"] += 1
            return False
        made = fitting
        if self._calendar is not None and made[0].reservation:
            word = self._calendar.refusal(made[0])
            if word:
                self._noted[f"reservation that it may not use ({word}): refused"] += 1
                return False
        word = self._gate.refusal(made) if self._gate is not None else ""
        if word:
            self._noted[f"request beyond a limit ({word}): refused"] += 1
            return False
        if held is None:
            controller.submit(view.now_s, made[0], made[1:])
        else:
            self._waitlist.held[job] = held
        return True

    def _held(self, view: View, made: tuple[SlurmJob, ...]) -> IneligibleJob | None:
        """Return what a job waits for before it may start; None = nothing."""
        assert self._requests is not None, "see _begin"
        job, requests = made[0].id, self._requests
        begin_s = view.one("begin_s", job)
        text, name, own = requests.text(view, "dependency", job), "", ""
        if len(view.names("dependency")) > 1:
            own = requests.text(view, "job_id", job)
            for known in dict.fromkeys((own, own.partition("_")[0])):
                self._ids.setdefault(known, []).append(job)
            name = requests.text(view, "name", job)
            self._waitlist.submitted(job, made[0].user, name)
        if not text and begin_s <= view.now_s:
            return None
        conditions, any_of = conditions_of(text, self._ids, own) if text else ((), False)
        held = IneligibleJob(made, begin_s, conditions, any_of, name)
        self._waitlist.held[job] = held
        why = self._waitlist.why(view.now_s, job)
        del self._waitlist.held[job]
        return held if why else None

    def _begin(self, view: View) -> Controller:
        site, machines = self._site, view.cluster.nodes
        config = site.config
        self._order = (
            name_order([node.name for node in machines])
            if config is not None
            else list(range(len(machines)))
        )
        ordered = [machines[node] for node in self._order]
        self._requests = requests = Requests(site, view, self._order, self.default_limit_h * HOUR_S)
        self._noted = requests.remarks
        nodes = FreeNodes(
            [node.gpus for node in ordered],
            [node.cpus for node in ordered],
            [node.mem_gb for node in ordered],
            levels_on(site, self.topology, ordered, view.cluster.switches),
            [node.weight for node in ordered] if config is not None else (),
            prefer=preference(config),
            threads=threads_of(config, [node.name for node in ordered]),
            gres=requests.gres,
        )
        # Jobs without a partition may use all nodes.
        partitions = [
            SlurmPartition(nodes.up),
            *partitions_on(site, view.names("partition"), ordered),
        ]
        self._gate = gate_of(site, requests.entries)
        if self.limits == "kill":
            minutes = config.number("OverTimeLimit", 0) if config is not None else 0.0
            grace_s = config.number("KillWait", 30) if config is not None else 30.0
            self._kill_after_s = minutes * 60.0 + grace_s
        rules = self._rules()
        self._controller = controller = Controller(
            rules,
            partitions,
            nodes,
            self._fair(site),
            self._timers(view, rules),
            gate=self._gate,
            preemption=preemption_of(site),
            calendar=self._calendar_of(view, ordered),
        )
        unknown = self._calendar.unknown if self._calendar is not None else ()
        self._above = (*too_large(site, ordered), *unknown)
        self._surplus = Surplus(nodes)
        for job, grant in view.grants.items():
            entries, held = requests.job(view, job), self._held_by(grant)
            tasks = replicas_on(held, entries[0].tasks) if held else ()
            self._surplus.note(controller.adopt(view.now_s, entries, tasks), view.demand(job))
        self._sync(view, controller)
        return controller

    def _timers(self, view: View, rules: Rules) -> Timers:
        """Return when the clocks tick: as the parameters say, or as the seed of the run draws."""
        phases = (self.main_phase_s, self.bf_phase_s, self.calc_phase_s)
        periods = (rules.main_interval_s, rules.interval_s, rules.period_s)
        main_s, backfill_s, priority_s = (
            view.now_s + (clock * period if phase < 0 else phase)
            for clock, period, phase in zip(
                view.rng.random(3).tolist(), periods, phases, strict=True
            )
        )
        return Timers(
            main_s=main_s,
            backfill_s=backfill_s,
            priority_s=priority_s,
            cycle_s=self.bf_cycle_s,
            instants=self.bf_instants,
            clock_s=view.clock_s,
        )

    def _calendar_of(self, view: View, ordered: Sequence[Node]) -> Calendar | None:
        """Return the reservations on the clock of the run; None = there are none, or no dates."""
        reserved = self._site.reserved
        self._undated = len(reserved) if not view.clock_s else 0
        if not reserved or self._undated:
            return None
        self._calendar = Calendar(view.clock_s, [node.name for node in ordered], reserved)
        return self._calendar

    def _rules(self) -> Rules:
        """Return the rules of the file, with the parameters that were set besides."""
        config = self._site.config
        own = {name: convert(getattr(self, name)) for name, (_, convert) in IN_FILE.items()}
        ours = {"size_by_used": self.size_nodes == "used", "by_cores": self.plan == "cores"}
        if config is None:
            values = {RULE_OF[name]: own[name] for name in RULE_OF}
            return Rules(**values, **ours)  # type: ignore[arg-type]
        changed = {
            RULE_OF[name]: own[name] for name in RULE_OF if getattr(self, name) != DEFAULTS[name]
        }
        rules = rules_of(self._site, config)
        return replace(rules, **changed, **ours)  # type: ignore[arg-type]

    def _fair(self, site: SlurmSite) -> FairShare:
        config = site.config
        dampening = self.dampening
        if config is not None and self.dampening == DEFAULTS["dampening"]:
            dampening = config.number("FairShareDampeningFactor", 1)
        tree = not is_classic(site, self.fairshare)[0]
        entries = site.associations.entries
        made = FairShare(entries, self.half_life_s or inf, dampening, tree=tree)
        for account, user, used in read_usage(self.usage):
            made.book(made.of(account, user), used)
        if self.usage:
            # What was used before counts from the first job on.
            made.renew(0.0, [])
        return made

    @property
    def half_life_s(self) -> float:
        """Half-life of usage, of the parameter or else of the file; 0 = never forgotten."""
        config = self._site.config
        if config is not None and self.half_life_h == DEFAULTS["half_life_h"]:
            return config.time_s("PriorityDecayHalfLife", "7-0")
        return self.half_life_h * HOUR_S

    def _follow(self, view: View, controller: Controller, delta: Delta) -> list[JobId]:
        """Take in what ended and what nodes did; return the suspended jobs that lost a node."""
        gone = [*delta.finished, *(eviction.job for eviction in delta.evicted)]
        self._lost = {eviction.job for eviction in delta.evicted if eviction.cause != "void"}
        for job in delta.finished:
            self._waitlist.ended(job, well=job not in self._failed)
        lost = [
            one.id
            for one in (controller.suspended.values() if delta.nodes else ())
            if not all(view.room.is_present(self._order[place]) for place, _ in one.held)
            and one.id not in gone
        ]
        self._lost.update(lost)
        for job in (*gone, *lost):
            self._end(view, controller, job)
            controller.forget(job)
            self._waitlist.held.pop(job, None)
        if delta.nodes or delta.resized:
            controller.follow_nodes(view.now_s)
        if gone or delta.nodes or delta.resized:
            self._sync(view, controller)
        return lost

    def _end(self, view: View, controller: Controller, job: JobId) -> None:
        """Tell the controller that a job is gone from its nodes, if it was there."""
        assert self._surplus is not None, "see _begin"
        if (suspended := controller.suspended.get(job)) is not None:
            # With a latency it may have ended before its stop arrived.
            self._surplus.note_suspended(suspended, -1)
            controller.end(view.now_s, job)
        elif (running := controller.running.get(job)) is not None:
            self._surplus.note(running, view.demand(job), -1)
            controller.end(view.now_s, job)

    def _sync(self, view: View, controller: Controller) -> None:
        """Take over what is free from the simulator: nodes fail, and other policies may share
        them.
        """
        nodes, order = controller.nodes, self._order
        gpus: list[int] = view.free_gpus[order].tolist()
        cpus: list[float] = view.free_cpus[order].tolist()
        mem_gb: list[float] = view.free_mem_gb[order].tolist()
        assert self._surplus is not None, "see _begin"
        self._surplus.take_from(gpus, cpus, mem_gb)
        nodes.follow(gpus, cpus, mem_gb)

    def _held_by(self, grant: Grant) -> Placement:
        """Return the tasks on nodes of a grant that another policy made; what a replayed record
        holds beyond the cluster is on none of its nodes.
        """
        places = {node: place for place, node in enumerate(self._order)}
        workers = grant.gangs[0].workers
        return tuple(
            sorted(
                (places[node], count)
                for node, count in zip(workers.nodes, workers.count, strict=True)
                if node in places
            )
        )


DEFAULTS: Final = {info.name: info.default for info in parameters(Slurm)}
