"""Plausibility checks: ask or warn about units, clocks, outcomes and sizes that are unlikely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.readers.draft import Draft, Report
from jobtraces.readers.options import SECONDS, Question, ReadOptions
from sim.clock import LATEST_S
from sim.errors import TraceError
from sim.trace import INSTANTS

KEEP: Final = "go_on"
DROP: Final = "leave_out"
KEEP_TEXT: Final = "keep the data: it is correct"
GRAVE_QUESTIONS: Final = frozenset({"span", "thousand", "work"})
"""Questions that make every comparison meaningless while they are open."""
ROW_QUESTIONS: Final = frozenset(
    {"hole", "work", "same", "same_gpus", "twice", "open", "left", "long_rows", "collide"}
    | {"fractions"}
)
"""Questions about the rows of one file: an answer does not apply to similar files."""
WINDOW: Final = "window"
DAY_S: Final = 86_400.0
YEAR_S: Final = 365.25 * DAY_S
MAX_SPAN_S: Final = 5 * YEAR_S
SMALLER_UNITS: Final = {
    "ms": (1e-3, "milliseconds"),
    "us": (1e-6, "microseconds"),
    "ns": (1e-9, "nanoseconds"),
}
RUNNING: Final = frozenset(
    {"running", "suspended", "completing", "resizing", "signaling", "stopped", "preempting"}
)
PENDING: Final = frozenset({"pending", "queued", "waiting", "configuring", "submitted", "held"})
HARMLESS_REASONS: Final = (
    r"CPU job|step of|part of|never started|had not started|still running|answered|another kind"
)
"""Reasons for dropping a row that do not mean the file was misread."""
ANSWERED: Final = "left out as answered: "
SAME_ID: Final = "an earlier row has the same id"
_MAPPED_FORMATS: Final = ("native", "table")
Mask = pd.Series


@dataclass(frozen=True)
class DataReview:
    """Asks the user about implausible data, warns, and records open doubts.

    Parameters
    ----------
    report : Report
        Report of this import.
    answers : mapping of str to str
        Answers of the user, see `ReadOptions.answers`.
    """

    report: Report
    answers: Mapping[str, str]

    def ask(self, key: str, text: str, keep_text: str = KEEP_TEXT, **options: str) -> str:
        """Return the answer to a question; without one, or to keep the data, record a doubt.

        `options` are further answers and their labels; such an answer is recorded as an assumption.
        """
        answer = self.report.ask(
            Question(key, text, {**options, KEEP: keep_text}, KEEP), self.answers
        )
        if answer == KEEP:
            self.doubt(key, text)
            if key in self.answers:
                self.report.warnings.append(f"{text} Answered: {keep_text}.")
        else:
            self.report.guess(f"{text} Answered: {options[answer]}.")
        return answer

    @property
    def has_free_answer(self) -> bool:
        """Whether the user entered durations for many jobs at once, so round values are normal."""
        return any(question.free for question, _ in self.report.answered)

    def uses_default(self, key: str) -> bool:
        """Return whether a question was asked and its default is used for lack of an answer."""
        return any(question.id == key for question in self.report.questions)

    def doubt(self, key: str, text: str) -> None:
        """Record a doubt, which comparisons repeat."""
        self.report.doubts.append((key, text))

    def warn(self, key: str, text: str, drop_text: str = "") -> bool:
        """Warn, or offer to drop the rows concerned; return whether the user chose to drop.

        The choice to drop is recorded as an assumption instead of a warning. Without `drop_text`
        there is no choice.
        """
        if not drop_text:
            self.report.warnings.append(text)
            return False
        question = Question(key, text, {DROP: drop_text, KEEP: KEEP_TEXT}, KEEP)
        if self.report.ask_optional(question, self.answers) == DROP:
            self.report.guess(f"{text} Answered: {drop_text}.")
            return True
        self.report.warnings.append(text)
        return False


def check_units(jobs: pd.DataFrame, draft: Draft, review: DataReview) -> pd.DataFrame:
    """Ask about units of times and durations and ends before starts; return corrected jobs.

    Must be called before rows are dropped for their size.

    Parameters
    ----------
    jobs : DataFrame
        Jobs with finite submissions, durations and GPU counts.
    draft : Draft
        Facts of the format, and choices of the user.
    review : DataReview
        Asks and warns.
    """
    if jobs.empty:
        return jobs
    jobs = _check_span(jobs, draft, review)
    jobs = _check_reversed_times(jobs, review)
    durations = jobs["duration_s"].to_numpy()
    positive = durations[durations > 0]
    if review.uses_default("span") and _durations_are_spans(jobs):
        # One fault, one question: durations are in the unit of the times.
        return jobs
    thousands = np.mod(positive, 1000.0) == 0
    if not review.has_free_answer and len(positive) >= 50 and thousands.mean() >= 0.95:
        text = (
            f"{thousands.mean():.0%} of the durations are multiples of 1000, such as"
            f" {positive[thousands][0]:,.0f} s. Are they milliseconds?"
        )
        answer = review.ask("thousand", text, "they are seconds", ms="they are milliseconds")
        return (
            jobs if answer == KEEP else _scale_columns(jobs, ("duration_s", "time_limit_s"), 1e-3)
        )
    return _check_long_durations(jobs, positive, draft.options, review)


def _check_span(jobs: pd.DataFrame, draft: Draft, review: DataReview) -> pd.DataFrame:
    """If submissions span over 5 years, ask for the unit or rows to drop; apply the answer.

    The answer rescales instants, and durations that are spans, or drops the rows more than 2.5
    years from the median.
    """
    submit = jobs["submit_time_s"]
    median_s = submit.median()
    # A row decades away from all others is dropped later and does not show the unit.
    central = submit[(submit - median_s).abs() <= LATEST_S / 2]
    if len(central) < 2 or not central.max() - central.min() > MAX_SPAN_S:
        return jobs
    span = float(submit.max() - submit.min())
    # A wrong unit stretches all submissions; a wrong clock moves few.
    is_stretched = float(central.quantile(0.9) - central.quantile(0.1)) > 0.1 * (
        central.max() - central.min()
    )
    plausible_units = {
        unit: name
        for unit, (factor, name) in SMALLER_UNITS.items()
        if is_stretched and not draft.calendar and DAY_S <= span * factor <= 2 * YEAR_S
    }
    unit_question = (
        f" Are the times {next(iter(plausible_units.values()))}?" if plausible_units else ""
    )
    is_far = (submit - median_s).abs() > MAX_SPAN_S / 2
    answer = review.ask(
        "span",
        f"The submissions span {_duration_text(span)}.{unit_question}",
        "the times are right",
        **{unit: f"they are {name}" for unit, name in plausible_units.items()},
        **{WINDOW: f"drop the {int(is_far.sum()):,} rows more than 2.5 years from the median"},
    )
    if answer == WINDOW:
        reason = f"{ANSWERED}more than 2.5 years from the median submission"
        return review.report.drop(jobs, is_far, reason, submit)
    if answer == KEEP:
        return jobs
    other_columns = ("duration_s",) if _durations_are_spans(jobs) else ()
    return _scale_columns(jobs, (*INSTANTS, *other_columns), SMALLER_UNITS[answer][0])


def _durations_are_spans(jobs: pd.DataFrame) -> bool:
    """Return whether over 90 % of the durations are end minus start, hence in their unit."""
    is_span = np.abs(jobs["duration_s"] - _span_s(jobs)) <= 1e-3
    return bool(is_span.mean() > 0.9)


def _check_reversed_times(jobs: pd.DataFrame, review: DataReview) -> pd.DataFrame:
    """Swap start and end of rows that end before they start, if so answered, or drop them.

    Asks only if more than 1 % of the rows are reversed.
    """
    span_s = _span_s(jobs)
    is_reversed = span_s < 0
    if not is_reversed.any():
        return jobs
    if is_reversed.mean() > 0.01:
        text = (
            f"{_count_text(is_reversed)} end before they start, the first by"
            f" {_duration_text(-float(span_s[is_reversed].iloc[0]))}. Are the columns swapped?"
        )
        keep_text = "the columns are right: drop these rows"
        if (
            review.ask("reversed", text, keep_text, swap="swap start and end of these rows")
            == "swap"
        ):
            start, end = jobs["start_time_s"], jobs["end_time_s"]
            return jobs.assign(
                start_time_s=start.where(~is_reversed, end),
                end_time_s=end.where(~is_reversed, start),
                duration_s=jobs["duration_s"].abs().where(is_reversed, jobs["duration_s"]),
            )
    return review.report.drop(
        jobs, is_reversed, "the end is before the start", span_s.map("{:g} s after it".format)
    )


def _check_long_durations(
    jobs: pd.DataFrame, positive: NDArray[np.float64], options: ReadOptions, review: DataReview
) -> pd.DataFrame:
    """Ask about the unit of durations if most are very long; offer to drop the longest.

    Asks if the median is over 60 days, else offers to drop jobs of more than 5 years; returns the
    jobs with rescaled durations, or without the dropped rows.
    """
    # Jobs that are dropped for their size do not show the unit.
    positive = positive[positive <= LATEST_S]
    median_s = float(np.median(positive)) if len(positive) else 0.0
    if median_s > 60 * DAY_S:
        smaller = {"s": 1.0, "ms": 1e-3}
        factors = {
            unit: factor / SECONDS[options.duration_unit or "s"]
            for unit, factor in smaller.items()
            if factor < SECONDS[options.duration_unit or "s"]
        }
        names = {"s": "they are seconds", "ms": "they are milliseconds"}
        text = f"Half of the jobs run for {_duration_text(median_s)} or more. Is the unit right?"
        answer = review.ask(
            "long", text, "the unit is right", **{unit: names[unit] for unit in factors}
        )
        return jobs if answer == KEEP else _scale_columns(jobs, ("duration_s",), factors[answer])
    is_too_long = (jobs["duration_s"] > MAX_SPAN_S) & (jobs["duration_s"] <= LATEST_S)
    if is_too_long.any():
        text = f"{_count_text(is_too_long)} run for more than 5 years."
        if review.warn("long_rows", text, f"drop these {int(is_too_long.sum()):,} jobs"):
            return review.report.drop(jobs, is_too_long, f"{ANSWERED}it runs for more than 5 years")
    return jobs


def find_unended(jobs: pd.DataFrame) -> tuple[Mask, Mask]:
    """Return which jobs were running, and which pending, when the table was written.

    By the words of `status`; none without this column.
    """
    if "status" not in jobs:
        no_job = pd.Series(False, index=jobs.index)
        return no_job, no_job
    words = {str(word): str(word).strip().lower() for word in jobs["status"].dropna().unique()}
    return (
        jobs["status"].isin([word for word, lower in words.items() if lower in RUNNING]),
        jobs["status"].isin([word for word, lower in words.items() if lower in PENDING]),
    )


def check_history(unended: int, review: DataReview) -> None:
    """Ask or warn if many rows had not ended: the file may be a snapshot of the queue."""
    share = unended / max(review.report.read, 1)
    text = f"{share:.0%} of {review.report.read:,} rows had not ended when the file was written"
    if share > 0.5:
        review.ask(
            "open",
            f"{text}. Is it a snapshot of the queue, not a history?",
            "use the jobs that ended",
        )
    elif share > 0.2:
        review.warn("open", f"{text}. They are dropped unless you choose to cut them there.")


def check_counts_and_names(jobs: pd.DataFrame, draft: Draft, review: DataReview) -> pd.DataFrame:
    """Ask about doubtful GPU counts, users and virtual clusters; return the corrected jobs.

    GPU counts may be percentages or CPU cores (then moved to `cpus`); a column of users or virtual
    clusters with more than 1,000 distinct numbers may be no names (then dropped). Must be called
    before CPU jobs are dropped and GPUs rounded.
    """
    gpus = jobs["num_gpus"].to_numpy()
    if len(gpus) >= 20 and ((np.mod(gpus, 5) == 0) & (gpus >= 5)).mean() >= 0.95:
        text = (
            f"Nearly all GPU counts are multiples of 5, such as {gpus[0]:g}. Are they percentages?"
        )
        if review.ask("percent", text, "they are GPUs", percent="100 is one GPU") == "percent":
            jobs = _scale_columns(jobs, ("num_gpus", "min_gpus", "max_gpus"), 0.01)
    if draft.fmt not in _MAPPED_FORMATS:
        return jobs
    source = str(draft.raw["num_gpus"].name) if "num_gpus" in draft.raw else ""
    if "cpu" in source and "gpu" not in source:
        text = f"The GPU counts come from the column {source}. Are they CPU cores?"
        if review.ask("suspect_gpus", text, "they are GPUs", cores="they are CPU cores") == "cores":
            return jobs.assign(cpus=jobs["num_gpus"], num_gpus=0.0)
    for column in ("user", "vc"):
        source = str(draft.raw[column].name) if column in draft.raw else column
        if column not in jobs or source == column:
            continue
        names = pd.Series(jobs[column].dropna().unique())
        if len(names) > 1000 and pd.to_numeric(names, errors="coerce").notna().all():
            text = (
                f"The column {source}, read as {column}, holds {len(names):,}"
                f" different numbers, such as {names[0]}. Is it really a {column}?"
            )
            drop_text = "no: ignore the column"
            if review.ask(f"suspect_{column}", text, "yes", leave_out=drop_text) == DROP:
                jobs = jobs.drop(columns=column)
    return jobs


def check_jobs_together(jobs: pd.DataFrame, attempts: bool, review: DataReview) -> pd.DataFrame:
    """Ask and warn about what only all jobs together show, such as gaps and repeats.

    Also asks whether to drop a job with over half of all GPU time. Returns the jobs changed by the
    answers.

    Parameters
    ----------
    jobs : DataFrame
        Jobs that are still in use.
    attempts : bool
        Whether durations may exclude the time between several attempts.
    review : DataReview
        Asks and warns.
    """
    if len(jobs) < 2:
        return jobs
    jobs = _check_contradiction(jobs, review) if not attempts else jobs
    jobs = _check_gap(_check_early_starts(jobs, review), review)
    jobs = _check_shared_values(_check_repeated_rows(jobs, review), review)
    work = (jobs["num_gpus"] * jobs["duration_s"]).to_numpy()
    share = float(work.max() / work.sum()) if len(work) and work.sum() > 0 else 0.0
    if len(jobs) >= 50 and share > 0.5:
        largest_index = int(work.argmax())
        largest = jobs.iloc[largest_index]
        text = (
            f"Job {largest['job_id']} alone asks for {largest['num_gpus']:,.0f} GPUs for"
            f" {_duration_text(float(largest['duration_s']))}: {share:.0%} of all GPU time."
        )
        if review.ask("work", text, leave_out="drop this job") == DROP:
            jobs = review.report.drop(
                jobs,
                pd.Series(np.arange(len(jobs)) == largest_index, index=jobs.index),
                f"{ANSWERED}more than half of all GPU time",
            )
    return jobs


def _check_contradiction(jobs: pd.DataFrame, review: DataReview) -> pd.DataFrame:
    """Ask which is right if durations differ from the time from start to end.

    Returns the jobs with the times from start to end as durations, if so answered.
    """
    span_s = _span_s(jobs)
    difference_s = (jobs["duration_s"] - span_s).abs()
    is_different = difference_s > np.maximum(60.0, 0.01 * span_s)
    if not is_different.mean() > 0.01:
        return jobs
    examples = zip(
        jobs["job_id"][is_different],
        jobs["duration_s"][is_different],
        span_s[is_different],
        strict=True,
    )
    listed = "; ".join(f"{job}: {run:g} s and {span:g} s" for job, run, span in list(examples)[:3])
    text = (
        f"The duration of {_count_text(is_different)} is not the time from start to end ({listed})."
        " Which is right?"
    )
    options = {"end": "the time from start to end"}
    if review.ask("contradiction", text, "the duration", **options) == "end":
        return jobs.assign(duration_s=jobs["duration_s"].where(span_s.isna(), span_s))
    return jobs


def _check_early_starts(jobs: pd.DataFrame, review: DataReview) -> pd.DataFrame:
    """Ask or warn about starts before submissions; shift or ignore starts if so answered.

    Asks if nearly all of them are early by one shift of time zones (starts and ends are then
    moved), or if over 5 % of all starts are early.
    """
    if "start_time_s" not in jobs:
        return jobs
    ahead = jobs["submit_time_s"] - jobs["start_time_s"]
    # Infinite starts are treated as missing later.
    is_early = (ahead > 0) & np.isfinite(ahead)
    if not is_early.mean() > 0.001:
        return jobs
    offsets = ahead[is_early]
    shift = 900.0 * round(float(offsets.median()) / 900)
    is_one_shift = ((offsets - shift).abs() <= 120).mean() >= 0.9
    is_zone_shift = shift > 0 and len(offsets) >= 5 and bool(is_one_shift)
    text = f"{_count_text(is_early)} start before they are submitted"
    if not is_zone_shift and is_early.mean() <= 0.05:
        review.warn("early", f"{text}. Their starts are moved to the submission.")
        return jobs
    options = {"leave_out": "ignore all recorded starts"}
    if is_zone_shift:
        text += f", nearly all by {_duration_text(shift)}. Are the two in different time zones?"
        options["shift"] = f"move starts and ends by {_duration_text(shift)}"
    else:
        text += ". Is the submission column right?"
    answer = review.ask("early", text, "move those starts to the submission", **options)
    if answer == "shift":
        return _shift_times(jobs, shift)
    return jobs.drop(columns="start_time_s") if answer == DROP else jobs


def _check_gap(jobs: pd.DataFrame, review: DataReview) -> pd.DataFrame:
    """Ask which part of the jobs to keep if a gap fills half the trace; drop the other part.

    Only warns if all jobs are submitted at once.
    """
    submit = jobs["submit_time_s"].to_numpy()
    gaps = np.diff(submit)
    if (gaps < 0).any():
        submit = np.sort(submit)
        gaps = np.diff(submit)
    if submit[0] == submit[-1]:
        review.warn(
            "batch",
            "All jobs are submitted at the same time, so waits are those of a single batch.",
        )
        return jobs
    widest = int(gaps.argmax())
    if len(jobs) < 100 or gaps[widest] <= 0.5 * (submit[-1] - submit[0]):
        return jobs
    if any(key == "span" for key, _ in review.report.doubts):
        return jobs
    before, after = widest + 1, len(jobs) - widest - 1
    text = (
        f"No job is submitted for {_duration_text(float(gaps[widest]))} of"
        f" {_duration_text(float(submit[-1] - submit[0]))}. Does the file mix two"
        " clocks or two periods?"
    )
    options = {
        "before": f"use the {before:,} jobs before the gap",
        "after": f"use the {after:,} jobs after the gap",
    }
    answer = review.ask("hole", text, "it is one period", **options)
    if answer == KEEP:
        return jobs
    is_before = jobs["submit_time_s"] <= submit[widest]
    reason = f"{ANSWERED}on the other side of the gap"
    return review.report.drop(jobs, is_before if answer == "after" else ~is_before, reason)


def _check_repeated_rows(jobs: pd.DataFrame, review: DataReview) -> pd.DataFrame:
    """Offer to drop rows that repeat the facts of another row; return the rows in use.

    Offers it only if more than 5 % of the rows repeat.
    """
    facts = ["submit_time_s", "duration_s", "num_gpus"]
    # With equal submissions too few facts are left to tell jobs apart.
    if len(jobs) < 20 or jobs["submit_time_s"].min() == jobs["submit_time_s"].max():
        return jobs
    if _count_repeats(jobs, facts) <= 0.05 * len(jobs):
        return jobs
    facts += ["user"] if "user" in jobs else []
    # Rows with a repeated id are handled elsewhere.
    is_repeat = jobs.duplicated(facts) & ~jobs["job_id"].duplicated()
    if is_repeat.mean() <= 0.05:
        return jobs
    same_facts = "duration, GPUs and user" if "user" in jobs else "duration and GPUs"
    text = f"{_count_text(is_repeat)} repeat the submission, {same_facts} of another job."
    if review.warn("twice", text, "drop the repeated rows"):
        return review.report.drop(jobs, is_repeat, f"{ANSWERED}repeats another row")
    return jobs


def _count_repeats(jobs: pd.DataFrame, columns: list[str]) -> int:
    """Return about how many rows repeat others in numeric columns, by hash."""
    mixed = np.zeros(len(jobs), np.uint64)
    for column in columns:
        bits = (jobs[column].to_numpy(np.float64) + 0.0).view(np.uint64)
        mixed = (mixed ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mixed.sort()
    return int((mixed[1:] == mixed[:-1]).sum())


def _check_shared_values(jobs: pd.DataFrame, review: DataReview) -> pd.DataFrame:
    """Ask about a duration or GPU count that jobs share, and warn about a cut-off.

    Asks if over a fifth of the jobs have one duration, or all jobs the same GPU count above 1. The
    answer may drop the jobs, or set the count to 1.
    """
    if len(jobs) < 200:
        return jobs
    durations = np.sort(jobs["duration_s"].to_numpy())
    # A value shared by over a fifth of the jobs is at one of these ranks.
    places = durations[np.linspace(0, len(durations) - 1, 12).astype(int)]
    counts = {
        float(value): int(
            np.searchsorted(durations, value, "right") - np.searchsorted(durations, value, "left")
        )
        for value in places
    }
    value, count = max(counts.items(), key=lambda item: item[1])
    longest_count = len(durations) - int(np.searchsorted(durations, durations[-1], "left"))
    is_cut = not review.has_free_answer and len(durations) >= 1000 and longest_count >= 5
    if not review.has_free_answer and count > 0.2 * len(durations):
        text = f"{count:,} of {len(durations):,} jobs run for exactly {_duration_text(value)}."
        text += " Were they cut off at a time limit?" if value == durations[-1] else ""
        if review.ask("same", text, leave_out=f"drop these {count:,} jobs") == DROP:
            is_same = jobs["duration_s"] == value
            jobs = review.report.drop(jobs, is_same, f"{ANSWERED}the duration many jobs share")
            is_cut = is_cut and value != durations[-1]
    if is_cut:
        text = (
            f"{longest_count:,} jobs have exactly the longest duration, {durations[-1]:,.0f} s: the"
            " source cut them off there."
        )
        review.warn("cut", text)
        review.doubt("cut", text)
    gpus = jobs["num_gpus"].to_numpy()
    if len(gpus) and gpus[0] > 1 and bool((gpus == gpus[0]).all()):
        text = (
            f"All {len(gpus):,} jobs ask for {gpus[0]:g} GPUs. Is that the size of a node, not of a"
            " job?"
        )
        if review.ask("same_gpus", text, one="use one GPU per job") == "one":
            return jobs.assign(num_gpus=1.0)
    return jobs


def check_remaining(name: str, review: DataReview) -> None:
    """Ask whether to continue if many rows were dropped for unusual reasons.

    Raises
    ------
    TraceError
        If the user chooses not to use the file.
    """
    report = review.report
    reasons: dict[str, int] = {}
    for part in report.parts:
        dropped = part.loc[part["action"] == "dropped", "reason"]
        if len(dropped) and not pd.Series([dropped.iloc[0]]).str.contains(HARMLESS_REASONS).iloc[0]:
            reasons[str(dropped.iloc[0])] = reasons.get(str(dropped.iloc[0]), 0) + len(dropped)
    if review.uses_default("collide"):
        reasons.pop(SAME_ID, None)
    rows = sum(reasons.values())
    if report.read >= 10 and rows > 0.2 * report.read:
        top_reason = max(reasons, key=lambda reason: reasons[reason])
        text = (
            f"{rows:,} of {report.read:,} rows are dropped, most because {top_reason}. Are units,"
            " dates and columns read correctly?"
        )
        if review.ask("left", text, "use the other rows", stop="do not use the file") == "stop":
            raise TraceError(f"{name}: {text} Choose other units or columns, or correct the file.")


def ask_keep_rounded_ids(ids: pd.Series, review: DataReview) -> bool:
    """Ask whether repeated, rounded ids are different jobs; return True to keep all rows."""
    rounded = ids[ids.str.fullmatch(r"\d(?:[.,]\d+)?[eE]\+?\d+")]
    if rounded.empty:
        return False
    text = (
        f"{len(rounded):,} {'id repeats and is' if len(rounded) == 1 else 'ids repeat and are'}"
        f" rounded, such as {rounded.iloc[0]}: a spreadsheet may"
        " have merged several ids. Are they different jobs?"
    )
    later = "they are the same job: drop the later rows"
    return review.ask("collide", text, later, keep="they are different: keep all") == "keep"


def _span_s(jobs: pd.DataFrame) -> pd.Series:
    """Return seconds from start to end per job; NaN where unknown."""
    if not {"start_time_s", "end_time_s"} <= set(jobs.columns):
        return pd.Series(np.nan, index=jobs.index)
    return jobs["end_time_s"] - jobs["start_time_s"]


def _shift_times(jobs: pd.DataFrame, seconds: float) -> pd.DataFrame:
    """Return the jobs with starts and ends shifted later by some seconds."""
    columns = [column for column in ("start_time_s", "end_time_s") if column in jobs]
    return jobs.assign(**{column: jobs[column] + seconds for column in columns})


def _scale_columns(jobs: pd.DataFrame, columns: tuple[str, ...], factor: float) -> pd.DataFrame:
    """Return the jobs with some columns, if present, multiplied by a factor."""
    return jobs.assign(**{column: jobs[column] * factor for column in columns if column in jobs})


def _count_text(which: pd.Series) -> str:
    """Return the text "N of M jobs"."""
    return f"{int(which.sum()):,} of {len(which):,} jobs"


def _duration_text(seconds: float) -> str:
    """Return a duration as text, in the largest unit it holds at least two of."""
    for unit, name in ((YEAR_S, "years"), (DAY_S, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            digits = 0 if seconds >= 10 * unit or seconds % unit == 0 else 1
            return f"{seconds / unit:,.{digits}f} {name}"
    return f"{seconds:,.0f} seconds"
