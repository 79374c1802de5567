"""Why a job waited, on runs written down by hand and against a count over all nodes at random
instants.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.contract import Demand
from sim.metrics.fit import RoomNeeds, has_spread_jobs, room
from sim.metrics.timeline import Timeline
from sim.metrics.wait_causes import (
    MAX_PIECES,
    JobCase,
    Piece,
    _earlier_waiting,
    causes,
    reasons,
    waits,
)
from sim.result import RunResult
from tests.properties.runs import mixed_cluster, rough_run
from tests.sim.metrics.metrics_cases import Held, Job, outages_of, run_of

TWO = Cluster.parse("2x4:v100")


def decided(*times: float, changed: Sequence[int] | None = None) -> pd.DataFrame:
    return pd.DataFrame(
        {"t": np.array(times), "changed": changed or [1] * len(times), "waiting": 0, "running": 0}
    )


def wanted(
    need: int,
    cluster: Cluster = TWO,
    *,
    nodes: Sequence[int] | None = None,
    mixed: bool = False,
    cpus: float = 0.0,
) -> RoomNeeds:
    kinds = np.array(
        [
            cluster.type_index[node.gpu_type] if nodes is None or at in nodes else -1
            for at, node in enumerate(cluster.nodes)
        ]
    )
    return RoomNeeds(Demand(need, 1, cpus, 0.0, (0,)), need, kinds, mixed)


def found(
    result: RunResult, job: int, need: RoomNeeds, cluster: Cluster = TWO
) -> tuple[Piece, ...]:
    return reasons(JobCase(Timeline(result, cluster), need, job))


def told(pieces: Sequence[Piece]) -> list[str]:
    return [f"{piece.t0:g}-{piece.t1:g} {piece.cause}" for piece in pieces]


FIRST_COME = run_of(
    [Job(0, 4, 0, 60), Job(10, 8, 60, 90), Job(20, 2, 90, 110)],
    [Held(0, 0, 60, 4), Held(1, 60, 90, 4), Held(1, 60, 90, 4, node=1), Held(2, 90, 110, 2)],
    110.0,
    decisions=decided(0, 10, 20, 60, 90, 110, changed=[1, 0, 0, 1, 1, 0]),
)


def test_too_little_is_free() -> None:
    (one,) = found(FIRST_COME, 1, wanted(8))
    assert told([one]) == ["10-60 no_room"]
    assert (one.free_least, one.free, one.most, one.there, one.ahead, one.later) == (
        4,
        4,
        4,
        8,
        0,
        (),
    )
    assert one.started


def test_room_behind_others_and_then_none() -> None:
    behind, full = found(FIRST_COME, 2, wanted(2))
    assert told([behind, full]) == ["20-60 behind", "60-90 no_room"]
    assert (behind.free, behind.most, behind.ahead, behind.first, behind.changes_s) == (
        4,
        4,
        1,
        1,
        60.0,
    )
    assert (full.free, full.ahead, full.first) == (0, 0, -1)
    assert (behind.started, full.started) == (False, True)


def test_who_ran_instead() -> None:
    result = run_of(
        [Job(0, 4, 0, 100), Job(10, 4, 60, 100), Job(20, 3, 20, 60), Job(30, 1, 30, 50)],
        [
            Held(0, 0, 100, 4),
            Held(1, 60, 100, 4, node=1),
            Held(2, 20, 60, 3, node=1),
            Held(3, 30, 50, 1, node=1),
        ],
        100.0,
        decisions=decided(0, 10, 20, 30, 50, 60),
    )
    free, taken = found(result, 1, wanted(4))
    assert told([free, taken]) == ["10-20 policy", "20-60 overtaken"]
    assert (taken.later, taken.more_later, taken.free_least, taken.free) == ((2, 3), 0, 0, 1)


HALVES = [Held(0, 0, 100, 2), Held(1, 0, 50, 2, node=1), Held(2, 50, 90, 4, node=1)]
HALF_JOBS = [Job(0, 2, 0, 100), Job(0, 2, 0, 50), Job(10, 4, 50, 90)]


def test_enough_in_pieces_too_small() -> None:
    result = run_of(HALF_JOBS, HALVES, 100.0, decisions=decided(0, 10, 50))
    (one,) = found(result, 2, wanted(4))
    assert told([one]) == ["10-50 scattered"]
    assert (one.free, one.most, one.replicas) == (4, 2, 4)
    assert has_spread_jobs(Timeline(result, TWO), 4) == (True, False)


def test_small_pieces_are_no_obstacle_where_gangs_are_spread() -> None:
    split = run_of(
        [*HALF_JOBS, Job(95, 4, 95, 99)],
        [*HALVES, Held(3, 95, 99, 4)],
        100.0,
        decisions=decided(0, 10, 50),
    )
    extra = split.placements.iloc[[-1]].assign(node=1, count=2)
    split.placements.loc[split.placements.index[-1], "count"] = 2
    spread = RunResult(
        **{**vars(split), "placements": pd.concat([split.placements, extra], ignore_index=True)}
    )
    assert has_spread_jobs(Timeline(spread, TWO), 4) == (True, True)
    assert told(found(spread, 2, wanted(4))) == ["10-50 policy"]


def test_larger_gangs_want_whole_nodes() -> None:
    """Six GPUs need one whole node and two of another: three times three are enough of them, but
    not that.
    """
    cluster = Cluster.parse("3x4:v100")
    jobs = [Job(0, 1, 0, 50), Job(0, 1, 0, 90), Job(0, 1, 0, 90), Job(10, 6, 50, 90)]
    pieces = [
        Held(0, 0, 50, 1),
        Held(1, 0, 90, 1, node=1),
        Held(2, 0, 90, 1, node=2),
        Held(3, 50, 90, 4),
        Held(3, 50, 90, 2, node=1),
    ]
    result = run_of(jobs, pieces, 90.0, decisions=decided(0, 10, 50))
    (one,) = found(result, 3, wanted(6, cluster), cluster)
    assert told([one]) == ["10-50 scattered"]
    assert (one.free, one.most) == (9, 3)
    whole = run_of(
        [Job(0, 1, 0, 5), *jobs[1:]],
        [Held(0, 0, 5, 1), *pieces[1:]],
        90.0,
        decisions=decided(0, 10, 50),
    )
    assert told(found(whole, 3, wanted(6, cluster), cluster)) == ["10-50 policy"]


def test_types_do_not_add_up_unless_a_gang_may_mix_them() -> None:
    cluster = Cluster.parse("2x4:v100,1x4:t4")
    result = run_of(
        [Job(0, 4, 0, 50), Job(10, 6, 50, 90)],
        [Held(0, 0, 50, 4), Held(1, 50, 90, 4)],
        90.0,
        decisions=decided(0, 10, 50),
    )
    (apart,) = found(result, 1, wanted(6, cluster), cluster)
    assert told([apart]) == ["10-50 scattered"]
    assert (apart.free, apart.replicas) == (8, 4)
    assert told(found(result, 1, wanted(6, cluster, mixed=True), cluster)) == ["10-50 policy"]


def test_free_where_it_may_not_go() -> None:
    result = run_of(
        [Job(0, 3, 0, 50), Job(10, 2, 50, 90)],
        [Held(0, 0, 50, 3), Held(1, 50, 90, 2)],
        90.0,
        decisions=decided(0, 10, 50),
    )
    (one,) = found(result, 1, wanted(2, nodes=[0]))
    assert told([one]) == ["10-50 not_allowed"]
    assert (one.free, one.anywhere) == (1, 5)


def test_nodes_that_are_down() -> None:
    result = run_of(
        [Job(10, 8, 50, 90)],
        [Held(0, 50, 90, 8)],
        90.0,
        decisions=decided(0, 10, 50),
        outages=outages_of([(1, 5.0, 50.0, "outage")]),
    )
    (one,) = found(result, 0, wanted(8))
    assert told([one]) == ["10-50 down"]
    assert one.there == 4


def test_cores_beside_the_gpus() -> None:
    cluster = Cluster.parse("1x4:v100/8c")
    result = run_of(
        [Job(0, 1, 0, 50), Job(10, 2, 50, 90)],
        [Held(0, 0, 50, 1), Held(1, 50, 90, 2)],
        90.0,
        decisions=decided(0, 10, 50),
    )
    result.placements["cpus"] = [6.0, 4.0]
    (one,) = found(result, 1, wanted(2, cluster, cpus=4.0), cluster)
    assert told([one]) == ["10-50 cores"]
    assert (one.free, one.replicas) == (3, 0)


def test_servers_need_room_too() -> None:
    cluster = Cluster.parse("1x4:v100/8c,1x0:cpu/4c")
    servers = RoomNeeds(Demand(1, 0, 6.0, 0.0, (0, 1)), 1, np.array([0, 1]), mixed=False)
    workers = wanted(2, cluster, nodes=[0], cpus=1.0)
    result = run_of(
        [Job(0, 1, 0, 50), Job(10, 2, 50, 90)],
        [Held(0, 0, 50, 1), Held(1, 50, 90, 2)],
        90.0,
        decisions=decided(0, 10, 50),
    )
    result.placements["cpus"] = [4.0, 1.0]
    both = RoomNeeds(workers.demand, 2, workers.kinds, mixed=False, servers=servers)
    assert told(found(result, 1, workers, cluster)) == ["10-50 policy"]
    assert told(found(result, 1, both, cluster)) == ["10-50 cores"]


def test_policies_that_decide_in_rounds() -> None:
    result = run_of(
        [Job(0, 4, 0, 30), Job(10, 4, 60, 90)],
        [Held(0, 0, 30, 4), Held(1, 60, 90, 4)],
        90.0,
        decisions=decided(0, 60),
    )
    one_node = Cluster.parse("1x4:v100")
    full, free = found(result, 1, wanted(4, one_node), one_node)
    assert told([full, free]) == ["10-30 no_room", "30-60 round"]
    assert free.decides_s == 60.0


def test_a_decision_that_takes_effect_later() -> None:
    result = run_of([Job(10, 4, 25, 90)], [Held(0, 25, 90, 4)], 90.0, decisions=decided(20))
    assert told(found(result, 0, wanted(4))) == ["10-20 round", "20-25 in_flight"]


def test_the_run_may_end_before() -> None:
    result = run_of(
        [Job(0, 8, 0), Job(5, 1, outcome="unfinished")],
        [Held(0, 0, 50, 4), Held(0, 0, 50, 4, node=1)],
        50.0,
        decisions=decided(0, 5),
    )
    (one,) = found(result, 1, wanted(1))
    assert told([one]) == ["5-50 no_room"]
    assert not one.started


def test_who_never_waits_has_no_reasons() -> None:
    assert found(FIRST_COME, 0, wanted(4)) == ()


def flickering(times: int) -> RunResult:
    """One node is taken by a later job for 9 of every 10 seconds while a job of 4 GPUs waits."""
    pieces = [Held(1, 10.0 * at, 10.0 * at + 9, 4, node=1) for at in range(times)]
    jobs = [Job(0, 4, 10.0 * times, 10.0 * times + 5), Job(0, 4, 0, outcome="unfinished")]
    return run_of(
        jobs,
        [*pieces, Held(0, 10.0 * times, 10.0 * times + 5, 4)],
        10.0 * times + 5,
        decisions=decided(*np.arange(times + 1) * 10.0),
    )


def test_causes_that_change_all_the_time_are_few_reasons() -> None:
    """Node 0 is out of bounds: of each 10 s the later job has node 1 for 9, and one second passes
    until the next decision.
    """
    (one,) = found(flickering(500), 0, wanted(4, nodes=[1]))
    assert told([one]) == ["0-5000 overtaken"]
    assert one.seconds == {"overtaken": 4500.0, "round": 500.0}


def test_many_waits_are_summed_up() -> None:
    """A job that runs every other 10 s waits 20 times; the last wait is the longest."""
    pieces = [Held(0, 20.0 * at, 20.0 * at + 10, 4, ended="preempted") for at in range(20)]
    result = run_of(
        [Job(0, 4, 0, outcome="unfinished")],
        pieces,
        450.0,
        decisions=decided(*np.arange(40) * 10.0),
    )
    made = found(result, 0, wanted(4))
    assert len(made) == MAX_PIECES
    assert (made[-1].waits, made[-1].waited_s) == (13, 130.0)
    assert (made[-2].t0, made[-2].t1) == (390.0, 450.0)
    assert sum(piece.waited_s for piece in made) == 19 * 10 + 60


def test_notes_of_types_that_the_job_may_use() -> None:
    cluster = Cluster.parse("1x4:v100,1x4:t4")
    names = ["price_v100", "price_t4", "payoff"]
    notes = pd.DataFrame(
        {
            "decision": np.repeat(np.arange(3), 3).astype(np.int32),
            "name": pd.array(names * 3, dtype="str"),
            "value": np.arange(9.0),
        }
    )
    jobs, pieces = (
        [Job(0, 4, 0, 50), Job(0, 4, 0, 50), Job(10, 4, 50, 90)],
        [
            Held(0, 0, 50, 4),
            Held(1, 0, 50, 4, node=1),
            Held(2, 50, 90, 4),
        ],
    )
    result = run_of(jobs, pieces, 90.0, decisions=decided(0, 20, 30, 50), notes=notes)
    (one,) = found(result, 2, wanted(4, cluster, nodes=[0]), cluster)
    assert one.notes == (("price_v100", 3.0, 6.0), ("payoff", 5.0, 8.0))


# -- against a plain count
# --------------------------------------------------------------------------------------------------


def plain_count(
    result: RunResult, cluster: Cluster, need: RoomNeeds, job: int, at_s: float
) -> tuple[object, ...]:
    """Room at one instant, node by node and placement by placement."""
    segments, placements = result.segments, result.placements
    live = segments[(segments["t0"] <= at_s) & (at_s < segments["t1"])]
    down = {
        int(row.node)
        for row in result.outages.itertuples()
        if row.t0 <= at_s and not row.t1 <= at_s
    }
    rows = placements[placements["segment"].isin(live.index)]
    by_type: dict[int, list[float]] = {}
    free, anywhere, early_by_type = 0.0, 0.0, dict[int, float]()
    for at, node in enumerate(cluster.nodes):
        mine = rows[rows["node"] == at]
        gpus, cpus = (float((mine["count"] * mine[name]).sum()) for name in ("gpus", "cpus"))
        anywhere += 0 if at in down else node.gpus - gpus
        if need.kinds[at] < 0:
            continue
        before = mine[segments["job"].to_numpy()[mine["segment"]] < job]
        left = (0.0, 0.0) if at in down else (node.gpus - gpus, node.cpus - cpus)
        free += left[0]
        kind = int(need.kinds[at])
        by_type.setdefault(kind, []).append(_fitting(*left, need.demand))
        without = (
            (0.0, 0.0)
            if at in down
            else tuple(
                getattr(node, name) - float((before["count"] * before[name]).sum())
                for name in ("gpus", "cpus")
            )
        )
        early_by_type[kind] = early_by_type.get(kind, 0.0) + _fitting(*without, need.demand)
    best = max(map(sum, by_type.values()))
    return (
        best >= need.need,
        max(early_by_type.values()) >= need.need,
        free,
        anywhere,
        best,
        max(max(slots) for slots in by_type.values()),
    )


def _fitting(gpus: float, cpus: float, demand: Demand) -> float:
    return max(0.0, min(gpus // demand.gpus, (cpus + 1e-6) // demand.cpus if demand.cpus else gpus))


def test_room_is_what_a_plain_count_finds() -> None:
    result, cluster = rough_run("srtf", 3), mixed_cluster()
    line, draw = Timeline(result, cluster), np.random.default_rng(5)
    checked = 0
    for job in draw.choice(np.flatnonzero(line.waited_s > 0), 25, replace=False).tolist():
        need = wanted(
            int(result.jobs["gpus"].iloc[job]),
            cluster,
            nodes=[0, 1, 4] if job % 2 else None,
            cpus=float(job % 3),
        )
        periods = waits(line, job)
        here = room(line, need, job, (float(periods.t0[0]), float(periods.t1[-1])))
        for t0, t1 in zip(periods.t0[:4].tolist(), periods.t1[:4].tolist(), strict=True):
            at_s = float(draw.uniform(t0, t1))
            known = here.sample_at(np.array([at_s]))
            seen = (
                known.fits[0],
                known.without_later[0],
                known.free[0],
                known.anywhere[0],
                known.replicas[0],
                known.most[0],
            )
            assert seen == plain_count(result, cluster, need, job, at_s), (job, at_s)
            checked += 1
    assert checked > 30


def test_parts_are_exactly_the_waits() -> None:
    result, cluster = rough_run("gavel", 3), mixed_cluster()
    line = Timeline(result, cluster)
    for job in np.flatnonzero(line.waited_s > 0)[::4].tolist():
        need, periods = wanted(int(result.jobs["gpus"].iloc[job]), cluster), waits(line, job)
        t0, t1, _, _ = causes(JobCase(line, need, job), periods)
        gaps = np.flatnonzero(t1[:-1] != t0[1:])
        assert np.append(t0[0], t0[gaps + 1]).tolist() == periods.t0.tolist()
        assert np.append(t1[gaps], t1[-1]).tolist() == periods.t1.tolist()
        made = reasons(JobCase(line, need, job))
        assert len(made) <= MAX_PIECES
        assert sum(piece.waited_s for piece in made) == pytest.approx(line.waited_s[job])


def test_jobs_submitted_earlier_wait_until_they_start_and_while_they_are_preempted() -> None:
    # The first job runs from 10 to 30 and from 40 to 45 s; the second waits from 5 to 50 s.
    result = run_of(
        [Job(0, 8, 10, 45, preemptions=1), Job(5, 4, 50, 70)],
        [Held(0, 10, 30, 8, ended="preempted"), Held(0, 40, 45, 8), Held(1, 50, 70, 4)],
        70.0,
    )
    times, waiting = _earlier_waiting(Timeline(result, TWO), 1, (5.0, 50.0))
    assert list(zip(times, waiting, strict=True)) == [(5, 1), (10, 0), (30, 1), (40, 0)]
