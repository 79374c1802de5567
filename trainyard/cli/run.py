"""The ``run`` command: simulates a trace under policies; prints a table or JSON."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from sim.engine.simulator import Progress
from sim.errors import ParameterError, TrainyardError
from sim.metrics import measured_mask
from sim.metrics.registry import COLUMNS, JSON_KEYS, Metric
from sim.result import RunResult
from sim.trace import Trace
from trainyard.cli.arguments import add_reading, check_not_trace, load_study, make_folder
from trainyard.cli.errors import UsageError
from trainyard.cli.summary_only import command_totals
from trainyard.formatting import duration, plural, why_failed
from trainyard.library import library
from trainyard.preflight import coverage, preflight
from trainyard.results import backtest_verdict, simplest_model
from trainyard.results.assumptions import assumption_sentences
from trainyard.results.compare import Outcome
from trainyard.results.headline import Headline, headline
from trainyard.results.simplest_model import AUTO
from trainyard.results.validity import setting
from trainyard.runs.engines import ENGINES
from trainyard.runs.estimate import LONG_S, usual_seconds
from trainyard.runs.run import run, summarize_run
from trainyard.runs.summary_only import JOB_COLUMNS
from trainyard.store import Store, plain, profiles
from trainyard.store.profiles import RELATIVE
from trainyard.study import catalog
from trainyard.study.scenario import RIGID, Scenario
from trainyard.study.study import Study
from trainyard.traces.new_study import with_model
from trainyard.traces.sources import Source, apply_changes, check_measure

_TABLE_METRICS: Final = {metric.short: metric for metric in COLUMNS.values() if metric.short}
"""Columns of the table, from `sim.metrics.registry`."""
_OPTIONAL_COLUMNS: Final = frozenset(
    {
        "over a day",
        *(title for title, metric in _TABLE_METRICS.items() if metric.silent is not None),
    }
)
_EMPTY_CELLS: Final = frozenset({"-", "0"})
"""Columns to omit if all cells are empty values, and the empty values."""


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """One finished run with its numbers; `policy` is the index of its policy in the study."""

    label: str
    policy: int
    scenario: Scenario
    result: RunResult
    summary: Mapping[str, Any]


class StudyPart(NamedTuple):
    """The runs of a study under one performance model.

    `skipped` maps policies to the reason why they did not run; `whole_study` is the study of the
    command line, of which this may be a part.
    """

    study: Study
    labels: tuple[str, ...]
    done: list[FinishedRun]
    skipped: dict[str, str]
    whole_study: Study


def add_run(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard run``."""
    parser.set_defaults(command=command_run)
    parser.add_argument(
        "--trace",
        metavar="FILE|sample:NAME|made:NAME",
        help="the jobs; the format is detected from the content",
    )
    add_reading(parser)
    parser.add_argument(
        "--cluster",
        metavar="SPEC|FILE",
        help=(
            "the machines, e.g. 16x8:v100,4x4:t4 or 4xp4d.24xlarge, or a file; add speeds of"
            " unknown GPU types: nodes.csv,12gb=0.4 (default: the sample's cluster, or one built"
            " from the trace)"
        ),
    )
    parser.add_argument(
        "--policy",
        "--allocator",
        dest="allocator",
        metavar="NAME[:key=value,...]",
        action="append",
        help="a policy, or all; repeat to compare",
    )
    parser.add_argument(
        "--perf",
        metavar="NAME[:key=value,...]",
        help=(
            "performance model of jobs; auto = the simplest model that each policy supports;"
            " table=FILE.csv adds your own profile"
        ),
    )
    parser.add_argument(
        "--without-unmeasured",
        action="store_true",
        help="leave out jobs that the profile of measured throughputs does not cover",
    )
    parser.add_argument("--seed", metavar="N", help="seed of all random numbers (default 0)")
    parser.add_argument("--horizon-s", metavar="S", help="stop at this second of simulated time")
    parser.add_argument(
        "--scenario", metavar="FILE.json", help="run a scenario file saved in the app"
    )
    parser.add_argument(
        "--set",
        metavar="path=value",
        action="append",
        help="change one value, e.g. faults.mtbf_h=500; repeat for more",
    )
    parser.add_argument(
        "--checkpoints",
        metavar="NAME",
        help="use measured times to save and load, e.g. ddp-flash; see: list checkpoints",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="",
        help=(
            "auto = the fast engine where possible; kernel = always the general simulator; fast ="
            " only the fast engine; results are equal"
        ),
    )
    parser.add_argument(
        "--summary-only",
        action="store_true",
        help=(
            "for millions of jobs: read a native Parquet file by column, use the fast engine, and"
            " print times and counts without recording the run"
        ),
    )
    parser.add_argument("--jobs-out", metavar="DIR", help="write DIR/<label>.csv, one row per job")
    parser.add_argument(
        "--keep", action="store_true", help="keep the results in the library, see: runs list"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead of a table"
    )


def command_run(args: argparse.Namespace) -> None:
    """Execute ``run``: simulate each policy, and print a table or JSON.

    Raises
    ------
    TrainyardError
        If the input cannot be used, or no policy could be run.
    """
    if args.summary_only:
        command_totals(args)
        return
    study, source = load_study(args)
    source = _check_coverage(args, study, source)
    trace = apply_changes(source.trace, study.base.trace)
    check_measure(trace, study.base.measure)
    parts = _split_by_model(args, study, trace)
    sentences = list(
        dict.fromkeys(
            sentence for part in parts for sentence in preflight.study_notes(part.study, trace)
        )
    )
    how_long = _duration_warning(parts, trace, args.engine)
    sys.stderr.writelines(f"{sentence}\n" for sentence in [*sentences, *how_long])
    _run_all(parts, trace, make_folder(args.jobs_out) if args.jobs_out else None, args.engine)
    skipped = {label: why for part in parts for label, why in part.skipped.items()}
    sys.stderr.writelines(f"Skipped: {label}. {why}\n" for label, why in skipped.items())
    as_json = (
        json.dumps(
            _run_document(source, trace, parts), indent=2, ensure_ascii=False, allow_nan=False
        )
        if args.json
        else ""
    )
    sys.stdout.write((as_json or _run_text(source, trace, parts)) + "\n")
    for part in parts if args.keep else ():
        part_study = part.study.only(sorted({one.policy for one in part.done}))
        item_id = library.keep_study(
            Store(),
            library.HERE,
            part_study,
            source,
            [(one.scenario, one.result) for one in part.done],
        )
        sys.stderr.write(f"Kept in the library: python -m trainyard runs show {item_id[:12]}\n")
    after = [
        f"{one.label}: {sentence}"
        for part in parts
        for one in part.done
        for sentence in one.result.remarks
    ]
    sys.stderr.writelines(f"{sentence}\n" for sentence in after if sentence not in sentences)


def _split_by_model(args: argparse.Namespace, study: Study, trace: Trace) -> list[StudyPart]:
    """Return the parts of a study by performance model; record policies that cannot run.

    With --perf auto each policy gets the simplest model it supports, else there is one part.
    """
    perf_parts = simplest_model.split_by_model(study, trace) if args.perf == AUTO else ()
    if not perf_parts:
        runnable = [
            index
            for index, spec in enumerate(study.allocators)
            if not catalog.allocator(spec, trace, study.base.perf).reason
        ]
        perf_parts = (simplest_model.PerfPart(study.base.perf, tuple(runnable)),)
    parts: list[StudyPart] = []
    for perf, indices in perf_parts:
        with_perf = with_model(study, "perf", perf)
        suffix = f" ({perf.name})" if parts else ""
        parts.append(
            StudyPart(
                with_perf.only(indices) if indices else with_perf,
                tuple(f"{study.labels[index]}{suffix}" for index in indices),
                [],
                {},
                study,
            )
        )
    covered = {index for _, indices in perf_parts for index in indices}
    for index, spec in enumerate(study.allocators):
        if index not in covered:
            parts[0].skipped[study.labels[index]] = catalog.allocator(
                spec, trace, perf_parts[0].perf
            ).reason
    if not covered:
        label, why = next(iter(parts[0].skipped.items()))
        raise ParameterError(f"{label} cannot run here: {why}")
    return parts


def _duration_warning(parts: Sequence[StudyPart], trace: Trace, engine: str) -> list[str]:
    """Return a warning with the expected time if runs take minutes, else []."""
    each_s = {
        label: part.study.repeats
        * usual_seconds(replace(part.study.base, allocator=spec), trace, engine)
        for part in parts
        for label, spec in zip(part.labels, part.study.allocators, strict=True)
    }
    total_s, slowest = sum(each_s.values()), max(each_s, key=each_s.__getitem__)
    if total_s <= LONG_S:
        return []
    most = f", {duration(each_s[slowest])} of it for {slowest}" if len(each_s) > 1 else ""
    return [
        f"{plural(len(trace), 'job')}: these runs usually take about {duration(total_s)}{most}."
        " Fewer jobs or repeats take less; Ctrl+C stops."
    ]


def _run_all(parts: Sequence[StudyPart], trace: Trace, folder: Path | None, engine: str) -> None:
    """Run all policies; a policy that stops is skipped with the reason.

    Finished runs are added to their parts. With a `folder`, a CSV file of jobs is written per run.

    Raises
    ------
    TrainyardError
        If every run stopped: the error of the first.
    """
    stopped: list[TrainyardError] = []
    for part in parts:
        for at, label in enumerate(part.labels):
            try:
                done = run_policy(part.study, at, label, trace, engine)
            except TrainyardError as error:
                stopped.append(error)
                part.skipped[label] = str(error)
                continue
            part.done.extend(done)
            if folder:
                _write_job_tables(folder, done, trace, part.study.base.trace.source)
    if not any(part.done for part in parts):
        raise stopped[0]


def run_policy(
    study: Study, policy_index: int, label: str, trace: Trace, engine: str
) -> list[FinishedRun]:
    """Run all repeats of one policy of a study with a progress bar; return them.

    Raises
    ------
    TrainyardError
        If a run stops.
    """
    done = []
    for scenario in study.policy_scenarios(policy_index):
        name = label if study.repeats == 1 else f"{label} seed={scenario.seed}"
        with Bar(name, sys.stderr) as bar:
            result = run(scenario, trace=trace, progress=bar, engine=engine)
        done.append(
            FinishedRun(
                name, policy_index, scenario, result, summarize_run(scenario, result, trace)
            )
        )
    return done


def _check_coverage(args: argparse.Namespace, study: Study, source: Source) -> Source:
    """Print the jobs that a measured profile lacks; return the source, perhaps without them.

    --without-unmeasured leaves them out. Raises an error if the profile prevents the run.
    """
    base = study.base
    if args.without_unmeasured:
        source = coverage.measured_only(source, base.perf, base.cluster)
    fit = coverage.profile_coverage(
        base.perf, apply_changes(source.trace, base.trace), base.cluster
    )
    if fit is None and args.without_unmeasured:
        raise UsageError(
            "--without-unmeasured needs a performance model of measured throughputs, not"
            f" {base.perf.name}. Leave it out."
        )
    if fit:
        heading = (fit.heading,) if fit.heading else ()
        sys.stderr.write(
            "".join(
                f"{sentence}\n"
                for sentence in (*fit.sentences, *heading, *(f"  {line}" for line in fit.lines()))
            )
        )
    if fit and not fit.runs:
        if source.account.get("dropped"):
            sys.stderr.writelines(f"{line}\n" for line in _reading_lines(source, "."))
        raise ParameterError(_missing_profile_message(fit))
    return source


def _missing_profile_message(fit: coverage.ProfileCoverage) -> str:
    """Return the message that no job can run under the profile, with suggestions."""
    count = int(fit.unmeasured.sum())
    values = {RELATIVE: f"stand_in={RELATIVE}", "": "stand_in=MODEL (one of the profile)"}
    suggestions = [
        f"{values[stand_in]} in --perf, which helps {jobs:,} of {plural(count, 'job')}"
        for stand_in, jobs in fit.helped.items()
    ]
    if not fit.unmeasured.all():
        suggestions.append(f"--without-unmeasured, which leaves {plural(count, 'job')} out")
    suggestions.append("a profile that has these jobs")
    return f"No run was started. Suggestions: {'; '.join(suggestions)}."


def _write_job_tables(folder: Path, done: Sequence[FinishedRun], trace: Trace, source: str) -> None:
    """Write folder/<label>.csv for each run, one row per job."""
    for one in done:
        path = check_not_trace(folder / f"{one.label}.csv", source)
        table = one.result.jobs.assign(job_id=trace.frame["job_id"].to_numpy())[list(JOB_COLUMNS)]
        try:
            table.to_csv(path, index=False, lineterminator="\n")
        except OSError as error:
            raise UsageError(
                f"{path}: the jobs cannot be written ({error.strerror}). Choose another folder."
            ) from error


def _run_document(source: Source, trace: Trace, parts: Sequence[StudyPart]) -> dict[str, Any]:
    """Return the trace, headline, assumptions, runs and skipped policies for JSON."""
    about = {
        "name": trace.name,
        "source": parts[0].study.base.trace.source,
        **source.account,
        "jobs": len(trace),
        "span_s": trace.span_s,
        "gpu_hours": trace.gpu_seconds / 3600,
        "epoch": trace.epoch,
        "digest": source.trace.digest,
        "assumptions": _profile_assumptions(parts, trace),
    }
    rows = []
    for one in (one for part in parts for one in part.done):
        spec = one.scenario.allocator
        name = {
            "allocator": spec.name,
            "label": one.label,
            "params": spec.to_json()["params"],
            "key": one.scenario.key(source.trace.digest),
            "seed": one.scenario.seed,
            "perf": str(one.scenario.perf),
            "engine": one.result.timing.engine,
        }
        rows.append(
            name | {key: one.summary[key] for key in JSON_KEYS} | {"remarks": one.result.remarks}
        )
    skipped = [
        {"label": label, "reason": why} for part in parts for label, why in part.skipped.items()
    ]
    assumptions = [sentence for part in parts for sentence in _part_assumptions(part, trace)]
    first, *rest = [
        (part, headline_json.to_json())
        for part in parts
        if (headline_json := _part_headline(part, trace))
    ]
    other_headlines = [
        {"perf": str(part.study.base.perf), **headline_json} for part, headline_json in rest
    ]
    document: dict[str, Any] = plain(
        {
            "trace": about,
            "headline": first[1],
            **({"other_headlines": other_headlines} if other_headlines else {}),
            "assumptions": list(dict.fromkeys(assumptions)),
            "runs": rows,
            "skipped": skipped,
        }
    )
    return document


def _profile_assumptions(parts: Sequence[StudyPart], trace: Trace) -> list[str]:
    """Return the assumptions that the profiles of all parts make about the trace."""
    return list(
        dict.fromkeys(
            sentence
            for part in parts
            for sentence in profiles.assumptions(part.study.base.perf, trace)
        )
    )


def _part_assumptions(part: StudyPart, trace: Trace) -> tuple[str, ...]:
    """Return the assumptions behind the results of one part."""
    return assumption_sentences(part.study, trace, [one.summary for one in part.done])


def _run_text(source: Source, trace: Trace, parts: Sequence[StudyPart]) -> str:
    """Return the reading report, result tables and headlines as text."""
    account, cluster = source.account, parts[0].study.base.cluster
    lines = [
        *_reading_lines(
            source,
            f"; {plural(len(trace), 'job')} on {plural(cluster.gpus, 'GPU')} of"
            f" {plural(len(cluster.nodes), 'node')}.",
        ),
        *(
            f"  {sentence}"
            for sentence in (
                *account.get("warnings", ()),
                *account.get("guesses", ()),
                *_profile_assumptions(parts, trace),
            )
        ),
    ]
    for part in parts:
        lines += ["", *_table_lines(part), *_headline_lines(part, trace)]
    return "\n".join(lines)


def _table_lines(part: StudyPart) -> list[str]:
    """Return the table of one part: a line per run, causes of failures, skipped policies."""
    cells_of_runs = [_run_cells(one) for one in part.done]
    columns = (
        [(title, *(cells[title] for cells in cells_of_runs)) for title in cells_of_runs[0]]
        if cells_of_runs
        else []
    )
    columns = [
        column
        for column in columns
        if column[0] not in _OPTIONAL_COLUMNS or not set(column[1:]) <= _EMPTY_CELLS
    ]
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    lines += [
        f"{one.label}: {why}." for one in part.done if (why := why_failed(one.summary["failed_by"]))
    ]
    return lines + [f"{label}: skipped. {why}" for label, why in part.skipped.items()]


def _part_headline(part: StudyPart, trace: Trace) -> Headline | None:
    """Return the headline of a part, None if no policy ran."""
    ran = sorted({one.policy for one in part.done})
    if not ran:
        return None
    return headline_of(
        part.study.only(ran),
        trace,
        [RunWithSummary(one.result, one.summary) for one in part.done],
        part.whole_study,
    )


def _headline_lines(part: StudyPart, trace: Trace) -> list[str]:
    """Return the headline of a part, its performance model and assumptions as lines.

    A single policy gets a headline only if it says something.
    """
    part_headline, lines = _part_headline(part, trace), []
    if part_headline and (len(part.study.allocators) > 1 or part_headline.verdict != "nothing"):
        lines += ["", *part_headline.lines()]
    sentences, perf = _part_assumptions(part, trace), part.study.base.perf
    under = [] if perf.name == RIGID.name else [f"Performance model: {catalog.model_title(perf)}."]
    return [*lines, " ".join([*under, *sentences])] if under or sentences else lines


def _reading_lines(source: Source, end: str) -> list[str]:
    """Return the row counts of the reader as lines; `end` closes the first line."""
    account, jobs = source.account, len(source.trace)
    sentences = (
        f"{source.trace.name}: {plural(account.get('read', jobs), 'row')} read,"
        f" {account.get('used', jobs):,} used, {account.get('dropped', 0):,} left out"
    )
    return [
        sentences + end,
        *(
            f"  {item['rows']:,} {item['action']}: {item['reason']}"
            for item in account.get("reasons", ())
        ),
    ]


def _run_cells(one: FinishedRun) -> dict[str, str]:
    """Return column title -> cell of one run, for all columns of the table."""
    numbers = one.summary
    others = [
        f"{numbers[name]:,} {name}"
        for name in ("failed", "impossible", "refused", "unfinished")
        if numbers[name]
    ]
    return {
        "policy": one.label,
        "done": f"{numbers['completed']:,}",
        "not done": ", ".join(others) or "0",
        **{
            title: _format_cell(numbers[metric.name], metric)
            for title, metric in _TABLE_METRICS.items()
        },
    }


def _format_cell(value: float, metric: Metric) -> str:
    """Return a number as the table prints it; "-" = unknown, "0" = no time lost."""
    if math.isnan(value):
        return "-"
    if metric.unit == "s":
        return "0" if value == metric.silent else duration(value)
    return f"{100 * value:.1f} %" if metric.unit == "1" else f"{value:,}"


class Bar:
    """A progress bar on a terminal; prints nothing when the output is piped."""

    def __init__(
        self, label: str, stream: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._label, self._stream, self._clock = label, stream, clock
        self._on = stream.isatty()
        self._due_s = 0.0

    def __enter__(self) -> Bar:
        return self

    def __call__(self, progress: Progress) -> None:
        """Draw the progress, at most five times per second."""
        now = self._clock()
        if not self._on or now < self._due_s:
            return
        self._due_s = now + 0.2
        share = progress.done / max(progress.jobs, 1)
        full = round(30 * share)
        self._stream.write(
            f"\r{self._label[:30]} [{'#' * full}{'.' * (30 - full)}] {100 * share:3.0f} %,"
            f" {duration(progress.now_s)} simulated\x1b[K"
        )
        self._stream.flush()

    def __exit__(self, *_: object) -> None:
        if self._on:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class RunWithSummary(NamedTuple):
    """A run of a study with its summary numbers."""

    result: RunResult
    summary: Mapping[str, Any]


def headline_of(
    study: Study, trace: Trace, runs: Sequence[RunWithSummary], whole_study: Study | None = None
) -> Headline:
    """Return the headline of a study: which policy is better by how much, or why none is.

    Parameters
    ----------
    study, trace : Study, Trace
        The study, and its jobs.
    runs : sequence of RunWithSummary
        All repeats of the first policy, then those of the next one.
    whole_study : Study or None
        Study of which this is a part; suggestions refer to its policies, and its baseline may be
        missing here.
    """
    repeats = study.repeats
    outcomes = {
        index: _policy_outcome(study, index, runs[index * repeats : (index + 1) * repeats])
        for index in range(len(study.allocators))
    }
    # Only gains over a recorded schedule need the result of its backtest.
    replayed = any(one.replays for one in outcomes.values())
    context = setting(
        study, trace, outcomes, backtest_verdict.best_verdict(study, Store()) if replayed else None
    )
    if whole_study is not None:
        references = {
            label: whole_study.allocators.index(study.allocators[index])
            for label, index in context.references.items()
        }
        same_baseline = (
            study.allocators[study.baseline] == whole_study.allocators[whole_study.baseline]
        )
        backtest = context.past
        if backtest is not None:
            backtest = replace(
                backtest, at=whole_study.allocators.index(study.allocators[backtest.at])
            )
        context = replace(
            context,
            references=references,
            past=backtest,
            replaced_baseline="" if same_baseline else whole_study.labels[whole_study.baseline],
        )
    return headline(tuple(outcomes.values()), study.baseline, setting=context)


def _policy_outcome(study: Study, at: int, runs: Sequence[RunWithSummary]) -> Outcome:
    """Return the outcome of one policy from its repeats."""
    replays = "recorded_start" in catalog.allocator(study.allocators[at]).needs.reads
    return Outcome(
        label=study.labels[at],
        summaries=tuple(one.summary for one in runs),
        jobs=tuple(one.result.jobs for one in runs),
        replays=replays,
        overflow=replays and any(one.summary["overflow_gpu_s"] for one in runs),
        measured=tuple(measured_mask(one.result, study.base.measure) for one in runs),
    )
