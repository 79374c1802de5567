"""MIP elastic: an integer or exact dynamic program chooses the sizes of all jobs together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

from allocators.elastic.knapsack import knapsack
from allocators.elastic.programs import Horizon, SizeProgram, Solvers, solve
from allocators.elastic.scaling import (
    Choices,
    Market,
    Menu,
    SizeOptions,
    granularity_param,
    jobs_were,
    sizes_param,
)
from allocators.elastic.utility import (
    OBJECTIVES,
    JobValues,
    Utility,
    in_steps,
    price_of_waiting,
    progress,
    ties,
    values,
)
from allocators.inner_policies import is_tick, next_tick
from allocators.placement import RUN_TIME_NEEDS, Placer, placement_param, types_param
from allocators.reasons import next_decision_reason, room_reason
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
    View,
    param,
)


@dataclass
class MipElastic(Allocator):
    """Choose the sizes of all jobs together to maximize their progress in a look-ahead.

    Notes
    -----
    The abstract of [1]_ says that a mixed-integer program maximizes the training progress of all
    jobs; that of [2]_, by the same group, names the total estimated time to completion as the goal.
    We do not know the full program; this one is a reconstruction. With the
    estimated time to completion ``ETC_i(k)`` of job i at size k, the look-ahead L and the pause r
    of a change of size,

    - ``p_i(k) = min(1, max(0, L - r [k differs from the size held]) / ETC_i(k))``, the share of the
      remaining job that is done within L;
    - maximize ``sum w_i p_i(k) x_ik`` over binary x; a running job gets exactly one size, a waiting
      one at most one, and all fit together.

    Our reading: the other objectives, see `allocators.elastic.utility.values`; ``w_i = 1 + phi x``
    the hours that i waited from submission to its first start; under ``preempt_to_zero`` and
    ``max_changes`` a stop is a change too; ``max_changes`` covers all GPU types together. The paper
    allots whole nodes (``granularity=node``); the default counts GPUs, because traces do. Each GPU
    type is divided separately, in the order of ``types``, and a job without a size on one is a
    candidate on the next. ``fifo_admission`` holds over all types together: if a market starts a
    job although an earlier one gets no size anywhere, all markets are divided again without the
    jobs submitted after that one; if cores, memory or fragmentation prevent a start, no later job
    starts.

    That sum saturates: a job that finishes within L on four GPUs gains nothing from sixteen. Among
    choices of the same value the greatest progress per second decides, ``sum w_i p_i(k) / min(L, r
    + ETC_i(k)) x_ik``, then the fewest changes, then the most units for the jobs submitted first.
    Both sums are rounded down to whole steps of `gap` (1e-6 for the second) times their largest
    term, so that every solver sees the same choices as equal. Also our reading: a published optimum
    stays one.

    Without ``fifo_admission``, ``max_changes`` and several periods the program is a multiple-choice
    knapsack, which a dynamic program solves exactly (``solver=dp``): same objective, no gap. With
    ``periods`` > 1 the program plans several slots, and only the first is executed: job i
    makes progress ``q_it <= sum_k (slot / ETC_i(k)) x_ikt`` in slot t, ``sum_t q_it <= 1``, and the
    objective is ``sum_t gamma^t sum_i w_i q_it - c sum_it z_it`` where z_it = 1 if the size of slot
    t is not that of the slot before; a start is one too. The pause is subtracted in the first slot
    as above; later slots charge only c. First come first served, the limit of changes and the
    tie-breaks, with L of all slots, apply to the first slot. Solvers stop by the gap, never by the
    clock, so that results are the same on every machine. Over several slots two solvers may stop at
    different plans within ``slots_gap``, and a decision on hundreds of jobs takes seconds.

    References
    ----------
    .. [1] L. Hu, J. Zhu, Z. Zhou, R. Cheng, X. Bai, Y. Zhang, "An Optimal Resource Allocator of
    Elastic Training for Deep Learning Jobs on Cloud",
       arXiv 2109.03389 (2021).
    .. [2] US patent application 2024/0086249 A1.
    """

    lookahead_s: float = param(
        900.0,
        title="Look-ahead",
        unit="s",
        low=1,
        high=1e7,
        help="Time ahead over which progress counts; L in the paper.",
    )
    every_s: float = param(
        300.0,
        title="Time between decisions",
        unit="s",
        low=1,
        high=86_400,
        help="Time between decisions; D in the paper.",
    )
    events: bool = param(
        False,
        title="Decide at events too",
        help=(
            "Whether the policy also decides at arrivals and ends of jobs, and when nodes come"
            " or go."
        ),
    )
    objective: str = param(
        "remaining",
        choices=OBJECTIVES,
        labels={
            "remaining": "Share of remaining work",
            "total": "Share of total work",
            "throughput": "Sum of speed-ups",
            "etc": "Time to completion",
        },
        help=(
            "What is maximized: progress as a share of remaining or of total work, speed-ups,"
            " or an early completion."
        ),
    )
    preempt_to_zero: bool = param(
        False, title="Stop running jobs", help="Whether running jobs may be stopped for others."
    )
    fifo_admission: bool = param(
        False,
        title="In submission order",
        help=("Whether a waiting job starts only if all earlier GPU jobs start too."),
    )
    max_changes: int = param(
        -1,
        title="Most size changes per decision",
        low=-1,
        high=1_000_000,
        help="Most running jobs resized at one decision; -1 = any number.",
    )
    phi: float = param(
        0.0,
        title="Weight of waiting",
        unit="1/h",
        low=0,
        high=1000,
        help="Fairness: a job counts 1 + this weight x hours of waiting for its first start.",
    )
    granularity: str = granularity_param()
    sizes: str = sizes_param()
    gap: float = param(
        1e-6,
        title="Solver tolerance",
        low=0,
        high=0.5,
        help="Smallest difference in progress that counts, relative to the largest of any job.",
    )
    solver: str = param(
        "auto",
        choices=("auto", "highs", "cbc", "dp"),
        labels={"auto": "Automatic", "highs": "HiGHS", "cbc": "CBC", "dp": "Dynamic program"},
        help=(
            "Dynamic program: exact, but not with 'In submission order', 'Most size changes per"
            " decision' or 'Slots planned ahead'. Automatic: this, else HiGHS, else CBC."
        ),
    )
    periods: int = param(
        1,
        title="Slots planned ahead",
        low=1,
        high=24,
        help="Above 1 the look-ahead is this many times the 'Length of a slot'.",
    )
    slot_s: float = param(
        300.0,
        title="Length of a slot",
        unit="s",
        low=1,
        high=86_400,
        help="Length of a slot, with 'Slots planned ahead'.",
    )
    gamma: float = param(
        0.95,
        title="Discount per slot",
        low=0.01,
        high=1,
        help=("Discount of progress per slot, with 'Slots planned ahead'."),
    )
    slots_gap: float = param(
        0.01,
        title="Solver tolerance with several slots",
        low=0,
        high=0.5,
        help=("Replaces 'Solver tolerance' with 'Slots planned ahead'; smaller takes minutes."),
    )
    change_cost: float = param(
        0.0,
        title="Cost of a size change",
        low=0,
        high=1000,
        help=(
            "Price of a change of size per slot, in units of the job's remaining work (c in"
            " the paper), with 'Slots planned ahead'."
        ),
    )
    placement: str = placement_param()
    types: str = types_param()
    _menu: Menu = field(init=False, repr=False)
    _worth: Utility = field(init=False, repr=False)
    _solvers: Solvers | None = field(init=False, repr=False)
    _turned_away: int = field(init=False, repr=False, default=0)
    _choices: Choices = field(init=False, repr=False, default_factory=Choices)

    needs = Needs(RUN_TIME_NEEDS | {"pause"}, frozenset({"scaling"}))
    card = Card(
        title="Huawei-style MIP",
        brief="optimal sizes by integer program",
        what=(
            "Every few minutes chooses the sizes of all jobs that maximize their progress in"
            " the next minutes."
        ),
        cost=(
            "Every change of size is a restart; long jobs may wait long without 'In submission"
            " order' or 'Weight of waiting'."
        ),
        limits="Depends on the accuracy of its estimates. Plans only as far as its look-ahead.",
        source=(
            "Hu et al., An Optimal Resource Allocator of Elastic Training for Deep Learning Jobs on"
            " Cloud, arXiv 2109.03389; US 2024/0086249 A1"
        ),
        certainty="our reading: a reconstruction from the abstract, without the paper's program",
        goals=("elastic", "short waits"),
        how=(
            "Every few minutes all jobs are considered together, running and waiting.",
            (
                "For each job and size: the share of remaining work done within the look-ahead,"
                " less the pause of a change."
            ),
            "Sizes are chosen to maximise the sum of these shares on the GPUs there are.",
            "A running job always gets one of its sizes, a waiting job may get none.",
            "Then nodes are assigned; jobs whose size changes are stopped and restarted.",
        ),
    )

    def __post_init__(self) -> None:
        """Check the parameters and create the solvers and the menu of sizes."""
        self._check()
        self._solvers = (
            None
            if self._is_exact
            else Solvers(
                "cbc" if self.solver == "cbc" else "highs",
                self.gap if self.periods == 1 else self.slots_gap,
            )
        )
        self._worth = Utility(self.objective, self.phi)
        self._menu = Menu(
            Placer(self.placement, self.types, False),
            granularity=self.granularity,
            sizes=self.sizes,
        )

    def _check(self) -> None:
        """Raise an error if parameters are out of bounds or do not go together."""
        for name, gap in (("gap", self.gap), ("slots_gap", self.slots_gap)):
            if not 0 <= gap <= 0.5:
                raise ParameterError(
                    f"mip_elastic: {name} = {gap:g} is not a number from 0 to 0.5. Without a bound"
                    " a solver may answer anything."
                )
        if self.solver == "dp" and self._beyond_dp:
            raise ParameterError(
                f"mip_elastic: solver=dp cannot keep {' and '.join(self._beyond_dp)}. Choose"
                " solver=auto, highs or cbc, or leave that out."
            )
        if self.periods > 1 and self.objective in {"throughput", "etc"}:
            raise ParameterError(
                f"mip_elastic: objective={self.objective} counts no progress, so"
                f" periods={self.periods} means nothing to it. Choose objective=remaining or total,"
                " or periods=1."
            )

    @property
    def _beyond_dp(self) -> list[str]:
        """Return the set parameters, as text, that the exact dynamic program does not support."""
        unsupported = {
            "fifo_admission": self.fifo_admission,
            f"max_changes={self.max_changes}": self.max_changes >= 0,
            f"periods={self.periods}": self.periods > 1,
        }
        return [name for name, there in unsupported.items() if there]

    @property
    def _is_exact(self) -> bool:
        """Return True if the exact dynamic program solves the choice, False for a solver."""
        return self.solver == "dp" or (self.solver == "auto" and not self._beyond_dp)

    @property
    def cadence(self) -> Cadence:
        """Decide every `every_s`, and also at events if `events` is set."""
        return Cadence(
            on_arrival=self.events,
            on_finish=self.events,
            on_capacity=self.events,
            every_s=self.every_s,
        )

    def remarks(self) -> tuple[str, ...]:
        """Return notes on solvers and refused jobs, and if no job had a choice of sizes."""
        notes = list(self._solvers.remarks()) if self._solvers else []
        if self._turned_away:
            notes.append(
                f"{jobs_were(self._turned_away)} refused: the cluster has no size that is large"
                f" enough in units of granularity={self.granularity}."
            )
        notes += self._choices.remark("mip_elastic", "it only chose which of them run")
        return tuple(notes)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the next decision or the sizes chosen; without GPUs by room."""
        now_s = decided.view.now_s
        if not decided.wants(job):
            return room_reason(decided, job)
        if not self.events and not is_tick(now_s, self.every_s):
            return next_decision_reason(next_tick(now_s, self.every_s), "sizes were chosen again")
        return self._menu.explain(
            decided, job, "the sizes with the greatest sum of progress left it none"
        )

    def allocate(self, view: View, /) -> Plan:
        """Choose the sizes of all jobs, place them, and refuse impossible ones.

        Also records the first start of each job that starts. Returns an empty plan without active
        jobs.
        """
        self._menu.feed(view)
        self._choices.jobs += len(view.delta.arrived)
        self._worth.forget(view.delta.finished)
        if not len(view.active):
            return EMPTY
        turn, sizes = self._divide(view)
        changes = self._menu.make_grants(view, sizes, in_order=self.fifo_admission)
        for job, grant in changes.items():
            if grant is not None and job not in view.grants:
                self._worth.record_first_start(view, job)
        refused = self._menu.impossible_jobs
        self._turned_away += len(refused)
        self._worth.forget(refused)
        return Plan(changes, refused, notes=turn.notes | {"refused": float(len(refused))})

    def note_options(self, options: Sequence[SizeOptions]) -> None:
        """Record whether any job has a choice of sizes."""
        self._choices.note_options(options)

    def _divide(self, view: View) -> tuple[_Optimization, dict[JobId, int]]:
        """Choose the sizes in all markets; with ``fifo_admission`` repeat until the order holds.

        Returns the last optimization, which has the notes, and the units per job. Each repetition
        offers only the waiting jobs up to the one that was passed.
        """
        last: JobId | None = None
        while True:
            turn = _Optimization(self, view, self._worth, self._solvers)
            sizes = self._menu.divide(view, turn.choose, last)
            last = self._menu.first_passed_job(view, sizes) if self.fifo_admission else None
            if last is None:  # otherwise fewer jobs are offered next time, so the loop ends
                return turn, sizes


class _Optimization:
    """One decision: evaluates sizes and solves each market.

    Parameters
    ----------
    policy : MipElastic
        The policy with its parameters.
    view : View
        The instant.
    worth : Utility
        Evaluates sizes.
    solvers : Solvers or None
        Solvers of the program; None = the exact dynamic program.
    """

    def __init__(
        self, policy: MipElastic, view: View, worth: Utility, solvers: Solvers | None
    ) -> None:
        self._policy, self._view, self._worth, self._solvers = policy, view, worth, solvers
        self._changes = policy.max_changes
        self.notes: dict[str, float] = {
            "objective": 0.0,
            "gap": 0.0,
            "candidates": 0.0,
            "resized": 0.0,
        }
        if policy.periods > 1:
            self.notes["first_slot"] = 0.0

    def choose(self, market: Market) -> Mapping[JobId, int]:
        """Return the units per job of a market (0 = none); count resized jobs in the notes.

        Resized jobs also reduce the number of changes left for later markets.
        """
        options = [*market.running, *market.waiting]
        self._policy.note_options(options)
        offers = [self._worth.evaluate_job(self._view, option) for option in options]
        at = (self._choose_slots if self._policy.periods > 1 else self._choose_one_slot)(
            market, options, offers
        )
        resized = sum(
            [offer.held not in {-1, place} for offer, place in zip(offers, at, strict=True)]
        )
        self.notes["resized"] += resized
        self.notes["candidates"] += len(options)
        if self._changes > 0:
            self._changes -= resized
        return {
            option.job: option.sizes[place] if place >= 0 else 0
            for option, place in zip(options, at, strict=True)
        }

    def _choose_one_slot(
        self, market: Market, options: Sequence[SizeOptions], offers: Sequence[JobValues]
    ) -> list[int]:
        """Return each job's size index over one slot (-1 = none); add to the notes."""
        worth = values(self._policy.objective, offers, self._policy.lookahead_s)
        program = self._size_program(market, options, offers, in_steps(worth, self._policy.gap))
        if self._solvers is None:
            chosen = knapsack(
                program.sizes, program.values, program.optional, program.capacity, program.ties
            )
            assert chosen is not None, "the grants of running jobs fit"
            at = chosen.at
        else:
            at, _, gap, _ = solve(program, self._solvers)
            self.notes["gap"] = max(self.notes["gap"], gap)
        objective = fsum([row[place] for row, place in zip(worth, at, strict=True) if place >= 0])
        if self._policy.objective == "etc":
            objective = (
                price_of_waiting(offers) * fsum([offer.weight for offer in offers]) - objective
            )
        self.notes["objective"] += objective
        return at

    def _choose_slots(
        self, market: Market, options: Sequence[SizeOptions], offers: Sequence[JobValues]
    ) -> list[int]:
        """Return each job's size index in the first of several slots (-1 = none); add to notes."""
        policy = self._policy
        first = [progress(offer, policy.slot_s) for offer in offers]
        later = [progress(offer._replace(pause_s=0.0), policy.slot_s) for offer in offers]
        weights = [offer.weight * offer.rest for offer in offers]
        assert self._solvers is not None, "the exact solver does not look ahead"
        program = self._size_program(market, options, offers, first)
        solved = solve(
            Horizon(program, later, weights, policy.periods, policy.gamma, policy.change_cost),
            self._solvers,
        )
        self.notes["gap"] = max(self.notes["gap"], solved.gap)
        self.notes["objective"] += solved.objective
        self.notes["first_slot"] += fsum(
            [
                weight * shares[at]
                for weight, shares, at in zip(weights, first, solved.at, strict=True)
                if at >= 0
            ]
        )
        return solved.at

    def _size_program(
        self,
        market: Market,
        options: Sequence[SizeOptions],
        offers: Sequence[JobValues],
        worth: Sequence[Sequence[float]],
    ) -> SizeProgram:
        """Return the program of a market with these values of sizes, and with its tie-breaks.

        A job may get nothing if it waits, or if ``preempt_to_zero`` is set and it may be stopped.
        """
        optional = [
            not option.held or (self._policy.preempt_to_zero and not option.fixed)
            for option in options
        ]
        held, policy = [offer.held for offer in offers], self._policy
        window_s = policy.lookahead_s if policy.periods == 1 else policy.periods * policy.slot_s
        levels = ties(offers, options, window_s)
        sizes = [option.sizes for option in options]
        return SizeProgram(
            sizes,
            worth,
            optional,
            market.capacity,
            held,
            policy.fifo_admission,
            self._changes,
            levels,
        )
