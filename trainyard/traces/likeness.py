"""Generate jobs similar to a trace, and compare two traces."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate import canonical, figures
from jobtraces.generate.fit import MIN_JOBS as MIN_FITTED_JOBS
from jobtraces.generate.like import Like
from sim.cluster import KNOWN_TYPES, Cluster
from sim.params import Spec, spec_of
from sim.trace import Trace
from trainyard.formatting import count, factor, share, time
from trainyard.study.scenario import MADE, TraceSpec

Floats = NDArray[np.float64]
CLOSE_DISTANCE: Final = 0.05
"""Largest distance of distributions that count as close."""
CLOSE_SPREAD: Final = 0.3
"""Largest relative difference in the spread of hourly counts of close traces."""
PACE_LOG_RATIO: Final = math.log(1.25)
"""Log ratio of jobs per day from which the pace is reported as the largest difference."""
QUANTILES: Final = {"median": 0.5, "90 %": 0.9, "99 %": 0.99}
MIN_COMPARED_JOBS: Final = 1000
"""Below this number of jobs, distances are mostly random."""
_HOUR_S: Final = 3600.0
_MAX_BYTES: Final = 100_000
"""Largest size of a file of figures, in bytes."""
KEPT_FIGURES: Final = (
    "GPUs per job",
    "run times, by GPUs and by user",
    "jobs per hour, with daily and weekly peaks and bursts",
    "each user's share and main virtual cluster, as numbers instead of names",
    "time limits and outcomes, by run time",
    "GPU types and models, by GPUs",
)
OMITTED_FACTS: Final = (
    "names, ids and dates",
    "start times",
    "deadlines",
    "partitions",
    "cores and memory",
    "order and dependencies of jobs",
)
PRIVACY_NOTE: Final = (
    "Every figure covers at least 10 jobs (20 for a user) and is rounded; rarer sizes are merged."
    " This does not prove anonymity: a user with a large share, or a group of"
    " unusual jobs, may be recognizable to people with knowledge of the cluster."
)


def fit_look_alike(
    trace: Trace, *, load: float = 1.0, seed: int = 0, cluster: Cluster | None = None
) -> TraceSpec:
    """Fit a generator to a trace; return its jobs as a source ``made:like:...``.

    Parameters
    ----------
    trace : Trace
        The jobs.
    load : float
        Factor on the number of jobs in the same time.
    seed : int
        Seed of the generated jobs.
    cluster : Cluster or None
        Cluster of the jobs, without names, prices and unknown GPU types.

    Raises
    ------
    TrainyardError
        If the trace has too few jobs, or the load is out of bounds.
    """
    generator = figures(
        trace, load=load, seed=seed, cluster=cluster_short_form(cluster) if cluster else ""
    )
    return TraceSpec(f"{MADE}{spec_of('like', generator)}")


def figures_document(source: TraceSpec) -> str:
    """Return the figures of a fitted generator as JSON text, to share without the trace."""
    spec = Spec.parse(source.source.removeprefix(MADE))
    return json.dumps(spec.to_json(), indent=1, sort_keys=True) + "\n"


def parse_figures(text: str) -> Spec | None:
    """Return the figures in a text of `figures_document`; None for other texts."""
    try:
        data = json.loads(text)
    except ValueError:
        return None
    if not isinstance(data, dict) or data.get("name") != "like" or set(data) != {"name", "params"}:
        return None
    return Spec.from_json(data)


def open_figures(data: bytes) -> TraceSpec | None:
    """Return the source that a file of figures describes; None for other files.

    Raises
    ------
    TrainyardError
        If its figures are invalid.
    """
    if data.lstrip()[:1] != b"{" or len(data) > _MAX_BYTES:
        return None
    spec = parse_figures(data.decode("utf-8-sig", "replace"))
    return None if spec is None else TraceSpec(f"{MADE}{canonical(str(spec))}")


def compare_with_fit(trace: Trace, seed: int = 0) -> Likeness:
    """Compare a trace with the jobs of a generator fitted to it, at the same load.

    Raises
    ------
    TrainyardError
        If the trace has too few jobs.
    """
    return compare_traces(trace, figures(trace, seed=seed).make())


def fit_sentence(likeness: Likeness) -> str:
    """Return a sentence on how close generated jobs are to their trace."""
    spread = (
        ""
        if math.isnan(likeness.spread)
        else f", burstiness {factor(likeness.spread)} times the trace's"
    )
    few = (
        f" With {likeness.jobs:,} jobs, much of this is random."
        if likeness.jobs < MIN_COMPARED_JOBS
        else ""
    )
    return (
        f"Shares of jobs differ by at most {_percentage_points(likeness.sizes)} by size and"
        f" {_percentage_points(likeness.durations)} by run time (Kolmogorov-Smirnov); GPU time per"
        f" job {factor(likeness.work)} times{spread}.{few}"
    )


def _percentage_points(part: float) -> str:
    """Return a share as percentage points."""
    return f"{100 * part:.1f} points"


def is_look_alike(source: str) -> bool:
    """Return True if a source is a generator fitted to a trace."""
    return source.startswith(f"{MADE}like:")


def is_fitted_to(source: str, trace: Trace) -> bool:
    """Return True if a source is a generator fitted to this trace, with any load or seed."""
    if not is_look_alike(source) or len(trace) < MIN_FITTED_JOBS:
        return False
    params = Spec.parse(source.removeprefix(MADE)).values
    own = Spec.parse(str(spec_of("like", figures(trace)))).values
    return all(
        params.get(name) == own.get(name) for name in {*params, *own} if name not in Like.FREE
    )


def cluster_short_form(cluster: Cluster) -> str:
    """Return the GPU nodes in short form, "4x8:v100"; unknown types become v100."""
    nodes: dict[tuple[int, str], int] = {}
    for group in cluster.groups:
        if group.gpus and group.count:
            kind = group.gpu_type if group.gpu_type in KNOWN_TYPES else "v100"
            key = group.gpus, kind
            nodes[key] = nodes.get(key, 0) + group.count
    return "+".join(f"{count}x{gpus}:{kind}" for (gpus, kind), count in nodes.items())


@dataclass(frozen=True, eq=False)
class Likeness:
    """The comparison of two traces.

    Parameters
    ----------
    table : DataFrame
        Columns `what`, `first`, `second`: texts, one row per figure.
    curves : mapping of str
        "gpus", "duration_s", "gap_s", "hour" -> DataFrame with `x`, `first`, `second`: share of
        jobs (or of gaps) up to x; for "hour" the share of jobs in it. Empty if not meaningful.
    sizes, durations, gaps : float
        Kolmogorov-Smirnov distances, 0 to 1; gaps are relative to their mean.
    spread : float
        Ratio of `hourly_spread`, second over first; NaN for short traces.
    pace : float
        Ratio of jobs per day, second over first; NaN if all jobs arrive at once.
    work : float
        Ratio of GPU time per job, second over first.
    jobs : int
        Number of jobs of the smaller trace.
    """

    table: pd.DataFrame
    curves: dict[str, pd.DataFrame]
    sizes: float
    durations: float
    gaps: float
    spread: float
    pace: float
    work: float
    jobs: int

    @property
    def is_close(self) -> bool:
        """Whether the distributions of sizes and run times, and the hourly spread, are close."""
        steady = math.isnan(self.spread) or abs(self.spread - 1) <= CLOSE_SPREAD
        return max(self.sizes, self.durations) <= CLOSE_DISTANCE and steady


def ks_distance(first: Floats, second: Floats) -> float:
    """Return the Kolmogorov-Smirnov distance of two samples, 0 to 1."""
    bounds = np.unique(np.concatenate((first, second)))
    return float(np.abs(_share_upto(first, bounds) - _share_upto(second, bounds)).max(initial=0.0))


def hourly_spread(trace: Trace) -> float:
    """Return variance over mean of the hourly counts of jobs; NaN below two hours."""
    hour = (trace.numbers("submit_time_s") // _HOUR_S).astype(np.int64)
    counts = np.bincount(hour)
    return float(counts.var() / counts.mean()) if len(counts) > 1 else math.nan


def compare_traces(first: Trace, second: Trace) -> Likeness:
    """Compare sizes, run times, gaps, pace and hourly counts of two traces."""
    traces = first, second
    gpus, run_s, gap_s = (
        [trace.numbers("num_gpus") for trace in traces],
        [trace.numbers("duration_s") for trace in traces],
        [np.diff(trace.numbers("submit_time_s")) for trace in traces],
    )
    # Relative to the mean: a different pace alone is not a different pattern.
    relative_gaps = [gap / gap.mean() if len(gap) and gap.mean() else gap for gap in gap_s]
    paces = [len(trace) / trace.span_s * 86_400 if trace.span_s else math.nan for trace in traces]
    bursts = [hourly_spread(trace) for trace in traces]
    work = [trace.gpu_seconds / len(trace) for trace in traces]
    return Likeness(
        table=_figures_table(traces, gpus, run_s, gap_s, paces, bursts),
        curves={
            "gpus": _cumulative_shares(gpus),
            "duration_s": _cumulative_shares(run_s),
            "gap_s": _cumulative_shares(gap_s),
            "hour": _hourly_shares(*traces),
        },
        sizes=ks_distance(*gpus),
        durations=ks_distance(*run_s),
        gaps=ks_distance(*relative_gaps),
        spread=_ratio(*bursts),
        pace=_ratio(*paces),
        work=_ratio(*work),
        jobs=min(map(len, traces)),
    )


def _ratio(first: float, second: float) -> float:
    """Return second over first; NaN if the first is 0."""
    return second / first if first else math.nan


def _share_upto(values: Floats, bounds: Floats) -> Floats:
    """Return the share of values up to each bound."""
    shares = np.searchsorted(np.sort(values), bounds, side="right") / max(len(values), 1)
    return np.asarray(shares, np.float64)


def _cumulative_shares(pair: list[Floats], most: int = 200) -> pd.DataFrame:
    """Return the shares of two samples up to common values; no rows if a sample is empty."""
    if not all(map(len, pair)):
        return pd.DataFrame({"x": [], "first": [], "second": []})
    ranks = np.linspace(0, 1, most // 2)
    values = np.unique(
        np.concatenate([np.quantile(sample, ranks, method="lower") for sample in pair])
    )
    first, second = (_share_upto(sample, values) for sample in pair)
    return pd.DataFrame({"x": values, "first": first, "second": second})


def _hourly_shares(first: Trace, second: Trace) -> pd.DataFrame:
    """Return the share of jobs by hour of the day; no rows if a trace is below two days.

    Hours count from midnight if both traces have a calendar, else from the first job.
    """
    if min(first.span_s, second.span_s) < 2 * 86_400:
        return pd.DataFrame({"x": [], "first": [], "second": []})
    has_calendar = bool(first.epoch and second.epoch)
    shares = []
    for trace in (first, second):
        start = pd.Timestamp(trace.epoch) if has_calendar else None
        offset_s = 0 if start is None else start.hour * 3600 + start.minute * 60
        hour = ((trace.numbers("submit_time_s") + offset_s) // _HOUR_S % 24).astype(np.int64)
        shares.append(np.bincount(hour, minlength=24) / len(trace))
    frame = pd.DataFrame({"x": np.arange(24.0), "first": shares[0], "second": shares[1]})
    frame.attrs["dated"] = has_calendar
    return frame


def _figures_table(
    traces: tuple[Trace, Trace],
    gpus: list[Floats],
    run_s: list[Floats],
    gap_s: list[Floats],
    paces: list[float],
    bursts: list[float],
) -> pd.DataFrame:
    """Return the figures of both traces as texts, one row each: what, first, second."""
    rows: list[tuple[str, list[str]]] = [
        ("Jobs", [f"{len(trace):,}" for trace in traces]),
        ("First to last submission", [time(trace.span_s) for trace in traces]),
        ("Jobs per day", ["–" if math.isnan(value) else count(value) for value in paces]),
        ("GPU-hours", [count(trace.gpu_seconds / 3600) for trace in traces]),
    ]
    for label, values, format_value in (
        ("GPUs per job", gpus, lambda value: f"{value:,.0f}"),
        ("Run time", run_s, time),
        ("Gap between jobs", gap_s, time),
    ):
        for name, rank in ((name, float(rank)) for name, rank in QUANTILES.items()):
            # Use an existing value, not 1.5 GPUs.
            texts = [
                format_value(float(np.quantile(value, rank, method="lower"))) if len(value) else "–"
                for value in values
            ]
            rows.append((f"{label}, {name}", texts))
    rows.append(
        (
            "Burstiness of hours",
            ["–" if math.isnan(value) else f"{value:,.3g}" for value in bursts],
        )
    )
    if any(trace.has("user") for trace in traces):
        users = [
            trace.frame["user"].value_counts() if trace.has("user") else None for trace in traces
        ]
        rows.append(
            ("Users", ["–" if value is None else f"{(value > 0).sum():,}" for value in users])
        )
        rows.append(
            (
                "Jobs of the busiest user",
                [
                    "–" if value is None else share(float(value.iloc[0]) / len(trace))
                    for value, trace in zip(users, traces, strict=True)
                ],
            )
        )
    return pd.DataFrame(
        [(label, *texts) for label, texts in rows], columns=["what", "first", "second"]
    )


def difference_sentence(likeness: Likeness, first: str, second: str) -> str:
    """Return a sentence on the largest difference between two traces, or that it is small.

    Parameters
    ----------
    likeness : Likeness
        The comparison.
    first, second : str
        Names of the traces in the sentence.
    """
    rows: dict[str, tuple[str, str]] = {
        what: (one, two) for what, one, two in likeness.table.itertuples(index=False)
    }
    parts = {
        "sizes": (likeness.sizes, "GPUs per job"),
        "run times": (likeness.durations, "Run time"),
        "gaps between jobs": (likeness.gaps, "Gap between jobs"),
    }
    what, (largest, row) = max(parts.items(), key=lambda item: item[1][0])
    pace = ""
    if not math.isnan(likeness.pace) and abs(likeness.pace - 1) > CLOSE_DISTANCE:
        pace = f" {second} has {factor(likeness.pace)} times the jobs per day."
    if pace and abs(math.log(likeness.pace)) > PACE_LOG_RATIO and largest <= 2 * CLOSE_DISTANCE:
        one, two = rows["Jobs per day"]
        return (
            f"Largest difference: the pace, {one} jobs per day in {first} and {two} in {second};"
            f" the shares of jobs by size, run time and gap differ by at most"
            f" {_percentage_points(largest)}."
        )
    if largest <= CLOSE_DISTANCE:
        return (
            "Hardly any difference: the shares of jobs by size, run time and gap differ by at most"
            f" {_percentage_points(largest)}.{pace}"
        )
    pairs = {quantile: rows[f"{row}, {quantile}"] for quantile in QUANTILES}
    quantile = next((name for name, (one, two) in pairs.items() if one != two), "median")
    one, two = pairs[quantile]
    name = quantile if quantile == "median" else f"{quantile} have at most"
    return (
        f"Largest difference: {what}, {name} {one} in {first} and {two} in {second}; the shares of"
        f" jobs differ by up to {_percentage_points(largest)}.{pace}"
    )
