"""The question of capacity as a form that reads as a sentence: which nodes, between how many, and what must be reached."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

import streamlit as st

from trainyard.study.study import Study
from trainyard.sweeps.axes import row_name
from trainyard.sweeps.search import LOWER, MOST_SIZES, Question
from trainyard.sweeps.telling import BY_NAME, UNITS
from ui import state, words

_ASKED: Final = "plan_asked"
_EDITION: Final = "plan_edition"
_FIRST_METRIC: Final = "queue_p95_s"
_FIRST_LIMIT_S: Final = 3600.0
_MORE: Final = 20
"""Nodes more than there are, at which the usual range ends."""
_MOST_REPEATS: Final = 50
_CELL_PX: Final = 135
_WIDE_PX: Final = 190
_NO_ROW: Final = -1
_MOST_NODES: Final = 100_000


@dataclass(frozen=True)
class Asked:
    """What the form holds, beside the scenario.

    Parameters
    ----------
    groups, low, high : tuple of int
        Rows of nodes that vary, and their ranges.
    metric, limit, unit : str, float, str
        The target, in the metric's own unit, and the unit in which it is entered.
    load, repeats : float, int
        What the scenario's are replaced by.
    budget : float, USD per hour
        Of the whole cluster, for two rows; inf = any.
    """

    groups: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    metric: str
    limit: float
    unit: str
    load: float
    repeats: int
    budget: float = float("inf")

    def question(self, study: Study) -> Question:
        """Return the question about a study.

        Raises
        ------
        ParameterError
            If the parts do not go together.
        """
        study = with_load(study, self.load, self.repeats)
        return Question(study, self.groups, self.low, self.high, self.metric, self.limit, budget_per_h=self.budget)


def with_load(study: Study, load: float, repeats: int) -> Study:
    """Return the study at another load, with other repeats."""
    base = study.base
    return replace(study, base=replace(base, trace=replace(base.trace, load=load)), repeats=repeats)


def of_question(question: Question) -> Asked:
    """Return what the form holds for a question."""
    study, unit = question.study, unit_of(question.metric, question.limit)
    parts = (question.groups, question.low, question.high, question.metric, question.limit)
    return Asked(*parts, unit, study.base.trace.load, study.repeats, question.budget_per_h)


def asked(study: Study) -> Asked:
    """Return what the form of this session holds; at first, or where the machines have become others, a usual question."""
    found: Asked | None = st.session_state.get(_ASKED)
    rows = len(study.base.cluster.groups)
    if found is None or any(at >= rows for at in found.groups):
        found = _first(study)
    return found


def take_overloaded(study: Study, load: float) -> None:
    """Let the form search far enough to bring a cluster from a load to half of what it can do, with more nodes of one row."""
    first, cluster = _first(study), study.base.cluster
    group = cluster.groups[first.groups[0]]
    if group.gpus and 1 < load < float("inf"):
        more = min(ceil(cluster.gpus * (2 * load - 1) / group.gpus), MOST_SIZES - 1)
        first = replace(first, low=(group.count,), high=(min(group.count + more, _MOST_NODES),))
    take(first)


def take(new: Asked) -> None:
    """Let the form hold something else."""
    st.session_state[_ASKED] = new
    st.session_state[_EDITION] = st.session_state.get(_EDITION, 0) + 1


def draw(study: Study, now: Asked, *, locked: bool) -> Asked:
    """Draw the form and return what it holds."""
    st.markdown("**Find the fewest nodes so that the target is met**")
    grid = st.grid(min_column_width=_CELL_PX, vertical_alignment="bottom")
    names = _rows(study)
    with grid.cell():
        row = st.selectbox("Nodes", list(names), now.groups[0], key=_key("row"), format_func=names.__getitem__, disabled=locked)
    low, high = _range(grid, "", (now.low[0], now.high[0]) if row == now.groups[0] else _around(study, row), (row,), locked)
    with grid.cell():
        load = st.number_input("Load ×", 0.001, 1000.0, now.load, 0.1, format="%g", key=_key("load"), disabled=locked, help=_LOAD)
    with grid.cell():
        repeats = st.number_input("Repeats", 1, max(_MOST_REPEATS, now.repeats), now.repeats, key=_key("repeats"), disabled=locked, help=_REPEATS)
    metric, limit, unit = _target(now, locked)
    new = Asked((row,), (low,), (high,), metric, limit, unit, float(load), int(repeats))
    if len(names) > 1:
        new = _second(study, now, new, locked)
    st.session_state[_ASKED] = new
    return new


def _target(now: Asked, locked: bool) -> tuple[str, float, str]:
    """Draw the target: the metric, and what it must reach in which unit."""
    grid = st.grid(min_column_width=_WIDE_PX, vertical_alignment="bottom")
    metrics = sorted(LOWER, key=lambda name: name != _FIRST_METRIC)
    with grid.cell():
        at = metrics.index(now.metric)
        metric = st.selectbox("so that", metrics, at, key=_key("metric"), format_func=lambda one: BY_NAME[one].title, disabled=locked)
    kind, was = BY_NAME[metric].unit, BY_NAME[now.metric].unit
    units = UNITS[kind]
    first = now.unit if now.unit in units else next(iter(units))
    value_cell, unit = grid.cell(), first
    if len(units) > 1:
        with grid.cell():
            unit = st.selectbox("in", list(units), list(units).index(first), key=_key("unit", kind), disabled=locked)
    limit = now.limit if kind == was else _USUAL[kind]
    with value_cell:
        label = f"{'is at most' if LOWER[metric] else 'is at least'}{f' ({unit})' if unit else ''}"
        shown = float(f"{limit / units[unit]:.6g}")
        value = st.number_input(label, 0.0, value=shown, format="%g", key=_key("limit", kind, unit), disabled=locked)
    return metric, float(value) * units[unit], unit


def _second(study: Study, now: Asked, new: Asked, locked: bool) -> Asked:
    """Draw the second row of nodes that may vary, for the cheapest mix of both."""
    names = _rows(study)
    others = [_NO_ROW, *(at for at in names if at != new.groups[0])]
    was = now.groups[1] if len(now.groups) > 1 and now.groups[1] in others else _NO_ROW
    with st.expander("The cheapest mix of two rows", expanded=was != _NO_ROW, icon=":material/call_split:"):
        grid = st.grid(min_column_width=_CELL_PX, vertical_alignment="bottom")
        with grid.cell():
            row = st.selectbox(
                "and of", others, others.index(was), key=_key("second", new.groups[0]), format_func=lambda at: names.get(at, "no other nodes"), disabled=locked
            )
        if row == _NO_ROW:
            return new
        was_range = (now.low[1], now.high[1]) if row == was else _around(study, row)
        low, high = _range(grid, " ", was_range, (new.groups[0], row), locked)
        with grid.cell():
            budget = now.budget if now.budget < float("inf") else None
            found = st.number_input(
                "Budget (USD per hour)", 0.0, value=budget, format="%g", key=_key("budget"), disabled=locked, placeholder="any", help=_BUDGET
            )
    limit = float("inf") if found is None else float(found)
    return replace(new, groups=(*new.groups, row), low=(*new.low, low), high=(*new.high, high), budget=limit)


def _range(grid: Any, mark: str, ends: tuple[int, int], of: tuple[int, ...], locked: bool) -> tuple[int, int]:
    with grid.cell():
        low = st.number_input(f"from{mark}", 0, _MOST_NODES, ends[0], key=_key("low", *of), disabled=locked)
    with grid.cell():
        high = st.number_input(f"to{mark}", 0, _MOST_NODES, ends[1], key=_key("high", *of), disabled=locked)
    return int(low), int(high)


def _rows(study: Study) -> dict[int, str]:
    names = [row_name(study, at) for at in range(len(study.base.cluster.groups))]
    return {at: words.plain(f"{name} (row {at + 1})" if names.count(name) > 1 else name) for at, name in enumerate(names)}


def _first(study: Study) -> Asked:
    row = max(range(len(study.base.cluster.groups)), key=lambda at: (study.base.cluster.groups[at].count, -at))
    low, high = _around(study, row)
    return Asked((row,), (low,), (high,), _FIRST_METRIC, _FIRST_LIMIT_S, "hours", study.base.trace.load, study.repeats)


def _around(study: Study, row: int) -> tuple[int, int]:
    now = study.base.cluster.groups[row].count
    return max(now // 2, 1), min(5 * now, now + _MORE)


def unit_of(metric: str, limit: float) -> str:
    """Return the unit in which a target is entered: the largest of which it is at least one."""
    units = UNITS[BY_NAME[metric].unit]
    fitting = [name for name, size in sorted(units.items(), key=lambda item: -item[1]) if limit >= size]
    return fitting[0] if fitting else next(iter(units))


def _key(*parts: object) -> str:
    return state.widget("plan", *parts, st.session_state.get(_EDITION, 0))


_USUAL: Final = {"s": 3600.0, "1": 0.9, "USD": 10.0, "": 0.0}
_LOAD: Final = "Arrivals are compressed in time by this factor: 1.3 = 30 % more jobs per hour. 1 = as recorded."
_REPEATS: Final = "Runs of every size, each with the next seed; the target must be met by their mean. Where nothing is random, all of them are equal."
_BUDGET: Final = "What the whole cluster may cost per hour; mixes that cost more are not tried. Empty = any."
