"""Jobs of recurring groups."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from jobtraces.generate import workload
from sim.errors import ParameterError


def made(text: str) -> pd.DataFrame:
    return workload(f"recurring:{text}" if text else "recurring").make().frame


def test_runs_of_a_group_are_alike() -> None:
    frame = made("jobs=20000,skew=0,sigma=1.5")
    groups = frame.groupby("name", observed=True)
    assert len(groups) == 60
    assert (groups[["user", "model", "num_gpus", "spread_slowdown"]].nunique() == 1).all(axis=None)
    logs = np.log(frame["duration_s"])
    centred = logs - logs.groupby(frame["name"], observed=True).transform("mean")
    assert centred.std() == pytest.approx(0.25, abs=0.005)


def test_groups_have_the_declared_statistics() -> None:
    frame = made("jobs=100000,groups=20000,skew=0")
    groups = frame.groupby("name", observed=True).first()
    # Some 19,900 groups occur: standard errors are below 0.01.
    typical = np.log(frame["duration_s"]).groupby(frame["name"], observed=True).mean()
    assert np.exp(typical.median()) == pytest.approx(2 * 3600, rel=0.03)
    assert typical.std() == pytest.approx(1.0, abs=0.03)
    counts = groups["num_gpus"].value_counts(normalize=True).sort_index()
    assert counts.to_numpy() == pytest.approx(np.array([4, 2, 2, 2, 1, 1]) / 12, abs=0.012)
    slowdowns = groups["spread_slowdown"].value_counts(normalize=True).sort_index()
    assert slowdowns.index.tolist() == [1.05, 1.2, 1.5, 2.0, 2.5, 3.5]
    assert slowdowns.to_numpy() == pytest.approx(np.full(6, 1 / 6), abs=0.012)
    assert groups["user"].nunique() == 20
    assert groups["model"].nunique() == 5


def test_frequent_groups_follow_the_skew() -> None:
    counts = made("jobs=200000,groups=4,skew=1")["name"].value_counts(normalize=True)
    assert counts[[f"group-00{at}" for at in (1, 2, 3, 4)]].to_numpy() == pytest.approx(
        np.array([12, 6, 4, 3]) / 25, abs=0.005
    )


def test_the_load_is_what_is_asked_for_over_what_there_is() -> None:
    chosen = workload("recurring:load=0.9,servers=5,gpus_per_server=8,jobs=300")
    trace = chosen.make()
    assert chosen.machines().gpus == 40
    assert trace.gpu_seconds / (40 * trace.span_s) == pytest.approx(0.9)


def test_another_load_brings_the_same_jobs_at_scaled_times() -> None:
    low, high = made("load=0.9,seed=3"), made("load=1.8,seed=3")
    assert np.allclose(low["submit_time_s"], 2 * high["submit_time_s"], rtol=0, atol=2e-6)
    pd.testing.assert_frame_equal(
        low.drop(columns="submit_time_s"), high.drop(columns="submit_time_s")
    )


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ("slowdowns=2", {"spread_slowdown"}),
        ("users=3", {"user"}),
        ("gangs=1/2/4/8/16/40,servers=25", {"num_gpus", "submit_time_s"}),
        ("within=0.5", {"duration_s", "submit_time_s"}),
        ("median_h=1", {"duration_s", "submit_time_s"}),
    ],
)
def test_a_parameter_changes_its_own_column_and_the_times_that_the_load_asks_for(
    change: str, columns: set[str]
) -> None:
    plain, other = made(""), made(change)
    assert {
        name for name in plain if not plain[name].astype("str").equals(other[name].astype("str"))
    } == columns


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gangs=1/2", "recurring: shares must be 2 numbers, one per gang size, not all 0."),
        (
            "gangs=1/2,shares=0/0",
            "recurring: shares must be 2 numbers, one per gang size, not all 0.",
        ),
        (
            "gangs=1/2.5,shares=1/1",
            "recurring: gangs must be whole numbers of GPUs, at most the 200 of the cluster.",
        ),
        (
            "servers=3",
            "recurring: gangs must be whole numbers of GPUs, at most the 24 of the cluster.",
        ),
        ("slowdowns=0.5", "slowdowns"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence.replace(".", r"\.")):
        workload(f"recurring:{text}")
