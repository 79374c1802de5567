"""Whether a comparison means anything: the cases in which no policy, or no difference, may be
judged, each a pure function over runs that says why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np
import pandas as pd

from jobtraces.readers.plausible import GRAVE
from sim.cluster import Cluster
from sim.perf.profiled import Profiled
from sim.trace import Trace
from trainyard.clusters import doubts as of_machines
from trainyard.clusters.machines import offered_load
from trainyard.results.compare import CLEAR, Floats, Mask, Outcome, percent
from trainyard.results.past import Past
from trainyard.results.trust import Explained, explained, waited_for_gpus
from trainyard.results.ways_out import is_reference, references
from trainyard.study import catalog
from trainyard.study.study import Study
from trainyard.text import duration, plural

Verdict = Literal[
    "nothing",
    "doubted",
    "overload",
    "idle",
    "unexplained",
    "untested",
    "few",
    "loaded",
    "one_draw",
    "turns",
    "undecided",
    "carried",
    "blocked",
    "cut",
    "clear",
]
WITHHELD: Final[frozenset[Verdict]] = frozenset(
    {"doubted", "overload", "idle", "unexplained", "untested", "few"}
)
"""Verdicts under which no difference is shown at all, in no table either."""

IMPOSSIBLE: Final = 0.5
"""Share of the jobs that fit nowhere, above which the others say nothing of the trace."""
OVERLOAD: Final = 1.2
FULL: Final = 1.0
"""Load above which no policy can be judged, and above which queues grow as long as jobs come."""
WAITING: Final = 0.25
"""Share of all jobs that have not started when the last one comes, from which on no policy can be
judged.
"""
IDLE_S: Final = 60.0
"""Mean wait below which there is nothing to schedule."""
SERVED: Final = 0.05
"""Relative difference of the mean times that jobs hold something, from which on policies differ
although no job waits.
"""
FEWEST_JOBS: Final = 30
FEWEST_IN_GROUP: Final = 10
"""Completed jobs below which nothing is told in per cent."""
CUT: Final = 0.02
"""Share of jobs not completed, above which their number stands first."""
FEWEST_DRAWS: Final = 3
SHORT: Final = 0.5
"""Share of the recorded waiting time in which GPUs were short, below which a recording is no
yardstick.
"""
CARRIED: Final = 0.4
CARRIERS: Final = 0.02
MOST_CARRIERS: Final = 10
"""A mean is carried by few jobs if so large a part of it is of at most so many of them, as a share
and in number.
"""


WIDE: Final = 0.5
"""Share of the GPUs from which on a job that runs keeps many others waiting."""


class Limit(NamedTuple):
    """Why a headline may not be confident."""

    verdict: Verdict
    sentence: str


@dataclass(frozen=True, eq=False)
class ComparisonSetting:
    """What is known of a comparison beyond its runs.

    Parameters
    ----------
    trace, cluster : Trace or None, Cluster or None
        Jobs and machines.
    load : float
        See `trainyard.clusters.machines.offered_load`, of the jobs that fit; NaN = not known.
    scale : float
        `TraceSpec.load` of the study.
    random : bool
        Whether something is drawn at random that decisions depend on: failures, errors of
        estimators.
    references : mapping of int
        Label of a policy that should explain a recording -> its place in the study.
    asked : str
        Label of the baseline that was asked for, where it cannot run and another one stands in; ""
        = it is there.
    doubts : mapping of str
        What is in doubt of these jobs on these machines, by id; see `trainyard.clusters.doubts`.
    past : Past or None
        What a check against the past has found of the policies compared; None = there was none.
    site : str
        Label of the policy that it is about; "" = there is none, or it has no result.
    """

    trace: Trace | None = None
    cluster: Cluster | None = None
    load: float = math.nan
    scale: float = 1.0
    random: bool = False
    references: Mapping[str, int] = field(default_factory=dict)
    asked: str = ""
    doubts: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    past: Past | None = None
    site: str = ""


UNKNOWN: Final = ComparisonSetting()


def setting(
    study: Study, trace: Trace, outcomes: Mapping[int, Outcome], past: Past | None = None
) -> ComparisonSetting:
    """Return what is known of a study.

    Parameters
    ----------
    study : Study
        What was asked.
    trace : Trace
        Its jobs.
    outcomes : mapping of Outcome
        Place of each complete policy -> what it gave.
    past : Past or None
        See `trainyard.results.past.known`.
    """
    first = next(iter(outcomes.values())).jobs[0]
    fits = ~np.asarray(first["outcome"] == "impossible")
    base = study.base
    impossible = [
        np.asarray(one.jobs[0]["outcome"] == "impossible")
        for one in outcomes.values()
        if not one.replays
    ]
    never = np.logical_and.reduce(impossible) if impossible else np.zeros(len(trace), bool)
    reference = str(base.perf.values.get("reference", ""))
    return ComparisonSetting(
        trace=trace,
        cluster=base.cluster,
        load=offered_load(trace, base.cluster, fits, reference),
        scale=base.trace.load,
        random=_random(study),
        references={
            one.label: at for at, one in outcomes.items() if is_reference(study.allocators[at])
        },
        doubts=of_machines.found(
            trace, base.cluster, never, measured=catalog.is_model(base.perf, Profiled)
        ),
        source=base.trace.source,
        past=past,
        site=outcomes[past.at].label if past is not None and past.at in outcomes else "",
    )


def overload(outcomes: Sequence[Outcome], load: float) -> str:
    """Return why no policy can be judged on a cluster that jobs ask too much of; "" = it can.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Recorded schedules say nothing of the described cluster and are left out.
    load : float
        NaN or inf (all jobs come at one instant) = not known.

    Notes
    -----
    Load above `OVERLOAD`; or under every policy the queue takes longer to drain than the jobs took
    to come; or under every policy `WAITING` of all jobs came before the last one and have not
    started when that comes.
    Drained is from the last submission to the last finish, less the longest time that a single job
    ran (ours: a long job at the end is no queue). Jobs that fit nowhere or were refused do not
    count.
    """
    if OVERLOAD < load < math.inf:
        return f"the jobs ask for {_times(load)} times what the cluster can do"
    found = [
        _backlog(jobs, float(one.summaries[turn].get("end_s", math.inf)))
        for one in outcomes
        if not one.replays
        for turn, jobs in enumerate(one.jobs)
    ]
    if not found or any(one.span_s <= 0 for one in found):
        return ""
    drain_s, waiting = min(one.drain_s for one in found), min(one.waiting for one in found)
    if all(one.drain_s > one.span_s for one in found):
        return (
            f"jobs come for {duration(found[0].span_s)}, and then the queue takes"
            f" {duration(drain_s)} or more to drain under every policy"
        )
    if waiting >= WAITING:
        return (
            f"when the last job comes, {percent(waiting)} of all jobs have not started under any"
            " policy"
        )
    return ""


def doubted(outcomes: Sequence[Outcome], trace: Trace | None) -> str:
    """Return why nothing can be concluded from such jobs on these machines; "" = something can.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Of all policies.
    trace : Trace or None
        A doubt about its units, or about a job with most of the work, outweighs every result.
    """
    grave = [text for key, text in doubts(trace) if key in GRAVE]
    if grave:
        return f"it is open whether the trace is read right. {grave[0]}"
    outcome = outcomes[0].jobs[0]["outcome"]
    share = float((outcome == "impossible").mean())
    if share > IMPOSSIBLE:
        return f"{percent(share)} of the jobs fit nowhere on this cluster."
    return ""


def doubts(trace: Trace | None) -> tuple[tuple[str, str], ...]:
    """Return what reading a trace has left in doubt, by id and in words."""
    return () if trace is None else trace.doubts


class _Backlog(NamedTuple):
    span_s: float
    drain_s: float
    waiting: float


def _backlog(jobs: pd.DataFrame, end_s: float) -> _Backlog:
    """Return how long jobs come, how long the queue then drains, and the share of jobs that waits
    when the last one comes.
    """
    submit = jobs["submit_s"].to_numpy(np.float64)
    there = ~np.asarray(jobs["outcome"].isin(["impossible", "refused"])) & (submit <= end_s)
    if not there.any():
        return _Backlog(0.0, 0.0, 0.0)
    submit, start, finish, held = (
        jobs[name].to_numpy(np.float64)[there]
        for name in ("submit_s", "first_start_s", "finish_s", "held_s")
    )
    last = submit.max()
    ended = np.isfinite(finish)
    drain_s = max(finish[ended].max() - last - held[ended].max(), 0.0) if ended.any() else 0.0
    return _Backlog(
        last - submit.min(), drain_s, float(((submit < last) & ~(start <= last)).mean())
    )


def idle(outcomes: Sequence[Outcome]) -> Limit | None:
    """Return what is to be said where jobs hardly wait; None = they do.

    Notes
    -----
    Mean wait below `IDLE_S` under every simulated policy, and no more than `CUT` of the jobs
    completed under one of them only. If jobs hold their machines for times
    whose means differ by `SERVED` or more (sizes, GPU types), policies can still be told apart:
    then it is no verdict (`Limit.verdict` is "clear") but a remark.
    """
    simulated = [one for one in outcomes if not one.replays]
    waits, served = (
        zip(*(_means(one, simulated) for one in simulated), strict=True) if simulated else ((), ())
    )
    done = [one.completed for one in simulated]
    if not waits or not max(waits) < IDLE_S or max(done) - min(done) > CUT * max(done):
        return None
    if min(served) > 0 and max(served) / min(served) - 1 >= SERVED:
        return Limit(
            "clear", "Jobs hardly wait under any policy: what differs is how fast they run."
        )
    recorded = [
        wait for one in outcomes if one.replays and (wait := _means(one, [one])[0]) >= IDLE_S
    ]
    besides = (
        f" In the recording they wait {duration(recorded[0])} on average, for reasons that this"
        " scenario does not hold."
        if recorded
        else ""
    )
    return Limit(
        "idle", f"There is nothing to schedule: jobs hardly wait under any policy.{besides}"
    )


def _means(one: Outcome, others: Sequence[Outcome]) -> tuple[float, float]:
    """Return the means of waiting and of holding something, over the jobs that several policies
    completed; NaN = none.
    """
    waits, held = [], []
    for turn in range(len(one.jobs)):
        done = np.logical_and.reduce([other.done(turn) for other in others])
        facts = one.facts(turn)
        waits.append(facts.wait_s[done])
        held.append((facts.jct_s - facts.wait_s)[done])
    if not sum(map(len, waits)):
        return math.nan, math.nan
    return float(np.concatenate(waits).mean()), float(np.concatenate(held).mean())


def against_recording(
    base: Outcome, found: Explained | None, setting: ComparisonSetting = UNKNOWN
) -> Limit | None:
    """Return why nothing can be credited against a recorded schedule; None = it can, or the
    baseline is none.

    Notes
    -----
    Under FIFO jobs wait beside free GPUs, too, behind a larger one. So waits while GPUs were free
    count against a recording only where no reference policy explains it. A check against the past
    of a policy that is compared decides before all that.
    """
    past = setting.past
    if not base.replays or (past is not None and past.comparable):
        return None
    if past is not None:
        return Limit("unexplained", f"No gain over {base.label} can be claimed. {past.told}")
    if found is None:
        names = " or ".join(catalog.allocator(spec).title for spec in references())
        return Limit(
            "untested",
            f"No gain over {base.label} can be claimed: without {names} nothing shows that the"
            " model explains the recording.",
        )
    if found.holds:
        return None
    if setting.trace is not None and setting.cluster is not None:
        short = waited_for_gpus(setting.trace, setting.cluster)
        if short < SHORT:
            return Limit(
                "unexplained",
                f"Most recorded waits happened while GPUs were free ({percent(1 - short)}): quotas,"
                " holds or missing jobs, not the policy. The recording is shown, not compared.",
            )
    return Limit(
        "unexplained",
        f"No gain over {base.label} can be claimed: the model does not explain the recording."
        f" {found.sentence()}",
    )


def explanation(
    setting: ComparisonSetting, base: Outcome, outcomes: Sequence[Outcome]
) -> Explained | None:
    """Return how well the nearest of the reference policies explains the recording; None =
    unknown.
    """
    if setting.trace is None or not base.replays:
        return None
    return explained(setting.trace, [one for one in outcomes if one.label in setting.references])


def full(load: float) -> Limit | None:
    """Return what is to be said of a load above `FULL` and up to `OVERLOAD`."""
    if not FULL < load <= OVERLOAD:
        return None
    told = (
        f"The cluster is overloaded: the jobs ask for {load:.2f} times what it can do, so waits"
        " grow as long as jobs come."
    )
    return Limit("loaded", told)


def few(outcomes: Sequence[Outcome]) -> Limit | None:
    """Return what is to be said of a comparison over fewer than `FEWEST_JOBS` completed jobs."""
    done = max(int(one.done(turn).sum()) for one in outcomes for turn in range(len(one.jobs)))
    if done >= FEWEST_JOBS:
        return None
    was = "was" if done == 1 else "were"
    return Limit("few", f"Only {plural(done, 'job')} {was} completed: too few for percentages.")


def one_draw(outcomes: Sequence[Outcome], *, random: bool) -> Limit | None:
    """Return what is to be said where fewer than `FEWEST_DRAWS` repeats were run and something is
    random.
    """
    draws = len(outcomes[0].jobs)
    if not random or draws >= FEWEST_DRAWS:
        return None
    return Limit(
        "one_draw", f"{'One draw' if draws == 1 else f'{draws} draws'}: may differ by chance."
    )


def turns(outcomes: Sequence[Outcome], goal: str, name: str) -> Limit | None:
    """Return what is to be said where no policy has the lowest value in every repeat.

    Parameters
    ----------
    outcomes : sequence of Outcome
        All of the comparison; recorded schedules, and policies that complete fewer jobs than
        another, do not count.
    goal, name : str
        Key of the metric in summaries, and what it is called.

    Notes
    -----
    Values within `CLEAR` of the lowest share its place, so policies that are alike do not turn.
    """
    most = max(one.completed for one in outcomes)
    rivals = [one for one in outcomes if not one.replays and one.completed == most]
    values = np.array(
        [
            [one.summaries[turn].get(goal) for one in rivals]
            for turn in range(len(outcomes[0].summaries))
        ],
        np.float64,
    )
    if len(rivals) < 2 or len(values) < 2 or not np.isfinite(values).all():
        return None
    lowest = values.min(axis=1, keepdims=True)
    if (values <= lowest * (1 + CLEAR)).all(axis=0).any():
        return None
    firsts = Counter(rivals[at].label for at in values.argmin(axis=1)).most_common()
    told = [
        f"with {label} in {count}{f' of {len(values)} repeats' if not at else ''}"
        for at, (label, count) in enumerate(firsts)
    ]
    return Limit("turns", f"The order changes with the seed: lowest {name} {', '.join(told)}.")


def carried(base: Outcome, other: Outcome) -> Limit | None:
    """Return what is to be said of a mean JCT, or of a difference of two, that few jobs make.

    Notes
    -----
    Rules and thresholds are ours. Few = at most `CARRIERS` of the jobs that both completed (but
    one at least) and at most `MOST_CARRIERS`. A mean is carried by them if under one of the two
    policies they make `CARRIED` of all JCT; a difference, if without those that speak for it most
    it is below `CLEAR` or has the other sign. First repeat.
    """
    both: Mask = base.done(0) & other.done(0)
    before, after = base.facts(0).jct_s[both], other.facts(0).jct_s[both]
    few = max(min(MOST_CARRIERS, int(CARRIERS * len(before))), 1)
    if len(before) < 2 or not before.sum() or not after.sum():
        return None
    found = [
        (*_heaviest(values, few), one.label) for values, one in ((before, base), (after, other))
    ]
    number, share, label = min(found, key=lambda one: (one[0], -one[1]))
    if number <= few:
        told = (
            f"{_of(number, len(before))} {percent(share)} of all JCT under {label}: the mean is"
            f" {'its' if number == 1 else 'theirs'}."
        )
        return Limit("carried", told)
    return _leaning(before, after, few)


def blocked(base: Outcome, other: Outcome, gpus: int) -> Limit | None:
    """Return what is to be said of a difference that hangs on few jobs on `WIDE` of the cluster,
    which the others wait for.

    Notes
    -----
    Rule and thresholds are ours. Such jobs may be short of the share of all JCT that `carried`
    asks for, and the median is as much theirs as the mean: a gang on all GPUs stops the queue of
    FIFO for as long as it runs. Said if as few jobs as in `carried` run during `CARRIED` of all
    time that jobs wait to start under the slower of the two policies. First repeat.
    """
    both: Mask = base.done(0) & other.done(0)
    totals = [float(one.facts(0).jct_s[both].sum()) for one in (base, other)]
    if gpus <= 0 or not totals[0] or abs(totals[1] / totals[0] - 1) < CLEAR:
        return None
    slower = max(zip(totals, (base, other), strict=True), key=lambda pair: pair[0])[1]
    jobs = slower.jobs[0][both]
    submit, start, held = (
        jobs[name].to_numpy(np.float64) for name in ("submit_s", "first_start_s", "held_s")
    )
    wide = np.flatnonzero(jobs["gpus"].to_numpy(np.float64) >= WIDE * gpus)
    wide = wide[np.argsort(-held[wide], kind="stable")][
        : max(min(MOST_CARRIERS, int(CARRIERS * len(jobs))), 1)
    ]
    waits, during = start - submit, np.zeros(len(jobs))
    for number, at in enumerate(wide, start=1):
        during += np.maximum(
            np.minimum(start, start[at] + held[at]) - np.maximum(submit, start[at]), 0.0
        )
        share = float(np.minimum(during, waits).sum() / waits.sum()) if waits.any() else 0.0
        if share >= CARRIED:
            run, them = ("runs", "it") if number == 1 else ("run", "them")
            told = (
                f"{number:,} of {plural(len(jobs), 'job')}, on half of the GPUs or more, {run}"
                f" during {percent(share)}"
            )
            return Limit(
                "blocked",
                f"{told} of all waiting under {slower.label}: the difference hangs on {them}.",
            )
    return None


def _heaviest(values: Floats, few: int) -> tuple[int, float]:
    """Return the fewest jobs that make `CARRIED` of a sum, and the share they make; more than `few`
    are not counted.
    """
    shares = np.sort(values)[::-1][:few].cumsum() / values.sum()
    number = int(np.searchsorted(shares, CARRIED)) + 1
    return (number, float(shares[number - 1])) if number <= few else (number, 0.0)


def _leaning(before: Floats, after: Floats, few: int) -> Limit | None:
    change = after.sum() / before.sum() - 1
    if abs(change) < CLEAR:
        return None
    order = np.argsort((after - before) * np.sign(change))[::-1][:few]
    for number in range(1, len(order) + 1):
        old, new = (
            before.sum() - before[order[:number]].sum(),
            after.sum() - after[order[:number]].sum(),
        )
        rest = new / old - 1 if old > 0 else 0.0
        if abs(rest) < CLEAR or rest * change < 0:
            left = "no clear difference is left" if abs(rest) < CLEAR else "the order is reversed"
            them = "it" if number == 1 else "them"
            return Limit(
                "carried",
                f"{_of(number, len(before))} the difference of the means: without {them} {left}.",
            )
    return None


def _of(number: int, jobs: int) -> str:
    return f"{number:,} of {plural(jobs, 'job')} {'makes' if number == 1 else 'make'}"


def cut(outcomes: Sequence[Outcome]) -> list[Limit]:
    """Return what is to be said of the policies that left more than `CUT` of the jobs that fit
    undone.
    """
    said = []
    for one in outcomes:
        fit = sum(int(numbers["jobs"]) - int(numbers["impossible"]) for numbers in one.summaries)
        missing = fit - one.completed
        if fit and missing / fit > CUT:
            many = f" ({len(one.jobs)} repeats together)" if len(one.jobs) > 1 else ""
            were = "was" if missing == 1 else "were"
            said.append(
                Limit(
                    "cut",
                    f"{missing:,} of {plural(fit, 'job')}{many} {were} not completed under"
                    f" {one.label}.",
                )
            )
    return said


def _random(study: Study) -> bool:
    faults = catalog.instance("faults", study.base.faults)
    if faults.mtbf_h > 0 or faults.interruptions_per_node_h > 0:
        return True
    asked = any(
        "remaining_work" in catalog.allocator(spec).needs.reads for spec in study.allocators
    )
    return asked and bool(
        getattr(catalog.instance("estimator", study.base.estimator), "chance", False)
    )


def _times(load: float) -> str:
    return f"{load:,.0f}" if load >= 10 else f"{load:.1f}"
