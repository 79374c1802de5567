from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from trainyard.replays.reading import load
from trainyard.replays.report import Cell, Numbers, Pooled, ReplayReport, Row
from trainyard.replays.types import BASE, Measure
from trainyard.runs.disconnects import Leaving
from ui.learning import replay_report
from ui.learning.replays import Runs

KEY = ("small", 5)


@dataclass(eq=False)
class Fake:
    """A run that stays where the test puts it."""

    state: str = "waiting"
    kept: bool = False
    done: int = 0
    of: int = 10
    error: str = ""
    starts: int = 0
    found: dict[Cell, Numbers] = field(default_factory=dict)

    def start(self) -> None:
        self.starts += 1
        self.state = "running"

    def recall(self) -> bool:
        if self.kept:
            self.state = "done"
        return self.kept

    def cancel(self) -> None:
        self.state = "stopping"

    def report(self) -> ReplayReport:
        raise AssertionError("nobody asks here")

    def rows(self) -> tuple[Row, ...]:
        raise AssertionError("nobody asks here")

    def numbers(self) -> dict[Cell, Numbers]:
        return self.found


@dataclass(eq=False)
class Server:
    made: list[Fake] = field(default_factory=list)
    kept: bool = False

    def make(self, name: str, seeds: int) -> Fake:
        assert (name, seeds) == KEY
        self.made.append(Fake(kept=self.kept))
        return self.made[-1]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def leaving() -> Iterator[Leaving]:
    made = Leaving()
    yield made
    made.close()


@pytest.fixture
def runs(server: Server, leaving: Leaving) -> Runs:
    return Runs(server.make, leaving)


def test_whoever_starts_it_second_attends_the_first(runs: Runs, server: Server) -> None:
    threads = [threading.Thread(target=runs.start, args=(KEY, f"w{at}")) for at in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [run.starts for run in server.made] == [1]
    assert runs.is_going(KEY)
    assert runs.attend(KEY, "w0") is server.made[0]
    assert runs.ended(KEY) is None


def test_the_last_to_leave_ends_it(runs: Runs, server: Server) -> None:
    runs.start(KEY, "ann")
    assert runs.attend(KEY, "bob") is not None
    runs.detach(KEY, "ann")
    assert not runs.is_stopping(KEY)
    runs.detach(KEY, "ann")
    runs.detach(KEY, "carl")
    assert server.made[0].state == "running"
    runs.detach(KEY, "bob")
    assert runs.is_stopping(KEY)
    assert runs.attend(KEY, "bob") is None
    server.made[0].state = "cancelled"
    assert not runs.is_stopping(KEY)
    assert runs.ended(KEY) is server.made[0]


def test_a_stopping_run_can_be_begun_anew(runs: Runs, server: Server) -> None:
    runs.start(KEY, "ann")
    runs.detach(KEY, "ann")
    runs.start(KEY, "ann")
    assert [run.starts for run in server.made] == [1, 1]
    assert runs.attend(KEY, "ann") is server.made[1]


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_run_that_came_to_nothing_is_made_anew(runs: Runs, server: Server, state: str) -> None:
    runs.start(KEY, "ann")
    server.made[0].state = state
    assert runs.ended(KEY) is server.made[0]
    runs.start(KEY, "ann")
    assert len(server.made) == 2


def test_a_run_that_is_done_is_not_made_again(runs: Runs, server: Server) -> None:
    runs.start(KEY, "ann")
    server.made[0].state = "done"
    runs.start(KEY, "bob")
    assert [run.starts for run in server.made] == [1]
    assert runs.attend(KEY, "bob") is None
    runs.detach(KEY, "bob")
    assert server.made[0].state == "done"


def test_what_is_kept_is_found_and_nothing_is_started(server: Server, leaving: Leaving) -> None:
    server.kept = True
    runs = Runs(server.make, leaving)
    assert runs.attend(KEY, "ann") is None
    assert runs.ended(KEY) is server.made[0]
    assert server.made[0].starts == 0


def test_a_session_that_is_gone_leaves_after_a_while(runs: Runs, server: Server, leaving: Leaving) -> None:
    runs.start(KEY, "ann")
    leaving.leave("ann", after_s=0.05)
    deadline = time.monotonic() + 10
    while not runs.is_stopping(KEY):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_session_that_is_back_soon_keeps_its_run(runs: Runs, server: Server, leaving: Leaving) -> None:
    runs.start(KEY, "ann")
    leaving.leave("ann", after_s=0.2)
    leaving.back("ann")
    time.sleep(0.4)
    assert server.made[0].state == "running"


def test_a_reloaded_page_can_cancel_what_it_began(runs: Runs, server: Server, leaving: Leaving) -> None:
    runs.start(KEY, "before")
    leaving.leave("before", after_s=60)
    assert runs.attend(KEY, "after") is not None
    runs.detach(KEY, "after")
    assert runs.is_stopping(KEY)
    runs.close()


def test_the_time_of_a_run_is_measured_on_those_that_have_ended(runs: Runs, server: Server) -> None:
    assert runs.seconds_each("small") == 0.0
    assert runs.size(KEY) == 10
    assert runs.since(KEY) == 0.0
    runs.start(KEY, "ann")
    run = server.made[0]
    run.found = {Cell(BASE, "fifo", seed): {"cell_cpu_s": seconds} for seed, seconds in enumerate((1.0, 3.0))}
    run.done = 2
    assert runs.seconds_each("small") == 0.0
    assert runs.since(KEY) > 0
    run.state = "done"
    assert runs.seconds_each("small") == 2.0
    assert runs.seconds_each("other") == 0.0


def test_closing_ends_what_is_going(runs: Runs, server: Server) -> None:
    runs.start(KEY, "ann")
    runs.close()
    assert server.made[0].state == "stopping"


def cells_of(name: str, text: str, value: float) -> str:
    replay = load(name)
    claim = next(claim for claim in replay.claims if claim.text == text)
    return "".join(replay_report._cells(Row(claim, Pooled(value, value - 0.1, value + 0.1, 20), 1.0), replay.label(claim)))


def test_a_row_says_where_the_claim_is_from_and_where_the_band_is() -> None:
    row = cells_of("hadare-cru", "utilisation_to_end hadare/hadar at jobs=5", 1.4)
    assert "at 5 jobs, AWS nodes · read in the abstract · 20 seeds" in row
    assert "band: prototype" in row
    assert "± 20 %" in cells_of("hadare-cru", "makespan_s hadare/hadar at jobs=5", 0.8).replace("\u00a0", " ")


def test_a_change_along_an_axis_is_told_as_a_ratio_also_of_a_plain_value() -> None:
    row = cells_of("hadare-cru", "makespan_s large from slot=90 to slot=720", 0.72).replace("\u00a0", " ")
    assert "from 90 to 720 s (length of a round), with 3 jobs on AWS nodes" in row
    assert "× 0.72" in row
    assert "below × 1.00" in row
    assert "above × 1.00" in cells_of("hadare-cru", "makespan_s hadare/hadar from jobs=1 to jobs=5", 1.9).replace("\u00a0", " ")


def test_bounds_and_changes_are_no_claims_of_a_curve() -> None:
    replay = load("hadare-cru")
    axis = replay.axis("slot")
    drawn = {measure.label: replay_report._claim(replay, axis, measure) for measure in axis.measures}
    assert set(drawn.values()) == {None}
    ratio = next(measure for measure in replay.axis("jobs").measures if measure.text == "makespan_s hadare/hadar")
    claim = replay_report._claim(replay, replay.axis("jobs"), ratio)
    assert claim is not None
    assert (claim.at, claim.value) == (1, 0.5)


def test_differences_of_shares_are_points() -> None:
    assert replay_report.number(Measure("completion_rate", "a", "b", "difference"), 0.162) == "+16.2 points"
    assert replay_report.number(Measure("completion_rate", "a", kind="value"), 0.162).endswith("%")
