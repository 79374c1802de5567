"""Results of a replay: published and simulated figures, curves, setup, and its scenario."""

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
from trainyard.labs.replays.report import ClaimRow, ReplayReport, band_text, tally
from trainyard.labs.replays.types import Replay, ReplayAxis, ReplayMeasure, source_text
from trainyard.views import replays
from trainyard.views.markup import html_scroll_table
from ui import figure, state, words

_CHART_PX: Final = 420
_NEAR: Final = 1.5
_VERDICTS: Final = {
    "in": ("better", "✓ in the range"),
    "out": ("worse", "✗ outside the range"),
    "undecided": ("", "? undecided"),
    "no band": ("", "– no range"),
    "not yet": ("", "… not yet"),
}
"""Verdict of a row -> CSS class and text of its cell; color is never the only sign."""
_CAPTION: Final = (
    "Below each measure: certainty and run size. Verdict: the interval is wholly in or outside the"
    " expected range, else undecided. Outside is a finding."
)
_BOUND_TEXTS: Final = {
    "fluid": "Fluid: jobs get the policy's shares of time at every instant, as if GPUs could be"
    " divided, without rounds.",
    "capacity": "Capacity: no policy can be faster.",
}
"""Computation of a bound, one of `trainyard.labs.replays.bounds.BOUNDS` -> its explanation."""
Pair = tuple[ClaimRow, str]
"""A claim with its label."""


def draw_claim(replay: Replay) -> None:
    """Draw the published claim and its paper."""
    paper = replay.paper
    st.subheader(words.plain(replay.title), anchor=False)
    st.markdown(f"**Published:** {words.plain(replay.claim)}")
    st.caption(
        f"{words.plain(paper.authors)}: [{words.plain(paper.title)}]({paper.link})."
        f" {words.plain(paper.venue)}, {paper.year}."
    )


def draw_interpretation(replay: Replay) -> None:
    """Draw what the paper specifies, and which choices the replay makes itself, folded."""
    with st.expander("What is known of the paper; method and limits (our reading)"):
        grid = st.grid(2, min_column_width=300)
        with grid.cell():
            st.markdown(f"**Known of the paper.** {words.plain(replay.known)}")
        with grid.cell():
            st.markdown(f"**Method and limits.** {words.plain(replay.reading)}")


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """Pooled result of a replay.

    Parameters
    ----------
    report : ReplayReport
        Pooled claims and curves.
    arms : DataFrame
        Figures per policy, from `trainyard.labs.replays.curves.by_arm`.
    """

    report: ReplayReport
    arms: pd.DataFrame


def draw_results(replay: Replay, result: ReplayResult, seeds: int) -> None:
    """Draw the tables of claims, notes, chart, interpretation and curves of a replay."""
    report = result.report
    claimed, unclaimed = _split_claims(replay, report.rows)
    if verdicts := tally(report.rows):
        st.markdown(f"**{verdicts}**")
    st.html(_claims_table(claimed or unclaimed))
    if report.sentences:
        st.markdown(
            "\n".join(
                [
                    "**Notes on the policies**",
                    "",
                    *(f"- {words.plain(sentence)}" for sentence in report.sentences),
                ]
            )
        )
    if claimed and unclaimed:
        with st.expander(f"Also measured, without a published figure ({len(unclaimed)})"):
            st.html(
                _claims_table(
                    unclaimed,
                    "Below each measure: its certainty and source.",
                    with_bands=False,
                )
            )
    st.caption(
        f"Equal jobs for all policies; {words.plural(seeds, 'seed')}, pooled as ratios of means."
        f" Intervals: 95 % of resampled seeds{'' if seeds >= 3 else ', from 3 seeds'}."
        f" {report.cpu_s:,.0f} s of CPU time."
    )
    if (view := replays.published_view(claimed)) is not None:
        figure.draw(view)
    draw_interpretation(replay)
    st.markdown(
        "**Where the claim holds, and where it reverses.**"
        f" {words.plain(curves.explanation(replay, report))}"
    )
    for axis in replay.axes:
        if not report.curves.empty and (report.curves["axis"] == axis.name).any():
            _draw_axis(replay, result, axis)


def draw_results_so_far(replay: Replay, rows: Sequence[ClaimRow], done: int, total: int) -> None:
    """Draw the table of claims of a live replay, over the runs done so far."""
    claimed, unclaimed = _split_claims(replay, rows)
    st.html(
        _claims_table(
            claimed or unclaimed,
            f"So far {done:,} of {words.plural(total, 'run')}: the figures still change.",
        )
    )


def _split_claims(replay: Replay, rows: Sequence[ClaimRow]) -> tuple[list[Pair], list[Pair]]:
    """Return (row, label) pairs in two lists: claims with and without a published figure.

    A published text or an expected band counts as a figure.
    """
    pairs = [(row, replay.label(row.claim)) for row in rows]
    claimed = [
        (row, label)
        for row, label in pairs
        if row.claim.published_text or row.claim.published is not None or row.claim.band is not None
    ]
    return claimed, [pair for pair in pairs if pair not in claimed]


def draw_speedups(replay: Replay) -> None:
    """Draw an expander with speed-up curves of job classes; nothing for most replays."""
    view = replays.speedups(replay)
    if view is None:
        return
    with st.expander(
        "Speed-up of each job class",
        key=f"why/{replay.name}",
        on_change="rerun",
    ) as box:
        if box.open:
            figure.draw(view)


def draw_setup(replay: Replay, seeds: int) -> None:
    """Draw an expander with command, policies, bounds, axes and scenario of a replay."""
    with st.expander("Setup"):
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
                "Settings": [" ".join(arm.set) for arm in replay.arms],
            },
            hide_index=True,
        )
        for bound in replay.bounds:
            st.caption(
                f"{words.plain(bound.title)}: computed, not simulated, from the scenario of"
                f" {words.plain(replay.arm(bound.of).title)}. {_BOUND_TEXTS[bound.by]}"
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


def draw_open_button(replay: Replay) -> None:
    """Draw the button that makes the replay the scenario and opens Compare, if it can."""
    study = curves.study(replay)
    if study is None:
        return
    if st.button(
        "Open this comparison",
        key="open_replay",
        icon=":material/open_in_new:",
        help="Replaces your scenario by its jobs, cluster and policies.",
    ):
        state.session().replace(study)
        st.switch_page("pages/compare.py", query_params=state.url_parameters())


def _claims_table(
    pairs: Sequence[Pair], caption: str = _CAPTION, *, with_bands: bool = True
) -> str:
    """Return the HTML table of claims; without bands it has no published figures and verdicts."""
    columns = (0, 1, 2, 3) if with_bands else (0, 2)
    head = "".join(
        f'<th scope="col">{("Measure", "Published", "Simulated", "Verdict")[column]}</th>'
        for column in columns
    )
    body = "".join(
        f"<tr>{''.join(cells[column] for column in columns)}</tr>"
        for cells in (_claim_cells(row, label) for row, label in pairs)
    )
    return html_scroll_table(f"<tr>{head}</tr>", body, dark=figure.is_dark(), caption=caption)


def _claim_cells(row: ClaimRow, label: str) -> list[str]:
    """Return the HTML cells of one claim: measure, published, simulated, verdict."""
    claim, estimate, measure = row.claim, row.pooled, row.claim.figure
    css_class, verdict = _VERDICTS.get(row.verdict, ("", row.verdict))
    interval = (
        f"{replays.number(measure, estimate.low)} to {replays.number(measure, estimate.high)}"
        if math.isfinite(estimate.low)
        else "no interval"
    )
    band = band_text(measure, claim.band, lambda value: replays.number(measure, value))
    published = (
        "no figure published"
        if claim.published is None
        else replays.number(measure, claim.published)
    )
    if claim.published_text:
        figure_note = "" if claim.published is None else f'<span class="diff">{published}</span>'
        published = f"{html.escape(claim.published_text)}{figure_note}"
    place = label.removeprefix(claim.measure.label).lstrip(", ")
    basis = " · ".join(
        [
            *([place] if place else []),
            source_text(claim.certainty),
            words.plural(estimate.seeds, "seed"),
            f"{row.cpu_s:,.1f} s CPU",
        ]
    )
    simulated = (
        f"<strong>{replays.number(measure, estimate.value)}</strong>"
        f"{_percent_text(measure, estimate.value)}"
    )
    origin = _keep_together(html.escape(source_text(claim.band_from)))
    source = f'<span class="unit">expected range: {origin}</span>' if band else ""
    if band and claim.mark:
        source += f'<br><span class="unit">not counted: {html.escape(claim.mark)}</span>'
    return [
        (
            f'<th scope="row" class="long">{html.escape(claim.measure.label)}<br><span'
            f' class="unit">{html.escape(basis)}</span></th>'
        ),
        f'<td class="long">{published}</td>',
        (
            f'<td class="long">{_keep_together(simulated)}<span'
            f' class="diff">{_keep_together(interval)}</span></td>'
        ),
        (
            f'<td class="long"><span class="{css_class}">{verdict}</span><span'
            f' class="diff">{_keep_together(band)}</span>{source}</td>'
        ),
    ]


def _keep_together(text: str) -> str:
    """Return a text with no-break spaces after × and ± and before %."""
    return text.replace("× ", "×\u00a0").replace("± ", "±\u00a0").replace(" %", "\u00a0%")


def _percent_text(measure: ReplayMeasure, value: float) -> str:
    """Return a ratio below 1.5 as a change in parentheses, " (−20 %)"; else ""."""
    return f" ({words.change(value - 1)})" if measure.kind == "ratio" and 0 < value < _NEAR else ""


@st.fragment
def _draw_axis(replay: Replay, result: ReplayResult, axis: ReplayAxis) -> None:
    """Draw a slider over an axis, a table of policies at its value, and the curves."""
    all_curves = result.report.curves
    measured = all_curves[all_curves["axis"] == axis.name]
    values = sorted(float(value) for value in measured["value"].unique())
    st.markdown(f"#### {words.plain(axis.heading)}")
    start = next((value for value in axis.claimed if value in values), values[len(values) // 2])
    key = f"at/{replay.name}/{axis.name}"
    value = values[0]
    if len(values) > 1:
        value = st.select_slider(
            axis.label,
            values,
            start,
            key=key,
            format_func=lambda value: f"{value:g}",
            label_visibility="collapsed",
        )
    _draw_policy_table(replay, result.arms, axis, value)
    groups = _chart_groups(axis)
    grid = st.grid(min(len(groups), 2), min_column_width=_CHART_PX)
    for group in groups:
        with grid.cell():
            figure.draw(replays.measure_curve(replay, measured, axis, group, value))
    with st.expander("Data", key=f"data/{replay.name}/{axis.name}", on_change="rerun") as box:
        if box.open:
            st.dataframe(
                measured.drop(columns="axis").rename(columns={"value": axis.label}), hide_index=True
            )


def _chart_groups(axis: ReplayAxis) -> list[list[ReplayMeasure]]:
    """Return the measures of an axis in lists of equal metric and kind, one per chart."""
    kinds = dict.fromkeys((measure.metric, measure.kind) for measure in axis.measures)
    return [
        [measure for measure in axis.measures if (measure.metric, measure.kind) == kind]
        for kind in kinds
    ]


def _draw_policy_table(
    replay: Replay, all_arms: pd.DataFrame, axis: ReplayAxis, value: float
) -> None:
    """Draw a table of mean figures of every policy at one value of an axis."""
    measured = all_arms[(all_arms["axis"] == axis.name) & (all_arms["value"] == value)]
    if measured.empty:
        return
    metrics = list(dict.fromkeys(map(str, measured["metric"])))
    head = "".join(f'<th scope="col">{html.escape(curves.title(name))}</th>' for name in metrics)
    body = ""
    for arm in (*replay.arms, *replay.bounds):
        arm_rows = measured[measured["arm"] == arm.title]
        if not arm_rows.empty:
            means = dict(zip(arm_rows["metric"].tolist(), arm_rows["mean"].tolist(), strict=True))
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
    caption = f"{axis.place(value)}: means over {seeds}."
    head = f'<tr><th scope="col">Policy</th>{head}</tr>'
    st.html(html_scroll_table(head, body, dark=figure.is_dark(), caption=caption))
