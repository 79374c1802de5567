from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators.elastic.dp import MAX_BATCHES, Scalability, candidates
from sim.contract import Delta, Shape, Tuning
from sim.perf.batch import Batch, speedups
from tests.allocators.queue.walk import clusters, trace_of


@dataclass(frozen=True)
class Kind:
    """A class of jobs: seconds for b samples on one GPU are a + c b, then the weights (in millions)
    go round a ring of the GPUs.
    """

    a_ms: float
    c_ms: float
    weights: float
    cap: int
    low: float
    high: float
    least: int = 1
    code: int = 0
    gbps: float = 5.0
    speeds: tuple[float, ...] = (1.0,)
    slower: float = 1.0

    def throughput(self, shape: Shape) -> float:
        gpus, batch = sum(shape.gpus), shape.tuning.batch_size
        speed = next(speed for speed, held in zip(self.speeds, shape.gpus, strict=True) if held)
        if gpus < self.least:
            return 0.0
        if np.isnan(self.low):
            return speed * gpus**0.8
        assert batch is not None
        share = ceil(batch / gpus)
        if not self.low <= batch <= self.high or batch < gpus or share > self.cap:
            return 0.0
        ring_s = (
            2 * (gpus - 1) / gpus * 4e6 * self.weights / (self.gbps * 1e9) + (gpus - 1) * 0.3e-3
            if gpus > 1
            else 0.0
        )
        return batch / ((self.a_ms + self.c_ms * share) / speed / 1e3 + ring_s) / self.slower


COMPUTE = Kind(10, 4.5, 25.6, 64, 32, 512, code=0)
COMM = Kind(8, 0.5, 61, 256, 64, 1024, code=1)
BALANCED = Kind(10, 6.5, 133, 64, 32, 256, code=2)
STUCK = Kind(8, 1.2, 120, 64, 16, 64, code=3)
PLAIN = Kind(0, 0, 0, 0, nan, nan, code=4)


@dataclass
class World:
    """Jobs of these kinds, all just arrived; counts how many (job, shape) pairs are asked for."""

    kinds: list[Kind]
    seed: int = 0
    asked: int = 0
    rng: Any = None
    delta: Delta = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.delta = Delta(tuple(range(len(self.kinds))))
        self.estimates = self
        self.active = SimpleNamespace(ids=np.arange(len(self.kinds)))

    def one(self, column: str, job: int) -> float:
        kind = self.kinds[job]
        return {
            "model": kind.code,
            "min_gpus": kind.least,
            "max_gpus": 64,
            "min_batch": kind.low,
            "max_batch": kind.high,
        }[column]

    def rates(self, ids: Any, shapes: Sequence[Shape]) -> Any:
        self.asked += len(ids) * len(shapes)
        return np.array(
            [[self.kinds[job].throughput(shape) for shape in shapes] for job in ids.tolist()]
        ).reshape(len(ids), len(shapes))


SIZES = [Shape((gpus,)) for gpus in range(1, 11)]


def profile(
    kinds: list[Kind], batch: str = "elastic", shapes: Sequence[Shape] = SIZES, seed: int = 0
) -> tuple[Any, Scalability, World]:
    world, jsa = World(kinds, seed), Scalability(batch)
    jsa.feed(world)  # type: ignore[arg-type]
    return jsa(world, np.arange(len(kinds)), shapes), jsa, world  # type: ignore[arg-type]


def test_speed_ups_of_the_four_classes_of_jobs() -> None:
    found, _, _ = profile([COMPUTE, COMM, BALANCED, STUCK])
    assert np.round(found[0], 2).tolist() == [
        1,
        1.87,
        2.74,
        3.62,
        4.49,
        5.36,
        6.23,
        7.1,
        7.81,
        8.51,
    ]
    assert np.round(found[1, :4], 2).tolist() == [1, 1.47, 2.02, 2.59]
    assert np.round(found[2, :4], 2).tolist() == [1, 1.6, 2.25, 2.91]
    # Nothing repairs a table that falls: a job that only waits for its network stays on one GPU.
    assert np.round(found[3, :3], 2).tolist() == [1, 0.59, 0.52]


def test_one_job_by_hand() -> None:
    # Largest share 64. One GPU: 64 samples in 10 + 4.5 x 64 = 298 ms. Two: 128 in 298 + 4 x 25.6e6
    # B / 5 GB/s = 20.48, + 0.3 ms of latency.
    found, jsa, _ = profile([COMPUTE])
    assert found[0, 1] == pytest.approx((128 / 318.78) / (64 / 298))
    assert [jsa.tuning(0, size, 0) for size in (1, 2, 8, 9, 10)] == [
        Tuning(batch_size=batch) for batch in (64, 128, 512, 512, 510)
    ]
    # 512 would be shares of 52.
    assert found[0, 9] == pytest.approx((510 / (10 + 4.5 * 51 + 1.8 * 20.48 + 2.7)) / (64 / 298))


def test_fixed_batches_are_measured_against_the_same_one_gpu() -> None:
    elastic, _, _ = profile([COMPUTE, COMM])
    largest, jsa, _ = profile([COMPUTE, COMM], "max")
    # 512 in shares of at most 64 need 8 GPUs, 1024 in shares of 256 need 4.
    assert largest[0, :7].tolist() == [0] * 7
    assert largest[0, 7:9].tolist() == elastic[0, 7:9].tolist()
    assert largest[0, 9] < elastic[0, 9]
    assert largest[1, :3].tolist() == [0] * 3
    assert (largest[1, 3:] > 0).all()
    assert jsa.tuning(0, 9, 0).batch_size == 512
    assert jsa.tuning(0, 4, 0) == Tuning()
    smallest, jsa, _ = profile([COMPUTE, COMM], "min")
    assert smallest[0, 0] == pytest.approx((32 / (10 + 4.5 * 32)) / (64 / 298))
    assert smallest[0].max() < 2.3 < elastic[0].max()
    assert {jsa.tuning(0, size, 0).batch_size for size in range(1, 11)} == {32}


@given(
    st.floats(0, 50),
    st.floats(0, 10),
    st.floats(0, 500),
    st.integers(1, 80),
    st.integers(1, 150),
    st.integers(0, 200),
    st.integers(1, 12),
    st.floats(0.1, 20),
)
@settings(max_examples=200, deadline=None)
def test_no_whole_number_beats_the_candidates(
    a: float, c: float, weights: float, cap: int, low: int, width: int, gpus: int, gbps: float
) -> None:
    kind = Kind(a + 0.1, c, weights, cap, low, low + width, gbps=gbps)

    def best(batches: Sequence[int]) -> float:
        return max(
            kind.throughput(Shape((gpus,), tuning=Tuning(batch_size=batch))) for batch in batches
        )

    assert best(candidates(gpus, low, low + width)) == best(range(low, low + width + 1))


def test_candidates() -> None:
    assert candidates(4, 10, 21) == [10, 12, 16, 20, 21]
    assert candidates(1, 3, 5) == [3, 4, 5]
    assert candidates(7, 33, 33) == candidates(50, 33, 33) == [33]
    assert candidates(2, 5, 5) == [5]
    many = candidates(1, 1, 10**6)
    assert len(many) <= MAX_BATCHES + 2
    assert (many[0], many[-1]) == (1, 10**6)


def test_a_job_that_one_gpu_cannot_run_is_measured_against_its_share_of_the_fewest_that_can() -> (
    None
):
    wide = Kind(10, 4.5, 25.6, 64, 192, 512)
    found, _, _ = profile([wide])
    assert found[0, :2].tolist() == [0, 0]
    assert found[0, 2] == pytest.approx(3)
    # The same whether smaller sizes are asked for or not, and for a job that says itself that it
    # needs three.
    assert profile([wide], shapes=SIZES[2:])[0][0].tolist() == found[0, 2:].tolist()
    assert profile([Kind(10, 4.5, 25.6, 64, 32, 512, least=3)])[0][0, 2] == pytest.approx(3)
    # 512 fits on 8 and more, and is measured against the 192 on 3.
    assert profile([wide], "max")[0][0, :9].tolist() == [0] * 7 + found[0, 7:9].tolist()
    assert profile([Kind(0, 0, 0, 0, nan, nan, least=2)])[0][0, :3].tolist() == pytest.approx(
        [0, 2, 2 * 1.5**0.8]
    )


def test_a_job_that_nothing_can_run_has_no_speed_up() -> None:
    found, jsa, _ = profile([Kind(1, 1, 1, 4, 100, 200)])
    assert not found.any()
    assert jsa.tuning(0, 3, 0) == Tuning()


def test_jobs_without_a_batch_range_are_left_as_they_are() -> None:
    found, jsa, world = profile([PLAIN, COMPUTE, PLAIN])
    assert found[0].tolist() == pytest.approx([gpus**0.8 for gpus in range(1, 11)])
    assert found[2].tolist() == found[0].tolist()
    assert jsa.tuning(0, 4, 0) == Tuning()
    assert jsa.tuning(1, 4, 0) == Tuning(batch_size=256)
    for batch in ("max", "min", "random"):
        assert profile([PLAIN], batch)[0].tolist() == found[:1].tolist()
    assert profile([PLAIN], shapes=[])[0].shape == (1, 0)
    assert world.asked > 0


def test_one_batch_size_makes_all_variants_alike() -> None:
    kind = Kind(10, 4.5, 25.6, 64, 48, 48)
    profiles = [profile([kind], batch) for batch in ("elastic", "max", "min", "random")]
    assert len({found.tobytes() for found, _, _ in profiles}) == 1
    assert {tuple(jsa.tuning(0, size, 0) for size in range(1, 11)) for _, jsa, _ in profiles} == {
        (Tuning(batch_size=48),) * 10
    }


def test_each_type_is_measured_against_its_own_one_gpu() -> None:
    kind = Kind(10, 4.5, 25.6, 64, 32, 512, speeds=(1.0, 4.0))
    shapes = [Shape((2, 0)), Shape((0, 2))]
    found, jsa, _ = profile([kind], shapes=shapes)
    assert found[0] == pytest.approx(
        [(128 / 318.78) / (64 / 298), (128 / (298 / 4 + 20.78)) / (64 / (298 / 4))]
    )
    assert jsa.tuning(0, 2, 1) == Tuning(batch_size=128)


def test_alike_jobs_share_a_profile() -> None:
    alone, many = profile([COMPUTE])[2].asked, profile([COMPUTE] * 50)[2].asked
    # Beyond the first only the two ends of the range, its middle and the best batch size of the
    # first are asked for.
    assert many == alone + 49 * 4 * len(SIZES)
    _, jsa, world = profile([COMPUTE])
    world.kinds, world.asked = [COMPUTE] * 2, 0
    jsa(world, np.array([1]), SIZES)  # type: ignore[arg-type]
    assert world.asked == 4 * len(SIZES)
    # What is known of a shape is used whatever else is asked for, here three sizes and one GPU.
    world.asked = 0
    jsa(world, np.array([1]), SIZES[3:6])  # type: ignore[arg-type]
    assert world.asked == 4 * 4


@pytest.mark.parametrize(
    "other",
    [
        Kind(10, 4.5, 25.6, 64, 32, 512, code=7),
        Kind(10, 4.5, 25.6, 64, 32, 512, least=2),
        Kind(10, 4.5, 25.6, 64, 32, 512, slower=1.01),
        Kind(10, 4.5, 25.6, 64, 32, 511),
    ],
)
def test_jobs_that_differ_share_nothing(other: Kind) -> None:
    together, _, world = profile([COMPUTE, other])
    assert together[1].tolist() == profile([other])[0][0].tolist()
    assert world.asked == profile([COMPUTE])[2].asked + profile([other])[2].asked


def test_forgetting_what_was_found_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(kinds: list[Kind]) -> tuple[Any, int]:
        first, jsa, world = profile(kinds)
        asked = world.asked
        assert jsa(world, np.arange(len(kinds)), SIZES).tolist() == first.tolist()  # type: ignore[arg-type]
        return first, world.asked - asked

    kept, asked = again([COMPUTE, COMM, BALANCED])
    assert asked == 3 * 4 * len(SIZES)
    monkeypatch.setattr("allocators.elastic.dp._MAX_CACHED", 7)
    forgotten, asked = again([COMPUTE, COMM, BALANCED])
    assert forgotten.tolist() == kept.tolist()
    assert asked > 1000


def test_random_batches_are_drawn_once_in_order_of_arrival() -> None:
    kinds = [COMPUTE, PLAIN, COMM, COMPUTE]
    together, jsa, world = profile(kinds, "random", seed=5)
    drawn = [jsa.tuning(job, 10, 0).batch_size for job in range(4)]
    want = np.random.default_rng(5).random(4)
    assert drawn == [
        32 + int(want[0] * 481),
        None,
        64 + int(want[2] * 961),
        32 + int(want[3] * 481),
    ]
    # In two decisions instead of one, and asked for in another order: the same.
    world, jsa = World(kinds, 5), Scalability("random")
    world.delta, world.active.ids = Delta((0, 1)), np.arange(2)
    jsa.feed(world)  # type: ignore[arg-type]
    world.delta, world.active.ids = Delta((2, 3)), np.arange(4)
    jsa.feed(world)  # type: ignore[arg-type]
    assert jsa(world, np.array([3, 0, 2, 1]), SIZES).tolist() == together[[3, 0, 2, 1]].tolist()  # type: ignore[arg-type]
    assert [jsa.tuning(job, 10, 0).batch_size for job in range(4)] == drawn


def test_finished_jobs_are_forgotten() -> None:
    _, jsa, world = profile([COMPUTE, COMM], "random")
    assert jsa._drawn.keys() | jsa._batches.keys() == {0, 1}
    world.delta = Delta(finished=(0,))
    jsa.feed(world)  # type: ignore[arg-type]
    assert jsa._drawn.keys() | jsa._batches.keys() == {1}
    assert jsa.tuning(0, 4, 0) == Tuning()


@pytest.mark.parametrize("batch", ["elastic", "max", "min"])
def test_agrees_with_the_curves_of_the_batch_model(batch: str) -> None:
    models, spec = ["compute", "comm", "balanced", "non-scalable"], Batch()
    trace = trace_of([(0, 4, 100)] * 4, model=models, min_gpus=[1.0] * 4, max_gpus=[10.0] * 4)
    bound = spec.bind(trace, clusters("2x8:a"))
    limits = bound.limits()
    columns = {name: getattr(limits, name) for name in limits._fields} | {
        "model": trace.texts("model").codes
    }
    view: Any = SimpleNamespace(
        estimates=bound, delta=Delta((0, 1, 2, 3)), one=lambda name, job: float(columns[name][job])
    )
    jsa = Scalability(batch)
    jsa.feed(view)
    found = jsa(view, np.arange(4), SIZES)
    curves = [
        [point for point in speedups(spec, models, 10, batch) if point.model == model]
        for model in models
    ]
    assert found.tolist() == [
        pytest.approx([np.nan_to_num(point.speedup) for point in points]) for points in curves
    ]
    if batch == "elastic":
        assert [
            [jsa.tuning(job, size, 0).batch_size for size in range(1, 11)] for job in range(4)
        ] == [[point.batch for point in points] for points in curves]
