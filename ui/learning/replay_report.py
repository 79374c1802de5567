"""What is shown of one replay: the claim, published beside simulated, where it turns around, why,
and exactly what was run.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd
import streamlit as st

from trainyard.labs.replays import curves
from trainyard.labs.replays.report import ClaimRow, ReplayReport, expected, tally
from trainyard.labs.replays.types import Replay, ReplayAxis, ReplayMeasure
from trainyard.views import replays
from trainyard.views.markup import framed
from ui import figure, state, words

_CHART_PX: Final = 420
_NEAR: Final = 1.5
_VERDICTS: Final = {
    "in": ("better", "✓ in the band"),
    "out": ("worse", "✗ outside the band"),
    "undecided": ("", "? undecided"),
    "no band": ("", "– no band"),
    "not yet": ("", "… not yet"),
}
"""Verdict of a row -> class of its cell, and the words, so that colour is never the only sign."""
_RESTS: Final = (
    "Below each measure: how well the claim is known, and what the figure rests on. A verdict is"
    " taken from the interval: in or outside the band as a whole, else undecided. Outside the band"
    " is a finding, not an error."
)
Pair = tuple[ClaimRow, str]
"""A claim and its label."""


def claim(replay: Replay) -> None:
    """Draw what was published, and where."""
    paper = replay.paper
    st.subheader(words.plain(replay.title), anchor=False)
    st.markdown(f"**Published:** {words.plain(replay.claim)}")
    st.caption(
        f"{words.plain(paper.authors)}: [{words.plain(paper.title)}]({paper.link})."
        f" {words.plain(paper.venue)}, {paper.year}."
    )


def reading(replay: Replay) -> None:
    """Draw what is known of the paper, and where we had to choose."""
    grid = st.grid(2, min_column_width=300)
    with grid.cell():
        st.markdown(f"**What is known of the paper.** {words.plain(replay.known)}")
    with grid.cell():
        st.markdown(f"**Our reading.** {words.plain(replay.reading)}")


@dataclass(frozen=True, eq=False)
class Result:
    """What came out of a replay.

    Parameters
    ----------
    report : ReplayReport
        Claims and curves, pooled.
    arms : DataFrame
        Each policy's own figures, from `trainyard.labs.replays.curves.by_arm`.
    """

    report: ReplayReport
    arms: pd.DataFrame


def results(replay: Replay, result: Result, seeds: int) -> None:
    """Draw the figures: published beside simulated, then the curves."""
    report = result.report
    claimed, others = _parted(replay, report.rows)
    st.html(_table(claimed or others))
    if verdicts := tally(report.rows):
        st.markdown(f"**{verdicts}**")
    if report.sentences:
        st.markdown(
            "\n".join(
                [
                    "**Remarks of the policies**",
                    "",
                    *(f"- {words.plain(sentence)}" for sentence in report.sentences),
                ]
            )
        )
    if claimed and others:
        with st.expander(f"Also measured, without a published figure ({len(others)})"):
            st.html(
                _table(
                    others,
                    "Below each measure: how well the figure is known, and its source.",
                    held=False,
                )
            )
    st.caption(
        f"Policies meet the same jobs; {words.plural(seeds, 'seed')}, pooled: ratios of means over"
        " seeds. The interval holds 95 % of resamples of the"
        f" seeds{'' if seeds >= 3 else ', from 3 seeds on'}. {report.cpu_s:,.0f} s of processor"
        " time in all."
    )
    if (view := replays.published(claimed)) is not None:
        figure.draw(view)
    reading(replay)
    st.markdown(
        "**Where the claim holds, and where it reverses.**"
        f" {words.plain(curves.explanation(replay, report))}"
    )
    for axis in replay.axes:
        if not report.curves.empty and (report.curves["axis"] == axis.name).any():
            _axis(replay, result, axis)


def so_far(replay: Replay, rows: Sequence[ClaimRow], done: int, of: int) -> None:
    """Draw the figures of a run under way: the same table as at its end, on the seeds that are
    there.
    """
    claimed, others = _parted(replay, rows)
    st.html(
        _table(
            claimed or others,
            f"So far {done:,} of {words.plural(of, 'run')}: the figures still change.",
        )
    )


def _parted(replay: Replay, rows: Sequence[ClaimRow]) -> tuple[list[Pair], list[Pair]]:
    """Return the rows with their labels: those with something to hold them against, and the
    others.
    """
    pairs = [(row, replay.label(row.claim)) for row in rows]
    claimed = [
        (row, label)
        for row, label in pairs
        if row.claim.published_text or row.claim.published is not None or row.claim.band is not None
    ]
    return claimed, [pair for pair in pairs if pair not in claimed]


def why(replay: Replay) -> None:
    """Draw the speed-up curves behind a replay whose jobs choose their batch sizes; nothing for
    others.
    """
    view = replays.speedups(replay)
    if view is None:
        return
    with st.expander(
        "Why: how each class of jobs speeds up",
        icon=":material/help:",
        key=f"why/{replay.name}",
        on_change="rerun",
    ) as box:
        if box.open:
            figure.draw(view)


def exactly(replay: Replay, seeds: int) -> None:
    """Draw what is run, and the command that repeats it."""
    with st.expander("Exactly what is run", icon=":material/terminal:"):
        st.code(
            f"python -m trainyard replay {replay.name} --seeds {seeds} --curves",
            language="bash",
            wrap_lines=True,
        )
        if replay.budget:
            st.markdown(words.plain(replay.budget))
        st.dataframe(
            {
                "Policy": [arm.title for arm in replay.arms],
                "What it changes": [" ".join(arm.set) for arm in replay.arms],
            },
            hide_index=True,
        )
        for bound in replay.bounds:
            st.caption(
                f"{words.plain(bound.title)}: computed, not simulated ({bound.by}), from the"
                f" scenario of {words.plain(replay.arm(bound.of).title)}."
            )
        for axis in replay.axes:
            st.caption(
                f"{words.plain(axis.heading)}: {', '.join(f'{value:g}' for value in axis.values)};"
                f" {words.plural(axis.seeds, 'seed')} at most."
            )
        scenario = {
            key: value for key, value in replay.base.to_json().items() if key != "allocator"
        }
        st.code(json.dumps(scenario, indent=2, ensure_ascii=False), language="json", height=260)


def open_it(replay: Replay) -> None:
    """Draw the button that makes the replay the scenario, so that it can be played with."""
    study = curves.study(replay)
    if study is None:
        return
    if st.button(
        "Open this comparison",
        key="open_replay",
        icon=":material/open_in_new:",
        help="Its jobs, machines and policies become your scenario.",
    ):
        state.session().replace(study)
        st.switch_page("pages/compare.py", query_params=state.url_parameters())


def _table(pairs: Sequence[Pair], caption: str = _RESTS, *, held: bool = True) -> str:
    """Return the table of claims; without what they are held against where there is nothing, so
    that no column is empty.
    """
    columns = (0, 1, 2, 3) if held else (0, 2)
    head = "".join(
        f'<th scope="col">{("Measure", "Published", "Simulated", "Verdict")[at]}</th>'
        for at in columns
    )
    body = "".join(
        f"<tr>{''.join(cells[at] for at in columns)}</tr>"
        for cells in (_cells(row, label) for row, label in pairs)
    )
    return framed(f"<tr>{head}</tr>", body, dark=figure.is_dark(), caption=caption)


def _cells(row: ClaimRow, label: str) -> list[str]:
    claim, found, measure = row.claim, row.found, row.claim.figure
    tone, verdict = _VERDICTS.get(row.verdict, ("", row.verdict))
    interval = (
        f"{replays.number(measure, found.low)} to {replays.number(measure, found.high)}"
        if math.isfinite(found.low)
        else "no interval"
    )
    band = expected(measure, claim.band, lambda value: replays.number(measure, value))
    published = (
        "no figure published"
        if claim.published is None
        else replays.number(measure, claim.published)
    )
    if claim.published_text:
        held = "" if claim.published is None else f'<span class="diff">{published}</span>'
        published = f"{html.escape(claim.published_text)}{held}"
    where = label.removeprefix(claim.measure.label).lstrip(", ")
    rests = " · ".join(
        [
            *([where] if where else []),
            claim.certainty,
            words.plural(found.seeds, "seed"),
            f"{row.cpu_s:,.1f} s CPU",
        ]
    )
    simulated = (
        f"<strong>{replays.number(measure, found.value)}</strong>{_percent(measure, found.value)}"
    )
    source = (
        f'<span class="unit">band: {_unbroken(html.escape(claim.band_from))}</span>' if band else ""
    )
    if band and claim.mark:
        source += f'<span class="unit">not counted: {html.escape(claim.mark)}</span>'
    return [
        (
            f'<th scope="row" class="long">{html.escape(claim.measure.label)}<br><span'
            f' class="unit">{html.escape(rests)}</span></th>'
        ),
        f'<td class="long">{published}</td>',
        (
            f'<td class="long">{_unbroken(simulated)}<span'
            f' class="diff">{_unbroken(interval)}</span></td>'
        ),
        (
            f'<td class="long"><span class="{tone}">{verdict}</span><span'
            f' class="diff">{_unbroken(band)}</span>{source}</td>'
        ),
    ]


def _unbroken(text: str) -> str:
    """Return a text whose figures stay with their signs when a narrow window breaks it."""
    return text.replace("× ", "×\u00a0").replace("± ", "±\u00a0").replace(" %", "\u00a0%")


def _percent(measure: ReplayMeasure, value: float) -> str:
    """Return a ratio that is not far from 1 as papers write it, too."""
    return f" ({words.change(value - 1)})" if measure.kind == "ratio" and 0 < value < _NEAR else ""


@st.fragment
def _axis(replay: Replay, result: Result, axis: ReplayAxis) -> None:
    """Draw the measures over an axis with a slider, and what every policy gives at the chosen
    value.
    """
    every = result.report.curves
    measured = every[every["axis"] == axis.name]
    values = sorted(float(value) for value in measured["value"].unique())
    st.markdown(f"#### {words.plain(axis.heading)}")
    start = next((value for value in axis.claimed if value in values), values[len(values) // 2])
    key = f"at/{replay.name}/{axis.name}"
    at = values[0]
    if len(values) > 1:
        at = st.select_slider(
            axis.label,
            values,
            start,
            key=key,
            format_func=lambda value: f"{value:g}",
            label_visibility="collapsed",
        )
    _arms(replay, result.arms, axis, at)
    groups = _groups(axis)
    grid = st.grid(min(len(groups), 2), min_column_width=_CHART_PX)
    for group in groups:
        with grid.cell():
            figure.draw(replays.measure_curve(replay, measured, axis, group, at))
    with st.expander("Data", key=f"data/{replay.name}/{axis.name}", on_change="rerun") as box:
        if box.open:
            st.dataframe(
                measured.drop(columns="axis").rename(columns={"value": axis.label}), hide_index=True
            )


def _groups(axis: ReplayAxis) -> list[list[ReplayMeasure]]:
    """Return the measures that go into one chart: those of the same number and kind."""
    kinds = dict.fromkeys((measure.metric, measure.kind) for measure in axis.measures)
    return [
        [measure for measure in axis.measures if (measure.metric, measure.kind) == kind]
        for kind in kinds
    ]


def _arms(replay: Replay, every: pd.DataFrame, axis: ReplayAxis, at: float) -> None:
    """Draw the figures of every policy at one value of the axis; the claims may rest on runs of the
    base scenario, the axis on its own.
    """
    measured = every[(every["axis"] == axis.name) & (every["value"] == at)]
    if measured.empty:
        return
    metrics = list(dict.fromkeys(map(str, measured["metric"])))
    head = "".join(f'<th scope="col">{html.escape(curves.title(name))}</th>' for name in metrics)
    body = ""
    for arm in (*replay.arms, *replay.bounds):
        own = measured[measured["arm"] == arm.title]
        if not own.empty:
            means = dict(zip(own["metric"].tolist(), own["mean"].tolist(), strict=True))
            cells = "".join(
                f"<td>{replays.metric_text(name, means[name])}</td>" for name in metrics
            )
            body += f'<tr><th scope="row" class="long">{html.escape(arm.title)}</th>{cells}</tr>'
    counts = sorted(set(measured["seeds"].tolist()))
    seeds = (
        words.plural(counts[0], "seed")
        if len(counts) == 1
        else f"{counts[0]} to {counts[-1]} seeds"
    )
    caption = f"{axis.place(at)}: means over {seeds}."
    head = f'<tr><th scope="col">Policy</th>{head}</tr>'
    st.html(framed(head, body, dark=figure.is_dark(), caption=caption))
