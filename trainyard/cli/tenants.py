"""The ``tenants`` command: GPUs each tenant was entitled to, used, borrowed and lacked."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pandas as pd

from allocators.quotas import Quota, read_quotas, write_quotas
from allocators.tenants import TENANT_COLUMNS
from sim.trace import Trace
from trainyard.cli.arguments import add_reading, load_study, read_text
from trainyard.cli.errors import UsageError
from trainyard.cli.run import Bar
from trainyard.cli.sweep import align_columns
from trainyard.formatting import MISSING, duration, plural
from trainyard.results.tenants import (
    TENANT_NOUNS,
    TenantReport,
    column_of,
    proposed_quotas,
    teams_of,
    tenant_report,
)
from trainyard.runs.run import run
from trainyard.store import plain
from trainyard.study.document import number
from trainyard.study.study import Study
from trainyard.sweeps.team_quotas import plan_quotas
from trainyard.traces.sources import apply_changes

_HEAD: Final = (
    "tenant",
    "quota",
    "jobs",
    "entitled GPU-h",
    "used",
    "borrowed",
    "lent",
    "starved",
    "GPU-h",
    "by borrowers",
    "until restored, p95",
    "stopped",
    "evicted for it",
    "lost GPU-h",
    "off fair share",
    "wait p50",
    "wait p95",
)


def add_tenants(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard tenants``."""
    parser.set_defaults(
        command=command_tenants, perf=None, checkpoints=None, horizon_s=None, repeats=None
    )
    parser.add_argument("--trace", metavar="FILE|sample:NAME|made:NAME", help="trace of the jobs")
    parser.add_argument("--cluster", metavar="SPEC|FILE", help="the machines, see: run --help")
    parser.add_argument(
        "--policy",
        "--allocator",
        dest="allocator",
        metavar="NAME[:key=value,...]",
        action="append",
        help="a policy; repeat for more",
    )
    parser.add_argument("--scenario", metavar="FILE.json", help="scenario file saved in the app")
    parser.add_argument(
        "--set", metavar="path=value", action="append", help="change one value; repeat for more"
    )
    parser.add_argument("--seed", metavar="N", help="seed of random numbers (default 0)")
    parser.add_argument(
        "--quotas",
        metavar="ROWS|FILE",
        help=(
            "quotas of the tenants, e.g. 'a: 8 max 12; b: 4', or a file of such rows (default: from"
            " a policy, else each tenant's part of the GPU-hours)"
        ),
    )
    parser.add_argument(
        "--tenant",
        metavar="COLUMN",
        choices=TENANT_COLUMNS,
        help=f"column of tenant names: {', '.join(TENANT_COLUMNS)} (default: the first with many)",
    )
    parser.add_argument(
        "--propose",
        action="store_true",
        help="print quotas from each tenant's part of the GPU-hours, for quota:table",
    )
    parser.add_argument(
        "--wait-target",
        metavar="SECONDS",
        help=(
            "find the smallest quota of each tenant at which 95 %% of its jobs start within this"
            " time, under a single policy"
        ),
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead of tables"
    )
    add_reading(parser)


def command_tenants(args: argparse.Namespace) -> None:
    """Execute ``tenants``: run each policy once, and print GPUs and waits of the tenants.

    With --propose or --wait-target, print quotas instead.

    Raises
    ------
    TrainyardError
        If the input cannot be used, the trace names no teams, or a policy cannot run.
    """
    if args.propose and not args.allocator and not args.scenario:
        args.allocator = ["fifo"]  # required but not run
    study, source = load_study(args)
    trace = apply_changes(source.trace, study.base.trace)
    cluster = study.base.cluster
    if args.propose:
        column = column_of(trace, args.tenant or "auto")
        sys.stdout.write(write_quotas(proposed_quotas(trace, cluster, column)) + "\n")
        return
    if args.wait_target is not None:
        sys.stdout.write(_needed_quotas(args, study, trace) + "\n")
        return
    teams = teams_of(trace, cluster, study.allocators, _read_quotas(args.quotas), args.tenant or "")
    reports: dict[str, TenantReport] = {}
    for policy_index, title in enumerate(study.titles):
        with Bar(title, sys.stderr) as bar:
            result = run(study.policy_scenarios(policy_index)[0], trace=trace, progress=bar)
        reports[title] = tenant_report(result, teams, cluster)
    if args.json:
        document = {
            "column": teams.column,
            "quotas": write_quotas(teams.quotas),
            "assumed": teams.assumed,
            "policies": {
                title: {"jain": plain(one.jain), "teams": _json_rows(one.table)}
                for title, one in reports.items()
            },
        }
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    else:
        text = "\n".join(
            [f"Tenants by {TENANT_NOUNS.get(teams.column, teams.column)}. {teams.assumed}"]
            + [line for title, one in reports.items() for line in _report_lines(title, one)]
        )
    sys.stdout.write(text + "\n")


def _needed_quotas(args: argparse.Namespace, study: Study, trace: Trace) -> str:
    """Simulate to find the quotas that meet --wait-target; return them as text or JSON."""
    if len(study.allocators) != 1:
        raise UsageError("--wait-target plans quotas under one policy: give --policy once.")

    def print_run(team: str, runs: int) -> None:
        sys.stderr.write(f"Run {runs + 1}: {team or 'all tenants together'}\n")

    limit_s = number("--wait-target", args.wait_target)
    plan = plan_quotas(
        study.policy_scenarios(0)[0], trace, limit_s, args.tenant or "auto", print_run
    )
    if args.json:
        document = {
            "limit_s": plan.limit_s,
            "gpus": plan.gpus,
            "runs": plan.runs,
            "quotas": plan.table,
            "sentence": plan.sentence,
            "teams": [
                {key: plain(value) for key, value in asdict(need).items()} for need in plan.needs
            ],
        }
        return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    rows = [("tenant", "jobs", "quota needed", "wait p95, alone", "wait p95, all together")]
    rows += [
        (
            need.team,
            f"{need.jobs:,}",
            f"over {plan.gpus}" if need.quota is None else str(need.quota),
            _wait_text(need.wait_s),
            _wait_text(need.together_s),
        )
        for need in plan.needs
    ]
    return "\n".join(
        [
            f"Quotas at which 95 % of each tenant's jobs start within {duration(plan.limit_s)}"
            f" ({plural(plan.runs, 'run')}):",
            *align_columns(rows),
            plan.sentence,
        ]
    )


def _read_quotas(given: str | None) -> tuple[Quota, ...]:
    """Return the quotas in the text or file of --quotas; () without it; raise if it has none."""
    if given is None:
        return ()
    path = Path(given)
    is_file = ":" not in given or path.is_file()
    quotas = read_quotas(read_text(path, "a table of quotas") if is_file else given)
    if not quotas:
        raise UsageError("--quotas has no rows. Write NAME: GPUS, separated by semicolons.")
    return quotas


def _json_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(key): plain(value) for key, value in row.items()} for row in table.to_dict("records")
    ]


def _report_lines(title: str, report: TenantReport) -> list[str]:
    """Return a blank line, a heading with Jain's index, and one table line per tenant."""
    rows = [_HEAD, *map(_team_cells, report.table.to_dict("records"))]
    jain = MISSING if math.isnan(report.jain) else f"{report.jain:.3f}"
    return ["", f"{title}: Jain's index of used ÷ entitled {jain}", *align_columns(rows)]


def _team_cells(row: dict[Any, Any]) -> tuple[str, ...]:
    return (
        row["team"],
        f"{row['quota']:g}",
        f"{row['jobs']:,}",
        *(f"{row[key]:,.1f}" for key in ("deserved_h", "used_h", "borrowed_h", "lent_h")),
        _wait_text(row["starved_s"]),
        f"{row['starved_h']:,.1f}",
        f"{row['by_borrowers_h']:,.1f}",
        _wait_text(row["reclaim_p95_s"]),
        f"{row['stopped']:,}",
        f"{row['evicted']:,}",
        f"{row['evicted_lost_h']:,.1f}",
        MISSING if math.isnan(row["share_error"]) else f"{row['share_error']:.2f}",
        _wait_text(row["wait_p50_s"]),
        _wait_text(row["wait_p95_s"]),
    )


def _wait_text(value: float) -> str:
    """Return a duration as text; "never" if infinite, a dash for NaN."""
    if math.isinf(value):
        return "never"
    return MISSING if math.isnan(value) else duration(value)
