"""What runs cost is counted in CPU seconds of their workers, so a busy machine makes none long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.params import Spec
from tests.trainyard.sweeps.cases import STUDY
from trainyard.runs import worker
from trainyard.runs.engines import SETTING
from trainyard.runs.estimate import JobCost
from trainyard.runs.executors import Executor, Inline
from trainyard.runs.pool import WorkerPool
from trainyard.runs.queue import RunQueue, Submission, Task
from trainyard.runs.run import run_to_store
from trainyard.runs.task import Numbers
from trainyard.runs.worker import Ran
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.study.sweep import Axis, Sweep
from trainyard.sweeps.sweep_run import SweepRun
from trainyard.traces import new_study


class ByHand(Executor):
    """Holds runs until the test ends them."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []
        self.workers, self.spare = 1, 1

    def submit(
        self, ticket: int, work: Callable[..., Any], args: Sequence[Any], limit_s: float | None
    ) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]

    def close(self) -> None:
        """Hold nothing."""


def test_a_worker_counts_its_own_processor_and_that_of_its_solvers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu_s = iter((10.0, 10.25))
    monkeypatch.setattr(worker, "_cpu_s", lambda: next(cpu_s))
    assert worker.measure(max, 3, 5) == Ran(5, 0.25)


def test_an_executor_hands_on_the_cpu_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_s = iter((10.0, 10.25))
    monkeypatch.setattr(worker, "_cpu_s", lambda: next(cpu_s))
    queue = RunQueue(Inline())
    try:
        made = queue.put(Task("k", STUDY.base, sum, ([1, 2],), 0.0), "ann")
        assert made.wait(30)
        assert (made.state, made.result, made.cpu_s) == ("done", 3, 0.25)
    finally:
        queue.close()


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    monkeypatch.setenv(SETTING, "kernel")
    made = WorkerPool(Store(tmp_path), ByHand())
    yield made
    made.close()


def _end(pool: WorkerPool, run: Submission, cpu_s: float) -> None:
    """Let a run be made here, and its worker report so many CPU seconds."""
    assert isinstance(pool.executor, ByHand)
    run_to_store(run.scenario.to_json(), pool.store.address)
    pool.executor.futures[-1].set_result(Ran(run.key, cpu_s))


def test_a_tiny_comparison_ends_beside_a_long_run_of_another_session(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 1,200 jobs of a run took 0.24 CPU s: 1,200 x 0.2 ms. By the clock that was any time."""
    table = {"hadar": JobCost(5.0, 0.0), "fifo": JobCost(0.1, 0.0)}
    monkeypatch.setattr("trainyard.runs.estimate.JOB_COSTS", table)
    monkeypatch.setattr("trainyard.runs.estimate.RUN_S", 0.0)
    week = new_study.sample_study("week").base
    hadar = replace(week, allocator=Spec("hadar"))  # 1,200 x 5 ms = 6 s: no short run
    long = pool.submit(hadar, watcher="ann")
    assert (long.state, long.seconds) == ("running", pytest.approx(6.0))
    tiny = [pool.submit(replace(week, seed=seed), watcher="carl") for seed in range(4)]
    for at, one in enumerate(tiny):
        assert (one.state, one.seconds) == ("running", pytest.approx(0.12))
        _end(pool, one, 0.24)
        assert [one.state for one in tiny[: at + 1]] == ["done"] * (at + 1)
    assert pool.costs.per_job_s(week.allocator, "kernel") == pytest.approx(2e-4)
    assert pool.submit(replace(week, seed=9), watcher="carl").seconds == pytest.approx(0.24)
    assert long.state == "running"


def test_a_sweep_expects_what_its_workers_have_counted(tmp_path: Path) -> None:
    expected: list[float] = []

    class Told(Inline):
        def submit(self, *asked: Any) -> Future[Any]:
            made: Future[Any] = Future()
            made.set_result(Ran(Numbers({"jct_mean_s": 1.0}, ()), 0.5))
            return made

    class Watched(RunQueue):
        def put(self, task: Task, whose: Any) -> Submission:
            expected.append(task.seconds)
            return super().put(task, whose)

    base = replace(STUDY.base, trace=TraceSpec("sample:tiny"))
    sweep = Sweep(Study(base, STUDY.allocators[:1]), (Axis("seed", (1, 2, 3)),))
    queue = Watched(Told())
    try:
        SweepRun(sweep, Store(tmp_path), queue).run()
    finally:
        queue.close()
    assert expected == [5.0, 0.5, 0.5]
