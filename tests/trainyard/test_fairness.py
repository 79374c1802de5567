"""Sweeps, plans and comparisons of several sessions share the workers of a server."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.engine.simulator import Progress
from sim.errors import ParameterError
from tests.trainyard.sweeps.cases import STUDY
from tests.trainyard.works import act, ran
from trainyard.runs import batch
from trainyard.runs.executors import MEMORY_LIMIT, TIME_LIMIT, Processes, RunLimits
from trainyard.runs.pool import WorkerPool
from trainyard.runs.task import Baggage, Numbers
from trainyard.store import Store
from trainyard.study.study import Study
from trainyard.study.sweep import Axis, Sweep
from trainyard.sweeps.sweep_run import SweepRun

RUN_S = 0.3


def slow(
    document: Mapping[str, object],
    address: str,
    baggage: Baggage,
    progress: Callable[[Progress], None] | None = None,
) -> Numbers:
    """A run of a sweep, in a worker process, that notes when it began."""
    del baggage, progress
    root = Path(address.partition("|")[0])
    root.mkdir(parents=True, exist_ok=True)
    with (root / "log.txt").open("a", encoding="utf-8") as log:
        log.write(f"{document['name']}|{document['seed']}|{os.getpid()}\n")
    time.sleep(RUN_S)
    return Numbers({"jct_mean_s": 1.0}, ())


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    monkeypatch.setattr(batch, "run_numbers", slow)
    # A sweep takes its first runs to be long ones.
    made = WorkerPool(Store(tmp_path), Processes(1, spare=1), work=act)
    yield made
    made.close()


def sweep(name: str, pool: WorkerPool, seeds: range) -> SweepRun:
    one = Study(replace(STUDY.base, name=name), STUDY.allocators[:1])
    run = SweepRun(Sweep(one, (Axis("seed", tuple(seeds)),)), pool.store, pool)
    run.watchers = frozenset({name})
    return run


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.slow
def test_sweeps_take_turns_and_a_tiny_comparison_begins_at_once(pool: WorkerPool) -> None:
    ann, bob = sweep("ann", pool, range(12)), sweep("bob", pool, range(100, 112))
    ann.start()
    until(lambda: ann.done == 2)
    bob.start()
    until(lambda: bob.place or bob.done)
    until(lambda: ann.done + bob.done >= 4)
    began_s = time.monotonic()
    tiny = pool.submit(replace(STUDY.base, name="ok"), watcher="carl")
    assert tiny.wait(10)
    assert time.monotonic() - began_s < 2
    assert not ann.wait(0)
    assert ann.wait(30)
    assert bob.wait(30)
    assert (ann.error, bob.error, ann.done, bob.done) == ("", "", 12, 12)
    begun = [name for name, _, _ in ran(pool.store.root) if name in ("ann", "bob")]
    both = begun[begun.index("bob") : len(begun) - begun[::-1].index("ann")]
    assert max(len(list(group)) for _, group in itertools.groupby(both)) <= 2


@pytest.mark.slow
def test_equal_runs_of_two_sweeps_are_made_once_and_cancelling_one_keeps_the_other(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, delays_s = Store.put_numbers, itertools.cycle((0.0, 0.5, 0.2))

    def kept_late(self: Store, *args: Any) -> None:
        time.sleep(next(delays_s))
        keep(self, *args)

    monkeypatch.setattr(Store, "put_numbers", kept_late)
    ann, bob = sweep("same", pool, range(6)), sweep("same", pool, range(6))
    bob.watchers = frozenset({"bob"})

    def cancelled_while_both_wait_for_one_run() -> bool:
        with pool.lock:
            both = pool.watchers(STUDY.base.trace.source) == {"same", "bob"}
            if ann.done and bob.done and both and pool.running + pool.waiting == 1:
                ann.cancel()
        return ann.state == "cancelled"

    ann.start()
    bob.start()
    until(cancelled_while_both_wait_for_one_run)
    assert bob.wait(30)
    assert (ann.state, bob.state, bob.done) == ("cancelled", "done", 6)
    assert sorted(seed for _, seed, _ in ran(pool.store.root)) == list(range(6))


@pytest.mark.slow
def test_what_another_sweep_made_meanwhile_is_not_run_again(pool: WorkerPool) -> None:
    ann, bob = sweep("same", pool, range(3)), sweep("same", pool, range(3))
    assert not bob.recall()
    for one in (ann, bob):
        one.start()
        assert one.wait(30)
    assert (bob.state, bob.done) == ("done", 3)
    assert sorted(seed for _, seed, _ in ran(pool.store.root)) == list(range(3))


def hungry(document: object, root: object, progress: object) -> str:
    """A run that holds 600 MB for a while."""
    held = bytearray(600_000_000)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(30)
    return ""


@pytest.mark.slow
def test_a_run_is_stopped_at_its_memory_limit(tmp_path: Path) -> None:
    pool = WorkerPool(Store(tmp_path), Processes(1, limits=RunLimits(memory_gb=0.6)), work=hungry)
    try:
        submission = pool.submit(STUDY.base)
        assert submission.wait(20)
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
