"""Whether what was read can be true: units, clocks, outcomes and sizes that no log of a cluster has
are asked about or said, each with the figures by which the user can tell, and with what mends it.
"""

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

GO_ON: Final = "go_on"
DROP: Final = "leave_out"
AS_READ: Final = "go on: it is so"
GRAVE: Final = frozenset({"span", "thousand", "work"})
"""Questions without whose answer no comparison means anything."""
OF_ROWS: Final = frozenset(
    {"hole", "work", "same", "same_gpus", "twice", "open", "left", "long_rows", "collide"}
    | {"fractions"}
)
"""Questions about the rows of one file: an answer says nothing of the next file like it."""
WINDOW: Final = "window"
DAY_S: Final = 86_400.0
YEAR_S: Final = 365.25 * DAY_S
LONGEST_S: Final = 5 * YEAR_S
SMALLER: Final = {
    "ms": (1e-3, "milliseconds"),
    "us": (1e-6, "microseconds"),
    "ns": (1e-9, "nanoseconds"),
}
RUNNING: Final = frozenset(
    {"running", "suspended", "completing", "resizing", "signaling", "stopped", "preempting"}
)
PENDING: Final = frozenset({"pending", "queued", "waiting", "configuring", "submitted", "held"})
NOT_COUNTED: Final = (
    r"CPU job|step of|part of|never started|had not started|still running|answered|another kind"
)
"""Reasons for leaving a row out that say nothing of how well a file was understood."""
ANSWERED: Final = "left out as answered: "
SAME_ID: Final = "an earlier row has the same id"
_MAPPED: Final = ("native", "table")
Mask = pd.Series


@dataclass(frozen=True)
class Gate:
    """Asks and says, and keeps what remains in doubt.

    Parameters
    ----------
    report : Report
        Of this import.
    answers : mapping of str to str
        Of the user, see `ReadOptions.answers`.
    """

    report: Report
    answers: Mapping[str, str]

    def ask(self, key: str, text: str, go_on: str = AS_READ, **ways: str) -> str:
        """Return the answer, `GO_ON` as long as there is none; whoever goes on has a doubt."""
        answer = self.report.ask(Question(key, text, {**ways, GO_ON: go_on}, GO_ON), self.answers)
        if answer == GO_ON:
            self.doubt(key, text)
            if key in self.answers:
                self.report.warnings.append(f"{text} Answered: {go_on}.")
        else:
            self.report.guess(f"{text} Answered: {ways[answer]}.")
        return answer

    @property
    def given(self) -> bool:
        """Whether durations are numbers that the user gave for many jobs at once: that they are
        round and alike says nothing.
        """
        return any(question.free for question, _ in self.report.answered)

    def unanswered(self, key: str) -> bool:
        """Tell whether a question was asked and its default is taken as long as nobody answers."""
        return any(question.id == key for question in self.report.questions)

    def doubt(self, key: str, text: str) -> None:
        """Keep what a comparison has to say, too."""
        self.report.doubts.append((key, text))

    def warn(self, key: str, text: str, way: str = "") -> bool:
        """Say something; return whether the user wants the way out (`DROP`) that goes with it."""
        if not way:
            self.report.warnings.append(text)
            return False
        question = Question(key, text, {DROP: way, GO_ON: AS_READ}, GO_ON)
        if self.report.offer(question, self.answers) == DROP:
            self.report.guess(f"{text} Answered: {way}.")
            return True
        self.report.warnings.append(text)
        return False


def units(jobs: pd.DataFrame, draft: Draft, gate: Gate) -> pd.DataFrame:
    """Ask about units, and about ends before starts; before rows are left out for their size.

    Parameters
    ----------
    jobs : DataFrame
        Submissions, durations and GPUs are finite.
    draft : Draft
        What the format understood, and what the user chose.
    gate : Gate
        Who asks.
    """
    if jobs.empty:
        return jobs
    jobs = _span(jobs, draft, gate)
    jobs = _reversed(jobs, gate)
    durations = jobs["duration_s"].to_numpy()
    positive = durations[durations > 0]
    if gate.unanswered("span") and _runs_are_spans(jobs):
        # One fault, one question: another unit of the times is that of the durations, too.
        return jobs
    thousands = np.mod(positive, 1000.0) == 0
    if not gate.given and len(positive) >= 50 and thousands.mean() >= 0.95:
        text = (
            f"{thousands.mean():.0%} of the durations are whole thousands, such as"
            f" {positive[thousands][0]:,.0f} s. Are they milliseconds?"
        )
        answer = gate.ask("thousand", text, "they are seconds", ms="they are milliseconds")
        return jobs if answer == GO_ON else _scaled(jobs, ("duration_s", "time_limit_s"), 1e-3)
    return _long(jobs, positive, draft.options, gate)


def _span(jobs: pd.DataFrame, draft: Draft, gate: Gate) -> pd.DataFrame:
    submit = jobs["submit_time_s"]
    middle = submit.median()
    # A row that is decades away from all others says nothing of the unit: it is left out later.
    near = submit[(submit - middle).abs() <= LATEST_S / 2]
    if len(near) < 2 or not near.max() - near.min() > LONGEST_S:
        return jobs
    span = float(submit.max() - submit.min())
    # Another unit stretches all of them; a stray clock moves few.
    stretched = float(near.quantile(0.9) - near.quantile(0.1)) > 0.1 * (near.max() - near.min())
    fitting = {
        unit: name
        for unit, (factor, name) in SMALLER.items()
        if stretched and not draft.calendar and DAY_S <= span * factor <= 2 * YEAR_S
    }
    what = f" Are the times {next(iter(fitting.values()))}?" if fitting else ""
    far = (submit - middle).abs() > LONGEST_S / 2
    answer = gate.ask(
        "span",
        f"The submissions span {_length(span)}.{what}",
        "the times are right",
        **{unit: f"they are {name}" for unit, name in fitting.items()},
        **{
            WINDOW: f"leave out the {int(far.sum()):,} rows more than 2.5 years from the middle one"
        },
    )
    if answer == WINDOW:
        reason = f"{ANSWERED}more than 2.5 years from the middle submission"
        return gate.report.drop(jobs, far, reason, submit)
    if answer == GO_ON:
        return jobs
    follows = ("duration_s",) if _runs_are_spans(jobs) else ()
    return _scaled(jobs, (*INSTANTS, *follows), SMALLER[answer][0])


def _runs_are_spans(jobs: pd.DataFrame) -> bool:
    """Tell whether durations are the time from start to end, and so in the unit of the times."""
    own = np.abs(jobs["duration_s"] - _from_start_to_end(jobs)) <= 1e-3
    return bool(own.mean() > 0.9)


def _reversed(jobs: pd.DataFrame, gate: Gate) -> pd.DataFrame:
    length = _from_start_to_end(jobs)
    back = length < 0
    if not back.any():
        return jobs
    if back.mean() > 0.01:
        text = (
            f"{_of(back)} end before they start, the first by"
            f" {_length(-float(length[back].iloc[0]))}. Are the columns swapped?"
        )
        left = "the columns are right: leave these rows out"
        if gate.ask("reversed", text, left, swap="swap start and end of these rows") == "swap":
            start, end = jobs["start_time_s"], jobs["end_time_s"]
            return jobs.assign(
                start_time_s=start.where(~back, end),
                end_time_s=end.where(~back, start),
                duration_s=jobs["duration_s"].abs().where(back, jobs["duration_s"]),
            )
    return gate.report.drop(
        jobs, back, "the end is before the start", length.map("{:g} s after it".format)
    )


def _long(
    jobs: pd.DataFrame, positive: NDArray[np.float64], options: ReadOptions, gate: Gate
) -> pd.DataFrame:
    # What is left out for its size anyway says nothing of the others.
    positive = positive[positive <= LATEST_S]
    middle = float(np.median(positive)) if len(positive) else 0.0
    if middle > 60 * DAY_S:
        smaller = {"s": 1.0, "ms": 1e-3}
        ways = {
            unit: factor / SECONDS[options.duration_unit or "s"]
            for unit, factor in smaller.items()
            if factor < SECONDS[options.duration_unit or "s"]
        }
        names = {"s": "they are seconds", "ms": "they are milliseconds"}
        text = f"Half of the jobs run for {_length(middle)} or more. Is the unit right?"
        answer = gate.ask("long", text, "the unit is right", **{way: names[way] for way in ways})
        return jobs if answer == GO_ON else _scaled(jobs, ("duration_s",), ways[answer])
    longer = (jobs["duration_s"] > LONGEST_S) & (jobs["duration_s"] <= LATEST_S)
    if longer.any():
        text = f"{_of(longer)} run for more than 5 years."
        if gate.warn("long_rows", text, f"leave these {int(longer.sum()):,} out"):
            return gate.report.drop(jobs, longer, f"{ANSWERED}it runs for more than 5 years")
    return jobs


def unended(jobs: pd.DataFrame) -> tuple[Mask, Mask]:
    """Return which jobs still ran, and which had not begun, when a table was written."""
    if "status" not in jobs:
        never = pd.Series(False, index=jobs.index)
        return never, never
    distinct = {str(word): str(word).strip().lower() for word in jobs["status"].dropna().unique()}
    return (
        jobs["status"].isin([word for word, low in distinct.items() if low in RUNNING]),
        jobs["status"].isin([word for word, low in distinct.items() if low in PENDING]),
    )


def history(unended: int, gate: Gate) -> None:
    """Ask, or say, how many rows had not ended: a list of what runs now is no history."""
    share = unended / max(gate.report.read, 1)
    text = f"{share:.0%} of {gate.report.read:,} rows had not ended when the file was written"
    if share > 0.5:
        gate.ask("open", f"{text}: is this a snapshot, not a history?", "use those that ended")
    elif share > 0.2:
        gate.warn("open", f"{text}. They are left out, or cut at the end if you choose so.")


def sizes(jobs: pd.DataFrame, draft: Draft, gate: Gate) -> pd.DataFrame:
    """Ask about GPU counts and names, before jobs without a GPU are left out and fractions are
    rounded.
    """
    gpus = jobs["num_gpus"].to_numpy()
    if len(gpus) >= 20 and ((np.mod(gpus, 5) == 0) & (gpus >= 5)).mean() >= 0.95:
        text = f"Nearly all GPU counts are multiples of 5, such as {gpus[0]:g}. Are they per cent?"
        if gate.ask("percent", text, "they are GPUs", percent="100 is one GPU") == "percent":
            jobs = _scaled(jobs, ("num_gpus", "min_gpus", "max_gpus"), 0.01)
    if draft.fmt not in _MAPPED:
        return jobs
    source = str(draft.raw["num_gpus"].name) if "num_gpus" in draft.raw else ""
    if "cpu" in source and "gpu" not in source:
        text = f"The GPU counts come from the column {source}. Are they cores?"
        if gate.ask("suspect_gpus", text, "they are GPUs", cores="they are cores") == "cores":
            return jobs.assign(cpus=jobs["num_gpus"], num_gpus=0.0)
    for column in ("user", "vc"):
        source = str(draft.raw[column].name) if column in draft.raw else column
        if column not in jobs or source == column:
            continue
        names = pd.Series(jobs[column].dropna().unique())
        if len(names) > 1000 and pd.to_numeric(names, errors="coerce").notna().all():
            text = (
                f"The column {source}, read as {column}, holds {len(names):,}"
                f" different numbers, such as {names[0]}. Does it name anybody?"
            )
            left = f"it is no {column}: leave the column out"
            if gate.ask(f"suspect_{column}", text, "it does", leave_out=left) == DROP:
                jobs = jobs.drop(columns=column)
    return jobs


def jobs_together(jobs: pd.DataFrame, attempts: bool, gate: Gate) -> pd.DataFrame:
    """Ask about, and say, what only all jobs together show.

    Parameters
    ----------
    jobs : DataFrame
        Those that are left.
    attempts : bool
        Whether durations may leave out the time between several attempts.
    gate : Gate
        Who asks.
    """
    if len(jobs) < 2:
        return jobs
    jobs = _contradiction(jobs, gate) if not attempts else jobs
    jobs = _hole(_early(jobs, gate), gate)
    jobs = _same(_twice(jobs, gate), gate)
    work = (jobs["num_gpus"] * jobs["duration_s"]).to_numpy()
    share = float(work.max() / work.sum()) if len(work) and work.sum() > 0 else 0.0
    if len(jobs) >= 50 and share > 0.5:
        at = int(work.argmax())
        most = jobs.iloc[at]
        text = (
            f"Job {most['job_id']} alone asks for {most['num_gpus']:,.0f} GPUs for"
            f" {_length(float(most['duration_s']))}: {share:.0%} of all GPU time."
        )
        if gate.ask("work", text, leave_out="leave this job out") == DROP:
            jobs = gate.report.drop(
                jobs,
                pd.Series(np.arange(len(jobs)) == at, index=jobs.index),
                f"{ANSWERED}more than half of all GPU time",
            )
    return jobs


def _contradiction(jobs: pd.DataFrame, gate: Gate) -> pd.DataFrame:
    length = _from_start_to_end(jobs)
    apart = (jobs["duration_s"] - length).abs()
    odd = apart > np.maximum(60.0, 0.01 * length)
    if not odd.mean() > 0.01:
        return jobs
    three = zip(jobs["job_id"][odd], jobs["duration_s"][odd], length[odd], strict=True)
    shown = "; ".join(f"{job}: {run:g} s and {span:g} s" for job, run, span in list(three)[:3])
    text = f"The duration of {_of(odd)} is not the time from start to end ({shown}). Which holds?"
    ways = {"end": "the time from start to end"}
    if gate.ask("contradiction", text, "the duration", **ways) == "end":
        return jobs.assign(duration_s=jobs["duration_s"].where(length.isna(), length))
    return jobs


def _early(jobs: pd.DataFrame, gate: Gate) -> pd.DataFrame:
    if "start_time_s" not in jobs:
        return jobs
    ahead = jobs["submit_time_s"] - jobs["start_time_s"]
    # What is infinite is taken as not given later.
    early = (ahead > 0) & np.isfinite(ahead)
    if not early.mean() > 0.001:
        return jobs
    offsets = ahead[early]
    shift = 900.0 * round(float(offsets.median()) / 900)
    alike = ((offsets - shift).abs() <= 120).mean() >= 0.9
    zones = shift > 0 and len(offsets) >= 5 and bool(alike)
    text = f"{_of(early)} start before they are submitted"
    if not zones and early.mean() <= 0.05:
        gate.warn("early", f"{text}. Their starts are moved to the submission.")
        return jobs
    ways = {"leave_out": "forget all recorded starts"}
    if zones:
        text += f", nearly all by {_length(shift)}. Are the two in different time zones?"
        ways["shift"] = f"move starts and ends by {_length(shift)}"
    else:
        text += ". Is the submission something else?"
    answer = gate.ask("early", text, "move those starts to the submission", **ways)
    if answer == "shift":
        return _moved(jobs, shift)
    return jobs.drop(columns="start_time_s") if answer == DROP else jobs


def _hole(jobs: pd.DataFrame, gate: Gate) -> pd.DataFrame:
    submit = jobs["submit_time_s"].to_numpy()
    gaps = np.diff(submit)
    if (gaps < 0).any():
        submit = np.sort(submit)
        gaps = np.diff(submit)
    if submit[0] == submit[-1]:
        gate.warn("batch", "All jobs are submitted at once: waits are those of one batch.")
        return jobs
    widest = int(gaps.argmax())
    if len(jobs) < 100 or gaps[widest] <= 0.5 * (submit[-1] - submit[0]):
        return jobs
    if any(key == "span" for key, _ in gate.report.doubts):
        return jobs
    before, after = widest + 1, len(jobs) - widest - 1
    text = (
        f"No job is submitted for {_length(float(gaps[widest]))} of"
        f" {_length(float(submit[-1] - submit[0]))}. Are there two clocks, or two windows?"
    )
    ways = {
        "before": f"use the {before:,} jobs before the gap",
        "after": f"use the {after:,} jobs after it",
    }
    answer = gate.ask("hole", text, "it is one window", **ways)
    if answer == GO_ON:
        return jobs
    early = jobs["submit_time_s"] <= submit[widest]
    reason = f"{ANSWERED}on the other side of the gap"
    return gate.report.drop(jobs, early if answer == "after" else ~early, reason)


def _twice(jobs: pd.DataFrame, gate: Gate) -> pd.DataFrame:
    facts = ["submit_time_s", "duration_s", "num_gpus"]
    # Where all jobs come at once there are too few facts to tell two jobs from one.
    if len(jobs) < 20 or jobs["submit_time_s"].min() == jobs["submit_time_s"].max():
        return jobs
    if _repeats(jobs, facts) <= 0.05 * len(jobs):
        return jobs
    facts += ["user"] if "user" in jobs else []
    # A row with the id of another is left out, or a job of its own, whatever it repeats.
    again = jobs.duplicated(facts) & ~jobs["job_id"].duplicated()
    if again.mean() <= 0.05:
        return jobs
    same = "duration, GPUs and user" if "user" in jobs else "duration and GPUs"
    text = f"{_of(again)} repeat the submission, {same} of another."
    if gate.warn("twice", text, "leave the repeated rows out"):
        return gate.report.drop(jobs, again, f"{ANSWERED}repeats another row")
    return jobs


def _repeats(jobs: pd.DataFrame, columns: list[str]) -> int:
    """Return how many rows repeat others in some numbers, or a few more: by a hash of them."""
    mixed = np.zeros(len(jobs), np.uint64)
    for column in columns:
        bits = (jobs[column].to_numpy(np.float64) + 0.0).view(np.uint64)
        mixed = (mixed ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mixed.sort()
    return int((mixed[1:] == mixed[:-1]).sum())


def _same(jobs: pd.DataFrame, gate: Gate) -> pd.DataFrame:
    if len(jobs) < 200:
        return jobs
    durations = np.sort(jobs["duration_s"].to_numpy())
    # A value that more than a fifth of the jobs share is at one of these places.
    places = durations[np.linspace(0, len(durations) - 1, 12).astype(int)]
    counts = {
        float(value): int(
            np.searchsorted(durations, value, "right") - np.searchsorted(durations, value, "left")
        )
        for value in places
    }
    value, most = max(counts.items(), key=lambda item: item[1])
    longest = len(durations) - int(np.searchsorted(durations, durations[-1], "left"))
    cut = not gate.given and len(durations) >= 1000 and longest >= 5
    if not gate.given and most > 0.2 * len(durations):
        text = f"{most:,} of {len(durations):,} jobs run for exactly {_length(value)}."
        text += " Were they cut at the end of a window?" if value == durations[-1] else ""
        if gate.ask("same", text, leave_out=f"leave these {most:,} out") == DROP:
            alike = jobs["duration_s"] == value
            jobs = gate.report.drop(jobs, alike, f"{ANSWERED}the duration that many jobs have")
            cut = cut and value != durations[-1]
    if cut:
        text = (
            f"{longest:,} jobs have exactly the longest duration, {durations[-1]:,.0f} s: they were"
            " cut there in the source."
        )
        gate.warn("cut", text)
        gate.doubt("cut", text)
    gpus = jobs["num_gpus"].to_numpy()
    if len(gpus) and gpus[0] > 1 and bool((gpus == gpus[0]).all()):
        text = (
            f"All {len(gpus):,} jobs ask for {gpus[0]:g} GPUs. Is that the size of a node, not of a"
            " job?"
        )
        if gate.ask("same_gpus", text, one="take one GPU for each job") == "one":
            return jobs.assign(num_gpus=1.0)
    return jobs


def left(name: str, gate: Gate) -> None:
    """Ask to go on where much was left out for reasons that no log gives.

    Raises
    ------
    TraceError
        If the user does not want the rest.
    """
    report = gate.report
    reasons: dict[str, int] = {}
    for part in report.parts:
        gone = part.loc[part["action"] == "dropped", "reason"]
        if len(gone) and not pd.Series([gone.iloc[0]]).str.contains(NOT_COUNTED).iloc[0]:
            reasons[str(gone.iloc[0])] = reasons.get(str(gone.iloc[0]), 0) + len(gone)
    if gate.unanswered("collide"):
        reasons.pop(SAME_ID, None)
    rows = sum(reasons.values())
    if report.read >= 10 and rows > 0.2 * report.read:
        most = max(reasons, key=lambda reason: reasons[reason])
        text = (
            f"{rows:,} of {report.read:,} rows are left out, most because {most}. Are units, dates"
            " and columns read as meant?"
        )
        if gate.ask("left", text, "use the other rows", stop="do not use the file") == "stop":
            raise TraceError(f"{name}: {text} Choose other units or columns, or correct the file.")


def collide(ids: pd.Series, gate: Gate) -> bool:
    """Return whether repeated ids that a spreadsheet has rounded are to be kept as jobs of their
    own.
    """
    rounded = ids[ids.str.fullmatch(r"\d(?:[.,]\d+)?[eE]\+?\d+")]
    if rounded.empty:
        return False
    text = (
        f"{len(rounded):,} {'id repeats and is' if len(rounded) == 1 else 'ids repeat and are'}"
        f" rounded, such as {rounded.iloc[0]}: a spreadsheet may"
        " have made one of several. Are they different jobs?"
    )
    later = "they are one job each: leave the later rows out"
    return gate.ask("collide", text, later, keep="they are different: keep all") == "keep"


def _from_start_to_end(jobs: pd.DataFrame) -> pd.Series:
    if not {"start_time_s", "end_time_s"} <= set(jobs.columns):
        return pd.Series(np.nan, index=jobs.index)
    return jobs["end_time_s"] - jobs["start_time_s"]


def _moved(jobs: pd.DataFrame, seconds: float) -> pd.DataFrame:
    columns = [column for column in ("start_time_s", "end_time_s") if column in jobs]
    return jobs.assign(**{column: jobs[column] + seconds for column in columns})


def _scaled(jobs: pd.DataFrame, columns: tuple[str, ...], factor: float) -> pd.DataFrame:
    return jobs.assign(**{column: jobs[column] * factor for column in columns if column in jobs})


def _of(which: pd.Series) -> str:
    return f"{int(which.sum()):,} of {len(which):,} jobs"


def _length(seconds: float) -> str:
    """Return a length of time in the largest unit of which it has at least two."""
    for unit, name in ((YEAR_S, "years"), (DAY_S, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            digits = 0 if seconds >= 10 * unit or seconds % unit == 0 else 1
            return f"{seconds / unit:,.{digits}f} {name}"
    return f"{seconds:,.0f} seconds"
