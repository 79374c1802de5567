"""Performance models and estimators: true and estimated speed, work and resources of jobs."""

from __future__ import annotations

from typing import Final

from sim.perf.batch import Batch
from sim.perf.communication import Spread
from sim.perf.estimators import Biased, EstimatorSpec, Exact, Noisy, Unknown
from sim.perf.model import Limits, PerfModel, PerfSpec, Rate
from sim.perf.parameter_server import ParameterServer
from sim.perf.predictors import PerUser
from sim.perf.profiled import Profiled
from sim.perf.regression import Boosting, Forest
from sim.perf.rigid import Rigid
from sim.perf.scaling import Amdahl, PowerLaw
from sim.perf.speed_table import Table

PERF: Final[dict[str, type[PerfSpec]]] = {
    "rigid": Rigid,
    "power_law": PowerLaw,
    "amdahl": Amdahl,
    "table": Table,
    "batch": Batch,
    "profiled": Profiled,
    "spread": Spread,
    "parameter_server": ParameterServer,
}
"""Name -> performance model, a dataclass of parameters."""

ESTIMATORS: Final[dict[str, type[EstimatorSpec]]] = {
    "exact": Exact,
    "noisy": Noisy,
    "biased": Biased,
    "unknown": Unknown,
    "per_user": PerUser,
    "forest": Forest,
    "boosting": Boosting,
}
"""Name -> estimator, a dataclass of parameters."""

__all__ = ["ESTIMATORS", "PERF", "Limits", "PerfModel", "PerfSpec", "Rate"]
