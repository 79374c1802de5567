"""The ``plan`` command: finds the fewest nodes, or the cheapest mix, that meet a target."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from sim.metrics.registry import COLUMNS
from trainyard.cli.errors import UsageError
from trainyard.cli.sweep import (
    add_batch_arguments,
    align_columns,
    check_duration,
    find_resumed,
    load_document,
    raise_unless_done,
    run_with_progress,
    with_unit,
)
from trainyard.formatting import plural
from trainyard.library import library
from trainyard.library.library import HERE
from trainyard.runs.executors import check_executor_name
from trainyard.store import Store, plain
from trainyard.study.document import number, whole_number
from trainyard.study.size_question import HOURS_A_MONTH, LOWER, SizeQuestion
from trainyard.sweeps.plan import PlanRun, PolicyAnswer
from trainyard.sweeps.summaries import without_replays


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard plan``."""
    parser.set_defaults(command=command_plan)
    parser.add_argument(
        "file",
        metavar="FILE.json",
        nargs="?",
        help="a search, or a scenario saved in the app to search with the other arguments",
    )
    parser.add_argument(
        "--group",
        metavar="K",
        action="append",
        help="index of a node group to vary, from 0; up to four for the cheapest mix",
    )
    parser.add_argument(
        "--range",
        metavar="LOW..HIGH",
        action="append",
        help="fewest and most nodes; one for each group",
    )
    parser.add_argument(
        "--target",
        metavar="METRIC<=VALUE",
        help=f"e.g. queue_p95_s<=600; metrics: {', '.join(LOWER)}",
    )
    parser.add_argument(
        "--budget", metavar="USD", help="most that the whole cluster may cost per hour"
    )
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="do not try mixes below near misses",
    )
    add_batch_arguments(parser)


def command_plan(args: argparse.Namespace) -> None:
    """Execute ``plan``: search the fewest nodes for each policy; print a table or JSON.

    Raises
    ------
    TrainyardError
        If the input cannot be used, the machines cannot be reached, or the search was interrupted.
    """
    store = Store()
    question = find_resumed(store, args, "plan", SizeQuestion) or _question_of_arguments(args)
    study, left_out = without_replays(question.study, store)
    sys.stderr.writelines(f"{title} is left out: {why}\n" for title, why in left_out.items())
    if study is None:
        raise UsageError(
            "No policy of this study can run on other cluster sizes. Choose another one."
        )
    question = replace(question, study=study)
    run = PlanRun(question, store, check_executor_name(args.executor))
    if not run.recall():
        check_duration(args, store, question.study, question.expected_runs, "About")
    item_id = library.shelve(store, HERE, question, run.keys)
    run.shelve = partial(library.shelve, store, HERE, question)
    run_with_progress(run, f"plan {item_id[:12]}", None)
    sys.stdout.write(
        (
            json.dumps(
                plan_document(item_id, run) | {"left_out": left_out}, indent=2, allow_nan=False
            )
            if args.json
            else plan_text(item_id, run)
        )
        + "\n"
    )
    raise_unless_done(run, item_id)


def _question_of_arguments(args: argparse.Namespace) -> SizeQuestion:
    """Return the size search of the file, changed and completed by the options."""
    document = load_document(args)
    if args.group or "groups" not in document:
        document["groups"] = [whole_number("--group", text) for text in args.group or ["0"]]
    if args.range:
        ends = [_parse_range(text) for text in args.range]
        document |= {"low": [low for low, _ in ends], "high": [high for _, high in ends]}
    elif "low" not in document:
        raise UsageError("The search needs node limits: give --range 2..20, once for each --group.")
    if args.target:
        document |= _parse_target(args.target)
    if args.budget is not None:
        document["budget_per_h"] = number("--budget", args.budget)
    if args.no_check:
        document["check"] = False
    return SizeQuestion.from_json(document)


def _parse_range(text: str) -> tuple[int, int]:
    """Return low and high of LOW..HIGH."""
    low, dots, high = text.partition("..")
    if not dots:
        raise UsageError(f"--range {text}: the form is LOW..HIGH, e.g. 2..20.")
    return whole_number("--range", low), whole_number("--range", high)


def _parse_target(text: str) -> dict[str, Any]:
    """Return {"metric", "limit"} of METRIC<=VALUE; raise if the sign does not fit the metric."""
    sign = next((sign for sign in ("<=", ">=") if sign in text), "")
    metric, _, value = text.partition(sign or " ")
    if not sign or metric.strip() not in LOWER:
        raise UsageError(
            f"--target {text}: the form is METRIC<=VALUE with one of {', '.join(LOWER)}."
        )
    if (sign == "<=") != LOWER[metric.strip()]:
        raise UsageError(
            f"--target {text}: {'lower' if LOWER[metric.strip()] else 'higher'} values of this"
            " metric are better. Turn the sign around."
        )
    return {"metric": metric.strip(), "limit": number("--target", value)}


def plan_document(item_id: str, run: PlanRun) -> dict[str, Any]:
    """Return state, question, answers and tried sizes of a size search for JSON."""
    answers = [
        plain(
            {
                **asdict(answer),
                "usd_per_month": answer.usd_per_h * HOURS_A_MONTH,
            }
        )
        for answer in run.answers()
    ]
    readings = plain(run.readings().to_dict("records"))
    return {
        "id": item_id,
        "state": run.state,
        "error": run.error,
        "question": run.question.to_json(),
        "answers": answers,
        "readings": readings,
    }


def plan_text(item_id: str, run: PlanRun) -> str:
    """Return a size search as text: target, a table row per policy, and notes."""
    question, metric = run.question, COLUMNS[run.question.metric]
    sign = "at most" if question.lower else "at least"
    names = [
        question.rows[at].name or question.rows[at].gpu_type or "cpu" for at in question.groups
    ]
    within = (
        ""
        if math.isinf(question.budget_per_h)
        else f", within {question.budget_per_h:,.2f} USD per hour"
    )
    head = (
        f"{metric.title} {sign} {with_unit(question.limit, metric.unit)},"
        f" {' and '.join(names)}{within}"
        f" (id {item_id[:12]})"
    )
    lines = [("policy", "nodes", "USD per hour", "USD per month", "one node fewer", "runs")]
    return "\n".join(
        [
            head,
            *align_columns(
                [*lines, *(_answer_cells(answer, metric.unit) for answer in run.answers())]
            ),
            "",
            *_answer_notes(run, metric.unit),
        ]
    )


def _answer_cells(answer: PolicyAnswer, unit: str) -> tuple[str, ...]:
    """Return the table row of a policy: nodes, costs, value at one node fewer, runs."""
    nodes = "none" if answer.size is None else " + ".join(map(str, answer.size))
    usd = "-" if answer.size is None else f"{answer.usd_per_h:,.2f}"
    month = "-" if answer.size is None else f"{answer.usd_per_h * HOURS_A_MONTH:,.0f}"
    fewer = "-" if math.isnan(answer.fewer) else with_unit(answer.fewer, unit)
    return (answer.policy, nodes, usd, month, fewer, str(answer.runs))


def _answer_notes(run: PlanRun, unit: str) -> list[str]:
    """Return notes on failed sizes, unmet targets and assumptions of each policy."""
    sentences = []
    for answer in run.answers():
        if answer.size is None and answer.nearest is not None:
            near = answer.nearest
            part = (
                ""
                if near.completed >= 1
                else f" with {100 * near.completed:.1f} % of the jobs completed"
            )
            sentences.append(
                f"{answer.policy}: no size in the range meets the target. Best:"
                f" {with_unit(near.value, unit)} at {' + '.join(map(str, near.size))}{part}."
            )
        if answer.failed:
            sentences.append(
                f"{answer.policy}: no figure at {plural(answer.failed, 'size')}. {answer.why}"
            )
        sentences.append(f"{answer.policy}: {answer.assumed}")
    return sentences
