from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators.elastic.scaling import Choices, Market, Menu, SizeOptions
from allocators.elastic.unit_placement import Range, admissible, gpus_by_node
from allocators.placement import PLACEMENTS, TYPES, Placer
from allocators.queue.fifo import Fifo
from allocators.queue.recorded import Recorded
from allocators.queue.wrappers import Switch
from sim.cluster import Change, Cluster, GpuType, NodeGroup
from sim.conditions import Conditions
from sim.contract import (
    Cadence,
    Card,
    Gang,
    Grant,
    Ints,
    JobId,
    Needs,
    Part,
    Plan,
    Shape,
    Spec,
    Tuning,
    View,
)
from sim.engine.simulator import Simulator
from sim.perf.scaling import PowerLaw
from sim.result import RunResult
from sim.trace import Trace
from tests import strategies
from tests.allocators.queue.walk import clusters
from tests.conformance import Scenario, check_feasible

CARD = Card("Dice", "Does what it is told.", "", "", "", "exact")
ONE = GpuType("v100")


def trace(rows: list[dict[str, Any]]) -> Trace:
    base = {
        "submit_time_s": 0.0,
        "num_gpus": 1,
        "duration_s": 1000.0,
        "min_gpus": 1,
        "max_gpus": 8,
        "scaling_exponent": 1.0,
    }
    return Trace.of(
        pd.DataFrame([{"job_id": f"j{at}"} | base | row for at, row in enumerate(rows)])
    )


# -- admissible sizes
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "most", "asked", "unit", "room", "every", "sizes"),
    [
        (1, 16, 4, 1, 99, False, (1, 2, 4, 8, 16)),
        (3, 12, 6, 1, 99, False, (3, 4, 6, 8, 12)),
        (3, 6, 3, 1, 99, True, (3, 4, 5, 6)),
        (
            1,
            128,
            4,
            1,
            24,
            False,
            (1, 2, 4, 8, 16),
        ),  # 24 is neither a power of two nor an end of the range
        (1, inf, 5, 1, 9, False, (1, 2, 4, 5, 8)),
        (1, inf, 1, 1, 4, True, (1, 2, 3, 4)),
        (9, 99, 9, 1, 8, False, ()),  # the least does not fit
        (1, 4, 1, 8, 20, False, (1,)),  # one node is more than it can use
        (12, 64, 20, 8, 20, False, (2, 3, 4, 8)),  # 12 GPUs are on 2 nodes, 20 on 3, 64 on 8
        (12, 40, 20, 8, 20, True, (2, 3, 4, 5)),
        (1, 160, 8, 8, 6, False, (1, 2, 4)),
    ],
)
def test_admissible_sizes(
    least: float,
    most: float,
    asked: float,
    unit: int,
    room: int,
    every: bool,
    sizes: tuple[int, ...],
) -> None:
    assert admissible(Range(least, most, asked), unit, room, every=every) == sizes


Choice = Callable[[View, Market], Mapping[JobId, int]]


# -- an allocator that does what a function says
# --------------------------------------------------------------------------------------------------


@dataclass
class Dice:
    """Divides every market by a function, seats the outcome, and checks what came of it."""

    choose: Choice
    granularity: str = "gpu"
    sizes: str = "powers"
    most: int = 0
    placement: str = "fewest"
    types: str = "fastest"
    every_s: float = inf
    tuning: Callable[[JobId, int], Tuning] | None = None
    markets: list[Market] = field(default_factory=list)
    asked: list[list[JobId]] = field(default_factory=list)
    needs: Needs = Needs(frozenset({"rates"}), frozenset({"scaling"}))  # noqa: RUF009 - it is frozen
    card: Card = CARD

    def __post_init__(self) -> None:
        self.menu = Menu(
            Placer(self.placement, self.types, False),
            granularity=self.granularity,
            sizes=self.sizes,
            most=self.most,
            profile=self.profile,
        )

    @property
    def cadence(self) -> Cadence:
        return Cadence(every_s=self.every_s)

    def profile(self, view: View, ids: Ints, shapes: Any) -> Any:
        self.asked.append(ids.tolist())
        assert all(isinstance(shape, Shape) for shape in shapes)
        return view.estimates.rates(ids, shapes)

    def allocate(self, view: View) -> Plan:
        self.menu.feed(view)
        seen: list[Market] = []

        def choose(market: Market) -> Mapping[JobId, int]:
            seen.append(market)
            return self.choose(view, market)

        sizes = self.menu.divide(view, choose)
        changes = self.menu.make_grants(view, sizes, self.tuning)
        self.markets += seen
        check_markets(seen)
        Outcome(
            view, seen, sizes, changes, self.granularity == "node", self.tuning is not None
        ).check()
        return Plan(changes, refuse=self.menu.impossible_jobs)


def check_markets(markets: list[Market]) -> None:
    for market in markets:
        assert market.capacity >= sum(option.held for option in market.running)
        for options in (market.running, market.waiting):
            assert [option.job for option in options] == sorted(option.job for option in options)
        for option in (*market.running, *market.waiting):
            assert option.sizes
            assert len(option.sizes) == len(option.rates)
            assert list(option.sizes) == sorted(set(option.sizes))
            assert min(option.sizes) > 0
            assert min(option.rates) > 0
            assert (option in market.running) == (option.held in option.sizes)
            assert (option in market.waiting) == (option.held == 0)


@dataclass
class Outcome:
    """What one call of `seat` was asked and answered, to be checked."""

    view: View
    markets: list[Market]
    sizes: Mapping[JobId, int]
    changes: Mapping[JobId, Grant | None]
    whole: bool
    retuned: bool

    def check(self) -> None:
        for job, grant in self.changes.items():
            if not self.view.demand(job).gpus:
                assert job not in self.view.grants
            elif grant is None:
                assert job in self.view.grants
                assert self.sizes[job] == 0
            else:
                self._check_grant(job, grant)
        for market in self.markets:
            for option in market.running:
                self._check_left_alone(option)

    def _check_left_alone(self, option: SizeOptions) -> None:
        if not self.view.one("preemptible", option.job):
            assert option.sizes == (option.held,)
            assert option.job not in self.changes
        if self.sizes[option.job] == option.held and not self.retuned:
            assert option.job not in self.changes

    def _check_grant(self, job: JobId, grant: Grant) -> None:
        [gang] = grant.gangs
        assert gang.servers is None
        held, old = gpus_by_node(grant), self.view.grants.get(job)
        option, market = self._market_of(job, held)
        units = sum(held.values()) // market.unit
        assert units in option.sizes
        if old is None:
            assert 0 < units <= self.sizes[job]
        elif self.sizes[job] < option.held:
            self._check_smaller(held, gpus_by_node(old), units == self.sizes[job])
        elif self.sizes[job] > option.held:
            assert option.held < units <= self.sizes[job] or self.retuned
        else:
            assert self.retuned
            assert grant.gangs == old.gangs
        if self.whole and units > option.held:
            assert set(held.values()) == {market.unit}
            assert {self.view.cluster.nodes[node].gpus for node in held} == {market.unit}

    def _check_smaller(
        self, held: Mapping[int, int], own: Mapping[int, int], is_exact: bool
    ) -> None:
        assert is_exact
        assert held.keys() <= own.keys()
        if not self.whole:
            assert all(count <= own[node] for node, count in held.items())

    def _market_of(self, job: JobId, held: Mapping[int, int]) -> tuple[SizeOptions, Market]:
        pools, nodes = self.view.room.pools, self.view.cluster.nodes
        for market in self.markets:
            for option in (*market.running, *market.waiting):
                own = {
                    node
                    for pool in market.pools
                    for node in pools[pool].nodes
                    if not self.whole or nodes[node].gpus == market.unit
                }
                if option.job == job and held.keys() <= own:
                    assert len({pools[pool].type_at for pool in market.pools}) == 1
                    return option, market
        raise AssertionError(f"job {job} was given nodes of no market that it was offered in")


def roll(view: View, market: Market) -> dict[JobId, int]:
    """Any size for everybody, whether or not there is so much."""
    chosen = {
        option.job: int(view.rng.choice([*option.sizes, option.held, 0]))
        for option in market.running
    }
    return chosen | {
        option.job: int(view.rng.choice(option.sizes))
        for option in market.waiting
        if view.rng.random() < 0.6
    }


def roll_within(view: View, market: Market) -> dict[JobId, int]:
    """Any size for everybody, nobody stopped, and no more than there is."""
    chosen = {option.job: option.held for option in market.running}
    left = market.capacity - sum(chosen.values())
    for option in (*market.waiting, *market.running):
        held = chosen.get(option.job, 0)
        fits = [size for size in option.sizes if size <= held + left]
        if fits:
            chosen[option.job] = int(view.rng.choice(fits))
            left -= chosen[option.job] - held
    return chosen


def smallest_that_fit(view: View, market: Market) -> dict[JobId, int]:
    """Those that run stay as they are; those that wait get their smallest size, as far as there is
    so much.
    """
    chosen = {option.job: option.held for option in market.running}
    for option in market.waiting:
        if sum(chosen.values()) + option.sizes[0] <= market.capacity:
            chosen[option.job] = option.sizes[0]
    return chosen


def run(
    jobs: Trace, cluster: Cluster, allocator: Any, conditions: Conditions | None = None
) -> RunResult:
    return Simulator(jobs, cluster, allocator, conditions or Conditions(PowerLaw())).run()


@pytest.mark.slow
@given(
    strategies.traces(),
    strategies.clusters(),
    strategies.conditions,
    st.sampled_from(("gpu", "node")),
    st.sampled_from(("powers", "all")),
    st.sampled_from(PLACEMENTS),
    st.sampled_from(TYPES),
    st.sampled_from((roll, roll_within)),
)
@settings(max_examples=50, deadline=None)
def test_no_choice_of_sizes_makes_an_impossible_plan(
    jobs: Trace,
    cluster: Cluster,
    conditions: Conditions,
    granularity: str,
    sizes: str,
    placement: str,
    types: str,
    choose: Choice,
) -> None:
    conditions = replace(conditions, perf=PowerLaw(), horizon_s=200.0)
    allocator = Dice(choose, granularity, sizes, placement=placement, types=types, every_s=7.0)
    result = run(jobs, cluster, allocator, conditions)
    check_feasible(result, Scenario("drawn", jobs, cluster, conditions))


@given(
    strategies.traces(plain=True),
    strategies.clusters(plain=True),
    st.sampled_from(("gpu", "node")),
    st.sampled_from(("powers", "all")),
)
@settings(max_examples=40, deadline=None)
def test_where_gpus_are_all_that_matters_everybody_gets_what_was_chosen(
    jobs: Trace, cluster: Cluster, granularity: str, sizes: str
) -> None:
    asked: dict[JobId, int] = {}

    def choose(view: View, market: Market) -> Mapping[JobId, int]:
        chosen = roll_within(view, market)
        asked.update({job: units * market.unit for job, units in chosen.items()})
        for option in market.running:  # holds what was chosen at the last decision
            assert option.held * market.unit == held.get(option.job)
        held.update(asked)
        return chosen

    held: dict[JobId, int] = {}
    result = run(jobs, cluster, Dice(choose, granularity, sizes, every_s=5.0))
    assert result.reason == "drained"


# -- one thing at a time
# --------------------------------------------------------------------------------------------------

Spots = dict[int, int]  # GPUs by node


@dataclass
class After(Dice):
    """Makes a first plan by hand, as if by another policy, and is `Dice` from the next decision
    on.
    """

    first: Plan = field(default_factory=Plan)
    is_begun: bool = False

    def allocate(self, view: View) -> Plan:
        if self.is_begun:
            return super().allocate(view)
        self.is_begun = True
        return self.first


def on(*gangs: Spots, cpus: float = 0.0) -> Grant:
    """Return a grant with a gang for each mapping of nodes to GPUs."""
    return Grant(
        tuple(Gang(Part(tuple(spots), tuple(spots.values()), 1, cpus, 0.0)) for spots in gangs)
    )


def grants_at(result: RunResult, at_s: float) -> dict[JobId, Spots]:
    """GPUs by node of each job that holds some at an instant."""
    rows = result.placements.merge(
        result.segments[["job", "t0", "t1"]], left_on="segment", right_index=True
    )
    rows = rows[(rows["t0"] <= at_s) & (rows["t1"] > at_s)]
    found: dict[JobId, Spots] = {}
    for row in rows.itertuples():
        spots = found.setdefault(row.job, {})
        spots[row.node] = spots.get(row.node, 0) + row.count * row.gpus
    return found


def choose_by_time(units: Mapping[float, Mapping[JobId, int]]) -> Choice:
    """Units by job from an instant on; jobs that are not named keep what they hold."""

    def choose(view: View, market: Market) -> Mapping[JobId, int]:
        named = units[max(at_s for at_s in units if at_s <= view.now_s)]
        offered = [option.job for option in (*market.running, *market.waiting)]
        return {option.job: option.held for option in market.running} | {
            job: named[job] for job in offered if job in named
        }

    return choose


def always(*units: int) -> Choice:
    """Units of jobs 0, 1, ..."""
    return choose_by_time({0.0: dict(enumerate(units))})


def divide(
    rows: list[dict[str, Any]],
    nodes: str | Cluster,
    choose: Choice,
    until_s: float = inf,
    first: dict[JobId, Grant] | None = None,
    **options: Any,
) -> tuple[Dice, RunResult]:
    """Run jobs on nodes under `Dice`, with `first` as the plan of another policy."""
    kind = Dice if first is None else After
    allocator = kind(
        choose,
        **{"every_s": 10.0} | ({} if first is None else {"first": Plan(first)}) | options,
    )
    cluster = clusters(nodes) if isinstance(nodes, str) else nodes
    return allocator, run(
        trace(rows), cluster, allocator, Conditions(PowerLaw(), horizon_s=until_s)
    )


def after_fifo(
    rows: list[dict[str, Any]], nodes: str, allocator: Dice, conditions: Conditions
) -> RunResult:
    """Run jobs under FIFO for 10 s, then under `Dice`."""
    switch = Switch(at_s=10.0)
    switch.assemble(lambda spec: allocator if spec == Spec("easy") else Fifo())
    return run(trace(rows), clusters(nodes), switch, conditions)


Offer = tuple[tuple[int, ...], int, int, dict[JobId, int], dict[JobId, tuple[int, ...]]]


def offers(markets: list[Market]) -> list[Offer]:
    """(pools, unit, capacity, units held by job, sizes by waiting job) of each market."""
    return [
        (
            market.pools,
            market.unit,
            market.capacity,
            {option.job: option.held for option in market.running},
            {option.job: option.sizes for option in market.waiting},
        )
        for market in markets
    ]


class Case(NamedTuple):
    """Jobs on nodes, and the GPUs by node that each job holds later."""

    rows: list[dict[str, Any]]
    nodes: str | Cluster
    units: dict[float, dict[JobId, int]]  # chosen from an instant on
    held: dict[float, dict[JobId, Spots]]  # at instants
    first: dict[JobId, Grant] | None = None  # by another policy
    options: dict[str, Any] = {}  # noqa: RUF012 - nothing writes to it
    offered: tuple[Offer, ...] = ()  # in the first markets


# One node for a, one for b; jobs that belong to neither may use all.
CONFINED = Cluster(
    (NodeGroup(1, 4, "v100", partitions=("a",)), NodeGroup(1, 2, "v100", partitions=("b",))), (ONE,)
)
CONFINES = Dice.needs | Needs(confine_by="vc")
CORES = [{"cpus": 4.0}, {"cpus": 4.0}, {"cpus": 4.0, "submit_time_s": 1.0}]
SINGLE = {0: {0: 1}, 1: {0: 1}, 2: {0: 1}}

HELD = {
    # 4 on node 2; the other 2 from node 3, which is used up, rather than from node 1, of which one
    # GPU would be left over.
    "shrinking keeps the fewest of its own nodes": Case(
        [{"num_gpus": 6, "max_gpus": 10}],
        "4x4:a",
        {0: {0: 6}},
        {5: {0: {1: 3, 2: 4, 3: 2}}, 15: {0: {2: 4, 3: 2}}},
        first={0: on({1: 3, 2: 4, 3: 2})},
        options={"sizes": "all"},
    ),
    "copies of a job become one gang": Case(
        [{"num_gpus": 2}, {"submit_time_s": 15.0}],
        "2x4:a",
        {0: {0: 2}},
        {5: {0: {0: 3, 1: 3}}, 12: {0: {0: 2}}},
        first={0: on({0: 2}, {0: 1, 1: 1}, {1: 2})},
    ),
    "copies of a job are left alone at the size that they have": Case(
        [{"num_gpus": 2}, {"submit_time_s": 15.0}],
        "2x4:a",
        {0: {0: 6}},
        {5: {0: {0: 3, 1: 3}}, 24: {0: {0: 3, 1: 3}}},
        first={0: on({0: 2}, {0: 1, 1: 1}, {1: 2})},
        offered=(((0,), 1, 8, {0: 6}, {}),),
    ),
    # Told to run at another size, job 0 stays; and nobody else is given its GPUs.
    "what must not be stopped stays": Case(
        [{"num_gpus": 2, "preemptible": 0}, {"num_gpus": 2, "preemptible": 1}],
        "2x4:a",
        {0: {0: 4, 1: 4}, 10: {0: 1, 1: 1}},
        {5: {0: {0: 4}, 1: {1: 4}}, 15: {0: {0: 4}, 1: {1: 1}}},
    ),
    "whole nodes are left and entered one by one": Case(
        [{"num_gpus": 8, "max_gpus": 16}, {"num_gpus": 2, "submit_time_s": 5.0}],
        "1x2:a,3x4:a",
        {0: {0: 3}, 5: {0: 1, 1: 2}, 20: {0: 2, 1: 1}},
        {
            4: {0: {1: 4, 2: 4, 3: 4}},
            6: {0: {1: 4}, 1: {2: 4, 3: 4}},
            21: {0: {1: 4, 3: 4}, 1: {2: 4}},
        },
        options={"granularity": "node"},
        offered=(((0,), 4, 3, {}, {0: (1, 2, 3)}), ((0,), 4, 3, {0: 3}, {1: (1, 2)})),
    ),
    "a growing job stays on its whole nodes": Case(
        [{"num_gpus": 4}],
        "3x4:a",
        {0: {0: 2}},
        {15: {0: {0: 4, 2: 4}}},
        first={0: on({2: 4})},
        options={"granularity": "node"},
    ),
    # 5 GPUs on three nodes count two. One of these nodes, of which nobody else uses anything, is
    # one.
    "shrinking under whole nodes prefers a whole one of its own": Case(
        [{"num_gpus": 5}],
        "4x4:a",
        {0: {0: 1}},
        {15: {0: {1: 4}}},
        first={0: on({1: 2, 2: 2, 3: 1})},
        options={"granularity": "node"},
    ),
    "single GPUs of unequal nodes are one market": Case(
        [{"num_gpus": 12, "min_gpus": 12, "max_gpus": 12}],
        "1x8:a,1x4:a",
        {0: {0: 12}},
        {0.5: {0: {0: 8, 1: 4}}},
        offered=(((0,), 1, 12, {}, {0: (12,)}),),
    ),
    # Each node holds two replicas of 4 cores, so 8 GPUs are more than there is. Job 1 is larger and
    # goes first: 4 GPUs; then nothing is left for job 0.
    "a size that does not fit gives way to the next smaller": Case(
        [{"cpus": 4.0}, {"cpus": 4.0}, {"cpus": 2.0, "submit_time_s": 1.0}],
        "2x4:a/8c",
        {0: {0: 2, 1: 8}, 1: {0: 1, 2: 2}},
        {0.5: {1: {0: 2, 1: 2}}, 1.5: {1: {0: 2, 1: 2}}},
        offered=(((0,), 1, 8, {}, {0: (1, 2, 4), 1: (1, 2, 4)}),),
    ),
    # 6 replicas in all. Job 0 finds room for 4 beside the 2 of job 1; job 1 then finds none for 4
    # and keeps its very grant.
    "growing keeps its seat in the end": Case(
        CORES[:2],
        "2x4:a/12c",
        {0: {0: 1, 1: 2}, 10: {0: 4, 1: 4}},
        {5: {0: {0: 1}, 1: {0: 2}}, 12: {0: {0: 1, 1: 3}, 1: {0: 2}}},
    ),
    # All want 4; job 0 finds them beside the others, which then keep what is theirs.
    "those that cannot grow keep their room": Case(
        CORES,
        "2x4:a/12c",
        {0: {0: 1, 1: 1, 2: 1}, 10: {0: 4, 1: 4, 2: 4}},
        {5: SINGLE, 12: SINGLE | {0: {0: 1, 1: 3}}},
        options={"sizes": "all"},
    ),
    # Two more would be those of the others: 4 again.
    "growing takes the next smaller size": Case(
        CORES,
        "2x4:a/12c",
        {0: {0: 1, 1: 1, 2: 1}, 10: {0: 6, 1: 1, 2: 1}},
        {5: SINGLE, 12: SINGLE | {0: {0: 1, 1: 3}}},
        options={"sizes": "all"},
    ),
    # Another policy gave job 0 its 4 GPUs without the cores it asks for; job 1 holds 6 of the 8. 2
    # GPUs with 2 cores each do not fit then, 1 does.
    **{
        f"with too few cores, {units} GPUs asked, {held} held": Case(
            [{"num_gpus": 4, "cpus": 8.0}, {"num_gpus": 3, "cpus": 6.0}],
            "1x8:a/8c",
            {0: {0: units}},
            {12: {0: {0: held}, 1: {0: 3}}},
            first={0: on({0: 4}), 1: on({0: 3}, cpus=2.0)},
        )
        for units, held in ((2, 4), (1, 1))
    },
}


@pytest.mark.parametrize("case", HELD.values(), ids=HELD)
def test_what_each_job_holds(case: Case) -> None:
    last_s = max(case.held)
    choose = choose_by_time(case.units)
    allocator, result = divide(
        case.rows, case.nodes, choose, last_s + 1, case.first, **case.options
    )
    assert tuple(offers(allocator.markets)[: len(case.offered)]) == case.offered
    assert {at_s: grants_at(result, at_s) for at_s in case.held} == case.held
    # A job that holds the same at the first and the last of these instants was not touched.
    first, last = case.held[min(case.held)], case.held[last_s]
    for job in (job for job in first.keys() & last.keys() if first[job] == last[job]):
        starts_s = result.segments[result.segments["job"] == job]["t0"]
        assert not starts_s.between(min(case.held), last_s).any()


HALVES = (0.5, 1.0, 2.0)  # rates at 1, 2 and 4 GPUs of a job that asked for 2

# Jobs, nodes, grants of another policy, options: what is offered of the running jobs at the first
# decision that has some.
RUNNING: dict[str, tuple[Any, ...]] = {
    "copies of a job": (
        [{"num_gpus": 2}],
        "2x4:a",
        {0: on({0: 2}, {0: 1, 1: 1}, {1: 2})},
        {},
        [SizeOptions(0, (1, 2, 4, 6, 8), (*HALVES, 3.0, 4.0), 6)],
    ),
    "one must not be stopped": (
        [{"num_gpus": 2, "preemptible": 0}, {"num_gpus": 2, "preemptible": 1}],
        "2x4:a",
        {0: on({0: 4}), 1: on({1: 4})},
        {},
        [
            SizeOptions(0, (4,), (2.0,), 4, fixed=True),
            SizeOptions(1, (1, 2, 4, 8), (*HALVES, 4.0), 4),
        ],
    ),
    # At the pace of the slower type: the rate at the size asked for is 1.
    "over several types": (
        [{"num_gpus": 4}],
        "1x2:a,1x2:c",
        {0: on({0: 2, 1: 2})},
        {"needs": Dice.needs | Needs(mixes_types=True)},
        [SizeOptions(0, (4,), (1.0,), 4, fixed=True)],
    ),
    "over whole nodes of two sizes": (
        [{"num_gpus": 12, "max_gpus": 12}],
        "1x8:a,1x4:a",
        {0: on({0: 8, 1: 4})},
        {"granularity": "node"},
        [SizeOptions(0, (2,), (1.0,), 2, fixed=True)],
    ),
    "a size of another policy": (
        [{"num_gpus": 4}],
        "1x8:a",
        {0: on({0: 3})},
        {},
        [SizeOptions(0, (1, 2, 3, 4, 8), (0.25, 0.5, 0.75, 1.0, 2.0), 3)],
    ),
    "on a part of each of three nodes": (
        [{"num_gpus": 5}],
        "4x4:a",
        {0: on({1: 2, 2: 2, 3: 1})},
        {"granularity": "node"},
        [SizeOptions(0, (1, 2), (0.8, 1.6), 2)],
    ),
}


@pytest.mark.parametrize(
    ("rows", "nodes", "first", "options", "offered"), RUNNING.values(), ids=RUNNING
)
def test_what_is_offered_of_running_jobs(
    rows: list[dict[str, Any]],
    nodes: str,
    first: dict[JobId, Grant],
    options: dict[str, Any],
    offered: list[SizeOptions],
) -> None:
    allocator, _ = divide(rows, nodes, choose_by_time({0.0: {}}), 15.0, first, **options)
    assert list(allocator.markets[0].running) == offered


@pytest.mark.parametrize("kind", ["over several types", "over whole nodes of two sizes"])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_gang_over_unlike_nodes_stays_as_it_is(kind: str, is_stopped: bool) -> None:
    rows, nodes, first, options, _ = RUNNING[kind]

    def choose(view: View, market: Market) -> Mapping[JobId, int]:
        return {0: 0 if is_stopped else market.running[0].sizes[0]}

    _, result = divide(rows, nodes, choose, 25.0, first, **options)
    assert len(result.segments) == 1


def test_jobs_that_hold_part_of_a_node_count_it_whole() -> None:
    rows = [
        {"num_gpus": 2},
        {"num_gpus": 4, "submit_time_s": 1.0, "max_gpus": 12},
        {"submit_time_s": 2.0},
    ]
    allocator = Dice(choose_by_time({0: {1: 2, 2: 1}}), granularity="node", every_s=10.0)
    result = after_fifo(rows, "4x4:a", allocator, Conditions(PowerLaw(), horizon_s=25.0))
    # FIFO puts jobs 0 and 2, of 2 and 1 GPUs, on node 0, job 1 on node 1. Of nodes 2 and 3 nothing
    # is in use.
    assert grants_at(result, 5.0) == {0: {0: 2}, 1: {1: 4}, 2: {0: 1}}
    market = allocator.markets[0]
    assert (market.unit, market.capacity) == (4, 5)
    assert [option.held for option in market.running] == [1, 1, 1]
    assert market.running[1].sizes == (1, 2, 3)
    # Job 1 grows onto a second whole node; the others keep their size, and so what they hold.
    assert grants_at(result, 15.0) == {0: {0: 2}, 1: {1: 4, 2: 4}, 2: {0: 1}}


def test_a_size_at_which_nobody_would_start_has_the_rate_that_it_runs_at() -> None:
    # Rigid jobs run at the size they asked for only: 2 GPUs, which FIFO gave it, and not the whole
    # node of 4 that they count for.
    allocator = Dice(always(), granularity="node", every_s=10.0)
    result = after_fifo([{"num_gpus": 2, "duration_s": 50.0}], "1x4:a", allocator, Conditions())
    assert allocator.markets[0].running == (SizeOptions(0, (1,), (1.0,), 1),)
    assert result.jobs["finish_s"].tolist() == [50.0]


def test_whole_nodes_of_each_size_are_divided_for_themselves_the_largest_first() -> None:
    # 8 and 4 times 4 GPUs of one type, in one pool. The third job is too large for the one node of
    # 8, the fourth is not offered there either.
    rows = [
        {"num_gpus": 2, "min_gpus": 2},
        {"num_gpus": 4, "min_gpus": 4},
        {"num_gpus": 12, "min_gpus": 12, "max_gpus": 16},
        {"gpu_types_allowed": "b"},
    ]
    allocator, result = divide(
        rows, "2x4:a,1x8:a,2x4:a,1x4:b", smallest_that_fit, 1.0, granularity="node"
    )
    assert offers(allocator.markets[:3]) == [
        ((0,), 8, 1, {}, {0: (1,), 1: (1,)}),
        ((0,), 4, 4, {}, {1: (1, 2), 2: (3, 4)}),
        ((1,), 4, 1, {}, {3: (1,)}),
    ]
    assert grants_at(result, 0.5) == {0: {2: 8}, 1: {4: 4}, 2: {0: 4, 1: 4, 3: 4}, 3: {5: 4}}


def test_a_half_used_large_node_is_no_small_one() -> None:
    # Another policy put job 0 on half of the node of 8. The other half has as many GPUs as the one
    # whole node of 4, and is none.
    rows = [{"num_gpus": 4}, *[{"num_gpus": 4, "min_gpus": 4, "submit_time_s": 11.0}] * 2]
    allocator, result = divide(
        rows, "1x8:a,1x4:a", smallest_that_fit, 19.0, {0: on({0: 4})}, granularity="node"
    )
    assert offers(allocator.markets) == [
        ((0,), 8, 1, {0: 1}, {}),
        ((0,), 8, 1, {0: 1}, {1: (1,), 2: (1,)}),
        ((0,), 4, 1, {}, {1: (1,), 2: (1,)}),
    ]
    assert grants_at(result, 15.0) == {0: {0: 4}, 1: {1: 4}}
    # On the whole node of 4 it counts one of that size, and has no other there.
    allocator, _ = divide(
        rows, "1x8:a,1x4:a", smallest_that_fit, 10.5, {0: on({1: 4})}, granularity="node"
    )
    assert [
        (market.unit, market.capacity, [option.sizes for option in market.running])
        for market in allocator.markets
    ] == [(4, 1, [(1,)])]


def test_a_whole_node_comes_with_its_share_of_cores() -> None:
    # One GPU with 6 cores each: a node of 4 GPUs and 16 cores holds two of them, but given the
    # whole node the job is content with 4 cores per GPU. 16 cores are all that a node has, 20 are
    # too many.
    rows = [{"cpus": 6.0, "mem_gb": 1.0}, {"cpus": 20.0}, {"cpus": 16.0}]
    _, result = divide(rows, "2x4:a/16c/64g", always(1, 1, 1), 9.0, granularity="node")
    row = result.placements.iloc[0]
    assert (row["count"], row["cpus"], row["mem_gb"]) == (4, 4.0, 1.0)
    assert result.jobs["outcome"].tolist() == ["unfinished", "impossible", "unfinished"]


def test_what_runs_outside_the_cluster_is_in_no_market() -> None:
    # The recorded schedule runs the second job, for which there is no room, on a node of its own.
    jobs = trace(
        [{"num_gpus": 4, "start_time_s": 0.0, "duration_s": length} for length in (30.0, 50.0)]
    )
    allocator = Dice(lambda view, market: {option.job: 2 for option in market.running}, every_s=10)
    switch = Switch(at_s=10.0)
    switch.assemble(lambda spec: allocator if spec == Spec("easy") else Recorded())
    result = run(jobs, clusters("1x4:a"), switch)
    assert [option.job for option in allocator.markets[0].running] == [0]
    # Half as fast from 10 s on: 10 + 20 * 2.
    assert result.jobs["finish_s"].tolist() == [50.0, 50.0]


@dataclass
class Ordered(Dice):
    """Seats in order of submission, and takes down whom `divide` passed."""

    last: JobId | None = None
    in_order: bool = True

    def allocate(self, view: View) -> Plan:
        self.menu.feed(view)
        sizes = self.menu.divide(view, lambda market: self.choose(view, market), self.last)
        self.asked.append(
            [-1 if (passed := self.menu.first_passed_job(view, sizes)) is None else passed]
        )
        return Plan(
            self.menu.make_grants(view, sizes, in_order=self.in_order),
            refuse=self.menu.impossible_jobs,
        )


# 66 cores: job 1 finds too few, job 2 needs none and one GPU of the six that are free; job 3 is in
# no market.
SHORT = [
    {"num_gpus": 2, "cpus": 64.0},
    {"num_gpus": 2, "cpus": 64.0},
    {"cpus": 0.0},
    {"num_gpus": 0, "min_gpus": None, "max_gpus": None},
]
PAIR: list[dict[str, Any]] = [{"num_gpus": 1}, {"num_gpus": 4}]


@pytest.mark.parametrize(
    ("rows", "nodes", "units", "in_order", "held"),
    [
        (SHORT, "1x8:a/66c", (2, 2, 1), True, {0: {0: 2}, 3: {0: 0}}),
        (SHORT, "1x8:a/66c", (2, 2, 1), False, {0: {0: 2}, 2: {0: 1}, 3: {0: 0}}),
        # In order of submission the first job takes the first node and leaves the second whole;
        # else the larger job chooses first.
        (PAIR, "2x4:a", (1, 4), True, {0: {0: 1}, 1: {1: 4}}),
        (PAIR, "2x4:a", (1, 4), False, {0: {1: 1}, 1: {0: 4}}),
    ],
    ids=["none passes", "some pass", "the first chooses first", "the largest chooses first"],
)
def test_seated_in_order(
    rows: list[dict[str, Any]],
    nodes: str,
    units: tuple[int, ...],
    in_order: bool,
    held: dict[JobId, Spots],
) -> None:
    allocator = Ordered(always(*units), in_order=in_order)
    result = run(trace(rows), clusters(nodes), allocator, Conditions(PowerLaw(), horizon_s=1.0))
    assert grants_at(result, 0.5) == held


@pytest.mark.parametrize(
    ("units", "last", "passed", "started"),
    [
        ({2: 1, 3: 1, 4: 1}, None, -1, {1, 2, 3, 4}),
        ({2: 1, 4: 1}, None, 3, {1, 2, 4}),
        ({4: 1}, None, 2, {1, 4}),
        ({2: 1}, None, -1, {1, 2}),
        ({2: 1, 3: 1, 4: 1}, 3, -1, {1, 2, 3}),
        ({3: 1, 4: 1}, 3, 2, {1, 3}),
    ],
)
def test_who_is_passed_and_whom_a_limit_leaves_out(
    units: dict[JobId, int], last: JobId | None, passed: int, started: set[JobId]
) -> None:
    rows: list[dict[str, Any]] = [
        {"num_gpus": 99, "min_gpus": 99, "max_gpus": 99},
        {"num_gpus": 0, "min_gpus": None, "max_gpus": None},
        *[{}] * 3,
    ]
    allocator = Ordered(choose_by_time({0: units}), last=last)
    result = run(trace(rows), clusters("1x8:a"), allocator, Conditions(PowerLaw(), horizon_s=1.0))
    assert [asked for asked in allocator.asked if len(asked) == 1][-1] == [passed]
    assert set(result.segments["job"]) == started


def test_jobs_without_gpus_start_in_order_and_block_nothing() -> None:
    rows = [{"num_gpus": 0, "cpus": cores} for cores in (3.0, 3.0, 1.0)] + [{"cpus": 1.0}]
    rows = [row | {"min_gpus": None, "max_gpus": None} for row in rows]
    _, result = divide(rows, "1x2:a/5c", always(0, 0, 0, 1), every_s=inf)
    # The GPU job takes one core, the first job three; the second has no room, the third does.
    assert result.jobs["first_start_s"].tolist() == [0.0, 1000.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("types", "markets", "held"),
    [
        # Job 1 admits one type only; who was served in the first market is not in the second.
        ("fastest", [((1,), [0, 2]), ((0,), [1, 2])], {0: {1: 1}, 1: {0: 1}}),
        ("cheapest", [((0,), [0, 1, 2]), ((1,), [2])], {0: {0: 1}, 2: {1: 1}}),
    ],
)
def test_types_are_markets_in_their_order(
    types: str, markets: list[Any], held: dict[JobId, Spots]
) -> None:
    allocator, result = divide(
        [{}, {"gpu_types_allowed": "a"}, {}],
        "1x2:a,1x2:c",
        lambda view, market: {option.job: 1 for option in market.waiting[:1]},
        1.0,
        types=types,
    )
    assert [(pools, [*waiting]) for pools, _, _, _, waiting in offers(allocator.markets)] == markets
    assert grants_at(result, 0.5) == held


@pytest.mark.parametrize(
    ("rows", "markets", "held"),
    [
        # Jobs confined to different nodes are in different markets.
        (
            [{"vc": "a"}, {"vc": "b"}, {"vc": "a"}],
            [((0,), 4, [0, 2]), ((1,), 2, [1])],
            {0: {0: 2}, 1: {1: 2}, 2: {0: 2}},
        ),
        # Job 1 belongs nowhere and may use the nodes of both; job 0 is known, with its rates, from
        # before the two markets were one.
        (
            [{"vc": "a"}, {"submit_time_s": 1.0}, {"vc": "b", "submit_time_s": 2.0}],
            [((0,), 4, [0]), ((0, 1), 6, [1]), ((0, 1), 6, [2])],
            {0: {0: 2}, 1: {0: 2}, 2: {1: 2}},
        ),
    ],
    ids=["different nodes", "a job that joins markets"],
)
def test_markets_of_jobs_that_are_confined(
    rows: list[dict[str, Any]], markets: list[Any], held: dict[JobId, Spots]
) -> None:
    allocator, result = divide(rows, CONFINED, always(2, 2, 2), 3.0, needs=CONFINES)
    found = [(pools, most, [*waiting]) for pools, _, most, _, waiting in offers(allocator.markets)]
    assert found == markets
    assert grants_at(result, 2.5) == held


@pytest.mark.parametrize(
    ("most", "asked", "knob", "until_s", "knobs"),
    [
        # From the second decision on job 1 has another knob, job 0 keeps its own.
        (2, 1, lambda job, units, turn: 10 * units + job * (turn > 1), 25, [(20, 20), (20, 21)]),
        # Neither finds 4; both are given the next knob at the 2 that they hold,
        (4, 2, lambda job, units, turn: turn, 25, [(1, 1), (2, 2)]),
        # or are told their knob at 2 once more, which is what they had.
        (4, 2, lambda job, units, turn: units, 25, [(2, 2), (2, 2)]),
    ],
    ids=["the same size", "a larger size cannot be had", "the same knob"],
)
def test_knobs_change_without_a_change_of_nodes(
    most: int,
    asked: int,
    knob: Callable[[JobId, int, int], int],
    until_s: float,
    knobs: list[tuple[int, int]],
) -> None:
    held: list[dict[JobId, tuple[int, Spots]]] = []

    def choose(view: View, market: Market) -> Mapping[JobId, int]:
        held.append(
            {
                job: (grant.tuning.accumulation, gpus_by_node(grant))
                for job, grant in view.grants.items()
            }
        )
        return dict.fromkeys((0, 1), most if market.running else 2)

    divide(
        [{"num_gpus": asked}] * 2,
        "1x4:a",
        choose,
        until_s,
        tuning=lambda job, units: Tuning(accumulation=knob(job, units, len(held))),
    )
    assert held == [{}, *({0: (one, {0: 2}), 1: (two, {0: 2})} for one, two in knobs)]


def test_rates_are_asked_for_once_and_forgotten_with_the_job() -> None:
    rows = [{"submit_time_s": 10.0 * at, "duration_s": 25.0, "max_gpus": 2} for at in range(40)]
    allocator = Dice(always(*[1] * 40), every_s=5.0)
    known: list[int] = []
    feed = allocator.menu.feed

    def counting(view: View) -> bool:
        changed = feed(view)
        known.append(len(allocator.menu._offers))
        return changed

    allocator.menu.feed = counting  # type: ignore[method-assign]
    run(trace(rows), clusters("1x8:a"), allocator)
    assert sorted(job for jobs in allocator.asked for job in jobs) == list(range(40))
    assert max(known) <= 4


def test_refused_jobs_are_forgotten_too() -> None:
    rows = [{"submit_time_s": float(at), "num_gpus": 1, "duration_s": 1.0} for at in range(1500)]

    @dataclass
    class Refuses(Dice):
        def allocate(self, view: View) -> Plan:
            self.menu.feed(view)
            self.menu.divide(view, lambda market: {})
            return Plan(refuse=frozenset(view.waiting.ids.tolist()))

    allocator = Refuses(always())
    result = run(trace(rows), clusters("1x8:a"), allocator)
    assert set(result.jobs["outcome"]) == {"refused"}
    assert len(allocator.menu._offers) < 1100


@pytest.mark.parametrize(
    ("units", "granularity", "outcome"), [(3, "node", "refused"), (9, "gpu", "completed")]
)
def test_what_no_whole_node_can_hold_is_hopeless(
    units: int, granularity: str, outcome: str
) -> None:
    # 9 GPUs are there, but only two nodes of 4; a job that needs 9 runs on single GPUs and not on
    # whole nodes.
    rows: list[dict[str, Any]] = [
        {"num_gpus": 9, "min_gpus": 9, "max_gpus": 9, "duration_s": 5.0},
        {},
    ]
    _, result = divide(rows, "2x4:a,1x1:a", always(units, 1), granularity=granularity, every_s=inf)
    assert result.jobs["outcome"].tolist() == [outcome, "completed"]


@pytest.mark.parametrize("sizes", [(1,), (1, 2), (2, 4, 8)])
def test_two_sizes_are_a_choice(sizes: tuple[int, ...]) -> None:
    choices = Choices(jobs=1)
    choices.note_options([SizeOptions(0, sizes, (1.0,) * len(sizes), 0)])
    assert bool(choices.remark("Dice", "rolled")) == (len(sizes) == 1)


def test_the_cap_never_forbids_the_least() -> None:
    rows = [{"num_gpus": 4, "min_gpus": 4, "max_gpus": 8}, {"num_gpus": 2}]
    allocator, _ = divide(rows, "1x8:a", always(), 1.0, most=3)
    assert offers(allocator.markets)[0][-1] == {0: (4,), 1: (1, 2, 3)}


@pytest.mark.parametrize(("granularity", "capacity"), [("gpu", [12, 8, 8]), ("node", [3, 2, 2])])
def test_nodes_that_are_gone_are_not_divided(granularity: str, capacity: list[int]) -> None:
    cluster = Cluster((NodeGroup(3, 4, "v100"),), (ONE,), (Change(3.0, (2,), False),))
    allocator, _ = divide(
        [{}, {"submit_time_s": 5.0}], cluster, always(1, 1), 6.0, granularity=granularity
    )
    assert [market.capacity for market in allocator.markets] == capacity
