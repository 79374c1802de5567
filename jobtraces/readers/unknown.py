"""A table of jobs that nobody described: its columns are found by names and cells, or asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from jobtraces.readers.cells import text
from jobtraces.readers.format import Draft, Format
from jobtraces.readers.mapping import PER, TIMES_SIGN, factor, fits, guess_mapping, missing
from jobtraces.readers.options import ReadOptions
from jobtraces.readers.parquet import parquet_head, read_parquet
from jobtraces.readers.questions import OpenQuestionError, Question
from jobtraces.readers.report import Report
from jobtraces.readers.sniff import Sample
from jobtraces.readers.source import Content
from jobtraces.readers.table import read_table
from jobtraces.readers.typed import Plan, Typing, parts_of
from jobtraces.readers.values import column_of, dated, figures, gpus
from sim.errors import TraceError

SAMPLE: Final = 2000
"""Rows from the beginning, and as many from all over the file, by which columns are guessed."""
WANTED: Final = {
    "submit_time_s": "a submission time",
    "num_gpus": "a number of GPUs",
    "duration_s": "a duration",
}
WAITS: Final = "end-submission"


def is_table(sample: Sample) -> bool:
    """Tell whether a file is text with a separator."""
    return sample.kind == "text" and bool(sample.delimiter)


def load(content: Content, options: ReadOptions) -> Draft:
    """Read a table whose columns must be guessed or are mapped by the user.

    Raises
    ------
    OpenQuestionError
        If it cannot be told which column holds what every job must have.
    TraceError
        If no column can.
    """
    if not is_table(content.sample) and content.sample.kind != "parquet":
        raise TraceError(f"{content.name}: this is no table of jobs. Choose another format.")
    head = beginning(content, options)
    if options.date_format:
        written, head = head, dated(head, options.date_format)
        if head.equals(written):
            raise TraceError(
                f"{content.name}: no column holds dates written as {options.date_format}. Correct"
                " the pattern, or leave it out."
            )
    asked = Report(0)
    plan = _plan(head, content.name, asked, options)
    wanted = {part for source in plan.mapping.values() for part in parts_of(source, head)}
    if content.sample.kind == "parquet":
        frame, report = read_parquet(content, options, wanted)
    else:
        frame, report = read_table(content, options, wanted, as_written=True)
    frame = dated(frame, options.date_format)
    report.questions, report.answered = asked.questions, asked.answered
    report.guesses.extend(asked.guesses)
    report.warnings.extend(asked.warnings)
    return Typing(frame, plan, report, content, options).draft()


def beginning(content: Content, options: ReadOptions) -> pd.DataFrame:
    """Return the first rows of a table and as many from all over it, all columns, as they are
    written.
    """
    if content.sample.kind == "parquet":
        return parquet_head(content, options, SAMPLE)
    data = content.data
    at = -1
    for _ in range(SAMPLE + 1):
        at = data.find(b"\n", at + 1)
        if at < 0:
            break
    if at >= 0:
        step = max((len(data) - at) // SAMPLE, 1)
        lines = []
        for start in range(at, len(data), step):
            first = data.find(b"\n", start) + 1
            last = data.find(b"\n", first)
            if 0 < first < last:
                lines.append(data[first:last])
        data = data[: at + 1] + b"\n".join(dict.fromkeys(lines)) + b"\n"
    part = Content(content.name, data, content.encoding, damaged=content.damaged)
    # Lines from the middle of a quoted cell would break the table: they have other fields.
    return read_table(part, options, as_written=True)[0]


def _plan(head: pd.DataFrame, name: str, report: Report, options: ReadOptions) -> Plan:
    mapping = guess_mapping(head, options.mapping)
    lacking = missing(mapping)
    if lacking and any(_is_number(str(column)) for column in head):
        raise TraceError(_no_header(head, name))
    _ask_columns(lacking, head, mapping, name, report, options)
    started = mapping["submit_time_s"] == mapping.get("start_time_s")
    if started:
        del mapping["submit_time_s"]
    waits = mapping.get("duration_s") == WAITS
    if waits:
        del mapping["duration_s"]
        report.warnings.append("Durations are from submission to end: waits are part of them.")
    if started:
        report.guess(
            f"Submissions are the starts ({mapping['start_time_s']}): recorded waits are unknown."
        )
    if TIMES_SIGN not in mapping["num_gpus"] and "num_gpus" not in options.mapping:
        mapping["num_gpus"] = _per(head, mapping, report, options)
    if mapping["num_gpus"] not in head.columns:
        first, second = parts_of(mapping["num_gpus"], head)
        report.guess(f"GPUs of a job are {first} times {second}.")
        mapping = {
            native: source
            for native, source in mapping.items()
            if native in ("num_gpus", "nodes") or source not in (first, second)
        }
    read = ", ".join(
        f"{native} from {source}" for native, source in mapping.items() if native != source
    )
    chosen = set(mapping) <= set(options.mapping)
    how = (
        "Columns are those chosen"
        if chosen
        else "The format is not known; columns were matched by name"
    )
    report.guess(f"{how}{': ' + read if read else ''}.")
    return Plan(mapping, started, waits)


def _fitting(native: str, head: pd.DataFrame, mapping: Mapping[str, str]) -> list[str]:
    """Return the columns that are free and could be a fact by their cells."""
    taken = set(mapping.values())
    return [
        str(column)
        for column in head.columns
        if column not in taken
        and not (kind := column_of(head[column])).empty
        and fits(native, str(column), kind)
    ]


def _ask_columns(
    lacking: tuple[str, ...],
    head: pd.DataFrame,
    mapping: dict[str, str],
    name: str,
    report: Report,
    options: ReadOptions,
) -> None:
    """Put the columns that the user names, or that stand in, for what is lacking into a mapping."""
    unanswered = []
    for native in lacking:
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
    """Return the question which column holds a fact that every job must have."""
    found = ", ".join(map(str, head.columns[:20]))
    ways = ", or two to start and end" if native == "duration_s" else ""
    text_of = (
        f"no column looks like {WANTED[native]} ({native}). Columns found: {found}. Map one of"
        f" them to it{ways}."
    )
    options = {one: _example(head, one) for one in _fitting(native, head, mapping)}
    start, end = mapping.get("start_time_s", ""), mapping.get("end_time_s", "")
    if native == "submit_time_s" and start:
        text_of = (
            f"No column looks like a submission. Was every job submitted when it started ({start})?"
        )
        options = {start: "Yes: how long jobs waited is not known"} | {
            one: f"No, the submission is {example}" for one, example in options.items()
        }
    if native == "duration_s" and end and mapping.get("submit_time_s"):
        options[WAITS] = f"From submission to end ({end}): waits would be part of it"
    asked = start if native == "submit_time_s" else ""
    return Question(f"column.{native}", text_of, options, asked)


def _example(head: pd.DataFrame, column: str) -> str:
    cells = text(head[column])
    return f"{column}: {', '.join(cells[cells != ''].head(3).str.slice(0, 30))}"


def _is_number(cell: str) -> bool:
    return cell.removeprefix("-").replace(".", "", 1).isdecimal()


def _no_header(head: pd.DataFrame, name: str) -> str:
    found = ", ".join(map(str, head.columns[:20]))
    return (
        f"{name}: the first line ({found}) looks like a row, not like names of columns. Put a"
        " line with their names above it, or map them."
    )


def _per(
    head: pd.DataFrame, mapping: Mapping[str, str], report: Report, options: ReadOptions
) -> str:
    """Return the source of GPUs, after asking whether they are those of each node or worker."""
    source = mapping["num_gpus"]
    counts = _counts(text(head[source]))
    if "total" in source:
        return source
    for many, each in PER.items():
        column = factor(map(str, head.columns), many, head)
        if not column or column == source:
            continue
        times = figures(text(head[column]))
        if not (times > 1).any():
            continue
        single = factor(map(str, head.columns), each, head)
        if single and (figures(text(head[single])) * times == counts).mean() > 0.95:
            continue
        product = f"{source}{TIMES_SIGN}{column}"
        answer = report.ask(
            Question(
                f"gpus_per.{many}",
                f"Jobs have up to {times.max():g} {column}: does {source} count the GPUs of the"
                " whole job, or of each?",
                {
                    "job": f"Of the whole job: the largest has {counts.max():g} GPUs",
                    "each": f"Of each: the largest has {(counts * times).max():g} GPUs",
                },
                "each" if (counts < times).any() else "job",
            ),
            options.answers,
        )
        if answer == "each":
            return product
    return source


def _counts(cells: pd.Series) -> pd.Series:
    """Return numbers of GPUs, plain or in a notation."""
    plain = figures(cells)
    return plain.where(plain.notna() | (cells == ""), gpus(cells))


TABLE: Final = Format("table", "Any table, columns mapped", load)
