"""Batch sizes as a choice: step times by hand, the printed curves, and what is admissible."""

from __future__ import annotations

from math import ceil, isnan, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.queue.fifo import Fifo
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.conditions import Conditions
from sim.engine.simulator import Simulator
from sim.errors import ContractError, ParameterError
from sim.grants import Gang, Grant, Part, Shape, Tuning
from sim.params import Spec, build, spec_of
from sim.perf import PERF
from sim.perf.batch import Batch, BatchModel, speedups
from sim.perf.profiles import PROFILES, ModelProfile
from tests.counting import count_steps
from tests.sim.scripted import across, jobs, on

CLASSES = ("compute", "comm", "balanced", "non-scalable")
CLUSTER = Cluster(
    (NodeGroup(4, 4, "mid"), NodeGroup(1, 4, "fast"), NodeGroup(1, 0, cpus=8)),
    (GpuType("mid", 1.0), GpuType("fast", 2.0)),
)
# 100 + 2 b ms a step, 125 M weights over 1 GB/s: a ring of 1 s, no latency; at most 10 samples a
# GPU, 4 to 32 in all.
SIMPLE = "simple 100 2 125 10 4 32"
PLAIN = Batch(profiles=SIMPLE, bandwidth_gb_per_s=1.0, latency_ms=0.0, stand_in="simple")


def model(
    spec: Batch = PLAIN,
    rows: tuple[tuple[float, ...], ...] = ((0, 2, 10), (0, 4, 10), (0, 0, 10)),
    **columns: Any,
) -> BatchModel:
    return spec.bind(jobs(*rows, **columns), CLUSTER)


def tuned(gpus: int, batch: int, type_at: int = 0) -> Shape:
    return Shape(tuple(gpus if at == type_at else 0 for at in range(2)), tuning=Tuning(batch))


def by_hand(
    profile: ModelProfile,
    batch: int,
    gpus: int,
    bandwidth: float,
    latency_ms: float,
    speed: float = 1.0,
) -> float:
    """Samples per second, or 0, written down once more without arrays."""
    share = ceil(batch / gpus)
    if not (
        profile.min_batch <= batch <= profile.max_batch and share <= profile.cap and batch >= gpus
    ):
        return 0.0
    comm_ms = 2 * (gpus - 1) / gpus * 4 * profile.weights_m / bandwidth + (gpus - 1) * latency_ms
    return 1000 * batch / ((profile.fixed_ms + profile.sample_ms * share) / speed + comm_ms)


def test_a_step_by_hand() -> None:
    truth = model()
    # 2 GPUs: the best batch is 20, 10 on each: 100 + 20 ms, and the ring 2 x 1/2 x 0.5 GB / 1 GB/s
    # = 0.5 s. 20 samples in 0.62 s.
    assert truth.rate(0, on(0, 2), 0, 0).work_per_s == pytest.approx(20 / 0.62)
    # 3 GPUs hold 30, 4 hold 32 (8 on each): 32 / (0.116 + 0.75).
    assert truth.rate(0, on(0, 3), 0, 0).work_per_s == pytest.approx(30 / (0.12 + 2 / 3))
    assert truth.rate(0, on(0, 4), 0, 0).work_per_s == pytest.approx(32 / 0.866)
    # The type of GPU speeds up the processing, not the exchange.
    assert truth.rate(0, on(4, 2), 0, 0).work_per_s == pytest.approx(20 / 0.56)
    assert truth.work() == pytest.approx([10 * 20 / 0.62, 10 * 32 / 0.866, 10])


def test_the_curves_as_printed_for_5_gb_per_s() -> None:
    """The figures of the specification, to the digits given there; they were computed independently
    of this code.
    """
    spec = Batch(bandwidth_gb_per_s=5.0)

    def curve(name: str, batch: str = "elastic") -> list[float]:
        return [round(point.speedup, 2) for point in speedups(spec, [name], 10, batch)]

    # On 10 GPUs 8.42 is printed, which is what 480 samples give; 510 samples, 51 on each, are
    # better.
    assert curve("compute") == [1, 1.87, 2.74, 3.62, 4.49, 5.36, 6.23, 7.1, 7.81, 8.51]
    assert (
        round(
            by_hand(PROFILES["compute"], 480, 10, 5.0, 0.3)
            / by_hand(PROFILES["compute"], 64, 1, 5.0, 0.3),
            2,
        )
        == 8.42
    )
    assert [isnan(value) for value in curve("compute", "max")] == [True] * 7 + [False] * 3
    assert curve("compute", "min")[7:] == pytest.approx([2.2] * 3, abs=0.06)
    assert curve("comm")[:4] == [1, 1.47, 2.02, 2.59]
    assert curve("comm")[-1] == 3.63
    assert [isnan(value) for value in curve("comm", "max")] == [True] * 3 + [False] * 7
    assert curve("balanced")[:4] == [1, 1.6, 2.25, 2.91]
    assert curve("balanced")[-1] == 4.57
    assert curve("non-scalable")[:3] == [1, 0.59, 0.52]


def test_examples_stand_for_their_classes() -> None:
    for name, kind in (
        ("ResNet-50", "compute"),
        ("AlexNet", "comm"),
        ("VGG-11", "balanced"),
        ("vgg16", "non-scalable"),
    ):
        assert [point[1:] for point in speedups(Batch(), [name], 9)] == [
            point[1:] for point in speedups(Batch(), [kind], 9)
        ]
    with pytest.raises(ParameterError, match=r"there is no profile 'bert'\. Add it to profiles"):
        speedups(Batch(), ["bert"], 4)


def test_a_model_that_does_not_fit_one_gpu_is_measured_against_what_does() -> None:
    # 16 samples at least, 10 fit: one GPU with 10 makes 10 / 0.12 samples/s, two with 20 make 20 /
    # 0.62.
    spec = Batch(profiles="big 100 2 125 10 16 32", bandwidth_gb_per_s=1.0, latency_ms=0.0)
    first, second = speedups(spec, ["big"], 2)
    assert isnan(first.speedup)
    assert isnan(first.batch)
    assert (second.speedup, second.batch) == (pytest.approx((20 / 0.62) / (10 / 0.12)), 20)


@given(
    kind=st.sampled_from(sorted(PROFILES)),
    asked=st.integers(1, 16),
    gpus=st.integers(1, 16),
    batch=st.integers(1, 1100),
    fast=st.booleans(),
)
def test_estimator_truth_and_hand_agree_on_every_batch(
    kind: str, asked: int, gpus: int, batch: int, fast: bool
) -> None:
    cluster = Cluster.parse("4x8:v100,4x8:a100")
    truth = Batch(shrink=0, grow=16).bind(jobs((0, asked, 10), model=[kind]), cluster)
    speed = 2.1 if fast else 1.0
    expected = by_hand(PROFILES[kind], batch, gpus, 1.25, 0.3, speed)
    believed = truth.rates(np.array([0]), [tuned(gpus, batch, int(fast))])[0, 0]
    assert believed == pytest.approx(expected, rel=1e-9)
    first = 4 if fast else 0
    grant = Grant(
        (Gang(Part((first, first + 1), (1, gpus - 1)) if gpus > 1 else Part((first,), (1,))),),
        Tuning(batch),
    )
    if expected:
        assert truth.rate(0, grant, 0, 0).work_per_s == believed
    else:
        with pytest.raises(ContractError, match=r"job 0 (cannot run on|runs on)"):
            truth.rate(0, grant, 0, 0)
    # Without a batch size the best is taken: found by trying all.
    low, high = int(PROFILES[kind].min_batch), int(PROFILES[kind].max_batch)
    every = [by_hand(PROFILES[kind], some, gpus, 1.25, 0.3, speed) for some in range(low, high + 1)]
    assert truth.rates(np.array([0]), [Shape((0, gpus) if fast else (gpus, 0))])[
        0, 0
    ] == pytest.approx(max(every), rel=1e-9)


def test_limits_are_those_that_some_batch_admits() -> None:
    spec = Batch(profiles="tight 10 1 10 8 24 48; wide 10 1 10 64 1 4")
    truth = spec.bind(
        jobs(
            (0, 4, 10),
            (0, 2, 10),
            (0, 0, 10),
            (0, 4, 10),
            model=["tight", "wide", "wide", "tight"],
            max_gpus=[nan, 16, nan, 5],
        ),
        CLUSTER,
    )
    limits = truth.limits()
    # tight: 24 samples need 3 GPUs; wide: no more GPUs than 4 samples. A quarter and four times
    # where the trace is silent.
    assert limits.min_gpus.tolist() == [3, 1, 0, 3]
    assert limits.max_gpus.tolist() == [16, 4, 0, 5]
    assert limits.min_batch[[0, 1, 3]].tolist() == [24, 1, 24]
    assert limits.max_batch[[0, 1, 3]].tolist() == [48, 4, 48]
    assert np.isnan([limits.min_batch[2], limits.max_batch[2]]).all()
    with pytest.raises(ContractError, match="job 0 runs on 3 GPUs or more and cannot run on 2"):
        truth.rate(0, on(0, 2), 0, 0)
    # More GPUs than the largest size are of no use, and do no harm.
    assert truth.rate(1, across({0: 4, 1: 4}), 0, 0) == truth.rate(1, on(0, 4), 0, 0)
    assert (
        truth.rates(np.array([3]), [Shape((8, 0))])[0, 0]
        == truth.rates(np.array([3]), [Shape((5, 0))])[0, 0]
        > 0
    )


def test_columns_of_the_trace_override_the_profile() -> None:
    truth = model(min_batch=[8, nan, nan], max_batch=[nan, 16.9, nan], model=["simple"] * 3)
    assert truth.limits().min_batch[:2].tolist() == [8, 4]
    assert truth.limits().max_batch[:2].tolist() == [32, 16]
    assert truth.rates(np.array([0, 1]), [tuned(2, 4), tuned(2, 20)]).tolist() == [
        [0, pytest.approx(20 / 0.62)],
        [pytest.approx(4 / 0.604), 0],
    ]


def test_a_recorded_batch_is_what_was_measured_and_what_an_untuned_grant_runs_with() -> None:
    truth = model(batch_size=[8, nan, nan])
    # 8 samples on 2 GPUs: 108 ms and half a second.
    assert truth.work()[0] == pytest.approx(10 * 8 / 0.608)
    assert truth.rate(0, on(0, 2), 0, 0).work_per_s == pytest.approx(8 / 0.608)
    assert truth.rate(0, Grant(on(0, 2).gangs, Tuning(20)), 0, 0).work_per_s == pytest.approx(
        20 / 0.62
    )
    row = truth.rates(np.array([0]), [Shape((k, 0)) for k in (1, 2, 4, 8, 9)])[0]
    # The best size is found with the best batch: work done is samples, whatever batch they come in.
    assert row[1] == pytest.approx(8 / 0.608)
    assert truth.fastest()[0] == pytest.approx(
        max(
            by_hand(ModelProfile(100, 2, 125, 10, 4, 32), b, k, 1.0, 0, 2.0)
            for b in range(4, 33)
            for k in range(1, 9)
        )
    )


def test_a_recorded_batch_that_cannot_be_is_replaced_by_the_nearest_and_told() -> None:
    trace = jobs((0, 2, 10), (0, 4, 10), (0, 2, 10), batch_size=[500, 1, 8])
    truth = PLAIN.bind(trace, CLUSTER)
    assert truth.work() == pytest.approx([10 * 20 / 0.62, 10 * 4 / (0.102 + 0.75), 10 * 8 / 0.608])
    assert (
        "2 of 3 GPU jobs record a batch_size that is not admissible at the size they asked for;"
        " assumed: the nearest that is." in PLAIN.assumptions(trace)
    )


def test_an_inadmissible_batch_is_refused_with_its_reason() -> None:
    with pytest.raises(
        ContractError,
        match=(
            "job 0 cannot run on 2 GPUs with a batch of 21: it takes 4 to 32 samples, 1 to 10 on"
            " each GPU"
        ),
    ):
        model().rate(0, Grant(on(0, 2).gangs, Tuning(21)), 0, 0)
    # Untuned, a job keeps the batch size that it was recorded with.
    with pytest.raises(ContractError, match="job 0 cannot run on 1 GPUs with a batch of 20"):
        model(batch_size=[20, nan, nan]).rate(0, on(0, 1), 0, 0)
    assert model(batch_size=[20, nan, nan]).rates(np.array([0]), [Shape((1, 0))]).tolist() == [[0]]


def test_cpu_jobs_copies_and_the_overflow_node() -> None:
    truth = model(gpu_type=["fast", nan, nan])
    assert truth.rate(2, on(5, 3, 0, 1.0), 0, 0).work_per_s == 1
    assert truth.rates(np.array([2, 0]), [Shape((0, 0), kind="cpu"), Shape((1, 0))])[
        :, 0
    ].tolist() == [1, 0]
    assert truth.fastest()[2] == 1
    both = Grant((Gang(Part((0,), (2,))), Gang(Part((4,), (2,)))))
    assert truth.rate(0, both, 0, 0).work_per_s == pytest.approx(
        (20 / 0.62 + 20 / 0.56) * 0.95 * 355 / 360
    )
    assert truth.work()[0] == pytest.approx(10 * 20 / 0.56)
    assert truth.rate(0, on(6, 2), 0, 0).work_per_s == pytest.approx(20 / 0.56)
    assert truth.telemetry(0, on(0, 2, 1, 3.0, 5.0), 0, 0) == (
        {"worker": 3.0},
        {"worker": 5.0},
        {"worker": (1.0, 1.0)},
    )
    alone = Batch().bind(jobs((0, 0, 10)), Cluster.parse("2x0:cpu"))
    assert alone.rates(np.array([0]), [Shape((), kind="cpu")]).tolist() == [[1.0]]
    assert (alone.work().tolist(), alone.fastest().tolist()) == ([10], [1.0])


def test_jobs_that_keep_their_size_finish_when_rigid_ones_do() -> None:
    rng = np.random.default_rng(7)
    rows = [
        (
            float(rng.integers(0, 900)),
            int(rng.choice([0, 1, 2, 3, 4, 8])),
            float(rng.integers(10, 600)),
        )
        for _ in range(120)
    ]
    batches = rng.choice([nan, 16.0, 64.0, 100.0], 120).tolist()
    trace = jobs(*rows, model=rng.choice([*CLASSES, "LM"], 120).tolist(), batch_size=batches)
    cluster = Cluster.parse("4x4:v100,1x0:cpu")
    finish = [
        Simulator(trace, cluster, Fifo(), Conditions(perf=spec)).run().jobs["finish_s"]
        for spec in (build(PERF["rigid"], Spec.of("rigid")), Batch())
    ]
    assert finish[1].tolist() == pytest.approx(finish[0].tolist(), rel=1e-9)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (
            {"num": 40},
            (
                "batch: job j1 (model simple) asks for 40 GPUs but has at most 32 samples in a"
                " batch. Raise its max_batch, or choose another stand_in or profile; the same"
                " holds for 2 of 3 GPU jobs."
            ),
        ),
        (
            {"num": 3, "min_batch": 31},
            (
                "batch: job j1 (model simple) asks for 3 GPUs of 10 samples each but has at least"
                " 31 in a batch. Lower its min_batch, or"
            ),
        ),
        (
            {"num": 1, "min_batch": 40},
            (
                "batch: job j1 (model simple) has batch sizes from 40 to 32. Give both min_batch"
                " and max_batch in the trace; the same holds for 2 of 3"
            ),
        ),
        (
            {"num": 1, "model": "bert"},
            (
                "batch: job j1 (model bert) has no profile, and stand_in is empty. Add its model"
                " to profiles, or name a stand_in; the same holds for 2 of 3 GPU jobs."
            ),
        ),
        (
            {"num": 1, "model": ""},
            "batch: job j1 (model none) has no profile, and stand_in is empty.",
        ),
    ],
)
def test_jobs_that_cannot_run_are_refused_before_the_run(
    columns: dict[str, Any], sentence: str
) -> None:
    wanted = {"model": "simple"} | columns
    gpus = wanted.pop("num")
    trace = jobs(
        (0, 1, 5),
        (0, gpus, 5),
        (0, gpus, 5),
        model=["simple"] + 2 * [wanted.pop("model")],
        **{key: [nan, *2 * [value]] for key, value in wanted.items()},
    )
    with pytest.raises(ParameterError) as caught:
        Batch(profiles=SIMPLE, stand_in="").bind(trace, CLUSTER)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "bert 1 2 3",
            (
                "batch, profiles: 'bert 1 2 3' is not of the form 'name fixed_ms sample_ms"
                " weights_m cap min_batch max_batch', six numbers"
            ),
        ),
        ("bert 1 2 x 4 5 6", "batch, profiles: 'bert 1 2 x 4 5 6' is not of the form"),
        ("bert 1 2 inf 4 5 6", "batch, profiles: 'bert 1 2 inf 4 5 6' is not of the form"),
        (
            "bert 1 -2 3 4 5 6",
            "batch, profiles: bert has a negative time or size, or a step that takes no time.",
        ),
        (
            "bert 0 0 3 4 5 6",
            "batch, profiles: bert has a negative time or size, or a step that takes no time.",
        ),
        (
            "bert 1 2 3 4 9 6",
            (
                "batch, profiles: bert has batch sizes from 9 to 6. They start at 1 or more and"
                " ascend."
            ),
        ),
        ("bert 1 2 3 4 0 6", "batch, profiles: bert has batch sizes from 0 to 6."),
        (
            "bert 1 2 3 0 5 6",
            (
                "batch, profiles: bert has cap 0 and batch sizes 5 to 6; these are whole numbers"
                " from 1."
            ),
        ),
        ("bert 1 2 3 4 5 6.5", "batch, profiles: bert has cap 4 and batch sizes 5 to 6.5"),
        (
            "bert 1 2 3 4 5 6; BERT 1 2 3 4 5 6",
            "batch, profiles: 'BERT' is there twice. Keep one of the two.",
        ),
        (
            "- 1 2 3 4 5 6",
            "batch, profiles: '- 1 2 3 4 5 6' must begin with a name of letters and digits",
        ),
        ("a,b 1 2 3 4 5 6", "batch, profiles: 'a,b 1 2 3 4 5 6' must begin with a name"),
    ],
)
def test_profiles_that_make_no_sense_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Batch(profiles=text)
    assert str(caught.value).startswith(sentence)


def test_a_stand_in_must_be_there() -> None:
    with pytest.raises(ParameterError, match="batch: stand_in: there is no profile 'bert'"):
        Batch(stand_in="bert")
    assert Batch(stand_in="bert", profiles="BERT 1 2 3 4 5 6").stand_in == "bert"
    assert Batch(stand_in="ResNet-50").stand_in == "ResNet-50"
    with pytest.raises(ParameterError, match="batch: the cluster has no GPU type 'h100'"):
        Batch("h100").bind(jobs((0, 1, 5)), CLUSTER)


def test_profiles_survive_text_and_json() -> None:
    spec = Batch(
        profiles="My-Net 12 3.1 110 32 32 512; vgg16 1 2 3 4 4 6",
        stand_in="My-Net",
        bandwidth_gb_per_s=5.0,
    )
    written = spec_of("batch", spec)
    assert build(Batch, Spec.parse(str(written))) == spec
    assert build(Batch, Spec.from_json(written.to_json())) == spec
    trace = jobs((0, 1, 5), (0, 1, 5), (0, 1, 5), model=["mynet", "VGG-16", "other"])
    assert spec.bind(trace, CLUSTER).limits().max_batch.tolist() == [512, 6, 512]


def test_what_is_assumed_is_said() -> None:
    trace = jobs(
        (0, 1, 5),
        (0, 2, 5),
        (0, 0, 5),
        model=["LM", "ResNet-50", ""],
        min_gpus=[1, 1, nan],
        max_gpus=[1, 2, nan],
    )
    first, last = Batch().assumptions(trace)
    assert (
        first
        == "1 of 2 GPU jobs have a model without a profile; assumed: that of 'balanced' (stand_in,"
        " profiles)."
    )
    assert (
        "profiles of our own, 1.25 GB/s and 0.3 ms between GPUs. This is an assumption; change"
        " the performance model (Trace, --perf)." in last
    )
    assert Batch().assumptions(jobs((0, 0, 5))) == ()


def test_a_rate_takes_a_few_steps_per_shape_whatever_the_number_of_jobs() -> None:
    rows = ((0.0, 4.0, 10.0),) * 400
    truth = Batch().bind(jobs(*rows, model=["compute"] * 400), Cluster.parse("128x8:v100"))
    shapes = [Shape((k,), tuning=Tuning(batch)) for k in range(1, 11) for batch in range(32, 82)]
    one_job = count_steps(lambda: truth.rates(np.array([7]), shapes))
    assert one_job <= 4 * len(shapes)
    assert count_steps(lambda: truth.rates(np.arange(400), shapes)) == one_job
