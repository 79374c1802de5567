from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sim.params import Spec
from sim.trace import Trace
from trainyard.results import groups, outcomes, validity
from trainyard.results.compare import Outcome
from trainyard.results.outcomes import StudyResults
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.store import Store
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace


def trace_of(users: list[str]) -> Trace:
    rows = [
        {
            "job_id": str(at),
            "submit_time_s": float(at),
            "num_gpus": 1,
            "duration_s": 60.0,
            "user": user,
        }
        for at, user in enumerate(users)
    ]
    return Trace.of(pd.DataFrame(rows), name="made")


def jobs_of(gpus: list[int], ideal_s: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"gpus": np.array(gpus, np.int32), "ideal_s": ideal_s})


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> StudyResults:
    """Three policies on twelve jobs, three repeats with sizes believed at random."""
    store = Store(tmp_path_factory.mktemp("groups") / "store")
    tiny = new_study.sample_study("tiny")
    base = replace(tiny.base, estimator=Spec.of("noisy", sigma=1.5), perf=Spec("rigid"))
    study = Study(base, (Spec("fifo"), Spec("srtf"), Spec("las")), repeats=3)
    trace = load_trace(study.base.trace)
    for at in range(len(study.allocators)):
        for scenario in study.policy_scenarios(at):
            store_result(
                store, scenario_key(scenario, store), scenario, run(scenario, trace=trace), trace
            )
    return outcomes.gather(study, store)


def trace_and_jobs(shown: StudyResults) -> tuple[Trace, pd.DataFrame]:
    return load_trace(shown.study.base.trace), shown.entries[0][0].jobs()


def test_classes_keep_their_order_and_heavy_users_come_first() -> None:
    users = ["ann", "bob", "bob", "cy"]
    found = groups.groupings(trace_of(users), jobs_of([8, 1, 2, 1], [60.0, 7200.0, 7200.0, 600.0]))
    assert found["size"].names == ("1 GPU", "2–4 GPUs", "5–8 GPUs")
    assert found["size"].codes.tolist() == [2, 0, 1, 0]
    # 8 GPUs for a minute are less than 1 and 2 GPUs for two hours, and a little less than 1 GPU for
    # ten minutes.
    assert found["user"].names == ("bob", "cy", "ann")
    assert found["user"].codes.tolist() == [2, 0, 0, 1]
    assert found["length"].names == ("under 10 min", "10 min to 1 h", "1 to 8 h")
    assert found["length"].codes.tolist() == [0, 2, 2, 1]
    assert "gpu_type" not in found


def test_jobs_without_gpus_are_a_class_of_their_own() -> None:
    found = groups.groupings(trace_of(["ann"] * 3), jobs_of([0, 1, 17], [60.0, 60.0, 60.0]))
    assert found["size"].names == ("no GPU", "1 GPU", ">16 GPUs")
    assert found["size"].codes.tolist() == [0, 1, 2]


def test_a_way_with_one_group_is_none() -> None:
    found = groups.groupings(trace_of(["ann", "ann"]), jobs_of([1, 1], [60.0, 7200.0]))
    assert set(found) == {"length"}


def test_many_users_are_capped_and_said() -> None:
    users = [f"u{at:02d}" for at in range(20)]
    found = groups.groupings(
        trace_of(users), jobs_of([1] * 20, [3600.0 * (20 - at) for at in range(20)])
    )["user"]
    assert found.names == (*users[: groups.MAX_GROUPS], "other (8 users)")
    assert found.codes.tolist() == [*range(12), *([12] * 8)]


def test_means_of_groups_are_those_of_their_jobs(
    shown: StudyResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validity, "MIN_JOBS_IN_GROUP", 0)
    monkeypatch.setattr(validity, "MIN_JOBS", 0)
    trace, jobs = trace_and_jobs(shown)
    way = groups.groupings(trace, jobs)["size"]
    found = groups.group_means(shown, way, shown.titles)
    assert found is not None
    assert found.left_out == 0
    table = found.table
    assert list(dict.fromkeys(table["group"])) == list(way.names)
    assert list(dict.fromkeys(table["label"])) == list(shown.titles)
    one = table[
        ((table["group"] == "1 GPU") & (table["label"] == shown.titles[1])).to_numpy()
    ].iloc[0]
    mine = way.codes == way.names.index("1 GPU")
    runs = [entry.jobs() for entry in shown.entries[1]]
    by_hand = np.mean(
        [(frame["finish_s"] - frame["submit_s"]).to_numpy()[mine].mean() for frame in runs]
    )
    assert one["value"] == pytest.approx(by_hand)
    assert one["jobs"] == 3 * mine.sum()
    base = table[
        ((table["group"] == "1 GPU") & (table["label"] == shown.titles[0])).to_numpy()
    ].iloc[0]
    assert one["change"] == pytest.approx(one["value"] / base["value"] - 1)
    # Only a policy that believes sizes differs from repeat to repeat, so only it has an interval.
    assert one["low"] <= one["value"] <= one["high"]
    assert table.loc[(table["label"] != shown.titles[1]).to_numpy(), "low"].isna().all()


def test_waits_of_groups_are_shorter_than_completion_times(shown: StudyResults) -> None:
    way = groups.groupings(*trace_and_jobs(shown))["length"]
    jct, wait = (
        groups.group_means(shown, way, shown.titles[:2], what) for what in groups.GROUP_METRICS
    )
    assert jct is not None
    assert wait is not None
    assert (wait.table["value"] <= jct.table["value"]).all()
    assert set(wait.table["label"]) == set(shown.titles[:2])


def test_jobs_that_one_policy_did_not_complete_are_left_out(
    shown: StudyResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = groups.groupings(*trace_and_jobs(shown))["size"]
    whole = outcomes.outcome

    def dropping(of: StudyResults, at: int) -> Outcome:
        made = whole(of, at)
        return replace(made, measured=(np.arange(12) > 0, *made.measured[1:])) if at == 2 else made

    monkeypatch.setattr(outcomes, "outcome", dropping)
    found = groups.group_means(shown, way, shown.titles)
    assert found is not None
    assert found.left_out == 1


def test_the_finding_is_the_largest_gain_and_the_largest_loss() -> None:
    rows = [("1 GPU", "B", -0.5), ("1 GPU", "C", 0.1), ("8 GPUs", "B", -0.2), ("8 GPUs", "C", 4.0)]
    found = groups.Grouped(pd.DataFrame(rows, columns=["group", "label", "change"]), 1)
    assert (
        found.finding("A", "mean JCT")
        == "Against A, mean JCT falls most under B for 1 GPU: −50\u202f%; it rises most under C for"
        " 8 GPUs: 5.0 times."
    )
    assert found.caption("A", " (2 repeats together)").endswith(
        "policies (2 repeats together). 1 job that not every policy completed is left out."
    )
    none = groups.Grouped(found.table.assign(change=0.0), 0)
    assert none.finding("A", "mean JCT") == "No group's mean JCT differs from that under A."


def test_of_few_jobs_nothing_is_told_in_per_cent(
    shown: StudyResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve jobs, seven of them on one GPU: too few in all, and with ten a group too few in
    each.
    """
    way = groups.groupings(*trace_and_jobs(shown))["size"]
    found = groups.group_means(shown, way, shown.titles)
    assert found is not None
    assert found.table["change"].isna().all()
    assert found.table["value"].notna().all()
    assert found.finding("FIFO", "mean JCT") == "Too few jobs in each group for percentages."
    assert found.caption("FIFO", "").endswith(
        "Groups of fewer than 10 jobs, or of fewer than 30 in all, have no percentages."
    )
    # Twelve jobs are enough for once, and so are as many as the largest group has; the others stay.
    counts = np.bincount(way.codes)
    monkeypatch.setattr(validity, "MIN_JOBS", 12)
    monkeypatch.setattr(validity, "MIN_JOBS_IN_GROUP", int(counts.max()))
    some = groups.group_means(shown, way, shown.titles)
    assert some is not None
    told = some.table.dropna(subset=["change"])
    assert set(told["group"]) == {way.names[at] for at in np.flatnonzero(counts == counts.max())}
    assert some.few


def test_without_the_baseline_nothing_is_grouped(shown: StudyResults) -> None:
    way = groups.groupings(*trace_and_jobs(shown))["size"]
    alone = replace(shown, entries=((), *shown.entries[1:]))
    assert groups.group_means(alone, way, shown.titles) is None


def test_a_table_of_all_jobs_says_what_the_whole_comparison_says(
    shown: StudyResults, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validity, "MIN_JOBS", 1)
    said = outcomes.report(shown, Store(tmp_path_factory.mktemp("empty") / "store"))
    assert said is not None
    trace, _ = trace_and_jobs(shown)
    found = groups.compare_subset(shown, np.ones(12, np.bool_), trace)
    table, counts = found.table, found.counts
    whole = said.table[said.table["metric"].isin(table["metric"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(table, whole)
    assert counts["completed"].tolist() == said.counts["completed"].tolist()
    assert found.headlines.about["SRTF", "jct_mean_s"] == said.about["SRTF", "jct_mean_s"]
    assert found.headline_of("SRTF", "makespan_s") is None
    for title, curve in found.curves.items():
        pd.testing.assert_frame_equal(curve, said.frames["cdf"][title])
    assert not {"makespan_s", "utilisation", "cost_held_per_job_usd"} & set(table["metric"])


def test_a_table_of_one_group_is_about_its_jobs(shown: StudyResults) -> None:
    way = groups.groupings(*trace_and_jobs(shown))["size"]
    table, counts, said, curves = groups.compare_subset(
        shown, way.codes == 0, trace_and_jobs(shown)[0]
    )
    ends = {title: len(curve) for title, curve in curves.items()}
    assert max(ends.values()) < len(way.codes) * 3
    assert all(one.subject != "FIFO" for one in said.first.values())
    found = groups.group_means(shown, way, shown.titles)
    assert found is not None
    means = table[(table["metric"] == "jct_mean_s").to_numpy()].set_index("label")["value"]
    first = found.table[(found.table["group"] == way.names[0]).to_numpy()].set_index("label")[
        "value"
    ]
    assert means.to_dict() == pytest.approx(first.to_dict())
    assert counts["jobs"].tolist() == [3 * int((way.codes == 0).sum())] * 3
