"""Sweeps, plans and comparisons of several sessions share the workers of a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.engine.simulator import Progress
from sim.errors import ParameterError
from tests.trainyard.runs.works import act, hold, log_begin, ran, release
from tests.trainyard.sweeps.cases import STUDY
from tests.waiting import wait_until
from trainyard.runs import batch
from trainyard.runs.executors import MEMORY_LIMIT, TIME_LIMIT, Processes, RunLimits
from trainyard.runs.pool import WorkerPool
from trainyard.runs.task import Baggage, Numbers
from trainyard.store import Store
from trainyard.study.study import Study
from trainyard.study.sweep import Axis, Sweep
from trainyard.sweeps.sweep_run import SweepRun


def begin_and_hold(
    document: Mapping[str, object],
    address: str,
    baggage: Baggage,
    progress: Callable[[Progress], None] | None = None,
) -> Numbers:
    """A run of a sweep, in a worker process, that ends when the test releases it."""
    del baggage, progress
    root = address.partition("|")[0]
    log_begin(document, root)
    hold(root, int(str(document["seed"])))
    return Numbers({"jct_mean_s": 1.0}, ())


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    monkeypatch.setattr(batch, "run_numbers", begin_and_hold)
    # Long runs: those of sweeps have no use of the worker that is kept for short ones.
    monkeypatch.setattr(batch.RunBatch, "_each_s", 100.0)
    made = WorkerPool(Store(tmp_path), Processes(1, spare=1), work=act)
    yield made
    made.close()


def sweep(name: str, pool: WorkerPool, seeds: range) -> SweepRun:
    one = Study(replace(STUDY.base, name=name), STUDY.allocators[:1])
    run = SweepRun(Sweep(one, (Axis("seed", tuple(seeds)),)), pool.store, pool)
    run.watchers = frozenset({name})
    return run


def begun(pool: WorkerPool) -> list[tuple[str, int]]:
    return [(name, seed) for name, seed, _ in ran(pool.store.root)]


def wait_for_load(pool: WorkerPool, running: int, waiting: int) -> None:
    wait_until(
        lambda: (pool.running, pool.waiting) == (running, waiting),
        f"{running} runs have a worker and {waiting} wait",
    )


@pytest.mark.slow
def test_sweeps_take_turns_and_a_tiny_comparison_begins_at_once(pool: WorkerPool) -> None:
    ann, bob = sweep("ann", pool, range(3)), sweep("bob", pool, range(100, 103))
    ann.start()
    wait_for_load(pool, 1, 0)
    bob.start()
    turns = [("ann", 0), ("bob", 100), ("ann", 1), ("bob", 101), ("ann", 2), ("bob", 102)]
    wait_for_load(pool, 1, 1)
    tiny = pool.submit(replace(STUDY.base, name="ok"), watcher="carl")
    assert tiny.wait(300)
    assert begun(pool) == [turns[0], ("ok", 0)]
    for turn, (_, seed) in enumerate(turns):
        # Both sweeps have a run here until the last one of each.
        wait_for_load(pool, 1, int(turn < 5))
        release(pool.store.root, seed)
        wait_until(lambda turn=turn: ann.done + bob.done == turn + 1, "the run is kept")
    assert ann.wait(300)
    assert bob.wait(300)
    assert (ann.error, bob.error, ann.done, bob.done) == ("", "", 3, 3)
    assert [one for one in begun(pool) if one[0] != "ok"] == turns


@pytest.mark.slow
def test_equal_runs_of_two_sweeps_are_made_once_and_cancelling_one_keeps_the_other(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, is_first, others_are_ahead = Store.put_numbers, threading.Lock(), threading.Event()

    def keep_first_late(self: Store, *args: Any) -> None:
        if is_first.acquire(blocking=False):
            assert others_are_ahead.wait(300)
        keep(self, *args)

    monkeypatch.setattr(Store, "put_numbers", keep_first_late)
    ann, bob = sweep("same", pool, range(6)), sweep("same", pool, range(6))
    bob.watchers = frozenset({"bob"})
    release(pool.store.root, 0, 1, 2)
    ann.start()
    bob.start()
    wait_until(lambda: {ann.done, bob.done} == {1, 3}, "one sweep is two runs ahead")
    others_are_ahead.set()
    wait_until(
        lambda: (
            ann.done == bob.done == 3 and pool.watchers(STUDY.base.trace.source) == {"same", "bob"}
        ),
        "both sweeps wait for the fourth run",
    )
    ann.cancel()
    wait_until(lambda: ann.state == "cancelled", "the sweep is cancelled")
    release(pool.store.root, 3, 4, 5)
    assert bob.wait(300)
    assert (bob.state, bob.done) == ("done", 6)
    assert sorted(seed for _, seed in begun(pool)) == list(range(6))


@pytest.mark.slow
def test_what_another_sweep_made_meanwhile_is_not_run_again(pool: WorkerPool) -> None:
    ann, bob = sweep("same", pool, range(3)), sweep("same", pool, range(3))
    assert not bob.recall()
    release(pool.store.root, 0, 1, 2)
    for one in (ann, bob):
        one.start()
        assert one.wait(300)
    assert (bob.state, bob.done) == ("done", 3)
    assert sorted(seed for _, seed in begun(pool)) == list(range(3))


def hungry(document: object, root: object, progress: object) -> str:
    """A run that holds 600 MB and does not end."""
    held = bytearray(600_000_000)
    held[::4096] = b"x" * len(held[::4096])
    threading.Event().wait(600)
    return ""


@pytest.mark.slow
def test_a_run_is_stopped_at_its_memory_limit(tmp_path: Path) -> None:
    pool = WorkerPool(Store(tmp_path), Processes(1, limits=RunLimits(memory_gb=0.6)), work=hungry)
    try:
        submission = pool.submit(STUDY.base)
        assert submission.wait(300)
        assert submission.error.startswith("The run was stopped at its memory limit. Choose")
    finally:
        pool.close()


def test_limits_are_settings_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RunLimits.from_environment() == RunLimits()
    monkeypatch.setenv(TIME_LIMIT, "600")
    monkeypatch.setenv(MEMORY_LIMIT, "1.5")
    assert RunLimits.from_environment() == RunLimits(600.0, 1.5)
    for wrong in ("0", "-1", "inf", "much"):
        monkeypatch.setenv(MEMORY_LIMIT, wrong)
        with pytest.raises(
            ParameterError, match=r"TRAINYARD_MEMORY_LIMIT is '.*Set a number of GB"
        ):
            RunLimits.from_environment()
