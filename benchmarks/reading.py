"""Seconds to read 100,000 rows of a native CSV file and of a Slurm accounting dump."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.unit import print_figures
from jobtraces import read
from jobtraces.generate import generate
from trainyard.traces.samples import write_trace

ROWS = 100_000
MAX_S = 2.0


def main(_arguments: list[str]) -> Iterator[str]:
    """Print the median time of five reads per format and yield exceeded budgets."""
    with tempfile.TemporaryDirectory() as folder:
        native = Path(folder) / "native.csv"
        write_trace(generate("philly", jobs=ROWS, seed=0), native)
        slurm = Path(folder) / "sacct.txt"
        slurm.write_text(_sacct(), encoding="utf-8")
        for path in (native, slurm):
            seconds = round(_median_s(path), 2)
            size_mb = round(path.stat().st_size / 1e6, 1)
            print_figures(file=path.name, MB=size_mb, rows=ROWS, seconds=seconds)
            if seconds > MAX_S:
                yield f"{path.name}: {seconds} s"


def _median_s(path: Path) -> float:
    """Return the median seconds of five reads of a file."""
    times = []
    for _ in range(5):
        began = perf_counter()
        jobs_used = read(path).used
        times.append(perf_counter() - began)
        assert jobs_used == ROWS
    return statistics.median(times)


def _sacct() -> str:
    """Return a Slurm accounting dump."""
    header = "JobID|Partition|User|Submit|Start|End|Elapsed|Timelimit|State|NNodes|NCPUS|AllocTRES|JobName"  # noqa: E501
    rows = (
        f"{at}|gpu|u{at % 97}|2025-01-{1 + at % 28:02d}T09:12:44|2025-01-{1 + at % 28:02d}T09:40:02|2025-01-{1 + at % 28:02d}T11:40:05|02:00:03|1-12:00:00"  # noqa: E501
        f"|COMPLETED|1|16|billing=16,cpu=16,gres/gpu:a100={1 + at % 8},gres/gpu={1 + at % 8},mem=96G,node=1|train"  # noqa: E501
        for at in range(ROWS)
    )
    return "\n".join([header, *rows]) + "\n"
