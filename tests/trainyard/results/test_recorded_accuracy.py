from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Change, Cluster
from sim.result import RunResult
from sim.trace import Trace
from trainyard.results.compare import Outcome
from trainyard.results.recorded_accuracy import (
    Explained,
    no_trust_reason,
    recorded_overflow,
    share_waiting_for_gpus,
    trust,
)


def outcome_of(label: str, trace: Trace, starts: list[float], *, replays: bool = False) -> Outcome:
    jobs = pd.DataFrame(
        {
            "submit_s": trace.frame["submit_time_s"],
            "first_start_s": starts,
            "gpus": trace.frame["num_gpus"],
        }
    )
    return Outcome(label, ({},), (jobs,), replays)


def test_closest_simulated_policy_by_the_median_error_of_the_wait(trace: Trace) -> None:
    # Recorded waits 0, 90, 80, 60.
    near = outcome_of("near", trace, [0.0, 100.0, 110.0, 160.0])  # errors 0, 0, 10, 60
    far = outcome_of("far", trace, [0.0, 200.0, 150.0, 150.0])  # errors 0, 100, 50, 50
    history = outcome_of("history", trace, [0.0, 100.0, 100.0, 100.0], replays=True)
    found = trust(trace, [far, near, history])
    assert found is not None
    assert (found.label, found.jobs, found.median_s) == ("near", 4, 5.0)
    assert found.p95_s == pytest.approx(np.percentile([0, 0, 10, 60], 95))
    rows = found.by_size.set_index(found.by_size["size"].astype(str))
    assert rows["jobs"].sum() == 4
    assert rows.index.tolist()[-1] == "5–8"
    assert rows["jobs"].tolist() == [2, 2]
    assert rows["median_s"].tolist() == [35.0, 0.0]
    assert rows["recorded_s"].tolist() == [70.0, 45.0]
    assert "near" in found.sentence()
    assert "median 5 s" in found.sentence()


def test_jobs_without_a_start_are_not_compared(trace: Trace) -> None:
    found = trust(trace, [outcome_of("a", trace, [0.0, float("nan"), 100.0, 100.0])])
    assert found is not None
    assert (found.jobs, found.median_s) == (3, 0.0)


def test_no_number_without_history_or_simulation(trace: Trace) -> None:
    bare = replace(trace, frame=trace.frame.drop(columns="start_time_s"))
    assert trust(bare, [outcome_of("a", trace, [0.0] * 4)]) is None
    assert trust(trace, [outcome_of("a", trace, [0.0] * 4, replays=True)]) is None
    assert trust(trace, [outcome_of("a", trace, [float("nan")] * 4)]) is None
    assert no_trust_reason(trace).startswith("There is no comparison with recorded start times")
    assert no_trust_reason(bare).startswith("This trace has no recorded start times")
    assert trust(trace, []) is None


def result_of(spells: list[tuple[int, float, float, int, int]], overflow: int | None) -> RunResult:
    """Spells are (job, t0, t1, node, gpus)."""
    segments = pd.DataFrame(
        [(job, t0, t1) for job, t0, t1, _, _ in spells], columns=["job", "t0", "t1"]
    )
    placements = pd.DataFrame(
        [(at, node, gpus, 1) for at, (*_, node, gpus) in enumerate(spells)],
        columns=["segment", "node", "count", "gpus"],
    )
    empty = pd.DataFrame()
    return RunResult(
        empty, segments, placements, empty, empty, empty, empty, empty, 100.0, overflow=overflow
    )


def test_overflow_intervals() -> None:
    spells = [
        (0, 0.0, 50.0, 0, 8),
        (1, 10.0, 20.0, 2, 4),
        (2, 15.0, 30.0, 2, 2),
        (3, 30.0, 40.0, 2, 5),
        (4, 60.0, 70.0, 2, 1),
    ]
    found = recorded_overflow(result_of(spells, overflow=2))
    # 10-40 s: 4, then 4 + 2, then 2, then handed over to 5; 4x10 + 2x15 + 5x10 = 120 GPU-s. And
    # 60-70 s.
    assert found.to_numpy().tolist() == [[10.0, 40.0, 6.0, 120.0, 3], [60.0, 70.0, 1.0, 10.0, 1]]


def test_no_overflow() -> None:
    assert recorded_overflow(result_of([(0, 0.0, 50.0, 0, 8)], overflow=2)).empty
    assert recorded_overflow(result_of([(0, 0.0, 50.0, 0, 8)], overflow=None)).empty


@pytest.mark.parametrize(
    ("recorded_s", "simulated_s", "median_s", "holds"),
    [
        # 20 % of an hour are 720 s.
        (3600.0, 4320.0, 720.0, True),
        (3600.0, 2879.0, 0.0, False),
        (3600.0, 3600.0, 721.0, False),
        # A minute is more than 20 % of 100 s.
        (100.0, 160.0, 60.0, True),
        (100.0, 161.0, 0.0, False),
    ],
)
def test_a_recording_is_explained_if_both_errors_are_small(
    recorded_s: float, simulated_s: float, median_s: float, holds: bool
) -> None:
    assert Explained("FIFO", simulated_s, recorded_s, median_s).holds == holds


def as_run(submit: list[float], start: list[float], run: list[float], gpus: list[int]) -> Trace:
    columns = {"submit_time_s": submit, "start_time_s": start, "duration_s": run, "num_gpus": gpus}
    return Trace.of(pd.DataFrame({"job_id": [str(at) for at in range(len(gpus))], **columns}))


def test_waits_while_gpus_were_free() -> None:
    cluster = Cluster.parse("1x8:v100")
    # Six GPUs are in use up to 1,000 s. Two wait from 0 to 1,500 s, four from 0 to 2,000 s.
    trace = as_run([0.0] * 3, [0.0, 1500.0, 2000.0], [1000.0] * 3, [6, 2, 4])
    assert share_waiting_for_gpus(trace, cluster) == pytest.approx(1000 / 3500)
    # With three GPUs, those who want four wait for them; two have room as soon as six end.
    assert share_waiting_for_gpus(trace, Cluster.parse("1x3:v100")) == pytest.approx(3000 / 3500)
    # A node that comes at 1,500 s.
    late = Cluster.parse("2x4:v100")
    late = replace(late, changes=(Change(0.0, (1,), False), Change(1500.0, (1,), True)))
    assert share_waiting_for_gpus(trace, late) == pytest.approx(2000 / 3500)


def test_short_waits_and_no_starts_say_nothing_of_free_gpus() -> None:
    cluster = Cluster.parse("1x8:v100")
    quick = as_run([0.0, 0.0], [59.0, 60.0], [10.0, 10.0], [1, 1])
    assert np.isnan(share_waiting_for_gpus(quick, cluster))
    longer = as_run([0.0, 0.0], [60.0, 60.0], [10.0, 10.0], [1, 1])
    assert share_waiting_for_gpus(longer, cluster) == 0.0
    bare = replace(longer, frame=longer.frame.drop(columns="start_time_s"))
    assert np.isnan(share_waiting_for_gpus(bare, cluster))
