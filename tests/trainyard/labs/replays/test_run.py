from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pulp
import pytest

import trainyard.labs.replays.run
from tests.shared import SetClock
from tests.trainyard.labs.replays.replay_cases import SMALL, small, write
from tests.waiting import wait_until
from trainyard.labs.replays.reading import load, names, read_replay
from trainyard.labs.replays.run import ReplayRun, run_cell
from trainyard.runs.run import run, summarize_run
from trainyard.store import Store
from trainyard.study.settings import with_settings
from trainyard.traces.sources import load_trace


def finished(run_: ReplayRun, timeout_s: float = 600) -> ReplayRun:
    run_.start()
    assert run_.wait(timeout_s)
    return run_


def test_a_cell_gives_the_numbers_of_the_summary(tmp_path: Path) -> None:
    scenario = small(tmp_path).scenario("short", seed=2)
    found = run_cell(small(tmp_path).scenario("short").to_json(), 2, ["jct_mean_s", "preemptions"])
    trace = load_trace(scenario.trace)
    expected = summarize_run(scenario, run(scenario, trace=trace), trace)
    assert (found.numbers["jct_mean_s"], found.numbers["preemptions"]) == (
        expected["jct_mean_s"],
        expected["preemptions"],
    )
    assert found.numbers["cell_cpu_s"] >= 0
    assert found.remarks == ()


def test_a_cell_says_when_another_solver_had_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulp.HiGHS, "available", lambda _self: False)
    document = with_settings(
        load("huawei-headline").scenario("highs").to_json(), ["trace.source.jobs=5"]
    )
    found = run_cell(document, 0, ["completed"])
    assert found.numbers["completed"] == 5
    assert len(found.remarks) == 1
    assert "HiGHS" in found.remarks[0]
    assert found.remarks[0].endswith("so CBC solves the programs.")


def test_what_a_cell_says_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ("one", "one", *(f"{at} {'long ' * 500}" for at in range(50)))
    monkeypatch.setattr(
        trainyard.labs.replays.run,
        "run",
        lambda *args, **options: replace(run(*args, **options), remarks=said),
    )
    remarks = run_cell(small(tmp_path).scenario("short").to_json(), 0, ["completed"]).remarks
    assert len(remarks) == len(set(remarks)) == trainyard.labs.replays.run.MAX_REMARKS
    assert remarks[0] == "one"
    assert max(map(len, remarks)) <= 400


def test_what_was_said_is_kept_with_the_numbers(tmp_path: Path, store: Store) -> None:
    replay = small(tmp_path)
    first = finished(ReplayRun(replay, 1, curves=False, store=store, where="processes:1"))
    place = next((store.root / "replays").iterdir())
    kept = json.loads(place.read_bytes())
    for one in kept.values():
        one["remarks"] = ["CBC solves."]
    place.write_text(json.dumps(kept), encoding="utf-8")
    again = ReplayRun(replay, 1, curves=False, store=store)
    assert again.recall()
    assert again.numbers() == first.numbers()
    assert again.rows() == again.report().rows
    assert again.report().sentences == (
        "In order: CBC solves.",
        "Shortest first: CBC solves.",
        "Shortest first, never stopped: CBC solves.",
    )
    # As an earlier version wrote it.
    place.write_text(
        json.dumps({key: one["numbers"] for key, one in kept.items()}), encoding="utf-8"
    )
    assert not ReplayRun(replay, 1, curves=False, store=store).recall()


@pytest.mark.slow
def test_one_and_two_workers_give_the_same_and_it_is_kept(tmp_path: Path, store: Store) -> None:
    replay = small(tmp_path)
    one = finished(ReplayRun(replay, where="processes:1"))
    two = ReplayRun(replay, store=store, where="processes:2")
    assert (two.state, two.done) == ("waiting", 0)
    finished(two)
    assert (one.state, two.state, two.error, two.done) == ("done", "done", "", two.total)
    left, right = one.report(), two.report()
    assert left.complete
    assert right.wall_s > 0
    assert [row.pooled for row in left.rows] == [row.pooled for row in right.rows]
    assert left.curves.equals(right.curves)
    # Three arms with 4 seeds; at 16 per hour 4 + 2; at 4 per hour 2 + 2; at 8 those of the base; of
    # the pause 1 + 1, and 1 for the arm that it is not about.
    assert two.total == 12 + 6 + 4 + 0 + 3

    assert len(list((store.root / "replays").iterdir())) == 1
    again = ReplayRun(replay, store=store)
    again.start()
    assert again.wait(300)
    assert (again.state, again.done) == ("done", again.total)
    assert again.report().curves.equals(right.curves)
    assert again.report().cpu_s == pytest.approx(right.cpu_s)
    other = ReplayRun(replay, 2, store=store)
    other.start()
    other.cancel()
    assert other.wait(300)
    assert other.state == "cancelled"

    kept = next((store.root / "replays").glob("*.json"))
    kept.write_text("[1]", encoding="utf-8")
    damaged = ReplayRun(replay, store=store)
    damaged.start()
    assert damaged.state != "done"
    damaged.cancel()
    assert damaged.wait(300)


def test_texts_do_not_matter_to_what_is_kept_but_seeds_and_version_do(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = small(tmp_path)
    place = ReplayRun(replay, store=store)._file
    (tmp_path / "x").mkdir()
    reworded = read_replay(write(tmp_path / "x", SMALL.replace("It turns around.", "It turns.")))
    assert ReplayRun(reworded, store=store)._file == place
    assert ReplayRun(replay, 3, store=store)._file != place
    monkeypatch.setattr(trainyard.labs.replays.run, "RESULTS_VERSION", -1)
    assert ReplayRun(replay, store=store)._file != place


def test_a_failing_cell_is_named(tmp_path: Path) -> None:
    # Nobody tells when these jobs began, so that nothing can be replayed.
    run_ = finished(
        ReplayRun(
            read_replay(write(tmp_path, SMALL.replace('"allocator=sjf"', '"allocator=recorded"'))),
            1,
            where="processes:1",
        )
    )
    assert run_.state == "failed"
    assert run_.error.startswith(
        "small, arm calm, seed 0: recorded cannot run here: This trace has no recorded start times"
    )
    assert not run_.report().complete
    assert not run_.broken


def test_cancelling_keeps_what_is_there(tmp_path: Path, store: Store) -> None:
    run_ = ReplayRun(small(tmp_path), 60, store=store, where="processes:1")
    run_.start()
    wait_until(lambda: run_.done, "the first cell is over")
    run_.cancel()
    assert run_.wait(300)
    assert run_.state == "cancelled"
    assert 0 < run_.done < run_.total
    assert not run_.report().complete
    assert not (store.root / "replays").exists()
    never = ReplayRun(small(tmp_path))
    never.cancel()
    assert (never.state, never.wait(1)) == ("cancelled", True)


def test_a_folder_that_cannot_be_written_costs_only_the_next_opening(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    (store.root / "replays").write_text("in the way", encoding="utf-8")
    run_ = finished(ReplayRun(small(tmp_path), 1, curves=False, store=store, where="processes:1"))
    assert run_.state == "done"
    assert "cannot be kept" in caplog.text


@pytest.mark.slow
def test_old_replays_are_removed_when_another_is_kept(tmp_path: Path) -> None:
    clock = SetClock()
    store = Store(tmp_path / "store", clock=clock)
    finished(ReplayRun(small(tmp_path), 1, curves=False, store=store, where="processes:1"))
    old = next((store.root / "replays").iterdir())
    clock.go_on(1.0)
    # The file system stamps the second file by its own clock.
    clock.set_wrong((old.stat().st_mtime - clock.now_s()) / 86_400)
    os.utime(old, (0, clock.now_s() - (store.keep_days + 1) * 86_400))
    store.put_numbers("ab" * 16, {}, {})
    finished(ReplayRun(small(tmp_path), 2, curves=False, store=store, where="processes:1"))
    assert not old.exists()
    assert len(list((store.root / "replays").iterdir())) == 1


DIRECTIONS = {
    "aiturbo-headline": {
        "jct_mean_s tiresias/aiturbo": (1.8, 4.5),
        "jct_mean_s srtf/aiturbo": (1.1, 2.2),
        "jct_mean_s tiresias/srtf": (1.1, 3),
        "jct_mean_s fcfs/tiresias": (1.1, 4),
        "jct_mean_s optimus/aiturbo at gap=2000": (0.3, 0.9),
        "jct_mean_s gpu_only/aiturbo": (1, 1.4),
    },
    "aiturbo-mix": {
        "jct_mean_s tiresias/aiturbo from share=0 to share=1": (0.4, 0.9),
        "jct_mean_s grow_only/aiturbo at share=0": (1.5, 6),
        "jct_mean_s optimus/aiturbo at gap=800": (0.3, 0.9),
    },
    "asrpt-load": {
        "jct_mean_s asrpt/fifo_naive at load=1.5": (0.1, 0.8),
        "jct_mean_s asrpt/spjf_naive at load=2.5": (0.2, 0.9),
        "jct_mean_s asrpt/spwf_few at load=1.5": (1, 2),
        "jct_mean_s asrpt_skip/asrpt at load=1.5": (0.4, 0.95),
    },
    "dlrover-hot-ps": {
        "jct_mean_s nothing": (1970, 1990),
        "jct_mean_s stop": (1740, 1770),
        "jct_mean_s seamless": (1410, 1440),
    },
    "dlrover-production": {
        "jct_p50_s dlrover/manual": (0.4, 0.9),
        "completion_rate dlrover-manual": (0.05, 0.3),
        "cpus_used dlrover-manual": (0.01, 0.15),
        "mem_used dlrover-manual": (0.3, 0.55),
        "cpus_used tuned-manual": (0.05, 0.2),
        "lost_work_s dlrover/manual": (0, 0.1),
    },
    # Of 24 workers and 8 servers, or 8 workers and 2 servers, one is slow: in shards only its own
    # share of the work is missed.
    "dlrover-stragglers": {
        "jct_mean_s wd_fixed at wd_worker=0.587": (2750, 2770),
        "jct_mean_s wd_shards at wd_worker=0.587": (1620 * 24 / 23.587 - 1, 1620 * 24 / 23.587 + 1),
        "jct_mean_s wd_auto at wd_server=0.1004": (1980, 2100),
        "jct_mean_s xd_shards at xd_worker=0.433": (6240 * 8 / 7.433 - 1, 6240 * 8 / 7.433 + 1),
        "jct_mean_s xd_auto at xd_server=0.292": (6500, 6700),
        "jct_mean_s xd_grown": (3000, 5000),
    },
    # The rate at which nothing queues: beyond it a run takes half a minute.
    "gavel-jct": {
        "jct_mean_s las/gavel at per_h=4": (1.15, 1.7),
        "jct_mean_s allox/gavel at per_h=4": (0.8, 1.2),
    },
    "gavel-makespan": {
        "makespan_s fifo/makespan at jobs=300": (1.4, 15),
        "makespan_s fifo_aware/makespan at jobs=300": (1, 1.8),
        "makespan_s makespan at jobs=300": (551304, 609336),
        "makespan_s gandiva/makespan at jobs=300": (1.1, 1.5),
    },
    "gavel-physical": {
        "jct_mean_s las/gavel": (1.29, 1.45),
        "makespan_s static_las/static_makespan": (1.1, 1.5),
        "makespan_s static_gandiva/static_makespan": (1.1, 1.4),
        "makespan_s static_makespan/static_fluid": (0.98, 1.03),
        "jct_mean_s gavel/fluid": (0.95, 1.05),
        "jct_mean_s static_makespan/static_gavel": (1.2, 3),
    },
    "hadar-fragmentation": {
        "utilisation_to_end hadar-unmixed": (0, 0.4),
        "makespan_s split/unmixed": (0.4, 1),
        "makespan_s hadar/unmixed at smallest=0": (0.97, 1.03),
    },
    "hadar-ttd": {
        "makespan_s gavel/hadar at jobs=240": (1.05, 1.4),
        "makespan_s makespan/hadar at jobs=240": (0.9, 1.1),
        "makespan_s gavel/jct at jobs=240": (0.7, 1),
        "jct_mean_s gavel/hadar at jobs=240": (0.2, 0.8),
        "jct_mean_s gavel/jct at jobs=240": (1, 1.5),
    },
    "hadare-cru": {
        "utilisation_to_end hadare/hadar at jobs=5": (1.1, 2),
        "utilisation_to_end single/hadar at jobs_lab=5": (1, 1.8),
        "makespan_s hadare/hadar at jobs_lab=5": (0.6, 1),
        # All five nodes together, 1 + 0.8 + 0.4 + 0.35 + 0.1: the bound for one job, and HadarE
        # just above it.
        "makespan_s capacity/hadar at jobs_lab=1": (1 / 2.65 - 1e-6, 1 / 2.65 + 1e-6),
        "makespan_s hadare/hadar at jobs_lab=1": (1 / 2.65, 0.42),
        "makespan_s hadare/hadar at worth=1": (0.4, 1),
        "makespan_s hadare/capacity at jobs=12": (1, 1.3),
        "makespan_s hadare/hadar from jobs=1 to jobs=5": (1.2, 4),
        "makespan_s large from slot=90 to slot=720": (0.5, 0.95),
    },
    "huawei-headline": {
        "efficiency mip/sticky at per_h=10": (1, 2),
        "jct_mean_s mip/sticky at per_h=10": (0.3, 1),
    },
    "ibm-drop": {
        "completed elastic/max at per_min=1.5": (1.2, 4),
        "completed elastic/max at per_min=2.5": (1.2, 4),
    },
    "ibm-queue": {f"jct_mean_s max/elastic at hours={hours}": (2, 60) for hours in (8, 16, 24)},
}


def test_every_shipped_replay_has_its_direction_tested() -> None:
    assert set(DIRECTIONS) == set(names())


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_one_seed_of_a_shipped_replay_points_where_the_paper_does(name: str) -> None:
    replay = load(name)
    # Only what has a direction: the others would take minutes.
    told = replace(
        replay, claims=tuple(claim for claim in replay.claims if claim.text in DIRECTIONS[name])
    )
    run_ = finished(ReplayRun(told, 1, curves=False))
    assert run_.error == ""
    found = {row.claim.text: row.pooled.value for row in run_.report().rows}
    assert {
        text: (low, value, high)
        for text, (low, high) in DIRECTIONS[name].items()
        if not low < (value := found[text]) < high
    } == {}
    if name == "ibm-queue":
        assert (
            found["jct_mean_s max/elastic at hours=8"]
            < found["jct_mean_s max/elastic at hours=16"]
            < found["jct_mean_s max/elastic at hours=24"]
        )
