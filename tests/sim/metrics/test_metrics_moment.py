"""One instant of runs written down by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sim.metrics import queue_series
from sim.metrics.run_state import moment, ranks
from sim.metrics.timeline import Timeline
from tests.sim.metrics.metrics_cases import Held, Job, cluster_of, five, run_of

FIVE = Timeline(five(), cluster_of())


def test_who_waits_and_what_is_free() -> None:
    now = moment(FIVE, 90.0)
    assert now.waiting.tolist() == [1, 2, 4]
    assert now.waited_s.tolist() == [80.0, 10.0, 40.0]
    assert now.running == 1
    assert now.nodes.to_dict("list") == {
        "node": [0, 1],
        "size": [4, 2],
        "used": [2, 0],
        "down": [0, 2],
        "free": [2, 0],
    }


def test_all_that_happens_at_an_instant_has_happened() -> None:
    assert moment(FIVE, 100.0).nodes["used"].tolist() == [4, 0]
    assert moment(FIVE, 80.0).nodes["down"].tolist() == [0, 2]
    assert moment(FIVE, 120.0).nodes["down"].tolist() == [0, 0]


def test_waits_add_up() -> None:
    now = moment(FIVE, 170.0)
    assert now.waiting.tolist() == [1, 4]
    assert now.waited_s.tolist() == [110.0, 120.0]  # 10..100 and 150..170; 50..170
    assert FIVE.waited_s.tolist() == [0, 140, 70, 0, 210]


def test_the_end_shows_what_was_there_until_then() -> None:
    for at in (260.0, 1e9):
        assert moment(FIVE, at).waiting.tolist() == [4]
        assert moment(FIVE, at).nodes["used"].tolist() == [4, 0]
    assert moment(FIVE, -5.0).t_s == 0.0
    assert moment(Timeline(run_of([Job(0, 1)], [], 0.0), cluster_of()), 1.0).running == 0


@pytest.mark.parametrize("at", [0.0, 10.0, 33.3, 80.0, 119.9, 150.0, 205.0, 259.0])
def test_as_many_wait_as_the_series_says(at: float) -> None:
    series, now = queue_series(FIVE.result), moment(FIVE, at)
    row = series.iloc[int(np.searchsorted(series["t_s"], at, "right")) - 1]
    assert (len(now.waiting), now.running) == (row["waiting"], row["running"])
    assert FIVE.result.jobs["gpus"].to_numpy()[now.waiting].sum() == row["gpus_wanted"]


def test_what_is_beyond_the_cluster_is_told_apart() -> None:
    now = moment(
        Timeline(
            run_of(
                [Job(0, 5, 0, 10)], [Held(0, 0, 10, 3), Held(0, 0, 10, 2, node=2)], 10.0, overflow=2
            ),
            cluster_of(),
        ),
        5.0,
    )
    assert (now.beyond, now.nodes["used"].sum()) == (2.0, 3.0)


def test_ranks_count_who_was_submitted_earlier_and_waits() -> None:
    assert ranks(FIVE, 4, 60.0) == (1, 1)
    assert ranks(FIVE, 4, 90.0) == (2, 1)
    assert ranks(FIVE, 4, 120.0) == (1, 2)
    assert ranks(FIVE, 1, 60.0) == (0, -1)
