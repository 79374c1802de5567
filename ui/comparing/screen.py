"""The Compare page in one fragment: answer, tiles, charts and ledger stand together, and a change
of the highlighted policy, of the goal or of the window redraws nothing else of the app.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
import streamlit as st

from sim.errors import TrainyardError
from sim.metrics.registry import Metric
from trainyard.results import groups, meaning
from trainyard.results.details import several_types
from trainyard.results.groups import GroupComparison, Grouping
from trainyard.results.headline import GOALS, Headline
from trainyard.results.outcomes import Shown
from trainyard.views import charts, jobs, ledger, over_time
from trainyard.views.charts import lines, visible
from trainyard.views.compared import ComparedRuns
from trainyard.views.ledger import Cells
from ui import figure, job_drawer, state, stored_results, url_params, words, zoom_window
from ui.comparing import answer, exports, figures, job_table, tenants
from ui.comparison import subject, trust
from ui.ledger import component
from ui.url_params import GOAL, HIGH
from ui.what_if import slider

EVERY_S: Final = 1.0
"""How often unfinished rows are told how far they are."""
_ALL_JOBS: Final = "All jobs"
_GROUP, _COLUMNS = "group", "columns"
_TIME, _CURVE = "over_time", "done_within"
"""Keys of the two charts."""
_FILES: Final = Path(__file__).parent
_BASE_NAME: Final = 14
"""Characters of the baseline's title beside a value."""
_TILES: Final = st.components.v2.component(
    "trainyard_tiles",
    html='<div class="ty-tiles" role="group" aria-label="Figures of the highlighted policy"></div>',
    css=(_FILES / "tiles.css").read_text(encoding="utf-8"),
    js=(_FILES / "tiles.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


@dataclass(frozen=True, eq=False)
class Choice:
    """What the user looks at.

    Parameters
    ----------
    goal : str
        What policies are judged by.
    high : str
        Title of the highlighted policy; "" = there is none beside the baseline.
    group : (Grouping, int) or None
        The jobs that figures are of; None = all.
    gone : str
        A policy that the address wants highlighted, and that is not here; "" = none.
    """

    goal: str
    high: str
    group: tuple[Grouping, int] | None
    gone: str = ""


def draw(compared: ComparedRuns) -> None:
    """Draw the page of compared runs; while others run, it is drawn every second."""
    slider.begin()
    live = bool(state.session().live)
    st.fragment(_screen, run_every=EVERY_S if live else None)(compared)


def loading(session: state.Session) -> bool:
    """Draw the page while no policy has finished: everything has its place, and the ledger says how
    far each policy is; tell whether that is so.
    """
    if session.shown is None or not session.live:
        return False
    runs = stored_results.gather(session.shown)
    if runs.places:
        return False
    st.fragment(_empty, run_every=EVERY_S)(session, runs)
    return True


def _empty(session: state.Session, runs: Shown) -> None:
    with st.container(key="compare", gap=8):
        with st.container(horizontal=True, key="answer"), st.container(gap=0, key="sentence"):
            answer.progress(runs)
        _draw_tiles(_empty_tiles())
        with st.container(key="charts"):
            for place, key in zip(st.columns([2.16, 1], gap="small"), (_TIME, _CURVE), strict=True):
                place.container(key=key, height=lines.HEIGHT_PX, border=False)
        titles = runs.titles
        colours = charts.theme.policy_colours(
            titles, titles[runs.baseline], runs.study.slots, dark=figure.dark()
        )
        notes = answer.notes(session, runs)
        rows = [ledger.Row(title, colours[title], note=notes[title]) for title in titles]
        metrics = [ledger.ALL[name] for name in ledger.MAIN]
        with st.container(key="ledger_box", gap=0):
            component.draw(ledger.LedgerView(metrics, rows, "whole run"), "ledger")


def _screen(stored: ComparedRuns) -> None:
    _compared(stored)
    slider.settle()


def _compared(stored: ComparedRuns) -> None:
    chosen = _chosen(stored)
    shown = slider.current(stored, zoom_window.current(stored.report.end_s), chosen.group)
    if shown is None or shown.compared is None:
        compared, group, draft = stored, _group(stored, chosen), False
    else:
        compared, group, draft = shown.compared, shown.group, True
        chosen = replace(chosen, high=_kept_subject(compared, shown.before))
    report = compared.report
    overloaded = report.first_headline.verdict == "overload"
    insisted = answer.insisted(report)
    with st.container(key="compare", gap=8):
        _top(compared, chosen, group, draft=draft)
        if shown is not None and shown.error:
            st.error(words.plain(shown.error), icon=":material/error:")
        # While the slider moves, everything stays in its place.
        if overloaded and not insisted and not draft:
            answer.below(compared, whole=True, listed=False)
            return
        seen = compared if draft else _seen(compared, zoom_window.current(report.end_s))
        table, whole = _table(compared, group), group is None
        cells = ledger.by_place(table)
        if not overloaded:
            about = chosen.high or compared.baseline or report.labels[0]
            if about in compared.earlier:
                _draw_tiles(_empty_tiles())
            else:
                _draw_tiles(_tiles(compared, cells, about, chosen.goal, whole=whole))
        elif draft:
            _draw_tiles(_empty_tiles())
        try:
            of_jobs = _of_group(seen, group)
            _charts(seen, of_jobs, chosen, kept=not draft)
        except TrainyardError as error:
            st.error(words.plain(str(error)), icon=":material/error:")
            return
        _ledger(of_jobs, chosen, table, overloaded=overloaded)
        answer.below(compared, whole=whole)
    if draft:
        with st.container(key="tabs_before"):
            _tabs(_seen(stored, zoom_window.current(stored.report.end_s)), subject(stored.report))
    elif not overloaded:
        _tabs(seen, chosen.high)


def draw_slider(stored: ComparedRuns | None) -> None:
    """Draw the slider of Plan and what it changes: sentence, charts and ledger of the policies that
    follow at once; `stored` = the results of the scenario, if there are some.
    """
    slider.begin()
    live = bool(state.session().live)
    st.fragment(_slider, run_every=EVERY_S if live else None)(stored)


def _slider(stored: ComparedRuns | None) -> None:
    _followed(stored)
    slider.settle()


def _followed(stored: ComparedRuns | None) -> None:
    end_s = math.inf if stored is None else stored.report.end_s
    shown = slider.current(stored, zoom_window.current(end_s), None)
    compared = stored if shown is None else shown.compared
    with st.container(key="compare", gap=8):
        with st.container(width=420, key="choose"):
            slider.draw()
        if shown is not None and shown.error:
            st.error(words.plain(shown.error), icon=":material/error:")
        if compared is None:
            return
        report, high = compared.report, _kept_subject(compared, shown.before if shown else None)
        answer.sentence(compared, _headline_of(compared, high), high, report.facts)
        seen = compared.seen(zoom_window.current(report.end_s))
        chosen = Choice(next(iter(report.headlines)), high, None)
        _charts(seen, seen, chosen, kept=shown is None)
        _ledger(seen, chosen, report.table, overloaded=False)


def _kept_subject(compared: ComparedRuns, before: ComparedRuns | None) -> str:
    """Return the highlighted policy while an answer of the slider is drawn: that of the stored
    results `before`, so that the headline stays with it.
    """
    title = subject((before or compared).report)
    return title if title in compared.runs.titles else subject(compared.report)


def _headline_of(compared: ComparedRuns, high: str, goal: str = "") -> Headline:
    """Return the headline about a policy, or that its result is still to come."""
    found = compared.report.headline_of(high, goal)
    if high not in compared.earlier or not found.subject:
        return found
    when = "is running" if state.session().live else "runs when the slider rests"
    return Headline("nothing", f"{high} {when}.", high)


def _chosen(compared: ComparedRuns) -> Choice:
    """Return what was chosen in this session, or else what the address asks for."""
    report = compared.report
    goals = list(report.headlines)
    goal = st.session_state.get(GOAL) or url_params.asked(GOAL)
    goal = goal if goal in goals else goals[0]
    asked = url_params.asked(HIGH)
    high = subject(report)
    group = st.session_state.get(_GROUP) or url_params.asked(_GROUP)
    known = groupings(compared)
    for name, value in ((GOAL, "" if goal == goals[0] else goal), (_GROUP, group)):
        url_params.put(name, value if name == GOAL or group in known else "")
    gone = asked if asked and asked not in compared.runs.titles else ""
    return Choice(goal, high, known.get(group), gone)


def groupings(compared: ComparedRuns) -> dict[str, tuple[Grouping, int]]:
    """Return the groups of jobs that figures can be of."""
    if not compared.baseline:
        return {}
    return {
        f"{way.title}: {name}": (way, at)
        for way in compared.details.groupings.values()
        for at, name in enumerate(way.names)
    }


def _top(
    compared: ComparedRuns, chosen: Choice, group: GroupComparison | None, *, draft: bool
) -> None:
    """Draw the sentence that answers, and what it is asked about; a `draft` is of a slider that
    moves.
    """
    report = compared.report
    with st.container(horizontal=True, key="answer", vertical_alignment="top", gap=16):
        with st.container(gap=0, key="sentence"):
            headline, facts = _headline(compared, chosen, group)
            unfinished = answer.unfinished(compared.runs) and not draft
            if unfinished:
                answer.progress(compared.runs)
            else:
                answer.sentence(compared, headline, chosen.high, facts)
            if chosen.gone:
                st.caption(words.plain(f"“{chosen.gone}” is not one of these policies."))
        with st.container(gap=None, width="content", key="choose"):
            with st.container(horizontal=True, gap=8, width="content", key="choices"):
                if report.first_headline.verdict != "overload" or draft:
                    _selects(compared, chosen)
            slider.draw()
    if not unfinished and not draft:
        answer.ways(compared, headline)


def _headline(
    compared: ComparedRuns, chosen: Choice, group: GroupComparison | None
) -> tuple[Headline, str]:
    """Return what is said of the chosen group, and which jobs of what was run these are; where
    nothing can be judged, or the goal is one of whole runs, what is said of all jobs.
    """
    facts = compared.report.facts
    whole = _headline_of(compared, chosen.high, chosen.goal)
    if group is None or chosen.group is None:
        return whole, facts
    found = group.headline_of(chosen.high, chosen.goal)
    if found is None or whole.verdict in ("overload", "nothing"):
        return whole, f"All jobs: {facts}"
    way, at = chosen.group
    jobs = words.count(int(group.counts["jobs"].iloc[0]) // compared.runs.study.repeats)
    return found, f"{way.title} {way.names[at]}: {jobs} of {facts}"


def _selects(compared: ComparedRuns, chosen: Choice) -> None:
    goals = list(compared.report.headlines)
    if len(goals) > 1:
        st.selectbox(
            "Judge by",
            goals,
            goals.index(chosen.goal),
            key=GOAL,
            format_func=lambda name: ledger.ALL[name].title,
            label_visibility="collapsed",
            width=216,
            persist_state="session",
        )
    known = groupings(compared)
    if known:
        names = ["", *known]
        asked = url_params.asked(_GROUP)
        st.selectbox(
            "Jobs",
            names,
            names.index(asked) if asked in names else 0,
            key=_GROUP,
            format_func=lambda name: charts.visible(name) or _ALL_JOBS,
            label_visibility="collapsed",
            width=150,
            persist_state="session",
        )


@st.cache_resource(max_entries=64, show_spinner=False)
def _kept(key: tuple[Any, ...], _compared: ComparedRuns) -> ComparedRuns:
    # What is computed for a window is kept with it.
    del key
    return _compared


def _seen(compared: ComparedRuns, chosen: tuple[float, float] | None) -> ComparedRuns:
    seen = compared.seen(chosen)
    return _kept(("seen", seen.key), seen)


def _group(compared: ComparedRuns, chosen: Choice) -> GroupComparison | None:
    """Return the comparison over the chosen group; None = all jobs are compared."""
    if chosen.group is None:
        return None
    way, at = chosen.group
    return _only(compared.report.mark, way.title, at, compared, way)


def _of_group(seen: ComparedRuns, group: GroupComparison | None) -> ComparedRuns:
    """Return the same runs with the completion times of a group."""
    if group is None:
        return seen
    lost = group.counts["jobs"] - group.counts["completed"]
    left_out = {
        str(label): int(jobs) for label, jobs in lost.set_axis(group.counts["label"]).items()
    }
    return replace(
        seen,
        frames={**seen.frames, "cdf": group.curves},
        report=replace(seen.report, left_out=left_out),
    )


def _table(compared: ComparedRuns, group: GroupComparison | None) -> pd.DataFrame:
    """Return the figures of all jobs or of a group."""
    report = compared.report
    if group is None:
        return report.table
    table, counts = group.table, group.counts
    fewest = int(counts["completed"].min() / counts["repeats"].iloc[0])
    # Of few jobs there are no percentages.
    if report.first_headline.withheld or fewest < meaning.FEWEST_IN_GROUP:
        table = table.assign(change=float("nan"), verdict="")
    return table


@st.cache_resource(max_entries=24, show_spinner=False)
def _only(
    mark: str, title: str, at: int, _compared: ComparedRuns, _way: Grouping
) -> GroupComparison:
    del mark, title
    return groups.only(_compared.runs, _way.codes == at, _compared.details.trace)


def _charts(seen: ComparedRuns, of_jobs: ComparedRuns, chosen: Choice, *, kept: bool) -> None:
    """Draw the course of all jobs, and the completion times of those that were chosen; figures are
    `kept` for all sessions unless they are of a moment.
    """
    group = chosen.group and (chosen.group[0].title, chosen.group[1])
    high, mark, marks = chosen.high, seen.key, job_drawer.marks()
    make = figure.kept if kept else figure.made
    with st.container(key="charts"):
        left, right = st.columns([2.16, 1], gap="small")
    views = [
        (
            left,
            _TIME,
            make(
                (_TIME, mark, high, marks, bool(group)),
                lambda: over_time.queue(
                    seen, high, alone=False, marks=marks, note="all jobs" if group else ""
                ),
            ),
        ),
        (
            right,
            _CURVE,
            make((_CURVE, mark, high, group), lambda: jobs.jct_cdf(of_jobs, high, alone=False)),
        ),
    ]
    for place, key, view in views:
        with place:
            figure.draw(view, key, bare=True)


def _ledger(seen: ComparedRuns, chosen: Choice, table: pd.DataFrame, *, overloaded: bool) -> None:
    report, session = seen.report, state.session()
    names = ledger.OVERLOADED if overloaded else ledger.MAIN
    known = ledger.columns(table, "", list(ledger.ALL))
    shown = ledger.columns(table, "" if overloaded else chosen.goal, names)
    with st.container(key="ledger_box", gap=0):
        with st.container(horizontal=True, key="ledger_head"):
            zoom_window.draw("compare", report.end_s, seen.axis.clock)
            if not overloaded:
                shown = _columns(known, shown)
        hollow = [
            title
            for title, spec in zip(seen.runs.titles, seen.runs.study.allocators, strict=True)
            if spec not in session.study.allocators
        ]
        notes = answer.notes(session, seen.runs)
        status = ledger.State(chosen.high, notes, hollow, figure.dark())
        component.draw(
            ledger.of_runs(seen, table, shown, status),
            "ledger",
            component.Charts(_TIME, _CURVE, strip=True),
            on_high=_highlight,
            on_window=lambda ends: zoom_window.choose(ends, report.end_s),
        )


def _highlight(title: str) -> None:
    url_params.put(HIGH, title)


def _columns(known: list[Metric], usual: list[Metric]) -> list[Metric]:
    """Draw the menu of the columns, at first with the usual ones; return those that are shown."""
    names = [metric.name for metric in known]
    first = [metric.name for metric in usual]
    with st.popover("Columns", type="tertiary", key="columns_menu"):
        wanted = st.pills(
            "Columns",
            names,
            selection_mode="multi",
            default=first,
            format_func=lambda name: ledger.ALL[name].title,
            # What was chosen while a policy was missing is not what was chosen with all of them.
            key=f"{_COLUMNS}/{'.'.join(first)}",
            label_visibility="collapsed",
            persist_state="session",
        )
    return [ledger.ALL[name] for name in wanted] or usual


def _draw_tiles(tiles: list[dict[str, Any]]) -> None:
    """Draw tiles; policies are judged by the metric of the one that is pressed."""
    _TILES(key="tiles", data=tiles, on_goal_change=_judge_by)


def _judge_by() -> None:
    if goal := st.session_state["tiles"].goal:
        st.session_state[GOAL] = goal


def _tiles(
    compared: ComparedRuns, cells: Cells, title: str, goal: str, *, whole: bool
) -> list[dict[str, Any]]:
    """Return the figures of a policy, of all jobs (`whole`) or of a group, each beside that of the
    baseline; what is not known has none.
    """
    made = []
    for name in ledger.MAIN:
        metric = ledger.ALL[name]
        if name == "slower":
            made += _shares_tile(compared, cells, title, whole=whole)
            continue
        own = ledger.cell(cells, title, metric, compared.baseline)
        if (title, name) not in cells or own.text == words.MISSING:
            continue
        base = ledger.cell(cells, compared.baseline, metric, "")
        beside = title != compared.baseline and compared.baseline
        made.append(
            {
                "title": metric.title,
                "value": own.text,
                "base": f"{visible(compared.baseline, _BASE_NAME)} {base.text}" if beside else "",
                "lines": [_change(own)] if beside and own.change else [],
                "help": f"{metric.help} {own.help}".strip(),
                "goal": name if name in GOALS else "",
                "chosen": name == goal,
            }
        )
    return made


def _empty_tiles() -> list[dict[str, Any]]:
    """Return tiles without figures, which keep their place while policies run."""
    empty = {"value": "", "base": "", "lines": [], "help": "", "goal": "", "chosen": False}
    return [empty | {"title": ledger.ALL[name].title} for name in ledger.MAIN]


def _change(own: ledger.LedgerCell) -> tuple[str, str]:
    """Return the change in words, and whether it is good."""
    if own.change == "≈":
        return "about the same", ""
    points = " point" if own.change[1:] == "1 pt" else " points"
    size = own.change.lstrip("+−").replace(" pt", points)
    sign = "▾" if own.change.startswith("−") else "▴"
    return f"{sign} {size} {own.verdict}".strip(), own.verdict


def _shares_tile(
    compared: ComparedRuns, cells: Cells, title: str, *, whole: bool
) -> list[dict[str, Any]]:
    """Return the tile of the jobs that get faster and slower; of a group only the latter."""
    tile: dict[str, Any] = {"title": "Jobs faster / slower", "help": "By over 2 %."}
    tile |= {"goal": "", "chosen": False}
    if whole:
        change = compared.report.changes.get(title)
        if change is None:
            return []
        repeats = int(compared.report.counts["repeats"].iloc[0])
        faster, _, slower = groups.told_parts(change, repeats)
        shares = (change.faster, change.same, change.slower)
        sides = [(f"{faster} faster", "better"), (f"{slower} slower", "worse")]
        return [tile | {"parts": [round(one, 4) for one in shares], "lines": sides}]
    own = ledger.cell(cells, title, ledger.ALL["slower"], "")
    if own.text == words.MISSING:
        return []
    rest = 1 - own.value
    sides = [(f"{own.text} slower", "worse")]
    return [tile | {"parts": [0, round(rest, 4), round(own.value, 4)], "lines": sides}]


def _tabs(compared: ComparedRuns, high: str) -> None:
    """Draw what lies behind the answer; nothing of a tab is computed before it is opened."""
    known = {
        "jobs": ("Jobs", lambda: job_table.draw(compared, high)),
        "time": ("Where time goes", lambda: figures.of_time(compared, high)),
    }
    if compared.cluster.gpus:
        known["tenants"] = ("Tenants", lambda: tenants.draw(compared, high))
    if several_types(compared.runs):
        known["types"] = ("GPU types", lambda: figures.of_types(compared))
        known["cost"] = ("Cost", lambda: figures.of_costs(compared))
    known["accuracy"] = ("Accuracy", lambda: _accuracy(compared))
    known["export"] = ("Export", lambda: exports.draw(compared, high))
    asked = url_params.asked(url_params.TAB)
    url_params.tabs(
        {name: (title, _guarded_part(make)) for name, (title, make) in known.items()},
        asked if asked in known else "jobs",
        "compare_tabs",
    )


def _guarded_part(make: Callable[[], None]) -> Callable[[], None]:
    """Return a part whose missing results end this part only."""

    def drawn() -> None:
        try:
            make()
        except TrainyardError as error:
            st.error(words.plain(str(error)), icon=":material/error:")

    return drawn


def _accuracy(compared: ComparedRuns) -> None:
    """Draw how near the runs are to the recording, what policies knew of run times, what computed
    them, and what is assumed.
    """
    trust(compared.report)
    if compared.report.certainty:
        st.caption(words.plain(compared.report.certainty))
    points = compared.details.diagnostics.points
    if points:
        title = st.selectbox("Run-time estimates under", list(points), key="estimates", width=320)
        figure.draw(jobs.predictions(compared, title), "predictions", finding=True)
    st.caption(words.plain(_engines(compared.runs)))
    if compared.report.assumptions:
        st.markdown("**Assumptions about scaling**")
        for sentence in compared.report.assumptions:
            st.markdown(f"- {words.plain(sentence)}")


def _engines(runs: Shown) -> str:
    """Return which engine made the first run of each policy, engine by engine."""
    titles: dict[str, list[str]] = {}
    for at in runs.places:
        engine = words.ENGINES[runs.entries[at][0].engine]
        titles.setdefault(engine, []).append(runs.titles[at])
    parts = [f"by the {engine}: {', '.join(of)}" for engine, of in titles.items()]
    return f"Computed {'; '.join(parts)}."
