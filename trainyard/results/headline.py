"""Headlines of a comparison: the first limit, else the largest clear effect and its cost.

A headline never says "best".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pandas as pd

from sim.metrics.registry import COLUMNS
from trainyard.clusters.cluster_warnings import CONCURRENCY
from trainyard.formatting import BY_UNIT, MANY, increase_factor
from trainyard.results import suggestions, validity
from trainyard.results.compare import (
    Interval,
    Outcome,
    Paired,
    common_values,
    jobs_text,
    pair_jobs,
    percent,
    table,
)
from trainyard.results.recorded_accuracy import Explained
from trainyard.results.suggestions import Suggestion
from trainyard.results.validity import UNKNOWN, WITHHELD, ComparisonSetting, Limit, Verdict

State = Literal["sound", "doubtful", "not meaningful"]


class _Phrase(NamedTuple):
    """Wording of a goal: its noun, verb phrase, preposition, and the sentence for a tie."""

    noun: str
    verb: str
    before: str
    alike: str


_PHRASES: Final[Mapping[str, _Phrase]] = {
    "jct_mean_s": _Phrase(
        "average completion time",
        "the average job completes",
        "in ",
        "{one} and {other} have the same average completion time.",
    ),
    "jct_p95_s": _Phrase(
        "95th percentile of completion time",
        "95 % of jobs complete",
        "within ",
        "{one} and {other} complete 95 % of jobs within the same time.",
    ),
    "wait_mean_s": _Phrase(
        "average wait",
        "the average job waits",
        "",
        "The average job waits equally long with {one} and {other}.",
    ),
    "makespan_s": _Phrase(
        "makespan",
        "all jobs complete",
        "after ",
        "{one} and {other} complete all jobs in the same time.",
    ),
    "cost_held_per_job_usd": _Phrase(
        "cost per job",
        "the average job costs",
        "",
        "The average job costs the same with {one} and {other}.",
    ),
}
GOALS: Final[Mapping[str, str]] = {goal: phrase.noun for goal, phrase in _PHRASES.items()}
"""Metric that a user can optimize -> its name in a sentence; lower is better for all."""
_FIRST: Final = next(iter(GOALS))
_WAIT_GOALS: Final = ("jct_mean_s", "jct_p95_s", "wait_mean_s")
"""Goals that depend on waiting behind a blocking job."""
_MIN_COST: Final = 0.05
"""Smallest change of another goal that counts as a cost."""


@dataclass(frozen=True)
class Headlines:
    """The headlines of one comparison.

    Parameters
    ----------
    first : mapping of Headline
        Goal -> headline about the policy with the largest clear effect.
    about : mapping of Headline
        (policy title, goal) -> headline about that policy; empty if no policy can be judged.
    """

    first: Mapping[str, Headline]
    about: Mapping[tuple[str, str], Headline]


@dataclass(frozen=True)
class Headline:
    """The headline of a comparison, for the app, the command line, the report and JSON.

    Parameters
    ----------
    verdict : str
        "clear" = a difference is reported; otherwise the limit, see `trainyard.results.validity`.
        "nothing" = nothing can be compared.
    text : str
        One or two sentences.
    subject : str
        Label of the policy in the headline; "" = none.
    also : tuple of str
        Further limits.
    advice : tuple of Suggestion
        Suggested next steps.
    load : float
        Requested GPU-hours over those of the cluster, see
        `trainyard.clusters.machines.offered_load`; NaN = unknown.
    doubts : tuple of str
        Open doubts about the trace, and about the trace on this cluster.
    """

    verdict: Verdict
    text: str
    subject: str = ""
    also: tuple[str, ...] = ()
    advice: tuple[Suggestion, ...] = ()
    load: float = math.nan
    doubts: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """Reliability: "sound", "doubtful" (a limit or doubt) or "not meaningful" (no judgment).

        The app, the command line, Python and the report use the same words.
        """
        if self.withheld or self.verdict == "nothing":
            return "not meaningful"
        sound = self.verdict in ("clear", "undecided") and not self.doubts
        return "sound" if sound else "doubtful"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why the headline is not sound, most serious first; empty if it is."""
        limited = () if self.verdict in ("clear", "undecided") else (self.text,)
        return () if self.state == "sound" else (*limited, *self.doubts)

    @property
    def withheld(self) -> bool:
        """Whether differences between policies must not be shown anywhere."""
        return self.verdict in WITHHELD

    def lines(self) -> list[str]:
        """Return the headline, further limits and suggestions as lines for the command line."""
        ways = [str(way) for way in self.advice if way != suggestions.COMPARE_ANYWAY]
        return [self.text, *self.also, *([f"What to do: {'; '.join(ways)}"] if ways else [])]

    def to_json(self) -> dict[str, Any]:
        """Return the headline as plain values."""
        advice = [way.to_json() for way in self.advice]
        load = self.load if math.isfinite(self.load) else None
        return {
            "state": self.state,
            "reasons": list(self.reasons),
            "verdict": self.verdict,
            "text": self.text,
            "also": list(self.also),
            "advice": advice,
            "load": load,
        }


def headline(
    outcomes: Sequence[Outcome],
    baseline: int = 0,
    goal: str = _FIRST,
    rows: pd.DataFrame | None = None,
    missing: int = 0,
    setting: ComparisonSetting = UNKNOWN,
) -> Headline:
    """Return the headline on one goal; see `headlines`."""
    return headlines(outcomes, baseline, (goal,), rows, missing, setting).first[goal]


def headlines(
    outcomes: Sequence[Outcome],
    baseline: int = 0,
    goals: Sequence[str] = (_FIRST,),
    rows: pd.DataFrame | None = None,
    missing: int = 0,
    setting: ComparisonSetting = UNKNOWN,
) -> Headlines:
    """Return the headlines on several goals.

    Parameters
    ----------
    outcomes : sequence of Outcome
        All on the same jobs.
    baseline : int
        Index of the outcome that the others are compared with.
    goals : sequence of str
        Keys of `GOALS`.
    rows : DataFrame or None
        The `table` of these outcomes, if already computed.
    missing : int
        Number of policies of the study without an outcome yet.
    setting : ComparisonSetting
        Facts beyond the runs.

    Notes
    -----
    Without a limit of `trainyard.results.validity`: the largest clear reduction; if there is none,
    the largest clear increase. Recorded schedules are no candidates. The cost of a reduction: jobs
    no longer completed; otherwise the share of jobs that get slower, and the largest clear increase
    of another goal by at least `_MIN_COST`. With limits: the first limit, then absolute values,
    then the other limits.
    """
    base = outcomes[baseline]
    explained = validity.recording_explanation(setting, base, outcomes)
    common = _shared_headline_or_limits(outcomes, base, missing, setting, explained)
    if isinstance(common, Headline):
        return Headlines(dict.fromkeys(goals, common), {})
    context = _GoalContext(
        tuple(outcomes),
        base,
        _cells_by_policy(table(outcomes, baseline) if rows is None else rows),
        explained,
        setting.cluster.gpus if setting.cluster else 0,
        _headlines_against_site(outcomes, base, goals, missing, setting),
    )
    limits = [*_general_limits(outcomes, base, setting, explained), *common]
    if setting.replaced_baseline:
        limits.append(
            Limit(
                "clear",
                f"Compared with {base.label}: the chosen baseline {setting.replaced_baseline}"
                " cannot run here.",
            )
        )
    return Headlines(
        {goal: _headline_on(goal, context, limits, setting) for goal in goals},
        {
            (one.label, goal): _headline_on(goal, context, limits, setting, one)
            for one in outcomes
            for goal in goals
            if one is not base
        },
    )


Cells = Mapping[tuple[str, str], Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class _GoalContext:
    """Inputs shared by the headlines on all goals."""

    outcomes: tuple[Outcome, ...]
    base: Outcome
    cells: Cells
    explained: Explained | None
    gpus: int
    instead: Headlines | None

    @property
    def candidates(self) -> list[Outcome]:
        """Simulated policies other than the baseline."""
        return [one for one in self.outcomes if one is not self.base and not one.replays]


def _headlines_against_site(
    outcomes: Sequence[Outcome],
    base: Outcome,
    goals: Sequence[str],
    missing: int,
    setting: ComparisonSetting,
) -> Headlines | None:
    """Return the headlines against the site's policy if the recording cannot be the baseline.

    None if the backtest does not bar the recording, or nothing else was simulated.
    """
    simulated = [one for one in outcomes if not one.replays]
    place = next((place for place, one in enumerate(simulated) if one.label == setting.site), -1)
    barred = base.replays and setting.past is not None and not setting.past.comparable
    if not barred or place < 0 or len(simulated) < 2:
        return None
    without_recording = replace(setting, past=None, site="", replaced_baseline="")
    return headlines(simulated, place, goals, missing=missing, setting=without_recording)


def _shared_headline_or_limits(
    outcomes: Sequence[Outcome],
    base: Outcome,
    missing: int,
    setting: ComparisonSetting,
    explained: Explained | None,
) -> Headline | list[Limit]:
    """Return the headline that holds for every goal, or limits to add to each headline.

    A headline if no job completed, the trace is in doubt, the load is too high, no rival was
    simulated, or jobs hardly wait; otherwise the limit on short waits, if any.
    """
    load = setting.load
    if not any(one.completed for one in outcomes):
        return Headline("nothing", _no_completed_sentence(outcomes), load=load)
    if why := validity.doubt_reason(outcomes, setting.trace):
        return Headline(
            "doubted",
            f"No comparison: {why}",
            advice=(*_doubt_suggestions(setting), *suggestions.hints_for("doubted")),
            load=load,
        )
    if why := validity.overload_reason(outcomes, load):
        return Headline(
            "overload",
            f"No policy can be judged here: {why}.",
            advice=suggestions.suggest_for_overload(load, setting.scale, _jobs_on_cluster(setting)),
            load=load,
        )
    if all(one is base or one.replays for one in outcomes):
        return Headline("nothing", _no_rival_sentence(outcomes, base, missing), load=load)
    idle = validity.idle_limit(outcomes)
    # With a recording as the baseline, its own limit comes first.
    if (
        idle is not None
        and idle.verdict == "idle"
        and validity.recording_limit(base, explained, setting) is None
    ):
        return Headline(
            "idle",
            idle.sentence,
            advice=suggestions.suggest_for_idle(load, setting.scale, setting.cluster),
            load=load,
        )
    return [] if idle is None else [idle]


def _general_limits(
    outcomes: Sequence[Outcome],
    base: Outcome,
    setting: ComparisonSetting,
    explained: Explained | None,
) -> list[Limit]:
    """Return the limits on the recording, few jobs, load and chance, most serious first."""
    limits = (
        validity.recording_limit(base, explained, setting),
        validity.few_jobs_limit(outcomes),
        validity.full_load_limit(setting.load),
        validity.chance_limit(outcomes, random=setting.random),
    )
    return [limit for limit in limits if limit is not None]


def _headline_on(
    goal: str,
    context: _GoalContext,
    limits: Sequence[Limit],
    setting: ComparisonSetting,
    about: Outcome | None = None,
) -> Headline:
    """Return the headline on a goal, about one policy or the one with the largest effect.

    Without a limit: the effect, with the first doubt. Otherwise the first limit with values or a
    weaker claim, the other limits and doubts as further notes, and suggestions.
    """
    winner = _largest_effect(goal, context, context.candidates if about is None else [about])
    subject = (
        about
        or winner
        or min(context.candidates, key=lambda one: _value_of(context.cells, one, goal))
    )
    ends = tuple(f"under {one.label}." for one in (subject, context.base))
    cut = [
        (limit, limit.sentence.endswith(ends))
        for limit in validity.unfinished_limits(context.outcomes)
    ]
    first = [limit for limit in limits if limit.verdict != "clear"] + _goal_limits(
        goal, context, winner, subject
    )
    dropped = [limit for limit, concerns in cut if concerns]
    # Whole runs that complete other jobs have no tie.
    no_tie = bool(dropped) and COLUMNS[goal].per_job is None
    first = [one for one in first if not (no_tie and one.verdict == "undecided")] + dropped
    also = [limit.sentence for limit, concerns in cut if not concerns]
    also += [limit.sentence for limit in limits if limit.verdict == "clear"]
    of_trace = tuple(text for _, text in validity.doubts(setting.trace))
    # Doubts about the recorded use do not concern simulated policies.
    doubts = of_trace + tuple(
        text
        for key, text in setting.doubts.items()
        if key != CONCURRENCY or context.base.replays or subject.replays
    )
    if not first:
        claim = _effect_sentence(goal, context, subject)
        of = "trace" if of_trace else "cluster"
        doubt_text = f" But check the {of}: {doubts[0]}" if doubts else ""
        also += doubts[1:]
        return Headline(
            "clear",
            claim + doubt_text,
            subject.label,
            tuple(also),
            _doubt_suggestions(setting) if doubts != of_trace else (),
            setting.load,
            doubts,
        )
    also += doubts
    also = [limit.sentence for limit in first[1:]] + also
    text = (
        f"{first[0].sentence} {_second_sentence(first[0].verdict, goal, context, subject)}".strip()
    )
    return Headline(
        first[0].verdict,
        text,
        subject.label,
        tuple(also),
        _limit_suggestions(first[0], context, setting),
        setting.load,
        doubts,
    )


def _second_sentence(verdict: Verdict, goal: str, context: _GoalContext, subject: Outcome) -> str:
    """Return the text after the first limit: absolute values or a weaker claim.

    Against a recording that cannot be judged, the headline between simulations; for unfinished
    jobs, the effect over jobs that both completed ("" for the makespan); for a tie "".
    """
    if verdict in ("unexplained", "untested"):
        if context.instead is None:
            return ""
        headline = context.instead.about.get((subject.label, goal), context.instead.first[goal])
        return f"Between simulations: {headline.text}"
    if verdict == "cut":
        both = pair_jobs(context.base, subject).both
        return (
            f"Of the {jobs_text(both)} that both completed:"
            f" {_effect_sentence(goal, context, subject, dropped=False).replace('With', 'with', 1)}"
            if both and COLUMNS[goal].per_job is not None
            else ""
        )
    if verdict == "undecided":
        return ""
    return _values_sentence(goal, context, subject, median=verdict == "carried")


def _largest_effect(goal: str, context: _GoalContext, among: Sequence[Outcome]) -> Outcome | None:
    """Return the policy with the largest clear reduction of a goal, else the largest increase.

    None without a clear effect. Against a recording, effects must exceed the model's error.
    """
    cells = context.cells
    clear = [
        other
        for other in among
        if (other.label, goal) in cells and _is_clear(cells[other.label, goal])
    ]
    # No "better" for policies that drop jobs, no "worse" against a recording with more GPUs.
    reduced = [other for other in clear if cells[other.label, goal]["verdict"] == "better"]
    raised = [other for other in clear if cells[other.label, goal]["verdict"] == "worse"]
    if context.explained is not None:
        # Against a recording, only effects above the model's own error count.
        error = abs(_change_of(cells, context.explained.label, goal))
        reduced, raised = (
            [one for one in group if abs(_change_of(cells, one.label, goal)) > error]
            for group in (reduced, raised)
        )
    if reduced:
        return min(reduced, key=lambda one: _change_of(cells, one.label, goal))
    return max(raised, key=lambda one: _change_of(cells, one.label, goal), default=None)


def _goal_limits(
    goal: str, context: _GoalContext, winner: Outcome | None, subject: Outcome
) -> list[Limit]:
    """Return the limits on ranking, tie, outliers and blocking jobs, most serious first."""
    limits = [validity.ranking_limit(context.outcomes, goal, GOALS[goal])]
    # A tie needs completed jobs on both sides; otherwise `cut` counts the missing ones.
    if (
        winner is None
        and (context.explained is None or context.explained.holds)
        and subject.completed
        and context.base.completed
    ):
        limits.append(Limit("undecided", _undecided_sentence(goal, context, subject)))
    if goal == _FIRST:
        limits.append(validity.carried_limit(context.base, subject))
    if (
        goal in _WAIT_GOALS
        and winner is not None
        and validity.few_jobs_limit(context.outcomes) is None
    ):
        limits.append(validity.blocked_limit(context.base, subject, context.gpus))
    return [limit for limit in limits if limit is not None]


def _undecided_sentence(goal: str, context: _GoalContext, subject: Outcome) -> str:
    """Return the sentence that finds no clear difference on a goal, with bounds if known."""
    cell = context.cells.get((subject.label, goal), {})
    low, high = (float(cell.get(name, math.nan)) for name in ("low", "high"))
    if context.explained is not None:
        return (
            f"No difference in the {GOALS[goal]} beyond the model's error."
            f" {context.explained.sentence()}"
        )
    alike = _PHRASES[goal].alike.format(one=subject.label, other=context.base.label)
    if low < 0 < high:
        bounds = f"between {100 * low:,.0f} and +{100 * high:,.0f} %".replace("-", "−")
        return f"{alike} Over {len(subject.summaries)} repeats the difference is {bounds}."
    return alike


def _doubt_suggestions(setting: ComparisonSetting) -> tuple[Suggestion, ...]:
    """Return suggestions that resolve the doubts about these jobs on these machines."""
    return suggestions.suggest_for_doubts(setting.doubts, _jobs_on_cluster(setting))


def _jobs_on_cluster(setting: ComparisonSetting) -> suggestions.JobsOnCluster:
    """Return the trace and cluster of a comparison, for its suggestions."""
    return suggestions.JobsOnCluster(setting.trace, setting.cluster, setting.source)


def _limit_suggestions(
    first: Limit, context: _GoalContext, setting: ComparisonSetting
) -> tuple[Suggestion, ...]:
    """Return the suggestions that fit the first limit."""
    repeats = len(context.base.summaries)
    if first.verdict == "untested":
        return (suggestions.suggest_references(), suggestions.CHECK_PAST)
    if first.verdict == "unexplained" and setting.past is not None:
        to_site = (
            suggestions.suggest_baseline(setting.site, setting.past.at) if setting.site else None
        )
        return (*([to_site] if to_site else []), *suggestions.hints_for("unexplained"))
    if first.verdict == "unexplained" and context.explained is not None:
        label = context.explained.label
        return (
            suggestions.suggest_baseline(label, setting.references[label]),
            *suggestions.hints_for("unexplained"),
        )
    if first.verdict == "loaded":
        return tuple(
            way
            for way in suggestions.suggest_for_overload(
                setting.load, setting.scale, _jobs_on_cluster(setting)
            )
            if way != suggestions.COMPARE_ANYWAY
        )
    if first.verdict in ("one_draw", "turns") or (first.verdict == "undecided" and repeats > 1):
        return suggestions.suggest_repeats(repeats)
    return suggestions.hints_for(first.verdict)


def _effect_sentence(
    goal: str, context: _GoalContext, winner: Outcome, *, dropped: bool = True
) -> str:
    """Return the sentence on a clear effect, with its cost, or its benefit if values rise."""
    cells, base, phrase = context.cells, context.base, _PHRASES[goal]
    change = _change_of(cells, winner.label, goal)
    pair = pair_jobs(base, winner)
    elsewhere = _worst_other_goal(cells, winner, goal)
    cuts = change < 0
    besides = (
        _cost_text(pair, elsewhere, dropped=dropped) if cuts else _gain_text(pair, dropped=dropped)
    )
    was, own = _pair_of_values(goal, context, winner)
    write = BY_UNIT[COLUMNS[goal].unit]
    if _rounds_alike(write(was), write(own)):
        less = f"{percent(abs(change))} {'less' if cuts else 'more'}"
        return f"With {winner.label} the {phrase.noun} is {less} than with {base.label}; {besides}."
    between = _bounds_text(cells[winner.label, goal], was, write)
    return (
        f"With {winner.label} {phrase.verb} {phrase.before}{write(own)}{between} instead of"
        f" {write(was)} with {base.label}; {besides}."
    )


def _pair_of_values(goal: str, context: _GoalContext, one: Outcome) -> tuple[float, float]:
    """Return (baseline, policy) values of a metric over common jobs, else each policy's own."""
    common = common_values(context.base, one, goal)
    return common or (
        _value_of(context.cells, context.base, goal),
        _value_of(context.cells, one, goal),
    )


def _bounds_text(cell: Mapping[str, Any], was: float, write: Callable[[float], str]) -> str:
    """Return the bounds of a policy's value as text, e.g. " (3.2 to 3.6)"; "" = none to show.

    `cell` holds the relative change and its bounds, `was` the baseline's value.
    """
    low, high = (was * (1.0 + float(cell[name])) for name in ("low", "high"))
    first, last = write(low), write(high)
    if not (math.isfinite(low) and math.isfinite(high)) or _rounds_alike(first, last):
        return ""
    unit = f" {first.rpartition(' ')[2]}"
    own = write(was * (1.0 + float(cell["change"])))
    if own.endswith(unit) and last.endswith(unit):
        first, last = first.removesuffix(unit), last.removesuffix(unit)
    return f" ({first} to {last})"


def _rounds_alike(one: str, other: str) -> bool:
    """Return True if two formatted values are the same number ("10 h" and "10.0 h")."""
    return one.replace(".0 ", " ") == other.replace(".0 ", " ")


def _values_sentence(
    goal: str, context: _GoalContext, subject: Outcome, *, median: bool = False
) -> str:
    """Return the goal's values under both policies as a sentence, optionally with medians."""
    phrase, write = _PHRASES[goal], BY_UNIT[COLUMNS[goal].unit]
    was, own = _pair_of_values(goal, context, subject)
    if not (math.isfinite(was) and math.isfinite(own)):
        return ""
    both = (
        f"With {subject.label} {phrase.verb} {phrase.before}{write(own)}, with {context.base.label}"
        f" {phrase.before}{write(was)}"
    )
    half = [_value_of(context.cells, one, "jct_p50_s") for one in (subject, context.base)]
    if not median or not all(map(math.isfinite, half)):
        return f"{both}."
    return f"{both}; half of the jobs within {write(half[0])} and {write(half[1])}."


def _cells_by_policy(rows: pd.DataFrame) -> Cells:
    """Return the rows of the comparison table by policy label and metric."""
    return {
        (str(row["label"]), str(row["metric"])): {str(key): value for key, value in row.items()}
        for row in rows.to_dict("records")
    }


def _change_of(cells: Cells, label: str, metric: str) -> float:
    """Return the relative change of a metric under a policy; NaN if missing."""
    return float(cells[label, metric]["change"]) if (label, metric) in cells else float("nan")


def _value_of(cells: Cells, outcome: Outcome, metric: str) -> float:
    """Return the value of a metric under a policy; infinite if missing."""
    value = (
        float(cells[outcome.label, metric]["value"])
        if (outcome.label, metric) in cells
        else math.nan
    )
    return math.inf if math.isnan(value) else value


def _is_clear(cell: Mapping[str, Any]) -> bool:
    """Return True if the change of a table cell is clear."""
    change, low, high = (float(cell[name]) for name in ("change", "low", "high"))
    return Interval(change, None if np.isnan(low) else low, None if np.isnan(high) else high).clear


def _worst_other_goal(cells: Cells, outcome: Outcome, goal: str) -> str:
    """Return the text on the other goal that clearly rises most; "" = none by `_MIN_COST`."""
    worse = {
        name: _change_of(cells, outcome.label, name)
        for name in GOALS
        if name != goal and cells.get((outcome.label, name), {}).get("verdict") == "worse"
    }
    name = max(worse, key=lambda one: worse[one], default="")
    return (
        f"the {GOALS[name]} rises {_change_text(worse[name])}"
        if name and worse[name] >= _MIN_COST
        else ""
    )


def _change_text(change: float) -> str:
    """Return a relative change as text."""
    return f"{increase_factor(change)}-fold" if change > MANY else f"by {percent(change)}"


def _cost_text(pair: Paired, elsewhere: str, *, dropped: bool) -> str:
    """Return the cost of an improvement: fewer completed jobs, else slower jobs and `elsewhere`."""
    if dropped and pair.only_base > pair.only_other:
        missing = pair.only_base - pair.only_other
        return f"{jobs_text(missing)} fewer complete{'s' if missing == 1 else ''}"
    slower = f"{percent(pair.slower)} of jobs get slower" if pair.slower else "no job gets slower"
    if not elsewhere:
        return slower
    return f"{slower} and {elsewhere}" if pair.slower else f"{slower}, but {elsewhere}"


def _gain_text(pair: Paired, *, dropped: bool) -> str:
    """Return the text on the share of faster jobs, or on fewer completed jobs."""
    if dropped and pair.only_base > pair.only_other:
        return _cost_text(pair, "", dropped=True)
    return f"{percent(pair.faster)} of jobs get faster" if pair.faster else "no job gets faster"


def _no_completed_sentence(outcomes: Sequence[Outcome]) -> str:
    """Return the sentence on why nothing is compared: no job fits, or none was completed."""
    ended = [one for outcome in outcomes for one in outcome.summaries]
    if all(one["impossible"] == one["jobs"] for one in ended):
        return "No job can run: none of them fits on this cluster."
    return (
        f"No job was completed under {outcomes[0].label if len(outcomes) == 1 else 'any policy'}."
    )


def _no_rival_sentence(outcomes: Sequence[Outcome], base: Outcome, missing: int) -> str:
    """Return the sentence for a comparison without another policy to judge."""
    if missing:
        return (
            f"{' and '.join(one.label for one in outcomes)} {'is' if len(outcomes) == 1 else 'are'}"
            " complete, no other policy is: nothing to compare yet."
        )
    if len(outcomes) == 1:
        return f"{base.label} alone: add another policy to compare."
    return (
        f"{base.label} has only the recorded schedule to compare with: add another policy to see"
        " which is faster."
    )
