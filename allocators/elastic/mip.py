"""The optimal elastic allocator: every so often an integer program, or an exact dynamic program,
gives each job the size that helps all the most.
"""

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
    Offer,
    Utility,
    in_steps,
    price_of_waiting,
    progress,
    ties,
    values,
)
from allocators.nesting import is_tick, next_tick
from allocators.placement import RUN_TIME, Placer, placement_param, types_param
from allocators.reasons import next_decision, room
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
    """Choose the sizes of all jobs at once so that the sum of their progress in a look-ahead is the
    greatest.

    Notes
    -----
    The abstract of [1]_ says that a mixed-integer program maximises the training progress of all
    jobs, and that of [2]_, of the same group, that the total estimated time to completion is the
    goal. The program itself is not known to us in full; this one is a reconstruction. With the
    estimated time to completion ``ETC_i(k)`` of job i at size k, the look-ahead L and the pause r
    of a change of size,

    - ``p_i(k) = min(1, max(0, L - r [k differs from the size held]) / ETC_i(k))``, the share of the
      remaining job that is done within L;
    - maximise ``sum w_i p_i(k) x_ik`` over binary x; a running job gets exactly one size, a waiting
      one at most one, all together no more than there is.

    Our reading: the other objectives, see `allocators.elastic.utility.values`; ``w_i = 1 + phi x``
    the hours that i waited from submission to its first start; under ``preempt_to_zero`` and
    ``max_changes`` a stop is a change too; a budget of ``max_changes`` is for all GPU types
    together. The paper allots whole nodes (``granularity=node``); the default counts GPUs, because
    traces do. On a cluster of several GPU types each is divided for itself, in the order of
    ``types``, and who is not served on one is a candidate on the next. ``fifo_admission`` holds
    over all types together: where a market starts a job although one submitted earlier is served
    nowhere, all are divided again without the jobs submitted after that one; and where cores,
    memory or fragments keep a job from a place, no later one starts.

    That sum saturates: a job that is done within L on four GPUs gains nothing from sixteen. Among
    choices of the same value the greatest progress per second decides, ``sum w_i p_i(k) / min(L, r
    + ETC_i(k)) x_ik``, then the fewest changes, then the most units for those submitted first. Both
    sums are counted in whole steps of `gap` (of 1e-6 for the second) times their largest term,
    rounded down, so that every solver sees the same choices as equal. Our reading, too: a published
    optimum stays one.

    Without ``fifo_admission``, ``max_changes`` and several periods the program is a multiple-choice
    knapsack, which a dynamic program solves exactly (``solver=dp``): same objective, no gap. With
    ``periods`` > 1 the program looks several slots ahead, and only the first is carried out: job i
    makes progress ``q_it <= sum_k (slot / ETC_i(k)) x_ikt`` in slot t, ``sum_t q_it <= 1``, and the
    objective is ``sum_t gamma^t sum_i w_i q_it - c sum_it z_it`` where z_it = 1 if the size of slot
    t is not that of the slot before; a start is one too. In the first slot the pause is taken off
    as above, later ones charge only c. First come first served and the limit of changes bind the
    first slot, and so do the tie-breaks, with L of all slots. No solver is stopped by the clock,
    only by the gap, so that results are the same on every machine; over several slots, where two
    solvers may stop at different plans within ``slots_gap``, a decision on hundreds of jobs takes
    seconds.

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
        help="Time ahead over which progress is counted; L in the paper.",
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
            "Whether the policy also decides when a job arrives or finishes, and when "
            "nodes come or go."
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
            "What is maximized. remaining: progress as a share of remaining work."
            " total: of total work. throughput: speed-ups. etc: least time to"
            " completion."
        ),
    )
    preempt_to_zero: bool = param(
        False, title="Stop running jobs", help="Whether running jobs may be stopped for others."
    )
    fifo_admission: bool = param(
        False,
        title="Start in order of submission",
        help=("Whether a waiting job starts only if all earlier GPU jobs start too."),
    )
    max_changes: int = param(
        -1,
        title="Most size changes per decision",
        low=-1,
        high=1_000_000,
        help="Most running jobs that may change their size at one decision; -1 = any number.",
    )
    phi: float = param(
        0.0,
        title="Weight of waiting",
        unit="1/h",
        low=0,
        high=1000,
        help=(
            "Fairness: weight 1 + phi x h of a job that waited h hours for its first"
            " start; 0 = equal weights."
        ),
    )
    granularity: str = granularity_param()
    sizes: str = sizes_param()
    gap: float = param(
        1e-6,
        title="Solver tolerance",
        low=0,
        high=0.5,
        help=(
            "Smallest difference in progress that counts, relative to the largest"
            " progress of any job."
        ),
    )
    solver: str = param(
        "auto",
        choices=("auto", "highs", "cbc", "dp"),
        labels={"auto": "Automatic", "highs": "HiGHS", "cbc": "CBC", "dp": "Dynamic program"},
        help=(
            "dp: exact dynamic program, without fifo_admission, max_changes or several"
            " periods. auto: dp if possible, else HiGHS, else CBC. Another solver"
            " replaces one that is missing or fails."
        ),
    )
    periods: int = param(
        1,
        title="Slots planned ahead",
        low=1,
        high=24,
        help=(
            "Slots that the program looks ahead; with more than one the look-ahead is periods x"
            " slot_s."
        ),
    )
    slot_s: float = param(
        300.0,
        title="Length of a slot",
        unit="s",
        low=1,
        high=86_400,
        help="Length of a slot, if there are several periods.",
    )
    gamma: float = param(
        0.95,
        title="Discount per slot",
        low=0.01,
        high=1,
        help=("Discount of progress from one slot to the next, if there are several periods."),
    )
    slots_gap: float = param(
        0.01,
        title="Solver tolerance with several slots",
        low=0,
        high=0.5,
        help=(
            "Solver tolerance instead of gap with several periods, where a smaller one"
            " takes minutes to prove."
        ),
    )
    change_cost: float = param(
        0.0,
        title="Cost of a size change",
        low=0,
        high=1000,
        help=(
            "Price of a change of size per slot, in units of a job's remaining work (c"
            " in the paper); with several periods only."
        ),
    )
    placement: str = placement_param()
    types: str = types_param()
    _menu: Menu = field(init=False, repr=False)
    _worth: Utility = field(init=False, repr=False)
    _solvers: Solvers | None = field(init=False, repr=False)
    _turned_away: int = field(init=False, repr=False, default=0)
    _choices: Choices = field(init=False, repr=False, default_factory=Choices)

    needs = Needs(RUN_TIME | {"pause"}, frozenset({"scaling"}))
    card = Card(
        title="Huawei-style MIP",
        brief="optimal sizes by integer program",
        what=(
            "Every few minutes chooses the sizes of all jobs together to maximize their"
            " progress in the next minutes."
        ),
        cost=(
            "Every change of size is a restart; long jobs may wait long unless"
            " fifo_admission or phi is set."
        ),
        limits=(
            "As good as the estimates of remaining work and speeds; plans only as far as its"
            " look-ahead."
        ),
        source=(
            "Hu et al., An Optimal Resource Allocator of Elastic Training for Deep Learning Jobs on"
            " Cloud, arXiv 2109.03389; US 2024/0086249 A1"
        ),
        certainty=(
            "our reading: a reconstruction from the abstract; the paper's program is not known"
            " to us"
        ),
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
        """Check that the options go together, look which solvers are there, and prepare the menu of
        sizes.
        """
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
        asked = {
            "fifo_admission": self.fifo_admission,
            f"max_changes={self.max_changes}": self.max_changes >= 0,
            f"periods={self.periods}": self.periods > 1,
        }
        return [name for name, there in asked.items() if there]

    @property
    def _is_exact(self) -> bool:
        return self.solver == "dp" or (self.solver == "auto" and not self._beyond_dp)

    @property
    def cadence(self) -> Cadence:
        """Every interval; on request also at every event."""
        return Cadence(
            on_arrival=self.events,
            on_finish=self.events,
            on_capacity=self.events,
            every_s=self.every_s,
        )

    def remarks(self) -> tuple[str, ...]:
        """Say which solver is missing or failed, which jobs were refused, and whether there was
        anything to resize.
        """
        said = list(self._solvers.remarks()) if self._solvers else []
        if self._turned_away:
            said.append(
                f"{jobs_were(self._turned_away)} refused: the cluster has no size that is large"
                f" enough in units of granularity={self.granularity}."
            )
        said += self._choices.remark("mip_elastic", "it only chose which of them run")
        return tuple(said)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """State when sizes are chosen next, or what the sizes chosen left for a job."""
        now_s = decided.view.now_s
        if not decided.wants(job):
            return room(decided, job)
        if not self.events and not is_tick(now_s, self.every_s):
            return next_decision(next_tick(now_s, self.every_s), "sizes were chosen again")
        return self._menu.explain(
            decided, job, "the sizes with the greatest sum of progress left it none"
        )

    def allocate(self, view: View, /) -> Plan:
        """Value, divide, and seat."""
        self._menu.feed(view)
        self._choices.jobs += len(view.delta.arrived)
        self._worth.forget(view.delta.finished)
        if not len(view.active):
            return EMPTY
        turn, sizes = self._divide(view)
        changes = self._menu.seat(view, sizes, in_order=self.fifo_admission)
        for job, grant in changes.items():
            if grant is not None and job not in view.grants:
                self._worth.started(view, job)
        refused = self._menu.hopeless
        self._turned_away += len(refused)
        self._worth.forget(refused)
        return Plan(changes, refused, notes=turn.notes | {"refused": float(len(refused))})

    def look(self, options: Sequence[SizeOptions]) -> None:
        """Note whether any job has a choice of sizes."""
        self._choices.look(options)

    def _divide(self, view: View) -> tuple[_Optimisation, dict[JobId, int]]:
        last: JobId | None = None
        while True:
            turn = _Optimisation(self, view, self._worth, self._solvers)
            sizes = self._menu.divide(view, turn.choose, last)
            last = self._menu.passed(view, sizes) if self.fifo_admission else None
            if (
                last is None
            ):  # else it is a job submitted before the last one offered, so this comes to an end
                return turn, sizes


class _Optimisation:
    """One decision: values and solves, market by market.

    Parameters
    ----------
    asked : MipElastic
        The parameters.
    view : View
        The instant.
    worth : Utility
        Values sizes.
    solvers : Solvers or None
        Who solves the program; None = the exact dynamic program.
    """

    def __init__(
        self, asked: MipElastic, view: View, worth: Utility, solvers: Solvers | None
    ) -> None:
        self._asked, self._view, self._worth, self._solvers = asked, view, worth, solvers
        self._changes = asked.max_changes
        self.notes: dict[str, float] = {
            "objective": 0.0,
            "gap": 0.0,
            "candidates": 0.0,
            "resized": 0.0,
        }
        if asked.periods > 1:
            self.notes["first_slot"] = 0.0

    def choose(self, market: Market) -> Mapping[JobId, int]:
        """Give every job of a market its size."""
        options = [*market.running, *market.waiting]
        self._asked.look(options)
        offers = [self._worth.offer(self._view, option) for option in options]
        at = (self._ahead if self._asked.periods > 1 else self._at_once)(market, options, offers)
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

    def _at_once(
        self, market: Market, options: Sequence[SizeOptions], offers: Sequence[Offer]
    ) -> list[int]:
        worth = values(self._asked.objective, offers, self._asked.lookahead_s)
        program = self._program(market, options, offers, in_steps(worth, self._asked.gap))
        if self._solvers is None:
            found = knapsack(
                program.sizes, program.values, program.optional, program.capacity, program.ties
            )
            assert found is not None, "what running jobs hold fits"
            at = found.at
        else:
            at, _, gap, _ = solve(program, self._solvers)
            self.notes["gap"] = max(self.notes["gap"], gap)
        objective = fsum([row[place] for row, place in zip(worth, at, strict=True) if place >= 0])
        if self._asked.objective == "etc":
            objective = (
                price_of_waiting(offers) * fsum([offer.weight for offer in offers]) - objective
            )
        self.notes["objective"] += objective
        return at

    def _ahead(
        self, market: Market, options: Sequence[SizeOptions], offers: Sequence[Offer]
    ) -> list[int]:
        asked = self._asked
        first = [progress(offer, asked.slot_s) for offer in offers]
        later = [progress(offer._replace(pause_s=0.0), asked.slot_s) for offer in offers]
        weights = [offer.weight * offer.rest for offer in offers]
        assert self._solvers is not None, "the exact solver does not look ahead"
        program = self._program(market, options, offers, first)
        found = solve(
            Horizon(program, later, weights, asked.periods, asked.gamma, asked.change_cost),
            self._solvers,
        )
        self.notes["gap"] = max(self.notes["gap"], found.gap)
        self.notes["objective"] += found.objective
        self.notes["first_slot"] += fsum(
            [
                weight * shares[at]
                for weight, shares, at in zip(weights, first, found.at, strict=True)
                if at >= 0
            ]
        )
        return found.at

    def _program(
        self,
        market: Market,
        options: Sequence[SizeOptions],
        offers: Sequence[Offer],
        worth: Sequence[Sequence[float]],
    ) -> SizeProgram:
        optional = [
            not option.held or (self._asked.preempt_to_zero and not option.fixed)
            for option in options
        ]
        held, asked = [offer.held for offer in offers], self._asked
        window_s = asked.lookahead_s if asked.periods == 1 else asked.periods * asked.slot_s
        levels = ties(offers, options, window_s)
        sizes = [option.sizes for option in options]
        return SizeProgram(
            sizes,
            worth,
            optional,
            market.capacity,
            held,
            asked.fifo_admission,
            self._changes,
            levels,
        )
