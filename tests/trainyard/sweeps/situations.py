"""Searches for the cheapest purchase, by name, and what the page Plan says of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from sim.cluster import Cluster
from sim.contract import Spec
from trainyard.study.size_question import SizeQuestion
from trainyard.study.size_search import Size
from trainyard.sweeps import summaries as plan
from trainyard.sweeps.plan import PolicyAnswer, Reading
from trainyard.traces import new_study


def reading(size: Size, wait_s: float = 1800.0, jct_s: float = 9000.0) -> Reading:
    return Reading(size, wait_s, wait_s, wait_s, 1.0, True, jct_mean_s=jct_s)


def answer(
    policy: str, best: Size | None, alone: Size | None = None, *, over: bool = True
) -> PolicyAnswer:
    """Return the answer for a policy: these mixes, or 80 min with 7 A100 nodes at best."""
    near = Reading((7, 0), 4800.0, 4800.0, 4800.0, 1.0, False)
    return PolicyAnswer(
        policy,
        best,
        question().price_per_h(best) if best else math.nan,
        None if best else near,
        math.nan,
        9,
        "Nothing.",
        over,
        now=reading((4, 0), 33_840.0, 23_760.0),
        best=reading(best, 1620.0, 14_760.0) if best else None,
        alone=reading(alone) if alone else None,
    )


@cache
def question() -> SizeQuestion:
    """Return a search with 4 A100 and 4 V100 nodes owned: A100 and T4, 120,000 USD a month."""
    study = new_study.sample_study("tiny")
    base = replace(study.base, cluster=Cluster.parse("4x8:a100,4x8:v100"))
    two = replace(study, allocators=(Spec("fifo"), Spec("srtf")), base=base)
    offers = Cluster.parse("1x8:t4").groups
    asked = SizeQuestion(two, (0, 2), (4, 0), (60, 60), "queue_p95_s", 3600.0, offers=offers)
    budget = asked.price_per_h((4, 0)) + 120_000 / 730
    return replace(asked, budget_per_h=budget)


def _head(*answers: PolicyAnswer) -> str:
    return plan.headline(answers, question())


NOT_MET: Final = answer("FIFO", None)
MIX: Final = answer("FIFO", (4, 12), (9, 0))
NONE: Final = answer("SRTF", (4, 0), (4, 0))
SITUATIONS: Final[Mapping[str, Callable[[], str]]] = {
    "more and none": lambda: _head(MIX, NONE),
    "both more": lambda: _head(MIX, answer("SRTF", (5, 0), (5, 0))),
    "only a mix": lambda: _head(answer("FIFO", (5, 3)), NONE),
    "none is needed": lambda: _head(replace(NONE, policy="FIFO"), NONE),
    "fewer would do": lambda: _head(MIX, answer("SRTF", (2, 0), (2, 0))),
    "only one policy meets it": lambda: _head(NOT_MET, NONE),
    "search still goes on": lambda: _head(answer("FIFO", (9, 0), (9, 0), over=False), NONE),
    "one policy has no answer yet": lambda: _head(replace(NOT_MET, over=False), NONE),
    "no policy has an answer yet": lambda: _head(replace(NOT_MET, over=False)),
    "no policy meets it": lambda: _head(NOT_MET, replace(NOT_MET, policy="SRTF")),
    "a mix is cheaper": lambda: plan.cheaper_text(MIX, question()),
    "no mix is cheaper": lambda: plan.cheaper_text(NONE, question()),
    "other nodes stay": lambda: plan.fixed_nodes_text(question()),
    "all nodes vary": lambda: plan.fixed_nodes_text(
        replace(question(), groups=(0, 1, 2), low=(4, 4, 0), high=(9, 9, 9))
    ),
    "not met": lambda: plan.missed_text(NOT_MET, question()),
    "not met at any price": lambda: plan.missed_text(
        NOT_MET, replace(question(), budget_per_h=math.inf)
    ),
    "not met, half of the jobs completed": lambda: plan.nearest_miss(
        replace(NOT_MET, nearest=replace(reading((4, 0), 4800.0), completed=0.5)), question()
    ),
    "not met, no figure": lambda: plan.missed_text(replace(NOT_MET, nearest=None), question()),
    "some runs failed": lambda: "\n".join(plan.failure_reasons(["a", "b", "a"])),
    "runs failed for five reasons": lambda: "\n".join(plan.failure_reasons(list("abcde"))),
    "on a scheduler of Dask": lambda: plan.executor_text("dask://host:8786"),
}


def sentences(situation: str) -> Sequence[str]:
    """Return the sentences of a situation."""
    return [SITUATIONS[situation]() or "(nothing)"]
