from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sim.errors import TraceError
from sim.trace import Trace
from tests.trainyard.runs.works import act
from trainyard.library.library import InUseError, NotYoursError, delete_trace, relatives
from trainyard.preflight.leave_out import drop_jobs, with_remaining_jobs
from trainyard.runs.executors import Processes
from trainyard.runs.pool import WorkerPool
from trainyard.runs.run import run_to_store
from trainyard.store import Store
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_source, load_trace


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    made = WorkerPool(Store(tmp_path_factory.mktemp("store")), Processes(1, spare=1), work=act)
    yield made
    made.close()


def uploaded(pool: WorkerPool, scenario: Scenario, jobs: int) -> tuple[str, Scenario]:
    numbers = range(jobs)
    frame = pd.DataFrame(
        {
            "job_id": [f"j{at}" for at in numbers],
            "submit_time_s": [float(at) for at in numbers],
            "num_gpus": 1,
            "duration_s": 60.0,
        }
    )
    digest = pool.store.put_trace(Trace.of(frame), owners=["mine"])
    return digest, replace(scenario, trace=TraceSpec(f"store:{digest}"))


def test_a_trace_goes_with_its_results_and_with_nothing_else(
    pool: WorkerPool, scenario: Scenario
) -> None:
    digest, of_it = uploaded(pool, scenario, 3)
    _, of_another = uploaded(pool, scenario, 4)
    root = str(pool.store.root)
    gone = [run_to_store(one.to_json(), root) for one in (of_it, replace(of_it, seed=1))]
    stays = run_to_store(of_another.to_json(), root)
    load_trace(of_it.trace, pool.store)
    assert delete_trace(digest, pool, "me", "mine") == 2
    assert [pool.store.has(key) for key in (*gone, stays)] == [False, False, True]
    with pytest.raises(TraceError, match="no longer on this machine"):
        load_trace(of_it.trace, pool.store)
    assert len(load_trace(of_another.trace, pool.store)) == 4


def test_nobody_elses_run_breaks(pool: WorkerPool, scenario: Scenario) -> None:
    digest, of_it = uploaded(pool, scenario, 5)
    mine = pool.submit(replace(of_it, name="hold"), watcher="me")
    other = pool.submit(replace(of_it, name="hold", seed=1), watcher="other")
    with pytest.raises(InUseError, match="so it was not deleted"):
        delete_trace(digest, pool, "me", "mine")
    assert (mine.has_ended, pool.store.trace_info(digest) is None) == (False, False)
    other.cancel()
    delete_trace(digest, pool, "me", "mine")
    assert (mine.state, pool.store.trace_info(digest)) == ("cancelled", None)


def test_a_trace_deleted_by_another_process_is_not_read_from_memory(tmp_path: Path) -> None:
    here, elsewhere = Store(tmp_path), Store(tmp_path)
    frame = pd.DataFrame(
        {"job_id": ["a"], "submit_time_s": [0.0], "num_gpus": [1], "duration_s": [60.0]}
    )
    spec = TraceSpec(f"store:{here.put_trace(Trace.of(frame))}")
    load_trace(spec, here)
    elsewhere.delete_trace(spec.source.removeprefix("store:"))
    with pytest.raises(TraceError, match="no longer on this machine"):
        load_trace(spec, here)


def test_what_was_left_of_a_trace_goes_with_it_and_the_other_way_round(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def keep(jobs: int, *of: str) -> str:
        numbers = range(jobs)
        frame = pd.DataFrame(
            {
                "job_id": [f"j{at}" for at in numbers],
                "submit_time_s": [float(at) for at in numbers],
                "num_gpus": 1,
                "duration_s": 60.0,
            }
        )
        return store.put_trace(Trace.of(frame), {"of": list(of)})

    whole = keep(9)
    rest = keep(8, whole)
    less, sibling = keep(7, whole, rest), keep(6, whole)
    keep(5)
    for digest in (whole, rest, less, sibling):
        assert relatives(digest, store) == {whole, rest, less, sibling}


def test_only_the_browser_that_uploaded_a_trace_deletes_it(
    pool: WorkerPool, scenario: Scenario
) -> None:
    digest, of_it = uploaded(pool, scenario, 6)
    key = run_to_store(of_it.to_json(), str(pool.store.root))
    for stranger in ("other", ""):
        with pytest.raises(NotYoursError, match="Another browser uploaded this trace"):
            delete_trace(digest, pool, "me", stranger)
    assert (pool.store.has(key), pool.store.trace_info(digest) is None) == (True, False)
    assert delete_trace(digest, pool, "me", "mine") == 1
    assert (pool.store.has(key), pool.store.index.owners(digest)) == (False, set())


def test_a_trace_that_two_browsers_uploaded_goes_with_the_second(
    pool: WorkerPool, scenario: Scenario
) -> None:
    digest, of_it = uploaded(pool, scenario, 7)
    pool.store.index.own("other", digest)
    key = run_to_store(of_it.to_json(), str(pool.store.root))
    assert delete_trace(digest, pool, "me", "mine") == 0
    assert (pool.store.has(key), pool.store.index.owners(digest)) == (True, {"other"})
    with pytest.raises(NotYoursError):
        delete_trace(digest, pool, "me", "mine")
    assert delete_trace(digest, pool, "me", "other") == 1
    assert pool.store.trace_info(digest) is None


def test_what_a_visitor_left_out_of_a_trace_is_the_uploaders(
    pool: WorkerPool, scenario: Scenario
) -> None:
    digest, of_it = uploaded(pool, scenario, 8)
    source = load_source(of_it.trace, pool.store)
    bad = np.arange(8) < 2
    kept = drop_jobs(source, bad, "too early", {"format": "left_out", "title": "rest"})
    rest = with_remaining_jobs(
        Study(of_it, (of_it.allocator,)), kept, bad, pool.store
    ).base.trace.source.removeprefix("store:")
    assert pool.store.index.owners(rest) == {"mine"}
    with pytest.raises(NotYoursError):
        delete_trace(rest, pool, "me", "visitor")
    delete_trace(digest, pool, "me", "mine")
    assert [pool.store.trace_info(one) for one in (digest, rest)] == [None, None]
