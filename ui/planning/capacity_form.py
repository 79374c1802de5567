"""The question of capacity as a sentence to fill in: which nodes, what must hold, and how much; the
range, load and repeats under More.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import streamlit as st

from sim.errors import ParameterError
from sim.metrics.registry import COLUMNS
from trainyard.study.search import LOWER, MOST_SIZES, SizeQuestion
from trainyard.study.study import Study
from trainyard.sweeps import sentences
from trainyard.sweeps.axes import row_name
from ui import state, words

_ASKED: Final = "plan_asked"
_EDITION: Final = "plan_edition"
_FIRST_METRIC: Final = "queue_p95_s"
_FIRST_LIMIT_S: Final = 3600.0
_TIMES: Final = 16
"""How many times as many nodes as there are a search comes to at most by itself."""
_MORE: Final = 20
"""Nodes more than there are, at which a range that is looked at wholly ends at first."""
_MOST_REPEATS: Final = 50
_NO_ROW: Final = -1
_MOST_NODES: Final = 100_000


@dataclass(frozen=True)
class PlanRequest:
    """What the form holds, beside the scenario.

    Parameters
    ----------
    groups, low, high : tuple of int
        Rows of nodes that vary, and their ranges.
    metric, limit : str, float
        The target, in the metric's own unit.
    load, repeats : float, int
        What the scenario's are replaced by.
    budget : float, USD per hour
        Of the whole cluster, for two rows; inf = any.
    begin : int
        The size at which a search begins that finds its range by itself; 0 = the range is given.
    """

    groups: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    metric: str
    limit: float
    load: float
    repeats: int
    budget: float = float("inf")
    begin: int = 0

    def question(self, study: Study) -> SizeQuestion:
        """Return the question about a study.

        Raises
        ------
        ParameterError
            If the parts do not go together.
        """
        study = with_load(study, self.load, self.repeats)
        return SizeQuestion(
            study,
            self.groups,
            self.low,
            self.high,
            self.metric,
            self.limit,
            budget_per_h=self.budget,
            begin=self.begin,
        )


def with_load(study: Study, load: float, repeats: int) -> Study:
    """Return the study at another load, with other repeats."""
    base = study.base
    return replace(study, base=replace(base, trace=replace(base.trace, load=load)), repeats=repeats)


def of_question(question: SizeQuestion) -> PlanRequest:
    """Return what the form holds for a question."""
    study = question.study
    return PlanRequest(
        question.groups,
        question.low,
        question.high,
        question.metric,
        question.limit,
        study.base.trace.load,
        study.repeats,
        question.budget_per_h,
        question.begin,
    )


def asked(study: Study) -> PlanRequest:
    """Return what the form of this session holds; at first, or where the machines have become
    others, a usual question.
    """
    if st.session_state.pop(state.SIZE_CLUSTER, False):
        take(_first(study))
    found: PlanRequest | None = st.session_state.get(_ASKED)
    rows = len(study.base.cluster.groups)
    if found is None or any(at >= rows for at in found.groups):
        found = _first(study)
    return found


def take(new: PlanRequest) -> None:
    """Let the form hold something else."""
    st.session_state.pop(state.SIZE_CLUSTER, None)
    st.session_state[_ASKED] = new
    st.session_state[_EDITION] = st.session_state.get(_EDITION, 0) + 1


def draw(study: Study, now: PlanRequest, *, locked: bool) -> PlanRequest:
    """Draw the form as a sentence and return what it holds."""
    names = _rows(study)
    st.markdown("Find the fewest")
    row = st.selectbox(
        "Nodes",
        list(names),
        now.groups[0],
        key=_key("row"),
        format_func=lambda at: f"{names[at]} nodes",
        disabled=locked,
        label_visibility="collapsed",
        width=190,
    )
    st.markdown("so that")
    metrics = sorted(LOWER, key=lambda name: name != _FIRST_METRIC)
    metric = st.selectbox(
        "Target",
        metrics,
        metrics.index(now.metric),
        key=_key("metric"),
        format_func=sentences.target,
        disabled=locked,
        label_visibility="collapsed",
        width=320,
    )
    limit = _limit(now, metric, locked)
    with st.popover("More", icon=":material/tune:", key="plan_more"):
        new = _more(study, replace(now, metric=metric, limit=limit), row, locked)
    st.session_state[_ASKED] = new
    return new


def _limit(now: PlanRequest, metric: str, locked: bool) -> float:
    """Draw the amount of the target; one that cannot be read is said, and the last one stays."""
    same = COLUMNS[metric].unit == COLUMNS[now.metric].unit
    limit = now.limit if same else _USUAL[COLUMNS[metric].unit]
    typed = st.text_input(
        "Amount",
        sentences.limit_text(metric, limit),
        key=_key("limit", metric if not same else COLUMNS[metric].unit),
        disabled=locked,
        label_visibility="collapsed",
        width=110,
        max_chars=40,
    )
    try:
        return sentences.read_limit(metric, typed)
    except ParameterError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return limit


def _more(study: Study, now: PlanRequest, row: int, locked: bool) -> PlanRequest:
    """Draw what is seldom changed: the range, the load, repeats, a second kind of node."""
    new = _own_range(study, now, row, locked)
    with st.container(horizontal=True):
        load = st.number_input(
            "Load ×",
            0.001,
            1000.0,
            now.load,
            0.1,
            format="%g",
            key=_key("load"),
            disabled=locked,
            help=_LOAD,
            width=150,
        )
        repeats = st.number_input(
            "Repeats",
            1,
            max(_MOST_REPEATS, now.repeats),
            now.repeats,
            key=_key("repeats"),
            disabled=locked,
            help=_REPEATS,
            width=150,
        )
    new = replace(new, load=float(load), repeats=int(repeats))
    return _second(study, now, new, locked) if len(study.base.cluster.groups) > 1 else new


def _own_range(study: Study, now: PlanRequest, row: int, locked: bool) -> PlanRequest:
    """Draw whether the search finds its range, and the range if not."""
    itself = st.toggle(
        "The search finds the range",
        bool(now.begin),
        key=_key("itself"),
        disabled=locked or len(now.groups) > 1,
        help=_ITSELF,
    )
    low, high, begin = _found(study, row)
    if not itself or len(now.groups) > 1:
        given = row == now.groups[0] and not now.begin
        ends = (now.low[0], now.high[0]) if given else _around(study, row)
        (low, high), begin = _range(ends, (row,), locked), 0
    return replace(now, groups=(row,), low=(low,), high=(high,), budget=float("inf"), begin=begin)


def _second(study: Study, now: PlanRequest, new: PlanRequest, locked: bool) -> PlanRequest:
    """Draw the second row of nodes that may vary, for the cheapest mix of both."""
    names = _rows(study)
    others = [_NO_ROW, *(at for at in names if at != new.groups[0])]
    was = now.groups[1] if len(now.groups) > 1 and now.groups[1] in others else _NO_ROW
    row = st.selectbox(
        "Mix two node types",
        others,
        others.index(was),
        key=_key("second", new.groups[0]),
        format_func=lambda at: f"with {names[at]} nodes" if at in names else "no second type",
        disabled=locked,
    )
    if row == _NO_ROW:
        return new
    if new.begin:
        low, high = _around(study, new.groups[0])
        new = replace(new, low=(low,), high=(high,), begin=0)
    was_range = (now.low[1], now.high[1]) if row == was else _around(study, row)
    low, high = _range(was_range, (new.groups[0], row), locked)
    found = st.number_input(
        "Budget (USD per hour)",
        0.0,
        value=now.budget if now.budget < float("inf") else None,
        format="%g",
        key=_key("budget"),
        disabled=locked,
        placeholder="any",
        help=_BUDGET,
    )
    limit = float("inf") if found is None else float(found)
    return replace(
        new, groups=(*new.groups, row), low=(*new.low, low), high=(*new.high, high), budget=limit
    )


def _range(ends: tuple[int, int], of: tuple[int, ...], locked: bool) -> tuple[int, int]:
    with st.container(horizontal=True):
        low, high = (
            st.number_input(
                title, 0, _MOST_NODES, end, key=_key(title, *of), disabled=locked, width=150
            )
            for title, end in zip(("From", "To"), ends, strict=True)
        )
    return int(low), int(high)


def _rows(study: Study) -> dict[int, str]:
    names = [row_name(study, at) for at in range(len(study.base.cluster.groups))]
    return {
        at: words.plain(f"{name} (row {at + 1})" if names.count(name) > 1 else name)
        for at, name in enumerate(names)
    }


def _first(study: Study) -> PlanRequest:
    row = max(
        range(len(study.base.cluster.groups)),
        key=lambda at: (study.base.cluster.groups[at].count, -at),
    )
    low, high, begin = _found(study, row)
    return PlanRequest(
        (row,),
        (low,),
        (high,),
        _FIRST_METRIC,
        _FIRST_LIMIT_S,
        study.base.trace.load,
        study.repeats,
        begin=begin,
    )


def _found(study: Study, row: int) -> tuple[int, int, int]:
    """Return where the search may go by itself, and where it begins: at what there is."""
    begin = max(study.base.cluster.groups[row].count, 1)
    low = 0 if len(study.base.cluster.groups) > 1 else 1
    return low, max(min(_TIMES * begin, _MOST_NODES, MOST_SIZES - 1), begin), begin


def _around(study: Study, row: int) -> tuple[int, int]:
    now = study.base.cluster.groups[row].count
    return max(now // 2, 1), min(5 * now, now + _MORE)


def _key(*parts: object) -> str:
    return state.widget("plan", *parts, st.session_state.get(_EDITION, 0))


_USUAL: Final = {"s": 3600.0, "1": 0.9, "USD": 10.0, "": 0.0}
_ITSELF: Final = (
    "From the nodes that there are the search doubles until the target is met, then bisects. Off ="
    " all of a range is looked at."
)
_LOAD: Final = "Arrivals are compressed in time by this factor: 1.3 = 30 % more jobs per hour. 1 = as recorded."  # noqa: E501
_REPEATS: Final = (
    "Runs of every size, each with the next seed; the target must be met by their"
    " mean. Where nothing is random, all repeats are equal."
)
_BUDGET: Final = (
    "What the whole cluster may cost per hour; mixes that cost more are not tried. Empty = any."
)
