"""Schedules of FIFO, SJF and EASY that others published: RLScheduler (SC20) and Flux."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pytest

from allocators import make
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Simulator
from sim.result import RunResult
from sim.trace import Trace
from tests.shared import shared

RLSCHEDULER = "data/schedulers/rlscheduler"
FLUX = "data/schedulers/flux"


def ran(jobs: pd.DataFrame, cluster: str, spec: str) -> RunResult:
    trace = Trace(jobs.assign(job_id=jobs["job_id"].astype(str)))
    return Simulator(trace, Cluster.parse(cluster), make(Spec.parse(spec))).run()


def slowdown(spec: str, *, ends_apart: bool = False) -> float:
    """Mean bounded slowdown over the ten windows of Lublin-1, as in Table V."""
    means = []
    for at in range(10):
        jobs = pd.read_csv(shared(f"{RLSCHEDULER}/window_{at}.csv.gz"))
        if ends_apart:
            jobs["duration_s"] -= (len(jobs) - np.arange(len(jobs))) * 1e-6
        found = ran(jobs, "256x1:v100", spec).jobs
        run_s = jobs["duration_s"].to_numpy()
        wait_s = (found["first_start_s"] - found["submit_s"]).to_numpy()
        means.append(np.maximum(1, (wait_s + run_s) / np.maximum(run_s, 10)).mean())
    return float(np.mean(means))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "published"), [("fifo", 7273.77), ("sjf:backfill=locked", 277.35)]
)
def test_queues_of_rlscheduler(spec: str, published: float) -> None:
    assert round(slowdown(spec), 2) == published


@pytest.mark.slow
def test_backfill_of_rlscheduler() -> None:
    # That simulator takes ends of one instant one after the other, and lets jobs pass in between:
    # the first small job takes what a larger one before it would have got from both. With ends a
    # millionth of a second apart the published figure comes out; with one decision an instant it
    # is a thousandth less.
    strict = "easy:run_times=limit,spare=no"
    assert round(slowdown(strict, ends_apart=True), 2) == 235.82
    assert round(slowdown(strict), 2) == 235.55


@pytest.mark.parametrize(("spec", "file"), [("fifo", "fcfs"), ("easy:run_times=limit", "easy")])
def test_orders_of_flux(spec: str, file: str) -> None:
    with shared(f"{FLUX}/hype-test.csv").open() as opened:
        rows = list(csv.DictReader(opened))
    jobs = pd.DataFrame(
        {
            "job_id": [row["JobID"] for row in rows],
            "submit_time_s": [float(row["Submit"]) for row in rows],
            "num_gpus": [int(row["NNodes"]) for row in rows],
            "duration_s": [pd.Timedelta(row["Elapsed"]).total_seconds() for row in rows],
            "time_limit_s": [pd.Timedelta(row["Timelimit"]).total_seconds() for row in rows],
        }
    )
    started_s = ran(jobs, "154x1:v100", spec).jobs["first_start_s"].to_numpy()
    found = jobs["job_id"].to_numpy()[np.argsort(started_s, kind="stable")]
    order = [int(row) for row in shared(f"{FLUX}/{file}_expected").read_text().split()]
    assert found.astype(int).tolist() == order
