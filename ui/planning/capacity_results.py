"""Results of a capacity search: headline, bars, curve, table, suggestions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

from sim.metrics.registry import COLUMNS
from trainyard.formatting import money, plural
from trainyard.study.size_question import SizeQuestion
from trainyard.study.size_search import FAR_IN_A_ROW, MAX_CHECKED
from trainyard.study.study import Study
from trainyard.sweeps import summaries
from trainyard.sweeps.axes import row_name
from trainyard.sweeps.plan import HOURS_A_MONTH, PlanRun, PolicyAnswer
from trainyard.views import charts, metric_table, sweeps
from trainyard.views.markup import html_scroll_table, text
from ui import figure, server, state, words
from ui.planning import capacity_form as plan_form
from ui.planning.run_panel import Run

_FILE: Final = "plan.json"
_BAR: Final = 0.5
"""Length of the longest bar, as a share of the tile."""
_NO_SIZE: Final = {True: "not met", False: "no answer yet"}
"""Whether the search is over -> the text of an answer without a size."""


def draw(question: SizeQuestion, question_id: str, run: Run, is_running: bool) -> None:
    """Draw the results of a capacity search: headline, bars, curve, table, buttons."""
    assert isinstance(run, PlanRun), "made for a question"
    answers, readings = run.answers(), run.readings()
    if readings.empty:
        if not is_running:
            st.caption(_NOTHING)
        return
    finding = summaries.savings_text(answers, question)
    if finding:
        st.title(
            words.plain(
                finding if all(answer.over for answer in answers) else f"So far: {finding}"
            ),
            anchor=False,
        )
    unmet = [answer for answer in answers if answer.size is None and answer.over]
    if unmet:
        st.warning(
            "  \n".join(words.plain(summaries.missed_text(answer, question)) for answer in unmet),
            icon=":material/trending_flat:",
        )
    if unmet and not is_running:
        _draw_suggestions(question, unmet)
    style = policy_style(question.study)
    st.html(_bars_markup(answers, style))
    if len(question.groups) > 1 or readings["size"].nunique() > 1:
        _draw_curve(question, question_id, readings, answers, style)
    st.html(_table_markup(question, answers, style))
    _draw_failures(readings)
    if not is_running:
        _draw_compare_buttons(question, answers)
        _draw_assumptions(question, answers)
        _draw_command(question)


def policy_style(study: Study) -> charts.theme.Style:
    """Return title -> (color, dash) of a study's policies, as on every page."""
    titles = study.titles
    return charts.policy_style(titles, titles[study.baseline], study.slots)


def _bars_markup(answers: Sequence[PolicyAnswer], looks: charts.theme.Style) -> str:
    """Return HTML bars of the fewest nodes per policy, with prices per month."""
    max_nodes = max((sum(answer.size) for answer in answers if answer.size is not None), default=0)
    bars = "".join(_bar_markup(answer, looks, max_nodes) for answer in answers)
    return f'<div class="ty-bars">{bars}</div>'


def _bar_markup(answer: PolicyAnswer, looks: charts.theme.Style, max_nodes: int) -> str:
    """Return one HTML bar: node count, policy, price per month; or that none is found."""
    colour = figure.themed_color(looks[answer.policy][0])
    name = f'<span style="color: {colour}">{text(answer.policy)}</span>'
    if answer.size is None:
        return f"<div><p>{name}</p><small>{_NO_SIZE[answer.over]}</small></div>"
    share = 100 * sum(answer.size) / max_nodes
    usd = answer.usd_per_h * HOURS_A_MONTH
    price = f"whole cluster: {money(usd)} a month" if usd > 0 else ""
    bar = f'<i style="width: {share * _BAR:.1f}%; background: {colour}"></i>'
    size = _size_text(answer.size, answer.over)
    return f"<div><p><b>{size}</b> {name}</p>{bar}<small>{text(price)}</small></div>"


def _size_text(size: Sequence[int], is_final: bool) -> str:
    """Return the nodes per type; while the search goes on, as an upper limit."""
    nodes = " + ".join(map(str, size))
    return nodes if is_final else f"at most {nodes}"


def _table_markup(
    question: SizeQuestion, answers: Sequence[PolicyAnswer], looks: charts.theme.Style
) -> str:
    """Return the HTML table of answers: nodes, GPUs, price, and the value with one node fewer."""
    rows = " + ".join(row_name(question.study, at) for at in question.groups)
    head = "".join(
        f'<th scope="col">{text(name)}</th>'
        for name in (
            "Policy",
            f"{rows} nodes",
            "Total GPUs",
            "Cluster cost per month",
            f"{COLUMNS[question.metric].title}, one node fewer",
        )
    )
    body = "".join(
        '<tr><th scope="row">'
        f"{metric_table.swatch(figure.themed_color(looks[answer.policy][0]), 'solid')}"
        f"{text(answer.policy)}</th>"
        f"{''.join(f'<td>{text(cell)}</td>' for cell in _table_cells(question, answer))}</tr>"
        for answer in answers
    )
    fixed_rows = summaries.fixed_nodes_text(question)
    note = f"GPUs and cost include the {fixed_rows} that the cluster keeps." if fixed_rows else ""
    return html_scroll_table(f"<tr>{head}</tr>", body, dark=figure.is_dark(), note=note)


def _table_cells(question: SizeQuestion, answer: PolicyAnswer) -> tuple[str, ...]:
    """Return the cells of one policy: nodes, GPUs, price, value with one node fewer."""
    if answer.size is None:
        reached = summaries.nearest_miss(answer, question) if answer.over else _NO_SIZE[False]
        return (reached, *[words.MISSING] * 3)
    usd = answer.usd_per_h * HOURS_A_MONTH
    return (
        _size_text(answer.size, answer.over),
        f"{question.cluster(answer.size).gpus:,}",
        money(usd) if usd > 0 else words.MISSING,
        summaries.one_fewer(answer, question) or words.MISSING,
    )


def _draw_curve(
    question: SizeQuestion,
    question_id: str,
    readings: pd.DataFrame,
    answers: Sequence[PolicyAnswer],
    looks: charts.theme.Style,
) -> None:
    """Draw the metric over the sizes tried; for two node types a map per policy."""
    finding = summaries.savings_text(answers, question) or " ".join(
        summaries.missed_text(answer, question) for answer in answers if answer.size is None
    )
    if len(question.groups) == 1:
        figure.draw(
            figure.cached_view(
                ("plan", question_id, len(readings), *looks.items()),
                lambda: sweeps.capacity_curve(question, readings, looks, finding),
            )
        )
        return
    grid = st.grid(2, min_column_width=420)
    for answer in answers:
        make = partial(sweeps.mix_map, question, readings, answer, finding)
        with grid.cell():
            figure.draw(
                figure.cached_view(
                    ("mix", question_id, answer.policy, answer.size, len(readings)), make
                )
            )


def _draw_failures(readings: pd.DataFrame) -> None:
    """Draw the reasons why runs failed, each once."""
    for sentence in summaries.failure_reasons(
        readings.loc[readings["failed"] != "", "failed"].tolist()
    ):
        st.caption(f":material/error: {words.plain(sentence)}")


def _draw_suggestions(question: SizeQuestion, missed: Sequence[PolicyAnswer]) -> None:
    """Draw buttons for an unmet target: a wider range, another policy, or the value reached."""
    request = plan_form.request_of(question)
    with st.container(horizontal=True):
        wider = summaries.double_range(question)
        if st.button(
            f"Search up to {' and '.join(map(str, wider.high))}",
            key="way/wider",
            icon=":material/open_in_full:",
        ):
            plan_form.set_request(replace(request, high=wider.high, begin=0))
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


def _draw_compare_buttons(question: SizeQuestion, answers: Sequence[PolicyAnswer]) -> None:
    """Draw a button per size found; it opens the scenario at that size on Compare."""
    sizes = dict.fromkeys(answer.size for answer in answers if answer.size is not None)
    if not sizes:
        return
    with st.container(horizontal=True):
        for size in sizes:
            if st.button(
                words.plain(f"Open {summaries.size_text(question, size)} in Compare"),
                key=f"open/{size}",
                icon=":material/compare_arrows:",
                help="Uses this cluster size in your scenario.",
            ):
                state.session().open(question.study_at(size))
                st.switch_page("pages/compare.py", query_params=state.url_parameters())


def _draw_assumptions(question: SizeQuestion, answers: Sequence[PolicyAnswer]) -> None:
    """Draw an expander with the runs per policy and the assumptions of the search."""
    with st.expander(f"Assumptions of {plural(sum(answer.runs for answer in answers), 'run')}"):
        st.markdown(
            "\n".join(
                f"- **{words.plain(answer.policy)}**: {plural(answer.runs, 'run')}."
                f" {words.plain(answer.assumed)}"
                for answer in answers
            )
        )
        st.caption(f"{_FRONTIER if len(question.groups) > 1 else _method_text(question)} {_PASSES}")


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


def _method_text(question: SizeQuestion) -> str:
    """Return how the search over one node type chose its sizes."""
    if not question.check:
        return _ALONE
    return _DOUBLING if question.begin else _BISECTION


_NOTHING: Final = (
    "The search shows the fewest nodes per policy, their price, and a curve of all sizes tried."
)
_BISECTION: Final = (
    "Bisection from the largest size, then smaller sizes, until"
    f" {FAR_IN_A_ROW} in a row miss the target by a factor of two, or {MAX_CHECKED} were tried."
)
_DOUBLING: Final = (
    "Doubles the current nodes until they pass, bisects, then tries smaller sizes until"
    f" {FAR_IN_A_ROW} in a row miss the target by a factor of two."
)
_ALONE: Final = "Bisection from the largest size only."
_FRONTIER: Final = (
    "Follows the feasibility frontier: one node of the second type fewer if a mix meets the target,"
    " else one of the first type more."
)
_PASSES: Final = (
    "A size passes if the mean over repeats meets the target and it completes the jobs that the"
    " largest size completes."
)
