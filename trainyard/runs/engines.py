"""Chooses the engine of a run: the fast one if possible, else the general simulator."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
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
_COMPILING: Final = (
    "The fast engine is being compiled in the background, once. Later runs use it, with the same"
    " results."
)
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
    pays = compiled.is_loaded() or len(trace) >= LARGE
    if engine == "fast" or (engine == AUTO and pays):
        try:
            lane = runner.prepare_run(trace, cluster, allocator, conditions)
            if engine == "fast":
                warm([runner.loop_name(lane.rule)])
            return runner.run(lane, progress)
        except runner.NotPlainError as error:
            if engine == "fast":
                raise ParameterError(
                    f"The fast engine cannot make this run: {error}. Set the engine to auto or"
                    " kernel."
                ) from error
            if isinstance(error, runner.NotCompiledError):
                _warn_once(_COMPILING if _start_compiler() else _remark())
    result = Simulator(trace, cluster, allocator, conditions, progress=progress).run()
    rule = rule_of(allocator) if engine == AUTO else None
    is_missing = rule is not None and not compiled.is_warm(runner.loop_name(rule))
    if is_missing and _start_compiler():
        _warn_once(_COMPILING)
    return result


def _resolve_engine(engine: str = "") -> str:
    return engine or os.environ.get(SETTING) or AUTO


def expected_engine(engine: str = "", *, loop: str) -> str:
    """Return the engine that will make a run, as `sim.result.Timing` names it.

    Parameters
    ----------
    engine : str
        As for `simulate`.
    loop : str
        The loop of the fast engine that accepts the run; "" = none, see
        `sim.engine.fast.runner.prepare_run`.
    """
    is_fast = loop and _resolve_engine(engine) != "kernel" and compiled.is_warm(loop)
    return "fast" if is_fast else "kernel"


def warm(loops: Sequence[str] = runner.LOOPS) -> str:
    """Compile loops of the fast engine if not compiled on this machine, and load them.

    Returns
    -------
    str
        Why the general engine makes all runs here; "" = they are compiled.
    """
    for name in loops:
        if not compiled.warm(name, partial(_run_rules, name)):
            return _remark()
    return ""


def compiled_loops() -> list[str]:
    """Return the loops that are compiled here; none with `SETTING` = "kernel"."""
    if _resolve_engine() == "kernel":
        return []
    return [name for name in runner.LOOPS if compiled.is_warm(name)]


def load() -> str:
    """Load the compiled loops; if any is missing, start a process that compiles it.

    Until then the general engine makes their runs. With `SETTING` = "kernel" nothing is loaded.

    Returns
    -------
    str
        As for `warm`; "" also if some loops are compiled.
    """
    if _resolve_engine() == "kernel":
        return ""
    ready = compiled_loops()
    if len(ready) < len(runner.LOOPS):
        _start_compiler()
    return warm(ready) if ready else _remark()


def _start_compiler() -> bool:
    """Start a process that compiles all loops; False = one runs already, or none can."""
    if not compiled.claim():
        return False
    # The process is not watched: later runs load the code that it leaves on disk. A session of its
    # own lets it outlive the command that started it.
    try:
        compiler = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # no more processes are allowed; the next claim, in half an hour, tries again
        return False
    _COMPILERS.append(compiler)
    return True


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


def _run_rules(loop: str) -> None:
    """Run a tiny sample under every policy of a loop, to compile all of its code."""
    trace, cluster = load_sample(_SMALLEST)
    for name in allocators.REGISTRY:
        allocator = allocators.make(Spec(name))
        rule = rule_of(allocator)
        if rule is not None and not rule.by and runner.loop_name(rule) == loop:
            runner.run(runner.prepare_run(trace, cluster, allocator, Conditions()))


if __name__ == "__main__":
    raise SystemExit(warm() or 0)
