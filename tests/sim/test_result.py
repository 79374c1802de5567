"""The record of a run and its digest; errors that travel between processes."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from sim.contract import Plan
from sim.engine.faults import Faults
from sim.errors import InfeasiblePlan
from sim.result import RunResult, Timing
from tests.sim.scripted import Greedy, Script, jobs, on, run


def sample() -> RunResult:
    script = Script({0: Plan({0: on(0)}, notes={"gap": 0.5}), 5: {1: on(0)}})
    return run(jobs((0, 1, 5), (1, 1, 5)), "2x1:v100", script, faults=Faults(outages="1:2:3"))


def test_timing_is_no_part_of_the_digest() -> None:
    result = sample()
    assert (
        result.digest()
        == sample().digest()
        == replace(result, timing=Timing(9, 9, 9, 9, 9)).digest()
    )
    # The system may count the processor time of so short a run as none.
    assert result.timing.cpu_s >= 0
    assert result.timing.peak_rss_mb > 1
    assert 0 < result.timing.longest_s <= result.timing.allocate_s <= result.timing.wall_s


@pytest.mark.parametrize(
    "change", [{"end_s": 1.0}, {"reason": "x"}, {"voided": 3}, {"overflow": 2}]
)
def test_every_plain_field_counts(change: dict[str, object]) -> None:
    assert replace(sample(), **change).digest() != sample().digest()


@pytest.mark.parametrize(
    "frame", ["jobs", "segments", "placements", "decisions", "notes", "outages"]
)
def test_every_column_of_every_frame_counts(frame: str) -> None:
    result = sample()
    table = getattr(result, frame)
    assert len(table) > 0
    for column in table.columns:
        changed = table.copy()
        if column in ("outcome", "ended", "cause"):
            changed[column] = changed[column].cat.set_categories(
                changed[column].cat.categories[::-1]
            )
        elif column == "name":
            changed[column] = "other"
        else:
            changed[column] = changed[column].fillna(0) + 1
        believed = column == "believed_s"  # what was thought is no part of what happened
        assert (replace(result, **{frame: changed}).digest() == result.digest()) is believed, column
    assert replace(result, **{frame: table.iloc[:-1]}).digest() != result.digest()


def test_types_count() -> None:
    result = sample()
    assert replace(result, jobs=result.jobs.astype({"gpus": "int64"})).digest() != result.digest()


def test_a_result_travels() -> None:
    result = sample()
    assert pickle.loads(pickle.dumps(result)).digest() == result.digest()


def test_an_infeasible_plan_travels_with_what_was_seen() -> None:
    with pytest.raises(InfeasiblePlan) as caught:
        run(jobs((0, 1, 5)), "1x1:v100", Script({0: {0: on(0, 2)}}))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.snapshot) == (str(caught.value), caught.value.snapshot)
    assert again.snapshot["free_gpus"] == [1]


def test_two_runs_are_two_results() -> None:
    assert (
        run(jobs((0, 1, 5)), "1x1:v100", Greedy()).digest()
        != run(jobs((0, 1, 6)), "1x1:v100", Greedy()).digest()
    )
