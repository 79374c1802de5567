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
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from sim.engine.fast import (
    attained,
    failures,
    free_gpus,
    loops,
    order,
    preemption,
    queue_loop,
    remaining,
    reservation,
)

_SOURCES: Final[tuple[ModuleType, ...]] = (
    free_gpus,
    loops,
    failures,
    queue_loop,
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
_INNER: Final[dict[str, Any]] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Numba options of functions that only compiled functions call; wrappers take up to half of the
time to compile.
"""
_LOOP: Final = "run_"
"""Beginning of the names of loops, the functions that Python calls."""
_OPTIMIZATION: Final = 1
"""Level of the compiler; higher ones take three times as long, and the loops run no faster."""
_FOLDER: Final = "trainyard-fast-"
_USED: Final = "used"
_BEGUN: Final = "begun"
_FAILED: Final = "failed"
"""Files of a cache folder: its last use, a compiler at work, and why the last one failed."""
_PATIENCE_S: Final = 1800.0
_UNUSED_S: Final = 30 * 86_400.0
"""Seconds without use after which the machine code of another version is deleted."""

Loop = Callable[..., Any]


class _State:
    """State of this process: the loops that it has loaded, and why it cannot."""

    loaded: ClassVar[set[str]] = set()
    fault = ""


def loop(name: str) -> Loop | None:
    """Return a compiled loop, or None if `warm` has not compiled it here with these versions.

    The first call of a process takes a third of a second.
    """
    if not (name in _State.loaded or is_warm(name)):
        return None
    functions = _functions()
    if functions is None:
        return None
    _State.loaded.add(name)
    return functions[name]


def is_loaded() -> bool:
    """Return True if this process has loaded a compiled loop."""
    return bool(_State.loaded)


def is_warm(name: str) -> bool:
    """Return True if a loop was compiled on this machine with these versions."""
    folder = _folder()
    return folder is not None and (folder / name).exists()


def claim() -> bool:
    """Write the marker that this process compiles; False = another one began recently.

    Also False without a writable folder. Replaces the marker of a process that was killed.
    """
    folder = _folder()
    if folder is None:
        return False
    begun = folder / _BEGUN
    try:
        if begun.exists() and not _is_recent(begun, _PATIENCE_S):
            begun.unlink()  # that process was killed
        begun.touch(exist_ok=False)
    except OSError:
        return False
    return True


def _is_recent(file: Path, within_s: float) -> bool:
    """Return True if a file was written within a number of seconds."""
    try:
        return time.time() - file.stat().st_mtime <= within_s
    except OSError:
        return False


def warm(name: str, exercise: Callable[[], None]) -> bool:
    """Compile a loop if necessary, load it, and delete machine code unused for a month.

    Parameters
    ----------
    name : str
        The loop.
    exercise : callable
        Calls the loop.

    Returns
    -------
    bool
        Whether the loop is compiled; if not, see `why_not`.
    """
    folder = _folder()
    if folder is None:
        return False
    if name in _State.loaded and (folder / name).exists():
        return True
    _State.loaded.add(name)
    try:
        exercise()
        (folder / name).touch()
        (folder / _FAILED).unlink(missing_ok=True)
    # any compiler error: the general engine makes the runs
    except Exception as error:
        fault = f"numba could not compile it ({type(error).__name__}: {error})"
        _fail(fault)
        with suppress(OSError):  # only the other processes miss the reason
            (folder / _FAILED).write_text(fault, encoding="utf-8")
    for old in folder.parent.glob(f"{_FOLDER}*"):
        if old != folder and not _is_recent(old / _USED, _UNUSED_S):
            shutil.rmtree(old, ignore_errors=True)
    return not _State.fault


def why_not() -> str:
    """Return why this process lacks a compiled loop, as a clause."""
    folder = _folder()
    if folder is None:
        return _State.fault
    with suppress(OSError):  # no compiler has failed
        return (folder / _FAILED).read_text(encoding="utf-8")
    if _is_recent(folder / _BEGUN, _PATIENCE_S):
        return "another process is compiling it"
    return (
        "it has not been compiled here yet. `python -m trainyard.runs.engines` does so once, in"
        " half a minute"
    )


def forget() -> None:
    """Clear the cached compiler state, for tests."""
    _State.fault = ""
    _State.loaded.clear()
    _folder.cache_clear()
    _functions.cache_clear()


def _fail(why: str) -> None:
    """Record why there are no compiled loops, and clear the cached folder."""
    _State.fault = why
    _State.loaded.clear()
    _folder.cache_clear()


@lru_cache(maxsize=1)
def _folder() -> Path | None:
    """Return the cache folder for these sources, versions and processor, or None.

    None = no compiler, or no writable folder.
    """
    if _State.fault:
        return None
    if importlib.util.find_spec("numba") is None:
        _fail("numba is not installed (python -m pip install numba)")
        return None
    key = hashlib.blake2b(digest_size=8)
    try:
        parts = [version("numba"), version("llvmlite"), np.__version__, sys.version]
    except PackageNotFoundError:
        _fail("numba is not installed completely (python -m pip install numba)")
        return None
    for part in (*parts, platform.machine(), _processor()):
        key.update(part.encode())
    for path in (__file__, *map(_source_file, _SOURCES)):
        key.update(Path(path).read_bytes())
    for base in _bases():
        folder = base / f"{_FOLDER}{key.hexdigest()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _USED).touch()
        except OSError:
            continue
        return folder
    _fail("no folder for its machine code can be written; set NUMBA_CACHE_DIR to one")
    return None


def _processor() -> str:
    """Return the kind of processor, with its features where Linux lists them."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.processor()


def _source_file(source: ModuleType) -> str:
    return str(source.__file__)


def _bases() -> Iterator[Path]:
    """Yield the possible cache folders: NUMBA_CACHE_DIR, the user's, then the package's."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen).absolute()
    is_windows = sys.platform == "win32"
    user = os.environ.get("LOCALAPPDATA" if is_windows else "XDG_CACHE_HOME")
    with suppress(RuntimeError):  # a user without a home
        home = Path(user) if user else Path.home() / ("AppData/Local" if is_windows else ".cache")
        yield home.absolute() / "trainyard"
    yield Path(__file__).parent / "__pycache__"


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
    folder = _folder()
    if folder is None:
        return None
    numba.config.CACHE_DIR = ""  # type: ignore[attr-defined]
    numba.config.OPT = type(numba.config.OPT)(_OPTIMIZATION)  # type: ignore[attr-defined]
    scope: dict[str, Any] = {}
    for source in _SOURCES:
        scope |= vars(source)
    for source in _SOURCES:
        file = _copy_source(source, folder)
        for name, function in vars(source).items():
            if isinstance(function, FunctionType) and function.__module__ == source.__name__:
                plain = FunctionType(function.__code__.replace(co_filename=file), scope, name)
                wrappers = {} if name.startswith(_LOOP) else _INNER
                scope[name] = numba.njit(cache=True, **_NO_REFERENCE_COUNTS, **wrappers)(plain)
    return scope


def _copy_source(source: ModuleType, folder: Path) -> str:
    """Return the path of a module's copy in the cache folder, written if missing.

    Numba finds machine code by path and time of the source, which differ between checkouts.
    """
    copy = folder / f"{source.__name__.rpartition('.')[2]}.py"
    if not copy.exists():
        draft = folder / f"{copy.name}.{os.getpid()}"
        shutil.copyfile(_source_file(source), draft)
        os.utime(draft, (0, 0))
        draft.replace(copy)
    return str(copy)
