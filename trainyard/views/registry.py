"""Registry of the figures of compared runs, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from sim.errors import ParameterError
from trainyard.formatting import BY_UNIT
from trainyard.results.detail_data import has_several_types
from trainyard.views import charts, gpu_types, jobs, ledger, over_time, resources, tenants
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.figure_view import FigureView, title_with_unit

Views = Iterator[FigureView | None]


def _yield_view(make: Callable[[ComparedRuns], FigureView | None], compared: ComparedRuns) -> Views:
    """Yield the one figure of a kind."""
    yield make(compared)


def _winners(compared: ComparedRuns) -> Views:
    """Yield the figure of faster and slower jobs of each drawn policy, if any job changed."""
    yield from (
        jobs.winners(compared, title)
        for title, change in compared.report.changes.items()
        if title in compared.drawn and len(change.histogram)
    )


def _groups(compared: ComparedRuns) -> Views:
    """Yield the figure of means by each grouping; nothing if no policies were compared."""
    if compared.report.changes:
        yield from (jobs.groups(compared, by) for by in compared.details.groupings)


def _allocation(compared: ComparedRuns) -> Views:
    """Yield the figure of GPUs per job of each drawn policy; nothing without GPUs."""
    if compared.cluster.gpus:
        yield from (over_time.allocation(compared, title) for title in compared.drawn)


def _resources(compared: ComparedRuns) -> Views:
    """Yield the use of each known resource."""
    yield from (resources.resources(compared, name) for name in resources.known_resources(compared))


def _predictions(compared: ComparedRuns) -> Views:
    """Yield the figure of run-time estimates of each drawn policy that made some."""
    yield from (
        jobs.predictions(compared, title)
        for title in compared.details.diagnostics.points
        if title in compared.drawn
    )


def _tenants(compared: ComparedRuns) -> Views:
    """Yield the figure of tenants under each drawn policy; nothing without tenants or GPUs."""
    teams, runs = compared.details.teams, compared.runs
    if teams is not None and compared.cluster.gpus:
        for title in (runs.titles[at] for at in runs.places):
            if title in compared.drawn:
                report = compared.details.tenant_report(title, teams)
                view = tenants.tenants(compared, title, teams, report)
                del report  # as large as a result
                yield replace(view, note=f"{view.note} {teams.assumed}")


def _types(make: Callable[[ComparedRuns], FigureView | None], compared: ComparedRuns) -> Views:
    """Yield the one figure of a kind; nothing with a single GPU type."""
    if has_several_types(compared.runs):
        yield make(compared)


def _type_shares(compared: ComparedRuns) -> Views:
    """Yield the shares of GPU types of each drawn policy; nothing with a single type."""
    if has_several_types(compared.runs):
        yield from (gpu_types.type_shares(compared, title) for title in compared.drawn)


def metric_bars(compared: ComparedRuns, name: str) -> FigureView | None:
    """Return the figure of a metric, one bar per policy; None if no policy has a value.

    Parameters
    ----------
    compared : ComparedRuns
        The runs.
    name : str
        Key of `sim.metrics.registry.COLUMNS`.
    """
    table = compared.report.table
    values = table[table["metric"] == name].set_index("label")["value"]
    if not values.notna().any():
        return None
    metric = ledger.ALL[name]
    each = "; ".join(f"{title} {BY_UNIT[metric.unit](value)}" for title, value in values.items())
    return FigureView(
        name,
        charts.metric_bars(values, compared.style, metric.unit, metric.title),
        f"{metric.title}, by policy: {each}.",
        lambda: values.rename_axis("Policy").rename(title_with_unit(metric)).reset_index(),
        metric.help,
    )


OF_METRICS: Final[Mapping[str, Callable[[ComparedRuns], FigureView | None]]] = {
    "parts": jobs.parts,
}
"""Name of a figure that explains a metric -> its view; Compare draws them in *Where time goes*."""

VIEWS: Final[Mapping[str, Callable[[ComparedRuns], Views]]] = {
    "queue": lambda compared: iter([over_time.queue(compared)]),
    "gpus": lambda compared: iter([over_time.gpus(compared)]),
    "jct_cdf": lambda compared: iter([jobs.jct_cdf(compared)]),
    "winners": _winners,
    "groups": _groups,
    **{name: partial(_yield_view, make) for name, make in OF_METRICS.items()},
    "allocation": _allocation,
    "resources": _resources,
    "tenants": _tenants,
    "predictions": _predictions,
    "type-use": partial(_types, gpu_types.type_use),
    "type-cost": partial(_types, gpu_types.type_cost),
    "type-shares": _type_shares,
    "type-fairness": partial(_types, gpu_types.type_fairness),
}
"""Kind of figure -> its views, in the order of a report; those of a kind with several are numbered
or named after it, e.g. "winners-1" and "groups-user". None = there is nothing to see.
"""


def views(compared: ComparedRuns, kind: str = "") -> list[FigureView]:
    """Return all figures of compared runs, or all of one kind.

    Raises
    ------
    TrainyardError
        If the trace or a stored result was deleted.
    """
    kinds = [kind] if kind else list(VIEWS)
    return [view for name in kinds for view in VIEWS[name](compared) if view is not None]


def view(compared: ComparedRuns, name: str) -> FigureView:
    """Return the figure with this name, the first of this kind, or the bars of this metric.

    Raises
    ------
    TrainyardError
        If there is none of that name, or a stored result was deleted.
    """
    kind = max((kind for kind in VIEWS if f"{name}-".startswith(f"{kind}-")), key=len, default="")
    for one in views(compared, kind) if kind else [metric_bars(compared, name)]:
        if one is not None and name in (kind, one.name):
            return one
    there = ", ".join(one.name for one in views(compared))
    raise ParameterError(f"There is no figure '{name}' here. There are {there}.")
