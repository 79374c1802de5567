"""What every allocator must do, as checks over a name of the registry, and the scenarios in which
they are made.

A new allocator is checked as soon as it is in the registry. `SCENARIOS` are small but full of
conflict: mixed types, partitions, priorities, limits of cores and memory, recorded starts that do
not fit; every parameter of every allocator must make a difference in one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import inf, isfinite
from typing import Any

import numpy as np
import pandas as pd

from allocators import REGISTRY, make
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.contract import Allocator, Needs, ParamInfo, Plan, Spec, View, parameters
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.batch import Batch
from sim.perf.parameter_server import ParameterServer
from sim.perf.profiled import Profiled
from sim.perf.scaling import PowerLaw
from sim.result import RunResult
from sim.trace import Trace

CLAIRVOYANT = {"remaining_work", "rates"}
DRAWN = {"slurm"}
"""Policies that draw from `View.rng` under their defaults: phases of clocks."""
RESTARTS = Overheads(restart_s=60)
STRAGGLING = Conditions(
    ParameterServer(slow="3:0:inf:0.6;5:20000:60000:0.5"),
    overheads=Overheads(restart_s=60, overlap_s=40, overlap_pause_s=20),
)
COPIES_COST = Profiled(stand_in="relative", efficiency=0.7)
TYPES = (GpuType("mid", 1.0, 0.9), GpuType("slow", 0.5, 1.0), GpuType("fast", 2.0, 6.0))


@dataclass(frozen=True)
class Scenario:
    name: str
    trace: Trace
    cluster: Cluster
    conditions: Conditions = field(default_factory=Conditions)

    def run(self, allocator: Allocator, conditions: Conditions | None = None) -> RunResult:
        return Simulator(self.trace, self.cluster, allocator, conditions or self.conditions).run()


def jobs(
    seed: int, count: int, sizes: tuple[int, ...], mean_s: float, gap_s: float
) -> pd.DataFrame:
    """Jobs with distinct arrivals and every optional column that a policy may read."""
    rng = np.random.default_rng(seed)
    submit_s = np.cumsum(rng.integers(1, 2 * gap_s, count).astype(float))
    duration_s = np.ceil(rng.lognormal(0, 1.2, count) * mean_s)
    return pd.DataFrame(
        {
            "job_id": [f"j{at:03}" for at in range(count)],
            "submit_time_s": submit_s - submit_s[0],
            "num_gpus": rng.choice(sizes, count),
            "duration_s": duration_s,
            "start_time_s": submit_s - submit_s[0] + rng.integers(0, 6 * gap_s, count),
            "time_limit_s": np.where(
                rng.random(count) < 0.8, duration_s * rng.integers(1, 20, count), np.nan
            ),
            "priority": rng.integers(0, 3, count).astype(float),
            "vc": rng.choice(["a", "b"], count),
            "partition": rng.choice(["a", "b"], count),
            "user": rng.choice(["ann", "bob", "cy"], count),
            "qos": rng.choice(["high", "low", "low"], count),
        }
    )


def groups(*sizes: tuple[int, int, str, float, tuple[str, ...]]) -> Cluster:
    made = tuple(
        NodeGroup(count, gpus, kind, cpus=cpus, partitions=names)
        for count, gpus, kind, cpus, names in sizes
    )
    used = {kind for _, _, kind, _, _ in sizes}
    return Cluster(made, tuple(kind for kind in TYPES if kind.name in used))


@cache
def scenarios() -> tuple[Scenario, ...]:
    plain = jobs(1, 70, (1, 1, 2, 3, 4, 8), 9000, 3000)
    mixed = jobs(2, 70, (1, 2, 2, 4, 6), 4000, 900).assign(
        gpu_types_allowed=lambda frame: np.where(frame.index % 7 == 0, "mid|fast", None)
    )
    limited = jobs(3, 60, (1, 1, 2, 4), 3000, 1200).assign(
        cpus=lambda frame: frame["num_gpus"] * (frame.index % 4 * 2.0),
        mem_gb=lambda frame: frame["num_gpus"] * 8.0,
        deadline_s=lambda frame: frame["submit_time_s"] + 4000.0 * (1 + frame.index % 3),
    )
    three = groups((2, 4, "mid", inf, ()), (1, 4, "slow", inf, ()), (1, 2, "fast", inf, ()))
    return (
        Scenario(
            "plain", Trace.of(plain), groups((2, 8, "mid", inf, ("a",)), (1, 8, "mid", inf, ("b",)))
        ),
        Scenario(
            "mixed",
            Trace.of(mixed),
            groups(
                (2, 4, "mid", inf, ()), (2, 4, "slow", inf, ("a",)), (2, 2, "fast", inf, ("b",))
            ),
        ),
        Scenario(
            "limited", Trace.of(limited), groups((3, 4, "mid", 16.0, ()), (1, 4, "slow", 8.0, ()))
        ),
        Scenario(
            "failing",
            Trace.of(plain),
            groups((4, 8, "mid", inf, ())),
            Conditions(faults=Faults(mtbf_h=30, mttr_h=3), seed=3),
        ),
        Scenario(
            "elastic",
            Trace.of(elastic(6)),
            groups((4, 8, "mid", inf, ())),
            Conditions(PowerLaw(), overheads=RESTARTS),
        ),
        Scenario("batched", Trace.of(batched(7)), three, Conditions(Batch(), overheads=RESTARTS)),
        Scenario(
            "staffed",
            Trace.of(staffed(9)),
            Cluster.parse("1x4:v100/24c/96g,5x0:cpu/32c/128g"),
            STRAGGLING,
        ),
        Scenario(
            "measured",
            Trace.of(measured(8)),
            Cluster.parse("2x4:v100,2x4:p100,1x4:k80"),
            Conditions(COPIES_COST, overheads=RESTARTS),
        ),
    )


def elastic(seed: int) -> pd.DataFrame:
    """More work than the cluster can do at once, of jobs that scale unequally well from a node's
    eighth to several nodes.
    """
    frame = jobs(seed, 40, (1, 2, 4, 8), 9000, 900)
    rng = np.random.default_rng([seed, 1])
    return frame.assign(
        scaling_exponent=rng.uniform(0.3, 1.0, len(frame)),
        min_gpus=np.maximum(frame["num_gpus"] // 4, 1),
        max_gpus=frame["num_gpus"] * 4,
    )


def measured(seed: int) -> pd.DataFrame:
    """Jobs of models whose throughput was measured on every type of the cluster."""
    frame = jobs(seed, 40, (1, 1, 2, 4), 3000, 900)
    rng = np.random.default_rng([seed, 1])
    deadline_s = np.where(
        frame.index % 3 == 0, frame["submit_time_s"] + 10 * frame["duration_s"], np.nan
    )
    return frame.assign(
        model=rng.choice(["ResNet-18", "ResNet-50", "LM", "Transformer"], len(frame)),
        batch_size=np.nan,
        deadline_s=deadline_s,
    )


def staffed(seed: int) -> pd.DataFrame:
    """Jobs of workers and parameter servers, some on one or two GPUs each and in step, most on
    cores at their own pace; one server has room for all memory.
    """
    frame = jobs(seed, 45, (0, 0, 0, 1, 2, 4), 1800, 500)
    frame["submit_time_s"] += np.where(frame.index >= 30, 100_000, 0)  # the rest a day later
    rng = np.random.default_rng([seed, 1])
    kind, count = rng.integers(0, 4, len(frame)), len(frame)
    on_gpus = frame["num_gpus"].to_numpy() > 0
    gpus = np.where((frame["num_gpus"] == 4) & (kind == 1), 2, 1)  # of a worker
    workers = np.where(on_gpus, frame["num_gpus"] / gpus, 2 * kind + 2).astype(float)
    servers = np.where(
        on_gpus, rng.integers(1, 3, count), np.where(frame.index % 9 == 0, 0, 1 + kind)
    ).astype(float)
    return frame.assign(
        name=np.array(["ads", "feed", "news", "video"])[kind],
        model=np.where(
            on_gpus,
            np.where(kind > 1, "vgg", "resnet50"),
            np.array(["wide_deep", "deepfm", "xdeepfm"])[rng.integers(0, 3, count)],
        ),
        batch_size=np.where(on_gpus, 64.0, 512 * workers),
        asynchronous=np.where(on_gpus, 0.0, 1.0),
        min_gpus=np.where(on_gpus & (kind == 3), workers, np.nan),
        workers=workers,
        servers=servers,
        worker_cpus=np.where(on_gpus, 1.0, rng.integers(2, 5, count)),
        worker_mem_gb=6.0,
        server_cpus=4.0,
        server_mem_gb=np.where(kind == 3, 30.0, 10.0),
        worker_mem_need_gb=4.0,
        server_mem_need_gb=np.where(kind == 3, 20.0, 5.0),
        server_mem_growth_gb=np.where(kind == 3, 8.0, 0.0),
    )


def batched(seed: int) -> pd.DataFrame:
    """Jobs of the four classes whose batch size may be chosen."""
    frame = jobs(seed, 45, (1, 1, 2), 4000, 200)
    rng = np.random.default_rng([seed, 1])
    return frame.assign(
        model=rng.choice(["compute", "comm", "balanced", "non-scalable"], len(frame)),
        min_gpus=1,
        max_gpus=12,
    )


# -- parameters
# --------------------------------------------------------------------------------------------------


def alternatives(info: ParamInfo) -> list[Any]:
    """Values of a parameter other than its default, within its bounds."""
    if info.kind in {"choice", "file", "text"}:  # other texts: tests of the policies themselves
        return [choice for choice in info.choices if choice != info.default]
    if info.kind == "bool":
        return [not info.default]
    if info.kind == "spec":
        return [Spec(name) for name in ("fifo", "sjf", "las") if Spec(name) != info.default]
    if info.kind == "numbers":
        thirds = tuple(value / 3 for value in info.default)
        return [thirds, info.default[:1]] if thirds else [(10.0, 500.0)]
    low, high = (
        info.low if info.low is not None else -inf,
        (info.high if info.high is not None else inf),
    )
    # The shortest intervals last: runs with them are long, and one value that makes a difference is
    # enough.
    wanted = [
        info.default * 2,
        info.default / 2,
        info.default * 5,
        2,
        1,
        0,
        *([high] if high <= 1 else []),
    ]
    values = [
        int(value) if info.kind == "int" else float(value)
        for value in wanted
        if low <= value <= high
    ]
    return [value for value in dict.fromkeys(values) if value != info.default]


def specs(name: str) -> Iterator[Spec]:
    """The default of an allocator, then each of its parameters changed alone."""
    yield Spec(name)
    for info in parameters(REGISTRY[name]):
        for value in alternatives(info):
            yield Spec.of(name, **{info.name: value})


@lru_cache(maxsize=256)
def result_of(spec: Spec, scenario: str) -> RunResult:
    """The result of a run; runs are made once, and nobody may change what they gave."""
    return next(item for item in scenarios() if item.name == scenario).run(make(spec))


@cache
def digest(spec: Spec, scenario: str) -> str:
    """The result of a run, as a hash."""
    return result_of(spec, scenario).digest()


# -- observers
# --------------------------------------------------------------------------------------------------


class Observed:
    """An allocator, every plan of which is looked at before it is handed on."""

    def __init__(self, inner: Allocator, needs: Needs | None = None) -> None:
        self.inner = inner
        self.cadence, self.card = inner.cadence, inner.card
        self.needs = inner.needs if needs is None else needs
        self.calls = 0

    def allocate(self, view: View) -> Plan:
        plan = self.inner.allocate(view)
        self.calls += 1
        assert plan.wake_at_s > view.now_s, (
            f"a wake-up at {plan.wake_at_s} s, which is not after {view.now_s} s"
        )
        assert all(isfinite(value) for value in plan.notes.values())
        several = [
            job for job, grant in plan.changes.items() if grant is not None and len(grant.gangs) > 1
        ]
        assert not several or "forks" in self.needs.requires, (
            f"jobs {several} get copies, which needs 'forks'"
        )
        return plan


def check_feasible(result: RunResult, scenario: Scenario) -> None:
    """Recount from the record, node by node, that nobody ever held what was not there."""
    nodes, overflow = scenario.cluster.nodes, result.overflow
    held = result.placements.merge(
        result.segments[["job", "t0", "t1"]], left_on="segment", right_index=True
    )
    assert (held["t0"] >= result.jobs["submit_s"].to_numpy()[held["job"]]).all()
    assert (held["t1"] >= held["t0"]).all()
    for node, rows in held[held["node"] != (-1 if overflow is None else overflow)].groupby("node"):
        for what, most in (
            ("gpus", nodes[node].gpus),
            ("cpus", nodes[node].cpus),
            ("mem_gb", nodes[node].mem_gb),
        ):
            amount = (rows["count"] * rows[what]).to_numpy()
            at = np.concatenate([rows["t0"], rows["t1"]])
            change = np.concatenate([amount, -amount])
            order = np.lexsort((change, at))  # at one instant releases come first
            assert change[order].cumsum().max() <= most + 1e-6
        down = result.outages[result.outages["node"] == node]
        for outage in down.itertuples():
            end_s = inf if np.isnan(outage.t1) else outage.t1
            assert not (
                (rows["t0"] < end_s) & (rows["t1"] > outage.t0) & (rows["t1"] > rows["t0"])
            ).any()


def check_finished(result: RunResult) -> None:
    assert set(result.jobs["outcome"]) <= {"completed", "refused", "impossible"}
    assert result.reason == "drained"
