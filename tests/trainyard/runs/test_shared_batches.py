"""Batches that several sessions watch: equal ones are one, and none goes on for nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.waiting import wait_until
from trainyard.runs import shared_batches
from trainyard.runs.grace_period import GracePeriod
from trainyard.runs.shared_batches import SharedBatches

KEY = "small"


@dataclass(eq=False)
class Fake:
    """A batch that stays where the test puts it."""

    state: str = "waiting"
    kept: bool = False
    starts: int = 0
    recalls: int = 0
    watchers: frozenset[str] = frozenset()

    def start(self) -> None:
        self.starts += 1
        self.state = "running"

    def recall(self) -> bool:
        self.recalls += 1
        if self.kept:
            self.state = "done"
        return self.kept

    def cancel(self) -> None:
        self.state = "stopping"


@dataclass(eq=False)
class Maker:
    made: list[Fake] = field(default_factory=list)
    kept: bool = False

    def __call__(self) -> Fake:
        self.made.append(Fake(kept=self.kept))
        return self.made[-1]

    @property
    def starts(self) -> list[int]:
        return [batch.starts for batch in self.made if batch.starts]


@pytest.fixture
def make() -> Maker:
    return Maker()


@pytest.fixture
def grace() -> Iterator[GracePeriod]:
    made = GracePeriod()
    yield made
    made.close()


@pytest.fixture
def batches(grace: GracePeriod) -> SharedBatches:
    return SharedBatches(grace)


def test_equal_batches_are_begun_once(batches: SharedBatches, make: Maker) -> None:
    threads = [
        threading.Thread(target=batches.start, args=(KEY, make, f"w{at}")) for at in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert make.starts == [1]
    (running,) = [batch for batch in make.made if batch.starts]
    assert batches.watch(KEY, "w0") is running
    assert running.watchers == {f"w{at}" for at in range(20)}
    assert batches.ended_batches() == []


def test_the_last_to_leave_ends_it(batches: SharedBatches, make: Maker) -> None:
    batch = batches.start(KEY, make, "ann")
    assert batches.watch(KEY, "bob") is batch
    batches.detach(KEY, "ann")
    assert not batches.is_stopping(KEY)
    batches.detach(KEY, "ann")
    batches.detach(KEY, "carl")
    assert batch.state == "running"
    batches.detach(KEY, "bob")
    assert batches.is_stopping(KEY)
    assert batches.watch(KEY, "bob") is None
    batch.state = "cancelled"
    assert not batches.is_stopping(KEY)
    assert batches.ended_batches() == [(KEY, batch)]
    assert batches.get_batch(KEY, make) is batch


def test_a_stopping_batch_can_be_begun_anew(batches: SharedBatches, make: Maker) -> None:
    first = batches.start(KEY, make, "ann")
    batches.detach(KEY, "ann")
    again = batches.start(KEY, make, "ann")
    assert again is not first
    assert make.starts == [1, 1]
    assert batches.watch(KEY, "ann") is again


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_batch_that_came_to_nothing_is_made_anew(
    batches: SharedBatches, make: Maker, state: str
) -> None:
    batch = batches.start(KEY, make, "ann")
    batch.state = state
    assert batches.get_batch(KEY, make) is batch
    assert batches.start(KEY, make, "ann") is not batch


def test_what_is_kept_is_found_and_nothing_is_started(batches: SharedBatches, make: Maker) -> None:
    make.kept = True
    assert batches.watch(KEY, "ann") is None
    assert batches.get_batch(KEY, make).state == "done"
    assert make.starts == []


def test_what_is_known_is_looked_up_once_in_a_while_and_only_on_request(
    batches: SharedBatches, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_batches, "_LOOK_AGAIN_S", 1e12)
    assert batches.get_batch(KEY, make) is batches.get_batch(KEY, make)
    assert sum(batch.recalls for batch in make.made) == 1
    monkeypatch.setattr(shared_batches, "_LOOK_AGAIN_S", 0.0)
    batches.get_batch(KEY, make)
    assert sum(batch.recalls for batch in make.made) == 2
    batches.get_batch("enormous", make, look_up=False)
    assert sum(batch.recalls for batch in make.made) == 2


def test_only_the_last_ones_are_at_hand(
    batches: SharedBatches, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_batches, "_MAX_CACHED", 2)
    first = batches.get_batch("1", make)
    for key in "234":
        batches.get_batch(key, make)
    assert batches.get_batch("1", make) is not first


def test_a_session_that_is_gone_leaves_after_a_while(
    batches: SharedBatches, make: Maker, grace: GracePeriod
) -> None:
    batches.start(KEY, make, "ann")
    grace.begin("ann", after_s=0.01)
    wait_until(lambda: batches.is_stopping(KEY), "the batch is stopped")


def test_a_session_that_is_back_soon_keeps_its_batch(
    batches: SharedBatches, make: Maker, grace: GracePeriod
) -> None:
    batch = batches.start(KEY, make, "ann")
    grace.begin("ann", after_s=600)
    (timer,) = grace._timers.values()
    grace.end("ann")
    timer.function(*timer.args)
    assert batch.state == "running"


def test_a_reloaded_page_can_cancel_what_it_began(
    batches: SharedBatches, make: Maker, grace: GracePeriod
) -> None:
    batches.start(KEY, make, "before")
    grace.begin("before", after_s=60)
    assert batches.watch(KEY, "after") is not None
    batches.detach(KEY, "after")
    assert batches.is_stopping(KEY)
    batches.close()


def test_closing_ends_what_is_going(batches: SharedBatches, make: Maker) -> None:
    batch = batches.start(KEY, make, "ann")
    batches.close()
    assert batch.state == "stopping"
