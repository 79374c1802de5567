"""Validity checks of a comparison: limits under which policies must not be judged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np
import pandas as pd

from jobtraces.readers.plausible import GRAVE_QUESTIONS
from sim.cluster import Cluster
from sim.perf.profiled import Profiled
from sim.trace import Trace
from trainyard.clusters import cluster_warnings as of_machines
from trainyard.clusters.machines import offered_load
from trainyard.formatting import duration, plural
from trainyard.results.backtest_verdict import Past
from trainyard.results.compare import CLEAR, Floats, Mask, Outcome, percent
from trainyard.results.recorded_accuracy import Explained, best_explanation, share_waiting_for_gpus
from trainyard.results.suggestions import is_reference_policy, reference_policies
from trainyard.study import catalog
from trainyard.study.study import Study

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
"""Verdicts that hide all differences, in tables too."""

IMPOSSIBLE: Final = 0.5
"""Share of jobs that fit nowhere, above which the other jobs do not represent the trace."""
OVERLOAD: Final = 1.2
FULL: Final = 1.0
"""Loads above which no policy can be judged, and above which queues grow until the last job."""
WAITING: Final = 0.25
"""Share of jobs not started when the last one arrives, from which no policy can be judged."""
IDLE_S: Final = 60.0
"""Mean wait below which there is nothing to schedule."""
SERVED: Final = 0.05
"""Relative difference of mean run times from which policies differ although no job waits."""
MIN_JOBS: Final = 30
MIN_JOBS_IN_GROUP: Final = 10
"""Completed jobs below which no percentages are shown."""
CUT: Final = 0.02
"""Share of jobs not completed, above which their number comes first."""
MIN_DRAWS: Final = 3
SHORT: Final = 0.5
"""Share of recorded waiting time with too few free GPUs; below it a recording is no baseline."""
CARRIED: Final = 0.4
CARRIERS: Final = 0.02
MAX_CARRIERS: Final = 10
"""Few jobs carry a mean if they make this part of it: at most this share and this number."""


WIDE: Final = 0.5
"""Share of the GPUs from which one running job keeps many others waiting."""


class Limit(NamedTuple):
    """A limit of a comparison: its verdict and the sentence that explains it."""

    verdict: Verdict
    sentence: str


@dataclass(frozen=True, eq=False)
class ComparisonSetting:
    """Facts about a comparison beyond its runs.

    Parameters
    ----------
    trace, cluster : Trace or None, Cluster or None
        Jobs and machines.
    load : float
        See `trainyard.clusters.machines.offered_load`, over jobs that fit; NaN = unknown.
    scale : float
        `TraceSpec.load` of the study.
    random : bool
        Whether decisions depend on random draws: failures, estimator errors.
    references : mapping of int
        Label of a policy that should explain a recording -> its index in the study.
    replaced_baseline : str
        Label of the chosen baseline if it cannot run and another policy replaces it; "" = it runs.
    doubts : mapping of str
        Doubts about these jobs on these machines, by id; see `trainyard.clusters.cluster_warnings`.
    past : Past or None
        Backtest verdict on the compared policies; None = no backtest.
    site : str
        Label of the backtested policy; "" = none, or it has no result.
    """

    trace: Trace | None = None
    cluster: Cluster | None = None
    load: float = math.nan
    scale: float = 1.0
    random: bool = False
    references: Mapping[str, int] = field(default_factory=dict)
    replaced_baseline: str = ""
    doubts: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    past: Past | None = None
    site: str = ""


UNKNOWN: Final = ComparisonSetting()


def setting(
    study: Study, trace: Trace, outcomes: Mapping[int, Outcome], past: Past | None = None
) -> ComparisonSetting:
    """Return the load, doubts, references and backtest of a study for the validity checks.

    Load and doubts concern jobs that fit the cluster; see `ComparisonSetting`.

    Parameters
    ----------
    study : Study
        The study.
    trace : Trace
        Its jobs.
    outcomes : mapping of Outcome
        Index of each complete policy -> its outcome.
    past : Past or None
        See `trainyard.results.backtest_verdict`.
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
        random=_is_random(study),
        references={
            one.label: at
            for at, one in outcomes.items()
            if is_reference_policy(study.allocators[at])
        },
        doubts=of_machines.find_doubts(
            trace, base.cluster, never, measured=catalog.is_model(base.perf, Profiled)
        ),
        source=base.trace.source,
        past=past,
        site=outcomes[past.at].label if past is not None and past.at in outcomes else "",
    )


def overload_reason(outcomes: Sequence[Outcome], load: float) -> str:
    """Return why the load is too high to judge any policy; "" if it is not.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Recorded schedules are ignored.
    load : float
        NaN or inf (all jobs arrive at one instant) = unknown.

    Notes
    -----
    Load above `OVERLOAD`; or under every policy the queue drains for longer than jobs arrive; or
    under every policy `WAITING` of all jobs have not started when the last one arrives.
    Drained is from the last submission to the last finish, less the longest time that a single job
    ran (our choice: a long job at the end is no queue). Jobs that fit nowhere or were refused do
    not count.
    """
    if OVERLOAD < load < math.inf:
        return f"the jobs request {_load_text(load)} times the cluster's capacity"
    backlogs = [
        _backlog(jobs, float(one.summaries[turn].get("end_s", math.inf)))
        for one in outcomes
        if not one.replays
        for turn, jobs in enumerate(one.jobs)
    ]
    if not backlogs or any(one.span_s <= 0 for one in backlogs):
        return ""
    drain_s, waiting = min(one.drain_s for one in backlogs), min(one.waiting for one in backlogs)
    if all(one.drain_s > one.span_s for one in backlogs):
        return (
            f"jobs arrive for {duration(backlogs[0].span_s)}, and then the queue takes"
            f" {duration(drain_s)} or more to drain under every policy"
        )
    if waiting >= WAITING:
        return (
            f"when the last job arrives, {percent(waiting)} of all jobs have not started under any"
            " policy"
        )
    return ""


def doubt_reason(outcomes: Sequence[Outcome], trace: Trace | None) -> str:
    """Return why results on these jobs and machines are meaningless; "" if they are not.

    Reasons: the trace may be misread, or too many jobs fit nowhere.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Outcomes of all policies.
    trace : Trace or None
        A doubt about its units, or about a job with most of the work, invalidates every result.
    """
    grave = [text for key, text in doubts(trace) if key in GRAVE_QUESTIONS]
    if grave:
        return f"the trace may be misread. {grave[0]}"
    outcome = outcomes[0].jobs[0]["outcome"]
    share = float((outcome == "impossible").mean())
    if share > IMPOSSIBLE:
        return f"{percent(share)} of the jobs fit nowhere on this cluster."
    return ""


def doubts(trace: Trace | None) -> tuple[tuple[str, str], ...]:
    """Return the open doubts about a trace as (id, sentence) pairs."""
    return () if trace is None else trace.doubts


class _Backlog(NamedTuple):
    """Arrival span, drain time and share of waiting jobs of a run."""

    span_s: float
    drain_s: float
    waiting: float


def _backlog(jobs: pd.DataFrame, end_s: float) -> _Backlog:
    """Return the arrival span, drain time and share of jobs waiting at the last arrival."""
    submit = jobs["submit_s"].to_numpy(np.float64)
    is_counted = ~np.asarray(jobs["outcome"].isin(["impossible", "refused"])) & (submit <= end_s)
    if not is_counted.any():
        return _Backlog(0.0, 0.0, 0.0)
    submit, start, finish, held = (
        jobs[name].to_numpy(np.float64)[is_counted]
        for name in ("submit_s", "first_start_s", "finish_s", "held_s")
    )
    last = submit.max()
    ended = np.isfinite(finish)
    drain_s = max(finish[ended].max() - last - held[ended].max(), 0.0) if ended.any() else 0.0
    return _Backlog(
        last - submit.min(), drain_s, float(((submit < last) & ~(start <= last)).mean())
    )


def idle_limit(outcomes: Sequence[Outcome]) -> Limit | None:
    """Return the limit for jobs that hardly wait, or None.

    Notes
    -----
    Mean wait below `IDLE_S` under every simulated policy, and at most `CUT` of the jobs completed
    under only one of them. If mean run times differ by `SERVED` or more (sizes, GPU types),
    policies still differ: then `Limit.verdict` is "clear" and the sentence a note.
    """
    simulated = [one for one in outcomes if not one.replays]
    waits, served = (
        zip(*(_mean_times(one, simulated) for one in simulated), strict=True)
        if simulated
        else ((), ())
    )
    done = [one.completed for one in simulated]
    if not waits or not max(waits) < IDLE_S or max(done) - min(done) > CUT * max(done):
        return None
    if min(served) > 0 and max(served) / min(served) - 1 >= SERVED:
        return Limit(
            "clear", "Jobs hardly wait under any policy: what differs is how fast they run."
        )
    recorded = [
        wait for one in outcomes if one.replays and (wait := _mean_times(one, [one])[0]) >= IDLE_S
    ]
    recorded_text = (
        f" In the recorded schedule they wait {duration(recorded[0])} on average, for reasons"
        " outside this scenario."
        if recorded
        else ""
    )
    return Limit(
        "idle", f"There is nothing to schedule: jobs hardly wait under any policy.{recorded_text}"
    )


def _mean_times(one: Outcome, others: Sequence[Outcome]) -> tuple[float, float]:
    """Return mean time without and with GPUs, over jobs that all `others` completed.

    NaN if there is no such job; repeats are pooled.
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


def recording_limit(
    base: Outcome, explained: Explained | None, setting: ComparisonSetting = UNKNOWN
) -> Limit | None:
    """Return why no gain over a recorded schedule can be claimed, or None.

    None if the baseline is not a replay, the backtest allows comparisons, or a reference policy
    explains the recording.

    Notes
    -----
    Under FIFO, jobs also wait behind a larger one while GPUs are free. So waits with free GPUs
    count against a recording only if no reference policy explains it. A backtest of a compared
    policy takes precedence.
    """
    past = setting.past
    if not base.replays or (past is not None and past.comparable):
        return None
    if past is not None:
        return Limit(
            "unexplained", f"You cannot quote gains over {base.label}. {past.full_sentence}"
        )
    if explained is None:
        names = " or ".join(catalog.allocator(spec).title for spec in reference_policies())
        return Limit(
            "untested",
            f"You cannot quote gains over {base.label}: without {names} nothing shows that the"
            " model explains it.",
        )
    if explained.holds:
        return None
    if setting.trace is not None and setting.cluster is not None:
        short = share_waiting_for_gpus(setting.trace, setting.cluster)
        if short < SHORT:
            return Limit(
                "unexplained",
                f"Most recorded waits happened while GPUs were free ({percent(1 - short)}): quotas,"
                " holds or missing jobs caused them, not the policy. They are shown, not compared.",
            )
    return Limit(
        "unexplained",
        f"You cannot quote gains over {base.label}: the model does not explain it."
        f" {explained.sentence()}",
    )


def recording_explanation(
    setting: ComparisonSetting, base: Outcome, outcomes: Sequence[Outcome]
) -> Explained | None:
    """Return how well the closest reference policy explains the recording; None = unknown.

    None also if the baseline is not a replay of the recording.
    """
    if setting.trace is None or not base.replays:
        return None
    return best_explanation(
        setting.trace, [one for one in outcomes if one.label in setting.references]
    )


def full_load_limit(load: float) -> Limit | None:
    """Return the limit for a load above `FULL` and up to `OVERLOAD`, or None."""
    if not FULL < load <= OVERLOAD:
        return None
    sentence = (
        f"The cluster is overloaded: the jobs request {load:.2f} times its capacity, so waits grow"
        " as long as jobs arrive."
    )
    return Limit("loaded", sentence)


def few_jobs_limit(outcomes: Sequence[Outcome]) -> Limit | None:
    """Return the limit for fewer than `MIN_JOBS` completed jobs in every run, or None."""
    done = max(int(one.done(turn).sum()) for one in outcomes for turn in range(len(one.jobs)))
    if done >= MIN_JOBS:
        return None
    was = "was" if done == 1 else "were"
    return Limit("few", f"Only {plural(done, 'job')} {was} completed: too few for percentages.")


def chance_limit(outcomes: Sequence[Outcome], *, random: bool) -> Limit | None:
    """Return the limit for random runs with fewer than `MIN_DRAWS` repeats, or None."""
    draws = len(outcomes[0].jobs)
    if not random or draws >= MIN_DRAWS:
        return None
    return Limit(
        "one_draw",
        f"{'One random run' if draws == 1 else f'{draws} random runs'}: the result may differ by"
        " chance.",
    )


def ranking_limit(outcomes: Sequence[Outcome], goal: str, name: str) -> Limit | None:
    """Return the limit for a ranking that changes between repeats, or None.

    Parameters
    ----------
    outcomes : sequence of Outcome
        All outcomes; recorded schedules and policies that complete fewer jobs are ignored.
    goal, name : str
        Key of the metric in summaries, and its name.

    Notes
    -----
    Values within `CLEAR` of the lowest share first place, so equal policies do not alternate.
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
    counts = [
        f"with {label} in {count}{f' of {len(values)} repeats' if not at else ''}"
        for at, (label, count) in enumerate(firsts)
    ]
    return Limit("turns", f"The order changes with the seed: lowest {name} {', '.join(counts)}.")


def carried_limit(base: Outcome, other: Outcome) -> Limit | None:
    """Return the limit for a mean JCT, or a difference of two, that few jobs carry; or None.

    Notes
    -----
    Rules and thresholds are ours. Few = at most `CARRIERS` of the jobs that both completed (at
    least one) and at most `MAX_CARRIERS`. They carry a mean if they make `CARRIED` of all JCT
    under one of the two policies, and a difference if it is below `CLEAR`, or reversed, without
    them. First repeat only.
    """
    both: Mask = base.done(0) & other.done(0)
    before, after = base.facts(0).jct_s[both], other.facts(0).jct_s[both]
    few = max(min(MAX_CARRIERS, int(CARRIERS * len(before))), 1)
    if len(before) < 2 or not before.sum() or not after.sum():
        return None
    shares = [
        (*_carriers(values, few), one.label) for values, one in ((before, base), (after, other))
    ]
    number, share, label = min(shares, key=lambda one: (one[0], -one[1]))
    if number <= few:
        sentence = (
            f"{_makes_text(number, len(before))} {percent(share)} of all JCT under {label},"
            f" so {'it decides' if number == 1 else 'they decide'} the mean."
        )
        return Limit("carried", sentence)
    return _difference_limit(before, after, few)


def blocked_limit(base: Outcome, other: Outcome, gpus: int) -> Limit | None:
    """Return the limit for a difference due to few jobs that block the cluster, or None.

    Notes
    -----
    Rule and thresholds are ours. Blocking jobs, on `WIDE` of the GPUs or more, can have too little
    JCT for `carried` and still decide mean and median: a gang on all GPUs stops the FIFO queue for
    as long as it runs. The limit holds if as few jobs as in `carried` run during `CARRIED` of all
    time that jobs wait to start under the slower policy. First repeat only.
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
        : max(min(MAX_CARRIERS, int(CARRIERS * len(jobs))), 1)
    ]
    waits, during = start - submit, np.zeros(len(jobs))
    for number, at in enumerate(wide, start=1):
        during += np.maximum(
            np.minimum(start, start[at] + held[at]) - np.maximum(submit, start[at]), 0.0
        )
        share = float(np.minimum(during, waits).sum() / waits.sum()) if waits.any() else 0.0
        if share >= CARRIED:
            run, them = ("runs", "it") if number == 1 else ("run", "them")
            head = (
                f"{number:,} of {plural(len(jobs), 'job')}, on half of the GPUs or more, {run}"
                f" during {percent(share)}"
            )
            return Limit(
                "blocked",
                f"{head} of all waiting under {slower.label}, so the difference depends on {them}.",
            )
    return None


def _carriers(values: Floats, few: int) -> tuple[int, float]:
    """Return the fewest values that make `CARRIED` of a sum, and their share of it.

    (`few` + 1, 0) if more than `few` values are needed.
    """
    shares = np.sort(values)[::-1][:few].cumsum() / values.sum()
    number = int(np.searchsorted(shares, CARRIED)) + 1
    return (number, float(shares[number - 1])) if number <= few else (number, 0.0)


def _difference_limit(before: Floats, after: Floats, few: int) -> Limit | None:
    """Return the limit for a difference that vanishes without few jobs, or None.

    Removes up to `few` jobs, those that add most to the difference first.
    """
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
            result = "no clear difference is left" if abs(rest) < CLEAR else "the order is reversed"
            them = "it" if number == 1 else "them"
            return Limit(
                "carried",
                f"{_makes_text(number, len(before))} the difference of the means: without {them}"
                f" {result}.",
            )
    return None


def _makes_text(number: int, jobs: int) -> str:
    """Return the start of a sentence such as "2 of 90 jobs make"."""
    return f"{number:,} of {plural(jobs, 'job')} {'makes' if number == 1 else 'make'}"


def unfinished_limits(outcomes: Sequence[Outcome]) -> list[Limit]:
    """Return a limit for each policy that left more than `CUT` of its fitting jobs unfinished."""
    limits = []
    for one in outcomes:
        fit = sum(int(numbers["jobs"]) - int(numbers["impossible"]) for numbers in one.summaries)
        missing = fit - one.completed
        if fit and missing / fit > CUT:
            many = f" ({len(one.jobs)} repeats together)" if len(one.jobs) > 1 else ""
            were = "was" if missing == 1 else "were"
            limits.append(
                Limit(
                    "cut",
                    f"{missing:,} of {plural(fit, 'job')}{many} {were} not completed under"
                    f" {one.label}.",
                )
            )
    return limits


def _is_random(study: Study) -> bool:
    """Return True if nodes fail, or if a policy reads run-time estimates with random errors."""
    faults = catalog.instance("faults", study.base.faults)
    if faults.mtbf_h > 0 or faults.interruptions_per_node_h > 0:
        return True
    reads_estimates = any(
        "remaining_work" in catalog.allocator(spec).needs.reads for spec in study.allocators
    )
    return reads_estimates and bool(
        getattr(catalog.instance("estimator", study.base.estimator), "chance", False)
    )


def _load_text(load: float) -> str:
    """Return a load factor as text."""
    return f"{load:,.0f}" if load >= 10 else f"{load:.1f}"
