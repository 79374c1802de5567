from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from sim.contract import Spec
from sim.errors import InfeasiblePlan, ParameterError
from sim.trace import Trace
from tests.trainyard.sweeps.cases import CLUSTER, STUDY
from tests.waiting import wait_until
from trainyard import store as stores
from trainyard.runs import batch
from trainyard.runs.executors import Inline, open_executor
from trainyard.runs.run import run, summarize_run
from trainyard.runs.task import Baggage, Numbers, run_numbers
from trainyard.store import Store
from trainyard.store.claimers import new_claimer
from trainyard.store.rows import LibraryError
from trainyard.study.study import Study
from trainyard.study.sweep import Axis, Sweep
from trainyard.sweeps.sweep_run import SweepRun
from trainyard.traces.sources import load_trace

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
    assert (made.state, made.done, made.total, made.stored_runs) == ("done", 12, 12, 0)
    table = made.table()
    assert table.columns[:6].tolist() == ["point", "trace.load", "policy", "repeat", "key", "error"]
    for at, point in enumerate(SWEEP.points()):
        scenario = SWEEP.study_at(point).scenarios()[1]
        trace = load_trace(scenario.trace)
        numbers = summarize_run(scenario, run(scenario, trace=trace), trace)
        row = table[
            (table["point"] == at) & (table["policy"] == "SJF") & (table["repeat"] == 0)
        ].iloc[0]
        assert (row["jct_mean_s"], row["makespan_s"], row["trace.load"]) == (
            numbers["jct_mean_s"],
            numbers["makespan_s"],
            point.values[0],
        )


def test_what_is_known_is_not_run_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = done(SWEEP, store)
    monkeypatch.setattr(batch, "run_numbers", None)
    again = done(SWEEP, store)
    assert (again.stored_runs, again.done) == (12, 12)
    assert again.table().drop(columns="key").equals(first.table().drop(columns="key"))


def test_runs_are_told_of_before_the_first_begins(store: Store) -> None:
    made, told = SweepRun(SWEEP, store, "inline"), list[tuple[tuple[str, ...], int]]()
    made.shelve = lambda keys: told.append((tuple(keys), made.done))
    made.run()
    assert told == [(tuple(made.keys), 0)]
    assert len(made.keys) == 12


def test_processes_give_the_same(store: Store, tmp_path: Path) -> None:
    here, there = (
        done(SWEEP, store).table(),
        done(SWEEP, Store(tmp_path / "other"), "processes:2").table(),
    )
    measured = [
        "cell_cpu_s",
        "cpu_s",
        "wall_s",
        "peak_rss_mb",
        "decision_ms_mean",
        "decision_ms_max",
    ]
    assert here.drop(columns=measured).equals(there.drop(columns=measured))


def test_a_failed_run_is_a_row_with_a_sentence(store: Store) -> None:
    made = done(
        Sweep(STUDY, (Axis("trace.load", (1.0, -1.0)), Axis("cluster", ("1x1:v100",)))), store
    )
    table = made.table()
    assert made.state == "done"
    assert made.done == made.total == 4
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

    monkeypatch.setattr(batch, "run_numbers", some)
    made.run()
    assert made.state == "cancelled"
    assert len(made.table()) == 3
    monkeypatch.undo()
    assert done(SWEEP, store).stored_runs == 3


def test_whole_results_open_in_compare_at_once(store: Store) -> None:
    few = Sweep(STUDY, (Axis("seed", (7,)),))
    # Numbers alone give way to whole results.
    assert not any(store.has(key) for key in done(few, store).keys)
    made = SweepRun(few, store, "inline", whole=True)
    made.run()
    assert made.error == ""
    assert all(store.has(key) for key in made.keys)


def test_places_to_run() -> None:
    assert isinstance(open_executor("inline"), Inline)
    for wrong in ("thread", "inline:2", "processes:0", "processes:x", "processes:5000"):
        with pytest.raises(ParameterError, match="is not an executor"):
            open_executor(wrong)


@pytest.mark.parametrize("guard", ["if True:", "if __name__ == '__main__':"])
@pytest.mark.parametrize("start", ["run.run()", "run.start(); run.wait()"])
def test_a_script_without_a_main_guard_is_told_to_add_one(
    guard: str, start: str, tmp_path: Path
) -> None:
    script = tmp_path / "study.py"
    script.write_text(f"""\
from tests.trainyard.sweeps.cases import STUDY
from trainyard.store import Store
from trainyard.study.sweep import Axis, Sweep
from trainyard.sweeps.sweep_run import SweepRun

{guard}
    run = SweepRun(Sweep(STUDY, (Axis("seed", (7,)),)), Store({str(tmp_path)!r}), "processes:1")
    {start}
    print(run.state, run.error)
""")
    place = os.environ | {"PYTHONPATH": os.getcwd()}
    ran = subprocess.run(
        [sys.executable, str(script)], env=place, capture_output=True, text=True, check=True
    )
    told = (
        f"failed Worker processes would run {script} again. Put its runs below `if __name__ =="
        " '__main__':`, or use the executor inline.\n"
    )
    assert ran.stdout == (told if guard == "if True:" else "done \n")


def fails(
    document: Mapping[str, Any], address: str, baggage: Baggage, progress: object = None
) -> Numbers:
    """In a worker process: a run that takes the process down, ones that fail otherwise, and ones
    that do not.
    """
    match document["seed"]:
        case 1:
            os._exit(9)
        case 2:
            raise MemoryError
        case 3:
            raise InfeasiblePlan("It gave a GPU twice.")
        case 4:
            raise OSError(28, "No space left on device")
    return run_numbers(document, address, baggage)


def test_a_run_that_takes_its_process_down_is_a_row_and_the_others_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "run_numbers", fails)
    one = Study(STUDY.base, STUDY.allocators[:1])
    table = done(Sweep(one, (Axis("seed", tuple(range(7))),)), store, "processes:2").table()
    assert [text.partition(".")[0] for text in table["error"][:4]] == [
        "",
        "The worker process was killed at each attempt",
        "Memory ran out in this run",
        "It gave a GPU twice",
    ]
    assert "No space left on device" in table["error"][4]
    assert table["error"].tolist()[5:] == ["", ""]
    # What failed is tried again.
    monkeypatch.undo()
    again = done(Sweep(one, (Axis("seed", tuple(range(7))),)), store)
    assert (again.stored_runs, again.failed) == (3, {})


def stay_after_the_first(
    document: Mapping[str, Any], address: str, baggage: Baggage, progress: object = None
) -> Numbers:
    """In a worker process: runs of which all but the first do not end."""
    if document["seed"]:
        threading.Event().wait(600)
    return run_numbers(document, address, baggage)


def test_cancelling_ends_the_processes_of_runs_under_way(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "run_numbers", stay_after_the_first)
    one = Study(STUDY.base, STUDY.allocators[:1])
    run = SweepRun(Sweep(one, (Axis("seed", (0, 1, 2)),)), store, "processes:2")
    before = _processes()
    run.start()
    wait_until(lambda: run.done or run.wait(0), "the first run ends")
    workers = _processes() - before
    run.cancel()
    assert run.wait(300), run.error
    assert (run.state, len(store.numbers(run.keys)), run.done) == ("cancelled", 1, 1)
    assert len(workers - _processes()) >= 2


def _processes() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_settings_that_no_run_can_have_are_one_sentence(store: Store) -> None:
    run = SweepRun(Sweep(STUDY, (Axis("trace.nonsense", (1, 2)),)), store, "inline")
    run.run()
    assert (run.state, run.done) == ("failed", 0)
    assert run.error.startswith(
        "No run of this sweep is possible. The trace has no setting 'nonsense'."
    )
    with pytest.raises(ParameterError, match="No run of this sweep is possible"):
        SweepRun(Sweep(STUDY, (Axis("trace.nonsense", (1, 2)),)), store).recall()


def test_equal_runs_are_made_once_and_shown_at_every_point(store: Store) -> None:
    made = done(Sweep(replace(STUDY, repeats=2), (Axis("seed", (0, 1)),)), store)
    assert (made.total, len(made.table())) == (6, 8)
    assert made.table()["key"].nunique() == 6


def test_two_sweeps_at_once_over_the_same_runs(store: Store) -> None:
    runs = [SweepRun(SWEEP, store, "inline") for _ in range(2)]
    for one in runs:
        one.start()
    assert all(one.wait(300) for one in runs)
    assert [(one.state, one.done) for one in runs] == [("done", 12)] * 2
    assert len(store.numbers(runs[0].keys)) == 12


def test_what_cannot_be_kept_is_shown_and_the_reason_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, puts = store.put_numbers, itertools.count(1)

    def full(key: str, summary: Mapping[str, Any], scenario: Mapping[str, Any]) -> None:
        if next(puts) > 3:
            raise LibraryError(
                "The library's database cannot be written, because the disk is full."
            )
        put(key, summary, scenario)

    monkeypatch.setattr(store, "put_numbers", full)
    run = SweepRun(SWEEP, store, "inline")
    run.run()
    assert (run.state, run.error) == (
        "failed",
        "The library's database cannot be written, because the disk is full.",
    )
    assert (len(run.table()), len(store.numbers(run.keys))) == (4, 3)
    monkeypatch.undo()
    assert done(SWEEP, store).stored_runs == 3


def test_a_store_that_is_removed_under_a_sweep_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removed(document: Mapping[str, Any], address: str, baggage: Baggage) -> Numbers:
        found = run_numbers(document, address, baggage)
        shutil.rmtree(store.root)
        return found

    monkeypatch.setattr(batch, "run_numbers", removed)
    run = SweepRun(SWEEP, store, "inline")
    run.run()
    assert run.state == "failed"
    assert run.error.endswith(
        "was removed while in use. Restart Trainyard: a new one lists full results."
    )
    # Another process that asks for the store by its address gets a new one.
    assert Store.open(store.address).entries() == []


def test_a_trace_that_is_gone_fails_its_runs_only(store: Store, trace: Trace) -> None:
    digest = store.put_trace(trace)
    here = f"store:{digest}"
    axis = Axis("trace.source", ("sample:tiny", here))
    run = SweepRun(Sweep(STUDY, (axis,)), store, "inline")
    run.recall()
    store.delete_trace(digest)
    run.run()
    assert run.state == "done"
    assert (run.table()["error"] != "").tolist() == [False, False, True, True]


KILLED = """
import sys
from trainyard.store import Store
from trainyard.study.sweep import Axis, Sweep
from trainyard.sweeps.sweep_run import SweepRun
from tests.trainyard.sweeps.test_running import LONG
if __name__ == "__main__":
    run = SweepRun(LONG, Store(sys.argv[1]), "processes:2")
    run.run()
    print(run.state, run.stored_runs, run.done, flush=True)
"""
LONG = Sweep(
    Study(replace(STUDY.base, cluster=CLUSTER), (Spec("fifo"), Spec("sjf"), Spec("srtf"))),
    (Axis("seed", tuple(range(40))),),
)


def test_three_writers_of_one_store_make_every_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def noted(document: Mapping[str, Any], address: str, baggage: Baggage) -> Numbers:
        made.append(json.dumps(document, sort_keys=True))
        return run_numbers(document, address, baggage)

    monkeypatch.setattr(batch, "run_numbers", noted)
    sweeps = [SweepRun(SWEEP, Store(tmp_path / "store"), "inline") for _ in range(3)]
    for sweep in sweeps:
        sweep.start()
    assert all(sweep.wait(300) for sweep in sweeps)
    assert [(sweep.state, sweep.error, sweep.done) for sweep in sweeps] == [("done", "", 12)] * 3
    assert len(made) == len(set(made)) == 12
    assert all(sweep.table().equals(sweeps[0].table()) for sweep in sweeps)


def test_a_run_that_fails_elsewhere_is_made_here(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = SweepRun(Sweep(STUDY, (Axis("seed", (0, 1)),)), store, "inline")
    sweep._look_up()
    other = new_claimer()
    assert store.index.claim(other, sweep.keys) == set(sweep.keys)
    sweep.start()
    while not sweep._runs_of_others:
        assert not sweep.wait(0.01)
    # One of the runs is made there; the others are given up.
    store.put_numbers(sweep.keys[0], {"jct_mean_s": 7.0}, {})
    store.index.release(other, sweep.keys)
    assert sweep.wait(300)
    assert (sweep.state, sweep.error, sweep.done) == ("done", "", 4)
    assert sweep.table()["jct_mean_s"].tolist().count(7.0) == 1


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    script = tmp_path / "sweep.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(tmp_path / "store")]
    environment = os.environ | {"PYTHONPATH": str(root)}
    first = subprocess.Popen(command, env=environment, cwd=tmp_path, start_new_session=True)
    wait_until(
        lambda: _kept(tmp_path / "store") >= 8 or first.poll() is not None, "eight runs are kept"
    )
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = _kept(tmp_path / "store")
    second = subprocess.run(
        command,
        env=environment,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
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
    assert Store.open(address) is Store.open(address)
    assert stores.Store.open(address).root == tmp_path / "store"
    odd = Store(tmp_path / "a | b?c#d%20é")
    odd.put_numbers("ab" * 16, {"x": 1}, {})
    assert Store.open(odd.address).numbers(["ab" * 16]) == {"ab" * 16: {"x": 1}}


@pytest.mark.parametrize("where", ["inline"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_full_disk_ends_a_sweep_with_one_sentence(
    store: Store, monkeypatch: pytest.MonkeyPatch, where: str, *, whole: bool
) -> None:
    made, begun = SweepRun(SWEEP, store, where, whole=whole), list[str]()
    run_whole = batch.run_whole

    def counted(*given: Any) -> Numbers:
        begun.append("one")
        return run_whole(*given)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def refused(*_: object) -> None:
        raise LibraryError(
            "The library's database cannot be written, because the disk is full. Free some space,"
            " then run again."
        )

    monkeypatch.setattr(batch, "run_whole", counted)
    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(Store, "put_numbers", refused)
    made.run()
    assert made.state == "failed"
    assert (
        ("No space left on device" in made.error) if whole else ("the disk is full" in made.error)
    )
    assert made.done < made.total
    assert len(begun) <= 2
