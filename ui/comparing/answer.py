"""The answer of the Compare page in words: the sentence on top with what limits it and the ways
out, what stands in the row of a policy without a result, and what must be known of the ledger.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Final

import streamlit as st

from trainyard.results import ways_out
from trainyard.results.outcomes import Shown
from trainyard.runs.queue import Submission
from trainyard.views import charts
from trainyard.views.comparison import ComparisonView
from ui import figure, state, words
from ui.comparing import actions

_ICONS: Final = {
    "lower_load": ":material/trending_down:",
    "raise_load": ":material/trending_up:",
    "fewer_nodes": ":material/remove:",
    "enough_gpus": ":material/dns:",
    "fit_cluster": ":material/fit_screen:",
    "leave_out": ":material/filter_alt:",
    "name_speeds": ":material/speed:",
    "compare_anyway": ":material/visibility:",
    "repeats": ":material/casino:",
    "add_references": ":material/add:",
    "change_baseline": ":material/swap_horiz:",
    "check_past": ":material/history:",
}
_MOST_DETAILS: Final = 5000
"""Characters."""
_NAME: Final = 40


def draw_sentence(view: ComparisonView) -> None:
    """Draw the headline with the highlighted policy in its color, and what was run."""
    high = view.choice.high
    text = html.escape(charts.visible(view.headline.text, 400))
    name = html.escape(charts.visible(high, _NAME))
    if high:
        color = view.runs.colours(figure.is_dark())[high]
        text = text.replace(name, f'<span style="color: {color}">{name}</span>', 1)
    below = html.escape(charts.visible(view.facts, 400))
    st.html(f'<h1 class="ty-answer">{text}</h1><p class="ty-facts">{below}</p>')


def is_unfinished(runs: Shown) -> bool:
    """Return whether policies still run, so that nothing is judged yet."""
    return bool(state.session().live_jobs) and len(runs.places) < len(runs.titles)


def draw_progress(runs: Shown) -> None:
    """Draw how many policies are done, in place of the headline."""
    st.html(
        f'<h1 class="ty-answer">{len(runs.places)} of {words.plural(len(runs.titles), "policy")}'
        ' done</h1><p class="ty-facts">Each policy appears as soon as it has finished.</p>'
    )


def draw_ways(view: ComparisonView) -> None:
    """Draw the ways out of what limits the headline as buttons."""
    insisted = actions.is_compared_anyway(view.runs.report.mark)
    if view.headline.verdict == "overload" and insisted:
        st.html(
            '<p class="ty-amber">Compared all the same: times to finish and waits measure how long'
            " jobs kept coming, not how good a policy is.</p>"
        )
    offered = [
        way
        for way in view.headline.advice
        if way.name in _ICONS and not (way == ways_out.COMPARE_ANYWAY and insisted)
    ]
    if not offered:
        return
    with st.container(horizontal=True, gap=8, key="ways"):
        for way in offered:
            if st.button(words.plain(way.text), key=f"way/{way.name}", icon=_ICONS[way.name]):
                actions.apply_suggestion(way)


def row_notes(runs: Shown, barred: Mapping[str, str]) -> dict[str, str]:
    """Return how far each policy without a result is; `barred` = why a policy cannot run."""
    session = state.session()
    made = {}
    for at, title in enumerate(runs.titles):
        if runs.complete(at):
            continue
        own = [session.jobs[key] for key in runs.keys[at] if key in session.jobs]
        made[title] = barred.get(title) or _state(title, own, session)
    return made


def _state(title: str, own: list[Submission], session: state.Session) -> str:
    """Return how far the runs of one policy are, or how they ended."""
    failed = next((job for job in own if job.state == "failed"), None)
    if failed is not None:
        report = failed.progress
        now_s = failed.details.get("now_s", report.now_s if report is not None else None)
        when = (
            f" at {words.instant(now_s, state.epoch())}" if isinstance(now_s, int | float) else ""
        )
        return f"{title} stopped{when}: {failed.error}"
    if any(job.state == "cancelled" for job in own):
        reached_s = [session.stopped_s[job.key] for job in own if job.key in session.stopped_s]
        return (
            f"cancelled at {words.instant(max(reached_s), state.epoch())}"
            if reached_s
            else "cancelled"
        )
    live = [job for job in own if not job.settled]
    if not live:
        # Over, and about to be drawn; or never begun.
        return "100 %" if own else "not run"
    if all(job.state == "waiting" for job in live):
        return "in the queue"
    done = len(own) - len(live) + sum(min(max(job.share, 0.0), 1.0) for job in live)
    return f"{100 * done / len(own):.0f} %"


def draw_below(view: ComparisonView, *, listed: bool = True) -> None:
    """Draw the caption under the ledger and the runs that failed.

    Parameters
    ----------
    view : ComparisonView
        What the page shows.
    listed : bool
        Whether the ledger is drawn, with a row for policies that cannot run.
    """
    runs, skipped = view.runs.runs, view.runs.report.skipped
    again = state.session().live_jobs and len(runs.places) == len(runs.titles)
    sentences = ["Running again: the stored result is shown."] if again else []
    sentences += [view.notes] if view.notes else []
    sentences += [] if listed else [f"{title}: {why}" for title, why in skipped.items()]
    if text := " ".join(sentences):
        st.html(f'<p class="ty-facts">{html.escape(charts.visible(text, 900))}</p>')
    _draw_failures(runs)


def _draw_failures(runs: Shown) -> None:
    """Draw the details of the policies that stopped, and what the others can do."""
    session = state.session()
    failed = {
        title: job
        for at, title in enumerate(runs.titles)
        for key in runs.keys[at]
        if (job := session.jobs.get(key)) is not None and job.state == "failed"
    }
    if not failed:
        return
    with st.container(horizontal=True, gap=8, key="failures"):
        for title, job in failed.items():
            if job.details:
                with st.popover(words.plain(f"Details: {title}"), type="tertiary"):
                    told = json.dumps(job.details, indent=2, default=str)[:_MOST_DETAILS]
                    st.code(told, language="json")
            others = [spec for spec in session.study.allocators if spec != job.scenario.allocator]
            if 0 < len(others) < len(session.study.allocators) and st.button(
                words.plain(f"Run without {title}"), key=f"others/{job.key}", type="tertiary"
            ):
                actions.run_without(job.scenario.allocator)
