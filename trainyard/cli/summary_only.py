"""``run --summary-only``: numbers of runs too large to keep a record in memory."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Final

from sim.engine.fast.runner import LoopOutcome, NotPlainError
from sim.engine.simulator import Conditions
from sim.errors import ParameterError
from sim.params import Spec
from sim.trace import Trace
from trainyard.cli.arguments import ALL, check_not_trace, make_folder, parse_cluster
from trainyard.cli.errors import UsageError
from trainyard.formatting import duration
from trainyard.runs.engines import warm
from trainyard.runs.summary_only import run_totals, write_jobs
from trainyard.store import plain
from trainyard.study import catalog
from trainyard.study.study import labels
from trainyard.traces.summary_reader import read_minimal_trace

_SUPPORTED: Final = frozenset(
    {
        "command",
        "trace",
        "cluster",
        "allocator",
        "engine",
        "summary_only",
        "json",
        "max_mb",
        "jobs_out",
    }
)


def command_totals(args: argparse.Namespace) -> None:
    """Execute ``run --summary-only``: print totals of each policy on the fast engine.

    With --jobs-out, one Parquet file of jobs is written per policy.

    Raises
    ------
    TrainyardError
        If an option is missing or unsupported, or the fast engine cannot make a run.
    """
    others = [name for name, value in vars(args).items() if name not in _SUPPORTED and value]
    if others or args.engine == "kernel":
        name = others[0].replace("_", "-") if others else "engine kernel"
        raise UsageError(f"--{name} does not work with --summary-only. Leave one of them out.")
    if not (args.trace and args.cluster and args.allocator) or ALL in args.allocator:
        raise UsageError(
            "--summary-only needs --trace FILE.parquet, --cluster and policies named with --policy."
        )
    folder = make_folder(args.jobs_out) if args.jobs_out else None
    source = Path(args.trace)
    trace, cluster = read_minimal_trace(source), parse_cluster(args.cluster)
    rows, specs = [], [catalog.canonical("allocator", Spec.parse(one)) for one in args.allocator]
    warm()
    for label, spec in zip(labels(specs), specs, strict=True):
        allocator = catalog.instance("allocator", spec)
        try:
            keep = (
                partial(_write_jobs_file, source, trace, folder / f"{label}.parquet")
                if folder
                else None
            )
            numbers = run_totals(trace, cluster, allocator, Conditions(), keep)
        except NotPlainError as error:
            raise ParameterError(
                f"{label}: the fast engine cannot make this run: {error}. Run it without"
                " --summary-only."
            ) from error
        rows.append(plain({"label": label, **numbers}))
        if not args.json:
            sys.stdout.write(_summary_line(rows[-1]))
    if args.json:
        sys.stdout.write(json.dumps({"runs": rows}, indent=2, allow_nan=False) + "\n")


def _write_jobs_file(source: Path, trace: Trace, path: Path, run: LoopOutcome) -> None:
    """Write the jobs of a run to a Parquet file that appears only when complete."""
    part = check_not_trace(path, str(source)).with_suffix(".part")
    try:
        write_jobs(source, trace, part, run)
        part.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path}: the jobs cannot be written ({error.strerror or error}). Choose another"
            " folder."
        ) from error


def _summary_line(row: dict[str, float]) -> str:
    """Return jobs done, times, utilization, CPU time and memory of a run as one line."""
    times = ", ".join(
        f"{title} {duration(row[name])}"
        for title, name in (
            ("average time", "jct_mean_s"),
            ("half within", "jct_p50_s"),
            ("95 % within", "jct_p95_s"),
            ("average wait", "queue_mean_s"),
            ("longest wait", "wait_max_s"),
            ("makespan", "makespan_s"),
        )
        if row[name] is not None
    )
    busy = "" if row["utilisation"] is None else f", GPUs busy {100 * row['utilisation']:.1f} %"
    return (
        f"{row['label']}: {row['completed']:,} of {row['jobs']:,} jobs done, {times}{busy};"
        f" {row['cpu_s']:.1f} s of CPU, {row['peak_rss_mb'] / 1e3:.1f} GB.\n"
    )
