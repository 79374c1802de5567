"""Match table columns to native columns, by name in six languages and by their cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import pandas as pd

from jobtraces.readers.cells import (
    DURATION_COLUMNS,
    YES_NO,
    ColumnKinds,
    bare_name,
    clean_text,
    column_kinds,
    convert_dates,
    gpu_counts,
    load_words,
    localized_numbers,
    parse_column_name,
)
from jobtraces.readers.content import Content, Sample, plain_name
from jobtraces.readers.draft import Draft, Format, Report
from jobtraces.readers.options import SECONDS, OpenQuestionError, Question, ReadOptions
from jobtraces.readers.parquet import column_names, parquet_head, read_parquet
from jobtraces.readers.table import read_table
from jobtraces.readers.typed import (
    TIMES_SIGN,
    ColumnPlan,
    ColumnTyper,
    draft_native_table,
    split_product,
)
from sim.errors import TraceError
from sim.trace import COLUMNS, INSTANTS, NUMBERS, REQUIRED

FACTOR_PAIRS: Final = {"nodes": "per_node", "workers": "per_worker"}
_GROUPS: Final = ("user", "vc")
_NO_GROUP: Final = ("time", "queue", "delay", "mem", "wait", "dauer")
_MAX_GROUPS: Final = 1000


ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    native: tuple(load_words()["facts"][native]) for native in COLUMNS
}
"""Native column -> names in public traces and exports, most specific first."""


def guess_mapping(
    columns: Iterable[str] | pd.DataFrame, chosen: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Guess the source column of each native column.

    Parameters
    ----------
    columns : iterable of str or DataFrame
        Column names, as written or plain. For a table with cells, a column is chosen only if most
        of its cells fit.
    chosen : mapping or None
        Native -> source column, as the user set it; these are kept, and their sources are not used
        again. "" = do not map this column.

    Returns
    -------
    dict
        Native column -> plain source column; no source occurs twice. GPUs may be a product,
        ``nodes*gpus_per_node``.
    """
    cells = columns if isinstance(columns, pd.DataFrame) else None
    written = list(dict.fromkeys(str(column) for column in columns))
    sources = list(dict.fromkeys(plain_name(column) for column in written))
    chosen_sources = {
        native: plain_source(source, sources) for native, source in (chosen or {}).items()
    }
    used_sources = {
        part for source in chosen_sources.values() for part in source.split(TIMES_SIGN)
    } | set(chosen_sources.values())
    mapping = {native: source for native, source in chosen_sources.items() if source}
    ranked = sorted(
        (score, COLUMNS.index(native), alias_rank, position, native, source)
        for position, source in enumerate(sources)
        for native, (score, alias_rank) in _possible_facts(source).items()
    )
    for *_, native, source in ranked:
        if native in mapping or native in chosen_sources or source in used_sources:
            continue
        if cells is not None and not can_be(native, source, column_kinds(cells[source])):
            continue
        mapping[native] = source
        used_sources.add(source)
    if "num_gpus" not in mapping and "num_gpus" not in chosen_sources:
        # The nodes of a job may be used twice.
        mapping |= _gpu_product(sources, used_sources - {mapping.get("nodes", "")})
    return {native: mapping[native] for native in (*COLUMNS, *mapping) if native in mapping}


def plain_source(source: str, present: Iterable[str]) -> str:
    """Return the plain name of a column, or of both columns of a product."""
    name = plain_name(source)
    if name in present or TIMES_SIGN not in source:
        return name
    return TIMES_SIGN.join(plain_name(part) for part in source.split(TIMES_SIGN))


def _possible_facts(source: str) -> dict[str, tuple[int, int]]:
    """Return native column -> (score, rank) for a column name; lower is better."""
    facts: dict[str, tuple[int, int]] = {}
    name = parse_column_name(source)
    for form, score in name.forms:
        for native, rank in _facts_by_alias().get(form, ()):
            # `gpu_milli` and `GPUs (h)` are not GPU counts.
            if name.unit in SECONDS and native not in (*INSTANTS, *DURATION_COLUMNS):
                continue
            # `gpu_time` is not a GPU count, `queue_time` not a queue: only instants may drop a
            # word for time.
            if score == 3 or native in INSTANTS or not source.endswith(("time", "date")):
                facts[native] = min(facts.get(native, (9, 0)), (3 - score, rank))
    return facts


@cache
def _facts_by_alias() -> Mapping[str, list[tuple[str, int]]]:
    """Return bare alias -> (native column, rank of the alias)."""
    facts: dict[str, list[tuple[str, int]]] = {}
    for native, aliases in ALIASES.items():
        for rank, alias in enumerate(aliases):
            facts.setdefault(bare_name(alias), []).append((native, rank))
    return facts


def factor_column(present: Iterable[str], kind: str, table: pd.DataFrame | None = None) -> str:
    """Return the column that multiplies the GPU count, such as "nodes", or "".

    Kinds: "nodes", "workers", "per_node" and "per_worker".

    With a table, the column must hold numbers.
    """
    names = {bare_name(name) for name in load_words()["factors"][kind]}
    for source in present:
        if any(form in names for form, _ in parse_column_name(source).forms) and (
            table is None or column_kinds(table[source]).numbers
        ):
            return source
    return ""


def _gpu_product(present: list[str], used_sources: set[str]) -> dict[str, str]:
    """Return a GPU mapping such as ``nodes*gpus_per_node``, {} if there is none."""
    for count_kind, share_kind in FACTOR_PAIRS.items():
        pair = factor_column(present, count_kind), factor_column(present, share_kind)
        if all(pair) and not used_sources & set(pair):
            return {"num_gpus": TIMES_SIGN.join(pair)}
    return {}


def can_be(native: str, source: str, column: ColumnKinds) -> bool:
    """Return whether the cells of a column can be values of a native column; True if empty."""
    kinds = {
        **dict.fromkeys(INSTANTS, column.moments),
        **dict.fromkeys(DURATION_COLUMNS, column.lengths),
        "num_gpus": column.gpus,
    }
    if column.empty:
        return True
    if native in kinds:
        return column.numbers or kinds[native]
    if native in NUMBERS:
        return column.numbers or native in YES_NO
    if native == "gpu_type":
        return not column.numbers
    if native in _GROUPS and (column.numbers or column.moments or column.lengths):
        # Seconds in a queue are not a queue; too many distinct numbers are not users.
        is_few = column.numbers and column.distinct <= _MAX_GROUPS
        return is_few and not any(word in source for word in _NO_GROUP)
    return True


def missing(mapping: Mapping[str, str]) -> tuple[str, ...]:
    """Return the required columns without a source.

    Start and end together give the duration; an id is optional.
    """
    spans = mapping.get("start_time_s") and mapping.get("end_time_s")
    return tuple(
        native
        for native in REQUIRED[1:]
        if not mapping.get(native) and not (native == "duration_s" and spans)
    )


SAMPLE_ROWS: Final = 2000
"""Rows from the start, and as many from the whole file, used to guess columns."""
FACT_PHRASES: Final = {
    "submit_time_s": "a submission time",
    "num_gpus": "a number of GPUs",
    "duration_s": "a duration",
}
SUBMISSION_TO_END: Final = "end-submission"


def is_table(sample: Sample) -> bool:
    """Return whether a file is text with a separator."""
    return sample.kind == "text" and bool(sample.delimiter)


def load_table(content: Content, options: ReadOptions) -> Draft:
    """Read a table with guessed columns, or columns mapped by the user.

    Columns of dates in the user's pattern are converted.

    Raises
    ------
    OpenQuestionError
        If the source of a required column is unclear.
    TraceError
        If no column can be the source.
    """
    if not is_table(content.sample) and content.sample.kind != "parquet":
        raise TraceError(f"{content.name}: this is not a table of jobs. Choose another format.")
    head = sample_rows(content, options)
    if options.date_format:
        written, head = head, convert_dates(head, options.date_format)
        if head.equals(written):
            raise TraceError(
                f"{content.name}: no column holds dates written as {options.date_format}. Correct"
                " the pattern or remove it."
            )
    question_report = Report(0)
    plan = _plan_columns(head, content.name, question_report, options)
    wanted = {part for source in plan.mapping.values() for part in split_product(source, head)}
    if content.sample.kind == "parquet":
        frame, report = read_parquet(content, options, wanted)
    else:
        frame, report = read_table(content, options, wanted, as_written=True)
    frame = convert_dates(frame, options.date_format)
    report.questions, report.answered = question_report.questions, question_report.answered
    report.guesses.extend(question_report.guesses)
    report.warnings.extend(question_report.warnings)
    return ColumnTyper(frame, plan, report, content, options).draft()


def sample_rows(content: Content, options: ReadOptions) -> pd.DataFrame:
    """Return the first rows of a table and a sample of all rows, as written.

    The sample has up to about 2,000 lines at even distances in the file; none of a Parquet file.
    """
    if content.sample.kind == "parquet":
        return parquet_head(content, options, SAMPLE_ROWS)
    data = content.data
    end = -1
    for _ in range(SAMPLE_ROWS + 1):
        end = data.find(b"\n", end + 1)
        if end < 0:
            break
    if end >= 0:
        step = max((len(data) - end) // SAMPLE_ROWS, 1)
        lines = []
        for start in range(end, len(data), step):
            first = data.find(b"\n", start) + 1
            last = data.find(b"\n", first)
            if 0 < first < last:
                lines.append(data[first:last])
        data = data[: end + 1] + b"\n".join(dict.fromkeys(lines)) + b"\n"
    part = Content(content.name, data, content.encoding, damaged=content.damaged)
    # Lines from within a quoted cell have other numbers of fields and are dropped.
    return read_table(part, options, as_written=True)[0]


def _plan_columns(
    head: pd.DataFrame, name: str, report: Report, options: ReadOptions
) -> ColumnPlan:
    """Return the source of each native column, after asking about missing ones.

    Also asks about GPUs per node or worker, and reports the sources. Submissions that are the
    starts, and durations that include waits, become flags of the plan.

    Raises
    ------
    TraceError
        If the table has no header, or a required column no possible source.
    """
    mapping = guess_mapping(head, options.mapping)
    missing_natives = missing(mapping)
    if missing_natives and any(_is_number(str(column)) for column in head):
        raise TraceError(_no_header_text(head, name))
    _ask_columns(missing_natives, head, mapping, name, report, options)
    start_is_submission = mapping["submit_time_s"] == mapping.get("start_time_s")
    if start_is_submission:
        del mapping["submit_time_s"]
    includes_wait = mapping.get("duration_s") == SUBMISSION_TO_END
    if includes_wait:
        del mapping["duration_s"]
        report.warnings.append("Durations are from submission to end, so they include waits.")
    if start_is_submission:
        report.guess(
            f"Submissions are the starts ({mapping['start_time_s']}): recorded waits are unknown."
        )
    if TIMES_SIGN not in mapping["num_gpus"] and "num_gpus" not in options.mapping:
        mapping["num_gpus"] = _gpu_source(head, mapping, report, options)
    if mapping["num_gpus"] not in head.columns:
        first, second = split_product(mapping["num_gpus"], head)
        report.guess(f"GPUs of a job are {first} times {second}.")
        mapping = {
            native: source
            for native, source in mapping.items()
            if native in ("num_gpus", "nodes") or source not in (first, second)
        }
    read_from = ", ".join(
        f"{native} from {source}" for native, source in mapping.items() if native != source
    )
    chosen = set(mapping) <= set(options.mapping)
    note = "Columns are as chosen" if chosen else "Unknown format: columns were matched by name"
    report.guess(f"{note}{': ' + read_from if read_from else ''}.")
    return ColumnPlan(mapping, start_is_submission, includes_wait)


def _candidate_columns(native: str, head: pd.DataFrame, mapping: Mapping[str, str]) -> list[str]:
    """Return the unused columns with cells that can be values of a native column."""
    used_sources = set(mapping.values())
    return [
        str(column)
        for column in head.columns
        if column not in used_sources
        and not (kind := column_kinds(head[column])).empty
        and can_be(native, str(column), kind)
    ]


def _ask_columns(
    missing_natives: tuple[str, ...],
    head: pd.DataFrame,
    mapping: dict[str, str],
    name: str,
    report: Report,
    options: ReadOptions,
) -> None:
    """Add the answered or default sources of missing columns to a mapping.

    Raises
    ------
    OpenQuestionError
        If questions have neither an answer nor a default.
    TraceError
        If no column can be the source.
    """
    unanswered = []
    for native in missing_natives:
        question = _column_question(native, head, mapping)
        if not question.options:
            raise TraceError(f"{name}: {question.text}")
        if question.default or question.id in options.answers:
            mapping[native] = report.ask(question, options.answers)
        else:
            unanswered.append(question)
    if unanswered:
        raise OpenQuestionError(name, tuple(unanswered))


def _column_question(native: str, head: pd.DataFrame, mapping: Mapping[str, str]) -> Question:
    """Return the question which column holds a required fact.

    Without any candidate it has no options, and its text is an error message.
    """
    columns = ", ".join(map(str, head.columns[:20]))
    advice = ", or two for start and end" if native == "duration_s" else ""
    text = (
        f"no column looks like {FACT_PHRASES[native]} ({native}). Columns found: {columns}. Map one"
        f" of them{advice}."
    )
    options = {
        column: _example(head, column) for column in _candidate_columns(native, head, mapping)
    }
    start, end = mapping.get("start_time_s", ""), mapping.get("end_time_s", "")
    if native == "submit_time_s" and start:
        text = (
            "No column looks like a submission time. Was every job submitted when it started"
            f" ({start})?"
        )
        options = {start: "Yes: waits are unknown"} | {
            column: f"No, the submission is {example}" for column, example in options.items()
        }
    if native == "duration_s" and end and mapping.get("submit_time_s"):
        options[SUBMISSION_TO_END] = f"From submission to end ({end}), including waits"
    default = start if native == "submit_time_s" else ""
    return Question(f"column.{native}", text, options, default)


def _example(head: pd.DataFrame, column: str) -> str:
    """Return a column name with its first values."""
    cells = clean_text(head[column])
    return f"{column}: {', '.join(cells[cells != ''].head(3).str.slice(0, 30))}"


def _is_number(cell: str) -> bool:
    """Return whether a cell is a plain number."""
    return cell.removeprefix("-").replace(".", "", 1).isdecimal()


def _no_header_text(head: pd.DataFrame, name: str) -> str:
    """Return the message for a table without a header line."""
    columns = ", ".join(map(str, head.columns[:20]))
    return (
        f"{name}: the first line ({columns}) looks like a row, not a header. Add a line with"
        " column names, or map the columns."
    )


def _gpu_source(
    head: pd.DataFrame, mapping: Mapping[str, str], report: Report, options: ReadOptions
) -> str:
    """Return the source of GPU counts: a column, or its product with nodes or workers.

    Asks whether the column counts GPUs of the whole job, unless its name or another column shows
    it.
    """
    source = mapping["num_gpus"]
    counts = _parse_gpu_counts(clean_text(head[source]))
    if "total" in source:
        return source
    for count_kind, share_kind in FACTOR_PAIRS.items():
        column = factor_column(map(str, head.columns), count_kind, head)
        if not column or column == source:
            continue
        factors = localized_numbers(clean_text(head[column]))
        if not (factors > 1).any():
            continue
        share_column = factor_column(map(str, head.columns), share_kind, head)
        if (
            share_column
            and (localized_numbers(clean_text(head[share_column])) * factors == counts).mean()
            > 0.95
        ):
            continue
        product = f"{source}{TIMES_SIGN}{column}"
        answer = report.ask(
            Question(
                f"gpus_per.{count_kind}",
                f"Jobs have up to {factors.max():g} {column}. Does {source} count the GPUs of the"
                " whole job, or of each?",
                {
                    "job": f"Of the whole job: the largest has {counts.max():g} GPUs",
                    "each": f"Of each: the largest has {(counts * factors).max():g} GPUs",
                },
                "each" if (counts < factors).any() else "job",
            ),
            options.answers,
        )
        if answer == "each":
            return product
    return source


def _parse_gpu_counts(cells: pd.Series) -> pd.Series:
    """Return GPU counts, as plain numbers or in a notation such as ``gpu:4``; else NaN."""
    counts = localized_numbers(cells)
    return counts.where(counts.notna() | (cells == ""), gpu_counts(cells))


TABLE: Final = Format("table", "Any table, columns mapped", load_table)


def is_native(sample: Sample) -> bool:
    """Return whether a file is Parquet or its header has the required native columns."""
    return sample.kind == "parquet" or set(REQUIRED[1:]) <= sample.keys


def _load_native(content: Content, options: ReadOptions) -> Draft:
    """Read a table with native columns; other tables are read with guessed columns."""
    wanted = {*COLUMNS, *(plain_name(source) for source in options.mapping.values())}
    if content.sample.kind == "parquet":
        if not set(REQUIRED[1:]) <= set(column_names(content)):
            return load_table(content, options)
        frame, report = read_parquet(content, options, wanted)
    else:
        frame, report = read_table(content, options, wanted)
    native = {column: column for column in COLUMNS if column in frame.columns}
    if not set(REQUIRED[1:]) <= set(native):
        return load_table(content, options)
    chosen = {column: plain_name(source) for column, source in options.mapping.items()}
    mapping = {column: source for column, source in (native | chosen).items() if source}
    return draft_native_table(frame, mapping, report, content.name, options)


NATIVE: Final = Format("native", "Trainyard table (CSV, TSV or Parquet)", _load_native)
