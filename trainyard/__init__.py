"""Trainyard from Python: what other schedulers would have done with these jobs on these GPUs.

>>> import trainyard as ty
>>> trace = ty.read_trace("sample:tiny")
>>> study = ty.compare(trace, "1x8:v100", ["fifo", "easy", "srtf"])
>>> study.headline
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sim.cluster import Cluster
    from sim.errors import TrainyardError
    from sim.params import Spec
    from sim.trace import Trace
    from trainyard.api import (
        Comparison,
        backtest,
        compare,
        fit_cluster,
        look_alike,
        policies,
        read_cluster,
        read_trace,
    )
    from trainyard.traces.sources import Source

__all__ = [
    "Cluster",
    "Comparison",
    "Source",
    "Spec",
    "Trace",
    "TrainyardError",
    "backtest",
    "compare",
    "fit_cluster",
    "look_alike",
    "policies",
    "read_cluster",
    "read_trace",
]

_ELSEWHERE: Final = {
    "Cluster": "sim.cluster",
    "Source": "trainyard.traces.sources",
    "Spec": "sim.params",
    "Trace": "sim.trace",
    "TrainyardError": "sim.errors",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: a program that needs a cluster only does not wait for solvers.
    if name not in __all__:
        raise AttributeError(f"module 'trainyard' has no attribute '{name}'")
    value = getattr(import_module(_ELSEWHERE.get(name, "trainyard.api")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
