"""Views of the inputs of a comparison: trace, machines, decisions of a policy, speed-ups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from sim.cluster import Cluster
from trainyard.clusters import machines
from trainyard.formatting import RunClock, count, gpu_type, plural, time
from trainyard.results.decision_picture import DecisionPicture
from trainyard.traces.intake import TraceProfile
from trainyard.views import charts
from trainyard.views.figure_view import FigureView

_HOUR_S: Final = 3600.0
_COLUMNS: Final = {
    "t_s": "From (s)",
    "width_s": "Width (s)",
    "jobs": "Jobs",
    "jobs_per_hour": "Jobs per hour",
    "gpus_per_hour": "GPUs requested per hour",
    "gpus": "GPUs",
    "gpu_hours": "GPU-hours",
    "core_hours": "Core-hours",
    "low_s": "Seconds from",
    "high_s": "Seconds to",
    "name": "Name",
    "node": "Node",
    "gpu_type": "GPU type",
    "rack": "Rack",
    "partitions": "Partitions",
    "price_per_hour": "USD per hour",
}
_SPEEDS: Final = {
    "low": "10th percentile",
    "speed": "Median speed",
    "high": "90th percentile",
    "jobs": "Jobs",
}


def trace_views(profile: TraceProfile) -> Iterator[FigureView]:
    """Yield the figures of a trace: arrivals, sizes, run times and heaviest users.

    Sizes only if the jobs have GPU-hours, users only if the trace names them.
    """
    axis = charts.TimeAxis(0.0, max(profile.span_s, 1.0))
    arrivals, sizes, durations = profile.arrivals, profile.sizes, profile.durations
    yield _view("arrivals", charts.arrivals(arrivals, axis), _peak_sentence(arrivals), arrivals)
    if profile.gpu_hours:
        yield _view("gpu-demand", charts.sizes(sizes), _sizes_sentence(sizes), sizes)
    yield _view("durations", charts.durations(durations), _median_sentence(durations), durations)
    if (users := profile.users) is not None:
        yield _view("users", charts.heaviest(users), _heaviest_sentence(users), users)


def _view(name: str, figure: Any, finding: str, rows: pd.DataFrame) -> FigureView:
    """Return a figure of a trace with its finding and data."""
    return FigureView(name, figure, finding, lambda: rows.round(2).rename(columns=_COLUMNS))


def _peak_sentence(arrivals: pd.DataFrame) -> str:
    """Return the sentence on the highest rate of submissions and its time.

    Bins of an hour or more give jobs per hour, shorter ones jobs in the bin. At least one row.
    """
    most = arrivals.iloc[int(arrivals["jobs_per_hour"].argmax())]
    width_s = float(most["width_s"])
    rate = (
        f"{count(float(most['jobs_per_hour']))} per hour"
        if width_s >= _HOUR_S
        else f"{plural(int(most['jobs']), 'job')} in {time(width_s)}"
    )
    return f"Jobs per hour over time: at most {rate}, at {RunClock().format(float(most['t_s']))}."


def _sizes_sentence(sizes: pd.DataFrame) -> str:
    """Return the sentence on the sizes with the most jobs and with the most GPU-hours."""
    jobs, hours = (
        sizes["gpus"].iloc[int(sizes[name].argmax())].replace("-", "–")
        for name in ("jobs", "gpu_hours")
    )
    return (
        f"Share of jobs and of GPU-hours by requested GPUs: most jobs request {jobs}, most"
        f" GPU-hours are of jobs that request {hours}."
    )


def _median_sentence(durations: pd.DataFrame) -> str:
    """Return the sentence on the bin of run times with the median; at least one row."""
    middle = durations.iloc[int((durations["jobs"].cumsum() < durations["jobs"].sum() / 2).sum())]
    low, high = time(float(middle["low_s"])), time(float(middle["high_s"]))
    return (
        "Jobs by recorded run time, logarithmic: the median is"
        f" {f'about {low}' if low == high else f'between {low} and {high}'}."
    )


def _heaviest_sentence(users: pd.DataFrame) -> str:
    """Return the sentence on the first user, the heaviest, with its GPU- or core-hours."""
    column, unit = (
        ("gpu_hours", "GPU-hours") if "gpu_hours" in users else ("core_hours", "core-hours")
    )
    hours = float(users[column].iloc[0])
    most = count(hours) if hours >= 10 else f"{hours:.2g}"
    return f"Largest user: {users['name'].iloc[0]}, {most} {unit[:-1] if most == '1' else unit}."


def racks(cluster: Cluster) -> FigureView:
    """Return the figure of the nodes, a cell each, by rack; its title counts GPUs and nodes."""
    nodes = machines.node_rows(cluster)
    text = (
        f"{plural(cluster.gpus, 'GPU')} on " if cluster.gpus else ""
    ) + f"{plural(len(nodes), 'node')} in {plural(nodes['rack'].nunique(), 'rack')}"
    return FigureView(
        "racks",
        charts.racks(nodes, charts.type_style([kind.name for kind in cluster.types]), text),
        text,
        lambda: nodes.assign(gpu_type=nodes["gpu_type"].map(gpu_type)).rename(columns=_COLUMNS),
    )


def decision(title: str, name: str, picture: DecisionPicture) -> FigureView:
    """Return the figure of a policy's decisions on the example jobs, as bars over time."""
    return FigureView(
        f"example/{name}",
        charts.example(picture.bars, picture.jobs, picture.rows, picture.until_s),
        f"{title}. {picture.sentence}",
        lambda: picture.pieces,
        f"{picture.sentence} {picture.about}",
    )


def same_speed_sentence(curve: pd.DataFrame, *, scales: bool) -> str:
    """Return the sentence that speed does not depend on the number of nodes; "" otherwise."""
    speeds = curve[["low", "speed", "high"]]
    if scales or curve.empty or not (speeds == 1).all(axis=None):
        return ""
    return "Spreading a job over nodes does not slow it down."


def scaling_view(curve: pd.DataFrame, *, scales: bool) -> FigureView | None:
    """Return the figure of the median speed by size or number of nodes; None without points.

    Parameters
    ----------
    curve : DataFrame
        See `trainyard.clusters.speedup.speedup_curve`.
    scales : bool
        Whether its sizes are multiples of the requested GPUs; else nodes.
    """
    if curve.empty:
        return None
    last = curve.iloc[-1]
    size = (
        f"with {last['x']:g} times the requested GPUs"
        if scales
        else f"spread over {plural(int(last['x']), 'node')}"
    )
    finding = f"The median job {size} runs at {last['speed']:.2g} times its speed."
    note = "Line: median job; band: 10th to 90th percentile."
    if scales:
        note += " Dots: as fast as there are more GPUs."
    title = "Speed by number of GPUs" if scales else "Speed of gangs spread over nodes"
    columns = {"x": "Times the requested GPUs" if scales else "Nodes", **_SPEEDS}
    return FigureView(
        "speedup",
        charts.speedup(curve, title, scales=scales),
        finding,
        lambda: curve.rename(columns=columns),
        note,
    )
