"""Hadar: prices, utilities and placements by hand; each parameter with a decision that it changes;
rounds, outages, and jobs that must stay.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from allocators.heterogeneous.hadar.policy import Hadar, PartialPlan, RoundMarket
from allocators.heterogeneous.hadar.prices import (
    MIN_RATIO,
    UTILITIES,
    PayoffFunction,
    QueueSizes,
    isolated_s,
    price_bounds,
    price_steps,
    utility_functions,
)
from allocators.heterogeneous.hadar.rounds import Free, Spots, fill_in_order
from allocators.placement import Placer
from allocators.queue.wrappers import Partition
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.contract import Plan, Spec, View
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.profiled import Profiled
from sim.result import RunResult
from sim.trace import Trace
from tests.allocators.queue.walk import trace_of

SPEEDS = (GpuType("fast", 1.0), GpuType("mid", 0.5), GpuType("slow", 0.25))
FREE_MOVES: Any = {"overhead_s": 0.0}


def cluster(*sizes: tuple[int, int, str], **columns: Any) -> Cluster:
    used = {kind for _, _, kind in sizes}
    return Cluster(
        tuple(NodeGroup(count, gpus, kind, **columns) for count, gpus, kind in sizes),
        tuple(kind for kind in SPEEDS if kind.name in used),
    )


def run(
    allocator: Any,
    jobs: list[tuple[float, int, float]],
    machines: Cluster,
    conditions: Conditions | None = None,
    **columns: list[Any],
) -> RunResult:
    return Simulator(
        trace_of(jobs, **columns), machines, allocator, conditions or Conditions()
    ).run()


def held(result: RunResult, machines: Cluster, job: int, at_s: float) -> dict[str, int]:
    """GPUs that a job holds at an instant, by type."""
    segments = result.segments
    rows = segments.index[
        (segments["job"] == job) & (segments["t0"] <= at_s) & (at_s < segments["t1"])
    ]
    found: dict[str, int] = {}
    for row in result.placements[result.placements["segment"].isin(rows)].itertuples():
        kind = machines.nodes[row.node].gpu_type
        found[kind] = found.get(kind, 0) + row.count * row.gpus
    return found


# -- figures
# --------------------------------------------------------------------------------------------------


def test_prices_rise_from_the_lowest_to_just_below_the_highest() -> None:
    # 1 x 16^(g/4) for g = 0..3: 1, 2, 4, 8.
    assert price_steps(1.0, 16.0, 4) == pytest.approx([0, 1, 3, 7, 15])
    assert price_steps(0.0, 0.0, 2) == [0, 0, 0]


def two_jobs() -> QueueSizes:
    # Job 0 on both types, 25 s on the first, 100 s on the second; job 1 on the first only: 40 s in
    # all, of which half is done.
    return QueueSizes(
        np.array([1, 2]),
        np.array([0.0, 4.0]),
        np.array([100.0, 160.0]),
        np.array([100.0, 80.0]),
        np.array([[4.0, 1.0], [4.0, 0.0]]),
    )


def test_bounds_by_hand() -> None:
    # The horizon: 10 + (100 x 1 + 20 x 2) / 4 GPUs + 100 = 145. Utilities there 25/145 and 40/141;
    # slowest runs 100 and 40 s.
    queue = two_jobs()
    utility = utility_functions("effective_throughput_normalised", queue, 10.0, np.array([2, 2]))
    least, most = price_bounds(queue, utility, 10.0, gpus=4, eta=1.0)
    assert most == pytest.approx([1, 1])
    of_job_0, of_job_1 = 25 / 145 / (4 * 100), 40 / 141 / (4 * 40 * 2)
    assert of_job_0 < of_job_1
    assert least == pytest.approx([of_job_0, of_job_0])
    alone = QueueSizes(*(column[1:] for column in queue))
    least, most = price_bounds(
        alone, PayoffFunction(*(column[1:] for column in utility)), 10.0, gpus=4, eta=2.0
    )
    # Now the horizon is 10 + 20 x 2 / 4 + 20 = 40; nobody runs on the second type.
    assert least == pytest.approx([40 / 36 / (2 * 4 * 40 * 2), 0])
    assert most == pytest.approx([0.5, 0])


@pytest.mark.parametrize(("eta", "ratio"), [(1e9, MIN_RATIO), (1e-9, 0.5)])
def test_the_lowest_price_stays_within_its_bounds(eta: float, ratio: float) -> None:
    queue = two_jobs()
    least, most = price_bounds(
        queue, utility_functions("jct", queue, 10.0, np.array([2, 2])), 10.0, 4, eta
    )
    assert least == pytest.approx(ratio * most)


def test_isolated_time_is_that_with_an_nth_of_each_type() -> None:
    # 2 jobs on 2 + 2 GPUs. Job 0: one GPU of each type is more than the one it asks for, so half of
    # its time on each: 2.5 per second. Job 1: 2 of 4 GPUs' worth of the first type for half of its
    # time: 2 per second.
    assert isolated_s(two_jobs(), np.array([2, 2])) == pytest.approx([100 / 2.5, 160 / 2])


def test_utilities_by_hand() -> None:
    # At 10, job 0 came at 0 and could be done by 35; job 1 came at 4 and could be done by 30. Both
    # shall finish at 60.
    # They came at different instants, so that auto is fairness.
    expected = {
        "auto": [35 / 40 * 35 / 60, 26 / 80 * 26 / 56],
        "effective_throughput_normalised": [25 / 60, 40 / 56],
        "raw": [100 / 60, 160 / 56],
        "jct": [1 / 60, 1 / 56],
        "makespan": [25**2 / 50, 20**2 / 50],
        "ftf": [35 / 40 * 35 / 60, 26 / 80 * 26 / 56],
    }
    assert tuple(expected) == UTILITIES
    for kind, values in expected.items():
        assert utility_functions(kind, two_jobs(), 10.0, np.array([2, 2])).utilities(
            60.0
        ) == pytest.approx(values)


def test_auto_is_the_share_of_best_speed_of_a_batch() -> None:
    # Both came at 4: 25 s of 60 - 4, 40 s of 56.
    batch = two_jobs()._replace(arrival_s=np.array([4.0, 4.0]))
    assert utility_functions("auto", batch, 10.0, np.array([2, 2])).utilities(
        60.0
    ) == pytest.approx([25 / 56, 40 / 56])


@pytest.mark.parametrize(
    ("utility", "start_s"), [("auto", 100), ("effective_throughput_normalised", 900)]
)
def test_a_short_job_of_a_stream_does_not_starve(utility: str, start_s: float) -> None:
    # One GPU, rounds of 100 s. The share of best speed of the job of 14 s is 14 / 104 at 100 and
    # falls; jobs of 300 s that just came are worth 1 to 6/7. Fairness: at 100 the short job needs
    # 104 s of the 28 s that half of the GPU takes, the long one 300 s of 600 s.
    stream = [(0.0, 1, 300.0), (10.0, 1, 14.0), (250.0, 1, 300.0), (550.0, 1, 300.0)]
    result = run(
        Hadar(utility=utility, round_s=100.0, **FREE_MOVES), stream, cluster((1, 1, "fast"))
    )
    assert result.jobs["first_start_s"][1] == start_s


def test_nodes_are_filled_in_order() -> None:
    assert fill_in_order([(2, 7), (0, 5), (4, 1)], 5) == [(7, 2), (1, 3)]
    assert fill_in_order([(2, 7)], 3) == []


# -- placements
# --------------------------------------------------------------------------------------------------


class Watched(Hadar):
    """Notes the candidates of the first decision, with what each costs."""

    def _search(
        self, market: RoundMarket, order: Any, rows: Any, start: PartialPlan
    ) -> PartialPlan:
        if "seen" not in self.__dict__:
            self.__dict__["seen"] = {
                market.job(at): self._all(market, at, rows[at], start.free) for at in order
            }
            self.__dict__["market"] = market
        return super()._search(market, order, rows, start)

    def _all(self, market: RoundMarket, at: int, row: Any, free: Free) -> list[Spots]:
        demand = market.view.demand(market.job(at))
        return [spots for spots, _ in self._find._candidates(market, demand, row, free, ())]


TOY = cluster((1, 2, "fast"), (1, 3, "mid"), (1, 1, "slow"))
TOY_JOBS = [(0.0, 3, 80.0), (0.0, 2, 30.0), (0.0, 2, 50.0)]


def test_candidates_of_the_motivating_example() -> None:
    watched = Watched(round_s=10.0)
    run(watched, TOY_JOBS, TOY)
    # Three GPUs: the three of the middle type, or both fast ones and one of the middle. Two GPUs:
    # fast or middle; mixing would change nothing.
    assert watched.__dict__["seen"] == {
        0: [((1, 3),), ((0, 2), (1, 1))],
        1: [((0, 2),), ((1, 2),)],
        2: [((0, 2),), ((1, 2),)],
    }


def test_costs_of_the_motivating_example() -> None:
    watched = Watched(round_s=10.0)
    run(watched, TOY_JOBS, TOY)
    market: RoundMarket = watched.__dict__["market"]
    # Per GPU the worth is 1/3, 1/2, 1/2; the highest price 1/2. Slowest runs 320, 120 and 200 s;
    # all on their slowest: (320 x 3 + 120 x 2 + 200 x 2) / 6 + 320.
    horizon_s = 1600 / 6 + 320
    least = min(
        80 / horizon_s / (4 * 320 * 3),
        30 / horizon_s / (4 * 120 * 2),
        50 / horizon_s / (4 * 200 * 2),
    )
    assert market.prices == (pytest.approx([least] * 3), pytest.approx([0.5] * 3))
    free = Free([2, 3, 1], None, None)
    assert market.cost(free, ((0, 2),), 1) == pytest.approx(least + sqrt(least * 0.5))
    assert market.cost(free, ((0, 1),), 2) == market.cost(free, ((0, 2),), 1)
    assert market.cost(free, ((0, 1), (1, 2)), 1) == pytest.approx(
        2 * least + least * (0.5 / least) ** (1 / 3)
    )
    assert market.cost(Free([2, 1, 1], None, None), ((1, 1),), 1) == pytest.approx(
        least * (0.5 / least) ** (2 / 3)
    )
    assert market.price(2, 0) == pytest.approx(0.5)


def test_the_motivating_example_by_hand() -> None:
    # Worth per GPU 1/3, 1/2, 1/2: job 1 takes the fast ones, job 2 two of the middle, job 0 waits:
    # one of the middle and the slow one are not three. At 30 job 1 is done; job 2 (35 left) moves
    # to the fast ones and is done at 65, job 0 gets the middle ones and stays there, since two fast
    # and one middle are no faster.
    result = run(Hadar(order="utility_per_gpu", round_s=10.0), TOY_JOBS, TOY)
    assert result.jobs["finish_s"].tolist() == [190, 30, 65]
    assert [held(result, TOY, 2, at_s) for at_s in (0, 30)] == [{"mid": 2}, {"fast": 2}]
    assert held(result, TOY, 0, 100) == {"mid": 3}


def test_of_single_servers_the_cheapest_else_the_fewest() -> None:
    # Two single jobs go to a node each, the cheapest at their turn. The gang of four then needs two
    # servers: the empty one and the first of the others.
    machines = cluster((3, 3, "fast"))
    result = run(Hadar(), [(0.0, 1, 50.0), (0.0, 1, 50.0), (0.0, 4, 50.0)], machines)
    rows = result.placements.sort_values(["segment", "node"])[["node", "count"]].to_numpy().tolist()
    assert rows == [[0, 1], [1, 1], [0, 1], [2, 3]]


# -- parameters
# --------------------------------------------------------------------------------------------------

FOUR_AND_TWO = cluster((1, 4, "fast"), (1, 2, "mid"))


def test_mixing_adds_a_slower_gpu_where_a_fast_one_lacks() -> None:
    # Job 0 takes one fast GPU for 100 s. Job 1 wants four: three fast ones and one of the middle
    # type, all at half speed, at 0. At 100 it has 50 left and moves to the four fast ones.
    jobs = [(0.0, 1, 100.0), (0.0, 4, 100.0)]
    mixed = run(Hadar(round_s=50.0), jobs, FOUR_AND_TWO)
    assert held(mixed, FOUR_AND_TWO, 1, 0) == {"fast": 3, "mid": 1}
    assert mixed.jobs["finish_s"].tolist() == [100, 150]
    single = run(Hadar(round_s=50.0, mixing=False), jobs, FOUR_AND_TWO)
    assert single.jobs["finish_s"].tolist() == [100, 200]


def test_without_mixing_a_gang_that_no_type_holds_is_impossible() -> None:
    jobs = [(0.0, 5, 100.0)]
    assert run(Hadar(), jobs, FOUR_AND_TWO).jobs["finish_s"].tolist() == [200]
    assert run(Hadar(mixing=False), jobs, FOUR_AND_TWO).jobs["outcome"].tolist() == ["impossible"]
    assert Hadar().needs.mixes_types
    assert not Hadar(mixing=False).needs.mixes_types


@pytest.mark.parametrize(
    ("params", "finish_s"),
    [
        ({"fill": True, "eta": 1e-9}, [100, 100]),
        ({"fill": False, "eta": 1e-9}, [100, 200]),
        ({"fill": False}, [100, 100]),
    ],
)
def test_fill_and_eta(params: dict[str, Any], finish_s: list[float]) -> None:
    # With a tiny eta the lowest price is half of the highest, 1. Job 0 is worth 1 and pays 0.5. Job
    # 1 is worth 1, but its four GPUs cost 0.5 x (1 + 2^(1/4) + 2^(1/2) + 2^(3/4)) = 2.6: it is only
    # started to fill, or when nothing else would run, at 100.
    result = run(
        Hadar(round_s=50.0, **params, **FREE_MOVES),
        [(0.0, 1, 100.0), (0.0, 4, 100.0)],
        cluster((2, 4, "fast")),
    )
    assert result.jobs["finish_s"].tolist() == finish_s


@pytest.mark.parametrize(("beam", "finish_s"), [(1, [40, 111, 245]), (2, [40, 211, 145])])
def test_beam(beam: int, finish_s: list[float]) -> None:
    # Two GPUs, busy until 40. At 45 job 1 is worth 66 / (44 + 66) = 0.6 on one GPU, job 2 on two
    # just arrived 1, which is 0.5 per GPU. Greedy takes job 1, which is worth more per GPU; with
    # two states the one with job 2 alone is the better. At 95, half done, job 2 is worth 0.5 per
    # GPU and job 1 66 / 160 = 0.41.
    jobs = [(0.0, 2, 40.0), (1.0, 1, 66.0), (45.0, 2, 100.0)]
    moves = {"round_s": 50.0, **FREE_MOVES}
    result = run(
        Hadar("effective_throughput_normalised", "utility_per_gpu", beam=beam, **moves),
        jobs,
        cluster((1, 2, "fast")),
        preemptible=[0, 1, 1],
    )
    assert result.jobs["finish_s"].tolist() == finish_s


@pytest.mark.parametrize(
    ("utility", "start_s"),
    [
        ("auto", 1000),
        ("effective_throughput_normalised", 1000),
        ("raw", 1000),
        ("jct", 0),
        ("makespan", 910),
        ("ftf", 10),
    ],
)
def test_utility(utility: str, start_s: float) -> None:
    # One GPU, jobs of 1000 and 100 s. Normalised: equal at 0, so the first goes first, and is worth
    # 1 as long as it runs. Job completion time: the short one first. Makespan: the long one until
    # at 910 it has less left, 90. Fairness: (wait + rest) / isolated are both 1/2 at 0; at 10,
    # 0.505 and 0.55.
    result = run(
        Hadar(round_s=10.0, utility=utility, **FREE_MOVES),
        [(0.0, 1, 1000.0), (0.0, 1, 100.0)],
        cluster((1, 1, "fast")),
    )
    assert result.jobs["first_start_s"][1] == start_s


@pytest.mark.parametrize(
    ("order", "batch_s", "stream_s"),
    [
        ("utility", [0, 100], 100),
        ("utility_per_gpu", [200, 0], 100),
        ("submission", [0, 100], 1000),
    ],
)
def test_order_by_hand(order: str, batch_s: list[float], stream_s: float) -> None:
    # Two GPUs, rounds of 100 s. A gang of two for 100 s is worth 1 / 100, a job on one GPU for
    # 150 s 1 / 150: less, but per GPU more than 1 / 200. The gang then waits for the round at 200.
    hadar = {"utility": "jct", "order": order, "round_s": 100.0, **FREE_MOVES}
    result = run(Hadar(**hadar), [(0.0, 2, 100.0), (0.0, 1, 150.0)], cluster((1, 2, "fast")))
    assert result.jobs["first_start_s"].tolist() == batch_s
    # One GPU: at 100 the job of 14 s is worth 1 / 64, the one of 1000 s that runs 1 / 1000.
    result = run(Hadar(**hadar), [(0.0, 1, 1000.0), (50.0, 1, 14.0)], cluster((1, 1, "fast")))
    assert result.jobs["first_start_s"][1] == stream_s


@pytest.mark.parametrize(("utility", "first"), [("effective_throughput_normalised", 0), ("raw", 1)])
def test_raw_throughput_prefers_models_with_many_iterations(utility: str, first: int) -> None:
    trace = trace_of(
        [(0.0, 1, 1000.0), (0.0, 1, 1000.0)], model=["ResNet-50", "LM"], batch_size=[64, 20]
    )
    result = Simulator(
        trace, Cluster.parse("1x1:v100"), Hadar(utility=utility), Conditions(Profiled())
    ).run()
    assert result.jobs["first_start_s"].argmin() == first


@pytest.mark.parametrize(("overhead_s", "finish_s"), [(10.0, 110.0), (100.0, 200.0)])
def test_overhead(overhead_s: float, finish_s: float) -> None:
    # Job 1 is on the middle type while job 0 is on the fast one, up to 10. At 20 it has 90 left: 20
    # + 180 = 200 where it is; elsewhere 20 + 90 and the overhead.
    machines = cluster((1, 1, "fast"), (1, 1, "mid"))
    result = run(
        Hadar(round_s=20.0, overhead_s=overhead_s),
        [(0.0, 1, 10.0), (0.0, 1, 100.0)],
        machines,
        preemptible=[0, 1],
    )
    assert result.jobs["finish_s"].tolist() == [10, finish_s]


# -- rounds, and what happens in them
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("round_s", "start_s"), [(30.0, 30), (45.0, 45)])
def test_who_arrives_in_a_round_waits_for_the_next(round_s: float, start_s: float) -> None:
    result = run(Hadar(round_s=round_s), [(0.0, 1, 100.0), (5.0, 1, 20.0)], cluster((1, 2, "fast")))
    assert result.jobs["first_start_s"].tolist() == [0, start_s]


def test_an_idle_cluster_begins_a_round_with_the_next_arrival() -> None:
    result = run(
        Hadar(round_s=100.0),
        [(0.0, 1, 10.0), (17.0, 1, 10.0), (50.0, 1, 10.0)],
        cluster((1, 1, "fast")),
    )
    assert result.jobs["first_start_s"].tolist() == [0, 17, 50]
    assert len(result.decisions) < 8


def test_cpu_jobs_start_at_once_and_are_left_alone() -> None:
    machines = Cluster((NodeGroup(1, 1, "fast", cpus=8.0), NodeGroup(1, 0, cpus=4.0)), SPEEDS[:1])
    result = run(Hadar(round_s=50.0), [(0.0, 1, 100.0), (7.0, 0, 100.0)], machines, cpus=[2.0, 4.0])
    assert result.jobs["first_start_s"].tolist() == [0, 7]
    assert result.jobs["preemptions"].tolist() == [0, 0]


@pytest.mark.parametrize(("others", "again_s"), [([(0.0, 2, 500.0)], 40), ([], 30)])
def test_a_job_that_lost_its_node_goes_on_in_the_next_round(
    others: list[tuple[float, int, float]], again_s: float
) -> None:
    # Node 0 goes at 30, with 30 s of work that nobody has saved. If nothing else runs, a round
    # begins at once.
    result = run(
        Hadar(round_s=20.0),
        [(0.0, 2, 100.0), *others],
        cluster((3, 2, "fast")),
        Conditions(faults=Faults(outages="0:30:1000")),
    )
    segments = result.segments[result.segments["job"] == 0]
    assert segments[["t0", "t1"]].to_numpy().tolist() == [[0, 30], [again_s, again_s + 100]]


def test_jobs_that_must_not_be_stopped_keep_their_gpus_and_raise_prices() -> None:
    # Job 0 takes the fast GPU and may not be stopped; that of the middle type is left for job 1,
    # although it is worth more from 20 on.
    machines = cluster((1, 1, "fast"), (1, 1, "mid"))
    result = run(
        Hadar(round_s=10.0),
        [(0.0, 1, 100.0), (5.0, 1, 10.0)],
        machines,
        Conditions(overheads=Overheads(on_preempt="forbidden")),
    )
    assert result.jobs["finish_s"].tolist() == [100, 30]
    assert result.jobs["preemptions"].sum() == 0


def test_cores_limit_gangs() -> None:
    # A node of four GPUs has cores for two workers; the gang of three needs both nodes.
    result = run(Hadar(), [(0.0, 3, 100.0)], cluster((2, 4, "fast"), cpus=8.0), cpus=[12.0])
    assert result.placements[["node", "count"]].to_numpy().tolist() == [[0, 2], [1, 1]]


def test_a_partition_sees_its_own_nodes_only() -> None:
    machines = Cluster(
        (NodeGroup(1, 2, "fast", partitions=("a",)), NodeGroup(1, 2, "fast", partitions=("b",))),
        SPEEDS[:1],
    )
    whole = Partition(by="vc", inner=Spec("inner"))
    whole.assemble(lambda _: Hadar(round_s=10.0))
    jobs = [(0.0, 2, 100.0), (0.0, 2, 100.0), (0.0, 2, 100.0)]
    result = run(whole, jobs, machines, vc=["a", "b", "a"])
    assert result.jobs["finish_s"].tolist() == [100, 100, 200]
    assert set(result.notes["name"]) == {"a.price_fast", "b.price_fast", "a.payoff", "b.payoff"}


class Twice(Hadar):
    """Installed while others run: decides for the first time at the second call."""

    def allocate(self, view: View, /) -> Plan:
        if "calls" not in self.__dict__:
            self.__dict__["calls"] = 1
            job = int(view.waiting.ids[0])
            grant = Placer("fewest", "fastest", False)(view, view.demand(job))
            assert grant is not None
            return Plan({job: grant}, wake_at_s=25.0)
        return super().allocate(view)


def test_work_is_counted_from_when_a_job_is_first_seen() -> None:
    # At 25 three quarters of the job's 100 s are left: alone 75 s, so it is worth 75 / (25 + 75),
    # on one GPU of one.
    result = run(Twice(round_s=1000.0), [(0.0, 1, 100.0)], cluster((1, 1, "fast")))
    notes = dict(result.notes[["name", "value"]].to_numpy().tolist())
    horizon_s = 25 + 75 + 75
    least = 75 / horizon_s / (4 * 75)
    assert notes["price_fast"] == pytest.approx(1)
    assert notes["payoff"] == pytest.approx(0.75 - least)


def test_notes_are_the_prices_of_the_next_gpu() -> None:
    # One of two GPUs of one node taken, none of the other type's: the root of lowest times highest,
    # and the lowest.
    result = run(Hadar(), [(0.0, 1, 100.0)], cluster((1, 2, "fast"), (1, 1, "mid")))
    notes = dict(result.notes[["name", "value"]].to_numpy().tolist())
    least = 100 / (200 / 3 + 200) / (4 * 200)
    assert notes["price_fast"] == pytest.approx(sqrt(least))
    assert notes["price_mid"] == pytest.approx(least)


def test_a_gang_of_equal_worth_is_not_moved() -> None:
    jobs = [(float(at), 1 + at % 3, 300.0) for at in range(4)]
    result = run(Hadar(round_s=10.0), jobs, cluster((4, 3, "fast")))
    assert result.jobs["preemptions"].sum() == 0


def test_jobs_without_a_believed_speed_wait() -> None:
    # ResNet-50 with batch size 128 does not fit on a K80 in the physical table.
    trace = Trace.of(
        trace_of(
            [(0.0, 1, 1000.0), (0.0, 1, 1000.0)], model=["ResNet-50", "LM"], batch_size=[128, 20]
        ).frame
    )
    result = Simulator(
        trace, Cluster.parse("1x1:k80"), Hadar(), Conditions(Profiled(table="physical"))
    ).run()
    assert result.jobs["outcome"].tolist() == ["impossible", "completed"]
