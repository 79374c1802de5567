"""Quotas of teams around any policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Final

import numpy as np

from allocators.nesting import Inside, Make, SubView
from allocators.quotas import (
    CATCH_ALL,
    Quota,
    QuotaTree,
    read_quotas,
    with_catch_all,
)
from allocators.tenants import gpus_to_share, named, tenant_column, tenant_param
from sim.contract import (
    EMPTY,
    Allocator,
    Cadence,
    Card,
    Decided,
    JobId,
    Needs,
    ParameterError,
    Plan,
    Reason,
    Spec,
    View,
    param,
    remarks_of,
)

_CORES: Final = "cpus"
_SIZES: Final = frozenset({"scaling", "forks"})
_TOLERANCE: Final = 1e-9


@dataclass
class Quotas(Allocator):
    """Let each team's jobs through to another policy as far as its quota goes.

    Notes
    -----
    A job is let through when its team, and every group above it, has room for it: within the quota,
    or, where quotas are lent, while what the team holds is below its fair share of what is asked
    for. From then on it counts as held by its team until it ends, also while the inner policy lets
    it wait. Nothing is taken back: what was lent returns when the jobs on it end. Within a team
    jobs are let through by priority, then submission; the inner policy orders all that were.

    A job that is larger than its team may ever hold is refused, which is said.
    """

    inner: Spec = param(  # noqa: RUF009 - a Spec is frozen
        Spec("fifo"),
        title="Policy of all teams",
        help="The policy that starts the jobs within quotas.",
    )
    table: str = param(
        "",
        title="Quotas",
        help=(
            "Rows such as a: 8 max 12 weight 2 priority 1 under research, separated by"
            " semicolons; empty = equal parts for all tenants."
        ),
    )
    borrow: bool = param(
        True,
        title="Lend unused quotas",
        help="Whether a tenant may hold more than its quota while others do not need theirs.",
    )
    skip: bool = param(
        True,
        title="Smaller jobs may pass",
        help="Whether a job within its tenant's quota may pass an earlier job beyond its quota.",
    )
    tenant: str = tenant_param()
    resource: str = param(
        "gpus",
        title="Quotas are in",
        choices=("gpus", _CORES),
        labels={"gpus": "GPUs", _CORES: "Cores"},
        help="What the table counts: the GPUs that jobs hold, or their cores.",
    )
    _rows: tuple[Quota, ...] = field(init=False, repr=False, default=())
    _inside: Inside | None = field(init=False, repr=False, default=None)
    _state: _Admission | None = field(init=False, repr=False, default=None)

    card = Card(
        title="Quotas",
        brief="quotas of teams around another policy",
        what="Every tenant has a quota of GPUs; another policy starts the jobs within it.",
        cost="GPUs may idle while a tenant at its limit has waiting jobs.",
        limits="Never stops a job, so lent GPUs come back only when jobs end.",
        source="Ours; fair shares as in KAI Scheduler",
        certainty="exact",
        goals=("fairness",),
        how=(
            "A job waits outside while its team, or a group above it, is at its limit.",
            "The limit is the quota, or the fair share where quotas are lent.",
            "Jobs let through are started by the inner policy, as if there were no others.",
            "A job counts as held by its team from then on, until it ends.",
        ),
    )

    def __post_init__(self) -> None:
        """Read the table.

        Raises
        ------
        ParameterError
            If it cannot be read.
        """
        try:
            self._rows = read_quotas(self.table)
        except ParameterError as error:
            raise ParameterError(f"quota: table: {error}") from error

    def assemble(self, make: Make) -> None:
        """Build the inner allocator.

        Raises
        ------
        ParameterError
            If it cannot be built, or changes the size of jobs.
        """
        inner = make(self.inner)
        if inner.needs.requires & _SIZES:
            raise ParameterError(
                f"quota: {self.inner} changes the size of jobs, which quotas do not bound. Use a"
                " policy that keeps it."
            )
        self._inside = Inside(inner)

    @property
    def cadence(self) -> Cadence:
        """After every event, and when the inner allocator decides periodically."""
        return Cadence(every_s=self._within().cadence.every_s)

    @property
    def needs(self) -> Needs:
        """What the inner allocator needs."""
        return self._within().allocator.needs

    def allocate(self, view: View, /) -> Plan:
        """Let through what quotas allow, and ask the inner policy."""
        inside, state = self._within(), self._state
        if state is None:
            state = self._state = _Admission(view, self)
        delta = view.delta
        ended = tuple(job for job in delta.finished if job in state.visible)
        hopeless = state.follow(view)
        inside.notify(delta._replace(arrived=(), finished=ended))
        for job in state.let_through(view):
            inside.arrive(job)
        plan = EMPTY
        if inside.is_due(view.now_s, active=bool(state.visible)):
            sub = SubView(view, inside.news())
            if state.hidden:
                waiting = [job for job in state.visible if job not in view.grants]
                sub.narrow(sorted(waiting), list(view.grants), np.zeros(len(view.capacity), bool))
            plan = inside.decide(sub)
        for job in plan.refuse:
            state.forget(job)
        if not hopeless:
            return plan._replace(wake_at_s=inside.wake_at_s)
        return plan._replace(refuse=plan.refuse | hopeless, wake_at_s=inside.wake_at_s)

    def quotas(self) -> tuple[Quota, ...]:
        """Return the rows of its table in GPUs."""
        return () if self.resource == _CORES else self._rows

    def remarks(self) -> tuple[str, ...]:
        """Say which quotas were assumed, who has none, and what was refused."""
        said = self._state.remarks() if self._state is not None else ()
        return (*said, *remarks_of(self._within().allocator))

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """State how the quota of its team stands, or what the inner policy states."""
        state = self._state
        if state is None or job not in state.leaf_of:
            return None
        if job not in state.hidden:
            visible = state.visible
            return self._within().allocator.explain(
                decided.narrowed(lambda one: one in visible, None), job
            )
        return state.reason(job)

    def _within(self) -> Inside:
        if self._inside is None:
            raise ParameterError(
                "quota: the inner policy is not built yet. Build this one with allocators.make."
            )
        return self._inside


class _Admission:
    """Who was let through, and what each row holds."""

    def __init__(self, view: View, policy: Quotas) -> None:
        self._borrow, self._skip = policy.borrow, policy.skip
        self._column = tenant_column(view, policy.tenant)
        self._resource = policy.resource
        self._unit = "cores" if policy.resource == _CORES else "GPUs"
        self._cores = float(sum([node.cpus for node in view.cluster.nodes]))
        names = named(view, self._column)
        total = self._total(view)
        given = policy._rows
        each = max(1.0, total // max(1, len(names))) if total < inf else total
        rows = given or tuple(Quota(name, each) for name in names) or (Quota(CATCH_ALL, total),)
        self.tree = QuotaTree(with_catch_all(rows))
        self._strangers = [name for name in names if name not in self.tree.at]
        self._said = self._about(given, rows, total, bool(names))
        self.used = [0.0] * len(self.tree.rows)
        self.asked = [0.0] * len(self.tree.rows)
        self.limits = [0.0] * len(self.tree.rows)
        self.leaf_of: dict[JobId, int] = {}
        self._size: dict[JobId, float] = {}
        self.visible: set[JobId] = set()
        self.hidden: set[JobId] = set()
        self._lines: dict[int, dict[float, list[tuple[float, JobId]]]] = {}
        self._refused = 0
        for job in view.grants:
            self._add(view, job)
            self._admit(job)

    def _about(
        self, given: tuple[Quota, ...], rows: tuple[Quota, ...], total: float, has_teams: bool
    ) -> list[str]:
        said = []
        if total == inf and not given:
            said.append("quota: the nodes have no number of cores, so none are shared out.")
        elif not given:
            said.append(
                f"quota was given no table: the teams of column {self._column} have"
                f" {rows[0].deserved:g} {self._unit} each. A table by their use of the trace:"
                " trainyard tenants."
                if has_teams
                else "quota was given no table, and the trace names no teams: nobody has a quota."
            )
        elif self._strangers:
            some = ", ".join(self._strangers[:5])
            more = f" and {len(self._strangers) - 5} more" if len(self._strangers) > 5 else ""
            said.append(f"quota: {some}{more} have no row; their quota is 0 ({CATCH_ALL}).")
        whole = sum([row.deserved for row in rows if not row.parent])
        if whole > total:
            said.append(
                f"quota: the quotas add up to {whole:g} {self._unit}, the cluster has {total:g}."
            )
        return said

    def remarks(self) -> tuple[str, ...]:
        """Return sentences for the user."""
        if not self._refused:
            return tuple(self._said)
        jobs = "1 job was" if self._refused == 1 else f"{self._refused:,} jobs were"
        return (
            *self._said,
            f"{jobs} refused: larger than what the quota of the team ever allows.",
        )

    def _total(self, view: View, *, now: bool = False) -> float:
        """Return what there is to share."""
        if self._resource == _CORES:
            return self._cores
        return float((view.capacity if now else gpus_to_share(view)).sum())

    def follow(self, view: View) -> frozenset[JobId]:
        """Take in who came and went; return those that can never be let through."""
        for job in view.delta.finished:
            self.forget(job)
        hopeless = set()
        for job in view.delta.arrived:
            leaf = self._add(view, job)
            size = self._size[job]
            if any(size > self._most(at) + _TOLERANCE for at in self.tree.path(leaf)):
                hopeless.add(job)
                self.forget(job)
                continue
            self.hidden.add(job)
            line = self._lines.setdefault(leaf, {}).setdefault(size, [])
            heappush(line, (-view.one("priority", job), job))
        self._refused += len(hopeless)
        return frozenset(hopeless)

    def forget(self, job: JobId) -> None:
        """Note that a job is over."""
        leaf, size = self.leaf_of.pop(job, None), self._size.pop(job, 0.0)
        if leaf is None:
            return
        for at in self.tree.path(leaf):
            self.asked[at] -= size
            if job in self.visible:
                self.used[at] -= size
        self.visible.discard(job)
        self.hidden.discard(job)

    def let_through(self, view: View) -> list[JobId]:
        """Return the jobs that quotas let through now."""
        if not self.hidden:
            return []
        total = self._total(view, now=True)
        self.limits = self.tree.shares(total, self.asked)
        found: list[JobId] = []
        # The team furthest below its share is next, so that no order of names decides.
        open_ = {leaf for leaf, line in self._lines.items() if line}
        while open_:
            leaf = min(open_, key=lambda at: (self.used[at] / max(self.limits[at], 1e-9), at))
            job = self._first(leaf, total)
            if job is None:
                open_.remove(leaf)
                continue
            self._admit(job)
            self.hidden.remove(job)
            found.append(job)
        return sorted(found)

    def reason(self, job: JobId) -> Reason:
        """Say which row keeps a job out."""
        leaf = self.leaf_of[job]
        size = self._size[job]
        at = next((at for at in self.tree.path(leaf) if not self._allows(at, size)), leaf)
        row = self.tree.rows[at]
        asked = "{need:gpus}" if self._resource != _CORES else "{need:number} cores"
        return Reason(
            f"its quota: {{team:text}} held {{held:number}} {self._unit} of {{quota:number}}, with"
            f" a fair share of {{share:number}}, and this job asks for {asked}",
            {
                "team": row.name,
                "held": self.used[at],
                "quota": row.deserved,
                "share": self.limits[at],
                "need": int(size) if self._resource != _CORES else size,
            },
        )

    def _add(self, view: View, job: JobId) -> int:
        code = int(view.one(self._column, job))
        names = view.names(self._column)
        leaf = self.tree.leaf(names[code] if code >= 0 else "")
        self.leaf_of[job] = leaf
        size = self._size[job] = float(view.one(self._resource, job))
        for at in self.tree.path(leaf):
            self.asked[at] += size
        return leaf

    def _admit(self, job: JobId) -> None:
        self.visible.add(job)
        for at in self.tree.path(self.leaf_of[job]):
            self.used[at] += self._size[job]

    def _most(self, at: int) -> float:
        """Return what a row may hold when nobody else asks for anything."""
        row = self.tree.rows[at]
        return row.maximum if self._borrow and row.weight else min(row.deserved, row.maximum)

    def _allows(self, at: int, size: float) -> bool:
        row, after = self.tree.rows[at], self.used[at] + size - _TOLERANCE
        if not size:
            return True
        if after > row.maximum:
            return False
        return after <= row.deserved or (
            self._borrow and row.weight > 0 and self.used[at] < self.limits[at]
        )

    def _first(self, leaf: int, total: float) -> JobId | None:
        """Return the first job of a team that its quota lets through."""
        path, lines = self.tree.path(leaf), self._lines[leaf]
        heads = []
        for size, line in list(lines.items()):
            while line and line[0][1] not in self.hidden:
                heappop(line)
            if line:
                heads.append((line[0], size))
            else:
                del lines[size]
        held = sum([self.used[at] for at, above in enumerate(self.tree.above) if above < 0])
        for (_, job), size in sorted(heads):
            lent = any(self.used[at] + size > self.tree.rows[at].deserved for at in path)
            if all(self._allows(at, size) for at in path) and (not lent or held + size <= total):
                return job
            if not self._skip:
                return None
        return None


def hard_quotas(inner: Spec, table: str, tenant: str, resource: str = "gpus") -> Spec:
    """Return a policy with quotas around it that are not lent.

    Parameters
    ----------
    inner : Spec
        The policy.
    table, tenant, resource : str
        As the parameters of `Quotas`.
    """
    more = {} if resource == "gpus" else {"resource": resource}
    return Spec.of("quota", inner=inner, table=table, tenant=tenant, borrow=False, **more)
