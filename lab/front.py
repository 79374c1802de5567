"""What a front end handles, under one name: the types that pages read and write, and the error whose message is shown to the user."""

from __future__ import annotations

from lab.pool import Job, Pool, PoolFullError
from lab.scenario import Scenario, TraceSpec
from lab.store import Entry, Store
from lab.study import Study
from lab.traces.samples import SAMPLES
from lab.traces.sources import Source, load_source, load_trace
from sim.cluster import Cluster
from sim.errors import ParameterError, TraceError, TrainyardError
from sim.params import ParamInfo, Spec
from sim.simulator import Progress
from sim.trace import Trace

__all__ = [
    "SAMPLES",
    "Cluster",
    "Entry",
    "Job",
    "ParamInfo",
    "ParameterError",
    "Pool",
    "PoolFullError",
    "Progress",
    "Scenario",
    "Source",
    "Spec",
    "Store",
    "Study",
    "Trace",
    "TraceError",
    "TraceSpec",
    "TrainyardError",
    "load_source",
    "load_trace",
]
