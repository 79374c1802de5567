"""Sentences about size searches and sweeps: costs in time, answers, targets, failures."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sim.errors import ParameterError
from sim.metrics.registry import COLUMNS
from sim.params import Spec
from trainyard.formatting import BY_UNIT, money, plural, time
from trainyard.runs.estimate import Estimate
from trainyard.runs.executors import DASK, DEFAULT, cores
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.size_question import SizeQuestion
from trainyard.study.size_search import Size
from trainyard.study.study import Study
from trainyard.sweeps.axes import row_name
from trainyard.sweeps.plan import HOURS_A_MONTH, PolicyAnswer
from trainyard.traces.new_study import FIRST_POLICIES
from trainyard.traces.sources import load_trace

_START_S: Final = 2.0
"""Seconds to start the processes."""
_EACH_S: Final = 0.1
"""Seconds per run, independent of its jobs."""
_MAX_REASONS: Final = 3
_TARGET_UNITS: Final = (
    (2 * 86_400.0, 86_400.0, "days"),
    (3600.0, 3600.0, "h"),
    (60.0, 60.0, "min"),
    (0.0, 1.0, "s"),
)
"""(minimum seconds, seconds per unit, name) of the units of a target."""
_AMOUNT: Final = re.compile(r"\$?\s*(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>[A-Za-z%]*)")
_SCALES: Final[Mapping[str, Mapping[str, float]]] = {
    "s": {
        **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
        **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
        **dict.fromkeys(("", "h", "hour", "hours"), 3600.0),
        **dict.fromkeys(("d", "day", "days"), 86_400.0),
    },
    "1": {"": 0.01, "%": 0.01},
    "USD": {"": 1.0, "usd": 1.0},
    "": {"": 1.0},
}
"""Unit of a metric -> suffix of a typed target -> factor to that unit."""
_EXAMPLES: Final = {"s": "45 s, 30 min, 1 h or 2 days", "1": "90 %", "USD": "12", "": "1.5"}


def without_replays(study: Study, store: Store) -> tuple[Study | None, dict[str, str]]:
    """Return the study of policies that can run at other sizes, and why others are left out.

    A policy that replays the recorded schedule is left out: it does not depend on cluster or load.
    The study is None if no policy remains; reasons are by title.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    trace, left_out, indices = load_trace(study.base.trace, store), dict[str, str](), list[int]()
    for at, (spec, title) in enumerate(zip(study.allocators, study.titles, strict=True)):
        choice = catalog.allocator(spec, trace, study.base.perf)
        if "recorded_start" in choice.needs.reads:
            left_out[title] = "It does not depend on cluster or load."
        elif choice.reason:
            left_out[title] = choice.reason
        else:
            indices.append(at)
    if not indices:
        return None, left_out
    return study.only(indices), left_out


def suggest_policy(study: Study, store: Store) -> tuple[Spec, str] | None:
    """Return a policy to add to the study, with its title: of `FIRST_POLICIES` the last first.

    None if no other policy can run.
    """
    present = {spec.name for spec in study.allocators}
    choices = catalog.allocator_choices(load_trace(study.base.trace, store), study.base.perf)
    free = [
        one
        for one in choices
        if one.name not in present and not one.reason and "recorded_start" not in one.needs.reads
    ]
    free.sort(
        key=lambda one: (
            one.name not in FIRST_POLICIES,
            -FIRST_POLICIES.index(one.name) if one.name in FIRST_POLICIES else 0,
        )
    )
    return (Spec(free[0].name), free[0].title) if free else None


def parallel_runs(where: str) -> int:
    """Return the number of parallel runs of an executor name; an estimate for Dask."""
    kind, _, count = where.partition(":")
    if where.startswith(DASK):
        return cores()
    return (
        int(count)
        if kind == DEFAULT and count.isdecimal() and int(count)
        else cores()
        if kind == DEFAULT
        else 1
    )


def executor_text(where: str) -> str:
    """Return where an executor runs, as text."""
    if where.startswith(DASK):
        return f"on the workers of the Dask scheduler at {where.removeprefix(DASK)}"
    return f"on this server, {parallel_runs(where)} in parallel"


def batch_seconds(one_process: Estimate, runs: int, where: str) -> float:
    """Return the seconds of a number of runs, from an estimate for one process."""
    return _START_S + (
        _EACH_S + one_process.seconds / max(one_process.runs, 1)
    ) * runs / parallel_runs(where)


def amount(metric: str, value: float) -> str:
    """Return a value of a metric with its unit."""
    return BY_UNIT[COLUMNS[metric].unit](value)


def size_text(question: SizeQuestion, size: Size) -> str:
    """Return a size as text: "14 nodes", or "2 A100 and 3 V100 nodes"."""
    if len(question.study.base.cluster.groups) == 1:
        return plural(size[0], "node")
    if len(size) == 1:
        return plural(size[0], f"{row_name(question.study, question.groups[0])} node")
    return (
        f"{' and '.join(f'{count} {row_name(question.study, at)}' for at, count in zip(question.groups, size, strict=True))}"  # noqa: E501
        " nodes"
    )


def fixed_nodes_text(question: SizeQuestion) -> str:
    """Return the nodes that do not vary as text: "4 V100 nodes"; "" if there are none."""
    groups = question.study.base.cluster.groups
    fixed = [
        f"{group.count} {row_name(question.study, at)}"
        for at, group in enumerate(groups)
        if at not in question.groups and group.count
    ]
    count = sum(group.count for at, group in enumerate(groups) if at not in question.groups)
    return f"{' and '.join(fixed)} {'node' if count == 1 else 'nodes'}" if fixed else ""


def savings_text(answers: Sequence[PolicyAnswer], question: SizeQuestion) -> str:
    """Return what the cheapest policy and the baseline need, and the savings; "" = no answer."""
    answered = [answer for answer in answers if answer.size is not None]
    if not answered:
        return ""
    base = answers[question.study.baseline]
    best = min(answered, key=lambda one: (_price_order(one), one is not base))
    if best is base:
        others = " No policy needs fewer." if len(answers) > 1 else ""
        return f"{base.policy} needs {_need_text(base, question)}.{others}"
    if base.size is None:
        return (
            f"{best.policy} needs {_need_text(best, question)};"
            f" {f'{base.policy} needs more' if base.over else f'no answer for {base.policy} yet'}."
        )
    few = f"{'' if base.over else 'at most '}{sum(base.size)}"
    base_need = few if len(base.size) == 1 else _need_text(base, question)
    first = f"{best.policy} needs {_need_text(best, question)}; {base.policy} needs {base_need}."
    saved = (base.usd_per_h - best.usd_per_h) * HOURS_A_MONTH
    return f"{first} That saves {money(round(saved, -2) or saved)} a month." if saved > 0 else first


def _price_order(answer: PolicyAnswer) -> tuple[float, int]:
    """Return price and number of nodes of an answer, to sort by."""
    assert answer.size is not None, "asked for answers only"
    return answer.usd_per_h, sum(answer.size)


def _need_text(answer: PolicyAnswer, question: SizeQuestion) -> str:
    """Return the needed size as text, "at most" if the search has not ended."""
    assert answer.size is not None, "asked for answers only"
    return f"{'' if answer.over else 'at most '}{size_text(question, answer.size)}"


def missed_text(answer: PolicyAnswer, question: SizeQuestion) -> str:
    """Return the sentence on a policy that meets the target at no size, with its nearest miss."""
    within = (
        ""
        if math.isinf(question.budget_per_h)
        else f" within {money(question.budget_per_h)} per hour"
    )
    most = f"{' and '.join(map(str, question.high))}{within}"
    near = answer.nearest
    if near is None:
        return f"Not met up to {most} with {answer.policy}: no size gave a result."
    part = (
        "" if near.completed >= 1 else f", with {100 * near.completed:.1f} % of the jobs completed"
    )
    title = COLUMNS[question.metric].title
    return (
        f"Not met up to {most}: {title} {amount(question.metric, near.value)} at"
        f" {size_text(question, near.size)} with {answer.policy}{part}."
    )


def nearest_miss(answer: PolicyAnswer, question: SizeQuestion) -> str:
    """Return the nearest miss as text: "80 min at 4 V100 nodes"."""
    near = answer.nearest
    if near is None:
        return "no result at any size"
    return f"{amount(question.metric, near.value)} at {size_text(question, near.size)}"


def one_fewer(answer: PolicyAnswer, question: SizeQuestion) -> str:
    """Return the metric with one node fewer as text; "" = not tried."""
    return "" if math.isnan(answer.fewer) else amount(question.metric, answer.fewer)


def target_condition(metric: str) -> str:
    """Return the condition of a target without its value: "95 % of jobs wait at most"."""
    about = COLUMNS[metric]
    most = "at most" if about.better == "lower" else "at least"
    return about.target or f"{about.title} is {most}"


def format_limit(metric: str, limit: float) -> str:
    """Return the value of a target as users type it: "1 h", "90 %", "$12.00"."""
    unit = COLUMNS[metric].unit
    if unit == "s":
        size, name = next(
            (one[1:] for one in _TARGET_UNITS if limit >= one[0]), _TARGET_UNITS[-1][1:]
        )
        return f"{limit / size:.6g} {name}"
    return {"1": f"{100 * limit:.6g} %", "USD": f"${limit:,.6g}"}.get(unit, f"{limit:.6g}")


def parse_limit(metric: str, text: str) -> float:
    """Return the value of a typed target; default units are hours, percent and USD.

    Raises
    ------
    ParameterError
        If the text is not such a value.
    """
    match = _AMOUNT.fullmatch(text.strip().replace(",", ""))
    unit = COLUMNS[metric].unit
    scale = dict(_SCALES[unit]).get(match["unit"].lower()) if match is not None else None
    if match is None or scale is None:
        raise ParameterError(
            f"‘{text[:40]}’ is not a valid target. Type a value such as {_EXAMPLES[unit]}."
        )
    return float(match["number"]) * scale


def round_target(question: SizeQuestion, value: float) -> tuple[float, str]:
    """Return the target nearest to a value that it meets, in two digits, and its text."""
    unit = COLUMNS[question.metric].unit
    step = next(
        (one for one in sorted(_SCALES[unit].values(), reverse=True) if abs(value) >= 2 * one),
        min(_SCALES[unit].values()),
    )
    digits = 10.0 ** math.floor(math.log10(abs(value / step))) / 10 if value else 1.0
    target = (
        (
            math.ceil(value / step / digits - 1e-9)
            if question.lower
            else math.floor(value / step / digits + 1e-9)
        )
        * digits
        * step
    )
    return target, amount(question.metric, target)


def double_range(question: SizeQuestion) -> SizeQuestion:
    """Return the question with twice the upper ends, to be searched without a first size."""
    high = tuple(max(2 * high, high + 1) for high in question.high)
    return replace(question, high=high, begin=0)


def failure_reasons(sentences: Iterable[str]) -> list[str]:
    """Return the most frequent reasons of failed runs, with counts."""
    counts = Counter(sentences)
    sentences_with_counts = [
        f"{plural(count, 'run')} failed: {why}" for why, count in counts.most_common(_MAX_REASONS)
    ]
    return sentences_with_counts + (
        [f"Others failed for {plural(len(counts) - _MAX_REASONS, 'more reason')}."]
        if len(counts) > _MAX_REASONS
        else []
    )


def remaining_time(seconds_: float) -> str:
    """Return an expected duration as text, at least one second."""
    return time(max(seconds_, 1.0))
