"""On dense traces of whole milliseconds a run equals exact arithmetic: who is at one instant is not
a matter of rounding.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pandas as pd
import pytest

from allocators import make
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Simulator
from sim.trace import Trace

Job = tuple[int, int, int]
"""Submission and duration in whole milliseconds, and GPUs."""
Key = Callable[[int, Job, int], tuple[int, ...]]
"""(id, job, milliseconds left) -> its place in the queue."""


def exact(jobs: list[Job], gpus: int, key: Key, *, stops: bool, passes: bool) -> list[int]:
    """Ends in milliseconds on one node, from whole numbers alone, instant by instant.

    At every instant the queue is walked in order of its key, from an empty node if running jobs may
    be stopped; a job without room is passed, or holds up all behind it. Equals stand as at the
    instant before, those that waited before those that ran, newcomers last.
    """
    left, ends = {job: jobs[job][1] for job in range(len(jobs))}, [-1] * len(jobs)
    running: set[int] = set()
    line: list[int] = []
    now = 0
    while left:
        line = sorted((at for at in line if at in left), key=running.__contains__)
        line += [at for at in left if jobs[at][0] <= now and at not in line]
        line.sort(key=lambda at: key(at, jobs[at], left[at]))
        free = gpus - (0 if stops else sum(jobs[at][2] for at in running))
        chosen: set[int] = set() if stops else set(running)
        for at in line:
            if at in chosen:
                continue
            if jobs[at][2] <= free:
                chosen.add(at)
                free -= jobs[at][2]
            elif not passes:
                break
        running = chosen
        coming = [job[0] for at, job in enumerate(jobs) if job[0] > now and at in left]
        following = min([now + left[at] for at in running] + coming)
        for at in list(running):
            left[at] -= following - now
            if not left[at]:
                del left[at]
                running.remove(at)
                ends[at] = following
        now = following
    return ends


RULES: dict[str, tuple[Key, bool, bool]] = {
    "fifo": (lambda at, job, left: (at,), False, False),
    "sjf": (lambda at, job, left: (job[1], at), False, False),
    "srtf": (lambda at, job, left: (left,), True, True),
}


def dense(seed: int) -> tuple[list[Job], int]:
    draw = random.Random(seed)
    most = draw.choice((20, 200, 2000, 90_000))
    sizes = (1,) if draw.random() < 0.3 else (1, 1, 2, 3, 4)
    jobs = sorted(
        (draw.randint(0, most), draw.randint(1, most // 4)) for _ in range(draw.randint(5, 60))
    )
    zero = jobs[0][0]
    return [(submit - zero, duration, draw.choice(sizes)) for submit, duration in jobs], (
        draw.choice((1, 4, 8)) if sizes == (1,) else draw.choice((4, 8))
    )


def trace_of(jobs: list[Job]) -> Trace:
    rows = [
        (f"j{at}", submit / 1000, gpus, duration / 1000)
        for at, (submit, duration, gpus) in enumerate(jobs)
    ]
    return Trace.of(
        pd.DataFrame(rows, columns=["job_id", "submit_time_s", "num_gpus", "duration_s"])
    )


@pytest.mark.parametrize("name", RULES)
def test_runs_on_a_grid_of_milliseconds_equal_whole_number_arithmetic(
    name: str,
) -> None:
    key, stops, passes = RULES[name]
    for seed in range(40):
        jobs, gpus = dense(1000 * list(RULES).index(name) + seed)
        result = Simulator(trace_of(jobs), Cluster.parse(f"1x{gpus}:v100"), make(Spec(name))).run()
        wanted = [end / 1000 for end in exact(jobs, gpus, key, stops=stops, passes=passes)]
        assert result.jobs["finish_s"].tolist() == wanted, f"seed {seed}"
