"""An uploaded file becomes a kept trace: read at once, stored under its content hash, with the account of every row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from lab.scenario import TraceSpec
from lab.sources import account_of
from lab.store import Store
from sim import metrics
from sim.errors import TraceError
from sim.readers import Import, Peek, ReadOptions, peek, read
from sim.trace import COLUMNS, REQUIRED, Trace

UPLOAD_MB: Final = 200
UNPACKED_BYTES: Final = 500_000_000
"""So much an upload may unpack to; reading takes up to about four times as much memory."""
SHOWN_ROWS: Final = 10
NATIVE_COLUMNS: Final = COLUMNS
NEEDED_COLUMNS: Final = REQUIRED[1:]


@dataclass(frozen=True, eq=False)
class Taken:
    """A file that was read and kept.

    Parameters
    ----------
    spec : TraceSpec
        Names the kept trace in a scenario.
    account : mapping
        Plain counts, see `lab.sources.account_of`.
    issues : DataFrame
        Every dropped or altered row.
    issues_csv : str
        The same as CSV, safe in a spreadsheet.
    """

    spec: TraceSpec
    account: Mapping[str, Any]
    issues: pd.DataFrame
    issues_csv: str


def take(data: bytes, name: str, store: Store, *, fmt: str = "", choices: Mapping[str, Any] | None = None) -> Taken:
    """Read a file and keep its jobs.

    Parameters
    ----------
    data, name : bytes, str
        The file as it was uploaded.
    store : Store
        Where the trace is kept.
    fmt : str
        Key of `sim.readers.FORMATS`; "" = recognised by content.
    choices : mapping or None
        Of `sim.readers.ReadOptions`.

    Raises
    ------
    TrainyardError
        If the file cannot be used, or the store cannot be written.
    """
    if len(data) > UPLOAD_MB * 1_000_000 * 1.05:
        raise TraceError(f"{name}: {len(data) / 1e6:,.0f} MB are more than the limit of {UPLOAD_MB} MB. Cut a window out of the file, or use the command line.")
    imported: Import = read(data, name=name, fmt=fmt or None, options=ReadOptions(**{"max_bytes": UNPACKED_BYTES, **dict(choices or {})}))
    account = account_of(imported) | {"title": imported.title, "file": name}
    digest = store.put_trace(imported.trace, account)
    return Taken(TraceSpec(f"store:{digest}"), account, imported.issues, imported.issues_csv())


def look(data: bytes, name: str) -> Peek:
    """Return the beginning of a file and a guess at its columns.

    Raises
    ------
    TrainyardError
        If it is no table.
    """
    return peek(data, name=name, options=ReadOptions(max_bytes=UNPACKED_BYTES))


def mapping_from(choice: Mapping[str, str]) -> dict[str, str]:
    """Return a mapping of native to source columns as a reader takes it; "" = the trace has no such column.

    Raises
    ------
    TraceError
        If a required column is left out, or one column of the file is used twice.
    """
    for native in NEEDED_COLUMNS:
        if not choice.get(native):
            raise TraceError(f"Choose the column that holds {native}.")
    chosen = [source for source in choice.values() if source]
    twice = next((source for source in chosen if chosen.count(source) > 1), "")
    if twice:
        raise TraceError(f"The column '{twice}' is chosen twice. Use every column for one thing only.")
    return dict(choice)


@dataclass(frozen=True, eq=False)
class Profile:
    """What a trace holds, ready to be drawn.

    Parameters
    ----------
    jobs : int
        All of them.
    days, gpu_hours, core_hours : float
        From first to last submission; asked for at the recorded durations.
    median_s : float, seconds
        Of the durations.
    arrivals, sizes, durations : DataFrame
        See `sim.metrics`.
    users : DataFrame or None
        GPU-hours by user, core-hours where nobody asks for a GPU, if users are given.
    span_s : float, seconds
        From first to last submission.
    epoch : str
        Instant of second 0, or "".
    """

    jobs: int
    days: float
    gpu_hours: float
    core_hours: float
    median_s: float
    arrivals: pd.DataFrame
    sizes: pd.DataFrame
    durations: pd.DataFrame
    users: pd.DataFrame | None
    span_s: float
    epoch: str


def profile(trace: Trace) -> Profile:
    """Describe a trace."""
    return Profile(
        jobs=len(trace),
        days=trace.span_s / 86_400,
        gpu_hours=trace.gpu_seconds / 3600,
        core_hours=float((trace.numbers("cpus", 0.0) * trace.numbers("duration_s")).sum()) / 3600,
        median_s=float(trace.frame["duration_s"].median()),
        arrivals=metrics.arrivals(trace),
        sizes=metrics.sizes(trace),
        durations=metrics.durations(trace),
        users=metrics.heaviest(trace) if trace.has("user") else None,
        span_s=trace.span_s,
        epoch=trace.epoch,
    )


def days(trace: Trace) -> float:
    """Return the days from the first to the last submission, rounded up to a hundredth, at least one hundredth."""
    return max(math.ceil(trace.span_s / 864) / 100, 0.01)


def window_days(spec: TraceSpec, whole_days: float) -> tuple[float, float]:
    """Return the window of a trace in days, within the whole of it."""
    return min(max(spec.from_s / 86_400, 0.0), whole_days), min(spec.to_s / 86_400, whole_days)


def with_window(spec: TraceSpec, window: tuple[float, float], whole_days: float, load: float) -> TraceSpec:
    """Return the trace cut to a window in days, with its arrivals compressed; the whole window leaves the ends open.

    Raises
    ------
    ParameterError
        If the window is empty.
    """
    first, last = window
    if (first, last) == window_days(spec, whole_days) and load == spec.load:
        return spec
    return replace(spec, from_s=first * 86_400 if first > 0 else 0.0, to_s=math.inf if last >= whole_days else last * 86_400, load=load)
