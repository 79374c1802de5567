"""What a search for the fewest nodes has found: the answer as a sentence, a table, ways out where there is none, and the curve of what was tried."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

import charts
from trainyard.results.outcomes import titles
from trainyard.study.study import Study
from trainyard.sweeps import telling
from trainyard.sweeps.axes import row_name
from trainyard.sweeps.capacity import FAR_IN_A_ROW, MOST_CHECKED
from trainyard.sweeps.plan import HOURS_A_MONTH, Answer, PlanRun
from trainyard.sweeps.search import Question
from trainyard.text import money, plural
from ui import figure, server, state, words
from ui.comparing import tables
from ui.planning import capacity_form as plan_form
from ui.planning.runs import Run

_FILE: Final = "plan.json"


def draw(question: Question, mark: str, run: Run, going: bool) -> None:
    """Draw what is known."""
    assert isinstance(run, PlanRun), "made for a question"
    answers, readings = run.answers(), run.readings()
    if readings.empty:
        if not going:
            st.caption(_NOTHING)
        return
    told = telling.fewest(answers, question)
    if told:
        st.subheader(words.plain(told if not going else f"So far: {told}").replace("$ ", "$\u00a0"), anchor=False)
    missed = [answer for answer in answers if answer.size is None and answer.over]
    if missed:
        st.warning("  \n".join(words.plain(telling.missed(answer, question)) for answer in missed), icon=":material/trending_flat:")
    if missed and not going:
        _ways_out(question, missed)
    look = style(question.study)
    st.html(_table(question, answers, look))
    _curve(question, mark, readings, answers, look)
    _failures(readings)
    if not going:
        _compare(question, answers)
        _assumed(question, answers)
        _command(question)


def style(study: Study) -> charts.theme.Style:
    """Return colours and dashes of a study's policies: those that they have on every page."""
    mine = state.desk().study
    every = titles(mine.allocators)
    own = titles(study.allocators)
    base = own[study.baseline]
    return charts.policy_style(every if set(own) <= set(every) else own, base)


def _table(question: Question, answers: Sequence[Answer], look: charts.theme.Style) -> str:
    head = "".join(f'<th scope="col">{text}</th>' for text in ("Policy", "Nodes", "GPUs", "Per hour", "Per month", "One more node"))
    rows = []
    for answer in answers:
        name = f'<th scope="row">{tables.swatch(*look[answer.policy])}{html.escape(answer.policy)}</th>'
        rows.append(f"<tr>{name}{''.join(f'<td>{html.escape(cell)}</td>' for cell in _cells(question, answer))}</tr>")
    tone = "dark" if getattr(st.context.theme, "type", "light") == "dark" else "light"
    title = telling.BY_NAME[question.metric].title
    stay = telling.staying(question)
    whole = f"GPUs and prices are of the whole cluster{f', with the {html.escape(stay)} that it has beside' if stay else ''}."
    note = f'<p class="ty-note">{whole} One more node: by how much it changes {html.escape(title)}. A month has {HOURS_A_MONTH:.0f} hours.</p>'
    return f'<div class="ty-scroll" tabindex="0"><table class="ty {tone}"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>{note}'


def _cells(question: Question, answer: Answer) -> tuple[str, ...]:
    if answer.size is None:
        return ("none of the range" if answer.over else "not known yet", *[words.MISSING] * 4)
    usd = (money(answer.usd_per_h), money(answer.usd_per_h * HOURS_A_MONTH)) if answer.usd_per_h > 0 else (words.MISSING, words.MISSING)
    searching = "" if answer.over else " or fewer"
    gpus = f"{question.cluster(answer.size).gpus:,}"
    return (f"{' + '.join(map(str, answer.size))}{searching}", gpus, *usd, telling.buys(answer, question) or words.MISSING)


def _curve(question: Question, mark: str, readings: pd.DataFrame, answers: Sequence[Answer], look: charts.theme.Style) -> None:
    metric = telling.BY_NAME[question.metric]
    target = charts.Target(charts.Amount(metric.title, metric.unit), question.limit, question.lower)
    alt = telling.fewest(answers, question) or " ".join(telling.missed(answer, question) for answer in answers if answer.size is None)
    if len(question.groups) == 1:
        name, size = row_name(question.study, question.groups[0]), (question.low[0], question.high[0])
        title = f"{metric.title} over {words.plain(name)} nodes"
        drawn = figure.kept(("plan", mark, len(readings), *look.items()), lambda: charts.capacity_curve(readings, look, target, size, title))
        figure.draw(drawn, "capacity", alt, lambda: _data(question, readings))
        return
    first, second = (charts.Nodes(row_name(question.study, at), low, high) for at, low, high in zip(question.groups, question.low, question.high, strict=True))
    grid = st.grid(2, min_column_width=420)
    for answer in answers:
        mine = readings[readings["policy"] == answer.policy]
        chosen = None if answer.size is None else (answer.size[0], answer.size[1])
        make = partial(charts.mix_map, mine, target, (first, second), chosen, charts.literal(answer.policy))
        with grid.cell():
            drawn = figure.kept(("mix", mark, answer.policy, len(mine)), make)
            figure.draw(drawn, f"mix/{answer.policy}", f"{answer.policy}. {alt}", partial(_data, question, mine))


def _data(question: Question, readings: pd.DataFrame) -> pd.DataFrame:
    metric = telling.BY_NAME[question.metric]
    unit = f" ({metric.unit})" if metric.unit not in ("", "1") else ""
    names = [f"{row_name(question.study, at)} nodes" for at in question.groups]
    columns = {"policy": "Policy", "size": names[0], "usd_per_h": "USD per hour", "value": f"{metric.title}{unit}", "low": "Lowest", "high": "Highest"}
    columns |= {"completed": "Jobs completed (share)", "holds": "Meets the target", "failed": "Why there is no figure"}
    rows = readings.rename(columns=columns | ({"second": names[1]} if len(names) > 1 else {}))
    return rows.drop(columns=[name for name in ("second",) if name in rows])


def _failures(readings: pd.DataFrame) -> None:
    for sentence in telling.reasons(readings.loc[readings["failed"] != "", "failed"].tolist()):
        st.caption(f":material/error: {words.plain(sentence)}")


def _ways_out(question: Question, missed: Sequence[Answer]) -> None:
    """Draw three ways on from a target that nobody meets: more nodes, another policy, or what was reached."""
    asked = plan_form.of_question(question)
    with st.container(horizontal=True):
        more = telling.wider(question)
        if st.button(f"Search up to {' and '.join(map(str, more.high))}", key="way/wider", icon=":material/open_in_full:"):
            plan_form.take(replace(asked, high=more.high))
            st.rerun()
        other = telling.another(state.desk().study, server.store())
        if other is not None and st.button(f"Add {words.plain(other[1])}", key="way/policy", icon=":material/add:"):
            mine = state.desk()
            mine.replace(replace(mine.study, allocators=(*mine.study.allocators, other[0])))
            st.rerun()
        near = next((answer.nearest for answer in missed if answer.nearest is not None), None)
        if near is not None:
            limit, text = telling.reached(question, near.value)
            if st.button(f"Take {text} as the target", key="way/target", icon=":material/flag:"):
                plan_form.take(replace(asked, limit=limit, unit=plan_form.unit_of(question.metric, limit)))
                st.rerun()


def _compare(question: Question, answers: Sequence[Answer]) -> None:
    """Draw what opens the found sizes in Compare."""
    found = dict.fromkeys(answer.size for answer in answers if answer.size is not None)
    if not found:
        return
    with st.container(horizontal=True):
        for size in found:
            text = f"Open {telling.nodes(question, size)} in Compare"
            if st.button(words.plain(text), key=f"open/{size}", icon=":material/compare_arrows:", help="The cluster becomes so large in your scenario."):
                state.desk().open(question.at(size))
                st.switch_page("pages/compare.py", query_params=state.address())


def _assumed(question: Question, answers: Sequence[Answer]) -> None:
    with st.expander(f"What this rests on: {plural(sum(answer.runs for answer in answers), 'run')}", icon=":material/rule:"):
        st.markdown("\n".join(f"- **{words.plain(answer.policy)}**: {plural(answer.runs, 'run')}. {words.plain(answer.assumed)}" for answer in answers))
        st.caption(f"{_BORDER if len(question.groups) > 1 else _BISECTION if question.check else _ALONE} {_HOLDS}")


def _command(question: Question) -> None:
    with st.expander("The command that repeats it", icon=":material/terminal:"):
        st.code(f"python -m trainyard plan {_FILE}", language="bash")
        text = json.dumps(question.to_json(), indent=2, ensure_ascii=False)
        st.download_button(_FILE, text, _FILE, "application/json", key="plan_file", on_click="ignore", icon=":material/download:")


_NOTHING: Final = "Here will be the fewest nodes for every policy, what they cost, and the curve of everything that was tried."
_BISECTION: Final = (
    f"Bisection from the largest size, then the sizes below what it finds, because more nodes do not always do better: until {FAR_IN_A_ROW} in a row miss "
    f"the target by more than a factor of two, or {MOST_CHECKED} were tried."
)
_ALONE: Final = "Bisection from the largest size only, as this was asked."
_BORDER: Final = (
    "Along the border between mixes that hold and mixes that do not: one node of the second row less where a mix holds, else one of the first more."
)
_HOLDS: Final = (
    "A size holds if the mean over the repeats meets the target and no job is left out that the largest completes. All have the same jobs and seeds."
)
