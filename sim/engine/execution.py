"""What running jobs do between decisions: progress, pauses, segments, checkpoints and losses. Knows
no clock of its own.
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
"""Instant and kind of the next event of a running job, unless a plan or an outage comes before it.
"""

NEVER: Final[Next] = (inf, FINISH)


@dataclass(slots=True)
class Stint:
    """Future events of a running job besides its end. Most jobs have none, and then no stint.

    Attributes
    ----------
    rate_ends : Next
        When its rate ends, and the event at that instant.
    work_then : float
        The work done by then; inf = the rate ends by the clock.
    interrupted_s : float, seconds
        Instant of the next interruption.
    overlap_ends : Next
        End of the overlap, at which the previous grant is given back.
    before : Grant or None
        The previous grant; None = no overlap.
    pause_s : float, seconds
        Pause of the change under way: after an overlap, else at once.
    """

    rate_ends: Next = NEVER
    work_then: float = inf
    interrupted_s: float = inf
    overlap_ends: Next = NEVER
    before: Grant | None = None
    pause_s: float = 0.0


class Execution:
    """The running jobs.

    Parameters
    ----------
    columns, ledger, record, demands
        State, holdings, record and demands of the run; the execution writes the first three.
    model : PerfModel
        True speeds and sizes.
    conditions : Conditions
        Costs of changes, interruptions and the seed.
    preemptible : array of bool, shape (jobs,)
        Whether a job may be stopped or changed once it runs.
    """

    __slots__ = (
        "_at_once",
        "_columns",
        "_costless",
        "_demand_of",
        "_efficiency",
        "_exposure",
        "_faults",
        "_interrupts",
        "_ledger",
        "_loses_all",
        "_overheads",
        "_preemptible",
        "_rate_of",
        "_record",
        "_seamlessly",
        "_seed",
        "_stints",
        "_suspended",
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
        """What they held, and seconds of a pause that are left."""
        # node-seconds to the next interruption, of jobs between two grants
        self._exposure: dict[JobId, float] = {}
        self._seamlessly, self._at_once = overheads.transition, overheads.at_once().transition
        self._interrupts = faults.interruptions_per_node_h > 0
        self._usage_of = model.usage if isinstance(model, Using) else None
        self._costless = type(overheads) is Overheads and not (
            overheads.start_s or overheads.restart_s or overheads.overlap_s
        )

    def leave(
        self, job: JobId, grant: Grant | None, now_s: float, *, seamless: bool, reserved: bool
    ) -> None:
        """End the grant of a running job because the plan stops it (None) or gives it another one,
        which must then be passed to `enter`.

        Where moves take time, a `seamless` job keeps its old holding until the move is over; one
        that is stopped is suspended.
        `reserved` says that the holdings of stopped jobs are free again already; otherwise
        `Ledger.give_back` must follow.

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
        if grant is not None and not self._costless:
            old = self._ledger.grants[job]
            overlap_s, pause_s = (self._seamlessly if seamless else self._at_once)(
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
            self._save_up_to(job, now_s)
            left_s = max(columns.resume[job] - now_s, 0.0)
            self._suspended[job] = self._ledger.grants[job], left_s
        self._close(job, now_s, PREEMPTED if grant is None else CHANGED)
        if self._loses_all and not suspends:
            self._lose(job, self._work[job] - columns.left[job])
        if columns.unsaved_s[job] and not suspends:
            columns.unsaved[job] = columns.unsaved_s[job] = 0.0
        if self._interrupts:
            self._shelter(job, self._ledger.grants[job], now_s)
        self._ledger.vacate(job, reserved=reserved and grant is None)
        if grant is None:
            self._settle_down(job)

    def enter(self, job: JobId, grant: Grant, now_s: float, *, reserved: bool) -> Next:
        """Give a job its grant: a waiting one starts, a running one goes on with it; ``reserved``
        says that the room has already given it.

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
            self._expose(job, grant, now_s)
        pause_s = 0.0
        was = self._suspended.pop(job, None) if self._suspended else None
        if stint is not None:
            pause_s = stint.pause_s
        elif was is not None and was[0] == grant:
            pause_s = was[1]
        elif not self._costless:
            pause_s = self._at_once(job, None, grant, restarted=self._has_run(job))[1]
        resume_s = instant(now_s + pause_s) if pause_s else now_s
        return self._run(job, grant, holding, now_s, resume_s)

    def will_restart(self, job: JobId) -> bool:
        """Return True if the next start of a job is a restart, because it runs or ran before."""
        return job in self._ledger.grants or self._has_run(job)

    def end_overlap(self, job: JobId, now_s: float) -> Next:
        """End an overlap: the old holding goes back, and the pause of the change begins."""
        self._close(job, now_s, CHANGED)
        self._columns.unsaved[job] = self._columns.unsaved_s[job] = 0.0
        old, stint = self._runs_on(job), self._stints[job]
        stint.overlap_ends, stint.before = NEVER, None
        if self._interrupts:
            self._shelter(job, old, now_s)
            self._expose(job, self._ledger.grants[job], now_s)
        holding = self._ledger.end_overlap(job)
        return self._run(job, holding.grant, holding, now_s, instant(now_s + stint.pause_s))

    def finish(self, job: JobId, now_s: float) -> None:
        """End a job that has done its work."""
        self._close(job, now_s, FINISHED)
        self._ledger.release(job)
        self._settle_down(job)

    def end_early(self, job: JobId, now_s: float) -> None:
        """End a job for good that has not done its work."""
        if self.overlaps(job):
            self.end_overlap(job, now_s)
        self._close(job, now_s, EVICTED)
        self._ledger.release(job)
        self._settle_down(job)

    def evict(self, job: JobId, now_s: float, hit: tuple[str, str]) -> float:
        """Evict a job that was hit by (cause, role); return the work lost since its last
        checkpoint.
        """
        columns = self._columns
        self._save_up_to(job, now_s)
        self._close(job, now_s, EVICTED)
        lost = columns.unsaved[job]
        self._lose(job, lost)
        self._record.failure(now_s, job, hit, lost, survived=False)
        columns.unsaved[job] = columns.unsaved_s[job] = 0.0
        columns.evictions[job] += 1
        self._ledger.release(job)
        self._settle_down(job)
        return lost

    def lose_suspended(self, node: int) -> None:
        """Let suspended jobs on a node that fails lose their work since the last checkpoint; they
        start again like any other.
        """
        columns = self._columns
        for job, (grant, _) in list(self._suspended.items()):
            if any(node in part.nodes for gang in grant.gangs for part in gang if part is not None):
                del self._suspended[job]
                self._lose(job, columns.unsaved[job])
                columns.unsaved[job] = columns.unsaved_s[job] = 0.0

    def survives(self, job: JobId) -> bool:
        """Return whether an interruption hits only one replica of a job, because its data are dealt
        in shards.
        """
        return self._ledger.grants[job].tuning.sharding

    def relaunch(self, job: JobId, now_s: float) -> Next:
        """Start one replica of an interrupted job again: a pause, and nothing lost."""
        self._save_up_to(job, now_s)
        self._close(job, now_s, CHANGED)
        columns, grant = self._columns, self._runs_on(job)
        role, pause_s = self._overheads.relaunch(
            grant, self._faults.hit(self._seed, job, self._attempt(job))
        )
        self._record.failure(now_s, job, ("interruption", role), 0.0, survived=True)
        columns.relaunches[job] += 1
        self._expose(job, grant, now_s)
        resume_s = instant(max(columns.resume[job], now_s) + pause_s)
        return self._run(job, grant, self._ledger.charged[job], now_s, resume_s)

    def lose_gangs(self, job: JobId, survivors: Grant, now_s: float) -> Next:
        """Remove some copies of a forked job from their nodes: their share of the unsaved work is
        lost, the other copies go on.
        """
        self._save_up_to(job, now_s)
        self._close(job, now_s, CHANGED)
        columns, old = self._columns, self._ledger.grants[job]
        whole, kept = (
            self._rate_of(job, grant, self._work[job] - columns.left[job], now_s)[0]
            for grant in (old, survivors)
        )
        lost = columns.unsaved[job] * (1 - kept / whole) if whole else 0.0
        self._lose(job, lost)
        columns.unsaved[job] -= lost
        if self._interrupts:
            self._shelter(job, old, now_s)
            self._expose(job, survivors, now_s)
        self._ledger.release(job)
        holding = self._ledger.take(job, survivors, self._demand_of(job))
        columns.held_cpus[job] = holding.cpus
        return self._run(job, survivors, holding, now_s, columns.resume[job])

    def overlaps(self, job: JobId) -> bool:
        """Return whether an old and a new grant of this job overlap now."""
        stint = self._stints.get(job)
        return stint is not None and stint.before is not None

    def ask(self, job: JobId, now_s: float) -> Next:
        """Ask the performance model again at a break point of the rate.

        A break at an amount of work is reached once its instant has come, so exactly that much
        counts as done: the model is not asked for the same break again.
        """
        self._save_up_to(job, now_s)
        self._close(job, now_s, CHANGED)
        self._reach(job, self._stints[job].work_then)
        grant, holding = self._runs_on(job), self._ledger.charged[job]
        return self._run(job, grant, holding, now_s, self._columns.resume[job])

    def close_open(self, job: JobId, now_s: float, ended: int) -> None:
        """Close the segment of a job that still runs when the run ends."""
        self._close(job, now_s, ended)

    def _runs_on(self, job: JobId) -> Grant:
        stint = self._stints.get(job)
        before = None if stint is None else stint.before
        return self._ledger.grants[job] if before is None else before

    def _has_run(self, job: JobId) -> bool:
        return self._columns.preemptions[job] > 0 or self._columns.evictions[job] > 0

    def _expose(self, job: JobId, grant: Grant, now_s: float) -> None:
        left = self._exposure.pop(job, None)
        if left is None:
            left = self._faults.interruption_s(self._seed, job, self._attempt(job))
        stint = self._stints.setdefault(job, Stint())
        stint.interrupted_s = instant(now_s + left / _spanned(grant))

    def _attempt(self, job: JobId) -> int:
        return self._columns.evictions[job] + self._columns.relaunches[job]

    def _shelter(self, job: JobId, grant: Grant, now_s: float) -> None:
        self._exposure[job] = (self._stints[job].interrupted_s - now_s) * _spanned(grant)

    def _share_moved(self, job: JobId, old: Grant, new: Grant, now_s: float) -> float:
        # A change of one copy of a forked job does not hold up the others.
        if len(new.gangs) == 1:
            return 1.0
        stay = tuple(gang for gang in new.gangs if gang in old.gangs)
        if not stay or new.tuning != old.tuning:
            return 1.0
        done = self._work[job] - self._columns.left[job]
        whole = self._rate_of(job, new, done, now_s)[0]
        return (
            1 - self._rate_of(job, Grant(stay, new.tuning), done, now_s)[0] / whole
            if whole
            else 1.0
        )

    def _overlap(self, job: JobId, grant: Grant, now_s: float) -> Next:
        self._save_up_to(job, now_s)
        self._close(job, now_s, CHANGED)
        holding = self._ledger.overlap(job, grant, self._demand_of(job))
        columns = self._columns
        columns.held_gpus[job], columns.held_cpus[job] = holding.gpus, holding.cpus
        columns.segment_t0[job] = now_s
        return self._next(job, now_s)

    def _run(
        self, job: JobId, grant: Grant, holding: Holding, now_s: float, resume_s: float
    ) -> Next:
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
            # `instant`, written out: a call would cost as much as all else here, once per start.
            at_s = ((resume_s + left / rate) * PER_S + WHOLE - WHOLE) / PER_S
            if at_s > now_s:
                return at_s, FINISH
        return self._next(job, now_s)

    def _reach(self, job: JobId, until_work: float) -> None:
        if until_work == inf:
            return
        work = self._work[job]
        left = work - until_work
        if work - left < until_work:
            left = nextafter(left, -inf)
        self._columns.left[job] = min(left, self._columns.left[job])

    def _next(self, job: JobId, now_s: float) -> Next:
        columns = self._columns
        rate, left = columns.rate[job], columns.left[job]
        following = NEVER
        if rate > 0:
            at_s = max(columns.resume[job], now_s) + left / rate
            # What is left takes one step at least: a job never starts and ends at one instant.
            following = (later(at_s, now_s) if left > 0 else instant(at_s), FINISH)
        stint = self._stints.get(job)
        if stint is None:
            return following
        following = min(following, stint.rate_ends)
        if stint.interrupted_s < following[0]:
            following = (stint.interrupted_s, INTERRUPTION)
        return min(following, stint.overlap_ends)

    def _close(self, job: JobId, now_s: float, ended: int) -> None:
        columns, holding = self._columns, self._ledger.charged[job]
        t0, resume, rate, gpus = (
            columns.segment_t0[job],
            columns.resume[job],
            columns.rate[job],
            holding.gpus,
        )
        moves_s = (
            t0 if resume <= t0 else resume if resume < now_s else now_s
        )  # the job moves from then on
        left, held_s = columns.left[job], now_s - t0
        if ended == FINISHED:
            columns.left[job] = 0.0
        elif moves_s < now_s:
            columns.left[job] = left - rate * (now_s - moves_s)
        self._record.segment(
            (job, t0, now_s, gpus, rate, moves_s - t0, holding.batch, ended), holding
        )
        if self._usage_of is not None and held_s:
            grant, work = self._runs_on(job), self._work[job]
            self._record.usage(
                self._usage_of(job, grant, (work - left, work - columns.left[job]), t0),
                (now_s - moves_s) / held_s,
            )
        columns.served_gpu_s[job] += gpus * held_s
        cpus = columns.held_cpus[job]
        if cpus:
            columns.served_cpu_s[job] += cpus * held_s

    def _settle_down(self, job: JobId) -> None:
        columns = self._columns
        columns.rate[job] = columns.held_gpus[job] = 0
        if columns.held_cpus[job]:
            columns.held_cpus[job] = 0.0
        if self._stints:
            self._stints.pop(job, None)

    def _save_up_to(self, job: JobId, now_s: float) -> None:
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

    def _lose(self, job: JobId, work: float) -> None:
        if work > 0:
            self._columns.left[job] += work
            self._columns.lost_work[job] += work


def _rate_ends(
    by_work: Next, until_work: float, until_s: float, now_s: float
) -> tuple[Next, float]:
    """Return when a rate ends, at an amount of work or by the clock, whichever comes first, and the
    work done by then.

    An end by the clock that is still to come is reached at the next instant at the earliest, when
    it has passed for certain; one that has come already stays, for the run to be ended over it.
    """
    by_clock_s = later(until_s, now_s) if until_s > now_s else now_s
    at_s, kind = max(instant(by_work[0]), now_s), by_work[1]
    return ((at_s, kind), until_work) if at_s <= by_clock_s else ((by_clock_s, kind), inf)


def _spanned(grant: Grant) -> int:
    return len({node for _, _, part in parts_of(grant) for node in part.nodes})
