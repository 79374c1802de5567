"""Views of jobs: completion times and their parts, winners and losers, estimates."""

from __future__ import annotations

from typing import Final

import pandas as pd

from sim.metrics import Accuracy
from trainyard import formatting
from trainyard.formatting import plural
from trainyard.results import groups as grouped
from trainyard.results.compare import repeats_suffix
from trainyard.results.groups import GROUP_METRICS
from trainyard.views import charts
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.figure_view import FigureView, stack_frames

_GROUP: Final = 40
"""Maximum length of a name next to its number of jobs."""
_SMALL_S: Final = 0.5
"""Parts of completion times below this are not explained."""
_HISTOGRAM: Final = {
    "low": "From (times the baseline's)",
    "high": "To (times the baseline's)",
    "jobs": "Jobs",
}
_POINTS: Final = {"job_id": "Job", "ideal_s": "True (s)", "believed_s": "Estimated (s)"}


def jct_cdf(compared: ComparedRuns, look: charts.Look | None = None) -> FigureView:
    """Return the figure of the share of jobs completed within a time, one line per policy.

    Parameters as in `trainyard.views.over_time.queue`.
    """
    look = look or compared.look(alone=True)
    curves = {
        title: compared.frames["cdf"][title] for title in look.colours if title not in look.before
    }
    if compared.before is not None:
        frames = compared.before.frames["cdf"]
        curves |= {name: frames[title] for name, title in look.before.items()}
    left_out = {title: compared.report.left_out.get(title, 0) for title in curves}
    figure = charts.jct_cdf(curves, look, left_out)
    halves = ", ".join(
        f"{title} {formatting.time(_median_s(curve))}"
        for title, curve in curves.items()
        if len(curve)
    )
    return FigureView(
        "jct_cdf",
        figure,
        "Share of jobs completed within a time, by policy. Half of them within:"
        f" {halves or 'not known'}.",
        lambda: stack_frames(curves, {"share": "Share of jobs", "jct_s": "Completed within (s)"}),
    )


def _median_s(curve: pd.DataFrame) -> float:
    """Return the median completion time of a curve, in seconds."""
    return float(curve["jct_s"].iloc[min(int(curve["share"].searchsorted(0.5)), len(curve) - 1)])


def winners(compared: ComparedRuns, title: str) -> FigureView:
    """Return the histogram of a policy's completion times relative to the baseline's.

    Only jobs that are faster or slower.
    """
    report = compared.report
    change = report.changes[title]
    faster, same, slower = parts = grouped.change_texts(
        change, int(report.counts["repeats"].iloc[0])
    )
    figure = charts.winners(
        change.histogram,
        parts,
        compared.style[title][0],
        f"Jobs faster and slower under {charts.literal(title)}",
        compared.drawn,
    )
    return FigureView(
        f"winners-{list(report.changes).index(title) + 1}",
        figure,
        f"Of {plural(change.jobs, 'job')}{repeats_suffix(report.counts)} under {title}, {faster}"
        " take"
        f" less time than under {report.baseline}, {same} as long, {slower} longer.",
        lambda: change.histogram.rename(columns=_HISTOGRAM),
        "Jobs that take as long as before are left out; the outer bars hold changes above 32x.",
    )


def groups(
    compared: ComparedRuns, by: str, what: str = next(iter(GROUP_METRICS))
) -> FigureView | None:
    """Return the figure of means by group of jobs, one mark per policy, joined to the baseline.

    Parameters
    ----------
    compared : ComparedRuns
        The runs, with a baseline.
    by : str
        Key of `Details.groupings`.
    what : str
        Key of `trainyard.results.groups.GROUP_METRICS`.

    Returns
    -------
    FigureView or None
        None = no job was completed under all of these policies.

    Raises
    ------
    TrainyardError
        If the trace or a stored result was deleted.
    """
    grouping, amount = compared.details.groupings[by], GROUP_METRICS[what]
    grouped_means = grouped.group_means(compared.runs, grouping, compared.drawn, what)
    if grouped_means is None or grouped_means.table.empty:
        return None
    table = grouped_means.table
    counted = [
        f"{charts.visible(name, _GROUP)} ({plural(jobs, 'job')})"
        for name, jobs in zip(table["group"], table["jobs"].tolist(), strict=True)
    ]
    noun = grouping.title if grouping.title.startswith("GPU") else grouping.title.lower()
    amount_title = f"{amount[:1].upper()}{amount[1:]}"
    figure = charts.dumbbell(
        table.assign(group=counted),
        compared.style,
        compared.baseline,
        f"Change by {noun}: {amount_title}",
        amount,
    )

    def data() -> pd.DataFrame:
        """Return the means by group and policy as a table, with intervals if there are any."""
        columns = {
            "Group": table["group"],
            "Policy": table["label"],
            "Jobs": table["jobs"],
            f"{amount_title} (s)": table["value"],
            "Change": table["change"].map(formatting.change),
        }
        if table["low"].notna().any():
            columns |= {"From (s)": table["low"], "To (s)": table["high"]}
        return pd.DataFrame(columns)

    return FigureView(
        f"groups-{by}",
        figure,
        grouped_means.finding(compared.baseline, amount),
        data,
        grouped_means.caption(compared.baseline, repeats_suffix(compared.report.counts)),
    )


def parts(compared: ComparedRuns) -> FigureView:
    """Return the figure of mean completion times, one bar per policy, stacked by part."""
    table = compared.report.parts
    each = "; ".join(
        f"{row['policy']} {formatting.time(row['jct_s'])}, of it {formatting.time(row['queue_s'])}"
        " waiting to start"
        for row in table.to_dict("records")
    )
    there = [part for part in charts.PARTS if (table[part.column] > _SMALL_S).any()]
    meanings = "; ".join(f"{part.name}: {part.meaning}" for part in there)
    return FigureView(
        "parts",
        charts.decomposition(table, "Completion time by part"),
        f"Average completion time and its parts, by policy: {each}.",
        lambda: pd.DataFrame(
            {
                "Policy": table["policy"],
                "Jobs completed": table["jobs"],
                "Average completion time (s)": table["jct_s"],
                **{f"{part.name.capitalize()} (s)": table[part.column] for part in charts.PARTS},
            }
        ),
        f"Means over completed jobs.{f' {meanings[0].upper()}{meanings[1:]}.' if there else ''}",
    )


def predictions(compared: ComparedRuns, title: str) -> FigureView:
    """Return the figure of estimated against true run times under a policy, one mark per job.

    Raises
    ------
    TrainyardError
        If the trace or a stored result was deleted.
    """
    diagnostics = compared.details.diagnostics
    points, near = diagnostics.points[title], diagnostics.accuracy[title]
    figure = charts.predictions(
        points,
        compared.style[title][0],
        f"How accurate were the run-time estimates under {charts.literal(title)}?",
    )
    some = (
        ""
        if len(points) == near.jobs
        else f" Drawn: {formatting.count(len(points))} of {plural(near.jobs, 'job')}, of all sizes."
    )
    others = [f"{_near(name, one)} " for name, one in diagnostics.accuracy.items() if name != title]
    return FigureView(
        f"predictions-{list(diagnostics.points).index(title) + 1}",
        figure,
        f"Estimated over true ideal run times of {plural(len(points), 'job')}, logarithmic."
        f" {_near(title, near)}",
        lambda: points[list(_POINTS)].rename(columns=_POINTS),
        f"{''.join(others)}Estimates as the policy first got them, as run times alone at the best"
        f" size on the fastest GPU type.{some}",
    )


def _near(title: str, near: Accuracy) -> str:
    """Return the sentence on how close a policy's size estimates are to the truth."""
    return (
        f"{title}: {formatting.share(near.near)} of sizes within a factor of 2, half of them within"
        f" {formatting.factor(near.median_factor)}."
    )
