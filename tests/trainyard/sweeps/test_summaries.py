"""What may vary, and what a search comes to, in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sim.contract import Spec
from sim.errors import ParameterError
from tests.trainyard.results.situations import amounts
from tests.trainyard.sweeps.situations import SITUATIONS, question
from trainyard.runs.estimate import Costs, estimate
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.study.settings import with_settings
from trainyard.study.study import Study
from trainyard.sweeps import summaries
from trainyard.sweeps.axes import levers, with_needed_estimator
from trainyard.traces import new_study


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def study() -> Study:
    return new_study.sample_study("tiny")


def test_every_lever_moves_within_what_is_allowed(study: Study, store: Store) -> None:
    found = levers(study, store)
    for lever in found:
        moved = with_needed_estimator(study, [lever])
        for value in (lever.low, lever.high):
            Study.from_json(
                with_settings(
                    moved.to_json(), [f"{lever.path}={int(value) if lever.whole else value}"]
                )
            )
        assert lever.low < lever.high
    assert len({lever.label for lever in found}) == len(found)
    by_path = {lever.path: lever for lever in found}
    assert (by_path["trace.load"].low, by_path["trace.load"].high) == (0.6, 1.4)
    assert by_path["cluster.groups.0.count"].title == "V100 nodes"
    assert (by_path["allocators.1.depth"].now, by_path["allocators.1.depth"].whole) == (500.0, True)
    assert with_needed_estimator(study, [by_path["estimator.sigma"]]).base.estimator == Spec(
        "noisy"
    )
    assert with_needed_estimator(study, [by_path["seed"]]) == study


def test_a_made_workload_has_levers_of_its_own(study: Study, store: Store) -> None:
    made = replace(
        study,
        base=replace(study.base, trace=TraceSpec("made:gavel:jobs=20")),
        allocators=(Spec("fifo"),),
        baseline=0,
    )
    (jobs,) = [lever for lever in levers(made, store) if lever.path == "trace.source.jobs"]
    assert (jobs.now, jobs.low, jobs.high, jobs.whole) == (20.0, 10.0, 40.0, True)


def test_which_jobs_are_drawn_may_vary_where_some_are(study: Study, store: Store) -> None:
    def drawn(trace: TraceSpec) -> list[tuple[float, float, float, bool]]:
        found = levers(replace(study, base=replace(study.base, trace=trace)), store)
        return [
            (lever.now, lever.low, lever.high, lever.whole)
            for lever in found
            if lever.path == "trace.sample_seed"
        ]

    assert not drawn(study.base.trace)
    assert drawn(replace(study.base.trace, sample=10, sample_seed=3)) == [(3.0, 3.0, 7.0, True)]
    assert drawn(replace(study.base.trace, load=0.5, load_by="jobs")) == [(0.0, 0.0, 4.0, True)]


def test_recordings_are_left_out_and_the_baseline_stays(study: Study, store: Store) -> None:
    assert [spec.name for spec in study.allocators][-1] == "recorded"
    kept, left_out = summaries.without_replays(replace(study, baseline=1), store)
    assert kept is not None
    assert (len(kept.allocators), kept.baseline) == (len(study.allocators) - 1, 1)
    assert list(left_out) == ["Recorded schedule"]
    assert (
        summaries.without_replays(
            replace(study, allocators=(Spec("recorded"),), baseline=0), store
        )[0]
        is None
    )
    scales, reasons = summaries.without_replays(
        replace(study, allocators=(Spec("fifo"), Spec("optimus")), baseline=0), store
    )
    assert scales is not None
    assert len(reasons) == 2 - len(scales.allocators) == 1


def test_another_policy_is_one_that_is_not_there_and_can_run(study: Study, store: Store) -> None:
    found = summaries.suggest_policy(
        replace(study, allocators=(Spec("fifo"), Spec("srtf")), baseline=0), store
    )
    assert found == (Spec("easy"), "EASY backfilling")


@pytest.mark.parametrize(
    ("situation", "figures"),
    [
        # 5 x 8 GPUs x 2.93 USD x 730 h, in hundreds.
        ("more and none", ["4", "95 %", "1 h", "5", "85,600"]),
        # 8 x 2.93 x 730.
        ("both more", ["4", "95 %", "1 h", "5", "85,600", "1", "17,100"]),
        # 8 x 2.93 x 730 + 3 x 8 x 0.35 x 730.
        ("only a mix", ["4", "95 %", "1 h", "1", "3", "23,200"]),
        ("none is needed", ["4", "95 %", "1 h"]),
        ("fewer would do", ["4", "95 %", "1 h", "5", "85,600", "2", "34,200"]),
        ("only one policy meets it", ["4", "95 %", "1 h"]),
        ("search still goes on", ["4", "95 %", "1 h", "5", "85,600"]),
        ("one policy has no answer yet", ["4", "95 %", "1 h"]),
        ("no policy has an answer yet", []),
        ("no policy meets it", ["4", "95 %", "1 h"]),
        # 12 x 8 x 0.35 x 730.
        ("a mix is cheaper", ["12", "24,500", "4.1 h", "2.5 h", "5"]),
        ("no mix is cheaper", []),
        ("other nodes stay", ["4"]),
        ("all nodes vary", []),
        ("not met", ["120,000", "80 min", "3"]),
        ("not met at any price", ["80 min", "3"]),
        ("not met, half of the jobs completed", ["80 min", "50.0 %"]),
        ("not met, no figure", ["120,000"]),
        ("some runs failed", ["2", "1"]),
        ("runs failed for five reasons", ["1", "1", "1", "2"]),
    ],
)
def test_figures_of_a_search(situation: str, figures: list[str]) -> None:
    said = SITUATIONS[situation]()
    assert amounts(said) == ", ".join(figures)
    assert bool(said) == bool(figures)


def test_headlines_in_full() -> None:
    assert SITUATIONS["more and none"]() == (
        "You own 4 A100 nodes. For 95 % of waits under 1 h: FIFO needs 5 more (+$85,600 a month),"
        " SRTF none."
    )
    assert SITUATIONS["a mix is cheaper"]() == (
        "Cheaper for FIFO: 12 T4 nodes, +$24,500 a month. Average completion is then 4.1 h,"
        " against 2.5 h with 5 A100 nodes."
    )
    assert SITUATIONS["only one policy meets it"]() == (
        "You own 4 A100 nodes. For 95 % of waits under 1 h: FIFO misses it, SRTF needs none."
    )
    assert SITUATIONS["not met"]() == (
        "FIFO misses the target for up to $120,000 a month: at best 80 min with 3 A100 nodes."
    )
    assert SITUATIONS["fewer would do"]().endswith("SRTF 2 fewer (−$34,200 a month).")


def test_purchases_and_changes_as_text() -> None:
    texts = [summaries.purchase_text(question(), size) for size in ((4, 0), (5, 0), (2, 3))]
    assert texts == ["nothing", "1 A100 node", "3 T4 nodes, 2 A100 nodes fewer"]
    assert summaries.more_text(question(), (6, 0)) == "2 more"
    assert summaries.more_text(question(), (6, 1)) == "2 A100 + 1 T4 nodes"
    assert summaries.purchase_text(question(), (5, 2), short=True) == "1 A100 + 2 T4"
    assert summaries.extra_cost_text(question(), (4, 0)) == "$0"
    assert summaries.change_text("queue_p95_s", 33_840.0, 1620.0) == "9.4 h → 0.45 h"
    assert summaries.change_text("utilisation", 0.5, 0.25) == "50.0 % → 25.0 %"


def test_a_target_that_is_met_is_at_most_a_tenth_more() -> None:
    assert summaries.round_target(question(), 4801.0) == (4860.0, "81 min")
    for value in (0.0, 1.0, 59.9, 61.0, 3599.0, 7201.0, 123_456.0):
        limit, _ = summaries.round_target(question(), value)
        assert value <= limit <= 1.1 * value + 1.0
    share, text = summaries.round_target(replace(question(), metric="completion_rate"), 0.876)
    assert (round(share, 6), text) == (0.87, "87.0 %")


def test_targets_are_typed_as_they_are_written() -> None:
    assert summaries.target_metric("queue_p95_s") == "95 % of waits"
    assert summaries.target_metric("jct_mean_s", starts=True) == "Average completion time"
    busy = replace(question(), metric="utilisation", limit=0.9)
    assert summaries.target_text(busy) == "GPUs busy over 90 %"
    for metric, limit, text in (
        ("queue_p95_s", 3600.0, "1 h"),
        ("queue_p95_s", 5400.0, "1.5 h"),
        ("jct_mean_s", 45.0, "45 s"),
        ("jct_mean_s", 259_200.0, "3 days"),
        ("completion_rate", 0.9, "90 %"),
        ("cost_held_per_job_usd", 12.5, "$12.5"),
        ("preemptions", 1.5, "1.5"),
    ):
        assert summaries.format_limit(metric, limit) == text
        assert summaries.parse_limit(metric, text) == pytest.approx(limit)
    assert summaries.parse_limit("queue_p95_s", "90 Minutes") == 5400.0
    assert summaries.parse_limit("queue_p95_s", "2") == 7200.0
    assert summaries.parse_limit("cost_cluster_usd", "$120,000") == 120_000.0
    for wrong in ("", "soon", "1,5 h", "1 fortnight", "-1 h", "nan", "1 h 2"):
        with pytest.raises(ParameterError, match="45 s, 30 min, 1 h or 2 days"):
            summaries.parse_limit("queue_p95_s", wrong)


def test_places_and_times(store: Store) -> None:
    assert [summaries.parallel_runs(where) for where in ("inline", "processes:3")] == [1, 3]
    one, ten = (
        summaries.batch_seconds(estimate(question().study, store, Costs(), 1), runs, "inline")
        for runs in (1, 10)
    )
    assert 1.0 < one < ten < 10.0
