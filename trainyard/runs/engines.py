"""Chooses the engine of a run: the fast one if possible, else the general simulator."""

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
from sim.engine.fast import compiled, runner
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
LARGE: Final = 10_000
"""Minimum number of jobs that makes loading the compiled loops worthwhile."""
_SMALLEST: Final = "tiny"
_LOG: Final = logging.getLogger(__name__)
_COMPILERS: Final[list[subprocess.Popen[bytes]]] = []
"""Processes started by this one to compile the loops."""


def simulate(
    trace: Trace,
    cluster: Cluster,
    allocator: Allocator,
    conditions: Conditions,
    engine: str = "",
    progress: Callable[[Progress], None] | None = None,
) -> RunResult:
    """Simulate a trace under an allocator on the chosen engine.

    `AUTO` takes the fast engine if it supports the run and is loaded or the trace is large.

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
    engine = _resolve_engine(engine)
    if engine not in ENGINES:
        raise ParameterError(f"There is no engine '{engine}'. Choose one of {', '.join(ENGINES)}.")
    if engine == "fast" and not compiled.is_loaded():
        warm()
    pays = compiled.is_loaded() or len(trace) >= LARGE
    if engine == "fast" or (engine == AUTO and pays):
        try:
            return runner.run(runner.prepare_run(trace, cluster, allocator, conditions), progress)
        except runner.NotPlainError as error:
            if engine == "fast":
                raise ParameterError(
                    f"The fast engine cannot make this run: {error}. Set the engine to auto or"
                    " kernel."
                ) from error
            if isinstance(error, runner.NotCompiledError):
                _warn_once(_remark())
    return Simulator(trace, cluster, allocator, conditions, progress=progress).run()


def _resolve_engine(engine: str = "") -> str:
    return engine or os.environ.get(SETTING) or AUTO


def expected_engine(engine: str = "", *, plain: bool) -> str:
    """Return the engine that will make a run, as `sim.result.Timing` names it.

    Parameters
    ----------
    engine : str
        As for `simulate`.
    plain : bool
        Whether the fast engine accepts the run, see `sim.engine.fast.runner.prepare_run`.
    """
    return (
        "fast" if plain and _resolve_engine(engine) != "kernel" and compiled.is_warm() else "kernel"
    )


def warm() -> str:
    """Compile the fast engine if not compiled on this machine, and load it.

    Returns
    -------
    str
        Why the general engine makes all runs here; "" = it is compiled.
    """
    return "" if compiled.warm(_run_all_rules) else _remark()


def load() -> str:
    """Load the compiled fast engine; if missing, start a process that compiles it.

    Until then the general engine makes all runs. With `SETTING` = "kernel" nothing is loaded.

    Returns
    -------
    str
        As for `warm`.
    """
    if _resolve_engine() == "kernel":
        return ""
    if compiled.is_warm():
        return warm()
    if compiled.claim():
        # The process is not watched: later runs load the code that it leaves on disk.
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
    """Log a remark once per process."""
    _LOG.warning("%s", remark)


def _remark() -> str:
    """Return why the general engine makes all runs."""
    return (
        f"The fast engine is off, because {compiled.why_not()}. The general engine makes the runs:"
        " slower, with the same results."
    )


def _run_all_rules() -> None:
    """Run a tiny sample under every policy of the fast engine, to compile all code."""
    trace, cluster = load_sample(_SMALLEST)
    for name in allocators.REGISTRY:
        allocator = allocators.make(Spec(name))
        rule = rule_of(allocator)
        if rule is not None and not rule.by:
            runner.run(runner.prepare_run(trace, cluster, allocator, Conditions()))


if __name__ == "__main__":
    raise SystemExit(warm() or 0)
