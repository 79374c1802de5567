from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lab import store as stores
from lab.run import run, summarise
from lab.sources import load_trace
from lab.store import Store
from lab.study import Study
from lab.sweeps import crew
from lab.sweeps.executors import Inline, opened
from lab.sweeps.recipe import Axis, Sweep
from lab.sweeps.running import SweepRun
from lab.sweeps.work import Numbers, run_numbers
from sim.contract import Spec
from sim.errors import ParameterError
from tests.lab.sweeps.cases import CLUSTER, STUDY

SWEEP = Sweep(replace(STUDY, repeats=2), (Axis("trace.load", (0.5, 1.0, 2.0)),))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def done(sweep: Sweep, store: Store, where: str = "inline") -> SweepRun:
    made = SweepRun(sweep, store, where)
    made.run()
    assert made.error == ""
    return made


def test_numbers_are_those_of_single_runs(store: Store) -> None:
    made = done(SWEEP, store)
    # A run without anything random is the same under every seed, but it is another scenario.
    assert (made.state, made.done, made.of, made.known) == ("done", 12, 12, 0)
    table = made.table()
    assert table.columns[:6].tolist() == ["point", "trace.load", "policy", "repeat", "key", "error"]
    for at, point in enumerate(SWEEP.points()):
        scenario = SWEEP.at(point).scenarios()[1]
        trace = load_trace(scenario.trace)
        numbers = summarise(scenario, run(scenario, trace=trace), trace)
        row = table[(table["point"] == at) & (table["policy"] == "SJF") & (table["repeat"] == 0)].iloc[0]
        assert (row["jct_mean_s"], row["makespan_s"], row["trace.load"]) == (numbers["jct_mean_s"], numbers["makespan_s"], point.values[0])


def test_what_is_known_is_not_run_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = done(SWEEP, store)
    monkeypatch.setattr(crew, "run_numbers", None)
    again = done(SWEEP, store)
    assert (again.known, again.done) == (12, 12)
    assert again.table().drop(columns="key").equals(first.table().drop(columns="key"))


def test_processes_give_the_same(store: Store, tmp_path: Path) -> None:
    here, there = done(SWEEP, store).table(), done(SWEEP, Store(tmp_path / "other"), "processes:2").table()
    measured = ["cell_cpu_s", "cpu_s", "wall_s", "peak_rss_mb", "decision_ms_mean", "decision_ms_max"]
    assert here.drop(columns=measured).equals(there.drop(columns=measured))


def test_a_failed_run_is_a_row_with_a_sentence(store: Store) -> None:
    made = done(Sweep(STUDY, (Axis("trace.load", (1.0, -1.0)), Axis("cluster", ("1x1:v100",)))), store)
    table = made.table()
    assert made.state == "done"
    assert made.done == made.of == 4
    assert (table["error"] != "").tolist() == [False, False, True, True]
    assert table["error"].iloc[2] == "trace.load = -1 is outside 0.001 to 1000."
    assert table["jct_mean_s"].isna().tolist() == [False, False, True, True]
    assert len(made.failed) == 2


def test_a_policy_that_cannot_run_fails_alone(store: Store) -> None:
    study = Study(STUDY.base, (Spec("fifo"), Spec("dp_elastic")))
    table = done(Sweep(study, (Axis("seed", (0, 1)),)), store).table()
    assert table.loc[table["error"] == "", "policy"].tolist() == ["FIFO", "FIFO"]
    assert all("cannot run here" in why for why in table.loc[table["error"] != "", "error"])


def test_cancelling_keeps_what_is_done(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made = SweepRun(SWEEP, store, "inline")
    calls = 0

    def some(*args: object) -> Numbers:
        nonlocal calls
        calls += 1
        if calls == 3:
            made.cancel()
        return run_numbers(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(crew, "run_numbers", some)
    made.run()
    assert made.state == "cancelled"
    assert len(made.table()) == 3
    monkeypatch.undo()
    assert done(SWEEP, store).known == 3


def test_whole_results_open_in_compare_at_once(store: Store) -> None:
    made = SweepRun(SWEEP, store, "inline", whole=True)
    made.run()
    assert made.error == ""
    assert all(store.has(key) for key in made.keys)
    assert all(not store.has(key) for key in done(Sweep(STUDY, (Axis("seed", (7,)),)), store).keys)


def test_numbers_alone_give_way_to_whole_results(store: Store) -> None:
    numbers = done(SWEEP, store)
    assert not store.has(numbers.keys[0])
    whole = SweepRun(SWEEP, store, "inline", whole=True)
    whole.run()
    assert store.has(numbers.keys[0])


def test_places_to_run() -> None:
    with opened("inline") as place:
        assert isinstance(place.executor, Inline)
    for wrong in ("thread", "inline:2", "processes:0", "processes:x", "processes:5000"):
        with pytest.raises(ParameterError, match="is no place to run"), opened(wrong):
            pass


KILLED = """
import sys
from lab.store import Store
from lab.sweeps.recipe import Axis, Sweep
from lab.sweeps.running import SweepRun
from tests.lab.sweeps.test_running import LONG
if __name__ == "__main__":
    run = SweepRun(LONG, Store(sys.argv[1]), "processes:2")
    run.run()
    print(run.state, run.known, run.done, flush=True)
"""
LONG = Sweep(Study(replace(STUDY.base, cluster=CLUSTER), (Spec("fifo"), Spec("sjf"), Spec("srtf"))), (Axis("seed", tuple(range(40))),))


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    script = tmp_path / "sweep.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(tmp_path / "store")]
    environment = os.environ | {"PYTHONPATH": str(root)}
    first = subprocess.Popen(command, env=environment, cwd=tmp_path, start_new_session=True)
    deadline = time.monotonic() + 60
    while _kept(tmp_path / "store") < 8:
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = _kept(tmp_path / "store")
    second = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120)
    assert second.stdout.split() == ["done", str(before), "120"]
    assert 8 <= before < 120


def _kept(folder: Path) -> int:
    try:
        with sqlite3.connect(f"file:{folder / 'library.db'}?mode=ro", uri=True) as connection:
            return int(connection.execute("SELECT count(*) FROM things").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_stores_are_opened_once_per_process(tmp_path: Path) -> None:
    address = Store(tmp_path / "store").address
    assert Store.at(address) is Store.at(address)
    assert stores.Store.at(address).root == tmp_path / "store"
