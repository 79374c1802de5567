"""Checks shared by all formats: unusable rows, repaired rows, and the finished trace."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from jobtraces.readers import plausible
from jobtraces.readers.cells import UNIX_TIMES, instants
from jobtraces.readers.content import plain_name
from jobtraces.readers.draft import PENDING, RUNNING, Draft, Import, Report
from jobtraces.readers.options import ReadOptions
from sim.clock import LATEST_S
from sim.errors import TraceError
from sim.trace import BOUNDS, COLUMNS, INSTANTS, NUMBERS, REQUIRED, Trace, mark_repeated_ids

SHOWN_JOBS: Final = 20
# Rounding requests up by more than this factor distorts every comparison.
ROUNDING_WARNING: Final = 1.1
FACT_NAMES: Final = {
    "submit_time_s": "submission time",
    "num_gpus": "GPU count",
    "duration_s": "duration",
}
MAX_VALUES: Final = {"submit_time_s": 1e14, "num_gpus": 1e7, "duration_s": LATEST_S}
NOT_NEGATIVE: Final = ("cpus", "mem_gb", "min_gpus", "max_gpus", "time_limit_s")
UNBOUNDED: Final = 1e300
LAST_DATE_S: Final = 9.2e9
"""Latest Unix time that pandas can hold as a date (year 2261)."""
EPOCH_OF_SPREADSHEETS: Final = pd.Timestamp("1899-12-30")
SPREADSHEET_DAYS: Final = (43_000.0, 55_000.0)
"""2017 to 2050. Relative seconds are in this range only if all jobs came within hours."""
EARLY_START: Final = "the recorded start is before the submission: moved to the submission"


def check_jobs(draft: Draft) -> Draft:
    """Return a draft without unusable rows, with repaired cells, and ask open questions.

    Raises
    ------
    TraceError
        If a required column is missing, no job is left, or the user chooses not to use the file.
    """
    report, options, name = draft.report, draft.options, draft.name
    jobs = _ensure_ids(draft)
    _require_columns(jobs, name)
    jobs = jobs.assign(
        **{column: jobs[column].astype(np.float64) for column in NUMBERS if column in jobs}
    )
    jobs = _drop_unreadable(_drop_headers(jobs, draft), draft)
    _refuse_milliseconds(jobs["submit_time_s"], name)
    review = plausible.DataReview(report, options.answers)
    jobs, draft = _convert_spreadsheet_dates(jobs, draft, review)
    jobs = plausible.check_units(jobs, draft, review)
    jobs = _drop_impossible(jobs, draft)
    if draft.calendar:
        jobs = report.drop(
            jobs,
            jobs["submit_time_s"].abs() > LAST_DATE_S,
            "the submission is centuries away from today",
            jobs["submit_time_s"],
        )
    far = (jobs["submit_time_s"] - jobs["submit_time_s"].median()).abs() > LATEST_S / 2
    jobs = report.drop(
        jobs, far, "the submission is decades away from most others", jobs["submit_time_s"]
    )
    jobs = _handle_unended(jobs, review, options)
    jobs = plausible.check_counts_and_names(jobs, draft, review)
    if options.cpu_jobs == "drop":
        jobs = report.drop(jobs, jobs["num_gpus"] == 0, "no GPU: a CPU job")
    jobs = plausible.check_jobs_together(jobs, draft.attempts, review)
    jobs = _review_gpu_fractions(jobs, review)
    before = _total_gpu_s(jobs, jobs["num_gpus"])
    jobs = _round_gpus(jobs, report)
    report.work_gpu_s = (before, _total_gpu_s(jobs, jobs["num_gpus"]))
    jobs = _repair_values(jobs, report)
    jobs = _resolve_repeated_ids(jobs, review, draft.ids_repeat)
    if jobs.empty:
        raise TraceError(_no_jobs_text(report, name))
    plausible.check_remaining(name, review)
    return replace(draft, jobs=jobs)


def import_jobs(draft: Draft) -> Import:
    """Return the trace of a checked draft with the report on how it was read.

    Instants are shifted so that the first submission is 0; empty optional columns are left out.
    """
    jobs, report = draft.jobs, draft.report
    zero = float(jobs["submit_time_s"].min())
    times = {column: jobs[column] - zero for column in INSTANTS if column in jobs}
    columns = [
        column
        for column in COLUMNS
        if column in jobs and (column in REQUIRED or jobs[column].notna().any())
    ]
    epoch = pd.Timestamp(zero, unit="s", tz=draft.zone).isoformat() if draft.calendar else ""
    trace = Trace.of(
        jobs.assign(**times)[columns],
        name=draft.name,
        epoch=epoch,
        from_zero=not zero,
        doubts=report.doubts,
    )
    first_jobs = jobs.head(SHOWN_JOBS)
    cells = {
        native: cells.reindex(first_jobs.index).astype("str").fillna("")
        for native, cells in draft.raw.items()
        if native in first_jobs
    }
    return Import(
        trace,
        draft.fmt,
        draft.title,
        report.read,
        len(jobs),
        report.issues(jobs.index),
        tuple(report.guesses),
        tuple(report.warnings),
        *report.work_gpu_s,
        tuple(report.questions),
        tuple(report.offers),
        tuple(report.answered),
        draft.columns,
        first_jobs[[column for column in COLUMNS if column in first_jobs]],
        pd.DataFrame(cells, index=first_jobs.index),
        _unended_jobs(report, zero),
    )


def _unended_jobs(report: Report, zero_s: float) -> pd.DataFrame:
    """Return the jobs dropped as running or pending, with `state`, on the trace's clock."""
    if not report.unended:
        return pd.DataFrame()
    jobs = pd.concat(report.unended).sort_index()
    times = {column: jobs[column] - zero_s for column in INSTANTS if column in jobs}
    columns = [column for column in (*COLUMNS, "state") if column in jobs]
    return jobs.assign(**times)[columns]


def handle_unfinished(
    jobs: pd.DataFrame,
    is_running: pd.Series,
    so_far_s: pd.Series,
    report: Report,
    options: ReadOptions,
) -> pd.DataFrame:
    """Return jobs with running ones dropped, or cut at the time they had run.

    To cut, running jobs with an unknown time are dropped, and a column `status` is set to "cut".

    Parameters
    ----------
    jobs : DataFrame
        Jobs with a column `duration_s`.
    is_running : Series of bool
        Jobs that are still running.
    so_far_s : Series of float, seconds
        Time run until the snapshot; NaN = unknown.
    report : Report
        Records the changes.
    options : ReadOptions
        Whether to drop or cut.
    """
    if options.unfinished == "drop":
        return report.drop(jobs, is_running, RUNNING)
    jobs = report.drop(
        jobs,
        is_running & ~(so_far_s > 0),
        f"{RUNNING}, for an unknown time",
    )
    is_running, so_far_s = is_running.reindex(jobs.index), so_far_s.reindex(jobs.index)
    report.alter(
        jobs,
        is_running,
        f"{RUNNING}: cut there",
        so_far_s.map("{:.0f} s".format),
    )
    jobs = jobs.assign(duration_s=jobs["duration_s"].where(~is_running, so_far_s))
    # Mark the status: read again from a table, a cut job must not be dropped.
    return (
        jobs.assign(status=jobs["status"].where(~is_running, "cut")) if "status" in jobs else jobs
    )


def _ensure_ids(draft: Draft) -> pd.DataFrame:
    """Return jobs with an id each; missing ids are named after the row."""
    jobs = draft.jobs
    if "job_id" not in jobs:
        draft.report.guess("No id column: jobs are named after their rows.")
        return jobs.assign(job_id="row-" + pd.Series(jobs.index.astype("str"), index=jobs.index))
    is_blank = jobs["job_id"].fillna("") == ""
    if is_blank.any():
        draft.report.alter(jobs, is_blank, "the id is missing: named after the row")
        row_ids = "row-" + pd.Series(jobs.index.astype("str"), index=jobs.index)
        jobs = jobs.assign(job_id=jobs["job_id"].where(~is_blank, row_ids))
    return jobs


def _require_columns(jobs: pd.DataFrame, name: str) -> None:
    """Raise an error if a required column is missing."""
    for column in REQUIRED:
        if column not in jobs:
            raise TraceError(
                f"{name}: column {column} is missing. Columns found:"
                f" {', '.join(map(str, jobs.columns[:20]))}. Map one of them to it."
            )


def _refuse_milliseconds(submit_s: pd.Series, name: str) -> None:
    """Raise an error for submission times that look like milliseconds since 1970."""
    if UNIX_TIMES[0] <= submit_s.median() / 1000 <= UNIX_TIMES[1]:
        # As seconds, a day would become three years.
        raise TraceError(
            f"{name}: most submission times have 13 digits, such as {submit_s.median():.0f}, so"
            " they look like milliseconds since 1970. Choose milliseconds as the unit of numeric"
            " times (--time-unit ms), or write seconds."
        )


def _drop_headers(jobs: pd.DataFrame, draft: Draft) -> pd.DataFrame:
    """Drop rows that repeat the header, as in concatenated files.

    They have no readable submission, and the required cells are the names of their columns.
    """
    is_unreadable = jobs["submit_time_s"].isna()
    cells = [draft.raw[column] for column in FACT_NAMES if column in draft.raw]
    if len(cells) < 2 or not is_unreadable.any():
        return jobs
    rows = jobs.index[is_unreadable]
    is_header = np.logical_and.reduce(
        [
            [
                plain_name(str(cell)) == plain_name(str(column_cells.name))
                for cell in column_cells.reindex(rows)
            ]
            for column_cells in cells
        ]
    )
    is_repeat = pd.Series(jobs.index.isin(rows[is_header]), index=jobs.index)
    return draft.report.drop(jobs, is_repeat, "the row repeats the header")


def _convert_spreadsheet_dates(
    jobs: pd.DataFrame, draft: Draft, review: plausible.DataReview
) -> tuple[pd.DataFrame, Draft]:
    """Ask if numeric times may be spreadsheet dates; if they are, convert them to Unix time.

    Asks only if all submissions are between 43,000 and 55,000 (days since 1900), are not yet dates,
    and the user set no unit. Otherwise jobs and draft are returned unchanged.
    """
    submit, options = jobs["submit_time_s"], draft.options
    if draft.calendar or options.time_unit or len(submit) < 2:
        return jobs, draft
    first_day, last_day = float(submit.min()), float(submit.max())
    if not SPREADSHEET_DAYS[0] <= first_day < last_day <= SPREADSHEET_DAYS[1]:
        return jobs, draft
    first = EPOCH_OF_SPREADSHEETS + pd.Timedelta(days=int(first_day))
    text = (
        f"The submissions are numbers from {first_day:,.6g} to {last_day:,.6g}. Are they"
        f" spreadsheet dates ({int(first_day):,} = {first.day} {first:%B} {first.year})?"
    )
    if review.ask("days", text, "they are seconds", days="they are spreadsheet dates") != "days":
        return jobs, draft
    zone = options.zone or "UTC"
    times = {
        column: instants(
            (EPOCH_OF_SPREADSHEETS + pd.to_timedelta(jobs[column], unit="D")).dt.round("s"),
            zone,
            1.0,
            column,
        ).seconds
        for column in INSTANTS
        if column in jobs and jobs[column].between(*SPREADSHEET_DAYS).any()
    }
    review.report.guess(f"Times have no offset; they are read as {zone}.")
    return jobs.assign(**times), replace(draft, calendar=True, zone=zone)


def _drop_unreadable(jobs: pd.DataFrame, draft: Draft) -> pd.DataFrame:
    """Drop rows with missing, unreadable or infinite required cells."""
    for column, word in FACT_NAMES.items():
        missing = jobs[column].isna()
        jobs = _drop(jobs, missing, f"the {word} is missing or cannot be read", column, draft)
        jobs = _drop(jobs, ~np.isfinite(jobs[column]), f"the {word} is infinite", column, draft)
    return jobs


def _drop(
    jobs: pd.DataFrame, is_bad: pd.Series, reason: str, column: str, draft: Draft
) -> pd.DataFrame:
    """Drop bad rows, with the source cells of a column as details in the report.

    The source cells are fetched only if there are bad rows.
    """
    if not is_bad.any():
        return jobs
    return draft.report.drop(jobs, is_bad, reason, draft.raw.get(column, jobs[column]))


def _drop_impossible(jobs: pd.DataFrame, draft: Draft) -> pd.DataFrame:
    """Drop rows with negative or impossibly large required values."""
    for column, word in FACT_NAMES.items():
        large = jobs[column].abs() > MAX_VALUES[column]
        jobs = _drop(jobs, large, f"the {word} is too large to be real", column, draft)
        if column != "submit_time_s":
            jobs = _drop(jobs, jobs[column] < 0, f"the {word} is negative", column, draft)
    return jobs


def _handle_unended(
    jobs: pd.DataFrame, review: plausible.DataReview, options: ReadOptions
) -> pd.DataFrame:
    """Drop pending jobs, and drop or cut running ones; ask or warn if there are many."""
    report = review.report
    is_running, is_pending = plausible.find_unended(jobs)
    jobs = report.drop(jobs, is_pending, PENDING, "")
    is_running = is_running.reindex(jobs.index)
    if is_running.any():
        jobs = handle_unfinished(jobs, is_running, jobs["duration_s"], report, options)
    unended_count = sum(
        len(part) for part in report.parts if part["reason"].iloc[0].startswith((RUNNING, PENDING))
    )
    plausible.check_history(unended_count, review)
    return jobs


def _review_gpu_fractions(jobs: pd.DataFrame, review: plausible.DataReview) -> pd.DataFrame:
    """Report the work added by rounding GPU fractions up; if much, ask to drop such jobs.

    Returns the jobs unrounded.
    """
    before, after = (
        _total_gpu_s(jobs, jobs["num_gpus"]),
        _total_gpu_s(jobs, np.ceil(jobs["num_gpus"])),
    )
    if not after > before > 0:
        return jobs
    increase = (
        "Rounding fractions of a GPU up raises the work"
        f" {_change_text(before / 3600, after / 3600)} GPU-hours ({after / before:.2f} times)"
    )
    if after <= ROUNDING_WARNING * before:
        review.report.guesses.append(f"{increase}.")
        return jobs
    text = f"{increase}: waits will be longer than with shared GPUs."
    is_fraction = np.ceil(jobs["num_gpus"]) != jobs["num_gpus"]
    options = {plausible.DROP: f"drop jobs on fractions of a GPU ({int(is_fraction.sum()):,})"}
    if review.ask("fractions", text, "round up", **options) == plausible.DROP:
        return review.report.drop(
            jobs, is_fraction, f"{plausible.ANSWERED}part of a GPU", jobs["num_gpus"]
        )
    return jobs


def _total_gpu_s(jobs: pd.DataFrame, gpus: pd.Series) -> float:
    """Return GPU-seconds of all jobs."""
    return float((gpus * jobs["duration_s"]).sum())


def _round_gpus(jobs: pd.DataFrame, report: Report) -> pd.DataFrame:
    """Return jobs with whole GPU counts: requests and minima rounded up, maxima down."""
    for column in ("num_gpus", "min_gpus", "max_gpus"):
        if column not in jobs:
            continue
        # Round minima up and maxima down.
        rounds_down = column == "max_gpus"
        rounded = np.floor(jobs[column]) if rounds_down else np.ceil(jobs[column])
        is_changed = (rounded != jobs[column]) & jobs[column].notna()
        word = FACT_NAMES.get(column, column)
        report.alter(
            jobs,
            is_changed,
            f"the {word} is a fraction: rounded {'down' if rounds_down else 'up'}",
            jobs[column],
        )
        jobs = jobs.assign(**{column: rounded})
    return jobs


def _change_text(before: float, after: float) -> str:
    """Return "from X to Y" with enough decimals to show the difference."""
    for decimals in range(max(1, 1 - math.floor(math.log10(before))), 12):
        if f"{before:.{decimals}f}" != f"{after:.{decimals}f}":
            return f"from {before:,.{decimals}f} to {after:,.{decimals}f}"
    return f"from {before} to {after}"


def _repair_values(jobs: pd.DataFrame, report: Report) -> pd.DataFrame:
    """Return jobs with repaired values: zero durations, bad optional numbers, early starts.

    A duration of 0 becomes 1 s, an optional number that is negative or infinite becomes missing,
    and a start before the submission is moved to it. All changes are reported.
    """
    is_zero = jobs["duration_s"] == 0
    report.alter(jobs, is_zero, "the duration is 0: set to 1 s")
    jobs = jobs.assign(duration_s=jobs["duration_s"].where(~is_zero, 1.0))
    for column in NUMBERS:
        if column in jobs and column not in REQUIRED:
            values = jobs[column]
            is_bad = np.isinf(values) | (values < 0 if column in NOT_NEGATIVE else np.isinf(values))
            report.alter(
                jobs, is_bad, f"{column} is negative or infinite: treated as missing", values
            )
            if column == "time_limit_s":
                # Schedulers write 0 for no limit.
                report.alter(jobs, values == 0, "time_limit_s is 0: treated as missing", values)
                is_bad |= values == 0
            jobs = jobs.assign(**{column: values.where(~is_bad)})
    if "start_time_s" in jobs:
        is_early = jobs["start_time_s"] < jobs["submit_time_s"]
        report.alter(
            jobs,
            is_early,
            EARLY_START,
            (jobs["submit_time_s"] - jobs["start_time_s"]).map("{:g} s".format),
        )
        jobs = jobs.assign(
            start_time_s=jobs["start_time_s"].where(~is_early, jobs["submit_time_s"])
        )
    return _repair_scaling(jobs, report)


def _repair_scaling(jobs: pd.DataFrame, report: Report) -> pd.DataFrame:
    """Return jobs with repaired scaling columns: values in bounds, ranges in order.

    Values out of bounds and both ends of a crossed range become missing; `min_gpus` and `max_gpus`
    are clipped to include the request. All changes are reported.
    """
    for column, (minimum, maximum) in BOUNDS.items():
        if column in jobs:
            values = jobs[column]
            is_outside = (values < minimum) | (values > maximum)
            limit = (
                f"below {minimum:g}"
                if maximum >= UNBOUNDED
                else f"outside {minimum:g} to {maximum:g}"
            )
            report.alter(jobs, is_outside, f"{column} is {limit}: treated as missing", values)
            jobs = jobs.assign(**{column: values.where(~is_outside)})
    for low, high in (("min_gpus", "max_gpus"), ("min_batch", "max_batch")):
        if {low, high} <= set(jobs.columns):
            is_crossed = jobs[low] > jobs[high]
            report.alter(jobs, is_crossed, f"{low} is above {high}: both treated as missing")
            jobs = jobs.assign(
                **{low: jobs[low].where(~is_crossed), high: jobs[high].where(~is_crossed)}
            )
    # The recorded run time was measured at the requested size, so that size is always allowed.
    for column, side, clip in (
        ("min_gpus", "above", np.minimum),
        ("max_gpus", "below", np.maximum),
    ):
        if column in jobs:
            values = jobs[column]
            clipped = clip(values, jobs["num_gpus"])
            report.alter(
                jobs,
                (clipped != values) & values.notna(),
                f"{column} is {side} the requested GPUs: set to that number",
                values,
            )
            jobs = jobs.assign(**{column: clipped})
    return jobs


def _resolve_repeated_ids(
    jobs: pd.DataFrame, review: plausible.DataReview, repeat: bool
) -> pd.DataFrame:
    """Return jobs with unique ids: repeats are dropped or renamed.

    Repeats are renamed if the source repeats ids (`repeat`), or if the ids are rounded and the user
    answers that they are different jobs.
    """
    report, is_repeat = review.report, mark_repeated_ids(jobs["job_id"])
    if not is_repeat.any():
        return jobs
    if not repeat and not plausible.ask_keep_rounded_ids(jobs.loc[is_repeat, "job_id"], review):
        return report.drop(jobs, is_repeat, plausible.SAME_ID, jobs["job_id"])
    nth = jobs.groupby("job_id", sort=False).cumcount() + 1
    ids = jobs["job_id"].where(~is_repeat, jobs["job_id"] + "#" + nth.astype("str"))
    still_repeats = ids.duplicated()
    ids = ids.where(
        ~still_repeats, ids + "#row-" + pd.Series(jobs.index.astype("str"), index=jobs.index)
    )
    report.alter(
        jobs, is_repeat, "the id is repeated (a requeue or a shortened id): made unique", ids
    )
    return jobs.assign(job_id=ids)


_ADVICE: Final = {
    "CPU job": "Keep CPU jobs, or choose another file.",
    "still running": "Cut running jobs at the end of the trace, or export jobs that have ended.",
    "never started": "Export jobs that have ended.",
    "had not started": "Export jobs that have ended.",
}


def _no_jobs_text(report: Report, name: str) -> str:
    """Return the message for a file without usable rows: main reason and advice."""
    counts = (
        pd.concat(report.parts)["reason"].value_counts() if report.parts else pd.Series(dtype=int)
    )
    top_reason = ""
    if len(counts):
        rows = f"{counts.iloc[0]:,} {'row' if counts.iloc[0] == 1 else 'rows'}"
        top_reason = f" Main reason ({rows}): {str(counts.index[0]).replace(': ', ', ')}."
    advice = next(
        (text for reason, text in _ADVICE.items() if reason in top_reason),
        "Check the format, the units and the mapping.",
    )
    none = "the only row cannot" if report.read == 1 else f"none of the {report.read:,} rows can"
    return f"{name}: {none} be used.{top_reason} {advice}"
