"""Compiles the loops with numba, once per machine, and caches the machine code on disk.

Without numba or a writable folder there are no loops and no fast engine.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import numpy as np

from sim.engine.fast import attained, free_gpus, loops, order, preemption, remaining, reservation

_SOURCES: Final[tuple[ModuleType, ...]] = (
    free_gpus,
    loops,
    reservation,
    order,
    remaining,
    attained,
    preemption,
)
_NO_REFERENCE_COUNTS: Final[dict[str, Any]] = {"_nrt": False}
"""Numba options: no reference counting of arrays, which took more than half of the time. Functions
that allocate memory do not compile this way.
"""
_LOOPS: Final = frozenset({"run_queue", "run_reservation", "run_preemption"})
_INNER: Final[dict[str, Any]] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Numba options for all functions but the loops: they cannot be called from Python, whose boxing of
the arguments took half of the compile time.
"""
_OPTIMIZATION: Final = 1
"""Level of the compiler; higher ones take three times as long, and the loops run no faster."""
_FOLDER: Final = "trainyard-fast-"
_READY: Final = "ready"
_BEGUN: Final = "begun"
_PATIENCE_S: Final = 1800.0

Loop = Callable[..., Any]


class _State:
    """State of this process: whether it has loaded the loops, and why it cannot."""

    loads = False
    fault = ""


def loop(name: str) -> Loop | None:
    """Return a compiled loop, or None if `warm` has not run here with these versions.

    The first call of a process takes a third of a second.
    """
    functions = _functions() if _State.loads or is_warm() else None
    _State.loads = functions is not None
    return None if functions is None else functions[name]


def is_loaded() -> bool:
    """Return True if this process has loaded the compiled loops."""
    return _State.loads


def is_warm() -> bool:
    """Return True if the loops were compiled on this machine with these versions."""
    folder = _folder()
    return folder is not None and (folder / _READY).exists()


def claim() -> bool:
    """Write the marker that this process compiles; False = another one began recently.

    Also False without a writable folder. Replaces the marker of a process that was killed.
    """
    folder = _folder()
    if folder is None:
        return False
    begun = folder / _BEGUN
    try:
        if begun.exists() and not _is_begun(folder):
            begun.unlink()  # that process was killed
        begun.touch(exist_ok=False)
    except OSError:
        return False
    return True


def _is_begun(folder: Path) -> bool:
    """Return True if the marker of a compiling process is at most half an hour old."""
    try:
        return time.time() - (folder / _BEGUN).stat().st_mtime <= _PATIENCE_S
    except OSError:
        return False


def warm(exercise: Callable[[], None]) -> bool:
    """Compile the loops if necessary, load them, and delete the caches of other versions.

    Parameters
    ----------
    exercise : callable
        Calls all loops.

    Returns
    -------
    bool
        Whether the loops are compiled; if not, see `why_not`.
    """
    folder = _folder()
    if folder is None:
        return False
    _State.loads = True
    try:
        exercise()
        (folder / _READY).touch()
    # any compiler error: the general engine makes the runs
    except Exception as error:
        _fail(f"numba could not compile it ({type(error).__name__}: {error})")
    for old in folder.parent.glob(f"{_FOLDER}*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    return not _State.fault


def why_not() -> str:
    """Return why this process has no compiled loops, as a clause."""
    folder = _folder()
    if folder is None:
        return _State.fault
    if _is_begun(folder):
        return "another process is compiling it"
    return (
        "it has not been compiled here yet. `python -m trainyard.runs.engines` does so once, in"
        " about a minute"
    )


def forget() -> None:
    """Clear the cached compiler state, for tests."""
    _State.loads, _State.fault = False, ""
    _folder.cache_clear()
    _functions.cache_clear()


def _fail(why: str) -> None:
    """Record why there are no compiled loops, and clear the cached folder."""
    _State.loads, _State.fault = False, why
    _folder.cache_clear()


@lru_cache(maxsize=1)
def _folder() -> Path | None:
    """Return the cache folder for these sources, versions and processor, or None.

    None = no compiler, or no writable folder.
    """
    if _State.fault:
        return None
    if importlib.util.find_spec("numba") is None:
        _fail("numba is not installed")
        return None
    key = hashlib.blake2b(digest_size=8)
    try:
        parts = [version("numba"), version("llvmlite"), np.__version__, sys.version]
    except PackageNotFoundError:
        _fail("numba is not installed completely")
        return None
    for part in (*parts, platform.machine(), platform.processor()):
        key.update(part.encode())
    for path in (__file__, *(source.__file__ for source in _SOURCES)):
        key.update(Path(str(path)).read_bytes())
    for base in _bases():
        folder = base / f"{_FOLDER}{key.hexdigest()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    _fail("no folder for its machine code can be written; set NUMBA_CACHE_DIR to one")
    return None


def _bases() -> Iterator[Path]:
    """Yield the possible cache folders: NUMBA_CACHE_DIR, the package's, then the user's."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen)
    yield Path(__file__).parent / "__pycache__"
    yield Path.home() / ".cache" / "trainyard"


@lru_cache(maxsize=1)
def _functions() -> dict[str, Loop] | None:
    """Return name -> function compiled by numba; None = numba cannot be loaded.

    The functions are copies that call each other's copies, compiled at their first call.
    """
    try:
        import numba  # noqa: PLC0415 - it takes a third of a second
    except ImportError as error:
        _fail(f"numba cannot be loaded ({error})")
        return None
    numba.config.CACHE_DIR = str(_folder())  # type: ignore[attr-defined]
    numba.config.OPT = type(numba.config.OPT)(_OPTIMIZATION)  # type: ignore[attr-defined]
    scope: dict[str, Any] = {}
    for source in _SOURCES:
        scope |= vars(source)
    for source in _SOURCES:
        for name, function in vars(source).items():
            if isinstance(function, FunctionType) and function.__module__ == source.__name__:
                plain = FunctionType(function.__code__, scope, name)
                options = _NO_REFERENCE_COUNTS | ({} if name in _LOOPS else _INNER)
                scope[name] = numba.njit(cache=True, **options)(plain)
    return scope
