"""Running jobs between decisions: progress, pauses, segments, checkpoints and losses.

It has no clock; the caller passes the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nextafter
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from sim.clock import PER_S, WHOLE, instant, later
from sim.contract import Grant, JobId
from sim.engine.columns import Columns
from sim.engine.ledger import Holding, Ledger, parts_of
from sim.engine.record import CHANGED, EVICTED, FINISHED, PREEMPTED, Record
from sim.errors import ContractError, RateError
from sim.overheads import Overheads
from sim.perf.model import Using

if TYPE_CHECKING:
    from sim.conditions import Conditions
    from sim.demand import Demands
    from sim.perf.model import PerfModel

FINISH, ASK, OOM, SERVER_OOM, INTERRUPTION, OVERLAP_END = range(6)

Next = tuple[float, int]
"""Instant and kind of a running job's next event, unless a plan or an outage comes first."""

NEVER: Final[Next] = (inf, FINISH)


@dataclass(slots=True)
class Stint:
    """Future events of a running job other than its end; most jobs have none and no stint.

    Attributes
    ----------
    rate_ends : Next
        End of the current rate, and the event at that instant.
    work_then : float
        Work done at that end; inf = the rate ends at a time, not at an amount of work.
    interrupted_s : float, seconds
        Instant of the next interruption.
    overlap_ends : Next
        End of the overlap, when the previous grant is freed.
    before : Grant or None
        The previous grant; None = no overlap.
    pause_s : float, seconds
        Pause of the current change: after an overlap, else at once.
    """

    rate_ends: Next = NEVER
    work_then: float = inf
    interrupted_s: float = inf
    overlap_ends: Next = NEVER
    before: Grant | None = None
    pause_s: float = 0.0


class Execution:
    """Progress of the running jobs: starts, changes, interruptions and ends of their grants.

    Parameters
    ----------
    columns, ledger, record, demands
        State, holdings, record and demands of the run; this class writes the first three.
    model : PerfModel
        True speeds and sizes.
    conditions : Conditions
        Costs of changes, interruptions and the seed.
    preemptible : array of bool, shape (jobs,)
        Whether a running job may be stopped or changed.
    """

    __slots__ = (
        "_columns",
        "_demand_of",
        "_efficiency",
        "_exposure",
        "_faults",
        "_has_no_pauses",
        "_interrupts",
        "_ledger",
        "_loses_all",
        "_overheads",
        "_preemptible",
        "_rate_of",
        "_record",
        "_seamless_transition",
        "_seed",
        "_stints",
        "_suspended",
        "_transition",
        "_usage_of",
        "_work",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - the one place where truth, holdings and record meet
        self,
        columns: Columns,
        ledger: Ledger,
        record: Record,
        demands: Demands,
        model: PerfModel,
        conditions: Conditions,
        preemptible: NDArray[np.bool_],
    ) -> None:
        overheads, faults, seed = conditions.overheads, conditions.faults, conditions.seed
        self._columns, self._ledger, self._record = columns, ledger, record
        self._overheads, self._faults, self._seed = overheads, faults, seed
        self._preemptible = preemptible.tobytes()
        self._work: memoryview[float] = memoryview(np.ascontiguousarray(model.work(), np.float64))  # type: ignore[arg-type]
        self._demand_of, self._rate_of = demands.of, model.rate
        self._efficiency = overheads.efficiency
        self._loses_all = overheads.on_preempt == "lose_all"
        self._stints: dict[JobId, Stint] = {}
        self._suspended: dict[JobId, tuple[Grant, float]] = {}
        """Suspended job -> its grant, and the remaining seconds of a pause."""
        # node-seconds to the next interruption, for jobs between two grants
        self._exposure: dict[JobId, float] = {}
        self._seamless_transition, self._transition = (
            overheads.transition,
            overheads.without_overlap().transition,
        )
        self._interrupts = faults.interruptions_per_node_h > 0
        self._usage_of = model.usage if isinstance(model, Using) else None
        self._has_no_pauses = type(overheads) is Overheads and not (
            overheads.start_s or overheads.restart_s or overheads.overlap_s
        )

    def end_grant(
        self, job: JobId, grant: Grant | None, now_s: float, *, seamless: bool, reserved: bool
    ) -> None:
        """End the grant of a running job that the plan stops or changes.

        A stopped job (`grant` is None) waits again; a changed one must then be passed to
        `begin_grant`. Where moves take time, a `seamless` job keeps its old holding until the move
        is over; a seamless job that is stopped is suspended. With `reserved` the holdings of
        stopped jobs are free already; otherwise `Ledger.give_back` must follow.

        Raises
        ------
        ContractError
            If the job must not be stopped or changed.
        """
        if not self._preemptible[job]:
            raise ContractError("it must not be stopped or changed once it runs")
        if self.overlaps(job):
            self.end_overlap(job, now_s)
        columns = self._columns
        columns.preemptions[job] += 1
        if grant is not None and not self._has_no_pauses:
            old = self._ledger.grants[job]
            overlap_s, pause_s = (self._seamless_transition if seamless else self._transition)(
                job, old, grant, restarted=True
            )
            stint = self._stints.setdefault(job, Stint())
            stint.pause_s = pause_s * self._share_moved(job, old, grant, now_s)
            if overlap_s > 0:
                stint.overlap_ends = instant(now_s + overlap_s), OVERLAP_END
                stint.before = old
                return
        suspends = seamless and grant is None
        if suspends:
            self._apply_checkpoints(job, now_s)
            left_s = max(columns.resume[job] - now_s, 0.0)
            self._suspended[job] = self._ledger.grants[job], left_s
        self._close_segment(job, now_s, PREEMPTED if grant is None else CHANGED)
        if self._loses_all and not suspends:
            self._add_lost_work(job, self._work[job] - columns.left[job])
        if columns.unsaved_s[job] and not suspends:
            columns.unsaved[job] = columns.unsaved_s[job] = 0.0
        if self._interrupts:
            self._save_exposure(job, self._ledger.grants[job], now_s)
        self._ledger.vacate(job, reserved=reserved and grant is None)
        if grant is None:
            self._clear_state(job)

    def begin_grant(self, job: JobId, grant: Grant, now_s: float, *, reserved: bool) -> Next:
        """Start a waiting job, or continue a running one, under a grant; return its next event.

        With `reserved` the resources are booked already.

        Raises
        ------
        ContractError
            If the ledger or the performance model refuses the grant.
        """
        stint = self._stints.get(job) if self._stints else None  # None = it starts
        if stint is not None and stint.before is not None:
            return self._overlap(job, grant, now_s)
        holding = self._ledger.take(job, grant, self._demand_of(job), reserved=reserved)
        if self._interrupts:
            self._schedule_interruption(job, grant, now_s)
        pause_s = 0.0
        suspended = self._suspended.pop(job, None) if self._suspended else None
        if stint is not None:
            pause_s = stint.pause_s
        elif suspended is not None and suspended[0] == grant:
            pause_s = suspended[1]
        elif not self._has_no_pauses:
            pause_s = self._transition(job, None, grant, restarted=self._has_run(job))[1]
        resume_s = instant(now_s + pause_s) if pause_s else now_s
        return self._open_segment(job, grant, holding, now_s, resume_s)

    def will_restart(self, job: JobId) -> bool:
        """Return True if the next start of a job is a restart: it runs or ran before."""
        return job in self._ledger.grants or self._has_run(job)

    def end_overlap(self, job: JobId, now_s: float) -> Next:
        """Free the old holding of a moved job and begin its pause; return its next event.

        The work so far counts as saved.
        """
        self._close_segment(job, now_s, CHANGED)
        self._columns.unsaved[job] = self._columns.unsaved_s[job] = 0.0
        old, stint = self._effective_grant(job), self._stints[job]
        stint.overlap_ends, stint.before = NEVER, None
        if self._interrupts:
            self._save_exposure(job, old, now_s)
            self._schedule_interruption(job, self._ledger.grants[job], now_s)
        holding = self._ledger.end_overlap(job)
        return self._open_segment(
            job, holding.grant, holding, now_s, instant(now_s + stint.pause_s)
        )

    def finish(self, job: JobId, now_s: float) -> None:
        """End a job that has completed its work: close its segment and free its resources."""
        self._close_segment(job, now_s, FINISHED)
        self._ledger.release(job)
        self._clear_state(job)

    def end_early(self, job: JobId, now_s: float) -> None:
        """End a job for good before its work is complete; free its resources.

        Its segment ends as evicted; an overlap ends first.
        """
        if self.overlaps(job):
            self.end_overlap(job, now_s)
        self._close_segment(job, now_s, EVICTED)
        self._ledger.release(job)
        self._clear_state(job)

    def evict(self, job: JobId, now_s: float, hit: tuple[str, str]) -> float:
        """Evict a job hit by (cause, role); return the work lost since its last checkpoint.

        Frees its resources, records the failure and adds the lost work to the work left.
        """
        columns = self._columns
        self._apply_checkpoints(job, now_s)
        self._close_segment(job, now_s, EVICTED)
        lost = columns.unsaved[job]
        self._add_lost_work(job, lost)
        self._record.failure(now_s, job, hit, lost, survived=False)
        columns.unsaved[job] = columns.unsaved_s[job] = 0.0
        columns.evictions[job] += 1
        self._ledger.release(job)
        self._clear_state(job)
        return lost

    def lose_suspended(self, node: int) -> None:
        """Drop the suspended jobs on a failed node; they lose work since their last checkpoint.

        They start again like other jobs.
        """
        columns = self._columns
        for job, (grant, _) in list(self._suspended.items()):
            if any(node in part.nodes for gang in grant.gangs for part in gang if part is not None):
                del self._suspended[job]
                self._add_lost_work(job, columns.unsaved[job])
                columns.unsaved[job] = columns.unsaved_s[job] = 0.0

    def survives_interruption(self, job: JobId) -> bool:
        """Return True if an interruption hits only one replica: the job uses data sharding."""
        return self._ledger.grants[job].tuning.sharding

    def relaunch(self, job: JobId, now_s: float) -> Next:
        """Relaunch one replica of an interrupted job, which pauses it; return its next event."""
        self._apply_checkpoints(job, now_s)
        self._close_segment(job, now_s, CHANGED)
        columns, grant = self._columns, self._effective_grant(job)
        role, pause_s = self._overheads.relaunch(
            grant, self._faults.hit(self._seed, job, self._attempt(job))
        )
        self._record.failure(now_s, job, ("interruption", role), 0.0, survived=True)
        columns.relaunches[job] += 1
        self._schedule_interruption(job, grant, now_s)
        resume_s = instant(max(columns.resume[job], now_s) + pause_s)
        return self._open_segment(job, grant, self._ledger.charged[job], now_s, resume_s)

    def lose_gangs(self, job: JobId, survivors: Grant, now_s: float) -> Next:
        """Remove copies of a forked job from failed nodes; return its next event.

        Their share of the unsaved work is lost; the other copies continue.
        """
        self._apply_checkpoints(job, now_s)
        self._close_segment(job, now_s, CHANGED)
        columns, old = self._columns, self._ledger.grants[job]
        old_rate, kept_rate = (
            self._rate_of(job, grant, self._work[job] - columns.left[job], now_s)[0]
            for grant in (old, survivors)
        )
        lost = columns.unsaved[job] * (1 - kept_rate / old_rate) if old_rate else 0.0
        self._add_lost_work(job, lost)
        columns.unsaved[job] -= lost
        if self._interrupts:
            self._save_exposure(job, old, now_s)
            self._schedule_interruption(job, survivors, now_s)
        self._ledger.release(job)
        holding = self._ledger.take(job, survivors, self._demand_of(job))
        columns.held_cpus[job] = holding.cpus
        return self._open_segment(job, survivors, holding, now_s, columns.resume[job])

    def overlaps(self, job: JobId) -> bool:
        """Return True if the job holds an old and a new grant during a seamless move."""
        stint = self._stints.get(job)
        return stint is not None and stint.before is not None

    def ask(self, job: JobId, now_s: float) -> Next:
        """Ask the performance model for a new rate at a break point; return the next event.

        A break at an amount of work is reached once its instant has come, so exactly that work
        counts as done: the model is not asked for the same break again.
        """
        self._apply_checkpoints(job, now_s)
        self._close_segment(job, now_s, CHANGED)
        self._advance_to(job, self._stints[job].work_then)
        grant, holding = self._effective_grant(job), self._ledger.charged[job]
        return self._open_segment(job, grant, holding, now_s, self._columns.resume[job])

    def close_open(self, job: JobId, now_s: float, ended: int) -> None:
        """Close the segment of a job that still runs at the end of the run."""
        self._close_segment(job, now_s, ended)

    def _effective_grant(self, job: JobId) -> Grant:
        """Return the grant that a job runs under: the old one during an overlap."""
        stint = self._stints.get(job)
        before = None if stint is None else stint.before
        return self._ledger.grants[job] if before is None else before

    def _has_run(self, job: JobId) -> bool:
        """Return True if a waiting job ran before."""
        return self._columns.preemptions[job] > 0 or self._columns.evictions[job] > 0

    def _schedule_interruption(self, job: JobId, grant: Grant, now_s: float) -> None:
        """Set the job's next interruption from its saved node-seconds, or else from a new draw."""
        left = self._exposure.pop(job, None)
        if left is None:
            left = self._faults.interruption_s(self._seed, job, self._attempt(job))
        stint = self._stints.setdefault(job, Stint())
        stint.interrupted_s = instant(now_s + left / _spanned_nodes(grant))

    def _attempt(self, job: JobId) -> int:
        """Return the number of evictions and relaunches of a job so far."""
        return self._columns.evictions[job] + self._columns.relaunches[job]

    def _save_exposure(self, job: JobId, grant: Grant, now_s: float) -> None:
        """Save the node-seconds to the next interruption, for the next grant of the job."""
        self._exposure[job] = (self._stints[job].interrupted_s - now_s) * _spanned_nodes(grant)

    def _share_moved(self, job: JobId, old: Grant, new: Grant, now_s: float) -> float:
        """Return the share of the job's rate that a change of grant pauses; 1 for a single gang.

        A change of one copy of a forked job does not pause the other copies.
        """
        if len(new.gangs) == 1:
            return 1.0
        unchanged = tuple(gang for gang in new.gangs if gang in old.gangs)
        if not unchanged or new.tuning != old.tuning:
            return 1.0
        done = self._work[job] - self._columns.left[job]
        new_rate = self._rate_of(job, new, done, now_s)[0]
        return (
            1 - self._rate_of(job, Grant(unchanged, new.tuning), done, now_s)[0] / new_rate
            if new_rate
            else 1.0
        )

    def _overlap(self, job: JobId, grant: Grant, now_s: float) -> Next:
        """Book the new grant while the job runs on under the old one; return its next event."""
        self._apply_checkpoints(job, now_s)
        self._close_segment(job, now_s, CHANGED)
        holding = self._ledger.overlap(job, grant, self._demand_of(job))
        columns = self._columns
        columns.held_gpus[job], columns.held_cpus[job] = holding.gpus, holding.cpus
        columns.segment_t0[job] = now_s
        return self._next_event(job, now_s)

    def _open_segment(
        self, job: JobId, grant: Grant, holding: Holding, now_s: float, resume_s: float
    ) -> Next:
        """Open a segment at the model's rate under a grant; return the next event."""
        columns = self._columns
        columns.segment_t0[job], columns.resume[job] = now_s, resume_s
        columns.held_gpus[job] = holding.gpus
        if holding.cpus:
            columns.held_cpus[job] = holding.cpus
        left = columns.left[job]
        done = self._work[job] - left
        rate, until_work, until_s, then, role = self._rate_of(job, grant, done, now_s)
        if not 0.0 <= rate < inf:
            raise RateError(job, rate)
        columns.rate[job] = rate = rate * self._efficiency
        stint = self._stints.get(job) if self._stints else None
        if until_work < inf or until_s < inf:
            start = max(now_s, resume_s)
            at_s = start + (until_work - done) / rate if rate > 0 else inf
            kind = ASK if then == "ask" else OOM if role == "worker" else SERVER_OOM
            stint = self._stints.setdefault(job, Stint())
            stint.rate_ends, stint.work_then = _rate_ends((at_s, kind), until_work, until_s, now_s)
        elif stint is not None:
            stint.rate_ends = NEVER
        if stint is None and resume_s >= now_s and rate > 0:
            # `instant` inlined: a call per start would double the cost of this function.
            at_s = ((resume_s + left / rate) * PER_S + WHOLE - WHOLE) / PER_S
            if at_s > now_s:
                return at_s, FINISH
        return self._next_event(job, now_s)

    def _advance_to(self, job: JobId, until_work: float) -> None:
        """Set the work done to at least `until_work`, against rounding errors; inf = no change."""
        if until_work == inf:
            return
        work = self._work[job]
        left = work - until_work
        if work - left < until_work:
            left = nextafter(left, -inf)
        self._columns.left[job] = min(left, self._columns.left[job])

    def _next_event(self, job: JobId, now_s: float) -> Next:
        """Return the earliest of end, rate end, interruption and end of overlap of a job."""
        columns = self._columns
        rate, left = columns.rate[job], columns.left[job]
        following = NEVER
        if rate > 0:
            at_s = max(columns.resume[job], now_s) + left / rate
            # Remaining work takes at least one step: a job never starts and ends at one instant.
            following = (later(at_s, now_s) if left > 0 else instant(at_s), FINISH)
        stint = self._stints.get(job)
        if stint is None:
            return following
        following = min(following, stint.rate_ends)
        if stint.interrupted_s < following[0]:
            following = (stint.interrupted_s, INTERRUPTION)
        return min(following, stint.overlap_ends)

    def _close_segment(self, job: JobId, now_s: float, ended: int) -> None:
        """Close the open segment of a job: update its work and service, and record the segment."""
        columns, holding = self._columns, self._ledger.charged[job]
        t0, resume, rate, gpus = (
            columns.segment_t0[job],
            columns.resume[job],
            columns.rate[job],
            holding.gpus,
        )
        progress_from_s = (
            t0 if resume <= t0 else resume if resume < now_s else now_s
        )  # progress begins here
        left, held_s = columns.left[job], now_s - t0
        if ended == FINISHED:
            columns.left[job] = 0.0
        elif progress_from_s < now_s:
            columns.left[job] = left - rate * (now_s - progress_from_s)
        self._record.segment(
            (job, t0, now_s, gpus, rate, progress_from_s - t0, holding.batch, ended), holding
        )
        if self._usage_of is not None and held_s:
            grant, work = self._effective_grant(job), self._work[job]
            self._record.usage(
                self._usage_of(job, grant, (work - left, work - columns.left[job]), t0),
                (now_s - progress_from_s) / held_s,
            )
        columns.served_gpu_s[job] += gpus * held_s
        cpus = columns.held_cpus[job]
        if cpus:
            columns.served_cpu_s[job] += cpus * held_s

    def _clear_state(self, job: JobId) -> None:
        """Zero a stopping job's rate, held GPUs and held cores, and drop its stint."""
        columns = self._columns
        columns.rate[job] = columns.held_gpus[job] = 0
        if columns.held_cpus[job]:
            columns.held_cpus[job] = 0.0
        if self._stints:
            self._stints.pop(job, None)

    def _apply_checkpoints(self, job: JobId, now_s: float) -> None:
        """Add the open segment's progress to the unsaved work, less the part at checkpoints."""
        columns = self._columns
        moving = now_s - max(columns.segment_t0[job], columns.resume[job])
        if moving <= 0:
            return
        since_save = columns.unsaved_s[job] + moving
        saves = self._overheads.saves_within(since_save)
        if saves:
            since_save = max(since_save - saves * self._overheads.period_s, 0.0)
            columns.unsaved[job] = columns.rate[job] * since_save
        else:
            columns.unsaved[job] += columns.rate[job] * moving
        columns.unsaved_s[job] = since_save

    def _add_lost_work(self, job: JobId, work: float) -> None:
        """Add lost work to the work left of a job, and to its sum of lost work."""
        if work > 0:
            self._columns.left[job] += work
            self._columns.lost_work[job] += work


def _rate_ends(
    by_work: Next, until_work: float, until_s: float, now_s: float
) -> tuple[Next, float]:
    """Return the next end of a rate, and the work done then; inf = it ends by the clock.

    The earlier end counts: by amount of work or by the clock. An end by the clock in the future is
    at the next instant at the earliest, when it has certainly passed; one in the past stays, so
    that the run is ended over it.
    """
    by_clock_s = later(until_s, now_s) if until_s > now_s else now_s
    at_s, kind = max(instant(by_work[0]), now_s), by_work[1]
    return ((at_s, kind), until_work) if at_s <= by_clock_s else ((by_clock_s, kind), inf)


def _spanned_nodes(grant: Grant) -> int:
    """Return the number of nodes that a grant spans."""
    return len({node for _, _, part in parts_of(grant) for node in part.nodes})
