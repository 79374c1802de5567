"""Compiles the loops with numba, once per machine, and keeps the machine code on disk.

Without numba, or where nothing can be written, there are no loops and no fast engine.
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

from sim.engine.fast import attained, loops, order, preemption, remaining, reservation, room

_SOURCES: Final[tuple[ModuleType, ...]] = (
    room,
    loops,
    reservation,
    order,
    remaining,
    attained,
    preemption,
)
_UNCOUNTED: Final[dict[str, Any]] = {"_nrt": False}
"""Without counting references to arrays, which took more than half of the time. Functions that need
memory of their own do not compile so.
"""
_FOLDER: Final = "trainyard-fast-"
_READY: Final = "ready"
_BEGUN: Final = "begun"
_PATIENCE_S: Final = 1800.0

Loop = Callable[..., Any]


class _State:
    """Of this process: whether it uses numba, and why it cannot."""

    loads = False
    fault = ""


def loop(name: str) -> Loop | None:
    """Return a compiled loop; None = `warm` was not called on this machine with these versions.

    The first call of a process takes a third of a second.
    """
    functions = _functions() if _State.loads or is_warm() else None
    _State.loads = functions is not None
    return None if functions is None else functions[name]


def is_loaded() -> bool:
    """Return True if this process has loaded the compiled loops."""
    return _State.loads


def is_warm() -> bool:
    """Tell whether the loops have been compiled on this machine with these versions."""
    folder = _folder()
    return folder is not None and (folder / _READY).exists()


def claim() -> bool:
    """Tell whether this process is to see that they are compiled: no other has begun to lately."""
    folder = _folder()
    if folder is None:
        return False
    begun = folder / _BEGUN
    try:
        if begun.exists() and not _is_begun(folder):
            begun.unlink()  # that process has been killed
        begun.touch(exist_ok=False)
    except OSError:
        return False
    return True


def _is_begun(folder: Path) -> bool:
    """Tell whether a process has begun to compile lately, and not ended."""
    try:
        return time.time() - (folder / _BEGUN).stat().st_mtime <= _PATIENCE_S
    except OSError:
        return False


def warm(exercise: Callable[[], None]) -> bool:
    """Compile the loops, if that has not been done here before, and load them.

    Parameters
    ----------
    exercise : callable
        Calls all of them.

    Returns
    -------
    bool
        Whether they are compiled; `why_not` says why they are not.
    """
    folder = _folder()
    if folder is None:
        return False
    _State.loads = True
    try:
        exercise()
        (folder / _READY).touch()
    # whatever a compiler may stumble over: the general engine makes the runs
    except Exception as error:
        _fail(f"numba could not compile it ({type(error).__name__}: {error})")
    for old in folder.parent.glob(f"{_FOLDER}*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    return not _State.fault


def why_not() -> str:
    """Return why there are no compiled loops in this process, as a clause."""
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
    """Find out anew whether there is a compiler: for tests."""
    _State.loads, _State.fault = False, ""
    _folder.cache_clear()
    _functions.cache_clear()


def _fail(why: str) -> None:
    _State.loads, _State.fault = False, why
    _folder.cache_clear()


@lru_cache(maxsize=1)
def _folder() -> Path | None:
    """Return the folder of the machine code of these sources, versions and processor; None = there
    is no compiler, or no folder.
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
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen)
    yield Path(__file__).parent / "__pycache__"
    yield Path.home() / ".cache" / "trainyard"


@lru_cache(maxsize=1)
def _functions() -> dict[str, Loop] | None:
    """Return the compiled functions: copies of the written ones that call each other."""
    try:
        import numba  # noqa: PLC0415 - it takes a third of a second
    except ImportError as error:
        _fail(f"numba cannot be loaded ({error})")
        return None
    numba.config.CACHE_DIR = str(_folder())  # type: ignore[attr-defined]
    scope: dict[str, Any] = {}
    for source in _SOURCES:
        scope |= vars(source)
    for source in _SOURCES:
        for name, function in vars(source).items():
            if isinstance(function, FunctionType) and function.__module__ == source.__name__:
                plain = FunctionType(function.__code__, scope, name)
                scope[name] = numba.njit(cache=True, **_UNCOUNTED)(plain)
    return scope
