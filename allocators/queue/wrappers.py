"""Wrapper policies: one policy per part of the cluster, or a change of policy mid-run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf

import numpy as np
from numpy.typing import NDArray

from allocators.inner_policies import InnerPolicy, MakePolicy, SubView, is_tick, next_tick
from allocators.placement import could_ever_hold
from sim.contract import (
    EMPTY,
    Allocator,
    Cadence,
    Card,
    Decided,
    Delta,
    Demand,
    Grant,
    JobId,
    Needs,
    ParameterError,
    Plan,
    QueueRule,
    Reason,
    Spec,
    View,
    instant,
    param,
    remarks_of,
    rule_of,
)


@dataclass
class _Part:
    """A virtual cluster or partition with its policy, jobs and nodes."""

    name: str
    inside: InnerPolicy
    pools: frozenset[int]
    elsewhere: NDArray[np.bool_]
    waiting: dict[JobId, None] = field(default_factory=dict)
    running: dict[JobId, Grant] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """Return True if any job of this part waits or runs."""
        return bool(self.waiting or self.running)


@dataclass
class Partition(Allocator):
    """Run a separate policy in each virtual cluster (VC) or partition.

    Notes
    -----
    A job may use the nodes of its VC or partition, and those that belong to none; a job without one
    may use all nodes. Parts that share nodes decide in order of their names, and each learns
    through ``delta.nodes`` that another has released resources. An inner policy is called exactly
    when it would be called without the wrapper, so the cost of a decision does not grow with the
    number of parts.
    """

    by: str = param(
        "vc",
        title="Column of partitions",
        choices=("vc", "partition"),
        labels={"vc": "Virtual cluster", "partition": "Partition"},
        help=("Column of a job's partition; nodes have the same names."),
    )
    inner: Spec = param(  # noqa: RUF009 - a Spec is frozen
        Spec("fifo"), title="Policy of each partition", help="The policy of each partition."
    )
    _make: MakePolicy | None = field(init=False, repr=False, default=None)
    _model: Allocator | None = field(init=False, repr=False, default=None)
    _parts: dict[int, _Part] = field(init=False, repr=False, default_factory=dict)
    _home: dict[JobId, int] = field(init=False, repr=False, default_factory=dict)
    _wakes: list[tuple[float, int]] = field(init=False, repr=False, default_factory=list)
    _pool_of: list[int] = field(init=False, repr=False, default_factory=list)

    card = Card(
        title="Policy per partition",
        brief="any policy, separately per group of nodes",
        what="Every virtual cluster or partition has its own policy and its own nodes.",
        cost="GPUs that one part does not use stay idle while another part waits.",
        limits=("A job never leaves its part; the limits of the inner policy apply."),
        source="Static quotas of Philly and Helios, partitions of Slurm",
        certainty="exact",
        goals=("combined",),
        how=(
            (
                "A job may use the nodes of its virtual cluster or partition, and those that belong"
                " to none."
            ),
            "Each part has its own policy, which does not see the other parts.",
            "It decides exactly when it would decide if it were alone.",
            "Idle GPUs of one part are not lent to another.",
        ),
    )

    def assemble(self, make: MakePolicy) -> None:
        """Build one inner policy to learn its needs; each part builds its own at its first job.

        Raises
        ------
        ParameterError
            If the inner policy confines jobs by another column, or cannot be built.
        """
        self._make, self._model = make, make(self.inner)
        if self._model.needs.confine_by not in {"", self.by}:
            raise ParameterError(
                f"partition: the inner policy {self.inner} confines jobs by another column than"
                f" '{self.by}'. Use one of the two."
            )

    @property
    def cadence(self) -> Cadence:
        """Return the cadence of the inner policy."""
        return self._inner_model().cadence

    @property
    def needs(self) -> Needs:
        """Return the needs of the inner policy, plus that jobs are kept in their part."""
        return self._inner_model().needs | Needs(confine_by=self.by)

    def rule(self) -> QueueRule | None:
        """Return the rule of the inner policy for each part."""
        rule = rule_of(self._inner_model())
        return None if rule is None or rule.by else replace(rule, by=self.by)

    def allocate(self, view: View, /) -> Plan:
        """Call the policies of the parts that are due and return their plans as one."""
        if not self._pool_of:
            self._begin(view)
        due_parts = self._route(view)
        changes: dict[JobId, Grant | None] = {}
        refuse: set[JobId] = set()
        notes: dict[str, float] = {}
        seamless: frozenset[JobId] = frozenset()
        ended: frozenset[JobId] = frozenset()
        for code in due_parts:
            part = self._parts[code]
            plan = self._decide_part(view, code, part)
            changes.update(plan.changes)
            refuse.update(plan.refuse)
            seamless |= plan.seamless
            ended |= plan.ended
            notes.update({f"{part.name}.{name}": value for name, value in plan.notes.items()})
        wake_at_s = self._next_wake()
        return (
            Plan(changes, frozenset(refuse), wake_at_s, notes, seamless, ended)
            if changes or refuse or ended or notes or wake_at_s < inf
            else EMPTY
        )

    def remarks(self) -> tuple[str, ...]:
        """Return the notes of the inner policies by part, and one if there is only one part."""
        parts = {part.name: remarks_of(part.inside.allocator) for part in self._parts.values()}
        of_all = set.intersection(*map(set, parts.values())) if parts else set[str]()
        part_notes = [
            sentence if sentence in of_all else f"{name}: {sentence}"
            for name, sentences in parts.items()
            for sentence in sentences
        ]
        all_notes = tuple(dict.fromkeys((*remarks_of(self._inner_model()), *part_notes)))
        if len(self._parts) != 1:
            return all_notes
        (part,) = self._parts.values()
        why = (
            f"no job names a {self.by}"
            if part.name == "none"
            else f"all jobs are of one {self.by}, {part.name}"
        )
        nodes = f" on the nodes of {part.name}" if part.elsewhere.any() else ""
        return (
            f"partition divided nothing: {why}; the schedule is that of {self.inner}{nodes}.",
            *all_notes,
        )

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """Return the reason of the part's own policy, with the part's name; None if unknown."""
        code = self._home.get(job)
        if code is None:
            return None
        part, home = self._parts[code], self._home
        reason = part.inside.allocator.explain(
            decided.narrowed(lambda one: home.get(one) == code, part.elsewhere), job
        )
        if reason is None or part.name == "none":
            return reason
        return reason._replace(
            rule=f"in {{part:text}}, {reason.rule}", values={**reason.values, "part": part.name}
        )

    def _inner_model(self) -> Allocator:
        """Return the policy that was built to learn its needs; raise if it is not built."""
        if self._model is None:
            raise ParameterError(
                "partition: the inner policy is not built yet. Build this one with allocators.make."
            )
        return self._model

    def _begin(self, view: View) -> None:
        """Record the pool of every node and the jobs that already run."""
        at = {node: pool for pool, nodes in enumerate(view.room.pools) for node in nodes.nodes}
        self._pool_of = [at[node] for node in range(len(at))] + [-1]
        for job, grant in view.grants.items():
            self._part_of(view, job).running[job] = grant

    def _part_of(self, view: View, job: JobId) -> _Part:
        """Record and return the part of a job; create it with its policy at its first job."""
        code = self._home[job] = int(view.one(self.by, job))
        part = self._parts.get(code)
        if part is None:
            assert self._make is not None
            name = view.names(self.by)[code]
            pools = frozenset(
                at
                for at, pool in enumerate(view.room.pools)
                if not name or not pool.partitions or name in pool.partitions
            )
            elsewhere = np.array([at not in pools for at in self._pool_of[:-1]])
            part = self._parts[code] = _Part(
                name or "none", InnerPolicy(self._make(self.inner)), pools, elsewhere
            )
        return part

    # -- routing of events
    # ----------------------------------------------------------------------------------------------

    def _route(self, view: View) -> Iterable[int]:
        """Send the events to the parts; return the codes of parts that must decide, ascending.

        If nothing explains the call, all parts are returned.
        """
        delta, parts = view.delta, self._parts
        touched: set[int] = set()
        for job in delta.arrived:
            part = self._part_of(view, job)
            part.waiting[job] = None
            part.inside.arrive(job)
            touched.add(self._home[job])
        self._route_endings(delta, touched)
        for node in delta.nodes:
            touched.update(self._notify_parts(node, -1))
        for job in delta.resized:
            if job in self._home:
                self._route_resize(view, job, touched)
        while self._wakes and self._wakes[0][0] <= view.now_s:
            touched.add(heappop(self._wakes)[1])
        if is_tick(view.now_s, self.cadence.every_s):
            touched.update(parts)
        elif not touched:
            return sorted(parts)  # no event explains the call, so any part may be due
        return sorted(
            code
            for code in touched
            if parts[code].inside.is_due(view.now_s, active=parts[code].is_active)
        )

    def _route_endings(self, delta: Delta, touched: set[int]) -> None:
        """Send ends and evictions to the parts of the jobs; add the parts to `touched`."""
        for eviction in delta.evicted:
            part = self._parts[self._home[eviction.job]]
            part.inside.evict(eviction)
            self._release_nodes(part, eviction.job, touched)
            part.waiting[eviction.job] = None
        for job in delta.finished:
            part = self._parts[self._home[job]]
            part.inside.finish(job)
            self._release_nodes(part, job, touched)
            part.waiting.pop(job, None)
            del self._home[job]

    def _route_resize(self, view: View, job: JobId, touched: set[int]) -> None:
        """Send a change of a job's size to its part, and to parts that share its nodes."""
        code = self._home[job]
        part = self._parts[code]
        part.inside.resize(job)
        touched.add(code)
        if job in part.running:
            self._release_nodes(part, job, touched)
            part.running[job] = view.grants[job]

    def _release_nodes(self, part: _Part, job: JobId, touched: set[int]) -> None:
        """Record that a job released its nodes; notify parts that share them.

        Adds the codes of all these parts to `touched`.
        """
        code = self._home[job]
        touched.add(code)
        grant = part.running.pop(job, None)
        if grant is not None and len(self._parts) > 1:
            for node in {
                node
                for gang in grant.gangs
                for role in gang
                if role is not None
                for node in role.nodes
            }:
                touched.update(self._notify_parts(node, code))

    def _notify_parts(self, node: int, except_code: int) -> list[int]:
        """Tell all parts but one that may use a changed node; return their codes."""
        pool = self._pool_of[node]
        notified = [
            code for code, part in self._parts.items() if pool in part.pools and code != except_code
        ]
        for code in notified:
            self._parts[code].inside.change_node(node)
        return notified

    # -- decisions of the parts
    # ----------------------------------------------------------------------------------------------

    def _decide_part(self, view: View, code: int, part: _Part) -> Plan:
        """Return the plan of one part, and record its starts, stops, refusals and wake-up."""
        sub = SubView(view, part.inside.take_events())
        sub.narrow(part.waiting, part.running, part.elsewhere)
        plan = part.inside.decide(sub)
        for job, grant in plan.changes.items():
            if grant is None:
                del part.running[job]
                part.waiting[job] = None
            else:
                part.waiting.pop(job, None)
                part.running[job] = grant
        for job in plan.refuse:
            part.waiting.pop(job, None)
            self._home.pop(job, None)
        if part.inside.wake_at_s < inf:
            heappush(self._wakes, (part.inside.wake_at_s, code))
        return plan

    def _next_wake(self) -> float:
        """Return the earliest wake-up of all parts, or inf; drop outdated ones."""
        wakes = self._wakes
        while wakes and wakes[0][0] != self._parts[wakes[0][1]].inside.wake_at_s:
            heappop(wakes)
        return wakes[0][0] if wakes else inf


def _smallest_demand(view: View, job: JobId) -> Demand:
    """Return the demand of a job at the smallest size that it may have."""
    demand = view.demand(job)
    return (
        replace(demand, replicas=max(1, int(view.one("min_gpus", job)))) if demand.gpus else demand
    )


@dataclass
class Switch(Allocator):
    """Change from one policy to another at a given time.

    Notes
    -----
    Before ``at_s`` the run equals one under ``first`` alone. Then ``then`` takes the whole state:
    every waiting job counts as just arrived, and running jobs continue until it decides otherwise.
    The needs of both are declared for the whole run, so a partition keeps confining jobs after the
    switch. A job that only ``first`` could have placed is refused after it.
    """

    at_s: float = param(
        86_400.0,
        title="Time of the change",
        unit="s",
        low=0,
        help="Time from the first submission to the change.",
    )
    first: Spec = param(  # noqa: RUF009 - a Spec is frozen
        Spec("fifo"), title="Policy before the change", help="The policy before the change."
    )
    then: Spec = param(  # noqa: RUF009 - a Spec is frozen
        Spec("easy"), title="Policy after the change", help="The policy after the change."
    )
    _first: InnerPolicy | None = field(init=False, repr=False, default=None)
    _then: InnerPolicy | None = field(init=False, repr=False, default=None)
    _begun: bool = field(init=False, repr=False, default=False)
    _switched: bool = field(init=False, repr=False, default=False)

    card = Card(
        title="Policy switch",
        brief="one policy, then another from a given time",
        what="Changes from one policy to another at a given time, to show the effect.",
        cost="None beyond those of the two policies.",
        limits="Only one change; only the jobs are carried over.",
        source="Ours",
        certainty="exact",
        goals=("combined",),
        how=(
            "Before the change the first policy decides, as if it were alone.",
            "Then the second policy takes over; it sees every waiting job as just arrived.",
            "Running jobs continue until it decides otherwise.",
            "Only the jobs are carried over.",
        ),
    )

    def assemble(self, make: MakePolicy) -> None:
        """Build both policies.

        Raises
        ------
        ParameterError
            If one of them cannot be built, or they confine jobs by different columns.
        """
        self._first, self._then = InnerPolicy(make(self.first)), InnerPolicy(make(self.then))
        if len({inside.allocator.needs.confine_by for inside in self._both()} - {""}) > 1:
            raise ParameterError(
                f"switch: {self.first} and {self.then} confine jobs by different columns. Use the"
                " same column in both."
            )

    @property
    def cadence(self) -> Cadence:
        """Return the events of both policies and the period of ``then``.

        The period of ``first`` is kept by wake-ups.
        """
        first, then = self._both()
        a, b = first.cadence, then.cadence
        return Cadence(
            a.on_arrival or b.on_arrival,
            a.on_finish or b.on_finish,
            a.on_capacity or b.on_capacity,
            b.every_s,
        )

    @property
    def needs(self) -> Needs:
        """Return the union of the needs of both policies."""
        first, then = self._both()
        return first.allocator.needs | then.allocator.needs

    def allocate(self, view: View, /) -> Plan:
        """Return the plan of the policy that is active now, if that is due.

        When ``then`` takes over, every waiting job counts as arrived, and impossible ones are
        refused.
        """
        first, then = self._both()
        self._begun, at_s = True, instant(self.at_s)
        if view.now_s < at_s:
            first.notify(self._possible_events(first, view, view.delta))
            plan = (
                first.decide(SubView(view, first.take_events()))
                if first.is_due(view.now_s, active=len(view.active) > 0)
                else EMPTY
            )
            own_tick_s = (
                inf
                if first.cadence.every_s == then.cadence.every_s
                else next_tick(view.now_s, first.cadence.every_s)
            )
            return plan._replace(wake_at_s=min(at_s, first.wake_at_s, own_tick_s))
        installed, self._switched = not self._switched, True
        delta = Delta(tuple(view.waiting.ids.tolist())) if installed else view.delta
        possible = self._possible_events(then, view, delta)
        impossible = frozenset(delta.arrived).difference(possible.arrived)
        then.notify(possible)
        if installed or then.is_due(view.now_s, active=len(view.active) > 0):
            plan = then.decide(SubView(view, then.take_events()))
            return plan._replace(refuse=plan.refuse | impossible) if impossible else plan
        return (
            Plan(refuse=impossible, wake_at_s=then.wake_at_s)
            if impossible or then.wake_at_s < inf
            else EMPTY
        )

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """Return the explanation of the policy that decides now."""
        first, then = self._both()
        inside = then if self._switched else first
        return inside.allocator.explain(decided, job)

    def remarks(self) -> tuple[str, ...]:
        """Return the notes of both policies, and one if the run ended before the change."""
        inner_notes = tuple(
            dict.fromkeys(
                sentence for inside in self._both() for sentence in remarks_of(inside.allocator)
            )
        )
        if self._switched or not self._begun:
            return inner_notes
        return (
            (
                f"switch never changed: nothing was left to decide at {self.at_s:,.0f} s; the"
                f" schedule is that of {self.first}."
            ),
            *inner_notes,
        )

    def _both(self) -> tuple[InnerPolicy, InnerPolicy]:
        """Return the two inner policies, or raise if they are not built."""
        if self._first is None or self._then is None:
            raise ParameterError(
                "switch: the inner policies are not built yet. Build this one with allocators.make."
            )
        return self._first, self._then

    def _possible_events(self, inside: InnerPolicy, view: View, delta: Delta) -> Delta:
        """Return a delta without arrivals that one inner policy alone could never place."""
        both, own = self.needs, inside.allocator.needs
        more = (both.requires - own.requires) & {"overflow", "scaling"}
        mixed, scales = own.mixes_types, "scaling" in own.requires
        if not delta.arrived or not (more or both.mixes_types > mixed):
            return delta
        demands = (
            (job, _smallest_demand(view, job) if scales else view.demand(job))
            for job in delta.arrived
        )
        return delta._replace(
            arrived=tuple(
                job for job, demand in demands if could_ever_hold(view, demand, mixed=mixed)
            )
        )
