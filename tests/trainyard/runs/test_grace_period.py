from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from sim.trace import Trace
from trainyard.runs import grace_period
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.traces.sources import clear_cache, load_trace


class Ring:
    """Refers to itself, so only the collector frees it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def by_hand() -> Iterator[None]:
    """Let nothing be collected but on demand."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("by_hand")
def test_only_after_something_large_memory_is_collected() -> None:
    ring = weakref.ref(Ring())
    grace_period.release_memory(9_999_999)
    assert ring() is not None
    grace_period.release_memory(10_000_000)
    assert ring() is None


@pytest.mark.usefixtures("by_hand")
def test_a_collection_visits_nothing_of_what_was_loaded_before() -> None:
    gc.unfreeze()
    loaded = len(gc.get_objects())
    assert loaded > 10_000
    try:
        grace_period.freeze_imports()
        assert gc.get_freeze_count() > 0.9 * loaded
        assert len(gc.get_objects()) < 0.1 * loaded
    finally:
        gc.unfreeze()


def test_bytes_of_stored_traces_count_once(tmp_path: Path) -> None:
    """1,000 jobs, of which each takes at least 8 B for each of three columns."""
    rows = pd.DataFrame(
        {
            "job_id": [str(at) for at in range(1000)],
            "submit_time_s": [float(at) for at in range(1000)],
            "num_gpus": 1,
            "duration_s": 60.0,
        }
    )
    store = Store(tmp_path)
    spec = TraceSpec(f"store:{store.put_trace(Trace.of(rows))}")
    clear_cache()
    for _ in range(3):
        load_trace(spec, store)
    assert 24_000 < clear_cache() < 1_000_000
    assert clear_cache() == 0
