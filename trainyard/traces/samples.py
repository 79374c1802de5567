"""The sample traces, each with its cluster and the recipe that generates it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd

from jobtraces.generate import generate, with_history
from sim.cluster import Cluster
from sim.errors import TraceError
from sim.trace import Trace
from trainyard.store.entry import read_frame

SAMPLES_FOLDER: Final = Path(__file__).resolve().parents[2] / "sample_traces"


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """Arguments of `jobtraces.generate.generate`; the history uses the same seed."""

    profile: str
    jobs: int
    seed: int
    cluster: str
    load: float
    days: float | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments for ``python -m trainyard generate``."""
        days = () if self.days is None else ("--days", f"{self.days:g}")
        numbers = (
            "--jobs",
            str(self.jobs),
            "--seed",
            str(self.seed),
            "--cluster",
            self.cluster,
            "--load",
            f"{self.load:g}",
        )
        return ("--profile", self.profile, *numbers, *days, "--history")


@dataclass(frozen=True, slots=True)
class SampleInfo:
    """A sample trace of this project.

    Parameters
    ----------
    name : str
        Key in `SAMPLES`, and stem of its files.
    title : str
        Title in lists.
    description : str
        One sentence for the user.
    origin : str
        Origin of the trace, as one sentence.
    cluster_name : str
        Name of its cluster.
    suffix : str
        Suffix of the file of jobs.
    recipe : SampleSpec or None
        None = written by hand.
    """

    name: str
    title: str
    description: str
    origin: str
    cluster_name: str
    suffix: str = ".parquet"
    recipe: SampleSpec | None = None

    @property
    def path(self) -> Path:
        """Path of the file of jobs."""
        return SAMPLES_FOLDER / f"{self.name}{self.suffix}"

    @property
    def cluster_path(self) -> Path:
        """Path of the file of the cluster."""
        return SAMPLES_FOLDER / f"{self.name}.cluster.json"


_GENERATED: Final = (
    "Generated from published statistics; start times are generated (first come first served"
    " with backfilling)."
)

SAMPLES: Final[Mapping[str, SampleInfo]] = {
    sample.name: sample
    for sample in (
        SampleInfo(
            "week",
            "A week on two GPU types",
            "1,200 jobs of 25 users in 7 days, on 32 A100 and 32 V100 GPUs.",
            _GENERATED,
            "A100 and V100",
            recipe=SampleSpec("week", 1_200, 3, "4x8:a100,4x8:v100", 0.85, 7),
        ),
        SampleInfo(
            "tiny",
            "Twelve jobs by hand",
            "Twelve jobs on 8 GPUs, small enough to check every schedule with a pencil.",
            "Written by hand; start times are strict first come first served.",
            "One node",
            ".csv",
        ),
        SampleInfo(
            "philly-like",
            "Philly-like, 10,000 jobs",
            "Nine days that look like Microsoft's Philly cluster of 2017 on 320 GPUs: mostly"
            " one-GPU jobs, most GPU time in eight-GPU jobs, violent bursts.",
            _GENERATED,
            "Philly-like",
            recipe=SampleSpec("philly", 10_000, 4, "40x8:p100", 0.85),
        ),
        SampleInfo(
            "venus-like",
            "Venus-like, 10,000 jobs",
            "Eleven days that look like SenseTime's Venus cluster of 2020 on 512 GPUs: half the"
            " jobs short, a quarter on eight GPUs, jobs of up to 128.",
            _GENERATED,
            "Venus-like",
            recipe=SampleSpec("venus", 10_000, 6, "64x8:v100", 0.85),
        ),
        SampleInfo(
            "pai-like",
            "PAI-like, 10,000 jobs",
            "Five days that look like Alibaba's PAI cluster of 2020 on 384 GPUs of three types:"
            " round decimal gang sizes, many repeated submissions.",
            _GENERATED,
            "PAI-like",
            recipe=SampleSpec("pai", 10_000, 1, "64x2:p100,32x2:t4,24x8:v100", 0.82),
        ),
    )
}


def load_sample(name: str) -> tuple[Trace, Cluster]:
    """Read a sample trace and its cluster from the bundled files.

    Raises
    ------
    TraceError
        If there is no such sample, or its files are missing.
    """
    sample = _sample_info(name)
    try:
        frame = (
            read_frame(sample.path.read_bytes())
            if sample.suffix == ".parquet"
            else pd.read_csv(sample.path, dtype={"job_id": "str"})
        )
        cluster = Cluster.from_json(json.loads(sample.cluster_path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise TraceError(
            f"Sample {name}: {error.filename} is missing. Restore the folder sample_traces or run"
            " python -m trainyard generate."
        ) from error
    return Trace.of(frame, name=sample.title, epoch=str(frame.attrs.get("epoch", ""))), cluster


def make_sample(name: str) -> tuple[Trace, Cluster]:
    """Generate a sample again from its recipe, and return it with its cluster.

    Raises
    ------
    TraceError
        If there is no such sample, or it was written by hand.
    """
    sample = _sample_info(name)
    recipe = sample.recipe
    if recipe is None:
        raise TraceError(
            f"Sample {name} was written by hand and has no recipe. Copy {sample.path.name} instead."
        )
    groups = Cluster.parse(recipe.cluster).groups
    cluster = Cluster(groups, name=sample.cluster_name)
    trace = generate(
        recipe.profile,
        jobs=recipe.jobs,
        seed=recipe.seed,
        cluster=cluster,
        load=recipe.load,
        days=recipe.days,
    )
    return with_history(trace, cluster, recipe.seed), cluster


def write_sample(name: str, folder: Path) -> tuple[Path, Path]:
    """Generate a sample again and write its two files into a folder.

    Returns
    -------
    tuple of Path
        The file of jobs and the file of the cluster.

    Raises
    ------
    TraceError
        If there is no such sample, or it was written by hand.
    """
    sample = _sample_info(name)
    trace, cluster = make_sample(name)
    jobs, machines = folder / sample.path.name, folder / sample.cluster_path.name
    write_trace(trace, jobs)
    machines.write_text(json.dumps(cluster.to_json(), indent=2) + "\n", encoding="utf-8")
    return jobs, machines


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace with native columns: Parquet if the name ends so, else CSV.

    Parameters
    ----------
    trace : Trace
        The epoch is stored in Parquet metadata; CSV files lose it.
    path : Path
        Target file; overwritten if it exists.
    """
    if path.suffix != ".parquet":
        trace.frame.to_csv(path, index=False, lineterminator="\n")
        return
    frame = trace.frame.copy()
    frame.attrs["epoch"] = trace.epoch
    frame.to_parquet(path, index=False, compression="zstd", compression_level=19)


def _sample_info(name: str) -> SampleInfo:
    """Return the description of a sample; raise if there is none of that name."""
    if name not in SAMPLES:
        raise TraceError(f"There is no sample '{name}'. Choose one of {', '.join(SAMPLES)}.")
    return SAMPLES[name]
