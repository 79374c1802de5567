from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.params import Spec
from sim.trace import Trace
from trainyard.results import groups, validity
from trainyard.results.compare import MetricChange, Outcome
from trainyard.results.recorded_accuracy import Explained, best_explanation
from trainyard.results.validity import setting
from trainyard.study.scenario import EXACT
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace

HOUR = 3600.0
NAN = float("nan")
Job = tuple[float, float, float, float]


def ran(
    label: str, *repeats: list[Job], replays: bool = False, end_s: float = math.inf, ended: str = ""
) -> Outcome:
    """Jobs as (submitted, first started, finished, time held), in hours; `ended` = how those end
    that do not finish.
    """
    frames, summaries = [], []
    for rows in repeats:
        frame = (
            pd.DataFrame(rows, columns=["submit_s", "first_start_s", "finish_s", "held_s"]) * HOUR
        )
        outcome = np.where(np.isfinite(frame["finish_s"]), "completed", ended or "unfinished")
        frames.append(frame.assign(outcome=pd.Categorical(outcome), gpus=1))
        jct = (frame["finish_s"] - frame["submit_s"]).mean()
        counts = {"jobs": len(rows), "impossible": int((outcome == "impossible").sum())}
        summaries.append({**counts, "end_s": end_s * HOUR, "jct_mean_s": float(jct)})
    return Outcome(label, tuple(summaries), tuple(frames), replays)


def queue(count: int, gap: float, length: float, wait: float = 0.0) -> list[Job]:
    """So many jobs, each `gap` hours after the one before; all wait and run equally long."""
    return [(at * gap, at * gap + wait, at * gap + wait + length, length) for at in range(count)]


# Overload.


def test_load_above_1_2_means_that_no_policy_can_be_judged() -> None:
    calm = [ran("A", queue(40, 1.0, 1.0))]
    assert (
        validity.overload_reason(calm, 67.2) == "the jobs request 67 times the cluster's capacity"
    )
    assert (
        validity.overload_reason(calm, 1.21) == "the jobs request 1.2 times the cluster's capacity"
    )
    assert validity.overload_reason(calm, 1.2) == ""
    # All jobs at one instant: there is no span, so there is no load.
    assert validity.overload_reason([ran("A", queue(40, 0.0, 1.0))], math.inf) == ""


def test_a_queue_that_drains_longer_than_jobs_come_under_every_policy() -> None:
    # Jobs come for 1 h; the last finish is at 5 h, 4 h later, and one job runs 1 h: 3 h of queue.
    slow = [(0.0, 0.0, 1.0, 1.0), (0.5, 3.0, 4.0, 1.0), (1.0, 1.0, 5.0, 1.0)]
    told = validity.overload_reason([ran("A", slow)], 0.9)
    assert (
        told
        == "jobs arrive for 1 h, and then the queue takes 3 h or more to drain under every policy"
    )
    fast = [(0.0, 0.0, 1.0, 1.0), (0.5, 0.5, 1.5, 1.0), (1.0, 1.0, 2.0, 1.0)]
    assert validity.overload_reason([ran("A", slow), ran("B", fast)], 0.9) == ""
    # A recorded schedule says nothing of this cluster.
    assert validity.overload_reason([ran("A", slow), ran("H", fast, replays=True)], 0.9) == told


def test_a_long_job_at_the_end_is_no_queue() -> None:
    assert (
        validity.overload_reason([ran("A", [(0.0, 0.0, 1.0, 1.0), (1.0, 1.0, 31.0, 30.0)])], 0.5)
        == ""
    )


def test_a_quarter_of_the_jobs_waiting_when_the_last_one_comes() -> None:
    # Of four jobs the one of 10 h has not started at 30 h, when the last one comes and starts.
    waiting = [
        (0.0, 0.0, 10.0, 10.0),
        (10.0, 31.0, 32.0, 1.0),
        (20.0, 20.0, 30.0, 10.0),
        (30.0, 30.0, 31.0, 1.0),
    ]
    told = validity.overload_reason([ran("A", waiting)], 0.9)
    assert told == "when the last job arrives, 25 % of all jobs have not started under any policy"
    fifth = [*waiting, (25.0, 25.0, 26.0, 1.0)]
    assert validity.overload_reason([ran("A", fifth)], 0.9) == ""
    # Jobs that fit nowhere wait for nothing.
    never = [(float(at), NAN, NAN, 0.0) for at in range(9)] + [(30.0, 30.0, 31.0, 1.0)]
    assert validity.overload_reason([ran("A", never, ended="impossible")], 0.9) == ""
    # Ended at 5 h: of the jobs that had come by then both had started.
    assert (
        validity.overload_reason(
            [ran("A", [*waiting[:1], (4.0, 4.0, NAN, 1.0), *waiting[1:]], end_s=5.0)], 0.9
        )
        == ""
    )


def test_load_between_1_and_1_2_is_said() -> None:
    assert validity.full_load_limit(1.0) is None
    assert validity.full_load_limit(1.3) is None
    assert validity.full_load_limit(NAN) is None
    found = validity.full_load_limit(1.1)
    assert found is not None
    assert found.sentence.startswith(
        "The cluster is overloaded: the jobs request 1.10 times its capacity"
    )


# Idle.


def test_a_mean_wait_below_a_minute_under_every_policy_is_idle() -> None:
    short, long = queue(40, 1.0, 0.5, wait=59 / HOUR), queue(40, 1.0, 0.5, wait=61 / HOUR)
    found = validity.idle_limit([ran("A", short), ran("B", queue(40, 1.0, 0.5))])
    assert found is not None
    assert found.verdict == "idle"
    assert validity.idle_limit([ran("A", short), ran("B", long)]) is None
    recorded = validity.idle_limit(
        [ran("A", short), ran("H", queue(40, 1.0, 0.5, wait=2.0), replays=True)]
    )
    assert recorded is not None
    assert " 2 h " in recorded.sentence


def test_policies_that_make_jobs_faster_can_be_told_apart_though_nobody_waits() -> None:
    # 1 h against 1.04 h: within 5 %; against 1.06 h: not.
    near = validity.idle_limit([ran("A", queue(40, 1.0, 1.0)), ran("B", queue(40, 1.0, 1.04))])
    assert near is not None
    assert near.verdict == "idle"
    found = validity.idle_limit([ran("A", queue(40, 1.0, 1.0)), ran("B", queue(40, 1.0, 1.06))])
    assert found is not None
    assert found.verdict == "clear"
    fails = [*queue(38, 1.0, 1.0), (38.0, 38.0, NAN, 1.0), (39.0, 39.0, NAN, 1.0)]
    assert validity.idle_limit([ran("A", queue(40, 1.0, 1.0)), ran("B", fails)]) is None


# Few, one draw, cut.


def test_fewer_than_30_completed_jobs_are_few() -> None:
    assert validity.few_jobs_limit([ran("A", queue(30, 1.0, 1.0))]) is None
    found = validity.few_jobs_limit([ran("A", queue(29, 1.0, 1.0)), ran("B", queue(1, 1.0, 1.0))])
    assert found is not None
    assert found.sentence == "Only 29 jobs were completed: too few for percentages."


def test_who_gains_among_few_jobs_is_told_in_numbers() -> None:
    nobody = pd.DataFrame({"low": [], "high": [], "jobs": []})
    assert groups.change_texts(MetricChange(40, 0.25, 0.5, nobody), 1) == ("50 %", "25 %", "25 %")
    assert groups.change_texts(MetricChange(12, 0.25, 0.5, nobody), 1) == ("6", "3", "3")
    # Twelve jobs five times are still twelve jobs.
    assert groups.change_texts(MetricChange(60, 0.25, 0.5, nobody), 5) == ("30", "15", "15")


def test_fewer_than_three_repeats_of_something_random() -> None:
    rows = queue(2, 1.0, 1.0)
    assert validity.chance_limit([ran("A", rows)], random=False) is None
    assert validity.chance_limit([ran("A", rows, rows, rows)], random=True) is None
    for repeats, draws in ((1, "One random run"), (2, "2 random runs")):
        found = validity.chance_limit([ran("A", *[rows] * repeats)], random=True)
        assert found is not None
        assert (found.verdict, found.sentence.partition(":")[0]) == ("one_draw", draws)


def test_more_than_two_of_a_hundred_jobs_left_undone() -> None:
    def left(number: int, ended: str = "") -> Outcome:
        rows = queue(100 - number, 1.0, 1.0) + [(99.0, NAN, NAN, 0.0)] * number
        return ran("A", rows, ended=ended)

    assert validity.unfinished_limits([left(2)]) == []
    assert validity.unfinished_limits([left(3)]) == [
        ("cut", "3 of 100 jobs were not completed under A.")
    ]
    # Those that fit nowhere are the same under every policy.
    assert validity.unfinished_limits([left(50, "impossible")]) == []


# Order and chance.


def hours(label: str, *means: float) -> Outcome:
    return ran(label, *[queue(3, 1.0, mean) for mean in means])


def test_the_order_turns_where_nobody_is_first_in_every_repeat() -> None:
    a, b = hours("A", 1.0, 2.0, 3.0, 4.0, 5.0), hours("B", 2.0, 1.0, 2.0, 5.0, 6.0)
    found = validity.ranking_limit([a, b], "jct_mean_s", "mean JCT")
    assert found is not None
    assert found.verdict == "turns"
    assert "A in 3 of 5 repeats, with B in 2" in found.sentence
    # C is as good as the best one everywhere, within 1 %.
    c = hours("C", 1.009, 1.009, 2.0, 4.0, 5.04)
    assert validity.ranking_limit([a, b, c], "jct_mean_s", "mean JCT") is None
    assert (
        validity.ranking_limit([hours("A", 1.0), hours("B", 2.0)], "jct_mean_s", "mean JCT") is None
    )
    # A recorded schedule is no rival.
    history = replace(b, replays=True)
    assert validity.ranking_limit([a, history], "jct_mean_s", "mean JCT") is None


# A mean carried by few jobs.


def times(label: str, *jct: float) -> Outcome:
    return ran(label, [(float(at), float(at), at + one, one) for at, one in enumerate(jct)])


def test_few_jobs_that_make_most_of_all_jct() -> None:
    # 297 jobs of 1 h and three of 75 h: 225 of 522 h are 43 %.
    base, other = times("A", *[1.0] * 297, *[75.0] * 3), times("B", *[0.9] * 297, *[60.0] * 3)
    assert validity.carried_limit(base, other) == (
        "carried",
        "3 of 300 jobs make 43 % of all JCT under A, so they decide the mean.",
    )
    # Seven of 300 are more than 2 %.
    assert (
        validity.carried_limit(
            times("A", *[1.0] * 293, *[30.0] * 7), times("B", *[0.9] * 293, *[27.0] * 7)
        )
        is None
    )
    # Of 10,000 jobs ten are few, eleven are not.
    ten = times("A", *[1.0] * 9990, *[700.0] * 10)
    assert validity.carried_limit(ten, ten) == (
        "carried",
        "10 of 10,000 jobs make 41 % of all JCT under A, so they decide the mean.",
    )
    eleven = times("A", *[1.0] * 9989, *[630.0] * 11)
    assert validity.carried_limit(eleven, eleven) is None


def test_a_difference_that_few_jobs_make() -> None:
    # 100 jobs of 10 h; one is done 100 h sooner of 110 h, the others are alike: -9 %, and without
    # it nothing.
    base, other = times("A", *[10.0] * 99, 110.0), times("B", *[10.0] * 100)
    assert validity.carried_limit(base, other) == (
        "carried",
        "1 of 100 jobs makes the difference of the means: without it no clear difference is left.",
    )
    # All others take 0.5 h longer: without that one it is +5 %.
    worse = times("B", *[10.5] * 99, 10.0)
    found = validity.carried_limit(base, worse)
    assert found is not None
    assert found.sentence.endswith("without it the order is reversed.")
    # A gain that all have does not hang on two of a hundred.
    assert validity.carried_limit(times("A", *[10.0] * 100), times("B", *[9.0] * 100)) is None
    assert validity.carried_limit(times("A", *[10.0] * 100), times("B", *[9.95] * 100)) is None


def gang(label: str, *rows: Job, gpus: int = 16) -> Outcome:
    """The first job on so many GPUs, the others on one."""
    made = ran(label, list(rows))
    made.jobs[0].loc[0, "gpus"] = gpus
    return made


def test_one_gang_that_the_others_wait_for() -> None:
    # Under A it runs from 0 to 10 h; nine jobs of 1 h come at 1 to 9 h, wait 9 to 1 h (45 h), and
    # then one waits 5 h for another reason.
    first = [
        (0.0, 0.0, 10.0, 10.0),
        *((float(at), 10.0, 11.0, 1.0) for at in range(1, 10)),
        (12.0, 17.0, 18.0, 1.0),
    ]
    # Under B they start at once and the gang after them: waits of 10 h and, for the last one, none.
    second = [
        (0.0, 10.0, 20.0, 10.0),
        *((float(at), float(at), at + 1.0, 1.0) for at in range(1, 10)),
        (12.0, 12.0, 13.0, 1.0),
    ]
    base, other = gang("A", *first), gang("B", *second)
    # 45 of 50 h.
    told = (
        "1 of 11 jobs, on half of the GPUs or more, runs during 90 % of all waiting under A, so"
        " the difference depends on it."
    )
    assert validity.blocked_limit(base, other, 16) == ("blocked", told)
    # Whichever of the two is the baseline.
    assert validity.blocked_limit(other, base, 32) == ("blocked", told)
    # On less than half of the GPUs nobody has to wait for it.
    assert validity.blocked_limit(base, other, 33) is None
    assert validity.blocked_limit(base, base, 16) is None
    # 4 of 10 h are enough, 4 of 10.1 h are not.
    for rest, found in ((6.0, True), (6.1, False)):
        rows = [
            (0.0, 0.0, 10.0, 10.0),
            (6.0, 10.0, 11.0, 1.0),
            (20.0, 20.0 + rest, 21.0 + rest, 1.0),
        ]
        faster = [(0.0, 0.0, 10.0, 10.0), (6.0, 6.0, 7.0, 1.0), (20.0, 20.0, 21.0, 1.0)]
        assert (
            validity.blocked_limit(gang("A", *rows), gang("B", *faster), 16) is not None
        ) == found


# Against a recording.


def recording(waits: list[float]) -> Trace:
    submit = np.arange(len(waits)) * 10.0 * HOUR
    frame = {
        "job_id": [str(at) for at in range(len(waits))],
        "submit_time_s": submit,
        "num_gpus": 1,
        "duration_s": HOUR,
    }
    return Trace.of(pd.DataFrame({**frame, "start_time_s": submit + np.array(waits) * HOUR}))


def waiting(label: str, *waits: float) -> Outcome:
    return ran(
        label,
        [(10.0 * at, 10.0 * at + wait, 10.0 * at + wait + 1, 1.0) for at, wait in enumerate(waits)],
    )


def test_a_recording_is_explained_within_a_fifth_of_its_mean_wait() -> None:
    trace = recording([1.0, 2.0, 3.0, 4.0])  # 2.5 h on average, so half an hour is allowed
    near = best_explanation(
        trace, [waiting("far", 0.0, 0.0, 0.0, 0.0), waiting("near", 1.5, 2.5, 3.5, 4.5)]
    )
    assert near == Explained("near", 3 * HOUR, 2.5 * HOUR, 0.5 * HOUR)
    assert near.holds
    off = best_explanation(trace, [waiting("off", 1.5, 2.5, 3.5, 4.6)])
    assert off is not None
    assert not off.holds
    # The same mean, but the jobs that waited are others: half of the waits are off by 2 h.
    others = best_explanation(trace, [waiting("others", 4.0, 3.0, 2.0, 1.0)])
    assert others is not None
    assert (others.simulated_s, others.median_s) == (2.5 * HOUR, 2 * HOUR)
    assert not others.holds
    assert (
        "waits 2.5 h on average, the recorded schedule 2.5 h; half of the waits are off by 2 h"
        in others.sentence()
    )


def test_nothing_is_explained_without_starts_or_without_those_who_should() -> None:
    trace = recording([1.0])
    assert best_explanation(trace, []) is None
    bare = replace(trace, frame=trace.frame.drop(columns="start_time_s"))
    assert best_explanation(bare, [waiting("a", 1.0)]) is None
    history = replace(waiting("history", 1.0), replays=True)
    assert validity.recording_limit(waiting("a", 1.0), None) is None
    untested = validity.recording_limit(history, None)
    assert untested is not None
    assert untested.verdict == "untested"
    assert (
        "without FIFO or EASY backfilling nothing shows that the model explains"
        in untested.sentence
    )


# What is known of a study.


def test_the_setting_of_a_study() -> None:
    study = new_study.sample_study("tiny")
    trace = load_trace(study.base.trace)
    done = {at: ran(str(at), [(0.0, 0.0, 1.0, 1.0)] * len(trace)) for at in range(4)}
    found = setting(study, trace, done)
    assert found.load == pytest.approx(trace.gpu_seconds / (8 * trace.span_s))
    assert found.references == {"0": 0, "1": 1}
    assert not found.random
    # Jobs that fit nowhere ask for nothing.
    none = {0: ran("0", [(0.0, NAN, NAN, 0.0)] * len(trace), ended="impossible")}
    assert setting(study, trace, none).load == 0.0


@pytest.mark.parametrize(
    ("change", "random"),
    [
        ({"faults": Spec.of("faults", mtbf_h=100.0)}, True),
        ({"faults": Spec.of("faults", interruptions_per_node_h=0.1)}, True),
        ({"faults": Spec.of("faults", outages="0:10:20")}, False),
        ({"estimator": Spec("noisy")}, True),
        ({"estimator": Spec("boosting")}, True),
        ({"estimator": Spec("biased")}, False),
    ],
)
def test_what_is_random(change: dict[str, Spec], random: bool) -> None:
    study = new_study.sample_study("tiny")
    trace = load_trace(study.base.trace)
    done = {0: ran("0", [(0.0, 0.0, 1.0, 1.0)] * len(trace))}
    changed = replace(study, base=replace(study.base, **change))
    assert setting(changed, trace, done).random is random
    # An error of estimators is nothing to policies that do not ask for sizes.
    blind = Study(replace(changed.base, cluster=Cluster.parse("1x8:v100")), (Spec("fifo"),))
    assert setting(blind, trace, done).random is (random and changed.base.estimator == EXACT)


def test_the_setting_holds_what_is_in_doubt_of_jobs_that_fit_nowhere() -> None:
    study = new_study.sample_study("tiny")
    trace = load_trace(study.base.trace)
    rows = [(0.0, 0.0, 1.0, 1.0)] * len(trace)
    none = ran("0", [(0.0, NAN, NAN, 0.0)] * len(trace), ended="impossible")
    assert setting(study, trace, {0: none, 1: ran("1", rows)}).doubts == {}
    # A recorded schedule holds what the cluster cannot.
    told = setting(study, trace, {0: none, 1: replace(ran("1", rows), replays=True)}).doubts
    assert list(told) == ["fits"]
    assert "hold 100.0 % of all GPU time" in told["fits"]
