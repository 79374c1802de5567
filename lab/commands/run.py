"""The ``run`` command: from arguments to a study, through the simulator, to a table, a JSON document and CSV files."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import pandas as pd

from lab import before, catalog, coverage, library, profiles
from lab.clusters.machines import import_cluster
from lab.document import parse_json
from lab.profiles import RELATIVE
from lab.results.compare import Outcome
from lab.results.headline import headline
from lab.results.trust import duration
from lab.run import run, summarise
from lab.scenario import READY, RIGID, Scenario, TraceSpec
from lab.settings import with_settings
from lab.store import Store, plain
from lab.study import Study
from lab.traces.sources import Source, changed, check_measure, load_source
from lab.words import plural, why_failed
from sim.cluster import Cluster
from sim.errors import ParameterError, TrainyardError
from sim.params import Spec
from sim.readers.capacity import cluster_from_trace
from sim.result import RunResult
from sim.simulator import Progress
from sim.trace import Trace

RUN_KEYS: Final = (
    "jobs",
    "completed",
    "failed",
    "impossible",
    "refused",
    "unfinished",
    "completion_rate",
    "deadline_rate",
    "failed_by",
    "jct_mean_s",
    "jct_p50_s",
    "jct_p95_s",
    "jct_p99_s",
    "queue_mean_s",
    "queue_p95_s",
    "wait_mean_s",
    "makespan_s",
    "believed_near",
    "believed_factor",
    "utilisation",
    "cpus_held",
    "cpus_used",
    "mem_held",
    "mem_used",
    "preemptions",
    "evictions",
    "relaunches",
    "restarts",
    "lost_work_s",
    "decisions",
    "decision_ms_mean",
    "cpu_s",
    "peak_rss_mb",
)
JOB_COLUMNS: Final = ("job_id", "submit_s", "first_start_s", "finish_s", "gpus", "outcome")
_MAY_BE_SILENT: Final = frozenset({"deadlines met", "GPUs busy", "CPU used", "memory used", "evicted", "relaunched", "work lost"})
_SILENT: Final = frozenset({"-", "0"})
"""Columns that are left out where all their cells say nothing, and what says nothing."""
READ_CHOICES: Final = ("zone", "cpu_jobs", "unfinished", "since", "time_unit", "duration_unit")


class UsageError(TrainyardError):
    """The arguments contradict each other or something is missing."""


@dataclass(frozen=True, eq=False)
class Finished:
    """One run with its numbers."""

    label: str
    scenario: Scenario
    result: RunResult
    summary: Mapping[str, Any]


def command_run(args: argparse.Namespace) -> None:
    """Execute ``python -m lab run``.

    Raises
    ------
    TrainyardError
        If the input cannot be used or a run was stopped.
    """
    study, source = _study(args)
    source = _measured(args, study, source)
    trace = changed(source.trace, study.base.trace)
    check_measure(trace, study.base.measure)
    names = _run_labels(study)
    said = before.remarks(study, trace)
    sys.stderr.writelines(f"{sentence}\n" for sentence in said)
    folder = _folder(args.jobs_out) if args.jobs_out else None
    done = []
    for label, scenario in names:
        with Bar(label, sys.stderr) as bar:
            result = run(scenario, trace=trace, progress=bar)
        done.append(Finished(label, scenario, result, summarise(scenario, result, trace)))
        if folder:
            _write_jobs(folder / f"{label}.csv", result, trace)
    text = json.dumps(_document(source, trace, study, done), indent=2, ensure_ascii=False, allow_nan=False) if args.json else _table(source, trace, study, done)
    sys.stdout.write(text + "\n")
    if args.keep:
        made = library.keep(Store(), library.HERE, study, source, [(one.scenario, one.result) for one in done])
        sys.stderr.write(f"Kept in the library: python -m lab runs show {made[:12]}\n")
    after = [f"{one.label}: {sentence}" for one in done for sentence in one.result.remarks]
    sys.stderr.writelines(f"{sentence}\n" for sentence in after if sentence not in said)


def _measured(args: argparse.Namespace, study: Study, source: Source) -> Source:
    """Say what a measured profile lacks, before the run; return the jobs, on request without those that it does not know."""
    base = study.base
    if args.without_unmeasured:
        source = coverage.measured_only(source, base.perf, base.cluster)
    fit = coverage.check(base.perf, changed(source.trace, base.trace), base.cluster)
    if fit is None and args.without_unmeasured:
        raise UsageError(f"--without-unmeasured goes with a performance model of measured throughputs, but this is {base.perf.name}. Leave it out.")
    if fit:
        heading = (fit.heading,) if fit.heading else ()
        sys.stderr.write("".join(f"{sentence}\n" for sentence in (*fit.sentences, *heading, *(f"  {line}" for line in fit.lines()))))
    if fit and not fit.runs:
        if source.account.get("dropped"):
            sys.stderr.writelines(f"{line}\n" for line in _read(source, "."))
        raise ParameterError(_ways_out(fit))
    return source


def _ways_out(fit: coverage.Fit) -> str:
    count = int(fit.unmeasured.sum())
    values = {RELATIVE: f"stand_in={RELATIVE}", "": "stand_in=MODEL (one of the profile)"}
    ways = [f"{values[way]} in --perf, which helps {jobs:,} of {plural(count, 'job')}" for way, jobs in fit.helped.items()]
    if not fit.unmeasured.all():
        ways.append(f"--without-unmeasured, which leaves {plural(count, 'job')} out")
    return f"No run has begun. Ways out: {'; '.join([*ways, 'a profile that has these jobs'])}."


def read_text(path: Path, what: str) -> str:
    """Return the text of a small file.

    Raises
    ------
    UsageError
        If it cannot be read.
    """
    try:
        if path.stat().st_size > 50_000_000:
            raise UsageError(f"{path}: this file is too large to be {what}. Check the path.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {what} cannot be read ({error.strerror or error}). Check the path and the rights.") from error
    except ValueError as error:
        raise UsageError(f"{path}: this is not {what}, but something that is no text. Check the path.") from error


def cluster_of(text: str, epoch: str = "") -> Cluster:
    """Return a cluster from a file that `lab.clusters.machines.import_cluster` reads, or from a short description; the suffix decides.

    Raises
    ------
    TrainyardError
        If it cannot be read.
    """
    if not text.lower().endswith((".json", ".csv", ".tsv", ".conf", ".txt", ".log")):
        return Cluster.parse(text)
    cluster, notes = import_cluster(text, read_text(Path(text), "a cluster description").encode(), epoch)
    sys.stderr.writelines(f"{note}\n" for note in notes)
    return cluster


def trace_spec(args: argparse.Namespace) -> TraceSpec:
    """Return the trace that the arguments name, with the choices for reading it.

    Raises
    ------
    TrainyardError
        If a choice is unknown, or there is no file that it could apply to.
    """
    needless = _reading_choices(args) if args.trace.startswith(READY) else []
    if needless:
        raise UsageError(f"{needless[0]} says how a file is read, but {args.trace} is read already. Leave it out, or name a file.")
    given = {name: getattr(args, name) for name in READ_CHOICES if getattr(args, name, None) is not None}
    pairs = [pair.partition("=") for pair in args.map or ()]
    if any(not (native and equals and column) for native, equals, column in pairs):
        raise UsageError("--map wants NATIVE=COLUMN, e.g. --map num_gpus=GPUs.")
    if pairs:
        given["mapping"] = {native: column for native, _, column in pairs}
    return TraceSpec.of(args.trace, fmt=args.format or "", read=given)


def _reading_choices(args: argparse.Namespace) -> list[str]:
    """Return the arguments that say how a file is read, as they were written."""
    return [f"--{name.replace('_', '-')}" for name in ("format", *READ_CHOICES, "map") if getattr(args, name, None) is not None]


def _study(args: argparse.Namespace) -> tuple[Study, Source]:
    if args.scenario is None:
        return _study_of_arguments(args)
    if args.cluster or args.allocator or args.perf:
        raise UsageError("--scenario holds cluster, allocators and models already; change them with --set, e.g. --set cluster=16x8:v100.")
    if not args.trace and (given := _reading_choices(args)):
        raise UsageError(f"{given[0]} says how a file is read, so it needs --trace FILE; the scenario keeps its own choices.")
    document = parse_json(read_text(Path(args.scenario), "a scenario file"), args.scenario)
    if args.trace:
        place = document["base"] if isinstance(document.get("base"), dict) else document
        kept = place.get("trace")
        found = trace_spec(args).to_json()
        place["trace"] = {**(kept if isinstance(kept, dict) else {}), **{key: found[key] for key in ("source", "fmt", "read")}}
    study = Study.from_json(profiles.localised(with_settings(document, _settings(args))))
    return study, load_source(study.base.trace, max_mb=args.max_mb)


def _study_of_arguments(args: argparse.Namespace) -> tuple[Study, Source]:
    if not args.trace:
        raise UsageError("Nothing to run: give --trace FILE, --trace sample:NAME, --trace made:NAME or --scenario FILE.json.")
    if not args.allocator:
        raise UsageError("No allocator is chosen: give --allocator NAME, as often as you like. python -m lab list allocators names them.")
    specs = tuple(Spec.parse(text) for text in args.allocator)
    for spec in specs:
        catalog.canonical("allocator", spec)
    where = trace_spec(args)
    source = load_source(where, max_mb=args.max_mb)
    cluster = cluster_of(args.cluster, source.trace.epoch) if args.cluster else _own_cluster(source)
    study = Study(Scenario(where, cluster, specs[0], profiles.from_file(Spec.parse(args.perf)) if args.perf else RIGID), specs)
    document = profiles.localised(with_settings(study.to_json(), _settings(args)))
    changed_study = Study.from_json(document)
    if changed_study.base.trace != where:
        source = load_source(changed_study.base.trace, max_mb=args.max_mb)
    return changed_study, source


def _settings(args: argparse.Namespace) -> list[str]:
    seed = [] if args.seed is None else [f"seed={args.seed}"]
    horizon = [] if args.horizon_s is None else [f"horizon_s={args.horizon_s}"]
    # First, so that single values can still be set otherwise.
    saving = [f"overheads.{name}={value:g}" for name, value in (catalog.checkpoint_values(args.checkpoints) if args.checkpoints else {}).items()]
    return [*seed, *horizon, *saving, *(args.set or ())]


def _own_cluster(source: Source) -> Cluster:
    if source.cluster is not None:
        return source.cluster
    types = source.trace.texts("gpu_type")
    kind = str(pd.Series(types).mode().iloc[0]) or "v100"
    built = cluster_from_trace(source.trace, gpu_type=kind.lower())
    sys.stderr.write(
        f"No --cluster is given, so one was built from the trace: {plural(len(built.nodes), 'node')} with 8 {kind.lower()} each, {plural(built.gpus, 'GPU')}.\n"
    )
    return built


def _run_labels(study: Study) -> list[tuple[str, Scenario]]:
    if study.repeats == 1:
        return list(zip(study.labels, study.scenarios(), strict=True))
    return [(f"{label} seed={scenario.seed}", scenario) for at, label in enumerate(study.labels) for scenario in study.repeated(at)]


def _folder(text: str) -> Path:
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: the folder cannot be made ({error.strerror}). Choose another one.") from error
    return path


def _write_jobs(path: Path, result: RunResult, trace: Trace) -> None:
    table = result.jobs.assign(job_id=trace.frame["job_id"].to_numpy())[list(JOB_COLUMNS)]
    try:
        table.to_csv(path, index=False, lineterminator="\n")
    except OSError as error:
        raise UsageError(f"{path}: the jobs cannot be written ({error.strerror}). Choose another folder.") from error


def _document(source: Source, trace: Trace, study: Study, done: Sequence[Finished]) -> dict[str, Any]:
    about = {
        "name": trace.name,
        "source": study.base.trace.source,
        **source.account,
        "jobs": len(trace),
        "span_s": trace.span_s,
        "gpu_hours": trace.gpu_seconds / 3600,
        "epoch": trace.epoch,
        "digest": source.trace.digest,
        "assumptions": list(profiles.assumptions(study.base.perf, trace)),
    }
    rows = []
    for one in done:
        spec = one.scenario.allocator
        name = {
            "allocator": spec.name,
            "label": one.label,
            "params": spec.to_json()["params"],
            "key": one.scenario.key(source.trace.digest),
            "seed": one.scenario.seed,
        }
        rows.append(name | {key: one.summary[key] for key in RUN_KEYS})
    document: dict[str, Any] = plain({"trace": about, "runs": rows})
    return document


def _table(source: Source, trace: Trace, study: Study, done: Sequence[Finished]) -> str:
    account, cluster = source.account, study.base.cluster
    lines = [
        *_read(source, f"; {plural(len(trace), 'job')} on {plural(cluster.gpus, 'GPU')} of {plural(len(cluster.nodes), 'node')}."),
        *(f"  {sentence}" for sentence in (*account.get("warnings", ()), *account.get("guesses", ()), *profiles.assumptions(study.base.perf, trace))),
        "",
    ]
    made = [_cells(one) for one in done]
    columns = [(title, *(cells[title] for cells in made)) for title in made[0]]
    columns = [column for column in columns if column[0] not in _MAY_BE_SILENT or not set(column[1:]) <= _SILENT]
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    lines += ["  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]) for row in rows]
    lines += [f"{one.label}: {why}." for one in done if (why := why_failed(one.summary["failed_by"]))]
    outcomes = [_outcome(study, at, done) for at in range(len(study.allocators))]
    if len(outcomes) > 1:
        lines += ["", headline(outcomes, study.baseline)]
    return "\n".join(lines)


def _read(source: Source, end: str) -> list[str]:
    account, jobs = source.account, len(source.trace)
    said = f"{source.trace.name}: {plural(account.get('read', jobs), 'row')} read, {account.get('used', jobs):,} used, {account.get('dropped', 0):,} left out"
    return [said + end, *(f"  {item['rows']:,} {item['action']}: {item['reason']}" for item in account.get("reasons", ()))]


def _outcome(study: Study, at: int, done: Sequence[Finished]) -> Outcome:
    spec = study.allocators[at]
    # Repetitions of one allocator are told apart by their labels only, so the place decides.
    mine = [one for turn, one in enumerate(done) if turn // study.repeats == at]
    replays = "recorded_start" in catalog.allocator(spec).needs
    return Outcome(study.labels[at], tuple(one.summary for one in mine), tuple(one.result.jobs for one in mine), replays)


def _cells(one: Finished) -> dict[str, str]:
    numbers = one.summary
    others = [f"{numbers[name]:,} {name}" for name in ("failed", "impossible", "refused", "unfinished") if numbers[name]]
    times = {"mean JCT": "jct_mean_s", "P95 JCT": "jct_p95_s", "mean wait": "wait_mean_s", "makespan": "makespan_s"}
    shares = {"deadlines met": "deadline_rate", "GPUs busy": "utilisation", "CPU used": "cpus_used", "memory used": "mem_used"}
    counted = {"preempted": "preemptions", "evicted": "evictions", "relaunched": "relaunches"}
    return {
        "allocator": one.label,
        "done": f"{numbers['completed']:,}",
        "not done": ", ".join(others) or "0",
        **{title: _time(numbers[name]) for title, name in times.items()},
        **{title: "-" if math.isnan(numbers[name]) else f"{100 * numbers[name]:.1f} %" for title, name in shares.items()},
        **{title: f"{numbers[name]:,}" for title, name in counted.items()},
        "work lost": _time(numbers["lost_work_s"]) if numbers["lost_work_s"] else "0",
    }


def _time(seconds: float) -> str:
    return "-" if math.isnan(seconds) else duration(seconds)


class Bar:
    """A progress bar on a terminal; silent when the output is piped."""

    def __init__(self, label: str, stream: TextIO) -> None:
        self._label, self._stream = label, stream
        self._on = stream.isatty()
        self._due_s = 0.0

    def __enter__(self) -> Bar:
        return self

    def __call__(self, progress: Progress) -> None:
        """Draw, at most five times a second."""
        now = time.monotonic()
        if not self._on or now < self._due_s:
            return
        self._due_s = now + 0.2
        share = progress.done / max(progress.jobs, 1)
        full = round(30 * share)
        self._stream.write(f"\r{self._label[:30]} [{'#' * full}{'.' * (30 - full)}] {100 * share:3.0f} %, {duration(progress.now_s)} simulated\x1b[K")
        self._stream.flush()

    def __exit__(self, *_: object) -> None:
        if self._on:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
