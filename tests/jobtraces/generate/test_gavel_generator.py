"""Gavel's generators: upstream's own traces and stored results made again, the distributions they
declare, and what each choice changes.
"""

from __future__ import annotations

import random
from math import inf, log
from pathlib import Path

import numpy as np
import pytest

from jobtraces import read
from jobtraces.generate import WORKLOADS, workload
from jobtraces.generate.gavel import (
    KINDS,
    OLD_TEMPLATES,
    PHYSICAL,
    TEMPLATES,
    GavelPhysical,
    GavelWorkload,
)
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.perf.measured import ANY_BATCH, built_in
from sim.perf.profiled import Profiled
from sim.perf.profiles import plain
from sim.trace import Trace
from tests.shared import shared


def made(text: str) -> Trace:
    return workload(text).make()


def upstream(name: str) -> Trace:
    return read(shared(f"traces/gavel/{name}.trace")).trace


def test_a_published_trace_is_made_again_job_by_job() -> None:
    trace = made("gavel:jobs=100,per_h=0,multi_gpu=yes,durations=equally_spaced,kinds=published")
    assert trace.digest == upstream("minimize_makespan").digest
    assert trace.digest == made("gavel-physical:trace=minimize_makespan").digest
    assert (
        trace.digest != made("gavel:jobs=100,per_h=0,multi_gpu=yes,durations=equally_spaced").digest
    )


@pytest.mark.parametrize("name", PHYSICAL)
def test_the_physical_experiments_are_the_published_traces(name: str) -> None:
    chosen = workload(f"gavel-physical:trace={name}")
    assert isinstance(chosen, GavelPhysical)
    assert chosen.make().digest == upstream(name).digest
    assert chosen.machines().gpus == (6 if name == "artifact_evaluation" else 48)
    assert chosen.make().frame["num_gpus"].max() <= chosen.machines().gpus


def test_the_longest_static_jobs_take_as_long_as_the_makespans_that_upstream_stores() -> None:
    # makespan.ipynb: 161.2 h with Gavel's policy for 100 and for 300 jobs, the mean of seeds 0, 1,
    # 2: the longest job alone decides.
    cluster = Cluster.parse("36x1:v100,36x1:p100,36x1:k80")
    for jobs in (100, 300):
        hours = []
        for seed in range(3):
            model = Profiled().bind(
                made(f"gavel:jobs={jobs},per_h=0,multi_gpu=yes,kinds=published,seed={seed}"),
                cluster,
            )
            hours.append(float((model.work() / model.fastest()).max() / 3600))
        assert np.mean(hours) == pytest.approx(161.2, abs=0.05)


def test_first_job_by_hand() -> None:
    stream, gaps = random.Random(7 + 2), random.Random(7 + 3)
    uniform = stream.uniform(0, 1)
    size = 8 if uniform >= 0.95 else 4 if uniform > 0.8 else 2 if uniform >= 0.7 else 1
    seconds = 60 * 10 ** (
        stream.uniform(3, 4) if stream.random() >= 0.8 else stream.uniform(1.5, 3)
    )
    kind = TEMPLATES[stream.randrange(26)]
    while size > 1 and kind.model in {"Recommendation", "A3C", "CycleGAN"}:
        kind = TEMPLATES[stream.randrange(26)]
    trace = made("gavel:jobs=3,per_h=5,multi_gpu=yes,seed=7")
    first = trace.frame.iloc[0]
    assert (
        first["job_id"],
        first["submit_time_s"],
        first["num_gpus"],
        first["duration_s"],
        first["model"],
    ) == ("0", 0, size, seconds, kind.model)
    row = built_in("simulation").find(plain(kind.model), kind.batch, size, "v100")
    assert row is not None
    assert first["total_steps"] == seconds * row.together
    assert trace.frame["submit_time_s"].iloc[1] == pytest.approx(-log(1 - gaps.random()) * 720)
    assert trace.frame["submit_time_s"].iloc[2] == pytest.approx(
        trace.frame["submit_time_s"].iloc[1] - log(1 - gaps.random()) * 720
    )


@pytest.fixture(scope="module")
def gangs() -> Trace:
    return made("gavel:jobs=20000,per_h=2.5,multi_gpu=yes,priorities=yes,slo=yes,seed=3")


def test_distributions_are_those_declared(gangs: Trace) -> None:
    frame, jobs = gangs.frame, 20_000
    sizes = frame["num_gpus"].value_counts(normalize=True)
    assert [sizes[size] for size in (1, 2, 4, 8)] == pytest.approx([0.7, 0.1, 0.15, 0.05], abs=0.01)
    minutes = np.log10(frame["duration_s"] / 60)
    assert minutes.between(1.5, 4).all()
    assert (minutes >= 3).mean() == pytest.approx(0.2, abs=0.01)
    assert minutes[minutes < 3].mean() == pytest.approx(2.25, abs=0.01)
    assert minutes[minutes >= 3].mean() == pytest.approx(3.5, abs=0.02)
    assert frame["duration_s"].mean() / 3600 == pytest.approx(16.8, abs=0.6)
    single = frame[frame["num_gpus"] == 1]
    kinds = single.groupby(["model", single["batch_size"].fillna(0)], observed=True).size()
    assert len(kinds) == 26
    assert (kinds / len(single)).to_numpy() == pytest.approx(np.full(26, 1 / 26), abs=0.008)
    assert set(frame.loc[frame["num_gpus"] > 1, "model"]) == {
        "ResNet-18",
        "ResNet-50",
        "Transformer",
        "LM",
    }
    gaps = np.diff(frame["submit_time_s"])
    assert (gaps.mean(), gaps.std()) == (pytest.approx(1440, abs=40), pytest.approx(1440, abs=50))
    assert (frame["priority"] == 5).mean() == pytest.approx(0.2, abs=0.01)
    assert set(frame["priority"]) == {1, 5}
    factors = ((frame["deadline_s"] - frame["submit_time_s"]) / frame["duration_s"]).round(6)
    assert [float((factors == factor).mean()) for factor in (1.2, 2, 10)] == pytest.approx(
        [0.33, 0.34, 0.33], abs=0.012
    )
    assert len(frame) == jobs


def test_iterations_are_durations_on_v100s(gangs: Trace) -> None:
    model = Profiled().bind(gangs, Cluster.parse("2x8:v100"))
    assert model.work() / model.fastest() == pytest.approx(gangs.numbers("duration_s"), rel=1e-12)


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ("slo=yes", {"deadline_s"}),
        ("per_h=2", {"submit_time_s"}),
        ("per_h=0", {"submit_time_s"}),
        ("kinds=published", {"model", "batch_size", "total_steps"}),
    ],
)
def test_a_choice_changes_its_own_columns_only(change: str, columns: set[str]) -> None:
    plain_one, other = made("gavel:jobs=200").frame, made(f"gavel:jobs=200,{change}").frame
    differ = {
        name
        for name in other
        if name not in plain_one
        or not plain_one[name].astype("str").equals(other[name].astype("str"))
    }
    assert differ == columns


def test_fewer_jobs_are_the_first_of_more() -> None:
    few, many = made("gavel:jobs=50,multi_gpu=yes").frame, made("gavel:jobs=80,multi_gpu=yes").frame
    for column in few:
        assert few[column].astype("str").tolist() == many[column].head(50).astype("str").tolist()


def test_equally_spaced_durations() -> None:
    frame = made(
        "gavel:jobs=2000,durations=equally_spaced,multi_gpu=yes,shortest_h=2,longest_h=4,lengths=3,per_h=60,slo=yes,priorities=yes"
    ).frame
    # Iterations are cut to whole ones, so the durations are a little shorter than 2, 3 and 4 h.
    hours = frame["duration_s"] / 3600
    near = hours.to_numpy()[:, None] - np.array([2, 3, 4])
    assert ((near <= 1e-9) & (near > -0.001)).any(axis=1).all()
    assert [float((hours.round() == length).mean()) for length in (2, 3, 4)] == pytest.approx(
        [1 / 3] * 3, abs=0.04
    )
    assert (frame["total_steps"] % 1 == 0).all()
    assert (frame["submit_time_s"] % 1 == 0).all()
    scalable = frame[frame["model"].isin(["ResNet-18", "ResNet-50", "Transformer", "LM"])][
        "num_gpus"
    ].value_counts(normalize=True)
    assert [scalable[size] for size in (1, 2, 4)] == pytest.approx([0.7, 0.1, 0.2], abs=0.03)
    assert 8 not in set(frame["num_gpus"])
    assert {"deadline_s", "priority"} <= set(frame)


def test_both_orders_hold_the_26_kinds_that_were_measured() -> None:
    assert sorted(map(repr, TEMPLATES)) == sorted(map(repr, OLD_TEMPLATES))
    assert len(TEMPLATES) == 26
    table = built_in("simulation")
    for kind in TEMPLATES:
        batch = ANY_BATCH if kind.batch != kind.batch else kind.batch
        assert table.sizes(plain(kind.model), batch, "v100") == (
            (1, 2, 4, 8) if kind.gangs else (1,)
        )
    assert set(KINDS) == {"released", "published"}


def test_names_and_machines() -> None:
    assert made("gavel").name == "Made: 500 jobs as in Gavel, 4 per hour, seed 0"
    assert (
        made("gavel:jobs=50,per_h=0,multi_gpu=yes,slo=yes,durations=equally_spaced,seed=2").name
        == "Made: 50 jobs as in Gavel, all at once, with gangs and deadlines, equally spaced"
        " durations, seed 2"
    )
    assert made("gavel-physical").name == "Made: Gavel's max_min_fairness"
    assert workload("gavel").machines() == Cluster.parse("36x1:v100,36x1:p100,36x1:k80")
    assert workload("gavel:durations=equally_spaced").machines().gpus == 48
    assert {"gavel", "gavel-physical"} <= WORKLOADS.keys()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ParameterError, match="shortest_h = 6 h is more than longest_h = 5 h"):
        workload("gavel:shortest_h=6")
    with pytest.raises(ParameterError, match="is not one of"):
        workload("gavel-physical:trace=other")
    assert GavelWorkload().make().span_s < inf


def test_data_and_its_licence_travel_together() -> None:
    for folder in ("sim/perf/data", "jobtraces/generate/data"):
        place = Path(__file__).resolve().parents[3] / folder
        notice = (place / "NOTICE").read_text(encoding="utf-8")
        for file in place.glob("*.csv"):
            assert notice.startswith(file.name)
        assert "Permission is hereby granted" in notice
        assert "Stanford Future Data Systems" in notice
