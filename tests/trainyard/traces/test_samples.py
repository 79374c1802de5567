from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from jobtraces.generate import PROFILES
from jobtraces.generate.workload import gpus_by_type
from sim.cluster import Cluster
from sim.errors import TraceError
from trainyard.traces.samples import (
    SAMPLES,
    SAMPLES_FOLDER,
    load_sample,
    make_sample,
    write_sample,
    write_trace,
)

GENERATED = [name for name, sample in SAMPLES.items() if sample.recipe]


@pytest.mark.parametrize("name", GENERATED)
def test_a_sample_is_what_its_recipe_makes(name: str) -> None:
    shipped, cluster = load_sample(name)
    made, same_cluster = make_sample(name)
    assert made.digest == shipped.digest
    assert made.epoch == shipped.epoch
    assert (cluster, cluster.name) == (same_cluster, same_cluster.name)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_can_be_simulated_and_queues(name: str) -> None:
    trace, cluster = load_sample(name)
    assert 0.8 <= trace.gpu_seconds / (cluster.gpus * trace.span_s) <= 0.95
    assert trace.frame["num_gpus"].max() <= max(gpus_by_type(cluster).values())
    assert set(trace.frame["gpu_type"].cat.categories) <= set(gpus_by_type(cluster))
    wait = trace.frame["start_time_s"] - trace.frame["submit_time_s"]
    assert 0.5 < wait.mean() / trace.frame["duration_s"].mean() < 2


@pytest.mark.parametrize("name", GENERATED)
def test_no_run_time_is_crowded_near_the_longest_one_allowed(name: str) -> None:
    trace, _ = load_sample(name)
    recipe = SAMPLES[name].recipe
    assert recipe
    cap_s = PROFILES[recipe.profile].cap_s
    run = trace.frame["duration_s"]
    assert 0.9 * cap_s < run.max() <= cap_s
    assert run[run > cap_s / 2].value_counts().max() <= 0.01 * len(run)
    assert (run > 0.98 * cap_s).mean() <= 0.02


@pytest.mark.parametrize("name", GENERATED)
def test_statuses_are_words_of_the_readers(name: str) -> None:
    assert set(load_sample(name)[0].frame["status"].cat.categories) == {
        "completed",
        "cancelled",
        "failed",
    }


@pytest.mark.parametrize("name", SAMPLES)
def test_the_recorded_history_is_feasible(name: str) -> None:
    trace, cluster = load_sample(name)
    for kind, size in gpus_by_type(cluster).items():
        mine = trace.frame[trace.frame["gpu_type"] == kind]
        ends = pd.DataFrame({"at": mine["end_time_s"], "gpus": -mine["num_gpus"]})
        steps = pd.concat(
            (pd.DataFrame({"at": mine["start_time_s"], "gpus": mine["num_gpus"]}), ends)
        ).sort_values(["at", "gpus"])
        assert steps["gpus"].cumsum().max() <= size


def test_the_jobs_and_days_that_were_promised() -> None:
    sizes = {name: len(load_sample(name)[0]) for name in SAMPLES}
    assert sizes == {
        "week": 1200,
        "tiny": 12,
        "philly-like": 10_000,
        "venus-like": 10_000,
        "pai-like": 10_000,
    }
    week, cluster = load_sample("week")
    assert week.span_s == 7 * 86_400
    assert sorted(gpus_by_type(cluster)) == ["a100", "v100"]
    assert week.has("model")


def test_tiny_starts_are_strict_first_come_first_served() -> None:
    """The schedule of the README, in steps of 600 s: J3 wants the whole node, so J4 to J6 wait
    behind it; J8 does the same to J9 to J11.
    """
    trace, cluster = load_sample("tiny")
    assert cluster.gpus == 8
    starts = dict(zip(trace.frame["job_id"], trace.frame["start_time_s"] / 600, strict=True))
    assert starts == {
        "J1": 0,
        "J2": 0,
        "J3": 6,
        "J4": 8,
        "J5": 8,
        "J6": 8,
        "J7": 8,
        "J8": 12,
        "J9": 13,
        "J10": 13,
        "J11": 13,
        "J12": 14,
    }


def test_the_readme_names_every_sample_with_its_command() -> None:
    text = (SAMPLES_FOLDER / "README.md").read_text(encoding="utf-8")
    for name, sample in SAMPLES.items():
        assert f"## {name}" in text
        if sample.recipe:
            assert f"python -m trainyard generate {' '.join(sample.recipe.arguments)}" in text


def test_the_samples_stay_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLES_FOLDER.iterdir()) < 3_000_000


def test_a_sample_can_be_written_again(tmp_path: Path) -> None:
    jobs, machines = write_sample("week", tmp_path)
    shipped, cluster = load_sample("week")
    assert pd.read_parquet(jobs).attrs == {"epoch": shipped.epoch}
    assert Cluster.from_json(json.loads(machines.read_text(encoding="utf-8"))) == cluster


def test_a_trace_can_be_written_as_csv(tmp_path: Path) -> None:
    trace, _ = load_sample("tiny")
    write_trace(trace, tmp_path / "again.csv")
    assert (
        (tmp_path / "again.csv")
        .read_text(encoding="utf-8")
        .startswith("job_id,submit_time_s,num_gpus,duration_s,start_time_s")
    )


def test_wrong_names_and_missing_files_get_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(TraceError, match="no sample 'nope'"):
        load_sample("nope")
    with pytest.raises(TraceError, match="written by hand"):
        make_sample("tiny")
    monkeypatch.setattr("trainyard.traces.samples.SAMPLES_FOLDER", tmp_path)
    with pytest.raises(TraceError, match="is missing"):
        load_sample("week")
