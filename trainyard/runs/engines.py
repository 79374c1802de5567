"""Which engine makes a run: the fast one where it can, else the general simulator; the results are
the same.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import allocators
from sim.cluster import Cluster
from sim.contract import Allocator, rule_of
from sim.engine.fast import compiled, lane
from sim.engine.simulator import Conditions, Progress, Simulator
from sim.errors import ParameterError
from sim.params import Spec
from sim.result import RunResult
from sim.trace import Trace
from trainyard.traces.samples import load_sample

AUTO: Final = "auto"
ENGINES: Final = (AUTO, "kernel", "fast")
"""What `simulate` may be asked for: the fast engine where it can make the run, always the general
simulator, or always the fast engine.
"""
SETTING: Final = "TRAINYARD_ENGINE"
"""Environment variable: the engine of runs that ask for none, in the app and its workers too."""
LARGE: Final = 10_000
"""Jobs from which on it pays to load the compiled loops."""
_SMALLEST: Final = "tiny"
_LOG: Final = logging.getLogger(__name__)
_COMPILERS: Final[list[subprocess.Popen[bytes]]] = []
"""Processes that this one has started to compile the loops."""


def simulate(
    trace: Trace,
    cluster: Cluster,
    allocator: Allocator,
    conditions: Conditions,
    engine: str = "",
    progress: Callable[[Progress], None] | None = None,
) -> RunResult:
    """Make a run.

    Parameters
    ----------
    trace, cluster, allocator, conditions
        See `sim.engine.simulator.Simulator`.
    engine : str
        One of `ENGINES`; "" = what TRAINYARD_ENGINE names, else `AUTO`.
    progress : callable or None
        Called now and then from inside the run.

    Raises
    ------
    ParameterError
        If there is no such engine, or it cannot make this run.
    TrainyardError
        As `Simulator`.
    """
    engine = _chosen(engine)
    if engine not in ENGINES:
        raise ParameterError(f"There is no engine '{engine}'. Choose one of {', '.join(ENGINES)}.")
    if engine == "fast" and not compiled.is_loaded():
        warm()
    pays = compiled.is_loaded() or len(trace) >= LARGE
    if engine == "fast" or (engine == AUTO and pays):
        try:
            return lane.run(lane.prepared(trace, cluster, allocator, conditions), progress)
        except lane.NotPlainError as error:
            if engine == "fast":
                raise ParameterError(
                    f"The fast engine cannot make this run: {error}. Let the engine be auto or"
                    " kernel."
                ) from error
            if isinstance(error, lane.NotCompiledError):
                _warn_once(_remark())
    return Simulator(trace, cluster, allocator, conditions, progress=progress).run()


def _chosen(engine: str = "") -> str:
    return engine or os.environ.get(SETTING) or AUTO


def expected_engine(engine: str = "", *, plain: bool) -> str:
    """Return the engine that will make a run, as `sim.result.Timing` names it.

    Parameters
    ----------
    engine : str
        As for `simulate`.
    plain : bool
        Whether the fast engine accepts the run, see `sim.engine.fast.lane.prepared`.
    """
    return "fast" if plain and _chosen(engine) != "kernel" and compiled.is_warm() else "kernel"


def warm() -> str:
    """Compile the fast engine, if that has not been done on this machine, and load it.

    Returns
    -------
    str
        Why the general engine makes all runs here; "" = it is compiled.
    """
    return "" if compiled.warm(_exercise) else _remark()


def load() -> str:
    """Load the fast engine if it has been compiled on this machine, else have another process
    compile it; until then the general engine makes all runs. Do neither if `SETTING` is "kernel".

    Returns
    -------
    str
        As for `warm`.
    """
    if _chosen() == "kernel":
        return ""
    if compiled.is_warm():
        return warm()
    if compiled.claim():
        # Nothing is asked of that process: what it leaves on disk is found by later runs.
        _COMPILERS.append(
            subprocess.Popen(
                [sys.executable, "-m", __name__],
                cwd=Path(__file__).parents[2],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
    return _remark()


@cache
def _warn_once(remark: str) -> None:
    _LOG.warning("%s", remark)


def _remark() -> str:
    return (
        f"The fast engine is off, because {compiled.why_not()}. The general engine makes the runs:"
        " slower, with the same results."
    )


def _exercise() -> None:
    trace, cluster = load_sample(_SMALLEST)
    for name in allocators.REGISTRY:
        allocator = allocators.make(Spec(name))
        if rule_of(allocator) is not None:
            lane.run(lane.prepared(trace, cluster, allocator, Conditions()))


if __name__ == "__main__":
    raise SystemExit(warm() or 0)
