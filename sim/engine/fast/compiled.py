"""Compiles the loops with numba where it is installed, once, and keeps the machine code on disk.

Where it is not, or nothing can be written, the same functions run as they stand.
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
_COMPILED_AS: Final = {"move": room.move_each}
_UNCOUNTED: Final[dict[str, Any]] = {"_nrt": False}
"""Without counting references to arrays, which took more than half of the time. Functions that need
memory of their own do not compile so.
"""
_FOLDER: Final = "trainyard-fast-"
_READY: Final = "ready"
_BEGUN: Final = "begun"
_PATIENCE_S: Final = 1800.0
PLAIN: Final = "TRAINYARD_PLAIN"
"""Environment variable: any value, and nothing is compiled."""

Loop = Callable[..., Any]


class _State:
    """Of this process: whether it uses numba, and why it does not."""

    loads = False
    why_not = ""


def loop(name: str, *, load: bool) -> tuple[Loop, bool]:
    """Return a function of the loops and whether it is compiled.

    It is where `warm` has been called on this machine with these versions before, and if the
    compiled ones are loaded or, with ``load``, to be loaded now, which takes a third of a second.
    """
    usable = _State.loads or (load and is_warm())
    made = _functions() if usable else None
    if made is not None:
        return made[name], True
    return next(vars(source)[name] for source in _SOURCES if name in vars(source)), False


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


def warm(exercise: Callable[[], None]) -> str:
    """Compile the loops, if that has not been done here before, and load them.

    Parameters
    ----------
    exercise : callable
        Calls all of them.

    Returns
    -------
    str
        Why they will run uncompiled; "" = they are compiled.
    """
    folder = _folder()
    if folder is None:
        return _State.why_not
    _State.loads = True
    try:
        exercise()
        (folder / _READY).touch()
    # whatever a compiler may stumble over: the loops run without it
    except Exception as error:
        _fail(f"numba could not compile it ({type(error).__name__}: {error})")
    for old in folder.parent.glob(f"{_FOLDER}*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    return _State.why_not


def why_plain() -> str:
    """Return why the loops run uncompiled here; "" = because that was asked for."""
    if os.environ.get(PLAIN):
        return ""
    folder = _folder()
    if not _State.why_not and folder is not None and _is_begun(folder):
        return _sentence("another process is compiling it")
    return _State.why_not or _sentence(
        "it has not been compiled here yet. `python -m trainyard.runs.engines` does so once, in"
        " about a minute"
    )


def forget() -> None:
    """Find out anew whether there is a compiler: for tests."""
    _State.loads, _State.why_not = False, ""
    _folder.cache_clear()
    _functions.cache_clear()


def _fail(why: str) -> None:
    _State.loads = False
    _State.why_not = _sentence(why)
    _folder.cache_clear()


def _sentence(why: str) -> str:
    return (
        f"The fast engine runs as plain Python, several times slower, because {why}. The results"
        " are the same."
    )


@lru_cache(maxsize=1)
def _folder() -> Path | None:
    """Return the folder of the machine code of these sources, versions and processor; None = there
    is no compiler, or no folder.
    """
    if os.environ.get(PLAIN) or _State.why_not:
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
    """Return the compiled functions: copies of the plain ones that call each other."""
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
                code = _COMPILED_AS.get(name, function).__code__
                plain = FunctionType(code, scope, name)
                scope[name] = numba.njit(cache=True, **_UNCOUNTED)(plain)
    return scope
