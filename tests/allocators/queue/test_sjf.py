from __future__ import annotations

from allocators import make
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.estimators import Biased, EstimatorSpec, Exact, Unknown
from tests.allocators.queue.walk import gantt, trace_of

# (submission, GPUs, duration) on one node of 2 GPUs.
JOBS = [(0, 1, 6), (0, 2, 5), (1, 2, 3), (2, 1, 4), (2, 1, 1)]

SAVED = Overheads(checkpoint_every_s=2)


def chart(
    spec: str,
    cluster: str = "1x2:v100",
    estimator: EstimatorSpec | None = None,
    jobs: list[tuple[int, int, int]] = JOBS,
    **columns: list[object],
) -> str:
    return gantt(
        Simulator(
            trace_of(jobs, **columns),
            Cluster.parse(cluster),
            make(Spec.parse(spec)),
            Conditions(estimator=estimator or Exact()),
        ).run()
    )


def test_the_shortest_goes_first() -> None:
    # At 0 both are there: job 1 (5 s) before job 0 (6 s), it takes both GPUs until 5. Then job 4 (1
    # s) starts, job 2 (3 s, 2 GPUs) is next and blocks job 3 (4 s): it starts when job 4 has left
    # at 6. At 9 jobs 3 and 0.
    assert chart("sjf").splitlines() == [
        ".........######",
        "#####",
        " .....###",
        "  .......####",
        "  ...#",
    ]


def test_a_longer_one_may_pass_what_has_no_room() -> None:
    # At 5 job 4 starts; job 2 needs 2 GPUs and 1 is free, so job 3 (4 s) passes it. At 6 job 0
    # passes too; job 2 starts when both are gone, at 12.
    assert chart("sjf:backfill=first_fit").splitlines() == [
        "......######",
        "#####",
        " ...........###",
        "  ...####",
        "  ...#",
    ]


def test_gpu_time_may_count_instead_of_run_time() -> None:
    # GPU-seconds: 6, 10, 6, 4, 1. At 0 job 0 takes one GPU until 6, job 1 needs two. At 2 job 4 (1)
    # goes first, at 3 job 3 (4), which leaves at 7; then jobs 2 (6) and 1 (10).
    assert chart("sjf:size=gpu_time").splitlines() == [
        "######",
        "..........#####",
        " ......###",
        "  .####",
        "  #",
    ]


def test_a_cpu_job_counts_as_one_gpu() -> None:
    # One node of 4 cores, which each job wants for itself. GPU-seconds: 1, 3 (the CPU job), 4. By
    # GPU time the CPU job goes second, by run time last.
    trace = trace_of([(0, 1, 1), (0, 0, 3), (0, 2, 2)], cpus=[4.0, 4.0, 4.0])
    starts = {
        spec: (
            Simulator(trace, Cluster.parse("1x2:v100/4c/64g"), make(Spec.parse(spec)))
            .run()
            .jobs["first_start_s"]
            .tolist()
        )
        for spec in ("sjf", "sjf:size=gpu_time")
    }
    assert starts == {"sjf": [0, 3, 1], "sjf:size=gpu_time": [0, 1, 4]}


def test_without_knowledge_of_sizes_it_is_first_come_first_served() -> None:
    jobs = trace_of(JOBS)
    run = {
        name: (
            Simulator(
                jobs, Cluster.parse("1x2:v100"), make(Spec(name)), Conditions(estimator=Unknown())
            ).run()
        )
        for name in ("sjf", "fifo")
    }
    assert run["sjf"].digest() == run["fifo"].digest()


def test_an_error_common_to_all_changes_nothing() -> None:
    assert chart("sjf", estimator=Biased(3.0)) == chart("sjf")


def test_run_time_counts_on_the_preferred_type() -> None:
    # One V100 (speed 1) and one T4 (0.37), both taken; the T4 comes free at 1.48 / 0.37 = 4 s. Job
    # 2 (2.2 s on a V100) may go to either, job 3 (2 s) only to the T4, where it takes 2 / 0.37 =
    # 5.4 s. Measured on the fastest admitted type job 2 is the shorter one, on the slowest (5.9 s)
    # job 3.
    trace = trace_of(
        [(0, 1, 10), (0, 1, 1.48), (1, 1, 2.2), (1, 1, 2)],
        gpu_types_allowed=["v100", "t4", "v100|t4", "t4"],
    )
    starts = {}
    for types in ("fastest", "slowest_that_fits"):
        run = Simulator(
            trace, Cluster.parse("1x1:v100,1x1:t4"), make(Spec.of("sjf", types=types))
        ).run()
        starts[types] = run.jobs["first_start_s"].round(6).tolist()
    assert starts == {
        "fastest": [0, 0, 4, round(4 + 2.2 / 0.37, 6)],
        "slowest_that_fits": [0, 0, round(4 + 2 / 0.37, 6), 4],
    }


def test_an_evicted_job_counts_with_what_it_has_left() -> None:
    # Job 0 (10 s, saved every 2 s) is thrown out at 6 with 4 s left; job 1 has 5 s. At 8 the node
    # is back: job 0 goes first.
    trace = trace_of([(0, 1, 10), (1, 1, 5)])
    from_checkpoints = Conditions(faults=Faults(outages="0:6:8"), overheads=SAVED)
    run = Simulator(trace, Cluster.parse("1x1:v100"), make(Spec("sjf")), from_checkpoints).run()
    assert gantt(run).splitlines() == ["######..####", " ...........#####"]


LATE_AND_SHORT = [(0, 1, 4), (1, 2, 3), (2, 1, 1)]


def test_a_shorter_job_that_arrives_later_passes_the_one_that_has_no_room() -> None:
    assert chart("sjf", jobs=LATE_AND_SHORT).splitlines() == ["####", " ...###", "  #"]


def test_a_locked_first_job_keeps_its_place() -> None:
    # Job 1 finds one GPU free at 1 and is the first of the queue from then on.
    expected = ["####", " ...###", "  .....#"]
    assert chart("sjf:backfill=locked", jobs=LATE_AND_SHORT).splitlines() == expected
