"""Run a function in a separate process with limits on memory and processor time."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from sim.errors import TrainyardError

if sys.platform != "win32":
    import resource
    from signal import SIGXCPU as _CPU_SIGNAL
else:
    _CPU_SIGNAL = 0

T = TypeVar("T")
MEMORY_BYTES: Final = 3_000_000_000
CPU_S: Final = 60
WALL_S: Final = 900.0
"""Limit for functions that wait instead of computing; high enough for a busy machine."""
_CHILD: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from jobtraces.sandbox import serve; serve()"
)
# Idle linear-algebra threads reserve address space, which is limited here.
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class SandboxError(TrainyardError):
    """The function exceeded a limit, or its process ended early."""


def run_limited(work: Callable[..., T], *args: Any) -> T:
    """Call a module-level function in a new, limited process and return its result.

    Limits: `MEMORY_BYTES` of address space, `CPU_S` of processor time and no file writes (not on
    Windows), and `WALL_S` of wall time.

    Parameters
    ----------
    work : callable
        Function that can be imported by module and name.
    args
        Arguments; must be picklable.

    Raises
    ------
    SandboxError
        If the function exceeds a limit.
    TrainyardError
        Errors that the function raises.
    """
    payload = pickle.dumps((work.__module__, work.__qualname__, args, MEMORY_BYTES, CPU_S))
    root = str(Path(__file__).resolve().parents[1])
    try:
        process = subprocess.run(
            [sys.executable, "-c", _CHILD, root],
            input=payload,
            capture_output=True,
            check=False,
            timeout=WALL_S,
            env={**os.environ, **_ONE_THREAD},
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"it takes more than {WALL_S:g} s") from error
    if process.returncode == -_CPU_SIGNAL:
        raise SandboxError(f"it takes more than {CPU_S:g} s of processor time")
    try:
        value, failure = pickle.loads(process.stdout)
    except (pickle.UnpicklingError, EOFError) as fault:
        raise SandboxError(
            f"its process ended (exit code {process.returncode}), most likely because it took more"
            f" than {MEMORY_BYTES / 1e9:g} GB"
        ) from fault
    if isinstance(failure, MemoryError):
        raise SandboxError(f"it takes more than {MEMORY_BYTES / 1e9:g} GB") from failure
    if failure is not None:
        raise failure
    result: T = value
    return result


def serve() -> None:
    """Run the pickled call on standard input and write its result to standard output.

    Lowers the limits of this process before the call. Prints of the function go to standard error.
    """
    # Prints of the function must not mix with the result.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module, name, args, memory_bytes, cpu_s = pickle.load(sys.stdin.buffer)
    work = getattr(import_module(module), name)
    _lower_limits(memory_bytes, cpu_s)
    _write_result(output, work, args)


def _write_result(output: BinaryIO, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Call a function, write its pickled (result, error) pair, and close the output.

    Only a `TrainyardError` or `MemoryError` is written; other errors end the process.
    """
    try:
        payload = pickle.dumps((work(*args), None))
    except (TrainyardError, MemoryError) as error:
        payload = pickle.dumps((None, error))
    output.write(payload)
    output.close()


def _lower_limits(memory_bytes: int, cpu_s: int) -> None:
    """Limit memory, processor time and file writes of this process; never raise a limit.

    Does nothing on Windows.
    """
    if sys.platform == "win32":  # Windows has no such limits
        return
    limits = {
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_AS: memory_bytes,
        # The system counts from the start of the process, in whole seconds.
        resource.RLIMIT_CPU: math.ceil(time.process_time()) + cpu_s,
    }
    for kind, limit in limits.items():
        _, hard_limit = resource.getrlimit(kind)
        if hard_limit == resource.RLIM_INFINITY or hard_limit > limit:
            # The hard limit kills the process, the soft one sends SIGXCPU.
            grace = 5 if kind == resource.RLIMIT_CPU and hard_limit == resource.RLIM_INFINITY else 0
            resource.setrlimit(kind, (limit, limit + grace))
