from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators.elastic.scaling import Market, Menu, SizeOptions
from allocators.elastic.seats import Range, admissible, gpus_by_node
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
from sim.overheads import Overheads
from sim.perf.scaling import PowerLaw
from sim.result import RunResult
from sim.trace import Trace
from tests import strategies
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


# -- an allocator that does what a function says
# --------------------------------------------------------------------------------------------------


@dataclass
class Dice:
    """Divides every market by a function, seats the outcome, and checks what came of it."""

    choose: Callable[[View, Market], Mapping[JobId, int]]
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
        changes = self.menu.seat(view, sizes, self.tuning)
        self.markets += seen
        check_markets(seen)
        Outcome(
            view, seen, sizes, changes, self.granularity == "node", self.tuning is not None
        ).check()
        return Plan(changes, refuse=self.menu.hopeless)


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
    choose: Callable[[View, Market], Mapping[JobId, int]],
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
        for (
            option
        ) in market.running:  # what was chosen at the last decision is what is held at this one
            assert option.held * market.unit == held.get(option.job)
        held.update(asked)
        return chosen

    held: dict[JobId, int] = {}
    result = run(jobs, cluster, Dice(choose, granularity, sizes, every_s=5.0))
    assert result.reason == "drained"


# -- one thing at a time
# --------------------------------------------------------------------------------------------------


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


def gang(spots: dict[int, int], cpus: float = 0.0) -> Gang:
    return Gang(Part(tuple(spots), tuple(spots.values()), 1, cpus, 0.0))


def grants_at(result: RunResult, at_s: float) -> dict[JobId, dict[int, int]]:
    """GPUs by node of each job that holds some at an instant."""
    rows = result.placements.merge(
        result.segments[["job", "t0", "t1"]], left_on="segment", right_index=True
    )
    rows = rows[(rows["t0"] <= at_s) & (rows["t1"] > at_s)]
    found: dict[JobId, dict[int, int]] = {}
    for row in rows.itertuples():
        spots = found.setdefault(row.job, {})
        spots[row.node] = spots.get(row.node, 0) + row.count * row.gpus
    return found


def always(**units: int) -> Callable[[View, Market], Mapping[JobId, int]]:
    """Units by job, named j0, j1, ...; jobs that are not named keep what they hold."""
    named = {int(job[1:]): size for job, size in units.items()}

    def choose(view: View, market: Market) -> Mapping[JobId, int]:
        return {option.job: option.held for option in market.running} | {
            option.job: named[option.job]
            for option in (*market.running, *market.waiting)
            if option.job in named
        }

    return choose


def test_shrinking_keeps_the_fewest_of_its_own_nodes() -> None:
    jobs, cluster = (
        trace([{"num_gpus": 6, "max_gpus": 10}]),
        Cluster((NodeGroup(4, 4, "v100"),), (ONE,)),
    )
    first = Plan({0: Grant((gang({1: 3, 2: 4, 3: 2}),))})
    result = run(jobs, cluster, After(always(j0=6), every_s=10.0, first=first, sizes="all"))
    assert grants_at(result, 5.0) == {0: {1: 3, 2: 4, 3: 2}}
    # 4 on node 2; the other 2 from node 3, which is used up, rather than from node 1, of which one
    # GPU would be left over.
    assert grants_at(result, 15.0) == {0: {2: 4, 3: 2}}


def test_copies_of_a_job_count_as_held_and_become_one_gang_when_resized() -> None:
    jobs, cluster = (
        trace([{"num_gpus": 2}, {"submit_time_s": 15.0}]),
        Cluster((NodeGroup(2, 4, "v100"),), (ONE,)),
    )
    first = Plan({0: Grant((gang({0: 2}), gang({0: 1, 1: 1}), gang({1: 2})))})
    allocator = After(always(j0=6), every_s=10.0, first=first)
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=25.0))
    assert allocator.markets[0].running == (
        SizeOptions(0, (1, 2, 4, 6, 8), (0.5, 1.0, 2.0, 3.0, 4.0), 6),
    )
    assert allocator.markets[0].capacity == 8
    assert len(result.segments) == 1  # not a plan has touched it
    smaller = run(jobs, cluster, After(always(j0=2), every_s=10.0, first=first))
    assert grants_at(smaller, 12.0) == {0: {0: 2}}


def test_what_must_not_be_stopped_has_one_size() -> None:
    jobs = trace([{"num_gpus": 2, "preemptible": 0}, {"num_gpus": 2, "preemptible": 1}])
    allocator = Dice(always(j0=4, j1=4), every_s=10.0)
    result = run(
        jobs,
        Cluster((NodeGroup(2, 4, "v100"),), (ONE,)),
        allocator,
        Conditions(PowerLaw(), horizon_s=25.0),
    )
    fixed, free = allocator.markets[1].running
    assert fixed == SizeOptions(0, (4,), (2.0,), 4, fixed=True)
    assert free == SizeOptions(1, (1, 2, 4, 8), (0.5, 1.0, 2.0, 4.0), 4)
    # Told to run at another size, it stays; and nobody else is given its GPUs.
    turned = Dice(
        lambda view, market: {
            option.job: 1 if market.running else 4 for option in (*market.running, *market.waiting)
        },
        every_s=10.0,
    )
    result = run(
        jobs,
        Cluster((NodeGroup(2, 4, "v100"),), (ONE,)),
        turned,
        Conditions(PowerLaw(), horizon_s=25.0),
    )
    assert grants_at(result, 15.0) == {0: {0: 4}, 1: {1: 1}}


def test_jobs_that_hold_part_of_a_node_count_it_whole() -> None:
    jobs = trace(
        [
            {"num_gpus": 2},
            {"num_gpus": 4, "submit_time_s": 1.0, "max_gpus": 12},
            {"submit_time_s": 2.0},
        ]
    )
    cluster = Cluster((NodeGroup(4, 4, "v100"),), (ONE,))
    switch = Switch(at_s=10.0)
    allocator = Dice(always(j1=2, j2=1), granularity="node", every_s=10.0)
    switch.assemble(lambda spec: allocator if spec == Spec("easy") else Fifo())
    result = run(jobs, cluster, switch, Conditions(PowerLaw(), horizon_s=25.0))
    # FIFO puts jobs 0 and 2, of 2 and 1 GPUs, on node 0, job 1 on node 1. Of nodes 2 and 3 nothing
    # is in use.
    assert grants_at(result, 5.0) == {0: {0: 2}, 1: {1: 4}, 2: {0: 1}}
    market = allocator.markets[0]
    assert (market.unit, market.capacity) == (4, 5)
    assert [option.held for option in market.running] == [1, 1, 1]
    assert market.running[1].sizes == (1, 2, 3)
    # Job 1 grows onto a second whole node; the others keep their size, and so what they hold.
    assert grants_at(result, 15.0) == {0: {0: 2}, 1: {1: 4, 2: 4}, 2: {0: 1}}


def test_whole_nodes_are_left_and_entered_one_by_one() -> None:
    jobs = trace([{"num_gpus": 8, "max_gpus": 16}, {"num_gpus": 2, "submit_time_s": 5.0}])
    cluster = Cluster((NodeGroup(1, 2, "v100"), NodeGroup(3, 4, "v100")), (ONE,))
    allocator = Dice(
        lambda view, market: (
            {0: 3} if not market.running else {0: 1, 1: 2} if view.now_s < 15 else {0: 2, 1: 1}
        ),
        granularity="node",
        every_s=10.0,
    )
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=29.0))
    assert [(market.unit, market.capacity) for market in allocator.markets[:2]] == [(4, 3), (4, 3)]
    assert grants_at(result, 4.0) == {0: {1: 4, 2: 4, 3: 4}}
    assert grants_at(result, 6.0) == {0: {1: 4}, 1: {2: 4, 3: 4}}
    assert grants_at(result, 21.0) == {0: {1: 4, 3: 4}, 1: {2: 4}}


def test_whole_nodes_of_each_size_are_divided_for_themselves_the_largest_first() -> None:
    # 8 and 4 times 4 GPUs of one type, in one pool. The third job is too large for the one node of
    # 8, the fourth is not offered there either.
    jobs = trace(
        [
            {"num_gpus": 2, "min_gpus": 2},
            {"num_gpus": 4, "min_gpus": 4},
            {"num_gpus": 12, "min_gpus": 12, "max_gpus": 16},
            {"gpu_types_allowed": "t4"},
        ]
    )
    cluster = Cluster(
        (
            NodeGroup(2, 4, "v100"),
            NodeGroup(1, 8, "v100"),
            NodeGroup(2, 4, "v100"),
            NodeGroup(1, 4, "t4"),
        ),
        (ONE, GpuType("t4")),
    )
    allocator = Dice(smallest_that_fit, granularity="node")
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=1.0))
    seen = [
        (
            market.pools,
            market.unit,
            market.capacity,
            [(option.job, option.sizes) for option in market.waiting],
        )
        for market in allocator.markets[:3]
    ]
    assert seen == [
        ((0,), 8, 1, [(0, (1,)), (1, (1,))]),
        ((0,), 4, 4, [(1, (1, 2)), (2, (3, 4))]),
        ((1,), 4, 1, [(3, (1,))]),
    ]
    assert grants_at(result, 0.5) == {0: {2: 8}, 1: {4: 4}, 2: {0: 4, 1: 4, 3: 4}, 3: {5: 4}}


def test_a_half_used_large_node_is_no_small_one() -> None:
    # Another policy put job 0 on half of the node of 8. The other half has as many GPUs as the one
    # whole node of 4, and is none.
    jobs = trace([{"num_gpus": 4}, *[{"num_gpus": 4, "min_gpus": 4, "submit_time_s": 11.0}] * 2])
    cluster = Cluster((NodeGroup(1, 8, "v100"), NodeGroup(1, 4, "v100")), (ONE,))
    allocator = After(
        smallest_that_fit, granularity="node", first=Plan({0: Grant((gang({0: 4}),))}), every_s=10.0
    )
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=19.0))
    seen = [
        (
            market.unit,
            market.capacity,
            [option.held for option in market.running],
            len(market.waiting),
        )
        for market in allocator.markets
    ]
    assert seen == [(8, 1, [1], 0), (8, 1, [1], 2), (4, 1, [], 2)]
    assert grants_at(result, 15.0) == {0: {0: 4}, 1: {1: 4}}
    # On the whole node of 4 it counts one of that size, and has no other there.
    by_hand = After(
        smallest_that_fit, granularity="node", first=Plan({0: Grant((gang({1: 4}),))}), every_s=10.0
    )
    run(jobs, cluster, by_hand, Conditions(PowerLaw(), horizon_s=10.5))
    assert [
        (market.unit, market.capacity, [option.sizes for option in market.running])
        for market in by_hand.markets
    ] == [(4, 1, [(1,)])]


def test_a_gang_over_whole_nodes_of_two_sizes_stays_as_it_is() -> None:
    jobs, cluster = (
        trace([{"num_gpus": 12, "max_gpus": 12}]),
        Cluster((NodeGroup(1, 8, "v100"), NodeGroup(1, 4, "v100")), (ONE,)),
    )
    allocator = After(
        lambda view, market: {0: 0},
        granularity="node",
        every_s=10.0,
        first=Plan({0: Grant((gang({0: 8, 1: 4}),))}),
    )
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=25.0))
    assert allocator.markets[0].running == (SizeOptions(0, (2,), (1.0,), 2, fixed=True),)
    assert len(result.segments) == 1


def test_single_gpus_of_unequal_nodes_are_one_market() -> None:
    jobs, cluster = (
        trace([{"num_gpus": 12, "min_gpus": 12, "max_gpus": 12}]),
        Cluster((NodeGroup(1, 8, "v100"), NodeGroup(1, 4, "v100")), (ONE,)),
    )
    allocator = Dice(always(j0=12))
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=1.0))
    assert [(market.unit, market.capacity) for market in allocator.markets] == [(1, 12)]
    assert grants_at(result, 0.5) == {0: {0: 8, 1: 4}}


def test_a_growing_job_stays_on_its_whole_nodes() -> None:
    jobs, cluster = trace([{"num_gpus": 4}]), Cluster((NodeGroup(3, 4, "v100"),), (ONE,))
    first = Plan({0: Grant((gang({2: 4}),))})
    result = run(jobs, cluster, After(always(j0=2), granularity="node", every_s=10.0, first=first))
    assert grants_at(result, 15.0) == {0: {0: 4, 2: 4}}


def test_a_whole_node_comes_with_its_share_of_cores() -> None:
    # One GPU with 6 cores each: a node of 4 GPUs and 16 cores holds two of them, but given the
    # whole node the job is content with 4 cores per GPU.
    jobs = trace([{"cpus": 6.0, "mem_gb": 1.0}, {"cpus": 20.0}])
    cluster = Cluster((NodeGroup(2, 4, "v100", cpus=16.0, mem_gb=64.0),), (ONE,))
    allocator = Dice(always(j0=1, j1=1), granularity="node", every_s=10.0)
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=9.0))
    row = result.placements.iloc[0]
    assert (row["count"], row["cpus"], row["mem_gb"]) == (4, 4.0, 1.0)
    assert result.jobs["outcome"].tolist() == ["unfinished", "impossible"]


def test_a_size_that_does_not_fit_gives_way_to_the_next_smaller() -> None:
    # Two nodes of 4 GPUs and 8 cores; with 4 cores for a GPU each holds two replicas. Job 1 is
    # larger and goes first: 4 GPUs; then nothing is left for job 0.
    jobs = trace([{"cpus": 4.0}, {"cpus": 4.0}, {"cpus": 2.0, "submit_time_s": 1.0}])
    cluster = Cluster((NodeGroup(2, 4, "v100", cpus=8.0),), (ONE,))
    allocator = Dice(
        lambda view, market: (
            {0: 2, 1: 8}
            if view.now_s < 1
            else {option.job: option.held for option in market.running} | {0: 1, 2: 2}
        )
    )
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=2.0))
    assert allocator.markets[0].waiting[0].sizes == (
        1,
        2,
        4,
    )  # 8 GPUs with 4 cores each are more than there is
    assert grants_at(result, 0.5) == {1: {0: 2, 1: 2}}
    assert grants_at(result, 1.5) == {1: {0: 2, 1: 2}}


def test_growing_falls_back_step_by_step_and_keeps_its_seat_in_the_end() -> None:
    jobs = trace([{"cpus": 4.0}, {"cpus": 4.0}])
    cluster = Cluster((NodeGroup(2, 4, "v100", cpus=12.0),), (ONE,))  # 6 replicas in all
    allocator = Dice(
        lambda view, market: {0: 1, 1: 2} if not market.running else {0: 4, 1: 4}, every_s=10.0
    )
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=15.0))
    at = grants_at(result, 5.0)
    assert at == {0: {0: 1}, 1: {0: 2}}
    # Job 0 finds room for 4 beside the 2 of job 1; job 1 then finds none for 4 and keeps its very
    # grant.
    later = grants_at(result, 12.0)
    assert sum(later[0].values()) == 4
    assert later[1] == at[1]
    assert (result.segments["job"] == 1).sum() == 1


def test_growing_takes_the_next_smaller_size_if_need_be_and_who_fails_keeps_the_room() -> None:
    # 12 cores on each node are 3 replicas of 4 cores. All want 4; job 0 finds them beside the
    # others, which then keep what is theirs.
    jobs = trace([{"cpus": 4.0}, {"cpus": 4.0}, {"cpus": 4.0, "submit_time_s": 1.0}])
    cluster = Cluster((NodeGroup(2, 4, "v100", cpus=12.0),), (ONE,))
    started = always(j0=1, j1=1, j2=1)
    allocator = Dice(
        lambda view, market: started(view, market) if view.now_s < 10 else {0: 4, 1: 4, 2: 4},
        every_s=10.0,
        sizes="all",
    )
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=15.0))
    at = grants_at(result, 12.0)
    assert {job: sum(spots.values()) for job, spots in at.items()} == {0: 4, 1: 1, 2: 1}
    # Two more would be those of the others: 4 again.
    doubled = Dice(
        lambda view, market: started(view, market) if view.now_s < 10 else {0: 6, 1: 1, 2: 1},
        every_s=10.0,
        sizes="all",
    )
    assert (
        sum(
            grants_at(run(jobs, cluster, doubled, Conditions(PowerLaw(), horizon_s=15.0)), 12.0)[
                0
            ].values()
        )
        == 4
    )


def test_shrinking_under_whole_nodes_prefers_a_whole_one_of_its_own() -> None:
    # 5 GPUs on three nodes count two. One of these nodes, of which nobody else uses anything, is
    # one.
    jobs, cluster = trace([{"num_gpus": 5}]), Cluster((NodeGroup(4, 4, "v100"),), (ONE,))
    first = Plan({0: Grant((gang({1: 2, 2: 2, 3: 1}),))})
    allocator = After(always(j0=1), granularity="node", every_s=10.0, first=first)
    result = run(jobs, cluster, allocator)
    assert allocator.markets[0].running[0].held == 2
    assert grants_at(result, 15.0) == {0: {1: 4}}


def test_who_holds_fewer_cores_than_it_asks_for_keeps_them_if_it_cannot_have_more() -> None:
    # Another policy gave the first job 4 GPUs without the cores it asks for; the second holds 6 of
    # the 8. 2 GPUs with 2 cores each do not fit then, 1 does.
    jobs, cluster = (
        trace([{"num_gpus": 4, "cpus": 8.0}, {"num_gpus": 3, "cpus": 6.0}]),
        Cluster((NodeGroup(1, 8, "v100", cpus=8.0),), (ONE,)),
    )
    first = Plan({0: Grant((gang({0: 4}),)), 1: Grant((gang({0: 3}, cpus=2.0),))})
    for units, held in ((2, 4), (1, 1)):
        result = run(
            jobs,
            cluster,
            After(always(j0=units), every_s=10.0, first=first),
            Conditions(PowerLaw(), horizon_s=15.0),
        )
        assert grants_at(result, 12.0)[0] == {0: held}


def test_a_gang_over_several_types_stays_as_it_is() -> None:
    fast, slow = GpuType("fast", 2.0, 9.0), GpuType("slow", 1.0, 1.0)
    cluster = Cluster((NodeGroup(1, 2, "slow"), NodeGroup(1, 2, "fast")), (slow, fast))
    allocator = After(
        lambda view, market: {option.job: option.sizes[0] for option in market.running},
        every_s=10.0,
        first=Plan({0: Grant((gang({0: 2, 1: 2}),))}),
    )
    allocator.needs |= Needs(mixes_types=True)
    result = run(
        trace([{"num_gpus": 4}]), cluster, allocator, Conditions(PowerLaw(), horizon_s=25.0)
    )
    # At the pace of the slower type: the rate at the size asked for is 1.
    assert allocator.markets[0].running == (SizeOptions(0, (4,), (1.0,), 4, fixed=True),)
    assert len(result.segments) == 1


def test_what_runs_outside_the_cluster_is_in_no_market() -> None:
    # The recorded schedule runs the second job, for which there is no room, on a node of its own.
    jobs = trace(
        [
            {"num_gpus": 4, "start_time_s": 0.0, "duration_s": 30.0},
            {"num_gpus": 4, "start_time_s": 0.0, "duration_s": 50.0},
        ]
    )
    cluster, allocator = (
        Cluster((NodeGroup(1, 4, "v100"),), (ONE,)),
        Dice(lambda view, market: {option.job: 2 for option in market.running}, every_s=10.0),
    )
    switch = Switch(at_s=10.0)
    switch.assemble(lambda spec: allocator if spec == Spec("easy") else Recorded())
    result = run(jobs, cluster, switch)
    assert [option.job for option in allocator.markets[0].running] == [0]
    # Half as fast from 10 s on: 10 + 20 * 2.
    assert result.jobs["finish_s"].tolist() == [50.0, 50.0]


class Ordered(Dice):
    """Seats in order of submission, and takes down whom `divide` passed."""

    last: JobId | None = None
    in_order = True

    def allocate(self, view: View) -> Plan:
        self.menu.feed(view)
        sizes = self.menu.divide(view, lambda market: self.choose(view, market), self.last)
        self.asked.append([-1 if (passed := self.menu.passed(view, sizes)) is None else passed])
        return Plan(self.menu.seat(view, sizes, in_order=self.in_order), refuse=self.menu.hopeless)


def test_seated_in_order_nobody_passes_one_that_finds_no_place() -> None:
    # 66 cores: the second job finds too few, the third needs none and one GPU of the six that are
    # free; the fourth is in no market.
    jobs = trace(
        [
            {"num_gpus": 2, "cpus": 64.0},
            {"num_gpus": 2, "cpus": 64.0},
            {"cpus": 0.0},
            {"num_gpus": 0, "min_gpus": None, "max_gpus": None},
        ]
    )
    cluster = Cluster((NodeGroup(1, 8, "v100", cpus=66.0),), (ONE,))
    for in_order, started in ((True, {0, 3}), (False, {0, 2, 3})):
        allocator = Ordered(always(j0=2, j1=2, j2=1))
        allocator.in_order = in_order
        result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=1.0))
        assert set(result.segments["job"]) == started


def test_seated_in_order_the_first_has_the_first_choice() -> None:
    # Two nodes of 4: in order of submission the first takes the first node and leaves the second
    # whole; else the larger job chooses first.
    jobs, cluster = (
        trace([{"num_gpus": 1}, {"num_gpus": 4}]),
        Cluster((NodeGroup(2, 4, "v100"),), (ONE,)),
    )
    for in_order, nodes in ((True, {0: {0: 1}, 1: {1: 4}}), (False, {0: {1: 1}, 1: {0: 4}})):
        allocator = Ordered(always(j0=1, j1=4))
        allocator.in_order = in_order
        assert (
            grants_at(run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=1.0)), 0.5)
            == nodes
        )


def test_who_is_passed_and_whom_a_limit_leaves_out() -> None:
    rows: list[dict[str, Any]] = [
        {"num_gpus": 99, "min_gpus": 99, "max_gpus": 99},
        {"num_gpus": 0, "min_gpus": None, "max_gpus": None},
        {},
        {},
        {},
    ]
    cluster = Cluster((NodeGroup(1, 8, "v100"),), (ONE,))
    for units, last, passed, started in (
        ({"j2": 1, "j3": 1, "j4": 1}, None, -1, {1, 2, 3, 4}),
        ({"j2": 1, "j4": 1}, None, 3, {1, 2, 4}),
        ({"j4": 1}, None, 2, {1, 4}),
        ({"j2": 1}, None, -1, {1, 2}),
        ({"j2": 1, "j3": 1, "j4": 1}, 3, -1, {1, 2, 3}),
        ({"j3": 1, "j4": 1}, 3, 2, {1, 3}),
    ):
        allocator = Ordered(always(**units))
        allocator.last = last
        result = run(trace(rows), cluster, allocator, Conditions(PowerLaw(), horizon_s=1.0))
        assert [asked for asked in allocator.asked if len(asked) == 1][-1] == [passed]
        assert set(result.segments["job"]) == started


def test_jobs_without_gpus_start_in_order_and_block_nothing() -> None:
    rows = [
        {"num_gpus": 0, "cpus": 3.0},
        {"num_gpus": 0, "cpus": 3.0},
        {"num_gpus": 0, "cpus": 1.0},
        {"cpus": 1.0},
    ]
    jobs, cluster = (
        trace([row | {"min_gpus": None, "max_gpus": None} for row in rows]),
        Cluster((NodeGroup(1, 2, "v100", cpus=5.0),), (ONE,)),
    )
    result = run(jobs, cluster, Dice(always(j3=1)))
    # The GPU job takes one core, the first job three; the second has no room, the third does.
    assert result.jobs["first_start_s"].tolist() == [0.0, 1000.0, 0.0, 0.0]


def test_types_are_markets_in_their_order() -> None:
    fast, slow = GpuType("fast", 2.0, 9.0), GpuType("slow", 1.0, 1.0)
    cluster = Cluster((NodeGroup(1, 2, "slow"), NodeGroup(1, 2, "fast")), (slow, fast))
    jobs = trace([{}, {"gpu_types_allowed": "slow"}, {}])

    def first_only(view: View, market: Market) -> Mapping[JobId, int]:
        return {option.job: 1 for option in market.waiting[:1]}

    for types, pools, starts in (
        ("fastest", [(1,), (0,)], {0: {1: 1}, 1: {0: 1}}),
        ("cheapest", [(0,), (1,)], {0: {0: 1}, 2: {1: 1}}),
    ):
        allocator = Dice(first_only, types=types)
        result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=1.0))
        assert [market.pools for market in allocator.markets] == pools
        assert grants_at(result, 0.5) == starts
        # Job 1 admits one type only; who was served in the first market is not in the second.
        offered = [[option.job for option in market.waiting] for market in allocator.markets]
        assert offered == ([[0, 2], [1, 2]] if types == "fastest" else [[0, 1, 2], [2]])


def test_jobs_confined_to_different_nodes_are_in_different_markets() -> None:
    jobs = trace([{"vc": "a"}, {"vc": "b"}, {"vc": "a"}])
    cluster = Cluster(
        (NodeGroup(1, 4, "v100", partitions=("a",)), NodeGroup(1, 2, "v100", partitions=("b",))),
        (ONE,),
    )
    allocator = Dice(always(j0=2, j1=2, j2=2))
    allocator.needs |= Needs(confine_by="vc")
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=1.0))
    assert [
        (market.pools, market.capacity, [option.job for option in market.waiting])
        for market in allocator.markets
    ] == [((0,), 4, [0, 2]), ((1,), 2, [1])]
    assert grants_at(result, 0.5) == {0: {0: 2}, 1: {1: 2}, 2: {0: 2}}


def test_a_job_that_comes_from_elsewhere_may_join_markets() -> None:
    # Job 1 belongs nowhere and may use the nodes of both; job 0 is known, with its rates, from
    # before the two markets were one.
    jobs = trace([{"vc": "a"}, {"submit_time_s": 1.0}, {"vc": "b", "submit_time_s": 2.0}])
    cluster = Cluster(
        (NodeGroup(1, 4, "v100", partitions=("a",)), NodeGroup(1, 2, "v100", partitions=("b",))),
        (ONE,),
    )
    allocator = Dice(always(j0=2, j1=2, j2=2))
    allocator.needs |= Needs(confine_by="vc")
    result = run(jobs, cluster, allocator, Conditions(PowerLaw(), horizon_s=3.0))
    assert [(market.pools, market.capacity) for market in allocator.markets] == [
        ((0,), 4),
        ((0, 1), 6),
        ((0, 1), 6),
    ]
    assert grants_at(result, 2.5).keys() == {0, 1, 2}


def test_knobs_change_without_a_change_of_nodes() -> None:
    jobs, cluster = trace([{}, {}]), Cluster((NodeGroup(1, 4, "v100"),), (ONE,))

    def knobs(job: JobId, units: int) -> Tuning:
        return Tuning(accumulation=10 * units + (job if calls else 0))

    calls: list[int] = []

    def choose(view: View, market: Market) -> Mapping[JobId, int]:
        if market.running:
            calls.append(1)
            held.append(
                {
                    job: (grant.tuning.accumulation, gpus_by_node(grant))
                    for job, grant in view.grants.items()
                }
            )
        return {option.job: 2 for option in (*market.running, *market.waiting)}

    held: list[dict[JobId, Any]] = []
    run(
        jobs,
        cluster,
        Dice(choose, every_s=10.0, tuning=knobs),
        Conditions(PowerLaw(), horizon_s=25.0),
    )
    # From the second decision on job 1 has another knob, job 0 keeps its own, and nobody moves.
    assert held == [{0: (20, {0: 2}), 1: (20, {0: 2})}, {0: (20, {0: 2}), 1: (21, {0: 2})}]


def test_knobs_change_where_a_larger_size_cannot_be_had() -> None:
    jobs, cluster = (
        trace([{"num_gpus": 2}, {"num_gpus": 2}]),
        Cluster((NodeGroup(1, 4, "v100"),), (ONE,)),
    )
    seen: list[list[int]] = []

    def choose(view: View, market: Market) -> Mapping[JobId, int]:
        seen.append([view.grants[option.job].tuning.accumulation for option in market.running])
        return {
            option.job: 4 if market.running else 2 for option in (*market.running, *market.waiting)
        }

    run(
        jobs,
        cluster,
        Dice(choose, every_s=10.0, tuning=lambda job, units: Tuning(accumulation=len(seen))),
        Conditions(PowerLaw(), horizon_s=15.0),
    )
    assert seen == [[], [1, 1]]
    run(
        jobs,
        cluster,
        Dice(choose, every_s=10.0, tuning=lambda job, units: Tuning(accumulation=units)),
        Conditions(PowerLaw(), horizon_s=25.0),
    )
    # Neither found 4; both were told their knob at 2 once more, which is what they had.
    assert seen[2:] == [[], [2, 2], [2, 2]]
    seen.clear()
    run(
        jobs,
        cluster,
        Dice(choose, every_s=10.0, tuning=lambda job, units: Tuning(accumulation=len(seen))),
        Conditions(PowerLaw(), horizon_s=25.0),
    )
    assert seen == [[], [1, 1], [2, 2]]


def test_rates_are_asked_for_once_and_forgotten_with_the_job() -> None:
    rows = [{"submit_time_s": 10.0 * at, "duration_s": 25.0, "max_gpus": 2} for at in range(40)]
    allocator = Dice(always(**{f"j{at}": 1 for at in range(40)}), every_s=5.0)
    known: list[int] = []
    feed = allocator.menu.feed

    def counting(view: View) -> bool:
        changed = feed(view)
        known.append(len(allocator.menu._offers))
        return changed

    allocator.menu.feed = counting  # type: ignore[method-assign]
    run(trace(rows), Cluster((NodeGroup(1, 8, "v100"),), (ONE,)), allocator)
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
    result = run(trace(rows), Cluster((NodeGroup(1, 8, "v100"),), (ONE,)), allocator)
    assert set(result.jobs["outcome"]) == {"refused"}
    assert len(allocator.menu._offers) < 1100


def test_what_no_whole_node_can_hold_is_hopeless() -> None:
    # 9 GPUs are there, but only two nodes of 4; a job that needs 9 runs on single GPUs and not on
    # whole nodes.
    jobs = trace([{"num_gpus": 9, "min_gpus": 9, "max_gpus": 9, "duration_s": 5.0}, {}])
    cluster = Cluster((NodeGroup(2, 4, "v100"), NodeGroup(1, 1, "v100")), (ONE,))
    by_node = run(jobs, cluster, Dice(always(j0=3, j1=1), granularity="node"))
    assert by_node.jobs["outcome"].tolist() == ["refused", "completed"]
    by_gpu = run(jobs, cluster, Dice(always(j0=9, j1=1)))
    assert by_gpu.jobs["outcome"].tolist() == ["completed", "completed"]


def test_the_cap_never_forbids_the_least() -> None:
    jobs = trace([{"num_gpus": 4, "min_gpus": 4, "max_gpus": 8}, {"num_gpus": 2}])
    allocator = Dice(always(), most=3)
    run(
        jobs,
        Cluster((NodeGroup(1, 8, "v100"),), (ONE,)),
        allocator,
        Conditions(PowerLaw(), horizon_s=1.0),
    )
    assert [option.sizes for option in allocator.markets[0].waiting] == [(4,), (1, 2, 3)]


def test_a_size_of_another_policy_is_among_the_options() -> None:
    jobs = trace([{"num_gpus": 4, "scaling_exponent": 1.0}])
    first = Plan({0: Grant((gang({0: 3}),))})
    allocator = After(always(j0=3), every_s=10.0, first=first)
    run(
        jobs,
        Cluster((NodeGroup(1, 8, "v100"),), (ONE,)),
        allocator,
        Conditions(PowerLaw(), horizon_s=15.0),
    )
    assert allocator.markets[0].running == (
        SizeOptions(0, (1, 2, 3, 4, 8), (0.25, 0.5, 0.75, 1.0, 2.0), 3),
    )


def test_a_size_at_which_nobody_would_start_has_the_rate_that_it_runs_at() -> None:
    # Rigid jobs run at the size they asked for only: 2 GPUs, which FIFO gave it, and not the whole
    # node of 4 that they count for.
    allocator, switch = Dice(always(), granularity="node", every_s=10.0), Switch(at_s=10.0)
    switch.assemble(lambda spec: allocator if spec == Spec("easy") else Fifo())
    result = run(
        trace([{"num_gpus": 2, "duration_s": 50.0}]),
        Cluster((NodeGroup(1, 4, "v100"),), (ONE,)),
        switch,
        Conditions(),
    )
    assert allocator.markets[0].running == (SizeOptions(0, (1,), (1.0,), 1),)
    assert result.jobs["finish_s"].tolist() == [50.0]


def test_nodes_that_are_gone_are_not_divided() -> None:
    jobs = trace([{}, {"submit_time_s": 5.0}])
    cluster = Cluster((NodeGroup(3, 4, "v100"),), (ONE,), (Change(3.0, (2,), False),))
    for granularity, before, after in (("gpu", 12, 8), ("node", 3, 2)):
        allocator = Dice(always(j0=1, j1=1), granularity=granularity)
        run(jobs, cluster, allocator, Conditions(PowerLaw(), overheads=Overheads(), horizon_s=6.0))
        assert [market.capacity for market in allocator.markets] == [before, after, after]
