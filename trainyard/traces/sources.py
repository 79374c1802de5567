"""Load the jobs of a `TraceSpec`: find, read and cache the source, cut, sample and scale it."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd

from jobtraces import Import, ReadOptions, read
from jobtraces.generate import workload
from jobtraces.readers.options import Question, size_text
from jobtraces.readers.parquet import parquet_bytes
from sim.cluster import Cluster
from sim.conditions import Measure
from sim.errors import TraceError
from sim.trace import Trace
from trainyard.formatting import plural
from trainyard.store import Store
from trainyard.study.scenario import MADE, TraceSpec
from trainyard.traces import sampling
from trainyard.traces.samples import load_sample

FILE_LIMIT_MB: Final = 200.0
"""Default limit for files read from a path: the upload limit."""
MAX_UNPACKED_BYTES: Final = 2_000_000_000
"""Default limit for unpacked files, unless the limit of the file itself is higher."""
_HISTORY: Final = ("start_time_s", "end_time_s", "node_list")


@dataclass(frozen=True, eq=False)
class Source:
    """A trace as read, before window and load.

    Parameters
    ----------
    trace : Trace
        The jobs.
    account : mapping
        Plain counts: read, used, dropped, altered, reasons, guesses, warnings.
    cluster : Cluster or None
        Cluster of a sample or generated workload.
    imported : Import or None
        The full report on a file.
    """

    trace: Trace
    account: Mapping[str, Any]
    cluster: Cluster | None = None
    imported: Import | None = None

    def to_frame(self) -> pd.DataFrame:
        """Return the jobs, one row each, with native columns."""
        return self.trace.frame.copy()

    @property
    def issues(self) -> pd.DataFrame:
        """Rows of the file that were dropped or changed, with reasons."""
        return pd.DataFrame() if self.imported is None else self.imported.issues

    @property
    def unended(self) -> pd.DataFrame:
        """Jobs of the file dropped because they had not ended, with their `state`."""
        return pd.DataFrame() if self.imported is None else self.imported.unended

    def summary(self) -> pd.Series:
        """Return statistics of the jobs as a series: counts, span, GPU-hours, sizes, run times."""
        trace = self.trace
        gpus, hours = trace.numbers("num_gpus"), trace.numbers("duration_s") / 3600
        figures = {
            "jobs": len(trace),
            "left out": int(self.account.get("dropped", 0)),
            "users": trace.frame["user"].nunique() if trace.has("user") else 0,
            "span (h)": trace.span_s / 3600,
            "GPU-hours": trace.gpu_seconds / 3600,
            "median GPUs": float(np.median(gpus)),
            "most GPUs": float(gpus.max()),
            "median run time (h)": float(np.median(hours)),
            "longest run time (h)": float(hours.max()),
        }
        return pd.Series(figures, name=trace.name)


def import_account(imported: Import) -> dict[str, Any]:
    """Return the report of a reader as plain values: counts, reasons, notes, questions.

    read = used + dropped + merged.
    """
    counts = imported.counts()
    return {
        "format": imported.fmt,
        "read": imported.read,
        "used": imported.used,
        "dropped": imported.dropped,
        "altered": sum(rows for action, _, rows in counts if action == "altered"),
        "reasons": [
            {"action": action, "reason": reason, "rows": rows} for action, reason, rows in counts
        ],
        "guesses": list(imported.guesses),
        "warnings": list(imported.warnings),
        "load_before_gpu_s": imported.load_before_gpu_s,
        "load_after_gpu_s": imported.load_after_gpu_s,
        "questions": [question_values(question, answer) for question, answer in imported.answered]
        + [question_values(question, "") for question in imported.questions],
        "offers": [
            question_values(question, "")
            for question in imported.offers
            if question.id not in {answered.id for answered, _ in imported.answered}
        ],
    } | ({"unended": dict(Counter(imported.unended["state"]))} if len(imported.unended) else {})


def row_counts_text(account: Mapping[str, Any]) -> str:
    """Return the row counts of a file as text: ``3 used + 1 left out = 4 read``."""
    merged = sum(item["rows"] for item in account["reasons"] if item["action"] == "merged")
    merged_text = f" + {merged:,} merged into others" if merged else ""
    return (
        f"{account['used']:,} used{merged_text} + {account['dropped']:,} left out ="
        f" {account['read']:,} read"
    )


def dropped_text(account: Mapping[str, Any]) -> str:
    """Return the text ``447 of 500 rows left out``, or "" if no row was dropped."""
    dropped = int(account.get("dropped", 0))
    return f"{dropped:,} of {plural(int(account['read']), 'row')} left out" if dropped else ""


def question_values(question: Question, answer: str) -> dict[str, Any]:
    """Return a question as plain values; `answer` "" = open, read with the default."""
    return {
        "id": question.id,
        "text": question.text,
        "options": dict(question.options),
        "default": question.default,
        "free": question.free,
        "answer": answer,
    }


def load_source(
    spec: TraceSpec, store: Store | None = None, *, max_mb: float = FILE_LIMIT_MB
) -> Source:
    """Return the source of a trace spec: a sample, stored trace, workload or file; cached.

    Parameters
    ----------
    spec : TraceSpec
        Only source, format and reading options are used.
    store : Store or None
        Store of ``store:`` sources; None = the default store.
    max_mb : float, MB
        Size limit for files read from a path.

    Raises
    ------
    TrainyardError
        If there is no such sample, workload, stored trace or file, or it cannot be read.
    """
    kind, _, name = spec.source.partition(":")
    if kind == "sample" and name:
        return _load_sample(name)
    if kind == "store" and name:
        return _load_stored(name, store or Store())
    if spec.source.startswith(MADE):
        return _load_workload(name)
    return _load_file(spec, max_mb)


def source_digest(spec: TraceSpec, store: Store | None = None) -> str:
    """Return the content digest of a source; that of a stored trace is its name.

    Raises
    ------
    TrainyardError
        As for `load_source`.
    """
    kind, _, name = spec.source.partition(":")
    return name if kind == "store" and name else load_source(spec, store).trace.digest


def load_trace(spec: TraceSpec, store: Store | None = None) -> Trace:
    """Return the jobs of a scenario, with window, sampling and load applied.

    Raises
    ------
    TrainyardError
        As for `load_source`; also if no job was submitted in the window.
    """
    return apply_changes(load_source(spec, store).trace, spec)


def apply_changes(trace: Trace, spec: TraceSpec) -> Trace:
    """Return a trace cut to its window, sampled, scaled and anonymized, in this order.

    Raises
    ------
    TraceError
        If no job was submitted in the window, or users are sampled in a trace without users.

    Notes
    -----
    By `TraceSpec.load_by`, either submissions are divided by the load, or there are fewer or more
    jobs in the same time. Deadlines keep their distance from the submission. Recorded starts and
    ends are removed if load or jobs change, because they no longer apply.
    """
    return (
        trace
        if spec.unchanged
        else _change_cached(
            trace, TraceSpec(**{"source": "any", **spec.changes(), "to_s": spec.to_s})
        )
    )


def check_measure(trace: Trace, measure: Measure) -> None:
    """Raise an error if no job was submitted in the measured window.

    Raises
    ------
    TraceError
        If no job was submitted in the window.
    """
    if measure.mask(trace.numbers("submit_time_s")).any():
        return
    rows = (
        f", rows {measure.first_job} to"
        f" {'the end' if measure.last_job is None else measure.last_job}"
    )
    start, end = (
        ("the start" if math.isinf(measure.from_s) else f"{measure.from_s:g} s"),
        ("the end" if math.isinf(measure.to_s) else f"{measure.to_s:g} s"),
    )
    window = (
        f"from {start} to {end}{rows if measure.first_job or measure.last_job is not None else ''}"
    )
    raise TraceError(
        f"{trace.name}: the measured window ({window}) holds none of the {len(trace):,} jobs; the"
        f" last was submitted at {trace.span_s:g} s. Widen it."
    )


@lru_cache(maxsize=8)
def _change_cached(trace: Trace, spec: TraceSpec) -> Trace:
    """Return a trace cut to a window, sampled, scaled and anonymized; the last few are cached."""
    submit = trace.frame["submit_time_s"]
    frame = trace.frame[(submit >= spec.from_s) & (submit < spec.to_s)]
    if frame.empty:
        end = "the end" if math.isinf(spec.to_s) else f"{spec.to_s:g} s"
        raise TraceError(
            f"{trace.name}: no job was submitted between {spec.from_s:g} s and {end}; the"
            f" last was submitted at {trace.span_s:g} s. Choose another window."
        )
    jobs = len(frame)
    frame = _sample_jobs(frame, spec, trace)
    if spec.load != 1.0 or len(frame) < jobs:
        frame = frame.drop(columns=[column for column in _HISTORY if column in frame])
    if spec.load != 1.0:
        frame = (
            sampling.move_submissions(frame, frame["submit_time_s"] / spec.load)
            if spec.load_by == "pace"
            else sampling.scale_load(frame, spec.load, spec.sample_seed)
        )
        if frame.empty:
            raise TraceError(
                f"{trace.name}: a load of {spec.load:g} leaves none of the {jobs:,} jobs. Choose a"
                " higher load."
            )
    about = trace.about
    if spec.anonymise:
        frame = sampling.anonymize(frame)
        about["name"] = sampling.HIDDEN_NAME
    return Trace.of(frame.reset_index(drop=True), **about)


def _sample_jobs(frame: pd.DataFrame, spec: TraceSpec, trace: Trace) -> pd.DataFrame:
    """Return the jobs of one user in n, and a random sample of these, as the spec says."""
    if spec.every_user > 1:
        if not trace.has("user"):
            raise TraceError(
                f"{trace.name}: the trace has no users, so one user in {spec.every_user} cannot be"
                " sampled. Use a random sample of jobs instead."
            )
        frame = frame[sampling.sample_users(frame["user"], spec.every_user, spec.sample_seed)]
    if 0 < spec.sample < len(frame):
        frame = frame[sampling.sample_jobs(frame["job_id"], spec.sample, spec.sample_seed)]
    return frame


@lru_cache(maxsize=8)
def _load_sample(name: str) -> Source:
    """Return a sample with its cluster as a source."""
    trace, cluster = load_sample(name)
    return Source(trace, _complete_account("sample", len(trace)), cluster)


@lru_cache(maxsize=8)
def _load_workload(text: str) -> Source:
    """Generate a workload, and return it with its cluster as a source."""
    chosen = workload(text)
    trace = chosen.make()
    return Source(trace, _complete_account("made", len(trace)), chosen.machines())


def _complete_account(fmt: str, jobs: int) -> Mapping[str, Any]:
    """Return the account of a source without dropped rows."""
    return MappingProxyType(
        {
            "format": fmt,
            "read": jobs,
            "used": jobs,
            "dropped": 0,
            "altered": 0,
            "reasons": [],
            "guesses": [],
            "warnings": [],
        }
    )


def _load_stored(digest: str, store: Store) -> Source:
    """Return a stored trace as a source; if it was deleted, clear the cache and raise."""
    about = store.trace_info(digest)
    if about is None:
        # Deleted: do not keep its jobs in this process.
        clear_cache()
    return Source(_read_stored(digest, store.address), about.account if about else {})


class _LoadedBytes:
    """Bytes of stored traces read by this process since the cache was last cleared."""

    size = 0


def clear_cache() -> int:
    """Clear the cached stored and changed traces; return the bytes read since the last call."""
    _read_stored.cache_clear()
    _change_cached.cache_clear()
    size, _LoadedBytes.size = _LoadedBytes.size, 0
    return size


@lru_cache(maxsize=4)
def _read_stored(digest: str, root: str) -> Trace:
    """Return a stored trace, and count its bytes; the last few are cached."""
    trace = Store.open(root).get_trace(digest)
    _LoadedBytes.size += int(trace.frame.memory_usage(deep=False).sum())
    return trace


def load_files(
    paths: Sequence[str],
    fmt: str = "",
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    max_mb: float = FILE_LIMIT_MB,
) -> Source:
    """Read several files that are the tables of one trace.

    Parameters
    ----------
    paths : sequence of str
        The files, at least two.
    fmt : str
        Key of `jobtraces.FORMATS`; "" = recognized by content.
    choices : mapping
        Values for `jobtraces.ReadOptions`.
    max_mb : float, MB
        Size limit for each file.

    Raises
    ------
    TrainyardError
        If a file cannot be read, or the files are not the tables of one trace.
    """
    files = {path: _check_file(path, max_mb)[0] for path in paths}
    options = ReadOptions(**choices, max_bytes=max(MAX_UNPACKED_BYTES, int(max_mb * 1e6)))
    name = " + ".join(file.name for file in files.values())
    imported = read(files, name=name, fmt=fmt or None, options=options)
    return Source(imported.trace, MappingProxyType(import_account(imported)), imported=imported)


def load_frame(
    frame: pd.DataFrame, fmt: str = "", choices: Mapping[str, Any] = MappingProxyType({})
) -> Source:
    """Read a DataFrame exactly like a Parquet file of it.

    Parameters
    ----------
    frame : DataFrame
        Typed or text columns; named index levels count as columns.
    fmt : str
        Key of `jobtraces.FORMATS`; "" = recognized by content.
    choices : mapping
        Values for `jobtraces.ReadOptions`.

    Raises
    ------
    TrainyardError
        If the rows cannot be read, or an option is invalid.
    """
    spec = TraceSpec.of("frame", fmt=fmt, read=choices)
    imported = read(parquet_bytes(frame), fmt=fmt or None, options=ReadOptions(**spec.choices()))
    return Source(imported.trace, MappingProxyType(import_account(imported)), imported=imported)


def _load_file(spec: TraceSpec, max_mb: float) -> Source:
    """Read a trace file as a source; cached until its time or size changes."""
    path, facts = _check_file(spec.source, max_mb)
    unpacked = max(MAX_UNPACKED_BYTES, int(max_mb * 1e6))
    return _read_file(
        str(path.absolute()), (facts.st_mtime_ns, facts.st_size, unpacked), spec.fmt, spec.read
    )


def _check_file(place: str, max_mb: float) -> tuple[Path, os.stat_result]:
    """Return path and status of a file; raise if it is a folder, missing or too large."""
    path = Path(place).expanduser()
    try:
        if path.is_dir():
            raise TraceError(f"{path}: this is a folder, not a trace. Choose a file in it.")
        facts = path.stat()
    except OSError as error:
        raise TraceError(
            f"{path}: the file cannot be opened ({error.strerror or error}). Check the path and"
            " the permissions."
        ) from error
    except ValueError as error:
        raise TraceError(
            f"{place!r:.80} is not the path of a file ({error}). Check the path."
        ) from error
    if facts.st_size > max_mb * 1e6:
        size, limit = size_text(facts.st_size), size_text(max_mb * 1e6)
        raise TraceError(
            f"{path.name}: {size} are more than the limit of {limit}. Use a shorter time range,"
            " or raise the limit with --max-mb."
        )
    return path, facts


@lru_cache(maxsize=4)
def _read_file(
    path: str, state: tuple[int, int, int], fmt: str, choices: tuple[tuple[str, Any], ...]
) -> Source:
    """Read a trace file; `state` (time, size, limit when unpacked) is part of the cache key."""
    options: dict[str, Any] = {
        name: dict(value) if isinstance(value, tuple) else value for name, value in choices
    }
    imported = read(Path(path), fmt=fmt or None, options=ReadOptions(**options, max_bytes=state[2]))
    return Source(imported.trace, MappingProxyType(import_account(imported)), imported=imported)
