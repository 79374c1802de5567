"""Results of a purchase search: headline, chart, table, suggestions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pandas as pd
import streamlit as st

from trainyard.formatting import money, plural
from trainyard.study.size_question import SizeQuestion
from trainyard.study.size_search import MAX_CHECKED, MAX_TRIED, Size
from trainyard.study.study import Study
from trainyard.sweeps import summaries
from trainyard.sweeps.axes import group_name
from trainyard.sweeps.plan import PlanRun, PolicyAnswer
from trainyard.views import charts, metric_table, sweeps
from trainyard.views.markup import html_scroll_table, text
from ui import figure, server, state, words
from ui.planning import buy_form as plan_form
from ui.planning.run_panel import Run

_FILE: Final = "plan.json"
_OPENED: Final = "plan_purchases_opened"
_FRAME: Final = '<div class="ty-frame ty-one" aria-hidden="true"><div><span></span></div></div>'


def draw(question: SizeQuestion, question_id: str, run: Run, is_running: bool) -> None:
    """Draw the results of a purchase search: headline, chart, table, buttons."""
    assert isinstance(run, PlanRun), "made for a question"
    answers, readings = run.answers(), run.readings()
    if readings.empty or (run.state == "waiting" and not is_running):
        st.html(_FRAME)
        return
    finding = summaries.headline(answers, question)
    if finding:
        is_final = all(answer.over for answer in answers)
        st.title(words.plain(finding if is_final else f"So far: {finding}"), anchor=False)
    unmet = [answer for answer in answers if answer.size is None and answer.over]
    notes = [
        *(
            summaries.cheaper_text(answer, question)
            for answer in summaries.headline_answers(answers, question)
        ),
        *(summaries.missed_text(answer, question) for answer in unmet),
    ]
    if note := " ".join(filter(None, notes)):
        st.caption(words.plain(note))
    if unmet and not is_running:
        _draw_suggestions(question, unmet)
    looks = policy_style(question.study)
    _draw_chart(question, question_id, readings, answers, finding)
    _draw_table(question, answers, looks, is_running)
    st.caption(words.plain(_facts_text(question, readings, answers)))
    _draw_failures(readings)
    if not is_running:
        _draw_assumptions(answers)
        _draw_command(question)


def policy_style(study: Study) -> charts.theme.Style:
    """Return title -> (color, dash) of a study's policies, as on every page."""
    titles = study.titles
    return charts.policy_style(titles, titles[study.baseline], study.slots)


def _draw_chart(
    question: SizeQuestion,
    question_id: str,
    readings: pd.DataFrame,
    answers: Sequence[PolicyAnswer],
    finding: str,
) -> None:
    """Draw the metric by extra cost; a click on a purchase opens it on Compare."""
    looks = policy_style(question.study)
    chosen = tuple((answer.size, answer.alone) for answer in answers)
    view = figure.cached_view(
        ("buy", question_id, len(readings), chosen, *looks.items()),
        lambda: sweeps.purchase_chart(question, answers, readings, looks, finding),
    )
    # Streamlit keeps a click under the key of its figure.
    key = f"purchases/{st.session_state.get(_OPENED, 0)}"
    event = figure.draw(view, key, on_select="rerun", selection_mode="points")
    for point in event["selection"]["points"]:
        mix = tuple(int(count) for count in str(point["customdata"][0]).split(","))
        _open_on_compare(question, mix)


def _open_on_compare(question: SizeQuestion, size: Size) -> None:
    """Open the scenario with the nodes of a mix on Compare; ends this run of the script."""
    st.session_state[_OPENED] = st.session_state.get(_OPENED, 0) + 1
    state.session().open(question.study_at(size))
    st.switch_page("pages/compare.py", query_params=state.url_parameters())


def _draw_table(
    question: SizeQuestion,
    answers: Sequence[PolicyAnswer],
    looks: charts.theme.Style,
    is_running: bool,
) -> None:
    """Draw the table of cheapest purchases, and a button per policy that opens it on Compare."""
    head = (
        "Policy",
        "Cheapest purchase",
        "Nodes now → then",
        "A month",
        summaries.target_metric(question.metric, starts=True),
        "Average completion",
        f"{group_name(question.rows[question.groups[0]])} nodes only",
    )
    body = "".join(
        '<tr><th scope="row">'
        f"{metric_table.swatch(figure.themed_color(looks[answer.policy][0]), 'solid')}"
        f"{text(answer.policy)}</th>"
        f"{''.join(f'<td>{text(cell)}</td>' for cell in _table_cells(question, answer))}</tr>"
        for answer in answers
    )
    columns = "".join(f'<th scope="col">{text(name)}</th>' for name in head)
    with st.container(horizontal=True, key="buy_table"):
        st.html(html_scroll_table(f"<tr>{columns}</tr>", body, dark=figure.is_dark()))
        with st.container(key="buy_links", width=72):
            for answer in answers:
                if (
                    st.button(
                        "Compare",
                        key=f"open/{answer.policy}",
                        type="tertiary",
                        disabled=answer.size is None or is_running,
                        help=words.plain(f"Open the cluster with {answer.policy}'s purchase."),
                    )
                    and answer.size
                ):
                    _open_on_compare(question, answer.size)


def _table_cells(question: SizeQuestion, answer: PolicyAnswer) -> tuple[str, ...]:
    """Return the cells of one policy, see the head of the table."""
    best, now, alone = answer.best, answer.now, answer.alone
    if best is None:
        reached = summaries.nearest_miss(answer, question) if answer.over else "no answer yet"
        return (reached, *[words.MISSING] * 5)
    fixed = sum(row.count for at, row in enumerate(question.rows) if at not in question.groups)
    before, after = (fixed + sum(size) for size in (question.owned, best.size))
    is_bought = best.size != question.owned
    return (
        summaries.purchase_text(question, best.size) if is_bought else "nothing to buy",
        f"{before:,} → {after:,}",
        summaries.extra_cost_text(question, best.size) or words.MISSING,
        summaries.change_text(question.metric, now.value if now else float("nan"), best.value),
        summaries.change_text(
            "jct_mean_s", now.jct_mean_s if now else float("nan"), best.jct_mean_s
        ),
        "not met"
        if alone is None
        else "none"
        if alone.size == question.owned
        else ", ".join(
            filter(
                None,
                (
                    summaries.more_text(question, alone.size),
                    summaries.extra_cost_text(question, alone.size),
                ),
            )
        ),
    )


def _facts_text(
    question: SizeQuestion, readings: pd.DataFrame, answers: Sequence[PolicyAnswer]
) -> str:
    """Return the number of runs, where prices come from, and which nodes stay."""
    fixed = summaries.fixed_nodes_text(question)
    mixes, runs = readings["mix"].nunique(), sum(answer.runs for answer in answers)
    return (
        f"Prices of the cluster and the catalog, 730 h a month. {plural(mixes, 'purchase')},"
        f" {plural(runs, 'run')}.{f' Your {fixed} stay.' if fixed else ''}"
    )


def _draw_failures(readings: pd.DataFrame) -> None:
    """Draw the reasons why runs failed, each once."""
    for sentence in summaries.failure_reasons(
        readings.loc[readings["failed"] != "", "failed"].tolist()
    ):
        st.caption(f":material/error: {words.plain(sentence)}")


def _draw_suggestions(question: SizeQuestion, missed: Sequence[PolicyAnswer]) -> None:
    """Draw buttons for an unmet target: a larger budget, another policy, or the value reached."""
    request = plan_form.request_of(question)
    with st.container(horizontal=True):
        more = money(2 * request.budget)
        if 0 < request.budget < float("inf") and st.button(
            f"Search up to {words.plain(more)} a month",
            key="way/wider",
            icon=":material/open_in_full:",
        ):
            plan_form.set_request(replace(request, budget=2 * request.budget))
            st.rerun()
        suggestion = summaries.suggest_policy(state.session().study, server.store())
        if suggestion is not None and st.button(
            f"Add {words.plain(suggestion[1])}", key="way/policy", icon=":material/add:"
        ):
            session = state.session()
            session.replace(
                session.study.choosing(
                    (*session.study.allocators, suggestion[0]), session.study.baseline
                )
            )
            st.rerun()
        nearest = next((answer.nearest for answer in missed if answer.nearest is not None), None)
        if nearest is not None:
            limit, amount = summaries.round_target(question, nearest.value)
            if st.button(f"Use {amount} as the target", key="way/target", icon=":material/flag:"):
                plan_form.set_request(replace(request, limit=limit))
                st.rerun()


def _draw_assumptions(answers: Sequence[PolicyAnswer]) -> None:
    """Draw an expander with the runs per policy and the assumptions of the search."""
    with st.expander(f"Assumptions of {plural(sum(answer.runs for answer in answers), 'run')}"):
        st.markdown(
            "\n".join(
                f"- **{words.plain(answer.policy)}**: {plural(answer.runs, 'run')}."
                f" {words.plain(answer.assumed)}"
                for answer in answers
            )
        )
        st.caption(f"{_METHOD} {_PASSES}")


def _draw_command(question: SizeQuestion) -> None:
    """Draw the command line that repeats the search, and its file."""
    with st.expander("Command line"):
        st.code(f"python -m trainyard plan {_FILE}", language="bash")
        st.download_button(
            _FILE,
            json.dumps(question.to_json(), indent=2, ensure_ascii=False),
            _FILE,
            "application/json",
            key="plan_file",
            on_click="ignore",
            icon=":material/download:",
        )


_METHOD: Final = (
    "Each type alone, by doubling and bisection; then mixes between the cheapest that meets the"
    " target and those ruled out; then mixes one node below near misses, up to"
    f" {MAX_CHECKED} of at most {MAX_TRIED}."
)
_PASSES: Final = (
    "A purchase meets the target if the mean over repeats does and as many jobs complete as with"
    " any other purchase tried."
)
