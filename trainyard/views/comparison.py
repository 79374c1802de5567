"""Compare page as a frozen value: compared runs under one choice of the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import pandas as pd

from sim.metrics.registry import Metric
from trainyard.formatting import MISSING, count
from trainyard.results import groups, validity
from trainyard.results.compare import SLOWER
from trainyard.results.detail_data import has_several_types
from trainyard.results.groups import GroupComparison
from trainyard.results.headline import GOALS, Headline
from trainyard.views import jobs, ledger, over_time
from trainyard.views.before_after import BeforeAfter, before_after, scenarios
from trainyard.views.charts import visible
from trainyard.views.compared_runs import ComparedRuns, Window
from trainyard.views.figure_view import FigureView
from trainyard.views.ledger import Cells, LedgerView

_BASE_NAME: Final = 14
"""Maximum length of the baseline's title next to a value."""


@dataclass(frozen=True)
class ComparisonChoice:
    """Choices of the user on the Compare page.

    Parameters
    ----------
    goal : str
        The metric that policies are judged by; "" = the first that is known.
    high : str
        Title of the highlighted policy; "" = none but the baseline.
    group : (str, str) or None
        Title of a grouping and name of the group whose jobs the figures are of; None = all jobs.
    window : (float, float) or None, seconds
        The zoom window; None = whole runs.
    hidden : tuple of str
        Policies whose lines are hidden, unless highlighted or the baseline.
    """

    goal: str = ""
    high: str = ""
    group: tuple[str, str] | None = None
    window: Window | None = None
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tile:
    """A value of the highlighted policy, as a tile.

    Parameters
    ----------
    title, value : str
        The metric and its value; "" = no value yet.
    base : str
        The baseline and its value; "" = not compared.
    lines : sequence of (str, str)
        What follows, each with its verdict: {"better", "worse", ""}.
    help : str
        Tooltip.
    goal : str
        The metric to judge by when the tile is pressed; "" = it cannot be pressed.
    chosen : bool
        Whether policies are judged by it.
    parts : sequence of float
        Shares of the jobs that are faster, the same and slower, in place of the value.
    """

    title: str
    value: str = ""
    base: str = ""
    lines: tuple[tuple[str, str], ...] = ()
    help: str = ""
    goal: str = ""
    chosen: bool = False
    parts: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {name: value for name, value in asdict(self).items() if name != "parts" or value}


EMPTY_TILES: Final = tuple(Tile(ledger.ALL[name].title) for name in ledger.MAIN)
"""Tiles that keep their place while policies run."""


@dataclass(frozen=True, eq=False)
class ComparisonView:
    """Everything that Compare shows of compared runs under one choice.

    Nothing of it depends on more than its key, so equal keys may share one view.

    Parameters
    ----------
    runs : ComparedRuns
        The runs in the zoom window.
    group_runs : ComparedRuns
        The same with the completion times of the chosen group.
    choice : ComparisonChoice
        What is looked at; its goal is never "".
    headline : Headline
        About the highlighted policy and the chosen group.
    facts : str
        What was run.
    notes : str
        Caption below the ledger: which jobs or policies its figures leave out.
    table : DataFrame
        Figures of the group, see `trainyard.results.compare.table`; percentages of few jobs are
        withheld.
    tiles : tuple of Tile
        Figures of the highlighted policy; empty under overload.
    change : BeforeAfter or None
        Effect of the last change of the scenario; None without one.
    tabs : tuple of str
        The tabs that have something to show.
    is_overloaded : bool
        Whether jobs ask for more than the cluster can do, so that policies cannot be judged.
    is_draft : bool
        Whether it answers a slider that moves; nothing of it is stored.
    key : tuple
        All that it depends on.
    """

    runs: ComparedRuns
    group_runs: ComparedRuns
    choice: ComparisonChoice
    headline: Headline
    facts: str
    notes: str
    table: pd.DataFrame
    tiles: tuple[Tile, ...]
    change: BeforeAfter | None
    tabs: tuple[str, ...]
    is_overloaded: bool
    is_draft: bool
    key: tuple[object, ...]

    @property
    def of_what(self) -> str:
        """What the figures of tiles and ledger are of."""
        is_windowed = self.choice.window is not None and self.group_runs is not self.runs
        return "Jobs submitted in this window" if is_windowed else "Whole run"

    def queue(self, marks: Sequence[float] = (), scale: float = 1) -> FigureView:
        """Return the figure of jobs waiting and GPUs busy, of all jobs, with `marks` in seconds.

        `scale` = factor on the size of text, for which names are placed.

        Raises
        ------
        StoreError
            If a stored result was deleted.
        """
        note = "all jobs" if self.choice.group else ""
        look = self.runs.look(self.choice.high, hidden=self.choice.hidden, scale=scale)
        return over_time.queue(self.runs, look, marks=marks, note=note)

    def done_within(self, scale: float = 1) -> FigureView:
        """Return the figure of the completion times of the chosen group; `scale` as in `queue`."""
        look = self.runs.look(self.choice.high, hidden=self.choice.hidden, scale=scale)
        return jobs.jct_cdf(self.group_runs, look)

    def columns(self, *, usual: bool = False) -> list[Metric]:
        """Return the ledger's metrics with values: all, or the `usual` ones with the goal.

        Under overload the usual ones are makespan and utilization.
        """
        if not usual:
            return ledger.columns(self.table, "", list(ledger.ALL))
        if self.is_overloaded:
            return ledger.columns(self.table, "", ledger.OVERLOADED)
        return ledger.columns(self.table, self.choice.goal)

    def ledger(
        self, metrics: list[Metric], status: ledger.State, *, both: bool = False
    ) -> LedgerView:
        """Return the ledger with these columns; `status` is the state of the session.

        `both` = with the figures before and after the change, in place of the baseline.

        Raises
        ------
        StoreError
            If a stored result was deleted.
        """
        if self.change is None or not both:
            return ledger.ledger_of(self.group_runs, self.table, metrics, status, self.of_what)
        # The share of slower jobs is against the baseline of the same scenario.
        metrics = [metric for metric in metrics if metric != SLOWER]
        own = ledger.ledger_of(self.group_runs, self.table, metrics, status, self.of_what)
        return scenarios(own, metrics, self.change)


def key_of(compared: ComparedRuns, choice: ComparisonChoice) -> tuple[object, ...]:
    """Return the cache key of the comparison view: runs and all choices of the user.

    Choices: window, goal, highlighted and hidden policies, and group. The theme is not in it: the
    view has no colors of its own.
    """
    scenarios = "|".join(key for own in compared.runs.keys for key in own)
    chosen = choice.goal, choice.high, choice.group, choice.hidden
    return *compared.with_window(choice.window).key, scenarios, *chosen


def build(
    compared: ComparedRuns,
    choice: ComparisonChoice,
    group: GroupComparison | None,
    group_before: GroupComparison | None = None,
    *,
    is_draft: bool = False,
) -> ComparisonView:
    """Return the comparison view: headline, facts, notes, table, tiles and tabs.

    Parameters
    ----------
    compared : ComparedRuns
        The runs.
    choice : ComparisonChoice
        What is looked at.
    group, group_before : GroupComparison or None
        The comparison over the chosen group, after and before a change; None = all jobs.
    is_draft : bool
        Whether a slider that moves asks for it. Nothing is skipped; it only enters the view and its
        key, and gives empty tiles under overload, where there are none otherwise.

    Raises
    ------
    TrainyardError
        If the trace was deleted.
    """
    report = compared.report
    choice = replace(choice, goal=choice.goal or next(iter(report.headlines)))
    seen = compared if compared.window == choice.window else compared.with_window(choice.window)
    is_overloaded = report.first_headline.verdict == "overload"
    if group is None:
        group_before = None
    elif compared.before is not None:
        before = group_before and _of_group(compared.before, group_before)
        compared, seen = replace(compared, before=before), replace(seen, before=before)
    table = _table(compared, group)
    cells, change = ledger.by_place(table), None
    if compared.before is not None:
        was = ledger.by_place(_table(compared.before, group_before))
        goal = ledger.ALL[choice.goal]
        high = choice.high or compared.baseline
        change = before_after(compared, high, goal, (was, cells), is_draft=is_draft)
    headline, facts = _headline(compared, choice, group)
    if is_overloaded:
        tiles = EMPTY_TILES if is_draft else ()
    else:
        tiles = _tiles(seen, cells, choice, change, whole=group is None)
    return ComparisonView(
        runs=seen,
        group_runs=seen if group is None else _of_group(seen, group),
        choice=choice,
        headline=headline,
        facts=facts,
        notes=_notes(compared, whole=group is None),
        table=table,
        tiles=tiles,
        change=change,
        tabs=_tabs(compared),
        is_overloaded=is_overloaded,
        is_draft=is_draft,
        key=(*key_of(compared, choice), is_draft),
    )


def _headline(
    compared: ComparedRuns, choice: ComparisonChoice, group: GroupComparison | None
) -> tuple[Headline, str]:
    """Return the headline and the facts of the chosen group, else of all jobs.

    Jobs submitted in a zoom window are a group too. Falls back to all jobs if nothing can be judged
    or the goal needs whole runs. A policy that only has a result of earlier settings gets a
    placeholder.
    """
    facts, high = compared.report.facts, choice.high
    whole = compared.report.headline_of(high, choice.goal)
    if high in compared.earlier and whole.subject:
        whole = Headline("nothing", f"{high} runs when the slider rests.", high)
    if group is None:
        if choice.window is None:
            return whole, facts
        why = (
            "No such job was submitted in this window"
            if compared.baseline
            else "The baseline has no result"
        )
        return whole, f"{facts}. {why}: all figures are of all jobs of the whole run"
    of_group = group.headline_of(high, choice.goal)
    if of_group is None or whole.verdict in ("overload", "nothing"):
        return whole, f"{'All jobs' if choice.window is None else 'Whole run'}: {facts}"
    jobs_text = count(int(group.counts["jobs"].iloc[0]) // compared.runs.study.repeats)
    name = f"{' '.join(choice.group)}: " if choice.group is not None else ""
    if choice.window is None:
        return of_group, f"{name}{jobs_text} of {facts}"
    since, until = (compared.axis.clock.format(end) for end in choice.window)
    first, space, rest = of_group.text.partition(" ")
    text = f"In this window, {first.lower()}{space}{rest}" if first == "With" else of_group.text
    jobs, dot, others = facts.partition(" · ")
    when = f"{jobs}, submitted {since} to {until}{dot}{others}"
    return replace(of_group, text=text), f"{name}{jobs_text} of {when}"


def _of_group(seen: ComparedRuns, group: GroupComparison) -> ComparedRuns:
    """Return the runs with completion curves and incomplete jobs of a group only."""
    lost = group.counts["jobs"] - group.counts["completed"]
    left_out = {
        str(label): int(number) for label, number in lost.set_axis(group.counts["label"]).items()
    }
    return replace(
        seen,
        frames={**seen.frames, "cdf": group.curves},
        report=replace(seen.report, left_out=left_out),
    )


def _table(compared: ComparedRuns, group: GroupComparison | None) -> pd.DataFrame:
    """Return the comparison table of all jobs or a group: a row per policy and metric.

    A group of few jobs, or of runs whose headline is withheld, has no changes and verdicts.
    """
    report = compared.report
    if group is None:
        return report.table
    table, counts = group.table, group.counts
    fewest = int(counts["completed"].min() / counts["repeats"].iloc[0])
    if report.first_headline.withheld or fewest < validity.MIN_JOBS_IN_GROUP:
        table = table.assign(change=float("nan"), verdict="")
    return table


def _tiles(
    compared: ComparedRuns,
    cells: Cells,
    choice: ComparisonChoice,
    change: BeforeAfter | None,
    *,
    whole: bool,
) -> tuple[Tile, ...]:
    """Return tiles of the highlighted policy, with the baseline's values: one per known metric.

    After a change of the scenario they tell the value before it in place of the difference.

    Empty tiles if the policy only has a result of earlier settings.
    """
    title = choice.high or compared.baseline or compared.report.labels[0]
    if title in compared.earlier:
        return EMPTY_TILES
    tiles = []
    for name in ledger.MAIN:
        metric = ledger.ALL[name]
        if name == "slower":
            tiles += _shares_tile(compared, cells, title, whole=whole)
            continue
        own = ledger.cell(cells, title, metric, compared.baseline)
        if (title, name) not in cells or own.text == MISSING:
            continue
        base = ledger.cell(cells, compared.baseline, metric, "")
        is_compared = compared.baseline not in ("", title)
        is_changed = change is not None and compared.differs_before(title)
        was = change.was(title, metric) if change is not None and is_changed else ""
        tiles.append(
            Tile(
                title=f"{metric.title}{_window_note(name)}",
                value=own.text,
                base=f"{visible(compared.baseline, _BASE_NAME)} {base.text}" if is_compared else "",
                lines=((f"was {was}", ""),)
                if was
                else (_change_line(own),)
                if is_compared and own.change
                else (),
                help=f"{metric.help} {own.help}".strip(),
                goal=name if name in GOALS else "",
                chosen=name == choice.goal,
            )
        )
    if not whole and choice.window is not None:
        tiles.append(_peak_tile(compared, title))
    return tuple(tiles)


def _peak_tile(compared: ComparedRuns, title: str) -> Tile:
    """Return the tile of the longest queue in the window, with the baseline's."""
    own, base = (
        count(compared.loads.runs[name].peak) if name in compared.loads.runs else ""
        for name in (title, compared.baseline)
    )
    is_compared = base and compared.baseline != title
    return Tile(
        "Longest queue",
        own,
        f"{visible(compared.baseline, _BASE_NAME)} {base}" if is_compared else "",
        help="Most jobs waiting at the same time in the window.",
    )


def _change_line(cell: ledger.LedgerCell) -> tuple[str, str]:
    """Return a cell's change as text, such as "▾ 12 % better", and its verdict."""
    if cell.change == "≈":
        return "about the same", ""
    points = " point" if cell.change[1:] == "1 pt" else " points"
    size = cell.change.lstrip("+−").replace(" pt", points)
    sign = "▾" if cell.change.startswith("−") else "▴"
    return f"{sign} {size} {cell.verdict}".strip(), cell.verdict


def _shares_tile(compared: ComparedRuns, cells: Cells, title: str, *, whole: bool) -> list[Tile]:
    """Return one tile with the shares of faster, same and slower jobs; [] if unknown.

    In a group only the share of slower jobs is known.
    """
    if whole:
        change = compared.report.changes.get(title)
        if change is None:
            return []
        repeats = int(compared.report.counts["repeats"].iloc[0])
        faster, same, slower = groups.change_texts(change, repeats)
        shares = (change.faster, change.same, change.slower)
        lines = [
            (f"{faster} faster", "better"),
            (f"{same} same", ""),
            (f"{slower} slower", "worse"),
        ]
    else:
        own = ledger.cell(cells, title, ledger.ALL["slower"], "")
        if own.text == MISSING:
            return []
        shares = (0, 1 - own.value, own.value)
        lines = [(f"{own.text} slower", "worse")]
    parts = tuple(round(share, 4) for share in shares)
    return [Tile("Jobs faster / slower", lines=tuple(lines), help="By over 2 %.", parts=parts)]


def _window_note(metric: str) -> str:
    """Return when a metric is measured if not in the whole run, to follow its title."""
    return ", jobs arriving" if metric == "utilisation" else ""


def _notes(compared: ComparedRuns, *, whole: bool) -> str:
    """Return the caption below the ledger: remarks, incomplete jobs, assumptions."""
    report = compared.report
    also = () if report.first_headline.verdict == "overload" else report.first_headline.also
    not_common = report.not_common if whole else ""
    assumed = f"Assumed: {report.assumed}" if report.assumed else ""
    sentences = *also, _not_completed(report.counts), report.overflow, not_common, assumed
    return " ".join(filter(None, sentences))


def _not_completed(counts: pd.DataFrame) -> str:
    """Return the sentence on jobs that were not completed, by policy; "" = none."""
    sentences = []
    for row in counts.to_dict("records"):
        why = f" ({row['why']})" if row["why"] else ""
        others = [
            f"{count(row[name])} {name}{why if name == 'failed' else ''}"
            for name in ("failed", "impossible", "refused", "unfinished")
            if row[name]
        ]
        sentences += [f"{row['label']} {', '.join(others)}"] if others else []
    if not sentences:
        return ""
    repeats = int(counts["repeats"].iloc[0])
    together = f" (of {repeats} repeats together)" if repeats > 1 else ""
    return f"Not completed, so not in the means{together}: {'; '.join(sentences)}."


def _tabs(compared: ComparedRuns) -> tuple[str, ...]:
    """Return the keys of the tabs that have something to show, in order."""
    tenants = ("tenants",) if compared.cluster.gpus else ()
    types = ("types", "cost") if has_several_types(compared.runs) else ()
    return "jobs", "time", *tenants, *types, "accuracy", "export"
