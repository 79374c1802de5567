"""The answer of the Compare page in words: the sentence on top with what limits it and the ways
out, what stands in the row of a policy without a result, and what must be known of the ledger.
"""

from __future__ import annotations

import html
import json
from typing import Final

import pandas as pd
import streamlit as st

from trainyard.preflight import leave_out
from trainyard.results import ways_out
from trainyard.results.headline import Headline
from trainyard.results.outcomes import ComparisonReport, Shown
from trainyard.results.ways_out import WayOut
from trainyard.runs.queue import Submission
from trainyard.traces import start
from trainyard.views import charts
from trainyard.views.compared import ComparedRuns
from ui import figure, server, state, stored_results, url_params, words

_INSISTED: Final = "insisted"
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


def sentence(compared: ComparedRuns, headline: Headline, high: str, facts: str) -> None:
    """Draw the sentence on top, with the highlighted policy in its colour, and what was run."""
    text = html.escape(charts.visible(headline.text, 400))
    name = html.escape(charts.visible(high, _NAME))
    if high:
        colour = compared.colours(figure.dark())[high]
        text = text.replace(name, f'<span style="color: {colour}">{name}</span>', 1)
    below = html.escape(charts.visible(facts, 400))
    st.html(f'<h1 class="ty-answer">{text}</h1><p class="ty-facts">{below}</p>')


def unfinished(runs: Shown) -> bool:
    """Tell whether policies still run, so that nothing is judged yet."""
    return bool(state.session().live) and len(runs.places) < len(runs.titles)


def progress(runs: Shown) -> None:
    """Draw what stands in place of the sentence while policies run."""
    st.html(
        f'<h1 class="ty-answer">{len(runs.places)} of {words.plural(len(runs.titles), "policy")}'
        ' done</h1><p class="ty-facts">Each policy appears as soon as it has finished.</p>'
    )


def insisted(report: ComparisonReport) -> bool:
    """Tell whether the user wants to see these runs compared although no policy can be judged."""
    return bool(st.session_state.get(_INSISTED) == report.mark)


def ways(compared: ComparedRuns, headline: Headline) -> None:
    """Draw what can be done where the sentence is limited, and what stays true all the same."""
    report = compared.report
    if headline.verdict == "overload" and insisted(report):
        st.html(
            '<p class="ty-amber">Compared all the same: times to finish and waits measure how long'
            " jobs kept coming, not how good a policy is.</p>"
        )
    offered = [
        way
        for way in headline.advice
        if way.name in _ICONS and not (way == ways_out.COMPARE_ANYWAY and insisted(report))
    ]
    if not offered:
        return
    with st.container(horizontal=True, gap=8, key="ways"):
        for way in offered:
            if st.button(words.plain(way.text), key=f"way/{way.name}", icon=_ICONS[way.name]):
                _take(compared, way)


def _take(compared: ComparedRuns, way: WayOut) -> None:
    session = state.session()
    if way == ways_out.COMPARE_ANYWAY:
        st.session_state[_INSISTED] = compared.report.mark
        st.rerun()
    made = ways_out.apply(compared.runs.study, way, compared.details.trace)
    if not made.matches(session.study):
        session.replace(made)
    if way.name == "enough_gpus":
        st.session_state[state.SIZE_CLUSTER] = True
        _open_plan(url_params.CAPACITY)
    if way == ways_out.CHECK_PAST:
        _open_plan(url_params.PAST)
    if way == ways_out.NAME_SPEEDS:
        st.switch_page("pages/trace.py", query_params=state.address())
    if way == ways_out.LEAVE_OUT:
        session.replace(leave_out.without_unschedulable(session.study, server.store()))
    session.run()
    st.rerun()


def _open_plan(tab: str) -> None:
    """Leave this page for a tab of Plan."""
    st.switch_page("pages/plan.py", query_params=state.address() | {url_params.TAB: tab})


def notes(session: state.Session, runs: Shown) -> dict[str, str]:
    """Return what stands in the row of each policy without a result, and nothing else."""
    barred = stored_results.barred(runs.study)
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


def below(compared: ComparedRuns, *, whole: bool, listed: bool = True) -> None:
    """Draw under the ledger what must be known of its figures, in one line, and what a policy that
    stopped has left behind.

    Parameters
    ----------
    compared : ComparedRuns
        The runs.
    whole : bool
        Whether the figures are of all jobs.
    listed : bool
        Whether the ledger is there, with a row for policies that cannot run.
    """
    report = compared.report
    session = state.session()
    again = session.live and len(compared.runs.places) == len(compared.runs.titles)
    said = ["Running again: the stored result is shown."] if again else []
    said += [*report.first_headline.also] if report.first_headline.verdict != "overload" else []
    said += [_not_completed(report.counts), report.overflow, report.not_common if whole else ""]
    said += [f"Assumed: {report.assumed}"] if report.assumed else []
    said += [] if listed else [f"{title}: {why}" for title, why in report.skipped.items()]
    if text := " ".join(filter(None, said)):
        st.html(f'<p class="ty-facts">{html.escape(charts.visible(text, 900))}</p>')
    _failures(session, compared.runs)


def _not_completed(counts: pd.DataFrame) -> str:
    """Return how many jobs did not complete under which policy, and why; "" = all did."""
    sentences = []
    for row in counts.to_dict("records"):
        why = f" ({row['why']})" if row["why"] else ""
        others = [
            f"{words.count(row[name])} {name}{why if name == 'failed' else ''}"
            for name in ("failed", "impossible", "refused", "unfinished")
            if row[name]
        ]
        sentences += [f"{row['label']} {', '.join(others)}"] if others else []
    if not sentences:
        return ""
    repeats = int(counts["repeats"].iloc[0])
    together = f" (of {repeats} repeats together)" if repeats > 1 else ""
    return f"Not completed, so not in the means{together}: {'; '.join(sentences)}."


def _failures(session: state.Session, runs: Shown) -> None:
    """Draw the details of the policies that stopped, and what the others can do."""
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
                baseline = session.study.allocators[session.study.baseline]
                place = others.index(baseline) if baseline in others else 0
                session.replace(start.with_policies(session.study, tuple(others), place))
                session.run()
                st.rerun()
