"""The job table between the reading steps, and the report on every row."""

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
"""Reasons for dropping a row that put it into `Import.unended`."""
ISSUE_COLUMNS: Final = ("row", "job_id", "action", "reason", "detail")


@dataclass
class Report:
    """Collects what happens to rows while a trace is read; rows are named by table index.

    Parameters
    ----------
    read : int
        Number of rows (or jobs) in the source.

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
        self, jobs: pd.DataFrame, is_bad: pd.Series, reason: str, detail: pd.Series | str = ""
    ) -> pd.DataFrame:
        """Record the rows where `is_bad` as dropped, and return the other rows.

        Rows with the reason `RUNNING` or `PENDING` are also added to `unended`.
        """
        if not is_bad.any():
            return jobs
        self._record("dropped", jobs, is_bad, reason, detail)
        if reason.startswith((RUNNING, PENDING)):
            state = "pending" if reason.startswith(PENDING) else "running"
            self.unended.append(jobs[is_bad].assign(state=state))
        return jobs[~is_bad]

    def alter(
        self, jobs: pd.DataFrame, is_changed: pd.Series, reason: str, detail: pd.Series | str = ""
    ) -> None:
        """Record the rows where `is_changed` as altered."""
        if is_changed.any():
            self._record("altered", jobs, is_changed, reason, detail)

    def merge(self, jobs: pd.DataFrame, is_repeat: pd.Series, reason: str) -> None:
        """Record the rows where `is_repeat` as merged into others."""
        self._record("merged", jobs, is_repeat, reason, "")

    def guess(self, sentence: str) -> None:
        """Record an assumption that the user may want to correct, unless it is recorded."""
        if sentence not in self.guesses:
            self.guesses.append(sentence)

    def ask(self, question: Question, answers: Mapping[str, str]) -> str:
        """Return the answer to a question, or its default; the question then stays open.

        An open question is added to `questions`.

        Raises
        ------
        ParameterError
            If the answer is not allowed.
        """
        if question.id not in answers:
            self.questions.append(question)
        return self._checked_answer(question, answers)

    def ask_optional(self, question: Question, answers: Mapping[str, str]) -> str:
        """Add an optional question to `offers`, and return its answer or its default.

        Raises
        ------
        ParameterError
            If the answer is not allowed.
        """
        self.offers.append(question)
        return self._checked_answer(question, answers)

    def _checked_answer(self, question: Question, answers: Mapping[str, str]) -> str:
        """Return the user's answer after checking and recording it, or the default."""
        answer = answers.get(question.id, question.default)
        if question.id in answers and not question.takes(answer):
            raise ParameterError(
                f"The answer {question.id} = {answer!r} is not {question.allowed}."
            )
        if question.id in answers:
            self.answered.append((question, answer))
        return answer

    def issues(self, used: pd.Index) -> pd.DataFrame:
        """Return one line per dropped or merged row and per alteration of a used row.

        Lines are in source order, with the columns `ISSUE_COLUMNS`.
        """
        if not self.parts:
            return pd.DataFrame(
                {
                    column: pd.Series(dtype=np.int64 if column == "row" else "str")
                    for column in ISSUE_COLUMNS
                }
            )
        table = pd.concat(self.parts, ignore_index=True)
        # A row altered first and dropped later counts only as dropped.
        table = table[(table["action"] != "altered") | table["row"].isin(used)]
        return table.sort_values("row", kind="stable", ignore_index=True)

    def _record(
        self, action: str, jobs: pd.DataFrame, rows: pd.Series, reason: str, detail: pd.Series | str
    ) -> None:
        """Add a table of the rows with an action, its reason and details to `parts`.

        Details are cut to 200 characters.
        """
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
    """A trace with the report on how it was read.

    Parameters
    ----------
    trace : Trace
        The jobs.
    fmt, title : str
        Key and name of the format.
    read, used : int
        Rows (or jobs) in the source and in the trace; ``used + dropped + merged = read``.
    issues : DataFrame
        Columns row (1-based, without the header), job_id, action ("dropped", "merged" or
        "altered"), reason, detail.
    guesses, warnings : tuple of str
        Sentences about assumptions, and about data that may distort results.
    load_before_gpu_s, load_after_gpu_s : float, GPU-seconds
        Work before and after fractional GPU counts were rounded up.
    questions : tuple of Question
        Questions without an answer; their defaults were used.
    offers : tuple of Question
        Optional questions, explained by `warnings`.
    answered : tuple of (Question, str)
        Questions with the user's answers.
    columns : mapping of str to str
        Native column -> plain name of its source column, if guessed or mapped.
    first, cells : DataFrame
        The first jobs, indexed by source row: native columns (instants not yet relative to the
        first submission), and the source cells, if known.
    unended : DataFrame
        Jobs dropped because they had not ended, indexed by source row: native columns on the clock
        of the trace, and `state` ("running" or "pending").
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
        """Number of dropped rows."""
        return int((self.issues["action"] == "dropped").sum())

    @property
    def merged(self) -> int:
        """Number of rows merged into others."""
        return int((self.issues["action"] == "merged").sum())

    def counts(self) -> list[tuple[str, str, int]]:
        """Return (action, reason, rows); dropped first, then the most frequent."""
        lines = Counter(zip(self.issues["action"], self.issues["reason"], strict=True))
        counts = [(str(action), str(reason), count) for (action, reason), count in lines.items()]
        return sorted(counts, key=lambda line: (line[0] != "dropped", -line[2], line[1]))

    def issues_csv(self) -> str:
        """Return the issues as CSV, with cells that look like formulas escaped."""
        table = self.issues.copy()
        for column in ("job_id", "detail"):
            text = table[column].astype("str")
            table[column] = text.where(~text.str.match(r"[=+\-@\t\r]"), "'" + text)
        return str(table.to_csv(index=False))


@dataclass(frozen=True)
class Draft:
    """A trace between the reading steps `recognize`, `read_columns`, `check_jobs`, `import_jobs`.

    Parameters
    ----------
    jobs : DataFrame
        Native columns, indexed by 1-based source row. Instants are Unix seconds if `calendar`, else
        seconds from any zero; unreadable = NaN. Empty until the columns are read.
    report : Report
        Rows dropped and altered, assumptions and questions so far.
    calendar : bool
        Whether instants are Unix seconds.
    zone : str
        Time zone in which the first submission is shown.
    ids_repeat : bool
        Whether the source repeats ids (Slurm requeues): they are made unique instead of dropped.
    raw : mapping of str to Series
        Native column -> its source cells, for details in the report.
    attempts : bool
        Whether durations are sums over several attempts, not the time from start to end.
    columns : mapping of str to str
        Native column -> plain name of its source column, if guessed or mapped.
    name : str
        Name of the trace.
    fmt, title : str
        Key and name of the format.
    options : ReadOptions
        Choices and answers of the user.
    load : callable or None
        Reads the columns of the recognized file; None afterwards, so that the file is released
        before the checks.
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
    """A format of trace files.

    Parameters
    ----------
    name : str
        Key in `FORMATS` and value of ``--format``.
    title : str
        Name for the user.
    load : callable
        Reads a content into a draft.
    sources : mapping of tuple of str
        Native column -> plain names of possible source columns, in order of preference; empty if
        columns are not read by name.
    """

    name: str
    title: str
    load: Callable[[Content, ReadOptions], Draft]
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
