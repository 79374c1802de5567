"""The ``backtest`` command: measures how well a policy reproduces the recorded waits."""

from __future__ import annotations

import argparse
import json
import math
import sys
from functools import partial
from typing import Any, Final

from sim.params import Spec
from trainyard.cli.arguments import add_reading, load_study
from trainyard.cli.errors import CommandStoppedError, UsageError
from trainyard.cli.sweep import align_columns, run_with_progress
from trainyard.formatting import MISSING, duration, factor, plural, share, signed_duration, time
from trainyard.labs.backtests.figures import Measures
from trainyard.labs.backtests.fit import MAX_RUNS
from trainyard.labs.backtests.report import BacktestReport
from trainyard.labs.backtests.run import BacktestRun
from trainyard.library import library
from trainyard.library.library import HERE
from trainyard.runs.executors import DEFAULT, check_executor_name
from trainyard.store import Store
from trainyard.study.check import Check
from trainyard.study.document import number, whole_number
from trainyard.traces.sources import apply_changes

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_HEAD: Final = (
    "",
    "jobs",
    "bias",
    "median error",
    "90 % within",
    "within 10 min",
    "rank",
    "distance",
    "explained",
)
_GROUPS: Final = ("group", "jobs", "recorded wait", "bias", "median error", "within 10 min")


def add_backtest(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard backtest``."""
    parser.set_defaults(
        command=command_backtest, perf=None, checkpoints=None, horizon_s=None, seed=None
    )
    parser.add_argument(
        "--trace", metavar="FILE|sample:NAME", help="jobs with recorded start times"
    )
    parser.add_argument(
        "--cluster", metavar="SPEC|FILE", help="machines of the recorded period, see: run --help"
    )
    parser.add_argument(
        "--policy",
        "--allocator",
        dest="allocator",
        metavar="NAME[:key=value,...]",
        action="append",
        help="policy that made the recorded schedule",
    )
    parser.add_argument("--scenario", metavar="FILE.json", help="scenario file saved in the app")
    parser.add_argument(
        "--set", metavar="path=value", action="append", help="change one value; repeat for more"
    )
    parser.add_argument(
        "--repeats", metavar="N", default="5", help="runs with other seeds (default 5)"
    )
    parser.add_argument(
        "--warm-up",
        metavar="HOURS",
        help=(
            "hours simulated before measuring (default: the longest of a day, the half-life of"
            " usage, and the 95th percentile of recorded waits)"
        ),
    )
    parser.add_argument(
        "--judge",
        metavar="DAYS",
        help="days at the end of the record to compare (default 7, or half of the record)",
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="accept a record that cannot serve as a yardstick; no comparison with it is made",
    )
    parser.add_argument(
        "--use",
        metavar="ID",
        action="append",
        help="apply a finding by the id that the backtest prints; repeat for more",
    )
    parser.add_argument(
        "--fit",
        action="store_true",
        help=f"fit open settings to the part before the judged days, in at most {MAX_RUNS} runs",
    )
    parser.add_argument(
        "--executor",
        metavar="WHERE",
        default=DEFAULT,
        help="inline, processes, processes:N or dask://host:port (default processes)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead of tables"
    )
    add_reading(parser)


def command_backtest(args: argparse.Namespace) -> None:
    """Execute ``backtest``: run it, put it into the library, and print text or JSON.

    Raises
    ------
    TrainyardError
        If the input cannot be used, the policy cannot run, or the check was interrupted.
    """
    study, source = load_study(args)
    if len(study.allocators) != 1:
        raise UsageError("A backtest takes one policy: give --policy once.")
    check = Check(
        study.base,
        repeats=whole_number("--repeats", args.repeats),
        warm_s=None if args.warm_up is None else _HOUR_S * number("--warm-up", args.warm_up),
        judge_s=None if args.judge is None else _DAY_S * number("--judge", args.judge),
        anyway=args.anyway,
        use=tuple(args.use or ()),
        fit=args.fit,
    )
    store = Store()
    run = BacktestRun(check, store, check_executor_name(args.executor))
    is_complete = run.recall()
    item_id = library.shelve(store, HERE, check, run.keys)
    run.shelve = partial(library.shelve, store, HERE, check)
    if not is_complete:
        run_with_progress(run, "backtest", run.most)
    if run.state == "failed":
        raise CommandStoppedError(run.error)
    if run.report is None:
        raise KeyboardInterrupt(
            "Interrupted; finished runs are kept. Repeat the command to continue."
        )
    if args.json:
        document = {"id": item_id, **backtest_document(run)}
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    else:
        trace = apply_changes(source.trace, check.scenario.trace)
        head = f"{trace.name}: {plural(len(trace), 'job')} (id {item_id[:12]})."
        text = "\n".join([head, "", *backtest_lines(run)])
    sys.stdout.write(text + "\n")


def backtest_document(run: BacktestRun) -> dict[str, Any]:
    """Return the state and results of a backtest as a JSON document."""
    return {"check": run.check.to_json(), **(run.report.to_json() if run.report else {})}


def backtest_lines(run: BacktestRun) -> list[str]:
    """Return the results of a backtest as lines of text, or its progress."""
    if run.report is None:
        return [f"{run.title}: {plural(run.done, 'run')} of at most {run.most} are kept."]
    return report_lines(run.report)


def report_lines(report: BacktestReport) -> list[str]:
    """Return a backtest report as lines: headline, tables of errors, remarks, findings, fit."""
    heading = [f"{report.policy}: {report.headline}", *(f"  {one}" for one in report.faults[1:])]
    if report.judged is None or report.split is None:
        return heading
    rows = [("Judged part", report.judged.mean)]
    if report.fitted is not None:
        rows.append(("Earlier part", report.fitted.mean))
    if report.floor is not None:
        rows.append(("Floor: between two repeats", report.floor))
    rows += list((report.rivals or {}).items())
    table = [_HEAD, *(_measure_cells(name, one) for name, one in rows)]
    low, high = report.judged.low, report.judged.high
    over = ""
    if report.repeats > 1:
        over = (
            f" Over {report.repeats} repeats the median error is {duration(low.error_s)} to"
            f" {duration(high.error_s)}."
        )
    parts = (
        [
            (
                f"{row['kind']} {row['name']}",
                f"{row['jobs']:,}",
                time(row["recorded_s"]),
                signed_duration(row["bias_s"]),
                time(row["error_s"]),
                share(row["within"]),
            )
            for row in report.groups.to_dict("records")
        ]
        if report.groups is not None
        else []
    )
    return [
        *heading,
        "",
        *align_columns(table),
        "",
        f"Judged are the jobs submitted in the last"
        f" {duration(report.split.end_s - max(report.split.judge_s, report.split.warm_s))}, after a"
        f" warm-up of {duration(report.split.warm_s)}.{over}",
        *(
            [f"Jobs of the first {duration(report.opens_s)} run as recorded."]
            * (report.opens_s > 0)
        ),
        *(["", *align_columns([_GROUPS, *parts])] if parts else []),
        *report.remarks,
        *_proposal_lines(report),
        *_fit_lines(report),
    ]


def _proposal_lines(report: BacktestReport) -> list[str]:
    """Return two lines per finding in the record, with its effect and evidence; [] if none."""
    if not report.proposals:
        return []
    lines = ["", "Findings in the record (--use ID applies one):"]
    for row in report.proposals:
        one = row.proposal
        if row.used:
            effect = "applied"
        elif not one.applicable:
            effect = "cannot be simulated"
        elif not math.isfinite(row.effect):
            effect = "effect unknown"
        else:
            effect = f"explained {100 * row.effect:+.1f} points".replace("-", "−")
        lines += [f"  {one.id} ({effect}): {one.what}", f"    {one.evidence}"]
    return lines


def _fit_lines(report: BacktestReport) -> list[str]:
    """Return the settings that a fit tried and its result as lines of text; [] without a fit."""
    if report.fit is None:
        return []
    rows = [
        (
            one.knob or "as given",
            one.option,
            time(one.objective_s),
            time(one.spread_s),
            "kept" if one.kept else "",
        )
        for one in report.fit.steps
    ]
    lines = ["", *align_columns([("setting", "tried", "error + bias", "spread", ""), *rows]), ""]
    if report.fit.chosen and report.fit.carries:
        policy = report.fit.scenario.allocator.name
        values = str(Spec.of(policy, **report.fit.values))
        lines += [f"Parameters: {values}"] if report.fit.values else []
    verdict = report.fit.past
    judged = f" {verdict.sentence}" if verdict is not None and report.fit.chosen else ""
    return [*lines, f"{report.fit.sentence}{judged}"]


def _measure_cells(name: str, measures: Measures) -> tuple[str, ...]:
    return (
        name,
        f"{measures.jobs:,.0f}",
        f"{signed_duration(measures.bias_s)} ({_signed_percent(measures.bias)})",
        time(measures.error_s),
        time(measures.p90_s),
        share(measures.within),
        factor(measures.rank),
        factor(measures.distance),
        share(measures.explained),
    )


def _signed_percent(value: float) -> str:
    return f"{100 * value:+.0f} %".replace("-", "−") if math.isfinite(value) else MISSING
