"""Workloads after Hadar and HadarE: the declared classes, models and gangs, the five nodes, and
that fewer jobs are the first of more.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from jobtraces.generate import workload
from jobtraces.generate.hadar import CLASSES, MIX
from sim.errors import ParameterError
from sim.perf.profiled import Profiled

MODELS = {kind.model: at for at, (_, _, kinds) in enumerate(CLASSES) for kind in kinds}


def made(text: str) -> pd.DataFrame:
    return workload(text).make().frame


@pytest.fixture(scope="module")
def many() -> pd.DataFrame:
    return made("hadar:jobs=20000")


def test_classes_have_their_shares_models_and_gpu_hours(many: pd.DataFrame) -> None:
    place = many["model"].map(MODELS).astype(int)
    shares = place.value_counts(normalize=True).sort_index()
    # 20,000 draws: four standard errors of a share of 0.55 are 0.014.
    assert np.allclose(shares, [0.55, 0.25, 0.15, 0.05], atol=0.014)
    hours = many["num_gpus"] * many["duration_s"] / 3600
    for at, (low, high, kinds) in enumerate(CLASSES):
        mine = hours[place == at]
        assert mine.between(low, high).all()
        assert mine.mean() == pytest.approx((low + high) / 2, rel=0.05)
        assert set(many.loc[place == at, "model"]) == {kind.model for kind in kinds}


def test_gangs_have_their_shares_where_the_model_was_measured_on_several(
    many: pd.DataFrame,
) -> None:
    assert set(many.loc[many["model"] == "CycleGAN", "num_gpus"]) == {1}
    rest = (
        many.loc[many["model"] != "CycleGAN", "num_gpus"].value_counts(normalize=True).sort_index()
    )
    assert list(rest.index) == [1, 2, 4, 8]
    assert np.allclose(rest, [0.7, 0.1, 0.15, 0.05], atol=0.016)


def test_steps_are_those_of_the_duration_on_v100s() -> None:
    mix = workload("hadar:jobs=200")
    trace, cluster = mix.make(), mix.machines()
    assert {
        kind: sum(node.gpus for node in cluster.nodes if node.gpu_type == kind)
        for kind in ("v100", "p100", "k80")
    } == {"v100": 20, "p100": 20, "k80": 20}
    model = Profiled().bind(trace, cluster)
    on_v100 = model.alone[model._group, cluster.type_index["v100"]]
    assert np.allclose(model.work() / on_v100, trace.numbers("duration_s"))
    assert np.isfinite(model.fastest()).all()


def test_arrivals_are_at_once_or_a_poisson_process() -> None:
    assert set(made("hadar:jobs=50")["submit_time_s"]) == {0}
    frame = made("hadar:jobs=5000,per_h=20")
    gaps = np.diff(frame["submit_time_s"])
    assert frame["submit_time_s"][0] == 0
    assert gaps.mean() == pytest.approx(180, rel=0.06)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.06)
    same = ["num_gpus", "duration_s", "model", "total_steps"]
    pd.testing.assert_frame_equal(frame[same], made("hadar:jobs=5000")[same])


@pytest.mark.parametrize("name", ["hadar", "hadare"])
def test_fewer_jobs_are_the_first_of_more(name: str) -> None:
    few, more = made(f"{name}:jobs=7,seed=3"), made(f"{name}:jobs=12,seed=3")
    pd.testing.assert_frame_equal(few, more.head(7), check_categorical=False)
    assert not few["duration_s"].equals(made(f"{name}:jobs=7,seed=4")["duration_s"])


def test_other_shares() -> None:
    assert set(made("hadar:jobs=50,shares=0/0/0/1,gangs=0/1/0/0")["num_gpus"]) == {2}
    assert set(made("hadar:jobs=50,shares=0/0/0/1")["model"]) == {"ResNet-50"}


@pytest.mark.parametrize(
    "text",
    [
        "hadar:shares=1/2/3",
        "hadar:gangs=0/0/0/0",
        "hadare:shortest_h=6",
        "hadare:nodes=home",
        "hadar:jobs=1",
    ],
)
def test_contradictions_are_refused(text: str) -> None:
    with pytest.raises(ParameterError, match=r"four numbers|Exchange|nodes|jobs"):
        workload(text)


def test_mixes_take_the_models_in_turn() -> None:
    frame = made("hadare:jobs=12,seed=1")
    names = [kind.model for kind in MIX]
    start = names.index(frame["model"][0])
    assert frame["model"].tolist() == [names[(start + at) % 5] for at in range(12)]
    assert frame["duration_s"].between(3600, 5 * 3600).all()
    assert set(frame["num_gpus"]) == {1}
    assert {made(f"hadare:jobs=1,seed={seed}")["model"][0] for seed in range(40)} == set(names)


@pytest.mark.parametrize(
    ("nodes", "speeds"), [("aws", [1, 0.45, 0.45, 0.17, 0.17]), ("lab", [1, 0.8, 0.4, 0.35, 0.1])]
)
def test_five_nodes_with_the_assumed_speeds(nodes: str, speeds: list[float]) -> None:
    mix = workload(f"hadare:nodes={nodes}")
    cluster = mix.machines()
    known = {kind.name: kind.speed for kind in cluster.types}
    assert [known[node.gpu_type] for node in cluster.nodes] == speeds
    assert {node.gpus for node in cluster.nodes} == {1}
    model = Profiled(stand_in="relative").bind(mix.make(), cluster)
    assert (model.fits()).all()
    # Run times are those on a V100, which the fastest node equals.
    assert np.allclose(
        model.work() / model.alone[model._group, 0], mix.make().numbers("duration_s")
    )
