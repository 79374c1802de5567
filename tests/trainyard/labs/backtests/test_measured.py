"""A check of Slurm against what a real one did, on its own files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sim.params import Spec
from sim.trace import Trace
from tests.shared import shared
from trainyard.clusters.machines import read_cluster
from trainyard.labs.backtests.run import BacktestRun
from trainyard.store import Store
from trainyard.study.check import Check, parameter_value
from trainyard.study.files import read_file_parameters
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.traces.sources import load_source

BEGAN = pd.Timestamp("2021-02-11T22:36:19")


def recorded(folder: Path) -> Trace:
    """The submissions of the recording, with the starts that are given: those of the first 300."""
    source = TraceSpec.of(str(folder / "workload.csv"), read={"cpu_jobs": "keep"})
    rows = pd.read_csv(folder / "recorded_sacct_first300.psv", sep="|", dtype={"JobID": str})
    start_s = (pd.to_datetime(rows["Start"]) - BEGAN).dt.total_seconds()
    trace = load_source(source).trace
    known = trace.frame["job_id"].astype(str).map(dict(zip(rows["JobID"], start_s, strict=True)))
    return replace(Trace.of(trace.frame.assign(start_time_s=known)), epoch=BEGAN.isoformat())


@pytest.mark.slow
def test_a_fit_to_a_real_slurm_chooses_its_fair_share_and_its_size(store: Store) -> None:
    folder = shared("data/schedulers/slurm_micro")
    policy = read_file_parameters(
        Spec.of(
            "slurm",
            conf=str(folder / "slurm.conf"),
            accounts=str(folder / "sacctmgr.script"),
            topology=str(folder / "topology.conf"),
            fairshare="tree",
            size_nodes="used",
        )
    )
    scenario = Scenario(
        TraceSpec(f"store:{store.put_trace(recorded(folder))}"),
        read_cluster(folder / "slurm.conf").cluster,
        policy,
    )
    # A record of hours is no yardstick, and all of it is fitted but for the last half hour.
    # Two repeats from here lie up to 2,000 s apart, which is more than classic and asked win.
    check = Check(scenario, 3, warm_s=0.0, judge_s=1800.0, anyway=True, fit=True)
    done = BacktestRun(check, store, "inline")
    done.run()
    assert done.error == ""
    assert done.report is not None
    assert done.report.fit is not None
    assert not done.report.comparable
    chosen = done.report.fit.scenario.allocator
    assert parameter_value(chosen, "fairshare") == "classic"
    assert parameter_value(chosen, "size_nodes") == "asked"
