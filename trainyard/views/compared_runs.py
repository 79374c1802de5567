"""Runs of a study side by side, with window and colors: the input of most views."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pandas as pd

from sim.cluster import Cluster
from trainyard.results import outcomes, preview
from trainyard.results.detail_data import Details
from trainyard.results.outcomes import ComparisonReport, StudyResults
from trainyard.results.window_series import Loads, loads
from trainyard.runs.frames import policies_to_draw
from trainyard.store import Store, StoredResult
from trainyard.views import charts

Window = tuple[float, float]


@dataclass(frozen=True, eq=False)
class ComparedRuns:
    """Complete runs of a study with their report, window and style.

    Parameters
    ----------
    runs : StudyResults
        The runs of the study.
    report : ComparisonReport
        What the complete ones say.
    details : Details
        What is computed for some views only.
    frames : mapping
        Kind, as in `ComparisonReport.frames`, -> title -> reduced series, of the window.
    job_ids : mapping of str
        Column of an "allocation" frame -> id of the job.
    window : (float, float) or None, seconds
        The part of the runs that figures over time show; None = all of them.
    epoch : str
        Instant of second 0 for axes on the calendar; "" = axes count from the first submission.
    earlier : mapping of StoredResult
        Title of a policy without a result -> its last one, of other settings, which is shown faint.
    computed : mapping of Loads
        Window -> what `loads` would compute for it.
    before : ComparedRuns or None
        The runs before a change of the scenario; figures show their strong lines dotted.
    """

    runs: StudyResults
    report: ComparisonReport
    details: Details
    frames: Mapping[str, Mapping[str, pd.DataFrame]]
    job_ids: Mapping[str, str]
    window: Window | None = None
    epoch: str = ""
    earlier: Mapping[str, StoredResult] = field(default_factory=dict)
    computed: Mapping[Window | None, Loads] = field(default_factory=dict)
    before: ComparedRuns | None = None

    @property
    def baseline(self) -> str:
        """Title of the policy that the others are compared with; "" while incomplete."""
        return self.report.baseline

    @property
    def cluster(self) -> Cluster:
        """The machines."""
        return self.runs.study.base.cluster

    @property
    def drawn(self) -> tuple[str, ...]:
        """Titles of the policies in shared figures: few, of different colors, with the baseline."""
        return self.distinct(self.report.labels)

    def distinct(self, titles: Sequence[str]) -> tuple[str, ...]:
        """Return the first policy of each color, up to the number drawn, with the baseline."""
        colours = self.colours()
        first: dict[str, str] = {}
        for title in titles:
            first.setdefault(colours[title], title)
        return policies_to_draw(tuple(first.values()), self.baseline)

    def colours(self, dark: bool = False) -> Mapping[str, str]:
        """Return the color of every policy in the light or dark theme."""
        runs = self.runs
        return charts.policy_colours(
            runs.titles, runs.titles[runs.baseline], runs.study.slots, dark=dark
        )

    @cached_property
    def style(self) -> charts.theme.Style:
        """Color in the light theme and dash of every policy."""
        return charts.policy_style(
            self.runs.titles, self.runs.titles[self.runs.baseline], self.runs.study.slots
        )

    @cached_property
    def types(self) -> Mapping[str, str]:
        """Colour of every GPU type."""
        return charts.type_style([kind.name for kind in self.cluster.types])

    @property
    def axis(self) -> charts.TimeAxis:
        """The time axis of the window; without one, of the whole runs."""
        begin_s, end_s = self.window or (0.0, max(self.report.end_s, 1.0))
        return charts.TimeAxis(begin_s, end_s, self.epoch)

    @property
    def key(self) -> tuple[object, ...]:
        """Cache key of the figures of these runs."""
        before = () if self.before is None else (self.before.report.mark, self.before.source)
        own = self.report.mark, self.source, self.window, self.epoch
        return *own, *sorted(self.earlier), *before

    def series(self, kind: str) -> dict[str, pd.DataFrame]:
        """Return title -> frame of one kind, for the drawn policies."""
        return {title: self.frames[kind][title] for title in self.drawn}

    @cached_property
    def loads(self) -> Loads:
        """Queue and GPU use in the window, of complete policies and results of earlier settings.

        Raises
        ------
        StoreError
            If a stored result was deleted.
        """
        if self.window in self.computed:
            return self.computed[self.window]
        firsts = {self.runs.titles[at]: self.runs.entries[at][0] for at in self.runs.places}
        return loads(
            {**firsts, **self.earlier}, self.cluster, self.window, self.axis.clock.midnight_s
        )

    def around(
        self, high: str, hidden: Collection[str] = (), most: int = charts.lines.MAX_LINES
    ) -> tuple[str, ...]:
        """Return the policies to draw with `high`: baseline and nearest by mean JCT, one per color.

        At most `most`, in the order of the study, without `hidden` ones; results of earlier
        settings are last.
        """
        table = self.report.table
        values = table[table["metric"] == "jct_mean_s"].set_index("label")["value"]
        own = values.get(high, math.nan)
        order = sorted(
            self.report.labels,
            key=lambda title: (
                title not in (self.baseline, high),
                math.inf if math.isnan(gap := abs(values.get(title, math.nan) - own)) else gap,
            ),
        )
        first: dict[str, str] = {}
        for title in (*order, *self.earlier):
            if title not in hidden:
                first.setdefault(self.colours()[title], title)
        kept = list(first.values())[:most]
        return tuple(title for title in (*self.report.labels, *self.earlier) if title in kept)

    @property
    def source(self) -> str:
        """Trace and cluster, as written below pictures."""
        return charts.visible(f"{self.details.trace.name} · {self.cluster.name}", 120)

    def look(
        self, high: str = "", *, alone: bool = False, hidden: Collection[str] = (), scale: float = 1
    ) -> charts.Look:
        """Return the style of the lines of `around(high)`, with `high` and the baseline strong.

        Parameters
        ----------
        high : str
            Title of the highlighted policy; "" = the one that the headline is about.
        alone : bool
            Whether no ledger stands below, which reads the lines.
        hidden : collection of str
            Policies without lines; baseline and `high` have theirs anyway.
        scale : float
            Factor on the size of text.
        """
        high = high or self.report.first_headline.subject
        hidden = {*hidden} - {self.baseline, high}
        before = {
            f"was {title}": title
            for title in dict.fromkeys((self.baseline, high))
            if self.differs_before(title)
        }
        drawn = self.around(high, hidden, charts.lines.MAX_LINES - len(before))
        more = len({*self.report.labels, *self.earlier} - hidden) - len(drawn)
        colours = {title: self.style[title][0] for title in drawn}
        earlier = frozenset(self.earlier)
        colours |= {name: self.style[title][0] for name, title in before.items()}
        return charts.Look(
            colours,
            self.baseline,
            high,
            alone,
            earlier=earlier,
            before=before,
            more=more,
            scale=scale,
            source=self.source,
        )

    def differs_before(self, title: str) -> bool:
        """Return True if the runs before the change have another result of a policy."""
        if self.before is None or title not in self.before.report.labels or title in self.earlier:
            return False
        keys = [
            runs.keys[runs.titles.index(title)][0].removeprefix(preview.MARK)
            for runs in (self.runs, self.before.runs)
        ]
        return keys[0] != keys[1]

    def with_window(self, window: Window | None) -> ComparedRuns:
        """Return a copy with another window; frames stay unchanged."""
        before = self.before and self.before.with_window(window)
        return replace(self, window=window, before=before)


def compare_runs(runs: StudyResults, store: Store) -> ComparedRuns | None:
    """Return the complete runs as `ComparedRuns`; None without any.

    Raises
    ------
    TrainyardError
        If a stored result was deleted.
    """
    report = outcomes.report(runs, store)
    if report is None:
        return None
    return ComparedRuns(runs, report, Details(runs, store), report.frames, report.job_ids)
