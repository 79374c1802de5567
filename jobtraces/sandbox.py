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
"""A second limit, for work that waits instead of computing: a busy machine must not reach it."""
_CHILD: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from jobtraces.sandbox import serve; serve()"
)
# Idle threads of linear algebra reserve addresses, of which there are few here.
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class ApartError(TrainyardError):
    """The work takes more time or memory than it may, or its process ended."""


def apart(work: Callable[..., T], *args: Any) -> T:
    """Call a function of a module in a new process.

    It may take `MEMORY_BYTES` of addresses and `CPU_S` of processor time, where the system has such
    limits (not on Windows), and `WALL_S` in all; it can write no file.

    Parameters
    ----------
    work : callable
        Found by its module and name.
    args
        What it is called with; what can be pickled.

    Raises
    ------
    ApartError
        If it takes more than it may.
    TrainyardError
        Those of the function.
    """
    given = pickle.dumps((work.__module__, work.__qualname__, args, MEMORY_BYTES, CPU_S))
    root = str(Path(__file__).resolve().parents[1])
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, root],
            input=given,
            capture_output=True,
            check=False,
            timeout=WALL_S,
            env={**os.environ, **_ONE_THREAD},
        )
    except subprocess.TimeoutExpired as error:
        raise ApartError(f"it takes more than {WALL_S:g} s") from error
    if done.returncode == -_CPU_SIGNAL:
        raise ApartError(f"it takes more than {CPU_S:g} s of processor time")
    try:
        found, wrong = pickle.loads(done.stdout)
    except (pickle.UnpicklingError, EOFError) as fault:
        raise ApartError(
            f"its process ended (exit code {done.returncode}), most often because it took more than"
            f" {MEMORY_BYTES / 1e9:g} GB"
        ) from fault
    if isinstance(wrong, MemoryError):
        raise ApartError(f"it takes more than {MEMORY_BYTES / 1e9:g} GB") from wrong
    if wrong is not None:
        raise wrong
    made: T = found
    return made


def serve() -> None:
    """Do the work that standard input holds, and write what came of it to standard output."""
    # What others print must not get in between.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module, name, args, memory_bytes, cpu_s = pickle.load(sys.stdin.buffer)
    work = getattr(import_module(module), name)
    _limit(memory_bytes, cpu_s)
    _answer(answer, work, args)


def _answer(answer: BinaryIO, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        told = pickle.dumps((work(*args), None))
    except (TrainyardError, MemoryError) as error:
        told = pickle.dumps((None, error))
    answer.write(told)
    answer.close()


def _limit(memory_bytes: int, cpu_s: int) -> None:
    """Limit what this process may take from here on, never above a limit that it has already."""
    if sys.platform == "win32":  # it has no such limits
        return
    limits = {
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_AS: memory_bytes,
        # The system counts from the start of the process, in whole seconds.
        resource.RLIMIT_CPU: math.ceil(time.process_time()) + cpu_s,
    }
    for kind, limit in limits.items():
        _, most = resource.getrlimit(kind)
        if most == resource.RLIM_INFINITY or most > limit:
            # At the hard limit of processor time the system kills; at the soft one it says why.
            grace = 5 if kind == resource.RLIMIT_CPU and most == resource.RLIM_INFINITY else 0
            resource.setrlimit(kind, (limit, limit + grace))
