"""The ``plan`` command: the fewest nodes, or the cheapest mix, that meet a target."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace
from functools import partial
from typing import Any

from sim.metrics.registry import COLUMNS
from trainyard.cli.errors import UsageError
from trainyard.cli.sweep import (
    add_common,
    ask_first,
    columns,
    document_of,
    finish,
    raise_unless_done,
    resumed,
    with_unit,
)
from trainyard.library import library
from trainyard.library.library import HERE
from trainyard.runs.executors import checked
from trainyard.store import Store, plain
from trainyard.study.document import number, whole
from trainyard.study.search import LOWER, SizeQuestion
from trainyard.sweeps.plan import HOURS_A_MONTH, PlanRun, PolicyAnswer
from trainyard.sweeps.sentences import runnable
from trainyard.text import plural


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard plan``."""
    parser.set_defaults(command=command_plan)
    parser.add_argument(
        "file",
        metavar="FILE.json",
        nargs="?",
        help="a question, or a scenario that a page saved, for which the other arguments ask",
    )
    parser.add_argument(
        "--group",
        metavar="K",
        action="append",
        help="row of the cluster's nodes that varies, from 0; give two for the cheapest mix",
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
    parser.add_argument("--budget", metavar="USD", help="what the whole cluster may cost per hour")
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="bisect only: do not try other sizes below the answer",
    )
    add_common(parser)


def command_plan(args: argparse.Namespace) -> None:
    """Execute ``python -m trainyard plan``.

    Raises
    ------
    TrainyardError
        If the input cannot be used, the machines cannot be reached, or the search was interrupted.
    """
    store = Store()
    question = resumed(store, args, "plan", SizeQuestion) or _question(args)
    study, left_out = runnable(question.study, store)
    sys.stderr.writelines(f"{title} is left out: {why}\n" for title, why in left_out.items())
    if study is None:
        raise UsageError(
            "No policy of this study can be tried on other machines. Choose another one."
        )
    question = replace(question, study=study)
    run = PlanRun(question, store, checked(args.executor))
    if not run.recall():
        ask_first(args, store, question.study, question.most_runs)
    made = library.shelve(store, HERE, question, run.keys)
    run.shelve = partial(library.shelve, store, HERE, question)
    finish(run, f"plan {made[:12]}", None)
    sys.stdout.write(
        (
            json.dumps(plan_document(made, run) | {"left_out": left_out}, indent=2, allow_nan=False)
            if args.json
            else plan_text(made, run)
        )
        + "\n"
    )
    raise_unless_done(run, made)


def _question(args: argparse.Namespace) -> SizeQuestion:
    document = document_of(args)
    if args.group or "groups" not in document:
        document["groups"] = [whole("--group", text) for text in args.group or ["0"]]
    if args.range:
        ends = [_ends(text) for text in args.range]
        document |= {"low": [low for low, _ in ends], "high": [high for _, high in ends]}
    elif "low" not in document:
        raise UsageError(
            "Say between how many nodes to search, e.g. --range 2..20, once for each --group."
        )
    if args.target:
        document |= _target(args.target)
    if args.budget is not None:
        document["budget_per_h"] = number("--budget", args.budget)
    if args.no_check:
        document["check"] = False
    return SizeQuestion.from_json(document)


def _ends(text: str) -> tuple[int, int]:
    low, dots, high = text.partition("..")
    if not dots:
        raise UsageError(f"--range {text}: this is not of the form LOW..HIGH, e.g. 2..20.")
    return whole("--range", low), whole("--range", high)


def _target(text: str) -> dict[str, Any]:
    sign = next((sign for sign in ("<=", ">=") if sign in text), "")
    metric, _, value = text.partition(sign or " ")
    if not sign or metric.strip() not in LOWER:
        raise UsageError(
            f"--target {text}: this is not of the form METRIC<=VALUE with one of"
            f" {', '.join(LOWER)}."
        )
    if (sign == "<=") != LOWER[metric.strip()]:
        raise UsageError(
            f"--target {text}: of this metric {'less' if LOWER[metric.strip()] else 'more'} is"
            " better. Turn the sign around."
        )
    return {"metric": metric.strip(), "limit": number("--target", value)}


def plan_document(made: str, run: PlanRun) -> dict[str, Any]:
    """Return what a search came to so far, for JSON."""
    answers = [
        plain(
            {
                **vars(answer),
                "usd_per_month": answer.usd_per_h * HOURS_A_MONTH,
                "nearest": vars(answer.nearest) if answer.nearest else None,
            }
        )
        for answer in run.answers()
    ]
    readings = plain(run.readings().to_dict("records"))
    return {
        "id": made,
        "state": run.state,
        "error": run.error,
        "question": run.question.to_json(),
        "answers": answers,
        "readings": readings,
    }


def plan_text(made: str, run: PlanRun) -> str:
    """Return what a search came to so far, for people."""
    question, metric = run.question, COLUMNS[run.question.metric]
    sign = "at most" if question.lower else "at least"
    names = [
        question.study.base.cluster.groups[at].name
        or question.study.base.cluster.groups[at].gpu_type
        or "cpu"
        for at in question.groups
    ]
    within = (
        ""
        if math.isinf(question.budget_per_h)
        else f", within {question.budget_per_h:,.2f} USD per hour"
    )
    head = (
        f"{metric.title} {sign} {with_unit(question.limit, metric.unit)},"
        f" {' and '.join(names)}{within}"
        f" (id {made[:12]})"
    )
    lines = [("policy", "nodes", "USD per hour", "USD per month", "one node fewer", "runs")]
    return "\n".join(
        [
            head,
            *columns([*lines, *(_answer(answer, metric.unit) for answer in run.answers())]),
            "",
            *_remarks(run, metric.unit),
        ]
    )


def _answer(answer: PolicyAnswer, unit: str) -> tuple[str, ...]:
    nodes = "none" if answer.size is None else " + ".join(map(str, answer.size))
    usd = "-" if answer.size is None else f"{answer.usd_per_h:,.2f}"
    month = "-" if answer.size is None else f"{answer.usd_per_h * HOURS_A_MONTH:,.0f}"
    fewer = "-" if math.isnan(answer.fewer) else with_unit(answer.fewer, unit)
    return (answer.policy, nodes, usd, month, fewer, str(answer.runs))


def _remarks(run: PlanRun, unit: str) -> list[str]:
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
                f"{answer.policy}: no size of the range meets it. The best reached:"
                f" {with_unit(near.value, unit)} at {' + '.join(map(str, near.size))}{part}."
            )
        if answer.failed:
            sentences.append(
                f"{answer.policy}: no figure at {plural(answer.failed, 'size')}. {answer.why}"
            )
        sentences.append(f"{answer.policy}: {answer.assumed}")
    return sentences
