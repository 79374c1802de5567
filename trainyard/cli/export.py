"""The ``export`` command: a what-if as a patch for the scheduler that a site runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trainyard.cli.errors import UsageError
from trainyard.cli.given import study_of
from trainyard.cli.run import add_run, run_policy
from trainyard.export.caveats import ExportRun
from trainyard.export.targets import TARGETS, of_simulated, patch
from trainyard.results import past
from trainyard.store import Store
from trainyard.traces.sources import changed


def add_export(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard export``: those of ``run`` and two more."""
    add_run(parser)
    parser.set_defaults(command=command_export)
    parser.add_argument(
        "--as",
        dest="target",
        choices=tuple(TARGETS),
        required=True,
        help="the scheduler; --policy is given twice, as it is in force and as it is to be",
    )
    parser.add_argument("--output", metavar="FILE", help="where the patch goes, else it is printed")


def command_export(args: argparse.Namespace) -> None:
    """Execute ``python -m trainyard export``.

    Raises
    ------
    TrainyardError
        If the input cannot be used, or the two configurations say the same.
    """
    study, source = study_of(args)
    specs = study.allocators
    if len(specs) != 2 or specs[0].name != args.target:
        raise UsageError(
            f"Give two policies, --policy {args.target}:{TARGETS[args.target].file}=FILE as it"
            " is in force, then the same as it is to be."
        )
    patch(*specs)  # refuses what cannot be taken home before anything is simulated
    trace = changed(source.trace, study.base.trace)
    before, after = (
        [
            ExportRun(
                one.scenario,
                one.scenario.key(source.trace.digest),
                one.summary,
                one.result.remarks,
            )
            for one in run_policy(study, at, study.labels[at], trace, args.engine)
        ]
        for at in range(2)
    )
    text = of_simulated(trace, before, after, past.of_policy(study, 0, Store()))
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
