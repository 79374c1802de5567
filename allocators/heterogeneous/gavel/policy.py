"""Gavel: shares of time on every GPU type under a chosen objective, followed in rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import numpy as np

from allocators.heterogeneous.gavel.objective import READS_WORK, ObjectiveSpec, snapshot_of
from allocators.heterogeneous.gavel.rounds import (
    Bools,
    DeficitRanking,
    Kinds,
    Roster,
    RoundPlacement,
)
from allocators.heterogeneous.timeshare.fluid import JobsSnapshot
from allocators.heterogeneous.timeshare.problem import Hint
from allocators.placement import Placer, placement_param
from allocators.reasons import next_decision_reason, room_reason
from allocators.toolkit import CpuJobs, RoundClock, round_param
from sim.contract import (
    EMPTY,
    Allocator,
    Card,
    Decided,
    Floats,
    Grant,
    Ints,
    JobId,
    Needs,
    Plan,
    Reason,
    Value,
    View,
    inf,
    param,
)

OBJECTIVES: Final = (
    "max_min",
    "water_filling",
    "finish_time_fairness",
    "makespan",
    "max_sum_throughput",
    "cost",
    "cost_slo",
    "fifo",
    "isolated",
    "allox",
    "gandiva",
)
_SHUFFLE_STREAM: Final = 5
_TINY: Final = 1e-6
RECOMPUTE_S: Final = 1920.0
"""Default of upstream's ``minimum_time_between_allocation_resets``."""


@dataclass
class Gavel(Allocator):
    """Give jobs the shares of time on each GPU type that are best for an objective, in rounds.

    Notes
    -----
    Shares X [1]_: the best X for the `objective` with ``sum_j X_mj <= 1`` for every job m and
    ``sum_m gang_m X_mj <= GPUs_j`` for every type j, where job m progresses at ``sum_j T_mj X_mj``;
    see `allocators.heterogeneous.timeshare.shares` for each. T is the estimated throughput of the
    whole gang on one type; with ``aware = no`` all types count the same. They are computed again in
    the first round after jobs or GPUs came or went, but not within `recompute_s`. With
    ``recompute_s = 0`` the time received restarts at every arrival, and a gang of small share waits
    as long as jobs keep arriving.

    Rounds, as in the authors' simulator [2]_: type by type, the fastest first (in random order for
    `isolated`, and if not `aware`), jobs are ranked by share of time over time received since the
    shares were computed; ties go to the job that is owed more from before. Jobs that fit win; a job
    without a share may win GPUs left over, except under `fifo`. A job that wins on its present type
    keeps its nodes. A job that ends inside a round leaves its GPUs idle until the round ends, or
    until no job runs.

    ``faithful = yes`` adds peculiarities of the published simulator: jobs that arrived since the
    shares were computed win GPUs but leave them idle; types come in random order, drawn as upstream
    draws it for the same seed; only whole units of work count as time received, so that of two jobs
    in alternation the slower one is ahead, and an idle time counts in the first round after it; of
    several equally good shares those of upstream's solver are taken
    (`allocators.heterogeneous.timeshare.published`); the makespan is found by bisection to within
    5 %; and if the trace's own clock begins at 0, shares computed at 0 count as never computed. A
    trace that begins later (``from_zero``) lacks this last one.

    `gandiva` is that policy without its packing of two jobs on a GPU, which is not implemented:
    shares as under `isolated`, but the fastest type is always tried first.

    Ours: where upstream waits for the next arrival because only newcomers won, shares are computed
    at once. `fifo` without `aware` draws a type at random, as upstream documents but does not do. A
    job never wins on a type that it cannot run on, and the agnostic objectives use the mean speed
    of a job that cannot run on the fastest type. Equal jobs have exactly equal shares, and the
    earlier one goes first; upstream leaves that to the last digits of its solver. Progress is
    fluid: upstream stops a job, and ends a round, up to one iteration early. `allox`, a method for
    jobs of one GPU, lets larger ones go first. Jobs that must not be stopped keep their GPUs; jobs
    without GPUs start at any time. If cores or memory are limited, or jobs of one type may use
    different nodes, winners are placed one by one and those that do not fit are skipped.

    References
    ----------
    .. [1] D. Narayanan, K. Santhanam, F. Kazhamiaka, A. Phanishayee, M. Zaharia,
    "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
       Workloads", OSDI 2020.
    .. [2] stanford-futuredata/gavel at c4fa400, scheduler/scheduler.py and scheduler/policies/, MIT
    licence.
    """

    objective: str = param(
        "max_min",
        choices=OBJECTIVES,
        labels={
            "max_min": "Max-min fairness",
            "water_filling": "Water filling",
            "finish_time_fairness": "Finish-time fairness",
            "makespan": "Makespan",
            "max_sum_throughput": "Total throughput",
            "cost": "Throughput per dollar",
            "cost_slo": "Throughput per dollar, with deadlines",
            "fifo": "Order of arrival",
            "isolated": "Equal parts",
            "allox": "Total completion time (AlloX)",
            "gandiva": "Gandiva",
        },
        help=(
            "Max-min fairness: raise the slowest job. Water filling: then the next, by owner."
            " Finish-time fairness: improve the worst ratio. Makespan: earliest last finish."
            " Total throughput: largest sum, also per dollar and with deadlines. Order of"
            " arrival, equal parts: as named. AlloX: least total completion time. Gandiva:"
            " equal parts, without packing ('Published behavior': fastest type first)."
        ),
    )
    aware: bool = param(
        True,
        title="Use per-type speeds",
        help="Whether the policy knows each job's speed per GPU type; else all types are equal.",
    )
    round_s: float = round_param()
    recompute_s: float = param(
        RECOMPUTE_S,
        title="Time between computations of shares",
        unit="s",
        low=0,
        high=1e6,
        help=(
            "Least time between computations of the shares; 0 = at every change (large gangs"
            " may wait very long), with 'Published behavior' 1920 s."
        ),
    )
    faithful: bool = param(
        False,
        title="Published behavior",
        help=(
            "Whether to repeat the published simulator: new jobs leave GPUs idle, GPU types are"
            " tried in random order, and makespan is exact to 5 %."
        ),
    )
    entity: str = param(
        "user",
        title="Column of owners",
        choices=("user", "vc", "none"),
        labels={"user": "User", "vc": "Virtual cluster", "none": "None"},
        help="Column of the owner of a job, for 'Water filling'.",
    )
    entity_weights: tuple[float, ...] = param(
        (1.0, 2.0, 3.0),
        title="Weights of owners",
        low=0.001,
        high=1000,
        help=("Weights of owners by name, the last for all others, for 'Water filling'."),
    )
    within: str = param(
        "fairness",
        title="Division among an owner's jobs",
        choices=("fairness", "fifo"),
        labels={"fairness": "Equal shares", "fifo": "Order of arrival"},
        help="Division of an owner's share among its jobs, for 'Water filling'.",
    )
    placement: str = placement_param()
    _spec: ObjectiveSpec = field(init=False, repr=False)
    _place: Placer = field(init=False, repr=False)
    _cpu_jobs: CpuJobs = field(init=False, repr=False)
    _clock: RoundClock = field(init=False, repr=False)
    _kinds: Kinds | None = field(init=False, repr=False, default=None)
    _placement: RoundPlacement = field(init=False, repr=False)
    _roster: Roster = field(init=False, repr=False)
    _ranking: DeficitRanking | None = field(init=False, repr=False, default=None)
    _sits_out: Bools = field(init=False, repr=False)
    _hint: Hint | None = field(init=False, repr=False, default=None)
    _remarks: dict[str, None] = field(init=False, repr=False, default_factory=dict)
    _types: frozenset[str] = field(init=False, repr=False, default=frozenset())
    _upstream_shuffler: Random | None = field(init=False, repr=False, default=None)
    _news: bool = field(init=False, repr=False, default=True)
    _computed_s: float = field(init=False, repr=False, default=-inf)
    _computed_for: tuple[Ints, tuple[int, ...]] = field(
        init=False, repr=False, default=(np.zeros(0, np.int64), ())
    )

    card = Card(
        title="Gavel",
        brief="time shares of GPU types, by job speed",
        what=(
            "Optimizes each job's time share on every GPU type for a chosen goal, in rounds of"
            " several minutes."
        ),
        cost=(
            "Jobs change GPUs and types between rounds; freed GPUs idle, and new jobs wait,"
            " until the next round."
        ),
        limits=(
            "Ignores the cost of changing GPUs and of spreading jobs over nodes. Two jobs never"
            " share a GPU here."
        ),
        source=(
            "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning"
            " Workloads, OSDI 2020; the authors' public code"
        ),
        certainty=(
            "exact for rounds and objectives of the public code, with 'Published behavior' to its"
            " figures;"
            " our reading: choice among equally good shares, outages, jobs that must not be"
            " stopped, AlloX with gangs"
        ),
        goals=("heterogeneous", "fairness"),
        how=(
            (
                "For each job and GPU type a share of time is computed that is optimal for the"
                " objective."
            ),
            (
                "Shares are computed again at the first round after jobs or GPUs have come or gone,"
                " at most every 32 minutes."
            ),
            (
                "Time is divided into rounds; in each, type by type, jobs are ranked by their"
                " share relative to the time received."
            ),
            (
                "Jobs that rank first and fit run for the round; a job that stays on its type"
                " keeps its GPUs."
            ),
            "GPUs that a job leaves within a round are idle until the round ends.",
        ),
    )

    def __post_init__(self) -> None:
        """Create the objective, the placer, the clock and an empty roster."""
        self._spec = ObjectiveSpec(
            self.objective, self.aware, self.faithful, self.entity, self.entity_weights, self.within
        )
        self._place = Placer(self.placement, "fastest", False)
        self._cpu_jobs, self._clock = CpuJobs(self._place), RoundClock(self.round_s)
        self._roster = Roster(0, self.round_s / 2)

    @property
    def needs(self) -> Needs:
        """Need rates if the objective reads them, and remaining work if it counts that."""
        rates = {"rates"} if self._spec.looks else set()
        sizes = {"remaining_work"} if self.objective in READS_WORK else set()
        return Needs(frozenset(rates | sizes))

    @property
    def owner_column(self) -> str:
        """Trace column with the owner of a job; see `Fluid.owner_column`."""
        return self._spec.owner_column

    def shares(self, snapshot: JobsSnapshot, rng: np.random.Generator) -> Floats:
        """Return shares of time outside of a run, shape (jobs, types); see `Fluid.shares`.

        Also updates the roster and the hint for the next call.

        Must be called on an instance that is not used in a run.
        """
        if self._kinds is None and not len(self._roster):
            self._roster = Roster(snapshot.rates.shape[1], self.round_s / 2)
        roster = self._roster
        roster.align(snapshot.ids)
        roster.gangs, roster.rates = snapshot.gangs, snapshot.rates
        answer = self._spec.shares(snapshot, roster, rng, self._hint)
        self._hint = answer.hint
        roster.reset(answer.x, 0.0)
        return answer.x

    def remarks(self) -> tuple[str, ...]:
        """Return notes on objectives that could not be met, and if there is one GPU type only."""
        if len(self._types) != 1:
            return tuple(self._remarks)
        shares = "; the shares are those of its agnostic form" if self.aware else ""
        return (
            f"gavel chose no GPU types: all GPUs are {next(iter(self._types))}{shares}.",
            *self._remarks,
        )

    def allocate(self, view: View, /) -> Plan:
        """Begin a round if the last one is over; start jobs without GPUs at any time."""
        self._cpu_jobs.feed(view)
        changes = self._cpu_jobs.start(view)
        if not self._clock.is_due(view, self._cpu_jobs):
            self._news = self._news or any(view.delta)
            return Plan(changes, wake_at_s=self._clock.ends_s)
        notes = self._round(
            view, self._kinds or self._begin(view), changes, news=self._news or any(view.delta)
        )
        self._news = False
        return (
            Plan(changes, wake_at_s=self._clock.ends_s, notes=notes)
            if changes or notes or self._clock.ends_s < inf
            else EMPTY
        )

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by a job's largest share on a type and the time it received there."""
        view, roster, clock = decided.view, self._roster, self._clock
        if not decided.wants(job):
            return room_reason(decided, job)
        at = int(np.searchsorted(roster.ids, job))
        if at == len(roster) or roster.ids[at] != job or self._kinds is None:
            return next_decision_reason(clock.ends_s, "the next round began")
        kind = int(roster.share[at].argmax())
        name = view.cluster.types[self._kinds.types[kind]].name
        share, since_s = float(roster.share[at, kind]), view.now_s - self._computed_s
        values: dict[str, Value] = {
            "type": name,
            "share": share,
            "next": clock.ends_s if clock.ends_s < inf else view.now_s,
        }
        if not roster.counted[at]:
            values["next"] = max(clock.ends_s, self._computed_s + self._min_interval_s)
            return Reason(
                "it arrived after shares were computed, which is done again from {next:instant}"
                " on; until then it gets what jobs with a share leave over",
                values,
            )
        if not share > 0:
            return Reason(
                "the objective gave it no share of any GPU type until the round at {next:instant}",
                values,
            )
        received_s = float(roster.time_s[at, kind]) - self.round_s / 2
        if since_s > 0 and received_s >= share * since_s:
            values["received"] = min(received_s / since_s, 1.0)
            return Reason(
                "its {type:text} share of {share:share} was used up until the round at"
                " {next:instant}; it had received {received:share}",
                values,
            )
        on = self._placement.on
        values["others"] = int((on[: len(roster)] == kind).sum())
        return Reason(
            "{others:jobs_were} further behind their {type:text} shares and got the round; its own"
            " share is {share:share}, the next round began at {next:instant}",
            values,
        )

    def _begin(self, view: View) -> Kinds:
        """Create types, placement and roster and start the clock, once; return the types."""
        kinds = self._kinds = Kinds(view, self._place)
        self._placement = RoundPlacement(kinds, self._place)
        self._types = frozenset(node.gpu_type for node in view.cluster.nodes if node.gpus)
        self._roster = Roster(len(kinds), self.round_s / 2)
        self._clock.begin(view.now_s, goes_on=False)
        return kinds

    def _round(
        self, view: View, kinds: Kinds, changes: dict[JobId, Grant | None], *, news: bool
    ) -> dict[str, float]:
        """Decide a round: add its changes to `changes` and return its notes.

        Outdated shares are computed again first, if they are old enough or no job would run.
        """
        roster, placement = self._roster, self._placement
        if news:
            self._add_jobs(view, kinds)
        if news or not placement.is_unchanged(view, self._cpu_jobs):
            placement.read_grants(view, roster, self._cpu_jobs)
            self._ranking = None
        roster.time_s[placement.ran, placement.ran_on] += self._received_s(view)
        notes = (
            self._compute_shares(view, kinds)
            if self._is_stale() and (self._is_old(view) or self._would_idle())
            else {}
        )
        changes |= placement.allocate(
            view, roster, self._current_ranking(), self._type_order(view), self._sits_out
        )
        # If no job runs, new shares may help, at the latest when they may be computed again.
        self._clock.begin(view.now_s, goes_on=placement.runs or self._is_stale())
        return notes

    def _received_s(self, view: View) -> Floats | float:
        """Return the seconds that the running jobs received in the round that ends now.

        One number for all, or with ``faithful`` one per job: only whole units of work, plus idle
        time.
        """
        elapsed_s, ran = view.now_s - self._clock.began_s, self._placement.ran
        if not self.faithful:
            return elapsed_s
        # Upstream counts from the end of the previous round, including idle time.
        idle_s = self._clock.idle_s
        rate = view.running.rate
        if len(rate) > len(ran):
            rate = rate[view.running.ids.searchsorted(self._roster.ids[ran])]
        # Less than one unit counts in full; otherwise it would never count.
        units = np.floor(rate * elapsed_s + _TINY)
        if units.all():
            return units / rate + idle_s
        received_s: Floats = np.divide(
            units, rate, out=np.full(len(ran), float(elapsed_s)), where=units > 0
        )
        return received_s + idle_s

    def _add_jobs(self, view: View, kinds: Kinds) -> None:
        """Align the roster with the active GPU jobs; set the gangs and rates of new ones."""
        roster, ids = self._roster, self._cpu_jobs.without_cpu_jobs(view.active.ids)
        new = roster.align(ids)
        if len(new):
            roster.gangs[new] = [
                demand.replicas * demand.gpus for demand in map(view.demand, ids[new].tolist())
            ]
            roster.rates[new] = kinds.rates(
                view, ids[new], roster.gangs[new], look=self._spec.looks
            )

    @property
    def _min_interval_s(self) -> float:
        """Least time between computations of the shares; with ``faithful`` 0 means the default."""
        return self.recompute_s or (RECOMPUTE_S if self.faithful else 0.0)

    def _is_old(self, view: View) -> bool:
        """Return True if enough time has passed to compute the shares again."""
        # Upstream treats a clock at 0 as "never computed".
        uncounted = self.faithful and self._computed_s == 0 and view.from_zero
        return uncounted or view.now_s - self._computed_s >= self._min_interval_s

    def _is_stale(self) -> bool:
        """Return True if jobs or GPUs came or went since the shares were computed."""
        ids, gpus = self._computed_for
        return len(self._roster) > 0 and (
            ids is not self._roster.ids or gpus != self._placement.gpus
        )

    def _compute_shares(self, view: View, kinds: Kinds) -> dict[str, float]:
        """Compute and set new shares; return notes with the objective's value if it is finite."""
        roster, placement = self._roster, self._placement
        answer = self._spec.shares(
            snapshot_of(view, self._spec, roster, kinds.types, placement.gpus),
            roster,
            view.rng,
            self._hint,
        )
        self._hint = answer.hint
        if answer.note:
            self._remarks[answer.note] = None
        roster.reset(answer.x, view.now_s - self._computed_s if self._computed_s > -inf else 0.0)
        self._computed_s, self._computed_for, self._ranking = (
            view.now_s,
            (roster.ids, placement.gpus),
            None,
        )
        return {"objective": answer.value} if np.isfinite(answer.value) else {}

    def _would_idle(self) -> bool:
        """Return True if no job runs and none would win GPUs."""
        # Upstream waits here for the next arrival, or computes at once if there is none, which a
        # scheduler cannot know.
        roster, placement = self._roster, self._placement
        if len(placement.ran):
            return False
        won = self._current_ranking().winners(
            roster.time_s, range(len(placement.gpus)), placement.gpus
        )
        return not (won[~self._sits_out] >= 0).any()

    def _type_order(self, view: View) -> list[int]:
        """Return type columns in filling order: fastest first, or shuffled as upstream does.

        Shuffled with `faithful`, for `isolated` and, without `aware`, all but `gandiva`.
        """
        order = list(range(len(self._placement.gpus)))
        if (
            self.faithful
            and self.objective != "gandiva"
            and (not self.aware or self.objective == "isolated")
        ):
            if self._upstream_shuffler is None:
                self._upstream_shuffler = _upstream_shuffler(view.rng)
            self._upstream_shuffler.shuffle(order)
        return order

    def _current_ranking(self) -> DeficitRanking:
        """Return the ranking of jobs under the present shares, rebuilt if it was reset.

        A rebuild also records which jobs sit out.
        """
        if self._ranking is None:
            roster = self._roster
            can = roster.rates > 0
            can[self._placement.fixed] = False
            if self.objective == "fifo":
                can &= roster.share > 0
            self._ranking = DeficitRanking(roster, can)
            self._sits_out = ~roster.counted if self.faithful else np.zeros(len(roster), np.bool_)
        return self._ranking


def _upstream_shuffler(rng: np.random.Generator) -> Random:
    """Return upstream's random stream for the order of types, from the seed of `rng`.

    With few jobs the result depends on that order.
    """
    seeds = rng.bit_generator.seed_seq
    entropy = seeds.entropy if isinstance(seeds, np.random.SeedSequence) else None
    return Random((entropy[0] if isinstance(entropy, Sequence) else entropy or 0) + _SHUFFLE_STREAM)
