"""Seconds to read 100,000 rows: a plain CSV in the native schema, and an accounting dump of
Slurm.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

from jobtraces import read
from jobtraces.generate import generate
from trainyard.traces.samples import write_trace

ROWS = 100_000
MAX_S = 2.0


def main(arguments: list[str]) -> list[str]:
    """Print one line per format, the median of five reads from the file to the checked trace, and
    return what is over its budget.
    """
    del arguments
    over: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        native = Path(folder) / "native.csv"
        write_trace(generate("philly", jobs=ROWS, seed=0), native)
        slurm = Path(folder) / "sacct.txt"
        slurm.write_text(_sacct(), encoding="utf-8")
        for path in (native, slurm):
            seconds = round(_median_s(path), 2)
            print(
                json.dumps(
                    {
                        "file": path.name,
                        "MB": round(path.stat().st_size / 1e6, 1),
                        "rows": ROWS,
                        "seconds": seconds,
                    }
                ),
                flush=True,
            )
            over += [f"{path.name}: {seconds} s"] if seconds > MAX_S else []
    return over


def _median_s(path: Path) -> float:
    times = []
    for _ in range(5):
        began = perf_counter()
        found = read(path)
        times.append(perf_counter() - began)
        assert found.used == ROWS
    return statistics.median(times)


def _sacct() -> str:
    header = "JobID|Partition|User|Submit|Start|End|Elapsed|Timelimit|State|NNodes|NCPUS|AllocTRES|JobName"  # noqa: E501
    rows = (
        f"{at}|gpu|u{at % 97}|2025-01-{1 + at % 28:02d}T09:12:44|2025-01-{1 + at % 28:02d}T09:40:02|2025-01-{1 + at % 28:02d}T11:40:05|02:00:03|1-12:00:00"  # noqa: E501
        f"|COMPLETED|1|16|billing=16,cpu=16,gres/gpu:a100={1 + at % 8},gres/gpu={1 + at % 8},mem=96G,node=1|train"  # noqa: E501
        for at in range(ROWS)
    )
    return "\n".join([header, *rows]) + "\n"
