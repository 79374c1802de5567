"""Every policy states why jobs wait, in the words of its rule; asking it changes nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from allocators import REGISTRY, make
from allocators.reasons import ROOM
from sim.cluster import Cluster
from sim.contract import Reason, Spec
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.rigid import Rigid
from sim.perf.scaling import PowerLaw
from sim.trace import Trace
from tests.allocators.queue.walk import trace_of
from tests.conformance import Scenario, scenarios, specs
from trainyard.formatting import RunClock
from trainyard.what_if.explore import Book
from trainyard.what_if.reasons import ReasonFormatter, WhyWaited, stated_reasons
from trainyard.what_if.statements import NOT_ASKED, Statement, Witness


def fitting(spec: Spec) -> Scenario:
    """A scenario in which jobs wait under this policy."""
    requires = make(spec).needs.requires
    name = (
        "staffed"
        if "servers" in requires
        else "batched"
        if spec.name == "dp_elastic"
        else "elastic"
        if "scaling" in requires
        else "measured"
        if "forks" in requires
        else "mixed"
    )
    found = next(one for one in scenarios() if one.name == name)
    if name != "staffed":
        return found
    # There they come one by one; here they wait for each other.
    frame = found.trace.frame.assign(submit_time_s=np.arange(len(found.trace)) * 10.0)
    return replace(found, trace=Trace.of(frame))


def asked(
    spec: Spec, scenario: Scenario, jobs: set[int] | None = None
) -> tuple[list[Statement], Book]:
    allocator, witness = make(spec), Witness(jobs)
    result = Simulator(
        scenario.trace,
        scenario.cluster,
        allocator,
        scenario.conditions,
        witness=witness.bind(allocator),
    ).run()
    needs, perf = allocator.needs, scenario.conditions.perf
    return witness.said, Book(result, scenario.trace, scenario.cluster, spec.name, needs, perf)


def check(spec: Spec) -> tuple[list[Statement], Book]:
    """Ask a policy for its reasons; the run and the form of the sentences must be sound."""
    scenario = fitting(spec)
    said, book = asked(spec, scenario)
    assert book.result.digest() == scenario.run(make(spec)).digest()
    words = ReasonFormatter(scenario.trace.frame["job_id"].tolist(), RunClock())
    for one in said:
        for text in (words.rule(one.reason), words.detail(one.reason)):
            assert not set("{}") & set(text)
            assert "nan" not in text.split()
            assert "inf" not in text.split()
        assert not one.reason.rule.endswith(".")
    return said, book


def test_values_that_the_rule_does_not_name_may_differ_within_a_span() -> None:
    words = ReasonFormatter(["a"], RunClock())
    first = Reason("{free:gpus} are free", {"free": 3, "queue": "x"})
    second = Reason("{free:gpus} are free", {"free": 5, "queue": "y"})
    assert words.names(first) == words.names(second)
    assert words.rule(first, second) == "3 to 5 GPUs are free"


@pytest.mark.parametrize("name", REGISTRY)
def test_a_policy_states_its_own_rule_and_asking_changes_nothing(name: str) -> None:
    said, book = check(Spec(name))
    own = [one for one in said if one.reason.rule not in {*ROOM, NOT_ASKED}]
    assert own
    stated = {one.job for one in said}
    waited = np.flatnonzero(
        (book.result.jobs["first_start_s"] > book.result.jobs["submit_s"]).to_numpy()
    )
    # A job that an outage or a resize stops between two decisions is asked about at the next.
    assert set(waited.tolist()) <= stated
    for job in waited.tolist():
        assert all(rule.stated for rule in stated_reasons(book, job, said))


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_the_same_holds_with_parameters_changed(name: str) -> None:
    # All of them take minutes.
    known = list(specs(name))
    for spec in random.Random(name).sample(known, min(len(known), 3)):
        check(spec)


# -- sentences computed by hand
# --------------------------------------------------------------------------------------------------


Jobs = list[tuple[float, int, float]]


def by_hand(jobs: Jobs, cluster: str = "1x4:v100", perf: Any = None, **columns: Any) -> Scenario:
    """Jobs on a node of 4 GPUs, or on another cluster, with more columns."""
    conditions = Conditions(perf or Rigid(), overheads=Overheads())
    return Scenario("by hand", trace_of(jobs, **columns), Cluster.parse(cluster), conditions)


def rules(spec: str, jobs: Jobs, job: int, **more: Any) -> tuple[WhyWaited, ...]:
    said, book = asked(Spec.parse(spec), by_hand(jobs, **more), {job})
    return stated_reasons(book, job, said)


def sentences(spec: str, jobs: Jobs, job: int, **more: Any) -> str:
    """Return what is said of one job, without durations."""
    return " / ".join(one.sentence for one in rules(spec, jobs, job, **more))


HEADED = [(0, 3, 4000), (1, 2, 3000), (2, 1, 2000), (3, 1, 5000)]


SRTF = [(0, 4, 10_800), (1000, 4, 600), (5000, 4, 600)]
EASY = [(0, 3, 3600), (1, 4, 3600), (2, 1, 18_000)]
PAIR = [(0, 4, 1200), (10, 4, 600)]
FIRST = "First by submission; this job needs 4 GPUs and no GPU was free"
FIXED = {"perf": PowerLaw(), "min_gpus": [4, 4], "max_gpus": [4, 4]}
GREEDY = "Jobs start at their smallest size in order of submission"
NO_SIZE = "1 job got 4 GPUs, no GPU was free for its smallest size of 4 GPUs"
NEXT = "Sizes were chosen again at day 1, 00:01:40, and nothing starts before"


@pytest.mark.parametrize(
    ("spec", "jobs", "job", "more", "expected"),
    [
        # Job 0 leaves 1 GPU; job 1 needs 2 and holds up the others.
        (
            "fifo",
            HEADED,
            1,
            {},
            "First by submission; this job needs 2 GPUs and 1 GPU was free",
        ),
        (
            "fifo",
            HEADED,
            3,
            {},
            "2 jobs were ahead by submission; the first (job j1) needs 2 GPUs and 1 GPU was free",
        ),
        # Job 2 takes the free GPU, so job 3 finds none.
        (
            "fifo:backfill=first_fit",
            HEADED,
            3,
            {},
            "1 job was ahead by submission; this job needs 1 GPU and no GPU was free",
        ),
        # Of jobs 1 (3000 s), 2 (2000 s) and 3 (5000 s), which wait for job 0, job 3 is the last.
        (
            "sjf",
            [(0, 4, 4000), (1, 4, 3000), (2, 4, 2000), (3, 4, 5000)],
            3,
            {},
            "2 jobs were ahead by run time; the first (job j2) needs 4 GPUs and no GPU was free"
            " / 1 job was ahead by run time; the first (job j1) needs 4 GPUs and no GPU was free"
            " / First by run time; this job needs 4 GPUs and no GPU was free",
        ),
        # Job 0 ends at 1 h, when job 1 takes all 4 GPUs. Job 2 fits the free GPU but runs for 5 h.
        (
            "easy",
            EASY,
            1,
            {},
            "First by submission; this job needs 4 GPUs and 1 GPU was free, expected at day 1,"
            " 01:00",
        ),
        (
            "easy",
            EASY,
            2,
            {},
            "1 GPU was free, but its 5 h would have delayed job j1, which starts at day 1, 01:00"
            " / First by submission; this job needs 1 GPU and no GPU was free, expected at day 1,"
            " 02:00",
        ),
        # Job 0 runs for 3 h; twice a job of 10 minutes takes all GPUs.
        (
            "srtf",
            SRTF,
            0,
            {},
            "2 times a shorter job arrived: job j1 (4 GPUs, 10 min left), job j2 (4 GPUs, 10 min"
            " left)",
        ),
        (
            "srtf",
            [*SRTF[:2], (1001, 4, 700)],
            2,
            {},
            "1 job with less time left held 4 GPUs; this job needs 4 GPUs and no GPU was free",
        ),
        # 4 GPUs for 1000 s are 4000 GPU-s, beyond the first limit of 3250.
        (
            "las",
            SRTF[:2],
            0,
            {},
            "A job with less service went first (this one had 1.1 GPU-hours, in queue 2 of 3): job"
            " j1 (queue 1)",
        ),
        (
            "recorded",
            [(0, 1, 60)],
            0,
            {"start_time_s": [7200.0]},
            "The recording started it at day 1, 02:00",
        ),
        (
            "rounds:every_s=300",
            PAIR,
            1,
            {},
            f"The policy made its next decision at day 1, 00:05:00, and none before / {FIRST}",
        ),
        ("partition", PAIR, 1, {"vc": ["<b>", "<b>"]}, FIRST.replace("First", "In <b>, first")),
        # On one GPU the machine completes them at 8, 28, 68 and 148: two before job 2.
        (
            "asrpt",
            [(0, 1, 8), (0, 1, 20), (0, 1, 40), (0, 1, 80)],
            2,
            {"cluster": "1x1:v100"},
            "The simulated machine had not completed it: 0 to 2 jobs had less work left",
        ),
        # Jobs 1 and 2 want 4 and 2 of the 2 GPUs that job 0 leaves, job 1 first.
        (
            "greedy_elastic",
            [(0, 2, 1000), (0, 4, 1000), (0, 2, 100)],
            2,
            {"perf": PowerLaw(), "min_gpus": [2, 4, 2], "max_gpus": [2, 4, 2]},
            f"{GREEDY}: 1 job got 2 GPUs, 2 GPUs were left free / {GREEDY}:"
            f" {NO_SIZE.replace('smallest size of 4', 'smallest size of 2')}",
        ),
        # At 50 s, between two ticks of 100 s, an elastic policy takes over.
        *(
            (
                f"switch:at_s=50,then={then}(every_s=100,events={events})",
                [(0, 4, 75), (10, 4, 100)],
                1,
                FIXED,
                f"{FIRST} / {sizes if events == 'true' else NEXT}",
            )
            for then, sizes in (
                ("greedy_elastic", f"{GREEDY}: {NO_SIZE}"),
                (
                    "mip_elastic",
                    f"The sizes with the greatest sum of progress left it none: {NO_SIZE}",
                ),
            )
            for events in ("false", "true")
        ),
    ],
)
def test_sentences(spec: str, jobs: Jobs, job: int, more: dict[str, Any], expected: str) -> None:
    assert sentences(spec, jobs, job, **more) == expected


def test_numbers_that_change_within_a_wait_are_written_from_least_to_greatest() -> None:
    # Job 2 comes at 1 and needs all 4 GPUs. No GPU is free until job 1 ends at 1000, then 1 GPU
    # until job 0 ends at 4000.
    jobs = [(0, 3, 4000), (0, 1, 1000), (1, 4, 100)]
    assert [(one.full_sentence, one.waited_s) for one in rules("fifo", jobs, 2)] == [
        (
            "First by submission; this job needs 4 GPUs and 0 to 1 GPU was free (67 min).",
            3999.0,
        )
    ]


def test_numbers_of_a_first_wait_do_not_claim_the_time_of_later_ones() -> None:
    # Job 1 (8000 s) waits for job 0 until 200. At 500 job 2 (3600 s) stops it, at 700 job 3 (5000
    # s) takes the last GPU. Job 2 ends at 4100, job 3 at 5700.
    jobs = [(0, 3, 200), (0, 4, 8000), (500, 3, 3600), (700, 1, 5000)]
    asks = "this job needs 4 GPUs and"
    assert [(one.sentence, round(one.waited_s)) for one in rules("srtf", jobs, 1)] == [
        (f"1 job with less time left held 3 GPUs; {asks} 1 GPU was free", 200),
        ("A shorter job arrived: job j2 (3 GPUs, 1 h left)", 200),
        (f"1 to 2 jobs with less time left held 1 to 4 GPUs; {asks} 0 to 3 GPUs were free", 5000),
    ]


def test_another_job_named_is_another_span() -> None:
    # Job 0 holds 3 GPUs until 2000 and job 1 one until 6000. Job 2 (4 GPUs) heads the queue until
    # it starts at 6000; then job 3 does. Job 4 waits for both.
    jobs = [(0, 3, 2000), (0, 1, 6000), (1, 4, 1000), (2, 3, 500), (3, 4, 100)]
    assert [(one.sentence.split(" needs")[0], one.waited_s) for one in rules("fifo", jobs, 4)] == [
        ("2 jobs were ahead by submission; the first (job j2)", 5997.0),
        ("1 job was ahead by submission; the first (job j3)", 1000.0),
        ("First by submission; this job", 500.0),
    ]


def test_events_of_one_kind_are_joined_with_the_time_of_their_waits() -> None:
    # Job 0 is stopped at 1000 for 600 s and at 5000 for 1200 s; nothing is decided in between.
    jobs = [(0, 4, 10_800), (1000, 4, 600), (5000, 4, 1200)]
    assert [one.full_sentence for one in rules("srtf", jobs, 0)] == [
        "2 times a shorter job arrived: job j1 (4 GPUs, 10 min left), job j2 (4 GPUs, 20 min left)"
        " (30 min in 2 waits)."
    ]


def test_spans_beyond_the_longest_are_summed_up() -> None:
    # Job 1 waits for 1 h; each 400 s another queue is ahead of it.
    _, book = asked(Spec("fifo"), by_hand([(0, 4, 3600), (0, 4, 60)]))
    said = [
        Statement(1, at * 400.0, 0.0, Reason("queue {queue:text} was ahead", {"queue": name}))
        for at, name in enumerate("abcdefghi")
    ]
    assert [one.full_sentence for one in stated_reasons(book, 1, said)] == [
        *(f"Queue {name} was ahead (6.7 min)." for name in "abcde"),
        "4 shorter spans had other reasons (27 min).",
    ]


def test_gavel_names_the_share() -> None:
    # Two jobs share 4 GPUs of one type, each half of the time.
    jobs = [(0, 4, 20_000), (0, 4, 20_000)]
    said = sentences("gavel", jobs, 1)
    assert "v100" in said
    assert "share" in said


def test_elastic_policies_name_sizes_and_their_sum() -> None:
    said, book = asked(Spec("greedy_elastic"), fitting(Spec("greedy_elastic")))
    found = [rule.sentence for job in range(40) for rule in stated_reasons(book, job, said)]
    assert any("jobs got 32 GPUs" in one and "smallest size" in one for one in found)


def test_a_run_without_statements_says_what_the_record_shows() -> None:
    scenario = Scenario("by hand", trace_of(HEADED), Cluster.parse("1x4:v100"))
    _, book = asked(Spec("fifo"), scenario)
    (only,) = stated_reasons(book, 1, ())
    assert only.sentence == "No reason recorded; 1 GPU was free, the job asks for 2"
    assert not only.stated
    assert stated_reasons(book, 0, ()) == ()
