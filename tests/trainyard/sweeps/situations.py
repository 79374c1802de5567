"""Searches for the fewest nodes, by name, and what the page Plan says of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from sim.cluster import Cluster
from sim.contract import Spec
from trainyard.study.size_question import SizeQuestion
from trainyard.sweeps import summaries as plan
from trainyard.sweeps.plan import PolicyAnswer, Reading
from trainyard.traces import new_study


def answer(policy: str, nodes: int | None, usd: float = 10.0, **more: float) -> PolicyAnswer:
    """Return the answer for a policy: this many nodes, or 80 min at 4 nodes as the nearest miss."""
    size = None if nodes is None else (nodes,)
    near = Reading((4,), 4800.0, 4800.0, 4800.0, more.get("completed", 1.0), False)
    fewer = more.get("fewer", math.nan)
    return PolicyAnswer(policy, size, usd, None if nodes else near, fewer, 9, "Nothing.", True)


@cache
def question() -> SizeQuestion:
    """Return a search for up to 20 V100 nodes beside 2 A100 nodes; 95 % start within 1 h."""
    study = new_study.sample_study("tiny")
    base = replace(study.base, cluster=Cluster.parse("4x8:v100,2x8:a100"))
    policies = (Spec("fifo"), Spec("srtf"))
    two = replace(study, allocators=policies, base=base)
    return SizeQuestion(two, (0,), (2,), (20,), "queue_p95_s", 3600.0)


def on_one_type() -> SizeQuestion:
    """Return the same search on a cluster of V100 nodes only."""
    study = question().study
    base = replace(study.base, cluster=Cluster.parse("4x8:v100"))
    return replace(question(), study=replace(study, base=base))


def _fewest(*answers: PolicyAnswer) -> str:
    return plan.savings_text(answers, question())


NOT_MET: Final = answer("FIFO", None)
SITUATIONS: Final[Mapping[str, Callable[[], str]]] = {
    "saves nodes": lambda: _fewest(answer("FIFO", 14, 246.0), answer("SRTF", 9, 158.0)),
    "saves nothing": lambda: _fewest(answer("FIFO", 9, 158.0), answer("SRTF", 10, 176.0)),
    "only one policy meets it": lambda: _fewest(NOT_MET, answer("SRTF", 9, 0.0)),
    "search still goes on": lambda: _fewest(
        replace(answer("FIFO", 14, 246.0), over=False),
        replace(answer("SRTF", 9, 158.0), over=False),
    ),
    "one policy has no answer yet": lambda: _fewest(
        replace(NOT_MET, over=False), answer("SRTF", 9, 158.0)
    ),
    "no policy meets it": lambda: _fewest(NOT_MET, replace(NOT_MET, policy="SRTF")),
    "other nodes stay": lambda: plan.fixed_nodes_text(question()),
    "all nodes vary": lambda: plan.fixed_nodes_text(
        replace(question(), groups=(0, 1), low=(1, 1), high=(2, 2))
    ),
    "one type of node": lambda: plan.fixed_nodes_text(on_one_type()),
    "not met": lambda: plan.missed_text(NOT_MET, question()),
    "not met within a budget": lambda: plan.missed_text(
        NOT_MET, replace(question(), budget_per_h=1000.0)
    ),
    "not met, half of the jobs completed": lambda: plan.missed_text(
        answer("FIFO", None, completed=0.5), question()
    ),
    "not met, no figure": lambda: plan.missed_text(replace(NOT_MET, nearest=None), question()),
    "nearest miss": lambda: plan.nearest_miss(NOT_MET, question()),
    "some runs failed": lambda: "\n".join(plan.failure_reasons(["a", "b", "a"])),
    "runs failed for five reasons": lambda: "\n".join(plan.failure_reasons(list("abcde"))),
    "on a scheduler of Dask": lambda: plan.executor_text("dask://host:8786"),
}


def sentences(situation: str) -> Sequence[str]:
    """Return the sentences of a situation."""
    return [SITUATIONS[situation]() or "(nothing)"]
