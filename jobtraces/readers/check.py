"""The checks that every format shares: unusable rows, repaired rows, and the finished trace."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from jobtraces.readers import plausible
from jobtraces.readers.cells import UNIX, instants
from jobtraces.readers.content import plain
from jobtraces.readers.draft import PENDING, RUNNING, Draft, Import, Report
from jobtraces.readers.options import ReadOptions
from sim.clock import LATEST_S
from sim.errors import TraceError
from sim.trace import BOUNDS, COLUMNS, INSTANTS, NUMBERS, REQUIRED, Trace, repeated

SHOWN_JOBS: Final = 20
# Rounding demands up by more than this distorts every comparison.
ROUNDING_WARNING: Final = 1.1
WORDS: Final = {
    "submit_time_s": "submission time",
    "num_gpus": "GPU count",
    "duration_s": "duration",
}
MOST: Final = {"submit_time_s": 1e14, "num_gpus": 1e7, "duration_s": LATEST_S}
NOT_NEGATIVE: Final = ("cpus", "mem_gb", "min_gpus", "max_gpus", "time_limit_s")
UNBOUNDED: Final = 1e300
LAST_DATE_S: Final = 9.2e9
"""Seconds since 1970 that a date of pandas can hold: until the year 2261."""
EPOCH_OF_SPREADSHEETS: Final = pd.Timestamp("1899-12-30")
SPREADSHEET_DAYS: Final = (43_000.0, 55_000.0)
"""From 2017 to 2050. Seconds from any zero lie there only if all jobs came within hours."""
LOST_TIME: Final = "the recorded start is before the submission: moved to the submission"


def check(draft: Draft) -> Draft:
    """Return a draft without unusable rows, with repaired cells and the open questions.

    Raises
    ------
    TraceError
        If a required column is missing, no job is left, or the user does not want the rest.
    """
    report, options, name = draft.report, draft.options, draft.name
    jobs = _identify(draft)
    _require(jobs, name)
    jobs = jobs.assign(
        **{column: jobs[column].astype(np.float64) for column in NUMBERS if column in jobs}
    )
    jobs = _drop_unreadable(_drop_headers(jobs, draft), draft)
    _refuse_milliseconds(jobs["submit_time_s"], name)
    gate = plausible.Gate(report, options.answers)
    jobs, draft = _days_of_a_spreadsheet(jobs, draft, gate)
    jobs = plausible.units(jobs, draft, gate)
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
    jobs = _not_ended(jobs, gate, options)
    jobs = plausible.sizes(jobs, draft, gate)
    if options.cpu_jobs == "drop":
        jobs = report.drop(jobs, jobs["num_gpus"] == 0, "no GPU: a CPU job")
    jobs = plausible.jobs_together(jobs, draft.attempts, gate)
    jobs = _share_gpus(jobs, gate)
    before = _work(jobs, jobs["num_gpus"])
    jobs = _whole(jobs, report)
    report.work_gpu_s = (before, _work(jobs, jobs["num_gpus"]))
    jobs = _mend(jobs, report)
    jobs = _settle_ids(jobs, gate, draft.ids_repeat)
    if jobs.empty:
        raise TraceError(_nothing_left(report, name))
    plausible.left(name, gate)
    return replace(draft, jobs=jobs)


def import_jobs(draft: Draft) -> Import:
    """Return the trace of a checked draft with the account of how it was read."""
    jobs, report = draft.jobs, draft.report
    zero = float(jobs["submit_time_s"].min())
    times = {column: jobs[column] - zero for column in INSTANTS if column in jobs}
    kept = [
        column
        for column in COLUMNS
        if column in jobs and (column in REQUIRED or jobs[column].notna().any())
    ]
    epoch = pd.Timestamp(zero, unit="s", tz=draft.zone).isoformat() if draft.calendar else ""
    trace = Trace.of(
        jobs.assign(**times)[kept],
        name=draft.name,
        epoch=epoch,
        from_zero=not zero,
        doubts=report.doubts,
    )
    first = jobs.head(SHOWN_JOBS)
    cells = {
        native: cells.reindex(first.index).astype("str").fillna("")
        for native, cells in draft.raw.items()
        if native in first
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
        first[[column for column in COLUMNS if column in first]],
        pd.DataFrame(cells, index=first.index),
        _unended(report, zero),
    )


def _unended(report: Report, zero_s: float) -> pd.DataFrame:
    """Return the jobs left out because they had not ended, on the clock of the trace."""
    if not report.unended:
        return pd.DataFrame()
    jobs = pd.concat(report.unended).sort_index()
    times = {column: jobs[column] - zero_s for column in INSTANTS if column in jobs}
    columns = [column for column in (*COLUMNS, "state") if column in jobs]
    return jobs.assign(**times)[columns]


def unfinished(
    jobs: pd.DataFrame,
    running: pd.Series,
    so_far_s: pd.Series,
    report: Report,
    options: ReadOptions,
) -> pd.DataFrame:
    """Drop jobs that still run, or give them the time they had run.

    Parameters
    ----------
    jobs : DataFrame
        With `duration_s`.
    running : Series of bool
        Which jobs still run.
    so_far_s : Series of float, seconds
        What they had run at the snapshot; NaN = not known.
    report : Report
        Counts them.
    options : ReadOptions
        Says which.
    """
    if options.unfinished == "drop":
        return report.drop(jobs, running, RUNNING)
    jobs = report.drop(
        jobs,
        running & ~(so_far_s > 0),
        f"{RUNNING}, and for an unknown time",
    )
    running, so_far_s = running.reindex(jobs.index), so_far_s.reindex(jobs.index)
    report.alter(
        jobs,
        running,
        f"{RUNNING}: cut there",
        so_far_s.map("{:.0f} s".format),
    )
    jobs = jobs.assign(duration_s=jobs["duration_s"].where(~running, so_far_s))
    # Said in the trace itself: read again from a table, such a job must not be left out.
    return jobs.assign(status=jobs["status"].where(~running, "cut")) if "status" in jobs else jobs


def _identify(draft: Draft) -> pd.DataFrame:
    jobs = draft.jobs
    if "job_id" not in jobs:
        draft.report.guess("There is no column of ids: jobs are named after their row.")
        return jobs.assign(job_id="row-" + pd.Series(jobs.index.astype("str"), index=jobs.index))
    blank = jobs["job_id"].fillna("") == ""
    if blank.any():
        draft.report.alter(jobs, blank, "there is no id: named after its row")
        made = "row-" + pd.Series(jobs.index.astype("str"), index=jobs.index)
        jobs = jobs.assign(job_id=jobs["job_id"].where(~blank, made))
    return jobs


def _require(jobs: pd.DataFrame, name: str) -> None:
    for column in REQUIRED:
        if column not in jobs:
            raise TraceError(
                f"{name}: column {column} is missing. Columns found:"
                f" {', '.join(map(str, jobs.columns[:20]))}. Map one of them to it."
            )


def _refuse_milliseconds(submit_s: pd.Series, name: str) -> None:
    if UNIX[0] <= submit_s.median() / 1000 <= UNIX[1]:
        # Read as seconds they would stretch a day into three years, and every result would be
        # wrong.
        raise TraceError(
            f"{name}: most submission times have 13 digits, such as {submit_s.median():.0f}, so"
            " they look like milliseconds since 1970, not seconds. Choose milliseconds as the unit"
            " of numeric times (command line: --time-unit ms), or write seconds."
        )


def _drop_headers(jobs: pd.DataFrame, draft: Draft) -> pd.DataFrame:
    """Leave out rows that hold the names of the columns again, as where files were joined."""
    lost = jobs["submit_time_s"].isna()
    cells = [draft.raw[column] for column in WORDS if column in draft.raw]
    if len(cells) < 2 or not lost.any():
        return jobs
    rows = jobs.index[lost]
    again = np.logical_and.reduce(
        [[plain(str(cell)) == plain(str(one.name)) for cell in one.reindex(rows)] for one in cells]
    )
    repeats = pd.Series(jobs.index.isin(rows[again]), index=jobs.index)
    return draft.report.drop(jobs, repeats, "the row repeats the header")


def _days_of_a_spreadsheet(
    jobs: pd.DataFrame, draft: Draft, gate: plausible.Gate
) -> tuple[pd.DataFrame, Draft]:
    """Ask whether times that look like days since 1900, as spreadsheets count them, are those."""
    submit, options = jobs["submit_time_s"], draft.options
    if draft.calendar or options.time_unit or len(submit) < 2:
        return jobs, draft
    least, most = float(submit.min()), float(submit.max())
    if not SPREADSHEET_DAYS[0] <= least < most <= SPREADSHEET_DAYS[1]:
        return jobs, draft
    first = EPOCH_OF_SPREADSHEETS + pd.Timedelta(days=int(least))
    text = (
        f"The submissions are numbers from {least:,.6g} to {most:,.6g}. Are they dates as a"
        f" spreadsheet counts days: {int(least):,} is {first.day} {first:%B} {first.year}?"
    )
    if gate.ask("days", text, "they are seconds", days="they are such dates") != "days":
        return jobs, draft
    zone = options.zone or "UTC"
    made = {
        column: instants(
            (EPOCH_OF_SPREADSHEETS + pd.to_timedelta(jobs[column], unit="D")).dt.round("s"),
            zone,
            1.0,
            column,
        ).seconds
        for column in INSTANTS
        if column in jobs and jobs[column].between(*SPREADSHEET_DAYS).any()
    }
    gate.report.guess(f"Times have no offset; they are read as {zone}.")
    return jobs.assign(**made), replace(draft, calendar=True, zone=zone)


def _drop_unreadable(jobs: pd.DataFrame, draft: Draft) -> pd.DataFrame:
    for column, word in WORDS.items():
        missing = jobs[column].isna()
        jobs = _drop(jobs, missing, f"the {word} is missing or cannot be read", column, draft)
        jobs = _drop(jobs, ~np.isfinite(jobs[column]), f"the {word} is infinite", column, draft)
    return jobs


def _drop(
    jobs: pd.DataFrame, bad: pd.Series, reason: str, column: str, draft: Draft
) -> pd.DataFrame:
    """Leave rows out, with the cells that they came from; those are fetched only if needed."""
    if not bad.any():
        return jobs
    return draft.report.drop(jobs, bad, reason, draft.raw.get(column, jobs[column]))


def _drop_impossible(jobs: pd.DataFrame, draft: Draft) -> pd.DataFrame:
    for column, word in WORDS.items():
        large = jobs[column].abs() > MOST[column]
        jobs = _drop(jobs, large, f"the {word} is too large to be real", column, draft)
        if column != "submit_time_s":
            jobs = _drop(jobs, jobs[column] < 0, f"the {word} is negative", column, draft)
    return jobs


def _not_ended(jobs: pd.DataFrame, gate: plausible.Gate, options: ReadOptions) -> pd.DataFrame:
    """Leave out, or cut, what had not ended: formats that know such jobs have done so before."""
    report = gate.report
    running, pending = plausible.unended(jobs)
    jobs = report.drop(jobs, pending, PENDING, "")
    running = running.reindex(jobs.index)
    if running.any():
        jobs = unfinished(jobs, running, jobs["duration_s"], report, options)
    known = sum(
        len(part) for part in report.parts if part["reason"].iloc[0].startswith((RUNNING, PENDING))
    )
    plausible.history(known, gate)
    return jobs


def _share_gpus(jobs: pd.DataFrame, gate: plausible.Gate) -> pd.DataFrame:
    """Say what rounding up fractions of a GPU adds, and ask if that is much."""
    before, after = _work(jobs, jobs["num_gpus"]), _work(jobs, np.ceil(jobs["num_gpus"]))
    if not after > before > 0:
        return jobs
    grown = (
        "Rounding fractions of a GPU up raises the work"
        f" {_from_to(before / 3600, after / 3600)} GPU-hours ({after / before:.2f} times)"
    )
    if after <= ROUNDING_WARNING * before:
        gate.report.guesses.append(f"{grown}.")
        return jobs
    text = f"{grown}: waiting times will be longer than with shared GPUs."
    part = np.ceil(jobs["num_gpus"]) != jobs["num_gpus"]
    ways = {plausible.DROP: f"leave out jobs on parts of a GPU ({int(part.sum()):,})"}
    if gate.ask("fractions", text, "round up", **ways) == plausible.DROP:
        return gate.report.drop(jobs, part, f"{plausible.ANSWERED}part of a GPU", jobs["num_gpus"])
    return jobs


def _work(jobs: pd.DataFrame, gpus: pd.Series) -> float:
    return float((gpus * jobs["duration_s"]).sum())


def _whole(jobs: pd.DataFrame, report: Report) -> pd.DataFrame:
    for column in ("num_gpus", "min_gpus", "max_gpus"):
        if column not in jobs:
            continue
        # What a job needs at least is rounded up, what it may have at most is rounded down.
        down = column == "max_gpus"
        whole = np.floor(jobs[column]) if down else np.ceil(jobs[column])
        changed = (whole != jobs[column]) & jobs[column].notna()
        word = WORDS.get(column, column)
        report.alter(
            jobs,
            changed,
            f"the {word} is a fraction: rounded {'down' if down else 'up'}",
            jobs[column],
        )
        jobs = jobs.assign(**{column: whole})
    return jobs


def _from_to(before: float, after: float) -> str:
    """Return both numbers with as many decimals as they need to differ."""
    for decimals in range(max(1, 1 - math.floor(math.log10(before))), 12):
        if f"{before:.{decimals}f}" != f"{after:.{decimals}f}":
            return f"from {before:,.{decimals}f} to {after:,.{decimals}f}"
    return f"from {before} to {after}"


def _mend(jobs: pd.DataFrame, report: Report) -> pd.DataFrame:
    zero = jobs["duration_s"] == 0
    report.alter(jobs, zero, "the duration is 0: taken as 1 s")
    jobs = jobs.assign(duration_s=jobs["duration_s"].where(~zero, 1.0))
    for column in NUMBERS:
        if column in jobs and column not in REQUIRED:
            values = jobs[column]
            bad = np.isinf(values) | (values < 0 if column in NOT_NEGATIVE else np.isinf(values))
            report.alter(jobs, bad, f"{column} is negative or infinite: taken as not given", values)
            if column == "time_limit_s":
                # Schedulers write 0 where there is no limit; a job that may run for no time would
                # be none.
                report.alter(jobs, values == 0, "time_limit_s is 0: taken as not given", values)
                bad |= values == 0
            jobs = jobs.assign(**{column: values.where(~bad)})
    if "start_time_s" in jobs:
        early = jobs["start_time_s"] < jobs["submit_time_s"]
        report.alter(
            jobs,
            early,
            LOST_TIME,
            (jobs["submit_time_s"] - jobs["start_time_s"]).map("{:g} s".format),
        )
        jobs = jobs.assign(start_time_s=jobs["start_time_s"].where(~early, jobs["submit_time_s"]))
    return _mend_scaling(jobs, report)


def _mend_scaling(jobs: pd.DataFrame, report: Report) -> pd.DataFrame:
    for column, (least, most) in BOUNDS.items():
        if column in jobs:
            values = jobs[column]
            outside = (values < least) | (values > most)
            limit = f"below {least:g}" if most >= UNBOUNDED else f"outside {least:g} to {most:g}"
            report.alter(jobs, outside, f"{column} is {limit}: taken as not given", values)
            jobs = jobs.assign(**{column: values.where(~outside)})
    for low, high in (("min_gpus", "max_gpus"), ("min_batch", "max_batch")):
        if {low, high} <= set(jobs.columns):
            crossed = jobs[low] > jobs[high]
            report.alter(jobs, crossed, f"{low} is above {high}: both taken as not given")
            jobs = jobs.assign(**{low: jobs[low].where(~crossed), high: jobs[high].where(~crossed)})
    # The recorded run time was measured at the size asked for: that size is admissible, whatever
    # the range says.
    for column, side, inside in (
        ("min_gpus", "above", np.minimum),
        ("max_gpus", "below", np.maximum),
    ):
        if column in jobs:
            values = jobs[column]
            mended = inside(values, jobs["num_gpus"])
            report.alter(
                jobs,
                (mended != values) & values.notna(),
                f"{column} is {side} the GPUs asked for: taken as those",
                values,
            )
            jobs = jobs.assign(**{column: mended})
    return jobs


def _settle_ids(jobs: pd.DataFrame, gate: plausible.Gate, repeat: bool) -> pd.DataFrame:
    report, again = gate.report, repeated(jobs["job_id"])
    if not again.any():
        return jobs
    if not repeat and not plausible.collide(jobs.loc[again, "job_id"], gate):
        return report.drop(jobs, again, plausible.SAME_ID, jobs["job_id"])
    nth = jobs.groupby("job_id", sort=False).cumcount() + 1
    made = jobs["job_id"].where(~again, jobs["job_id"] + "#" + nth.astype("str"))
    clash = made.duplicated()
    made = made.where(
        ~clash, made + "#row-" + pd.Series(jobs.index.astype("str"), index=jobs.index)
    )
    report.alter(
        jobs, again, "the id occurs again (a requeue or a shortened id): made unique", made
    )
    return jobs.assign(job_id=made)


_ADVICE: Final = {
    "CPU job": "Keep CPU jobs, or choose another file.",
    "still running": "Cut running jobs at the end of the trace, or export jobs that have ended.",
    "never started": "Export jobs that have ended.",
    "had not started": "Export jobs that have ended.",
}


def _nothing_left(report: Report, name: str) -> str:
    counts = (
        pd.concat(report.parts)["reason"].value_counts() if report.parts else pd.Series(dtype=int)
    )
    why = f" (most often: {counts.index[0]}; {counts.iloc[0]:,} of them)" if len(counts) else ""
    advice = next(
        (told for reason, told in _ADVICE.items() if reason in why),
        "Check the format, the units and the mapping.",
    )
    return f"{name}: no row of {report.read:,} can be used{why}. {advice}"
