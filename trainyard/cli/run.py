"""The ``run`` command: from arguments to a study, through the simulator, to a table, a JSON
document and CSV files.
"""

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
from sim.metrics import measured
from sim.metrics.registry import COLUMNS, JSON_KEYS, Metric
from sim.result import RunResult
from sim.trace import Trace
from trainyard.cli.errors import UsageError
from trainyard.cli.given import add_reading, beside_the_trace, folder_of, study_of
from trainyard.cli.totals import command_totals
from trainyard.library import library
from trainyard.preflight import coverage, preflight
from trainyard.results import past, plainest
from trainyard.results.assumed import assumed
from trainyard.results.compare import Outcome
from trainyard.results.headline import Headline, headline
from trainyard.results.meaning import setting
from trainyard.results.plainest import AUTO
from trainyard.runs.engines import ENGINES
from trainyard.runs.estimate import LONG_S, usual_seconds
from trainyard.runs.run import run, summarise
from trainyard.runs.totals import JOB_COLUMNS
from trainyard.store import Store, plain, profiles
from trainyard.store.profiles import RELATIVE
from trainyard.study import catalog
from trainyard.study.scenario import RIGID, Scenario
from trainyard.study.study import Study
from trainyard.text import duration, plural, why_failed
from trainyard.traces.sources import Source, changed, check_measure
from trainyard.traces.start import with_model

_SHOWN: Final = {metric.short: metric for metric in COLUMNS.values() if metric.short}
"""Columns of the table, from `sim.metrics.registry`."""
_MAY_BE_SILENT: Final = frozenset(
    {"over a day", *(title for title, metric in _SHOWN.items() if metric.silent is not None)}
)
_SILENT: Final = frozenset({"-", "0"})
"""Columns that are left out where all their cells say nothing, and what says nothing."""


@dataclass(frozen=True, eq=False)
class Finished:
    """One run with its numbers; `policy` = its place in the study."""

    label: str
    policy: int
    scenario: Scenario
    result: RunResult
    summary: Mapping[str, Any]


class StudyPart(NamedTuple):
    """What is compared under one performance model: a study, its runs, why policies were skipped,
    by their label, and all that was asked for.
    """

    study: Study
    labels: tuple[str, ...]
    done: list[Finished]
    skipped: dict[str, str]
    asked: Study


def add_run(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard run``."""
    parser.set_defaults(command=command_run)
    parser.add_argument(
        "--trace",
        metavar="FILE|sample:NAME|made:NAME",
        help="the jobs; formats are recognised by content",
    )
    add_reading(parser)
    parser.add_argument(
        "--cluster",
        metavar="SPEC|FILE",
        help=(
            "the machines, e.g. 16x8:v100,4x4:t4 or 4xp4d.24xlarge, or a file that describes them,"
            " and speeds of types that are not known: nodes.csv,12gb=0.4; else the sample's own,"
            " or one built from the trace"
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
            "how fast jobs run; auto = every policy under the plainest model that it can run under;"
            " table=FILE.csv is a profile of your own"
        ),
    )
    parser.add_argument(
        "--without-unmeasured",
        action="store_true",
        help="leave out jobs of which the profile of measured throughputs knows too little",
    )
    parser.add_argument("--seed", metavar="N", help="of everything random (default 0)")
    parser.add_argument("--horizon-s", metavar="S", help="stop at this simulated second")
    parser.add_argument("--scenario", metavar="FILE.json", help="repeat exactly what a page saved")
    parser.add_argument(
        "--set",
        metavar="path=value",
        action="append",
        help="change one value, e.g. faults.mtbf_h=500; repeat for more",
    )
    parser.add_argument(
        "--checkpoints",
        metavar="NAME",
        help="take measured times to save and load, e.g. ddp-flash; see: list checkpoints",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="",
        help=(
            "what makes the runs: the fast engine where it can (auto), always the general simulator"
            " (kernel), or only the fast engine; the results are the same"
        ),
    )
    parser.add_argument(
        "--summary-only",
        action="store_true",
        help=(
            "for millions of jobs: read a native Parquet file column by column, run on the fast"
            " engine, and print times and counts without keeping a record of the run"
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
    """Execute ``python -m trainyard run``.

    Raises
    ------
    TrainyardError
        If the input cannot be used, or no policy could be run.
    """
    if args.summary_only:
        command_totals(args)
        return
    study, source = study_of(args)
    source = _measured(args, study, source)
    trace = changed(source.trace, study.base.trace)
    check_measure(trace, study.base.measure)
    parts = _parts(args, study, trace)
    sentences = list(
        dict.fromkeys(
            sentence for part in parts for sentence in preflight.remarks(part.study, trace)
        )
    )
    how_long = _how_long(parts, trace, args.engine)
    sys.stderr.writelines(f"{sentence}\n" for sentence in [*sentences, *how_long])
    _run_all(parts, trace, folder_of(args.jobs_out) if args.jobs_out else None, args.engine)
    skipped = {label: why for part in parts for label, why in part.skipped.items()}
    sys.stderr.writelines(f"Skipped: {label}. {why}\n" for label, why in skipped.items())
    as_json = (
        json.dumps(_document(source, trace, parts), indent=2, ensure_ascii=False, allow_nan=False)
        if args.json
        else ""
    )
    sys.stdout.write((as_json or _text(source, trace, parts)) + "\n")
    for part in parts if args.keep else ():
        kept = part.study.only(sorted({one.policy for one in part.done}))
        made = library.keep(
            Store(), library.HERE, kept, source, [(one.scenario, one.result) for one in part.done]
        )
        sys.stderr.write(f"Kept in the library: python -m trainyard runs show {made[:12]}\n")
    after = [
        f"{one.label}: {sentence}"
        for part in parts
        for one in part.done
        for sentence in one.result.remarks
    ]
    sys.stderr.writelines(f"{sentence}\n" for sentence in after if sentence not in sentences)


def _parts(args: argparse.Namespace, study: Study, trace: Trace) -> list[StudyPart]:
    """Return what is compared, policies that cannot run left out with their reason: one comparison,
    or under ``--perf auto`` one for each model it takes.
    """
    found = plainest.arranged(study, trace) if args.perf == AUTO else ()
    if not found:
        able = [
            at
            for at, spec in enumerate(study.allocators)
            if not catalog.allocator(spec, trace, study.base.perf).reason
        ]
        found = (plainest.PerfPart(study.base.perf, tuple(able)),)
    parts: list[StudyPart] = []
    for perf, places in found:
        whole = with_model(study, "perf", perf)
        suffix = f" ({perf.name})" if parts else ""
        parts.append(
            StudyPart(
                whole.only(places) if places else whole,
                tuple(f"{study.labels[at]}{suffix}" for at in places),
                [],
                {},
                study,
            )
        )
    served = {at for _, places in found for at in places}
    for at, spec in enumerate(study.allocators):
        if at not in served:
            parts[0].skipped[study.labels[at]] = catalog.allocator(
                spec, trace, found[0].perf
            ).reason
    if not served:
        label, why = next(iter(parts[0].skipped.items()))
        raise ParameterError(f"{label} cannot run here: {why}")
    return parts


def _how_long(parts: Sequence[StudyPart], trace: Trace, engine: str) -> list[str]:
    """Return how long runs will take that take minutes, and which policy takes most of it."""
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
    """Run all policies; one whose run is stopped is skipped, with the reason.

    Raises
    ------
    TrainyardError
        If no run came to its end: the reason of the first.
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
                _write_jobs(folder, done, trace, part.study.base.trace.source)
    if not any(part.done for part in parts):
        raise stopped[0]


def run_policy(study: Study, at: int, label: str, trace: Trace, engine: str) -> list[Finished]:
    """Run the repeats of the policy at a place of a study, with a bar.

    Raises
    ------
    TrainyardError
        If a run is stopped.
    """
    done = []
    for scenario in study.repeated(at):
        name = label if study.repeats == 1 else f"{label} seed={scenario.seed}"
        with Bar(name, sys.stderr) as bar:
            result = run(scenario, trace=trace, progress=bar, engine=engine)
        done.append(Finished(name, at, scenario, result, summarise(scenario, result, trace)))
    return done


def _measured(args: argparse.Namespace, study: Study, source: Source) -> Source:
    """Say what a measured profile lacks, before the run; return the jobs, on request without those
    that it does not know.
    """
    base = study.base
    if args.without_unmeasured:
        source = coverage.measured_only(source, base.perf, base.cluster)
    fit = coverage.check(base.perf, changed(source.trace, base.trace), base.cluster)
    if fit is None and args.without_unmeasured:
        raise UsageError(
            "--without-unmeasured goes with a performance model of measured throughputs, but this"
            f" is {base.perf.name}. Leave it out."
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
            sys.stderr.writelines(f"{line}\n" for line in _read(source, "."))
        raise ParameterError(_ways_out(fit))
    return source


def _ways_out(fit: coverage.ProfileCoverage) -> str:
    count = int(fit.unmeasured.sum())
    values = {RELATIVE: f"stand_in={RELATIVE}", "": "stand_in=MODEL (one of the profile)"}
    ways = [
        f"{values[way]} in --perf, which helps {jobs:,} of {plural(count, 'job')}"
        for way, jobs in fit.helped.items()
    ]
    if not fit.unmeasured.all():
        ways.append(f"--without-unmeasured, which leaves {plural(count, 'job')} out")
    return f"No run has begun. Ways out: {'; '.join([*ways, 'a profile that has these jobs'])}."


def _write_jobs(folder: Path, done: Sequence[Finished], trace: Trace, source: str) -> None:
    for one in done:
        path = beside_the_trace(folder / f"{one.label}.csv", source)
        table = one.result.jobs.assign(job_id=trace.frame["job_id"].to_numpy())[list(JOB_COLUMNS)]
        try:
            table.to_csv(path, index=False, lineterminator="\n")
        except OSError as error:
            raise UsageError(
                f"{path}: the jobs cannot be written ({error.strerror}). Choose another folder."
            ) from error


def _document(source: Source, trace: Trace, parts: Sequence[StudyPart]) -> dict[str, Any]:
    about = {
        "name": trace.name,
        "source": parts[0].study.base.trace.source,
        **source.account,
        "jobs": len(trace),
        "span_s": trace.span_s,
        "gpu_hours": trace.gpu_seconds / 3600,
        "epoch": trace.epoch,
        "digest": source.trace.digest,
        "assumptions": _of_trace(parts, trace),
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
    assumptions = [sentence for part in parts for sentence in _assumed(part, trace)]
    told, *others = [(part, found.to_json()) for part in parts if (found := _headline(part, trace))]
    further = [{"perf": str(part.study.base.perf), **found} for part, found in others]
    document: dict[str, Any] = plain(
        {
            "trace": about,
            "headline": told[1],
            **({"other_headlines": further} if further else {}),
            "assumptions": list(dict.fromkeys(assumptions)),
            "runs": rows,
            "skipped": skipped,
        }
    )
    return document


def _of_trace(parts: Sequence[StudyPart], trace: Trace) -> list[str]:
    return list(
        dict.fromkeys(
            sentence
            for part in parts
            for sentence in profiles.assumptions(part.study.base.perf, trace)
        )
    )


def _assumed(part: StudyPart, trace: Trace) -> tuple[str, ...]:
    return assumed(part.study, trace, [one.summary for one in part.done])


def _text(source: Source, trace: Trace, parts: Sequence[StudyPart]) -> str:
    account, cluster = source.account, parts[0].study.base.cluster
    lines = [
        *_read(
            source,
            f"; {plural(len(trace), 'job')} on {plural(cluster.gpus, 'GPU')} of"
            f" {plural(len(cluster.nodes), 'node')}.",
        ),
        *(
            f"  {sentence}"
            for sentence in (
                *account.get("warnings", ()),
                *account.get("guesses", ()),
                *_of_trace(parts, trace),
            )
        ),
    ]
    for part in parts:
        lines += ["", *_table(part), *_answer(part, trace)]
    return "\n".join(lines)


def _table(part: StudyPart) -> list[str]:
    made = [_cells(one) for one in part.done]
    columns = [(title, *(cells[title] for cells in made)) for title in made[0]] if made else []
    columns = [
        column
        for column in columns
        if column[0] not in _MAY_BE_SILENT or not set(column[1:]) <= _SILENT
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


def _headline(part: StudyPart, trace: Trace) -> Headline | None:
    ran = sorted({one.policy for one in part.done})
    if not ran:
        return None
    return headline_of(
        part.study.only(ran),
        trace,
        [RunWithSummary(one.result, one.summary) for one in part.done],
        part.asked,
    )


def _answer(part: StudyPart, trace: Trace) -> list[str]:
    """Return the headline of a comparison, and below it what is assumed."""
    told, lines = _headline(part, trace), []
    if told and (len(part.study.allocators) > 1 or told.verdict != "nothing"):
        lines += ["", *told.lines()]
    sentences, perf = _assumed(part, trace), part.study.base.perf
    under = [] if perf.name == RIGID.name else [f"Performance model: {catalog.model_title(perf)}."]
    return [*lines, " ".join([*under, *sentences])] if under or sentences else lines


def _read(source: Source, end: str) -> list[str]:
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


def _cells(one: Finished) -> dict[str, str]:
    numbers = one.summary
    others = [
        f"{numbers[name]:,} {name}"
        for name in ("failed", "impossible", "refused", "unfinished")
        if numbers[name]
    ]
    return {
        "allocator": one.label,
        "done": f"{numbers['completed']:,}",
        "not done": ", ".join(others) or "0",
        **{title: _cell(numbers[metric.name], metric) for title, metric in _SHOWN.items()},
    }


def _cell(value: float, metric: Metric) -> str:
    """Return a number as the table writes it; "-" = unknown, "0" = no time at all is lost."""
    if math.isnan(value):
        return "-"
    if metric.unit == "s":
        return "0" if value == metric.silent else duration(value)
    return f"{100 * value:.1f} %" if metric.unit == "1" else f"{value:,}"


class Bar:
    """A progress bar on a terminal; silent when the output is piped."""

    def __init__(
        self, label: str, stream: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._label, self._stream, self._clock = label, stream, clock
        self._on = stream.isatty()
        self._due_s = 0.0

    def __enter__(self) -> Bar:
        return self

    def __call__(self, progress: Progress) -> None:
        """Draw, at most five times a second."""
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
    """One run of a study, with its numbers."""

    result: RunResult
    summary: Mapping[str, Any]


def headline_of(
    study: Study, trace: Trace, runs: Sequence[RunWithSummary], asked: Study | None = None
) -> Headline:
    """Return the headline of a study.

    Parameters
    ----------
    study, trace : Study, Trace
        What was asked, and its jobs.
    runs : sequence of RunWithSummary
        All repeats of the first policy, then those of the next one.
    asked : Study or None
        What this is a part of: ways out name places in it, and its baseline may not be here.
    """
    turns = study.repeats
    outcomes = {
        at: _outcome(study, at, runs[at * turns : (at + 1) * turns])
        for at in range(len(study.allocators))
    }
    # Only gains over a recorded schedule depend on what was checked; then the store knows of it.
    replayed = any(one.replays for one in outcomes.values())
    known = setting(study, trace, outcomes, past.known(study, Store()) if replayed else None)
    if asked is not None:
        places = {
            label: asked.allocators.index(study.allocators[at])
            for label, at in known.references.items()
        }
        there = study.allocators[study.baseline] == asked.allocators[asked.baseline]
        site = known.past
        if site is not None:
            site = replace(site, at=asked.allocators.index(study.allocators[site.at]))
        known = replace(
            known,
            references=places,
            past=site,
            asked="" if there else asked.labels[asked.baseline],
        )
    return headline(tuple(outcomes.values()), study.baseline, setting=known)


def _outcome(study: Study, at: int, runs: Sequence[RunWithSummary]) -> Outcome:
    replays = "recorded_start" in catalog.allocator(study.allocators[at]).needs.reads
    return Outcome(
        label=study.labels[at],
        summaries=tuple(one.summary for one in runs),
        jobs=tuple(one.result.jobs for one in runs),
        replays=replays,
        overflow=replays and any(one.summary["overflow_gpu_s"] for one in runs),
        measured=tuple(measured(one.result, study.base.measure) for one in runs),
    )
