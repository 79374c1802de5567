"""Ten scenarios whose summaries are kept for every registered allocator, and how they are computed
and compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from allocators import REGISTRY, make
from jobtraces.generate import workload
from sim.cluster import Cluster
from sim.conditions import Conditions, Measure
from sim.contract import Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Simulator
from sim.metrics import summary
from sim.overheads import Overheads
from sim.perf.copy_cost import FREE
from sim.perf.estimators import Noisy, Unknown
from sim.perf.parameter_server import ParameterServer
from sim.perf.rigid import Rigid
from sim.perf.scaling import PowerLaw
from sim.result import RESULTS_VERSION
from sim.trace import Trace
from tests.properties.runs import busy_trace, mixed_cluster, rough

RIGID: Final = Rigid(**FREE)
"""Copies cost nothing in any of the scenarios."""
HERE: Final = Path(__file__).parent
MEASURED_ON_THIS_MACHINE: Final = (
    "cpu_s",
    "wall_s",
    "allocate_s",
    "decision_ms_mean",
    "decision_ms_max",
    "peak_rss_mb",
)

STAFFED: Final = workload("dlrover:jobs=60,scenarios=12,nodes=60,seed=20")
Scenario = Callable[[], tuple[Trace, Cluster, Conditions]]
SCENARIOS: Final[dict[str, Scenario]] = {
    "plain": lambda: (busy_trace(250, 11), Cluster.parse("4x8:v100"), Conditions(RIGID)),
    "crowded": lambda: (
        busy_trace(250, 12),
        Cluster.parse("2x8:v100"),
        Conditions(RIGID, estimator=Unknown(300.0)),
    ),
    "mixed": lambda: (
        busy_trace(250, 13),
        mixed_cluster(),
        Conditions(perf=Rigid("new", 1.1, 1.3, **FREE)),
    ),
    "costly": lambda: (
        busy_trace(250, 14),
        Cluster.parse("3x8:v100"),
        Conditions(
            RIGID,
            overheads=Overheads(start_s=10, restart_s=60, checkpoint_s=5, checkpoint_every_s=100),
        ),
    ),
    "lose_all": lambda: (
        busy_trace(150, 15),
        Cluster.parse("3x8:v100"),
        Conditions(RIGID, overheads=Overheads(on_preempt="lose_all")),
    ),
    "failing": lambda: (busy_trace(250, 16), mixed_cluster(), replace(rough(9), perf=RIGID)),
    "slow_decisions": lambda: (
        busy_trace(250, 17),
        Cluster.parse("2x8:v100,2x4:t4/8c"),
        Conditions(
            RIGID,
            estimator=Noisy(1.0),
            overheads=Overheads(latency_s=20, latency_per_job_s=0.1),
            faults=Faults(outages="0:600:1500;3:900:1000"),
        ),
    ),
    "elastic": lambda: (
        busy_trace(150, 19),
        Cluster.parse("4x8:v100"),
        Conditions(PowerLaw(**FREE), overheads=Overheads(restart_s=30)),
    ),
    "staffed": lambda: (
        STAFFED.make(),
        STAFFED.machines(),
        Conditions(
            ParameterServer(**FREE),
            overheads=Overheads(restart_s=600, overlap_s=120, overlap_pause_s=60, relaunch_s=60),
            faults=Faults(retries=3, interruptions_per_node_h=0.01),
        ),
    ),
    "window": lambda: (
        busy_trace(250, 18),
        Cluster.parse("3x8:v100"),
        Conditions(RIGID, measure=Measure(500.0, 2000.0), stop="measured", horizon_s=20_000.0),
    ),
}


def path_of(scenario: str) -> Path:
    """Return where the summaries of a scenario are kept."""
    return HERE / f"{scenario}.json"


def compute(scenario: str, names: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return the summary of a scenario for each allocator, numbers to six significant digits."""
    trace, cluster, conditions = SCENARIOS[scenario]()
    found = {}
    for name in names or list(REGISTRY):
        result = Simulator(trace, cluster, make(Spec(name)), conditions).run()
        figures = summary(result, trace, cluster, conditions.measure)
        found[name] = {
            key: _rounded(value)
            for key, value in figures.items()
            if key not in MEASURED_ON_THIS_MACHINE
        }
    return found


def stored(scenario: str) -> dict[str, Any]:
    """Return what is kept of a scenario: ``results_version`` and ``runs``."""
    path = path_of(scenario)
    kept: dict[str, Any] = (
        json.loads(path.read_text("utf-8"))
        if path.exists()
        else {"results_version": RESULTS_VERSION, "runs": {}}
    )
    return kept


def differences(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> list[str]:
    """Return one line per stored number that is no longer what it was.

    New runs and new numbers are no difference: the next refresh stores them.
    """
    return [
        f"{name}: {key} was {old[name][key]}, is {new.get(name, {}).get(key, 'missing')}"
        for name in old
        for key in sorted(old[name])
        if old[name][key] != new.get(name, {}).get(key, "missing")
    ]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.6g}")
    return value
