"""Greedy elastic scaling: jobs start small and idle GPUs go to the job that gains most."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from allocators.elastic.scaling import (
    Choices,
    Market,
    Menu,
    SizeOptions,
    granularity_param,
    jobs_were,
    sizes_param,
)
from allocators.inner_policies import is_tick, next_tick
from allocators.placement import Placer, placement_param, types_param
from allocators.reasons import next_decision_reason, room_reason
from sim.contract import (
    EMPTY,
    Allocator,
    Cadence,
    Card,
    Decided,
    JobId,
    Needs,
    Plan,
    Reason,
    View,
    param,
)

VARIANTS = ("sticky", "reclaim", "fifo_fill")


@dataclass
class GreedyElastic(Allocator):
    """Start waiting jobs at their smallest size, then give idle GPUs to jobs step by step.

    Notes
    -----
    The benchmark of an optimal allocator [1]_, of which only the abstract was read: all three
    variants are our reading.

    ``sticky``: waiting jobs are started at their smallest size in order of submission; the first
    that does not fit holds up those behind it. Then, as long as units are idle, the job with the
    largest gain ``(s(k') - s(k)) / (k' - k)`` gets its next larger size ``k'`` if that fits and
    the gain is positive; ``s(k)`` is its estimated rate over that at its smallest size; ties by job
    id. No job ever shrinks.

    ``reclaim``: before a waiting job is blocked, the largest job shrinks by one step of its sizes,
    repeatedly, until the smallest size of the waiting job fits (similar to Apathetic Future Share
    [2]_). Of equally large jobs the one submitted last shrinks; no job goes below its smallest
    size. If the waiting job would not fit even then, no job shrinks for it.

    ``fifo_fill``: as ``reclaim``, but idle units go to the jobs in order of submission, to each up
    to its largest size.

    Our reading: jobs that must not be stopped once they run are never resized. Each GPU type is
    divided separately, and a job that does not fit on one type is offered the next. Only GPUs are
    divided: if the cores or memory for a chosen size are not free, the job gets the next smaller
    size, or waits and is passed. A job without a size that is large enough and possible on this
    cluster is refused.

    References
    ----------
    .. [1] L. Hu, J. Zhu, Z. Zhou, R. Cheng, X. Bai, Y. Zhang, "An Optimal Resource Allocator of
    Elastic Training for Deep Learning Jobs on Cloud",
       arXiv 2109.03389 (2021).
    .. [2] C. Hwang, T. Kim, S. Kim, J. Shin, K. Park, "Elastic Resource Sharing for Distributed
    Deep Learning", NSDI 2021.
    """

    variant: str = param(
        "sticky",
        title="Which jobs grow and shrink",
        choices=VARIANTS,
        labels={
            "sticky": "Jobs only grow",
            "reclaim": "Large jobs shrink",
            "fifo_fill": "Oldest jobs grow first",
        },
        help=(
            "Jobs only grow: largest gain first. Large jobs shrink: also, for waiting jobs."
            " Oldest jobs grow first: large jobs shrink, too."
        ),
    )
    granularity: str = granularity_param()
    sizes: str = sizes_param()
    every_s: float = param(
        300.0,
        title="Time between decisions",
        unit="s",
        low=1,
        high=86_400,
        help="Time between decisions.",
    )
    events: bool = param(
        False,
        title="Decide at events too",
        help=(
            "Whether the policy also decides at arrivals and ends of jobs, and when nodes come"
            " or go."
        ),
    )
    placement: str = placement_param()
    types: str = types_param()
    _menu: Menu = field(init=False, repr=False)
    _is_settled: bool = field(init=False, repr=False, default=False)
    _refused: int = field(init=False, repr=False, default=0)
    _choices: Choices = field(init=False, repr=False, default_factory=Choices)

    needs = Needs(frozenset({"rates"}), frozenset({"scaling"}))
    card = Card(
        title="Greedy elastic",
        brief="free GPUs go where they help most",
        what=(
            "Jobs start at their smallest size; idle GPUs go one by one to the job that"
            " gains most speed."
        ),
        cost=("Each step is the best for that instant only; every growth restarts a running job."),
        limits=(
            "Ignores remaining work and restart cost. The sticky variant never takes"
            " GPUs back, so late jobs wait."
        ),
        source=(
            "Benchmark in Hu et al., An Optimal Resource Allocator of Elastic Training, arXiv"
            " 2109.03389 (2021)"
        ),
        certainty=(
            "our reading: the abstract only calls its benchmark greedy; three plausible rules"
        ),
        goals=("elastic",),
        how=(
            "Every few minutes waiting jobs start at their smallest size, in order of submission.",
            "The first job that does not fit holds up the jobs behind it.",
            "While GPUs are idle, the job that gains most speed per GPU gets its next larger size.",
            (
                "In the sticky variant no job ever shrinks; in the others the largest jobs"
                " return GPUs to waiting jobs."
            ),
        ),
    )

    def __post_init__(self) -> None:
        """Create the menu of sizes."""
        self._menu = Menu(
            Placer(self.placement, self.types, False),
            granularity=self.granularity,
            sizes=self.sizes,
        )

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
        """Return notes on refused jobs, and if no job had a choice of sizes."""
        choice_notes = self._choices.remark(
            "greedy_elastic",
            "it started them in order of submission, as fifo does, but at its own instants",
        )
        if not self._refused:
            return choice_notes
        unit = "GPUs" if self.granularity == "gpu" else "whole nodes"
        return (
            (
                f"{jobs_were(self._refused)} refused: no number of {unit} was both large enough and"
                " possible on this cluster."
            ),
            *choice_notes,
        )

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the next decision or the sizes chosen; without GPUs by room."""
        now_s = decided.view.now_s
        if not decided.wants(job):
            return room_reason(decided, job)
        if not self.events and not is_tick(now_s, self.every_s):
            return next_decision_reason(next_tick(now_s, self.every_s), "sizes were chosen again")
        return self._menu.explain(
            decided, job, "jobs start at their smallest size in order of submission"
        )

    def allocate(self, view: View, /) -> Plan:
        """Choose sizes in every market, place the jobs, and refuse impossible ones.

        Returns an empty plan if jobs and nodes are as at the last plan, and that changed nothing.
        """
        self._choices.jobs += len(view.delta.arrived)
        if not self._menu.feed(view) and self._is_settled:
            return EMPTY
        idle: list[int] = []
        sizes = self._menu.divide(view, lambda market: self._choose(market, idle))
        changes = self._menu.make_grants(view, sizes)
        self._is_settled = not changes
        self._refused += len(self._menu.impossible_jobs)
        return Plan(changes, refuse=self._menu.impossible_jobs, notes={"idle_gpus": sum(idle)})

    def _choose(self, market: Market, idle: list[int]) -> dict[JobId, int]:
        """Return the units per job of a market by the variant; append its idle GPUs to `idle`."""
        self._choices.note_options((*market.running, *market.waiting))
        division = UnitDivision(market)
        division.start(reclaim=self.variant != "sticky")
        if self.variant == "fifo_fill":
            division.fill()
        else:
            division.grow()
        idle.append(division.free * market.unit)
        return division.units()


class UnitDivision:
    """The units of one market while they are assigned to jobs.

    Parameters
    ----------
    market : Market
        The units to divide and the jobs.
    """

    def __init__(self, market: Market) -> None:
        self._waiting = market.waiting
        self._options = {option.job: option for option in market.running}
        self._step = {option.job: option.sizes.index(option.held) for option in market.running}
        self.free = market.capacity - sum([option.held for option in market.running])

    def units(self) -> dict[JobId, int]:
        """Return the units now assigned to each running or started job."""
        return {job: option.sizes[self._step[job]] for job, option in self._options.items()}

    def start(self, *, reclaim: bool) -> None:
        """Start waiting jobs at their smallest size, in order, up to the first without room.

        With `reclaim` the largest jobs shrink to make room, but only if that makes room enough.
        """
        spare = (
            sum([option.held - option.sizes[0] for option in self._options.values()])
            if reclaim
            else 0
        )
        largest = (
            [
                (-option.held, -job)
                for job, option in self._options.items()
                if option.held > option.sizes[0]
            ]
            if reclaim
            else []
        )
        heapify(largest)
        for option in self._waiting:
            need = option.sizes[0]
            if self.free + spare < need:
                return
            while self.free < need:
                spare -= self._shrink(largest)
            self.free -= need
            self._options[option.job], self._step[option.job] = option, 0

    def grow(self) -> None:
        """Give idle units, one step of sizes at a time, to the job that gains most per unit."""
        gains: list[tuple[float, JobId]] = []
        for option in self._options.values():
            self._push_gain(option, gains)
        while gains and self.free:
            _, job = heappop(gains)
            option, step = self._options[job], self._step[job]
            more = option.sizes[step + 1] - option.sizes[step]
            if more <= self.free:  # a step that does not fit now will not fit later
                self.free -= more
                self._step[job] = step + 1
                self._push_gain(option, gains)

    def fill(self) -> None:
        """Give idle units to jobs in order of submission, each up to its largest size."""
        for job in sorted(self._options) if self.free else ():
            option, step = self._options[job], self._step[job]
            most = option.sizes[step] + self.free
            last = max(at for at in range(step, len(option.sizes)) if option.sizes[at] <= most)
            self.free -= option.sizes[last] - option.sizes[step]
            self._step[job] = last

    def _push_gain(self, option: SizeOptions, gains: list[tuple[float, JobId]]) -> None:
        """Push a job's gain per unit from its next larger size on the heap, if it is positive."""
        sizes, rates, step = option.sizes, option.rates, self._step[option.job]
        if step + 1 < len(sizes):
            gain = (rates[step + 1] - rates[step]) / rates[0] / (sizes[step + 1] - sizes[step])
            if gain > 0:
                heappush(gains, (-gain, option.job))

    def _shrink(self, largest: list[tuple[int, int]]) -> int:
        """Shrink the largest job of the heap by one size step and return the units released.

        The job returns to the heap unless it is at its smallest size.
        """
        _, at = heappop(largest)
        option = self._options[-at]
        step = self._step[-at] = self._step[-at] - 1
        released = option.sizes[step + 1] - option.sizes[step]
        self.free += released
        if step:
            heappush(largest, (-option.sizes[step], at))
        return released
