"""Jobs like those of a trace, and how like they are: two traces side by side."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate import canonical, figures
from jobtraces.generate.fit import LEAST_JOBS as FEWEST
from jobtraces.generate.like import Like
from sim.cluster import KNOWN_TYPES, Cluster
from sim.params import Spec, spec_of
from sim.trace import Trace
from trainyard.study.scenario import MADE, TraceSpec
from trainyard.text import count, factor, share, time

Floats = NDArray[np.float64]
CLOSE: Final = 0.05
"""Distributions whose largest distance is at most this are called alike."""
STEADY: Final = 0.3
"""So much may the spread of hourly counts differ between traces that are called alike."""
PACES: Final = math.log(1.25)
"""Another pace beyond this is the largest difference of two traces that are alike else."""
QUANTILES: Final = {"median": 0.5, "90 %": 0.9, "99 %": 0.99}
LEAST_JOBS: Final = 1000
"""Of fewer jobs these distances are a matter of chance."""
_HOUR_S: Final = 3600.0
_LARGEST: Final = 100_000
"""Bytes of a file of figures."""
KEPT: Final = (
    "sizes",
    "run times by size and by user",
    "the jobs of each hour, with busy hours of the day, days of the week and bursts",
    "shares of users, and the virtual cluster in which each is mostly, numbered",
    "time limits and outcomes by run time",
    "known GPU types and models by size",
)
NOT_KEPT: Final = (
    "names, ids and dates",
    "start times",
    "deadlines",
    "partitions",
    "cores and memory",
    "which job follows which",
)
PRIVACY: Final = (
    "Every figure is made of at least 10 jobs (of a user: 20) and rounded; sizes that fewer jobs"
    " have are taken together. That is no proof of anonymity: a user with a large share, or a group"
    " of unusual jobs, may be recognised by somebody who knows the cluster."
)


def look_alike(
    trace: Trace, *, load: float = 1.0, seed: int = 0, cluster: Cluster | None = None
) -> TraceSpec:
    """Fit a generator to a trace, and return the jobs that it makes as a source.

    Parameters
    ----------
    trace : Trace
        The jobs.
    load : float
        How many times the jobs in the same time.
    seed : int
        Seed of the jobs that are made.
    cluster : Cluster or None
        Machines that the jobs come with, in short: names, prices and unknown GPU types are left
        out.

    Raises
    ------
    TrainyardError
        If the trace has too few jobs, or the load is out of its bounds.
    """
    fitted = figures(trace, load=load, seed=seed, cluster=short(cluster) if cluster else "")
    return TraceSpec(f"{MADE}{spec_of('like', fitted)}")


def document(source: TraceSpec) -> str:
    """Return the figures of a look-alike as a file, which can be passed on without the trace."""
    spec = Spec.parse(source.source.removeprefix(MADE))
    return json.dumps(spec.to_json(), indent=1, sort_keys=True) + "\n"


def figures_of(text: str) -> Spec | None:
    """Read what `document` wrote; None = it is something else."""
    try:
        data = json.loads(text)
    except ValueError:
        return None
    if not isinstance(data, dict) or data.get("name") != "like" or set(data) != {"name", "params"}:
        return None
    return Spec.from_json(data)


def opened(data: bytes) -> TraceSpec | None:
    """Return the jobs that a file of figures makes, as a source; None = it is something else.

    Raises
    ------
    TrainyardError
        If it holds figures that cannot be used.
    """
    if data.lstrip()[:1] != b"{" or len(data) > _LARGEST:
        return None
    found = figures_of(data.decode("utf-8-sig", "replace"))
    return None if found is None else TraceSpec(f"{MADE}{canonical(str(found))}")


def how_like(trace: Trace, seed: int = 0) -> Likeness:
    """Set a trace beside the jobs that a generator fitted to it makes at the same load.

    Raises
    ------
    TrainyardError
        If the trace has too few jobs.
    """
    return compare(trace, figures(trace, seed=seed).make())


def fit_sentence(found: Likeness) -> str:
    """Say how near a look-alike comes to its trace, at the load of the trace."""
    spread = (
        "" if math.isnan(found.spread) else f", burstiness {factor(found.spread)} times the trace's"
    )
    few = f" Of {found.jobs:,} jobs much of that is chance." if found.jobs < LEAST_JOBS else ""
    return (
        f"Shares of jobs differ by at most {_points(found.sizes)} by size and"
        f" {_points(found.durations)} by run time (Kolmogorov-Smirnov); GPU time per job"
        f" {factor(found.work)} times{spread}.{few}"
    )


def _points(part: float) -> str:
    return f"{100 * part:.1f} points"


def is_look_alike(source: str) -> bool:
    """Tell whether a source is made by a generator that was fitted to a trace."""
    return source.startswith(f"{MADE}like:")


def fitted_to(source: str, trace: Trace) -> bool:
    """Tell whether a look-alike has the figures of this trace."""
    if not is_look_alike(source) or len(trace) < FEWEST:
        return False
    params = Spec.parse(source.removeprefix(MADE)).values
    own = Spec.parse(str(spec_of("like", figures(trace)))).values
    return all(
        params.get(name) == own.get(name) for name in {*params, *own} if name not in Like.FREE
    )


def short(cluster: Cluster) -> str:
    """Return a cluster in the short form, without what could be a name of the site."""
    nodes: dict[tuple[int, str], int] = {}
    for group in cluster.groups:
        if group.gpus and group.count:
            kind = group.gpu_type if group.gpu_type in KNOWN_TYPES else "v100"
            key = group.gpus, kind
            nodes[key] = nodes.get(key, 0) + group.count
    return "+".join(f"{many}x{gpus}:{kind}" for (gpus, kind), many in nodes.items())


@dataclass(frozen=True, eq=False)
class Likeness:
    """Two traces side by side.

    Parameters
    ----------
    table : DataFrame
        `what`, `first`, `second`: text, one row per figure.
    curves : mapping of str
        "gpus", "duration_s", "gap_s", "hour" -> DataFrame with `x`, `first`, `second`: the share of
        jobs (or of pairs of neighbours) of at most x; by hour of the day the share of jobs. Empty
        where it means nothing.
    sizes, durations, gaps : float
        Largest distances between the shares (Kolmogorov-Smirnov), 0 to 1; of gaps relative to their
        mean.
    spread : float
        Variance over mean of the jobs of each hour, second over first; NaN where an hour is too
        long a time.
    pace : float
        Jobs per day, second over first; NaN where all come at once.
    work : float
        GPU time per job, second over first.
    jobs : int
        Of the smaller trace.
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
    def alike(self) -> bool:
        """Whether sizes, run times and the spread of hourly counts are as near as a look-alike has
        to come.
        """
        steady = math.isnan(self.spread) or abs(self.spread - 1) <= STEADY
        return max(self.sizes, self.durations) <= CLOSE and steady


def distance(first: Floats, second: Floats) -> float:
    """Return the largest difference between the shares of values up to any bound, 0 to 1
    (Kolmogorov-Smirnov).
    """
    at = np.unique(np.concatenate((first, second)))
    return float(np.abs(_share_upto(first, at) - _share_upto(second, at)).max(initial=0.0))


def spread(trace: Trace) -> float:
    """Return variance over mean of the jobs of each hour; NaN below two hours."""
    hour = (trace.numbers("submit_time_s") // _HOUR_S).astype(np.int64)
    counts = np.bincount(hour)
    return float(counts.var() / counts.mean()) if len(counts) > 1 else math.nan


def compare(first: Trace, second: Trace) -> Likeness:
    """Set two traces side by side."""
    traces = first, second
    gpus, run_s, gap_s = (
        [trace.numbers("num_gpus") for trace in traces],
        [trace.numbers("duration_s") for trace in traces],
        [np.diff(trace.numbers("submit_time_s")) for trace in traces],
    )
    # Relative to the mean: another pace alone is no other pattern.
    even = [gap / gap.mean() if len(gap) and gap.mean() else gap for gap in gap_s]
    paces = [len(trace) / trace.span_s * 86_400 if trace.span_s else math.nan for trace in traces]
    bursts = [spread(trace) for trace in traces]
    work = [trace.gpu_seconds / len(trace) for trace in traces]
    return Likeness(
        table=_table(traces, gpus, run_s, gap_s, paces, bursts),
        curves={
            "gpus": _curve(gpus),
            "duration_s": _curve(run_s),
            "gap_s": _curve(gap_s),
            "hour": _by_hour(*traces),
        },
        sizes=distance(*gpus),
        durations=distance(*run_s),
        gaps=distance(*even),
        spread=_ratio(*bursts),
        pace=_ratio(*paces),
        work=_ratio(*work),
        jobs=min(map(len, traces)),
    )


def _ratio(first: float, second: float) -> float:
    return second / first if first else math.nan


def _share_upto(values: Floats, at: Floats) -> Floats:
    found = np.searchsorted(np.sort(values), at, side="right") / max(len(values), 1)
    return np.asarray(found, np.float64)


def _curve(pair: list[Floats], most: int = 200) -> pd.DataFrame:
    if not all(map(len, pair)):
        return pd.DataFrame({"x": [], "first": [], "second": []})
    ranks = np.linspace(0, 1, most // 2)
    at = np.unique(np.concatenate([np.quantile(one, ranks, method="lower") for one in pair]))
    first, second = (_share_upto(one, at) for one in pair)
    return pd.DataFrame({"x": at, "first": first, "second": second})


def _by_hour(first: Trace, second: Trace) -> pd.DataFrame:
    """Return the share of jobs by hour of the day, counted from midnight where both have a
    calendar, else from the first job.
    """
    if min(first.span_s, second.span_s) < 2 * 86_400:
        return pd.DataFrame({"x": [], "first": [], "second": []})
    dated = bool(first.epoch and second.epoch)
    shares = []
    for trace in (first, second):
        start = pd.Timestamp(trace.epoch) if dated else None
        ahead = 0 if start is None else start.hour * 3600 + start.minute * 60
        hour = ((trace.numbers("submit_time_s") + ahead) // _HOUR_S % 24).astype(np.int64)
        shares.append(np.bincount(hour, minlength=24) / len(trace))
    made = pd.DataFrame({"x": np.arange(24.0), "first": shares[0], "second": shares[1]})
    made.attrs["dated"] = dated
    return made


def _table(
    traces: tuple[Trace, Trace],
    gpus: list[Floats],
    run_s: list[Floats],
    gap_s: list[Floats],
    paces: list[float],
    bursts: list[float],
) -> pd.DataFrame:
    rows: list[tuple[str, list[str]]] = [
        ("Jobs", [f"{len(trace):,}" for trace in traces]),
        ("First to last submission", [time(trace.span_s) for trace in traces]),
        ("Jobs per day", ["–" if math.isnan(one) else count(one) for one in paces]),
        ("GPU-hours", [count(trace.gpu_seconds / 3600) for trace in traces]),
    ]
    for what, values, written in (
        ("GPUs per job", gpus, lambda value: f"{value:,.0f}"),
        ("Run time", run_s, time),
        ("Gap between jobs", gap_s, time),
    ):
        for name, at in ((name, float(at)) for name, at in QUANTILES.items()):
            # A value that occurs, so that nobody asks for one and a half GPUs.
            found = [
                written(float(np.quantile(one, at, method="lower"))) if len(one) else "–"
                for one in values
            ]
            rows.append((f"{what}, {name}", found))
    rows.append(
        (
            "Burstiness of hours",
            ["–" if math.isnan(one) else f"{one:,.3g}" for one in bursts],
        )
    )
    if any(trace.has("user") for trace in traces):
        users = [
            trace.frame["user"].value_counts() if trace.has("user") else None for trace in traces
        ]
        rows.append(("Users", ["–" if one is None else f"{(one > 0).sum():,}" for one in users]))
        rows.append(
            (
                "Jobs of the busiest user",
                [
                    "–" if one is None else share(float(one.iloc[0]) / len(trace))
                    for one, trace in zip(users, traces, strict=True)
                ],
            )
        )
    return pd.DataFrame(
        [(what, *found) for what, found in rows], columns=["what", "first", "second"]
    )


def sentence(found: Likeness, first: str, second: str) -> str:
    """Say what differs most between two traces.

    Parameters
    ----------
    found : Likeness
        Both, side by side.
    first, second : str
        What they are called in the sentence.
    """
    rows: dict[str, tuple[str, str]] = {
        what: (one, two) for what, one, two in found.table.itertuples(index=False)
    }
    parts = {
        "sizes": (found.sizes, "GPUs per job"),
        "run times": (found.durations, "Run time"),
        "gaps between jobs": (found.gaps, "Gap between jobs"),
    }
    what, (most, row) = max(parts.items(), key=lambda item: item[1][0])
    pace = ""
    if not math.isnan(found.pace) and abs(found.pace - 1) > CLOSE:
        pace = f" {second} has {factor(found.pace)} times the jobs per day."
    if pace and abs(math.log(found.pace)) > PACES and most <= 2 * CLOSE:
        one, two = rows["Jobs per day"]
        return (
            f"Largest difference: the pace, {one} jobs per day in {first} and {two} in {second};"
            f" the shares of jobs by size, run time and gap differ by at most {_points(most)}."
        )
    if most <= CLOSE:
        return (
            "Hardly any difference: the shares of jobs by size, run time and gap differ by at most"
            f" {_points(most)}.{pace}"
        )
    pairs = {quantile: rows[f"{row}, {quantile}"] for quantile in QUANTILES}
    quantile = next((name for name, (one, two) in pairs.items() if one != two), "median")
    one, two = pairs[quantile]
    name = quantile if quantile == "median" else f"{quantile} have at most"
    return (
        f"Largest difference: {what}, {name} {one} in {first} and {two} in {second}; the shares of"
        f" jobs differ by up to {_points(most)}.{pace}"
    )
