"""Kueue's own performance scenario: CPU time, and mean time to admission against published ones.

15,000 workloads wait in 30 queues of 5 cohorts. The published figures are of real controllers on an
API server. So the scenario runs once with the rules alone, and once with two of their delays:
releases are gathered for 1 s, a constant of Kueue, and a workload holds its quota until the server
has recorded its end, drawn with an assumed mean of 0.3 s. The remaining difference is the
throughput of the server, 15,000 admissions in 351 s, which delays the workloads that start last.
"""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from time import process_time
from typing import Any, Final

import numpy as np
import pandas as pd
import yaml

from allocators.sites.kueue.files import write_config
from allocators.sites.kueue.objects import (
    ClusterQueue,
    FlavorQuota,
    FlavorQuotas,
    KueueConfig,
    Preemption,
    ResourceFlavor,
    ResourceGroup,
)
from allocators.sites.kueue.policy import Kueue
from benchmarks.unit import print_figures
from sim.cluster import Cluster
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.trace import Trace

PUBLISHED_S: Final = {"large": 16.5, "medium": 76.8, "small": 215.5}
PUBLISHED_END_S: Final = 351.1
MAX_S: Final = 10.0
RELEASE_S: Final = 0.3
GATHERED_S: Final = 1.0
CREATED_S: Final = 0.02
"""Mean time to create a workload on the server; it keeps the queues out of step."""
SCENARIO: Final = "data/schedulers/kueue_performance/baseline.generator.yaml"


def main(_arguments: list[str]) -> list[str]:
    """Print the figures and return exceeded budgets."""
    root = os.environ.get("TRAINYARD_SHARED", Path(__file__).resolve().parents[2] / "shared")
    path = Path(root, SCENARIO)
    if not path.exists():
        print(f"{path} does not exist. Set TRAINYARD_SHARED to the folder of {SCENARIO}.")
        return []
    config, jobs = scenario(yaml.safe_load(path.read_text(encoding="utf-8")))
    text = write_config(config)
    over = _run_scenario("the rules alone", text, jobs, 0.0)
    rng = np.random.default_rng(1)
    created_s = pd.Series(rng.exponential(CREATED_S, len(jobs)))
    delayed = jobs.assign(
        submit_time_s=jobs["submit_time_s"]
        + created_s.groupby([jobs["vc"], jobs["name"]]).cumsum(),
        duration_s=jobs["duration_s"] + rng.exponential(RELEASE_S, len(jobs)),
    ).sort_values("submit_time_s", kind="stable", ignore_index=True)
    return over + _run_scenario("with the delays of real controllers", text, delayed, GATHERED_S)


def scenario(generator: dict[str, Any]) -> tuple[KueueConfig, pd.DataFrame]:
    """Return the objects and workloads of a generator file; cores become jobs without GPUs."""
    queues: list[ClusterQueue] = []
    rows: list[dict[str, Any]] = []
    for cohorts in generator["cohorts"]:
        for number in range(cohorts["count"]):
            cohort = f"{cohorts['className']}-{number}"
            for kind in cohorts["queuesSets"]:
                for at in range(kind["count"]):
                    name = f"{kind['className']}-{at}-{cohort}"
                    queues.append(_read_queue(name, cohort, kind))
                    rows += _read_workloads(name, kind)
    jobs = pd.DataFrame(rows).sort_values("submit_time_s", kind="stable", ignore_index=True)
    jobs["job_id"] = [f"w{at}" for at in range(len(jobs))]
    return KueueConfig(tuple(queues), flavors=(ResourceFlavor("rf"),)), jobs


def _read_queue(name: str, cohort: str, kind: dict[str, Any]) -> ClusterQueue:
    """Return a cluster queue of a queue class."""
    quota = FlavorQuota(Fraction(kind["nominalQuota"]), Fraction(kind["borrowingLimit"]))
    group = ResourceGroup(("cpu",), (FlavorQuotas("rf", {"cpu": quota}),))
    rules = Preemption(kind["withinClusterQueue"], kind["reclaimWithinCohort"])
    return ClusterQueue(name, cohort, (group,), preemption=rules)


def _read_workloads(queue: str, kind: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the workloads of a queue as rows of a trace."""
    return [
        {
            "submit_time_s": (at + 1) * one["creationIntervalMs"] / 1000,
            "name": workload["className"],
            "duration_s": workload["runtimeMs"] / 1000,
            "priority": float(workload["priority"]),
            "num_gpus": 0,
            "cpus": float(workload["request"]),
            "vc": queue,
        }
        for one in kind["workloadsSets"]
        for at in range(one["count"])
        for workload in one["workloads"]
    ]


def _run_scenario(case: str, config: str, jobs: pd.DataFrame, requeue_s: float) -> list[str]:
    """Print the figures of one run and return its exceeded budget."""
    began = process_time()
    result = Simulator(
        Trace.of(jobs),
        Cluster.parse("1x0:cpu/600c"),
        Kueue(config=config, requeue_s=requeue_s),
        # A preempted workload of the scenario begins anew.
        Conditions(overheads=Overheads(on_preempt="lose_all")),
    ).run()
    cpu_s = process_time() - began
    ended_s = result.jobs["finish_s"].to_numpy()
    # The published figure is the last admission.
    wait_s = ended_s - jobs["duration_s"].to_numpy() - result.jobs["submit_s"].to_numpy()
    for name, published_s in PUBLISHED_S.items():
        mean_s = float(wait_s[(jobs["name"] == name).to_numpy()].mean())
        figures = {
            "class": name,
            "mean_s": round(mean_s, 1),
            "published_s": published_s,
            "difference_%": round(100 * (mean_s / published_s - 1)),
        }
        print_figures(case=case, **figures)
    # The last class drains at an even rate: its mean wait grows by half of the difference.
    print_figures(
        case=case,
        end_s=round(float(ended_s.max()), 1),
        published_end_s=PUBLISHED_END_S,
        half_of_the_difference_s=round((PUBLISHED_END_S - float(ended_s.max())) / 2, 1),
        cpu_s=round(cpu_s, 2),
    )
    return [f"kueue, {case}: {cpu_s:.1f} s"] if cpu_s > MAX_S else []
