"""Views of clusters with several GPU types: use, cost, shares, fairness and notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from trainyard.formatting import gpu_type, money, share
from trainyard.results.detail_data import fairness_against
from trainyard.views import charts
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.figure_view import FigureView, stack_frames
from trainyard.views.over_time import TIME

_EVEN: Final = 1.0 + 1e-9
_JOBS: Final = 4
"""Single jobs in the figure of shares; its table has more."""
_USE: Final = {
    "gpu_type": "GPU type",
    "held_gpu_h": "Held (GPU-hours)",
    "capacity_gpu_h": "There (GPU-hours)",
    "held_usd": "Held (USD)",
    "capacity_usd": "All (USD)",
}
_FAIRNESS: Final = {"share": "Share of jobs", "rho": "At most this many times the reference"}


def type_use(compared: ComparedRuns) -> FigureView:
    """Return the figure of each GPU type's utilization in the whole run, a bar per policy.

    Utilization: GPU-hours held over GPU-hours available.
    """
    use = _use(compared)
    busy = "; ".join(f"{title}: {', '.join(_busy(frame))}" for title, frame in use.items())
    return FigureView(
        "type-use",
        charts.type_use(use, compared.style, "How busy is each GPU type?"),
        f"Utilization of each GPU type over the whole run: {busy}.",
        lambda: stack_frames(_with_titles(use), _USE),
        "From the first submission to the end of the run; nodes that were down or absent do not"
        " count.",
    )


def type_cost(compared: ComparedRuns) -> FigureView:
    """Return the figure of the cost of held GPUs, a bar per policy, stacked by GPU type.

    Marks show the cost of the whole cluster.
    """
    use = _use(compared)
    cost = "; ".join(
        f"{title} {money(float(frame['held_usd'].sum()))} of"
        f" {money(float(frame['capacity_usd'].sum()))}"
        for title, frame in use.items()
    )
    return FigureView(
        "type-cost",
        charts.type_cost(use, compared.types, "GPU cost by policy"),
        f"Cost of the GPUs held, by GPU type, and of the whole cluster: {cost}.",
        lambda: stack_frames(_with_titles(use), _USE),
        "Bars: cost of the GPUs that jobs hold. Marker: cost of the whole cluster over the run."
        " Set prices on Cluster.",
    )


def type_shares(compared: ComparedRuns, title: str) -> FigureView:
    """Return the figure of GPU types' shares of GPU time under a policy, a bar per job group."""
    by_type = compared.details.types
    table = by_type.shares[title]
    whole = table[(table["kind"] == "all").to_numpy()]
    shares = (
        ", ".join(f"{gpu_type(name)} {share(float(whole[name].iloc[0]))}" for name in by_type.types)
        if len(whole)
        else "no job held a GPU"
    )
    is_drawn = (table["kind"] != "job") | (table.groupby("kind").cumcount() < _JOBS)
    figure = charts.type_shares(
        table[is_drawn],
        {name: compared.types[name] for name in by_type.types},
        f"Shares of GPU types under {charts.literal(title)}",
    )
    columns = {"kind": "By", "group": "Group", "jobs": "Jobs", "gpu_h": "GPU-hours"} | {
        name: f"{gpu_type(name)} (share)" for name in by_type.types
    }
    return FigureView(
        f"type-shares-{compared.report.labels.index(title) + 1}",
        figure,
        f"Share of GPU-hours by GPU type under {title}, for groups of jobs and the heaviest jobs."
        f" All jobs: {shares}.",
        lambda: table.assign(gpu_h=table["gpu_s"] / 3600)[list(columns)].rename(columns=columns),
        "GPU-hours held, including pauses. Types that a group did not use are not drawn.",
    )


def type_fairness(compared: ComparedRuns, reference: str = "") -> FigureView | None:
    """Return the figure of finish-time fairness: a step line of JCT / reference per policy.

    Parameters
    ----------
    compared : ComparedRuns
        The runs.
    reference : str
        Title of the policy under which jobs are done at the time that is fair; "" = each job alone
        with an equal part of every GPU type.

    Returns
    -------
    FigureView or None
        None = no job can be compared.
    """
    every = (
        fairness_against(compared.runs, reference) if reference else compared.details.types.fairness
    )
    curves = {title: every[title] for title in compared.drawn if len(every.get(title, ()))}
    if not curves:
        return None
    of = f"under {reference}" if reference else "in isolation"
    alone = "alone on its share of the cluster"
    where = f"under {charts.literal(reference)}" if reference else alone
    question = f"Does every job finish as soon as it would {where}?"
    late = "; ".join(
        f"{title}: {100 * float((frame['rho'] > _EVEN).mean()):.0f} % of jobs later"
        for title, frame in curves.items()
    )
    return FigureView(
        "type-fairness",
        charts.fairness_cdf(curves, compared.style, question, of),
        f"Finish-time fairness, JCT divided by that {of}. {late}.",
        lambda: stack_frames(curves, _FAIRNESS),
        (
            "Jobs completed under both; left of 1: sooner than under the policy that they are"
            " compared with."
            if reference
            else "Left of 1: the job finished sooner than on an equal share of each GPU type,"
            " divided among the jobs present. That share is computed without pauses and failures."
        ),
    )


def type_notes(compared: ComparedRuns, title: str, family: str) -> FigureView | None:
    """Return the figure of numbers that a policy noted over time, a step line each.

    Parameters
    ----------
    compared : ComparedRuns
        The runs.
    title : str
        Of the policy.
    family : str
        Key of `TypeReport.families`.

    Returns
    -------
    FigureView or None
        None = nothing of it was noted before the end of the window.
    """
    by_type = compared.details.types
    frame = compared.frames.get("notes", by_type.notes)[title]
    names = {
        name: label
        for name, label in by_type.families(title)[family].items()
        if (frame["name"] == name).any()
    }
    if not names:
        return None
    colours = charts.note_colours(list(names.values()), compared.types)
    noted = family.replace("_", " ")
    figure = charts.note_lines(
        frame,
        {name: (label, colours[label]) for name, label in names.items()},
        compared.axis,
        f"{charts.literal(noted)}, as recorded by {charts.literal(title)}",
    )
    last = ", ".join(f"{label} {_last(frame, name):.4g}" for name, label in names.items())
    columns = {"name": "Note", "t_s": TIME, "value": "Value"}
    return FigureView(
        "type-notes",
        figure,
        f"{noted} over time as recorded by {title}. At the end: {last}.",
        lambda: frame[frame["name"].isin(list(names)).to_numpy()].rename(columns=columns),
        "Numbers of the policy's own, in its own unit, with each of its decisions; each holds until"
        " the next. Long runs are averaged.",
    )


def _use(compared: ComparedRuns) -> Mapping[str, pd.DataFrame]:
    """Return the use of GPU types of the drawn policies."""
    return {title: compared.details.types.use[title] for title in compared.drawn}


def _with_titles(use: Mapping[str, pd.DataFrame]) -> Mapping[str, pd.DataFrame]:
    """Return the use with GPU types as users write them."""
    return {
        title: rows.assign(gpu_type=rows["gpu_type"].map(gpu_type)) for title, rows in use.items()
    }


def _busy(frame: pd.DataFrame) -> list[str]:
    """Return each GPU type with its utilization as text; types without capacity are left out."""
    rows = zip(frame["gpu_type"], frame["held_gpu_h"], frame["capacity_gpu_h"], strict=True)
    return [
        f"{gpu_type(kind)} {share(float(held) / float(there))}"
        for kind, held, there in rows
        if there > 0
    ]


def _last(frame: pd.DataFrame, name: str) -> float:
    """Return the last value of a note."""
    return float(frame.loc[(frame["name"] == name).to_numpy(), "value"].iloc[-1])
