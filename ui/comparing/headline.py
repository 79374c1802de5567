"""The headline of Compare, its suggestions, notes of unfinished policies, and failures."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Final

import streamlit as st

from trainyard.results import suggestions
from trainyard.results.outcomes import StudyResults
from trainyard.views import charts, ledger
from trainyard.views.before_after import BeforeAfter
from trainyard.views.comparison import ComparisonView
from ui import figure, progress, state, words
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
_MAX_DETAILS: Final = 5000
"""Characters."""
_NAME: Final = 40


def draw_headline(view: ComparisonView, *, is_unfinished: bool = False) -> None:
    """Draw the headline with the highlighted policy in its color, and the facts below it.

    While policies are unfinished, it is of those that are done, and the facts name the others.
    """
    high, text, facts = view.choice.high, view.headline.text, view.facts
    if is_unfinished:
        text, facts = _describe_so_far(view)
    text = html.escape(charts.visible(text, 400))
    name = html.escape(charts.visible(high, _NAME))
    if high:
        color = view.runs.colours(figure.is_dark())[high]
        text = text.replace(name, f'<span style="color: {color}">{name}</span>', 1)
    below = html.escape(charts.visible(facts, 400))
    st.html(f'<h1 class="ty-answer">{text}</h1><p class="ty-facts">{below}</p>')


def _describe_so_far(view: ComparisonView) -> tuple[str, str]:
    """Return the first part of the headline of the policies that are done, and which are not."""
    runs, skipped = view.runs.runs, view.runs.report.skipped
    first = view.headline.text.partition(";")[0].removesuffix(".")
    first = f"with {first.removeprefix('With ')}" if first.startswith("With ") else first
    titles = [title for title in runs.titles if title not in skipped]
    done = len([at for at in runs.places if runs.titles[at] in titles])
    others = [title for at, title in enumerate(runs.titles) if at not in runs.places]
    names = ", ".join(charts.visible(title, _NAME) for title in others if title in titles)
    facts = f"{done} of {words.plural(len(titles), 'policy')} done. Without a result yet: {names}."
    return f"So far: {first}.", facts


def draw_change(change: BeforeAfter, *, is_draft: bool) -> None:
    """Draw the effect of the last change, and buttons to undo, keep or accept it.

    A draft of the slider has no buttons.
    """
    session = state.session()
    figures = ", ".join(
        f"{html.escape(charts.visible(title, _NAME))} {was} → <b>{now}</b>"
        for title, was, now in change.figures
    )
    scenarios, dotted = ("A → B, ", "A") if session.shows_both else ("", "before")
    text = f"<b>{scenarios}{html.escape(charts.visible(change.changes, 120))}:</b> {figures}."
    with st.container(horizontal=True, key="change", vertical_alignment="center", gap=8):
        st.html(f"<p>{text} {change.cost} <small>dotted: {dotted}</small></p>")
        if is_draft:
            return
        if st.button("Swap A and B" if session.shows_both else "Undo", key="change_undo"):
            session.show_before()
            if not session.shows_both:
                session.forget_before()
            st.rerun()
        if not session.shows_both:
            st.button("Keep as scenario B", key="change_keep", on_click=_on_keep)
        label = "Close A" if session.shows_both else "✕"
        st.button(
            label,
            key="change_close",
            type="tertiary",
            on_click=session.forget_before,
            help="Accept the change: only the present results are shown.",
        )


def _on_keep() -> None:
    """Show the figures of both scenarios in the ledger."""
    state.session().shows_both = True


def is_unfinished(runs: StudyResults) -> bool:
    """Return True while runs are live and policies lack results: no headline yet."""
    return bool(state.session().live_jobs) and len(runs.places) < len(runs.titles)


def draw_progress(runs: StudyResults) -> None:
    """Draw how many policies have finished, in place of the headline."""
    st.html(
        f'<h1 class="ty-answer">{len(runs.places)} of {words.plural(len(runs.titles), "policy")}'
        ' done</h1><p class="ty-facts">Each policy appears when it has finished.</p>'
    )


def draw_suggestions(view: ComparisonView) -> None:
    """Draw the headline's suggestions as buttons; a click applies one."""
    is_compared_anyway = actions.is_compared_anyway(view.runs.report.mark)
    if view.headline.verdict == "overload" and is_compared_anyway:
        st.html(
            '<p class="ty-amber">Compared despite overload: completion times and waits measure how'
            " long jobs kept arriving, not the policy.</p>"
        )
    offered = [
        suggestion
        for suggestion in view.headline.advice
        if suggestion.name in _ICONS
        and not (suggestion == suggestions.COMPARE_ANYWAY and is_compared_anyway)
    ]
    if not offered:
        return
    with st.container(horizontal=True, gap=8, key="ways"):
        for suggestion in offered:
            if st.button(
                words.plain(suggestion.text),
                key=f"way/{suggestion.name}",
                icon=_ICONS[suggestion.name],
                help=_help_text(suggestion),
            ):
                actions.apply_suggestion(suggestion)


def _help_text(suggestion: suggestions.Suggestion) -> str | None:
    """Return the help of a suggestion's button; None without one."""
    if suggestion.name not in ("lower_load", "raise_load"):
        return None
    changes = {
        "pace": "jobs are submitted faster (above 1) or more slowly (below 1) than in the trace",
        "jobs": "jobs of the trace are copied (above 1) or left out (below 1)",
    }[state.session().study.base.trace.load_by]
    return f"Sets the load multiplier to {suggestion.value:g}: {changes}."


def row_state(runs: StudyResults, reasons: Mapping[str, str]) -> ledger.State:
    """Return the progress of policies without a result, or the reason in `reasons`."""
    session = state.session()
    notes, shares = {}, {}
    for index, title in enumerate(runs.titles):
        if runs.complete(index):
            continue
        jobs = [session.jobs[key] for key in runs.keys[index] if key in session.jobs]
        notes[title], share = progress.describe_policy(session, title, jobs)
        if title in reasons:
            notes[title] = reasons[title]
        elif share is not None:
            shares[title] = share
    return ledger.State(notes=notes, shares=shares)


def draw_notes(view: ComparisonView, *, has_ledger: bool = True) -> None:
    """Draw the view's notes; per failed run its details and a button to run without it.

    Parameters
    ----------
    view : ComparisonView
        The view of the page.
    has_ledger : bool
        Whether the ledger is drawn, with a row for policies that cannot run.
    """
    runs, skipped = view.runs.runs, view.runs.report.skipped
    runs_again = state.session().live_jobs and len(runs.places) == len(runs.titles)
    sentences = ["Running again. Shown: the stored result."] if runs_again else []
    sentences += [view.notes] if view.notes else []
    sentences += [] if has_ledger else [f"{title}: {reason}" for title, reason in skipped.items()]
    if text := " ".join(sentences):
        st.html(f'<p class="ty-facts">{html.escape(charts.visible(text, 900))}</p>')
    _draw_failures(runs)


def _draw_failures(runs: StudyResults) -> None:
    """Draw details of failed runs, and a button per run that leaves out its policy."""
    session = state.session()
    failed = {
        title: job
        for index, title in enumerate(runs.titles)
        for key in runs.keys[index]
        if (job := session.jobs.get(key)) is not None and job.state == "failed"
    }
    if not failed:
        return
    with st.container(horizontal=True, gap=8, key="failures"):
        for title, job in failed.items():
            if job.details:
                with st.popover(words.plain(f"Details: {title}"), type="tertiary"):
                    details = json.dumps(job.details, indent=2, default=str)[:_MAX_DETAILS]
                    st.code(details, language="json")
            others = [spec for spec in session.study.allocators if spec != job.scenario.allocator]
            if 0 < len(others) < len(session.study.allocators) and st.button(
                words.plain(f"Run without {title}"), key=f"others/{job.key}", type="tertiary"
            ):
                actions.run_without(job.scenario.allocator)
