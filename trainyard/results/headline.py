"""The sentence that answers a comparison: first what limits it, else the largest clear effect on
what the user is after and what it costs; never "best".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pandas as pd

from sim.metrics.registry import COLUMNS
from trainyard.clusters.doubts import CONCURRENCY
from trainyard.results import meaning, ways_out
from trainyard.results.compare import (
    Interval,
    Outcome,
    Paired,
    common_values,
    jobs_text,
    paired,
    percent,
    table,
)
from trainyard.results.meaning import UNKNOWN, WITHHELD, ComparisonSetting, Limit, Verdict
from trainyard.results.trust import Explained
from trainyard.results.ways_out import WayOut
from trainyard.text import BY_UNIT, MANY, as_many

State = Literal["sound", "doubtful", "not meaningful"]


class _Phrase(NamedTuple):
    """How a goal is told: the noun, "the average job is done" and "in", and that two are alike."""

    noun: str
    verb: str
    before: str
    alike: str


_PHRASES: Final[Mapping[str, _Phrase]] = {
    "jct_mean_s": _Phrase(
        "average time to finish",
        "the average job is done",
        "in ",
        "{one} and {other} finish the average job in the same time.",
    ),
    "jct_p95_s": _Phrase(
        "time for 95 % of jobs",
        "95 % of jobs are done",
        "within ",
        "{one} and {other} finish 95 % of jobs within the same time.",
    ),
    "wait_mean_s": _Phrase(
        "average wait",
        "the average job waits",
        "",
        "The average job waits equally long with {one} and {other}.",
    ),
    "makespan_s": _Phrase(
        "makespan",
        "all jobs are done",
        "after ",
        "{one} and {other} finish all jobs in the same time.",
    ),
    "cost_held_per_job_usd": _Phrase(
        "cost per job",
        "the average job costs",
        "",
        "The average job costs the same with {one} and {other}.",
    ),
}
GOALS: Final[Mapping[str, str]] = {goal: phrase.noun for goal, phrase in _PHRASES.items()}
"""Metrics that one may be after -> what they are called in a sentence; less of each is better."""
_FIRST: Final = next(iter(GOALS))
_OF_WAITS: Final = ("jct_mean_s", "jct_p95_s", "wait_mean_s")
"""Goals that a job which others wait for decides."""
_WORTH: Final = 0.05
"""A change of another goal below this is no main cost."""


@dataclass(frozen=True)
class Headlines:
    """The headlines of one comparison.

    Parameters
    ----------
    first : mapping of Headline
        Goal -> the headline on it, about the policy with the largest clear effect.
    about : mapping of Headline
        Title of a policy and goal -> the headline about that policy. Where no policy can be judged
        there is none.
    """

    first: Mapping[str, Headline]
    about: Mapping[tuple[str, str], Headline]


@dataclass(frozen=True)
class Headline:
    """What stands on top of a comparison: on Compare, on the command line, in the report and in
    `--json`.

    Parameters
    ----------
    verdict : str
        "clear" = a difference is told; else what limits it, see `trainyard.results.meaning`.
        "nothing" = nothing can be compared.
    text : str
        One sentence or two.
    subject : str
        Label of the policy that it is about; "" = none.
    also : tuple of str
        Further limits.
    advice : tuple of WayOut
        What to do.
    load : float
        GPU-hours asked over those of the cluster, see `trainyard.clusters.machines.offered_load`;
        NaN = not known.
    doubts : tuple of str
        What reading the trace has left in doubt, and what is in doubt of it on this cluster.
    """

    verdict: Verdict
    text: str
    subject: str = ""
    also: tuple[str, ...] = ()
    advice: tuple[WayOut, ...] = ()
    load: float = math.nan
    doubts: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """How far to believe it: the same word in the app, on the command line, in Python and in
        the report.
        """
        if self.withheld or self.verdict == "nothing":
            return "not meaningful"
        sound = self.verdict in ("clear", "undecided") and not self.doubts
        return "sound" if sound else "doubtful"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not sound, the gravest first; none if it is."""
        limited = () if self.verdict in ("clear", "undecided") else (self.text,)
        return () if self.state == "sound" else (*limited, *self.doubts)

    @property
    def withheld(self) -> bool:
        """Whether no difference between policies may be shown anywhere."""
        return self.verdict in WITHHELD

    def lines(self) -> list[str]:
        """Return it as lines of text: below a table, where all the same is compared anyway."""
        ways = [str(way) for way in self.advice if way != ways_out.COMPARE_ANYWAY]
        return [self.text, *self.also, *([f"What to do: {'; '.join(ways)}"] if ways else [])]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
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
    """Return the headline on each of several goals.

    Parameters
    ----------
    outcomes : sequence of Outcome
        All on the same jobs.
    baseline : int
        Place of the one that others are compared with.
    goals : sequence of str
        Keys of `GOALS`.
    rows : DataFrame or None
        The `table` of these outcomes, if it is at hand.
    missing : int
        Policies of the same study that have no outcome (yet).
    setting : ComparisonSetting
        What is known beyond the runs.

    Notes
    -----
    Without a limit of `trainyard.results.meaning`: the largest clear reduction; if there is none,
    the largest clear increase. Recorded schedules are no candidates: they are history. What a
    reduction costs: jobs that are not completed any more; else the share of jobs that get slower,
    and the largest clear increase of another goal by at least `_WORTH`. With a limit: the first of
    them, then the same in absolute values, and the other limits beside.
    """
    base = outcomes[baseline]
    found = meaning.explanation(setting, base, outcomes)
    common = _common(outcomes, base, missing, setting, found)
    if isinstance(common, Headline):
        return Headlines(dict.fromkeys(goals, common), {})
    told = _Told(
        tuple(outcomes),
        base,
        _cells(table(outcomes, baseline) if rows is None else rows),
        found,
        setting.cluster.gpus if setting.cluster else 0,
        _instead(outcomes, base, goals, missing, setting),
    )
    limits = [*_general(outcomes, base, setting, found), *common]
    if setting.asked:
        limits.append(
            Limit(
                "clear",
                f"Compared with {base.label}, because {setting.asked}, the baseline chosen, cannot"
                " run here.",
            )
        )
    return Headlines(
        {goal: _on(goal, told, limits, setting) for goal in goals},
        {
            (one.label, goal): _on(goal, told, limits, setting, one)
            for one in outcomes
            for goal in goals
            if one is not base
        },
    )


Cells = Mapping[tuple[str, str], Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class _Told:
    """What all goals have in common."""

    outcomes: tuple[Outcome, ...]
    base: Outcome
    cells: Cells
    explained: Explained | None
    gpus: int
    instead: Headlines | None

    @property
    def others(self) -> list[Outcome]:
        return [one for one in self.outcomes if one is not self.base and not one.replays]


def _instead(
    outcomes: Sequence[Outcome],
    base: Outcome,
    goals: Sequence[str],
    missing: int,
    setting: ComparisonSetting,
) -> Headlines | None:
    """Return the headlines with the policy of the site as the baseline, where its check bars the
    recording; None = it does not, or nothing else was simulated.
    """
    simulated = [one for one in outcomes if not one.replays]
    at = next((at for at, one in enumerate(simulated) if one.label == setting.site), -1)
    barred = base.replays and setting.past is not None and not setting.past.comparable
    if not barred or at < 0 or len(simulated) < 2:
        return None
    alone = replace(setting, past=None, site="", asked="")
    return headlines(simulated, at, goals, missing=missing, setting=alone)


def _common(
    outcomes: Sequence[Outcome],
    base: Outcome,
    missing: int,
    setting: ComparisonSetting,
    found: Explained | None,
) -> Headline | list[Limit]:
    """Return the headline that is the same whatever one is after, or remarks that go with all of
    them.
    """
    load = setting.load
    if not any(one.completed for one in outcomes):
        return Headline("nothing", _nothing(outcomes), load=load)
    if why := meaning.doubted(outcomes, setting.trace):
        return Headline(
            "doubted",
            f"No comparison: {why}",
            advice=(*_mends(setting), *ways_out.hint("doubted")),
            load=load,
        )
    if why := meaning.overload(outcomes, load):
        return Headline(
            "overload",
            f"No policy can be judged here: {why}.",
            advice=ways_out.for_overload(load, setting.scale, _jobs(setting)),
            load=load,
        )
    if all(one is base or one.replays for one in outcomes):
        return Headline("nothing", _nobody(outcomes, base, missing), load=load)
    idle = meaning.idle(outcomes)
    # Whoever compares with a recording is told first whether it can be compared with.
    if (
        idle is not None
        and idle.verdict == "idle"
        and meaning.against_recording(base, found, setting) is None
    ):
        return Headline(
            "idle",
            idle.sentence,
            advice=ways_out.for_idle(load, setting.scale, setting.cluster),
            load=load,
        )
    return [] if idle is None else [idle]


def _general(
    outcomes: Sequence[Outcome], base: Outcome, setting: ComparisonSetting, found: Explained | None
) -> list[Limit]:
    """Return the limits that do not depend on the goal, the gravest first."""
    limits = (
        meaning.against_recording(base, found, setting),
        meaning.few(outcomes),
        meaning.full(setting.load),
        meaning.one_draw(outcomes, random=setting.random),
    )
    return [limit for limit in limits if limit is not None]


def _on(
    goal: str,
    told: _Told,
    limits: Sequence[Limit],
    setting: ComparisonSetting,
    about: Outcome | None = None,
) -> Headline:
    """Return the headline on a goal, about one policy, or else about that of the largest effect."""
    found = _found(goal, told, told.others if about is None else [about])
    subject = about or found or min(told.others, key=lambda one: _value(told.cells, one, goal))
    ends = tuple(f"under {one.label}." for one in (subject, told.base))
    cut = [(limit, limit.sentence.endswith(ends)) for limit in meaning.cut(told.outcomes)]
    first = [limit for limit in limits if limit.verdict != "clear"] + _of_goal(
        goal, told, found, subject
    )
    first += [limit for limit, concerns in cut if concerns]
    also = [limit.sentence for limit, concerns in cut if not concerns]
    also += [limit.sentence for limit in limits if limit.verdict == "clear"]
    of_trace = tuple(text for _, text in meaning.doubts(setting.trace))
    # What the recording used says nothing of policies that are simulated.
    doubts = of_trace + tuple(
        text
        for key, text in setting.doubts.items()
        if key != CONCURRENCY or told.base.replays or subject.replays
    )
    if not first:
        claim = _claim(goal, told, subject)
        of = "trace" if of_trace else "cluster"
        but = f" But of the {of} this is in doubt: {doubts[0]}" if doubts else ""
        also += doubts[1:]
        return Headline(
            "clear",
            claim + but,
            subject.label,
            tuple(also),
            _mends(setting) if doubts != of_trace else (),
            setting.load,
            doubts,
        )
    also += doubts
    also = [limit.sentence for limit in first[1:]] + also
    text = f"{first[0].sentence} {_second(first[0].verdict, goal, told, subject)}".strip()
    return Headline(
        first[0].verdict,
        text,
        subject.label,
        tuple(also),
        _advice(first[0], told, setting),
        setting.load,
        doubts,
    )


def _second(verdict: Verdict, goal: str, told: _Told, subject: Outcome) -> str:
    """Return what stands behind the first limit."""
    if verdict in ("unexplained", "untested"):
        if told.instead is None:
            return ""
        there = told.instead.about.get((subject.label, goal), told.instead.first[goal])
        return f"Simulated against simulated: {there.text}"
    if verdict == "cut":
        both = paired(told.base, subject).both
        return (
            f"Of the {jobs_text(both)} that both completed:"
            f" {_claim(goal, told, subject, dropped=False).replace('With', 'with', 1)}"
            if both
            else ""
        )
    if verdict == "undecided":
        return ""
    return _figures(goal, told, subject, median=verdict == "carried")


def _found(goal: str, told: _Told, among: Sequence[Outcome]) -> Outcome | None:
    """Return the policy with the largest clear effect; None = there is none."""
    cells = told.cells
    clear = [
        other
        for other in among
        if (other.label, goal) in cells and _is_clear(cells[other.label, goal])
    ]
    # Who gets no "better" has it from dropping jobs, and no "worse" is said against a recording
    # with more GPUs.
    reduced = [other for other in clear if cells[other.label, goal]["verdict"] == "better"]
    raised = [other for other in clear if cells[other.label, goal]["verdict"] == "worse"]
    if told.explained is not None:
        # Against a recording, what is not above the error of the model itself is no effect.
        error = abs(_at(cells, told.explained.label, goal))
        reduced, raised = (
            [one for one in group if abs(_at(cells, one.label, goal)) > error]
            for group in (reduced, raised)
        )
    if reduced:
        return min(reduced, key=lambda one: _at(cells, one.label, goal))
    return max(raised, key=lambda one: _at(cells, one.label, goal), default=None)


def _of_goal(goal: str, told: _Told, found: Outcome | None, subject: Outcome) -> list[Limit]:
    """Return the limits of one goal, the gravest first."""
    limits = [meaning.turns(told.outcomes, goal, GOALS[goal])]
    # Nothing is alike where one of the two completed nothing: how many were not is said instead.
    if (
        found is None
        and (told.explained is None or told.explained.holds)
        and subject.completed
        and told.base.completed
    ):
        limits.append(Limit("undecided", _undecided(goal, told, subject)))
    if goal == _FIRST:
        limits.append(meaning.carried(told.base, subject))
    if goal in _OF_WAITS and found is not None and meaning.few(told.outcomes) is None:
        limits.append(meaning.blocked(told.base, subject, told.gpus))
    return [limit for limit in limits if limit is not None]


def _undecided(goal: str, told: _Told, subject: Outcome) -> str:
    cell = told.cells.get((subject.label, goal), {})
    low, high = (float(cell.get(name, math.nan)) for name in ("low", "high"))
    if told.explained is not None:
        return (
            f"No difference in the {GOALS[goal]} beyond the error of the model:"
            f" {told.explained.sentence()}"
        )
    alike = _PHRASES[goal].alike.format(one=subject.label, other=told.base.label)
    if low < 0 < high:
        bounds = f"between {100 * low:,.0f} and +{100 * high:,.0f} %".replace("-", "−")
        return f"{alike} Over {len(subject.summaries)} repeats the difference is {bounds}."
    return alike


def _mends(setting: ComparisonSetting) -> tuple[WayOut, ...]:
    """Return what helps against the doubts of these jobs on these machines."""
    return ways_out.for_doubts(setting.doubts, _jobs(setting))


def _jobs(setting: ComparisonSetting) -> ways_out.JobsOnCluster:
    return ways_out.JobsOnCluster(setting.trace, setting.cluster, setting.source)


def _advice(first: Limit, told: _Told, setting: ComparisonSetting) -> tuple[WayOut, ...]:
    repeats = len(told.base.summaries)
    if first.verdict == "untested":
        return (ways_out.add_references(), ways_out.CHECK_PAST)
    if first.verdict == "unexplained" and setting.past is not None:
        to_site = ways_out.change_baseline(setting.site, setting.past.at) if setting.site else None
        return (*([to_site] if to_site else []), *ways_out.hint("unexplained"))
    if first.verdict == "unexplained" and told.explained is not None:
        label = told.explained.label
        return (
            ways_out.change_baseline(label, setting.references[label]),
            *ways_out.hint("unexplained"),
        )
    if first.verdict == "loaded":
        return tuple(
            way
            for way in ways_out.for_overload(setting.load, setting.scale, _jobs(setting))
            if way != ways_out.COMPARE_ANYWAY
        )
    if first.verdict in ("one_draw", "turns") or (first.verdict == "undecided" and repeats > 1):
        return ways_out.more_repeats(repeats)
    return ways_out.hint(first.verdict)


def _claim(goal: str, told: _Told, found: Outcome, *, dropped: bool = True) -> str:
    """Return the confident sentence, with what the effect costs."""
    cells, base, phrase = told.cells, told.base, _PHRASES[goal]
    change = _at(cells, found.label, goal)
    pair = paired(base, found)
    elsewhere = _elsewhere(cells, found, goal)
    cuts = change < 0
    besides = _cost(pair, elsewhere, dropped=dropped) if cuts else _gain(pair, dropped=dropped)
    was, own = _pair_of_values(goal, told, found)
    write = BY_UNIT[COLUMNS[goal].unit]
    if _rounds_alike(write(was), write(own)):
        less = f"{percent(abs(change))} {'less' if cuts else 'more'}"
        return f"With {found.label} the {phrase.noun} is {less} than with {base.label}; {besides}."
    between = _bounds(cells[found.label, goal], was, write)
    return (
        f"With {found.label} {phrase.verb} {phrase.before}{write(own)}{between} instead of"
        f" {write(was)}; {besides}."
    )


def _pair_of_values(goal: str, told: _Told, one: Outcome) -> tuple[float, float]:
    """Return a metric of the baseline and of a policy; of jobs, over those that both completed."""
    common = common_values(told.base, one, goal)
    return common or (_value(told.cells, told.base, goal), _value(told.cells, one, goal))


def _bounds(cell: Mapping[str, Any], was: float, write: Callable[[float], str]) -> str:
    """Return the interval of a value, " (3.2 to 3.6)"; "" = none, or its ends read alike."""
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
    """Return whether two written values are the same number: "10 h" is exact, "10.0 h" rounded."""
    return one.replace(".0 ", " ") == other.replace(".0 ", " ")


def _figures(goal: str, told: _Told, subject: Outcome, *, median: bool = False) -> str:
    """Return the same in absolute values, on request with the median beside the mean."""
    phrase, write = _PHRASES[goal], BY_UNIT[COLUMNS[goal].unit]
    was, own = _pair_of_values(goal, told, subject)
    if not (math.isfinite(was) and math.isfinite(own)):
        return ""
    both = (
        f"With {subject.label} {phrase.verb} {phrase.before}{write(own)}, with {told.base.label}"
        f" {phrase.before}{write(was)}"
    )
    half = [_value(told.cells, one, "jct_p50_s") for one in (subject, told.base)]
    if not median or not all(map(math.isfinite, half)):
        return f"{both}."
    return f"{both}; half of the jobs within {write(half[0])} and {write(half[1])}."


def _cells(rows: pd.DataFrame) -> Cells:
    return {
        (str(row["label"]), str(row["metric"])): {str(key): value for key, value in row.items()}
        for row in rows.to_dict("records")
    }


def _at(cells: Cells, label: str, metric: str) -> float:
    return float(cells[label, metric]["change"]) if (label, metric) in cells else float("nan")


def _value(cells: Cells, outcome: Outcome, metric: str) -> float:
    value = (
        float(cells[outcome.label, metric]["value"])
        if (outcome.label, metric) in cells
        else math.nan
    )
    return math.inf if math.isnan(value) else value


def _is_clear(cell: Mapping[str, Any]) -> bool:
    change, low, high = (float(cell[name]) for name in ("change", "low", "high"))
    return Interval(change, None if np.isnan(low) else low, None if np.isnan(high) else high).clear


def _elsewhere(cells: Cells, outcome: Outcome, goal: str) -> str:
    """Return the other goal that gets clearly worse by the most; "" = none by much."""
    worse = {
        name: _at(cells, outcome.label, name)
        for name in GOALS
        if name != goal and cells.get((outcome.label, name), {}).get("verdict") == "worse"
    }
    name = max(worse, key=lambda one: worse[one], default="")
    return f"the {GOALS[name]} rises {_by(worse[name])}" if name and worse[name] >= _WORTH else ""


def _by(change: float) -> str:
    return f"{as_many(change)}-fold" if change > MANY else f"by {percent(change)}"


def _cost(pair: Paired, elsewhere: str, *, dropped: bool) -> str:
    if dropped and pair.only_base > pair.only_other:
        missing = pair.only_base - pair.only_other
        return f"{jobs_text(missing)} fewer complete{'s' if missing == 1 else ''}"
    slower = f"{percent(pair.slower)} of jobs get slower" if pair.slower else "no job gets slower"
    if not elsewhere:
        return slower
    return f"{slower} and {elsewhere}" if pair.slower else f"{slower}, but {elsewhere}"


def _gain(pair: Paired, *, dropped: bool) -> str:
    if dropped and pair.only_base > pair.only_other:
        return _cost(pair, "", dropped=True)
    return f"{percent(pair.faster)} of jobs get faster" if pair.faster else "no job gets faster"


def _nothing(outcomes: Sequence[Outcome]) -> str:
    """Return the sentence where no job was completed."""
    ended = [one for outcome in outcomes for one in outcome.summaries]
    if all(one["impossible"] == one["jobs"] for one in ended):
        return "No job can run: none of them fits on this cluster."
    return (
        f"No job was completed under {outcomes[0].label if len(outcomes) == 1 else 'any policy'}."
    )


def _nobody(outcomes: Sequence[Outcome], base: Outcome, missing: int) -> str:
    """Return the sentence where no policy is a candidate."""
    if missing:
        return (
            f"{' and '.join(one.label for one in outcomes)} {'is' if len(outcomes) == 1 else 'are'}"
            " complete, no other policy is: nothing to compare yet."
        )
    if len(outcomes) == 1:
        return f"{base.label} alone: add another policy to compare."
    return (
        f"{base.label} stands beside the recorded schedule only: add another policy to see which is"
        " faster."
    )
