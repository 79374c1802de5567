"""The form of a capacity search: node rows, target, limit, range, load, repeats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import streamlit as st

from sim.errors import ParameterError
from sim.metrics.registry import COLUMNS
from trainyard.study.size_question import LOWER, MAX_SIZES, SizeQuestion
from trainyard.study.study import Study
from trainyard.sweeps import summaries
from trainyard.sweeps.axes import row_name
from ui import state, words

_REQUEST: Final = "plan_asked"
_EDITION: Final = "plan_edition"
_FIRST_METRIC: Final = "queue_p95_s"
_FIRST_LIMIT_S: Final = 3600.0
_TIMES: Final = 16
"""Maximum size of an automatic range, as a multiple of the current nodes."""
_MORE: Final = 20
"""Initial upper end of a fixed range, as nodes above the current count."""
_MAX_REPEATS: Final = 50
_NO_ROW: Final = -1
_MAX_NODES: Final = 100_000


@dataclass(frozen=True)
class PlanRequest:
    """Values of the form, without the scenario.

    Parameters
    ----------
    groups, low, high : tuple of int
        Node rows that vary, and their ranges.
    metric, limit : str, float
        The target, in the unit of the metric.
    load, repeats : float, int
        Values that replace those of the scenario.
    budget : float, USD per hour
        Limit of the whole cluster, for two rows; inf = none.
    begin : int
        First size of a search with an automatic range; 0 = the range is given.
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
        """Return the capacity search of a study with these values.

        Raises
        ------
        ParameterError
            If the values contradict each other.
        """
        study = with_load_and_repeats(study, self.load, self.repeats)
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


def with_load_and_repeats(study: Study, load: float, repeats: int) -> Study:
    """Return the study with another load factor and number of repeats."""
    base = study.base
    return replace(study, base=replace(base, trace=replace(base.trace, load=load)), repeats=repeats)


def request_of(question: SizeQuestion) -> PlanRequest:
    """Return the form values of a capacity search."""
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


def current_request(study: Study) -> PlanRequest:
    """Return the form values of this session, else defaults for the cluster.

    Defaults also replace values for rows that the cluster lacks, and on a request from Compare.
    """
    if st.session_state.pop(state.SIZE_CLUSTER, False):
        set_request(_default_request(study))
    request: PlanRequest | None = st.session_state.get(_REQUEST)
    rows = len(study.base.cluster.groups)
    if request is None or any(row >= rows for row in request.groups):
        request = _default_request(study)
    return request


def set_request(new: PlanRequest) -> None:
    """Replace the values of the form, and reset its widgets."""
    st.session_state.pop(state.SIZE_CLUSTER, None)
    st.session_state[_REQUEST] = new
    st.session_state[_EDITION] = st.session_state.get(_EDITION, 0) + 1


def draw(study: Study, request: PlanRequest, *, is_locked: bool) -> PlanRequest:
    """Draw the form as a sentence; return its values and keep them in the session."""
    names = _row_labels(study)
    st.markdown("Find the fewest")
    row = st.selectbox(
        "Nodes",
        list(names),
        request.groups[0],
        key=_widget_key("row"),
        format_func=lambda row_index: f"{names[row_index]} nodes",
        disabled=is_locked,
        label_visibility="collapsed",
        width=190,
    )
    st.markdown("so that")
    metrics = sorted(LOWER, key=lambda name: name != _FIRST_METRIC)
    metric = st.selectbox(
        "Target",
        metrics,
        metrics.index(request.metric),
        key=_widget_key("metric"),
        format_func=summaries.target_condition,
        disabled=is_locked,
        label_visibility="collapsed",
        width=320,
    )
    limit = _draw_limit(request, metric, is_locked)
    with st.popover("More", icon=":material/tune:", key="plan_more"):
        changed = _draw_more(study, replace(request, metric=metric, limit=limit), row, is_locked)
    st.session_state[_REQUEST] = changed
    return changed


def _draw_limit(request: PlanRequest, metric: str, is_locked: bool) -> float:
    """Draw the limit of the target; return it, or the last one (and an error) if invalid.

    A metric of another unit starts at a usual limit.
    """
    same_unit = COLUMNS[metric].unit == COLUMNS[request.metric].unit
    limit = request.limit if same_unit else _USUAL[COLUMNS[metric].unit]
    typed = st.text_input(
        "Amount",
        summaries.format_limit(metric, limit),
        key=_widget_key("limit", metric if not same_unit else COLUMNS[metric].unit),
        disabled=is_locked,
        label_visibility="collapsed",
        width=110,
        max_chars=40,
    )
    try:
        return summaries.parse_limit(metric, typed)
    except ParameterError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return limit


def _draw_more(study: Study, request: PlanRequest, row: int, is_locked: bool) -> PlanRequest:
    """Draw range, load, repeats and second node type; return the request with them."""
    changed = _draw_range_choice(study, request, row, is_locked)
    with st.container(horizontal=True):
        load = st.number_input(
            "Load multiplier",
            0.001,
            1000.0,
            request.load,
            0.1,
            format="%g",
            key=_widget_key("load"),
            disabled=is_locked,
            help=_LOAD,
            width=150,
        )
        repeats = st.number_input(
            "Repeats",
            1,
            max(_MAX_REPEATS, request.repeats),
            request.repeats,
            key=_widget_key("repeats"),
            disabled=is_locked,
            help=_REPEATS,
            width=150,
        )
    changed = replace(changed, load=float(load), repeats=int(repeats))
    return (
        _draw_second_type(study, request, changed, is_locked)
        if len(study.base.cluster.groups) > 1
        else changed
    )


def _draw_range_choice(
    study: Study, request: PlanRequest, row: int, is_locked: bool
) -> PlanRequest:
    """Draw the choice of an automatic or given range; return the request for this row only.

    Drops a second row and the budget. `begin` > 0 = automatic.
    """
    is_automatic = st.toggle(
        "Automatic range",
        bool(request.begin),
        key=_widget_key("itself"),
        disabled=is_locked or len(request.groups) > 1,
        help=_ITSELF,
    )
    low, high, begin = _automatic_range(study, row)
    if not is_automatic or len(request.groups) > 1:
        is_range_of_row = row == request.groups[0] and not request.begin
        ends = (request.low[0], request.high[0]) if is_range_of_row else _range_around(study, row)
        (low, high), begin = _draw_range(ends, (row,), is_locked), 0
    return replace(
        request, groups=(row,), low=(low,), high=(high,), budget=float("inf"), begin=begin
    )


def _draw_second_type(
    study: Study, request: PlanRequest, changed: PlanRequest, is_locked: bool
) -> PlanRequest:
    """Draw the choice of a second node row, its range, and a budget; return the request.

    Without a second row the request is unchanged.
    """
    names = _row_labels(study)
    others = [_NO_ROW, *(row_index for row_index in names if row_index != changed.groups[0])]
    before_row = (
        request.groups[1] if len(request.groups) > 1 and request.groups[1] in others else _NO_ROW
    )
    row = st.selectbox(
        "Mix two node types",
        others,
        others.index(before_row),
        key=_widget_key("second", changed.groups[0]),
        format_func=lambda row_index: (
            f"with {names[row_index]} nodes" if row_index in names else "no second type"
        ),
        disabled=is_locked,
    )
    if row == _NO_ROW:
        return changed
    if changed.begin:
        low, high = _range_around(study, changed.groups[0])
        changed = replace(changed, low=(low,), high=(high,), begin=0)
    before_range = (
        (request.low[1], request.high[1]) if row == before_row else _range_around(study, row)
    )
    low, high = _draw_range(before_range, (changed.groups[0], row), is_locked)
    budget = st.number_input(
        "Budget (USD per hour)",
        0.0,
        value=request.budget if request.budget < float("inf") else None,
        format="%g",
        key=_widget_key("budget"),
        disabled=is_locked,
        placeholder="any",
        help=_BUDGET,
    )
    limit = float("inf") if budget is None else float(budget)
    return replace(
        changed,
        groups=(*changed.groups, row),
        low=(*changed.low, low),
        high=(*changed.high, high),
        budget=limit,
    )


def _draw_range(ends: tuple[int, int], rows: tuple[int, ...], is_locked: bool) -> tuple[int, int]:
    """Draw two number fields for a range of nodes; return (low, high)."""
    with st.container(horizontal=True):
        low, high = (
            st.number_input(
                title,
                0,
                _MAX_NODES,
                end,
                key=_widget_key(title, *rows),
                disabled=is_locked,
                width=150,
            )
            for title, end in zip(("From", "To"), ends, strict=True)
        )
    return int(low), int(high)


def _row_labels(study: Study) -> dict[int, str]:
    """Return row index -> label of the node rows; equal names get their row number."""
    names = [row_name(study, row) for row in range(len(study.base.cluster.groups))]
    return {
        row: words.plain(f"{name} (row {row + 1})" if names.count(name) > 1 else name)
        for row, name in enumerate(names)
    }


def _default_request(study: Study) -> PlanRequest:
    """Return the default search: the row with most nodes, and a 95th percentile wait."""
    row = max(
        range(len(study.base.cluster.groups)),
        key=lambda row_index: (study.base.cluster.groups[row_index].count, -row_index),
    )
    low, high, begin = _automatic_range(study, row)
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


def _automatic_range(study: Study, row: int) -> tuple[int, int, int]:
    """Return (low, high, first size) of an automatic range of nodes for a row.

    The first size is the current number of nodes, and high at most 16 times as many.
    """
    begin = max(study.base.cluster.groups[row].count, 1)
    low = 0 if len(study.base.cluster.groups) > 1 else 1
    return low, max(min(_TIMES * begin, _MAX_NODES, MAX_SIZES - 1), begin), begin


def _range_around(study: Study, row: int) -> tuple[int, int]:
    """Return (low, high): half the nodes of a row, to five times or 20 more nodes."""
    current = study.base.cluster.groups[row].count
    return max(current // 2, 1), min(5 * current, current + _MORE)


def _widget_key(*parts: object) -> str:
    """Return a widget key that changes when the form values are replaced."""
    return state.widget_key("plan", *parts, st.session_state.get(_EDITION, 0))


_USUAL: Final = {"s": 3600.0, "1": 0.9, "USD": 10.0, "": 0.0}
_ITSELF: Final = (
    "On: doubles the current nodes until the target is met, then bisects. Off: searches a range"
    " that you set."
)
_LOAD: Final = "Compresses arrivals in time: 1.3 = 30 % more jobs per hour, 1 = as recorded."
_REPEATS: Final = (
    "Runs per size, each with the next seed; their mean must meet the target. Without random draws"
    " all repeats are equal."
)
_BUDGET: Final = (
    "Maximum price of the whole cluster per hour; dearer mixes are not tried. Empty: no limit."
)
