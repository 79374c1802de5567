"""Which column of a table means what: by name in six languages, and by its cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import pandas as pd

from jobtraces.readers.cells import (
    LENGTHS,
    YES_NO,
    Column,
    bare,
    column_of,
    dated,
    figures,
    gpus,
    name_of,
    text,
    words,
)
from jobtraces.readers.content import Content, Sample, plain
from jobtraces.readers.draft import Draft, Format, Report
from jobtraces.readers.options import SECONDS, OpenQuestionError, Question, ReadOptions
from jobtraces.readers.parquet import column_names, parquet_head, read_parquet
from jobtraces.readers.table import read_table
from jobtraces.readers.typed import (
    TIMES_SIGN,
    Plan,
    Typing,
    native_draft,
    parts_of,
)
from sim.errors import TraceError
from sim.trace import COLUMNS, INSTANTS, NUMBERS, REQUIRED

PER: Final = {"nodes": "per_node", "workers": "per_worker"}
_GROUPS: Final = ("user", "vc")
_NO_GROUP: Final = ("time", "queue", "delay", "mem", "wait", "dauer")
_MOST_GROUPS: Final = 1000


ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    native: tuple(words()["facts"][native]) for native in COLUMNS
}
"""Native column -> names seen in public traces and exports, the most telling first."""


def guess_mapping(
    columns: Iterable[str] | pd.DataFrame, chosen: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Guess which column means what.

    Parameters
    ----------
    columns : iterable of str or DataFrame
        Names of the table, as written or plain; of a table with cells, a column is only taken
        where most of its cells fit the fact.
    chosen : mapping or None
        Native -> source, as the user set it; kept, and its sources are not guessed for anything
        else. "" = leave this one out.

    Returns
    -------
    dict
        Native column -> plain source column; no source occurs twice. GPUs may be a product of two,
        ``nodes*gpus_per_node``.
    """
    cells = columns if isinstance(columns, pd.DataFrame) else None
    written = list(dict.fromkeys(str(column) for column in columns))
    present = list(dict.fromkeys(plain(column) for column in written))
    fixed = {native: plain_source(source, present) for native, source in (chosen or {}).items()}
    taken = {part for source in fixed.values() for part in source.split(TIMES_SIGN)} | set(
        fixed.values()
    )
    mapping = {native: source for native, source in fixed.items() if source}
    ranked = sorted(
        (score, COLUMNS.index(native), place, at, native, source)
        for at, source in enumerate(present)
        for native, (score, place) in _facts_of(source).items()
    )
    for *_, native, source in ranked:
        if native in mapping or native in fixed or source in taken:
            continue
        if cells is not None and not fits(native, source, column_of(cells[source])):
            continue
        mapping[native] = source
        taken.add(source)
    if "num_gpus" not in mapping and "num_gpus" not in fixed:
        # The nodes of a job are a fact of their own, too.
        mapping |= _product(present, taken - {mapping.get("nodes", "")})
    return {native: mapping[native] for native in (*COLUMNS, *mapping) if native in mapping}


def plain_source(source: str, present: Iterable[str]) -> str:
    """Return the plain name of a column, or of both columns of a product."""
    whole = plain(source)
    if whole in present or TIMES_SIGN not in source:
        return whole
    return TIMES_SIGN.join(plain(part) for part in source.split(TIMES_SIGN))


def _facts_of(source: str) -> dict[str, tuple[int, int]]:
    """Return the facts that a name may stand for, each with its rank; less is better."""
    found: dict[str, tuple[int, int]] = {}
    name = name_of(source)
    for form, score in name.forms:
        for native, at in _facts().get(form, ()):
            # `gpu_milli` counts thousandths and `GPUs (h)` the time of GPUs, neither of them GPUs.
            if name.unit in SECONDS and native not in (*INSTANTS, *LENGTHS):
                continue
            # `gpu_time` is no number of GPUs and `queue_time` no queue: only instants may lose a
            # word for time.
            if score == 3 or native in INSTANTS or not source.endswith(("time", "date")):
                found[native] = min(found.get(native, (9, 0)), (3 - score, at))
    return found


@cache
def _facts() -> Mapping[str, list[tuple[str, int]]]:
    """Return bare name -> facts that it stands for, each with its place in their list."""
    found: dict[str, list[tuple[str, int]]] = {}
    for native, listed in ALIASES.items():
        for at, alias in enumerate(listed):
            found.setdefault(bare(alias), []).append((native, at))
    return found


def factor(present: Iterable[str], kind: str, table: pd.DataFrame | None = None) -> str:
    """Return the column that holds a factor of the number of GPUs ("nodes", "workers", "per_node",
    "per_worker"), "" if there is none.
    """
    names = {bare(name) for name in words()["factors"][kind]}
    for source in present:
        if any(form in names for form, _ in name_of(source).forms) and (
            table is None or column_of(table[source]).numbers
        ):
            return source
    return ""


def _product(present: list[str], taken: set[str]) -> dict[str, str]:
    for many, each in PER.items():
        pair = factor(present, many), factor(present, each)
        if all(pair) and not taken & set(pair):
            return {"num_gpus": TIMES_SIGN.join(pair)}
    return {}


def fits(native: str, source: str, column: Column) -> bool:
    """Tell whether the cells of a column could be a fact of jobs."""
    kinds = {
        **dict.fromkeys(INSTANTS, column.moments),
        **dict.fromkeys(LENGTHS, column.lengths),
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
        # Seconds in a queue are no queue, and numbers without end are no users.
        few = column.numbers and column.distinct <= _MOST_GROUPS
        return few and not any(word in source for word in _NO_GROUP)
    return True


def missing(mapping: Mapping[str, str]) -> tuple[str, ...]:
    """Return the required columns that a mapping of native to source columns does not give.

    A start and an end together give the duration, and an id is not needed.
    """
    spans = mapping.get("start_time_s") and mapping.get("end_time_s")
    return tuple(
        native
        for native in REQUIRED[1:]
        if not mapping.get(native) and not (native == "duration_s" and spans)
    )


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


def load_table(content: Content, options: ReadOptions) -> Draft:
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


TABLE: Final = Format("table", "Any table, columns mapped", load_table)


def is_native(sample: Sample) -> bool:
    """Tell whether a table has our own columns."""
    return sample.kind == "parquet" or set(REQUIRED[1:]) <= sample.keys


def _load_native(content: Content, options: ReadOptions) -> Draft:
    wanted = {*COLUMNS, *(plain(source) for source in options.mapping.values())}
    if content.sample.kind == "parquet":
        if not set(REQUIRED[1:]) <= set(column_names(content)):
            return load_table(content, options)
        frame, report = read_parquet(content, options, wanted)
    else:
        frame, report = read_table(content, options, wanted)
    native = {column: column for column in COLUMNS if column in frame.columns}
    if not set(REQUIRED[1:]) <= set(native):
        return load_table(content, options)
    chosen = {column: plain(source) for column, source in options.mapping.items()}
    mapping = {column: source for column, source in (native | chosen).items() if source}
    return native_draft(frame, mapping, report, content.name, options)


NATIVE: Final = Format("native", "Trainyard table (CSV, TSV or Parquet)", _load_native)
