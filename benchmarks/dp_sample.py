"""Time per decision of the elastic dynamic program on philly-like traces, and whether it grows with
the number of finished jobs.
"""

from __future__ import annotations

import json
import statistics
from time import process_time

import numpy as np

from allocators.elastic import dp
from benchmarks.unit import unit_s
from jobtraces.generate import generate
from sim.cluster import Cluster
from sim.contract import Plan, View
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf import PERF
from sim.trace import Trace
from trainyard.traces.samples import load_sample

EVERY_S = 300.0
BUDGET_U = {"512x8:p100": 1_500, "40x8:p100": 5_000}
"""U per decision, all ticks counted."""
MAX_GROWTH = 1.5


class TimedDecisions:
    """Measures every decision at which something had changed, with the number of active jobs."""

    def __init__(self, inner: dp.DpElastic) -> None:
        self.inner, self.cadence, self.needs, self.card = (
            inner,
            inner.cadence,
            inner.needs,
            inner.card,
        )
        self.cost: list[tuple[float, int, float]] = []

    def allocate(self, view: View) -> Plan:
        began = process_time()
        plan = self.inner.allocate(view)
        took_s = process_time() - began
        if plan.notes:
            self.cost.append((view.now_s, len(view.active), took_s))
        return plan


def growth(cost: list[tuple[float, int, float]], end_s: float) -> float:
    """Return the time per decision in the last third of the run over that in the first third,
    compared at equal numbers of active jobs.
    """
    at, active, took_s = np.array(cost).T
    level = np.digitize(active, np.geomspace(1, active.max() + 1, 13))
    ratios, weights = [], []
    for one in np.unique(level):
        early, late = ((level == one) & where for where in (at < end_s / 3, at > end_s * 2 / 3))
        if early.sum() >= 10 and late.sum() >= 10:
            ratios.append(np.median(took_s[late]) / np.median(took_s[early]))
            weights.append(min(early.sum(), late.sum()))
    return float(np.average(ratios, weights=weights)) if ratios else float("nan")


def measure(trace: Trace, cluster: str, perf: str, what: str) -> dict[str, float | str]:
    """Run one case and return its figures."""
    unit = unit_s(repeats=3)
    timed = TimedDecisions(dp.DpElastic(every_s=EVERY_S))
    conditions = Conditions(perf=PERF[perf](), overheads=Overheads(restart_s=30))
    result = Simulator(trace, Cluster.parse(cluster), timed, conditions).run()
    busy = [took_s for _, _, took_s in timed.cost]
    return {
        "trace": what,
        "jobs": len(trace),
        "cluster": cluster,
        "perf": perf,
        "completed": int((result.jobs["outcome"] == "completed").sum()),
        "decisions": len(result.decisions),
        "with_changes": len(busy),
        "most_active": max(active for _, active, _ in timed.cost),
        "median_ms": round(statistics.median(busy) * 1e3, 3),
        "p99_ms": round(float(np.quantile(busy, 0.99)) * 1e3, 3),
        "longest_ms": round(result.timing.longest_s * 1e3, 1),
        "ms_per_decision": round(result.timing.allocate_s / len(result.decisions) * 1e3, 3),
        "U_per_decision": round(result.timing.allocate_s / len(result.decisions) / unit, 1),
        "last_third_over_first": round(growth(timed.cost, float(trace.span_s)), 2),
        "run_cpu_s": round(result.timing.cpu_s, 2),
    }


def main(arguments: list[str]) -> list[str]:
    """Print the table and return what is over its budget; ``--quick`` leaves out the crowded
    cluster.
    """
    sample = load_sample("philly-like")[0]
    cases = [(sample, "512x8:p100", perf, "philly-like") for perf in ("power_law", "batch")] + [
        (sample, "40x8:p100", "power_law", "philly-like")
    ]
    if "--quick" not in arguments:
        crowded = generate(
            "philly", jobs=10_000, seed=4, cluster=Cluster.parse("512x8:p100"), load=1.05
        )
        cases.append((crowded, "512x8:p100", "power_law", "philly at load 1.05"))
    over = []
    for trace, cluster, perf, what in cases:
        row = measure(trace, cluster, perf, what)
        print(json.dumps(row), flush=True)
        name = f"dp_elastic on {what}, {cluster}, {perf}"
        over += (
            [f"{name}: only {row['completed']} of {row['jobs']} jobs completed"]
            if row["completed"] != row["jobs"]
            else []
        )
        slow, late = float(row["U_per_decision"]), float(row["last_third_over_first"])
        over += (
            [f"{name}: {slow} U per decision"]
            if trace is sample and slow > BUDGET_U[cluster]
            else []
        )
        over += (
            [f"{name}: decisions late in the run take {late} times as long as early ones"]
            if late > MAX_GROWTH
            else []
        )
    return over
