"""What is said of a run: an instant, the jobs, one life, and why it waited."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster, GpuType, NodeGroup
from sim.contract import Needs
from sim.engine.faults import Faults
from sim.errors import ParameterError
from sim.trace import Trace
from tests.sim import scripted
from tests.sim.metrics.metrics_cases import Held, Job, run_of, trace_of
from tests.trainyard.results.situations import amounts
from tests.trainyard.what_if.situations import (
    SITUATIONS,
    TWO,
    book_of,
    by_hand,
    hit_and_resized,
    preempted_often,
    three,
)
from trainyard.formatting import RunClock
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.store import Store
from trainyard.study.scenario import Scenario
from trainyard.traces.sources import load_trace
from trainyard.what_if import explore
from trainyard.what_if.explore import Book

MINUTE = 60.0


def told(book: Book, job: int) -> list[str]:
    return [one.sentence for one in explore.wait_reasons(book, job)]


def test_the_share_of_time_on_each_gpu_type_is_told_of_any_job() -> None:
    # Half as fast on K80: job b changes to the V100 once job a has finished, and c gets no GPU of
    # its own before.
    trace = Trace.of(
        pd.DataFrame(
            {
                "job_id": ["a", "b", "c"],
                "submit_time_s": 0.0,
                "num_gpus": [1, 1, 4],
                "duration_s": [720.0, 1440.0, 60.0],
            }
        )
    )
    cluster = Cluster(
        (NodeGroup(1, 1, "v100"), NodeGroup(1, 1, "k80")),
        (GpuType("v100", 1.0), GpuType("k80", 0.5)),
    )
    book = book_of(trace, cluster, "gavel:objective=fifo,recompute_s=0")
    assert explore.life(book, 0).types == "of its GPU time 100 % on v100"
    assert explore.life(book, 1).types == "of its GPU time 60 % on v100, 40 % on k80"
    assert explore.life(book, 2).types == ""
    assert explore.life(book_of(three(), TWO, "fifo"), 0).types == ""


def test_first_come_first_served_in_words() -> None:
    book = book_of(three(), TWO, "fifo")
    assert told(book, 1) == ["No 8 free GPUs: 4 GPUs were free."]
    assert told(book, 2) == [
        (
            "4 GPUs were free and it needs 2, but the policy changed nothing until day 1, 01:00. 1"
            " job submitted earlier waited too: b (8 GPUs)."
        ),
        "No 2 free GPUs: none was free.",
    ]
    assert explore.wait_reasons(book, 0) == ()
    first, second = explore.wait_reasons(book, 2)
    assert (first.t0, first.t1, first.waited_s, second.t1) == (
        20 * MINUTE,
        60 * MINUTE,
        40 * MINUTE,
        90 * MINUTE,
    )


def test_shortest_first_in_words() -> None:
    """Job c is the shorter one here: it starts at once, on GPUs that would not have been enough for
    b.
    """
    late = Trace.of(three().frame.assign(duration_s=[3600.0, 7200.0, 1200.0]))
    book = book_of(late, TWO, "sjf")
    assert explore.life(book, 2).finish_s == 40 * MINUTE
    assert told(book, 1) == [
        "No 8 free GPUs: 2 to 4 GPUs were free. Without the jobs submitted later it would not have"
        " been enough either."
    ]


def test_who_ran_instead_in_words() -> None:
    trace = scripted.jobs((0, 4, 3600), (600, 4, 7200), (1200, 3, 2400), (1200, 1, 2400))
    steps = {
        0.0: {0: scripted.on(0, 4)},
        1200.0: {2: scripted.on(1, 3), 3: scripted.on(1)},
        3600.0: {1: scripted.on(0, 4)},
    }
    result = scripted.run(trace, TWO, scripted.Script(steps))
    assert told(Book(result, trace, TWO, "script"), 1) == [
        (
            "4 GPUs were free and it needs 4, but the policy changed nothing until day 1, 00:20; no"
            " job submitted earlier waited."
        ),
        (
            "2 jobs submitted later ran in that time: j2 (3 GPUs), j3 (1 GPU). Without them there"
            " was"
            " room for 4 GPUs."
        ),
    ]


def test_scattered_in_words() -> None:
    jobs = [Job(0, 2, 0, 6000), Job(0, 2, 0, 3000), Job(600, 4, 3000, 5400)]
    pieces = [Held(0, 0, 6000, 2), Held(1, 0, 3000, 2, node=1), Held(2, 3000, 5400, 4, node=1)]
    result = run_of(jobs, pieces, 7200.0, decisions=_decisions(0, 600, 3000))
    sentence = (
        "4 GPUs were free, but on several nodes, at most 2 on one; it needs 4 GPUs. In this run no"
        " job of 4 GPUs is spread over more nodes than it needs."
    )
    assert told(Book(result, trace_of(jobs), TWO, "packs"), 2) == [sentence]
    apart = [Job(0, 4, 0, 6000), Job(600, 6, 6000, 7000)]
    larger = run_of(
        apart,
        [Held(0, 0, 6000, 4), Held(1, 6000, 7000, 6)],
        7200.0,
        decisions=_decisions(0, 600, 6000),
    )
    book = Book(larger, trace_of(apart), Cluster.parse("2x4:v100,1x4:t4"), "one type")
    assert told(book, 1) == [
        "8 GPUs were free, but at most 4 of one type, and it needs 6 GPUs of one type."
    ]


def _decisions(*times: float) -> pd.DataFrame:
    return pd.DataFrame({"t": np.array(times), "changed": 1, "waiting": 0, "running": 0})


def test_types_and_partitions_in_words() -> None:
    cluster = Cluster.parse("1x4:v100,1x8:t4")
    trace = three(gpu_types_allowed=["v100", "t4", "v100"], duration_s=[3600.0, 300.0, 10_800.0])
    book = book_of(trace, cluster, "fifo")
    assert told(book, 2) == [
        "No 2 free GPUs on nodes that it may use: none was free.",
        "Up to 8 GPUs were free, but none on nodes that it may use; it needs 2 GPUs.",
    ]
    assert explore.life(book, 2).facts == "Job c of cy asked for 2 GPUs (v100)."


def test_nodes_down_in_words() -> None:
    book = book_of(three(), TWO, "fifo", faults=Faults(outages="1:300:7200"))
    assert told(book, 1) == [
        "It needs 8 GPUs, and at times 4 were up: other nodes were down or absent."
    ]


def test_a_replay_names_the_recording() -> None:
    book = book_of(three(start_time_s=[0.0, 3600.0, 7200.0]), TWO, "recorded")
    assert told(book, 1)[-1].endswith("The recording started it at day 1, 01:00.")


def test_a_recording_may_hold_more_than_the_cluster() -> None:
    book = book_of(three(num_gpus=[4, 12, 2], start_time_s=[0.0, 3600.0, 7200.0]), TWO, "recorded")
    assert told(book, 1) == [
        "It needs 12 GPUs, and this cluster has 8. The recording started it at day 1, 01:00."
    ]


def test_the_end_of_the_run_in_words() -> None:
    book = book_of(three(), TWO, "fifo", horizon_s=3000.0)
    assert told(book, 1) == ["No 8 free GPUs: 4 GPUs were free. Then the run ended."]
    assert np.isnan(explore.life(book, 1).finish_s)


def test_hits_and_changes_are_events() -> None:
    life = explore.life(hit_and_resized(), 0)
    assert life.events["told"].iloc[3] == "Day 1, 00:00:40: started on t4-2-1 (waited 10 s)."
    assert life.spells["types"].tolist() == ["v100", "", "t4", "t4"]


def test_long_lives_are_shortened() -> None:
    life = explore.life(preempted_often(), 0)
    assert len(life.events) == 42
    assert ", 32 more changes, " in life.sentence
    assert life.sentence.count(",") < 15


# -- an instant, jobs, bars
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("situation", "figures"),
    [
        ("no job waits", "4"),
        ("jobs wait, none fits the pieces", "2, 6, 3, 2, 4"),
        ("jobs wait, GPUs are down", "3, 7, 2, 4, 2"),
        ("jobs wait, no GPU is free", "2, 3, 2"),
        ("a job waits for a larger piece", "1, 2, 1, 2"),
        ("jobs wait, the largest would fit", "2, 6, 5, 2, 4"),
        ("the recording holds more GPUs", "3, 2"),
        ("no GPUs", "16"),
        ("job waited", "1, 00:10, 01:00, 50 min, 01:30"),
        ("job behind it waited", "1, 00:20, 01:30, 70 min, 04:30"),
        ("job did not wait", "1, 00:00, 00:00, 01:00"),
        ("job did not finish", "1, 00:10:00, 00:50:00"),
        ("job on the calendar", "3, 23:40, 4, 00:30, 50 min, 01:00"),
        (
            "job was hit and resized",
            "1, 00:00:00, 00:00:00, 00:00:30, 00:00:40, 10 s, 2, 1, 00:00:50, 00:01:10, 00:01:20,"
            " 00:01:20",
        ),
    ],
)
def test_figures_of_instants_and_lives(situation: str, figures: str) -> None:
    assert amounts(SITUATIONS[situation]()) == figures


def test_an_instant_as_tables() -> None:
    now = explore.moment(by_hand(), 90.0)
    assert now.waiting.to_dict("list") == {
        "job": [1, 2, 4],
        "id": ["job1", "job2", "job4"],
        "user": ["bob", "bob", "ann"],
        "gpus": [4, 1, 2],
        "waited_s": [80.0, 10.0, 40.0],
        "rank": [1, 2, 3],
        "runs_s": [1.0, 1.0, 1.0],
    }
    assert now.frame.to_dict("list") == {
        "node": ["v100-1-1", "t4-2-1"],
        "type": ["v100", "t4"],
        "rack": ["v100-1/r1", "t4-2/r1"],
        "free": [2, 0],
        "used": [2, 0],
        "down": [0, 2],
    }
    assert now.pieces.to_dict("list") == {
        "type": ["v100", "t4"],
        "free": [2, 0],
        "pieces": [1, 0],
        "largest": [2, 0],
    }
    assert (now.held, now.free, now.down, now.largest, now.unit) == (2, 2, 2, 2, "GPU")


def test_jobs_to_choose_from() -> None:
    def ids(**chosen: Any) -> list[str]:
        return explore.jobs(by_hand(), **chosen)[0]["id"].tolist()

    assert ids() == ["job4", "job1", "job2", "job0", "job3"]  # 210, 140, 70, 0 s; never waited for
    assert ids(sort="submit") == ["job0", "job1", "job2", "job3", "job4"]
    assert ids(sort="gpus")[:2] == ["job3", "job1"]
    assert ids(sort="jct") == ["job1", "job2", "job0", "job3", "job4"]
    assert ids(sort="slowdown")[0] == "job1"
    assert ids(text="BOB") == ["job1", "job2"]
    assert ids(text=" job3 ") == ["job3"]
    assert ids(text="(") == []
    assert ids(state="waited") == ["job4", "job1", "job2"]
    assert ids(state="preempted") == ["job1", "job2"]
    assert ids(state="failed") == ["job3"]
    assert ids(state="unfinished") == ["job4"]
    table, matching = explore.jobs(by_hand(), most=2)
    assert (len(table), matching) == (2, 5)
    assert table.iloc[1].to_dict() == {
        "job": 1,
        "id": "job1",
        "user": "bob",
        "gpus": 4,
        "submit_s": 10.0,
        "wait_s": 140.0,
        "jct_s": 250.0,
        "slowdown": 250.0,
        "outcome": "completed",
        "preemptions": 1,
        "evictions": 0,
    }
    with pytest.raises(ParameterError, match="'lost'"):
        explore.jobs(by_hand(), state="lost")


def test_bars_have_names() -> None:
    found = explore.bars(by_hand(), "t4-2-1", (0.0, 260.0))
    assert found.frame[["job", "id", "user", "t0", "t1", "gpus", "lane"]].to_numpy().tolist() == [
        [2, "job2", "bob", 20.0, 80.0, 1, 0],
        [2, "job2", "bob", 150.0, 210.0, 1, 0],
    ]
    with pytest.raises(ParameterError, match="no node 'x'"):
        explore.bars(by_hand(), "x", (0.0, 260.0))


def test_rows_that_are_not_there() -> None:
    for job in (-1, 5):
        with pytest.raises(ParameterError, match="no job in row"):
            explore.life(by_hand(), job)
        with pytest.raises(ParameterError, match="no job in row"):
            explore.wait_reasons(by_hand(), job)


def test_a_stored_run_is_opened(store: Store, scenario: Scenario) -> None:
    trace = load_trace(scenario.trace, store)
    store_result(store, scenario_key(scenario, store), scenario, run(scenario, trace=trace), trace)
    entry = store.get(scenario_key(scenario, store))
    assert entry is not None
    book = explore.open_run(entry, trace, scenario.cluster, "FIFO", store)
    assert (book.title, book.needs, book.line.end_s) == (
        "FIFO",
        Needs(),
        entry.summary["end_s"],
    )
    waited = explore.jobs(book, state="waited")[0]["job"].tolist()
    assert all(explore.wait_reasons(book, job) for job in waited)
    with pytest.raises(ParameterError, match="the trace 3"):
        explore.open_run(entry, Trace.of(trace.frame.head(3)), scenario.cluster, "FIFO")


def test_instants() -> None:
    assert [RunClock().format(t) for t in (0, 86_399.9999, 3 * 86_400 + 51_600)] == [
        "day 1, 00:00",
        "day 2, 00:00",
        "day 4, 14:20",
    ]
    assert RunClock(seconds=True).format(3661) == "day 1, 01:01:01"
    assert RunClock("2020-02-28T12:00:00").format_after(86_400.0, 80_000.0) == "12:00"
    assert RunClock("2020-02-28T12:00:00").format(1e18).startswith("day 11,574,")
