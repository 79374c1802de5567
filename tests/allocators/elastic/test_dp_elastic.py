from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, inf, nan
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators.elastic.dp import BATCHES, DpElastic, _Admission
from allocators.elastic.scaling import Choices, Market, SizeOptions
from allocators.queue.fifo import Fifo
from sim.cluster import Cluster
from sim.contract import Grant, Plan, Shape, Telemetry, View
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.batch import Batch
from sim.perf.model import Limits, Rate
from sim.perf.scaling import PowerLaw
from sim.result import RunResult
from sim.trace import Trace
from tests.allocators.queue.walk import After, clusters, trace_of
from tests.conformance import Scenario, check_feasible

Throughput = Callable[[int | None, int], float]  # (total batch, GPUs) -> work per second


@dataclass(frozen=True)
class Job:
    submit_s: float
    work: float
    throughput: Throughput
    low: float = nan
    high: float = nan
    least: int = 1
    most: int = 64


@dataclass(frozen=True)
class ByHand:
    """A performance model in which every job brings its own throughput."""

    jobs: tuple[Job, ...]
    scales: ClassVar[bool] = True
    staffed: ClassVar[bool] = False

    def bind(self, trace: Any, cluster: Any) -> ByHand:
        return self

    def assumptions(self, trace: Any) -> tuple[str, ...]:
        return ()

    def work(self) -> Any:
        return np.array([job.work for job in self.jobs], float)

    def fastest(self) -> Any:
        return np.ones(len(self.jobs))

    def limits(self) -> Limits:
        return Limits(
            *[
                np.array([getattr(job, name) for job in self.jobs], float)
                for name in ("least", "most", "low", "high")
            ]
        )

    def rate(self, job: int, grant: Grant, done: float, now_s: float) -> Rate:
        workers = grant.gangs[0].workers
        rate = self.jobs[job].throughput(grant.tuning.batch_size, sum(workers.count))
        assert rate > 0, "an inadmissible grant"
        return Rate(rate)

    def rates(self, ids: Any, shapes: Sequence[Shape]) -> Any:
        return np.array(
            [
                [
                    self.jobs[job].throughput(shape.tuning.batch_size, sum(shape.gpus))
                    for shape in shapes
                ]
                for job in ids.tolist()
            ],
            float,
        )

    def telemetry(self, job: int, grant: Grant, done: float, now_s: float) -> Telemetry:
        return Telemetry({}, {}, {})


def table(*speedups: float) -> Throughput:
    """No batch size; the entry for each number of GPUs, 0 beyond."""
    return lambda batch, gpus: max(speedups[gpus - 1], 0.0) if gpus <= len(speedups) else 0.0


def shares(low: int, high: int, cap: int, *, ring: float = 0.5, step: float = 1.0) -> Throughput:
    """A step takes `step` seconds and one for each sample of the largest share, which is at most
    `cap`, and `ring` for each GPU beyond the first.
    """

    def throughput(batch: int | None, gpus: int) -> float:
        assert batch is not None
        share = ceil(batch / gpus)
        return (
            batch / (step + share + ring * (gpus - 1))
            if low <= batch <= high and batch >= gpus and share <= cap
            else 0.0
        )

    return throughput


def batched(
    submit_s: float, work: float, low: int = 2, high: int = 8, cap: int = 2, **costs: float
) -> Job:
    return Job(submit_s, work, shares(low, high, cap, **costs), low, high)


def run(
    jobs: Sequence[Job],
    cluster: str,
    allocator: Any = None,
    conditions: dict[str, Any] | None = None,
    **params: Any,
) -> RunResult:
    chosen = allocator or DpElastic(**{"every_s": 10.0} | params)
    trace = trace_of([(job.submit_s, min(job.least, 64), 1) for job in jobs])
    return Simulator(
        trace, clusters(cluster), chosen, Conditions(perf=ByHand(tuple(jobs)), **(conditions or {}))
    ).run()


def rows(result: RunResult) -> list[tuple[float, ...]]:
    """(job, from, to, GPUs, batch) of every segment, rounded to milliseconds."""
    columns = (
        result.segments[["job", "t0", "t1", "gpus", "batch"]].round(3).sort_values(["job", "t0"])
    )
    return [tuple(row) for row in columns.to_numpy().tolist()]


def notes(result: RunResult, name: str) -> list[float]:
    return result.notes[result.notes["name"] == name]["value"].tolist()


# -- the optimizer
# --------------------------------------------------------------------------------------------------

A, B, C = (1, 1.9, 2.7, 3.4), (1, 1.3, 1.4, 1.45), (-inf, 1.5, 2.1, 2.6)


def option(job: int, speedups: Sequence[float], held: int = 0) -> SizeOptions:
    pairs = [(size, value) for size, value in enumerate(speedups, 1) if value > 0]
    return SizeOptions(
        job, tuple(size for size, _ in pairs), tuple(value for _, value in pairs), held
    )


def choose(
    running: Sequence[Sequence[float]],
    waiting: Sequence[Sequence[float]],
    capacity: int,
    *,
    drop: bool = False,
) -> tuple[dict[int, int], _Admission]:
    view: Any = SimpleNamespace(room=SimpleNamespace(pools=[SimpleNamespace(type_at=0)]))
    turn = _Admission(view, Choices(), drop=drop)
    held = tuple(option(job, speedups, 1) for job, speedups in enumerate(running))
    queue = tuple(option(job, speedups) for job, speedups in enumerate(waiting, len(running)))
    return dict(turn.choose(Market((0,), 1, capacity, held, queue))), turn


@pytest.mark.parametrize(
    ("speedups", "capacity", "expected"),
    [
        ((A, B), 4, [3, 1]),
        ((A, C), 4, [2, 2]),
        ((C, C, A), 5, [2, 2, 1]),
        ((A,), 4, [4]),
        ((B, B), 9, [4, 4]),
    ],
)
def test_known_instances(
    speedups: Sequence[Sequence[float]], capacity: int, expected: list[int]
) -> None:
    assert list(choose((), speedups, capacity)[0].values()) == expected
    # It makes no difference to the division who runs already.
    assert list(choose(speedups, (), capacity)[0].values()) == expected


def test_who_does_not_fit_is_left_out_and_what_that_means_for_those_behind() -> None:
    # 1 + 2 + 2 GPUs are more than 4.
    chosen, turn = choose((), (A, C, C), 4)
    assert chosen == {0: 2, 1: 2}
    assert turn.notes == {"objective": 1.9 + 1.5, "least_gpus": 3, "admitted": 2}
    # One job for one GPU stands behind: in a queue it waits as well, else it takes the place.
    assert choose((A,), (C, C, B), 4)[0] == {0: 2, 1: 2}
    assert choose((A,), (C, C, B), 4, drop=True)[0] == {0: 1, 1: 2, 3: 1}
    # Those that run are never left out.
    assert choose((B, B, B), (A,), 3)[0] == {0: 1, 1: 1, 2: 1}


def test_a_table_that_falls_is_left_alone_and_gpus_stay_idle() -> None:
    falls, dips = (1, 0.59, 0.52, 0.49), (1, 0.8, 2.5)
    assert choose((falls, falls), (), 8)[0] == {0: 1, 1: 1}
    assert choose((falls, dips), (), 3)[0] == {0: 1, 1: 1}
    assert choose((falls, dips), (), 4)[0] == {0: 1, 1: 3}


@given(
    st.lists(
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.3, 1.5, 2.0, 2.7, 3.5]), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 10),
)
@settings(max_examples=60, deadline=None)
def test_the_sum_is_the_greatest_there_is(speedups: list[list[float]], capacity: int) -> None:
    usable = [values for values in speedups if any(values)]
    chosen, turn = choose((), usable, capacity)
    admitted = usable[: len(chosen)]
    sums = [
        sum(values[size - 1] for values, size in zip(admitted, sizes, strict=True))
        for sizes in product(
            *[[size for size, value in enumerate(values, 1) if value] for values in admitted]
        )
        if sum(sizes) <= capacity
    ]
    assert turn.notes["objective"] == pytest.approx(max(sums))
    assert sum(chosen.values()) <= capacity
    # The first that is left out would not have fitted.
    if len(admitted) < len(usable):
        least = [
            min(size for size, value in enumerate(values, 1) if value)
            for values in usable[: len(admitted) + 1]
        ]
        assert sum(least) > capacity


# -- schedules worked out by hand
# --------------------------------------------------------------------------------------------------

PAIR = (batched(0, 32), batched(5, 16))


def test_elastic_batches_by_hand() -> None:
    # Throughput with the best batch, 2 k: 2/3, 4/3.5, 6/4, 8/4.5; speed-ups 1, 1.714, 2.25, 2.667.
    # 0: job 0 alone on 4 GPUs, 16/9 per second. 10: 2 + 2 = 3.43 beats 3 + 1 = 3.25; job 0 has 32 -
    # 160/9 left, at 8/7 12.444 s. 20: nothing has changed.
    result = run(PAIR, "1x4:a")
    assert rows(result) == [(0, 0, 10, 4, 8), (0, 10, 22.444, 2, 4), (1, 10, 24, 2, 4)]
    assert notes(result, "objective") == pytest.approx([8 / 3, 24 / 7])
    assert result.decisions["changed"].tolist() == [1, 2, 0]


def test_largest_batches_by_hand() -> None:
    # A batch of 8 in shares of 2 needs all 4 GPUs: one job after the other, and the second waits
    # for the tick at 20.
    assert rows(run(PAIR, "1x4:a", batch="max")) == [(0, 0, 18, 4, 8), (1, 20, 29, 4, 8)]


def test_smallest_batches_by_hand() -> None:
    # A batch of 2: 2/3 on one GPU, 2/2.5 on two, and no more GPUs than samples.
    result = run(PAIR, "1x4:a", batch="min")
    assert rows(result) == [(0, 0, 40, 2, 2), (1, 10, 30, 2, 2)]
    # Against one GPU at its best batch, which is 2 as well.
    assert notes(result, "objective")[:2] == pytest.approx([1.2, 2.4])


def test_random_batches_keep_the_first_draw_whatever_the_interval() -> None:
    jobs = [batched(at, 30 + at, 2, 40, 10) for at in range(0, 60, 5)]
    runs = [
        run(jobs, "2x4:a", batch="random", every_s=every_s, conditions={"seed": seed})
        for every_s, seed in ((10.0, 0), (10.0, 0), (35.0, 0), (10.0, 1))
    ]
    first, _, slower, other = [
        result.segments.groupby("job")["batch"].agg(["min", "max"]) for result in runs
    ]
    assert runs[0].digest() == runs[1].digest()
    assert (first["min"] == first["max"]).all()
    assert first.equals(slower)
    assert not first.equals(other)
    assert first["min"].between(2, 40).all()
    assert first["min"].nunique() > 5


def test_the_best_batch_of_another_job_is_not_taken_where_it_does_not_fit() -> None:
    # Alike at batches 1, 3 and 5 of one GPU, which holds 4 samples of the first and 3 of the
    # second.
    result = run([batched(0, 8, 1, 5, 4), batched(0, 8, 1, 5, 3)], "1x2:a")
    assert rows(result)[0][3:] == (1, 4)
    assert rows(result)[1][3:] == (1, 3)


def test_a_change_costs_the_pause() -> None:
    result = run(PAIR, "1x4:a", conditions={"overheads": Overheads(restart_s=3.0)})
    assert rows(result) == [(0, 0, 10, 4, 8), (0, 10, 25.444, 2, 4), (1, 10, 24, 2, 4)]


def test_one_batch_size_makes_all_variants_alike() -> None:
    jobs = [batched(3 * at, 20 + 7 * at % 50, 8, 8, 4) for at in range(20)]
    results = [run(jobs, "2x4:a", batch=batch) for batch in ("elastic", "max", "min", "random")]
    assert len({result.segments.to_csv() for result in results}) == 1
    assert set(results[0].segments["batch"]) == {8}
    assert results[0].segments["gpus"].nunique() > 1


def test_jobs_that_do_not_scale_run_alike_with_their_best_and_their_largest_batch() -> None:
    jobs = [batched(3 * at, 40 + 7 * at % 50, 4, 16, 16, ring=30.0) for at in range(20)]
    elastic, largest = [run(jobs, "2x4:a", batch=batch) for batch in ("elastic", "max")]
    assert elastic.digest() == largest.digest()
    assert set(elastic.segments["gpus"]) == {1}
    scales = [batched(3 * at, 40 + 7 * at % 50, 4, 32, 8) for at in range(20)]
    assert run(scales, "2x4:a").digest() != run(scales, "2x4:a", batch="max").digest()


# -- who waits, who is turned away
# --------------------------------------------------------------------------------------------------


def test_a_job_that_does_not_fit_waits_or_is_dropped() -> None:
    # 10: job 1 with its batch of 8 wants all 4 GPUs, which job 0 has.
    result = run(PAIR, "1x4:a", batch="max", mode="drop")
    assert rows(result) == [(0, 0, 18, 4, 8)]
    assert result.jobs["outcome"].tolist() == ["completed", "refused"]
    assert notes(result, "refused") == [0, 1]
    assert run(PAIR, "1x4:a", mode="drop").jobs["outcome"].tolist() == ["completed"] * 2


def test_a_queue_is_first_come_first_served() -> None:
    # 0: 2 of 3 GPUs are used. 10: job 1 needs 2 and holds up job 2, which needs 1, until job 0 is
    # done at 25.
    jobs = [Job(0, 25, table(0, 1)), Job(1, 10, table(0, 1)), Job(2, 10, table(1))]
    assert [row[:3] for row in rows(run(jobs, "1x3:a"))] == [(0, 0, 25), (1, 30, 40), (2, 30, 40)]
    dropping = run(jobs, "1x3:a", mode="drop")
    assert [row[:3] for row in rows(dropping)] == [(0, 0, 25), (2, 10, 20)]
    assert dropping.jobs["outcome"].tolist() == ["completed", "refused", "completed"]


@pytest.mark.parametrize("mode", ["queue", "drop"])
def test_a_job_that_lost_its_node_waits_at_its_place_and_is_not_dropped(mode: str) -> None:
    # 12: job 1 loses node 1. 20: no room for it, nor for job 2 behind it, which is looked at for
    # the first time. 40: node 1 is back.
    jobs = [Job(0, 90, table(1)), Job(0, 20, table(1)), Job(15, 10, table(1))]
    result = run(
        jobs,
        "2x1:a",
        mode=mode,
        conditions={
            "faults": Faults(outages="1:12:35"),
            "overheads": Overheads(on_preempt="checkpoint"),
        },
    )
    first, second = [row[1:3] for row in rows(result) if row[0] == 1]
    assert first == (0, 12)
    assert second[0] == 40
    assert result.jobs["outcome"].tolist() == [
        "completed",
        "completed",
        "refused" if mode == "drop" else "completed",
    ]
    if mode == "queue":
        assert rows(result)[-1][1] >= second[1]


def test_running_jobs_shrink_but_are_never_stopped() -> None:
    jobs = [Job(at, 60, table(1, 1.9, 2.7, 3.4)) for at in range(8)]
    result = run(jobs, "1x4:a")
    assert not (result.segments["ended"] == "preempted").any()
    assert (result.segments["ended"] == "changed").any()
    assert {(row[1], row[3]) for row in rows(result) if row[0] < 4 and row[1] == 10} == {(10, 1)}
    assert (result.jobs["outcome"] == "completed").all()


def test_no_job_gets_more_than_the_cap_but_its_minimum() -> None:
    jobs = [
        Job(0, 10, lambda batch, gpus: float(gpus)),
        Job(0, 10, lambda batch, gpus: float(gpus) if gpus > 4 else 0.0, least=5),
    ]
    assert [row[3] for row in rows(run(jobs, "2x8:a", most_gpus=3))] == [3, 5]
    assert [row[3] for row in rows(run(jobs[1:], "2x8:a", most_gpus=7))] == [7]
    assert [row[3] for row in rows(run(jobs[1:], "2x8:a"))] == [10]


@pytest.mark.parametrize("mode", ["queue", "drop"])
def test_a_job_that_no_size_admits_is_turned_away_and_holds_up_nobody(mode: str) -> None:
    # A batch of 8 in shares of 2 needs 4 GPUs, more than the cap; one of 4 does not.
    jobs = [PAIR[0], batched(0, 8, 2, 4), Job(2, 30, table(0, 0, 0, 0, 0, 1))]
    allocator = DpElastic(every_s=10.0, batch="max", most_gpus=2, mode=mode)
    assert allocator.remarks() == ()
    result = run(jobs, "1x4:a", allocator)
    assert result.jobs["outcome"].tolist() == ["refused", "completed", "refused"]
    assert result.reason == "drained"
    assert allocator.remarks()[0].startswith(
        "2 jobs were turned away: no size of up to 2 GPUs is possible here;"
    )


def test_one_gpu_and_one_job_are_said_as_such() -> None:
    allocator = DpElastic(every_s=10.0, most_gpus=1)
    run([Job(0, 10, table(0.0, 1.0))], "1x4:a", allocator)
    assert allocator.remarks()[0].startswith(
        "1 job was turned away: no size of up to 1 GPU is possible here;"
    )


@pytest.mark.parametrize("batch", BATCHES)
def test_batch_sizes_of_jobs_without_a_choice_are_remarked(batch: str) -> None:
    plain, one, free = Job(0, 30, table(1.0, 1.8)), batched(0, 30, 4, 4, 4), batched(0, 30, 2, 8, 8)
    assert DpElastic(batch=batch).remarks() == ()
    for jobs, said in (
        ([plain], True),
        ([plain, one], True),
        ([plain, free], False),
        ([free, plain], False),
    ):
        remarks = run(jobs, "1x4:a", batch=batch).remarks
        expected = (
            (f"No job here has a choice of batch sizes, so batch={batch} changes nothing.",)
            if said
            else ()
        )
        assert remarks == expected


def test_jobs_without_gpus_start_beside_the_others() -> None:
    jobs = [Job(0, 30, lambda batch, gpus: 1.0), Job(0, 30, lambda batch, gpus: float(gpus or 1))]
    trace = trace_of([(0, 0, 30), (3, 1, 30)], cpus=[2.0, 0.0])
    result = Simulator(
        trace,
        clusters("1x4:a/4c"),
        DpElastic(every_s=10.0, mode="drop"),
        Conditions(perf=ByHand(tuple(jobs))),
    ).run()
    assert [row[:4] for row in rows(result)] == [(0, 0, 30, 0), (1, 10, 17.5, 4)]


def test_nothing_is_asked_and_nothing_done_while_nothing_changes() -> None:
    result = run([Job(0, 95, table(1)), Job(2, 60, table(1))], "1x2:a")
    # Ticks at 0, 10, ... 100: something has changed at 0, 10 and 70 (job 1 left), and at 90 nothing
    # has.
    assert len(notes(result, "objective")) == 3
    assert len(result.decisions) == 10


def test_each_type_is_a_market_of_its_own() -> None:
    # c is the fastest: the first two fill it, the third goes to a, the fourth waits in the queue
    # until 30, or is dropped because no type has room.
    jobs = [Job(0, 30 + at, table(1)) for at in range(4)]
    result = run(jobs, "1x1:a,1x2:c")
    placed = result.placements.merge(
        result.segments, left_on="segment", right_index=True
    ).sort_values(["job"])
    assert placed["node"].tolist()[:3] == [1, 1, 0]
    assert rows(result)[3][1] == 30
    assert notes(result, "objective")[0] == 3
    assert run(jobs, "1x1:a,1x2:c", mode="drop").jobs["outcome"].tolist() == ["completed"] * 3 + [
        "refused"
    ]


# -- conservation, takeover, cost
# --------------------------------------------------------------------------------------------------


@st.composite
def workloads(draw: st.DrawFn) -> list[Job]:
    made = []
    for submit_s in sorted(draw(st.lists(st.integers(0, 60), min_size=2, max_size=12))):
        low = draw(st.integers(1, 12))
        high = low + draw(st.integers(0, 30))
        cap = draw(st.integers(ceil(low / 4), 20))
        made.append(
            batched(
                submit_s,
                draw(st.integers(1, 200)),
                low,
                high,
                cap,
                ring=draw(st.sampled_from([0.0, 0.25, 4.0])),
            )
        )
    return made


@given(
    workloads(),
    st.sampled_from(["1x4:a", "3x2:a", "1x4:a,2x2:c"]),
    st.sampled_from(["elastic", "max", "min", "random"]),
    st.sampled_from(["queue", "drop"]),
    st.sampled_from(["", "0:10:30", "0:20:90;1:25:26"]),
)
@settings(max_examples=30, deadline=None)
def test_nothing_is_held_twice_and_all_work_is_done(
    jobs: list[Job], cluster: str, batch: str, mode: str, outages: str
) -> None:
    faults = Faults(
        outages=outages if len(clusters(cluster).nodes) > 1 else outages.partition(";")[0]
    )
    conditions = {"faults": faults, "overheads": Overheads(restart_s=1.0)}
    result = run(jobs, cluster, batch=batch, mode=mode, conditions=conditions)
    trace = trace_of([(job.submit_s, 1, 1) for job in jobs])
    check_feasible(result, Scenario("random", trace, clusters(cluster)))
    assert set(result.jobs["outcome"]) <= {"completed", "refused"}
    if mode == "queue" and batch == "elastic":
        assert (result.jobs["outcome"] == "completed").all()
    done = (
        (
            result.segments["rate"]
            * (result.segments["t1"] - result.segments["t0"] - result.segments["paused_s"])
        )
        .groupby(result.segments["job"])
        .sum()
    )
    # Instants are whole microseconds, so the ends of a segment may be off by one each.
    rounded = (2e-6 * result.segments["rate"]).groupby(result.segments["job"]).sum()
    for job, total in done.items():
        assert total - result.jobs["lost_work"][job] == pytest.approx(
            jobs[job].work, abs=rounded[job] + 1e-9
        )
    assert set(done.index) == set(result.jobs.index[result.jobs["outcome"] == "completed"])


def test_takes_over_a_cluster_in_operation() -> None:
    # FIFO starts jobs 0 and 1 on the one GPU they ask for. At 10 one of them may have the third,
    # job 2 does not fit. Job 0 has 50 left, at 1.9 per second. 40: it is gone; 1 + 1.5 with job 2
    # is as good as it gets.
    jobs = [
        Job(0, 60, table(1, 1.9, 2.7)),
        Job(0, 60, table(1, 1.9, 2.7)),
        Job(0, 60, table(0, 1.5), least=2),
    ]

    class Both(After):
        cadence = DpElastic(every_s=10.0).cadence

    result = run(jobs, "1x3:a", Both(10, Fifo(), DpElastic(every_s=10.0)))
    assert [row[:4] for row in rows(result)] == [
        (0, 0, 10, 1),
        (0, 10, 36.316, 2),
        (1, 0, 60, 1),
        (2, 40, 80, 2),
    ]


def test_what_an_outage_took_away_is_divided_anew() -> None:
    # Each half of the cluster is 2 GPUs; while one is away the other carries both jobs with one GPU
    # each.
    jobs = [Job(0, 100, table(1, 1.9, 2.7, 3.4)), Job(0, 100, table(1, 1.9, 2.7, 3.4))]
    result = run(jobs, "2x2:a", conditions={"faults": Faults(outages="1:12:35")})
    held = result.segments.assign(at=result.segments["t0"])
    assert sorted(held[(held["t0"] == 20)]["gpus"]) == [1, 1]
    assert sorted(held[(held["t0"] == 40)]["gpus"]) == [2, 2]
    assert (result.jobs["outcome"] == "completed").all()


class Counted:
    """Counts the function calls of every decision."""

    def __init__(self, inner: DpElastic) -> None:
        self.inner, self.cadence, self.needs, self.card = (
            inner,
            inner.cadence,
            inner.needs,
            inner.card,
        )
        self.calls: list[tuple[float, int]] = []
        self.kept: list[int] = []

    def allocate(self, view: View) -> Plan:
        count = 0

        def note(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event in {"call", "c_call"}

        before = sys.getprofile()
        sys.setprofile(note)
        plan = self.inner.allocate(view)
        sys.setprofile(before)
        self.calls.append((view.now_s, count))
        self.kept.append(
            len(self.inner._jsa._drawn.keys() | self.inner._jsa._batches.keys())
            + len(self.inner._gpu_type_index)
        )
        return plan


@pytest.mark.parametrize("mode", ["queue", "drop"])
def test_a_decision_costs_no_more_after_many_jobs_have_finished(mode: str) -> None:
    # The same ten jobs come again and again, every 200 s.
    jobs = [
        batched(200 * again + 5 * at, 30 + 13 * at % 90, 2, 16, 4)
        for again in range(40)
        for at in range(10)
    ]
    counted = Counted(DpElastic(every_s=10.0, mode=mode))
    result = run(jobs, "1x8:a", counted)
    assert (result.jobs["finish_s"].dropna() < 40 * 200 + 200).all()
    by_period = [
        sum(count for now_s, count in counted.calls if 200 * again <= now_s < 200 * (again + 1))
        for again in (2, 20, 38)
    ]
    assert by_period[0] == by_period[1] == by_period[2] > 0
    assert max(counted.kept[-20:]) <= max(counted.kept[:40])


def test_sizes_of_a_power_law_trace() -> None:
    # shrink and grow of the model: 1 to 8 GPUs for a job that asked for 2, exponent 0.75; T(k) = k
    # ^ 0.75 and equal shares are best.
    trace = trace_of([(0, 2, 100.0), (0, 2, 100.0), (5, 2, 10.0)])
    result = Simulator(
        trace, Cluster.parse("1x8:p100"), DpElastic(every_s=10.0), Conditions(perf=PowerLaw())
    ).run()
    assert [row[:4] for row in rows(result)][:2] == [(0, 0, 10, 4), (0, 10, 20, 3)]
    assert result.segments["batch"].unique().tolist() == [-1]


def classes(jobs: int, **columns: float) -> Trace:
    """Jobs of the four classes, a little more than 16 GPUs can do."""
    rng = np.random.default_rng(2)
    submit_s = np.sort(rng.integers(0, 6000, jobs)).tolist()
    durations = rng.integers(300, 3000, jobs).tolist()
    models = rng.choice(["compute", "comm", "balanced", "non-scalable"], jobs).tolist()
    sized = list(zip(submit_s, [1] * jobs, durations, strict=True))
    return trace_of(
        sized,
        model=models,
        min_gpus=[1.0] * jobs,
        max_gpus=[10.0] * jobs,
        **{name: [value] * jobs for name, value in columns.items()},
    )


def arms(trace: Trace, **params: Any) -> dict[str, RunResult]:
    conditions = Conditions(perf=Batch(), overheads=Overheads(restart_s=30))
    return {
        batch: (
            Simulator(
                trace, Cluster.parse("2x8:p100"), DpElastic(batch=batch, **params), conditions
            ).run()
        )
        for batch in BATCHES
    }


def test_who_chooses_the_batch_size_completes_more_and_sooner() -> None:
    trace = classes(150)
    queued = {
        batch: (result.jobs["finish_s"] - result.jobs["submit_s"]).mean()
        for batch, result in arms(trace).items()
    }
    assert queued["elastic"] < min(queued["max"], queued["random"])
    dropped = {
        batch: (result.jobs["outcome"] == "refused").sum()
        for batch, result in arms(trace, mode="drop").items()
    }
    assert dropped["elastic"] < min(dropped["max"], dropped["random"])
    assert len({result.digest() for result in arms(trace).values()}) == 4


def test_one_batch_size_in_the_trace_makes_all_variants_alike() -> None:
    results = arms(classes(60, min_batch=64.0, max_batch=64.0))
    assert len({result.digest() for result in results.values()}) == 1
    assert set(results["max"].segments["batch"]) == {64}
