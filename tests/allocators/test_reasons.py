"""Every policy states why jobs wait, in the words of its rule; asking it changes nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from allocators import REGISTRY, make
from allocators.reasons import ROOM
from sim.cluster import Cluster
from sim.contract import Reason, Spec
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
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


def by_hand(jobs: Jobs, **more: object) -> Scenario:
    """Jobs on a node of 4 GPUs, or on another `cluster`, with more columns."""
    columns = {name: value for name, value in more.items() if name != "cluster"}
    return Scenario(
        "by hand",
        trace_of(jobs, **columns),  # type: ignore[arg-type]
        Cluster.parse(str(more.get("cluster", "1x4:v100"))),
        Conditions(overheads=Overheads()),
    )


def rules(spec: str, jobs: Jobs, job: int, **more: object) -> tuple[WhyWaited, ...]:
    said, book = asked(Spec.parse(spec), by_hand(jobs, **more), {job})
    return stated_reasons(book, job, said)


def sentences(spec: str, jobs: Jobs, job: int, **more: object) -> str:
    """Return what is said of one job, without durations."""
    return " / ".join(one.sentence for one in rules(spec, jobs, job, **more))


HEADED = [(0, 3, 4000), (1, 2, 3000), (2, 1, 2000), (3, 1, 5000)]


def test_fifo_names_the_first_of_the_queue() -> None:
    # Job 0 leaves 1 GPU; job 1 needs 2 and holds up the others.
    assert sentences("fifo", HEADED, 1) == (
        "It was first by submission; it needs 2 GPUs and 1 GPU was free"
    )
    assert sentences("fifo", HEADED, 3) == (
        "2 jobs were ahead by submission; the first (job j1) needs 2 GPUs and 1 GPU was free"
    )


def test_numbers_that_change_within_a_wait_are_written_from_least_to_greatest() -> None:
    # Job 2 comes at 1 and needs all 4 GPUs. No GPU is free until job 1 ends at 1000, then 1 GPU
    # until job 0 ends at 4000.
    jobs = [(0, 3, 4000), (0, 1, 1000), (1, 4, 100)]
    assert [(one.full_sentence, one.waited_s) for one in rules("fifo", jobs, 2)] == [
        (
            "It was first by submission; it needs 4 GPUs and 0 to 1 GPU was free (67 min).",
            3999.0,
        )
    ]


def test_numbers_of_a_first_wait_do_not_claim_the_time_of_later_ones() -> None:
    # Job 1 (8000 s) waits for job 0 until 200. At 500 job 2 (3600 s) stops it, at 700 job 3 (5000
    # s) takes the last GPU. Job 2 ends at 4100, job 3 at 5700.
    jobs = [(0, 3, 200), (0, 4, 8000), (500, 3, 3600), (700, 1, 5000)]
    asks = "it needs 4 GPUs and"
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
        ("It was first by submission; it", 500.0),
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


def test_fifo_with_first_fit_names_the_room() -> None:
    # Job 2 takes the free GPU, so job 3 finds none.
    assert sentences("fifo:backfill=first_fit", HEADED, 3) == (
        "1 job was ahead by submission; it needs 1 GPU and no GPU was free"
    )


def test_sjf_counts_shorter_jobs() -> None:
    # Of jobs 1 (3000 s), 2 (2000 s) and 3 (5000 s), which wait for job 0, job 3 is the last.
    jobs = [(0, 4, 4000), (1, 4, 3000), (2, 4, 2000), (3, 4, 5000)]
    assert sentences("sjf", jobs, 3).startswith(
        "2 jobs were ahead by run time; the first (job j2) needs 4 GPUs and no GPU was free"
    )


def test_easy_names_the_job_that_would_have_been_delayed() -> None:
    # Job 0 ends at 1 h, when job 1 takes all 4 GPUs. Job 2 fits the free GPU but runs for 5 h.
    jobs = [(0, 3, 3600), (1, 4, 3600), (2, 1, 18_000)]
    assert sentences("easy", jobs, 1).endswith(
        "needs 4 GPUs and 1 GPU was free, expected at day 1, 01:00"
    )
    assert sentences("easy", jobs, 2).startswith(
        "1 GPU was free, but its 5 h would have delayed job j1, which starts at day 1, 01:00"
    )


def test_srtf_names_the_jobs_that_came_first() -> None:
    # Job 0 runs for 3 h; twice a job of 10 minutes takes all GPUs.
    jobs = [(0, 4, 10_800), (1000, 4, 600), (5000, 4, 600)]
    assert sentences("srtf", jobs, 0).startswith(
        "2 times a shorter job arrived: job j1 (4 GPUs, 10 min left), job j2 (4 GPUs, 10 min left)"
    )
    assert sentences("srtf", [*jobs[:2], (1001, 4, 700)], 2).startswith(
        "1 job with less time left held 4 GPUs; it needs 4 GPUs and no GPU was free"
    )


def test_las_names_queue_and_service() -> None:
    # 4 GPUs for 1000 s are 4000 GPU-s, beyond the first limit of 3250.
    jobs = [(0, 4, 10_800), (1000, 4, 600)]
    assert sentences("las", jobs, 0).startswith(
        "A job with less service went first (this one had 1.1 GPU-hours, in queue 2 of 3): job j1"
        " (queue 1)"
    )


def test_recorded_names_the_recorded_start() -> None:
    assert sentences("recorded", [(0, 1, 60)], 0, start_time_s=[7200.0]) == (
        "The recording started it at day 1, 02:00"
    )


def test_rounds_name_the_next_round() -> None:
    jobs = [(0, 4, 1200), (10, 4, 600)]
    first, second = sentences("rounds:every_s=300", jobs, 1).split(" / ")
    assert first == "The policy made its next decision at day 1, 00:05:00, and none before"
    assert second == "It was first by submission; it needs 4 GPUs and no GPU was free"


def test_a_partition_names_itself() -> None:
    jobs = [(0, 4, 1200), (10, 4, 600)]
    assert sentences("partition", jobs, 1, vc=["<b>", "<b>"]) == (
        "In <b>, it was first by submission; it needs 4 GPUs and no GPU was free"
    )


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
