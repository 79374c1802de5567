"""An uploaded file becomes a kept trace: read at once, stored under its content hash, with the
account of every row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from jobtraces import FORMATS, Import, Peek, ReadOptions, peek, read
from jobtraces.readers.cells import LENGTHS
from jobtraces.readers.check import LAST_DATE_S
from jobtraces.readers.columns import missing
from jobtraces.readers.content import plain
from jobtraces.readers.options import SECONDS, OpenQuestionError
from sim import metrics
from sim.errors import TraceError, TrainyardError
from sim.trace import COLUMNS, INSTANTS, REQUIRED, Trace
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.text import plural, time
from trainyard.traces.own_recipes import OwnRecipe, of_import
from trainyard.traces.sources import account_of, asked

UPLOAD_MB: Final = 200
UNPACKED_BYTES: Final = 500_000_000
"""So much an upload may unpack to; reading takes up to about four times as much memory."""
SHOWN_ROWS: Final = 10
NATIVE_COLUMNS: Final = COLUMNS
NEEDED_COLUMNS: Final = REQUIRED[1:]
MAPPED: Final = ("native", "table", "")
"""Formats whose columns and units can be chosen; "" = nobody knows yet."""
EXAMPLES: Final = 3
"""Values of a column that are shown beside its name."""
VALUES: Final = 5
"""Cells of a column that are shown beside what they were read as."""
_CELL: Final = 30
_USERS: Final = 7
"""Of those who ask for most: with all others as one more row, as many as a small chart names."""
WORDS: Final = {
    "submit_time_s": "submission",
    "num_gpus": "GPUs",
    "duration_s": "duration",
    "vc": "virtual cluster",
    "mem_gb": "memory",
    "cpus": "cores",
}


@dataclass(frozen=True, eq=False)
class TraceIntake:
    """A file that was read and kept.

    Parameters
    ----------
    spec : TraceSpec
        Names the kept trace in a scenario.
    account : mapping
        Plain counts, see `trainyard.traces.sources.account_of`.
    issues : DataFrame
        Every dropped or altered row.
    issues_csv : str
        The same as CSV, safe in a spreadsheet.
    first : DataFrame
        The first jobs used, as texts to be shown; the row of the file as index.
    values : mapping
        Native column -> its first cells, and what they were read as.
    recipe : OwnRecipe
        By which the next file with the same columns is read alike.
    """

    spec: TraceSpec
    account: Mapping[str, Any]
    issues: pd.DataFrame
    issues_csv: str
    first: pd.DataFrame
    values: Mapping[str, tuple[str, str]]
    recipe: OwnRecipe


def take(
    data: bytes,
    name: str,
    store: Store,
    *,
    fmt: str = "",
    choices: Mapping[str, Any] | None = None,
    found: Peek | None = None,
) -> TraceIntake:
    """Read a file and keep its jobs.

    Parameters
    ----------
    data, name : bytes, str
        The file as it was uploaded.
    store : Store
        Where the trace is kept.
    fmt : str
        Key of `jobtraces.FORMATS`; "" = recognised by content.
    choices : mapping or None
        Of `jobtraces.ReadOptions`.
    found : Peek or None
        Its beginning, for the account and the recipe.

    Raises
    ------
    TrainyardError
        If the file cannot be used, or the store cannot be written.
    """
    if len(data) > UPLOAD_MB * 1_000_000 * 1.05:
        raise TraceError(
            f"{name}: {len(data) / 1e6:,.0f} MB are more than the limit of {UPLOAD_MB} MB. Cut a"
            " window out of the file, or use the command line."
        )
    options = ReadOptions(**{"max_bytes": UNPACKED_BYTES, **dict(choices or {})})
    imported: Import = read(data, name=name, fmt=fmt or None, options=options)
    trace = imported.trace
    columns = _sources(imported, written(found) if found is not None else ())
    account = account_of(imported) | {
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
        of_import(name, imported, choices or {}, found.fingerprint if found is not None else ""),
    )


@dataclass(frozen=True)
class Trial:
    """What other columns would make of a file.

    Parameters
    ----------
    sentence : str
        How many rows would be used and left out and why, or what is in the way.
    values : mapping
        As of `TraceIntake`; empty if it cannot be read so.
    """

    sentence: str
    values: Mapping[str, tuple[str, str]]


def trial(data: bytes, name: str, fmt: str, choices: Mapping[str, Any]) -> Trial:
    """Read a file without keeping anything; arguments as of `take`."""
    options = ReadOptions(**{"max_bytes": UNPACKED_BYTES, **dict(choices)})
    try:
        imported = read(data, name=name, fmt=fmt or None, options=options)
    except TrainyardError as error:
        return Trial(str(error), {})
    left = [
        f"{rows:,} left out ({reason})"
        for action, reason, rows in imported.counts()
        if action == "dropped"
    ]
    asked_of = f" {plural(len(imported.questions), 'question')} open." if imported.questions else ""
    used = f"{imported.used:,} of {plural(imported.read, 'row')} used"
    sentence = f"{', '.join([used, *left])}."
    return Trial(sentence + asked_of, first_values(imported))


def first_jobs(imported: Import) -> pd.DataFrame:
    """Return the first jobs of an import as texts, in the order of the file."""
    epoch, first = imported.trace.epoch, imported.first
    shown = {
        words_of(native) if native != "job_id" else "job": [
            _shown(native, value, epoch) for value in first[native]
        ]
        for native in map(str, first.columns)
    }
    return pd.DataFrame(shown, index=first.index.rename("row"), dtype="str")


def first_values(imported: Import) -> dict[str, tuple[str, str]]:
    """Return for each native column the first cells of a file, and what they were read as."""
    epoch, first = imported.trace.epoch, imported.first.head(VALUES)
    return {
        native: (
            ", ".join(str(cell)[:_CELL] for cell in imported.cells[native].head(VALUES)),
            ", ".join(_shown(native, value, epoch)[:_CELL] for value in first[native]),
        )
        for native in map(str, imported.cells.columns)
    }


def _shown(native: str, value: Any, epoch: str) -> str:
    if not isinstance(value, (int, float)):
        return "" if value is None or value is pd.NA else str(value)
    if not math.isfinite(value):
        return "–"
    if native in INSTANTS and epoch and abs(value) <= LAST_DATE_S:
        zone = pd.Timestamp(epoch).tzinfo
        return (
            pd.Timestamp(value, unit="s", tz="UTC").tz_convert(zone).strftime("%Y-%m-%d %H:%M:%S")
        )
    return time(value) if native in LENGTHS else f"{value:,.12g}"


def asked_by(error: TrainyardError) -> tuple[dict[str, Any], ...]:
    """Return the questions without whose answers a file cannot be read; () = something else is
    wrong with it.
    """
    return (
        tuple(asked(question, "") for question in error.questions)
        if isinstance(error, OpenQuestionError)
        else ()
    )


def _sources(imported: Import, columns: Sequence[str]) -> dict[str, str]:
    """Return which column of a file, as it writes them, is read for what."""
    written = {plain(column): column for column in reversed(columns)}
    fmt = imported.fmt
    if fmt in MAPPED:
        return {native: written.get(source, source) for native, source in imported.columns.items()}
    known = {
        native: next((source for source in sources if source in written), "")
        for native, sources in (FORMATS[fmt].sources if fmt in FORMATS else {}).items()
    }
    return {native: written[source] for native, source in known.items() if source}


def columns_guessed(found: Peek, choices: Mapping[str, Any]) -> dict[str, str]:
    """Return the column of a file for each fact, as guessed and as answered."""
    answers = dict(choices.get("answers") or {})
    asked = {name: name.removeprefix("column.") for name in answers if name.startswith("column.")}
    return {**found.mapping, **{native: answers[name] for name, native in asked.items()}}


def written(found: Peek) -> tuple[str, ...]:
    """Return the columns of a file as it writes them."""
    return tuple(found.written[column] for column in found.columns)


def look(data: bytes, name: str) -> Peek:
    """Return the beginning of a file and a guess at its columns.

    Raises
    ------
    TrainyardError
        If it is no table.
    """
    return peek(data, name=name, options=ReadOptions(max_bytes=UNPACKED_BYTES))


def mapping_from(choice: Mapping[str, str]) -> dict[str, str]:
    """Return a mapping of native to source columns as a reader takes it; "" = the trace has no such
    column.

    Raises
    ------
    TraceError
        If a required column is left out, or one column of the file is used twice.
    """
    for native in missing(choice):
        other = ", or those of start and end" if native == "duration_s" else ""
        raise TraceError(f"Choose the column that holds {native}{other}.")
    chosen = [source for source in choice.values() if source]
    twice = next((source for source in chosen if chosen.count(source) > 1), "")
    if twice:
        raise TraceError(
            f"The column '{twice}' is chosen twice. Use every column for one thing only."
        )
    return dict(choice)


@dataclass(frozen=True, eq=False)
class TraceProfile:
    """What a trace holds, ready to be drawn.

    Parameters
    ----------
    jobs : int
        All of them.
    days, gpu_hours : float
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
    median_s: float
    arrivals: pd.DataFrame
    sizes: pd.DataFrame
    durations: pd.DataFrame
    users: pd.DataFrame | None
    span_s: float
    epoch: str


def profile(trace: Trace) -> TraceProfile:
    """Describe a trace."""
    return TraceProfile(
        jobs=len(trace),
        days=trace.span_s / 86_400,
        gpu_hours=trace.gpu_seconds / 3600,
        median_s=float(trace.frame["duration_s"].median()),
        arrivals=metrics.arrivals(trace),
        sizes=metrics.sizes(trace),
        durations=metrics.durations(trace),
        users=metrics.heaviest(trace, most=_USERS) if trace.has("user") else None,
        span_s=trace.span_s,
        epoch=trace.epoch,
    )


@dataclass(frozen=True)
class Rule:
    """What is done with one class of rows.

    Parameters
    ----------
    name, chosen : str
        Of the choice in `jobtraces.ReadOptions`, and what was chosen.
    title, sentence : str
        Which rows, and how many of them met which fate.
    """

    name: str
    chosen: str
    title: str
    sentence: str


def rules(account: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Return the classes of rows for which there is a choice, with what became of them."""
    if "cpu_jobs" not in account:
        return ()
    left = {reason: _rows(account, "dropped", reason) for reason in (_CPU_JOB, _RUNNING)}
    kept, cut = int(account["without_gpus"]), _rows(account, "altered", _RUNNING)
    cpu = f"{kept:,} kept" if account["cpu_jobs"] == "keep" else f"{left[_CPU_JOB]:,} left out"
    running = (
        f"{cut:,} cut, {left[_RUNNING]:,} left out"
        if account["unfinished"] == "cut"
        else f"{left[_RUNNING]:,} left out"
    )
    first = Rule("cpu_jobs", str(account["cpu_jobs"]), "Jobs without GPUs", cpu)
    # A plain table says nothing of jobs that still run.
    return (
        (first,)
        if account["format"] in MAPPED
        else (
            first,
            Rule(
                "unfinished", str(account["unfinished"]), "Jobs still running at the end", running
            ),
        )
    )


_CPU_JOB: Final = "no GPU: a CPU job"
_RUNNING: Final = "still running when the trace ends"


def _rows(account: Mapping[str, Any], action: str, reason: str) -> int:
    return sum(
        int(item["rows"])
        for item in account["reasons"]
        if item["action"] == action and str(item["reason"]).startswith(reason)
    )


def columns_read(account: Mapping[str, Any]) -> str:
    """Return in words which column was taken for what; where the format says that, which facts of
    jobs are known.
    """
    if chosen := account.get("columns"):
        return " · ".join(f"{words_of(native)} ← {source}" for native, source in chosen.items())
    return ", ".join(words_of(native) for native in account.get("fields", ()) if native != "job_id")


def words_of(native: str) -> str:
    """Return what a native column is called in a sentence."""
    return WORDS.get(
        native,
        native.removesuffix("_s").removesuffix("_time").replace("_", " ").replace("gpu", "GPU"),
    )


def examples(found: Peek) -> dict[str, str]:
    """Return the first values of every column of a file, as one text each; empty cells are left
    out.
    """
    cells = {
        str(name): map(str.strip, values.fillna("").astype("str"))
        for name, values in found.head.items()
    }
    shown = {
        name: [text for text in texts if text and text.lower() != "nan"]
        for name, texts in cells.items()
    }
    return {
        name: ", ".join(text[:30] for text in texts[:EXAMPLES]) for name, texts in shown.items()
    }


def median_s(found: Peek, chosen: Mapping[str, str] | None, unit: str) -> float:
    """Return the median duration of the first rows of a file, in seconds; NaN if none is a
    number.
    """
    source = {**found.mapping, **(chosen or {})}.get("duration_s", "")
    values = (
        pd.to_numeric(found.head[source], errors="coerce")
        if source in found.head
        else pd.Series(dtype="float64")
    )
    return float(values.median()) * SECONDS[unit]


def in_units(seconds: float, unit: str) -> dict[str, float]:
    """Return what a duration would be if it had been read in other units: unit -> seconds."""
    return {other: seconds / SECONDS[unit] * factor for other, factor in SECONDS.items()}


def days(trace: Trace) -> float:
    """Return the days from the first to the last submission, rounded up to a hundredth, at least
    one hundredth.
    """
    return max(math.ceil(trace.span_s / 864) / 100, 0.01)


def window_days(spec: TraceSpec, whole_days: float) -> tuple[float, float]:
    """Return the window of a trace in days, within the whole of it."""
    return min(max(spec.from_s / 86_400, 0.0), whole_days), min(spec.to_s / 86_400, whole_days)


def edited(
    spec: TraceSpec, window: tuple[float, float], whole_days: float, **changes: Any
) -> TraceSpec:
    """Return the trace cut to a window in days and with other changes; the whole window leaves the
    ends open, an unmoved one stays exactly.

    Raises
    ------
    ParameterError
        If the window is empty, or a value is out of its bounds.
    """
    first, last = window
    moved = window != window_days(spec, whole_days)
    span: dict[str, Any] = (
        {
            "from_s": first * 86_400 if first > 0 else 0.0,
            "to_s": math.inf if last >= whole_days else last * 86_400,
        }
        if moved
        else {}
    )
    return replace(spec, **span, **changes)
