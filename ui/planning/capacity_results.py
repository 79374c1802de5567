"""What a search for the fewest nodes has found: the answer as a sentence, a table, ways out where
there is none, and the curve of what was tried.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

from trainyard.study.capacity import FAR_IN_A_ROW, MOST_CHECKED
from trainyard.study.search import SizeQuestion
from trainyard.study.study import Study
from trainyard.sweeps import sentences
from trainyard.sweeps.plan import HOURS_A_MONTH, PlanRun, PolicyAnswer
from trainyard.text import money, plural
from trainyard.views import charts, metric_table, sweeps
from trainyard.views.markup import framed, text
from ui import figure, server, state, words
from ui.planning import capacity_form as plan_form
from ui.planning.live import Run

_FILE: Final = "plan.json"
_BAR: Final = 0.5
"""Of the width of a tile: the longest bar."""


def draw(question: SizeQuestion, mark: str, run: Run, going: bool) -> None:
    """Draw what is known."""
    assert isinstance(run, PlanRun), "made for a question"
    answers, readings = run.answers(), run.readings()
    if readings.empty:
        if not going:
            st.caption(_NOTHING)
        return
    finding = sentences.fewest(answers, question)
    if finding:
        st.title(
            words.plain(finding if not going else f"So far: {finding}").replace("$ ", "$\u00a0"),
            anchor=False,
        )
    missed = [answer for answer in answers if answer.size is None and answer.over]
    if missed:
        st.warning(
            "  \n".join(words.plain(sentences.missed(answer, question)) for answer in missed),
            icon=":material/trending_flat:",
        )
    if missed and not going:
        _ways_out(question, missed)
    looks = style(question.study)
    st.html(_tiles(answers, looks))
    _curve(question, mark, readings, answers, looks)
    st.html(_table(question, answers, looks))
    _failures(readings)
    if not going:
        _compare(question, answers)
        _assumed(question, answers)
        _command(question)


def style(study: Study) -> charts.theme.Style:
    """Return colours and dashes of a study's policies: those that they have on every page."""
    own = study.titles
    return charts.policy_style(own, own[study.baseline], study.slots)


def _tiles(answers: Sequence[PolicyAnswer], looks: charts.theme.Style) -> str:
    """Return the fewest nodes of every policy as bars, with the price per month at their ends."""
    most = max((sum(answer.size) for answer in answers if answer.size is not None), default=0)
    return f'<div class="ty-bars">{"".join(_tile(one, looks, most) for one in answers)}</div>'


def _tile(answer: PolicyAnswer, looks: charts.theme.Style, most: int) -> str:
    colour = figure.themed(looks[answer.policy][0])
    name = f'<span style="color: {colour}">{text(answer.policy)}</span>'
    if answer.size is None:
        known = "not met" if answer.over else "not known yet"
        return f"<div><p>{name}</p><small>{known}</small></div>"
    number, share = " + ".join(map(str, answer.size)), 100 * sum(answer.size) / most
    usd = answer.usd_per_h * HOURS_A_MONTH
    price = f"{money(usd)} a month" if usd > 0 else ""
    bar = f'<i style="width: {share * _BAR:.1f}%; background: {colour}"></i>'
    return f"<div><p><b>{number}</b> {name}</p>{bar}<small>{text(price)}</small></div>"


def _table(
    question: SizeQuestion, answers: Sequence[PolicyAnswer], looks: charts.theme.Style
) -> str:
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("Policy", "Nodes", "GPUs", "Per month", "At one node fewer")
    )
    body = "".join(
        '<tr><th scope="row">'
        f"{metric_table.swatch(figure.themed(looks[answer.policy][0]), 'solid')}"
        f"{text(answer.policy)}</th>"
        f"{''.join(f'<td>{text(cell)}</td>' for cell in _cells(question, answer))}</tr>"
        for answer in answers
    )
    stay = sentences.staying(question)
    note = f"The cluster’s {stay}." if stay else ""
    return framed(f"<tr>{head}</tr>", body, dark=figure.dark(), note=note)


def _cells(question: SizeQuestion, answer: PolicyAnswer) -> tuple[str, ...]:
    if answer.size is None:
        near = f"{sentences.reached_at(answer, question)}" if answer.over else "not known yet"
        return (near, *[words.MISSING] * 3)
    searching = "" if answer.over else " or fewer"
    usd = answer.usd_per_h * HOURS_A_MONTH
    return (
        f"{' + '.join(map(str, answer.size))}{searching}",
        f"{question.cluster(answer.size).gpus:,}",
        money(usd) if usd > 0 else words.MISSING,
        sentences.one_fewer(answer, question) or words.MISSING,
    )


def _curve(
    question: SizeQuestion,
    mark: str,
    readings: pd.DataFrame,
    answers: Sequence[PolicyAnswer],
    looks: charts.theme.Style,
) -> None:
    finding = sentences.fewest(answers, question) or " ".join(
        sentences.missed(answer, question) for answer in answers if answer.size is None
    )
    if len(question.groups) == 1:
        view = figure.kept(
            ("plan", mark, len(readings), *looks.items()),
            lambda: sweeps.capacity_curve(question, readings, looks, finding),
        )
        figure.draw(view)
        return
    grid = st.grid(2, min_column_width=420)
    for answer in answers:
        make = partial(sweeps.mix_map, question, readings, answer, finding)
        with grid.cell():
            figure.draw(figure.kept(("mix", mark, answer.policy, answer.size, len(readings)), make))


def _failures(readings: pd.DataFrame) -> None:
    for sentence in sentences.reasons(readings.loc[readings["failed"] != "", "failed"].tolist()):
        st.caption(f":material/error: {words.plain(sentence)}")


def _ways_out(question: SizeQuestion, missed: Sequence[PolicyAnswer]) -> None:
    """Draw three ways on from a target that nobody meets: more nodes, another policy, or what was
    reached.
    """
    asked = plan_form.of_question(question)
    with st.container(horizontal=True):
        more = sentences.wider(question)
        if st.button(
            f"Search up to {' and '.join(map(str, more.high))}",
            key="way/wider",
            icon=":material/open_in_full:",
        ):
            plan_form.take(replace(asked, high=more.high, begin=0))
            st.rerun()
        other = sentences.another(state.session().study, server.store())
        if other is not None and st.button(
            f"Add {words.plain(other[1])}", key="way/policy", icon=":material/add:"
        ):
            session = state.session()
            session.replace(
                session.study.choosing(
                    (*session.study.allocators, other[0]), session.study.baseline
                )
            )
            st.rerun()
        near = next((answer.nearest for answer in missed if answer.nearest is not None), None)
        if near is not None:
            limit, amount = sentences.reached(question, near.value)
            if st.button(f"Take {amount} as the target", key="way/target", icon=":material/flag:"):
                plan_form.take(replace(asked, limit=limit))
                st.rerun()


def _compare(question: SizeQuestion, answers: Sequence[PolicyAnswer]) -> None:
    """Draw what opens the found sizes in Compare."""
    found = dict.fromkeys(answer.size for answer in answers if answer.size is not None)
    if not found:
        return
    with st.container(horizontal=True):
        for size in found:
            label = f"Open {sentences.nodes(question, size)} in Compare"
            if st.button(
                words.plain(label),
                key=f"open/{size}",
                icon=":material/compare_arrows:",
                help="Use this cluster size.",
            ):
                state.session().open(question.at(size))
                st.switch_page("pages/compare.py", query_params=state.address())


def _assumed(question: SizeQuestion, answers: Sequence[PolicyAnswer]) -> None:
    with st.expander(f"Assumptions of {plural(sum(answer.runs for answer in answers), 'run')}"):
        st.markdown(
            "\n".join(
                f"- **{words.plain(answer.policy)}**: {plural(answer.runs, 'run')}."
                f" {words.plain(answer.assumed)}"
                for answer in answers
            )
        )
        st.caption(f"{_BORDER if len(question.groups) > 1 else _method(question)} {_HOLDS}")


def _command(question: SizeQuestion) -> None:
    with st.expander("Command line"):
        st.code(f"python -m trainyard plan {_FILE}", language="bash")
        document = json.dumps(question.to_json(), indent=2, ensure_ascii=False)
        st.download_button(
            _FILE,
            document,
            _FILE,
            "application/json",
            key="plan_file",
            on_click="ignore",
            icon=":material/download:",
        )


def _method(question: SizeQuestion) -> str:
    if not question.check:
        return _ALONE
    return _DOUBLING if question.begin else _BISECTION


_NOTHING: Final = (
    "The search shows the fewest nodes of every policy, their price, and the curve of all sizes"
    " tried."
)
_BISECTION: Final = (
    "Bisection from the largest size, then the sizes below what it finds, because more nodes do"
    f" not always do better: until {FAR_IN_A_ROW} in a row miss the target by more than a factor of"
    f" two, or {MOST_CHECKED} were tried."
)
_DOUBLING: Final = (
    "From the nodes that there are the search doubles until the target is met on a size that is not"
    " the largest tried, bisects, and then tries the sizes below what it finds, until"
    f" {FAR_IN_A_ROW} in a row miss the target by more than a factor of two."
)
_ALONE: Final = "Bisection from the largest size only, as chosen."
_BORDER: Final = (
    "Along the border between mixes that hold and mixes that do not: one node of the second row"
    " less where a mix holds, else one of the first more."
)
_HOLDS: Final = (
    "A size holds if the mean over the repeats meets the target and no job is left out that the"
    " largest completes. All have the same jobs and seeds."
)
