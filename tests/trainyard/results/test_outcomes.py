from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.errors import ClusterError, ParameterError
from sim.metrics import JCT_PARTS, UsageArrays
from sim.params import Spec
from tests.trainyard.results.situations import amounts
from trainyard.results import outcomes, validity
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def study() -> Study:
    return new_study.sample_study("tiny")


def finish(study: Study, store: Store, places: tuple[int, ...]) -> None:
    for at in places:
        for scenario in study.policy_scenarios(at):
            trace = load_trace(scenario.trace)
            store_result(
                store, scenario_key(scenario, store), scenario, run(scenario, trace=trace), trace
            )


def test_titles_are_unique_and_name_the_difference() -> None:
    specs = (
        Spec("fifo"),
        Spec.of("fifo", backfill="first_fit"),
        Spec.of("fifo", backfill="first_fit"),
        Spec("easy"),
        Spec.of("las", thresholds=(1.0, 2.0)),
    )
    first, second, third, easy, las = outcomes.titles(specs)
    assert (second, third) == (f"{first} · backfill first fit", f"{first} · backfill first fit #2")
    assert len({first, second, third, easy, las}) == 5


def test_nothing_stored_means_nothing_to_say(study: Study, store: Store) -> None:
    shown = outcomes.gather(study, store)
    assert shown.places == ()
    assert outcomes.report(shown, store) is None


def test_without_all_prices_there_is_no_cost(study: Study, store: Store) -> None:
    cluster = Cluster.parse("1x8:a100,1x8:v100")
    types = (cluster.types[0], replace(cluster.types[1], price_per_gpu_hour=0.0))
    priced = replace(study, base=replace(study.base, cluster=cluster))
    cluster = replace(cluster, types=types)
    assert cluster.price_per_hour > 0
    free = replace(study, base=replace(study.base, cluster=cluster))
    for one, costs in ((priced, True), (free, False)):
        finish(one, store, (0, 1))
        said = outcomes.report(outcomes.gather(one, store), store)
        assert said is not None
        assert ("cost_held_per_job_usd" in set(said.table["metric"])) is costs


def test_without_the_baseline_nothing_is_compared(study: Study, store: Store) -> None:
    finish(study, store, (1, 2))
    shown = outcomes.gather(study, store)
    said = outcomes.report(shown, store)
    assert said is not None
    assert said.baseline == ""
    assert "is not complete" in said.headline
    assert said.table["change"].isna().all()
    assert "slower" not in set(said.table["metric"])


def test_the_first_that_can_run_stands_in_for_a_baseline_that_cannot(
    study: Study, store: Store
) -> None:
    """Jobs of one size: nothing for a policy that resizes them, whatever is stored."""
    others = replace(
        study, allocators=(Spec("greedy_elastic"), Spec("fifo"), Spec("srtf")), baseline=0
    )
    finish(others, store, (2,))
    waiting = outcomes.report(outcomes.gather(others, store), store)
    assert waiting is not None
    assert waiting.headline == "FIFO is not complete, so nothing is compared yet."
    finish(others, store, (1,))
    shown = outcomes.gather(others, store)
    assert shown.baseline == 1
    said = outcomes.report(shown, store)
    assert said is not None
    assert said.baseline == "FIFO"
    assert (
        said.first_headline.also[-1]
        == "Compared with FIFO: the chosen baseline Greedy elastic cannot run here."
    )
    assert said.changes.keys() == {"SRTF"}
    # What was asked for stays.
    assert shown.study.baseline == 0


def test_a_complete_study(study: Study, store: Store) -> None:
    finish(study, store, tuple(range(len(study.allocators))))
    shown = outcomes.gather(study, store)
    said = outcomes.report(shown, store)
    assert said is not None
    assert said.labels == shown.titles
    assert said.baseline == shown.titles[0]
    assert said.trust is not None
    assert set(said.frames) == {"queue", "utilisation", "capacity", "states", "cdf", "allocation"}
    assert said.left_out == dict.fromkeys(said.labels, 0)
    # Of twelve jobs no difference is told.
    assert said.first_headline.verdict == "few"
    assert said.table["change"].isna().all()
    assert said.facts == "12 jobs · 8 GPUs · one run of each policy"


def test_differences_are_told_of_enough_jobs(
    study: Study, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validity, "MIN_JOBS", 12)
    # Of so few jobs on eight GPUs one large one is waited for.
    monkeypatch.setattr(validity, "WIDE", 2.0)
    finish(study, store, (0, 1))
    said = outcomes.report(
        outcomes.gather(replace(study, allocators=study.allocators[:2]), store), store
    )
    assert said is not None
    assert said.first_headline.verdict == "clear"
    assert said.table["change"].notna().any()
    assert (
        said.facts
        == "12 jobs · 8 GPUs · one run of each policy · same jobs and seed for every policy"
    )


def test_parts_and_allocation_belong_to_the_numbers_of_the_table(
    study: Study, store: Store
) -> None:
    study = replace(
        study,
        repeats=2,
        base=replace(study.base, faults=Spec.of("faults", interruptions_per_node_h=0.5)),
    )
    finish(study, store, (0, 1))
    shown = outcomes.gather(study, store)
    said = outcomes.report(shown, store)
    assert said is not None
    parts = said.parts.set_index("policy")
    means = said.table[said.table["metric"] == "jct_mean_s"].set_index("label")["value"]
    assert list(parts.index) == list(said.labels)
    assert parts["jct_s"].to_dict() == pytest.approx(means.to_dict(), rel=1e-9)
    assert parts[list(JCT_PARTS)].sum(axis=1).to_dict() == pytest.approx(means.to_dict(), rel=1e-9)
    assert parts["jobs"].tolist() == [24, 24]
    both = np.concatenate(
        [
            (run["finish_s"] - run["submit_s"]).to_numpy()
            for run in (entry.jobs() for entry in shown.entries[1])
        ]
    )
    assert said.frames["cdf"][said.labels[1]]["jct_s"].tolist() == sorted(both.tolist())
    entry = shown.entries[1][0]
    seen = said.frames["allocation"][said.labels[1]]
    named = [name for name in seen.columns if name not in {"t_s", "others"}]
    ids = load_trace(study.base.trace).frame["job_id"]
    assert [said.job_ids[name] for name in named] == [ids[int(name)] for name in named]
    held = entry.result().jobs["served_gpu_s"]
    assert named == [str(row) for row in held.sort_values(ascending=False, kind="stable").index[:8]]


def test_the_mark_changes_when_more_is_complete(study: Study, store: Store) -> None:
    finish(study, store, (0,))
    before = outcomes.gather(study, store).mark
    finish(study, store, (1,))
    assert outcomes.gather(study, store).mark != before


def test_repeats_are_complete_together(study: Study, store: Store) -> None:
    twice = replace(study, repeats=2)
    finish(study, store, (0,))
    assert outcomes.gather(twice, store).places == ()
    finish(twice, store, (0,))
    shown = outcomes.gather(twice, store)
    assert shown.places == (0,)
    said = outcomes.report(shown, store)
    assert said is not None
    assert "2 repeats" in said.facts


def test_a_cluster_too_small_for_the_recording_is_said(study: Study, store: Store) -> None:
    small = new_study.with_cluster(study, Cluster.parse("1x4:v100"))
    replays = next(at for at, spec in enumerate(small.allocators) if spec.name == "recorded")
    finish(small, store, (0, replays))
    said = outcomes.report(outcomes.gather(small, store), store)
    assert said is not None
    # Jobs beyond 4 GPUs: 2 GPUs for 1,800 s from 0 s; 8 for 1,200 s and 4 for 1,800 s from 3,600 s;
    # 8 for 600 s and 4 for 1,200 s from 7,200 s. That is 30,000 GPU-seconds.
    assert amounts(said.overflow) == "3 times, 8, 8"
    assert said.remarks == {said.labels[1]: outcomes.BEYOND}
    replayed = said.table[said.table["label"] == said.labels[1]]
    assert "better" not in set(replayed["verdict"])


def test_costs_are_compared_on_the_jobs_that_both_completed(
    study: Study, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validity, "MIN_JOBS", 1)
    # The run under the second policy ends while jobs are still waiting.
    cut = replace(study, base=replace(study.base, stop="horizon", horizon_s=1800.0))
    finish(cut, store, (0, 1))
    said = outcomes.report(outcomes.gather(cut, store), store)
    assert said is not None
    first, second = (outcomes.gather(cut, store).entries[at][0] for at in (0, 1))
    done = [np.asarray(entry.jobs()["outcome"] == "completed") for entry in (first, second)]
    both = done[0] & done[1]
    assert 0 < both.sum() < max(done[0].sum(), done[1].sum())
    assert said.not_common
    costs = [
        UsageArrays(entry.result(), cut.base.cluster).cost_held_usd()[both].sum()
        for entry in (first, second)
    ]
    rows = said.table[
        (said.table["label"] == said.labels[1]) & (said.table["metric"] == "cost_held_per_job_usd")
    ]
    assert rows["change"].iloc[0] == pytest.approx(costs[1] / costs[0] - 1)


def test_csv_is_safe_in_a_spreadsheet() -> None:
    table = pd.DataFrame(
        {"name": ["=1+1", "-x", "+y", "@z", "plain", None], "n": [-1.0, 2, np.nan, 4, 5, 6]}
    )
    lines = outcomes.safe_csv(table).splitlines()
    assert lines == ["name,n", "'=1+1,-1.0", "'-x,2.0", "'+y,", "'@z,4.0", "plain,5.0", ",6.0"]


def on(study: Study, source: str) -> Study:
    return replace(study, base=replace(study.base, trace=TraceSpec(source)))


def test_a_cluster_made_by_the_user_outlives_another_trace(study: Study, store: Store) -> None:
    mine = new_study.with_cluster(
        on(study, "made:elastic-nodes:per_h=6"), Cluster.parse("3x8:v100")
    )
    for source in ("made:elastic-nodes:per_h=8", "made:batch-jobs", "sample:week"):
        assert new_study.with_trace(mine, TraceSpec(source)).base.cluster == mine.base.cluster
    made = new_study.with_trace(study, TraceSpec("made:elastic-nodes:gpus_per_node=4"))
    assert (
        new_study.with_trace(
            made, TraceSpec("made:elastic-nodes:gpus_per_node=8")
        ).base.cluster.gpus
        == 2 * made.base.cluster.gpus
    )
    # An upload keeps the cluster of the sample before it, which nobody made; the upload itself may
    # be gone.
    upload = on(new_study.with_trace(study, TraceSpec("sample:week")), "store:" + "0" * 32)
    assert (
        new_study.with_trace(upload, TraceSpec("sample:tiny"), store).base.cluster
        == study.base.cluster
    )


def test_a_sample_brings_its_cluster_and_a_window_does_not(study: Study) -> None:
    assert new_study.with_trace(study, TraceSpec("sample:week")).base.cluster.gpus == 64
    mine = new_study.with_cluster(study, Cluster.parse("2x8:v100"))
    assert (
        new_study.with_trace(mine, replace(mine.base.trace, load=2.0)).base.cluster
        == mine.base.cluster
    )


def test_a_study_needs_a_policy(study: Study) -> None:
    with pytest.raises(ParameterError, match="Choose at least one"):
        new_study.with_policies(study, ())


def test_why_a_policy_cannot_run(study: Study) -> None:
    replays = next(at for at, spec in enumerate(study.allocators) if spec.name == "recorded")
    assert new_study.refusal_reason(study, replays) == ""
    loaded = replace(study, base=replace(study.base, trace=replace(study.base.trace, load=2.0)))
    assert "history" in new_study.refusal_reason(loaded, replays)


def test_what_comes_from_outside_may_not_name_a_file_or_fill_the_memory(study: Study) -> None:
    assert new_study.refuse_server_file(study) is study
    away = replace(study, base=replace(study.base, trace=TraceSpec("/etc/passwd")))
    with pytest.raises(ParameterError, match="Load it on the Trace page"):
        new_study.refuse_server_file(away)
    with pytest.raises(ClusterError, match="1,000,000,000 nodes; 100,000 is the most"):
        Cluster.parse("1000000000x8:v100")


def test_a_recorded_schedule_that_the_new_jobs_lack_is_left_out() -> None:
    study = new_study.sample_study()
    assert Spec("recorded") in study.allocators
    loaded = new_study.with_trace(study, replace(study.base.trace, load=2.0))
    assert loaded.allocators == tuple(spec for spec in study.allocators if spec.name != "recorded")
    assert loaded.allocators[loaded.baseline] == study.allocators[study.baseline]
    alone = replace(study, allocators=(Spec("recorded"),), baseline=0)
    assert new_study.with_trace(alone, loaded.base.trace).allocators == alone.allocators


def test_the_facts_say_how_many_rows_of_a_file_are_not_among_the_jobs(
    study: Study, store: Store
) -> None:
    # 488 of 500 rows became no job; the twelve others are those of the sample.
    digest = store.put_trace(load_trace(study.base.trace), {"read": 500, "dropped": 488})
    study = replace(study, base=replace(study.base, trace=TraceSpec(f"store:{digest}")))
    scenario = study.policy_scenarios(0)[0]
    trace = load_trace(scenario.trace, store)
    store_result(store, scenario_key(scenario, store), scenario, run(scenario, trace=trace), trace)
    said = outcomes.report(outcomes.gather(study, store), store)
    assert said is not None
    assert said.facts == "12 jobs (488 of 500 rows left out) · 8 GPUs · one run of each policy"
