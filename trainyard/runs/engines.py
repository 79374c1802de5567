"""Chooses the engine of a run: the fast one if possible, else the general simulator."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
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
"""Engines to choose: the fast one if it supports the run, the general simulator, or the fast one.

Results are equal on both.
"""
SETTING: Final = "TRAINYARD_ENGINE"
"""Environment variable with the default engine, in the app and its workers too."""
_SMALLEST: Final = "tiny"
_LOG: Final = logging.getLogger(__name__)


class _EngineState:
    """State of this process: whether it has warned about the uncompiled fast engine.

    `compiles` is the process started to compile it.
    """

    has_warned = False
    compiles: subprocess.Popen[bytes] | None = None


def simulate(
    trace: Trace,
    cluster: Cluster,
    allocator: Allocator,
    conditions: Conditions,
    engine: str = "",
    progress: Callable[[Progress], None] | None = None,
) -> RunResult:
    """Simulate a trace under an allocator on the chosen engine.

    Parameters
    ----------
    trace, cluster, allocator, conditions
        See `sim.engine.simulator.Simulator`.
    engine : str
        One of `ENGINES`; "" = what TRAINYARD_ENGINE names, else `AUTO`.
    progress : callable or None
        Called at intervals during the run.

    Raises
    ------
    ParameterError
        If there is no such engine, or it does not support this run.
    TrainyardError
        As `Simulator`.
    """
    engine = engine or os.environ.get(SETTING) or AUTO
    if engine not in ENGINES:
        raise ParameterError(f"There is no engine '{engine}'. Choose one of {', '.join(ENGINES)}.")
    if engine != "kernel":
        try:
            result = lane.run(lane.prepared(trace, cluster, allocator, conditions), progress)
        except lane.NotPlainError as error:
            if engine == "fast":
                raise ParameterError(
                    f"The fast engine cannot make this run: {error}. Set the engine to auto or"
                    " kernel."
                ) from error
        else:
            if result.timing.engine == "plain" and len(trace) >= lane.LARGE:
                _warn_once(compiled.why_plain())
            return result
    return Simulator(trace, cluster, allocator, conditions, progress=progress).run()


def expected_engine(engine: str = "", *, plain: bool, jobs: int) -> str:
    """Return the engine that will make a run, as `sim.result.Timing` names it.

    Parameters
    ----------
    engine : str
        As for `simulate`.
    plain : bool
        Whether the fast engine accepts the run, see `sim.engine.fast.lane.prepared`.
    jobs : int
        Jobs of the trace.
    """
    if not plain or (engine or os.environ.get(SETTING)) == "kernel":
        return "kernel"
    return "fast" if jobs < lane.LARGE or compiled.is_warm() else "plain"


def warm() -> str:
    """Compile the fast engine if not compiled on this machine, and load it.

    Returns
    -------
    str
        Why it runs uncompiled here; "" = it is compiled.
    """
    why_not = compiled.warm(_run_all_rules)
    _EngineState.has_warned |= bool(why_not)
    return why_not


def load() -> str:
    """Load the compiled fast engine; if missing, start a process that compiles it.

    Until then the engine runs uncompiled, without waiting.

    Returns
    -------
    str
        As for `warm`.
    """
    if compiled.is_warm():
        return warm()
    if compiled.claim():
        # The process is not watched: later runs load the code that it leaves on disk.
        _EngineState.compiles = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return compiled.why_plain()


def _warn_once(why_not: str) -> None:
    """Log once per process why a long run is not compiled."""
    if why_not and not _EngineState.has_warned:
        _LOG.warning("%s", why_not)
    _EngineState.has_warned = True


def _run_all_rules() -> None:
    """Run a tiny sample under every policy of the fast engine, to compile all code."""
    trace, cluster = load_sample(_SMALLEST)
    for name in allocators.REGISTRY:
        allocator = allocators.make(Spec(name))
        if rule_of(allocator) is not None:
            lane.run(lane.prepared(trace, cluster, allocator, Conditions()))


if __name__ == "__main__":
    why_not = warm()
    if why_not:
        raise SystemExit(why_not)
