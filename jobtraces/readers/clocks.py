"""What the time columns of one table must share, and which columns a mapping may name."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from jobtraces.readers.cells import Instants, is_unix
from jobtraces.readers.options import ReadOptions
from jobtraces.readers.report import Report
from sim.errors import TraceError
from sim.trace import COLUMNS


def check_mapping(frame: pd.DataFrame, mapping: Mapping[str, str], name: str) -> None:
    """Refuse a mapping of native to source columns that a table cannot fulfil.

    Raises
    ------
    TraceError
        If a name is not known, or one source is mapped twice.
    """
    for native, source in mapping.items():
        if native not in COLUMNS:
            raise TraceError(
                f"{name}: {native} is not a column of the native schema. Use one of"
                f" {', '.join(COLUMNS)}."
            )
        if source not in frame.columns:
            raise TraceError(
                f"{name}: column {source}, mapped to {native}, is not in the table. Columns found:"
                f" {', '.join(map(str, frame.columns[:20]))}."
            )
    twice = pd.Series(list(mapping.values()), dtype="str")
    if twice.duplicated().any():
        raise TraceError(
            f"{name}: column {twice[twice.duplicated()].iloc[0]} is mapped twice. Give each native"
            " column a source of its own."
        )


def check_clocks(times: Mapping[str, Instants], name: str) -> None:
    """Refuse columns of time that do not share one kind of clock.

    Raises
    ------
    TraceError
        If some hold dates and others figures, or only some carry offsets.
    """
    if len({read.calendar for read in times.values()}) > 1:
        seconds = ", ".join(native for native, read in times.items() if not read.calendar)
        raise TraceError(
            f"{name}: {seconds} holds numbers while other columns hold dates. Write all times in"
            " one way."
        )
    if len({read.aware for read in times.values()}) > 1:
        naive = ", ".join(native for native, read in times.items() if not read.aware)
        raise TraceError(
            f"{name}: {naive} holds times without an offset while other columns have one. Give"
            " every time an offset, or none and a zone."
        )


def clock_of(
    times: Mapping[str, Instants], report: Report, options: ReadOptions
) -> tuple[bool, str]:
    """Return whether the submissions are Unix seconds, and the zone of the first; say what was
    assumed.
    """
    submit = times.get("submit_time_s")
    if submit is None:
        return False, "UTC"
    zone = options.zone or "UTC"
    if submit.calendar:
        doubtful = int(submit.doubtful.sum())
        if submit.aware:
            report.guess("Times carry offsets; they are converted to UTC.")
        else:
            report.guess(
                "Times have no offset; they are read as"
                f" {zone}{f' ({doubtful} of them around a change of clocks)' if doubtful else ''}."
            )
        return True, "UTC" if submit.aware else zone
    if options.time_unit not in ("", "s"):
        report.guess(f"Numeric times are in {options.time_unit}.")
    if is_unix(submit.seconds):
        report.guess("Submission times are read as Unix seconds.")
        return True, zone
    return False, "UTC"
