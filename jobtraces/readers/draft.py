"""The table of jobs between the steps of reading, with the report of every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd

from jobtraces.readers.content import Content
from jobtraces.readers.options import Question, ReadOptions
from sim.errors import ParameterError
from sim.trace import Trace

RUNNING: Final = "still running when the trace ends"
PENDING: Final = "the job had not started when the trace ends"
"""Reasons to leave a row out that `Import.unended` holds."""
ISSUE_COLUMNS: Final = ("row", "job_id", "action", "reason", "detail")


@dataclass
class Report:
    """Collects what happens to rows while a trace is read; rows are named by the index of the
    tables passed in.

    Parameters
    ----------
    read : int
        Rows (or jobs) found in the source.

    Attributes
    ----------
    work_gpu_s : tuple of float, GPU-seconds
        Before and after fractional GPU counts are rounded up.
    """

    read: int
    guesses: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    parts: list[pd.DataFrame] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    offers: list[Question] = field(default_factory=list)
    doubts: list[tuple[str, str]] = field(default_factory=list)
    answered: list[tuple[Question, str]] = field(default_factory=list)
    unended: list[pd.DataFrame] = field(default_factory=list)
    work_gpu_s: tuple[float, float] = (0.0, 0.0)

    def drop(
        self, jobs: pd.DataFrame, bad: pd.Series, reason: str, detail: pd.Series | str = ""
    ) -> pd.DataFrame:
        """Count the rows where `bad` as dropped and return the others."""
        if not bad.any():
            return jobs
        self._note("dropped", jobs, bad, reason, detail)
        if reason.startswith((RUNNING, PENDING)):
            state = "pending" if reason.startswith(PENDING) else "running"
            self.unended.append(jobs[bad].assign(state=state))
        return jobs[~bad]

    def alter(
        self, jobs: pd.DataFrame, changed: pd.Series, reason: str, detail: pd.Series | str = ""
    ) -> None:
        """Count the rows where `changed` as altered."""
        if changed.any():
            self._note("altered", jobs, changed, reason, detail)

    def merge(self, jobs: pd.DataFrame, again: pd.Series, reason: str) -> None:
        """Count the rows where `again` as merged into others."""
        self._note("merged", jobs, again, reason, "")

    def guess(self, sentence: str) -> None:
        """Write down an assumption the user may want to correct."""
        if sentence not in self.guesses:
            self.guesses.append(sentence)

    def ask(self, question: Question, answers: Mapping[str, str]) -> str:
        """Return the answer to a question, or its default, which leaves the question open.

        Raises
        ------
        ParameterError
            If the answer is not one of those offered.
        """
        if question.id not in answers:
            self.questions.append(question)
        return self._answered(question, answers)

    def offer(self, question: Question, answers: Mapping[str, str]) -> str:
        """Return the answer to what may be chosen and need not be asked, or its default.

        Raises
        ------
        ParameterError
            If the answer is not one of those offered.
        """
        self.offers.append(question)
        return self._answered(question, answers)

    def _answered(self, question: Question, answers: Mapping[str, str]) -> str:
        answer = answers.get(question.id, question.default)
        if question.id in answers and not question.takes(answer):
            raise ParameterError(
                f"The answer {question.id} = {answer!r} is not {question.allowed}."
            )
        if question.id in answers:
            self.answered.append((question, answer))
        return answer

    def issues(self, used: pd.Index) -> pd.DataFrame:
        """Return one line per dropped row and per alteration of a row in `used`, in order of the
        source.
        """
        if not self.parts:
            return pd.DataFrame(
                {
                    column: pd.Series(dtype=np.int64 if column == "row" else "str")
                    for column in ISSUE_COLUMNS
                }
            )
        table = pd.concat(self.parts, ignore_index=True)
        # A row altered first and dropped later is only dropped: the alteration is nowhere to be
        # seen.
        table = table[(table["action"] != "altered") | table["row"].isin(used)]
        return table.sort_values("row", kind="stable", ignore_index=True)

    def _note(
        self, action: str, jobs: pd.DataFrame, rows: pd.Series, reason: str, detail: pd.Series | str
    ) -> None:
        index = jobs.index[rows.to_numpy()]
        ids = jobs.loc[index, "job_id"] if "job_id" in jobs else pd.Series("", index=index)
        cells = (
            detail.reindex(index)
            if isinstance(detail, pd.Series)
            else pd.Series(detail, index=index)
        )
        part = {
            "row": index.to_numpy(np.int64),
            "job_id": ids.astype("str").fillna("").to_numpy(),
            "action": action,
            "reason": reason,
            "detail": cells.astype("str").fillna("").str.slice(0, 200).to_numpy(),
        }
        self.parts.append(pd.DataFrame(part, columns=list(ISSUE_COLUMNS)))


@dataclass(frozen=True, eq=False)
class Import:
    """A trace together with the account of how it was read.

    Parameters
    ----------
    trace : Trace
        The jobs.
    fmt, title : str
        Key and name of the format.
    read, used : int
        Rows (or jobs) found and taken over; ``used + dropped + merged = read``.
    issues : DataFrame
        Columns row (1-based, the header not counted), job_id, action ("dropped", "merged" or
        "altered"), reason, detail.
    guesses, warnings : tuple of str
        Sentences: what was assumed, and what may distort a result.
    load_before_gpu_s, load_after_gpu_s : float, GPU-seconds
        Work before and after fractional GPU counts were rounded up; equal where none was.
    questions : tuple of Question
        Those without an answer; their defaults were taken.
    offers : tuple of Question
        What may be chosen, too: `warnings` say why.
    answered : tuple of (Question, str)
        Those with an answer of the user.
    columns : mapping of str to str
        Native column -> plain name of the column that it was read from, where that was guessed or
        mapped.
    first, cells : DataFrame
        Of the first jobs used, the row of the source as index: native columns as they were
        understood, instants not yet counted from the first submission; and the cells that they came
        from, as far as those are known.
    unended : DataFrame
        Jobs that were left out because they had not ended: native columns on the clock of the
        trace, and `state` ("running" or "pending"), with the row of the source as index.
    """

    trace: Trace
    fmt: str
    title: str
    read: int
    used: int
    issues: pd.DataFrame
    guesses: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    load_before_gpu_s: float = 0.0
    load_after_gpu_s: float = 0.0
    questions: tuple[Question, ...] = ()
    offers: tuple[Question, ...] = ()
    answered: tuple[tuple[Question, str], ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    first: pd.DataFrame = field(default_factory=pd.DataFrame)
    cells: pd.DataFrame = field(default_factory=pd.DataFrame)
    unended: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def dropped(self) -> int:
        """Rows left out."""
        return int((self.issues["action"] == "dropped").sum())

    @property
    def merged(self) -> int:
        """Rows that became one job with others."""
        return int((self.issues["action"] == "merged").sum())

    def counts(self) -> list[tuple[str, str, int]]:
        """Return (action, reason, rows), dropped before altered and the most frequent first."""
        lines = Counter(zip(self.issues["action"], self.issues["reason"], strict=True))
        found = [(str(action), str(reason), count) for (action, reason), count in lines.items()]
        return sorted(found, key=lambda line: (line[0] != "dropped", -line[2], line[1]))

    def issues_csv(self) -> str:
        """Return the issues as CSV in which no cell is taken for a formula by a spreadsheet."""
        table = self.issues.copy()
        for column in ("job_id", "detail"):
            text = table[column].astype("str")
            table[column] = text.where(~text.str.match(r"[=+\-@\t\r]"), "'" + text)
        return str(table.to_csv(index=False))


@dataclass(frozen=True)
class Draft:
    """A trace between the steps of reading: `recognize`, `read_columns`, `check`, `import_jobs`.

    Parameters
    ----------
    jobs : DataFrame
        Native columns, indexed by the 1-based row of the source. Instants are Unix seconds where
        `calendar`, else seconds from any zero; unreadable = NaN. Empty until the columns are read.
    report : Report
        What was dropped, altered, guessed and asked so far.
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
    name : str
        What the user calls the trace.
    fmt, title : str
        Key and name of the format.
    options : ReadOptions
        Choices and answers of the user.
    load : callable or None
        Reads the columns of the recognized file; None once that is done, so that the file is
        released before the checks take memory of their own.
    """

    jobs: pd.DataFrame
    report: Report
    calendar: bool = False
    zone: str = "UTC"
    ids_repeat: bool = False
    raw: Mapping[str, pd.Series] = field(default_factory=dict)
    attempts: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    fmt: str = ""
    title: str = ""
    options: ReadOptions = field(default_factory=ReadOptions)
    load: Callable[[], Draft] | None = None


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
