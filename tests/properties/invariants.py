"""What must hold of every record of a run, whoever decided: recomputed from segments and placements
alone.
"""

from __future__ import annotations

from math import inf

import numpy as np
import pandas as pd
import pytest

from sim.clock import STEP_S
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.metrics import integral, presence, queue_series
from sim.result import RunResult
from sim.trace import Trace

RESOURCES = ("gpus", "cpus", "mem_gb")


def check(result: RunResult, trace: Trace, cluster: Cluster, conditions: Conditions) -> None:
    """Assert all of it."""
    rows = placed(result)
    check_capacity(rows, cluster)
    check_outages(result, rows, cluster)
    check_admission(rows, trace, cluster)
    check_times(result, trace)
    check_sums(result)
    check_work(result, conditions)
    check_ending(result)
    in_system, jct = littles_law(result)
    assert in_system == pytest.approx(jct, rel=1e-9, abs=1e-6)


def littles_law(result: RunResult) -> tuple[float, float]:
    """Return both sides of Little's law: the integral of jobs in the system, and the sum of their
    sojourn times, in job-seconds.

    Notes
    -----
    L = lambda W holds exactly on a finite run: the left side is summed over instants
    (`queue_series`), the right side over jobs (`presence`).
    """
    series = queue_series(result)
    enter, leave = presence(result)
    inside = (series["waiting"] + series["running"]).to_numpy(np.float64)
    return integral(series["t_s"].to_numpy(), inside, 0.0, result.end_s), float(
        (leave - enter).sum()
    )


def placed(result: RunResult) -> pd.DataFrame:
    """Return placements with job, start, end and total per resource; the overflow node left out."""
    rows = result.placements.join(result.segments[["job", "t0", "t1"]], on="segment")
    for name in RESOURCES:
        rows[name] = rows[name] * rows["count"]
    return rows[rows["node"] != (-1 if result.overflow is None else result.overflow)]


def check_capacity(rows: pd.DataFrame, cluster: Cluster) -> None:
    """At the end of every instant no node gives more GPUs, cores or memory than it has."""
    on, t0, t1 = (rows[name].to_numpy() for name in ("node", "t0", "t1"))
    amounts = {name: rows[name].to_numpy() for name in RESOURCES}
    for node in np.unique(on):
        limits = (cluster.nodes[node].gpus, cluster.nodes[node].cpus, cluster.nodes[node].mem_gb)
        for t in np.unique(t0[(on == node) & (t1 > t0)]):
            now = (on == node) & (t0 <= t) & (t < t1)
            for name, limit in zip(RESOURCES, limits, strict=True):
                held = amounts[name][now].sum()
                assert held <= limit + 1e-5, f"node {node} at {t}: {held} {name} of {limit}"


def check_outages(result: RunResult, rows: pd.DataFrame, cluster: Cluster) -> None:
    """Nobody holds anything on a node that is out of service, whether the list of outages or that
    of dated changes says so.
    """
    nodes, t0, t1 = (rows[name].to_numpy() for name in ("node", "t0", "t1"))
    for node, begun, ended in result.outages[["node", "t0", "t1"]].to_numpy().tolist():
        end = inf if np.isnan(ended) else ended
        on = (nodes == node) & (t0 < end) & (t1 > begun) & (t1 > t0)
        assert not on.any(), (
            f"node {node} is out from {begun} to {end}, and yet {rows[on].to_dict('records')}"
        )
    for node in range(len(cluster.nodes)):
        present, since = True, -inf
        for change in [
            *sorted((c for c in cluster.changes if node in c.nodes), key=lambda c: c.at_s),
            None,
        ]:
            until = inf if change is None else change.at_s
            if not present:
                on = (nodes == node) & (t0 < until) & (t1 > since) & (t1 > t0)
                assert not on.any(), f"node {node} is absent from {since} to {until}"
            if change is not None:
                present, since = change.present, change.at_s


def check_admission(rows: pd.DataFrame, trace: Trace, cluster: Cluster) -> None:
    """No GPU job has a replica with GPUs on a node of a type that it does not admit."""
    allowed = trace.texts("gpu_types_allowed")
    for job, node, gpus in zip(
        *(rows[name].tolist() for name in ("job", "node", "gpus")), strict=True
    ):
        types = str(allowed.categories[allowed.codes[job]])
        kind = cluster.nodes[node].gpu_type
        assert not gpus or (kind and (not types or kind in types.split("|")))


def check_times(result: RunResult, trace: Trace) -> None:
    """Starts follow submissions, segments of a job do not overlap, and nothing happens after the
    end.
    """
    jobs, segments = result.jobs, result.segments
    assert (jobs["submit_s"].to_numpy() == trace.numbers("submit_time_s")).all()
    started = jobs["first_start_s"].notna()
    assert (jobs["first_start_s"] >= jobs["submit_s"])[started].all()
    assert (jobs["finish_s"] > jobs["first_start_s"])[jobs["finish_s"].notna()].all()
    assert (segments["t1"] >= segments["t0"]).all()
    assert (segments["t0"] >= segments["job"].map(jobs["submit_s"])).all()
    assert (segments["t1"] <= result.end_s).all()
    own = segments[["job", "t0", "t1"]].sort_values(["job", "t0", "t1"])
    job, t0, t1 = (own[name].to_numpy() for name in own)
    same = job[1:] == job[:-1]
    assert (t0[1:] >= t1[:-1])[same].all(), (
        f"segments overlap: jobs {job[1:][same & (t0[1:] < t1[:-1])]}"
    )
    first = np.flatnonzero(np.append(True, ~same))[: len(job)]
    assert (t0[first] == jobs["first_start_s"].to_numpy()[job[first]]).all()


def check_sums(result: RunResult) -> None:
    """Times and GPU-seconds of a job are the sums over its segments, and a segment holds what its
    placements say.
    """
    segments, jobs = result.segments, result.jobs
    lengths = segments["t1"] - segments["t0"]
    sums = pd.DataFrame(
        {
            "held_s": lengths,
            "paused_s": segments["paused_s"],
            "served_gpu_s": lengths * segments["gpus"],
        }
    )
    sums = sums.groupby(segments["job"]).sum().reindex(jobs.index, fill_value=0.0)
    for name in sums:
        assert jobs[name].to_numpy() == pytest.approx(sums[name].to_numpy(), rel=1e-9, abs=1e-6), (
            name
        )
    assert (segments["paused_s"] <= lengths + 1e-9).all()
    rows = result.placements
    gpus = (
        (rows["gpus"] * rows["count"])
        .groupby(rows["segment"])
        .sum()
        .reindex(segments.index, fill_value=-1)
    )
    assert (gpus == segments["gpus"]).all()


def check_work(result: RunResult, conditions: Conditions) -> None:
    """The rate integrated over unpaused time is the work done; it is all of the work of a completed
    job, plus what was lost.

    Every segment ends at an instant, up to half a step from where its work ends exactly.
    """
    segments, jobs = result.segments, result.jobs
    rates = segments["rate"].groupby(segments["job"]).sum().reindex(jobs.index, fill_value=0.0)
    made = segments["rate"] * (segments["t1"] - segments["t0"] - segments["paused_s"])
    made = made.groupby(segments["job"]).sum().reindex(jobs.index, fill_value=0.0)
    slack = 1e-6 + STEP_S * rates + 1e-12 * made
    over = made - jobs["lost_work"] - jobs["work"]
    done = jobs["outcome"] == "completed"
    assert (over[done].abs() <= slack[done]).all()
    assert (over[~done] <= slack[~done]).all()
    assert (jobs["lost_work"] >= 0).all()
    assert (jobs["lost_work"] <= made + slack).all()
    faults, overheads = conditions.faults, conditions.overheads
    failing = faults.mtbf_h or faults.interruptions_per_node_h or faults.outages
    if overheads.on_preempt != "lose_all" and not (
        failing or len(result.outages) or len(result.failures)
    ):
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
    evicted = result.segments[result.segments["ended"] == "evicted"]
    hits = result.failures[result.failures["survived"] == 0]
    assert (hits.groupby("job").size().reindex(jobs.index, fill_value=0) == jobs["evictions"]).all()
    # A job without a hit lost its nodes to its policy, which ended it for good.
    ended = set(zip(evicted["job"], evicted["t1"], strict=True)) - set(
        zip(hits["job"], hits["t"], strict=True)
    )
    assert len(evicted) == len(hits) + len(ended)
    for job, at_s in ended:
        own = result.segments[result.segments["job"] == job]
        assert jobs["outcome"][job] == "failed"
        assert at_s == own["t1"].max()
