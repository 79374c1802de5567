from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobtraces.generate import PROFILES, WORKLOADS, canonical, workload
from jobtraces.generate.elastic import CLASSES, BatchJobs, ElasticNodes
from sim.errors import ParameterError, TraceError, TrainyardError
from sim.params import parameters
from sim.trace import Trace
from trainyard.traces.samples import SAMPLES, load_sample

SEEDS = range(60)
REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


def pooled(text: str) -> pd.DataFrame:
    return pd.concat(
        [
            workload(f"{text}{',' if ':' in text else ':'}seed={seed}").make().frame
            for seed in SEEDS
        ],
        ignore_index=True,
    )


def made(text: str) -> Trace:
    return workload(text).make()


@pytest.fixture(scope="module")
def nodes() -> pd.DataFrame:
    return pooled("elastic-nodes")


def test_elastic_nodes_have_the_declared_distributions(nodes: pd.DataFrame) -> None:
    jobs = len(nodes)
    assert jobs == 200 * len(SEEDS)
    gaps = nodes.groupby(np.arange(jobs) // 200)["submit_time_s"].last() / 199
    # 60 x 199 exponential gaps of mean 360 s: the standard error of their mean is 360 /
    # sqrt(11,940) = 3.3 s.
    assert gaps.mean() == pytest.approx(360, abs=12)
    log = np.log(nodes["duration_s"] / 3600)
    assert log.median() == pytest.approx(0, abs=4 * 1.2 * 1.25 / jobs**0.5)
    # Clipping at 2 min (-2.8 sigma) and 48 h (3.2 sigma) hardly touches the quartiles.
    assert log.quantile(0.75) - log.quantile(0.25) == pytest.approx(2 * 0.6745 * 1.2, rel=0.04)
    assert nodes["duration_s"].between(120, 48 * 3600).all()
    assert (nodes["duration_s"] == 120).mean() == pytest.approx(0.0023, abs=0.002)
    assert nodes["scaling_exponent"].between(0.55, 0.95).all()
    assert nodes["scaling_exponent"].mean() == pytest.approx(0.75, abs=0.005)
    assert nodes["scaling_exponent"].std() == pytest.approx(0.4 / 12**0.5, rel=0.03)


def test_elastic_nodes_ask_for_one_node_and_may_take_more(nodes: pd.DataFrame) -> None:
    assert set(nodes["num_gpus"]) == set(nodes["min_gpus"]) == {8}
    shares = nodes["max_gpus"].value_counts(normalize=True)
    assert sorted(shares.index) == [32, 64, 128]
    assert np.allclose(shares, 1 / 3, atol=0.02)
    four = made("elastic-nodes:gpus_per_node=4,most_nodes=3,jobs=5").frame
    assert (set(four["num_gpus"]), set(four["max_gpus"])) == ({4}, {12})


def test_gaps_are_exponential_and_independent(nodes: pd.DataFrame) -> None:
    gaps = nodes["submit_time_s"].to_numpy().reshape(len(SEEDS), 200)
    gaps = np.diff(gaps, axis=1)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.04)
    assert abs(np.corrcoef(gaps[:, :-1].ravel(), gaps[:, 1:].ravel())[0, 1]) < 0.04


def test_batch_jobs_are_a_poisson_process() -> None:
    counts = np.array([len(made(f"batch-jobs:seed={seed}")) for seed in range(200)])
    # Mean 1.5 x 60 x 8 = 720; the variance equals the mean, so the standard error of the mean of
    # 200 is 1.9.
    assert counts.mean() == pytest.approx(720, abs=7)
    assert counts.var() / 720 == pytest.approx(1, abs=0.4)
    assert all(made(f"batch-jobs:seed={seed}").span_s < 8 * 3600 for seed in range(10))


def test_batch_jobs_have_the_declared_distributions() -> None:
    frame = pooled("batch-jobs")
    hours = frame["duration_s"] / 3600
    assert hours.between(0.2, 2).all()
    assert hours.mean() == pytest.approx(1.1, abs=0.01)
    assert hours.std() == pytest.approx(1.8 / 12**0.5, rel=0.02)
    shares = frame["model"].value_counts(normalize=True)
    assert set(shares.index) == set(CLASSES)
    assert np.allclose(shares, 0.25, atol=0.01)
    assert (set(frame["num_gpus"]), set(frame["min_gpus"]), set(frame["max_gpus"])) == (
        {1},
        {1},
        {10},
    )


def test_shares_decide_how_frequent_a_class_is() -> None:
    frame = made("batch-jobs:shares=3/0/1/0,hours=100").frame
    assert set(frame["model"]) == {"compute", "balanced"}
    assert (frame["model"] == "compute").mean() == pytest.approx(0.75, abs=0.02)


def test_bursts_alternate_by_the_hour_around_the_same_mean() -> None:
    # Counted from the first job, which comes some seconds after the window begins.
    frame = pooled("batch-jobs:burst=1.8,per_min=5")
    hour = (frame["submit_time_s"] // 3600).astype(int) % 2
    assert len(frame) / len(SEEDS) == pytest.approx(5 * 60 * 8, rel=0.01)
    assert (hour == 0).mean() == pytest.approx(0.9, abs=0.005)
    silent = made("batch-jobs:burst=2,per_min=5,hours=2").frame
    assert silent["submit_time_s"].max() < 3600


def test_another_rate_brings_the_same_jobs_at_scaled_times() -> None:
    slow, fast = (
        made("elastic-nodes:seed=4,per_h=8").frame,
        made("elastic-nodes:seed=4,per_h=12").frame,
    )
    assert np.allclose(fast["submit_time_s"] * 1.5, slow["submit_time_s"], rtol=0, atol=2e-6)
    pd.testing.assert_frame_equal(
        slow.drop(columns="submit_time_s"), fast.drop(columns="submit_time_s")
    )


@pytest.mark.parametrize("more", ["hours=16", "per_min=3"])
def test_a_longer_or_denser_window_begins_with_the_same_jobs(more: str) -> None:
    first, longer = made("batch-jobs:seed=4").frame, made(f"batch-jobs:seed=4,{more}").frame
    jobs = len(first)
    assert len(longer) > 1.7 * jobs
    pd.testing.assert_frame_equal(
        first.drop(columns="submit_time_s"), longer.head(jobs).drop(columns="submit_time_s")
    )
    scale = 2 if "per_min" in more else 1
    assert np.allclose(
        longer["submit_time_s"].head(jobs) * scale, first["submit_time_s"], rtol=1e-9, atol=1e-6
    )


@pytest.mark.parametrize(
    ("base", "change", "columns"),
    [
        ("elastic-nodes", "sigma=2", {"duration_s"}),
        ("elastic-nodes", "exponent_low=0.3", {"scaling_exponent"}),
        ("elastic-nodes", "most_nodes=2/32", {"max_gpus"}),
        ("batch-jobs", "shares=1/0/0/0", {"model"}),
        ("batch-jobs", "longest_h=3", {"duration_s"}),
        ("batch-jobs", "most_gpus=4", {"max_gpus"}),
    ],
)
def test_a_parameter_changes_its_own_column_only(base: str, change: str, columns: set[str]) -> None:
    plain, other = made(base).frame, made(f"{base}:{change}").frame
    assert {
        name for name in plain if not plain[name].astype("str").equals(other[name].astype("str"))
    } == columns


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, cls in WORKLOADS.items()
        if any(info.name == "seed" for info in parameters(cls))
    ],
)
def test_same_seed_same_jobs(name: str) -> None:
    first, again, other = (made(f"{name}:seed={seed}") for seed in (3, 3, 4))
    assert first.digest == again.digest != other.digest
    assert first.name.startswith("Made: ")
    assert first.name.endswith("seed 3")


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_fits_its_own_cluster(name: str) -> None:
    chosen = workload(name)
    frame = chosen.make().frame
    assert frame["num_gpus"].max() <= chosen.machines().gpus
    if "max_gpus" in frame:
        assert frame["max_gpus"].max() <= chosen.machines().gpus


def test_names_say_in_words_what_was_made() -> None:
    assert made("elastic-nodes").name == "Made: 200 elastic jobs, 10 per hour, seed 0"
    assert re.fullmatch(
        r"Made: \d{3} jobs with elastic batches, 1.5 per minute for 8 h, seed 2",
        made("batch-jobs:seed=2").name,
    )
    assert "1.5 per minute in bursts of 1.8 for 8 h" in made("batch-jobs:burst=1.8").name
    assert made("philly:jobs=1200").name == "Made: philly-like, 1,200 jobs, seed 0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("elastic-nodes", "elastic-nodes"),
        (
            " elastic-nodes : seed=3 , per_h=11.0,jobs=200, most_nodes=4/8.0/16",
            "elastic-nodes:per_h=11,seed=3",
        ),
        ("batch-jobs:shares=2/1/1/1,burst=1.80", "batch-jobs:burst=1.8,shares=2/1/1/1"),
        ("pai:history=no,cluster=64x2:p100 + 32x2:t4/96c", "pai:cluster=64x2:p100+32x2:t4/96c"),
        ("philly:history=true,jobs=5e3", "philly:history=yes,jobs=5000"),
    ],
)
def test_equal_choices_are_written_alike(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert canonical(expected) == expected
    assert workload(expected) == workload(text)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_within_the_bounds_can_be_made_and_written(data: st.DataObject) -> None:
    wanted: dict[str, object] = {
        "jobs": data.draw(st.integers(2, 50)),
        "per_h": data.draw(st.floats(0.001, 1e6)),
        "median_h": data.draw(st.floats(0.001, 1e4)),
        "sigma": data.draw(st.floats(0, 5)),
        "exponent_low": data.draw(st.floats(0.01, 0.5)),
        "exponent_high": data.draw(st.floats(0.5, 1)),
        "most_nodes": tuple(
            map(float, data.draw(st.lists(st.integers(1, 4096), min_size=1, max_size=5)))
        ),
        "seed": data.draw(st.integers(0, 10**9)),
    }
    chosen = ElasticNodes(**wanted)  # type: ignore[arg-type]
    text = canonical(
        "elastic-nodes:"
        + ",".join(
            f"{key}={'/'.join(map(repr, value)) if isinstance(value, tuple) else value}"
            for key, value in wanted.items()
        )
    )
    assert workload(text) == chosen
    assert chosen.make().digest == made(text).digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nobody", "There is no workload 'nobody'. Choose one of elastic-nodes, batch-jobs, "),
        ("", "There is no workload ''"),
        (
            "elastic-nodes:colour=red",
            "elastic-nodes has no parameter 'colour'. It has: jobs, per_h",
        ),
        ("elastic-nodes:jobs", "is not of the form key=value"),
        ("elastic-nodes:jobs=1", "jobs = 1 is outside 2 to 200000"),
        ("elastic-nodes:jobs=1e9", "jobs = 1e+09 is outside"),
        ("elastic-nodes:per_h=0", "per_h = 0 1/h is outside"),
        ("elastic-nodes:per_h=fast", "per_h = fast is not a number"),
        ("elastic-nodes:seed=-1", "seed = -1 is outside"),
        (
            "elastic-nodes:shortest_s=7200,longest_h=1",
            "shortest_s = 7200 s is more than longest_h = 1 h",
        ),
        (
            "elastic-nodes:exponent_low=0.99",
            "exponent_low = 0.99 is more than exponent_high = 0.95",
        ),
        ("elastic-nodes:most_nodes=2.5", "most_nodes must be whole numbers"),
        ("elastic-nodes:most_nodes=0", "most_nodes = 0 nodes is outside"),
        ("batch-jobs:shares=1/1", "shares must be 4 numbers"),
        ("batch-jobs:shares=0/0/0/0", "not all 0"),
        ("batch-jobs:shortest_h=3", "shortest_h = 3 h is more than longest_h = 2 h"),
        ("batch-jobs:burst=2.5", "burst = 2.5 is outside 1 to 2"),
        ("batch-jobs:per_min=1000,hours=1000", "exceed the limit of 200,000 jobs"),
        ("philly:cluster=8xv100", "8xv100"),
        ("philly:load=-1", "load = -1 is outside"),
    ],
)
def test_what_cannot_be_made_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(TrainyardError, match=re.escape(message)) as caught:
        workload(text)
    assert "\n" not in str(caught.value)


def test_what_shows_only_when_it_is_made_is_one_sentence() -> None:
    with pytest.raises(
        TraceError, match=r"no job arrived in 0.01 h at 0.0001 per minute\. Raise one of the two"
    ):
        made("batch-jobs:hours=0.01,per_min=0.0001")
    with pytest.raises(ParameterError, match="has no GPUs"):
        made("philly:cluster=2x0:cpu")


def test_a_look_alike_with_the_recipe_of_a_sample_is_that_sample() -> None:
    recipe = SAMPLES["week"].recipe
    assert recipe is not None
    text = f"week:jobs={recipe.jobs},seed={recipe.seed},load={recipe.load},days={recipe.days:g},history=yes,cluster={recipe.cluster.replace(',', '+')}"  # noqa: E501
    assert made(text).digest == load_sample("week")[0].digest


def test_profiles_are_workloads_too() -> None:
    assert WORKLOADS.keys() - PROFILES.keys() == {
        "elastic-nodes",
        "batch-jobs",
        "gavel",
        "gavel-physical",
        "recurring",
        "site",
        "hadar",
        "hadare",
        "aiturbo",
        "dlrover",
        "dlrover-check",
        "like",
    }
    assert made("venus:jobs=50,load=0").span_s == pytest.approx(
        50 / PROFILES["venus"].jobs_per_day * 86_400, abs=1
    )
    assert made("venus:jobs=50,load=0,days=2").span_s == 2 * 86_400
    assert isinstance(workload("batch-jobs"), BatchJobs)


def test_reference_names_all_workloads_and_their_parameters() -> None:
    known = WORKLOADS.keys() | {info.name for cls in WORKLOADS.values() for info in parameters(cls)}
    family = (REFERENCE / "generated-workloads").glob("*.md")
    pages = [REFERENCE / "generated-workloads.md", *family]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert known - set(re.findall(r"`([^`\s]+)`", text)) == set()
