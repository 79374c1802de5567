from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from sim.params import Spec
from tests.trainyard.labs.replays.replay_cases import SMALL, small, write
from trainyard.labs.replays import curves
from trainyard.labs.replays.reading import load, read_replay
from trainyard.labs.replays.report import ReplayCell, needed_metrics
from trainyard.labs.replays.run import ReplayRun
from trainyard.labs.replays.types import BASE, ReplayPoint
from trainyard.store import Store
from trainyard.study.scenario import Scenario


def test_the_figures_of_a_policy_are_means_over_the_seeds_that_have_one(tmp_path: Path) -> None:
    replay = small(tmp_path)
    metrics = needed_metrics(replay)
    at = ReplayPoint("per_h", 8.0)
    values = {0: 1.0, 1: 3.0, 2: math.nan}
    found = {
        ReplayCell(at, "short", seed): dict.fromkeys(metrics, value)
        for seed, value in values.items()
    }
    found[ReplayCell(BASE, "fifo", 0)] = dict.fromkeys(metrics, math.nan)
    table = curves.by_arm(replay, found)
    assert list(table.columns) == list(curves.ARM_COLUMNS)
    short = table[table["arm"] == "Shortest first"]
    assert list(short["metric"]) == ["jct_mean_s", "preemptions", "queue_mean_s"]
    assert set(short["metric"]) == set(metrics)
    assert set(short["mean"]) == {2.0}
    assert set(short["seeds"]) == {3}
    assert set(short["axis"]) == {"per_h"}
    assert table[table["arm"] == "In order"]["mean"].isna().all()


def test_nothing_run_is_an_empty_table(tmp_path: Path) -> None:
    assert curves.by_arm(small(tmp_path), {}).empty


def test_what_a_run_gave_can_be_had_by_cell_and_recalled_without_running(
    tmp_path: Path, store: Store
) -> None:
    replay = small(tmp_path)
    fresh = ReplayRun(replay, 1, store=store, where="processes:1")
    assert not fresh.recall()
    assert fresh.state == "waiting"
    fresh.start()
    assert fresh.wait(300)
    again = ReplayRun(replay, 1, store=store)
    assert again.recall()
    assert (again.state, again.done) == ("done", again.total)
    assert again.numbers() == fresh.numbers()
    assert {cell.arm for cell in fresh.numbers()} == {"fifo", "short", "calm"}
    assert not ReplayRun(replay, 2, store=store).recall()
    assert not ReplayRun(replay, 1).recall()


def test_a_replay_opens_as_a_study_of_its_policies(tmp_path: Path) -> None:
    replay = small(tmp_path)
    study = curves.study(replay, ReplayPoint("per_h", 16.0))
    assert study is not None
    assert [spec.name for spec in study.allocators] == ["fifo", "srtf", "sjf"]
    assert study.base.name == "Small"
    for at, arm in enumerate(replay.arms):
        assert replace(study.policy_scenarios(at)[0], name="") == replace(
            replay.scenario(arm.name, ReplayPoint("per_h", 16.0)), name=""
        )


@pytest.mark.parametrize(
    ("name", "arm"), [("huawei-headline", "sticky"), ("ibm-drop", "max"), ("ibm-queue", "elastic")]
)
def test_the_baseline_is_what_the_first_claim_compares_with(name: str, arm: str) -> None:
    replay = load(name)
    study = curves.study(replay)
    assert study is not None
    assert study.allocators[study.baseline] == replay.scenario(arm).allocator
    assert study.base.allocator == replay.scenario(arm).allocator
    assert [spec.name for spec in study.allocators] == [
        replay.scenario(one.name).allocator.name for one in replay.arms
    ]


def test_policies_that_live_in_different_worlds_are_no_study(tmp_path: Path) -> None:
    text = SMALL.replace(
        'set = ["allocator=srtf"]', 'set = ["allocator=srtf", "overheads.restart_s=0"]'
    )
    assert curves.study(read_replay(write(tmp_path, text))) is None


def test_speed_curves_are_there_where_batch_sizes_matter(tmp_path: Path) -> None:
    base = small(tmp_path).base
    assert curves.speed_curves(base) is None
    table = curves.speed_curves(replace(base, perf=Spec("batch")))
    assert table is not None
    assert table.groupby("class")["arm"].nunique().tolist() == [3, 3, 3, 3]
    best = table[table["arm"] == "best batch for each size"].set_index(["class", "gpus"])["speedup"]
    assert best.xs(1, level="gpus").round(12).eq(1.0).all()
    assert best["compute", 10] > best["non-scalable", 10]
    largest = table[table["arm"] == "largest batch, fixed"].set_index(["class", "gpus"])["speedup"]
    assert math.isnan(largest["compute", 7])
    assert largest["compute", 8] > 0


def test_a_base_scenario_is_left_as_it_is(tmp_path: Path) -> None:
    replay = small(tmp_path)
    before = replay.base
    assert isinstance(before, Scenario)
    curves.study(replay)
    assert replay.base == before
