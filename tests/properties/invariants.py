"""What must hold of every record of a run, whoever decided: recomputed from segments and placements alone."""

from __future__ import annotations

from math import inf

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.metrics import littles_law
from sim.result import RunResult
from sim.trace import Trace

RESOURCES = ("gpus", "cpus", "mem_gb")


def check(result: RunResult, trace: Trace, cluster: Cluster, conditions: Conditions) -> None:
    """Assert all of it."""
    check_capacity(result, cluster)
    check_outages(result, cluster)
    check_admission(result, trace, cluster)
    check_times(result, trace)
    check_sums(result)
    check_work(result, conditions)
    check_ending(result)
    in_system, jct = littles_law(result)
    assert in_system == pytest.approx(jct, rel=1e-9, abs=1e-6)


def placed(result: RunResult) -> pd.DataFrame:
    """Return placements with job, start, end and total per resource; the overflow node left out."""
    rows = result.placements.join(result.segments[["job", "t0", "t1"]], on="segment")
    for name in RESOURCES:
        rows[name] = rows[name] * rows["count"]
    return rows[rows["node"] != (-1 if result.overflow is None else result.overflow)]


def check_capacity(result: RunResult, cluster: Cluster) -> None:
    """At the end of every instant no node gives more GPUs, cores or memory than it has."""
    rows = placed(result)
    rows = rows[rows["t1"] > rows["t0"]]
    for node, held in rows.groupby("node"):
        limits = (cluster.nodes[node].gpus, cluster.nodes[node].cpus, cluster.nodes[node].mem_gb)
        for t in held["t0"].unique():
            now = held[(held["t0"] <= t) & (t < held["t1"])]
            for name, limit in zip(RESOURCES, limits, strict=True):
                assert now[name].sum() <= limit + 1e-5, f"node {node} at {t}: {now[name].sum()} {name} of {limit}"


def check_outages(result: RunResult, cluster: Cluster) -> None:
    """Nobody holds anything on a node that is out of service, whether the list of outages or that of dated changes says so."""
    rows = placed(result)
    for out in result.outages.itertuples():
        end = inf if np.isnan(out.t1) else out.t1
        on = rows[(rows["node"] == out.node) & (rows["t0"] < end) & (rows["t1"] > out.t0) & (rows["t1"] > rows["t0"])]
        assert on.empty, f"node {out.node} is out from {out.t0} to {end}, and yet {on.to_dict('records')}"
    for node in range(len(cluster.nodes)):
        present, since = True, -inf
        for change in [*sorted((c for c in cluster.changes if node in c.nodes), key=lambda c: c.at_s), None]:
            until = inf if change is None else change.at_s
            if not present:
                on = rows[(rows["node"] == node) & (rows["t0"] < until) & (rows["t1"] > since) & (rows["t1"] > rows["t0"])]
                assert on.empty, f"node {node} is absent from {since} to {until}"
            if change is not None:
                present, since = change.present, change.at_s


def check_admission(result: RunResult, trace: Trace, cluster: Cluster) -> None:
    """No GPU job has a replica with GPUs on a node of a type that it does not admit."""
    allowed = trace.texts("gpu_types_allowed")
    for row in placed(result).itertuples():
        types = str(allowed.categories[allowed.codes[row.job]])
        kind = cluster.nodes[row.node].gpu_type
        assert not row.gpus or (kind and (not types or kind in types.split("|")))


def check_times(result: RunResult, trace: Trace) -> None:
    """Starts follow submissions, segments of a job do not overlap, and nothing happens after the end."""
    jobs, segments = result.jobs, result.segments
    assert (jobs["submit_s"].to_numpy() == trace.numbers("submit_time_s")).all()
    started = jobs["first_start_s"].notna()
    assert (jobs["first_start_s"] >= jobs["submit_s"])[started].all()
    assert (jobs["finish_s"] > jobs["first_start_s"])[jobs["finish_s"].notna()].all()
    assert (segments["t1"] >= segments["t0"]).all()
    assert (segments["t0"] >= segments["job"].map(jobs["submit_s"])).all()
    assert (segments["t1"] <= result.end_s).all()
    for job, unsorted in segments.groupby("job"):
        own = unsorted.sort_values(["t0", "t1"])
        assert (own["t0"].to_numpy()[1:] >= own["t1"].to_numpy()[:-1]).all(), f"job {job}: segments overlap"
        assert own["t0"].iloc[0] == jobs["first_start_s"][job]


def check_sums(result: RunResult) -> None:
    """Times and GPU-seconds of a job are the sums over its segments, and a segment holds what its placements say."""
    segments, jobs = result.segments, result.jobs
    lengths = segments["t1"] - segments["t0"]
    sums = pd.DataFrame({"held_s": lengths, "paused_s": segments["paused_s"], "served_gpu_s": lengths * segments["gpus"]})
    sums = sums.groupby(segments["job"]).sum().reindex(jobs.index, fill_value=0.0)
    for name in sums:
        assert jobs[name].to_numpy() == pytest.approx(sums[name].to_numpy(), rel=1e-9, abs=1e-6), name
    assert (segments["paused_s"] <= lengths + 1e-9).all()
    rows = result.placements
    gpus = (rows["gpus"] * rows["count"]).groupby(rows["segment"]).sum().reindex(segments.index, fill_value=-1)
    assert (gpus == segments["gpus"]).all()


def check_work(result: RunResult, conditions: Conditions) -> None:
    """The rate integrated over unpaused time is the work done; it is all of the work of a completed job, plus what was lost."""
    segments, jobs = result.segments, result.jobs
    made = segments["rate"] * (segments["t1"] - segments["t0"] - segments["paused_s"])
    made = made.groupby(segments["job"]).sum().reindex(jobs.index, fill_value=0.0)
    over = made - jobs["lost_work"] - jobs["work"]
    done = jobs["outcome"] == "completed"
    assert over[done].abs().max() <= 1e-6 or not done.any()
    assert (over[~done] <= 1e-6).all()
    assert (jobs["lost_work"] >= 0).all()
    assert (jobs["lost_work"] <= made + 1e-6).all()
    faults, overheads = conditions.faults, conditions.overheads
    if overheads.on_preempt != "lose_all" and not (faults.mtbf_h or faults.interruptions_per_node_h or faults.outages or len(result.outages)):
        assert (jobs["lost_work"] == 0).all()


def check_ending(result: RunResult) -> None:
    """Outcomes, finish times and the reason for the end agree."""
    jobs = result.jobs
    done = jobs["outcome"] == "completed"
    assert (jobs["finish_s"].notna() == done).all()
    assert (jobs["first_start_s"].isna() | ~jobs["outcome"].isin(["refused", "impossible"])).all()
    unfinished = (jobs["outcome"] == "unfinished").any()
    assert not (result.reason == "drained" and unfinished)
    last = result.segments.groupby("job")["ended"].last()
    assert (last[done[done].index] == "finished").all()
    evicted = (result.segments["ended"] == "evicted").groupby(result.segments["job"]).sum().reindex(jobs.index, fill_value=0)
    assert (evicted == jobs["evictions"]).all()
