"""Searches and sweeps of several sessions on one server: equal ones are one, one runs at a time, nobody's run goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from trainyard.library import library
from trainyard.runs.disconnects import Leaving
from trainyard.study.study import Study
from trainyard.sweeps.recipe import Axis, Sweep
from trainyard.sweeps.search import Question
from trainyard.traces import start
from ui.planning import runs as plan_runs
from ui.planning.runs import Recipe, Runs


@dataclass(eq=False)
class Fake:
    """A run that goes on until the test, or somebody, ends it."""

    state: str = "waiting"
    error: str = ""
    done: int = 0
    recalls: int = 0
    began: threading.Event = field(default_factory=threading.Event)
    end: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False
    keys: Sequence[str] = ()
    shelve: Callable[[Sequence[str]], object] = lambda keys: None
    fault: Exception | None = None

    def recall(self) -> bool:
        self.recalls += 1
        return False

    def run(self) -> None:
        self.state = "running"
        self.keys = ("k",)
        self.shelve(self.keys)
        self.began.set()
        if self.fault is not None:
            raise self.fault
        assert self.end.wait(10)
        self.state = "cancelled" if self.cancelled else "done"

    def cancel(self) -> None:
        self.cancelled = True
        self.end.set()


@dataclass(eq=False)
class Server:
    made: list[Fake] = field(default_factory=list)
    kept: list[tuple[str, Sequence[str]]] = field(default_factory=list)
    leaving: Leaving = field(default_factory=Leaving)
    fault: Exception | None = None

    def make(self, recipe: Recipe) -> Fake:
        self.made.append(Fake(fault=self.fault))
        return self.made[-1]

    def keep(self, owner: str, recipe: Recipe, keys: Sequence[str]) -> None:
        self.kept.append((owner, keys))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def runs(server: Server) -> Iterator[Runs]:
    made = Runs(server.make, server.leaving, server.keep)
    yield made
    made.close()
    server.leaving.close()


STUDY: Study = start.sample_study("tiny")
ONE = Question(STUDY, (0,), (1,), (4,))
TWO = replace(ONE, limit=60.0)
MARKS = library.identity(ONE), library.identity(TWO)


def began(server: Server, count: int) -> list[Fake]:
    """Return the runs that have begun, once there are so many."""
    until = time.monotonic() + 10
    while len(found := [run for run in server.made if run.began.is_set()]) < count:
        assert time.monotonic() < until
        time.sleep(0.005)
    return found


def until_kept(server: Server, count: int) -> None:
    until = time.monotonic() + 10
    while len(server.kept) < count:
        assert time.monotonic() < until
        time.sleep(0.005)


def test_equal_questions_are_one_run_that_stands_on_both_shelves(runs: Runs, server: Server) -> None:
    runs.start(ONE, "w1", "anna")
    (run,) = began(server, 1)
    runs.start(ONE, "w2", "ben")
    assert runs.attend(MARKS[0], "w2") is run
    runs.detach(MARKS[0], "w1")
    assert not run.cancelled
    run.end.set()
    until_kept(server, 5)
    # Before it begins, as its keys become known, who comes later, and in the end.
    assert server.kept == [("anna", ()), ("anna", ("k",)), ("ben", ("k",)), ("anna", ("k",)), ("ben", ("k",))]
    assert runs.known(ONE) is run
    assert runs.attend(MARKS[0], "w1") is None


def test_one_runs_at_a_time_and_the_next_has_a_place(runs: Runs, server: Server) -> None:
    runs.start(ONE, "w1", "anna")
    (first,) = began(server, 1)
    runs.start(TWO, "w2", "ben")
    assert (runs.place(MARKS[0]), runs.place(MARKS[1])) == (0, 1)
    assert runs.since(MARKS[1]) == 0.0
    first.end.set()
    second = began(server, 2)[1]
    assert runs.place(MARKS[1]) == 0
    second.end.set()


def test_who_waits_and_cancels_leaves_the_line(runs: Runs, server: Server) -> None:
    runs.start(ONE, "w1", "anna")
    (first,) = began(server, 1)
    runs.start(TWO, "w2", "ben")
    runs.detach(MARKS[1], "w2")
    assert runs.attend(MARKS[1], "w2") is None
    first.end.set()
    until_kept(server, 4)
    assert len([run for run in server.made if run.began.is_set()]) == 1


def test_a_run_ends_when_its_last_session_has_left_and_can_be_started_again(runs: Runs, server: Server) -> None:
    runs.start(ONE, "w1", "anna")
    (run,) = began(server, 1)
    server.leaving.leave("w1", 0.0)
    assert run.end.wait(10)
    assert run.cancelled
    until_kept(server, 3)  # what is done is kept
    runs.start(ONE, "w1", "anna")
    again = began(server, 2)[1]
    again.end.set()


def test_what_is_known_is_looked_up_once_in_a_while_and_not_of_enormous_sweeps(runs: Runs, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs.known(ONE) is runs.known(ONE)
    assert [run.recalls for run in server.made if run.recalls] == [1]
    monkeypatch.setattr(plan_runs, "_LOOK_AGAIN_S", 0.0)
    runs.known(ONE)
    assert [run.recalls for run in server.made if run.recalls] == [1, 1]
    runs.known(Sweep(STUDY, (Axis.over("trace.load", 0.5, 2.0, 1000),)))
    assert len([run for run in server.made if run.recalls]) == 2


def test_only_the_last_ones_are_at_hand(runs: Runs, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_runs, "_MOST_KEPT", 2)
    first = runs.known(ONE)
    for limit in (1.0, 2.0, 3.0):
        runs.known(replace(ONE, limit=limit))
    assert runs.known(ONE) is not first


def test_who_waits_behind_a_fault_has_a_turn(runs: Runs, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    runs.start(ONE, "w1", "anna")
    (first,) = began(server, 1)
    runs.start(TWO, "w2", "ben")
    keep = server.keep

    def refuse(owner: str, recipe: Recipe, keys: Sequence[str]) -> None:
        if owner == "anna":
            raise RuntimeError("nobody thought of this")
        keep(owner, recipe, keys)

    runs._keep = refuse  # what the server was made with
    first.end.set()
    second = began(server, 2)[1]
    assert "nobody thought of this" in caplog.text
    assert runs.known(ONE) is first
    second.end.set()


def test_what_does_not_say_how_it_ended_is_not_waited_for(runs: Runs, server: Server) -> None:
    server.fault = RuntimeError("out of turn")
    runs.start(ONE, "w1", "anna")
    (first,) = began(server, 1)
    until = time.monotonic() + 10
    while runs.attend(MARKS[0], "w1") is not None:
        assert time.monotonic() < until
        time.sleep(0.005)
    server.fault = None
    assert runs.known(ONE) is not first
    runs.start(ONE, "w1", "anna")
    began(server, 2)[1].end.set()
