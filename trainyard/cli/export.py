"""The ``export`` command: writes a what-if as a patch for the scheduler of a site."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trainyard.cli.arguments import load_study
from trainyard.cli.errors import UsageError
from trainyard.cli.run import add_run, run_policy
from trainyard.export.caveats import ExportRun
from trainyard.export.targets import TARGETS, patch, patch_of_simulated_runs
from trainyard.results import backtest_verdict
from trainyard.store import Store
from trainyard.traces.sources import apply_changes


def add_export(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``export``."""
    add_run(parser)
    parser.set_defaults(command=command_export)
    parser.add_argument(
        "--as",
        dest="target",
        choices=tuple(TARGETS),
        required=True,
        help="scheduler; give --policy twice: the current configuration, then the new one",
    )
    parser.add_argument("--output", metavar="FILE", help="file for the patch (default: print it)")


def command_export(args: argparse.Namespace) -> None:
    """Execute ``export``: simulate both configurations, and write or print the patch.

    Raises
    ------
    TrainyardError
        If the input cannot be used, or the two configurations are equal.
    """
    study, source = load_study(args)
    specs = study.allocators
    if len(specs) != 2 or specs[0].name != args.target:
        raise UsageError(
            f"Give --policy {args.target}:{TARGETS[args.target].file}=FILE twice: first the current"
            " configuration, then the new one."
        )
    patch(*specs)  # rejects configurations that cannot be exported before simulating anything
    trace = apply_changes(source.trace, study.base.trace)
    before, after = (
        [
            ExportRun(
                finished.scenario,
                finished.scenario.key(source.trace.digest),
                finished.summary,
                finished.result.remarks,
            )
            for finished in run_policy(study, index, study.labels[index], trace, args.engine)
        ]
        for index in range(2)
    )
    text = patch_of_simulated_runs(
        trace, before, after, backtest_verdict.policy_verdict(study, 0, Store())
    )
    if not args.output:
        sys.stdout.write(text)
        return
    try:
        Path(args.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{args.output}: the patch cannot be written ({error.strerror or error}). Choose"
            " another place."
        ) from error
