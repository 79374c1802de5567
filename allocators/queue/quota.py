"""Quota wrapper: quotas of tenants around any policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Final

import numpy as np

from allocators.inner_policies import InnerPolicy, MakePolicy, SubView
from allocators.quotas import (
    CATCH_ALL,
    Quota,
    QuotaTree,
    read_quotas,
    with_catch_all,
)
from allocators.tenants import gpus_to_share, tenant_column, tenant_names, tenant_param
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
    """Pass jobs to an inner policy while they are within the quota of their team.

    Notes
    -----
    A job is admitted when its team, and every group above it, has room for it: within the quota,
    or, with lending, while the team holds less than its fair share of all requests. From then on it
    counts as held by its team until it ends, even while it waits in the inner policy. Lent GPUs
    return only when jobs end. Jobs of a team are admitted by priority, then submission; the inner
    policy orders all admitted jobs.

    A job that is larger than its team may ever hold is refused, with a note.
    """

    inner: Spec = param(  # noqa: RUF009 - a Spec is frozen
        Spec("fifo"),
        title="Policy of all tenants",
        help="Starts the jobs within quotas.",
    )
    table: str = param(
        "",
        title="Quotas",
        help=(
            "Rows such as a: 8 max 12 weight 2 priority 1 under research, separated by semicolons."
            " max: most GPUs; weight: part of unused GPUs; priority: higher gets these first;"
            " under: group that shares its quota. Empty = equal quotas."
        ),
    )
    borrow: bool = param(
        True,
        title="Lend unused quotas",
        help="Whether a tenant may use quota that others do not need.",
    )
    skip: bool = param(
        True,
        title="Smaller jobs may pass",
        help="Whether a job within its quota may pass an earlier one beyond its quota.",
    )
    tenant: str = tenant_param()
    resource: str = param(
        "gpus",
        title="Quotas are in",
        choices=("gpus", _CORES),
        labels={"gpus": "GPUs", _CORES: "Cores"},
        help="What the table counts: GPUs held, or cores.",
    )
    _rows: tuple[Quota, ...] = field(init=False, repr=False, default=())
    _inside: InnerPolicy | None = field(init=False, repr=False, default=None)
    _state: _Admission | None = field(init=False, repr=False, default=None)

    card = Card(
        title="Tenant quotas",
        brief="any policy, with a GPU quota per tenant",
        what="Every tenant has a quota of GPUs; another policy starts the jobs within it.",
        cost="GPUs may idle while a tenant at its limit has waiting jobs.",
        limits="Never preempts jobs, so lent GPUs come back only when jobs end.",
        source="Ours; fair shares as in KAI Scheduler",
        certainty="exact",
        goals=("combined", "fairness"),
        how=(
            "A job waits outside while its team, or a group above it, is at its limit.",
            "The limit is the quota, or the fair share where quotas are lent.",
            "Jobs let through are started by the inner policy, as if there were no others.",
            "A job counts against its team's quota until it ends.",
        ),
    )

    def __post_init__(self) -> None:
        """Parse the quota table.

        Raises
        ------
        ParameterError
            If the table cannot be read.
        """
        try:
            self._rows = read_quotas(self.table)
        except ParameterError as error:
            raise ParameterError(f"quota: table: {error}") from error

    def assemble(self, make: MakePolicy) -> None:
        """Build the inner policy.

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
        self._inside = InnerPolicy(inner)

    @property
    def cadence(self) -> Cadence:
        """Decide after every event, and in the period of the inner policy."""
        return Cadence(every_s=self._inner_policy().cadence.every_s)

    @property
    def needs(self) -> Needs:
        """Return the needs of the inner policy."""
        return self._inner_policy().allocator.needs

    def allocate(self, view: View, /) -> Plan:
        """Admit jobs within their quotas, refuse too large ones, and return the inner plan.

        The inner policy is called if it is due, and sees only admitted jobs.
        """
        inside, state = self._inner_policy(), self._state
        if state is None:
            state = self._state = _Admission(view, self)
        delta = view.delta
        ended = tuple(job for job in delta.finished if job in state.visible)
        impossible = state.update_jobs(view)
        inside.notify(delta._replace(arrived=(), finished=ended))
        for job in state.admit_jobs(view):
            inside.arrive(job)
        plan = EMPTY
        if inside.is_due(view.now_s, active=bool(state.visible)):
            sub = SubView(view, inside.take_events())
            if state.hidden:
                waiting = [job for job in state.visible if job not in view.grants]
                sub.narrow(sorted(waiting), list(view.grants), np.zeros(len(view.capacity), bool))
            plan = inside.decide(sub)
        for job in plan.refuse:
            state.forget(job)
        if not impossible:
            return plan._replace(wake_at_s=inside.wake_at_s)
        return plan._replace(refuse=plan.refuse | impossible, wake_at_s=inside.wake_at_s)

    def quotas(self) -> tuple[Quota, ...]:
        """Return the quota rows in GPUs; none if they count cores."""
        return () if self.resource == _CORES else self._rows

    def remarks(self) -> tuple[str, ...]:
        """Return notes on assumed quotas and refused jobs, then the inner policy's notes."""
        own_notes = self._state.remarks() if self._state is not None else ()
        return (*own_notes, *remarks_of(self._inner_policy().allocator))

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """Explain a wait by the quota of the job's team or by the inner policy; None if unknown."""
        state = self._state
        if state is None or job not in state.leaf_of:
            return None
        if job not in state.hidden:
            visible = state.visible
            return self._inner_policy().allocator.explain(
                decided.narrowed(lambda one: one in visible, None), job
            )
        return state.reason(job)

    def _inner_policy(self) -> InnerPolicy:
        """Return the inner policy, or raise if it is not built."""
        if self._inside is None:
            raise ParameterError(
                "quota: the inner policy is not built yet. Build this one with allocators.make."
            )
        return self._inside


class _Admission:
    """Admitted and hidden jobs, and the use, requests and limits of every quota row."""

    def __init__(self, view: View, policy: Quotas) -> None:
        self._borrow, self._skip = policy.borrow, policy.skip
        self._column = tenant_column(view, policy.tenant)
        self._resource = policy.resource
        self._unit = "cores" if policy.resource == _CORES else "GPUs"
        self._cores = float(sum([node.cpus for node in view.cluster.nodes]))
        names = tenant_names(view, self._column)
        total = self._total(view)
        given = policy._rows
        each = max(1.0, total // max(1, len(names))) if total < inf else total
        rows = given or tuple(Quota(name, each) for name in names) or (Quota(CATCH_ALL, total),)
        self.tree = QuotaTree(with_catch_all(rows))
        self._without_row = [name for name in names if name not in self.tree.at]
        self._notes = self._table_notes(given, rows, total, bool(names))
        self.used = [0.0] * len(self.tree.rows)
        self.requested = [0.0] * len(self.tree.rows)
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

    def _table_notes(
        self, table_rows: tuple[Quota, ...], rows: tuple[Quota, ...], total: float, has_teams: bool
    ) -> list[str]:
        """Return notes on assumed quotas, teams without a row, and quotas above the total."""
        notes = []
        if total == inf and not table_rows:
            notes.append("quota: the nodes have no number of cores, so none are shared out.")
        elif not table_rows:
            notes.append(
                f"quota has no table: the teams of column {self._column} have"
                f" {rows[0].deserved:g} {self._unit} each. A table by their use of the trace:"
                " trainyard tenants."
                if has_teams
                else "quota has no table, and the trace names no teams: no quota applies."
            )
        elif self._without_row:
            some = ", ".join(self._without_row[:5])
            more = f" and {len(self._without_row) - 5} more" if len(self._without_row) > 5 else ""
            notes.append(f"quota: {some}{more} have no row; their quota is 0 ({CATCH_ALL}).")
        whole = sum([row.deserved for row in rows if not row.parent])
        if whole > total:
            notes.append(
                f"quota: the quotas add up to {whole:g} {self._unit}, the cluster has {total:g}."
            )
        return notes

    def remarks(self) -> tuple[str, ...]:
        """Return the notes on the quota table, and one if jobs were refused."""
        if not self._refused:
            return tuple(self._notes)
        jobs = "1 job was" if self._refused == 1 else f"{self._refused:,} jobs were"
        return (
            *self._notes,
            f"{jobs} refused: larger than what the quota of the team ever allows.",
        )

    def _total(self, view: View, *, now: bool = False) -> float:
        """Return the GPUs or cores to share; `now` counts only GPUs in service."""
        if self._resource == _CORES:
            return self._cores
        return float((view.capacity if now else gpus_to_share(view)).sum())

    def update_jobs(self, view: View) -> frozenset[JobId]:
        """Remove finished jobs, add arrivals as hidden; return jobs too large for their quota."""
        for job in view.delta.finished:
            self.forget(job)
        impossible = set()
        for job in view.delta.arrived:
            leaf = self._add(view, job)
            size = self._size[job]
            if any(size > self._most(at) + _TOLERANCE for at in self.tree.path(leaf)):
                impossible.add(job)
                self.forget(job)
                continue
            self.hidden.add(job)
            line = self._lines.setdefault(leaf, {}).setdefault(size, [])
            heappush(line, (-view.one("priority", job), job))
        self._refused += len(impossible)
        return frozenset(impossible)

    def forget(self, job: JobId) -> None:
        """Remove a job and its use and request."""
        leaf, size = self.leaf_of.pop(job, None), self._size.pop(job, 0.0)
        if leaf is None:
            return
        for at in self.tree.path(leaf):
            self.requested[at] -= size
            if job in self.visible:
                self.used[at] -= size
        self.visible.discard(job)
        self.hidden.discard(job)

    def admit_jobs(self, view: View) -> list[JobId]:
        """Admit and return the jobs that quotas allow now, in order of job id.

        The team furthest below its share goes first. Also updates the shares of all rows.
        """
        if not self.hidden:
            return []
        total = self._total(view, now=True)
        self.limits = self.tree.shares(total, self.requested)
        admitted: list[JobId] = []
        # The team furthest below its share is next, so the order of names does not matter.
        teams = {leaf for leaf, line in self._lines.items() if line}
        while teams:
            leaf = min(teams, key=lambda at: (self.used[at] / max(self.limits[at], 1e-9), at))
            job = self._first(leaf, total)
            if job is None:
                teams.remove(leaf)
                continue
            self._admit(job)
            self.hidden.remove(job)
            admitted.append(job)
        return sorted(admitted)

    def reason(self, job: JobId) -> Reason:
        """Explain a wait by the quota row that blocks a job."""
        leaf = self.leaf_of[job]
        size = self._size[job]
        at = next((at for at in self.tree.path(leaf) if not self._allows(at, size)), leaf)
        row = self.tree.rows[at]
        request = "{need:gpus}" if self._resource != _CORES else "{need:number} cores"
        return Reason(
            f"its quota: {{team:text}} held {{held:number}} {self._unit} of {{quota:number}}, with"
            f" a fair share of {{share:number}}, and this job asks for {request}",
            {
                "team": row.name,
                "held": self.used[at],
                "quota": row.deserved,
                "share": self.limits[at],
                "need": int(size) if self._resource != _CORES else size,
            },
        )

    def _add(self, view: View, job: JobId) -> int:
        """Record the team, size and request of a new job; return the row of its team."""
        code = int(view.one(self._column, job))
        names = view.names(self._column)
        leaf = self.tree.leaf(names[code] if code >= 0 else "")
        self.leaf_of[job] = leaf
        size = self._size[job] = float(view.one(self._resource, job))
        for at in self.tree.path(leaf):
            self.requested[at] += size
        return leaf

    def _admit(self, job: JobId) -> None:
        """Show a job to the inner policy and count it as held."""
        self.visible.add(job)
        for at in self.tree.path(self.leaf_of[job]):
            self.used[at] += self._size[job]

    def _most(self, at: int) -> float:
        """Return the most that a row may hold when no other row requests anything."""
        row = self.tree.rows[at]
        return row.maximum if self._borrow and row.weight else min(row.deserved, row.maximum)

    def _allows(self, at: int, size: float) -> bool:
        """Return True if a row has room for a job of this size, within its quota or borrowed."""
        row, after = self.tree.rows[at], self.used[at] + size - _TOLERANCE
        if not size:
            return True
        if after > row.maximum:
            return False
        return after <= row.deserved or (
            self._borrow and row.weight > 0 and self.used[at] < self.limits[at]
        )

    def _first(self, leaf: int, total: float) -> JobId | None:
        """Return the first job of a team that its quota allows, or None; it is not admitted."""
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
    """Return the spec of a policy inside quotas that are not lent.

    Parameters
    ----------
    inner : Spec
        The inner policy.
    table, tenant, resource : str
        Parameters of `Quotas`.
    """
    more = {} if resource == "gpus" else {"resource": resource}
    return Spec.of("quota", inner=inner, table=table, tenant=tenant, borrow=False, **more)
