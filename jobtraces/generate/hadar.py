"""Workloads after Hadar and HadarE: size classes on 60 GPUs, and mixes on five nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.elastic import HOUR_S, MAX_JOBS, MAX_SEED, pick_by_share
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.errors import ParameterError
from sim.params import param
from sim.perf.measured import ANY_BATCH, Key, built_in
from sim.perf.profiles import plain
from sim.trace import Trace

Floats = NDArray[np.float64]

MEASURED_ON: Final = "v100"
GANGS: Final = (1, 2, 4, 8)


class Kind(NamedTuple):
    """A model with a batch size per GPU; `gangs`: whether it was measured on several GPUs.

    NaN = the model has a single batch size.
    """

    model: str
    batch: float
    gangs: bool = True


RESNET_18, RESNET_50, LM, TRANSFORMER = (
    Kind("ResNet-18", 64),
    Kind("ResNet-50", 64),
    Kind("LM", 20),
    Kind("Transformer", 64),
)
CYCLEGAN, RECOMMENDATION = (
    Kind("CycleGAN", math.nan, gangs=False),
    Kind("Recommendation", 8192, gangs=False),
)
CLASSES: Final = (
    (0.1, 1.0, (RESNET_18,)),
    (1.0, 10.0, (CYCLEGAN,)),
    (10.0, 50.0, (LM, TRANSFORMER)),
    (60.0, 100.0, (RESNET_50,)),
)
"""Small, medium, large and extra large: range of GPU-hours on V100s, and models."""
MIX: Final = (RESNET_50, LM, TRANSFORMER, RECOMMENDATION, CYCLEGAN)
"""Image classification, language modeling, translation, recommendation, and CycleGAN in place of
the weather model, which lacks measurements.
"""

PRESETS: Final = {
    "aws": (("v100", 1.0, 1), ("t4", 0.45, 2), ("k80", 0.17, 2)),
    "lab": (
        ("rtx3090", 1.0, 1),
        ("titan-rtx", 0.8, 1),
        ("t4", 0.4, 1),
        ("a2000", 0.35, 1),
        ("t400", 0.1, 1),
    ),
}
"""Single-GPU nodes: type, assumed speed relative to a V100, count. Types in the performance profile
use its speeds instead.
"""


@dataclass(frozen=True)
class HadarWorkload:
    """Jobs of four size classes by GPU-hours, in gangs of 1, 2, 4 and 8 GPUs."""

    title: ClassVar[str] = "Jobs by size class, after Hadar"

    jobs: int = param(480, low=2, high=MAX_JOBS, help="Number of jobs.")
    per_h: float = param(
        0.0,
        title="Arrivals",
        unit="1/h",
        low=0,
        high=1e6,
        help="Mean arrivals per hour, a Poisson process; 0 = all jobs at once.",
    )
    shares: tuple[float, ...] = param(
        (55.0, 25.0, 15.0, 5.0),
        title="Mix of job sizes",
        low=0,
        high=1e6,
        help="Frequency of small, medium, large and extra large jobs.",
    )
    gangs: tuple[float, ...] = param(
        (70.0, 10.0, 15.0, 5.0),
        title="Mix of gang sizes",
        low=0,
        high=1e6,
        help="Frequency of 1, 2, 4 and 8 GPUs; medium jobs always have 1.",
    )
    seed: int = param(0, low=0, high=MAX_SEED, help="Seed of everything random.")

    def __post_init__(self) -> None:
        """Raise an error unless both shares are four numbers."""
        for name, shares in (("shares", self.shares), ("gangs", self.gangs)):
            if len(shares) != len(GANGS) or not 0 < sum(shares) < math.inf:
                raise ParameterError(
                    f"hadar: {name} must be four numbers such as 55/25/15/5, not all 0."
                )

    def machines(self) -> Cluster:
        """Return the cluster of the experiment: 20 GPUs of each of three types."""
        return Cluster.parse("5x4:v100,5x4:p100,5x4:k80")

    def make(self) -> Trace:
        """Return the jobs; `per_h` only scales the gaps, and fewer jobs are the first of more.

        Run times are GPU-hours drawn uniformly in the size class over the GPUs; models that were
        not measured in gangs get one GPU.
        """
        arrival_rng, class_rng, size_rng, work_rng, model_rng = (
            np.random.default_rng(child) for child in np.random.SeedSequence(self.seed).spawn(5)
        )
        class_index, gang_index = (
            pick_by_share(self.shares, class_rng.random(self.jobs)),
            pick_by_share(self.gangs, size_rng.random(self.jobs)),
        )
        low, high = np.array([(minimum, maximum) for minimum, maximum, _ in CLASSES]).T
        gpu_h = low[class_index] + (high - low)[class_index] * work_rng.random(self.jobs)
        kinds = [
            CLASSES[index][2][int(uniform * len(CLASSES[index][2]))]
            for index, uniform in zip(class_index, model_rng.random(self.jobs), strict=True)
        ]
        gpus = [
            GANGS[index] if kind.gangs else 1 for index, kind in zip(gang_index, kinds, strict=True)
        ]
        gaps = arrival_rng.standard_exponential(self.jobs)
        gaps[0] = 0.0
        submit_s = np.cumsum(gaps) * (HOUR_S / self.per_h) if self.per_h else np.zeros(self.jobs)
        arrivals = f"{self.per_h:g} per hour" if self.per_h else "all at once"
        name = f"Made: {self.jobs:,} jobs by size class after Hadar, {arrivals}, seed {self.seed}"
        return Trace.of(
            _jobs_frame(kinds, gpus, submit_s, gpu_h * HOUR_S / np.array(gpus)), name=name
        )


@dataclass(frozen=True)
class HadarEWorkload:
    """A mix of a few jobs of five models, all at once, on five single-GPU nodes."""

    title: ClassVar[str] = "Mixes on five unequal nodes, after HadarE"

    jobs: int = param(
        5,
        low=1,
        high=1000,
        help="Number of jobs; the published mixes have 1, 3, 4, 5, 8, 10 and 12.",
    )
    nodes: str = param(
        "aws",
        title="Machines",
        choices=tuple(PRESETS),
        labels={"aws": "AWS instances", "lab": "Lab machines"},
        help=(
            "aws: V100, 2 T4, 2 K80. lab: RTX 3090, Titan RTX, T4, RTX A2000, T400, with "
            "assumed speeds."
        ),
    )
    shortest_h: float = param(
        1.0,
        title="Shortest run time",
        unit="h",
        low=0.001,
        high=1e4,
        help="Least run time on a V100; drawn uniformly.",
    )
    longest_h: float = param(
        5.0,
        title="Longest run time",
        unit="h",
        low=0.001,
        high=1e4,
        help="Largest run time on a V100.",
    )
    seed: int = param(0, low=0, high=MAX_SEED, help="Seed of everything random.")

    def __post_init__(self) -> None:
        """Raise an error for parameters that contradict each other."""
        if self.shortest_h > self.longest_h:
            raise ParameterError(
                f"hadare: shortest_h = {self.shortest_h:g} h is more than longest_h ="
                f" {self.longest_h:g} h. Exchange them."
            )

    def machines(self) -> Cluster:
        """Return the cluster of five single-GPU nodes, with the assumed speeds of their types."""
        preset = PRESETS[self.nodes]
        groups = tuple(NodeGroup(count, 1, kind) for kind, _, count in preset)
        return Cluster(
            groups,
            tuple(GpuType(kind, speed) for kind, speed, _ in preset),
            name=f"Five {self.nodes} nodes",
        )

    def make(self) -> Trace:
        """Return the jobs: models in turn from a random first one; fewer are the first of more."""
        model_rng, work_rng = (
            np.random.default_rng(child) for child in np.random.SeedSequence(self.seed).spawn(2)
        )
        start = int(model_rng.integers(len(MIX)))
        kinds = [MIX[(start + index) % len(MIX)] for index in range(self.jobs)]
        hours = self.shortest_h + (self.longest_h - self.shortest_h) * work_rng.random(self.jobs)
        frame = _jobs_frame(kinds, [1] * self.jobs, np.zeros(self.jobs), hours * HOUR_S)
        return Trace.of(
            frame, name=f"Made: mix of {self.jobs:,} jobs after HadarE, seed {self.seed}"
        )


def _jobs_frame(
    kinds: list[Kind], gpus: list[int], submit_s: Floats, duration_s: Floats
) -> pd.DataFrame:
    """Return the jobs as a table; total steps are run time times the speed measured on V100s."""
    table = built_in("simulation")
    keys = [
        Key(
            plain(kind.model),
            ANY_BATCH if math.isnan(kind.batch) else kind.batch,
            count,
            MEASURED_ON,
        )
        for kind, count in zip(kinds, gpus, strict=True)
    ]
    speeds = [table.rows[key].together for key in keys]
    return pd.DataFrame(
        {
            "job_id": list(map(str, range(1, len(kinds) + 1))),
            "submit_time_s": submit_s,
            "num_gpus": gpus,
            "duration_s": duration_s,
            "model": [kind.model for kind in kinds],
            "batch_size": [kind.batch for kind in kinds],
            "total_steps": duration_s * np.array(speeds),
            "gpu_type": MEASURED_ON,
        }
    )
