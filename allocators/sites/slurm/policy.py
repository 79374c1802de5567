"""The Slurm policy: multifactor priority with fair share, the main pass, and backfill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from typing import Final

from allocators.placement import Placer
from allocators.reasons import prefix_reason, room_reason
from allocators.sites.slurm.constraints import NotSimulatedError
from allocators.sites.slurm.controller import Controller
from allocators.sites.slurm.fairshare import FairShare, read_usage
from allocators.sites.slurm.keys import Finding
from allocators.sites.slurm.node_selection import FreeNodes, Surplus
from allocators.sites.slurm.preempt import CANCEL, SUSPEND, preemption_of
from allocators.sites.slurm.requests import Requests
from allocators.sites.slurm.reservations import Calendar
from allocators.sites.slurm.rules import Rules, SlurmPartition, Timers
from allocators.sites.slurm.settings import SlurmSettings
from allocators.sites.slurm.site import (
    CONFIG_KEYS,
    RULE_OF,
    SlurmSite,
    depth_note,
    gate_of,
    is_classic,
    levels_on,
    limits_above_cluster,
    missed_sentences,
    name_order,
    partitions_on,
    preference,
    read_site,
    rules_of,
    threads_of,
    topology_notes,
)
from allocators.sites.slurm.state import Placement, SlurmJob, replicas_on
from allocators.sites.slurm.waitlist import (
    NEVER_MET,
    IneligibleJob,
    UnsatisfiableError,
    Waitlist,
    conditions_of,
)
from allocators.toolkit import newly_waiting
from sim.contract import (
    EMPTY,
    Card,
    Decided,
    Gang,
    Grant,
    JobId,
    Needs,
    Part,
    Plan,
    Reason,
    View,
    is_file_text,
    parameters,
)

HOUR_S: Final = 3600.0
REQUEUE_S: Final = 121.0
"""Delay before a preempted job may start again: credential lifetime plus one second."""


@dataclass
class Slurm(SlurmSettings):
    """Start jobs by priority in the main pass, and early where backfill plans leave room.

    Notes
    -----
    Rules of Slurm's priority/multifactor, sched/backfill and select/cons_tres plugins, from its
    manuals and sources (20.02 to 26.11). Priorities are renewed every five minutes only. A pass
    starts jobs by priority; a job that does not fit blocks the nodes of its partition for later
    jobs. The backfill plans whole nodes for every waiting job that it tests. Plans begin at the
    time limits of running jobs, in steps that double from 30 s, on whole minutes of the clock.

    The phases of the three clocks are not recorded for any real cluster; they are drawn from the
    seed of the run. Under load, a shift of seconds can move single jobs by hours: compare repeats,
    not single runs.

    Assumptions: a job without a time limit gets ``default_limit_h``. A job beyond its limit is
    stopped only under ``limits`` = kill. A gang stays on one GPU type, the first with room; type
    names are those of ``slurm.conf`` or ``gres.conf``. Size and billing count cores, or GPUs for
    jobs without cores. Each user of a trace without accounts has one share. A job that lost its
    nodes is requeued; a preempted job keeps what its checkpoints saved. Jobs complete unless they
    are ended at their limit or preempted, which decides dependencies on failures. Jobs that a limit
    would block forever are refused. A job in a reservation starts if its limit ends within it. A
    suspended job loses no work, and is requeued if its node fails. Not simulated: time slicing,
    arrays as one record, heterogeneous jobs, licenses.
    """

    _run: SlurmRun | None = field(init=False, repr=False, default=None)

    card = Card(
        title="Slurm",
        brief="priority by age, usage, size; then backfill",
        what=(
            "Starts jobs by age, fair share and size; a job may start early if it delays no"
            " planned start."
        ),
        cost="Backfill reserves whole nodes for full time limits, so GPUs may idle.",
        limits="Uses time limits, not run times. Exact starts depend on scheduler timing.",
        source=(
            "Slurm 20.02 to 26.11: priority/multifactor, sched/backfill and select/cons_tres, as"
            " documented by SchedMD; weights of the example in its manual"
        ),
        certainty=(
            "exact for the rules named, on a recorded run; our reading on mixed GPU types and where"
            " jobs have no time limit"
        ),
        goals=("fairness",),
        how=(
            "Each waiting job has a priority: the sum of age, fair share and size.",
            "After submissions and ends, jobs start by priority until one does not fit.",
            "Every 30 s the backfill plans all waiting jobs in that order, whole nodes each.",
            "A job starts early if it ends, at its limit, before the plans on its nodes begin.",
            "Running jobs are preempted only where the site allows it.",
        ),
    )

    @property
    def needs(self) -> Needs:
        """Jobs stay within their partition."""
        return Needs(confine_by="partition")

    def __post_init__(self) -> None:
        """Parse the files, so that errors are raised before a run."""
        site = self.site
        if site.config is not None:
            rules_of(site, site.config)

    @property
    def site(self) -> SlurmSite:
        """The parsed files of the site."""
        topology = self.topology if is_file_text(self.topology) else ""
        return read_site(self.conf, self.accounts, self.qos, topology, self.reservations)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the simulation does with each setting of the files."""
        return self.site.findings

    def remarks(self) -> tuple[str, ...]:
        """Return notes on settings not simulated, overridden keys, and assumptions."""
        notes = [*missed_sentences(self.site), *self._override_notes()]
        notes += filter(None, [is_classic(self.site, self.fairshare)[1]])
        notes += topology_notes(self.site, self.topology)
        return (*notes, *(self._run.remarks() if self._run is not None else ()))

    def _override_notes(self) -> tuple[str, ...]:
        """Return a note for each changed parameter that overrides a key of ``slurm.conf``."""
        config = self.site.config
        if config is None:
            return ()
        named = config.values.keys() | config.options.keys()
        return tuple(
            f"{name} = {value} counts instead of {key} in slurm.conf."
            for name, (key, _) in CONFIG_KEYS.items()
            if (value := getattr(self, name)) != DEFAULTS[name] and key.lower() in named
        )

    def allocate(self, view: View, /) -> Plan:
        """Update the controller, run the passes that are due, and return their decisions."""
        if self._run is None:
            self._run = SlurmRun(self, view)
            return self._run.step(view, ())
        return self._run.step(view, self._run.follow(view))

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """Return the ``squeue`` reason of a waiting job, its priority and the jobs ahead."""
        return self._run.explain(decided, job) if self._run is not None else None

    def timers(self, view: View, rules: Rules) -> Timers:
        """Return the first tick of each clock: now plus a parameter, or drawn from the seed."""
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

    def rules(self) -> Rules:
        """Return the rules of ``slurm.conf``, overridden by parameters that were changed.

        Without a file, all come from the parameters.
        """
        config = self.site.config
        own = {name: convert(getattr(self, name)) for name, (_, convert) in CONFIG_KEYS.items()}
        ours = {"size_by_used": self.size_nodes == "used"}
        if config is None:
            values = {RULE_OF[name]: own[name] for name in RULE_OF}
            return Rules(**values, **ours)  # type: ignore[arg-type]
        changed = {
            RULE_OF[name]: own[name] for name in RULE_OF if getattr(self, name) != DEFAULTS[name]
        }
        rules = rules_of(self.site, config)
        return replace(rules, **changed, **ours)  # type: ignore[arg-type]

    def fair_share(self) -> FairShare:
        """Return a new fair-share tree with the usage before the trace."""
        site, config = self.site, self.site.config
        dampening = self.dampening
        if config is not None and self.dampening == DEFAULTS["dampening"]:
            dampening = config.number("FairShareDampeningFactor", 1)
        tree = not is_classic(site, self.fairshare)[0]
        entries = site.associations.entries
        shares = FairShare(entries, self.half_life_s or inf, dampening, tree=tree)
        for account, user, used in read_usage(self.usage):
            shares.book(shares.user_share(account, user), used)
        if self.usage:
            # Usage before the trace counts from the first job on.
            shares.renew(0.0, [])
        return shares

    @property
    def half_life_s(self) -> float:
        """Half-life of usage in seconds: the parameter if changed, else the file; 0 = no decay."""
        config = self.site.config
        if config is not None and self.half_life_h == DEFAULTS["half_life_h"]:
            return config.time_s("PriorityDecayHalfLife", "7-0")
        return self.half_life_h * HOUR_S

    @property
    def kill_after_s(self) -> float:
        """Seconds after its time limit at which a job is ended; inf = never.

        OverTimeLimit and KillWait of the file, else 30 s.
        """
        if self.limits != "kill":
            return inf
        config = self.site.config
        if config is None:
            return 30.0
        return config.number("OverTimeLimit", 0) * 60.0 + config.number("KillWait", 30)


class SlurmRun:
    """A Slurm controller on the nodes of one run, with ineligible and ended jobs.

    Parameters
    ----------
    policy : Slurm
        Parameters and files of the site.
    view : View
        The view at the first decision; jobs that run already are adopted.
    """

    def __init__(self, policy: Slurm, view: View) -> None:
        site, config, machines = policy.site, policy.site.config, view.cluster.nodes
        self._default_limit_h, self._kill_after_s = policy.default_limit_h, policy.kill_after_s
        self._order = (
            name_order([node.name for node in machines])
            if config is not None
            else list(range(len(machines)))
        )
        ordered = [machines[node] for node in self._order]
        self._requests = Requests(site, view, self._order, policy.default_limit_h * HOUR_S)
        self._note_counts = self._requests.remarks
        nodes = FreeNodes(
            [node.gpus for node in ordered],
            [node.cpus for node in ordered],
            [node.mem_gb for node in ordered],
            levels_on(site, policy.topology, ordered, view.cluster.switches),
            [node.weight for node in ordered] if config is not None else (),
            prefer=preference(config),
            threads=threads_of(config, [node.name for node in ordered]),
            gres=self._requests.gres,
        )
        # Jobs without a partition may use all nodes.
        partitions = [
            SlurmPartition(nodes.up),
            *partitions_on(site, view.names("partition"), ordered),
        ]
        self._limits = gate_of(site, self._requests.entries)
        self._calendar = (
            Calendar(view.clock_s, [node.name for node in ordered], site.reserved)
            if site.reserved and view.clock_s
            else None
        )
        self._undated = bool(site.reserved) and not view.clock_s
        unknown = self._calendar.unknown if self._calendar is not None else ()
        self._site_notes = (*limits_above_cluster(site, ordered), *unknown)
        rules = policy.rules()
        self._controller = Controller(
            rules,
            partitions,
            nodes,
            policy.fair_share(),
            policy.timers(view, rules),
            gate=self._limits,
            preemption=preemption_of(site),
            calendar=self._calendar,
        )
        self._surplus = Surplus(nodes)
        self._placer = Placer("fewest")
        self._waitlist = Waitlist()
        self._jobs_of_id: dict[str, list[JobId]] = {}
        self._lost: set[JobId] = set()
        self._failed: set[JobId] = set()
        self._limits_due: list[tuple[float, JobId]] = []
        self._killed = 0
        for job, grant in view.grants.items():
            entries, held = self._requests.job(view, job), self._placement_of(grant)
            tasks = replicas_on(held, entries[0].tasks) if held else ()
            adopted = self._controller.adopt(view.now_s, entries, tasks)
            self._surplus.add(adopted, view.demand(job))
        self._sync_nodes(view)

    def remarks(self) -> list[str]:
        """Return notes on the run: settings without effect, jobs refused or ended."""
        notes = list(self._site_notes)
        if self._undated:
            notes.append(
                "The trace has no dates, so that nothing is reserved, although reservations are"
                " given."
            )
        if self._killed:
            killed = "1 job was" if self._killed == 1 else f"{self._killed:,} jobs were"
            notes.append(f"{killed} ended at the time limit.")
        if without_limit := self._requests.without_limit:
            jobs = "1 job has" if without_limit == 1 else f"{without_limit:,} jobs have"
            notes.append(
                f"{jobs} no time limit; slurm plans with {self._default_limit_h:g} h for each"
                " (default_limit_h)."
            )
        notes += [
            f"{count:,} {'job names' if count == 1 else 'jobs name'} a {what}."
            for what, count in self._note_counts.items()
        ]
        if self._controller.cycles:
            notes.append(depth_note(self._controller.tested / self._controller.cycles))
        return notes

    def step(self, view: View, requeued: Sequence[JobId]) -> Plan:
        """Submit arrived jobs, run the passes that are due, and return the plan.

        Parameters
        ----------
        view : View
            The current view.
        requeued : sequence of JobId
            Suspended jobs that lost a node and are requeued.
        """
        now_s, controller = view.now_s, self._controller
        arrived = [*newly_waiting(view.delta), *requeued]
        refusals = {job: reason for job in arrived if (reason := self._submit(view, job))}
        self._note_counts.update(refusals.values())
        for job in refusals:
            self._waitlist.record_end(job, well=False)
        refused = frozenset([*refusals, *self._refuse_unsatisfiable()])
        self._release_eligible(view)
        ended = self._end_overdue(now_s)
        changes: dict[JobId, Grant | None] = {}
        started = controller.tick(now_s)
        ended |= self._stop_preempted(view, changes)
        seamless = frozenset(changes.keys() & controller.suspended.keys())
        self._resume_jobs(view, changes)
        for started_job in started:
            grant = self._grant(view, started_job)
            if grant is None:
                controller.undo_start(started_job)
            else:
                changes[started_job.id] = grant
                self._waitlist.record_start(started_job.id, now_s)
                self._expect_end(started_job)
        if self._waitlist.held and changes:
            self._release_eligible(view)
        wake_at_s = min(controller.wake_s(), self._waitlist.wake_s(now_s))
        if self._limits_due:
            wake_at_s = min(wake_at_s, self._limits_due[0][0])
        if changes or refused or ended or wake_at_s < inf:
            return Plan(changes, refused, wake_at_s, seamless=seamless, ended=ended)
        return EMPTY

    def _refuse_unsatisfiable(self) -> list[JobId]:
        """Remove jobs with unsatisfiable dependencies from the waitlist; return them.

        They are counted for the remarks.
        """
        unsatisfiable = self._waitlist.pop_unsatisfiable() if self._waitlist.held else []
        self._note_counts.update([NEVER_MET] * len(unsatisfiable))
        return unsatisfiable

    def _release_eligible(self, view: View) -> None:
        """Submit the jobs of the waitlist that have become eligible.

        Their age starts now, except under ACCRUE_ALWAYS.
        """
        if not self._waitlist.held:
            return
        for first, *others in self._waitlist.release(view.now_s):
            for one in (first, *others):
                if not self._controller.rules.accrue_always:
                    one.since_s = view.now_s
            self._controller.submit(view.now_s, first, tuple(others))

    def _end_overdue(self, now_s: float) -> frozenset[JobId]:
        """Return the running jobs to end because their limit and extra time have passed.

        They are counted for the remarks, and as failed for dependencies.
        """
        overdue = []
        while self._limits_due and self._limits_due[0][0] <= now_s:
            at_s, job = heappop(self._limits_due)
            running = self._controller.running.get(job)
            if running is not None and running.end_s + self._kill_after_s <= at_s:
                overdue.append(job)
        self._killed += len(overdue)
        self._failed.update(overdue)
        return frozenset(overdue)

    def _stop_preempted(self, view: View, changes: dict[JobId, Grant | None]) -> frozenset[JobId]:
        """Add the stops of preempted jobs to `changes`; return the canceled jobs.

        Their room is given back. Requeued jobs go to the waitlist for two minutes; suspended jobs
        keep their place.
        """
        controller = self._controller
        canceled = []
        for one, mode, _ in controller.preempted:
            view.room.give(view.grants[one.id])
            self._surplus.add(one, view.demand(one.id), -1)
            changes[one.id] = None
            if mode == CANCEL:
                canceled.append(one.id)
                continue
            if mode == SUSPEND:
                self._surplus.add_suspended(one)
                continue
            entries = [replace(entry, since_s=view.now_s) for entry in controller.entries(one)]
            again_s = view.now_s + REQUEUE_S
            self._waitlist.held[one.id] = IneligibleJob(tuple(entries), again_s)
        self._failed.update(canceled)
        controller.preempted.clear()
        return frozenset(canceled)

    def _resume_jobs(self, view: View, changes: dict[JobId, Grant | None]) -> None:
        """Add the grants of resumed jobs to `changes`; suspend jobs without room again."""
        controller = self._controller
        for one in controller.resumed:
            self._surplus.add_suspended(one, -1)
            grant = self._grant(view, one)
            if grant is None:
                self._surplus.add_suspended(one)
                controller.suspend(view.now_s, one)
            else:
                changes[one.id] = grant
                self._expect_end(one)
        controller.resumed.clear()

    def _expect_end(self, one: SlurmJob) -> None:
        """Schedule the end of a started job after its time limit, if limits end jobs."""
        if self._kill_after_s < inf:
            heappush(self._limits_due, (one.end_s + self._kill_after_s, one.id))

    def explain(self, decided: Decided, job: JobId) -> Reason | None:
        """Return the ``squeue`` reason of a waiting job, its priority and the jobs ahead.

        None for other jobs.
        """
        controller = self._controller
        slurm_job = controller.waiting.get(job)
        if slurm_job is None:
            return self._explain_not_queued(decided.view.now_s, job)
        if slurm_job.why not in {"None", "Priority", "Resources"}:
            return Reason("it was held back ({word:text})", {"word": slurm_job.why})
        ahead = [other for other in controller.queue() if other.rank < slurm_job.rank]
        if not ahead:
            return prefix_reason(
                "its priority of {own:number} was the highest (Resources)",
                room_reason(decided, job),
                own=slurm_job.priority,
            )
        first = ahead[0]
        return prefix_reason(
            "{ahead:jobs_were} ahead by priority, job {first:job} with {other:number} against its"
            " {own:number}, and nodes are kept for those (Priority)",
            room_reason(decided, job),
            ahead=len(ahead),
            first=first.id,
            other=first.priority,
            own=slurm_job.priority,
        )

    def _explain_not_queued(self, now_s: float, job: JobId) -> Reason | None:
        """Return the reason of a suspended or not yet eligible job; None for other jobs."""
        if job in self._controller.suspended:
            return Reason("it was suspended: jobs that go before it had its cores (Suspended)", {})
        if job not in self._waitlist.held:
            return None
        word = self._waitlist.why(now_s, job)
        return Reason("it was not eligible yet ({word:text})", {"word": word})

    def _grant(self, view: View, job: SlurmJob) -> Grant | None:
        """Reserve room for a started job and return its grant; None if it does not fit.

        Its surplus is added before servers are placed.
        """
        demand, room = view.demand(job.id), view.room
        held = replicas_on(job.held, demand.replicas, evenly=job.node_gpus > 0)
        order = self._order
        parts = [(order[place], count) for place, count in held]
        if any(room.replicas_that_fit(node, demand) < count for node, count in parts):
            return None
        nodes, counts = zip(*parts, strict=True)
        grant = Grant((Gang(Part(nodes, counts, demand.gpus, demand.cpus, demand.mem_gb)),))
        room.take(grant)
        self._surplus.add(job, demand)
        return (
            grant
            if demand.servers is None
            else self._placer.with_servers(view, demand.servers, grant)
        )

    def _submit(self, view: View, job: JobId) -> str:
        """Submit a job or hold it until eligible; return why it is refused, or "".

        Its id is registered in any case, for the dependencies of other jobs.
        """
        if len(view.names("dependency")) > 1:
            own_id = self._requests.text(view, "job_id", job)
            for job_id in dict.fromkeys((own_id, own_id.partition("_")[0])):
                self._jobs_of_id.setdefault(job_id, []).append(job)
        if job in self._lost and not self._requests.may_requeue(view, job):
            return "node that failed, and may not queue again: refused"
        try:
            entries = self._requests.job(view, job)
            # In a partition that cannot hold it, it would only block nodes of other jobs.
            fitting = tuple([one for one in entries if self._controller.could_fit(one)])
            held = self._check_begin_and_dependencies(view, fitting or entries)
        except (UnsatisfiableError, NotSimulatedError) as error:
            return str(error)
        if not fitting:
            return "shape that even the empty cluster cannot hold: refused"
        if self._calendar is not None and fitting[0].reservation:
            word = self._calendar.refusal(fitting[0])
            if word:
                return f"reservation that it may not use ({word}): refused"
        word = self._limits.refusal(fitting) if self._limits is not None else ""
        if word:
            return f"request beyond a limit ({word}): refused"
        if held is None:
            self._controller.submit(view.now_s, fitting[0], fitting[1:])
        else:
            self._waitlist.held[job] = held
        return ""

    def _check_begin_and_dependencies(
        self, view: View, entries: tuple[SlurmJob, ...]
    ) -> IneligibleJob | None:
        """Return a job as ineligible if begin time or dependencies delay it.

        None if it is eligible now. Registers the job's name for the dependencies of other jobs.
        `entries` are those of one job, one per partition.

        Raises
        ------
        UnsatisfiableError
            If a dependency cannot be read, or met.
        """
        job, requests = entries[0].id, self._requests
        begin_s = view.one("begin_s", job)
        text, name = requests.text(view, "dependency", job), ""
        if len(view.names("dependency")) > 1:
            name = requests.text(view, "name", job)
            self._waitlist.add_submission(job, entries[0].user, name)
        if not text and begin_s <= view.now_s:
            return None
        conditions, any_of = (
            conditions_of(text, self._jobs_of_id, requests.text(view, "job_id", job))
            if text
            else ((), False)
        )
        held = IneligibleJob(entries, begin_s, conditions, any_of, name)
        if self._waitlist.is_unsatisfiable(held):
            raise UnsatisfiableError(NEVER_MET)
        self._waitlist.held[job] = held
        why = self._waitlist.why(view.now_s, job)
        del self._waitlist.held[job]
        return held if why else None

    def follow(self, view: View) -> list[JobId]:
        """Pass ended jobs and changed nodes to the controller; return suspended jobs to requeue.

        Evicted jobs end too; the free resources are read from the view again.

        Returns
        -------
        list of JobId
            Suspended jobs that lost a node.
        """
        controller, delta = self._controller, view.delta
        controller.catch_up(view.now_s)
        gone = [*delta.finished, *(eviction.job for eviction in delta.evicted)]
        self._lost = {eviction.job for eviction in delta.evicted if eviction.cause != "void"}
        for job in delta.finished:
            self._waitlist.record_end(job, well=job not in self._failed)
        lost = [
            one.id
            for one in (controller.suspended.values() if delta.nodes else ())
            if not all(view.room.is_present(self._order[place]) for place, _ in one.held)
            and one.id not in gone
        ]
        self._lost.update(lost)
        for job in (*gone, *lost):
            self._end_job(view, job)
            controller.forget(job)
            self._waitlist.held.pop(job, None)
        if delta.nodes or delta.resized:
            controller.follow_nodes(view.now_s)
        if gone or delta.nodes or delta.resized:
            self._sync_nodes(view)
        return lost

    def _end_job(self, view: View, job: JobId) -> None:
        """End a running or suspended job in the controller, and remove its surplus.

        Other jobs are skipped.
        """
        controller = self._controller
        if (suspended := controller.suspended.get(job)) is not None:
            # With decision latency, the job may end before its stop takes effect.
            self._surplus.add_suspended(suspended, -1)
            controller.end(view.now_s, job)
        elif (running := controller.running.get(job)) is not None:
            self._surplus.add(running, view.demand(job), -1)
            controller.end(view.now_s, job)

    def _sync_nodes(self, view: View) -> None:
        """Set the controller's free resources per node: the view's, minus the surplus."""
        nodes, order = self._controller.nodes, self._order
        gpus: list[int] = view.free_gpus[order].tolist()
        cpus: list[float] = view.free_cpus[order].tolist()
        mem_gb: list[float] = view.free_mem_gb[order].tolist()
        self._surplus.subtract_from(gpus, cpus, mem_gb)
        nodes.set_free(gpus, cpus, mem_gb)

    def _placement_of(self, grant: Grant) -> Placement:
        """Return the (place, count) pairs of a grant's workers, by the controller's order.

        Nodes outside the cluster are skipped.
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
