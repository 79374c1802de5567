from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given

from sim.metrics import GPU_STATES, integral, state_series, utilisation_series
from sim.result import RunResult
from tests.sim.metrics.metrics_cases import Held, Job, cluster_of, five, run_of
from tests.sim.metrics.test_metrics import runs


def rows(frame: pd.DataFrame) -> list[tuple[float, ...]]:
    return [tuple(map(float, row)) for row in frame.itertuples(index=False)]


def test_states_worked_out_by_hand() -> None:
    # Node 0 has 4 GPUs, node 1 has 2; job 0 restarts for 10 s on 3 GPUs of node 0, job 1 holds all
    # of node 1.
    result = run_of(
        [Job(0, 3, 0, 50), Job(20, 2, 20, 60)],
        [Held(0, 0, 50, 3, paused=10), Held(1, 20, 60, 2, node=1)],
        60.0,
    )
    assert rows(
        state_series(result, cluster_of())[["t_s", "busy", "paused", "fragmented", "idle"]]
    ) == [
        (0, 0, 3, 1, 2),
        (10, 3, 0, 1, 2),
        (20, 5, 0, 1, 0),
        (50, 2, 0, 0, 4),
        (60, 0, 0, 0, 6),
    ]


def test_states_of_five_jobs_show_the_outage() -> None:
    states = state_series(five(), cluster_of())
    # An outage of 40 s takes the 2 GPUs of node 1.
    assert integral(states["t_s"].to_numpy(), states["down"].to_numpy(), 0, 260) == 80


@given(runs())
def test_states_are_all_gpus_at_any_time(result: RunResult) -> None:
    states = state_series(result, cluster_of())
    held, busy = utilisation_series(result, cluster_of()), states["busy"] + states["paused"]
    assert (states[list(GPU_STATES)].to_numpy() >= 0).all()
    t = states["t_s"].to_numpy()
    assert integral(t, busy.to_numpy(), 0, result.end_s) == integral(
        held["t_s"].to_numpy(), held["total"].to_numpy(), 0, result.end_s
    )
    # Drawn at random, jobs may hold more GPUs of a node than it has; else every GPU is in one
    # state.
    room = (
        states["busy"] + states["paused"] + states["fragmented"] + states["down"]
        <= cluster_of().gpus
    )
    assert np.allclose(states[list(GPU_STATES)].sum(axis=1)[room], cluster_of().gpus)
