"""Views of cores and memory held and used by jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from trainyard.formatting import share
from trainyard.views import charts
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.figure_view import FigureView, stack_frames
from trainyard.views.over_time import TIME


class Resource(NamedTuple):
    """A resource of nodes: column suffix, unit, and the metric of its use."""

    column: str
    unit: str
    metric: str


RESOURCES: Final[Mapping[str, Resource]] = {
    "cores": Resource("cpus", "cores", "cpus_used"),
    "memory": Resource("mem_gb", "GB", "mem_used"),
}
_COLUMNS: Final = {
    "t_s": TIME,
    "held_cpus": "Cores held",
    "used_cpus": "Cores used",
    "there_cpus": "Cores there",
    "held_mem_gb": "GB held",
    "used_mem_gb": "GB used",
    "there_mem_gb": "GB there",
}


def known_resources(compared: ComparedRuns) -> list[str]:
    """Return the keys of `RESOURCES` with known use.

    Raises
    ------
    TrainyardError
        If a stored result was deleted.
    """
    frames = compared.details.diagnostics.resources
    return [
        name
        for name, resource in RESOURCES.items()
        if any(f"used_{resource.column}" in frames.get(title, ()) for title in compared.drawn)
    ]


def resources(compared: ComparedRuns, name: str) -> FigureView:
    """Return the figure of a resource held and used over time, one row per policy.

    `name` = key of `RESOURCES`. Policies without known use are left out.

    Raises
    ------
    TrainyardError
        If a stored result was deleted.
    """
    resource = RESOURCES[name]
    every = compared.frames.get("resources", compared.details.diagnostics.resources)
    frames = {
        title: every[title]
        for title in compared.drawn
        if f"used_{resource.column}" in every.get(title, ())
    }
    figure = charts.resources(
        frames,
        compared.style,
        (resource.column, resource.unit),
        compared.axis,
        f"How much of the {name} that jobs hold do they use?",
    )
    table = compared.report.table
    used = "; ".join(
        f"{row['label']} {share(float(row['value']))}"
        for row in table[(table["metric"] == resource.metric).to_numpy()].to_dict("records")
    )
    return FigureView(
        f"resources-{name}",
        figure,
        f"{name.capitalize()} held and used over time, one row per policy. Used of held, in the"
        f" whole run: {used or 'not known'}.",
        lambda: stack_frames(frames, _COLUMNS),
        "Held is what jobs asked for and got. Used follows from the performance model, as a mean of"
        " every period of constant size.",
    )
