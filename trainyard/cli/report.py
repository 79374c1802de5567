"""The ``report`` command: completes the runs of a scenario and writes one HTML file."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from trainyard.cli.arguments import add_reading, read_text, trace_spec
from trainyard.cli.errors import UsageError
from trainyard.cli.questions import resolve_questions
from trainyard.cli.run import Bar
from trainyard.formatting import plural
from trainyard.results import outcomes
from trainyard.runs.run import run_missing, scenario_key
from trainyard.store import Store, StoreError, profiles
from trainyard.study.document import parse_json
from trainyard.study.settings import with_settings
from trainyard.study.study import Study
from trainyard.traces.sources import load_source
from trainyard.views.report.page import offline_html


def add_report(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``report``: scenario, trace, changes, output and reading."""
    parser.set_defaults(command=command_report)
    parser.add_argument(
        "--scenario", metavar="FILE.json", required=True, help="scenario file saved in the app"
    )
    parser.add_argument(
        "--trace",
        metavar="FILE|sample:NAME|made:NAME",
        help="the jobs, if the file or upload that the scenario names is missing here",
    )
    parser.add_argument(
        "--set",
        metavar="path=value",
        action="append",
        help="change one value, e.g. repeats=5; repeat for more",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE.html",
        default="report.html",
        help="output file (default report.html)",
    )
    add_reading(parser)


def command_report(args: argparse.Namespace) -> None:
    """Execute ``report``: run the missing scenarios of a study, and write the HTML report.

    Raises
    ------
    TrainyardError
        If the input cannot be used, a policy cannot run, or the file cannot be written.
    """
    out, store = Path(args.out), Store()
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{out}: the name must end in .html.")
    study = _load_study(args)
    new_runs = _run_missing(study, store)
    try:
        text = offline_html(outcomes.gather(study, store), store, created=datetime.now(UTC))
    except StoreError:
        _drop_damaged_results(study, store)
        new_runs += _run_missing(study, store)
        text = offline_html(outcomes.gather(study, store), store, created=datetime.now(UTC))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(
            f"{out}: the report cannot be written ({error.strerror or error}). Choose another"
            " place."
        ) from error
    total = sum(len(entries) for entries in outcomes.gather(study, store).entries)
    sys.stdout.write(
        f"{out}: {plural(total, 'run')}, {total - new_runs} of them stored before;"
        f" {len(text.encode()) / 1e6:.1f} MB\n"
    )


def _drop_damaged_results(study: Study, store: Store) -> None:
    """Read all stored results of a study, which removes the damaged ones."""
    for entry in filter(
        None, (store.get(scenario_key(scenario, store)) for scenario in study.scenarios())
    ):
        with suppress(StoreError):
            entry.check()


def _load_study(args: argparse.Namespace) -> Study:
    """Return the study of --scenario with the changes of --set and the trace of --trace."""
    document = parse_json(read_text(Path(args.scenario), "a scenario file"), args.scenario)
    study = Study.from_json(profiles.with_contents(with_settings(document, args.set or ())))
    if not args.trace:
        return study
    trace, _ = resolve_questions(
        trace_spec(args), args, lambda spec: load_source(spec, max_mb=args.max_mb)
    )
    return replace(
        study,
        base=replace(
            study.base,
            trace=replace(study.base.trace, source=trace.source, fmt=trace.fmt, read=trace.read),
        ),
    )


def _run_missing(study: Study, store: Store) -> int:
    """Run all scenarios without a stored result; print skipped policies; return how many ran."""
    with ExitStack() as bars:
        new_runs, skipped = run_missing(
            study,
            store,
            lambda one: bars.enter_context(
                Bar(f"{one.allocator.name} seed={one.seed}", sys.stderr)
            ),
        )
    sys.stderr.writelines(f"Skipped: {spec.name}. {why}\n" for spec, why in skipped.items())
    return new_runs
