from __future__ import annotations

import json
import logging
import multiprocessing
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.engine.simulator import Measure, Progress
from sim.errors import ParameterError, TraceError
from sim.metrics import queue_series
from sim.params import Spec
from sim.trace import Trace
from tests.trainyard.runs.works import wait_all
from trainyard.runs import worker
from trainyard.runs.executors import Processes
from trainyard.runs.frames import SERIES, chart_frames, series
from trainyard.runs.pool import WorkerPool
from trainyard.runs.run import (
    rerun_to_store,
    run,
    run_to_store,
    scenario_key,
    summarize_run,
    versions,
)
from trainyard.store import Store, StoreError
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.traces.sources import load_trace


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    made = WorkerPool(Store(tmp_path_factory.mktemp("store")), Processes(2, spare=1))
    yield made
    made.close()


def rich(scenario: Scenario) -> Scenario:
    """Everything random is on."""
    return replace(
        scenario,
        estimator=Spec("noisy"),
        faults=Spec.of("faults", mtbf_h=2.0, interruptions_per_node_h=0.5),
        overheads=Spec.of("o", restart_s=30.0),
        seed=4,
    )


def test_same_scenario_in_process_and_in_a_worker_is_byte_identical(
    pool: WorkerPool, scenario: Scenario
) -> None:
    one = replace(rich(scenario), cluster=Cluster.parse("1x8:v100"))
    other = replace(one, allocator=Spec("sjf"))
    here = [run(made) for made in (one, other)]
    jobs = [pool.submit(made) for made in (one, other)]
    assert wait_all(jobs)
    assert [job.error for job in jobs] == ["", ""]
    entries = [pool.store.get(job.key) for job in jobs]
    assert [entry and entry.result().digest() for entry in entries] == [
        result.digest() for result in here
    ]
    assert run(one).digest() == here[0].digest()
    assert here[0].digest() != here[1].digest()


def test_a_stored_result_is_not_run_again(pool: WorkerPool, scenario: Scenario) -> None:
    first = pool.submit(scenario)
    assert first.wait(300)
    entry = pool.store.get(first.key)
    assert entry is not None
    again = pool.submit(replace(scenario, name="the same"))
    assert again.state == "done"
    assert (again.key, again.share) == (first.key, 1.0)


def test_a_policy_that_cannot_run_fails_with_its_reason(
    pool: WorkerPool, scenario: Scenario
) -> None:
    job = pool.submit(
        replace(scenario, trace=replace(scenario.trace, load=1.5), allocator=Spec("recorded"))
    )
    assert job.wait(300)
    assert (job.state, job.details) == ("failed", {})
    assert job.error.startswith("recorded cannot run here: ")


def test_uploaded_trace_runs_in_a_worker(pool: WorkerPool, trace: Trace) -> None:
    digest = pool.store.put_trace(trace)
    job = pool.submit(
        Scenario(TraceSpec(f"store:{digest}"), Cluster.parse("1x8:v100"), Spec("fifo"))
    )
    assert job.wait(300)
    entry = pool.store.get(job.key)
    assert entry is not None
    assert entry.summary["completed"] == 4


def test_result_summary_and_charts_are_kept_together(store: Store, scenario: Scenario) -> None:
    assert store.get(scenario_key(scenario)) is None
    key = run_to_store(scenario.to_json(), str(store.root))
    assert key == scenario_key(scenario)
    entry = store.get(key)
    assert entry is not None
    trace, result = load_trace(scenario.trace), run(scenario)
    expected = summarize_run(scenario, result, trace)
    assert {
        name: entry.summary[name] for name in ("jobs", "completed", "jct_mean_s", "utilisation")
    } == {name: expected[name] for name in ("jobs", "completed", "jct_mean_s", "utilisation")}
    assert Scenario.from_json(entry.scenario) == scenario
    assert entry.provenance["versions"] == versions()
    for name in (*SERIES, "cdf"):
        assert len(entry.chart(name)) > 0
    assert run_to_store(scenario.to_json(), str(store.root)) == key


def test_conditions_reach_the_simulator(scenario: Scenario) -> None:
    plain = run(scenario)
    assert run(replace(scenario, horizon_s=100.0)).end_s == 100.0
    assert run(replace(scenario, overheads=Spec.of("o", start_s=60.0))).jobs[
        "paused_s"
    ].sum() == pytest.approx(12 * 60.0)
    assert run(replace(scenario, perf=Spec("rigid"))).digest() == plain.digest()
    assert run(rich(scenario)).digest() != plain.digest()
    assert run(replace(rich(scenario), seed=5)).digest() != run(rich(scenario)).digest()


def test_measured_window_reaches_the_summary(scenario: Scenario) -> None:
    few = replace(scenario, measure=Measure(first_job=0, last_job=4))
    assert summarize_run(few, run(few), load_trace(few.trace))["jobs"] == 5


def test_progress_comes_from_inside(scenario: Scenario) -> None:
    seen: list[Progress] = []
    run(
        replace(
            scenario, trace=TraceSpec("sample:week"), cluster=Cluster.parse("4x8:a100,4x8:v100")
        ),
        progress=seen.append,
    )
    assert seen
    assert all(one.jobs == 1200 for one in seen)
    assert [one.now_s for one in seen] == sorted(one.now_s for one in seen)


def test_what_cannot_run_is_said(scenario: Scenario, store: Store) -> None:
    with pytest.raises(
        ParameterError, match=r"recorded cannot run here: .*no recorded start times"
    ):
        run(replace(scenario, allocator=Spec("recorded"), trace=replace(scenario.trace, load=2.0)))
    with pytest.raises(TraceError, match="no longer on this machine"):
        run(replace(scenario, trace=TraceSpec("store:" + "0" * 32)), store=store)


def test_series_for_a_window(scenario: Scenario) -> None:
    result = run(scenario)
    full = queue_series(result)
    whole = series("queue", result, scenario.cluster)
    assert whole["t_s"].iloc[[0, -1]].tolist() == [0.0, result.end_s]
    assert set(full.columns) <= set(whole.columns)
    part = series("queue", result, scenario.cluster, (100.0, 200.0), bins=5)
    assert part["t_s"].iloc[[0, -1]].tolist() == [100.0, 200.0]
    assert len(part) <= 6
    with pytest.raises(ParameterError, match="no series 'nobody'"):
        series("nobody", result, scenario.cluster)
    with pytest.raises(ParameterError):
        series("queue", result, scenario.cluster, (5.0, 5.0))


def test_charts_have_at_most_a_thousand_points(scenario: Scenario) -> None:
    week = replace(
        scenario, trace=TraceSpec("sample:week"), cluster=Cluster.parse("4x8:a100,4x8:v100")
    )
    frames = chart_frames(run(week), week.cluster, week.measure)
    assert frames.pop("resources").empty  # this performance model does not know what jobs use
    assert all(0 < len(frame) <= 1000 for frame in frames.values())
    assert len(frames["queue"]) > 500


def test_provenance_names_the_versions() -> None:
    assert set(versions()) >= {"results", "python", "numpy", "pandas", "simpy"}
    json.dumps(versions())


def test_worker_board_belongs_to_the_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    board = [0.0] * (3 * worker.FIELDS)
    monkeypatch.setattr(worker._WorkerState, "board", None)
    worker.start(board)

    def work(progress: Callable[[Progress], None]) -> str:
        progress(Progress(4, 10, 3.0, 9.0))
        return "key"

    assert worker.execute(1, 42, work).value == "key"
    assert worker.read_board(board, 1, 42) == Progress(4, 10, 3.0, 9.0)
    assert worker.read_board(board, 1, 41) is None
    assert worker.read_board(board, 0, 42) is None
    assert worker.ready() > 0


def test_progress_is_written_at_most_five_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    board = [0.0] * worker.FIELDS
    monkeypatch.setattr(worker._WorkerState, "board", board)
    report = worker._Reporter(0, 42, iter((10.0, 10.125, 10.25, 10.375, 10.5)).__next__)
    written = []
    for done in range(5):
        report(Progress(done, 10, 3.0, 9.0))
        written.append(int(board[1]))
    assert written == [0, 0, 2, 2, 4]


def test_worker_starts_cold_without_its_sample(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for fault in (TraceError("Sample tiny is missing."), KeyError("gone")):

        def missing(_: str, fault: Exception = fault) -> None:
            raise fault

        monkeypatch.setattr("trainyard.runs.worker.load_sample", missing)
        monkeypatch.setattr(worker._WorkerState, "board", None)
        monkeypatch.setattr(worker._WorkerState, "is_warm", False)
        with caplog.at_level(logging.WARNING):
            worker.start([0.0] * worker.FIELDS)
        assert f"starts cold: {fault}" in caplog.text
    assert multiprocessing.parent_process() is None


def test_a_result_that_comes_out_otherwise_is_replaced_and_said(
    scenario: Scenario, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    key = run_to_store(scenario.to_json(), str(tmp_path))
    right = store.get(key)
    assert right is not None
    assert rerun_to_store(scenario.to_json(), str(tmp_path)) == key
    assert store.get(key) == right
    with sqlite3.connect(tmp_path / "library.db") as library:
        library.execute(
            "UPDATE things SET manifest = replace(manifest, ?, ?)",
            (right.provenance["digest"], "0" * 32),
        )
    with pytest.raises(StoreError, match="differs from the stored result"):
        rerun_to_store(scenario.to_json(), str(tmp_path))
    mended = store.get(key)
    assert mended is not None
    assert mended.provenance["digest"] == right.provenance["digest"]


def test_a_run_in_which_nothing_happens_comes_back(tmp_path: Path) -> None:
    # A job of one GPU on machines without any: it is impossible, and the clock never moves.
    store = Store(tmp_path)
    jobs = pd.DataFrame(
        {"job_id": ["a"], "submit_time_s": [0.0], "num_gpus": [1], "duration_s": [5.0]}
    )
    scenario = Scenario(
        TraceSpec(f"store:{store.put_trace(Trace.of(jobs))}"),
        Cluster.parse("4x0:cpu"),
        Spec("fifo"),
    )
    entry = store.get(run_to_store(scenario.to_json(), store.address))
    assert entry is not None
    assert entry.result().end_s == 0.0
