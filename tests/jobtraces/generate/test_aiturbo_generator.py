"""Workloads after AITurbo: the published run times, sizes and shares of predictable jobs, and that
parameters change what they name only.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

from jobtraces.generate import canonical, workload
from jobtraces.generate.aiturbo import BATCHES
from sim.errors import ParameterError
from sim.perf.steps import ROWS

MANY = 40_000
PUBLISHED_JOBS = 7811
"""Jobs of the data set that have servers."""


def made(text: str) -> pd.DataFrame:
    return workload(f"aiturbo:{text}" if text else "aiturbo").make().frame


def close(found: pd.Series, median_s: float, sigma: float, shares: tuple[float, ...]) -> None:
    for share in shares:
        z = NormalDist().inv_cdf(share)
        # Four standard errors of a quantile of a normal variable, that is of the logarithm.
        error = 4 * sigma * math.sqrt(share * (1 - share) / len(found)) / NormalDist().pdf(z)
        assert math.log(found.quantile(share)) == pytest.approx(
            math.log(median_s) + sigma * z, abs=error
        )


@pytest.fixture(scope="module")
def first() -> pd.DataFrame:
    return made(f"jobs={MANY}")


def test_run_times_have_the_published_quantiles(first: pd.DataFrame) -> None:
    never = first["predictable_after"] > 1
    # Beyond the 90th percentile the clip at 24.8 h begins.
    close(first.loc[~never, "duration_s"], math.exp(8.59), 1.71, (0.05, 0.1, 0.25, 0.5, 0.75, 0.9))
    close(first.loc[never, "duration_s"], math.exp(5.83), 1.60, (0.1, 0.25, 0.5, 0.75, 0.9))
    assert first.loc[~never, "duration_s"].between(16, 89_145).all()
    assert first.loc[never, "duration_s"].between(2, 53_350).all()
    gpu_s = first["num_gpus"] * first["duration_s"]
    # Published: 15 % of the jobs and 2 % of the GPU-seconds.
    assert gpu_s[never].sum() / gpu_s.sum() == pytest.approx(0.02, abs=0.01)


def test_the_second_workload_has_one_run_time_for_all() -> None:
    frame = made(f"workload=w2,jobs={MANY},unpredictable=0.5")
    late = frame["predictable_after"] > 0
    for part in (frame[late], frame[~late]):
        close(part["duration_s"], 45 * 60, 1.2, (0.05, 0.25, 0.5, 0.75, 0.95))
    assert frame["duration_s"].between(120, 86_400).all()


def test_sizes_have_the_weights_of_the_data_set(first: pd.DataFrame) -> None:
    counts = first.groupby(["servers", "workers"]).size() / MANY
    published = {
        (2, 2): 2232,
        (1, 2): 1239,
        (2, 4): 912,
        (2, 1): 903,
        (3, 3): 713,
        (4, 2): 543,
        (2, 6): 522,
        (1, 1): 437,
        (2, 3): 310,
    }
    assert set(counts.index) == set(published)
    for pair, jobs in published.items():
        share = jobs / PUBLISHED_JOBS
        assert counts[pair] == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / MANY))
    assert (first["num_gpus"] == first["workers"]).all()
    assert (first["cpus"] == first["workers"] + 5 * first["servers"]).all()


def test_models_are_uniform_with_their_batch_sizes(first: pd.DataFrame) -> None:
    shares = first["model"].value_counts(normalize=True)
    assert set(shares.index) == set(BATCHES)
    assert np.allclose(shares, 1 / 8, atol=4 * math.sqrt(7 / 64 / MANY))
    assert (first["batch_size"] == first["model"].astype(str).map(BATCHES)).all()
    assert {name: ROWS[name].batch for name in BATCHES} == BATCHES


@pytest.mark.parametrize(
    ("text", "jobs", "gap_s"),
    [
        ("", 200, 1000),
        ("workload=w2", 150, 200),
        ("workload=w2,gap_s=150", 150, 150),
        ("gap_s=1400", 200, 1400),
    ],
)
def test_each_workload_has_its_own_jobs_and_gaps(text: str, jobs: int, gap_s: float) -> None:
    assert len(made(text)) == jobs
    gaps = np.diff(made(f"{text},jobs={MANY}" if text else f"jobs={MANY}")["submit_time_s"])
    assert gaps.mean() == pytest.approx(gap_s, rel=4 / math.sqrt(MANY))
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.03)


def test_shares_of_jobs_that_can_be_told_late_or_never() -> None:
    for text, share, later in (
        ("", 0.15, 0.0),
        ("workload=w2", 0.15, 0.4),
        ("workload=w2,unpredictable=1", 1.0, 0.4),
        ("unpredictable=0.5,later=1", 0.5, 1.0),
    ):
        after = made(f"jobs={MANY},{text}".rstrip(","))["predictable_after"]
        unknown = after[after > 0]
        assert len(unknown) / MANY == pytest.approx(
            share, abs=4 * math.sqrt(share * (1 - share) / MANY)
        )
        late = unknown[unknown <= 1]
        assert len(late) / len(unknown) == pytest.approx(
            later, abs=4 * math.sqrt(later * (1 - later) / len(unknown))
        )
        if len(late):
            assert late.between(0.2, 0.9).all()
            assert late.mean() == pytest.approx(0.55, abs=4 * 0.7 / math.sqrt(12 * len(late)))


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ("unpredictable=0.5", {"predictable_after", "duration_s"}),
        ("workload=w2,unpredictable=0.5", {"predictable_after", "duration_s", "submit_time_s"}),
        ("asynchronous=0.5", {"asynchronous"}),
        ("later=0.4", {"predictable_after"}),
        ("gap_s=1400", {"submit_time_s"}),
        ("cores=20", set()),
    ],
)
def test_a_parameter_changes_what_it_names_only(change: str, columns: set[str]) -> None:
    plain, other = made("jobs=200"), made(f"jobs=200,{change}")
    assert {
        name for name in plain if not plain[name].astype("str").equals(other[name].astype("str"))
    } == columns


def test_more_unpredictable_jobs_are_the_same_and_others() -> None:
    few, more = (made(f"workload=w2,jobs=2000,unpredictable={share}") for share in (0.15, 0.5))
    was = few["predictable_after"] > 0
    assert was.sum() > 200
    assert (few.loc[was, "predictable_after"] == more.loc[was, "predictable_after"]).all()
    assert few["duration_s"].equals(more["duration_s"])


def test_fewer_jobs_are_the_first_of_more() -> None:
    pd.testing.assert_frame_equal(
        made("jobs=7,seed=3"), made("jobs=12,seed=3").head(7), check_categorical=False
    )


def test_the_machines_are_one_node_of_16_gpus() -> None:
    for text, cores in (("aiturbo", 480), ("aiturbo:cores=20", 320)):
        (node,) = workload(text).machines().nodes
        assert (node.gpus, node.cpus) == (16, cores)


def test_equal_choices_are_written_alike() -> None:
    assert (
        canonical("aiturbo:seed=3,workload=w1,unpredictable=0.50,cores=30")
        == canonical("aiturbo:unpredictable=.5,seed=3")
        == "aiturbo:seed=3,unpredictable=0.5"
    )


@pytest.mark.parametrize(
    "text", ["workload=w3", "unpredictable=1.5", "cores=0", "gap_s=-1", "later=2", "jobs=-1"]
)
def test_figures_out_of_bounds_are_refused(text: str) -> None:
    with pytest.raises(ParameterError, match=text.split("=", maxsplit=1)[0]):
        made(text)
