"""Views of one run, or of two compared: machines over time and jobs of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from trainyard.formatting import RunClock, plural, share
from trainyard.store import StoredResult
from trainyard.views import charts
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.figure_view import FigureView
from trainyard.what_if import branch_diff, tables
from trainyard.what_if.branch_diff import BranchDifference
from trainyard.what_if.explore import Bars, Book, Occupancy

_BARS: Final = {"id": "Job", "user": "User", "gpus": "Held", "t0": "From", "t1": "To"}


@dataclass(frozen=True, eq=False)
class ExploredRuns:
    """The runs on the Explore page.

    Parameters
    ----------
    compared : ComparedRuns
        The complete policies, with the axis of time that was chosen.
    books : mapping of Book
        Title -> run: the policy first, then the one it is seen against, if any.
    keys : mapping of str
        Title -> key of what is derived from that run: its own in the store, and how instants are
        written.
    """

    compared: ComparedRuns
    books: Mapping[str, Book]
    keys: Mapping[str, str]

    @property
    def title(self) -> str:
        """Title of the explored policy."""
        return next(iter(self.books))

    @property
    def book(self) -> Book:
        """Run of the explored policy."""
        return self.books[self.title]

    @property
    def axis(self) -> charts.TimeAxis:
        """The axis of time."""
        return self.compared.axis

    @property
    def window(self) -> tuple[float, float]:
        """The visible window, in seconds."""
        return self.axis.t0_s, self.axis.t1_s


def machines(
    explored: ExploredRuns,
    occupancies: Mapping[str, Occupancy],
    order: Sequence[int],
    waiting: charts.Waiting,
    *,
    differs: bool,
    has_map: bool = True,
) -> FigureView:
    """Return the figure of machine use as heat maps over time, one per policy, above the queue.

    Parameters
    ----------
    explored : ExploredRuns
        The runs.
    occupancies : mapping of Occupancy
        Title -> its machines over time, of equal rows.
    order : sequence of int
        Rows from top to bottom.
    waiting : Waiting
        Jobs waiting under the same policies.
    differs : bool
        Whether the difference of two runs is drawn instead of both.
    has_map : bool
        Whether the heat maps are drawn; else only the queue.
    """
    first = next(iter(occupancies.values()))
    unit, clock = f"{first.unit}s", explored.book.clock
    grids = _grids(occupancies, order, differs=differs)
    figure = charts.machines(
        grids if has_map else (),
        row_labels(first, order) if has_map else charts.row_labels(first.rows),
        explored.axis,
        waiting,
        explored.compared.style,
        difference=differs,
    )
    used = "; ".join(f"{title} {share(tables.in_use(one))}" for title, one in occupancies.items())
    begin, end = map(clock.format, explored.window)
    notes = []
    if differs:
        more, fewer = explored.books
        notes.append(f"Orange: more under {more}; blue: more under {fewer}.")
    if has_map and any(charts.down_spells(grid) for grid in grids):
        notes.append("Hatched: at least half of it down or absent.")
        if lost := charts.hidden_spells(grids):
            notes.append(f"{plural(lost, 'short spell')} of that are not drawn.")
    return FigureView(
        "machines",
        figure,
        f"{unit} in use, mean from {begin} to {end}: {used}.",
        lambda: _occupancy_table(occupancies, order, unit),
        " ".join(notes),
    )


def row_labels(occupancy: Occupancy, order: Sequence[int]) -> list[str]:
    """Return unique labels for the rows of an occupancy."""
    names = tables.row_names(occupancy)
    return charts.row_labels([names[at] for at in order])


def _grids(
    occupancies: Mapping[str, Occupancy], order: Sequence[int], *, differs: bool
) -> list[charts.Grid]:
    """Return one grid per policy, or one of the first less the second; at most `MAX_CELLS`."""
    if not differs:
        return charts.thin_grids(
            [charts.Grid(title, *tables.shares(one, order)) for title, one in occupancies.items()]
        )
    (title, first), (other, second) = occupancies.items()
    return charts.thin_grids(
        [charts.Grid(f"{title} minus {other}", *tables.use_difference(first, second, order))]
    )


def _occupancy_table(
    occupancies: Mapping[str, Occupancy], order: Sequence[int], unit: str
) -> pd.DataFrame:
    """Return a table with one row per node, rack or type, and the mean use by policy.

    `unit` = heading of the size column, GPUs or cores.
    """
    rows = tables.rows_table(occupancies, order)
    columns = {"row": "Row", "gpu_type": "GPU type", "rack": "Rack", "size": unit}
    for prefix, heading in (("in_use ", "In use"), ("down ", "Down")):
        for name in [name for name in rows.columns if name.startswith(prefix)]:
            rows[name] = rows[name].map(share)
            columns[name] = f"{heading}, {name.removeprefix(prefix)}"
    return rows.rename(columns=columns)


def node_jobs(explored: ExploredRuns, title: str, node: str, bars: Bars) -> FigureView:
    """Return the figure of the jobs on one node over time under a policy, as bars.

    Without jobs the figure is empty and the note says so.
    """
    sizes, unit = tables.node_sizes(explored.books[title].cluster)
    clock, frame = explored.book.clock, bars.frame
    figure = charts.node_jobs(
        frame,
        (sizes[node], unit),
        explored.axis,
        f"Jobs on {charts.literal(node)} under {charts.literal(title)}",
    )
    lanes = (
        ""
        if sizes[node] == 1
        else f" It is as high as its {unit}s; which {unit} of the node it had is not recorded."
    )
    lost = (
        f" {plural(bars.left_out, 'short bar')} of the window are left out."
        if bars.left_out
        else ""
    )
    return FigureView(
        "node",
        figure,
        f"{plural(frame['job'].nunique(), 'job')} on {node} under {title} in the window, one bar"
        " for each time that a job was there.",
        lambda: frame.assign(t0=frame["t0"].map(clock.format), t1=frame["t1"].map(clock.format))[
            list(_BARS)
        ].rename(columns=_BARS),
        f"A bar is one job; click it to open the job.{lanes}{lost}"
        if len(frame)
        else "No job was on it in this window.",
    )


def branch_view(
    was: StoredResult, here: StoredResult, at_s: float, after: BranchDifference, clock: RunClock
) -> FigureView:
    """Return the figure of queue and GPUs busy of a run and its branch at `at_s`, a line each."""
    end_s = max(float(entry.summary["end_s"]) for entry in (was, here))
    frames = branch_diff.branch_frames(was, here)
    at = clock.format(at_s)
    figure = charts.branch_rows(
        frames,
        charts.policy_style(branch_diff.TITLES, branch_diff.WAS),
        charts.TimeAxis(0.0, max(end_s, 1.0), clock.epoch),
        at_s,
        "Jobs waiting, GPUs busy",
    )
    columns = (("queue", "waiting", "Jobs waiting"), ("utilisation", "total", "GPUs held"))
    return FigureView(
        "from-here-on",
        figure,
        f"Jobs waiting and GPUs busy over time, as it was and from {at} on. {after.sentence}",
        lambda: pd.concat(
            [
                pd.DataFrame(
                    {"Run": title, "What": what, "Seconds": frame["t_s"], "Mean": frame[column]}
                )
                for kind, column, what in columns
                for title, frame in frames[kind].items()
            ],
            ignore_index=True,
        ),
        f"Dashed line: {at}. Dotted: GPUs available after it.",
    )
