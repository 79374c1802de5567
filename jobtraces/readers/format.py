"""What a reader is, and the half-finished table that it hands over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from jobtraces.readers.options import ReadOptions
from jobtraces.readers.report import Report
from jobtraces.readers.source import Content


@dataclass(frozen=True)
class Draft:
    """A table of jobs as a format understood it, before the common checks.

    Parameters
    ----------
    jobs : DataFrame
        Native columns, indexed by the 1-based row of the source. Instants are Unix seconds where
        `calendar`, else seconds from any zero; unreadable = NaN.
    report : Report
        What was dropped, altered and guessed so far.
    calendar : bool
        Whether instants are Unix seconds.
    zone : str
        Zone in which the first submission is written down.
    ids_repeat : bool
        The source is known to repeat ids (Slurm requeues): repeated ones are made unique instead of
        dropped.
    raw : mapping of str to Series
        Native column -> the cells it came from, for the details of the report.
    attempts : bool
        Durations add up several attempts: they are not the time from the first start to the end.
    columns : mapping of str to str
        Native column -> plain name of the column that it was read from, where that was guessed or
        mapped.
    """

    jobs: pd.DataFrame
    report: Report
    calendar: bool = False
    zone: str = "UTC"
    ids_repeat: bool = False
    raw: Mapping[str, pd.Series] = field(default_factory=dict)
    attempts: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Format:
    """One kind of trace file.

    Parameters
    ----------
    name : str
        Key in `FORMATS` and value of ``--format``.
    title : str
        What the user reads.
    load : callable
        Turns the content into a draft.
    sources : mapping of tuple of str
        Native column -> plain names of the columns that it comes from, the first that is there;
        where a reader takes its columns by name.
    """

    name: str
    title: str
    load: Callable[[Content, ReadOptions], Draft]
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
