from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import SetClock
from tests.waiting import wait_until
from trainyard.labs.lessons import classes
from trainyard.labs.lessons.classes import Classroom
from trainyard.store import Store

ROOT = Path(__file__).resolve().parents[4]
GROUP = Classroom("7b", 3, 7, 200, 40)
SEAT = "0123456789ab"
ARRIVE = """
import sys
from pathlib import Path
from trainyard.labs.lessons import classes
from trainyard.labs.lessons.classes import Classroom
from trainyard.store import Store
for at in range(int(sys.argv[2]), int(sys.argv[3])):
    classes.count_seat(Store(Path(sys.argv[1])), Classroom("7b", 3, 7, 200), f"{at:012x}")
"""


def test_a_seat_counts_once_and_only_in_its_own_class_and_lesson(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert classes.seats_done(store, GROUP) == 0
    for seat in (SEAT, SEAT, SEAT[::-1]):
        classes.count_seat(store, GROUP, seat)
    assert classes.seats_done(store, GROUP) == 2
    assert classes.seats_done(store, GROUP._replace(of=10)) == 2
    for other in (
        GROUP._replace(name="7c"),
        GROUP._replace(lesson=4),
        GROUP._replace(seed=8),
        GROUP._replace(jobs=0),
    ):
        assert classes.seats_done(store, other) == 0


def test_two_processes_that_count_at_once_lose_nobody(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", ARRIVE, str(tmp_path), "40", "100"], cwd=ROOT)
    for at in range(60):
        if at == 30:
            wait_until(
                lambda: classes.seats_done(Store(tmp_path), GROUP) > 30, "the other one counts"
            )
        classes.count_seat(Store(tmp_path), GROUP, f"{at:012x}")
    assert other.wait(300) == 0
    assert classes.seats_done(Store(tmp_path), GROUP) == 100


@pytest.mark.parametrize("seat", ["", "../../evil", "0123456789AB", "x" * 12, SEAT + "\n"])
def test_a_seat_that_is_none_is_ignored(tmp_path: Path, seat: str) -> None:
    classes.count_seat(Store(tmp_path), GROUP, seat)
    assert [path for path in tmp_path.rglob("*") if "class" in path.name] == []


def test_names_leave_no_trace_and_seats_have_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classes, "MAX_SEATS", 2)
    store = Store(tmp_path)
    evil = GROUP._replace(name="../<script>\udcff")
    for at in range(4):
        classes.count_seat(store, evil, f"{at:012x}")
    assert classes.seats_done(store, evil) == 2
    assert all(path.name.isalnum() for path in (tmp_path / "classes").rglob("*"))


def test_what_is_old_is_forgotten(tmp_path: Path) -> None:
    clock = SetClock()
    store = Store(tmp_path, keep_days=1, clock=clock)
    classes.count_seat(store, GROUP, SEAT)
    folder = next((tmp_path / "classes").iterdir())
    os.utime(folder, (clock.now_s(), clock.now_s()))
    clock.go_on(2.0)
    store.put_numbers("ab" * 16, {}, {})
    classes.count_seat(store, GROUP._replace(lesson=1), SEAT)
    assert classes.seats_done(store, GROUP) == 0
