"""Sentences about size searches and sweeps: costs in time, answers, targets, failures."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sim.errors import ParameterError
from sim.metrics.registry import COLUMNS
from sim.params import Spec
from trainyard.formatting import BY_UNIT, common_unit, in_sentence, money, plural, time
from trainyard.runs.estimate import Estimate
from trainyard.runs.executors import DASK, DEFAULT, cores
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.size_question import SizeQuestion
from trainyard.study.size_search import Size
from trainyard.study.study import Study
from trainyard.sweeps.axes import group_name
from trainyard.sweeps.plan import PolicyAnswer
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
_TARGET_NAMES: Final = {
    "queue_p95_s": "95 % of waits",
    "jct_p50_s": "half of completion times",
    "jct_p95_s": "95 % of completion times",
    "jct_p99_s": "99 % of completion times",
}
"""Metric -> what its target limits, where the title does not say so."""
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


def change_text(metric: str, before: float, after: float) -> str:
    """Return two values of a metric as text, times in one unit: "9.4 h → 0.45 h"."""
    if COLUMNS[metric].unit != "s" or not math.isfinite(before):
        return f"{amount(metric, before)} → {amount(metric, after)}"
    size, unit = common_unit((before, after))
    return " → ".join(
        f"{one / size:.1f} {unit}" if one / size >= 0.95 or not one else f"{one / size:.2g} {unit}"
        for one in (before, after)
    )


def purchase_text(question: SizeQuestion, size: Size, *, short: bool = False) -> str:
    """Return what a mix adds to the owned nodes: "12 T4 nodes", "1 A100 + 3 T4 nodes".

    Removed nodes follow, as in "1 A100 node, 4 V100 nodes fewer"; "nothing" if the mix is the owned
    one. `short` leaves out "nodes".
    """
    counts = [count - own for count, own in zip(size, question.owned, strict=True)]
    parts = []
    for sign, end in ((1, ""), (-1, " fewer")):
        numbers = {at: sign * count for at, count in zip(question.groups, counts, strict=True)}
        names = [f"{n} {group_name(question.rows[at])}" for at, n in numbers.items() if n > 0]
        noun = (
            "" if short else " node" if sum(max(n, 0) for n in numbers.values()) == 1 else " nodes"
        )
        parts += [f"{' + '.join(names)}{noun}{end}"] if names else []
    return ", ".join(parts) or "nothing"


def extra_cost_text(question: SizeQuestion, size: Size) -> str:
    """Return the extra price of a mix per month, in hundreds: "+$85,600"; "" without prices."""
    if not question.price_per_h(size):
        return ""
    usd = question.extra_per_month(size)
    if abs(usd) < 0.01:
        return "$0"
    sign = "−" if usd < 0 else "+"
    return f"{sign}{money(round(abs(usd), -2) or round(abs(usd), 2))}"


def fixed_nodes_text(question: SizeQuestion) -> str:
    """Return the nodes that do not vary as text: "4 V100 nodes"; "" if there are none."""
    groups = question.study.base.cluster.groups
    fixed = [
        f"{group.count} {group_name(group)}"
        for at, group in enumerate(groups)
        if at not in question.groups and group.count
    ]
    count = sum(group.count for at, group in enumerate(groups) if at not in question.groups)
    return f"{' and '.join(fixed)} {'node' if count == 1 else 'nodes'}" if fixed else ""


def headline(answers: Sequence[PolicyAnswer], question: SizeQuestion) -> str:
    """Return what the baseline and the cheapest other policy must buy; "" = no answer yet."""
    shown = headline_answers(answers, question)
    needs: list[str] = []
    for answer in shown:
        verb = " needs" if not any("needs" in need for need in needs) else ""
        if tail := _need_text(answer, question):
            needs.append(f"{answer.policy}{verb} {tail}")
        elif answer.over:
            needs.append(f"{answer.policy} misses it")
    if not needs:
        return ""
    own = question.rows[question.groups[0]]
    owned = f"You own {plural(own.count, f'{group_name(own)} node')}. " if own.count else ""
    return f"{owned}For {target_text(question)}: {', '.join(needs)}."


def headline_answers(answers: Sequence[PolicyAnswer], question: SizeQuestion) -> list[PolicyAnswer]:
    """Return the answers of the baseline and of the other policy that needs to spend least."""
    base = answers[question.study.baseline]
    others = [one for one in answers if one is not base and one.size is not None]
    best = min(others, key=lambda one: (one.usd_per_h, sum(one.size or ())), default=None)
    return [base] if best is None else [base, best]


def _need_text(answer: PolicyAnswer, question: SizeQuestion) -> str:
    """Return what a policy needs: "5 more (+$85,600 a month)"; "" = no answer.

    Counts nodes of the first type; without an answer for it alone, names the cheapest mix.
    """
    reading = answer.alone if answer.alone and question.owned[0] else answer.best
    if reading is None:
        return ""
    if reading.size == question.owned:
        return "none"
    is_alone = reading is answer.alone
    nodes = (more_text if is_alone else purchase_text)(question, reading.size)
    cost = extra_cost_text(question, reading.size)
    at_most = "" if answer.over else "at most "
    return f"{at_most}{nodes}{f' ({cost} a month)' if cost else ''}"


def more_text(question: SizeQuestion, size: Size) -> str:
    """Return the nodes of the first type beyond the owned ones: "5 more", "2 fewer".

    With other changes the whole purchase, see `purchase_text`.
    """
    if size[1:] != question.owned[1:]:
        return purchase_text(question, size)
    more = size[0] - question.owned[0]
    return f"{abs(more)} {'more' if more > 0 else 'fewer'}"


def cheaper_text(answer: PolicyAnswer, question: SizeQuestion) -> str:
    """Return the sentences on a mix cheaper than one type alone; "" = there is none."""
    best, alone = answer.best, answer.alone
    if best is None or alone is None or best.size == alone.size or not question.owned[0]:
        return ""
    if not (cost := extra_cost_text(question, best.size)):
        return ""
    return (
        f"Cheaper for {answer.policy}: {purchase_text(question, best.size)}, {cost} a month."
        f" Average completion is then {time(best.jct_mean_s)}, against {time(alone.jct_mean_s)}"
        f" with {purchase_text(question, alone.size)}."
    )


def missed_text(answer: PolicyAnswer, question: SizeQuestion) -> str:
    """Return the sentence on a policy that meets the target with no mix, with its nearest miss."""
    usd = question.budget_per_month
    within = "" if math.isinf(usd) else f" for up to {money(max(round(usd, -2), 0.0))} a month"
    return f"{answer.policy} misses the target{within}: {nearest_miss(answer, question)}."


def nearest_miss(answer: PolicyAnswer, question: SizeQuestion) -> str:
    """Return the nearest miss as text: "at best 80 min with 4 V100 nodes"."""
    near = answer.nearest
    if near is None:
        return "no purchase gave a result"
    bought = "what you own" if near.size == question.owned else purchase_text(question, near.size)
    part = "" if near.completed >= 1 else f", {100 * near.completed:.1f} % of jobs completed"
    return f"at best {amount(question.metric, near.value)} with {bought}{part}"


def target_metric(metric: str, *, starts: bool = False) -> str:
    """Return what a target limits, for a sentence: "95 % of waits", "average completion time"."""
    text = _TARGET_NAMES.get(metric) or in_sentence(COLUMNS[metric].title)
    return f"{text[:1].upper()}{text[1:]}" if starts else text


def target_text(question: SizeQuestion) -> str:
    """Return the target as text: "95 % of waits under 1 h"."""
    limit = format_limit(question.metric, question.limit)
    return f"{target_metric(question.metric)} {'under' if question.lower else 'over'} {limit}"


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
    match = _AMOUNT.fullmatch(re.sub(r",(?=\d{3}(?!\d))", "", text.strip()))
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
