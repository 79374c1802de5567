"""Runs written down by hand, for the tests of metrics and charts: no simulator involved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from sim.cluster import Change, Cluster, GpuType, NodeGroup
from sim.result import CAUSES, ENDINGS, OUTCOMES, ROLES, RunResult, Timing
from sim.trace import Trace


class Job(NamedTuple):
    submit: float
    gpus: int
    start: float = np.nan
    finish: float = np.nan
    outcome: str = "completed"
    preemptions: int = 0
    evictions: int = 0
    lost_work: float = 0.0
    user: str = "ann"
    work: float = 1.0
    ideal: float = 1.0
    relaunches: int = 0
    believed: float = np.nan


class Held(NamedTuple):
    """A segment with its one placement: `gpus` GPUs on `node`."""

    job: int
    t0: float
    t1: float
    gpus: int
    node: int = 0
    rate: float = 1.0
    paused: float = 0.0
    ended: str = "finished"


def run_of(jobs: Sequence[Job], held: Sequence[Held], end_s: float, **more: object) -> RunResult:
    owned = [
        sum(piece.t1 - piece.t0 for piece in held if piece.job == at) for at in range(len(jobs))
    ]
    frame = pd.DataFrame(
        {
            "submit_s": [job.submit for job in jobs],
            "first_start_s": [job.start for job in jobs],
            "finish_s": [job.finish for job in jobs],
            "gpus": np.array([job.gpus for job in jobs], np.int32),
            "outcome": pd.Categorical([job.outcome for job in jobs], categories=list(OUTCOMES)),
            "preemptions": [job.preemptions for job in jobs],
            "evictions": [job.evictions for job in jobs],
            "relaunches": [job.relaunches for job in jobs],
            "held_s": owned,
            "paused_s": [
                sum(piece.paused for piece in held if piece.job == at) for at in range(len(jobs))
            ],
            "served_gpu_s": [
                sum(piece.gpus * (piece.t1 - piece.t0) for piece in held if piece.job == at)
                for at in range(len(jobs))
            ],
            "work": [job.work for job in jobs],
            "ideal_s": [job.ideal for job in jobs],
            "believed_s": [job.believed for job in jobs],
            "lost_work": [job.lost_work for job in jobs],
        }
    )
    segments = pd.DataFrame(
        {
            "job": np.array([piece.job for piece in held], np.int32),
            "t0": np.array([piece.t0 for piece in held], np.float64),
            "t1": np.array([piece.t1 for piece in held], np.float64),
            "gpus": np.array([piece.gpus for piece in held], np.int32),
            "rate": np.array([piece.rate for piece in held], np.float64),
            "paused_s": np.array([piece.paused for piece in held], np.float64),
            "batch": np.full(len(held), -1, np.int32),
            "ended": pd.Categorical([piece.ended for piece in held], categories=list(ENDINGS)),
        }
    )
    placements = pd.DataFrame(
        {
            "segment": np.arange(len(held), dtype=np.int32),
            "gang": np.zeros(len(held), np.int16),
            "role": np.zeros(len(held), np.int8),
            "node": np.array([piece.node for piece in held], np.int32),
            "count": np.array([piece.gpus for piece in held], np.int32),
            "gpus": np.ones(len(held), np.int16),
            "cpus": np.zeros(len(held)),
            "mem_gb": np.zeros(len(held)),
        }
    )
    parts = {
        "decisions": pd.DataFrame(
            {"t": [0.0, 1.0], "changed": [1, 0], "waiting": [0, 0], "running": [1, 1]}
        ),
        "notes": pd.DataFrame(
            {
                "decision": np.zeros(0, np.int32),
                "name": pd.array([], dtype="str"),
                "value": np.zeros(0),
            }
        ),
        "outages": outages_of([]),
        "failures": failures_of([]),
        "usage": usage_of([]),
        "timing": Timing(
            cpu_s=0.5, wall_s=0.6, allocate_s=0.004, longest_s=0.003, peak_rss_mb=99.0
        ),
    }
    return RunResult(
        jobs=frame, segments=segments, placements=placements, end_s=end_s, **(parts | more)
    )  # type: ignore[arg-type]


def failures_of(rows: Sequence[tuple[float, int, float, int, str, str]]) -> pd.DataFrame:
    t, job, lost_work, survived, cause, role = (
        zip(*rows, strict=True) if rows else ([], [], [], [], [], [])
    )
    return pd.DataFrame(
        {
            "t": np.array(t, np.float64),
            "job": np.array(job, np.int32),
            "lost_work": np.array(lost_work, np.float64),
            "survived": np.array(survived, np.int8),
            "cause": pd.Categorical(cause, categories=list(CAUSES)),
            "role": pd.Categorical(role, categories=list(ROLES)),
        }
    )


def usage_of(rows: Sequence[tuple[int, int, float, float]]) -> pd.DataFrame:
    segment, role, cpus, mem_gb = zip(*rows, strict=True) if rows else ([], [], [], [])
    columns = {
        "segment": np.array(segment, np.int32),
        "role": np.array(role, np.int8),
        "cpus": np.array(cpus, float),
        "mem_gb": np.array(mem_gb, float),
    }
    return pd.DataFrame(columns)


def outages_of(rows: Sequence[tuple[int, float, float, str]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "node": np.array([row[0] for row in rows], np.int32),
            "t0": np.array([row[1] for row in rows], np.float64),
            "t1": np.array([row[2] for row in rows], np.float64),
            "cause": pd.Categorical([row[3] for row in rows], categories=["outage", "absent"]),
        }
    )


def trace_of(jobs: Sequence[Job]) -> Trace:
    return Trace.of(
        pd.DataFrame(
            {
                "job_id": [f"job{at}" for at in range(len(jobs))],
                "submit_time_s": [job.submit for job in jobs],
                "num_gpus": [job.gpus for job in jobs],
                "duration_s": [60.0 * (at + 1) for at in range(len(jobs))],
                "user": [job.user for job in jobs],
            }
        )
    )


def cluster_of(*changes: Change) -> Cluster:
    """Node 0: 4 V100 at 2 USD per GPU-hour; node 1: 2 T4 at 0.5 USD."""
    groups = (NodeGroup(1, 4, "v100"), NodeGroup(1, 2, "t4"))
    return Cluster(groups, (GpuType("v100", 1.0, 2.0), GpuType("t4", 0.5, 0.5)), changes)


# Five jobs on that cluster. Node 1 is down from 80 to 120; job 2 was evicted there and lost 10 of
# the 30 units of work of its first segment. job 0  submit  0, 2 GPUs   node 0   0..100 job 1
# submit 10, 4 GPUs   node 0 100..150 (preempted), 200..260 with a pause of 10 job 2  submit 20, 1
# GPU    node 1  20..80 (evicted), 150..210, both at half speed job 3  submit 40, 8 GPUs
# impossible job 4  submit 50, 2 GPUs   never starts
FIVE = (
    Job(0, 2, 0, 100),
    Job(10, 4, 100, 260, preemptions=1, user="bob"),
    Job(20, 1, 20, 210, evictions=1, lost_work=10, user="bob"),
    Job(40, 8, outcome="impossible"),
    Job(50, 2, outcome="unfinished"),
)
FIVE_HELD = (
    Held(0, 0, 100, 2),
    Held(1, 100, 150, 4, ended="preempted"),
    Held(1, 200, 260, 4, paused=10),
    Held(2, 20, 80, 1, node=1, rate=0.5, ended="evicted"),
    Held(2, 150, 210, 1, node=1, rate=0.5),
)


def five() -> RunResult:
    return run_of(
        FIVE,
        FIVE_HELD,
        260.0,
        outages=outages_of([(1, 80.0, 120.0, "outage")]),
        reason="the rest can never start",
    )
