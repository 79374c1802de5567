"""The form of a purchase search: target, limit, node types, budget, load, repeats."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import streamlit as st

from sim.cluster import KNOWN_TYPES, Cluster, NodeGroup
from sim.errors import ParameterError
from sim.metrics.registry import COLUMNS
from trainyard.formatting import gpu_type
from trainyard.study.size_question import HOURS_A_MONTH, LOWER, MAX_SIZES, SizeQuestion
from trainyard.study.size_search import MAX_TYPES
from trainyard.study.study import Study
from trainyard.sweeps import summaries
from trainyard.sweeps.axes import group_name
from ui import state, words

_REQUEST: Final = "plan_asked"
_EDITION: Final = "plan_edition"
_FIRST_METRIC: Final = "queue_p95_s"
_FIRST_LIMIT_S: Final = 3600.0
_FIRST_TYPES: Final = ("h100", "t4", "a100", "v100")
"""GPU types offered at first, after those of the cluster."""
_TIMES: Final = 16
"""Maximum number of nodes of a type, as a multiple of the cluster's nodes."""
_MAX_REPEATS: Final = 50
_A_MONTH: Final = "a month"

NodeType = int | str
"""A node type to buy: the row of the cluster, or the name of another GPU type."""


@dataclass(frozen=True)
class PlanRequest:
    """Values of the form, without the scenario.

    Parameters
    ----------
    types : tuple of int or str
        Node types that can be bought.
    metric, limit : str, float
        The target, in the unit of the metric.
    budget : float, USD per month
        Limit of the extra cost; inf = none.
    load, repeats : float, int
        Values that replace those of the scenario.
    can_shrink : bool
        Whether owned nodes of these types may go.
    """

    types: tuple[NodeType, ...]
    metric: str
    limit: float
    budget: float
    load: float
    repeats: int
    can_shrink: bool = False

    def question(self, study: Study) -> SizeQuestion:
        """Return the purchase search of a study with these values.

        Raises
        ------
        ParameterError
            If the values contradict each other.
        """
        study = with_load_and_repeats(study, self.load, self.repeats)
        rows = study.base.cluster.groups
        types = sorted(self.types, key=lambda one: isinstance(one, str))  # owned rows first
        names = [name for name in types if isinstance(name, str)]
        offers = tuple(
            replace(_model_row(study), gpu_type=name, name="", hosts="", price_per_hour=None)
            for name in names
        )
        groups = tuple(
            len(rows) + names.index(one) if isinstance(one, str) else one for one in types
        )
        owned = tuple(rows[group].count if group < len(rows) else 0 for group in groups)
        low = tuple(0 if self.can_shrink else count for count in owned)
        most = max(min(_TIMES * sum(row.count for row in rows), MAX_SIZES - 1), 1)
        bounds = tuple(max(count, most) for count in owned)
        question = SizeQuestion(study, groups, low, bounds, self.metric, self.limit, offers=offers)
        price = question.price_per_h(owned)
        if not price or math.isinf(self.budget):
            return question
        return replace(question, budget_per_h=price + self.budget / HOURS_A_MONTH)


def with_load_and_repeats(study: Study, load: float, repeats: int) -> Study:
    """Return the study with another load factor and number of repeats."""
    base = study.base
    return replace(study, base=replace(base, trace=replace(base.trace, load=load)), repeats=repeats)


def request_of(question: SizeQuestion) -> PlanRequest:
    """Return the form values of a purchase search."""
    study, rows = question.study, len(question.study.base.cluster.groups)
    return PlanRequest(
        tuple(
            group if group < rows else question.rows[group].gpu_type for group in question.groups
        ),
        question.metric,
        question.limit,
        max(round(question.budget_per_month, 2), 0.0),
        study.base.trace.load,
        study.repeats,
        question.low != question.owned,
    )


def current_request(study: Study) -> PlanRequest:
    """Return the form values of this session, else defaults for the cluster.

    Defaults also replace values for rows that the cluster lacks, and on a request from Compare.
    """
    if st.session_state.pop(state.SIZE_CLUSTER, False):
        set_request(_default_request(study))
    request: PlanRequest | None = st.session_state.get(_REQUEST)
    if request is None or not set(request.types) <= _type_labels(study).keys():
        request = _default_request(study)
    return request


def set_request(new: PlanRequest) -> None:
    """Replace the values of the form, and reset its widgets."""
    st.session_state.pop(state.SIZE_CLUSTER, None)
    st.session_state[_REQUEST] = new
    st.session_state[_EDITION] = st.session_state.get(_EDITION, 0) + 1


def draw(study: Study, request: PlanRequest, *, is_locked: bool) -> PlanRequest:
    """Draw the form as a sentence; return its values and keep them in the session.

    Raises
    ------
    ParameterError
        If no node type is chosen.
    """
    names = _type_labels(study)
    st.markdown("I want")
    metrics = sorted(LOWER, key=lambda name: name != _FIRST_METRIC)
    metric = st.selectbox(
        "Target",
        metrics,
        metrics.index(request.metric),
        key=_widget_key("metric"),
        format_func=summaries.target_metric,
        disabled=is_locked,
        label_visibility="collapsed",
        width=190,
    )
    st.markdown("under" if LOWER[metric] else "over")
    limit = _draw_limit(request, metric, is_locked)
    st.markdown("and can buy")
    types = st.multiselect(
        "Node types",
        list(names),
        list(request.types),
        key=_widget_key("types"),
        format_func=names.__getitem__,
        max_selections=MAX_TYPES,
        placeholder="node types",
        disabled=is_locked,
        label_visibility="collapsed",
        width=350,
    )
    budget = request.budget
    if study.base.cluster.price_per_hour:
        st.markdown("for up to")
        budget = _draw_budget(request, is_locked)
    with st.popover("More", icon=":material/tune:", key="plan_more"):
        changed = _draw_more(replace(request, metric=metric, limit=limit), is_locked)
    changed = replace(changed, types=tuple(types), budget=budget)
    if not types:
        raise ParameterError("Choose at least one node type that you can buy.")
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
        width=80,
        max_chars=40,
    )
    return _parse_value(metric, typed, limit)


def _draw_budget(request: PlanRequest, is_locked: bool) -> float:
    """Draw the budget; return it, inf if empty, or the last one (and an error) if invalid."""
    shown = "" if math.isinf(request.budget) else f"${request.budget:,.0f} {_A_MONTH}"
    typed = st.text_input(
        "Budget",
        shown,
        key=_widget_key("budget"),
        disabled=is_locked,
        placeholder="any price",
        label_visibility="collapsed",
        width=165,
        max_chars=40,
    )
    amount = typed.strip().removesuffix(_A_MONTH)
    if typed == shown or not amount:
        return request.budget if typed == shown else math.inf
    return _parse_value("cost_cluster_usd", amount, request.budget)


def _parse_value(metric: str, typed: str, default: float) -> float:
    """Return a typed value of a metric; if it is invalid draw an error and return the default."""
    try:
        return summaries.parse_limit(metric, typed)
    except ParameterError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return default


def _draw_more(request: PlanRequest, is_locked: bool) -> PlanRequest:
    """Draw load, repeats and whether owned nodes may go; return the request with them."""
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
    )
    repeats = st.number_input(
        "Repeats",
        1,
        max(_MAX_REPEATS, request.repeats),
        request.repeats,
        key=_widget_key("repeats"),
        disabled=is_locked,
        help=_REPEATS,
    )
    can_shrink = st.toggle(
        "Fewer nodes too",
        request.can_shrink,
        key=_widget_key("shrink"),
        disabled=is_locked,
        help=_SHRINK,
    )
    return replace(request, load=float(load), repeats=int(repeats), can_shrink=can_shrink)


def _type_labels(study: Study) -> dict[NodeType, str]:
    """Return the node types that can be bought, with labels: rows, then other GPU types.

    Rows with equal names get their number. Only types with a price are offered.
    """
    cluster = study.base.cluster
    rows = cluster.groups
    names = [group_name(row) for row in rows]
    labels: dict[NodeType, str] = {
        at: words.plain(f"{name} (row {at + 1})" if names.count(name) > 1 else name)
        for at, name in sorted(enumerate(names), key=lambda item: (-rows[item[0]].count, item[0]))
        # A type without a price would count as free.
        if not cluster.price_per_hour
        or Cluster((replace(rows[at], count=1),), cluster.types).price_per_hour
    }
    if _model_row(study).gpus and cluster.price_per_hour:
        labels |= {
            name: gpu_type(name)
            for name, kind in KNOWN_TYPES.items()
            if kind.price_per_gpu_hour and name not in {row.gpu_type for row in rows}
        }
    return labels


def _model_row(study: Study) -> NodeGroup:
    """Return the row of the cluster with most nodes; nodes of other types are built like it."""
    return max(study.base.cluster.groups, key=lambda row: (row.gpus > 0, row.count))


def _default_request(study: Study) -> PlanRequest:
    """Return the default search: all rows and common types, for about the current price."""
    labels = _type_labels(study)
    types = [name for name in labels if isinstance(name, int) or name in _FIRST_TYPES]
    types.sort(key=lambda one: _FIRST_TYPES.index(one) if isinstance(one, str) else -1)
    usd = study.base.cluster.price_per_hour * HOURS_A_MONTH
    step = 10.0 ** max(math.floor(math.log10(usd)) - 1, 0) if usd else 1.0
    return PlanRequest(
        tuple(types[:MAX_TYPES]),
        _FIRST_METRIC,
        _FIRST_LIMIT_S,
        math.floor(usd / step) * step if usd else math.inf,
        study.base.trace.load,
        study.repeats,
    )


def _widget_key(*parts: object) -> str:
    """Return a widget key that changes when the form values are replaced."""
    return state.widget_key("plan", *parts, st.session_state.get(_EDITION, 0))


_USUAL: Final = {"s": 3600.0, "1": 0.9, "USD": 10.0, "": 0.0}
_LOAD: Final = "Compresses arrivals in time: 1.3 = 30 % more jobs per hour, 1 = as recorded."
_REPEATS: Final = (
    "Runs per purchase, each with the next seed; their mean must meet the target. Without random"
    " draws all repeats are equal."
)
_SHRINK: Final = (
    "Also tries clusters with fewer nodes of these types than you own, to see how few would do."
)
