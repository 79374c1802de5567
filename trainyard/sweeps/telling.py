"""What a search for the fewest nodes, or a sweep, takes and comes to, in sentences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sim.params import Spec
from trainyard.results.metrics_shown import METRICS, Metric
from trainyard.results.outcomes import titles
from trainyard.runs.estimate import Costs, estimate
from trainyard.runs.executors import DASK, DEFAULT
from trainyard.runs.pool import cores
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.study import Study
from trainyard.sweeps.axes import row_name
from trainyard.sweeps.capacity import Size
from trainyard.sweeps.plan import HOURS_A_MONTH, Answer
from trainyard.sweeps.search import Question
from trainyard.text import BY_UNIT, money, plural, time
from trainyard.traces.sources import load_trace
from trainyard.traces.start import FIRST_POLICIES

BY_NAME: Final[Mapping[str, Metric]] = {metric.name: metric for metric in METRICS}
UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "s": {"minutes": 60.0, "hours": 3600.0, "days": 86_400.0, "seconds": 1.0},
    "1": {"%": 0.01},
    "USD": {"USD": 1.0},
    "": {"": 1.0},
}
"""Unit of a metric -> the units in which a target is entered, and what one of each comes to."""
_START_S: Final = 2.0
"""Until the processes are up."""
_EACH_S: Final = 0.1
"""Of every run, however few jobs it has."""
_MOST_REASONS: Final = 3


def runnable(study: Study, store: Store) -> tuple[Study | None, dict[str, str]]:
    """Return the study with the policies that other sizes and loads can be tried with, and why others are left out (title -> sentence).

    A policy that replays what was recorded cannot: on other machines it would show the same schedule. None = no policy is left.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    trace, left_out, kept = load_trace(study.base.trace, store), dict[str, str](), list[int]()
    for at, (spec, title) in enumerate(zip(study.allocators, titles(study.allocators), strict=True)):
        choice = catalog.allocator(spec, trace, study.base.perf)
        if "recorded_start" in choice.needs:
            left_out[title] = "It repeats what was recorded, which is the same on any machines."
        elif choice.reason:
            left_out[title] = choice.reason
        else:
            kept.append(at)
    if not kept:
        return None, left_out
    specs = tuple(study.allocators[at] for at in kept)
    return replace(study, allocators=specs, baseline=kept.index(study.baseline) if study.baseline in kept else 0), left_out


def another(study: Study, store: Store) -> tuple[Spec, str] | None:
    """Return a policy that the study does not have and that can run on it, with its title: one of the usual ones first; None = there is none."""
    there = {spec.name for spec in study.allocators}
    choices = catalog.allocator_choices(load_trace(study.base.trace, store), study.base.perf)
    free = [one for one in choices if one.name not in there and not one.reason and "recorded_start" not in one.needs]
    free.sort(key=lambda one: (one.name not in FIRST_POLICIES, -FIRST_POLICIES.index(one.name) if one.name in FIRST_POLICIES else 0))
    return (Spec(free[0].name), free[0].title) if free else None


def workers(where: str) -> int:
    """Return how many runs a place does at once, as far as its name says it; of machines elsewhere nothing is known before they are asked."""
    kind, _, count = where.partition(":")
    if where.startswith(DASK):
        return cores()
    return int(count) if kind == DEFAULT and count.isdecimal() and int(count) else cores() if kind == DEFAULT else 1


def place(where: str) -> str:
    """Return where runs happen, in words."""
    if where.startswith(DASK):
        return f"on the workers of the Dask scheduler at {where.removeprefix(DASK)}"
    return f"on this server, {workers(where)} at once"


def seconds(study: Study, runs: int, store: Store, costs: Costs, where: str) -> float:
    """Return how long so many runs of a study's policies will take, in seconds.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    one = estimate(study, store, costs, 1)
    return _START_S + (_EACH_S + one.seconds / max(one.runs, 1)) * runs / workers(where)


def amount(metric: str, value: float) -> str:
    """Return a value of a metric with its unit."""
    return BY_UNIT[BY_NAME[metric].unit](value)


def nodes(question: Question, size: Size) -> str:
    """Return a size in words: "14 nodes", "14 a100 nodes" beside others, or "2 a100 and 3 v100 nodes"."""
    if len(question.study.base.cluster.groups) == 1:
        return plural(size[0], "node")
    if len(size) == 1:
        return plural(size[0], f"{row_name(question.study, question.groups[0])} node")
    return f"{' and '.join(f'{count} {row_name(question.study, at)}' for at, count in zip(question.groups, size, strict=True))} nodes"


def staying(question: Question) -> str:
    """Return the nodes of the cluster that do not vary, in words: "4 v100 nodes"; "" = there are none."""
    groups = question.study.base.cluster.groups
    found = [f"{group.count} {row_name(question.study, at)}" for at, group in enumerate(groups) if at not in question.groups and group.count]
    count = sum(group.count for at, group in enumerate(groups) if at not in question.groups)
    return f"{' and '.join(found)} {'node' if count == 1 else 'nodes'}" if found else ""


def fewest(answers: Sequence[Answer], question: Question) -> str:
    """Return what every policy needs, and what the others save against the baseline, as one sentence; "" = none holds."""
    base, found = answers[question.study.baseline], []
    for answer in [base, *(one for one in answers if one is not base)]:
        if answer.size is not None:
            price = f" ({money(answer.usd_per_h)} per hour)" if answer.usd_per_h > 0 else ""
            found.append(f"{answer.policy} {nodes(question, answer.size)}{price}{_against(answer, base)}")
    return f"{'; '.join(found)}." if found else ""


def _against(answer: Answer, base: Answer) -> str:
    if answer is base or answer.size is None or base.size is None:
        return ""
    fewer, usd = sum(base.size) - sum(answer.size), (base.usd_per_h - answer.usd_per_h) * HOURS_A_MONTH
    if not fewer and not usd:
        return ": the same"
    saved = [plural(abs(fewer), "node")] * bool(fewer) + [f"{money(abs(round(usd, -2)) or abs(usd))} a month"] * bool(usd)
    return f": {'saves' if usd > 0 or (not usd and fewer > 0) else 'takes'} {', '.join(saved)}{'' if usd >= 0 and fewer >= 0 else ' more' if usd <= 0 else ''}"


def missed(answer: Answer, question: Question) -> str:
    """Return how near a policy came that meets the target nowhere, as one sentence."""
    within = "" if math.isinf(question.budget_per_h) else f" within {money(question.budget_per_h)} per hour"
    most = f"{' and '.join(map(str, question.high))}{within}"
    near = answer.nearest
    if near is None:
        return f"Not met up to {most} with {answer.policy}: no size gave a figure."
    part = "" if near.completed >= 1 else f", with {100 * near.completed:.1f} % of the jobs completed"
    title = BY_NAME[question.metric].title
    return f"Not met up to {most}: {title} is {amount(question.metric, near.value)} at {nodes(question, near.size)} with {answer.policy}{part}."


def buys(answer: Answer, question: Question) -> str:
    """Return what one more node changes, as a phrase; "" = not known."""
    if math.isnan(answer.buys):
        return ""
    if not answer.buys:
        return "no change"
    sign = "−" if answer.buys < 0 else "+"
    return f"{sign}{amount(question.metric, abs(answer.buys))}"


def reached(question: Question, value: float) -> tuple[float, str]:
    """Return a target that a value meets, as round as two digits allow, and its words."""
    unit = BY_NAME[question.metric].unit
    step = next((one for one in sorted(UNITS[unit].values(), reverse=True) if abs(value) >= 2 * one), min(UNITS[unit].values()))
    digits = 10.0 ** math.floor(math.log10(abs(value / step))) / 10 if value else 1.0
    target = (math.ceil(value / step / digits - 1e-9) if question.lower else math.floor(value / step / digits + 1e-9)) * digits * step
    return target, amount(question.metric, target)


def wider(question: Question) -> Question:
    """Return the question with twice the range."""
    return replace(question, high=tuple(max(2 * high, high + 1) for high in question.high))


def reasons(sentences: Iterable[str]) -> list[str]:
    """Return why runs failed, the most frequent first, with how many."""
    counted = Counter(sentences)
    said = [f"{plural(count, 'run')} failed: {why}" for why, count in counted.most_common(_MOST_REASONS)]
    return said + ([f"Others failed for {plural(len(counted) - _MOST_REASONS, 'more reason')}."] if len(counted) > _MOST_REASONS else [])


def about(seconds_: float) -> str:
    """Return a time that is to come."""
    return time(max(seconds_, 1.0))
