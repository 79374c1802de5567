from __future__ import annotations

import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pebble.pool.base_pool import PoolStatus

from sim.engine.simulator import Progress
from sim.errors import TraceError, TrainyardError
from tests.trainyard.runs.works import act, has_ended, ran, release, wait_all
from tests.waiting import wait_until
from trainyard.runs.executors import ExecutorError, Processes, RunLimits, cores, fault_message
from trainyard.runs.pool import QueueFullError, WorkerPool
from trainyard.runs.queue import Submission
from trainyard.store import Store
from trainyard.study.scenario import Scenario

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
Named = Callable[..., Scenario]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    made = WorkerPool(Store(tmp_path_factory.mktemp("store")), Processes(2, spare=1), work=act)
    yield made
    made.close()


@pytest.fixture
def named(scenario: Scenario, request: pytest.FixtureRequest) -> Callable[..., Scenario]:
    base = zlib.crc32(request.node.name.encode()) % 10**9

    def make(name: str, seed: int = 0) -> Scenario:
        return replace(scenario, name=name, seed=base + seed)

    return make


def pids_of(pool: WorkerPool, job: Submission) -> list[int]:
    return [pid for _, seed, pid in ran(pool.store.root) if seed == job.scenario.seed]


def pid_of(pool: WorkerPool, job: Submission) -> int:
    return wait_until(lambda: pids_of(pool, job), "a worker begins the run")[-1]


def release_runs(pool: WorkerPool, *jobs: Submission) -> None:
    release(pool.store.root, *(job.scenario.seed for job in jobs))


def test_a_run_reports_and_ends(pool: WorkerPool, named: Named) -> None:
    job = pool.submit(named("hold"))
    first = wait_until(lambda: job.share and job.progress, "a report")
    assert job.state == "running"
    assert isinstance(first, Progress)
    assert first.jobs == 1_000_000
    assert 0 < job.share < 1
    wait_until(lambda: job.progress != first, "another report")
    release_runs(pool, job)
    assert job.wait(300)
    assert (job.state, job.share, job.error, job.place) == ("done", 1.0, "", 0)
    assert pid_of(pool, job) != os.getpid()


def test_cancel_kills_that_process_only(pool: WorkerPool, named: Named) -> None:
    doomed, other = pool.submit(named("hold", 1)), pool.submit(named("hold", 2))
    process = psutil.Process(pid_of(pool, doomed))
    neighbour = pid_of(pool, other)
    doomed.cancel()
    assert doomed.state == "cancelled"
    wait_until(lambda: has_ended(process), "the process ends")
    release_runs(pool, other)
    assert other.wait(300)
    assert other.state == "done"
    assert pids_of(pool, other) == [neighbour]
    after = pool.submit(named("ok", 3))
    assert after.wait(300)
    assert after.state == "done"


def test_the_queue_says_whose_turn_it_is(pool: WorkerPool, named: Named) -> None:
    jobs = [pool.submit(named("hold", turn)) for turn in range(4)]
    assert [job.place for job in jobs] == [0, 0, 1, 2]
    assert (pool.running, pool.waiting) == (2, 2)
    assert jobs[3].state == "waiting"
    jobs[2].cancel()
    assert jobs[2].state == "cancelled"
    assert jobs[3].place == 1
    release_runs(pool, *jobs)
    assert wait_all(jobs)
    assert [job.state for job in jobs] == ["done", "done", "cancelled", "done"]
    assert jobs[2].scenario.seed not in [seed for _, seed, _ in ran(pool.store.root)]


@pytest.fixture
def estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the name of a scenario say whether it is a long run."""
    seconds = {"hold long": 100_000.0, "hold short": 0.1}
    monkeypatch.setattr("trainyard.runs.pool.run_seconds", lambda one, *_: seconds[one.name])


@pytest.mark.usefixtures("estimated")
def test_a_short_run_waits_for_nobody_elses_long_ones(pool: WorkerPool, named: Named) -> None:
    long = [pool.submit(named("hold long", turn), watcher="one") for turn in range(4)]
    own = pool.submit(named("hold short", 8), watcher="one")
    assert [job.place for job in (*long, own)] == [0, 0, 1, 2, 3]
    # Two of 100,000 s are under way; before the third about 200,000 s pass on two processes.
    assert long[2].starts_in_s == pytest.approx(100_000, abs=1000)
    assert own.starts_in_s == pytest.approx(200_000, abs=1000)
    short = [pool.submit(named("hold short", turn), watcher="two") for turn in (10, 11)]
    assert [job.place for job in short] == [0, 1]
    release_runs(pool, *short)
    assert wait_all(short)
    assert [job.state for job in short] == ["done", "done"]
    assert own.state == "waiting"
    for job in (*long, own):
        job.cancel()


@pytest.mark.usefixtures("estimated")
def test_whoever_was_served_least_goes_first(pool: WorkerPool, named: Named) -> None:
    heavy = [pool.submit(named("hold long", turn), watcher="heavy") for turn in range(3)]
    light = [pool.submit(named("hold long", turn), watcher="light") for turn in (10, 11)]
    # Two runs of heavy are under way, 200,000 s; light has had none, and both of its come first.
    assert [job.place for job in (*heavy, *light)] == [0, 0, 3, 1, 2]
    heavy[0].cancel()
    wait_until(lambda: light[0].state == "running", "the first run of light begins")
    assert [job.place for job in (heavy[2], light[1])] == [2, 1]
    for job in (*heavy, *light):
        job.cancel()


def test_equal_scenarios_share_a_process_until_the_last_watcher_leaves(
    pool: WorkerPool, named: Named
) -> None:
    first, second = pool.submit(named("hold")), pool.submit(named("hold"), watcher="other")
    process = psutil.Process(pid_of(pool, first))
    assert first.key == second.key
    assert pool.is_going(first.scenario)
    first.cancel()
    for _ in range(2):
        before = second.progress
        wait_until(lambda before=before: second.progress != before, "another report")
    assert (first.state, second.state) == ("cancelled", "running")
    second.cancel()
    assert not pool.is_going(first.scenario)
    wait_until(lambda: has_ended(process), "the process ends")
    assert pids_of(pool, first) == [process.pid]


def test_submitting_again_right_after_the_last_cancel_runs_it(
    pool: WorkerPool, named: Named
) -> None:
    first = pool.submit(named("hold"))
    pid_of(pool, first)
    first.cancel()
    again = pool.submit(named("hold"))
    release_runs(pool, again)
    assert again.wait(300)
    assert again.state == "done"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("infeasible", "Fifo asked for 9 GPUs at 5 s; 8 are free."),
        ("fault", "A fault in Trainyard stopped this run (KeyError: 'gone')"),
        ("memory", "Memory ran out in this run."),
        ("die 9", "The worker process was killed at each attempt."),
    ],
)
def test_failures_are_sentences_and_do_not_sink_the_others(
    pool: WorkerPool, named: Named, name: str, message: str
) -> None:
    job, other = pool.submit(named(name)), pool.submit(named("hold", 5))
    assert job.wait(300)
    release_runs(pool, other)
    assert other.wait(300)
    assert job.state == "failed"
    assert message in job.error
    assert "\n" not in job.error
    assert job.details == ({"now_s": 5.0} if name == "infeasible" else {})
    assert other.state == "done"


def test_a_run_whose_worker_is_killed_is_tried_again(pool: WorkerPool, named: Named) -> None:
    jobs = [pool.submit(named("die 1", 1)), pool.submit(named("die 9", 2))]
    assert wait_all(jobs)
    assert [job.state for job in jobs] == ["done", "failed"]
    # Twice each, and up to five times if a death breaks the pool (see `_POOL_ATTEMPTS`).
    assert all(2 <= len(pids_of(pool, job)) <= 5 for job in jobs)


def test_an_idle_worker_that_dies_is_replaced(pool: WorkerPool, named: Named) -> None:
    job = pool.submit(named("ok", 1))
    assert job.wait(300)
    worker = psutil.Process(pid_of(pool, job))
    worker.kill()
    wait_until(lambda: has_ended(worker), "the worker ends")
    again = pool.submit(named("ok", 2))
    assert again.wait(300)
    assert again.state == "done"


def test_runs_of_a_pool_that_breaks_are_tried_again_and_its_workers_end(
    store: Store, named: Named
) -> None:
    executor = Processes(1, spare=1)
    fresh = WorkerPool(store, executor, work=act)
    try:
        job = fresh.submit(named("hold"))
        worker = psutil.Process(pid_of(fresh, job))
        # As Pebble leaves a pool when its thread that found a dead worker stops with an error.
        executor._processes._context.status = PoolStatus.ERROR
        wait_until(lambda: has_ended(worker), "the worker of the broken pool ends")
        wait_until(lambda: len(pids_of(fresh, job)) == 2, "the run is tried again")
        release_runs(fresh, job)
        assert job.wait(300)
        assert (job.state, job.error) == ("done", "")
    finally:
        fresh.grace.begin("anyone", 60)
        fresh.close()


def workers_here() -> set[psutil.Process]:
    """Processes that the one which workers are copies of has started."""
    below = psutil.Process().children(recursive=True)
    return {process for process in below if process.ppid() != os.getpid()}


def test_workers_that_die_before_they_begin_are_started_anew(store: Store, named: Named) -> None:
    before = workers_here()
    fresh = WorkerPool(store, Processes(1, spare=1), work=act)
    try:
        job = fresh.submit(named("ok"))
        for worker in wait_until(lambda: workers_here() - before, "a worker is started"):
            worker.kill()
        assert job.wait(300)
        assert (job.state, job.error) == ("done", "")
    finally:
        fresh.grace.begin("anyone", 60)
        fresh.close()


def test_a_run_is_tried_again_if_idle_workers_die_with_its_own(store: Store, named: Named) -> None:
    before = workers_here()
    fresh = WorkerPool(store, Processes(1, spare=1), work=act)
    try:
        for turn in range(4):
            job = fresh.submit(named("hold", turn))
            own = psutil.Process(pid_of(fresh, job))
            # The second death breaks the pool while the run waits for its second attempt.
            for worker in (own, *(workers_here() - before - {own})):
                worker.kill()
            release_runs(fresh, job)
            assert job.wait(300)
            assert (job.state, job.error) == ("done", "")
    finally:
        fresh.grace.begin("anyone", 60)
        fresh.close()


def test_cancelling_twice_or_late_changes_nothing(pool: WorkerPool, named: Named) -> None:
    done = pool.submit(named("ok"))
    assert done.wait(300)
    done.cancel()
    assert done.state == "done"
    gone = pool.submit(named("hold", 1))
    gone.cancel()
    gone.cancel()
    assert (gone.state, pool.store.get(gone.key)) == ("cancelled", None)


def test_sessions_that_leave_are_waited_for(pool: WorkerPool, named: Named) -> None:
    stays, goes = (
        pool.submit(named("hold", 1), watcher="stays"),
        pool.submit(named("hold", 2), watcher="goes"),
    )
    pool.grace.begin("stays", 600)
    pool.grace.begin("goes", 600)
    assert (stays.state, goes.state) == ("running", "running")
    pool.grace.end("stays")
    pool.grace.begin("goes", 0.01)
    wait_until(lambda: goes.state == "cancelled", "the run is cancelled")
    assert stays.state == "running"
    stays.cancel()


def test_a_full_queue_says_so(store: Store, named: Named) -> None:
    small = WorkerPool(store, Processes(1), work=act, most_waiting=1)
    try:
        jobs = [small.submit(named("hold", turn)) for turn in range(2)]
        with pytest.raises(QueueFullError, match="1 runs are waiting already"):
            small.submit(named("hold", 2))
    finally:
        small.close()
    assert [job.state for job in jobs] == ["cancelled", "cancelled"]
    with pytest.raises(ExecutorError, match="shutting down"):
        small.submit(named("ok", 3))


def test_a_run_is_stopped_at_its_time_limit(store: Store, named: Named) -> None:
    limited = WorkerPool(store, Processes(1, limits=RunLimits(time_s=0.5)), work=act)
    try:
        job = limited.submit(named("hold"))
        assert job.wait(300)
        assert job.state == "failed"
        assert "time limit" in job.error
    finally:
        limited.close()


def test_missing_trace_is_said_at_once(pool: WorkerPool, scenario: Scenario) -> None:
    with pytest.raises(TrainyardError, match="cannot be opened"):
        pool.submit(replace(scenario, trace=replace(scenario.trace, source="nowhere.csv")))


ORPHAN = """
import sys
from pathlib import Path
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from trainyard.runs.executors import Processes
from trainyard.runs.pool import WorkerPool
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.store import Store
from sim.cluster import Cluster
from sim.params import Spec
from tests.trainyard.runs.works import act

if __name__ == "__main__":
    pool = WorkerPool(Store(Path(sys.argv[1])), Processes(1, spare=1), work=act)
    job = pool.submit(Scenario(TraceSpec("sample:tiny"), Cluster.parse("1x8:v100"), Spec("fifo"), name="hold"))
    job.wait(600)
"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_workers_end_with_their_parent(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN, encoding="utf-8")
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "store")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    try:
        begun = wait_until(lambda: ran(tmp_path / "store"), "a worker begins the run")
        worker = psutil.Process(begun[0][2])
        parent.send_signal(how)
        parent.wait(300)
        wait_until(lambda: has_ended(worker), "the worker ends")
    finally:
        parent.kill()


def test_sentences() -> None:
    assert fault_message(TraceError("a.")) == "a."
    assert "time limit" in fault_message(TimeoutError())
    assert "worker process was killed" in fault_message(BrokenProcessPool())
    assert cores() >= 1


def test_no_watcher_fills_the_queue_alone(store: Store, named: Named) -> None:
    small = WorkerPool(store, Processes(1, spare=1), work=act, most_waiting=10)
    try:
        greedy = [small.submit(named("hold", turn), watcher="greedy") for turn in range(4)]
        with pytest.raises(QueueFullError, match="3 of your runs are waiting already"):
            small.submit(named("hold", 4), watcher="greedy")
        assert small.submit(named("hold", 5), watcher="modest").place == 0
        assert [job.place for job in greedy] == [0, 1, 2, 3]
    finally:
        small.close()


def test_a_stored_scenario_is_run_again_on_request(tmp_path: Path, scenario: Scenario) -> None:
    fresh = WorkerPool(Store(tmp_path), Processes(1, spare=1))
    try:
        assert fresh.submit(scenario).wait(300)
        first = fresh.store.get(fresh.submit(scenario).key)
        again = fresh.submit(scenario, again=True)
        assert first is not None
        assert not again.has_ended
        assert again.wait(300)
        assert (again.state, fresh.store.get(again.key)) == ("done", first)
    finally:
        fresh.close()
