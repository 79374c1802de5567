from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import trainyard as ty
from sim.errors import ParameterError, TraceError
from sim.trace import CATEGORIES, TEXTS, Trace
from trainyard.cli.main import main
from trainyard.store import Store
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.settings import with_settings
from trainyard.traces import bundle, new_study, sampling
from trainyard.traces.sampling import sample_jobs, sample_users, stratified_ranks
from trainyard.traces.sources import apply_changes, load_trace

USERS = pd.Series(["ann", "bob", None, "ann", "cy", "bob", "dee", None])


def test_one_user_in_n_is_kept_with_all_jobs() -> None:
    kept = sample_users(USERS, 2, 0)
    groups = [set(kept[USERS.fillna("") == name]) for name in ("ann", "bob", "cy", "dee", "")]
    assert all(len(group) == 1 for group in groups)
    assert sum(group == {True} for group in groups) == 3
    assert list(sample_users(USERS.iloc[::-1], 2, 0)) == list(kept[::-1])
    assert sample_users(USERS, 1, 0).all()
    assert len(set(USERS.fillna("")[sample_users(USERS, 99, 0)])) == 1


def test_the_draw_is_the_same_everywhere_and_another_seed_draws_others() -> None:
    ids = [f"job {at}" for at in range(1000)]
    few, more = sample_jobs(ids, 10, 0), sample_jobs(ids, 100, 0)
    assert (few.sum(), more.sum(), sample_jobs(ids, 5000, 0).sum()) == (10, 100, 1000)
    assert not (few & ~more).any()
    assert (more & sample_jobs(ids, 100, 1)).sum() < 30
    assert list(np.flatnonzero(few)) == [132, 218, 228, 393, 396, 558, 619, 785, 799, 996]


def test_users_are_numbered_in_the_order_of_their_first_job() -> None:
    frame = pd.DataFrame({"job_id": range(len(USERS)), "user": USERS})
    names = sampling.anonymize(frame)["user"]
    assert list(names.fillna("-")) == [
        "user 1",
        "user 2",
        "-",
        "user 1",
        "user 3",
        "user 2",
        "user 4",
        "-",
    ]


def test_a_part_of_the_jobs_has_no_history(trace: Trace) -> None:
    part = apply_changes(trace, TraceSpec("x", sample=2))
    assert len(part) == 2
    assert part.span_s > 0
    assert not part.has("start_time_s")
    assert apply_changes(trace, TraceSpec("x", sample=99)).digest == trace.digest


def test_the_window_comes_first_and_the_load_last(trace: Trace) -> None:
    window = apply_changes(trace, TraceSpec("x", from_s=10.0, sample=2))
    whole = apply_changes(trace, TraceSpec("x", from_s=10.0, sample=2, load=2.0))
    assert list(whole.frame["job_id"]) == list(window.frame["job_id"])
    assert np.allclose(whole.frame["submit_time_s"], window.frame["submit_time_s"] / 2)


def test_renamed_users_keep_their_history_and_their_jobs() -> None:
    whole, hidden = (
        load_trace(TraceSpec("sample:week")),
        load_trace(TraceSpec("sample:week", anonymise=True)),
    )
    assert set(hidden.frame["user"].unique()) == {
        f"user {at}" for at in range(1, whole.frame["user"].nunique() + 1)
    }
    pairs = pd.DataFrame(
        {"was": whole.frame["user"], "now": hidden.frame["user"]}
    ).drop_duplicates()
    assert pairs["was"].is_unique
    assert pairs["now"].is_unique
    assert hidden.has("start_time_s") == whole.has("start_time_s")


def test_users_of_a_trace_without_users_cannot_be_chosen(trace: Trace) -> None:
    bare = Trace.of(trace.frame.drop(columns="user", errors="ignore"), name="bare")
    with pytest.raises(TraceError, match="bare: the trace has no users"):
        apply_changes(bare, TraceSpec("x", every_user=2))


def test_what_is_not_done_is_not_written_so_that_keys_stay(scenario: Scenario) -> None:
    plain = TraceSpec("sample:tiny")
    assert plain.to_json() == {
        "source": "sample:tiny",
        "fmt": "",
        "read": {},
        "from_s": 0.0,
        "to_s": None,
        "load": 1.0,
    }
    assert TraceSpec("sample:tiny", sample_seed=7) == plain
    again = TraceSpec.from_json(
        {**plain.to_json(), "every_user": 1, "sample": 0, "sample_seed": 0, "anonymise": False}
    )
    assert again == plain
    thin = TraceSpec("sample:tiny", every_user=2, sample=3, sample_seed=1, anonymise=True)
    assert TraceSpec.from_json(thin.to_json()) == thin


def test_a_setting_on_the_command_line_draws_a_sample(scenario: Scenario) -> None:
    made = Scenario.from_json(
        with_settings(
            scenario.to_json(),
            ["trace.sample=3", "trace.sample_seed=2", "trace.anonymise=true", "trace.every_user=2"],
        )
    )
    assert made.trace == TraceSpec(
        scenario.trace.source, sample=3, sample_seed=2, anonymise=True, every_user=2
    )
    assert made.key("d" * 32) != scenario.key("d" * 32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample": -1}, "trace.sample = -1 is not a whole number"),
        ({"sample": 1.5}, "trace.sample = 1.5 is not a whole number"),
        ({"every_user": 0}, "keeps no user"),
        ({"anonymise": "yes"}, "neither true nor false"),
        ({"load_by": "speed"}, "trace.load_by = speed is not one of pace, jobs"),
    ],
)
def test_unusable_values_are_one_sentence(change: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        TraceSpec.from_json({"source": "sample:tiny", **change})


BUSY = TraceSpec("sample:philly-like")
"""The sample of 10,000 jobs."""


def offered(trace: Trace) -> float:
    return trace.gpu_seconds / trace.span_s


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8, 0.95, 1.3, 2.0, 2.75])
def test_a_load_by_jobs_is_offered_within_two_percent(load: float) -> None:
    whole, made = load_trace(BUSY), load_trace(replace(BUSY, load=load, load_by="jobs"))
    assert offered(made) == pytest.approx(load * offered(whole), rel=0.02)
    assert len(made) == pytest.approx(load * len(whole), abs=2)
    assert made.span_s == pytest.approx(whole.span_s, rel=0.01)
    assert not made.has("start_time_s")


def test_a_smaller_load_is_a_part_of_a_larger_one() -> None:
    ids = [
        set(load_trace(replace(BUSY, load=load, load_by="jobs")).frame["job_id"])
        for load in (0.2, 0.5, 0.9, 1.0, 1.4, 2.0, 2.1)
    ]
    assert all(less < more for less, more in pairwise(ids))


def test_another_draw_has_other_jobs_at_the_same_load() -> None:
    first, second = (
        load_trace(replace(BUSY, load=0.5, load_by="jobs", sample_seed=seed)) for seed in (0, 1)
    )
    common = len(set(first.frame["job_id"]) & set(second.frame["job_id"]))
    assert 0.4 < common / len(first) < 0.6
    assert first.digest == load_trace(replace(BUSY, load=0.5, load_by="jobs")).digest


def test_copies_are_the_same_jobs_at_other_times_of_the_same_span() -> None:
    jobs = {
        "job_id": ["a", "b+1", "c"],
        "submit_time_s": [0.0, 10.0, 40.0],
        "num_gpus": [1, 2, 4],
        "duration_s": 5.0,
        "user": ["x", "y", "x"],
    }
    one = Trace.of(
        pd.DataFrame(jobs | {"deadline_s": [8.0, 30.0, 100.0], "start_time_s": [0.0, 10.0, 40.0]})
    )
    two = apply_changes(one, TraceSpec("x", load=2.0, load_by="jobs")).frame.set_index("job_id")
    assert set(two.index) == {"a", "b+1", "c", "a++1", "b+1++1", "c++1"}
    assert list(two.loc[["a", "b+1", "c"], "submit_time_s"]) == [0.0, 10.0, 40.0]
    copies = two.loc[["a++1", "b+1++1", "c++1"]]
    assert copies["submit_time_s"].between(0, 40, inclusive="left").all()
    apart = np.mod(copies["submit_time_s"].to_numpy() - np.array([0.0, 10.0, 40.0]), 40.0)
    assert np.allclose(apart, apart[0])
    assert apart[0] > 0
    assert list(two["deadline_s"] - two["submit_time_s"]) == pytest.approx(
        [{"a": 8.0, "b": 20.0, "c": 60.0}[name[0]] for name in two.index]
    )
    assert list(copies["user"]) == ["x", "y", "x"]
    assert "start_time_s" not in two


def test_jobs_that_all_come_at_once_are_copied_where_they_are() -> None:
    one = Trace.of(
        pd.DataFrame({"job_id": ["a", "b"], "submit_time_s": 0.0, "num_gpus": 1, "duration_s": 5.0})
    )
    assert apply_changes(one, TraceSpec("x", load=3.0, load_by="jobs")).gpu_seconds == 30.0


def test_a_load_that_leaves_no_job_is_one_sentence() -> None:
    one = Trace.of(
        pd.DataFrame(
            {"job_id": ["a", "b", "c"], "submit_time_s": 0.0, "num_gpus": 1, "duration_s": 5.0}
        )
    )
    unlucky = next(seed for seed in range(99) if stratified_ranks(one.frame, seed).min() > 0)
    with pytest.raises(TraceError, match=r"a load of 0\.001 leaves none of the 3 jobs"):
        apply_changes(one, TraceSpec("x", load=0.001, load_by="jobs", sample_seed=unlucky))


def test_ranks_halve_the_work_again_and_again() -> None:
    frame = pd.DataFrame(
        {
            "job_id": [f"j{at}" for at in range(64)],
            "num_gpus": 1,
            "duration_s": np.arange(64, 0, -1.0),
        }
    )
    found = stratified_ranks(frame, 0)
    assert sorted(found * 64) == list(range(64))
    for part in (1 / 2, 1 / 4, 1 / 8):
        # Of each run of 1/part neighbours in size there is one.
        assert (np.flatnonzero(found < part) // (1 / part)).tolist() == list(range(int(64 * part)))


def test_a_load_by_pace_is_not_written_and_one_of_1_has_the_key_of_the_trace_itself(
    scenario: Scenario,
) -> None:
    assert "load_by" not in TraceSpec("sample:tiny", load=2.0).to_json()
    by_jobs = Scenario.from_json(
        with_settings(scenario.to_json(), ["trace.load_by=jobs", "trace.sample_seed=4"])
    )
    assert by_jobs.trace == TraceSpec(scenario.trace.source, load_by="jobs", sample_seed=4)
    assert TraceSpec.from_json(by_jobs.trace.to_json()) == by_jobs.trace
    assert by_jobs.key("d" * 32) == scenario.key("d" * 32)
    more, pace = (
        Scenario.from_json(with_settings(one.to_json(), ["trace.load=2"]))
        for one in (by_jobs, scenario)
    )
    assert more.key("d" * 32) != pace.key("d" * 32)


def named_jobs() -> Trace:
    return Trace.of(
        pd.DataFrame(
            {
                "job_id": ["prod-9", "prod-7", "prod-8"],
                "submit_time_s": [0.0, 10.0, 20.0],
                "num_gpus": 1,
                "duration_s": [60.0, 70.0, 80.0],
                "user": ["anna", None, "anna"],
                "vc": ["lab-b", "lab-a", "lab-b"],
                "partition": ["gpu-secret", "gpu-secret", None],
                "name": ["train-x", "train-y", "train-x"],
                "account": ["acct-q", "acct-q", "acct-r"],
                "dependency": [None, "afterok:prod-9:prod-99", "singleton"],
                "node_list": ["node-1", "node-2", "node-3"],
                "model": ["ResNet-50", "ResNet-50", "ResNet-50"],
            }
        ),
        name="acme-corp.csv",
        epoch="2024-01-01T00:00:00",
    )


def test_hidden_names_are_numbers_and_equal_ones_stay_equal() -> None:
    hidden = apply_changes(named_jobs(), TraceSpec("x", anonymise=True))
    frame = hidden.frame.astype("object").where(hidden.frame.notna(), None)
    assert frame["job_id"].tolist() == ["1", "2", "3"]
    assert frame["user"].tolist() == ["user 1", None, "user 1"]
    assert frame["vc"].tolist() == ["vc 1", "vc 2", "vc 1"]
    assert frame["partition"].tolist() == ["partition 1", "partition 1", None]
    assert frame["name"].tolist() == ["name 1", "name 2", "name 1"]
    assert frame["account"].tolist() == ["account 1", "account 1", "account 2"]
    assert frame["dependency"].tolist() == [None, "afterok:1:unknown", "singleton"]
    assert frame["model"].tolist() == ["ResNet-50"] * 3
    assert frame["duration_s"].tolist() == [60.0, 70.0, 80.0]
    assert not hidden.has("node_list")
    assert (hidden.name, hidden.epoch) == ("Anonymised trace", "2024-01-01T00:00:00")


def test_every_text_that_a_site_chooses_is_hidden() -> None:
    # Models and GPU types decide how fast jobs run, outcomes and flags are words of the scheduler.
    stay = {"status", "model", "gpu_type", "gpu_types_allowed", "exclusive", "durations_by_type"}
    gone = {"node_list", "dependency", "job_id"}
    assert {*CATEGORIES, *TEXTS} == stay | gone | sampling.NUMBERED_COLUMNS.keys()


def test_results_of_the_former_choice_are_not_taken_for_those_without_ids() -> None:
    hidden = TraceSpec("sample:tiny", anonymise=True)
    assert hidden.hashed_changes()["anonymise"] == "all names"
    assert "anonymise" not in TraceSpec("sample:tiny").hashed_changes()
    assert hidden.to_json()["anonymise"] is True


def test_no_file_that_is_passed_on_holds_a_hidden_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "acme-corp.csv", tmp_path / "out.csv"
    named_jobs().frame.to_csv(file, index=False)
    assert main(["convert", str(file), "--anonymise", "--out", str(out)]) == 0
    secret = ("prod-", "anna", "lab-", "secret", "train-", "acct", "node-")
    assert not [name for name in secret if name in out.read_text()]
    capsys.readouterr()
    both = ["convert", str(file), "--anonymise", "--out", str(out), "--report", "rows.csv"]
    assert main(both) == 2
    assert "--report contains ids and cells" in capsys.readouterr().err
    frame = ty.read_trace(file, anonymise=True).to_frame()
    assert frame["job_id"].tolist() == ["1", "2", "3"]


def test_an_archive_of_hidden_names_holds_the_hidden_jobs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    digest = store.put_trace(named_jobs(), {"format": "native", "file": "acme-corp.csv"})
    spec = TraceSpec(f"store:{digest}", anonymise=True)
    study = new_study.sample_study("tiny")
    study = replace(study, base=replace(study.base, trace=spec))
    data = bundle.scenario_archive(study, store)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        text = b"".join(file.read(name) for name in ("scenario.json", "trace.json"))
        jobs = pd.read_parquet(io.BytesIO(file.read("trace.parquet")))
    assert jobs["user"].dropna().unique().tolist() == ["user 1"]
    assert b"acme" not in text
    opened = bundle.open_scenario_file(data, "x.zip", study, Store(tmp_path / "elsewhere"))
    assert not opened.study.base.trace.anonymise
    assert len(load_trace(opened.study.base.trace, Store(tmp_path / "elsewhere"))) == 3
