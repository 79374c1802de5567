"""Read and store uploaded traces, and describe them for the page Trace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from jobtraces import FORMATS, Import, Peek, ReadOptions, peek, read
from jobtraces.readers.cells import DURATION_COLUMNS
from jobtraces.readers.check import LAST_DATE_S
from jobtraces.readers.columns import missing
from jobtraces.readers.content import plain_name
from jobtraces.readers.options import SECONDS, OpenQuestionError
from sim import metrics
from sim.errors import TraceError, TrainyardError
from sim.trace import COLUMNS, INSTANTS, REQUIRED, Trace
from trainyard.formatting import plural, time
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.traces.own_recipes import OwnRecipe, recipe_of_import
from trainyard.traces.sources import import_account, question_values

UPLOAD_MB: Final = 200
MAX_UPLOAD_BYTES: Final = 500_000_000
"""Largest unpacked upload; reading takes up to about four times as much memory."""
SHOWN_ROWS: Final = 10
"""Number of rows shown of a file."""
NATIVE_COLUMNS: Final = COLUMNS
NEEDED_COLUMNS: Final = REQUIRED[1:]
MAPPED_FORMATS: Final = ("native", "table", "")
"""Formats whose columns and units can be chosen; "" = not known yet."""
EXAMPLE_COUNT: Final = 3
"""Number of example values shown per column."""
VALUE_COUNT: Final = 5
"""Number of cells shown next to the values read from them."""
_CELL_CHARS: Final = 30
_MAX_USERS: Final = 7
"""Number of users with the most work in the chart; other users are one more row."""
COLUMN_LABELS: Final = {
    "submit_time_s": "submission",
    "num_gpus": "GPUs",
    "duration_s": "duration",
    "vc": "virtual cluster",
    "mem_gb": "memory",
    "cpus": "cores",
}


@dataclass(frozen=True, eq=False)
class TraceIntake:
    """An uploaded file that was read and stored.

    Parameters
    ----------
    spec : TraceSpec
        Source of the stored trace.
    account : mapping
        Plain counts, see `trainyard.traces.sources.import_account`.
    issues : DataFrame
        Every dropped or altered row.
    issues_csv : str
        `issues` as CSV, safe in a spreadsheet.
    first : DataFrame
        First jobs as texts, indexed by source row.
    values : mapping
        Native column -> (first cells, values read from them).
    recipe : OwnRecipe
        Recipe that reads the next file with the same columns the same way.
    """

    spec: TraceSpec
    account: Mapping[str, Any]
    issues: pd.DataFrame
    issues_csv: str
    first: pd.DataFrame
    values: Mapping[str, tuple[str, str]]
    recipe: OwnRecipe


def store_upload(
    data: bytes,
    name: str,
    store: Store,
    *,
    fmt: str = "",
    choices: Mapping[str, Any] | None = None,
    start: Peek | None = None,
) -> TraceIntake:
    """Read an uploaded file and store its jobs; return the result with report and preview.

    Parameters
    ----------
    data, name : bytes, str
        The uploaded file.
    store : Store
        Where the trace is stored.
    fmt : str
        Key of `jobtraces.FORMATS`; "" = recognized by content.
    choices : mapping or None
        Values for `jobtraces.ReadOptions`.
    start : Peek or None
        Start of the file, for the account and the recipe.

    Raises
    ------
    TrainyardError
        If the file cannot be used, or the store cannot be written.
    """
    if len(data) > UPLOAD_MB * 1_000_000 * 1.05:
        raise TraceError(
            f"{name}: {len(data) / 1e6:,.0f} MB are more than the limit of {UPLOAD_MB} MB. Use a"
            " shorter time range, or the command line."
        )
    options = ReadOptions(**{"max_bytes": MAX_UPLOAD_BYTES, **dict(choices or {})})
    imported: Import = read(data, name=name, fmt=fmt or None, options=options)
    trace = imported.trace
    columns = _source_columns(imported, written_columns(start) if start is not None else ())
    account = import_account(imported) | {
        "title": imported.title,
        "file": name,
        "columns": {native: source for native, source in columns.items() if trace.has(native)},
        "fields": [column for column in COLUMNS if trace.has(column)],
        "without_gpus": int((trace.numbers("num_gpus") == 0).sum()),
        "cpu_jobs": options.cpu_jobs,
        "unfinished": options.unfinished,
        "duration_unit": options.duration_unit,
        **({"recipe": options.recipe} if options.recipe else {}),
    }
    digest = store.put_trace(trace, account)
    return TraceIntake(
        TraceSpec(f"store:{digest}"),
        account,
        imported.issues,
        imported.issues_csv(),
        first_jobs(imported),
        first_values(imported),
        recipe_of_import(
            name, imported, choices or {}, start.fingerprint if start is not None else ""
        ),
    )


@dataclass(frozen=True)
class ReadingTrial:
    """The result of reading a file with other columns.

    Parameters
    ----------
    sentence : str
        How many rows would be used and dropped and why, or the error.
    values : mapping
        As for `TraceIntake`; empty on an error.
    """

    sentence: str
    values: Mapping[str, tuple[str, str]]


def try_upload(data: bytes, name: str, fmt: str, choices: Mapping[str, Any]) -> ReadingTrial:
    """Read a file without storing it; return a sentence on its rows, or the error, and values.

    Parameters as for `store_upload`.
    """
    options = ReadOptions(**{"max_bytes": MAX_UPLOAD_BYTES, **dict(choices)})
    try:
        imported = read(data, name=name, fmt=fmt or None, options=options)
    except TrainyardError as error:
        return ReadingTrial(str(error), {})
    dropped = [
        f"{rows:,} left out ({reason})"
        for action, reason, rows in imported.counts()
        if action == "dropped"
    ]
    questions_text = (
        f" {plural(len(imported.questions), 'question')} open." if imported.questions else ""
    )
    used = f"{imported.used:,} of {plural(imported.read, 'row')} used"
    sentence = f"{', '.join([used, *dropped])}."
    return ReadingTrial(sentence + questions_text, first_values(imported))


def first_jobs(imported: Import) -> pd.DataFrame:
    """Return the first jobs of an import as a table of texts, indexed by source row."""
    epoch, first = imported.trace.epoch, imported.first
    texts = {
        column_label(native) if native != "job_id" else "job": [
            _preview_text(native, value, epoch) for value in first[native]
        ]
        for native in map(str, first.columns)
    }
    return pd.DataFrame(texts, index=first.index.rename("row"), dtype="str")


def first_values(imported: Import) -> dict[str, tuple[str, str]]:
    """Return native column -> (first cells of the file, values read from them)."""
    epoch, first = imported.trace.epoch, imported.first.head(VALUE_COUNT)
    return {
        native: (
            ", ".join(str(cell)[:_CELL_CHARS] for cell in imported.cells[native].head(VALUE_COUNT)),
            ", ".join(_preview_text(native, value, epoch)[:_CELL_CHARS] for value in first[native]),
        )
        for native in map(str, imported.cells.columns)
    }


def _preview_text(native: str, value: Any, epoch: str) -> str:
    """Return a value of a native column as text: a date, duration or number; "–" if infinite."""
    if not isinstance(value, (int, float)):
        return "" if value is None or value is pd.NA else str(value)
    if not math.isfinite(value):
        return "–"
    if native in INSTANTS and epoch and abs(value) <= LAST_DATE_S:
        zone = pd.Timestamp(epoch).tzinfo
        return (
            pd.Timestamp(value, unit="s", tz="UTC").tz_convert(zone).strftime("%Y-%m-%d %H:%M:%S")
        )
    return time(value) if native in DURATION_COLUMNS else f"{value:,.12g}"


def open_questions(error: TrainyardError) -> tuple[dict[str, Any], ...]:
    """Return the open questions of an error, which prevent reading; () for other errors."""
    return (
        tuple(question_values(question, "") for question in error.questions)
        if isinstance(error, OpenQuestionError)
        else ()
    )


def _source_columns(imported: Import, columns: Sequence[str]) -> dict[str, str]:
    """Return native column -> column of the file, as written there."""
    written = {plain_name(column): column for column in reversed(columns)}
    fmt = imported.fmt
    if fmt in MAPPED_FORMATS:
        return {native: written.get(source, source) for native, source in imported.columns.items()}
    by_native = {
        native: next((source for source in sources if source in written), "")
        for native, sources in (FORMATS[fmt].sources if fmt in FORMATS else {}).items()
    }
    return {native: written[source] for native, source in by_native.items() if source}


def guess_columns(start: Peek, choices: Mapping[str, Any]) -> dict[str, str]:
    """Return native column -> source column, guessed from the file; answers take precedence."""
    answers = dict(choices.get("answers") or {})
    answered = {
        name: name.removeprefix("column.") for name in answers if name.startswith("column.")
    }
    return {**start.mapping, **{native: answers[name] for name, native in answered.items()}}


def written_columns(start: Peek) -> tuple[str, ...]:
    """Return the column names as written in the file."""
    return tuple(start.written[column] for column in start.columns)


def peek_upload(data: bytes, name: str) -> Peek:
    """Return the start of a file and a guess at its columns.

    Raises
    ------
    TrainyardError
        If it is not a table.
    """
    return peek(data, name=name, options=ReadOptions(max_bytes=MAX_UPLOAD_BYTES))


def check_mapping(choice: Mapping[str, str]) -> dict[str, str]:
    """Return a checked mapping of native to source columns; "" = no such column.

    Raises
    ------
    TraceError
        If a required column is missing, or a source column is used twice.
    """
    for native in missing(choice):
        other = ", or the columns of start and end" if native == "duration_s" else ""
        title = {"submit_time_s": "submission time", "num_gpus": "number of GPUs"}.get(
            native, column_label(native)
        )
        raise TraceError(f"Choose the column of the {title}{other}.")
    chosen = [source for source in choice.values() if source]
    repeated = next((source for source in chosen if chosen.count(source) > 1), "")
    if repeated:
        raise TraceError(f"The column '{repeated}' is chosen twice. Use each column once.")
    return dict(choice)


@dataclass(frozen=True, eq=False)
class TraceProfile:
    """Statistics of a trace, ready to be plotted.

    Parameters
    ----------
    jobs : int
        Number of jobs.
    days, gpu_hours : float
        Days from first to last submission; GPU-hours at the recorded durations.
    median_s : float, seconds
        Median duration.
    arrivals, sizes, durations : DataFrame
        See `sim.metrics`.
    users : DataFrame or None
        GPU-hours by user (core-hours without GPU jobs), if users are known.
    span_s : float, seconds
        From first to last submission.
    epoch : str
        Instant of second 0, or "".
    """

    jobs: int
    days: float
    gpu_hours: float
    median_s: float
    arrivals: pd.DataFrame
    sizes: pd.DataFrame
    durations: pd.DataFrame
    users: pd.DataFrame | None
    span_s: float
    epoch: str


def profile_trace(trace: Trace) -> TraceProfile:
    """Return the statistics of a trace."""
    return TraceProfile(
        jobs=len(trace),
        days=trace.span_s / 86_400,
        gpu_hours=trace.gpu_seconds / 3600,
        median_s=float(trace.frame["duration_s"].median()),
        arrivals=metrics.arrivals(trace),
        sizes=metrics.sizes(trace),
        durations=metrics.durations(trace),
        users=metrics.heaviest(trace, most=_MAX_USERS) if trace.has("user") else None,
        span_s=trace.span_s,
        epoch=trace.epoch,
    )


@dataclass(frozen=True)
class RowTreatment:
    """How one class of rows was treated.

    Parameters
    ----------
    name, chosen : str
        Option of `jobtraces.ReadOptions`, and its value.
    title, sentence : str
        The class of rows, and how many were kept, cut and dropped.
    """

    name: str
    chosen: str
    title: str
    sentence: str


def row_treatments(account: Mapping[str, Any]) -> tuple[RowTreatment, ...]:
    """Return the kinds of rows with a reading choice, and how they were treated.

    Empty for a report without that choice, such as that of a sample.
    """
    if "cpu_jobs" not in account:
        return ()
    dropped = {reason: _count_rows(account, "dropped", reason) for reason in (_CPU_JOB, _RUNNING)}
    kept, cut = int(account["without_gpus"]), _count_rows(account, "altered", _RUNNING)
    cpu = f"{kept:,} kept" if account["cpu_jobs"] == "keep" else f"{dropped[_CPU_JOB]:,} left out"
    running = (
        f"{cut:,} cut, {dropped[_RUNNING]:,} left out"
        if account["unfinished"] == "cut"
        else f"{dropped[_RUNNING]:,} left out"
    )
    first = RowTreatment("cpu_jobs", str(account["cpu_jobs"]), "Jobs without GPUs", cpu)
    # A plain table does not show which jobs still run.
    return (
        (first,)
        if account["format"] in MAPPED_FORMATS
        else (
            first,
            RowTreatment(
                "unfinished", str(account["unfinished"]), "Jobs still running at the end", running
            ),
        )
    )


_CPU_JOB: Final = "no GPU: a CPU job"
_RUNNING: Final = "still running when the trace ends"


def _count_rows(account: Mapping[str, Any], action: str, reason: str) -> int:
    """Return the number of rows with an action, and a reason that begins with this text."""
    return sum(
        int(item["rows"])
        for item in account["reasons"]
        if item["action"] == action and str(item["reason"]).startswith(reason)
    )


def describe_columns(account: Mapping[str, Any]) -> str:
    """Return the chosen columns as text, or the native columns if the format fixes them."""
    if chosen := account.get("columns"):
        return " · ".join(f"{column_label(native)} ← {source}" for native, source in chosen.items())
    return ", ".join(
        column_label(native) for native in account.get("fields", ()) if native != "job_id"
    )


def column_label(native: str) -> str:
    """Return the name of a native column as used in sentences."""
    return COLUMN_LABELS.get(
        native,
        native.removesuffix("_s").removesuffix("_time").replace("_", " ").replace("gpu", "GPU"),
    )


def example_cells(start: Peek) -> dict[str, str]:
    """Return column -> its first non-empty values as one text."""
    cells = {
        str(name): map(str.strip, values.fillna("").astype("str"))
        for name, values in start.head.items()
    }
    present = {
        name: [text for text in texts if text and text.lower() != "nan"]
        for name, texts in cells.items()
    }
    return {
        name: ", ".join(text[:30] for text in texts[:EXAMPLE_COUNT])
        for name, texts in present.items()
    }


def median_duration_s(start: Peek, chosen: Mapping[str, str] | None, unit: str) -> float:
    """Return the median of the duration column in the first rows, in seconds; NaN if none."""
    source = {**start.mapping, **(chosen or {})}.get("duration_s", "")
    values = (
        pd.to_numeric(start.head[source], errors="coerce")
        if source in start.head
        else pd.Series(dtype="float64")
    )
    return float(values.median()) * SECONDS[unit]


def duration_by_unit(seconds: float, unit: str) -> dict[str, float]:
    """Return unit -> seconds if a duration had been read in that unit."""
    return {other: seconds / SECONDS[unit] * factor for other, factor in SECONDS.items()}


def span_days(trace: Trace) -> float:
    """Return the days from first to last submission, rounded up to 0.01 days."""
    return max(math.ceil(trace.span_s / 864) / 100, 0.01)


def window_days(spec: TraceSpec, whole_days: float) -> tuple[float, float]:
    """Return the (first, last) day of a trace's window, both within its length."""
    return min(max(spec.from_s / 86_400, 0.0), whole_days), min(spec.to_s / 86_400, whole_days)


def cut_to_window(
    spec: TraceSpec, window: tuple[float, float], whole_days: float, **changes: Any
) -> TraceSpec:
    """Return a trace cut to a window in days, with other changes.

    The full window leaves the ends open; an unmoved window is kept exactly.

    Raises
    ------
    ParameterError
        If the window is empty, or a value is out of bounds.
    """
    first, last = window
    is_moved = window != window_days(spec, whole_days)
    span: dict[str, Any] = (
        {
            "from_s": first * 86_400 if first > 0 else 0.0,
            "to_s": math.inf if last >= whole_days else last * 86_400,
        }
        if is_moved
        else {}
    )
    return replace(spec, **span, **changes)
