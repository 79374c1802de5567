"""Power law and Amdahl: formulas by hand, limits, what is assumed, and that jobs which keep their
size notice nothing.
"""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.queue.fifo import Fifo
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.conditions import Conditions
from sim.engine.simulator import Simulator
from sim.errors import ContractError, ParameterError
from sim.grants import Gang, Grant, Part, Shape
from sim.params import Spec, build
from sim.perf import PERF, PerfModel, Rate
from sim.perf.rigid import Rigid
from sim.perf.scaling import Amdahl, PowerLaw, model_class
from tests.shared import shared
from tests.sim.scripted import across, jobs, on

TYPES = (GpuType("slow", 0.5), GpuType("mid", 1.0), GpuType("fast", 2.0))
# Nodes 0, 1 slow in one rack; 2 fast; 3, 4 mid in a rack each; 5 CPUs. 8 slow, 4 fast and 8 mid
# GPUs.
CLUSTER = Cluster(
    (
        NodeGroup(2, 4, "slow"),
        NodeGroup(1, 4, "fast"),
        NodeGroup(2, 4, "mid", rack_size=1),
        NodeGroup(1, 0, cpus=8),
    ),
    TYPES,
)
ROWS = ((0, 1, 10), (0, 4, 10), (0, 0, 10), (0, 2, 10))
SPECS = [PowerLaw(), Amdahl()]


def power(spec: PowerLaw | None = None, **columns: Any) -> PerfModel:
    return (spec or PowerLaw("mid")).bind(jobs(*ROWS, **columns), CLUSTER)


def held(gpus: int) -> Grant:
    """A grant on the mid nodes, whose span costs nothing by default."""
    return on(3, gpus) if gpus <= 4 else across({3: 4, 4: gpus - 4})


def rates(model: PerfModel, job: int, sizes: range) -> list[float]:
    """Believed rates on nodes of type mid."""
    row = model.rates(np.array([job]), [Shape((0, k, 0)) for k in sizes])[0]
    return [float(value) for value in row]


def test_power_law_by_hand() -> None:
    model = power(scaling_exponent=[0.5, 0.5, nan, 1.0])
    assert model.rate(1, held(4), 0, 0) == Rate(1.0)
    assert model.rate(1, held(1), 0, 0) == Rate(0.5)  # (1/4)^0.5
    assert model.rate(0, held(4), 0, 0) == Rate(2.0)  # 4^0.5
    assert model.rate(3, held(8), 0, 0) == Rate(4.0)
    assert model.rate(1, on(2, 1), 0, 0) == Rate(1.0)  # the fast type doubles it
    assert model.rate(1, on(2, 4), 0, 0) == Rate(2.0)


def test_amdahl_by_hand() -> None:
    model = Amdahl("mid").bind(jobs(*ROWS, serial_fraction=[0.2, 0.2, nan, 1.0]), CLUSTER)
    # t(k) = 0.2 + 0.8/k: 1.0, 0.6, 0.4, 0.3 for k = 1, 2, 4, 8.
    assert rates(model, 0, range(1, 5)) == pytest.approx([1, 1 / 0.6, 1 / (0.2 + 0.8 / 3), 2.5])
    assert model.rate(1, held(8), 0, 0).work_per_s == pytest.approx(0.4 / 0.3)
    assert model.rate(1, held(1), 0, 0).work_per_s == pytest.approx(0.4)
    # Wholly serial: no size is faster than another.
    assert rates(model, 3, range(1, 9)) == [1.0] * 8


@pytest.mark.parametrize("spec", SPECS)
def test_limits_are_those_of_the_trace_or_assumed(spec: PowerLaw | Amdahl) -> None:
    limits = spec.bind(
        jobs(*ROWS, min_gpus=[nan, 3, nan, 0], max_gpus=[2, nan, nan, 99]), CLUSTER
    ).limits()
    # A quarter, rounded up, at least 1; four times, but no more than the 8 GPUs of the largest
    # type; CPU jobs have no size.
    assert limits.min_gpus.tolist() == [1, 3, 0, 1]
    assert limits.max_gpus.tolist() == [2, 8, 0, 8]
    assert np.isnan(limits.min_batch).all()
    assert np.isnan(limits.max_batch).all()
    with pytest.raises(ValueError, match="read-only"):
        limits.min_gpus[0] = 2


def test_shrink_and_grow_of_one_keep_sizes() -> None:
    spec = PowerLaw(shrink=1, grow=1)
    limits = spec.bind(jobs(*ROWS, (0, 30, 5)), CLUSTER).limits()
    assert limits.min_gpus.tolist() == limits.max_gpus.tolist() == [1, 4, 0, 2, 30]
    # A job larger than the cluster keeps what it asked for, whatever the factors; 0.3 x 30 is 9,
    # not 10.
    loose = PowerLaw(shrink=0.3, grow=3).bind(jobs((0, 30, 5), (0, 2, 5)), CLUSTER).limits()
    assert (loose.min_gpus.tolist(), loose.max_gpus.tolist()) == ([9, 1], [30, 6])
    assert "assumed: no other number than they asked for" in spec.assumptions(jobs(*ROWS))[0]


@pytest.mark.parametrize("spec", SPECS)
def test_too_few_gpus_are_refused_and_too_many_do_not_help(spec: PowerLaw | Amdahl) -> None:
    model = spec.bind(
        jobs(*ROWS, min_gpus=[nan, 2, nan, nan], max_gpus=[nan, 4, nan, nan]), CLUSTER
    )
    with pytest.raises(ContractError, match="job 1 runs on 2 GPUs or more and cannot run on 1"):
        model.rate(1, held(1), 0, 0)
    assert model.rate(1, held(8), 0, 0) == model.rate(1, held(4), 0, 0)
    row = rates(model, 1, range(9))
    assert row[:2] == [0, 0]
    assert 0 < row[2] < row[3] < row[4] == row[5] == row[8]


def test_spans_types_and_copies() -> None:
    model = power(PowerLaw("mid", span_node=2.0, span_rack=4.0), scaling_exponent=[1.0] * 4)
    assert model.rate(1, across({0: 2, 1: 2}), 0, 0) == Rate(0.25)  # slow, two nodes of a rack
    assert model.rate(1, across({3: 2, 4: 2}), 0, 0) == Rate(0.25)  # mid, two racks
    assert model.rate(1, across({2: 1, 0: 1}), 0, 0) == Rate(
        0.5 * 0.5 / 4
    )  # half the size, the slower type paces, other racks
    copies = Grant((Gang(Part((0,), (1,))), Gang(Part((2,), (2,)))))
    assert model.rate(0, copies, 0, 0).work_per_s == pytest.approx((0.5 + 4.0) * 0.95 * 355 / 360)
    # On the overflow node a job runs as it was recorded.
    assert power(PowerLaw("fast")).rate(0, on(6), 0, 0) == Rate(2.0)
    assert power(gpu_type=["fast", "slow", nan, nan]).rate(1, on(6, 4), 0, 0) == Rate(0.5)


def test_cpu_jobs_run_at_their_own_pace() -> None:
    model = power()
    assert model.rate(2, on(5, 3, 0, 1.0), 0, 0) == Rate(1.0)
    assert model.rates(
        np.array([2]), [Shape((0, 0, 0), kind="cpu"), Shape((0, 1, 0))]
    ).tolist() == [[1.0, 0.0]]
    assert model.fastest()[2] == 1.0
    alone = PowerLaw().bind(jobs((0, 0, 10)), Cluster.parse("2x0:cpu"))
    assert alone.rates(np.array([0]), [Shape((), kind="cpu")]).tolist() == [[1.0]]
    assert (alone.work().tolist(), alone.fastest().tolist()) == ([10], [1.0])


@pytest.mark.parametrize("spec", SPECS)
def test_fastest_is_the_best_size_on_the_fastest_type(spec: PowerLaw | Amdahl) -> None:
    model = spec.bind(jobs(*ROWS), CLUSTER)
    every = model.rates(np.arange(4), [Shape((0, 0, k)) for k in range(9)])
    assert model.fastest() == pytest.approx(every.max(axis=1))


@given(
    asked=st.integers(1, 8),
    gpus=st.integers(1, 8),
    exponent=st.floats(0, 1.5),
    share=st.floats(0, 1),
    spans=st.booleans(),
)
def test_estimator_agrees_with_truth(
    asked: int, gpus: int, exponent: float, share: float, spans: bool
) -> None:
    trace = jobs(
        (0, asked, 10),
        (0, asked, 20),
        scaling_exponent=[exponent, nan],
        serial_fraction=[share, nan],
        model=["VGG-16", "bert"],
    )
    nodes = 2 if spans and gpus > 1 else 1
    grant = across({0: 1, 1: gpus - 1}) if nodes == 2 else on(0, gpus)
    for kind in (PowerLaw, Amdahl):
        model = kind(span_node=1.5, shrink=0).bind(trace, CLUSTER)
        believed = model.rates(np.array([0, 1]), [Shape((gpus, 0, 0), nodes), Shape((asked, 0, 0))])
        for job in (0, 1):
            assert model.rate(job, grant, 0, 0).work_per_s == pytest.approx(
                believed[job, 0], rel=1e-12
            )
            assert believed[job, 1] == 0.5  # exactly the speed of the type at the size asked for
        row = model.rates(np.array([0, 1]), [Shape((k, 0, 0)) for k in range(1, 9)])
        assert (np.diff(row, axis=1) >= 0).all()


def test_jobs_that_keep_their_size_finish_at_the_same_instants_under_every_model() -> None:
    rng = np.random.default_rng(5)
    rows = [
        (
            float(rng.integers(0, 900)),
            int(rng.choice([0, 1, 2, 3, 4, 8])),
            float(rng.integers(10, 600)),
        )
        for _ in range(120)
    ]
    trace = jobs(
        *rows,
        gpu_type=rng.choice(["slow", "mid", "fast", "a100"], 120).tolist(),
        model=rng.choice(["ResNet-18", "LM", ""], 120).tolist(),
    )
    digests = {}
    for name in ("rigid", "power_law", "amdahl"):
        spec = build(PERF[name], Spec.of(name, reference="mid", span_node=1.25, span_rack=1.5))
        result = Simulator(trace, CLUSTER, Fifo(), Conditions(perf=spec)).run()
        digests[name] = (result.jobs["finish_s"].tolist(), result.segments.to_csv())
    assert digests["power_law"] == digests["rigid"]
    assert digests["amdahl"] == digests["rigid"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ResNet-50", "vision"),
        ("vgg16", "vision"),
        ("CycleGAN", "vision"),
        ("yolov3", "vision"),
        ("ViT-B/16", "vision"),
        ("LM", "language"),
        ("Transformer", "language"),
        ("bert-large", "language"),
        ("gpt2", "language"),
        ("Recommendation", "recommendation"),
        ("ncf", "recommendation"),
        ("A3C", "other"),
        ("deepspeech2", "other"),
        ("film", "other"),
        ("", "other"),
    ],
)
def test_classes_are_told_by_names(name: str, kind: str) -> None:
    assert model_class(name) == kind


def test_every_class_has_its_parameter() -> None:
    names = ["vgg", "bert", "ncf", "a3c"]
    trace = jobs(*((0, 1, 10),) * 4, model=names)
    law = PowerLaw(
        exponent_vision=1.0,
        exponent_language=0.5,
        exponent_recommendation=0.25,
        exponent_other=0.75,
    ).bind(trace, CLUSTER)
    assert law.rates(np.arange(4), [Shape((0, 4, 0))])[:, 0] == pytest.approx(
        [4, 2, 4**0.25, 4**0.75]
    )
    share = Amdahl(
        serial_vision=0, serial_language=1, serial_recommendation=0.5, serial_other=0.2
    ).bind(trace, CLUSTER)
    assert share.rates(np.arange(4), [Shape((0, 4, 0))])[:, 0] == pytest.approx([4, 1, 1.6, 2.5])


def test_what_is_assumed_is_said_of_how_many_jobs() -> None:
    trace = jobs(
        *ROWS,
        model=["vgg", "bert", "vgg", "bert"],
        scaling_exponent=[0.9, nan, nan, nan],
        min_gpus=[1, nan, nan, 1],
        max_gpus=[1, nan, nan, nan],
    )
    assert PowerLaw().assumptions(trace) == (
        (
            "2 of 3 GPU jobs do not say on how many GPUs they may run; assumed: 0.25 to 4 times"
            " what they asked for (shrink, grow)."
        ),
        (
            "2 of 3 GPU jobs do not say how they scale (scaling_exponent); by the class of their"
            " model: language GPUs^0.66 (2 jobs). This is an assumption; change it under How jobs"
            " scale (--perf)."
        ),
    )
    assert (
        "vision a serial share of 0.06 (1 job), language a serial share of 0.17 (2 jobs)"
        in Amdahl().assumptions(trace)[1]
    )
    full = jobs(
        (0, 2, 10),
        (0, 0, 10),
        scaling_exponent=[1, nan],
        serial_fraction=[0, nan],
        min_gpus=[1, nan],
        max_gpus=[4, nan],
    )
    assert PowerLaw().assumptions(full) == Amdahl().assumptions(full) == ()


def test_the_defaults_are_the_fit_that_they_are_said_to_be() -> None:
    every = pd.read_csv(shared("data/gavel_throughputs.csv"))
    kept = every[
        every["gpu_type"].isin(["V100", "P100"])
        & (every["placement"] != "unconsolidated")
        & every["source"].str.contains("simulation_throughputs")
    ]
    wide = kept.pivot_table(
        index=["gpu_type", "model", "batch_size"],
        columns="scale_factor",
        values="iterations_per_second",
    ).dropna()
    speeds = np.log(wide.div(wide[1], axis=0)[[2, 4, 8]])
    sizes, shares = np.array([2.0, 4.0, 8.0]), np.linspace(0, 1, 1001)
    curves = -np.log(shares[:, None] + (1 - shares[:, None]) / sizes)
    classes = speeds.index.get_level_values("model").map(model_class)
    for kinds, exponent, serial in (
        (["vision"], PowerLaw().exponent_vision, Amdahl().serial_vision),
        (["language"], PowerLaw().exponent_language, Amdahl().serial_language),
        (["vision", "language"], PowerLaw().exponent_other, Amdahl().serial_other),
    ):
        rows = speeds[classes.isin(kinds)].to_numpy()
        assert exponent == pytest.approx(
            (rows * np.log(sizes)).sum() / (len(rows) * (np.log(sizes) ** 2).sum()), abs=0.0051
        )
        errors = ((rows[None] - curves[:, None]) ** 2).sum(axis=(1, 2))
        assert serial == pytest.approx(shares[errors.argmin()], abs=0.0051)


@pytest.mark.parametrize(("kind", "name"), [(PowerLaw, "power_law"), (Amdahl, "amdahl")])
def test_an_unknown_reference_is_refused(kind: type[PowerLaw | Amdahl], name: str) -> None:
    with pytest.raises(
        ParameterError, match=f"{name}: the cluster has no GPU type 'h100'. It has: slow, mid, fast"
    ):
        kind("h100").bind(jobs(*ROWS), CLUSTER)


def test_telemetry_and_work_are_those_of_rigid_jobs() -> None:
    trace, grant = (
        jobs(*ROWS, gpu_type=["fast", nan, nan, "mid"]),
        across({0: 2, 2: 2}, 1, 3.0, 5.0),
    )
    assert (
        PowerLaw().bind(trace, CLUSTER).work().tolist()
        == Rigid().bind(trace, CLUSTER).work().tolist()
        == [20, 5, 10, 10]
    )
    assert PowerLaw().bind(trace, CLUSTER).telemetry(1, grant, 0, 0) == Rigid().bind(
        trace, CLUSTER
    ).telemetry(1, grant, 0, 0)
